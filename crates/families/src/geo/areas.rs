//! The cells of a search: the center's cell, and those of its neighbours that the shape reaches.
//! The grid is so coarse that the shape reaches no farther.
//!
//! Source: `geohashCalculateAreasByShapeWGS84` and `membersOfAllNeighbors` of Redis 7.0.15. The
//! order of the cells decides the order of a reply, so it is Redis's, and so are the estimates.

use super::cell::{Cell, STEP_MAX};
use super::shape::{Bounds, Shape};
use arrayvec::ArrayVec;

/// The cell of the center and its neighbours.
pub(super) const AREAS_MAX: usize = 9;

/// Offsets of the cells (columns to the east, rows to the north), in Redis's order.
const BESIDE: [(i8, i8); AREAS_MAX] =
    [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

/// The cells to search, in order.
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
        // In a coarse grid, the neighbours on both sides may be the same cell.
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
    /// Half of the equator, in metres.
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

/// True if the neighbours of this cell reach as far as the bounds.
fn is_covered(center: Cell, Bounds { longitude, latitude }: Bounds) -> bool {
    let [north, south] = [1, -1].map(|north| center.beside(0, north).area());
    let [east, west] = [1, -1].map(|east| center.beside(east, 0).area());
    // Written in this direction so that NaN bounds count as reached.
    !(north.latitude.max < latitude.max
        || south.latitude.min > latitude.min
        || east.longitude.max < longitude.max
        || west.longitude.min > longitude.min)
}

/// True if the bounds reach beyond the center's cell to the neighbour on this side.
fn is_reached(center: Cell, bounds: Bounds, (east, north): (i8, i8)) -> bool {
    let area = center.area();
    !(north < 0 && area.latitude.min < bounds.latitude.min
        || north > 0 && area.latitude.max > bounds.latitude.max
        || east < 0 && area.longitude.min < bounds.longitude.min
        || east > 0 && area.longitude.max > bounds.longitude.max)
}
