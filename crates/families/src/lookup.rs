//! Finding a key for a command that reads it.

use darter_keyspace::{Db, Found, Key, ShardStats};

/// The living entry of `key`, which is an access; counts the hit or the miss.
///
/// It is [`darter_command::Cx::find`] for commands that reply while they hold what was found: it
/// leaves the rest of the context free.
pub(crate) fn find<'d>(db: &'d mut Db, stats: &mut ShardStats, key: &Key<'_>) -> Option<Found<'d>> {
    let found = db.find(key);
    stats.count(found.is_some());
    found
}
