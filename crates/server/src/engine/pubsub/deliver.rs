//! Runs on the core of subscribers: handles the items that the homes of channels send, in order.
//!
//! A message is sent to its receivers in portions, and the next message follows only then, so no
//! message overtakes another. No client waits for a subscriber that does not read: the subscriber's
//! output grows until `client-output-buffer-limit` closes it.

use super::super::conn::{Conn, Lane};
use super::super::core::Core;
use super::super::state::pubsub::SubscriptionKind;
use super::super::state::pubsub::backlog::SubscriptionChange;
use super::super::state::pubsub::deliveries::{Delivery, DeliveryItem};
use super::super::state::pubsub::frame::{self, Frame};
use super::super::state::pubsub::memberships::{Memberships, Subscriber};
use super::super::state::pubsub::name::Name;
use darter_resp::Output;
use darter_tx::CoreId;
use std::rc::Rc;
use std::sync::Arc;

/// Receivers served between two reads of the clock: about 10 us.
const AT_ONCE: usize = 32;

impl Core {
    /// Publishes and delivers waiting messages until the slice is over. Returns false if no message
    /// waits.
    pub(crate) fn work_on_messages(self: &Rc<Self>) -> bool {
        if !self.has_messages() {
            return false;
        }
        loop {
            let next = self.pubsub.deliveries.borrow_mut().take();
            match next {
                Some((home, DeliveryItem::Counted(change))) => self.counted(home, change),
                Some((home, DeliveryItem::Message(delivery))) => self.deliver_some(home, delivery),
                None => break,
            }
            if self.slice_is_over() {
                return true;
            }
        }
        self.publish_waiting();
        self.publish_recorded();
        true
    }

    /// Delivers a message to a portion of its receivers. The remaining receivers follow later.
    fn deliver_some(self: &Rc<Self>, home: CoreId, mut delivery: Box<Delivery>) {
        let mut left = AT_ONCE;
        while delivery.stage <= delivery.patterns.len() {
            let is_stage = delivery.stage > 0 || delivery.direct;
            if is_stage && !self.deliver_stage(home, &mut delivery, &mut left) {
                self.pubsub.deliveries.borrow_mut().put_back(home, DeliveryItem::Message(delivery));
                return;
            }
            delivery.stage += 1;
            (delivery.after, delivery.frames) = (0, [None, None]);
        }
        let reported = self.pubsub.deliveries.borrow_mut().delivered(home, delivery.weight);
        if let Some(weight) = reported {
            let by = self.id();
            self.tell(home, move |home| home.note_delivered(by, weight));
        }
    }

    /// Delivers a message to the channel's subscribers, or to those of one pattern, until `left` is
    /// used up. Returns true if all of them have received it.
    fn deliver_stage(&self, home: CoreId, delivery: &mut Delivery, left: &mut usize) -> bool {
        let memberships = &mut *self.pubsub.memberships.borrow_mut();
        let message = Arc::clone(&delivery.message);
        let pattern = delivery.stage.checked_sub(1).map(|at| delivery.patterns[at].clone());
        let (kind, name) = match &pattern {
            Some(name) => (SubscriptionKind::Pattern, name),
            None => (message.kind, &message.channel),
        };
        loop {
            let next: Vec<u64> =
                memberships.members_after(kind, name, delivery.after).take(*left).collect();
            if next.is_empty() {
                return true;
            }
            for id in next {
                delivery.after = id;
                let cost = match memberships.is_counted(name, id, home) {
                    true => self.send_to(memberships, id, delivery, pattern.as_ref()),
                    false => 1,
                };
                *left = left.saturating_sub(cost);
                if *left == 0 {
                    return false;
                }
            }
        }
    }

