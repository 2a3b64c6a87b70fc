//! Tests that run random commands on few keys and compare the sets with naive ones: members that
//! expire, sets of few members and of many, and commands with few arguments and with so many that
//! the work is sliced.

use crate::common::Bytes;
use crate::common::value::Value;
use crate::common::world::World;
use darter_base::Prng;
use std::collections::{BTreeMap, BTreeSet};

/// The expected sets: members with their deadlines.
#[derive(Default)]
struct Model {
    sets: BTreeMap<Bytes, BTreeMap<Bytes, Option<u64>>>,
    now: u64,
}

impl Model {
    fn living(&self, key: &[u8]) -> BTreeSet<Bytes> {
        let alive = |at: &Option<u64>| at.is_none_or(|at| at > self.now);
        let set = self.sets.get(key).into_iter().flatten();
        set.filter(|(_, at)| alive(at)).map(|(member, _)| member.clone()).collect()
    }

    fn combine(&self, name: &str, keys: &[Bytes]) -> BTreeSet<Bytes> {
        let mut sets = keys.iter().map(|key| self.living(key));
        let first = sets.next().unwrap();
        sets.fold(first, |sum, set| match &name[..5] {
            "sinte" => &sum & &set,
            "sunio" => &sum | &set,
            _ => &sum - &set,
        })
    }

    fn put(&mut self, key: &[u8], members: BTreeSet<Bytes>) {
        self.sets.insert(key.to_vec(), members.into_iter().map(|m| (m, None)).collect());
    }
}

fn int(value: usize) -> Value {
    Value::Int(i64::try_from(value).unwrap())
}

fn sorted(value: &Value) -> BTreeSet<Bytes> {
    let members = value.clone().bulks();
    let set: BTreeSet<Bytes> = members.iter().cloned().collect();
    assert_eq!(set.len(), members.len(), "a member is there twice");
    set
}

struct Test {
    world: World,
    model: Model,
    prng: Prng,
    /// How many different members the test draws from.
    universe: u64,
}

const KEYS: u64 = 6;

impl Test {
    fn key(&mut self) -> Bytes {
        format!("set:{}", self.prng.below(KEYS)).into_bytes()
    }

    fn keys(&mut self, most: u64) -> Vec<Bytes> {
        (0..=self.prng.below(most)).map(|_| self.key()).collect()
    }

    fn member(&mut self) -> Bytes {
        let number = self.prng.below(self.universe);
        match number % 3 {
            0 => format!("{number}").into_bytes(),
            1 => format!("member:{number}").into_bytes(),
            _ => format!("{number:08x}-9dad-11d1-80b4-00c04fd430c8").into_bytes(),
        }
    }

    fn members(&mut self) -> Vec<Bytes> {
        let most = if self.prng.chance(20) { self.universe } else { 8 };
        (0..=self.prng.below(most)).map(|_| self.member()).collect()
    }

    fn run(&mut self, name: &str, args: &[Bytes]) -> Value {
        let mut all: Vec<&[u8]> = vec![name.as_bytes()];
        all.extend(args.iter().map(|arg| &arg[..]));
        super::run(&mut self.world, &all)
    }

    fn step(&mut self) {
        match self.prng.below(14) {
            0..=2 => self.add(),
            3 => self.add_with_deadline(),
            4 => self.remove(),
            5 => self.ask(),
            6 | 7 => self.combine(),
            8 => self.count(),
            9 => self.store(),
            10 => self.pop(),
            11 => self.sample(),
            12 => self.shift(),
            _ => self.scan(),
        }
        if self.prng.chance(10) {
            let ms = self.prng.below(2_000);
            self.model.now += ms;
            self.world.set_now(self.model.now);
        }
    }

    fn add(&mut self) {
        let (key, members) = (self.key(), self.members());
        let before = self.model.living(&key);
        let new: BTreeSet<_> = members.iter().filter(|m| !before.contains(*m)).cloned().collect();
        let args = [vec![key.clone()], members].concat();
        assert_eq!(self.run("sadd", &args), int(new.len()));
        let set = self.model.sets.entry(key).or_default();
        set.extend(new.into_iter().map(|member| (member, None)));
    }

