//! One folder and its servers, one after the other: start, verify, write, die.

use crate::Options;
use crate::disk::{Disk, run};
use crate::figures::Figures;
use crate::found::{digest, read, say};
use crate::ledger::{Death, Ledger, transfers};
use crate::life::{Life, Start};
use crate::model::Keys;
use crate::writers::{Promise, operate, write};
use darter_base::Prng;
use darter_testkit::server::subject_path;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Writers of a server.
const WRITERS: usize = 4;
/// Lives until the folder is emptied.
const LIVES: u64 = 40;
/// The promise of `everysec`, and the time of a sync beside other work.
const LOSS_MAX: Duration = Duration::from_millis(1_000 + 500);

/// The facts of the last death that the next start is judged by.
struct Last {
    death: Death,
    at: Instant,
    /// Each write until then was under `everysec`.
    is_everysec: bool,
}

/// A folder with its history.
pub(crate) struct Lane {
    random: Prng,
    folder: PathBuf,
    log: PathBuf,
    disk: Option<Disk>,
    cores: Option<u64>,
    /// Also does what is known to fail.
    all: bool,
    ledgers: Vec<Ledger>,
    last: Option<Last>,
    lives: u64,
    /// The settings of the life before, and the operator's commands in it.
    story: String,
    pub(crate) figures: Figures,
}

