//! The journal on one core: its changes as commands, which of its keys are not safe yet, and the
//! replies that wait until they are.
//!
//! Invariants:
//! - J1: a key that was changed in a turn counts as unsafe until the blocks of that turn are safe.
//!   Keys share places of a table, so a key may also count as unsafe without a reason.
//! - J2: `held` is in the order of its times.

use super::outgoing::Action;
use crate::journal::{Block, Body, Encoded, Journal, Piece};
use crate::libraries::LibrariesChange;
use darter_keyspace::commands::Encoder;
use darter_keyspace::{Act, Commands, Effect, Part, Reader, Record};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

/// The places of the table of changed keys: 128 KiB. A place that two keys share delays a reply.
const PLACES: usize = 16 * 1024;
/// A longer value is encoded by the journal's thread.
const ALONG_BYTES: usize = 64 * 1024;

/// A value that is encoded later counts as several commands.
const VALUE_COMMANDS: usize = 2;

/// The journal on one core; see the module's documentation.
#[derive(Default)]
pub(crate) struct Journaling {
    /// The reader of the core's log. There is one while the journal is on.
    pub(crate) reader: Cell<Option<Reader>>,
    draft: RefCell<Draft>,
    /// By the lock key of a key: the stamp of its last change. Empty until the journal is on.
    changed: RefCell<Vec<u64>>,
    /// The stamp of the last change of all keys.
    all_changed: Cell<u64>,
    /// For each turn whose blocks are not safe: its stamp, and when they were handed over.
    unsafe_turns: RefCell<VecDeque<(u64, u64)>>,
    /// The stamp of the last turn whose blocks are safe.
    safe_stamp: Cell<u64>,
    /// Sends that wait for the safe time to reach this time.
    held: RefCell<VecDeque<(u64, Action)>>,
    /// Calls that wait until everything handed over before a time is on the disk: by their numbers,
    /// and so by time, the time and the client.
    disk_waits: RefCell<BTreeMap<u64, (u64, u64)>>,
}

