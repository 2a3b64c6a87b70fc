//! The requests of a connection for other cores. They are gathered in batches while the input is
//! parsed, and sent at the end of the connection's turn. A batch that rests on another core
//! continues when its replies are needed.

use super::super::core::{Core, Mail};
use super::super::entry::Entry;
use super::super::owed::Owed;
use super::super::state::batches::HELD_BYTES_MAX;
use super::{Lane, ReplyMode};
use darter_resp::Args;
use darter_tx::CoreId;
use std::rc::Rc;

/// Adds a request to the batch for core `to`. From now on its reply is pending.
pub(crate) fn send_away(core: &Core, lane: &mut Lane, entry: &Entry, to: CoreId, args: Args<'_>) {
    let (from, client, resp3) = (core.id(), lane.session.handle, lane.session.resp3);
    lane.location.trail.goes(to, core.now_ms());
    let slot = &mut lane.away.batches[to];
    if let Some(old) = slot.take_if(|batch| batch.is_resp3() != resp3) {
        // HELLO or RESET has changed the protocol, so a new batch begins.
        core.post(to, Mail::Batch(old));
    }
    let fresh = || core.batches.borrow_mut().fresh(from, client, resp3);
    let batch = slot.get_or_insert_with(fresh);
    let bytes = batch.push(entry.index, lane.session.view(), args);
    lane.away.bytes += bytes;
    lane.away.turn_bytes += bytes;
    let owed = match lane.session.reply_mode {
        ReplyMode::On => Owed::Remote(to),
        ReplyMode::Skip => {
            lane.session.reply_mode = ReplyMode::On;
            Owed::Silent(to)
        }
        ReplyMode::Off | ReplyMode::SkipNext => Owed::Silent(to),
    };
    lane.owed.push_back(owed);
}

/// Sends the gathered batches to the other cores.
pub(crate) fn send_batches(core: &Core, lane: &mut Lane) {
    if core.tx.cores() == 1 {
        return;
    }
    lane.away.turn_bytes = 0;
    for (to, batch) in lane.away.batches.iter_mut().enumerate() {
        if let Some(batch) = batch.take() {
            core.post(to, Mail::Batch(batch));
        }
    }
}

/// Resumes a resting batch on another core if its reply is the next to send and all earlier replies
/// have been sent.
pub(crate) fn wake_wanted(core: &Core, lane: &mut Lane) {
    if let Some(at) = wanted(lane) {
        let from = lane.away.resting.swap_remove(at);
        wake_batch(core, from, lane.session.handle);
    }
}

/// Resumes all resting batches of a closed connection, because its requests must still run.
pub(crate) fn wake_all(core: &Core, lane: &mut Lane) {
    for from in std::mem::take(&mut lane.away.resting) {
        wake_batch(core, from, lane.session.handle);
    }
}

/// Resumes the batch of a client that rests on core `at`.
pub(crate) fn wake_batch(core: &Core, at: CoreId, client: u64) {
    let wake = move |there: &Rc<Core>| there.batches.borrow_mut().wake(client);
    core.post(at, Mail::Ask(Box::new(wake)));
}

/// The index in `resting` of a core whose batch may continue: its reply is the next to send, and
/// all earlier replies have been sent.
pub(crate) fn wanted(lane: &Lane) -> Option<usize> {
    let Some(Owed::Remote(core) | Owed::Silent(core)) = lane.owed.front() else { return None };
    let has_left = lane.stream.is_none() && lane.output_bytes() < HELD_BYTES_MAX;
    lane.away.resting.iter().position(|resting| resting == core).filter(|_| has_left)
}
