//! The vocabulary of random commands: few keys and fields, so that commands meet, and values around
//! every limit that an implementation may have.

use crate::scripts::Script;
use darter_base::Prng;
use darter_testkit::compare::Match;
use darter_testkit::notation;

/// One command, and how its replies are compared.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) words: Vec<Vec<u8>>,
    pub(crate) how: Match,
    /// The script that calls it, if any.
    pub(crate) script: Option<Script>,
}

impl Command {
    pub(crate) fn new(words: Vec<Vec<u8>>) -> Self {
        Self { words, how: Match::Exact, script: None }
    }

    /// The command as typed in redis-cli.
    pub(crate) fn show(&self) -> String {
        let mut text = String::new();
        for word in &self.words {
            if !text.is_empty() {
                text.push(' ');
            }
            let plain = !word.is_empty() && word.iter().all(u8::is_ascii_graphic);
            if plain && word.len() <= 80 && !word.contains(&b'"') {
                text.push_str(&String::from_utf8_lossy(word));
            } else {
                let is_script = word.windows(7).any(|part| part == b"replies");
                notation::quote(word, &mut text, if is_script { 2_000 } else { 80 });
            }
        }
        text
    }
}

/// A source of random words. Deadlines are ten seconds apart, so that GT and LT do not depend on
/// the milliseconds between two commands.
pub(crate) struct Words<'a> {
    pub(crate) prng: &'a mut Prng,
    pub(crate) deadlines: u64,
    /// The next command.
    pub(crate) pending: Option<Command>,
}

/// The keys that all commands share.
pub(crate) const KEYS: &[&str] = &["a", "b", "{t}c", "{t}d", "123"];

const FIELDS: &[&str] = &[
    "f1",
    "f2",
    "f3",
    "f4",
    "",
    "7",
    "-7",
    "07",
    "1000000",
    "a field of some length",
    "123e4567-e89b-42d3-a456-426614174000",
    "123E4567-E89B-42D3-A456-426614174000",
    "bin\u{0}\u{1}",
    "9223372036854775807",
];

const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "7",
    "10",
    "127",
    "128",
    "-128",
    "32767",
    "2147483648",
    "00",
    "+5",
    " 1",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1.5",
    "-0.25",
    "3.0",
    "1e3",
    "inf",
    "nan",
    "abc",
    "hello world",
    "123e4567-e89b-42d3-a456-426614174000",
    "bin\u{0}\r\n",
    "a value of forty-four bytes, the embstr limit",
];

