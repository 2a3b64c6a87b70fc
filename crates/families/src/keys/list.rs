//! KEYS: all keys that match a pattern, at one instant, without blocking other clients.
//!
//! Cuts of the keyspace of all cores are taken at one instant, and searched in portions. The
//! reply's header needs the count, so matches are collected first. If every key is listed, the
//! count is known, and keys are streamed from the cuts.

use crate::counted_reply::CountedReply;
use crate::cut::{Cut, Cuts};
use crate::pending_values::CutWalk;
use darter_base::glob;
use darter_command::{Answer, Call, Refusal, Stream};
use darter_keyspace::{Found, Object};
use darter_resp::{Output, Reply};
use darter_structs::table::{Reader, Scratch};

/// Keys that are matched between two checks of the slice: a pattern of many stars costs a
/// microsecond.
const MATCHED_AT_ONCE: usize = 32;

/// `KEYS pattern`: the keys that match `pattern`.
///
/// Reply: array, streamed when long. Refusals: none. Cost: O(keys), in slices.
/// Source: <https://redis.io/commands/keys> (1.0.0).
pub(super) async fn keys(call: Call) -> Result<Answer, Refusal> {
    let Cuts(cuts) = Cuts::take(&call).await;
    let pattern = call.arg(call.first);
    if pattern == b"*" && cuts.iter().all(|cut| cut.is_whole) {
        return Ok(list_all(call.resp3, cuts));
    }
    let mut found = CountedReply::default();
    for Cut { keys, now, .. } in cuts {
        let mut reader = Reader::new(keys);
        loop {
            let more = reader.next_slice(MATCHED_AT_ONCE, &mut |entry| {
                if glob::matches(pattern, entry.key().bytes(&mut Scratch::default()))
                    && Found::alive(entry, now).is_some()
                {
                    found.push_key(&entry);
                }
            });
            call.tx.pause().await;
            if !more {
                break;
            }
        }
    }
    Ok(found.into_answer(call.resp3, |_| ()))
}

/// All keys of cuts without expired ones.
fn list_all(resp3: bool, cuts: Vec<Cut>) -> Answer {
    let walk = |cut: Cut| CutWalk::new(Reader::of_value(cut.keys, cut.bytes));
    let walks: Vec<_> = cuts.into_iter().map(walk).collect();
    let mut out = Output::default();
    let mut reply = Reply::new(&mut out, resp3);
    reply.array(walks.iter().map(CutWalk::left).sum());
    let mut all = All { walks };
    if all.pump(&mut reply) { Answer::Stream(out, Box::new(all)) } else { Answer::Done(out) }
}

/// The rest of the list; the last walk is the current one.
struct All {
    walks: Vec<CutWalk<Object>>,
}

impl Stream for All {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if let Some(walk) = self.walks.last_mut()
            && !walk.portion(reply, &mut |reply, unsent, entry| unsent.key(reply, entry))
        {
            self.walks.pop();
        }
        !self.walks.is_empty()
    }

    fn pinned_bytes(&self) -> usize {
        self.walks.iter().map(CutWalk::pinned_bytes).sum()
    }
}
