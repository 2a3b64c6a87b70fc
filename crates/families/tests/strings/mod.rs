//! Tests of string commands: compared with redis-server 7.0.15, with a naive model and over several
//! cores, and by tables for commands that are newer than that server.

mod anywhere;
mod model;
mod oracle;
mod slices;
