//! Tests in paths: `[?(@.price < 10 && @.name == "x")]`.

use super::path::Step;
use super::select::Select;
use darter_structs::json::{Text, Value, View};
use std::cmp::Ordering;

/// A condition on a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Test {
    All(Vec<Test>),
    Any(Vec<Test>),
    Not(Box<Test>),
    Compare(Operand, Operator, Operand),
    /// There is such a value.
    Exists(Operand),
}

/// What is compared.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Vec<u8>),
    /// What is found from the value that is tested.
    Here(Vec<Step>),
    /// What is found from the root.
    Root(Vec<Step>),
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

impl Test {
    /// True when it holds for the value `here`.
    pub(super) fn holds(&self, here: View<'_>, root: &Value) -> bool {
        match self {
            Self::All(tests) => tests.iter().all(|test| test.holds(here, root)),
            Self::Any(tests) => tests.iter().any(|test| test.holds(here, root)),
            Self::Not(test) => !test.holds(here, root),
            Self::Exists(operand) => operand.with(here, root, |view| view.is_some()),
            Self::Compare(left, operator, right) => left.with(here, root, |left| {
                right.with(here, root, |right| operator.holds(left, right))
            }),
        }
    }
}

impl Operand {
    fn with<R>(&self, here: View<'_>, root: &Value, f: impl FnOnce(Option<View<'_>>) -> R) -> R {
        match self {
            Self::Null => f(Some(View::Null)),
            Self::Bool(value) => f(Some(View::Bool(*value))),
            Self::Int(value) => f(Some(View::Int(*value))),
            Self::Float(value) => f(Some(View::Float(*value))),
            Self::Text(text) => f(Some(View::Text(Text::Bytes(text)))),
            Self::Here(steps) => f(first(steps, here, root)),
            Self::Root(steps) => f(first(steps, root.view(), root)),
        }
    }
}

/// The first value that is found.
fn first<'a>(steps: &[Step], from: View<'a>, root: &'a Value) -> Option<View<'a>> {
    let mut found = None;
    let mut select = Select::new(steps);
    while found.is_none() && select.run(from, root, 1, &mut |_, view| found = Some(view)) {}
    found
}

impl Operator {
    fn holds(self, left: Option<View<'_>>, right: Option<View<'_>>) -> bool {
        let (Some(left), Some(right)) = (left, right) else { return false };
        match (self, compare(left, right)) {
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

/// Of what one can be less than another.
fn is_ordered(view: View<'_>) -> bool {
    !matches!(view, View::Null | View::Bool(_))
}

/// Values of one kind, compared; `None` for others.
fn compare(left: View<'_>, right: View<'_>) -> Option<Ordering> {
    match (left, right) {
        (View::Null, View::Null) => Some(Ordering::Equal),
        (View::Bool(one), View::Bool(two)) => Some(one.cmp(&two)),
        (View::Int(one), View::Int(two)) => Some(one.cmp(&two)),
        (View::Uint(one), View::Uint(two)) => Some(one.cmp(&two)),
        (View::Text(one), View::Text(two)) => {
            Some(one.pieces().flatten().cmp(two.pieces().flatten()))
        }
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
