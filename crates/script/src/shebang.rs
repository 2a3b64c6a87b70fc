//! The first line of a script, if it begins with `#!`: its engine and its flags.

use std::ops::BitOr;

/// The flags that a script declares, or that it declares none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// The script has no `#!` line: the rules before Redis 7 apply.
    pub const COMPATIBLE: Self = Self(1);
    /// The script writes nothing.
    pub const NO_WRITES: Self = Self(2);
    /// The script may run when memory is full.
    pub const ALLOW_OOM: Self = Self(4);
    /// The script may run on a stale replica.
    pub const ALLOW_STALE: Self = Self(8);
    /// The script does not run in a cluster.
    pub const NO_CLUSTER: Self = Self(16);
    /// The script uses keys of several slots.
    pub const ALLOW_CROSS_SLOT_KEYS: Self = Self(32);

    /// Whether all of `other` are set.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flag of this name, in this case.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, flag)| *flag)
    }

    /// The names of those that are set, in Redis's order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.iter().filter(move |(_, flag)| self.has(*flag)).map(|(name, _)| *name)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[rustfmt::skip] // A table.
const NAMES: &[(&str, Flags)] = &[
    ("no-writes",             Flags::NO_WRITES),
    ("allow-oom",             Flags::ALLOW_OOM),
    ("allow-stale",           Flags::ALLOW_STALE),
    ("no-cluster",            Flags::NO_CLUSTER),
    ("allow-cross-slot-keys", Flags::ALLOW_CROSS_SLOT_KEYS),
];

/// Longer first lines are refused, because a line is read in one step.
const LINE_MAX: usize = 64 << 10;

/// The flags of a script, and its code: the text without the first line, but with its end, so
/// that lines keep their numbers.
///
/// # Errors
/// The text of the refusal, without its code.
pub(crate) fn read(text: &[u8]) -> Result<(Flags, &[u8]), Vec<u8>> {
    if !text.starts_with(b"#!") {
        return Ok((Flags::COMPATIBLE, text));
    }
    // Redis sees the text only up to the first NUL.
    let end = text.iter().take(LINE_MAX).position(|byte| matches!(byte, b'\n' | 0));
    let end =
        end.filter(|end| text[*end] == b'\n').ok_or_else(|| b"Invalid script shebang".to_vec())?;
    let words = split(&text[..end]).filter(|words| !words.is_empty());
    let words = words.ok_or_else(|| b"Invalid engine in script shebang".to_vec())?;
    if words[0] != b"#!lua" {
        return Err([b"Unexpected engine in script shebang: ", &*words[0]].concat());
    }
    let mut flags = Flags::default();
    for word in &words[1..] {
        let Some(names) = word.strip_prefix(b"flags=") else {
            return Err([b"Unknown lua shebang option: ", &**word].concat());
        };
        for name in names.split(|byte| *byte == b',').filter(|_| !names.is_empty()) {
            let flag = Flags::from_name(name)
                .ok_or_else(|| [b"Unexpected flag in script shebang: ", name].concat())?;
            flags = flags | flag;
        }
    }
    Ok((flags, &text[end..]))
}

/// Splits a line into words, which may be quoted as in Redis's command line; `None` if a quote is
/// not closed.
pub(crate) fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        while let [first, after @ ..] = rest
            && is_space(*first)
        {
            rest = after;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after;
    }
}

/// C's `isspace`. Any of these may follow a quoted word; fewer end an unquoted one: see `word`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// The first word of a line, and what follows.
fn word(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    let mut at = 0;
    let ends_word = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    while !line.get(at).is_none_or(ends_word) {
        let quote = line[at];
        at += 1;
        if !matches!(quote, b'"' | b'\'') {
            word.push(quote);
            continue;
        }
        while *line.get(at)? != quote {
            let (byte, length) = unescaped(&line[at..], quote);
            word.push(byte);
            at += length;
        }
        at += 1;
        if !line.get(at).is_none_or(|byte| is_space(*byte)) {
            return None;
        }
        break; // A closing quote ends the word.
    }
    Some((word, &line[at..]))
}

/// A byte within quotes, and the length of its notation.
fn unescaped(text: &[u8], quote: u8) -> (u8, usize) {
    match (quote, text) {
        (b'\'', [b'\\', b'\'', ..]) => (b'\'', 2),
        (b'"', [b'\\', b'x', high, low, ..])
            if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
        {
            let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0);
            let value = 16 * digit(*high) + digit(*low);
            (u8::try_from(value).unwrap_or(0), 4)
        }
        (b'"', [b'\\', escaped, ..]) => {
            let byte = match escaped {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'b' => 8,
                b'a' => 7,
                other => *other,
            };
            (byte, 2)
        }
        _ => (text[0], 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // redis-server 7.0.15.
    fn script_headers_are_parsed_as_by_redis() {
        let refused = |text: &str| String::from_utf8(read(text.as_bytes()).unwrap_err()).unwrap();
        assert_eq!(read(b"return 1"), Ok((Flags::COMPATIBLE, &b"return 1"[..])));
        assert_eq!(read(b"#!lua\nx"), Ok((Flags::default(), &b"\nx"[..])));
        assert_eq!(read(b"#!lua flags=\r\nx").unwrap().0, Flags::default());
        let both = Flags::NO_WRITES | Flags::ALLOW_OOM;
        assert_eq!(read(b"#!lua \"flags=no-writes,allow-oom\"\n").unwrap().0, both);
        assert_eq!(refused("#!lua"), "Invalid script shebang");
        assert_eq!(refused("#! lua\n"), "Unexpected engine in script shebang: #!");
        assert_eq!(refused("#!lua 'x\n"), "Invalid engine in script shebang");
        assert_eq!(refused("#!lua flags=no-writes,\n"), "Unexpected flag in script shebang: ");
        assert_eq!(refused("#!lua name=x\n"), "Unknown lua shebang option: name=x");
    }
}
