//! The context of a command over several keys, or over all of them.

use crate::{Args, Refusal, Stream};
use darter_keyspace::{Db, Key};
use darter_resp::{self as resp, Output, Reply};
use darter_tx::{Access, Claim, CoreId, Home, Locked, Tx, lock_key};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A running command over several keys: a future that its core polls.
pub type MultiFuture = Pin<Box<dyn Future<Output = Result<Answer, Refusal>>>>;

/// One request for a command over several keys.
///
/// The future that it is passed to is the coordinator: it takes locks with [`Call::lock_keys`],
/// runs closures on the shards that own the keys with [`Call::on_key`], and returns an [`Answer`].
/// Inside a transaction the locks are held already, and taking them does nothing. Between awaits it
/// must stay within a portion of about 20 us: loops over arguments call `call.tx.pause().await` now
/// and then.
pub struct Call {
    /// The handle to shards, locks and slices.
    pub tx: Tx,
    /// The request, name included.
    pub request: Arc<resp::Request>,
    /// The database that the client has selected.
    pub db: usize,
    /// The client has set CLIENT NO-TOUCH: the command does not count as an access to the keys.
    pub no_touch: bool,
    /// The client speaks RESP3.
    pub resp3: bool,
    /// A script calls the command.
    pub is_script: bool,
    /// Index of the first argument after the name, or after the subcommand's name.
    pub first: usize,
}

/// The result of a command over several keys.
pub enum Answer {
    /// The whole reply.
    Done(Output),
    /// The beginning of the reply, and a stream of the rest.
    Stream(Output, Box<dyn Stream>),
}

impl Answer {
    /// Encodes a complete reply.
    pub fn encode(resp3: bool, write: impl FnOnce(&mut Reply<'_>)) -> Self {
        let mut out = Output::default();
        write(&mut Reply::new(&mut out, resp3));
        Self::Done(out)
    }
}

impl Call {
    /// The arguments after the name.
    #[must_use]
    pub fn args(&self) -> Args<'_> {
        Args::new(resp::Args::owned(&self.request), self.first)
    }

    /// The argument at `index` of the whole request.
    #[must_use]
    pub fn arg(&self, index: usize) -> &[u8] {
        resp::Args::owned(&self.request).get(index)
    }

    /// The core that owns the key at `index` of the whole request.
    #[must_use]
    pub fn owner(&self, index: usize) -> CoreId {
        resp::Args::owned(&self.request).owner(index, self.tx.cores())
    }

    /// Number of arguments in the whole request.
    #[must_use]
    pub fn len(&self) -> usize {
        self.request.len()
    }

    /// True when the request has no arguments, which never happens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.request.is_empty()
    }

    /// Locks keys of this call's database, each for its access. Pass at most a few hundred keys.
    pub async fn lock_keys(&self, keys: impl IntoIterator<Item = (usize, Access)>) -> Locked {
        let db = self.db;
        self.lock_keys_in(keys.into_iter().map(|(at, access)| (db, at, access))).await
    }

    /// Locks keys of several databases.
    pub async fn lock_keys_in(
        &self,
        keys: impl IntoIterator<Item = (usize, usize, Access)>,
    ) -> Locked {
        let args = resp::Args::owned(&self.request);
        let mut claims: Vec<(CoreId, Claim)> = Vec::new();
        for (db, at, access) in keys {
            let core = self.owner(at);
            let lock = (lock_key(db, args.hash(at)), access);
            match claims.iter_mut().find(|(owner, _)| *owner == core) {
                Some((_, Claim::Keys(list))) => add_lock(list, lock),
                _ => claims.push((core, Claim::Keys(vec![lock]))),
            }
        }
        self.tx.lock(claims).await
    }

    /// Runs `act` on the core that owns the key at `index` of the whole request. `act` gets this
    /// call's database there, and the key.
    pub async fn on_key<R: Send + 'static>(
        &self,
        index: usize,
        act: impl FnOnce(&mut Db, &Key<'_>) -> R + Send + 'static,
    ) -> R {
        let (request, db, no_touch) = (Arc::clone(&self.request), self.db, self.no_touch);
        let act = move |home: &mut Home| {
            let key = Key::new(resp::Args::owned(&request).get(index));
            act(home.shard.db_for(db, no_touch), &key)
        };
        self.tx.on(self.owner(index), act).await
    }

    /// Locks all keys on all cores.
    pub async fn lock_all(&self, access: Access) -> Locked {
        self.tx.lock(self.claims_of_all(access)).await
    }

    /// Locks all keys on all cores, or returns `None` if that conflicts with another lock, so that
    /// no command waits long.
    pub async fn try_lock_all(&self, access: Access) -> Option<Locked> {
        self.tx.try_lock(self.claims_of_all(access)).await
    }

    fn claims_of_all(&self, access: Access) -> Vec<(CoreId, Claim)> {
        (0..self.tx.cores()).map(|core| (core, Claim::All(access))).collect()
    }

    /// Encodes a complete reply in this client's protocol.
    #[must_use]
    pub fn answer(&self, write: impl FnOnce(&mut Reply<'_>)) -> Answer {
        Answer::encode(self.resp3, write)
    }
}

/// Adds a lock. A key named twice is locked once, for the stronger access.
fn add_lock(list: &mut Vec<(u64, Access)>, lock: (u64, Access)) {
    match list.iter_mut().find(|(key, _)| *key == lock.0) {
        None => list.push(lock),
        Some((_, access)) if *access == Access::Shared => *access = lock.1,
        Some((_, access)) if lock.1 == Access::Exclusive => *access = Access::Exclusive,
        Some(_) => {}
    }
}
