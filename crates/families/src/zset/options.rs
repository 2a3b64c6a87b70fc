//! The arguments of the algebra: the number of keys, weights, the aggregate, and the form of the
//! reply.
//!
//! Redis reads the keys' values before the options, and the options in their order, so the first
//! mistake decides. Weights are many where keys are many: they are read in portions, by the caller.

use super::plan::{Act, Aggregate};
use super::reply::Form;
use darter_base::{number, score};
use darter_command::{Args, Refusal};
use darter_resp as resp;

/// More options than these are refused: said again and again, a million of them would take a slice each
/// time that they are read.
pub(super) const OPTIONS_MAX: usize = 64;

/// A command of the algebra.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    /// The name, for refusals.
    pub(super) name: &'static str,
    pub(super) act: Act,
    pub(super) yields: Yields,
}

/// The use of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Yields {
    /// The result is shown.
    Members,
    /// The members are counted.
    Count,
    /// The result is stored.
    Value,
}

/// Reads how many keys follow; `args` stays at the first of them.
pub(super) fn keys(args: &mut Args<'_>, dialect: Dialect) -> Result<usize, Refusal> {
    let keys = args.int()?;
    if keys < 1 {
        let name = dialect.name;
        return Err(Refusal::line(format!(
            "ERR at least 1 input key is needed for '{name}' command"
        )));
    }
    let keys = usize::try_from(keys).ok().filter(|keys| *keys <= args.left());
    keys.ok_or(Refusal::Syntax)
}

/// The options.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) aggregate: Aggregate,
    pub(super) form: Form,
    /// The end of a count.
    pub(super) limit: usize,
    /// The starts of all weights. All are checked, and the last ones count.
    pub(super) weights: Vec<usize>,
    /// The error after them.
    pub(super) refusal: Option<Refusal>,
}

impl Options {
    /// Reads the options, which follow `keys` keys.
    pub(super) fn parse(mut args: Args<'_>, keys: usize, dialect: Dialect) -> Self {
        let (aggregate, form, limit) = (Aggregate::Sum, Form::Member, usize::MAX);
        let mut options = Self { aggregate, form, limit, weights: Vec::new(), refusal: None };
        let mut count = 0;
        while args.left() > 0 && options.refusal.is_none() {
            count += 1;
            let read = if count > OPTIONS_MAX {
                Err(Refusal::Syntax)
            } else {
                options.next(&mut args, keys, dialect)
            };
            options.refusal = read.err();
        }
        options
    }

    fn next(&mut self, args: &mut Args<'_>, keys: usize, dialect: Dialect) -> Result<(), Refusal> {
        let is_weighted = dialect.act != Act::Diff && dialect.yields != Yields::Count;
        if is_weighted && args.left() > keys && args.option("WEIGHTS") {
            self.weights.push(args.position());
            args.seek(args.position() + keys);
        } else if is_weighted && args.left() > 1 && args.option("AGGREGATE") {
            self.aggregate = match () {
                () if args.option("SUM") => Aggregate::Sum,
                () if args.option("MIN") => Aggregate::Min,
                () if args.option("MAX") => Aggregate::Max,
                () if args.option("COUNT") => Aggregate::Count,
                () => return Err(Refusal::Syntax),
            };
        } else if dialect.yields == Yields::Members && args.option("WITHSCORES") {
            self.form = Form::WithScore;
        } else if dialect.yields == Yields::Count && args.left() > 1 && args.option("LIMIT") {
            let limit = number::parse_i64(args.word()?).and_then(|n| usize::try_from(n).ok());
            let limit = limit.ok_or(Refusal::line("ERR LIMIT can't be negative"))?;
            self.limit = if limit == 0 { usize::MAX } else { limit };
        } else {
            return Err(Refusal::Syntax);
        }
        Ok(())
    }
}

/// Reads the weight at `index` of a request.
pub(super) fn weight(args: resp::Args<'_>, index: usize) -> Result<f64, Refusal> {
    let refusal = || Refusal::line("ERR weight value is not a float");
    score::parse(args.head(index)).ok_or_else(refusal)
}
