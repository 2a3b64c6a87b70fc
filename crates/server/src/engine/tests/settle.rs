//! The counters of commands: calls, times, failures and SLOWLOG, for every way to run a command.

use super::*;
use crate::engine::stats::CommandStats;

/// The counters of a command, summed over all cores.
fn counted(bench: &Bench, name: &str) -> CommandStats {
    let row = bench.cores[0].table.find(name.as_bytes()).expect("a command").index;
    let mut sum = CommandStats::default();
    for core in &bench.cores {
        let one = core.stats.borrow().by_command[row];
        sum.calls += one.calls;
        sum.failed += one.failed;
        sum.ns += one.ns;
        (0..32).for_each(|at| sum.histogram[at] += one.histogram[at]);
    }
    sum
}

/// Encodes lines as clients do. Inline requests would be stored and timed alone.
fn wire(lines: &str) -> String {
    let request = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let bulk = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
        format!("*{}\r\n{}", words.len(), words.iter().map(bulk).collect::<String>())
    };
    let all: String = lines.lines().map(request).collect();
    all.trim_end().to_owned()
}

fn timed(stats: &CommandStats) -> u32 {
    stats.histogram.iter().sum()
}

fn slow(bench: &Bench, name: &str) -> usize {
    let is_it = |args: &[Vec<u8>]| args[0].eq_ignore_ascii_case(name.as_bytes());
    let count = |core: &Rc<Core>| {
        core.admin.slowlog.borrow().calls().filter(|call| is_it(&call.args)).count()
    };
    bench.cores.iter().map(count).sum()
}

#[test] // The ways: pipeline, EXEC, script, task; this core and another one.
fn calls_and_times_are_counted_in_every_way_to_run_a_command() {
    for (cores, home) in [(1, 0), (2, 0), (2, 1)] {
        let bench = Bench::new(cores);
        bench.clock.reading_ns.set(100);
        let (key, other) = (bench.key(home), bench.key(0));
        let gets = format!("GET {key}\r\n").repeat(10);
        let script = "for i = 1, 10 do redis.call('GET', KEYS[1]) end".to_owned();
        for lines in [
            gets.clone(),
            format!("MULTI\r\n{gets}EXEC"),
            format!("MULTI\r\n{gets}INCR {other}x\r\nDBSIZE\r\nEXEC"),
            format!("EVAL \"{script}\" 1 {key}"),
            format!("EVAL \"{script}\" 1 {key}"),
        ] {
            let before = counted(&bench, "get");
            let is_script = lines.starts_with("EVAL");
            bench.ask(0, &if is_script { lines.clone() } else { wire(&lines) });
            bench.settle();
            let after = counted(&bench, "get");
            let case = format!("{cores} cores, key of {home}: {lines}");
            assert_eq!(after.calls - before.calls, 10, "{case}");
            assert_eq!(timed(&after) - timed(&before), 10, "{case}");
            assert!(after.ns > before.ns, "{case}");
        }
        let exec = counted(&bench, "exec");
        assert_eq!((exec.calls, timed(&exec)), (2, 2));
    }
}

#[test] // No time of other work is added to the calls.
fn quick_calls_share_the_time_between_two_clock_readings() {
    let bench = Bench::new(1);
    bench.clock.reading_ns.set(100);
    let members: Vec<String> = (0..100).map(|at| format!("m{at}")).collect();
    let slow = format!("SADD s {}", members.join(" "));
    bench.ask(0, &wire(&format!("{0}{slow}\r\n{0}", "GET k\r\n".repeat(10))));
    let (get, sadd) = (counted(&bench, "get"), counted(&bench, "sadd"));
    assert_eq!((get.calls, timed(&get)), (20, 20));
    assert_eq!((sadd.calls, timed(&sadd)), (1, 1));
    assert!(sadd.ns >= 100, "{}", sadd.ns);
}

#[test] // The call is served at once or by a task, on this core or another.
fn a_blocked_call_is_counted_when_it_is_served() {
    for cores in [1, 2] {
        for client in 0..cores {
            let mut bench = Bench::new(cores);
            let (key, other) = (bench.key(0), bench.key(cores - 1));
            let (waiter, writer) = (bench.connect(client), bench.connect(0));
            bench.clock.reading_ns.set(2_000);
            for core in &bench.cores {
                core.hot.borrow_mut().slow_ns = Some(0);
            }
            assert_eq!(bench.ask(waiter, &format!("BLPOP {key} 0")), "");
            bench.ask(writer, &format!("LPUSH {key} 1"));
            assert!(bench.got(waiter).starts_with("*2"));
            let blpop = counted(&bench, "blpop");
            let case = format!("{cores} cores, client of {client}");
            assert_eq!((blpop.calls, blpop.failed, timed(&blpop)), (1, 0, 1), "{case}");
            assert!(blpop.ns > 0 && slow(&bench, "blpop") == 1, "{case}");

            bench.ask(writer, &format!("SET {other}text 1"));
            bench.ask(waiter, &format!("BLMOVE {key} {other}text LEFT LEFT 0"));
            bench.ask(writer, &format!("LPUSH {key} 1"));
            bench.settle();
            assert!(bench.got(waiter).starts_with("-WRONGTYPE"), "{case}");
            let blmove = counted(&bench, "blmove");
            assert_eq!((blmove.calls, blmove.failed, slow(&bench, "blmove")), (1, 1, 1), "{case}");

            bench.ask(writer, &format!("XGROUP CREATE {key}s g 0 MKSTREAM"));
            bench.ask(waiter, &format!("XREADGROUP GROUP g c BLOCK 0 STREAMS {key}s >"));
            bench.ask(writer, &format!("XGROUP DESTROY {key}s g"));
            bench.settle();
            assert!(bench.got(waiter).starts_with("-NOGROUP"), "{case}");
            let group = counted(&bench, "xreadgroup");
            assert_eq!((group.calls, group.failed), (1, 1), "{case}");
        }
    }
}
