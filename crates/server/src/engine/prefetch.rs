//! Prefetches the memory that the next requests will touch.
//!
//! A lookup in a large table has three cache misses, each of which depends on the one before it. A
//! lookup of a hash's field has three more. A core that ran commands one by one would wait for
//! each. But the next requests are known: the rest of a pipeline, and the requests of clients that
//! sent one each. So the cache misses of up to sixteen requests overlap, and the commands then find
//! their data in the cache. A useless prefetch costs a few nanoseconds, and no prefetch changes a
//! result. The entry of a request and the hashes of its keys are stored with it, so that both are
//! computed once.

use super::core::Core;
use super::transaction::queued::Queued;
use arrayvec::ArrayVec;
use darter_keyspace::{Ahead, Db, Key};
use darter_resp::{self as resp, Args, Note};

/// Keys whose memory is prefetched together. Further keys are left out.
type List<T> = ArrayVec<T, { resp::LOOKAHEAD_MAX }>;

/// A key that a request names.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    db: &'a Db,
    key: Key<'a>,
}

impl Wanted<'_> {
    /// True if both are the same key. Different keys with equal hashes count as the same: one
    /// prefetch is then missed, which is harmless.
    fn is(&self, other: &Wanted<'_>) -> bool {
        std::ptr::eq(self.db, other.db) && self.key.hash == other.key.hash
    }
}

/// A field or member that a request names: the key of its collection, and its own hash.
#[derive(Clone, Copy)]
struct Element<'a> {
    at: Wanted<'a>,
    hash: u64,
}

/// Prefetches for the next connections in the queue that have sent little, usually one request. A
/// pipeline is prefetched when it is served, and requests that were parsed in an earlier slice have
/// been prefetched there. Returns the number of connections visited.
pub(super) fn prefetch_ready(core: &Core) -> usize {
    const LITTLE_BYTES: usize = 256;
    let mut conns = core.clients.places();
    let (mut fresh, mut looked_at, mut requests) = (List::<usize>::new(), 0, 0);
    for token in core.queue.borrow().ready().take(resp::LOOKAHEAD_MAX) {
        let index = token.index as usize;
        looked_at += 1;
        if let Some(Some(conn)) = conns.get_mut(index)
            && conn.parser.pending_bytes() <= LITTLE_BYTES
            && conn.lane.may_parse()
        {
            let parsed = conn.parser.parse_ahead();
            if parsed > 0 {
                fresh.push(index);
            }
            requests += parsed;
        }
        if requests >= resp::LOOKAHEAD_MAX {
            break;
        }
    }
    let conns = fresh.iter().filter_map(|index| conns.get(*index)?.as_ref());
    prefetch(
        core,
        conns.flat_map(|conn| {
            conn.parser.lookahead().map(|request| (request, conn.lane.session.db))
        }),
    );
    looked_at
}

/// Prefetches for the commands of an EXEC. They were queued some time ago, perhaps on another core.
pub(super) fn prefetch_queued(core: &Core, queued: &Queued, db: usize) {
    let here = queued.placed().filter(|(owner, ..)| *owner == Some(core.id()));
    prefetch(core, here.map(|(_, _, args)| (args, db)).take(resp::LOOKAHEAD_MAX));
}

/// Prefetches the keys of `requests`, each in its own database, and the first field or member that
/// each request names.
pub(super) fn prefetch<'a>(core: &Core, requests: impl Iterator<Item = (Args<'a>, usize)>) {
    let home = core.tx.home();
    let mut likely = core.last_entry.get();
    let (mut keys, mut elements) = (List::<Wanted<'_>>::new(), List::<Element<'_>>::new());
    for (args, db) in requests {
        let Ok(entry) = core.table.resolve_likely(args, likely) else { continue };
        likely = entry.index;
        let mut note = Note::of(entry.index);
        let db = home.shard.db(db);
        let mut positions = entry.row.keys.positions(args).take(resp::LOOKAHEAD_MAX);
        let is_usual = entry.one_key && args.len() > 1;
        let mut next = if is_usual { Some(1) } else { positions.next() };
        while let Some(at) = next {
            next = if is_usual { None } else { positions.next() };
            if core.tx.cores() > 1 && args.owner(at, core.tx.cores()) != core.id() {
                continue;
            }
            let wanted = Wanted { db, key: Key::new(args.get(at)) };
            note.add(at, wanted.key.hash);
            if keys.last().is_none_or(|last| last.key.hash != wanted.key.hash) {
                _ = keys.try_push(wanted);
            }
            if let Some(element) = entry.row.element.filter(|element| *element < args.len()) {
                let hash = darter_base::hash::of(args.get(element));
                note.add(element, hash);
                _ = elements.try_push(Element { at: wanted, hash });
            }
        }
        args.keep(note);
    }
    // Two loops, because prefetches that are close together overlap more.
    keys.iter().for_each(|wanted| wanted.db.keys().prefetch(wanted.key.hash));
    keys.iter().for_each(|wanted| wanted.db.keys().prefetch_entry(wanted.key.hash));
    prefetch_elements(elements);
}

/// Consecutive elements of one collection.
struct Run<'a> {
    at: Wanted<'a>,
    value: Option<&'a dyn Ahead>,
    len: usize,
}

fn prefetch_elements(elements: List<Element<'_>>) {
    let (mut runs, mut hashes) = (List::<Run<'_>>::new(), List::<u64>::new());
    for Element { at, hash } in elements {
        if runs.last().is_none_or(|run| !run.at.is(&at)) {
            let value = at.db.object(&at.key).and_then(|object| object.ahead());
            runs.push(Run { at, value, len: 0 });
        }
        let run = runs.last_mut().expect("just made");
        run.len += 1;
        hashes.push(hash);
        if let Some(value) = run.value {
            value.prefetch(hash);
        }
    }
    let mut rest = &hashes[..];
    for run in runs {
        let (of_run, others) = rest.split_at(run.len);
        if let Some(value) = run.value {
            value.prefetch_entries(of_run);
        }
        rest = others;
    }
}
