//! Changes of consumer groups, and their records in the log.
//!
//! Reading, claiming and acknowledging are recorded but publish no event. Changes of groups and of
//! consumers do both.

use super::value::{StreamChange, StreamEdit};
use darter_keyspace::{Event, Name, Tells};
use darter_structs::groups::{Group, Pending};
use darter_structs::stream::StreamId;

const XGROUP_CREATE: &Event = &Event::new("xgroup-create", b't');
const XGROUP_SETID: &Event = &Event::new("xgroup-setid", b't');
const XGROUP_DESTROY: &Event = &Event::new("xgroup-destroy", b't');
const XGROUP_CREATECONSUMER: &Event = &Event::new("xgroup-createconsumer", b't');
const XGROUP_DELCONSUMER: &Event = &Event::new("xgroup-delconsumer", b't');

/// A change of a consumer group, as recorded in the log.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum GroupChange {
    /// Creates the group.
    Create { last: StreamId, read: Option<u64> },
    /// Removes the group.
    Destroy,
    /// Sets the group's position.
    Position { last: StreamId, read: Option<u64> },
    /// Creates the consumer.
    CreateConsumer { name: Name, seen_ms: u64 },
    /// Removes the consumer and its pending entries.
    RemoveConsumer { name: Name },
    /// Sets when the consumer was last seen and active.
    See { name: Name, seen_ms: u64, active_ms: Option<u64> },
    /// Makes the entry pending, which may be deleted.
    Deliver {
        id: StreamId,
        delivered_ms: u64,
        times: u64,
        consumer: Option<Name>,
        is_deleted: bool,
    },
    /// Removes the entry from the pending ones.
    Acknowledge { id: StreamId },
}

/// Pending entries that are removed in one step: they may be at random places.
const RELEASED_AT_ONCE: usize = 8;

