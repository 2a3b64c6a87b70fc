//! Text to a document, in pieces of any size.
//!
//! The usual libraries parse in one go, or at least each string: a document of 100 MB would hold a
//! core for a second. This parser is a machine of few states that is fed; it stops between any two
//! bytes. It accepts what `serde_json` accepts, and its errors are that library's, as RedisJSON's
//! are.

use super::build::JsonBuilder;
use super::value::{JsonText, Value, View};
use crate::blob::Blob;

/// Arrays and objects within one another, at most: RedisJSON's limit.
pub const DEPTH_MAX: usize = 128;
/// Digits of a number, with its sign, point and exponent: none of more is a double's.
const NUMBER_MAX: usize = 4 * 1024;
/// Longer strings are gathered in a blob.
const GATHERED_MAX: usize = 16 * 1024;
/// The longest name: names are hashed and compared in one go, some of them at a time.
pub const NAME_BYTES_MAX: usize = GATHERED_MAX;

/// Why a text is no document, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    what: &'static str,
    line: usize,
    column: usize,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} at line {} column {}", self.what, self.line, self.column)
    }
}

/// The tokens that may come next.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    /// A value.
    #[default]
    Value,
    /// A value, or the end of an array.
    First,
    /// A name, or the end of an object.
    FirstName,
    /// A name.
    Name,
    /// The colon after a name.
    Colon,
    /// A comma, or the end of an array or an object.
    Comma,
    /// Nothing.
    End,
    /// Within a string.
    Text,
    /// After a backslash.
    Escape,
    /// Within four hexadecimal digits.
    Hex(u8, u16),
    /// After a code of two that belong together: the backslash, and the `u` of the other.
    Pair(u8),
    /// Within a number.
    Number,
    /// Within `null`, `true` or `false`: the word, and the number of bytes read.
    Word(&'static [u8], u8),
}

/// See the module.
#[derive(Debug)]
pub struct Parser {
    builder: JsonBuilder,
    state: State,
    /// Whether each open one is an object.
    open: Vec<bool>,
    deepest: usize,
    /// The number or string so far.
    token: Vec<u8>,
    /// The beginning of a long string.
    long: Option<Blob>,
    is_name: bool,
    /// The first code of two.
    high: u16,
    line: usize,
    column: usize,
}

impl Default for Parser {
    fn default() -> Self {
        Self {
            builder: JsonBuilder::default(),
            state: State::Value,
            open: Vec::new(),
            deepest: 0,
            token: Vec::new(),
            long: None,
            is_name: false,
            high: 0,
            line: 1,
            column: 0,
        }
    }
}

