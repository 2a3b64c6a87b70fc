//! The server: joins the tables of commands, connects the parts, and runs a thread for each core.
//!
//! - `engine` is one core, from received bytes to bytes to send, without sockets, threads or
//!   clocks. `Core::turn` is called by the thread here, and by the simulator.
//! - `admin` contains the commands about connections and the server itself.
//! - `settings` is the table of all settings.
//! - `shared` is the state that all cores share.
//! - `boot` starts the threads, loads the data, and stops everything in order.
//!
//! Not here: data structures. The engine accesses data only through rows of the command table.

#![forbid(unsafe_code)]

mod absent;
pub mod admin;
mod arrivals;
pub mod boot;
mod clock;
mod doors;
pub mod engine;
mod files;
pub mod journal;
mod knock;
mod libraries;
mod listeners;
mod load;
pub mod log;
mod machine;
mod post;
mod replay;
pub mod saving;
pub mod settings;
pub mod shared;
mod spent;
mod spin;
pub mod supervisor;
mod thread;

pub use darter_runtime::heap::Counting;
