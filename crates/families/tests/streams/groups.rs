//! Tests of consumer groups with very many pending entries: changed in portions on the side, and
//! shown as of one instant.

use crate::common::engine::Engine;
use darter_base::preempt::Countdown;
use darter_families::stream::Stream;
use darter_keyspace::Key;

const ENTRIES: usize = 5_000;

/// A stream `x` of [`ENTRIES`] entries, with a group `g` that has read none of them.
fn filled() -> Engine {
    let mut engine = Engine::new(1_000_000, 3);
    engine.preempt = Box::new(Countdown::new(0));
    for number in 1..=ENTRIES {
        engine.line(&format!("XADD x {number} f v"));
    }
    assert_eq!(engine.line("XGROUP CREATE x g 0"), "+OK\r\n");
    engine
}

/// The number of entries pending at the consumer.
fn pending(engine: &Engine, consumer: &str) -> usize {
    let stream = engine.db.value::<Stream>(&Key::new(b"x")).unwrap().unwrap();
    let group = stream.groups().get(b"g").unwrap();
    group.consumer(consumer.as_bytes()).map_or(0, |consumer| consumer.pending_len())
}

/// The number of entries in a reply.
fn shown(reply: &str) -> usize {
    reply.matches("\r\nf\r\n").count()
}

fn ids(numbers: std::ops::Range<usize>) -> String {
    numbers.map(|number| format!(" {number}")).collect()
}

#[test] // And their group is removed.
fn thousands_of_pending_entries_are_read_claimed_and_acknowledged() {
    let mut engine = filled();
    let portions = |engine: &Engine, before: &mut usize, least: usize, what: &str| {
        let more = engine.portions - std::mem::replace(before, engine.portions);
        assert!(more >= least, "{what}: {more} portions");
    };
    let mut before = engine.portions;
    assert_eq!(shown(&engine.line("XREADGROUP GROUP g a STREAMS x >")), ENTRIES);
    portions(&engine, &mut before, ENTRIES / 32, "reading");
    assert_eq!(shown(&engine.line("XREADGROUP GROUP g a STREAMS x 0")), ENTRIES);
    portions(&engine, &mut before, ENTRIES / 32, "reading again");
    assert_eq!(engine.line(&format!("XACK x g{}", ids(1..2_001))), ":2000\r\n");
    portions(&engine, &mut before, 2_000 / 32, "acknowledging");
    assert_eq!(shown(&engine.line(&format!("XCLAIM x g b 0{}", ids(1..4_001)))), 2_000);
    portions(&engine, &mut before, 4_000 / 16, "claiming");
    let reply = engine.line("XAUTOCLAIM x g c 0 3001 COUNT 1500");
    assert!(reply.starts_with("*3\r\n$6\r\n4501-0\r\n*1500\r\n"), "{}", &reply[..40]);
    portions(&engine, &mut before, 1_500 / 16, "claiming by itself");
    assert_eq!(["a", "b", "c"].map(|name| pending(&engine, name)), [500, 1_000, 1_500]);
    assert_eq!(engine.line("XPENDING x g IDLE 1 - + 10"), "*0\r\n");
    assert_eq!(engine.line("XGROUP DELCONSUMER x g c"), ":1500\r\n");
    portions(&engine, &mut before, 1_500 / 64, "removing");
    let reply = engine.line("XPENDING x g - + 9999");
    assert!(reply.starts_with("*1500\r\n") && reply.matches("\r\n:").count() == 3_000);
    assert_eq!(engine.line("XGROUP DESTROY x g"), ":1\r\n");
    engine.db.check_invariants();
}

