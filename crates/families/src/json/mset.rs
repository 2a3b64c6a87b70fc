//! JSON.MSET: several documents, or parts of some, at one instant.
//!
//! Each document is changed aside, on its core and in slices, while all keys are locked. Only when
//! nothing was refused are they put in their places: all or none.

use super::acts::{Act, Form};
use super::found;
use super::path::Path;
use super::value::Json;
use super::write::{Change, Only, Order, PLACES, Parsing, Targets};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Answer, Call, Refusal};
use darter_keyspace::{Db, Draft, Key};
use darter_resp::{self as resp, Request};
use darter_tx::{Access, CoreId, Tx};
use std::collections::HashMap;
use std::sync::Arc;

const ORDER: Order = Order::Assign(Only::Always);

/// A document, or a part of one.
struct Triple {
    /// The position of the key among the arguments.
    at: usize,
    path: Path,
    act: Act,
}

/// A document that is changed aside, and the position of its key.
struct Changed {
    at: usize,
    draft: Draft<Json>,
    is_changed: bool,
}

/// Which core, and what belongs to it.
type OfCore<T> = (CoreId, Vec<T>);

/// `JSON.MSET key path value [key path value ...]`: JSON.SET of several keys, all at one instant.
///
/// Reply: `OK`. Refusals: as JSON.SET; then nothing is changed. Cost: O(values + values followed), in
/// slices. Source: <https://redis.io/commands/json.mset> (RedisJSON 2.6.0).
pub(super) async fn mset(call: Call) -> Result<Answer, Refusal> {
    if !call.args().left().is_multiple_of(3) {
        return Err(Refusal::Arity("json.mset".into()));
    }
    let triples = parsed(&call).await?;
    let locked = if triples.len() > ENTRIES_AT_ONCE {
        call.lock_all(Access::Exclusive).await
    } else {
        let keys = triples.iter().map(|triple| (call.arg(triple.at), Access::Exclusive));
        call.lock_keys(keys).await
    };
    let changed = aside(&call, triples).await?;
    install(&call, changed).await;
    drop(locked);
    Ok(call.answer(|reply| reply.ok()))
}

/// Parses the paths and the values.
async fn parsed(call: &Call) -> Result<Vec<Triple>, Refusal> {
    let mut triples = Vec::with_capacity(call.args().left() / 3);
    for at in (call.first..call.len()).step_by(3) {
        let path = Path::at(call.args().all(), at + 1)?;
        let mut parsing = Parsing::new(at + 2..at + 3, ORDER);
        let act = loop {
            call.tx.pause().await;
            if let Some(act) = parsing.some(resp::Args::owned(&call.request))? {
                break act;
            }
        };
        triples.push(Triple { at, path, act });
    }
    Ok(triples)
}

/// Items by the core that owns their key.
fn by_core<T>(call: &Call, items: Vec<T>, at: fn(&T) -> usize) -> Vec<OfCore<T>> {
    let mut cores: Vec<_> = (0..call.tx.cores()).map(|core| (core, Vec::new())).collect();
    for item in items {
        cores[call.tx.core_of(call.arg(at(&item)))].1.push(item);
    }
    cores.retain(|(_, items)| !items.is_empty());
    cores
}

/// Changes all documents aside; the refusal of the first that cannot be.
async fn aside(call: &Call, triples: Vec<Triple>) -> Result<Vec<Changed>, Refusal> {
    let mut parts = by_core(call, triples, |triple| triple.at);
    let cores: Vec<_> = parts.iter().map(|(core, _)| *core).collect();
    let place = (call.db, call.no_touch);
    let run = |core: CoreId| {
        let part = parts.iter_mut().find(|(of, _)| *of == core);
        let triples = part.map(|(_, triples)| std::mem::take(triples)).unwrap_or_default();
        let request = Arc::clone(&call.request);
        move |tx: Tx| change(tx, request, place, triples)
    };
    let mut changed = Vec::new();
    let mut refused: Option<(usize, Refusal)> = None;
    for part in call.tx.drive_each(cores, run).await {
        match part {
            Ok(some) => changed.extend(some),
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
    triples: Vec<Triple>,
) -> Result<Vec<Changed>, (usize, Refusal)> {
    let (mut changed, mut places) = (Vec::new(), HashMap::new());
    for Triple { at, path, act } in triples {
        let refuse = |refusal| (at, refusal);
        let name = resp::Args::owned(&request).get(at);
        let place = *places.entry(name.to_vec()).or_insert(changed.len());
        {
            let mut home = tx.home();
            let (db, ..) = home.shard.parts_for(db, no_touch);
            let draft = begin(db, &Key::new(name), &path).map_err(refuse)?;
            if place == changed.len() {
                changed.push(Changed { at, draft, is_changed: false });
            }
        }
        change_one(&tx, &mut changed[place], path, &act).await.map_err(refuse)?;
    }
    Ok(changed)
}

/// The document at a key; refuses what cannot be set there.
fn begin(db: &mut Db, key: &Key<'_>, path: &Path) -> Result<Draft<Json>, Refusal> {
    let draft = db.draft::<Json>(key).map_err(|_| found::wrong_type())?;
    if draft.is_new() && !path.is_root() {
        return Err(Refusal::line("ERR new objects must be created at the root"));
    }
    Ok(draft)
}

/// Sets what a path leads to.
async fn change_one(tx: &Tx, changed: &mut Changed, path: Path, act: &Act) -> Result<(), Refusal> {
    let (mut change, now) = (Change::new(Targets::new(ORDER, path)), tx.home().shard.now());
    while change.targets.seek(changed.draft.value().root())? {
        tx.pause().await;
    }
    let mut more = true;
    while more {
        let mut edit = changed.draft.edit(now);
        for _ in 0..PLACES {
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
async fn install(call: &Call, changed: Vec<Changed>) {
    let mut parts = by_core(call, changed, |changed| changed.at);
    let cores: Vec<_> = parts.iter().map(|(core, _)| *core).collect();
    let (db, no_touch) = (call.db, call.no_touch);
    let run = |core: CoreId| {
        let part = parts.iter_mut().find(|(of, _)| *of == core);
        let changed = part.map(|(_, changed)| std::mem::take(changed)).unwrap_or_default();
        let request = Arc::clone(&call.request);
        async move |tx: Tx| {
            for Changed { at, draft, .. } in changed.into_iter().filter(|it| it.is_changed) {
                let key = Key::new(resp::Args::owned(&request).get(at));
                tx.home().shard.parts_for(db, no_touch).0.install_draft(&key, draft);
                tx.pause().await;
            }
        }
    };
    call.tx.drive_each(cores, run).await;
}