    fn add_with_deadline(&mut self) {
        let (key, members, keep) = (self.key(), self.members(), self.prng.chance(50));
        let seconds = 1 + self.prng.below(3);
        let before = self.model.living(&key);
        let mut args = vec![key.clone()];
        args.extend(keep.then(|| b"keepttl".to_vec()));
        args.push(seconds.to_string().into_bytes());
        args.extend(members.iter().cloned());
        let distinct: BTreeSet<_> = members.into_iter().collect();
        assert_eq!(self.run("saddex", &args), int(distinct.difference(&before).count()));
        let at = self.model.now + seconds * 1_000;
        let set = self.model.sets.entry(key).or_default();
        for member in distinct {
            if !(keep && before.contains(&member)) {
                set.insert(member, Some(at));
            }
        }
    }

    fn remove(&mut self) {
        let (key, members) = (self.key(), self.members());
        let before = self.model.living(&key);
        let distinct: BTreeSet<_> = members.iter().cloned().collect();
        let args = [vec![key.clone()], members].concat();
        assert_eq!(self.run("srem", &args), int(before.intersection(&distinct).count()));
        self.model.sets.entry(key).or_default().retain(|member, _| !distinct.contains(member));
    }

    fn ask(&mut self) {
        let key = self.key();
        let living = self.model.living(&key);
        assert_eq!(self.run("scard", std::slice::from_ref(&key)), int(living.len()));
        assert_eq!(sorted(&self.run("smembers", std::slice::from_ref(&key))), living);
        let members = self.members();
        let expected: Vec<_> =
            members.iter().map(|m| int(usize::from(living.contains(m)))).collect();
        assert_eq!(self.run("sismember", &[key.clone(), members[0].clone()]), expected[0]);
        let args = [vec![key], members].concat();
        assert_eq!(self.run("smismember", &args), Value::Array(expected));
    }

    fn combine(&mut self) {
        let name = *self.prng.weighted(&[(1, "sinter"), (1, "sunion"), (1, "sdiff")]);
        let most = if self.prng.chance(20) { 12 } else { 4 };
        let keys = self.keys(most);
        let reply = self.run(name, &keys);
        assert!(matches!(reply, Value::Set(_)));
        assert_eq!(sorted(&reply), self.model.combine(name, &keys), "{name} {}", keys.len());
    }

    fn count(&mut self) {
        let name = *self.prng.weighted(&[(1, "sintercard"), (1, "sunioncard"), (1, "sdiffcard")]);
        let keys = self.keys(8);
        let exact = self.model.combine(name, &keys).len();
        let mut args = vec![keys.len().to_string().into_bytes()];
        args.extend(keys);
        let mut expected = exact;
        if self.prng.chance(50) {
            let limit = self.prng.below(40);
            args.extend([b"LIMIT".to_vec(), limit.to_string().into_bytes()]);
            if limit > 0 {
                expected = exact.min(usize::try_from(limit).unwrap());
            }
        }
        assert_eq!(self.run(name, &args), int(expected), "{name}");
        if name == "sunioncard" {
            args.push(b"approx".to_vec());
            let Value::Int(about) = self.run(name, &args) else { panic!("no count") };
            let error = usize::try_from(about).unwrap().abs_diff(expected);
            assert!(error * 100 <= expected * 3 + 300, "{about} {expected}");
        }
    }

    fn store(&mut self) {
        let name =
            *self.prng.weighted(&[(1, "sinterstore"), (1, "sunionstore"), (1, "sdiffstore")]);
        let (target, keys) = (self.key(), self.keys(5));
        let result = self.model.combine(name, &keys);
        let args = [vec![target.clone()], keys].concat();
        assert_eq!(self.run(name, &args), int(result.len()), "{name}");
        let reply = self.run("smembers", std::slice::from_ref(&target));
        assert_eq!(sorted(&reply), result);
        self.model.put(&target, result);
    }

