//! The settings of an instance of `cjson`.

use darter_lua::{Error, Lua};

/// The settings of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) sparse_convert: i32,
    pub(super) sparse_ratio: i32,
    pub(super) sparse_safe: i32,
    pub(super) encode_depth: i32,
    pub(super) decode_depth: i32,
    pub(super) precision: i32,
    pub(super) encode_invalid: i32,
    pub(super) decode_invalid: i32,
}

impl Settings {
    /// The places of the settings in the table, and their defaults.
    pub(super) const DEFAULTS: [i32; 9] = [0, 2, 10, 1000, 1000, 14, 1, 0, 1];

    /// Reads the settings of the running function.
    pub(super) fn read(lua: &mut Lua<'_>) -> Result<Self, Error> {
        lua.push_own()?;
        let mut values = Self::DEFAULTS;
        for (index, value) in values.iter_mut().enumerate() {
            lua.get_element(-1, index + 1)?;
            *value = lua.number(-1).map_or(*value, crate::values::to_i32);
            lua.pop(1);
        }
        lua.pop(1);
        let [
            sparse_convert,
            sparse_ratio,
            sparse_safe,
            encode_depth,
            decode_depth,
            precision,
            _, // Whether a buffer is kept: there is none.
            encode_invalid,
            decode_invalid,
        ] = values;
        Ok(Self {
            sparse_convert,
            sparse_ratio,
            sparse_safe,
            encode_depth,
            decode_depth,
            precision,
            encode_invalid,
            decode_invalid,
        })
    }
}
