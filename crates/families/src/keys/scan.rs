//! SCAN: iterates over the keyspace, one call at a time, without state in the server.
//!
//! ```text
//! cursor  | 10: the core | 43: the table's cursor on that core |      0: start, and end
//! ```
//! The scan visits one core after another. Each table's cursor guarantees that elements which exist
//! from the first call to the last are returned. A call works in slices, whatever its COUNT.

use crate::TYPES;
use crate::counted_reply::{CountedReply, write_bulk};
use crate::scan::Options;
use crate::{cursor, option_names};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Answer, Args, Call, Refusal};
use darter_keyspace::{Db, Found, Type};
use darter_structs::table::{CURSOR_BITS, Text};
use darter_tx::{CoreId, Home};
use std::sync::Arc;

/// The lowest bit of the core's number in a cursor.
const CORE_SHIFT: u32 = CURSOR_BITS;
/// Calls of the table's scan in one portion, because empty groups take time, too.
const GROUPS_AT_ONCE: usize = 64;
/// Keys examined in one portion.
pub(super) const KEYS_AT_ONCE: usize = ENTRIES_AT_ONCE / 4;

/// The request.
pub(super) struct Plan {
    options: Options,
    /// The type that values must have; `Some(None)` for an unknown type.
    kind: Option<Option<&'static Type>>,
}

impl Plan {
    /// Reads the options after the cursor.
    pub(super) fn parse(args: Args<'_>) -> Result<Self, Refusal> {
        let mut kind = None;
        let options = Options::parse(args, |args| {
            let takes = args.left() > 1 && args.option("TYPE");
            if takes && let Some(name) = args.next() {
                kind = Some(TYPES.iter().find(|kind| option_names::is(name, kind.name)));
            }
            takes
        })?;
        Ok(Self { options, kind })
    }

    /// The number of keys to examine.
    pub(super) fn count(&self) -> usize {
        self.options.count
    }

    /// True if the key matches the request.
    pub(super) fn wants(&self, found: &Found<'_>) -> bool {
        self.kind.is_none_or(|kind| kind == Some(found.kind()))
            && self.options.wants(&found.entry().key())
    }
}

/// The result of one portion.
struct Portion {
    /// The table's next cursor; 0 at the end of the core.
    cursor: u64,
    /// The number of examined keys.
    visited: usize,
    /// The number of matching keys, and their encoded names.
    found: usize,
    encoded: Vec<u8>,
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`: examines about `count` keys after the
/// cursor, and returns those that match.
///
/// Reply: the next cursor, and an array. Refusals: a cursor that is not a number, `Syntax`,
/// `NotAnInteger`. Cost: O(count), in slices. Source: <https://redis.io/commands/scan> (2.8.0).
pub(super) async fn scan(call: Call) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let cursor = cursor::parse(args.bytes()?)?;
    let plan = Arc::new(Plan::parse(args)?);
    let count = plan.count();
    let mut found = CountedReply::default();
    let (mut cursor, mut visited) = (Some(cursor), 0);
    while let Some((core, at)) = cursor.and_then(|cursor| split(cursor, call.tx.cores()))
        && visited < count
    {
        let (plan_there, db) = (Arc::clone(&plan), call.db);
        let most = (count - visited).min(KEYS_AT_ONCE);
        let read = move |home: &mut Home| read_portion(home, db, &plan_there, at, most);
        let portion = call.tx.on(core, read).await;
        visited += portion.visited;
        found.append(&portion.encoded, portion.found);
        cursor = join(core, portion.cursor, call.tx.cores());
        call.tx.pause().await;
    }
    let cursor = cursor.filter(|cursor| split(*cursor, call.tx.cores()).is_some()).unwrap_or(0);
    Ok(found.into_answer(call.resp3, |reply| {
        reply.array(2);
        reply.bulk(cursor.to_string().as_bytes());
    }))
}

/// Examines about `most` keys from `cursor` on.
fn read_portion(home: &mut Home, db: usize, plan: &Plan, cursor: u64, most: usize) -> Portion {
    let (mut found, mut encoded) = (0, Vec::new());
    let (cursor, visited) = visit(home.shard.db(db), plan, (cursor, most), &mut |key| {
        found += 1;
        write_bulk(&mut encoded, key);
    });
    Portion { cursor, visited, found, encoded }
}

/// Calls `f` with the matching keys among about `most` from `cursor` on. Returns the next cursor,
/// and the number of examined keys.
pub(super) fn visit(
    db: &Db,
    plan: &Plan,
    (mut cursor, most): (u64, usize),
    f: &mut dyn FnMut(Text<'_>),
) -> (u64, usize) {
    let mut visited = 0;
    for _ in 0..GROUPS_AT_ONCE {
        cursor = db.keys().scan(cursor, &mut |entry| {
            visited += 1;
            if Found::alive(entry, db.now()).is_some_and(|found| plan.wants(&found)) {
                f(entry.key());
            }
        });
        if cursor == 0 || visited >= most {
            break;
        }
    }
    (cursor, visited)
}

/// Splits a cursor into the core and the table's cursor; `None`, which ends the scan, if there is
/// no such core.
pub(super) fn split(cursor: u64, cores: usize) -> Option<(CoreId, u64)> {
    let core = usize::try_from(cursor >> CORE_SHIFT).ok().filter(|core| *core < cores)?;
    Some((core, cursor & ((1 << CORE_SHIFT) - 1)))
}

/// The cursor for the next call; `None` at the end of the last core.
pub(super) fn join(core: CoreId, at: u64, cores: usize) -> Option<u64> {
    debug_assert!(at >> CORE_SHIFT == 0, "at={at:#x}");
    let core = if at == 0 { core + 1 } else { core };
    (core < cores).then_some((core as u64) << CORE_SHIFT | at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_lead_from_core_to_core_and_end_at_zero() {
        assert_eq!(split(0, 3), Some((0, 0)));
        assert_eq!(join(0, 77, 3), Some(77));
        assert_eq!(join(0, 0, 3), Some(1 << 43));
        assert_eq!(split(1 << 43 | 77, 3), Some((1, 77)));
        assert_eq!(join(2, 0, 3), None);
        assert_eq!(split(3 << 43, 3), None);
        assert_eq!(split(u64::MAX, 3), None);
    }

    #[test] // Clients may store cursors as doubles.
    fn cursors_of_1024_cores_stay_below_2_to_the_53() {
        const CORES_MAX: usize = 1_024;
        for core in [1, 32, 63, CORES_MAX - 1] {
            let cursor = join(core, (1 << CORE_SHIFT) - 1, CORES_MAX).unwrap();
            assert!(cursor < 1 << 53, "{core}: {cursor}");
            assert_eq!(split(cursor, CORES_MAX), Some((core, (1 << CORE_SHIFT) - 1)));
        }
    }
}
