//! The family of lists: beside redis-server 7.0.15, against a naive model, and by what it keeps to
//! in slices.

mod large;
mod model;
mod movem;
mod oracle;
