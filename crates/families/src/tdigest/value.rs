//! The type: its row, its values, how they are changed.

use super::digest::{Digest, Node};
use darter_base::score;
use darter_keyspace::commands::{self, Commands};
use darter_keyspace::{
    Change, Collection, Db, Event, Key, NewItem, Object, Recorder, Type, Typed, Value, WrongType,
};
use darter_rdb::types::PRIVATE;
use darter_rdb::{Bounds, Encoding, Item, Items, Kind, Layout, Origin, Plan, Source, Survey};

static TYPE: &Type = &Type {
    name: "TDIS-TYPE",
    number: 11,
    rdb: &Kind { encodings: ENCODINGS, packed: Bounds::DEFAULT, plan },
    empty: || Object::new(TDigest::default()),
    bounds: &[],
    is_ordered: true,
};

/// How a digest is laid out in a file: its head, then its nodes.
const DIGEST: u8 = PRIVATE + 12;

const ENCODINGS: &[Encoding] = &[Encoding::of(Origin::Darter, DIGEST, Layout::Singles)];

fn plan(survey: &Survey) -> Plan {
    survey.plain(DIGEST)
}

/// The default compression.
pub(super) const COMPRESSION: u64 = 100;
/// The number of nodes in an item of a file, so that no item is long.
const NODES: usize = 128;

const CREATE: &Event = &Event::new("tdigest.create", b'd');
const RESET: &Event = &Event::new("tdigest.reset", b'd');
const ADD: &Event = &Event::new("tdigest.add", b'd');

/// A t-digest. Cloning it makes a snapshot.
#[derive(Clone, Default)]
pub struct TDigest(Digest);

impl TDigest {
    /// Makes a value of a digest.
    #[must_use]
    pub fn of(digest: Digest) -> Self {
        Self(digest)
    }

    /// The digest.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.0
    }

    /// Reads the head of a file, or some nodes. Returns false if they are invalid at this point.
    fn take(&mut self, item: &[u8]) -> bool {
        let Some((tag, rest)) = item.split_first() else { return false };
        let (words, []) = rest.as_chunks() else { return false };
        match tag {
            b'h' if self.is_empty() => {
                let &[compression, min, max, compressions] = words else { return false };
                let counts = (u64::from_le_bytes(compression), u64::from_le_bytes(compressions));
                let ends = (f64::from_le_bytes(min), f64::from_le_bytes(max));
                self.0 = Digest::of_head(counts, ends).unwrap_or_default();
                !self.is_empty()
            }
            b'm' | b'u' if !self.is_empty() => {
                let (pairs, []) = words.as_chunks() else { return false };
                let nodes = pairs.iter().map(|&[mean, weight]| Node {
                    mean: f64::from_le_bytes(mean),
                    weight: u64::from_le_bytes(weight),
                });
                self.0.take(*tag == b'm', &nodes.collect::<Vec<_>>())
            }
            _ => false,
        }
    }
}

impl Value for TDigest {
    fn content_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn items(&self, _: u64) -> Items {
        Box::new(Written { digest: self.0.clone(), next: None, item: Vec::new() })
    }

    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let NewItem::Pair { value, .. } = item else { return self.take(item.name()) };
        if self.is_empty() {
            self.0 = Digest::new(COMPRESSION).expect("it is not too high");
        }
        let mean = value.inline().and_then(score::parse).filter(|value| value.is_finite());
        // NaN counts as 0, so that every pair is an observation.
        self.0.add(Node { mean: mean.unwrap_or(0.0), weight: 1 }).is_ok()
    }

    fn is_empty(&self) -> bool {
        self.0.compression() == 0
    }

    fn check_invariants(&self) {
        self.0.check_invariants();
    }
}

impl Typed for TDigest {
    const TYPE: &'static Type = TYPE;
}

impl Collection for TDigest {
    type Edit<'a> = TDigestEdit<'a>;

    fn edit<'a>(&'a mut self, _: u64, recorder: Recorder<'a>) -> TDigestEdit<'a> {
        TDigestEdit { digest: &mut self.0, recorder }
    }
}

