//! The arguments of a command as COMMAND DOCS shows them, parsed from one line of notation in its
//! row.
//!
//! ```text
//! key value [condition: NX | XX]@2.6.12 [GET]@6.2.0 [expiration: EX seconds:integer | KEEPTTL]
//!
//! name            a string                NAME              a word of the command's own
//! name:integer    another type            NAME name         an argument after such a word
//! NAME=name       a word by another name; it may be `=`, `~` or `*`
//! key             a key                   NAME(name: ...)   a group after such a word
//! (name: a b)     a group                 (name: a | b)     one of several
//! [a]  [name: a]  may be left out         a...              may be repeated
//! a@6.2.0         since that version      a!2.8.12          deprecated since that version
//! A name...*      may be repeated, each time after its word
//! name:type#1     of the row's key spec 1
//! ```
//! The notation is that of manuals, with names for groups: redis-cli builds its hints from these
//! trees, and prints nearly the same line. Written as nested constants, a row would fill a page.
//!
//! The keys of a line belong to the row's key specs in order, and all further ones to the last
//! spec, unless the line names a spec.

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the types' own")]
pub enum ArgumentKind {
    String,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

#[rustfmt::skip] // A table.
const KINDS: &[(ArgumentKind, &str)] = &[
    (ArgumentKind::String, "string"), (ArgumentKind::Integer, "integer"),
    (ArgumentKind::Double, "double"), (ArgumentKind::Key, "key"),
    (ArgumentKind::Pattern, "pattern"), (ArgumentKind::UnixTime, "unix-time"),
    (ArgumentKind::PureToken, "pure-token"), (ArgumentKind::OneOf, "oneof"),
    (ArgumentKind::Block, "block"),
];

impl ArgumentKind {
    /// The name as COMMAND DOCS writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

/// One argument, or a group of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The name; for a literal word, the word in lower case.
    pub name: String,
    /// The type.
    pub kind: ArgumentKind,
    /// The key spec of the row that the argument belongs to.
    pub key_spec: Option<usize>,
    /// The word that is, or precedes, the argument.
    pub token: Option<&'static str>,
    /// The first version with the argument, if the command is older.
    pub since: Option<&'static str>,
    /// The version that deprecated it.
    pub deprecated: Option<&'static str>,
    /// The argument may be left out.
    pub optional: bool,
    /// The argument may be repeated.
    pub multiple: bool,
    /// The argument's word is repeated with it.
    pub repeats_token: bool,
    /// The arguments of a group.
    pub arguments: Vec<Argument>,
}

/// Parses the notation, for a row with `key_specs` key specs.
///
/// Panics when the line is malformed: rows are fixed at build time, and all are parsed at start.
#[must_use]
pub fn parse(line: &'static str, key_specs: usize) -> Vec<Argument> {
    if line.is_empty() {
        return Vec::new();
    }
    let mut reader = Reader { rest: line, keys: 0, key_specs };
    let (arguments, is_choice) = reader.list();
    assert!(reader.rest.is_empty() && !is_choice, "left over `{}` of `{line}`", reader.rest);
    arguments
}

struct Reader {
    rest: &'static str,
    keys: usize,
    key_specs: usize,
}

impl Reader {
    /// Parses elements up to the end of the group, and whether they are alternatives.
    fn list(&mut self) -> (Vec<Argument>, bool) {
        let mut arguments = vec![self.element()];
        let is_choice = self.rest.starts_with(" | ");
        let between = if is_choice { " | " } else { " " };
        while self.take(between) {
            arguments.push(self.element());
        }
        (arguments, is_choice)
    }

    fn element(&mut self) -> Argument {
        let mut argument = if self.take("[") {
            let body = self.body("]");
            Argument { optional: true, ..body }
        } else if self.take("(") {
            self.body(")")
        } else {
            self.plain()
        };
        let repeats = self.take("...");
        argument.multiple |= repeats;
        argument.repeats_token |= repeats && self.take("*");
        if self.take("@") {
            argument.since = Some(self.word());
        }
        if self.take("!") {
            argument.deprecated = Some(self.word());
        }
        argument
    }

    /// The content of brackets: a group with its name, or one element.
    fn body(&mut self, close: &str) -> Argument {
        let is_group = self.rest.find(": ").is_some_and(|at| is_word(&self.rest[..at]));
        let argument = if is_group { self.group() } else { self.element() };
        assert!(self.take(close), "no `{close}` before `{}`", self.rest);
        argument
    }

    fn group(&mut self) -> Argument {
        let at = self.rest.find(": ").expect("a group has a name");
        let (name, rest) = self.rest.split_at(at);
        self.rest = &rest[2..];
        let (arguments, is_choice) = self.list();
        let kind = if is_choice { ArgumentKind::OneOf } else { ArgumentKind::Block };
        Argument { arguments, ..named(name, kind) }
    }

    /// A name, or a literal word with its arguments.
    fn plain(&mut self) -> Argument {
        let word = self.word();
        if !is_token(word) {
            return self.typed(word);
        }
        let (word, name) = word.rsplit_once('=').unwrap_or((word, ""));
        let mut argument = if !name.is_empty() {
            named(name, ArgumentKind::PureToken)
        } else if self.take("(") {
            self.body(")")
        } else if self.rest.strip_prefix(' ').is_some_and(begins_with_name) {
            self.take(" ");
            let name = self.word();
            self.typed(name)
        } else {
            named(&word.to_ascii_lowercase(), ArgumentKind::PureToken)
        };
        argument.token = Some(word);
        argument
    }

