//! `cjson.decode(text)`.

use super::settings::Settings;
use crate::session::{Call, Session, Step};
use crate::values::{Portion, make_text};
use darter_lua::{Error, Lua, Progress, Work, number};
use std::borrow::Cow;

pub(super) fn decode(cx: Call<'_, '_>) -> Result<Step, Error> {
    let lua = &mut cx.lua;
    if lua.top() != 1 {
        return Err(Error::argument(1, "expected 1 argument"));
    }
    make_text(lua, 1)?;
    let settings = Settings::read(lua)?;
    let text = lua.bytes(1).unwrap_or_default();
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(Error::located("JSON parser does not support UTF-16 or UTF-32"));
    }
    Ok(Step::Work(Box::new(Decoding {
        max_depth: usize::try_from(settings.decode_depth).unwrap_or(0),
        takes_invalid: settings.decode_invalid != 0,
        at: 0,
        string: None,
        levels: Vec::new(),
        state: State::Value,
    })))
}

struct Decoding {
    max_depth: usize,
    takes_invalid: bool,
    at: usize,
    /// The start of the string that is being read, and the part read so far.
    string: Option<(usize, Vec<u8>)>,
    levels: Vec<Level>,
    state: State,
}

/// An aggregate that is being read. Its table is on the stack, followed by the key in an object.
enum Level {
    Array { next: usize },
    Object,
}

/// The tokens that may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Value,
    /// A value, or the end of an array that has just begun: its first value.
    FirstValue,
    /// A key, or the end of an object that has just begun.
    FirstKey,
    Key,
    Colon,
    /// A comma, or the end of the aggregate; at the top level, the end of the text.
    AfterValue,
}

enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    /// No valid token, for this reason.
    Wrong(&'static str),
    /// The value continues in the next portion.
    Unfinished,
}

impl Token {
    /// The name of the token in the library's errors.
    fn name(&self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ArrayBegin => "T_ARR_BEGIN",
            Self::ArrayEnd => "T_ARR_END",
            Self::String(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Wrong(why) => why,
            Self::Unfinished => "",
        }
    }
}

impl Work<Session> for Decoding {
    fn step(&mut self, cx: Call<'_, '_>) -> Result<Progress, Error> {
        let mut portion = Portion::new();
        loop {
            let before = self.at;
            let (token, index) = self.token(cx.lua.bytes(1).unwrap_or_default());
            if !matches!(token, Token::Unfinished) && self.accept(&mut cx.lua, token, index)? {
                return Ok(Progress::Done(1));
            }
            if !portion.spend(16 + self.at.abs_diff(before)) {
                return Ok(Progress::More);
            }
        }
    }
}

impl Decoding {
    /// The next token, and where it begins, or where it is wrong.
    fn token(&mut self, text: &[u8]) -> (Token, usize) {
        if self.string.is_some() {
            return self.string_token(text);
        }
        let spaces = text[self.at..].iter().take_while(|byte| b" \t\r\n".contains(byte)).count();
        self.at += spaces;
        let start = self.at;
        let Some(byte) = text.get(start).copied() else { return (Token::End, start) };
        let single = match byte {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            0 => return (Token::End, start),
            b'"' => {
                self.at += 1;
                self.string = Some((start, Vec::new()));
                return self.string_token(text);
            }
            _ => return (self.word(&text[start..], byte), start),
        };
        self.at += 1;
        (single, start)
    }

