//! SRANDMEMBER: random members. For the method of drawing, see `random`.

use super::reply::{Form, Members};
use super::value::Set;
use crate::live_entries::is_alive;
use crate::pending_values::{CutWalk, PendingValues, flow};
use crate::random::{Drawable, Draws, Purge, Urn, Way, Wish};
use crate::reservoir::Reservoir;
use darter_base::{Prng, UnixMillis};
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::{Collection, Deadline};
use darter_resp::Reply;
use darter_structs::table::{Entry, Never, Reader, Scratch};

/// `SRANDMEMBER key [count]`: a random member; or `count` different ones (all, if the set has
/// fewer); or, with a negative count, `-count` members that may repeat.
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
        let cut = (set.members().clone(), set.memory_bytes());
        let purge = Purge::new(cut, LiveEntries { set: Set::new(), wish }, cx.prng, now);
        return Ok(flow(&mut cx.reply, purge));
    }
    Ok(draw(&mut cx.reply, &set, wish, cx.prng))
}

fn wish(mut args: Args<'_>) -> Result<Wish, Refusal> {
    let Some(count) = args.next() else { return Ok(Wish::One) };
    args.end()?;
    Wish::of_count(count)
}

/// Replies from a set without expired members.
fn draw(reply: &mut Reply<'_>, set: &Set, wish: Wish, prng: &mut Prng) -> Flow {
    let members = set.members();
    match wish.way(set.len(), prng) {
        Way::One => {
            let mut unsent = PendingValues::default();
            match members.random(&mut || prng.next_u64()) {
                Some(entry) => _ = unsent.key(reply, &entry),
                None => reply.null(),
            }
            unsent.into_flow()
        }
        Way::Draw(count, seen) => {
            reply.array(count);
            flow(reply, Draws::new(set.reader(), count, seen, prng))
        }
        Way::All => flow(reply, Members::new(members.reader(), Form::Array, 0)),
        Way::Choose(count, choice) => {
            reply.array(count);
            flow(reply, Chosen { walk: CutWalk::new(Reader::new(members.clone())), choice })
        }
    }
}

impl Drawable for Set {
    fn draw(
        &self,
        (reply, unsent): (&mut Reply<'_>, &mut PendingValues),
        prng: &mut Prng,
        is_new: &mut dyn FnMut(u64) -> bool,
    ) -> Option<usize> {
        let entry = self.members().random(&mut || prng.next_u64())?;
        Some(if is_new(entry.key().hash()) { unsent.key(reply, &entry) } else { 0 })
    }

    fn pinned_bytes(&self) -> usize {
        self.pinned_bytes()
    }
}

/// Members chosen in one pass over the set.
struct Chosen {
    walk: CutWalk<Never>,
    choice: Reservoir,
}

impl Stream for Chosen {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Self { walk, choice } = self;
        let more = walk.portion(reply, &mut |reply, unsent, entry| {
            if choice.next() { unsent.key(reply, entry) } else { 0 }
        });
        if choice.is_done() { walk.finish() } else { more }
    }

    fn pinned_bytes(&self) -> usize {
        self.walk.pinned_bytes()
    }
}

/// The live members, and the request.
struct LiveEntries {
    set: Set,
    wish: Wish,
}

impl Urn for LiveEntries {
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
