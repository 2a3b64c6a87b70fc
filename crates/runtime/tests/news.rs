//! Checks for arrivals between two polls: nothing is reported twice.

use darter_runtime::net::{BackendChoice, Event, Net, Wait, Waker};

#[test] // Until it is handled, it does not count as a new one.
fn a_wake_is_reported_once() {
    for choice in [BackendChoice::Epoll, BackendChoice::Auto] {
        let waker = Waker::new().unwrap();
        let (mut net, _) = Net::open(choice, &waker).unwrap();
        net.poll(Wait::Nothing, &mut |_| ()).unwrap();
        waker.wake();
        while !net.has_news().unwrap() {}
        net.note_news();
        for _ in 0..3 {
            // io_uring may fetch it only now.
            assert!(!net.has_newer().unwrap() || choice != BackendChoice::Epoll, "noted before");
        }
        let mut woken = 0;
        for _ in 0..3 {
            let count = &mut |event: Event<'_>| woken += usize::from(matches!(event, Event::Woken));
            net.poll(Wait::Nothing, count).unwrap();
        }
        assert_eq!(woken, 1, "{choice:?}");
    }
}
