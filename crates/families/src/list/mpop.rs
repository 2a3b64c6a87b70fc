//! LMPOP: removes elements of the first existing list among several keys.

use super::read::Popped;
use super::transfer;
use super::value::List;
use crate::pending_values::flow;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::number;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal};
use darter_keyspace::{Db, Key, WrongType};
use darter_resp::{Output, Reply};
use darter_structs::list::{self, End};
use darter_tx::Access;
use std::ops::Range;

/// Keys that are checked between two pauses.
const KEYS_AT_ONCE: usize = 32;

/// A parsed request.
pub(super) struct MultiPopRequest {
    /// Indexes of the keys.
    pub(super) keys: Range<usize>,
    pub(super) end: End,
    pub(super) count: usize,
}

impl MultiPopRequest {
    pub(super) fn parse(mut args: Args<'_>) -> Result<Self, Refusal> {
        let keys = positive(&mut args, "ERR numkeys should be greater than 0")?;
        let first = args.position();
        if keys >= args.left() {
            return Err(Refusal::Syntax);
        }
        args.seek(first + keys);
        let end = transfer::end(&mut args)?;
        let mut count = None;
        while args.left() > 0 {
            if count.is_some() || args.left() < 2 || !args.option("COUNT") {
                return Err(Refusal::Syntax);
            }
            count = Some(positive(&mut args, "ERR count should be greater than 0")?);
        }
        Ok(Self { keys: first..first + keys, end, count: count.unwrap_or(1) })
    }
}

/// Reads a positive number; `text` is the error for any other.
pub(super) fn positive(args: &mut Args<'_>, text: &'static str) -> Result<usize, Refusal> {
    let number = number::parse_i64(args.word()?).and_then(|number| usize::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or(Refusal::line(text))
}

/// `LMPOP numkeys key [key ...] LEFT|RIGHT [COUNT count]`: removes elements at one end of the first
/// existing list.
///
/// Reply: array of the key and an array of elements, or a null array. Refusals: numbers that are
/// not positive, an unknown word, `WrongType` of a key before the first list. Cost: O(keys +
/// elements), and a message to the owner of each key. Source: <https://redis.io/commands/lmpop>
/// (7.0.0).
pub(super) fn here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    let asked = MultiPopRequest::parse(args)?;
    for at in asked.keys {
        let key = Key::new(args.all().get(at));
        if let Some(popped) = pop(cx.db, &key, asked.end, asked.count)? {
            return Ok(reply(&mut cx.reply, key.bytes, popped, asked.end));
        }
    }
    cx.reply.null_array();
    Ok(Flow::Done)
}

/// Removes up to `count` elements of the list at `key`.
pub(super) fn pop(
    db: &mut Db,
    key: &Key<'_>,
    end: End,
    count: usize,
) -> Result<Option<list::List>, WrongType> {
    db.edit::<List, _>(key, false, |edit| edit.detach(end, count))
}

pub(super) fn reply(reply: &mut Reply<'_>, key: &[u8], popped: list::List, end: End) -> Flow {
    reply.array(2);
    reply.bulk(key);
    reply.array(popped.len());
    flow(reply, Popped::new(popped, end))
}

/// LMPOP for lists on several cores.
pub(super) async fn anywhere(call: Call) -> Result<Answer, Refusal> {
    let MultiPopRequest { keys, end, count } = MultiPopRequest::parse(call.args())?;
    let _locked = if keys.len() > ENTRIES_AT_ONCE {
        call.lock_all(Access::Exclusive).await
    } else {
        call.lock_keys(keys.clone().map(|at| (at, Access::Exclusive))).await
    };
    for at in keys {
        if at % KEYS_AT_ONCE == 0 {
            call.tx.pause().await;
        }
        let pop_it = move |db: &mut Db, key: &Key<'_>| pop(db, key, end, count);
        let Some(popped) = call.on_key(at, pop_it).await? else {
            continue;
        };
        let mut out = Output::default();
        let rest = reply(&mut Reply::new(&mut out, call.resp3), call.arg(at), popped, end);
        return Ok(match rest {
            Flow::Stream(rest) => Answer::Stream(out, rest),
            _ => Answer::Done(out),
        });
    }
    Ok(call.answer(|reply| reply.null_array()))
}
