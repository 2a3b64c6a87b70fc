//! EXEC at once: this core owns all keys of the transaction, and none of them is locked.
//!
//! Such an EXEC needs neither locks nor a task, because nothing else runs during it. So it costs no
//! more than its commands. If it takes longer than the slice, a task runs the rest while it holds
//! the locks of all keys (`darter_tx::Tx::go_on`). So other clients see all of its changes or none.
//!
//! If another core owns all the keys, the EXEC runs there in the same way: see `away`.

use super::super::core::Core;
use super::super::entry::Entry;
use super::super::point::View;
use super::super::unit::changes::settle_changes;
use super::super::unit::settle::Caller;
use super::exec::Rest;
use super::queued::{Portion, Queued, Watched};
use super::replies::Replies;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_keyspace::Seen;
use darter_resp::{self as resp, Reply};
use darter_tx::lock_key;
use std::rc::Rc;

/// The client for which the commands run.
#[derive(Clone, Copy)]
pub(crate) struct For<'a> {
    pub(crate) view: View,
    pub(crate) resp3: bool,
    pub(crate) caller: Caller<'a>,
}

impl Queued {
    /// True if there are only a few commands, at least one, and each of them can run at once.
    pub(super) fn is_short(&self) -> bool {
        let is_few = 0 < self.sizes.count && self.args <= ENTRIES_AT_ONCE;
        is_few && self.is_plain && !self.is_aborted
    }
}

impl Core {
    /// If no key of a transaction on this core is locked, returns whether a watched key was
    /// touched. Returns `None` if a key is locked.
    pub(super) fn may_run_at_once(
        &self,
        queued: &Queued,
        db: usize,
        watched: Option<&Watched>,
        client: u64,
    ) -> Option<bool> {
        if !self.is_free(queued, db, watched) {
            return None;
        }
        if watched.is_none() {
            return Some(false);
        }
        match self.tx.home().shard.ask_watches(client) {
            Seen::Clean => Some(false),
            Seen::Touched => Some(true),
            Seen::Unknown => None,
        }
    }

    /// Runs an EXEC. If it takes longer than the slice, returns the rest.
    pub(super) fn run_exec(
        self: &Rc<Self>,
        entry: &Entry,
        args: resp::Args<'_>,
        queued: &Queued,
        is_touched: bool,
        whose: For<'_>,
    ) -> Result<Replies, Box<Rest>> {
        let (begun, run) = (self.begun(entry, args), self.tx.begin_at_once());
        let mut replies = Replies::into_buffer(self.admin.take_buffer());
        if is_touched {
            Reply::new(&mut replies.out, whose.resp3).null_array();
        } else if let Err(next) = self.run_queued(queued, whose, &mut replies) {
            return Err(Box::new(Rest { begun: run, next, replies }));
        }
        self.settle(entry, begun, None, args, whose.caller);
        Ok(replies)
    }

    /// True if no key of the transaction on this core is locked, not even by a rebuild, and no
    /// watched key is locked. The holder of a watched key may have made other changes that clients
    /// have seen.
    fn is_free(&self, queued: &Queued, db: usize, watched: Option<&Watched>) -> bool {
        let home = self.tx.home();
        if home.locks.is_free() {
            return true;
        }
        let is_short = |watched: &Watched| watched.len() <= ENTRIES_AT_ONCE;
        let is_unlocked = |watched: &Watched| {
            let mut here = watched.iter().filter(|(core, _)| *core == self.id());
            here.all(|(_, key)| !home.locks.blocks_point(key, true))
        };
        if !watched.is_none_or(|watched| is_short(watched) && is_unlocked(watched)) {
            return false;
        }
        let mut here = queued.placed().filter(|(core, ..)| *core == Some(self.id()));
        here.all(|(_, row, args)| {
            let mut keys = self.table.entries()[row].row.keys.positions(args);
            keys.all(|at| !home.locks.blocks_point(lock_key(db, args.hash(at)), true))
        })
    }

    /// Runs the commands, and serves clients that wait for changed keys. If the slice is over, or a
    /// command would take longer than the slice, `Err` has the index of the next command.
    fn run_queued(
        self: &Rc<Self>,
        queued: &Queued,
        whose: For<'_>,
        replies: &mut Replies,
    ) -> Result<(), usize> {
        Reply::new(&mut replies.out, whose.resp3).array(queued.sizes.count);
        for (at, (row, args)) in queued.portions().flat_map(Portion::iter).enumerate() {
            let is_over = at > 0 && self.slice.is_over(self.meter.now_ns());
            if is_over || !self.run_inner(&self.table.entries()[row], args, whose, replies) {
                return Err(at);
            }
        }
        let all = queued.portions().flat_map(Portion::iter);
        let all = all.map(|(row, args)| (&self.table.entries()[row].row, args));
        let written = all.filter(|(row, _)| row.is_write()).flat_map(|(row, args)| {
            row.keys.positions(args).map(move |at| lock_key(whose.view.db, args.hash(at)))
        });
        settle_changes(self, written);
        Ok(())
    }

    /// Runs a command. Returns false if it would take longer than the slice; then it has changed
    /// nothing, and must run again.
    #[inline]
    pub(super) fn run_inner(
        self: &Rc<Self>,
        entry: &Entry,
        args: resp::Args<'_>,
        whose: For<'_>,
        replies: &mut Replies,
    ) -> bool {
        let For { view, resp3, caller } = whose;
        let begun = self.begun(entry, args);
        let reply = &mut Reply::new(&mut replies.out, resp3);
        let Some(rest) = self.run_at_once(entry, begun, args, view, reply, caller) else {
            return false;
        };
        match rest {
            None => replies.settle(),
            Some(stream) => replies.stream(stream),
        }
        true
    }
}
