//! CMS.MERGE: the weighted sum of sketches, computed page by page on all cores.
//!
//! The shape *Build*, as in BITOP. The destination is locked, cuts of the sources are taken at one
//! instant, and their locks are released. Pages are independent of each other, so each core
//! computes runs of them, in slices. The result is installed in one step.

use super::value::{Cms, CmsShape};
use super::{MISSING, refuse};
use crate::multi_input::{Hold, Input, InputCuts, Queue, for_target, pause_now_and_then};
use darter_base::number;
use darter_command::{Answer, Args, Call, Refusal};
use darter_keyspace::{Deadline, Event, Found, Key, Object, WrongType};
use darter_structs::pages::{PAGE_BYTES, Pages, ROOT_PAGES};
use darter_tx::{Home, Tx};
use std::ops::Range;
use std::sync::Arc;

const MERGE: &Event = &Event::new("cms.merge", b'd');

/// Counters of a page, which are summed in one step.
const CELLS: usize = PAGE_BYTES / 4;

impl Input for Cms {
    fn cut(found: &Found<'_>, hold: Hold) -> Result<Self, WrongType> {
        let sketch = found.value::<Self>()?;
        Ok(if hold == Hold::Reader { sketch.reader() } else { sketch.into_cut() })
    }
}

/// The sources and their weights, as places in the request.
struct CmsMergeRequest {
    sources: Range<usize>,
    weights: Option<Range<usize>>,
}

impl CmsMergeRequest {
    fn parse(mut args: Args<'_>) -> Result<Self, Refusal> {
        let count = number::parse_i64(args.word()?);
        let count = count.ok_or_else(|| refuse("CMS: invalid numkeys"))?;
        if count <= 0 {
            return Err(refuse("CMS: Number of keys must be positive"));
        }
        let wrong = || refuse("CMS: wrong number of keys");
        let count = usize::try_from(count).ok().filter(|count| *count <= args.left());
        let first = args.position();
        let sources = first..first + count.ok_or_else(wrong)?;
        args.seek(sources.end);
        if args.left() == 0 {
            return Ok(Self { sources, weights: None });
        }
        if !args.option("WEIGHTS") {
            return Err(wrong());
        }
        if args.left() != sources.len() {
            return Err(refuse("CMS: wrong number of keys/weights"));
        }
        let weights = Some(args.position()..args.all().len());
        Ok(Self { sources, weights })
    }

    async fn weights(&self, call: &Call) -> Result<Vec<i64>, Refusal> {
        let mut weights = Vec::with_capacity(self.sources.len());
        let words = darter_resp::Args::owned(&call.request);
        for (done, _) in self.sources.clone().enumerate() {
            // The head of the argument is enough: valid numbers are short.
            let weight = self.weights.as_ref().map(|all| words.head(all.start + done));
            let weight = weight.map_or(Some(1), number::parse_i64);
            weights.push(weight.ok_or_else(|| refuse("CMS: invalid weight value"))?);
            pause_now_and_then(call, done).await;
        }
        Ok(weights)
    }
}

/// `CMS.MERGE destination numkeys source [source ...] [WEIGHTS weight [weight ...]]`: stores the
/// weighted sum of the sources at `destination`, an existing sketch of the same dimensions. It may
/// be one of the sources. Weights may be negative.
///
/// Reply: `OK`. Refusals: an absent key, `WrongType`, dimensions that differ, arguments that do not
/// match `numkeys`, a count that would be negative or above 4 294 967 295; then nothing changes.
/// Cost: O(counters of all sources), in slices, shared by the cores.
/// Source: <https://redis.io/commands/cms.merge> (RedisBloom 2.0.0).
pub(super) async fn merge(call: Call) -> Result<Answer, Refusal> {
    let target = call.first;
    shape_of(&call, target).await?;
    let mut args = call.args();
    args.seek(target + 1);
    let asked = CmsMergeRequest::parse(args)?;
    let weights = asked.weights(&call).await?;
    let (sources, locked) = for_target::<Cms>(&call, asked.sources, target).await?;
    let (shape, deadline) = shape_of(&call, target).await?;
    let (plan, count) = plan(&call, shape, sources, weights).await?;
    let cells = build(&call, Arc::new(plan)).await?;
    let result = Cms::of(shape, count, cells).expect("as many counters as each source has");
    let (request, db) = (Arc::clone(&call.request), call.db);
    let install = move |home: &mut Home| {
        let key = Key::new(darter_resp::Args::owned(&request).get(target));
        // The sketch keeps its deadline. By now that may have passed, and the destination may be
        // gone.
        let db = home.shard.db_mut(db);
        db.install(&key, Object::new(result), Deadline::from(deadline), &[MERGE]);
    };
    call.tx.on(call.owner(target), install).await;
    drop(locked);
    Ok(call.answer(|reply| reply.ok()))
}

/// The dimensions and the deadline of the sketch whose key is the argument at this index.
async fn shape_of(call: &Call, at: usize) -> Result<(CmsShape, Option<u64>), Refusal> {
    let (request, db) = (Arc::clone(&call.request), call.db);
    let read = move |home: &mut Home| {
        let key = Key::new(darter_resp::Args::owned(&request).get(at));
        let Some(found) = home.shard.db_mut(db).read(&key) else { return Ok(None) };
        Ok(Some((found.value::<Cms>()?.shape(), found.deadline())))
    };
    let found: Result<_, WrongType> = call.tx.on(call.owner(at), read).await;
    found?.ok_or_else(|| refuse(MISSING))
}

/// The sketches to merge.
struct Plan {
    sources: Queue<(Pages, i64)>,
    bytes: usize,
}

