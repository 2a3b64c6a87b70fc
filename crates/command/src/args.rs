//! A cursor over a request's arguments.

use crate::Refusal;
use darter_base::number;
use darter_keyspace::{Fresh, Key};
use darter_resp as resp;

/// The arguments that are still unread. The engine has checked the arity of the command's row, so
/// required arguments are always there. A missing optional argument is a syntax error.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    all: resp::Args<'a>,
    at: usize,
}

impl<'a> Args<'a> {
    /// The arguments after the command's name (for a subcommand, after both names).
    #[must_use]
    pub fn new(all: resp::Args<'a>, at: usize) -> Self {
        Self { all, at: at.min(all.len()) }
    }

    /// The whole request, name included.
    #[must_use]
    pub fn all(self) -> resp::Args<'a> {
        self.all
    }

    /// Index of the next argument in the whole request.
    #[must_use]
    pub fn position(self) -> usize {
        self.at
    }

    /// Number of arguments left.
    #[inline]
    #[must_use]
    pub fn left(self) -> usize {
        self.all.len() - self.at
    }

    /// The next argument, not consumed.
    #[inline(always)]
    #[must_use]
    pub fn peek(self) -> Option<&'a [u8]> {
        (self.at < self.all.len()).then(|| self.all.get(self.at))
    }

    /// Takes the next argument, or returns `None` at the end.
    #[inline(always)]
    #[expect(clippy::should_implement_trait, reason = "a cursor that is Copy is no iterator")]
    pub fn next(&mut self) -> Option<&'a [u8]> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    /// Takes the next argument.
    #[inline(always)]
    pub fn bytes(&mut self) -> Result<&'a [u8], Refusal> {
        self.next().ok_or(Refusal::Syntax)
    }

    /// Takes the next argument as a word to compare or to quote. Only the first chunk of a large
    /// argument is returned, which equals no word. So a huge argument costs no more than a small
    /// one.
    #[inline]
    pub fn word(&mut self) -> Result<&'a [u8], Refusal> {
        let word = self.peek_word().ok_or(Refusal::Syntax)?;
        self.at += 1;
        Ok(word)
    }

    /// The next argument as [`Args::word`], not consumed.
    #[inline(always)]
    #[must_use]
    pub fn peek_word(self) -> Option<&'a [u8]> {
        (self.at < self.all.len()).then(|| self.all.head(self.at))
    }

    /// Takes the next argument as a key.
    #[inline(always)]
    pub fn key(&mut self) -> Result<Key<'a>, Refusal> {
        let (at, bytes) = (self.at, self.bytes()?);
        Ok(Key::hashed(bytes, self.all.hash(at)))
    }

    /// The hash of the last argument taken.
    #[inline]
    #[must_use]
    pub fn last_hash(self) -> u64 {
        self.all.hash(self.at - 1)
    }

    /// Takes the next argument as a value to store: in chunks if it is large.
    #[inline]
    pub fn value(&mut self) -> Result<Fresh<'a>, Refusal> {
        if self.left() == 0 {
            return Err(Refusal::Syntax);
        }
        let value = match self.all.arg(self.at) {
            resp::Arg::Bytes(bytes) => Fresh::Bytes(bytes),
            resp::Arg::Chunks { chunks, .. } => Fresh::Chunks(chunks),
        };
        self.at += 1;
        Ok(value)
    }

    /// Takes the next argument as an integer.
    pub fn int(&mut self) -> Result<i64, Refusal> {
        number::parse_i64(self.word()?).ok_or(Refusal::NotAnInteger)
    }

    /// Takes the next argument if it equals `word` in any case.
    pub fn option(&mut self, word: &str) -> bool {
        let found = self.peek_word().is_some_and(|next| next.eq_ignore_ascii_case(word.as_bytes()));
        self.at += usize::from(found);
        found
    }

    /// True when the next argument may be an option, because it begins with a letter. So scores and
    /// other arguments that begin with a digit are not compared with every option.
    #[inline]
    #[must_use]
    pub fn may_be_option(self) -> bool {
        self.peek_word().and_then(<[u8]>::first).is_some_and(u8::is_ascii_alphabetic)
    }

    /// Refuses further arguments.
    pub fn end(self) -> Result<(), Refusal> {
        if self.left() == 0 { Ok(()) } else { Err(Refusal::Syntax) }
    }

    /// Moves to the argument at `position` of the whole request.
    pub fn seek(&mut self, position: usize) {
        self.at = position.min(self.all.len());
    }
}
