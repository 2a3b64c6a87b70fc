//! The language of paths: JSONPath as in RedisJSON, and its legacy form.
//!
//! A path that begins with `$` finds any number of values, and its replies are arrays. Any other
//! path is a legacy path, such as `.a.b[0]`: it denotes one value, the first that is found.
//!
//! Libraries for JSONPath follow RFC 9535, which refuses many forms that RedisJSON accepts
//! (`$.[0]`, `$.a-b`, `..a`, `$["a"].1b`, `[?(@.x=="y")]` without a singular path). So this is our
//! own small parser.
//!
//! ```text
//! path    $ or nothing, steps             step    .name  .*  [pick, ..]  .[..]     ..step: at any depth
//! pick    'name'  name  3  -1  1:5:2  *  ?(test)
//! test    test && test, ||, !, ( ), value < value, value      value   @.path  $.path  1  "text"  true  null
//! ```

use super::test::{Op, Operand, Operator, Route, Test};
use darter_command::{Args, Refusal};
use darter_resp as resp;
use std::sync::Arc;

/// The longest path, and the most bytes of all paths of a command: they are parsed in one step.
pub(super) const BYTES_MAX: usize = 16 * 1024;
/// The deepest nesting of brackets in a test.
const DEPTH_MAX: usize = 32;

/// A path.
#[derive(Clone, Debug)]
pub struct Path {
    /// The path as the client sent it.
    pub(super) text: Vec<u8>,
    /// True for a legacy path, which denotes one value.
    pub(super) is_legacy: bool,
    pub(super) steps: Arc<[Step]>,
}

/// A step from values to other values.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Leads to the value itself and to all values within.
    Descend,
    /// Leads to the picked values of an array or an object.
    Pick(Vec<Pick>),
}

/// A step's choice of children.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pick {
    /// All values.
    All,
    /// The member with this name.
    Name(Vec<u8>),
    /// The element at this index of an array; negative indexes count from the end.
    Index(i64),
    /// Elements from `start` to before `end`, each `step` apart.
    Slice { start: Option<i64>, end: Option<i64>, step: usize },
    /// The values for which this test holds.
    Test(Test),
}

impl Path {
    /// The root path; the default if no path is given.
    pub(super) fn root(is_legacy: bool) -> Self {
        let text = if is_legacy { b"." } else { b"$" };
        Self { text: text.to_vec(), is_legacy, steps: Arc::default() }
    }

    /// Takes the next argument as a path.
    pub(super) fn take(args: &mut Args<'_>) -> Result<Self, Refusal> {
        if args.left() == 0 {
            return Err(Refusal::Syntax);
        }
        let at = args.position();
        args.seek(at + 1);
        Self::at(args.all(), at)
    }

    /// The path in the argument at `index`. A path that is too long is refused without copying it.
    pub(super) fn at(args: resp::Args<'_>, index: usize) -> Result<Self, Refusal> {
        if args.arg(index).len() > BYTES_MAX {
            return Err(too_long());
        }
        Self::parse(args.get(index))
    }

    /// Parses a path.
    pub fn parse(text: &[u8]) -> Result<Self, Refusal> {
        if text.len() > BYTES_MAX {
            return Err(too_long());
        }
        let is_legacy = !matches!(text, [b'$'] | [b'$', b'.' | b'[', ..]);
        let mut parser = Parser { text, at: usize::from(!is_legacy), depth: 0 };
        let mut steps = Vec::new();
        if is_legacy && text == b"." {
            parser.at = 1;
        } else if is_legacy && !matches!(text.first(), Some(b'.' | b'[')) {
            steps.push(Step::Pick(vec![parser.bare()?]));
        }
        parser.steps(&mut steps)?;
        if parser.at < text.len() {
            return Err(parser.refuse());
        }
        Ok(Self { text: text.to_vec(), is_legacy, steps: steps.into() })
    }

    /// True if the path is the root.
    pub(super) fn is_root(&self) -> bool {
        self.steps.is_empty()
    }

    /// The name picked by the last step, and the steps before it.
    pub(super) fn split_name(&self) -> Option<(&[Step], &[u8])> {
        let (last, before) = self.steps.split_last()?;
        match last.only() {
            Some(Pick::Name(name)) if before.last() != Some(&Step::Descend) => Some((before, name)),
            _ => None,
        }
    }

    /// True if the path finds at most one value in any document.
    pub(super) fn is_single(&self) -> bool {
        self.steps.iter().all(|step| step.only().is_some())
    }
}

impl Step {
    /// The name or the index that the step picks, if it has a single pick.
    pub(super) fn only(&self) -> Option<&Pick> {
        let Self::Pick(picks) = self else { return None };
        let [pick @ (Pick::Name(_) | Pick::Index(_))] = &picks[..] else { return None };
        Some(pick)
    }
}

