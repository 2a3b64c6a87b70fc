//! MULTI and WATCH: other connections, time, several cores, and CLIENT REPLY.

use super::*;
use darter_base::Prng;

impl Bench {
    /// Sends lines together. Returns all replies.
    fn all(&self, client: usize, lines: &[&str]) -> String {
        self.ask(client, &lines.join("\r\n"))
    }

    /// Like [`Bench::all`], in a transaction. Returns the reply of EXEC.
    fn exec(&self, client: usize, lines: &[&str]) -> String {
        let got = self.all(client, &[&["MULTI"], lines, &["EXEC"]].concat());
        let queued = format!("+OK\r\n{}", "+QUEUED\r\n".repeat(lines.len()));
        got.strip_prefix(&queued).unwrap_or_else(|| panic!("{got:?}")).to_owned()
    }

    fn is_clean(&self) -> bool {
        let is_free = |core: &Rc<Core>| {
            let mut home = core.tx.home();
            home.locks.is_free() && !home.shard.is_watched() && core.tx.tasks_len() == 0
        };
        self.cores.iter().all(is_free)
    }
}

#[test] // BGSAVE, DBSIZE and FLUSHALL inside EXEC reply as in Redis.
fn commands_over_all_keys_work_inside_exec() {
    for cores in [1, 2, 3] {
        let bench = Bench::new(cores);
        let (one, other) = (bench.key(0), bench.key(cores - 1));
        let (set, get) = (format!("SET {one} 1"), format!("GET {other}"));
        let got = bench.exec(0, &[&set, "BGSAVE", &get, "MONITOR", "DBSIZE", "FLUSHALL"]);
        let monitor = "-ERR MONITOR isn't allowed for DENY BLOCKING client\r\n";
        let value = if cores == 1 { "$1\r\n1\r\n" } else { "$-1\r\n" };
        let expected =
            format!("*6\r\n+OK\r\n+Background saving scheduled\r\n{value}{monitor}:1\r\n+OK\r\n");
        assert_eq!(got, expected, "{cores} cores");
        assert!(bench.is_clean());
    }
}

#[test] // As in Redis, the announced length of the array stays the same.
fn client_reply_inside_exec_drops_replies() {
    #[rustfmt::skip] // A table.
    let cases: &[(&[&str], &str, &str)] = &[
        (&["PING a", "CLIENT REPLY SKIP", "PING b"], "*3\r\n$1\r\na\r\n$1\r\nb\r\n", ""),
        (&["PING a", "CLIENT REPLY OFF", "PING b"], "*3\r\n$1\r\na\r\n", ""),
        (&["CLIENT REPLY OFF", "PING b", "CLIENT REPLY ON", "PING c"], "*4\r\n+OK\r\n$1\r\nc\r\n", "+PONG\r\n"),
    ];
    for (lines, expected, after) in cases {
        let bench = Bench::new(2);
        assert_eq!(bench.exec(0, lines), *expected, "{lines:?}");
        assert_eq!(bench.ask(0, "PING"), *after, "{lines:?}");
        bench.ask(0, "CLIENT REPLY ON");
        assert_eq!(bench.exec(0, &["PING"]), "*1\r\n+PONG\r\n");
    }
    let bench = Bench::new(1);
    bench.all(0, &["MULTI", "PING"]);
    assert_eq!(
        bench.all(0, &["RESET", "CLIENT REPLY SKIP", "EXEC", "PING"]),
        "+RESET\r\n+PONG\r\n"
    );
}

#[test] // Each command is shown with its own database.
fn monitor_shows_the_commands_of_exec_before_exec() {
    for cores in [1, 2] {
        let mut bench = Bench::new(cores);
        let watcher = bench.connect(0);
        bench.ask(watcher, "MONITOR");
        bench.ask(0, "MULTI");
        bench.all(0, &["SET k v", "SELECT 3", "GET k", "CONFIG SET maxmemory 0"]);
        let shown = |text: String| -> Vec<String> {
            let lines = text.lines().map(|line| line.split_once(" [").unwrap().1.to_owned());
            lines.map(|line| line.replace(" ]", "]")).collect()
        };
        assert_eq!(shown(bench.got(watcher)), ["0] \"MULTI\""]);
        bench.ask(0, "EXEC");
        let expected =
            ["0] \"SET\" \"k\" \"v\"", "3] \"SELECT\" \"3\"", "3] \"GET\" \"k\"", "3] \"EXEC\""];
        assert_eq!(shown(bench.got(watcher)), expected, "{cores} cores");
    }
}

