//! A reply as a value: parsed from bytes, encoded back, translated from RESP3 to RESP2.
//!
//! The parser is strict and small: it reads what servers send, and anything else is a failure of
//! the test. [`frame_len`] finds where a reply ends, so that a client can keep the exact bytes;
//! [`Framer`] does so while they arrive.
//!
//! Invariant: `parse(encode(reply)) == reply` for each reply in its own protocol (tested).
//!
//! Not here: the text form used in scripts and reports; see `notation`.

/// One reply, of either protocol.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// `+OK`
    Simple(Vec<u8>),
    /// `-ERR text`
    Error(Vec<u8>),
    /// `:1`
    Int(i64),
    /// `$3`
    Bulk(Vec<u8>),
    /// RESP2's `$-1`
    NullBulk,
    /// RESP2's `*-1`
    NullArray,
    /// RESP3's `_`
    Null,
    /// `*2`
    Array(Vec<Reply>),
    /// `%2`: keys and values in turn
    Map(Vec<Reply>),
    /// `~2`
    Set(Vec<Reply>),
    /// `>2`
    Push(Vec<Reply>),
    /// `|1`: the names and values of attributes in turn, then the reply that has them
    Attributed(Vec<Reply>),
    /// `,1.5`, as its text
    Double(Vec<u8>),
    /// `#t`
    Bool(bool),
    /// `(123`, as its text
    Big(Vec<u8>),
    /// `=8` with `txt:` in front of the text
    Verbatim(Vec<u8>),
}

/// Why bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The first byte is not a type.
    UnknownType(u8),
    /// A header without a number, or a line without its end.
    BadHeader,
}

/// Finds the end of a reply whose bytes arrive piece by piece, looking at each byte once.
#[derive(Clone, Copy, Debug)]
pub struct Framer {
    /// Where the next header starts; beyond what has arrived while a bulk is incomplete.
    at: usize,
    /// Replies still to come, over all levels.
    expected: usize,
}

impl Default for Framer {
    fn default() -> Self {
        Self { at: 0, expected: 1 }
    }
}

impl Framer {
    /// The length of the reply that starts `bytes`; none while its end has not arrived. Each
    /// call must be given all bytes so far.
    ///
    /// # Errors
    /// When no continuation could make it a reply.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        while self.expected > 0 {
            let Some(rest) = bytes.get(self.at..) else { return Ok(None) };
            let Some(line_len) = line_len(rest) else { return Ok(None) };
            let text = &rest[1..line_len];
            let (body, children) = match rest[0] {
                b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => (0, 0),
                b'$' | b'=' => (count(text)?.map_or(0, |len| len + 2), 0),
                b'*' | b'~' | b'>' => (0, count(text)?.unwrap_or(0)),
                b'%' => (0, 2 * count(text)?.unwrap_or(0)),
                b'|' => (0, 2 * count(text)?.unwrap_or(0) + 1),
                other => return Err(Malformed::UnknownType(other)),
            };
            self.at += line_len + 2 + body;
            self.expected = self.expected - 1 + children;
        }
        Ok((self.at <= bytes.len()).then_some(self.at))
    }
}

/// The length of the reply at the start of `bytes`; none while its end has not arrived.
///
/// # Errors
/// When no continuation could make it a reply.
pub fn frame_len(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    Framer::default().advance(bytes)
}

/// Parses all of `bytes` as one reply.
///
/// # Errors
/// When the bytes are not exactly one reply.
pub fn parse(bytes: &[u8]) -> Result<Reply, Malformed> {
    let mut at = 0;
    let reply = parse_at(bytes, &mut at)?;
    if at == bytes.len() { Ok(reply) } else { Err(Malformed::BadHeader) }
}

fn parse_at(bytes: &[u8], at: &mut usize) -> Result<Reply, Malformed> {
    let rest = bytes.get(*at..).ok_or(Malformed::BadHeader)?;
    let line_len = line_len(rest).ok_or(Malformed::BadHeader)?;
    let kind = rest[0];
    let text = rest[1..line_len].to_vec();
    *at += line_len + 2;
    Ok(match kind {
        b'+' => Reply::Simple(text),
        b'-' => Reply::Error(text),
        b':' => Reply::Int(number(&text)?),
        b'_' => Reply::Null,
        b',' => Reply::Double(text),
        b'#' => Reply::Bool(text == b"t"),
        b'(' => Reply::Big(text),
        b'$' | b'=' => match count(&text)? {
            None => Reply::NullBulk,
            Some(len) => {
                let body = bytes.get(*at..*at + len).ok_or(Malformed::BadHeader)?.to_vec();
                *at += len + 2;
                if kind == b'$' { Reply::Bulk(body) } else { Reply::Verbatim(body) }
            }
        },
        b'*' => match count(&text)? {
            None => Reply::NullArray,
            Some(len) => Reply::Array(parse_many(bytes, at, len)?),
        },
        b'~' => Reply::Set(parse_many(bytes, at, count(&text)?.unwrap_or(0))?),
        b'>' => Reply::Push(parse_many(bytes, at, count(&text)?.unwrap_or(0))?),
        b'%' => Reply::Map(parse_many(bytes, at, 2 * count(&text)?.unwrap_or(0))?),
        b'|' => Reply::Attributed(parse_many(bytes, at, 2 * count(&text)?.unwrap_or(0) + 1)?),
        other => return Err(Malformed::UnknownType(other)),
    })
}

fn parse_many(bytes: &[u8], at: &mut usize, len: usize) -> Result<Vec<Reply>, Malformed> {
    (0..len).map(|_| parse_at(bytes, at)).collect()
}

