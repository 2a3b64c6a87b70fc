//! Replays the commands of append-only files that a core was given, through its connection
//! [`REPLAY`].
//!
//! ```text
//! loader's thread ──► Replay ──received──► connection ──► executor
//!                       ▲                      │
//!                       └────── replies ───────┘
//! ```
//! Nearly all commands touch only keys of their core; those that core 0 gets for all cores do not.
//! Few bytes wait in the connection, so a slice of the core stays short. The replies are counted, to
//! find the file offset of an error.
//!
//! Not here: the files. See `load`.

use crate::engine::replay::{begin_replay, end_replay, replay_is_settled, replay_pending};
use crate::engine::{Action, Core, REPLAY};
use crate::load::{Deliverer, FatalReply, ReplayDelivery, ReplayErrors};
use darter_resp::Part;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::mpsc::TryRecvError;

/// With more unparsed bytes than this, the connection gets no more.
const PENDING_MAX: usize = 64 * 1024;

/// The state of replaying on a core.
pub(crate) struct Replay {
    /// `None` after an error. The loader's thread reports it.
    deliverer: Option<Deliverer>,
    state: State,
    replies: Replies,
    is_strict: bool,
    /// The file offsets of the commands whose replies are pending.
    offsets: VecDeque<u64>,
    errors: ReplayErrors,
    fatal: Option<FatalReply>,
    /// True if a reply has arrived since the last step.
    has_replies: bool,
    is_finished: bool,
}

/// The position within the deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Between two files.
    Between,
    /// Within a file.
    Within,
    /// Within a file, after commands that may still run. The thread waits for them.
    Draining,
    /// At the end of a file, whose last commands may still run.
    Ending,
}

impl Replay {
    /// Replays the commands that `deliverer` delivers.
    pub(crate) fn new(deliverer: Deliverer) -> Self {
        Self {
            deliverer: Some(deliverer),
            state: State::Between,
            replies: Replies::default(),
            is_strict: false,
            offsets: VecDeque::new(),
            errors: ReplayErrors::default(),
            fatal: None,
            has_replies: false,
            is_finished: false,
        }
    }

    /// True if all files were replayed.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// True if the next step should not wait for an event.
    pub(crate) fn is_due(&self) -> bool {
        self.has_replies && self.deliverer.is_some()
    }

    /// Passes commands to the connection, as far as it should have more. Returns true if it got
    /// some.
    pub(crate) fn step(&mut self, core: &Rc<Core>) -> bool {
        self.has_replies = false;
        let Some(deliverer) = self.deliverer.take() else { return false };
        if let Some(fatal) = self.fatal.take() {
            // Reported before the receiver is dropped, so that the loader's thread finds it.
            let _ = deliverer.ended.send(Err(fatal));
            end_replay(core);
            return false;
        }
        let (is_fed, is_open) = self.go_on(core, &deliverer);
        if is_open {
            self.deliverer = Some(deliverer);
        }
        is_fed
    }

    /// Returns whether the connection got bytes, and whether the thread may deliver more.
    fn go_on(&mut self, core: &Rc<Core>, deliverer: &Deliverer) -> (bool, bool) {
        let mut is_fed = false;
        loop {
            if matches!(self.state, State::Draining | State::Ending) {
                if !replay_is_settled(core) || !self.offsets.is_empty() {
                    return (is_fed, true);
                }
                // The thread has gone if the server stops.
                let _ = deliverer.ended.send(Ok(self.drained(core)));
            }
            if replay_pending(core).is_some_and(|pending| pending > PENDING_MAX) {
                return (is_fed, true);
            }
            match deliverer.deliveries.try_recv() {
                Ok(ReplayDelivery::Begin { is_strict }) => {
                    begin_replay(core);
                    self.replies = Replies::default();
                    (self.state, self.is_strict) = (State::Within, is_strict);
                }
                Ok(ReplayDelivery::Commands(portion)) => {
                    self.offsets.extend(&portion.offsets);
                    core.received(REPLAY, &portion.bytes);
                    let _ = deliverer.returns.send(portion); // The thread may have gone.
                    is_fed = true;
                }
                Ok(ReplayDelivery::Drain) => self.state = State::Draining,
                Ok(ReplayDelivery::End) => self.state = State::Ending,
                Ok(ReplayDelivery::Finish) => {
                    self.is_finished = true;
                    return (is_fed, false);
                }
                Err(TryRecvError::Empty) => return (is_fed, true),
                // The thread has failed, or the server stops.
                Err(TryRecvError::Disconnected) => return (is_fed, false),
            }
        }
    }

    /// Goes on after all commands so far have run. Returns the answer.
    fn drained(&mut self, core: &Rc<Core>) -> ReplayErrors {
        if self.state == State::Draining {
            self.state = State::Within;
            return ReplayErrors::default();
        }
        end_replay(core);
        self.state = State::Between;
        std::mem::take(&mut self.errors)
    }

