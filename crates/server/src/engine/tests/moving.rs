//! Connections that move to the core of their keys: when they move, which state moves with them,
//! and how they are found by id.

use super::Bench;
use crate::engine::Policy;

/// Two cores. A connection moves at its fourth request to the other core, when [`Bench::run_moves`]
/// is called.
fn bench() -> Bench {
    let bench = Bench::new(2);
    let policy = Policy { requests: 3, streak_ms: 0, stay_ms: 0, span_ms: 100 };
    bench.cores.iter().for_each(|core| core.set_move_policy(policy));
    bench
}

impl Bench {
    /// Moves all connections that are leaving. Returns how many.
    fn run_moves(&mut self) -> usize {
        let leaving = self.leaving.take();
        let count = leaving.len();
        for (from, token) in leaving {
            let is_it = |client: &&mut super::Client| client.core == from && client.token == token;
            let client = self.clients.iter_mut().find(is_it).unwrap();
            let Some((to, moving)) = self.cores[from].released(token) else {
                client.closed.set(true);
                continue;
            };
            client.core = to;
            client.token.generation += 1;
            self.cores[to].begin_turn();
            self.cores[to].arrived(client.token, moving);
        }
        self.settle();
        count
    }

    /// Client 0, on core 0, sends four requests for a key of core 1. Returns whether it is leaving
    /// then.
    fn draws_away(&mut self) -> bool {
        let get = format!("GET {}", self.key(1));
        (0..3).for_each(|_| _ = self.ask(0, &get));
        self.ask(0, &get);
        !self.leaving.borrow().is_empty()
    }

    fn moves(&self) -> u64 {
        self.cores.iter().map(|core| core.stats.borrow().moves).sum()
    }
}

#[test] // The id, name, database and unparsed bytes move, too.
fn a_connection_moves_with_its_session_to_the_core_of_its_keys() {
    let mut bench = bench();
    let key = bench.key(1);
    let id = bench.ask(0, "CLIENT ID");
    bench.ask(0, "CLIENT SETNAME traveller");
    bench.ask(0, "SELECT 3");
    for number in 1..=3 {
        assert_eq!(bench.ask(0, &format!("INCR {key}")), format!(":{number}\r\n"));
    }
    assert_eq!(bench.ask(0, &format!("INCR {key}")), "", "it leaves");
    bench.send(0, &format!("INCR {key}"));
    bench.settle();
    assert_eq!((bench.cores[0].conns_len(), bench.cores[1].conns_len()), (1, 1));
    assert!(!bench.cores[0].is_quiet(), "it has requests");
    assert_eq!(bench.run_moves(), 1);
    assert_eq!((bench.cores[0].conns_len(), bench.cores[1].conns_len()), (0, 2));
    assert_eq!(bench.got(0), ":4\r\n:5\r\n");
    let hops = bench.cores[1].stats.borrow().hops;
    assert_eq!(bench.ask(0, &format!("GET {key}")), "$1\r\n5\r\n");
    assert_eq!(bench.cores[1].stats.borrow().hops, hops, "its key is here");
    assert_eq!(bench.ask(0, "CLIENT ID"), id);
    assert_eq!(bench.ask(0, "CLIENT GETNAME"), "$9\r\ntraveller\r\n");
    let list = bench.ask(1, "CLIENT LIST");
    assert_eq!(list.matches("name=traveller").count(), 1, "{list}");
    assert!(list.contains("db=3"), "{list}");
    assert_eq!(bench.moves(), 1);
    assert!(bench.cores.iter().all(|core| core.is_quiet()));
}

#[test] // Any request for the own core, or for several, restarts the count.
fn connections_with_keys_on_both_cores_do_not_move() {
    let bench = bench();
    let (here, there) = (bench.key(0), bench.key(1));
    let others = [
        format!("GET {here}"),
        format!("MGET {here} {there}"),
        format!("BLPOP {here} {there} 0.001"),
        format!("EVAL return 2 {here}", here = format_args!("1 {here}")),
    ];
    for other in others {
        for _ in 0..2 {
            bench.ask(0, &format!("GET {there}"));
            bench.ask(0, &format!("GET {there}"));
            bench.ask(0, &other);
            bench.pass_ms(5);
            bench.settle();
            bench.got(0);
        }
        bench.ask(0, &format!("GET {there}"));
        bench.ask(0, &format!("GET {there}"));
        bench.ask(0, &format!("GET {here}"));
        assert!(bench.leaving.borrow().is_empty(), "{other}");
    }
}

