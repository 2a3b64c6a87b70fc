//! Patterns as in KEYS and SCAN: `*`, `?`, `[abc]`, `[^a]`, `[a-z]` and `\` before any of them.
//!
//! A failed `*` backtracks to the last star only, never to earlier ones: a later star can match all
//! that an earlier one could. So matching costs O(pattern x text) at worst, and a hostile pattern
//! of many stars cannot stall a core.

/// True when `pattern` matches all of `text`.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_case(pattern, text, Case::Sensitive)
}

/// How letters compare.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// `a` and `A` differ.
    Sensitive,
    /// `a` and `A` are equal: for names of settings.
    Insensitive,
}

/// [`matches()`], with a choice of case.
#[must_use]
pub fn matches_case(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None; // Where to continue after a mismatch.
    loop {
        if at < pattern.len() && pattern[at] == b'*' {
            at += 1;
            star = Some((at, read));
            continue;
        }
        if read == text.len() {
            return pattern[at..].iter().all(|&byte| byte == b'*');
        }
        match step(&pattern[at..], text[read], case) {
            Some(used) => {
                at += used;
                read += 1;
            }
            None => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (at, read) = (after, from + 1);
            }
        }
    }
}

/// Matches one byte against the head of `pattern`; returns how many pattern bytes that took.
fn step(pattern: &[u8], byte: u8, case: Case) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', ..] => class(pattern, byte, case),
        [b'\\', escaped, ..] => equal(*escaped, byte, case).then_some(2),
        [plain, ..] => equal(*plain, byte, case).then_some(1),
    }
}

/// Matches a `[...]` class. An unclosed class ends with the pattern, as in Redis.
fn class(pattern: &[u8], byte: u8, case: Case) -> Option<usize> {
    let mut at = 1;
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match pattern[at.min(pattern.len())..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= equal(escaped, byte, case);
                at += 2;
            }
            [from, b'-', to, ..] => {
                found |= in_range(from, to, byte, case);
                at += 3;
            }
            [plain, ..] => {
                found |= equal(plain, byte, case);
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

fn equal(left: u8, right: u8, case: Case) -> bool {
    left == right || (case == Case::Insensitive && left.eq_ignore_ascii_case(&right))
}

fn in_range(from: u8, to: u8, byte: u8, case: Case) -> bool {
    let fold = |byte: u8| match case {
        Case::Sensitive => byte,
        Case::Insensitive => byte.to_ascii_lowercase(),
    };
    let (from, to, byte) = (fold(from), fold(to), fold(byte));
    (from.min(to)..=from.max(to)).contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        #[rustfmt::skip] // A table.
        let cases: &[(&str, &str, bool)] = &[
            ("*", "", true),          ("*", "abc", true),        ("a*c", "abc", true),
            ("a*c", "ab", false),     ("h?llo", "hello", true),  ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true), ("h[^e]llo", "hello", false), ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true), ("\\*", "*", true),    ("\\*", "a", false),
            ("[\\]]", "]", true),     ("a**b", "aXYb", true),    ("", "", true), ("", "a", false),
            ("[abc", "c", true),      ("*.rs*x", "a.rs.rsx", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), *expected, "{pattern} {text}");
        }
        assert!(matches_case(b"MAX*", b"maxclients", Case::Insensitive));
    }

    #[test] // Exponential in a naive matcher.
    fn many_stars_do_not_explode() {
        let pattern = format!("{}c", "a*".repeat(40));
        assert!(!matches(pattern.as_bytes(), format!("{}b", "a".repeat(2_000)).as_bytes()));
    }
}
