//! The handling of pending entries when their entry of the stream is deleted or trimmed: KEEPREF,
//! DELREF, ACKED.

use super::trim::Trim;
use super::value::{Stream, StreamEdit};
use super::work::StreamJob;
use darter_command::{Args, Flow};
use darter_resp::{self as resp, Reply};
use darter_structs::stream::StreamId;

/// Groups, or pending entries of a group, that are visited in one step.
const LOOKED_AT_ONCE: usize = 16;

/// The treatment of references to a deleted entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Refs {
    /// The references stay.
    #[default]
    Keep,
    /// The references are removed.
    Delete,
    /// An entry is deleted only if all groups have read and acknowledged it.
    Acked,
}

impl Refs {
    /// Takes one of the three words.
    pub(super) fn take(args: &mut Args<'_>) -> Option<Self> {
        let all = [("KEEPREF", Self::Keep), ("DELREF", Self::Delete), ("ACKED", Self::Acked)];
        all.into_iter().find(|(word, _)| args.option(word)).map(|(_, refs)| refs)
    }
}

/// The result of searching the groups for references to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Groups from this index on have not been searched.
    More(usize),
    /// No group needs the entry, or it is deleted in any case.
    Free,
    /// A group refers to the entry.
    Held,
}

/// Searches the groups from this index on for an entry, and removes references if so requested.
/// Subtracts visits from `looks`.
pub(super) fn look(
    edit: &mut StreamEdit<'_>,
    refs: Refs,
    id: StreamId,
    from: usize,
    looks: &mut usize,
) -> Found {
    let mut index = from;
    while refs != Refs::Keep
        && let Some(group) = edit.stream().groups().at(index)
    {
        if *looks == 0 {
            return Found::More(index);
        }
        *looks -= 1;
        let is_pending = group.get(id).is_some();
        if refs == Refs::Acked && (is_pending || group.last() < id) {
            return Found::Held;
        }
        if is_pending {
            let name = group.name().to_vec();
            edit.acknowledge(&name, id);
        }
        index += 1;
    }
    Found::Free
}

/// Trimming that regards references, in steps.
pub(super) struct Trimming {
    trim: Trim,
    refs: Refs,
    /// Entries still to remove, and entries removed.
    left: usize,
    removed: usize,
    stage: RefsStage,
}

/// The next step.
#[derive(Clone, Copy, Debug)]
enum RefsStage {
    Begin,
    /// Removes pending entries of this group from `next` to `end`.
    Forget {
        group: usize,
        next: StreamId,
        end: Option<StreamId>,
    },
    /// Asks this group how far it has read; the groups before it have read everything up to `got`.
    Ask {
        group: usize,
        got: StreamId,
    },
    /// Searches the groups from this index on for the first entry from `next` on.
    Sift {
        next: StreamId,
        got: StreamId,
        group: usize,
    },
}

impl Trimming {
    pub(super) fn new(trim: Trim, refs: Refs) -> Self {
        Self { trim, refs, left: 0, removed: 0, stage: RefsStage::Begin }
    }

    /// True if trimming may take more than a slice once `added` entries are added.
    pub(super) fn is_long(&self, stream: &Stream, added: usize) -> bool {
        let (entries, groups) = (stream.entries(), stream.groups());
        if self.refs == Refs::Acked {
            return entries.len().saturating_add(added).saturating_mul(groups.len())
                > LOOKED_AT_ONCE;
        }
        let Some(first) = entries.first().filter(|_| groups.len() <= LOOKED_AT_ONCE) else {
            return groups.len() > LOOKED_AT_ONCE;
        };
        // Entries deleted in between may be pending, too.
        let count = self.trim.count_with(entries, added);
        let end = entries.range(count..count + 1).next().map(|entry| entry.id());
        let pending = groups.iter().map(|group| {
            let end = end.map_or(group.pending_len(), |end| group.rank_of(end));
            end.saturating_sub(group.rank_of(first))
        });
        pending.sum::<usize>() > LOOKED_AT_ONCE
    }

    /// Does a part of the work. Returns true while more is left.
    pub(super) fn step(&mut self, edit: &mut StreamEdit<'_>) -> bool {
        match self.stage {
            RefsStage::Begin => self.begin(edit),
            RefsStage::Forget { group, next, end } => self.forget(edit, group, next, end),
            RefsStage::Ask { group, got } => self.ask(edit, group, got),
            RefsStage::Sift { next, got, group } => self.sift(edit, next, got, group),
        }
    }

