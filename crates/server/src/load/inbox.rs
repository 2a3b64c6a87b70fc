//! A core's side of loading: receives portions, and inserts their records in slices.

use super::portion::{Head, LoadPortion, Place, Record};
use super::{Cause, Outcome};
use arrayvec::ArrayVec;
use darter_base::{Preempt, hash};
use darter_keyspace::{self as keyspace, Deadline, Fresh, Key, NewItem, Shard, Twice, Types};
use darter_rdb::{Block, BlockPlace, IntTexts};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

/// The number of records prefetched together, so that their cache misses overlap.
const PREFETCHED: usize = 16;
/// Records inserted between two reads of the clock: about 2 us for small ones. Few, because the
/// segments of a large table tend to split at about the same time, and a split takes 50 us.
/// Measured with ten million fields: with a check after 64 records, 1 slice in 100 exceeded 260 us
/// of CPU time, and a few took 700 us.
const RECORDS_AT_ONCE: usize = 4;
/// Items added between two reads of the clock, in a packed block or a small value, where an item
/// costs little.
const ITEMS_AT_ONCE: usize = 16;
/// Consecutive integers of a block that are added together, about 5 ns each.
const NUMBERS_AT_ONCE: usize = 128;
/// Consecutive texts of a block that are added together, about 20 ns each; at most 32 KiB in total.
const NAMES_AT_ONCE: usize = 32;

/// Items of a value that are added together: at most 15 us.
const GATHERED_MAX: usize = 128;

/// A core's end of loading: it receives the core's part of the file.
pub(crate) struct Inbox {
    types: Types,
    state: State,
    reports: Sender<Outcome>,
    returns: Sender<LoadPortion>,
    current: Option<(LoadPortion, Place)>,
    building: Option<Building>,
    /// The position in the current packed block.
    block: BlockPlace,
    /// The key of the value being built. The buffer is reused.
    key: Vec<u8>,
    /// Memory for [`gather`].
    texts: Box<[IntTexts; GATHERED_MAX + 1]>,
}

enum State {
    Open(Receiver<LoadPortion>),
    /// The whole file was loaded.
    Finished,
    /// Loading has failed, on this core or in the thread that loads the file. That thread reports
    /// it.
    Failed,
}

/// A value that is built outside the table until it is complete.
struct Building {
    database: usize,
    deadline: Option<u64>,
    idle: Option<u32>,
    offset: u64,
    value: keyspace::Building,
}

impl Inbox {
    pub(super) fn new(
        types: Types,
        portions: Receiver<LoadPortion>,
        reports: Sender<Outcome>,
        returns: Sender<LoadPortion>,
    ) -> Self {
        let state = State::Open(portions);
        let (block, key) = (BlockPlace::default(), Vec::new());
        let texts = Box::new([const { IntTexts::new() }; GATHERED_MAX + 1]);
        Self { types, state, reports, returns, current: None, building: None, block, key, texts }
    }