impl StreamEdit<'_> {
    fn record_group(
        &mut self,
        group: &[u8],
        tells: Tells<'_>,
        change: impl FnOnce() -> GroupChange,
    ) {
        self.recorder
            .record(tells, || StreamChange::Group { group: Name::from(group), change: change() });
    }

    /// Creates a group. Returns false if there is one with this name.
    pub(super) fn create_group(&mut self, group: &[u8], last: StreamId, read: Option<u64>) -> bool {
        let is_new = self.stream.groups.create(group, last, read);
        if is_new {
            self.record_group(group, &[XGROUP_CREATE], || GroupChange::Create { last, read });
        }
        is_new
    }

    /// Removes a group and its pending entries. Returns false if there is none.
    pub(super) fn destroy_group(&mut self, group: &[u8]) -> bool {
        let was_there = self.stream.groups.destroy(group);
        if was_there {
            self.record_group(group, &[XGROUP_DESTROY], || GroupChange::Destroy);
        }
        was_there
    }

    /// [`StreamEdit::record_group`] for a change that the command counts itself: a read of any size
    /// counts as one change.
    fn record_uncounted(
        &mut self,
        group: &[u8],
        tells: Tells<'_>,
        change: impl FnOnce() -> GroupChange,
    ) {
        let change = || StreamChange::Group { group: Name::from(group), change: change() };
        self.recorder.record_death(tells, change);
    }

    /// Sets a group's position as requested by a command.
    pub(super) fn set_position(&mut self, group: &[u8], last: StreamId, read: Option<u64>) {
        self.position(group, last, read, &[XGROUP_SETID]);
        self.count(1);
    }

    /// Moves a group's position after entries were read. The command counts the change.
    pub(super) fn advance_group(&mut self, group: &[u8], last: StreamId, read: Option<u64>) {
        self.position(group, last, read, &[]);
    }

    fn position(&mut self, group: &[u8], last: StreamId, read: Option<u64>, tells: Tells<'_>) {
        self.stream.groups.edit(group, |group| group.set_position(last, read));
        self.record_uncounted(group, tells, || GroupChange::Position { last, read });
    }

    /// Creates a consumer. Returns its number, or `None` if there is one with this name.
    pub(super) fn create_consumer(&mut self, group: &[u8], name: &[u8], now: u64) -> Option<u64> {
        let number = self.stream.groups.edit(group, |group| group.create_consumer(name, now))??;
        let change = || GroupChange::CreateConsumer { name: Name::from(name), seen_ms: now };
        self.record_group(group, &[XGROUP_CREATECONSUMER], change);
        Some(number)
    }

    /// The number of the consumer with this name, which is created if it is absent.
    pub(super) fn consumer(&mut self, group: &[u8], name: &[u8], now: u64) -> u64 {
        let found = self.group(group).and_then(|group| group.consumer(name));
        let found = found.map(darter_structs::groups::Consumer::number);
        found.or_else(|| self.create_consumer(group, name, now)).expect("the group is there")
    }

    /// The current state of the group with this name.
    pub(super) fn group(&self, name: &[u8]) -> Option<&Group> {
        self.stream.groups.get(name)
    }

    /// Removes some pending entries of a consumer, and the consumer itself once none is left.
    /// Returns true while some are left.
    pub(super) fn remove_consumer(&mut self, group: &[u8], number: u64) -> bool {
        let groups = &mut self.stream.groups;
        let released = groups.edit(group, |group| group.release(number, RELEASED_AT_ONCE));
        if released == Some(RELEASED_AT_ONCE) {
            return true;
        }
        let removed = groups.edit(group, |group| {
            let name = group.numbered(number).map(|consumer| Name::from(consumer.name()));
            group.remove_consumer(number);
            name
        });
        let Some(name) = removed.flatten() else { return false };
        let change = || GroupChange::RemoveConsumer { name };
        self.record_group(group, &[XGROUP_DELCONSUMER], change);
        false
    }

    /// Records that a consumer was seen, and whether it received an entry.
    pub(super) fn see(&mut self, group: &[u8], number: u64, now: u64, got: bool) {
        let Some(consumer) = self.group(group).and_then(|group| group.numbered(number)) else {
            return;
        };
        let active_ms = if got { Some(now) } else { consumer.active_ms() };
        let name = Name::from(consumer.name());
        self.stream.groups.edit(group, |group| group.set_times(number, now, active_ms));
        self.record_uncounted(group, &[], || GroupChange::See { name, seen_ms: now, active_ms });
    }

    /// Makes an entry pending, or updates its delivery. The command counts the change.
    pub(super) fn deliver(&mut self, group: &[u8], pending: &Pending) {
        let consumer = self.stream.groups.edit(group, |group| {
            group.put(pending);
            let consumer = pending.consumer.and_then(|number| group.numbered(number));
            consumer.map(|consumer| Name::from(consumer.name()))
        });
        let Pending { id, delivered_ms, times, .. } = *pending;
        let consumer = consumer.flatten();
        let change =
            |is_deleted| GroupChange::Deliver { id, delivered_ms, times, consumer, is_deleted };
        let StreamEdit { stream, recorder } = self;
        recorder.record_death(&[], || StreamChange::Group {
            group: Name::from(group),
            change: change(!stream.entries().contains(id)),
        });
    }

    /// Removes a pending entry. Returns false if the entry is not pending.
    pub(super) fn acknowledge(&mut self, group: &[u8], id: StreamId) -> bool {
        let old = self.stream.groups.edit(group, |group| group.remove(id)).flatten();
        if old.is_some() {
            self.record_group(group, &[], || GroupChange::Acknowledge { id });
        }
        old.is_some()
    }

    /// Applies a recorded change.
    pub(super) fn apply_to_group(&mut self, group: &[u8], change: &GroupChange) {
        match change {
            GroupChange::Create { last, read } => _ = self.create_group(group, *last, *read),
            GroupChange::Destroy => _ = self.destroy_group(group),
            GroupChange::Position { last, read } => self.advance_group(group, *last, *read),
            GroupChange::CreateConsumer { name, seen_ms } => {
                self.create_consumer(group, name, *seen_ms);
            }
            GroupChange::RemoveConsumer { name } => {
                if let Some(number) = self.number(group, name) {
                    while self.remove_consumer(group, number) {}
                }
            }
            GroupChange::See { name, seen_ms, active_ms } => {
                if let Some(number) = self.number(group, name) {
                    let (seen_ms, active_ms) = (*seen_ms, *active_ms);
                    let times = |group: &mut Group| group.set_times(number, seen_ms, active_ms);
                    self.stream.groups.edit(group, times);
                }
            }
            GroupChange::Deliver { id, delivered_ms, times, consumer, .. } => {
                let consumer = consumer.as_ref().and_then(|name| self.number(group, name));
                let (id, delivered_ms, times) = (*id, *delivered_ms, *times);
                self.deliver(group, &Pending { id, delivered_ms, times, consumer });
            }
            GroupChange::Acknowledge { id } => _ = self.acknowledge(group, *id),
        }
    }

    fn number(&self, group: &[u8], name: &[u8]) -> Option<u64> {
        let consumer = self.group(group)?.consumer(name)?;
        Some(consumer.number())
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::Stream;
    use super::*;
    use darter_keyspace::Draft;

    #[test]
    fn removing_a_missing_consumer_or_group_ends_at_once() {
        let mut draft = Draft::<Stream>::default();
        let mut edit = draft.edit(1);
        assert!(!edit.remove_consumer(b"g", 1));
        edit.create_group(b"g", StreamId::MIN, None);
        assert!(!edit.remove_consumer(b"g", 1));
        let number = edit.create_consumer(b"g", b"c", 1).expect("it is new");
        assert!(!edit.remove_consumer(b"g", number) && !edit.remove_consumer(b"g", number));
    }
}
