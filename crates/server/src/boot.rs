//! Starts the cores according to the settings, and stops them in order.
//!
//! The order of the start: limits, sockets, threads, the file, signals. As in Redis, the sockets
//! are open before the file is loaded, and clients get LOADING until then. The pidfile is written
//! before any client is answered, and only by a process that has opened its sockets.

use crate::admin::{self, Local};
use crate::arrivals::Arrivals;
use crate::clock::MachineClock;
use crate::doors::Doors;
use crate::engine::journal as journaling;
use crate::engine::replay as replaying;
use crate::engine::{Core, Mail, Table, World};
use crate::files;
use crate::journal::Found;
use crate::journal::{self, Collector, Folder, Journal, JournalState};
use crate::knock::{Knocker, SliceTimer};
use crate::load::{self, Loaded};
use crate::machine::System;
use crate::post::Post;
use crate::replay::Replay;
use crate::saving::{self, SaveRequest, Saves};
use crate::settings::Settings;
use crate::shared::{CoreReport, Empty, Shared};
use crate::spin::PollTime;
use crate::supervisor::Supervisor;
use crate::thread::Thread;
use darter_persist::aof::manifest::{self, Manifest};
use darter_runtime::fs::{FileSystem, Kernel};
use darter_runtime::net::{BackendChoice, Net, Waker};
use darter_runtime::{clock, heap, mailbox, signal, supervise, topology};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};

