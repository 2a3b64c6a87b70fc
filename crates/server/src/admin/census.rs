//! What clients hold: closes those whose output exceeds `client-output-buffer-limit`, and the largest
//! of all while all together exceed `maxmemory-clients`.
//!
//! Looked at every 50 ms, some connections a turn, and only while a limit is set: what a client holds
//! grows without anything happening to it, when the value that it reads is removed by another. Only
//! the core that has the largest client closes one, so that no core asks another.
//!
//! Not here: `client-query-buffer-limit`, which is checked as bytes arrive.

use super::{Shared, Told, client_list};
use crate::engine::{ClientLimits, Conn, Core};
use std::sync::atomic::Ordering;

/// Between two looks at all connections.
const EVERY_MS: u64 = 50;
/// Connections a turn: a few microseconds.
const AT_ONCE: usize = 64;

/// A look at all connections of a core that is under way.
#[derive(Default)]
pub(super) struct Census {
    /// The place of the next connection.
    next: usize,
    due_ms: u64,
    /// Bytes of those looked at.
    bytes: usize,
    /// Those that may be closed for it: bytes and client id.
    evictable: Vec<(usize, u64)>,
    /// It was said that nobody is left to be closed.
    warned: bool,
}

impl Census {
    /// When it goes on, in Unix milliseconds.
    pub(super) fn due_ms(&self) -> u64 {
        self.due_ms
    }
}

/// Goes on with the look, if it is due.
pub(super) fn step(core: &Core) {
    let (now, limits) = (core.now_ms(), core.hot.borrow().client_limits);
    let census = &mut *core.admin.census.borrow_mut();
    if now < census.due_ms {
        census.due_ms = census.due_ms.min(now + EVERY_MS); // The clock may be set back.
        return;
    }
    let from = census.next;
    census.next = core.some_conns(from, AT_ONCE, |conn| census.look(core, conn, &limits));
    if census.next > 0 {
        return;
    }
    census.due_ms = now + EVERY_MS;
    if limits.all > 0 {
        census.evict(core, limits.all);
    }
    (census.bytes, census.evictable) = (0, Vec::new());
}

impl Census {
    fn look(&mut self, core: &Core, conn: &mut Conn, limits: &ClientLimits) {
        if conn.lane.session.killed {
            return;
        }
        let sizes = conn.sizes();
        if is_over(conn, sizes.output, limits, core.now_ms()) {
            let line = client_list::line(core, &conn.lane.session, Some(conn)).text;
            tracing::warn!(
                "Client {} closed for overcoming of output buffer limits.",
                line.trim_end()
            );
            core.kill(&mut conn.lane);
            return;
        }
        self.bytes += sizes.total;
        if limits.all > 0 && !conn.lane.session.no_evict {
            self.evictable.push((sizes.total, conn.lane.session.id));
        }
    }

    /// Closes the largest of this core while all are too large, and no other core has a larger one.
    fn evict(&mut self, core: &Core, limit: usize) {
        let shared = &core.admin.shared;
        let told = &shared.told[core.id()];
        told.clients.store(self.bytes, Ordering::Relaxed);
        self.evictable.sort_unstable();
        let others = largest(shared, |id| id != core.id());
        while sum(shared) >= limit
            && let Some((bytes, id)) = self.evictable.pop_if(|(bytes, _)| *bytes >= others)
        {
            core.with_client(id, |conn| {
                let line = client_list::line(core, &conn.lane.session, Some(conn)).text;
                tracing::info!("Evicting client: {}", line.trim_end());
                core.kill(&mut conn.lane);
            });
            core.stats.borrow_mut().evicted_clients += 1;
            told.clients.fetch_sub(bytes, Ordering::Relaxed);
        }
        let most = self.evictable.last().map_or(0, |(bytes, _)| *bytes);
        told.client_max.store(most, Ordering::Relaxed);
        let is_stuck = sum(shared) >= limit && largest(shared, |_| true) == 0;
        if is_stuck && !self.warned {
            tracing::warn!("Over client maxmemory after evicting all evictable clients");
        }
        self.warned = is_stuck;
    }
}

/// True when the output of a connection is beyond the hard limit, or has been beyond the soft one for
/// too long.
fn is_over(conn: &mut Conn, output: usize, limits: &ClientLimits, now_ms: u64) -> bool {
    if limits.output_hard > 0 && output >= limits.output_hard {
        return true;
    }
    if limits.output_soft == 0 || output < limits.output_soft {
        conn.lane.soft_since_ms = None;
        return false;
    }
    let since = *conn.lane.soft_since_ms.get_or_insert(now_ms);
    now_ms.saturating_sub(since) > limits.output_soft_ms
}

/// Bytes of all clients, as the cores have told.
fn sum(shared: &Shared) -> usize {
    shared.told.iter().map(|told| told.clients.load(Ordering::Relaxed)).sum()
}

/// Bytes of the largest client that may be closed, on some cores.
fn largest(shared: &Shared, wanted: impl Fn(usize) -> bool) -> usize {
    let most = |told: &Told| told.client_max.load(Ordering::Relaxed);
    let told = shared.told.iter().enumerate().filter(|(id, _)| wanted(*id));
    told.map(|(_, told)| most(told)).max().unwrap_or(0)
}

/// A client is closed for what it has sent of a request that is not whole.
pub(crate) fn over_query_limit(core: &Core, conn: &Conn) {
    /// Bytes that the log shows, as in Redis.
    const SHOWN: usize = 64;
    let line = client_list::line(core, &conn.lane.session, Some(conn)).text;
    let head = conn.query_head();
    tracing::warn!(
        "Closing client that reached max query buffer length: {} (qbuf initial bytes: \"{}\")",
        line.trim_end(),
        head[..head.len().min(SHOWN)].escape_ascii()
    );
}
