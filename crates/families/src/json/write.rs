//! Changing a document: the values are parsed, the path is searched, each place is changed.
//!
//! Short changes are made at once, in place. Longer ones change a copy in slices: other writers of
//! the key wait, and readers see the previous document.

use super::acts::{self, Act, Form, Number, Outcomes};
use super::found::{self, Found};
use super::path::Path;
use super::places::Places;
use super::value::{Json, JsonEdit};
use crate::counted_reply::CountedReply;
use crate::pending_values::flow;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step, Stream};
use darter_keyspace::{Draft, Key};
use darter_resp::{self as resp, Reply, Request};
use darter_structs::json::{self, Parser, Value, View};
use std::sync::Arc;

/// Bytes of values that are parsed in one step.
const BYTES_AT_ONCE: usize = 8 * 1024;
/// Values that are parsed and added in one step.
const VALUES_AT_ONCE: usize = 32;
/// Bytes that are parsed between two checks of the slice.
const BYTES: usize = 2 * 1024;
/// Search portions, and places, up to which a change is made at once.
const PORTIONS_AT_ONCE: usize = 2;
const PLACES_AT_ONCE: usize = 16;
/// Values that are added or merged at once, at all places together.
const WORK_AT_ONCE: usize = 32;
/// Places changed between two checks of the slice.
const PLACES: usize = 4;
/// Total depth of the places changed at once, and between two checks of the slice.
const LEVELS_AT_ONCE: usize = 256;

/// A command and its further arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Order {
    Assign(Only),
    Merge,
    Delete,
    Clear,
    Toggle,
    Number { is_product: bool },
    StrAppend,
    ArrAppend,
    ArrInsert { at: i64 },
    ArrPop { at: i64 },
    ArrTrim { start: i64, stop: i64 },
}

/// A condition of JSON.SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Only {
    Always,
    /// NX: the path must find nothing.
    Absent,
    /// XX: the path must find something.
    Present,
}

impl Order {
    /// Combines the command with its parsed values.
    pub(super) fn act(self, values: Value) -> Result<Act, Refusal> {
        let one = |values: &Value| values.copy_at(&[0]).expect("the arity says so");
        Ok(match self {
            Self::Assign(_) => Act::Assign(one(&values)),
            Self::Merge => Act::Merge(one(&values)),
            Self::Delete => Act::Delete,
            Self::Clear => Act::Clear,
            Self::Toggle => Act::Toggle,
            Self::Number { is_product } => {
                let by = Number::of(one(&values).view());
                let by = by.ok_or(Refusal::line("ERR expected a number"))?;
                Act::Number { by, is_product }
            }
            Self::StrAppend => match one(&values).view() {
                View::Text(_) => Act::StrAppend(one(&values)),
                other => {
                    let found = found::type_name(other);
                    let line = format!(
                        "WRONGTYPE wrong type of path value - expected string but found {found}"
                    );
                    return Err(Refusal::line(line));
                }
            },
            Self::ArrAppend => Act::ArrAppend(values),
            Self::ArrInsert { at } => Act::ArrInsert { at, values },
            Self::ArrPop { at } => Act::ArrPop { at },
            Self::ArrTrim { start, stop } => Act::ArrTrim { start, stop },
        })
    }

    /// True if the change may create a document or a member.
    fn creates(self) -> bool {
        matches!(self, Self::Assign(_) | Self::Merge)
    }

    fn only(self) -> Only {
        if let Self::Assign(only) = self { only } else { Only::Always }
    }

    fn form(self, resp3: bool) -> Form {
        let is_text = matches!(self, Self::Number { .. }) && !resp3;
        if is_text { Form::Json } else { Form::Resp { resp3 } }
    }

    /// True if the change may add levels of nesting below a place.
    fn deepens(self) -> bool {
        self.creates() || matches!(self, Self::ArrAppend | Self::ArrInsert { .. })
    }
}

/// The places of a change. All are found before the first is changed, so every refusal happens
/// here.
pub(super) struct Targets {
    order: Order,
    path: Path,
    found: Found,
    /// The path found nothing: these are the objects that get a new member.
    is_adding: bool,
}

impl Targets {
    pub(super) fn new(order: Order, path: Path) -> Self {
        let found = match order {
            Order::Delete => Found::apart(path.clone()),
            _ => Found::new(path.clone()),
        };
        Self { order, path, found, is_adding: false }
    }

