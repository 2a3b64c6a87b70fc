//! One entry, as bytes: a key, perhaps a stamp, a deadline, a value.
//!
//! ```text
//! | flags | stamp: 3 | key: packed text, or 8-byte pointer | deadline: varint | value |
//! flags   bits 0-1  form of the key: raw, integer, UUID, or out of line (long)
//!         bits 2-4  form of the value: none, raw, integer, UUID, out of line, a pack; 7: no entry
//!         bit  5    a deadline follows the key
//!         bits 6-7  the caller's
//! stamp   a number of the caller, only in tables of a stamped type
//! ```
//! The stamp alone changes without rebuilding the entry: it is found without reading the key, and
//! its length never changes.
//!
//! An entry is written whole and moves as bytes; what it owns moves with it. Only an out-of-line
//! value must be aligned, because it is borrowed as `&X`: its entry is placed so that its last
//! eight bytes are at a multiple of eight, and the gap before it is filled with [`PAD`].
//!
//! A pack is a small collection (`pack`) in place of a pointer to one: a length, two bytes (the
//! caller's note, and how much of the end is slack), and its bytes. Thanks to the slack most
//! changes of a pack stay in place.
//!
//! Bytes without an entry are marked, so that pages can be read front to back without the index:
//! [`PAD`] stands for one byte, [`END`] for the rest of the page, [`DEAD`] and a varint for the
//! bytes of an entry that was removed.
//!
//! Not here: the placement of entries. See `segment` and `small`.

use super::long::HeldKey;
use super::pack::Item;
use super::text::{self, Form, Packed, Text, UUID_BYTES, VARINT_MAX};
use super::value::{AnyItem, New, Old, OutOfLine, PackedValue, ValueRef};
use darter_base::UnixMillis;
use darter_base::long::Long;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};

/// Longest value stored in the entry; callers store longer ones out of line. (Long keys are handled
/// by the table itself.)
pub const INLINE_MAX: usize = 512;
/// Longest key stored in the entry. Whether a key is long must depend only on the key, because
/// lookups do not know the value.
pub(super) const KEY_INLINE_MAX: usize = 240;
/// Largest pack stored in an entry; larger ones do better in their own block.
pub const PACKED_MAX: usize = INLINE_MAX - PACK_HEAD;
/// Bytes in front of a pack: the note, and the slack.
const PACK_HEAD: usize = 2;
/// A pack's room grows in steps of this many bytes.
const PACK_STEP: usize = 8;
/// Stamps are below this number.
pub const STAMP_END: u32 = 1 << (8 * STAMP);
/// Bytes of a stamp.
const STAMP: usize = 3;
/// Longest entry.
pub(super) const ENTRY_MAX: usize =
    1 + STAMP + (2 + KEY_INLINE_MAX) + VARINT_MAX + (2 + INLINE_MAX);
/// Bytes of a pointer inside an entry.
pub(super) const POINTER: usize = 8;

const _: () = assert!(size_of::<usize>() == POINTER, "entries hold 8-byte pointers");
const _: () = assert!(ENTRY_MAX < 1024);

const KEY_RAW: u8 = 0;
const KEY_INT: u8 = 1;
const KEY_UUID: u8 = 2;
const KEY_LONG: u8 = 3;
const KEY_MASK: u8 = 3;
const VALUE_NONE: u8 = 0;
const VALUE_RAW: u8 = 1 << 2;
const VALUE_INT: u8 = 2 << 2;
const VALUE_UUID: u8 = 3 << 2;
const VALUE_OUT: u8 = 4 << 2;
const VALUE_PACK: u8 = 5 << 2;
const VALUE_GONE: u8 = 7 << 2;
const VALUE_MASK: u8 = 7 << 2;
const TIMED: u8 = 1 << 5;
const BITS_SHIFT: u32 = 6;

/// One byte between entries.
pub(super) const PAD: u8 = VALUE_GONE;
/// Marks that the page has no more entries.
pub(super) const END: u8 = VALUE_GONE | 1;
/// A removed entry; its length follows as a varint and counts the whole.
pub(super) const DEAD: u8 = VALUE_GONE | 2;

/// A buffer on the stack for building one entry.
pub(super) struct Buf {
    bytes: [MaybeUninit<u8>; ENTRY_MAX],
    len: usize,
}

impl Buf {
    pub(super) fn new() -> Self {
        Self { bytes: [MaybeUninit::uninit(); ENTRY_MAX], len: 0 }
    }

