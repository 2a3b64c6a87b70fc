//! The text of the values at paths: JSON.GET, JSON.MGET.
//!
//! A reply begins with its length, so a long one is printed twice: once to be measured, once to be
//! sent. So a document of 100 MB takes no memory besides its cut.

use super::found::{self, Found};
use super::path::{self, Path};
use super::value::Json;
use super::waiting::Waiting;
use crate::multi_input::{self, Hold, Input};
use crate::pending_values::flow;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal, Stream};
use darter_keyspace::WrongType;
use darter_resp::{Output, Reply};
use darter_structs::json::{self, Format, JsonText, Printer, Token, Value, Walk};
use std::collections::HashSet;

/// Tokens printed in one portion, and between two checks of the output's size.
const TOKENS: usize = 512;
const TOKENS_AT_ONCE: usize = 64;
/// The size of most tokens in bytes. If lines are longer, fewer tokens are printed at once.
const TOKEN_BYTES: usize = 64;
/// Levels of nesting that a few tokens may add.
const LEVELS_AT_ONCE: usize = 8;
/// Bytes printed in one portion.
const BYTES: usize = 32 * 1024;
/// Texts up to this length are printed once and kept.
const KEPT_MAX: usize = 64 * 1024;
/// The most paths and options after the key.
const ARGS_MAX: usize = 1024;
/// The longest INDENT, NEWLINE or SPACE. At the deepest level, a line takes 32 KiB.
const FORMAT_BYTES_MAX: usize = 64;
/// Paths started in one portion.
const PATHS: usize = 16;
/// Documents in one portion, and bytes of their texts; the last text may exceed it.
const TEXTS: usize = 64;
const TEXT_BYTES: usize = 2 * 1024;

/// `JSON.GET key [INDENT indent] [NEWLINE newline] [SPACE space] [path [path ...]]`: the text of
/// the values that the paths find.
///
/// Reply: bulk: an array for a path with `$`, the value itself for a legacy path, an object keyed
/// by path for several paths; null if the key is absent. Refusals: an invalid path, a legacy path
/// that finds nothing, another type. Cost: O(document), in slices, from a cut.
/// Source: <https://redis.io/commands/json.get> (RedisJSON 1.0.0).
pub(super) fn get(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let (format, mut paths) = options(args)?;
    let Some(root) = found::cut(cx, &key)? else {
        cx.reply.null();
        return Ok(Flow::Done);
    };
    if paths.is_empty() {
        paths.push(Path::root(!cx.reply.is_resp3()));
    }
    Ok(flow(&mut cx.reply, Getting::new(root, paths, format, Missing::Refused)))
}

/// Reads the arguments after the key of JSON.GET.
fn options(mut args: Args<'_>) -> Result<(Format, Vec<Path>), Refusal> {
    if args.left() > ARGS_MAX {
        return Err(Refusal::line("ERR too many paths"));
    }
    let (mut format, mut paths, mut bytes) = (Format::default(), Vec::new(), 0);
    while let Some(word) = args.peek_word() {
        let option = match word.to_ascii_uppercase().as_slice() {
            b"INDENT" => &mut format.indent,
            b"NEWLINE" => &mut format.newline,
            b"SPACE" => &mut format.space,
            b"NOESCAPE" => {
                args.next();
                continue;
            }
            _ => {
                bytes += args.all().arg(args.position()).len();
                if bytes > path::BYTES_MAX {
                    return Err(path::too_long());
                }
                paths.push(Path::take(&mut args)?);
                continue;
            }
        };
        args.next();
        *option = args.word()?.to_vec();
        if option.len() > FORMAT_BYTES_MAX {
            return Err(Refusal::line("ERR INDENT, NEWLINE or SPACE is too long"));
        }
    }
    Ok((format, paths))
}

/// The reply if a legacy path finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Refused,
    Null,
}

/// A JSON.GET in progress.
struct Getting {
    root: Value,
    parts: Vec<Found>,
    /// Bytes of the places found by completed searches.
    found_bytes: usize,
    /// Several paths were given.
    is_many: bool,
    /// All paths are legacy paths.
    is_legacy: bool,
    missing: Missing,
    format: Format,
    stage: JsonGetStage,
    /// The length of the text, once measured; and the text itself, if it is short.
    len: usize,
    kept: Option<Vec<u8>>,
    refusal: Option<Refusal>,
}

enum JsonGetStage {
    /// Searching for this path.
    Seeking(usize),
    Measuring(Printing),
    Sending(Printing),
}

impl Getting {
    fn new(root: Value, mut paths: Vec<Path>, format: Format, missing: Missing) -> Self {
        let (is_many, is_legacy) = (paths.len() > 1, paths.iter().all(|path| path.is_legacy));
        let mut seen = HashSet::new();
        paths.retain(|path| !is_many || seen.insert(path.text.clone()));
        let parts = paths.into_iter().map(Found::new).collect();
        let (stage, kept) = (JsonGetStage::Seeking(0), Some(Vec::new()));
        Self {
            root,
            parts,
            found_bytes: 0,
            is_many,
            is_legacy,
            missing,
            format,
            stage,
            len: 0,
            kept,
            refusal: None,
        }
    }

