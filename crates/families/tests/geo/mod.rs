//! Searches of every length are compared with a walk over all members.

use crate::common::Bytes;
use crate::common::value::Value;
use crate::common::world::World;
use darter_base::Prng;
use std::collections::BTreeMap;

/// The start time of all tests, in Unix milliseconds.
const NOW: u64 = 1_000;
/// The radius of the sphere.
const RADIUS_KM: f64 = 6_372.797_560_856;

/// Runs a command, written as one line.
fn run(world: &mut World, line: &str) -> Value {
    Value::read(&world.run(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()))
}

/// Kilometres between two places, by the angle between them as vectors.
fn distance([from, to]: [(f64, f64); 2]) -> f64 {
    let vector = |(longitude, latitude): (f64, f64)| {
        let (longitude, latitude) = (longitude.to_radians(), latitude.to_radians());
        let across = latitude.cos();
        [across * longitude.cos(), across * longitude.sin(), latitude.sin()]
    };
    let (from, to) = (vector(from), vector(to));
    let half: f64 = (0..3).map(|at| (from[at] - to[at]).powi(2)).sum::<f64>().sqrt() / 2.0;
    2.0 * half.min(1.0).asin() * RADIUS_KM
}

fn bulks(value: Value) -> Vec<String> {
    value.bulks().into_iter().map(|bulk| String::from_utf8(bulk).unwrap()).collect()
}

/// Members and their places, which are also at the key `g`.
fn scatter(world: &mut World, prng: &mut Prng, count: u64) -> BTreeMap<String, (f64, f64)> {
    let mut places = BTreeMap::new();
    for number in 0..count {
        let degrees = |prng: &mut Prng, most: u64| {
            (prng.below(2_000 * most) as f64 - 1_000.0 * most as f64) / 1_000.0
        };
        let (longitude, latitude) = (degrees(prng, 180), degrees(prng, 85));
        places.insert(format!("m{number}"), (longitude, latitude));
    }
    let members: Vec<_> = places.iter().collect();
    for some in members.chunks(300) {
        let place = |(name, (x, y)): &(&String, &(f64, f64))| format!(" {x} {y} {name}");
        let all: String = some.iter().map(place).collect();
        assert_eq!(run(world, &format!("GEOADD g{all}")), Value::Int(some.len() as i64));
    }
    places
}

/// The expected reply to a search of `g`, nearest first: all members within, by the model.
fn expected(
    places: &BTreeMap<String, (f64, f64)>,
    center: (f64, f64),
    radius: f64,
) -> Vec<(f64, String)> {
    let mut found: Vec<_> = places
        .iter()
        .map(|(name, place)| (distance([center, *place]), name.clone()))
        .filter(|(distance, _)| *distance <= radius)
        .collect();
    found.sort_by(|one, other| one.0.total_cmp(&other.0));
    found
}

/// Whether two orders agree, but for members nearly as far as each other: a score keeps half a metre.
fn agree(expected: &[(f64, String)], shown: &[String]) -> bool {
    let far: BTreeMap<&String, f64> = expected.iter().map(|(far, name)| (name, *far)).collect();
    expected.len() == shown.len()
        && shown.iter().zip(expected).all(|(name, (distance, _))| {
            far.get(name).is_some_and(|far| (far - distance).abs() < 0.002)
        })
}

// Searches in a pack, in a tree, and in one that takes slices; near, far, and of everything.
#[test]
fn searches_find_all_members_within_the_shape() {
    for (seed, count, cores) in [(1, 100, 1), (2, 2_000, 2), (3, 20_000, 3)] {
        let (mut world, mut prng) = (World::new(cores, NOW, seed), Prng::from_seed(seed));
        let places = scatter(&mut world, &mut prng, count);
        for round in 0..60 {
            let center = (prng.below(360) as f64 - 180.0, prng.below(140) as f64 - 70.0);
            let radius = [50.0, 700.5, 3_000.25, 9_000.75, 30_000.0][round % 5];
            let all = expected(&places, center, radius);
            // A member about as far as the radius may be shown or not.
            if all.iter().any(|(far, _)| (far - radius).abs() < 0.01) {
                continue;
            }
            let what = format!("FROMLONLAT {} {} BYRADIUS {radius} km", center.0, center.1);
            let nearest = bulks(run(&mut world, &format!("GEOSEARCH g {what} ASC")));
            assert!(agree(&all, &nearest), "{what}: {} {}", all.len(), nearest.len());
            let mut farthest = bulks(run(&mut world, &format!("GEOSEARCH g {what} DESC")));
            farthest.reverse();
            assert!(agree(&all, &farthest), "{what}");
            for most in [1, 10, 700] {
                let some = bulks(run(&mut world, &format!("GEOSEARCH g {what} COUNT {most}")));
                assert!(agree(&all[..most.min(all.len())], &some), "{what} COUNT {most}");
                let any = run(&mut world, &format!("GEOSEARCH g {what} COUNT {most} ANY"));
                let mut any = bulks(any);
                assert_eq!(any.len(), most.min(all.len()), "{what} COUNT {most} ANY");
                any.sort();
                any.dedup();
                assert!(any.iter().all(|name| nearest.contains(name)), "{what}");
                assert_eq!(any.len(), most.min(all.len()), "each once");
            }
            let stored = run(&mut world, &format!("GEOSEARCHSTORE d g {what} STOREDIST"));
            assert_eq!(stored, Value::Int(all.len() as i64));
            assert!(agree(&all, &bulks(run(&mut world, "ZRANGE d 0 -1"))), "{what}");
            let task = format!("GEORADIUS g {} {} {radius} km ASC", center.0, center.1);
            assert_eq!(bulks(run(&mut world, &task)), nearest, "{what}");
        }
    }
}

