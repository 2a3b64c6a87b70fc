//! The quick way through a pipeline: whole requests of plain form, several at a time.
//!
//! Nearly every request is an array of short strings that has arrived whole. Such ones are cut out
//! in one pass over their bytes, without a state between calls, and ahead of their turn, so that
//! the engine can ask the memory for their keys before it runs them. Whatever is not plain is left
//! to the parser's states, which know all forms and all errors; it is cut when its turn has come.

use crate::args::{Span, span};

/// Requests cut ahead of their turn: about as many cache misses as a processor has under way.
pub const AHEAD_MAX: usize = 16;
/// Arguments after which no further request is cut: about 2 us of cutting.
const ARGS_ENOUGH: usize = 64;
/// Arguments of one request.
const ARGS_MAX: usize = 1_024;
/// Bytes of one argument.
const ARG_BYTES_MAX: usize = 16 * 1024;

/// A request that waits for its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Its first byte in the buffer; its spans count from here.
    pub(crate) start: usize,
    /// One past its last byte.
    pub(crate) end: usize,
    /// Its first span.
    pub(crate) first: usize,
    /// One past its last span.
    pub(crate) last: usize,
}

/// Cuts plain requests out of `bytes` from `start` on, until something else comes. Arguments may
/// be `bulk_max` bytes long.
pub(crate) fn cut(
    bytes: &[u8],
    start: usize,
    bulk_max: usize,
    spans: &mut Vec<Span>,
    cuts: &mut Vec<Cut>,
) {
    let mut start = start;
    let bulk_max = bulk_max.min(ARG_BYTES_MAX);
    while cuts.len() < AHEAD_MAX && spans.len() < ARGS_ENOUGH {
        let first = spans.len();
        let Some(len) = plain(&bytes[start..], bulk_max, spans) else {
            spans.truncate(first);
            return;
        };
        cuts.push(Cut { start, end: start + len, first, last: spans.len() });
        start += len;
    }
}

/// The length of the request that `bytes` begin with, if it is whole and plain.
fn plain(bytes: &[u8], bulk_max: usize, spans: &mut Vec<Span>) -> Option<usize> {
    let (args, mut at) = header(bytes, 0, b'*', ARGS_MAX)?;
    if args == 0 {
        return None;
    }
    for _ in 0..args {
        let (len, start) = header(bytes, at, b'$', bulk_max)?;
        // Behind the bytes stand two more, which nobody looks at, as in Redis.
        at = start + len + 2;
        if at > bytes.len() {
            return None;
        }
        spans.push(span(start, start + len));
    }
    Some(at)
}

/// The number in the line at `at`, which begins with `kind`, and the index behind the line. `None`
/// for a number above `most`, and for whatever else the parser's states should look at.
#[inline]
fn header(bytes: &[u8], at: usize, kind: u8, most: usize) -> Option<(usize, usize)> {
    let digit = |at: usize| {
        let value = bytes.get(at)?.wrapping_sub(b'0');
        (value < 10).then_some(usize::from(value))
    };
    if *bytes.get(at)? != kind {
        return None;
    }
    let mut value = digit(at + 1)?;
    let mut at = at + 2;
    while *bytes.get(at)? != b'\r' {
        // A number that begins with zero is for the parser's states to refuse.
        value = if value == 0 { return None } else { value * 10 + digit(at)? };
        if value > most {
            return None;
        }
        at += 1;
    }
    (at + 1 < bytes.len()).then_some((value, at + 2))
}
