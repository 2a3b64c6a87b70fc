//! Requests that outlive the buffer that they came in, side by side: short ones are copied, long
//! ones are shared. So a batch, or what is queued after MULTI, costs no allocation for each.

use darter_resp::{Args, Request, Span};
use std::sync::Arc;

/// Longer arguments are shared instead of copied.
const COPY_MAX: usize = 4 * 1024;
/// So are more of them.
const COPIED_ARGS_MAX: usize = 64;

/// The bytes of the short ones, and where their arguments are.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// One of them.
#[derive(Debug)]
pub(crate) enum Kept {
    /// Its arguments are these of the spans.
    Spans(u32, u32),
    /// It is shared.
    Owned(Arc<Request>),
}

impl Requests {
    /// Keeps a request.
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

    /// A request that was kept here.
    pub(crate) fn args<'a>(&'a self, kept: &'a Kept) -> Args<'a> {
        match kept {
            Kept::Spans(first, end) => {
                Args::flat(&self.bytes, &self.spans[*first as usize..*end as usize])
            }
            Kept::Owned(request) => Args::owned(request),
        }
    }

    /// Forgets them; the memory stays.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// Bytes of memory, without what is shared.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}