    /// Empties the buffer. Ownership of what its bytes own must have been taken over.
    fn clear(&mut self) {
        self.len = 0;
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.len].write(byte);
        self.len += 1;
    }

    #[inline]
    fn extend_from_slice(&mut self, bytes: &[u8]) {
        // SAFETY: initialised bytes of a slice.
        unsafe { self.append(bytes.as_ptr(), bytes.len()) };
    }

    /// Appends by an untyped copy, so that pointers among the bytes keep their provenance.
    ///
    /// # Safety
    /// `from` is valid for reading `len` initialised bytes.
    #[inline]
    unsafe fn append(&mut self, from: *const u8, len: usize) {
        let to = self.bytes[self.len..self.len + len].as_mut_ptr();
        // SAFETY: `from` by the caller's promise, `to` by the slice above; they cannot overlap.
        unsafe { ptr::copy_nonoverlapping(from, to.cast::<u8>(), len) };
        self.len += len;
    }

    /// Replaces the contents by a bitwise copy of `entry` up to the end of its key; reading a value
    /// of some hundred bytes as well would cost cache misses.
    pub(super) fn copy_key_from<X: OutOfLine>(&mut self, entry: Raw<X>) {
        self.clear();
        // SAFETY: the key ends within the entry.
        unsafe { self.append(entry.at.as_ptr(), entry.key_end()) };
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes of an entry that owns nothing, so they may be copied freely.
    pub(super) fn bytes(&self) -> &[u8] {
        let from = self.bytes[..self.len].as_ptr().cast();
        // SAFETY: all bytes before `len` were written.
        unsafe { std::slice::from_raw_parts(from, self.len) }
    }

    /// The entry. Its out-of-line value, if any, is not aligned here: do not borrow it.
    pub(super) fn raw<X>(&self) -> Raw<X> {
        debug_assert!(self.len > 0);
        Raw { at: NonNull::from(&self.bytes).cast(), holds: PhantomData }
    }
}

/// An entry of a table, read in place.
pub struct Entry<'a, X: OutOfLine>(Place<'a, X>);

enum Place<'a, X: OutOfLine> {
    Raw(Raw<X>, PhantomData<&'a X>),
    Packed(X::Packed<'a>),
}

impl<X: OutOfLine> Clone for Place<'_, X> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<X: OutOfLine> Copy for Place<'_, X> {}

impl<X: OutOfLine> Clone for Entry<'_, X> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<X: OutOfLine> Copy for Entry<'_, X> {}

impl<'a, X: OutOfLine> Entry<'a, X> {
    /// # Safety
    /// `raw` is an entry of a table of `X`, and neither moves nor changes during `'a`.
    #[inline]
    pub(super) unsafe fn new(raw: Raw<X>) -> Self {
        Self(Place::Raw(raw, PhantomData))
    }

    /// An entry of a pack.
    #[inline]
    pub(super) fn packed(item: Item<'a>) -> Self {
        Self(Place::Packed(X::Packed::of(item)))
    }

    /// The place of the entry, unless it is in a pack.
    #[inline]
    fn raw(&self) -> Option<Raw<X>> {
        match self.0 {
            Place::Raw(raw, _) => Some(raw),
            Place::Packed(_) => None,
        }
    }

    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Text<'a> {
        match self.0 {
            // SAFETY: the entry stays during 'a, by the promise to `new`.
            Place::Raw(raw, _) => unsafe { raw.key() },
            Place::Packed(packed) => packed.item().key(),
        }
    }

    /// The key as an owned reference, if it is stored out of line, because it is longer than a few
    /// hundred bytes.
    #[must_use]
    pub fn hold_key(&self) -> Option<HeldKey> {
        let raw = self.raw().filter(|raw| raw.flags() & KEY_MASK == KEY_LONG)?;
        // SAFETY: the entry stays during 'a, and owns the key that it points to.
        Some(unsafe { HeldKey::new(raw.long()) })
    }

    /// The value.
    #[inline(always)]
    #[must_use]
    pub fn value(&self) -> ValueRef<'a, X> {
        let raw = match self.0 {
            Place::Raw(raw, _) => raw,
            Place::Packed(packed) => return ValueRef::Text(packed.item().value()),
        };
        let at = raw.value_at();
        let form = match raw.flags() & VALUE_MASK {
            VALUE_NONE => Form::Raw(&[]),
            VALUE_RAW => {
                // SAFETY: the entry stays during 'a, and a raw value is at `at`.
                Form::Raw(unsafe { raw.raw_at(at) })
            }
            VALUE_INT => Form::Int(text::unzigzag(raw.varint_at(at).0)),
            // SAFETY: the entry stays during 'a, and 16 bytes of a UUID are at `at`.
            VALUE_UUID => Form::Uuid(unsafe { raw.uuid_at(at) }),
            // SAFETY: the entry stays during 'a, and has a pack.
            VALUE_PACK => return ValueRef::Packed(unsafe { raw.pack_at(at) }),
            _ => {
                // SAFETY: the entry has an out-of-line value: the last kind left.
                let out = unsafe { raw.out_ptr() };
                // SAFETY: it was written as an `X`, aligned, and stays during 'a.
                return ValueRef::Out(unsafe { &*out });
            }
        };
        ValueRef::Text(Text(form))
    }

    /// The value, if it is out of line. Faster than [`Entry::value`] for callers that need no other
    /// kind.
    #[inline]
    #[must_use]
    pub fn out(&self) -> Option<&'a X> {
        let raw = self.raw().filter(|raw| raw.has_out())?;
        // SAFETY: the entry has an out-of-line value.
        let out = unsafe { raw.out_ptr() };
        // SAFETY: it was written as an `X`, aligned, and stays during 'a.
        Some(unsafe { &*out })
    }

    /// The value, if it is a pack. Faster than [`Entry::value`] for callers that need no other
    /// kind.
    #[inline]
    #[must_use]
    pub fn packed_value(&self) -> Option<PackedValue<'a>> {
        let raw = self.raw().filter(|raw| raw.flags() & VALUE_MASK == VALUE_PACK)?;
        // SAFETY: the entry stays during 'a, and has a pack.
        Some(unsafe { raw.pack_at(raw.value_at()) })
    }

    /// The entry's deadline, if any.
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> Option<UnixMillis> {
        self.raw()?.deadline()
    }

    /// The caller's two bits.
    #[inline]
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.raw().map_or(0, Raw::bits)
    }

    /// The stamp; 0 in a table without stamps.
    #[inline]
    #[must_use]
    pub fn stamp(&self) -> u32 {
        self.raw().map_or(0, Raw::stamp)
    }
}

