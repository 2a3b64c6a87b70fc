//! SORT and SORT_RO, from the request to the reply.

use super::gather::sorted;
use super::options::{Dialect, Options};
use super::pattern::Lookup;
use super::show::Show;
use super::source::Source;
use crate::cut::Cuts;
use crate::lookup::find;
use crate::multi_input::{self, Hold, Input};
use darter_base::slot::owner_of;
use darter_command::{Answer, Call, Refusal, Stream};
use darter_keyspace::{Deadline, Event, Key, Object, ShardStats};
use darter_resp::{self as resp, Output, Reply};
use darter_tx::{Access, Claim, CoreId, Home, Locked, lock_key};
use std::sync::Arc;

/// Portions of a result that are looked up before the command ends; only these lookups count as
/// hits and misses.
const COUNTED_PORTIONS: usize = 16;

/// Options that are parsed between two checks of the slice.
const OPTIONS_AT_ONCE: usize = 64;

const SORTSTORE: &Event = &Event::new("sortstore", b'l');

/// `SORT key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC | DESC] [ALPHA] [STORE
/// destination]`: sorts the elements as numbers, or with ALPHA as texts. With BY, they are sorted
/// by weights: the values at keys made from the pattern by replacing its star with the element, or
/// in a field of the hash there. A BY pattern without a star leaves them unsorted. Each GET pattern
/// replies with the value at such a key instead of the element, and `#` with the element itself.
///
/// Reply: array, streamed when long; null where GET finds no string. With STORE: an integer, the
/// length of the list stored at `destination`, which replaces any value there. An empty list
/// removes the key.
/// Refusals: `Syntax`, `NotAnInteger`; `WrongType`; a weight that is not a number. Cost: O(n * log
/// n), or O(n + wanted) with LIMIT, in slices, from cuts of one instant. Source:
/// <https://redis.io/commands/sort> (1.0.0).
pub(super) async fn sort(call: Call) -> Result<Answer, Refusal> {
    run(call, Dialect::Sort).await
}

/// `SORT_RO`: SORT without STORE. Source: <https://redis.io/commands/sort_ro> (7.0.0).
pub(super) async fn sort_ro(call: Call) -> Result<Answer, Refusal> {
    run(call, Dialect::ReadOnly).await
}

async fn run(call: Call, dialect: Dialect) -> Result<Answer, Refusal> {
    let mut args = call.args();
    args.seek(call.first + 1);
    let mut options = Options::new();
    for index in 1.. {
        if args.left() == 0 {
            break;
        }
        options.read(&mut args, dialect)?;
        if index % OPTIONS_AT_ONCE == 0 {
            call.tx.pause().await;
        }
    }
    let (source, cuts, locked) = if options.reads_others() {
        take_all(&call, &options).await?
    } else {
        let (source, locked) = take_one(&call, &options).await?;
        (source, None, locked)
    };
    let source = source.unwrap_or_default();
    let notes_missed = call.tx.home().shard.hears_misses();
    let mut lookup = cuts.map(|cuts| Lookup::new(cuts, notes_missed));
    let result = sorted(&call, source, &options, lookup.as_mut()).await;
    let sorted = match result {
        Ok(sorted) => sorted,
        Err(refusal) => {
            count(&call, &mut lookup).await;
            return Err(refusal);
        }
    };
    count(&call, &mut lookup).await;
    let show = Show::new(sorted, std::mem::take(&mut options.get), lookup);
    match options.store {
        Some(target) => store(&call, show, target, locked).await,
        None => Ok(answer(&call, show).await),
    }
}

/// Takes a cut of the source. With STORE, the destination is locked.
async fn take_one(
    call: &Call,
    options: &Options,
) -> Result<(Option<Source>, Option<Locked>), Refusal> {
    let source = call.first..call.first + 1;
    let (mut cuts, locked) = match options.store {
        Some(target) => {
            let (cuts, locked) = multi_input::for_target(call, source, target).await?;
            (cuts, Some(locked))
        }
        None => (multi_input::anywhere(call, source).await?, None),
    };
    Ok((cuts.pop().flatten(), locked))
}

