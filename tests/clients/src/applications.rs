//! What applications are built on, as it is published: sessions, rooms.
//!
//! Each is given a small workload, and what comes of it is checked.

use crate::Check;
use crate::run::node;

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("connect-redis (node-redis)",     |server| node(&[server], "sessions.js")),
    ("socket.io's adapters (ioredis)", |server| node(&[server], "socketio.js")),
];
