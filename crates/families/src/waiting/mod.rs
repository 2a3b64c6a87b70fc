//! Commands that wait: their timeouts, and their form where no client may wait.
//!
//! A command's wait and its way of taking are in its family; the engine keeps the waiting clients
//! and the order in which they are served.

mod replicas;
mod timeout;

pub(crate) use replicas::TABLE;
pub(crate) use timeout::{milliseconds, seconds};

use crate::keys_by_core::{KeysByCore, Layout, PORTION_KEYS, Portion};
use darter_command::{
    Answer, Args, Call, Cx, Flow, Look, Looking, Refusal, Taking, Wait, WaitFn, When,
};
use darter_keyspace::Db;
use darter_resp::{self as resp, Output, Reply};
use darter_tx::{Access, Home};
use std::sync::Arc;

/// The two forms of a command where blocking is not allowed, by the function that reads its wait.
macro_rules! run_waiting {
    ($read:path) => {
        $crate::rows::both(
            |cx, args| $crate::waiting::here(cx, args, $read),
            |call| Box::pin($crate::waiting::anywhere(call, $read)),
        )
    };
}
pub(crate) use run_waiting;

/// Runs a command that would wait without waiting: of keys of one shard.
pub(crate) fn here(cx: &mut Cx<'_>, args: Args<'_>, read: WaitFn) -> Result<Flow, Refusal> {
    let wait = read(args)?;
    let all = args.all();
    for at in wait.keys {
        match wait.want.look(&Looking::new(cx.db, all, at, When::Called)) {
            Look::Nothing => {}
            Look::Refused(refusal) => return Err(refusal),
            Look::There | Look::Much => {
                let resp3 = cx.reply.is_resp3();
                let reply = Reply::new(cx.reply.out, resp3);
                let mut call = Taking { db: cx.db, args: all, reply, when: When::Called };
                return wait.want.take(&mut call, at);
            }
        }
    }
    wait.want.time_out(&mut cx.reply);
    Ok(Flow::Done)
}

/// [`here`] of keys on several cores, or of very many.
pub(crate) async fn anywhere(call: Call, read: WaitFn) -> Result<Answer, Refusal> {
    let wait = Arc::new(read(call.args())?);
    let layout = Layout { first: wait.keys.start, step: 1, count: wait.keys.len() };
    let spread = KeysByCore::of(&call, layout).await;
    let _locked = spread.lock(&call, Access::Exclusive).await;
    let (db, wanted, request) = (call.db, Arc::clone(&wait), Arc::clone(&call.request));
    let find = move |home: &mut Home, keys: &Portion, first: &mut Option<(usize, Look)>| {
        let (db, args) = (home.shard.db(db), resp::Args::owned(&request));
        let looking = |(at, key)| Looking { db, key, args, at, when: When::Called };
        let all = keys.positions().zip(keys.keys(db)).map(looking);
        let mut found = all.map(|call| (call.at, wanted.want.look(&call)));
        *first = found.find(|(_, look)| *look != Look::Nothing);
        first.is_none()
    };
    let found = spread.work(&call, |_| PORTION_KEYS, find).await;
    match found.into_iter().flatten().min_by_key(|(at, _)| *at) {
        None => Ok(call.answer(|reply| wait.want.time_out(reply))),
        Some((_, Look::Refused(refusal))) => Err(refusal),
        Some((at, _)) => take(&call, wait, at).await,
    }
}

/// Counts no change for a call that has waited: as in Redis, it is a part of the change that served
/// it.
pub(crate) fn counted<R>(db: &mut Db, when: When, act: impl FnOnce(&mut Db) -> R) -> R {
    match when {
        When::Called => act(db),
        When::Waiting(_) => db.counted_as(|db| (act(db), 0)),
    }
}

async fn take(call: &Call, wait: Arc<Wait>, at: usize) -> Result<Answer, Refusal> {
    let (db, no_touch, resp3) = (call.db, call.no_touch, call.resp3);
    let request = Arc::clone(&call.request);
    let take = move |home: &mut Home| {
        let mut out = Output::default();
        let db = home.shard.db_for(db, no_touch);
        let (args, reply) = (resp::Args::owned(&request), Reply::new(&mut out, resp3));
        let mut call = Taking { db, args, reply, when: When::Called };
        let flow = wait.want.take(&mut call, at)?;
        Ok::<_, Refusal>((out, flow))
    };
    let (out, flow) = call.tx.on(call.owner(at), take).await?;
    Ok(match flow {
        Flow::Stream(rest) => Answer::Stream(out, rest),
        Flow::Done | Flow::Job(_) => Answer::Done(out),
    })
}
