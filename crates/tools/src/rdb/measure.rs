//! Measures keys while they are read: their size in Redis 7.0 and in Darter.
//!
//! Darter's size is that of the value, built with the server's own structures and then measured as
//! by MEMORY USAGE. Only the first [`BUILT_ITEMS`] items or [`BUILT_BYTES`] bytes
//! of a large value are built, and the size is scaled: memory stays constant.

use super::redis_size::{RedisSize, Shape};
use darter_base::UnixMillis;
use darter_base::lazyfree;
use darter_base::preempt::Never;
use darter_families::{TYPES, keys};
use darter_keyspace::{Building, Deadline, Fresh, Key, NewItem, Shard};
use darter_rdb::{Event, Item};

/// The most items of a value that are built.
const BUILT_ITEMS: u64 = 8_192;
/// The most bytes of a value that are built.
const BUILT_BYTES: u64 = 4 << 20;
/// The weight of an item besides its texts, for scaling.
const ITEM_WEIGHT: u64 = 8;

/// The size of a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeySize {
    pub(crate) database: u32,
    pub(crate) key: Vec<u8>,
    /// The name of the type.
    pub(crate) kind: &'static str,
    pub(crate) deadline: Option<UnixMillis>,
    /// Redis 7.0's encoding.
    pub(crate) encoding: &'static str,
    pub(crate) elements: u64,
    /// The longest element, in bytes.
    pub(crate) longest: u64,
    /// Bytes in Redis 7.0; `None` for types of modules.
    pub(crate) redis_bytes: Option<u64>,
    /// Bytes in Darter.
    pub(crate) darter_bytes: u64,
}

/// Measures one key after the other.
pub(crate) struct Meter {
    shard: Shard,
    database: u32,
    current: Option<Measured>,
}

/// The key that is being measured.
struct Measured {
    size: KeySize,
    redis: RedisSize,
    /// `None` for a string.
    building: Option<Building>,
    text: Vec<u8>,
    items: u64,
    /// The weight of all items, and of those that were built.
    weight: u64,
    built: u64,
    is_sound: bool,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self { shard: Shard::new(1, 0), database: 0, current: None }
    }

    /// Measures an event.
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        match *event {
            Event::SelectDb(database) => self.database = database,
            Event::Key { key, kind, expiry_ms, len_hint, .. } => {
                let row = TYPES.of(kind);
                let hint = len_hint.unwrap_or(0).min(BUILT_ITEMS);
                self.current = Some(Measured {
                    size: KeySize {
                        database: self.database,
                        key: key.to_vec(),
                        kind: row.name,
                        deadline: expiry_ms,
                        ..KeySize::default()
                    },
                    redis: RedisSize::new(Shape::of(row.name)),
                    building: (!kind.is_text()).then(|| Building::new(row, hint)),
                    text: Vec::new(),
                    items: 0,
                    weight: 0,
                    built: 0,
                    is_sound: true,
                });
            }
            Event::Item(item) => {
                if let Some(current) = &mut self.current {
                    current.add(&item);
                }
            }
            _ => {}
        }
    }

    /// Ends the key. Returns its size.
    ///
    /// Errors: its items are not those of its type.
    pub(crate) fn end(&mut self) -> Result<KeySize, String> {
        let current = self.current.take().ok_or("the end of no key")?;
        let Measured { mut size, mut redis, .. } = current;
        let key_bytes = size.key.len() as u64;
        (size.encoding, size.redis_bytes) = redis.finish(key_bytes);
        (size.elements, size.longest) = (redis.elements.max(1), redis.longest);
        if redis.elements == 0 && Shape::of(size.kind) == Shape::Stream {
            size.elements = 0;
        }
        if !current.is_sound {
            let name = size.key.escape_ascii();
            return Err(format!("the value of the key \"{name}\" has a repeated or invalid item"));
        }
        let db = self.shard.db_mut(0);
        let key = Key::new(&size.key);
        let deadline = Deadline::from(size.deadline);
        let bytes = match current.building {
            None => {
                db.set_text_as(&key, Fresh::Bytes(&current.text), deadline, &[]);
                db.get(&key).map(|found| keys::memory_bytes(&found))
            }
            Some(mut building) => {
                while building.step().map_err(|_| "a repeated item")? {}
                db.install(&key, building.finish(), deadline, &[]);
                db.get(&key).map(|found| keys::memory_bytes(&found))
            }
        };
        db.remove(&key);
        while lazyfree::run(&Never) {}
        let scale = current.weight as f64 / current.built.max(1) as f64;
        let bytes = bytes.unwrap_or(0) as u64;
        let is_whole = current.weight == current.built;
        size.darter_bytes = if is_whole { bytes } else { (bytes as f64 * scale) as u64 };
        Ok(size)
    }
}

impl Measured {
    fn add(&mut self, item: &Item<'_>) {
        self.redis.add(item);
        let weight = item.text_bytes() as u64 + ITEM_WEIGHT;
        self.items += 1;
        self.weight += weight;
        if self.items > BUILT_ITEMS || self.built + weight > BUILT_BYTES && self.built > 0 {
            return;
        }
        self.built += weight;
        match (&mut self.building, *item) {
            (None, Item::Chunk(bytes)) => self.text.extend_from_slice(bytes),
            (Some(building), item) => {
                let item = NewItem::of(item);
                self.is_sound &= item.is_some_and(|item| building.take_in(item));
            }
            _ => self.is_sound = false,
        }
    }
}
