//! The commands that MULTI has queued, and the watched keys of a connection.

use super::super::point::Owner;
use super::super::state::requests::{Kept, Requests};
use darter_base::lazyfree;
use darter_command::Flags;
use darter_resp::Args;
use darter_tx::{CoreId, KeySet};
use std::cell::RefCell;

/// A transaction command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// MULTI.
    Multi,
    /// EXEC.
    Exec,
    /// DISCARD.
    Discard,
    /// WATCH.
    Watch,
    /// UNWATCH.
    Unwatch,
}

/// The number of commands that are stored and freed together: about 10 us.
const PORTION: usize = 128;
/// The approximate limit of the bytes of a portion.
const PORTION_BYTES: usize = 16 * 1024;

/// A queued command.
#[derive(Debug)]
struct Command {
    row: u32,
    /// The core that owns its keys, if it is a single one.
    core: Option<u32>,
    kept: Kept,
}

/// A portion of the queued commands.
#[derive(Debug, Default)]
pub(crate) struct Portion {
    requests: Requests,
    commands: Vec<Command>,
    bytes: usize,
}

impl Portion {
    /// The row and the arguments of each command.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Args<'_>)> {
        self.commands.iter().map(|one| (one.row as usize, self.requests.args(&one.kept)))
    }

    /// The core (if a single one owns the keys), the row and the arguments of each command.
    fn placed(&self) -> impl Iterator<Item = (Option<CoreId>, usize, Args<'_>)> {
        let core_of = |one: &Command| one.core.map(|core| core as usize);
        self.commands
            .iter()
            .map(core_of)
            .zip(self.iter())
            .map(|(core, (row, args))| (core, row, args))
    }

    fn is_full(&self) -> bool {
        self.commands.len() >= PORTION || self.bytes >= PORTION_BYTES
    }

    /// Removes the commands. Returns true if the memory is small enough to be kept.
    fn clear(&mut self) -> bool {
        self.requests.clear();
        self.commands.clear();
        self.bytes = 0;
        self.requests.capacity_bytes() <= PORTION_BYTES
    }
}

/// The sizes of the queued commands, for CLIENT LIST and the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuedSizes {
    /// `multi`: the number of commands.
    pub count: usize,
    /// `multi-mem`: the bytes of all arguments, and a word for each argument, as Redis counts them.
    pub argument_bytes: usize,
    /// Bytes of memory that the commands occupy.
    pub held_bytes: usize,
}

/// The cores that own the keys of all queued commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Places {
    /// There are no keys.
    #[default]
    None,
    /// All keys are on one core.
    One(CoreId),
    /// The keys are on several cores.
    Many,
}

impl Places {
    /// Adds a core that owns keys.
    pub(super) fn and(self, core: CoreId) -> Self {
        match self {
            Self::None => Self::One(core),
            Self::One(one) if one != core => Self::Many,
            same => same,
        }
    }
}

/// The commands that MULTI has queued.
pub(crate) struct Queued {
    portions: Vec<Portion>,
    pub(crate) sizes: QueuedSizes,
    /// The number of arguments, which is an upper bound of the number of keys.
    pub(crate) args: usize,
    /// True if a command was rejected, so that EXEC will fail.
    pub(crate) is_aborted: bool,
    /// True if all commands only read.
    pub(crate) is_read: bool,
    /// True if each command names all its keys, and runs on the core that owns them.
    pub(super) is_plain: bool,
    /// The cores that own the keys.
    pub(super) places: Places,
    /// True if a command has keys on several cores.
    pub(super) is_split: bool,
    /// The watched keys of the connection, while EXEC is in flight to another core.
    pub(super) watched: Option<Watched>,
    /// The union of the commands' flags.
    any: Flags,
    /// The intersection of the commands' flags.
    all: Flags,
}

impl Default for Queued {
    fn default() -> Self {
        let (any, all) = (Flags::NONE, Flags::LOADING);
        let (portions, sizes) = (Vec::new(), QueuedSizes::default());
        let (is_aborted, is_read, is_plain, places) = (false, true, true, Places::None);
        let (watched, args, is_split) = (None, 0, false);
        Self {
            portions,
            sizes,
            args,
            is_aborted,
            is_read,
            is_plain,
            places,
            is_split,
            watched,
            any,
            all,
        }
    }
}

impl Queued {
    /// Queues a command, unless EXEC will fail anyway.
    pub(crate) fn push(&mut self, row: usize, flags: Flags, args: Args<'_>) {
        if self.is_aborted {
            return;
        }
        if self.portions.last().is_none_or(Portion::is_full) {
            self.portions.push(Portion::default());
        }
        let portion = self.portions.last_mut().expect("there is one");
        let kept = portion.requests.keep(args);
        let word_bytes = args.len() * size_of::<usize>();
        let argument_bytes =
            if let Kept::Owned(_) = kept { args.held_bytes() } else { args.total_bytes() };
        let held_bytes = argument_bytes + word_bytes + size_of::<Command>();
        let row = u32::try_from(row).expect("the table of commands is short");
        portion.commands.push(Command { row, core: None, kept });
        portion.bytes += held_bytes;
        self.sizes.count += 1;
        self.sizes.argument_bytes += argument_bytes + word_bytes;
        self.sizes.held_bytes += held_bytes;
        self.args += args.len();
        (self.any, self.all) = (self.any | flags, self.all.both(flags));
        self.is_read &= !flags.has(Flags::WRITE);
    }

