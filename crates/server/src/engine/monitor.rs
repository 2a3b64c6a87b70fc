//! MONITOR: sends a line for every command to its *watchers*, the clients of MONITOR, on all cores.
//!
//! Each core knows how many watchers every core has, and which of its own connections are watchers.
//! So lines are sent only to cores with watchers. Unread lines are kept without a limit, as in
//! Redis, unless `client-output-buffer-limit normal` sets one, because no client may have to wait
//! for a watcher.
//!
//! A line is at least as long as its request. So the line of a long request is a stream for each
//! watcher. It is encoded in portions while the socket drains, from the request, which all watchers
//! share.

use super::conn::Session;
use super::core::Core;
use super::entry::Entry;
use super::state::watchers::LineTail;
use darter_command::{Command, Flags, Stream};
use darter_resp::{Arg, Args, Output, Reply, Request};
use darter_tx::CoreId;
use std::rc::Rc;
use std::sync::Arc;

/// A request with more bytes or arguments than this is encoded in portions of about this size: 10
/// to 30 us.
const PORTION_BYTES: usize = 4 * 1024;
const PORTION_ARGS: usize = 64;

/// Begins to show commands to a client of this core, unless the client has gone.
pub(crate) async fn begin(core: &Rc<Core>, client: u64) {
    count(core, 1).await;
    // Registered after the reply is queued, so that no line precedes the reply.
    if core.clients.token_of(client).is_some() {
        core.watchers.borrow_mut().add(client);
    }
}

/// Ends this for a client that has gone, or has sent RESET.
pub(crate) fn end(core: &Core, client: u64) {
    core.watchers.borrow_mut().remove(client);
    core.spawn_on_self(|core| async move { count(&core, -1).await });
}

/// Tells all cores that the number of watchers on this core has changed by `by`.
async fn count(core: &Rc<Core>, by: isize) {
    let here = core.id();
    core.ask_all(|| move |there: &Rc<Core>| there.watchers.borrow_mut().change(here, by)).await;
}

/// Sends a line for a command to the watchers on all cores.
pub(super) fn feed(core: &Rc<Core>, session: &Session, entry: &Entry, args: Args<'_>) {
    let hidden = Flags::ADMIN;
    if entry.row.flags.has(Flags::SKIP_MONITOR) || entry.row.flags.has(hidden) {
        return;
    }
    feed_always(core, session, entry, args);
}

/// Sends a line for a command that calls a script, before the lines of the script's own commands.
/// The row of such a command has SKIP_MONITOR, so [`feed`] sends none.
pub(super) fn feed_script(core: &Rc<Core>, session: &Session, entry: &Entry, args: Args<'_>) {
    if core.watchers.borrow().are_any() {
        feed_always(core, session, entry, args);
    }
}

/// Sends a line for a command, whatever the flags of its row.
pub(super) fn feed_always(core: &Rc<Core>, session: &Session, entry: &Entry, args: Args<'_>) {
    let head = head(core, session);
    if args.is_owned() || args.len() > PORTION_ARGS || args.total_bytes() > PORTION_BYTES {
        let (row, request, bytes) = (entry.row, args.to_request(), args.held_bytes());
        let line = Line { row, request, bytes, arg: 0, piece: 0, byte: 0 };
        let rest: LineTail = Arc::new(move || Box::new(line.clone()));
        return publish(core, &head, Some(&rest));
    }
    let mut line = head;
    for at in 0..args.len() {
        line.extend_from_slice(b" \"");
        entry.row.shown(args, at).pieces().for_each(|piece| quote_all(piece, &mut line));
        line.push(b'"');
    }
    line.extend_from_slice(b"\r\n");
    publish(core, &line, None);
}

/// Sends a line to the watchers on all cores: its beginning, and a stream of the rest if the
/// request is long.
fn publish(core: &Rc<Core>, head: &[u8], rest: Option<&LineTail>) {
    for other in 0..core.tx.cores() {
        if !core.watchers.borrow().are_on(other) {
            continue;
        }
        if other == core.id() {
            show(core, head, rest);
        } else {
            core.watchers.borrow_mut().gather(other, head, rest);
            send(core, other);
        }
    }
}

