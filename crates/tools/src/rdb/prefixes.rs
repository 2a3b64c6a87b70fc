//! Sums over keys with similar names, in bounded memory.
//!
//! By default, patterns are found: digits and identifiers in a name become `*`, so `user:17:cart`
//! counts as `user:*:cart`. With a separator, the first segments of the name are the pattern.
//!
//! Memory: at most twice [`PATTERNS_MAX`] patterns. When there are more, the smaller half joins its
//! parents: `user:*:cart` becomes `user:*`, which becomes `*`. Sums stay exact as a whole, but a
//! pattern that was small for a long time may be counted at its parent in part.

use super::measure::KeySize;
use std::collections::HashMap;

/// The number of patterns that are always kept.
const PATTERNS_MAX: usize = 4_096;
/// Longer patterns are cut.
const PATTERN_BYTES_MAX: usize = 200;
/// The bytes that separate segments when patterns are found.
const SEPARATORS: &[u8] = b":/.|#";
/// A segment of at least this many letters and digits is an identifier if it has enough digits.
const IDENTIFIER_BYTES_MIN: usize = 8;

/// Numbers of keys and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) keys: u64,
    pub(crate) redis_bytes: u64,
    pub(crate) darter_bytes: u64,
}

/// Chooses the pattern of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Grouping {
    /// Digits and identifiers become `*`.
    Found,
    /// The first `depth` segments.
    Segments { separator: u8, depth: usize },
}

/// Sums by pattern.
#[derive(Debug)]
pub(crate) struct Prefixes {
    grouping: Grouping,
    patterns: HashMap<Vec<u8>, Sums>,
    most: usize,
}

impl Sums {
    /// Adds a key.
    pub(crate) fn add(&mut self, size: &KeySize) {
        let redis_bytes = size.redis_bytes.unwrap_or(0);
        self.merge(&Self { keys: 1, redis_bytes, darter_bytes: size.darter_bytes });
    }

    fn merge(&mut self, other: &Self) {
        self.keys += other.keys;
        self.redis_bytes += other.redis_bytes;
        self.darter_bytes += other.darter_bytes;
    }

    fn weight(&self) -> u64 {
        self.redis_bytes.max(self.darter_bytes)
    }
}

impl Prefixes {
    pub(crate) fn new(grouping: Grouping) -> Self {
        Self { grouping, patterns: HashMap::new(), most: PATTERNS_MAX }
    }

    /// Adds a key.
    pub(crate) fn add(&mut self, size: &KeySize) {
        let pattern = match self.grouping {
            Grouping::Found => pattern(&size.key),
            Grouping::Segments { separator, depth } => segments(&size.key, separator, depth),
        };
        self.patterns.entry(pattern).or_default().add(size);
        if self.patterns.len() > 2 * self.most {
            self.fold();
        }
    }

    /// The patterns, those with the most bytes first.
    pub(crate) fn sorted(&self) -> Vec<(&[u8], Sums)> {
        let mut all: Vec<_> = self.patterns.iter().map(|(key, sums)| (&key[..], *sums)).collect();
        all.sort_by(|one, two| (two.1.weight(), one.0).cmp(&(one.1.weight(), two.0)));
        all
    }

    /// Merges small patterns into their parents until few enough are left.
    fn fold(&mut self) {
        while self.patterns.len() > self.most {
            let mut all: Vec<_> = self.patterns.drain().collect();
            all.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.weight()));
            for (at, (pattern, sums)) in all.into_iter().enumerate() {
                let kept = at < self.most / 2;
                let pattern = if kept { pattern } else { self.parent(&pattern) };
                self.patterns.entry(pattern).or_default().merge(&sums);
            }
        }
    }

    fn parent(&self, pattern: &[u8]) -> Vec<u8> {
        let is_separator = |byte: &u8| match self.grouping {
            Grouping::Found => SEPARATORS.contains(byte),
            Grouping::Segments { separator, .. } => *byte == separator,
        };
        let own = pattern.strip_suffix(b"*").unwrap_or(pattern);
        let own =
            own.split_last().filter(|(last, _)| is_separator(last)).map_or(own, |pair| pair.1);
        let end = own.iter().rposition(is_separator).map_or(0, |at| at + 1);
        [&own[..end], b"*"].concat()
    }
}

