//! Transactions of a run: MULTI, some commands and EXEC in one pipeline, after WATCH of a key and a
//! GET of it, or not; or a script that calls these commands, and names some of their keys.
//!
//! In a history a transaction is a single command with the replies of GET and EXEC. If it has run,
//! no other client has changed the key between the two. If not, it was a GET, and another client
//! must have written to the key.

use crate::check::Event;
use crate::ops::Op;
use crate::value::Value;
use darter_base::Prng;

/// A script with the effect of a transaction.
#[derive(Clone, Debug)]
enum Script {
    /// The script takes its commands from its arguments, and names these of their keys.
    Reads(Vec<String>),
    /// The script's text has them, and plainly no other keys than it names: the first argument of
    /// each.
    Says,
}

/// A transaction.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    /// The key that it watches, and reads before MULTI.
    pub(crate) watched: Option<String>,
    /// The command that watches it.
    watch: &'static str,
    pub(crate) ops: Vec<Op>,
    /// The script, if it is one.
    script: Option<Script>,
}

/// Calls the commands in its arguments, each of which begins with the number of its words.
const SCRIPT: &str = "local replies, at = {}, 1
    while at <= #ARGV do
      local words = tonumber(ARGV[at])
      replies[#replies + 1] = redis.pcall(unpack(ARGV, at + 1, at + words))
      at = at + words + 1
    end
    return replies";

/// Words of a call in a script's text: Lua allows some two hundred.
const WORDS_MAX: usize = 100;

impl Transaction {
    /// Commands of the usual mix, over the keys of all cores.
    pub(crate) fn draw(prng: &mut Prng) -> Self {
        let mut ops = Vec::new();
        let count = 1 + prng.below(4);
        while (ops.len() as u64) < count {
            let op = Op::draw_plain(prng);
            if !matches!(op, Op::Select(_) | Op::Transaction(_)) && !op.is_pause() {
                ops.push(op);
            }
        }
        let watched = prng.chance(50).then(|| Op::key(prng));
        Self { watched, watch: "WATCH", ops, script: None }
    }

    /// Draws one as a script.
    pub(crate) fn draw_script(prng: &mut Prng) -> Self {
        let mut drawn = Self::draw(prng);
        drawn.ops.retain(|op| !matches!(op, Op::Config(..)));
        let all = drawn.ops.iter().filter_map(Op::keys).flatten().cloned().collect::<Vec<_>>();
        let named = all.into_iter().filter(|_| prng.chance(50)).collect();
        Self { watched: None, script: Some(Script::Reads(named)), ..drawn }
    }

    /// Draws a script of one command or two, with no keys but those that it names.
    pub(crate) fn draw_plain_script(prng: &mut Prng) -> Self {
        let mut drawn = Self::draw(prng);
        let is_plain = |op: &Op| {
            let (words, keys) = (op.words(), op.keys().unwrap_or_default());
            words.len() <= WORDS_MAX && matches!(keys[..], [key] if Some(key) == words.get(1))
        };
        drawn.ops.retain(is_plain);
        if drawn.ops.is_empty() {
            drawn.ops.push(Op::Incr(Op::key(prng)));
        }
        drawn.ops.truncate(2);
        Self { watched: None, script: Some(Script::Says), ..drawn }
    }

    /// EVAL of one that says its commands.
    fn eval_plain(&self) -> Vec<String> {
        let (mut calls, mut keys, mut arguments) = (Vec::new(), Vec::new(), Vec::new());
        for op in &self.ops {
            let mut words = op.words().into_iter();
            let name = words.next().expect("a command has a name");
            keys.extend(words.next());
            let mut call = format!("redis.pcall('{name}', KEYS[{}]", keys.len());
            for word in words {
                arguments.push(word);
                call += &format!(", ARGV[{}]", arguments.len());
            }
            calls.push(call + ")");
        }
        let text = format!("return {{{}}}", calls.join(", "));
        let words = ["EVAL".to_owned(), text, keys.len().to_string()];
        words.into_iter().chain(keys).chain(arguments).collect()
    }

    /// EVAL of one that reads its commands.
    fn eval(&self, named: &[String]) -> Vec<String> {
        let mut words = vec!["EVAL".to_owned(), SCRIPT.to_owned(), named.len().to_string()];
        words.extend_from_slice(named);
        for op in &self.ops {
            let op = op.words();
            words.push(op.len().to_string());
            words.extend(op);
        }
        words
    }

    /// One that watches by a command with a seeded bug.
    pub(crate) fn broken(key: &str, ops: Vec<Op>) -> Self {
        Self { watched: Some(key.to_owned()), watch: "BROKEN", ops, script: None }
    }

    /// The requests, one by one.
    pub(crate) fn requests(&self) -> Vec<Vec<String>> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match &self.script {
            Some(Script::Reads(named)) => return vec![self.eval(named)],
            Some(Script::Says) => return vec![self.eval_plain()],
            None => {}
        }
        let mut requests = Vec::new();
        if let Some(key) = &self.watched {
            requests.extend([words(&[self.watch, key]), words(&["GET", key])]);
        }
        requests.push(words(&["MULTI"]));
        requests.extend(self.ops.iter().map(Op::words));
        requests.push(words(&["EXEC"]));
        requests
    }

    /// The keys that it names; `None` when it concerns all keys.
    pub(crate) fn keys(&self) -> Option<Vec<&String>> {
        let mut keys: Vec<&String> = self.watched.iter().collect();
        for op in &self.ops {
            keys.extend(op.keys()?);
        }
        Some(keys)
    }

    /// The reply of the whole, of those to its requests.
    pub(crate) fn join(&self, replies: Vec<Value>) -> Result<Value, String> {
        if self.script.is_some() {
            return Ok(Value::Array(replies));
        }
        let ok = |value: &Value| *value == Value::Simple("OK".to_owned());
        let queued = |value: &Value| *value == Value::Simple("QUEUED".to_owned());
        let before = 2 * usize::from(self.watched.is_some());
        let is_right = replies.iter().take(before).step_by(2).all(ok)
            && ok(&replies[before])
            && replies[before + 1..replies.len() - 1].iter().all(queued);
        if !is_right {
            return Err(format!("replies of a transaction: {replies:?}"));
        }
        let mut replies = replies.into_iter();
        let mut whole = Vec::new();
        if self.watched.is_some() {
            whole.extend(replies.nth(1));
        }
        whole.extend(replies.next_back());
        Ok(Value::Array(whole))
    }

    /// The reply in the model's form.
    pub(crate) fn normal(&self, reply: Value) -> Value {
        let Value::Array(mut whole) = reply else { return reply };
        if let Some(Value::Array(replies)) = whole.pop_if(|last| matches!(last, Value::Array(_))) {
            let both = self.ops.iter().zip(replies);
            whole.push(Value::Array(both.map(|(op, reply)| op.normal(reply)).collect()));
        }
        Value::Array(whole)
    }
}

/// A transaction that did not run, in the form of the commands that did.
pub(crate) fn unless_run(op: Op, reply: Value) -> (Op, Value) {
    match (op, reply) {
        (Op::Transaction(it), Value::Array(whole)) if whole.last() == Some(&Value::Null) => {
            let key = it.watched.clone().expect("only what watches does not run");
            let read = whole.into_iter().next().expect("the reply of GET");
            (Op::Unrun(key), read)
        }
        other => other,
    }
}

/// The first transaction that did not run although no client wrote to its key during it.
pub(crate) fn unprovoked(history: &[Event]) -> Option<&Event> {
    history.iter().filter(|event| matches!(event.op, Op::Unrun(_))).find(|event| {
        let Op::Unrun(key) = &event.op else { return false };
        let touches = |other: &&Event| {
            other.op.is_write()
                && other.called <= event.returned
                && other.returned >= event.called
                && other.op.keys().is_none_or(|keys| keys.contains(&key))
        };
        history.iter().find(touches).is_none()
    })
}
