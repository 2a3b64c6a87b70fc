//! Making a snapshot: one at a time, coordinated by core 0.
//!
//! The cut is of one instant, on all cores: all keys are locked while it is taken, so a command
//! over several keys is in it with all of its changes or none, and what a client did after it saw
//! a change comes with that change (docs/design/0002-order.md says why that is enough for a job
//! whose change is made aside). Readers do not notice; who writes waits for two messages to each
//! core. Then the cores encode their parts as background work, each in its own slices.

use super::core::Core;
use crate::saving::{Busy, Outcome, SaveRequest, SnapshotOrder, folder};
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

/// Databases cut between two looks at the clock: about 10 us.
const DATABASES_AT_ONCE: usize = 64;
/// Bytes after which a file is synced while it is written.
const SYNC_BYTES: u64 = 8 << 20;
/// The version of a file that Redis 7.0 loads; and of one with deadlines of fields.
const VERSIONS: [u16; 2] = [10, 12];

/// A snapshot whose cut has been taken.
struct Running {
    outcome: Pin<Box<dyn Future<Output = Outcome>>>,
    /// By core: its changes until the cut.
    changes: Vec<u64>,
    locked: Locked,
}

/// One core's cut.
#[derive(Default)]
struct Cut {
    parts: Vec<Part>,
    /// By database: keys, and those with a deadline.
    sizes: Vec<(u32, u64, u64)>,
    changes: u64,
    /// Some field or member has a deadline.
    has_deadlines: bool,
}

/// What a snapshot does where a script that takes very long holds keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// It waits, whatever it takes.
    Waits,
    /// It is not made.
    GivesUp,
}

/// Makes a snapshot in the background: returns when its cut has been taken. Core 0 only.
pub(crate) async fn begin_in_background(core: Rc<Core>) -> Result<(), Busy> {
    let Running { outcome, changes, locked } =
        begin(&core, Access::Shared, Patience::GivesUp).await?;
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
        begin(&core, Access::Shared, Patience::GivesUp).await?;
    drop(locked);
    let outcome = outcome.await;
    finish(&core, &outcome, &changes, false);
    Ok(outcome)
}

/// Makes the last snapshot: all that has been acknowledged is in it, and from then on nothing
/// changes. True if it is on the disk; otherwise all goes on as before. Who asks while one is being
/// made gets its outcome, and so does who asks later. Core 0 only.
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

