//! `DUMP`.
//!
//! The length of the payload precedes its first byte, so the value is read twice, both times from
//! the same snapshot: first to compute the length, then to write the payload. Both passes over a
//! large value run in slices.

use darter_base::UnixMillis;
use darter_base::limits::{CHUNK_BYTES, ENTRIES_AT_ONCE};
use darter_command::{Args, Cx, Flow, Job, Refusal, Step, Stream};
use darter_keyspace::Found;
use darter_rdb::Items;
use darter_rdb::dump::Dumper;
use darter_resp::Reply;

/// Payloads up to this size are encoded at once.
const AT_ONCE_BYTES: u64 = 16 * 1024;
/// The bytes encoded in one portion, as long as it has few entries.
const PORTION_BYTES: usize = CHUNK_BYTES / 2;

/// `DUMP key`: replies with the value at `key` as a payload for `RESTORE`.
///
/// Reply: bulk, or null when the key is absent. Cost: O(bytes), in slices beyond
/// `ENTRIES_AT_ONCE` entries. Source: <https://redis.io/commands/dump> (2.6.0).
pub fn dump(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    args.end()?;

    let now = cx.now;
    let Some(found) = cx.find(&key) else {
        cx.reply.null();
        return Ok(Flow::Done);
    };
    let dumper = dumper(&found, now);
    Ok(start(dumper, &mut cx.reply))
}

fn dumper(found: &Found<'_>, now: UnixMillis) -> Dumper<Items> {
    Dumper::new(found.items(now), found.kind().rdb)
}

/// Adds up to the given number of entries to the size. Returns the payload's bytes after the last
/// entry.
pub type Sizer = Box<dyn FnMut(usize) -> Option<u64> + Send>;

/// Computes the size of a value's payload from a snapshot of it, for `DEBUG OBJECT`.
#[must_use]
pub fn sizer(found: &Found<'_>, now: UnixMillis) -> Sizer {
    let mut dumper = dumper(found, now);
    Box::new(move |items_max| dumper.survey(items_max))
}

/// Computes the size of the first entries, and replies if there are no more.
fn start(mut dumper: Dumper<Items>, reply: &mut Reply<'_>) -> Flow {
    match dumper.survey(ENTRIES_AT_ONCE) {
        Some(len) => answer(dumper, len, reply, AT_ONCE_BYTES),
        None => Flow::Job(Box::new(Sizing(Some(dumper)))),
    }
}

/// The reply of a dumper whose length is known. Up to `at_once_bytes` are encoded here.
fn answer(mut dumper: Dumper<Items>, len: u64, reply: &mut Reply<'_>, at_once_bytes: u64) -> Flow {
    if dumper.is_hollow() {
        // All entries have expired, but are not removed yet.
        reply.null();
        return Flow::Done;
    }
    reply.bulk_header(usize::try_from(len).unwrap_or(usize::MAX));
    if len > at_once_bytes {
        return Flow::Stream(Box::new(Writing(dumper)));
    }
    while !dumper.fill(reply.out.tail(), usize::MAX) {}
    reply.crlf();
    Flow::Done
}

/// The first pass over a large value: it computes the length.
struct Sizing(Option<Dumper<Items>>);

impl Job for Sizing {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let dumper = self.0.as_mut().expect("the engine drops a job that is done");
        let Some(len) = dumper.survey(ENTRIES_AT_ONCE) else { return Ok(Step::More) };
        let dumper = self.0.take().expect("it was there a line above");
        // Even a short payload is not encoded here, because its many entries must be visited again.
        Ok(Step::Done(answer(dumper, len, &mut cx.reply, 0)))
    }
}

/// The second pass: it writes the payload.
struct Writing(Dumper<Items>);

impl Stream for Writing {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let done = self.0.fill(reply.out.tail(), PORTION_BYTES);
        if done {
            reply.crlf();
        }
        !done
    }
}
