//! Messages between cores: a ring for each pair and direction, and a wake for sleepers only.
//!
//! All that one flush sends to a core goes into its ring as one *bundle*, and costs one wake at most,
//! which is skipped while the receiver is awake: under load a wake serves dozens of messages. A flush
//! sends everything or nothing: while a ring that it needs is full, all messages stay in the sender's
//! own queues.
//!
//! ```text
//! core 0 --queue--> ring 0→1 --> core 1        each: Producer with a queue, Consumer,
//! core 1 --queue--> ring 1→0 --> core 0        and a flag "sleeping" with its waker
//! ```
//! Order: a core that has received a message of a flush, and answers, never has its answer taken before
//! the other messages of that flush, on any core (docs/design/0011-pipeline-order.md). With two cores
//! that needs nothing, as a ring is a queue. With more, a flush is published by one store: it writes its
//! stamp, a reading of the monotonic clock, into the sender's word. A drain takes the bundles that were
//! published before it began, by these words and by the clock, in the order of their stamps:
//!
//! ```text
//! flush:  stamp = now;  bundles with the stamp into the rings;  published[me] = stamp
//! drain:  began = now;  read all of published;  take bundles with stamp <= published[sender], < began
//! ```
//! A bundle that was published after the drain read its sender's word was published after `began`. So
//! every answer to it has a later stamp still. The drain may already find such an answer in its rings:
//! it leaves it to the next drain, which finds both.
//!
//! Bound: a queue is as long as the messages that the turn posts and the receiver does not take.
//! The sender bounds it by the hops it keeps open (one message a connection and target), and takes
//! no more input while there is a [`Mailbox::backlog`].
//!
//! Sleep: the sleeper sets its flag, then looks at its rings; a sender fills the ring, publishes, then
//! looks at the flag. With a full fence between the two on both sides, one of them sees the other. A
//! bundle that a drain leaves in its ring keeps the receiver awake.
//!
//! Not here: the meaning of a message, and the order in which messages run. See `tx` and `server`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use crate::clock;
use crate::net::Waker;
use crate::ring::{Consumer, Padded, Producer, ring};

/// The state that all cores share.
struct Bells {
    sleeping: Vec<Padded<AtomicBool>>,
    wakers: Vec<Waker>,
    /// The stamp of each core's last flush. Not used with two cores.
    published: Vec<Padded<AtomicU64>>,
}

/// The messages of one flush to one core.
struct Bundle<T> {
    stamp: u64,
    first: T,
    rest: Vec<T>,
}

struct Lane<T> {
    queue: Vec<T>,
    outgoing: Producer<Bundle<T>>,
    incoming: Consumer<Bundle<T>>,
    /// Whether the current flush sends something to this core.
    notify: bool,
    /// The current drain takes bundles with stamps up to this one.
    limit: u64,
}

/// One core's end of the mesh.
pub struct Mailbox<T> {
    me: usize,
    /// The lanes to the other cores, by core. `None` for this core.
    lanes: Vec<Option<Lane<T>>>,
    bells: Arc<Bells>,
    /// The stamp of the last flush.
    stamp: u64,
    wakes: u64,
}

/// Makes the mailboxes of the cores of `wakers`, in their order. Each ring has room for the bundles
/// of `capacity` flushes.
#[must_use]
pub fn mesh<T: Send>(wakers: Vec<Waker>, capacity: usize) -> Vec<Mailbox<T>> {
    let cores = wakers.len();
    assert!(cores > 0, "no core");
    let sleeping = (0..cores).map(|_| Padded::default()).collect();
    let published = (0..cores).map(|_| Padded::default()).collect();
    let bells = Arc::new(Bells { sleeping, wakers, published });
    let mut boxes: Vec<Mailbox<T>> = (0..cores)
        .map(|me| Mailbox {
            me,
            lanes: (0..cores).map(|_| None).collect(),
            bells: Arc::clone(&bells),
            stamp: 0,
            wakes: 0,
        })
        .collect();
    for one in 0..cores {
        for other in one + 1..cores {
            let (there, from_there) = ring(capacity);
            let (back, from_back) = ring(capacity);
            boxes[one].lanes[other] = Some(Lane::new(there, from_back));
            boxes[other].lanes[one] = Some(Lane::new(back, from_there));
        }
    }
    boxes
}