impl Journaling {
    /// True if the journal is on.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.reader.get().is_some()
    }

    /// Starts to read the log with this reader.
    pub(crate) fn begin(&self, reader: Reader) {
        self.reader.set(Some(reader));
        self.changed.borrow_mut().resize(PLACES, 0);
    }

    /// Stops reading the log.
    pub(crate) fn end(&self) -> Option<Reader> {
        self.unsafe_turns.borrow_mut().clear();
        self.changed.take();
        self.reader.take()
    }

    // ---- changes ----

    /// Encodes a record. `key` is the lock key of its key. With several cores, an act of all cores
    /// is recorded by each.
    pub(crate) fn take_in(&self, record: &Record, key: Option<u64>, is_one_of_many: bool) {
        match key {
            Some(key) => self.changed.borrow_mut()[place(key)] = record.stamp,
            None if record.act.is_of_all() => self.all_changed.set(record.stamp),
            None => {}
        }
        self.draft.borrow_mut().take_in(record, is_one_of_many);
    }

    /// Adds a cut, after all records so far.
    pub(crate) fn cut(&self, number: u64, stamp: u64) {
        let mut draft = self.draft.borrow_mut();
        draft.close();
        draft.blocks.push(Block::new(stamp, Body::Cut(number)));
    }

    /// Hands the blocks of this turn over. `read_clock` is called after that.
    pub(crate) fn hand_over(&self, core: usize, to: &Journal, read_clock: impl FnOnce() -> u64) {
        let mut draft = self.draft.borrow_mut();
        draft.close();
        let Some(stamp) = draft.blocks.last().map(|block| block.stamp) else { return };
        let handed = to.hand_over(core, &mut draft.blocks);
        let now = read_clock();
        to.handed_at(handed, now);
        let mut turns = self.unsafe_turns.borrow_mut();
        match turns.back_mut() {
            // The second hand-over of this turn.
            Some((last, at)) if *last == stamp => *at = now,
            _ => turns.push_back((stamp, now)),
        }
    }

    // ---- replies ----

    /// True if the key with this lock key was changed, and the change may not be safe.
    pub(crate) fn is_unsafe(&self, key: u64) -> bool {
        let changed = self.changed.borrow()[place(key)].max(self.all_changed.get());
        changed > self.safe_stamp.get()
    }

    /// Holds a send that may show changes which are not safe.
    ///
    /// The core has handed over all that the send may show, and so have other cores: before their
    /// messages left.
    pub(crate) fn hold(&self, action: Action, shared: &Journal) {
        self.held.borrow_mut().push_back((shared.handed_ns(), action));
    }

    /// True if a send is held.
    pub(crate) fn holds(&self) -> bool {
        !self.held.borrow().is_empty()
    }

    /// True if [`Journaling::release`] can do something.
    pub(crate) fn can_release(&self, safe_ns: u64) -> bool {
        self.held.borrow().front().is_some_and(|(at, _)| *at <= safe_ns)
    }

    /// Notes the safe time.
    pub(crate) fn note_safe(&self, safe_ns: u64) {
        let mut turns = self.unsafe_turns.borrow_mut();
        while let Some((stamp, _)) = turns.front().filter(|(_, at)| *at <= safe_ns) {
            self.safe_stamp.set(*stamp);
            turns.pop_front();
        }
    }

    /// Adds a call that waits until this time is on the disk.
    pub(crate) fn await_disk(&self, at_ns: u64, client: u64, number: u64) {
        self.disk_waits.borrow_mut().insert(number, (at_ns, client));
    }

    /// Removes a call that waits for the disk.
    pub(crate) fn end_disk_wait(&self, number: u64) {
        self.disk_waits.borrow_mut().remove(&number);
    }

    /// True if a call waits for the disk.
    pub(crate) fn awaits_disk(&self) -> bool {
        !self.disk_waits.borrow().is_empty()
    }

    /// True if [`Journaling::reaches_disk`] returns a call.
    pub(crate) fn may_reach_disk(&self, synced_ns: u64) -> bool {
        self.disk_waits.borrow().first_key_value().is_some_and(|(_, (at, _))| *at <= synced_ns)
    }

    /// Takes the next call whose time is on the disk: client and number.
    pub(crate) fn reaches_disk(&self, synced_ns: u64) -> Option<(u64, u64)> {
        let is_there = self.may_reach_disk(synced_ns);
        let first = is_there.then(|| self.disk_waits.borrow_mut().pop_first())?;
        first.map(|(number, (_, client))| (client, number))
    }

    /// Passes the sends on that have waited for this safe time, or an earlier one.
    pub(crate) fn release(&self, safe_ns: u64, mut act: impl FnMut(Action)) {
        while self.can_release(safe_ns) {
            let first = self.held.borrow_mut().pop_front();
            first.into_iter().for_each(|(_, action)| act(action));
        }
    }
}

fn place(key: u64) -> usize {
    (key % PLACES as u64) as usize
}

/// The blocks of a turn, and the one that is being encoded.
#[derive(Default)]
struct Draft {
    blocks: Vec<Block>,
    encoder: Encoder,
    /// The commands of the open block, after its pieces.
    commands: Commands,
    open: Option<Open>,
}

/// The open block.
struct Open {
    stamp: u64,
    part: Option<Part>,
    encoded: Encoded,
    /// The position of the last unit in the commands, and how many precede it. The unit is wrapped
    /// once it has several.
    unit_at: usize,
    unit_after: usize,
    is_wrapped: bool,
}

