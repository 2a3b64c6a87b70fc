//! Libraries of functions: their texts, and their functions.
//!
//! A [`Source`] is a text whose first line has been read; a machine runs it
//! ([`Machine::begin_load`](crate::Machine::begin_load)) and so finds its [`Functions`]. Both make
//! a [`Library`]. All of it is immutable and shared by the cores. The functions themselves are
//! values of one machine: another one that is to call them runs the text again.

use crate::shebang::{self, Flags};
use crate::values::c_text;
use darter_base::lazyfree;
use std::sync::Arc;

/// The only engine, as Redis spells it.
pub const ENGINE: &str = "LUA";

/// Longer first lines are refused, because a line is read in one step.
const LINE_MAX: usize = 64 << 10;

/// The error for an invalid name of a library or a function.
pub(crate) const BAD_NAME: &str = "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";

/// The text of a library.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The name: letters, digits and underscores.
    pub name: Box<str>,
    /// The whole text, first line included.
    pub text: Box<[u8]>,
    /// The end of its first line: there the code begins, so that lines keep their numbers.
    code: usize,
}

impl Source {
    /// Reads the first line: `#!lua name=NAME`.
    ///
    /// # Errors
    /// The refusal, without its code.
    pub fn read(text: Vec<u8>) -> Result<Self, Vec<u8>> {
        if !text.starts_with(b"#!") {
            return Err(b"Missing library metadata".to_vec());
        }
        let invalid = || b"Invalid library metadata".to_vec();
        // Redis looks for it in a C string.
        let end = text.iter().take(LINE_MAX).position(|byte| matches!(byte, b'\n' | 0));
        let end = end.filter(|end| text[*end] == b'\n').ok_or_else(invalid)?;
        let words = shebang::split(&text[..end]).filter(|words| !words.is_empty());
        let words = words.ok_or_else(invalid)?;
        let mut name = None;
        for word in &words[1..] {
            let value = word.split_at_checked(5);
            let value = value.filter(|(key, _)| key.eq_ignore_ascii_case(b"name="));
            let Some((_, value)) = value else {
                return Err([b"Invalid metadata value given: ", c_text(word)].concat());
            };
            if name.replace(value).is_some() {
                let text = b"Invalid metadata value, name argument was given multiple times";
                return Err(text.to_vec());
            }
        }
        let name = name.ok_or_else(|| b"Library name was not given".to_vec())?;
        let name = name_of(name).ok_or_else(|| BAD_NAME.as_bytes().to_vec())?;
        let engine = &words[0][2..];
        if !engine.eq_ignore_ascii_case(ENGINE.as_bytes()) {
            return Err([b"Engine '", engine, b"' not found"].concat());
        }
        Ok(Self { name, text: text.into(), code: end })
    }

    /// The text to be compiled.
    pub(crate) fn code(&self) -> &[u8] {
        &self.text[self.code..]
    }
}

/// The name, if it is valid.
pub(crate) fn name_of(bytes: &[u8]) -> Option<Box<str>> {
    let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let name = std::str::from_utf8(bytes).ok().filter(|name| !name.is_empty())?;
    name.bytes().all(|byte| is_good(&byte)).then(|| name.into())
}

/// A function that a library has registered.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// The name.
    pub name: Arc<str>,
    /// The description.
    pub description: Option<Box<[u8]>>,
    /// The flags.
    pub flags: Flags,
}

/// Functions in a block of [`Functions`].
const BLOCK: usize = 256;

/// The functions of a library, in the order in which they were registered. There may be hundreds of
/// thousands: they are kept in blocks, so that none is moved when one more comes, and are freed in
/// portions.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Functions {
    blocks: Vec<Vec<Function>>,
}

impl Functions {
    pub(crate) fn push(&mut self, function: Function) {
        if self.blocks.last().is_none_or(|block| block.len() == BLOCK) {
            self.blocks.push(Vec::new());
        }
        self.blocks.last_mut().expect("it was pushed").push(function);
    }

    /// The number of functions.
    #[must_use]
    pub fn len(&self) -> usize {
        let last = self.blocks.last().map_or(0, Vec::len);
        self.blocks.len().saturating_sub(1) * BLOCK + last
    }

    /// True if it has no functions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The function at `index`, in the order of registration.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Function> {
        self.blocks.get(index / BLOCK)?.get(index % BLOCK)
    }

    /// All functions from `index` on.
    pub fn from(&self, index: usize) -> impl Iterator<Item = &Function> {
        let blocks = self.blocks.iter().skip(index / BLOCK);
        blocks.flatten().skip(index % BLOCK)
    }
}

impl Drop for Functions {
    fn drop(&mut self) {
        lazyfree::defer_long(std::mem::take(&mut self.blocks), 1, BLOCK * size_of::<Function>());
    }
}

/// A library that was loaded.
#[derive(Debug)]
pub struct Library {
    /// The text. Machines recognize a loaded library by its address.
    pub source: Arc<Source>,
    /// The functions.
    pub functions: Functions,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // redis-server 7.0.15.
    fn library_headers_are_parsed_as_by_redis() {
        let name = |text: &str| Source::read(text.into()).unwrap().name;
        let refused =
            |text: &str| String::from_utf8(Source::read(text.into()).unwrap_err()).unwrap();
        assert_eq!(&*name("#!lua name=a\nx"), "a");
        assert_eq!(&*name("#!LUA NAME=a_9\r\n"), "a_9");
        assert_eq!(&*name("#!\"lua\" 'name=q'\n"), "q");
        assert_eq!(Source::read(b"#!lua name=a\nx".to_vec()).unwrap().code(), b"\nx");
        for (text, refusal) in [
            ("return 1", "Missing library metadata"),
            ("#!lua name=a", "Invalid library metadata"),
            ("#!lua name=a\0b\n", "Invalid library metadata"),
            ("#!lua 'x\n", "Invalid library metadata"),
            ("#!\n", "Library name was not given"),
            (
                "#!lua name=a name=b\n",
                "Invalid metadata value, name argument was given multiple times",
            ),
            ("#! lua name=a\n", "Invalid metadata value given: lua"),
            ("#!lua foo=\"a\\x00b\"\n", "Invalid metadata value given: foo=a"),
            ("#!js name=a\nx", "Engine 'js' not found"),
            ("#!lua name=\n", BAD_NAME),
            ("#!js name=a-b\n", BAD_NAME),
        ] {
            assert_eq!(refused(text), refusal, "{text:?}");
        }
    }

    #[test]
    fn many_functions_keep_their_order() {
        let mut functions = Functions::default();
        for at in 0..3000 {
            let name = format!("f{at}").into();
            functions.push(Function { name, description: None, flags: Flags::default() });
            assert_eq!(functions.len(), at + 1);
        }
        for at in [0, 1, 2, 1023, 1024, 1025, 2999] {
            assert_eq!(&*functions.get(at).unwrap().name, format!("f{at}"));
            assert_eq!(&*functions.from(at).next().unwrap().name, format!("f{at}"));
        }
        assert_eq!(functions.get(3000), None);
        assert_eq!(functions.from(17).count(), 3000 - 17);
        drop(functions);
        while lazyfree::run(&darter_base::preempt::Never) {}
        assert!(lazyfree::is_empty());
    }
}
