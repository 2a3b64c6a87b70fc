//! Programs with the usual client libraries, and redis-py's own tests.

use crate::install::{self, run, sources};
use crate::{Check, ensure};
use darter_testkit::Server;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("redis-py",                         redis_py),
    ("go-redis drains a hash by HSCAN",  go_redis),
    ("ioredis",                          ioredis),
    ("Jedis",                            jedis),
    ("redis-py: transactions, messages", redis_py_programs),
    ("redis-py: queues",                 redis_py_queues),
    ("go-redis: transactions, messages, queues", go_redis_programs),
    ("ioredis: transactions, messages, queues",  ioredis_programs),
    ("Jedis: transactions, messages, queues",    jedis_programs),
    ("redis-py's own tests, RESP2",      |server| redis_py_tests(server, "2")),
    ("redis-py's own tests, RESP3",      |server| redis_py_tests(server, "3")),
];

fn show(output: &str) {
    print!("{output}");
}

fn redis_py(server: &Server) -> Result<(), String> {
    python(server, "basics.py")
}

fn redis_py_programs(server: &Server) -> Result<(), String> {
    python(server, "programs.py")
}

fn redis_py_queues(server: &Server) -> Result<(), String> {
    python(server, "queues.py")
}

fn python(server: &Server, program: &str) -> Result<(), String> {
    let mut command = Command::new(install::python()?);
    command.arg(sources().join("python").join(program)).arg(server.port().to_string());
    run(&mut command, b"", LIMIT).map(|output| show(&output))
}

fn go_redis(server: &Server) -> Result<(), String> {
    go(server, "drain")
}

fn go_redis_programs(server: &Server) -> Result<(), String> {
    go(server, "programs")
}

fn go(server: &Server, program: &str) -> Result<(), String> {
    let mut command = Command::new(install::go()?);
    run(command.arg(server.port().to_string()).arg(program), b"", LIMIT).map(|output| show(&output))
}

fn ioredis(server: &Server) -> Result<(), String> {
    node(server, "basics.js")
}

fn ioredis_programs(server: &Server) -> Result<(), String> {
    node(server, "programs.js")
}

fn node(server: &Server, program: &str) -> Result<(), String> {
    let mut command = Command::new("node");
    command.current_dir(install::node()?).arg(program).arg(server.port().to_string());
    run(&mut command, b"", LIMIT).map(|output| show(&output))
}

fn jedis(server: &Server) -> Result<(), String> {
    java(server, "Basics.java")
}

fn jedis_programs(server: &Server) -> Result<(), String> {
    java(server, "Programs.java")
}

fn java(server: &Server, program: &str) -> Result<(), String> {
    let mut command = Command::new("java");
    command.current_dir(install::java()?).args(["-cp", "jars/*", program]);
    run(command.arg(server.port().to_string()), b"", LIMIT).map(|output| show(&output))
}

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
];

/// Tests left out by name, because of the peer or the environment; see docs/compat.md.
const DESELECTED: &[&str] = &[
    // They fail against redis-server 7.0.15 too.
    "test_acl_getuser_setuser",
    "test_acl_log",
    "test_psync",
    "test_module",
    "test_module_loadex",
    // It expects the order that RedisBloom's heap gives to items of equal counts.
    "test_topk",
    // It needs a Python library that no other test needs.
    "test_custom_decoder",
];

fn redis_py_tests(server: &Server, protocol: &str) -> Result<(), String> {
    let source = install::redis_py_source()?;
    let mut command = Command::new(install::python()?);
    command.current_dir(&source).env("PYTHONPATH", sources().join("python"));
    command.args(["-m", "pytest", "-q", "-rsf", "--tb=line", "-p", "no:cacheprovider"]);
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
    let output = run(&mut command, b"", Duration::from_secs(400))?;
    let needs = output.lines().filter(|line| line.contains("needs ")).count();
    let last = output.lines().last().unwrap_or_default();
    println!("  redis-py's tests, RESP{protocol}: {last}, {needs} reasons of absent commands");
    ensure(last.contains("passed"), || output.clone())
}
