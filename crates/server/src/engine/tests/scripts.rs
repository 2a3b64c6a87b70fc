//! Scripts that run at once, and scripts that continue as tasks.

use super::super::core::Mail;
use super::*;
use darter_tx::{Access, lock_key};

/// An EVAL with this text, quoted. The first one runs as a task, which compiles the script.
fn eval(text: &str, words: &str) -> String {
    format!("EVAL \"{text}\" {words}")
}

/// Loads a script, and returns an EVALSHA that runs at once, even in a slice of one portion.
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

#[test] // After the script, no task and no lock is left.
fn a_cached_script_runs_without_a_task() {
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

#[test] // Writes before an undeclared locked key are undone and repeated.
fn a_script_waits_for_a_locked_key_and_runs_once() {
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

#[test] // The script runs on this core, or on the core of its keys.
fn a_script_that_meets_a_locked_undeclared_key_is_undone_and_restarted() {
    for home in [0, 1] {
        let bench = Bench::new(2);
        let key = bench.key(home);
        let (free, held) = (format!("{{{key}}}free"), format!("{{{key}}}held"));
        let text = format!("redis.call('INCR', KEYS[1]) return redis.call('INCR', '{held}')");
        let line = eval(&text, &format!("1 {free}"));
        assert_eq!(bench.ask(0, &line), ":1\r\n");
        let lock = bench.cores[home].tx.try_lock_here(lock_of(&held), Access::Update);
        bench.send(0, &line);
        bench.settle();
        drop(lock);
        bench.settle();
        assert_eq!(
            (bench.got(0), bench.ask(0, &format!("GET {free}"))),
            (":2\r\n".into(), "$1\r\n2\r\n".into())
        );
        let restarted = |core: &Rc<Core>| core.stats.borrow().scripts_restarted;
        assert_eq!(bench.cores.iter().map(restarted).sum::<u64>(), 1);
    }
}

#[test] // Other clients see all writes of the script, or none.
fn a_long_script_continues_as_a_task() {
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
    bench.send(other, "GET a"); // The script has declared the key, so it is locked.
    (0..10).for_each(|_| bench.settle());
    assert_eq!(bench.got(other), "$2\r\n40\r\n");
    assert_eq!((bench.got(0).as_str(), is_idle(&bench)), (":1\r\n", true));
}

#[test]
fn the_writes_of_a_script_killed_as_a_task_are_undone() {
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

#[test] // The earlier requests are for another core. The script runs once.
fn a_script_does_not_overtake_earlier_requests_of_its_pipeline() {
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

#[test] // The script runs at once, or continues as a task.
fn blpop_gets_the_element_pushed_by_a_script() {
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

#[test] // There is one message each way. Later requests for other cores wait.
fn a_script_is_sent_to_the_core_of_its_keys() {
    let bench = Bench::new(2);
    let (mine, key) = (bench.key(0), bench.key(1));
    let text = "local key = KEYS[1] redis.call('INCR', key) return redis.call('GET', key)";
    let lines = [known(&bench, text, &format!("1 {key}")), eval(text, &format!("1 {key}"))];
    assert_eq!(bench.ask(0, &lines[1]), "$1\r\n1\r\n");
    for (at, line) in lines.iter().enumerate() {
        bench.send(0, &format!("{line}\r\nSET {mine} x\r\n{line}\r\nGET {key}\r\nPING"));
        bench.turn(0);
        assert_eq!(bench.mail.borrow()[1].len(), 1, "the first leaves");
        bench.settle();
        let values = [2, 3].map(|count| format!("$1\r\n{}\r\n", 2 * at + count));
        let [first, last] = &values;
        assert_eq!(bench.got(0), format!("{first}+OK\r\n{last}{last}+PONG\r\n"));
        assert!(is_idle(&bench));
    }
}

#[test]
fn a_trusted_script_delays_no_later_requests_until_it_uses_an_undeclared_key() {
    let bench = Bench::new(2);
    let (mine, key) = (bench.key(0), bench.key(1));
    let text = "if ARGV[1] then redis.call('GET', ARGV[1]) end return redis.call('GET', KEYS[1])";
    let line = known(&bench, text, &format!("1 {key}"));
    // True if all requests of a pipeline over two cores leave in one turn.
    let leave_together = || {
        bench.send(0, &format!("{line}\r\nSET {mine} x\r\n{line}\r\nGET {key}"));
        bench.turn(0);
        let leaves = match &bench.mail.borrow()[1][0] {
            (0, Mail::Batch(batch)) => batch.items.len(),
            _ => panic!("no batch for core 1"),
        };
        bench.settle();
        assert_eq!(bench.got(0), "$-1\r\n+OK\r\n$-1\r\n$-1\r\n");
        leaves == 3
    };
    // The script has keys of both cores, so its connection does not move.
    let run_often = || {
        let both = format!("{line}\r\nGET {mine}");
        (0..darter_script::PROVEN_RUNS).for_each(|_| drop(bench.ask(0, &both)));
    };
    assert!(!leave_together());
    run_often();
    assert!(leave_together());
    assert_eq!(bench.ask(0, &format!("{line} {mine}")), "$-1\r\n");
    run_often();
    assert!(!leave_together());
}

#[test]
fn a_script_on_another_core_may_fail_or_use_undeclared_keys() {
    let bench = Bench::new(2);
    let (here, there) = (bench.key(0), bench.key(1));
    let text = "return #KEYS + redis.call('EXISTS', unpack(KEYS))";
    bench.ask(0, &format!("MSET {here} 1 {there} 2"));
    for (words, reply) in [
        (format!("1 {here}"), ":2\r\n"),
        (format!("2 {here} {there}"), ":4\r\n"),
        (format!("2 {there} {there}"), ":4\r\n"),
        (format!("1 {there}"), ":2\r\n"),
    ] {
        for _ in 0..2 {
            assert_eq!(bench.ask(0, &eval(text, &words)), reply, "{words}");
            assert!(is_idle(&bench));
        }
    }
    for (line, reply) in [
        (format!("EVAL \"return 1\" 2 {there}"), "-ERR Number of keys can't be greater"),
        (format!("EVAL nonsense 1 {there}"), "-ERR Error compiling script"),
        (format!("EVALSHA {} 1 {there}", "0".repeat(40)), "-NOSCRIPT"),
        (format!("FCALL absent 1 {there}"), "-ERR Function not found"),
        (format!("EVAL_RO \"return redis.call('DEL', KEYS[1])\" 1 {there}"), "-ERR Write commands"),
        (format!("EVAL \"return redis.call('LPUSH', KEYS[1], 1)\" 1 {there}"), "-WRONGTYPE"),
    ] {
        for _ in 0..2 {
            let got = bench.ask(0, &line);
            assert!(got.starts_with(reply), "{line}: {got}");
            assert!(is_idle(&bench));
        }
    }
}

#[test]
fn a_script_on_another_core_waits_for_a_locked_key_and_runs_once() {
    for names_it in [true, false] {
        let bench = Bench::new(2);
        let (free, held) = (bench.key(1), format!("{{{}}}held", bench.key(1)));
        let text = format!(
            "redis.call('INCR', KEYS[1]) return redis.call('INCR', {})",
            if names_it { "KEYS[2]".to_owned() } else { format!("'{held}'") }
        );
        let line = match names_it {
            true => eval(&text, &format!("2 {free} {held}")),
            false => eval(&text, &format!("1 {free}")),
        };
        assert_eq!(bench.ask(0, &line), ":1\r\n");
        let lock = bench.cores[1].tx.try_lock_here(lock_of(&held), Access::Update);
        bench.send(0, &format!("{line}\r\nGET {free}"));
        bench.settle();
        assert_eq!(bench.got(0), "", "{text}");
        drop(lock);
        bench.settle();
        assert_eq!(bench.got(0), ":2\r\n$1\r\n2\r\n", "{text}");
        assert!(is_idle(&bench));
    }
}

#[test]
fn a_long_script_on_another_core_continues_there_as_a_task() {
    let mut bench = Bench::new(2);
    let (key, other) = (bench.key(1), bench.connect(1));
    let text = "for i = 1, 20 do redis.call('INCR', KEYS[1]) for j = 1, 500 do end end return 1";
    let line = known(&bench, text, &format!("1 {key}"));
    assert_eq!(bench.ask(0, &line), ":1\r\n");
    bench.short.set(true);
    bench.send(0, &line);
    bench.round();
    let runs = || [0, 1].map(|at| bench.cores[at].machines.running());
    assert_eq!((runs(), bench.got(0).as_str()), ([0, 1], ""));
    bench.send(other, &format!("GET {key}"));
    (0..10).for_each(|_| bench.settle());
    assert_eq!(bench.got(other), "$2\r\n40\r\n");
    assert_eq!((bench.got(0).as_str(), is_idle(&bench)), (":1\r\n", true));
}

#[test] // The writes of the killed script are undone.
fn script_kill_on_any_core_kills_a_script_on_another_core() {
    let mut bench = Bench::new(2);
    let (key, other) = (bench.key(1), bench.connect(0));
    let text = "redis.call('INCR', KEYS[1]) while ARGV[1] == '1' do end return 1";
    let line = known(&bench, text, &format!("1 {key}"));
    assert_eq!(bench.ask(0, &format!("{line} 0")), ":1\r\n");
    bench.short.set(true);
    bench.send(0, &format!("{line} 1\r\nGET {key}"));
    (0..3).for_each(|_| bench.round());
    bench.send(other, "SCRIPT KILL");
    (0..10).for_each(|_| bench.settle());
    assert_eq!(bench.got(other), "+OK\r\n");
    let got = bench.got(0);
    assert!(got.starts_with("-ERR Script killed") && got.ends_with("$1\r\n1\r\n"), "{got}");
    assert!(is_idle(&bench));
}

#[test] // The script runs after all earlier requests, and before all later ones.
fn a_script_with_undeclared_keys_keeps_the_order_of_its_pipeline() {
    let bench = Bench::new(3);
    let keys = [0, 1, 2].map(|core| bench.key(core));
    let text = format!(
        "redis.call('INCR', KEYS[1]) redis.call('INCR', '{0}') redis.call('INCR', '{2}') \
        return redis.call('MGET', '{0}', '{1}', '{2}')",
        keys[0], keys[1], keys[2]
    );
    let line = eval(&text, &format!("1 {}", keys[1]));
    for round in 0..3 {
        bench.ask(0, &format!("MSET {} 1 {} 1 {} 1", keys[0], keys[1], keys[2]));
        let [here, there, third] = keys.each_ref().map(|key| format!("INCR {key}\r\n"));
        let pipeline = format!("{here}{third}{there}{line}\r\n{there}{line}\r\n{here}{third}PING");
        let values = |count: u64| format!("$1\r\n{count}\r\n").repeat(3);
        let expected = format!(
            ":2\r\n:2\r\n:2\r\n*3\r\n{}:4\r\n*3\r\n$1\r\n4\r\n$1\r\n5\r\n$1\r\n4\r\n:5\r\n:5\r\n+PONG\r\n",
            values(3)
        );
        assert_eq!(bench.ask(0, &pipeline), expected, "{round}");
        assert!(is_idle(&bench));
    }
}

#[test] // The blocked client is on the core of the key.
fn blpop_gets_the_element_pushed_by_a_script_from_another_core() {
    let mut bench = Bench::new(2);
    let (key, other) = (bench.key(1), bench.connect(1));
    let text = "redis.call('RPUSH', KEYS[1], 1, 2) return redis.call('LLEN', KEYS[1])";
    let line = known(&bench, text, &format!("1 {key}"));
    assert_eq!(bench.ask(other, &format!("BLPOP {key} 0")), "");
    assert_eq!(bench.ask(0, &line), ":2\r\n", "it sees what it has pushed");
    assert_eq!(bench.got(other), format!("*2\r\n${}\r\n{key}\r\n$1\r\n1\r\n", key.len()));
    assert_eq!(bench.ask(0, &format!("LLEN {key}")), ":1\r\n");
}

#[test] // A script with the flag no-writes is not held.
fn client_pause_holds_writing_scripts_of_other_cores() {
    let bench = Bench::new(2);
    let key = bench.key(1);
    let writes = known(&bench, "return redis.call('INCR', KEYS[1])", &format!("1 {key}"));
    let text = "#!lua flags=no-writes\\nreturn redis.call('GET', KEYS[1])";
    let reads = known(&bench, text, &format!("1 {key}"));
    bench.send(0, &format!("{reads}\r\n{writes}\r\n{reads}"));
    bench.turn(0);
    let until = bench.cores[1].now_ms() + 5_000;
    bench.cores[1].hot.borrow_mut().pause = Some((until, false));
    bench.settle();
    assert_eq!(bench.got(0), "$-1\r\n");
    bench.pass_ms(5_000);
    (0..3).for_each(|_| bench.tick(1));
    bench.settle();
    assert_eq!(bench.got(0), ":1\r\n$1\r\n1\r\n");
}

#[test] // A script that has written does not stop.
fn an_endless_script_on_another_core_stops_when_its_client_closes() {
    let reads = "while true do redis.call('GET', KEYS[1]) end";
    let writes = "redis.call('INCR', KEYS[1]) while true do end";
    for (command, text, behind, ends) in [
        ("EVAL", reads, "", true),
        ("EVAL", writes, "", false),
        ("EVAL", reads, "SET {key} 1", false),
        ("EVAL_RO", reads, "SET {key} 1", true),
    ] {
        let bench = Bench::new(2);
        let key = bench.key(1);
        bench.short.set(true);
        let behind = behind.replace("{key}", &key);
        bench.send(0, &format!("{command} \"{text}\" 1 {key}\r\n{behind}"));
        (0..10).for_each(|_| bench.round());
        assert_eq!(bench.cores[1].machines.running(), 1, "{text}");
        bench.cores[0].closed(bench.clients[0].token);
        (0..10).for_each(|_| bench.settle());
        assert_eq!(is_idle(&bench), ends, "{command} {text} {behind}");
    }
}

#[test] // The connection is closed when the script has stopped.
fn a_reading_script_on_another_core_stops_soon_after_a_half_close() {
    for ended_first in [false, true] {
        let bench = Bench::new(2);
        bench.short.set(true);
        let text = "while true do redis.call('GET', KEYS[1]) end";
        bench.send(0, &format!("EVAL_RO \"{text}\" 1 {}", bench.key(1)));
        if !ended_first {
            (0..10).for_each(|_| bench.round());
            assert_eq!(bench.cores[1].machines.running(), 1);
        }
        bench.cores[0].ended(bench.clients[0].token);
        bench.clock.reading_ns.set(1_000_000);
        (0..20).for_each(|_| bench.settle());
        assert!(is_idle(&bench) && bench.is_closed(0), "{ended_first}");
    }
}

#[test]
fn monitor_shows_a_script_on_another_core_once_and_before_its_calls() {
    let mut bench = Bench::new(2);
    let (key, other) = (bench.key(1), bench.connect(0));
    let line = known(&bench, "return redis.call('GET', KEYS[1])", &format!("1 {key}"));
    bench.ask(0, &line);
    assert_eq!(bench.ask(other, "MONITOR"), "+OK\r\n");
    assert_eq!(bench.ask(0, &line), "$-1\r\n");
    let shown = bench.got(other);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2, "{shown}");
    assert!(lines[0].contains("\"EVALSHA\"") && lines[1].contains("lua] \"GET\""), "{shown}");
}