    /// Continues the search. Returns true when all paths are done. After that, or after a refusal,
    /// the reply may be complete.
    fn seek(&mut self, from: usize) -> Result<bool, Refusal> {
        let mut followed = 0;
        for at in from..self.parts.len().min(from + PATHS) {
            self.stage = JsonGetStage::Seeking(at);
            let part = &mut self.parts[at];
            if part.seek(&self.root, self.is_legacy)? {
                return Ok(false);
            }
            followed += part.followed();
            self.found_bytes += part.memory_bytes();
            found::check_memory(&self.root, self.found_bytes)?;
            if self.is_legacy && part.places.len() == 0 {
                return Err(found::no_path(&part.path));
            }
            self.stage = JsonGetStage::Seeking(at + 1);
            if followed >= found::PORTION {
                break;
            }
        }
        Ok(matches!(self.stage, JsonGetStage::Seeking(next) if next == self.parts.len()))
    }

    fn printing(&self) -> Printing {
        Printing::new(self.format.clone(), self.is_many, self.is_legacy)
    }

    /// Continues measuring. Returns true when the length is known.
    fn measure(&mut self, printing: &mut Printing) -> bool {
        let mut text = self.kept.take().unwrap_or_default();
        let before = text.len();
        let more = printing.run(&self.root, &self.parts, &mut text);
        self.len += text.len() - before;
        self.kept = (self.len <= KEPT_MAX).then_some(text);
        !more
    }
}

impl Stream for Getting {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        match std::mem::replace(&mut self.stage, JsonGetStage::Seeking(0)) {
            JsonGetStage::Seeking(from) => match self.seek(from) {
                Ok(false) => true,
                Ok(true) => {
                    self.stage = JsonGetStage::Measuring(self.printing());
                    self.pump(reply)
                }
                Err(_) if self.missing == Missing::Null => {
                    reply.null();
                    false
                }
                Err(refusal) => {
                    reply.error(&refusal.text());
                    self.refusal = Some(refusal);
                    false
                }
            },
            JsonGetStage::Measuring(mut printing) => {
                if !self.measure(&mut printing) {
                    self.stage = JsonGetStage::Measuring(printing);
                    return true;
                }
                if let Some(text) = &self.kept {
                    reply.bulk(text);
                    return false;
                }
                reply.bulk_header(self.len);
                self.stage = JsonGetStage::Sending(self.printing());
                true
            }
            JsonGetStage::Sending(mut printing) => {
                if printing.run(&self.root, &self.parts, reply.out.tail()) {
                    self.stage = JsonGetStage::Sending(printing);
                    return true;
                }
                reply.crlf();
                false
            }
        }
    }

    fn pinned_bytes(&self) -> usize {
        let sought = match self.stage {
            JsonGetStage::Seeking(at) => self.parts.get(at).map_or(0, Found::memory_bytes),
            _ => 0,
        };
        let parts = self.parts.len() * size_of::<Found>();
        parts + self.found_bytes + sought + self.kept.as_ref().map_or(0, Vec::capacity)
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }
}

/// The progress of printing.
struct Printing {
    printer: Printer,
    is_many: bool,
    is_legacy: bool,
    is_begun: bool,
    /// The current path, whether it has been started, and its next value.
    part: usize,
    is_part_begun: bool,
    next: (usize, usize),
    walk: Option<Walk>,
    /// Levels above the value: each slice must descend to it again.
    levels: usize,
    /// Bytes that each level adds to a line.
    indent: usize,
}

impl Printing {
    fn new(format: Format, is_many: bool, is_legacy: bool) -> Self {
        Self {
            indent: format.indent.len(),
            printer: Printer::new(format),
            is_many,
            is_legacy,
            is_begun: false,
            part: 0,
            is_part_begun: false,
            next: (0, 0),
            walk: None,
            levels: 0,
        }
    }

    /// Continues printing. Returns true while more is left.
    fn run(&mut self, root: &Value, parts: &[Found], out: &mut Vec<u8>) -> bool {
        let (before, mut left) = (out.len(), TOKENS);
        while left > 0 && out.len() - before < BYTES {
            left -= 1;
            let Some(walk) = &mut self.walk else {
                if !self.advance(parts, out) {
                    return false;
                }
                continue;
            };
            let printer = &mut self.printer;
            let line = TOKEN_BYTES + self.indent * (printer.depth() + LEVELS_AT_ONCE);
            let tokens = (TOKENS_AT_ONCE * TOKEN_BYTES / line).max(1);
            let mut printed = 0;
            let more = walk.run(root, tokens, &mut |token| {
                printed += 1;
                printer.print(token, out);
            });
            left = left.saturating_sub(printed + self.levels);
            if !more {
                self.walk = None;
            }
        }
        true
    }

