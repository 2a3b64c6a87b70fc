//! MGET: several strings as of one instant.

use super::value::Values;
use crate::cut::{Cuts, KEYS_AT_ONCE};
use crate::keys_by_core::{KeysByCore, Layout, Portion};
use crate::lookup::find;
use crate::text::BYTES_AT_ONCE;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal, Stream, reply_str};
use darter_keyspace::{Db, Found, Key, ShardStats, Str, StrPieces};
use darter_resp::{self as resp, Output, Reply, Request};
use darter_tx::{Access, Home};
use std::sync::Arc;

/// Up to this many keys, the values are collected while the keys are locked. With more, they are
/// read from cuts of the keyspace, so that locks are held only for a moment.
const GATHERED_MAX: usize = 16 * 1024;

/// `MGET key [key ...]`: replies with the strings at the keys, null for absent keys and other
/// types.
///
/// Reply: array; streamed when long. Refusals: none. Cost: O(keys) + bytes of the values.
/// Source: <https://redis.io/commands/mget> (1.0.0).
pub(super) fn here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    cx.reply.array(args.left());
    let mut rest = args;
    let mut bytes = 0;
    while rest.left() > 0 {
        let before = rest;
        let key = rest.key()?;
        let text = find(cx.db, cx.stats, &key).and_then(|found| found.text().ok());
        bytes += text.map_or(0, |text| text.len());
        if bytes > BYTES_AT_ONCE {
            let values = hold(cx.db, cx.stats, before);
            return Ok(Flow::Stream(Box::new(Values::new(values))));
        }
        match text {
            // Too short to be streamed, so this encodes it completely.
            Some(text) => drop(reply_str(&mut cx.reply, &text)),
            None => cx.reply.null(),
        }
    }
    Ok(Flow::Done)
}

/// References to the strings at all remaining keys of `args`.
fn hold(db: &mut Db, stats: &mut ShardStats, mut args: Args<'_>) -> Vec<Option<StrPieces>> {
    let mut values = Vec::with_capacity(args.left());
    while let Ok(key) = args.key() {
        let text = find(db, stats, &key).and_then(|found| found.text().ok());
        values.push(text.map(|text| text.reader()));
    }
    values
}

/// MGET for keys on several cores, or for very many.
pub(super) async fn anywhere(call: Call) -> Result<Answer, Refusal> {
    let keys = call.len() - call.first;
    if keys > GATHERED_MAX {
        return from_cuts(call).await;
    }
    let spread = KeysByCore::of(&call, Layout::all(&call)).await;
    let mut values: Vec<Option<StrPieces>> = vec![None; keys];
    let db = (call.db, call.no_touch);
    let read = move |home: &mut Home, keys: &Portion| {
        let values = read_portion(home, db, keys);
        let dies = values.iter().filter_map(|one| one.dies).min();
        (values, dies)
    };
    if let Some(portions) = spread.read(&call, read).await {
        for read in portions.into_iter().flatten() {
            values[read.position - call.first] = read.value;
        }
        return Ok(answer(&call, values));
    }
    let locked = spread.lock(&call, Access::Shared).await;
    for round in 0..spread.rounds() {
        let read = |core| {
            let portion = spread.portion(&call, core, round);
            move |home: &mut Home| read_portion(home, db, &portion)
        };
        for portion in call.tx.on_each(spread.busy(round), read).await {
            for read in portion {
                values[read.position - call.first] = read.value;
            }
        }
        call.tx.pause().await;
    }
    drop(locked);
    Ok(answer(&call, values))
}

/// The value read at a key.
struct Read {
    /// The key's position in the request.
    position: usize,
    value: Option<StrPieces>,
    /// The deadline.
    dies: Option<u64>,
}

/// Reads some keys.
fn read_portion(home: &mut Home, (db, no_touch): (usize, bool), portion: &Portion) -> Vec<Read> {
    let (db, _, stats) = home.shard.parts_for(db, no_touch);
    let keys = portion.keys(db);
    let read = |(position, key): (usize, &Key<'_>)| {
        let found = find(db, stats, key);
        let dies = found.as_ref().and_then(Found::deadline);
        let text = found.and_then(|found| found.text().ok());
        Read { position, value: text.map(|text| text.reader()), dies }
    };
    portion.positions().zip(&keys).map(read).collect()
}

/// The reply as a stream, whose first portion is already encoded.
fn answer(call: &Call, values: Vec<Option<StrPieces>>) -> Answer {
    let mut out = Output::default();
    let mut reply = Reply::new(&mut out, call.resp3);
    reply.array(values.len());
    let mut values = Values::new(values);
    if values.pump(&mut reply) { Answer::Stream(out, Box::new(values)) } else { Answer::Done(out) }
}

/// MGET for very many keys: takes cuts of the keyspace of all cores at one instant, and streams
/// from them.
async fn from_cuts(call: Call) -> Result<Answer, Refusal> {
    let cuts = cuts(&call).await;
    let mut out = Output::default();
    Reply::new(&mut out, call.resp3).array(call.len() - call.first);
    let (request, next) = (Arc::clone(&call.request), call.first);
    let stream = FromCuts { request, next, cuts, long: None };
    Ok(Answer::Stream(out, Box::new(stream)))
}

/// Cuts that show the keys of the call at one instant. If it causes no conflict, all keys of all
/// shards are locked for that moment, which is cheapest. Otherwise only the call's keys are locked;
/// then it waits only for their writers, and only they wait for it.
async fn cuts(call: &Call) -> Cuts {
    let locked = match call.try_lock_all(Access::Shared).await {
        Some(locked) => locked,
        None => KeysByCore::of(call, Layout::all(call)).await.lock(call, Access::Shared).await,
    };
    let cuts = Cuts::take_locked(call).await;
    drop(locked);
    cuts
}

/// Sends the strings at the keys of a request from cuts.
struct FromCuts {
    request: Arc<Request>,
    next: usize,
    cuts: Cuts,
    /// A long value being sent.
    long: Option<Values>,
}

impl FromCuts {
    /// Encodes the values of some keys. A long value ends the portion, and is sent separately.
    fn step(&mut self, reply: &mut Reply<'_>) {
        let mut bytes = 0;
        let positions = self.next..self.request.len().min(self.next + KEYS_AT_ONCE);
        for (cut, key) in self.cuts.keys(resp::Args::owned(&self.request), positions) {
            if bytes >= BYTES_AT_ONCE / 2 {
                break;
            }
            self.next += 1;
            match cut.get(&key).and_then(|found| found.text().ok()) {
                None => reply.null(),
                Some(Str::Blob(blob)) if blob.len() > BYTES_AT_ONCE => {
                    self.long = Some(Values::new(vec![Some(StrPieces::Blob(blob.reader()))]));
                    break;
                }
                Some(text) => {
                    drop(reply_str(reply, &text));
                    bytes += text.len();
                }
            }
        }
    }
}

impl Stream for FromCuts {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        match self.long.take() {
            Some(mut long) => self.long = long.pump(reply).then_some(long),
            None => self.step(reply),
        }
        self.long.is_some() || self.next < self.request.len()
    }

    fn pinned_bytes(&self) -> usize {
        self.long.as_ref().map_or(0, Stream::pinned_bytes) + self.cuts.pinned_bytes()
    }
}
