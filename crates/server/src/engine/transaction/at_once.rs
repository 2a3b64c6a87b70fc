//! EXEC that runs at once: all of its keys are this core's, and nobody holds them.
//!
//! Then it needs no lock and no task, as nobody comes between within a turn; it costs what its
//! commands cost. If it takes longer than the slice, or a command does, the rest is a task, under
//! the locks of all its keys (`darter_tx::Tx::go_on`): others see all of it or nothing.
//!
//! If all of its keys are another core's, it runs there in the same way: see `away`.

use super::super::core::Core;
use super::super::entry::Entry;
use super::super::point::View;
use super::super::slices::named;
use super::super::unit::changes::settle_changes;
use super::super::unit::settle::Caller;
use super::exec::Rest;
use super::queued::{Portion, Queued, Watched};
use super::replies::Replies;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::Flow;
use darter_keyspace::Seen;
use darter_resp::{self as resp, Reply};
use darter_tx::lock_key;
use std::rc::Rc;

/// For whom commands run.
#[derive(Clone, Copy)]
pub(crate) struct For<'a> {
    pub(crate) view: View,
    pub(crate) resp3: bool,
    pub(crate) caller: Caller<'a>,
}

impl Queued {
    /// True if there are some commands, but few, and each is one of those that can run at once.
    pub(super) fn is_short(&self) -> bool {
        let is_few = 0 < self.sizes.count && self.args <= ENTRIES_AT_ONCE;
        is_few && self.is_plain && !self.is_aborted
    }
}

impl Core {
    /// Whether a transaction on keys of this core may run at once: nobody holds them. Then whether a
    /// key was touched that its client watches.
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

    /// Runs an EXEC, unless it takes longer than the slice: then what is left.
    pub(super) fn run_exec(
        self: &Rc<Self>,
        entry: &Entry,
        args: resp::Args<'_>,
        queued: Box<Queued>,
        is_touched: bool,
        whose: For<'_>,
    ) -> Result<Replies, Box<Rest>> {
        let (begun, run) = (self.begun(entry, args), self.tx.begin_at_once());
        let mut replies = Replies::into_buffer(self.admin.take_buffer());
        if is_touched {
            Reply::new(&mut replies.out, whose.resp3).null_array();
        } else if let Err(next) = self.run_queued(&queued, whose, &mut replies) {
            return Err(Box::new(Rest { begun: run, queued, next, replies }));
        }
        self.settle(entry, begun, None, args, whose.caller);
        self.spare_queued.keep(queued);
        Ok(replies)
    }

    /// True if nobody holds a key of the transaction that is this core's, were it only to rebuild
    /// its value, nor one that is watched: others may have seen what its holder has changed
    /// elsewhere.
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

    /// Runs the commands, and serves who waits for what they changed. If the slice is over before, or
    /// a command takes longer, the place of the next.
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

    /// Runs one of the commands. False if it takes longer: then it has changed nothing, and is to run
    /// again.
    #[inline]
    pub(super) fn run_inner(
        self: &Rc<Self>,
        entry: &Entry,
        args: resp::Args<'_>,
        whose: For<'_>,
        replies: &mut Replies,
    ) -> bool {
        let For { view, resp3, caller } = whose;
        let run = entry.point().expect("only such commands run at once");
        let begun = self.begun(entry, args);
        let reply = &mut Reply::new(&mut replies.out, resp3);
        match self.call_point(self.tx.home(), (entry, run), args, view, reply) {
            Ok(Flow::Done) => {
                self.settle(entry, begun, None, args, caller);
                replies.settle();
            }
            Ok(Flow::Stream(stream)) => {
                self.settle(entry, begun, None, args, caller);
                replies.stream(named(entry.index, stream));
            }
            Ok(Flow::Job(_)) => return false,
            Err(refusal) => {
                self.settle(entry, begun, Some(&refusal), args, caller);
                reply.error(&refusal.text());
                replies.settle();
            }
        }
        true
    }
}
