//! The progress of a long command while other clients knock.

use super::*;
use crate::knock::SliceTimer;
use crate::knock::tests::TestKnocker;

const MEMBERS: usize = 30_000;

/// A core with two sets and two clients. Each reading of the clock takes 1 us.
fn core_with_sets(knocks: bool) -> Bench {
    let knocker = Rc::new(TestKnocker::default());
    knocker.knocks.set(knocks);
    let mut bench = Bench::with_slices(1, |clock| {
        let knocker = Rc::clone(&knocker);
        Rc::new(SliceTimer::new(Rc::clone(clock), knocker))
    });
    bench.clock.reading_ns.set(1_000);
    bench.connect(0);
    for key in ["a", "b"] {
        for from in (0..MEMBERS).step_by(1_000) {
            let members: String = (from..from + 1_000).map(|at| format!(" {key}{at}")).collect();
            bench.ask(0, &format!("SADD {key}{members}"));
        }
    }
    bench
}

/// The number of turns that a long command takes while another client sends a request in each turn.
fn turns_of_a_long_command(bench: &Bench) -> usize {
    bench.send(0, "SUNIONSTORE sum a b");
    for turns in 1..100_000 {
        bench.send(1, "PING");
        bench.turn(0);
        assert_eq!(bench.got(1), "+PONG\r\n");
        let reply = bench.got(0);
        if !reply.is_empty() {
            assert_eq!(reply, format!(":{}\r\n", 2 * MEMBERS));
            return turns;
        }
    }
    panic!("it never ends");
}

#[test] // Knocks end the slices of the command, but only after its guaranteed share.
fn constant_knocks_do_not_stall_a_long_command() {
    let [quiet, knocked] =
        [false, true].map(|knocks| turns_of_a_long_command(&core_with_sets(knocks)));
    assert!(quiet >= 4, "it takes {quiet} turns: not long");
    assert!(knocked > quiet, "no knock ended a slice: {knocked} turns, {quiet} without");
    assert!(knocked <= 2 * quiet, "{knocked} turns, {quiet} without knocks");
}
