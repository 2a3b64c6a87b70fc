//! Adding, changing and removing entries.
//!
//! All changes work in the same way: unshare the path, build the new entry's bytes on the stack,
//! take over what the old one owned, write. If a segment is full, the entry stays in its buffer
//! while `rebuild` makes room. Property of an entry (a long key, an out-of-line value) has one owner
//! at any time: the page, the buffer, or the returned [`Old`].
//!
//! Not here: making room, see `rebuild`; removing expired entries, see `expire`.

use super::directory::{Path, get_mut};
use super::entry::{self, Buf, Entry, Needle, Raw};
use super::pack::Spot;
use super::segment::{Full, Loc};
use super::small::Small;
use super::value::{New, Old, OutOfLine};
use super::{Big, Root, Table};
use darter_base::UnixMillis;
use std::sync::Arc;

/// The place of an entry.
#[derive(Clone, Copy)]
pub(super) enum At {
    Packed(Spot),
    Small(usize),
    Big(Path, Loc),
}

/// An entry for changes. Its segment is not shared.
pub struct EntryMut<'a, X: OutOfLine> {
    table: &'a mut Table<X>,
    hash: u64,
    at: At,
    /// The bytes at `at`; a placeholder in a pack.
    raw: Raw<X>,
}

impl<X: OutOfLine> Table<X> {
    /// Adds an entry, or replaces the one with the same key. Returns the old entry.
    ///
    /// - Cost: O(1); a split once in 600 additions; after a cut, copies of shared parts.
    /// - `bits`: two bits that the entry keeps for the caller.
    /// - Panics when `value` is inline and longer than `INLINE_MAX`.
    pub fn insert(
        &mut self,
        hash: u64,
        key: &[u8],
        value: New<'_, X>,
        deadline: Option<UnixMillis>,
        bits: u8,
    ) -> Option<Old<X>> {
        self.insert_stamped(hash, key, value, deadline, bits, 0)
    }

    /// [`Table::insert`] with a stamp, if entries have stamps.
    pub fn insert_stamped(
        &mut self,
        hash: u64,
        key: &[u8],
        value: New<'_, X>,
        deadline: Option<UnixMillis>,
        bits: u8,
        stamp: u32,
    ) -> Option<Old<X>> {
        debug_assert_eq!(hash, darter_base::hash::of(key), "the hash of another key");
        debug_assert!(bits < 4, "bits={bits}");
        if let Some(old) = self.put_packed(hash, key, &value, deadline, bits) {
            return old;
        }
        let needle = Needle::of(hash, key);
        if let Some((at, raw)) = self.locate_mut(hash, &needle) {
            return Some(self.overwrite(hash, (at, raw), value, deadline, bits, stamp).0);
        }
        let mut buf = Buf::new();
        entry::encode(&mut buf, &needle, value, deadline, bits, stamp);
        self.add(hash, &buf);
        None
    }

