//! Tests that run random commands on few keys and compare the lists with naive ones: short and long
//! lists, and commands with few arguments and with so many that the work is sliced. The replicated
//! records must produce the same lists in a copy.

use crate::common::Bytes;
use crate::common::engine::Engine;
use crate::common::value::Value;
use darter_base::Prng;
use darter_base::preempt::{Countdown, Never};
use darter_families::list::List;
use darter_keyspace::{Db, Key, apply_to_db};
use std::collections::{BTreeMap, VecDeque};

struct Test {
    engine: Engine,
    copy: Db,
    model: BTreeMap<Bytes, VecDeque<Bytes>>,
    prng: Prng,
    /// The largest number of elements of a command.
    most: u64,
}

fn bulks(elements: impl IntoIterator<Item = Bytes>) -> Value {
    Value::Array(elements.into_iter().map(Value::Bulk).collect())
}

fn count(value: usize) -> Value {
    Value::Int(i64::try_from(value).unwrap())
}

fn text(number: impl ToString) -> Bytes {
    number.to_string().into_bytes()
}

impl Test {
    fn new(seed: u64, most: u64) -> Self {
        let mut engine = Engine::new(1_000_000, seed);
        engine.db.listen(true);
        engine.preempt =
            if seed.is_multiple_of(2) { Box::new(Never) } else { Box::new(Countdown::new(0)) };
        let (copy, model) = (Db::default(), BTreeMap::new());
        Self { engine, copy, model, prng: Prng::from_seed(seed), most }
    }

    fn below(&mut self, bound: u64) -> usize {
        usize::try_from(self.prng.below(bound)).unwrap()
    }

    fn key(&mut self) -> Bytes {
        format!("list:{}", self.prng.below(4)).into_bytes()
    }

    fn element(&mut self) -> Bytes {
        match self.prng.below(12) {
            0 => vec![b'x'; self.below(3_000)],
            1 => vec![b'y'; 60_000 + self.below(80_000)],
            2..5 => text(self.prng.below(6)),
            5..7 => format!("{:08x}-9dad-11d1-80b4-00c04fd430c8", self.prng.below(4)).into(),
            _ => format!("element:{}", self.prng.below(6)).into(),
        }
    }

    fn elements(&mut self) -> Vec<Bytes> {
        let most = if self.prng.chance(20) { self.most } else { 4 };
        let count = 1 + self.prng.below(most);
        if count > 100 {
            return (0..count).map(|at| format!("many:{}", at % 50).into_bytes()).collect();
        }
        (0..count).map(|_| self.element()).collect()
    }

    fn len(&self, key: &[u8]) -> usize {
        self.model.get(key).map_or(0, VecDeque::len)
    }

    /// Draws an index, sometimes one that no element has.
    fn index(&mut self, key: &[u8]) -> i64 {
        let len = self.len(key) as u64;
        let index = i64::try_from(self.prng.below(len + 2)).unwrap();
        if self.prng.chance(50) { index } else { -1 - index }
    }

    /// The position that an index of a command means.
    fn place(&self, key: &[u8], index: i64) -> Option<usize> {
        let len = i64::try_from(self.len(key)).unwrap();
        let index = if index < 0 { index + len } else { index };
        (0..len).contains(&index).then(|| usize::try_from(index).unwrap())
    }

    /// The positions between two indexes.
    fn places(&self, key: &[u8], start: i64, stop: i64) -> std::ops::Range<usize> {
        let len = i64::try_from(self.len(key)).unwrap();
        let from_front = |index: i64| if index < 0 { (index + len).max(0) } else { index };
        let (start, end) = (from_front(start).min(len), (from_front(stop) + 1).min(len));
        let back = if stop < -len { 0 } else { end.max(start) };
        usize::try_from(start).unwrap()..usize::try_from(back.max(start)).unwrap()
    }

    fn run(&mut self, name: &str, args: &[Bytes]) -> Value {
        let words = std::iter::once(name.as_bytes()).chain(args.iter().map(|arg| &arg[..]));
        let reply = self.engine.run(&words.collect::<Vec<_>>());
        for record in self.engine.db.take_records() {
            apply_to_db(&mut self.copy, &record.act).unwrap();
        }
        Value::read(&reply)
    }

