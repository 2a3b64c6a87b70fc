//! WATCH and UNWATCH. The watches are kept by the shards that own the keys. The connection keeps a
//! list of the watched keys, because EXEC locks them.
//!
//! To watch a key of another core, one message suffices: every request that reaches that core after
//! the reply to WATCH arrives after the message (docs/design/0011-pipeline-order.md). But earlier
//! requests of the same connection must be answered first, or their writes would count as touching
//! the watched keys.

use super::super::conn::{Lane, Watching};
use super::super::core::{Core, Mail};
use super::super::entry::ServerFuture;
use super::queued::Watched;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Answer, Refusal};
use darter_keyspace::{Key, Seen};
use darter_resp::{Args, Request};
use darter_tx::{CoreId, Home, Transaction, lock_key};
use std::rc::Rc;
use std::sync::Arc;

/// A WATCH of at most this number of keys needs no task.
pub(super) const FEW: usize = ENTRIES_AT_ONCE / 4;

impl Core {
    /// Runs `WATCH key [key ...]` with a few keys.
    pub(super) fn watch_few(&self, lane: &mut Lane, args: Args<'_>) {
        let (db, client) = (lane.session.db, lane.session.handle);
        let mut away: Vec<(CoreId, Vec<Vec<u8>>)> = Vec::new();
        for at in 1..args.len() {
            let (key, hash) = (args.get(at), args.hash(at));
            let owner = self.tx.core_of(key);
            note_watched(lane, owner, lock_key(db, hash));
            if owner == self.id() {
                self.tx.home().shard.watch(client, db, &Key::hashed(key, hash));
                continue;
            }
            match away.iter_mut().find(|(core, _)| *core == owner) {
                Some((_, keys)) => keys.push(key.to_vec()),
                None => away.push((owner, vec![key.to_vec()])),
            }
        }
        for (core, keys) in away {
            let watch = move |there: &Rc<Self>| {
                let shard = &mut there.tx.home().shard;
                keys.iter().for_each(|key| shard.watch(client, db, &Key::new(key)));
            };
            self.post(core, Mail::Ask(Box::new(watch)));
        }
    }

    /// Like [`Core::watch_few`], for many keys, as a task.
    pub(crate) fn watch_many(
        self: &Rc<Self>,
        client: u64,
        of: (usize, bool),
        request: Arc<Request>,
    ) -> ServerFuture {
        Box::pin(watch_many(Rc::clone(self), client, of, request))
    }

    /// Ends all watches of the connection.
    pub(crate) fn unwatch_all(&self, lane: &mut Lane) {
        lane.session.watching = Watching::default();
        let Some(watched) = lane.transaction.watched.take() else { return };
        self.unwatch_on(lane.session.handle, &watched.cores());
    }

    /// Ends the watches of a client on these cores.
    pub(super) fn unwatch_on(&self, client: u64, cores: &[CoreId]) {
        for &core in cores {
            if core == self.id() {
                self.tx.home().shard.unwatch(client);
            } else {
                let unwatch = move |there: &Rc<Self>| _ = there.tx.home().shard.unwatch(client);
                self.post(core, Mail::Ask(Box::new(unwatch)));
            }
        }
    }

    /// True if [`Core::settle_watches`] has something to do.
    pub(crate) fn has_watch_work(&self) -> bool {
        self.tx.home().shard.has_watch_work()
    }

    /// Removes a portion of ended watches. Notifies the cores of clients whose watched keys were
    /// touched, so that CLIENT LIST shows that.
    pub(crate) fn settle_watches(&self) {
        let news = {
            let shard = &mut self.tx.home().shard;
            shard.settle_watches();
            shard.take_watch_news()
        };
        for client in news {
            let core = self.core_of_client(client);
            if core == self.id() {
                self.note_touched(client);
            } else {
                self.post(core, Mail::Ask(Box::new(move |there| there.note_touched(client))));
            }
        }
    }

    fn note_touched(&self, client: u64) {
        self.with_client(client, |conn| {
            let session = &mut conn.lane.session;
            session.watching.is_touched = session.watching.keys > 0;
        });
    }
}

fn note_watched(lane: &mut Lane, core: CoreId, key: u64) {
    let watched = Rc::get_mut(lane.transaction.watched.get_or_insert_default());
    let watched = watched.expect("no EXEC of the connection runs");
    watched.add(core, key);
    lane.session.watching.keys = watched.len();
}

/// True if a watched key was touched. The locks of the watched keys are held.
pub(super) async fn is_touched(transaction: &Transaction, client: u64, watched: &Watched) -> bool {
    let cores = watched.cores();
    loop {
        let ask = |_| move |home: &mut Home| home.shard.ask_watches(client);
        let seen = transaction.tx().on_each(cores.iter().copied(), ask).await;
        if seen.contains(&Seen::Touched) {
            return true;
        }
        if seen.iter().all(|seen| *seen == Seen::Clean) {
            return false;
        }
        transaction.tx().pause().await;
    }
}

/// Runs `WATCH key [key ...]` with many keys.
async fn watch_many(
    core: Rc<Core>,
    client: u64,
    (db, resp3): (usize, bool),
    request: Arc<Request>,
) -> Result<Answer, Refusal> {
    let count = request.len();
    for first in (1..count).step_by(FEW) {
        let places = first..count.min(first + FEW);
        let is_there = core.with_client(client, |conn| {
            let args = Args::owned(&request);
            for at in places.clone() {
                let owner = args.owner(at, core.tx.cores());
                note_watched(&mut conn.lane, owner, lock_key(db, args.hash(at)));
            }
        });
        if is_there.is_none() {
            break; // The client has gone, and its watches with it.
        }
        let cores = core.tx.cores();
        let watch = |here: CoreId| {
            let (request, places) = (Arc::clone(&request), places.clone());
            move |home: &mut Home| {
                let args = Args::owned(&request);
                let is_own = |at: &usize| args.owner(*at, cores) == here;
                for at in places.filter(is_own) {
                    home.shard.watch(client, db, &Key::hashed(args.get(at), args.hash(at)));
                }
            }
        };
        core.tx.on_each(0..cores, watch).await;
        core.tx.pause().await;
    }
    Ok(Answer::encode(resp3, |reply| reply.ok()))
}
