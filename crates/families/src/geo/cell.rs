//! Geohashes: cells of a grid over the world, and the numbers that stand for them.
//!
//! A grid of step s has 2^s by 2^s cells. A cell's number interleaves the bits of its column and
//! its row. So a cell of a coarser grid is one range of finer cells, and thus of scores.
//!
//! ```text
//! bits     | x25 | y25 | x24 | y24 | ...  | x0 | y0 |      x: longitude, y: latitude; step 26: a score
//! ```
//! At the very edge, 180 or 85.05112878, the column or row is 2^s: one bit too wide, as in Redis.

use super::earth::{LATITUDES, LONGITUDES, Point, Span};
use std::ops::Range;

/// The finest grid, whose cells are scores.
pub(super) const STEP_MAX: u32 = 26;

/// Mask of the longitude's bits; the others are the latitude's.
const X: u64 = 0xaaaa_aaaa_aaaa_aaaa;
const Y: u64 = X >> 1;

/// A cell of the grid with a step of 1 to [`STEP_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    bits: u64,
    step: u32,
}

/// The sides of a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) longitude: Span,
    pub(super) latitude: Span,
}

impl Cell {
    /// The cell of a point; the point must be within the ranges.
    pub(super) fn of(point: Point, step: u32) -> Self {
        Self::within(point, step, LATITUDES)
    }

    /// The score of a point: its cell in the finest grid.
    pub(super) fn score_of(point: Point) -> f64 {
        Self::of(point, STEP_MAX).bits as f64
    }

    fn within(point: Point, step: u32, latitudes: Span) -> Self {
        let column = LONGITUDES.share(point.longitude) * f64::from(1_u32 << step);
        let row = latitudes.share(point.latitude) * f64::from(1_u32 << step);
        Self { bits: spread(column as u32) << 1 | spread(row as u32), step }
    }

    /// The cell that a score stands for.
    fn of_score(score: f64) -> Self {
        Self { bits: to_u64(score), step: STEP_MAX }
    }

    /// The sides of the cell.
    pub(super) fn area(self) -> Area {
        let (column, row) = (gather(self.bits >> 1), gather(self.bits));
        let width = 1.0 / f64::from(1_u32 << self.step); // A power of two, so this is exact.
        let side = |span: Span, at: u32| Span {
            min: span.at(f64::from(at) * width),
            max: span.at(f64::from(at.wrapping_add(1)) * width),
        };
        Area { longitude: side(LONGITUDES, column), latitude: side(LATITUDES, row) }
    }

    /// The cell `east` columns to the east and `north` rows to the north, each -1, 0 or 1, around
    /// the world.
    pub(super) fn beside(self, east: i8, north: i8) -> Self {
        let mask = u64::MAX >> (64 - 2 * self.step);
        let moved = |own: u64, others: u64, by: i8| {
            let bits = self.bits & own;
            match by {
                0 => bits,
                // The other coordinate's bits are set, so that a carry passes through them.
                1.. => bits.wrapping_add((others & mask) + 1) & own & mask,
                ..0 => (bits | others & mask).wrapping_sub((others & mask) + 1) & own & mask,
            }
        };
        Self { bits: moved(X, Y, east) | moved(Y, X, north), step: self.step }
    }

    /// The scores in the cell, as a half-open range.
    pub(super) fn scores(self) -> Range<f64> {
        let shift = 2 * (STEP_MAX - self.step);
        let score = |bits: u64| (bits << shift) as f64;
        score(self.bits)..score(self.bits + 1)
    }
}

/// A rectangle of the finest grid.
///
/// Numbers with spread bits compare like the numbers themselves. So a score's column and row are
/// compared in place, without gathering their bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// The first and the last column, as spread bits.
    columns: [u64; 2],
    rows: [u64; 2],
}

impl Window {
    /// The whole grid.
    pub(super) const ALL: Self = Self { columns: [0, X], rows: [0, Y] };

    /// The rectangle between these sides, and one more cell on each side. The sides must be within
    /// the grid.
    pub(super) fn around(longitude: Span, latitude: Span) -> Self {
        let cells = |span: Span, grid: Span| {
            let [first, last] = [span.min, span.max].map(|at| {
                let share = grid.share(at.clamp(grid.min, grid.max));
                (share * f64::from(1_u32 << STEP_MAX)) as u32
            });
            [spread(first.saturating_sub(1)), spread(last + 1)]
        };
        let columns = cells(longitude, LONGITUDES).map(|column| column << 1);
        Self { columns, rows: cells(latitude, LATITUDES) }
    }

    /// True if the rectangle contains the point of this score.
    #[inline]
    pub(super) fn contains(&self, score: f64) -> bool {
        let bits = to_u64(score);
        let is_within = |[first, last]: [u64; 2], at: u64| first <= at && at <= last;
        is_within(self.columns, bits & X) && is_within(self.rows, bits & Y)
    }
}

/// The point of a score: the middle of its cell.
pub(super) fn point_of(score: f64) -> Point {
    let Area { longitude, latitude } = Cell::of_score(score).area();
    let middle = |side: Span, span: Span| ((side.min + side.max) / 2.0).min(span.max).max(span.min);
    Point { longitude: middle(longitude, LONGITUDES), latitude: middle(latitude, LATITUDES) }
}

/// The usual geohash of eleven characters. Its latitudes go up to the poles, so the point is
/// encoded in another grid. The last character has no bits left, and is 0.
pub(super) fn text_of(score: f64) -> [u8; 11] {
    const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    const POLES: Span = Span { min: -90.0, max: 90.0 };
    let cell = Cell::within(point_of(score), STEP_MAX, POLES);
    let mut text = [ALPHABET[0]; 11];
    for (at, character) in text[..10].iter_mut().enumerate() {
        *character = ALPHABET[(cell.bits >> (52 - 5 * (at + 1)) & 31) as usize];
    }
    text
}

