//! The options that SET, GETEX and MSETEX share: conditions and expire times.

use crate::expiry::{Unit, positive_deadline};
use crate::option_names;
use darter_base::UnixMillis;
use darter_command::{Args, Refusal};
use darter_keyspace::{Deadline, Fresh};

/// The command whose options are parsed: each allows some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face {
    /// Conditions, GET, KEEPTTL and times.
    Set,
    /// PERSIST and times.
    Getex,
    /// NX, XX, KEEPTTL and times.
    Msetex,
}

/// The condition of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// NX.
    Absent,
    /// XX.
    Present,
    /// IFEQ.
    Equal,
    /// IFNE.
    Different,
    /// IFDEQ.
    DigestEqual,
    /// IFDNE.
    DigestDifferent,
}

impl Test {
    /// The test for an option's name, in any case.
    pub(super) fn of_option(word: &[u8]) -> Option<Self> {
        const NAMES: [(&str, Test); 6] = [
            ("NX", Test::Absent),
            ("XX", Test::Present),
            ("IFEQ", Test::Equal),
            ("IFNE", Test::Different),
            ("IFDEQ", Test::DigestEqual),
            ("IFDNE", Test::DigestDifferent),
        ];
        option_names::meaning(word, &NAMES)
    }

    /// True if an operand follows, with which the value is compared.
    pub(super) fn compares(self) -> bool {
        !matches!(self, Self::Absent | Self::Present)
    }
}

/// A test with its operand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition<'a> {
    /// The test.
    pub(super) test: Test,
    /// The operand; empty for NX and XX.
    pub(super) operand: Fresh<'a>,
    /// The place of the operand in the request.
    pub(super) at: usize,
}

/// The effect on the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry<'a> {
    /// No option: the command's default.
    Unsaid,
    /// KEEPTTL.
    Keep,
    /// PERSIST.
    Persist,
    /// EX, PX, EXAT or PXAT, and its unparsed argument.
    Time(Unit, &'a [u8]),
}

/// The options of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options<'a> {
    /// The condition of the command; `None`: unconditional.
    pub(super) condition: Option<Condition<'a>>,
    /// The effect on the deadline.
    pub(super) expiry: Expiry<'a>,
    /// GET: reply with the old value.
    pub(super) get: bool,
}

impl<'a> Options<'a> {
    /// Parses all remaining arguments as options. A repeated option overrides the earlier one;
    /// options that exclude each other are refused. Errors: `Syntax`.
    pub(super) fn parse(mut args: Args<'a>, face: Face) -> Result<Self, Refusal> {
        let mut options = Self { condition: None, expiry: Expiry::Unsaid, get: false };
        while let Some(word) = option_names::take(&mut args) {
            let taken = if let Some(test) = Test::of_option(word) {
                options.take_test(test, &mut args, face)?
            } else if face == Face::Set && option_names::is(word, "GET") {
                options.get = true;
                true
            } else {
                options.take_expiry(word, &mut args, face)?
            };
            if !taken {
                return Err(Refusal::Syntax);
            }
        }
        Ok(options)
    }

    /// The deadline that the options ask for at `now`. Errors: `NotAnInteger`, `InvalidExpire` in
    /// the name of `command`.
    pub(super) fn deadline(
        &self,
        now: UnixMillis,
        command: &'static str,
    ) -> Result<Deadline, Refusal> {
        match self.expiry {
            Expiry::Unsaid | Expiry::Persist => Ok(Deadline::Clear),
            Expiry::Keep => Ok(Deadline::Keep),
            Expiry::Time(unit, text) => {
                positive_deadline(unit, text, now, command).map(Deadline::At)
            }
        }
    }

    fn take_test(&mut self, test: Test, args: &mut Args<'a>, face: Face) -> Result<bool, Refusal> {
        let known = match face {
            Face::Set => true,
            Face::Getex => false,
            Face::Msetex => !test.compares(),
        };
        if !known || self.condition.is_some_and(|old| old.test != test) {
            return Ok(false);
        }
        let at = args.position();
        let operand = if test.compares() { args.value()? } else { Fresh::Bytes(b"") };
        self.condition = Some(Condition { test, operand, at });
        Ok(true)
    }

    fn take_expiry(
        &mut self,
        option: &[u8],
        args: &mut Args<'a>,
        face: Face,
    ) -> Result<bool, Refusal> {
        let keeps = if face == Face::Getex { "PERSIST" } else { "KEEPTTL" };
        let new = if option_names::is(option, keeps) {
            if face == Face::Getex { Expiry::Persist } else { Expiry::Keep }
        } else if let Some(unit) = Unit::of_option(option) {
            Expiry::Time(unit, option_names::take(args).ok_or(Refusal::Syntax)?)
        } else {
            return Ok(false);
        };
        let fits = match (self.expiry, new) {
            (Expiry::Unsaid, _) => true,
            (Expiry::Time(old, _), Expiry::Time(new, _)) => old == new,
            (old, new) => old == new,
        };
        self.expiry = new;
        Ok(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_resp::Request;
    use std::sync::Arc;

    fn parse(face: Face, words: &str) -> Result<String, Refusal> {
        let request = Arc::new(Request::from_args(words.split_whitespace().map(str::as_bytes)));
        let options = Options::parse(Args::new(darter_resp::Args::owned(&request), 0), face)?;
        let test = options.condition.map(|condition| condition.test);
        let deadline = options.deadline(1_000, "set")?;
        Ok(format!("{test:?} {deadline:?} {}", options.get))
    }

    #[test]
    fn options_combine_as_in_redis() {
        #[rustfmt::skip] // A table.
        let cases: &[(Face, &str, &str)] = &[
            (Face::Set, "", "None Clear false"),
            (Face::Set, "nx GeT", "Some(Absent) Clear true"),
            (Face::Set, "XX XX KEEPTTL", "Some(Present) Keep false"),
            (Face::Set, "EX 5 ex 7", "None At(8000) false"),
            (Face::Set, "ifeq NX pxat 5", "Some(Equal) At(5) false"),
            (Face::Getex, "PERSIST", "None Clear false"),
            (Face::Getex, "PX 5", "None At(1005) false"),
            (Face::Msetex, "PX 1 XX", "Some(Present) At(1001) false"),
        ];
        for (face, words, expected) in cases {
            assert_eq!(parse(*face, words).as_deref(), Ok(*expected), "{words}");
        }
        #[rustfmt::skip] // A table.
        let refused = [
            (Face::Set, "NX XX"), (Face::Set, "NX IFEQ a"), (Face::Set, "KEEPTTL EX 5"),
            (Face::Set, "EX 5 PX 5"), (Face::Set, "PERSIST"), (Face::Set, "IFEQ"),
            (Face::Set, "EX"), (Face::Set, "bogus"), (Face::Getex, "NX"), (Face::Getex, "GET"),
            (Face::Getex, "KEEPTTL"), (Face::Getex, "PERSIST EX 1"), (Face::Getex, "EX 1 PERSIST"),
            (Face::Msetex, "GET"), (Face::Msetex, "IFEQ a"), (Face::Msetex, "EX 1 KEEPTTL"),
        ];
        for (face, words) in refused {
            assert_eq!(parse(face, words), Err(Refusal::Syntax), "{words}");
        }
        assert_eq!(parse(Face::Set, "EX x"), Err(Refusal::NotAnInteger));
        for words in ["EX 0", "PX -1", "EX 9223372036854775807", "EXAT 9223372036854775"] {
            let text = parse(Face::Set, words);
            let fits = words.starts_with("EXAT");
            assert_eq!(text.is_ok(), fits, "{words} {text:?}");
        }
    }
}
