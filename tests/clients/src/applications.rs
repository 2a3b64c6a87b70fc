//! Published libraries that applications are built on: queues, locks, limiters, sessions, rooms.
//!
//! Each gets a small workload, and the results are checked. The queues' workers are separate
//! processes, which end with the program that started them.

use crate::run::{go, java, node, python_app, ruby};
use crate::{Check, text};
use darter_testkit::{Server, Shape};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("BullMQ (ioredis)",                     |server| node(&[server], "bullmq.js")),
    ("Sidekiq (redis-rb)",                   |server| ruby(server, "sidekiq_queue.rb")),
    ("Celery (redis-py)",                    |server| python_app(server, "celery_queue.py")),
    ("RQ (redis-py)",                        |server| python_app(server, "rq_queue.py")),
    ("asynq (go-redis)",                     |server| go(server, "asynq")),
    ("Redisson",                             |server| java(server, "RedissonProgram.java")),
    ("redlock over three servers (ioredis)", redlock),
    ("redis-py: locks, scripts",             |server| python_app(server, "locks.py")),
    ("redis-py: functions",                  |server| python_app(server, "functions.py")),
    ("go-redis: functions",                  |server| go(server, "functions")),
    ("go-redis: scripts",                    |server| go(server, "scripts")),
    ("rate-limiter-flexible",                |server| node(&[server], "limiters.js")),
    ("connect-redis (node-redis)",           |server| node(&[server], "sessions.js")),
    ("socket.io's adapters (ioredis)",       |server| node(&[server], "socketio.js")),
];

fn redlock(server: &Server) -> Result<(), String> {
    let second = Server::subject(Shape::default()).map_err(text)?;
    let third = Server::subject(Shape::default()).map_err(text)?;
    node(&[server, &second, &third], "locks.js")
}
