//! The rows of all settings.

use super::Setting;
use super::SettingKind::{
    Absent, Backlog, Bool, Count, Enum, Events, FileName, Flags, Folder, Hertz, Hostname, Int,
    Levels, Memory, MemoryOrPart, Octal, Off, OomScores, OutputLimits, Percentiles, Save, Size,
    Text, Title, Words,
};
use super::When::{Accepted, Guarded, Inert, Running, Start};
use darter_base::limits;
use darter_families::TYPES;
use std::sync::LazyLock;

const I64_MAX: i64 = i64::MAX;
const I32_MAX: i64 = i32::MAX as i64;
const I32_MIN: i64 = i32::MIN as i64;
const U32_MAX: u64 = u32::MAX as u64;
const LONG_MAX: u64 = I64_MAX as u64;

const fn row(
    name: &'static str,
    default: &'static str,
    kind: super::SettingKind,
    unit: &'static str,
    when: super::When,
    help: &'static str,
) -> Setting {
    Setting { name, default, kind, unit, when, help }
}

const POLICIES: &[&str] = &[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
];

const NO_DEFRAG: &str = "Active defragmentation cannot be enabled: it requires a Redis server \
     compiled with a modified Jemalloc like the one shipped by default with the Redis source \
     distribution";
const GUARD: &[&str] = &["no", "yes", "local"];
const SHUTDOWNS: &[&str] = &["default", "save", "nosave", "now", "force"];

/// Older names of settings that have a row.
#[rustfmt::skip] // A table.
const OLDER_NAMES: &[(&str, &str)] = &[
    ("cluster-slave-no-failover",     "cluster-replica-no-failover"),
    ("cluster-slave-validity-factor", "cluster-replica-validity-factor"),
    ("list-max-ziplist-size",         "list-max-listpack-size"),
    ("lua-time-limit",                "busy-reply-threshold"),
    ("min-slaves-max-lag",            "min-replicas-max-lag"),
    ("min-slaves-to-write",           "min-replicas-to-write"),
    ("repl-ping-slave-period",        "repl-ping-replica-period"),
    ("slave-announce-ip",             "replica-announce-ip"),
    ("slave-announce-port",           "replica-announce-port"),
    ("slave-ignore-maxmemory",        "replica-ignore-maxmemory"),
    ("slave-lazy-flush",              "replica-lazy-flush"),
    ("slave-priority",                "replica-priority"),
    ("slave-read-only",               "replica-read-only"),
    ("slave-serve-stale-data",        "replica-serve-stale-data"),
    ("slaveof",                       "replicaof"),
];

/// Settings that patterns of CONFIG GET do not match, as in Redis.
pub(super) const HIDDEN: &[&str] = &[
    "key-load-delay",
    "loading-process-events-interval-bytes",
    "rdb-key-save-delay",
    "use-exit-on-panic",
    "watchdog-period",
];

/// All settings: those of the server, and those of the types.
pub static ROWS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let bounds = TYPES.iter().flat_map(|row| row.bounds).map(|bound| {
        let (kind, unit) =
            if bound.is_bytes { (Size(0, LONG_MAX), "bytes") } else { (Count(0, LONG_MAX), "") };
        row(bound.name, bound.default, kind, unit, Running, bound.help.unwrap_or(OF_BOUNDS))
    });
    OWN.iter().copied().chain(bounds).collect()
});

const OF_BOUNDS: &str =
    "Limit for the name that OBJECT ENCODING reports; it does not change how the value is stored.";

/// Pairs of an older name and the name in the table.
pub(super) fn older_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let bounds = TYPES.iter().flat_map(|row| row.bounds);
    let of_bounds = bounds.filter_map(|bound| Some((bound.older_name?, bound.name)));
    OLDER_NAMES.iter().copied().chain(of_bounds)
}

