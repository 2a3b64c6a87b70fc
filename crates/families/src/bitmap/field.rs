//! BITFIELD and BITFIELD_RO: integers anywhere in a string.
//!
//! The arguments are read twice: first to refuse faults in any of them, and to find the length that
//! the string needs, then to run the operations. More operations than fit a slice are a [`Long`]
//! job: both passes are made in portions, and the string is changed aside.

use super::edit::{SETBIT, edit};
use super::integer::{Integer, Kind, Overflow, TOUCHED_MAX, Window};
use crate::counted_reply::CountedReply;
use crate::lookup::find_text;
use crate::option_names;
use crate::text::find_piece;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Job, KeyFlags, Refusal, Step};
use darter_keyspace::{Draft, Fresh, Key, Str, TextEdit};
use darter_resp::{self as resp, Output, Reply, Request};
use darter_structs::blob::Blob;
use std::sync::Arc;

/// The most arguments of one operation, its name included.
const WORDS_MAX: usize = 4;
/// Operations in one portion.
const PORTION: usize = 256;

/// `BITFIELD key [GET type offset | [OVERFLOW WRAP | SAT | FAIL] SET type offset value | INCRBY type
/// offset increment ...]`: reads and writes integers in the string at `key`, which grows to hold
/// all that are written.
///
/// Reply: array, one element an operation: the value (GET), the value before (SET), the sum
/// (INCRBY); null where it did not fit and `OVERFLOW FAIL` is in force. Refusals: `Syntax`, invalid
/// types, offsets and numbers, `WrongType`; then nothing changes. The deadline stays. Cost:
/// O(operations), in slices when they are many. Source: <https://redis.io/commands/bitfield>
/// (3.2.0).
pub(super) fn bitfield(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    run(cx, args, Mode::Any)
}

/// `BITFIELD_RO key [GET type offset ...]`: BITFIELD that only reads.
///
/// Otherwise as BITFIELD. Source: <https://redis.io/commands/bitfield_ro> (6.0.0).
pub(super) fn bitfield_ro(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    run(cx, args, Mode::ReadOnly)
}

/// The key flags of a BITFIELD: read-only if it has only GETs. The search stops at the first
/// unknown subcommand.
pub(super) fn flags_of(args: resp::Args<'_>) -> KeyFlags {
    let mut at = 2;
    while at < args.len() {
        let is = |name| option_names::is(args.head(at), name);
        let width = if is("GET") { 3 } else { 2 };
        if !is("GET") && !is("OVERFLOW") || at + width > args.len() {
            return KeyFlags::RW_ACCESS_UPDATE;
        }
        at += width;
    }
    KeyFlags::RO_ACCESS
}

/// The subcommands that a command allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Any,
    ReadOnly,
}

/// The effect of an operation on an integer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Get,
    Replace(i64),
    Add(i64),
}

/// One operation of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) integer: Integer,
    pub(super) action: Action,
    pub(super) overflow: Overflow,
}

/// The operations of a request that are still to be read.
#[derive(Clone, Copy)]
struct Operations<'a> {
    args: Args<'a>,
    overflow: Overflow,
}

impl<'a> Operations<'a> {
    fn new(args: Args<'a>) -> Self {
        Self { args, overflow: Overflow::default() }
    }

    fn next(&mut self) -> Result<Option<Operation>, Refusal> {
        while let Some(name) = option_names::take(&mut self.args) {
            if option_names::is(name, "OVERFLOW") && self.args.left() > 0 {
                self.overflow = parse_overflow(self.args.word()?)?;
                continue;
            }
            let needed =
                |name_is, count| option_names::is(name, name_is) && self.args.left() >= count;
            let with_value = needed("SET", 3) || needed("INCRBY", 3);
            if !with_value && !needed("GET", 2) {
                return Err(Refusal::Syntax);
            }
            let kind = Kind::parse(self.args.word()?)?;
            let integer = Integer::parse(kind, self.args.word()?)?;
            let action = match with_value {
                false => Action::Get,
                true if option_names::is(name, "SET") => Action::Replace(self.args.int()?),
                true => Action::Add(self.args.int()?),
            };
            return Ok(Some(Operation { integer, action, overflow: self.overflow }));
        }
        Ok(None)
    }
}

