//! The definition of a command: a row of a table, its arguments, its access, its result.
//!
//! - [`Command`] is the row: name, arity, keys, flags, shape. All that the engine must know about a
//!   command is a column; nothing compares names.
//! - [`Args`] is the cursor over a request's arguments; [`Refusal`] is why one was refused.
//! - [`Cx`] is the context of a point command: one database of one shard, a reply, the time.
//! - [`Flow`] is how it continues: done; a [`Stream`] read from a cut; a [`Job`] that edits aside.
//! - [`Wait`] is the wait of a blocking command.
//! - [`Call`] is the context of a command over several keys, and [`Answer`] its result.
//!
//! Not here: any command, connections.

#![forbid(unsafe_code)]

mod args;
mod call;
mod cx;
mod flow;
mod refusal;
mod row;
pub mod syntax;
mod text;
mod wait;

pub use args::Args;
pub use call::{Answer, Call, MultiFuture};
pub use cx::Cx;
pub use flow::{Flow, Job, Step, Stream};
pub use refusal::{Refusal, until_nul};
pub use row::{
    Command, Flags, FlagsFn, Group, KeyFlags, KeySpec, Keys, MultiFn, Place, PointFn, Run, Secret,
    Shape, specs,
};
pub use text::{BlobStream, reply_range, reply_str, reply_text};
pub use wait::{Condition, Look, Looking, Patience, Since, Taking, Wait, WaitFn, Want, When};
