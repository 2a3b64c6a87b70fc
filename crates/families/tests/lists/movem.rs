//! Tests of LMOVEM against naive lists, on one core and on three. The replicated records must
//! produce the same lists.

use crate::common::Bytes;
use crate::common::value::Value;
use crate::common::world::World;
use darter_base::Prng;
use darter_families::list::List;
use darter_keyspace::{Key, Shard, Wants, apply};
use std::collections::{BTreeMap, VecDeque};

const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

struct Test {
    world: World,
    /// The copies that the records of each core produce.
    copies: Vec<Shard>,
    model: BTreeMap<Bytes, VecDeque<Bytes>>,
    prng: Prng,
    /// The largest number of elements pushed or moved at once.
    most: usize,
    next: usize,
}

impl Test {
    fn new(cores: usize, seed: u64, most: usize) -> Self {
        let world = World::new(cores, 1_000_000, seed);
        world.cores.iter().for_each(|tx| _ = tx.home().shard.join(Wants::CHANGES));
        let copies = (0..cores).map(|_| Shard::new(16, 1)).collect();
        let prng = Prng::from_seed(seed);
        Self { world, copies, model: BTreeMap::new(), prng, most, next: 0 }
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.prng.below(bound as u64)).unwrap()
    }

    fn key(&mut self) -> Bytes {
        KEYS[self.below(KEYS.len())].to_vec()
    }

    fn element(&mut self) -> Bytes {
        self.next += 1;
        let text = format!("element:{}", self.next);
        let long = if self.prng.chance(2) { self.below(5_000) } else { 0 };
        [text.into_bytes(), vec![b'x'; long]].concat()
    }

    fn step(&mut self) {
        if self.prng.chance(30) {
            self.push();
        } else {
            self.transfer();
        }
        self.model.retain(|_, list| !list.is_empty());
        for (tx, copy) in self.world.cores.iter().zip(&mut self.copies) {
            let records = tx.home().shard.take_records();
            records.iter().for_each(|record| apply(copy, record).unwrap());
        }
    }

    fn push(&mut self) {
        let (key, count) = (self.key(), 1 + self.below(self.most));
        let elements: Vec<Bytes> = (0..count).map(|_| self.element()).collect();
        let words = [&b"RPUSH"[..], &key[..]].into_iter().chain(elements.iter().map(|e| &e[..]));
        self.world.run(&words.collect::<Vec<_>>());
        self.model.entry(key).or_default().extend(elements);
    }

    fn transfer(&mut self) {
        let (from, to, count) = (self.key(), self.key(), 1 + self.below(self.most * 3));
        let [is_front, to_front, is_exact, is_one_by_one] =
            [50; 4].map(|part| self.prng.chance(part));
        let word = |is: bool, yes: &'static str, no: &'static str| if is { yes } else { no };
        let line = format!(
            "LMOVEM {} {} {} {} {} {count} {}",
            String::from_utf8_lossy(&from),
            String::from_utf8_lossy(&to),
            word(is_front, "LEFT", "RIGHT"),
            word(to_front, "LEFT", "RIGHT"),
            word(is_exact, "EXACTLY", "COUNT"),
            word(is_one_by_one, "OBO", "BULK"),
        );
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let reply = Value::read(&self.world.run(&words));
        let list = self.model.entry(from).or_default();
        if is_exact && list.len() < count {
            return assert_eq!(reply, Value::Null, "{line}");
        }
        let some = count.min(list.len());
        let range = if is_front { 0..some } else { list.len() - some..list.len() };
        let mut moved: Vec<Bytes> = list.drain(range).collect();
        if is_one_by_one && is_front == to_front {
            moved.reverse();
        }
        let list = self.model.entry(to).or_default();
        if to_front {
            moved.iter().rev().for_each(|element| list.push_front(element.clone()));
        } else {
            list.extend(moved.iter().cloned());
        }
        assert!(reply.bulks() == moved, "{line}");
    }

    fn check(&mut self) {
        self.world.check();
        for (tx, copy) in self.world.cores.iter().zip(&self.copies) {
            copy.check_invariants();
            for key in KEYS.iter().filter(|key| tx.core_of(key) == tx.core()) {
                let wanted = self.model.get(*key);
                for shard in [&tx.home().shard, copy] {
                    let list = shard.db(0).value::<List>(&Key::new(key)).unwrap();
                    let found = list.map(|list| {
                        let elements = list.elements();
                        let all = elements.range(0..elements.len());
                        all.map(|element| element.to_vec()).collect::<VecDeque<_>>()
                    });
                    assert!(found.as_ref() == wanted, "{key:?}");
                }
            }
        }
    }
}

#[test]
fn random_lmovem_commands_agree_with_a_model() {
    for (cores, seed, most) in [(1, 1, 5), (3, 2, 5), (1, 3, 400), (3, 4, 400), (2, 5, 4_000)] {
        let mut test = Test::new(cores, seed, most);
        for step in 0..300 {
            test.step();
            if step % most == 0 {
                test.check();
            }
        }
        test.check();
    }
}

#[test] // Moves in the same order are joined at once.
fn long_reversed_moves_are_sliced() {
    let mut test = Test::new(1, 1, 20_000);
    while test.model.values().map(VecDeque::len).sum::<usize>() < 40_000 {
        test.push();
    }
    let key = test.model.iter().max_by_key(|(_, list)| list.len()).unwrap().0.clone();
    let mut pauses = |ends: &str, order: &str| {
        let before = test.world.questions.get();
        let line = format!("LMOVEM {} z {ends} COUNT 9000 {order}", String::from_utf8_lossy(&key));
        test.world.run(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        test.world.questions.get() - before
    };
    assert!(pauses("LEFT RIGHT", "OBO") < 10);
    assert!(pauses("LEFT LEFT", "BULK") < 10);
    assert!(pauses("LEFT LEFT", "OBO") > 200);
}

#[test]
fn lmovem_moves_all_or_nothing_if_the_source_expires() {
    const NOW: u64 = 1_000_000;
    for (seed, line) in
        (0..60).flat_map(|seed| ["a a LEFT LEFT", "a b LEFT LEFT"].map(|line| (seed, line)))
    {
        let mut world = World::new(3, NOW, seed);
        let elements: Vec<String> = (0..300).map(|at| format!("element:{at}")).collect();
        let words = ["RPUSH", "a"].into_iter().chain(elements.iter().map(String::as_str));
        world.run(&words.map(str::as_bytes).collect::<Vec<_>>());
        world.run(&[b"PEXPIRE", b"a", b"10"]);
        let line = format!("LMOVEM {line} COUNT 300 OBO");
        let slot = world.start(0, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        (0..seed).for_each(|_| _ = world.step());
        world.set_now(NOW + 20);
        world.settle();
        let moved = Value::read(&world.reply(&slot)).bulks().len();
        assert!(moved == 0 || moved == 300, "{moved} of {line}, seed {seed}");
        world.check();
    }
}
