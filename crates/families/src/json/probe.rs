//! Queries of values: JSON.TYPE, STRLEN, ARRLEN, OBJLEN, OBJKEYS, ARRINDEX, RESP, DEBUG MEMORY.
//!
//! Each value that a path finds is queried, and its answer is encoded at once. Long answers (the
//! keys of an object, the elements of RESP) are built in portions.

use super::found::{self, Found};
use super::path::Path;
use crate::counted_reply::CountedReply;
use crate::pending_values::flow;
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::Key;
use darter_resp::{Output, Reply};
use darter_structs::json::{self, JsonText, Token, Value, View, Walk};

/// Steps in one portion.
const PORTION: usize = 512;

/// Bytes of names in one portion.
const NAME_BYTES: usize = 32 * 1024;
/// The longest value that JSON.ARRINDEX searches for: it is compared in one step.
const WANTED_BYTES_MAX: usize = 16 * 1024;

/// The query of each value.
#[derive(Clone, Debug)]
enum Question {
    Type,
    StrLen,
    ArrLen,
    ObjLen,
    ObjKeys,
    ArrIndex { wanted: Value, start: i64, stop: i64 },
    Resp,
    Memory,
}

/// The replies if the key or a value is missing.
struct Manners {
    /// For a path with `$`: the reply if the key is missing.
    no_key: NoKey,
    /// For a legacy path: true if a missing value replies null, false if it is refused.
    is_null: bool,
    /// The text after "does not exist or" in the error.
    or: Option<&'static str>,
    /// The required kind, if a value of another kind is refused as a wrong type.
    expected: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq)]
enum NoKey {
    Null,
    Refused,
    /// Replies as for a path that finds nothing.
    NoPath,
}

impl Question {
    #[rustfmt::skip] // A table.
    fn manners(&self) -> Manners {
        let (no_key, is_null, or, expected) = match self {
            Self::Type =>            (NoKey::Null,    true,  None,                 None),
            Self::Resp =>            (NoKey::Null,    false, None,                 None),
            Self::Memory =>          (NoKey::Null,    true,  None,                 None),
            Self::StrLen =>          (NoKey::Refused, false, None,                 Some("string")),
            Self::ArrLen =>          (NoKey::Refused, false, Some("not an array"), None),
            Self::ObjLen =>          (NoKey::NoPath,  true,  None,                 Some("object")),
            Self::ObjKeys =>         (NoKey::Refused, true,  Some("not an object"), None),
            Self::ArrIndex { .. } => (NoKey::NoPath,  false, None,                 Some("array")),
        };
        Manners { no_key, is_null, or, expected }
    }

    /// True if a value of this kind can be queried.
    fn fits(&self, view: View<'_>) -> bool {
        match self {
            Self::Type | Self::Resp | Self::Memory => true,
            Self::StrLen => matches!(view, View::Text(_)),
            Self::ArrLen | Self::ArrIndex { .. } => {
                matches!(view, View::Node(node) if !node.is_object())
            }
            Self::ObjLen | Self::ObjKeys => matches!(view, View::Node(node) if node.is_object()),
        }
    }
}

fn ask(
    cx: &mut Cx<'_>,
    key: &Key<'_>,
    path: Option<Path>,
    question: Question,
) -> Result<Flow, Refusal> {
    let path = path.unwrap_or_else(|| Path::root(!cx.reply.is_resp3()));
    let manners = question.manners();
    let Some(root) = found::cut(cx, key)? else {
        let is_array = matches!(question, Question::Memory) && !path.is_legacy;
        match manners.no_key {
            NoKey::NoPath if !(path.is_legacy && manners.is_null) => {
                return Err(found::no_path(&path));
            }
            NoKey::Refused if !path.is_legacy => return Err(found::no_document()),
            _ if is_array => cx.reply.array(0),
            _ if matches!(question, Question::Memory) => cx.reply.int(0),
            _ => {
                if cx.reply.is_resp3() && matches!(question, Question::Type) {
                    cx.reply.array(1);
                }
                cx.reply.null();
            }
        }
        return Ok(Flow::Done);
    };
    let asking = Asking {
        root,
        found: Found::new(path),
        question,
        next: (0, 0),
        amid: None,
        answers: CountedReply::default(),
        is_sending: false,
        refusal: None,
    };
    Ok(flow(&mut cx.reply, asking))
}

/// Queries values one after another.
struct Asking {
    root: Value,
    found: Found,
    question: Question,
    next: (usize, usize),
    /// The value whose long answer is unfinished, and the progress.
    amid: Option<(Vec<usize>, Amid)>,
    answers: CountedReply,
    is_sending: bool,
    refusal: Option<Refusal>,
}