    /// A number, or one of the words.
    fn word(&mut self, rest: &[u8], byte: u8) -> Token {
        let words = [
            ("true", Token::Boolean(true)),
            ("false", Token::Boolean(false)),
            ("null", Token::Null),
        ];
        if byte == b'-' || byte.is_ascii_digit() {
            if !self.takes_invalid && is_invalid_number(rest) {
                return Token::Wrong("invalid number");
            }
            return self.number(rest);
        }
        for (word, token) in words {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return token;
            }
        }
        let may_begin_number = matches!(byte, b'f' | b'i' | b'I' | b'n' | b'N' | b't' | b'+');
        if may_begin_number && self.takes_invalid && is_invalid_number(rest) {
            return self.number(rest);
        }
        Token::Wrong("invalid token")
    }

    fn number(&mut self, rest: &[u8]) -> Token {
        let (value, length) = number::leading(rest);
        if length == 0 {
            return Token::Wrong("invalid number");
        }
        self.at += length;
        Token::Number(value)
    }

    /// Continues a string, for at most a few thousand bytes.
    fn string_token(&mut self, text: &[u8]) -> (Token, usize) {
        const AT_ONCE: usize = 4 << 10;
        let (start, mut string) = self.string.take().unwrap_or_default();
        let stop = self.at + AT_ONCE;
        while self.at < stop {
            match text.get(self.at).copied() {
                None | Some(0) => return (Token::Wrong("unexpected end of string"), self.at),
                Some(b'"') => {
                    self.at += 1;
                    return (Token::String(string), start);
                }
                Some(b'\\') => {
                    if let Err(why) = self.escape(text, &mut string) {
                        return (Token::Wrong(why), self.at);
                    }
                }
                Some(byte) => {
                    string.push(byte);
                    self.at += 1;
                }
            }
        }
        self.string = Some((start, string));
        (Token::Unfinished, self.at)
    }

    /// Reads an escape.
    fn escape(&mut self, text: &[u8], string: &mut Vec<u8>) -> Result<(), &'static str> {
        let byte = match text.get(self.at + 1).copied().unwrap_or(0) {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 12,
            b'r' => b'\r',
            b'u' => {
                let (character, length) =
                    unicode(&text[self.at..]).ok_or("invalid unicode escape code")?;
                string.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                self.at += length;
                return Ok(());
            }
            _ => return Err("invalid escape code"),
        };
        string.push(byte);
        self.at += 2;
        Ok(())
    }

    /// Handles a token; true when the whole value has been read.
    fn accept(&mut self, lua: &mut Lua<'_>, token: Token, index: usize) -> Result<bool, Error> {
        match (self.state, token) {
            (State::FirstValue, Token::ArrayEnd) | (State::FirstKey, Token::ObjectEnd) => {
                self.levels.pop();
                self.complete(lua)?;
            }
            (State::FirstKey | State::Key, Token::String(key)) => {
                lua.push_bytes(&key)?;
                self.state = State::Colon;
            }
            (State::Colon, Token::Colon) => self.state = State::Value,
            (State::Value | State::FirstValue, token) => self.value(lua, token, index)?,
            (State::AfterValue, token) => return self.after_value(lua, &token, index),
            (State::Colon, token) => return Err(wrong("colon", &token, index)),
            (State::FirstKey | State::Key, token) => {
                return Err(wrong("object key string", &token, index));
            }
        }
        Ok(false)
    }

    fn value(&mut self, lua: &mut Lua<'_>, token: Token, index: usize) -> Result<(), Error> {
        match token {
            Token::String(text) => lua.push_bytes(&text)?,
            Token::Number(value) => lua.push_number(value)?,
            Token::Boolean(value) => lua.push_boolean(value)?,
            Token::Null => lua.push_null()?,
            Token::ObjectBegin => return self.descend(lua, Level::Object, State::FirstKey),
            Token::ArrayBegin => {
                return self.descend(lua, Level::Array { next: 1 }, State::FirstValue);
            }
            token => return Err(wrong("value", &token, index)),
        }
        self.complete(lua)
    }

    fn descend(&mut self, lua: &mut Lua<'_>, level: Level, state: State) -> Result<(), Error> {
        self.levels.push(level);
        let depth = self.levels.len();
        if depth > self.max_depth || lua.reserve(3).is_err() {
            let at = self.at;
            let text = format!("Found too many nested data structures ({depth}) at character {at}");
            return Err(Error::located(text));
        }
        lua.push_table(0)?;
        self.state = state;
        Ok(())
    }

    /// Stores the complete value on top in its aggregate.
    fn complete(&mut self, lua: &mut Lua<'_>) -> Result<(), Error> {
        match self.levels.last_mut() {
            Some(Level::Array { next }) => {
                lua.set_element(-2, *next)?;
                *next += 1;
            }
            Some(Level::Object) => lua.set_pair(-3)?,
            None => {}
        }
        self.state = State::AfterValue;
        Ok(())
    }

    fn after_value(
        &mut self,
        lua: &mut Lua<'_>,
        token: &Token,
        index: usize,
    ) -> Result<bool, Error> {
        match (self.levels.last(), token) {
            (None, Token::End) => return Ok(true),
            (Some(Level::Array { .. }), Token::ArrayEnd)
            | (Some(Level::Object), Token::ObjectEnd) => {
                self.levels.pop();
                self.complete(lua)?;
            }
            (Some(Level::Array { .. }), Token::Comma) => self.state = State::Value,
            (Some(Level::Object), Token::Comma) => self.state = State::Key,
            (None, _) => return Err(wrong("the end", token, index)),
            (Some(Level::Array { .. }), _) => {
                return Err(wrong("comma or array end", token, index));
            }
            (Some(Level::Object), _) => return Err(wrong("comma or object end", token, index)),
        }
        Ok(false)
    }
}

fn wrong(expected: &str, token: &Token, index: usize) -> Error {
    let found: Cow<'static, str> = token.name().into();
    let character = index + 1;
    Error::located(format!("Expected {expected} but found {found} at character {character}"))
}

/// Whether a number is one that JSON does not have, though `strtod` does.
fn is_invalid_number(text: &[u8]) -> bool {
    if text.first() == Some(&b'+') {
        return true;
    }
    let text = text.strip_prefix(b"-").unwrap_or(text);
    match text.first().copied().unwrap_or(0) {
        b'0' => text.get(1).is_some_and(|next| next | 0x20 == b'x' || next.is_ascii_digit()),
        0..=b'9' => false,
        _ => text.get(..3).is_some_and(|word| {
            word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")
        }),
    }
}

/// The character of an escape `\uXXXX`, or of two that are a pair, and their length.
fn unicode(text: &[u8]) -> Option<(char, usize)> {
    let first = hex4(text.get(2..6)?)?;
    if first & 0xF800 != 0xD800 {
        return char::from_u32(first).map(|character| (character, 6));
    }
    let is_pair = first & 0x400 == 0 && text.get(6..8)? == b"\\u";
    let second = hex4(text.get(8..12)?)?;
    if !is_pair || second & 0xFC00 != 0xDC00 {
        return None;
    }
    let value = ((first & 0x3FF) << 10 | second & 0x3FF) + 0x1_0000;
    char::from_u32(value).map(|character| (character, 12))
}

fn hex4(digits: &[u8]) -> Option<u32> {
    digits
        .iter()
        .try_fold(0, |value, digit| char::from(*digit).to_digit(16).map(|digit| value * 16 + digit))
}
