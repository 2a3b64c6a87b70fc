//! The range of bits of BITCOUNT and BITPOS.

use crate::option_names;
use darter_command::Refusal;
use std::ops::Range;

/// The unit of a client's range: bytes or bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Byte,
    Bit,
}

impl Unit {
    /// Parses the unit's word.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Refusal> {
        option_names::meaning(text, &[("BIT", Self::Bit), ("BYTE", Self::Byte)])
            .ok_or(Refusal::Syntax)
    }

    fn bits(self) -> usize {
        match self {
            Self::Byte => 8,
            Self::Bit => 1,
        }
    }

    /// The bits of `start..=end` in a string of `bytes` bytes. Both ends are included; negative
    /// ones count from the end of the string.
    pub(super) fn resolve(self, start: i64, end: i64, bytes: usize) -> Range<usize> {
        let len = bytes * 8 / self.bits();
        let place = |at: i64| {
            let behind = usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX);
            if at < 0 { len.saturating_sub(behind) } else { behind }
        };
        let (start, end) = (place(start), place(end).saturating_add(1).min(len));
        if start < end { start * self.bits()..end * self.bits() } else { 0..0 }
    }
}

/// The bytes that contain these bits.
pub(super) fn bytes_of(bits: &Range<usize>) -> Range<usize> {
    bits.start / 8..bits.end.div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Every pair of ends, against Redis's steps one by one.
    fn ranges_resolve_as_in_redis() {
        for (unit, bits) in [(Unit::Byte, 8_i64), (Unit::Bit, 1)] {
            for bytes in 0..4_i64 {
                let total = bytes * 8 / bits;
                for start in -30..30 {
                    for end in -30..30 {
                        let from = if start < 0 { (total + start).max(0) } else { start };
                        let to = if end < 0 { (total + end).max(0) } else { end };
                        let to = to.min(total - 1);
                        let expected = if from <= to { from * bits..(to + 1) * bits } else { 0..0 };
                        let found = unit.resolve(start, end, usize::try_from(bytes).unwrap());
                        let found = found.start as i64..found.end as i64;
                        assert_eq!(found, expected, "{start}..={end} {unit:?} of {bytes}");
                    }
                }
            }
        }
        assert_eq!(Unit::Bit.resolve(i64::MIN, i64::MAX, 3), 0..24);
    }
}