    /// The entry of `key` for changes. Its segment is copied first if a cut shares it.
    #[inline]
    pub fn get_mut(&mut self, hash: u64, key: &[u8]) -> Option<EntryMut<'_, X>> {
        if let Root::Pack(pack) = &self.0 {
            let at = At::Packed(pack.view().find(hash, key)?);
            return Some(EntryMut { table: self, hash, at, raw: Raw::nowhere() });
        }
        let (at, raw) = self.locate_mut(hash, &Needle::of(hash, key))?;
        Some(EntryMut { table: self, hash, at, raw })
    }

    /// Removes and returns the entry of `key`. Pages, segments and the directory shrink with the
    /// content.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> Option<Old<X>> {
        self.get_mut(hash, key).map(EntryMut::remove)
    }

    /// [`Table::remove`] without reclaiming the gap or shrinking the segment. For bulk removal,
    /// where repacking a segment each time would be most of the work. Call [`Table::settle`]
    /// afterwards.
    pub fn remove_loosely(&mut self, hash: u64, key: &[u8]) -> Option<Old<X>> {
        if matches!(self.0, Root::Pack(_)) {
            return self.remove(hash, key);
        }
        let (at, _) = self.locate_mut(hash, &Needle::of(hash, key))?;
        let old = self.take_out(hash, at);
        self.shrink();
        Some(old)
    }

    /// Reclaims the gaps that [`Table::remove_loosely`] left in the segment of `hash`, and merges
    /// that segment with its neighbour if both are nearly empty. Returns the hash of the next
    /// segment, or `None` after the last. Cost: a cache miss if there is nothing to do, otherwise a
    /// portion.
    pub fn settle(&mut self, hash: u64) -> Option<u64> {
        let Root::Big(big) = &mut self.0 else { return None };
        big_mut(big).settle(hash);
        let next = big.place_after(hash);
        debug_assert!(next.is_none_or(|next| next > hash), "{next:?} does not come after {hash}");
        if next.is_none() {
            self.shrink_now();
        }
        next
    }

    /// Rewrites the entries of the segment of `hash` into new pages, without gaps. A table that has
    /// shrunk leaves many blocks of the allocator half empty, so that none can be returned to the
    /// system; compacting all segments moves the rest closer together. A segment shared with a cut
    /// is skipped, because a copy would take memory. Returns the hash of the next segment; `None`
    /// after the last, and if a cut shares the whole table. Cost: a portion.
    pub fn compact(&mut self, hash: u64) -> Option<u64> {
        let Root::Big(big) = &mut self.0 else { return None };
        let big = get_mut(big)?;
        big.compact(hash);
        let next = big.place_after(hash);
        if next.is_none() {
            big.segment_bytes_most = big.segment_bytes;
        }
        next
    }

    /// Copies in advance the parts that a change of this key would have to copy because a cut
    /// shares them; there is no visible effect. Returns true if something was copied: a segment,
    /// and more the first time after a cut.
    pub fn unshare(&mut self, hash: u64) -> bool {
        match &mut self.0 {
            Root::Empty | Root::Pack(_) | Root::Ruin(_) => false,
            Root::Small(small) => {
                let was_shared = !small.is_unique();
                unshare(small);
                was_shared
            }
            Root::Big(big) => {
                let path = big.directory.path(hash);
                let is_own = get_mut(big).is_some_and(|big| big.directory.is_own(path));
                if !is_own {
                    big_mut(big).directory.segment_mut(path);
                }
                !is_own
            }
        }
    }

    /// [`Table::get`] that also stamps the entry, in place. If a cut shares the entry, or entries
    /// have no stamps, it is not stamped: nothing is copied for a stamp.
    #[inline]
    pub fn touch(&mut self, hash: u64, key: &[u8], stamp: u32) -> Option<Entry<'_, X>> {
        if !X::STAMPED {
            return self.get(hash, key);
        }
        let raw = self.find(hash, &Needle::of(hash, key))?;
        if raw.stamp() != stamp && self.is_own(hash) {
            // SAFETY: the entry is this table's alone, and that is mutably borrowed.
            unsafe { raw.set_stamp(stamp) };
        }
        // SAFETY: the entry is in this table, which is borrowed as long as the result.
        Some(unsafe { Entry::new(raw) })
    }

    /// True if no cut shares the segment of this key, so that a change copies nothing.
    pub fn is_own(&mut self, hash: u64) -> bool {
        match &mut self.0 {
            Root::Empty | Root::Pack(_) | Root::Ruin(_) => false,
            Root::Small(small) => small.is_unique(),
            Root::Big(big) => get_mut(big).is_some_and(|big| {
                let path = big.directory.path(hash);
                big.directory.is_own(path)
            }),
        }
    }

    /// Looks up a key, and unshares the path if it is there.
    #[inline]
    fn locate_mut(&mut self, hash: u64, needle: &Needle<'_>) -> Option<(At, Raw<X>)> {
        match &mut self.0 {
            Root::Empty | Root::Pack(_) | Root::Ruin(_) => None,
            Root::Small(small) => {
                let offset = small.find(needle)?;
                unshare(small);
                Some((At::Small(offset), small.entry(offset)))
            }
            Root::Big(big) => {
                let path = big.directory.path(hash);
                let (loc, _) = big.directory.segment_at(path).find(hash, needle)?;
                let segment = big_mut(big).directory.segment_mut(path);
                Some((At::Big(path, loc), segment.entry(loc)))
            }
        }
    }

    /// The entry at `at`.
    pub(super) fn raw(&self, at: At) -> Raw<X> {
        match (&self.0, at) {
            (Root::Small(small), At::Small(offset)) => small.entry(offset),
            (Root::Big(big), At::Big(path, loc)) => big.directory.segment_at(path).entry(loc),
            _ => unreachable!("the table has changed its form since"),
        }
    }

    /// Adds a new entry from its buffer.
    pub(super) fn add(&mut self, hash: u64, buf: &Buf) -> At {
        let (raw, len) = (buf.raw(), buf.len());
        if matches!(self.0, Root::Empty | Root::Ruin(_)) {
            self.0 = Root::Small(Small::with_room(len));
        }
        debug_assert!(!matches!(self.0, Root::Pack(_)), "unpacked before");
        if let Root::Small(small) = &mut self.0 {
            unshare(small);
            if let Some(offset) = small.push(raw, len) {
                return At::Small(offset);
            }
            self.grow_big();
        }
        let Root::Big(big) = &mut self.0 else { unreachable!("neither empty nor small") };
        let (path, loc) = big_mut(big).add(hash, raw, len);
        At::Big(path, loc)
    }

    /// Gives the entry `raw` at `at` a new value, deadline, bits and stamp. Returns the old ones,
    /// and the entry's new place.
    fn overwrite(
        &mut self,
        hash: u64,
        (at, raw): (At, Raw<X>),
        value: New<'_, X>,
        deadline: Option<UnixMillis>,
        bits: u8,
        stamp: u32,
    ) -> (Old<X>, At) {
        let (was, note) = (raw.bits(), raw.note());
        // SAFETY: the path to `at` is not shared, and the table is mutably borrowed.
        if deadline.is_none() && unsafe { raw.replace(&value, bits) } {
            // SAFETY: as above.
            unsafe { raw.set_stamp(stamp) };
            return (Old { out: None, note, deadline: None, bits: was }, at);
        }
        let mut buf = Buf::new();
        // SAFETY: an entry of this table; its value is taken next, its key goes to the buffer.
        unsafe { entry::encode_again(&mut buf, raw, value, deadline, bits, stamp) };
        // SAFETY: the bytes are overwritten or detached below, and the buffer has the key.
        let old = unsafe { raw.take_value() };
        (old, self.rewrite(hash, at, &buf))
    }

    /// Writes the buffer over the entry at `at`, whose possessions have been taken.
    fn rewrite(&mut self, hash: u64, at: At, buf: &Buf) -> At {
        match (&mut self.0, at) {
            (Root::Small(small), At::Small(offset)) => {
                if small.overwrite(offset, buf.raw(), buf.len()) {
                    return at;
                }
                small.detach(offset);
            }
            (Root::Big(big), At::Big(path, loc)) => {
                let big = big_mut(big);
                if big.overwrite(path, loc, buf) {
                    return at;
                }
                big.forget_outside(buf.raw::<X>().outside_bytes()); // `add` counts the key again.
                big.detach(hash, path, loc);
            }
            _ => unreachable!("the table has not changed its form"),
        }
        self.add(hash, buf)
    }

    /// Removes the entry at `at`; the table may shrink.
    fn remove_at(&mut self, hash: u64, at: At) -> Old<X> {
        if let At::Packed(spot) = at {
            return self.remove_packed(spot);
        }
        let old = self.take_out(hash, at);
        if let (Root::Big(big), At::Big(path, _)) = (&mut self.0, at) {
            let big = big_mut(big);
            big.tidy_in_turn(path);
            big.shrink(path);
        }
        self.shrink();
        old
    }

    /// Removes the entry at `at`, and leaves its gap.
    fn take_out(&mut self, hash: u64, at: At) -> Old<X> {
        let raw = self.raw(at);
        let outside = raw.outside_bytes();
        // SAFETY: the entry is detached next.
        let old = unsafe { raw.take() };
        match (&mut self.0, at) {
            (Root::Small(small), At::Small(offset)) => small.detach(offset),
            (Root::Big(big), At::Big(path, loc)) => {
                let big = big_mut(big);
                big.forget_outside(outside);
                big.take_out(hash, path, loc);
            }
            _ => unreachable!("`raw` has just read it"),
        }
        old
    }
}

