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

/// True if some text that begins with `prefix` may match, or if a class makes that too slow to
/// decide.
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

/// A match that runs in portions, for patterns and texts of any length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walk {
    /// Bytes of the pattern and of the text that have matched so far.
    at: usize,
    read: usize,
    /// The place to continue at after a mismatch.
    star: Option<(usize, usize)>,
    /// The class at `at`, as far as it has been read.
    class: Option<Class>,
}

impl Walk {
    /// Continues the match; every call takes the same pattern and text. Returns the result, or
    /// `None` when the budget is used up first. A step costs 1, or the bytes of its class, and
    /// takes a nanosecond or two.
    pub fn go_on(
        &mut self,
        pattern: &[u8],
        text: &[u8],
        case: Case,
        budget: &mut usize,
    ) -> Option<bool> {
        loop {
            if self.at < pattern.len() && pattern[self.at] == b'*' {
                self.at += 1;
                self.star = Some((self.at, self.read));
                *budget = budget.saturating_sub(1);
                if *budget == 0 {
                    return None;
                }
                continue;
            }
            if self.read == text.len() {
                return Some(pattern[self.at..].iter().all(|&byte| byte == b'*'));
            }
            match self.step(&pattern[self.at..], text[self.read], case, budget)? {
                Ok(used) => {
                    self.at += used;
                    self.read += 1;
                }
                Err(NoMatch) => {
                    let Some((after, from)) = self.star else { return Some(false) };
                    self.star = Some((after, from + 1));
                    (self.at, self.read) = (after, from + 1);
                }
            }
            if *budget == 0 {
                return None;
            }
        }
    }

    /// Matches one byte against the head of the rest of the pattern. `None` when the budget is used
    /// up within a class.
    fn step(
        &mut self,
        rest: &[u8],
        byte: u8,
        case: Case,
        budget: &mut usize,
    ) -> Option<Result<usize, NoMatch>> {
        if rest.first() != Some(&b'[') {
            *budget = budget.saturating_sub(1);
            return Some(step(rest, byte, case));
        }
        let mut class = self.class.take().unwrap_or_else(|| Class::begin(rest));
        if class.go_on(rest, byte, case, budget) {
            return Some(class.matched());
        }
        self.class = Some(class);
        None
    }
}

/// A byte differs from the pattern's byte at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NoMatch;

/// Matches one byte against the head of `pattern`. Returns the length of that head.
fn step(pattern: &[u8], byte: u8, case: Case) -> Result<usize, NoMatch> {
    let (matches, used) = match pattern {
        [] => (false, 1),
        [b'?', ..] => (true, 1),
        [b'[', ..] => {
            let (mut class, mut budget) = (Class::begin(pattern), usize::MAX);
            let is_whole = class.go_on(pattern, byte, case, &mut budget);
            debug_assert!(is_whole, "the budget has no end");
            return class.matched();
        }
        [b'\\', escaped, ..] => (equal(*escaped, byte, case), 2),
        [plain, ..] => (equal(*plain, byte, case), 1),
    };
    if matches { Ok(used) } else { Err(NoMatch) }
}

/// A `[...]` class, as far as it has been read. An unclosed class ends with the pattern, as in
/// Redis.
#[derive(Clone, Copy, Debug)]
struct Class {
    at: usize,
    is_negated: bool,
    is_found: bool,
}

impl Class {
    fn begin(pattern: &[u8]) -> Self {
        let is_negated = pattern.get(1) == Some(&b'^');
        Self { at: 1 + usize::from(is_negated), is_negated, is_found: false }
    }

    /// Continues the search for a byte. True at the end of the class, false if the budget is used
    /// up before.
    fn go_on(&mut self, pattern: &[u8], byte: u8, case: Case, budget: &mut usize) -> bool {
        loop {
            let before = self.at;
            match pattern[self.at..] {
                [] => return true,
                [b']', ..] => {
                    self.at += 1;
                    *budget = budget.saturating_sub(1);
                    return true;
                }
                [b'\\', escaped, ..] => {
                    self.is_found |= equal(escaped, byte, case);
                    self.at += 2;
                }
                [from, b'-', to, ..] => {
                    self.is_found |= in_range(from, to, byte, case);
                    self.at += 3;
                }
                [plain, ..] => {
                    self.is_found |= equal(plain, byte, case);
                    self.at += 1;
                }
            }
            *budget = budget.saturating_sub(self.at - before);
            if *budget == 0 {
                return false;
            }
        }
    }

    /// The length of the class if it contains the byte, else a mismatch.
    fn matched(self) -> Result<usize, NoMatch> {
        if self.is_found != self.is_negated { Ok(self.at) } else { Err(NoMatch) }
    }
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

    #[test] // With portions of every size.
    fn a_match_in_portions_gives_the_same_result() {
        for (pattern, text) in [
            ("a*b[xy]*z", "aXXbyWWz"),
            ("*a*a*b", "aaaaaaa"),
            ("*", ""),
            ("x", "y"),
            ("*[a-cx\\]]b", "aab"),
            ("[^abcdef", "g"),
        ] {
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

    #[test]
    fn a_long_class_is_read_in_portions() {
        let pattern = format!("*[{}z]", "ab".repeat(10_000));
        let (mut walk, mut portions) = (Walk::default(), 0);
        let matched = loop {
            portions += 1;
            let mut budget = 1_000;
            let case = Case::Sensitive;
            if let Some(matched) = walk.go_on(pattern.as_bytes(), b"qz", case, &mut budget) {
                break matched;
            }
            assert_eq!(budget, 0);
        };
        assert!(matched && portions > 40, "{portions} portions");
    }

    #[test]
    fn patterns_that_cannot_match_a_prefix_are_recognized() {
        for (pattern, expected) in [
            ("*", true),
            ("a*", true),
            ("ab?d*", true),
            ("abcde", true),
            ("abc", true),
            ("ab", false),
            ("b*", false),
            ("ab?e", true),
            ("[x]bc", true),
            ("", false),
            ("\\abc", true),
            ("abd*", false),
            ("a\\*", false),
        ] {
            assert_eq!(may_begin_with(pattern.as_bytes(), b"abc"), expected, "{pattern}");
        }
    }

    #[test] // Exponential in a naive matcher.
    fn patterns_of_many_stars_match_in_polynomial_time() {
        let pattern = format!("{}c", "a*".repeat(40));
        assert!(!matches(pattern.as_bytes(), format!("{}b", "a".repeat(2_000)).as_bytes()));
    }
}
