//! INCREX: a counter with bounds and a deadline, in one step.

use super::incr::float_of;
use crate::expiry::{Unit, positive_deadline};
use crate::option_names;
use darter_base::extended::{self, Extended};
use darter_base::number;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::event::{EXPIRE, INCRBY, INCRBYFLOAT};
use darter_keyspace::{Deadline, Fresh, Key};
use std::cmp::Ordering;

/// `INCREX key [BYINT n | BYFLOAT n] [LBOUND n] [UBOUND n] [SATURATE]
/// [EX s | PX ms | EXAT t | PXAT t | PERSIST] [ENX]`: adds to the number at `key`, within bounds.
///
/// Reply: the new number and the number added, as integers, or as floats with BYFLOAT. A sum out of
/// bounds changes nothing, and the reply is the current number and 0; with SATURATE it becomes the
/// bound. Without an option the deadline stays; ENX sets one only if there is none; a Unix time in
/// the past removes the key. Refusals: `Syntax`, `WrongType`, arguments or a value that are not
/// numbers, bounds in the wrong order, an applied increment that does not fit. Cost: O(1).
/// Source: <https://redis.io/commands/increx> (8.8.0).
pub(super) fn increx(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let words = Words::parse(args)?;
    match words.increment {
        Some((Mode::Float, _)) => by_float(cx, &key, &words),
        _ => by_int(cx, &key, &words),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Int,
    Float,
}

/// The options as given; numbers are not parsed yet.
#[derive(Default)]
struct Words<'a> {
    increment: Option<(Mode, &'a [u8])>,
    lower: Option<&'a [u8]>,
    upper: Option<&'a [u8]>,
    saturate: bool,
    time: Option<(Unit, &'a [u8])>,
    persist: bool,
    only_without: bool,
}

/// Sets an option, which may be given once.
fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Refusal> {
    if place.is_some() {
        return Err(Refusal::Syntax);
    }
    *place = Some(value);
    Ok(())
}

fn flag(place: &mut bool) -> Result<(), Refusal> {
    if std::mem::replace(place, true) { Err(Refusal::Syntax) } else { Ok(()) }
}

impl<'a> Words<'a> {
    fn parse(mut args: Args<'a>) -> Result<Self, Refusal> {
        let mut words = Self::default();
        while let Some(option) = option_names::take(&mut args) {
            words.take(option, &mut args)?;
        }
        if words.persist && (words.time.is_some() || words.only_without) {
            return Err(Refusal::Syntax);
        }
        if words.only_without && words.time.is_none() {
            return Err(Refusal::line("ERR ENX flag requires an expiration"));
        }
        Ok(words)
    }

    fn take(&mut self, option: &[u8], args: &mut Args<'a>) -> Result<(), Refusal> {
        let is = |name| option_names::is(option, name);
        let mut operand = || option_names::take(args).ok_or(Refusal::Syntax);
        if is("BYINT") {
            once(&mut self.increment, (Mode::Int, operand()?))
        } else if is("BYFLOAT") {
            once(&mut self.increment, (Mode::Float, operand()?))
        } else if is("LBOUND") {
            once(&mut self.lower, operand()?)
        } else if is("UBOUND") {
            once(&mut self.upper, operand()?)
        } else if is("SATURATE") {
            flag(&mut self.saturate)
        } else if is("PERSIST") {
            flag(&mut self.persist)
        } else if is("ENX") {
            flag(&mut self.only_without)
        } else if let Some(unit) = Unit::of_option(option) {
            once(&mut self.time, (unit, operand()?))
        } else {
            Err(Refusal::Syntax)
        }
    }

    /// The increment and the lower and upper bounds, parsed by `read`.
    fn numbers<T: PartialOrd>(
        &self,
        limits: (T, T),
        one: T,
        read: impl Fn(&[u8], &str) -> Result<T, Refusal>,
    ) -> Result<(T, T, T), Refusal> {
        let increment = match self.increment {
            Some((_, text)) => read(text, "Increment")?,
            None => one,
        };
        let lower = self.lower.map_or(Ok(limits.0), |text| read(text, "LBOUND"))?;
        let upper = self.upper.map_or(Ok(limits.1), |text| read(text, "UBOUND"))?;
        if lower > upper {
            return Err(Refusal::line("ERR LBOUND can't be greater than UBOUND"));
        }
        Ok((increment, lower, upper))
    }

    fn is_float(&self) -> bool {
        matches!(self.increment, Some((Mode::Float, _)))
    }

    /// The requested deadline as an absolute time.
    fn deadline(&self, now: u64) -> Result<Option<u64>, Refusal> {
        let read = |(unit, text)| positive_deadline(unit, text, now, "increx");
        self.time.map(read).transpose()
    }
}

fn by_int(cx: &mut Cx<'_>, key: &Key<'_>, words: &Words<'_>) -> Result<Flow, Refusal> {
    let read = |text: &[u8], name: &str| {
        let refusal = || Refusal::line(format!("ERR {name} is not an integer or out of range"));
        number::parse_i64(text).ok_or_else(refusal)
    };
    let (increment, lower, upper) = words.numbers((i64::MIN, i64::MAX), 1, read)?;
    let time = words.deadline(cx.now)?;
    let old = match cx.db.read_text(key)? {
        Some(text) => text.as_int().ok_or(Refusal::NotAnInteger)?,
        None => 0,
    };
    let sum = old.checked_add(increment);
    let bound = match sum {
        Some(sum) if sum > upper => Some(upper),
        Some(sum) if sum < lower => Some(lower),
        Some(_) => None,
        None => Some(if increment > 0 { upper } else { lower }),
    };
    let (new, applied) = match (bound, sum) {
        (None, Some(sum)) => (sum, increment),
        _ if !words.saturate => {
            reply_ints(cx, old, 0);
            return Ok(Flow::Done);
        }
        (bound, _) => {
            let new = bound.unwrap_or(upper);
            (new, new.checked_sub(old).ok_or_else(applied_overflow)?)
        }
    };
    let mut text = [0; number::I64_TEXT_MAX];
    store(cx, key, number::i64_text(&mut text, new), words, time);
    reply_ints(cx, new, applied);
    Ok(Flow::Done)
}

fn by_float(cx: &mut Cx<'_>, key: &Key<'_>, words: &Words<'_>) -> Result<Flow, Refusal> {
    let read = |text: &[u8], name: &str| {
        let refusal = || Refusal::line(format!("ERR {name} is not a valid float"));
        extended::parse(text).ok_or_else(refusal)
    };
    let limits = (Extended::max().negated(), Extended::max());
    let (increment, lower, upper) = words.numbers(limits, Extended::ZERO, read)?;
    if increment.is_infinite() {
        return Err(Refusal::line("ERR BYFLOAT increment cannot be Infinity"));
    }
    let time = words.deadline(cx.now)?;
    let old = cx.db.read_text(key)?.map_or(Ok(Extended::ZERO), |text| float_of(&text))?;
    if old.is_infinite() {
        return Err(Refusal::line("ERR value cannot be Infinity"));
    }
    let sum = extended::add(old, increment);
    let bound = match sum {
        Some(sum) if sum.cmp(&upper) == Ordering::Greater => Some(upper),
        Some(sum) if sum.cmp(&lower) == Ordering::Less => Some(lower),
        Some(_) => None,
        None => Some(if increment.is_negative() { lower } else { upper }),
    };
    let (new, applied) = match (bound, sum) {
        (None, Some(sum)) => (sum, increment),
        _ if !words.saturate => {
            reply_floats(cx, old, Extended::ZERO);
            return Ok(Flow::Done);
        }
        (bound, _) => {
            let new = bound.unwrap_or(upper);
            (new, extended::subtract(new, old).ok_or_else(applied_overflow)?)
        }
    };
    store(cx, key, extended::format(new).as_bytes(), words, time);
    reply_floats(cx, new, applied);
    Ok(Flow::Done)
}

fn applied_overflow() -> Refusal {
    Refusal::line("ERR applied increment would overflow")
}

fn store(cx: &mut Cx<'_>, key: &Key<'_>, text: &[u8], words: &Words<'_>, time: Option<u64>) {
    let has_deadline = || cx.db.get(key).is_some_and(|found| found.deadline().is_some());
    let deadline = match time {
        None if words.persist => Deadline::Clear,
        None => Deadline::Keep,
        Some(_) if words.only_without && has_deadline() => Deadline::Keep,
        Some(at) if at <= cx.now => {
            cx.db.remove(key);
            return;
        }
        Some(at) => Deadline::At(at),
    };
    let event = if words.is_float() { INCRBYFLOAT } else { INCRBY };
    let both = [event, EXPIRE];
    let tells = if let Deadline::At(_) = deadline { &both[..] } else { &both[..1] };
    cx.db.set_text_as(key, Fresh::Bytes(text), deadline, tells);
}

fn reply_ints(cx: &mut Cx<'_>, value: i64, applied: i64) {
    cx.reply.array(2);
    cx.reply.int(value);
    cx.reply.int(applied);
}

fn reply_floats(cx: &mut Cx<'_>, value: Extended, applied: Extended) {
    cx.reply.array(2);
    cx.reply.double_text(&extended::format(value));
    cx.reply.double_text(&extended::format(applied));
}
