//! Sparse registers: runs of equal registers; see `format`.
//!
//! Runs are split and joined exactly as in Redis, so that the bytes are the same after the same
//! commands. A change searches its run from the beginning. If registers are changed in ascending
//! order, a [`Cursor`] continues from the previous change.

use super::format::{HEADER_BYTES, REGISTERS};

/// The highest rank of a run.
pub(super) const RANK_MAX: u8 = 32;
/// The longest run of a rank, and the longest runs of zeros in one byte and in two.
const RUN_MAX: usize = 4;
const SHORT_ZEROS_MAX: usize = 64;
/// Runs that are checked for joining, starting with the run before the change.
const JOIN_AMONG: usize = 5;

/// A run of equal registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) rank: u8,
    pub(super) len: usize,
    /// The bytes of the run's encoding.
    pub(super) bytes: usize,
}

impl Run {
    /// The run at `at`; `None` after the last. A missing second byte reads as 0.
    pub(super) fn at(bytes: &[u8], at: usize) -> Option<Self> {
        let first = *bytes.get(at)?;
        Some(match first >> 6 {
            0 => Self { rank: 0, len: usize::from(first & 0x3f) + 1, bytes: 1 },
            1 => {
                let low = bytes.get(at + 1).copied().unwrap_or(0);
                let len = usize::from(u16::from_be_bytes([first & 0x3f, low])) + 1;
                Self { rank: 0, len, bytes: 2 }
            }
            _ => Self { rank: (first >> 2 & 0x1f) + 1, len: usize::from(first & 3) + 1, bytes: 1 },
        })
    }
}

/// The runs of a HyperLogLog.
pub(super) fn runs(bytes: &[u8]) -> impl Iterator<Item = Run> {
    let mut at = HEADER_BYTES;
    std::iter::from_fn(move || {
        let run = Run::at(bytes, at)?;
        at += run.bytes;
        Some(run)
    })
}

/// Passes each nonzero run to `each`, with its first register. Returns false if the runs do not
/// cover all registers exactly.
pub(super) fn ranks(bytes: &[u8], mut each: impl FnMut(usize, Run)) -> bool {
    let covered = runs(bytes).try_fold(0, |from, run| {
        let next = from + run.len;
        if run.rank > 0 && next <= REGISTERS {
            each(from, run);
        }
        (next <= REGISTERS).then_some(next)
    });
    covered == Some(REGISTERS)
}

/// Appends a run; an empty run appends nothing.
fn push_run(out: &mut Vec<u8>, rank: u8, len: usize) {
    let Some(more) = len.checked_sub(1).and_then(|more| u16::try_from(more).ok()) else { return };
    let [high, low] = more.to_be_bytes();
    match rank {
        0 if len <= SHORT_ZEROS_MAX => out.push(low),
        0 => out.extend([0x40 | high, low]),
        rank => out.push(0x80 | (rank - 1) << 2 | low),
    }
}

/// The sparse encoding of no elements, without the header.
pub(super) fn empty() -> Vec<u8> {
    let mut bytes = Vec::new();
    push_run(&mut bytes, 0, REGISTERS);
    bytes
}

/// The outcome of raising a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raised {
    Yes,
    /// The register was at least as high already.
    No,
    /// The runs would take too many bytes, or cannot hold the rank.
    TooLarge,
    /// No run covers this register.
    Corrupt,
}

/// The start of a run: its first byte, and its first register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start {
    at: usize,
    register: usize,
}

const BEGINNING: Start = Start { at: HEADER_BYTES, register: 0 };

/// The position from which runs are searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    run: Start,
    /// The two preceding runs, if known; at the beginning there are none.
    before: Option<Start>,
    earlier: Option<Start>,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { run: BEGINNING, before: None, earlier: None }
    }
}

impl Cursor {
    /// Moves to the run that covers `register`.
    fn find(&mut self, bytes: &[u8], register: usize) -> Option<Run> {
        loop {
            let run = Run::at(bytes, self.run.at)?;
            let next = self.run.register + run.len;
            if register < next {
                return Some(run);
            }
            (self.earlier, self.before) = (self.before, Some(self.run));
            self.run = Start { at: self.run.at + run.bytes, register: next };
        }
    }

    /// Moves back by one run, if the run before that is known: the change may have joined the two.
    fn step_back(&mut self) {
        *self = match (self.before, self.earlier) {
            (Some(run), before) if run == BEGINNING || before.is_some() => {
                Self { run, before, earlier: None }
            }
            _ => Self::default(),
        };
    }
}

