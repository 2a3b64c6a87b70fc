//! The common base of all crates: hashes, slots, numbers as Redis writes them (long doubles and
//! scores, too), bits, glob patterns, maps and stacks that never move as a whole, seeded
//! randomness, deferred freeing, release of excess capacity, CRC folding, and the question "must I
//! yield?".
//!
//! Not here: I/O, clocks, threads. Code that needs time or randomness takes it as an argument.

pub mod bits;
pub mod extended;
pub mod fold;
pub mod glob;
pub mod hash;
pub mod hashtree;
mod id;
pub mod lazyfree;
pub mod limits;
pub mod long;
pub mod number;
pub mod preempt;
pub mod prng;
pub mod runs;
pub mod score;
pub mod slot;
pub mod spare;

/// Milliseconds since the Unix epoch.
pub type UnixMillis = u64;

pub use id::StreamId;
pub use preempt::Preempt;
pub use prng::Prng;
