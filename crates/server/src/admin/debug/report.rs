//! DEBUG OBJECT, DIGEST, DIGEST-VALUE, TABLE and CHECK.

use super::super::databases::Portions;
use super::super::long_text::LongText;
use crate::engine::ServerCall;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Answer, Args, Refusal};
use darter_keyspace::{Found, Key, Object, Type};
use darter_persist::digest::{self, Digester, Sum};
use darter_rdb::Items;
use darter_structs::table::{Filling, Reader, Scratch, Table};
use darter_tx::{Home, Tx};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Bytes that DUMP adds to a serialized value: the type, the version and the checksum.
const FRAME_BYTES: u64 = 1 + 2 + 8;

/// `DEBUG OBJECT key`.
pub(super) async fn object(call: &ServerCall, mut args: Args<'_>) -> Result<Answer, Refusal> {
    let key = args.bytes()?.to_vec();
    let (core, db) = (call.core.tx.core_of(&key), call.session.db);
    let line = call.core.tx.on(core, move |home| {
        let found = home.shard.db(db).get(&Key::new(&key))?;
        let sizer = darter_persist::commands::sizer(&found, home.shard.db(db).now());
        let at = found.object().map_or(std::ptr::null(), Object::address);
        let refs = darter_families::keys::shown_count(&found);
        let (encoding, idle) = (found.encoding(), found.idle_seconds(home.shard.now()));
        let access = format!("lru:{} lru_seconds_idle:{idle}", found.entry().stamp());
        Some((format!("Value at:{at:p} refcount:{refs} encoding:{encoding}"), access, sizer))
    });
    let (line, access, mut sizer) = line.await.ok_or(Refusal::NoSuchKey)?;
    let payload = loop {
        match sizer(ENTRIES_AT_ONCE) {
            Some(bytes) => break bytes,
            None => call.core.tx.pause().await,
        }
    };
    let bytes = payload.saturating_sub(FRAME_BYTES);
    let line = format!("{line} serializedlength:{bytes} {access}");
    Ok(call.answer(|reply| reply.simple(&line)))
}

/// `DEBUG TABLE`: reports how full the key tables are.
pub(super) async fn table(call: &ServerCall) -> Result<Answer, Refusal> {
    let (mut portions, mut text) = (Portions::new(&call.core), LongText::default());
    while let Some(lines) = portions.on_each_core(fill_lines).await {
        lines.iter().for_each(|lines| text.tail.push_str(lines));
        text.settle();
    }
    Ok(text.into_answer(call))
}

/// Describes the key tables of the databases `dbs` on this core: a line for each that has keys.
async fn fill_lines(tx: Tx, dbs: Vec<usize>) -> String {
    let mut text = String::new();
    for db in dbs {
        let cut = here(&tx, move |home| home.shard.db(db).keys().clone()).await;
        if cut.is_empty() {
            continue;
        }
        let mut filling = Filling::new(cut);
        while filling.next_slice() {
            tx.pause().await;
        }
        let _ = writeln!(text, "core {} db {db}: {:?}", tx.core(), filling.fill());
        tx.pause().await;
    }
    text
}

/// Runs a closure on the shard of the core on which the task runs.
async fn here<R: Send + 'static>(tx: &Tx, run: impl FnOnce(&mut Home) -> R + Send + 'static) -> R {
    tx.on(tx.core(), run).await
}

/// `DEBUG CHECK`: asserts the invariants of all data, in slices, while other clients are served.
pub(super) async fn check(call: &ServerCall) -> Result<Answer, Refusal> {
    let mut portions = Portions::new(&call.core);
    while portions.on_each_core(check_databases).await.is_some() {}
    Ok(call.answer(|reply| reply.ok()))
}

/// Asserts the invariants of the databases `dbs` on this core.
async fn check_databases(tx: Tx, dbs: Vec<usize>) {
    for db in dbs {
        let mut checker = here(&tx, move |home| home.shard.db(db).checker()).await;
        while checker.next_slice() {
            tx.pause().await;
        }
        check_clocks(&tx, db).await;
    }
}

