//! XADD.
//!
//! An entry of a few fields is added at once. If copying the fields takes more than a slice, they
//! are first collected in portions, in a list that the entry then uses.

use super::id::{self, Wanted};
use super::idempotent::{self, Message};
use super::refs::{Refs, Trimming};
use super::trim::{self, Trim};
use super::value::{Stream, StreamEdit, new};
use super::work::{self, StreamJob};
use crate::bulk_edit::is_long;
use crate::option_names;
use crate::unshare::KEY;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Fresh, Key};
use darter_resp::{self as resp, Reply, Request};
use darter_structs::stream::{End, List, StreamId};
use std::sync::Arc;

/// With more bytes, the fields are collected in portions.
const BYTES_AT_ONCE: usize = 128 * 1024;
/// Fields that are collected in one portion.
const PORTION_FIELDS: usize = 512;
/// Fields that are collected between two checks of the slice.
const FIELDS: usize = 8;
/// The most bytes of fields that an entry in a file may have.
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// `XADD key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [IDMP producer message | IDMPAUTO producer]
/// [MAXLEN | MINID [= | ~] threshold [LIMIT count]] * | id field value [field value ...]`: appends
/// an entry, then trims as XTRIM does.
///
/// - `*`: the ID is the current time, or the next ID after the last one. `ms-*`: the next ID of
///   that millisecond.
/// - `NOMKSTREAM`: a missing key stays missing.
/// - `IDMP`: if the producer has recently sent this message, nothing is added, and the reply is the
///   ID of that entry. `IDMPAUTO`: the message is identified by its fields, in any order.
///
/// Reply: bulk, the ID; null for `NOMKSTREAM` without a stream. Refusals: those of XTRIM's options,
/// an invalid ID, the arity, an ID that is not above the last one, `WrongType`. Cost: O(log n +
/// bytes), in slices when there are many. Source: <https://redis.io/commands/xadd> (5.0.0; options
/// 6.2.0, 8.2, 8.6).
pub(super) fn xadd(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let mut adding = Adding::parse(&mut args)?;
    let digesting = adding.begin_digest(args.all());
    if is_long(args, 2 * ENTRIES_AT_ONCE, BYTES_AT_ONCE) {
        cx.db.read_value::<Stream>(&key)?;
        let (request, next) = (args.all().to_request(), args.position());
        let (fields, bytes) = (List::new(), 0);
        let gathering = Gathering { request, next, adding, fields, bytes, digesting };
        return Ok(Flow::Job(Box::new(gathering)));
    }
    if let Some(mut digesting) = digesting {
        let mut fields = List::new();
        Fields(args).for_each(|field| fields.push(End::Back, new(field)));
        adding.message = std::iter::repeat_with(|| digesting.step(&fields)).find_map(|done| done);
    }
    if adding.refs != Refs::Keep
        && let Some(flow) = adding.run_with_refs(cx, args, New::Arguments(args.position()))?
    {
        return Ok(flow);
    }
    adding.run(cx, &key, |edit, id| edit.append(id, Fields(args)))
}

/// The parsed request, without its fields.
#[derive(Clone, Copy, Debug)]
struct Adding {
    wanted: Wanted,
    trim: Option<Trim>,
    refs: Refs,
    idempotent: Option<idempotent::IdempotentRequest>,
    /// The message, once it is digested.
    message: Option<Message>,
    creates: bool,
}

impl Adding {
    /// Parses the request; leaves `args` at the first field.
    fn parse(args: &mut Args<'_>) -> Result<Self, Refusal> {
        let (mut options, mut creates, mut idempotent) = (trim::Options::default(), true, None);
        let mut said = option_names::Count::default();
        while args.may_be_option() {
            said.add()?;
            if args.option("NOMKSTREAM") {
                creates = false;
            } else if !idempotent::IdempotentRequest::take(args, &mut idempotent)?
                && !options.take(args)?
            {
                break;
            }
        }
        let wanted = args.peek_word().map(Wanted::parse).transpose()?;
        args.next();
        let (trim, refs) = (options.trim()?, options.refs());
        let Some(wanted) = wanted.filter(|_| args.left() > 0 && args.left().is_multiple_of(2))
        else {
            return Err(Refusal::Arity("xadd".into()));
        };
        if wanted == Wanted::Exact(StreamId::MIN) {
            return Err(Refusal::line("ERR The ID specified in XADD must be greater than 0-0"));
        }
        if idempotent.is_some() && wanted != Wanted::Auto {
            return Err(idempotent::IdempotentRequest::not_auto());
        }
        Ok(Self { wanted, trim, refs, idempotent, message: None, creates })
    }

    /// Computes the digest of a named message; for a message without a name, returns the digest to
    /// be continued over its fields.
    fn begin_digest(&mut self, all: resp::Args<'_>) -> Option<idempotent::Fields> {
        self.idempotent?.begin(all, &mut self.message)
    }

