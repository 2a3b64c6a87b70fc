//! Random commands against a naive model: fields that die, hashes of a few fields and of many, few
//! arguments and so many that the work is sliced, cuts held during changes, reaping at any time.

use crate::common::engine::Engine;
use crate::common::value::Value;
use darter_base::Prng;
use darter_families::hash::Hash;
use darter_keyspace::{Held, Key};
use std::collections::{BTreeMap, BTreeSet};

type Bytes = Vec<u8>;
type Fields = BTreeMap<Bytes, (Bytes, Option<u64>)>;

struct Test {
    engine: Engine,
    model: BTreeMap<Bytes, Fields>,
    prng: Prng,
    /// Fields there can be.
    universe: u64,
    /// Cuts that someone reads, with what they must show.
    held: Vec<(Held, BTreeMap<Bytes, Bytes>, u64)>,
}

fn int(value: usize) -> Value {
    Value::Int(i64::try_from(value).unwrap())
}

impl Test {
    fn new(seed: u64, universe: u64) -> Self {
        Self {
            engine: Engine::new(1_000_000, seed),
            model: BTreeMap::new(),
            prng: Prng::from_seed(seed),
            universe,
            held: Vec::new(),
        }
    }

    fn key(&mut self) -> Bytes {
        format!("hash:{}", self.prng.below(3)).into_bytes()
    }

    fn field(&mut self) -> Bytes {
        let number = self.prng.below(self.universe);
        match number % 3 {
            0 => format!("{number}").into_bytes(),
            1 => format!("field:{number}").into_bytes(),
            _ => format!("{number:08x}-9dad-11d1-80b4-00c04fd430c8").into_bytes(),
        }
    }

    fn value(&mut self) -> Bytes {
        match self.prng.below(40) {
            0 => self.prng.bytes(500..=3_000),
            1 => vec![b'x'; 150_000],
            2..=20 => self.prng.below(1_000_000).to_string().into_bytes(),
            _ => self.prng.bytes(0..=20),
        }
    }

    fn fields(&mut self) -> Vec<Bytes> {
        let most = if self.prng.chance(15) { self.universe } else { 6 };
        (0..=self.prng.below(most)).map(|_| self.field()).collect()
    }

    fn living(&self, key: &[u8]) -> Fields {
        let now = self.engine.now;
        let alive = |at: &Option<u64>| at.is_none_or(|at| at > now);
        let fields = self.model.get(key).into_iter().flatten();
        fields.filter(|(_, (_, at))| alive(at)).map(|(f, v)| (f.clone(), v.clone())).collect()
    }

    fn put(&mut self, key: &[u8], fields: Fields) {
        self.model.insert(key.to_vec(), fields);
    }

    fn run(&mut self, name: &str, args: &[Bytes]) -> Value {
        let mut words: Vec<&[u8]> = vec![name.as_bytes()];
        words.extend(args.iter().map(|arg| &arg[..]));
        self.engine.resp3 = self.prng.chance(50);
        Value::read(&self.engine.run(&words))
    }

    fn step(&mut self) {
        match self.prng.below(16) {
            0..=2 => self.set(),
            3 => self.remove(),
            4 | 5 => self.expire(),
            6 => self.persist(),
            7 => self.set_with_deadline(),
            8 => self.get_and_change(),
            9 => self.get(),
            10 => self.whole(),
            11 => self.sample(),
            12 => self.scan(),
            13 => self.count(),
            14 => self.hold(),
            _ => self.pass_time(),
        }
        if self.prng.chance(5) {
            self.engine.db.check_invariants();
        }
    }

    fn set(&mut self) {
        let (key, fields) = (self.key(), self.fields());
        let mut args = vec![key.clone()];
        let mut model = self.living(&key);
        let mut new = 0;
        for field in fields {
            let value = self.value();
            args.extend([field.clone(), value.clone()]);
            new += usize::from(model.insert(field, (value, None)).is_none());
        }
        assert_eq!(self.run("HSET", &args), int(new));
        self.put(&key, model);
    }

    fn remove(&mut self) {
        let (key, fields) = (self.key(), self.fields());
        let mut model = self.living(&key);
        let gone = fields.iter().filter(|field| model.remove(*field).is_some()).count();
        assert_eq!(self.run("HDEL", &[vec![key.clone()], fields].concat()), int(gone));
        self.put(&key, model);
    }

