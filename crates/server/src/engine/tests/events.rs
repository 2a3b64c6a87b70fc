//! Keyspace events: what is sent for them, and who waits when they are many.

use super::*;

impl Bench {
    /// Two cores that tell of all events, and a client of core 1 that may subscribe, with a key of
    /// that core.
    fn telling() -> (Self, usize, String) {
        let mut bench = Self::new(2);
        assert_eq!(bench.ask(0, "CONFIG SET notify-keyspace-events AKE"), "+OK\r\n");
        let (listener, key) = (bench.connect(1), bench.key(1));
        (bench, listener, key)
    }

    /// A write on core 1: the messages to core 0 that it causes.
    fn messages_of_write(&self, key: &str) -> usize {
        self.settle();
        self.send(1, &format!("SET {key} v"));
        self.turn(1);
        self.got(1);
        self.mail.borrow()[0].len()
    }
}

#[test] // Events cost no message unless somebody may receive them: by either channel, or a pattern.
fn events_that_nobody_receives_are_not_sent() {
    let (bench, listener, key) = Bench::telling();
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

#[test] // Who has gone listens no more.
fn a_listener_that_has_gone_is_forgotten() {
    let (bench, listener, key) = Bench::telling();
    bench.ask(listener, "PSUBSCRIBE __key*");
    assert_eq!(bench.messages_of_write(&key), 2);
    bench.settle();
    assert_ne!(bench.got(listener), "");
    bench.cores[1].ended(bench.clients[listener].token);
    assert_eq!(bench.messages_of_write(&key), 0);
}
