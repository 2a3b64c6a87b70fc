//! Blocking commands: effects of the order of messages between cores.

use super::*;
use darter_keyspace::Key;
use darter_tx::{Access, Claim, lock_key};

impl Bench {
    fn name(&self, key: &str) -> u64 {
        lock_key(0, Key::new(key.as_bytes()).hash)
    }

    /// A client of core 0 waits for a list on core 1 and a list on the last core. Core 1 has served
    /// it, but the reply is still in flight. Returns the names of both lists.
    fn taken_elsewhere(&self) -> [String; 2] {
        let names = [self.key(1), format!("{{{}}}last", self.key(self.cores.len() - 1))];
        assert_eq!(self.ask(0, &format!("BLPOP {} {} 30", names[0], names[1])), "");
        self.send(1, &format!("RPUSH {} x", names[0]));
        self.turn(1);
        assert_eq!(self.cores[1].tx.tasks_len(), 0, "nobody was asked");
        assert_eq!(self.cores[0].blocked_counts(), (1, 1));
        names
    }

    fn is_quiet(&self) -> bool {
        let is_free = |core: &Rc<Core>| {
            core.waits.borrow().check_invariants();
            core.tx.home().locks.is_free() && core.tx.tasks_len() == 0
        };
        self.cores.iter().all(is_free)
    }
}

#[test] // Both keys are locked together, in either order of their names.
fn blmove_serves_a_client_that_waits_for_its_destination() {
    let keys = [["{q}a", "{q}b"], ["{q}b", "{q}a"]];
    for [from, to] in keys {
        let mut bench = Bench::new(1);
        let [popper, mover, back] = [(); 3].map(|()| bench.connect(0));
        let push = format!("MULTI\r\nRPUSH {from} x\r\nLLEN {to}\r\nEXEC");
        bench.ask(popper, &format!("BLPOP {to} 0"));
        bench.ask(mover, &format!("BLMOVE {from} {to} LEFT LEFT 0"));
        bench.ask(0, &push);
        assert_eq!(bench.got(mover), "$1\r\nx\r\n");
        assert_eq!(bench.got(popper), format!("*2\r\n$4\r\n{to}\r\n$1\r\nx\r\n"), "{from}");
        // In a circle: to the other list, back, and out to a client.
        bench.ask(mover, &format!("BLMOVE {from} {to} LEFT LEFT 0"));
        bench.ask(back, &format!("BLMOVE {to} {from} LEFT LEFT 0"));
        bench.ask(popper, &format!("BLPOP {from} 0"));
        bench.ask(0, &push);
        let got = [mover, back].map(|client| bench.got(client));
        assert_eq!(got, ["$1\r\nx\r\n"; 2], "{from}");
        assert_eq!(bench.got(popper), format!("*2\r\n$4\r\n{from}\r\n$1\r\nx\r\n"), "{from}");
        assert!(bench.is_quiet());
    }
}

#[test] // The clients wait for different keys.
fn exec_serves_a_few_blocked_clients_and_a_task_the_others() {
    const KEYS: usize = 40;
    let mut bench = Bench::new(1);
    let takers: Vec<usize> = (0..KEYS).map(|_| bench.connect(0)).collect();
    for (at, taker) in takers.iter().enumerate() {
        bench.ask(*taker, &format!("BLPOP key:{at} 0"));
    }
    let pushes: String = (0..KEYS).map(|at| format!("RPUSH key:{at} x{at}\r\n")).collect();
    bench.send(0, &format!("MULTI\r\n{pushes}EXEC"));
    let core = &bench.cores[0];
    core.begin_turn();
    let _ = core.serve_all();
    let (waiting, _) = core.blocked_counts();
    assert!((1..KEYS).contains(&waiting), "{waiting} of {KEYS} wait still");
    bench.settle();
    for (at, taker) in takers.iter().enumerate() {
        assert!(bench.got(*taker).ends_with(&format!("\r\nx{at}\r\n")), "{at}");
    }
    assert!(bench.is_quiet());
}

#[test] // The push sends a single message to the core of the client.
fn a_blocked_client_of_another_core_is_served_at_once_and_only_once() {
    let bench = Bench::new(3);
    let [first, last] = bench.taken_elsewhere();
    assert_eq!(bench.got(1), ":1\r\n");
    assert_eq!(bench.ask(2, &format!("RPUSH {last} y")), ":1\r\n");
    let reply = format!("*2\r\n${}\r\n{first}\r\n$1\r\nx\r\n", first.len());
    assert_eq!((bench.got(0), bench.cores[0].blocked_counts()), (reply, (0, 0)));
    assert_eq!(bench.ask(2, &format!("LLEN {last}")), ":1\r\n");
    assert!(bench.is_quiet());
}

