//! The commands that change documents.

use super::path::Path;
use super::write::{Only, Order, change};
use darter_base::number;
use darter_command::{Args, Cx, Flow, Refusal};

/// Reads an optional path; the default is the root.
fn path_or_root(cx: &Cx<'_>, args: &mut Args<'_>) -> Result<Path, Refusal> {
    match args.left() {
        0 => Ok(Path::root(!cx.reply.is_resp3())),
        _ => Path::take(args),
    }
}

/// `JSON.SET key path value [NX | XX]`: sets the values that the path finds, or adds a member if it
/// finds none.
///
/// Reply: `OK`, or null if the condition does not hold or the value cannot be added anywhere.
/// Refusals: an invalid path or value; a new document at a path below the root; another type. Cost:
/// O(value + values followed), in slices. Source: <https://redis.io/commands/json.set> (RedisJSON
/// 1.0.0).
pub(super) fn set(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    args.key()?;
    let path = Path::take(&mut args)?;
    let at = args.position();
    args.seek(at + 1);
    let mut only = Only::Always;
    while args.left() > 0 {
        let next = match () {
            () if args.option("NX") => Only::Absent,
            () if args.option("XX") => Only::Present,
            () => return Err(Refusal::Syntax),
        };
        if std::mem::replace(&mut only, next) != Only::Always {
            return Err(Refusal::Syntax);
        }
    }
    change(cx, args, path, Order::Assign(only), at..at + 1)
}

/// `JSON.MERGE key path value`: merges a value into each value that the path finds; a null in it
/// removes a member. Otherwise as JSON.SET. Source: <https://redis.io/commands/json.merge>
/// (RedisJSON 2.6.0).
pub(super) fn merge(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    args.key()?;
    let path = Path::take(&mut args)?;
    let at = args.position();
    change(cx, args, path, Order::Merge, at..at + 1)
}

/// `JSON.DEL key [path]`: removes the values that the path finds; removing the root removes the
/// key.
///
/// Reply: integer, the number of removed values. Cost: O(values followed), in slices.
/// Source: <https://redis.io/commands/json.del> (RedisJSON 1.0.0).
pub(super) fn del(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    args.key()?;
    let path = path_or_root(cx, &mut args)?;
    change(cx, args, path, Order::Delete, 0..0)
}

/// `JSON.CLEAR key [path]`: empties arrays and objects, sets numbers to 0. Reply: integer, the
/// number of changed values.
/// Source: <https://redis.io/commands/json.clear> (RedisJSON 2.0.0).
pub(super) fn clear(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    args.key()?;
    let path = path_or_root(cx, &mut args)?;
    change(cx, args, path, Order::Clear, 0..0)
}

/// `JSON.TOGGLE key path`: inverts booleans.
///
/// Reply: array of integers, null for other values; for a legacy path `true` or `false`.
/// Source: <https://redis.io/commands/json.toggle> (RedisJSON 2.0.0).
pub(super) fn toggle(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    args.key()?;
    let path = path_or_root(cx, &mut args)?;
    change(cx, args, path, Order::Toggle, 0..0)
}

/// `JSON.NUMINCRBY key path value`: adds a number to each number that the path finds.
///
/// Reply: their new values as the text of an array, null for other values; in RESP3 an array. For a
/// legacy path, the text of the last value. Source: <https://redis.io/commands/json.numincrby>
/// (RedisJSON 1.0.0).
pub(super) fn numincrby(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    with_values(cx, args, Order::Number { is_product: false }, 1)
}

/// `JSON.NUMMULTBY key path value`: as JSON.NUMINCRBY, but multiplies.
/// Source: <https://redis.io/commands/json.nummultby> (RedisJSON 1.0.0).
pub(super) fn nummultby(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    with_values(cx, args, Order::Number { is_product: true }, 1)
}

/// `JSON.STRAPPEND key [path] value`: appends a string to each string that the path finds.
///
/// Reply: array of their lengths, null for other values; for a legacy path, the last length.
/// Source: <https://redis.io/commands/json.strappend> (RedisJSON 1.0.0).
pub(super) fn strappend(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    args.key()?;
    let is_at_root = args.left() == 1;
    let path = match is_at_root {
        true => Path::root(!cx.reply.is_resp3()),
        false => Path::take(&mut args)?,
    };
    let at = args.position();
    args.seek(at + 1);
    args.end()?;
    change(cx, args, path, Order::StrAppend, at..at + 1)
}

/// `JSON.ARRAPPEND key path value [value ...]`: appends values to the arrays that the path finds.
///
/// Reply: array of their lengths, null for other values; for a legacy path, the last length.
/// Source: <https://redis.io/commands/json.arrappend> (RedisJSON 1.0.0).
pub(super) fn arrappend(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    let count = args.left() - 2;
    with_values(cx, args, Order::ArrAppend, count)
}

/// Reads a key and a path, which the values follow.
fn with_values(
    cx: &mut Cx<'_>,
    mut args: Args<'_>,
    order: Order,
    count: usize,
) -> Result<Flow, Refusal> {
    args.key()?;
    let path = Path::take(&mut args)?;
    let at = args.position();
    change(cx, args, path, order, at..at + count)
}

/// `JSON.ARRINSERT key path index value [value ...]`: inserts values before the element at this
/// index; a negative index counts from the end. Otherwise as JSON.ARRAPPEND. The result is null if
/// there is no such index.
/// Source: <https://redis.io/commands/json.arrinsert> (RedisJSON 1.0.0).
pub(super) fn arrinsert(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    args.key()?;
    let (path, at) = (Path::take(&mut args)?, args.int()?);
    let values = args.position()..args.position() + args.left();
    change(cx, args, path, Order::ArrInsert { at }, values)
}

/// `JSON.ARRPOP key [path [index]]`: removes an element of each array, by default the last.
///
/// Reply: array of their texts, null for other values and for empty arrays; for a legacy path, the
/// last text. Source: <https://redis.io/commands/json.arrpop> (RedisJSON 1.0.0).
pub(super) fn arrpop(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    args.key()?;
    let path = path_or_root(cx, &mut args)?;
    // RedisJSON treats an invalid index as the last one.
    let at = if args.left() > 0 { number::parse_i64(args.word()?).unwrap_or(-1) } else { -1 };
    change(cx, args, path, Order::ArrPop { at }, 0..0)
}

/// `JSON.ARRTRIM key path start stop`: trims each array to the elements from `start` to `stop`.
/// Otherwise as JSON.ARRAPPEND. Source: <https://redis.io/commands/json.arrtrim> (RedisJSON 1.0.0).
pub(super) fn arrtrim(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    args.key()?;
    let path = Path::take(&mut args)?;
    let (start, stop) = (args.int()?, args.int()?);
    change(cx, args, path, Order::ArrTrim { start, stop }, 0..0)
}
