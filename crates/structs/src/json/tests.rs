//! Documents against a naive model, and against texts.

use super::*;
use darter_base::Prng;

/// A document as one would write it down.
#[derive(Clone, Debug, PartialEq)]
enum Model {
    Scalar(String),
    Array(Vec<Model>),
    Object(Vec<(String, Model)>),
}

impl Model {
    fn text(&self) -> String {
        match self {
            Self::Scalar(text) => text.clone(),
            Self::Array(values) => {
                let values: Vec<_> = values.iter().map(Self::text).collect();
                format!("[{}]", values.join(","))
            }
            Self::Object(members) => {
                let members =
                    members.iter().map(|(name, value)| format!("{name:?}:{}", value.text()));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }
        }
    }

    fn random(prng: &mut Prng, depth: usize) -> Self {
        match prng.below(if depth == 0 { 6 } else { 9 }) {
            0 => Self::Scalar("null".into()),
            1 => Self::Scalar(["true", "false"][prng.below(2) as usize].into()),
            2 => Self::Scalar((prng.next_u64() as i64 >> prng.below(63)).to_string()),
            3 => Self::Scalar(format!("{}.5", prng.below(1000))),
            4 => Self::Scalar(format!("{:?}", "t".repeat(prng.below(80) as usize))),
            5 => Self::Scalar(format!(
                "{:?}",
                "long".repeat([200, 6_000][usize::from(prng.below(20) == 0)])
            )),
            6 => Self::Array(Self::many(prng).map(|()| Self::random(prng, depth - 1)).collect()),
            _ => {
                let mut members: Vec<(String, Self)> = Vec::new();
                for _ in 0..Self::count(prng) {
                    let name = Self::name(prng);
                    if members.iter().all(|(other, _)| *other != name) {
                        members.push((name, Self::random(prng, depth - 1)));
                    }
                }
                Self::Object(members)
            }
        }
    }

    fn count(prng: &mut Prng) -> usize {
        let most = [3, 6, 10, 10, 150][prng.below(5) as usize];
        prng.below(most) as usize
    }

    fn many(prng: &mut Prng) -> std::vec::IntoIter<()> {
        vec![(); Self::count(prng)].into_iter()
    }

    fn name(prng: &mut Prng) -> String {
        match prng.below(30) {
            0 => "n".repeat(prng.below(700) as usize),
            _ => format!("name{}", prng.below(200)),
        }
    }

    fn at(&mut self, path: &[usize]) -> &mut Self {
        let Some((place, rest)) = path.split_first() else { return self };
        match self {
            Self::Array(values) => values[*place].at(rest),
            Self::Object(members) => members[*place].1.at(rest),
            Self::Scalar(_) => unreachable!("no container"),
        }
    }

    fn len(&self) -> Option<usize> {
        match self {
            Self::Array(values) => Some(values.len()),
            Self::Object(members) => Some(members.len()),
            Self::Scalar(_) => None,
        }
    }

    /// A random path to some value.
    fn path(&self, prng: &mut Prng) -> Vec<usize> {
        let (mut at, mut path) = (self, Vec::new());
        while let Some(len) = at.len().filter(|len| *len > 0) {
            if prng.below(5) == 0 {
                break;
            }
            let place = prng.below(len as u64) as usize;
            path.push(place);
            at = match at {
                Self::Array(values) => &values[place],
                Self::Object(members) => &members[place].1,
                Self::Scalar(_) => unreachable!("it has a length"),
            };
        }
        path
    }
}

fn text_of(value: &Value) -> String {
    String::from_utf8(to_text(value, &[], &Format::default())).expect("it was")
}

/// Reads in slices of random sizes.
fn sliced_text(value: &Value, prng: &mut Prng) -> String {
    let (mut out, mut printer) = (Vec::new(), Printer::default());
    let mut walk = Walk::default();
    while walk.run(value, prng.below(9) as usize + 1, &mut |token| printer.print(token, &mut out)) {
    }
    String::from_utf8(out).expect("it was")
}

/// Parses in pieces of random sizes.
fn parsed(text: &str, prng: &mut Prng) -> Value {
    let (mut parser, mut rest) = (Parser::default(), text.as_bytes());
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rest.len().min(prng.below(5_000) as usize + 1));
        parser.feed(piece).expect("a document");
        rest = more;
    }
    parser.finish().expect("a document")
}

/// A random change of the value at a path, in both.
fn change(value: &mut Value, model: &mut Model, prng: &mut Prng) {
    let path = model.path(prng);
    let new = Model::random(prng, 2);
    let fresh = parse(new.text().as_bytes()).expect("a document");
    let target = model.at(&path);
    let act = prng.below(4);
    value.edit(&path, |value| match target {
        Model::Array(values) if act < 2 => {
            let place = prng.below(values.len() as u64 + 1) as usize;
            values.insert(place, new.clone());
            value.insert(place, &fresh);
        }
        Model::Array(values) if act == 2 && !values.is_empty() => {
            let start = prng.below(values.len() as u64) as usize;
            let end = start + 1 + prng.below((values.len() - start) as u64) as usize;
            values.drain(start..end);
            value.remove_range(start..end);
        }
        Model::Object(members) if act < 2 => {
            let name = Model::name(prng);
            match members.iter_mut().find(|(other, _)| *other == name) {
                Some((_, old)) => *old = new.clone(),
                None => members.push((name.clone(), new.clone())),
            }
            value.put(JsonText::Bytes(name.as_bytes()), &fresh);
        }
        Model::Object(members) if act == 2 && !members.is_empty() => {
            let place = prng.below(members.len() as u64) as usize;
            members.swap_remove(place);
            value.remove(place);
        }
        target => {
            *target = new.clone();
            *value = fresh.clone();
        }
    });
}

