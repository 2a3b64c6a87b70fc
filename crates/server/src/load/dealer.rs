//! Deals the commands of an append-only file to the cores that own their keys.
//!
//! ```text
//! SET a | SET b | MULTI INCR c SET {c}d EXEC | MSET a b | SET b
//! core 0   core 1            core 0           ▲ all cores are drained, then core 0 runs it
//! ```
//! A command whose keys one core owns, or a transaction of such commands, goes to that core. The
//! order of two commands matters only if they have a key in common, and such commands have the same
//! core. Every other command is a *barrier*: it waits until all cores have run what precedes it, then
//! core 0 runs it, through the executor of clients, and what follows waits for it.
//!
//! Core 0 can run any command in its turn, only more slowly. So after a barrier it gets all commands
//! for a while: a file with many barriers is not drained for each.
//!
//! Each core has a connection of its own, so it has a selected database of its own. A SELECT is not
//! delivered, but added before the next command of a core that has another database.

use super::Cause;
use super::commands::{
    CommandPlace, Deliveries, PlaceOf, ReplayDelivery, ReplayErrors, ReplayPortion,
};
use darter_base::number;
use darter_persist::aof::reader::{Item, Malformed, Reader};
use darter_resp::{Args, Span, plain};

/// The size at which commands are delivered.
const DELIVERY_BYTES: usize = 128 * 1024;
/// The longest command that is dealt by its keys, and the most arguments. Others are barriers.
const COMMAND_MAX_BYTES: usize = 256 * 1024;
const ARGUMENTS_MAX: usize = 16 * 1024;
/// The longest transaction that is kept until its core is known. Longer ones are barriers.
const TRANSACTION_MAX_BYTES: usize = 256 * 1024;
/// The number of commands after a barrier that core 0 gets.
const AFTER_BARRIER: u32 = 1_000;

/// The state of dealing a file.
pub(super) struct Dealer<'a> {
    deliveries: &'a Deliveries,
    place_of: &'a PlaceOf,
    /// The number of databases.
    databases: u64,
    /// The database that the next command of the file uses.
    database: u64,
    hands: Vec<Hand>,
    transaction: Transaction,
    /// The number of commands that core 0 still gets because of a barrier.
    after_barrier: u32,
    /// True if core 0 may be running commands on keys of other cores.
    is_core_0_abroad: bool,
    /// Reads an item that is not a plain command.
    odd: Option<Reader>,
    spans: Vec<Span>,
}

/// A failure to deal commands.
pub(super) enum DealError {
    /// The bytes are no commands, at this file offset.
    Malformed(Malformed, u64),
    /// A core has refused a command, or has stopped.
    Other(Cause),
}

impl From<Cause> for DealError {
    fn from(cause: Cause) -> Self {
        Self::Other(cause)
    }
}

/// The commands that a core gets next.
#[derive(Default)]
struct Hand {
    open: ReplayPortion,
    database: u64,
    /// True if commands were delivered since the core was drained.
    is_busy: bool,
}

/// The state between MULTI and EXEC.
enum Transaction {
    None,
    /// Its core is not known yet.
    Kept(Kept),
    /// It goes to core 0 as it is read. The field is the database before it.
    Barrier(u64),
}

struct Kept {
    portion: ReplayPortion,
    /// The database before it, and after it.
    databases: [u64; 2],
    core: Option<usize>,
}

/// A command as bytes, with its file offset.
#[derive(Clone, Copy)]
struct Written<'a> {
    bytes: &'a [u8],
    offset: u64,
}

impl<'a> Dealer<'a> {
    /// Begins a file. With `is_strict`, each error reply refuses it.
    ///
    /// Errors: a core has stopped.
    pub(super) fn begin(
        deliveries: &'a Deliveries,
        place_of: &'a PlaceOf,
        databases: usize,
        is_strict: bool,
    ) -> Result<Self, Cause> {
        for core in 0..deliveries.cores() {
            deliveries.send(core, ReplayDelivery::Begin { is_strict })?;
        }
        Ok(Self {
            deliveries,
            place_of,
            databases: databases as u64,
            database: 0,
            hands: (0..deliveries.cores()).map(|_| Hand::default()).collect(),
            transaction: Transaction::None,
            after_barrier: 0,
            is_core_0_abroad: false,
            odd: None,
            spans: Vec::new(),
        })
    }