/// Asserts, for one database on this core, that the index of due times lists exactly the values
/// that have one, under the right time.
async fn check_clocks(tx: &Tx, db: usize) {
    let mut cursor = 0;
    loop {
        let check = move |home: &mut Home| home.shard.db(db).check_clocks_of_values(cursor);
        cursor = here(tx, check).await;
        if cursor == 0 {
            break;
        }
        tx.pause().await;
    }
    let mut last = None;
    loop {
        let check = move |home: &mut Home| home.shard.db(db).check_clocks_after(last.as_ref());
        last = here(tx, check).await;
        if last.is_none() {
            break;
        }
        tx.pause().await;
    }
}

fn hex(sum: &Sum) -> String {
    sum.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `DEBUG DIGEST`: replies with a digest of all data, the same as redis-server's for the same data.
pub(super) async fn digest(call: &ServerCall) -> Result<Answer, Refusal> {
    let (mut portions, mut total) = (Portions::new(&call.core), Sum::default());
    while let Some(sums) = portions.on_each_core(sums_of_databases).await {
        let mut by_db: BTreeMap<usize, Sum> = BTreeMap::new();
        for (db, sum) in sums.into_iter().flatten() {
            digest::xor_sum(by_db.entry(db).or_default(), &sum);
        }
        for (db, sum) in by_db {
            digest::mix(&mut total, &u32::try_from(db).unwrap_or(u32::MAX).to_be_bytes());
            digest::xor_sum(&mut total, &sum);
        }
    }
    Ok(call.answer(|reply| reply.simple(&hex(&total))))
}

/// The digests of the databases `dbs`, for those that have keys on this core.
async fn sums_of_databases(tx: Tx, dbs: Vec<usize>) -> Vec<(usize, Sum)> {
    let mut sums = Vec::new();
    for db in dbs {
        let cut = move |home: &mut Home| (home.shard.db(db).keys().clone(), home.shard.now());
        let (cut, now) = here(&tx, cut).await;
        if !cut.is_empty() {
            sums.push((db, sum_of_keys(&tx, cut, now).await));
        }
    }
    sums
}

/// The digest of all keys of a cut that have not expired, with their values.
async fn sum_of_keys(tx: &Tx, cut: Table<Object>, now: u64) -> Sum {
    let (mut total, mut reader) = (Sum::default(), Reader::new(cut));
    let (mut more, mut held) = (true, Vec::new());
    while more {
        more = reader.next_slice(KEYS_HASHED_AT_ONCE, &mut |entry| {
            let Some(found) = Found::alive(entry, now) else { return };
            let mut sum = Sum::default();
            digest::mix(&mut sum, entry.key().bytes(&mut Scratch::default()));
            held.push((sum, Value::of(&found, now)));
        });
        for (sum, value) in held.drain(..) {
            digest::xor(&mut total, &value.add_to(sum, tx).await);
        }
        tx.pause().await;
    }
    total
}

/// `DEBUG DIGEST-VALUE key [key ...]`.
pub(super) async fn digest_value(call: &ServerCall, mut args: Args<'_>) -> Result<Answer, Refusal> {
    let mut sums = Vec::new();
    while let Some(key) = args.next() {
        let (owner, db, key) = (call.core.tx.core_of(key), call.session.db, key.to_vec());
        let value = call.core.tx.on(owner, move |home| {
            let db = home.shard.db(db);
            db.get(&Key::new(&key)).map(|found| Value::of(&found, db.now()))
        });
        sums.push(match value.await {
            Some(value) => value.add_to(Sum::default(), &call.core.tx).await,
            None => Sum::default(),
        });
    }
    Ok(call.answer(|reply| {
        reply.array(sums.len());
        sums.iter().for_each(|sum| reply.simple(&hex(sum)));
    }))
}

/// Keys hashed between two reads of the clock: about 20 us.
const KEYS_HASHED_AT_ONCE: usize = 16;

/// The value to hash: a key's current value, or one from a cut.
struct Value {
    kind: &'static Type,
    items: Items,
    has_deadline: bool,
}

impl Value {
    fn of(found: &Found<'_>, now: u64) -> Self {
        let has_deadline = found.deadline().is_some();
        Self { kind: found.kind(), items: found.items(now), has_deadline }
    }

    async fn add_to(self, sum: Sum, tx: &Tx) -> Sum {
        let mut digester = Digester::new(sum, self.kind, self.items);
        let mut sum = loop {
            match digester.step() {
                Some(sum) => break sum,
                None => tx.pause().await,
            }
        };
        if self.has_deadline {
            digest::xor(&mut sum, b"!!expire!!");
        }
        sum
    }
}
