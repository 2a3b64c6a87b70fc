//! Runs on the core of a client: sends invalidations to the client, or to the target of its
//! redirection.

use super::super::conn::Lane;
use super::super::core::Core;
use super::super::state::tracking::deliveries::{InvalidationDelivery, To};
use super::super::state::tracking::message::{self, Invalidation, Push};
use super::super::state::tracking::mode::Reads;
use darter_resp::Output;
use std::rc::Rc;
use std::sync::Arc;

/// Clients notified between two reads of the clock: about 10 us.
const AT_ONCE: usize = 32;

/// The connection that is being served, if any. It is not among the core's clients during that
/// time.
type Served<'a> = Option<&'a mut Lane>;

impl Core {
    /// Sends the waiting invalidations: a few at once, and the rest as background work.
    #[inline]
    pub(crate) fn push_invalidations(self: &Rc<Self>, served: Served<'_>) {
        if !self.tracking.deliveries.borrow().is_empty() {
            self.deliver_invalidations(served);
        }
    }

    #[cold]
    fn deliver_invalidations(self: &Rc<Self>, mut served: Served<'_>) {
        let mut left = AT_ONCE;
        while left > 0 {
            let next = self.tracking.deliveries.borrow_mut().take();
            let Some(mut delivery) = next else { return };
            if !self.deliver_portion(&mut delivery, &mut left, &mut served) {
                self.tracking.deliveries.borrow_mut().put_back(delivery);
            } else if let To::Prefix { from, .. } = delivery.to {
                self.tell(from, |home| home.tracking.broadcasts.borrow_mut().delivered());
            }
        }
    }

    /// Sends an invalidation to a few clients. Returns true if no client is left.
    fn deliver_portion(
        self: &Rc<Self>,
        delivery: &mut InvalidationDelivery,
        left: &mut usize,
        served: &mut Served<'_>,
    ) -> bool {
        let some: Vec<u64> = {
            let trackers = self.tracking.trackers.borrow();
            match &mut delivery.to {
                To::Readers(all) => all.split_off(all.len().saturating_sub(*left)),
                To::All { after } => trackers.clients_after(*after).take(*left).collect(),
                To::Prefix { prefix, after, .. } => {
                    trackers.members_after(prefix, *after).take(*left).collect()
                }
            }
        };
        let is_last = match &mut delivery.to {
            To::Readers(all) => all.is_empty(),
            To::All { after } | To::Prefix { after, .. } => {
                *after = some.last().copied().unwrap_or(*after);
                some.len() < *left
            }
        };
        *left = left.saturating_sub(some.len().max(1));
        for client in some {
            self.invalidate(client, delivery, served);
        }
        is_last
    }

    /// Sends an invalidation to a client, if the client's tracking mode still requires it.
    fn invalidate(
        self: &Rc<Self>,
        client: u64,
        delivery: &mut InvalidationDelivery,
        served: &mut Served<'_>,
    ) {
        let mode = self.with_lane(client, served, |lane| lane.session.tracking);
        let Some(mode) = mode.filter(|mode| mode.is_on) else { return };
        let is_meant = match delivery.to {
            To::Readers(_) => mode.reads != Reads::Broadcast,
            To::Prefix { .. } => mode.reads == Reads::Broadcast,
            To::All { .. } => true,
        };
        if !is_meant {
            return;
        }
        let (mut message, mut is_whole) = (Arc::clone(&delivery.message), true);
        if mode.is_quiet {
            let Some(others) = message.without(client) else { return };
            is_whole = Arc::ptr_eq(&message, &others);
            message = others;
        }
        if mode.redirect > 0 {
            return self.redirect(client, mode.target, message, served);
        }
        let frames = if is_whole { Some(&mut delivery.frames) } else { None };
        self.push_to(client, served, |lane| {
            lane.session.resp3.then(|| encode(&message, true, frames))
        });
    }

    /// Sends an invalidation to the target of a client's redirection. If the target has gone,
    /// notifies the client itself.
    fn redirect(
        self: &Rc<Self>,
        source: u64,
        target: u64,
        message: Arc<Invalidation>,
        served: &mut Served<'_>,
    ) {
        let core = self.core_of_client(target);
        if core == self.id() {
            if !self.push_redirected(target, &message, served) {
                self.redirection_broke(source, served);
            }
            return;
        }
        let from = self.id();
        self.tell(core, move |there| {
            if !there.push_redirected(target, &message, &mut None) {
                there.tell(from, move |home| home.redirection_broke(source, &mut None));
            }
        });
    }

    /// Sends an invalidation to a client as the target of a redirection. Returns false if the
    /// client has gone. A RESP2 client receives it only while it is subscribed to a channel.
    fn push_redirected(
        &self,
        target: u64,
        message: &Arc<Invalidation>,
        served: &mut Served<'_>,
    ) -> bool {
        self.push_to(target, served, |lane| {
            let resp3 = lane.session.resp3;
            let is_told = resp3 || lane.session.subscribed.is_any();
            is_told.then(|| encode(message, resp3, None))
        });
        self.clients.token_of(target).is_some()
    }

    fn redirection_broke(&self, source: u64, served: &mut Served<'_>) {
        self.push_to(source, served, |lane| {
            let mode = &mut lane.session.tracking;
            mode.is_broken = mode.is_on;
            let redirect = mode.redirect;
            (mode.is_on && lane.session.resp3).then(|| message::broken(redirect))
        });
    }

    fn with_lane<R>(
        &self,
        client: u64,
        served: &mut Served<'_>,
        visit: impl FnOnce(&mut Lane) -> R,
    ) -> Option<R> {
        match served {
            Some(lane) if lane.session.handle == client => Some(visit(lane)),
            _ => self.with_client(client, |conn| visit(&mut conn.lane)),
        }
    }

    /// Sends a client the message that `make` returns, after all pending replies.
    fn push_to(
        &self,
        client: u64,
        served: &mut Served<'_>,
        make: impl FnOnce(&mut Lane) -> Option<Push>,
    ) {
        if let Some(lane) = served.as_deref_mut().filter(|lane| lane.session.handle == client) {
            if let Some(push) = make(lane) {
                lane.owe_late(push);
            }
            // The client is being served, which sends the message and then checks the limits.
            return;
        }
        self.with_client(client, |conn| {
            let Some(push) = make(&mut conn.lane) else { return };
            conn.lane.owe_late(push);
            self.mark_streaming(&mut conn.lane);
            self.clients.mark_pushed(&mut conn.lane);
            self.check_output(conn, conn.lane.late_bytes());
        });
    }
}

/// Encodes a message for a protocol. A short message is encoded once, and copied for each client.
fn encode(
    message: &Arc<Invalidation>,
    resp3: bool,
    frames: Option<&mut [Option<Vec<u8>>; 2]>,
) -> Push {
    let Some(frame) = frames.map(|frames| &mut frames[usize::from(resp3)]) else {
        return message.encode(resp3);
    };
    if frame.is_none() {
        match message.encode(resp3) {
            (out, None) => *frame = Some(out.flatten()),
            long => return long,
        }
    }
    let mut out = Output::default();
    out.copy(frame.as_deref().unwrap_or_default());
    (out, None)
}