/// A key to look up: packed once, compared with many.
pub(super) struct Needle<'k> {
    kind: u8,
    text: &'k [u8],
    /// The hash of the text; used only if the key is long.
    hash: u64,
    /// The packed text, if it is packed, as a number, so that it stays in registers. The first byte
    /// is the lowest.
    packed: u128,
    packed_len: usize,
}

impl<'k> Needle<'k> {
    #[inline]
    pub(super) fn of(hash: u64, key: &'k [u8]) -> Self {
        let (kind, (packed, packed_len)) = match Packed::of(key) {
            Packed::Int(value) => (KEY_INT, text::varint(text::zigzag(value))),
            Packed::Uuid(uuid) => (KEY_UUID, (uuid, UUID_BYTES)),
            Packed::Raw(_) if key.len() > KEY_INLINE_MAX => (KEY_LONG, (0, 0)),
            Packed::Raw(_) => (KEY_RAW, (0, 0)),
        };
        Self { kind, text: key, hash, packed, packed_len }
    }

    fn write(&self, out: &mut Buf) {
        match self.kind {
            KEY_LONG => {
                let key = Long::new(self.text, self.hash).into_raw();
                push_pointer(out, key);
            }
            KEY_RAW => {
                push_varint(out, self.text.len() as u64);
                out.extend_from_slice(self.text);
            }
            _ => out.extend_from_slice(&self.packed.to_le_bytes()[..self.packed_len]),
        }
    }
}

/// Appends the bytes of a pointer-like value; the buffer then owns it.
fn push_pointer<P>(out: &mut Buf, pointer: P) {
    assert!(size_of::<P>() == POINTER, "what entries own is one pointer wide");
    let pointer = ManuallyDrop::new(pointer);
    // SAFETY: a value of eight bytes, all initialised: it is a pointer.
    unsafe { out.append(ptr::from_ref(&pointer).cast(), POINTER) };
}

/// Encodes an entry into `out`, which is cleared first.
///
/// The owner of the bytes owns the long key and the out-of-line value. Panics when an inline value
/// is longer than [`INLINE_MAX`].
pub(super) fn encode<X: OutOfLine>(
    out: &mut Buf,
    key: &Needle<'_>,
    value: New<'_, X>,
    deadline: Option<UnixMillis>,
    bits: u8,
    stamp: u32,
) {
    out.clear();
    out.push(key.kind | bits << BITS_SHIFT | timed(deadline));
    push_stamp::<X>(out, stamp);
    key.write(out);
    push_deadline(out, deadline);
    push_value(out, value);
}

/// Appends the stamp, if entries have stamps.
#[inline]
fn push_stamp<X: OutOfLine>(out: &mut Buf, stamp: u32) {
    debug_assert!(stamp < STAMP_END, "stamp={stamp}");
    if X::STAMPED {
        out.extend_from_slice(&stamp.to_le_bytes()[..STAMP]);
    }
}

