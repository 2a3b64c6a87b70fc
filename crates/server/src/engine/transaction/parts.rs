//! EXEC over several cores: while the locks of all keys are held, each other core runs its commands
//! as one task. These tasks run at the same time, and each costs one message each way. With a single
//! other core, the locks travel with the task.
//!
//! If the commands ran one by one, nearly every command would cost a message each way. When the
//! keys of each command are on a single core, commands of different cores have no key in common,
//! and the locks hide their changes until the end. So only the commands of the same core must keep
//! their order.

use super::super::conn::ReplyMode;
use super::super::entry::Entry;
use super::super::state::requests::{Kept, Requests};
use super::super::unit::settle::Caller;
use super::claims::claims;
use super::exec::Exec;
use super::inner::{Called, PointCall, Seen};
use super::replies::Replies;
use darter_resp::{self as resp, Reply};
use darter_tx::{CoreId, Transaction, Tx};

/// The commands that one core runs.
#[derive(Default)]
struct Commands {
    requests: Requests,
    calls: Vec<(Kept, PointCall)>,
}

impl Commands {
    fn add(&mut self, entry: &Entry, args: resp::Args<'_>, seen: Seen, caller: Caller<'static>) {
        let call = PointCall::new(entry, seen, caller);
        self.calls.push((self.requests.keep(args), call));
    }

    async fn run(self, tx: Tx) -> Vec<Called> {
        let mut all = Vec::with_capacity(self.calls.len());
        for (kept, call) in &self.calls {
            all.push(call.run(self.requests.args(kept), &tx).await);
            tx.pause().await;
        }
        all
    }
}

impl Exec {
    /// True if there are few commands, each has its keys on one core, and at least one on another
    /// core. The client must have neither replies off nor tracking on.
    pub(super) fn is_of_parts(&self) -> bool {
        let seen = self.inner.seen();
        let is_elsewhere = |core: Option<CoreId>| core.is_some_and(|core| core != self.core.id());
        self.queued.is_short()
            && !self.queued.is_split
            && seen.reply_mode == ReplyMode::On
            && seen.view.tracker.is_none()
            && self.queued.placed().any(|(core, ..)| is_elsewhere(core))
    }

    /// Runs the EXEC if it has commands for a single other core and all locks are free: that core
    /// takes its locks and runs its commands after one message. `None` if nothing has run.
    pub(super) async fn run_with_other(&self) -> Option<Replies> {
        let (core, seen) = (&self.core, self.inner.seen());
        let owner = self.only_other()?;
        let (_, part) = self.parts().await.pop()?;
        let claims = claims(core, seen.view.db, &self.queued, &self.watched).await;
        let begun = core.tx.begin_with(claims, owner, move |tx| part.run(tx)).await;
        let (transaction, done) = begun?;
        let mut replies = Replies::default();
        Reply::new(&mut replies.out, seen.resp3).array(self.queued.sizes.count);
        self.join(&transaction, &[owner], vec![done.await], &mut replies).await;
        Some(replies)
    }

    /// The other core that has keys, if there is only one.
    fn only_other(&self) -> Option<CoreId> {
        let is_other = |core: &CoreId| *core != self.core.id();
        let mut others = self.queued.placed().filter_map(|(core, ..)| core).filter(is_other);
        let first = others.next()?;
        others.all(|core| core == first).then_some(first)
    }

    /// Makes the other cores run their commands, and then runs those of this core. Appends all
    /// replies.
    pub(super) async fn run_parts(&self, transaction: &Transaction, replies: &mut Replies) {
        let (owners, parts): (Vec<_>, Vec<_>) = self.parts().await.into_iter().unzip();
        let mut parts = parts.into_iter();
        let start = |_| {
            let part = parts.next().expect("one for each core");
            move |tx| part.run(tx)
        };
        let done = transaction.tx().drive_each(owners.iter().copied(), start).await;
        self.join(transaction, &owners, done, replies).await;
    }

    /// The commands of each other core.
    async fn parts(&self) -> Vec<(CoreId, Commands)> {
        let (core, seen) = (&self.core, self.inner.seen());
        if !self.queued.is_read {
            core.events_caught_up().await;
        }
        let mut parts: Vec<(CoreId, Commands)> = Vec::new();
        for (owner, row, args) in self.queued.placed() {
            let Some(owner) = owner.filter(|owner| *owner != core.id()) else { continue };
            let known = parts.iter().position(|(of, _)| *of == owner);
            let at = known.unwrap_or_else(|| {
                parts.push((owner, Commands::default()));
                parts.len() - 1
            });
            parts[at].1.add(&core.table.entries()[row], args, seen, self.inner.caller());
            core.tx.pause().await;
        }
        parts
    }

    /// Runs the commands of this core, and appends all replies. `done` has those of `owners`.
    async fn join(
        &self,
        transaction: &Transaction,
        owners: &[CoreId],
        done: Vec<Vec<Called>>,
        replies: &mut Replies,
    ) {
        let mut done: Vec<_> = done.into_iter().map(Vec::into_iter).collect();
        for (owner, row, args) in self.queued.placed() {
            let part = owners.iter().position(|of| Some(*of) == owner);
            match part.and_then(|at| done[at].next()) {
                Some(called) => self.inner.take(row, args, called, replies),
                None => _ = self.inner.run(row, args, transaction.tx(), replies).await,
            }
            self.core.tx.pause().await;
        }
    }
}
