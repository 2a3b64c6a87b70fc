//! Hashes the items of a request for a filter, piece by piece.

use crate::text::piece;
use darter_command::Args;
use darter_keyspace::Fresh;
use darter_resp::{self as resp, Request};
use darter_structs::filter::{Hashing, Probe};
use std::sync::Arc;

/// The remaining items: all arguments from some index on.
pub(crate) struct ItemHashes {
    request: Arc<Request>,
    next: usize,
    /// The unfinished hash of a long item, and the bytes hashed so far.
    begun: Option<(Box<Hashing>, usize)>,
}

impl ItemHashes {
    /// Hashes the remaining arguments.
    pub(crate) fn of(args: Args<'_>) -> Self {
        Self { request: args.all().to_request(), next: args.position(), begun: None }
    }

    /// The number of items left.
    pub(crate) fn left(&self) -> usize {
        self.request.len() - self.next
    }

    /// The request with the items.
    pub(crate) fn args(&self) -> resp::Args<'_> {
        resp::Args::owned(&self.request)
    }

    /// The item whose probe was returned last.
    pub(crate) fn last(&self) -> Fresh<'_> {
        let value = Args::new(self.args(), self.next - 1).value();
        value.unwrap_or(Fresh::Bytes(b""))
    }

    /// Hashes the next piece of the next item. Returns the item's probe after its last piece.
    pub(crate) fn step(&mut self) -> Option<Probe> {
        let value = Args::new(resp::Args::owned(&self.request), self.next).value();
        let value = value.unwrap_or(Fresh::Bytes(b""));
        let index = self.begun.as_ref().map_or(0, |(_, index)| *index);
        let bytes = piece(value, index).unwrap_or_default();
        let is_last = piece(value, index + 1).is_none();
        if is_last && index == 0 {
            self.next += 1;
            return Some(Probe::of(bytes));
        }
        let (hashing, index) = self.begun.get_or_insert_default();
        hashing.update(bytes);
        *index += 1;
        let probe = is_last.then(|| hashing.finish());
        if is_last {
            (self.begun, self.next) = (None, self.next + 1);
        }
        probe
    }
}
