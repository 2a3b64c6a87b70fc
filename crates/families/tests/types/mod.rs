//! Values of all types in a database: their descriptions, packed small ones, and random changes
//! against a naive model.

mod model;
mod packed;
mod values;
