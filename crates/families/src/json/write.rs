//! Changes of a document: the values are parsed, the path is followed, each place is changed.
//!
//! What is short is done at once, in place. What takes longer is done aside, in slices: writers of
//! the key wait, readers see the previous document.

use super::acts::{self, Act, Form, Number, Outcomes};
use super::found::{self, Found};
use super::path::Path;
use super::select::Places;
use super::value::Json;
use crate::gathered::Gathered;
use crate::unsent::flow;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Answer, Args, Call, Cx, Flow, Job, Refusal, Step, Stream};
use darter_keyspace::{Db, Draft, Key};
use darter_resp::{self as resp, Reply, Request};
use darter_structs::json::{self, Parser, Value, View};
use darter_tx::{Access, Home};
use std::sync::Arc;

/// Bytes of values that are parsed at once: some 50 us.
const BYTES_AT_ONCE: usize = 8 * 1024;
/// Values that are parsed and added at once.
const VALUES_AT_ONCE: usize = 32;
/// Bytes parsed between two looks at whether the slice is over: at most 20 us.
const BYTES: usize = 2 * 1024;
/// Portions of the search, and places, of a change that is made at once.
const PORTIONS_AT_ONCE: usize = 2;
const PLACES_AT_ONCE: usize = 16;
/// Places changed between two looks.
const PLACES: usize = 4;

/// Which command it is, and what else it was told.
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
    /// NX: there is nothing yet.
    Absent,
    /// XX: there is something.
    Present,
}

impl Order {
    /// Makes the act of it, with the values that were given.
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
                View::Text(text) => Act::StrAppend(text.to_vec()),
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

    /// True when it makes a document, or a member, that is not there.
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

    fn seek(self, path: Path) -> Found {
        if self == Self::Delete { Found::apart(path) } else { Found::new(path) }
    }
}

/// Does what is ordered at the places of a path; `values` are the positions of the arguments with
/// the values for it.
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
    let bytes: usize = values.clone().map(|at| args.all().arg(at).len()).sum();
    let mut parsing = Parsing::new(values, order);
    let is_short = bytes <= BYTES_AT_ONCE && parsing.positions.len() <= VALUES_AT_ONCE;
    let act = if is_short { Some(parsing.all(args.all())?) } else { None };
    let mut found = order.seek(path.clone());
    if let Some(act) = &act
        && seek_at_once(cx, &key, &mut found)?
    {
        return at_once(cx, &key, (&path, order), act, found);
    }
    let draft = cx.db.draft::<Json>(&key).map_err(|_| found::wrong_type())?;
    let (request, outcomes) = (args.all().to_request(), Outcomes::default());
    let stage = act.map_or(Stage::Parsing(Box::new(parsing)), Stage::Seeking);
    let found = order.seek(path.clone());
    Ok(Flow::Job(Box::new(Changing { request, path, order, draft, found, outcomes, stage })))
}

/// Replies where there is no document; `None`: go on.
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

/// Follows the path, if that is short. False if it is not, or finds much.
fn seek_at_once(cx: &mut Cx<'_>, key: &Key<'_>, found: &mut Found) -> Result<bool, Refusal> {
    let Some(json) = cx.db.read_value::<Json>(key).map_err(|_| found::wrong_type())? else {
        return Ok(true);
    };
    let Some(root) = json.root() else { return Ok(true) };
    for _ in 0..PORTIONS_AT_ONCE {
        if !found.seek(root, false) {
            return Ok(found.places.len() <= PLACES_AT_ONCE);
        }
    }
    Ok(false)
}

/// Changes a few places in place.
fn at_once(
    cx: &mut Cx<'_>,
    key: &Key<'_>,
    (path, order): (&Path, Order),
    act: &Act,
    found: Found,
) -> Result<Flow, Refusal> {
    let form = order.form(cx.reply.is_resp3());
    let outcomes = apply_all(cx.db, key, Apply::new(act, order, path, found), form)?;
    reply(&mut cx.reply, (path, order), act, outcomes)
}

