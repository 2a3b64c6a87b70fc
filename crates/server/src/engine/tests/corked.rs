//! Replies of a pipeline that wait a short time for the next one.

use super::*;

#[test] // The commands of the pipeline run one by one.
fn replies_of_a_pipeline_over_cores_leave_together() {
    let bench = Bench::new(2);
    let (here, there) = (bench.key(0), bench.key(1));
    bench.send(0, &vec![format!("MGET {here} {there}"); 8].join("\r\n"));
    let (mut before, mut sends) = (0, 0);
    for _ in 0..100 {
        bench.round();
        let len = bench.clients[0].got.borrow().len();
        sends += usize::from(len > before);
        before = len;
    }
    assert_eq!(bench.got(0), "*2\r\n$-1\r\n$-1\r\n".repeat(8));
    assert_eq!(sends, 1);
}

#[test] // The core sleeps while the reply waits.
fn a_ready_reply_waits_at_most_two_ticks_for_the_next() {
    let bench = Bench::new(2);
    let (here, there) = (bench.key(0), bench.key(1));
    bench.send(0, &format!("SET {here} 1\r\nMGET {here} {there}"));
    let mut wait = Wait::Nothing;
    while wait == Wait::Nothing {
        wait = bench.turn(0); // Core 1 gets no turn.
    }
    assert_eq!((wait, bench.got(0)), (Wait::Millis(2), String::new()));
    bench.pass_ms(1);
    assert_eq!((bench.turn(0), bench.got(0)), (Wait::Millis(1), String::new()));
    bench.pass_ms(1);
    bench.turn(0);
    assert_eq!(bench.got(0), "+OK\r\n");
    bench.settle();
    assert_eq!(bench.got(0), "*2\r\n$1\r\n1\r\n$-1\r\n");
}

#[test]
fn a_long_reply_does_not_wait_for_the_next_one() {
    let bench = Bench::new(2);
    let (here, there) = (bench.key(0), bench.key(1));
    let long = "x".repeat(20_000);
    bench.ask(0, &format!("SET {here} {long}"));
    bench.send(0, &format!("GET {here}\r\nMGET {here} {there}"));
    bench.turn(0);
    bench.turn(0);
    assert_eq!(bench.got(0), format!("$20000\r\n{long}\r\n"));
}

#[test] // The clock does not advance in this test.
fn a_reply_before_a_blocked_call_is_sent_at_once() {
    let bench = Bench::new(1);
    bench.send(0, "SET k v\r\nBLPOP q 0");
    bench.settle();
    assert_eq!(bench.got(0), "+OK\r\n");
}
