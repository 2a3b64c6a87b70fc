//! One cache line of a segment's index: 21 slots.
//!
//! ```text
//! | 21 fingerprints: 1 byte, 0 = empty | passed: 1 byte | 21 offsets: 2 bytes |  = 64 bytes
//! ```
//! A lookup compares all fingerprints at once (SSE2; the portable loop is the reference, and runs
//! on other machines). `passed` counts the entries that found this group full on their way from
//! their home to a later group: while it is 0, a search ends here (as in F14). At 255 it saturates,
//! and every search continues.
//!
//! Not here: which group is home, and the meaning of the offsets. See `segment`.

/// Slots of a group.
pub(super) const SLOTS: usize = 21;
const SLOTS_MASK: u32 = (1 << SLOTS) - 1;

/// A group. See the module.
#[repr(C, align(64))]
pub(super) struct Group {
    fingerprints: [u8; SLOTS],
    passed: u8,
    offsets: [u16; SLOTS],
}

const _: () = assert!(size_of::<Group>() == 64);

/// The fingerprint of a hash: its lowest byte, except that 0 means empty.
#[inline]
pub(super) fn fingerprint(hash: u64) -> u8 {
    let byte = hash.to_le_bytes()[0];
    byte + u8::from(byte == 0)
}

impl Group {
    /// A bit for each slot that holds `fingerprint`; 0 selects the empty slots.
    #[inline]
    pub(super) fn matches(&self, fingerprint: u8) -> u32 {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        // SAFETY: compiled only where SSE2 is there.
        return unsafe { self.matches_sse2(fingerprint) };
        #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
        return self.matches_portable(fingerprint);
    }

    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    #[target_feature(enable = "sse2")]
    #[inline]
    fn matches_sse2(&self, fingerprint: u8) -> u32 {
        use std::arch::x86_64::{
            __m128i, _mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_set1_epi8,
        };
        let wanted = _mm_set1_epi8(fingerprint.cast_signed());
        let line = std::ptr::from_ref(self).cast::<__m128i>();
        // SAFETY: the group is 64 bytes, aligned to 64.
        let low = unsafe { _mm_load_si128(line) };
        // SAFETY: the second 16 of the 64 bytes.
        let high = unsafe { line.add(1) };
        // SAFETY: as above.
        let high = unsafe { _mm_load_si128(high) };
        let low = _mm_movemask_epi8(_mm_cmpeq_epi8(low, wanted)).cast_unsigned();
        let high = _mm_movemask_epi8(_mm_cmpeq_epi8(high, wanted)).cast_unsigned();
        (low | high << 16) & SLOTS_MASK
    }

    #[cfg_attr(not(test), allow(dead_code, reason = "the reference, run where there is no SSE2"))]
    fn matches_portable(&self, fingerprint: u8) -> u32 {
        let slots = self.fingerprints.iter().enumerate();
        slots.fold(0, |bits, (slot, &held)| bits | u32::from(held == fingerprint) << slot)
    }

    /// A bit for each slot in use.
    #[inline]
    pub(super) fn used(&self) -> u32 {
        !self.matches(0) & SLOTS_MASK
    }

    /// The offset in `slot`.
    #[inline]
    pub(super) fn offset(&self, slot: usize) -> u16 {
        self.offsets[slot]
    }

    /// Fills `slot`.
    #[inline]
    pub(super) fn set(&mut self, slot: usize, fingerprint: u8, offset: u16) {
        debug_assert!(fingerprint != 0);
        self.fingerprints[slot] = fingerprint;
        self.offsets[slot] = offset;
    }

    /// Records that the entry of `slot` has moved.
    #[inline]
    pub(super) fn set_offset(&mut self, slot: usize, offset: u16) {
        debug_assert!(self.fingerprints[slot] != 0, "slot={slot}");
        self.offsets[slot] = offset;
    }

    /// Empties `slot`.
    #[inline]
    pub(super) fn clear(&mut self, slot: usize) {
        debug_assert!(self.fingerprints[slot] != 0, "slot={slot} is empty already");
        self.fingerprints[slot] = 0;
    }

    /// The number of entries that passed this group, or 255 for "unknown".
    #[inline]
    pub(super) fn passed(&self) -> u8 {
        self.passed
    }

    /// Records that an entry passes.
    #[inline]
    pub(super) fn pass(&mut self) {
        self.passed = self.passed.saturating_add(1);
    }

    /// Records that an entry which had passed is removed.
    #[inline]
    pub(super) fn unpass(&mut self) {
        debug_assert!(self.passed > 0);
        if self.passed < u8::MAX {
            self.passed -= 1;
        }
    }
}

/// The indexes of the set bits.
#[inline]
pub(super) fn ones(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (bits != 0).then(|| {
            let slot = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            slot
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    #[test] // For random groups.
    fn simd_matches_the_portable_loop() {
        let mut prng = Prng::from_seed(3);
        for _ in 0..if cfg!(miri) { 20 } else { 5_000 } {
            let mut group = Group { fingerprints: [0; SLOTS], passed: 0, offsets: [0; SLOTS] };
            group.passed = prng.next_u64().to_le_bytes()[0] & 3;
            for slot in 0..SLOTS {
                let random = prng.next_u64().to_le_bytes();
                if random[0] & 1 == 1 {
                    group.set(slot, fingerprint(u64::from(random[1] & 7)), u16::from(random[2]));
                }
            }
            for wanted in 0..8 {
                assert_eq!(group.matches(wanted), group.matches_portable(wanted));
            }
            let used: Vec<usize> = ones(group.used()).collect();
            assert!((0..SLOTS).all(|at| used.contains(&at) == (group.fingerprints[at] != 0)));
        }
    }
}