    /// The number of places changed between two checks; fewer if places are deep.
    pub(super) fn places_at_once(&self) -> usize {
        (LEVELS_AT_ONCE / self.found.levels.max(1)).clamp(1, PLACES)
    }

    /// Continues the search in the document, if there is one. Returns true while there may be more.
    pub(super) fn seek(&mut self, root: Option<&Value>) -> Result<bool, Refusal> {
        let Some(root) = root else {
            self.found.places = Places::root();
            return Ok(false);
        };
        if self.found.seek(root, false)? {
            return Ok(true);
        }
        let is_found = self.found.places.len() > 0;
        if !self.is_adding {
            match self.order.only() {
                Only::Absent if is_found => self.found.places = Places::default(),
                Only::Present => {}
                _ if !is_found && self.order.creates() => return self.seek_parents(),
                _ => {}
            }
        }
        if self.order.deepens() && self.found.levels + json::DEPTH_MAX > json::LEVELS_MAX {
            return Err(Refusal::line("ERR recursion limit exceeded"));
        }
        Ok(false)
    }

    /// Starts the search for the objects found by all steps but the last.
    fn seek_parents(&mut self) -> Result<bool, Refusal> {
        let Some((before, _)) = self.path.split_name() else {
            let is_index = self.path.is_single();
            let line =
                if is_index { "ERR array index out of range" } else { "ERR wrong static path" };
            return Err(Refusal::line(line));
        };
        let steps = before.into();
        self.found = Found::new(Path { steps, ..self.path.clone() });
        self.is_adding = true;
        Ok(true)
    }
}

/// Changes the values at the places of a path. `values` are the indexes of the arguments with the
/// new values.
pub(super) fn change(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    path: Path,
    order: Order,
    values: std::ops::Range<usize>,
) -> Result<Flow, Refusal> {
    let key = Key::new(args.all().get(crate::unshare::KEY));
    if let Some(flow) = missing(cx, &key, &path, order)? {
        return Ok(flow);
    }
    let bytes = |values: &std::ops::Range<usize>| -> usize {
        values.clone().map(|at| args.all().arg(at).len()).sum()
    };
    let is_short = values.len() <= VALUES_AT_ONCE && bytes(&values) <= BYTES_AT_ONCE;
    let mut parsing = Parsing::new(values, order);
    let act = if is_short { Some(parsing.all(args.all())?) } else { None };
    let mut targets = Targets::new(order, path.clone());
    if let Some(act) = &act
        && seek_at_once(cx, &key, &mut targets)?
        && act.values(WORK_AT_ONCE) * targets.found.places.len() <= WORK_AT_ONCE
        && targets.found.levels * targets.found.places.len()
            <= LEVELS_AT_ONCE.max(targets.found.levels)
    {
        return at_once(cx, &key, act, targets);
    }
    let draft = cx.db.draft::<Json>(&key).map_err(|_| found::wrong_type())?;
    let request = args.all().to_request();
    let targets = Targets::new(order, path);
    let stage = act.map_or(JsonWriteStage::Parsing(Box::new(parsing)), JsonWriteStage::Seeking);
    Ok(Flow::Job(Box::new(Changing { request, change: Change::new(targets), draft, stage })))
}

/// Replies if there is no document. Returns `None` if there is one.
fn missing(
    cx: &mut Cx<'_>,
    key: &Key<'_>,
    path: &Path,
    order: Order,
) -> Result<Option<Flow>, Refusal> {
    let Some(found) = cx.db.read(key) else {
        match order {
            Order::Delete => cx.reply.int(0),
            order if !order.creates() => return Err(found::no_document()),
            _ if !path.is_root() => {
                return Err(Refusal::line("ERR new objects must be created at the root"));
            }
            order if order.only() == Only::Present => cx.reply.null(),
            _ => return Ok(None),
        }
        return Ok(Some(Flow::Done));
    };
    found.value::<Json>().map_err(|_| found::wrong_type())?;
    Ok(None)
}

/// Searches for the path. Returns false if that takes long, or finds many places.
fn seek_at_once(cx: &mut Cx<'_>, key: &Key<'_>, targets: &mut Targets) -> Result<bool, Refusal> {
    let json = cx.db.read_value::<Json>(key).map_err(|_| found::wrong_type())?;
    let root = json.as_ref().and_then(|json| json.root());
    for _ in 0..PORTIONS_AT_ONCE {
        if !targets.seek(root)? {
            return Ok(targets.found.places.len() <= PLACES_AT_ONCE);
        }
    }
    Ok(false)
}