/// The reason for a failed start, or for an unplanned end.
#[derive(Debug)]
pub struct Failure(String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Batches of messages in a ring between two cores. Further ones wait at the sender.
const RING_CAPACITY: usize = 256;

/// Runs the server until it is asked to stop.
pub fn run(mut settings: Settings) -> Result<(), Failure> {
    heap::prepare();
    darter_base::hash::set_seed(random_u64());
    enter_folder(&mut settings)?;
    crate::log::begin(&settings);
    let processors = topology::processors();
    let cores = match settings.size("cores") {
        0 => topology::default_cores(),
        cores => cores,
    };
    warn_of_sharing(cores, processors.len());
    make_room(&mut settings, cores)?;
    let settings = Arc::new(settings);
    let wakers = wakers(cores)?;
    let signals = signal::watch(wakers.clone())
        .map_err(|error| Failure(format!("cannot watch for signals: {error}")))?;
    let shared = shared(&wakers);
    let table = Arc::new(table());
    let data = data(&settings, &shared, place_of(Arc::clone(&table), cores))?;
    let launch = Launch::new(&settings, &shared, data.is_none())?;
    let keeps_dead = matches!(data, Some(load::Data::Journal { .. }));
    let loaded = Loaded::new(if data.is_some() { cores } else { 0 }, wakers.clone());
    let OpenedData { inboxes, commands, loader } = open_data(data, &settings, &wakers, &shared)?;
    let mut commands = commands.into_iter();
    let stop = Arc::new(AtomicBool::new(false));
    let quiet: Arc<[AtomicBool]> = (0..cores).map(|_| AtomicBool::new(false)).collect();
    let (told, ready) = std::sync::mpsc::channel();
    let begun = Arc::new(Barrier::new(cores + 1));
    let mut threads = Vec::new();
    let mailboxes = mailbox::mesh::<Post>(wakers.clone(), RING_CAPACITY);
    for ((id, mailbox), inbox) in mailboxes.into_iter().enumerate().zip(inboxes) {
        let plan = Plan {
            id,
            cores,
            processor: (cores <= processors.len()).then(|| processors[id % processors.len()]),
            settings: Arc::clone(&settings),
            shared: Arc::clone(&shared),
            table: Arc::clone(&table),
            waker: wakers[id].clone(),
            stop: Arc::clone(&stop),
            loaded: Arc::clone(&loaded),
            quiet: Arc::clone(&quiet),
            begun: Arc::clone(&begun),
            inbox,
            commands: commands.next(),
            keeps_dead,
        };
        threads.push(plan.spawn(mailbox, told.clone()).map_err(no_thread)?);
    }
    drop(told);
    wait_for_cores(cores, &ready)?;
    let supervisor = Supervisor::begin(&settings, Arc::clone(&shared.fs));
    // Measured here, because neither the cores nor the loader have begun.
    shared.empty.measure(&*shared.machine);
    begun.wait();
    let journal = launch.thread();
    let loader = launch.with_loading(loader, keeps_dead).map_err(no_thread)?;
    crate::log::running(&settings, cores, shared.io.get().copied().unwrap_or("none"));
    let running = Running {
        signals: &signals,
        shared: &shared,
        wake: &wakers[0],
        appends: settings.flag("appendonly"),
    };
    running.serve(loader, &supervisor)?;
    shared.saves.cancel(); // No core is left to complete an unfinished snapshot.
    stop_cores(&stop, &wakers, threads)?;
    shared.saves.finish();
    finish_journal(&journal);
    crate::log::end(shared.lost.each_ref().map(|lost| lost.load(Ordering::Relaxed)));
    Ok(())
}

fn wakers(cores: usize) -> Result<Vec<Waker>, Failure> {
    (0..cores)
        .map(|_| Waker::new())
        .collect::<Result<_, _>>()
        .map_err(|error| Failure(format!("cannot make a waker: {error}")))
}

#[expect(clippy::needless_pass_by_value, reason = "it is passed to map_err")]
fn no_thread(error: std::io::Error) -> Failure {
    Failure(format!("cannot start a thread: {error}"))
}

/// Turns the process into a daemon, if the settings say so. Must be called while the process has
/// one thread.
pub fn leave_terminal(settings: &Settings) -> Result<(), Failure> {
    if !crate::supervisor::leaves_terminal(settings) {
        return Ok(());
    }
    supervise::daemonize()
        .map_err(|error| Failure(format!("cannot run in the background: {error}")))
}

/// Raises the limit of open files to fit `maxclients`. If the system does not allow that,
/// `maxclients` is reduced.
fn make_room(settings: &mut Settings, cores: usize) -> Result<(), Failure> {
    let clients = settings.size("maxclients");
    let Err(fitting) = files::make_room(&System::read(), clients, cores) else { return Ok(()) };
    if fitting == 0 {
        return Err(Failure(
            "the limit of open files is too low to start: raise 'ulimit -n'".into(),
        ));
    }
    tracing::warn!("maxclients is reduced to {fitting}; raise 'ulimit -n' to serve more");
    settings
        .set("maxclients", &fitting.to_string())
        .map_err(|wrong| Failure(format!("cannot reduce maxclients: {wrong}")))
}

fn enter_folder(settings: &mut Settings) -> Result<(), Failure> {
    let entered = settings.enter_folder();
    entered.map_err(|error| Failure(format!("cannot use dir '{}': {error}", settings.text("dir"))))
}

/// Logs a warning if there are more cores than processors, because that is slower than an equal
/// number.
fn warn_of_sharing(cores: usize, processors: usize) {
    if cores > processors {
        tracing::warn!(
            "{cores} cores share {processors} processors, which is slow: use --cores {processors}"
        );
    }
}

/// Waits until all cores run, or one of them reports a failure.
fn wait_for_cores(
    cores: usize,
    ready: &std::sync::mpsc::Receiver<Result<(), Failure>>,
) -> Result<(), Failure> {
    for _ in 0..cores {
        ready.recv().map_err(|_| Failure("a core ended during startup".into()))??;
    }
    Ok(())
}

/// Stops all cores, and waits for their threads.
fn stop_cores(
    stop: &AtomicBool,
    wakers: &[Waker],
    threads: Vec<CoreThread>,
) -> Result<(), Failure> {
    tracing::info!("stopping: new connections are refused, received commands are answered");
    stop.store(true, Ordering::Release);
    wakers.iter().for_each(Waker::wake);
    for thread in threads {
        thread
            .join()
            .map_err(|_| Failure("a core panicked".into()))?
            .map_err(|error| Failure(format!("a core failed: {error}")))?;
    }
    Ok(())
}

/// The journal's thread, once it runs.
type JournalThread = Arc<Mutex<Option<journal::RunningJournal>>>;

/// Ends the journal's thread. No core runs any more.
fn finish_journal(thread: &JournalThread) {
    let running = thread.lock().expect("no holder panics").take();
    running.into_iter().for_each(journal::RunningJournal::finish);
}

/// Starts the journal's thread.
struct Launch {
    collector: Collector,
    thread: JournalThread,
}

impl Launch {
    /// The journal is off; or on, if `appendonly` is set and there is nothing to load.
    fn new(settings: &Settings, shared: &Shared, is_empty: bool) -> Result<Self, Failure> {
        let folder = Folder {
            fs: Arc::clone(&shared.fs),
            path: PathBuf::from(settings.text("appenddirname")),
            name: settings.text("appendfilename").to_owned(),
            manifest: Manifest::default(),
            last_base: 0,
            boot: crate::machine::boot(),
        };
        let mut collector = Collector::new(Arc::clone(&shared.journal), folder, random_u64());
        if let Some(found) = shared.found.get().filter(|_| is_empty) {
            let begun = collector.turn_on(found);
            begun
                .map_err(|error| Failure(format!("cannot make the append-only files: {error}")))?;
        }
        Ok(Self { collector, thread: Arc::default() })
    }

    /// The place of the thread.
    fn thread(&self) -> JournalThread {
        Arc::clone(&self.thread)
    }

    fn begin(self) -> std::io::Result<()> {
        *self.thread.lock().expect("no holder panics") = Some(self.collector.start()?);
        Ok(())
    }

    /// Starts to load, and the journal's thread: now, or after the append-only folder was loaded.
    fn with_loading(
        mut self,
        loader: Option<load::Opened>,
        is_journal: bool,
    ) -> std::io::Result<Option<load::Handle>> {
        let Some(loader) = loader else { return self.begin().map(|()| None) };
        if !is_journal {
            self.begin()?;
            return loader.begin(None).map(Some);
        }
        let then = move |found: &Found| {
            self.collector.turn_on(found)?;
            self.begin()
        };
        loader.begin(Some(Box::new(then))).map(Some)
    }
}

type CoreThread = std::thread::JoinHandle<std::io::Result<()>>;

/// The command table, with the rows of all crates.
#[must_use]
pub fn table() -> Table {
    let mut families = darter_families::TABLES.to_vec();
    families.push(darter_persist::commands::TABLE);
    Table::new(&families, admin::TABLES)
}

fn shared(wakers: &[Waker]) -> Arc<Shared> {
    let main = std::thread::current();
    let started_ms = clock::unix_millis();
    let fs: Arc<dyn FileSystem> = Arc::new(Kernel);
    let files = Box::new(saving::Files::new(Arc::clone(&fs), wakers.to_vec()));
    Arc::new(Shared {
        run_id: format!("{:016x}{:016x}{:08x}", random_u64(), random_u64(), random_u64() as u32),
        started_ms,
        io: OnceLock::new(),
        empty: Empty::default(),
        saves: Arc::new(Saves::new(files, started_ms)),
        scripts: crate::engine::scripts::registry::Registry::default(),
        absent: crate::absent::Absent::default(),
        libraries: Arc::default(),
        listeners: Default::default(),
        reports: wakers.iter().map(|_| CoreReport::default()).collect(),
        used_peak: AtomicUsize::new(0),
        lost: Default::default(),
        stop: AtomicBool::new(false),
        load: Arc::default(),
        stopper: Box::new(move || main.unpark()),
        journal: Arc::new(Journal::new(wakers.len(), wakers.to_vec())),
        fs,
        found: OnceLock::new(),
        machine: Box::new(System::read()),
    })
}

/// The interval at which the main thread checks for signals: a signal wakes only the cores.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);
/// The interval of these checks while the main thread waits for core 0.
const SHORT_LOOK: std::time::Duration = std::time::Duration::from_millis(2);

/// The state of the main thread while the cores run.
struct Running<'a> {
    signals: &'a signal::StopFlag,
    shared: &'a Shared,
    /// Wakes core 0, which coordinates snapshots.
    wake: &'a Waker,
    /// `appendonly` at the start.
    appends: bool,
}

