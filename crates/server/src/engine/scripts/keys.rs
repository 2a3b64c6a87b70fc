//! Whether a script touches no keys but those that its command names, as far as its text shows.
//!
//! Redis asks for that, and does not check it. Here it is worth knowing: a script that stays with its keys
//! runs on their core while its pipeline goes on elsewhere (`away`). This reads words, not the
//! language, and says yes only where it is plain, as in most short scripts:
//!
//! ```text
//! local name = KEYS[1]
//! if redis.call('GET', name) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
//! ```
//! Each call names a command whose keys are its first argument, or all of them; each of these is
//! `KEYS[number]`, or a local name of one, in its block, to which nothing else is ever assigned. There
//! are no loops and no functions, so most such scripts also end soon.

use super::super::core::Core;
use darter_command::{KeySpec, Place};

/// Where a command has its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// Its first argument is one.
    First,
    /// All arguments are.
    All,
}

/// A script that is longer is not read. Cost: about 2 ns a byte.
const TEXT_MAX: usize = 2048;

/// Words that may make anything of anything, and those that take long.
const UNREAD: [&[u8]; 25] = [
    b"function",
    b"while",
    b"repeat",
    b"for",
    b"goto",
    b"_G",
    b"load",
    b"loadstring",
    b"dofile",
    b"loadfile",
    b"require",
    b"getfenv",
    b"setfenv",
    b"rawset",
    b"rawget",
    b"setmetatable",
    b"getmetatable",
    b"debug",
    b"coroutine",
    b"server",
    b"find",
    b"match",
    b"gmatch",
    b"gsub",
    b"rep",
];

/// What else of `redis` is read.
const HARMLESS: [&[u8]; 8] = [
    b"error_reply",
    b"status_reply",
    b"sha1hex",
    b"log",
    b"LOG_DEBUG",
    b"LOG_VERBOSE",
    b"LOG_NOTICE",
    b"LOG_WARNING",
];

impl Core {
    /// Whether a script of this text touches only the keys that it is given.
    pub(super) fn stays_with_keys(&self, text: &[u8]) -> bool {
        stays(text, |name| {
            let entry = self.table.find(name).filter(|entry| entry.point().is_some())?;
            match entry.row.keys.0 {
                _ if entry.row.locks_all() => None,
                [KeySpec { place: Place::Range { first: 1, last: 1, .. }, .. }] => {
                    Some(Keys::First)
                }
                [KeySpec { place: Place::Range { first: 1, last: -1, step: 1 }, .. }] => {
                    Some(Keys::All)
                }
                _ => None,
            }
        })
    }
}

/// The same, where `keys_of` says where a command has its keys, if it has one there.
fn stays(text: &[u8], keys_of: impl Fn(&[u8]) -> Option<Keys>) -> bool {
    if text.len() > TEXT_MAX {
        return false;
    }
    let rest = match text.strip_prefix(b"#!") {
        Some(behind) => behind.iter().position(|byte| *byte == b'\n').map(|at| &behind[at..]),
        None => Some(text),
    };
    let Some(rest) = rest else { return false };
    Reader { rest, names: Vec::new(), blocks: Vec::new() }.read(keys_of).is_some()
}

