//! JSON.MSET: several documents, or parts of some, at one instant.
//!
//! Each document is changed aside, on its core and in slices, while all keys are locked. Only when
//! nothing was refused are they put in their places: all or none.

use super::acts::{Act, Form};
use super::found;
use super::path::Path;
use super::value::Json;
use super::write::{Change, Only, Order, Parsing, Targets};
use crate::chunks::Chunks;
use crate::keys_by_core::{KeysByCore, Layout};
use darter_command::{Answer, Call, Refusal};
use darter_keyspace::{Draft, Key};
use darter_resp::{self as resp, Request};
use darter_tx::{Access, CoreId, Tx};
use std::sync::Arc;

const ORDER: Order = Order::Assign(Only::Always);

/// Triples, or documents, of a chunk.
const CHUNK: usize = 64;

/// A document, or a part of one. Its path stays in the request: parsed, it may take a hundred times as
/// much.
struct Triple {
    /// The position of the key among the arguments.
    at: usize,
    act: Act,
}

/// A document that is changed aside, and the position of its key.
struct Changed {
    at: usize,
    draft: Draft<Json>,
    is_changed: bool,
}

/// A core, and its part.
type OfCore<T> = (CoreId, Chunks<T, CHUNK>);

/// `JSON.MSET key path value [key path value ...]`: JSON.SET of several keys, all at one instant.
///
/// Reply: `OK`. Refusals: as JSON.SET; then nothing is changed. Cost: O(values + values followed), in
/// slices. Source: <https://redis.io/commands/json.mset> (RedisJSON 2.6.0).
pub(super) async fn mset(call: Call) -> Result<Answer, Refusal> {
    if !call.args().left().is_multiple_of(3) {
        return Err(Refusal::Arity("json.mset".into()));
    }
    let triples = parsed(&call).await?;
    let layout = Layout { first: call.first, step: 3, count: call.args().left() / 3 };
    let locked = KeysByCore::of(&call, layout).await.lock(&call, Access::Exclusive).await;
    let changed = aside(&call, triples).await?;
    install(&call, changed).await;
    drop(locked);
    Ok(call.answer(|reply| reply.ok()))
}

/// Parses the values, and the paths to see whether they are some. The triples of each core.
async fn parsed(call: &Call) -> Result<Vec<OfCore<Triple>>, Refusal> {
    let mut cores: Vec<_> = (0..call.tx.cores()).map(|core| (core, Chunks::default())).collect();
    for at in (call.first..call.len()).step_by(3) {
        Path::at(call.args().all(), at + 1)?;
        let mut parsing = Parsing::new(at + 2..at + 3, ORDER);
        let act = loop {
            call.tx.pause().await;
            if let Some(act) = parsing.some(resp::Args::owned(&call.request))? {
                break act;
            }
        };
        cores[call.owner(at)].1.tail(1).push(Triple { at, act });
    }
    cores.retain(|(_, triples)| triples.end().1 > 0);
    Ok(cores)
}

/// Changes all documents aside; the refusal of the first that cannot be.
async fn aside(
    call: &Call,
    mut triples: Vec<OfCore<Triple>>,
) -> Result<Vec<OfCore<Changed>>, Refusal> {
    let cores: Vec<_> = triples.iter().map(|(core, _)| *core).collect();
    let place = (call.db, call.no_touch);
    let run = |core: CoreId| {
        let own = triples.iter_mut().find(|(of, _)| *of == core);
        let triples = own.map(|(_, triples)| std::mem::take(triples)).unwrap_or_default();
        let request = Arc::clone(&call.request);
        move |tx: Tx| change(tx, request, place, triples)
    };
    let results = call.tx.drive_each(cores.iter().copied(), run).await;
    let (mut changed, mut refused) = (Vec::with_capacity(cores.len()), None);
    for (core, result) in cores.into_iter().zip(results) {
        match result {
            Ok(some) => changed.push((core, some)),
            Err((at, refusal)) if refused.as_ref().is_none_or(|(first, _)| at < *first) => {
                refused = Some((at, refusal));
            }
            Err(_) => {}
        }
    }
    refused.map_or(Ok(changed), |(_, refusal)| Err(refusal))
}