#[test] // The client times out, or is unblocked, before the answer arrives.
fn a_served_client_gets_its_element_even_if_it_times_out_meanwhile() {
    for is_late in [true, false] {
        let bench = Bench::new(2);
        let [first, _] = bench.taken_elsewhere();
        if is_late {
            bench.pass_ms(30_000);
        } else {
            assert!(!bench.cores[0].unblock(1, false), "it waits no more");
        }
        bench.settle();
        let reply = format!("*2\r\n${}\r\n{first}\r\n$1\r\nx\r\n", first.len());
        assert_eq!((bench.got(0), bench.cores[0].blocked_counts()), (reply, (0, 0)));
        assert!(bench.is_quiet());
    }
}

#[test]
fn a_served_client_gets_its_element_even_if_it_half_closes() {
    let bench = Bench::new(2);
    bench.taken_elsewhere();
    bench.cores[0].ended(bench.clients[0].token);
    bench.settle();
    assert!(bench.got(0).ends_with("$1\r\nx\r\n") && bench.is_closed(0));
    assert_eq!((bench.cores[0].blocked_counts(), bench.cores[0].ended_amid_replies()), ((0, 0), 0));
    assert!(bench.is_quiet());
}

#[test] // The requests before the blocking one have run.
fn a_blocked_client_that_half_closes_gets_its_earlier_replies() {
    for (cores, first, second) in [(1, 0, 0), (2, 0, 0), (2, 0, 1), (2, 1, 0), (2, 1, 1)] {
        for (wait, rest) in
            [("BLPOP", "0"), ("BRPOPLPUSH", "other 0"), ("XREAD BLOCK 0 STREAMS", "$")]
        {
            let bench = Bench::new(cores);
            let (list, empty) = (bench.key(first), format!("{{{}}}empty", bench.key(second)));
            let wait = format!("{wait} {empty} {rest}");
            assert_eq!(bench.ask(0, &format!("RPUSH {list} x")), ":1\r\n");
            bench.send(0, &format!("LPOP {list}\r\n{wait}\r\nPING"));
            bench.cores[0].ended(bench.clients[0].token);
            bench.settle();
            assert_eq!((bench.got(0), bench.is_closed(0)), ("$1\r\nx\r\n".into(), true), "{wait}");
            assert_eq!(bench.cores[0].blocked_counts(), (0, 0), "{wait}");
            assert!(bench.is_quiet(), "{wait}");
        }
    }
}

#[test] // The core of the key does not know yet that the wait has ended.
fn a_push_does_not_serve_a_client_that_has_stopped_waiting() {
    let ends: [fn(&Bench); 4] = [
        |bench| bench.cores[0].ended(bench.clients[0].token),
        |bench| bench.cores[0].closed(bench.clients[0].token),
        |bench| assert!(bench.cores[0].unblock(1, false), "it waits"),
        |bench| _ = bench.cores[0].with_client(1, |conn| bench.cores[0].kill(&mut conn.lane)),
    ];
    for (number, end) in ends.iter().enumerate() {
        let bench = Bench::new(2);
        let key = bench.key(1);
        assert_eq!(bench.ask(0, &format!("BLPOP {key} 0")), "");
        end(&bench);
        assert_eq!(bench.ask(1, &format!("RPUSH {key} x")), ":1\r\n", "{number}");
        assert_eq!(bench.ask(1, &format!("LLEN {key}")), ":1\r\n", "{number}");
        assert_eq!(bench.cores[0].ended_amid_replies(), 0, "{number}");
        assert_eq!(bench.cores[0].blocked_counts(), (0, 0), "{number}");
        assert!(bench.is_quiet(), "{number}");
    }
}

#[test]
fn pushes_for_blmove_with_a_locked_destination_start_a_single_task() {
    let bench = Bench::new(2);
    let (from, to) = (bench.key(1), bench.key(0));
    bench.ask(0, &format!("BLMOVE {from} {to} LEFT RIGHT 0"));
    let held = bench.cores[0].tx.try_lock_here(bench.name(&to), Access::Exclusive);
    for number in 1..=20 {
        assert_eq!(bench.ask(1, &format!("RPUSH {from} x")), format!(":{number}\r\n"));
        assert_eq!(bench.cores[1].tx.tasks_len(), 1, "after {number}");
    }
    drop(held);
    bench.settle();
    assert_eq!(bench.got(0), "$1\r\nx\r\n");
    assert_eq!(bench.ask(1, &format!("LLEN {from}")), ":19\r\n");
    assert!(bench.is_quiet());
}

