//! The slow commands of one core, for SLOWLOG.

use super::super::conn::Session;
use darter_command::Command;
use darter_resp::{Arg, Args};
use std::collections::VecDeque;

/// The number of arguments kept per command, and the number of bytes kept per argument, as in
/// Redis.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

/// One slow command.
#[derive(Clone)]
pub(crate) struct SlowCall {
    /// The id of the entry, unique across all cores.
    pub(crate) id: u64,
    /// The time at which the command ended, in Unix microseconds.
    pub(crate) unix_us: u64,
    /// The duration of the command in microseconds.
    pub(crate) us: u64,
    /// The arguments of the command, shortened.
    pub(crate) args: Vec<Vec<u8>>,
    /// The address and the name of the client; empty if it has closed.
    pub(crate) peer: String,
    pub(crate) name: Vec<u8>,
}

impl SlowCall {
    /// Describes a command of `row` that has just ended. [`Slowlog::keep`] adds the id and the
    /// client.
    pub(crate) fn new(unix_us: u64, ns: u64, row: &Command, args: Args<'_>) -> Self {
        let (us, args) = (ns / 1_000, shown(row, args));
        Self { id: 0, unix_us, us, args, peer: String::new(), name: Vec::new() }
    }
}

/// The slow commands of one core, newest first.
#[derive(Default)]
pub(crate) struct Slowlog {
    calls: VecDeque<SlowCall>,
    kept: u64,
}

impl Slowlog {
    /// Adds a command, and keeps at most `most` in total. `id` turns a number of this core into an
    /// id that is unique across all cores.
    pub(crate) fn keep(
        &mut self,
        call: SlowCall,
        session: Option<&Session>,
        most: usize,
        id: impl FnOnce(u64) -> u64,
    ) {
        let peer = session.map(|session| session.peer.remote.clone()).unwrap_or_default();
        let name = session.map(|session| session.name.clone()).unwrap_or_default();
        self.calls.push_front(SlowCall { id: id(self.kept), peer, name, ..call });
        self.calls.truncate(most);
        self.kept += 1;
    }

    pub(crate) fn calls(&self) -> impl ExactSizeIterator<Item = &SlowCall> {
        self.calls.iter()
    }

    pub(crate) fn clear(&mut self) {
        self.calls.clear();
    }
}

/// The arguments of a command, shortened and without secrets.
pub(crate) fn shown(row: &Command, args: Args<'_>) -> Vec<Vec<u8>> {
    let shown = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let mut texts: Vec<Vec<u8>> = (0..shown).map(|at| shorten(row.shown(args, at))).collect();
    if args.len() > ARGS_MAX {
        texts.push(format!("... ({} more arguments)", args.len() - shown).into_bytes());
    }
    texts
}

fn shorten(arg: Arg<'_>) -> Vec<u8> {
    let mut text: Vec<u8> = arg.pieces().flatten().take(ARG_BYTES_MAX).copied().collect();
    if arg.len() > ARG_BYTES_MAX {
        let more = format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX);
        text.extend_from_slice(more.as_bytes());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // The newest come first, up to the limit. Ids continue after SLOWLOG RESET.
    fn slowlog_keeps_the_newest_commands_up_to_its_limit() {
        let mut log = Slowlog::default();
        let call = |us| SlowCall {
            id: 0,
            unix_us: 0,
            us,
            args: Vec::new(),
            peer: String::new(),
            name: Vec::new(),
        };
        let session = Session { name: b"one".to_vec(), ..Session::default() };
        (1..=3).for_each(|us| log.keep(call(us), Some(&session), 2, |number| number * 10));
        let kept = |log: &Slowlog| log.calls().map(|call| (call.id, call.us)).collect::<Vec<_>>();
        assert_eq!(kept(&log), [(20, 3), (10, 2)]);
        log.clear();
        log.keep(call(4), None, 2, |number| number * 10);
        assert_eq!(kept(&log), [(30, 4)]);
        assert!(log.calls().all(|call| call.name.is_empty()), "its connection has gone");
        log.keep(call(5), None, 0, |number| number);
        assert_eq!(log.calls().len(), 0);
    }
}
