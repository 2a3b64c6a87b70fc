//! The rows.

use super::Kind::{
    Absent, Backlog, Bool, Count, Enum, Events, FileName, Flags, Folder, Hertz, Hostname, Int,
    Levels, Memory, MemoryOrPart, Octal, Off, OomScores, OutputLimits, Percentiles, Save, Size,
    Text, Title, Words,
};
use super::Setting;
use super::When::{Accepted, Guarded, Inert, Running, Start};
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
    kind: super::Kind,
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

/// Those of the settings below.
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

/// Settings that patterns of CONFIG GET do not show, as in Redis.
pub(super) const HIDDEN: &[&str] = &[
    "key-load-delay",
    "loading-process-events-interval-bytes",
    "rdb-key-save-delay",
    "use-exit-on-panic",
    "watchdog-period",
];

/// All settings: the server's own, and those that types bring.
pub static ROWS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let bounds = TYPES.iter().flat_map(|row| row.bounds).map(|bound| {
        let (kind, unit) =
            if bound.is_bytes { (Size(0, LONG_MAX), "bytes") } else { (Count(0, LONG_MAX), "") };
        row(bound.name, bound.default, kind, unit, Running, bound.help.unwrap_or(OF_BOUNDS))
    });
    OWN.iter().copied().chain(bounds).collect()
});

const OF_BOUNDS: &str = "Bound of a name that OBJECT ENCODING gives; what is kept does not change.";

/// Older names of settings, each with the name of its row.
pub(super) fn older_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let bounds = TYPES.iter().flat_map(|row| row.bounds);
    let of_bounds = bounds.filter_map(|bound| Some((bound.older_name?, bound.name)));
    OLDER_NAMES.iter().copied().chain(of_bounds)
}

