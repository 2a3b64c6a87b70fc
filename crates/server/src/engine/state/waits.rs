//! Who waits for keys of this core: by key, in the order in which they came; and the clients of this
//! core that wait, by when their time is over.
//!
//! ```text
//! keys:     name -> key "jobs"  -> 17: client 5, its 1st key   23: client 9, its 2nd key
//!                   key "mails" -> 23: client 9, its 1st key
//! waiters:  number -> client 9, its place 23, and its names
//! ```
//! A name is what a key is locked under: two keys that share one are told apart here. A waiter has
//! one place on all its keys of this core. One that leaves is forgotten at once; its places in the
//! queues are removed in portions, and mean nothing meanwhile. Of those who wait for
//! a key on the same condition nobody is asked once one has found nothing.
//!
//! Invariants (`check_invariants`):
//! - Q1: every place of a waiter is in the queue of its key, and every place in a queue is that of a
//!   waiter, or of one that has left and is still to be removed.
//! - Q2: no queue is empty, and `keys` has no name without a queue.
//! - Q3: `due` and `due_of` say the same, of keys that somebody waits for.
//! - Q4: a condition is known while somebody waits on it.
//! - Q5: if the places of a queue share a condition, all of them wait on that.

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

/// Places that are passed over at once, on a condition on which one has found nothing: about 30 us.
const PASSED_AT_ONCE: usize = 64;

/// Whether a call still waits. Shared by the core of its client, which may end the waiting, and those
/// of its keys, each of which may take what is wanted: whoever is first decides, for good.
#[derive(Debug, Default)]
pub(crate) struct Fate(AtomicU8);

impl Fate {
    const WAITS: u8 = 0;
    /// It is on its way to the core of its keys, which runs it, or has it wait.
    const ASKS: u8 = 1;
    /// The same of a client that has ended its side, or whose time is over: it may be answered, but not
    /// wait.
    const ASKS_LAST: u8 = 2;
    const TAKEN: u8 = 3;
    const OVER: u8 = 4;

    /// Of a call that is sent to the core of its keys.
    pub(crate) fn asks(has_ended: bool) -> Self {
        Self(AtomicU8::new(if has_ended { Self::ASKS_LAST } else { Self::ASKS }))
    }

    /// The core of a key is about to take what is wanted, in the same step. False if it may not:
    /// another one has, or the waiting is over.
    pub(crate) fn take(&self) -> bool {
        self.decide(&[Self::WAITS], Self::TAKEN)
    }

    /// The core of its keys is about to run it, in the same step. False if that is over.
    pub(crate) fn answer(&self) -> bool {
        self.decide(&[Self::ASKS, Self::ASKS_LAST], Self::TAKEN)
    }

    /// The core of its keys has nothing, so it is to wait. False if it is over, or its client has ended
    /// its side.
    pub(crate) fn wait(&self) -> bool {
        self.decide(&[Self::ASKS], Self::WAITS)
    }

    /// The core of the client ends the waiting. False if something was taken.
    pub(crate) fn end(&self) -> bool {
        self.decide(&[Self::WAITS, Self::ASKS, Self::ASKS_LAST], Self::OVER)
    }

    /// The client has ended its side, or its time is over. True if that ends the waiting; a call that is
    /// on its way may still be answered.
    pub(crate) fn end_if_waiting(&self) -> bool {
        !self.decide(&[Self::ASKS], Self::ASKS_LAST) && self.decide(&[Self::WAITS], Self::OVER)
    }

    /// The core of its keys has not run it after all, nor lets it wait: a task does.
    pub(crate) fn renew(&self, has_ended: bool) {
        let fate = if has_ended { Self::OVER } else { Self::WAITS };
        self.0.store(fate, Ordering::Release);
    }

    /// True when something was taken: its answer is on its way.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::TAKEN
    }

    fn decide(&self, from: &[u8], fate: u8) -> bool {
        let decide = |now| from.contains(&now).then_some(fate);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, decide).is_ok()
    }
}

