//! At the home of a channel: counts the subscribers of a message, and sends it to their cores.

use super::super::core::Core;
use super::super::state::pubsub::Kind;
use super::super::state::pubsub::backlog::{Change, Order, Publication, weight};
use super::super::state::pubsub::deliveries::{Delivery, Item};
use super::super::state::pubsub::name::{EVENTS_HOME, Message, Name, Text};
use crate::listeners;
use darter_base::glob::{self, Case};
use darter_tx::CoreId;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// Patterns that are matched at once: so many, or so many steps with all of them at most.
const PATTERNS_AT_ONCE: usize = 64;
const STEPS_AT_ONCE: usize = 16 * 1024;

/// How many clients a message was sent to.
pub(crate) enum Published {
    /// So many.
    To(usize),
    /// It waits for its turn.
    Later(Pin<Box<dyn Future<Output = usize>>>),
}

impl Core {
    /// Publishes a message to a channel that is at home here.
    pub(crate) fn publish(self: &Rc<Self>, kind: Kind, channel: Name, payload: Text) -> Published {
        let message = Arc::new(Message { kind, channel, payload });
        if self.can_publish_at_once(&message) {
            let matched = self.match_all(&message);
            return Published::To(self.send_message(&message, &matched));
        }
        let (ticket, count) = self.tx.ticket();
        let publication = Publication::new(message, ticket);
        self.pubsub.backlog.borrow_mut().push(Order::Publish(publication));
        Published::Later(Box::pin(count))
    }

    /// Publishes a message to a channel, wherever that is at home. Returns how many it was sent to.
    pub(crate) async fn publish_anywhere(
        self: &Rc<Self>,
        kind: Kind,
        channel: Name,
        payload: Text,
    ) -> usize {
        self.publish_events(); // What happened before it.
        let home = channel.home(self.tx.cores());
        let publish = move |there: Rc<Self>| async move {
            match there.publish(kind, channel, payload) {
                Published::To(count) => count,
                Published::Later(count) => count.await,
            }
        };
        self.run_on(home, publish).await
    }

    /// How many a message to a channel would be sent to now, wherever that is at home.
    pub(crate) async fn count_receivers(self: &Rc<Self>, kind: Kind, channel: Name) -> usize {
        let home = channel.home(self.tx.cores());
        let count = move |there: Rc<Self>| async move {
            let payload = Text::Short([].into());
            let message = Arc::new(Message { kind, channel, payload });
            let mut publication = Publication::new(message, 0);
            while !publication.is_matched {
                there.match_some(&mut publication);
                there.tx.pause().await;
            }
            there.count_all(&publication.message, &publication.matched)
        };
        self.run_on(home, count).await
    }

    /// How many subscribe to the channel of a message, or to one of these patterns.
    fn count_all(&self, message: &Message, patterns: &[Name]) -> usize {
        let registry = self.pubsub.registry.borrow();
        let direct = (message.kind, &message.channel);
        let all = patterns.iter().map(|name| (Kind::Pattern, name));
        let counts = std::iter::once(direct).chain(all);
        let counts = counts.filter_map(|(kind, name)| registry.counts(kind, name));
        counts.flat_map(|counts| counts.by_core()).map(|(_, count)| count).sum()
    }

    fn can_publish_at_once(&self, message: &Message) -> bool {
        let (backlog, registry) = (self.pubsub.backlog.borrow(), self.pubsub.registry.borrow());
        let steps = || registry.pattern_bytes().saturating_mul(message.channel.text().len());
        backlog.is_empty()
            && !backlog.is_full()
            && (message.kind == Kind::Shard
                || registry.len(Kind::Pattern) == 0
                || (registry.len(Kind::Pattern) <= PATTERNS_AT_ONCE && steps() <= STEPS_AT_ONCE))
    }

    /// The patterns that match a message's channel: few are looked at.
    fn match_all(&self, message: &Message) -> Vec<Name> {
        if message.kind == Kind::Shard {
            return Vec::new(); // Shard channels know no patterns.
        }
        let registry = self.pubsub.registry.borrow();
        let patterns = registry.names_after(Kind::Pattern, None).map(|(name, _)| name);
        let channel = message.channel.bytes();
        patterns.filter(|pattern| glob::matches(pattern.bytes(), channel)).cloned().collect()
    }

