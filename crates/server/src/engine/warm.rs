//! Asking the memory for what the next requests will touch.
//!
//! A lookup in a large table is three cache misses one behind the other, and a hash's field as many
//! again; a core that runs command by command waits for each of them. The requests at hand are
//! known, though, those of a pipeline and those of clients that each sent one: so the misses of up
//! to sixteen run side by side, and the commands then hit. What is asked for in vain costs a few
//! nanoseconds; nothing here changes a result.

use super::core::Core;
use arrayvec::ArrayVec;
use darter_keyspace::{Db, Key, Object};
use darter_resp::{self as resp, Args};

/// Keys asked for at once; what is more is not asked for.
type List<T> = ArrayVec<T, { resp::AHEAD_MAX }>;

/// A key that a request names.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    db: &'a Db,
    key: Key<'a>,
}

impl Wanted<'_> {
    fn is(&self, other: &Wanted<'_>) -> bool {
        std::ptr::eq(self.db, other.db) && self.key.bytes == other.key.bytes
    }
}

/// An element of a collection that a request names: where its key is, and its own hash.
#[derive(Clone, Copy)]
struct Element<'a> {
    at: Wanted<'a>,
    hash: u64,
}

impl Core {
    /// Asks for what the next ready connections want, as far as they have sent little: one request
    /// mostly. A pipeline is asked for when its turn has come. Returns for how many connections that
    /// is done.
    pub(super) fn warm_ready(&self) -> usize {
        const LITTLE_BYTES: usize = 256;
        let mut conns = self.conns.borrow_mut();
        let (mut next, mut requests) = (List::<usize>::new(), 0);
        for token in self.ready.borrow().iter().take(resp::AHEAD_MAX) {
            let index = token.index as usize;
            next.push(index);
            if let Some(Some(conn)) = conns.get_mut(index)
                && conn.parser.pending_bytes() <= LITTLE_BYTES
                && conn.lane.may_parse()
            {
                requests += conn.parser.cut_ahead();
            }
            if requests >= resp::AHEAD_MAX {
                break;
            }
        }
        let conns = next.iter().filter_map(|index| conns.get(*index)?.as_ref());
        self.warm(
            conns.flat_map(|conn| {
                conn.parser.ahead().map(|request| (request, conn.lane.session.db))
            }),
        );
        next.len()
    }

    /// Asks for the keys of requests, each in its database of this shard, and for the first field or
    /// member that each of them names.
    pub(super) fn warm<'a>(&self, requests: impl Iterator<Item = (Args<'a>, usize)>) {
        let home = self.tx.home();
        let mut likely = self.last_entry.get();
        let (mut keys, mut elements) = (List::<Wanted<'_>>::new(), List::<Element<'_>>::new());
        for (args, db) in requests {
            let Ok(entry) = self.table.resolve_likely(args, likely) else { continue };
            likely = entry.index;
            let db = home.shard.db(db);
            for at in entry.row.keys.positions(args).take(resp::AHEAD_MAX) {
                if self.tx.cores() > 1 && self.tx.core_of(args.get(at)) != self.id() {
                    continue;
                }
                let wanted = Wanted { db, key: Key::new(args.get(at)) };
                if keys.last().is_none_or(|last| last.key.hash != wanted.key.hash) {
                    _ = keys.try_push(wanted);
                }
                if let Some(element) = entry.row.element.filter(|element| *element < args.len()) {
                    let hash = darter_base::hash::of(args.get(element));
                    _ = elements.try_push(Element { at: wanted, hash });
                }
            }
        }
        // In loops of their own: the closer they stand, the more of them are under way at once.
        keys.iter().for_each(|wanted| wanted.db.keys().prefetch(wanted.key.hash));
        keys.iter().for_each(|wanted| wanted.db.keys().prefetch_entry(wanted.key.hash));
        warm_elements(elements);
    }
}

fn warm_elements(elements: List<Element<'_>>) {
    let mut last: Option<(Element<'_>, Option<&Object>)> = None;
    let mut found = List::<(&Object, u64)>::new();
    for element in elements {
        let object = match last {
            Some((before, object)) if before.at.is(&element.at) => object,
            _ => element.at.db.object(&element.at.key),
        };
        last = Some((element, object));
        if let Some(object) = object {
            object.prefetch(element.hash);
            found.push((object, element.hash));
        }
    }
    for (object, hash) in found {
        object.prefetch_entry(hash);
    }
}
