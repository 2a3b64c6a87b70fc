//! Finding the values that a path leads to, in slices.
//!
//! The search is a stack of frames, each at a value and a step. Between slices they keep places
//! only, so what is searched is any cut. Values are found in the order of their text, each array or
//! object before what is in it.

use super::path::{Pick, Step};
use darter_structs::json::{Iter, Text, Value, View};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Select<'s> {
    steps: std::borrow::Cow<'s, [Step]>,
    frames: Vec<Frame>,
    path: Vec<usize>,
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

/// What belongs to a frame during a slice.
struct Live<'a> {
    view: View<'a>,
    iter: Option<Iter<'a>>,
}

impl<'s> Select<'s> {
    /// A search that follows these steps.
    pub(super) fn new(steps: &'s [Step]) -> Self {
        Self::of(std::borrow::Cow::Borrowed(steps))
    }

    fn of(steps: std::borrow::Cow<'s, [Step]>) -> Self {
        let first = Frame { depth: 0, step: 0, pick: 0, next: 0 };
        Self { steps, frames: vec![first], path: Vec::new() }
    }

    /// A search that owns its steps.
    pub(super) fn owned(steps: Vec<Step>) -> Select<'static> {
        Select::of(std::borrow::Cow::Owned(steps))
    }

    /// Follows about as many values. Calls `f` with the place of each that is found, and the value.
    /// True while there may be more.
    pub(super) fn run<'a>(
        &mut self,
        from: View<'a>,
        root: &Value,
        budget: usize,
        f: &mut dyn FnMut(&[usize], View<'a>),
    ) -> bool {
        let mut live = self.revive(from);
        for _ in 0..budget {
            let (Some(frame), Some(at)) = (self.frames.last_mut(), live.last_mut()) else {
                return false;
            };
            self.path.truncate(frame.depth);
            let Some(step) = self.steps.get(frame.step) else {
                f(&self.path, at.view);
                self.frames.pop();
                live.pop();
                continue;
            };
            let next = match step {
                Step::Descend => descend(frame, at),
                Step::Pick(picks) => pick(frame, at, picks, root),
            };
            match next {
                Next::None => {}
                Next::End => {
                    self.frames.pop();
                    live.pop();
                }
                Next::Same => {
                    let next = Frame { step: frame.step + 1, pick: 0, next: 0, ..*frame };
                    let view = at.view;
                    self.frames.push(next);
                    live.push(Live { view, iter: None });
                }
                Next::Child(place, view, is_step) => {
                    let step = frame.step + usize::from(is_step);
                    let next = Frame { depth: frame.depth + 1, step, pick: 0, next: 0 };
                    self.path.push(place);
                    self.frames.push(next);
                    live.push(Live { view, iter: None });
                }
            }
        }
        !self.frames.is_empty()
    }

    /// What belongs to the frames, now that a slice begins.
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

/// Where to go from a frame.
enum Next<'a> {
    /// Nowhere this time.
    None,
    /// Back.
    End,
    /// To the next step from the same value.
    Same,
    /// To a value in it; by the next step, or by the same.
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

fn pick<'a>(frame: &mut Frame, at: &mut Live<'a>, picks: &[Pick], root: &Value) -> Next<'a> {
    let (View::Node(node), Some(pick)) = (at.view, picks.get(frame.pick)) else { return Next::End };
    let len = node.len();
    let place = match pick {
        Pick::All | Pick::Test(_) => (frame.next < len).then_some(frame.next),
        Pick::Name(name) => {
            frame.pick += 1;
            let Some(place) = node.find(Text::Bytes(name)) else { return Next::None };
            return to(node, place);
        }
        Pick::Index(index) => {
            frame.pick += 1;
            let place = from_front(*index, len).filter(|place| !node.is_object() && *place < len);
            return place.map_or(Next::None, |place| to(node, place));
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
    frame.next += 1;
    match (pick, child(at, place)) {
        (_, None) => Next::End,
        (Pick::Test(test), Some(view)) if !test.holds(view, root) => Next::None,
        (_, Some(view)) => Next::Child(place, view, true),
    }
}

fn to(node: darter_structs::json::Node<'_>, place: usize) -> Next<'_> {
    node.get(place).map_or(Next::None, |child| Next::Child(place, child.value, true))
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

/// Numbers in a block of [`Places`].
const BLOCK: usize = 4 * 1024;

/// Paths of places, in the order in which they were found.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Each path: its length, its places, its length.
    blocks: Vec<Vec<usize>>,
    len: usize,
    last: Vec<usize>,
    /// Each is after the one before, and not below it.
    is_apart: bool,
}

impl Default for Places {
    fn default() -> Self {
        Self { blocks: Vec::new(), len: 0, last: Vec::new(), is_apart: true }
    }
}

impl Places {
    /// How many.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.blocks.len() * BLOCK * size_of::<usize>()
    }

    pub(super) fn push(&mut self, path: &[usize]) {
        let is_after = self.len == 0 || (self.last[..] < *path && !path.starts_with(&self.last));
        self.is_apart &= is_after;
        self.last.clear();
        self.last.extend_from_slice(path);
        let need = path.len() + 2;
        if self.blocks.last().is_none_or(|block| block.len() + need > BLOCK.max(need)) {
            self.blocks.push(Vec::with_capacity(if self.len == 0 { need } else { BLOCK }));
        }
        let block = self.blocks.last_mut().expect("just made");
        block.push(path.len());
        block.extend_from_slice(path);
        block.push(path.len());
        self.len += 1;
    }

    /// [`Places::push`], unless the last one is a part of the way there.
    pub(super) fn push_apart(&mut self, path: &[usize]) {
        if self.len == 0 || !path.starts_with(&self.last) {
            self.push(path);
        }
    }

    /// The path from `cursor` on, which moves to the next.
    pub(super) fn next(&self, cursor: &mut (usize, usize)) -> Option<&[usize]> {
        let mut block = self.blocks.get(cursor.0)?;
        if cursor.1 == block.len() {
            *cursor = (cursor.0 + 1, 0);
            block = self.blocks.get(cursor.0)?;
        }
        let len = block[cursor.1];
        let path = &block[cursor.1 + 1..cursor.1 + 1 + len];
        cursor.1 += len + 2;
        Some(path)
    }

    /// Takes the last path.
    pub(super) fn pop(&mut self) -> Option<Vec<usize>> {
        let block = self.blocks.last_mut()?;
        let len = block.pop().expect("no block is empty");
        let path = block.split_off(block.len() - len);
        block.pop();
        if block.is_empty() {
            self.blocks.pop();
        }
        self.len -= 1;
        Some(path)
    }

    /// Sorted, each once, and none below another: what may be removed from the last to the first.
    /// Cost: nothing, unless the picks of a path are out of order.
    pub(super) fn apart(self) -> Self {
        if self.is_apart {
            return self;
        }
        let (mut all, mut cursor) = (Vec::with_capacity(self.len), (0, 0));
        while let Some(path) = self.next(&mut cursor) {
            all.push(path.to_vec());
        }
        all.sort_unstable();
        let mut apart = Self::default();
        all.iter().for_each(|path| apart.push_apart(path));
        apart
    }
}