/// Raises a register to `rank`, in at most `bytes_max` bytes. The cursor must not be past the
/// register. It moves to a place from which later registers can be raised.
pub(super) fn raise(
    bytes: &mut Vec<u8>,
    (register, rank): (usize, u8),
    bytes_max: usize,
    cursor: &mut Cursor,
) -> Raised {
    if rank > RANK_MAX {
        return Raised::TooLarge;
    }
    let Some(run) = cursor.find(bytes, register) else { return Raised::Corrupt };
    if run.rank >= rank {
        return Raised::No;
    }
    let Start { at, register: first } = cursor.run;
    let mut new = Vec::with_capacity(5);
    push_run(&mut new, run.rank, register - first);
    push_run(&mut new, rank, 1);
    push_run(&mut new, run.rank, first + run.len - register - 1);
    let end = at + run.bytes;
    if end > bytes.len() {
        return Raised::Corrupt; // The second byte is missing.
    }
    if new.len() > run.bytes && bytes.len() + new.len() - run.bytes > bytes_max {
        return Raised::TooLarge;
    }
    bytes.splice(at..end, new);
    join(bytes, cursor.before.map_or(HEADER_BYTES, |before| before.at));
    cursor.step_back();
    Raised::Yes
}

/// Joins neighbouring runs of the same rank, starting with the run at `at`.
fn join(bytes: &mut Vec<u8>, mut at: usize) {
    let mut looks = JOIN_AMONG;
    while at < bytes.len() && looks > 0 {
        looks -= 1;
        let Some(run) = Run::at(bytes, at) else { return };
        let next = Run::at(bytes, at + run.bytes);
        let len = run.len + next.map_or(0, |next| next.len);
        if run.rank > 0 && next.is_some_and(|next| next.rank == run.rank) && len <= RUN_MAX {
            let mut joined = Vec::with_capacity(1);
            push_run(&mut joined, run.rank, len);
            bytes.splice(at..at + 2, joined);
            continue;
        }
        at += run.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hyperloglog::format::{Encoding, new_header};
    use darter_base::Prng;

    fn fresh() -> Vec<u8> {
        [&new_header(Encoding::Sparse)[..], &empty()].concat()
    }

    fn registers(bytes: &[u8]) -> Vec<u8> {
        let mut all = vec![0; REGISTERS];
        assert!(ranks(bytes, |from, run| all[from..from + run.len].fill(run.rank)));
        all
    }

    #[test]
    fn random_changes_of_sparse_registers_agree_with_an_array() {
        let mut prng = Prng::from_seed(1);
        for round in 0..30 {
            let (mut bytes, mut model) = (fresh(), vec![0_u8; REGISTERS]);
            // Either few registers, so that runs are joined, or all of them.
            let span = if round % 2 == 0 { 40 } else { REGISTERS as u64 };
            for step in 0..400 {
                let register = usize::try_from(prng.below(span)).unwrap();
                let rank =
                    1 + u8::try_from(prng.below(if round % 3 == 0 { 3 } else { 32 })).unwrap();
                let raised = raise(&mut bytes, (register, rank), 3_000, &mut Cursor::default());
                let expected = if rank > model[register] { Raised::Yes } else { Raised::No };
                assert_eq!(raised, expected, "{round} {step}");
                model[register] = model[register].max(rank);
            }
            assert_eq!(registers(&bytes), model, "{round}");
        }
    }

    #[test] // For registers that are raised in ascending order.
    fn raising_registers_with_a_cursor_gives_the_same_bytes() {
        let mut prng = Prng::from_seed(2);
        for round in 0..200 {
            let (mut one, mut other) = (fresh(), fresh());
            for _ in 0..3 {
                let mut cursor = Cursor::default();
                for register in 0..if round % 2 == 0 { 200 } else { 3_000 } {
                    if prng.chance(60) {
                        continue;
                    }
                    let rank = 1 + u8::try_from(prng.below(1 + round % 5)).unwrap();
                    let change = (register, rank);
                    let raised = raise(&mut one, change, 60_000, &mut cursor);
                    let wanted = raise(&mut other, change, 60_000, &mut Cursor::default());
                    assert_eq!((raised, &one), (wanted, &other), "{round} {register}");
                }
            }
        }
    }

    #[test]
    fn runs_of_arbitrary_bytes_are_read_without_a_panic() {
        let mut prng = Prng::from_seed(3);
        for _ in 0..20_000 {
            let mut bytes = fresh();
            bytes.truncate(HEADER_BYTES);
            bytes.extend(prng.bytes(0..=30));
            let covered: usize = runs(&bytes).map(|run| run.len).sum();
            let is_whole = ranks(&bytes, |from, run| assert!(from + run.len <= REGISTERS));
            assert_eq!(is_whole, covered == REGISTERS);
            let register = usize::try_from(prng.below(REGISTERS as u64)).unwrap();
            raise(&mut bytes, (register, 7), 3_000, &mut Cursor::default());
        }
    }
}
