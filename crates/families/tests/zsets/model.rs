//! Tests that run random commands on few keys and compare the sorted sets with naive maps: few
//! members and many, commands of so many members that the work is sliced, and sets among the
//! inputs.

use super::{NOW, run};
use crate::common::Bytes;
use crate::common::value::Value;
use crate::common::world::World;
use darter_base::Prng;
use std::collections::BTreeMap;

type Scores = BTreeMap<Bytes, i64>;

/// The expected sorted sets. Scores are integers, so that sums do not depend on the order of
/// addition.
#[derive(Default)]
struct Model {
    keys: BTreeMap<Bytes, Scores>,
}

impl Model {
    fn get(&self, key: &[u8]) -> Scores {
        self.keys.get(key).cloned().unwrap_or_default()
    }

    /// The entries at `key`, in the order of scores, then of members.
    fn entries(&self, key: &[u8]) -> Vec<(i64, Bytes)> {
        let mut entries: Vec<_> =
            self.get(key).into_iter().map(|(member, score)| (score, member)).collect();
        entries.sort();
        entries
    }

    fn combine(&self, name: &str, keys: &[Bytes], weights: &[i64]) -> Scores {
        let mut all = keys.iter().zip(weights).map(|(key, weight)| {
            let weighted = |(member, score)| (member, score * weight);
            self.get(key).into_iter().map(weighted).collect::<Scores>()
        });
        if name.starts_with("zdiff") {
            let mut first = self.get(&keys[0]);
            keys[1..].iter().for_each(|key| {
                let other = self.get(key);
                first.retain(|member, _| !other.contains_key(member));
            });
            return first;
        }
        let first = all.next().unwrap();
        all.fold(first, |sum, other| {
            let mut both = sum.clone();
            if name.starts_with("zinter") {
                both.retain(|member, _| other.contains_key(member));
                both.iter_mut().for_each(|(member, score)| *score += other[member]);
            } else {
                other
                    .into_iter()
                    .for_each(|(member, score)| *both.entry(member).or_default() += score);
            }
            both
        })
    }
}

fn int(value: usize) -> Value {
    Value::Int(i64::try_from(value).unwrap())
}

fn text(value: impl ToString) -> Bytes {
    value.to_string().into_bytes()
}

/// Members and scores, as a reply shows them.
fn shown(entries: &[(i64, Bytes)]) -> Vec<Bytes> {
    entries.iter().flat_map(|(score, member)| [member.clone(), text(score)]).collect()
}

struct Test {
    world: World,
    model: Model,
    prng: Prng,
    /// How many different members the test draws from.
    universe: u64,
}

const KEYS: u64 = 4;

impl Test {
    fn key(&mut self) -> Bytes {
        format!("z:{}", self.prng.below(KEYS)).into_bytes()
    }

    fn member(&mut self) -> Bytes {
        format!("member:{}", self.prng.below(self.universe)).into_bytes()
    }

    fn run(&mut self, words: &[Bytes]) -> Value {
        let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        run(&mut self.world, &words)
    }

    fn many(&mut self) -> u64 {
        let most = if self.prng.chance(30) { self.universe } else { 6 };
        1 + self.prng.below(most)
    }

    fn add(&mut self) {
        let (key, option) = (self.key(), self.prng.below(5));
        let mut words = vec![text("zadd"), key.clone()];
        words.extend(["NX", "XX", "GT", "LT"].get(option as usize).map(text));
        words.push(text("CH"));
        let (set, mut changed) = (self.model.keys.entry(key.clone()).or_default().clone(), 0);
        let mut set = set;
        for _ in 0..self.many() {
            let (member, score) = (self.member(), self.prng.below(60).cast_signed() - 20);
            words.extend([text(score), member.clone()]);
            let old = set.get(&member).copied();
            let may = match (option, old) {
                (0, old) => old.is_none(),
                (1, old) => old.is_some(),
                (2, Some(old)) => score > old,
                (3, Some(old)) => score < old,
                _ => true,
            };
            if may && old != Some(score) {
                set.insert(member, score);
                changed += 1;
            }
        }
        self.model.keys.insert(key, set);
        assert_eq!(self.run(&words), int(changed));
    }

    fn remove(&mut self) {
        let key = self.key();
        let mut words = vec![text("zrem"), key.clone()];
        let (mut set, mut removed) = (self.model.get(&key), 0);
        for _ in 0..self.many() {
            let member = self.member();
            removed += usize::from(set.remove(&member).is_some());
            words.push(member);
        }
        self.model.keys.insert(key, set);
        assert_eq!(self.run(&words), int(removed));
    }

