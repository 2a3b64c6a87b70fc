//! XDEL, XSETID.

use super::id;
use super::value::{State, Stream, StreamEdit};
use crate::option_names;
use crate::unshare::{self, KEY};
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Draft, Key, Touch, Type, Typed};
use darter_resp::{self as resp, Request};
use darter_structs::stream::StreamId;
use std::sync::Arc;

/// IDs read in one portion.
const PORTION_IDS: usize = 512;
/// Entries deleted in one portion.
const PORTION_DELETIONS: usize = 32;

/// `XDEL key id [id ...]`: deletes entries.
///
/// Reply: integer, the number of deleted entries. Refusals: `WrongType`, an invalid ID; then
/// nothing is deleted.
/// Cost: O(log n) each, in slices when they are many.
/// Source: <https://redis.io/commands/xdel> (5.0.0).
pub(super) fn xdel(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    if cx.db.read_value::<Stream>(&key)?.is_none() {
        cx.reply.int(0);
        return Ok(Flow::Done);
    }
    if args.left() > unshare::MANY {
        return Ok(Flow::Job(Box::new(DeletingMany::new(args))));
    }
    let mut ids = args;
    while ids.left() > 0 {
        id::parse(ids.word()?, 0)?;
    }
    unshare::run(cx, &key, args, Deleting)
}

/// A deletion of a few entries, whose IDs have been checked.
#[derive(Clone, Copy)]
struct Deleting;

/// Takes an ID that has been checked.
fn checked(args: &mut Args<'_>) -> Option<StreamId> {
    id::parse(args.word().ok()?, 0).ok()
}

impl unshare::EntryEdit for Deleting {
    fn touches(self) -> (&'static Type, Touch) {
        (Stream::TYPE, Touch::All)
    }

    fn copy(
        self,
        cx: &mut Cx<'_>,
        key: &Key<'_>,
        mut args: Args<'_>,
        entries: usize,
    ) -> Option<usize> {
        let preempt = cx.preempt;
        let copy = |edit: &mut StreamEdit<'_>| {
            (1..=entries).find(|_| {
                checked(&mut args).is_some_and(|id| edit.unshare(id)) && preempt.must_yield()
            })
        };
        cx.db.edit::<Stream, _>(key, false, copy).ok()??
    }

    fn run(self, cx: &mut Cx<'_>, key: &Key<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
        let deleted = cx.db.edit::<Stream, _>(key, false, |edit| {
            let mut deleted = 0;
            while let Some(id) = checked(&mut args) {
                deleted += usize::from(edit.remove(id));
            }
            deleted
        })?;
        cx.reply.count(deleted.unwrap_or(0));
        Ok(Flow::Done)
    }
}

/// A deletion of many entries: first their IDs are checked, then a copy is changed.
struct DeletingMany {
    request: Arc<Request>,
    /// Indexes of the first ID and of the next one.
    first: usize,
    next: usize,
    /// The new version, once all IDs are checked.
    draft: Option<Draft<Stream>>,
    deleted: usize,
}

impl DeletingMany {
    fn new(args: Args<'_>) -> Self {
        let (request, first) = (args.all().to_request(), args.position());
        Self { request, first, next: first, draft: None, deleted: 0 }
    }

    /// Checks some IDs. Returns true once all are checked.
    fn check(&mut self) -> Result<bool, Refusal> {
        let mut args = Args::new(resp::Args::owned(&self.request), self.next);
        for _ in 0..PORTION_IDS.min(args.left()) {
            id::parse(args.word()?, 0)?;
        }
        self.next = args.position();
        Ok(args.left() == 0)
    }
}

impl Job for DeletingMany {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let request = Arc::clone(&self.request);
        let all = resp::Args::owned(&request);
        let key = Key::new(all.get(KEY));
        let Some(draft) = &mut self.draft else {
            if self.check()? {
                self.draft = Some(cx.db.draft::<Stream>(&key)?);
                self.next = self.first;
            }
            return Ok(Step::More);
        };
        let mut args = Args::new(all, self.next);
        for _ in 0..PORTION_DELETIONS {
            let Some(id) = checked(&mut args) else { break };
            self.deleted += usize::from(draft.edit(cx.now).remove(id));
            // Each deletion may have copied a part of the tree.
            if cx.preempt.must_yield() {
                break;
            }
        }
        self.next = args.position();
        if args.left() > 0 {
            return Ok(Step::More);
        }
        if let Some(draft) = self.draft.take_if(|_| self.deleted > 0) {
            cx.db.install_draft(&key, draft);
        }
        cx.reply.count(self.deleted);
        Ok(Step::Done(Flow::Done))
    }
}

/// `XSETID key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]`: sets the
/// counters of the stream.
///
/// In Darter, the ID may be `-`, which means that none was deleted.
///
/// Reply: `OK`. Refusals: invalid or too small IDs, numbers that are negative or too small,
/// `Syntax`, `NotAnInteger`, `NoSuchKey`, `WrongType`. Cost: O(log n). Source:
/// <https://redis.io/commands/xsetid> (5.0.0; options 7.0.0).
pub(super) fn xsetid(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, last) = (args.key()?, id::parse(args.word()?, 0)?);
    let mut said = option_names::Count::default();
    let (mut added, mut max_deleted) = (None, None);
    while args.left() > 0 {
        said.add()?;
        if args.left() > 1 && args.option("ENTRIESADDED") {
            let number = u64::try_from(args.int()?);
            let refusal = || Refusal::line("ERR entries_added must be positive");
            added = Some(number.map_err(|_| refusal())?);
        } else if args.left() > 1 && args.option("MAXDELETEDID") {
            max_deleted = max_deleted_id(args.word()?)?;
            if max_deleted.is_some_and(|id| last < id) {
                return Err(too_small("the provided max_deleted_entry_id"));
            }
        } else {
            return Err(Refusal::Syntax);
        }
    }
    let Some(stream) = cx.db.read_value::<Stream>(&key)? else { return Err(Refusal::NoSuchKey) };
    let state = stream.state();
    if stream.entries().last().is_some_and(|top| last < top) {
        return Err(too_small("the target stream top item"));
    }
    let len = stream.entries().len() as u64;
    if len > 0 && added.is_some_and(|added| added < len) {
        return Err(Refusal::line(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    let added = added.unwrap_or(state.added);
    let max_deleted = max_deleted.unwrap_or(state.max_deleted);
    cx.db.edit::<Stream, _>(&key, false, |edit| edit.set(State { last, max_deleted, added }))?;
    cx.reply.ok();
    Ok(Flow::Done)
}

/// The highest deleted ID to set. As in Redis, 0-0 changes nothing; `NONE` is for files, and sets 0-0.
fn max_deleted_id(word: &[u8]) -> Result<Option<StreamId>, Refusal> {
    match word {
        b"NONE" => Ok(Some(StreamId::MIN)),
        word => Ok(Some(id::parse(word, 0)?).filter(|id| *id > StreamId::MIN)),
    }
}

fn too_small(than: &str) -> Refusal {
    Refusal::line(format!("ERR The ID specified in XSETID is smaller than {than}"))
}