/// The content for changes, copied first if a cut shares it.
#[inline]
pub(super) fn big_mut<X: OutOfLine>(big: &mut Arc<Big<X>>) -> &mut Big<X> {
    if get_mut(big).is_none() {
        copy_big(big);
    }
    get_mut(big).expect("just copied, if it was shared")
}

#[cold]
fn copy_big<X: OutOfLine>(big: &mut Arc<Big<X>>) {
    *big = Arc::new(Big::clone(big));
}

#[inline]
pub(super) fn unshare<X: OutOfLine>(small: &mut Small<X>) {
    if !small.is_unique() {
        *small = small.deep_clone();
    }
}

impl<X: OutOfLine> Big<X> {
    /// Adds a new entry, and takes ownership of what it owns.
    pub(super) fn add(&mut self, hash: u64, raw: Raw<X>, len: usize) -> (Path, Loc) {
        loop {
            let path = self.directory.path(hash);
            let segment = self.directory.segment_mut(path);
            let before = segment.bytes();
            let added = match segment.is_due() {
                Some(full) if self.pause == 0 => Err(full),
                _ => segment.insert(hash, raw, len),
            };
            let added = match added {
                Err(Full::Index) if self.pause > 0 => segment.squeeze(hash, raw, len),
                added => added,
            };
            match added {
                Ok(loc) => {
                    self.pause = self.pause.saturating_sub(1);
                    let after = segment.bytes();
                    debug_assert_eq!(segment.entry(loc).hash(), hash, "another entry is there");
                    self.resize(before, after);
                    self.len += 1;
                    self.outside_bytes += raw.outside_bytes();
                    self.note_deadline(path, raw);
                    return (path, loc);
                }
                Err(full) => self.make_room(path, full),
            }
        }
    }

