//! FUNCTION LIST: its reply is a stream, because there may be many functions, and texts of
//! megabytes.

use crate::engine::ServerCall;
use darter_base::glob::{Case, matches_case};
use darter_base::limits::CHUNK_BYTES;
use darter_command::{Answer, Refusal, Stream};
use darter_resp::{Output, Reply};
use darter_script::{ENGINE, Function, Library};
use std::sync::Arc;

/// Libraries whose name is matched in one portion.
const LOOKS_AT_ONCE: usize = 64;
/// Functions encoded in one portion.
const FUNCTIONS_AT_ONCE: usize = 64;

/// `FUNCTION LIST [LIBRARYNAME library-name-pattern] [WITHCODE]`.
///
/// Reply: an array of maps, in unspecified order. Cost: O(N), in slices. Source:
/// <https://redis.io/commands/function-list> (7.0.0).
pub(super) async fn list(call: ServerCall) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let (mut pattern, mut with_code) = (None, false);
    while args.left() > 0 {
        if !with_code && args.option("WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && args.option("LIBRARYNAME") {
            let missing = || Refusal::line("ERR library name argument was not given");
            pattern = Some(args.next().ok_or_else(missing)?);
        } else {
            return Err(Refusal::quoting("ERR Unknown argument ", args.bytes()?, ""));
        }
    }
    let libraries = call.core.admin.shared.libraries.current();
    let mut found = Vec::new();
    for (at, library) in libraries.libraries().enumerate() {
        let name = library.source.name.as_bytes();
        if pattern.is_none_or(|pattern| matches_case(pattern, name, Case::Insensitive)) {
            found.push(Arc::clone(library));
        }
        if at % LOOKS_AT_ONCE == LOOKS_AT_ONCE - 1 {
            call.core.tx.pause().await;
        }
    }
    let mut out = Output::default();
    Reply::new(&mut out, call.session.resp3).array(found.len());
    if found.is_empty() {
        return Ok(Answer::Done(out));
    }
    found.reverse();
    Ok(Answer::Stream(out, Box::new(Listing { left: found, with_code, at: At::Begin })))
}

/// The libraries that are not encoded yet; the last of them is next.
struct Listing {
    left: Vec<Arc<Library>>,
    with_code: bool,
    at: At,
}

/// The position inside the library that is being encoded.
#[derive(Clone, Copy)]
enum At {
    Begin,
    /// The function with this index is next.
    Functions(usize),
    /// The text is next; this number of its bytes has been encoded.
    Code(usize),
}

impl Stream for Listing {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Some(library) = self.left.last() else { return false };
        let next = match self.at {
            At::Begin => {
                begin(reply, library, self.with_code);
                Some(At::Functions(0))
            }
            At::Functions(from) => {
                let some = library.functions.from(from).take(FUNCTIONS_AT_ONCE);
                some.for_each(|function| write_function(reply, function));
                let next = from + FUNCTIONS_AT_ONCE;
                if next < library.functions.len() {
                    Some(At::Functions(next))
                } else if self.with_code {
                    reply.bulk(b"library_code");
                    reply.bulk_header(library.source.text.len());
                    Some(At::Code(0))
                } else {
                    None
                }
            }
            At::Code(written) => {
                let text = &library.source.text[written..];
                let piece = &text[..text.len().min(CHUNK_BYTES)];
                reply.out.add(piece);
                if piece.len() < text.len() {
                    Some(At::Code(written + piece.len()))
                } else {
                    reply.crlf();
                    None
                }
            }
        };
        if next.is_none() {
            self.left.pop();
        }
        self.at = next.unwrap_or(At::Begin);
        !self.left.is_empty()
    }
}

/// Encodes the fields of a library that precede its functions.
fn begin(reply: &mut Reply<'_>, library: &Library, with_code: bool) {
    reply.map(3 + usize::from(with_code));
    reply.bulk(b"library_name");
    reply.bulk(library.source.name.as_bytes());
    reply.bulk(b"engine");
    reply.bulk(ENGINE.as_bytes());
    reply.bulk(b"functions");
    reply.array(library.functions.len());
}

fn write_function(reply: &mut Reply<'_>, function: &Function) {
    reply.map(3);
    reply.bulk(b"name");
    reply.bulk(function.name.as_bytes());
    reply.bulk(b"description");
    match &function.description {
        Some(text) => reply.bulk(text),
        None => reply.null(),
    }
    reply.bulk(b"flags");
    reply.set(function.flags.names().count());
    function.flags.names().for_each(|name| reply.simple(name));
}
