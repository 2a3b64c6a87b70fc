//! TDIGEST.MERGE: adds the observations of several digests to one, which is built on the side.

use super::create::compression;
use super::digest::Digest;
use super::value::TDigest;
use super::{MISSING, OVERFLOW, refuse};
use crate::multi_input::{Hold, Input, Queue, for_target, pause_now_and_then};
use darter_base::number;
use darter_command::{Answer, Args, Call, Refusal};
use darter_keyspace::{Deadline, Event, Found, Key, Object, WrongType};
use darter_tx::Home;
use std::ops::Range;
use std::sync::Arc;

const MERGE: &Event = &Event::new("tdigest.merge", b'd');

/// The number of nodes added between two checks of the slice.
const NODES: usize = 256;

impl Input for TDigest {
    fn cut(found: &Found<'_>, _: Hold) -> Result<Self, WrongType> {
        Ok(found.value::<Self>()?.into_cut())
    }
}

/// The request.
struct TDigestMergeRequest {
    sources: Range<usize>,
    compression: Option<u64>,
    overrides: bool,
}

impl TDigestMergeRequest {
    fn parse(mut args: Args<'_>) -> Result<Self, Refusal> {
        let arity = || Refusal::Arity("tdigest.merge".into());
        let count = number::parse_i64(args.word()?);
        let count = count.ok_or_else(|| refuse("ERR T-Digest: error parsing numkeys"))?;
        if count <= 0 {
            return Err(refuse("ERR T-Digest: numkeys needs to be a positive integer"));
        }
        let count = usize::try_from(count).ok().filter(|count| *count <= args.left());
        let first = args.position();
        let sources = first..first + count.ok_or_else(arity)?;
        args.seek(sources.end);
        let mut asked = Self { sources, compression: None, overrides: false };
        while args.left() > 0 {
            if args.option("OVERRIDE") {
                asked.overrides = true;
            } else if args.option("COMPRESSION") {
                let word = args.peek_word().ok_or_else(arity)?;
                asked.compression = Some(compression(word)?);
                args.next();
            } else {
                return Err(refuse("ERR T-Digest: wrong keyword"));
            }
        }
        Ok(asked)
    }
}

/// `TDIGEST.MERGE destination numkeys source [source ...] [COMPRESSION compression] [OVERRIDE]`: adds
/// the observations of the sources to the digest at `destination`; a missing one is made.
///
/// - `OVERRIDE`: those of the destination are dropped.
/// - `COMPRESSION`: if it is not there, the destination's, or, if it is new or dropped, the highest of
///   the sources'.
///
/// Reply: `OK`. Refusals: an absent source, `WrongType`, arguments that are no numbers or words, too
/// many observations; then nothing changes. Cost: O(nodes of all sources), in slices.
/// Source: <https://redis.io/commands/tdigest.merge> (RedisBloom 2.4.0).
pub(super) async fn merge(call: Call) -> Result<Answer, Refusal> {
    let target = call.first;
    digest_at(&call, target).await?;
    let mut args = call.args();
    args.seek(target + 1);
    let asked = TDigestMergeRequest::parse(args)?;
    let (sources, locked) = for_target::<TDigest>(&call, asked.sources.clone(), target).await?;
    let (old, deadline) = digest_at(&call, target).await?.unzip();
    let old = old.filter(|_| !asked.overrides);
    let mut sources: Queue<_> = sources.into_iter().collect();
    let mut highest = 0;
    for (done, source) in sources.iter().enumerate() {
        let source = source.as_ref().ok_or_else(|| refuse(MISSING))?;
        highest = highest.max(source.digest().compression());
        pause_now_and_then(&call, done).await;
    }
    let old_compression = old.as_ref().map(|old| old.digest().compression());
    let compression = asked.compression.or(old_compression).unwrap_or(highest);
    let refusal = || refuse("ERR T-Digest: allocation of destination digest failed");
    let mut result = Digest::new(compression).ok_or_else(refusal)?;
    if let Some(old) = old {
        fold(&call, &mut result, &old).await?;
    }
    while let Some(source) = sources.pop_front().flatten() {
        fold(&call, &mut result, &source).await?;
    }
    let (request, db) = (Arc::clone(&call.request), call.db);
    let install = move |home: &mut Home| {
        let key = Key::new(darter_resp::Args::owned(&request).get(target));
        let object = Object::new(TDigest::of(result));
        // The one that it had: by now it may be over, and the destination gone.
        let deadline = Deadline::from(deadline.flatten());
        home.shard.db_mut(db).install(&key, object, deadline, &[MERGE]);
    };
    call.tx.on(call.owner(target), install).await;
    drop(locked);
    Ok(call.answer(|reply| reply.ok()))
}

/// A snapshot of the digest at the key in this argument, and its deadline.
async fn digest_at(call: &Call, at: usize) -> Result<Option<(TDigest, Option<u64>)>, WrongType> {
    let (request, db) = (Arc::clone(&call.request), call.db);
    let read = move |home: &mut Home| {
        let key = Key::new(darter_resp::Args::owned(&request).get(at));
        let Some(found) = home.shard.db_mut(db).read(&key) else { return Ok(None) };
        Ok(Some((found.value::<TDigest>()?.into_cut(), found.deadline())))
    };
    call.tx.on(call.owner(at), read).await
}

/// Adds all nodes of a digest to another.
async fn fold(call: &Call, into: &mut Digest, from: &TDigest) -> Result<(), Refusal> {
    let view = from.digest().view();
    call.tx.pause().await;
    for nodes in view.nodes().chunks(NODES) {
        let added = nodes.iter().try_for_each(|node| into.add(*node));
        added.map_err(|_| refuse(OVERFLOW))?;
        call.tx.pause().await;
    }
    if let Some(ends) = from.digest().ends() {
        into.widen(ends);
    }
    Ok(())
}
