//! t-digests: exact at the ends and while observations are few, close in between.

use super::{of_parts, parts, survives_damage};
use crate::common::world::World;
use darter_base::Prng;
use darter_families::tdigest::{Digest, Node, TDigest};
use darter_keyspace::{Deadline, Fresh, Key, NewItem, Object, Value};

/// Draws a number from 0 to 1.
fn unit(prng: &mut Prng) -> f64 {
    prng.below(1 << 53) as f64 / (1_u64 << 53) as f64
}

type Draw = fn(&mut Prng) -> f64;

/// Even, skewed and with gaps, and one with many equal numbers.
const DRAWS: [Draw; 4] = [
    unit,
    |prng| -(1.0 - unit(prng)).ln() * 1e6,
    |prng| if prng.chance(50) { unit(prng) } else { 1e9 + unit(prng) },
    |prng| prng.below(20) as f64,
];

/// Makes a digest of random observations. Returns it, and the observations in order.
fn digest(seed: u64, compression: u64, count: usize, draw: Draw) -> (Digest, Vec<f64>) {
    let (mut prng, mut exact) = (Prng::from_seed(seed), Vec::new());
    let mut digest = Digest::new(compression).unwrap();
    for _ in 0..count {
        let value = draw(&mut prng);
        digest.add(Node { mean: value, weight: 1 }).unwrap();
        exact.push(value);
    }
    digest.check_invariants();
    exact.sort_unstable_by(f64::total_cmp);
    (digest, exact)
}

/// The shares of the observations that are below a value, and at most as high.
fn shares(exact: &[f64], value: f64) -> (f64, f64) {
    let below = exact.partition_point(|other| *other < value) as f64;
    let until = exact.partition_point(|other| *other <= value) as f64;
    (below / exact.len() as f64, until / exact.len() as f64)
}

#[test] // Errors are smaller towards both ends.
fn estimated_quantiles_are_within_the_error_bound() {
    for (seed, draw) in DRAWS.into_iter().enumerate() {
        for (compression, count) in [(100, 50_000), (500, 20_000), (20, 5_000)] {
            let (digest, exact) = digest(seed as u64, compression, count, draw);
            assert!(digest.merged().len() as u64 <= 2 * compression + 20, "{digest:?}");
            let view = digest.view();
            // The largest factor of q / (1 - q) within a cluster: the unit of the scale.
            let size = compression as f64;
            let z = 4.0 * (count as f64 / size).ln() + 24.0;
            let unit = (z / size).exp();
            for share in [0.0, 0.0001, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0] {
                let value = view.quantile(share);
                let (low, high) = shares(&exact, value);
                let most = share * (1.0 - share) * (unit - 1.0) + 8.0 / count as f64;
                assert!(
                    share >= low - most && share <= high + most,
                    "{seed} {compression}: {share} is {value}, at {low} to {high}",
                );
                let back = view.share_below(value);
                assert!(back >= low - most && back <= high + most, "{seed}: {value} is at {back}");
            }
            assert_eq!(digest.ends(), Some((exact[0], exact[count - 1])));
        }
    }
}

#[test] // Every observation is still stored singly.
fn digests_of_few_observations_are_exact() {
    for (seed, draw) in DRAWS.into_iter().enumerate() {
        let (mut digest, exact) = digest(seed as u64, 1_000, 200, draw);
        for _ in 0..2 {
            let view = digest.view();
            for (rank, value) in exact.iter().enumerate() {
                assert_eq!(view.by_rank(rank as f64), *value, "{seed} {rank}");
                let (low, high) = shares(&exact, *value);
                let middle = f64::midpoint(low, high) * 200.0;
                assert!((view.below(*value) - middle).abs() < 1e-9, "{seed} {rank}");
            }
            assert!(view.by_rank(200.0).is_infinite());
            let mean = exact[20..180].iter().sum::<f64>() / 160.0;
            assert!((view.trimmed_mean(0.1, 0.9) / mean - 1.0).abs() < 1e-9, "{seed}");
            digest.compress();
            digest.check_invariants();
        }
    }
}