    /// Records which core owns the keys of the last command.
    pub(super) fn note_owner(&mut self, owner: Owner) {
        self.is_split |= owner == Owner::Many;
        let last = self.portions.last_mut().and_then(|portion| portion.commands.last_mut());
        self.places = match owner {
            Owner::None => self.places,
            Owner::Many => Places::Many,
            Owner::One(core) => {
                if let Some(last) = last {
                    last.core = u32::try_from(core).ok();
                }
                self.places.and(core)
            }
        };
    }

    /// Removes the commands. Returns true if the memory of one portion is small enough to be kept.
    fn clear(&mut self) -> bool {
        let mut portions = std::mem::take(&mut self.portions);
        let is_kept = portions.len() <= 1 && portions.iter_mut().all(Portion::clear);
        *self = Self::default();
        if is_kept {
            self.portions = portions;
        }
        is_kept
    }

    /// Records that a command was rejected.
    pub(crate) fn abort(&mut self) {
        *self = Self::default();
        self.is_aborted = true;
    }

    /// The commands, in portions.
    pub(crate) fn portions(&self) -> impl Iterator<Item = &Portion> {
        self.portions.iter()
    }

    /// The core (if a single one owns the keys), the row and the arguments of each command.
    pub(crate) fn placed(&self) -> impl Iterator<Item = (Option<CoreId>, usize, Args<'_>)> {
        self.portions().flat_map(Portion::placed)
    }

    /// The first result that `find` returns for one of the first [`PORTION`] commands.
    pub(crate) fn first_some<R>(&self, find: impl Fn(usize, Args<'_>) -> Option<R>) -> Option<R> {
        let some = self.portions().flat_map(Portion::iter).take(PORTION);
        some.into_iter().find_map(|(row, args)| find(row, args))
    }

    /// The flags that decide whether an EXEC of these commands may run. `own` are the flags of EXEC
    /// itself.
    pub(crate) fn flags_of_exec(&self, own: Flags) -> Flags {
        let own = if self.all.has(Flags::LOADING) { own } else { own.without(Flags::LOADING) };
        own | self.any.both(Flags::WRITE | Flags::DENYOOM | Flags::MAY_REPLICATE)
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        lazyfree::defer_long(std::mem::take(&mut self.portions), 1, PORTION_BYTES);
    }
}

/// The buffers of ended transactions, kept for later ones.
#[derive(Default)]
#[expect(clippy::vec_box, reason = "connections hold them in their boxes")]
pub(crate) struct Spare(RefCell<Vec<Box<Queued>>>);

impl Spare {
    /// The number of buffers that are kept. Few are needed: a transaction that a client sends as a
    /// whole is open only briefly.
    const MANY: usize = 8;

    /// Returns a buffer without commands.
    pub(crate) fn fresh(&self) -> Box<Queued> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps the buffer of an ended transaction, if it is small.
    pub(crate) fn keep(&self, mut queued: Box<Queued>) {
        let mut spare = self.0.borrow_mut();
        if spare.len() < Self::MANY && queued.clear() {
            spare.push(queued);
        }
    }
}

/// The watched keys of a connection, by the names of their locks.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    few: Vec<(CoreId, u64)>,
    /// The keys beyond the first [`Watched::FEW`].
    many: Vec<(CoreId, KeySet)>,
    len: usize,
}

impl Watched {
    /// The maximal length of the list `few`. Nearly all connections watch fewer keys.
    const FEW: usize = 32;
    /// The initial capacity of the set for further keys. The set grows in portions.
    const MANY: usize = 16 * 1024;

    /// Adds a key, unless it is watched already.
    pub(crate) fn add(&mut self, core: CoreId, key: u64) {
        if self.few.contains(&(core, key)) {
            return;
        }
        if self.few.len() < Self::FEW {
            self.few.push((core, key));
            self.len += 1;
            return;
        }
        let at = self.many.iter().position(|(of, _)| *of == core).unwrap_or_else(|| {
            self.many.push((core, KeySet::with_capacity(Self::MANY)));
            self.many.len() - 1
        });
        self.len += usize::from(self.many[at].1.insert(key));
    }

