//! The result of BITOP, built aside in chunks by all cores.
//!
//! Chunks do not depend on each other, so each core builds a run of them, in slices. In a chunk the
//! sources are added one by one. If at most one source affects a chunk, the result shares that
//! source's chunk, or a chunk of zeros. So a sparse bitmap takes memory only for the chunks with
//! set bits.

use super::combine::Act;
use crate::multi_input::Queue;
use darter_base::limits::CHUNK_BYTES;
use darter_command::Call;
use darter_structs::blob::Blob;
use darter_tx::Tx;
use std::ops::Range;
use std::sync::Arc;

/// Fewer chunks a core are not worth a message to another core.
const CHUNKS_EACH_MIN: usize = 8;
/// Chunks that are appended to the result in one step.
const JOINED_AT_ONCE: usize = 256;
/// Bytes that are combined between two checks of the slice.
const BREATH_BYTES: usize = 32 * 1024;
/// The cost of fetching a source's chunk, counted in combined bytes.
const LOOK_BYTES: usize = 512;

/// The strings at the sources, `None` for those that are absent.
type Strings = Queue<Option<Blob>>;

/// Combines `sources`, the longest of which has `len` bytes.
pub(super) async fn build(call: &Call, act: Act, sources: Strings, len: usize) -> Blob {
    let plan = Arc::new(Plan { act, sources, len });
    let chunks = len.div_ceil(CHUNK_BYTES);
    let all = call.tx.cores();
    let parts = chunks.div_ceil(CHUNKS_EACH_MIN).clamp(1, all);
    // This core builds the first part, and the following cores the others.
    let owners = (0..parts).map(|part| (call.tx.core() + part) % all);
    let work = |core: usize| {
        let part = (core + all - call.tx.core()) % all;
        let (plan, run) = (Arc::clone(&plan), part * chunks / parts..(part + 1) * chunks / parts);
        async move |tx: Tx| plan.run(&tx, run).await
    };
    let runs = call.tx.drive_each(owners, work).await;
    let mut result = Blob::default();
    for some in runs.iter().flat_map(|run| run.chunks(JOINED_AT_ONCE)) {
        match some {
            [only] if chunks == 1 => result = Blob::from_chunks(std::slice::from_ref(only)),
            some => result.push_chunks(some),
        }
        call.tx.pause().await;
    }
    debug_assert_eq!(result.len(), len, "the longest source");
    result
}

struct Plan {
    act: Act,
    sources: Strings,
    len: usize,
}

impl Plan {
    /// Builds a range of chunks.
    async fn run(&self, tx: &Tx, chunks: Range<usize>) -> Vec<Arc<[u8]>> {
        let mut built = Vec::with_capacity(chunks.len());
        let mut zeros = None;
        let mut combined = 0;
        for index in chunks {
            let bytes = CHUNK_BYTES.min(self.len - index * CHUNK_BYTES);
            let mut mix = Mix::new(self.act, bytes);
            for (at, source) in self.sources.iter().enumerate() {
                combined += LOOK_BYTES + mix.add(at, Piece::of(source.as_ref(), index));
                if combined > BREATH_BYTES {
                    tx.pause().await;
                    combined = 0;
                }
            }
            built.push(mix.end(&mut zeros));
        }
        built
    }
}

/// A source's part of a chunk. Never empty.
#[derive(Clone, Copy)]
struct Piece<'a> {
    chunk: &'a Arc<[u8]>,
    len: usize,
}

impl<'a> Piece<'a> {
    fn of(source: Option<&'a Blob>, index: usize) -> Option<Self> {
        let source = source.filter(|source| index * CHUNK_BYTES < source.len())?;
        let (chunk, within) = source.piece(index);
        Some(Self { chunk, len: within.len() })
    }

    fn bytes(&self) -> &'a [u8] {
        &self.chunk[..self.len]
    }

    /// A chunk of `bytes` bytes; shared with the source if the lengths are equal.
    fn to_chunk(self, bytes: usize) -> Arc<[u8]> {
        if self.chunk.len() == bytes {
            return Arc::clone(self.chunk);
        }
        let mut chunk = vec![0; bytes];
        chunk[..self.len].copy_from_slice(self.bytes());
        Arc::from(chunk)
    }
}

/// A result chunk being built. `None` stands for zeros.
struct Mix<'a> {
    act: Act,
    bytes: usize,
    /// The first source, for operations that compare it with the others.
    first: Option<Piece<'a>>,
    /// The combination so far: of the other sources, or of all.
    sum: Option<Arc<[u8]>>,
    /// Bits that were set more than once.
    twice: Option<Arc<[u8]>>,
}

impl<'a> Mix<'a> {
    fn new(act: Act, bytes: usize) -> Self {
        Self { act, bytes, first: None, sum: None, twice: None }
    }

    /// Combines the source at `at`. Returns the approximate number of combined bytes.
    fn add(&mut self, at: usize, piece: Option<Piece<'a>>) -> usize {
        match self.act {
            act if act.compares_first() && at == 0 => {
                self.first = piece;
                return 0;
            }
            Act::And if at > 0 => self.keep(piece),
            Act::Xor => self.join(piece, |sum, byte| sum ^ byte),
            Act::One => {
                self.note_twice(piece);
                self.join(piece, |sum, byte| sum | byte);
            }
            _ => self.join(piece, |sum, byte| sum | byte),
        }
        piece.map_or(0, |piece| piece.len)
    }

