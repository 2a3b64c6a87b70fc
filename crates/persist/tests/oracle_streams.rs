//! Streams in payloads, against the real server: its payloads are read, and it restores those
//! written from them, also with deep checks.

use crate::common::{Bytes, Oracle, Reply};
use darter_base::{Prng, StreamId};
use darter_families::stream::Stream;
use darter_keyspace::{NewItem, Value as _};
use darter_rdb::crc64;
use darter_rdb::dump::{self, Dumper};
use darter_rdb::{
    Bounds, Encoding, Error, Event, Generation, Item, Kind, Layout, Limits, Piece, Source,
};
use darter_structs::stream::Element;
use std::collections::BTreeSet;

static STREAM: Kind = Kind {
    encodings: &[
        Encoding::new(19, Layout::Entries(Generation::Second)),
        Encoding::new(15, Layout::Entries(Generation::First)),
        Encoding::new(21, Layout::Entries(Generation::Third)),
    ],
    packed: Bounds::DEFAULT,
    plan: |survey| survey.entries(19),
};
static KINDS: &[&Kind] = &[&STREAM];

/// A text, or a piece that has none.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(Bytes),
    Piece(Piece<'static>),
    Named(Bytes, Piece<'static>),
}

/// A stream, as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
struct Parts {
    all: Vec<Part>,
    common: Common,
    next: usize,
    /// The text that is being returned in parts, and how much of it was.
    long: Option<usize>,
}

/// The names that entries have in common, and what is still to come: names, values, a long text.
#[derive(Clone, Debug, Default, PartialEq)]
struct Common {
    names: Vec<Bytes>,
    names_left: u64,
    values_left: u64,
    long: Option<(Bytes, u64)>,
}

impl Parts {
    fn add(&mut self, item: Item<'_>) {
        let common = &mut self.common;
        match item {
            Item::Single { name, .. } => return self.add_text(name.into()),
            Item::Piece(Piece::Names { names }) => {
                (common.names, common.names_left) = (Vec::new(), names);
                return;
            }
            Item::Piece(Piece::Same { id }) => {
                common.values_left = common.names.len() as u64;
                let fields = 2 * common.values_left;
                return self.all.push(Part::Piece(Piece::Entry { id, fields }));
            }
            Item::Piece(Piece::Long { len }) => {
                common.long = Some((Bytes::new(), len));
                return;
            }
            Item::Piece(Piece::Part(bytes)) => {
                let (text, len) = common.long.as_mut().expect("its length came first");
                text.extend_from_slice(bytes);
                if text.len() as u64 == *len {
                    let text = std::mem::take(text);
                    common.long = None;
                    self.add_text(text);
                }
                return;
            }
            Item::Piece(Piece::Gone) => return,
            _ => {}
        }
        self.all.push(match item {
            Item::Piece(Piece::Group { name, last, read, pending, .. }) => {
                let piece = Piece::Group { name: b"", last, read, pending, consumers: 0 };
                Part::Named(name.into(), piece)
            }
            Item::Piece(Piece::Consumer { name, seen_ms, active_ms, pending }) => {
                let piece = Piece::Consumer { name: b"", seen_ms, active_ms, pending };
                Part::Named(name.into(), piece)
            }
            Item::Piece(Piece::Entry { id, fields }) => Part::Piece(Piece::Entry { id, fields }),
            Item::Piece(Piece::State { last, max_deleted, added, groups }) => {
                Part::Piece(Piece::State { last, max_deleted, added, groups })
            }
            Item::Piece(Piece::Pending { id, delivered_ms, times }) => {
                Part::Piece(Piece::Pending { id, delivered_ms, times })
            }
            Item::Piece(Piece::Owned(id)) => Part::Piece(Piece::Owned(id)),
            other => panic!("{other:?}"),
        });
    }

    /// A name or a value; values follow their names.
    fn add_text(&mut self, text: Bytes) {
        let common = &mut self.common;
        if common.names_left > 0 {
            common.names_left -= 1;
            return common.names.push(text);
        }
        if common.values_left > 0 {
            let name = common.names[common.names.len() - common.values_left as usize].clone();
            common.values_left -= 1;
            self.all.push(Part::Text(name));
        }
        self.all.push(Part::Text(text));
    }

    /// Groups learn how many consumers they have.
    fn count_consumers(&mut self) {
        let mut count = 0;
        for part in self.all.iter_mut().rev() {
            match part {
                Part::Named(_, Piece::Consumer { .. }) => count += 1,
                Part::Named(_, Piece::Group { consumers, .. }) => {
                    *consumers = std::mem::take(&mut count)
                }
                _ => {}
            }
        }
    }

    fn payload(&self) -> Bytes {
        dump::write(self.clone(), &STREAM)
    }
}

/// Texts of this length come in parts of half of it.
const LONG: usize = 4_096;

impl Source for Parts {
    fn next(&mut self) -> Option<Item<'_>> {
        if let (Some(from), Part::Text(text)) = (self.long, self.all.get(self.next)?) {
            let to = text.len().min(from + LONG / 2);
            self.long = (to < text.len()).then_some(to);
            self.next += usize::from(to == text.len());
            return Some(Item::Part(&text[from..to]));
        }
        self.next += 1;
        Some(match &self.all[self.next - 1] {
            Part::Text(text) if text.len() >= LONG => {
                self.next -= 1;
                self.long = Some(0);
                Item::LongSingle { len: text.len() as u64, deadline_ms: None }
            }
            Part::Text(text) => Item::Single { name: text, deadline_ms: None },
            Part::Piece(piece) => Item::Piece(*piece),
            Part::Named(text, Piece::Group { last, read, pending, consumers, .. }) => {
                let (last, read, pending, consumers) = (*last, *read, *pending, *consumers);
                Item::Piece(Piece::Group { name: text, last, read, pending, consumers })
            }
            Part::Named(text, Piece::Consumer { seen_ms, active_ms, pending, .. }) => {
                let (seen_ms, active_ms, pending) = (*seen_ms, *active_ms, *pending);
                Item::Piece(Piece::Consumer { name: text, seen_ms, active_ms, pending })
            }
            Part::Named(..) => unreachable!("only these have names"),
        })
    }

    fn rewind(&mut self) {
        self.next = 0;
    }
}