#[test] // Other transactions lock the destination one after the other.
fn blmove_gets_its_turn_on_a_destination_that_others_lock() {
    for core in [0, 1] {
        let bench = Bench::new(2);
        let (from, to) = (bench.key(1), format!("{{{}}}to", bench.key(core)));
        bench.ask(0, &format!("BLMOVE {from} {to} LEFT RIGHT 0"));
        let tx = bench.cores[core].tx.clone();
        let held = tx.try_lock_here(bench.name(&to), Access::Exclusive);
        assert_eq!(bench.ask(1, &format!("RPUSH {from} x")), ":1\r\n");
        let claim = Claim::Keys(vec![(bench.name(&to), Access::Exclusive)]);
        let (over, end) = tx.ticket::<()>();
        let next = tx.clone();
        tx.spawn(async move {
            let _held = next.lock(vec![(core, claim)]).await;
            end.await;
        });
        bench.settle();
        assert_eq!(bench.got(0), "");
        drop(held);
        bench.settle();
        assert_eq!(bench.got(0), "$1\r\nx\r\n", "core {core}");
        tx.complete(over, Box::new(()));
        bench.settle();
        assert_eq!(bench.ask(1, &format!("LLEN {to}")), ":1\r\n");
        assert!(bench.is_quiet());
    }
}

#[test] // A transaction adds more entries than one step can deliver.
fn a_blocked_stream_reader_gets_at_most_a_thousand_entries() {
    const ADDED: usize = 1_100;
    for core in [0, 1] {
        let mut bench = Bench::new(2);
        let key = bench.key(core);
        let [reader, limited, other] = [(); 3].map(|()| bench.connect(0));
        bench.ask(1, &format!("XGROUP CREATE {key} g $ MKSTREAM"));
        assert_eq!(bench.ask(0, &format!("XREADGROUP GROUP g c BLOCK 0 STREAMS {key} >")), "");
        assert_eq!(bench.ask(reader, &format!("XREAD BLOCK 0 STREAMS {key} $")), "");
        assert_eq!(bench.ask(limited, &format!("XREAD COUNT 9 BLOCK 0 STREAMS {key} $")), "");
        let xread = format!("XREADGROUP GROUP g d COUNT 2000 BLOCK 0 STREAMS {key} >");
        assert_eq!(bench.ask(other, &xread), "");
        let added: String = (1..=ADDED).map(|at| format!("XADD {key} {at} f v\r\n")).collect();
        bench.send(1, &format!("MULTI\r\n{added}EXEC"));
        (0..40).for_each(|_| bench.settle());
        bench.got(1);
        let begins = |count: usize| format!("*1\r\n*2\r\n${}\r\n{key}\r\n*{count}\r\n", key.len());
        for (client, count) in [(0, 1_000), (reader, 1_000), (limited, 9), (other, 100)] {
            let got = bench.got(client);
            assert!(got.starts_with(&begins(count)), "client {client}: {:.60}", got);
            assert_eq!(got.matches("$1\r\nv\r\n").count(), count, "client {client}");
        }
        let pending = bench.ask(1, &format!("XPENDING {key} g"));
        assert!(pending.starts_with(&format!("*4\r\n:{ADDED}\r\n")), "{pending}");
        assert!(bench.is_quiet());
    }
}

#[test] // Other cores are still adding the entries when it closes.
fn a_client_that_closes_as_it_begins_to_wait_leaves_no_queue_entry() {
    let bench = Bench::new(2);
    let names: Vec<String> = (0..1_000).map(|number| format!("stream:{number}")).collect();
    let ids = "0 ".repeat(names.len());
    bench.short.set(true);
    bench.send(0, &format!("XREAD BLOCK 0 STREAMS {} {ids}", names.join(" ")));
    let has_places = || !bench.cores[1].waits.borrow().is_empty();
    let begun = (0..2_000).any(|_| {
        bench.round();
        has_places()
    });
    assert!(begun, "core 1 gives it places");
    bench.cores[0].closed(bench.clients[0].token);
    bench.settle();
    bench.short.set(false);
    bench.settle();
    assert!(bench.cores.iter().all(|core| core.waits.borrow().is_empty()));
    assert!(bench.is_quiet());
}

