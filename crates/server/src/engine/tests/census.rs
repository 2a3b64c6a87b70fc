//! The memory of clients, and closing clients that have too much.

use super::{Bench, Client, Wait};
use crate::engine::{ClientLimits, OutputLimit};
use crate::shared::{Machine, Shared};
use darter_base::Prng;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: usize = 1 << 20;
/// The number of bytes that arrive at once.
const PORTION_BYTES: usize = 64 * 1024;

impl Bench {
    /// Sends `bytes` bytes of a longer argument, which the core must keep.
    fn hold(&self, client: usize, bytes: usize) {
        let Client { core, token, .. } = self.clients[client];
        let header = format!("*2\r\n$4\r\nECHO\r\n${}\r\n", 2 * bytes);
        let request = [header.as_bytes(), &vec![b'a'; bytes]].concat();
        for portion in request.chunks(PORTION_BYTES) {
            self.cores[core].begin_turn();
            self.cores[core].received(token, portion);
            self.turn(core);
        }
    }

    /// True if the client is marked to be closed.
    fn is_killed(&self, client: usize) -> bool {
        let Client { core, token, .. } = self.clients[client];
        self.cores[core].with_conn(token, |conn| conn.lane.session.is_killed()) == Some(true)
    }

    /// Closes the connection of the client.
    fn leave(&self, client: usize) {
        let Client { core, token, .. } = self.clients[client];
        self.cores[core].closed(token);
    }

    /// Runs for half a second, without turns of cores that sleep forever.
    fn look(&self) {
        for _ in 0..500 {
            self.pass_ms(1);
            for (at, core) in self.cores.iter().enumerate() {
                if core.wait() != Wait::Forever || !self.mail.borrow()[at].is_empty() {
                    self.turn(at);
                }
            }
        }
    }
}

#[test] // The report is cleared when the last client has left.
fn the_memory_of_closed_clients_is_not_counted() {
    for (is_spared, small, closed) in [(true, &[6][..], 0), (false, &[6, 7], 1)] {
        let mut bench = Bench::new(2);
        assert_eq!(bench.ask(0, "CONFIG SET maxmemory-clients 10mb"), "+OK\r\n");
        if is_spared {
            assert_eq!(bench.ask(1, "CLIENT NO-EVICT ON"), "+OK\r\n");
        }
        bench.hold(1, 9 * MIB);
        bench.look();
        assert!(!bench.is_closed(1), "it is below the limit");
        bench.leave(1);
        let clients: Vec<usize> = small.iter().map(|_| bench.connect(0)).collect();
        for (client, mib) in clients.iter().zip(small) {
            bench.hold(*client, mib * MIB);
        }
        bench.look();
        let gone: Vec<_> = clients.iter().filter(|client| bench.is_closed(**client)).collect();
        assert_eq!(gone.len(), closed, "of {small:?} MiB were closed: {gone:?}");
    }
}

#[test] // The result does not depend on which core scans first.
fn only_the_largest_client_of_all_cores_is_closed() {
    const UNIT: usize = MIB / 4;
    for seed in 0..20 {
        let mut bench = Bench::new(2);
        assert_eq!(bench.ask(0, "CONFIG SET maxmemory-clients 1gb"), "+OK\r\n");
        let (largest, spared, small) = (0, 1, bench.connect(1));
        assert_eq!(bench.ask(spared, "CLIENT NO-EVICT ON"), "+OK\r\n");
        for (client, units) in [(largest, 12), (spared, 15), (small, 2)] {
            bench.hold(client, units * UNIT);
        }
        let limits = ClientLimits { all: 20 * UNIT, ..ClientLimits::default() };
        bench.cores.iter().for_each(|core| core.hot.borrow_mut().client_limits = limits);
        let mut prng = Prng::from_seed(seed);
        for _ in 0..300 {
            bench.pass_ms(prng.below(2));
            bench.turn(usize::from(prng.below(2) == 1));
        }
        let closed = [largest, spared, small].map(|client| bench.is_closed(client));
        assert_eq!(closed, [true, false, false], "seed {seed}");
    }
}