/// Encodes the same entry with another value, deadline, bits or stamp. Ownership of a long key
/// moves to the new bytes.
///
/// # Safety
/// `old` is an entry. The caller drops its bytes without dropping its key.
pub(super) unsafe fn encode_again<X: OutOfLine>(
    out: &mut Buf,
    old: Raw<X>,
    value: New<'_, X>,
    deadline: Option<UnixMillis>,
    bits: u8,
    stamp: u32,
) {
    out.clear();
    let kind = old.flags() & KEY_MASK;
    out.push(kind | bits << BITS_SHIFT | timed(deadline));
    push_stamp::<X>(out, stamp);
    let len = old.key_end() - Raw::<X>::KEY;
    if kind == KEY_LONG {
        push_pointer(out, old.long());
    } else {
        // SAFETY: the key is in `KEY..key_end`.
        out.extend_from_slice(unsafe { old.slice(Raw::<X>::KEY, len) });
    }
    push_deadline(out, deadline);
    push_value(out, value);
}

/// Encodes the same entry with another deadline. Ownership moves from the old bytes to the new
/// ones.
///
/// # Safety
/// `old` is an entry, and its bytes are not used as one again.
pub(super) unsafe fn encode_deadline<X: OutOfLine>(
    out: &mut Buf,
    old: Raw<X>,
    deadline: Option<UnixMillis>,
) {
    out.clear();
    let (key_end, value_at, len) = (old.key_end(), old.value_at(), old.len());
    out.push(old.flags() & !TIMED | timed(deadline));
    // SAFETY: stamp and key are in `1..key_end`; an untyped copy, the key may be a pointer.
    unsafe { out.append(old.at.as_ptr().wrapping_add(1), key_end - 1) };
    push_deadline(out, deadline);
    // SAFETY: the value is in `value_at..len`; an untyped copy, it may be a pointer.
    unsafe { out.append(old.at.as_ptr().wrapping_add(value_at), len - value_at) };
}

/// The flag for a deadline, if there is one.
fn timed(deadline: Option<UnixMillis>) -> u8 {
    if deadline.is_some() { TIMED } else { 0 }
}

fn push_varint(out: &mut Buf, value: u64) {
    let mut scratch = [0; VARINT_MAX];
    let len = text::varint_write(&mut scratch, value);
    out.extend_from_slice(&scratch[..len]);
}

fn push_deadline(out: &mut Buf, deadline: Option<UnixMillis>) {
    if let Some(deadline) = deadline {
        push_varint(out, deadline);
    }
}

/// Appends the value, and sets its kind in the flags.
fn push_value<X: OutOfLine>(out: &mut Buf, value: New<'_, X>) {
    let int = |value: i64, out: &mut Buf| {
        push_varint(out, text::zigzag(value));
        VALUE_INT
    };
    let kind = match value {
        New::Bytes([]) => VALUE_NONE,
        New::Int(value) => int(value, out),
        New::Bytes(bytes) => match Packed::of(bytes) {
            Packed::Int(value) => int(value, out),
            Packed::Uuid(uuid) => {
                out.extend_from_slice(&uuid.to_le_bytes());
                VALUE_UUID
            }
            Packed::Raw(bytes) => {
                assert!(bytes.len() <= INLINE_MAX, "{} bytes inline", bytes.len());
                push_varint(out, bytes.len() as u64);
                out.extend_from_slice(bytes);
                VALUE_RAW
            }
        },
        New::Packed(PackedValue { note, bytes }) => {
            assert!(bytes.len() <= PACKED_MAX, "{} bytes packed", bytes.len());
            let slack = bytes.len().next_multiple_of(PACK_STEP).min(PACKED_MAX) - bytes.len();
            push_varint(out, (PACK_HEAD + bytes.len() + slack) as u64);
            out.extend_from_slice(&[note, slack as u8]);
            out.extend_from_slice(bytes);
            out.extend_from_slice(&[0; PACK_STEP][..slack]);
            VALUE_PACK
        }
        New::Out(out_of_line) => {
            const { assert!(align_of::<X>() <= POINTER) };
            push_pointer(out, out_of_line);
            VALUE_OUT
        }
    };
    // SAFETY: the flags were pushed first.
    let flags = unsafe { out.bytes[0].assume_init_mut() };
    *flags |= kind;
}

/// Padding needed at `address` before `entry`, which is `len` bytes long.
#[inline]
pub(super) fn pad_before<X: OutOfLine>(address: usize, entry: Raw<X>, len: usize) -> usize {
    if entry.has_out() { (address + len).wrapping_neg() % POINTER } else { 0 }
}

/// The place of an entry: a pointer to its flags. Copied freely, but used only within a borrow of
/// the table.
pub(super) struct Raw<X> {
    at: NonNull<u8>,
    holds: PhantomData<X>,
}

impl<X> Clone for Raw<X> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<X> Copy for Raw<X> {}