fn parse_overflow(text: &[u8]) -> Result<Overflow, Refusal> {
    const NAMES: &[(&str, Overflow)] =
        &[("WRAP", Overflow::Wrap), ("SAT", Overflow::Saturate), ("FAIL", Overflow::Fail)];
    option_names::meaning(text, NAMES).ok_or(Refusal::line("ERR Invalid OVERFLOW type specified"))
}

/// The results of the first pass over the arguments.
#[derive(Clone, Copy, Debug, Default)]
struct Survey {
    operations: usize,
    /// The last byte that an operation writes to, if any does.
    last_byte: Option<usize>,
}

impl Survey {
    fn add(&mut self, operation: &Operation) {
        self.operations += 1;
        if !matches!(operation.action, Action::Get) {
            self.last_byte = self.last_byte.max(Some(operation.integer.last_byte()));
        }
    }

    fn check(&self, mode: Mode) -> Result<(), Refusal> {
        if mode == Mode::ReadOnly && self.last_byte.is_some() {
            return Err(Refusal::line("ERR BITFIELD_RO only supports the GET subcommand"));
        }
        Ok(())
    }
}

fn run(cx: &mut Cx<'_>, mut args: Args<'_>, mode: Mode) -> Result<Flow, Refusal> {
    let first = args.position();
    let key = args.key()?;
    if args.left() > ENTRIES_AT_ONCE * WORDS_MAX {
        return Ok(Flow::Job(Box::new(Long::new(args, first, mode))));
    }
    let (mut operations, mut survey) = (Operations::new(args), Survey::default());
    while let Some(operation) = operations.next()? {
        survey.add(&operation);
    }
    survey.check(mode)?;
    match survey.last_byte {
        Some(last_byte) => {
            let results = edit(cx.db, &key, |text| write(text, last_byte, args))??;
            cx.reply.array(results.len());
            results.into_iter().for_each(|result| reply_one(&mut cx.reply, result));
        }
        None => {
            let text = find_text(cx.db, cx.stats, &key)?;
            cx.reply.array(survey.operations);
            let mut operations = Operations::new(args);
            while let Some(operation) = operations.next()? {
                let value = text.map_or(0, |text| read(&text, operation.integer));
                cx.reply.int(value);
            }
        }
    }
    Ok(Flow::Done)
}

/// Runs all operations. Returns their results, and the number of those that changed bits.
fn write(
    text: &mut TextEdit<'_>,
    last_byte: usize,
    args: Args<'_>,
) -> (Result<Vec<Option<i64>>, Refusal>, usize) {
    let mut changer = Changer::new(text.text(), last_byte);
    changer.grow(text);
    let (mut operations, mut results) = (Operations::new(args), Vec::new());
    loop {
        match operations.next() {
            Ok(Some(operation)) => results.push(changer.run(text, operation)),
            Ok(None) => return (Ok(results), changer.changes),
            Err(refusal) => return (Err(refusal), changer.changes),
        }
    }
}

fn reply_one(reply: &mut Reply<'_>, result: Option<i64>) {
    match result {
        Some(value) => reply.int(value),
        None => reply.null(),
    }
}

/// The integer in a string.
fn read(text: &Str<'_>, integer: Integer) -> i64 {
    let mut window = Window::default();
    let from = integer.first_byte().min(text.len());
    let mut filled = 0;
    find_piece(text, from..text.len().min(from + TOUCHED_MAX), |_, piece| {
        window[filled..filled + piece.len()].copy_from_slice(piece);
        filled += piece.len();
        None::<()>
    });
    integer.read(&window)
}

/// Changes integers in a string that has grown to hold them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changer {
    last_byte: usize,
    /// The string grows, so every write counts as a change.
    grows: bool,
    /// Operations that have changed something.
    changes: usize,
}

impl Changer {
    pub(super) fn new(text: &Blob, last_byte: usize) -> Self {
        Self { last_byte, grows: last_byte >= text.len(), changes: 0 }
    }

    pub(super) fn grow(&self, text: &mut TextEdit<'_>) {
        if self.grows {
            text.write(self.last_byte, Fresh::Bytes(&[0]), &[]);
        }
    }

