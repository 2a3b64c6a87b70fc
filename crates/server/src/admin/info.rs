//! INFO: sections of fields. A field has Redis's name if it has Redis's meaning.

use super::databases::{self, Size};
use super::long_text::LongText;
use super::{categories, history, syntax, task, tips};
use crate::engine::scripts::machines::Kind;
use crate::engine::state::pubsub::SubscriptionKind;
use crate::engine::{CommandStats, Core, CoreStats, Runner, ServerCall, Slices};
use crate::journal::JournalState;
use crate::saving::Purpose;
use crate::shared::Shared;
use darter_command::{Answer, Command, Flags, Group, Refusal};
use darter_families::TYPES;
use darter_keyspace::{ShardStats, Usage, lazyfree};
use darter_script::Machine;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// The version of Redis that Darter is compatible with.
pub(super) const REDIS_VERSION: &str = "7.0.15";

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    history(syntax(categories(tips(task("info", "1.0.0", -1, Flags::LOADING.and(Flags::STALE), Group::Server, |call| Box::pin(info(call)), ("Get information and statistics about the server", "O(1)")), &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]), &["@dangerous"]), "[section]..."), &[("7.0.0", "Added support for taking multiple section arguments.")]),
];

/// The facts that one core reports for INFO.
pub(super) struct Facts {
    core: usize,
    pub(super) stats: CoreStats,
    pub(super) slices: Slices,
    keys: usize,
    /// Bytes of the core's keys and values.
    bytes: usize,
    usage: Usage,
    shard: ShardStats,
    expired: u64,
    unsaved: u64,
    /// Memory that the current snapshot holds in addition to the data, and the peak of the current
    /// or last snapshot.
    saving_held: [u64; 2],
    conns: usize,
    /// The number of blocked clients, and how many of them have a timeout.
    blocked: (usize, usize),
    tasks: usize,
    /// The core's load in percent, in the last measured span; 0 with a single core.
    busy_percent: u16,
    locks: (usize, usize),
    /// Bytes of the Lua machines: first those of scripts, then those of functions.
    machines: [usize; 2],
    stacks: usize,
    running: usize,
    /// The numbers of channels, patterns and shard channels with subscribers that have this core as
    /// their home.
    subscribed: [usize; 3],
    /// The number of clients with tracking on.
    trackers: usize,
    /// The number of tracked keys, and the number of pairs of a tracked key and a client.
    tracked: (usize, usize),
    /// The number of prefixes tracked by any client.
    prefixes: usize,
    held: Held,
    /// The number of values that wait to be freed, and an upper bound of their bytes.
    freeing: (usize, usize),
    ops_per_s: u64,
}

/// Memory held by the connections of one core.
#[derive(Clone, Copy, Default)]
struct Held {
    output_max: usize,
    query_max: usize,
    bytes: usize,
    /// The part of `bytes` that belongs to deleted values that a client is still reading.
    pinned_bytes: usize,
}

/// Sums over all cores.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) keys: usize,
    pub(super) bytes: usize,
    pub(super) client_bytes: usize,
    pinned_bytes: usize,
    freeing: (usize, usize),
}

/// Memory of the process in bytes, by category.
pub(super) struct Memory {
    /// All used memory.
    pub(super) used: usize,
    /// Used memory before there were data and clients.
    pub(super) startup: usize,
    /// Keys and values. Memory shared by several values counts for each, but the sum never exceeds
    /// the total.
    pub(super) dataset: usize,
    /// Buffers and requests of the clients.
    pub(super) clients: usize,
    /// Values that wait to be freed.
    pub(super) freeing: usize,
    /// Deleted values that clients are still reading. One that several clients read counts for
    /// each, but the sum never exceeds the total.
    pub(super) pinned: usize,
    /// All other memory: values being built, and the server's own tables, queues and statistics.
    pub(super) other: usize,
}