/// Changes the documents of one core aside. The position of the key of one that cannot be, and why.
async fn change(
    tx: Tx,
    request: Arc<Request>,
    (db, no_touch): (usize, bool),
    mut triples: Chunks<Triple, CHUNK>,
) -> Result<Chunks<Changed, CHUNK>, (usize, Refusal)> {
    let mut drafts = Drafts::for_triples(&tx, triples.chunks().len() * CHUNK).await;
    while let Some(chunk) = triples.pop_front() {
        for Triple { at, act } in chunk {
            let refuse = |refusal| (at, refusal);
            let args = resp::Args::owned(&request);
            let (key, path) = (Key::new(args.get(at)), Path::at(args, at + 1).map_err(refuse)?);
            let place = match drafts.find(&key, args) {
                Some(place) => place,
                None => {
                    let draft = {
                        let mut home = tx.home();
                        let (db, ..) = home.shard.parts_for(db, no_touch);
                        db.draft(&key).map_err(|_| refuse(found::wrong_type()))?
                    };
                    drafts.add(&key, Changed { at, draft, is_changed: false })
                }
            };
            let changed = drafts.changed.at(place);
            if changed.draft.is_new() && !path.is_root() {
                let line = "ERR new objects must be created at the root";
                return Err(refuse(Refusal::line(line)));
            }
            change_one(&tx, changed, path, &act).await.map_err(refuse)?;
        }
    }
    Ok(drafts.changed)
}

/// The documents of a core, each once, however often the request names its key. A map of all would
/// move as it grows.
struct Drafts {
    changed: Chunks<Changed, CHUNK>,
    /// By the hash of the key: that, and where the document is.
    buckets: Chunks<Vec<(u64, (usize, usize))>, CHUNK>,
    buckets_len: usize,
}

impl Drafts {
    /// A table for at most this many keys.
    async fn for_triples(tx: &Tx, most: usize) -> Self {
        /// Documents of a bucket, and most buckets: those of four million are of 256.
        const BUCKET: usize = 16;
        const BUCKETS_MAX: usize = 16 * 1024;
        let buckets_len = (most / BUCKET).clamp(1, BUCKETS_MAX);
        let mut buckets = Chunks::default();
        for at in 0..buckets_len {
            buckets.tail(1).push(Vec::new());
            if at % CHUNK == CHUNK - 1 {
                tx.pause().await;
            }
        }
        Self { changed: Chunks::default(), buckets, buckets_len }
    }

    /// The place of a key's document.
    fn find(&mut self, key: &Key<'_>, args: resp::Args<'_>) -> Option<(usize, usize)> {
        let place = self.bucket_of(key);
        let Self { changed, buckets, .. } = self;
        let bucket = buckets.at(place);
        let mut same = bucket.iter().filter(|(hash, _)| *hash == key.hash);
        same.find(|(_, place)| args.get(changed.at(*place).at) == key.bytes).map(|(_, at)| *at)
    }

    /// Adds the document of a key that has none here.
    fn add(&mut self, key: &Key<'_>, document: Changed) -> (usize, usize) {
        self.changed.tail(1).push(document);
        let (chunk, len) = self.changed.end();
        let bucket = self.bucket_of(key);
        self.buckets.at(bucket).push((key.hash, (chunk, len - 1)));
        (chunk, len - 1)
    }

    fn bucket_of(&self, key: &Key<'_>) -> (usize, usize) {
        let bucket = (key.hash >> 32) as usize % self.buckets_len;
        (bucket / CHUNK, bucket % CHUNK)
    }
}

/// Sets the values that a path leads to.
async fn change_one(tx: &Tx, changed: &mut Changed, path: Path, act: &Act) -> Result<(), Refusal> {
    let (mut change, now) = (Change::new(Targets::new(ORDER, path)), tx.home().shard.now());
    while change.targets.seek(changed.draft.value().root())? {
        tx.pause().await;
    }
    let mut more = true;
    while more {
        let mut edit = changed.draft.edit(now);
        for _ in 0..change.targets.places_at_once() {
            more = change.step(act, &mut edit, Form::Resp { resp3: false });
            if !more || change.outcomes.is_amid() {
                break;
            }
        }
        tx.pause().await;
    }
    changed.is_changed |= change.outcomes.changed > 0;
    Ok(())
}

/// Puts all documents in their places.
async fn install(call: &Call, mut changed: Vec<OfCore<Changed>>) {
    let cores: Vec<_> = changed.iter().map(|(core, _)| *core).collect();
    let (db, no_touch) = (call.db, call.no_touch);
    let run = |core: CoreId| {
        let own = changed.iter_mut().find(|(of, _)| *of == core);
        let mut changed = own.map(|(_, changed)| std::mem::take(changed)).unwrap_or_default();
        let request = Arc::clone(&call.request);
        async move |tx: Tx| {
            while let Some(chunk) = changed.pop_front() {
                for Changed { at, draft, .. } in chunk.into_iter().filter(|it| it.is_changed) {
                    let key = Key::new(resp::Args::owned(&request).get(at));
                    tx.home().shard.parts_for(db, no_touch).0.install_draft(&key, draft);
                    tx.pause().await;
                }
            }
        }
    };
    call.tx.drive_each(cores, run).await;
}
