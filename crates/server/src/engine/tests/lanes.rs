//! The behaviour of a connection with pending replies, on both sides of each bound.

use crate::engine::conn::{Conn, Ending, Lane};
use crate::engine::owed::Owed;
use crate::engine::{Session, Token};
use darter_base::lazyfree;
use darter_base::limits::REPLY_BUFFER_BYTES;
use darter_base::preempt::Countdown;
use darter_command::Stream;
use darter_resp::{Output, Reply, Request};
use std::sync::Arc;

/// A stream that holds some bytes and yields none.
struct Holding(usize);

impl Stream for Holding {
    fn pump(&mut self, _reply: &mut Reply<'_>) -> bool {
        true
    }

    fn held_bytes(&self) -> usize {
        self.0
    }
}

/// A stream that pins some bytes.
struct Pinning(usize);

impl Stream for Pinning {
    fn pump(&mut self, _reply: &mut Reply<'_>) -> bool {
        true
    }

    fn pinned_bytes(&self) -> usize {
        self.0
    }
}

fn conn() -> Conn {
    Conn::new(Token { index: 0, generation: 0 }, Session::default(), 512 << 20, 2)
}

fn text(len: usize) -> Output {
    let mut out = Output::default();
    out.tail().resize(len, b'x');
    out
}

#[test] // After short replies of quick commands, the limit doubles if it was reached.
fn long_replies_and_slow_commands_lower_the_limit_of_pending_replies() {
    #[rustfmt::skip] // A table.
    let cases = [
        // (limit before, replies, bytes, ns, limit after). Each of two cores has half of the replies.
        (  128,    0,                     0,         0,   128),
        (  128,   31,                    31,    31_000,   128),
        (  128,   32,                    32,    32_000,   256),
        (  128,   64,                 6_400,    64_000,   256),
        (2_048, 2_048,                2_048,   500_000, 2_048),
        (1_500,  700,                   700,   100_000, 2_048),
        (  128,   10,               100_000,    10_000,    52),
        (  128,    1, 2 * REPLY_BUFFER_BYTES,    1_000,    16),
        (   16,   16,                   160,    16_000,    32),
        (  128,   10,                    10,   100_000,   100),
        (  128,   10,                    10, 4_000_000,    64),
        (    8,    2,                     2,   800_000,     4),
        (    2,    2,                     2, 9_000_000,     2),
        (    2,    2,                     2,     2_000,     4),
    ];
    for (before, replies, bytes, ns, after) in cases {
        let mut lane = conn().lane;
        lane.owed_max = before;
        lane.learn_owed(replies, bytes, ns);
        assert_eq!(lane.owed_max, after, "{replies} replies of {bytes} bytes, {before} before");
    }
}

#[test] // Below the bound, parsing continues.
fn parsing_stops_when_a_connection_reaches_any_of_its_bounds() {
    type Change = fn(&mut Lane);
    let cases: [(&str, Change, bool); 13] = [
        ("nothing", |_| {}, true),
        ("a task runs", |lane| lane.await_task(), false),
        ("a stream", |lane| lane.stream = Some(Box::new(Holding(0))), false),
        ("a request is held", |lane| lane.hold(Arc::new(Request::default())), false),
        ("it is to be closed", |lane| lane.session.close_after_reply(), false),
        ("it is killed", |lane| lane.session.ending = Ending::Now, false),
        (
            "few owed",
            |lane| (1..lane.owed_max).for_each(|_| lane.owed.push_back(Owed::Remote(1))),
            true,
        ),
        (
            "many owed",
            |lane| (0..lane.owed_max).for_each(|_| lane.owed.push_back(Owed::Remote(1))),
            false,
        ),
        ("little away", |lane| lane.away.bytes = (1 << 20) - 1, true),
        ("much away", |lane| lane.away.bytes = 1 << 20, false),
        ("little output", |lane| lane.out = text(REPLY_BUFFER_BYTES / 4 - 1), true),
        ("much output", |lane| lane.out = text(REPLY_BUFFER_BYTES / 4), false),
        (
            "much in all",
            |lane| {
                lane.out = text(REPLY_BUFFER_BYTES / 12);
                lane.sending.in_flight = REPLY_BUFFER_BYTES / 12;
                lane.waiting.bytes = REPLY_BUFFER_BYTES / 12 + 3;
            },
            false,
        ),
    ];
    for (what, change, may) in cases {
        let mut lane = conn().lane;
        change(&mut lane);
        assert_eq!(lane.may_parse(), may, "{what}");
    }
}

