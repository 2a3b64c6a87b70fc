//! `DEBUG POPULATE count [prefix] [size] [RAND] [TYPE string|hash|set] [ELEMENTS n]`: many keys,
//! for tests and benchmarks. Every core makes the keys that it owns, in slices.

use crate::engine::{Core, ServerCall};
use darter_base::number;
use darter_command::{Answer, Args, Refusal};
use darter_keyspace::{Deadline, Fresh, Key};
use std::rc::Rc;
use std::sync::Arc;

/// Elements made between two looks at the clock: about 10 us.
const PORTION: usize = 32;

/// The types that can be made.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Hash,
    Set,
}

/// What is to be made.
struct Plan {
    count: u64,
    prefix: Vec<u8>,
    /// Bytes of a value; 0: as long as its text.
    size: usize,
    random: bool,
    kind: Type,
    elements: u64,
    db: usize,
}

/// See the module.
pub(super) async fn populate(call: &ServerCall, args: Args<'_>) -> Result<Answer, Refusal> {
    let plan = Arc::new(parse(call.session.db, args)?);
    let core = &call.core;
    if plan.size > core.hot.borrow().bulk_max {
        let text = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
        return Err(Refusal::line(text));
    }
    let mut pending = Vec::new();
    for id in 0..core.tx.cores() {
        let (ticket, done) = core.tx.ticket::<()>();
        let (plan, from) = (Arc::clone(&plan), core.id());
        core.tell(id, move |there| {
            there.spawn_on_self(move |core| async move {
                make(&core, &plan).await;
                core.return_to(from, ticket, Box::new(()));
            });
        });
        pending.push(done);
    }
    for done in pending {
        done.await;
    }
    Ok(call.answer(|reply| reply.ok()))
}

fn parse(db: usize, mut args: Args<'_>) -> Result<Plan, Refusal> {
    let positive = |text: &[u8]| {
        number::parse_i64(text)
            .and_then(|value| u64::try_from(value).ok())
            .ok_or(Refusal::OutOfRangePositive)
    };
    let count = positive(args.bytes()?)?;
    let prefix = args.next().unwrap_or(b"key").to_vec();
    let mut plan =
        Plan { count, prefix, size: 0, random: false, kind: Type::Text, elements: 1, db };
    if args.peek().is_some_and(|next| next.first().is_some_and(u8::is_ascii_digit)) {
        plan.size = usize::try_from(positive(args.bytes()?)?).map_err(|_| Refusal::Syntax)?;
    }
    while args.left() > 0 {
        if args.option("RAND") {
            plan.random = true;
        } else if args.option("TYPE") {
            plan.kind = match args.bytes()?.to_ascii_lowercase().as_slice() {
                b"string" => Type::Text,
                b"hash" => Type::Hash,
                b"set" => Type::Set,
                _ => return Err(Refusal::Syntax),
            };
        } else if args.option("ELEMENTS") {
            plan.elements = positive(args.bytes()?)?.max(1);
        } else {
            return Err(Refusal::Syntax);
        }
    }
    Ok(plan)
}

/// Keys whose cache lines are asked for before the first of them is looked up.
const BATCH: u64 = 16;

async fn make(core: &Rc<Core>, plan: &Plan) {
    let mut names: Vec<Vec<u8>> = (0..BATCH).map(|_| Vec::new()).collect();
    let mut value = Vec::new();
    let mut number = 0;
    while number < plan.count {
        let batch = BATCH.min(plan.count - number);
        for (name, number) in names.iter_mut().zip(number..number + batch) {
            name.clear();
            name.extend_from_slice(&plan.prefix);
            name.push(b':');
            number::write_i64(name, i64::try_from(number).unwrap_or(i64::MAX));
            core.tx.home().shard.db(plan.db).prefetch(&Key::new(name));
        }
        for (name, number) in names.iter().zip(number..number + batch) {
            if core.tx.core_of(name) == core.id() {
                make_key(core, plan, name, number, &mut value).await;
            }
        }
        number += batch;
        core.tx.pause().await;
    }
}

/// Makes one key, a portion of its elements at a time.
async fn make_key(core: &Rc<Core>, plan: &Plan, key: &[u8], number: u64, value: &mut Vec<u8>) {
    let mut element = 0;
    while element < plan.elements {
        let portion = (plan.elements - element).min(PORTION as u64);
        if !make_portion(core, plan, key, number, element..element + portion, value) {
            return;
        }
        element += portion;
        if element < plan.elements {
            core.tx.pause().await;
        }
    }
}

/// Makes some elements of a key. False when the key is there already, and stays as it is.
fn make_portion(
    core: &Core,
    plan: &Plan,
    key: &[u8],
    number: u64,
    elements: std::ops::Range<u64>,
    value: &mut Vec<u8>,
) -> bool {
    let mut home = core.tx.home();
    let shard = &mut home.shard;
    let (db, prng, _) = shard.parts(plan.db);
    let key = Key::new(key);
    if elements.start == 0 && db.exists(&key) {
        return false;
    }
    if matches!(plan.kind, Type::Text) {
        write_value(plan, number, prng, value);
        db.set_text(&key, Fresh::Bytes(value), Deadline::Clear);
        return false; // A string is whole at once.
    }
    for element in elements {
        write_value(plan, element, prng, value);
        let text = format!("element:{element}");
        let made = match plan.kind {
            Type::Hash => db.edit_hash(&key, true, |edit| {
                edit.set(text.as_bytes(), Fresh::Bytes(value), Deadline::Clear)
            }),
            _ => db.edit_set(&key, true, |edit| edit.add(text.as_bytes(), Deadline::Clear)),
        };
        if made.is_err() {
            return false; // Another client has put another type there meanwhile.
        }
    }
    true
}

/// `value:<number>`, cut or filled up with zero bytes to the wanted size, or random bytes.
fn write_value(plan: &Plan, number: u64, prng: &mut darter_base::Prng, value: &mut Vec<u8>) {
    value.clear();
    if plan.random {
        let size = if plan.size == 0 { 16 } else { plan.size };
        while value.len() < size {
            value.extend_from_slice(&prng.next_u64().to_le_bytes());
        }
        value.truncate(size);
        return;
    }
    value.extend_from_slice(b"value:");
    number::write_i64(value, i64::try_from(number).unwrap_or(i64::MAX));
    if plan.size > 0 {
        value.resize(plan.size, 0);
    }
}
