//! The blocking commands (*calls*) that wait for keys of this core, by key in order of arrival; and
//! the deadlines of this core's blocked clients.
//!
//! ```text
//! keys:     name -> key "jobs"  -> 17: client 5, its 1st key   23: client 9, its 2nd key
//!                   key "mails" -> 23: client 9, its 1st key
//! waiters:  number -> client 9, its place 23, and its names
//! ```
//! A *name* is the number under which a key is locked. Two keys may have the same name, so a name
//! has a queue for each of its keys. A waiting call has a *place* in the queue of each of its keys,
//! and the same position in all of them. When a call stops waiting, it is removed at once. Its
//! places are ignored from then on, and removed in portions. A call may wait on a *condition*, such
//! as "the list is not empty". When the condition of one call is found unmet, all calls with the
//! same condition on that key are skipped.
//!
//! Invariants (`check_invariants`):
//! - Q1: every place of a waiting call is in the queue of its key. Every place in a queue belongs
//!   to a waiting call, or to one that has left and whose places are still being removed.
//! - Q2: no queue is empty, and every name in `keys` has a queue.
//! - Q3: `due` and `due_of` have the same entries, and every name in them has waiting calls.
//! - Q4: `conditions` knows every condition on which a call waits.
//! - Q5: if a queue has a condition, all its places have the same.

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

/// Places that are checked or skipped in one step: about 30 us.
const PASSED_AT_ONCE: usize = 64;

/// The state of a blocked call, shared by the cores concerned. The core of the client may end the
/// wait, and each core that owns one of the keys may serve the call. The first to change the state
/// wins.
#[derive(Debug, Default)]
pub(crate) struct Fate(AtomicU8);

impl Fate {
    const WAITS: u8 = 0;
    /// The call is in flight to the core that owns its keys. That core runs it, or makes it wait.
    const ASKS: u8 = 1;
    /// The call is in flight, but the client has half-closed or timed out. The call may be
    /// answered, but must not wait.
    const ASKS_LAST: u8 = 2;
    const TAKEN: u8 = 3;
    const OVER: u8 = 4;

    /// The initial state of a call that is sent to the core that owns its keys.
    pub(crate) fn asks(has_ended: bool) -> Self {
        Self(AtomicU8::new(if has_ended { Self::ASKS_LAST } else { Self::ASKS }))
    }

    /// Claims a waiting call for a core that owns one of its keys, and that serves it in the same
    /// step. Returns false if another core has claimed it, or the wait has ended.
    pub(crate) fn take(&self) -> bool {
        self.decide(&[Self::WAITS], Self::TAKEN)
    }

    /// Claims a call in flight for the core that owns its keys, and that runs it in the same step.
    /// Returns false if the wait has ended.
    pub(crate) fn answer(&self) -> bool {
        self.decide(&[Self::ASKS, Self::ASKS_LAST], Self::TAKEN)
    }

    /// Makes a call in flight wait, because its keys have no element. Returns false if the wait has
    /// ended, or the client has half-closed.
    pub(crate) fn wait(&self) -> bool {
        self.decide(&[Self::ASKS], Self::WAITS)
    }

    /// Ends the wait; called on the core of the client. Returns false if the call was served.
    pub(crate) fn end(&self) -> bool {
        self.decide(&[Self::WAITS, Self::ASKS, Self::ASKS_LAST], Self::OVER)
    }

    /// Records that the client has half-closed or timed out. Returns true if that ends the wait. A
    /// call in flight may still be answered.
    pub(crate) fn end_if_waiting(&self) -> bool {
        !self.decide(&[Self::ASKS], Self::ASKS_LAST) && self.decide(&[Self::WAITS], Self::OVER)
    }

    /// Undoes a claim: the core that owns the keys did not run the call. A task runs it, or makes
    /// it wait.
    pub(crate) fn renew(&self, has_ended: bool) {
        let fate = if has_ended { Self::OVER } else { Self::WAITS };
        self.0.store(fate, Ordering::Release);
    }

    /// True if the call was served, so that its reply is in flight.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::TAKEN
    }

    fn decide(&self, from: &[u8], fate: u8) -> bool {
        let decide = |now| from.contains(&now).then_some(fate);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, decide).is_ok()
    }
}

/// A blocked call: its client and the request. The cores that own its keys share it.
pub(crate) struct WaitingCall {
    /// The number of the call, unique among all blocked calls.
    pub(crate) number: u64,
    /// The core of the client.
    pub(crate) core: CoreId,
    pub(crate) client: u64,
    /// The index of the command.
    pub(crate) entry: usize,
    pub(crate) request: Arc<Request>,
    pub(crate) view: View,
    pub(crate) resp3: bool,
    pub(crate) wait: Wait,
    pub(crate) fate: Fate,
    /// True if the call has ended. A task that is still adding its places then stops.
    pub(crate) has_left: AtomicBool,
}