    fn named(&self, fields: &[Bytes], width: usize) -> Vec<Bytes> {
        let count = (fields.len() / width).to_string().into_bytes();
        [vec![b"FIELDS".to_vec(), count], fields.to_vec()].concat()
    }

    fn expire(&mut self) {
        let (key, fields) = (self.key(), self.fields());
        let at = self.engine.now - 100 + self.prng.below(4_000);
        let when = ["", "NX", "XX", "GT", "LT"][usize::try_from(self.prng.below(5)).unwrap()];
        let mut model = self.living(&key);
        let mut expected = Vec::new();
        for field in &fields {
            let Some((_, old)) = model.get_mut(field) else {
                expected.push(Value::Int(-2));
                continue;
            };
            let allowed = match when {
                "NX" => old.is_none(),
                "XX" => old.is_some(),
                "GT" => old.is_some_and(|old| at > old),
                "LT" => old.is_none_or(|old| at < old),
                _ => true,
            };
            *old = if allowed { Some(at) } else { *old };
            let code = if !allowed {
                0
            } else if at <= self.engine.now {
                2
            } else {
                1
            };
            if code == 2 {
                model.remove(field);
            }
            expected.push(Value::Int(code));
        }
        let mut args = vec![key.clone(), at.to_string().into_bytes()];
        args.extend((!when.is_empty()).then(|| when.as_bytes().to_vec()));
        args.extend(self.named(&fields, 1));
        assert_eq!(self.run("HPEXPIREAT", &args), Value::Array(expected));
        self.put(&key, model);
    }

    fn persist(&mut self) {
        let (key, fields) = (self.key(), self.fields());
        let mut model = self.living(&key);
        let expected = fields
            .iter()
            .map(|field| match model.get_mut(field).map(|(_, at)| at.take()) {
                None => Value::Int(-2),
                Some(None) => Value::Int(-1),
                Some(Some(_)) => Value::Int(1),
            })
            .collect();
        let args = [vec![key.clone()], self.named(&fields, 1)].concat();
        assert_eq!(self.run("HPERSIST", &args), Value::Array(expected));
        self.put(&key, model);
    }

    fn set_with_deadline(&mut self) {
        let (key, fields) = (self.key(), self.fields());
        let mut model = self.living(&key);
        let pairs: Vec<_> = fields.into_iter().map(|field| (field, self.value())).collect();
        let guard = ["", "FNX", "FXX"][usize::try_from(self.prng.below(3)).unwrap()];
        let holds = pairs.iter().all(|(field, _)| match guard {
            "FNX" => !model.contains_key(field),
            "FXX" => model.contains_key(field),
            _ => true,
        });
        let at = self.engine.now + self.prng.below(4_000);
        let keep = self.prng.chance(30);
        let mut args = vec![key.clone()];
        args.extend((!guard.is_empty()).then(|| guard.as_bytes().to_vec()));
        if keep {
            args.push(b"KEEPTTL".to_vec());
        } else {
            args.extend([b"PXAT".to_vec(), at.to_string().into_bytes()]);
        }
        let flat: Vec<Bytes> =
            pairs.iter().flat_map(|(field, value)| [field.clone(), value.clone()]).collect();
        args.extend(self.named(&flat, 2));
        assert_eq!(self.run("HSETEX", &args), int(usize::from(holds)));
        if holds {
            for (field, value) in pairs {
                let old = model.get(&field).and_then(|(_, at)| *at);
                model.insert(field, (value, if keep { old } else { Some(at) }));
            }
        }
        self.put(&key, model);
    }

    fn get_and_change(&mut self) {
        let (key, fields) = (self.key(), self.fields());
        let mut model = self.living(&key);
        let at = self.engine.now - 50 + self.prng.below(2_000);
        let delete = self.prng.chance(40);
        let mut expected = Vec::new();
        for field in &fields {
            let gone = delete || at <= self.engine.now;
            let value = model.get(field).map(|(value, _)| value.clone());
            expected.push(value.clone().map_or(Value::Null, Value::Bulk));
            if gone {
                model.remove(field);
            } else if let Some(value) = value {
                model.insert(field.clone(), (value, Some(at)));
            }
        }
        let mut args = vec![key.clone()];
        if !delete {
            args.extend([b"PXAT".to_vec(), at.to_string().into_bytes()]);
        }
        args.extend(self.named(&fields, 1));
        let name = if delete { "HGETDEL" } else { "HGETEX" };
        assert_eq!(self.run(name, &args), Value::Array(expected));
        self.put(&key, model);
    }

