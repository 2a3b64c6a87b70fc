//! The network interface, on both backends, against real sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::support::{Command, Options, Server, backends, exchange};
use darter_base::Prng;
use darter_runtime::limits::raise_open_files;
use darter_runtime::net::{Address, Event, Net, Wait, Waker};

#[test] // Pipelined bytes are echoed complete and in order.
fn many_connections_are_echoed_at_once() {
    for backend in backends() {
        for in_parts in [false, true] {
            let server = Server::start(backend, Options { in_parts, ..Options::default() });
            let mut prng = Prng::from_seed(7);
            let mut streams: Vec<TcpStream> = (0..100).map(|_| server.connect()).collect();
            for _ in 0..5 {
                let texts: Vec<Vec<u8>> = streams.iter().map(|_| prng.bytes(1..=9000)).collect();
                for (stream, text) in streams.iter_mut().zip(&texts) {
                    stream.write_all(text).unwrap();
                }
                for (stream, text) in streams.iter_mut().zip(&texts) {
                    let mut back = vec![0; text.len()];
                    stream.read_exact(&mut back).unwrap();
                    assert_eq!(&back, text);
                }
            }
            drop(streams);
            server.wait_for("100 ends", |tally| tally.closed.load(SeqCst) == 100);
            assert_eq!(server.tally.accepted.load(SeqCst), 100);
            assert_eq!(server.tally.eofs.load(SeqCst), 100);
            assert_eq!(server.tally.sends_failed.load(SeqCst), 0);
            assert!(server.tally.peers.lock().unwrap()[0].starts_with("127.0.0.1:"));
        }
    }
}

#[test]
fn bytes_sent_before_reading_are_echoed_in_bounded_memory() {
    const BYTES: usize = 24 << 20;
    for backend in backends() {
        for in_parts in [false, true] {
            let server = Server::start(backend, Options { in_parts, ..Options::default() });
            let mut stream = server.connect();
            let mut writer = stream.try_clone().unwrap();
            let text = Prng::from_seed(3).bytes(BYTES..=BYTES);
            let sent = text.clone();
            let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
            // Reading begins only when the server has stopped taking more.
            let mut seen = usize::MAX;
            while seen != server.tally.received_bytes.load(SeqCst) {
                seen = server.tally.received_bytes.load(SeqCst);
                let mut other = server.connect();
                for _ in 0..200 {
                    assert_eq!(exchange(&mut other, b"x"), b"x");
                }
                seen += 200;
            }
            let mut back = vec![0; BYTES];
            stream.read_exact(&mut back).unwrap();
            writing.join().unwrap();
            assert!(back == text, "bytes differ");
            let waiting = server.tally.waiting_bytes_max.load(SeqCst);
            // 256 KiB by the echo's own limit, and what the buffer ring holds (4 MiB).
            assert!(waiting < 5 << 20, "waiting={waiting}");
        }
    }
}

#[test] // All bytes sent before are echoed, then the connection ends.
fn half_closed_connections_are_echoed_to_the_end() {
    for backend in backends() {
        let server = Server::start(backend, Options::default());
        let mut stream = server.connect();
        let text = Prng::from_seed(5).bytes(100_000..=100_000);
        stream.write_all(&text).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back == text, "bytes differ");
        server.wait_for("the end", |tally| tally.closed.load(SeqCst) == 1);
        assert_eq!(*server.tally.close_errors.lock().unwrap(), vec![]);
    }
}

#[test] // Nothing is received while it is paused.
fn a_resumed_connection_loses_no_bytes() {
    for backend in backends() {
        let server = Server::start(backend, Options::default());
        let mut paused = server.connect();
        assert_eq!(exchange(&mut paused, b"before"), b"before");
        server.ask(Command::Pause);
        let mut free = server.connect();
        assert_eq!(exchange(&mut free, b"meanwhile"), b"meanwhile");
        let before = server.tally.received_bytes.load(SeqCst);
        paused.write_all(b"during").unwrap();
        for _ in 0..50 {
            assert_eq!(exchange(&mut free, b"1"), b"1");
        }
        assert_eq!(server.tally.received_bytes.load(SeqCst), before + 50);
        server.ask(Command::Resume);
        let mut during = [0; 6];
        paused.read_exact(&mut during).unwrap();
        assert_eq!(&during, b"during");
        // Quick changes leave it receiving.
        for _ in 0..20 {
            drop(server.ask_later(Command::Pause));
            drop(server.ask_later(Command::Resume));
        }
        assert_eq!(exchange(&mut paused, b"after"), b"after");
    }
}