    /// The number of watched keys.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All watched keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (CoreId, u64)> {
        let many = self.many.iter().flat_map(|(core, keys)| keys.iter().map(|key| (*core, key)));
        self.few.iter().copied().chain(many)
    }

    /// The cores of the watched keys.
    pub(crate) fn cores(&self) -> Vec<CoreId> {
        let few = self.few.iter().map(|(core, _)| *core);
        let mut cores: Vec<CoreId> = few.chain(self.many.iter().map(|(core, _)| *core)).collect();
        cores.sort_unstable();
        cores.dedup();
        cores
    }

    /// Bytes of the watched keys.
    pub(crate) fn held_bytes(&self) -> usize {
        /// The size that Redis counts for a watched key.
        const KEY_BYTES: usize = 56;
        self.len * KEY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::preempt::Never;
    use darter_resp::Request;
    use std::sync::Arc;

    fn queue(count: usize, words: &[&[u8]]) -> Queued {
        let request = Arc::new(Request::from_args(words.iter().copied()));
        let mut queued = Queued::default();
        (0..count).for_each(|row| queued.push(row, Flags::WRITE, Args::owned(&request)));
        queued
    }

    #[test] // The sizes are those of Redis.
    fn queued_commands_keep_their_order_and_sizes() {
        for (count, value) in [(3, 1), (1_000, 10), (50, 4_000), (3, 100_000)] {
            let value = vec![b'v'; value];
            let queued = queue(count, &[b"SET", b"key", &value]);
            let all: Vec<_> = queued.portions().flat_map(Portion::iter).collect();
            assert_eq!(all.len(), count);
            for (at, (row, args)) in all.into_iter().enumerate() {
                assert_eq!((row, args.get(1), args.get(2)), (at, &b"key"[..], &value[..]));
            }
            let bytes = queued.sizes.argument_bytes;
            let least = count * (6 + value.len() + 3 * 8);
            assert!((least..least + count * 100).contains(&bytes), "{bytes}, not {least}");
            assert!(queued.sizes.held_bytes >= bytes);
        }
        assert_eq!(queue(1, &[b"CLIENT", b"LIST"]).sizes.argument_bytes, 26, "Redis says so");
    }

    #[test]
    fn buffers_kept_for_later_transactions_are_empty_and_small() {
        let spare = Spare::default();
        for count in [1, 100, 10_000] {
            spare.keep(Box::new(queue(count, &[b"SET", b"key", b"value"])));
        }
        let mut aborted = queue(3, &[b"SET", b"key", b"value"]);
        aborted.abort();
        spare.keep(Box::new(aborted));
        assert_eq!(spare.0.borrow().len(), 3, "very many are freed");
        for _ in 0..3 {
            let fresh = spare.fresh();
            assert_eq!(
                (fresh.sizes, fresh.args, fresh.is_aborted),
                (QueuedSizes::default(), 0, false)
            );
            assert_eq!(fresh.portions().flat_map(Portion::iter).count(), 0);
            assert!(fresh.is_read && fresh.is_plain && fresh.places == Places::None);
            assert_eq!(fresh.flags_of_exec(Flags::LOADING), Flags::LOADING);
        }
        (0..100).for_each(|_| spare.keep(Box::default()));
        assert_eq!(spare.0.borrow().len(), Spare::MANY);
    }

    #[test]
    fn a_million_queued_commands_are_freed_in_portions() {
        drop(queue(10_000, &[b"SET", b"key", b"value"]));
        let mut portions = 0;
        while lazyfree::run(&darter_base::preempt::Countdown::new(0)) {
            portions += 1;
        }
        assert!(portions > 50, "{portions}");
        drop(queue(10, &[b"SET", b"key", b"value"]));
        assert!(!lazyfree::run(&Never) && lazyfree::is_empty());
    }

    #[test] // After a rejected command, no further one is queued.
    fn commands_after_a_rejected_one_are_not_queued() {
        let mut queued = queue(3, &[b"PING"]);
        queued.abort();
        let request = Arc::new(Request::from_args([&b"PING"[..]]));
        queued.push(1, Flags::NONE, Args::owned(&request));
        assert_eq!((queued.sizes, queued.is_aborted), (QueuedSizes::default(), true));
    }

    #[test] // EXEC is refused if one of its commands would be refused.
    fn exec_has_the_flags_of_its_commands() {
        let own = Flags::LOADING | Flags::STALE;
        let mut queued = Queued::default();
        assert_eq!(queued.flags_of_exec(own), own);
        let request = Arc::new(Request::from_args([&b"SET"[..]]));
        queued.push(0, Flags::WRITE | Flags::DENYOOM | Flags::FAST, Args::owned(&request));
        assert_eq!(queued.flags_of_exec(own), Flags::WRITE | Flags::DENYOOM | Flags::STALE);
    }

    #[test] // The number of watched keys has no limit.
    fn a_key_that_is_watched_twice_is_listed_once() {
        let mut watched = Watched::default();
        for key in (0..1_000).chain(0..1_000) {
            watched.add(key as usize % 3, darter_base::hash::of(&u64::to_le_bytes(key)));
        }
        assert_eq!((watched.len(), watched.cores()), (1_000, vec![0, 1, 2]));
        let mut all: Vec<_> = watched.iter().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1_000);
    }
}