#[test] // All other clients count as idle.
fn clients_for_which_the_server_works_are_not_idle() {
    type Change = fn(&mut Lane);
    let cases: [(&str, Change, bool, bool); 9] = [
        // (name, change of the lane, is working, is settled)
        ("nothing", |_| {}, false, true),
        ("a task runs", |lane| lane.await_task(), true, false),
        ("a pause", |lane| lane.awaits_pause = true, true, true),
        ("another core works", |lane| lane.owed.push_back(Owed::Remote(1)), true, false),
        ("it works in silence", |lane| lane.owed.push_back(Owed::Silent(1)), true, false),
        (
            "it rests",
            |lane| {
                lane.owed.push_back(Owed::Remote(1));
                lane.away.resting.push(1);
            },
            false,
            false,
        ),
        (
            "a third one rests",
            |lane| {
                lane.owed.push_back(Owed::Remote(1));
                lane.away.resting.push(0);
            },
            true,
            false,
        ),
        ("a stream searches", |lane| lane.stream = Some(Box::new(Holding(0))), true, false),
        (
            "a stream was not read",
            |lane| {
                lane.stream = Some(Box::new(Holding(0)));
                lane.sending.in_flight = 1;
            },
            false,
            false,
        ),
    ];
    for (what, change, working, settled) in cases {
        let mut lane = conn().lane;
        change(&mut lane);
        assert_eq!((lane.is_working(), lane.is_settled()), (working, settled), "{what}");
    }
}

#[test]
fn replies_leave_in_order_and_are_counted_until_then() {
    let mut lane = conn().lane;
    lane.owe(text(3), None);
    assert_eq!((lane.output_bytes(), lane.owed.len()), (3, 0), "nothing is owed before it");
    lane.owed.push_back(Owed::Remote(1));
    lane.owed.push_back(Owed::Silent(0));
    lane.owe(text(10), Some(Box::new(Holding(100))));
    lane.owe(text(20), None);
    assert_eq!((lane.output_bytes(), lane.waiting.bytes, lane.waiting_bytes()), (3, 130, 133));
    let from = |lane: &Lane| [0, 1, 2, 9].map(|slot| [0, 1].map(|core| lane.owes_from(slot, core)));
    let no = [false, false];
    assert_eq!(from(&lane), [[false, true], [true, false], no, no]);

    lane.ready_at(1, text(5), None);
    lane.settle();
    assert_eq!((lane.output_bytes(), lane.waiting.bytes, lane.owed.len()), (3, 135, 4));
    lane.ready_at(0, text(7), None);
    lane.settle();
    // All replies left, except those after the stream that is now being sent.
    assert_eq!((lane.output_bytes(), lane.waiting.bytes, lane.owed.len()), (25, 20, 1));
    assert_eq!((lane.stream.is_some(), lane.waiting_bytes()), (true, 145));
    lane.stream = None;
    lane.settle();
    assert_eq!((lane.output_bytes(), lane.waiting.bytes, lane.is_settled()), (45, 0, true));
}

#[test] // Longer replies are stored apart, and all keep their order.
fn short_pending_replies_are_stored_in_two_buffers() {
    let mut lane = conn().lane;
    lane.owed.push_back(Owed::Remote(1));
    let lens = [3, 0, 3_500, 2_000, 5, 100_000, 4_000, 1];
    for (number, len) in (0u8..).zip(lens) {
        lane.owed.push_back(Owed::Remote(2));
        // The other core's replies arrive one by one, behind one that is missing.
        lane.flat_at(usize::from(number) + 1, &vec![number; len]);
    }
    let is_early = |owed: &Owed| matches!(owed, Owed::Early(_));
    let early: Vec<bool> = lane.owed.iter().map(is_early).collect();
    assert_eq!(early, [false, true, true, true, true, true, false, false, true]);
    let all: usize = lens.iter().sum();
    assert_eq!((lane.output_bytes(), lane.waiting.bytes), (0, all));
    assert!(lane.waiting.spare_bytes() < 16 * 1_024);

    lane.flat_at(0, b"first");
    lane.settle();
    assert_eq!((lane.output_bytes(), lane.waiting.bytes, lane.is_settled()), (all + 5, 0, true));
    let expected = (0u8..).zip(lens).flat_map(|(number, len)| vec![number; len]);
    assert!(
        std::mem::take(&mut lane.out)
            .flatten()
            .into_iter()
            .eq(b"first".iter().copied().chain(expected))
    );
    // If a client turns replies off, it still gets the earlier replies first.
    lane.owed.push_back(Owed::Remote(1));
    lane.owed.push_back(Owed::Remote(2));
    lane.owe_flat(b"v");
    lane.flat_at(1, b"");
    lane.owe_flat(b"");
    lane.flat_at(0, b"u");
    lane.settle();
    assert!(lane.is_settled());
    assert_eq!(std::mem::take(&mut lane.out).flatten(), b"uv");
    // The buffers are empty again, so the longest short reply fits.
    lane.owed.push_back(Owed::Remote(1));
    lane.owe_flat(&[9; 4_000]);
    assert!(is_early(&lane.owed[1]));
}

