//! The fast path for pipelines: complete requests of plain form, several at a time.
//!
//! Nearly every request is an array of short strings that has fully arrived. Those are parsed in
//! one pass over their bytes, without a state machine, and ahead of their turn, so that the engine
//! can prefetch their keys before it runs them. All other requests are parsed in their turn by the
//! parser's states, which handle all forms and all errors.

use crate::args::{NotePlace, Span};

/// Requests parsed ahead of their turn: about as many cache misses as a processor has under way.
pub const LOOKAHEAD_MAX: usize = 16;
/// After this many arguments, no further request is parsed ahead.
const ARGS_ENOUGH: usize = 64;
/// The most arguments of a request that is parsed ahead.
pub(crate) const ARGS_MAX: usize = 1_024;
/// The longest argument of a request that is parsed ahead.
const ARG_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(ARGS_MAX * (ARG_BYTES_MAX + 32) < u32::MAX as usize, "spans are narrow");

/// A request parsed ahead of its turn.
#[derive(Debug)]
pub(crate) struct Cut {
    /// Index of its first byte in the buffer; its spans are relative to it.
    pub(crate) start: usize,
    /// Index after its last byte.
    pub(crate) end: usize,
    /// Index of its first span.
    pub(crate) first: usize,
    /// Index after its last span.
    pub(crate) last: usize,
    /// Facts determined in advance.
    pub(crate) note: NotePlace,
}

/// Parses plain requests in `bytes` from `start` on, up to anything else. Arguments may be
/// `bulk_max` bytes long.
pub(crate) fn cut(
    bytes: &[u8],
    start: usize,
    bulk_max: usize,
    spans: &mut Vec<Span>,
    cuts: &mut Vec<Cut>,
) {
    let mut start = start;
    let bulk_max = bulk_max.min(ARG_BYTES_MAX);
    while cuts.len() < LOOKAHEAD_MAX && spans.len() < ARGS_ENOUGH {
        let first = spans.len();
        let Some(len) = plain(&bytes[start..], ARGS_MAX, bulk_max, spans) else {
            spans.truncate(first);
            return;
        };
        let (end, last) = (start + len, spans.len());
        cuts.push(Cut { start, end, first, last, note: NotePlace::default() });
        start = end;
    }
}

/// The length of the request at the front of `bytes`, if it is complete and plain: an array of at
/// most `args_max` strings of at most `bulk_max` bytes each. The spans of its arguments are appended
/// to `spans`, also a part of them if the result is `None`. `bytes` must be shorter than 4 GiB.
///
/// Cost: O(arguments).
#[inline]
#[must_use]
pub fn plain(
    bytes: &[u8],
    args_max: usize,
    bulk_max: usize,
    spans: &mut Vec<Span>,
) -> Option<usize> {
    let (args, mut at) = header(bytes, 0, b'*', args_max)?;
    if args == 0 {
        return None;
    }
    for _ in 0..args {
        let (len, start) = header(bytes, at, b'$', bulk_max)?;
        // Two more bytes follow; as in Redis, they are not checked.
        at = start + len + 2;
        if at > bytes.len() {
            return None;
        }
        // Far below 4 GiB: see the constants.
        spans.push(Span { start: start as u32, end: (start + len) as u32 });
    }
    Some(at)
}

/// The number in the line at `at`, which begins with `kind`, and the index after the line. `None`
/// for a number above `most`, and for lines that are left to the parser's states. Nearly all
/// numbers have one or two digits, which are read without a loop.
#[inline]
fn header(bytes: &[u8], at: usize, kind: u8, most: usize) -> Option<(usize, usize)> {
    let digit = |byte: u8| usize::from(byte - b'0');
    let line = bytes.get(at..)?;
    // Every line of a complete request has at least four bytes, including its end.
    let (value, end) = match *line.first_chunk::<4>()? {
        [first, ..] if first != kind => return None,
        [_, ones @ b'0'..=b'9', b'\r', _] => (digit(ones), at + 4),
        [_, tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r'] if line.len() > 4 => {
            (digit(tens) * 10 + digit(ones), at + 5)
        }
        _ => return number(bytes, at + 1, most),
    };
    (value <= most).then_some((value, end))
}

