//! From a key to its slot, and from a slot to its core: the one rule of placement.
//!
//! The slot is CRC16 (XMODEM) of the key, or of its hash tag, modulo 16 384: the rule of Redis
//! Cluster. Cores own contiguous ranges of slots, of equal size to within one.

use crate::long;
use crc::{CRC_16_XMODEM, Crc, Table};

/// Slots of the keyspace.
pub const SLOTS: u16 = 16_384;
static CRC16: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_XMODEM);

const _: () = assert!(SLOTS.is_power_of_two());

/// The part of `key` that decides its slot: the bytes between the first `{` and the next `}`,
/// unless that is empty; otherwise the whole key.
#[must_use]
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|&byte| byte == b'}') {
        Some(0) | None => key,
        Some(close) => &rest[..close],
    }
}

/// The slot of `key`, `0..SLOTS`.
#[must_use]
pub fn of(key: &[u8]) -> u16 {
    if key.len() > long::KNOWN_MIN
        && let Some(slot) = long::known_slot(key)
    {
        return slot;
    }
    CRC16.checksum(hash_tag(key)) & (SLOTS - 1)
}

/// [`of`] for a key that comes in portions.
#[derive(Clone)]
pub struct SlotPortions {
    whole: crc::Digest<'static, u16, Table<16>>,
    tag: Tag,
}

/// How far the search for the hash tag has got.
#[derive(Clone)]
enum Tag {
    /// No `{` yet.
    Sought,
    /// A `{`, and this many bytes since.
    Open(crc::Digest<'static, u16, Table<16>>, usize),
    /// Found, with this checksum.
    Found(u16),
    /// The tag is empty: the whole key decides.
    Empty,
}

impl SlotPortions {
    /// The slot of no bytes.
    #[must_use]
    pub fn new() -> Self {
        Self { whole: CRC16.digest(), tag: Tag::Sought }
    }

    /// Adds bytes. Cost: O(bytes).
    pub fn update(&mut self, bytes: &[u8]) {
        self.tag = match std::mem::replace(&mut self.tag, Tag::Empty) {
            Tag::Found(crc) => Tag::Found(crc),
            tag => {
                self.whole.update(bytes);
                tag.go_on(bytes)
            }
        };
    }

    /// The slot, `0..SLOTS`.
    #[must_use]
    pub fn finish(self) -> u16 {
        let crc = if let Tag::Found(crc) = self.tag { crc } else { self.whole.finalize() };
        crc & (SLOTS - 1)
    }
}

impl Default for SlotPortions {
    fn default() -> Self {
        Self::new()
    }
}

impl Tag {
    fn go_on(self, bytes: &[u8]) -> Self {
        match self {
            Self::Sought => match bytes.iter().position(|&byte| byte == b'{') {
                Some(open) => Self::Open(CRC16.digest(), 0).go_on(&bytes[open + 1..]),
                None => Self::Sought,
            },
            Self::Open(mut crc, len) => match bytes.iter().position(|&byte| byte == b'}') {
                Some(0) if len == 0 => Self::Empty,
                Some(close) => {
                    crc.update(&bytes[..close]);
                    Self::Found(crc.finalize())
                }
                None => {
                    crc.update(bytes);
                    Self::Open(crc, len + bytes.len())
                }
            },
            done => done,
        }
    }
}

/// The core, `0..cores`, that owns `slot`.
#[must_use]
pub fn core_of(slot: u16, cores: usize) -> usize {
    debug_assert!(slot < SLOTS, "slot={slot}");
    usize::from(slot) * cores / usize::from(SLOTS)
}

/// The core, `0..cores`, that owns `key`. With one core the key is not looked at.
#[inline]
#[must_use]
pub fn owner_of(key: &[u8], cores: usize) -> usize {
    if cores == 1 { 0 } else { core_of(of(key), cores) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Vectors: CRC16-XMODEM of "123456789" is 0x31C3; tags as in the cluster specification.
    fn slots_follow_the_cluster_specification() {
        assert_eq!(of(b"123456789"), 0x31C3 & 0x3FFF);
        assert_eq!(of(b"{user1000}.following"), of(b"{user1000}.followers"));
        assert_eq!(hash_tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(hash_tag(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(hash_tag(b"foo{bar}{zap}"), b"bar");
        assert_eq!(hash_tag(b"foo{bar"), b"foo{bar");
    }

    #[test] // However it is split, a key has its slot.
    fn split_keys_have_the_same_slot() {
        let keys: &[&[u8]] = &[
            b"123456789",
            b"{user1000}.following",
            b"foo{}{bar}",
            b"foo{{bar}}zap",
            b"foo{bar}{zap}",
            b"foo{bar",
            b"{}",
            b"{",
            b"}{",
            b"a}b{c}d}",
            b"",
        ];
        for key in keys {
            for portion in 1..=key.len().max(1) {
                let mut portions = SlotPortions::new();
                key.chunks(portion).for_each(|bytes| portions.update(bytes));
                assert_eq!(portions.finish(), of(key), "{:?} by {portion}", key.escape_ascii());
            }
        }
    }

    #[test]
    fn every_core_owns_an_equal_range() {
        for cores in 1..=32 {
            let mut owned = vec![0_usize; cores];
            for slot in 0..SLOTS {
                owned[core_of(slot, cores)] += 1;
            }
            let (least, most) = (owned.iter().min(), owned.iter().max());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{owned:?}");
        }
    }
}
