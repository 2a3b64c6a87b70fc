//! Setting several strings at once: MSET, MSETNX, MSETEX.
//!
//! A few short values are set at once. More bytes than a slice can copy are first copied to blobs
//! in portions, and then set in one step. Keys on several cores, or very many, are locked and set
//! in portions, so no client sees a partial result.

use super::options::{Face, Options, Test};
use crate::keys_by_core::{KeysByCore, Layout, PORTION_KEYS, Portion};
use crate::option_names;
use crate::text::BYTES_AT_ONCE;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::number;
use darter_command::{Answer, Args, Call, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Db, Deadline, Fresh, Key};
use darter_resp::{self as resp, Reply, Request};
use darter_structs::blob::Blob;
use darter_tx::{Access, Home};
use std::sync::Arc;

/// Which of the commands runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Mset,
    Msetnx,
    Msetex,
}

/// The values to set, and the condition.
#[derive(Clone, Copy, Debug)]
struct Plan {
    form: Form,
    /// The index of the first key; its value follows, then the next key.
    first: usize,
    pairs: usize,
    /// The condition on all keys.
    test: Option<Test>,
    deadline: Deadline,
}

impl Plan {
    fn parse(form: Form, args: Args<'_>, now: u64) -> Result<Self, Refusal> {
        match form {
            Form::Mset => Self::of_all(form, args, "mset", None),
            Form::Msetnx => Self::of_all(form, args, "msetnx", Some(Test::Absent)),
            Form::Msetex => Self::counted(args, now),
        }
    }

    /// The plan if all arguments are pairs.
    fn of_all(
        form: Form,
        args: Args<'_>,
        name: &'static str,
        test: Option<Test>,
    ) -> Result<Self, Refusal> {
        if !args.left().is_multiple_of(2) {
            return Err(Refusal::Arity(name.into()));
        }
        let (first, pairs) = (args.position(), args.left() / 2);
        Ok(Self { form, first, pairs, test, deadline: Deadline::Clear })
    }

    /// The plan of MSETEX: `numkeys`, pairs, options.
    fn counted(mut args: Args<'_>, now: u64) -> Result<Self, Refusal> {
        let count = option_names::take(&mut args).and_then(number::parse_i64);
        let pairs = count
            .filter(|count| (1..=i64::from(i32::MAX)).contains(count))
            .and_then(|count| usize::try_from(count).ok())
            .ok_or(Refusal::line("ERR invalid numkeys value"))?;
        let first = args.position();
        if pairs > args.left() / 2 {
            return Err(Refusal::line("ERR wrong number of key-value pairs"));
        }
        args.seek(first + 2 * pairs);
        let options = Options::parse(args, Face::Msetex)?;
        let deadline = options.deadline(now, "msetex")?;
        let test = options.condition.map(|condition| condition.test);
        Ok(Self { form: Form::Msetex, first, pairs, test, deadline })
    }

    fn positions(&self) -> impl Iterator<Item = usize> + use<> {
        (self.first..).step_by(2).take(self.pairs)
    }

    /// True if the test holds for the key.
    fn allows(&self, db: &mut Db, key: &Key<'_>) -> bool {
        match self.test {
            Some(Test::Absent) => db.read(key).is_none(),
            Some(_) => db.read(key).is_some(),
            None => true,
        }
    }

    /// Replies whether the keys were set.
    fn reply(&self, reply: &mut Reply<'_>, set: bool) {
        match self.form {
            Form::Mset => reply.ok(),
            Form::Msetnx | Form::Msetex => reply.int(i64::from(set)),
        }
    }
}

/// `MSET key value [key value ...]`: sets the keys atomically.
///
/// Reply: `OK`. Refusals: the number of arguments. Cost: O(keys), in slices if they are many or
/// their values long. Source: <https://redis.io/commands/mset> (1.0.1).
pub(super) fn mset_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    here(cx, args, Form::Mset)
}

/// `MSETNX key value [key value ...]`: sets the keys if none of them exists.
///
/// Reply: 1, or 0. Otherwise as MSET. Source: <https://redis.io/commands/msetnx> (1.0.1).
pub(super) fn msetnx_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    here(cx, args, Form::Msetnx)
}

/// `MSETEX numkeys key value [key value ...] [NX | XX] [EX s | PX ms | EXAT t | PXAT t | KEEPTTL]`:
/// sets the keys, with one deadline, if none of them exists (NX) or all do (XX).
///
/// Reply: 1, or 0 when the condition does not hold. Refusals: a count that differs from the number
/// of pairs, `Syntax`, `NotAnInteger`, `InvalidExpire`. Otherwise as MSET.
/// Source: <https://redis.io/commands/msetex> (8.4.0).
pub(super) fn msetex_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    here(cx, args, Form::Msetex)
}

/// MSET for keys on several cores, or for very many.
pub(super) async fn mset_anywhere(call: Call) -> Result<Answer, Refusal> {
    anywhere(call, Form::Mset).await
}

/// MSETNX for keys on several cores, or for very many.
pub(super) async fn msetnx_anywhere(call: Call) -> Result<Answer, Refusal> {
    anywhere(call, Form::Msetnx).await
}

