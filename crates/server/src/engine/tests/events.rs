//! Keyspace events: their messages, and throttling their writers.

use super::*;

impl Bench {
    /// Two cores that publish all events, a client of core 1 that may subscribe, and a key of core
    /// 1.
    fn with_events() -> (Self, usize, String) {
        let mut bench = Self::new(2);
        assert_eq!(bench.ask(0, "CONFIG SET notify-keyspace-events AKE"), "+OK\r\n");
        let (listener, key) = (bench.connect(1), bench.key(1));
        (bench, listener, key)
    }

    /// A key of core `core` that does not exist.
    fn absent(&self, core: usize) -> String {
        format!("absent:{{{}}}", self.key(core))
    }

    /// The number of messages to core 0 that one write on core 1 causes.
    fn messages_of_write(&self, key: &str) -> usize {
        self.settle();
        self.send(1, &format!("SET {key} v"));
        self.turn(1);
        self.got(1);
        self.mail.borrow()[0].len()
    }
}

#[test] // Subscribers of either channel, or of a matching pattern, cause one.
fn events_without_subscribers_cause_no_message() {
    let (bench, listener, key) = Bench::with_events();
    assert_eq!(bench.messages_of_write(&key), 0);
    for (verb, name, messages) in [
        ("SUBSCRIBE", "__keyevent@0__:set", 1),
        ("SUBSCRIBE", "__keyspace@0__:other", 1),
        ("PSUBSCRIBE", "__key*", 2),
        ("PSUBSCRIBE", "?[_]keyevent@?__:*", 2),
        ("PSUBSCRIBE", "news.*", 0),
        ("SUBSCRIBE", "__key", 0),
        ("SSUBSCRIBE", "__keyevent@0__:set", 0),
    ] {
        bench.ask(listener, &format!("{verb} {name}"));
        let sent = bench.messages_of_write(&key);
        assert_eq!(sent, messages, "{verb} {name}");
        let undo = verb.replace("SUB", "UNSUB");
        bench.ask(listener, &format!("{undo} {name}"));
        assert_eq!(bench.messages_of_write(&key), 0, "after {undo} {name}");
    }
}

#[test]
fn events_cause_no_message_after_their_subscriber_has_closed() {
    let (bench, listener, key) = Bench::with_events();
    bench.ask(listener, "PSUBSCRIBE __key*");
    assert_eq!(bench.messages_of_write(&key), 2);
    bench.settle();
    assert_ne!(bench.got(listener), "");
    bench.cores[1].ended(bench.clients[listener].token);
    assert_eq!(bench.messages_of_write(&key), 0);
}

#[test] // Commands that cause no events do not wait.
fn writers_wait_while_too_many_events_are_in_flight() {
    const COUNT: usize = 12_000;
    for (line, event, classes) in [("SET k v", "set", "AKE"), ("GET absent", "keymiss", "KEm")] {
        let mut bench = Bench::new(2);
        bench.ask(0, &format!("CONFIG SET notify-keyspace-events {classes}"));
        let (listener, other) = (bench.connect(1), bench.connect(0));
        bench.ask(listener, &format!("SUBSCRIBE __keyevent@0__:{event}"));
        let key = bench.key(0);
        let line = line.replace(" k", &format!(" {key}"));
        let line = line.replace("absent", &bench.absent(0));
        bench.send(0, &vec![line; COUNT].join("\r\n"));
        (0..200).for_each(|_| _ = bench.turn(0)); // Core 1 gets no turn, so it delivers nothing.
        let replied = bench.got(0).lines().count();
        assert!((4_000..8_000).contains(&replied), "{event}: {replied} replies");
        let (ping, get) = ("PING", format!("GET {key}"));
        let reads: &[&str] = if event == "set" { &[ping, &get] } else { &[ping] };
        for read in reads {
            bench.send(other, read);
            bench.turn(0);
            assert_ne!(bench.got(other), "", "{event}: {read} does not wait");
        }
        (0..100).for_each(|_| bench.settle());
        assert_eq!(replied + bench.got(0).lines().count(), COUNT, "{event}");
        let told = bench.got(listener).matches("__keyevent").count();
        assert_eq!(told, COUNT, "{event}: none is lost");
    }
}

#[test]
fn events_of_one_exec_are_sent_in_portions() {
    const COUNT: usize = 500;
    let (bench, listener, key) = Bench::with_events();
    bench.ask(listener, "SUBSCRIBE __keyevent@0__:set");
    let sets = vec![format!("SET {key} v"); COUNT].join("\r\n");
    bench.ask(1, &format!("MULTI\r\n{sets}"));
    bench.short.set(true);
    bench.send(1, "EXEC");
    let (mut most, mut turns) = (0, 0);
    while bench.got(1).is_empty() {
        bench.turn(1);
        most = most.max(bench.mail.borrow()[0].len());
        bench.turn(0);
        turns += 1;
        assert!(turns < 20_000, "it does not end");
    }
    assert!((1..=200).contains(&most), "{most} messages at once");
    bench.short.set(false);
    bench.settle();
    assert_eq!(bench.got(listener).matches("__keyevent").count(), COUNT);
}
