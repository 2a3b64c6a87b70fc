//! The shape *Edit*: changes more entries of a collection than fit a slice.
//!
//! A cut of the collection is edited in portions, and replaces the stored value at the end. Until
//! then, other writers of the key wait and readers see the previous value. Hashes have their own
//! bulk edit (`hash::edit`), because they may reply with the old values.
//!
//! Not here: changes of a few entries, which are made at once. See `unshare`.

use crate::prefetch::prefetch;
use crate::unshare::{KEY, MANY};
use darter_base::UnixMillis;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Collection, Draft, Key, Value};
use darter_resp::{self as resp, Request};
use std::sync::Arc;

/// The most changes in one portion.
const PORTION: usize = 96;

/// The most arguments whose entries are changed at once. Giving an entry a deadline takes twice the
/// work of adding or removing one: the entry grows, moves, and joins the list of deadlines.
pub(crate) fn args_at_once(gives_deadlines: bool) -> usize {
    if gives_deadlines { MANY } else { ENTRIES_AT_ONCE }
}

/// True if changing the named entries takes more than a slice, either by their number or by their
/// bytes, which must be hashed and copied.
#[inline]
pub(crate) fn is_long(args: Args<'_>, args_max: usize, bytes_max: usize) -> bool {
    if args.left() > args_max {
        return true;
    }
    let mut bytes = 0;
    (args.position()..args.all().len()).any(|at| {
        bytes += args.all().arg(at).len();
        bytes > bytes_max
    })
}

/// The editor of the collection type `V`.
pub(crate) type Edit<'a, V> = <V as Collection>::Edit<'a>;

/// A change applied to each named entry, and its state so far.
pub(crate) trait Change: Send + 'static {
    /// The collection.
    type Value: Collection;

    /// Changes one entry.
    fn apply(&mut self, edit: &mut Edit<'_, Self::Value>, name: &[u8], now: UnixMillis);

    /// True when the collection may have changed.
    fn has_changed(&self) -> bool;

    /// Writes the reply, once all entries are changed.
    fn reply(&mut self, cx: &mut Cx<'_>) -> Flow;
}

/// A bulk edit in progress.
pub(crate) struct BulkEdit<C: Change> {
    request: Arc<Request>,
    /// Index of the next entry.
    next: usize,
    /// The new collection.
    draft: Draft<C::Value>,
    change: C,
}

impl<C: Change> BulkEdit<C> {
    /// Changes the entries of all remaining arguments.
    pub(crate) fn start(args: Args<'_>, draft: Draft<C::Value>, change: C) -> Flow {
        let (request, next) = (args.all().to_request(), args.position());
        Flow::Job(Box::new(Self { request, next, draft, change }))
    }
}

impl<C: Change> Job for BulkEdit<C> {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let all = resp::Args::owned(&self.request);
        let mut args = Args::new(all, self.next);
        for done in 0..PORTION {
            if let Some(ahead) = self.draft.value().ahead() {
                prefetch(done, ahead, args, 1);
            }
            let Some(name) = args.next() else { break };
            self.change.apply(&mut self.draft.edit(cx.now), name, cx.now);
            // Each change may have copied a segment.
            if cx.preempt.must_yield() {
                break;
            }
        }
        self.next = args.position();
        if args.left() > 0 {
            return Ok(Step::More);
        }
        if self.change.has_changed() {
            cx.db.install_draft(&Key::new(all.get(KEY)), std::mem::take(&mut self.draft));
        }
        Ok(Step::Done(self.change.reply(cx)))
    }
}
