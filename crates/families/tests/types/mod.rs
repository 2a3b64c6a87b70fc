//! The types' values in a database: what they say of themselves, how small ones are packed, and all
//! of them beside a naive model.

mod model;
mod packed;
mod values;