/// Reads a payload in chunks of `step` bytes.
fn read(payload: &[u8], step: usize) -> Result<Parts, Error> {
    let mut reader = dump::reader(payload, KINDS, Limits::default()).expect("it has a trailer");
    let (mut parts, mut chunks) = (Parts::default(), payload.chunks(step.max(1)));
    while !reader.is_done() {
        match reader.next()? {
            Some(Event::Item(item)) => parts.add(item),
            Some(_) => {}
            None => match chunks.next() {
                Some(chunk) => reader.push(chunk),
                None => reader.finish(),
            },
        }
    }
    parts.count_consumers();
    parts.common = Common::default();
    Ok(parts)
}

fn words(line: &str) -> Vec<Bytes> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn run(oracle: &mut Oracle, line: &str) -> Reply {
    let words = words(line);
    oracle.call(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// A stream of `entries`, some deleted if `prng` says so, with groups.
fn fill(oracle: &mut Oracle, key: &str, entries: u64, prng: &mut Prng) {
    let (mut ms, names) = (1_000, 1 + prng.below(3));
    for entry in 0..entries {
        ms += prng.below(3);
        let mut line = format!("XADD {key} {ms}-{entry}");
        for name in 0..names + u64::from(prng.chance(20)) {
            let value = match prng.below(4) {
                0 => prng.next_u64().to_string(),
                1 => "v".repeat(prng.below(200) as usize + 1),
                2 => format!("-{}", prng.below(100_000)),
                _ => format!("value:{entry}"),
            };
            line += &format!(" field:{name} {value}");
        }
        run(oracle, &line);
    }
    for group in 0..prng.below(4) {
        let start = ["0", "$", "1001-5"][prng.below(3) as usize];
        run(oracle, &format!("XGROUP CREATE {key} group:{group} {start}"));
        for _ in 0..prng.below(4) {
            let (who, count) = (prng.below(30), prng.below(200) + 1);
            let line =
                format!("XREADGROUP GROUP group:{group} {who} COUNT {count} STREAMS {key} >");
            run(oracle, &line);
            run(oracle, &format!("XACK {key} group:{group} 1001-{} 1003-4", prng.below(20)));
        }
    }
    if prng.chance(50) {
        for _ in 0..prng.below(entries.min(30) + 1) {
            run(oracle, &format!("XDEL {key} {}-{}", 1_000 + prng.below(20), prng.below(20)));
        }
        run(oracle, &format!("XTRIM {key} MAXLEN {}", entries / 2 + 1));
    }
}

/// The reply of XINFO, without the shape of the tree.
fn told(oracle: &mut Oracle, key: &str) -> Vec<Reply> {
    match run(oracle, &format!("XINFO STREAM {key} FULL COUNT 0")) {
        Reply::Array(all) => [&all[..2], &all[6..]].concat(),
        other => panic!("{other:?}"),
    }
}

#[test] // Our reader gets the payload in pieces of any size.
fn streams_are_exchanged_with_redis_in_both_directions() {
    let mut oracle = Oracle::start(&["--rdbcompression", "no", "--sanitize-dump-payload", "yes"]);
    let mut prng = Prng::from_seed(23);
    let mut equal = 0;
    for (index, entries) in [1, 2, 5, 20, 99, 100, 101, 300, 1_000].repeat(3).iter().enumerate() {
        let key = format!("stream:{index}");
        fill(&mut oracle, &key, *entries, &mut prng);
        let theirs = oracle.must(&[b"DUMP", key.as_bytes()]).bulk();
        let parts = read(&theirs, theirs.len()).expect("the oracle wrote it");
        let step = 1 + prng.below(50) as usize;
        assert_eq!(read(&theirs, step).as_ref(), Ok(&parts), "{key} in pieces of {step}");
        let ours = parts.payload();
        assert_eq!(read(&ours, ours.len()).as_ref(), Ok(&parts), "{key}");
        equal += usize::from(ours == theirs);
        oracle.must(&[b"RESTORE", b"copy", b"0", &ours, b"REPLACE"]);
        assert_eq!(told(&mut oracle, "copy"), told(&mut oracle, &key), "{key}");
        run(&mut oracle, "XADD copy * more 1");
    }
    assert!(equal > 8, "where nothing was deleted the bytes are the oracle's: {equal}");
}

#[test] // Longer entries are not collected before writing.
fn stream_entries_around_the_size_limit_are_written_and_read() {
    let mut oracle = Oracle::start(&["--sanitize-dump-payload", "yes"]);
    let mut prng = Prng::from_seed(4);
    let mut parts = Parts::default();
    let sizes = [[10, 10], [4_095, 4_096], [5_000, 16_384], [16_385, 5], [12, 300_000], [3, 3]];
    for (entry, sizes) in sizes.iter().enumerate() {
        let id = StreamId::new(7, entry as u64 + 1);
        parts.all.push(Part::Piece(Piece::Entry { id, fields: 4 }));
        for len in [sizes[0], sizes[1], 2, sizes[0]] {
            parts.all.push(Part::Text(prng.bytes(len..=len)));
        }
    }
    let (last, max_deleted) = (StreamId::new(9, 9), StreamId::MIN);
    parts.all.push(Part::Piece(Piece::State { last, max_deleted, added: 6, groups: 0 }));
    let payload = parts.payload();
    assert_eq!(read(&payload, 1_000).as_ref(), Ok(&parts));
    oracle.must(&[b"RESTORE", b"s", b"0", &payload]);
    let Reply::Array(entries) = run(&mut oracle, "XRANGE s - +") else { panic!("no entries") };
    let texts = entries.into_iter().flat_map(|entry| match entry {
        Reply::Array(mut entry) => entry.remove(1).texts(),
        other => panic!("{other:?}"),
    });
    let ours = parts.all.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.clone()),
        _ => None,
    });
    assert!(texts.eq(ours), "the texts are the same");
    // The dump is also read piece by piece.
    let mut dumper = Dumper::new(parts.clone(), &STREAM);
    let len = loop {
        if let Some(len) = dumper.survey(3) {
            break len;
        }
    };
    let mut out = Vec::new();
    while !dumper.fill(&mut out, 100) {}
    assert!(out.len() as u64 == len && out == payload);
}

