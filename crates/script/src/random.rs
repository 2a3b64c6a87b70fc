//! The generator of `drand48`, the same on every machine.

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;
/// The greatest number that is divided by.
const MAX: u64 = (1 << 31) - 1;

/// The state: 48 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Self(0x1234_ABCD_330E)
    }
}

impl Random {
    pub(crate) fn seed(&mut self, seed: i32) {
        self.0 = u64::from(seed.cast_unsigned()) << 16 | 0x330E;
    }

    /// A number from 0 up to, but without, 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
        let value = (self.0 >> 17) % MAX;
        value as f64 / MAX as f64
    }
}
