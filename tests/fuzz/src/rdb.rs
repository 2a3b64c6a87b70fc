//! The target of the parsers of files and payloads.
//!
//! It checks more than survival: memory is bounded by the input's size, neither the sizes of chunks
//! nor blocks change what is read, and offsets are inside the data. The seeded tests of
//! `crates/persist/tests` call it, too.

use darter_families::TYPES;
use darter_rdb::crc64::Crc64;
use darter_rdb::dump;
use darter_rdb::lzf::RUN_BYTES_MAX;
use darter_rdb::{BlockPlace, Error, Event, IntTexts, Limits, Reader};

/// The most bytes that LZF makes of one byte. Three texts may be unpacked at once, in vectors that
/// double.
const MEMORY_FACTOR: usize = RUN_BYTES_MAX / 3 * 2 * 3;
/// The memory for chunks of strings, their window, and small objects.
const MEMORY_BASE: usize = 1 << 18;

/// Reads `data` as a file and as a payload of `DUMP`, at once and in pieces.
///
/// # Panics
/// When the reader breaks a promise.
pub(crate) fn fuzz_rdb(data: &[u8]) {
    let step = usize::from(data.last().copied().unwrap_or(0)) % 61 + 1;
    let whole = digest(Reader::new(TYPES.kinds(), Limits::default()), data, data.len());
    let pieces = digest(Reader::new(TYPES.kinds(), Limits::default()), data, step);
    assert_eq!(whole, pieces, "chunks of {step} changed what a file says");
    let reader = Reader::new(TYPES.kinds(), Limits::default()).with_blocks();
    assert_eq!(whole, digest(reader, data, step), "blocks changed what a file says");

    if let Ok(mut reader) = dump::reader(data, TYPES.kinds(), Limits::default()) {
        let whole = digest(reader, data, data.len());
        reader =
            dump::reader(data, TYPES.kinds(), Limits::default()).expect("it was a payload before");
        let pieces = digest(reader, data, step);
        assert_eq!(whole, pieces, "chunks of {step} changed what a payload says");
        let parts = |step| {
            let reader = dump::reader(data, TYPES.kinds(), Limits::default());
            digest(reader.expect("it was a payload before").with_parts(), data, step)
        };
        let in_parts = parts(data.len());
        assert_eq!(in_parts, parts(step), "chunks of {step} changed what a payload says in parts");
        assert_eq!(in_parts.0.is_ok(), whole.0.is_ok(), "parts changed whether a payload is right");
        if whole.0.is_ok() {
            assert!(dump::verify(data).is_ok(), "the reader took what the verifier refuses");
        }
    }
}

/// The error or success at the end, the number of events, and a sum over them. The items of a block
/// are events.
fn digest(mut reader: Reader, data: &[u8], step: usize) -> (Result<(), Error>, u64, u64) {
    let (mut events, mut sum) = (0, Crc64::new());
    let mut pieces = data.chunks(step.max(1));
    let mut note = |event: &Event<'_>| {
        events += 1;
        sum.update(format!("{event:?}").as_bytes());
    };
    loop {
        let next = reader.next().map(|event| event.map(|event| note_all(event, &mut note)));
        match next {
            Ok(Some(Ok(()))) => {}
            // An error of a block.
            Ok(Some(Err(error))) => return (Err(error), events, sum.value()),
            Ok(None) if reader.is_done() => return (Ok(()), events, sum.value()),
            Ok(None) => match pieces.next() {
                Some(piece) => reader.push(piece),
                None => reader.finish(),
            },
            Err(error) => {
                assert!(error.offset <= data.len() as u64, "{error}");
                assert_eq!(reader.next(), Err(error.clone()), "I3: an error stays");
                return (Err(error), events, sum.value());
            }
        }
        let bound = MEMORY_FACTOR * data.len() + MEMORY_BASE;
        assert!(reader.memory_bytes() <= bound, "{} > {bound}", reader.memory_bytes());
    }
}

/// Calls `note` with the event, or with an event for each item of a block.
fn note_all(event: Event<'_>, note: &mut dyn FnMut(&Event<'_>)) -> Result<(), Error> {
    let Event::Block(block) = event else {
        note(&event);
        return Ok(());
    };
    let (mut place, mut texts) = (BlockPlace::default(), IntTexts::default());
    while let Some(item) = block.next(&mut place, &mut texts)? {
        note(&Event::Item(item));
    }
    Ok(())
}