/// A word of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a [u8]),
    Number,
    /// What is between quotes.
    Text(&'a [u8]),
    Mark(&'a [u8]),
    End,
}

use Token::{End, Mark, Number, Text, Word};

/// Reads a text from its beginning. What returns an option has none where it cannot tell.
struct Reader<'a> {
    rest: &'a [u8],
    /// The local names of keys, which end with their blocks.
    names: Vec<&'a [u8]>,
    /// Of each block that is open, how many of them there were before it.
    blocks: Vec<usize>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, keys_of: impl Fn(&[u8]) -> Option<Keys>) -> Option<()> {
        let mut before = End;
        loop {
            let token = self.next()?;
            match token {
                End => return Some(()),
                Word(b"redis") => self.read_member(&keys_of)?,
                Word(b"local") => self.read_local()?,
                Word(b"do" | b"then") => self.blocks.push(self.names.len()),
                Word(b"end" | b"elseif") => self.end_block()?,
                Word(b"else") => {
                    self.end_block()?;
                    self.blocks.push(self.names.len());
                }
                Word(b"KEYS") if before == Mark(b"#") => {}
                Word(b"KEYS") => {
                    self.read_index()?;
                    self.is_only_read(before)?;
                }
                Word(word) if self.names.contains(&word) => self.is_only_read(before)?,
                Word(word) if UNREAD.contains(&word) => return None,
                _ => {}
            }
            before = token;
        }
    }

    /// Behind the end of a block its names mean what they did before, which may be anything.
    fn end_block(&mut self) -> Option<()> {
        let before = self.blocks.pop()?;
        self.names.truncate(before);
        Some(())
    }

    /// What follows upon `redis`.
    fn read_member(&mut self, keys_of: impl Fn(&[u8]) -> Option<Keys>) -> Option<()> {
        self.expect(Mark(b"."))?;
        match self.next()? {
            Word(b"call" | b"pcall") => {}
            Word(word) if HARMLESS.contains(&word) => return Some(()),
            _ => return None,
        }
        self.expect(Mark(b"("))?;
        let Text(name) = self.next()? else { return None };
        let keys = keys_of(name)?;
        self.expect(Mark(b","))?;
        self.read_key()?;
        loop {
            match (self.peek()?, keys) {
                (Mark(b")"), _) | (Mark(b","), Keys::First) => return Some(()),
                (Mark(b","), Keys::All) => {
                    self.next()?;
                    self.read_key()?;
                }
                _ => return None,
            }
        }
    }

    fn read_key(&mut self) -> Option<()> {
        match self.next()? {
            Word(b"KEYS") => self.read_index(),
            Word(word) if self.names.contains(&word) => Some(()),
            _ => None,
        }
    }

    /// `[number]`.
    fn read_index(&mut self) -> Option<()> {
        self.expect(Mark(b"["))?;
        self.expect(Number)?;
        self.expect(Mark(b"]"))
    }

    /// What follows upon `local`: names, each of a key or none. What else they are made of is read like
    /// anything.
    fn read_local(&mut self) -> Option<()> {
        let mut names = Vec::new();
        loop {
            let Word(name) = self.next()? else { return None };
            if self.names.contains(&name)
                || UNREAD.contains(&name)
                || matches!(name, b"KEYS" | b"redis")
            {
                return None;
            }
            names.push(name);
            if self.peek()? != Mark(b",") {
                break;
            }
            self.next()?;
        }
        let here = self.rest;
        if self.read_keys_of(names.len()).is_some() {
            self.names.append(&mut names);
        } else {
            self.rest = here;
        }
        Some(())
    }

    /// `= KEYS[number], …`, so many, and nothing that makes something else of the last.
    fn read_keys_of(&mut self, count: usize) -> Option<()> {
        self.expect(Mark(b"="))?;
        for at in 0..count {
            if at > 0 {
                self.expect(Mark(b","))?;
            }
            self.expect(Word(b"KEYS"))?;
            self.read_index()?;
        }
        match self.peek()? {
            Word(b"and" | b"or") | Number | Text(_) => None,
            Word(_) | End | Mark(b";") => Some(()),
            Mark(_) => None,
        }
    }

    /// To a key's name after this nothing is assigned.
    fn is_only_read(&mut self, before: Token<'_>) -> Option<()> {
        let is_read = match before {
            Mark(b"=" | b"==" | b"~=" | b"(" | b"..") => true,
            Word(b"return" | b"if" | b"elseif" | b"and" | b"or" | b"not") => true,
            Mark(b",") => matches!(self.peek()?, Mark(b")" | b"}")),
            _ => false,
        };
        is_read.then_some(())
    }

    fn expect(&mut self, token: Token<'_>) -> Option<()> {
        (self.next()? == token).then_some(())
    }

    fn peek(&mut self) -> Option<Token<'a>> {
        let here = self.rest;
        let token = self.next();
        self.rest = here;
        token
    }

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            self.rest = self.rest.trim_ascii_start();
            let Some(comment) = self.rest.strip_prefix(b"--") else { break };
            if comment.starts_with(b"[") {
                return None; // It may be a long one.
            }
            let end = comment.iter().position(|byte| matches!(byte, b'\n' | b'\r')); // Each ends a line.
            self.rest = &comment[end.unwrap_or(comment.len())..];
        }
        let Some(&first) = self.rest.first() else { return Some(End) };
        if first == b'"' || first == b'\'' {
            return self.next_text(first);
        }
        let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let len = |is_of: &dyn Fn(&u8) -> bool| {
            self.rest.iter().position(|byte| !is_of(byte)).unwrap_or(self.rest.len())
        };
        let (token, end) = match first {
            b'0'..=b'9' => (Number, len(&|byte| is_of_word(byte) || *byte == b'.')),
            _ if is_of_word(&first) => {
                let end = len(&is_of_word);
                (Word(&self.rest[..end]), end)
            }
            _ if !first.is_ascii_graphic() => return None,
            _ => {
                let two = self.rest.get(..2).unwrap_or_default();
                if matches!(two, b"[[" | b"[=") {
                    return None; // It may be a long text.
                }
                let end = if matches!(two, b"==" | b"~=" | b"<=" | b">=" | b"..") { 2 } else { 1 };
                (Mark(&self.rest[..end]), end)
            }
        };
        self.rest = &self.rest[end..];
        Some(token)
    }

    /// What is between quotes; nothing is unescaped, so a name with an escape is no command's.
    fn next_text(&mut self, quote: u8) -> Option<Token<'a>> {
        let behind = &self.rest[1..];
        let mut at = 0;
        loop {
            match *behind.get(at)? {
                b'\\' => at += 2,
                b'\n' | b'\r' => return None,
                byte if byte == quote => break,
                _ => at += 1,
            }
        }
        self.rest = &behind[at + 1..];
        Some(Text(&behind[..at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(text: &str) -> bool {
        stays(text.as_bytes(), |name| match &name.to_ascii_lowercase()[..] {
            b"get" | b"set" | b"incr" | b"expire" | b"zadd" => Some(Keys::First),
            b"del" | b"mget" => Some(Keys::All),
            _ => None,
        })
    }

    #[test]
    fn scripts_that_stay_with_their_keys() {
        for text in [
            "return redis.call('GET', KEYS[1])",
            "#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])",
            "return redis.call(\"mget\",KEYS[1],KEYS[2])",
            "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) end",
            "local n = redis.pcall('INCR', KEYS[1]) -- counts [it]\n\
             if tonumber(n) == 1 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end return n",
            "local key = KEYS[1]; local other, third = KEYS[2], KEYS[3] local n = #KEYS + 1\n\
             redis.call('SET', key, redis.call('GET', other)) return redis.call('DEL', key, third)",
            "local key = KEYS[1] if key == '' then return redis.error_reply('no key') end\n\
             redis.log(redis.LOG_NOTICE, key) return {redis.call('GET', key), 'it''s', 0x1f, 1.5}",
            "local key = KEYS[1] if x then local other = KEYS[2] redis.call('GET', other) end\n\
             do local other = KEYS[3] redis.call('GET', other) end return redis.call('GET', key)",
            "return 1",
        ] {
            assert!(reads(text), "{text}");
        }
    }

    #[test] // Some of these stay, too: that is not seen.
    fn scripts_that_may_not() {
        for text in [
            "return redis.call('GET', 'other')",
            "return redis.call('GET', ARGV[1])",
            "return redis.call('GET', KEYS[1] .. ':x')",
            "return redis.call('GET', (KEYS[1]))",
            "return redis.call('GET', KEYS[#KEYS])",
            "return redis.call('SORT', KEYS[1])",
            "return redis.call('G\\69T', KEYS[1])",
            "return redis.call('DEL', KEYS[1], 'other')",
            "return redis.call(ARGV[1], KEYS[1])",
            "return redis.call('GET', unpack(KEYS))",
            "return redis['call']('GET', 'other')",
            "local call = redis.call return call('GET', 'other')",
            "local r = redis return r.call('GET', 'other')",
            "KEYS[1] = 'other' return redis.call('GET', KEYS[1])",
            "KEYS[1], KEYS[2] = 'other', 1 return redis.call('GET', KEYS[1])",
            "local x x, KEYS[1] = 1, 'other' return redis.call('GET', KEYS[1])",
            "local k = KEYS k[1] = 'other' return redis.call('GET', KEYS[1])",
            "local KEYS = {'other'} return redis.call('GET', KEYS[1])",
            "local redis = x return redis.call('GET', KEYS[1])",
            "table.insert(KEYS, 1, 'other') return redis.call('GET', KEYS[1])",
            "local key = KEYS[1] key = 'other' return redis.call('GET', key)",
            "local key = KEYS[1] local key = 'other' return redis.call('GET', key)",
            "local key = KEYS[1] .. 'x' return redis.call('GET', key)",
            "local key = KEYS[1]:rep(2) return redis.call('GET', key)",
            "local key = KEYS[1] or 'other' return redis.call('GET', key)",
            "local key, x = KEYS[1] return redis.call('GET', x)",
            "local key = KEYS[1] local x x, key = 1, 'other' return redis.call('GET', key)",
            "local key = KEYS[1] local x, y x, key, y = 1, 'other' return redis.call('GET', key)",
            "for key = 1, 2 do redis.call('GET', KEYS[1]) end",
            "while true do redis.call('GET', KEYS[1]) end",
            "local f = function(x) return x end return redis.call('GET', KEYS[1])",
            "return string.find(ARGV[1], ARGV[2])",
            "return ARGV[1]:rep(ARGV[2])",
            "setfenv(1, {}) return redis.call('GET', KEYS[1])",
            "return loadstring(ARGV[1])()",
            "--[[ ' ]] return redis.call('GET', 'other') --']]",
            "return redis.call('GET', KEYS[1]), [[ ' ]], redis.call('GET', 'other'), '",
            "return redis.call('GET', KEYS[1]",
            "return 'no end",
            "#!lua",
            "-- a comment\rreturn redis.call('GET', 'other')",
            "local key = 'other' do local key = KEYS[1] end return redis.call('GET', key)",
            "local key = 'other' if x then local key = KEYS[1] elseif redis.call('GET', key) then end",
            "local key = 'other' if x then local key = KEYS[1] else redis.call('GET', key) end",
            "do local _VERSION = KEYS[1] end return redis.call('GET', _VERSION)",
            "local key = KEYS[1] end return redis.call('GET', key)",
        ] {
            assert!(!reads(text), "{text}");
        }
        let long = format!("return {}1", " ".repeat(TEXT_MAX));
        assert!(!reads(&long));
    }
}
