//! Keyspace events: what the effects of this core's commands tell of is published.
//!
//! The log of the shard is read after each command, and after each step of a task: so an event
//! comes before whatever the same client publishes next. All channels of events have one home: who
//! subscribes to several of them sees the events of a key in their order. What nobody can receive is
//! not sent there.

use super::super::core::Core;
use super::super::state::pubsub::Kind;
use super::super::state::pubsub::events::EventClasses;
use super::super::state::pubsub::name::{Name, Text};
use darter_keyspace::{Act, Record};
use std::rc::Rc;

impl Core {
    /// These events are published from now on.
    pub(crate) fn notify(&self, classes: EventClasses) {
        self.pubsub.wanted_events.set(classes);
        self.look_at_events();
    }

    /// Begins to record what is published, or stops; while a file is being loaded, nothing is.
    pub(crate) fn look_at_events(&self) {
        let wanted = self.pubsub.wanted_events.get();
        if wanted == self.pubsub.events.get() || self.hot.borrow().loading {
            return;
        }
        let was_on = self.pubsub.events.replace(wanted).is_on();
        let shard = &mut self.tx.home().shard;
        if wanted.is_on() != was_on {
            shard.listen(wanted.is_on());
        }
        shard.hear_misses(wanted.has(b'm'));
    }

    /// Publishes what happened since the last time, and tells those who track.
    #[inline]
    pub(crate) fn publish_events(self: &Rc<Self>) {
        let classes = self.pubsub.events.get();
        if classes.is_on() {
            self.publish_records(classes);
        }
        self.hear_touched();
    }

    #[cold]
    fn publish_records(self: &Rc<Self>, classes: EventClasses) {
        let records = self.tx.home().shard.take_records();
        let listened = self.admin.shared.listeners.listen();
        for Record { database, act, events, .. } in &records {
            let (Act::Key(key, _) | Act::Miss(key)) = act else { continue };
            for event in events.iter().filter(|event| classes.has(event.class)) {
                let [by_key, by_event] = classes.channels();
                if by_key && listened[0] {
                    let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
                    self.publish_event(&channel, event.name.as_bytes());
                }
                if by_event && listened[1] {
                    let channel = format!("__keyevent@{database}__:{}", event.name);
                    self.publish_event(channel.as_bytes(), key);
                }
            }
        }
    }

    fn publish_event(self: &Rc<Self>, channel: &[u8], payload: &[u8]) {
        let (channel, payload) = (Name::from_bytes(channel), Text::Short(payload.into()));
        let home = channel.home(self.tx.cores());
        self.tell(home, move |home| {
            _ = home.publish(Kind::Channel, channel, payload); // Nobody waits for the count.
        });
    }
}
