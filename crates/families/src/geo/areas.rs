//! The cells of a search: the one with the center, in a grid so coarse that the shape reaches no
//! farther than its neighbours, and the neighbours that the shape reaches.
//!
//! Source: `geohashCalculateAreasByShapeWGS84` and `membersOfAllNeighbors` of Redis 7.0.15. Their
//! order is the order of a reply, so it is kept, and so are their estimates.

use super::cell::{Cell, STEP_MAX};
use super::shape::{Bounds, Shape};
use arrayvec::ArrayVec;

/// The cell of the center and its neighbours.
pub(super) const AREAS_MAX: usize = 9;

/// Columns to the east and rows to the north, in Redis's order.
const BESIDE: [(i8, i8); AREAS_MAX] =
    [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

/// The cells to be looked at, in their order.
pub(super) fn of(shape: &Shape) -> ArrayVec<Cell, AREAS_MAX> {
    let bounds = shape.bounds();
    let mut step = step_for(shape.reach_m(), shape.center.latitude);
    let mut center = Cell::of(shape.center, step);
    if step > 1 && !is_covered(center, bounds) {
        step -= 1;
        center = Cell::of(shape.center, step);
    }
    let mut cells = ArrayVec::new();
    let mut last = None;
    for (at, (east, north)) in BESIDE.into_iter().enumerate() {
        let cell = center.beside(east, north);
        // Where there are few cells, neighbours on both sides are one.
        let is_again = last.is_some_and(|last| last == cell);
        if is_again || step > 1 && !is_reached(center, bounds, (east, north)) {
            continue;
        }
        cells.push(cell);
        last = (at > 0).then_some(cell);
    }
    cells
}

/// The step of the grid whose cells are about as wide as `reach_m`.
fn step_for(reach_m: f64, latitude: f64) -> u32 {
    /// Half of the equator.
    const HALF_AROUND_M: f64 = 20_037_726.37;
    if reach_m == 0.0 {
        return STEP_MAX;
    }
    let (mut step, mut reach) = (1_i32, reach_m);
    while reach < HALF_AROUND_M {
        reach *= 2.0;
        step += 1;
    }
    step -= 2;
    // Cells are narrower towards the poles.
    step -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    step.clamp(1, STEP_MAX.cast_signed()).unsigned_abs()
}

/// True when the cells beside this one reach as far as the bounds.
fn is_covered(center: Cell, Bounds { longitude, latitude }: Bounds) -> bool {
    let [north, south] = [1, -1].map(|north| center.beside(0, north).area());
    let [east, west] = [1, -1].map(|east| center.beside(east, 0).area());
    // The other way round, bounds that are no numbers would not be reached.
    !(north.latitude.max < latitude.max
        || south.latitude.min > latitude.min
        || east.longitude.max < longitude.max
        || west.longitude.min > longitude.min)
}

/// True when the bounds reach beyond the center's cell to the neighbour on this side.
fn is_reached(center: Cell, bounds: Bounds, (east, north): (i8, i8)) -> bool {
    let area = center.area();
    !(north < 0 && area.latitude.min < bounds.latitude.min
        || north > 0 && area.latitude.max > bounds.latitude.max
        || east < 0 && area.longitude.min < bounds.longitude.min
        || east > 0 && area.longitude.max > bounds.longitude.max)
}