    /// Deals the commands in `bytes`, which are at the file offset `offset`. Returns the number of
    /// bytes; the others are the begin of a command whose core is not known yet, and must be passed
    /// again with more. `is_all` says that no more follow for now.
    ///
    /// Cost: O(commands), and a copy of the bytes.
    ///
    /// Errors: the bytes are no commands, a core has refused one, or has stopped.
    pub(super) fn take_in(
        &mut self,
        bytes: &[u8],
        offset: u64,
        is_all: bool,
    ) -> Result<usize, DealError> {
        let mut at = 0;
        while at < bytes.len() {
            let left = &bytes[at..];
            if self.odd.is_none() && left[0] == b'*' {
                self.spans.clear();
                let len = plain(left, ARGUMENTS_MAX, COMMAND_MAX_BYTES, &mut self.spans);
                if let Some(len) = len.filter(|len| *len <= COMMAND_MAX_BYTES) {
                    let command = Written { bytes: &left[..len], offset: offset + at as u64 };
                    self.command(command)?;
                    at += len;
                    continue;
                }
                if !is_all && left.len() < COMMAND_MAX_BYTES {
                    return Ok(at);
                }
            }
            at += self.odd(left, offset + at as u64)?;
        }
        Ok(at)
    }

    /// Ends the file. Returns its errors when all cores have run its commands.
    ///
    /// Errors: the same.
    pub(super) fn end(mut self) -> Result<ReplayErrors, Cause> {
        for core in 0..self.hands.len() {
            self.send(core)?;
            self.deliveries.send(core, ReplayDelivery::End)?;
        }
        self.deliveries.wait(self.hands.len())
    }

    /// Takes in bytes of a line, or of a command that is not plain. Returns their number.
    fn odd(&mut self, bytes: &[u8], offset: u64) -> Result<usize, DealError> {
        let is_new = self.odd.is_none();
        let is_line = match &self.odd {
            Some(reader) => reader.is_in_line(),
            None => bytes[0] == b'#',
        };
        if is_new && !is_line {
            self.begin_barrier(offset)?;
        }
        let reader = self.odd.get_or_insert_with(|| Reader::new(offset));
        let start = reader.start();
        let (taken, item) =
            reader.next(bytes).map_err(|error| DealError::Malformed(error, reader.offset()))?;
        if item.is_some() {
            self.odd = None;
        }
        if !is_line {
            let hand = &mut self.hands[0];
            hand.open.bytes.extend_from_slice(&bytes[..taken]);
            hand.is_busy = true;
            if item == Some(Item::Command) {
                hand.open.offsets.push(start);
            }
            self.send_full(0)?;
        }
        Ok(taken)
    }

    fn command(&mut self, command: Written<'_>) -> Result<(), Cause> {
        let args = Args::flat(command.bytes, &self.spans);
        let mut place = (self.place_of)(args);
        let mut selected = None;
        if place == CommandPlace::Select {
            selected = selected_of(args, self.databases);
            if selected.is_none() {
                place = CommandPlace::Anywhere; // The connection refuses it.
            }
        }
        match &mut self.transaction {
            Transaction::None => self.single(command, place, selected),
            Transaction::Kept(kept) => {
                kept.portion.bytes.extend_from_slice(command.bytes);
                kept.portion.offsets.push(command.offset);
                let is_long = kept.portion.bytes.len() > TRANSACTION_MAX_BYTES;
                match (place, kept.core) {
                    (CommandPlace::Exec, _) => return self.exec(),
                    (CommandPlace::Select, _) => {
                        kept.databases[1] = selected.unwrap_or_default();
                    }
                    (CommandPlace::Core(core), None) => kept.core = Some(core),
                    (CommandPlace::Core(core), Some(same)) if core == same => {}
                    _ => return self.spill(place == CommandPlace::Discard),
                }
                if is_long { self.spill(false) } else { Ok(()) }
            }
            Transaction::Barrier(before) => {
                let before = *before;
                match place {
                    CommandPlace::Select => self.hands[0].database = selected.unwrap_or_default(),
                    CommandPlace::Discard => self.hands[0].database = before,
                    _ => {}
                }
                if matches!(place, CommandPlace::Exec | CommandPlace::Discard) {
                    self.transaction = Transaction::None;
                    self.database = self.hands[0].database;
                }
                self.append(0, command)
            }
        }
    }

    /// Deals a command outside of a transaction.
    fn single(
        &mut self,
        command: Written<'_>,
        place: CommandPlace,
        selected: Option<u64>,
    ) -> Result<(), Cause> {
        match place {
            CommandPlace::Core(core) => {
                let core = self.core_for(core)?;
                self.select(core, command.offset);
                self.append(core, command)
            }
            CommandPlace::Select => {
                self.database = selected.unwrap_or_default();
                Ok(())
            }
            CommandPlace::Multi => {
                let mut portion = self.deliveries.spare();
                portion.bytes.extend_from_slice(command.bytes);
                portion.offsets.push(command.offset);
                let databases = [self.database; 2];
                self.transaction = Transaction::Kept(Kept { portion, databases, core: None });
                Ok(())
            }
            CommandPlace::Exec | CommandPlace::Discard | CommandPlace::Anywhere => {
                self.barrier()?;
                self.select(0, command.offset);
                self.append(0, command)
            }
        }
    }