    /// Removes a range, or the members at one end.
    fn cut(&mut self) {
        let key = self.key();
        let mut entries = self.model.entries(&key);
        let at = self.prng.below(entries.len() as u64 + 1) as usize;
        let to = at + self.prng.below((entries.len() - at) as u64 + 1) as usize;
        let reply = match self.prng.below(4) {
            0 => self.run(&[text("zpopmin"), key.clone(), text(to)]),
            1 => self.run(&[text("zpopmax"), key.clone(), text(entries.len() - at)]),
            2 => {
                let words = [text("zremrangebyrank"), key.clone(), text(at), text(to as i64 - 1)];
                // A last rank of -1 means the last member.
                let words = if to == 0 {
                    [text("zremrangebyrank"), key.clone(), text(1), text(0)]
                } else {
                    words
                };
                self.run(&words)
            }
            _ => {
                let (min, max) = (self.prng.below(40), self.prng.below(40));
                let words =
                    [text("zremrangebyscore"), key.clone(), text(min), text(format!("({max}"))];
                let inside = |score: i64| score >= min as i64 && score < max as i64;
                let before = entries.len();
                entries.retain(|(score, _)| !inside(*score));
                assert_eq!(self.run(&words), int(before - entries.len()));
                Value::Null
            }
        };
        match reply {
            Value::Null => {}
            Value::Int(removed) => {
                assert_eq!(removed as usize, to - at);
                entries.drain(at..to);
            }
            popped => {
                let popped = popped.bulks();
                let front = popped == shown(&entries[..to]);
                let mut back = entries[at..].to_vec();
                back.reverse();
                assert!(front || popped == shown(&back));
                entries = if front { entries[to..].to_vec() } else { entries[..at].to_vec() };
            }
        }
        let set = entries.into_iter().map(|(score, member)| (member, score)).collect();
        self.model.keys.insert(key, set);
    }

    fn combine(&mut self) {
        let name = ["zunion", "zinter", "zdiff"][self.prng.below(3) as usize];
        let keys: Vec<Bytes> = (0..=self.prng.below(3)).map(|_| self.key()).collect();
        let mut weights = vec![1; keys.len()];
        let mut words = vec![text(keys.len())];
        words.extend(keys.iter().cloned());
        if name != "zdiff" && self.prng.chance(50) {
            weights.iter_mut().for_each(|weight| *weight = 1 + self.prng.below(4).cast_signed());
            words.push(text("WEIGHTS"));
            words.extend(weights.iter().map(text));
        }
        let result = self.model.combine(name, &keys, &weights);
        if self.prng.chance(50) {
            let target = self.key();
            let head = [text(format!("{name}store")), target.clone()];
            assert_eq!(self.run(&[&head[..], &words].concat()), int(result.len()));
            self.model.keys.insert(target, result);
            return;
        }
        let mut entries: Vec<_> =
            result.into_iter().map(|(member, score)| (score, member)).collect();
        entries.sort();
        words.insert(0, text(name));
        words.push(text("WITHSCORES"));
        assert_eq!(self.run(&words).bulks(), shown(&entries), "{name}");
    }

    fn store_range(&mut self) {
        let (source, target) = (self.key(), self.key());
        let entries = self.model.entries(&source);
        let at = self.prng.below(entries.len() as u64 + 1) as usize;
        let words = [text("zrangestore"), target.clone(), source, text(at), text(-1)];
        let rest = entries[at..].iter().map(|(score, member)| (member.clone(), *score)).collect();
        assert_eq!(self.run(&words), int(entries.len() - at));
        self.model.keys.insert(target, rest);
    }

    fn look(&mut self) {
        let key = self.key();
        let mut entries = self.model.entries(&key);
        let all = self.run(&[text("zrange"), key.clone(), text(0), text(-1), text("WITHSCORES")]);
        assert_eq!(all.bulks(), shown(&entries));
        assert_eq!(self.run(&[text("zcard"), key.clone()]), int(entries.len()));
        let member = self.member();
        let rank = entries.iter().position(|(_, other)| *other == member);
        let reply = self.run(&[text("zrank"), key.clone(), member.clone()]);
        assert_eq!(reply, rank.map_or(Value::Null, int));
        let score = rank.map_or(Value::Null, |rank| Value::Bulk(text(entries[rank].0)));
        assert_eq!(self.run(&[text("zscore"), key.clone(), member]), score);
        let min = self.prng.below(40).cast_signed() - 20;
        entries.retain(|(score, _)| *score > min);
        entries.reverse();
        let min = text(format!("({min}"));
        let words =
            [text("zrevrangebyscore"), key.clone(), text("+inf"), min.clone(), text("WITHSCORES")];
        assert_eq!(self.run(&words).bulks(), shown(&entries));
        let count = self.run(&[text("zcount"), key, min, text("inf")]);
        assert_eq!(count, int(entries.len()));
    }

    fn step(&mut self) {
        match self.prng.below(12) {
            0..4 => self.add(),
            4 | 5 => self.remove(),
            6 => self.cut(),
            7 | 8 => self.combine(),
            9 => self.store_range(),
            _ => self.look(),
        }
        self.model.keys.retain(|_, set| !set.is_empty());
    }
}

#[test]
fn random_zset_commands_agree_with_a_model() {
    for (seed, cores, universe) in [(1, 1, 12), (2, 3, 300), (3, 2, 3_000), (4, 1, 3_000)] {
        let world = World::new(cores, NOW, seed);
        let prng = Prng::from_seed(seed);
        let mut test = Test { world, model: Model::default(), prng, universe };
        for _ in 0..if universe > 1_000 { 120 } else { 600 } {
            test.step();
        }
        test.world.check();
    }
}
