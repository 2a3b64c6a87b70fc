//! Tests in paths: `[?(@.price < 10 && @.name == "x")]`.
//!
//! A test is compiled to a list of instructions with one current result, so that between two slices
//! its state is an index. It may search the whole document, and compare texts of megabytes.
//!
//! ```text
//! a && (b || !c)      Compare a   Skip false -> end   Compare b   Skip true -> end   Compare c   Not   end
//! ```

use super::path::Step;
use super::select::{First, Select};
use darter_structs::json::{JsonText, Value, View};
use std::cmp::Ordering;
use std::sync::Arc;

/// Bytes of two texts that are compared in one step, and their cost in values.
const COMPARED: usize = 16 * 1024;
const COMPARED_COST: usize = 16;

/// A condition on a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Test(pub(super) Vec<Op>);

/// An instruction, which may change the current result.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    Compare(Operand, Operator, Operand),
    /// True if the operand finds a value.
    Exists(Operand),
    /// Inverts the result.
    Not,
    /// Jumps to `to` if the result has this value, because the instructions between cannot change
    /// it.
    Skip {
        result: bool,
        to: usize,
    },
}

/// A side of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Vec<u8>),
    /// A path from the tested value.
    Here(Route),
    /// A path from the root.
    Root(Route),
}

/// The steps to the compared value: the first one found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Route {
    steps: Arc<[Step]>,
    /// Each step names one value, so no search is needed.
    is_direct: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    Unequal,
    Below,
    AtMost,
    Above,
    AtLeast,
}

impl Route {
    pub(super) fn new(steps: Vec<Step>) -> Self {
        let is_direct = steps.iter().all(|step| step.only().is_some());
        Self { steps: steps.into(), is_direct }
    }

    /// The value that a direct route leads to. Takes the steps from `budget`.
    fn follow<'a>(&self, from: View<'a>, budget: &mut usize) -> Option<View<'a>> {
        let mut view = from;
        for step in &*self.steps {
            *budget = budget.saturating_sub(1);
            let (View::Node(node), Some(pick)) = (view, step.only()) else { return None };
            *budget = budget.saturating_sub(pick.cost(node));
            view = node.get(pick.place(node)?)?.value;
        }
        Some(view)
    }
}

/// The progress of a test.
#[derive(Clone, Debug, Default)]
pub(super) struct Testing {
    /// The index of the next instruction, and the current result.
    at: usize,
    result: bool,
    /// The values found for both sides of a comparison, if that takes a search.
    sides: [Side; 2],
    /// Bytes of the two texts that are known to be equal.
    compared: usize,
}

#[derive(Clone, Debug, Default)]
enum Side {
    #[default]
    Unknown,
    Seeking(Select),
    Absent,
    At(Vec<usize>),
}

impl Testing {
    /// Continues the test, and takes the cost from `budget`. `None` when that is used up; the next
    /// call must get the same `here` and `root`.
    pub(super) fn run(
        &mut self,
        test: &Test,
        (here, root): (View<'_>, &Value),
        budget: &mut usize,
    ) -> Option<bool> {
        while let Some(op) = test.0.get(self.at) {
            if *budget == 0 {
                return None;
            }
            *budget -= 1;
            match op {
                Op::Not => self.result = !self.result,
                Op::Skip { result, to } => {
                    if self.result == *result {
                        self.at = *to;
                        continue;
                    }
                }
                Op::Exists(operand) => {
                    self.result = self.value(0, operand, (here, root), budget)?.is_some();
                }
                Op::Compare(left, operator, right) => {
                    let left = self.value(0, left, (here, root), budget)?;
                    let right = self.value(1, right, (here, root), budget)?;
                    self.result = match (left, right) {
                        (Some(left), Some(right)) => {
                            operator.holds(left, self.compare(left, right, budget)?)
                        }
                        _ => false,
                    };
                }
            }
            (self.at, self.sides, self.compared) = (self.at + 1, Default::default(), 0);
        }
        Some(self.result)
    }

    /// The value of an operand, if it has one. `None` when the budget is used up.
    fn value<'a>(
        &mut self,
        side: usize,
        operand: &'a Operand,
        (here, root): (View<'a>, &'a Value),
        budget: &mut usize,
    ) -> Option<Option<View<'a>>> {
        let (route, from) = match operand {
            Operand::Null => return Some(Some(View::Null)),
            Operand::Bool(value) => return Some(Some(View::Bool(*value))),
            Operand::Int(value) => return Some(Some(View::Int(*value))),
            Operand::Float(value) => return Some(Some(View::Float(*value))),
            Operand::Text(text) => return Some(Some(View::Text(JsonText::Bytes(text)))),
            Operand::Here(route) => (route, here),
            Operand::Root(route) => (route, root.view()),
        };
        if route.is_direct {
            return Some(route.follow(from, budget));
        }
        let side = &mut self.sides[side];
        if let Side::Unknown = side {
            *side = Side::Seeking(Select::new(Arc::clone(&route.steps)));
        }
        if let Side::Seeking(select) = side {
            *side = match select.first(from, root, budget) {
                First::More => return None,
                First::None => Side::Absent,
                First::At(path) => Side::At(path),
            };
        }
        Some(if let Side::At(path) = side { from.at(path) } else { None })
    }

    /// Compares two values; `Some(None)` if they are of different kinds. `None` when the budget is
    /// used up.
    fn compare(
        &mut self,
        left: View<'_>,
        right: View<'_>,
        budget: &mut usize,
    ) -> Option<Option<Ordering>> {
        let (View::Text(one), View::Text(two)) = (left, right) else {
            return Some(compare(left, right));
        };
        loop {
            let part = self.compared..self.compared + COMPARED;
            let order = one.part(part.clone()).cmp(&two.part(part.clone()));
            if order.is_ne() || part.end >= one.len().max(two.len()) {
                return Some(Some(order));
            }
            self.compared = part.end;
            *budget = budget.saturating_sub(COMPARED_COST);
            if *budget == 0 {
                return None;
            }
        }
    }
}

impl Operator {
    /// True if the comparison holds for values in this order.
    fn holds(self, left: View<'_>, order: Option<Ordering>) -> bool {
        match (self, order) {
            (Self::Unequal, order) => order != Some(Ordering::Equal),
            (_, None) => false,
            (Self::Equal, Some(order)) => order.is_eq(),
            (Self::Below, Some(order)) => order.is_lt() && is_ordered(left),
            (Self::AtMost, Some(order)) => order.is_le() && is_ordered(left),
            (Self::Above, Some(order)) => order.is_gt() && is_ordered(left),
            (Self::AtLeast, Some(order)) => order.is_ge() && is_ordered(left),
        }
    }
}

/// True for a kind of value that has an order.
fn is_ordered(view: View<'_>) -> bool {
    !matches!(view, View::Null | View::Bool(_))
}

/// Compares two values that are not both texts; `None` if they are of different kinds.
fn compare(left: View<'_>, right: View<'_>) -> Option<Ordering> {
    match (left, right) {
        (View::Null, View::Null) => Some(Ordering::Equal),
        (View::Bool(one), View::Bool(two)) => Some(one.cmp(&two)),
        (View::Int(one), View::Int(two)) => Some(one.cmp(&two)),
        (View::Uint(one), View::Uint(two)) => Some(one.cmp(&two)),
        (one, two) => double(one)?.partial_cmp(&double(two)?),
    }
}

/// A number as a double.
pub(super) fn double(view: View<'_>) -> Option<f64> {
    match view {
        View::Int(value) => Some(value as f64),
        View::Uint(value) => Some(value as f64),
        View::Float(value) => Some(value),
        _ => None,
    }
}
