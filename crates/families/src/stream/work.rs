//! Changes of a stream's groups that may take more than a slice: short ones run at once, long ones
//! change a copy in portions.

use super::id;
use super::value::{Stream, StreamEdit};
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Draft, Key};
use darter_resp::{self as resp, Reply, Request};
use darter_structs::stream::StreamId;
use std::sync::Arc;

/// Entries at random places of a group that are changed in one step.
pub(super) const CHANGED_AT_ONCE: usize = 32;
/// Arguments read in one step.
const READ_AT_ONCE: usize = 512;

/// A change of one stream, in steps of about 20 us.
pub(super) trait StreamJob: Send + 'static {
    /// Reads some of the arguments. Returns true while more are left. If they are refused, nothing
    /// changes.
    fn read(&mut self, _: resp::Args<'_>) -> Result<bool, Refusal> {
        Ok(false)
    }

    /// Does a part of the work. Returns true while more is left.
    fn step(&mut self, edit: &mut StreamEdit<'_>, all: resp::Args<'_>, now: u64) -> bool;

    /// Replies, once everything is done.
    fn reply(&mut self, reply: &mut Reply<'_>, stream: &Stream) -> Flow;
}

/// The IDs among the arguments: all are checked before the first is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids {
    /// Argument indexes: of the next ID, of the next ID to check, and of the end.
    next: usize,
    checked: usize,
    end: usize,
}

impl Ids {
    /// The IDs from `next` to `end`.
    pub(super) fn new(next: usize, end: usize) -> Self {
        Self { next, checked: next, end }
    }

    /// The number of IDs left.
    pub(super) fn len(self) -> usize {
        self.end - self.next
    }

    /// Checks some IDs. Returns true while more are left.
    pub(super) fn check(&mut self, all: resp::Args<'_>) -> Result<bool, Refusal> {
        let mut args = Args::new(all, self.checked);
        self.checked = self.end.min(self.checked + READ_AT_ONCE);
        while args.position() < self.checked {
            id::parse(args.word()?, 0)?;
        }
        Ok(self.checked < self.end)
    }

    /// Checks some, up to the first that is none, where they end. True while there are more.
    pub(super) fn seek_end(&mut self, all: resp::Args<'_>) -> bool {
        let mut args = Args::new(all, self.checked);
        let until = self.end.min(self.checked + READ_AT_ONCE);
        while args.position() < until {
            if args.peek_word().is_none_or(|word| id::parse(word, 0).is_err()) {
                (self.checked, self.end) = (args.position(), args.position());
                return false;
            }
            args.next();
        }
        self.checked = until;
        until < self.end
    }

    /// The index after the last ID.
    pub(super) fn end(self) -> usize {
        self.end
    }

    /// Takes the next ID.
    pub(super) fn take(&mut self, all: resp::Args<'_>) -> Option<StreamId> {
        if self.next == self.end {
            return None;
        }
        debug_assert!(self.next < self.checked, "{self:?}");
        let mut args = Args::new(all, self.next);
        self.next += 1;
        args.word().ok().and_then(|word| id::parse(word, 0).ok())
    }
}

/// A change of a copy in progress.
struct BulkEdit<W: StreamJob> {
    request: Arc<Request>,
    /// The argument index of the key.
    key: usize,
    /// The stream as the command found it; its key may expire before the end.
    draft: Draft<Stream>,
    /// True once the arguments have been read.
    is_read: bool,
    work: W,
}

/// Runs `work` on the existing stream at the key, which is the argument at this index. If the work
/// is long, it changes a copy that is installed at the end: other writers wait, and readers see the
/// previous stream.
pub(super) fn run<W: StreamJob>(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    key: usize,
    is_long: bool,
    mut work: W,
) -> Result<Flow, Refusal> {
    let all = args.all();
    if is_long {
        let draft = cx.db.draft::<Stream>(&Key::new(all.get(key)))?;
        assert!(!draft.is_new(), "the stream is there");
        let request = all.to_request();
        return Ok(Flow::Job(Box::new(BulkEdit { request, key, draft, is_read: false, work })));
    }
    while work.read(all)? {}
    let name = Key::new(all.get(key));
    let (now, reply) = (cx.now, &mut cx.reply);
    let flow = cx.db.edit::<Stream, _>(&name, false, |edit| {
        while work.step(edit, all, now) {}
        work.reply(reply, edit.stream())
    })?;
    Ok(flow.expect("the stream is there"))
}

impl<W: StreamJob> Job for BulkEdit<W> {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let all = resp::Args::owned(&self.request);
        let key = Key::new(all.get(self.key));
        loop {
            if !self.is_read {
                self.is_read = !self.work.read(all)?;
            } else if !self.work.step(&mut self.draft.edit(cx.now), all, cx.now) {
                break;
            }
            if cx.preempt.must_yield() {
                return Ok(Step::More);
            }
        }
        let flow = self.work.reply(&mut cx.reply, self.draft.value());
        cx.db.install_draft(&key, std::mem::take(&mut self.draft));
        Ok(Step::Done(flow))
    }
}
