//! The causes of long slices, and how they are reported.

use super::*;
use crate::engine::{Cause, Slice, Slices};
use std::io;
use std::sync::Mutex;

/// Cores with slices of one portion. Each reading of the clock takes 1 us.
fn ticking(cores: usize) -> Bench {
    let bench = Bench::new(cores);
    bench.clock.reading_ns.set(1_000);
    bench.short.set(true);
    bench
}

impl Bench {
    /// Sends a request, and runs turns until all work is done. Returns the beginning of the reply.
    fn wait_for(&self, client: usize, line: &str) -> String {
        self.cores.iter().for_each(|core| *core.slices.borrow_mut() = Slices::default());
        self.send(client, line);
        let mut reply = String::new();
        while reply.is_empty() {
            self.round();
            reply = self.got(client);
        }
        for _ in 0..20 {
            self.settle();
        }
        self.got(client);
        reply
    }

    /// Checks that a long slice has this cause, and that no slice is attributed to a task or stream
    /// without a command.
    fn expect(&self, core: usize, command: &str, cause: impl Fn(usize) -> Cause) {
        let row = self.cores[0].table.find(command.as_bytes()).unwrap().index;
        let slices = self.cores[core].slices.borrow();
        let causes: Vec<Cause> = slices.longest.iter().map(|slice| slice.cause).collect();
        assert!(causes.contains(&cause(row)), "{command} on {core}: {causes:?}");
        let nameless = [Cause::Task, Cause::Stream(None)];
        let is_named = causes.iter().all(|cause| !nameless.contains(cause));
        assert!(is_named, "{command} on {core}: {causes:?}");
    }
}

#[test] // The commands run as a stream, as a job, and as a task over several cores.
fn long_slices_are_attributed_to_their_command() {
    let bench = ticking(2);
    let items: String = (0..1_500).map(|at| format!(" {at} {at}")).collect();
    for core in [0, 1] {
        let hash = format!("{{{}}}h", bench.key(core));
        assert_eq!(bench.wait_for(0, &format!("HSET {hash}{items}")), ":1500\r\n");
        bench.expect(core, "hset", Cause::Command);
        assert!(bench.wait_for(0, &format!("HGETALL {hash}")).starts_with("*3000"));
        bench.expect(0, "hgetall", |row| Cause::Stream(Some(row)));
        let set = bench.key(core);
        assert_eq!(bench.wait_for(0, &format!("SADD {set}{items}")), ":1500\r\n");
        bench.expect(core, "sadd", Cause::Command);
    }
    let line = format!("SUNION {} {}", bench.key(0), bench.key(1));
    assert!(bench.wait_for(0, &line).starts_with("*1500"));
    bench.expect(0, "sunion", Cause::Command);
}

/// Runs a turn of core 0 that handles a message for a millisecond.
fn stall(bench: &Bench) {
    let stall = |core: &Rc<Core>| {
        (0..1_000).for_each(|_| {
            core.clock.monotonic_ns();
        });
    };
    bench.mail.borrow_mut()[0].push_back((1, Mail::Ask(Box::new(stall))));
    bench.turn(0);
}

#[test]
fn a_slice_has_no_time_of_other_processes_or_earlier_slices() {
    const STOLEN_MS: u64 = 5;
    let bench = ticking(2);
    for is_behind_a_long_one in [false, true] {
        if is_behind_a_long_one {
            stall(&bench);
        }
        *bench.cores[0].slices.borrow_mut() = Slices::default();
        bench.cores[0].begin_turn();
        bench.pass_ms(STOLEN_MS);
        bench.clock.stolen_ns.set(bench.clock.stolen_ns.get() + STOLEN_MS * 1_000_000);
        bench.cores[0].turn();
        let longest = bench.cores[0].slices.borrow().longest[0];
        assert!(longest.ns < 200_000, "{longest:?}");
    }
}

#[test]
fn a_slice_is_attributed_to_a_long_message_not_to_the_next_command() {
    let bench = ticking(2);
    bench.send(0, "TIME");
    stall(&bench);
    let longest = bench.cores[0].slices.borrow().longest[0];
    assert_eq!((longest.cause, longest.core), (Cause::Mail, 0));
    assert!(longest.ns >= 1_000_000, "{longest:?}");
}

/// The lines of a log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test] // Reports: a log line (one for many slices), LATENCY SLICES and INFO.
fn slices_that_are_too_long_are_reported() {
    let bench = ticking(2);
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    tracing::subscriber::with_default(log.finish(), || {
        (0..3).for_each(|_| assert_eq!(bench.ask(1, "DEBUG SLEEP 0.004"), "+OK\r\n"));
        bench.pass_ms(120_000);
        assert_eq!(bench.ask(1, "DEBUG SLEEP 0.004"), "+OK\r\n");
    });
    let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let told: Vec<&str> =
        log.lines().filter_map(|line| line.split_once("slice of ")).map(|(_, rest)| rest).collect();
    let [first, last] = told[..] else { panic!("{log}") };
    let cause = " us, limit 500 us: cause command, command debug, core 1; ";
    assert!(
        first.contains(cause)
            && first.starts_with("40")
            && first.ends_with("; 0 more since the last log line"),
        "{log}"
    );
    assert!(last.contains(cause) && last.ends_with("; 2 more since the last log line"), "{log}");
    assert!(log.contains(" WARN "), "{log}");

    let Slice { ns, unix_ms, .. } = bench.cores[1].slices.borrow().longest[0];
    let us = ns / 1_000;
    let reply = bench.ask(0, "LATENCY SLICES").replace("\r\n", " ");
    let longest = format!(
        "$7 longest *16 *10 $2 us :{us} $5 cause $7 command $7 command $5 debug $4 core :1 \
         $5 at_ms :{unix_ms} *10 "
    );
    assert!(reply.contains(&longest), "{reply}");
    assert!(reply.contains(" $12 below_4096us :4 "), "{reply}");
    let info = bench.ask(0, "INFO slices");
    let line =
        format!("slice_longest_0:us={us},cause=command,command=debug,core=1,at_ms={unix_ms}");
    assert!(info.contains(&line), "{info}");
}
