//! Programs with the usual client libraries, and redis-py's own tests.

use crate::install::{self, sources};
use crate::run::{go, java, node, program, python, run};
use crate::{Check, ensure};
use darter_testkit::Server;
use std::time::Duration;

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("redis-py",                                 |server| python(server, "basics.py")),
    ("go-redis drains a hash by HSCAN",          |server| go(server, "drain")),
    ("ioredis",                                  |server| node(&[server], "basics.js")),
    ("Jedis",                                    |server| java(server, "Basics.java")),
    ("redis-py: transactions, messages",         |server| python(server, "programs.py")),
    ("redis-py: queues",                         |server| python(server, "queues.py")),
    ("go-redis: transactions, messages, queues", |server| go(server, "programs")),
    ("ioredis: transactions, messages, queues",  |server| node(&[server], "programs.js")),
    ("Jedis: transactions, messages, queues",    |server| java(server, "Programs.java")),
    ("node-redis: copies, tracking",             |server| node(&[server], "caching.js")),
    ("go-redis: copies, tracking",               |server| go(server, "caching")),
    ("ioredis: copies, tracking",                |server| node(&[server], "redirect.js")),
    ("Jedis: copies, tracking",                  |server| java(server, "Caching.java")),
    ("redis-py's own tests, RESP2",              |server| redis_py_tests(server, "2")),
    ("redis-py's own tests, RESP3",              |server| redis_py_tests(server, "3")),
];

/// The files of redis-py's suite that need one plain server.
const FILES: &[&str] = &[
    "tests/test_commands.py",
    "tests/test_asyncio/test_commands.py",
    "tests/test_hash.py",
    "tests/test_json.py",
    "tests/test_bloom.py",
    "tests/test_encoding.py",
    "tests/test_monitor.py",
    "tests/test_pipeline.py",
    "tests/test_pubsub.py",
    "tests/test_connection_pool.py",
    "tests/test_scripting.py",
    "tests/test_function.py",
    "tests/test_lock.py",
    "tests/test_asyncio/test_hash.py",
    "tests/test_asyncio/test_json.py",
    "tests/test_asyncio/test_bloom.py",
    "tests/test_asyncio/test_encoding.py",
    "tests/test_asyncio/test_monitor.py",
    "tests/test_asyncio/test_pipeline.py",
    "tests/test_asyncio/test_pubsub.py",
    "tests/test_asyncio/test_scripting.py",
    "tests/test_asyncio/test_lock.py",
];

/// Tests that are skipped, because of the peer or the environment; see docs/compat.md.
const DESELECTED: &[&str] = &[
    // These tests fail against redis-server 7.0.15 too.
    "test_acl_getuser_setuser",
    "test_acl_log",
    "test_psync",
    "test_module",
    "test_module_loadex",
    // The test expects the order in which RedisBloom's heap returns items of equal counts.
    "test_topk",
    // The test needs a Python library that no other test needs.
    "test_custom_decoder",
];

/// Tests of asyncio that expect a reply within a tenth of a second, too little on a busy machine.
const HASTY: &[&str] = &[
    "tests/test_asyncio/test_pubsub.py::TestPubSubRun::test_late_subscribe",
    "tests/test_asyncio/test_pubsub.py::TestPubSubAutoReconnect",
];

fn redis_py_tests(server: &Server, protocol: &str) -> Result<(), String> {
    let source = install::redis_py_source()?;
    let mut command = program(install::python()?);
    command.current_dir(&source).env("PYTHONPATH", sources().join("python"));
    command.args(["-m", "pytest", "-q", "-rsf", "--tb=line", "-p", "no:cacheprovider"]);
    // Without this option, the tests of asyncio are skipped.
    command.args(["-o", "asyncio_mode=auto"]);
    command.args([
        "-p",
        "only_present",
        "-W",
        "ignore",
        "--timeout",
        "30",
        "-m",
        "not onlycluster",
    ]);
    let url = format!("redis://127.0.0.1:{}/9", server.port());
    command.args(["--redis-url", &url, "--redis-mod-url", &url, "--protocol", protocol]);
    let left_out = DESELECTED.iter().map(|name| format!("not {name}")).collect::<Vec<_>>();
    command.arg("-k").arg(left_out.join(" and ")).args(FILES);
    command.args(HASTY.iter().flat_map(|name| ["--deselect", name]));
    let output = run(&mut command, b"", Duration::from_secs(600))?;
    let needs = output.lines().filter(|line| line.contains("needs ")).count();
    let last = output.lines().last().unwrap_or_default();
    println!("  redis-py's tests, RESP{protocol}: {last}, {needs} reasons of absent commands");
    ensure(last.contains("passed"), || output.clone())
}