    /// Deals the transaction, which is complete.
    fn exec(&mut self) -> Result<(), Cause> {
        let kept = std::mem::replace(&mut self.transaction, Transaction::None);
        let Transaction::Kept(Kept { portion, databases, core }) = kept else {
            unreachable!("a transaction was kept")
        };
        let core = match core {
            Some(core) => self.core_for(core)?,
            None => 0, // It has no keys.
        };
        self.append_kept(core, &portion)?;
        self.database = databases[1];
        self.hands[core].database = self.database;
        Ok(())
    }

    /// Gives the begin of a transaction to core 0. With `is_over`, it was discarded.
    fn spill(&mut self, is_over: bool) -> Result<(), Cause> {
        let kept = std::mem::replace(&mut self.transaction, Transaction::None);
        let Transaction::Kept(Kept { portion, databases, .. }) = kept else {
            unreachable!("a transaction was kept")
        };
        self.barrier()?;
        self.append_kept(0, &portion)?;
        if !is_over {
            self.hands[0].database = databases[1];
            self.transaction = Transaction::Barrier(databases[0]);
        }
        Ok(())
    }

    fn append_kept(&mut self, core: usize, portion: &ReplayPortion) -> Result<(), Cause> {
        self.select(core, portion.offsets[0]);
        let hand = &mut self.hands[core];
        hand.open.bytes.extend_from_slice(&portion.bytes);
        hand.open.offsets.extend_from_slice(&portion.offsets);
        hand.is_busy = true;
        self.send_full(core)
    }

    /// The core that gets a command on keys of `owner`.
    #[inline]
    fn core_for(&mut self, owner: usize) -> Result<usize, Cause> {
        if self.after_barrier > 0 {
            self.after_barrier -= 1;
            self.is_core_0_abroad |= owner != 0;
            return Ok(0);
        }
        if owner != 0 && self.is_core_0_abroad {
            self.drain(0..1)?;
            self.is_core_0_abroad = false;
        }
        Ok(owner)
    }

    /// Begins a command that is not plain, on core 0.
    fn begin_barrier(&mut self, offset: u64) -> Result<(), Cause> {
        if let Transaction::Kept(_) = self.transaction {
            self.spill(false)?;
        }
        if let Transaction::None = self.transaction {
            self.barrier()?;
            self.select(0, offset);
        }
        Ok(())
    }

    /// Waits until the other cores have run everything before a barrier.
    fn barrier(&mut self) -> Result<(), Cause> {
        self.drain(1..self.hands.len())?;
        (self.after_barrier, self.is_core_0_abroad) = (AFTER_BARRIER, true);
        Ok(())
    }

    /// Waits until these cores have run what they were given.
    fn drain(&mut self, cores: std::ops::Range<usize>) -> Result<(), Cause> {
        let mut count = 0;
        for core in cores {
            if std::mem::take(&mut self.hands[core].is_busy) {
                self.send(core)?;
                self.deliveries.send(core, ReplayDelivery::Drain)?;
                count += 1;
            }
        }
        self.deliveries.wait(count).map(|_| ())
    }

    /// Selects the file's database on a core, if another one is selected there.
    #[inline]
    fn select(&mut self, core: usize, offset: u64) {
        let hand = &mut self.hands[core];
        if hand.database != self.database {
            hand.database = self.database;
            let text = self.database.to_string();
            let command = format!("*2\r\n$6\r\nSELECT\r\n${}\r\n{text}\r\n", text.len());
            hand.open.bytes.extend_from_slice(command.as_bytes());
            hand.open.offsets.push(offset);
        }
    }

    #[inline]
    fn append(&mut self, core: usize, command: Written<'_>) -> Result<(), Cause> {
        let hand = &mut self.hands[core];
        hand.open.bytes.extend_from_slice(command.bytes);
        hand.open.offsets.push(command.offset);
        hand.is_busy = true;
        self.send_full(core)
    }

    #[inline]
    fn send_full(&mut self, core: usize) -> Result<(), Cause> {
        if self.hands[core].open.bytes.len() < DELIVERY_BYTES {
            return Ok(());
        }
        self.send(core)
    }

    fn send(&mut self, core: usize) -> Result<(), Cause> {
        if self.hands[core].open.bytes.is_empty() {
            return Ok(());
        }
        let portion = std::mem::replace(&mut self.hands[core].open, self.deliveries.spare());
        self.deliveries.send(core, ReplayDelivery::Commands(portion))
    }
}

/// The database that SELECT selects, if it is below `databases`.
fn selected_of(args: Args<'_>, databases: u64) -> Option<u64> {
    let text = (args.len() == 2).then(|| args.get(1))?;
    number::parse_u64(text).filter(|database| *database < databases)
}

#[cfg(test)]
mod tests;
