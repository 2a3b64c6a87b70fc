//! Listening sockets, and the options of accepted ones.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, bind,
    getpeername, getsockname, listen, shutdown, socket_with, sockopt,
};

use super::event::{Address, Peer, Wait};

/// How long a listener rests after `accept` failed for lack of resources: longer than a spin,
/// shorter than a client's patience.
pub(super) const REST: Duration = Duration::from_millis(100);

/// How long a previous process may take to release an address: see [`claim`].
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// A listening socket of a [`super::Net`].
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) address: Address,
    /// The path of a unix socket, removed when the listener is.
    path: Option<PathBuf>,
    /// Until when the listener rests after an error.
    pub(super) rests_until: Option<Instant>,
}

impl Listener {
    /// Stops listening at once. Closing the socket is not enough while the kernel has an accept of
    /// this core: the kernel keeps the socket, and its address, until it has seen the cancellation.
    pub(super) fn silence(&self) {
        // The socket is listening, and only this function shuts it down: this cannot fail.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Probes clients that connect from now on after this many seconds of silence, or never if it
    /// is 0.
    pub(super) fn set_keepalive(&self, seconds: u32) -> io::Result<()> {
        set_keepalive(&self.socket, seconds)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // It may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Opens a TCP listener. Its clients inherit the options: no delay, and keepalive after this many
/// seconds of silence (0: never).
pub(super) fn tcp(
    address: SocketAddr,
    backlog: i32,
    keepalive_s: u32,
    patience: Duration,
) -> io::Result<Listener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    set_keepalive(&socket, keepalive_s)?;
    claim(&socket, address, backlog, patience)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok(Listener { socket, address: Address::Tcp(bound), path: None, rests_until: None })
}

/// Binds and listens. A killed process leaves its io_uring to the kernel, which releases the
/// sockets some 10 ms after the process has ended: an immediate restart would find the address in
/// use.
fn claim(
    socket: &OwnedFd,
    address: SocketAddr,
    backlog: i32,
    patience: Duration,
) -> io::Result<()> {
    const BETWEEN: Duration = Duration::from_millis(5);
    let begun = Instant::now();
    let patiently = |attempt: &dyn Fn() -> Result<(), Errno>| {
        loop {
            match attempt() {
                Err(Errno::ADDRINUSE) if begun.elapsed() < patience => std::thread::sleep(BETWEEN),
                outcome => return Ok(outcome?),
            }
        }
    };
    patiently(&|| bind(socket, &address)).and_then(|()| patiently(&|| listen(socket, backlog)))
}

/// Opens a unix listener at `path`, and replaces a socket that is there. `mode` sets the file's
/// permissions.
pub(super) fn unix(path: &Path, backlog: i32, mode: Option<u32>) -> io::Result<Listener> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let address = Address::Unix(Arc::from(path));
    let listener = Listener { socket, address, path: Some(path.into()), rests_until: None };
    if let Some(mode) = mode {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    listen(&listener.socket, backlog)?;
    Ok(listener)
}

/// The addresses of an accepted socket. Fails if the client has already gone.
pub(super) fn peer_of(socket: impl AsFd, listener: &Address) -> io::Result<Peer> {
    if let Address::Unix(_) = listener {
        return Ok(Peer { remote: listener.clone(), local: listener.clone() });
    }
    let remote = getpeername(&socket)?.ok_or(io::ErrorKind::NotConnected)?;
    let local = getsockname(&socket)?;
    Ok(Peer { remote: tcp_address(remote)?, local: tcp_address(local)? })
}

fn tcp_address(address: SocketAddrAny) -> io::Result<Address> {
    Ok(Address::Tcp(SocketAddr::try_from(address)?))
}

fn set_keepalive(socket: &OwnedFd, seconds: u32) -> io::Result<()> {
    /// The largest value that Linux accepts.
    const SECONDS_MAX: u32 = 32_767;
    sockopt::set_socket_keepalive(socket, seconds > 0)?;
    if seconds == 0 {
        return Ok(());
    }
    let seconds = seconds.min(SECONDS_MAX);
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(seconds.into()))?;
    // Three probes are spread over another such span, as in Redis. After that the client counts as
    // dead.
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs((seconds / 3).max(1).into()))?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    Ok(())
}

/// Whether a failed `accept` concerns one client only. Then the next accept may succeed. All other
/// errors (no descriptors, no memory) concern the server, and the listener must rest.
pub(super) fn concerns_one_client(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNABORTED
            | Errno::INTR
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NONET
            | Errno::NOPROTOOPT
            | Errno::TIMEDOUT
    )
}

/// The result of [`rouse`].
pub(super) struct Roused {
    /// The listeners whose rest is over.
    pub(super) ids: Vec<usize>,
    /// Whether others are still resting.
    pub(super) others_rest: bool,
    /// The longest wait that does not miss the end of the next rest.
    pub(super) wait: Wait,
}

/// Finds the listeners whose rest is over.
pub(super) fn rouse(listeners: &mut [Option<Listener>], wait: Wait) -> Roused {
    let now = Instant::now();
    let mut roused = Roused { ids: Vec::new(), others_rest: false, wait };
    for (id, listener) in listeners.iter_mut().enumerate() {
        let Some(listener) = listener else { continue };
        let Some(until) = listener.rests_until else { continue };
        if until <= now {
            listener.rests_until = None;
            roused.ids.push(id);
            continue;
        }
        roused.others_rest = true;
        let left = u64::try_from((until - now).as_nanos()).unwrap_or(u64::MAX);
        roused.wait = match roused.wait {
            Wait::Nothing => Wait::Nothing,
            Wait::Until(nanos) => Wait::Until(nanos.min(left)),
            Wait::Forever => Wait::Until(left),
        };
    }
    roused
}
