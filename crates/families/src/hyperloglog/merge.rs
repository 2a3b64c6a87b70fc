//! PFMERGE, and the merge that it shares with PFCOUNT: the maximum of each register over several
//! HyperLogLogs.
//!
//! The maximum does not depend on the order, so each core merges a part of the sources, in slices.

use super::add::{PFADD, put_back};
use super::estimate::Registers;
use super::format::{Encoding, REGISTERS, read};
use super::hash::Place;
use super::sketch::Sketch;
use super::sparse::Cursor;
use crate::multi_input::{Hold, Input, Queue, for_target};
use darter_command::{Answer, Call, Refusal};
use darter_keyspace::{Found, Key, Str, WrongType};
use darter_structs::blob::Blob;
use darter_structs::table::Scratch;
use darter_tx::{Home, Tx};
use std::sync::Arc;

/// With fewer sources a core, other cores are not involved.
const SOURCES_EACH_MIN: usize = 32;
/// Registers that are written between two checks of the slice.
const WRITTEN_AT_ONCE: usize = 128;

/// The value at a source key: a string, or another type, which the merge refuses.
pub(super) struct Source(Option<Blob>);

impl Input for Source {
    fn cut(found: &Found<'_>, hold: Hold) -> Result<Self, WrongType> {
        Ok(Self(Blob::cut(found, hold).ok()))
    }
}

impl Source {
    /// Calls `work` with the bytes, if the source is a HyperLogLog.
    fn with<R>(
        &self,
        work: impl FnOnce(&[u8], Encoding) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let text = Str::Blob(self.0.as_ref().ok_or(Refusal::WrongType)?);
        let mut scratch = Scratch::default();
        let (bytes, encoding) = read(&text, &mut scratch)?;
        work(bytes, encoding)
    }

    /// Merges the source into `registers`. Returns true if its encoding is dense.
    pub(super) fn merge_into(&self, registers: &mut Registers) -> Result<bool, Refusal> {
        self.with(|bytes, encoding| {
            registers.merge(bytes, encoding)?;
            Ok(encoding == Encoding::Dense)
        })
    }
}

/// The maximum registers of some sources.
#[derive(Default)]
pub(super) struct Merged {
    pub(super) registers: Registers,
    has_dense: bool,
}

/// The sources at the keys of a request.
pub(super) type Sources = Queue<Option<Source>>;

/// Merges sources on all cores. If several are refused, the first one determines the error.
pub(super) async fn merge(call: &Call, sources: Arc<Sources>) -> Result<Merged, Refusal> {
    let (count, all) = (sources.len(), call.tx.cores());
    let parts = count.div_ceil(SOURCES_EACH_MIN).clamp(1, all);
    // This core merges the first part, and the following cores the others.
    let owners = (0..parts).map(|part| (call.tx.core() + part) % all);
    let work = |core: usize| {
        let part = (core + all - call.tx.core()) % all;
        let (sources, run) =
            (Arc::clone(&sources), part * count / parts..(part + 1) * count / parts);
        async move |tx: Tx| {
            let mut merged = Merged::default();
            for source in sources.range(run).flatten() {
                merged.has_dense |= source.merge_into(&mut merged.registers)?;
                tx.pause().await;
            }
            Ok::<_, Refusal>(merged)
        }
    };
    let mut merged = Merged::default();
    for part in call.tx.drive_each(owners, work).await {
        let part: Merged = part?;
        merged.registers.merge_registers(&part.registers);
        merged.has_dense |= part.has_dense;
    }
    Ok(merged)
}

/// `PFMERGE destination [source ...]`: stores the union of the sources and of `destination` itself
/// at `destination`. The result is dense if any of them is. Absent keys count as empty.
///
/// Reply: `OK`. Refusals: a source that is not a string or not a HyperLogLog, or is corrupt; then
/// nothing changes. The deadline of the destination stays. Cost: O(keys), in slices, shared by the
/// cores. Source: <https://redis.io/commands/pfmerge> (2.8.9).
pub(super) async fn pfmerge(call: Call) -> Result<Answer, Refusal> {
    let target = call.first;
    let (sources, locked) = for_target::<Source>(&call, target..call.len(), target).await?;
    let sources: Arc<Sources> = Arc::new(sources.into_iter().collect());
    let merged = merge(&call, Arc::clone(&sources)).await?;
    let mut sketch = match sources.front() {
        Some(Some(old)) => old.with(|bytes, encoding| Ok(Sketch::new(bytes, encoding)))?,
        _ => Sketch::default(),
    };
    if merged.has_dense {
        sketch.make_dense()?;
    }
    let mut cursor = Cursor::default();
    for register in 0..REGISTERS {
        let rank = merged.registers.0[register];
        if rank > 0 {
            sketch.add_after(Place { register, rank }, &mut cursor)?;
        }
        if register % WRITTEN_AT_ONCE == 0 {
            call.tx.pause().await;
        }
    }
    sketch.invalidate();
    let (request, db) = (Arc::clone(&call.request), call.db);
    let install = move |home: &mut Home| {
        let key = Key::new(darter_resp::Args::owned(&request).get(target));
        put_back(home.shard.db_mut(db), &key, &sketch, &[PFADD]);
    };
    call.tx.on(call.owner(target), install).await;
    drop(locked);
    Ok(call.answer(|reply| reply.ok()))
}
