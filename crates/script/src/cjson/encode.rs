//! `cjson.encode(value)`.

use super::settings::Settings;
use crate::session::{Call, Session, Step};
use crate::values::Portion;
use darter_lua::{Error, Lua, Position, Progress, Type, Work, number};

/// Bytes of a string that are written at once.
const PIECE: usize = 4 << 10;
/// The most bytes that a step writes: six for each byte of a piece, and a few more.
const STEP_MAX: usize = 8 * PIECE;

pub(super) fn encode(cx: Call<'_, '_>) -> Result<Step, Error> {
    if cx.lua.top() != 1 {
        return Err(Error::argument(1, "expected 1 argument"));
    }
    let settings = Settings::read(&mut cx.lua)?;
    Ok(Step::Work(Box::new(Encoding {
        settings,
        bytes: Vec::new(),
        levels: Vec::new(),
        text: None,
        has_begun: false,
    })))
}

struct Encoding {
    settings: Settings,
    bytes: Vec<u8>,
    levels: Vec<Level>,
    /// The place reached in the string on top, and whether it is a key.
    text: Option<(usize, bool)>,
    has_begun: bool,
}

/// A table that is being written. Its own values are above it on the stack.
#[derive(Clone, Copy)]
enum Level {
    /// Checks whether the table is an array, and of which length.
    Look {
        position: Position,
        max: i32,
        items: i64,
    },
    Array {
        next: usize,
        count: usize,
    },
    /// With a pair: its key has been written, and its value is next.
    Object {
        position: Position,
        has_pair: bool,
        is_first: bool,
    },
}

impl Work<Session> for Encoding {
    fn step(&mut self, cx: Call<'_, '_>) -> Result<Progress, Error> {
        let lua = &mut cx.lua;
        let mut portion = Portion::new();
        if !self.has_begun {
            self.has_begun = true;
            self.value(lua)?;
        }
        loop {
            let before = self.bytes.len();
            lua.grow(&mut self.bytes, STEP_MAX);
            if let Some((at, is_key)) = self.text {
                self.piece(lua, at, is_key);
            } else if let Some(level) = self.levels.pop() {
                self.level(lua, level)?;
            } else {
                lua.push_buffer(std::mem::take(&mut self.bytes))?;
                return Ok(Progress::Done(1));
            }
            if self.bytes.len() > lua.left_bytes() {
                return Err(Error::Memory);
            }
            if !portion.spend(10 + (self.bytes.len() - before) / 2) {
                return Ok(Progress::More);
            }
        }
    }
}

impl Encoding {
    /// Begins the value on top. A complete value is popped.
    fn value(&mut self, lua: &mut Lua<'_>) -> Result<(), Error> {
        match lua.kind(-1) {
            Some(Type::String) => {
                self.begin_text(false);
                return Ok(());
            }
            Some(Type::Number) => self.number(lua, -1)?,
            Some(Type::Boolean) => {
                self.bytes.extend_from_slice(if lua.truth(-1) { b"true" } else { b"false" });
            }
            Some(Type::Nil) => self.bytes.extend_from_slice(b"null"),
            Some(Type::Light) if lua.is_null(-1) => self.bytes.extend_from_slice(b"null"),
            Some(Type::Table) => return self.table(lua),
            _ => return Err(exception(lua, -1, "type not supported")),
        }
        lua.pop(1);
        Ok(())
    }

    fn table(&mut self, lua: &mut Lua<'_>) -> Result<(), Error> {
        let depth = self.levels.len() + 1;
        let is_allowed =
            i32::try_from(depth).is_ok_and(|depth| depth <= self.settings.encode_depth);
        if !is_allowed || lua.reserve(3).is_err() {
            let text = format!("Cannot serialise, excessive nesting ({depth})");
            return Err(Error::located(text));
        }
        self.levels.push(Level::Look { position: Position::default(), max: 0, items: 0 });
        Ok(())
    }

    fn level(&mut self, lua: &mut Lua<'_>, level: Level) -> Result<(), Error> {
        match level {
            Level::Look { position, max, items } => self.look(lua, position, max, items)?,
            Level::Array { next, count } if next > count => {
                self.bytes.push(b']');
                lua.pop(1);
            }
            Level::Array { next, count } => {
                if next > 1 {
                    self.bytes.push(b',');
                }
                self.levels.push(Level::Array { next: next + 1, count });
                lua.get_element(-1, next)?;
                self.value(lua)?;
            }
            Level::Object { position, has_pair: true, .. } => {
                self.levels.push(Level::Object { position, has_pair: false, is_first: false });
                self.value(lua)?;
            }
            Level::Object { mut position, has_pair: false, is_first } => {
                if !lua.next(-1, &mut position)? {
                    self.bytes.push(b'}');
                    lua.pop(1);
                    return Ok(());
                }
                if !is_first {
                    self.bytes.push(b',');
                }
                self.levels.push(Level::Object { position, has_pair: true, is_first: false });
                lua.insert(-2); // The key is written first.
                self.key(lua)?;
            }
        }
        Ok(())
    }

