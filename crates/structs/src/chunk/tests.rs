//! A chunk against a vector, and searches in it.

use super::{Coding, End, OUTSIDE_MAX, ROOM_MAX, blank, own, remove_all};
use crate::list::item::{Code, Elements, INLINE_MAX, NewElement};
use crate::list::search::Needle;
use darter_base::Prng;

type Chunk = super::Chunk<Elements>;
type Handle = super::Handle<Elements>;

fn with<R>(bytes: &[u8], f: impl FnOnce(&Code<'_>) -> R) -> R {
    NewElement::Bytes(bytes).coded(f)
}

/// Integers mostly, so that there are many groups; some texts, and now and then a blob.
fn bytes(prng: &mut Prng) -> Vec<u8> {
    match prng.below(40) {
        0 => prng.bytes(INLINE_MAX + 1..=INLINE_MAX + 50),
        1 => prng.bytes(0..=300),
        2 => b"6ba7b810-9dad-11d1-80b4-00c04fd430c8".to_vec(),
        3..=10 => prng.bytes(0..=9),
        _ => (prng.next_u64().cast_signed() >> prng.below(64)).to_string().into_bytes(),
    }
}

fn content(chunk: &Chunk) -> Vec<Vec<u8>> {
    (0..chunk.len()).map(|index| chunk.element(chunk.offset(index)).to_vec()).collect()
}

#[test]
fn random_changes_of_a_chunk_agree_with_a_vector() {
    for seed in 0..60 {
        let mut prng = Prng::from_seed(seed);
        let (mut chunk, mut model) = (Chunk::empty(ROOM_MAX, End::Back), Vec::new());
        for step in 0..400 {
            let chunk = own(&mut chunk);
            let new = bytes(&mut prng);
            let index = prng.below(model.len() as u64 + 1) as usize;
            let there = index.min(model.len().saturating_sub(1));
            match prng.below(if seed % 2 == 0 { 8 } else { 12 }) {
                0 | 1 if with(&new, |code| chunk.push(End::Back, code)) => model.push(new),
                2 | 3 if with(&new, |code| chunk.push(End::Front, code)) => model.insert(0, new),
                4 | 5 if with(&new, |code| chunk.insert(index, code)) => model.insert(index, new),
                6 if !model.is_empty() && with(&new, |code| chunk.set(there, code)) => {
                    model[there] = new;
                }
                7 | 8 if !model.is_empty() => {
                    chunk.remove(there);
                    model.remove(there);
                }
                9 => {
                    let count = prng.below(model.len() as u64 / 3 + 1) as usize;
                    chunk.cut(End::Back, count);
                    model.truncate(model.len() - count);
                }
                10 => {
                    let count = prng.below(model.len() as u64 / 3 + 1) as usize;
                    chunk.cut(End::Front, count);
                    model.drain(..count);
                }
                _ => {}
            }
            chunk.check();
            assert_eq!(chunk.len(), model.len(), "seed {seed} step {step}");
            assert_eq!(content(chunk), model, "seed {seed} step {step}");
        }
    }
}

#[test]
fn split_merged_and_copied_chunks_keep_their_elements() {
    for seed in 0..60 {
        let mut prng = Prng::from_seed(seed);
        let (mut chunk, mut model) = (Chunk::empty(ROOM_MAX, End::Back), Vec::new());
        while model.len() < 2 || prng.below(200) > 0 {
            let new = bytes(&mut prng);
            if with(&new, |code| own(&mut chunk).push(End::Back, code)) {
                model.push(new);
            }
        }
        let copy = chunk.clone();
        own(&mut chunk).cut(End::Front, 1);
        assert_eq!(content(&copy), model, "the cut has changed");
        let index = 1 + prng.below(model.len() as u64 - 1) as usize;
        let (left, right) = copy.split(index);
        left.check();
        right.check();
        assert_eq!(
            (content(&left), content(&right)),
            (model[..index].into(), model[index..].into())
        );
        if left.used_bytes() + right.used_bytes() + 2 <= ROOM_MAX {
            let merged = left.merged(&right);
            merged.check();
            assert_eq!(content(&merged), model);
        }
        for end in [End::Front, End::Back] {
            let Some(grown) = left.grown(end, 100) else { continue };
            grown.check();
            assert_eq!(content(&grown), content(&left));
            let room = if end == End::Front { grown.front_room() } else { grown.back_room() };
            assert!(room >= 100, "{room} bytes at {end:?}");
        }
        let hits: Vec<u16> = (0..model.len() as u16).filter(|_| prng.chance(40)).collect();
        let mut rest = copy.clone();
        remove_all(&mut rest, &hits);
        rest.check();
        let kept = (0..model.len()).filter(|&at| !hits.contains(&(at as u16)));
        assert_eq!(content(&rest), kept.map(|at| model[at].clone()).collect::<Vec<_>>());
        assert_eq!(content(&copy), model, "the cut has changed");
    }
}

#[test] // Nor within longer elements.
fn a_search_does_not_match_across_elements() {
    let texts: [&[u8]; 4] = [b"ab", b"\x02ab", b"x\x02ab\x02ab", b"\x02ab\x02abab"];
    for needle in texts {
        for seed in 0..20 {
            let mut prng = Prng::from_seed(seed);
            let (mut chunk, mut expected) = (blank(ROOM_MAX), Vec::new());
            for index in 0..200 {
                let text = texts[prng.below(4) as usize];
                assert!(with(text, |code| own(&mut chunk).push(End::Back, code)));
                if text == needle {
                    expected.push(index);
                }
            }
            let mut hits = Vec::new();
            chunk.find(&Needle::new(NewElement::Bytes(needle)), &mut hits);
            assert_eq!(hits, expected, "seed {seed}");
        }
    }
}

#[test] // But not at every push.
fn free_room_moves_to_the_end_that_is_pushed_to() {
    let mut chunk: Handle = Chunk::empty(ROOM_MAX, End::Back);
    let mut pushed = 0_u32;
    while with(b"12345", |code| own(&mut chunk).push(End::Back, code)) {
        pushed += 1;
    }
    let chunk = own(&mut chunk);
    assert!(!with(b"12345", |code| chunk.push(End::Front, code)), "it is full");
    chunk.cut(End::Front, Elements::GROUP * 20);
    let (free, mut slides) = (chunk.front_room() + chunk.back_room(), 0);
    for _ in 0..20 {
        let begin = chunk.begin;
        assert!(with(b"12345", |code| chunk.push(End::Back, code)), "{pushed} before");
        slides += usize::from(chunk.begin != begin);
    }
    assert_eq!(slides, 1, "half of {free} bytes are enough for twenty");
    chunk.check();
}

#[test] // A copy of the chunk increments each blob's count.
fn the_number_of_blobs_in_a_chunk_is_bounded() {
    let (mut chunk, blob) = (Chunk::empty(ROOM_MAX, End::Back), vec![b'b'; INLINE_MAX + 1]);
    let before = chunk.memory_bytes();
    for _ in 0..OUTSIDE_MAX {
        assert!(with(&blob, |code| own(&mut chunk).push(End::Back, code)));
    }
    assert!(!with(&blob, |code| own(&mut chunk).push(End::Back, code)));
    assert!(chunk.memory_bytes() > before + OUTSIDE_MAX * blob.len());
    let chunk = own(&mut chunk);
    chunk.cut(End::Back, OUTSIDE_MAX / 2);
    assert!(with(&blob, |code| chunk.push(End::Back, code)), "numbers are given again");
    chunk.cut(End::Front, OUTSIDE_MAX / 2 + 1);
    assert_eq!((chunk.len(), chunk.memory_bytes()), (0, before));
    chunk.check();
}
