//! The family against a naive model, on one core and on several, in slices that end at random.

use super::TABLE;
use darter_base::{Preempt, Prng};
use darter_command::{Answer, Args, Call, Cx, Flow, Job, Refusal, Run, Step};
use darter_keyspace::{Deadline, Fresh, Key, Shard};
use darter_resp::{self as resp, Output, Reply, Request};
use darter_tx::Tx;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

type Bytes = Vec<u8>;

/// A reply, read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Int(i64),
    Bulk(Bytes),
    Null,
    Error(String),
    Array(Vec<Value>),
    Set(Vec<Value>),
}

impl Value {
    fn read(all: &[u8]) -> Self {
        let (value, rest) = Self::next(all);
        assert!(rest.is_empty(), "left over: {:?}", String::from_utf8_lossy(rest));
        value
    }

    fn next(bytes: &[u8]) -> (Self, &[u8]) {
        let end = bytes.windows(2).position(|two| two == b"\r\n").expect("a line");
        let (line, rest) = (std::str::from_utf8(&bytes[1..end]).unwrap(), &bytes[end + 2..]);
        match bytes[0] {
            b':' => (Self::Int(line.parse().unwrap()), rest),
            b'-' => (Self::Error(line.to_owned()), rest),
            b'_' => (Self::Null, rest),
            b'$' => {
                let len: usize = line.parse().unwrap();
                assert_eq!(&rest[len..len + 2], b"\r\n");
                (Self::Bulk(rest[..len].to_vec()), &rest[len + 2..])
            }
            kind @ (b'*' | b'~') => {
                let (mut list, mut rest) = (Vec::new(), rest);
                for _ in 0..line.parse::<usize>().unwrap() {
                    let (value, after) = Self::next(rest);
                    list.push(value);
                    rest = after;
                }
                (if kind == b'*' { Self::Array(list) } else { Self::Set(list) }, rest)
            }
            other => panic!("{other}"),
        }
    }

    fn members(&self) -> Vec<Bytes> {
        let (Self::Array(list) | Self::Set(list)) = self else { panic!("{self:?}") };
        let bytes = |value: &Self| match value {
            Self::Bulk(bytes) => bytes.clone(),
            other => panic!("{other:?}"),
        };
        list.iter().map(bytes).collect()
    }
}

/// Ends slices at random, mostly early.
struct Dice(RefCell<Prng>);

impl Preempt for Dice {
    fn must_yield(&self) -> bool {
        self.0.borrow_mut().chance(70)
    }
}

/// Some cores, driven in one thread.
struct World {
    cores: Vec<Tx>,
    prng: Prng,
    now: u64,
}

impl World {
    fn new(cores: usize, seed: u64) -> Self {
        let make = |core| {
            let preempt = Rc::new(Dice(RefCell::new(Prng::from_seed(seed + core as u64))));
            Tx::new(core, cores, Shard::new(1, seed), preempt)
        };
        let mut world =
            Self { cores: (0..cores).map(make).collect(), prng: Prng::from_seed(seed), now: 0 };
        world.tick(1_000);
        world
    }

    fn tick(&mut self, ms: u64) {
        self.now += ms;
        let now = self.now;
        self.cores.iter().for_each(|tx| tx.home().shard.set_now(now));
    }

    /// Runs a command whose keys stand at the beginning of the row's specs.
    fn run(&mut self, args: &[&[u8]]) -> Value {
        let name = String::from_utf8(args[0].to_vec()).unwrap();
        let row = TABLE.iter().find(|row| row.name == name).expect("a row");
        assert!(row.accepts(args.len()), "{name} with {}", args.len());
        let request = Arc::new(Request::from_args(args.iter().copied()));
        let all = resp::Args::owned(&request);
        let owners: BTreeSet<usize> =
            row.keys.positions(all).map(|at| self.cores[0].core_of(all.get(at))).collect();
        let one = (owners.len() <= 1).then(|| owners.first().copied().unwrap_or(0));
        let out = match (row.run, one) {
            (Run::Point(run), Some(core)) => self.point(run, core, &request),
            (Run::Multi { here: Some(run), .. }, Some(core)) if self.prng.chance(50) => {
                self.point(run, core, &request)
            }
            (Run::Multi { anywhere, .. }, _) => {
                let call =
                    Call { tx: self.cores[0].clone(), request, db: 0, resp3: true, first: 1 };
                self.multi(anywhere(call))
            }
            _ => unreachable!("sets have points and multis"),
        };
        let bytes = out.unwrap_or_else(|refusal| format!("-{}\r\n", refusal.text()).into_bytes());
        Value::read(&bytes)
    }

