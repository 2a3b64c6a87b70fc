//! Makes snapshots, one at a time. Core 0 coordinates them.
//!
//! The cut is taken at the same instant on all cores: all keys are locked meanwhile. So the cut has
//! all changes of a command over several keys, or none. And if it has a change, it also has the
//! changes that the client had seen before. (docs/design/0002-order.md says why that is enough for
//! a job that builds its value outside the table.) Readers do not wait. Writers wait for two
//! messages to each core. After that, each core encodes its part of the cut as background work, in
//! its own slices.

pub(crate) mod rewriting;

use super::core::Core;
use super::journal;
use crate::journal::BasePlace;
use crate::saving::{Busy, Outcome, Purpose, SaveRequest, SnapshotOrder, folder};
use crate::settings::Settings;
use darter_base::UnixMillis;
use darter_keyspace::Shard;
use darter_persist::snapshot::{Part, Snapshot, Style};
use darter_tx::{Access, Claim, Locked};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// Databases cut between two reads of the clock: about 10 us.
const DATABASES_AT_ONCE: usize = 64;
/// The number of bytes after which the file is synced while it is written.
const SYNC_BYTES: u64 = 8 << 20;
/// The version of the file format that Redis 7.0 can load, and the version that also has deadlines
/// of fields.
const VERSIONS: [u16; 2] = [10, 12];

/// A snapshot whose cut was taken.
pub(crate) struct Running {
    pub(crate) outcome: Pin<Box<dyn Future<Output = Outcome>>>,
    /// By core: the number of changes that are in the cut.
    changes: Vec<u64>,
    pub(crate) locked: Locked,
}

/// The file that a snapshot becomes.
pub(crate) enum Target {
    /// `dbfilename`.
    Dump,
    /// A base of the journal, which goes on after the cut with this number.
    Base(BasePlace, u64),
}

/// One core's part of a cut.
#[derive(Default)]
struct Cut {
    parts: Vec<Part>,
    /// For each database: its index, the number of keys, and the number of keys with a deadline.
    sizes: Vec<(u32, u64, u64)>,
    changes: u64,
    /// See [`SnapshotOrder::last_records`].
    last_record: u64,
    /// True if any field or member has a deadline.
    has_deadlines: bool,
}

/// The reaction to a slow script that holds keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BusyKeys {
    /// Wait for the script without limit.
    Wait,
    /// Give the snapshot up.
    GiveUp,
}

/// Starts a snapshot in the background. Returns when the cut was taken. Core 0 only.
pub(crate) async fn begin_in_background(core: Rc<Core>) -> Result<(), Busy> {
    let Running { outcome, changes, locked } =
        begin(&core, Access::Cut, BusyKeys::GiveUp, Target::Dump).await?;
    drop(locked);
    core.spawn_on_self(|core| async move {
        let outcome = outcome.await;
        finish(&core, &outcome, &changes, true);
    });
    Ok(())
}

/// Makes a snapshot, and returns when it is on the disk. Core 0 only.
pub(crate) async fn make(core: Rc<Core>) -> Result<Outcome, Busy> {
    let Running { outcome, changes, locked } =
        begin(&core, Access::Cut, BusyKeys::GiveUp, Target::Dump).await?;
    drop(locked);
    let outcome = outcome.await;
    finish(&core, &outcome, &changes, false);
    Ok(outcome)
}

/// Makes the final snapshot of the server. It has all acknowledged changes, and no data changes
/// after it. Returns true if the file is on the disk; otherwise the server continues. Concurrent
/// and later callers get the outcome of the same snapshot. Core 0 only.
pub(crate) async fn make_last(core: Rc<Core>) -> bool {
    let saves = Arc::clone(&core.admin.shared.saves);
    if core.saving.is_frozen() {
        return true;
    }
    if saves.is_last() {
        let (ticket, is_saved) = core.tx.ticket();
        core.saving.await_last(ticket);
        return is_saved.await;
    }
    saves.set_last(true);
    let is_saved = freeze(&core).await;
    if !is_saved {
        saves.set_last(false);
    }
    for ticket in core.saving.take_waiting_for_last() {
        core.tx.complete(ticket, Box::new(is_saved));
    }
    is_saved
}

