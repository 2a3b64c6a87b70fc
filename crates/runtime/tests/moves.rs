//! Connections that go from one net to another while they are in use, on both backends: every byte
//! is received once and in its order, and every end is met, by the current owner.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::support::{Command, Options, Server, Tally, backends, exchange};
use darter_base::Prng;
use darter_runtime::net::BackendChoice;

/// Clients at a time.
const CLIENTS: u64 = 8;
/// Requests that each of them sends.
const REQUESTS: usize = 400;

/// Two servers that give each other all they have, until `act` is over.
fn amid_moves(servers: &[Server; 2], act: impl FnOnce() + Send) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                for (from, to) in [(0, 1), (1, 0)] {
                    servers[from].ask(Command::Release(servers[to].remote.clone()));
                }
            }
        });
        act();
        is_over.store(true, SeqCst);
    });
}

fn start_two(backend: BackendChoice) -> [Server; 2] {
    [(); 2].map(|()| Server::start(backend, Options::default()))
}

fn sum(servers: &[Server; 2], of: impl Fn(&Tally) -> usize) -> usize {
    servers.iter().map(|server| of(&server.tally)).sum()
}

/// Waits until every accepted connection is closed, on either server.
fn wait_for_ends(servers: &[Server; 2]) {
    servers[0].wait_for("every end", |_| {
        sum(servers, |tally| tally.closed.load(SeqCst))
            == sum(servers, |tally| tally.accepted.load(SeqCst))
    });
}

#[test] // Requests of all lengths are echoed in order; then each client half-closes.
fn moving_connections_lose_no_bytes() {
    for backend in backends() {
        let servers = start_two(backend);
        let streams: Vec<TcpStream> = (0..CLIENTS).map(|_| servers[0].connect()).collect();
        amid_moves(&servers, || {
            std::thread::scope(|scope| {
                for (seed, stream) in (0..).zip(streams) {
                    scope.spawn(move || talk(seed, stream));
                }
            });
        });
        wait_for_ends(&servers);
        assert_eq!(sum(&servers, |tally| tally.eofs.load(SeqCst)), CLIENTS as usize);
        assert!(sum(&servers, |tally| tally.released.load(SeqCst)) > REQUESTS, "{backend:?}");
    }
}

fn talk(seed: u64, mut stream: TcpStream) {
    let mut prng = Prng::from_seed(seed);
    for _ in 0..REQUESTS {
        let most = if prng.chance(10) { 200_000 } else { 200 };
        let len = 1 + usize::try_from(prng.below(most)).unwrap();
        let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + len) as u8).collect();
        let mut reader = stream.try_clone().unwrap();
        let echo = std::thread::scope(|scope| {
            // A server that stops reading until it is read from must not stop us.
            let reading = scope.spawn(move || {
                let mut echo = vec![0; len];
                reader.read_exact(&mut echo).map(|()| echo).unwrap()
            });
            stream.write_all(&bytes).unwrap();
            reading.join().unwrap()
        });
        assert!(echo == bytes, "seed {seed}: {len} bytes");
    }
    stream.write_all(b"last words").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"last words");
}

#[test] // At any moment.
fn moving_connections_that_are_reset_end_once() {
    for backend in backends() {
        let servers = start_two(backend);
        let mut prng = Prng::from_seed(2);
        amid_moves(&servers, || {
            for _ in 0..300 {
                let mut stream = servers[0].connect();
                for _ in 0..prng.below(4) {
                    exchange(&mut stream, b"hello");
                }
                if prng.chance(50) {
                    stream.write_all(b"unanswered").unwrap();
                }
                if prng.chance(30) {
                    stream.shutdown(Shutdown::Write).unwrap();
                }
                let linger = Some(Duration::ZERO);
                rustix::net::sockopt::set_socket_linger(&stream, linger).unwrap();
            }
        });
        wait_for_ends(&servers);
    }
}

#[test]
fn a_connection_released_and_closed_does_only_one_of_both() {
    for backend in backends() {
        let servers = start_two(backend);
        for _ in 0..50 {
            let streams: Vec<TcpStream> = (0..CLIENTS).map(|_| servers[0].connect()).collect();
            let before = sum(&servers, |tally| tally.closed.load(SeqCst));
            servers[0]
                .wait_for("them", |tally| tally.accepted.load(SeqCst) - before == CLIENTS as usize);
            let release = servers[0].ask_later(Command::Release(servers[1].remote.clone()));
            let close = servers[0].ask_later(Command::Close);
            release.recv().unwrap();
            close.recv().unwrap();
            drop(streams);
            wait_for_ends(&servers);
        }
    }
}