    /// `name`, `name:type`, or `name:type#spec`.
    fn typed(&mut self, word: &'static str) -> Argument {
        let (word, spec) = match word.split_once('#') {
            Some((word, spec)) => (word, spec.parse().ok()),
            None => (word, None),
        };
        let (name, kind) = match word.rsplit_once(':').map(|(name, kind)| (name, kind_of(kind))) {
            Some((name, Some(kind))) => (name, kind),
            _ if word == "key" => (word, ArgumentKind::Key),
            _ => (word, ArgumentKind::String),
        };
        let mut argument = named(name, kind);
        if kind == ArgumentKind::Key {
            argument.key_spec = Some(self.keys.min(self.key_specs.saturating_sub(1)));
            self.keys += 1;
        }
        argument.key_spec = spec.or(argument.key_spec);
        argument
    }

    fn word(&mut self) -> &'static str {
        let end = self.rest.find(|letter| " ()[]|@!".contains(letter)).unwrap_or(self.rest.len());
        let end = self.rest[..end].find("...").unwrap_or(end);
        assert!(end > 0, "no word before `{}`", self.rest);
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

fn named(name: &str, kind: ArgumentKind) -> Argument {
    Argument {
        name: name.to_owned(),
        kind,
        key_spec: None,
        token: None,
        since: None,
        deprecated: None,
        optional: false,
        multiple: false,
        repeats_token: false,
        arguments: Vec::new(),
    }
}

fn kind_of(name: &str) -> Option<ArgumentKind> {
    KINDS.iter().find(|(_, other)| *other == name).map(|(kind, _)| *kind)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|letter| " ()[]|@!".contains(letter))
}

fn is_token(word: &str) -> bool {
    begins_with(word, |letter| letter.is_ascii_uppercase() || b"=~*".contains(&letter))
}

fn begins_with_name(text: &str) -> bool {
    begins_with(text, |letter| letter.is_ascii_lowercase())
}

fn begins_with(text: &str, is: impl Fn(u8) -> bool) -> bool {
    text.bytes().next().is_some_and(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An argument as one line: name, type, then everything else.
    fn show(argument: &Argument) -> String {
        let mut text = format!("{} {}", argument.name, argument.kind.name());
        let marks = [("spec", argument.key_spec.map(|at| at.to_string()))];
        let facts = [
            ("token", argument.token),
            ("since", argument.since),
            ("until", argument.deprecated),
            ("optional", argument.optional.then_some("")),
            ("multiple", argument.multiple.then_some("")),
            ("token", argument.repeats_token.then_some("repeated")),
        ];
        let facts = facts.map(|(name, fact)| (name, fact.map(str::to_owned)));
        for (name, fact) in marks.into_iter().chain(facts) {
            if let Some(fact) = fact {
                text.push_str(format!(" {name} {fact}").trim_end());
            }
        }
        if !argument.arguments.is_empty() {
            let inner: Vec<_> = argument.arguments.iter().map(show).collect();
            text.push_str(&format!(" ({})", inner.join(", ")));
        }
        text
    }

    #[test]
    fn every_form_of_the_notation_is_parsed() {
        #[rustfmt::skip] // A table.
        let cases: &[(&'static str, &str)] = &[
            ("", ""),
            ("a", "a string"),
            ("key", "key key spec 0"),
            ("a:integer", "a integer"),
            ("ip:port", "ip:port string"),
            ("A", "a pure-token token A"),
            ("A=b c", "b pure-token token A, c string"),
            ("[A b...]", "b string token A optional multiple"),
            ("A b", "b string token A"),
            ("A b:double", "b double token A"),
            ("[x: ==e | ~=a | *=b]", "x oneof optional (e pure-token token =, a pure-token token ~, b pure-token token *)"),
            ("[A] b", "a pure-token token A optional, b string"),
            ("a...", "a string multiple"),
            ("[a]...@1.0!2.0", "a string since 1.0 until 2.0 optional multiple"),
            ("[A a:unix-time]", "a unix-time token A optional"),
            ("(x: a b)...", "x block multiple (a string, b string)"),
            ("[x: A | B c@2.0]", "x oneof optional (a pure-token token A, c string token B since 2.0)"),
            ("[A a]...*", "a string token A optional multiple token repeated"),
            ("[T(x: a:pattern...)]", "x block token T optional (a pattern multiple)"),
            ("(x: a | (y: [B c] | D)...)", "x oneof (a string, y oneof multiple (c string token B optional, d pure-token token D))"),
            ("a:pattern#1 b:key#0", "a pattern spec 1, b key spec 0"),
            ("s:key d:key e:key", "s key spec 0, d key spec 1, e key spec 1"),
        ];
        for (line, expected) in cases {
            let read: Vec<_> = parse(line, 2).iter().map(show).collect();
            assert_eq!(read.join(", "), *expected, "{line}");
        }
    }

    #[test] // So mistakes are found at start, not by a client.
    fn malformed_syntax_lines_panic() {
        for line in ["a ", " a", "[a", "a]", "(x: a", "a | b", "(x: a | b c)", "a  b", "[]", "a@"] {
            let read = std::panic::catch_unwind(|| parse(line, 0));
            assert!(read.is_err(), "{line:?}: {read:?}");
        }
    }
}
