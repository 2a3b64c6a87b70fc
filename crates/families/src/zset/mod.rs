//! Sorted sets: members with scores, in the order of both.
//!
//! Entries have ranks, and those of any range are neighbours, so every range is a range of ranks
//! (`bounds`), whose length is known before it is read: exact headers, and removals of any length
//! at once. Longer ranges are streamed from a cut; changes of many members are made aside.
//!
//! | file      | holds                                                                  |
//! |-----------|------------------------------------------------------------------------|
//! | `value`   | the type: its row, its values, how they are changed; `items`: in files |
//! | `add`     | ZADD, ZINCRBY; `remove`: ZREM, ZREMRANGEBYRANK and its like            |
//! | `member`  | ZSCORE, ZMSCORE, ZCARD, ZRANK, ZREVRANK                                |
//! | `range`   | ZRANGE and what it replaces, ZCOUNT, ZLEXCOUNT; `bounds`: their ends   |
//! | `rangestore` | ZRANGESTORE                                                         |
//! | `pop`     | ZPOPMIN, ZPOPMAX, ZMPOP; `blocking`: those that wait                   |
//! | `random`  | ZRANDMEMBER; `scan`: ZSCAN                                             |
//! | `algebra` | ZUNION, ZINTER, ZDIFF, ZINTERCARD and the STORE forms; `options`: their arguments |
//! | `operand` | what they combine; `plan`: in what order; `walk`: the inner loop; `build`: the result |
//! | `reply`   | how entries are shown, in slices if there are many                     |

mod add;
mod algebra;
mod blocking;
mod bounds;
mod build;
mod items;
mod member;
mod operand;
mod options;
mod plan;
mod pop;
mod random;
mod range;
mod rangestore;
mod remove;
mod reply;
mod scan;
mod value;
mod walk;

pub(crate) use add::{Notation, Only, Rule, add};
pub(crate) use algebra::install;
pub(crate) use build::Bulk;
pub use value::{ZSet, ZSetChange, ZSetEdit};

use crate::rows::{
    BLOCKING, GROW, GROW_FAST, O_SCAN, O1, RANDOM, READ, READ_FAST, WRITE_FAST, both, in_group,
    point as row, range, row as multi, task as store,
};
use crate::waiting::run_waiting;
use darter_command::{Command, Flags, Group, KeyFlags, KeySpec, Keys, Place, Run, specs};

const GROUP: Group = Group::Type { name: "sorted-set", category: "@sortedset" };

const WRITE: Flags = Flags::WRITE;
const POP_COUNTED: Flags = WRITE.and(Flags::MOVABLEKEYS);
const COUNTED_POP: Keys =
    Keys(&[KeySpec::new(Place::Counted { count: 1 }, KeyFlags::RW_ACCESS_DELETE)]);

const COUNTED: Keys = Keys(&[KeySpec::new(Place::Counted { count: 1 }, KeyFlags::RO_ACCESS)]);
const STORE: Keys = Keys(&[
    range(1, 1, KeyFlags::OW_UPDATE),
    KeySpec::new(Place::Counted { count: 2 }, KeyFlags::RO_ACCESS),
]);
const RANGESTORE: Keys =
    Keys(&[range(1, 1, KeyFlags::OW_UPDATE), range(2, 2, KeyFlags::RO_ACCESS)]);
const READ_COUNTED: Flags = READ.and(Flags::MOVABLEKEYS);
const GROW_COUNTED: Flags = GROW.and(Flags::MOVABLEKEYS);

const O_ADD: &str =
    "O(log(N)) for each item added, where N is the number of elements in the sorted set.";
const O_ASKED: &str = "O(N) where N is the number of members being requested.";
const TIMEOUT_HISTORY: &[(&str, &str)] =
    &[("6.0.0", "`timeout` is interpreted as a double instead of an integer.")];
const O_COUNT: &str = "O(log(N)) with N being the number of elements in the sorted set.";
const O_LOG: &str = "O(log(N))";
const O_DIFF: &str = "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.";
const O_INTER: &str = "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.";
const O_INTERCARD: &str = "O(N*K) worst case with N being the smallest input sorted set, K being the number of input sorted sets.";
const O_RANGESTORE: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements stored into the destination key.";
const O_UNION: &str = "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.";
const O_UNIONSTORE: &str = "O(N)+O(M log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.";
const O_INCR: &str = "O(log(N)) where N is the number of elements in the sorted set.";
const O_MPOP: &str = "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and M being the number of elements popped.";
const O_POP: &str = "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped.";
const O_RANDOM: &str = "O(N) where N is the number of elements returned";
const O_RANGE: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.";
const O_RANGE_BY: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).";
const O_REM: &str = "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements to be removed.";
const O_REM_RANGE: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.";

