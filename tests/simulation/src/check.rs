//! Checks that a history is linearisable: that its commands fit one sequential order.
//!
//! In that order each command takes effect between its call and its return, and the model, run
//! along it, gives the replies that the clients saw (Herlihy and Wing, 1990). The search is Wing
//! and Gong's with Lowe's cache of dead ends: of the commands that had begun when the first of the
//! others returned, try one on the model and recurse; backtrack when the reply differs.
//!
//! Pipelined commands of one connection count as concurrent, except those that name the same key:
//! these keep the order in which they were sent. The server promises that, and it keeps the search
//! short: without it a pipeline of twelve lost writes has 12! orders.

use crate::model::Model;
use crate::ops::Op;
use crate::value::Value;
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// One command of a history: request, reply and times.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) client: usize,
    /// Which of its client's connections it was sent on.
    pub(crate) connection: usize,
    /// The database that its client had selected.
    pub(crate) db: usize,
    pub(crate) op: Op,
    pub(crate) called: u64,
    /// [`NEVER`] when the client was gone before: it may or may not have taken effect.
    pub(crate) returned: u64,
    pub(crate) reply: Value,
}

impl Event {
    /// True when this command, sent before `other`, must take effect before it: on one connection,
    /// commands on the same key keep their order.
    fn keeps_before(&self, other: &Self) -> bool {
        (self.client, self.connection) == (other.client, other.connection)
            && match (self.op.keys(), other.op.keys()) {
                (Some(mine), Some(others)) => mine.iter().any(|key| others.contains(key)),
                _ => true,
            }
    }
}

/// Later than any other moment.
pub(crate) const NEVER: u64 = u64::MAX;

/// The most commands in one check: the set of those done is one `u128`.
pub(crate) const EVENTS_MAX: usize = 128;

/// True when there is such an order. The history must be complete, with every command returned or
/// lost, and sorted by sending order within each connection.
pub(crate) fn is_linearisable(history: &[Event]) -> bool {
    explains(history, NEVER - 1)
}

/// The moment of the first reply that no order explains, which ends the shortest failing history.
/// Commands that had not returned by then may or may not have taken effect, with any reply.
pub(crate) fn first_unexplained(history: &[Event]) -> Option<u64> {
    let mut moments: Vec<u64> = history.iter().map(|event| event.returned).collect();
    moments.retain(|moment| *moment != NEVER);
    moments.sort_unstable();
    let at = moments.partition_point(|moment| explains(history, *moment));
    moments.get(at).copied()
}

fn explains(history: &[Event], until: u64) -> bool {
    assert!(history.len() <= EVENTS_MAX, "a history of {} commands", history.len());
    let begun: Vec<Event> = history.iter().filter(|event| event.called <= until).cloned().collect();
    search(&begun, until, 0, &Model::default(), &mut HashSet::new())
}

fn search(
    history: &[Event],
    until: u64,
    done: u128,
    model: &Model,
    seen: &mut HashSet<(u128, u64)>,
) -> bool {
    let left = || (0..history.len()).filter(|at| done & (1 << at) == 0);
    let returned = left().map(|at| history[at].returned).filter(|moment| *moment <= until);
    let Some(first_return) = returned.min() else { return true };
    if !seen.insert((done, digest(model))) {
        return false;
    }
    for at in left() {
        let event = &history[at];
        if event.called > first_return {
            continue; // Another command had returned before this one was called.
        }
        let mut earlier = left().take_while(|earlier| *earlier < at);
        if earlier.any(|earlier| history[earlier].keeps_before(event)) {
            continue;
        }
        let mut next = model.clone();
        let fits = next.apply(event.db, &event.op) == event.reply || event.returned > until;
        if fits && search(history, until, done | (1 << at), &next, seen) {
            return true;
        }
    }
    false
}

fn digest(model: &Model) -> u64 {
    let mut hasher = DefaultHasher::new();
    model.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(op: Op, called: u64, returned: u64, reply: Value) -> Event {
        let client = usize::try_from(called).unwrap();
        Event { client, connection: 0, db: 0, op, called, returned, reply }
    }

    #[test]
    fn histories_without_an_order_are_refused() {
        let set = |value: &str, called, returned| {
            event(Op::Set("k".into(), value.into()), called, returned, Value::Simple("OK".into()))
        };
        let get = |value: &str, called, returned| {
            event(Op::Get("k".into()), called, returned, Value::Bulk(value.into()))
        };
        assert!(is_linearisable(&[set("a", 0, 10), get("a", 5, 6)]), "takes effect in between");
        assert!(is_linearisable(&[set("a", 0, 1), set("b", 2, 9), get("a", 3, 4), get("b", 5, 6)]));
        assert!(!is_linearisable(&[set("a", 0, 1), set("b", 2, 3), get("a", 4, 5)]), "stale");
        assert!(
            !is_linearisable(&[set("a", 0, 1), set("b", 2, 9), get("b", 3, 4), get("a", 5, 6)]),
            "back in time"
        );
        let lost = |value| set(value, 2, NEVER);
        assert!(is_linearisable(&[set("a", 0, 1), lost("b"), get("a", 3, 4), get("b", 5, 6)]));
        assert!(is_linearisable(&[set("a", 0, 1), lost("b"), get("a", 3, 4)]), "never happened");
        assert!(!is_linearisable(&[set("a", 0, 1), lost("b"), get("b", 3, 4), get("a", 5, 6)]));
        let swap = event(Op::Swapdb(0, 1), 2, 3, Value::Simple("OK".into()));
        let far = Event { db: 1, ..get("a", 4, 5) };
        assert!(is_linearisable(&[set("a", 0, 1), swap, far.clone()]));
        assert!(!is_linearisable(&[set("a", 0, 1), far]), "of another database");
    }

    #[test]
    fn commands_of_one_connection_on_one_key_keep_their_order() {
        let of = |key: &str, connection, event: fn(String) -> (Op, Value)| {
            let (op, reply) = event(key.to_owned());
            Event { client: 0, connection, db: 0, op, called: 0, returned: 9, reply }
        };
        let get = |key| (Op::Get(key), Value::Null);
        let set = |key| (Op::Set(key, "a".into()), Value::Simple("OK".into()));
        assert!(is_linearisable(&[of("k", 0, get), of("k", 0, set)]));
        assert!(!is_linearisable(&[of("k", 0, set), of("k", 0, get)]), "overtaken");
        assert!(is_linearisable(&[of("k", 0, set), of("k", 1, get)]), "of two connections");
        assert!(is_linearisable(&[of("k", 0, set), of("other", 0, get)]), "on two keys");
    }
}
