//! Finding the values that a path leads to, in slices.
//!
//! The search is a stack of frames, each at a value and a step. Between slices they keep places
//! only, so any cut can be searched. Values are found in the order of their text, each array or
//! object before its contents.

use super::path::{Pick, Step};
use super::test::Testing;
use darter_structs::json::{Iter, JsonText, Node, Value, View};
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Select {
    steps: Arc<[Step]>,
    frames: Vec<Frame>,
    path: Vec<usize>,
    /// A test that is under way: of the value to which the last frame comes next.
    testing: Option<Box<Testing>>,
}

/// A value, and how far one step from it was followed.
#[derive(Clone, Debug)]
struct Frame {
    /// Length of the path to the value.
    depth: usize,
    step: usize,
    /// Which of the step's picks is followed, and the place of the next value in its turn.
    pick: usize,
    next: usize,
}

/// The borrowed part of a frame, for one slice.
struct Live<'a> {
    view: View<'a>,
    iter: Option<Iter<'a>>,
}

/// How far a search has come.
enum Progress {
    /// The search has come to a value that the path leads to.
    Found,
    /// The search has come to the end of its budget.
    Pause,
    End,
}

/// The first value that is found.
pub(super) enum First {
    At(Vec<usize>),
    None,
    /// The value was not found yet: the budget is used up.
    More,
}

impl Select {
    /// A search that follows these steps.
    pub(super) fn new(steps: Arc<[Step]>) -> Self {
        let first = Frame { depth: 0, step: 0, pick: 0, next: 0 };
        Self { steps, frames: vec![first], path: Vec::new(), testing: None }
    }

    /// Follows values, and takes them from `budget`, those of tests included. Calls `f` with the place
    /// of each that is found. True while there may be more.
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

    /// Seeks the first value, as [`Select::run`].
    pub(super) fn first(&mut self, from: View<'_>, root: &Value, budget: &mut usize) -> First {
        match self.advance(&mut self.revive(from), root, budget) {
            Progress::Found => First::At(std::mem::take(&mut self.path)),
            Progress::Pause => First::More,
            Progress::End => First::None,
        }
    }

    /// Follows values until one is found.
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

    /// Looks up the borrowed parts of all frames at the beginning of a slice.
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

/// The way from a frame.
enum Next<'a> {
    /// Nowhere this time.
    None,
    /// Back.
    End,
    /// Continues with the next step from the same value.
    Same,
    /// Continues with a value in it; by the next step, or by the same.
    Child(usize, View<'a>, bool),
}

/// First the value itself, then all within.
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

/// Bytes of names that are compared for a value of a budget.
const NAME_BYTES: usize = 2 * 1024;
/// Members of an object without an index: all their names are compared.
const UNINDEXED_MAX: usize = 64;

impl Pick {
    /// The cost of finding the place, in values of the budget, beside one.
    pub(super) fn cost(&self, node: Node<'_>) -> usize {
        let Self::Name(name) = self else { return 0 };
        name.len() * node.len().min(UNINDEXED_MAX) / NAME_BYTES
    }

    /// The place that a name or an index means, if it is one; an index may be beyond the end.
    pub(super) fn place(&self, node: Node<'_>) -> Option<usize> {
        match self {
            Self::Name(name) => node.find(JsonText::Bytes(name)),
            Self::Index(index) if !node.is_object() => from_front(*index, node.len()),
            _ => None,
        }
    }
}

/// The value at a place, by an iterator where the last one was before it.
fn child<'a>(at: &mut Live<'a>, place: usize) -> Option<View<'a>> {
    let View::Node(node) = at.view else { return None };
    let iter = match &mut at.iter {
        Some(iter) if iter.place() == place => iter,
        other => other.insert(node.iter(place)),
    };
    iter.next().map(|child| child.value)
}

/// An index from the front; `None` before it.
fn from_front(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    usize::try_from(if index < 0 { index + len } else { index }).ok()
}
