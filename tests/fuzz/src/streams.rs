//! The target of streams: a stream built from a damaged payload keeps its invariants, and is
//! rebuilt from its own payload.

use darter_families::TYPES;
use darter_families::stream::Stream;
use darter_keyspace::{NewItem, Value};
use darter_rdb::{Event, Item, Limits, dump};
use darter_testkit::Server;

/// Payloads of streams that redis-server has written.
pub(crate) fn corpus() -> Result<Vec<Vec<u8>>, String> {
    let text = |error: std::io::Error| error.to_string();
    let oracle = Server::oracle().map_err(text)?;
    let mut client = oracle.client().map_err(text)?;
    let wide: String = (0..70).map(|at| format!(" field:{at} {at}")).collect();
    let mut lines: Vec<String> = (1..150).map(|at| format!("XADD long {at} name v{at}")).collect();
    lines.extend([
        "XADD few 5-1 a b".to_string(),
        format!("XADD few 5-2 {} {} other -70000", "n".repeat(90), "v".repeat(300)),
        "XADD few 5-3 a b c d".to_string(),
        "XADD few 5-4 a b".to_string(),
        format!("XADD few 6-0{wide}"),
        "XGROUP CREATE few group 0".to_string(),
        "XGROUP CREATE few other 5-2".to_string(),
        "XREADGROUP GROUP group one COUNT 2 STREAMS few >".to_string(),
        "XREADGROUP GROUP group two COUNT 2 STREAMS few >".to_string(),
        "XREADGROUP GROUP other one STREAMS few >".to_string(),
        "XDEL few 5-3".to_string(),
        "XTRIM long MINID 20".to_string(),
    ]);
    for line in lines {
        client.words(&line).map_err(text)?;
    }
    let mut payloads = Vec::new();
    for key in ["few", "long"] {
        let payload = client.command(&["DUMP", key]).map_err(text)?;
        payloads.push(payload.text().ok_or("no payload")?.to_vec());
    }
    Ok(payloads)
}

/// Builds the stream of a payload, ignoring the checksum.
///
/// # Panics
/// When the stream violates an invariant.
pub(crate) fn fuzz_streams(data: &[u8]) {
    let Some(stream) = built(data) else { return };
    stream.check_invariants();
    let row = TYPES.iter().find(|row| row.name == "stream").expect("it is a type");
    let written = dump::write(stream.items(0), row.rdb);
    let again = built(&written).expect("it was written here");
    again.check_invariants();
    assert!(dump::write(again.items(0), row.rdb) == written, "it is written in another way");
}

/// The stream of a payload; `None` if the payload is invalid, or of another type.
fn built(data: &[u8]) -> Option<Stream> {
    let mut reader = dump::reader(data, TYPES.kinds(), Limits::default()).ok()?;
    let mut stream = Stream::new();
    reader.push(data);
    reader.finish();
    loop {
        match reader.next().ok()?? {
            Event::Key { kind, .. } if TYPES.of(kind).name != "stream" => return None,
            Event::Item(item) => take_in(&mut stream, item)?,
            Event::EndOfKey => return Some(stream),
            _ => {}
        }
    }
}

fn take_in(stream: &mut Stream, item: Item<'_>) -> Option<()> {
    stream.take_in(NewItem::of(item)?).then_some(())
}