/// A call that waits: who calls, and for what it waits. Shared by the cores of its keys.
pub(crate) struct WaitingCall {
    /// Unique among all calls that wait.
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
    /// Nobody wants it any more: who is still giving it places stops.
    pub(crate) has_left: AtomicBool,
}

/// What a connection knows of the call with which it waits.
pub(crate) struct Blocked {
    pub(crate) call: Arc<WaitingCall>,
    /// When its time is over, in Unix milliseconds.
    pub(crate) until_ms: Option<u64>,
    pub(crate) stage: Stage,
    /// The cores of its keys.
    pub(crate) cores: Vec<CoreId>,
}

/// How far a call that waits has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A task has it wait, or answers it: it may not have all its places yet.
    Begins,
    /// It waits, or is on its way to the core of its keys.
    Waits,
    /// Its time was over when something had been taken for it, or it was killed.
    Ends,
}

impl Blocked {
    /// A call that begins now.
    pub(crate) fn new(call: Arc<WaitingCall>, cores: Vec<CoreId>, now_ms: u64) -> Self {
        let until_ms = match call.wait.patience {
            Patience::Millis(millis) => Some(now_ms.saturating_add(millis)),
            Patience::Endless => None,
            Patience::None => unreachable!("it does not wait"),
        };
        Self { call, until_ms, stage: Stage::Begins, cores }
    }

    /// Bytes that it holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        /// What a key takes in the lists of its core, with a short name, as measured.
        const PLACE_BYTES: usize = 160;
        let keys = self.call.wait.keys.len() * PLACE_BYTES;
        size_of::<Self>() + size_of::<WaitingCall>() + self.call.request.bytes() + keys
    }
}

/// A client's waiting for one key.
#[derive(Clone, Copy)]
struct Place {
    /// The number of its call.
    number: u64,
    /// Index of the key in its request.
    at: u32,
    /// What the key was as the waiting began: the halves of [`Since`], which would be aligned to 16.
    since: [u64; 2],
    /// The number of its condition.
    condition: Option<NonZeroU64>,
}

impl Place {
    fn since(&self) -> Since {
        Since(u128::from(self.since[0]) << 64 | u128::from(self.since[1]))
    }
}

/// The places of those who wait for a key, in their order. Who waits for a million keys is nearly always
/// the only one for each: a tree of one place would be a node for eleven.
enum Places {
    One(u64, Place),
    Many(Box<Many>),
}

struct Many {
    places: BTreeMap<u64, Place>,
    /// What all of them wait on, if that is one condition.
    condition: Option<NonZeroU64>,
}

impl Places {
    /// Somebody waits, unless it does already. True if it did not.
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

    /// Somebody does not wait any more. True if nobody does then.
    fn remove(&mut self, number: u64) -> bool {
        match self {
            Self::One(only, _) => *only == number,
            Self::Many(all) => {
                all.places.remove(&number);
                // The last one's condition is that of all again.
                if all.places.len() == 1
                    && let Some((only, place)) = all.places.pop_first()
                {
                    *self = Self::One(only, place);
                }
                false
            }
        }
    }

    /// The first behind a place.
    fn after(&self, last: u64) -> Option<(u64, &Place)> {
        match self {
            Self::One(only, place) => (*only > last).then_some((*only, place)),
            Self::Many(all) => {
                let behind = (Bound::Excluded(last), Bound::Unbounded);
                all.places.range(behind).next().map(|(number, place)| (*number, place))
            }
        }
    }

    /// What all of them wait on, if that is one condition.
    fn condition(&self) -> Option<NonZeroU64> {
        match self {
            Self::One(_, place) => place.condition,
            Self::Many(all) => all.condition,
        }
    }
}

/// One key, and who waits for it, in the order of their arrival.
struct Queue {
    db: usize,
    key: Name,
    places: Places,
}

/// What a key takes beside its bytes: most of what a call takes that waits for a million.
const _: () = assert!(size_of::<Queue>() <= 80);

/// The conditions on which somebody waits on this core, each with a number meanwhile.
#[derive(Default)]
struct Conditions {
    /// With how many wait on it.
    known: BTreeMap<Condition, (NonZeroU64, usize)>,
    last: u64,
}

