//! Estimates the number of distinct elements from the registers.
//!
//! Source: Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017),
//! which needs no correction for small or large counts. Two functions account for registers that
//! are untouched, and for registers at the highest rank. The steps and their order are Redis's,
//! because the last digit of the result depends on them.

use super::format::{Encoding, HEADER_BYTES, REGISTERS, corrupt};
use super::hash::RANK_MAX;
use super::{dense, sparse};
use darter_command::Refusal;

/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// The number of registers with each rank. Ranks above the highest occur in strings written by
/// clients.
type Histogram = [u32; 64];

/// The registers of a HyperLogLog, or the maximum of several, a byte each.
#[derive(Clone)]
pub(super) struct Registers(pub(super) Box<[u8; REGISTERS]>);

impl Default for Registers {
    fn default() -> Self {
        Self(Box::new([0; REGISTERS]))
    }
}

impl Registers {
    /// Raises the registers to those of another HyperLogLog. Cost: O(registers).
    pub(super) fn merge(&mut self, bytes: &[u8], encoding: Encoding) -> Result<(), Refusal> {
        match (encoding, bytes[HEADER_BYTES..].try_into()) {
            (Encoding::Dense, Ok(registers)) => dense::raise_all(&mut self.0, registers),
            (Encoding::Dense, Err(_)) => return Err(corrupt()),
            (Encoding::Sparse, _) => {
                let raise = |from: usize, run: sparse::Run| {
                    let raised = self.0[from..from + run.len].iter_mut();
                    raised.for_each(|register| *register = (*register).max(run.rank));
                };
                if !sparse::ranks(bytes, raise) {
                    return Err(corrupt());
                }
            }
        }
        Ok(())
    }

    /// Raises the registers to those of `other`.
    pub(super) fn merge_registers(&mut self, other: &Self) {
        self.0.iter_mut().zip(&*other.0).for_each(|(to, rank)| *to = (*to).max(*rank));
    }

    /// The estimated number of distinct elements. Cost: O(registers).
    pub(super) fn count(&self) -> u64 {
        // Four histograms, because neighbours are often equal.
        let mut histograms = [[0_u32; 64]; 4];
        for some in self.0.as_chunks::<4>().0 {
            for (histogram, rank) in histograms.iter_mut().zip(some) {
                histogram[usize::from(rank & 63)] += 1;
            }
        }
        count(&std::array::from_fn(|rank| histograms.iter().map(|each| each[rank]).sum()))
    }
}

/// The estimated number of distinct elements of a HyperLogLog.
pub(super) fn count_of(bytes: &[u8], encoding: Encoding) -> Result<u64, Refusal> {
    if encoding == Encoding::Dense {
        let mut registers = Registers::default();
        registers.merge(bytes, encoding)?;
        return Ok(registers.count());
    }
    let (mut histogram, mut covered) = ([0; 64], 0);
    for run in sparse::runs(bytes) {
        covered += run.len;
        histogram[usize::from(run.rank)] += u32::try_from(run.len).unwrap_or(0);
    }
    if covered != REGISTERS {
        return Err(corrupt());
    }
    Ok(count(&histogram))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate, far below 2^53"
)]
fn count(histogram: &Histogram) -> u64 {
    let registers = REGISTERS as f64;
    let highest = f64::from(histogram[usize::from(RANK_MAX)]);
    let mut sum = registers * tau((registers - highest) / registers);
    for rank in (1..usize::from(RANK_MAX)).rev() {
        sum = (sum + f64::from(histogram[rank])) * 0.5;
    }
    sum += registers * sigma(f64::from(histogram[0]) / registers);
    let count = (ALPHA * registers * registers / sum).round();
    // Invalid registers may give an infinite count: the result is that of C's conversion.
    if count.is_finite() { count as u64 } else { 1 << 63 }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut factor, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * factor;
        factor += factor;
        if before == sum {
            return sum;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut factor, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - x).powi(2) * factor;
        if before == sum {
            return sum / 3.0;
        }
    }
}
