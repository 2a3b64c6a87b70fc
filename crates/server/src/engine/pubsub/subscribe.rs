//! Changes the subscriptions of a client. Each change is a task on the client's core.
//!
//! A change names a few names at a time to their homes, which count the client; a pattern is
//! counted by all cores. As soon as the client is counted, messages can arrive. Messages that
//! arrive before the confirmation was sent are kept until then.

use super::super::conn::{Conn, ReplyMode};
use super::super::core::Core;
use super::super::state::pubsub::SubscriptionKind;
use super::super::state::pubsub::backlog::SubscriptionChange;
use super::super::state::pubsub::frame::confirm;
use super::super::state::pubsub::name::Name;
use super::deliver::note;
use darter_resp::Output;
use darter_tx::CoreId;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Names sent to their homes at a time. Each costs the home about a microsecond.
const AT_ONCE: usize = 16;

/// A change of a client's subscriptions of one kind, in progress.
pub(crate) struct Subscribing {
    core: Rc<Core>,
    client: u64,
    id: u64,
    kind: SubscriptionKind,
    joins: bool,
    resp3: bool,
    /// The encoded confirmations.
    out: Output,
}

impl Subscribing {
    /// Begins a change; `None` if the client has gone.
    pub(crate) fn begin(
        core: &Rc<Core>,
        client: u64,
        kind: SubscriptionKind,
        joins: bool,
    ) -> Option<Self> {
        let begun = core.with_client(client, |conn| {
            let memberships = &mut *core.pubsub.memberships.borrow_mut();
            let subscribed = &mut conn.lane.session.subscribed;
            if subscribed.id == 0 {
                subscribed.id = memberships.enter(conn.lane.token);
            }
            if joins && let Some(subscriber) = memberships.get(subscribed.id) {
                subscriber.early.get_or_insert_default();
            }
            (subscribed.id, conn.lane.session.resp3)
        });
        let (id, resp3) = begun?;
        let (core, out) = (Rc::clone(core), Output::default());
        Some(Self { core, client, id, kind, joins, resp3, out })
    }

    /// The maximal number of names that [`Self::change`] accepts.
    pub(crate) const AT_ONCE: usize = AT_ONCE;

    /// The names of a few of the client's current subscriptions.
    pub(crate) fn held(&self) -> Vec<Name> {
        let memberships = &mut *self.core.pubsub.memberships.borrow_mut();
        memberships.get(self.id).map_or_else(Vec::new, |held| held.some(self.kind, AT_ONCE))
    }

    /// Begins or ends subscriptions to these names, and confirms each. Cost: a message to each home
    /// and back.
    pub(crate) async fn change(&mut self, names: Vec<Name>) {
        let (mut new, mut seen) = (Vec::new(), BTreeSet::new());
        for name in &names {
            let memberships = &mut *self.core.pubsub.memberships.borrow_mut();
            let Some(subscriber) = memberships.get(self.id) else { return };
            let counted = subscriber.summary(self.id).counted_with(self.kind);
            if subscriber.holds(self.kind, name) != self.joins && seen.insert(name.clone()) {
                new.push(name.clone());
            }
            let count = match self.joins {
                true => counted + new.len(),
                false => counted - new.len(),
            };
            self.out.part_tail();
            confirm(&mut self.out, self.kind, self.joins, Some(name), count, self.resp3);
        }
        for name in &new {
            self.mark(name);
        }
        self.update_homes(new).await;
    }

    /// Encodes the confirmation of an unsubscription for a client without subscriptions.
    pub(crate) fn nothing(&mut self) {
        let memberships = &mut *self.core.pubsub.memberships.borrow_mut();
        let Some(subscriber) = memberships.get(self.id) else { return };
        let count = subscriber.summary(self.id).counted_with(self.kind);
        confirm(&mut self.out, self.kind, self.joins, None, count, self.resp3);
    }

    /// Sends the confirmations, even with CLIENT REPLY OFF, and then the messages that arrived
    /// early.
    pub(crate) fn end(self) {
        let core = Rc::clone(&self.core);
        core.with_client(self.client, |conn| {
            self.note_in(conn);
            conn.lane.owe(self.out, None);
            core.send_early(conn);
        });
    }

    /// Like [`Subscribing::end`], inside EXEC: returns the confirmations, which become a part of
    /// EXEC's reply. The early messages are sent after that reply: see [`Core::send_early`].
    pub(crate) fn end_inside(self) -> Output {
        let core = Rc::clone(&self.core);
        let confirmed = core.with_client(self.client, |conn| {
            self.note_in(conn);
            if conn.lane.session.reply_mode == ReplyMode::On {
                return self.out;
            }
            conn.lane.owe(self.out, None);
            Output::default()
        });
        confirmed.unwrap_or_default()
    }

    fn note_in(&self, conn: &mut Conn) {
        if let Some(subscriber) = self.core.pubsub.memberships.borrow_mut().get(self.id) {
            note(&mut conn.lane, self.id, subscriber);
        }
    }

    /// Records a changed subscription on this core, before its home is notified.
    fn mark(&self, name: &Name) {
        let memberships = &mut *self.core.pubsub.memberships.borrow_mut();
        let Some(subscriber) = memberships.get(self.id) else { return };
        match (self.kind, self.joins) {
            (SubscriptionKind::Pattern, true) => subscriber.hold(SubscriptionKind::Pattern, name),
            (_, false) => subscriber.give_up(self.kind, name),
            (_, true) => {}
        }
        if self.kind == SubscriptionKind::Pattern {
            memberships.add(SubscriptionKind::Pattern, name, self.id);
            memberships.begin_partial(name, self.id, self.joins, self.core.tx.cores());
        }
    }

    /// Notifies the homes of `names`, and waits until each has counted the change.
    async fn update_homes(&self, names: Vec<Name>) {
        let cores = self.core.tx.cores();
        let mut counted = Vec::new();
        for home in 0..cores {
            let is_here =
                |name: &&Name| self.kind == SubscriptionKind::Pattern || name.home(cores) == home;
            let here: Vec<Name> = names.iter().filter(is_here).cloned().collect();
            if !here.is_empty() {
                counted.push(self.update_home(home, here));
            }
        }
        for counted in counted {
            counted.await;
        }
    }

    fn update_home(&self, home: CoreId, names: Vec<Name>) -> impl Future<Output = ()> + use<> {
        let (ticket, counted) = self.core.tx.ticket::<()>();
        let (subscriber, kind, joins) = (self.id, self.kind, self.joins);
        let change = SubscriptionChange { subscriber, kind, names, joins, ticket: Some(ticket) };
        let from = self.core.id();
        self.core.tell(home, move |home| home.change_counts(from, change));
        counted
    }
}

impl Core {
    /// Sends a client the messages that arrived before the confirmation of its subscription, which
    /// has now been sent.
    pub(crate) fn send_early(&self, conn: &mut Conn) {
        let id = conn.lane.session.subscribed.id;
        let memberships = &mut *self.pubsub.memberships.borrow_mut();
        let Some(subscriber) = memberships.get(id) else { return };
        if let Some(early) = subscriber.early.take().filter(|early| !early.is_empty()) {
            conn.lane.owe(early, None);
        }
        self.pushed(conn, 0);
    }
}
