//! Arrivals run in order, however much time the slice has left.

use super::*;

impl Bench {
    /// Asks core 1, through a client of another core, whether a key exists.
    fn has(&self, key: &str) -> bool {
        let (found, key) = (Arc::new(std::sync::Mutex::new(None)), key.to_owned());
        let answer = Arc::clone(&found);
        let ask = move |there: &Rc<Core>| {
            let home = there.tx.home();
            let key = darter_keyspace::Key::new(key.as_bytes());
            *answer.lock().unwrap() = Some(home.shard.db(0).get(&key).is_some());
        };
        self.mail.borrow_mut()[1].push_back((0, Mail::Ask(Box::new(ask))));
        self.turn(1);
        found.lock().unwrap().expect("it was asked")
    }
}

#[test] // Later batches of the same pipeline do not overtake it either.
fn an_interrupted_batch_is_resumed_before_later_messages() {
    let mut bench = Bench::new(2);
    let (key, other) = (bench.key(1), bench.connect(0));
    let sets: Vec<String> = (1..=4).map(|number| format!("SET {key} {number}")).collect();
    bench.send(0, &sets[..3].join("\r\n"));
    bench.turn(0);
    bench.send(0, &sets[3]);
    bench.turn(0);
    bench.send(other, &format!("GET {key}"));
    bench.turn(0);
    bench.tiny.set(true);
    bench.turn(1);
    assert!(bench.cores[1].batches.borrow().has_next(), "the slice was over");
    bench.tiny.set(false);
    bench.settle();
    assert_eq!(bench.got(other), "$1\r\n4\r\n");
}

#[test] // A waiting connection that receives more bytes is queued again.
fn received_bytes_do_not_overtake_earlier_messages() {
    let mut bench = Bench::new(2);
    let (key, other) = (bench.key(1), bench.connect(1));
    bench.short.set(true);
    bench.send(1, "PING");
    bench.send(other, &"PING\r\n".repeat(3));
    bench.turn(1); // Serves the first client; the other one must wait.
    bench.send(0, &format!("SET {key} 1\r\nSET {key} 2"));
    bench.turn(0);
    bench.send(other, &format!("GET {key}"));
    (0..20).for_each(|_| _ = bench.turn(1));
    assert!(bench.got(other).ends_with("$1\r\n2\r\n"));
}

#[test]
fn closures_from_other_cores_do_not_overtake_batches() {
    let bench = Bench::new(2);
    let key = bench.key(1);
    bench.send(0, &format!("SET {key} 1"));
    bench.turn(0);
    assert!(bench.has(&key), "asked after the batch");
}

#[test] // Messages leave in the order in which they were posted.
fn messages_of_tasks_and_of_the_core_leave_in_one_order() {
    let bench = Bench::new(2);
    let core = &bench.cores[0];
    let post = || core.post(1, Mail::Ask(Box::new(|_| {})));
    let tx = core.tx.clone();
    core.tx.spawn(async move { tx.on(1, |_| ()).await });
    post();
    core.tx.run_one();
    post();
    let mut outbox = Vec::new();
    core.drain_outbox(&mut outbox);
    let are_tasks: Vec<bool> = outbox.iter().map(|(_, mail)| matches!(mail, Mail::Tx(_))).collect();
    assert_eq!(are_tasks, [false, true, false]);
}

#[test] // The message has the lines of many commands.
fn monitor_lines_for_another_core_leave_in_one_message() {
    const COMMANDS: usize = 500;
    let bench = Bench::new(2);
    assert_eq!(bench.ask(1, "MONITOR"), "+OK\r\n");
    let most = |bench: &Bench| bench.mail.borrow()[1].len();
    bench.send(0, &"PING\r\n".repeat(COMMANDS));
    bench.turn(0);
    assert!(most(&bench) <= 2, "{} messages", most(&bench));
    bench.settle();
    assert_eq!(bench.got(1).matches("\"PING\"").count(), COMMANDS);
}

#[test] // Messages from other cores still run.
fn requests_wait_while_another_core_accepts_no_mail() {
    let mut bench = Bench::new(2);
    let (key, other) = (bench.key(1), bench.connect(1));
    bench.cores[1].hold_requests(true);
    bench.send(other, "PING");
    bench.send(0, &format!("SET {key} 1"));
    bench.settle();
    assert_eq!((bench.got(0), bench.got(other)), ("+OK\r\n".into(), String::new()));
    bench.cores[1].hold_requests(false);
    bench.settle();
    assert_eq!(bench.got(other), "+PONG\r\n");
}