#[test] // Expiry is a change. RESET, UNWATCH and DISCARD end the watch.
fn exec_fails_after_a_change_of_a_watched_key_on_any_core() {
    for cores in [1, 2] {
        let mut bench = Bench::new(cores);
        let (key, other) = (bench.key(cores - 1), bench.connect(cores - 1));
        let (watch, get) = (format!("WATCH {key}"), format!("GET {key}"));
        let touch = format!("SET {key} v PX 1000");
        bench.ask(other, &touch);
        for (number, ends) in ["UNWATCH", "RESET", "MULTI\r\nDISCARD", "EXEC x"].iter().enumerate()
        {
            assert_eq!(bench.ask(0, &watch), "+OK\r\n");
            bench.ask(other, &touch);
            bench.ask(0, ends);
            assert!(bench.is_clean(), "{cores} cores: {ends}");
            assert_eq!(bench.exec(0, &[&get]), "*1\r\n$1\r\nv\r\n", "{number}");
        }
        bench.ask(0, &watch);
        assert!(bench.ask(0, "CLIENT INFO").contains("flags=N "));
        bench.ask(other, &touch);
        assert!(bench.ask(0, "CLIENT INFO").contains("flags=d "));
        assert_eq!(bench.exec(0, &[&get]), "*-1\r\n", "{cores} cores: touched");
        assert!(bench.ask(0, "CLIENT INFO").contains("flags=N "));
        bench.ask(0, &watch);
        bench.pass_ms(1_001);
        assert_eq!(bench.exec(0, &[&get]), "*-1\r\n", "{cores} cores: its time has passed");
        bench.ask(0, &watch);
        bench.cores[0].closed(bench.clients[0].token);
        bench.settle();
        assert!(bench.is_clean(), "{cores} cores: the client is gone");
    }
}

#[test]
fn writes_before_watch_in_the_same_pipeline_do_not_touch_the_watched_key() {
    let bench = Bench::new(2);
    let key = bench.key(1);
    let (set, watch) = (format!("SET {key} 1"), format!("WATCH {key}"));
    let lines = [&*set, &watch, "MULTI", &set, "EXEC", &watch, &set, "MULTI", "EXEC"];
    let expected = "+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n*-1\r\n";
    assert_eq!(bench.all(0, &lines), expected);
}

#[test] // Each slice has time for one portion only.
fn watch_and_exec_work_with_very_many_keys() {
    for cores in [1, 2] {
        let mut bench = Bench::new(cores);
        let other = bench.connect(cores - 1);
        let names: Vec<String> = (0..2_000).map(|at| format!("k{at}")).collect();
        bench.short.set(true);
        let patient = |client: usize, line: &str| {
            bench.send(client, line);
            (0..20_000).for_each(|_| bench.round());
            bench.got(client)
        };
        assert_eq!(patient(0, &format!("WATCH {}", names.join(" "))), "+OK\r\n");
        let sets: String = names.iter().map(|name| format!("SET {name} v\r\n")).collect();
        let got = patient(0, &format!("MULTI\r\n{sets}EXEC"));
        assert!(got.ends_with(&format!("*2000\r\n{}", "+OK\r\n".repeat(2_000))), "{cores}: {got}");
        patient(0, &format!("WATCH {}", names.join(" ")));
        patient(other, "SET k1999 w");
        assert!(patient(0, "MULTI\r\nEXEC").ends_with("*-1\r\n"), "{cores} cores");
        assert!(bench.is_clean());
    }
}

