//! `DEBUG POPULATE count [prefix] [size] [RAND] [TYPE type] [ELEMENTS n]`: creates many keys, for
//! tests and benchmarks. Every core creates the keys that it owns, in slices.

use crate::engine::{Core, ServerCall};
use darter_base::limits::CHUNK_BYTES;
use darter_base::{Prng, number};
use darter_command::{Answer, Args, Refusal};
use darter_families::TYPES;
use darter_keyspace::{Deadline, Fresh, Key, NewItem, Object, Type, Typed};
use darter_structs::blob::Blob;
use std::rc::Rc;
use std::sync::Arc;

/// Elements created between two reads of the clock. Few, because each may split a segment.
const PORTION: usize = 4;

/// The parsed arguments of DEBUG POPULATE.
struct Plan {
    count: u64,
    prefix: Vec<u8>,
    /// The size of a value in bytes; 0 to use the length of its text.
    size: usize,
    random: bool,
    kind: &'static Type,
    elements: u64,
    db: usize,
}

/// Runs `DEBUG POPULATE`. It is refused inside EXEC, because the transaction has not locked the
/// keys.
pub(super) async fn populate(call: &ServerCall, args: Args<'_>) -> Result<Answer, Refusal> {
    if call.is_inside() {
        return Err(Refusal::line("ERR DEBUG POPULATE is not allowed inside a transaction"));
    }
    let plan = Arc::new(parse(call.session.db, args)?);
    let core = &call.core;
    if plan.size > core.hot.borrow().bulk_max {
        let text = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
        return Err(Refusal::line(text));
    }
    let mut pending = Vec::new();
    for id in 0..core.tx.cores() {
        let (ticket, done) = core.tx.ticket::<bool>();
        let (plan, from) = (Arc::clone(&plan), core.id());
        core.tell(id, move |there| {
            there.spawn_on_self(move |core| async move {
                let is_made = make(&core, &plan).await;
                core.return_to(from, ticket, Box::new(is_made));
            });
        });
        pending.push(done);
    }
    let mut is_made = true;
    for done in pending {
        is_made &= done.await;
    }
    if !is_made {
        let text = format!("ERR a {} takes no names with values", plan.kind.name);
        return Err(Refusal::line(text));
    }
    Ok(call.answer(|reply| reply.ok()))
}

/// Options that may follow the size, or take its place.
const OPTIONS: [&[u8]; 3] = [b"RAND", b"TYPE", b"ELEMENTS"];

fn parse(db: usize, mut args: Args<'_>) -> Result<Plan, Refusal> {
    let positive = |text: &[u8]| {
        number::parse_i64(text)
            .and_then(|value| u64::try_from(value).ok())
            .ok_or(Refusal::OutOfRangePositive)
    };
    let count = positive(args.bytes()?)?;
    let prefix = args.next().unwrap_or(b"key").to_vec();
    let kind = Blob::TYPE;
    let mut plan = Plan { count, prefix, size: 0, random: false, kind, elements: 1, db };
    let is_option = |word: &[u8]| OPTIONS.iter().any(|name| word.eq_ignore_ascii_case(name));
    if args.peek().is_some_and(|next| !is_option(next)) {
        plan.size = usize::try_from(positive(args.bytes()?)?).map_err(|_| Refusal::Syntax)?;
    }
    while args.left() > 0 {
        if args.option("RAND") {
            plan.random = true;
        } else if args.option("TYPE") {
            let name = args.bytes()?;
            let mut types = TYPES.iter();
            let known = types.find(|kind| name.eq_ignore_ascii_case(kind.name.as_bytes()));
            plan.kind = known.ok_or(Refusal::Syntax)?;
        } else if args.option("ELEMENTS") {
            plan.elements = positive(args.bytes()?)?.max(1);
        } else {
            return Err(crate::admin::wrong_subcommand(args));
        }
    }
    Ok(plan)
}

/// The number of keys whose memory is prefetched before the first of them is looked up.
const BATCH: u64 = 16;
/// Keys created between two reads of the clock. Few, because each may split a segment.
const KEYS_AT_ONCE: usize = 4;
/// Bytes of new memory written between two reads of the clock: about 20 us.
const BYTES_AT_ONCE: usize = CHUNK_BYTES / 2;

/// Creates the keys that this core owns. Returns false if the type refuses the elements.
async fn make(core: &Rc<Core>, plan: &Plan) -> bool {
    let mut names: Vec<Vec<u8>> = (0..BATCH).map(|_| Vec::new()).collect();
    let keys_at_once = if plan.size < BYTES_AT_ONCE / KEYS_AT_ONCE { KEYS_AT_ONCE } else { 1 };
    let (mut number, mut made) = (0, 0);
    while number < plan.count {
        let batch = BATCH.min(plan.count - number);
        for (name, number) in names.iter_mut().zip(number..number + batch) {
            name.clear();
            name.extend_from_slice(&plan.prefix);
            name.push(b':');
            number::write_i64(name, i64::try_from(number).unwrap_or(i64::MAX));
        }
        prefetch(core, plan, &names[..batch as usize]);
        for (name, number) in names.iter().zip(number..number + batch) {
            if core.tx.core_of(name) == core.id() {
                if !make_key(core, plan, name, number).await {
                    return false;
                }
                made += 1;
                if made % keys_at_once == 0 {
                    core.tx.pause().await;
                }
            }
        }
        number += batch;
        core.tx.pause().await;
    }
    true
}

