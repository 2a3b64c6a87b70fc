//! SRANDMEMBER: members at random. How they are drawn: `random`.

use super::reply::{Form, Members, bulk, flow, is_small, portion};
use super::value::Set;
use crate::choice::Choice;
use crate::living::is_alive;
use crate::random::{DRAWS, Purge, Urn, Way, Wish, fork};
use darter_base::{Prng, UnixMillis};
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::{Collection, Deadline};
use darter_resp::Reply;
use darter_structs::table::{Entry, Never, Reader, Scratch};
use darter_tx::KeySet;

/// `SRANDMEMBER key [count]`: a random member; or `count` different ones, all when the set has no
/// more; or, if `count` is negative, so many that may repeat.
///
/// Reply: bulk or null; array with a count. Refusals: `WrongType`, `NotAnInteger` and a count out
/// of range, `Syntax`. Cost: O(count), or O(members) for a large part of the set; in slices, from a
/// cut. Source: <https://redis.io/commands/srandmember> (1.0.0).
pub(super) fn srandmember(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let wish = wish(args)?;
    let now = cx.now;
    let set = match cx.find(&key) {
        Some(found) => found.value::<Set>()?.into_cut(),
        None => Set::new(),
    };
    if !is_alive(set.members().earliest_deadline(), now) {
        let small = is_small(set.len());
        let cut = (set.members().clone(), set.memory_bytes());
        let purge = Purge::new(cut, Living { set: Set::new(), wish }, cx.prng, now);
        return Ok(flow(&mut cx.reply, small, purge));
    }
    Ok(draw(&mut cx.reply, &set, wish, cx.prng))
}

fn wish(mut args: Args<'_>) -> Result<Wish, Refusal> {
    let Some(count) = args.next() else { return Ok(Wish::One) };
    args.end()?;
    Wish::of_count(count)
}

/// Replies from a set without dead members.
fn draw(reply: &mut Reply<'_>, set: &Set, wish: Wish, prng: &mut Prng) -> Flow {
    let (members, small) = (set.members(), is_small(set.len()));
    match wish.way(set.len(), prng) {
        Way::One => {
            match members.random(&mut || prng.next_u64()) {
                Some(entry) => _ = bulk(reply, &entry),
                None => reply.null(),
            }
            Flow::Done
        }
        Way::Draw(count, seen) => {
            reply.array(count);
            flow(reply, count <= DRAWS, Draws::new(set.reader(), count, seen, prng))
        }
        Way::All => flow(reply, small, Members::new(members.reader(), Form::Array, 0)),
        Way::Choose(count, choice) => {
            reply.array(count);
            flow(reply, small, Chosen { reader: Reader::new(members.clone()), choice })
        }
    }
}

/// Members drawn one by one.
struct Draws {
    set: Set,
    left: usize,
    /// Hashes of those drawn before, if members must be distinct.
    seen: Option<KeySet>,
    prng: Prng,
}

impl Draws {
    fn new(set: Set, count: usize, seen: Option<KeySet>, prng: &mut Prng) -> Self {
        Self { set, left: count, seen, prng: fork(prng) }
    }
}

impl Stream for Draws {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        for _ in 0..DRAWS {
            if self.left == 0 {
                return false;
            }
            let entry = self.set.members().random(&mut || self.prng.next_u64());
            let Some(entry) = entry else { return false };
            let is_new = self.seen.as_mut().is_none_or(|seen| seen.insert(entry.key().hash()));
            if is_new {
                bulk(reply, &entry);
                self.left -= 1;
            }
        }
        self.left > 0
    }

    fn pinned_bytes(&self) -> usize {
        self.set.pinned_bytes()
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

    fn pinned_bytes(&self) -> usize {
        self.reader.pinned_bytes()
    }
}

/// The living members, and what is asked of them.
struct Living {
    set: Set,
    wish: Wish,
}

impl Urn for Living {
    type Out = Never;

    fn bytes(&self) -> usize {
        self.set.memory_bytes()
    }

    fn put(&mut self, entry: &Entry<'_, Never>, now: UnixMillis) {
        let member = entry.key();
        self.set.edit_aside(now).add(member.bytes(&mut Scratch::new()), Deadline::Clear);
    }

    fn draw(&mut self, reply: &mut Reply<'_>, prng: &mut Prng) -> Flow {
        draw(reply, &self.set, self.wish, prng)
    }
}