impl Lane {
    /// A lane in `folder`, or on `disk`.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub(crate) fn new(
        folder: &Path,
        disk: Option<Disk>,
        seed: u64,
        options: &Options,
    ) -> Result<Self, String> {
        fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let inside = disk.as_ref().map_or(folder, |disk| &disk.mount).join("data");
        let mut lane = Self {
            random: Prng::from_seed(seed),
            folder: inside,
            log: folder.join("log"),
            disk,
            cores: options.cores,
            all: options.all,
            ledgers: Vec::new(),
            last: None,
            lives: 0,
            story: String::new(),
            figures: Figures::default(),
        };
        lane.empty()?;
        Ok(lane)
    }

    /// Begins with an empty folder.
    ///
    /// # Errors
    /// When the folder cannot be removed or made.
    pub(crate) fn empty(&mut self) -> Result<(), String> {
        let _ = fs::remove_dir_all(&self.folder);
        fs::create_dir_all(&self.folder).map_err(|error| error.to_string())?;
        if let Some(disk) = &self.disk {
            run(&["sync", "--file-system", &disk.mount.display().to_string()])?;
        }
        self.ledgers = (0..WRITERS).map(|_| Ledger::default()).collect();
        self.last = None;
        Ok(())
    }

    /// A boot makes the ring of the journal void: the server knows it by the boot's id, which does
    /// not change here.
    fn drop_rings(&self) {
        for folder in [self.folder.clone(), self.folder.join("appendonlydir")] {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().ends_with(".ring") {
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }

    fn settings(&mut self) -> Start {
        let mode = *self.random.weighted(&[(4, "always"), (4, "everysec"), (1, "no")]);
        let io = *self.random.weighted(&[(3, "auto"), (1, "epoll")]);
        let cores = self.cores.unwrap_or(1 + self.random.below(4));
        Start { cores, io, mode }
    }

    fn life(&mut self, start: &Start) -> Result<Life, String> {
        Life::start(&self.folder, &self.log, start).map_err(|error| format!("start: {error}"))
    }

    fn ready(&mut self, start: &Start) -> Result<Life, String> {
        let mut life = self.life(start)?;
        let time = life.until_ready()?;
        self.figures.longest_start = self.figures.longest_start.max(time);
        Ok(life)
    }

    /// One life, from a verified start to a death.
    ///
    /// # Errors
    /// With the property that does not hold.
    pub(crate) fn live(&mut self) -> Result<(), String> {
        self.lives += 1;
        if self.lives.is_multiple_of(LIVES) {
            self.empty()?;
        }
        let is_fresh = self.folder.read_dir().map_or(true, |mut it| it.next().is_none());
        if (self.all || !is_fresh) && self.random.chance(12) {
            let start = self.settings();
            let mut life = self.life(&start)?;
            std::thread::sleep(Duration::from_micros(self.random.below(60_000)));
            self.die(&mut life)?;
            self.figures.kills_at_start += u64::from(self.disk.is_none());
        }
        let mut start = self.settings();
        let mut life = self.ready(&start)?;
        self.verify(&life).map_err(|why| {
            format!("{why}\nbefore: {}\nnow: {start:?}\n{}", self.story, life.log())
        })?;
        if self.random.chance(8) {
            (life, start) = self.again(life)?;
        }
        if self.random.chance(3) {
            self.flush_all(&life)?;
        }
        let is_clean = self.random.chance(5);
        // With `everysec` a life must be longer than its promise to show a loss.
        let long = self.disk.is_some() && start.mode == "everysec" && self.random.chance(25);
        let most = if long { 2_600 } else { 250 };
        let lasts = Duration::from_millis(self.random.below(most));
        let promise = Promise::default();
        let is_deep = start.cores == 1 || self.all;
        promise.is_deep.store(is_deep, Ordering::SeqCst);
        promise.is_logged.store(true, Ordering::SeqCst);
        promise.is_always.store(start.mode == "always", Ordering::SeqCst);
        let outcome = self.write_until(&mut life, lasts, &promise, is_clean, long);
        for ledger in &self.ledgers {
            let (answered, unknown) = ledger.counts();
            self.figures.answered += answered;
            self.figures.unknown += unknown;
        }
        let acts = promise.acts.lock().map(|acts| acts.join(", ")).unwrap_or_default();
        self.story = format!("{start:?}, {lasts:?}: {acts}\n{}", life.log());
        outcome?;
        let was_switched = promise.was_switched.load(Ordering::SeqCst);
        if is_clean {
            return self.end_cleanly(&mut life, promise.is_logged.load(Ordering::SeqCst));
        }
        if let Some(last) = &mut self.last {
            last.is_everysec = start.mode == "everysec" && !was_switched;
        }
        Ok(())
    }

    /// Lets writers and operator work, and the server die meanwhile, unless it shall end cleanly.
    fn write_until(
        &mut self,
        life: &mut Life,
        lasts: Duration,
        promise: &Promise,
        is_clean: bool,
        is_quiet: bool,
    ) -> Result<(), String> {
        let mut ledgers = std::mem::take(&mut self.ledgers);
        let seeds: Vec<u64> = (0..=WRITERS).map(|_| self.random.next_u64()).collect();
        let end = Instant::now() + lasts;
        let outcome = std::thread::scope(|scope| {
            let shared: &Life = life;
            for (me, ledger) in ledgers.iter_mut().enumerate() {
                let mut random = Prng::from_seed(seeds[me]);
                scope.spawn(move || write(shared, me, WRITERS, ledger, &mut random, promise));
            }
            if !is_quiet {
                let mut random = Prng::from_seed(seeds[WRITERS]);
                scope.spawn(move || operate(shared, &mut random, promise, end));
            }
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
            if is_clean {
                promise.is_over.store(true, Ordering::SeqCst);
                return Ok(Instant::now());
            }
            let at = Instant::now();
            let cut = self.disk.as_ref().map_or(Ok(()), Disk::cut_power);
            shared.strike();
            promise.is_over.store(true, Ordering::SeqCst);
            cut.map(|()| at)
        });
        self.ledgers = ledgers;
        let at = outcome?;
        if !is_clean {
            life.kill();
            self.is_dead(at)?;
        }
        Ok(())
    }

    /// Kills a server, or cuts its power.
    fn die(&mut self, life: &mut Life) -> Result<(), String> {
        let at = Instant::now();
        self.disk.as_ref().map_or(Ok(()), Disk::cut_power)?;
        life.kill();
        let before = self.last.take();
        self.is_dead(at)?;
        // The data was promised by the life before: the worse death counts.
        if let (Some(before), Some(last)) = (before, &mut self.last) {
            (last.at, last.is_everysec) = (before.at, before.is_everysec);
        }
        Ok(())
    }

    fn is_dead(&mut self, at: Instant) -> Result<(), String> {
        let mut death = Death::Kill;
        if let Some(disk) = &self.disk {
            disk.restore_power()?;
            self.drop_rings();
            self.figures.power += 1;
            death = Death::Power;
        } else {
            self.figures.kills += 1;
        }
        self.last = Some(Last { death, at, is_everysec: false });
        Ok(())
    }

    /// Compares the data of a fresh start with what the writers know.
    fn verify(&mut self, life: &Life) -> Result<(), String> {
        let mut client = life.client().map_err(|error| error.to_string())?;
        let found = read(&mut client, WRITERS)?;
        let counters: Vec<u64> =
            found.iter().enumerate().map(|(me, keys)| transfers(keys, me)).collect();
        let death = self.last.as_ref().map_or(Death::Kill, |last| last.death);
        let at = self.last.as_ref().map(|last| last.at);
        let mut worst = Duration::ZERO;
        for (me, (ledger, keys)) in self.ledgers.iter().zip(&found).enumerate() {
            let prefix = ledger.prefix(me, keys, death, at)?;
            ledger.check_seen(prefix, &counters, death, at)?;
            if let Some(last) = self.last.as_ref().filter(|last| last.is_everysec) {
                worst = worst.max(ledger.lost(prefix, last.at).unwrap_or_default());
            }
        }
        if self.last.as_ref().is_some_and(|it| it.is_everysec && it.death == Death::Power) {
            self.figures.lost(worst);
            if worst > LOSS_MAX {
                return Err(format!("everysec lost {} ms", worst.as_millis()));
            }
        }
        for (ledger, keys) in self.ledgers.iter_mut().zip(found) {
            ledger.settle(keys);
        }
        self.last = None;
        Ok(())
    }

    /// Starts again at once: the data must be the same.
    fn again(&mut self, mut life: Life) -> Result<(Life, Start), String> {
        let mut client = life.client().map_err(|error| error.to_string())?;
        let before = digest(&mut client, WRITERS)?;
        life.kill();
        self.figures.kills += 1;
        let start = self.settings();
        let life = self.ready(&start)?;
        self.compare(&life, &before, "a second start")?;
        Ok((life, start))
    }

    fn compare(&self, life: &Life, before: &str, when: &str) -> Result<(), String> {
        let mut client = life.client().map_err(|error| error.to_string())?;
        let after = digest(&mut client, WRITERS)?;
        if after == before {
            return Ok(());
        }
        Err(format!("{when} changes the digest from {before} to {after}\n{}", life.log()))
    }

    fn flush_all(&mut self, life: &Life) -> Result<(), String> {
        let mut client = life.client().map_err(|error| error.to_string())?;
        say(&mut client, "CONFIG SET appendfsync always")?;
        say(&mut client, "FLUSHALL")?;
        self.ledgers.iter_mut().for_each(|ledger| ledger.settle(Keys::new()));
        Ok(())
    }

    /// Shuts down; the files must be good, and the next start must find the same.
    fn end_cleanly(&mut self, life: &mut Life, is_logged: bool) -> Result<(), String> {
        let mut client = life.client().map_err(|error| error.to_string())?;
        if !is_logged {
            // Without a journal a shutdown keeps nothing, and its first base would refuse it.
            life.kill();
            return self.is_dead(Instant::now());
        }
        let before = digest(&mut client, WRITERS)?;
        life.shut_down()?;
        let program = subject_path().display().to_string();
        run(&[&program, "check", &self.folder.display().to_string()])?;
        let start = self.settings();
        let life = self.ready(&start)?;
        self.compare(&life, &before, "a clean shutdown")?;
        self.verify(&life)?;
        self.figures.clean += 1;
        Ok(())
    }
}
