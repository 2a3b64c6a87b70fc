//! Publish and subscribe: delivery in portions.

use super::*;

#[test]
fn a_message_that_matches_many_patterns_is_sent_in_portions() {
    const PATTERNS: usize = 300;
    let mut bench = Bench::new(1);
    let listener = bench.connect(0);
    for at in 0..PATTERNS {
        bench.ask(listener, &format!("PSUBSCRIBE n{}", "*".repeat(at)));
    }
    bench.short.set(true);
    bench.send(0, "PUBLISH n x");
    let (mut before, mut received) = (0, 0);
    let reply = (0..10_000).find_map(|_| {
        bench.turn(0);
        before = received;
        received += bench.got(listener).matches("pmessage").count();
        Some(bench.got(0)).filter(|reply| !reply.is_empty())
    });
    assert_eq!(reply.as_deref(), Some(":300\r\n"));
    assert!(before >= PATTERNS / 2, "{before} received before the last were matched");
    bench.short.set(false);
    bench.settle();
    received += bench.got(listener).matches("pmessage").count();
    assert_eq!(received, PATTERNS);
}

/// Returns the number of turns until all clients except the first have received something, and the
/// largest number of clients that received something in one turn.
fn turns_until_all_have_it(bench: &Bench, clients: &[usize]) -> (usize, usize) {
    let (mut turns, mut most, mut all) = (0, 0, 0);
    while all < clients.len() && turns < 1_000 {
        bench.turn(0);
        let now = clients.iter().filter(|client| !bench.got(**client).is_empty()).count();
        (turns, most, all) = (turns + 1, most.max(now), all + now);
    }
    assert_eq!(all, clients.len(), "each has got it once");
    (turns, most)
}

#[test] // The limit holds for messages and for invalidations.
fn one_slice_pushes_to_a_limited_number_of_clients() {
    const CLIENTS: usize = 200;
    let mut bench = Bench::new(1);
    let listeners: Vec<usize> = (0..CLIENTS).map(|_| bench.connect(0)).collect();
    for line in ["HELLO 3", "SUBSCRIBE news", "CLIENT TRACKING ON", "GET key"] {
        listeners.iter().for_each(|listener| bench.send(*listener, line));
        bench.settle();
    }
    listeners.iter().for_each(|listener| _ = bench.got(*listener));
    let sixteen = ["PUBLISH news x"; 16].join("\r\n");
    for line in ["PUBLISH news x", &sixteen, "SET key value", "FLUSHALL"] {
        bench.send(0, line);
        let (turns, most) = turns_until_all_have_it(&bench, &listeners);
        assert!(most <= 24 && turns < 50, "{line}: to {most} in one turn, {turns} turns");
        bench.settle();
        bench.got(0);
    }
}

#[test]
fn a_pattern_may_be_unsubscribed_while_a_message_is_matched_with_it() {
    let mut bench = Bench::new(1);
    let (listener, client) = (bench.connect(0), bench.connect(0));
    let long = format!("*{}b", "a".repeat(6_000));
    bench.ask(listener, &format!("PSUBSCRIBE {long} x"));
    bench.short.set(true);
    bench.send(
        0,
        &format!("EVAL \"return redis.call('PUBLISH',KEYS[1],'x')\" 1 {}", "a".repeat(9_000)),
    );
    (0..20).for_each(|_| _ = bench.turn(0));
    assert_eq!(bench.got(0), "", "it is matched");
    bench.cores[0].ended(bench.clients[listener].token);
    bench.ask(client, "PSUBSCRIBE y z");
    bench.short.set(false);
    bench.settle();
    assert_eq!(bench.got(0), ":0\r\n");
}