impl Running<'_> {
    /// Waits until the file is loaded, then until the server is asked to stop and the last snapshot
    /// is made.
    fn serve(&self, loader: Option<load::Handle>, supervisor: &Supervisor) -> Result<(), Failure> {
        let is_loaded = loader.map_or(Ok(true), |loader| self.finish_loading(loader))?;
        if is_loaded && !self.is_to_end() {
            tracing::info!("Ready to accept connections");
            supervisor.ready();
        }
        if is_loaded && self.appends && self.shared.journal.state() == JournalState::Off {
            // Only an RDB file was there. It becomes the first base.
            self.shared.journal.start();
            self.shared.journal.schedule_rewrite(true);
            self.wake.wake();
        }
        if is_loaded {
            // A file that is only partly loaded must not replace the complete one.
            self.wait_for_end();
        }
        supervisor.stopping();
        Ok(())
    }

    fn is_to_end(&self) -> bool {
        self.signals.raised().is_some() || self.shared.stop.load(Ordering::SeqCst)
    }

    /// Starts a snapshot whenever a save point is reached. Returns when SHUTDOWN has stopped the
    /// server, or a signal was received and its snapshot is saved.
    fn wait_for_end(&self) {
        while !self.shared.stop.load(Ordering::SeqCst) {
            if let Some(signal) = self.signals.raised() {
                if self.may_end(signal) {
                    return;
                }
                tracing::error!(
                    "{signal}: saving failed, so the server continues to run; another signal tries \
                     again, SHUTDOWN NOSAVE ends without saving"
                );
                self.signals.lower();
            }
            self.look_at_save_points();
            if self.shared.journal.look(clock::unix_millis()) {
                self.wake.wake();
            }
            std::thread::park_timeout(LOOK);
        }
    }

    fn look_at_save_points(&self) {
        let saves = &self.shared.saves;
        let (changes, _) = self.shared.unsaved_and_saved();
        if let Some(point) = saves.reached(changes, clock::unix_millis()) {
            tracing::info!("saving: {changes} changes in {} seconds", point.seconds);
            saves.request(SaveRequest::Snapshot);
            self.wake.wake();
            // The save point counts as reached until core 0 has begun the snapshot, so wait for
            // that.
            while saves.is_requested() && !self.is_to_end() {
                std::thread::park_timeout(SHORT_LOOK);
            }
        }
    }

    /// Makes a snapshot if the settings require one for this signal. Returns false if saving
    /// failed; the server then continues.
    fn may_end(&self, signal: signal::Signal) -> bool {
        let saves = &self.shared.saves;
        let words = saves.words(signal);
        if self.shared.journal.state() == JournalState::Starting && !words.force {
            tracing::error!("Writing initial AOF, can't exit.");
            return false;
        }
        if !saves.saves_at_end(words) {
            return true;
        }
        tracing::info!("{signal}: saving before shutdown");
        saves.request(SaveRequest::Last);
        self.wake.wake();
        loop {
            if let Some(is_saved) = saves.last() {
                return is_saved || words.force;
            }
            if self.shared.stop.load(Ordering::SeqCst) {
                return true; // A SHUTDOWN command has stopped the server first.
            }
            std::thread::park_timeout(SHORT_LOOK);
        }
    }

    /// Waits until the file is loaded. If the server is asked to stop, cancels loading and returns
    /// false.
    fn finish_loading(&self, loader: load::Handle) -> Result<bool, Failure> {
        while !loader.is_finished() {
            if self.is_to_end() {
                loader.cancel();
                break;
            }
            std::thread::park_timeout(LOOK);
        }
        match loader.join() {
            Ok((summary, found)) => {
                tracing::info!("{summary}");
                if let Some(found) = found {
                    self.shared.keep_found(found);
                }
            }
            Err(_) if self.is_to_end() => return Ok(false),
            Err(error) => return Err(Failure(error.to_string())),
        }
        Ok(true)
    }
}

