//! HSETEX: setting fields with deadlines, in Redis's and in Dragonfly's dialect.
//!
//! ```text
//! HSETEX key [NX | FNX | FXX] [KEEPTTL] seconds field value [field value ...]         Dragonfly's
//! HSETEX key [NX | XX] [FNX | FXX] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]
//!        FIELDS count field value [field value ...]                           Redis's and Valkey's
//! ```
//! The word `FIELDS` after the options distinguishes them: Dragonfly's expects a number there. They
//! differ in more than their form:
//!
//! | point    | Dragonfly's                                    | Redis's                           |
//! |----------|------------------------------------------------|-----------------------------------|
//! | reply    | number of new fields                           | 1 done, 0 condition not met       |
//! | NX       | skips existing fields                          | Valkey's: the key must be absent  |
//! | KEEPTTL  | deadlines stay; fields without one get theirs  | deadlines stay as they are        |
//! | no time  | not possible                                   | deadlines are removed             |
//! | time 0   | refused                                        | the fields are removed            |

use super::deadline::deadline;
use super::edit::{Answer, Change, Guard, Plan};
use super::value::Hash;
use crate::expiry::{Unit, seconds};
use crate::option_names::is;
use darter_base::{UnixMillis, number};
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::Deadline;

const NAME: &str = "hsetex";

/// `HSETEX`: see the module's documentation.
///
/// Reply: integer. Refusals: `Syntax` and those of Redis for options that exclude each other,
/// `NotAnInteger`, a negative time, `InvalidExpire`, a count that differs from the number of
/// fields, a field without its value, and finally `WrongType`. Cost: O(fields named), in slices
/// when they are many.
/// Source: <https://redis.io/commands/hsetex> (8.0.0) and Dragonfly's sources.
pub(super) fn hsetex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    if !names_fields(args) {
        let plan = dragonfly(&mut args, cx.now)?;
        return plan.run(cx, &key, args);
    }
    let mut options = Options::default();
    while !args.option("FIELDS") {
        options.read(&mut args, cx.now)?;
    }
    let count = args.next().and_then(number::parse_i64).filter(|count| *count > 0);
    let count = count.ok_or(Refusal::line("ERR invalid number of fields"))?;
    if usize::try_from(count).ok().and_then(|count| count.checked_mul(2)) != Some(args.left()) {
        return Err(Refusal::Arity(NAME.into()));
    }
    let is_there = cx.db.read_value::<Hash>(&key)?.is_some();
    if options.key_must_exist.is_some_and(|must| must != is_there) {
        cx.reply.int(0);
        return Ok(Flow::Done);
    }
    let change = Change::Set(options.deadline.unwrap_or(Deadline::Clear));
    Plan { change, guard: options.guard, answer: Answer::One }.run(cx, &key, args)
}

/// True when `FIELDS` follows the options.
fn names_fields(mut args: Args<'_>) -> bool {
    while let Some(word) = args.next() {
        if Unit::of_option(word).is_some() {
            args.next();
        } else if !["NX", "XX", "FNX", "FXX", "KEEPTTL"].iter().any(|name| is(word, name)) {
            return is(word, "FIELDS");
        }
    }
    false
}

/// Options of Redis's dialect.
#[derive(Default)]
struct Options {
    deadline: Option<Deadline>,
    guard: Option<Guard>,
    key_must_exist: Option<bool>,
}

impl Options {
    /// Reads one option.
    fn read(&mut self, args: &mut Args<'_>, now: UnixMillis) -> Result<(), Refusal> {
        let word = args.bytes()?;
        if let Some(unit) = Unit::of_option(word) {
            self.may_expire()?;
            let text = args.next().ok_or(Refusal::line("ERR missing expire time"))?;
            self.deadline = Some(Deadline::At(deadline(unit, text, now, NAME)?));
        } else if is(word, "KEEPTTL") {
            self.may_expire()?;
            self.deadline = Some(Deadline::Keep);
        } else if is(word, "FNX") || is(word, "FXX") {
            if self.guard.is_some() {
                return Err(Refusal::line("ERR Only one of FXX or FNX arguments can be specified"));
            }
            self.guard = Some(if is(word, "FNX") { Guard::AllAbsent } else { Guard::AllPresent });
        } else if self.key_must_exist.is_some() {
            return Err(Refusal::Syntax);
        } else {
            self.key_must_exist = Some(is(word, "XX"));
        }
        Ok(())
    }

    fn may_expire(&self) -> Result<(), Refusal> {
        match self.deadline {
            None => Ok(()),
            Some(_) => Err(Refusal::line(
                "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
            )),
        }
    }
}

/// Reads Dragonfly's dialect, up to the fields.
fn dragonfly(args: &mut Args<'_>, now: UnixMillis) -> Result<Plan, Refusal> {
    /// The condition FNX or FXX; at most one of them.
    #[derive(Clone, Copy)]
    enum Only {
        New,
        If(Guard),
    }
    let (mut only, mut keep) = (None, false);
    loop {
        let next = if args.option("NX") {
            Only::New
        } else if args.option("FNX") {
            Only::If(Guard::AllAbsent)
        } else if args.option("FXX") {
            Only::If(Guard::AllPresent)
        } else if args.option("KEEPTTL") {
            if std::mem::replace(&mut keep, true) {
                return Err(Refusal::Syntax);
            }
            continue;
        } else {
            break;
        };
        if only.replace(next).is_some() {
            return Err(Refusal::Syntax);
        }
    }
    let text = args.bytes()?;
    if Unit::of_option(text).is_some() {
        return Err(Refusal::Syntax);
    }
    let at = seconds(text, now)?;
    if args.left() == 0 || !args.left().is_multiple_of(2) {
        return Err(Refusal::Arity(NAME.into()));
    }
    let (change, guard) = match only {
        Some(Only::New) => (Change::SetAbsent(at), None),
        Some(Only::If(guard)) if !keep => (Change::Set(Deadline::At(at)), Some(guard)),
        Some(Only::If(guard)) => (Change::SetKeeping(at), Some(guard)),
        None if keep => (Change::SetKeeping(at), None),
        None => (Change::Set(Deadline::At(at)), None),
    };
    Ok(Plan { change, guard, answer: Answer::Count })
}