    /// Combines the sum with `piece`. An empty sum becomes `piece`.
    fn join(&mut self, piece: Option<Piece<'_>>, act: impl Fn(u8, u8) -> u8) {
        let Some(piece) = piece else { return };
        match &mut self.sum {
            Some(sum) => zip(sum, piece.bytes(), act),
            None => self.sum = Some(piece.to_chunk(self.bytes)),
        }
    }

    /// Keeps only the bits of the sum that are set in `piece`.
    fn keep(&mut self, piece: Option<Piece<'_>>) {
        let Some(piece) = piece else {
            self.sum = None;
            return;
        };
        if let Some(sum) = &mut self.sum {
            zip(sum, piece.bytes(), |sum, byte| sum & byte);
            own(sum)[piece.len..].fill(0);
        }
    }

    /// Records the bits of `piece` that were already set.
    fn note_twice(&mut self, piece: Option<Piece<'_>>) {
        let (Some(piece), Some(sum)) = (piece, &self.sum) else { return };
        let twice = self.twice.get_or_insert_with(|| Arc::from(vec![0; self.bytes]));
        let both = sum.iter().zip(piece.bytes()).map(|(sum, byte)| sum & byte);
        own(twice).iter_mut().zip(both).for_each(|(twice, both)| *twice |= both);
    }

    /// Returns the chunk. `zeros` caches a chunk of zeros.
    fn end(mut self, zeros: &mut Option<Arc<[u8]>>) -> Arc<[u8]> {
        match self.act {
            Act::And | Act::Or | Act::Xor => {}
            Act::Not => {
                if let Some(sum) = &mut self.sum {
                    own(sum).iter_mut().for_each(|byte| *byte = !*byte);
                }
            }
            Act::Diff => {
                let rest = std::mem::take(&mut self.sum);
                self.join(self.first, |_, byte| byte);
                if let (Some(sum), Some(rest)) = (&mut self.sum, rest) {
                    zip(sum, &rest, |sum, rest| sum & !rest);
                }
            }
            Act::Diff1 => {
                if let (Some(sum), Some(first)) = (&mut self.sum, self.first) {
                    zip(sum, first.bytes(), |sum, first| sum & !first);
                }
            }
            Act::AndOr => self.keep(self.first),
            Act::One => {
                if let (Some(sum), Some(twice)) = (&mut self.sum, self.twice) {
                    zip(sum, &twice, |sum, twice| sum & !twice);
                }
            }
        }
        let bytes = self.bytes;
        let zeros = || match zeros {
            Some(zeros) if zeros.len() == bytes => Arc::clone(zeros),
            _ => Arc::clone(zeros.insert(Arc::from(vec![0; bytes]))),
        };
        self.sum.unwrap_or_else(zeros)
    }
}

/// The chunk's bytes, to be changed: copied first if they are shared.
fn own(chunk: &mut Arc<[u8]>) -> &mut [u8] {
    Arc::make_mut(chunk)
}

/// Combines the beginning of `chunk` with `bytes`, byte by byte.
fn zip(chunk: &mut Arc<[u8]>, bytes: &[u8], act: impl Fn(u8, u8) -> u8) {
    own(chunk).iter_mut().zip(bytes).for_each(|(sum, byte)| *sum = act(*sum, *byte));
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    /// The expected bit, by the definition of the operation.
    fn expected(act: Act, bits: &[bool]) -> bool {
        let others = bits[1..].iter().any(|bit| *bit);
        let count = bits.iter().filter(|bit| **bit).count();
        match act {
            Act::And => count == bits.len(),
            Act::Or => count > 0,
            Act::Xor => count % 2 == 1,
            Act::Not => !bits[0],
            Act::Diff => bits[0] && !others,
            Act::Diff1 => !bits[0] && others,
            Act::AndOr => bits[0] && others,
            Act::One => count == 1,
        }
    }

    #[test] // Bit by bit, with sources that end early or are absent.
    fn chunks_are_combined_bit_by_bit() {
        let acts =
            [Act::And, Act::Or, Act::Xor, Act::Diff, Act::Diff1, Act::AndOr, Act::One, Act::Not];
        let mut prng = Prng::from_seed(4);
        for round in 0..2_000 {
            let act = acts[round % acts.len()];
            let count = if act == Act::Not { 1 } else { 1 + round / 8 % 5 };
            let sources: Vec<Option<Blob>> = (0..count)
                .map(|_| Some(Blob::from(&prng.bytes(0..=12)[..])).filter(|_| prng.chance(80)))
                .collect();
            let byte = |source: &Option<Blob>, at| source.as_ref().and_then(|text| text.byte(at));
            let lens = sources.iter().flatten().map(Blob::len);
            let len = lens.max().unwrap_or(0);
            let mut mix = Mix::new(act, len);
            for (at, source) in sources.iter().enumerate() {
                mix.add(at, Piece::of(source.as_ref(), 0));
            }
            let found = mix.end(&mut None);
            for bit in 0..len * 8 {
                let is_set = |byte: u8| byte >> (7 - bit % 8) & 1 == 1;
                let bits: Vec<bool> = sources
                    .iter()
                    .map(|source| is_set(byte(source, bit / 8).unwrap_or(0)))
                    .collect();
                assert_eq!(is_set(found[bit / 8]), expected(act, &bits), "{act:?} {sources:?}");
            }
        }
    }
}