enum Amid {
    /// The cursor of the next place.
    At(usize),
    Walk(Walk),
}

/// An answer, or a part of it, encoded for sending.
fn encoded(resp3: bool, write: impl FnOnce(&mut Reply<'_>)) -> Vec<u8> {
    let mut out = Output::default();
    write(&mut Reply::new(&mut out, resp3));
    out.flatten()
}

impl Asking {
    /// Continues with the queries. Returns true while more are left.
    fn ask(&mut self, resp3: bool) -> bool {
        let (root, mut left) = (self.root.clone(), PORTION);
        while left > 0 {
            left -= 1;
            if let Some((path, amid)) = self.amid.take() {
                let view = root.at(&path).expect("it was found");
                let (amid, read) = self.go_on(view, amid, resp3);
                left = left.saturating_sub(path.len() + read);
                self.amid = amid.map(|amid| (path, amid));
                continue;
            }
            let Some(path) = self.found.places.next(&mut self.next) else { return false };
            left = left.saturating_sub(path.len());
            let path = path.to_vec();
            let view = root.at(&path).expect("it was found");
            if let Some(amid) = self.begin(view, &path, resp3) {
                self.amid = Some((path, amid));
            }
        }
        true
    }

    /// Answers for a value, or starts a long answer.
    fn begin(&mut self, view: View<'_>, path: &[usize], resp3: bool) -> Option<Amid> {
        let answers = &mut self.answers;
        let mut add = |answer: Vec<u8>| answers.append(&answer, 1);
        if !self.question.fits(view) {
            add(encoded(resp3, |reply| reply.null()));
            return None;
        }
        match (&self.question, view) {
            (Question::Type, _) => {
                add(encoded(resp3, |reply| reply.bulk(found::type_name(view).as_bytes())));
            }
            (Question::StrLen, View::Text(text)) => {
                add(encoded(resp3, |reply| reply.count(text.len())))
            }
            (Question::ArrLen | Question::ObjLen, View::Node(node)) => {
                add(encoded(resp3, |reply| reply.count(node.len())));
            }
            (Question::ObjKeys, View::Node(node)) => {
                add(encoded(resp3, |reply| reply.array(node.len())));
                return Some(Amid::At(0));
            }
            (Question::ArrIndex { start, .. }, View::Node(node)) => {
                return Some(Amid::At(bound(*start, node.len())));
            }
            (Question::Resp, _) => {
                add(Vec::new());
                return Some(Amid::Walk(Walk::of(path)));
            }
            (Question::Memory, _) => {
                let bytes = memory(view);
                add(encoded(resp3, |reply| reply.count(bytes)));
            }
            _ => unreachable!("it fits"),
        }
        None
    }

    /// Continues a long answer. Returns its new progress (`None` at its end) and the number of
    /// steps.
    fn go_on(&mut self, view: View<'_>, amid: Amid, resp3: bool) -> (Option<Amid>, usize) {
        match (&self.question, view, amid) {
            (Question::ObjKeys, View::Node(node), Amid::At(from)) => {
                let mut next = from;
                let mut bytes = 0;
                for child in node.iter(from).take(PORTION / 4) {
                    let name = child.name.map(JsonText::to_vec).unwrap_or_default();
                    self.answers.append(&encoded(resp3, |reply| reply.bulk(&name)), 0);
                    (next, bytes) = (next + 1, bytes + name.len());
                    if bytes >= NAME_BYTES {
                        break;
                    }
                }
                let steps = next - from + bytes * PORTION / NAME_BYTES;
                ((next < node.len()).then_some(Amid::At(next)), steps)
            }
            (Question::ArrIndex { wanted, stop, .. }, View::Node(node), Amid::At(from)) => {
                let end = match *stop {
                    0 => node.len(),
                    stop => bound(stop, node.len()),
                };
                let mut place = from;
                let mut index = None;
                // The longer the value, the fewer are compared in one step.
                let steps = 1 + wanted.memory_bytes() / 64;
                let most = (PORTION / steps).max(1);
                for child in node.iter(from).take(most.min(end.saturating_sub(from))) {
                    if is_same(child.value, wanted.view()) {
                        index = Some(place);
                        break;
                    }
                    place += 1;
                }
                if index.is_none() && place < end {
                    return (Some(Amid::At(place)), (place - from) * steps);
                }
                let answer = encoded(resp3, |reply| match index {
                    Some(index) => reply.count(index),
                    None => reply.int(-1),
                });
                self.answers.append(&answer, 1);
                (None, place.saturating_sub(from) * steps)
            }
            (Question::Resp, _, Amid::Walk(mut walk)) => {
                let (answers, mut steps) = (&mut self.answers, 0);
                let more = walk.run(&self.root, PORTION / 4, &mut |token| {
                    let answer = as_resp(token, resp3);
                    answers.append(&answer, 0);
                    steps += 1 + answer.len() * PORTION / NAME_BYTES;
                });
                (more.then_some(Amid::Walk(walk)), steps)
            }
            _ => unreachable!("no long answer"),
        }
    }

    /// Writes the beginning of the reply. Returns false if that is the whole reply.
    fn head(&mut self, reply: &mut Reply<'_>) -> bool {
        let path = &self.found.path;
        let is_type = matches!(self.question, Question::Type);
        if !path.is_legacy {
            if is_type && reply.is_resp3() {
                reply.array(1);
            }
            reply.array(self.answers.count());
            return true;
        }
        let manners = self.question.manners();
        let mut first = (0, 0);
        let Some(place) = self.found.places.next(&mut first) else {
            match manners.or {
                _ if matches!(self.question, Question::Memory) => reply.int(0),
                _ if manners.is_null => {
                    if is_type && reply.is_resp3() {
                        reply.array(1);
                    }
                    reply.null();
                }
                Some(or) => reply.error(&found::no_path_or(path, or).text()),
                None => reply.error(&found::no_path(path).text()),
            }
            return false;
        };
        let view = self.root.at(place).expect("it was found");
        if self.question.fits(view) {
            if is_type && reply.is_resp3() {
                reply.array(1);
            }
            return true;
        }
        let refusal = match (manners.expected, manners.or) {
            (Some(expected), _) => Refusal::line(format!(
                "WRONGTYPE wrong type of path value - expected {expected} but found {}",
                found::type_name(view)
            )),
            (None, or) => found::no_path_or(path, or.unwrap_or_default()),
        };
        reply.error(&refusal.text());
        false
    }
}

impl Stream for Asking {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if self.is_sending {
            return self.answers.pump(reply);
        }
        let is_legacy = self.found.path.is_legacy;
        match self.found.seek(&self.root, is_legacy) {
            Err(refusal) => {
                reply.error(&refusal.text());
                self.refusal = Some(refusal);
                return false;
            }
            Ok(more) if more || self.ask(reply.is_resp3()) => return true,
            Ok(_) => {}
        }
        if !self.head(reply) {
            return false;
        }
        self.is_sending = true;
        self.answers.pump(reply)
    }

    fn pinned_bytes(&self) -> usize {
        self.found.memory_bytes() + self.answers.pinned_bytes()
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }
}

