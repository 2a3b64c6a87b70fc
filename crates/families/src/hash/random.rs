//! HRANDFIELD: random fields. For the method of drawing, see `random`.

use super::value::{Hash, value_of};
use super::whole::{All, FieldPart};
use crate::live_entries::is_alive;
use crate::lookup::find_value;
use crate::pending_values::{CutWalk, PendingValues, flow};
use crate::random::{Drawable, Draws, Purge, Urn, Way, Wish};
use crate::reservoir::Reservoir;
use darter_base::{Prng, UnixMillis};
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::{Collection, Deadline, Fresh, Lent, Str};
use darter_resp::Reply;
use darter_structs::blob::Blob;
use darter_structs::table::{Entry, Reader, Scratch};
use std::sync::Arc;

/// `HRANDFIELD key [count [WITHVALUES]]`: a random field; or `count` different ones (all, if the
/// hash has fewer); or, with a negative count, `-count` fields that may repeat.
///
/// Reply: bulk or null; array with a count (of pairs in RESP3, with values). Refusals:
/// `NotAnInteger` and a count out of range, `Syntax`, `WrongType`. Cost: O(count), or O(fields) for
/// a large part of the hash; in slices, from a cut.
/// Source: <https://redis.io/commands/hrandfield> (6.2.0).
pub(super) fn hrandfield(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let wish = wish(args)?;
    let hash = find_value::<Hash>(cx.db, cx.stats, &key)?.unwrap_or(Lent::Copied(Hash::new()));
    if !is_alive(hash.fields().earliest_deadline(), cx.now) {
        let urn = LiveEntries { hash: Hash::new(), wish, text: Vec::new() };
        let cut = (hash.fields().clone(), hash.memory_bytes());
        return Ok(flow(&mut cx.reply, Purge::new(cut, urn, cx.prng, cx.now)));
    }
    Ok(draw(&mut cx.reply, &hash, wish, cx.prng))
}

/// Reads the requested number of fields, and the parts to show of each.
fn wish(mut args: Args<'_>) -> Result<(Wish, FieldPart), Refusal> {
    let Some(count) = args.next() else { return Ok((Wish::One, FieldPart::Field)) };
    let wish = Wish::of_count(count)?;
    let part = if args.option("WITHVALUES") { FieldPart::Pairs } else { FieldPart::Field };
    args.end()?;
    let (Wish::Repeated(count) | Wish::Distinct(count)) = wish else { return Ok((wish, part)) };
    if part == FieldPart::Pairs && count as u64 > i64::MAX.unsigned_abs() / 2 {
        return Err(Refusal::line("ERR value is out of range"));
    }
    Ok((wish, part))
}

/// Replies from a hash without expired fields.
fn draw(
    reply: &mut Reply<'_>,
    hash: &Hash,
    (wish, part): (Wish, FieldPart),
    prng: &mut Prng,
) -> Flow {
    let (fields, bytes) = (hash.fields(), hash.memory_bytes());
    match wish.way(fields.len(), prng) {
        Way::One => {
            let mut unsent = PendingValues::default();
            match fields.random(&mut || prng.next_u64()) {
                Some(entry) => _ = unsent.key(reply, &entry),
                None => reply.null(),
            }
            unsent.into_flow()
        }
        Way::Draw(count, seen) => {
            part.header(reply, count);
            flow(reply, Draws::new(DrawnFields(hash.reader(), part), count, seen, prng))
        }
        Way::All => flow(reply, All::new(fields.reader(), bytes, part, 0)),
        Way::Choose(count, choice) => {
            part.header(reply, count);
            let walk = CutWalk::new(Reader::of_value(fields.clone(), bytes));
            flow(reply, Chosen { walk, choice, part })
        }
    }
}

/// Fields to draw from, and the part of each that is shown.
struct DrawnFields(Hash, FieldPart);

impl Drawable for DrawnFields {
    fn draw(
        &self,
        (reply, unsent): (&mut Reply<'_>, &mut PendingValues),
        prng: &mut Prng,
        is_new: &mut dyn FnMut(u64) -> bool,
    ) -> Option<usize> {
        let entry = self.0.fields().random(&mut || prng.next_u64())?;
        Some(if is_new(entry.key().hash()) { self.1.encode(reply, unsent, &entry) } else { 0 })
    }

    fn pinned_bytes(&self) -> usize {
        self.0.pinned_bytes()
    }
}

/// Fields chosen in one pass over the hash.
struct Chosen {
    walk: CutWalk<Arc<Blob>>,
    choice: Reservoir,
    part: FieldPart,
}

impl Stream for Chosen {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Self { walk, choice, part } = self;
        let more = walk.portion(reply, &mut |reply, unsent, entry| {
            if choice.next() { part.encode(reply, unsent, entry) } else { 0 }
        });
        if choice.is_done() { walk.finish() } else { more }
    }

    fn pinned_bytes(&self) -> usize {
        self.walk.pinned_bytes()
    }
}

/// The live fields, and the request.
struct LiveEntries {
    hash: Hash,
    wish: (Wish, FieldPart),
    /// A buffer for the text of a value.
    text: Vec<u8>,
}

impl Urn for LiveEntries {
    type Out = Arc<Blob>;

    fn bytes(&self) -> usize {
        self.hash.memory_bytes()
    }

    fn put(&mut self, entry: &Entry<'_, Arc<Blob>>, now: UnixMillis) {
        let value = value_of(entry);
        let fresh = match &value {
            Str::Inline(text) => {
                self.text.clear();
                text.write_to(&mut self.text);
                Fresh::Bytes(&self.text)
            }
            Str::Blob(blob) => Fresh::Blob(blob),
        };
        let field = entry.key();
        self.hash.edit_aside(now).set(field.bytes(&mut Scratch::new()), fresh, Deadline::Clear);
    }

    fn draw(&mut self, reply: &mut Reply<'_>, prng: &mut Prng) -> Flow {
        draw(reply, &self.hash, self.wish, prng)
    }
}
