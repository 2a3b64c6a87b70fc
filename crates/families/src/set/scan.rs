//! SSCAN: iterates over a set, with cursors that stay valid while it grows.

use super::reply::flow;
use super::value::Set;
use crate::cursor;
use crate::pending_values::PendingValues;
use crate::scan::{Options, Scan, ScanWalk, Show, nothing};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::Value;
use darter_resp::Reply;
use darter_structs::table::{Entry, Never};

/// The encoding in which Redis returns a set whole.
const WHOLE: &str = "intset";

/// `SSCAN key cursor [MATCH pattern] [COUNT count]`: returns some members, and the cursor for the
/// next call.
///
/// Reply: array of the cursor and an array of members. A set of few integers is returned whole.
/// With a large count the reply is built in slices, from a cut. Refusals: an invalid cursor,
/// `WrongType`, `NotAnInteger`, `Syntax`, in this order; if the key is absent, options are not
/// checked. Cost: O(count). Source: <https://redis.io/commands/sscan> (2.8.0).
pub(super) fn sscan(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let cursor = cursor::parse(args.bytes()?)?;
    let Some(found) = cx.find(&key) else {
        nothing(&mut cx.reply);
        return Ok(Flow::Done);
    };
    let set = found.value::<Set>()?;
    let mut options = Options::parse(args, |_| false)?;
    let is_whole = set.encoding() == WHOLE;
    options.count = if is_whole { usize::MAX } else { options.count };
    let small = options.count <= ENTRIES_AT_ONCE || is_whole;
    let first = if is_whole { 0 } else { cursor };
    let walk = ScanWalk::new(set.members().clone(), options, first, cx.now);
    Ok(flow(cx, small, Scan::new(walk, Member)))
}

/// The encoding of a member in SSCAN.
#[derive(Clone, Copy)]
struct Member;

impl Show<Never> for Member {
    fn header(self, reply: &mut Reply<'_>, entries: usize) {
        reply.array(entries);
    }

    fn encode(self, reply: &mut Reply<'_>, unsent: &mut PendingValues, entry: &Entry<'_, Never>) {
        unsent.key(reply, entry);
    }
}
