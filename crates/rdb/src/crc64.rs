//! The checksum of RDB files and `DUMP` payloads: CRC-64 with Jones's polynomial, reflected,
//! initial value 0. Long inputs are first folded into 16 bytes with the same checksum
//! (`darter_base::fold`). Short inputs, and the remainder, are summed by the `crc` crate's 16-byte
//! variant: one 32 KiB table, 16 bytes a step.

use crc::{CRC_64_REDIS, Crc, Table};
use darter_base::fold::fold;

static ALGORITHM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// A running checksum.
#[derive(Clone, Debug, Default)]
pub struct Crc64(u64);

impl Crc64 {
    /// The checksum of nothing: 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `bytes`. Cost: O(bytes); less for each byte of a long input.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = match fold(self.0, bytes) {
            Some((folded, rest)) => by_table(by_table(0, &folded), rest),
            None => by_table(self.0, bytes),
        };
    }

    /// The checksum of all bytes so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0
    }
}

/// The checksum of `bytes`, continued from `sum`.
fn by_table(sum: u64, bytes: &[u8]) -> u64 {
    // The algorithm reflects its input.
    let mut digest = ALGORITHM.digest_with_initial(sum.reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

/// The checksum of `bytes`.
#[must_use]
pub fn of(bytes: &[u8]) -> u64 {
    let mut sum = Crc64::new();
    sum.update(bytes);
    sum.value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    #[test] // As in Redis's source and the CRC catalogue.
    fn crc64_has_the_published_check_value() {
        assert_eq!(of(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(of(b""), 0);
    }

    #[test]
    fn checksums_of_portions_combine_to_that_of_the_whole() {
        let bytes = Prng::from_seed(5).bytes(9_000..=9_000);
        let whole = ALGORITHM.checksum(&bytes);
        for cut in [0, 1, 15, 16, 17, 255, 256, 257, 500, 4_000, 8_999, 9_000] {
            let mut running = Crc64::new();
            running.update(&bytes[..cut]);
            running.update(&bytes[cut..]);
            assert_eq!(running.value(), whole, "{cut}");
        }
    }
}
