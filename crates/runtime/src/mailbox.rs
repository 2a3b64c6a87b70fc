//! Messages between cores: a ring for each pair and direction, and a wake for sleepers only.
//!
//! A turn's messages to one core go in with one store, and cost one wake at most, which is skipped
//! while the receiver is awake: under load a wake serves dozens of messages. What a full ring does
//! not take stays in the sender's own queue, in order, and goes first next time.
//!
//! ```text
//! core 0 --queue--> ring 0→1 --> core 1        each: Producer with a queue, Consumer,
//! core 1 --queue--> ring 1→0 --> core 0        and a flag "sleeping" with its waker
//! ```
//! Bound: a queue is as long as what the turn posts and the receiver does not take. The sender
//! bounds it by the hops it keeps open (one message a connection and target); [`Mailbox::backlog`]
//! tells when to take no more input.
//!
//! Sleep: the sleeper sets its flag, then looks at its rings; a sender fills the ring, then looks
//! at the flag. With a full fence between the two on both sides, one of them sees the other.
//!
//! Not here: what a message means. See `tx` and `server`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crate::net::Waker;
use crate::ring::{Consumer, Padded, Producer, ring};

/// What all cores know of each other.
struct Bells {
    sleeping: Vec<Padded<AtomicBool>>,
    wakers: Vec<Waker>,
}

struct Lane<T> {
    queue: VecDeque<T>,
    outgoing: Producer<T>,
    incoming: Consumer<T>,
    /// This flush had something for it.
    told: bool,
}

/// One core's end of the mesh.
pub struct Mailbox<T> {
    me: usize,
    /// By core; none for oneself.
    lanes: Vec<Option<Lane<T>>>,
    bells: Arc<Bells>,
    wakes: u64,
}

/// The mailboxes of as many cores as there are `wakers`, in their order; each ring takes
/// `capacity` messages.
#[must_use]
pub fn mesh<T: Send>(wakers: Vec<Waker>, capacity: usize) -> Vec<Mailbox<T>> {
    let cores = wakers.len();
    assert!(cores > 0, "no core");
    let sleeping = (0..cores).map(|_| Padded::default()).collect();
    let bells = Arc::new(Bells { sleeping, wakers });
    let mut boxes: Vec<Mailbox<T>> = (0..cores)
        .map(|me| Mailbox {
            me,
            lanes: (0..cores).map(|_| None).collect(),
            bells: Arc::clone(&bells),
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
    fn new(outgoing: Producer<T>, incoming: Consumer<T>) -> Self {
        Self { queue: VecDeque::new(), outgoing, incoming, told: false }
    }
}

impl<T: Send> Mailbox<T> {
    /// This core's number.
    #[must_use]
    pub fn me(&self) -> usize {
        self.me
    }

    /// How many cores there are, this one included.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.lanes.len()
    }

    /// Queues `message` for core `to`; it leaves with the next [`Mailbox::flush`]. Panics when
    /// `to` is this core or none.
    pub fn post(&mut self, to: usize, message: T) {
        let lane = self.lanes[to].as_mut().expect("a core does not write to itself");
        lane.queue.push_back(message);
    }

    /// Sends what was posted, and wakes those who sleep. Once a turn, before the network's sends.
    pub fn flush(&mut self) {
        let mut sent = false;
        for lane in self.lanes.iter_mut().flatten() {
            lane.told = !lane.queue.is_empty();
            if lane.told {
                lane.outgoing.push_all(&mut lane.queue);
                sent = true;
            }
        }
        if sent {
            self.wake_sleepers();
        }
    }

    /// Takes all messages that have come, core by core, in order. Returns how many. Bounded by the
    /// rings' capacity.
    pub fn drain(&mut self, mut each: impl FnMut(usize, T)) -> usize {
        let mut count = 0;
        for (from, lane) in self.lanes.iter_mut().enumerate() {
            let Some(lane) = lane else { continue };
            count += lane.incoming.pop_all(|message| each(from, message));
        }
        count
    }

    /// True when a message has come.
    #[must_use]
    pub fn has_mail(&self) -> bool {
        self.lanes.iter().flatten().any(|lane| !lane.incoming.is_empty())
    }

    /// Messages that full rings have not taken.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.lanes.iter().flatten().map(|lane| lane.queue.len()).sum()
    }

    /// Announces sleep, and says whether it is safe: false when messages wait, here or in an
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

    /// Takes the announcement back.
    pub fn after_sleep(&mut self) {
        self.bells.sleeping[self.me].0.store(false, Ordering::Relaxed);
    }

    /// How often this core woke another: for the metrics.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    fn wake_sleepers(&mut self) {
        // Pairs with the fence in `before_sleep`.
        fence(Ordering::SeqCst);
        for (core, lane) in self.lanes.iter().enumerate() {
            let flag = &self.bells.sleeping[core].0;
            let told = lane.as_ref().is_some_and(|lane| lane.told);
            // The swap leaves one waker of several.
            if told && flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Relaxed) {
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

    #[test] // Full rings keep the order, and the rest stays until there is room.
    fn overflow_keeps_order() {
        let mut boxes = mesh::<u32>(wakers(2), 4);
        let mut other = boxes.pop().unwrap();
        let mut one = boxes.pop().unwrap();
        assert_eq!((one.me(), other.me(), one.cores()), (0, 1, 2));
        (0..10).for_each(|message| one.post(1, message));
        let mut got = Vec::new();
        for left in [6, 2, 0] {
            one.flush();
            assert_eq!(one.backlog(), left);
            assert_eq!(one.before_sleep(), left == 0);
            other.drain(|from, message| got.push((from, message)));
        }
        assert_eq!(got, (0..10).map(|message| (0, message)).collect::<Vec<_>>());
    }

    #[test] // A wake goes to sleepers only, and once.
    fn only_sleepers_are_woken() {
        let mut boxes = mesh::<u32>(wakers(2), 4);
        let mut other = boxes.pop().unwrap();
        let mut one = boxes.pop().unwrap();
        one.post(1, 1);
        one.flush();
        assert_eq!(one.wakes(), 0);
        assert!(!other.before_sleep(), "a message waits");
        assert_eq!(other.drain(|_, _| {}), 1);
        assert!(other.before_sleep());
        one.post(1, 2);
        one.flush();
        one.post(1, 3);
        one.flush();
        assert_eq!(one.wakes(), 1);
        other.after_sleep();
        assert_eq!(other.drain(|_, _| {}), 2);
    }

    #[test] // Cores that sleep whenever they can never miss a message, and each arrives once.
    fn nobody_oversleeps() {
        const ROUNDS: u32 = 3_000;
        let wakers = wakers(3);
        let boxes = mesh::<u32>(wakers.clone(), 8);
        let run = |mut mailbox: Mailbox<u32>, waker: Waker| {
            let (mut net, _) = Net::open(BackendChoice::Epoll, &waker).unwrap();
            let (me, mut seen, mut tokens) = (mailbox.me(), 0, Vec::new());
            if me == 0 {
                mailbox.post(1, 0);
            }
            // One token goes round: whoever misses it stops everybody.
            while seen < ROUNDS {
                mailbox.drain(|_, token| tokens.push(token));
                for token in tokens.drain(..) {
                    assert_eq!(token as usize % 3, (me + 2) % 3);
                    seen += 1;
                    mailbox.post((me + 1) % 3, token + 1);
                }
                mailbox.flush();
                if seen < ROUNDS && mailbox.before_sleep() {
                    net.poll(Wait::Forever, &mut |_| {}).unwrap();
                    mailbox.after_sleep();
                }
            }
            // The last hop is for those who are done already.
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
