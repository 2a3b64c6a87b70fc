//! Limits the memory of clients. Closes every client whose output exceeds
//! `client-output-buffer-limit`, and the largest clients while the sum of all exceeds
//! `maxmemory-clients`.
//!
//! While a limit is set, a scan of all connections begins every 50 ms and visits a few per turn. It
//! is needed because a client's memory can grow without any action of that client: another client
//! may remove the value that it is reading. Logging a closed client takes time, so at most one is
//! closed after the end of a slice. Only the core with the largest client closes one, so the cores
//! need not exchange messages.
//!
//! Not here: `client-query-buffer-limit`, which is checked as bytes arrive.

use super::client_line::line_of;
use super::conn::Conn;
use super::core::Core;
use super::state::census::Census;
use super::state::hot::ClientLimits;
use crate::shared::{CoreReport, Shared};
use std::collections::binary_heap::PeekMut;
use std::sync::atomic::Ordering;

/// The time between two scans.
const EVERY_MS: u64 = 50;
/// Connections visited per turn: a few microseconds.
const AT_ONCE: usize = 64;

/// Ends the scan and clears its report, when no client is left or no limit is set.
pub(super) fn forget(core: &Core) {
    core.census.take();
    core.admin.shared.reports[core.id()].forget_clients();
}

/// Continues the scan if it is due, at most until the end of the slice.
pub(super) fn step(core: &Core) {
    let (now, limits) = (core.now_ms(), core.hot.borrow().client_limits);
    let census = &mut *core.census.borrow_mut();
    if now < census.due_ms {
        census.due_ms = census.due_ms.min(now + EVERY_MS); // The clock may have been set back.
        return;
    }
    let more =
        if census.evicts { census.evict(core, limits.all) } else { census.look(core, &limits) };
    if !more {
        *census = census.next(now + EVERY_MS);
    }
}

impl Census {
    /// Visits a few connections. Returns false when the scan is complete.
    fn look(&mut self, core: &Core, limits: &ClientLimits) -> bool {
        for _ in 0..AT_ONCE {
            let (from, mut closed) = (self.next, false);
            self.next = core.some_conns(from, 1, |conn| closed = self.take(core, conn, limits));
            if self.next == 0 || (closed && core.slice_is_over()) {
                break;
            }
        }
        if self.next > 0 {
            return true;
        }
        self.evicts = limits.all > 0;
        if self.evicts {
            self.report_to(&core.admin.shared.reports[core.id()]);
        }
        self.evicts
    }

    /// Adds a connection to the scan. Returns true if the connection was closed instead, because
    /// its output exceeds the limit.
    fn take(&mut self, core: &Core, conn: &mut Conn, limits: &ClientLimits) -> bool {
        if conn.lane.session.is_killed() {
            return false;
        }
        let sizes = conn.sizes();
        if is_over(conn, sizes.output, limits, core.now_ms()) {
            core.over_output_limit(conn);
            return true;
        }
        if conn.lane.sending.soft_since_ms.is_some() {
            self.note_soft();
        }
        self.bytes += sizes.total;
        if limits.all > 0 && !conn.lane.session.no_evict {
            self.evictable.push((sizes.total, conn.lane.session.handle));
        }
        false
    }

    /// Closes the largest client of this core if the sum exceeds the limit and no other core has a
    /// larger one. Returns false when there is none to close.
    fn evict(&mut self, core: &Core, limit: usize) -> bool {
        let shared = &core.admin.shared;
        let report = &shared.reports[core.id()];
        let others = || largest(shared, |id| id != core.id());
        let mut more = false;
        loop {
            // Read before and after the sum: a core publishes its largest client before its sum.
            let before = others();
            let is_over = limit > 0 && sum(shared) >= limit;
            let may_close = |next: &PeekMut<'_, (usize, u64)>| next.0 >= before.max(others());
            if more || !is_over {
                break;
            }
            let Some(next) = self.evictable.peek_mut().filter(may_close) else { break };
            let (bytes, id) = PeekMut::pop(next);
            close(core, id);
            self.bytes -= bytes;
            report.clients.store(self.bytes, Ordering::Relaxed);
            more = core.slice_is_over();
        }
        self.report_to(report);
        let is_stuck = limit > 0 && sum(shared) >= limit && largest(shared, |_| true) == 0;
        if is_stuck && !self.warned {
            tracing::warn!("Over client maxmemory after evicting all evictable clients");
        }
        self.warned = is_stuck;
        more
    }
}