#[test] // An EXEC that has begun, or runs on another core, does not stop.
fn exec_of_a_closed_client_stops_if_it_still_waits_for_locks() {
    for (cores, has_begun, goes_on) in [
        (&[1, 0][..], false, false),
        (&[1, 0], true, true),
        (&[0], false, false),
        (&[0], true, true),
        (&[1], false, true),
        (&[1], true, true),
    ] {
        let mut bench = Bench::new(2);
        let keys: Vec<String> = cores.iter().map(|core| bench.key(*core)).collect();
        let (key, other) = (&keys[0], bench.connect(1));
        let held = darter_tx::lock_key(0, darter_keyspace::Key::new(key.as_bytes()).hash);
        let lock = || bench.cores[cores[0]].tx.try_lock_here(held, darter_tx::Access::Exclusive);
        let locked = (!has_begun).then(lock);
        bench.short.set(true);
        let commands: String = keys.iter().map(|key| format!("INCR {key}\r\n")).collect();
        bench.send(0, &format!("MULTI\r\n{}EXEC", commands.repeat(50)));
        (0..160).for_each(|_| bench.round());
        bench.cores[0].closed(bench.clients[0].token);
        bench.settle();
        drop(locked);
        bench.short.set(false);
        bench.settle();
        let expected = if goes_on { "$2\r\n50\r\n" } else { "$-1\r\n" };
        let reply = bench.ask(other, &format!("GET {key}"));
        assert_eq!(reply, expected, "keys of {cores:?}, begun: {has_begun}");
        assert!(bench.is_clean());
    }
}

#[test] // At the same time, other tasks hold many other keys.
fn a_long_exec_continues_as_a_task() {
    let bench = Bench::new(1);
    let mut others = darter_tx::KeyList::with_capacity(1_000);
    (0..1_000).for_each(|other| others.push(other));
    let others = darter_tx::Claim::List(Arc::new(others), darter_tx::Access::Exclusive);
    let element = format!(" {}", "e".repeat(100));
    bench.ask(0, &format!("RPUSH list{}", element.repeat(10_000)));
    const OTHER: u64 = 1 << 40;
    let locks = |act: &dyn Fn(&mut darter_tx::LockTable)| act(&mut bench.cores[0].tx.home().locks);
    locks(&|locks| assert!(locks.try_acquire(OTHER, &others)));
    let sets: String = (0..70).map(|at| format!("SET k{at} v\r\n")).collect();
    bench.ask(0, &format!("MULTI\r\n{sets}LREM list 0 x"));
    bench.short.set(true);
    bench.send(0, "EXEC");
    bench.turn(0);
    assert_eq!((bench.cores[0].tx.tasks_len(), bench.got(0).as_str()), (1, ""), "it goes on");
    bench.short.set(false);
    bench.settle();
    assert_eq!(bench.got(0), format!("*71\r\n{}:0\r\n", "+OK\r\n".repeat(70)));
    locks(&|locks| _ = locks.release(OTHER));
    assert!(bench.is_clean());
}