impl<T> Lane<T> {
    fn new(outgoing: Producer<Bundle<T>>, incoming: Consumer<Bundle<T>>) -> Self {
        Self { queue: Vec::new(), outgoing, incoming, notify: false, limit: 0 }
    }
}

impl<T: Send> Lane<T> {
    /// Whether the posted messages fit into the ring.
    fn has_room(&mut self) -> bool {
        self.queue.is_empty() || self.outgoing.has_room()
    }

    /// Puts the posted messages into the ring, which has room for them.
    fn send(&mut self, stamp: u64) {
        self.notify = !self.queue.is_empty();
        let rest = if self.queue.len() > 1 { self.queue.drain(1..).collect() } else { Vec::new() };
        if let Some(first) = self.queue.pop() {
            let sent = self.outgoing.push(Bundle { stamp, first, rest });
            assert!(sent.is_ok(), "a ring with room is full");
            darter_base::spare::release(&mut self.queue);
        }
    }
}

impl<T> Bundle<T> {
    /// Calls `each` with its messages, in order. Returns how many there were.
    fn open(self, from: usize, each: &mut impl FnMut(usize, T)) -> usize {
        let count = 1 + self.rest.len();
        each(from, self.first);
        self.rest.into_iter().for_each(|message| each(from, message));
        count
    }
}

impl<T: Send> Mailbox<T> {
    /// This core's number.
    #[must_use]
    pub fn me(&self) -> usize {
        self.me
    }