/// Takes cuts of all keys at one instant, including the source. With STORE, the destination is
/// locked.
async fn take_all(
    call: &Call,
    options: &Options,
) -> Result<(Option<Source>, Option<Cuts>, Option<Locked>), Refusal> {
    let target = options.store.map(|at| {
        let name = call.arg(at);
        (call.tx.core_of(name), lock_key(call.db, Key::new(name).hash))
    });
    let claim = |core: CoreId| match target {
        Some((owner, _)) if owner == core => Claim::All(Access::Exclusive),
        _ => Claim::All(Access::Shared),
    };
    let cores = 0..call.tx.cores();
    let mut locked = call.tx.lock(cores.map(|core| (core, claim(core))).collect()).await;
    touch(call).await; // Before the cut, which would preserve the old access time.
    let cuts = Cuts::take_locked(call).await;
    let name = call.arg(call.first);
    let cut = &cuts.0[owner_of(name, cuts.0.len())];
    let found = cut.get(&Key::new(name));
    let source = found.map(|found| Source::cut(&found, Hold::Reader)).transpose()?;
    if let Some((core, key)) = target {
        locked.keep_only(core, key, Access::Exclusive);
        return Ok((source, Some(cuts), Some(locked)));
    }
    Ok((source, Some(cuts), None))
}

/// Counts an access to the source, as a hit or a miss.
async fn touch(call: &Call) {
    let (request, at, db) = (Arc::clone(&call.request), call.first, (call.db, call.no_touch));
    let touch = move |home: &mut Home| {
        let (db, _, stats) = home.shard.parts_for(db.0, db.1);
        find(db, stats, &Key::new(resp::Args::owned(&request).get(at)));
    };
    call.tx.on(call.owner(at), touch).await;
}

/// Adds the hits and misses of lookups to the statistics, and publishes the misses.
async fn count(call: &Call, lookup: &mut Option<Lookup>) {
    let Some(lookup) = lookup else { return };
    let ShardStats { hits, misses } = std::mem::take(&mut lookup.stats);
    {
        let stats = &mut call.tx.home().shard.stats;
        (stats.hits, stats.misses) = (stats.hits + hits, stats.misses + misses);
    }
    lookup.tell_missed(call, 1).await;
}

/// Replies with the first portions, and streams the rest.
async fn answer(call: &Call, mut show: Show) -> Answer {
    let mut out = Output::default();
    let mut reply = Reply::new(&mut out, call.resp3);
    reply.array(show.len());
    let mut more = show.len() > 0;
    let mut portions = COUNTED_PORTIONS;
    while more && portions > 0 {
        more = show.pump(&mut reply);
        portions -= 1;
        call.tx.pause().await;
    }
    count(call, &mut show.lookup).await;
    // Misses in the streamed rest are not published.
    show.lookup.iter_mut().for_each(|lookup| lookup.missed = None);
    if more { Answer::Stream(out, Box::new(show)) } else { Answer::Done(out) }
}

/// Stores the result at the key at `target`, which is locked.
async fn store(
    call: &Call,
    mut show: Show,
    target: usize,
    locked: Option<Locked>,
) -> Result<Answer, Refusal> {
    let len = show.len();
    let list = show.build(call).await;
    count(call, &mut show.lookup).await;
    let (request, db) = (Arc::clone(&call.request), call.db);
    let install = move |home: &mut Home| {
        let key = Key::new(resp::Args::owned(&request).get(target));
        let db = home.shard.db_mut(db);
        db.install(&key, Object::new(list), Deadline::Clear, &[SORTSTORE]);
        db.count_more(len.saturating_sub(1)); // Redis counts each element as a change.
    };
    call.tx.on(call.owner(target), install).await;
    drop(locked);
    Ok(call.answer(|reply| reply.count(len)))
}