/// Cancels the current snapshot, and makes one after which no data changes. Returns false if that
/// fails or is aborted.
async fn freeze(core: &Rc<Core>) -> bool {
    let saves = Arc::clone(&core.admin.shared.saves);
    while !saves.is_aborted() {
        // An exclusive lock waits for running jobs, whose changes would otherwise be acknowledged
        // after the cut.
        let Ok(running) = begin(core, Access::Exclusive, BusyKeys::Wait, Target::Dump).await else {
            let (ticket, ended) = core.tx.ticket::<()>();
            core.saving.await_end(ticket);
            cancel(core);
            ended.await;
            continue;
        };
        let outcome = running.outcome.await;
        finish(core, &outcome, &running.changes, false);
        let is_saved = matches!(outcome, Outcome::Saved { .. });
        if is_saved {
            core.saving.freeze(Some(running.locked));
        }
        return is_saved;
    }
    false
}

/// Asks the current snapshot to stop, and wakes the cores that wait for room in its file. Returns
/// false if there is none.
pub(crate) fn cancel(core: &Rc<Core>) -> bool {
    let is_being_made = core.admin.shared.saves.cancel();
    if is_being_made {
        (0..core.tx.cores()).for_each(|id| core.tell(id, |_| {}));
    }
    is_being_made
}

/// Takes the cut of a snapshot.
pub(crate) async fn begin(
    core: &Rc<Core>,
    access: Access,
    busy_keys: BusyKeys,
    target: Target,
) -> Result<Running, Busy> {
    assert_eq!(core.id(), 0, "core 0 coordinates snapshots");
    let saves = Arc::clone(&core.admin.shared.saves);
    let (purpose, number) = match &target {
        Target::Dump => (Purpose::Dump, None),
        Target::Base(_, number) => (Purpose::Base, Some(*number)),
    };
    saves.begin(core.now_ms(), purpose)?;
    let claims = (0..core.tx.cores()).map(|id| (id, Claim::All(access))).collect();
    let locked = match busy_keys {
        BusyKeys::Wait => core.tx.lock(claims).await,
        BusyKeys::GiveUp => match core.tx.unless_busy(core.tx.lock(claims)).await {
            Ok(locked) => locked,
            Err(line) => {
                saves.give_up();
                core.saving.complete_ended(&core.tx);
                return Err(Busy::Script(line));
            }
        },
    };
    let now = core.now_ms(); // All cores use this time, because their clocks differ.
    let cuts = core.run_on_all(|| move |core| cut(core, now, number)).await;
    let changes = cuts.iter().map(|cut| cut.changes).collect();
    let (ticket, outcome) = core.tx.ticket();
    core.saving.await_outcome(ticket);
    if saves.is_cancelled() {
        saves.end(Outcome::Cancelled);
    } else {
        write(core, cuts, now, &target);
    }
    Ok(Running { outcome: Box::pin(outcome), changes, locked })
}

/// Starts to write a snapshot on all cores.
fn write(core: &Rc<Core>, cuts: Vec<Cut>, cut_ms: u64, target: &Target) {
    let saves = &core.admin.shared.saves;
    let settings = core.admin.settings();
    let order = order(core, &settings, &cuts, cut_ms, target);
    tracing::debug!("the cut ends with these records of the cores: {:?}", order.last_records);
    saves.set_keys(order.sizes.values().map(|(keys, _)| keys).sum());
    core.admin.shared.reports.iter().for_each(|report| report.restart_saving());
    let outlets = match saves.begin_file(order) {
        Ok(outlets) => outlets,
        Err(why) => {
            tracing::error!("saving failed: {why}");
            return saves.end(Outcome::Failed(why));
        }
    };
    let packs = settings.flag("rdbcompression");
    let tells_idle = settings.text("maxmemory-policy").ends_with("-lru");
    for (id, (cut, outlet)) in cuts.into_iter().zip(outlets).enumerate() {
        let (style, portions) = (Style { packs, tells_idle }, saves.portions());
        core.tell(id, move |there| {
            let snapshot = Snapshot::in_portions(cut.parts, style, portions);
            there.saving.start(snapshot, outlet);
        });
    }
}

fn order(
    core: &Core,
    settings: &Settings,
    cuts: &[Cut],
    cut_ms: u64,
    target: &Target,
) -> SnapshotOrder {
    let mut sizes: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (database, keys, expires) in cuts.iter().flat_map(|cut| &cut.sizes) {
        let sum = sizes.entry(*database).or_default();
        *sum = (sum.0 + keys, sum.1 + expires);
    }
    let has_deadlines = cuts.iter().any(|cut| cut.has_deadlines);
    let (folder, name, purpose) = match target {
        Target::Dump => (folder(), settings.text("dbfilename").to_owned(), Purpose::Dump),
        Target::Base(place, _) => {
            let name = String::from_utf8_lossy(&place.file.name).into_owned();
            (place.folder.clone(), name, Purpose::Base)
        }
    };
    SnapshotOrder {
        purpose,
        folder,
        name,
        version: VERSIONS[usize::from(has_deadlines)],
        libraries: core.admin.shared.libraries.current(),
        packs: settings.flag("rdbcompression"),
        sizes,
        cut_ms,
        last_records: cuts.iter().map(|cut| cut.last_record).collect(),
        used_bytes: core.admin.shared.used_memory(),
        sums: settings.flag("rdbchecksum"),
        sync_bytes: settings.flag("rdb-save-incremental-fsync").then_some(SYNC_BYTES),
    }
}