/// An index, clamped as by ARRINDEX.
fn bound(index: i64, len: usize) -> usize {
    let signed = i64::try_from(len).unwrap_or(i64::MAX);
    let index = if index < 0 { (index + signed).max(0) } else { index.min(signed) };
    usize::try_from(index).unwrap_or(len)
}

/// True for equal values: numbers of one kind, and texts. Arrays and objects are compared by their
/// text.
fn is_same(one: View<'_>, two: View<'_>) -> bool {
    match (one, two) {
        (View::Null, View::Null) => true,
        (View::Bool(one), View::Bool(two)) => one == two,
        (View::Int(one), View::Int(two)) => one == two,
        (View::Uint(one), View::Uint(two)) => one == two,
        (View::Float(one), View::Float(two)) => one == two,
        (View::Text(one), View::Text(two)) => one == two,
        (View::Node(one), View::Node(two)) if one.is_object() == two.is_object() => {
            one.len() == two.len()
                && one.iter(0).zip(two.iter(0)).all(|(one, two)| match one.name {
                    None => is_same(one.value, two.value),
                    Some(_) => one.name == two.name && is_same(one.value, two.value),
                })
        }
        _ => false,
    }
}

/// Bytes of a value: 8 in place, plus its bytes elsewhere.
fn memory(view: View<'_>) -> usize {
    const PLACE: usize = 8;
    PLACE
        + match view {
            View::Float(_) => 8,
            View::Text(text) if text.len() >= PLACE => text.len(),
            View::Node(node) => node.memory_bytes(),
            _ => 0,
        }
}

/// A token in the form of JSON.RESP.
fn as_resp(token: Token<'_>, resp3: bool) -> Vec<u8> {
    match token {
        Token::Open { is_object, len } => encoded(resp3, |reply| {
            reply.array(1 + if is_object { 2 * len } else { len });
            reply.simple(if is_object { "{" } else { "[" });
        }),
        Token::Close => Vec::new(),
        Token::Name(name) => encoded(resp3, |reply| reply.bulk(&name.to_vec())),
        Token::Scalar(View::Null) => encoded(resp3, |reply| reply.null()),
        Token::Scalar(View::Bool(is_true)) => {
            encoded(resp3, |reply| reply.simple(if is_true { "true" } else { "false" }))
        }
        Token::Scalar(View::Int(value)) => encoded(resp3, |reply| reply.int(value)),
        Token::Scalar(View::Text(text)) => encoded(resp3, |reply| reply.bulk(&text.to_vec())),
        Token::Scalar(number) => {
            let mut text = Vec::new();
            json::scalar(number, &mut text);
            let text = String::from_utf8_lossy(&text).into_owned();
            encoded(resp3, |reply| match number {
                View::Float(_) if resp3 => reply.double_text(&text),
                _ => reply.bulk(text.as_bytes()),
            })
        }
        Token::Long { len, .. } => encoded(resp3, |reply| reply.bulk_header(len)),
        Token::Part(part) => part.to_vec(),
        Token::EndLong => b"\r\n".to_vec(),
    }
}