impl<X: OutOfLine> Raw<X> {
    /// Offset of the key.
    const KEY: usize = 1 + if X::STAMPED { STAMP } else { 0 };

    /// A placeholder for a place that has no entry: it must not be used.
    pub(super) fn nowhere() -> Self {
        Self { at: NonNull::dangling(), holds: PhantomData }
    }

    /// # Safety
    /// An entry of a table of `X`, whole, is at `at`, for as long as the result is used.
    #[inline]
    pub(super) unsafe fn new(at: NonNull<u8>) -> Self {
        Self { at, holds: PhantomData }
    }

    #[inline]
    pub(super) fn ptr(self) -> NonNull<u8> {
        self.at
    }

    /// The stamp; 0 where there is none.
    #[inline]
    pub(super) fn stamp(self) -> u32 {
        if !X::STAMPED {
            return 0;
        }
        // SAFETY: the stamp follows the flags.
        let at = unsafe { self.at.add(1) };
        // SAFETY: three initialised bytes; byte arrays need no alignment.
        let [low, mid, high] = unsafe { at.cast::<[u8; STAMP]>().read() };
        u32::from_le_bytes([low, mid, high, 0])
    }

    /// Overwrites the stamp, where there is one.
    ///
    /// # Safety
    /// There is no other reader of the entry during the call.
    #[inline]
    pub(super) unsafe fn set_stamp(self, stamp: u32) {
        debug_assert!(stamp < STAMP_END, "stamp={stamp}");
        if X::STAMPED {
            let [low, mid, high, _] = stamp.to_le_bytes();
            // SAFETY: the stamp follows the flags.
            let at = unsafe { self.at.add(1) };
            // SAFETY: as above, and there is no other reader.
            unsafe { at.cast::<[u8; STAMP]>().write([low, mid, high]) };
        }
    }

    #[inline]
    pub(super) fn flags(self) -> u8 {
        // SAFETY: an entry has its flags, by the promise to `new`.
        unsafe { self.at.read() }
    }

    #[inline]
    fn byte(self, at: usize) -> u8 {
        // SAFETY: `at` is inside the entry: all callers derive it from flags and lengths.
        let at = unsafe { self.at.add(at) };
        // SAFETY: as above.
        unsafe { at.read() }
    }

    /// # Safety
    /// `at..at + len` is inside the entry, which stays during `'a`.
    #[inline]
    unsafe fn slice<'a>(self, at: usize, len: usize) -> &'a [u8] {
        // SAFETY: inside the entry, by the caller's promise.
        let from = unsafe { self.at.add(at) };
        // SAFETY: as above; entries are initialised bytes.
        unsafe { std::slice::from_raw_parts(from.as_ptr(), len) }
    }

    #[inline]
    fn varint_at(self, at: usize) -> (u64, usize) {
        let first = self.byte(at);
        let len = text::varint_len_at(first);
        if len == 1 {
            return (u64::from(first >> 1), 1);
        }
        // SAFETY: the first byte says how long the varint is, and it is inside the entry.
        text::varint_read(unsafe { self.slice(at, len) })
    }

    /// # Safety
    /// A length and bytes are at `at`, and stay during `'a`.
    #[inline]
    unsafe fn raw_at<'a>(self, at: usize) -> &'a [u8] {
        let (len, head) = self.varint_at(at);
        // SAFETY: the length is the number of the bytes that follow.
        unsafe { self.slice(at + head, len as usize) }
    }

    /// # Safety
    /// A packed UUID is at `at`, and stays during `'a`.
    #[inline]
    unsafe fn uuid_at<'a>(self, at: usize) -> &'a [u8; UUID_BYTES] {
        // SAFETY: inside the entry, by the caller's promise.
        let from = unsafe { self.at.add(at) };
        // SAFETY: 16 initialised bytes; byte arrays need no alignment.
        unsafe { from.cast::<[u8; UUID_BYTES]>().as_ref() }
    }

