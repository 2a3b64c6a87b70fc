//! The shape *Edit*: changes of too many entries of a collection for a slice.
//!
//! A cut of the collection is edited aside in portions, and installed at the end. Writers of the
//! key wait; readers see the previous value. Hashes have their own (`hash::edit`), as their replies
//! may be the old values.
//!
//! Not here: changes of so few entries that they are made at once. See `unshare`.

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

/// The most arguments whose entries are changed at once. An entry that gets a deadline grows by it
/// and moves, and joins the list of next deaths: twice the work of adding or removing one.
pub(crate) fn args_at_once(gives_deadlines: bool) -> usize {
    if gives_deadlines { MANY } else { ENTRIES_AT_ONCE }
}

/// True when the named entries take more than a slice: by the number of their arguments, or by
/// their bytes, which must be hashed and copied.
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

/// The editor of a `V`.
pub(crate) type Edit<'a, V> = <V as Collection>::Edit<'a>;

/// A change of entries, and its state so far.
pub(crate) trait Change: Send + 'static {
    /// The collection.
    type Value: Collection;

    /// Changes one entry.
    fn apply(&mut self, edit: &mut Edit<'_, Self::Value>, name: &[u8], now: UnixMillis);

    /// True when the collection may have changed.
    fn has_changed(&self) -> bool;

    /// Replies, once all entries are done.
    fn reply(&mut self, cx: &mut Cx<'_>) -> Flow;
}

/// A change in progress.
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
            // Each may have copied a segment.
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