/// Prefetches the table memory of the keys. All hashes are computed first: prefetches that are
/// close together overlap more.
fn prefetch(core: &Core, plan: &Plan, names: &[Vec<u8>]) {
    let mut keys = [0; BATCH as usize];
    for (hash, name) in keys.iter_mut().zip(names) {
        *hash = Key::new(name).hash;
    }
    let home = core.tx.home();
    let table = home.shard.db(plan.db).keys();
    keys[..names.len()].iter().for_each(|hash| table.prefetch(*hash));
}

/// The value of a new key.
enum Value {
    Short(Vec<u8>),
    Long(Blob),
}

impl Value {
    fn fresh(&self) -> Fresh<'_> {
        match self {
            Self::Short(bytes) => Fresh::Bytes(bytes),
            Self::Long(blob) => Fresh::Blob(blob),
        }
    }
}

/// Creates one key, unless it exists. Returns false if the type refuses the elements.
async fn make_key(core: &Rc<Core>, plan: &Plan, name: &[u8], number: u64) -> bool {
    let key = Key::new(name);
    if core.tx.home().shard.db(plan.db).exists(&key) {
        return true;
    }
    if plan.kind.rdb.is_text() {
        let value = make_value(core, plan, number).await;
        let mut home = core.tx.home();
        let db = home.shard.db_mut(plan.db);
        // As in Redis, no keyspace event is sent.
        db.set_text_as(&key, value.fresh(), Deadline::Clear, &[]);
        return true;
    }
    let Some(object) = make_object(core, plan).await else { return false };
    let mut home = core.tx.home();
    let db = home.shard.db_mut(plan.db);
    if !db.exists(&key) {
        db.install(&key, object, Deadline::Clear, &[]);
    }
    true
}

/// Builds a collection outside the table, in portions. Returns `None` if the type refuses the
/// elements.
async fn make_object(core: &Rc<Core>, plan: &Plan) -> Option<Object> {
    let portion = (BYTES_AT_ONCE / plan.size.max(1)).clamp(1, PORTION);
    let mut object = (plan.kind.empty)();
    for element in 0..plan.elements {
        let name = format!("element:{element}");
        let value = make_value(core, plan, element).await;
        let number = make_number(core, plan, element);
        // A type whose values are numbers refuses the text form, so the bare number is tried next.
        let is_taken = [value.fresh(), Fresh::Bytes(number.as_bytes())].into_iter().any(|value| {
            let pair = NewItem::Pair { name: name.as_bytes(), value, deadline: None };
            object.face_mut().take_in(pair)
        });
        if !is_taken {
            return None;
        }
        if element % portion as u64 == 0 {
            core.tx.pause().await;
        }
    }
    Some(object)
}

/// The number itself, or with RAND a random one of at most nine digits.
fn make_number(core: &Core, plan: &Plan, number: u64) -> String {
    const RANDOM_END: u64 = 1_000_000_000;
    if plan.random { core.tx.home().shard.prng.below(RANDOM_END) } else { number }.to_string()
}

/// Builds the text `value:<number>`, cut or zero-padded to the requested size, or random bytes. A
/// long value is built in pieces.
async fn make_value(core: &Rc<Core>, plan: &Plan, number: u64) -> Value {
    if plan.size <= BYTES_AT_ONCE {
        let mut home = core.tx.home();
        let (_, prng, _) = home.shard.parts(plan.db);
        return Value::Short(piece(plan, number, 0, plan.size, prng));
    }
    let mut blob = Blob::default();
    while blob.len() < plan.size {
        let (from, len) = (blob.len(), BYTES_AT_ONCE.min(plan.size - blob.len()));
        let piece = piece(plan, number, from, len, core.tx.home().shard.parts(plan.db).1);
        blob.append(&piece);
        core.tx.pause().await;
    }
    Value::Long(blob)
}

/// Builds `len` bytes of a value, starting at byte `from`.
fn piece(plan: &Plan, number: u64, from: usize, len: usize, prng: &mut Prng) -> Vec<u8> {
    /// The size of a random value if the request names none.
    const RANDOM_BYTES: usize = 16;
    let mut piece = Vec::with_capacity(len);
    if plan.random {
        let len = if plan.size == 0 { RANDOM_BYTES } else { len };
        while piece.len() < len {
            piece.extend_from_slice(&prng.next_u64().to_le_bytes());
        }
        piece.truncate(len);
        return piece;
    }
    if from == 0 {
        piece.extend_from_slice(b"value:");
        number::write_i64(&mut piece, i64::try_from(number).unwrap_or(i64::MAX));
    }
    if plan.size > 0 {
        piece.resize(len, 0);
    }
    piece
}