#[test] // The time is exact to the millisecond.
fn blocked_xreadgroup_claims_pending_entries_when_they_are_idle_enough() {
    for core in [0, 1] {
        let mut bench = Bench::new(2);
        let key = bench.key(core);
        let [reader, claimer, patient] = [(); 3].map(|()| bench.connect(0));
        bench.ask(1, &format!("XGROUP CREATE {key} g $ MKSTREAM"));
        let wait = |claim: &str, block: u64, name: &str| {
            format!("XREADGROUP GROUP g {name} BLOCK {block} {claim} STREAMS {key} >")
        };
        assert_eq!(bench.ask(claimer, &wait("CLAIM 30", 0, "c")), "");
        assert_eq!(bench.ask(patient, &wait("CLAIM 100", 40, "d")), "");
        // Another client reads an entry, which makes the entry pending.
        bench.ask(
            1,
            &format!("MULTI\r\nXADD {key} 1 f v\r\nXREADGROUP GROUP g r STREAMS {key} >\r\nEXEC"),
        );
        assert_eq!(bench.got(claimer), "", "core {core}");
        bench.pass_ms(29);
        bench.settle();
        assert_eq!(bench.got(claimer), "", "core {core}");
        bench.pass_ms(1);
        bench.settle();
        let entry = "*4\r\n$3\r\n1-0\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n:30\r\n:1\r\n";
        let reply = format!("*1\r\n*2\r\n${}\r\n{key}\r\n*1\r\n{entry}", key.len());
        assert_eq!(bench.got(claimer), reply, "core {core}");
        bench.pass_ms(11);
        bench.settle();
        assert_eq!(bench.got(patient), "*-1\r\n", "it is younger, now that it was claimed");
        assert_eq!(bench.ask(reader, &wait("CLAIM 1000", 5, "r")), "");
        bench.ask(1, &format!("XADD {key} 2 f w"));
        assert!(bench.got(reader).ends_with("$1\r\nw\r\n:0\r\n:0\r\n"), "new ones, too");
        assert!(bench.is_quiet());
    }
}

#[test] // Redis has the same order.
fn the_invalidation_of_a_stream_precedes_the_entry_served_to_its_reader() {
    let bench = Bench::new(2);
    let stream = bench.key(1);
    let key = format!("{{{stream}}}read");
    bench.ask(0, &format!("HELLO 3\r\nCLIENT TRACKING ON\r\nGET {key}"));
    bench.send(0, &format!("XREAD BLOCK 0 STREAMS {stream} $"));
    bench.turn(0);
    bench.turn(1);
    bench.send(1, &format!("SET {key} v\r\nXADD {stream} 1 f v"));
    bench.settle();
    let got = bench.got(0);
    let entry = got.find("$3\r\n1-0\r\n").expect("it is served");
    let invalidation = got.find("$10\r\ninvalidate\r\n").expect("it is invalidation");
    assert!(invalidation < entry, "{got:?}");
    assert!(bench.is_quiet());
}

#[test] // The call may take an element that the same pipeline has pushed.
fn blocking_calls_follow_earlier_requests_of_their_pipeline_to_another_core() {
    let bench = Bench::new(2);
    let key = bench.key(1);
    bench.send(0, &format!("RPUSH {key} x\r\nBLPOP {key} 0\r\nBLPOP {key} 0"));
    for core in [0, 1, 0, 0, 1] {
        bench.turn(core);
    }
    let popped = |element: &str| format!("*2\r\n${}\r\n{key}\r\n$1\r\n{element}\r\n", key.len());
    assert_eq!(bench.got(0), format!(":1\r\n{}", popped("x")));
    assert!(bench.mail.borrow()[0].is_empty(), "that it waits is not said");
    assert_eq!(bench.ask(1, &format!("RPUSH {key} y")), ":1\r\n");
    assert_eq!(bench.got(0), popped("y"));
    assert!(bench.is_quiet());
}

#[test]
fn a_blocking_call_does_not_overtake_an_earlier_request_that_waits_for_a_lock() {
    for line in ["RPUSH HELD x\r\nBLPOP OTHER 0", "BLPOP HELD OTHER 0"] {
        let bench = Bench::new(2);
        let [held, other] = ["held", "other"].map(|name| format!("{{{}}}{name}", bench.key(1)));
        let line = line.replace("HELD", &held).replace("OTHER", &other);
        let locked = bench.cores[1].tx.try_lock_here(bench.name(&held), Access::Exclusive);
        assert_eq!(bench.ask(0, &line), "");
        assert_eq!(bench.ask(1, &format!("RPUSH {other} y")), ":1\r\n");
        assert_eq!(bench.got(0), "", "{line}");
        drop(locked);
        bench.settle();
        let popped = format!("*2\r\n${}\r\n{other}\r\n$1\r\ny\r\n", other.len());
        assert!(bench.got(0).ends_with(&popped), "{line}");
        assert!(bench.is_quiet());
    }
}

