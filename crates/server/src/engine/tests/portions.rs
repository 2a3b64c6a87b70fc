//! What concerns everything that a core has: in portions, however much that is.

use super::*;

impl Bench {
    /// Rounds until a reply begins, in slices of one portion.
    fn rounds(&self, line: &str) -> usize {
        self.clients[0].got.take();
        self.short.set(true);
        self.send(0, line);
        let mut rounds = 0;
        while self.clients[0].got.borrow().is_empty() {
            self.round();
            rounds += 1;
        }
        self.short.set(false);
        self.settle();
        rounds
    }
}

#[test] // The segments of a table.
fn a_large_table_is_told_of_in_portions() {
    let bench = Bench::new(1);
    assert_eq!(bench.ask(0, "DEBUG POPULATE 60000"), "+OK\r\n");
    let segments = bench.cores[0].tx.home().shard.db(0).keys().fill_report().segments;
    let rounds = bench.rounds("DEBUG TABLE");
    assert!(segments > 40 && rounds > segments / 32 + 1, "{rounds} rounds for {segments} segments");
    let told = bench.got(0);
    assert!(told.contains(&format!("core 0 db 0: Fill {{ segments: {segments}, ")), "{told}");
}

#[test] // The databases: another core is asked once for many of them.
fn many_databases_are_asked_for_together() {
    let bench = Bench::new(2);
    for db in 0..16 {
        bench.ask(0, &format!("SELECT {db}"));
        assert_eq!(bench.ask(0, &format!("SET {} v", bench.key(db % 2))), "+OK\r\n");
    }
    for command in ["DEBUG DIGEST", "DEBUG CHECK", "DEBUG TABLE"] {
        let hops = || bench.cores[1].stats.borrow().hops;
        let before = hops();
        assert!(!bench.ask(0, command).is_empty());
        assert!(hops() - before <= 4, "{command}: {} hops", hops() - before);
    }
}