impl Memory {
    /// Divides the used memory into categories, in a fixed order. Each category gets at most what
    /// the earlier ones have left.
    pub(super) fn of(shared: &Shared, totals: &Totals) -> Self {
        let startup = shared.empty.bytes();
        let mut used = shared.used_memory();
        if shared.machine.held_bytes().is_none() {
            used += totals.client_bytes;
        }
        let mut left = used.saturating_sub(startup);
        let mut take = |bytes: usize| {
            let taken = bytes.min(left);
            left -= taken;
            taken
        };
        let clients = take(totals.client_bytes - totals.pinned_bytes);
        let dataset = take(totals.bytes);
        let freeing = take(totals.freeing.1);
        let pinned = take(totals.pinned_bytes);
        Self { used, startup, dataset, clients, freeing, pinned, other: left }
    }

    /// Memory of clients as Redis counts it. It includes pinned values, which in Redis would be
    /// copies in reply buffers.
    pub(super) fn of_clients(&self) -> usize {
        self.clients + self.pinned
    }
}

impl Totals {
    pub(super) fn of(facts: &[Facts]) -> Self {
        let mut totals = Self::default();
        for one in facts {
            totals.client_bytes += one.held.bytes;
            totals.pinned_bytes += one.held.pinned_bytes;
            totals.freeing.0 += one.freeing.0;
            totals.freeing.1 += one.freeing.1;
            totals.keys += one.keys;
            totals.bytes += one.bytes;
        }
        totals
    }
}

/// Collects the reports of all cores.
pub(super) async fn gather(core: &Rc<Core>) -> Vec<Facts> {
    core.run_on_all(|| facts).await
}

/// Sums the memory that the connections of this core hold, and finds the recent peaks.
async fn held_by_clients(core: &Core) -> Held {
    let mut held = Held::default();
    core.each_conn(|conn| {
        let sizes = conn.sizes();
        held.output_max = held.output_max.max(sizes.output);
        held.query_max = held.query_max.max(sizes.query);
        held.bytes += sizes.total;
        held.pinned_bytes += sizes.pinned;
    })
    .await;
    let (stats, now) = (core.stats.borrow(), core.now_ms());
    held.output_max = held.output_max.max(stats.output_recent.most(now));
    held.query_max = held.query_max.max(stats.input_recent.most(now));
    held
}

async fn facts(core: Rc<Core>) -> Facts {
    let held = held_by_clients(&core).await;
    core.admin.shared.machine.report_held();
    let stats = core.stats.borrow().clone();
    let mut home = core.tx.home();
    Facts {
        core: core.id(),
        stats,
        slices: core.slices.borrow().clone(),
        keys: home.shard.keys(),
        bytes: home.shard.memory_bytes(),
        usage: home.shard.usage(),
        shard: home.shard.stats,
        expired: home.shard.expired_count(),
        unsaved: core.saving.unsaved(home.shard.lasting_changes()),
        saving_held: core.saving.held_bytes(),
        conns: core.conns_len(),
        blocked: core.blocked_counts(),
        tasks: core.tx.tasks_len(),
        busy_percent: core.busy_percent(),
        locks: home.locks.counts(),
        machines: [Kind::Script, Kind::Function].map(|kind| core.machines.used_bytes(kind)),
        stacks: core.machines.stacks(),
        running: core.machines.running(),
        subscribed: SubscriptionKind::ALL.map(|kind| core.pubsub.registry.borrow().len(kind)),
        trackers: core.tracking.trackers.borrow().len(),
        tracked: home.shard.tracked_sizes(),
        prefixes: core.tracking.broadcasts.borrow().len(),
        held,
        freeing: lazyfree::waiting(),
        ops_per_s: core.admin.commands_per_s(core.now_ms(), core.stats.borrow().commands),
    }
}

/// The facts from which all sections are written.
struct Report<'a> {
    core: &'a Rc<Core>,
    facts: &'a [Facts],
}

impl Report<'_> {
    fn sum<T: std::iter::Sum<T>>(&self, get: impl Fn(&Facts) -> T) -> T {
        self.facts.iter().map(get).sum()
    }
}