    /// Runs an operation. Returns its result, or `None` if the result does not fit.
    pub(super) fn run(&mut self, text: &mut TextEdit<'_>, operation: Operation) -> Option<i64> {
        let Operation { integer, action, overflow } = operation;
        let from = integer.first_byte();
        let mut window = Window::default();
        let there = text.text().slices(from..from + TOUCHED_MAX).flatten();
        window.iter_mut().zip(there).for_each(|(to, byte)| *to = *byte);
        let old = integer.read(&window);
        let (new, result) = match action {
            Action::Get => return Some(old),
            Action::Replace(value) => (integer.kind.set_to(value, overflow)?, old),
            Action::Add(by) => {
                let sum = integer.kind.sum(old, by, overflow)?;
                (sum, sum)
            }
        };
        if self.grows || new != old {
            text.write(from, Fresh::Bytes(integer.write(&mut window, new)), &[SETBIT]);
            self.changes += 1;
        }
        Some(result)
    }
}

/// A request with more operations than fit a slice.
struct Long {
    request: Arc<Request>,
    /// The index of the key in the request.
    key: usize,
    mode: Mode,
    /// The index of the next argument.
    next: usize,
    overflow: Overflow,
    survey: Survey,
    /// The second pass, once all arguments have been read.
    work: Option<FieldEdit>,
}

/// The second pass.
struct FieldEdit {
    draft: Draft<Blob>,
    changer: Changer,
    results: CountedReply,
}

impl Long {
    fn new(args: Args<'_>, key: usize, mode: Mode) -> Self {
        let (request, next) = (args.all().to_request(), args.position());
        let (overflow, survey) = (Overflow::default(), Survey::default());
        Self { request, key, mode, next, overflow, survey, work: None }
    }

    /// Passes the operations of a portion to `each`. Returns true while there are more.
    fn portion(
        &mut self,
        mut each: impl FnMut(&mut Survey, Option<&mut FieldEdit>, Operation),
    ) -> Result<bool, Refusal> {
        let args = Args::new(resp::Args::owned(&self.request), self.next);
        let mut operations = Operations { args, overflow: self.overflow };
        let mut more = true;
        for _ in 0..PORTION {
            let Some(operation) = operations.next()? else {
                more = false;
                break;
            };
            each(&mut self.survey, self.work.as_mut(), operation);
        }
        (self.next, self.overflow) = (operations.args.position(), operations.overflow);
        Ok(more)
    }

    /// Starts the second pass.
    fn begin(&mut self, cx: &mut Cx<'_>) -> Result<(), Refusal> {
        self.survey.check(self.mode)?;
        let key = Key::new(resp::Args::owned(&self.request).get(self.key));
        if self.survey.last_byte.is_none() {
            find_text(cx.db, cx.stats, &key)?; // The lookup counts as a read.
        }
        let mut draft = cx.db.draft_text(&key)?;
        let changer = match self.survey.last_byte {
            Some(last_byte) => Changer::new(draft.value(), last_byte),
            None => Changer { last_byte: 0, grows: false, changes: 0 },
        };
        changer.grow(&mut draft.edit_text());
        self.work = Some(FieldEdit { draft, changer, results: CountedReply::default() });
        (self.next, self.overflow) = (self.key + 1, Overflow::default());
        Ok(())
    }

    /// Ends the second pass.
    fn end(&mut self, cx: &mut Cx<'_>, mut work: FieldEdit) -> Flow {
        let key = Key::new(resp::Args::owned(&self.request).get(self.key));
        if self.survey.last_byte.is_some() {
            work.draft.count_as(work.changer.changes);
            cx.db.install_draft(&key, work.draft);
        }
        cx.reply.array(self.survey.operations);
        Flow::Stream(Box::new(work.results))
    }
}

impl Job for Long {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        if self.work.is_none() {
            let more = self.portion(|survey, _, operation| survey.add(&operation))?;
            if !more {
                self.begin(cx)?;
            }
            return Ok(Step::More);
        }
        let (mut out, mut count) = (Output::default(), 0);
        let reply = &mut Reply::new(&mut out, cx.reply.is_resp3());
        let more = self.portion(|_, work, operation| {
            let Some(work) = work else { return };
            reply_one(reply, work.changer.run(&mut work.draft.edit_text(), operation));
            count += 1;
        })?;
        let Some(mut work) = self.work.take() else { return Ok(Step::More) };
        work.results.append(&out.flatten(), count);
        if more {
            self.work = Some(work);
            return Ok(Step::More);
        }
        Ok(Step::Done(self.end(cx, work)))
    }
}
