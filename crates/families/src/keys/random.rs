//! RANDOMKEY.

use crate::cut::Cuts;
use crate::keys_by_core::PORTION_KEYS;
use darter_base::Prng;
use darter_command::{Answer, Call, Refusal};
use darter_keyspace::{Db, Found};
use darter_structs::table::Reader;
use darter_tx::{CoreId, Home};

/// Draws on one core before its number of keys is read again.
const DRAWS_AT_ONCE: usize = 16;
/// Rounds of draws before all keys are searched. Reached only if nearly all keys have expired.
const ROUNDS_MAX: usize = 8;

/// `RANDOMKEY`: a random key of the database; all are equally likely.
///
/// Reply: bulk, null when there are no keys. Refusals: none. Cost: O(1), expected.
/// Source: <https://redis.io/commands/randomkey> (1.0.0).
pub(super) async fn randomkey(call: Call) -> Result<Answer, Refusal> {
    let mut key = None;
    for _ in 0..ROUNDS_MAX {
        let Some(core) = draw_core(&call).await else {
            return Ok(call.answer(|reply| reply.null()));
        };
        let db = call.db;
        let draw = move |home: &mut Home| {
            let (db, prng, _) = home.shard.parts(db);
            draw_key(db, prng)
        };
        key = call.tx.on(core, draw).await;
        if key.is_some() {
            break;
        }
        call.tx.pause().await;
    }
    if key.is_none() {
        key = find_any(&call).await;
    }
    Ok(call.answer(|reply| match key {
        Some(key) => reply.bulk(&key),
        None => reply.null(),
    }))
}

/// A random core, weighted by its keys; `None` if there are no keys.
async fn draw_core(call: &Call) -> Option<CoreId> {
    let db = call.db;
    let count = |_| move |home: &mut Home| home.shard.db(db).len() as u64;
    let counts = call.tx.on_each(0..call.tx.cores(), count).await;
    let mut draw = call.tx.home().shard.prng.below(counts.iter().sum());
    counts.iter().position(|count| match draw.checked_sub(*count) {
        Some(rest) => {
            draw = rest;
            false
        }
        None => true,
    })
}

/// A random live key, if a few draws find one.
fn draw_key(db: &Db, prng: &mut Prng) -> Option<Vec<u8>> {
    for _ in 0..DRAWS_AT_ONCE {
        let entry = db.keys().random(&mut || prng.next_u64())?;
        if Found::alive(entry, db.now()).is_some() {
            return Some(entry.key().to_vec());
        }
    }
    None
}

/// Any live key.
async fn find_any(call: &Call) -> Option<Vec<u8>> {
    for cut in Cuts::take(call).await.0 {
        let mut reader = Reader::new(cut.keys);
        let mut key = None;
        loop {
            let more = reader.next_slice(PORTION_KEYS, &mut |entry| {
                if key.is_none() && Found::alive(entry, cut.now).is_some() {
                    key = Some(entry.key().to_vec());
                }
            });
            if key.is_some() {
                return key;
            }
            call.tx.pause().await;
            if !more {
                break;
            }
        }
    }
    None
}
