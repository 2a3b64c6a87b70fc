//! Encoding of replies, in RESP2 and RESP3.

use crate::Output;
use darter_base::number;

/// Numbers below this have at most eight digits; with type and CRLF they fit a word.
const EIGHT_DIGITS: i64 = 100_000_000;
/// The end of a line, as a word.
const CRLF: u128 = u16::from_le_bytes(*b"\r\n") as u128;

/// Encodes one client's replies into its [`Output`].
///
/// Where the two versions of the protocol differ, the method takes the richer meaning and writes it
/// in the version requested with HELLO: a map becomes a flat array in RESP2, null becomes `$-1`.
pub struct Reply<'a> {
    /// The output.
    pub out: &'a mut Output,
    resp3: bool,
}

impl<'a> Reply<'a> {
    /// Encodes into `out`; in RESP3 if `resp3` is true.
    pub fn new(out: &'a mut Output, resp3: bool) -> Self {
        Self { out, resp3 }
    }

    /// True when the client speaks RESP3.
    #[must_use]
    pub fn is_resp3(&self) -> bool {
        self.resp3
    }

    /// `+text`.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.out.tail().extend_from_slice(b"+OK\r\n");
    }

    /// `-line`: the line begins with the error's code. Line breaks become blanks.
    pub fn error(&mut self, line: &[u8]) {
        let blank = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
        let clean: Vec<u8> = line.iter().map(blank).collect();
        self.line(b'-', &clean);
    }

    /// `:value`.
    pub fn int(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// `:value`, for counts.
    pub fn count(&mut self, value: usize) {
        self.header(b':', i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// A bulk string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.bulk_header(bytes.len());
        self.out.copy(bytes);
        self.crlf();
    }

    /// The decimal text of `value` as a bulk string.
    #[inline]
    pub fn bulk_int(&mut self, value: i64) {
        if (0..EIGHT_DIGITS).contains(&value) {
            let (digits, len) = number::few_digits(value.unsigned_abs());
            let head = u128::from(b'$') | u128::from(b'0' + len as u8) << 8 | CRLF << 16;
            return self
                .line_of_word(head | u128::from(digits) << 32 | CRLF << (32 + 8 * len), 6 + len);
        }
        self.bulk_long_int(value);
    }

    /// [`Reply::bulk_int`] for an unsigned number.
    #[inline(never)]
    fn bulk_long_int(&mut self, value: i64) {
        let mut text = [0; number::I64_TEXT_MAX];
        let text = number::i64_text(&mut text, value);
        self.bulk(text);
    }

    /// The header of a bulk string of `len` bytes. Write these into `out`, then call
    /// [`Reply::crlf`].
    #[inline]
    pub fn bulk_header(&mut self, len: usize) {
        self.header(b'$', i64::try_from(len).unwrap_or(i64::MAX));
    }

    /// The end of a bulk string written by hand.
    #[inline]
    pub fn crlf(&mut self) {
        self.out.tail().extend_from_slice(b"\r\n");
    }

    /// Null: `$-1` or `_`.
    pub fn null(&mut self) {
        let text: &[u8] = if self.resp3 { b"_\r\n" } else { b"$-1\r\n" };
        self.out.tail().extend_from_slice(text);
    }

    /// A null in place of an array: `*-1` or `_`.
    pub fn null_array(&mut self) {
        let text: &[u8] = if self.resp3 { b"_\r\n" } else { b"*-1\r\n" };
        self.out.tail().extend_from_slice(text);
    }

    /// The header of an array of `len` elements.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', i64::try_from(len).unwrap_or(i64::MAX));
    }

    /// The header of a map of `pairs` pairs.
    pub fn map(&mut self, pairs: usize) {
        if self.resp3 {
            self.header(b'%', i64::try_from(pairs).unwrap_or(i64::MAX));
        } else {
            self.array(pairs * 2);
        }
    }

    /// The header of a set of `len` elements.
    pub fn set(&mut self, len: usize) {
        self.header(if self.resp3 { b'~' } else { b'*' }, i64::try_from(len).unwrap_or(i64::MAX));
    }

    /// The header of a push message of `len` elements.
    pub fn push(&mut self, len: usize) {
        self.header(if self.resp3 { b'>' } else { b'*' }, i64::try_from(len).unwrap_or(i64::MAX));
    }

    /// The header of `pairs` attributes of the reply that follows them. RESP2 has none.
    pub fn attributes(&mut self, pairs: usize) {
        debug_assert!(self.resp3, "RESP2 has no attributes");
        self.header(b'|', i64::try_from(pairs).unwrap_or(i64::MAX));
    }

    /// A boolean: `#t`/`#f`, or `:1`/`:0`.
    pub fn boolean(&mut self, value: bool) {
        let text: &[u8] = match (self.resp3, value) {
            (true, true) => b"#t\r\n",
            (true, false) => b"#f\r\n",
            (false, true) => b":1\r\n",
            (false, false) => b":0\r\n",
        };
        self.out.tail().extend_from_slice(text);
    }

    /// A text with its format (`txt`, `mkd`): a bulk string in RESP2.
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        self.verbatim_header(format, text.len());
        self.out.tail().extend_from_slice(text);
        self.crlf();
    }

    /// Writes the header of a text of `len` bytes with its format.
    pub fn verbatim_header(&mut self, format: [u8; 3], len: usize) {
        if !self.resp3 {
            self.bulk_header(len);
            return;
        }
        self.header(b'=', i64::try_from(len + 4).unwrap_or(i64::MAX));
        let tail = self.out.tail();
        tail.extend_from_slice(&format);
        tail.push(b':');
    }

    /// A number already formatted as Redis formats doubles: `,text`, or a bulk string in RESP2.
    pub fn double_text(&mut self, text: &str) {
        if self.resp3 {
            self.line(b',', text.as_bytes());
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// An integer of any length, by its digits: `(digits`, or a bulk string in RESP2.
    pub fn big_number(&mut self, digits: &str) {
        if self.resp3 {
            self.line(b'(', digits.as_bytes());
        } else {
            self.bulk(digits.as_bytes());
        }
    }

    /// The line of a number. Nearly all numbers have few digits: lengths, counts, codes.
    #[inline(always)]
    fn header(&mut self, kind: u8, value: i64) {
        let digit = |value: i64| b'0' + (value % 10).unsigned_abs().to_le_bytes()[0];
        match value {
            0..10 => {
                self.out.tail().extend_from_slice(&[kind, digit(value), b'\r', b'\n']);
            }
            10..100 => {
                let line = [kind, digit(value / 10), digit(value), b'\r', b'\n'];
                self.out.tail().extend_from_slice(&line);
            }
            100..EIGHT_DIGITS => {
                let (digits, len) = number::few_digits(value.unsigned_abs());
                let line = u128::from(kind) | u128::from(digits) << 8 | CRLF << (8 + 8 * len);
                self.line_of_word(line, 3 + len);
            }
            _ => self.long_header(kind, value),
        }
    }

    /// Appends the first `len` bytes of a word. The whole word is appended, which takes no loop,
    /// and then truncated.
    #[inline(always)]
    fn line_of_word(&mut self, word: u128, len: usize) {
        let word = word.to_le_bytes();
        let tail = self.out.tail();
        tail.extend_from_slice(&word);
        tail.truncate(tail.len() - (word.len() - len));
    }

    /// The line of any number, built separately and appended as a whole.
    #[inline(never)]
    fn long_header(&mut self, kind: u8, value: i64) {
        const END: usize = 1 + number::I64_TEXT_MAX;
        let mut line = [b'\r'; END + 2];
        line[END + 1] = b'\n';
        let room = line[1..].first_chunk_mut().expect("the line has room for the longest number");
        let at = number::I64_TEXT_MAX - number::i64_text(room, value).len();
        line[at] = kind;
        self.out.tail().extend_from_slice(&line[at..]);
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        let tail = self.out.tail();
        tail.push(kind);
        tail.extend_from_slice(text);
        tail.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(resp3: bool, write: impl Fn(&mut Reply<'_>)) -> String {
        let mut out = Output::default();
        write(&mut Reply::new(&mut out, resp3));
        String::from_utf8(out.flatten()).unwrap()
    }

    #[test]
    fn integers_of_every_length_are_encoded() {
        let long = (3..19).flat_map(|digits| [10_i64.pow(digits) - 1, 10_i64.pow(digits)]);
        for value in (-1_100..=1_100).chain(long).chain([12_345, i64::MAX, i64::MIN]) {
            assert_eq!(encode(false, |reply| reply.int(value)), format!(":{value}\r\n"));
            let bulk = format!("${}\r\n{value}\r\n", value.to_string().len());
            assert_eq!(encode(false, |reply| reply.bulk_int(value)), bulk);
        }
        assert_eq!(encode(false, |reply| reply.bulk(&[b'x'; 12])), "$12\r\nxxxxxxxxxxxx\r\n");
    }

    #[test] // Every kind of reply.
    fn replies_are_encoded_in_both_versions() {
        type Write = fn(&mut Reply<'_>);
        #[rustfmt::skip] // A table.
        let cases: &[(Write, &str, &str)] = &[
            (|reply| reply.simple("PONG"),             "+PONG\r\n",           "+PONG\r\n"),
            (|reply| reply.ok(),                       "+OK\r\n",             "+OK\r\n"),
            (|reply| reply.error(b"ERR a\rb\nc d"),     "-ERR a b c d\r\n",    "-ERR a b c d\r\n"),
            (|reply| reply.int(-12),                   ":-12\r\n",            ":-12\r\n"),
            (|reply| reply.count(12),                  ":12\r\n",             ":12\r\n"),
            (|reply| reply.bulk(b"a"),                 "$1\r\na\r\n",         "$1\r\na\r\n"),
            (|reply| reply.bulk(b""),                  "$0\r\n\r\n",          "$0\r\n\r\n"),
            (|reply| reply.bulk_int(-10),              "$3\r\n-10\r\n",       "$3\r\n-10\r\n"),
            (|reply| reply.bulk_header(3),             "$3\r\n",              "$3\r\n"),
            (|reply| reply.crlf(),                     "\r\n",                "\r\n"),
            (|reply| reply.null(),                     "$-1\r\n",             "_\r\n"),
            (|reply| reply.null_array(),               "*-1\r\n",             "_\r\n"),
            (|reply| reply.array(3),                   "*3\r\n",              "*3\r\n"),
            (|reply| reply.map(3),                     "*6\r\n",              "%3\r\n"),
            (|reply| reply.set(3),                     "*3\r\n",              "~3\r\n"),
            (|reply| reply.push(3),                    "*3\r\n",              ">3\r\n"),
            (|reply| reply.boolean(true),              ":1\r\n",              "#t\r\n"),
            (|reply| reply.boolean(false),             ":0\r\n",              "#f\r\n"),
            (|reply| reply.verbatim(*b"txt", b"xyz"),  "$3\r\nxyz\r\n",       "=7\r\ntxt:xyz\r\n"),
            (|reply| reply.double_text("1.5"),         "$3\r\n1.5\r\n",       ",1.5\r\n"),
        ];
        for (write, resp2, resp3) in cases {
            assert_eq!(encode(false, write), *resp2);
            assert_eq!(encode(true, write), *resp3);
        }
        for resp3 in [false, true] {
            encode(resp3, |reply| assert_eq!(reply.is_resp3(), resp3));
        }
    }
}