    /// Writes the key on top, and the colon.
    fn key(&mut self, lua: &mut Lua<'_>) -> Result<(), Error> {
        match lua.kind(-1) {
            Some(Type::Number) => {
                self.bytes.push(b'"');
                self.number(lua, -1)?;
                self.bytes.extend_from_slice(b"\":");
                lua.pop(1);
                Ok(())
            }
            Some(Type::String) => {
                self.begin_text(true);
                Ok(())
            }
            _ => Err(exception(lua, -1, "table key must be a number or string")),
        }
    }

    /// Looks at one key, to find out whether the table is an array.
    fn look(
        &mut self,
        lua: &mut Lua<'_>,
        mut position: Position,
        max: i32,
        items: i64,
    ) -> Result<(), Error> {
        if lua.next(-1, &mut position)? {
            let key = lua.number(-2).filter(|_| lua.kind(-2) == Some(Type::Number));
            lua.pop(2);
            match key.filter(|key| key.floor() == *key && *key >= 1.0) {
                Some(key) => {
                    let fits = key <= f64::from(i32::MAX);
                    let greater = if fits { key as i32 } else { i32::MIN };
                    let max = if key > f64::from(max) { greater } else { max };
                    self.levels.push(Level::Look { position, max, items: items + 1 });
                }
                None => self.object(),
            }
            return Ok(());
        }
        let Settings { sparse_convert, sparse_ratio, sparse_safe, .. } = self.settings;
        let is_sparse = sparse_ratio > 0
            && i64::from(max) > items.saturating_mul(sparse_ratio.into())
            && max > sparse_safe;
        if is_sparse && sparse_convert == 0 {
            return Err(exception(lua, -1, "excessively sparse array"));
        }
        match usize::try_from(max) {
            Ok(count @ 1..) if !is_sparse => {
                self.bytes.push(b'[');
                self.levels.push(Level::Array { next: 1, count });
            }
            _ => self.object(),
        }
        Ok(())
    }

    fn object(&mut self) {
        self.bytes.push(b'{');
        let position = Position::default();
        self.levels.push(Level::Object { position, has_pair: false, is_first: true });
    }

    fn begin_text(&mut self, is_key: bool) {
        self.bytes.push(b'"');
        self.text = Some((0, is_key));
    }

    /// The next piece of the string on top; at its end it is popped.
    fn piece(&mut self, lua: &mut Lua<'_>, at: usize, is_key: bool) {
        let text = lua.bytes(-1).unwrap_or_default();
        let end = text.len().min(at + PIECE);
        escape(&mut self.bytes, &text[at..end]);
        if end < text.len() {
            self.text = Some((end, is_key));
            return;
        }
        self.bytes.extend_from_slice(if is_key { b"\":" } else { b"\"" });
        self.text = None;
        lua.pop(1);
    }

    fn number(&mut self, lua: &Lua<'_>, index: i32) -> Result<(), Error> {
        let value = lua.number(index).unwrap_or(0.0);
        match self.settings.encode_invalid {
            0 if !value.is_finite() => return Err(exception(lua, index, "must not be NaN or Inf")),
            1 if value.is_nan() => self.bytes.extend_from_slice(b"nan"),
            2 if !value.is_finite() => self.bytes.extend_from_slice(b"null"),
            _ => {
                let digits = u8::try_from(self.settings.precision).unwrap_or(14);
                let mut buffer = [0; 64];
                let text = number::general(&mut buffer, value, digits);
                self.bytes.extend_from_slice(text.as_bytes());
            }
        }
        Ok(())
    }
}

fn exception(lua: &Lua<'_>, index: i32, reason: &str) -> Error {
    Error::located(format!("Cannot serialise {}: {reason}", lua.kind_name(index)))
}

/// Appends a text with its escapes: quotes, slashes of both kinds, control characters, and 127.
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'"' | b'\\' | b'/' => out.extend([b'\\', *byte]),
            8 => out.extend_from_slice(b"\\b"),
            9 => out.extend_from_slice(b"\\t"),
            10 => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            13 => out.extend_from_slice(b"\\r"),
            0..32 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
}