    /// Performs an action on the connection, instead of on a socket.
    pub(crate) fn act(&mut self, core: &Rc<Core>, action: Action) {
        match action {
            Action::SendFlat(_, mut bytes) => {
                self.take_in(&bytes);
                bytes.clear();
                core.sent(REPLAY, Some(bytes));
            }
            Action::Send(_, parts) => {
                for part in &parts {
                    match part {
                        Part::Bytes(bytes) => self.take_in(bytes),
                        Part::Shared(piece, range) => self.take_in(&piece[range.clone()]),
                    }
                }
                core.sent(REPLAY, None);
            }
            Action::Close(_) => {
                let offset = self.offsets.front().copied().unwrap_or(0);
                let text = "the connection that replays commands was closed".into();
                self.fatal.get_or_insert(FatalReply(offset, text));
                self.has_replies = true;
            }
            // Few bytes are pending, so receiving is never paused; and the connection never moves.
            Action::Pause(_) | Action::Resume(_) | Action::Release(_) | Action::Listen(..) => {}
        }
    }

    /// Takes in bytes of replies.
    fn take_in(&mut self, mut bytes: &[u8]) {
        self.has_replies = true;
        while !bytes.is_empty() {
            let (taken, is_complete) = self.replies.next(bytes);
            bytes = &bytes[taken..];
            if !is_complete {
                continue;
            }
            let offset = self.offsets.pop_front().unwrap_or(0);
            let Some(error) = self.replies.error.take() else { continue };
            let text = String::from_utf8_lossy(&error).into_owned();
            if self.is_strict || is_fatal(&text) {
                self.fatal.get_or_insert(FatalReply(offset, text));
            } else {
                self.errors.count += 1;
                self.errors.first.get_or_insert((offset, text));
            }
        }
    }
}

/// True for an error that refuses every file: the bytes are none that a server has written.
fn is_fatal(error: &str) -> bool {
    const BEGINNINGS: [&str; 4] =
        ["ERR unknown command", "ERR unknown subcommand", "ERR Protocol error", "EXECABORT"];
    BEGINNINGS.iter().any(|beginning| error.starts_with(beginning))
        || error.ends_with("is not allowed in append-only files")
}

/// The longest part of an error that is kept, in bytes.
const ERROR_MAX: usize = 512;

/// Finds the ends of replies in RESP2, and the first error in each.
#[derive(Debug)]
struct Replies {
    /// The number of values that the current reply still needs.
    values: u64,
    /// The number of bytes of the current bulk string that are missing, with its CR LF.
    bulk: u64,
    /// The first bytes of the current line.
    line: Vec<u8>,
    /// The first error in the current reply, without the sign.
    error: Option<Vec<u8>>,
}

impl Default for Replies {
    fn default() -> Self {
        Self { values: 1, bulk: 0, line: Vec::new(), error: None }
    }
}

impl Replies {
    /// Reads up to the end of a reply, or all bytes. Returns the number of bytes, and whether a
    /// reply ends there.
    fn next(&mut self, bytes: &[u8]) -> (usize, bool) {
        if self.values == 1
            && self.bulk == 0
            && self.line.is_empty()
            && matches!(bytes[0], b'+' | b':')
            && let Some(end) = bytes.iter().position(|byte| *byte == b'\n')
        {
            return (end + 1, true); // Nearly all replies.
        }
        let mut at = 0;
        while at < bytes.len() {
            if self.bulk > 0 {
                let taken = self.bulk.min((bytes.len() - at) as u64);
                self.bulk -= taken;
                at += taken as usize;
            } else {
                let rest = &bytes[at..];
                let end = rest.iter().position(|byte| *byte == b'\n');
                let part = &rest[..end.map_or(rest.len(), |end| end + 1)];
                at += part.len();
                let space = ERROR_MAX.saturating_sub(self.line.len());
                self.line.extend_from_slice(&part[..part.len().min(space)]);
                if end.is_none() {
                    break;
                }
                self.end_of_line();
            }
            if self.bulk == 0 && self.values == 0 {
                self.values = 1;
                return (at, true);
            }
        }
        (at, false)
    }

    fn end_of_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = line.strip_suffix(b"\r\n").unwrap_or(&line);
        let Some((sign, text)) = text.split_first() else { return };
        let number = darter_base::number::parse_i64(text).and_then(|it| u64::try_from(it).ok());
        self.values -= 1;
        match sign {
            b'-' if self.error.is_none() => self.error = Some(text.to_vec()),
            b'$' => self.bulk = number.map_or(0, |bytes| bytes + 2),
            b'*' => self.values += number.unwrap_or(0),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_counted_in_pieces_of_any_length() {
        let bytes = b"+OK\r\n$5\r\na\r\n-b\r\n$-1\r\n*-1\r\n*2\r\n*1\r\n-ERR no\r\n$0\r\n\r\n-first\r\n*0\r\n:1\r\n";
        for piece in 1..bytes.len() {
            let (mut replies, mut found) = (Replies::default(), Vec::new());
            for mut part in bytes.chunks(piece) {
                while !part.is_empty() {
                    let (taken, is_complete) = replies.next(part);
                    part = &part[taken..];
                    if is_complete {
                        found.push(replies.error.take());
                    }
                }
            }
            let errors: Vec<_> = found.iter().map(|error| error.as_deref()).collect();
            let (no, first) = (Some(&b"ERR no"[..]), Some(&b"first"[..]));
            assert_eq!(errors, [None, None, None, None, no, first, None, None], "{piece}");
        }
    }
}
