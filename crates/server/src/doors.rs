//! The TCP listeners: opened at start on the addresses of `bind` at `port`, and changed by CONFIG
//! SET. Connections inherit `tcp-keepalive` from their listener.
//!
//! A change is made completely or not at all: if a new address is not available, the old listeners
//! stay. New listeners are opened before old ones are closed, so that the server is always
//! reachable. The exception is an old listener at the same port that may conflict with a new one:
//! it is closed first.
//!
//! Host names are resolved at start, before any client is served. A name server that does not
//! answer takes seconds, and no core may wait for it.
//!
//! Not here: accepted connections. See `thread`.

use crate::settings::Settings;
use darter_runtime::net::{Address, Net};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// The function that opens a listener: [`Net::listen_tcp`] or [`Net::listen_tcp_at_once`].
pub(crate) type Open = fn(&mut Net, SocketAddr, i32, u32) -> io::Result<usize>;

/// The TCP listeners of a core: their addresses, and the runtime's ids of them.
#[derive(Default)]
pub(crate) struct Doors {
    open: Vec<(SocketAddr, usize)>,
    /// Host names of `bind` that were resolved at start, with the results.
    names: Vec<(String, io::Result<IpAddr>)>,
    /// `tcp-keepalive` of the settings that were applied last.
    keepalive_s: u32,
}

/// An address that `bind` names.
struct Wanted {
    word: String,
    address: io::Result<SocketAddr>,
    /// True for an address written with a `-`: it need not exist on this machine.
    optional: bool,
}

impl Doors {
    /// Resolves the host names of `bind`. This may take seconds.
    pub(crate) fn look_up(&mut self, settings: &Settings) {
        let words = settings.text("bind").split(' ').filter(|word| !word.is_empty());
        let names = words.map(|word| word.strip_prefix('-').unwrap_or(word));
        let names = names.filter(|name| plain_address(name).is_none());
        self.names = names.map(|name| (name.to_owned(), looked_up(name))).collect();
    }

    /// The IP address of one word of `bind`.
    fn resolve(&self, name: &str) -> io::Result<IpAddr> {
        if let Some(address) = plain_address(name) {
            return Ok(address);
        }
        match self.names.iter().find(|(other, _)| other == name) {
            Some((_, Ok(address))) => Ok(*address),
            Some((_, Err(error))) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Err(io::Error::other("names are looked up at the start only")),
        }
    }

    fn wanted(&self, settings: &Settings) -> Vec<Wanted> {
        let port = port(settings);
        if port == 0 {
            return Vec::new();
        }
        let words = settings.text("bind").split(' ').filter(|word| !word.is_empty());
        let mut all: Vec<Wanted> = words
            .map(|word| {
                let (name, optional) = match word.strip_prefix('-') {
                    Some(rest) => (rest, true),
                    None => (word, false),
                };
                let address = self.resolve(name).map(|address| SocketAddr::new(address, port));
                Wanted { word: format!("{name}:{port}"), address, optional }
            })
            .collect();
        // An address that is named twice counts once.
        let mut seen = Vec::new();
        all.retain(|wanted| match &wanted.address {
            Ok(address) if seen.contains(address) => false,
            Ok(address) => {
                seen.push(*address);
                true
            }
            Err(_) => true,
        });
        all
    }

    /// Opens and closes listeners so that they match `settings`.
    ///
    /// Errors: a sentence with the unavailable address and the reason. Then no listener has
    /// changed.
    pub(crate) fn follow(
        &mut self,
        net: &mut Net,
        settings: &Settings,
        open: Open,
    ) -> Result<(), String> {
        let wanted = self.wanted(settings);
        let is_wanted = |(address, _): &(SocketAddr, usize)| {
            wanted.iter().any(|wanted| wanted.address.as_ref().is_ok_and(|other| other == address))
        };
        let (stay, go): (Vec<_>, Vec<_>) = self.open.drain(..).partition(is_wanted);
        let is_new = |wanted: &&Wanted| {
            let stays = |other: &SocketAddr| stay.iter().any(|(address, _)| address == other);
            !wanted.address.as_ref().is_ok_and(stays)
        };
        let ports = port(settings);
        let conflicts = go.iter().any(|(address, _)| address.port() == ports);
        if conflicts {
            close(net, &go);
        }
        let opened = open_all(net, wanted.iter().filter(is_new), settings, open);
        self.open = stay;
        let followed = match opened {
            Ok(opened) => {
                if !conflicts {
                    close(net, &go);
                }
                self.open.extend(opened);
                self.keepalive_s = keepalive_s(settings);
                Ok(())
            }
            Err(why) => {
                self.open.extend(if conflicts { reopened(net, go, settings, open) } else { go });
                Err(why)
            }
        };
        self.set_keepalive(net);
        followed
    }

