//! The searched shape: a circle, a box, or a polygon.

use super::cell::Window;
use super::earth::{
    Angles, LATITUDES, LONGITUDES, Near, Point, RADIUS_M, Reach, Span, degrees, distance,
    latitude_distance, radians,
};
use std::f64::consts::FRAC_PI_2;

/// The shape of a search.
#[derive(Clone, Debug)]
pub(super) enum Outline {
    /// All points within the radius.
    Circle {
        /// The radius in metres.
        radius: f64,
    },
    /// All points within half the height to the north or south, and half the width to the east or
    /// west.
    Box {
        /// The width in metres, from side to side.
        width: f64,
        height: f64,
    },
    /// All points within these corners on a map of longitudes and latitudes.
    Polygon { corners: Box<[Point]> },
}

impl Outline {
    pub(super) fn is_circle(&self) -> bool {
        matches!(self, Self::Circle { .. })
    }

    pub(super) fn is_box(&self) -> bool {
        matches!(self, Self::Box { .. })
    }
}

/// A shape, prepared for testing points.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// The origin of distances. For a polygon it is the middle of the corners.
    pub(super) center: Point,
    outline: Outline,
    /// The center, as angles.
    angles: Angles,
    /// The limit for the radius, or for half the width.
    near: Near,
}

/// The sides of the bounding box of a shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) longitude: Span,
    pub(super) latitude: Span,
}

/// From this difference in longitude on, in degrees, points count as half around the world.
const HALF_AROUND: f64 = 179.0;
/// Factor by which a latitude must exceed the limit to be surely too far.
const SURELY: f64 = 1.0 + 1e-9;

impl Shape {
    pub(super) fn new(center: Point, outline: Outline) -> Self {
        let (center, limit) = match &outline {
            Outline::Circle { radius } => (center, *radius),
            Outline::Box { width, .. } => (center, width / 2.0),
            Outline::Polygon { corners } => (middle(corners), 0.0),
        };
        Self { center, angles: Angles::of(center), near: Near::of(limit), outline }
    }

    /// True if the shape contains `point`.
    #[inline]
    pub(super) fn contains(&self, point: Point) -> bool {
        match &self.outline {
            Outline::Circle { radius } => self.is_near(point, *radius),
            Outline::Box { width, height } => {
                if latitude_distance(point.latitude, self.center.latitude) > height / 2.0 {
                    return false;
                }
                let aside = Point { longitude: self.center.longitude, ..point };
                match self.near.reach(Angles::of(point), Angles::of(aside)) {
                    Reach::Within => true,
                    Reach::Beyond => false,
                    Reach::Unclear => not_beyond(distance(point, aside), width / 2.0),
                }
            }
            Outline::Polygon { corners } => surround(corners, point),
        }
    }

    #[inline]
    fn is_near(&self, point: Point, radius: f64) -> bool {
        let far = latitude_distance(self.center.latitude, point.latitude) > radius * SURELY;
        if far && (self.center.longitude - point.longitude).abs() < HALF_AROUND {
            return false;
        }
        match self.near.reach(self.angles, Angles::of(point)) {
            Reach::Within => true,
            Reach::Beyond => false,
            Reach::Unclear => not_beyond(distance(self.center, point), radius),
        }
    }

    /// The cost of deciding whether a point is inside, in multiples of the usual one.
    pub(super) fn effort(&self) -> usize {
        /// Corners that can be tested in the time of one distance.
        const CORNERS: usize = 8;
        match &self.outline {
            Outline::Polygon { corners } => corners.len().div_ceil(CORNERS),
            Outline::Circle { .. } | Outline::Box { .. } => 1,
        }
    }

    /// The sides of the bounding box, as Redis estimates them.
    pub(super) fn bounds(&self) -> Bounds {
        let (width, height) = match &self.outline {
            Outline::Circle { radius } => (*radius, *radius),
            Outline::Box { width, height } => (width / 2.0, height / 2.0),
            Outline::Polygon { corners } => return around(corners),
        };
        let Point { longitude, latitude } = self.center;
        let up = degrees(height / RADIUS_M);
        // The side nearer to a pole spans more degrees of longitude.
        let edge = if latitude < 0.0 { latitude - up } else { latitude + up };
        let aside = degrees(width / RADIUS_M / radians(edge).cos());
        Bounds {
            longitude: Span { min: longitude - aside, max: longitude + aside },
            latitude: Span { min: latitude - up, max: latitude + up },
        }
    }

    /// The window that contains the whole shape.
    ///
    /// A path of length `width` comes at most `width` closer to a pole than its end, and degrees of
    /// longitude are shortest there. A shape that is wide, near a pole or across the date line gets
    /// the whole grid.
    pub(super) fn window(&self) -> Window {
        /// Degrees of longitude from the center.
        const WIDE: f64 = 20.0;
        /// A margin larger than all rounding errors.
        const MARGIN: f64 = 1.0 + 1e-6;
        let (width, height) = match &self.outline {
            Outline::Circle { radius } => (*radius, *radius),
            Outline::Box { width, height } => (width / 2.0, height / 2.0),
            Outline::Polygon { corners } => {
                let Bounds { longitude, latitude } = around(corners);
                return Window::around(longitude, latitude);
            }
        };
        let Point { longitude, latitude } = self.center;
        let (across, up) = (width / RADIUS_M, degrees(height / RADIUS_M) * MARGIN);
        let nearest_to_pole = radians(latitude.abs() + up) + across;
        let aside = degrees(across / nearest_to_pole.cos()) * MARGIN;
        let longitude = Span { min: longitude - aside, max: longitude + aside };
        let is_flat = nearest_to_pole < FRAC_PI_2 && aside < WIDE;
        if is_flat && LONGITUDES.min < longitude.min && longitude.max < LONGITUDES.max {
            Window::around(longitude, Span { min: latitude - up, max: latitude + up })
        } else {
            Window::ALL
        }
    }

