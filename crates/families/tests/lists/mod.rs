//! Tests of the commands of lists: compared with redis-server 7.0.15, with a naive model, and by
//! the limits of their slices.

mod large;
mod model;
mod movem;
mod oracle;