/// The worked example of redis-server 7.0.15, and an emptied stream with a group.
const EXAMPLE: &str = "13 01 10 00000000000003e80000000000000001 404d 4d0000001f00 0301 0101 0201 817402
    817502 0001 0201 0001 0001 1401 814302 0501 0301 0001 0101 1501 814302 0501 0001 0501 dfff02 0101
    817802 0101 0601 0201 0501 0601 dffd02 814602 0501 ff 03 43ed07 43e801 43e802 04 01 0167 43ed00
    81ffffffffffffffff 01 00000000000003ed0000000000000000 0068e5cf8b010000 01 02 02616c
    0068e5cf8b010000 01 00000000000003ed0000000000000000 03626f62 0068e5cf8b010000 00";

fn bytes(hex: &str) -> Bytes {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let text = |pair: &[u8]| String::from_utf8_lossy(pair).into_owned();
    digits.chunks(2).map(|pair| u8::from_str_radix(&text(pair), 16).expect("hex")).collect()
}

/// A payload of these bytes.
fn sealed(mut body: Bytes) -> Bytes {
    body.extend_from_slice(&10_u16.to_le_bytes());
    let sum = crc64::of(&body);
    body.extend_from_slice(&sum.to_le_bytes());
    body
}

#[test]
fn the_documented_stream_payload_is_read() {
    let parts = read(&sealed(bytes(EXAMPLE)), 7).expect("it is redis-server's");
    let texts = parts.all.iter().filter_map(|part| match part {
        Part::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    });
    assert_eq!(texts.collect::<Vec<_>>().join(" "), "t 20 u C x 1 t -3 u F");
    let id = StreamId::new(1_005, 0);
    let state = Piece::State {
        last: StreamId::new(1_005, 7),
        max_deleted: StreamId::new(1_000, 2),
        added: 4,
        groups: 1,
    };
    let at = 1_700_000_000_000;
    let consumer =
        |pending| Piece::Consumer { name: b"", seen_ms: at, active_ms: Some(at), pending };
    let group = Piece::Group { name: b"", last: id, read: None, pending: 1, consumers: 2 };
    let wanted = [
        Part::Piece(state),
        Part::Named(b"g".to_vec(), group),
        Part::Piece(Piece::Pending { id, delivered_ms: at, times: 1 }),
        Part::Named(b"al".to_vec(), consumer(1)),
        Part::Piece(Piece::Owned(id)),
        Part::Named(b"bob".to_vec(), consumer(0)),
    ];
    assert_eq!(parts.all[parts.all.len() - 6..], wanted);
    let empty = "13 00 00 05 00 00 00 05 00 01 01 01 67 05 00 81 ffffffffffffffff 00 00";
    assert_eq!(read(&sealed(bytes(empty)), 3).expect("it is redis-server's").all.len(), 2);
}

