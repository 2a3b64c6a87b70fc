//! Requests that outlive their receive buffer, stored side by side. Short requests are copied, and
//! long ones are shared. So a batch, or a MULTI, needs no allocation per request.

use darter_resp::{Args, Request, Span};
use std::sync::Arc;

/// A longer argument is shared instead of copied.
const COPY_MAX: usize = 4 * 1024;
/// A request with more arguments is shared instead of copied.
const COPIED_ARGS_MAX: usize = 64;

/// The bytes of short requests, and the ranges of their arguments.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// A stored request.
#[derive(Debug)]
pub(crate) enum Kept {
    /// A range of indexes in the list of arguments.
    Spans(u32, u32),
    /// A long request, shared.
    Owned(Arc<Request>),
}

impl Requests {
    /// Stores a request, and returns its entry.
    pub(crate) fn keep(&mut self, args: Args<'_>) -> Kept {
        if args.len() > COPIED_ARGS_MAX || args.total_bytes() > COPY_MAX {
            return Kept::Owned(args.to_request());
        }
        let place = |at: usize| u32::try_from(at).expect("a portion of requests stays small");
        let first = place(self.spans.len());
        for arg in args.iter() {
            let start = place(self.bytes.len());
            self.bytes.extend_from_slice(arg);
            self.spans.push(Span { start, end: place(self.bytes.len()) });
        }
        Kept::Spans(first, place(self.spans.len()))
    }

    /// The arguments of a stored request.
    pub(crate) fn args<'a>(&'a self, kept: &'a Kept) -> Args<'a> {
        match kept {
            Kept::Spans(first, end) => {
                Args::flat(&self.bytes, &self.spans[*first as usize..*end as usize])
            }
            Kept::Owned(request) => Args::owned(request),
        }
    }

    /// Removes all requests, but keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// Bytes of memory, apart from shared requests.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}
