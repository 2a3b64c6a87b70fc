//! JSON.MSET: sets several documents, or parts of them, atomically.
//!
//! Each core changes copies of its documents in slices, while all keys are locked. The copies are
//! installed only if none was refused: all or nothing.

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

/// Triples, or documents, in one chunk.
const CHUNK: usize = 64;

/// One key, path and value of the request. The path stays in the request, because a parsed path may
/// take a hundred times the memory.
struct Triple {
    /// The index of the key among the arguments.
    at: usize,
    act: Act,
}

/// The changed copy of a document, and the index of its key.
struct Changed {
    at: usize,
    draft: Draft<Json>,
    is_changed: bool,
}

/// A core, and its items.
type OfCore<T> = (CoreId, Chunks<T, CHUNK>);

/// `JSON.MSET key path value [key path value ...]`: JSON.SET for several keys, atomically.
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

/// Parses the values, and validates the paths. Returns the triples of each core.
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

/// Changes copies of all documents. Returns the first refusal, if any.
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

/// Changes copies of one core's documents. On a refusal, returns the index of its key, and the
/// error.
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

/// The documents of a core, each once, however often the request names its key. In chunks, because
/// one map would move as a whole when it grows.
struct Drafts {
    changed: Chunks<Changed, CHUNK>,
    /// Buckets by the key's hash: the hash, and the document's place.
    buckets: Chunks<Vec<(u64, (usize, usize))>, CHUNK>,
    buckets_len: usize,
}

impl Drafts {
    /// A table for at most this many keys.
    async fn for_triples(tx: &Tx, most: usize) -> Self {
        /// Keys per bucket, and the most buckets: with four million keys, each has 256.
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

    /// Adds a document. Its key must not have one here.
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

/// Sets the values that a path finds.
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

/// Installs all documents.
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