    fn step(&mut self) {
        let key = self.key();
        match self.prng.below(18) {
            12 => self.position(key),
            13 => self.remove(key),
            14 | 15 => self.insert(key),
            16 => self.transfer(key),
            17 => self.pop_first(key),
            0..4 => self.push(key),
            4 => self.pop_one(key),
            5 => self.pop_some(key),
            6 => self.read(key),
            7 => self.set(key),
            8 => self.trim(key),
            _ => {
                let index = self.index(&key);
                let wanted = self.place(&key, index).map(|at| self.model[&key][at].clone());
                let reply = self.run("LINDEX", &[key, text(index)]);
                assert_eq!(reply, wanted.map_or(Value::Null, Value::Bulk));
            }
        }
        self.model.retain(|_, list| !list.is_empty());
    }

    fn push(&mut self, key: Bytes) {
        let (name, is_front) = *self.prng.weighted(&[
            (3, ("LPUSH", true)),
            (3, ("RPUSH", false)),
            (1, ("LPUSHX", true)),
        ]);
        let elements = self.elements();
        let reply = self.run(name, &[vec![key.clone()], elements.clone()].concat());
        if name == "LPUSHX" && self.len(&key) == 0 {
            return assert_eq!(reply, Value::Int(0));
        }
        let list = self.model.entry(key).or_default();
        for element in elements {
            if is_front { list.push_front(element) } else { list.push_back(element) }
        }
        assert_eq!(reply, count(list.len()));
    }

    fn pop_one(&mut self, key: Bytes) {
        let is_front = self.prng.chance(50);
        let list = self.model.entry(key.clone()).or_default();
        let popped = if is_front { list.pop_front() } else { list.pop_back() };
        let reply = self.run(if is_front { "LPOP" } else { "RPOP" }, &[key]);
        assert_eq!(reply, popped.map_or(Value::Null, Value::Bulk));
    }

    fn pop_some(&mut self, key: Bytes) {
        let is_front = self.prng.chance(50);
        let most = *self.prng.weighted(&[(3, 5), (1, self.most)]);
        let (most, len) = (self.below(most), self.len(&key));
        let reply = self.run(if is_front { "LPOP" } else { "RPOP" }, &[key.clone(), text(most)]);
        if len == 0 {
            return assert_eq!(reply, Value::Null);
        }
        let list = self.model.get_mut(&key).unwrap();
        let gone: Vec<Bytes> = if is_front {
            list.drain(..most.min(len)).collect()
        } else {
            list.drain(len - most.min(len)..).rev().collect()
        };
        assert!(reply == bulks(gone), "{most} of {len}");
    }

    fn read(&mut self, key: Bytes) {
        let (start, stop) = (self.index(&key), self.index(&key));
        let places = self.places(&key, start, stop);
        let list = self.model.get(&key).cloned().unwrap_or_default();
        let reply = self.run("LRANGE", &[key, text(start), text(stop)]);
        assert!(reply == bulks(list.range(places).cloned()), "{start} {stop} of {}", list.len());
    }

    fn set(&mut self, key: Bytes) {
        let (index, element) = (self.index(&key), self.element());
        let place = self.place(&key, index);
        let reply = self.run("LSET", &[key.clone(), text(index), element.clone()]);
        match place {
            Some(place) => {
                self.model.get_mut(&key).unwrap()[place] = element;
                assert_eq!(reply, Value::Simple("OK".to_owned()));
            }
            None => assert!(matches!(reply, Value::Error(_))),
        }
    }

    fn trim(&mut self, key: Bytes) {
        let (start, stop) = match self.prng.chance(80) {
            true => (i64::from(self.prng.chance(50)), -1 - i64::from(self.prng.chance(50))),
            false => (self.index(&key), self.index(&key)),
        };
        let places = self.places(&key, start, stop);
        let reply = self.run("LTRIM", &[key.clone(), text(start), text(stop)]);
        assert_eq!(reply, Value::Simple("OK".to_owned()));
        if let Some(list) = self.model.get_mut(&key) {
            *list = list.range(places).cloned().collect();
        }
    }

    /// Draws an element, usually one that the list has.
    fn known(&mut self, key: &[u8]) -> Bytes {
        let len = self.len(key) as u64;
        if len == 0 || self.prng.chance(15) {
            return self.element();
        }
        let at = self.below(len);
        self.model[key][at].clone()
    }

    fn position(&mut self, key: Bytes) {
        let element = self.known(&key);
        let (rank, most) = (self.below(4), self.below(4));
        let is_back = self.prng.chance(50);
        let list = self.model.get(&key).cloned().unwrap_or_default();
        let mut places: Vec<usize> = (0..list.len()).filter(|at| list[*at] == element).collect();
        if is_back {
            places.reverse();
        }
        let rank_text = if is_back { format!("-{}", rank + 1) } else { format!("{}", rank + 1) };
        let mut args = vec![key, element, b"RANK".to_vec(), rank_text.into_bytes()];
        let places: Vec<Value> = places.into_iter().skip(rank).map(count).collect();
        if self.prng.chance(50) {
            let reply = self.run("LPOS", &args);
            return assert_eq!(reply, places.first().cloned().unwrap_or(Value::Null));
        }
        args.extend([b"COUNT".to_vec(), text(most)]);
        let wanted = if most == 0 { places.len() } else { most };
        let reply = self.run("LPOS", &args);
        assert_eq!(reply, Value::Array(places.into_iter().take(wanted).collect()));
    }

