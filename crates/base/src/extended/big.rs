//! Natural numbers of any size: just what exact conversion between bases needs.
//!
//! Little-endian limbs of 64 bits, no zero limb at the top. Sizes stay below 40 000 bits: texts are
//! bounded, so every loop here is too.

use std::cmp::Ordering;

/// The largest power of ten in a limb, and its exponent.
const LIMB_TEN: u64 = 10_000_000_000_000_000_000;
const LIMB_DIGITS: usize = 19;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Big(Vec<u64>);

impl Big {
    /// The number spelled by decimal digits, and nothing but digits.
    pub(super) fn from_digits(digits: impl Iterator<Item = u8>) -> Self {
        let mut big = Self::default();
        let (mut part, mut scale) = (0_u64, 1_u64);
        for digit in digits {
            debug_assert!(digit.is_ascii_digit(), "digit={digit}");
            part = part * 10 + u64::from(digit - b'0');
            scale *= 10;
            if scale == LIMB_TEN {
                big.mul_add(scale, part);
                (part, scale) = (0, 1);
            }
        }
        big.mul_add(scale, part);
        big
    }

    /// `mantissa * 2^shift`.
    pub(super) fn shifted(mantissa: u64, shift: usize) -> Self {
        let mut big = Self(if mantissa == 0 { Vec::new() } else { vec![mantissa] });
        big.shift_left(shift);
        big
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of bits, without leading zeros.
    pub(super) fn bits(&self) -> usize {
        match self.0.last() {
            None => 0,
            Some(top) => self.0.len() * 64 - top.leading_zeros() as usize,
        }
    }

    /// `self * factor + term`.
    pub(super) fn mul_add(&mut self, factor: u64, term: u64) {
        let mut carry = u128::from(term);
        for limb in &mut self.0 {
            let wide = u128::from(*limb) * u128::from(factor) + carry;
            *limb = low(wide);
            carry = wide >> 64;
        }
        if carry != 0 {
            self.0.push(low(carry));
        }
    }

    /// `self * 10^exponent`.
    pub(super) fn mul_ten(&mut self, exponent: usize) {
        for _ in 0..exponent / LIMB_DIGITS {
            self.mul_add(LIMB_TEN, 0);
        }
        let rest = u32::try_from(exponent % LIMB_DIGITS).unwrap_or(0);
        self.mul_add(10_u64.pow(rest), 0);
    }

    /// `self * 2^bits`.
    pub(super) fn shift_left(&mut self, bits: usize) {
        if self.is_zero() {
            return;
        }
        let (limbs, bits) = (bits / 64, bits % 64);
        if bits > 0 {
            self.mul_add(1 << bits, 0);
        }
        self.0.splice(0..0, std::iter::repeat_n(0, limbs));
    }

    /// The top bits, at most 128 of them; how many bits are below; and whether any of those is set.
    pub(super) fn top(&self) -> (u128, usize, bool) {
        let len = self.0.len();
        let below = len.saturating_sub(2);
        let top = self.0[below..].iter().rev().fold(0, |top, limb| (top << 64) | u128::from(*limb));
        (top, below * 64, self.0[..below].iter().any(|limb| *limb != 0))
    }

    /// The quotient `self / divisor` as `mantissa * 2^exponent`, of 66 or 67 bits, and whether
    /// there was a remainder. Neither operand may be zero.
    pub(super) fn divide(mut self, mut divisor: Self) -> (u128, i64, bool) {
        const BITS: i64 = 67;
        let (own, other) = (self.bits(), divisor.bits());
        self.shift_left(other.saturating_sub(own));
        divisor.shift_left(own.saturating_sub(other));
        let mut quotient = 0_u128;
        for _ in 0..BITS {
            quotient <<= 1;
            if self.compare(&divisor) != Ordering::Less {
                self.subtract(&divisor);
                quotient |= 1;
            }
            self.mul_add(2, 0);
        }
        let exponent = i64::try_from(own).unwrap_or(0) - i64::try_from(other).unwrap_or(0);
        (quotient, exponent + 1 - BITS, !self.is_zero())
    }

    /// The decimal digits.
    pub(super) fn to_decimal(&self) -> String {
        let mut limbs = self.0.clone();
        let mut groups = Vec::with_capacity(limbs.len() + 1);
        while let Some(top) = limbs.last() {
            if *top == 0 {
                limbs.pop();
                continue;
            }
            let mut rest = 0;
            for limb in limbs.iter_mut().rev() {
                (*limb, rest) = divide_by_ten(rest, *limb);
            }
            groups.push(rest);
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        groups.iter().rev().for_each(|group| text.push_str(&format!("{group:019}")));
        text
    }

    fn compare(&self, other: &Self) -> Ordering {
        let by_len = self.0.len().cmp(&other.0.len());
        by_len.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// `self - other`, which must not be larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (at, limb) in self.0.iter_mut().enumerate() {
            let (less, one) = limb.overflowing_sub(other.0.get(at).copied().unwrap_or(0));
            let (less, two) = less.overflowing_sub(u64::from(borrow));
            *limb = less;
            borrow = one | two;
        }
        debug_assert!(!borrow, "the subtrahend was larger");
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

/// `high * 2^64 + low` divided by [`LIMB_TEN`], with the remainder. `high` must be below
/// [`LIMB_TEN`].
///
/// Multiplies by a reciprocal: a third of the time of the machine's division.
/// Source: Möller, Granlund, "Improved division by invariant integers" (2011), algorithm 4.
fn divide_by_ten(high: u64, limb: u64) -> (u64, u64) {
    const RECIPROCAL: u64 = {
        let whole = u128::MAX / LIMB_TEN as u128 - (1 << 64);
        assert!(whole <= u64::MAX as u128, "the divisor's top bit is set");
        whole as u64
    };
    debug_assert!(high < LIMB_TEN, "high={high}");
    let product =
        u128::from(RECIPROCAL) * u128::from(high) + ((u128::from(high) << 64) | u128::from(limb));
    let mut quotient = low(product >> 64).wrapping_add(1);
    let mut rest = limb.wrapping_sub(quotient.wrapping_mul(LIMB_TEN));
    if rest > low(product) {
        quotient = quotient.wrapping_sub(1);
        rest = rest.wrapping_add(LIMB_TEN);
    }
    if rest >= LIMB_TEN {
        quotient += 1;
        rest -= LIMB_TEN;
    }
    (quotient, rest)
}

/// The low 64 bits.
fn low(wide: u128) -> u64 {
    u64::try_from(wide & u128::from(u64::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_round_trip() {
        for text in ["0", "7", "18446744073709551616", "1000000000000000000000000000000000000001"] {
            assert_eq!(Big::from_digits(text.bytes()).to_decimal(), text);
        }
        assert_eq!(Big::shifted(3, 130).to_decimal(), "4083388403051261561560495289181218537472");
        let mut ten = Big::from_digits("12".bytes());
        ten.mul_ten(45);
        assert_eq!(ten.to_decimal(), format!("12{}", "0".repeat(45)));
    }

    #[test]
    fn division_by_the_reciprocal_is_exact() {
        let mut prng = crate::Prng::from_seed(11);
        for step in 0..20_000 {
            let high = [prng.below(LIMB_TEN), LIMB_TEN - 1, 0, 1][step % 4];
            let limb = [prng.next_u64(), u64::MAX, 0][step % 3];
            let wide = (u128::from(high) << 64) | u128::from(limb);
            let ten = u128::from(LIMB_TEN);
            let (quotient, rest) = divide_by_ten(high, limb);
            assert_eq!((u128::from(quotient), u128::from(rest)), (wide / ten, wide % ten));
        }
    }

    #[test]
    fn quotients_are_exact() {
        let (seven, three) = (Big::shifted(7, 0), Big::shifted(3, 0));
        let (quotient, exponent, rest) = seven.divide(three);
        assert!(rest);
        let value = quotient as f64 * 2_f64.powi(i32::try_from(exponent).unwrap());
        assert!((value - 7.0 / 3.0).abs() < 1e-15, "{value}");
        let (quotient, exponent, rest) = Big::shifted(10, 200).divide(Big::shifted(5, 3));
        assert!(!rest);
        assert_eq!(quotient.trailing_zeros() as i64 + exponent, 198, "10 / 5 * 2^197 is 2^198");
        assert!(quotient.is_power_of_two());
    }
}