    #[inline]
    fn note_deadline(&mut self, path: Path, raw: Raw<X>) {
        if let Some(deadline) = raw.deadline() {
            self.directory.lower_earliest(path, deadline);
            self.earliest = self.earliest.min(deadline);
        }
    }

    /// Returns false, without a change, if there is no room.
    fn overwrite(&mut self, path: Path, loc: Loc, buf: &Buf) -> bool {
        let segment = self.directory.segment_mut(path);
        let before = segment.bytes();
        if segment.overwrite(loc, buf.raw(), buf.len()).is_err() {
            return false;
        }
        let after = segment.bytes();
        self.resize(before, after);
        self.tidy_in_turn(path);
        self.note_deadline(path, buf.raw());
        true
    }

    /// Removes an entry; what it owned has been taken. The caller accounts for long keys.
    pub(super) fn detach(&mut self, hash: u64, path: Path, loc: Loc) {
        self.take_out(hash, path, loc);
        self.tidy(path);
    }

    /// [`Big::detach`] without reclaiming gaps.
    fn take_out(&mut self, hash: u64, path: Path, loc: Loc) {
        self.directory.segment_mut(path).detach(hash, loc);
        assert!(self.len > 0, "more entries are removed than there are");
        self.len -= 1;
    }

    /// The smallest hash whose segment comes after that of `hash`.
    fn place_after(&self, hash: u64) -> Option<u64> {
        let (prefix, depth) = self.directory.prefix(self.directory.path(hash));
        let width = 1_u64.checked_shl(64 - u32::from(depth));
        width.and_then(|width| prefix.checked_add(width))
    }

    /// See [`Table::compact`].
    fn compact(&mut self, hash: u64) {
        let path = self.directory.path(hash);
        if self.directory.is_own(path) {
            let segment = self.directory.segment_mut(path);
            let before = segment.bytes();
            segment.repack();
            let after = segment.bytes();
            self.resize(before, after);
        }
    }

    /// Records that long keys of this many bytes no longer belong to the table.
    #[inline]
    fn forget_outside(&mut self, bytes: usize) {
        assert!(self.outside_bytes >= bytes, "{bytes} of {} bytes", self.outside_bytes);
        self.outside_bytes -= bytes;
    }

    /// Accounts for a segment whose size changes from `before` to `after` bytes.
    #[inline]
    pub(super) fn resize(&mut self, before: usize, after: usize) {
        assert!(self.segment_bytes >= before, "{before} of {} bytes", self.segment_bytes);
        self.segment_bytes = self.segment_bytes - before + after;
        self.segment_bytes_most = self.segment_bytes_most.max(self.segment_bytes);
    }

    /// See [`Table::settle`].
    fn settle(&mut self, hash: u64) {
        let path = self.directory.path(hash);
        if self.directory.segment_at(path).is_untidy() {
            self.tidy(path);
        }
        if self.is_worth_merging(path, usize::MAX) {
            self.merge_up(path);
        }
    }