    /// Sends a message to the cores with subscribers: to the channel, or to one of these patterns.
    /// Returns how many there are.
    fn send_message(self: &Rc<Self>, message: &Arc<Message>, patterns: &[Name]) -> usize {
        let mut receivers: Vec<(CoreId, usize, Delivery)> = Vec::new();
        let mut sum = 0;
        {
            let registry = self.pubsub.registry.borrow();
            let direct = (message.kind, &message.channel, true);
            let all = patterns.iter().map(|name| (Kind::Pattern, name, false));
            for (kind, name, is_direct) in std::iter::once(direct).chain(all) {
                let counts = registry.counts(kind, name);
                for (core, count) in counts.into_iter().flat_map(|counts| counts.by_core()) {
                    let delivery = delivery_to(&mut receivers, core, count, message);
                    match is_direct {
                        true => delivery.direct = true,
                        false => delivery.patterns.push(name.clone()),
                    }
                    sum += count;
                }
            }
        }
        for (core, count, mut delivery) in receivers {
            delivery.weight = weight(message, count);
            self.pubsub.backlog.borrow_mut().sent(core, delivery.weight);
            self.send_item(core, Item::Message(Box::new(delivery)));
        }
        sum
    }

    /// Sends what a core is to do, after all that it was sent before.
    fn send_item(self: &Rc<Self>, core: CoreId, item: Item) {
        let home = self.id();
        self.tell(core, move |there| there.pubsub.deliveries.borrow_mut().push(home, item));
    }

    /// Clients of core `from` subscribe to names that are counted here, or no longer.
    pub(super) fn change_counts(self: &Rc<Self>, from: CoreId, change: Change) {
        let is_turn = self.pubsub.backlog.borrow().is_empty();
        if is_turn {
            self.count(from, change);
        } else {
            self.pubsub.backlog.borrow_mut().push(Order::Change(from, change));
        }
    }

    fn count(self: &Rc<Self>, from: CoreId, change: Change) {
        let mut registry = self.pubsub.registry.borrow_mut();
        for name in &change.names {
            match change.joins {
                true => registry.add(change.kind, name, from),
                false => registry.take(change.kind, name, from),
            }
            if self.id() == EVENTS_HOME {
                let receives = match change.kind {
                    Kind::Channel => listeners::are_events_of(name.bytes()),
                    Kind::Pattern => listeners::may_match_events(name.bytes()),
                    Kind::Shard => [false; 2],
                };
                self.admin.shared.listeners.count(receives, change.joins);
            }
        }
        drop(registry);
        if change.ticket.is_some() {
            self.send_item(from, Item::Counted(change));
        }
    }

    /// Core `by` has delivered so much of what was sent to it.
    pub(super) fn note_delivered(&self, by: CoreId, weight: usize) {
        self.pubsub.backlog.borrow_mut().delivered(by, weight);
    }

    /// Does what waits, in its order, until the slice is over.
    pub(super) fn publish_waiting(self: &Rc<Self>) {
        while self.pubsub.backlog.borrow().can_go_on() {
            let order = self.pubsub.backlog.borrow_mut().take();
            match order {
                Some(Order::Change(from, change)) => self.count(from, change),
                Some(Order::Publish(publication)) => self.publish_some(publication),
                None => return,
            }
            if self.slice_is_over() {
                return;
            }
        }
    }

    /// A portion of matching a message with all patterns; or sends it, unless some core has enough
    /// to deliver.
    fn publish_some(self: &Rc<Self>, mut publication: Publication) {
        if !publication.is_matched {
            self.match_some(&mut publication);
        }
        if !publication.is_matched || self.pubsub.backlog.borrow().is_full() {
            self.pubsub.backlog.borrow_mut().put_back(Order::Publish(publication));
            return;
        }
        let count = self.send_message(&publication.message, &publication.matched);
        self.tx.complete(publication.ticket, Box::new(count));
    }

    fn match_some(&self, publication: &mut Publication) {
        let registry = self.pubsub.registry.borrow();
        let channel = publication.message.channel.bytes();
        let mut budget = STEPS_AT_ONCE;
        let mut after = publication.after.take();
        for (name, _) in
            registry.names_after(Kind::Pattern, after.clone().as_ref()).take(PATTERNS_AT_ONCE)
        {
            let mut walk = publication.walk.take().unwrap_or_default();
            match walk.go_on(name.bytes(), channel, Case::Sensitive, &mut budget) {
                Some(true) => publication.matched.push(name.clone()),
                Some(false) => {}
                None => {
                    publication.walk = Some(walk);
                    break;
                }
            }
            after = Some(name.clone());
        }
        let next = registry.names_after(Kind::Pattern, after.as_ref()).next();
        publication.is_matched = next.is_none();
        publication.after = after;
    }
}

/// The delivery to `core`, which has `count` receivers more.
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