impl Parser {
    /// Bytes of memory, about.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let long = self.long.as_ref().map_or(0, Blob::memory_bytes);
        self.builder.memory_bytes() + self.token.len() + long
    }

    /// Levels of the document so far.
    #[must_use]
    pub fn deepest(&self) -> usize {
        self.deepest
    }

    /// Parses on. Cost: O(bytes).
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while let Some(first) = bytes.first() {
            let taken = match self.state {
                State::Text => self.text(bytes)?,
                _ => usize::from(self.byte(*first)?),
            };
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// The document, now that all has come.
    pub fn finish(mut self) -> Result<Value, Fault> {
        if self.state == State::Number {
            self.end_number()?;
        }
        let what = match self.state {
            State::End => return Ok(self.builder.finish().expect("it is complete")),
            State::Text | State::Escape | State::Hex(..) | State::Pair(_) => {
                "EOF while parsing a string"
            }
            State::First => "EOF while parsing a list",
            State::Comma if self.open.last() == Some(&false) => "EOF while parsing a list",
            State::FirstName | State::Name | State::Colon | State::Comma => {
                "EOF while parsing an object"
            }
            State::Value | State::Number | State::Word(..) => "EOF while parsing a value",
        };
        Err(self.fault(what))
    }

    #[cold]
    fn fault(&self, what: &'static str) -> Fault {
        Fault { what, line: self.line, column: self.column }
    }

    fn refuse<T>(&self, what: &'static str) -> Result<T, Fault> {
        Err(self.fault(what))
    }

    /// Takes a byte outside of strings. False if it belongs to the next token.
    fn byte(&mut self, byte: u8) -> Result<bool, Fault> {
        if self.state == State::Number
            && !matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')
        {
            self.end_number()?;
            return Ok(false);
        }
        self.column += 1;
        let is_between = matches!(
            self.state,
            State::Value
                | State::First
                | State::FirstName
                | State::Name
                | State::Colon
                | State::Comma
                | State::End
        );
        if is_between && matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            if byte == b'\n' {
                (self.line, self.column) = (self.line + 1, 0);
            }
            return Ok(true);
        }
        match self.state {
            State::Value | State::First => self.value(byte)?,
            State::FirstName | State::Name => self.name(byte)?,
            State::Colon if byte == b':' => self.state = State::Value,
            State::Colon => return self.refuse("expected `:`"),
            State::Comma => self.comma(byte)?,
            State::End => return self.refuse("trailing characters"),
            State::Escape => self.escape(byte)?,
            State::Hex(count, code) => self.hex(count, code, byte)?,
            State::Pair(0) if byte == b'\\' => self.state = State::Pair(1),
            State::Pair(1) if byte == b'u' => self.state = State::Hex(0, 0),
            State::Pair(_) => return self.refuse("unexpected end of hex escape"),
            State::Number => {
                self.token.push(byte);
                if self.token.len() > NUMBER_MAX {
                    return self.refuse("number out of range");
                }
            }
            State::Word(word, at) => self.word(word, at, byte)?,
            State::Text => unreachable!("strings are taken in runs"),
        }
        Ok(true)
    }

    fn value(&mut self, byte: u8) -> Result<(), Fault> {
        match byte {
            b'"' => self.begin_text(false),
            b'-' | b'0'..=b'9' => {
                self.token.push(byte);
                self.state = State::Number;
            }
            b'n' => self.state = State::Word(b"null", 1),
            b't' => self.state = State::Word(b"true", 1),
            b'f' => self.state = State::Word(b"false", 1),
            b'[' | b'{' => self.begin(byte == b'{')?,
            b']' if self.state == State::First => self.close()?,
            b']' if self.open.last() == Some(&false) => return self.refuse("trailing comma"),
            _ => return self.refuse("expected value"),
        }
        Ok(())
    }

    fn name(&mut self, byte: u8) -> Result<(), Fault> {
        match byte {
            b'"' => self.begin_text(true),
            b'}' if self.state == State::FirstName => self.close()?,
            b'}' => return self.refuse("trailing comma"),
            _ => return self.refuse("key must be a string"),
        }
        Ok(())
    }

    fn comma(&mut self, byte: u8) -> Result<(), Fault> {
        let is_object = self.open.last() == Some(&true);
        match byte {
            b',' => self.state = if is_object { State::Name } else { State::Value },
            b']' if !is_object => self.close()?,
            b'}' if is_object => self.close()?,
            _ if is_object => return self.refuse("expected `,` or `}`"),
            _ => return self.refuse("expected `,` or `]`"),
        }
        Ok(())
    }

    fn begin(&mut self, is_object: bool) -> Result<(), Fault> {
        if self.open.len() >= DEPTH_MAX - 1 {
            return self.refuse("recursion limit exceeded");
        }
        debug_assert_eq!(self.open.len(), self.builder.depth());
        self.open.push(is_object);
        self.deepest = self.deepest.max(self.open.len());
        let is_taken = self.builder.open(is_object);
        debug_assert!(is_taken, "the states say that it may");
        self.state = if is_object { State::FirstName } else { State::First };
        Ok(())
    }

    fn close(&mut self) -> Result<(), Fault> {
        let is_closed = self.open.pop().is_some() && self.builder.close();
        debug_assert!(is_closed, "the states say that it may");
        debug_assert_eq!(self.open.len(), self.builder.depth());
        self.after_value();
        Ok(())
    }

    fn after_value(&mut self) {
        self.state = if self.open.is_empty() { State::End } else { State::Comma };
    }

    fn scalar(&mut self, view: View<'_>) {
        let is_taken = self.builder.value(Value::scalar(view));
        debug_assert!(is_taken, "the states say that it may");
        self.after_value();
    }

    fn word(&mut self, word: &'static [u8], at: u8, byte: u8) -> Result<(), Fault> {
        if byte != word[usize::from(at)] {
            return self.refuse("expected ident");
        }
        if usize::from(at) + 1 < word.len() {
            self.state = State::Word(word, at + 1);
            return Ok(());
        }
        self.scalar(match word[0] {
            b'n' => View::Null,
            first => View::Bool(first == b't'),
        });
        Ok(())
    }

    fn begin_text(&mut self, is_name: bool) {
        (self.state, self.is_name) = (State::Text, is_name);
    }

    /// Takes a run of a string. Returns how many bytes.
    fn text(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..=0x1f);
        let run = bytes.iter().position(is_special).unwrap_or(bytes.len());
        self.token.extend_from_slice(&bytes[..run]);
        debug_assert_eq!(self.state, State::Text);
        self.column += run;
        if self.token.len() > GATHERED_MAX {
            self.gather()?;
        }
        let Some(special) = bytes.get(run) else { return Ok(run) };
        self.column += 1;
        match special {
            b'"' => self.end_text()?,
            b'\\' => self.state = State::Escape,
            _ => {
                return self
                    .refuse("control character (\\u0000-\\u001F) found while parsing a string");
            }
        }
        Ok(run + 1)
    }

    /// Moves what there is of a long string to its blob, up to the last complete character.
    fn gather(&mut self) -> Result<(), Fault> {
        let whole = match std::str::from_utf8(&self.token) {
            Ok(_) => self.token.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return self.refuse("invalid unicode code point"),
        };
        if self.is_name {
            return self.refuse("name is too long");
        }
        self.long.get_or_insert_default().append(&self.token[..whole]);
        self.token.drain(..whole);
        Ok(())
    }

    fn end_text(&mut self) -> Result<(), Fault> {
        if std::str::from_utf8(&self.token).is_err() {
            return self.refuse("invalid unicode code point");
        }
        if self.is_name && self.token.len() > NAME_BYTES_MAX {
            return self.refuse("name is too long");
        }
        let token = std::mem::take(&mut self.token);
        let long = self.long.take().map(|mut long| {
            long.append(&token);
            long
        });
        let text = match &long {
            Some(long) => JsonText::Blob(long),
            None => JsonText::Bytes(&token),
        };
        if self.is_name {
            let is_taken = self.builder.name(text);
            debug_assert!(is_taken, "the states say that it may");
            self.state = State::Colon;
        } else {
            self.scalar(View::Text(text));
        }
        self.token = token;
        self.token.clear();
        Ok(())
    }

    fn escape(&mut self, byte: u8) -> Result<(), Fault> {
        self.token.push(match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.state = State::Hex(0, 0);
                return Ok(());
            }
            _ => return self.refuse("invalid escape"),
        });
        self.state = State::Text;
        Ok(())
    }

    fn hex(&mut self, count: u8, code: u16, byte: u8) -> Result<(), Fault> {
        let Some(digit) = char::from(byte).to_digit(16) else {
            return self.refuse("invalid escape");
        };
        let code = code << 4 | digit as u16;
        if count < 3 {
            self.state = State::Hex(count + 1, code);
            return Ok(());
        }
        let high = std::mem::take(&mut self.high);
        match (high, code) {
            (0, 0xd800..0xdc00) => {
                self.high = code;
                self.state = State::Pair(0);
                return Ok(());
            }
            (1.., 0xdc00..0xe000) => {
                let low = u32::from(code - 0xdc00);
                self.code(0x10000 + (u32::from(high - 0xd800) << 10) + low)?;
            }
            (1.., _) | (_, 0xdc00..0xe000) => {
                return self.refuse("lone leading surrogate in hex escape");
            }
            (0, _) => self.code(u32::from(code))?,
        }
        self.state = State::Text;
        Ok(())
    }

    fn code(&mut self, code: u32) -> Result<(), Fault> {
        let Some(char) = char::from_u32(code) else {
            return self.refuse("invalid unicode code point");
        };
        self.token.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn end_number(&mut self) -> Result<(), Fault> {
        let token = std::mem::take(&mut self.token);
        let view = match number(&token) {
            Ok(view) => view,
            Err(what) => return self.refuse(what),
        };
        self.scalar(view);
        self.token = token;
        self.token.clear();
        Ok(())
    }
}

