//! `math.random` and `math.randomseed`.

use crate::session::{Call, Step};
use crate::values::{number_at, to_i32};
use darter_lua::Error;

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