#[test]
fn at_most_one_client_is_closed_after_the_end_of_a_slice() {
    const CLIENTS: usize = 40;
    let normal = OutputLimit { hard: 1, ..OutputLimit::default() };
    let of_output = ClientLimits { normal, ..ClientLimits::default() };
    let of_all = ClientLimits { all: 1, ..ClientLimits::default() };
    for (name, limits) in [("output", of_output), ("all", of_all)] {
        let mut bench = Bench::new(1);
        assert_eq!(bench.ask(0, "CONFIG SET maxmemory-clients 1gb"), "+OK\r\n");
        let clients: Vec<usize> = (0..CLIENTS).map(|_| bench.connect(0)).collect();
        for client in &clients {
            bench.clients[*client].reads.set(false);
            bench.send(*client, "PING");
        }
        bench.settle();
        bench.short.set(true);
        bench.cores[0].hot.borrow_mut().client_limits = limits;
        let killed = || clients.iter().filter(|client| bench.is_killed(**client)).count();
        let mut most = 0;
        for _ in 0..CLIENTS * 4 {
            let before = killed();
            bench.pass_ms(1);
            bench.tick(0);
            most = most.max(killed() - before);
        }
        assert_eq!((most, killed()), (1, CLIENTS), "{name}: in one slice, and in all");
    }
}

#[test] // The value also counts while its reply waits to be sent.
fn a_removed_value_that_a_client_reads_counts_as_memory_of_the_client() {
    const LEN: usize = 1_000_000;
    const GETS: usize = 5;
    let mut bench = Bench::new(2);
    let (reader, writer, key) = (0, bench.connect(0), bench.key(1));
    assert_eq!(bench.ask(writer, &format!("SETRANGE {key} {} x", LEN - 1)), format!(":{LEN}\r\n"));
    bench.clients[reader].reads.set(false);
    bench.send(reader, &vec![format!("GET {key}"); GETS].join("\r\n"));
    bench.settle();
    let pinned = |bench: &Bench| {
        let token = bench.clients[reader].token;
        bench.cores[0].with_conn(token, |conn| conn.sizes().pinned).unwrap()
    };
    assert_eq!(pinned(&bench), 0, "it is there");
    assert_eq!(bench.ask(writer, &format!("DEL {key}")), ":1\r\n");
    assert!(pinned(&bench) >= GETS * LEN, "{} of {GETS} times {LEN}", pinned(&bench));
    let output_hard = GETS * LEN - LEN / 2;
    let limits = format!("CONFIG SET client-output-buffer-limit \"normal {output_hard} 0 0\"");
    assert_eq!(bench.ask(writer, &limits), "+OK\r\n");
    bench.look();
    assert!(bench.is_closed(reader), "it is beyond the limit");
}

/// A machine whose allocator has handed out this number of bytes.
struct Holding(usize);

impl Machine for Holding {
    fn resident_bytes(&self) -> (usize, usize) {
        (0, 0)
    }

    fn cpu_us(&self) -> (u64, u64) {
        (0, 0)
    }

    fn total_bytes(&self) -> usize {
        0
    }

    fn held_bytes(&self) -> Option<usize> {
        Some(self.0)
    }

    fn purge(&self) {}

    fn raise_open_files(&self, wanted: u64) -> u64 {
        wanted
    }
}

#[test] // Memory that is shared with living values does count.
fn memory_being_freed_does_not_count_towards_maxmemory() {
    for (held, data, freeing, lasting) in [
        (300, 100, 150, 150),
        (1_100, 1_000, 10_000, 1_000), // Ten copies are being freed; the original stays.
        (1_100, 11_000, 50, 1_100),    // All copies stay.
        (1_100, 0, 1_000, 100),
    ] {
        let mut shared = Arc::into_inner(Shared::nowhere(1, 0)).unwrap();
        shared.machine = Box::new(Holding(held));
        shared.reports[0].data.store(data, Ordering::Relaxed);
        shared.reports[0].freeing.store(freeing, Ordering::Relaxed);
        assert_eq!(shared.lasting_memory(), lasting, "{held} held, {data} data, {freeing} freed");
    }
}
