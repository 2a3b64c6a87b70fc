//! PFDEBUG and PFSELFTEST, two commands for testing.

use super::add::{copy_of, put_back};
use super::format::{Encoding, REGISTERS, corrupt};
use super::sketch::Sketch;
use super::sparse::{ranks, runs};
use crate::option_names;
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::Key;
use darter_resp::Reply;
use std::fmt::Write;

/// Registers that are sent in one portion.
const SENT_AT_ONCE: usize = 1_024;

/// `PFDEBUG GETREG | DECODE | ENCODING | TODENSE key`: returns the registers of the HyperLogLog at
/// `key` (and makes it dense), its runs, or its encoding; or makes it dense.
///
/// Reply: array of integers; bulk; simple string; integer, 1 if it was sparse. Refusals: an absent
/// key, `WrongType`, a string that is not a HyperLogLog or is corrupt, an unknown word.
/// Source: <https://redis.io/commands/pfdebug> (2.8.9).
pub(super) fn pfdebug(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let word = args.word()?;
    let key = args.key()?;
    let (mut sketch, _) =
        copy_of(cx.db, &key)?.ok_or(Refusal::line("ERR The specified key does not exist"))?;
    let was_sparse = sketch.encoding() == Encoding::Sparse;
    if option_names::is(word, "GETREG") {
        make_dense(cx, &key, &mut sketch)?;
        cx.reply.array(REGISTERS);
        return Ok(Flow::Stream(Box::new(Sending { sketch, next: 0 })));
    } else if option_names::is(word, "DECODE") {
        if !was_sparse {
            return Err(Refusal::line("ERR HLL encoding is not sparse"));
        }
        cx.reply.bulk(decoded(&sketch).as_bytes());
    } else if option_names::is(word, "ENCODING") {
        cx.reply.simple(if was_sparse { "sparse" } else { "dense" });
    } else if option_names::is(word, "TODENSE") {
        make_dense(cx, &key, &mut sketch)?;
        cx.reply.int(i64::from(was_sparse));
    } else {
        return Err(Refusal::quoting("ERR Unknown PFDEBUG subcommand '", word, "'"));
    }
    Ok(Flow::Done)
}

/// Makes the HyperLogLog at `key` dense.
fn make_dense(cx: &mut Cx<'_>, key: &Key<'_>, sketch: &mut Sketch) -> Result<(), Refusal> {
    if sketch.encoding() == Encoding::Sparse {
        sketch.make_dense()?;
        put_back(cx.db, key, sketch, &[]);
    }
    Ok(())
}

/// The runs in Redis's notation.
fn decoded(sketch: &Sketch) -> String {
    let mut text = String::new();
    for run in runs(sketch.bytes()) {
        let between = if text.is_empty() { "" } else { " " };
        let _ = match (run.rank, run.bytes) {
            (0, 1) => write!(text, "{between}z:{}", run.len),
            (0, _) => write!(text, "{between}Z:{}", run.len),
            (rank, _) => write!(text, "{between}v:{rank},{}", run.len),
        };
    }
    text
}

/// Sends all registers.
struct Sending {
    sketch: Sketch,
    next: usize,
}

impl Stream for Sending {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let end = REGISTERS.min(self.next + SENT_AT_ONCE);
        for register in self.next..end {
            reply.int(i64::from(self.sketch.dense_register(register)));
        }
        self.next = end;
        end < REGISTERS
    }
}

/// `PFSELFTEST`: adds elements to a HyperLogLog, sparse and then dense, and compares the encodings
/// and the estimate.
///
/// Reply: `OK`. Refusals: the fault, if one is found. Cost: O(registers), in slices. Source:
/// <https://redis.io/commands/pfselftest> (2.8.9).
pub(super) fn pfselftest(_: &mut Cx<'_>, _: Args<'_>) -> Result<Flow, Refusal> {
    let mut dense = Sketch::default();
    dense.make_dense()?;
    Ok(Flow::Stream(Box::new(SelfTest {
        sparse: Sketch::default(),
        dense,
        added: 0,
        refusal: None,
    })))
}

/// A self-test in progress.
struct SelfTest {
    sparse: Sketch,
    dense: Sketch,
    added: u64,
    refusal: Option<Refusal>,
}

impl SelfTest {
    /// Elements of the whole test, and of one portion.
    const ELEMENTS: u64 = 10_000;
    const PORTION: u64 = 16;

    fn step(&mut self) -> Result<(), Refusal> {
        for element in self.added..self.added + Self::PORTION {
            let place = super::hash::Place::of(&element.to_le_bytes());
            if self.sparse.add(place)? != self.dense.add(place)? {
                return Err(Refusal::line("ERR TESTFAILED dense/sparse disagree"));
            }
        }
        self.added += Self::PORTION;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Refusal> {
        if !ranks(Sketch::default().bytes(), |_, _| {}) {
            return Err(corrupt());
        }
        self.sparse.make_dense()?;
        let count = super::estimate::count_of(self.dense.bytes(), Encoding::Dense)?;
        let is_near = count.abs_diff(self.added) < self.added / 20;
        if self.sparse.bytes() != self.dense.bytes() || !is_near {
            return Err(Refusal::line("ERR TESTFAILED Too big error"));
        }
        Ok(())
    }
}

impl Stream for SelfTest {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let result = self.step();
        if result.is_ok() && self.added < Self::ELEMENTS {
            return true;
        }
        match result.and_then(|()| self.end()) {
            Ok(()) => reply.ok(),
            Err(refusal) => {
                reply.error(&refusal.text());
                self.refusal = Some(refusal);
            }
        }
        false
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }
}