impl Words<'_> {
    pub(crate) fn pick(&mut self, choices: &[&str]) -> Vec<u8> {
        let index = self.index(choices.len());
        choices[index].as_bytes().to_vec()
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.prng.below(len as u64)).unwrap_or(0)
    }

    pub(crate) fn key(&mut self) -> Vec<u8> {
        self.pick(KEYS)
    }

    pub(crate) fn field(&mut self) -> Vec<u8> {
        match self.prng.below(100) {
            // Around the length of the longest name that a pack can hold.
            0 => vec![b'm'; 200 + self.index(200)],
            1..=20 => format!("many:{}", self.prng.below(300)).into_bytes(),
            _ => self.pick(FIELDS),
        }
    }

    pub(crate) fn value(&mut self) -> Vec<u8> {
        match self.prng.below(40) {
            0 => vec![b'x'; 65],
            1 => vec![b'y'; 1_000 + self.index(100)],
            2 => vec![b'z'; 20_000],
            3 => self.prng.bytes(0..=40),
            _ => self.pick(VALUES),
        }
    }

    pub(crate) fn number(&mut self) -> Vec<u8> {
        match self.prng.below(12) {
            0 => self.pick(&["9223372036854775807", "-9223372036854775808", "abc", "", "1.5"]),
            _ => (self.prng.below(41).cast_signed() - 20).to_string().into_bytes(),
        }
    }

    /// The offset of a bit: in the first bytes, or around the lengths at which the representation
    /// changes.
    pub(crate) fn bit(&mut self) -> Vec<u8> {
        match self.prng.below(12) {
            0 => self.pick(&["-1", "abc", "4294967296", "524287", "600000"]),
            1 => (4_000 + self.prng.below(300)).to_string().into_bytes(),
            _ => self.prng.below(80).to_string().into_bytes(),
        }
    }

    pub(crate) fn float(&mut self) -> Vec<u8> {
        self.pick(&["1", "-1", "0.5", "1.25", "-0.1", "3.0", "1e3", "1e-5", "abc", "nan", "100"])
    }

    /// A score, but never -0, which becomes 0 only in a listpack.
    pub(crate) fn score(&mut self) -> Vec<u8> {
        match self.prng.below(3) {
            0 => (self.prng.below(9).cast_signed() - 3).to_string().into_bytes(),
            _ => self.pick(&[
                "0.1",
                "0.2",
                "1.5",
                "-2.25",
                "1e17",
                "1e-7",
                "inf",
                "-inf",
                "+5",
                "0x10",
                "nan",
                "abc",
                "",
                "3.0",
                "9007199254740993",
                "1e308",
            ]),
        }
    }

    /// An end of a range of scores.
    pub(crate) fn bound(&mut self) -> Vec<u8> {
        let mut score = match self.prng.below(4) {
            0 => self.pick(&["-inf", "+inf", "", "(", "nan", "1 ", " 1", "((1"]),
            _ => self.score(),
        };
        if self.prng.chance(30) {
            score.insert(0, b'(');
        }
        score
    }

    /// A longitude and a latitude; values are rarely repeated.
    pub(crate) fn place(&mut self) -> [Vec<u8>; 2] {
        match self.prng.below(12) {
            0 => [self.pick(&["181", "nan", "abc", "-180", "180"]), self.pick(&["0", "86", "x"])],
            1 => [self.pick(&["180", "-180", "179.9999"]), self.degrees(85)],
            2 => [self.degrees(180), self.pick(&["85.05112878", "-85.05112878", "84.9"])],
            // Points near each other.
            3..=7 => [b"13.".to_vec(), b"38.".to_vec()].map(|whole| {
                [whole, (100_000 + self.prng.below(900_000)).to_string().into_bytes()].concat()
            }),
            _ => [self.degrees(180), self.degrees(85)],
        }
    }

    fn degrees(&mut self, below: u64) -> Vec<u8> {
        let sign = if self.prng.chance(50) { "-" } else { "" };
        let fraction = self.prng.below(1_000_000);
        format!("{sign}{}.{fraction:06}", self.prng.below(below)).into_bytes()
    }

    /// The radius of a search, in any unit.
    pub(crate) fn radius(&mut self) -> Vec<u8> {
        match self.prng.below(12) {
            0 => self.pick(&["0", "-1", "nan", "abc", "inf", "1e9", "20015", "20020.5"]),
            digits => {
                let below = 10_u64.pow(1 + (digits % 7) as u32);
                format!("{}.{}", self.prng.below(below), self.prng.below(1_000)).into_bytes()
            }
        }
    }

    pub(crate) fn unit(&mut self) -> Vec<u8> {
        self.pick(&["m", "km", "km", "km", "ft", "mi", "KM", "Mi", "cm"])
    }

    /// Seconds from now, different each time.
    pub(crate) fn seconds(&mut self) -> u64 {
        self.deadlines += 1;
        1_000 + (self.prng.below(1_000) * 1_000 + self.deadlines) * 10
    }

    pub(crate) fn many(
        &mut self,
        max: usize,
        mut one: impl FnMut(&mut Self) -> Vec<u8>,
    ) -> Vec<Vec<u8>> {
        let count = 1 + self.index(max);
        (0..count).map(|_| one(self)).collect()
    }
}
