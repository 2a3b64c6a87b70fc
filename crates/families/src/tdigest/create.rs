//! TDIGEST.CREATE, TDIGEST.RESET, TDIGEST.INFO.

use super::value::{COMPRESSION, TDigest, TDigestEdit};
use super::{MISSING, refuse};
use crate::lookup::find_value;
use darter_base::number;
use darter_command::{Args, Cx, Flow, Refusal};

/// `TDIGEST.CREATE key [COMPRESSION compression]`: creates an empty digest; the default compression
/// is 100.
///
/// Reply: `OK`. Refusals: an existing digest, `WrongType`, an unknown word, a compression that is
/// not a positive integer up to 10 000. Cost: O(1).
/// Source: <https://redis.io/commands/tdigest.create> (RedisBloom 2.4.0).
pub(super) fn create(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    if !matches!(args.left(), 1 | 3) {
        return Err(Refusal::Arity("tdigest.create".into()));
    }
    let key = args.key()?;
    if cx.db.read_value::<TDigest>(&key)?.is_some() {
        return Err(refuse("ERR T-Digest: key already exists"));
    }
    let mut wanted = COMPRESSION;
    if args.left() > 0 {
        if !args.option("COMPRESSION") {
            return Err(refuse("ERR T-Digest: wrong keyword"));
        }
        wanted = compression(args.word()?)?;
    }
    let create = |edit: &mut TDigestEdit<'_>| edit.create(wanted);
    if cx.db.edit::<TDigest, _>(&key, true, create)? != Some(true) {
        return Err(refuse("ERR T-Digest: allocation failed"));
    }
    cx.reply.ok();
    Ok(Flow::Done)
}

/// Parses a compression.
pub(super) fn compression(word: &[u8]) -> Result<u64, Refusal> {
    let parsed = number::parse_i64(word);
    let parsed =
        parsed.ok_or_else(|| refuse("ERR T-Digest: error parsing compression parameter"))?;
    match u64::try_from(parsed) {
        Ok(parsed) if parsed > 0 => Ok(parsed),
        _ => Err(refuse("ERR T-Digest: compression parameter needs to be a positive integer")),
    }
}

/// `TDIGEST.RESET key`: empties a digest.
///
/// Reply: `OK`. Refusals: an absent key, `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/tdigest.reset> (RedisBloom 2.4.0).
pub(super) fn reset(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let found = cx.db.edit::<TDigest, _>(&key, false, |edit| edit.reset())?;
    found.ok_or_else(|| refuse(MISSING))?;
    cx.reply.ok();
    Ok(Flow::Done)
}

/// `TDIGEST.INFO key`: the figures of a digest.
///
/// Reply: map. Refusals: an absent key, `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/tdigest.info> (RedisBloom 2.4.0).
pub(super) fn info(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let found = find_value::<TDigest>(cx.db, cx.stats, &key)?;
    let found = found.ok_or_else(|| refuse(MISSING))?;
    let digest = found.digest();
    let (merged, buffered) = digest.weights();
    let facts = [
        ("Compression", digest.compression()),
        ("Capacity", digest.capacity() as u64),
        ("Merged nodes", digest.merged().len() as u64),
        ("Unmerged nodes", digest.buffer().len() as u64),
        ("Merged weight", merged),
        ("Unmerged weight", buffered),
        ("Observations", digest.weight()),
        ("Total compressions", digest.compressions()),
        ("Memory usage", (digest.memory_bytes() + size_of::<TDigest>()) as u64),
    ];
    cx.reply.map(facts.len());
    for (name, value) in facts {
        cx.reply.simple(name);
        cx.reply.int(value.cast_signed());
    }
    Ok(Flow::Done)
}
