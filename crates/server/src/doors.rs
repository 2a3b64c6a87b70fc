//! Where the server listens over TCP: the addresses of `bind` at `port`, opened at the start, and
//! changed while it runs. Clients inherit `tcp-keepalive` from where they came in.
//!
//! A change is whole or not at all: if one of the new addresses cannot be had, the old ones stay. New
//! ones are opened before old ones are closed, so that nobody finds the server closed meanwhile; only
//! where an old one may stand in the way, as all addresses of a port do, it goes first.
//!
//! Names are looked up at the start, before anything is served: the system does that in its own time,
//! seconds where a name server is silent, and no core may wait for it.
//!
//! Not here: what becomes of a connection. See `thread`.

use crate::settings::Settings;
use darter_runtime::net::{Address, Net};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// How a listener is opened: [`Net::listen_tcp`], or [`Net::listen_tcp_at_once`].
pub(crate) type Open = fn(&mut Net, SocketAddr, i32, u32) -> io::Result<usize>;

/// The TCP listeners of a core: their addresses and the runtime's numbers.
#[derive(Default)]
pub(crate) struct Doors {
    open: Vec<(SocketAddr, usize)>,
    /// Names of `bind` at the start, and what the system said of them.
    names: Vec<(String, io::Result<IpAddr>)>,
    /// As of the settings that were followed last.
    keepalive_s: u32,
}

/// An address of `bind`.
struct Wanted {
    word: String,
    address: io::Result<SocketAddr>,
    /// It was written with a `-`: it may be missing on this machine.
    optional: bool,
}

impl Doors {
    /// Looks up the names of `bind`, which may take seconds.
    pub(crate) fn look_up(&mut self, settings: &Settings) {
        let words = settings.text("bind").split(' ').filter(|word| !word.is_empty());
        let names = words.map(|word| word.strip_prefix('-').unwrap_or(word));
        let names = names.filter(|name| plain_address(name).is_none());
        self.names = names.map(|name| (name.to_owned(), looked_up(name))).collect();
    }

    /// The address that a word of `bind` means.
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
        // Twice the same is once.
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

    /// Listens where `settings` say, and nowhere else.
    ///
    /// Errors: a sentence that says which address cannot be had, and why; then nothing has changed.
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
        let in_the_way = go.iter().any(|(address, _)| address.port() == ports);
        if in_the_way {
            close(net, &go);
        }
        let opened = open_all(net, wanted.iter().filter(is_new), settings, open);
        self.open = stay;
        let followed = match opened {
            Ok(opened) => {
                if !in_the_way {
                    close(net, &go);
                }
                self.open.extend(opened);
                self.keepalive_s = keepalive_s(settings);
                Ok(())
            }
            Err(why) => {
                self.open.extend(if in_the_way { reopened(net, go, settings, open) } else { go });
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

/// An address that is written as one; `*` and `::*` are all of a family.
fn plain_address(name: &str) -> Option<IpAddr> {
    let name = match name {
        "*" => "0.0.0.0",
        "::*" => "::",
        name => name,
    };
    name.parse().ok()
}

/// What holds a colon is of IPv6, all else of IPv4, names too, as in Redis.
fn looked_up(name: &str) -> io::Result<IpAddr> {
    let mut found = (name, 0).to_socket_addrs()?;
    let family = found.find(|address| address.is_ipv6() == name.contains(':'));
    let family = family.map(|address| address.ip());
    family.ok_or_else(|| io::Error::new(io::ErrorKind::AddrNotAvailable, "no address of this name"))
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
            Ok(id) => opened.push((told_address(net, id), id)),
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

/// An address that was marked so, and a whole family that the machine does not have, as in Redis.
fn may_be_missing(error: &io::Error, optional: bool) -> bool {
    /// EAFNOSUPPORT of Linux, which has no `ErrorKind`.
    const FAMILY_NOT_SUPPORTED: i32 = 97;
    (optional && error.kind() == io::ErrorKind::AddrNotAvailable)
        || error.raw_os_error() == Some(FAMILY_NOT_SUPPORTED)
}

fn told_address(net: &Net, id: usize) -> SocketAddr {
    match net.listener_address(id) {
        Some(Address::Tcp(address)) => address,
        _ => unreachable!("a TCP listener that was just opened"),
    }
}

fn close(net: &mut Net, doors: &[(SocketAddr, usize)]) {
    doors.iter().for_each(|(_, id)| net.stop_listener(*id));
}

/// Opens anew what was closed to make room. Somebody else may have taken an address in between: then
/// the server is reached by the others, and the log says so.
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
                tracing::error!("{why}, which was listened on before");
                None
            }
        }
    });
    again.collect()
}
