//! Calls that wait for keys of this core, by key in order of arrival; and the deadlines of this
//! core's waiting clients.
//!
//! ```text
//! keys:     name -> key "jobs"  -> 17: client 5, its 1st key   23: client 9, its 2nd key
//!                   key "mails" -> 23: client 9, its 1st key
//! waiters:  number -> client 9, its place 23, and its names
//! ```
//! A name is the number under which a key is locked. Two keys may share one, so a name has a queue
//! for each. A waiter has the same place on all its keys of this core. A waiter that leaves is
//! removed at once; its places in the queues are removed in portions, and are ignored until then.
//! When a call finds its condition unmet, calls with the same condition on that key are skipped.
//!
//! Invariants (`check_invariants`):
//! - Q1: every place of a waiter is in the queue of its key. Every place in a queue belongs to a
//!   waiter, or to one that has left and is not removed yet.
//! - Q2: no queue is empty, and `keys` has no name without a queue.
//! - Q3: `due` and `due_of` have the same content, of names with waiters.
//! - Q4: a condition is known while a call waits on it.
//! - Q5: if a queue has a condition, all its places have it.

use darter_base::hash::IdentityMap;
use darter_base::runs::Runs;
use darter_command::{Condition, Look, Patience, Since, Wait};
use darter_keyspace::Name;
use darter_resp::Request;
use darter_tx::CoreId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use super::super::point::View;

/// Places checked or skipped in one step: about 30 us.
const PASSED_AT_ONCE: usize = 64;

/// The wait state of a call. The core of its client may end the wait, and each core of its keys may
/// serve the call: the first transition wins.
#[derive(Debug, Default)]
pub(crate) struct Fate(AtomicU8);

impl Fate {
    const WAITS: u8 = 0;
    /// The call is in flight to the core of its keys, which runs it or lets it wait.
    const ASKS: u8 = 1;
    /// The call is in flight, but its client has half-closed or timed out: it may be answered, but
    /// not wait.
    const ASKS_LAST: u8 = 2;
    const TAKEN: u8 = 3;
    const OVER: u8 = 4;

    /// The state of a call that is sent to the core of its keys.
    pub(crate) fn asks(has_ended: bool) -> Self {
        Self(AtomicU8::new(if has_ended { Self::ASKS_LAST } else { Self::ASKS }))
    }

    /// Claims the call for a core of its keys, which serves it in the same step. False if another
    /// core has, or the wait is over.
    pub(crate) fn take(&self) -> bool {
        self.decide(&[Self::WAITS], Self::TAKEN)
    }

    /// Claims a call in flight for the core of its keys, which runs it in the same step. False if
    /// the wait is over.
    pub(crate) fn answer(&self) -> bool {
        self.decide(&[Self::ASKS, Self::ASKS_LAST], Self::TAKEN)
    }

    /// Lets a call in flight wait, because its keys have nothing. False if the wait is over, or the
    /// client has half-closed.
    pub(crate) fn wait(&self) -> bool {
        self.decide(&[Self::ASKS], Self::WAITS)
    }

    /// Ends the wait, for the core of the client. False if the call was served.
    pub(crate) fn end(&self) -> bool {
        self.decide(&[Self::WAITS, Self::ASKS, Self::ASKS_LAST], Self::OVER)
    }

    /// Records that the client has half-closed or timed out. True if that ends the wait; a call in
    /// flight may still be answered.
    pub(crate) fn end_if_waiting(&self) -> bool {
        !self.decide(&[Self::ASKS], Self::ASKS_LAST) && self.decide(&[Self::WAITS], Self::OVER)
    }

    /// Returns a claimed call that the core of its keys did not run. A task runs it, or lets it
    /// wait.
    pub(crate) fn renew(&self, has_ended: bool) {
        let fate = if has_ended { Self::OVER } else { Self::WAITS };
        self.0.store(fate, Ordering::Release);
    }

    /// True if the call was served: its answer is in flight.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::TAKEN
    }

    fn decide(&self, from: &[u8], fate: u8) -> bool {
        let decide = |now| from.contains(&now).then_some(fate);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, decide).is_ok()
    }
}