/// How the text of a section is produced.
#[derive(Clone, Copy)]
enum Section {
    /// A section written from the reports of all cores.
    Facts(fn(&Report<'_>, &mut String)),
    /// A section written from the sizes of all databases.
    Keyspace,
}

use Section::{Facts as F, Keyspace};

/// The sections in their order. The flag says whether INFO without arguments shows the section.
#[rustfmt::skip] // A table.
const SECTIONS: &[(&str, bool, Section)] = &[
    ("server",       true,  F(server)),
    ("clients",      true,  F(clients)),
    ("memory",       true,  F(memory)),
    ("persistence",  true,  F(persistence)),
    ("stats",        true,  F(stats)),
    ("replication",  true,  F(replication)),
    ("cpu",          true,  F(cpu)),
    ("modules",      true,  F(modules)),
    ("commandstats", false, F(command_stats)),
    ("errorstats",   true,  F(error_stats)),
    ("latencystats", false, F(latency_stats)),
    ("cluster",      true,  F(cluster)),
    ("keyspace",     true,  Keyspace),
    ("cores",        true,  F(cores)),
    ("slices",       true,  F(slices)),
];

/// `INFO [section ...]`.
async fn info(call: ServerCall) -> Result<Answer, Refusal> {
    let wanted: Vec<String> = call
        .request_words()
        .map(|word| String::from_utf8_lossy(word).to_ascii_lowercase())
        .collect();
    let named = |name: &str| wanted.iter().any(|word| word == name);
    let all = named("all") || named("everything");
    let default = wanted.is_empty() || named("default");
    let facts = gather(&call.core).await;
    let report = Report { core: &call.core, facts: &facts };
    let mut text = LongText::default();
    for (name, by_default, section) in SECTIONS {
        if all || named(name) || (default && *by_default) {
            if !text.is_empty() {
                text.tail.push_str("\r\n");
            }
            let mut title = (*name).to_owned();
            title[..1].make_ascii_uppercase();
            let title = if *name == "cpu" { "CPU".to_owned() } else { title };
            field_line(&mut text.tail, &format!("# {title}"));
            match section {
                Section::Facts(write) => write(&report, &mut text.tail),
                Section::Keyspace => keyspace(&call.core, &mut text).await,
            }
        }
    }
    Ok(text.into_answer(&call))
}

fn field_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push_str("\r\n");
}

fn field(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // Formatting into a `String` cannot fail.
    let _ = write!(text, "{name}:{value}\r\n");
}

fn server(report: &Report<'_>, text: &mut String) {
    let core = report.core;
    let (shared, settings) = (&core.admin.shared, core.admin.settings());
    let up_s = core.now_ms().saturating_sub(shared.started_ms) / 1_000;
    field(text, "redis_version", REDIS_VERSION);
    field(text, "darter_version", env!("CARGO_PKG_VERSION"));
    field(text, "redis_git_sha1", "00000000");
    field(text, "redis_git_dirty", 0);
    field(text, "redis_mode", "standalone");
    field(text, "os", shared.machine.system());
    field(text, "arch_bits", usize::BITS);
    field(text, "multiplexing_api", shared.io.get().copied().unwrap_or("none"));
    field(text, "process_id", std::process::id());
    field(text, "run_id", &shared.run_id);
    field(text, "tcp_port", settings.text("port"));
    field(text, "server_time_usec", core.clock.unix_us());
    field(text, "uptime_in_seconds", up_s);
    field(text, "uptime_in_days", up_s / 86_400);
    field(text, "hz", settings.text("hz"));
    field(text, "cores", core.tx.cores());
    let file = settings.file.as_ref().map(|path| path.display().to_string());
    field(text, "config_file", file.unwrap_or_default());
}

fn clients(report: &Report<'_>, text: &mut String) {
    field(text, "connected_clients", report.sum(|facts| facts.conns));
    field(text, "cluster_connections", 0);
    field(text, "maxclients", report.core.admin.settings().text("maxclients"));
    let most = |get: fn(&Facts) -> usize| report.facts.iter().map(get).max().unwrap_or(0);
    field(text, "client_recent_max_input_buffer", most(|facts| facts.held.query_max));
    field(text, "client_recent_max_output_buffer", most(|facts| facts.held.output_max));
    field(text, "blocked_clients", report.sum(|facts| facts.blocked.0));
    field(text, "tracking_clients", report.sum(|facts| facts.trackers));
    field(text, "clients_in_timeout_table", report.sum(|facts| facts.blocked.1));
}

#[expect(clippy::cast_precision_loss, reason = "a number for people")]
fn human(bytes: usize) -> String {
    format!("{:.2}M", bytes as f64 / f64::from(1 << 20))
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn memory(report: &Report<'_>, text: &mut String) {
    let shared = &report.core.admin.shared;
    let totals = Totals::of(report.facts);
    let memory = Memory::of(shared, &totals);
    let used = memory.used;
    let (resident, resident_peak) = shared.machine.resident_bytes();
    let peak = shared.used_peak.load(Ordering::Relaxed).max(used);
    let maxmemory = report.core.admin.settings().size("maxmemory");
    field(text, "used_memory", used);
    field(text, "used_memory_human", human(used));
    field(text, "used_memory_rss", resident);
    field(text, "used_memory_rss_human", human(resident));
    field(text, "used_memory_rss_peak", resident_peak);
    field(text, "used_memory_peak", peak);
    field(text, "used_memory_peak_human", human(peak));
    field(text, "used_memory_overhead", used - memory.dataset);
    field(text, "used_memory_startup", memory.startup);
    field(text, "used_memory_dataset", memory.dataset);
    field(text, "used_memory_clients", memory.clients);
    field(text, "used_memory_pinned", memory.pinned);
    field(text, "used_memory_freeing", memory.freeing);
    field(text, "used_memory_other", memory.other);
    for kind in TYPES.iter() {
        let bytes: usize = report.sum(|facts| facts.usage.bytes(kind));
        field(text, &format!("used_memory_{}", kind.name), bytes);
    }
    field(text, "total_system_memory", shared.machine.total_bytes());
    scripts(report, text);
    field(text, "maxmemory", maxmemory);
    field(text, "maxmemory_human", human(maxmemory));
    field(text, "maxmemory_policy", report.core.admin.settings().text("maxmemory-policy"));
    field(text, "mem_fragmentation_ratio", format!("{:.2}", resident as f64 / used.max(1) as f64));
    field(text, "mem_clients_slaves", 0);
    field(text, "mem_clients_normal", memory.of_clients());
    field(text, "mem_allocator", "mimalloc");
    field(text, "lazyfree_pending_objects", totals.freeing.0);
}

/// Writes the memory of scripts and functions: their Lua machines and texts.
fn scripts(report: &Report<'_>, text: &mut String) {
    let [eval, functions] = [0, 1].map(|kind| report.sum(|facts| facts.machines[kind]));
    let (count, bytes) = report.core.admin.shared.scripts.size();
    let libraries = report.core.admin.shared.libraries.current();
    field(text, "used_memory_lua", eval);
    field(text, "used_memory_vm_eval", eval);
    field(text, "used_memory_lua_human", human(eval));
    field(text, "used_memory_scripts_eval", bytes);
    field(text, "number_of_cached_scripts", count);
    field(text, "number_of_functions", libraries.functions_len());
    field(text, "number_of_libraries", libraries.len());
    field(text, "used_memory_vm_functions", functions);
    field(text, "used_memory_vm_total", eval + functions);
    field(text, "used_memory_vm_total_human", human(eval + functions));
    field(text, "used_memory_functions", libraries.bytes());
    field(text, "used_memory_scripts", bytes + libraries.bytes());
    field(text, "used_memory_scripts_human", human(bytes + libraries.bytes()));
    // Stacks are mapped, not allocated. So `used_memory` does not include them, and only their
    // touched pages are resident.
    let stacks = report.sum(|facts| facts.stacks);
    field(text, "script_stacks", stacks);
    field(text, "script_stacks_mapped_bytes", stacks * Machine::STACK_BYTES);
    field(text, "running_scripts", report.sum(|facts| facts.running));
}

fn persistence(report: &Report<'_>, text: &mut String) {
    let shared = &report.core.admin.shared;
    let progress = shared.load.each_ref().map(|number| number.load(Ordering::Relaxed));
    let [read, total, keys, expired, begun_s, used] = progress;
    field(text, "loading", u8::from(report.core.hot.borrow().loading));
    field(text, "async_loading", 0);
    if report.core.hot.borrow().loading {
        field(text, "loading_start_time", begun_s);
        field(text, "loading_total_bytes", total);
        field(text, "loading_rdb_used_mem", used);
        field(text, "loading_loaded_bytes", read);
        field(text, "loading_loaded_perc", format!("{:.2}", percent(read, total)));
        let elapsed_s = (report.core.now_ms() / 1_000).saturating_sub(begun_s);
        let left_s = elapsed_s.saturating_mul(total.saturating_sub(read)) / (read + 1);
        field(text, "loading_eta_seconds", if elapsed_s == 0 { 1 } else { left_s });
    }
    let saves = &shared.saves;
    let current_s = saves.current_s(report.core.now_ms());
    let (_, saved) = shared.unsaved_and_saved();
    let [processed, total] = if current_s.is_some() { [saved, saves.keys()] } else { [0, 0] };
    field(text, "current_save_keys_processed", processed);
    field(text, "current_save_keys_total", total);
    field(text, "rdb_changes_since_last_save", report.sum(|facts| facts.unsaved));
    let is_dump = saves.is_made_for(Purpose::Dump);
    field(text, "rdb_bgsave_in_progress", u8::from(is_dump));
    field(text, "rdb_last_save_time", saves.saved_s());
    field(text, "rdb_last_bgsave_status", saves.status());
    field(text, "rdb_last_bgsave_time_sec", saves.took_s());
    let shown = |seconds: Option<u64>| seconds.map_or(-1, |s| i64::try_from(s).unwrap_or(i64::MAX));
    let shown_s = shown(current_s.filter(|_| is_dump));
    field(text, "rdb_current_bgsave_time_sec", shown_s);
    field(text, "rdb_saves", saves.count());
    field(text, "rdb_writes_held", report.sum(|facts| facts.stats.writes_held));
    field(text, "rdb_held_bytes", report.sum(|facts| facts.saving_held[0]));
    field(text, "rdb_held_peak_bytes", report.sum(|facts| facts.saving_held[1]));
    field(text, "rdb_last_load_keys_expired", expired);
    field(text, "rdb_last_load_keys_loaded", keys);
    let journal = &shared.journal;
    let (state, rewrites) = (journal.state(), journal.rewrites());
    let is_base = saves.is_made_for(Purpose::Base);
    field(text, "aof_enabled", u8::from(state != JournalState::Off));
    field(text, "aof_rewrite_in_progress", u8::from(rewrites.is_begun));
    field(text, "aof_rewrite_scheduled", u8::from(journal.is_rewrite_scheduled()));
    field(text, "aof_last_rewrite_time_sec", rewrites.took_s);
    field(text, "aof_current_rewrite_time_sec", shown(current_s.filter(|_| is_base)));
    let word = |is_good| if is_good { "ok" } else { "err" };
    field(text, "aof_last_bgrewrite_status", word(rewrites.failures == 0));
    field(text, "aof_rewrites", rewrites.count);
    field(text, "aof_rewrites_consecutive_failures", rewrites.failures);
    field(text, "aof_last_write_status", word(state != JournalState::Failed));
    field(text, "aof_last_cow_size", 0);
    if state != JournalState::Off {
        let [size, base] = journal.sizes();
        field(text, "aof_current_size", size);
        field(text, "aof_base_size", base);
        field(text, "aof_pending_rewrite", u8::from(journal.is_rewrite_scheduled()));
        field(text, "aof_buffer_length", 0);
        field(text, "aof_pending_bio_fsync", 0);
        field(text, "aof_delayed_fsync", 0);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

fn stats(report: &Report<'_>, text: &mut String) {
    field(text, "total_connections_received", report.sum(|facts| facts.stats.connections));
    field(text, "total_commands_processed", report.sum(|facts| facts.stats.commands));
    field(text, "instantaneous_ops_per_sec", report.sum(|facts| facts.ops_per_s));
    field(text, "total_net_input_bytes", report.sum(|facts| facts.stats.bytes_in));
    field(text, "total_net_output_bytes", report.sum(|facts| facts.stats.bytes_out));
    field(text, "rejected_connections", report.sum(|facts| facts.stats.rejected_connections));
    field(text, "commands_stopped", report.sum(|facts| facts.stats.stopped));
    field(text, "expired_keys", report.sum(|facts| facts.expired));
    field(text, "evicted_keys", 0);
    let limited = report.sum(|facts| facts.stats.output_limited);
    field(text, "client_output_buffer_limit_disconnections", limited);
    field(text, "evicted_clients", report.sum(|facts| facts.stats.evicted_clients));
    field(text, "keyspace_hits", report.sum(|facts| facts.shard.hits));
    field(text, "keyspace_misses", report.sum(|facts| facts.shard.misses));
    field(text, "pubsub_channels", report.sum(|facts| facts.subscribed[0]));
    // Every core knows all patterns.
    let patterns = report.facts.iter().map(|facts| facts.subscribed[1]).max();
    field(text, "pubsub_patterns", patterns.unwrap_or(0));
    field(text, "pubsubshard_channels", report.sum(|facts| facts.subscribed[2]));
    field(text, "scripts_killed", report.sum(|facts| facts.stats.scripts_killed));
    field(text, "scripts_restarted", report.sum(|facts| facts.stats.scripts_restarted));
    field(text, "latest_fork_usec", 0);
    field(text, "tracking_total_keys", report.sum(|facts| facts.tracked.0));
    field(text, "tracking_total_items", report.sum(|facts| facts.tracked.1));
    // Every core knows all prefixes.
    let prefixes = report.facts.iter().map(|facts| facts.prefixes).max();
    field(text, "tracking_total_prefixes", prefixes.unwrap_or(0));
    field(text, "total_error_replies", report.sum(|facts| facts.stats.error_replies));
    field(text, "hops", report.sum(|facts| facts.stats.hops));
    field(text, "connections_moved", report.sum(|facts| facts.stats.moves));
}

fn replication(report: &Report<'_>, text: &mut String) {
    field(text, "role", "master");
    field(text, "connected_slaves", 0);
    field(text, "master_replid", &report.core.admin.shared.run_id);
    field(text, "master_repl_offset", 0);
}

fn cpu(report: &Report<'_>, text: &mut String) {
    let (user, system) = report.core.admin.shared.machine.cpu_us();
    let seconds = |us: u64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    field(text, "used_cpu_sys", seconds(system));
    field(text, "used_cpu_user", seconds(user));
}

fn modules(_report: &Report<'_>, _text: &mut String) {}

fn cluster(_report: &Report<'_>, text: &mut String) {
    field(text, "cluster_enabled", 0);
}

/// The counters of each called command, summed over all cores.
pub(super) fn merged(core: &Core, facts: &[Facts]) -> Vec<(usize, CommandStats)> {
    let total = |index: usize| {
        let mut sum = CommandStats::default();
        for one in facts.iter().map(|facts| &facts.stats.by_command[index]) {
            sum.calls += one.calls;
            sum.ns += one.ns;
            sum.rejected += one.rejected;
            sum.failed += one.failed;
            for (bucket, count) in sum.histogram.iter_mut().zip(one.histogram) {
                *bucket += count;
            }
        }
        (index, sum)
    };
    let entries = 0..core.table.entries().len();
    entries.map(total).filter(|(_, sum)| sum.calls + sum.rejected > 0).collect()
}

#[expect(clippy::cast_precision_loss, reason = "an average for people")]
fn command_stats(report: &Report<'_>, text: &mut String) {
    for (index, sum) in merged(report.core, report.facts) {
        let name = report.core.table.entries()[index].row.name;
        let per_call = sum.ns as f64 / 1_000.0 / sum.calls.max(1) as f64;
        let value = format!(
            "calls={},usec={},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
            sum.calls,
            sum.ns / 1_000,
            sum.rejected,
            sum.failed
        );
        field(text, &format!("cmdstat_{name}"), value);
    }
}

fn error_stats(report: &Report<'_>, text: &mut String) {
    let mut all = std::collections::BTreeMap::new();
    for (code, count) in report.facts.iter().flat_map(|facts| &facts.stats.errors) {
        *all.entry(code).or_insert(0) += count;
    }
    for (code, count) in all {
        field(text, &format!("errorstat_{code}"), format!("count={count}"));
    }
}

fn latency_stats(report: &Report<'_>, text: &mut String) {
    let settings = report.core.admin.settings();
    if !settings.flag("latency-tracking") {
        return;
    }
    let percentiles = settings.text("latency-tracking-info-percentiles");
    for (index, sum) in merged(report.core, report.facts) {
        let name = report.core.table.entries()[index].row.name;
        let shown = percentiles.split_whitespace().map(|percentile| {
            let part = percentile.parse().unwrap_or(0.0) / 100.0;
            format!("p{percentile}={:.3}", bound_us(&sum, part))
        });
        let value = shown.collect::<Vec<_>>().join(",");
        field(text, &format!("latency_percentiles_usec_{name}"), value);
    }
}

/// The quantile `part` of the durations of calls, as an upper bound in microseconds.
#[expect(clippy::cast_precision_loss, reason = "a quantile for people")]
fn bound_us(sum: &CommandStats, part: f64) -> f64 {
    let total: u64 = sum.histogram.iter().map(|&count| u64::from(count)).sum();
    let mut seen = 0;
    for (bucket, &count) in sum.histogram.iter().enumerate() {
        seen += u64::from(count);
        if seen as f64 >= total as f64 * part {
            return (1_u64 << bucket) as f64 / 1_000.0;
        }
    }
    0.0
}

/// Writes a line for each database with keys. Runs in portions, because there may be 100 000
/// databases.
async fn keyspace(core: &Rc<Core>, text: &mut LongText) {
    let mut first = Some(0);
    while let Some(from) = first {
        let (sizes, next) = databases::in_use_from(core, from).await;
        for (index, Size { keys, expires }) in sizes {
            let value = format!("keys={keys},expires={expires},avg_ttl=0");
            field(&mut text.tail, &format!("db{index}"), value);
        }
        text.settle();
        first = next;
    }
}

fn cores(report: &Report<'_>, text: &mut String) {
    for facts in report.facts {
        let value = format!(
            "clients={},commands={},hops={},keys={},used_memory={},tasks={},locks_held={},\
             locks_waiting={},slices={},slice_max_us={},busy_percent={}",
            facts.conns,
            facts.stats.commands,
            facts.stats.hops,
            facts.keys,
            facts.bytes,
            facts.tasks,
            facts.locks.0,
            facts.locks.1,
            facts.slices.count,
            facts.slices.max_ns / 1_000,
            facts.busy_percent
        );
        field(text, &format!("core{}", facts.core), value);
    }
}

fn slices(report: &Report<'_>, text: &mut String) {
    let mut all = Slices::default();
    report.facts.iter().for_each(|facts| all.merge(&facts.slices));
    field(text, "slice_count", all.count);
    field(text, "slices_knocked", all.knocked);
    field(text, "slice_max_us", all.max_ns / 1_000);
    field(text, "slice_p50_us", all.quantile_us(0.5));
    field(text, "slice_p99_us", all.quantile_us(0.99));
    field(text, "slice_p999_us", all.quantile_us(0.999));
    let over = |us: u64| {
        let first = (u64::BITS - us.leading_zeros()) as usize;
        all.buckets.iter().skip(first).sum::<u64>()
    };
    field(text, "slices_over_128us", over(128));
    field(text, "slices_over_512us", over(512));
    for (at, long) in all.longest.iter().take(5).enumerate() {
        let command = report.core.table.command_of(long.cause).unwrap_or("-");
        let value = format!(
            "us={},cause={},command={command},core={},at_ms={}",
            long.ns / 1_000,
            long.cause.name(),
            long.core,
            long.unix_ms
        );
        field(text, &format!("slice_longest_{at}"), value);
    }
}
