//! Signals, in a child process: the first stops in order, the second at once.

#![allow(clippy::unwrap_used, reason = "a test: helpers included")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};

use darter_runtime::net::{BackendChoice, Net, Wait, Waker};
use darter_runtime::signal::{IMPATIENT_EXIT, watch};
use rustix::process::{Pid, Signal, kill_process};

const ROLE: &str = "DARTER_SIGNAL_TEST_CHILD";

fn main() {
    match std::env::var(ROLE) {
        Ok(role) => be_child(role == "linger"),
        Err(_) => {
            for signal in [Signal::TERM, Signal::INT] {
                stops_in_order(signal);
                second_signal_ends_at_once(signal);
            }
            println!("signals: ok");
        }
    }
}

/// Sleeps until asked to stop; then ends, or lingers like a server with much to finish.
fn be_child(linger: bool) {
    let waker = Waker::new().unwrap();
    let flag = watch(vec![waker.clone()]).unwrap();
    let (mut net, _) = Net::open(BackendChoice::Auto, &waker).unwrap();
    println!("ready");
    while flag.raised().is_none() {
        net.poll(Wait::Forever, &mut |_| {}).unwrap();
    }
    println!("stopping");
    if linger {
        loop {
            net.poll(Wait::Forever, &mut |_| {}).unwrap();
        }
    }
}

struct Watched {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Watched {
    fn start(role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.env(ROLE, role).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut watched = Self { child, lines };
        watched.expect("ready");
        watched
    }

    fn expect(&mut self, expected: &str) {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), expected);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn end(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

fn stops_in_order(signal: Signal) {
    let mut child = Watched::start("end");
    child.signal(Signal::HUP);
    child.signal(Signal::PIPE);
    child.signal(signal);
    child.expect("stopping");
    assert_eq!(child.end().code(), Some(0), "{signal:?}");
}

fn second_signal_ends_at_once(signal: Signal) {
    let mut child = Watched::start("linger");
    child.signal(signal);
    child.expect("stopping");
    child.signal(Signal::TERM);
    assert_eq!(child.end().code(), Some(IMPATIENT_EXIT), "{signal:?}");
}
