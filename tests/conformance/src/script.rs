//! The language of `cases/*.txt`: one file a family, one script a case.
//!
//! ```text
//! # A comment.
//! == name of the case [2] [3] [new 8.0]   [2]: only RESP2. [new V]: Redis 7.0.15 lacks it.
//! SET k "a\x00b"                          compared with the oracle, byte for byte
//! @sorted SMEMBERS s                      marks: see below
//! B: GET k                                on another connection (A is the usual one)
//! 3| HELLO 3                              only in RESP3
//! HTTL h FIELDS 1 f                       with a literal instead of the oracle:
//! => [:-1]                                (written as in `darter_testkit::notation`)
//! =2> [:-1]                               for RESP2 alone, if it is not the translation of RESP3's
//! ```
//! Marks: `@sorted`, `@pairs` (a flat array of pairs, sorted), `@near(N)` (integers within N),
//! `@shape`, `@kind`, `@code` (an error's first word), `@has(TEXT)`, `@fields(0,2)` (these elements
//! of each row), `@until` (repeat the command until its literal matches), `@scan`/`@scanpairs`
//! (follow `%cursor` to 0, compare all returned elements), `@save(NAME)` (keep the reply's text),
//! `@send` (do not wait for it), `@blocks` (like `@send`, and wait until one more client is
//! blocked).
//!
//! Actions without a command: `@raw "bytes"`, `@recv` (wait for a reply), `@eof` (all bytes until
//! the server closes), `@reconnect`, `@halfclose`, `@wait MS`.
//!
//! Arguments: words, quoted strings, and generators; see `args`.
//!
//! In a `[new]` case, a command without a literal is only preparation, and must not be refused.

use crate::args::{self, Arg};
use darter_testkit::compare::Match;
use darter_testkit::{Protocol, Reply, notation};
use std::fs;
use std::path::Path;

/// All scripts of one file.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) cases: Vec<Case>,
}

/// One script.
#[derive(Debug, Default)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) protocols: Vec<Protocol>,
    /// The version that introduced the commands, if Redis 7.0.15 lacks them.
    pub(crate) origin: Option<String>,
    pub(crate) steps: Vec<Step>,
}

/// One line of a script.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) line: usize,
    /// The line as written, for reports.
    pub(crate) text: String,
    pub(crate) only: Option<Protocol>,
    pub(crate) connection: char,
    pub(crate) action: Action,
    pub(crate) how: Match,
    /// The reply that replaces the oracle's, for RESP2 and RESP3.
    pub(crate) literal: [Option<Reply>; 2],
}

/// The action of a line.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    Command { args: Vec<Arg>, save: Option<String> },
    Until(Vec<Arg>),
    Scan { args: Vec<Arg>, pairs: bool },
    Send(Vec<Arg>),
    Blocks(Vec<Arg>),
    Raw(Vec<u8>),
    Receive,
    ReadToEnd,
    Reconnect,
    HalfClose,
    Wait(u64),
}

/// Reads every family, sorted by name.
pub(crate) fn load_all() -> Result<Vec<Family>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut families = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        let cases = parse(&text).map_err(|why| format!("{}:{why}", path.display()))?;
        families.push(Family { name, cases });
    }
    families.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(families)
}

fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = line.trim();
        let fault = |why: String| format!("{number}: {why}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(head) = line.strip_prefix("== ") {
            cases.push(parse_head(head).map_err(fault)?);
            continue;
        }
        let case = cases.last_mut().ok_or_else(|| fault("a line before any case".to_owned()))?;
        if line.starts_with("=>") || line.starts_with("=2>") {
            parse_literal(line, case).map_err(fault)?;
        } else {
            case.steps.push(parse_step(number, line).map_err(fault)?);
        }
    }
    Ok(cases)
}

fn parse_head(head: &str) -> Result<Case, String> {
    let mut parts = head.split('[');
    let name = parts.next().unwrap_or_default().trim().to_owned();
    let mut case = Case { name, ..Case::default() };
    for flag in parts {
        match flag.trim().trim_end_matches(']') {
            "2" => case.protocols.push(Protocol::Resp2),
            "3" => case.protocols.push(Protocol::Resp3),
            flag => match flag.strip_prefix("new ") {
                Some(origin) => case.origin = Some(origin.to_owned()),
                None => return Err(format!("unknown flag [{flag}]")),
            },
        }
    }
    if case.protocols.is_empty() {
        case.protocols = vec![Protocol::Resp2, Protocol::Resp3];
    }
    Ok(case)
}

fn parse_literal(line: &str, case: &mut Case) -> Result<(), String> {
    let step = case.steps.last_mut().ok_or("a literal before any command")?;
    let (mark, text) = line.split_once('>').unwrap_or_default();
    let reply = notation::read(text)?;
    if mark == "=" {
        step.literal = [Some(reply.to_resp2()), Some(reply.to_resp3())];
    } else {
        step.literal[0] = Some(reply);
    }
    Ok(())
}