    fn point(
        &mut self,
        run: darter_command::PointFn,
        core: usize,
        request: &Arc<Request>,
    ) -> Result<Bytes, Refusal> {
        let mut home = self.cores[core].home();
        let (db, prng, stats) = home.shard.parts(0);
        let mut out = Output::default();
        let preempt = &darter_base::preempt::Never;
        let reply = Reply::new(&mut out, true);
        let mut cx = Cx { now: db.now(), db, reply, prng, stats, preempt };
        let mut flow = run(&mut cx, Args::new(resp::Args::owned(request), 1))?;
        loop {
            match flow {
                Flow::Done => break,
                Flow::Stream(mut stream) => {
                    while stream.pump(&mut cx.reply) {}
                    break;
                }
                Flow::Job(mut job) => {
                    flow = loop {
                        if let Step::Done(flow) = Job::step(&mut *job, &mut cx)? {
                            break flow;
                        }
                    }
                }
            }
        }
        Ok(out.flatten())
    }

    fn multi(&mut self, future: darter_command::MultiFuture) -> Result<Bytes, Refusal> {
        let answer = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&answer);
        self.cores[0].spawn(async move {
            let result = future.await;
            *slot.borrow_mut() = Some(result);
        });
        for _ in 0..100_000 {
            if answer.borrow().is_some() {
                break;
            }
            for core in 0..self.cores.len() {
                self.cores[core].run_one();
                let mut mail = Vec::new();
                self.cores[core].drain_outbox(&mut mail);
                mail.into_iter().for_each(|(to, message)| self.cores[to].deliver(message));
            }
        }
        // What is on its way still: locks that were given back.
        for core in 0..self.cores.len() {
            let mut mail = Vec::new();
            self.cores[core].drain_outbox(&mut mail);
            mail.into_iter().for_each(|(to, message)| self.cores[to].deliver(message));
        }
        for core in &self.cores {
            assert!(core.home().locks.is_free(), "a lock is left behind");
        }
        let result = answer.borrow_mut().take().expect("it comes to an end");
        match result? {
            Answer::Done(out) => Ok(out.flatten()),
            Answer::Stream(mut out, mut stream) => {
                let mut reply = Reply::new(&mut out, true);
                while stream.pump(&mut reply) {}
                Ok(out.flatten())
            }
        }
    }

    fn check_invariants(&self) {
        self.cores.iter().for_each(|core| core.home().shard.db(0).check_invariants());
    }
}

/// Sets as they should be: members with their deadlines.
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
    let members = value.members();
    let set: BTreeSet<Bytes> = members.iter().cloned().collect();
    assert_eq!(set.len(), members.len(), "a member is there twice");
    set
}