    /// True if the whole file was valid, and this core's part of it is in the shard.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished)
    }

    /// True until the part is complete, or an error has ended it.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Inserts records until the slice is over, or all arrived portions are done. Returns true if
    /// there is more to do; otherwise the next portion wakes the core.
    pub(crate) fn step(&mut self, shard: &mut Shard, preempt: &dyn Preempt) -> bool {
        loop {
            let Some((portion, mut place)) = self.current.take().or_else(|| self.receive()) else {
                return false;
            };
            let done = match self.insert(&portion, &mut place, shard, preempt) {
                Ok(done) => done,
                Err(cause) => {
                    self.fail(cause);
                    return false;
                }
            };
            if done {
                self.end_of_portion(portion);
            } else {
                self.current = Some((portion, place));
            }
            if preempt.must_yield() {
                return matches!(self.state, State::Open(_));
            }
        }
    }

    fn receive(&mut self) -> Option<(LoadPortion, Place)> {
        let State::Open(portions) = &self.state else { return None };
        match portions.try_recv() {
            Ok(portion) => Some((portion, Place::default())),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.state = State::Failed;
                None
            }
        }
    }

    fn end_of_portion(&mut self, mut portion: LoadPortion) {
        if portion.is_last {
            assert!(self.building.is_none(), "the file ended inside of a value");
            self.state = State::Finished;
            self.key = Vec::new();
            let _ = self.reports.send(Ok(())); // The receiver has gone if another core has failed.
            return;
        }
        portion.clear();
        let _ = self.returns.send(portion); // The receiver may have gone, too.
    }

    fn fail(&mut self, cause: Cause) {
        // Reported before the inbox is dropped, so that the loading thread finds the reason.
        let _ = self.reports.send(Err(cause));
        self.state = State::Failed;
        self.building = None;
    }

    /// Inserts at most [`PREFETCHED`] records, or fewer if the slice ends. Returns true at the end
    /// of the portion.
    fn insert(
        &mut self,
        portion: &LoadPortion,
        place: &mut Place,
        shard: &mut Shard,
        preempt: &dyn Preempt,
    ) -> Result<bool, Cause> {
        self.prefetch(portion, *place, shard);
        let mut since = 0;
        for _ in 0..PREFETCHED {
            let here = *place;
            let Some(record) = portion.next(place) else { return Ok(true) };
            since += 1;
            let is_over = match record {
                Record::Block(block) => self.block(block, preempt)?,
                Record::End => self.complete(preempt)?,
                _ => true,
            };
            if !is_over {
                *place = here;
                return Ok(false);
            }
            if let Record::Begin(head, kind, items) = record {
                self.begin(head, kind, items);
                since += self.whole(portion, place, shard)?;
            } else {
                self.take_in(record, shard)?;
            }
            // How many records fit into a few microseconds depends on the value.
            let at_once = if self.is_near() { ITEMS_AT_ONCE } else { RECORDS_AT_ONCE };
            if since >= at_once {
                since = 0;
                if preempt.must_yield() {
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }

    /// True if an item of the current value costs little: the value is packed, or its items are
    /// only gathered, so their memory is in the cache.
    fn is_near(&self) -> bool {
        self.building.as_ref().is_some_and(|building| building.value.is_near())
    }

    /// Prefetches the memory that the next records will touch.
    fn prefetch(&self, portion: &LoadPortion, mut place: Place, shard: &Shard) {
        let ahead = self.building.as_ref().and_then(|building| building.value.ahead());
        if self.building.is_some() && ahead.is_none() {
            return;
        }
        for _ in 0..PREFETCHED {
            let Some(record) = portion.next(&mut place) else { return };
            match (record, ahead) {
                (Record::Item(item), Some(ahead)) => ahead.prefetch(hash::of(item.name())),
                (Record::Text(head, _) | Record::Begin(head, ..), None) => {
                    shard.db(head.database as usize).keys().prefetch(hash::of(head.key));
                }
                _ => {}
            }
        }
    }

    #[inline]
    fn take_in(&mut self, record: Record<'_>, shard: &mut Shard) -> Result<(), Cause> {
        match record {
            Record::Item(item) => self.item(item),
            Record::Block(_) => Ok(()), // The items of the block were added before.
            Record::Text(head, text) => string(head, Fresh::Bytes(text), shard),
            Record::Long(head, blob) => string(head, Fresh::Blob(blob), shard),
            Record::Begin(..) => unreachable!("it was begun"),
            Record::End => self.install(shard),
        }
    }

    fn begin(&mut self, head: Head<'_>, kind: u8, items: u64) {
        let mut types = self.types.iter();
        let row = types.find(|row| row.rdb.number() == kind).expect("the reader knew its kind");
        let value = keyspace::Building::new(row, items);
        let Head { database, deadline, idle, offset, key } = head;
        self.key.clear();
        self.key.extend_from_slice(key);
        let database = database as usize;
        self.building = Some(Building { database, deadline, idle, offset, value });
    }

    /// Builds and installs the current value, if it is small and all its items are in this portion.
    /// `place` then advances past it. Returns the number of items, or 0 if the value must be built
    /// item by item.
    fn whole(
        &mut self,
        portion: &LoadPortion,
        place: &mut Place,
        shard: &mut Shard,
    ) -> Result<usize, Cause> {
        let mut end = *place;
        let Some(items) = gather(portion, &mut end, &mut self.texts[..]) else { return Ok(0) };
        let building = self.building.as_mut().expect("a value has begun");
        let (is_sound, count) = (building.value.take_all(&items), items.len());
        drop(items);
        if !is_sound {
            return Err(self.bad_item());
        }
        *place = end;
        // A few items are sorted in one step.
        while self.order()? {}
        self.install(shard)?;
        Ok(count)
    }

    /// Completes the value that was built, or does a part of that if the slice ends. Returns true
    /// when the value is complete.
    fn complete(&mut self, preempt: &dyn Preempt) -> Result<bool, Cause> {
        while self.order()? {
            if preempt.must_yield() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Does one step of completing a value. Returns true if there are more.
    fn order(&mut self) -> Result<bool, Cause> {
        let building = self.building.as_mut().expect("an end belongs to a beginning");
        building.value.step().map_err(|Twice| self.bad_item())
    }

    #[inline]
    fn item(&mut self, item: NewItem<'_>) -> Result<(), Cause> {
        let building = self.building.as_mut().expect("an item belongs to a value");
        let is_sound = building.value.take_in(item);
        if is_sound { Ok(()) } else { Err(self.bad_item()) }
    }

    /// Adds the items of a packed block, or fewer if the slice ends. Returns true when all are
    /// added.
    fn block(&mut self, block: Block<'_>, preempt: &dyn Preempt) -> Result<bool, Cause> {
        let building = self.building.as_mut().expect("a block belongs to a value");
        let (value, mut texts) = (&mut building.value, IntTexts::default());
        let mut numbers = [0; NUMBERS_AT_ONCE];
        let (mut names, mut since) = ([&[][..]; NAMES_AT_ONCE], 0);
        loop {
            let count = block.next_numbers(&mut self.block, &mut numbers);
            let named = block.next_texts(&mut self.block, &mut names);
            let is_sound = if count + named > 0 {
                value.take_numbers(&numbers[..count]) && value.take_names(&names[..named])
            } else {
                let item = block.next(&mut self.block, &mut texts).map_err(Cause::Format)?;
                let Some(item) = item else { break };
                value.take_in(NewItem::of(item).expect("blocks have items only"))
            };
            if !is_sound {
                return Err(self.bad_item());
            }
            since += (count + named).max(1);
            if since >= ITEMS_AT_ONCE {
                if preempt.must_yield() {
                    return Ok(false);
                }
                since = 0;
            }
        }
        self.block = BlockPlace::default();
        Ok(true)
    }

    fn bad_item(&self) -> Cause {
        let place = self.building.as_ref();
        let (database, offset) = place.map_or((0, 0), |place| (place.database, place.offset));
        Cause::BadItem { key: self.key.clone(), database, offset }
    }

    fn install(&mut self, shard: &mut Shard) -> Result<(), Cause> {
        let building = self.building.take().expect("an end belongs to a beginning");
        let Building { database, deadline, idle, offset, value } = building;
        let value = value.finish();
        if !value.is_complete() {
            return Err(Cause::BadItem { key: self.key.clone(), database, offset });
        }
        if value.is_empty() {
            return Ok(());
        }
        let db = shard.db_mut(database);
        let before = db.len();
        let key = Key::new(&self.key);
        db.install(&key, value, Deadline::from(deadline), &[]);
        idle.iter().for_each(|idle| db.set_idle(&key, u64::from(*idle)));
        if db.len() == before {
            return Err(Cause::DuplicateKey { key: self.key.clone(), database, offset });
        }
        Ok(())
    }
}

fn string(head: Head<'_>, value: Fresh<'_>, shard: &mut Shard) -> Result<(), Cause> {
    let database = head.database as usize;
    let db = shard.db_mut(database);
    let before = db.len();
    let key = Key::new(head.key);
    db.set_text_as(&key, value, Deadline::from(head.deadline), &[]);
    head.idle.iter().for_each(|idle| db.set_idle(&key, u64::from(*idle)));
    if db.len() == before {
        let (key, offset) = (head.key.to_vec(), head.offset);
        return Err(Cause::DuplicateKey { key, database, offset });
    }
    Ok(())
}

/// Collects the items from `place` to the end of their value, and advances `place` past it. Returns
/// `None` if there are too many, some are damaged, or some are in a later portion; then the items
/// are handled one by one.
fn gather<'a>(
    portion: &'a LoadPortion,
    place: &mut Place,
    mut texts: &'a mut [IntTexts],
) -> Option<ArrayVec<NewItem<'a>, GATHERED_MAX>> {
    let mut items = ArrayVec::new();
    loop {
        match portion.next(place)? {
            Record::Item(item) => items.try_push(item).ok()?,
            Record::Block(block) => texts = gather_block(block, &mut items, texts)?,
            _ => return Some(items),
        }
    }
}

/// Collects the items of a packed block. Returns the texts that were not needed.
fn gather_block<'a>(
    block: Block<'a>,
    items: &mut ArrayVec<NewItem<'a>, GATHERED_MAX>,
    mut texts: &'a mut [IntTexts],
) -> Option<&'a mut [IntTexts]> {
    if block.head.items() > items.remaining_capacity() as u64 {
        return None;
    }
    let mut at = BlockPlace::default();
    loop {
        let (text, rest) = texts.split_first_mut()?;
        texts = rest;
        let Some(item) = block.next(&mut at, text).ok()? else { return Some(texts) };
        items.try_push(NewItem::of(item)?).ok()?;
    }
}