fn parse_step(line: usize, text: &str) -> Result<Step, String> {
    let mut rest = text;
    let mut only = None;
    for (prefix, protocol) in [("2|", Protocol::Resp2), ("3|", Protocol::Resp3)] {
        if let Some(after) = rest.strip_prefix(prefix) {
            only = Some(protocol);
            rest = after.trim_start();
        }
    }
    let mut connection = 'A';
    for name in ['A', 'B', 'C', 'D'] {
        if let Some(after) = rest.strip_prefix(&format!("{name}: ")) {
            connection = name;
            rest = after.trim_start();
        }
    }
    let (action, how) = parse_action(rest)?;
    let literal = [None, None];
    Ok(Step { line, text: text.to_owned(), only, connection, action, how, literal })
}

fn parse_action(text: &str) -> Result<(Action, Match), String> {
    let mut how = Match::Exact;
    let mut save = None;
    let mut rest = text;
    while let Some(marked) = rest.strip_prefix('@') {
        let (word, after) = split_mark(marked);
        let (name, value) = word.split_once('(').unwrap_or((word, ""));
        let value = value.strip_suffix(')').unwrap_or(value);
        rest = after.trim_start();
        match name {
            "sorted" => how = Match::Sorted,
            "pairs" => how = Match::SortedPairs,
            "shape" => how = Match::Shape,
            "kind" => how = Match::Kind,
            "code" => how = Match::ErrorCode,
            "has" => how = Match::Has(value.as_bytes().to_vec()),
            "near" => how = Match::Near(value.parse().map_err(|_| "@near(N)")?),
            "fields" => {
                let fields = value.split(',').map(str::parse).collect::<Result<_, _>>();
                how = Match::Fields(fields.map_err(|_| "@fields(N,N)")?);
            }
            "save" => save = Some(value.to_owned()),
            _ => return Ok((parse_special(name, rest)?, how)),
        }
    }
    Ok((Action::Command { args: args::parse(rest)?, save }, how))
}

/// Splits after the mark's word, or after its closing bracket, followed by a space.
fn split_mark(text: &str) -> (&str, &str) {
    let space = text.find(' ').unwrap_or(text.len());
    let end = match text.find('(') {
        Some(open) if open < space => text.find(") ").map_or(text.len(), |close| close + 1),
        _ => space,
    };
    text.split_at(end)
}

fn parse_special(name: &str, rest: &str) -> Result<Action, String> {
    Ok(match name {
        "until" => Action::Until(args::parse(rest)?),
        "scan" => Action::Scan { args: args::parse(rest)?, pairs: false },
        "scanpairs" => Action::Scan { args: args::parse(rest)?, pairs: true },
        "send" => Action::Send(args::parse(rest)?),
        "blocks" => Action::Blocks(args::parse(rest)?),
        "raw" => Action::Raw(notation::unquote(rest.as_bytes())?.0),
        "recv" => Action::Receive,
        "eof" => Action::ReadToEnd,
        "reconnect" => Action::Reconnect,
        "halfclose" => Action::HalfClose,
        "wait" => Action::Wait(rest.parse().map_err(|_| "@wait MS")?),
        other => return Err(format!("unknown mark @{other}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Every file in `cases/` parses, names are unique, and new cases have replies.
    fn all_scripts_parse() {
        let families = load_all().unwrap();
        assert!(!families.is_empty());
        for family in families {
            let mut names: Vec<&str> = family.cases.iter().map(|case| &*case.name).collect();
            names.sort_unstable();
            let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
            assert_eq!(twice, None, "in {}", family.name);
            for case in &family.cases {
                let literal = case.steps.iter().any(|step| step.literal[1].is_some());
                assert!(case.origin.is_none() || literal, "{} asserts nothing", case.name);
                assert!(!case.steps.is_empty(), "{} is empty", case.name);
            }
        }
    }

    #[test] // Prefixes, marks and literals.
    fn all_parts_of_a_script_line_are_parsed() {
        let cases = parse("== a b [3] [new 8.0]\n3| B: @near(5) TTL k\n=> nil\n").unwrap();
        let step = &cases[0].steps[0];
        assert_eq!((step.connection, step.only), ('B', Some(Protocol::Resp3)));
        assert_eq!(step.how, Match::Near(5));
        assert_eq!(step.literal, [Some(Reply::NullBulk), Some(Reply::Null)]);
        assert_eq!(cases[0].origin.as_deref(), Some("8.0"));
        assert!(parse("GET k").is_err());
        assert!(parse("== a\n@bogus GET k").is_err());
    }
}