/// A waiting call: its client and the condition. Shared by the cores of its keys.
pub(crate) struct WaitingCall {
    /// Unique among all waiting calls.
    pub(crate) number: u64,
    /// The core of its connection.
    pub(crate) core: CoreId,
    pub(crate) client: u64,
    /// The row of its command.
    pub(crate) entry: usize,
    pub(crate) request: Arc<Request>,
    pub(crate) view: View,
    pub(crate) resp3: bool,
    pub(crate) wait: Wait,
    pub(crate) fate: Fate,
    /// The call has ended: a task that is still adding its places stops.
    pub(crate) has_left: AtomicBool,
}

/// A connection's state of its waiting call.
pub(crate) struct Blocked {
    pub(crate) call: Arc<WaitingCall>,
    /// The deadline in Unix milliseconds.
    pub(crate) until_ms: Option<u64>,
    pub(crate) stage: Stage,
    /// The cores of its keys.
    pub(crate) cores: Vec<CoreId>,
}

/// The progress of a waiting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A task is adding its places, or answers it.
    Begins,
    /// It waits, or is in flight to the core of its keys.
    Waits,
    /// It timed out after it was served, or was killed: its answer is in flight.
    Ends,
}

impl Blocked {
    /// A call that begins to wait.
    pub(crate) fn new(call: Arc<WaitingCall>, cores: Vec<CoreId>, now_ms: u64) -> Self {
        let until_ms = match call.wait.patience {
            Patience::Millis(millis) => Some(now_ms.saturating_add(millis)),
            Patience::Endless => None,
            Patience::None => unreachable!("it does not wait"),
        };
        Self { call, until_ms, stage: Stage::Begins, cores }
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        /// Measured bytes of a key with a short name in the queues of its core.
        const PLACE_BYTES: usize = 160;
        let keys = self.call.wait.keys.len() * PLACE_BYTES;
        size_of::<Self>() + size_of::<WaitingCall>() + self.call.request.bytes() + keys
    }
}

/// The place of a call in the queue of one key.
#[derive(Clone, Copy)]
struct Place {
    /// The number of its call.
    number: u64,
    /// Index of the key in its request.
    at: u32,
    /// The state of the key when the wait began: the halves of [`Since`], which would be aligned to
    /// 16.
    since: [u64; 2],
    /// The number of its condition.
    condition: Option<NonZeroU64>,
}

impl Place {
    fn since(&self) -> Since {
        Since(u128::from(self.since[0]) << 64 | u128::from(self.since[1]))
    }
}

/// The places on a key, in order. A call that waits for a million keys is nearly always alone on
/// each: a tree of one place would take a node for eleven.
enum Places {
    One(u64, Place),
    Many(Box<Many>),
}

struct Many {
    places: BTreeMap<u64, Place>,
    /// The condition of all places, if they share one.
    condition: Option<NonZeroU64>,
}

impl Places {
    /// Adds a place. False if its number has one already.
    fn add(&mut self, number: u64, place: Place) -> bool {
        match self {
            Self::One(only, _) if *only == number => false,
            Self::One(only, first) => {
                let condition = first.condition.filter(|_| first.condition == place.condition);
                let places = BTreeMap::from([(*only, *first), (number, place)]);
                *self = Self::Many(Box::new(Many { places, condition }));
                true
            }
            Self::Many(all) => {
                let count = all.places.len();
                all.places.entry(number).or_insert(place);
                all.condition = all.condition.filter(|_| all.condition == place.condition);
                all.places.len() > count
            }
        }
    }

    /// Removes a place. True if none is left.
    fn remove(&mut self, number: u64) -> bool {
        match self {
            Self::One(only, _) => *only == number,
            Self::Many(all) => {
                all.places.remove(&number);
                // The condition of the last place is that of the queue again.
                if all.places.len() == 1
                    && let Some((only, place)) = all.places.pop_first()
                {
                    *self = Self::One(only, place);
                }
                false
            }
        }
    }

    /// The first place after `last`.
    fn after(&self, last: u64) -> Option<(u64, &Place)> {
        match self {
            Self::One(only, place) => (*only > last).then_some((*only, place)),
            Self::Many(all) => {
                let behind = (Bound::Excluded(last), Bound::Unbounded);
                all.places.range(behind).next().map(|(number, place)| (*number, place))
            }
        }
    }

    /// The condition of all places, if they share one.
    fn condition(&self) -> Option<NonZeroU64> {
        match self {
            Self::One(_, place) => place.condition,
            Self::Many(all) => all.condition,
        }
    }
}

/// A key, and the places on it in order of arrival.
struct Queue {
    db: usize,
    key: Name,
    places: Places,
}

