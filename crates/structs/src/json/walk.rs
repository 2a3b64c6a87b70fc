//! Reading a document, or a part of it, in order and in slices.
//!
//! Between two slices only places are kept: how far each open array or object has been read. So any
//! cut can be read, and nothing borrows from it.

use super::build::Token;
use super::value::{Child, Iter, JsonText, Value, View};
use crate::blob::Blob;

/// Bytes of a part of a long text.
const PART_BYTES: usize = 4 * 1024;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// The value that is read.
    root: Vec<usize>,
    /// For each open array or object, the place of its next value.
    places: Vec<usize>,
    /// Bytes that were read of the long text that comes next: of the value there, or of its name.
    long: Option<OpenText>,
    stage: JsonWalkStage,
}

/// A long text that is being read.
#[derive(Clone, Copy, Debug)]
struct OpenText {
    at: usize,
    is_name: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum JsonWalkStage {
    #[default]
    Start,
    Amid,
    End,
}

impl Walk {
    /// Reads the value at the end of a path of places.
    #[must_use]
    pub fn of(path: &[usize]) -> Self {
        Self { root: path.to_vec(), ..Self::default() }
    }

    /// Arrays and objects that are open: each is looked up again by the next [`run`](Self::run).
    #[must_use]
    pub fn depth(&self) -> usize {
        self.places.len()
    }

    /// Passes on about as many tokens, or bytes of long texts by the hundred. True while there are
    /// more.
    pub fn run(&mut self, value: &Value, budget: usize, f: &mut dyn FnMut(Token<'_>)) -> bool {
        let Some(root) = value.at(&self.root) else { return false };
        if self.stage == JsonWalkStage::End {
            return false;
        }
        let mut left = budget;
        if self.long.is_some() {
            return self.run_long(root, f);
        }
        if self.stage == JsonWalkStage::Start {
            self.stage = JsonWalkStage::Amid;
            if !self.begin(root, f) {
                let is_long = self.long.is_some();
                self.stage = if is_long { JsonWalkStage::Amid } else { JsonWalkStage::End };
                return is_long;
            }
        }
        debug_assert!(self.stage == JsonWalkStage::Amid, "{:?}", self.stage);
        let mut open = self.reopen(root);
        debug_assert_eq!(open.len(), self.places.len());
        while let Some(iter) = open.last_mut() {
            if left == 0 || self.long.is_some() {
                break;
            }
            left -= 1;
            match iter.next() {
                None => {
                    f(Token::Close);
                    open.pop();
                    self.places.pop();
                }
                Some(child) => {
                    debug_assert!(!self.places.is_empty(), "one for each that is open");
                    let last = self.places.len() - 1;
                    self.places[last] = iter.place();
                    if !self.named(child, f) {
                        continue;
                    }
                    if self.begin(child.value, f)
                        && let View::Node(node) = child.value
                    {
                        open.push(node.iter(0));
                    }
                }
            }
        }
        if self.places.is_empty() && self.long.is_none() {
            self.stage = JsonWalkStage::End;
        }
        self.stage != JsonWalkStage::End
    }

    /// Iterates on, where the last slice ended.
    fn reopen<'a>(&self, root: View<'a>) -> Vec<Iter<'a>> {
        let (mut open, mut view) = (Vec::with_capacity(self.places.len() + 1), root);
        for (depth, place) in self.places.iter().enumerate() {
            let View::Node(node) = view else { unreachable!("it was open") };
            open.push(node.iter(*place));
            if depth + 1 < self.places.len() {
                view = node.get(place - 1).expect("it was read").value;
            }
        }
        open
    }

    /// Passes on a name. False if it is long: then it comes first.
    fn named(&mut self, child: Child<'_>, f: &mut dyn FnMut(Token<'_>)) -> bool {
        match child.name {
            None => {}
            Some(name @ JsonText::Bytes(_)) => f(Token::Name(name)),
            Some(JsonText::Blob(blob)) => {
                f(Token::Long { is_name: true, len: blob.len() });
                self.long = Some(OpenText { at: 0, is_name: true });
                return false;
            }
        }
        true
    }

    /// Passes on a value, or its beginning. True when it is an array or an object.
    fn begin(&mut self, view: View<'_>, f: &mut dyn FnMut(Token<'_>)) -> bool {
        match view {
            View::Node(node) => {
                f(Token::Open { is_object: node.is_object(), len: node.len() });
                self.places.push(0);
                return true;
            }
            View::Text(JsonText::Blob(blob)) => {
                f(Token::Long { is_name: false, len: blob.len() });
                self.long = Some(OpenText { at: 0, is_name: false });
            }
            scalar => f(Token::Scalar(scalar)),
        }
        false
    }

    /// Passes on the next part of a long text.
    fn run_long(&mut self, root: View<'_>, f: &mut dyn FnMut(Token<'_>)) -> bool {
        let Some(mut part) = self.long.take() else { return true };
        let child = self.current(root);
        let blob: &Blob = match (part.is_name, child) {
            (true, Child { name: Some(JsonText::Blob(blob)), .. })
            | (false, Child { value: View::Text(JsonText::Blob(blob)), .. }) => blob,
            _ => unreachable!("it was there"),
        };
        let end = blob.len().min(part.at + PART_BYTES);
        assert!(part.at <= blob.len(), "{} of {}", part.at, blob.len());
        blob.slices(part.at..end).for_each(|piece| f(Token::Part(piece)));
        part.at = end;
        if end < blob.len() {
            self.long = Some(part);
            return true;
        }
        f(Token::EndLong);
        if part.is_name {
            self.begin(child.value, f);
        }
        if self.places.is_empty() && self.long.is_none() {
            self.stage = JsonWalkStage::End;
        }
        self.stage != JsonWalkStage::End
    }

    /// The value that was read last.
    fn current<'a>(&self, root: View<'a>) -> Child<'a> {
        let mut child = Child { name: None, value: root };
        for place in &self.places {
            let View::Node(node) = child.value else { unreachable!("it was open") };
            child = node.get(place - 1).expect("it was read");
        }
        child
    }
}