#[test] // Members at equal distance keep the order in which they are found.
fn long_and_short_searches_reply_alike() {
    let mut world = World::new(1, NOW, 4);
    let mut names = Vec::new();
    for number in 0..6_000 {
        names.push(format!("m{number:05}"));
        run(&mut world, &format!("GEOADD g 1 1 m{number:05}"));
    }
    let search = "GEOSEARCH g FROMLONLAT 2 2 BYRADIUS 1000 km";
    for order in ["", " ASC", " DESC", " COUNT 6000", " COUNT 10000 DESC"] {
        assert_eq!(bulks(run(&mut world, &format!("{search}{order}"))), names, "{order}");
    }
    for most in [1, 100, 512, 513, 5_999] {
        for order in ["", " ANY", " ANY ASC", " DESC"] {
            let some = bulks(run(&mut world, &format!("{search} COUNT {most}{order}")));
            assert_eq!(some, names[..most], "COUNT {most}{order}");
        }
    }
    for (most, options) in [(6_000, ""), (6_000, " STOREDIST"), (5_000, " COUNT 5000")] {
        let store = "GEOSEARCHSTORE d g FROMLONLAT 2 2 BYRADIUS 1000 km";
        let stored = run(&mut world, &format!("{store}{options}"));
        assert_eq!(stored, Value::Int(most as i64), "{options}");
        assert_eq!(bulks(run(&mut world, "ZRANGE d 0 -1")), names[..most], "{options}");
    }
}

#[test]
fn members_with_long_names_are_found() {
    let mut world = World::new(2, NOW, 5);
    let long: Bytes = vec![b'x'; 100_000];
    for number in 0..3_000 {
        run(&mut world, &format!("GEOADD g 1 {}.5 m{number}", number % 80));
    }
    Value::read(&world.run(&[b"GEOADD", b"g", b"1", b"1", &long, b"1", b"1.1", b"short"]));
    let near = run(&mut world, "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 20 km ASC");
    assert_eq!(near.bulks(), [long.clone(), b"short".to_vec()]);
    let all = run(&mut world, "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 20000 km ASC").bulks();
    assert_eq!((all.len(), &all[0], &all[1][..]), (3_002, &long, &b"short"[..]));
    assert_eq!(run(&mut world, "GEOSEARCHSTORE d g FROMLONLAT 1 1 BYRADIUS 20 km"), Value::Int(2));
    let stored = run(&mut world, "ZRANGE d 0 -1").bulks();
    assert!(stored.contains(&long));
}

#[test] // On a flat map; a circle is approximated by many corners.
fn polygons_contain_the_points_between_their_corners() {
    let (mut world, mut prng) = (World::new(1, NOW, 6), Prng::from_seed(6));
    let places = scatter(&mut world, &mut prng, 4_000);
    for corners in [3_usize, 40, 1_024] {
        let corner = |at: usize| {
            let angle = at as f64 / corners as f64 * std::f64::consts::TAU;
            (20.0 + 31.0 * angle.cos(), 10.0 + 33.0 * angle.sin())
        };
        let line: String =
            (0..corners).map(|at| format!(" {} {}", corner(at).0, corner(at).1)).collect();
        let found = bulks(run(&mut world, &format!("GEOSEARCH g BYPOLYGON {corners}{line}")));
        let is_left = |at: usize, (x, y): (f64, f64)| {
            let ((ax, ay), (bx, by)) = (corner(at), corner((at + 1) % corners));
            (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0.0
        };
        let inside = places.iter().filter(|(_, place)| (0..corners).all(|at| is_left(at, **place)));
        let expected: Vec<_> = inside.map(|(name, _)| name.clone()).collect();
        let mut sorted = found.clone();
        sorted.sort();
        assert!(expected.len() > 20, "{corners}: {}", expected.len());
        assert_eq!(sorted, expected, "{corners}");
    }
    let line = " 1 1".repeat(1_025);
    let refused = run(&mut world, &format!("GEOSEARCH g BYPOLYGON 1025{line}"));
    let text = "ERR GEOSEARCH BYPOLYGON must have at most 1024 vertices";
    assert_eq!(refused, Value::Error(text.into()));
    let options = " ASC".repeat(100);
    let refused = run(&mut world, &format!("GEOSEARCH g FROMMEMBER m1 BYRADIUS 1 m{options}"));
    assert_eq!(refused, Value::Error("ERR syntax error".into()));
}