#[test] // Including deleted ones, and entries at random places.
fn xclaim_of_thousands_of_entries_keeps_their_order() {
    let mut engine = filled();
    engine.line("XREADGROUP GROUP g a STREAMS x >");
    let numbers: Vec<_> = (0..ENTRIES).map(|at| at * 7 % ENTRIES + 1).collect();
    let ids: String = numbers.iter().map(|number| format!(" {number}")).collect();
    let listed: String = numbers.iter().map(|number| bulk(&format!("{number}-0"))).collect();
    let whole = engine.line(&format!("XCLAIM x g b 0{ids}"));
    assert_eq!(whole, format!("*{ENTRIES}\r\n{}", entries(&numbers)));
    let only_ids = engine.line(&format!("XCLAIM x g c 0{ids} JUSTID"));
    assert_eq!(only_ids, format!("*{ENTRIES}\r\n{listed}"));
    engine.line(&format!("XDEL x{}", self::ids(1..ENTRIES / 2 + 1)));
    let (gone, left): (Vec<_>, Vec<_>) = (1..=ENTRIES).partition(|number| *number <= ENTRIES / 2);
    let reply = engine.line(&format!("XAUTOCLAIM x g d 0 0 COUNT {ENTRIES}"));
    let listed: String = gone.iter().map(|number| bulk(&format!("{number}-0"))).collect();
    let claimed = format!("*{}\r\n{}", left.len(), entries(&left));
    assert_eq!(reply, format!("*3\r\n{}{claimed}*{}\r\n{listed}", bulk("0-0"), gone.len()));
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The reply that shows the entries with these numbers.
fn entries(numbers: &[usize]) -> String {
    let one = |number| {
        let id = bulk(&format!("{number}-0"));
        format!("*2\r\n{id}*2\r\n{}{}", bulk("f"), bulk("v"))
    };
    numbers.iter().map(one).collect()
}

#[test] // Short and long reads.
fn xreadgroup_reads_a_stream_named_twice_only_once() {
    let mut engine = filled();
    let reply = engine.line("XREADGROUP GROUP g a STREAMS x x > >");
    assert!(reply.starts_with("*1\r\n") && shown(&reply) == ENTRIES);
    let reply = engine.line("XREADGROUP GROUP g a COUNT 2000 STREAMS x x 0 1000");
    assert!(reply.starts_with("*2\r\n") && shown(&reply) == 4_000);
    assert_eq!(pending(&engine, "a"), ENTRIES);
    assert_eq!(engine.line("XACK x g 1 2"), ":2\r\n");
    engine.db.check_invariants();
}

#[test] // Entries at random places, or many arguments, take more than a slice.
fn dozens_of_entries_are_changed_in_slices() {
    let mut engine = filled();
    engine.line("XREADGROUP GROUP g a STREAMS x >");
    let wrong = format!("XACK x g{} wrong", ids(1..ENTRIES));
    let options = format!("XCLAIM x g b 0{}{} WRONG", ids(1..ENTRIES), " FORCE".repeat(ENTRIES));
    for (line, least) in [(wrong, ENTRIES / 512), (options, 2 * ENTRIES / 512)] {
        let before = engine.portions;
        assert!(engine.line(&line).starts_with('-'));
        assert!(engine.portions - before >= least, "{}", &line[..8]);
    }
    assert_eq!(pending(&engine, "a"), ENTRIES);
    let lines = [
        (format!("XCLAIM x g b 0{} JUSTID", ids(1..101)), 100 / 4),
        ("XAUTOCLAIM x g b 0 101 COUNT 100".into(), 100 / 4),
        ("XREADGROUP GROUP g b STREAMS x 0".into(), 200 / 8),
        (format!("XACK x g{}", ids(1..101)), 100 / 8),
        ("XGROUP DELCONSUMER x g b".into(), 100 / 8),
    ];
    for (line, least) in lines {
        let before = engine.portions;
        assert!(!engine.line(&line).starts_with('-'));
        assert!(engine.portions - before >= least, "{line}");
    }
    assert_eq!(pending(&engine, "a"), ENTRIES - 200);
    assert!(engine.line("XPENDING x g").ends_with("*1\r\n*2\r\n$1\r\na\r\n$4\r\n4800\r\n"));
    engine.db.check_invariants();
}

/// The IDs of all entries.
fn kept(engine: &Engine) -> Vec<u64> {
    let stream = engine.db.value::<Stream>(&Key::new(b"x")).unwrap().unwrap();
    let entries = stream.entries();
    entries.range(0..entries.len()).map(|entry| entry.id().ms).collect()
}

/// Adds forty groups: group n has read n * 100 entries, and acknowledged all of them except every
/// n-th.
fn with_groups() -> Engine {
    let mut engine = filled();
    for group in 2..=40_usize {
        engine.line(&format!("XGROUP CREATE x group:{group} 0"));
        let (from, count) = (format!("group:{group}"), group * 100);
        engine.line(&format!("XREADGROUP GROUP {from} a COUNT {count} STREAMS x >"));
        let numbers = (1..=count).filter(|number| !number.is_multiple_of(group));
        let ids: String = numbers.map(|number| format!(" {number}")).collect();
        engine.line(&format!("XACK x {from}{ids}"));
    }
    engine.line("XGROUP DESTROY x g");
    engine
}

/// Whether some group still needs the entry. The second group has read the fewest.
fn is_held(number: usize) -> bool {
    number > 200 || (2..=40).any(|group| number.is_multiple_of(group) && number <= group * 100)
}

#[test] // In all groups.
fn pending_references_are_searched_in_portions() {
    for line in ["XTRIM x MAXLEN 10 ACKED", "XADD x MAXLEN 10 ACKED 9000 f v"] {
        let mut engine = with_groups();
        let before = engine.portions;
        let reply = engine.line(line);
        let free = (1..=ENTRIES).filter(|number| !is_held(*number)).count();
        assert!(engine.portions - before > 20, "{line}");
        let held = (1..=ENTRIES).filter(|number| is_held(*number)).map(|number| number as u64);
        let added = line.starts_with("XADD").then_some(9_000);
        assert_eq!(kept(&engine), held.chain(added).collect::<Vec<_>>(), "{line}");
        assert!(reply == format!(":{free}\r\n") || reply == "$6\r\n9000-0\r\n", "{reply}");
        engine.db.check_invariants();
    }
    let mut engine = with_groups();
    let words = format!("XDELEX x ACKED IDS {ENTRIES}{}", ids(1..ENTRIES + 1));
    let codes = (1..=ENTRIES).map(|number| if is_held(number) { ":2\r\n" } else { ":1\r\n" });
    let before = engine.portions;
    assert!(engine.line(&words) == format!("*{ENTRIES}\r\n{}", codes.collect::<String>()));
    assert!(engine.portions - before > ENTRIES / 8);
    let before = engine.portions;
    let rest = kept(&engine).len();
    assert_eq!(engine.line("XTRIM x MINID 3000 DELREF"), format!(":{}\r\n", rest - 2_001));
    assert!(engine.portions - before > 40);
    for group in 2..=40_usize {
        let left = engine.line(&format!("XPENDING x group:{group} - 2999 9999"));
        assert_eq!(left, "*0\r\n", "{group}");
        let more = format!("XPENDING x group:{group} 3000 + 9999");
        let wanted = (3_000..=group * 100).filter(|number| number.is_multiple_of(group)).count();
        assert!(engine.line(&more).starts_with(&format!("*{wanted}\r\n")), "{group}");
    }
    let words = format!("XACKDEL x group:40 DELREF IDS 2001{}", ids(3_000..5_001));
    assert_eq!(engine.line(&words).matches(":1\r\n").count(), 26);
    let words = format!("XNACK x group:37 FATAL IDS 701{}", ids(3_000..3_701));
    assert_eq!(engine.line(&words), ":19\r\n");
    assert_eq!(engine.line("XPENDING x group:37 - + 9999").matches("$0\r\n").count(), 19);
    engine.db.check_invariants();
}

#[test] // However few entries are left in the stream.
fn pending_deleted_entries_are_skipped_in_portions() {
    for line in ["XTRIM x MAXLEN 1 DELREF", "XADD x MAXLEN 1 DELREF 9000 f v"] {
        let mut engine = filled();
        engine.line("XREADGROUP GROUP g a STREAMS x >");
        engine.line(&format!("XDEL x{}", ids(2..ENTRIES)));
        let before = engine.portions;
        assert!(!engine.line(line).starts_with('-'));
        assert!(engine.portions - before > ENTRIES / 16, "{line}");
        assert_eq!(kept(&engine).len(), 1);
        let left = if line.starts_with("XADD") { ENTRIES - 2 } else { ENTRIES - 1 };
        assert_eq!(pending(&engine, "a"), left, "{line}");
        engine.db.check_invariants();
    }
    // The entries of a node are removed at once.
    let mut engine = filled();
    engine.line("XREADGROUP GROUP g a STREAMS x >");
    engine.line("XTRIM x MAXLEN 299");
    let before = engine.portions;
    engine.line("XADD x MAXLEN ~ 200 DELREF 9000 f v");
    assert!(engine.portions - before >= 100 / 16);
    assert_eq!(kept(&engine).len(), 200);
}

#[test]
fn a_change_in_portions_does_not_revive_an_expired_key() {
    let few = ids(1..101);
    for (line, wanted) in [
        (format!("XACK x g{few}"), ":100\r\n"),
        (format!("XNACK x g FAIL IDS 100{few}"), ":100\r\n"),
        (format!("XCLAIM x g b 0{few} JUSTID"), "*100\r\n"),
        ("XAUTOCLAIM x g b 0 1 COUNT 100 JUSTID".into(), "*3\r\n$5\r\n101-0\r\n*100\r\n"),
        (format!("XDELEX x DELREF IDS 100{few}"), "*100\r\n:1\r\n"),
        (format!("XACKDEL x g IDS 100{few}"), "*100\r\n:1\r\n"),
        ("XGROUP DELCONSUMER x g a".into(), ":5000\r\n"),
        ("XTRIM x MAXLEN 100 DELREF".into(), ":4900\r\n"),
        ("XADD x NOMKSTREAM MAXLEN 100 DELREF 9000 f v".into(), "$6\r\n9000-0\r\n"),
    ] {
        let mut engine = filled();
        engine.line("XREADGROUP GROUP g a STREAMS x >");
        engine.line("PEXPIRE x 5");
        engine.portion_ms = 10;
        let before = engine.portions;
        assert!(engine.line(&line).starts_with(wanted), "{line}");
        assert!(engine.portions > before, "{line}");
        assert_eq!(engine.line("EXISTS x"), ":0\r\n", "{line}");
        engine.db.check_invariants();
    }
}

/// The reply of XREADGROUP CLAIM for an entry: its number, its idle time and its deliveries.
fn told((number, idle_ms, times): (usize, i64, u64)) -> String {
    let entry = entries(&[number]).replacen("*2", "*4", 1);
    format!("{entry}:{idle_ms}\r\n:{times}\r\n")
}

fn all_told(entries: &[(usize, i64, u64)]) -> String {
    let all: String = entries.iter().copied().map(told).collect();
    format!("*1\r\n*2\r\n{}*{}\r\n{all}", bulk("x"), entries.len())
}

#[test] // In delivery order; COUNT limits both together.
fn idle_entries_are_claimed_before_new_ones_are_read() {
    let mut engine = filled();
    engine.line("XREADGROUP GROUP g a COUNT 1 STREAMS x >");
    engine.tick(50);
    engine.line("XREADGROUP GROUP g b COUNT 2 STREAMS x >");
    engine.line("XCLAIM x g b 0 1 IDLE 10 JUSTID");
    engine.tick(50);
    assert_eq!(
        engine.line("XREADGROUP GROUP g c COUNT 1 CLAIM 61 STREAMS x >"),
        all_told(&[(4, 0, 0)])
    );
    let reply = engine.line("XREADGROUP GROUP g c COUNT 4 CLAIM 50 STREAMS x >");
    assert_eq!(reply, all_told(&[(1, 60, 1), (2, 50, 1), (3, 50, 1), (5, 0, 0)]));
    assert_eq!(["a", "b", "c"].map(|name| pending(&engine, name)), [0, 0, 5]);
    // Immediately afterwards: with a minimum of 0 all entries are idle enough, with any other
    // minimum none is.
    let reply = engine.line("XREADGROUP GROUP g d COUNT 2 CLAIM 1 NOACK STREAMS x >");
    assert_eq!(reply, all_told(&[(6, 0, 0), (7, 0, 0)]));
    let reply = engine.line("XREADGROUP GROUP g d COUNT 6 CLAIM 0 NOACK STREAMS x >");
    let times = [(1, 0, 2), (2, 0, 2), (3, 0, 2), (4, 0, 1), (5, 0, 1), (8, 0, 0)];
    assert_eq!(reply, all_told(&times), "each once");
    assert_eq!(
        ["c", "d"].map(|name| pending(&engine, name)),
        [0, 5],
        "what is claimed stays pending"
    );
    // A deleted entry, an entry without a consumer, and an ID that was never claimed.
    engine.line("XDEL x 2");
    engine.line("XNACK x g SILENT IDS 1 3-0");
    let reply = engine.line("XREADGROUP GROUP g e COUNT 1 CLAIM 9999999999 STREAMS x >");
    assert!(reply.contains("$3\r\n3-0\r\n") && reply.contains(":-1\r\n"), "{reply}");
    engine.tick(5);
    let reply = engine.line("XREADGROUP GROUP g e COUNT 2 CLAIM 5 STREAMS x >");
    let gone = format!("*4\r\n{}*-1\r\n:5\r\n:3\r\n", bulk("2-0"));
    assert_eq!(reply, format!("*1\r\n*2\r\n{}*2\r\n{}{gone}", bulk("x"), told((1, 5, 3))));
    let reply = engine.line("XREADGROUP GROUP g e COUNT 1 CLAIM 0 STREAMS x 0");
    assert_eq!(reply, format!("*1\r\n*2\r\n{}*1\r\n{}", bulk("x"), entries(&[1])));
    engine.db.check_invariants();
}

#[test] // In portions, though claimed entries move to the end.
fn xreadgroup_claims_thousands_of_idle_entries_once_each() {
    for idle_ms in [0, 10] {
        let mut engine = filled();
        engine.line("XREADGROUP GROUP g a COUNT 4000 STREAMS x >");
        engine.tick(10);
        let before = engine.portions;
        let reply = engine.line(&format!("XREADGROUP GROUP g b CLAIM {idle_ms} STREAMS x >"));
        let expected: Vec<_> = (1..=ENTRIES)
            .map(|number| if number <= 4_000 { (number, 10, 1) } else { (number, 0, 0) })
            .collect();
        assert!(reply == all_told(&expected), "{idle_ms}");
        assert!(engine.portions - before >= 4_000 / 8, "{} portions", engine.portions - before);
        assert_eq!(["a", "b"].map(|name| pending(&engine, name)), [0, ENTRIES]);
        engine.db.check_invariants();
    }
}
