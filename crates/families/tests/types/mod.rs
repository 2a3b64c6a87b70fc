//! Tests of values of all types in a database: their descriptions, small packed values, and random
//! changes against a naive model.

mod model;
mod packed;
mod values;