#[test] // On arrival, the call is neither run nor queued.
fn a_blocking_call_that_ends_in_flight_takes_no_element() {
    let ends: [fn(&Bench); 3] = [
        |bench| bench.cores[0].closed(bench.clients[0].token),
        |bench| assert!(bench.cores[0].unblock(1, false), "it waits"),
        |bench| _ = bench.cores[0].with_client(1, |conn| bench.cores[0].kill(&mut conn.lane)),
    ];
    for (end, is_there) in ends.iter().flat_map(|end| [(end, true), (end, false)]) {
        let bench = Bench::new(2);
        let key = bench.key(1);
        if is_there {
            bench.ask(1, &format!("RPUSH {key} x"));
        }
        bench.send(0, &format!("BLPOP {key} 0"));
        bench.turn(0);
        end(&bench);
        bench.settle();
        assert!(bench.cores[1].waits.borrow().is_empty());
        let len = 1 + usize::from(is_there);
        assert_eq!(bench.ask(1, &format!("RPUSH {key} y")), format!(":{len}\r\n"));
        assert_eq!(bench.ask(1, &format!("LLEN {key}")), format!(":{len}\r\n"));
        assert_eq!(bench.cores[0].blocked_counts(), (0, 0));
        assert!(bench.is_quiet());
    }
}

#[test] // On arrival it takes an element, if there is one, but does not wait.
fn a_blocking_call_that_times_out_in_flight_is_still_answered() {
    for is_there in [true, false] {
        let bench = Bench::new(2);
        let key = bench.key(1);
        if is_there {
            bench.ask(1, &format!("RPUSH {key} x"));
        }
        bench.send(0, &format!("BLPOP {key} 0.001"));
        bench.turn(0);
        bench.pass_ms(5);
        bench.turn(0);
        assert_eq!(bench.got(0), "");
        bench.settle();
        let popped = format!("*2\r\n${}\r\n{key}\r\n$1\r\nx\r\n", key.len());
        assert_eq!(bench.got(0), if is_there { popped } else { "*-1\r\n".to_owned() });
        assert_eq!(bench.cores[0].blocked_counts(), (0, 0));
        assert!(bench.is_quiet());
    }
}

#[test] // The client may be `nc -N`, which half-closes after its request.
fn a_blocking_call_of_a_half_closed_client_is_answered_without_waiting() {
    for (is_there, is_early) in [(true, true), (true, false), (false, true), (false, false)] {
        let bench = Bench::new(2);
        let key = bench.key(1);
        if is_there {
            bench.ask(1, &format!("RPUSH {key} x"));
        }
        bench.send(0, &format!("BLPOP {key} 0"));
        if !is_early {
            bench.turn(0);
        }
        bench.cores[0].ended(bench.clients[0].token);
        bench.settle();
        let popped = format!("*2\r\n${}\r\n{key}\r\n$1\r\nx\r\n", key.len());
        assert_eq!(bench.got(0), if is_there { popped } else { String::new() });
        assert!(bench.is_closed(0), "{is_there} {is_early}");
        assert_eq!(bench.ask(1, &format!("RPUSH {key} y")), ":1\r\n");
        assert_eq!(bench.ask(1, &format!("LLEN {key}")), ":1\r\n");
        assert!(bench.is_quiet());
    }
}

#[test] // The core sleeps as long as `wait` says. A wait may have begun late in its first millisecond.
fn waits_end_one_millisecond_after_their_timeout() {
    for core in [0, 1] {
        for (line, ms) in [
            ("BLPOP KEY 0.001", 1),
            ("BLPOP KEY 0.0101", 11),
            ("XREAD BLOCK 77 STREAMS KEY $", 77),
            ("BZPOPMIN KEY 1.5", 1_500),
            ("BLMOVE KEY KEY LEFT LEFT 12.345", 12_345),
        ] {
            let bench = Bench::new(2);
            let line = line.replace("KEY", &bench.key(core));
            assert_eq!(bench.ask(0, &line), "", "{line}");
            let mut passed = 0;
            loop {
                let wait = bench.turn(0);
                if !bench.got(0).is_empty() {
                    break;
                }
                let Wait::Millis(sleeps) = wait else { panic!("{line}: {wait:?}") };
                bench.pass_ms(sleeps);
                passed += sleeps;
                assert!(passed <= ms + 1, "{line}: {passed} ms");
            }
            assert_eq!(passed, ms + 1, "{line}");
        }
    }
}
