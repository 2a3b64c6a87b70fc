//! MGET: several strings as of one instant.

use super::value::{BYTES_AT_ONCE, Values};
use crate::lookup::find;
use crate::spread::{Layout, Portion, Spread};
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal, Stream, reply_str};
use darter_keyspace::{Db, Found, Key, Object, ShardStats, Str, StrPieces};
use darter_resp::{self as resp, Output, Reply, Request};
use darter_structs::table::Table;
use darter_tx::{Access, Home};
use std::sync::Arc;

/// Up to so many keys the values are gathered while the keys are locked; beyond, they are read
/// from cuts of the keyspace, so that the locks are held for a moment only.
const GATHERED_MAX: usize = 16 * 1024;

/// `MGET key [key ...]`: replies with the strings at the keys, null for what is absent or no string.
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
            // Below the bound of a stream, so this encodes it whole.
            Some(text) => drop(reply_str(&mut cx.reply, &text)),
            None => cx.reply.null(),
        }
    }
    Ok(Flow::Done)
}

/// The strings at all keys that are left in `args`.
fn hold(db: &mut Db, stats: &mut ShardStats, mut args: Args<'_>) -> Vec<Option<StrPieces>> {
    let mut values = Vec::with_capacity(args.left());
    while let Ok(key) = args.key() {
        let text = find(db, stats, &key).and_then(|found| found.text().ok());
        values.push(text.map(|text| text.to_pieces()));
    }
    values
}

/// MGET of keys that live on several cores, or of very many.
pub(super) async fn anywhere(call: Call) -> Result<Answer, Refusal> {
    let keys = call.len() - call.first;
    if keys > GATHERED_MAX {
        return from_cuts(call).await;
    }
    let spread = Spread::of(&call, Layout::all(&call)).await;
    let locked = spread.lock(&call, Access::Shared).await;
    let mut values: Vec<Option<StrPieces>> = vec![None; keys];
    for round in 0..spread.rounds() {
        let read = |core| {
            let portion = spread.portion(&call, core, round);
            let db = (call.db, call.no_touch);
            move |home: &mut Home| read_portion(home, db, &portion)
        };
        for portion in call.tx.on_each(spread.busy(round), read).await {
            for (position, value) in portion {
                values[position - call.first] = value;
            }
        }
        call.tx.pause().await;
    }
    drop(locked);
    Ok(answer(&call, values))
}

/// Reads some keys; gives each string with its position in the request.
fn read_portion(
    home: &mut Home,
    (db, no_touch): (usize, bool),
    portion: &Portion,
) -> Vec<(usize, Option<StrPieces>)> {
    let (db, _, stats) = home.shard.parts_for(db, no_touch);
    let keys = portion.keys(db);
    let read = |(position, key): (usize, Key<'_>)| {
        let text = find(db, stats, &key).and_then(|found| found.text().ok());
        (position, text.map(|text| text.to_pieces()))
    };
    keys.into_iter().map(read).collect()
}

/// The reply: a stream, whose first portion is encoded already.
fn answer(call: &Call, values: Vec<Option<StrPieces>>) -> Answer {
    let mut out = Output::default();
    let mut reply = Reply::new(&mut out, call.resp3);
    reply.array(values.len());
    let mut values = Values::new(values);
    if values.pump(&mut reply) { Answer::Stream(out, Box::new(values)) } else { Answer::Done(out) }
}

/// MGET of very many keys: takes cuts of the keyspace of all cores that own one of them, as of one
/// instant, and streams from these.
async fn from_cuts(call: Call) -> Result<Answer, Refusal> {
    let keys = call.len() - call.first;
    let spread = Spread::of(&call, Layout::all(&call)).await;
    let locked = spread.lock(&call, Access::Shared).await;
    let db = call.db;
    let cores: Vec<usize> = spread.owners().collect();
    let cut = |_| move |home: &mut Home| (home.shard.db(db).keys().clone(), home.shard.now());
    let taken = call.tx.on_each(cores.iter().copied(), cut).await;
    drop(locked);
    let mut cuts: Vec<Option<Cut>> = (0..call.tx.cores()).map(|_| None).collect();
    for (core, (keys, now)) in cores.into_iter().zip(taken) {
        cuts[core] = Some(Cut { keys, now });
    }
    let mut out = Output::default();
    Reply::new(&mut out, call.resp3).array(keys);
    let request = Arc::clone(&call.request);
    let first = call.first;
    let stream = FromCuts { request, next: first, cuts, long: None };
    Ok(Answer::Stream(out, Box::new(stream)))
}

/// The keyspace of one core at one instant.
struct Cut {
    keys: Table<Arc<Object>>,
    now: u64,
}

/// Sends the strings at the keys of a request from cuts.
struct FromCuts {
    request: Arc<Request>,
    next: usize,
    /// One for each core that owns a key of the request.
    cuts: Vec<Option<Cut>>,
    /// A long value that is under way.
    long: Option<Values>,
}

impl FromCuts {
    /// Encodes the value of the next key. Returns its length; a long one is put aside instead.
    fn step(&mut self, reply: &mut Reply<'_>) -> usize {
        let name = resp::Args::owned(&self.request).get(self.next);
        self.next += 1;
        let core = match self.cuts.len() {
            1 => 0,
            cores => darter_base::slot::core_of(darter_base::slot::of(name), cores),
        };
        let key = Key::new(name);
        let text = self.cuts[core].as_ref().and_then(|cut| {
            let entry = cut.keys.get(key.hash, key.bytes)?;
            Found::alive(entry, cut.now)?.text().ok()
        });
        match text {
            None => reply.null(),
            Some(Str::Blob(blob)) if blob.len() > BYTES_AT_ONCE => {
                self.long = Some(Values::new(vec![Some(StrPieces::Blob(blob.clone()))]));
                return BYTES_AT_ONCE;
            }
            Some(text) => {
                drop(reply_str(reply, &text));
                return text.len();
            }
        }
        0
    }
}

impl Stream for FromCuts {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        const KEYS_AT_ONCE: usize = 64;
        if let Some(long) = &mut self.long {
            if !long.pump(reply) {
                self.long = None;
            }
            return self.long.is_some() || self.next < self.request.len();
        }
        let mut bytes = 0;
        for _ in 0..KEYS_AT_ONCE {
            if self.next == self.request.len() || bytes >= BYTES_AT_ONCE / 2 {
                break;
            }
            bytes += self.step(reply);
        }
        self.long.is_some() || self.next < self.request.len()
    }
}
