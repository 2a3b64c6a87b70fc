//! HRANDFIELD: fields at random.
//!
//! One field costs a few draws of places in the table. Distinct fields are drawn and looked up in what
//! was drawn before, while they are few; many are chosen in one walk, each with the chance that is
//! left. Both are uniform over all subsets.
//!
//! Everything is drawn from a cut without dead fields. At the moment when some have just died, the
//! living are copied first, in slices.

use super::outbox::{Outbox, PORTION_BYTES, flow};
use super::whole::{All, Fields, Part, Walk, is_alive};
use crate::choice::Choice;
use darter_base::{Prng, number};
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::{Deadline, Fresh, Hash, value_of};
use darter_resp::Reply;
use darter_structs::blob::Blob;
use darter_structs::table::{Reader, Scratch, Table};
use darter_tx::KeySet;
use std::sync::Arc;

/// Draws in one portion: about 25 us.
const DRAWS: usize = 48;
/// Fields are drawn one by one while they are at most so small a part of the hash.
const DRAWN_PART: usize = 16;
/// Fields copied in one portion: about 25 us.
const COPIES: usize = 96;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// One field, or null.
    One,
    /// So many, each as often as it comes.
    Repeated(usize, Part),
    /// At most so many, all different.
    Distinct(usize, Part),
}

/// `HRANDFIELD key [count [WITHVALUES]]`: a random field; or `count` different ones, all when the
/// hash has no more; or, if `count` is negative, so many that may repeat.
///
/// Reply: bulk or null; array with a count (of pairs in RESP3, with values). Refusals:
/// `NotAnInteger` and a count out of range, `Syntax`, `WrongType`. Cost: O(count), or O(fields) for
/// a large part of the hash; in slices, from a cut.
/// Source: <https://redis.io/commands/hrandfield> (6.2.0).
pub(super) fn hrandfield(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let wish = wish(args)?;
    let cut = match super::field::find(cx.db, cx.stats, &key)? {
        Some(hash) => hash.fields().clone(),
        None => Table::new(),
    };
    if cut.earliest_deadline().is_some_and(|due| due <= cx.now) {
        let purge = Purge::new(cut, wish, cx.prng.next_u64(), cx.now);
        return Ok(flow(&mut cx.reply, purge));
    }
    Ok(draw(&mut cx.reply, cut, wish, cx.prng))
}

fn wish(mut args: Args<'_>) -> Result<Wish, Refusal> {
    let Some(count) = args.next() else { return Ok(Wish::One) };
    let count = number::parse_i64(count).ok_or(Refusal::NotAnInteger)?;
    if count == i64::MIN {
        return Err(Refusal::line(
            "ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        ));
    }
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let part = if args.option("WITHVALUES") { Part::Pairs } else { Part::Field };
    args.end()?;
    if part == Part::Pairs && count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
        return Err(Refusal::line("ERR value is out of range"));
    }
    Ok(if count < 0 { Wish::Repeated(size, part) } else { Wish::Distinct(size, part) })
}

/// Replies from a cut in which nothing is dead.
fn draw(reply: &mut Reply<'_>, cut: Fields, wish: Wish, prng: &mut Prng) -> Flow {
    let fields = cut.len();
    match wish {
        Wish::One => {
            match cut.random(&mut || prng.next_u64()) {
                Some(entry) => reply.bulk(entry.key().bytes(&mut Scratch::new())),
                None => reply.null(),
            }
            Flow::Done
        }
        Wish::Repeated(count, part) => {
            let count = if fields == 0 { 0 } else { count };
            part.header(reply, count);
            flow(reply, Draws::new(cut, count, None, part, prng))
        }
        Wish::Distinct(count, part) if count >= fields => flow(reply, All::new(cut, part, 0)),
        Wish::Distinct(count, part) => {
            part.header(reply, count);
            if count.saturating_mul(DRAWN_PART) <= fields {
                let seen = KeySet::with_capacity(count);
                return flow(reply, Draws::new(cut, count, Some(seen), part, prng));
            }
            let choice = Choice::new(count, fields, prng.next_u64());
            flow(reply, Chosen { walk: Walk::new(cut), choice, part })
        }
    }
}

fn fork(prng: &mut Prng) -> Prng {
    Prng::from_seed(prng.next_u64())
}

/// Fields drawn one by one.
struct Draws {
    cut: Fields,
    left: usize,
    /// Hashes of those drawn before, if fields must differ.
    seen: Option<KeySet>,
    part: Part,
    prng: Prng,
    outbox: Outbox,
}

impl Draws {
    fn new(cut: Fields, left: usize, seen: Option<KeySet>, part: Part, prng: &mut Prng) -> Self {
        Self { cut, left, seen, part, prng: fork(prng), outbox: Outbox::default() }
    }
}

impl Stream for Draws {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Self { cut, left, seen, part, prng, outbox } = self;
        if !outbox.is_empty() {
            return outbox.pump(reply) || *left > 0;
        }
        let mut bytes = 0;
        for _ in 0..DRAWS {
            if *left == 0 || bytes >= PORTION_BYTES || !outbox.is_empty() {
                break;
            }
            let Some(entry) = cut.random(&mut || prng.next_u64()) else { return false };
            if seen.as_mut().is_none_or(|seen| seen.insert(entry.key().hash())) {
                bytes += part.encode(reply, outbox, &entry);
                *left -= 1;
            }
        }
        *left > 0 || !outbox.is_empty()
    }
}

/// Fields chosen in one walk.
struct Chosen {
    walk: Walk,
    choice: Choice,
    part: Part,
}

impl Stream for Chosen {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Self { walk, choice, part } = self;
        let more = walk.portion(reply, &mut |reply, outbox, entry| {
            if choice.next() { part.encode(reply, outbox, entry) } else { 0 }
        });
        if choice.is_done() { walk.finish() } else { more }
    }
}

/// Copies the living, then draws from the copy.
struct Purge {
    reader: Reader<Arc<Blob>>,
    living: Hash,
    wish: Wish,
    prng: Prng,
    now: u64,
    drawing: Option<Box<dyn Stream>>,
}

impl Purge {
    fn new(cut: Fields, wish: Wish, seed: u64, now: u64) -> Self {
        let (reader, prng) = (Reader::new(cut), Prng::from_seed(seed));
        Self { reader, living: Hash::new(), wish, prng, now, drawing: None }
    }
}

impl Stream for Purge {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if let Some(drawing) = &mut self.drawing {
            return drawing.pump(reply);
        }
        let now = self.now;
        let mut edit = self.living.edit_aside(now);
        let mut scratch = (Scratch::new(), Vec::new());
        let more = self.reader.next_slice(COPIES, &mut |entry| {
            if !is_alive(entry.deadline(), now) {
                return;
            }
            let value = value_of(&entry);
            let fresh = match &value {
                darter_keyspace::Str::Inline(text) => {
                    scratch.1.clear();
                    text.write_to(&mut scratch.1);
                    Fresh::Bytes(&scratch.1)
                }
                darter_keyspace::Str::Blob(blob) => Fresh::Blob(blob),
            };
            edit.set(entry.key().bytes(&mut scratch.0), fresh, Deadline::Clear);
        });
        if more {
            return true;
        }
        match draw(reply, self.living.fields().clone(), self.wish, &mut self.prng) {
            Flow::Stream(drawing) => {
                self.drawing = Some(drawing);
                true
            }
            Flow::Done | Flow::Job(_) => false,
        }
    }
}