#[test] // The core does not spin in between.
fn bytes_of_a_client_that_closes_while_paused_are_received() {
    for backend in backends() {
        let server = Server::start(backend, Options { silent: true, ..Options::default() });
        let mut paused = server.connect();
        paused.write_all(b"one").unwrap();
        server.wait_for("one", |tally| tally.received_bytes.load(SeqCst) == 3);
        server.ask(Command::Pause);
        paused.write_all(b"two").unwrap();
        drop(paused);
        let mut other = server.connect();
        other.write_all(b"x").unwrap();
        server.wait_for("the other", |tally| tally.received_bytes.load(SeqCst) == 4);
        server.ask(Command::Resume);
        server.wait_for("two", |tally| tally.received_bytes.load(SeqCst) == 7);
        server.wait_for("its end", |tally| tally.closed.load(SeqCst) == 1);
    }
}

#[test]
fn a_reset_ends_the_connection_once_with_its_reason() {
    for backend in backends() {
        let server = Server::start(backend, Options::default());
        let mut stream = server.connect();
        assert_eq!(exchange(&mut stream, b"hello"), b"hello");
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream);
        server.wait_for("the end", |tally| tally.closed.load(SeqCst) == 1);
        assert_eq!(*server.tally.close_errors.lock().unwrap(), [ErrorKind::ConnectionReset]);
    }
}

#[test]
fn closing_abandons_a_send_in_flight_and_returns_its_buffer() {
    for backend in backends() {
        let server = Server::start(backend, Options::default());
        let mut stream = server.connect();
        assert_eq!(exchange(&mut stream, b"hello"), b"hello");
        server.wait_for("its send", |tally| tally.sends.load(SeqCst) == 1);
        server.ask(Command::SendEach(vec![7; 64 << 20]));
        server.ask(Command::Close);
        server.wait_for("the end", |tally| tally.closed.load(SeqCst) == 1);
        assert_eq!(server.tally.sends_failed.load(SeqCst), 1);
        assert_eq!(*server.tally.close_errors.lock().unwrap(), vec![]);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest); // The end or a reset: the kernel decides.
        assert!(rest.len() < 64 << 20 && rest.iter().all(|&byte| byte == 7));
        // The place is reused, and works.
        assert_eq!(exchange(&mut server.connect(), b"again"), b"again");
    }
}

#[test] // Once both directions have ended, the connection closes.
fn bytes_sent_before_a_shutdown_arrive() {
    const BYTES: usize = 16 << 20;
    for backend in backends() {
        let server = Server::start(backend, Options::default());
        let mut stream = server.connect();
        assert_eq!(exchange(&mut stream, b"hello"), b"hello");
        server.wait_for("its send", |tally| tally.sends.load(SeqCst) == 1);
        server.ask(Command::SendEach(vec![9; BYTES]));
        server.ask(Command::ShutdownSend);
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), BYTES);
        assert_eq!(server.tally.closed.load(SeqCst), 0);
        drop(stream);
        server.wait_for("the end", |tally| tally.closed.load(SeqCst) == 1);
    }
}

#[test] // With more senders than buffers in the ring.
fn receives_continue_after_the_buffers_run_out() {
    for backend in backends() {
        let server = Server::start(backend, Options::default());
        let mut streams: Vec<TcpStream> = (0..300).map(|_| server.connect()).collect();
        server.wait_for("all", |tally| tally.accepted.load(SeqCst) == 300);
        let text = Prng::from_seed(11).bytes(40_000..=40_000);
        for _ in 0..3 {
            let (go, wait) = channel();
            let blocked = server.ask_later(Command::Block(wait));
            for stream in &mut streams {
                stream.write_all(&text).unwrap();
            }
            go.send(()).unwrap();
            blocked.recv().unwrap();
            for stream in &mut streams {
                let mut back = vec![0; text.len()];
                stream.read_exact(&mut back).unwrap();
                assert!(back == text, "bytes differ");
            }
        }
    }
}

#[test] // As many as this machine's limits allow.
fn thousands_of_connections_are_served() {
    // Both ends are ours, and other tests run in parallel.
    let files = raise_open_files(20_000).saturating_sub(2_000);
    let count = (files / 2).clamp(10, 5_000) as usize;
    for backend in backends() {
        let server = Server::start(backend, Options::default());
        let mut streams: Vec<TcpStream> = (0..count).map(|_| server.connect()).collect();
        server.wait_for("all", |tally| tally.accepted.load(SeqCst) == count);
        for stream in &mut streams {
            stream.write_all(b"hello").unwrap();
        }
        for stream in &mut streams {
            let mut back = [0; 5];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(&back, b"hello");
        }
        server.ask(Command::Close);
        server.wait_for("all ends", |tally| tally.closed.load(SeqCst) == count);
    }
}

