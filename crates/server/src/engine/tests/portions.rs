//! Commands that visit all keys, databases or clients of a core run in portions.

use super::*;

impl Bench {
    /// The number of rounds of turns until the reply begins, in slices of one portion.
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

#[test]
fn debug_table_visits_a_large_table_in_portions() {
    let bench = Bench::new(1);
    assert_eq!(bench.ask(0, "DEBUG POPULATE 60000"), "+OK\r\n");
    let segments = bench.cores[0].tx.home().shard.db(0).keys().fill_report().segments;
    let rounds = bench.rounds("DEBUG TABLE");
    assert!(segments > 40 && rounds > segments / 32 + 1, "{rounds} rounds for {segments} segments");
    let told = bench.got(0);
    assert!(told.contains(&format!("core 0 db 0: Fill {{ segments: {segments}, ")), "{told}");
}

#[test]
fn another_core_reports_many_databases_in_one_message() {
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

#[test] // With more cores, INFO takes no more rounds.
fn info_asks_all_cores_at_the_same_time() {
    let rounds = |cores: usize| Bench::new(cores).rounds("INFO");
    assert!(rounds(8) <= rounds(2) + 1, "{} rounds, {} on two cores", rounds(8), rounds(2));
}

#[test]
fn commands_that_visit_all_clients_run_in_portions() {
    const CLIENTS: usize = 400;
    for cores in [1, 2] {
        let mut bench = Bench::new(cores);
        while bench.clients.len() < CLIENTS {
            bench.connect(cores - 1);
        }
        let rounds = bench.rounds("CLIENT LIST");
        assert!(rounds > CLIENTS / 4, "CLIENT LIST: {rounds} rounds on {cores} cores");
        let list = bench.got(0);
        let ids: Vec<u64> = list
            .lines()
            .filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse().ok())
            .collect();
        assert!(ids.len() == CLIENTS && ids.is_sorted(), "{ids:?}");
        for command in ["INFO clients", "MEMORY STATS", "CLIENT KILL TYPE normal"] {
            let rounds = bench.rounds(command);
            assert!(rounds > CLIENTS / 8, "{command}: {rounds} rounds on {cores} cores");
        }
        let closed = (0..CLIENTS).filter(|client| bench.is_closed(*client)).count();
        assert_eq!(closed, CLIENTS - 1, "all but who asked");
    }
}

#[test] // A repeated id is listed again.
fn client_list_keeps_the_order_of_the_requested_ids() {
    let mut bench = Bench::new(2);
    let clients = [0, 1, 0].map(|core| bench.connect(core));
    let [a, b, c] = clients.map(|client| {
        let id = bench.ask(client, "CLIENT ID");
        id.trim().trim_start_matches(':').to_owned()
    });
    let list = bench.ask(0, &format!("CLIENT LIST ID {c} {a} 0 {a} -1 99999 {b}"));
    let ids: Vec<&str> =
        list.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next()).collect();
    assert_eq!(ids, [&c, &a, &a, &b]);
}
