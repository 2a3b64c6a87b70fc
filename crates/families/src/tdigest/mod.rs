//! t-digests: quantiles and ranks of observations, exact at the ends, estimated between.
//!
//! | file     | holds                                                        |
//! |----------|--------------------------------------------------------------|
//! | `digest` | the digest, and what it answers                              |
//! | `value`  | the type: its row, its values, how they are changed          |
//! | `create` | TDIGEST.CREATE, RESET, INFO                                  |
//! | `add`    | TDIGEST.ADD; `merge`: TDIGEST.MERGE                          |
//! | `read`   | TDIGEST.QUANTILE, CDF, RANK, BYRANK and their like, MIN, MAX, TRIMMED_MEAN |

mod add;
mod create;
mod digest;
mod merge;
mod read;
mod value;

use crate::rows::{GROW, O1, READ, READ_FAST, range, task};
use darter_base::score;
use darter_command::{
    Command, Flags, Group, KeyFlags, KeySpec, Keys, Place, PointFn, Refusal, Run, specs,
};
use darter_resp::Reply;
use read::Ask;

pub use digest::{Digest, Node, Overflow, View};
pub use value::{TDigest, TDigestChange, TDigestEdit};

const GROUP: Group = Group::Type { name: "tdigest", category: "@tdigest" };

const fn row(name: &'static str, arity: i32, flags: Flags, keys: Keys, run: Run) -> Command {
    Command::new(name, "2.4.0", arity, flags, keys, GROUP, run)
}

const fn read(name: &'static str, arity: i32, run: PointFn) -> Command {
    row(name, arity, READ, specs::ONE_RO_ACCESS, Run::Point(run))
}

/// The error for a missing key.
const MISSING: &str = "ERR T-Digest: key does not exist";
/// The error for more observations than can be counted.
const OVERFLOW: &str = "ERR T-Digest: overflow detected";

/// Makes a refusal with the text of RedisBloom.
fn refuse(line: &'static str) -> Refusal {
    Refusal::line(line)
}

/// Replies with a number, or with `nan`.
fn double(reply: &mut Reply<'_>, value: f64) {
    if value.is_nan() {
        reply.double_text("nan");
    } else {
        reply.double_text(score::Text::new(value).as_str());
    }
}

const MERGE_KEYS: Keys = Keys(&[
    range(1, 1, KeyFlags::RW_ACCESS_UPDATE),
    KeySpec::new(Place::Counted { count: 2 }, KeyFlags::RO_ACCESS),
]);
const GROW_COUNTED: Flags = GROW.and(Flags::MOVABLEKEYS);
/// Never run as a command of one core: that would lock its sources, too, while it merges.
const MERGE: Run = task(|call| Box::pin(merge::merge(call)));

const O_N: &str = "O(N) where N is the number of values specified.";
const O_ADD: &str = "O(N), where N is the number of samples to add";
const O_MERGE: &str =
    "O(N*K), where N is the number of centroids and K being the number of input sketches";
const O_TRIM: &str = "O(N) where N is the number of centroids";

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub(crate) const TABLE: &[Command] = &[
    row("tdigest.add",    -3, GROW,         specs::ONE_RW_ACCESS_UPDATE, Run::Point(add::add)).doc("Adds one or more observations to a t-digest sketch", O_ADD).syntax("key (values: value:double)..."),
    read("tdigest.byrank",    -3, |cx, args| read::ask(cx, args, Ask::ByRank)).doc("Returns, for each input rank, an estimation of the value (floating-point) with that rank", O1).syntax("key rank:double..."),
    read("tdigest.byrevrank", -3, |cx, args| read::ask(cx, args, Ask::ByRevRank)).doc("Returns, for each input reverse rank, an estimation of the value (floating-point) with that reverse rank", O1).syntax("key reverse_rank:double..."),
    read("tdigest.cdf",       -3, |cx, args| read::ask(cx, args, Ask::Cdf)).doc("Returns, for each input value, an estimation of the fraction (floating-point) of (observations smaller than the given value + half the observations equal to the given value)", O_N).syntax("key value:double..."),
    row("tdigest.create", -2, GROW,         specs::ONE_RW_INSERT,        Run::Point(create::create)).doc("Allocates memory and initializes a new t-digest sketch", O1).syntax("key [COMPRESSION compression:integer]"),
    row("tdigest.info",    2, READ_FAST,    specs::ONE_RO_ACCESS,        Run::Point(create::info)).doc("Returns information and statistics about a t-digest sketch", O1).syntax("key"),
    row("tdigest.max",     2, READ_FAST,    specs::ONE_RO_ACCESS,        Run::Point(read::max)).doc("Returns the maximum observation value from a t-digest sketch", O1).syntax("key"),
    row("tdigest.merge",  -4, GROW_COUNTED, MERGE_KEYS,                  MERGE).doc("Merges multiple t-digest sketches into a single sketch", O_MERGE).syntax("destination-key:key numkeys:integer source-key:key... [config: COMPRESSION compression:integer] [OVERRIDE]"),
    row("tdigest.min",     2, READ_FAST,    specs::ONE_RO_ACCESS,        Run::Point(read::min)).doc("Returns the minimum observation value from a t-digest sketch", O1).syntax("key"),
    read("tdigest.quantile",  -3, |cx, args| read::ask(cx, args, Ask::Quantile)).doc("Returns, for each input fraction, an estimation of the value (floating point) that is smaller than the given fraction of observations", O1).syntax("key quantile:double..."),
    read("tdigest.rank",      -3, |cx, args| read::ask(cx, args, Ask::Rank)).doc("Returns, for each input value (floating-point), the estimated rank of the value (the number of observations in the sketch that are smaller than the value + half the number of observations that are equal to the value)", O1).syntax("key value:double..."),
    row("tdigest.reset",   2, GROW,         specs::ONE_RW_ACCESS_UPDATE, Run::Point(create::reset)).doc("Resets a t-digest sketch: empty the sketch and re-initializes it.", O1).syntax("key"),
    read("tdigest.revrank",   -3, |cx, args| read::ask(cx, args, Ask::RevRank)).doc("Returns, for each input value (floating-point), the estimated reverse rank of the value (the number of observations in the sketch that are larger than the value + half the number of observations that are equal to the value)", O1).syntax("key value:double..."),
    read("tdigest.trimmed_mean", 4, read::trimmed_mean).doc("Returns an estimation of the mean value from the sketch, excluding observation values outside the low and high cutoff quantiles", O_TRIM).syntax("key low_cut_quantile:double high_cut_quantile:double"),
];