fn path(args: &mut Args<'_>) -> Result<Option<Path>, Refusal> {
    (args.left() > 0).then(|| Path::take(args)).transpose()
}

/// `JSON.TYPE key [path]`: the types of the values that the path finds.
///
/// Reply: array of bulks (in RESP3, in one more array), or a bulk, or null. Refusals: the path,
/// another type. Cost: O(values followed), in slices, from a cut.
/// Source: <https://redis.io/commands/json.type> (RedisJSON 1.0.0).
pub(super) fn r#type(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, path) = (args.key()?, path(&mut args)?);
    ask(cx, &key, path, Question::Type)
}

/// `JSON.STRLEN key [path]`: the lengths of strings in bytes. Otherwise as JSON.TYPE. For other
/// values the result is null; a legacy path is refused. Source:
/// <https://redis.io/commands/json.strlen> (1.0.0).
pub(super) fn strlen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, path) = (args.key()?, path(&mut args)?);
    // Only here, RedisJSON's default is the legacy form.
    ask(cx, &key, path.or(Some(Path::root(true))), Question::StrLen)
}

/// `JSON.ARRLEN key [path]`: the lengths of arrays. Otherwise as JSON.STRLEN.
/// Source: <https://redis.io/commands/json.arrlen> (1.0.0).
pub(super) fn arrlen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, path) = (args.key()?, path(&mut args)?);
    ask(cx, &key, path, Question::ArrLen)
}

/// `JSON.OBJLEN key [path]`: the numbers of members of objects. Otherwise as JSON.STRLEN.
/// Source: <https://redis.io/commands/json.objlen> (1.0.0).
pub(super) fn objlen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, path) = (args.key()?, path(&mut args)?);
    ask(cx, &key, path, Question::ObjLen)
}

/// `JSON.OBJKEYS key [path]`: the member names of objects, an array for each.
/// Source: <https://redis.io/commands/json.objkeys> (1.0.0).
pub(super) fn objkeys(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, path) = (args.key()?, path(&mut args)?);
    ask(cx, &key, path, Question::ObjKeys)
}

/// `JSON.ARRINDEX key path value [start [stop]]`: the index of the value's first occurrence in each
/// array, or -1. Source: <https://redis.io/commands/json.arrindex> (1.0.0).
pub(super) fn arrindex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, path) = (args.key()?, Path::take(&mut args)?);
    if args.all().arg(args.position()).len() > WANTED_BYTES_MAX {
        return Err(Refusal::line("ERR value is too long"));
    }
    let wanted = json::parse(args.bytes()?);
    let wanted = wanted.map_err(|fault| Refusal::line(format!("ERR {fault}")))?;
    let start = if args.left() > 0 { args.int()? } else { 0 };
    let stop = if args.left() > 0 { args.int()? } else { 0 };
    args.end()?;
    ask(cx, &key, Some(path), Question::ArrIndex { wanted, start, stop })
}

/// `JSON.RESP key [path]`: values as RESP types. Objects and arrays become arrays that begin with
/// `{` or `[`. Source: <https://redis.io/commands/json.resp> (1.0.0).
pub(super) fn resp(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, path) = (args.key()?, path(&mut args)?);
    ask(cx, &key, path, Question::Resp)
}

/// `JSON.DEBUG MEMORY key [path]`: the memory of values in bytes, including all nested values.
/// Source: <https://redis.io/commands/json.debug-memory> (1.0.0).
pub(super) fn memory_usage(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, path) = (args.key()?, path(&mut args)?);
    ask(cx, &key, path, Question::Memory)
}

/// `JSON.DEBUG HELP`: the subcommands.
pub(super) fn help(cx: &mut Cx<'_>, _: Args<'_>) -> Result<Flow, Refusal> {
    let lines =
        ["MEMORY <key> [path] - reports memory usage", "HELP                - this message"];
    cx.reply.array(lines.len());
    lines.iter().for_each(|line| cx.reply.simple(line));
    Ok(Flow::Done)
}
