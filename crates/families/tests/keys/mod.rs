//! Tests of the commands of keys on one to four cores: compared with redis-server 7.0.15, and with
//! models where Redis leaves the order open.

mod idle;
mod large;
mod pinned;
mod replies;
mod scan;