    /// # Safety
    /// A pack is at `at`, and stays during `'a`.
    #[inline]
    unsafe fn pack_at<'a>(self, at: usize) -> PackedValue<'a> {
        // SAFETY: a pack is kept as raw bytes are.
        let whole = unsafe { self.raw_at::<'a>(at) };
        let (&[note, slack], room) = whole.split_first_chunk().expect("a head");
        PackedValue { note, bytes: &room[..room.len() - usize::from(slack)] }
    }

    /// The note of the value, if it is a pack.
    #[inline]
    pub(super) fn note(self) -> Option<u8> {
        if self.flags() & VALUE_MASK != VALUE_PACK {
            return None;
        }
        let at = self.value_at();
        let (_, head) = self.varint_at(at);
        Some(self.byte(at + head))
    }

    /// Overwrites the pack by another, if that fits the room and leaves little of it unused.
    ///
    /// # Safety
    /// As for [`Raw::replace`].
    unsafe fn replace_pack(self, pack: PackedValue<'_>) -> bool {
        if self.flags() & (VALUE_MASK | TIMED) != VALUE_PACK {
            return false;
        }
        let at = self.key_end();
        let (len, head) = self.varint_at(at);
        let room = len as usize - PACK_HEAD;
        let slack = room.checked_sub(pack.bytes.len());
        let Some(slack) = slack.filter(|slack| *slack <= PACK_STEP + room / 8) else {
            return false;
        };
        // SAFETY: the pack's head follows its length, inside the entry.
        let to = unsafe { self.at.add(at + head) };
        // SAFETY: two bytes; the entry has no other reader, by the caller's promise.
        unsafe { to.cast::<[u8; PACK_HEAD]>().write([pack.note, slack as u8]) };
        // SAFETY: after the head, inside the entry.
        let to = unsafe { to.add(PACK_HEAD) };
        // SAFETY: there is room for as many; the new bytes are not part of the entry.
        unsafe { ptr::copy_nonoverlapping(pack.bytes.as_ptr(), to.as_ptr(), pack.bytes.len()) };
        true
    }

    /// The long key's pointer; owned by the entry.
    fn long(self) -> NonNull<u8> {
        debug_assert_eq!(self.flags() & KEY_MASK, KEY_LONG);
        // SAFETY: a long key's pointer stands where keys do.
        let at = unsafe { self.at.add(Self::KEY) };
        // SAFETY: written by `push_pointer`, moved by untyped copies only.
        unsafe { at.cast::<NonNull<u8>>().read_unaligned() }
    }

    /// # Safety
    /// The entry stays during `'a`.
    #[inline]
    pub(super) unsafe fn key<'a>(self) -> Text<'a> {
        Text(match self.flags() & KEY_MASK {
            // SAFETY: the kind says so; the bytes stay during 'a.
            KEY_RAW => Form::Raw(unsafe { self.raw_at(Self::KEY) }),
            KEY_INT => Form::Int(text::unzigzag(self.varint_at(Self::KEY).0)),
            // SAFETY: as above.
            KEY_UUID => Form::Uuid(unsafe { self.uuid_at(Self::KEY) }),
            // SAFETY: the entry owns the key, so it stays as long.
            _ => Form::Raw(unsafe { Long::borrow(self.long()) }),
        })
    }

    /// Overwrites the inline value by another, if there is no deadline and both take the same
    /// number of bytes: a counter, or values of one length. Otherwise returns false, without a
    /// change.
    ///
    /// # Safety
    /// The entry is not shared, and its table is mutably borrowed.
    #[inline]
    pub(super) unsafe fn replace(self, value: &New<'_, X>, bits: u8) -> bool {
        let flags = self.flags();
        if let New::Packed(pack) = value {
            // SAFETY: the promise of this function.
            let replaced = unsafe { self.replace_pack(*pack) };
            if replaced {
                // SAFETY: as above.
                unsafe { self.set_bits(bits) };
            }
            return replaced;
        }
        let int = match value {
            New::Int(value) => Some(*value),
            New::Bytes(bytes) => match Packed::of(bytes) {
                Packed::Int(value) => Some(value),
                Packed::Uuid(_) => return false,
                Packed::Raw(_) => None,
            },
            New::Packed(_) | New::Out(_) => return false,
        };
        let at = self.key_end();
        let mut scratch = [0; VARINT_MAX];
        let (at, fresh) = match (flags & (VALUE_MASK | TIMED), int, value) {
            (VALUE_INT, Some(int), _) => {
                let len = text::varint_write(&mut scratch, text::zigzag(int));
                if text::varint_len_at(self.byte(at)) != len {
                    return false;
                }
                (at, &scratch[..len])
            }
            (VALUE_RAW, None, New::Bytes(bytes)) => {
                let (len, head) = self.varint_at(at);
                if len != bytes.len() as u64 {
                    return false;
                }
                (at + head, *bytes)
            }
            _ => return false,
        };
        // SAFETY: the present value takes as many bytes at `at`, inside the entry.
        let to = unsafe { self.at.add(at) };
        // SAFETY: as above; the entry has no other reader, by the caller's promise, and the new
        // bytes are not part of it.
        unsafe { ptr::copy_nonoverlapping(fresh.as_ptr(), to.as_ptr(), fresh.len()) };
        // SAFETY: the entry has no other reader, by the caller's promise.
        unsafe { self.set_bits(bits) };
        true
    }

    /// The hash of the key. A long key stores its hash, so its bytes are not read.
    #[inline]
    pub(super) fn hash(self) -> u64 {
        if self.flags() & KEY_MASK == KEY_LONG {
            // SAFETY: the entry owns the key.
            return unsafe { Long::hash_of(self.long()) };
        }
        // SAFETY: the text is used here only.
        unsafe { self.key() }.hash()
    }

    /// True when the key is the needle's.
    #[inline]
    pub(super) fn is(self, needle: &Needle<'_>) -> bool {
        if self.flags() & KEY_MASK != needle.kind {
            return false;
        }
        if needle.kind != KEY_RAW {
            return self.is_packed(needle);
        }
        // SAFETY: of one kind, the first byte says the length, checked before the rest.
        text::same(unsafe { self.raw_at(Self::KEY) }, needle.text)
    }

    /// True if both have the same key. `other` owns nothing, so its key is not long.
    #[inline]
    pub(super) fn has_key_of(self, other: Self) -> bool {
        debug_assert!(!other.is_owner());
        self.flags() & KEY_MASK == other.flags() & KEY_MASK && {
            let (len, other_len) = (self.key_end() - Self::KEY, other.key_end() - Self::KEY);
            // SAFETY: the key is in `KEY..key_end`; it is used here only.
            let key = unsafe { self.slice(Self::KEY, len) };
            // SAFETY: as above. A text is kept in one way, so equal keys are equal bytes.
            key == unsafe { other.slice(Self::KEY, other_len) }
        }
    }

    /// [`Raw::is`] for packed keys. A separate function, so that `is` can be inlined.
    fn is_packed(self, needle: &Needle<'_>) -> bool {
        match needle.kind {
            KEY_INT => {
                text::varint_len_at(self.byte(Self::KEY)) == needle.packed_len
                    // SAFETY: the varint is as long as its first byte says.
                    && unsafe { self.slice(Self::KEY, needle.packed_len) }
                        == &needle.packed.to_le_bytes()[..needle.packed_len]
            }
            // SAFETY: a UUID stands where keys do.
            KEY_UUID => u128::from_le_bytes(unsafe { *self.uuid_at(Self::KEY) }) == needle.packed,
            _ => {
                let long = self.long();
                // SAFETY: the entry owns the key.
                let hash = unsafe { Long::hash_of(long) };
                // SAFETY: as above; it is used here only.
                hash == needle.hash && unsafe { Long::borrow(long) } == needle.text
            }
        }
    }

    /// The offset of the part after the key.
    #[inline]
    fn key_end(self) -> usize {
        match self.flags() & KEY_MASK {
            KEY_RAW => {
                let (len, head) = self.varint_at(Self::KEY);
                Self::KEY + head + len as usize
            }
            KEY_INT => Self::KEY + text::varint_len_at(self.byte(Self::KEY)),
            KEY_UUID => Self::KEY + UUID_BYTES,
            _ => Self::KEY + POINTER,
        }
    }

    /// Offset of the value.
    #[inline]
    fn value_at(self) -> usize {
        let end = self.key_end();
        if self.flags() & TIMED == 0 { end } else { end + text::varint_len_at(self.byte(end)) }
    }

    /// Bytes of the entry.
    #[inline]
    pub(super) fn len(self) -> usize {
        let at = self.value_at();
        at + match self.flags() & VALUE_MASK {
            VALUE_NONE => 0,
            VALUE_RAW | VALUE_PACK => {
                let (len, head) = self.varint_at(at);
                head + len as usize
            }
            VALUE_INT => text::varint_len_at(self.byte(at)),
            VALUE_UUID => UUID_BYTES,
            _ => POINTER,
        }
    }

    #[inline]
    pub(super) fn deadline(self) -> Option<UnixMillis> {
        (self.flags() & TIMED != 0).then(|| self.varint_at(self.key_end()).0)
    }

    #[inline]
    pub(super) fn bits(self) -> u8 {
        self.flags() >> BITS_SHIFT
    }

    /// Overwrites the caller's bits.
    ///
    /// # Safety
    /// The entry has no other reader during the call.
    pub(super) unsafe fn set_bits(self, bits: u8) {
        let flags = self.flags() & !(3 << BITS_SHIFT) | bits << BITS_SHIFT;
        // SAFETY: the flags are inside the entry, and there is no other reader.
        unsafe { self.at.write(flags) };
    }

    /// True when the value is out of line.
    #[inline]
    pub(super) fn has_out(self) -> bool {
        self.flags() & VALUE_MASK == VALUE_OUT
    }

    /// True when the entry points to something that it owns.
    #[inline]
    pub(super) fn is_owner(self) -> bool {
        self.has_out() || self.flags() & KEY_MASK == KEY_LONG
    }

    /// True when a deadline is set.
    #[inline]
    pub(super) fn is_timed(self) -> bool {
        self.flags() & TIMED != 0
    }

    /// A pointer to the value.
    ///
    /// # Safety
    /// The value is out of line.
    #[inline]
    pub(super) unsafe fn out_ptr(self) -> *mut X {
        debug_assert!(self.has_out());
        // SAFETY: the value stands inside the entry.
        let at = unsafe { self.at.add(self.value_at()) };
        debug_assert!(at.cast::<X>().is_aligned());
        at.cast().as_ptr()
    }

    /// Memory of the long key, if there is one.
    pub(super) fn outside_bytes(self) -> usize {
        if self.flags() & KEY_MASK != KEY_LONG {
            return 0;
        }
        // SAFETY: the entry owns the key; it is used here only.
        Long::bytes_for(unsafe { Long::borrow(self.long()) }.len())
    }

    /// Gives the bytes ownership after they were copied from an entry that stays: counts a
    /// reference to the long key, and clones the value in place.
    ///
    /// # Safety
    /// The entry is a bitwise copy of one in a table of `X`, without a reader yet.
    pub(super) unsafe fn own(self) {
        if self.flags() & KEY_MASK == KEY_LONG {
            // SAFETY: the original holds the key.
            unsafe { Long::retain(self.long()) };
        }
        if self.has_out() {
            // SAFETY: the value is out of line.
            let out = unsafe { self.out_ptr() };
            // SAFETY: the copy points to memory that the original keeps alive.
            let copy = unsafe { (*out).clone() };
            // SAFETY: overwrites without dropping: the original still owns the old one.
            unsafe { out.write(copy) };
        }
    }

    /// Ends the entry's ownership: releases the key, and returns the rest.
    ///
    /// # Safety
    /// The entry is of a table of `X`, and its bytes are not used again.
    pub(super) unsafe fn take(self) -> Old<X> {
        // SAFETY: the promise of this function; what follows does not look at the key.
        unsafe { self.release_key() };
        // SAFETY: as above.
        unsafe { self.take_value() }
    }

    /// Takes the long key, if there is one.
    ///
    /// # Safety
    /// The bytes own the key, and are not used again.
    pub(super) unsafe fn take_key(self) -> Option<Long> {
        // SAFETY: the promise of this function.
        (self.flags() & KEY_MASK == KEY_LONG).then(|| unsafe { Long::from_raw(self.long()) })
    }

    /// Releases the long key, if there is one.
    ///
    /// # Safety
    /// The bytes own the key, and are not used again.
    pub(super) unsafe fn release_key(self) {
        if self.flags() & KEY_MASK == KEY_LONG {
            // SAFETY: the promise of this function.
            drop(unsafe { Long::from_raw(self.long()) });
        }
    }

    /// [`Raw::take`] without the key, which the copy now owns.
    ///
    /// # Safety
    /// The entry is of a table of `X`; its bytes are not used again, its key is owned elsewhere.
    pub(super) unsafe fn take_value(self) -> Old<X> {
        let out = self.has_out().then(|| {
            // SAFETY: the value is out of line.
            let out = unsafe { self.out_ptr() };
            // SAFETY: written as an `X`; the bytes are not used again.
            unsafe { out.read() }
        });
        Old { out, note: self.note(), deadline: self.deadline(), bits: self.bits() }
    }
}

/// Marks `len` bytes at `at` as holding no entry.
///
/// # Safety
/// The bytes are initialised and unused, and `len >= 1`.
pub(super) unsafe fn mark_dead(at: NonNull<u8>, len: usize) {
    let mut mark = [PAD; 1 + VARINT_MAX];
    let used = if len == 1 {
        1
    } else {
        mark[0] = DEAD;
        1 + text::varint_write(&mut mark[1..], len as u64)
    };
    debug_assert!(used <= len, "used={used} len={len}");
    // SAFETY: `used <= len`: one byte for one, two up to 127, three beyond.
    unsafe { ptr::copy_nonoverlapping(mark.as_ptr(), at.as_ptr(), used) };
}

/// The contents of a place in a page.
pub(super) enum Stands<X> {
    /// An entry.
    Entry(Raw<X>),
    /// Nothing, for this many bytes.
    Gap(usize),
    /// Nothing until the end of the page.
    End,
}

/// Reads the bytes at `at`.
///
/// # Safety
/// An entry of a table of `X`, or a mark, begins at `at`.
#[inline]
pub(super) unsafe fn stands<X: OutOfLine>(at: NonNull<u8>) -> Stands<X> {
    let raw = Raw { at, holds: PhantomData };
    match raw.flags() {
        PAD => Stands::Gap(1),
        END => Stands::End,
        DEAD => Stands::Gap(raw.varint_at(1).0 as usize),
        _ => Stands::Entry(raw),
    }
}