    fn set_keepalive(&self, net: &Net) {
        for (address, id) in &self.open {
            if let Err(error) = net.set_keepalive(*id, self.keepalive_s) {
                tracing::warn!("tcp-keepalive of {address}: {error}");
            }
        }
    }
}

fn keepalive_s(settings: &Settings) -> u32 {
    u32::try_from(settings.int("tcp-keepalive")).unwrap_or(0)
}

fn port(settings: &Settings) -> u16 {
    u16::try_from(settings.int("port")).unwrap_or(0)
}

/// Parses a literal address. `*` and `::*` mean all addresses of IPv4 and of IPv6.
fn plain_address(name: &str) -> Option<IpAddr> {
    let name = match name {
        "*" => "0.0.0.0",
        "::*" => "::",
        name => name,
    };
    name.parse().ok()
}

/// Resolves a host name. As in Redis, a name with a colon is IPv6, and any other name IPv4.
fn looked_up(name: &str) -> io::Result<IpAddr> {
    let mut found = (name, 0).to_socket_addrs()?;
    let family = found.find(|address| address.is_ipv6() == name.contains(':'));
    let family = family.map(|address| address.ip());
    family.ok_or_else(|| io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address"))
}

fn open_all<'a>(
    net: &mut Net,
    wanted: impl Iterator<Item = &'a Wanted>,
    settings: &Settings,
    open: Open,
) -> Result<Vec<(SocketAddr, usize)>, String> {
    let backlog = i32::try_from(settings.int("tcp-backlog")).unwrap_or(i32::MAX);
    let mut opened = Vec::new();
    for Wanted { word, address, optional } in wanted {
        let listening = match address {
            Ok(address) => open(net, *address, backlog, keepalive_s(settings)),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        match listening {
            Ok(id) => opened.push((bound_address(net, id), id)),
            Err(error) if may_be_missing(&error, *optional) => {
                tracing::warn!("not listening on {word}: {error}");
            }
            Err(error) => {
                close(net, &opened);
                return Err(format!("cannot listen on {word}: {error}"));
            }
        }
    }
    Ok(opened)
}

/// True if an address may be skipped after this error: it is optional, or the machine lacks its
/// address family. Redis skips these as well.
fn may_be_missing(error: &io::Error, optional: bool) -> bool {
    /// EAFNOSUPPORT on Linux. It has no `ErrorKind`.
    const FAMILY_NOT_SUPPORTED: i32 = 97;
    (optional && error.kind() == io::ErrorKind::AddrNotAvailable)
        || error.raw_os_error() == Some(FAMILY_NOT_SUPPORTED)
}

fn bound_address(net: &Net, id: usize) -> SocketAddr {
    match net.listener_address(id) {
        Some(Address::Tcp(address)) => address,
        _ => unreachable!("a TCP listener that was just opened"),
    }
}

fn close(net: &mut Net, doors: &[(SocketAddr, usize)]) {
    doors.iter().for_each(|(_, id)| net.stop_listener(*id));
}

/// Reopens the listeners that were closed to make room for new ones. If another process has taken
/// an address meanwhile, an error is logged and the server stays reachable at its other addresses.
fn reopened(
    net: &mut Net,
    closed: Vec<(SocketAddr, usize)>,
    settings: &Settings,
    open: Open,
) -> Vec<(SocketAddr, usize)> {
    let again = closed.into_iter().filter_map(|(address, _)| {
        let wanted = Wanted { word: address.to_string(), address: Ok(address), optional: false };
        match open_all(net, std::iter::once(&wanted), settings, open) {
            Ok(opened) => opened.into_iter().next(),
            Err(why) => {
                tracing::error!("{why}, which was open before");
                None
            }
        }
    });
    again.collect()
}