/// Sends the gathered lines to core `to`, unless that core has not handled earlier lines yet.
fn send(core: &Rc<Core>, to: CoreId) {
    let (from, messages) = (core.id(), core.watchers.borrow_mut().take(to));
    for (lines, rest) in messages {
        core.tell(to, move |there| {
            show(there, &lines, rest.as_ref());
            there.tell(from, move |back| {
                back.watchers.borrow_mut().shown(to);
                send(back, to);
            });
        });
    }
}

/// Sends lines to the watchers on this core. The last line may continue as a stream.
fn show(core: &Core, lines: &[u8], rest: Option<&LineTail>) {
    for client in core.watchers.borrow().here() {
        core.with_client(*client, |conn| {
            let mut out = Output::default();
            out.tail().extend_from_slice(lines);
            core.push(&mut conn.lane, out, rest.map(|make| make()));
        });
    }
}

/// The beginning of a line: `+1700000000.123456 [0 127.0.0.1:4711]`. The quoted arguments follow,
/// with a blank before each.
fn head(core: &Core, session: &Session) -> Vec<u8> {
    let us = core.clock.unix_us();
    let (seconds, micros) = (us / 1_000_000, us % 1_000_000);
    let (db, peer) = (session.db, &session.peer.remote);
    format!("+{seconds}.{micros:06} [{db} {peer}]").into_bytes()
}

/// A stream that encodes the arguments of a long request for one watcher.
#[derive(Clone)]
struct Line {
    row: Command,
    request: Arc<Request>,
    bytes: usize,
    /// The index of the next argument.
    arg: usize,
    piece: usize,
    byte: usize,
}

impl Line {
    /// Appends about a portion of the next argument, quoted. Returns the number of appended bytes.
    fn quote_some(&mut self, args: Args<'_>, line: &mut Vec<u8>) -> usize {
        if (self.piece, self.byte) == (0, 0) {
            line.extend_from_slice(b" \"");
        }
        let piece = match self.row.shown(args, self.arg) {
            Arg::Bytes(bytes) => (self.piece == 0).then_some(bytes),
            Arg::Chunks { chunks, .. } => chunks.get(self.piece).map(|chunk| &chunk[..]),
        };
        let Some(piece) = piece else {
            line.push(b'"');
            (self.arg, self.piece, self.byte) = (self.arg + 1, 0, 0);
            return 0;
        };
        let end = piece.len().min(self.byte + PORTION_BYTES);
        let portion = &piece[self.byte..end];
        quote_all(portion, line);
        let is_done = end == piece.len();
        (self.piece, self.byte) = if is_done { (self.piece + 1, 0) } else { (self.piece, end) };
        portion.len()
    }
}

impl Stream for Line {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let request = Arc::clone(&self.request);
        let (args, line) = (Args::owned(&request), reply.out.tail());
        let (mut bytes, last) = (0, self.arg + PORTION_ARGS);
        while self.arg < args.len() && self.arg < last && bytes < PORTION_BYTES {
            bytes += self.quote_some(args, line);
        }
        let more = self.arg < args.len();
        if !more {
            line.extend_from_slice(b"\r\n");
        }
        more
    }

    /// The bytes of the request, because this stream may be the last to hold it.
    fn held_bytes(&self) -> usize {
        self.bytes
    }
}

fn quote_all(bytes: &[u8], line: &mut Vec<u8>) {
    bytes.iter().for_each(|byte| quote(*byte, line));
}

/// Appends one byte, quoted as in Redis.
pub(crate) fn quote(byte: u8, line: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    match byte {
        b'\\' | b'"' => line.extend_from_slice(&[b'\\', byte]),
        b'\n' => line.extend_from_slice(b"\\n"),
        b'\r' => line.extend_from_slice(b"\\r"),
        b'\t' => line.extend_from_slice(b"\\t"),
        0x07 => line.extend_from_slice(b"\\a"),
        0x08 => line.extend_from_slice(b"\\b"),
        0x20..=0x7e => line.push(byte),
        _ => {
            let digit = |four: u8| DIGITS[usize::from(four)];
            line.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitor_quotes_bytes_as_redis_does() {
        let mut line = Vec::new();
        quote_all(b"a\"\\\n\x00\xff\xa9", &mut line);
        assert_eq!(line, br#"a\"\\\n\x00\xff\xa9"#);
    }
}