#[test] // A reply is pending at all times, but each buffer becomes empty regularly.
fn the_buffers_of_short_replies_do_not_grow_in_an_endless_pipeline() {
    let mut lane = conn().lane;
    lane.owed.push_back(Owed::Remote(1));
    lane.owe_flat(&[b'e'; 100]);
    for _ in 0..1_000 {
        lane.owed.push_back(Owed::Remote(1));
        lane.owe_flat(&[b'e'; 100]);
        lane.flat_at(0, b"r");
        lane.settle();
        assert!(matches!(lane.owed.make_contiguous(), [Owed::Remote(1), Owed::Early(_)]));
    }
    assert!(lane.waiting.spare_bytes() < 16 * 1_024);
}

#[test]
fn the_pinned_bytes_of_all_waiting_streams_are_counted_after_some_checks() {
    const BYTES: usize = 1_000;
    for (streams, others) in [(1, 0), (3, 500), (31, 1), (32, 1), (33, 1), (200, 9)] {
        let mut conn = conn();
        conn.lane.owed.push_back(Owed::Remote(1));
        for _ in 0..streams {
            (0..others).for_each(|_| conn.lane.owe(text(0), None));
            conn.lane.owe(text(0), Some(Box::new(Pinning(BYTES))));
        }
        let counted: Vec<usize> = (0..100).map(|_| conn.sizes().pinned).collect();
        assert!(counted.is_sorted(), "{streams} among {others} each: {counted:?}");
        assert_eq!(counted.last(), Some(&(streams * BYTES)), "{streams} among {others} each");
        assert_eq!(conn.sizes().output, streams * BYTES);

        conn.lane.ready_at(0, text(7), None);
        conn.lane.settle();
        for left in (1..=streams).rev() {
            assert_eq!(conn.sizes().pinned, left * BYTES, "{streams}, as they leave");
            conn.lane.stream = None;
            conn.lane.settle();
        }
        assert_eq!(conn.sizes().pinned, 0);
        assert!(conn.lane.is_settled());
    }
}

#[test]
fn each_part_of_a_connections_memory_is_counted_once() {
    let mut conn = conn();
    let empty = conn.memory_bytes();
    assert!(empty >= size_of::<Conn>());
    conn.lane.away.bytes = 1_000;
    conn.lane.sending.in_flight = 200;
    conn.lane.out = text(30);
    assert_eq!(conn.memory_bytes() - empty, 1_230);
    conn.parser.feed(&[b'*'; 5_000]);
    assert!(conn.memory_bytes() - empty >= 6_230);
    assert_eq!(conn.query_bytes(), 5_000);
    conn.lane.owed.push_back(Owed::Remote(1));
    assert!(conn.memory_bytes() - empty >= 6_230 + size_of::<Owed>());
}

#[test]
fn the_peak_of_replies_expires_after_some_seconds() {
    let mut lane = conn().lane;
    for (bytes, at_ms, peak) in
        [(100, 1_000, 100), (100, 5_000, 100), (10, 6_000, 100), (10, 6_001, 10), (20, 6_002, 20)]
    {
        lane.note_sent(bytes, at_ms);
        assert_eq!(lane.reply_peak(), peak, "at {at_ms}");
    }
}

#[test] // Redis counts the same way.
fn replies_beyond_the_reply_buffer_count_as_output() {
    const FULL: usize = 16 * 1024;
    for (len, reply_bytes, output) in [(FULL, FULL, 0), (FULL + 1, 0, FULL + 1)] {
        let mut conn = conn();
        conn.lane.out = text(len);
        let sizes = conn.sizes();
        assert_eq!((sizes.reply_bytes, sizes.output), (reply_bytes, output), "{len}");
    }
}

#[test] // The replies follow an unread one, or are in the output.
fn pending_replies_of_a_closed_connection_are_freed_in_portions() {
    for waits in [true, false] {
        let mut conn = conn();
        if waits {
            conn.lane.owe(Output::default(), Some(Box::new(Holding(0))));
        }
        for _ in 0..1_000 {
            let mut long = Output::default();
            long.copy(&vec![b'x'; 70_000]);
            conn.lane.owe(long, None);
        }
        drop(conn);
        let mut portions = 0;
        while !lazyfree::is_empty() {
            lazyfree::run(&Countdown::new(0));
            portions += 1;
        }
        assert_eq!(portions, 1_000, "{waits}");
    }
}
