//! When two replies agree: byte for byte, unless a mark says which part the command's definition
//! leaves open (an order, an instant, a random choice).

use crate::notation::show;
use crate::reply::{self, Reply};

/// The bytes that must be equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Match {
    /// Every byte.
    #[default]
    Exact,
    /// Every byte, after the elements of each aggregate have been sorted.
    Sorted,
    /// As above, for a flat array of pairs: the pairs are sorted.
    SortedPairs,
    /// Every byte, but integers may differ by this much.
    Near(i64),
    /// The kind of reply and the lengths of aggregates, at all levels.
    Shape,
    /// The kind of reply only.
    Kind,
    /// The first word of an error; other replies must be equal.
    ErrorCode,
    /// These elements of each row (an array of arrays), sorted inside.
    Fields(Vec<usize>),
    /// A text that both replies contain; they may differ elsewhere.
    Has(Vec<u8>),
}

/// Compares the subject's reply with the expected one.
///
/// # Errors
/// With both replies shown, when they differ.
pub fn check(expected: &[u8], actual: &[u8], how: &Match) -> Result<(), String> {
    if expected == actual && !matches!(how, Match::Has(_)) {
        return Ok(());
    }
    let (Ok(want), Ok(got)) = (reply::parse(expected), reply::parse(actual)) else {
        return Err(format!(
            "expected bytes {:?}\nactual bytes   {:?}",
            String::from_utf8_lossy(expected),
            String::from_utf8_lossy(actual)
        ));
    };
    if agree(&want, &got, how) {
        return Ok(());
    }
    Err(format!("expected {}\nactual   {}", show(&want, 600), show(&got, 600)))
}

fn agree(want: &Reply, got: &Reply, how: &Match) -> bool {
    match how {
        Match::Exact => want == got,
        Match::Sorted => sorted(want) == sorted(got),
        Match::SortedPairs => sorted_pairs(want) == sorted_pairs(got),
        Match::Near(slack) => near(want, got, *slack),
        Match::Shape => shape_agrees(want, got),
        Match::Kind => kind(want) == kind(got),
        Match::ErrorCode => match (want, got) {
            (Reply::Error(want), Reply::Error(got)) => first_word(want) == first_word(got),
            _ => want == got,
        },
        Match::Fields(fields) => sorted(&project(want, fields)) == sorted(&project(got, fields)),
        Match::Has(part) => {
            kind(want) == kind(got) && [want, got].iter().all(|reply| holds(reply, part))
        }
    }
}

fn sorted(reply: &Reply) -> Reply {
    let many = |items: &[Reply]| {
        let mut items: Vec<Reply> = items.iter().map(sorted).collect();
        items.sort();
        items
    };
    match reply {
        Reply::Array(items) => Reply::Array(many(items)),
        Reply::Set(items) => Reply::Set(many(items)),
        Reply::Map(_) => sorted_pairs(reply),
        other => other.clone(),
    }
}

/// The rows of `reply`, reduced to `fields`.
fn project(reply: &Reply, fields: &[usize]) -> Reply {
    let Some(rows) = reply.items() else { return reply.clone() };
    let pick = |row: &Reply| match row.items() {
        Some(items) => {
            let picked = fields.iter().filter_map(|field| items.get(*field).cloned());
            Reply::Array(picked.collect())
        }
        None => row.clone(),
    };
    Reply::Array(rows.iter().map(pick).collect())
}

fn sorted_pairs(reply: &Reply) -> Reply {
    let many = |items: &[Reply]| {
        let mut pairs: Vec<&[Reply]> = items.chunks(2).collect();
        pairs.sort();
        pairs.concat()
    };
    match reply {
        Reply::Array(items) => Reply::Array(many(items)),
        Reply::Map(items) => Reply::Map(many(items)),
        other => other.clone(),
    }
}

fn near(want: &Reply, got: &Reply, slack: i64) -> bool {
    match (want, got) {
        (Reply::Int(want), Reply::Int(got)) => want.abs_diff(*got) <= slack.unsigned_abs(),
        (Reply::Array(want), Reply::Array(got))
        | (Reply::Map(want), Reply::Map(got))
        | (Reply::Set(want), Reply::Set(got)) => {
            want.len() == got.len() && want.iter().zip(got).all(|(a, b)| near(a, b, slack))
        }
        _ => want == got,
    }
}

fn shape_agrees(want: &Reply, got: &Reply) -> bool {
    kind(want) == kind(got)
        && match (want.items(), got.items()) {
            (Some(want), Some(got)) => {
                want.len() == got.len() && want.iter().zip(got).all(|(a, b)| shape_agrees(a, b))
            }
            _ => true,
        }
}

fn kind(reply: &Reply) -> std::mem::Discriminant<Reply> {
    std::mem::discriminant(reply)
}

fn first_word(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == b' ').next().unwrap_or_default()
}

fn holds(reply: &Reply, part: &[u8]) -> bool {
    match (reply.text(), reply.items()) {
        (Some(text), _) => text.windows(part.len().max(1)).any(|window| window == part),
        (None, Some(items)) => items.iter().any(|item| holds(item, part)),
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::read;

    fn ok(want: &str, got: &str, how: &Match) -> bool {
        check(&read(want).unwrap().encode(), &read(got).unwrap().encode(), how).is_ok()
    }

    #[test]
    fn marks_tolerate_only_the_differences_they_name() {
        let (ab, ba) = ("[\"a\", \"b\"]", "[\"b\", \"a\"]");
        assert!(!ok(ab, ba, &Match::Exact));
        assert!(ok(ab, ba, &Match::Sorted));
        assert!(!ok(ab, "[\"a\", \"c\"]", &Match::Sorted));
        assert!(ok("[:1, :2, :3, :4]", "[:3, :4, :1, :2]", &Match::SortedPairs));
        assert!(!ok("[:1, :2, :3, :4]", "[:4, :3, :1, :2]", &Match::SortedPairs));
        assert!(ok("[:100, \"x\"]", "[:98, \"x\"]", &Match::Near(2)));
        assert!(!ok("[:100]", "[:97]", &Match::Near(2)));
        assert!(ok(ab, "[\"x\", \"y\"]", &Match::Shape));
        assert!(!ok(ab, "[\"x\"]", &Match::Shape));
        assert!(ok(ab, "[]", &Match::Kind));
        assert!(ok("-ERR a", "-ERR b", &Match::ErrorCode));
        assert!(!ok("-ERR a", "-WRONGTYPE a", &Match::ErrorCode));
        let fields = Match::Fields(vec![1]);
        assert!(ok("[[:1, {\"k\": :2}]]", "[[:3, {\"k\": :2}]]", &fields));
        assert!(!ok("[[:1, {\"k\": :2}]]", "[[:1, {\"k\": :3}]]", &fields));
        assert!(ok("\"x:1\"", "\"y x:2\"", &Match::Has(b"x:".to_vec())));
        assert!(!ok("\"x:1\"", "\"y\"", &Match::Has(b"x:".to_vec())));
    }
}
