//! DEBUG OBJECT, DIGEST, DIGEST-VALUE, TABLE, CHECK.

use super::super::databases::Portions;
use super::super::long_text::LongText;
use crate::engine::ServerCall;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Answer, Args, Refusal};
use darter_keyspace::{Found, Hash, Key, Object, Set, Type, value_of};
use darter_structs::blob::Blob;
use darter_structs::table::{Entry, Filling, OutOfLine, Reader, Scratch, Table};
use darter_tx::{Home, Tx};
use sha1::{Digest, Sha1};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What DUMP puts around a value: its type, the version and the checksum.
const FRAME_BYTES: u64 = 1 + 2 + 8;

/// `DEBUG OBJECT key`.
pub(super) async fn object(call: &ServerCall, mut args: Args<'_>) -> Result<Answer, Refusal> {
    let key = args.bytes()?.to_vec();
    let (core, db) = (call.core.tx.core_of(&key), call.session.db);
    let line = call.core.tx.on(core, move |home| {
        let found = home.shard.db(db).get(&Key::new(&key))?;
        let sizer = darter_persist::commands::sizer(&found, home.shard.db(db).now()).ok()?;
        let at = found.object().map_or(std::ptr::null(), Object::address);
        let refs = found.object().map_or(1, Object::count);
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

/// `DEBUG TABLE`: how full the tables of keys are.
pub(super) async fn table(call: &ServerCall) -> Result<Answer, Refusal> {
    let (mut portions, mut text) = (Portions::new(&call.core), LongText::default());
    while let Some(lines) = portions.on_each_core(fill_lines).await {
        lines.iter().for_each(|lines| text.tail.push_str(lines));
        text.settle();
    }
    Ok(text.into_answer(call))
}

/// A line for each of these databases that has keys on this core.
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

/// Runs a closure on the shard of a task's own core.
async fn here<R: Send + 'static>(tx: &Tx, run: impl FnOnce(&mut Home) -> R + Send + 'static) -> R {
    tx.on(tx.core(), run).await
}

/// `DEBUG CHECK`: asserts the invariants, in slices, while others go on.
pub(super) async fn check(call: &ServerCall) -> Result<Answer, Refusal> {
    let mut portions = Portions::new(&call.core);
    while portions.on_each_core(check_databases).await.is_some() {}
    Ok(call.answer(|reply| reply.ok()))
}

/// Asserts the invariants of some databases on this core.
async fn check_databases(tx: Tx, dbs: Vec<usize>) {
    for db in dbs {
        let mut checker = here(&tx, move |home| home.shard.db(db).checker()).await;
        while checker.next_slice() {
            tx.pause().await;
        }
        check_clocks(&tx, db).await;
    }
}

/// Asserts that the values of a database on this core stand under the moments at which the sweeper
/// has to look at them, and nothing else does.
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
        let check = move |home: &mut Home| home.shard.db(db).check_clocks_behind(last.as_ref());
        last = here(tx, check).await;
        if last.is_none() {
            break;
        }
        tx.pause().await;
    }
}

type Sum = [u8; 20];

/// Redis's digest, found by experiment: order counts in a mix, not in an xor.
fn xor(sum: &mut Sum, bytes: &[u8]) {
    xor_sum(sum, &Sha1::digest(bytes).into());
}

fn xor_sum(sum: &mut Sum, other: &Sum) {
    sum.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
}

fn mix(sum: &mut Sum, bytes: &[u8]) {
    xor(sum, bytes);
    *sum = Sha1::digest(*sum).into();
}