    fn get(&mut self) {
        let (key, fields) = (self.key(), self.fields());
        let model = self.living(&key);
        let value = |field| model.get(field).map_or(Value::Null, |(v, _)| Value::Bulk(v.clone()));
        let expected = Value::Array(fields.iter().map(value).collect());
        let named = self.named(&fields, 1);
        let time = |field| match model.get(field) {
            None => Value::Int(-2),
            Some((_, at)) => Value::Int(at.map_or(-1, |at| i64::try_from(at).unwrap())),
        };
        let times = Value::Array(fields.iter().map(time).collect());
        assert_eq!(self.run("HMGET", &[vec![key.clone()], fields.clone()].concat()), expected);
        assert_eq!(self.run("HGETEX", &[vec![key.clone()], named.clone()].concat()), expected);
        assert_eq!(self.run("HPEXPIRETIME", &[vec![key], named].concat()), times);
    }

    fn whole(&mut self) {
        let key = self.key();
        let model = self.living(&key);
        let pairs = |list: Vec<Value>| -> BTreeMap<Bytes, Bytes> {
            let pairs: Vec<_> = list
                .chunks(2)
                .map(|pair| (pair[0].clone().bulk(), pair[1].clone().bulk()))
                .collect();
            let map: BTreeMap<_, _> = pairs.iter().cloned().collect();
            assert_eq!(map.len(), pairs.len(), "a field is there twice");
            map
        };
        let expected: BTreeMap<_, _> =
            model.iter().map(|(f, (v, _))| (f.clone(), v.clone())).collect();
        assert_eq!(pairs(self.run("HGETALL", std::slice::from_ref(&key)).list()), expected);
        let keys: Vec<_> = self.run("HKEYS", std::slice::from_ref(&key)).list();
        assert_eq!(keys.len(), expected.len());
        let keys: BTreeSet<_> = keys.into_iter().map(Value::bulk).collect();
        assert!(keys.iter().eq(expected.keys()));
        let mut values: Vec<_> =
            self.run("HVALS", &[key]).list().into_iter().map(Value::bulk).collect();
        let mut wanted: Vec<_> = expected.into_values().collect();
        values.sort();
        wanted.sort();
        assert_eq!(values, wanted);
    }

    fn sample(&mut self) {
        let key = self.key();
        let model = self.living(&key);
        let count = self.prng.below(self.universe + 3);
        let negative = count > 0 && self.prng.chance(40);
        let text = if negative { format!("-{count}") } else { count.to_string() };
        let list = self.run("HRANDFIELD", &[key, text.into_bytes(), b"WITHVALUES".to_vec()]).list();
        let flat: Vec<Value> =
            if self.engine.resp3 { list.into_iter().flat_map(Value::list).collect() } else { list };
        let count = usize::try_from(count).unwrap();
        let expected = match (negative, model.len()) {
            (_, 0) => 0,
            (true, _) => count,
            (false, len) => count.min(len),
        };
        assert_eq!(flat.len(), 2 * expected);
        let mut seen = BTreeSet::new();
        for pair in flat.chunks(2) {
            let (field, value) = (pair[0].clone().bulk(), pair[1].clone().bulk());
            assert_eq!(model[&field].0, value);
            seen.insert(field);
        }
        assert!(negative || seen.len() == expected, "a field is there twice");
    }