#[rustfmt::skip] // A table.
const OWN: &[Setting] = &[
    //   name                        default        kind                       unit      when      help
    row("bind",                     "127.0.0.1",   Words,                      "",       Running,  "Addresses to listen on; a leading '-' tolerates one that is not there."),
    row("port",                     "6379",        Int(0, 65_535),             "",       Running,  "TCP port; 0 listens on none."),
    row("unixsocket",               "",            Text,                       "",       Start,    "Path of a unix socket to listen on."),
    row("unixsocketperm",           "0",           Octal,                      "",       Start,    "Permissions of the unix socket, in octal."),
    row("tcp-backlog",              "511",         Int(0, I32_MAX),            "",       Start,    "Connections that may wait to be accepted."),
    row("tcp-keepalive",            "300",         Int(0, I32_MAX),            "s",      Running,  "Silence after which a new client is probed; 0 never."),
    row("timeout",                  "0",           Int(0, I32_MAX),            "s",      Running,  "Idle time after which a client is disconnected; 0 never."),
    row("maxclients",               "10000",       Count(1, U32_MAX),          "",       Running,  "Connections at a time."),
    row("protected-mode",           "yes",         Bool,                       "",       Running,  "Without a password, serve local clients only."),
    row("requirepass",              "",            Text,                       "",       Running,  "Password that AUTH and HELLO must give."),
    row("cores",                    "0",           Int(0, 1_024),              "",       Start,    "Cores to use; 0 takes the CPUs that the process may use."),
    row("io",                       "auto",        Enum(&["auto", "uring", "epoll"]), "", Start,   "Event loop: io_uring where the system allows it, or one of the two."),
    row("databases",                "16",          Int(1, I32_MAX),            "",       Start,    "Databases for SELECT."),
    row("dir",                      ".",           Folder,                     "",       Guarded,  "Folder of the data."),
    row("dbfilename",               "dump.rdb",    FileName,                   "",       Guarded,  "RDB file that is loaded at start, and written by snapshots."),
    row("maxmemory",                "0",           Size(0, u64::MAX),          "bytes",  Running,  "Memory beyond which writes are refused; 0 for no limit."),
    row("maxmemory-policy",         "noeviction",  Enum(POLICIES),             "",       Running,  "What is evicted beyond maxmemory; only noeviction acts yet."),
    row("proto-max-bulk-len",       "536870912",   Memory(1_048_576, I64_MAX), "bytes",  Running,  "Longest argument."),
    row("slowlog-log-slower-than",  "10000",       Int(-1, I64_MAX),           "us",     Running,  "Commands that take longer are kept by SLOWLOG; -1 keeps none."),
    row("slowlog-max-len",          "128",         Int(0, I64_MAX),            "",       Running,  "Commands that SLOWLOG keeps."),
    row("latency-monitor-threshold","0",           Int(0, I64_MAX),            "ms",     Running,  "Events that take longer are kept by LATENCY; 0 keeps none."),
    row("latency-tracking",         "yes",         Bool,                       "",       Running,  "Show latency percentiles in INFO latencystats."),
    row("loglevel",                 "notice",      Levels,                     "",       Running, "How much is logged."),
    row("logfile",                  "",            Text,                       "",       Start,    "File to log to; empty for standard output."),
    row("enable-debug-command",     "local",       Enum(GUARD),                "",       Start,    "Who may use DEBUG."),
    row("enable-protected-configs", "no",          Enum(GUARD),                "",       Start,    "Who may change dir and dbfilename at run time."),
    row("latency-tracking-info-percentiles", "50 99 99.9", Percentiles,        "%",      Running,  "Percentiles that INFO latencystats shows."),
    row("hz",                       "10",          Hertz,                      "",       Accepted, "Expiry here follows deadlines, not ticks."),
    row("dynamic-hz",               "yes",         Bool,                       "",       Accepted, "See hz."),
    row("save",                     "3600 1 300 100 60 10000", Save,           "",       Running,  "When to save: after so many seconds, if there were so many changes; empty: never, nor at the end."),
    row("appendonly",               "no",          Off("there is no journal yet"), "",       Accepted, "The journal is not here yet."),
    row("appendfsync",              "everysec",    Enum(&["everysec", "always", "no"]), "", Accepted, "The journal is not here yet."),
    row("rdbcompression",           "yes",         Bool,                       "",       Running,  "Strings in snapshots are compressed; DUMP does not compress."),
    row("rdbchecksum",              "yes",         Bool,                       "",       Start,    "Snapshots end with a checksum, and that of the file loaded at start is verified."),
    row("stop-writes-on-bgsave-error","yes",       Bool,                       "",       Running,  "Refuse writes after a snapshot in the background has failed, if there are save points."),
    row("lazyfree-lazy-eviction",   "yes",         Bool,                       "",       Accepted, "Freeing is always lazy."),
    row("lazyfree-lazy-expire",     "yes",         Bool,                       "",       Accepted, "Freeing is always lazy."),
    row("lazyfree-lazy-server-del", "yes",         Bool,                       "",       Accepted, "Freeing is always lazy."),
    row("lazyfree-lazy-user-del",   "yes",         Bool,                       "",       Accepted, "Freeing is always lazy."),
    row("lazyfree-lazy-user-flush", "yes",         Bool,                       "",       Accepted, "Freeing is always lazy."),
    row("replica-lazy-flush",       "yes",         Bool,                       "",       Accepted, "Freeing is always lazy."),
    row("io-threads",               "1",           Int(1, 128),                "",       Inert, "Every core does its own input and output."),
    row("io-threads-do-reads",      "no",          Bool,                       "",       Inert, "Every core does its own input and output."),
    row("activerehashing",          "yes",         Bool,                       "",       Accepted, "Tables grow by segments; nothing is rehashed."),
    row("active-expire-effort",     "1",           Int(1, 10),                 "",       Accepted, "The dead are found by their deadlines, not by sampling."),
    row("activedefrag",             "no",          Off(NO_DEFRAG),             "",       Accepted, "Memory follows content by itself."),
    row("maxmemory-samples",        "5",           Int(1, I32_MAX),                 "",       Accepted, "Nothing is sampled."),
    row("lfu-log-factor",           "10",          Int(0, I32_MAX),            "",       Accepted, "Access frequencies are not kept."),
    row("lfu-decay-time",           "1",           Int(0, I32_MAX),            "",       Accepted, "Access frequencies are not kept."),
    row("list-max-listpack-size",   "-2",          Int(I32_MIN, I32_MAX),           "",       Accepted, "How lists are kept does not change with it."),
    row("list-compress-depth",      "0",           Int(0, I32_MAX),            "",       Accepted, "How lists are kept does not change with it."),
    row("client-query-buffer-limit","1073741824",  Memory(1_048_576, I64_MAX), "bytes",  Running,  "What a client may send of a request or argument that is not whole; beyond it is closed."),
    row("client-output-buffer-limit","normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", OutputLimits, "", Running, "Output, and what is kept for it, beyond which a client is closed: class, at once, later, after seconds. There are no replicas yet."),
    row("maxmemory-clients",        "0",           MemoryOrPart,               "bytes",  Running,  "What all clients may hold, or a part of maxmemory (5%), before the largest are closed; 0 for no limit."),
    row("notify-keyspace-events",   "",            Events,                     "",       Running,  "Events of keys that are published: letters of classes, and K, E or both."),
    row("busy-reply-threshold",     "5000",        Int(0, I64_MAX),            "ms",     Running,  "A script that runs longer: who wants its keys is refused, and does not wait; 0 for never."),
    row("daemonize",                "no",          Bool,                       "",       Start, "Leave the terminal, unless a supervisor watches."),
    row("supervised",               "no",          Enum(&["no", "auto", "systemd", "upstart"]), "", Start, "Whom to tell of the beginning and the end: systemd, or whoever is there."),
    row("pidfile",                  "",            Text,                       "",       Start, "File with the process's number; removed at the end."),
    row("always-show-logo",         "no",          Bool,                       "",       Inert, "There is none."),
    row("set-proc-title",           "yes",         Bool,                       "",       Inert, "The title stays."),
    row("oom-score-adj",            "no",          Enum(&["no", "yes", "relative", "absolute"]), "", Accepted, "The score stays."),
    row("disable-thp",              "yes",         Bool,                       "",       Inert, "Transparent huge pages are left to the system."),
    row("replica-read-only",        "yes",         Bool,                       "",       Accepted, "Replication is not here yet."),
    row("repl-backlog-size",        "1048576",     Backlog,                    "bytes",  Accepted, "Replication is not here yet."),
    row("cluster-enabled",          "no",          Off("there is no cluster yet"), "",       Inert, "The cluster is not here yet."),
    row("acl-pubsub-default",        "resetchannels", Enum(&["allchannels", "resetchannels"]), "",       Accepted,  "There are no users yet."),
    row("acllog-max-len",            "128",         Int(0, I64_MAX),           "",       Accepted,  "There are no users yet."),
    row("active-defrag-cycle-max",   "25",          Int(1, 99),                "%",      Accepted,  "Memory follows content by itself."),
    row("active-defrag-cycle-min",   "1",           Int(1, 99),                "%",      Accepted,  "Memory follows content by itself."),
    row("active-defrag-ignore-bytes", "104857600",   Size(1, LONG_MAX),         "bytes",  Accepted,  "Memory follows content by itself."),
    row("active-defrag-max-scan-fields", "1000",        Int(1, I64_MAX),           "",       Accepted,  "Memory follows content by itself."),
    row("active-defrag-threshold-lower", "10",          Int(0, 1_000),             "%",      Accepted,  "Memory follows content by itself."),
    row("active-defrag-threshold-upper", "100",         Int(0, 1_000),             "%",      Accepted,  "Memory follows content by itself."),
    row("aof-disable-auto-gc",       "no",          Bool,                      "",       Accepted,  "The journal is not here yet."),
    row("aof-load-truncated",        "yes",         Bool,                      "",       Accepted,  "The journal is not here yet."),
    row("aof-rewrite-incremental-fsync", "yes",         Bool,                      "",       Accepted,  "The journal is not here yet."),
    row("aof-timestamp-enabled",     "no",          Bool,                      "",       Accepted,  "The journal is not here yet."),
    row("aof-use-rdb-preamble",      "yes",         Bool,                      "",       Accepted,  "The journal is not here yet."),
    row("aof_rewrite_cpulist",       "",            Text,                      "",       Inert,     "The journal is not here yet."),
    row("appenddirname",             "appendonlydir", FileName,                  "",       Inert,     "The journal is not here yet."),
    row("appendfilename",            "appendonly.aof", FileName,                  "",       Inert,     "The journal is not here yet."),
    row("auto-aof-rewrite-min-size", "67108864",    Memory(0, I64_MAX),        "bytes",  Accepted,  "The journal is not here yet."),
    row("auto-aof-rewrite-percentage", "100",         Int(0, I32_MAX),           "%",      Accepted,  "The journal is not here yet."),
    row("no-appendfsync-on-rewrite", "no",          Bool,                      "",       Accepted,  "The journal is not here yet."),
    row("rdb-save-incremental-fsync", "yes",         Bool,                      "",       Running,   "Snapshots are synced while they are written, not only at the end."),
    row("rdb-del-sync-files",        "no",          Bool,                      "",       Accepted,  "Replication is not here yet."),
    row("bgsave_cpulist",            "",            Text,                      "",       Inert,     "Snapshots are encoded by the cores."),
    row("bio_cpulist",               "",            Text,                      "",       Inert,     "There are no such threads."),
    row("server_cpulist",            "",            Text,                      "",       Inert,     "Cores pin themselves; see cores."),
    row("bind-source-addr",          "",            Text,                      "",       Accepted,  "The server makes no connections."),
    row("crash-log-enabled",         "yes",         Bool,                      "",       Accepted,  "A crash is told by the system."),
    row("crash-memcheck-enabled",    "yes",         Bool,                      "",       Accepted,  "Memory is not tested."),
    row("enable-module-command",     "no",          Enum(GUARD),               "",       Inert,     "There are no modules."),
    row("ignore-warnings",           "",            Text,                      "",       Accepted,  "None is held back."),
    row("jemalloc-bg-thread",        "yes",         Bool,                      "",       Accepted,  "The allocator is another one."),
    row("masterauth",                "",            Text,                      "",       Accepted,  "Replication is not here yet."),
    row("masteruser",                "",            Text,                      "",       Accepted,  "Replication is not here yet."),
    row("maxmemory-eviction-tenacity", "10",          Int(0, 100),               "",       Accepted,  "Eviction is not here yet."),
    row("min-replicas-max-lag",      "10",          Int(0, I32_MAX),           "s",      Accepted,  "Replication is not here yet."),
    row("min-replicas-to-write",     "0",           Int(0, I32_MAX),           "",       Accepted,  "Replication is not here yet."),
    row("oom-score-adj-values",      "0 200 800",   OomScores,                 "",       Accepted,  "The score stays."),
    row("proc-title-template",       "{title} {listen-addr} {server-mode}", Title,                     "",       Accepted,  "The title stays."),
    row("propagation-error-behavior", "ignore",      Enum(&["ignore", "panic", "panic-on-replicas"]), "",       Accepted,  "Replication is not here yet."),
    row("repl-backlog-ttl",          "3600",        Int(0, I64_MAX),           "s",      Accepted,  "Replication is not here yet."),
    row("repl-disable-tcp-nodelay",  "no",          Bool,                      "",       Accepted,  "Replication is not here yet."),
    row("repl-diskless-load",        "disabled",    Enum(&["disabled", "on-empty-db", "swapdb"]), "",       Accepted,  "Replication is not here yet."),
    row("repl-diskless-sync",        "yes",         Bool,                      "",       Accepted,  "Replication is not here yet."),
    row("repl-diskless-sync-delay",  "5",           Int(0, I32_MAX),           "s",      Accepted,  "Replication is not here yet."),
    row("repl-diskless-sync-max-replicas", "0",           Int(0, I32_MAX),           "",       Accepted,  "Replication is not here yet."),
    row("repl-ping-replica-period",  "10",          Int(1, I32_MAX),           "s",      Accepted,  "Replication is not here yet."),
    row("repl-timeout",              "60",          Int(1, I32_MAX),           "s",      Accepted,  "Replication is not here yet."),
    row("replica-announce-ip",       "",            Text,                      "",       Accepted,  "Replication is not here yet."),
    row("replica-announce-port",     "0",           Int(0, 65_535),            "",       Accepted,  "Replication is not here yet."),
    row("replica-announced",         "yes",         Bool,                      "",       Accepted,  "Replication is not here yet."),
    row("replica-ignore-disk-write-errors", "no",          Bool,                      "",       Accepted,  "Replication is not here yet."),
    row("replica-ignore-maxmemory",  "yes",         Bool,                      "",       Accepted,  "Replication is not here yet."),
    row("replica-priority",          "100",         Int(0, I32_MAX),           "",       Accepted,  "Replication is not here yet."),
    row("replica-serve-stale-data",  "yes",         Bool,                      "",       Accepted,  "Replication is not here yet."),
    row("replicaof",                 "",            Absent("there is no replication yet"), "",       Inert,     "Replication is not here yet."),
    row("sanitize-dump-payload",     "no",          Enum(&["no", "yes", "clients"]), "",       Accepted,  "Every payload is checked."),
    row("shutdown-on-sigint",        "default",     Flags(SHUTDOWNS),          "",       Running,   "Words of SHUTDOWN that SIGINT has; a second signal forces."),
    row("shutdown-on-sigterm",       "default",     Flags(SHUTDOWNS),          "",       Running,   "Words of SHUTDOWN that SIGTERM has; a second signal forces."),
    row("shutdown-timeout",          "10",          Int(0, I32_MAX),           "s",      Accepted,  "There are no replicas to wait for."),
    row("socket-mark-id",            "0",           Count(0, U32_MAX),         "",       Inert,     "Sockets are not marked."),
    row("stream-node-max-bytes",     "4096",        Size(0, LONG_MAX),   "bytes",  Accepted,  "Streams are kept in blocks of 4 KiB."),
    row("syslog-enabled",            "no",          Bool,                      "",       Inert,     "The log goes to standard output, or to logfile."),
    row("syslog-facility",           "local0",      Enum(&["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"]), "",       Inert,     "See syslog-enabled."),
    row("syslog-ident",              "redis",       Text,                      "",       Inert,     "See syslog-enabled."),
    row("tracking-table-max-keys",   "1000000",     Count(0, LONG_MAX),  "",       Running,   "Keys that clients are known to have read, of all cores together; 0: any number. Beyond that some are dropped, and their clients told."),
    row("cluster-allow-pubsubshard-when-down", "yes",         Bool,                      "",       Accepted,  "The cluster is not here yet."),
    row("cluster-allow-reads-when-down", "no",          Bool,                      "",       Accepted,  "The cluster is not here yet."),
    row("cluster-allow-replica-migration", "yes",         Bool,                      "",       Accepted,  "The cluster is not here yet."),
    row("cluster-announce-bus-port", "0",           Int(0, 65_535),            "",       Accepted,  "The cluster is not here yet."),
    row("cluster-announce-hostname", "",            Hostname,                  "",       Accepted,  "The cluster is not here yet."),
    row("cluster-announce-ip",       "",            Text,                      "",       Accepted,  "The cluster is not here yet."),
    row("cluster-announce-port",     "0",           Int(0, 65_535),            "",       Accepted,  "The cluster is not here yet."),
    row("cluster-announce-tls-port", "0",           Int(0, 65_535),            "",       Accepted,  "The cluster is not here yet."),
    row("cluster-config-file",       "nodes.conf",  Text,                      "",       Inert,     "The cluster is not here yet."),
    row("cluster-link-sendbuf-limit", "0",           Size(0, u64::MAX),         "bytes",  Accepted,  "The cluster is not here yet."),
    row("cluster-migration-barrier", "1",           Int(0, I32_MAX),           "",       Accepted,  "The cluster is not here yet."),
    row("cluster-node-timeout",      "15000",       Int(0, I64_MAX),           "ms",     Accepted,  "The cluster is not here yet."),
    row("cluster-port",              "0",           Int(0, 65_535),            "",       Inert,     "The cluster is not here yet."),
    row("cluster-preferred-endpoint-type", "ip",          Enum(&["ip", "hostname", "unknown-endpoint"]), "",       Accepted,  "The cluster is not here yet."),
    row("cluster-replica-no-failover", "no",          Bool,                      "",       Accepted,  "The cluster is not here yet."),
    row("cluster-replica-validity-factor", "10",          Int(0, I32_MAX),           "",       Accepted,  "The cluster is not here yet."),
    row("cluster-require-full-coverage", "yes",         Bool,                      "",       Accepted,  "The cluster is not here yet."),
    row("key-load-delay",            "0",           Int(I32_MIN, I32_MAX),     "us",     Accepted,  "For Redis's own tests."),
    row("rdb-key-save-delay",        "0",           Int(I32_MIN, I32_MAX),     "us",     Accepted,  "For Redis's own tests."),
    row("use-exit-on-panic",         "no",          Bool,                      "",       Accepted,  "For Redis's own tests."),
    row("watchdog-period",           "0",           Int(0, I32_MAX),           "ms",     Accepted,  "LATENCY SLICES tells of every stall."),
    row("loading-process-events-interval-bytes", "2097152",     Int(1_024, I32_MAX),       "bytes",  Accepted,  "Loading runs beside the clients."),
];
