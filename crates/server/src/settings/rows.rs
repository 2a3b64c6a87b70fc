//! The rows.

use super::Kind::{Bool, Enum, Int, Memory, Octal, Save, Text, Words};
use super::Setting;
use super::When::{Accepted, Running, Start};

const I64_MAX: i64 = i64::MAX;
const I32_MAX: i64 = i32::MAX as i64;

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

/// Two names of one setting.
pub(super) const ALIASES: &[(&str, &str)] = &[
    ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
    ("hash-max-ziplist-value", "hash-max-listpack-value"),
    ("list-max-ziplist-size", "list-max-listpack-size"),
];

/// All settings.
#[rustfmt::skip] // A table.
pub const ROWS: &[Setting] = &[
    //   name                        default        kind                       unit      when      help
    row("bind",                     "127.0.0.1",   Words,                      "",       Start,    "Addresses to listen on; a leading '-' tolerates one that is not there."),
    row("port",                     "6379",        Int(0, 65_535),             "",       Start,    "TCP port; 0 listens on none."),
    row("unixsocket",               "",            Text,                       "",       Start,    "Path of a unix socket to listen on."),
    row("unixsocketperm",           "0",           Octal,                      "",       Start,    "Permissions of the unix socket, in octal."),
    row("tcp-backlog",              "511",         Int(0, I32_MAX),            "",       Start,    "Connections that may wait to be accepted."),
    row("tcp-keepalive",            "300",         Int(0, I32_MAX),            "s",      Start,    "Silence after which a client is probed; 0 never."),
    row("timeout",                  "0",           Int(0, I32_MAX),            "s",      Running,  "Idle time after which a client is disconnected; 0 never."),
    row("maxclients",               "10000",       Int(1, I32_MAX),            "",       Running,  "Connections at a time."),
    row("protected-mode",           "yes",         Bool,                       "",       Running,  "Without a password, serve local clients only."),
    row("requirepass",              "",            Text,                       "",       Running,  "Password that AUTH and HELLO must give."),
    row("cores",                    "0",           Int(0, 1_024),              "",       Start,    "Cores to use; 0 takes the CPUs that the process may use."),
    row("io",                       "auto",        Enum(&["auto", "uring", "epoll"]), "", Start,   "Event loop: io_uring where the system allows it, or one of the two."),
    row("databases",                "16",          Int(1, I32_MAX),            "",       Start,    "Databases for SELECT."),
    row("dir",                      ".",           Text,                       "",       Running,  "Folder of the data."),
    row("dbfilename",               "dump.rdb",    Text,                       "",       Running,  "RDB file that is loaded at start."),
    row("maxmemory",                "0",           Memory(0, I64_MAX),         "bytes",  Running,  "Memory beyond which writes are refused; 0 for no limit."),
    row("maxmemory-policy",         "noeviction",  Enum(POLICIES),             "",       Running,  "What is evicted beyond maxmemory; only noeviction acts yet."),
    row("proto-max-bulk-len",       "536870912",   Memory(1_048_576, I64_MAX), "bytes",  Running,  "Longest argument."),
    row("slowlog-log-slower-than",  "10000",       Int(-1, I64_MAX),           "us",     Running,  "Commands that take longer are kept by SLOWLOG; -1 keeps none."),
    row("slowlog-max-len",          "128",         Int(0, I64_MAX),            "",       Running,  "Commands that SLOWLOG keeps."),
    row("latency-monitor-threshold","0",           Int(0, I64_MAX),            "ms",     Running,  "Events that take longer are kept by LATENCY; 0 keeps none."),
    row("latency-tracking",         "yes",         Bool,                       "",       Running,  "Show latency percentiles in INFO latencystats."),
    row("loglevel",                 "notice",      Enum(&["debug", "verbose", "notice", "warning", "nothing"]), "", Start, "How much is logged."),
    row("logfile",                  "",            Text,                       "",       Start,    "File to log to; empty for standard output."),
    row("enable-debug-command",     "local",       Enum(&["no", "yes", "local"]), "",    Start,    "Who may use DEBUG."),
    row("hz",                       "10",          Int(1, 500),                "",       Accepted, "Expiry here follows deadlines, not ticks."),
    row("dynamic-hz",               "yes",         Bool,                       "",       Accepted, "See hz."),
    row("save",                     "",            Save,                       "",       Accepted, "Snapshots are not here yet."),
    row("appendonly",               "no",          Enum(&["no"]),              "",       Accepted, "The journal is not here yet."),
    row("appendfsync",              "everysec",    Enum(&["everysec", "always", "no"]), "", Accepted, "The journal is not here yet."),
    row("rdbcompression",           "yes",         Bool,                       "",       Accepted, "DUMP does not compress."),
    row("rdbchecksum",              "yes",         Bool,                       "",       Accepted, "Checksums are always verified where the file has them."),
    row("stop-writes-on-bgsave-error","yes",       Bool,                       "",       Accepted, "Snapshots are not here yet."),
    row("lazyfree-lazy-eviction",   "yes",         Bool,                       "",       Accepted, "Freeing is always lazy."),
    row("lazyfree-lazy-expire",     "yes",         Bool,                       "",       Accepted, "Freeing is always lazy."),
    row("lazyfree-lazy-server-del", "yes",         Bool,                       "",       Accepted, "Freeing is always lazy."),
    row("lazyfree-lazy-user-del",   "yes",         Bool,                       "",       Accepted, "Freeing is always lazy."),
    row("lazyfree-lazy-user-flush", "yes",         Bool,                       "",       Accepted, "Freeing is always lazy."),
    row("replica-lazy-flush",       "yes",         Bool,                       "",       Accepted, "Freeing is always lazy."),
    row("io-threads",               "1",           Int(1, 128),                "",       Accepted, "Every core does its own input and output."),
    row("io-threads-do-reads",      "no",          Bool,                       "",       Accepted, "Every core does its own input and output."),
    row("activerehashing",          "yes",         Bool,                       "",       Accepted, "Tables grow by segments; nothing is rehashed."),
    row("active-expire-effort",     "1",           Int(1, 10),                 "",       Accepted, "The dead are found by their deadlines, not by sampling."),
    row("activedefrag",             "no",          Enum(&["no", "yes"]),       "",       Accepted, "Memory follows content by itself."),
    row("maxmemory-samples",        "5",           Int(1, 64),                 "",       Accepted, "Nothing is sampled."),
    row("lfu-log-factor",           "10",          Int(0, I32_MAX),            "",       Accepted, "Access frequencies are not kept."),
    row("lfu-decay-time",           "1",           Int(0, I32_MAX),            "",       Accepted, "Access frequencies are not kept."),
    row("hash-max-listpack-entries","512",         Int(0, I64_MAX),            "",       Running,  "Bound of a name that OBJECT ENCODING gives; what is kept does not change."),
    row("hash-max-listpack-value",  "64",          Int(0, I64_MAX),            "bytes",  Running,  "Bound of a name that OBJECT ENCODING gives; what is kept does not change."),
    row("hash-max-ziplist-entries", "512",         Int(0, I64_MAX),            "",       Running,  "Bound of a name that OBJECT ENCODING gives; what is kept does not change."),
    row("hash-max-ziplist-value",   "64",          Int(0, I64_MAX),            "bytes",  Running,  "Bound of a name that OBJECT ENCODING gives; what is kept does not change."),
    row("set-max-intset-entries",   "512",         Int(0, I64_MAX),            "",       Running,  "Bound of a name that OBJECT ENCODING gives; what is kept does not change."),
    row("list-max-listpack-size",   "-2",          Int(-5, I64_MAX),           "",       Accepted, "Lists are not here yet."),
    row("list-max-ziplist-size",    "-2",          Int(-5, I64_MAX),           "",       Accepted, "Lists are not here yet."),
    row("list-compress-depth",      "0",           Int(0, I64_MAX),            "",       Accepted, "Lists are not here yet."),
    row("zset-max-listpack-entries","128",         Int(0, I64_MAX),            "",       Accepted, "Sorted sets are not here yet."),
    row("zset-max-listpack-value",  "64",          Int(0, I64_MAX),            "bytes",  Accepted, "Sorted sets are not here yet."),
    row("client-query-buffer-limit","1073741824",  Memory(1_048_576, I64_MAX), "bytes",  Accepted, "Input is parsed as it comes, and is bounded."),
    row("client-output-buffer-limit","normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", Words, "", Accepted, "Replies are streamed with back pressure, at most 1 MiB ahead."),
    row("notify-keyspace-events",   "",            Text,                       "",       Accepted, "Events are not here yet."),
    row("lua-time-limit",           "5000",        Int(0, I64_MAX),            "ms",     Accepted, "Scripts are not here yet."),
    row("busy-reply-threshold",     "5000",        Int(0, I64_MAX),            "ms",     Accepted, "Scripts are not here yet."),
    row("daemonize",                "no",          Enum(&["no"]),              "",       Accepted, "The process stays in the foreground; a supervisor does better."),
    row("supervised",               "no",          Enum(&["no", "auto", "systemd", "upstart"]), "", Accepted, "No signal is sent to a supervisor."),
    row("pidfile",                  "",            Text,                       "",       Accepted, "No file is written."),
    row("always-show-logo",         "no",          Bool,                       "",       Accepted, "There is none."),
    row("set-proc-title",           "yes",         Bool,                       "",       Accepted, "The title stays."),
    row("oom-score-adj",            "no",          Enum(&["no", "yes", "relative", "absolute"]), "", Accepted, "The score stays."),
    row("disable-thp",              "yes",         Bool,                       "",       Accepted, "Transparent huge pages are left to the system."),
    row("replica-read-only",        "yes",         Bool,                       "",       Accepted, "Replication is not here yet."),
    row("repl-backlog-size",        "1048576",     Memory(1, I64_MAX),         "bytes",  Accepted, "Replication is not here yet."),
    row("cluster-enabled",          "no",          Enum(&["no"]),              "",       Accepted, "The cluster is not here yet."),
];