/// The name with `*` for digits and identifiers.
fn pattern(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len().min(PATTERN_BYTES_MAX));
    let is_separator = |byte: &u8| SEPARATORS.contains(byte);
    for (at, segment) in name.split(is_separator).enumerate() {
        if at > 0 {
            let end = segment.as_ptr() as usize - name.as_ptr() as usize;
            out.push(name[end - 1]);
        }
        if out.len() >= PATTERN_BYTES_MAX {
            out.push(b'*');
            break;
        }
        fold_segment(segment, &mut out);
    }
    out
}

fn fold_segment(segment: &[u8], out: &mut Vec<u8>) {
    let digits = segment.iter().filter(|byte| byte.is_ascii_digit()).count();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=');
    let is_identifier = segment.len() >= IDENTIFIER_BYTES_MIN
        && digits * 8 >= segment.len()
        && segment.iter().all(is_word);
    let is_text = segment.iter().all(|byte| (b' '..=b'~').contains(byte))
        || std::str::from_utf8(segment).is_ok_and(|text| !text.chars().any(char::is_control));
    if is_identifier || !is_text || segment.len() > PATTERN_BYTES_MAX {
        return out.push(b'*');
    }
    for byte in segment {
        match byte.is_ascii_digit() {
            true if out.last() == Some(&b'*') => {}
            true => out.push(b'*'),
            false => out.push(*byte),
        }
    }
}

fn segments(name: &[u8], separator: u8, depth: usize) -> Vec<u8> {
    let ends = name.iter().enumerate().filter(|(_, byte)| **byte == separator);
    match ends.map(|(at, _)| at).nth(depth.saturating_sub(1)) {
        Some(end) => [&name[..=end.min(PATTERN_BYTES_MAX)], b"*"].concat(),
        None => name[..name.len().min(PATTERN_BYTES_MAX)].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str) -> String {
        String::from_utf8(pattern(name.as_bytes())).unwrap()
    }

    #[test]
    fn digits_and_identifiers_are_folded() {
        for (name, expected) in [
            ("user:17:cart", "user:*:cart"),
            ("plain", "plain"),
            ("item42b", "item*b"),
            ("session:550e8400-e29b-41d4-a716-446655440000", "session:*"),
            ("a:deadbeef01:b", "a:*:b"),
            ("day/2026-11-28", "day/*"),
            ("", ""),
            (":1:", ":*:"),
        ] {
            assert_eq!(shown(name), expected, "{name}");
        }
        assert_eq!(pattern(b"x:\xff\x00\x01"), b"x:*");
    }

    #[test]
    fn the_first_segments_are_the_prefix() {
        assert_eq!(segments(b"a:b:c", b':', 1), b"a:*");
        assert_eq!(segments(b"a:b:c", b':', 2), b"a:b:*");
        assert_eq!(segments(b"a:b:c", b':', 3), b"a:b:c");
    }

    #[test] // More patterns than are kept: the totals stay exact, and large patterns stay.
    fn small_patterns_join_their_parents() {
        let mut prefixes = Prefixes { most: 8, ..Prefixes::new(Grouping::Found) };
        let mut bytes = 0;
        for letter in 0..400_u32 {
            let name = |at: u32| char::from(b'a' + (at % 26) as u8);
            let (one, two) = (name(letter), name(letter / 26));
            let size = |key: String, darter_bytes: u64| KeySize {
                key: key.into_bytes(),
                darter_bytes,
                ..KeySize::default()
            };
            prefixes.add(&size(format!("{one}:{two}:x"), 1));
            prefixes.add(&size("large:x".to_owned(), 100));
            bytes += 101;
            assert!(prefixes.patterns.len() <= 16, "{}", prefixes.patterns.len());
        }
        let sorted = prefixes.sorted();
        assert_eq!(sorted[0].0, b"large:x");
        assert_eq!(sorted[0].1, Sums { keys: 400, redis_bytes: 0, darter_bytes: 40_000 });
        assert_eq!(sorted.iter().map(|row| row.1.darter_bytes).sum::<u64>(), bytes);
    }
}
