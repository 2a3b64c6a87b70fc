//! `math.random` and `math.randomseed`: the generator of `drand48`, the same on every machine.

use crate::values::{Call, Step, number_at, to_i32};
use darter_lua::Error;

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
    fn seed(&mut self, seed: i32) {
        self.0 = u64::from(seed.cast_unsigned()) << 16 | 0x330E;
    }

    /// A number from 0 up to, but without, 1.
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
        let value = (self.0 >> 17) % MAX;
        value as f64 / MAX as f64
    }
}

/// `math.random([m [, n]])`.
pub(crate) fn random(cx: Call<'_, '_>) -> Result<Step, Error> {
    let fraction = cx.host.random.fraction();
    let lua = &mut cx.lua;
    let value = match lua.top() {
        0 => fraction,
        1 => {
            let high = to_i32(number_at(lua, 1)?);
            if high < 1 {
                return Err(Error::argument(1, "interval is empty"));
            }
            (fraction * f64::from(high)).floor() + 1.0
        }
        2 => {
            let (low, high) = (to_i32(number_at(lua, 1)?), to_i32(number_at(lua, 2)?));
            if low > high {
                return Err(Error::argument(2, "interval is empty"));
            }
            let width = high.wrapping_sub(low).wrapping_add(1);
            (fraction * f64::from(width)).floor() + f64::from(low)
        }
        _ => return Err(Error::located("wrong number of arguments")),
    };
    lua.push_number(value)?;
    Ok(Step::Return(1))
}

/// `math.randomseed(seed)`.
pub(crate) fn randomseed(cx: Call<'_, '_>) -> Result<Step, Error> {
    let seed = to_i32(number_at(&cx.lua, 1)?);
    cx.host.random.seed(seed);
    Ok(Step::Return(0))
}