/// Applies an act to all its places, or makes the document.
fn apply_all(
    db: &mut Db,
    key: &Key<'_>,
    mut apply: Apply<'_>,
    form: Form,
) -> Result<Outcomes, Refusal> {
    let is_new = db.read(key).is_none();
    let edited = db.edit::<Json, _>(key, apply.order.creates(), |edit| {
        let mut outcomes = Outcomes::default();
        if is_new {
            apply.act.create(edit);
            outcomes.changed = 1;
            return Ok(outcomes);
        }
        loop {
            match apply.step(edit, &mut outcomes, form) {
                Ok(true) => {}
                Ok(false) => return Ok(outcomes),
                Err(refusal) => return Err::<Outcomes, Refusal>(refusal),
            }
        }
    });
    edited.map_err(|_| found::wrong_type())?.ok_or_else(found::no_document)?
}

/// Applies an act to one place after the other.
struct Apply<'a> {
    act: &'a Act,
    order: Order,
    path: &'a Path,
    places: Places,
    next: (usize, usize),
    is_begun: bool,
}

impl<'a> Apply<'a> {
    fn new(act: &'a Act, order: Order, path: &'a Path, found: Found) -> Self {
        let places = if order == Order::Delete { found.places.apart() } else { found.places };
        Self { act, order, path, places, next: (0, 0), is_begun: false }
    }

    /// Changes the next place. True while there are more.
    fn step(
        &mut self,
        edit: &mut super::value::JsonEdit<'_>,
        outcomes: &mut Outcomes,
        form: Form,
    ) -> Result<bool, Refusal> {
        if !std::mem::replace(&mut self.is_begun, true) {
            let is_found = self.places.len() > 0;
            match self.order.only() {
                Only::Absent if is_found => return Ok(false),
                Only::Present if !is_found => return Ok(false),
                _ => {}
            }
            if !is_found && self.order.creates() {
                self.add(edit, outcomes)?;
                return Ok(false);
            }
        }
        if self.order == Order::Delete {
            let Some(path) = self.places.pop() else { return Ok(false) };
            self.act.apply(edit, &path, outcomes, form);
            return Ok(true);
        }
        let here = self.next;
        let Some(path) = self.places.next(&mut self.next) else { return Ok(false) };
        if self.act.is_too_deep(path) {
            return Err(Refusal::line("ERR recursion limit exceeded"));
        }
        self.act.apply(edit, path, outcomes, form);
        if outcomes.within > 0 {
            self.next = here;
        }
        Ok(true)
    }

    /// Adds the member that the last step names, to each object that the steps before it find.
    fn add(
        &self,
        edit: &mut super::value::JsonEdit<'_>,
        outcomes: &mut Outcomes,
    ) -> Result<(), Refusal> {
        let Some((before, name)) = self.path.split_name() else {
            let is_index = self.path.is_single();
            let line =
                if is_index { "ERR array index out of range" } else { "ERR wrong static path" };
            return Err(Refusal::line(line));
        };
        let parent = Path { steps: before.to_vec(), ..self.path.clone() };
        let mut found = Found::new(parent);
        while edit.root().is_some_and(|root| found.seek(root, false)) {}
        let mut next = (0, 0);
        while let Some(path) = found.places.next(&mut next) {
            if self.act.is_too_deep(path) {
                return Err(Refusal::line("ERR recursion limit exceeded"));
            }
            self.act.add(edit, path, name, outcomes);
        }
        Ok(())
    }
}

/// Parses the values among the arguments, one after the other.
struct Parsing {
    positions: std::ops::Range<usize>,
    order: Order,
    /// The next piece of the current one, and the next byte in it.
    piece: usize,
    byte: usize,
    parser: Parser,
    /// What is parsed, in an array.
    values: Value,
}

impl Parsing {
    fn new(positions: std::ops::Range<usize>, order: Order) -> Self {
        let (parser, values) = (Parser::default(), Value::empty(false));
        Self { positions, order, piece: 0, byte: 0, parser, values }
    }

