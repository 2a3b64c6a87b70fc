//! Checks whether anything has arrived at a core while it works: see `knock`.
//!
//! On io_uring, a check reads two words that the kernel writes: the end of the completion queue,
//! and a flag that more completions can be fetched. Messages from other cores are also visible in
//! shared memory. On epoll, a check is a system call, so checks are rarer and made only while
//! clients are active. A single client that waits for its own long command causes none.
//!
//! Not here: handling what has arrived. See `thread`.

use crate::knock::Knocker;
use crate::post::Post;
use darter_runtime::mailbox::Mailbox;
use darter_runtime::net::Net;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Time between two checks that only read shared memory. Jobs call the check after every member.
const READS_EVERY_NS: u64 = 2_000;
/// Time between two checks that are system calls of 0.3 to 1 us: about the length of a portion.
const CALLS_EVERY_NS: u64 = 20_000;
/// A client counts as active for this time after a request.
const ACTIVE_NS: u64 = 5_000_000;

/// The sockets and the mailbox of a core, as sources of arrivals.
pub(crate) struct Arrivals {
    net: Rc<RefCell<Net>>,
    mailbox: Rc<RefCell<Mailbox<Post>>>,
    /// True if a check of the sockets is a system call.
    calls: bool,
    /// True if a client has sent a request since the last check.
    note_request: Cell<bool>,
    active_until_ns: Cell<u64>,
}

impl Arrivals {
    pub(crate) fn new(net: &Rc<RefCell<Net>>, mailbox: &Rc<RefCell<Mailbox<Post>>>) -> Self {
        let calls = matches!(*net.borrow(), Net::Epoll(_));
        Self {
            net: Rc::clone(net),
            mailbox: Rc::clone(mailbox),
            calls,
            note_request: Cell::default(),
            active_until_ns: Cell::default(),
        }
    }

    /// Records that a client has sent a request.
    pub(crate) fn note_request(&self) {
        self.note_request.set(true);
    }

    fn are_clients_active(&self, now_ns: u64) -> bool {
        if self.note_request.take() {
            self.active_until_ns.set(now_ns + ACTIVE_NS);
        }
        now_ns < self.active_until_ns.get()
    }
}

impl Knocker for Arrivals {
    fn every_ns(&self) -> u64 {
        if self.calls { CALLS_EVERY_NS } else { READS_EVERY_NS }
    }

    fn has_knocked(&self, now_ns: u64) -> bool {
        if self.mailbox.borrow().has_mail() {
            return true;
        }
        if self.calls && !self.are_clients_active(now_ns) {
            return false;
        }
        // On an error of the backend, end the slice: the next poll reports the error.
        self.net.borrow_mut().has_newer().unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::SliceClock;
    use crate::knock::SliceTimer;
    use crate::knock::tests::Portions;
    use darter_base::Preempt;
    use darter_base::limits::SLICE_AIM_NS;
    use darter_runtime::mailbox;
    use darter_runtime::net::{BackendChoice, Event, Wait, Waker};
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A core with one client on a unix socket. Bytes that are sent have arrived at once.
    struct Bench {
        net: Rc<RefCell<Net>>,
        mailbox: Rc<RefCell<Mailbox<Post>>>,
        /// Another core, which sends messages to the core.
        other: Mailbox<Post>,
        arrivals: Rc<Arrivals>,
        clock: Rc<Portions>,
        timer: SliceTimer<Portions>,
        client: UnixStream,
    }

    impl Bench {
        /// Creates the bench; `None` where the system lacks the backend.
        fn new(choice: BackendChoice) -> Option<Self> {
            let wakers = [Waker::new().unwrap(), Waker::new().unwrap()];
            let (mut net, _) = match Net::open(choice, &wakers[0]) {
                Err(error) if choice == BackendChoice::Uring => {
                    eprintln!("no io_uring here: {error}");
                    return None;
                }
                opened => opened.unwrap(),
            };
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("darter-arrivals-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            net.listen_unix(&path, 1, None).unwrap();
            let client = UnixStream::connect(&path).unwrap();
            let net = Rc::new(RefCell::new(net));
            let mut mailboxes = mailbox::mesh::<Post>(wakers.to_vec(), 4);
            let other = mailboxes.pop().unwrap();
            let mailbox = Rc::new(RefCell::new(mailboxes.pop().unwrap()));
            let arrivals = Rc::new(Arrivals::new(&net, &mailbox));
            let clock = Rc::new(Portions::default());
            let knocker = Rc::clone(&arrivals) as Rc<dyn Knocker>;
            let timer = SliceTimer::new(Rc::clone(&clock), knocker);
            let bench = Self { net, mailbox, other, arrivals, clock, timer, client };
            while !bench.look(Wait::Forever).contains(&"accepted") {}
            Some(bench)
        }

        /// Polls once, and returns the names of the events.
        fn poll(&self, wait: Wait) -> Vec<&'static str> {
            let mut seen = Vec::new();
            let mut note = |event: Event<'_>| {
                seen.push(match event {
                    Event::Accepted { .. } => "accepted",
                    Event::Received { .. } => "received",
                    _ => "something else",
                });
            };
            self.net.borrow_mut().poll(wait, &mut note).unwrap();
            seen
        }

        /// Polls until no event is left, so that everything after it counts as new.
        fn look(&self, wait: Wait) -> Vec<&'static str> {
            let mut seen = self.poll(wait);
            loop {
                let more = self.poll(Wait::Nothing);
                seen.extend(&more);
                if more.is_empty() && !self.net.borrow_mut().has_news().unwrap() {
                    break;
                }
            }
            self.mailbox.borrow_mut().drain(|_, _| seen.push("mail"));
            seen
        }

