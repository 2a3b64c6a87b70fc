//! Queueing requests after MULTI, and the transaction commands.

use super::super::conn::Lane;
use super::super::core::Core;
use super::super::entry::{Entry, Runner};
use super::super::unit::place::{own_flags, owner_of};
use super::queued::{Queued, Verb};
use super::watching;
use darter_command::{Flags, Refusal};
use darter_resp::Args;

const NESTED: &str = "ERR MULTI calls can not be nested";
const WATCH_INSIDE: &str = "ERR WATCH inside MULTI is not allowed";
const NO_EXEC: &str = "ERR EXEC without MULTI";
const NO_DISCARD: &str = "ERR DISCARD without MULTI";
const NOT_INSIDE: &str = "ERR Command not allowed inside a transaction";
const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

impl Lane {
    /// True if a request must be queued instead of run.
    pub(crate) fn is_queueing(&self, entry: &Entry) -> bool {
        self.transaction.queued.is_some() && !entry.row.flags.has(Flags::AT_ONCE)
    }

    /// True if a transaction command runs as a task. False if it will be refused.
    pub(crate) fn is_task(&self, verb: Verb, args: Args<'_>) -> bool {
        match verb {
            Verb::Watch => self.transaction.queued.is_none() && args.len() > watching::FEW,
            Verb::Exec => self.transaction.queued.as_ref().is_some_and(|queued| !queued.is_aborted),
            Verb::Multi | Verb::Discard | Verb::Unwatch => false,
        }
    }

    fn set_queued(&mut self, queued: Option<Box<Queued>>) {
        self.session.queued = queued.as_ref().map(|queued| queued.sizes);
        self.transaction.queued = queued;
    }
}

impl Core {
    /// Queues a request after MULTI. `Err` has the refusal.
    pub(crate) fn enqueue(
        &self,
        lane: &mut Lane,
        entry: &Entry,
        args: Args<'_>,
    ) -> Result<(), Refusal> {
        let Some(queued) = &mut lane.transaction.queued else { unreachable!("after MULTI") };
        let refusal = match entry.run {
            Runner::Container => Some(Refusal::Arity(entry.row.name.into())),
            _ if entry.row.flags.has(Flags::NO_MULTI) => Some(Refusal::line(NOT_INSIDE)),
            _ => None,
        };
        if let Some(refusal) = refusal {
            queued.abort();
            return Err(refusal);
        }
        queued.push(entry.index, own_flags(self, entry, args), args);
        queued.is_read &= matches!(entry.run, Runner::Point(_) | Runner::Multi(..));
        queued.is_plain &= runs_where_its_keys_are(entry);
        queued.note_owner(owner_of(&self.tx, entry, args));
        lane.session.queued = Some(queued.sizes);
        Ok(())
    }

    /// Handles a refused request: the later EXEC will fail. The request may also be EXEC itself.
    pub(crate) fn abort(&self, lane: &mut Lane, args: Args<'_>, refusal: Refusal) -> Refusal {
        let entry = self.table.resolve(args);
        if let Ok(Runner::Transaction(Verb::Exec)) = entry.map(|entry| entry.run) {
            self.discard(lane);
            return discarded(&refusal);
        }
        if let Some(queued) = &mut lane.transaction.queued {
            queued.abort();
            lane.session.queued = Some(queued.sizes);
        }
        refusal
    }

    /// Runs a transaction command that needs no task.
    pub(crate) fn run_verb(
        &self,
        lane: &mut Lane,
        verb: Verb,
        args: Args<'_>,
    ) -> Result<(), Refusal> {
        let is_queueing = lane.transaction.queued.is_some();
        match verb {
            Verb::Multi if is_queueing => return Err(Refusal::line(NESTED)),
            Verb::Multi => lane.set_queued(Some(self.spare_queued.fresh())),
            Verb::Watch if is_queueing => return Err(Refusal::line(WATCH_INSIDE)),
            Verb::Watch => self.watch_few(lane, args),
            Verb::Unwatch => self.unwatch_all(lane),
            Verb::Discard if !is_queueing => return Err(Refusal::line(NO_DISCARD)),
            Verb::Exec if !is_queueing => return Err(Refusal::line(NO_EXEC)),
            Verb::Exec => {
                self.discard(lane);
                return Err(Refusal::line(ABORTED));
            }
            Verb::Discard => self.discard(lane),
        }
        Ok(())
    }

    /// Ends the transaction, and all watches.
    pub(crate) fn discard(&self, lane: &mut Lane) {
        lane.set_queued(None);
        self.unwatch_all(lane);
    }
}

/// The error of an EXEC, if any other command would get `refusal`.
pub(super) fn discarded(refusal: &Refusal) -> Refusal {
    let text = refusal.text();
    // As in Redis, codes other than ERR stay in the text.
    let why = text.strip_prefix(b"ERR ").unwrap_or(&text);
    Refusal::Line([b"EXECABORT Transaction discarded because of: ", why].concat().into())
}

/// True if the command names all its keys, and runs on the core that owns them.
fn runs_where_its_keys_are(entry: &Entry) -> bool {
    matches!(entry.run, Runner::Point(_) | Runner::Multi(Some(_), _)) && !entry.row.locks_all()
}