    fn pop(&mut self) {
        let key = self.key();
        let living = self.model.living(&key);
        if self.prng.chance(30) {
            let popped = match self.run("spop", std::slice::from_ref(&key)) {
                Value::Bulk(member) => vec![member],
                other => {
                    assert_eq!(other, Value::Null);
                    assert!(living.is_empty());
                    return;
                }
            };
            self.popped(&key, &living, &popped);
            return;
        }
        let most = *self.prng.weighted(&[(1, 4), (1, 100), (2, self.universe)]);
        let count = usize::try_from(self.prng.below(most)).unwrap();
        let reply = self.run("spop", &[key.clone(), count.to_string().into_bytes()]);
        let popped = reply.clone().bulks();
        assert_eq!(popped.len(), count.min(living.len()));
        assert_eq!(sorted(&reply).len(), popped.len());
        self.popped(&key, &living, &popped);
    }

    fn popped(&mut self, key: &[u8], living: &BTreeSet<Bytes>, popped: &[Bytes]) {
        for member in popped {
            assert!(living.contains(member));
            self.model.sets.get_mut(key).unwrap().remove(member);
        }
    }

    fn sample(&mut self) {
        let key = self.key();
        let living = self.model.living(&key);
        let most = *self.prng.weighted(&[(1, 4), (1, 100), (1, self.universe)]);
        let count = 1 + usize::try_from(self.prng.below(most)).unwrap();
        let reply = self.run("srandmember", &[key.clone(), count.to_string().into_bytes()]);
        assert!(matches!(reply, Value::Array(_)));
        assert!(sorted(&reply).is_subset(&living));
        assert_eq!(reply.clone().bulks().len(), count.min(living.len()));
        let reply = self.run("srandmember", &[key.clone(), format!("-{count}").into_bytes()]);
        assert_eq!(reply.clone().bulks().len(), if living.is_empty() { 0 } else { count });
        assert!(reply.clone().bulks().iter().all(|member| living.contains(member)));
        match self.run("srandmember", &[key]) {
            Value::Bulk(member) => assert!(living.contains(&member)),
            other => assert!(other == Value::Null && living.is_empty()),
        }
    }

    fn shift(&mut self) {
        let (from, to, member) = (self.key(), self.key(), self.member());
        let moved = self.model.living(&from).contains(&member);
        let args = [from.clone(), to.clone(), member.clone()];
        assert_eq!(self.run("smove", &args), int(usize::from(moved)));
        if moved && from != to {
            let there = self.model.living(&to).contains(&member);
            let deadline = self.model.sets.get_mut(&from).unwrap().remove(&member).unwrap();
            if !there {
                self.model.sets.entry(to).or_default().insert(member, deadline);
            }
        }
    }

    fn scan(&mut self) {
        let key = self.key();
        let count = *self.prng.weighted(&[(1, "1"), (1, "300"), (1, "1000000000")]);
        let (mut cursor, mut seen) = (b"0".to_vec(), BTreeSet::new());
        loop {
            let args = [key.clone(), cursor, b"COUNT".to_vec(), count.as_bytes().to_vec()];
            let Value::Array(parts) = self.run("sscan", &args) else { panic!("no array") };
            seen.extend(parts[1].clone().bulks());
            let Value::Bulk(next) = &parts[0] else { panic!("no cursor") };
            if next == b"0" {
                break;
            }
            assert_ne!(count, "1000000000");
            cursor = next.clone();
        }
        assert_eq!(seen, self.model.living(&key));
        let pattern = [b"MATCH".to_vec(), b"member:*1".to_vec()];
        let args =
            [vec![key, b"0".to_vec()], pattern.to_vec(), vec![b"COUNT".to_vec(), b"9999".to_vec()]];
        let Value::Array(parts) = self.run("sscan", &args.concat()) else { panic!("no array") };
        let fits = |m: &&Bytes| m.starts_with(b"member:") && m.ends_with(b"1");
        let expected: BTreeSet<Bytes> = seen.iter().filter(fits).cloned().collect();
        assert_eq!(sorted(&parts[1]), expected);
    }
}

#[test]
fn random_set_commands_agree_with_a_model() {
    for seed in 0..24 {
        let cores = [1, 3][seed as usize % 2];
        let universe = [12, 300, 3_000, 9_000][seed as usize / 2 % 4];
        let mut test = Test {
            world: super::world(cores, seed),
            model: Model { now: super::NOW, ..Model::default() },
            prng: Prng::from_seed(seed),
            universe,
        };
        for step in 0..150 {
            test.step();
            if step % 10 == 0 {
                test.world.check();
            }
        }
    }
}
