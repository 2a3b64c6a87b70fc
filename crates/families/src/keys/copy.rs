//! COPY and MOVE: a value is copied or moved to another key or database, by pointer. A copy shares
//! its source's memory until either is written.

use crate::lookup::find;
use darter_base::number;
use darter_command::{Answer, Args, Call, Refusal};
use darter_keyspace::event::NEW;
use darter_keyspace::{Event, Key, Tells};
use darter_resp as resp;
use darter_tx::{Access, Home};
use std::sync::Arc;

/// The destination counts as new even if it existed, because its old value is deleted first.
const COPIED: Tells<'_> = &[NEW, &Event::new("copy_to", b'g')];
const MOVE_FROM: &Event = &Event::new("move_from", b'g');
const MOVE_TO: &Event = &Event::new("move_to", b'g');

fn same_object() -> Refusal {
    Refusal::line("ERR source and destination objects are the same")
}

/// Takes the next argument as the index of one of `databases`.
fn database(args: &mut Args<'_>, databases: usize) -> Result<usize, Refusal> {
    let index = number::parse_i64(args.bytes()?).ok_or(Refusal::NotAnInteger)?;
    if i32::try_from(index).is_err() {
        return Err(Refusal::line(format!(
            "ERR value is out of range, value must between {} and {}",
            i32::MIN,
            i32::MAX
        )));
    }
    let index = usize::try_from(index).ok().filter(|index| *index < databases);
    index.ok_or(Refusal::line("ERR DB index is out of range"))
}

/// `COPY source destination [DB index] [REPLACE]`: copies the value and the deadline of `source` to
/// `destination`.
///
/// Reply: 1, or 0 when `source` is absent, or `destination` exists and REPLACE is not given.
/// Refusals: `Syntax`, `NotAnInteger`, an index out of range, a key copied onto itself. Cost: O(1).
/// Source: <https://redis.io/commands/copy> (6.2.0).
pub(super) async fn copy(call: Call) -> Result<Answer, Refusal> {
    let databases = call.tx.home().shard.databases();
    let (from, to) = (call.first, call.first + 1);
    let (mut to_db, mut replace) = (call.db, false);
    let mut args = call.args();
    args.seek(to + 1);
    while args.left() > 0 {
        if args.option("REPLACE") {
            replace = true;
        } else if args.left() > 1 && args.option("DB") {
            to_db = database(&mut args, databases)?;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    if to_db == call.db && call.arg(from) == call.arg(to) {
        return Err(same_object());
    }

    let claims = [(call.db, from, Access::Shared), (to_db, to, Access::Exclusive)];
    let locked = call.lock_keys_in(claims).await;
    let (db, no_touch, request) = (call.db, call.no_touch, Arc::clone(&call.request));
    // If the keys were on two cores, their order in a transaction would be lost.
    let is_near = call.owner(from) == call.owner(to);
    let hold = move |home: &mut Home| {
        let key = Key::new(resp::Args::owned(&request).get(from));
        let (db, _, stats) = home.shard.parts_for(db, no_touch);
        let held = find(db, stats, &key).map(|found| found.hold_copy())?;
        Some(if is_near { db.with_source(&key, held) } else { held })
    };
    let held = call.tx.on(call.owner(from), hold).await;
    let mut done = false;
    if let Some(held) = held {
        let request = Arc::clone(&call.request);
        let put = move |home: &mut Home| {
            let db = home.shard.db_for(to_db, no_touch);
            let key = Key::new(resp::Args::owned(&request).get(to));
            let free = db.read(&key).is_none() || replace;
            if free {
                db.put(&key, held, COPIED);
            }
            free
        };
        done = call.tx.on(call.owner(to), put).await;
    }
    drop(locked);
    Ok(call.answer(|reply| reply.int(i64::from(done))))
}

/// `MOVE key index`: moves the value at `key`, with its deadline, to another database.
///
/// Reply: 1, or 0 when the key is absent here or exists there. Refusals: `NotAnInteger`, an index
/// out of range, the selected database. Cost: O(1).
/// Source: <https://redis.io/commands/move> (1.0.0).
pub(super) async fn relocate(call: Call) -> Result<Answer, Refusal> {
    let databases = call.tx.home().shard.databases();
    let mut args = call.args();
    args.bytes()?;
    let (from_db, to_db) = (call.db, database(&mut args, databases)?);
    args.end()?;
    if from_db == to_db {
        return Err(same_object());
    }

    let claims = [from_db, to_db].map(|db| (db, call.first, Access::Exclusive));
    let locked = call.lock_keys_in(claims).await;
    let (at, no_touch, request) = (call.first, call.no_touch, Arc::clone(&call.request));
    let relocate = move |home: &mut Home| {
        let key = Key::new(resp::Args::owned(&request).get(at));
        if home.shard.db_for(to_db, no_touch).read(&key).is_some() {
            return false;
        }
        let held = home.shard.db_for(from_db, no_touch).take_to(
            &key,
            (Some(to_db), key.bytes),
            &[MOVE_FROM],
        );
        held.map(|held| home.shard.db_mut(to_db).put_taken(&key, held, &[MOVE_TO])).is_some()
    };
    let done = call.tx.on(call.owner(at), relocate).await;
    drop(locked);
    Ok(call.answer(|reply| reply.int(i64::from(done))))
}
