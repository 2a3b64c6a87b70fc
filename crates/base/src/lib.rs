//! What every other crate stands on: hashes, slots, numbers as Redis writes them (80-bit floats
//! too), patterns, seeded randomness, and the question "must I yield?".
//!
//! Not here: input and output, clocks, threads. Whoever needs time or randomness is handed it.

pub mod digest;
pub mod extended;
pub mod glob;
pub mod hash;
pub mod lazyfree;
pub mod limits;
pub mod long;
pub mod number;
pub mod preempt;
pub mod prng;
pub mod slot;

/// Milliseconds since the Unix epoch.
pub type UnixMillis = u64;

pub use preempt::Preempt;
pub use prng::Prng;