    /// Sends a message to one subscriber. Returns the cost of the send.
    fn send_to(
        &self,
        memberships: &mut Memberships,
        id: u64,
        delivery: &mut Delivery,
        pattern: Option<&Name>,
    ) -> usize {
        let Some(subscriber) = memberships.get(id) else { return 1 };
        let sent = self.with_conn(subscriber.token, |conn| {
            if delivery.message.is_excess {
                self.close_for_excess(conn);
                return 1;
            }
            let resp3 = conn.lane.session.resp3;
            let frame = delivery.frames[usize::from(resp3)]
                .get_or_insert_with(|| Frame::new(&delivery.message, pattern, resp3));
            let cost = frame.cost();
            match (frame, &mut subscriber.early) {
                (Frame::Short(bytes), Some(early)) => early.add(bytes),
                (Frame::Short(bytes), None) => conn.lane.owe_flat(bytes),
                (Frame::Long(_), early) => {
                    let mut out = Output::default();
                    frame::write(&mut out, &delivery.message, pattern, resp3);
                    match early {
                        Some(early) => early.append(out),
                        None => conn.lane.owe(out, None),
                    }
                }
            }
            let early = subscriber.early.as_ref().map_or(0, Output::len);
            self.pushed(conn, early);
            cost
        });
        sent.unwrap_or(1)
    }

    /// Closes a client because a script has published more to it than its output limit allows.
    fn close_for_excess(&self, conn: &mut Conn) {
        if !conn.lane.session.is_killed() {
            self.over_output_limit(conn);
            self.mark_dirty(&mut conn.lane);
        }
    }

    /// Lists a client that was pushed to as one with pushes to send, and checks its output limit.
    /// `early` bytes of its messages wait outside its output.
    pub(super) fn pushed(&self, conn: &mut Conn, early: usize) {
        conn.lane.sending.gated = true;
        self.mark_streaming(&mut conn.lane);
        self.clients.mark_pushed(&mut conn.lane);
        self.check_output(conn, early);
    }

    /// Handles the notice that the home of a channel has counted a change of this core's
    /// subscribers.
    fn counted(self: &Rc<Self>, home: CoreId, change: SubscriptionChange) {
        for name in &change.names {
            match (change.kind, change.joins) {
                (SubscriptionKind::Pattern, _) => self.pattern_counted(home, name, &change),
                (_, true) => self.joined(home, name, &change),
                (_, false) => self.left(name, &change),
            }
        }
        if let Some(ticket) = change.ticket {
            self.tx.complete(ticket, Box::new(()));
        }
    }

    fn joined(self: &Rc<Self>, home: CoreId, name: &Name, change: &SubscriptionChange) {
        let memberships = &mut *self.pubsub.memberships.borrow_mut();
        if let Some(subscriber) = memberships.get(change.subscriber) {
            subscriber.hold(change.kind, name);
            memberships.add(change.kind, name, change.subscriber);
        } else {
            self.take_back(home, change.kind, vec![name.clone()]);
        }
    }

    fn left(&self, name: &Name, change: &SubscriptionChange) {
        let memberships = &mut *self.pubsub.memberships.borrow_mut();
        memberships.remove(change.kind, name, change.subscriber);
        if let Some(subscriber) = memberships.get(change.subscriber) {
            subscriber.let_go(change.kind, name);
        }
    }

    /// Handles the notice that one core has counted a subscription to a pattern, or its end.
    fn pattern_counted(self: &Rc<Self>, home: CoreId, name: &Name, change: &SubscriptionChange) {
        let id = change.subscriber;
        let is_gone = {
            let memberships = &mut *self.pubsub.memberships.borrow_mut();
            let is_all = memberships.note_counted(name, id, change.joins, home);
            if is_all && !change.joins {
                memberships.remove(SubscriptionKind::Pattern, name, id);
            }
            let subscriber = memberships.get(id);
            match subscriber {
                Some(subscriber) if is_all && !change.joins => {
                    subscriber.let_go(SubscriptionKind::Pattern, name);
                    false
                }
                other => other.is_none(),
            }
        };
        if is_gone && change.joins {
            self.take_back(home, SubscriptionKind::Pattern, vec![name.clone()]);
        }
    }

    /// Tells the home of a name that a subscriber has gone, so that the home no longer counts it.
    pub(super) fn take_back(
        self: &Rc<Self>,
        home: CoreId,
        kind: SubscriptionKind,
        names: Vec<Name>,
    ) {
        let from = self.id();
        let change = SubscriptionChange { subscriber: 0, kind, names, joins: false, ticket: None };
        self.tell(home, move |home| home.change_counts(from, change));
    }
}

/// Copies a summary of a subscriber's subscriptions into its session.
pub(super) fn note(lane: &mut Lane, id: u64, subscriber: &Subscriber) {
    lane.session.subscribed = subscriber.summary(id);
}
