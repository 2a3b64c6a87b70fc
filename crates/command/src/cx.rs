//! The context of a point command.

use darter_base::{Preempt, Prng, UnixMillis};
use darter_keyspace::{Db, Found, Key, ShardStats};
use darter_resp::Reply;

/// One database of one shard, the reply, and the outside world as arguments.
pub struct Cx<'a> {
    /// The database that the client has selected: this core's part.
    pub db: &'a mut Db,
    /// The reply of the command.
    pub reply: Reply<'a>,
    /// Unix milliseconds, constant while the command runs.
    pub now: UnixMillis,
    /// Randomness for samples.
    pub prng: &'a mut Prng,
    /// Counters.
    pub stats: &'a mut ShardStats,
    /// For loops that are bounded by the arguments: is the slice over?
    pub preempt: &'a dyn Preempt,
}

impl Cx<'_> {
    /// The entry of `key` for a command that reads it, which is an access; counts the hit or the
    /// miss.
    pub fn find(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        let found = self.db.find(key);
        self.stats.count(found.is_some());
        found
    }

    /// [`Cx::find`] for a command that asks about the key only, which is not an access.
    pub fn peek(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        let found = self.db.peek(key);
        self.stats.count(found.is_some());
        found
    }

    /// [`Cx::peek`] for a command that asks about the value's representation: a miss is no event.
    pub fn inspect(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        let found = self.db.get(key);
        self.stats.count(found.is_some());
        found
    }
}