#[test] // Busy connections do not move either.
fn connections_known_to_other_cores_do_not_move() {
    #[rustfmt::skip] // A table.
    let cases: [&[&str]; 7] = [
        &["MULTI"],
        &["WATCH x"],
        &["HELLO 3", "SUBSCRIBE channel"],
        &["HELLO 3", "SUBSCRIBE channel", "UNSUBSCRIBE channel"],
        &["HELLO 3", "CLIENT TRACKING ON"],
        &["MONITOR"],
        &["CLIENT PAUSE 60000 WRITE"],
    ];
    for lines in cases {
        let mut bench = bench();
        lines.iter().for_each(|line| _ = bench.ask(0, line));
        let leaves = bench.draws_away();
        assert_eq!(leaves, lines[0].starts_with("CLIENT PAUSE"), "{lines:?}");
    }
    let mut bench = bench();
    let id: String = bench.ask(0, "CLIENT ID").trim_matches([':', '\r', '\n']).into();
    bench.ask(1, "HELLO 3");
    assert_eq!(bench.ask(1, &format!("CLIENT TRACKING ON REDIRECT {id}")), "+OK\r\n");
    assert!(!bench.draws_away(), "it is told instead of another");
}

#[test] // The target of a redirection stays.
fn a_leaving_connection_can_be_killed_or_made_to_stay() {
    let mut bench = bench();
    let id: String = bench.ask(0, "CLIENT ID").trim_matches([':', '\r', '\n']).into();
    assert!(bench.draws_away());
    assert_eq!(bench.ask(1, &format!("CLIENT KILL ID {id}")), "", "it waits for who is on the way");
    assert_eq!(bench.run_moves(), 1);
    assert_eq!((&*bench.got(1), bench.is_closed(0)), (":1\r\n", true));
    assert_eq!(bench.cores[1].conns_len(), 1);

    let mut bench = self::bench();
    assert!(bench.draws_away());
    bench.cores[0].with_id(1, |conn| bench.cores[0].kill(&mut conn.lane));
    bench.turn(0);
    assert!(bench.is_closed(0), "it is closed where it is");
    bench.settle();
    assert!(bench.cores[0].is_quiet());

    let mut bench = self::bench();
    assert!(bench.draws_away());
    bench.cores[0].with_id(1, |conn| conn.lane.session.is_target = true);
    assert_eq!(bench.run_moves(), 1);
    assert_eq!((bench.moves(), &*bench.got(0)), (0, "$-1\r\n"), "it is served at home");
    assert!(bench.cores.iter().all(|core| core.is_quiet()));
}

#[test] // No move begins while moves are held.
fn unblock_and_redirect_find_moved_clients_by_id() {
    let mut bench = bench();
    let id: String = bench.ask(0, "CLIENT ID").trim_matches([':', '\r', '\n']).into();
    assert!(bench.draws_away());
    bench.run_moves();
    bench.got(0);
    let key = bench.key(1);
    bench.ask(0, &format!("BLPOP {key} 0"));
    assert_eq!(bench.ask(1, &format!("CLIENT UNBLOCK {id}")), ":1\r\n");
    assert_eq!(bench.got(0), "*-1\r\n");
    bench.ask(1, "HELLO 3");
    assert_eq!(bench.ask(1, &format!("CLIENT TRACKING ON REDIRECT {id}")), "+OK\r\n");

    let mut bench = self::bench();
    bench.cores[0].end_moves();
    assert!(!bench.draws_away(), "the server stops");
}

#[test] // Moves do not change the count.
fn maxclients_counts_a_connection_on_the_core_that_accepted_it() {
    let mut bench = bench();
    bench.cores.iter().for_each(|core| core.hot.borrow_mut().clients_max = 1);
    let is_refused = |bench: &mut Bench, core| {
        let client = bench.connect(core);
        bench.settle();
        bench.is_closed(client)
    };
    assert!(bench.draws_away());
    bench.run_moves();
    assert!(is_refused(&mut bench, 0) && is_refused(&mut bench, 1));
    bench.ask(0, "QUIT");
    assert!(is_refused(&mut bench, 1));
    assert!(!is_refused(&mut bench, 0), "there is room for another");
}
