//! SSCAN: a set, a few members a call, with cursors that survive its growth.

use super::reply::bulk;
use super::value::Set;
use crate::cursor;
use crate::scan::{Options, PORTION, Walk};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::Value;
use darter_resp::Reply;
use darter_structs::table::Never;

/// The encoding of sets that are returned whole.
const WHOLE: &str = "intset";

/// `SSCAN key cursor [MATCH pattern] [COUNT count]`: some members, and the cursor to continue with.
///
/// Reply: array of the cursor and an array of members. A set of few integers is returned whole.
/// With a large count the reply is made in slices, from a cut. Refusals: an invalid cursor,
/// `WrongType`, `NotAnInteger`, `Syntax`, in this order; no option is looked at when the key is
/// absent. Cost: O(count). Source: <https://redis.io/commands/sscan> (2.8.0).
pub(super) fn sscan(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let cursor = cursor::parse(args.bytes()?)?;
    let Some(found) = cx.find(&key) else {
        header(&mut cx.reply, 0, 0);
        return Ok(Flow::Done);
    };
    let set = found.value::<Set>()?;
    let mut options = Options::parse(args, |_| false)?;
    let is_whole = set.encoding() == WHOLE;
    options.count = if is_whole { usize::MAX } else { options.count };
    let small = options.count <= ENTRIES_AT_ONCE || is_whole;
    let first = if is_whole { 0 } else { cursor };
    let walk = Walk::new(set.members().clone(), options, first, cx.now);
    let mut scan = Scan { walk, matches: 0, counted: false };
    if small {
        while scan.pump(&mut cx.reply) {}
        return Ok(Flow::Done);
    }
    Ok(Flow::Stream(Box::new(scan)))
}

/// The start of a reply.
fn header(reply: &mut Reply<'_>, cursor: u64, members: usize) {
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(members);
}

/// A call: counts, then sends.
struct Scan {
    walk: Walk<Never>,
    matches: usize,
    counted: bool,
}

impl Stream for Scan {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        for _ in 0..PORTION {
            if self.counted {
                let more = self.walk.place(&mut |entry| {
                    bulk(reply, entry);
                });
                if !more {
                    return false;
                }
                continue;
            }
            let mut matches = 0;
            let more = self.walk.place(&mut |_| matches += 1);
            self.matches += matches;
            if !more {
                header(reply, self.walk.cursor(), self.matches);
                self.counted = true;
                self.walk.restart();
                return self.matches > 0;
            }
        }
        true
    }
}