/// The size of a key without its bytes: most of the memory of a call with a million keys.
const _: () = assert!(size_of::<Queue>() <= 80);

/// The conditions of the waiting calls on this core, each with a number.
#[derive(Default)]
struct Conditions {
    /// Conditions with their numbers, and the number of calls on each.
    known: BTreeMap<Condition, (NonZeroU64, usize)>,
    last: u64,
}

impl Conditions {
    /// Counts a call on a condition. Returns the condition's number.
    fn add(&mut self, condition: Condition) -> NonZeroU64 {
        let last = &mut self.last;
        let (number, count) = self.known.entry(condition).or_insert_with(|| {
            *last += 1;
            (NonZeroU64::new(*last).expect("they are counted from 1"), 0)
        });
        *count += 1;
        *number
    }

    /// Uncounts a call.
    fn remove(&mut self, condition: &Condition) {
        let known =
            self.known.get_mut(condition).expect("Q4: it is known while somebody waits on it");
        known.1 -= 1;
        if known.1 == 0 {
            self.known.remove(condition);
        }
    }
}

/// A call that waits for keys of this core.
struct Waiter {
    call: Arc<WaitingCall>,
    place: u64,
    condition: Option<NonZeroU64>,
    /// The names of its keys.
    names: Runs<u64>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Waits {
    keys: BTreeMap<u64, Vec<Queue>>,
    waiters: IdentityMap<Waiter>,
    conditions: Conditions,
    next_place: u64,
    next_call: u64,
    /// The places and names of calls that have left.
    left: VecDeque<(u64, Runs<u64>)>,
    /// Keys of this core with a locked key of any core: a task waits for the two.
    retries: BTreeSet<(u64, (CoreId, u64))>,
    /// Deadlines of this core's clients, in Unix milliseconds.
    deadlines: BTreeSet<(u64, u64)>,
    /// Keys of this core that must be checked even without a change: by time in Unix milliseconds,
    /// and by name.
    due: BTreeSet<(u64, u64)>,
    due_of: BTreeMap<u64, u64>,
    /// The number of this core's waiting clients.
    blocked: usize,
    /// Connections that closed while their answers were in flight.
    lost: u64,
}

/// The next call to serve on a key.
pub(crate) struct Next {
    pub(crate) call: Arc<WaitingCall>,
    pub(crate) place: u64,
    /// Index of the key in its request.
    pub(crate) at: usize,
    pub(crate) since: Since,
    /// The result of the check of the key.
    pub(crate) look: Look,
}

impl Waits {
    /// A new number, unique on this core.
    pub(crate) fn next_call(&mut self) -> u64 {
        self.next_call += 1;
        self.next_call
    }

    /// True if no call waits for a key of this core, so that no command needs to check.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// True if a call may wait for a key of this name.
    pub(crate) fn has(&self, name: u64) -> bool {
        self.keys.contains_key(&name)
    }

    /// Adds a call to the queue of the key at index `at` of its request. True if it is the first
    /// for this name.
    pub(crate) fn add(
        &mut self,
        call: &Arc<WaitingCall>,
        (name, db): (u64, usize),
        (key, at, since): (&[u8], usize, Since),
    ) -> bool {
        let (next_place, conditions) = (&mut self.next_place, &mut self.conditions);
        let waiter = self.waiters.entry(call.number).or_insert_with(|| {
            *next_place += 1;
            let condition = call.wait.want.condition().map(|condition| conditions.add(condition));
            Waiter { call: Arc::clone(call), place: *next_place, condition, names: Runs::default() }
        });
        let is_first = !self.keys.contains_key(&name);
        let queues = self.keys.entry(name).or_default();
        let known = queues.iter_mut().find(|queue| queue.db == db && *queue.key == *key);
        let place = Place {
            number: call.number,
            at: u32::try_from(at).expect("a request has fewer arguments"),
            since: [(since.0 >> 64) as u64, since.0 as u64],
            condition: waiter.condition,
        };
        let is_new = match known {
            // For a key that is named twice the first name counts.
            Some(queue) => queue.places.add(waiter.place, place),
            None => {
                let places = Places::One(waiter.place, place);
                queues.reserve_exact(1); // A name hardly ever has two.
                queues.push(Queue { db, key: Name::from(key), places });
                true
            }
        };
        if is_new {
            waiter.names.push(name);
        }
        is_first
    }