    /// Metres from the center to the farthest point of the shape.
    pub(super) fn reach_m(&self) -> f64 {
        match &self.outline {
            Outline::Circle { radius } => *radius,
            Outline::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
            Outline::Polygon { corners } => {
                let Bounds { longitude, latitude } = around(corners);
                let sides = [longitude.min, longitude.max].into_iter();
                let far = sides.flat_map(|longitude| {
                    [latitude.min, latitude.max].map(|latitude| Point { longitude, latitude })
                });
                far.map(|corner| distance(self.center, corner)).fold(0.0, f64::max)
            }
        }
    }
}

/// As in Redis, NaN (the antipode) counts as inside.
fn not_beyond(distance: f64, limit: f64) -> bool {
    distance <= limit || distance.is_nan()
}

fn around(corners: &[Point]) -> Bounds {
    let (mut longitude, mut latitude) = (turned(LONGITUDES), turned(LATITUDES));
    for corner in corners {
        longitude.min = longitude.min.min(corner.longitude);
        longitude.max = longitude.max.max(corner.longitude);
        latitude.min = latitude.min.min(corner.latitude);
        latitude.max = latitude.max.max(corner.latitude);
    }
    Bounds { longitude, latitude }
}

/// An empty span, which any number extends.
fn turned(span: Span) -> Span {
    Span { min: span.max, max: span.min }
}

/// The middle of the corners: the mean of their positions in space, projected onto the sphere.
fn middle(corners: &[Point]) -> Point {
    let mut sum = [0.0; 3];
    for corner in corners {
        let (longitude, latitude) = (radians(corner.longitude), radians(corner.latitude));
        sum[0] += latitude.cos() * longitude.cos();
        sum[1] += latitude.cos() * longitude.sin();
        sum[2] += latitude.sin();
    }
    let [x, y, z] = sum;
    let latitude = degrees(z.atan2((x * x + y * y).sqrt()));
    Point {
        longitude: degrees(y.atan2(x)),
        latitude: latitude.clamp(LATITUDES.min, LATITUDES.max), // Three corners may enclose a pole.
    }
}

/// True when a line from `point` to the west crosses an odd number of sides.
fn surround(corners: &[Point], point: Point) -> bool {
    let mut before = corners[corners.len() - 1];
    let mut is_inside = false;
    for corner in corners {
        if (corner.latitude > point.latitude) != (before.latitude > point.latitude) {
            let crossing = (before.longitude - corner.longitude)
                * (point.latitude - corner.latitude)
                / (before.latitude - corner.latitude)
                + corner.longitude;
            is_inside ^= point.longitude < crossing;
        }
        before = *corner;
    }
    is_inside
}

#[cfg(test)]
mod tests {
    use super::super::cell::{Cell, point_of};
    use super::*;
    use darter_base::Prng;

    /// A random number between -1 and 1, often close to either.
    fn share(prng: &mut Prng) -> f64 {
        let even = prng.below(1 << 53) as f64 / (1_u64 << 52) as f64 - 1.0;
        if prng.chance(50) { even } else { even.signum() * (1.0 - even.abs() * 1e-4) }
    }

    fn outline(center: Point, prng: &mut Prng) -> Outline {
        let reach = 10_f64.powf(7.5 - prng.below(7_000) as f64 / 1e3);
        match prng.below(3) {
            0 => Outline::Circle { radius: reach },
            1 => Outline::Box { width: reach, height: reach * (share(prng) + 1.0) },
            _ => {
                let degrees = degrees(reach / RADIUS_M).min(40.0);
                let mut corner = || Point {
                    longitude: (center.longitude + degrees * share(prng)).clamp(-180.0, 180.0),
                    latitude: (center.latitude + degrees * share(prng)).clamp(-85.0, 85.0),
                };
                Outline::Polygon { corners: (0..5).map(|_| corner()).collect() }
            }
        }
    }

    #[test] // Also far north and across the date line; most points are near an edge.
    fn the_window_of_a_shape_contains_the_whole_shape() {
        let mut prng = Prng::from_seed(11);
        let (mut inside, mut outside) = (0, 0);
        for _ in 0..4_000 {
            let center =
                Point { longitude: 180.0 * share(&mut prng), latitude: 85.0 * share(&mut prng) };
            let shape = Shape::new(center, outline(center, &mut prng));
            let (window, Bounds { longitude, latitude }) = (shape.window(), shape.bounds());
            for _ in 0..50 {
                let near = |span: Span, prng: &mut Prng| span.at(0.5 + 0.51 * share(prng));
                let (longitude, latitude) = (near(longitude, &mut prng), near(latitude, &mut prng));
                if !LONGITUDES.contains(longitude) || !LATITUDES.contains(latitude) {
                    continue;
                }
                let score = Cell::score_of(Point { longitude, latitude });
                let is_in = shape.contains(point_of(score));
                assert!(window.contains(score) || !is_in, "{shape:?} {longitude} {latitude}");
                inside += u32::from(is_in);
                outside += u32::from(!window.contains(score));
            }
        }
        assert!(inside > 10_000 && outside > 1_000, "{inside} {outside}");
    }
}
