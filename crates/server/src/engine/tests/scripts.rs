//! Scripts that run at once, and those that go on as a task.

use super::*;
use darter_tx::{Access, lock_key};

/// Sends EVAL, with text in quotes. The first time it is compiled by a task.
fn eval(text: &str, words: &str) -> String {
    format!("EVAL \"{text}\" {words}")
}

/// Loads a script: the EVALSHA of it, which also begins at once in a slice of one portion.
fn known(bench: &Bench, text: &str, words: &str) -> String {
    let reply = bench.ask(0, &format!("SCRIPT LOAD \"{text}\""));
    format!("EVALSHA {} {words}", reply.lines().nth(1).unwrap())
}

fn lock_of(key: &str) -> u64 {
    lock_key(0, darter_keyspace::Key::new(key.as_bytes()).hash)
}

fn is_idle(bench: &Bench) -> bool {
    let is_idle = |core: &Rc<Core>| {
        core.tx.tasks_len() == 0 && core.tx.home().locks.is_free() && core.machines.running() == 0
    };
    bench.cores.iter().all(is_idle)
}

#[test] // Nothing is left for another turn: no task, no lock.
fn a_script_that_is_known_runs_at_once() {
    let bench = Bench::new(1);
    let line = eval("redis.call('INCR', KEYS[1]) return ARGV[1]", "1 k a");
    assert_eq!(bench.ask(0, &line), "$1\r\na\r\n");
    bench.send(0, &line);
    bench.turn(0);
    assert!(is_idle(&bench));
    assert_eq!(bench.got(0), "$1\r\na\r\n");
    assert_eq!(bench.ask(0, "GET k"), "$1\r\n2\r\n");
    let fails = eval("redis.call('INCR', KEYS[1]) return redis.call('LPUSH', KEYS[1], 1)", "1 k");
    for count in [3, 4] {
        assert!(bench.ask(0, &fails).starts_with("-WRONGTYPE"), "as in Redis nothing is undone");
        assert_eq!(bench.ask(0, "GET k"), format!("$1\r\n{count}\r\n"));
    }
}

#[test] // It passes no key that somebody holds, named or not, and what it has done by then stays or goes.
fn a_script_waits_for_keys_that_are_held() {
    for (text, words) in [
        ("return redis.call('INCR', KEYS[1])", "1 held"),
        ("redis.call('INCR', 'free') return redis.call('INCR', 'held')", "0"),
    ] {
        let bench = Bench::new(1);
        bench.ask(0, &eval(text, words));
        let held = bench.cores[0].tx.try_lock_here(lock_of("held"), Access::Update);
        assert_eq!(bench.ask(0, &eval(text, words)), "", "{text}");
        drop(held);
        bench.settle();
        assert_eq!(bench.got(0), ":2\r\n", "{text}");
        let free = if words == "0" { "$1\r\n2\r\n" } else { "$-1\r\n" };
        assert_eq!(bench.ask(0, "GET free"), free, "it is done once");
        assert!(is_idle(&bench));
    }
}

#[test] // What does not end in its slice is a task, and others see all of it or nothing.
fn a_script_goes_on() {
    let mut bench = Bench::new(1);
    let other = bench.connect(0);
    let text = "for i = 1, 20 do redis.call('INCR', KEYS[1]) for j = 1, 500 do end \
        redis.call('INCR', 'b') end return 1";
    let line = known(&bench, text, "1 a");
    assert_eq!(bench.ask(0, &line), ":1\r\n");
    bench.short.set(true);
    bench.send(0, &line);
    bench.turn(0);
    assert_eq!((bench.cores[0].machines.running(), bench.got(0).as_str()), (1, ""));
    bench.send(other, "GET a"); // It is named, so it is locked.
    (0..10).for_each(|_| bench.settle());
    assert_eq!(bench.got(other), "$2\r\n40\r\n");
    assert_eq!((bench.got(0).as_str(), is_idle(&bench)), (":1\r\n", true));
}

#[test] // One that is killed after it has gone on has done nothing.
fn a_script_that_went_on_is_undone() {
    let mut bench = Bench::new(1);
    let other = bench.connect(0);
    bench.ask(0, "SET a 1");
    let text = "redis.call('INCR', KEYS[1]) while ARGV[1] == '1' do end return 1";
    let line = known(&bench, text, "1 a");
    assert_eq!(bench.ask(0, &format!("{line} 0")), ":1\r\n");
    bench.short.set(true);
    bench.send(0, &format!("{line} 1"));
    bench.round();
    bench.send(other, "SCRIPT KILL");
    (0..10).for_each(|_| bench.settle());
    assert_eq!(bench.got(other), "+OK\r\n");
    assert!(bench.got(0).starts_with("-ERR Script killed"));
    assert_eq!((bench.ask(other, "GET a").as_str(), is_idle(&bench)), ("$1\r\n2\r\n", true));
}

#[test] // It does not overtake what its pipeline has sent to another core, and is done once.
fn a_script_in_a_pipeline_keeps_its_order() {
    let bench = Bench::new(2);
    let (here, there) = (bench.key(0), bench.key(1));
    let text =
        format!("local n = redis.call('INCR', KEYS[1]) return {{n, redis.call('GET', '{there}')}}");
    let line = eval(&text, &format!("1 {here}"));
    bench.ask(0, &line);
    for count in 2..5 {
        let got = bench.ask(0, &format!("SET {there} {count}\r\n{line}\r\nPING"));
        assert_eq!(got, format!("+OK\r\n*2\r\n:{count}\r\n$1\r\n{count}\r\n+PONG\r\n"));
    }
    assert!(is_idle(&bench));
}

#[test] // Those who wait for a key are served after it, whether it runs at once or goes on.
fn who_waits_is_served_after_a_script() {
    for is_short in [false, true] {
        let mut bench = Bench::new(1);
        let other = bench.connect(0);
        let text = "redis.call('RPUSH', KEYS[1], 1, 2) for i = 1, 5000 do end \
            return redis.call('LLEN', KEYS[1])";
        let line = known(&bench, text, "1 q");
        bench.ask(other, &line);
        bench.ask(other, "DEL q");
        assert_eq!(bench.ask(0, "BLPOP q 0"), "");
        bench.short.set(is_short);
        bench.send(other, &line);
        (0..10).for_each(|_| bench.settle());
        assert_eq!(bench.got(other), ":2\r\n", "it sees what it has pushed");
        assert_eq!(bench.got(0), "*2\r\n$1\r\nq\r\n$1\r\n1\r\n");
        assert_eq!(bench.ask(other, "LLEN q"), ":1\r\n");
        assert!(is_idle(&bench));
    }
}