    /// A whole iteration: fields that exist throughout are returned, whatever else changes.
    fn scan(&mut self) {
        let key = self.key();
        let mut always: BTreeSet<Bytes> = self
            .living(&key)
            .into_iter()
            .filter(|(_, (_, at))| at.is_none())
            .map(|(f, _)| f)
            .collect();
        let (mut cursor, mut seen) = (b"0".to_vec(), BTreeSet::new());
        for _ in 0..10_000 {
            let most = if self.prng.chance(20) { 1 << 40 } else { 30 };
            let count = 1 + self.prng.below(most);
            let mut args =
                vec![key.clone(), cursor, b"COUNT".to_vec(), count.to_string().into_bytes()];
            let novalues = self.prng.chance(30);
            args.extend(novalues.then(|| b"NOVALUES".to_vec()));
            let mut reply = self.run("HSCAN", &args).list();
            let fields: Vec<Bytes> =
                reply.pop().unwrap().list().into_iter().map(Value::bulk).collect();
            let model = self.living(&key);
            for pair in fields.chunks(if novalues { 1 } else { 2 }) {
                assert!(novalues || model[&pair[0]].0 == pair[1]);
                seen.insert(pair[0].clone());
            }
            cursor = reply.pop().unwrap().bulk();
            if cursor == b"0" {
                assert!(seen.is_superset(&always), "{:?}", always.difference(&seen));
                return;
            }
            match self.prng.below(4) {
                0 => self.set(),
                1 => self.remove(),
                _ => {}
            }
            let living = self.living(&key);
            always.retain(|field| living.contains_key(field));
        }
        panic!("an endless iteration");
    }

    fn count(&mut self) {
        let (key, field) = (self.key(), self.field());
        let mut model = self.living(&key);
        assert_eq!(self.run("HLEN", std::slice::from_ref(&key)), int(model.len()));
        let len = model.get(&field).map_or(0, |(value, _)| value.len());
        assert_eq!(self.run("HSTRLEN", &[key.clone(), field.clone()]), int(len));
        let number = |value: &Bytes| darter_base::number::parse_i64(value);
        let reply = self.run("HINCRBY", &[key.clone(), field.clone(), b"3".to_vec()]);
        let (old, at) = model.get(&field).cloned().unwrap_or((b"0".to_vec(), None));
        match number(&old) {
            Some(old) => {
                assert_eq!(reply, Value::Int(old + 3));
                model.insert(field, ((old + 3).to_string().into_bytes(), at));
                self.put(&key, model);
            }
            None => assert_eq!(reply, Value::Error("ERR hash value is not an integer".into())),
        }
    }

    /// Takes a cut, as a slow reader does; checks and drops an older one.
    fn hold(&mut self) {
        let key = self.key();
        if let Some(found) = self.engine.db.get(&Key::new(&key)) {
            let held = found.hold();
            let shown = self.living(&key).into_iter().map(|(f, (v, _))| (f, v)).collect();
            self.held.push((held, shown, self.engine.now));
        }
        if self.held.len() < 4 {
            return;
        }
        let (held, shown, now) = self.held.remove(0);
        let hash = held.get::<Hash>().expect("a hash");
        for (field, value) in &shown {
            let entry = hash.get(field, now).expect("a cut keeps its fields");
            assert_eq!(darter_families::hash::value_of(&entry).to_vec(), *value);
        }
        assert_eq!(hash.fields().live_len(now, usize::MAX), Some(shown.len()));
    }

    fn pass_time(&mut self) {
        let ms = self.prng.below(1_500);
        self.engine.tick(ms);
        if self.prng.chance(50) {
            while self.engine.db.reap(20) {}
        }
    }
}

#[test]
fn random_hash_commands_agree_with_a_model() {
    for (seed, universe) in [(1, 5), (2, 40), (3, 300), (4, 700), (5, 3_000), (6, 9_000)] {
        let mut test = Test::new(seed, universe);
        for _ in 0..400 {
            test.step();
        }
        test.engine.db.check_invariants();
        assert!(universe < 700 || test.engine.portions > 50, "work was sliced");
    }
}

#[test] // 6 000 samples of 6 out of 60 fields: each field comes about 600 times.
fn hrandfield_draws_fields_uniformly() {
    for count in ["6", "-6"] {
        let mut engine = Engine::new(1, 7);
        for field in 0..60 {
            engine.line(&format!("HSET h f{field} v"));
        }
        let mut times: BTreeMap<Bytes, u64> = BTreeMap::new();
        for _ in 0..6_000 {
            let reply = engine.run(&[b"HRANDFIELD", b"h", count.as_bytes()]);
            for field in Value::read(&reply).list() {
                *times.entry(field.bulk()).or_default() += 1;
            }
        }
        assert_eq!(times.len(), 60);
        assert!(times.values().all(|times| (480..720).contains(times)), "{times:?}");
    }
}
