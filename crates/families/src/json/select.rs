//! Finds the values that a path leads to, in slices.
//!
//! The search is a stack of frames, each with a value and a step. Between slices the frames hold
//! only places, so any version of the document can be searched. Values are found in the order of
//! the text, each array or object before its contents.

use super::path::{Pick, Step};
use super::test::Testing;
use darter_structs::json::{Iter, JsonText, Node, Value, View};
use std::sync::Arc;

/// A search for the values of a path; see the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Select {
    steps: Arc<[Step]>,
    frames: Vec<Frame>,
    path: Vec<usize>,
    /// A running test of the value that the last frame would visit next.
    testing: Option<Box<Testing>>,
}

/// A value, and the progress of one step from there.
#[derive(Clone, Debug)]
struct Frame {
    /// Length of the path to the value.
    depth: usize,
    step: usize,
    /// The current pick of the step, and the index of the next value for it.
    pick: usize,
    next: usize,
}

/// The borrowed part of a frame, for one slice.
struct Live<'a> {
    view: View<'a>,
    iter: Option<Iter<'a>>,
}

/// The outcome of advancing a search.
enum Progress {
    /// A value was found.
    Found,
    /// The budget is used up.
    Pause,
    End,
}

/// The outcome of a search for the first value.
pub(super) enum First {
    At(Vec<usize>),
    None,
    /// No value was found before the budget was used up.
    More,
}

impl Select {
    /// A search that follows these steps.
    pub(super) fn new(steps: Arc<[Step]>) -> Self {
        let first = Frame { depth: 0, step: 0, pick: 0, next: 0 };
        Self { steps, frames: vec![first], path: Vec::new(), testing: None }
    }

    /// Visits values until `budget` is used up; tests cost, too. Calls `f` with the place of each
    /// value found. Returns true while there may be more.
    pub(super) fn run(
        &mut self,
        from: View<'_>,
        root: &Value,
        budget: &mut usize,
        f: &mut dyn FnMut(&[usize]),
    ) -> bool {
        let mut live = self.revive(from);
        loop {
            match self.advance(&mut live, root, budget) {
                Progress::Found => f(&self.path),
                Progress::Pause => return true,
                Progress::End => return false,
            }
        }
    }

    /// Searches for the first value, as [`Select::run`].
    pub(super) fn first(&mut self, from: View<'_>, root: &Value, budget: &mut usize) -> First {
        match self.advance(&mut self.revive(from), root, budget) {
            Progress::Found => First::At(std::mem::take(&mut self.path)),
            Progress::Pause => First::More,
            Progress::End => First::None,
        }
    }

    /// Visits values until one is found.
    fn advance<'a>(
        &mut self,
        live: &mut Vec<Live<'a>>,
        root: &Value,
        budget: &mut usize,
    ) -> Progress {
        while *budget > 0 {
            *budget -= 1;
            let (Some(frame), Some(at)) = (self.frames.last_mut(), live.last_mut()) else {
                return Progress::End;
            };
            self.path.truncate(frame.depth);
            let Some(step) = self.steps.get(frame.step) else {
                self.frames.pop();
                live.pop();
                return Progress::Found;
            };
            let next = match step {
                Step::Descend => descend(frame, at),
                Step::Pick(picks) => pick(frame, at, picks, (&mut self.testing, root, budget)),
            };
            let (next, view) = match next {
                Next::None => continue,
                Next::End => {
                    self.frames.pop();
                    live.pop();
                    continue;
                }
                Next::Same => (Frame { step: frame.step + 1, pick: 0, next: 0, ..*frame }, at.view),
                Next::Child(place, view, is_step) => {
                    let step = frame.step + usize::from(is_step);
                    self.path.push(place);
                    (Frame { depth: frame.depth + 1, step, pick: 0, next: 0 }, view)
                }
            };
            self.frames.push(next);
            live.push(Live { view, iter: None });
        }
        Progress::Pause
    }

    /// Looks up the borrowed parts of all frames at the start of a slice.
    fn revive<'a>(&self, from: View<'a>) -> Vec<Live<'a>> {
        let (mut view, mut depth) = (from, 0);
        let mut live = Vec::with_capacity(self.frames.len() + 4);
        for frame in &self.frames {
            while depth < frame.depth {
                let View::Node(node) = view else { unreachable!("it was entered") };
                view = node.get(self.path[depth]).expect("it was found").value;
                depth += 1;
            }
            live.push(Live { view, iter: None });
        }
        live
    }
}