/// Takes cuts of the sources, and the weighted sum of their totals.
async fn plan(
    call: &Call,
    shape: CmsShape,
    sources: InputCuts<Cms>,
    weights: Vec<i64>,
) -> Result<(Plan, i64), Refusal> {
    let mut sources: Queue<_> = sources.into_iter().collect();
    let (mut plan, mut sum) = (Plan { sources: Queue::default(), bytes: 0 }, Some(0_i64));
    for (done, weight) in weights.into_iter().enumerate() {
        let source = sources.pop_front().flatten().ok_or_else(|| refuse(MISSING))?;
        if source.shape() != shape {
            return Err(refuse("CMS: width/depth is not equal"));
        }
        sum = sum.and_then(|sum| sum.checked_add(source.count().checked_mul(weight)?));
        plan.bytes = source.cells().len();
        plan.sources.push_back((source.cells().clone(), weight));
        pause_now_and_then(call, done).await;
    }
    Ok((plan, sum.ok_or_else(overflow)?))
}

fn overflow() -> Refusal {
    refuse("CMS: MERGE overflow")
}

/// Sums all counters.
async fn build(call: &Call, plan: Arc<Plan>) -> Result<Pages, Refusal> {
    let runs = plan.bytes.div_ceil(PAGE_BYTES).div_ceil(ROOT_PAGES);
    let all = call.tx.cores();
    let parts = runs.clamp(1, all);
    // This core builds the first part, and the following cores the others.
    let owners = (0..parts).map(|part| (call.tx.core() + part) % all);
    let work = |core: usize| {
        let part = (core + all - call.tx.core()) % all;
        let (plan, runs) = (Arc::clone(&plan), part * runs / parts..(part + 1) * runs / parts);
        async move |tx: Tx| plan.add_up(&tx, runs).await
    };
    let mut result = Pages::zeros(plan.bytes);
    // All parts are awaited, even if one fails, so that their memory is freed in portions.
    for part in call.tx.drive_each(owners, work).await {
        result.join(part.ok_or_else(overflow)?);
    }
    Ok(result)
}

impl Plan {
    /// Sums some runs of pages. `None` if a sum does not fit a counter.
    async fn add_up(&self, tx: &Tx, runs: Range<usize>) -> Option<Pages> {
        let mut built = Pages::zeros(self.bytes);
        let mut sums = vec![0_i64; CELLS];
        for page in runs.start * ROOT_PAGES..built.pages().min(runs.end * ROOT_PAGES) {
            sums.fill(0);
            let mut has_counts = false;
            for (source, weight) in self.sources.iter() {
                if let Some(cells) = source.page(page) {
                    add(&mut sums, cells, *weight)?;
                    has_counts = true;
                }
                tx.pause().await;
            }
            if has_counts && fit(&sums)? {
                write(&sums, built.page_mut(page));
            }
        }
        Some(built)
    }
}

/// Adds counters multiplied by their weight. `None` if a sum does not fit 64 bits.
fn add(sums: &mut [i64], cells: &[u8], weight: i64) -> Option<()> {
    let cells = cells.as_chunks().0.iter().map(|cell| i64::from(u32::from_le_bytes(*cell)));
    if weight.unsigned_abs() < 1 << 29 {
        // If the product is below 2^61 and the sum below 2^62, the result fits.
        let mut beyond = 0;
        for (sum, cell) in sums.iter_mut().zip(cells) {
            *sum += cell * weight;
            beyond |= sum.unsigned_abs();
        }
        return (beyond >> 62 == 0).then_some(());
    }
    for (sum, cell) in sums.iter_mut().zip(cells) {
        *sum = sum.checked_add(cell.checked_mul(weight)?)?;
    }
    Some(())
}

/// Whether some sum is not 0. `None` if a sum is out of a counter's range.
fn fit(sums: &[i64]) -> Option<bool> {
    let all = sums.iter().fold(0, |all, sum| all | sum);
    (all >> 32 == 0).then_some(all != 0)
}

fn write(sums: &[i64], cells: &mut [u8]) {
    for (sum, cell) in sums.iter().zip(cells.as_chunks_mut().0) {
        *cell = (*sum as u32).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // In both directions, for any weights.
    fn merged_counters_out_of_range_are_refused() {
        let max = u32::MAX;
        let merge = |sources: &[(u32, i64)]| {
            let (mut sums, mut cell) = ([0], [0; 4]);
            for (cell, weight) in sources {
                add(&mut sums, &cell.to_le_bytes(), *weight)?;
            }
            fit(&sums).map(|_| write(&sums, &mut cell))?;
            Some(u32::from_le_bytes(cell))
        };
        for (sources, sum) in [
            (&[(5, 1), (7, 1)][..], Some(12)),
            (&[(5, -1), (7, 1)], Some(2)),
            (&[(5, 1), (7, -1)], None),
            (&[(max, 1)], Some(max)),
            (&[(max, 1), (1, 1)], None),
            (&[(max, i64::MAX), (max, i64::MIN)], None),
            (&[(1, i64::MAX), (1, i64::MAX), (1, i64::MIN), (1, i64::MIN)], None),
            (&[(1, i64::MAX), (1, -i64::MAX), (3, 2)], Some(6)),
            (&[(0, i64::MAX), (3, 0)], Some(0)),
            (&[(max, i32::MAX.into()), (max, i32::MIN.into()), (max, 1)], Some(0)),
        ] {
            assert_eq!(merge(sources), sum, "{sources:?}");
        }
        let many = vec![(max, i32::MAX.into()); 3];
        assert_eq!(merge(&many), None);
    }
}
