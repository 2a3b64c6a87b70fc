//! Cursors that survive growth, and random entries.
//!
//! A scan visits the segments in the order of their prefixes, and in each the home groups in the
//! order of 16 other bits of the hash. Both orders depend only on the hash: splits, merges and a
//! different number of groups move borders, but never change the order. So a cursor is a point in
//! that order, and everything before it has been returned, whatever has happened since.
//!
//! ```text
//! cursor  | 0: 21, the caller's | prefix, then a 1, then 0s: 27 | position: 16 |     0 = start, end
//! ```
//! The 1 marks the length of the prefix when the scan entered it. If its segment has split since,
//! the position carries over to the first part, and the others are read from their beginning: some
//! entries twice. If it has been merged, only the entries of the old prefix are returned, and the
//! rest of the merged segment is read afterwards as if it were still separate. So none is missed.
//!
//! Small tables, and packs, are returned whole by one call. If a table has become one, that covers
//! whatever the cursor had yet to see.

use super::directory::{DEPTH_MAX, LEAF_BITS, Path};
use super::entry::{Entry, Raw};
use super::segment::{CLASSES, PagePos, position};
use super::value::OutOfLine;
use super::{Big, Root, Table};

/// Draws before [`Table::random`] accepts a nearby entry; never reached in practice.
const DRAWS_MAX: usize = 10_000;

/// Bits of a cursor. With ten more bits for a core it stays below 2^53, so clients that store
/// numbers as doubles keep it exact.
pub const CURSOR_BITS: u32 = 43;
/// Bits of the position in a cursor.
const POSITION_BITS: u32 = 16;
/// Bits of a hash that never belong to a prefix in a cursor.
const UNUSED_BITS: u32 = u32::BITS - 1 - DEPTH_MAX as u32;
const _: () = assert!(u32::BITS - UNUSED_BITS + POSITION_BITS == CURSOR_BITS);

/// The position of a scan.
struct Cursor {
    /// The prefix of the part being read, in the first bits of 32.
    prefix: u32,
    /// The number of valid bits in `prefix`.
    depth: u8,
    /// Positions of the part below this one have been returned.
    position: u16,
}

impl Cursor {
    fn read(cursor: u64) -> Option<Self> {
        let marked = ((cursor >> POSITION_BITS) as u32) << UNUSED_BITS;
        let depth = 31_u32.checked_sub(marked.trailing_zeros())? as u8;
        Some(Self { prefix: marked & (marked - 1), depth, position: cursor as u16 })
    }

    fn write(&self) -> u64 {
        debug_assert!(self.depth <= DEPTH_MAX, "depth={}", self.depth);
        let rest = u32::MAX >> self.depth;
        debug_assert_eq!(self.prefix & rest, 0, "a prefix of {} bits", self.depth);
        let marked = self.prefix | 1 << (31 - self.depth);
        u64::from(marked >> UNUSED_BITS) << POSITION_BITS | u64::from(self.position)
    }
}

