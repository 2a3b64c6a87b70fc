//! Looks up a key for a reading command: counts as an access, and as a hit or a miss.
//!
//! It does the same as [`darter_command::Cx::find`], for commands that reply while they read the
//! value: the other parts of the context are not borrowed.

use darter_keyspace::{Db, Found, Key, Lent, ShardStats, Str, Typed, WrongType};

/// The entry of `key`, if it is live.
pub(crate) fn find<'d>(db: &'d mut Db, stats: &mut ShardStats, key: &Key<'_>) -> Option<Found<'d>> {
    let found = db.find(key);
    stats.count(found.is_some());
    found
}

/// The string at `key`.
#[inline]
pub(crate) fn find_text<'d>(
    db: &'d mut Db,
    stats: &mut ShardStats,
    key: &Key<'_>,
) -> Result<Option<Str<'d>>, WrongType> {
    find(db, stats, key).map(|found| found.text()).transpose()
}

/// The value at `key`, which must be a `V`.
pub(crate) fn find_value<'d, V: Typed>(
    db: &'d mut Db,
    stats: &mut ShardStats,
    key: &Key<'_>,
) -> Result<Option<Lent<'d, V>>, WrongType> {
    find(db, stats, key).map(|found| found.value()).transpose()
}
