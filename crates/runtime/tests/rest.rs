//! Idle cores, and cores that cannot accept, must cost nothing. In a process of its own, because it
//! lowers the limit of open files.

#![allow(clippy::unwrap_used, reason = "a test: helpers included")]

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use darter_runtime::clock::thread_cpu_nanos;
use darter_runtime::limits::raise_open_files;
use darter_runtime::net::{Address, BackendChoice, Event, Net, Wait, Waker};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const BACKENDS: [BackendChoice; 2] = [BackendChoice::Epoll, BackendChoice::Auto];

fn listen(net: &mut Net) -> SocketAddr {
    let id = net.listen_tcp("127.0.0.1:0".parse().unwrap(), 511, 300).unwrap();
    let Some(Address::Tcp(address)) = net.listener_address(id) else { panic!("not TCP") };
    address
}

/// Polls until `until`, or until `enough` connections came. Returns (connections, polls).
fn accept_until(net: &mut Net, until: Instant, enough: usize) -> (usize, usize) {
    let (mut accepted, mut polls) = (0, 0);
    while accepted < enough && Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now()).as_nanos() as u64;
        let count = &mut |event: Event<'_>| accepted += usize::from(is_accepted(&event));
        net.poll(Wait::Until(left), count).unwrap();
        polls += 1;
    }
    (accepted, polls)
}

fn is_accepted(event: &Event<'_>) -> bool {
    matches!(event, Event::Accepted { .. })
}

/// The limit under which `count` more files can be opened: it applies to their numbers, and the
/// process may have inherited high ones.
fn limit_for(count: usize) -> u64 {
    let listed = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut used: Vec<u64> =
        listed.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect();
    used.sort_unstable();
    // The listing's own descriptor is closed by now, and free again.
    used.retain(|&fd| std::path::Path::new(&format!("/proc/self/fd/{fd}")).exists());
    (0..).filter(|fd| used.binary_search(fd).is_err()).nth(count).unwrap()
}

/// One test for both: each looks at the whole process.
#[test]
fn idle_cores_and_cores_out_of_descriptors_do_not_spin() {
    for backend in BACKENDS {
        idle_costs_nothing(backend);
        no_descriptors_no_spin(backend);
    }
}

fn idle_costs_nothing(backend: BackendChoice) {
    let (mut net, _) = Net::open(backend, &Waker::new().unwrap()).unwrap();
    let address = listen(&mut net);
    let _client = TcpStream::connect(address).unwrap();
    assert_eq!(accept_until(&mut net, Instant::now() + Duration::from_secs(5), 1).0, 1);
    let (before, start) = (thread_cpu_nanos(), Instant::now());
    let (_, polls) = accept_until(&mut net, start + Duration::from_millis(500), 1);
    let used = thread_cpu_nanos() - before;
    assert!(start.elapsed() >= Duration::from_millis(500));
    assert!(used < 5_000_000 && polls < 10, "{backend:?}: {used} ns of 500 ms in {polls} polls");
}

fn no_descriptors_no_spin(backend: BackendChoice) {
    const CLIENTS: usize = 6;
    let (mut net, _) = Net::open(backend, &Waker::new().unwrap()).unwrap();
    let before = getrlimit(Resource::Nofile);
    // Room for the listener, our own ends of the connections, and two of the other ends.
    let room = limit_for(1 + CLIENTS + 2);
    setrlimit(Resource::Nofile, Rlimit { current: Some(room), ..before }).unwrap();
    let address = listen(&mut net);
    let _clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();

    let (cpu, start) = (thread_cpu_nanos(), Instant::now());
    let (accepted, polls) = accept_until(&mut net, start + Duration::from_millis(600), CLIENTS);
    let used = thread_cpu_nanos() - cpu;
    assert_eq!(accepted, 2, "{backend:?}");
    assert!(used < 20_000_000 && polls < 30, "{backend:?}: {used} ns of 600 ms in {polls} polls");

    assert!(raise_open_files(room + 10) >= room + 10);
    let soon = Instant::now() + Duration::from_secs(5);
    assert_eq!(accept_until(&mut net, soon, CLIENTS - 2).0, CLIENTS - 2, "{backend:?}");
    setrlimit(Resource::Nofile, before).unwrap();
}
