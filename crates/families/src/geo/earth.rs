//! Points on a sphere, and their distances.
//!
//! A distance takes five trigonometric functions. A comparison with a limit nearly always needs
//! less: [`Near`] approximates by polynomials to nine digits, and reports when that is not enough.

use std::f64::consts::{FRAC_PI_2, PI};

/// The sphere's radius, as in Redis.
pub(super) const RADIUS_M: f64 = 6_372_797.560856;

/// A span of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) min: f64,
    pub(super) max: f64,
}

/// The longitudes and latitudes of the grid, in degrees: those of a square map.
pub(super) const LONGITUDES: Span = Span { min: -180.0, max: 180.0 };
pub(super) const LATITUDES: Span = Span { min: -85.05112878, max: 85.05112878 };

impl Span {
    /// The position of a number in the span: 0 at its start, 1 at its end.
    pub(super) fn share(self, at: f64) -> f64 {
        (at - self.min) / (self.max - self.min)
    }

    /// The number at this position in the span.
    pub(super) fn at(self, share: f64) -> f64 {
        self.min + share * (self.max - self.min)
    }

    pub(super) fn contains(self, number: f64) -> bool {
        (self.min..=self.max).contains(&number)
    }
}

/// A point, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

pub(super) fn radians(degrees: f64) -> f64 {
    degrees * (PI / 180.0)
}

pub(super) fn degrees(radians: f64) -> f64 {
    radians / (PI / 180.0)
}

/// Metres between two latitudes along a meridian.
pub(super) fn latitude_distance(one: f64, other: f64) -> f64 {
    RADIUS_M * (radians(other) - radians(one)).abs()
}

/// Metres between two points.
///
/// Source: the haversine formula; each step as in Redis, so that every digit is equal.
pub(super) fn distance(one: Point, other: Point) -> f64 {
    let v = ((radians(other.longitude) - radians(one.longitude)) / 2.0).sin();
    if v == 0.0 {
        return latitude_distance(one.latitude, other.latitude);
    }
    let (from, to) = (radians(one.latitude), radians(other.latitude));
    let u = ((to - from) / 2.0).sin();
    let a = u * u + from.cos() * to.cos() * v * v;
    2.0 * RADIUS_M * a.sqrt().asin()
}

/// The result of an approximate comparison of a distance with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Within,
    Beyond,
    /// The distance is too close to the limit, or close to half around the world.
    Unclear,
}

/// A limit that distances are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    /// Haversines of two angles. Smaller haversines are surely within the limit; above the second
    /// angle's they are surely beyond it.
    within: f64,
    beyond: f64,
}

impl Near {
    /// The relative error of [`haversine`] is below a tenth of this.
    const MARGIN: f64 = 1e-8;

    pub(super) fn of(limit_m: f64) -> Self {
        let half = (limit_m / RADIUS_M / 2.0).min(FRAC_PI_2);
        let limit = half.sin() * half.sin();
        Self { within: limit * (1.0 - Self::MARGIN), beyond: limit * (1.0 + Self::MARGIN) }
    }

    /// Compares the distance of two points with the limit. Angles are in radians.
    #[inline]
    pub(super) fn reach(self, from: Angles, to: Angles) -> Reach {
        let a = haversine(from, to);
        if a < self.within {
            Reach::Within
        } else if a > self.beyond && a < 1.0 - Self::MARGIN {
            Reach::Beyond
        } else {
            Reach::Unclear
        }
    }
}

/// A point in radians, and the cosine of its latitude.
#[derive(Clone, Copy, Debug)]
pub(super) struct Angles {
    longitude: f64,
    latitude: f64,
    cosine: f64,
}

impl Angles {
    #[inline]
    pub(super) fn of(point: Point) -> Self {
        let latitude = radians(point.latitude);
        let half = sine(latitude.abs() / 2.0);
        Self { longitude: radians(point.longitude), latitude, cosine: 1.0 - 2.0 * half * half }
    }
}

/// The haversine: the square of the sine of half the angle between two points.
#[inline]
fn haversine(from: Angles, to: Angles) -> f64 {
    /// The rounding error of `PI`: π − PI.
    const PI_REST: f64 = 1.224_646_799_147_353_2e-16;
    let across = ((to.longitude - from.longitude) / 2.0).abs();
    let across = if across > FRAC_PI_2 { PI - across + PI_REST } else { across };
    let (u, v) = (sine((to.latitude - from.latitude).abs() / 2.0), sine(across));
    u * u + from.cosine * to.cosine * v * v
}

/// The sine of an angle from 0 to pi / 2, by its series. The first omitted term is below 10^-11.
#[inline]
fn sine(x: f64) -> f64 {
    let square = x * x;
    let series = -1.0 / 1_307_674_368_000.0;
    let series = series * square + 1.0 / 6_227_020_800.0;
    let series = series * square - 1.0 / 39_916_800.0;
    let series = series * square + 1.0 / 362_880.0;
    let series = series * square - 1.0 / 5_040.0;
    let series = series * square + 1.0 / 120.0;
    let series = series * square - 1.0 / 6.0;
    x + x * square * series
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    fn somewhere(prng: &mut Prng) -> Point {
        let mut share = || prng.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        Point { longitude: LONGITUDES.at(share()), latitude: LATITUDES.at(share()) }
    }

    #[test] // Near and far, across the date line, and to the other side of the world.
    fn approximate_comparisons_agree_with_exact_distances() {
        let mut prng = Prng::from_seed(3);
        let mut unclear = 0;
        for round in 0..200_000 {
            let from = somewhere(&mut prng);
            let other = somewhere(&mut prng);
            let near = 10_f64.powi(-(prng.below(9) as i32));
            let side = |from: f64, other: f64| from + (other - from) * near;
            let to = match round % 4 {
                0 => other,
                1 => Point {
                    longitude: side(-from.longitude, other.longitude),
                    latitude: side(-from.latitude, other.latitude),
                },
                2 => Point {
                    longitude: 180.0 * -from.longitude.signum()
                        + (from.longitude - 180.0 * from.longitude.signum()) * near,
                    latitude: side(from.latitude, other.latitude),
                },
                _ => Point {
                    longitude: side(from.longitude, other.longitude),
                    latitude: side(from.latitude, other.latitude),
                },
            };
            let real = distance(from, to);
            for limit in [real * 0.9999, real, real * 1.0001, 1_000.0, 1e7, 3e7] {
                let said = Near::of(limit).reach(Angles::of(from), Angles::of(to));
                let truth = if real > limit { Reach::Beyond } else { Reach::Within };
                unclear += usize::from(said == Reach::Unclear && limit != real);
                assert!(said == truth || said == Reach::Unclear, "{from:?} {to:?} {limit}");
            }
        }
        assert!(unclear < 2_000, "{unclear} of a million");
    }
}