impl Draft {
    fn take_in(&mut self, record: &Record, is_one_of_many: bool) {
        match (&record.act, record.part) {
            (Act::Touched(_) | Act::Miss(_) | Act::Read(..), _) => return,
            (Act::EndOfPart, Some(part)) => {
                self.close();
                self.blocks.push(Block::new(record.stamp, Body::End(part)));
                return;
            }
            (act, Some(part)) if act.is_of_all() && is_one_of_many => {
                self.close();
                self.write(record);
                let encoded = self.take_open();
                let body = Body::ActOfAll(part, encoded.unwrap_or_default());
                self.blocks.push(Block::new(record.stamp, body));
                return;
            }
            _ => {}
        }
        let fits = |open: &Open| (open.stamp, open.part) == (record.stamp, record.part);
        if self.open.as_ref().is_some_and(|open| !fits(open)) {
            self.close();
        }
        if record.begins {
            self.end_unit();
        }
        self.write(record);
    }

    /// Writes the commands of a record into the open block.
    fn write(&mut self, record: &Record) {
        let (commands, database) = (&mut self.commands, record.database);
        let open = self.open.get_or_insert_with(|| Open {
            stamp: record.stamp,
            part: record.part,
            encoded: Encoded::default(),
            unit_at: 0,
            unit_after: 0,
            is_wrapped: false,
        });
        let (first, last) = open.encoded.databases.unwrap_or((database, database));
        if last != database {
            let is_begin = commands.count() == open.unit_after;
            commands.command(&[b"SELECT", database.to_string().as_bytes()]);
            if is_begin {
                (open.unit_at, open.unit_after) = (commands.bytes(), commands.count());
            }
        }
        open.encoded.databases = Some((first, database));
        match &record.act {
            Act::Key(key, Effect::Install { object, deadline, bits, .. })
                if object.content_bytes() > ALONG_BYTES =>
            {
                open.wrap(commands);
                open.flush(commands);
                let effect = Effect::Install {
                    object: object.clone(),
                    deadline: *deadline,
                    bits: *bits,
                    source: None,
                };
                open.encoded.count += VALUE_COMMANDS;
                open.encoded.pieces.push(Piece::Value(Box::new((key.clone(), effect))));
            }
            Act::Server(act) => {
                let act: &dyn std::any::Any = &**act;
                if let Some(change) = act.downcast_ref::<LibrariesChange>() {
                    change.encode(commands);
                }
            }
            _ => while self.encoder.step(record, commands) {},
        }
    }

    /// Ends the last unit of the open block.
    fn end_unit(&mut self) {
        let (Some(open), commands) = (&mut self.open, &mut self.commands) else { return };
        if open.part.is_none() {
            if commands.count() > open.unit_after + 1 {
                open.wrap(commands);
            }
            if std::mem::take(&mut open.is_wrapped) {
                commands.command(&[b"EXEC"]);
            }
        }
        (open.unit_at, open.unit_after) = (commands.bytes(), commands.count());
    }

    fn close(&mut self) {
        let Some((stamp, part)) = self.open.as_ref().map(|open| (open.stamp, open.part)) else {
            return;
        };
        if let Some(encoded) = self.take_open() {
            let body = match part {
                Some(part) => Body::Of(part, encoded),
                None => Body::Alone(encoded),
            };
            self.blocks.push(Block::new(stamp, body));
        }
    }

    /// Takes the commands of the open block, if there are any.
    fn take_open(&mut self) -> Option<Encoded> {
        self.end_unit();
        let mut open = self.open.take()?;
        open.flush(&mut self.commands);
        Some(open.encoded).filter(|encoded| encoded.count > 0)
    }
}

impl Open {
    /// Wraps the last unit, if it is none of a transaction that the journal's thread wraps.
    fn wrap(&mut self, commands: &mut Commands) {
        if self.part.is_none() && !std::mem::replace(&mut self.is_wrapped, true) {
            commands.insert(self.unit_at, b"*1\r\n$5\r\nMULTI\r\n");
        }
    }

    /// Moves the commands to the pieces.
    fn flush(&mut self, commands: &mut Commands) {
        self.encoded.count += commands.count();
        self.encoded.bytes += commands.bytes();
        self.encoded.pieces.extend(commands.take().take().into_iter().map(Piece::Plain));
        (self.unit_at, self.unit_after) = (0, 0);
    }
}