#[test] // Slices have any length, and in some cases a key is locked.
fn pipelined_transactions_over_two_cores_keep_their_order() {
    let until_sent = |bench: &Bench| {
        for _ in 0..30 {
            bench.settle();
            bench.pass_ms(1);
        }
    };
    for (is_held, is_tiny) in [(false, false), (false, true), (true, false), (true, true)] {
        let bench = Bench::new(2);
        let (one, other) = (bench.key(0), bench.key(1));
        let commands = format!("INCR {one}\r\nINCR {other}\r\nGET {one}\r\nGET {other}");
        let transaction = |at: usize| {
            let set = format!("SET {{{one}}}{at} {at}\r\nINCR {other}\r\nGET {other}");
            format!("MULTI\r\n{set}\r\nSTRLEN {{{one}}}{at}\r\nEXEC")
        };
        let held = darter_tx::lock_key(0, darter_keyspace::Key::new(other.as_bytes()).hash);
        let lock = || bench.cores[1].tx.try_lock_here(held, darter_tx::Access::Exclusive);
        let locked = is_held.then(lock);
        let all: Vec<String> = (1..=16).map(transaction).collect();
        bench.send(0, &all.join("\r\n"));
        bench.turn(0);
        bench.tiny.set(is_tiny);
        until_sent(&bench);
        bench.tiny.set(false); // With tiny slices, no request would be parsed.
        until_sent(&bench);
        let got = bench.got(0);
        let queued = |count: usize| format!("+OK\r\n{}", "+QUEUED\r\n".repeat(count));
        let reply = |at: usize| {
            let value = at.to_string();
            let len = value.len();
            format!("{}*4\r\n+OK\r\n:{at}\r\n${len}\r\n{at}\r\n:{len}\r\n", queued(4))
        };
        let expected: String = (1..=16).map(reply).collect();
        if is_held {
            assert!(!got.contains('*'), "the first waits, and so do all behind it: {got}");
        } else {
            assert_eq!(got, expected, "tiny slices: {is_tiny}");
        }
        drop(locked);
        until_sent(&bench);
        if is_held {
            assert_eq!(got + &bench.got(0), expected, "tiny slices: {is_tiny}");
        }
        assert_eq!(
            bench.ask(0, &format!("MULTI\r\n{commands}\r\nEXEC")),
            format!("{}*4\r\n:1\r\n:17\r\n$1\r\n1\r\n$2\r\n17\r\n", queued(4))
        );
        assert!(bench.is_clean());
    }
}