/// MSETEX for keys on several cores, or for very many.
pub(super) async fn msetex_anywhere(call: Call) -> Result<Answer, Refusal> {
    anywhere(call, Form::Msetex).await
}

fn here(cx: &mut Cx<'_>, args: Args<'_>, form: Form) -> Result<Flow, Refusal> {
    let plan = Plan::parse(form, args, cx.now)?;
    let bytes: usize = plan.positions().map(|at| args.all().arg(at + 1).len()).sum();
    if bytes > BYTES_AT_ONCE {
        let request = args.all().to_request();
        let made = Vec::with_capacity(plan.pairs);
        return Ok(Flow::Job(Box::new(Prepare { request, plan, made })));
    }
    let set = set_all(cx.db, args.all(), &plan, |at| value_at(args.all(), at));
    plan.reply(&mut cx.reply, set);
    Ok(Flow::Done)
}

/// Sets all keys if the test holds for all.
fn set_all<'a>(
    db: &mut Db,
    args: resp::Args<'a>,
    plan: &Plan,
    value: impl Fn(usize) -> Fresh<'a>,
) -> bool {
    let holds =
        plan.test.is_none() || plan.positions().all(|at| plan.allows(db, &Key::new(args.get(at))));
    if holds {
        for at in plan.positions() {
            db.set_text(&Key::new(args.get(at)), value(at + 1), plan.deadline);
        }
    }
    holds
}

/// The argument at `index` as a value.
fn value_at(args: resp::Args<'_>, index: usize) -> Fresh<'_> {
    Args::new(args, index).value().unwrap_or(Fresh::Bytes(b""))
}

/// Copies long values to blobs in portions, then sets all keys in one step. Before that step
/// nothing changes, so other commands may use the keys.
struct Prepare {
    request: Arc<Request>,
    plan: Plan,
    /// A blob for each value so far that needs one.
    made: Vec<Option<Blob>>,
}

impl Job for Prepare {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let args = resp::Args::owned(&self.request);
        let plan = self.plan;
        let mut bytes = 0;
        while self.made.len() < plan.pairs {
            if bytes >= BYTES_AT_ONCE {
                return Ok(Step::More);
            }
            let value = value_at(args, plan.first + 2 * self.made.len() + 1);
            // All chunks but the last are shared, so a value costs at most one copied chunk.
            bytes += value.len().min(BYTES_AT_ONCE / 2);
            self.made.push((value.len() > ENTRIES_AT_ONCE).then(|| value.to_blob()));
        }
        let value = |at: usize| match &self.made[(at - plan.first) / 2] {
            Some(blob) => Fresh::Blob(blob),
            None => value_at(args, at),
        };
        let set = set_all(cx.db, args, &plan, value);
        plan.reply(&mut cx.reply, set);
        Ok(Step::Done(Flow::Done))
    }
}

async fn anywhere(call: Call, form: Form) -> Result<Answer, Refusal> {
    let now = call.tx.home().shard.now();
    let plan = Plan::parse(form, call.args(), now)?;
    let layout = Layout { first: plan.first, step: 2, count: plan.pairs };
    let spread = KeysByCore::of(&call, layout).await;
    if plan.test.is_none() {
        spread.change(&call, portion_keys, setting(&call, plan)).await;
        return Ok(call.answer(|reply| plan.reply(reply, true)));
    }
    let locked = spread.lock(&call, Access::Exclusive).await;
    let holds = holds_everywhere(&call, &plan, &spread).await;
    if holds {
        spread.work(&call, portion_keys, setting(&call, plan)).await;
    }
    drop(locked);
    Ok(call.answer(|reply| plan.reply(reply, holds)))
}

/// True if the test holds for all keys, which are locked.
async fn holds_everywhere(call: &Call, plan: &Plan, spread: &KeysByCore) -> bool {
    let (db, no_touch, plan) = (call.db, call.no_touch, *plan);
    let check = move |home: &mut Home, keys: &Portion, fails: &mut bool| {
        let db = home.shard.db_for(db, no_touch);
        *fails = !keys.keys(db).iter().all(|key| plan.allows(db, key));
        !*fails
    };
    !spread.work(call, |_| PORTION_KEYS, check).await.contains(&true)
}

/// Sets some of the keys, which are locked.
fn setting(
    call: &Call,
    plan: Plan,
) -> impl Fn(&mut Home, &Portion, &mut ()) -> bool + Clone + Send + use<> {
    let db = call.db;
    move |home, keys, ()| {
        let (args, db) = (keys.args(), home.shard.db_mut(db));
        for (at, key) in keys.positions().zip(keys.keys(db)) {
            db.set_text(&key, value_at(args, at + 1), plan.deadline);
        }
        true
    }
}

/// The number of keys in the next portion, bounded by keys and by bytes.
fn portion_keys(keys: &Portion) -> usize {
    /// New keys split and fill segments: setting 256 at once took half a slice.
    const SET_AT_ONCE: usize = 32;
    let (mut count, mut bytes) = (0, 0);
    for at in keys.positions().take(SET_AT_ONCE) {
        if bytes >= BYTES_AT_ONCE {
            break;
        }
        bytes += keys.args().arg(at + 1).len().min(BYTES_AT_ONCE / 2);
        count += 1;
    }
    count
}
