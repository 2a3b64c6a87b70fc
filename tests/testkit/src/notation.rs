//! Replies as text: how scripts write expected ones, and how failures are shown.
//!
//! ```text
//! +OK   -ERR syntax error   :1   "bulk\r\n\x00"   nil   [:1, "a"]   {"k": "v"}   ~["a"]
//! >["push"]   ,1.5   #t   (123   ="txt:text"   nilbulk   nilarray
//! ```
//! `nil` is RESP3's null, which becomes a null bulk for RESP2; `nilarray` is a null array there.
//! A simple string or an error runs to the end of the line, or inside an aggregate to `,` or `]`.

use crate::reply::Reply;
use std::fmt::Write as _;

/// Shows a reply in the notation, cut to about `limit` characters.
#[must_use]
pub fn show(reply: &Reply, limit: usize) -> String {
    let mut text = String::new();
    show_to(reply, &mut text, limit);
    if text.len() > limit {
        let cut = (0..=limit).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(cut);
        text.push('…');
    }
    text
}

fn show_to(reply: &Reply, out: &mut String, limit: usize) {
    if out.len() > limit {
        return;
    }
    match reply {
        Reply::Simple(text) => write_plain(out, '+', text),
        Reply::Error(text) => write_plain(out, '-', text),
        Reply::Double(text) => write_plain(out, ',', text),
        Reply::Big(text) => write_plain(out, '(', text),
        Reply::Int(value) => {
            let _ = write!(out, ":{value}");
        }
        Reply::Bulk(body) => quote(body, out, limit),
        Reply::Verbatim(body) => {
            out.push('=');
            quote(body, out, limit);
        }
        Reply::NullBulk => out.push_str("nilbulk"),
        Reply::NullArray => out.push_str("nilarray"),
        Reply::Null => out.push_str("nil"),
        Reply::Bool(value) => out.push_str(if *value { "#t" } else { "#f" }),
        Reply::Array(items) => show_many("[", "]", items, out, limit),
        Reply::Set(items) => show_many("~[", "]", items, out, limit),
        Reply::Push(items) => show_many(">[", "]", items, out, limit),
        Reply::Attributed(items) => show_many("|[", "]", items, out, limit),
        Reply::Map(items) => show_many("{", "}", items, out, limit),
    }
}

fn write_plain(out: &mut String, sign: char, text: &[u8]) {
    out.push(sign);
    out.push_str(&String::from_utf8_lossy(text));
}

fn show_many(open: &str, close: &str, items: &[Reply], out: &mut String, limit: usize) {
    out.push_str(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(if close == "}" && index % 2 == 1 { ": " } else { ", " });
        }
        show_to(item, out, limit);
    }
    out.push_str(close);
}

/// Appends `bytes` as a quoted string with C escapes.
pub fn quote(bytes: &[u8], out: &mut String, limit: usize) {
    out.push('"');
    for &byte in bytes.iter().take(limit) {
        match byte {
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            0x20..=0x7e => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
}

/// Reads a quoted string whose opening `"` is at `text[0]`: its bytes and its length in `text`.
///
/// # Errors
/// When the closing quote is missing or an escape is broken.
pub fn unquote(text: &[u8]) -> Result<(Vec<u8>, usize), String> {
    let mut bytes = Vec::new();
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => return Ok((bytes, at)),
            b'\\' => {
                let escape = *text.get(at).ok_or("a backslash at the end")?;
                at += 1;
                bytes.push(match escape {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'0' => 0,
                    b'x' => {
                        let digits = text.get(at..at + 2).ok_or("\\x needs two digits")?;
                        at += 2;
                        let digits = std::str::from_utf8(digits).map_err(|_| "bad \\x")?;
                        u8::from_str_radix(digits, 16).map_err(|_| "bad \\x")?
                    }
                    other => other,
                });
            }
            other => bytes.push(other),
        }
    }
    Err("a quoted string without its end".to_owned())
}

/// Parses the notation.
///
/// # Errors
/// A text with the reason.
pub fn read(text: &str) -> Result<Reply, String> {
    let mut reader = Notation { text: text.trim().as_bytes(), at: 0, depth: 0, is_key: false };
    let reply = reader.reply()?;
    reader.space();
    if reader.at == reader.text.len() { Ok(reply) } else { Err(format!("left over in `{text}`")) }
}

