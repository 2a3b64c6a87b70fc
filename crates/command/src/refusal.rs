//! Why a command was refused, and the one home of the texts: Redis's own, byte for byte.

use std::borrow::Cow;

/// Bytes of a word that an error quotes, so that quoting costs little. Redis quotes the whole word.
pub(crate) const QUOTED_BYTES: usize = 4_096;

/// Why a command was refused: the client's mistake or the server's state, never our bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The key holds a value of another type.
    WrongType,
    /// An option, or the number of arguments after the fixed ones, is wrong.
    Syntax,
    /// Wrong number of arguments for the command of this name (lower case; `parent|sub`).
    Arity(Cow<'static, str>),
    /// An argument, or a value, is not an integer or does not fit 64 bits.
    NotAnInteger,
    /// An argument, or a value, is not a number.
    NotAFloat,
    /// An increment would not fit 64 bits.
    Overflow,
    /// The key is absent, and must not be.
    NoSuchKey,
    /// An integer that must be positive is not.
    OutOfRangePositive,
    /// An expire time is out of range, in the command of this name.
    InvalidExpire(Cow<'static, str>),
    /// Any other refusal: the whole line, its code first. Bytes, because it may quote the request.
    Line(Cow<'static, [u8]>),
    /// The error line of a script, already counted in the statistics.
    Counted(Vec<u8>),
}

impl Refusal {
    /// A refusal from its whole line, code first: `ERR no such thing`.
    pub fn line(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Line(match text.into() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        })
    }

    /// A line that quotes a word of the request: its raw bytes, up to a NUL (the end of a C string)
    /// or 4 KiB. Line breaks at the end are dropped; [`darter_resp::Reply::error`] replaces others.
    #[must_use]
    pub fn quoting(before: &str, word: &[u8], after: &str) -> Self {
        let word = &word[..word.len().min(QUOTED_BYTES)];
        let mut line = [before.as_bytes(), until_nul(word), after.as_bytes()].concat();
        while let Some(b'\r' | b'\n') = line.last() {
            line.pop();
        }
        Self::Line(line.into())
    }

    /// The error line, without `-` and CRLF.
    #[must_use]
    pub fn text(&self) -> Cow<'static, [u8]> {
        let fixed = match self {
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::Syntax => "ERR syntax error",
            Self::NotAnInteger => "ERR value is not an integer or out of range",
            Self::NotAFloat => "ERR value is not a valid float",
            Self::Overflow => "ERR increment or decrement would overflow",
            Self::NoSuchKey => "ERR no such key",
            Self::OutOfRangePositive => "ERR value is out of range, must be positive",
            Self::Arity(name) => {
                return format!("ERR wrong number of arguments for '{name}' command")
                    .into_bytes()
                    .into();
            }
            Self::InvalidExpire(name) => {
                return format!("ERR invalid expire time in '{name}' command").into_bytes().into();
            }
            Self::Line(line) => return line.clone(),
            Self::Counted(line) => return line.clone().into(),
        };
        Cow::Borrowed(fixed.as_bytes())
    }
}

/// The part of `word` that C would print.
#[must_use]
pub fn until_nul(word: &[u8]) -> &[u8] {
    let end = word.iter().position(|byte| *byte == 0).unwrap_or(word.len());
    &word[..end]
}

impl From<darter_keyspace::WrongType> for Refusal {
    fn from(_: darter_keyspace::WrongType) -> Self {
        Self::WrongType
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_end_at_a_nul_or_at_the_bound() {
        let quoted = |word: &[u8]| Refusal::quoting("<", word, ">").text().into_owned();
        assert_eq!(quoted(b"word"), b"<word>");
        assert_eq!(quoted(b"wo\0rd"), b"<wo>");
        for length in [QUOTED_BYTES - 1, QUOTED_BYTES, QUOTED_BYTES + 1, 9 * QUOTED_BYTES] {
            let expected = format!("<{}>", "x".repeat(length.min(QUOTED_BYTES)));
            assert_eq!(quoted(&vec![b'x'; length]), expected.as_bytes(), "{length}");
        }
    }
}
