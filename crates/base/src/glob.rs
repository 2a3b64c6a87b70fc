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

/// Whether some text that begins with `prefix` may match: true too where that would take long to
/// tell, at a class.
#[must_use]
pub fn may_begin_with(pattern: &[u8], prefix: &[u8]) -> bool {
    let mut at = 0;
    for byte in prefix {
        at += match pattern.get(at) {
            Some(b'*' | b'[') => return true,
            _ => match step(&pattern[at..], *byte, Case::Sensitive) {
                Ok(used) => used,
                Err(_) => return false,
            },
        };
    }
    true
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
    let mut budget = usize::MAX;
    Walk::default().go_on(pattern, text, case, &mut budget).expect("the budget has no end")
}

/// A match in portions: for patterns and texts of any length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walk {
    /// Bytes of the pattern and of the text that match.
    at: usize,
    read: usize,
    /// Where to continue after a mismatch.
    star: Option<(usize, usize)>,
}

impl Walk {
    /// Matches on, always with the same pattern and text: whether they match, or none yet when the
    /// budget is used up. A step costs 1, or the bytes of its class, and takes a nanosecond or two.
    pub fn go_on(
        &mut self,
        pattern: &[u8],
        text: &[u8],
        case: Case,
        budget: &mut usize,
    ) -> Option<bool> {
        let Self { at, read, star } = self;
        loop {
            if *at < pattern.len() && pattern[*at] == b'*' {
                *at += 1;
                *star = Some((*at, *read));
                *budget = budget.saturating_sub(1);
                if *budget == 0 {
                    return None;
                }
                continue;
            }
            if *read == text.len() {
                return Some(pattern[*at..].iter().all(|&byte| byte == b'*'));
            }
            match step(&pattern[*at..], text[*read], case) {
                Ok(used) => {
                    *budget = budget.saturating_sub(used);
                    *at += used;
                    *read += 1;
                }
                Err(looked_at) => {
                    *budget = budget.saturating_sub(looked_at);
                    let Some((after, from)) = *star else { return Some(false) };
                    *star = Some((after, from + 1));
                    (*at, *read) = (after, from + 1);
                }
            }
            if *budget == 0 {
                return None;
            }
        }
    }
}

/// Matches one byte against the head of `pattern`; returns how many pattern bytes that took, or how
/// many were looked at in vain.
fn step(pattern: &[u8], byte: u8, case: Case) -> Result<usize, usize> {
    let (matches, used) = match pattern {
        [] => (false, 1),
        [b'?', ..] => (true, 1),
        [b'[', ..] => class(pattern, byte, case),
        [b'\\', escaped, ..] => (equal(*escaped, byte, case), 2),
        [plain, ..] => (equal(*plain, byte, case), 1),
    };
    if matches { Ok(used) } else { Err(used) }
}

/// Matches a `[...]` class: whether it does, and how long it is. An unclosed class ends with the
/// pattern, as in Redis.
fn class(pattern: &[u8], byte: u8, case: Case) -> (bool, usize) {
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
    (found != negated, at)
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

    #[test] // However small the portions.
    fn portions_agree_with_the_whole() {
        for (pattern, text) in
            [("a*b[xy]*z", "aXXbyWWz"), ("*a*a*b", "aaaaaaa"), ("*", ""), ("x", "y")]
        {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            let (mut walk, mut portions) = (Walk::default(), 0);
            let matched = loop {
                portions += 1;
                if let Some(matched) = walk.go_on(pattern, text, Case::Sensitive, &mut 2) {
                    break matched;
                }
            };
            assert_eq!(matched, matches(pattern, text));
            assert!(portions >= text.len() / 2, "{portions}");
        }
    }

    #[test] // Exponential in a naive matcher.
    fn many_stars_do_not_explode() {
        let pattern = format!("{}c", "a*".repeat(40));
        assert!(!matches(pattern.as_bytes(), format!("{}b", "a".repeat(2_000)).as_bytes()));
    }
}