/// The state of a blocked call, as its connection sees it.
pub(crate) struct Blocked {
    pub(crate) call: Arc<WaitingCall>,
    /// The deadline of the wait, in Unix milliseconds; `None` to wait without limit.
    pub(crate) until_ms: Option<u64>,
    pub(crate) stage: Stage,
    /// The cores that own the keys.
    pub(crate) cores: Vec<CoreId>,
}

/// The progress of a blocked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A task is adding the places of the call, or answers it.
    Begins,
    /// The call is waiting, or in flight to the core that owns its keys.
    Waits,
    /// The call was served, and its reply is in flight; meanwhile the client has timed out or was
    /// killed.
    Ends,
}

impl Blocked {
    /// A call that begins to wait at `now_ms`. The caller reads the clock for it, because the time
    /// of the turn may be earlier than the request.
    pub(crate) fn new(call: Arc<WaitingCall>, cores: Vec<CoreId>, now_ms: u64) -> Self {
        let until_ms = match call.wait.patience {
            // One millisecond more, because the current one has partly passed: no wait may end too
            // early.
            Patience::Millis(millis) => Some(now_ms.saturating_add(millis).saturating_add(1)),
            Patience::Endless => None,
            Patience::None => unreachable!("it does not wait"),
        };
        Self { call, until_ms, stage: Stage::Begins, cores }
    }

    /// Bytes of memory that the call occupies.
    pub(crate) fn memory_bytes(&self) -> usize {
        /// Bytes of memory of a key with a short name in the queues of its core, as measured.
        const PLACE_BYTES: usize = 160;
        let keys = self.call.wait.keys.len() * PLACE_BYTES;
        size_of::<Self>() + size_of::<WaitingCall>() + self.call.request.bytes() + keys
    }
}

/// The place of a call in the queue of one key.
#[derive(Clone, Copy)]
struct Place {
    /// The number of the call.
    number: u64,
    /// The index of the key in the request.
    at: u32,
    /// The state of the key when the wait began. Two halves of a [`Since`], because a 128-bit
    /// number would be aligned to 16 bytes.
    since: [u64; 2],
    /// The number of the condition on which the call waits.
    condition: Option<NonZeroU64>,
}

impl Place {
    fn since(&self) -> Since {
        Since(u128::from(self.since[0]) << 64 | u128::from(self.since[1]))
    }
}

/// The places in a queue, in order. A call that waits for a million keys is nearly always the only
/// one in each queue, and a tree with one entry allocates room for eleven.
enum Places {
    One(u64, Place),
    Many(Box<Many>),
}

struct Many {
    places: BTreeMap<u64, Place>,
    /// The condition of all places; `None` if they have several.
    condition: Option<NonZeroU64>,
}

impl Places {
    /// Adds a place. Returns false if its call has a place already.
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

    /// Removes the place of a call. Returns true if no place is left.
    fn remove(&mut self, number: u64) -> bool {
        match self {
            Self::One(only, _) => *only == number,
            Self::Many(all) => {
                all.places.remove(&number);
                // If one place is left, its condition is that of the whole queue again.
                if all.places.len() == 1
                    && let Some((only, place)) = all.places.pop_first()
                {
                    *self = Self::One(only, place);
                }
                false
            }
        }
    }

    /// The first place whose position is above `last`.
    fn after(&self, last: u64) -> Option<(u64, &Place)> {
        match self {
            Self::One(only, place) => (*only > last).then_some((*only, place)),
            Self::Many(all) => {
                let behind = (Bound::Excluded(last), Bound::Unbounded);
                all.places.range(behind).next().map(|(number, place)| (*number, place))
            }
        }
    }

    /// The condition of all places; `None` if they have several.
    fn condition(&self) -> Option<NonZeroU64> {
        match self {
            Self::One(_, place) => place.condition,
            Self::Many(all) => all.condition,
        }
    }
}

/// The queue of one key: its places in order of arrival.
struct Queue {
    db: usize,
    key: Name,
    places: Places,
}

/// The memory of a call with a million keys consists mostly of this type.
const _: () = assert!(size_of::<Queue>() <= 80);

/// The conditions on which calls of this core wait, each with a number.
#[derive(Default)]
struct Conditions {
    /// From a condition to its number, and the number of calls that wait on it.
    known: BTreeMap<Condition, (NonZeroU64, usize)>,
    last: u64,
}

impl Conditions {
    /// Adds a call that waits on a condition. Returns the number of the condition.
    fn add(&mut self, condition: Condition) -> NonZeroU64 {
        let last = &mut self.last;
        let (number, count) = self.known.entry(condition).or_insert_with(|| {
            *last += 1;
            (NonZeroU64::new(*last).expect("they are counted from 1"), 0)
        });
        *count += 1;
        *number
    }

    /// Removes a call that waited on a condition.
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
    /// The names of the keys for which it waits.
    names: Runs<u64>,
}