#[rustfmt::skip] // A table.
const OWN: &[Setting] = &[
    //   name                        default        kind                       unit      when      help
    row("bind",                     "127.0.0.1",   Words,                      "",       Running,  "Addresses to listen on; an address with a leading '-' may be missing."),
    row("port",                     "6379",        Int(0, 65_535),             "",       Running,  "TCP port; 0 disables TCP."),
    row("unixsocket",               "",            Text,                       "",       Start,    "Path of a unix socket to listen on."),
    row("unixsocketperm",           "0",           Octal,                      "",       Start,    "Permissions of the unix socket, in octal."),
    row("tcp-backlog",              "511",         Int(0, I32_MAX),            "",       Start,    "Length of the queue of connections that are not accepted yet."),
    row("tcp-keepalive",            "300",         Int(0, I32_MAX),            "s",      Running,  "Idle time after which TCP probes a client (new connections); 0 disables it."),
    row("timeout",                  "0",           Int(0, I32_MAX),            "s",      Running,  "Closes clients that were idle for this time; 0 disables it."),
    row("maxclients",               "10000",       Count(1, U32_MAX),          "",       Running,  "Maximum number of connected clients."),
    row("protected-mode",           "yes",         Bool,                       "",       Running,  "Without a password, serve local clients only."),
    row("requirepass",              "",            Text,                       "",       Running,  "Password of the default user (AUTH, HELLO); empty for none."),
    row("cores",                    "0",           Int(0, 1_024),              "",       Start,    "Number of threads, one per CPU; 0 uses all CPUs of the process."),
    row("io",                       "auto",        Enum(&["auto", "uring", "epoll"]), "", Start,   "Event loop; auto uses io_uring if the system allows it, otherwise epoll."),
    row("databases",                "16",          Int(1, I32_MAX),            "",       Start,    "Number of databases (SELECT)."),
    row("dir",                      ".",           Folder,                     "",       Guarded,  "Working directory; RDB files are stored here."),
    row("dbfilename",               "dump.rdb",    FileName("dbfilename can't be a path, just a filename", None),                   "",       Guarded,  "RDB file that is loaded at start and written by snapshots."),
    row("maxmemory",                "0",           Size(0, u64::MAX),          "bytes",  Running,  "Memory limit; beyond it, writes fail with OOM. 0 for no limit."),
    row("maxmemory-policy",         "noeviction",  Enum(POLICIES),             "",       Running,  "Eviction policy; all act as noeviction (no eviction yet)."),
    row("name-max-bytes",           "16777216",    Memory(1_048_576, limits::NAME_BOUND as i64), "bytes", Running, "Longest key, field or member; longer ones are refused."),
    row("proto-max-bulk-len",       "536870912",   Memory(1_048_576, I64_MAX), "bytes",  Running,  "Maximum length of an argument."),
    row("slowlog-log-slower-than",  "10000",       Int(-1, I64_MAX),           "us",     Running,  "SLOWLOG records commands that take longer; -1 disables it."),
    row("slowlog-max-len",          "128",         Int(0, I64_MAX),            "",       Running,  "Maximum number of SLOWLOG entries."),
    row("latency-monitor-threshold","0",           Int(0, I64_MAX),            "ms",     Running,  "LATENCY records events that take longer; 0 disables it."),
    row("latency-tracking",         "yes",         Bool,                       "",       Running,  "Measures command latencies for INFO latencystats."),
    row("loglevel",                 "notice",      Levels,                     "",       Running, "Minimum level of log messages."),
    row("logfile",                  "",            Text,                       "",       Start,    "Log file; empty for standard output."),
    row("enable-debug-command",     "local",       Enum(GUARD),                "",       Start,    "Clients that may use DEBUG: none, local ones, or all."),
    row("enable-protected-configs", "no",          Enum(GUARD),                "",       Start,    "Clients that may change dir and dbfilename at run time: none, local ones, or all."),
    row("latency-tracking-info-percentiles", "50 99 99.9", Percentiles,        "%",      Running,  "Percentiles in INFO latencystats."),
    row("hz",                       "10",          Hertz,                      "",       Accepted, "Expiry does not use a timer."),
    row("dynamic-hz",               "yes",         Bool,                       "",       Accepted, "See hz."),
    row("save",                     "3600 1 300 100 60 10000", Save,           "",       Running,  "Save points, as pairs of seconds and changes: saves after <seconds> if there were at least <changes>, and at shutdown. Empty disables saving."),
    row("appendonly",               "no",          Bool,                       "",       Running,  "Writes each change to the append-only file, and loads that at start."),
    row("appendfsync",              "everysec",    Enum(&["everysec", "always", "no"]), "", Running, "When the append-only file is synced: before each reply, once a second, or when the system likes."),
    row("rdbcompression",           "yes",         Bool,                       "",       Running,  "Compresses strings in snapshots (DUMP never does)."),
    row("rdbchecksum",              "yes",         Bool,                       "",       Start,    "Writes a checksum into snapshots, and verifies that of a loaded file."),
    row("stop-writes-on-bgsave-error","yes",       Bool,                       "",       Running,  "Refuses writes after a failed background save, if there are save points."),
    row("lazyfree-lazy-eviction",   "yes",         Bool,                       "",       Accepted, "All memory is freed lazily."),
    row("lazyfree-lazy-expire",     "yes",         Bool,                       "",       Accepted, "All memory is freed lazily."),
    row("lazyfree-lazy-server-del", "yes",         Bool,                       "",       Accepted, "All memory is freed lazily."),
    row("lazyfree-lazy-user-del",   "yes",         Bool,                       "",       Accepted, "All memory is freed lazily."),
    row("lazyfree-lazy-user-flush", "yes",         Bool,                       "",       Accepted, "All memory is freed lazily."),
    row("replica-lazy-flush",       "yes",         Bool,                       "",       Accepted, "All memory is freed lazily."),
    row("io-threads",               "1",           Int(1, 128),                "",       Inert, "Every core does its own input and output."),
    row("io-threads-do-reads",      "no",          Bool,                       "",       Inert, "Every core does its own input and output."),
    row("activerehashing",          "yes",         Bool,                       "",       Accepted, "Tables are never rehashed."),
    row("active-expire-effort",     "1",           Int(1, 10),                 "",       Accepted, "Expired keys are found by deadline, not by sampling."),
    row("activedefrag",             "no",          Off(NO_DEFRAG),             "",       Accepted, "There is no active defragmentation; see MEMORY PURGE."),
    row("maxmemory-samples",        "5",           Int(1, I32_MAX),                 "",       Accepted, "Eviction is not supported yet."),
    row("lfu-log-factor",           "10",          Int(0, I32_MAX),            "",       Accepted, "Access frequencies are not recorded."),
    row("lfu-decay-time",           "1",           Int(0, I32_MAX),            "",       Accepted, "Access frequencies are not recorded."),
    row("list-max-listpack-size",   "-2",          Int(I32_MIN, I32_MAX),           "",       Accepted, "It does not change how lists are stored."),
    row("list-compress-depth",      "0",           Int(0, I32_MAX),            "",       Accepted, "It does not change how lists are stored."),
    row("client-query-buffer-limit","1073741824",  Memory(1_048_576, I64_MAX), "bytes",  Running,  "Maximum size of an incomplete request; a client that exceeds it is closed."),
    row("client-output-buffer-limit","normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", OutputLimits, "", Running, "Closes a client whose output buffer exceeds a limit: class, hard limit, soft limit, soft seconds. (Class slave has no effect yet.)"),
    row("maxmemory-clients",        "0",           MemoryOrPart,               "bytes",  Running,  "Memory limit for all clients, or a percentage of maxmemory (5%); beyond it, the largest are closed. 0 for no limit."),
    row("notify-keyspace-events",   "",            Events,                     "",       Running,  "Keyspace events to publish: letters of event classes, with K, E or both; empty for none."),
    row("busy-reply-threshold",     "5000",        Int(0, I64_MAX),            "ms",     Running,  "After this time, commands on a running script's keys get BUSY instead of waiting; 0 disables it."),
    row("daemonize",                "no",          Bool,                       "",       Start, "Runs in the background; no effect under systemd supervision."),
    row("supervised",               "no",          Enum(&["no", "auto", "systemd", "upstart"]), "", Start, "Supervisor to notify of readiness and shutdown."),
    row("pidfile",                  "",            Text,                       "",       Start, "File for the process ID; removed at shutdown."),
    row("always-show-logo",         "no",          Bool,                       "",       Inert, "There is no logo."),
    row("set-proc-title",           "yes",         Bool,                       "",       Inert, "The process title is never changed."),
    row("oom-score-adj",            "no",          Enum(&["no", "yes", "relative", "absolute"]), "", Accepted, "The OOM score is never changed."),
    row("disable-thp",              "yes",         Bool,                       "",       Inert, "Transparent huge pages are not changed."),
    row("replica-read-only",        "yes",         Bool,                       "",       Accepted, "Replication is not supported yet."),
    row("repl-backlog-size",        "1048576",     Backlog,                    "bytes",  Accepted, "Replication is not supported yet."),
    row("cluster-enabled",          "no",          Off("there is no cluster yet"), "",       Inert, "Cluster mode is not supported yet."),
    row("acl-pubsub-default",        "resetchannels", Enum(&["allchannels", "resetchannels"]), "",       Accepted,  "ACL users are not supported yet."),
    row("acllog-max-len",            "128",         Int(0, I64_MAX),           "",       Accepted,  "ACL users are not supported yet."),
    row("active-defrag-cycle-max",   "25",          Int(1, 99),                "%",      Accepted,  "There is no active defragmentation; see MEMORY PURGE."),
    row("active-defrag-cycle-min",   "1",           Int(1, 99),                "%",      Accepted,  "There is no active defragmentation; see MEMORY PURGE."),
    row("active-defrag-ignore-bytes", "104857600",   Size(1, LONG_MAX),         "bytes",  Accepted,  "There is no active defragmentation; see MEMORY PURGE."),
    row("active-defrag-max-scan-fields", "1000",        Int(1, I64_MAX),           "",       Accepted,  "There is no active defragmentation; see MEMORY PURGE."),
    row("active-defrag-threshold-lower", "10",          Int(0, 1_000),             "%",      Accepted,  "There is no active defragmentation; see MEMORY PURGE."),
    row("active-defrag-threshold-upper", "100",         Int(0, 1_000),             "%",      Accepted,  "There is no active defragmentation; see MEMORY PURGE."),
    row("aof-disable-auto-gc",       "no",          Bool,                      "",       Accepted,  "Replaced append-only files are removed at once."),
    row("aof-load-truncated",      "yes",         Bool,                       "",      Running, "Cuts the torn end of the last append-only file at start; otherwise the start fails."),
    row("aof-rewrite-incremental-fsync", "yes",         Bool,                      "",       Accepted,  "See rdb-save-incremental-fsync."),
    row("aof-timestamp-enabled",   "no",          Bool,                       "",      Running, "Writes the time into append-only files once a second."),
    row("aof-use-rdb-preamble",    "yes",         Bool,                       "",      Accepted, "The base of the append-only files is an RDB file."),
    row("aof_rewrite_cpulist",       "",            Text,                      "",       Inert,     "Cores encode the base; there is no child process."),
    row("appenddirname",           "appendonlydir",FileName("appenddirname can't be a path, just a dirname", Some("appenddirname can't be empty")),"",      Start, "Folder of append-only files, in dir."),
    row("appendfilename",          "appendonly.aof",FileName("appendfilename can't be a path, just a filename", Some("appendfilename can't be empty")),"",      Start, "First part of the names of append-only files."),
    row("auto-aof-rewrite-min-size","67108864",    Memory(0, I64_MAX),         "bytes", Running, "Size of append-only files below which they are not rewritten automatically."),
    row("auto-aof-rewrite-percentage","100",         Int(0, I32_MAX),            "%",     Running, "Growth of append-only files after which they are rewritten; 0 disables it."),
    row("snapshot-keep",             "0",           Int(0, I32_MAX),           "bases",  Running,   "Number of earlier bases of append-only files that rewrites keep, with their increments; see darter restore."),
    row("no-appendfsync-on-rewrite","no",          Bool,                       "",      Accepted, "Append-only files are synced during rewrites and snapshots, too."),
    row("rdb-save-incremental-fsync", "yes",         Bool,                      "",       Running,   "Syncs snapshots to disk while they are written, not only at the end."),
    row("rdb-del-sync-files",        "no",          Bool,                      "",       Accepted,  "Replication is not supported yet."),
    row("bgsave_cpulist",            "",            Text,                      "",       Inert,     "Cores encode snapshots; there is no child process."),
    row("bio_cpulist",               "",            Text,                      "",       Inert,     "There are no background I/O threads."),
    row("server_cpulist",            "",            Text,                      "",       Inert,     "Threads are pinned to CPUs; see cores."),
    row("bind-source-addr",          "",            Text,                      "",       Accepted,  "The server makes no connections."),
    row("crash-log-enabled",         "yes",         Bool,                      "",       Accepted,  "There are no crash reports."),
    row("crash-memcheck-enabled",    "yes",         Bool,                      "",       Accepted,  "Memory is not tested after a crash."),
    row("enable-module-command",     "no",          Enum(GUARD),               "",       Inert,     "There are no modules."),
    row("ignore-warnings",           "",            Text,                      "",       Accepted,  "Warnings are never suppressed."),
    row("jemalloc-bg-thread",        "yes",         Bool,                      "",       Accepted,  "jemalloc is not used."),
    row("masterauth",                "",            Text,                      "",       Accepted,  "Replication is not supported yet."),
    row("masteruser",                "",            Text,                      "",       Accepted,  "Replication is not supported yet."),
    row("maxmemory-eviction-tenacity", "10",          Int(0, 100),               "",       Accepted,  "Eviction is not supported yet."),
    row("min-replicas-max-lag",      "10",          Int(0, I32_MAX),           "s",      Accepted,  "Replication is not supported yet."),
    row("min-replicas-to-write",     "0",           Int(0, I32_MAX),           "",       Accepted,  "Replication is not supported yet."),
    row("oom-score-adj-values",      "0 200 800",   OomScores,                 "",       Accepted,  "The OOM score is never changed."),
    row("proc-title-template",       "{title} {listen-addr} {server-mode}", Title,                     "",       Accepted,  "The process title is never changed."),
    row("propagation-error-behavior", "ignore",      Enum(&["ignore", "panic", "panic-on-replicas"]), "",       Accepted,  "Replication is not supported yet."),
    row("repl-backlog-ttl",          "3600",        Int(0, I64_MAX),           "s",      Accepted,  "Replication is not supported yet."),
    row("repl-disable-tcp-nodelay",  "no",          Bool,                      "",       Accepted,  "Replication is not supported yet."),
    row("repl-diskless-load",        "disabled",    Enum(&["disabled", "on-empty-db", "swapdb"]), "",       Accepted,  "Replication is not supported yet."),
    row("repl-diskless-sync",        "yes",         Bool,                      "",       Accepted,  "Replication is not supported yet."),
    row("repl-diskless-sync-delay",  "5",           Int(0, I32_MAX),           "s",      Accepted,  "Replication is not supported yet."),
    row("repl-diskless-sync-max-replicas", "0",           Int(0, I32_MAX),           "",       Accepted,  "Replication is not supported yet."),
    row("repl-ping-replica-period",  "10",          Int(1, I32_MAX),           "s",      Accepted,  "Replication is not supported yet."),
    row("repl-timeout",              "60",          Int(1, I32_MAX),           "s",      Accepted,  "Replication is not supported yet."),
    row("replica-announce-ip",       "",            Text,                      "",       Accepted,  "Replication is not supported yet."),
    row("replica-announce-port",     "0",           Int(0, 65_535),            "",       Accepted,  "Replication is not supported yet."),
    row("replica-announced",         "yes",         Bool,                      "",       Accepted,  "Replication is not supported yet."),
    row("replica-ignore-disk-write-errors", "no",          Bool,                      "",       Accepted,  "Replication is not supported yet."),
    row("replica-ignore-maxmemory",  "yes",         Bool,                      "",       Accepted,  "Replication is not supported yet."),
    row("replica-priority",          "100",         Int(0, I32_MAX),           "",       Accepted,  "Replication is not supported yet."),
    row("replica-serve-stale-data",  "yes",         Bool,                      "",       Accepted,  "Replication is not supported yet."),
    row("replicaof",                 "",            Absent("there is no replication yet"), "",       Inert,     "Replication is not supported yet."),
    row("sanitize-dump-payload",     "no",          Enum(&["no", "yes", "clients"]), "",       Accepted,  "Payloads are always checked fully."),
    row("shutdown-on-sigint",        "default",     Flags(SHUTDOWNS),          "",       Running,   "Options of SHUTDOWN to use on SIGINT; a second signal ends the process at once."),
    row("shutdown-on-sigterm",       "default",     Flags(SHUTDOWNS),          "",       Running,   "Options of SHUTDOWN to use on SIGTERM; a second signal ends the process at once."),
    row("shutdown-timeout",          "10",          Int(0, I32_MAX),           "s",      Accepted,  "There are no replicas to wait for."),
    row("socket-mark-id",            "0",           Count(0, U32_MAX),         "",       Inert,     "Sockets are not marked."),
    row("stream-node-max-bytes",     "4096",        Size(0, LONG_MAX),   "bytes",  Accepted,  "Streams are stored in blocks of 4 KiB."),
    row("syslog-enabled",            "no",          Bool,                      "",       Inert,     "syslog is not supported; see logfile."),
    row("syslog-facility",           "local0",      Enum(&["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"]), "",       Inert,     "See syslog-enabled."),
    row("syslog-ident",              "redis",       Text,                      "",       Inert,     "See syslog-enabled."),
    row("tracking-table-max-keys",   "1000000",     Count(0, LONG_MAX),  "",       Running,   "Maximum number of tracked keys, for all cores together; beyond it, keys are evicted and their clients notified. 0 for no limit."),
    row("cluster-allow-pubsubshard-when-down", "yes",         Bool,                      "",       Accepted,  "Cluster mode is not supported yet."),
    row("cluster-allow-reads-when-down", "no",          Bool,                      "",       Accepted,  "Cluster mode is not supported yet."),
    row("cluster-allow-replica-migration", "yes",         Bool,                      "",       Accepted,  "Cluster mode is not supported yet."),
    row("cluster-announce-bus-port", "0",           Int(0, 65_535),            "",       Accepted,  "Cluster mode is not supported yet."),
    row("cluster-announce-hostname", "",            Hostname,                  "",       Accepted,  "Cluster mode is not supported yet."),
    row("cluster-announce-ip",       "",            Text,                      "",       Accepted,  "Cluster mode is not supported yet."),
    row("cluster-announce-port",     "0",           Int(0, 65_535),            "",       Accepted,  "Cluster mode is not supported yet."),
    row("cluster-announce-tls-port", "0",           Int(0, 65_535),            "",       Accepted,  "Cluster mode is not supported yet."),
    row("cluster-config-file",       "nodes.conf",  Text,                      "",       Inert,     "Cluster mode is not supported yet."),
    row("cluster-link-sendbuf-limit", "0",           Size(0, u64::MAX),         "bytes",  Accepted,  "Cluster mode is not supported yet."),
    row("cluster-migration-barrier", "1",           Int(0, I32_MAX),           "",       Accepted,  "Cluster mode is not supported yet."),
    row("cluster-node-timeout",      "15000",       Int(0, I64_MAX),           "ms",     Accepted,  "Cluster mode is not supported yet."),
    row("cluster-port",              "0",           Int(0, 65_535),            "",       Inert,     "Cluster mode is not supported yet."),
    row("cluster-preferred-endpoint-type", "ip",          Enum(&["ip", "hostname", "unknown-endpoint"]), "",       Accepted,  "Cluster mode is not supported yet."),
    row("cluster-replica-no-failover", "no",          Bool,                      "",       Accepted,  "Cluster mode is not supported yet."),
    row("cluster-replica-validity-factor", "10",          Int(0, I32_MAX),           "",       Accepted,  "Cluster mode is not supported yet."),
    row("cluster-require-full-coverage", "yes",         Bool,                      "",       Accepted,  "Cluster mode is not supported yet."),
    row("key-load-delay",            "0",           Int(I32_MIN, I32_MAX),     "us",     Accepted,  "For Redis's own tests."),
    row("rdb-key-save-delay",        "0",           Int(I32_MIN, I32_MAX),     "us",     Accepted,  "For Redis's own tests."),
    row("use-exit-on-panic",         "no",          Bool,                      "",       Accepted,  "For Redis's own tests."),
    row("watchdog-period",           "0",           Int(0, I32_MAX),           "ms",     Accepted,  "LATENCY SLICES reports every stall."),
    row("loading-process-events-interval-bytes", "2097152",     Int(1_024, I32_MAX),       "bytes",  Accepted,  "Clients are served while a file is loaded."),
];