#[test] // The commands include slow ones, refused ones, and ones over several cores.
fn each_core_runs_its_commands_of_a_transaction_in_order() {
    for is_tiny in [false, true] {
        let bench = Bench::new(4);
        let keys = [0, 1, 2, 3].map(|core| bench.key(core));
        let on = |core: usize, command: &str| command.replace('@', &format!("{{{}}}", keys[core]));
        let members: Vec<String> = (0..120).map(|member| member.to_string()).collect();
        let lines = [
            on(2, "SET @ 1"),
            on(0, "INCR @"),
            on(2, "INCR @"),
            on(1, "LPUSH @ a b"),
            on(3, &format!("SADD @ {}", members.join(" "))),
            on(1, "INCR @"),
            on(2, "GET @"),
            on(3, "SCARD @"),
            on(1, "LPOP @"),
            on(0, "INCR @"),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
        let expected = format!(
            "*10\r\n+OK\r\n:1\r\n:2\r\n:2\r\n:120\r\n{wrong}$1\r\n2\r\n:120\r\n$1\r\nb\r\n:2\r\n"
        );
        let hops = || bench.cores.iter().map(|core| core.stats.borrow().hops).sum::<u64>();
        let before = hops();
        bench.tiny.set(is_tiny);
        bench.send(0, &[&["MULTI"], &lines[..], &["EXEC"]].concat().join("\r\n"));
        (0..10).for_each(|_| {
            bench.settle();
            bench.pass_ms(1);
        });
        bench.tiny.set(false);
        bench.settle();
        let (got, hops) = (bench.got(0), hops() - before);
        assert!(got.ends_with(&expected), "tiny {is_tiny}: {got:?}");
        assert_eq!(hops, 15, "of three cores: locks, commands, there and back; and the locks' end");
        assert!(bench.is_clean());
    }
}

#[test] // EXEC ends all watches, even if it is refused or its client has gone.
fn exec_checks_the_watched_keys_of_both_cores() {
    for is_held in [false, true] {
        for touched in [None, Some(0), Some(1)] {
            for is_gone in [false, true] {
                let mut bench = Bench::new(2);
                let keys = [0, 1].map(|core| bench.key(core));
                let toucher = bench.connect(1);
                bench.ask(0, &format!("WATCH {} {}", keys[0], keys[1]));
                if let Some(core) = touched {
                    bench.ask(toucher, &format!("SET {} t", keys[core]));
                }
                let held = darter_keyspace::Key::new(keys[1].as_bytes()).hash;
                let held = darter_tx::lock_key(0, held);
                let lock = || bench.cores[1].tx.try_lock_here(held, darter_tx::Access::Exclusive);
                let locked = is_held.then(lock);
                let sets = keys.each_ref().map(|key| format!("SET {key} v\r\n")).concat();
                bench.send(0, &format!("MULTI\r\n{sets}EXEC"));
                (0..3).for_each(|_| bench.round());
                if is_gone {
                    bench.cores[0].closed(bench.clients[0].token);
                }
                drop(locked);
                bench.settle();
                let case = format!("held {is_held}, touched {touched:?}, gone {is_gone}");
                if !is_gone {
                    let reply = if touched.is_some() { "*-1\r\n" } else { "*2\r\n+OK\r\n+OK\r\n" };
                    assert!(bench.got(0).ends_with(reply), "{case}");
                }
                assert!(bench.is_clean(), "{case}");
                let values = keys.each_ref().map(|key| bench.ask(toucher, &format!("GET {key}")));
                let is_done = |value: &String| *value == "$1\r\nv\r\n";
                let is_same = is_done(&values[0]) == is_done(&values[1]);
                assert!(is_same && (is_gone || is_done(&values[0]) == touched.is_none()), "{case}");
            }
        }
    }
}

#[test]
fn reads_of_a_closed_client_that_wait_on_another_core_do_not_run() {
    let bench = Bench::new(2);
    let key = bench.key(1);
    let held = darter_tx::lock_key(0, darter_keyspace::Key::new(key.as_bytes()).hash);
    let locked = bench.cores[1].tx.try_lock_here(held, darter_tx::Access::Exclusive);
    bench.send(0, &format!("GET {key}\r\n").repeat(3));
    (0..4).for_each(|_| bench.round());
    assert!(bench.cores[1].tx.tasks_len() == 1, "the first one waits");
    bench.cores[0].closed(bench.clients[0].token);
    bench.settle();
    assert_eq!(bench.cores[1].stats.borrow().stopped, 3);
    assert!(bench.cores[1].batches.borrow().is_empty(), "they do not wait any more");
    drop(locked);
    bench.settle();
    assert!(bench.is_clean());
}

#[test] // Queued commands count towards client-query-buffer-limit.
fn a_client_with_too_many_queued_commands_is_closed() {
    let bench = Bench::new(1);
    bench.cores[0].hot.borrow_mut().client_limits.query = 100_000;
    bench.ask(0, "MULTI");
    let set = format!("SET k {}\r\n", "v".repeat(1_000));
    let mut sent = 0;
    while !bench.is_closed(0) && sent < 1_000 {
        bench.ask(0, set.trim_end());
        sent += 1;
    }
    assert!((80..100).contains(&sent), "{sent}");
    assert_eq!(bench.len(), 0);
}

#[test] // Other clients may have seen a part of the lock holder's changes.
fn exec_waits_until_a_watched_key_is_unlocked() {
    let mut seen = 0;
    for seed in 0..400 {
        let mut prng = Prng::from_seed(seed);
        let mut bench = Bench::new(2);
        let [here, there] = [0, 1].map(|core| bench.key(core));
        let own = format!("{{{here}}}own");
        let [writer, reader] = [0, 1].map(|core| bench.connect(core));
        bench.all(0, &[&format!("WATCH {here}"), "MULTI", &format!("SET {own} 1")]);
        bench.short.set(true);
        bench.send(writer, &format!("MSET {here} 1 {there} 1"));
        for _ in 0..prng.below(12) {
            bench.turn(prng.below(2) as usize);
        }
        bench.send(reader, &format!("GET {there}"));
        bench.turn(1);
        let is_seen = bench.got(reader) == "$1\r\n1\r\n";
        bench.send(0, "EXEC");
        bench.settle();
        if is_seen {
            assert_eq!(bench.got(0), "*-1\r\n", "seed {seed}");
            seen += 1;
        }
        bench.short.set(false);
        bench.settle();
        assert!(bench.is_clean());
    }
    assert!(seen > 20, "{seen}");
}
