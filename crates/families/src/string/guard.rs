//! Conditions on a value: IFEQ, IFNE, IFDEQ, IFDNE, and with them NX and XX.
//!
//! Comparing or hashing 400 MB takes longer than a slice. Then a [`Job`] compares a cut in
//! portions, while other writers are locked out of the key, and the last step acts.

use super::options::{Condition, Test};
use super::read::{digest_of, digest_text};
use crate::text::{BYTES_AT_ONCE, piece, pieces};
use darter_base::hash::XxhDigest;
use darter_command::{Args, Cx, Job, Refusal, Step};
use darter_keyspace::{Found, Fresh, Str};
use darter_resp::{self as resp, Request};
use darter_structs::blob::Blob;
use darter_structs::table::Scratch;
use std::sync::Arc;

/// The result of evaluating a condition.
pub(super) enum Verdict {
    /// True if the condition holds.
    Known(bool),
    /// The condition must be evaluated in slices.
    Long(Box<Comparison>),
}

/// Evaluates `condition` on the key's value. Errors: `WrongType`, and an invalid digest.
pub(super) fn judge(
    condition: Option<&Condition<'_>>,
    found: Option<&Found<'_>>,
) -> Result<Verdict, Refusal> {
    let Some(condition) = condition else { return Ok(Verdict::Known(true)) };
    let Some(found) = found else {
        let holds =
            matches!(condition.test, Test::Absent | Test::Different | Test::DigestDifferent);
        return Ok(Verdict::Known(holds));
    };
    if !condition.test.compares() {
        return Ok(Verdict::Known(condition.test == Test::Present));
    }
    let text = found.text()?;
    let same = match condition.test {
        Test::Equal | Test::Different if text.len() != condition.operand.len() => Some(false),
        Test::Equal | Test::Different if text.len() <= BYTES_AT_ONCE => {
            Some(is_equal(&text, condition.operand))
        }
        Test::DigestEqual | Test::DigestDifferent => {
            let wanted = digest_operand(condition.operand)?;
            (text.len() <= BYTES_AT_ONCE)
                .then(|| digest_text(digest_of(&text)).eq_ignore_ascii_case(&wanted))
        }
        _ => None,
    };
    match (same, text) {
        (Some(same), _) => Ok(Verdict::Known(same == wants_equal(condition.test))),
        (None, Str::Blob(blob)) => {
            Ok(Verdict::Long(Box::new(Comparison::new(blob.clone(), condition))))
        }
        (None, Str::Inline(_)) => unreachable!("an inline string is compared at once"),
    }
}

fn wants_equal(test: Test) -> bool {
    matches!(test, Test::Equal | Test::DigestEqual)
}

/// The operand of IFDEQ and IFDNE: 16 digits.
fn digest_operand(operand: Fresh<'_>) -> Result<[u8; 16], Refusal> {
    let text = piece(operand, 0).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    text.ok_or(Refusal::line("ERR must be exactly 16 hexadecimal characters"))
}

/// Compares two values of the same bounded length.
fn is_equal(text: &Str<'_>, operand: Fresh<'_>) -> bool {
    match text {
        Str::Inline(text) => {
            let mut scratch = Scratch::default();
            let mut rest = text.bytes(&mut scratch);
            pieces(operand).all(|piece| match rest.strip_prefix(piece) {
                Some(behind) => {
                    rest = behind;
                    true
                }
                None => false,
            })
        }
        // Both values are split at the same places.
        Str::Blob(blob) => pieces(Fresh::Blob(blob)).eq(pieces(operand)),
    }
}

/// An evaluation of a condition on a long string.
pub(super) struct Comparison {
    cut: Blob,
    next: usize,
    test: Test,
    /// The index of the operand in the request.
    operand: usize,
    digest: XxhDigest,
}

impl Comparison {
    fn new(cut: Blob, condition: &Condition<'_>) -> Self {
        Self {
            cut,
            next: 0,
            test: condition.test,
            operand: condition.at,
            digest: XxhDigest::default(),
        }
    }

    /// Does the next portion. Returns the result once it is known.
    fn step(&mut self, request: &Arc<Request>) -> Option<bool> {
        let mut args = Args::new(resp::Args::owned(request), self.operand);
        let operand = args.value().unwrap_or(Fresh::Bytes(b""));
        for _ in 0..BYTES_AT_ONCE / darter_base::limits::CHUNK_BYTES {
            let Some(piece) = piece(Fresh::Blob(&self.cut), self.next) else {
                return Some(self.conclude(operand));
            };
            if self.hashes() {
                self.digest.update(piece);
            } else if crate::text::piece(operand, self.next) != Some(piece) {
                return Some(self.test == Test::Different);
            }
            self.next += 1;
        }
        None
    }

    fn hashes(&self) -> bool {
        matches!(self.test, Test::DigestEqual | Test::DigestDifferent)
    }

    /// The result after the last piece, if none differed.
    fn conclude(&self, operand: Fresh<'_>) -> bool {
        let same = !self.hashes()
            || digest_operand(operand).is_ok_and(|wanted| {
                digest_text(self.digest.finish()).eq_ignore_ascii_case(&wanted)
            });
        same == wants_equal(self.test)
    }
}

/// The action of a command once the result of its condition is known.
pub(super) type Act = fn(&mut Cx<'_>, Args<'_>, bool) -> Result<darter_command::Flow, Refusal>;

/// Evaluates a long string's condition, then acts.
pub(super) struct Guarded {
    request: Arc<Request>,
    first: usize,
    comparison: Box<Comparison>,
    act: Act,
}

impl Guarded {
    /// A job for the request of `args`, which follow the command's name.
    pub(super) fn new(args: Args<'_>, comparison: Box<Comparison>, act: Act) -> Box<Self> {
        let (request, first) = (args.all().to_request(), args.position());
        Box::new(Self { request, first, comparison, act })
    }
}

impl Job for Guarded {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let Some(holds) = self.comparison.step(&self.request) else { return Ok(Step::More) };
        let args = Args::new(resp::Args::owned(&self.request), self.first);
        (self.act)(cx, args, holds).map(Step::Done)
    }
}
