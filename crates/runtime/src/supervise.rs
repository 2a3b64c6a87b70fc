//! The duties of a server towards a supervisor: notifications of its state (systemd), a pidfile,
//! and a process that leaves its terminal.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// Notifies the supervisor of `state`, lines as in `sd_notify(3)`: `READY=1`, `STOPPING=1`,
/// `STATUS=..`.
///
/// `socket` is the value of `NOTIFY_SOCKET`: a path, or `@` and an abstract name.
///
/// Errors: the socket does not exist.
pub fn notify(socket: &std::ffi::OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(Path::new(socket))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

/// Leaves the terminal: a child continues in a session of its own, without standard input and
/// output, and the calling process ends.
///
/// Call it while there is one thread: the child has none of the others.
///
/// Errors: the fork failed.
pub fn daemonize() -> io::Result<()> {
    let nowhere = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    // SAFETY: by the caller's promise there is one thread, so the child is a whole process.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        // SAFETY: ends this process without running anything that the child will run too.
        _ => unsafe { libc::_exit(0) },
    }
    rustix::process::setsid()?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn received_at(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 64];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn notifications_reach_path_and_abstract_sockets() {
        let name = format!("darter-notify-{}", std::process::id());
        let abstractly = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&abstractly).unwrap();
        notify(&OsString::from(format!("@{name}")), "READY=1").unwrap();
        assert_eq!(received_at(&socket), "READY=1");
        let path = std::env::temp_dir().join(&name);
        let socket = UnixDatagram::bind(&path).unwrap();
        notify(path.as_os_str(), "STOPPING=1").unwrap();
        assert_eq!(received_at(&socket), "STOPPING=1");
        std::fs::remove_file(&path).unwrap();
        assert!(notify(path.as_os_str(), "READY=1").is_err());
    }
}