    /// The number of cores, this one included.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.lanes.len()
    }

    /// Queues `message` for core `to`. The next [`Mailbox::flush`] sends it. Panics if `to` is this
    /// core or does not exist.
    pub fn post(&mut self, to: usize, message: T) {
        let lane = self.lanes[to].as_mut().expect("a core does not write to itself");
        lane.queue.push(message);
    }

    /// Sends the posted messages, and wakes sleepers. False when a ring was full: then nothing has
    /// left, and later posts queue after it. Call it before the network's sends, which must wait if
    /// it fails: no client may learn of a change before the cores have been sent the changes before
    /// it.
    #[must_use]
    pub fn flush(&mut self) -> bool {
        if self.backlog() == 0 {
            return true;
        }
        if !self.lanes.iter_mut().flatten().all(Lane::has_room) {
            return false;
        }
        if self.has_many_peers() {
            self.stamp = clock::monotonic_nanos().max(self.stamp + 1);
        }
        for lane in self.lanes.iter_mut().flatten() {
            lane.send(self.stamp);
        }
        if self.has_many_peers() {
            // Release: the bundles before the word.
            self.bells.published[self.me].0.store(self.stamp, Ordering::Release);
        }
        self.wake_sleepers();
        true
    }

    /// Takes all messages that were published before the call, in their order. Returns how many.
    /// The number is bounded by the rings' capacity.
    pub fn drain(&mut self, mut each: impl FnMut(usize, T)) -> usize {
        if self.has_many_peers() {
            return if self.has_mail() { self.drain_by_stamps(each) } else { 0 };
        }
        let mut count = 0;
        for (from, lane) in self.lanes.iter_mut().enumerate() {
            let Some(lane) = lane else { continue };
            lane.incoming.pop_all(|bundle| count += bundle.open(from, &mut each));
        }
        count
    }

    /// [`Mailbox::drain`] for several peers: see the module.
    fn drain_by_stamps(&mut self, mut each: impl FnMut(usize, T)) -> usize {
        // The processor may read the words some nanoseconds before the clock. For another core to
        // receive a bundle and to answer takes a hundred.
        let began = clock::monotonic_nanos();
        for (lane, published) in self.lanes.iter_mut().zip(&self.bells.published) {
            let Some(lane) = lane else { continue };
            // Acquire: the bundles up to this stamp.
            lane.limit = published.0.load(Ordering::Acquire).min(began - 1);
        }
        let mut count = 0;
        while let Some(from) = self.next_sender() {
            let lane = self.lanes[from].as_mut().expect("it has a bundle");
            if let Some(bundle) = lane.incoming.pop() {
                count += bundle.open(from, &mut each);
            }
        }
        count
    }

    /// The core whose bundle this drain takes next: the one with the lowest stamp.
    fn next_sender(&mut self) -> Option<usize> {
        let firsts = self.lanes.iter_mut().enumerate().filter_map(|(from, lane)| {
            let lane = lane.as_mut()?;
            let stamp = lane.incoming.front()?.stamp;
            (stamp <= lane.limit).then_some((stamp, from))
        });
        firsts.min().map(|(_, from)| from)
    }

    /// With one peer the ring alone keeps the order.
    fn has_many_peers(&self) -> bool {
        self.lanes.len() > 2
    }

    /// Whether a message has arrived.
    #[must_use]
    pub fn has_mail(&self) -> bool {
        self.lanes.iter().flatten().any(|lane| !lane.incoming.is_empty())
    }

    /// The number of messages that did not fit into full rings.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.lanes.iter().flatten().map(|lane| lane.queue.len()).sum()
    }

    /// Announces sleep, and says whether it is safe: false when messages wait, here or in a
    /// queue. After true, sleep at once, then call [`Mailbox::after_sleep`].
    pub fn before_sleep(&mut self) -> bool {
        if self.backlog() > 0 {
            return false;
        }
        let flag = &self.bells.sleeping[self.me].0;
        debug_assert!(!flag.load(Ordering::Relaxed), "core {} sleeps already", self.me);
        flag.store(true, Ordering::Relaxed);
        // Pairs with the fence in `wake_sleepers`.
        fence(Ordering::SeqCst);
        let safe = !self.has_mail();
        if !safe {
            flag.store(false, Ordering::Relaxed);
        }
        safe
    }

    /// Clears the flag that `before_sleep` set.
    pub fn after_sleep(&mut self) {
        self.bells.sleeping[self.me].0.store(false, Ordering::Relaxed);
    }

    /// How often this core woke another one, for the metrics.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    fn wake_sleepers(&mut self) {
        // Pairs with the fence in `before_sleep`.
        fence(Ordering::SeqCst);
        for (core, lane) in self.lanes.iter().enumerate() {
            let flag = &self.bells.sleeping[core].0;
            let notify = lane.as_ref().is_some_and(|lane| lane.notify);
            // If several cores would wake the sleeper, only the one whose swap succeeds does.
            if notify && flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Relaxed) {
                self.bells.wakers[core].wake();
                self.wakes += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{BackendChoice, Net, Wait};

    fn wakers(count: usize) -> Vec<Waker> {
        (0..count).map(|_| Waker::new().unwrap()).collect()
    }

    #[test]
    fn messages_beyond_a_full_ring_keep_their_order() {
        let mut boxes = mesh::<u32>(wakers(2), 4);
        let mut other = boxes.pop().unwrap();
        let mut one = boxes.pop().unwrap();
        assert_eq!((one.me(), other.me(), one.cores()), (0, 1, 2));
        for message in 0..10 {
            one.post(1, message);
            assert_eq!(one.flush(), message < 4);
        }
        assert_eq!(one.backlog(), 6);
        let mut got = Vec::new();
        for left in [6, 0] {
            assert_eq!(one.before_sleep(), left == 0);
            other.drain(|from, message| got.push((from, message)));
            assert!(one.flush());
            assert_eq!(one.backlog(), 0);
        }
        assert_eq!(got, (0..10).map(|message| (0, message)).collect::<Vec<_>>());
    }

    #[test] // None while one of the rings is full.
    fn a_flush_sends_all_messages_or_none() {
        let mut boxes = mesh::<u32>(wakers(3), 1);
        let mut third = boxes.pop().unwrap();
        let mut second = boxes.pop().unwrap();
        let mut first = boxes.pop().unwrap();
        first.post(1, 1);
        assert!(first.flush());
        first.post(2, 2);
        first.post(1, 3);
        assert!(!first.flush());
        assert_eq!(first.backlog(), 2);
        assert_eq!(third.drain(|_, _| {}), 0, "half of a flush");
        let mut got = Vec::new();
        assert_eq!(second.drain(|_, message| got.push(message)), 1);
        assert!(first.flush());
        assert_eq!(third.drain(|_, message| got.push(message)), 1);
        assert_eq!(second.drain(|_, message| got.push(message)), 1);
        assert_eq!(got, [1, 2, 3]);
    }

    #[test]
    fn unpublished_messages_are_not_received_and_prevent_sleep() {
        let mut boxes = mesh::<u32>(wakers(3), 4);
        let mut other = boxes.pop().unwrap();
        let mut one = boxes.pop().unwrap();
        one.post(2, 1);
        let stamp = clock::monotonic_nanos();
        one.lanes[2].as_mut().unwrap().send(stamp);
        assert_eq!(other.drain(|_, _| {}), 0);
        assert!(!other.before_sleep());
        one.bells.published[1].0.store(stamp, Ordering::Release);
        assert_eq!(other.drain(|_, _| {}), 1);
        assert!(other.before_sleep());
    }

    #[test]
    fn replies_never_overtake_the_rest_of_a_flush() {
        const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let mut boxes = mesh::<u64>(wakers(4), 64).into_iter();
        let (mut writer, mut checker) = (boxes.next().unwrap(), boxes.next().unwrap());
        let run = |mut echo: Mailbox<u64>| {
            let mut last = 0;
            while last < ROUNDS || echo.backlog() > 0 {
                if echo.drain(|_, number| last = number) > 0 {
                    echo.post(1, last);
                }
                let _ = echo.flush();
                std::thread::yield_now();
            }
        };
        let echoes: Vec<_> = boxes.map(|echo| std::thread::spawn(move || run(echo))).collect();
        let writing = std::thread::spawn(move || {
            for number in 1..=ROUNDS {
                // The order of the three cores must not matter.
                let to = if number % 2 == 0 { [1, 2, 3] } else { [3, 2, 1] };
                to.iter().for_each(|core| writer.post(*core, number));
                while !writer.flush() {
                    std::thread::yield_now();
                }
            }
        });
        let mut seen = [0; 4];
        while seen.iter().sum::<u64>() < 3 * ROUNDS {
            checker.drain(|from, number| {
                seen[from] = number;
                assert!(number <= seen[0], "core {from} was first with {number}");
            });
            std::thread::yield_now();
        }
        writing.join().unwrap();
        echoes.into_iter().for_each(|echo| echo.join().unwrap());
    }

    #[test] // Once each.
    fn only_sleeping_cores_are_woken() {
        let mut boxes = mesh::<u32>(wakers(2), 4);
        let mut other = boxes.pop().unwrap();
        let mut one = boxes.pop().unwrap();
        one.post(1, 1);
        assert!(one.flush());
        assert_eq!(one.wakes(), 0);
        assert!(!other.before_sleep(), "a message waits");
        assert_eq!(other.drain(|_, _| {}), 1);
        assert!(other.before_sleep());
        one.post(1, 2);
        assert!(one.flush());
        one.post(1, 3);
        assert!(one.flush());
        assert_eq!(one.wakes(), 1);
        other.after_sleep();
        assert_eq!(other.drain(|_, _| {}), 2);
    }

    #[test] // Cores that sleep as often as they can miss no message, and receive each once.
    fn sleeping_cores_miss_no_message() {
        const ROUNDS: u32 = 3_000;
        let wakers = wakers(3);
        let boxes = mesh::<u32>(wakers.clone(), 8);
        let run = |mut mailbox: Mailbox<u32>, waker: Waker| {
            let (mut net, _) = Net::open(BackendChoice::Epoll, &waker).unwrap();
            let (me, mut seen, mut tokens) = (mailbox.me(), 0, Vec::new());
            if me == 0 {
                mailbox.post(1, 0);
            }
            // One token goes round: a missed message would stop every core.
            while seen < ROUNDS {
                mailbox.drain(|_, token| tokens.push(token));
                for token in tokens.drain(..) {
                    assert_eq!(token as usize % 3, (me + 2) % 3);
                    seen += 1;
                    mailbox.post((me + 1) % 3, token + 1);
                }
                assert!(mailbox.flush());
                if seen < ROUNDS && mailbox.before_sleep() {
                    net.poll(Wait::Forever, &mut |_| {}).unwrap();
                    mailbox.after_sleep();
                }
            }
            // The last message goes to a core that has finished.
            seen
        };
        let threads: Vec<_> = boxes
            .into_iter()
            .zip(wakers)
            .map(|(mailbox, waker)| std::thread::spawn(move || run(mailbox, waker)))
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), ROUNDS);
        }
    }
}