/// Makes a snapshot after which nothing changes, once the one under way has been given up. False if
/// it fails, or is called off.
async fn freeze(core: &Rc<Core>) -> bool {
    let saves = Arc::clone(&core.admin.shared.saves);
    while !saves.is_aborted() {
        // Exclusive: it waits for jobs, whose changes would be acknowledged after the cut.
        let Ok(running) = begin(core, Access::Exclusive, Patience::Waits).await else {
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

/// Asks the snapshot under way to stop, and wakes the cores that wait for room to send their parts.
/// False if there is none.
pub(crate) fn cancel(core: &Rc<Core>) -> bool {
    let is_under_way = core.admin.shared.saves.cancel();
    if is_under_way {
        (0..core.tx.cores()).for_each(|id| core.tell(id, |_| {}));
    }
    is_under_way
}

/// Takes the cut, and has it written.
async fn begin(core: &Rc<Core>, access: Access, patience: Patience) -> Result<Running, Busy> {
    assert_eq!(core.id(), 0, "core 0 coordinates snapshots");
    let saves = Arc::clone(&core.admin.shared.saves);
    saves.begin(core.now_ms())?;
    let claims = (0..core.tx.cores()).map(|id| (id, Claim::All(access))).collect();
    let locked = match patience {
        Patience::Waits => core.tx.lock(claims).await,
        Patience::GivesUp => match core.tx.unless_busy(core.tx.lock(claims)).await {
            Ok(locked) => locked,
            Err(line) => {
                saves.give_up();
                core.saving.complete_ended(&core.tx);
                return Err(Busy::Script(line));
            }
        },
    };
    let now = core.now_ms(); // Of all cores' cuts: each has its own idea of the time.
    let cuts = core.run_on_all(|| move |core| cut(core, now)).await;
    let changes = cuts.iter().map(|cut| cut.changes).collect();
    let (ticket, outcome) = core.tx.ticket();
    core.saving.await_outcome(ticket);
    if saves.is_cancelled() {
        saves.end(Outcome::Cancelled);
    } else {
        write(core, cuts, now);
    }
    Ok(Running { outcome: Box::pin(outcome), changes, locked })
}

/// Has the cores write their parts.
fn write(core: &Rc<Core>, cuts: Vec<Cut>, cut_ms: u64) {
    let saves = &core.admin.shared.saves;
    let settings = core.admin.settings();
    let order = order(core, &settings, &cuts, cut_ms);
    saves.set_keys(order.sizes.values().map(|(keys, _)| keys).sum());
    core.admin.shared.reports.iter().for_each(|told| told.restart_saving());
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

fn order(core: &Core, settings: &Settings, cuts: &[Cut], cut_ms: u64) -> SnapshotOrder {
    let mut sizes: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (database, keys, expires) in cuts.iter().flat_map(|cut| &cut.sizes) {
        let sum = sizes.entry(*database).or_default();
        *sum = (sum.0 + keys, sum.1 + expires);
    }
    let has_deadlines = cuts.iter().any(|cut| cut.has_deadlines);
    SnapshotOrder {
        folder: folder(),
        name: settings.text("dbfilename").to_owned(),
        version: VERSIONS[usize::from(has_deadlines)],
        libraries: core.admin.shared.libraries.current(),
        packs: settings.flag("rdbcompression"),
        sizes,
        cut_ms,
        used_bytes: core.admin.shared.used_memory(),
        sums: settings.flag("rdbchecksum"),
        sync_bytes: settings.flag("rdb-save-incremental-fsync").then_some(SYNC_BYTES),
    }
}

/// Cuts the databases of this core as of `now`. Nobody changes them meanwhile.
async fn cut(core: Rc<Core>, now: UnixMillis) -> Cut {
    let mut cut = Cut::default();
    let mut next = Some(0);
    while let Some(first) = next {
        next = cut.take_some(&core.tx.home().shard, first, now);
        core.tx.pause().await;
    }
    cut
}

impl Cut {
    /// Cuts some databases from `first` on; returns where to continue.
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

/// Notes how a snapshot ended. Core 0 only.
fn finish(core: &Rc<Core>, outcome: &Outcome, changes: &[u64], is_in_background: bool) {
    if matches!(outcome, Outcome::Saved { .. }) {
        for (id, changes) in changes.iter().copied().enumerate() {
            core.tell(id, move |there| there.saving.set_saved_changes(changes));
        }
    }
    core.admin.shared.saves.note(outcome, is_in_background, core.clock.unix_ms());
    core.saving.complete_ended(&core.tx);
}

impl Core {
    /// Whether [`Core::save_some`] would do something.
    pub(super) fn can_save(&self) -> bool {
        self.saving.can_go_on(&self.admin.shared.saves)
    }

    /// Whether its part of the snapshot is behind those who write: see `writers`.
    pub(super) fn is_behind_writers(&self) -> bool {
        self.saving.is_here() && self.saving.is_behind(&self.admin.shared.saves)
    }

    /// A portion of the snapshot under way.
    pub(super) fn save_some(&self) {
        let keys = self.saving.step(&self.admin.shared.saves);
        self.admin.shared.reports[self.id()].count_saved(keys);
    }

    /// Core 0: how a snapshot ended, and what the main thread asks for.
    pub(super) fn hear_of_saves(&self) {
        if !self.has_save_news() {
            return;
        }
        let saves = &self.admin.shared.saves;
        if let Some(outcome) = saves.take_outcome() {
            let ticket = self.saving.take_ticket().expect("someone waits for every outcome");
            self.tx.complete(ticket, Box::new(outcome));
        }
        match saves.take_request() {
            SaveRequest::Nothing => {}
            SaveRequest::Snapshot => self.spawn_on_self(|core| async move {
                // If one is under way, that is it.
                let _ = begin_in_background(core).await;
            }),
            SaveRequest::Last => self.spawn_on_self(|core| async move {
                let is_saved = make_last(Rc::clone(&core)).await;
                core.admin.shared.saves.set_last_outcome(is_saved);
                (core.admin.shared.stopper)();
            }),
        }
    }

    /// Whether there is something for [`Core::hear_of_saves`].
    pub(super) fn has_save_news(&self) -> bool {
        self.id() == 0 && self.admin.shared.saves.has_news()
    }
}

#[cfg(test)]
mod tests {
    use super::Cut;
    use darter_keyspace::{Deadline, Fresh, Key, Shard};

    #[test] // The turn of one core began before the deadline of a key, that of another after it.
    fn all_cores_judge_by_one_instant() {
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
