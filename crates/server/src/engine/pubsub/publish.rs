//! Runs on the home of a channel: counts the subscribers that a message has, and sends it to their
//! cores.

use super::super::core::Core;
use super::super::state::pubsub::SubscriptionKind;
use super::super::state::pubsub::backlog::{
    Order, Publication, Sender, SubscriptionChange, weight,
};
use super::super::state::pubsub::deliveries::{Delivery, DeliveryItem};
use super::super::state::pubsub::name::{EVENTS_HOME, Message, Name, Text};
use super::super::state::pubsub::registry::Counts;
use crate::listeners;
use darter_base::glob::{Case, Walk};
use darter_tx::CoreId;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// The maximal number of patterns matched in one portion.
const PATTERNS_AT_ONCE: usize = 64;
const STEPS_AT_ONCE: usize = 16 * 1024;

/// The result of publishing a message.
pub(crate) enum Published {
    /// The message was sent to this number of clients.
    To(usize),
    /// The message waits in the queue. The future returns the number of receivers.
    Later(Pin<Box<dyn Future<Output = usize>>>),
}

impl Core {
    /// Publishes a message to a channel that has this core as its home.
    pub(crate) fn publish(self: &Rc<Self>, message: Message) -> Published {
        let message = Arc::new(message);
        if self.is_logged.get() {
            self.tx.home().shard.record_act(Arc::<Message>::clone(&message));
        }
        let publication = self.begin_publication(message);
        if publication.is_matched {
            return Published::To(publication.receivers);
        }
        let (ticket, count) = self.tx.ticket();
        let order = Order::Publish(publication, Sender::Waits(ticket));
        self.pubsub.backlog.borrow_mut().push(order);
        Published::Later(Box::pin(count))
    }

    /// Publishes the first portion of a message. If other messages wait, the message is queued
    /// instead.
    pub(super) fn begin_publication(self: &Rc<Self>, message: Arc<Message>) -> Publication {
        let mut publication = Publication::new(message);
        let is_turn = {
            let backlog = self.pubsub.backlog.borrow();
            backlog.is_empty() && !backlog.is_full()
        };
        if is_turn {
            self.publish_portion(&mut publication);
        }
        publication
    }

    /// The number of clients that would receive a message to a channel now.
    pub(crate) async fn count_receivers(
        self: &Rc<Self>,
        kind: SubscriptionKind,
        channel: Name,
    ) -> usize {
        let home = channel.home(self.tx.cores());
        let count = move |there: Rc<Self>| async move {
            let message = Message::new(kind, channel, Text::Short([].into()));
            let mut publication = Publication::new(Arc::new(message));
            while !publication.is_matched {
                there.match_some(&mut publication, |_, _, _| {});
                there.tx.pause().await;
            }
            publication.receivers
        };
        self.run_on(home, count).await
    }

    /// Sends a portion of a message: first to the channel's subscribers, then to those of a few
    /// patterns at a time.
    fn publish_portion(self: &Rc<Self>, publication: &mut Publication) {
        let message = Arc::clone(&publication.message);
        let mut receivers: Vec<(CoreId, usize, Delivery)> = Vec::new();
        self.match_some(publication, |pattern, core, count| {
            let delivery = delivery_to(&mut receivers, core, count, &message);
            match pattern {
                None => delivery.direct = true,
                Some(name) => delivery.patterns.push(name.clone()),
            }
        });
        for (core, count, mut delivery) in receivers {
            delivery.weight = weight(&message, count);
            self.pubsub.backlog.borrow_mut().sent(core, delivery.weight);
            self.send_item(core, DeliveryItem::Message(Box::new(delivery)));
        }
    }

    /// Sends an item to a core, after all earlier items.
    fn send_item(self: &Rc<Self>, core: CoreId, item: DeliveryItem) {
        let home = self.id();
        self.tell(core, move |there| there.pubsub.deliveries.borrow_mut().push(home, item));
    }

    /// Changes the subscriber counts of names that have this core as their home, for clients of
    /// core `from`.
    pub(super) fn change_counts(self: &Rc<Self>, from: CoreId, change: SubscriptionChange) {
        let is_turn = self.pubsub.backlog.borrow().is_empty();
        if is_turn {
            self.count(from, change);
        } else {
            self.pubsub.backlog.borrow_mut().push(Order::Change(from, change));
        }
    }