impl Conditions {
    /// One more waits on a condition. Returns its number.
    fn add(&mut self, condition: Condition) -> NonZeroU64 {
        let last = &mut self.last;
        let (number, count) = self.known.entry(condition).or_insert_with(|| {
            *last += 1;
            (NonZeroU64::new(*last).expect("they are counted from 1"), 0)
        });
        *count += 1;
        *number
    }

    /// One less is.
    fn remove(&mut self, condition: &Condition) {
        let known =
            self.known.get_mut(condition).expect("Q4: it is known while somebody waits on it");
        known.1 -= 1;
        if known.1 == 0 {
            self.known.remove(condition);
        }
    }
}

/// One who waits for keys of this core.
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
    /// The place and the names of those who left.
    left: VecDeque<(u64, Runs<u64>)>,
    /// Keys of this core, each with one that is locked, which tasks wait for.
    retries: BTreeSet<(u64, (CoreId, u64))>,
    /// Clients of this core whose time will be over, by that moment, in Unix milliseconds.
    deadlines: BTreeSet<(u64, u64)>,
    /// Keys of this core that are to be looked at though nothing may have changed them: by when, in
    /// Unix milliseconds, and by name.
    due: BTreeSet<(u64, u64)>,
    due_of: BTreeMap<u64, u64>,
    /// Clients of this core that wait.
    blocked: usize,
    /// Connections that ended while their replies were on their way.
    lost: u64,
}

/// The next who waits for a key.
pub(crate) struct Next {
    pub(crate) call: Arc<WaitingCall>,
    pub(crate) place: u64,
    /// Index of the key in its request.
    pub(crate) at: usize,
    pub(crate) since: Since,
    /// What is there.
    pub(crate) look: Look,
}

impl Waits {
    /// A number that no call of this core has had.
    pub(crate) fn next_call(&mut self) -> u64 {
        self.next_call += 1;
        self.next_call
    }

    /// True when nobody waits for a key of this core: then no command needs to look.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// True when somebody may wait for a key of this name.
    pub(crate) fn has(&self, name: u64) -> bool {
        self.keys.contains_key(&name)
    }

