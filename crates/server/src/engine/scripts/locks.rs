//! The locks of a run: of the keys that its command names, and of late keys, which it meets later.
//!
//! A late key is locked without waiting. If that fails, the run is undone, unseen by others, and
//! begins again with the locks of all keys that it has touched and the late key; the third time
//! with all keys.

use super::super::entry::{Entry, ServerCall};
use super::super::transaction::claims::Wanted;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_resp as resp;
use darter_script::Reach;
use darter_tx::{Access, Claim, CoreId, Transaction, Tx, lock_key};

/// The try with all keys, which is the last one.
pub(super) const LAST_TRY: usize = 2;

/// Claims, at most one for each core.
pub(super) type Claims = Vec<(CoreId, Claim)>;

/// The locks of a run.
pub(super) enum Locks<'a> {
    /// The locks of its EXEC, on all keys.
    Outer(&'a Tx),
    /// Its own locks.
    Own(&'a Transaction),
}

impl Locks<'_> {
    /// The transaction handle for its commands.
    pub(super) fn tx(&self) -> &Tx {
        match self {
            Self::Outer(tx) => tx,
            Self::Own(transaction) => transaction.tx(),
        }
    }

    /// Takes the missing locks of a command in database `db`. Records in `reach` that they are not.
    ///
    /// # Errors
    /// A lock is held by another transaction; returns the claims for the next try.
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
        let mut wanted = Wanted::new(self.tx().cores(), args.len());
        for (done, at) in entry.row.keys.positions(args).enumerate() {
            wanted.add(args.owner(at, self.tx().cores()), lock_key(db, args.hash(at)), access);
            if done % ENTRIES_AT_ONCE == ENTRIES_AT_ONCE - 1 {
                self.tx().pause().await;
            }
        }
        let claims = wanted.into_claims();
        if transaction.widen(claims.clone()).await { Ok(()) } else { Err(claims) }
    }

    /// True if all keys of a command are held, and it names all of them. False if it names many: they
    /// are not looked at.
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

/// The claims of the first try: the `count` keys of the request from `first` on.
pub(super) async fn of_named(
    call: &ServerCall,
    (first, count): (usize, usize),
    access: Access,
) -> Claims {
    let (core, args) = (&call.core, resp::Args::owned(&call.request));
    let mut wanted = Wanted::new(core.tx.cores(), count);
    for at in first..first + count {
        let key = lock_key(call.session.db, args.hash(at));
        wanted.add(args.owner(at, core.tx.cores()), key, access);
        if at % ENTRIES_AT_ONCE == ENTRIES_AT_ONCE - 1 {
            core.tx.pause().await;
        }
    }
    wanted.into_claims()
}

/// The claims of all keys.
pub(super) fn of_all(tx: &Tx, access: Access) -> Claims {
    (0..tx.cores()).map(|core| (core, Claim::All(access))).collect()
}