    fn count(self: &Rc<Self>, from: CoreId, change: SubscriptionChange) {
        let mut registry = self.pubsub.registry.borrow_mut();
        for name in &change.names {
            match change.joins {
                true => registry.add(change.kind, name, from),
                false => registry.take(change.kind, name, from),
            }
            if self.id() == EVENTS_HOME {
                let receives = match change.kind {
                    SubscriptionKind::Channel => listeners::are_events_of(name.bytes()),
                    SubscriptionKind::Pattern => listeners::may_match_events(name.bytes()),
                    SubscriptionKind::Shard => [false; 2],
                };
                self.admin.shared.listeners.count(receives, change.joins);
            }
        }
        drop(registry);
        if change.ticket.is_some() {
            self.send_item(from, DeliveryItem::Counted(change));
        }
    }

    /// Records that core `by` has delivered messages of this weight.
    pub(super) fn note_delivered(&self, by: CoreId, weight: usize) {
        self.pubsub.backlog.borrow_mut().delivered(by, weight);
    }

    /// Handles queued orders, one by one, until the slice is over.
    pub(super) fn publish_waiting(self: &Rc<Self>) {
        while self.pubsub.backlog.borrow().can_go_on() {
            let order = self.pubsub.backlog.borrow_mut().take();
            match order {
                Some(Order::Change(from, change)) => self.count(from, change),
                Some(Order::Publish(publication, sender)) => self.publish_some(publication, sender),
                None => return,
            }
            if self.slice_is_over() {
                return;
            }
        }
    }

    /// Sends a portion of a queued message. The rest waits; all of it waits while a core has too
    /// much to deliver.
    fn publish_some(self: &Rc<Self>, mut publication: Publication, sender: Sender) {
        self.publish_portion(&mut publication);
        match sender {
            _ if !publication.is_matched => {
                self.pubsub.backlog.borrow_mut().put_back(Order::Publish(publication, sender));
            }
            Sender::Waits(ticket) => self.tx.complete(ticket, Box::new(publication.receivers)),
            Sender::Event(weight) => self.event_published(weight),
        }
    }

    /// Calls `found` for each core with subscribers, with their number. Subscribers of the channel
    /// are counted only in the first portion of a message, and those of matching patterns a few
    /// patterns at a time.
    fn match_some(
        &self,
        publication: &mut Publication,
        mut found: impl FnMut(Option<&Name>, CoreId, usize),
    ) {
        let registry = self.pubsub.registry.borrow();
        let Publication { message, receivers, after, walk, is_begun, is_matched } = publication;
        let mut tell = |pattern: Option<&Name>, counts: &Counts| {
            for (core, count) in counts.by_core() {
                *receivers += count;
                found(pattern, core, count);
            }
        };
        if !std::mem::replace(is_begun, true)
            && let Some(counts) = registry.counts(message.kind, &message.channel)
        {
            tell(None, counts);
        }
        if message.kind == SubscriptionKind::Shard || registry.len(SubscriptionKind::Pattern) == 0 {
            *is_matched = true; // Patterns do not match shard channels.
            return;
        }
        let (channel, mut budget) = (message.channel.bytes(), STEPS_AT_ONCE);
        let last = after.take();
        let mut patterns = registry.names_after(SubscriptionKind::Pattern, last.as_ref());
        let mut seen = last.as_ref();
        for (name, counts) in patterns.by_ref().take(PATTERNS_AT_ONCE) {
            // Stored state of a pattern that was removed since is dropped.
            let begun = walk.take().filter(|(of, _)| of == name);
            let mut this = begun.map_or_else(Walk::default, |(_, walk)| walk);
            match this.go_on(name.bytes(), channel, Case::Sensitive, &mut budget) {
                Some(true) => tell(Some(name), counts),
                Some(false) => {}
                None => {
                    *walk = Some((name.clone(), this));
                    break;
                }
            }
            seen = Some(name);
        }
        *is_matched = walk.is_none() && patterns.next().is_none();
        *after = seen.cloned();
    }

    /// Removes a published event from the count of events in flight. Wakes the waiting writers if
    /// few events are left.
    pub(super) fn event_published(self: &Rc<Self>, weight: usize) {
        if self.admin.shared.listeners.published(weight) {
            self.wake_waiting();
        }
    }
}

/// The delivery of the message to `core`, extended by `count` receivers.
fn delivery_to<'a>(
    receivers: &'a mut Vec<(CoreId, usize, Delivery)>,
    core: CoreId,
    count: usize,
    message: &Arc<Message>,
) -> &'a mut Delivery {
    let at = receivers.iter().position(|(other, ..)| *other == core).unwrap_or_else(|| {
        let message = Arc::clone(message);
        let (direct, patterns, frames) = (false, Vec::new(), [None, None]);
        let delivery =
            Delivery { message, direct, patterns, weight: 0, stage: 0, after: 0, frames };
        receivers.push((core, 0, delivery));
        receivers.len() - 1
    });
    receivers[at].1 += count;
    &mut receivers[at].2
}