struct Notation<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    /// The next value is a key of a map: a colon ends it.
    is_key: bool,
}

impl Notation<'_> {
    fn space(&mut self) {
        while self.text.get(self.at).is_some_and(|byte| *byte == b' ') {
            self.at += 1;
        }
    }

    fn reply(&mut self) -> Result<Reply, String> {
        self.space();
        let rest = &self.text[self.at..];
        for (word, reply) in
            [("nilarray", Reply::NullArray), ("nilbulk", Reply::NullBulk), ("nil", Reply::Null)]
        {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(reply);
            }
        }
        let sign = *rest.first().ok_or("a reply is missing")?;
        self.at += 1;
        match sign {
            b'+' => Ok(Reply::Simple(self.plain())),
            b'-' => Ok(Reply::Error(self.plain())),
            b',' => Ok(Reply::Double(self.plain())),
            b'(' => Ok(Reply::Big(self.plain())),
            b'#' => Ok(Reply::Bool(self.plain() == b"t")),
            b':' => {
                let digits = self.plain();
                let digits = String::from_utf8_lossy(&digits);
                digits.parse().map(Reply::Int).map_err(|_| format!("no integer: `{digits}`"))
            }
            b'"' => self.quoted(self.at - 1).map(Reply::Bulk),
            b'=' => self.quoted(self.at).map(Reply::Verbatim),
            b'[' => self.many(b']').map(Reply::Array),
            b'{' => self.many(b'}').map(Reply::Map),
            b'~' | b'>' | b'|' => {
                self.at += 1; // The bracket.
                let items = self.many(b']')?;
                Ok(match sign {
                    b'~' => Reply::Set(items),
                    b'>' => Reply::Push(items),
                    _ => Reply::Attributed(items),
                })
            }
            other => Err(format!("no reply begins with `{}`", char::from(other))),
        }
    }

    fn quoted(&mut self, at: usize) -> Result<Vec<u8>, String> {
        let (bytes, len) = unquote(&self.text[at..])?;
        self.at = at + len;
        Ok(bytes)
    }

    /// Text up to the end, or inside an aggregate up to the next separator.
    fn plain(&mut self) -> Vec<u8> {
        let rest = &self.text[self.at..];
        let ends = |byte: &u8| match byte {
            b',' | b']' | b'}' => self.depth > 0,
            b':' => self.is_key,
            _ => false,
        };
        let len = rest.iter().position(ends).unwrap_or(rest.len());
        self.at += len;
        rest[..len].to_vec()
    }

    fn many(&mut self, close: u8) -> Result<Vec<Reply>, String> {
        let mut items = Vec::new();
        self.depth += 1;
        let mut separated = true; // Otherwise a comma begins a double.
        loop {
            self.space();
            match self.text.get(self.at) {
                None => return Err("an aggregate without its end".to_owned()),
                Some(&byte) if byte == close => {
                    self.at += 1;
                    self.depth -= 1;
                    return Ok(items);
                }
                Some(b',') if !separated => self.at += 1,
                Some(b':') if close == b'}' && items.len() % 2 == 1 => self.at += 1,
                Some(_) => {}
            }
            self.space();
            self.is_key = close == b'}' && items.len().is_multiple_of(2);
            items.push(self.reply()?);
            self.is_key = false;
            separated = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_replies_can_be_parsed_again() {
        for text in [
            "+OK",
            "-ERR syntax error, really",
            ":-7",
            r#""a\r\n\x00\"""#,
            "nil",
            "nilarray",
            "[:1, \"a\", [nil, #t]]",
            "{\"k\": :1, \"l\": ,1.5}",
            "~[\"a\", \"b\"]",
            ">[\"x\"]",
            "[,1.5, ,2]",
            "[-ERR: no, {+k: -ERR: no}]",
            "[]",
        ] {
            assert_eq!(show(&read(text).unwrap(), 1_000), text);
        }
    }

    #[test]
    fn mistakes_in_the_notation_are_reported() {
        for text in ["", "x", "[:1", "\"a", ":one", "\"a\" b"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