struct Test {
    world: World,
    model: Model,
    prng: Prng,
    /// Members there can be.
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
        self.world.run(&all)
    }

    fn step(&mut self) {
        match self.prng.below(14) {
            0..=2 => self.add(),
            3 => self.add_mortal(),
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
            self.world.tick(ms);
            self.model.now = self.world.now;
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

    fn add_mortal(&mut self) {
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
        let popped = reply.members();
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
        assert_eq!(reply.members().len(), count.min(living.len()));
        let reply = self.run("srandmember", &[key.clone(), format!("-{count}").into_bytes()]);
        assert_eq!(reply.members().len(), if living.is_empty() { 0 } else { count });
        assert!(reply.members().iter().all(|member| living.contains(member)));
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
            seen.extend(parts[1].members());
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

#[test] // Random commands on few keys agree with naive sets at every step.
fn family_matches_the_model() {
    for seed in 0..24 {
        let cores = [1, 3][seed as usize % 2];
        let universe = [12, 300, 3_000, 9_000][seed as usize / 2 % 4];
        let mut test = Test {
            world: World::new(cores, seed),
            model: Model::default(),
            prng: Prng::from_seed(seed),
            universe,
        };
        test.model.now = test.world.now;
        for step in 0..150 {
            test.step();
            if step % 10 == 0 {
                test.world.check_invariants();
            }
        }
    }
}

#[test] // A key of another type is refused, and nothing changes.
fn wrong_types_are_refused() {
    let mut world = World::new(2, 7);
    let owner = world.cores[0].core_of(b"text");
    world.cores[owner].home().shard.db_mut(0).set_text(
        &Key::new(b"text"),
        Fresh::Bytes(b"x"),
        Deadline::Clear,
    );
    world.run(&[b"sadd", b"a", b"1", b"2"]);
    #[rustfmt::skip] // A table.
    let refused: &[&[&str]] = &[
        &["sadd", "text", "1"], &["srem", "text", "1"], &["saddex", "text", "10", "1"],
        &["scard", "text"], &["smembers", "text"], &["sismember", "text", "1"],
        &["smismember", "text", "1"], &["sinter", "nothing", "text"], &["sinter", "a", "text"],
        &["sunion", "a", "text"], &["sdiff", "nothing", "text"], &["sintercard", "2", "a", "text"],
        &["sunionstore", "a", "a", "text"], &["smove", "a", "text", "1"],
        &["smove", "a", "text", "9"], &["smove", "text", "a", "1"], &["spop", "text"],
        &["spop", "text", "0"], &["srandmember", "text", "0"], &["sscan", "text", "0", "x", "y"],
    ];
    for args in refused {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let error = Value::Error(Refusal::WrongType.text().into_owned());
        assert_eq!(world.run(&args), error, "{args:?}");
    }
    assert_eq!(world.run(&[b"smove", b"nothing", b"text", b"1"]), Value::Int(0));
    assert_eq!(world.run(&[b"scard", b"a"]), Value::Int(2));
    assert_eq!(world.run(&[b"sinterstore", b"text", b"a", b"a"]), Value::Int(2), "it goes over");
}

#[test]
fn bad_arguments_are_refused() {
    let mut world = World::new(1, 1);
    world.run(&[b"sadd", b"a", b"1", b"2", b"x"]);
    let numkeys = "ERR numkeys should be greater than 0";
    let too_many = "ERR Number of keys can't be greater than number of args";
    let (limit, syntax) = ("ERR LIMIT can't be negative", "ERR syntax error");
    let integer = "ERR value is not an integer or out of range";
    let positive = "ERR value is out of range, must be positive";
    #[rustfmt::skip] // A table.
    let cases: &[(&[&str], &str)] = &[
        (&["sintercard", "0", "a"], numkeys),          (&["sintercard", "x", "a"], numkeys),
        (&["sunioncard", "-1", "a"], numkeys),         (&["sintercard", "2", "a"], too_many),
        (&["sdiffcard", "1", "a", "LIMIT"], syntax),   (&["sdiffcard", "1", "a", "APPROX"], syntax),
        (&["sintercard", "1", "a", "LIMIT", "-1"], limit), (&["sintercard", "1", "a", "LIMIT", "x"], limit),
        (&["sintercard", "1", "a", "b"], syntax),      (&["spop", "a", "-1"], positive),
        (&["spop", "a", "x"], positive),               (&["spop", "a", "1", "2"], syntax),
        (&["srandmember", "a", "x"], integer),         (&["srandmember", "a", "1", "2"], syntax),
        (&["sscan", "a", "x"], "ERR invalid cursor"),  (&["sscan", "a", "0", "count", "0"], syntax),
        (&["sscan", "a", "0", "count", "x"], integer), (&["sscan", "a", "0", "match"], syntax),
        (&["sscan", "a", "0", "count", "5", "x"], syntax), (&["saddex", "a", "0", "x"], integer),
        (&["saddex", "a", "268435456", "x"], integer), (&["saddex", "a", "1.5", "x"], integer),
        (&["saddex", "a", "KEEPTTL", "10"], "ERR wrong number of arguments for 'saddex' command"),
    ];
    for (args, error) in cases {
        let bytes: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        assert_eq!(world.run(&bytes), Value::Error((*error).to_owned()), "{args:?}");
    }
    assert_eq!(world.run(&[b"sscan", b"none", b"0", b"count", b"x"]).members_of_scan(), 0);
}

impl Value {
    fn members_of_scan(&self) -> usize {
        let Self::Array(parts) = self else { panic!("{self:?}") };
        parts[1].members().len()
    }
}

#[test] // Every member of a set is popped, and sampled, equally often, whichever way is taken.
fn samples_are_uniform() {
    for (size, count) in [(40, 1), (40, 15), (40, 35), (600, 150), (600, 500), (2_000, 100)] {
        let mut world = World::new(1, 5);
        let members: Vec<Bytes> = (0..size).map(|n| format!("m{n}").into_bytes()).collect();
        let mut add: Vec<&[u8]> = vec![b"sadd", b"k"];
        add.extend(members.iter().map(|member| &member[..]));
        let text = count.to_string();
        let (mut drawn, rounds) = (BTreeMap::<Bytes, u32>::new(), 200_000 / size / 4);
        for round in 0..rounds {
            let name: &[u8] = if round % 2 == 0 { b"spop" } else { b"srandmember" };
            world.run(&add);
            for member in world.run(&[name, b"k", text.as_bytes()]).members() {
                *drawn.entry(member).or_default() += 1;
            }
        }
        // Chi-square, scaled for samples without repetition; far beyond what chance gives.
        let expected = f64::from(rounds) * f64::from(count) / f64::from(size);
        let share = f64::from(count) / f64::from(size);
        let sum: f64 = members
            .iter()
            .map(|member| f64::from(drawn.get(member).copied().unwrap_or(0)) - expected)
            .map(|difference| difference * difference / expected / (1.0 - share))
            .sum();
        let degrees = f64::from(size - 1);
        let limit = degrees + 6.0 * (2.0 * degrees).sqrt();
        assert!(sum < limit, "size={size} count={count} sum={sum} limit={limit}");
    }
}

#[test] // More keys than are locked one by one.
fn very_many_keys() {
    let mut world = World::new(3, 9);
    let keys: Vec<Bytes> = (0..1_000).map(|n| format!("key:{n}").into_bytes()).collect();
    for (number, key) in keys.iter().enumerate() {
        world.run(&[b"sadd", key, b"all", number.to_string().as_bytes()]);
    }
    let list = || keys.iter().map(|key| &key[..]);
    let call =
        |head: &[&'static [u8]]| -> Vec<&[u8]> { head.iter().copied().chain(list()).collect() };
    assert_eq!(world.run(&call(&[b"sunion"])).members().len(), 1_001);
    assert_eq!(world.run(&call(&[b"sinter"])).members(), [b"all"]);
    assert_eq!(world.run(&call(&[b"sdiff"])).members(), [b"0"]);
    assert_eq!(world.run(&call(&[b"sunionstore", b"key:5"])), Value::Int(1_001));
    assert_eq!(world.run(&[b"scard", b"key:5"]), Value::Int(1_001));
    assert_eq!(world.run(&call(&[b"sunioncard", b"1000"])), Value::Int(1_001));
}

#[test] // While a STORE builds, its sources can be written and its destination cannot be read.
fn a_store_holds_its_destination_only() {
    let world = World::new(1, 3);
    let tx = world.cores[0].clone();
    {
        let mut home = tx.home();
        let db = home.shard.db_mut(0);
        for key in [b"one", b"two"] {
            let _ = db.edit_set(&Key::new(key), true, |edit| {
                for number in 0..2_000 {
                    edit.add(format!("{}{number}", key[0]).as_bytes(), Deadline::Clear);
                }
            });
        }
    }
    let request = Arc::new(Request::from_args([&b"sunionstore"[..], b"to", b"one", b"two"]));
    let call = Call { tx: tx.clone(), request, db: 0, resp3: false, first: 1 };
    let future = super::store::store(call, super::Act::Union);
    tx.spawn(async move { assert!(future.await.is_ok()) });
    assert!(tx.run_one());
    let locked = |key: &[u8], write| {
        tx.home().locks.blocks_point(darter_tx::lock_key(0, Key::new(key).hash), write)
    };
    while locked(b"one", true) {
        assert!(tx.run_one(), "it ends, or gives the sources back");
    }
    assert!(tx.has_ready(), "it has only begun");
    assert!(locked(b"to", false));
    let _ = tx
        .home()
        .shard
        .db_mut(0)
        .edit_set(&Key::new(b"one"), true, |edit| edit.add(b"late", Deadline::Clear));
    while tx.run_one() {}
    let home = tx.home();
    let set = home.shard.db(0).set(&Key::new(b"to")).unwrap().unwrap();
    assert_eq!(set.len(), 4_000);
    assert!(!set.contains(b"late", 0));
    assert!(home.locks.is_free());
}
