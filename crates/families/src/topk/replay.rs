//! TOPK.REPLAY: repeats recorded changes, in files.

use super::value::{TopK, TopKChange};
use super::{MISSING, refuse};
use darter_base::number;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::Name;
use darter_keyspace::commands::ITEMS_MAX;

/// `TOPK.REPLAY key change [change ...]`: repeats what TOPK.ADD and TOPK.INCRBY did, whose choices
/// are random. A change is `BUCKET index bits`, `LIST item count` or `EXPEL`. For files only.
///
/// Reply: OK. Refusals: an absent key, `WrongType`, more than [`ITEMS_MAX`] changes, a change that
/// does not fit the sketch; then nothing changes. Cost: O(changes * log k).
pub(super) fn replay(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let found = cx.db.read_value::<TopK>(&key)?.ok_or_else(|| refuse(MISSING))?;
    let misfit = || refuse("TopK: invalid change");
    let (mut changes, mut list) = (Vec::new(), found.list().clone());
    while args.left() > 0 {
        let change = change(&mut args)?.filter(|_| changes.len() < ITEMS_MAX);
        let change = change.filter(|change| found.fits(change, &mut list));
        changes.push(change.ok_or_else(misfit)?);
    }
    drop((found, list));
    cx.db.edit::<TopK, _>(&key, false, |edit| {
        changes.iter().for_each(|change| edit.apply(change));
    })?;
    cx.reply.ok();
    Ok(Flow::Done)
}

/// Takes a change. `None`: it is none.
fn change(args: &mut Args<'_>) -> Result<Option<TopKChange>, Refusal> {
    if args.option("EXPEL") {
        return Ok(Some(TopKChange::Expel));
    }
    if args.option("BUCKET") {
        let (at, bits) = (number::parse_u64(args.word()?), number::parse_u64(args.word()?));
        let bucket = |(at, bits): (u64, u64)| TopKChange::Bucket { at, bytes: bits.to_le_bytes() };
        return Ok(at.zip(bits).map(bucket));
    }
    if args.option("LIST") {
        let item = Name::from(args.bytes()?);
        let count = number::parse_u64(args.word()?).and_then(|count| u32::try_from(count).ok());
        return Ok(count.map(|count| TopKChange::List { item, count }));
    }
    Ok(None)
}
