//! What does an echoed message cost the server's core on either backend, by pipeline depth and
//! reply size?
//!
//! One core serves 50 connections, another drives them: writes to all, then reads from all.
//! `cargo run --release -p darter-runtime --example echo -- [seconds]`
//!
//! The server alone is the floor of `bench throughput`: the cost of the kernel and the runtime for
//! a server's traffic, before any work is done. `echo serve PORT REPLY` answers each request with
//! the same bytes, and counts requests by counting `*`, with which each one begins.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use darter_runtime::clock::thread_cpu_nanos;
use darter_runtime::net::{Address, BackendChoice, Event, Net, Token, Wait, Waker};
use darter_runtime::topology::{pin_thread, processors};

const CONNECTIONS: usize = 50;
const REQUEST_BYTES: usize = 40;
/// The first byte of each request. Elsewhere it is a whole argument, just before the end of a line.
const REQUEST_MARK: u8 = b'*';

#[derive(Clone, Copy)]
struct Load {
    pipeline: usize,
    reply_bytes: usize,
}

#[derive(Default)]
struct Conn {
    out: Vec<u8>,
    spare: Vec<u8>,
    sending: bool,
    touched: bool,
    ended: bool,
    /// True if the last received byte was a mark.
    is_marked: bool,
}

impl Conn {
    /// The number of requests that begin in `bytes`, except for a mark at the end, which counts
    /// later.
    fn begun(&mut self, bytes: &[u8]) -> usize {
        let first = usize::from(self.is_marked && bytes[0] != b'\r');
        self.is_marked = bytes.ends_with(&[REQUEST_MARK]);
        let marks = bytes.windows(2).filter(|two| two[0] == REQUEST_MARK && two[1] != b'\r');
        first + marks.count()
    }
}

struct Cost {
    nanos_per_op: u64,
    polls_per_op: f64,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [verb, port, reply] if verb == "serve" => {
            serve_alone(port.parse().expect("a port"), reply.as_bytes());
        }
        [seconds] => measure_all(seconds.parse().expect("seconds")),
        _ => measure_all(1.0),
    }
}

/// Serves until the process is killed.
fn serve_alone(port: u16, reply: &[u8]) {
    let waker = Waker::new().expect("a descriptor");
    let (mut net, _) = Net::open(BackendChoice::Auto, &waker).expect("epoll is always there");
    net.listen_tcp((Ipv4Addr::LOCALHOST, port).into(), 511, 0).expect("the port is free");
    serve(&mut net, reply, &AtomicBool::new(false));
}

fn measure_all(seconds: f64) {
    println!("| pipeline | reply bytes | backend | ops/s | server CPU ns/op | polls/op |");
    println!("|---|---|---|---|---|---|");
    for (pipeline, reply_bytes) in
        [(1, 40), (16, 40), (100, 40), (1, 4096), (1, 16_384), (1, 65_536), (4, 65_536)]
    {
        for backend in
            [BackendChoice::Epoll, BackendChoice::Uring, BackendChoice::Epoll, BackendChoice::Uring]
        {
            let load = Load { pipeline, reply_bytes };
            measure(backend, load, Duration::from_secs_f64(seconds));
        }
    }
}

fn measure(backend: BackendChoice, load: Load, span: Duration) {
    let stop = Arc::new(AtomicBool::new(false));
    let waker = Waker::new().expect("a descriptor");
    let (sender, receiver) = channel();
    let (cpus, their_stop, their_waker) = (processors(), Arc::clone(&stop), waker.clone());
    let server_cpu = cpus[0];
    let server = std::thread::spawn(move || {
        pin_thread(server_cpu).expect("we may run there");
        let (mut net, _) = Net::open(backend, &their_waker).expect("the backend is there");
        let any = "127.0.0.1:0".parse().expect("an address");
        let id = net.listen_tcp(any, 511, 0).expect("a port");
        sender.send(net.listener_address(id)).expect("main waits");
        serve(&mut net, &vec![b'r'; load.reply_bytes], &their_stop)
    });
    let Some(Address::Tcp(address)) = receiver.recv().expect("the server listens") else {
        unreachable!("it listens on TCP");
    };
    pin_thread(cpus[cpus.len() - 1]).expect("we may run there");
    let start = Instant::now();
    let ops = drive(address, load, span);
    let rate = ops as f64 / start.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    waker.wake();
    let cost = server.join().expect("the server does not panic");
    let Load { pipeline, reply_bytes } = load;
    let Cost { nanos_per_op, polls_per_op } = cost;
    println!(
        "| {pipeline} | {reply_bytes} | {backend:?} | {rate:.0} | {nanos_per_op} | {polls_per_op:.3} |"
    );
}

fn serve(net: &mut Net, reply: &[u8], stop: &AtomicBool) -> Cost {
    let mut conns: Vec<Conn> = Vec::new();
    let mut touched: Vec<Token> = Vec::new();
    let (mut ops, mut polls, start) = (0_u64, 0_u64, thread_cpu_nanos());
    while !stop.load(Ordering::Relaxed) {
        let handler = &mut |event: Event<'_>| match event {
            Event::Accepted { conn, .. } => {
                let index = conn.index as usize;
                conns.resize_with(conns.len().max(index + 1), Conn::default);
                conns[index] = Conn::default();
            }
            Event::Received { conn, bytes } => {
                let state = &mut conns[conn.index as usize];
                let requests = state.begun(bytes);
                (0..requests).for_each(|_| state.out.extend_from_slice(reply));
                ops += requests as u64;
                touch(state, conn, &mut touched);
            }
            Event::Sent { conn, buffer, .. } => {
                let state = &mut conns[conn.index as usize];
                state.sending = false;
                state.spare = buffer.into_spare();
                if !state.out.is_empty() {
                    touch(state, conn, &mut touched);
                }
            }
            Event::Eof { conn } => {
                let state = &mut conns[conn.index as usize];
                state.ended = true;
                touch(state, conn, &mut touched);
            }
            Event::Closed { .. } | Event::Released { .. } | Event::Woken => {}
        };
        net.poll(Wait::Forever, handler).expect("the backend works");
        polls += 1;
        for conn in touched.drain(..) {
            let state = &mut conns[conn.index as usize];
            state.touched = false;
            if state.ended {
                net.close(conn);
            } else if !state.sending && !state.out.is_empty() {
                let out = std::mem::replace(&mut state.out, std::mem::take(&mut state.spare));
                state.sending = net.send(conn, out.into()).is_ok();
            }
        }
    }
    let nanos = thread_cpu_nanos() - start;
    Cost { nanos_per_op: nanos / ops.max(1), polls_per_op: polls as f64 / ops.max(1) as f64 }
}

fn touch(state: &mut Conn, conn: Token, touched: &mut Vec<Token>) {
    if !std::mem::replace(&mut state.touched, true) {
        touched.push(conn);
    }
}

fn drive(address: SocketAddr, load: Load, span: Duration) -> usize {
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| TcpStream::connect(address).expect("the server listens"))
        .collect();
    streams.iter().for_each(|stream| stream.set_nodelay(true).expect("TCP"));
    let mut request = [b'q'; REQUEST_BYTES];
    request[0] = REQUEST_MARK;
    let request = request.repeat(load.pipeline);
    let mut reply = vec![0; load.reply_bytes * load.pipeline];
    let (start, mut ops) = (Instant::now(), 0);
    while start.elapsed() < span {
        for stream in &mut streams {
            stream.write_all(&request).expect("the server reads");
        }
        for stream in &mut streams {
            stream.read_exact(&mut reply).expect("the server answers");
        }
        ops += load.pipeline * CONNECTIONS;
    }
    ops
}
