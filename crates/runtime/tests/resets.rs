//! Clients that end their connection with a reset, or in the middle of something, thousands of
//! times on both backends: each end is reported once, and nothing is left of it.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::support::{Command, Options, Server, backends};
use darter_base::Prng;

/// Connections that live at a time, and how often they are made: thousands of ends of each kind.
const AT_ONCE: usize = 50;
const ROUNDS: usize = 40;

/// Closes so that the other end sees a reset, whatever it still has to read.
fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
}

/// Opens connections that the server receives from.
fn connect_some(server: &Server) -> Vec<TcpStream> {
    let before = server.tally.accepted.load(SeqCst);
    let streams = (0..AT_ONCE).map(|_| server.connect()).collect();
    server.wait_for("them", |tally| tally.accepted.load(SeqCst) == before + AT_ONCE);
    streams
}

/// Waits until all connections were accepted and closed.
fn wait_for_ends(server: &Server) {
    server.wait_for("every end", |tally| tally.closed.load(SeqCst) == tally.accepted.load(SeqCst));
}

/// Runs `act` while the server is not polling, so that it finds all of it at once.
fn unseen(server: &Server, act: impl FnOnce()) {
    let (go, wait) = channel();
    let blocked = server.ask_later(Command::Block(wait));
    act();
    go.send(()).unwrap();
    blocked.recv().unwrap();
}

#[test] // The bytes and the reset may arrive in one wake-up.
fn resets_during_receives_end_connections() {
    for backend in backends() {
        let server = Server::start(backend, Options { silent: true, ..Options::default() });
        let mut prng = Prng::from_seed(1);
        let bytes = vec![1; 100_000];
        for round in 0..ROUNDS {
            let streams = connect_some(&server);
            let send_and_reset = || {
                for mut stream in streams {
                    let len = usize::try_from(prng.below(bytes.len() as u64)).unwrap();
                    stream.set_nonblocking(true).unwrap();
                    let _ = stream.write(&bytes[..len]).unwrap(); // As much as fits.
                    reset(stream);
                }
            };
            if round % 2 == 0 { send_and_reset() } else { unseen(&server, send_and_reset) }
        }
        wait_for_ends(&server);
    }
}

#[test] // Some of the clients have half-closed.
fn resets_during_sends_end_connections() {
    for backend in backends() {
        let server = Server::start(backend, Options { silent: true, ..Options::default() });
        for round in 0..ROUNDS / 4 {
            let streams = connect_some(&server);
            for stream in &streams {
                rustix::net::sockopt::set_socket_recv_buffer_size(stream, 4096).unwrap();
            }
            server.ask(Command::SendEach(vec![7; 5 << 20])); // More than the kernel buffers.
            let half_close_and_reset = || {
                for (nth, stream) in streams.into_iter().enumerate() {
                    if nth % 2 == 0 {
                        stream.shutdown(Shutdown::Write).unwrap();
                    }
                    reset(stream);
                }
            };
            if round % 2 == 0 {
                half_close_and_reset();
            } else {
                unseen(&server, half_close_and_reset);
            }
            wait_for_ends(&server);
        }
        assert_eq!(server.tally.sends_failed.load(SeqCst), ROUNDS / 4 * AT_ONCE);
    }
}

#[test] // Though nothing is received from them.
fn paused_connections_notice_a_reset() {
    for backend in backends() {
        let server = Server::start(backend, Options { silent: true, ..Options::default() });
        for _ in 0..ROUNDS {
            let streams = connect_some(&server);
            server.ask(Command::Pause);
            for (nth, mut stream) in streams.into_iter().enumerate() {
                if nth % 3 > 0 {
                    stream.write_all(b"unread").unwrap();
                }
                if nth % 3 > 1 {
                    stream.shutdown(Shutdown::Write).unwrap();
                }
                reset(stream);
            }
            wait_for_ends(&server);
        }
    }
}

#[test]
fn a_reset_that_arrives_before_a_pause_is_noticed() {
    for backend in backends() {
        let server = Server::start(backend, Options { silent: true, ..Options::default() });
        for _ in 0..ROUNDS {
            let streams = connect_some(&server);
            let (go, wait) = channel();
            let blocked = server.ask_later(Command::Block(wait));
            let paused = server.ask_later(Command::Pause);
            for mut stream in streams {
                stream.set_nonblocking(true).unwrap();
                let _ = stream.write(&[1; 100_000]).unwrap();
                reset(stream);
            }
            go.send(()).unwrap();
            blocked.recv().unwrap();
            paused.recv().unwrap();
            wait_for_ends(&server);
        }
    }
}

#[test] // In one wake-up, also on a Unix socket.
fn an_end_right_after_the_last_bytes_is_reported() {
    for backend in backends() {
        let name = format!("darter-ends-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let options = Options { silent: true, unix: Some(path.clone()), ..Options::default() };
        let server = Server::start(backend, options);
        let mut sent = 0;
        for _ in 0..ROUNDS {
            let streams = connect_some(&server);
            let before = server.tally.accepted.load(SeqCst);
            let locals: Vec<UnixStream> =
                (0..AT_ONCE).map(|_| UnixStream::connect(&path).unwrap()).collect();
            server.wait_for("them", |tally| tally.accepted.load(SeqCst) == before + AT_ONCE);
            unseen(&server, || {
                for mut stream in streams {
                    stream.set_nonblocking(true).unwrap();
                    sent += stream.write(&[1; 100_000]).unwrap();
                }
                for mut local in locals {
                    local.set_nonblocking(true).unwrap();
                    sent += local.write(&[1; 100_000]).unwrap();
                }
            });
            wait_for_ends(&server);
        }
        assert_eq!(server.tally.received_bytes.load(SeqCst), sent);
        assert_eq!(server.tally.eofs.load(SeqCst), 2 * ROUNDS * AT_ONCE);
    }
}

#[test]
fn closing_a_flooding_client_takes_effect_at_once() {
    const FLOODS: usize = 8;
    for backend in backends() {
        let server = Server::start(backend, Options { silent: true, ..Options::default() });
        for _ in 0..10 {
            let floods: Vec<_> = (0..FLOODS)
                .map(|_| {
                    let mut stream = server.connect();
                    std::thread::spawn(move || while stream.write_all(&[1; 300_000]).is_ok() {})
                })
                .collect();
            let seen = server.tally.received_bytes.load(SeqCst);
            server
                .wait_for("a flood", |tally| tally.received_bytes.load(SeqCst) > seen + 1_000_000);
            server.wait_for("all", |tally| tally.accepted.load(SeqCst) % FLOODS == 0);
            server.ask(Command::Close);
            wait_for_ends(&server);
            floods.into_iter().for_each(|flood| flood.join().unwrap());
        }
    }
}
