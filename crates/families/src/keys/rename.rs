//! RENAME and RENAMENX: a value of any size moves to another key by pointer, also between cores.

use darter_command::{Answer, Args, Call, Cx, Flow, Refusal};
use darter_keyspace::event::NEW;
use darter_keyspace::{Db, Event, Key, Tells};
use darter_resp as resp;
use darter_resp::Reply;
use darter_tx::Access;
use std::sync::Arc;

const RENAME_FROM: &Event = &Event::new("rename_from", b'g');
/// The new name counts as a new key even if it existed, because its old value is deleted first.
const RENAMED: Tells<'_> = &[NEW, &Event::new("rename_to", b'g')];

/// RENAME or RENAMENX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// RENAME: replaces any value at the new name.
    Over,
    /// RENAMENX: only if the new name does not exist.
    IfAbsent,
}

impl Form {
    fn reply(self, reply: &mut Reply<'_>, done: bool) {
        match self {
            Self::Over => reply.ok(),
            Self::IfAbsent => reply.int(i64::from(done)),
        }
    }
}

/// `RENAME key newkey`: moves the value at `key`, with its deadline, to `newkey`.
///
/// Reply: `OK`. Refusals: `NoSuchKey`. Cost: O(1); the old value of `newkey` is freed in slices.
/// Source: <https://redis.io/commands/rename> (1.0.0).
pub(super) fn rename_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    here(cx, args, Form::Over)
}

/// `RENAMENX key newkey`: RENAME, if `newkey` holds nothing.
///
/// Reply: 1, or 0 when it holds something, be it `key` itself. Otherwise as RENAME.
/// Source: <https://redis.io/commands/renamenx> (1.0.0).
pub(super) fn renamenx_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    here(cx, args, Form::IfAbsent)
}

/// RENAME with keys on two cores.
pub(super) async fn rename_anywhere(call: Call) -> Result<Answer, Refusal> {
    anywhere(call, Form::Over).await
}

/// RENAMENX with keys on two cores.
pub(super) async fn renamenx_anywhere(call: Call) -> Result<Answer, Refusal> {
    anywhere(call, Form::IfAbsent).await
}

fn here(cx: &mut Cx<'_>, mut args: Args<'_>, form: Form) -> Result<Flow, Refusal> {
    let (from, to) = (args.key()?, args.key()?);
    args.end()?;

    if cx.db.read(&from).is_none() {
        return Err(Refusal::NoSuchKey);
    }
    let done = from.bytes != to.bytes && (form == Form::Over || cx.db.read(&to).is_none());
    if done {
        let held =
            cx.db.take_to(&from, (None, to.bytes), &[RENAME_FROM]).expect("it is there: see above");
        cx.db.put_taken(&to, held, RENAMED);
    }
    form.reply(&mut cx.reply, done);
    Ok(Flow::Done)
}

async fn anywhere(call: Call, form: Form) -> Result<Answer, Refusal> {
    let (from, to) = (call.first, call.first + 1);
    let keys = [from, to].map(|at| (at, Access::Exclusive));
    let locked = call.lock_keys(keys).await;
    if !exists(&call, from).await {
        return Err(Refusal::NoSuchKey);
    }
    if call.arg(from) == call.arg(to) || form == Form::IfAbsent && exists(&call, to).await {
        return Ok(call.answer(|reply| form.reply(reply, false)));
    }
    let request = Arc::clone(&call.request);
    let take = move |db: &mut Db, key: &Key<'_>| {
        db.take_to(key, (None, resp::Args::owned(&request).get(to)), &[RENAME_FROM])
    };
    let held = call.on_key(from, take).await;
    let held = held.ok_or(Refusal::NoSuchKey)?; // The key may have expired since.
    call.on_key(to, move |db, key| db.put_taken(key, held, RENAMED)).await;
    drop(locked);
    Ok(call.answer(|reply| form.reply(reply, true)))
}

/// True if the key at `at` exists.
async fn exists(call: &Call, at: usize) -> bool {
    call.on_key(at, |db, key| db.read(key).is_some()).await
}