    fn begin(&mut self, edit: &mut StreamEdit<'_>) -> bool {
        let entries = edit.stream().entries();
        self.left = self.trim.count(entries);
        let end = entries.range(self.left..self.left + 1).next().map(|entry| entry.id());
        let Some(next) = entries.first().filter(|_| self.left > 0) else { return false };
        self.stage = match self.refs {
            Refs::Acked if !edit.stream().groups().is_empty() => {
                RefsStage::Ask { group: 0, got: StreamId::MAX }
            }
            Refs::Delete => RefsStage::Forget { group: 0, next, end },
            _ => return self.cut(edit),
        };
        true
    }

    /// Removes all entries that are still to be removed at the front.
    fn cut(&mut self, edit: &mut StreamEdit<'_>) -> bool {
        edit.trim_beside(self.left);
        self.removed = self.left;
        false
    }

    fn forget(
        &mut self,
        edit: &mut StreamEdit<'_>,
        group: usize,
        next: StreamId,
        end: Option<StreamId>,
    ) -> bool {
        let Some(found) = edit.stream().groups().at(group) else { return self.cut(edit) };
        let (name, rank) = (found.name().to_vec(), found.rank_of(next));
        let pending = found.pending(rank..rank + LOOKED_AT_ONCE).map(|pending| pending.id);
        let ids: Vec<_> = pending.take_while(|id| end.is_none_or(|end| *id < end)).collect();
        // References to entries that were deleted earlier stay.
        for id in &ids {
            if edit.stream().entries().contains(*id) {
                edit.acknowledge(&name, *id);
            }
        }
        let behind = ids.last().and_then(|id| id.next());
        self.stage = match behind.filter(|_| ids.len() == LOOKED_AT_ONCE) {
            Some(next) => RefsStage::Forget { group, next, end },
            None => {
                let first = edit.stream().entries().first();
                RefsStage::Forget { group: group + 1, next: first.unwrap_or_default(), end }
            }
        };
        true
    }

    fn ask(&mut self, edit: &StreamEdit<'_>, group: usize, mut got: StreamId) -> bool {
        let (stream, end) = (edit.stream(), group + LOOKED_AT_ONCE);
        for group in (group..end).filter_map(|index| stream.groups().at(index)) {
            got = got.min(group.last());
        }
        self.stage = match stream.entries().first() {
            Some(next) if end >= stream.groups().len() => RefsStage::Sift { next, got, group: 0 },
            Some(_) => RefsStage::Ask { group: end, got },
            None => return false,
        };
        true
    }

    fn sift(
        &mut self,
        edit: &mut StreamEdit<'_>,
        mut next: StreamId,
        got: StreamId,
        mut group: usize,
    ) -> bool {
        let mut looks = LOOKED_AT_ONCE;
        while looks > 0 {
            let rank = edit.stream().entries().rank_of(next);
            let entry = edit.stream().entries().range(rank..rank + 1).next();
            let Some(id) = entry.map(|entry| entry.id()) else { return false };
            if id > got || !self.trim.concerns(id) {
                return false;
            }
            match look(edit, Refs::Acked, id, group, &mut looks) {
                Found::More(index) => (next, group) = (id, index),
                found => {
                    let Some(behind) = id.next() else { return false };
                    (next, group) = (behind, 0);
                    if found == Found::Free {
                        edit.trim_one(id);
                        (self.left, self.removed) = (self.left - 1, self.removed + 1);
                    }
                    if self.left == 0 {
                        return false;
                    }
                }
            }
        }
        self.stage = RefsStage::Sift { next, got, group };
        true
    }
}

impl StreamJob for Trimming {
    fn step(&mut self, edit: &mut StreamEdit<'_>, _: resp::Args<'_>, _: u64) -> bool {
        let more = Self::step(self, edit);
        if !more {
            edit.count(self.removed);
        }
        more
    }

    fn reply(&mut self, reply: &mut Reply<'_>, _: &Stream) -> Flow {
        reply.count(self.removed);
        Flow::Done
    }
}