/// Changes a few places, in place.
fn at_once(cx: &mut Cx<'_>, key: &Key<'_>, act: &Act, targets: Targets) -> Result<Flow, Refusal> {
    let (form, mut change) = (targets.order.form(cx.reply.is_resp3()), Change::new(targets));
    let creates = change.targets.order.creates();
    let edited = cx.db.edit::<Json, _>(key, creates, |edit| while change.step(act, edit, form) {});
    edited.map_err(|_| found::wrong_type())?.ok_or_else(found::no_document)?;
    change.reply(&mut cx.reply, act)
}

/// A change of all places, one after the other.
pub(super) struct Change {
    pub(super) targets: Targets,
    next: (usize, usize),
    pub(super) outcomes: Outcomes,
}

impl Change {
    pub(super) fn new(targets: Targets) -> Self {
        Self { targets, next: (0, 0), outcomes: Outcomes::default() }
    }

    /// Changes the next place, or a part of it. Returns true while more are left. Nothing is
    /// refused here.
    pub(super) fn step(&mut self, act: &Act, edit: &mut JsonEdit<'_>, form: Form) -> bool {
        let Self { targets, next, outcomes } = self;
        let Targets { order, path, found, is_adding } = targets;
        if *order == Order::Delete {
            let Some(path) = found.places.pop() else { return false };
            act.apply(edit, &path, outcomes, form);
            return true;
        }
        let here = *next;
        let Some(place) = found.places.next(next) else { return false };
        match path.split_name().filter(|_| *is_adding) {
            Some((_, name)) => act.add(edit, (place, name), outcomes),
            None => act.apply(edit, place, outcomes, form),
        }
        if outcomes.is_amid() {
            *next = here;
        }
        true
    }
}

/// Parses the values among the arguments, one after another.
pub(super) struct Parsing {
    positions: std::ops::Range<usize>,
    order: Order,
    /// The next piece of the current argument, and the next byte in the piece.
    piece: usize,
    byte: usize,
    parser: Parser,
    /// The values parsed so far, as an array.
    values: Value,
}

impl Parsing {
    pub(super) fn new(positions: std::ops::Range<usize>, order: Order) -> Self {
        let (parser, values) = (Parser::default(), Value::empty(false));
        Self { positions, order, piece: 0, byte: 0, parser, values }
    }

    /// Parses all values at once.
    fn all(&mut self, args: resp::Args<'_>) -> Result<Act, Refusal> {
        loop {
            if let Some(act) = self.some(args)? {
                return Ok(act);
            }
        }
    }

    /// Parses a portion. Returns the change once all values are parsed.
    pub(super) fn some(&mut self, args: resp::Args<'_>) -> Result<Option<Act>, Refusal> {
        if self.positions.is_empty() {
            return self.order.act(std::mem::replace(&mut self.values, Value::null())).map(Some);
        }
        let refuse = |fault: json::Fault| {
            // RedisJSON's errors of JSON.SET have no code.
            let code = if self.order.creates() { "" } else { "ERR " };
            Refusal::line(format!("{code}{fault}"))
        };
        match args.arg(self.positions.start).pieces().nth(self.piece) {
            Some(piece) => {
                let end = piece.len().min(self.byte + BYTES);
                self.parser.feed(&piece[self.byte..end]).map_err(refuse)?;
                self.byte = end;
                if end == piece.len() {
                    (self.piece, self.byte) = (self.piece + 1, 0);
                }
            }
            None => {
                let parser = std::mem::take(&mut self.parser);
                self.values.push(&parser.finish().map_err(refuse)?);
                (self.positions.start, self.piece, self.byte) = (self.positions.start + 1, 0, 0);
            }
        }
        Ok(None)
    }
}

/// A change of a copy in progress.
struct Changing {
    request: Arc<Request>,
    change: Change,
    draft: Draft<Json>,
    stage: JsonWriteStage,
}

enum JsonWriteStage {
    Parsing(Box<Parsing>),
    Seeking(Act),
    Applying(Act),
}