/// The next move from a frame.
enum Next<'a> {
    /// No value at this pick: try the next one.
    None,
    /// The frame is done: return to the one below.
    End,
    /// Apply the next step to the same value.
    Same,
    /// Visit a child: with the next step, or with the same step.
    Child(usize, View<'a>, bool),
}

/// Visits the value itself first, then all values within it.
fn descend<'a>(frame: &mut Frame, at: &mut Live<'a>) -> Next<'a> {
    if frame.next == 0 {
        frame.next = 1;
        return Next::Same;
    }
    let place = frame.next - 1;
    frame.next += 1;
    match child(at, place) {
        None => Next::End,
        Some(view @ View::Node(_)) => Next::Child(place, view, false),
        Some(_) => Next::None,
    }
}

fn pick<'a>(
    frame: &mut Frame,
    at: &mut Live<'a>,
    picks: &[Pick],
    (testing, root, budget): (&mut Option<Box<Testing>>, &Value, &mut usize),
) -> Next<'a> {
    let (View::Node(node), Some(pick)) = (at.view, picks.get(frame.pick)) else { return Next::End };
    let len = node.len();
    let place = match pick {
        Pick::All | Pick::Test(_) => (frame.next < len).then_some(frame.next),
        Pick::Name(_) | Pick::Index(_) => {
            frame.pick += 1;
            *budget = budget.saturating_sub(pick.cost(node));
            let child = pick.place(node).and_then(|place| Some((place, node.get(place)?)));
            return child
                .map_or(Next::None, |(place, child)| Next::Child(place, child.value, true));
        }
        Pick::Slice { .. } if node.is_object() => None,
        Pick::Slice { start, end, step } => {
            let bound = |index: i64| from_front(index, len).unwrap_or(0).min(len);
            let (start, end) = (bound(start.unwrap_or(0)), end.map_or(len, bound));
            let place = frame.next.checked_mul(*step).and_then(|past| past.checked_add(start));
            place.filter(|place| *place < end)
        }
    };
    let Some(place) = place else {
        (frame.pick, frame.next) = (frame.pick + 1, 0);
        return Next::None;
    };
    let Some(view) = child(at, place) else { return Next::End };
    if let Pick::Test(test) = pick {
        let mut now = testing.take().map_or_else(Testing::default, |now| *now);
        match now.run(test, (view, root), budget) {
            Some(true) => {}
            Some(false) => {
                frame.next += 1;
                return Next::None;
            }
            None => {
                *testing = Some(Box::new(now));
                return Next::None;
            }
        }
    }
    frame.next += 1;
    Next::Child(place, view, true)
}

/// Bytes of compared names that cost as much as one visited value.
const NAME_BYTES: usize = 2 * 1024;
/// Most members of an object without an index, whose names are all compared.
const UNINDEXED_MAX: usize = 64;

impl Pick {
    /// The additional cost of finding the place, in visited values.
    pub(super) fn cost(&self, node: Node<'_>) -> usize {
        let Self::Name(name) = self else { return 0 };
        name.len() * node.len().min(UNINDEXED_MAX) / NAME_BYTES
    }

    /// The index that a name or a number denotes, if it denotes one; it may be past the end.
    pub(super) fn place(&self, node: Node<'_>) -> Option<usize> {
        match self {
            Self::Name(name) => node.find(JsonText::Bytes(name)),
            Self::Index(index) if !node.is_object() => from_front(*index, node.len()),
            _ => None,
        }
    }
}

/// The child at an index. An iterator is used if the previous child was just before it.
fn child<'a>(at: &mut Live<'a>, place: usize) -> Option<View<'a>> {
    let View::Node(node) = at.view else { return None };
    let iter = match &mut at.iter {
        Some(iter) if iter.place() == place => iter,
        other => other.insert(node.iter(place)),
    };
    iter.next().map(|child| child.value)
}

/// The index counted from the front; `None` if it lies before the start.
fn from_front(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    usize::try_from(if index < 0 { index + len } else { index }).ok()
}