/// The blocked calls and the deadlines of one core.
#[derive(Default)]
pub(crate) struct Waits {
    keys: BTreeMap<u64, Vec<Queue>>,
    waiters: IdentityMap<Waiter>,
    conditions: Conditions,
    next_place: u64,
    next_call: u64,
    /// Calls that have left, and whose places are still to be removed: the position and the names
    /// of each.
    left: VecDeque<(u64, Runs<u64>)>,
    /// Pairs of a key of this core and a locked key of any core, for each of which a task waits.
    retries: BTreeSet<(u64, (CoreId, u64))>,
    /// The deadlines of this core's blocked clients, in Unix milliseconds, with their handles.
    deadlines: BTreeSet<(u64, u64)>,
    /// Keys of this core that must be checked at a given time, even if they do not change: pairs of
    /// Unix milliseconds and a name.
    due: BTreeSet<(u64, u64)>,
    due_of: BTreeMap<u64, u64>,
    /// The number of blocked clients of this core.
    blocked: usize,
    /// The number of connections that closed while the reply of a served call was in flight.
    lost: u64,
}

/// The next call that a key can serve.
pub(crate) struct Next {
    pub(crate) call: Arc<WaitingCall>,
    pub(crate) place: u64,
    /// The index of the key in the request.
    pub(crate) at: usize,
    pub(crate) since: Since,
    /// The result of checking the condition on the key.
    pub(crate) look: Look,
}

impl Waits {
    /// Returns a new number for a call, unique on this core.
    pub(crate) fn next_call(&mut self) -> u64 {
        self.next_call += 1;
        self.next_call
    }

    /// True if no call waits for a key of this core, so that commands need not check their keys.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// True if a call may be waiting for a key with this name.
    pub(crate) fn has(&self, name: u64) -> bool {
        self.keys.contains_key(&name)
    }

    /// Adds a call to the queue of the key at index `at` of its request. Returns true if it is the
    /// first call for this name.
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
            // If a request has the same key twice, the first counts.
            Some(queue) => queue.places.add(waiter.place, place),
            None => {
                let places = Places::One(waiter.place, place);
                queues.reserve_exact(1); // Room for one queue, because a name hardly ever has two.
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

    /// True if there are calls that have left and whose places are to be removed.
    pub(crate) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Removes at most `most` places of calls that have left. Returns the names for which no call
    /// waits any more.
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

    /// Records that a task waits for two keys. Returns false if a task does already.
    pub(crate) fn begin_retry(&mut self, name: u64, other: (CoreId, u64)) -> bool {
        self.retries.insert((name, other))
    }

    /// Records that the task has locked both keys.
    pub(crate) fn end_retry(&mut self, name: u64, other: (CoreId, u64)) {
        self.retries.remove(&(name, other));
    }

    /// Finds the first call behind position `place` that the key with this name can serve. Checks
    /// at most `most` calls, and visits at most [`PASSED_AT_ONCE`] places, including those skipped
    /// because their condition is unmet. If it must stop early, `Err` has the last position
    /// visited. A queue whose only condition is unmet, as with BLPOP, is skipped as a whole.
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
            // A name nearly always has a single queue.
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

    /// Schedules a check of the key with this name, unless an earlier check is scheduled.
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

    /// Takes the name of a key whose check is due.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<u64> {
        let (_, name) = *self.due.first().filter(|(at_ms, _)| *at_ms <= now_ms)?;
        self.set_due(name, None);
        Some(name)
    }

    /// Counts a client of this core that begins to wait, and records its deadline, if any.
    pub(crate) fn block(&mut self, client: u64, until_ms: Option<u64>) {
        self.blocked += 1;
        self.deadlines.extend(until_ms.map(|until| (until, client)));
    }

    /// Removes a client of this core, and its deadline, from the count.
    pub(crate) fn unblock(&mut self, client: u64, until_ms: Option<u64>) {
        assert!(self.blocked > 0, "client {client} did not wait");
        self.blocked -= 1;
        if let Some(until) = until_ms {
            self.deadlines.remove(&(until, client));
        }
    }

    /// The number of blocked clients of this core, and the number of those with a deadline.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.blocked, self.deadlines.len())
    }

    /// Counts a connection that closed while the reply of a served call was in flight.
    pub(crate) fn count_lost(&mut self) {
        self.lost += 1;
    }

    /// The number of connections that closed while the reply of a served call was in flight.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// The earliest time at which a client times out or a key must be checked, in Unix
    /// milliseconds.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let firsts = [self.deadlines.first(), self.due.first()];
        firsts.into_iter().flatten().map(|(until, _)| *until).min()
    }

    /// A client of this core whose deadline has passed, if any.
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

    /// A call that waits without a condition.
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

    #[test] // Two keys share the number of a lock, and one call names a key twice.
    fn calls_on_a_key_are_found_in_order_of_arrival() {
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

    #[test] // All calls of the queue wait on the condition that the first check finds unmet.
    fn a_queue_with_one_unmet_condition_is_skipped_as_a_whole() {
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

    #[test] // When that call has left, the whole queue has one condition again.
    fn a_call_without_a_condition_is_checked_behind_an_unmet_one() {
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
    fn deadlines_of_clients_and_keys_pass_in_order() {
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
