//! The family of strings: beside redis-server 7.0.15, against a naive model, over several cores,
//! and by tables for what is newer than that server.

mod anywhere;
mod model;
mod oracle;
mod slices;