#[test] // The format lacks the groups' read counts, which are computed.
fn streams_in_the_format_of_redis_5_are_read() {
    let list = "1d0000000f00 0201 0001 0101 816102 0001 0201 0001 0001 0101 0401 0201 0101 0001 0201 0401 ff";
    let size = format!("{:02x}000000", bytes(list).len());
    let list = list.replacen("1d000000", &size, 1);
    let length = bytes(&list).len();
    for (last, read_before) in
        [("05 01", Some(1)), ("05 00", Some(0)), ("06 01", Some(2)), ("09 00", None)]
    {
        let body = format!(
            "0f 01 10 00000000000000050000000000000001 {length:02x} {list} 02 06 01 01 0167 {last} 00 00"
        );
        let parts = read(&sealed(bytes(&body)), 5).expect("as Redis 5 wrote it");
        let state = Piece::State {
            last: StreamId::new(6, 1),
            max_deleted: StreamId::MIN,
            added: 2,
            groups: 1,
        };
        assert_eq!(parts.all[parts.all.len() - 2], Part::Piece(state));
        let Some(Part::Named(_, Piece::Group { read, .. })) = parts.all.last() else { panic!() };
        assert_eq!(*read, read_before, "up to {last}");
    }
}

#[test]
fn inconsistent_streams_are_refused_with_the_offset() {
    let cases = [
        ("13 01 10", "13 01 0f", "a key that is no ID"),
        ("0301 0101 0201", "0201 0101 0201", "more entries than it says"),
        ("0301 0101 0201", "0401 0101 0201", "it ends within an entry"),
        ("0301 0101 0201", "0301 0001 0201", "more deleted entries than it says"),
        ("0301 0101 0201", "0301 dfff02 01", "a count below 0"),
        ("817502 0001 0201", "817502 0101 0201", "names that do not end in 0"),
        ("814302 0501 0301", "814302 0601 0301", "an entry whose length behind it is wrong"),
        ("0301 0001 0101 1501", "0301 0001 0001 1501", "IDs that do not ascend"),
        (
            "0068e5cf8b010000 01 00000000000003ed0000000000000000 03626f62",
            "0068e5cf8b010000 00 03626f62",
            "pending entries without a consumer",
        ),
        ("13 01 10", "13 00 01", "entries, and no blocks of them"),
    ];
    let plain: String = EXAMPLE.split_whitespace().collect::<Vec<_>>().concat();
    for (from, to, fault) in cases {
        let (from, to) = (from.replace(' ', ""), to.replace(' ', ""));
        assert!(plain.contains(&from), "{from}");
        let mut broken = bytes(&plain.replacen(&from, &to, 1));
        if fault.starts_with("entries, and") {
            broken = bytes("13 00 03 05 00 00 00 05 00 01 00");
        }
        let error = read(&sealed(broken), 9).expect_err(fault);
        assert!(error.to_string().contains(fault), "{error}, not {fault}");
    }
}