#[test] // The socket's file has the configured mode and is removed at the end.
fn unix_sockets_are_served() {
    for backend in backends() {
        let path = std::env::temp_dir().join(format!("darter-{}.sock", std::process::id()));
        let options = Options { unix: Some(path.clone()), ..Options::default() };
        let server = Server::start(backend, options);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let mut stream = UnixStream::connect(&path).unwrap();
        assert_eq!(exchange(&mut stream, b"hello"), b"hello");
        assert_eq!(*server.tally.peers.lock().unwrap(), [format!("{}:0", path.display())]);
        drop(stream);
        server.wait_for("the end", |tally| tally.closed.load(SeqCst) == 1);
        server.ask(Command::StopListening);
        assert!(!path.exists());
    }
}

#[test] // A server that stops listening refuses new clients and keeps the old.
fn a_server_that_stops_listening_keeps_its_clients() {
    for backend in backends() {
        let server = Server::start(backend, Options::default());
        let mut stream = server.connect();
        assert_eq!(exchange(&mut stream, b"hello"), b"hello");
        server.ask(Command::StopListening);
        assert!(TcpStream::connect(server.address).is_err());
        assert_eq!(exchange(&mut stream, b"still"), b"still");
    }
}

#[test] // Also before their first receive.
fn connections_handed_over_lose_no_bytes() {
    for backend in backends() {
        for other_backend in backends() {
            let other = Server::start(other_backend, Options::default());
            let hand_over_to = Some(other.remote.clone());
            let server = Server::start(backend, Options { hand_over_to, ..Options::default() });
            let mut streams: Vec<TcpStream> = (0..50).map(|_| server.connect()).collect();
            for (nth, stream) in streams.iter_mut().enumerate() {
                let text = format!("client {nth}");
                assert_eq!(exchange(stream, text.as_bytes()), text.as_bytes());
            }
            let taken = other.tally.accepted.load(SeqCst);
            assert!(taken > 0 && taken <= 50, "taken={taken}");
        }
    }
}

/// Polls until an event of the wanted kind.
fn poll_for<T>(net: &mut Net, mut wanted: impl FnMut(Event<'_>) -> Option<T>) -> T {
    let mut found = None;
    while found.is_none() {
        net.poll(Wait::Forever, &mut |event| found = found.take().or(wanted(event))).unwrap();
    }
    found.unwrap()
}

#[test] // Its clients stay connected.
fn a_closed_listener_releases_its_address_at_once() {
    for backend in backends() {
        let (mut net, _) = Net::open(backend, &Waker::new().unwrap()).unwrap();
        let mut id = net.listen_tcp("127.0.0.1:0".parse().unwrap(), 511, 0).unwrap();
        let Some(Address::Tcp(address)) = net.listener_address(id) else { panic!("not TCP") };
        let mut clients = Vec::new();
        for _ in 0..20 {
            clients.push(TcpStream::connect(address).unwrap());
            let by = poll_for(&mut net, |event| match event {
                Event::Accepted { listener, .. } => Some(listener),
                _ => None,
            });
            assert_eq!(by, id);
            let taken = net.listen_tcp_at_once(address, 511, 0).unwrap_err();
            assert_eq!(taken.kind(), ErrorKind::AddrInUse);
            net.stop_listener(id);
            assert!(TcpStream::connect(address).is_err());
            id = net.listen_tcp_at_once(address, 511, 0).unwrap();
        }
        net.poll(Wait::Nothing, &mut |_| {}).unwrap();
        assert_eq!(net.connections(), clients.len());
    }
}

#[test] // Even if their index is reused.
fn tokens_of_closed_connections_have_no_effect() {
    for backend in backends() {
        let (mut net, _) = Net::open(backend, &Waker::new().unwrap()).unwrap();
        let id = net.listen_tcp("127.0.0.1:0".parse().unwrap(), 511, 0).unwrap();
        let Some(Address::Tcp(address)) = net.listener_address(id) else { panic!("not TCP") };
        let accept = |net: &mut Net| {
            let client = TcpStream::connect(address).unwrap();
            let token = poll_for(net, |event| match event {
                Event::Accepted { conn, .. } => Some(conn),
                _ => None,
            });
            (client, token)
        };
        let (_client, first) = accept(&mut net);
        net.poll(Wait::Nothing, &mut |_| {}).unwrap();
        assert!(net.hand_over(first).is_none(), "too late: it receives by now");
        net.close(first);
        assert!(net.send(first, vec![1].into()).is_err());
        let closed = poll_for(&mut net, |event| match event {
            Event::Closed { conn, error } => Some((conn, error.is_none())),
            _ => None,
        });
        assert_eq!(closed, (first, true));
        let (mut client, second) = accept(&mut net);
        assert_eq!((second.index, net.tokens()), (first.index, vec![second]));
        net.close(first);
        assert!(net.send(first, vec![1].into()).is_err() && net.hand_over(first).is_none());
        net.send(second, vec![2].into()).unwrap();
        poll_for(&mut net, |event| matches!(event, Event::Sent { .. }).then_some(()));
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [2]);
    }
}