    /// Removes a call.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(waiter) = self.waiters.remove(&number) {
            if let Some(condition) = waiter.call.wait.want.condition() {
                self.conditions.remove(&condition);
            }
            self.left.push_back((waiter.place, waiter.names));
        }
    }

    /// True if places of calls that have left must be removed.
    pub(crate) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Removes at most `most` places of calls that have left. Returns the names without waiting
    /// calls.
    pub(crate) fn remove_some(&mut self, most: usize) -> Vec<u64> {
        let mut unwanted = Vec::new();
        for _ in 0..most {
            let Some((place, names)) = self.left.front_mut() else { break };
            let Some(name) = names.pop() else {
                self.left.pop_front();
                continue;
            };
            let Some(queues) = self.keys.get_mut(&name) else { continue };
            let place = *place;
            queues.retain_mut(|queue| !queue.places.remove(place));
            if queues.is_empty() {
                self.keys.remove(&name);
                self.set_due(name, None);
                unwanted.push(name);
            }
        }
        darter_base::spare::release_queue(&mut self.left);
        unwanted
    }

    /// Records that a task waits for two keys. False if one does already.
    pub(crate) fn begin_retry(&mut self, name: u64, other: (CoreId, u64)) -> bool {
        self.retries.insert((name, other))
    }

    /// Records that the task has both keys.
    pub(crate) fn end_retry(&mut self, name: u64, other: (CoreId, u64)) {
        self.retries.remove(&(name, other));
    }

    /// The first call after `place` whose key of this name can serve it. At most `most` calls are
    /// checked, and at most [`PASSED_AT_ONCE`] checked or skipped because their condition was found
    /// unmet. Otherwise `Err` has the last place visited. A queue whose condition is unmet, as with
    /// BLPOP, is skipped as a whole.
    pub(crate) fn next(
        &self,
        name: u64,
        place: u64,
        most: usize,
        mut look: impl FnMut(&WaitingCall, usize, Since) -> Look,
    ) -> Result<Option<Next>, u64> {
        let Some(queues) = self.keys.get(&name) else { return Ok(None) };
        let (mut last, mut checked, mut unready) = (place, 0, Vec::new());
        for _ in 0..PASSED_AT_ONCE {
            let is_open = |(at, queue): &(usize, &Queue)| {
                let condition = queue.places.condition();
                condition.is_none_or(|condition| !unready.contains(&(*at, condition)))
            };
            // A name nearly always has one queue.
            let nexts = queues.iter().enumerate().filter(is_open);
            let nexts = nexts.filter_map(|(at, queue)| Some((at, queue.places.after(last)?)));
            let Some((queue, (place, it))) = nexts.min_by_key(|(_, (place, _))| *place) else {
                return Ok(None);
            };
            let (Place { number, condition, .. }, at, since) = (*it, it.at as usize, it.since());
            last = place;
            let condition = condition.map(|condition| (queue, condition));
            if condition.is_some_and(|condition| unready.contains(&condition)) {
                continue;
            }
            let Some(waiter) = self.waiters.get(&number) else { continue };
            let look = look(&waiter.call, at, since);
            if look != Look::Nothing {
                return Ok(Some(Next { call: Arc::clone(&waiter.call), place, at, since, look }));
            }
            unready.extend(condition);
            checked += 1;
            if checked == most {
                break;
            }
        }
        Err(last)
    }

    /// Schedules a check of a key, unless an earlier one is scheduled.
    pub(crate) fn note_due(&mut self, name: u64, at_ms: u64) {
        if self.has(name) && self.due_of.get(&name).is_none_or(|known| at_ms < *known) {
            self.set_due(name, Some(at_ms));
        }
    }

    fn set_due(&mut self, name: u64, at_ms: Option<u64>) {
        let old = match at_ms {
            Some(at_ms) => self.due_of.insert(name, at_ms),
            None => self.due_of.remove(&name),
        };
        old.map(|old| self.due.remove(&(old, name)));
        self.due.extend(at_ms.map(|at_ms| (at_ms, name)));
    }

    /// Takes a key whose check is due.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<u64> {
        let (_, name) = *self.due.first().filter(|(at_ms, _)| *at_ms <= now_ms)?;
        self.set_due(name, None);
        Some(name)
    }

    /// Counts a waiting client of this core, with its deadline if it has one.
    pub(crate) fn block(&mut self, client: u64, until_ms: Option<u64>) {
        self.blocked += 1;
        self.deadlines.extend(until_ms.map(|until| (until, client)));
    }

    /// Uncounts a client of this core, with the same deadline.
    pub(crate) fn unblock(&mut self, client: u64, until_ms: Option<u64>) {
        assert!(self.blocked > 0, "client {client} did not wait");
        self.blocked -= 1;
        if let Some(until) = until_ms {
            self.deadlines.remove(&(until, client));
        }
    }

    /// The numbers of this core's waiting clients, and of those with a deadline.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.blocked, self.deadlines.len())
    }

    /// Counts a connection that closed while its answer was in flight.
    pub(crate) fn count_lost(&mut self) {
        self.lost += 1;
    }

    /// The number of connections that closed while their answers were in flight.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// The time of the next deadline or check of a key, in Unix milliseconds.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let firsts = [self.deadlines.first(), self.due.first()];
        firsts.into_iter().flatten().map(|(until, _)| *until).min()
    }

    /// A client of this core whose deadline has passed.
    pub(crate) fn overdue(&self, now_ms: u64) -> Option<u64> {
        self.deadlines.first().filter(|(until, _)| *until <= now_ms).map(|(_, client)| *client)
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        for (number, waiter) in &self.waiters {
            for name in waiter.names.iter() {
                let queues = self.keys.get(name).expect("Q1");
                let is_there = |queue: &Queue| {
                    let place = queue.places.after(waiter.place - 1);
                    place.is_some_and(|(place, it)| (place, it.number) == (waiter.place, *number))
                };
                assert!(queues.iter().any(is_there), "Q1: {number} waits for {name}");
            }
        }
        let conditions = self.waiters.values().filter(|waiter| waiter.condition.is_some()).count();
        assert_eq!(
            self.conditions.known.values().map(|(_, count)| count).sum::<usize>(),
            conditions,
            "Q4"
        );
        let due: BTreeSet<_> = self.due_of.iter().map(|(name, at)| (*at, *name)).collect();
        assert_eq!(due, self.due, "Q3");
        assert!(self.due_of.keys().all(|name| self.has(*name)), "Q3: {due:?}");
        for (name, queues) in &self.keys {
            assert!(!queues.is_empty(), "Q2: {name}");
            for queue in queues {
                assert!(queue.places.after(0).is_some(), "Q2: {name}");
                let (mut last, shared) = (0, queue.places.condition());
                while let Some((place, Place { number, condition, .. })) = queue.places.after(last)
                {
                    assert!(shared.is_none() || *condition == shared, "Q5: {name}");
                    let is_left = || self.left.iter().any(|(left, _)| *left == place);
                    assert!(self.waiters.contains_key(number) || is_left(), "Q1: {number}");
                    last = place;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::point::Tracker;
    use darter_command::{Flow, Looking, Refusal, Taking, Want};

    struct Nothing;

    impl Want for Nothing {
        fn condition(&self) -> Option<Condition> {
            Some(Condition("nothing", 0, Box::default()))
        }

        fn look(&self, _: &Looking<'_>) -> Look {
            Look::Nothing
        }

        fn take(&self, _: &mut Taking<'_>, _: usize) -> Result<Flow, Refusal> {
            Ok(Flow::Done)
        }
    }

    /// A wait without a condition.
    struct Alone;

    impl Want for Alone {
        fn condition(&self) -> Option<Condition> {
            None
        }

        fn look(&self, _: &Looking<'_>) -> Look {
            Look::Nothing
        }

        fn take(&self, _: &mut Taking<'_>, _: usize) -> Result<Flow, Refusal> {
            Ok(Flow::Done)
        }
    }

    fn call(number: u64) -> Arc<WaitingCall> {
        call_for(number, Box::new(Nothing))
    }

    fn call_for(number: u64, want: Box<dyn Want>) -> Arc<WaitingCall> {
        Arc::new(WaitingCall {
            number,
            core: 0,
            client: number,
            entry: 0,
            request: Arc::new(Request::from_args([&b"BLPOP"[..], b"a", b"0"])),
            view: View { db: 0, no_touch: false, tracker: Tracker::default() },
            resp3: false,
            wait: Wait { keys: 1..2, patience: Patience::Endless, want },
            fate: Fate::default(),
            has_left: AtomicBool::new(false),
        })
    }

    fn next(waits: &Waits, name: u64, place: u64) -> Option<(u64, u64)> {
        let found = waits.next(name, place, 8, |_, _, _| Look::There).ok().flatten();
        found.map(|next| (next.call.number, next.place))
    }

    #[test] // Two keys of one name, a key named twice, a call that leaves.
    fn calls_are_found_in_order_of_arrival() {
        let mut waits = Waits::default();
        let [one, two, three] = [7, 5, 6].map(call);
        assert!(waits.is_empty());
        assert!(waits.add(&one, (1, 0), (b"a", 1, Since(0))));
        assert!(!waits.add(&one, (1, 0), (b"a", 2, Since(0))));
        assert!(waits.add(&one, (2, 0), (b"b", 3, Since(0))));
        assert!(!waits.add(&two, (1, 1), (b"a", 1, Since(0))));
        assert!(!waits.add(&three, (1, 0), (b"a", 1, Since(0))));
        waits.check_invariants();
        assert_eq!(next(&waits, 1, 0), Some((7, 1)));
        assert_eq!(next(&waits, 1, 1), Some((5, 2)));
        assert_eq!(next(&waits, 1, 2), Some((6, 3)));
        assert_eq!(next(&waits, 1, 3), None);
        let found = waits.next(1, 0, 1, |_, _, _| Look::Nothing);
        assert_eq!(found.err(), Some(1), "there are more");
        let mut checked = 0;
        let found = waits.next(1, 0, 8, |_, _, _| {
            checked += 1;
            Look::Nothing
        });
        assert!(matches!(found, Ok(None)));
        assert_eq!(checked, 2, "one of each key: they wait on one condition");
        waits.remove(7);
        waits.check_invariants();
        assert_eq!(next(&waits, 1, 0), Some((5, 2)));
        assert_eq!(next(&waits, 2, 0), None);
        assert_eq!(waits.remove_some(8), [2]);
        assert!(!waits.has_left() && !waits.has(2) && waits.has(1));
        waits.remove(5);
        waits.remove(6);
        assert_eq!(waits.remove_some(8), [1]);
        assert!(waits.is_empty());
        waits.check_invariants();
    }

    #[test] // The first call finds nothing, and all have its condition.
    fn a_queue_with_an_unmet_condition_is_skipped() {
        let mut waits = Waits::default();
        let many = 3 * PASSED_AT_ONCE as u64;
        for number in 0..many {
            waits.add(&call(number), (1, 0), (b"a", 1, Since(0)));
        }
        let mut checked = 0;
        let found = waits.next(1, 0, 8, |_, _, _| {
            checked += 1;
            Look::Nothing
        });
        assert!(matches!(found, Ok(None)));
        assert_eq!(checked, 1);
        assert_eq!(next(&waits, 1, many - 1), Some((many - 1, many)));
        waits.check_invariants();
    }

    #[test] // After the call without a condition has left, the queue has a condition again.
    fn calls_with_other_conditions_are_checked() {
        let mut waits = Waits::default();
        let checked = |waits: &Waits| {
            let mut checked = Vec::new();
            let found = waits.next(1, 0, 8, |call, _, _| {
                checked.push(call.number);
                Look::Nothing
            });
            assert!(matches!(found, Ok(None)));
            checked
        };
        for number in [1, 3] {
            waits.add(&call(number), (1, 0), (b"a", 1, Since(0)));
        }
        waits.add(&call_for(4, Box::new(Alone)), (1, 0), (b"a", 1, Since(0)));
        waits.check_invariants();
        assert_eq!(checked(&waits), [1, 4]);
        waits.remove(3);
        waits.remove(4);
        waits.remove_some(8);
        let many = 3 * PASSED_AT_ONCE as u64;
        for number in 10..many {
            waits.add(&call(number), (1, 0), (b"a", 1, Since(0)));
        }
        assert_eq!(checked(&waits), [1], "and nobody is passed over");
        waits.check_invariants();
    }

    #[test]
    fn deadlines_pass_in_order() {
        let mut waits = Waits::default();
        for (client, until) in [(1, Some(30)), (2, None), (3, Some(10))] {
            waits.block(client, until);
        }
        assert_eq!(waits.counts(), (3, 2));
        assert_eq!((waits.next_deadline(), waits.overdue(9)), (Some(10), None));
        assert_eq!(waits.overdue(10), Some(3));
        waits.unblock(3, Some(10));
        waits.unblock(2, None);
        assert_eq!((waits.overdue(29), waits.counts()), (None, (1, 1)));
    }
}