    /// Moves to the next value. Returns false after the last.
    fn advance(&mut self, parts: &[Found], out: &mut Vec<u8>) -> bool {
        let open = |is_object| Token::Open { is_object, len: 0 };
        if self.is_many && !std::mem::replace(&mut self.is_begun, true) {
            self.printer.print(open(true), out);
        }
        let Some(part) = parts.get(self.part) else {
            if std::mem::take(&mut self.is_many) {
                self.printer.print(Token::Close, out);
            }
            return false;
        };
        if !std::mem::replace(&mut self.is_part_begun, true) {
            if self.is_many {
                self.printer.print(Token::Name(JsonText::Bytes(&part.path.text)), out);
            }
            if !self.is_legacy {
                self.printer.print(open(false), out);
            }
        }
        match part.places.next(&mut self.next) {
            Some(path) => (self.walk, self.levels) = (Some(Walk::of(path)), path.len()),
            None => {
                if !self.is_legacy {
                    self.printer.print(Token::Close, out);
                }
                (self.part, self.next, self.is_part_begun) = (self.part + 1, (0, 0), false);
            }
        }
        true
    }
}

/// A document for JSON.MGET; `None` if the key has another type.
struct Document(Option<Value>);

impl Input for Document {
    fn cut(found: &darter_keyspace::Found<'_>, _: Hold) -> Result<Self, WrongType> {
        Ok(Self(found.value::<Json>().ok().and_then(|json| json.root().cloned())))
    }
}

/// `JSON.MGET key [key ...] path`: returns the text of the values that a path finds in each
/// document.
///
/// Reply: array of bulks, null where there is no document, or where a legacy path finds nothing.
/// Refusals: an invalid path. Cost: O(documents), in slices, from cuts.
/// Source: <https://redis.io/commands/json.mget> (RedisJSON 1.0.0).
pub(super) fn mget_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    let count = args.left() - 1;
    let path = Path::at(args.all(), args.all().len() - 1)?;
    let cuts = multi_input::here::<Document>(cx.db, cx.stats, args, count)?;
    cx.reply.array(count);
    let mut waiting = Waiting::default();
    cuts.into_iter().for_each(|cut| waiting.push(document(cut)));
    Ok(flow(&mut cx.reply, Texts::new(waiting, path)))
}

/// JSON.MGET for documents on several cores.
pub(super) async fn mget_anywhere(call: Call) -> Result<Answer, Refusal> {
    let path = Path::at(call.args().all(), call.len() - 1)?;
    let cuts = multi_input::anywhere::<Document>(&call, call.first..call.len() - 1).await?;
    let mut out = Output::default();
    let mut reply = Reply::new(&mut out, call.resp3);
    reply.array(cuts.len());
    let mut waiting = Waiting::default();
    for (done, cut) in cuts.into_iter().enumerate() {
        waiting.push(document(cut));
        multi_input::pause_now_and_then(&call, done).await;
    }
    let mut rest = Texts::new(waiting, path);
    Ok(if rest.pump(&mut reply) { Answer::Stream(out, Box::new(rest)) } else { Answer::Done(out) })
}

/// The document at a key.
fn document(cut: Option<Document>) -> Option<Value> {
    cut.and_then(|document| document.0)
}

/// The texts of several documents, one after another.
pub(super) struct Texts {
    waiting: Waiting,
    path: Path,
    current: Option<Getting>,
}

impl Texts {
    pub(super) fn new(waiting: Waiting, path: Path) -> Self {
        Self { waiting, path, current: None }
    }

    /// Sends a value whole, if it is small. Returns false if it is not.
    fn send_small(&self, root: &Value, reply: &mut Reply<'_>) -> bool {
        let is_small = self.path.is_legacy && self.path.is_root() && root.packed().is_some();
        if is_small {
            reply.bulk(&json::to_text(root, &[], &Format::default()));
        }
        is_small
    }
}

impl Stream for Texts {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let before = reply.out.len();
        for _ in 0..TEXTS {
            if let Some(current) = &mut self.current {
                if current.pump(reply) {
                    return true;
                }
                self.current = None;
            }
            match self.waiting.pop_front() {
                None => return false,
                Some(None) => reply.null(),
                Some(Some(root)) if self.send_small(&root, reply) => {}
                Some(Some(root)) => {
                    let (paths, format) = (vec![self.path.clone()], Format::default());
                    self.current = Some(Getting::new(root, paths, format, Missing::Null));
                }
            }
            if reply.out.len() - before >= TEXT_BYTES {
                break;
            }
        }
        self.current.is_some() || self.waiting.len() > 0
    }

    fn pinned_bytes(&self) -> usize {
        self.waiting.memory_bytes() + self.current.as_ref().map_or(0, Getting::pinned_bytes)
    }
}
