//! Malformed commands: a word too many, one too few, one twice, an invalid number, a misplaced
//! option, bytes that are not text. Refusals are compared with their text.
//!
//! Not here: small positive numbers, because as milliseconds they would make replies depend on
//! timing.

use crate::vocabulary::{Command, Words};
use darter_testkit::compare::Match;

const ODD: &[&[u8]] = &[
    b"",
    b" ",
    b"+1",
    b"-0",
    b"01",
    b"1 ",
    b" 1",
    b"1.5",
    b"-1",
    b"0x10",
    b"nan",
    b"-inf",
    b"1e400",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551616",
    b"99999999999999999999999",
    b"-99999999999999999999999",
    b"a\r\nb",
    b"a\r\n",
    b"\0",
    b"0\0",
    b"\xff\xfe",
    b"\xc3\xa9",
];

const OPTIONS: &[&str] = &[
    "NX",
    "xx",
    "GT",
    "Lt",
    "EX",
    "px",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "PERSIST",
    "GET",
    "MATCH",
    "COUNT",
    "REPLACE",
    "DB",
    "LIMIT",
    "WITHVALUES",
    "LEN",
    "IDX",
    "MINMATCHLEN",
    "HELP",
];

impl Words<'_> {
    /// A word that few commands expect.
    pub(crate) fn odd(&mut self) -> Vec<u8> {
        if self.prng.chance(60) { ODD[self.index(ODD.len())].to_vec() } else { self.pick(OPTIONS) }
    }

    /// A suffix for a name. It has no NUL: Redis hashes the whole name, but compares it only up to
    /// a NUL, so it finds `GET\0` only if chance puts that into the bucket of `GET`.
    fn tail(&mut self) -> &'static [u8] {
        let odd = ODD[self.index(ODD.len())];
        if odd.contains(&0) { b"" } else { odd }
    }

    /// The command, occasionally malformed. Commands whose replies are not compared exactly are
    /// left alone: they may choose at random, and odd numbers would request millions. The first
    /// argument is left alone, too: all keys are read at the end, and an odd one would not be.
    pub(crate) fn perhaps_odd(&mut self, mut command: Command) -> Command {
        if command.how != Match::Exact || !self.prng.chance(8) {
            return command;
        }
        const SECOND: usize = 2;
        let words = &mut command.words;
        let behind = words.len().saturating_sub(SECOND);
        let at = SECOND + self.index(behind.max(1));
        match self.prng.below(5) {
            0 => words[0].extend(self.tail()), // Options may have the names of commands.
            1 if behind > 0 => words[at] = self.odd(),
            2 if behind > 0 => drop(words.remove(at)),
            3 => words.insert(words.len().min(at), words[words.len().min(at) - 1].clone()),
            _ => words.insert(words.len().min(at), self.odd()),
        }
        command
    }
}