    /// Adds an entry, then trims with regard to references. `None` if that does not apply; then
    /// nothing was done.
    fn run_with_refs(
        self,
        cx: &mut Cx<'_>,
        args: Args<'_>,
        new: New,
    ) -> Result<Option<Flow>, Refusal> {
        let Some(trim) = self.trim else { return Ok(None) };
        let stream = cx.db.read_value::<Stream>(&Key::new(args.all().get(KEY)))?;
        let Some(stream) = stream.filter(|stream| !stream.groups().is_empty()) else {
            return Ok(None);
        };
        if self.message.is_some_and(|message| stream.known(message, cx.now).is_some()) {
            return Ok(None);
        }
        let id = self.wanted.behind(stream.state().last, cx.now)?;
        let (trimming, message) = (Trimming::new(trim, self.refs), self.message);
        let is_long = trimming.is_long(&stream, 1);
        work::run(cx, args, KEY, is_long, AddAndTrim { id, new, message, trimming }).map(Some)
    }

    /// Adds an entry by calling `append` with its ID, trims, and replies.
    fn run(
        self,
        cx: &mut Cx<'_>,
        key: &Key<'_>,
        append: impl FnOnce(&mut StreamEdit<'_>, StreamId),
    ) -> Result<Flow, Refusal> {
        let now = cx.now;
        let add = |edit: &mut StreamEdit<'_>| -> Result<StreamId, Refusal> {
            let known = self.message.and_then(|message| edit.stream().known(message, now));
            if let Some(id) = known {
                return Ok(id);
            }
            let id = self.wanted.behind(edit.stream().state().last, now)?;
            append(edit, id);
            self.message.iter().for_each(|message| edit.remember(*message, id, now));
            if let Some(trim) = self.trim {
                let count = trim.count(edit.stream().entries());
                edit.trim_beside(count);
            }
            Ok(id)
        };
        match cx.db.edit::<Stream, _>(key, self.creates, add)? {
            Some(id) => id::encode(&mut cx.reply, id?),
            None => cx.reply.null(),
        }
        Ok(Flow::Done)
    }
}

/// The fields of a new entry.
enum New {
    /// The arguments from this index on.
    Arguments(usize),
    /// A list that was collected.
    List(List),
    /// The entry was added.
    Nothing,
}

/// An entry to add, and the trimming after it.
struct AddAndTrim {
    id: StreamId,
    new: New,
    message: Option<Message>,
    trimming: Trimming,
}

impl StreamJob for AddAndTrim {
    fn step(&mut self, edit: &mut StreamEdit<'_>, all: resp::Args<'_>, now: u64) -> bool {
        match std::mem::replace(&mut self.new, New::Nothing) {
            New::Arguments(first) => edit.append(self.id, Fields(Args::new(all, first))),
            New::List(fields) => edit.append_list(self.id, fields),
            New::Nothing => return self.trimming.step(edit),
        }
        self.message.iter().for_each(|message| edit.remember(*message, self.id, now));
        true
    }

    fn reply(&mut self, reply: &mut Reply<'_>, _: &Stream) -> Flow {
        id::encode(reply, self.id);
        Flow::Done
    }
}

/// The remaining arguments, as fields.
#[derive(Clone)]
struct Fields<'a>(Args<'a>);

impl<'a> Iterator for Fields<'a> {
    type Item = Fresh<'a>;

    #[inline]
    fn next(&mut self) -> Option<Fresh<'a>> {
        self.0.value().ok()
    }
}

/// An entry whose fields are being collected.
struct Gathering {
    request: Arc<Request>,
    /// Index of the next field.
    next: usize,
    adding: Adding,
    fields: List,
    /// Bytes of the fields so far.
    bytes: usize,
    /// The digest of the message, until all fields are collected.
    digesting: Option<idempotent::Fields>,
}

impl Job for Gathering {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let all = resp::Args::owned(&self.request);
        let mut args = Args::new(all, self.next);
        for gathered in 1..=PORTION_FIELDS {
            let Ok(field) = args.value() else { break };
            self.bytes += field.len();
            if self.bytes > ENTRY_BYTES_MAX {
                return Err(id::too_large());
            }
            self.fields.push(End::Back, new(field));
            if gathered % FIELDS == 0 && cx.preempt.must_yield() {
                break;
            }
        }
        self.next = args.position();
        if args.left() > 0 {
            return Ok(Step::More);
        }
        while let Some(digesting) = &mut self.digesting {
            if let Some(message) = digesting.step(&self.fields) {
                (self.adding.message, self.digesting) = (Some(message), None);
            } else if cx.preempt.must_yield() {
                return Ok(Step::More);
            }
        }
        let (key, fields) = (Key::new(all.get(KEY)), std::mem::take(&mut self.fields));
        if self.adding.refs != Refs::Keep
            && let Some(flow) = self.adding.run_with_refs(cx, args, New::List(fields.clone()))?
        {
            return Ok(Step::Done(flow));
        }
        self.adding.run(cx, &key, |edit, id| edit.append_list(id, fields)).map(Step::Done)
    }
}
