//! What clients hold, and who is closed for it.

use super::{Bench, Wait};

const MIB: usize = 1 << 20;
/// Bytes that arrive at once.
const PORTION_BYTES: usize = 64 * 1024;

impl Bench {
    /// A client sends so many bytes of an argument that is longer.
    fn hold(&self, client: usize, bytes: usize) {
        let (core, token) = (self.clients[client].core, self.clients[client].token);
        let header = format!("*2\r\n$4\r\nECHO\r\n${}\r\n", 2 * bytes);
        let request = [header.as_bytes(), &vec![b'a'; bytes]].concat();
        for portion in request.chunks(PORTION_BYTES) {
            self.cores[core].begin_turn();
            self.cores[core].received(token, portion);
            self.turn(core);
        }
    }

    /// It is gone.
    fn leave(&self, client: usize) {
        let (core, token) = (self.clients[client].core, self.clients[client].token);
        self.cores[core].closed(token);
    }

    /// Half a second, in which cores that sleep for good are left asleep.
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

#[test] // What the last client of a core held is told no more once it is gone.
fn who_has_left_counts_no_more() {
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