#[test] // Cuts do not change.
fn random_changes_of_documents_agree_with_a_model() {
    for seed in 0..30 {
        let mut prng = Prng::from_seed(seed);
        let mut model = Model::random(&mut prng, 3);
        let mut value = parsed(&model.text(), &mut prng);
        let mut cut = (value.clone(), model.text());
        for step in 0..40 {
            value.check_invariants();
            assert_eq!(sliced_text(&value, &mut prng), model.text(), "{seed} {step}");
            change(&mut value, &mut model, &mut prng);
            if step % 10 == 0 {
                assert_eq!(text_of(&cut.0), cut.1, "{seed} {step}: a cut");
                cut = (value.clone(), model.text());
            }
        }
    }
}

#[test]
fn members_are_found_with_and_without_an_index() {
    for len in [0, 5, 64, 65, 3_000] {
        let mut value = Value::empty(true);
        for at in 0..len {
            value.put(JsonText::Bytes(format!("n{at}").as_bytes()), &Value::scalar(View::Int(at)));
        }
        value.check_invariants();
        let node = value.node().expect("an object");
        for at in 0..len {
            let place = node.find(JsonText::Bytes(format!("n{at}").as_bytes()));
            assert_eq!(place, usize::try_from(at).ok());
        }
        assert_eq!(node.find(JsonText::Bytes(b"other")), None);
    }
}

#[test]
fn parse_errors_equal_those_of_serde_json() {
    let cases: &[(&str, &str)] = &[
        ("", "EOF while parsing a value at line 1 column 0"),
        ("{", "EOF while parsing an object at line 1 column 1"),
        ("[1", "EOF while parsing a list at line 1 column 2"),
        ("\"a", "EOF while parsing a string at line 1 column 2"),
        ("nul", "EOF while parsing a value at line 1 column 3"),
        ("nulx", "expected ident at line 1 column 4"),
        ("foo", "expected ident at line 1 column 2"),
        ("bar", "expected value at line 1 column 1"),
        ("[1,]", "trailing comma at line 1 column 4"),
        ("{\"a\":1,}", "trailing comma at line 1 column 8"),
        ("{a:1}", "key must be a string at line 1 column 2"),
        ("{\"a\" 1}", "expected `:` at line 1 column 6"),
        ("[1 2]", "expected `,` or `]` at line 1 column 4"),
        ("{\"a\":1 2}", "expected `,` or `}` at line 1 column 8"),
        ("\n1 x", "trailing characters at line 2 column 3"),
        ("01", "invalid number at line 1 column 2"),
        ("\"\\x\"", "invalid escape at line 1 column 3"),
    ];
    for (text, expected) in cases {
        let fault = parse(text.as_bytes()).expect_err(text);
        assert_eq!(fault.to_string(), *expected, "{text}");
    }
    let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    assert!(parse(deep(127).as_bytes()).is_ok());
    assert!(parse(deep(128).as_bytes()).is_err());
}

#[test] // Numbers and strings.
fn texts_are_printed_as_by_redisjson() {
    let cases: &[(&str, &str)] = &[
        ("-0", "-0.0"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "1.8446744073709552e19"),
        ("1E2", "100.0"),
        (" [ 1 , 2.50 ] ", "[1,2.5]"),
        ("{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":3,\"b\":2}"),
        ("\"\\u00e9\\ud83d\\ude00\\/\"", "\"é😀/\""),
    ];
    for (text, expected) in cases {
        assert_eq!(text_of(&parse(text.as_bytes()).expect(text)), *expected);
    }
    let value = parse(b"{\"a\":[1,{}],\"b\":[]}").expect("a document");
    let format = Format { indent: b"  ".into(), newline: b"\n".into(), space: b" ".into() };
    let text = String::from_utf8(to_text(&value, &[], &format)).expect("it was");
    assert_eq!(text, "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}");
}

#[test] // A million numbers.
fn a_large_array_is_compact_and_freed_in_portions() {
    let mut value = Value::empty(false);
    for number in 0..200_000 {
        value.push(&Value::scalar(View::Int(number)));
    }
    let each = value.memory_bytes() / 200_000;
    assert!(each < 6, "{each} bytes each");
    assert!(darter_base::lazyfree::is_empty());
    drop(value);
    assert!(!darter_base::lazyfree::is_empty(), "it is freed later");
    while darter_base::lazyfree::run(&darter_base::preempt::Countdown::new(0)) {}
}