/// A number, as JSON writes it.
fn number(token: &[u8]) -> Result<View<'static>, &'static str> {
    let rest = token.strip_prefix(b"-").unwrap_or(token);
    let digits = |bytes: &[u8]| bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest[0] == b'0') {
        return Err("invalid number");
    }
    let mut rest = &rest[whole..];
    let is_whole = rest.is_empty();
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = digits(fraction);
        if count == 0 {
            return Err("invalid number");
        }
        rest = &fraction[count..];
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let sign = usize::from(matches!(exponent.first(), Some(b'+' | b'-')));
        let count = digits(&exponent[sign..]);
        if count == 0 {
            return Err("invalid number");
        }
        rest = &exponent[sign + count..];
    }
    if !rest.is_empty() {
        return Err("invalid number");
    }
    let text = std::str::from_utf8(token).map_err(|_| "invalid number")?;
    if is_whole && token != b"-0" {
        if let Ok(value) = text.parse() {
            return Ok(View::Int(value));
        }
        if let Ok(value) = text.parse() {
            return Ok(View::Uint(value));
        }
    }
    let value: f64 = text.parse().map_err(|_| "invalid number")?;
    if value.is_finite() { Ok(View::Float(value)) } else { Err("number out of range") }
}

/// A document from a text in one piece: for short ones.
pub fn parse(text: &[u8]) -> Result<Value, Fault> {
    let mut parser = Parser::default();
    parser.feed(text)?;
    parser.finish()
}
