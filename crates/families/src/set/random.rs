//! SRANDMEMBER: members at random.
//!
//! One member costs a few draws of places in the table. Distinct members are drawn and looked up in
//! what was drawn before, while they are few; many are chosen in one walk, each with the chance that
//! is left, which needs no memory at all. Both are uniform over all subsets.
//!
//! Everything is drawn from a cut without dead members. At the moment when some have just died, the
//! living are copied first, in slices.

use super::reply::{Form, Members, bulk, flow, is_small, portion};
use super::walk::is_alive;
use crate::choice::Choice;
use darter_base::{Prng, number};
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::{Deadline, Set};
use darter_resp::Reply;
use darter_structs::table::{Never, Reader, Scratch, Table};
use darter_tx::KeySet;

/// Draws in one portion: about 25 us.
const DRAWS: usize = 48;
/// Members are drawn one by one while they are at most so small a part of the set.
pub(super) const DRAWN_PART: usize = 16;
/// Members copied in one portion: about 20 us.
const COPIES: usize = 96;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// One member, or null.
    One,
    /// So many, each as often as it comes.
    Repeated(usize),
    /// At most so many, all different.
    Distinct(usize),
}

/// `SRANDMEMBER key [count]`: a random member; or `count` different ones, all when the set has no
/// more; or, if `count` is negative, so many that may repeat.
///
/// Reply: bulk or null; array with a count. Refusals: `WrongType`, `NotAnInteger` and a count out of
/// range, `Syntax`. Cost: O(count), or O(members) for a large part of the set; in slices, from a cut.
/// Source: <https://redis.io/commands/srandmember> (1.0.0).
pub(super) fn srandmember(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let wish = wish(args)?;
    let now = cx.now;
    let cut = match cx.find(&key) {
        Some(found) => found.set()?.members().clone(),
        None => Table::new(),
    };
    if cut.earliest_deadline().is_some_and(|due| due <= now) {
        let small = is_small(cut.len());
        let seed = cx.prng.next_u64();
        return Ok(flow(&mut cx.reply, small, Purge::new(cut, wish, seed, now)));
    }
    Ok(draw(&mut cx.reply, cut, wish, cx.prng))
}

fn wish(mut args: Args<'_>) -> Result<Wish, Refusal> {
    let Some(count) = args.next() else { return Ok(Wish::One) };
    args.end()?;
    let count = number::parse_i64(count).ok_or(Refusal::NotAnInteger)?;
    if count == i64::MIN {
        return Err(Refusal::line(
            "ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        ));
    }
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    Ok(if count < 0 { Wish::Repeated(size) } else { Wish::Distinct(size) })
}

/// Replies from a cut in which nothing is dead.
fn draw(reply: &mut Reply<'_>, cut: Table<Never>, wish: Wish, prng: &mut Prng) -> Flow {
    let members = cut.len();
    match wish {
        Wish::One => {
            match cut.random(&mut || prng.next_u64()) {
                Some(entry) => {
                    bulk(reply, &entry);
                }
                None => reply.null(),
            }
            Flow::Done
        }
        Wish::Repeated(count) => {
            let count = if members == 0 { 0 } else { count };
            reply.array(count);
            flow(reply, count <= DRAWS, Draws::new(cut, count, None, prng))
        }
        Wish::Distinct(count) if count >= members => {
            flow(reply, is_small(members), Members::new(cut, Form::Array, 0))
        }
        Wish::Distinct(count) => {
            reply.array(count);
            if count.saturating_mul(DRAWN_PART) <= members {
                let seen = KeySet::with_capacity(count);
                return flow(reply, count <= DRAWS, Draws::new(cut, count, Some(seen), prng));
            }
            let choice = Choice::new(count, members, prng.next_u64());
            let walk = Chosen { reader: Reader::new(cut), choice };
            flow(reply, is_small(members), walk)
        }
    }
}

/// Members drawn one by one.
struct Draws {
    cut: Table<Never>,
    left: usize,
    /// Hashes of those drawn before, if members must differ.
    seen: Option<KeySet>,
    prng: Prng,
}

impl Draws {
    fn new(cut: Table<Never>, count: usize, seen: Option<KeySet>, prng: &mut Prng) -> Self {
        Self { cut, left: count, seen, prng: Prng::from_seed(prng.next_u64()) }
    }
}

impl Stream for Draws {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        for _ in 0..DRAWS {
            if self.left == 0 {
                return false;
            }
            let Some(entry) = self.cut.random(&mut || self.prng.next_u64()) else { return false };
            let is_new = self.seen.as_mut().is_none_or(|seen| seen.insert(entry.key().hash()));
            if is_new {
                bulk(reply, &entry);
                self.left -= 1;
            }
        }
        self.left > 0
    }
}

/// Members chosen in one walk.
struct Chosen {
    reader: Reader<Never>,
    choice: Choice,
}

impl Stream for Chosen {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let choice = &mut self.choice;
        portion(&mut self.reader, &mut |entry| {
            if choice.next() { bulk(reply, entry) } else { 0 }
        });
        !self.choice.is_done()
    }
}

/// Copies the living, then draws from the copy.
struct Purge {
    reader: Reader<Never>,
    living: Set,
    wish: Wish,
    prng: Prng,
    now: u64,
    drawing: Option<Box<dyn Stream>>,
}

impl Purge {
    fn new(cut: Table<Never>, wish: Wish, seed: u64, now: u64) -> Self {
        let (reader, prng) = (Reader::new(cut), Prng::from_seed(seed));
        Self { reader, living: Set::new(), wish, prng, now, drawing: None }
    }
}

impl Stream for Purge {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if let Some(drawing) = &mut self.drawing {
            return drawing.pump(reply);
        }
        let now = self.now;
        let mut edit = self.living.edit_aside(now);
        let more = self.reader.next_slice(COPIES, &mut |entry| {
            if is_alive(entry.deadline(), now) {
                edit.add(entry.key().bytes(&mut Scratch::new()), Deadline::Clear);
            }
        });
        if more {
            return true;
        }
        match draw(reply, self.living.members().clone(), self.wish, &mut self.prng) {
            Flow::Stream(drawing) => {
                self.drawing = Some(drawing);
                true
            }
            Flow::Done | Flow::Job(_) => false,
        }
    }
}
