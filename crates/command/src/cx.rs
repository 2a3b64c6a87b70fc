//! The context of a point command.

use darter_base::{Preempt, Prng, UnixMillis};
use darter_keyspace::{Db, Found, Key, ShardStats};
use darter_resp::Reply;

/// One database of one shard, the reply, and the outside world as arguments.
pub struct Cx<'a> {
    /// This core's part of the client's selected database.
    pub db: &'a mut Db,
    /// The reply of the command.
    pub reply: Reply<'a>,
    /// Unix milliseconds, constant while the command runs.
    pub now: UnixMillis,
    /// Randomness for samples.
    pub prng: &'a mut Prng,
    /// The shard's counters.
    pub stats: &'a mut ShardStats,
    /// Says when the slice is over; for loops that are bounded by the arguments.
    pub preempt: &'a dyn Preempt,
}

impl Cx<'_> {
    /// The entry of `key` for a reading command. Counts as an access, and as a hit or a miss.
    pub fn find(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        let found = self.db.find(key);
        self.stats.count(found.is_some());
        found
    }

    /// [`Cx::find`] for a command that only inspects the key; this is not an access.
    pub fn peek(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        let found = self.db.peek(key);
        self.stats.count(found.is_some());
        found
    }

    /// [`Cx::peek`] for a command that inspects the value's representation; a miss publishes no
    /// event.
    pub fn inspect(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        let found = self.db.get(key);
        self.stats.count(found.is_some());
        found
    }
}