#[test] // Pieces of any size give equal results.
fn arbitrary_bytes_give_an_error_or_a_stream() {
    let mut prng = Prng::from_seed(77);
    let whole = bytes(EXAMPLE);
    for _ in 0..20_000 {
        let mut body = whole.clone();
        for _ in 0..=prng.below(4) {
            let at = prng.below(body.len() as u64) as usize;
            match prng.below(4) {
                0 => body[at] = prng.next_u64() as u8,
                1 => drop(body.remove(at)),
                2 => body.insert(at, [0, 1, 0xff, 0x81][prng.below(4) as usize]),
                _ => body[at] = body[at].wrapping_add(1),
            }
        }
        let payload = sealed(body);
        let step = 1 + prng.below(40) as usize;
        let result = std::panic::catch_unwind(|| read(&payload, payload.len()));
        let Ok(result) = result else { panic!("{payload:02x?}") };
        if let Err(error) = &result {
            assert!(error.offset <= payload.len() as u64, "{error}");
        }
        assert_eq!(read(&payload, step), result, "{payload:02x?}");
    }
}

fn dumped(oracle: &mut Oracle, key: &[u8]) -> Bytes {
    oracle.must(&[b"DUMP", key]).bulk()
}

fn events(payload: &[u8], mut each: impl FnMut(Item<'_>)) {
    let mut reader = dump::reader(payload, KINDS, Limits::default()).expect("it has a trailer");
    reader.push(payload);
    while let Some(event) = reader.next().expect("the oracle wrote it") {
        if let Event::Item(item) = event {
            each(item);
        }
    }
}

#[test] // And reported once for all their entries.
fn shared_field_names_are_stored_once() {
    let all = ["--stream-node-max-bytes", "0", "--stream-node-max-entries", "0"];
    let mut oracle = Oracle::start(&[&all[..], &["--rdbcompression", "no"]].concat());
    for len in [40, 100, 900, 1_100, 60_000] {
        let (key, name) = (len.to_string().into_bytes(), vec![b'n'; len]);
        for entry in 0..1_000_u64 {
            let value = entry.to_string();
            oracle.must(&[b"XADD", &key, b"*", &name, value.as_bytes(), b"x", b"y"]);
        }
        let payload = dumped(&mut oracle, &key);
        let (mut bytes, mut longest) = (0, 0);
        events(&payload, |item| {
            bytes += item.text_bytes();
            longest = longest.max(item.text_bytes());
        });
        assert!(bytes < payload.len(), "{bytes} bytes of texts in {}", payload.len());
        assert!(longest <= 16 * 1_024, "{longest} bytes at once");
        let stream = value_of(&payload);
        let entries = stream.entries();
        assert_eq!(entries.len(), 1_000);
        let mut places = BTreeSet::new();
        for entry in entries.range(0..entries.len()) {
            let fields: Vec<_> = entry.fields().collect();
            assert_eq!((fields.len(), fields[0].len()), (4, len));
            if let Element::Blob(name) = fields[0] {
                places.insert(name.piece(0).0.as_ptr());
            }
        }
        let is_small = entries.memory_bytes() < 2 * payload.len();
        assert!(places.len() == 1 || is_small, "{len}: {}", entries.memory_bytes());
    }
}

#[test]
fn field_names_are_shared_beyond_the_limit_of_shapes() {
    let mut oracle = Oracle::start(&["--rdbcompression", "no"]);
    for shape in 0..70 {
        run(&mut oracle, &format!("XADD x * shape:{shape} v"));
    }
    let name = [b'n'; 400];
    let mut filled = value_of(&dumped(&mut oracle, b"x"));
    let id = StreamId::new(u64::MAX - 1, 0);
    assert!(filled.take_in(NewItem::Piece(Piece::Names { names: 1 })));
    assert!(filled.take_in(NewItem::Single { name: &name, deadline: None }));
    for seq in 1..=100 {
        let id = StreamId { seq, ..id };
        assert!(filled.take_in(NewItem::Piece(Piece::Same { id })));
        assert!(filled.take_in(NewItem::Single { name: b"1", deadline: None }));
    }
    let entries = filled.entries();
    let names = entries.range(70..170).map(|entry| match entry.fields().next() {
        Some(Element::Blob(name)) => name.piece(0).0.as_ptr(),
        name => panic!("{name:?}"),
    });
    assert_eq!(names.collect::<BTreeSet<_>>().len(), 1);
}

// Values of any length, among short ones, to names that are a shape, or too long, or one too many.
#[test]
fn entries_with_shared_field_names_are_read_back() {
    let mut prng = Prng::from_seed(1);
    let (mut stream, mut wanted) = (Stream::new(), Vec::new());
    let mut id = StreamId::MIN;
    for block in 0..100 {
        let lens = [1, 3, 63, 64, 500, 1_008, 2_000];
        let names: Vec<Bytes> = (0..1 + prng.below(5))
            .map(|at| {
                format!("{block}:{at:0len$}", len = lens[prng.below(7) as usize]).into_bytes()
            })
            .collect();
        assert!(stream.take_in(NewItem::Piece(Piece::Names { names: names.len() as u64 })));
        for name in &names {
            assert!(stream.take_in(NewItem::Single { name, deadline: None }));
        }
        for _ in 0..20 {
            id = id.next().expect("there are few");
            assert!(stream.take_in(NewItem::Piece(Piece::Same { id })));
            let mut fields = Vec::new();
            for name in &names {
                let len = lens[if prng.chance(80) { 1 } else { prng.below(7) as usize }];
                let value = format!("{:0len$}", prng.below(1_000)).into_bytes();
                if len == 2_000 {
                    let len = value.len() as u64;
                    assert!(stream.take_in(NewItem::Piece(Piece::Long { len })));
                    assert!(stream.take_in(NewItem::Piece(Piece::Part(&value))));
                } else {
                    assert!(stream.take_in(NewItem::Single { name: &value, deadline: None }));
                }
                fields.extend([name.clone(), value]);
            }
            wanted.push((id, fields));
        }
    }
    let entries = stream.entries();
    entries.check_invariants();
    assert_eq!(entries.len(), wanted.len());
    for (entry, (id, fields)) in entries.range(0..wanted.len()).zip(wanted) {
        assert_eq!(entry.id(), id);
        assert!(entry.fields().map(|field| field.to_vec()).eq(fields), "{id}");
    }
}

#[test]
fn deleted_entries_are_skipped_in_portions() {
    let all = ["--stream-node-max-bytes", "0", "--stream-node-max-entries", "0"];
    let mut oracle = Oracle::start(&all);
    let wide: String = (0..3_000).map(|at| format!(" f{at} v")).collect();
    run(&mut oracle, &format!("XADD x 1-1{wide}"));
    for entry in 2..1_000 {
        run(&mut oracle, &format!("XADD x 1-{entry} a b"));
    }
    run(&mut oracle, "XADD x 2-0 a b");
    for entry in 1..1_000 {
        run(&mut oracle, &format!("XDEL x 1-{entry}"));
    }
    let mut gone = 0;
    events(&dumped(&mut oracle, b"x"), |item| {
        gone += usize::from(matches!(item, Item::Piece(Piece::Gone)));
    });
    assert!(gone >= 999 + 3_000 / 256, "{gone}");
    assert_eq!(value_of(&dumped(&mut oracle, b"x")).entries().len(), 1);
}

/// The stream of a payload.
fn value_of(payload: &[u8]) -> Stream {
    let mut stream = Stream::new();
    events(payload, |item| {
        assert!(stream.take_in(NewItem::of(item).expect("a reader's")), "{item:?}");
    });
    stream.check_invariants();
    stream
}