impl<X: OutOfLine> Table<X> {
    /// Calls `f` for the next few entries after `cursor`; returns the next cursor, or 0 at the end.
    /// Start with 0.
    ///
    /// - Guarantee: entries that are in the table from the first call to the last are seen at least
    ///   once, whatever is added and removed in between. Some may be seen more than once.
    /// - Cursors have [`CURSOR_BITS`]: the upper bits belong to the caller, who clears them before
    ///   the call. Any number is a valid cursor.
    /// - Cost: one group of a segment, 0 to 40 entries; a small table, whole.
    pub fn scan(&self, cursor: u64, f: &mut dyn FnMut(Entry<'_, X>)) -> u64 {
        // SAFETY: entries of this table, which is borrowed during the call.
        let mut tell = |raw: Raw<X>| f(unsafe { Entry::new(raw) });
        match &self.0 {
            Root::Empty | Root::Ruin(_) => 0,
            Root::Pack(pack) => {
                pack.for_each(f);
                0
            }
            Root::Small(small) => {
                let mut at = 0;
                while let Some((_, raw)) = small.next(&mut at) {
                    tell(raw);
                }
                0
            }
            Root::Big(big) => big.scan(cursor, &mut tell),
        }
    }

    /// Calls `f` for all entries. Cost: O(entries): for small tables and for tests; for others see
    /// [`super::Reader`].
    pub fn for_each(&self, f: &mut dyn FnMut(Entry<'_, X>)) {
        let Root::Big(big) = &self.0 else {
            self.scan(0, f);
            return;
        };
        for path in big.directory.paths() {
            let mut at = PagePos::default();
            while let Some(raw) = big.directory.segment_at(path).next_entry(&mut at) {
                // SAFETY: an entry of this table, which is borrowed during the call.
                f(unsafe { Entry::new(raw) });
            }
        }
    }

    /// A random entry, each with the same probability; `None` when the table is empty.
    ///
    /// `next` returns 64 random bits a call. Cost: a few draws, expected: a random place is drawn
    /// until it holds an entry.
    pub fn random(&self, next: &mut dyn FnMut() -> u64) -> Option<Entry<'_, X>> {
        let raw = match &self.0 {
            Root::Empty | Root::Ruin(_) => return None,
            Root::Pack(pack) => {
                let view = pack.view();
                return Some(Entry::packed(view.nth(below(next(), view.len()))));
            }
            Root::Small(small) => {
                let (mut at, nth) = (0, below(next(), small.len()));
                (0..=nth).fold(None, |_, _| small.next(&mut at)).map(|(_, raw)| raw)?
            }
            Root::Big(big) => big.random(next)?,
        };
        // SAFETY: an entry of this table, which is borrowed as long as the result.
        Some(unsafe { Entry::new(raw) })
    }
}

/// A number below `bound` from 64 random bits.
fn below(random: u64, bound: usize) -> usize {
    let drawn = ((u128::from(random) * bound as u128) >> 64) as usize;
    debug_assert!(drawn < bound, "{drawn} of {bound}");
    drawn
}

impl<X: OutOfLine> Big<X> {
    fn depth_of(&self, path: Path) -> u8 {
        self.directory.top.get(path.top).depth(path.leaf)
    }

    fn scan(&self, cursor: u64, f: &mut dyn FnMut(Raw<X>)) -> u64 {
        let mut cursor = Cursor::read(cursor).unwrap_or_else(|| self.enter(0));
        let path = self.directory.path(u64::from(cursor.prefix) << 32);
        let (segment, depth) = (self.directory.segment_at(path), self.depth_of(path));
        let next = if depth >= cursor.depth {
            cursor.depth = depth.min(DEPTH_MAX);
            segment.scan(cursor.position, f)
        } else {
            let (prefix, shift) = (u64::from(cursor.prefix) << 32, 64 - cursor.depth);
            segment.scan(cursor.position, &mut |raw| {
                if (raw.hash() ^ prefix) >> shift == 0 {
                    f(raw);
                }
            })
        };
        if let Some(position) = next {
            return Cursor { position, ..cursor }.write();
        }
        let len = 1_u64 << (32 - cursor.depth);
        match u32::try_from(u64::from(cursor.prefix & !((len - 1) as u32)) + len) {
            Ok(prefix) => self.enter(prefix).write(),
            Err(_) => 0,
        }
    }

    /// The cursor at the start of the segment at `prefix`, or of the rest of that segment from
    /// there on.
    fn enter(&self, prefix: u32) -> Cursor {
        let path = self.directory.path(u64::from(prefix) << 32);
        let aligned = 32 - prefix.trailing_zeros() as u8;
        let depth = self.depth_of(path).max(aligned).min(DEPTH_MAX);
        Cursor { prefix, depth, position: 0 }
    }

    fn random(&self, next: &mut dyn FnMut() -> u64) -> Option<Raw<X>> {
        let top = &self.directory.top;
        let leaf_bits = if top.len() == 1 { top.get(0).fan.bits() } else { LEAF_BITS };
        let depth_max = top.bits() + leaf_bits;
        let slots = CLASSES[usize::from(self.class_max)].slots();
        for _ in 0..DRAWS_MAX {
            let (hash, random) = (next(), next());
            let path = self.directory.path(hash);
            // A segment that is one bit less deep is hit twice as often, so half of its draws are
            // refused.
            let refused = (1_u64 << (depth_max - self.depth_of(path))) - 1;
            if u64::from(position(hash)) & refused != 0 {
                continue;
            }
            if let Some(raw) = self.directory.segment_at(path).nth_slot(below(random, slots)) {
                return Some(raw);
            }
        }
        let mut paths = self.directory.paths();
        paths.find_map(|path| self.directory.segment_at(path).next_entry(&mut PagePos::default()))
    }
}
