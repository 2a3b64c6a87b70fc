//! The parts of a core. No part refers to the core, so each can be read and tested alone.

pub(super) mod background;
pub(crate) mod batches;
pub(super) mod census;
pub(crate) mod changes;
pub(super) mod clients;
pub(super) mod clock;
pub(super) mod corked;
pub(super) mod hot;
pub(super) mod idle;
pub(super) mod journal;
pub(crate) mod latency;
pub(super) mod local;
pub(super) mod meter;
pub(crate) mod moves;
pub(super) mod outgoing;
pub(crate) mod pubsub;
pub(crate) mod receiving;
pub(super) mod release;
pub(crate) mod requests;
pub(super) mod saving;
pub(crate) mod slowlog;
pub(crate) mod tracking;
pub(crate) mod waits;
pub(super) mod watchers;
pub(super) mod writers;
