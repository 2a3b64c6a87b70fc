//! Asking the memory for what the next requests of a pipeline will touch.
//!
//! A lookup in a large table is three cache misses one behind the other, and a hash's field as many
//! again; a pipeline that runs command by command waits for each of them. The requests at hand are
//! known, though: so the misses of up to sixteen run side by side, and the commands then hit. What
//! is asked for in vain costs a few nanoseconds; nothing here changes a result.

use super::core::Core;
use arrayvec::ArrayVec;
use darter_keyspace::{Db, Key, Object};
use darter_resp::{self as resp, Args};

/// Keys asked for at once.
type List<T> = ArrayVec<T, { resp::AHEAD_MAX }>;

/// An element of a collection that a request names: where its key is, and its own hash.
#[derive(Clone, Copy)]
struct Element<'a> {
    key: Key<'a>,
    hash: u64,
}

impl Core {
    /// Asks for the keys of `requests` on this shard, and for the first field or member that each
    /// of them names.
    pub(super) fn warm<'a>(&self, requests: impl Iterator<Item = Args<'a>>, db: usize) {
        let home = self.tx.home();
        let db = home.shard.db(db);
        let mut likely = self.last_entry.get();
        let (mut keys, mut elements) = (List::<u64>::new(), List::<Element<'_>>::new());
        for args in requests {
            let Ok(entry) = self.table.resolve_likely(args, likely) else { continue };
            likely = entry.index;
            for at in entry.row.keys.positions(args).take(keys.remaining_capacity()) {
                if self.tx.cores() > 1 && self.tx.core_of(args.get(at)) != self.id() {
                    continue;
                }
                let key = Key::new(args.get(at));
                keys.push(key.hash);
                if let Some(element) = entry.row.element.filter(|element| *element < args.len()) {
                    let hash = darter_base::hash::of(args.get(element));
                    elements.push(Element { key, hash });
                }
            }
        }
        // In loops of their own: the closer they stand, the more of them are under way at once.
        keys.iter().for_each(|hash| db.keys().prefetch(*hash));
        keys.iter().for_each(|hash| db.keys().prefetch_entry(*hash));
        warm_elements(db, elements);
    }
}

fn warm_elements(db: &Db, elements: List<Element<'_>>) {
    let mut last: Option<(Element<'_>, Option<&Object>)> = None;
    let mut found = List::<(&Object, u64)>::new();
    for element in elements {
        let object = match last {
            Some((before, object)) if before.key.bytes == element.key.bytes => object,
            _ => db.object(&element.key),
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