    /// Parses all at once.
    fn all(&mut self, args: resp::Args<'_>) -> Result<Act, Refusal> {
        loop {
            if let Some(act) = self.some(args)? {
                return Ok(act);
            }
        }
    }

    /// Parses some 20 us. The act, once all is parsed.
    fn some(&mut self, args: resp::Args<'_>) -> Result<Option<Act>, Refusal> {
        if self.positions.is_empty() {
            return self.order.act(std::mem::replace(&mut self.values, Value::null())).map(Some);
        }
        let refuse = |fault: json::Fault| {
            // RedisJSON gives no code where a document is set.
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

/// A change aside.
struct Changing {
    request: Arc<Request>,
    path: Path,
    order: Order,
    draft: Draft<Json>,
    found: Found,
    outcomes: Outcomes,
    stage: Stage,
}

enum Stage {
    Parsing(Box<Parsing>),
    Seeking(Act),
    /// The places left, and the next of them.
    Applying(Act, Places, (usize, usize)),
}

impl Job for Changing {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let stage = std::mem::replace(&mut self.stage, Stage::Seeking(Act::Delete));
        match stage {
            Stage::Parsing(mut parsing) => {
                let args = resp::Args::owned(&self.request);
                loop {
                    if let Some(act) = parsing.some(args)? {
                        self.stage = Stage::Seeking(act);
                        return Ok(Step::More);
                    }
                    if cx.preempt.must_yield() {
                        self.stage = Stage::Parsing(parsing);
                        return Ok(Step::More);
                    }
                }
            }
            Stage::Seeking(act) => {
                let root = self.draft.value().root();
                if root.is_some_and(|root| self.found.seek(root, false)) {
                    self.stage = Stage::Seeking(act);
                    return Ok(Step::More);
                }
                let found = std::mem::replace(&mut self.found, Found::new(Path::root(false)));
                let places = match self.order {
                    Order::Delete => found.places.apart(),
                    _ => found.places,
                };
                self.stage = Stage::Applying(act, places, (0, 0));
                Ok(Step::More)
            }
            Stage::Applying(act, places, next) => self.apply(cx, act, places, next),
        }
    }
}

impl Changing {
    /// Changes some places; after the last, installs the document and replies.
    fn apply(
        &mut self,
        cx: &mut Cx<'_>,
        act: Act,
        places: Places,
        next: (usize, usize),
    ) -> Result<Step, Refusal> {
        let form = self.order.form(cx.reply.is_resp3());
        let Self { draft, outcomes, path, order, .. } = self;
        let mut edit = draft.edit(cx.now);
        if edit.root().is_none() {
            act.create(&mut edit);
            outcomes.changed = 1;
        } else {
            let is_begun = next != (0, 0) || outcomes.changed > 0 || outcomes.within > 0;
            let mut apply = Apply { act: &act, order: *order, path, places, next, is_begun };
            for done in 1.. {
                if !apply.step(&mut edit, outcomes, form)? {
                    break;
                }
                if done % PLACES == 0 && cx.preempt.must_yield() {
                    let (places, next) = (apply.places, apply.next);
                    self.stage = Stage::Applying(act, places, next);
                    return Ok(Step::More);
                }
            }
        }
        if self.outcomes.changed > 0 {
            let key = resp::Args::owned(&self.request).get(crate::unshare::KEY);
            cx.db.install_draft(&Key::new(key), std::mem::take(&mut self.draft));
        }
        let outcomes = std::mem::take(&mut self.outcomes);
        reply(&mut cx.reply, (&self.path, self.order), &act, outcomes).map(Step::Done)
    }
}

/// Replies with what became of the places.
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

/// Replies with the elements that were removed.
fn popped(
    reply: &mut Reply<'_>,
    path: &Path,
    act: &Act,
    mut outcomes: Outcomes,
) -> Result<Flow, Refusal> {
    if path.is_legacy {
        if outcomes.popped.is_empty() {
            return Err(acts::refusal(act, path));
        }
        let last = outcomes.popped.iter().rposition(Option::is_some);
        let last = last.and_then(|at| outcomes.popped.swap_remove_back(at));
        outcomes.popped = [last.flatten()].into();
    } else {
        reply.array(outcomes.popped.len());
    }
    Ok(flow(reply, super::get::Texts::new(outcomes.popped, Path::root(true))))
}

/// Answers, and what ends them.
struct Ending {
    answers: Gathered,
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

/// A document, or a part of one, of JSON.MSET.
#[derive(Clone)]
struct Triple {
    /// The position of the key among the arguments.
    at: usize,
    path: Path,
    act: Act,
}

/// `JSON.MSET key path value [key path value ...]`: JSON.SET of several keys, all at one instant.
///
/// Reply: `OK`. Refusals: as JSON.SET; then nothing is changed. Cost: O(values), in slices; the places
/// of each path are changed in one. Source: <https://redis.io/commands/json.mset> (RedisJSON 2.6.0).
pub(super) async fn mset(call: Call) -> Result<Answer, Refusal> {
    if !call.args().left().is_multiple_of(3) {
        return Err(Refusal::Arity("json.mset".into()));
    }
    let mut triples = Vec::with_capacity(call.args().left() / 3);
    for at in (call.first..call.len()).step_by(3) {
        let path = Path::parse(call.arg(at + 1))?;
        let mut parsing = Parsing::new(at + 2..at + 3, Order::Assign(Only::Always));
        let act = loop {
            if let Some(act) = parsing.some(resp::Args::owned(&call.request))? {
                break act;
            }
            call.tx.pause().await;
        };
        triples.push(Triple { at, path, act });
    }
    let locked = if triples.len() > ENTRIES_AT_ONCE {
        call.lock_all(Access::Exclusive).await
    } else {
        let keys = triples.iter().map(|triple| (call.arg(triple.at), Access::Exclusive));
        call.lock_keys(keys).await
    };
    let mut is_refused = Ok(());
    for triple in &triples {
        is_refused = is_refused.and(on_its_core(&call, triple, check).await);
    }
    if is_refused.is_ok() {
        for triple in &triples {
            on_its_core(&call, triple, set_one).await?;
        }
    }
    drop(locked);
    is_refused.map(|()| call.answer(|reply| reply.ok()))
}

/// Runs `f` on the core that owns the key.
async fn on_its_core(
    call: &Call,
    triple: &Triple,
    f: fn(&mut Db, &Key<'_>, &Triple) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let (core, db, no_touch) = (call.tx.core_of(call.arg(triple.at)), call.db, call.no_touch);
    let (request, triple) = (Arc::clone(&call.request), triple.clone());
    let run = move |home: &mut Home| {
        let key = Key::new(resp::Args::owned(&request).get(triple.at));
        let (db, ..) = home.shard.parts_for(db, no_touch);
        f(db, &key, &triple)
    };
    let result = call.tx.on(core, run).await;
    call.tx.pause().await;
    result
}

/// Refuses what cannot be set.
fn check(db: &mut Db, key: &Key<'_>, triple: &Triple) -> Result<(), Refusal> {
    match db.read(key) {
        Some(found) => found.value::<Json>().map(drop).map_err(|_| found::wrong_type()),
        None if triple.path.is_root() => Ok(()),
        None => Err(Refusal::line("ERR new objects must be created at the root")),
    }
}

fn set_one(db: &mut Db, key: &Key<'_>, triple: &Triple) -> Result<(), Refusal> {
    let order = Order::Assign(Only::Always);
    let mut found = order.seek(triple.path.clone());
    if let Some(json) = db.read_value::<Json>(key).map_err(|_| found::wrong_type())?
        && let Some(root) = json.root()
    {
        while found.seek(root, false) {}
    }
    let apply = Apply::new(&triple.act, order, &triple.path, found);
    apply_all(db, key, apply, Form::Resp { resp3: false }).map(drop)
}