const WAITS: Keys = Keys(&[range(1, -2, KeyFlags::RW_ACCESS_DELETE)]);
const WAITS_COUNTED: Keys =
    Keys(&[KeySpec::new(Place::Counted { count: 2 }, KeyFlags::RW_ACCESS_DELETE)]);
const BZPOPMIN: Run = run_waiting!(blocking::bzpopmin);
const BZPOPMAX: Run = run_waiting!(blocking::bzpopmax);
const BZMPOP: Run = run_waiting!(blocking::bzmpop);

const ZMPOP: Run = both(pop::zmpop_here, |call| Box::pin(pop::zmpop_anywhere(call)));

const ZUNION: Run = both(
    |cx, args| algebra::here(cx, args, algebra::ZUNION),
    |call| Box::pin(algebra::anywhere(call, algebra::ZUNION)),
);
const ZINTER: Run = both(
    |cx, args| algebra::here(cx, args, algebra::ZINTER),
    |call| Box::pin(algebra::anywhere(call, algebra::ZINTER)),
);
const ZDIFF: Run = both(
    |cx, args| algebra::here(cx, args, algebra::ZDIFF),
    |call| Box::pin(algebra::anywhere(call, algebra::ZDIFF)),
);
const ZINTERCARD: Run = both(
    |cx, args| algebra::here(cx, args, algebra::ZINTERCARD),
    |call| Box::pin(algebra::anywhere(call, algebra::ZINTERCARD)),
);
const ZUNIONSTORE: Run = store(|call| Box::pin(algebra::store(call, algebra::ZUNIONSTORE)));
const ZINTERSTORE: Run = store(|call| Box::pin(algebra::store(call, algebra::ZINTERSTORE)));
const ZDIFFSTORE: Run = store(|call| Box::pin(algebra::store(call, algebra::ZDIFFSTORE)));
const ZRANGESTORE: Run = store(|call| Box::pin(rangestore::zrangestore(call)));

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub const TABLE: &[Command] = &in_group(GROUP, [
    //  name                since   args flags       keys                         run
    multi("bzmpop",         "7.0.0", -5, POP_COUNTED.and(Flags::BLOCKING), WAITS_COUNTED, BZMPOP).doc("Remove and return members with scores in a sorted set or block until one is available", O_MPOP).syntax("timeout:double numkeys:integer key... (where: MIN | MAX) [COUNT count:integer]").waits(blocking::bzmpop),
    multi("bzpopmax",       "5.0.0", -3, BLOCKING.and(Flags::FAST), WAITS,        BZPOPMAX).doc("Remove and return the member with the highest score from one or more sorted sets, or block until one is available", O_COUNT).syntax("key... timeout:double").history(TIMEOUT_HISTORY).waits(blocking::bzpopmax),
    multi("bzpopmin",       "5.0.0", -3, BLOCKING.and(Flags::FAST), WAITS,        BZPOPMIN).doc("Remove and return the member with the lowest score from one or more sorted sets, or block until one is available", O_COUNT).syntax("key... timeout:double").history(TIMEOUT_HISTORY).waits(blocking::bzpopmin),
    row("zadd",             "1.2.0", -4, GROW_FAST,  specs::ONE_RW_UPDATE,        add::zadd).doc("Add one or more members to a sorted set, or update its score if it already exists", O_ADD).elements_from(3).syntax("key [condition: NX | XX]@3.0.2 [comparison: GT | LT]@6.2.0 [CH=change]@3.0.2 [INCR=increment]@3.0.2 (score_member: score:double member)...").history(&[("2.4.0", "Accepts multiple elements."), ("3.0.2", "Added the `XX`, `NX`, `CH` and `INCR` options."), ("6.2.0", "Added the `GT` and `LT` options.")]),
    row("zcard",            "1.2.0",  2, READ_FAST,  specs::ONE_RO,               member::zcard).doc("Get the number of members in a sorted set", O1).syntax("key"),
    row("zcount",           "2.0.0",  4, READ_FAST,  specs::ONE_RO_ACCESS,        range::zcount).doc("Count the members in a sorted set with scores within the given values", O_COUNT).syntax("key min:double max:double"),
    multi("zdiff",          "6.2.0", -3, READ_COUNTED, COUNTED,                   ZDIFF).doc("Subtract multiple sorted sets", O_DIFF).syntax("numkeys:integer key... [WITHSCORES]"),
    multi("zdiffstore",     "6.2.0", -4, GROW_COUNTED, STORE,                     ZDIFFSTORE).doc("Subtract multiple sorted sets and store the resulting sorted set in a new key", O_DIFF).syntax("destination:key numkeys:integer key..."),
    row("zincrby",          "1.2.0",  4, GROW_FAST,  specs::ONE_RW_ACCESS_UPDATE, add::zincrby).doc("Increment the score of a member in a sorted set", O_INCR).elements_from(3).syntax("key increment:integer member"),
    multi("zinter",         "6.2.0", -3, READ_COUNTED, COUNTED,                   ZINTER).doc("Intersect multiple sorted sets", O_INTER).syntax("numkeys:integer key... [WEIGHTS weight:integer...] [AGGREGATE(aggregate: SUM | MIN | MAX)] [WITHSCORES]"),
    multi("zintercard",     "7.0.0", -3, READ_COUNTED, COUNTED,                   ZINTERCARD).doc("Intersect multiple sorted sets and return the cardinality of the result", O_INTERCARD).syntax("numkeys:integer key... [LIMIT limit:integer]"),
    multi("zinterstore",    "2.0.0", -4, GROW_COUNTED, STORE,                     ZINTERSTORE).doc("Intersect multiple sorted sets and store the resulting sorted set in a new key", O_INTER).syntax("destination:key numkeys:integer key... [WEIGHTS weight:integer...] [AGGREGATE(aggregate: SUM | MIN | MAX)]"),
    row("zlexcount",        "2.8.9",  4, READ_FAST,  specs::ONE_RO_ACCESS,        range::zlexcount).doc("Count the number of members in a sorted set between a given lexicographical range", O_COUNT).syntax("key min max"),
    multi("zmpop",          "7.0.0", -4, POP_COUNTED, COUNTED_POP,                ZMPOP).doc("Remove and return members with scores in a sorted set", O_MPOP).syntax("numkeys:integer key... (where: MIN | MAX) [COUNT count:integer]"),
    row("zmscore",          "6.2.0", -3, READ_FAST,  specs::ONE_RO_ACCESS,        member::zmscore).doc("Get the score associated with the given members in a sorted set", O_ASKED).elements().syntax("key member..."),
    row("zpopmax",          "5.0.0", -2, WRITE_FAST, specs::ONE_RW_ACCESS_DELETE, pop::zpopmax).doc("Remove and return members with the highest scores in a sorted set", O_POP).syntax("key [count:integer]"),
    row("zpopmin",          "5.0.0", -2, WRITE_FAST, specs::ONE_RW_ACCESS_DELETE, pop::zpopmin).doc("Remove and return members with the lowest scores in a sorted set", O_POP).syntax("key [count:integer]"),
    row("zrandmember",      "6.2.0", -2, READ,       specs::ONE_RO_ACCESS,        random::zrandmember).doc("Get one or multiple random elements from a sorted set", O_RANDOM).tips(RANDOM).syntax("key [options: count:integer [WITHSCORES]]"),
    row("zrange",           "1.2.0", -4, READ,       specs::ONE_RO_ACCESS,        range::zrange).doc("Return a range of members in a sorted set", O_RANGE).syntax("key start stop [sortby: BYSCORE | BYLEX]@6.2.0 [REV]@6.2.0 [LIMIT(offset_count: offset:integer count:integer)]@6.2.0 [WITHSCORES]").history(&[("6.2.0", "Added the `REV`, `BYSCORE`, `BYLEX` and `LIMIT` options.")]),
    row("zrangebylex",      "2.8.9", -4, READ,       specs::ONE_RO_ACCESS,        range::zrangebylex).doc("Return a range of members in a sorted set, by lexicographical range", O_RANGE_BY).deprecated("6.2.0", "`ZRANGE` with the `BYLEX` argument").syntax("key min max [LIMIT(offset_count: offset:integer count:integer)]"),
    row("zrangebyscore",    "1.0.5", -4, READ,       specs::ONE_RO_ACCESS,        range::zrangebyscore).doc("Return a range of members in a sorted set, by score", O_RANGE_BY).deprecated("6.2.0", "`ZRANGE` with the `BYSCORE` argument").syntax("key min:double max:double [WITHSCORES]@2.0.0 [LIMIT(offset_count: offset:integer count:integer)]").history(&[("2.0.0", "Added the `WITHSCORES` modifier.")]),
    multi("zrangestore",    "6.2.0", -5, GROW,       RANGESTORE,                  ZRANGESTORE).doc("Store a range of members from sorted set into another key", O_RANGESTORE).syntax("dst:key src:key min max [sortby: BYSCORE | BYLEX] [REV] [LIMIT(offset_count: offset:integer count:integer)]"),
    row("zrank",            "2.0.0", -3, READ_FAST,  specs::ONE_RO_ACCESS,        member::zrank).doc("Determine the index of a member in a sorted set", O_LOG).elements().syntax("key member"),
    row("zrem",             "1.2.0", -3, WRITE_FAST, specs::ONE_RW_DELETE,        remove::zrem).doc("Remove one or more members from a sorted set", O_REM).elements().syntax("key member...").history(&[("2.4.0", "Accepts multiple elements.")]),
    row("zremrangebylex",   "2.8.9",  4, WRITE,      specs::ONE_RW_DELETE,        remove::zremrangebylex).doc("Remove all members in a sorted set between the given lexicographical range", O_REM_RANGE).syntax("key min max"),
    row("zremrangebyrank",  "2.0.0",  4, WRITE,      specs::ONE_RW_DELETE,        remove::zremrangebyrank).doc("Remove all members in a sorted set within the given indexes", O_REM_RANGE).syntax("key start:integer stop:integer"),
    row("zremrangebyscore", "1.2.0",  4, WRITE,      specs::ONE_RW_DELETE,        remove::zremrangebyscore).doc("Remove all members in a sorted set within the given scores", O_REM_RANGE).syntax("key min:double max:double"),
    row("zrevrange",        "1.2.0", -4, READ,       specs::ONE_RO_ACCESS,        range::zrevrange).doc("Return a range of members in a sorted set, by index, with scores ordered from high to low", O_RANGE).deprecated("6.2.0", "`ZRANGE` with the `REV` argument").syntax("key start:integer stop:integer [WITHSCORES]"),
    row("zrevrangebylex",   "2.8.9", -4, READ,       specs::ONE_RO_ACCESS,        range::zrevrangebylex).doc("Return a range of members in a sorted set, by lexicographical range, ordered from higher to lower strings.", O_RANGE_BY).deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments").syntax("key max min [LIMIT(offset_count: offset:integer count:integer)]"),
    row("zrevrangebyscore", "2.2.0", -4, READ,       specs::ONE_RO_ACCESS,        range::zrevrangebyscore).doc("Return a range of members in a sorted set, by score, with scores ordered from high to low", O_RANGE_BY).deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments").syntax("key max:double min:double [WITHSCORES] [LIMIT(offset_count: offset:integer count:integer)]").history(&[("2.1.6", "`min` and `max` can be exclusive.")]),
    row("zrevrank",         "2.0.0", -3, READ_FAST,  specs::ONE_RO_ACCESS,        member::zrevrank).doc("Determine the index of a member in a sorted set, with scores ordered from high to low", O_LOG).elements().syntax("key member"),
    row("zscan",            "2.8.0", -3, READ,       specs::ONE_RO_ACCESS,        scan::zscan).doc("Incrementally iterate sorted sets elements and associated scores", O_SCAN).tips(RANDOM).syntax("key cursor:integer [MATCH pattern:pattern] [COUNT count:integer]"),
    row("zscore",           "1.2.0",  3, READ_FAST,  specs::ONE_RO_ACCESS,        member::zscore).doc("Get the score associated with the given member in a sorted set", O1).elements().syntax("key member"),
    multi("zunion",         "6.2.0", -3, READ_COUNTED, COUNTED,                   ZUNION).doc("Add multiple sorted sets", O_UNION).syntax("numkeys:integer key... [WEIGHTS weight:integer...] [AGGREGATE(aggregate: SUM | MIN | MAX)] [WITHSCORES]"),
    multi("zunionstore",    "2.0.0", -4, GROW_COUNTED, STORE,                     ZUNIONSTORE).doc("Add multiple sorted sets and store the resulting sorted set in a new key", O_UNIONSTORE).syntax("destination:key numkeys:integer key... [WEIGHTS weight:integer...] [AGGREGATE(aggregate: SUM | MIN | MAX)]"),
]);
