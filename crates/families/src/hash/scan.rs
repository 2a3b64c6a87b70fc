//! HSCAN: iterates over a hash, with cursors that stay valid while it grows.

use super::value::Hash;
use super::whole::FieldPart;
use crate::cursor;
use crate::lookup::find_value;
use crate::pending_values::{PendingValues, flow};
use crate::scan::{Options, Scan, ScanWalk, Show, nothing};
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::Value;
use darter_resp::Reply;
use darter_structs::blob::Blob;
use darter_structs::table::Entry;
use std::sync::Arc;

/// The encoding in which Redis returns a hash whole.
const WHOLE: &str = "listpack";

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`: returns some fields with their
/// values, and the cursor for the next call.
///
/// Reply: array of the cursor and a flat array. A hash that Redis keeps packed is returned whole.
/// With a large count the reply is built in slices, from a cut. Refusals: an invalid cursor,
/// `WrongType`, `NotAnInteger`, `Syntax`, in this order; if the key is absent, options are not
/// checked. Cost: O(count). Source: <https://redis.io/commands/hscan> (2.8.0; NOVALUES 7.4.0).
pub(super) fn hscan(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let cursor = cursor::parse(args.bytes()?)?;
    let Some(hash) = find_value::<Hash>(cx.db, cx.stats, &key)? else {
        nothing(&mut cx.reply);
        return Ok(Flow::Done);
    };
    let mut part = FieldPart::Flat;
    let mut options = Options::parse(args, |args| {
        let alone = args.option("NOVALUES");
        part = if alone { FieldPart::Field } else { part };
        alone
    })?;
    let is_whole = hash.encoding() == WHOLE;
    options.count = if is_whole { usize::MAX } else { options.count };
    let first = if is_whole { 0 } else { cursor };
    let walk = ScanWalk::new(hash.fields().clone(), options, first, cx.now);
    Ok(flow(&mut cx.reply, Scan::new(walk, part)))
}

impl Show<Arc<Blob>> for FieldPart {
    fn header(self, reply: &mut Reply<'_>, entries: usize) {
        FieldPart::header(self, reply, entries);
    }

    fn encode(
        self,
        reply: &mut Reply<'_>,
        unsent: &mut PendingValues,
        entry: &Entry<'_, Arc<Blob>>,
    ) {
        FieldPart::encode(self, reply, unsent, entry);
    }
}