    fn remove(&mut self, key: Bytes) {
        let element = self.known(&key);
        let most: i32 = *self.prng.weighted(&[(3, 0), (1, 1), (1, -1), (1, 40), (1, -40)]);
        let reply = self.run("LREM", &[key.clone(), text(most), element.clone()]);
        let list = self.model.entry(key).or_default();
        let mut places: Vec<usize> = (0..list.len()).filter(|at| list[*at] == element).collect();
        let wanted = if most == 0 { usize::MAX } else { most.unsigned_abs() as usize };
        if most < 0 {
            places.reverse();
        }
        places.truncate(wanted);
        assert_eq!(reply, count(places.len()));
        places.sort_unstable();
        for place in places.iter().rev() {
            list.remove(*place);
        }
    }

    fn insert(&mut self, key: Bytes) {
        let (pivot, element) = (self.known(&key), self.element());
        let is_before = self.prng.chance(50);
        let word = if is_before { &b"BEFORE"[..] } else { b"AFTER" };
        let args = [key.clone(), word.to_vec(), pivot.clone(), element.clone()];
        let reply = self.run("LINSERT", &args);
        let Some(list) = self.model.get_mut(&key) else { return assert_eq!(reply, count(0)) };
        match list.iter().position(|one| *one == pivot) {
            None => assert_eq!(reply, Value::Int(-1)),
            Some(at) => {
                list.insert(at + usize::from(!is_before), element);
                assert_eq!(reply, count(list.len()));
            }
        }
    }

    fn transfer(&mut self, from: Bytes) {
        let (to, is_front, to_front) = (self.key(), self.prng.chance(50), self.prng.chance(50));
        let word = |is_front: bool| if is_front { b"LEFT".to_vec() } else { b"RIGHT".to_vec() };
        let args = [from.clone(), to.clone(), word(is_front), word(to_front)];
        let reply = self.run("LMOVE", &args);
        let list = self.model.entry(from).or_default();
        let moved = if is_front { list.pop_front() } else { list.pop_back() };
        let Some(element) = moved else { return assert_eq!(reply, Value::Null) };
        let list = self.model.entry(to).or_default();
        if to_front {
            list.push_front(element.clone())
        } else {
            list.push_back(element.clone())
        }
        assert!(reply == Value::Bulk(element));
    }

    fn pop_first(&mut self, first: Bytes) {
        let (second, most) = (self.key(), 1 + self.below(self.most));
        let args = [
            text(2),
            first.clone(),
            second.clone(),
            b"LEFT".to_vec(),
            b"COUNT".to_vec(),
            text(most),
        ];
        let reply = self.run("LMPOP", &args);
        let found = [first, second].into_iter().find(|key| self.len(key) > 0);
        let Some(key) = found else { return assert_eq!(reply, Value::Null) };
        let list = self.model.get_mut(&key).unwrap();
        let gone = list.drain(..most.min(list.len())).collect::<Vec<_>>();
        assert!(reply == Value::Array(vec![Value::Bulk(key), bulks(gone)]));
    }

    /// Checks that every list is as expected, in the copy too.
    fn check(&mut self) {
        for db in [&self.engine.db, &self.copy] {
            db.check_invariants();
            assert_eq!(db.len(), self.model.len());
            for (key, wanted) in &self.model {
                let list = db.value::<List>(&Key::new(key)).unwrap().expect("it is there");
                let elements = list.elements();
                assert_eq!(elements.len(), wanted.len());
                let is_same = |(element, wanted): (_, &Bytes)| -> bool {
                    let element: darter_structs::list::Element<'_> = element;
                    element.to_vec() == *wanted
                };
                assert!(elements.range(0..wanted.len()).zip(wanted).all(is_same), "{key:?}");
            }
        }
    }
}

#[test] // So does the replayed copy.
fn random_list_commands_agree_with_a_model() {
    for seed in 0..16 {
        let most = [6, 60, 700, 6_000][seed as usize / 2 % 4];
        let mut test = Test::new(seed, most);
        for step in 0..300 {
            test.step();
            if step % 10 == 0 {
                test.check();
            }
        }
        test.check();
    }
}
