//! An estimate of the number of distinct members, in 16 KiB: HyperLogLog.
//!
//! Each member's hash selects a register. The register keeps the longest run of leading zero bits
//! seen in the rest of a hash. The harmonic mean over all registers gives the count; while many
//! registers are untouched, their number is the better estimate. The standard error is 0.81
//! percent.
//!
//! Source: Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog: the analysis of a near-optimal
//! cardinality estimation algorithm" (2007). With hashes of 64 bits large counts need no
//! correction.

use darter_base::hash;

const BITS: u32 = 14;
const REGISTERS: usize = 1 << BITS;

/// See the module.
pub(super) struct Estimate {
    registers: [u8; REGISTERS],
}

impl Default for Estimate {
    fn default() -> Self {
        Self { registers: [0; REGISTERS] }
    }
}

impl Estimate {
    /// Adds a member; adding it again changes nothing.
    pub(super) fn add(&mut self, member: &[u8]) {
        let hash = hash::of(member);
        let register = hash as usize % REGISTERS;
        let run = (hash >> BITS | 1 << (u64::BITS - BITS)).trailing_zeros() + 1;
        let run = u8::try_from(run).unwrap_or(u8::MAX);
        self.registers[register] = self.registers[register].max(run);
    }

    /// The estimated number of distinct members. Cost: O(registers).
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate, far below 2^53"
    )]
    pub(super) fn count(&self) -> usize {
        let registers = REGISTERS as f64;
        let sum: f64 = self.registers.iter().map(|run| f64::powi(0.5, i32::from(*run))).sum();
        let raw = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        let untouched = self.registers.iter().filter(|run| **run == 0).count();
        let count = if raw <= 2.5 * registers && untouched > 0 {
            registers * (registers / untouched as f64).ln()
        } else {
            raw
        };
        count.round() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_within_the_expected_error() {
        for count in [0_usize, 1, 4, 100, 5_000, 40_000, 300_000] {
            let mut estimate = Estimate::default();
            for round in 0..2 {
                for number in 0..count {
                    estimate.add(format!("member:{number}").as_bytes());
                }
                let found = estimate.count();
                let error = found.abs_diff(count) * 1_000 / count.max(1);
                assert!(error <= 30, "round={round} count={count} found={found}");
            }
        }
    }
}