/// [`header`] of a line with any number of digits, which begin at `at`.
fn number(bytes: &[u8], at: usize, most: usize) -> Option<(usize, usize)> {
    let digit = |at: usize| {
        let value = bytes.get(at)?.wrapping_sub(b'0');
        (value < 10).then_some(usize::from(value))
    };
    let mut value = digit(at)?;
    let mut at = at + 1;
    while *bytes.get(at)? != b'\r' {
        // A leading zero is for the parser's states to reject.
        value = if value == 0 { return None } else { value * 10 + digit(at)? };
        if value > most {
            return None;
        }
        at += 1;
    }
    // One more byte follows the CR. It may not have arrived; then the bytes after it are missing,
    // too.
    Some((value, at + 2))
}

#[cfg(test)]
mod tests {
    use crate::Parser;

    /// A request of `args` arguments of `arg_bytes` bytes each.
    fn request(args: usize, arg_bytes: usize) -> Vec<u8> {
        let arg =
            [format!("${arg_bytes}\r\n").as_bytes(), &vec![b'x'; arg_bytes], b"\r\n"].concat();
        [format!("*{args}\r\n").into_bytes(), arg.repeat(args)].concat()
    }

    /// How many requests are parsed ahead in `bytes`, by a parser that allows `bulk_max`.
    fn cuts(bytes: &[u8], bulk_max: usize) -> usize {
        let mut parser = Parser::new(bulk_max, true);
        parser.feed(bytes);
        let count = parser.parse_ahead();
        assert_eq!(parser.lookahead().count(), count);
        count
    }

    #[test]
    fn parsing_ahead_stops_at_each_bound() {
        #[rustfmt::skip] // A table.
        let cases: &[(&str, usize, usize, usize, usize)] = &[
            // name                       requests  args  bytes  cut
            ("none",                             0,    1,     1,   0),
            ("one",                              1,    1,     1,   1),
            ("an empty argument",                1,    1,     0,   1),
            ("as many as there may be",         16,    1,     1,  16),
            ("one more",                        17,    1,     1,  16),
            ("arguments enough",                 9,   32,     1,   2),
            ("nearly enough",                    9,   21,     1,   4),
            ("one alone with more",              1,   65,     1,   1),
            ("as long as it may be",             1, 1024,     1,   1),
            ("one argument more",                1, 1025,     1,   0),
            ("an argument as long as may be",    1,    1, 16384,   1),
            ("one byte more",                    1,    1, 16385,   0),
        ];
        for &(what, requests, args, arg_bytes, expected) in cases {
            let bytes = request(args, arg_bytes).repeat(requests);
            assert_eq!(cuts(&bytes, 512 << 20), expected, "{what}");
        }
        for (bulk_max, expected) in [(12, 1), (11, 0)] {
            assert_eq!(cuts(&request(2, 12), bulk_max), expected, "bulk_max={bulk_max}");
        }
    }

    #[test] // All others are left to the parser's states.
    fn only_complete_plain_requests_take_the_fast_path() {
        let whole = [request(12, 10), request(2, 0)].concat();
        let first = request(12, 10).len();
        for len in 0..=whole.len() {
            let expected = usize::from(len >= first) + usize::from(len == whole.len());
            assert_eq!(cuts(&whole[..len], 512 << 20), expected, "{len} bytes");
        }
        let odd = [
            "PING\r\n",
            "*0\r\n",
            "*-1\r\n",
            "*01\r\n$1\r\nx\r\n",
            "*1\r\n$01\r\nx\r\n",
            "*1\r\n$00\r\n\r\n",
            "*:\r\n$1\r\nx\r\n",
            "*1:\r\n$1\r\nx\r\n",
            "*/\r\n$1\r\nx\r\n",
            "*\r\n$1\r\nx\r\n",
            "*1\r\n$\r\nx\r\n",
            "*1\r\n:1\r\nx\r\n",
            "$1\r\n$1\r\nx\r\n",
        ];
        for text in odd {
            // Followed by more bytes, in case it is read past its end.
            let bytes = [text.as_bytes(), &request(40, 10)].concat();
            assert_eq!(cuts(&bytes, 512 << 20), 0, "{text:?}");
        }
    }
}
