//! The reference model: plain maps, one command at a time.

use crate::ops::{Op, Side};
use crate::value::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

const WRONG: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Held {
    Text(String),
    List(VecDeque<String>),
    Hash(BTreeMap<String, String>),
    Set(BTreeSet<String>),
}

/// The databases that are not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Model(BTreeMap<usize, Db>);

/// The keys of a database. The checker copies it for every command that it tries, so values are
/// copied on write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Db(BTreeMap<String, Rc<Held>>);

fn wrong() -> Value {
    Value::Error(WRONG.into())
}

fn int(value: usize) -> Value {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

fn ok() -> Value {
    Value::Simple("OK".into())
}

fn bulk(text: Option<&String>) -> Value {
    text.map_or(Value::Null, |text| Value::Bulk(text.clone()))
}

fn list(texts: impl IntoIterator<Item = String>) -> Value {
    Value::Array(texts.into_iter().map(Value::Bulk).collect())
}

fn push(list: &mut VecDeque<String>, side: Side, element: String) {
    match side {
        Side::Left => list.push_front(element),
        Side::Right => list.push_back(element),
    }
}

fn take(list: &mut VecDeque<String>, side: Side) -> Option<String> {
    match side {
        Side::Left => list.pop_front(),
        Side::Right => list.pop_back(),
    }
}

fn same() -> Value {
    Value::Error("ERR source and destination objects are the same".into())
}

impl Model {
    /// Runs a command of a client whose database is `at`. Returns its reply, sorted where the order
    /// is unspecified.
    pub(crate) fn apply(&mut self, at: usize, op: &Op) -> Value {
        let reply = match op {
            Op::Flushall => {
                self.0.clear();
                ok()
            }
            Op::Swapdb(one, other) => {
                let (first, second) = (self.0.remove(one), self.0.remove(other));
                self.0.extend(first.map(|db| (*other, db)));
                self.0.extend(second.map(|db| (*one, db)));
                ok()
            }
            Op::Move(_, to) if *to == at => same(),
            Op::Move(key, to) => {
                let moved = self.copy(at, key, *to, key);
                if moved {
                    self.db(at).0.remove(key);
                }
                int(usize::from(moved))
            }
            Op::CopyTo(from, to, db) if from == to && *db == at => same(),
            Op::CopyTo(from, to, db) => int(usize::from(self.copy(at, from, *db, to))),
            Op::Transaction(it) => {
                let read = it.watched.clone().map(|key| self.apply(at, &Op::Get(key)));
                let replies = it.ops.iter().map(|op| self.apply(at, op)).collect();
                Value::Array(read.into_iter().chain([Value::Array(replies)]).collect())
            }
            Op::BrokenExec(one, other) => {
                Value::Array([one, other].map(|key| self.apply(at, &Op::Incr(key.clone()))).into())
            }
            _ => self.db(at).apply(op),
        };
        self.0.retain(|_, db| !db.0.is_empty()); // Equal to never used.
        reply
    }

    fn db(&mut self, at: usize) -> &mut Db {
        self.0.entry(at).or_default()
    }

    /// False when the source is missing or the target exists.
    fn copy(&mut self, at: usize, from: &str, to: usize, name: &str) -> bool {
        let Some(held) = self.db(at).0.get(from).cloned() else { return false };
        let there = &mut self.db(to).0;
        let is_free = !there.contains_key(name);
        there.entry(name.to_owned()).or_insert(held);
        is_free
    }
}

impl Db {
    fn apply(&mut self, op: &Op) -> Value {
        match op {
            Op::Get(key) | Op::Unrun(key) => match self.get(key) {
                None => Value::Null,
                Some(Held::Text(text)) => Value::Bulk(text.clone()),
                Some(_) => wrong(),
            },
            Op::Set(key, value) => {
                self.put(key.clone(), Held::Text(value.clone()));
                ok()
            }
            Op::Incr(key) => self.incr(key),
            Op::Append(key, value) => self.append(key, value),
            Op::Del(keys) => int(keys.iter().filter(|key| self.0.remove(*key).is_some()).count()),
            Op::Exists(keys) => int(keys.iter().filter(|key| self.0.contains_key(*key)).count()),
            Op::Mset(pairs) => {
                for (key, value) in pairs {
                    self.put(key.clone(), Held::Text(value.clone()));
                }
                ok()
            }
            Op::Msetnx(pairs) => {
                if pairs.iter().any(|(key, _)| self.0.contains_key(key)) {
                    return Value::Int(0);
                }
                for (key, value) in pairs {
                    self.put(key.clone(), Held::Text(value.clone()));
                }
                Value::Int(1)
            }
            Op::Mget(keys) => Value::Array(
                keys.iter()
                    .map(|key| match self.get(key) {
                        Some(Held::Text(text)) => Value::Bulk(text.clone()),
                        _ => Value::Null,
                    })
                    .collect(),
            ),
            Op::Rename(from, to) => match self.0.remove(from) {
                None => Value::Error("ERR no such key".into()),
                Some(held) => {
                    self.0.insert(to.clone(), held);
                    ok()
                }
            },
            Op::Copy(from, to) if from == to => same(),
            Op::Copy(from, to) => match self.0.get(from).cloned() {
                Some(held) if !self.0.contains_key(to) => {
                    self.0.insert(to.clone(), held);
                    Value::Int(1)
                }
                _ => Value::Int(0),
            },
            Op::Pause { .. } | Op::Unpause | Op::Config(..) | Op::Select(_) => ok(),
            Op::Keys => list(self.0.keys().cloned()),
            Op::Dbsize => int(self.0.len()),
            Op::Flushdb => {
                self.0.clear();
                ok()
            }
            _ => self.apply_list(op),
        }
    }

    fn apply_list(&mut self, op: &Op) -> Value {
        match op {
            Op::Push(side, key, elements) => {
                let held = self.entry(key, || Held::List(VecDeque::new()));
                let Held::List(list) = held else { return wrong() };
                elements.iter().for_each(|element| push(list, *side, element.clone()));
                int(list.len())
            }
            Op::Pop(side, key, count) => self.pop(*side, key, *count),
            Op::Lmove(from, to, one, other) => self.lmove((from, *one), (to, *other)),
            Op::Lmpop(keys, side, count) => {
                let Some(key) = keys.iter().find(|key| self.0.contains_key(*key)) else {
                    return Value::Null;
                };
                match self.pop(*side, key, Some(*count)) {
                    Value::Array(gone) => {
                        Value::Array(vec![Value::Bulk(key.clone()), Value::Array(gone)])
                    }
                    error => error,
                }
            }
            Op::Lrange(key) => match self.get(key) {
                None => Value::Array(Vec::new()),
                Some(Held::List(elements)) => list(elements.iter().cloned()),
                Some(_) => wrong(),
            },
            Op::Llen(key) => match self.get(key) {
                None => Value::Int(0),
                Some(Held::List(list)) => int(list.len()),
                Some(_) => wrong(),
            },
            Op::Lpos(key, element) => match self.get(key) {
                None => Value::Null,
                Some(Held::List(list)) => {
                    list.iter().position(|one| one == element).map_or(Value::Null, int)
                }
                Some(_) => wrong(),
            },
            _ => self.apply_list_change(op),
        }
    }

    /// Changes of a list by an element's value or place.
    fn apply_list_change(&mut self, op: &Op) -> Value {
        let (Op::Lset(key, ..) | Op::Ltrim(key, _) | Op::Lrem(key, _) | Op::Linsert(key, ..)) = op
        else {
            return self.apply_collections(op);
        };
        let list = match self.get_mut(key) {
            None if matches!(op, Op::Lset(..)) => return Value::Error("ERR no such key".into()),
            None if matches!(op, Op::Ltrim(..)) => return ok(),
            None => return Value::Int(0),
            Some(Held::List(list)) => list,
            Some(_) => return wrong(),
        };
        let len = list.len();
        let reply = match op {
            Op::Lset(_, index, element) => {
                let at = if *index < 0 { len - 1 } else { 0 };
                list[at].clone_from(element);
                ok()
            }
            Op::Ltrim(_, count) => {
                list.truncate(len.saturating_sub(*count));
                list.drain(..(*count).min(list.len()));
                ok()
            }
            Op::Lrem(_, element) => {
                list.retain(|one| one != element);
                int(len - list.len())
            }
            Op::Linsert(_, pivot, element) => match list.iter().position(|one| one == pivot) {
                None => Value::Int(-1),
                Some(at) => {
                    list.insert(at, element.clone());
                    int(len + 1)
                }
            },
            _ => unreachable!("matched above"),
        };
        if list.is_empty() {
            self.0.remove(key);
        }
        reply
    }

    /// Pops one element without a count, otherwise up to `count`.
    fn pop(&mut self, side: Side, key: &str, count: Option<usize>) -> Value {
        let elements = match self.get_mut(key) {
            None => return Value::Null,
            Some(Held::List(list)) => list,
            Some(_) => return wrong(),
        };
        let wanted = count.unwrap_or(1).min(elements.len());
        let gone: Vec<String> = (0..wanted).filter_map(|_| take(elements, side)).collect();
        if elements.is_empty() {
            self.0.remove(key);
        }
        if count.is_some() { list(gone) } else { bulk(gone.first()) }
    }

    fn lmove(&mut self, from: (&str, Side), to: (&str, Side)) -> Value {
        match (self.get(from.0), self.get(to.0)) {
            (None, _) => return Value::Null,
            (Some(Held::List(_)), None | Some(Held::List(_))) => {}
            _ => return wrong(),
        }
        let Some(Held::List(source)) = self.get_mut(from.0) else { return wrong() };
        let Some(element) = take(source, from.1) else { return Value::Null };
        if source.is_empty() {
            self.0.remove(from.0);
        }
        let held = self.entry(to.0, || Held::List(VecDeque::new()));
        if let Held::List(list) = held {
            push(list, to.1, element.clone());
        }
        Value::Bulk(element)
    }

    fn apply_collections(&mut self, op: &Op) -> Value {
        match op {
            Op::Hset(key, pairs) => match self.hash(key) {
                None => wrong(),
                Some(hash) => {
                    let new = pairs.iter().filter(|(field, value)| {
                        hash.insert(field.clone(), value.clone()).is_none()
                    });
                    int(new.count())
                }
            },
            Op::Hdel(key, fields) => match self.get_mut(key) {
                None => Value::Int(0),
                Some(Held::Hash(hash)) => {
                    let gone = fields.iter().filter(|field| hash.remove(*field).is_some()).count();
                    if hash.is_empty() {
                        self.0.remove(key);
                    }
                    int(gone)
                }
                Some(_) => wrong(),
            },
            Op::Hget(key, field) => match self.get(key) {
                None => Value::Null,
                Some(Held::Hash(hash)) => bulk(hash.get(field)),
                Some(_) => wrong(),
            },
            Op::Hlen(key) => match self.get(key) {
                None => Value::Int(0),
                Some(Held::Hash(hash)) => int(hash.len()),
                Some(_) => wrong(),
            },
            Op::Hgetall(key) | Op::Broken(key) => match self.get(key) {
                None => Value::Array(Vec::new()),
                Some(Held::Hash(hash)) => {
                    let pairs =
                        hash.iter().map(|(field, value)| list([field.clone(), value.clone()]));
                    Value::Array(pairs.collect())
                }
                Some(_) => wrong(),
            },
            Op::Sadd(key, members) => match self.set(key) {
                None => wrong(),
                Some(set) => {
                    int(members.iter().filter(|member| set.insert((*member).clone())).count())
                }
            },
            Op::Srem(key, members) => match self.get_mut(key) {
                None => Value::Int(0),
                Some(Held::Set(set)) => {
                    let gone = members.iter().filter(|member| set.remove(*member)).count();
                    if set.is_empty() {
                        self.0.remove(key);
                    }
                    int(gone)
                }
                Some(_) => wrong(),
            },
            Op::Smembers(key) => match self.get(key) {
                None => Value::Array(Vec::new()),
                Some(Held::Set(set)) => list(set.iter().cloned()),
                Some(_) => wrong(),
            },
            Op::Smove(from, to, member) => self.smove(from, to, member),
            Op::Algebra { kind, store, keys } => self.algebra(*kind, store.as_deref(), keys),
            other => unreachable!("{other:?} is applied above"),
        }
    }

    fn get(&self, key: &str) -> Option<&Held> {
        self.0.get(key).map(|held| &**held)
    }

    fn get_mut(&mut self, key: &str) -> Option<&mut Held> {
        self.0.get_mut(key).map(Rc::make_mut)
    }

    fn put(&mut self, key: String, held: Held) {
        self.0.insert(key, Rc::new(held));
    }

    /// The value of a key, inserted by `new` if missing.
    fn entry(&mut self, key: &str, new: impl FnOnce() -> Held) -> &mut Held {
        Rc::make_mut(self.0.entry(key.to_owned()).or_insert_with(|| Rc::new(new())))
    }

    fn incr(&mut self, key: &str) -> Value {
        let held = self.entry(key, || Held::Text("0".into()));
        let Held::Text(text) = held else { return wrong() };
        match text.parse::<i64>() {
            Ok(number) => {
                *text = (number + 1).to_string();
                Value::Int(number + 1)
            }
            Err(_) => Value::Error("ERR value is not an integer or out of range".into()),
        }
    }

    fn append(&mut self, key: &str, value: &str) -> Value {
        let held = self.entry(key, || Held::Text(String::new()));
        let Held::Text(text) = held else { return wrong() };
        text.push_str(value);
        int(text.len())
    }

    fn hash(&mut self, key: &str) -> Option<&mut BTreeMap<String, String>> {
        let held = self.entry(key, || Held::Hash(BTreeMap::new()));
        if let Held::Hash(hash) = held { Some(hash) } else { None }
    }

    fn set(&mut self, key: &str) -> Option<&mut BTreeSet<String>> {
        let held = self.entry(key, || Held::Set(BTreeSet::new()));
        if let Held::Set(set) = held { Some(set) } else { None }
    }

    fn smove(&mut self, from: &str, to: &str, member: &str) -> Value {
        match (self.get(from), self.get(to)) {
            (None, _) => return Value::Int(0),
            (Some(Held::Set(_)), None | Some(Held::Set(_))) => {}
            _ => return wrong(),
        }
        let Some(Held::Set(source)) = self.get_mut(from) else { return wrong() };
        if from == to {
            return int(usize::from(source.contains(member)));
        }
        if !source.remove(member) {
            return Value::Int(0);
        }
        if source.is_empty() {
            self.0.remove(from);
        }
        if let Some(set) = self.set(to) {
            set.insert(member.to_owned());
        }
        Value::Int(1)
    }

    fn algebra(&mut self, kind: Algebra, store: Option<&str>, keys: &[String]) -> Value {
        let mut sets = Vec::new();
        for key in keys {
            match self.get(key) {
                None => sets.push(BTreeSet::new()),
                Some(Held::Set(set)) => sets.push(set.clone()),
                Some(_) => return wrong(),
            }
        }
        let first = sets[0].clone();
        let result = sets[1..].iter().fold(first, |sum, set| match kind {
            Algebra::Inter => &sum & set,
            Algebra::Union => &sum | set,
            Algebra::Diff => &sum - set,
        });
        let Some(to) = store else { return list(result) };
        let len = result.len();
        self.0.remove(to);
        if len > 0 {
            self.put(to.to_owned(), Held::Set(result));
        }
        int(len)
    }
}

/// A set operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algebra {
    /// In all sets.
    Inter,
    /// In any set.
    Union,
    /// In the first set only.
    Diff,
}