/// Closes the client with this id, unless it has gone.
fn close(core: &Core, id: u64) {
    core.with_client(id, |conn| {
        let line = line_of(core, &conn.lane.session, Some(conn));
        tracing::info!("Evicting client: {}", line.trim_end());
        core.kill(&mut conn.lane);
        core.stats.borrow_mut().evicted_clients += 1;
    });
}

/// True if the output of a connection exceeds the hard limit, or has exceeded the soft limit for
/// too long.
fn is_over(conn: &mut Conn, output: usize, limits: &ClientLimits, now_ms: u64) -> bool {
    let is_subscriber = conn.lane.session.subscribed.is_any();
    let limit = if is_subscriber { limits.pubsub } else { limits.normal };
    if limit.hard > 0 && output >= limit.hard {
        return true;
    }
    if limit.soft == 0 || output < limit.soft {
        conn.lane.sending.soft_since_ms = None;
        return false;
    }
    let since = *conn.lane.sending.soft_since_ms.get_or_insert(now_ms);
    now_ms.saturating_sub(since) > limit.soft_ms
}

/// The sum of all clients' bytes, as last published by the cores.
fn sum(shared: &Shared) -> usize {
    shared.reports.iter().map(|report| report.clients.load(Ordering::Acquire)).sum()
}

/// The bytes of the largest client that may be closed, on the cores that `wanted` selects.
fn largest(shared: &Shared, wanted: impl Fn(usize) -> bool) -> usize {
    let most = |report: &CoreReport| report.client_max.load(Ordering::Relaxed);
    let reports = shared.reports.iter().enumerate().filter(|(id, _)| wanted(*id));
    reports.map(|(_, report)| most(report)).max().unwrap_or(0)
}

impl Core {
    /// Checks the output of a client after a push. `early` bytes wait outside the output. Above the
    /// hard limit, the client is closed. Above the soft limit, scans continue until no client is
    /// above it.
    pub(super) fn check_output(&self, conn: &mut Conn, early: usize) {
        let (limits, output) = (self.hot.borrow().client_limits, conn.lane.unread_bytes() + early);
        if conn.lane.session.is_killed() {
            return;
        }
        if is_over(conn, output, &limits, self.now_ms()) {
            self.over_output_limit(conn);
        } else if conn.lane.sending.soft_since_ms.is_some() {
            self.census.borrow_mut().note_soft();
        }
    }

    /// Closes a client above its output limit.
    pub(super) fn over_output_limit(&self, conn: &mut Conn) {
        let line = line_of(self, &conn.lane.session, Some(conn));
        tracing::warn!("Client {} closed for overcoming of output buffer limits.", line.trim_end());
        self.kill(&mut conn.lane);
        self.stats.borrow_mut().output_limited += 1;
    }

    /// Closes a client whose incomplete request is too long.
    pub(super) fn over_query_limit(&self, conn: &mut Conn) {
        /// The number of bytes of the request that the log shows, as in Redis.
        const SHOWN: usize = 64;
        let line = line_of(self, &conn.lane.session, Some(conn));
        let head = conn.query_head();
        tracing::warn!(
            "Closing client that reached max query buffer length: {} (qbuf initial bytes: \"{}\")",
            line.trim_end(),
            head[..head.len().min(SHOWN)].escape_ascii()
        );
        self.kill(&mut conn.lane);
    }
}