        /// Runs portions of 10 us until the slice is over, and calls `knock` during the fourth.
        /// Returns the number of portions.
        fn slice(&mut self, knock: impl FnOnce(&mut Self)) -> usize {
            self.begin();
            assert!((1..=3).all(|_| !self.timer.must_yield()), "it ends unasked");
            knock(self);
            (4..).find(|_| self.timer.must_yield()).unwrap()
        }

        fn begin(&self) {
            self.timer.begin(self.clock.now_ns());
            self.timer.begin_background(self.clock.now_ns(), SLICE_AIM_NS / 4);
        }

        fn send(&mut self) {
            self.client.write_all(b"PING\r\n").unwrap();
        }
    }

    #[test] // On either backend, the slice ends at most one portion after the byte arrives.
    fn a_received_byte_ends_the_slice() {
        for choice in [BackendChoice::Uring, BackendChoice::Epoll] {
            let Some(mut bench) = Bench::new(choice) else { continue };
            for _ in 0..3 {
                bench.arrivals.note_request();
                assert_eq!(bench.slice(|_| ()), 10, "{choice:?}: nobody knocks");
                let portions = bench.slice(Bench::send);
                assert!((4..=5).contains(&portions), "{choice:?}: {portions} portions");
                assert_eq!(bench.look(Wait::Nothing), ["received"], "{choice:?}");
            }
        }
    }

    #[test]
    fn a_message_from_another_core_ends_the_slice() {
        for choice in [BackendChoice::Uring, BackendChoice::Epoll] {
            let Some(mut bench) = Bench::new(choice) else { continue };
            let post = |bench: &mut Bench| {
                bench.other.post(0, Post::Mail(crate::engine::Mail::Ask(Box::new(|_| ()))));
                assert!(bench.other.flush());
            };
            assert_eq!(bench.slice(|_| ()), 10, "{choice:?}: nobody knocks");
            let portions = bench.slice(post);
            assert!((4..=5).contains(&portions), "{choice:?}: {portions} portions");
            assert_eq!(bench.look(Wait::Nothing), ["mail"], "{choice:?}");
        }
    }

    #[test] // While no client is active, a slice makes no epoll calls.
    fn slices_with_idle_clients_make_no_system_calls() {
        let Some(mut bench) = Bench::new(BackendChoice::Epoll) else { return };
        assert_eq!(bench.slice(Bench::send), 10);
        bench.arrivals.note_request();
        bench.begin();
        assert_eq!((1..).find(|_| bench.timer.must_yield()), Some(3), "it has come before");
        assert_eq!(bench.look(Wait::Nothing), ["received"]);
    }
}
