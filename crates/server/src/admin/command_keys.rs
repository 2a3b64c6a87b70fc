//! The keys of a request, for COMMAND GETKEYS and GETKEYSANDFLAGS.

use crate::engine::Core;
use darter_command::{Flags, KeyFlags, KeySpec, Refusal};
use darter_resp::{Args, Request};
use std::sync::Arc;

/// The number of bytes copied from each argument: enough for a command name, an option or a number.
const HEAD_BYTES: usize = 64;

/// Finds the keys of the request that follows the first `skip` words, each with its access flags.
pub(super) fn of_request(
    core: &Core,
    request: &Arc<Request>,
    skip: usize,
) -> Result<Vec<(Vec<u8>, KeyFlags)>, Refusal> {
    let whole = Args::owned(request);
    let heads = (skip..whole.len()).map(|index| whole.head(index));
    let heads = heads.map(|head| &head[..head.len().min(HEAD_BYTES)]);
    let inner = Arc::new(Request::from_args(heads));
    let args = Args::owned(&inner);
    let entry =
        core.table.resolve(args).map_err(|_| Refusal::line("ERR Invalid command specified"))?;
    let are_keys = |spec: &KeySpec| spec.flags != KeyFlags::NOT_KEY;
    if !entry.row.keys.0.iter().any(are_keys) {
        return Err(Refusal::line("ERR The command has no key arguments"));
    }
    if !entry.row.accepts(args.len()) {
        return Err(Refusal::line("ERR Invalid number of arguments specified for command"));
    }
    let is_whole = entry.row.keys.0.iter().all(|spec| spec.place.is_whole(args));
    if !is_whole && entry.row.flags.has(Flags::NO_MANDATORY_KEYS) {
        return Ok(Vec::new());
    }
    if !is_whole {
        return Err(Refusal::line("ERR Invalid arguments specified for command"));
    }
    let keys: Vec<_> = entry
        .row
        .keys
        .flagged(args)
        .map(|(at, flags)| {
            let flags = entry.row.key_flags.map_or(flags, |of| of(args));
            (whole.get(skip + at).to_vec(), flags)
        })
        .collect();
    if keys.is_empty() {
        return Err(Refusal::line("ERR Invalid arguments specified for command"));
    }
    Ok(keys)
}