#[test] // For any weights in any order.
fn quantiles_are_monotonic() {
    let mut prng = Prng::from_seed(9);
    for round in 0..50 {
        let mut digest = Digest::new(1 + prng.below(200)).unwrap();
        for _ in 0..prng.below(3_000) + 1 {
            let mean = (unit(&mut prng) - 0.5) * 10_f64.powi(prng.below(300) as i32);
            let weight = 1 + prng.below(3) * prng.below(1_000);
            digest.add(Node { mean, weight }).unwrap();
        }
        digest.check_invariants();
        let view = digest.view();
        let values: Vec<f64> = (0..=100).map(|at| view.quantile(f64::from(at) / 100.0)).collect();
        assert!(values.is_sorted(), "{round}: {values:?}");
        let back: Vec<f64> = values.iter().map(|value| view.below(*value)).collect();
        assert!(back.iter().all(|place| *place >= 0.0 && *place <= view.weight()));
        assert!(back.is_sorted(), "{round}: {back:?}");
    }
}

#[test]
fn too_many_observations_are_refused() {
    let mut digest = Digest::new(10).unwrap();
    let half = Node { mean: 1.0, weight: i64::MAX as u64 / 2 };
    assert!(digest.add(half).is_ok() && digest.add(half).is_ok());
    assert!(digest.add(Node { mean: 2.0, weight: 1 }).is_ok());
    assert!(digest.add(Node { mean: 2.0, weight: 1 }).is_err());
    assert_eq!(digest.weight(), i64::MAX as u64);
    assert!(Digest::new(0).is_none() && Digest::new(10_001).is_none());
}

#[test]
fn damaged_digests_are_refused_or_read_as_valid_ones() {
    let (digest, _) = digest(4, 60, 5_000, unit);
    let value = TDigest::of(digest);
    assert!(parts(&value).len() >= 3);
    survives_damage(&value, 2_000);
}

/// The parts of a file: a head, and nodes of these weights.
fn written(compression: u64, compressions: u64, nodes: &[(f64, u64)]) -> Vec<Vec<u8>> {
    let head = [compression, 1_f64.to_bits(), 2_f64.to_bits(), compressions];
    let nodes = nodes.iter().flat_map(|(mean, weight)| [mean.to_bits(), *weight]);
    let part = |tag: u8, words: Vec<u64>| {
        std::iter::once(tag).chain(words.into_iter().flat_map(u64::to_le_bytes)).collect()
    };
    vec![part(b'h', head.to_vec()), part(b'm', nodes.collect())]
}

#[test] // All others are used as they are.
fn out_of_range_numbers_in_a_digest_file_are_refused() {
    let mut value: TDigest = of_parts(&written(10, u64::MAX, &[(1.5, 3)])).unwrap();
    for _ in 0..200 {
        let pair = NewItem::Pair { name: b"", value: Fresh::Bytes(b"1.5"), deadline: None };
        assert!(value.take_in(pair));
    }
    assert_eq!((value.digest().compressions(), value.digest().weight()), (u64::MAX, 203));
    let clusters = |count: usize| of_parts::<TDigest>(&written(10, 1, &vec![(1.5, 1); count]));
    assert!(clusters(40).is_some() && clusters(41).is_none());
}

#[test] // A command adds all of its observations, or none.
fn observations_beyond_the_count_limit_are_all_refused() {
    let key = Key::new(b"k");
    let mut world = World::new(1, 1_000_000, 5);
    let value: TDigest = of_parts(&written(10, 1, &[(1.5, i64::MAX as u64 - 2)])).unwrap();
    let object = Object::new(value);
    world.edit(b"k", |db| db.install(&key, object, Deadline::Clear, &[]));
    let weight = |world: &World| {
        world.edit(b"k", |db| db.value::<TDigest>(&key).unwrap().unwrap().digest().weight())
    };
    let reply = world.run(&[b"TDIGEST.ADD", b"k", b"1", b"1", b"1"]);
    assert!(reply.starts_with(b"-") && weight(&world) == i64::MAX as u64 - 2);
    assert_eq!(world.run(&[b"TDIGEST.ADD", b"k", b"1", b"1"]), b"+OK\r\n");
    assert_eq!(weight(&world), i64::MAX as u64);
}