impl Job for Changing {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let stage = std::mem::replace(&mut self.stage, JsonWriteStage::Seeking(Act::Delete));
        match stage {
            JsonWriteStage::Parsing(mut parsing) => {
                let args = resp::Args::owned(&self.request);
                loop {
                    if let Some(act) = parsing.some(args)? {
                        self.stage = JsonWriteStage::Seeking(act);
                        return Ok(Step::More);
                    }
                    if cx.preempt.must_yield() {
                        self.stage = JsonWriteStage::Parsing(parsing);
                        return Ok(Step::More);
                    }
                }
            }
            JsonWriteStage::Seeking(act) => {
                let more = self.change.targets.seek(self.draft.value().root())?;
                self.stage =
                    if more { JsonWriteStage::Seeking(act) } else { JsonWriteStage::Applying(act) };
                Ok(Step::More)
            }
            JsonWriteStage::Applying(act) => self.apply(cx, act),
        }
    }
}

impl Changing {
    /// Changes some places. After the last, installs the document and replies.
    fn apply(&mut self, cx: &mut Cx<'_>, act: Act) -> Result<Step, Refusal> {
        let Self { change, draft, .. } = self;
        let form = change.targets.order.form(cx.reply.is_resp3());
        let mut edit = draft.edit(cx.now);
        let (mut steps, places) = (1.., change.targets.places_at_once());
        while change.step(&act, &mut edit, form) {
            let is_due =
                change.outcomes.is_amid() || steps.next().is_some_and(|at| at % places == 0);
            if is_due && cx.preempt.must_yield() {
                self.stage = JsonWriteStage::Applying(act);
                return Ok(Step::More);
            }
        }
        if self.change.outcomes.changed > 0 {
            let key = resp::Args::owned(&self.request).get(crate::unshare::KEY);
            cx.db.install_draft(&Key::new(key), std::mem::take(&mut self.draft));
        }
        self.change.reply(&mut cx.reply, &act).map(Step::Done)
    }
}

impl Change {
    /// Replies with the results at the places.
    fn reply(&mut self, to: &mut Reply<'_>, act: &Act) -> Result<Flow, Refusal> {
        let outcomes = std::mem::take(&mut self.outcomes);
        reply(to, (&self.targets.path, self.targets.order), act, outcomes)
    }
}

/// Replies with the results at the places.
fn reply(
    reply: &mut Reply<'_>,
    (path, order): (&Path, Order),
    act: &Act,
    outcomes: Outcomes,
) -> Result<Flow, Refusal> {
    if outcomes.is_infinite && path.is_legacy {
        return Err(Refusal::line("ERR result is not a number"));
    }
    match order {
        Order::Assign(_) | Order::Merge if outcomes.changed == 0 => reply.null(),
        Order::Assign(_) | Order::Merge => reply.ok(),
        Order::Delete | Order::Clear => reply.count(outcomes.changed),
        Order::ArrPop { .. } => return popped(reply, path, act, outcomes),
        _ if path.is_legacy => {
            let Some(last) = outcomes.last else { return Err(acts::refusal(act, path)) };
            match (order, &last[..]) {
                (Order::Toggle, last) => {
                    reply.bulk(if last == b":1\r\n" { b"true" } else { b"false" })
                }
                (Order::Number { .. }, _) if !reply.is_resp3() => reply.bulk(&last),
                (Order::Number { .. }, _) => {
                    reply.array(1);
                    reply.out.copy(&last);
                }
                _ => reply.out.copy(&last),
            }
        }
        Order::Number { .. } if !reply.is_resp3() => {
            reply.bulk_header(outcomes.bytes + 2);
            reply.out.copy(b"[");
            let end: &[u8] = b"]\r\n";
            return Ok(flow(reply, Ending { answers: outcomes.answers, end }));
        }
        _ => {
            reply.array(outcomes.answers.count());
            return Ok(flow(reply, Ending { answers: outcomes.answers, end: b"" }));
        }
    }
    Ok(Flow::Done)
}

/// Replies with the removed elements.
fn popped(
    reply: &mut Reply<'_>,
    path: &Path,
    act: &Act,
    mut outcomes: Outcomes,
) -> Result<Flow, Refusal> {
    if path.is_legacy {
        if outcomes.popped.len() == 0 {
            return Err(acts::refusal(act, path));
        }
        outcomes.popped = outcomes.popped.into_last();
    } else {
        reply.array(outcomes.popped.len());
    }
    Ok(flow(reply, super::get::Texts::new(outcomes.popped, Path::root(true))))
}

/// The end of a reply, which is sent in portions.
struct Ending {
    answers: CountedReply,
    end: &'static [u8],
}

impl Stream for Ending {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if self.answers.pump(reply) {
            return true;
        }
        reply.out.copy(self.end);
        false
    }

    fn pinned_bytes(&self) -> usize {
        self.answers.pinned_bytes()
    }
}
