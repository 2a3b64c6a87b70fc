//! Question: what does an echoed message cost the server's core on either back, by the depth of
//! the pipeline and the size of the reply?
//!
//! One core serves 50 connections, another drives them: writes to all, then reads from all.
//! `cargo run --release -p darter-runtime --example echo_bench -- [seconds]`

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use darter_runtime::clock::thread_cpu_nanos;
use darter_runtime::net::{Address, BackChoice, Event, Net, Token, Wait, Waker};
use darter_runtime::topology::{pin_thread, processors};

const CONNECTIONS: usize = 50;
const REQUEST_BYTES: usize = 40;

#[derive(Clone, Copy)]
struct Load {
    pipeline: usize,
    reply_bytes: usize,
}

#[derive(Default)]
struct Conn {
    out: Vec<u8>,
    spare: Vec<u8>,
    part_bytes: usize,
    sending: bool,
    touched: bool,
}

struct Cost {
    nanos_per_op: u64,
    polls_per_op: f64,
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    println!("| pipeline | reply bytes | back | ops/s | server CPU ns/op | polls/op |");
    println!("|---|---|---|---|---|---|");
    for (pipeline, reply_bytes) in
        [(1, 40), (16, 40), (100, 40), (1, 4096), (1, 16_384), (1, 65_536), (4, 65_536)]
    {
        for back in [BackChoice::Epoll, BackChoice::Uring, BackChoice::Epoll, BackChoice::Uring] {
            let load = Load { pipeline, reply_bytes };
            measure(back, load, Duration::from_secs_f64(seconds));
        }
    }
}

fn measure(back: BackChoice, load: Load, span: Duration) {
    let stop = Arc::new(AtomicBool::new(false));
    let waker = Waker::new().expect("a descriptor");
    let (tell, told) = channel();
    let (cpus, their_stop, their_waker) = (processors(), Arc::clone(&stop), waker.clone());
    let server_cpu = cpus[0];
    let server = std::thread::spawn(move || {
        pin_thread(server_cpu).expect("we may run there");
        let (mut net, _) = Net::open(back, &their_waker).expect("the back is there");
        let any = "127.0.0.1:0".parse().expect("an address");
        let id = net.listen_tcp(any, 511, 0).expect("a port");
        tell.send(net.listener_address(id)).expect("main waits");
        serve(&mut net, load, &their_stop)
    });
    let Some(Address::Tcp(address)) = told.recv().expect("the server listens") else {
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
        "| {pipeline} | {reply_bytes} | {back:?} | {rate:.0} | {nanos_per_op} | {polls_per_op:.3} |"
    );
}

fn serve(net: &mut Net, load: Load, stop: &AtomicBool) -> Cost {
    let mut conns: Vec<Conn> = Vec::new();
    let mut touched: Vec<Token> = Vec::new();
    let reply = vec![b'r'; load.reply_bytes];
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
                state.part_bytes += bytes.len();
                while state.part_bytes >= REQUEST_BYTES {
                    state.part_bytes -= REQUEST_BYTES;
                    state.out.extend_from_slice(&reply);
                    ops += 1;
                }
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
            Event::Eof { conn } => touch(&mut conns[conn.index as usize], conn, &mut touched),
            Event::Closed { .. } | Event::Woken => {}
        };
        net.poll(Wait::Forever, handler).expect("the back works");
        polls += 1;
        for conn in touched.drain(..) {
            let state = &mut conns[conn.index as usize];
            state.touched = false;
            if !state.sending && !state.out.is_empty() {
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
    let request = vec![b'q'; REQUEST_BYTES * load.pipeline];
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
