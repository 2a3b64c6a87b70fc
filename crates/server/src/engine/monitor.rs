//! MONITOR: every command, told to those who watch, on all cores.

use super::conn::Session;
use super::core::Core;
use super::entry::Entry;
use darter_command::Flags;
use darter_resp::Args;
use std::rc::Rc;
use std::sync::Arc;

/// Tells the watchers of all cores about a command that runs.
pub(super) fn feed(core: &Rc<Core>, session: &Session, entry: &Entry, args: Args<'_>) {
    let hidden = Flags::ADMIN;
    if entry.row.flags.has(Flags::SKIP_MONITOR) || entry.row.flags.has(hidden) {
        return;
    }
    let line: Arc<[u8]> = Arc::from(line(core, session, entry, args));
    for other in 0..core.tx.cores() {
        let line = Arc::clone(&line);
        core.tell(other, move |there| {
            there.each_conn(|conn| {
                if conn.lane.session.monitor {
                    there.push_bytes(&mut conn.lane, &line);
                }
            });
        });
    }
}

/// `+1700000000.123456 [0 127.0.0.1:4711] "set" "key" "value"`.
fn line(core: &Core, session: &Session, entry: &Entry, args: Args<'_>) -> Vec<u8> {
    let us = core.clock.unix_us();
    let (seconds, micros) = (us / 1_000_000, us % 1_000_000);
    let (db, peer) = (session.db, &session.peer.remote);
    let mut line = format!("+{seconds}.{micros:06} [{db} {peer}]").into_bytes();
    for at in 0..args.len() {
        line.extend_from_slice(b" \"");
        let pieces = entry.row.shown(args, at).pieces();
        pieces.flatten().for_each(|byte| quote(*byte, &mut line));
        line.push(b'"');
    }
    line.extend_from_slice(b"\r\n");
    line
}

/// Appends a byte as it stands between quotes.
pub(crate) fn quote(byte: u8, line: &mut Vec<u8>) {
    match byte {
        b'\\' | b'"' => line.extend_from_slice(&[b'\\', byte]),
        b'\n' => line.extend_from_slice(b"\\n"),
        b'\r' => line.extend_from_slice(b"\\r"),
        b'\t' => line.extend_from_slice(b"\\t"),
        0x07 => line.extend_from_slice(b"\\a"),
        0x08 => line.extend_from_slice(b"\\b"),
        0x20..=0x7e => line.push(byte),
        _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_quoted_as_redis_quotes_them() {
        let mut line = Vec::new();
        b"a\"\\\n\x00\xff".iter().for_each(|byte| quote(*byte, &mut line));
        assert_eq!(line, br#"a\"\\\n\x00\xff"#);
    }
}
