//! The options of SORT and SORT_RO.

use super::order::{By, End, Order};
use super::pattern::Pattern;
use darter_command::{Args, Refusal};
use std::ops::Range;

/// SORT or SORT_RO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// SORT, which may store its result.
    Sort,
    /// SORT_RO.
    ReadOnly,
}

/// The options of a request.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) is_descending: bool,
    is_alpha: bool,
    /// The index of the first wanted element, and the number of wanted elements; a negative number
    /// means all.
    offset: i64,
    count: i64,
    /// The last pattern of BY.
    by: Option<Pattern>,
    /// The last BY pattern has no star: nothing is sorted.
    is_unsorted: bool,
    /// The patterns of GET.
    pub(super) get: Vec<Pattern>,
    /// Argument index of the destination.
    pub(super) store: Option<usize>,
}

impl Options {
    /// The options before any is parsed.
    pub(super) fn new() -> Self {
        Self {
            is_descending: false,
            is_alpha: false,
            offset: 0,
            count: -1,
            by: None,
            is_unsorted: false,
            get: Vec::new(),
            store: None,
        }
    }

    /// Parses the next option after the key.
    pub(super) fn read(&mut self, args: &mut Args<'_>, dialect: Dialect) -> Result<(), Refusal> {
        let follow = args.left() - 1;
        if args.option("ASC") {
            self.is_descending = false;
        } else if args.option("DESC") {
            self.is_descending = true;
        } else if args.option("ALPHA") {
            self.is_alpha = true;
        } else if follow >= 2 && args.option("LIMIT") {
            (self.offset, self.count) = (args.int()?, args.int()?);
        } else if follow >= 1 && dialect == Dialect::Sort && args.option("STORE") {
            self.store = Some(args.position());
            args.bytes()?;
        } else if follow >= 1 && args.option("BY") {
            let pattern = Pattern::take(args)?;
            self.is_unsorted |= !pattern.names_keys();
            self.by = Some(pattern);
        } else if follow >= 1 && args.option("GET") {
            self.get.push(Pattern::take(args)?);
        } else {
            return Err(Refusal::Syntax);
        }
        Ok(())
    }

    /// The pattern of the weights, if elements are sorted by weights.
    pub(super) fn weights(&self) -> Option<&Pattern> {
        self.by.as_ref().filter(|_| !self.is_unsorted)
    }

    /// True if keys are read that the request does not name.
    pub(super) fn reads_others(&self) -> bool {
        self.weights().is_some() || self.get.iter().any(Pattern::names_keys)
    }

    /// The order of elements. A set's elements are always sorted if they are stored or returned to
    /// a script, so that the result is deterministic.
    pub(super) fn order(&self, is_set: bool, is_script: bool) -> Order {
        let end = if self.store.is_some() { End::Whole } else { End::Nul };
        let by = match (self.is_unsorted, self.is_alpha, &self.by) {
            (true, ..) if is_set && (is_script || self.store.is_some()) => By::Texts(end),
            (true, ..) => By::Nothing,
            (_, false, _) => By::Numbers,
            (_, true, None) => By::Texts(end),
            (_, true, Some(_)) => By::Weights(end),
        };
        Order { by, is_descending: self.is_descending, skipped: 0 }
    }

    /// The wanted range of `len` sorted elements.
    pub(super) fn range(&self, len: usize) -> Range<usize> {
        let start = usize::try_from(self.offset.max(0)).unwrap_or(usize::MAX).min(len);
        start..usize::try_from(self.count).map_or(len, |count| start.saturating_add(count).min(len))
    }
}