/// Takes the cut of this core's databases at time `now`. All keys are locked. With a number, the
/// cut is handed over to the journal, which begins here at the latest.
async fn cut(core: Rc<Core>, now: UnixMillis, number: Option<u64>) -> Cut {
    if let Some(number) = number {
        journal::cut(&core, number);
    }
    // Read before the cut: only expiry can add records during the cut, and applying such a record
    // twice is harmless.
    let last_record = core.tx.home().shard.records_made();
    let mut cut = Cut { last_record, ..Cut::default() };
    let mut next = Some(0);
    while let Some(first) = next {
        next = cut.take_some(&core.tx.home().shard, first, now);
        core.tx.pause().await;
    }
    cut
}

impl Cut {
    /// Takes the cut of a few databases, from `first` on. Returns the index of the next one.
    fn take_some(&mut self, shard: &Shard, first: usize, now: UnixMillis) -> Option<usize> {
        let mut rest = shard.iter_from(first);
        for (at, db) in rest.by_ref().take(DATABASES_AT_ONCE).filter(|(_, db)| !db.is_empty()) {
            let database = u32::try_from(at).expect("databases are counted by C's int");
            let (keys, bytes) = (db.keys().reader(), db.memory_bytes());
            self.parts.push(Part { database, keys, now, bytes });
            self.sizes.push((database, db.len() as u64, db.expires_len() as u64));
            self.has_deadlines |= db.has_field_deadlines();
        }
        self.changes = shard.lasting_changes();
        rest.next().map(|(at, _)| at)
    }
}

/// Records the outcome of a snapshot. Core 0 only.
fn finish(core: &Rc<Core>, outcome: &Outcome, changes: &[u64], is_in_background: bool) {
    if matches!(outcome, Outcome::Saved { .. }) {
        for (id, changes) in changes.iter().copied().enumerate() {
            core.tell(id, move |there| there.saving.set_saved_changes(changes));
        }
    }
    core.admin.shared.saves.note(outcome, is_in_background, core.clock.unix_ms());
    core.saving.complete_ended(&core.tx);
}

/// Handles the outcome of a snapshot, and requests of the main thread. Core 0 only.
pub(super) fn handle_news(core: &Core) {
    if !has_news(core) {
        return;
    }
    let saves = &core.admin.shared.saves;
    if let Some(outcome) = saves.take_outcome() {
        let ticket = core.saving.take_ticket().expect("someone waits for every outcome");
        core.tx.complete(ticket, Box::new(outcome));
    }
    match saves.take_request() {
        SaveRequest::Nothing if core.saving.take_scheduled(saves) => begin_scheduled(core),
        SaveRequest::Nothing => {}
        SaveRequest::Snapshot => begin_scheduled(core),
        SaveRequest::Last => core.spawn_on_self(|core| async move {
            let is_saved = make_last(Rc::clone(&core)).await;
            core.admin.shared.saves.set_last_outcome(is_saved);
            (core.admin.shared.stopper)();
        }),
    }
}

fn begin_scheduled(core: &Core) {
    core.spawn_on_self(|core| async move {
        // If another snapshot is being made, it serves as well, so a refusal is ignored.
        let _ = begin_in_background(core).await;
    });
}

/// True if [`handle_news`] has something to do.
pub(super) fn has_news(core: &Core) -> bool {
    let saves = &core.admin.shared.saves;
    core.id() == 0 && (saves.has_news() || core.saving.is_due(saves))
}

#[cfg(test)]
mod tests {
    use super::Cut;
    use darter_keyspace::{Deadline, Fresh, Key, Shard};

    #[test] // The clocks of the two shards differ.
    fn all_cores_cut_at_the_time_that_core_0_has_chosen() {
        let mut all = Cut::default();
        for now in [1_000, 2_000] {
            let mut shard = Shard::new(16, 1);
            shard.set_now(now);
            shard.db_mut(0).set_text(&Key::new(b"k"), Fresh::Bytes(b"v"), Deadline::At(1_500));
            assert_eq!(all.take_some(&shard, 0, 1_400), None);
        }
        assert_eq!(all.parts.iter().map(|part| part.now).collect::<Vec<_>>(), [1_400, 1_400]);
    }
}