/// The file to load, if there is one. The start fails if the file exists but cannot be read,
/// because it may hold data, or if it is a pipe.
fn rdb_file(settings: &Settings) -> Result<Option<PathBuf>, Failure> {
    let path = Path::new(settings.text("dbfilename"));
    let wrong = |why: &dyn std::fmt::Display| {
        Err(Failure(format!("cannot load {}: {why}", path.display())))
    };
    match path.metadata() {
        Ok(found) if found.is_file() => Ok(Some(path.to_owned())),
        Ok(_) => wrong(&"not a regular file"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => wrong(&error),
    }
}

/// The data to load, if there is any: an append-only folder if `appendonly` is set and there is a
/// journal, otherwise the RDB file. The server never starts empty beside data.
fn data(
    settings: &Settings,
    shared: &Shared,
    place_of: load::PlaceOf,
) -> Result<Option<load::Data>, Failure> {
    if !settings.flag("appendonly") {
        return Ok(rdb_file(settings)?.map(load::Data::Rdb));
    }
    let folder = settings.text("appenddirname");
    let names = load::Names { folder, file: settings.text("appendfilename") };
    let recovered =
        journal::recover(&*shared.fs, Path::new(folder), names.file, crate::machine::boot());
    match recovered {
        Ok(0) => {}
        Ok(bytes) => {
            tracing::info!("completed the append-only file with {bytes} bytes of the ring")
        }
        Err(error) => {
            return Err(Failure(format!(
                "cannot complete the append-only file from {folder}/{}: {error}; without that file \
                 the server starts, but loses the last changes",
                manifest::ring_name(names.file)
            )));
        }
    }
    let files = load::plan(&shared.fs, names, settings.flag("aof-load-truncated"));
    let files = files.map_err(Failure)?;
    if !files.is_empty() {
        return Ok(Some(load::Data::Journal { files, folder: folder.into(), place_of }));
    }
    shared.keep_found(files.nothing_to_load());
    let rdb = rdb_file(settings)?;
    if let Some(path) = &rdb {
        tracing::info!(
            "there is no append-only file in {folder}: {} is loaded and becomes the first base",
            path.display()
        );
    }
    Ok(rdb.map(load::Data::Rdb))
}

/// The two ends of loading: the cores', and the thread's.
struct OpenedData {
    inboxes: Vec<Option<load::Inbox>>,
    /// For each core, or empty.
    commands: Vec<load::Deliverer>,
    loader: Option<load::Opened>,
}

fn open_data(
    data: Option<load::Data>,
    settings: &Settings,
    wakers: &[Waker],
    shared: &Shared,
) -> Result<OpenedData, Failure> {
    let Some(data) = data else {
        let inboxes = wakers.iter().map(|_| None).collect();
        return Ok(OpenedData { inboxes, commands: Vec::new(), loader: None });
    };
    let shown = match &data {
        load::Data::Rdb(path) | load::Data::Journal { folder: path, .. } => {
            path.display().to_string()
        }
    };
    let databases = settings.size("databases");
    let onto = load::Onto {
        fs: Arc::clone(&shared.fs),
        databases,
        verifies: settings.flag("rdbchecksum"),
        progress: Arc::clone(&shared.load),
        libraries: Arc::clone(&shared.libraries),
    };
    let (inboxes, opened) = load::open(data, wakers.to_vec(), onto)
        .map_err(|error| Failure(format!("cannot load {shown}: {error}")))?;
    let load::Inboxes { cores, commands } = inboxes;
    let inboxes = cores.into_iter().map(Some).collect();
    Ok(OpenedData { inboxes, commands, loader: Some(opened) })
}

/// Finds the places of the commands of append-only files.
fn place_of(table: Arc<Table>, cores: usize) -> load::PlaceOf {
    let likely = Cell::new(0);
    Box::new(move |args| {
        let (place, found) = replaying::place_of(&table, likely.get(), args, cores);
        likely.set(found);
        place
    })
}

/// The parts from which a core's thread is created.
struct Plan {
    id: usize,
    cores: usize,
    processor: Option<usize>,
    settings: Arc<Settings>,
    shared: Arc<Shared>,
    table: Arc<Table>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    loaded: Arc<Loaded>,
    quiet: Arc<[AtomicBool]>,
    /// The barrier at which all cores wait: each has opened its sockets, and none serves yet.
    begun: Arc<Barrier>,
    inbox: Option<load::Inbox>,
    /// The commands of append-only files.
    commands: Option<load::Deliverer>,
    /// True if expired entries count as live until loading has ended.
    keeps_dead: bool,
}

type Report = std::sync::mpsc::Sender<Result<(), Failure>>;

impl Plan {
    fn spawn(self, mailbox: mailbox::Mailbox<Post>, told: Report) -> std::io::Result<CoreThread> {
        let name = format!("core-{}", self.id);
        std::thread::Builder::new().name(name).spawn(move || self.run(mailbox, &told))
    }

    fn run(self, mailbox: mailbox::Mailbox<Post>, told: &Report) -> std::io::Result<()> {
        if let Some(processor) = self.processor
            && let Err(error) = topology::pin_thread(processor)
        {
            tracing::warn!("core {} is not pinned: {error}", self.id);
        }
        let opened = self.open_net();
        let (net, doors) = match opened {
            Ok(opened) => opened,
            Err(failure) => {
                let _ = told.send(Err(failure)); // The receiver is gone once another core has failed.
                return Ok(());
            }
        };
        let begun = Arc::clone(&self.begun);
        let thread = self.thread(net, doors, mailbox);
        let _ = told.send(Ok(()));
        begun.wait();
        thread.run()
    }

    fn open_net(&self) -> Result<(Net, Doors), Failure> {
        let choice = match self.settings.text("io") {
            "uring" => BackendChoice::Uring,
            "epoll" => BackendChoice::Epoll,
            _ => BackendChoice::Auto,
        };
        let (mut net, fallback) = Net::open(choice, &self.waker)
            .map_err(|error| Failure(format!("cannot open the event loop: {error}")))?;
        if self.id == 0 {
            if let Some(reason) = fallback {
                tracing::warn!("io_uring is not available ({reason}); using epoll");
            }
            let _ = self.shared.io.set(net.back_name());
            let doors = listen(&mut net, &self.settings)?;
            return Ok((net, doors));
        }
        Ok((net, Doors::default()))
    }

    fn thread(self, net: Net, doors: Doors, mailbox: mailbox::Mailbox<Post>) -> Thread {
        let clock = Rc::new(MachineClock);
        let (net, mailbox) = (Rc::new(RefCell::new(net)), Rc::new(RefCell::new(mailbox)));
        let arrivals = Rc::new(Arrivals::new(&net, &mailbox));
        let knocker = Rc::clone(&arrivals) as Rc<dyn Knocker>;
        let slice = Rc::new(SliceTimer::new(Rc::clone(&clock), knocker));
        let core = Core::new(
            self.id,
            self.cores,
            self.settings.size("databases"),
            self.table,
            World { clock, slice, seed: random_u64() },
            Local::new(self.shared, Arc::clone(&self.settings)),
        );
        admin::apply_settings(&core, self.settings);
        let loading = !self.loaded.all_are_done();
        core.hot.borrow_mut().loading = loading;
        journaling::begin_if_on(&core);
        // A single core waits only for clients, so it never polls. Nor does a core on a shared
        // processor, which must be given up at once.
        let polls = self.cores > 1 && self.processor.is_some();
        let poll_time = polls.then(PollTime::default);
        core.tx.home().shard.keep_dead(self.keeps_dead);
        let (stop, inbox, loaded, quiet) = (self.stop, self.inbox, self.loaded, self.quiet);
        let replay = self.commands.map(Replay::new);
        Thread {
            core,
            net,
            doors,
            mailbox,
            arrivals,
            stop,
            inbox,
            replay,
            loaded,
            loading,
            quiet,
            poll_time,
            waiting_since: None,
            had_requests: false,
        }
    }
}

/// Opens the listeners. Only core 0 has them; it distributes connections to all cores, round robin.
fn listen(net: &mut Net, settings: &Settings) -> Result<Doors, Failure> {
    let backlog = i32::try_from(settings.int("tcp-backlog")).unwrap_or(i32::MAX);
    let path = settings.text("unixsocket");
    if !path.is_empty() {
        let mode = u32::from_str_radix(settings.text("unixsocketperm"), 8).ok();
        net.listen_unix(Path::new(path), backlog, mode.filter(|mode| *mode != 0))
            .map_err(|error| Failure(format!("cannot listen on {path}: {error}")))?;
    }
    let mut doors = Doors::default();
    doors.look_up(settings);
    doors.follow(net, settings, Net::listen_tcp).map_err(Failure)?;
    Ok(doors)
}

/// 64 random bits from the system.
fn random_u64() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds this hasher from the system.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Compile-time check: a [`Post`] can carry the engine's messages.
const _: fn(Mail) -> Post = Post::Mail;
