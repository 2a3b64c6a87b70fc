//! ZRANDMEMBER: members at random.
//!
//! A random rank is a random member. Distinct ones are drawn and checked against those drawn before,
//! while they are few; many are chosen in one walk.

use super::reply::{Form, entries, member};
use super::value::ZSet;
use crate::lookup::find_value;
use crate::pending_values::{PORTION_BYTES, PendingValues, flow};
use crate::random::{Drawable, Draws, Way, Wish};
use crate::reservoir::Reservoir;
use darter_base::{Prng, hash};
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_resp::Reply;
use darter_structs::sorted::{End, Sorted, SortedReader};

/// Entries walked in one portion.
const WALKED: usize = 256;
/// Entries of a walk between two checks of their bytes: a portion sends no more.
const WALKED_TOGETHER: usize = 16;

/// `ZRANDMEMBER key [count [WITHSCORES]]`: a random member; or `count` different ones, all when the
/// sorted set has no more; or, if `count` is negative, so many that may repeat.
///
/// Reply: bulk or null; with a count as ZRANGE. Refusals: `NotAnInteger` and a count out of range,
/// `Syntax`, `WrongType`, in this order. Cost: O(count * log(members)), or O(members) for a large
/// part of them; in slices, from a cut. Source: <https://redis.io/commands/zrandmember> (6.2.0).
pub(super) fn zrandmember(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let (wish, form) = wish(args)?;
    let set = find_value::<ZSet>(cx.db, cx.stats, &key)?;
    let empty = Sorted::new();
    let set = set.as_ref().map_or(&empty, |set| set.entries());
    Ok(draw(&mut cx.reply, set, (wish, form), cx.prng))
}

fn wish(mut args: Args<'_>) -> Result<(Wish, Form), Refusal> {
    let Some(count) = args.next() else { return Ok((Wish::One, Form::Member)) };
    let wish = Wish::of_count(count)?;
    let with_scores = args.option("WITHSCORES");
    args.end()?;
    // The number of elements of a flat reply must fit too.
    const COUNT_END: usize = 1 << 62;
    if with_scores && matches!(wish, Wish::Repeated(COUNT_END..) | Wish::Distinct(COUNT_END..)) {
        return Err(Refusal::line("ERR value is out of range"));
    }
    Ok((wish, Form::of(with_scores)))
}

fn draw(reply: &mut Reply<'_>, set: &Sorted, (wish, form): (Wish, Form), prng: &mut Prng) -> Flow {
    match wish.way(set.len(), prng) {
        Way::One => {
            let mut unsent = PendingValues::default();
            match set.get(below(set.len(), prng)) {
                Some(entry) => _ = member(reply, &mut unsent, &entry),
                None => reply.null(),
            }
            unsent.into_flow()
        }
        Way::Draw(count, seen) => {
            form.header(reply, count);
            flow(reply, Draws::new(DrawnEntries(set.reader(), form), count, seen, prng))
        }
        Way::All => entries(reply, set, 0..set.len(), (End::Front, form)),
        Way::Choose(count, choice) => {
            form.header(reply, count);
            let reader = SortedReader::new(set.reader(), 0..set.len(), End::Front);
            flow(reply, Chosen { reader, choice, form, unsent: PendingValues::default() })
        }
    }
}

/// A number below `len`; 0 where there is none.
fn below(len: usize, prng: &mut Prng) -> usize {
    usize::try_from(prng.below(len.max(1) as u64)).unwrap_or(0)
}

/// Entries to draw from, and how they are shown.
struct DrawnEntries(Sorted, Form);

impl Drawable for DrawnEntries {
    fn draw(
        &self,
        (reply, unsent): (&mut Reply<'_>, &mut PendingValues),
        prng: &mut Prng,
        is_new: &mut dyn FnMut(u64) -> bool,
    ) -> Option<usize> {
        let rank = below(self.0.len(), prng);
        let entry = self.0.get(rank)?;
        let mixed = hash::of(&rank.to_le_bytes());
        Some(if is_new(mixed) { self.1.encode(reply, unsent, &entry) } else { 0 })
    }

    fn pinned_bytes(&self) -> usize {
        if self.0.is_pinned() { self.0.memory_bytes() } else { 0 }
    }
}

/// Entries chosen in one walk.
struct Chosen {
    reader: SortedReader,
    choice: Reservoir,
    form: Form,
    unsent: PendingValues,
}

impl Stream for Chosen {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Self { reader, choice, form, unsent } = self;
        if !unsent.is_empty() {
            return unsent.pump(reply) || !choice.is_done();
        }
        let (mut walked, mut bytes) = (0, 0);
        while walked < WALKED && bytes < PORTION_BYTES && unsent.is_empty() {
            walked += WALKED_TOGETHER;
            let more = reader.next_slice(WALKED_TOGETHER, &mut |entry| {
                if choice.next() {
                    bytes += form.encode(reply, unsent, &entry);
                }
            });
            if !more {
                break;
            }
        }
        !choice.is_done() || !unsent.is_empty()
    }

    fn pinned_bytes(&self) -> usize {
        self.reader.pinned_bytes() + self.unsent.pinned_bytes()
    }
}