/// The refusal if one path, or all paths of a command together, are too long.
pub(super) fn too_long() -> Refusal {
    Refusal::line("ERR path is too long")
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    #[cold]
    fn refuse(&self) -> Refusal {
        let (at, what) = (self.at + 1, "expected a path");
        Refusal::quoting(&format!("ERR Error occurred on position {at}, {what}: '"), self.text, "'")
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    fn takes(&mut self, word: &[u8]) -> bool {
        let is_there = self.text[self.at..].starts_with(word);
        self.at += if is_there { word.len() } else { 0 };
        is_there
    }

    fn expect(&mut self, word: &[u8]) -> Result<(), Refusal> {
        self.skip_space();
        if self.takes(word) { Ok(()) } else { Err(self.refuse()) }
    }

    /// Parses the steps until the end of the path.
    fn steps(&mut self, steps: &mut Vec<Step>) -> Result<(), Refusal> {
        loop {
            if self.takes(b"..") {
                steps.push(Step::Descend);
                if self.peek() != Some(b'[') {
                    steps.push(Step::Pick(vec![self.bare()?]));
                    continue;
                }
            } else if self.takes(b".") && self.peek() != Some(b'[') {
                steps.push(Step::Pick(vec![self.bare()?]));
                continue;
            }
            if !self.takes(b"[") {
                return Ok(());
            }
            steps.push(Step::Pick(self.picks()?));
        }
    }

    /// Parses `*`, or a name without quotes.
    fn bare(&mut self) -> Result<Pick, Refusal> {
        if self.takes(b"*") {
            return Ok(Pick::All);
        }
        let is_end = |byte: &u8| b".[]()*,'\"<>=!&|? \t\r\n@".contains(byte);
        let rest = &self.text[self.at..];
        let len = rest.iter().position(is_end).unwrap_or(rest.len());
        if len == 0 {
            return Err(self.refuse());
        }
        self.at += len;
        Ok(Pick::Name(rest[..len].to_vec()))
    }

    /// Parses the text between brackets, the closing one included.
    fn picks(&mut self) -> Result<Vec<Pick>, Refusal> {
        let mut picks = Vec::new();
        loop {
            self.skip_space();
            picks.push(self.pick()?);
            self.skip_space();
            if self.takes(b"]") {
                return Ok(picks);
            }
            self.expect(b",")?;
        }
    }

    fn pick(&mut self) -> Result<Pick, Refusal> {
        match self.peek() {
            Some(b'*') => {
                self.at += 1;
                Ok(Pick::All)
            }
            Some(b'\'' | b'"') => Ok(Pick::Name(self.quoted()?)),
            Some(b'?') => {
                self.at += 1;
                let mut test = Test::default();
                self.or(&mut test)?;
                Ok(Pick::Test(test))
            }
            Some(b':' | b'-' | b'0'..=b'9') => self.places(),
            _ => self.bare(),
        }
    }

    /// Parses an index, or a slice.
    fn places(&mut self) -> Result<Pick, Refusal> {
        let start = self.int()?;
        self.skip_space();
        if !self.takes(b":") {
            return start.map(Pick::Index).ok_or_else(|| self.refuse());
        }
        let end = self.int()?;
        self.skip_space();
        let step = if self.takes(b":") { self.int()? } else { None };
        let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0);
        Ok(Pick::Slice { start, end, step: step.ok_or_else(|| self.refuse())? })
    }

    fn int(&mut self) -> Result<Option<i64>, Refusal> {
        self.skip_space();
        let rest = &self.text[self.at..];
        let sign = usize::from(rest.first() == Some(&b'-'));
        let len = sign + rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if len == 0 {
            return Ok(None);
        }
        let text = std::str::from_utf8(&rest[..len]).unwrap_or_default();
        let value = text.parse().map_err(|_| self.refuse())?;
        self.at += len;
        Ok(Some(value))
    }

    /// Parses a text in single or double quotes.
    fn quoted(&mut self) -> Result<Vec<u8>, Refusal> {
        let quote = self.peek().ok_or_else(|| self.refuse())?;
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let byte = self.peek().ok_or_else(|| self.refuse())?;
            self.at += 1;
            match byte {
                b'\\' => {
                    let escaped = self.peek().ok_or_else(|| self.refuse())?;
                    self.at += 1;
                    match escaped {
                        b'n' => text.push(b'\n'),
                        b'r' => text.push(b'\r'),
                        b't' => text.push(b'\t'),
                        b'b' => text.push(8),
                        b'f' => text.push(12),
                        b'u' => self.unicode(&mut text)?,
                        other => text.push(other),
                    }
                }
                byte if byte == quote => return Ok(text),
                byte => text.push(byte),
            }
        }
    }

    fn unicode(&mut self, text: &mut Vec<u8>) -> Result<(), Refusal> {
        let digits = self.text.get(self.at..self.at + 4).ok_or_else(|| self.refuse())?;
        let code =
            std::str::from_utf8(digits).ok().and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let char = code.and_then(char::from_u32).ok_or_else(|| self.refuse())?;
        text.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        self.at += 4;
        Ok(())
    }

    fn or(&mut self, test: &mut Test) -> Result<(), Refusal> {
        self.chain(test, (b"||", true), Self::and)
    }

    fn and(&mut self, test: &mut Test) -> Result<(), Refusal> {
        self.chain(test, (b"&&", false), Self::one)
    }

    /// Parses conditions joined by an operator. A condition with the result `decides` skips the
    /// remaining ones.
    fn chain(
        &mut self,
        test: &mut Test,
        (word, result): (&[u8], bool),
        part: fn(&mut Self, &mut Test) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut skips = Vec::new();
        part(self, test)?;
        while self.is_next(word) {
            skips.push(test.0.len());
            test.0.push(Op::Skip { result, to: 0 });
            part(self, test)?;
        }
        let to = test.0.len();
        skips.into_iter().for_each(|at| test.0[at] = Op::Skip { result, to });
        Ok(())
    }

    fn is_next(&mut self, word: &[u8]) -> bool {
        self.skip_space();
        self.takes(word)
    }

    fn one(&mut self, test: &mut Test) -> Result<(), Refusal> {
        self.skip_space();
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.refuse());
        }
        if self.takes(b"(") {
            self.or(test)?;
            self.expect(b")")?;
        } else if self.takes(b"!") {
            self.one(test)?;
            test.0.push(Op::Not);
        } else {
            let comparison = self.comparison()?;
            test.0.push(comparison);
        }
        self.depth -= 1;
        Ok(())
    }

    fn comparison(&mut self) -> Result<Op, Refusal> {
        let left = self.operand()?;
        self.skip_space();
        let operators: [(&[u8], Operator); 6] = [
            (b"==", Operator::Equal),
            (b"!=", Operator::Unequal),
            (b"<=", Operator::AtMost),
            (b">=", Operator::AtLeast),
            (b"<", Operator::Below),
            (b">", Operator::Above),
        ];
        for (word, operator) in operators {
            if self.takes(word) {
                return Ok(Op::Compare(left, operator, self.operand()?));
            }
        }
        Ok(Op::Exists(left))
    }

    fn operand(&mut self) -> Result<Operand, Refusal> {
        self.skip_space();
        match self.peek() {
            Some(first @ (b'@' | b'$')) => {
                self.at += 1;
                let mut steps = Vec::new();
                self.steps(&mut steps)?;
                let route = Route::new(steps);
                Ok(if first == b'@' { Operand::Here(route) } else { Operand::Root(route) })
            }
            Some(b'\'' | b'"') => Ok(Operand::Text(self.quoted()?)),
            _ if self.takes(b"true") => Ok(Operand::Bool(true)),
            _ if self.takes(b"false") => Ok(Operand::Bool(false)),
            _ if self.takes(b"null") => Ok(Operand::Null),
            _ => self.number(),
        }
    }

    fn number(&mut self) -> Result<Operand, Refusal> {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let len = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let text = std::str::from_utf8(&rest[..len]).unwrap_or_default();
        let value: f64 = text.parse().map_err(|_| self.refuse())?;
        let whole = text.parse().ok();
        self.at += len;
        Ok(whole.map_or(Operand::Float(value), Operand::Int))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Arc<[Step]> {
        Path::parse(text.as_bytes()).unwrap_or_else(|_| panic!("{text} is a path")).steps
    }

    fn name(name: &str) -> Step {
        Step::Pick(vec![Pick::Name(name.as_bytes().to_vec())])
    }

    #[test]
    fn legacy_paths_have_the_same_steps_as_paths_with_a_dollar_sign() {
        for (old, new) in [
            (".", "$"),
            (".a.b", "$.a.b"),
            ("a.b", "$.a.b"),
            ("[0]", "$[0]"),
            (".[0].a", "$.[0].a"),
            ("..a", "$..a"),
            ("[\"a\"]['b']", "$.a.b"),
            (".*.a", "$[*].a"),
        ] {
            assert_eq!(steps(old), steps(new), "{old}");
            assert!(Path::parse(old.as_bytes()).unwrap().is_legacy, "{old}");
            assert!(!Path::parse(new.as_bytes()).unwrap().is_legacy, "{new}");
        }
        assert_eq!(steps("$.a-b..1c")[..], [name("a-b"), Step::Descend, name("1c")]);
    }

    #[test]
    fn indexes_names_slices_and_stars_in_brackets_are_parsed() {
        let Step::Pick(picks) = &steps("$[1, -2, 'x', :3, 1:-1:2, *]")[0] else { panic!("a pick") };
        let expected = [
            Pick::Index(1),
            Pick::Index(-2),
            Pick::Name(b"x".to_vec()),
            Pick::Slice { start: None, end: Some(3), step: 1 },
            Pick::Slice { start: Some(1), end: Some(-1), step: 2 },
            Pick::All,
        ];
        assert_eq!(picks[..], expected);
    }

    #[test]
    fn invalid_paths_are_refused() {
        for text in
            ["$.", "$..", "$[", "$[1", "$[?(@.a]", "$.a[", "$x y", "", "$[::0]", "$.a.", "a b"]
        {
            assert!(Path::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        let deep = format!("$[?{}1==1{}]", "(".repeat(40), ")".repeat(40));
        assert!(Path::parse(deep.as_bytes()).is_err());
    }
}
