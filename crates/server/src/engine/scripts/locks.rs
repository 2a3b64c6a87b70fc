//! The locks of a run: for the keys that the request names, and for *late* keys, which the script
//! uses without naming them.
//!
//! The lock of a late key is taken only if it is free. Otherwise the run is undone before others
//! can see its changes, and begins again. The second run first locks all keys that the first has
//! used, and the late key. The third run first locks all keys of the server.

use super::super::entry::{Entry, ServerCall};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_resp as resp;
use darter_script::Reach;
use darter_tx::{Access, Claim, ClaimSet, CoreId, Transaction, Tx, lock_key};

/// The index of the last try, which locks all keys.
pub(super) const LAST_TRY: usize = 2;

/// The keys to lock: at most one claim for each core.
pub(super) type Claims = Vec<(CoreId, Claim)>;

/// The locks under which a run works.
pub(super) enum Locks<'a> {
    /// The locks of the EXEC that contains the run, on all keys.
    Outer(&'a Tx),
    /// The run's own locks.
    Own(&'a Transaction),
}

impl Locks<'_> {
    /// The transaction handle under which the run's commands work.
    pub(super) fn tx(&self) -> &Tx {
        match self {
            Self::Outer(tx) => tx,
            Self::Own(transaction) => transaction.tx(),
        }
    }

    /// Locks the keys of a command in database `db` that are not locked yet. If there are any,
    /// records in `reach` that the script has used keys that it did not name.
    ///
    /// # Errors
    /// Errors: another transaction holds a lock. Returns the claims for the next try.
    pub(super) async fn take(
        &self,
        entry: &Entry,
        args: resp::Args<'_>,
        db: usize,
        reach: Option<&Reach>,
    ) -> Result<(), Claims> {
        let Self::Own(transaction) = self else { return Ok(()) };
        let access = if entry.row.is_write() { Access::Exclusive } else { Access::Update };
        if self.holds_all(entry, args, db, access) {
            return Ok(());
        }
        if let Some(reach) = reach {
            reach.note_beyond();
        }
        if entry.row.locks_all() {
            let claims = of_all(self.tx(), access);
            return if transaction.widen(claims.clone()).await { Ok(()) } else { Err(claims) };
        }
        let is_held = |at: usize| {
            let (core, key) = (args.owner(at, self.tx().cores()), lock_key(db, args.hash(at)));
            match core == self.tx().core() {
                true => transaction.widen_here(key, access),
                false => transaction.holds(core, key, access),
            }
        };
        if entry.row.keys.positions(args).take(ENTRIES_AT_ONCE).all(is_held)
            && entry.row.keys.positions(args).nth(ENTRIES_AT_ONCE).is_none()
        {
            return Ok(());
        }
        let mut wanted = ClaimSet::new(self.tx().cores(), args.len());
        for (done, at) in entry.row.keys.positions(args).enumerate() {
            wanted.add(args.owner(at, self.tx().cores()), lock_key(db, args.hash(at)), access);
            if done % ENTRIES_AT_ONCE == ENTRIES_AT_ONCE - 1 {
                self.tx().pause().await;
            }
        }
        let claims = wanted.into_claims();
        if transaction.widen(claims.clone()).await { Ok(()) } else { Err(claims) }
    }

    /// True if all keys of a command are locked by this run, and the command names all its keys.
    /// For a command with many keys the answer is false, without a check of the keys.
    fn holds_all(&self, entry: &Entry, args: resp::Args<'_>, db: usize, access: Access) -> bool {
        let Self::Own(transaction) = self else { return true };
        let is_held = |at: usize| {
            let (core, key) = (args.owner(at, self.tx().cores()), lock_key(db, args.hash(at)));
            transaction.holds(core, key, access)
        };
        let mut keys = entry.row.keys.positions(args);
        entry.names_its_keys()
            && keys.by_ref().take(ENTRIES_AT_ONCE).all(is_held)
            && keys.next().is_none()
    }
}

/// The claims of the first try: on the `count` keys of the request from index `first` on.
pub(super) async fn of_named(
    call: &ServerCall,
    (first, count): (usize, usize),
    access: Access,
) -> Claims {
    let (core, args) = (&call.core, resp::Args::owned(&call.request));
    let mut wanted = ClaimSet::new(core.tx.cores(), count);
    for at in first..first + count {
        let key = lock_key(call.session.db, args.hash(at));
        wanted.add(args.owner(at, core.tx.cores()), key, access);
        if at % ENTRIES_AT_ONCE == ENTRIES_AT_ONCE - 1 {
            core.tx.pause().await;
        }
    }
    wanted.into_claims()
}

/// The claims on all keys of all cores.
pub(super) fn of_all(tx: &Tx, access: Access) -> Claims {
    (0..tx.cores()).map(|core| (core, Claim::All(access))).collect()
}
