//! A group's progress: the number of entries that it has read, and its lag.
//!
//! Source: `streamEstimateDistanceFromFirstEverEntry`, `streamRangeHasTombstones` and
//! `streamReplyWithCGLag` of Redis 7.0; the results are the same.

use super::value::Stream;
use darter_structs::groups::Group;
use darter_structs::stream::StreamId;

/// The number of entries ever added up to an ID, if it is known.
pub(super) fn added_up_to(stream: &Stream, id: StreamId) -> Option<u64> {
    let (state, len) = (stream.state(), stream.entries().len() as u64);
    if state.added == 0 || len == 0 && id <= state.last || id == state.last {
        return Some(state.added);
    }
    let first = stream.entries().first().filter(|_| id < state.last)?;
    // If nothing after the first entry was deleted, the number of entries before it is known.
    let is_whole = state.max_deleted == StreamId::MIN || state.max_deleted < first;
    let before = state.added.wrapping_sub(len);
    match id {
        _ if !is_whole => None,
        id if id < first => Some(before),
        id if id == first => Some(before.wrapping_add(1)),
        _ => None,
    }
}

/// True if an entry after the first one may have been deleted at or after an ID.
fn has_gap_from(stream: &Stream, id: StreamId) -> bool {
    let (first, max_deleted) = (stream.entries().first(), stream.state().max_deleted);
    let is_behind = first.is_some_and(|first| first <= max_deleted);
    is_behind && max_deleted != StreamId::MIN && id <= max_deleted
}

/// The number of entries a group has read once it has read this ID, if it had read `read` before.
pub(super) fn read_with(stream: &Stream, read: Option<u64>, id: StreamId) -> Option<u64> {
    match read {
        // Counted as in Redis, where -1 means "unknown".
        Some(read) if !has_gap_from(stream, id) => {
            read.checked_add(1).filter(|read| *read < u64::MAX)
        }
        _ if stream.state().added > 0 => added_up_to(stream, id),
        read => read,
    }
}

/// The number of entries that a group has not read yet, if known.
pub(super) fn lag(stream: &Stream, group: &Group) -> Option<i64> {
    let added = stream.state().added;
    if added == 0 {
        return Some(0);
    }
    let known = group.read().filter(|_| !has_gap_from(stream, group.last()));
    let read = known.or_else(|| added_up_to(stream, group.last()))?;
    Some(added.wrapping_sub(read).cast_signed())
}
