//! The text of a document: that of RedisJSON, byte for byte.

use super::build::Token;
use super::value::{JsonText, View};
use std::io::Write;

/// The text between tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Before each value, once for every level.
    pub indent: Vec<u8>,
    /// After each value, and after each opening bracket.
    pub newline: Vec<u8>,
    /// After the colon.
    pub space: Vec<u8>,
}

/// Prints tokens.
#[derive(Clone, Debug, Default)]
pub struct Printer {
    format: Format,
    /// For each open array or object: whether it is an object, and whether it has a value.
    open: Vec<(bool, bool)>,
    /// A name was the last token.
    is_named: bool,
    /// The long text that is printed is a name.
    is_long_name: bool,
}

impl Printer {
    /// A printer that begins at some level.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self { format, ..Self::default() }
    }

    /// Arrays and objects that are open.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// Appends a token.
    pub fn print(&mut self, token: Token<'_>, out: &mut Vec<u8>) {
        match token {
            Token::Name(name) => {
                self.begin(out);
                out.push(b'"');
                name.pieces().for_each(|piece| escape(piece, out));
                out.push(b'"');
                self.colon(out);
            }
            Token::Scalar(view) => {
                self.begin(out);
                scalar(view, out);
            }
            Token::Open { is_object, .. } => {
                self.begin(out);
                out.push(if is_object { b'{' } else { b'[' });
                self.open.push((is_object, false));
            }
            Token::Close => self.close(out),
            Token::Long { is_name, .. } => {
                self.begin(out);
                self.is_long_name = is_name;
                out.push(b'"');
            }
            Token::Part(piece) => escape(piece, out),
            Token::EndLong => {
                out.push(b'"');
                if std::mem::take(&mut self.is_long_name) {
                    self.colon(out);
                }
            }
        }
    }

    /// Writes the text before a value or a name.
    fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_named) {
            return;
        }
        let Some((_, has_some)) = self.open.last_mut() else { return };
        if std::mem::replace(has_some, true) {
            out.push(b',');
        }
        self.line(out);
    }

    fn line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.format.newline);
        for _ in 0..self.open.len() {
            out.extend_from_slice(&self.format.indent);
        }
    }

    fn colon(&mut self, out: &mut Vec<u8>) {
        out.push(b':');
        out.extend_from_slice(&self.format.space);
        self.is_named = true;
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        debug_assert!(!self.is_named, "a name has a value");
        let Some((is_object, has_some)) = self.open.pop() else { return };
        if has_some {
            self.line(out);
        }
        out.push(if is_object { b'}' } else { b']' });
    }
}

/// Appends a value that is no array and no object.
pub fn scalar(view: View<'_>, out: &mut Vec<u8>) {
    match view {
        View::Null => out.extend_from_slice(b"null"),
        View::Bool(true) => out.extend_from_slice(b"true"),
        View::Bool(false) => out.extend_from_slice(b"false"),
        View::Int(value) => darter_base::number::write_i64(out, value),
        View::Uint(value) => _ = write!(out, "{value}"),
        View::Float(value) => float(value, out),
        View::Text(text) => {
            out.push(b'"');
            text.pieces().for_each(|piece| escape(piece, out));
            out.push(b'"');
        }
        View::Node(_) => unreachable!("no scalar"),
    }
}

/// Appends the bytes of a string as JSON has them between its quotes.
pub fn escape(text: &[u8], out: &mut Vec<u8>) {
    let mut plain = 0;
    for (at, byte) in text.iter().enumerate() {
        let short = match byte {
            b'"' | b'\\' => *byte,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0c => b'f',
            ..=0x1f => b'u',
            _ => continue,
        };
        out.extend_from_slice(&text[plain..at]);
        plain = at + 1;
        out.extend([b'\\', short]);
        if short == b'u' {
            _ = write!(out, "{byte:04x}");
        }
    }
    out.extend_from_slice(&text[plain..]);
}

/// Appends a double: the fewest digits that lead back to it, with a point or an exponent.
///
/// Source: the layout of the `ryu` crate, which RedisJSON uses: a point for exponents of -5 to 15,
/// `1e16` and `1.5e-7` beyond.
pub fn float(value: f64, out: &mut Vec<u8>) {
    debug_assert!(value.is_finite(), "{value}");
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    match exponent {
        0..=15 => {
            let plain = format!("{value}");
            out.extend_from_slice(plain.as_bytes());
            if !plain.contains('.') {
                out.extend_from_slice(b".0");
            }
        }
        -5..=-1 => _ = write!(out, "{value}"),
        // Zero has this exponent too.
        _ => _ = write!(out, "{digits}e{exponent}"),
    }
}

/// The text of a string or a name, quoted.
#[must_use]
pub fn quoted(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    scalar(View::Text(JsonText::Bytes(text)), &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_printed_as_by_ryu() {
        let cases: &[(f64, &str)] = &[
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e16"),
            (1.5e16, "1.5e16"),
            (5.960_464_477_539_062e16, "5.960464477539062e16"),
            (0.1, "0.1"),
            (1e-5, "0.00001"),
            (1.2e-5, "0.000012"),
            (1e-6, "1e-6"),
            (-19.5, "-19.5"),
            (f64::MAX, "1.7976931348623157e308"),
            (5e-324, "5e-324"),
        ];
        for (value, text) in cases {
            let mut out = Vec::new();
            float(*value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), *text);
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        let text = b"a\"b\\c/\n\r\t\x08\x0c\x01\x1f\x7f\xc3\xa9";
        let expected = b"\"a\\\"b\\\\c/\\n\\r\\t\\b\\f\\u0001\\u001f\x7f\xc3\xa9\"";
        assert_eq!(quoted(text), expected);
    }
}