    /// Reclaims the gaps of the segment at `path`, if there are many.
    pub(super) fn tidy(&mut self, path: Path) {
        let segment = self.directory.segment_mut(path);
        let before = segment.bytes();
        if segment.len() == 0 {
            segment.clear();
        } else {
            segment.tidy();
        }
        let after = segment.bytes();
        self.resize(before, after);
    }
}

impl<X: OutOfLine> EntryMut<'_, X> {
    /// The current state of the entry.
    #[must_use]
    pub fn entry(&self) -> Entry<'_, X> {
        if let At::Packed(spot) = self.at {
            return self.table.packed_entry(spot);
        }
        // SAFETY: the table is borrowed by `self`, and so as long as the result.
        unsafe { Entry::new(self.raw) }
    }

    /// The out-of-line value, if it is one.
    #[must_use]
    pub fn out_mut(&mut self) -> Option<&mut X> {
        let raw = self.raw;
        if self.is_packed() || !raw.has_out() {
            return None;
        }
        // SAFETY: the value is out of line.
        let out = unsafe { raw.out_ptr() };
        // SAFETY: the segment is not shared, and the table is mutably borrowed as long.
        Some(unsafe { &mut *out })
    }

    /// Sets the entry's value. Returns the old one if it was out of line. Deadline, bits and stamp
    /// stay.
    pub fn set_value(&mut self, value: New<'_, X>) -> Option<X> {
        if let At::Packed(spot) = self.at {
            if self.table.set_packed(spot, &value) {
                return None;
            }
            self.unpack(spot);
        }
        let raw = self.raw;
        // SAFETY: the segment is not shared, and the table is mutably borrowed.
        if unsafe { raw.replace(&value, raw.bits()) } {
            return None; // Usually a counter: it is overwritten in place.
        }
        let (deadline, bits, stamp) = (raw.deadline(), raw.bits(), raw.stamp());
        let here = (self.at, raw);
        let (old, at) = self.table.overwrite(self.hash, here, value, deadline, bits, stamp);
        self.move_to(at);
        old.out
    }

    /// Sets or clears the deadline.
    pub fn set_deadline(&mut self, deadline: Option<UnixMillis>) {
        if let At::Packed(spot) = self.at {
            if deadline.is_none() {
                return;
            }
            self.unpack(spot);
        }
        let raw = self.raw;
        if raw.deadline() == deadline {
            return;
        }
        let mut buf = Buf::new();
        // SAFETY: the old bytes are overwritten or detached by `rewrite`.
        unsafe { entry::encode_deadline(&mut buf, raw, deadline) };
        let at = self.table.rewrite(self.hash, self.at, &buf);
        self.move_to(at);
    }

    fn is_packed(&self) -> bool {
        matches!(self.at, At::Packed(_))
    }

    /// Turns the pack into a table of entries, because it cannot hold a value.
    fn unpack(&mut self, spot: Spot) {
        let key = self.table.packed_entry(spot).key().to_vec();
        self.table.unpack();
        let found = self.table.locate_mut(self.hash, &Needle::of(self.hash, &key));
        (self.at, self.raw) = found.expect("what was in the pack is in the table");
    }

    fn move_to(&mut self, at: At) {
        self.at = at;
        self.raw = self.table.raw(at);
    }

    /// Sets the two bits that the entry keeps for the caller.
    pub fn set_bits(&mut self, bits: u8) {
        debug_assert!(bits < 4, "bits={bits}");
        if let At::Packed(spot) = self.at {
            if bits == 0 {
                return;
            }
            self.unpack(spot);
        }
        // SAFETY: the segment is not shared, and the table is mutably borrowed.
        unsafe { self.raw.set_bits(bits) };
    }

    /// Sets the stamp, if entries have stamps.
    #[inline]
    pub fn set_stamp(&mut self, stamp: u32) {
        if self.is_packed() {
            return; // Packs have none.
        }
        // SAFETY: the segment is not shared, and the table is mutably borrowed.
        unsafe { self.raw.set_stamp(stamp) };
    }

    /// Removes the entry; returns its old state.
    pub fn remove(self) -> Old<X> {
        self.table.remove_at(self.hash, self.at)
    }
}
