//! Maps a key to its slot, and a slot to its core: the one rule of placement.
//!
//! The slot is CRC16 (XMODEM) of the key, or of its hash tag, modulo 16 384: the rule of Redis
//! Cluster. Each core owns a contiguous range of slots; the ranges differ in size by one at most.

use crc::{CRC_16_XMODEM, Crc, Table};
use memchr::memchr;

/// The number of slots.
pub const SLOTS: u16 = 16_384;
static CRC16: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_XMODEM);

const _: () = assert!(SLOTS.is_power_of_two());

/// The part of `key` that determines its slot: the bytes between the first `{` and the next `}`,
/// unless there are none; otherwise the whole key.
#[must_use]
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = memchr(b'{', key) else { return key };
    let rest = &key[open + 1..];
    match memchr(b'}', rest) {
        Some(0) | None => key,
        Some(close) => &rest[..close],
    }
}

/// The slot of `key`, `0..SLOTS`.
#[must_use]
pub fn of(key: &[u8]) -> u16 {
    CRC16.checksum(hash_tag(key)) & (SLOTS - 1)
}

/// The core, `0..cores`, that owns `slot`.
#[must_use]
pub fn core_of(slot: u16, cores: usize) -> usize {
    debug_assert!(slot < SLOTS, "slot={slot}");
    usize::from(slot) * cores / usize::from(SLOTS)
}

/// The core, `0..cores`, that owns `key`. With one core the key is not read.
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
