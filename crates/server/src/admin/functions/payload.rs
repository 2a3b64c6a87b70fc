//! FUNCTION DUMP and FUNCTION RESTORE: convert all libraries to one payload and back.

use super::change::{Change, change, read, refuse, run};
use crate::engine::ServerCall;
use darter_base::limits::CHUNK_BYTES;
use darter_command::{Answer, Flow, Refusal, reply_str};
use darter_keyspace::Str;
use darter_rdb::crc64::Crc64;
use darter_rdb::dump::{TRAILER_BYTES, Verifier};
use darter_rdb::functions::{LibraryText, begin_library};
use darter_rdb::lzf::Packer;
use darter_rdb::types::VERSION_WRITTEN;
use darter_resp::{Output, Reply};
use darter_script::{Library, Registry};
use darter_structs::blob::Blob;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes checked or unpacked in one portion: 10 to 30 us.
const BYTES_AT_ONCE: usize = 16 * 1024;

/// `FUNCTION DUMP`: serializes all libraries, for FUNCTION RESTORE.
///
/// Reply: bulk. Cost: O(bytes), in slices.
/// Source: <https://redis.io/commands/function-dump> (7.0.0).
pub(super) async fn dump(call: ServerCall) -> Result<Answer, Refusal> {
    let libraries = call.core.admin.shared.libraries.current();
    let packs = call.core.admin.settings().flag("rdbcompression");
    let mut packer = packs.then(Packer::default);
    let mut payload = Payload::default();
    for library in libraries.libraries() {
        let mut head = Vec::new();
        let rest = begin_library(&mut head, &library.source.text, packer.as_mut());
        payload.put(&head);
        for piece in rest.chunks(CHUNK_BYTES) {
            payload.put(piece);
            call.core.tx.pause().await;
        }
        call.core.tx.pause().await;
    }
    let payload = payload.end();
    let mut out = Output::default();
    let mut reply = Reply::new(&mut out, call.session.resp3);
    match reply_str(&mut reply, &Str::Blob(&payload)) {
        Flow::Stream(rest) => Ok(Answer::Stream(out, rest)),
        _ => Ok(Answer::Done(out)),
    }
}

/// A payload while it is built.
#[derive(Default)]
struct Payload {
    bytes: Blob,
    crc: Crc64,
}

impl Payload {
    fn put(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        self.bytes.append(bytes);
    }

    /// Appends the version and the checksum, and returns the payload.
    fn end(mut self) -> Blob {
        self.put(&VERSION_WRITTEN.to_le_bytes());
        self.bytes.append(&self.crc.value().to_le_bytes());
        self.bytes
    }
}

/// How FUNCTION RESTORE treats existing libraries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Append,
    Flush,
    Replace,
}

/// `FUNCTION RESTORE serialized-value [FLUSH | APPEND | REPLACE]`.
///
/// Reply: `OK`. Refusals: the payload is damaged; a library is invalid or exists. Then nothing has
/// changed. Source: <https://redis.io/commands/function-restore> (7.0.0).
pub(super) async fn restore(call: ServerCall) -> Result<Answer, Refusal> {
    let mut args = call.args();
    if args.left() > 2 {
        return Err(super::wrong_subcommand(args));
    }
    let payload = args.bytes()?;
    let policy = if args.left() == 0 || args.option("APPEND") {
        Policy::Append
    } else if args.option("FLUSH") {
        Policy::Flush
    } else if args.option("REPLACE") {
        Policy::Replace
    } else {
        let text =
            "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
        return Err(Refusal::line(text));
    };
    verify(&call, payload).await?;
    let new = loaded(&call, &payload[..payload.len() - TRAILER_BYTES]).await?;
    change(&call, |libraries| planned(libraries, &new, policy)).await?;
    Ok(call.answer(|reply| reply.ok()))
}

async fn verify(call: &ServerCall, payload: &[u8]) -> Result<(), Refusal> {
    let mut verifier = Verifier::new();
    let result = loop {
        if let Some(result) = verifier.step(payload, BYTES_AT_ONCE) {
            break result;
        }
        call.core.tx.pause().await;
    };
    let wrong = |_| Refusal::line("ERR DUMP payload version or checksum are wrong");
    result.map(drop).map_err(wrong)
}

/// Parses a payload and runs the text of each library in it.
async fn loaded(call: &ServerCall, mut records: &[u8]) -> Result<Vec<Arc<Library>>, Refusal> {
    let core = &call.core;
    let mut loaded: BTreeMap<Box<str>, Arc<Library>> = BTreeMap::new();
    let mut functions = Registry::default();
    while !records.is_empty() {
        let (mut text, after) = LibraryText::first(records).map_err(|why| refuse(why.text()))?;
        while !text.step(BYTES_AT_ONCE).map_err(|why| refuse(why.text()))? {
            core.tx.pause().await;
        }
        let source = Arc::new(read(text.into_text())?);
        if loaded.contains_key(&source.name) {
            return Err(refuse(format!("Library '{}' already exists", source.name)));
        }
        let library = run(core, &source).await?;
        let mut next = Some(0);
        while let Some(index) = next {
            let linked = functions.link(&library, index);
            next = linked.map_err(|name| refuse(format!("Function {name} already exists")))?;
            core.tx.pause().await;
        }
        loaded.insert(source.name.clone(), library);
        records = after;
    }
    Ok(loaded.into_values().collect())
}

/// Computes the change that `policy` makes for the payload's libraries `new` and the existing ones.
fn planned(libraries: &Registry, new: &[Arc<Library>], policy: Policy) -> Result<Change, Refusal> {
    let gone: Vec<_> = match policy {
        Policy::Flush => Vec::new(),
        Policy::Append | Policy::Replace => {
            let old = new.iter().filter_map(|library| libraries.library(&library.source.name));
            old.cloned().collect()
        }
    };
    match gone.first() {
        Some(old) if policy == Policy::Append => {
            Err(refuse(format!("Library {} already exists", old.source.name)))
        }
        _ => Ok(Change { is_flushed: policy == Policy::Flush, gone, new: new.to_vec() }),
    }
}