/// The items of a snapshot of a digest: its head, then the merged and the unmerged nodes.
struct Written {
    digest: Digest,
    /// Which nodes come next, and from which on; nothing before the head.
    next: Option<(bool, usize)>,
    item: Vec<u8>,
}

impl Source for Written {
    fn next(&mut self) -> Option<Item<'_>> {
        let Self { digest, next, item } = self;
        item.clear();
        let (mut is_merged, mut from) = next.unwrap_or((true, 0));
        if next.is_none() {
            let (min, max) = digest.kept_ends();
            item.push(b'h');
            item.extend_from_slice(&digest.compression().to_le_bytes());
            item.extend_from_slice(&min.to_le_bytes());
            item.extend_from_slice(&max.to_le_bytes());
            item.extend_from_slice(&digest.compressions().to_le_bytes());
            *next = Some((true, 0));
            return Some(Item::Single { name: item, deadline_ms: None });
        }
        if is_merged && from >= digest.merged().len() {
            (is_merged, from) = (false, 0);
        }
        let nodes = if is_merged { digest.merged() } else { digest.buffer() };
        let nodes = &nodes[from..nodes.len().min(from + NODES)];
        if nodes.is_empty() {
            return None;
        }
        *next = Some((is_merged, from + nodes.len()));
        item.push(if is_merged { b'm' } else { b'u' });
        for node in nodes {
            item.extend_from_slice(&node.mean.to_le_bytes());
            item.extend_from_slice(&node.weight.to_le_bytes());
        }
        Some(Item::Single { name: item, deadline_ms: None })
    }

    fn rewind(&mut self) {
        self.next = None;
    }
}

/// A recorded change to a digest.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum TDigestChange {
    /// A new digest.
    Create { compression: u64 },
    /// The digest was reset.
    Reset,
    /// An observation was added.
    Add { value: f64 },
}

impl Change for TDigestChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        0
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        db.edit::<TDigest, _>(key, true, |edit| {
            for change in changes {
                match *change {
                    Self::Create { compression } => _ = edit.create(compression),
                    Self::Reset => edit.reset(),
                    Self::Add { value } => _ = edit.add(value),
                }
            }
        })?;
        Ok(())
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        let are_added =
            |one: &Self, other: &Self| matches!((one, other), (Self::Add { .. }, Self::Add { .. }));
        commands::runs(changes, are_added, |run| match &run[0] {
            Self::Create { compression } => {
                to.begin(4);
                to.word(b"TDIGEST.CREATE");
                to.word(key);
                to.word(b"COMPRESSION");
                to.natural(*compression);
            }
            Self::Reset => to.command(&[b"TDIGEST.RESET", key]),
            Self::Add { .. } => {
                to.begin(2 + run.len());
                to.word(b"TDIGEST.ADD");
                to.word(key);
                run.iter().for_each(|change| {
                    if let Self::Add { value } = change {
                        to.score(*value);
                    }
                });
            }
        });
    }
}

/// Changes a digest, and records the effects.
pub struct TDigestEdit<'a> {
    digest: &'a mut Digest,
    recorder: Recorder<'a>,
}

impl TDigestEdit<'_> {
    /// Makes a new digest. Returns false if the compression is too high.
    pub fn create(&mut self, compression: u64) -> bool {
        let Some(new) = Digest::new(compression) else { return false };
        *self.digest = new;
        self.recorder.record(&[CREATE], || TDigestChange::Create { compression });
        true
    }

    /// Removes all observations.
    pub fn reset(&mut self) {
        *self.digest = Digest::new(self.digest.compression()).unwrap_or_default();
        self.recorder.record(&[RESET], || TDigestChange::Reset);
    }

    /// Adds a finite observation. Returns false if there are too many.
    pub fn add(&mut self, value: f64) -> bool {
        let is_added = self.digest.add(Node { mean: value, weight: 1 }).is_ok();
        if is_added {
            self.recorder.record(&[ADD], || TDigestChange::Add { value });
        }
        is_added
    }
}