    /// A call waits for the key at index `at` of its request. True if it is the first for this name.
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
            // A key that is named twice is waited for once: as the first says.
            Some(queue) => queue.places.add(waiter.place, place),
            None => {
                let places = Places::One(waiter.place, place);
                queues.reserve_exact(1); // Hardly ever are there two.
                queues.push(Queue { db, key: Name::from(key), places });
                true
            }
        };
        if is_new {
            waiter.names.push(name);
        }
        is_first
    }

    /// A call waits no more.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(waiter) = self.waiters.remove(&number) {
            if let Some(condition) = waiter.call.wait.want.condition() {
                self.conditions.remove(&condition);
            }
            self.left.push_back((waiter.place, waiter.names));
        }
    }

    /// True when places of those who left are to be removed.
    pub(crate) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Removes some places of those who left. Returns the names that nobody waits for any more.
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

    /// A task is to wait for two keys. False if one does already.
    pub(crate) fn begin_retry(&mut self, name: u64, other: (CoreId, u64)) -> bool {
        self.retries.insert((name, other))
    }

    /// The task has both keys.
    pub(crate) fn end_retry(&mut self, name: u64, other: (CoreId, u64)) {
        self.retries.remove(&(name, other));
    }

    /// The first who waits for a key of this name behind `place`, and finds something there. At most
    /// `most` are asked, and few enough passed over who wait on a condition that one has found unmet:
    /// `Err` has the place up to which nobody did, if there are more behind it. Where all wait on
    /// one that is unmet, as those of BLPOP do, nobody is passed over.
    pub(crate) fn next(
        &self,
        name: u64,
        place: u64,
        most: usize,
        mut look: impl FnMut(&WaitingCall, usize, Since) -> Look,
    ) -> Result<Option<Next>, u64> {
        let Some(queues) = self.keys.get(&name) else { return Ok(None) };
        let (mut last, mut asked, mut unready) = (place, 0, Vec::new());
        for _ in 0..PASSED_AT_ONCE {
            let is_open = |(at, queue): &(usize, &Queue)| {
                let condition = queue.places.condition();
                condition.is_none_or(|condition| !unready.contains(&(*at, condition)))
            };
            // Nearly always there is one queue.
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
            asked += 1;
            if asked == most {
                break;
            }
        }
        Err(last)
    }

    /// A key is to be looked at by this moment, if it is earlier than what was said before.
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

    /// A key that is to be looked at by now: it is said once.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<u64> {
        let (_, name) = *self.due.first().filter(|(at_ms, _)| *at_ms <= now_ms)?;
        self.set_due(name, None);
        Some(name)
    }

    /// A client of this core waits, until a moment or for ever.
    pub(crate) fn block(&mut self, client: u64, until_ms: Option<u64>) {
        self.blocked += 1;
        self.deadlines.extend(until_ms.map(|until| (until, client)));
    }

    /// A client of this core, which was to wait until then, waits no more.
    pub(crate) fn unblock(&mut self, client: u64, until_ms: Option<u64>) {
        assert!(self.blocked > 0, "client {client} did not wait");
        self.blocked -= 1;
        if let Some(until) = until_ms {
            self.deadlines.remove(&(until, client));
        }
    }

    /// Clients of this core that wait, and those of them that do not for ever.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.blocked, self.deadlines.len())
    }

    /// A connection has ended while its replies were on their way.
    pub(crate) fn count_lost(&mut self) {
        self.lost += 1;
    }

    /// How many have.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// When the time of a client of this core is over next, or a key is to be looked at: in Unix
    /// milliseconds.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let firsts = [self.deadlines.first(), self.due.first()];
        firsts.into_iter().flatten().map(|(until, _)| *until).min()
    }

    /// A client of this core whose time is over.
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

    /// It waits on what no other does.
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

    #[test] // Two keys of one name, a key named twice, one that leaves.
    fn they_are_found_in_the_order_in_which_they_came() {
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
        let mut asked = 0;
        let found = waits.next(1, 0, 8, |_, _, _| {
            asked += 1;
            Look::Nothing
        });
        assert!(matches!(found, Ok(None)));
        assert_eq!(asked, 2, "one of each key: they wait on one condition");
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

    #[test] // However many wait: the first has found nothing, and all wait on the same.
    fn nobody_is_passed_over_where_all_wait_on_the_same() {
        let mut waits = Waits::default();
        let many = 3 * PASSED_AT_ONCE as u64;
        for number in 0..many {
            waits.add(&call(number), (1, 0), (b"a", 1, Since(0)));
        }
        let mut asked = 0;
        let found = waits.next(1, 0, 8, |_, _, _| {
            asked += 1;
            Look::Nothing
        });
        assert!(matches!(found, Ok(None)));
        assert_eq!(asked, 1);
        assert_eq!(next(&waits, 1, many - 1), Some((many - 1, many)));
        waits.check_invariants();
    }

    #[test] // Who waits on something else is asked; when it has left, all wait on one thing again.
    fn one_who_waits_on_something_else_is_asked() {
        let mut waits = Waits::default();
        let asked = |waits: &Waits| {
            let mut asked = Vec::new();
            let found = waits.next(1, 0, 8, |call, _, _| {
                asked.push(call.number);
                Look::Nothing
            });
            assert!(matches!(found, Ok(None)));
            asked
        };
        for number in [1, 3] {
            waits.add(&call(number), (1, 0), (b"a", 1, Since(0)));
        }
        waits.add(&call_for(4, Box::new(Alone)), (1, 0), (b"a", 1, Since(0)));
        waits.check_invariants();
        assert_eq!(asked(&waits), [1, 4]);
        waits.remove(3);
        waits.remove(4);
        waits.remove_some(8);
        let many = 3 * PASSED_AT_ONCE as u64;
        for number in 10..many {
            waits.add(&call(number), (1, 0), (b"a", 1, Since(0)));
        }
        assert_eq!(asked(&waits), [1], "and nobody is passed over");
        waits.check_invariants();
    }

    #[test]
    fn deadlines_come_in_their_order() {
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