/// The length of the first line without its CRLF; none while there is no CRLF.
fn line_len(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    (end >= 2 && bytes[end - 1] == b'\r').then_some(end - 1)
}

fn number(text: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Malformed::BadHeader)
}

/// A header's count; none for -1.
fn count(text: &[u8]) -> Result<Option<usize>, Malformed> {
    let value = number(text)?;
    if value == -1 {
        return Ok(None);
    }
    usize::try_from(value).map(Some).map_err(|_| Malformed::BadHeader)
}

impl Reply {
    /// The bytes a server sends for this reply.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_to(&mut out);
        out
    }

    fn encode_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Simple(text) => line(out, b'+', text),
            Self::Error(text) => line(out, b'-', text),
            Self::Int(value) => line(out, b':', value.to_string().as_bytes()),
            Self::Double(text) => line(out, b',', text),
            Self::Big(text) => line(out, b'(', text),
            Self::Bool(value) => line(out, b'#', if *value { b"t" } else { b"f" }),
            Self::NullBulk => line(out, b'$', b"-1"),
            Self::NullArray => line(out, b'*', b"-1"),
            Self::Null => line(out, b'_', b""),
            Self::Bulk(body) => bulk(out, b'$', body),
            Self::Verbatim(body) => bulk(out, b'=', body),
            Self::Array(items) => many(out, b'*', items.len(), items),
            Self::Set(items) => many(out, b'~', items.len(), items),
            Self::Push(items) => many(out, b'>', items.len(), items),
            Self::Map(items) => many(out, b'%', items.len() / 2, items),
            Self::Attributed(items) => many(out, b'|', items.len() / 2, items),
        }
    }

    /// The RESP2 form: maps and sets become arrays, doubles bulks, booleans integers, nulls null
    /// bulks; attributes are left out.
    #[must_use]
    pub fn to_resp2(&self) -> Self {
        let all = |items: &[Self]| items.iter().map(Self::to_resp2).collect();
        match self {
            Self::Map(items) | Self::Set(items) | Self::Push(items) | Self::Array(items) => {
                Self::Array(all(items))
            }
            Self::Attributed(items) => items.last().map_or(Self::Null, Self::to_resp2),
            Self::Double(text) | Self::Big(text) => Self::Bulk(text.clone()),
            Self::Bool(value) => Self::Int(i64::from(*value)),
            Self::Null => Self::NullBulk,
            Self::Verbatim(body) => Self::Bulk(body[4.min(body.len())..].to_vec()),
            other => other.clone(),
        }
    }

    /// The RESP3 form, with RESP2's two nulls written as RESP3's.
    #[must_use]
    pub fn to_resp3(&self) -> Self {
        let all = |items: &[Self]| items.iter().map(Self::to_resp3).collect();
        match self {
            Self::NullBulk | Self::NullArray => Self::Null,
            Self::Array(items) => Self::Array(all(items)),
            Self::Map(items) => Self::Map(all(items)),
            Self::Set(items) => Self::Set(all(items)),
            Self::Push(items) => Self::Push(all(items)),
            Self::Attributed(items) => Self::Attributed(all(items)),
            other => other.clone(),
        }
    }

    /// The elements of an aggregate; none for a single value.
    #[must_use]
    pub fn items(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) | Self::Map(items) | Self::Set(items) | Self::Push(items) => {
                Some(items)
            }
            _ => None,
        }
    }

    /// The bytes of a bulk, simple, verbatim or error text; none for other kinds.
    #[must_use]
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Bulk(text) | Self::Simple(text) | Self::Error(text) | Self::Double(text) => {
                Some(text)
            }
            Self::Verbatim(body) => body.get(4..),
            _ => None,
        }
    }

    /// The integer, when it is one.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(*value) } else { None }
    }

    /// Whether this is an error line.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    line(out, kind, body.len().to_string().as_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(b"\r\n");
}

fn many(out: &mut Vec<u8>, kind: u8, count: usize, items: &[Reply]) {
    line(out, kind, count.to_string().as_bytes());
    for item in items {
        item.encode_to(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: &[&[u8]] = &[
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-5\r\n",
        b"$3\r\na\r\n\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"_\r\n",
        b"*2\r\n$1\r\na\r\n*0\r\n",
        b"%1\r\n+a\r\n:1\r\n",
        b"~1\r\n,1.5\r\n",
        b">2\r\n#t\r\n(12\r\n",
        b"=5\r\ntxt:a\r\n",
        b"|1\r\n+a\r\n*1\r\n:1\r\n+b\r\n",
    ];

    #[test] // Never before they are complete.
    fn replies_are_framed_and_decoded_unchanged() {
        for sample in SAMPLES {
            for cut in 0..sample.len() {
                assert_eq!(frame_len(&sample[..cut]), Ok(None), "{sample:?} cut at {cut}");
            }
            assert_eq!(frame_len(sample), Ok(Some(sample.len())));
            assert_eq!(parse(sample).unwrap().encode(), *sample);
        }
    }

    #[test] // Unknown types, and headers without numbers.
    fn invalid_replies_are_errors() {
        assert_eq!(frame_len(b"?x\r\n"), Err(Malformed::UnknownType(b'?')));
        assert_eq!(frame_len(b"$x\r\n"), Err(Malformed::BadHeader));
        assert!(parse(b"+a\r\n+b\r\n").is_err());
    }

    #[test] // As servers do for older clients.
    fn resp3_replies_are_translated_to_resp2() {
        let map = parse(b"%1\r\n$1\r\na\r\n_\r\n").unwrap();
        assert_eq!(map.to_resp2().encode(), b"*2\r\n$1\r\na\r\n$-1\r\n");
    }
}