/// Converts any score as C does on x86-64.
fn to_u64(score: f64) -> u64 {
    const HALF: f64 = (1_u64 << 63) as f64;
    if score < HALF { to_i64(score) as u64 } else { to_i64(score - HALF) as u64 ^ 1 << 63 }
}

/// Converts a score to a signed number as C does on x86-64: if it does not fit, the result is the
/// least number.
pub(super) fn to_i64(score: f64) -> i64 {
    const END: f64 = (1_u64 << 63) as f64;
    if (-END..END).contains(&score) { score as i64 } else { i64::MIN }
}

/// Puts a 0 above each bit.
fn spread(bits: u32) -> u64 {
    let mut bits = u64::from(bits);
    for (shift, mask) in STEPS.into_iter().rev() {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Every second bit, from the lowest.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & Y;
    for (shift, mask) in STEPS.into_iter().skip(1) {
        bits = (bits | bits >> (shift / 2)) & mask;
    }
    (bits | bits >> 16) as u32
}

/// Each step's shift and mask: pairs of bits, fours, and so on.
const STEPS: [(u32, u64); 5] = [
    (1, 0x5555_5555_5555_5555),
    (2, 0x3333_3333_3333_3333),
    (4, 0x0f0f_0f0f_0f0f_0f0f),
    (8, 0x00ff_00ff_00ff_00ff),
    (16, 0x0000_ffff_0000_ffff),
];

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    #[test]
    fn gathering_bits_reverses_spreading() {
        let mut prng = Prng::from_seed(1);
        for _ in 0..1_000 {
            let bits = prng.below(1 << 32) as u32;
            let wide = spread(bits);
            assert!(
                (0..32).all(|at| wide >> (2 * at) & 3 == u64::from(bits >> at & 1)),
                "{bits:x}"
            );
            assert_eq!(gather(wide | prng.below(u64::MAX) & X), bits);
        }
    }

    #[test] // Vectors from the documentation and from redis-server 7.0.15.
    fn points_have_the_same_scores_as_in_redis() {
        let cases = [
            (13.361389, 38.115556, 3479099956230698.0, "sqc8b49rny0"),
            (15.087269, 37.502669, 3479447370796909.0, "sqdtr74hyu0"),
            (0.0, 0.0, 3377699720527872.0, "s0000000000"),
            (180.0, 85.05112878, 13510798882111488.0, "bp05b5048p0"),
        ];
        for (longitude, latitude, score, text) in cases {
            assert_eq!(Cell::score_of(Point { longitude, latitude }), score);
            assert_eq!(text_of(score), text.as_bytes());
        }
    }

    #[test] // In every grid, also around the world.
    fn moving_to_a_neighbour_and_back_returns_the_cell() {
        let mut prng = Prng::from_seed(2);
        for _ in 0..1_000 {
            let step = 1 + prng.below(26) as u32;
            let cell = Cell { bits: prng.below(1 << (2 * step)), step };
            let (east, north) = (cell.beside(1, 0), cell.beside(0, 1));
            assert_eq!(cell.beside(1, 1), east.beside(0, 1));
            assert_eq!(cell.beside(1, -1).beside(-1, 1), cell);
            let (area, right, above) = (cell.area(), east.area(), north.area());
            let is_last = area.longitude.max == 180.0;
            assert!(is_last || area.longitude.max == right.longitude.min, "{cell:?}");
            let is_top = above.latitude.min < area.latitude.min;
            assert!(is_top || area.latitude.max == above.latitude.min, "{cell:?}");
        }
    }

    #[test]
    fn windows_extend_at_most_one_cell_beyond_their_sides() {
        let mut prng = Prng::from_seed(4);
        let share = |prng: &mut Prng| prng.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        for _ in 0..20_000 {
            let [longitude, latitude] = [LONGITUDES, LATITUDES].map(|grid| {
                let (one, width) = (grid.at(share(&mut prng)), 10.0 * share(&mut prng));
                Span { min: one, max: (one + width).min(grid.max) }
            });
            let window = Window::around(longitude, latitude);
            let place = |span: Span, prng: &mut Prng| span.at(share(prng) * 3.0 - 1.0);
            let (x, y) = (place(longitude, &mut prng), place(latitude, &mut prng));
            if !LONGITUDES.contains(x) || !LATITUDES.contains(y) {
                continue;
            }
            let score = Cell::score_of(Point { longitude: x, latitude: y });
            let wider = |span: Span| Span { min: span.min - 2e-5, max: span.max + 2e-5 };
            let is_between = longitude.contains(x) && latitude.contains(y);
            let is_near = wider(longitude).contains(x) && wider(latitude).contains(y);
            assert!(window.contains(score) || !is_between, "{window:?} {x} {y}");
            assert!(is_near || !window.contains(score), "{window:?} {x} {y}");
            assert!(Window::ALL.contains(score));
        }
    }

    #[test]
    fn scores_out_of_range_are_converted_as_by_c() {
        let cases = [
            (-1.0, u64::MAX),
            (-0.5, 0),
            (1.9, 1),
            (1e19, 10_000_000_000_000_000_000),
            (1e20, 0),
            (f64::INFINITY, 0),
            (f64::NEG_INFINITY, 1 << 63),
            (-1e19, 1 << 63),
        ];
        for (score, bits) in cases {
            assert_eq!(to_u64(score), bits, "{score}");
        }
        assert_eq!([1e19, -1e19, 2.5].map(to_i64), [i64::MIN, i64::MIN, 2]);
    }
}
