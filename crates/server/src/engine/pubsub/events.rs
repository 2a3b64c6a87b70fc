//! Keyspace events: publishes the events that this core's commands cause.
//!
//! The log of the shard is read after each command and after each step of a task. So an event is
//! sent before the next message of the same client, unless very many events happen at once. All
//! event channels have the same home core, so that a subscriber of several such channels receives
//! the events of a key in order. Events without subscribers are not sent to the home.

use super::super::core::Core;
use super::super::journal;
use super::super::state::pubsub::SubscriptionKind;
use super::super::state::pubsub::backlog::{Order, Sender};
use super::super::state::pubsub::events::EventClasses;
use super::super::state::pubsub::name::{EVENTS_HOME, Message, Name, Text};
use super::publish::Published;
use crate::listeners;
use darter_keyspace::{Act, Events, Name as KeyName, Read, Reader, Wants};
use std::rc::Rc;
use std::sync::Arc;

/// Records of the log whose events are published in one step: about 20 us.
const RECORDS_AT_ONCE: usize = 32;

impl Core {
    /// Sets the classes of events to publish.
    pub(crate) fn notify(&self, classes: EventClasses) {
        self.pubsub.wanted_events.set(classes);
        self.look_at_events();
    }

    /// Adds a reader of this core's log. It reads the records made from now on.
    pub fn join_log(&self, wants: Wants) -> Reader {
        self.is_logged.set(true);
        self.tx.home().shard.join(wants)
    }

    /// Starts or stops recording events. No events are recorded during loading.
    pub(crate) fn look_at_events(&self) {
        let wanted = self.pubsub.wanted_events.get();
        if wanted == self.pubsub.events.get() || self.hot.borrow().loading {
            return;
        }
        self.pubsub.events.set(wanted);
        let wants = wanted.is_on().then(|| Wants { misses: wanted.has(b'm'), ..Wants::EVENTS });
        let reader = match (self.pubsub.reader.get(), wants) {
            (Some(reader), Some(wants)) => {
                self.tx.home().shard.set_wants(reader, wants);
                Some(reader)
            }
            (Some(reader), None) => {
                self.tx.home().shard.leave(reader);
                None
            }
            (None, wants) => wants.map(|wants| self.join_log(wants)),
        };
        self.pubsub.reader.set(reader);
        let shard = &mut self.tx.home().shard;
        self.is_logged.set(shard.is_read());
        self.pubsub.has_recorded.set(reader.is_some_and(|reader| shard.has_unread(reader)));
        self.pubsub.hears_misses.set(wants.is_some_and(|wants| wants.misses));
    }

    /// Publishes the events, and sends the invalidations, of all changes since the last call.
    #[inline(always)]
    pub(crate) fn publish_events(self: &Rc<Self>) {
        if self.is_logged.get() {
            self.read_log();
        }
    }

    /// Like [`Core::publish_events`], at the end of a unit (a command, an EXEC, a script): the next
    /// record begins a new unit.
    #[inline(always)]
    pub(crate) fn publish_unit(self: &Rc<Self>) {
        if self.is_logged.get() {
            self.tx.home().shard.end_unit();
            self.read_log();
        }
    }

    /// Publishes a message to a channel, whichever core is its home. Returns the number of
    /// receivers.
    pub(crate) async fn publish_anywhere(self: &Rc<Self>, message: Message) -> usize {
        self.publish_events(); // The events of earlier changes go first.
        let home = message.channel.home(self.tx.cores());
        let publish = move |there: Rc<Self>| async move {
            match there.publish(message) {
                Published::To(count) => count,
                Published::Later(count) => count.await,
            }
        };
        self.run_on(home, publish).await
    }

    #[cold]
    fn read_log(self: &Rc<Self>) {
        self.publish_recorded();
        self.hear_touched();
        journal::record(self);
    }

    /// Publishes a portion of the recorded events. The rest waits; all wait while too many events
    /// are in flight.
    pub(super) fn publish_recorded(self: &Rc<Self>) {
        let Some(reader) = self.pubsub.reader.get() else { return };
        let classes = self.pubsub.events.get();
        let shared = &self.admin.shared;
        let wanted = classes.channels();
        let listened = shared.listeners.listen();
        let is_told = [0, 1].map(|kind| wanted[kind] && listened[kind]);
        for _ in 0..RECORDS_AT_ONCE {
            if shared.listeners.are_behind() {
                break;
            }
            let told = match self.tx.home().shard.read(reader) {
                Read::Next(record) => match &record.act {
                    Act::Key(key, _) | Act::Touched(key) | Act::Miss(key)
                        if is_told != [false; 2] =>
                    {
                        Some((record.database, key.clone(), record.events))
                    }
                    _ => None,
                },
                Read::End => break,
                Read::Lapsed(count) => unreachable!("{count} records were pinned"),
            };
            if let Some((database, key, events)) = told {
                self.publish_told(database, &key, events, is_told);
            }
        }
        self.pubsub.has_recorded.set(self.tx.home().shard.has_unread(reader));
    }

    fn publish_told(
        self: &Rc<Self>,
        database: usize,
        key: &KeyName,
        events: Events,
        [by_key, by_event]: [bool; 2],
    ) {
        let classes = self.pubsub.events.get();
        for event in events.iter().filter(|event| classes.has(event.class)) {
            if by_key {
                let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
                self.publish_event(&channel, event.name.as_bytes());
            }
            if by_event {
                let channel = format!("__keyevent@{database}__:{}", event.name);
                self.publish_event(channel.as_bytes(), key);
            }
        }
    }

    fn publish_event(self: &Rc<Self>, channel: &[u8], payload: &[u8]) {
        let weight = listeners::weight(channel.len() + payload.len());
        let (channel, payload) = (Name::from_bytes(channel), Text::Short(payload.into()));
        self.admin.shared.listeners.sent(weight);
        self.tell(EVENTS_HOME, move |home| home.publish_for(channel, payload, weight));
    }

    /// Runs on the home of event channels: publishes an event. No task waits for the number of
    /// receivers.
    fn publish_for(self: &Rc<Self>, channel: Name, payload: Text, weight: usize) {
        let publication = self.begin_publication(Arc::new(Message::new(
            SubscriptionKind::Channel,
            channel,
            payload,
        )));
        if publication.is_matched {
            self.event_published(weight);
        } else {
            let order = Order::Publish(publication, Sender::Event(weight));
            self.pubsub.backlog.borrow_mut().push(order);
        }
    }

    /// True if a message can be published or delivered now.
    pub(crate) fn has_messages(&self) -> bool {
        self.pubsub.has_work()
            || (self.pubsub.has_recorded() && !self.admin.shared.listeners.are_behind())
    }
}
