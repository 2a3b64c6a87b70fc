//! Makes new inputs from known ones: flipped bits, overwritten numbers, truncations, repeated and
//! exchanged parts.

use darter_base::Prng;

/// Longest input.
const LEN_MAX: usize = 64 * 1024;

/// One input. It may be one of the corpus itself.
pub(crate) fn input(corpus: &[Vec<u8>], prng: &mut Prng) -> Vec<u8> {
    let mut bytes = pick(corpus, prng).to_vec();
    for _ in 0..prng.below(8) {
        mutate(&mut bytes, corpus, prng);
        bytes.truncate(LEN_MAX);
    }
    bytes
}

fn pick<'a>(corpus: &'a [Vec<u8>], prng: &mut Prng) -> &'a [u8] {
    &corpus[index(prng, corpus.len())]
}

fn index(prng: &mut Prng, len: usize) -> usize {
    usize::try_from(prng.below(len as u64)).unwrap_or(0)
}

fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], prng: &mut Prng) {
    if bytes.is_empty() {
        bytes.extend(prng.bytes(1..=20));
        return;
    }
    let at = index(prng, bytes.len());
    match prng.below(8) {
        0 | 1 => bytes[at] ^= 1 << prng.below(8),
        2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xc0, 0xfe, 0xff, b'\r', b'\n'][index(prng, 9)],
        3 => bytes.truncate(at),
        4 => {
            let end = (at + 1 + index(prng, 16)).min(bytes.len());
            bytes.drain(at..end);
        }
        5 => {
            let end = (at + 1 + index(prng, 64)).min(bytes.len());
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
        6 => {
            let other = pick(corpus, prng);
            let from = index(prng, other.len().max(1));
            let part = other.get(from..).unwrap_or_default().to_vec();
            bytes.truncate(at);
            bytes.extend(part);
        }
        _ => {
            let inserted = prng.bytes(1..=8);
            bytes.splice(at..at, inserted);
        }
    }
}
