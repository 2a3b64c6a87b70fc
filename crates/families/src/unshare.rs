//! Copying in advance: how many entries of a value are changed at once while cuts of it are being
//! read.
//!
//! A change copies the segment that it touches if a snapshot shares the segment. The first change
//! copies even more. A hundred changes copy more than one slice allows, but they must take effect
//! together. Clients cannot see whether a segment was copied. So all copies are made first, in
//! slices if necessary. Then all changes are made at once, without any copy.
//!
//! Not here: changes of many entries, which are made in a copy of the value.

use crate::prefetch::BATCH;
use arrayvec::ArrayVec;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Key, Touch, Type};
use darter_resp::{self as resp, Request};
use std::sync::Arc;

/// Up to this many changes are made without copies in advance.
const FEW: usize = 4;
/// More changes than these wait for the next slice if checking their places took this one: in a
/// table that does not fit the caches, each change costs several misses.
pub(crate) const MANY: usize = 128;
/// New cuts may be taken while the copies for old ones are made; the job restarts this often.
const AGAIN_MAX: usize = 3;
/// The index of the key in all commands that change entries.
pub(crate) const KEY: usize = 1;

/// A change of several entries of one value, each named by an argument.
pub(crate) trait EntryEdit: Copy + Send + 'static {
    /// Arguments that an entry takes: its name is the first.
    fn width(self) -> usize {
        1
    }

    /// The type of value that it changes, and which entries of it.
    fn touches(self) -> (&'static Type, Touch);

    /// Copies what the next `entries` of the arguments share with cuts, until the slice is over:
    /// then returns how many are done. A type whose entries have no names decides for itself.
    fn copy(self, cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>, entries: usize) -> Option<usize> {
        let (all, first) = (args.all(), args.position());
        let names = (first..all.len()).step_by(self.width()).take(entries);
        let batch: ArrayVec<&[u8], BATCH> = names.map(|at| all.get(at)).collect();
        cx.db.unshare(key, self.touches(), &batch, cx.preempt)
    }

    /// Changes all entries that are left among the arguments, and replies.
    fn run(self, cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>) -> Result<Flow, Refusal>;
}

/// Runs `edit`: at once if this slice suffices for the copies.
pub(crate) fn run<E: EntryEdit>(
    cx: &mut Cx<'_>,
    key: &Key<'_>,
    args: Args<'_>,
    edit: E,
) -> Result<Flow, Refusal> {
    let all = args.all();
    if args.left() <= FEW * edit.width() {
        return edit.run(cx, key, args);
    }
    let is_many = args.left() > MANY * edit.width();
    let next = copy(cx, key, args, edit);
    // With nothing to copy, checking very many was half of the work, and used up the slice.
    let first = args.position();
    match next.or_else(|| (is_many && cx.preempt.must_yield()).then_some(first)) {
        None => edit.run(cx, key, args),
        Some(next) => {
            let request = all.to_request();
            Ok(Flow::Job(Box::new(Unsharing { edit, request, first, next, again: 0 })))
        }
    }
}

/// Copies what the remaining entries share with cuts. `None`: all of it; otherwise the slice is
/// over, and this is the position of the next entry.
fn copy<E: EntryEdit>(cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>, edit: E) -> Option<usize> {
    let (all, width) = (args.all(), edit.width());
    let mut next = args.position();
    while next < all.len() {
        let batch = BATCH.min((all.len() - next).div_ceil(width));
        if let Some(done) = edit.copy(cx, key, Args::new(all, next), batch) {
            return Some(next + done * width);
        }
        next += batch * width;
    }
    None
}

/// An edit that waits for its copies.
struct Unsharing<E> {
    edit: E,
    request: Arc<Request>,
    /// Index of the first entry.
    first: usize,
    /// Index of the next entry to copy for.
    next: usize,
    /// How often it has restarted.
    again: usize,
}

impl<E: EntryEdit> Job for Unsharing<E> {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let all = resp::Args::owned(&self.request);
        let key = Key::new(all.get(KEY));
        let begins = self.next == self.first;
        if let Some(next) = copy(cx, &key, Args::new(all, self.next), self.edit) {
            self.next = next;
            return Ok(Step::More);
        }
        if begins || self.again == AGAIN_MAX {
            return self.edit.run(cx, &key, Args::new(all, self.first)).map(Step::Done);
        }
        // Usually the slice is over. The next step checks that nothing has changed, and makes the
        // changes.
        (self.next, self.again) = (self.first, self.again + 1);
        Ok(Step::More)
    }
}