fn hex(sum: &Sum) -> String {
    sum.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `DEBUG DIGEST`: one sum over all data, equal to Redis's for equal data.
pub(super) async fn digest(call: &ServerCall) -> Result<Answer, Refusal> {
    let (mut portions, mut total) = (Portions::new(&call.core), Sum::default());
    while let Some(sums) = portions.on_each_core(sums_of_databases).await {
        let mut by_db: BTreeMap<usize, Sum> = BTreeMap::new();
        for (db, sum) in sums.into_iter().flatten() {
            xor_sum(by_db.entry(db).or_default(), &sum);
        }
        for (db, sum) in by_db {
            mix(&mut total, &u32::try_from(db).unwrap_or(u32::MAX).to_be_bytes());
            xor_sum(&mut total, &sum);
        }
    }
    Ok(call.answer(|reply| reply.simple(&hex(&total))))
}

/// The sums over the keys of some databases, of those that this core has keys of.
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

/// The sum over the living keys of a cut, with their values.
async fn sum_of_keys(tx: &Tx, cut: Table<Object>, now: u64) -> Sum {
    let (mut total, mut reader) = (Sum::default(), Reader::new(cut));
    let (mut more, mut held) = (true, Vec::new());
    while more {
        more = reader.next_slice(ENTRIES_HASHED_AT_ONCE, &mut |entry| {
            let Some(found) = Found::alive(entry, now) else { return };
            let mut sum = Sum::default();
            mix(&mut sum, entry.key().bytes(&mut Scratch::default()));
            held.push((sum, Value::of(&found)));
        });
        for (mut sum, value) in held.drain(..) {
            value.add_to(&mut sum, tx, now).await;
            xor(&mut total, &sum);
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
            (db.get(&Key::new(&key)).map(|found| Value::of(&found)), db.now())
        });
        let (value, now) = value.await;
        let mut sum = Sum::default();
        if let Some(value) = value {
            value.add_to(&mut sum, &call.core.tx, now).await;
        }
        sums.push(sum);
    }
    Ok(call.answer(|reply| {
        reply.array(sums.len());
        sums.iter().for_each(|sum| reply.simple(&hex(sum)));
    }))
}

/// Entries and bytes that are hashed between two looks at the clock: about 20 us.
const ENTRIES_HASHED_AT_ONCE: usize = 16;
const BYTES_HASHED_AT_ONCE: usize = 16 * 1024;

/// A value that is to be hashed: its own, or a cut.
struct Value {
    kind: &'static Type,
    content: Content,
    is_mortal: bool,
}

enum Content {
    Text(Vec<u8>),
    Object(Object),
}

impl Value {
    fn of(found: &Found<'_>) -> Self {
        let content = match found.object() {
            Some(object) => Content::Object(object.clone()),
            None => Content::Text(found.text().map_or_else(|_| Vec::new(), |text| text.to_vec())),
        };
        Self { kind: found.kind(), content, is_mortal: found.deadline().is_some() }
    }

    async fn add_to(&self, sum: &mut Sum, tx: &Tx, now: u64) {
        mix(sum, &u32::try_from(self.kind.number).unwrap_or(u32::MAX).to_be_bytes());
        match &self.content {
            Content::Text(text) => mix(sum, text),
            Content::Object(object) => {
                if let Some(blob) = object.get::<Blob>() {
                    mix_blob(sum, blob, tx).await;
                } else if let Some(hash) = object.get::<Hash>() {
                    xor_entries(sum, hash.fields(), now, tx, |entry| {
                        let mut pair = Sum::default();
                        mix(&mut pair, entry.key().bytes(&mut Scratch::default()));
                        mix(&mut pair, &value_of(entry).to_vec());
                        Sha1::digest(pair).into()
                    })
                    .await;
                } else if let Some(set) = object.get::<Set>() {
                    xor_entries(sum, set.members(), now, tx, |entry| {
                        Sha1::digest(entry.key().bytes(&mut Scratch::default())).into()
                    })
                    .await;
                }
            }
        }
        if self.is_mortal {
            xor(sum, b"!!expire!!");
        }
    }
}

/// [`mix`] of a long string.
async fn mix_blob(sum: &mut Sum, blob: &Blob, tx: &Tx) {
    let mut hasher = Sha1::new();
    for from in (0..blob.len()).step_by(BYTES_HASHED_AT_ONCE) {
        let to = blob.len().min(from + BYTES_HASHED_AT_ONCE);
        blob.slices(from..to).for_each(|piece| hasher.update(piece));
        tx.pause().await;
    }
    xor_sum(sum, &hasher.finalize().into());
    *sum = Sha1::digest(*sum).into();
}

/// The sums of all living entries of a table, in whatever order.
async fn xor_entries<X: OutOfLine>(
    sum: &mut Sum,
    table: &Table<X>,
    now: u64,
    tx: &Tx,
    sum_of: impl Fn(&Entry<'_, X>) -> Sum,
) {
    let mut reader = Reader::new(table.clone());
    while reader.next_slice(ENTRIES_HASHED_AT_ONCE, &mut |entry| {
        if entry.deadline().is_none_or(|at| at > now) {
            xor_sum(sum, &sum_of(&entry));
        }
    }) {
        tx.pause().await;
    }
}
