//! The inputs of the algebra of sorted sets: sorted sets, and sets, whose members have the score 1.

use super::value::ZSet;
use crate::live_entries::is_alive;
use crate::multi_input::{Hold, Input};
use crate::set::Set as Members;
use darter_keyspace::{Found, Value, WrongType};
use darter_structs::Watch;
use darter_structs::sorted::{self, End};
use darter_structs::table::{self, HeldKey, Never, Text};

/// The score of a set's members.
const SCORE: f64 = 1.0;

/// See the module.
#[derive(Clone)]
pub(super) enum Operand {
    Scored(ZSet),
    Plain(Members),
}

impl Input for Operand {
    fn cut(found: &Found<'_>, hold: Hold) -> Result<Self, WrongType> {
        match ZSet::cut(found, hold) {
            Ok(set) => Ok(Self::Scored(set)),
            Err(WrongType) => Members::cut(found, hold).map(Self::Plain),
        }
    }
}

impl Input for ZSet {
    fn cut(found: &Found<'_>, hold: Hold) -> Result<Self, WrongType> {
        let set = found.value::<Self>()?;
        Ok(if hold == Hold::Reader { set.reader() } else { set.into_cut() })
    }
}

impl Operand {
    /// Members, dead ones of a set included.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Scored(set) => set.len(),
            Self::Plain(set) => set.len(),
        }
    }

    /// The score of a member, of a set one that lives at `now`.
    pub(super) fn score(&self, hash: u64, member: &[u8], now: u64) -> Option<f64> {
        match self {
            Self::Scored(set) => set.entries().score(hash, member),
            Self::Plain(set) => {
                let entry = set.members().get(hash, member)?;
                is_alive(entry.deadline(), now).then_some(SCORE)
            }
        }
    }

    /// Prefetches the members with these hashes, a batch.
    pub(super) fn prefetch(&self, hashes: &[u64]) {
        let ahead = match self {
            Self::Scored(set) => set.ahead(),
            Self::Plain(set) => set.ahead(),
        };
        let Some(ahead) = ahead else { return };
        hashes.iter().for_each(|hash| ahead.prefetch(*hash));
        ahead.prefetch_entries(hashes);
    }

    /// A watch over it: see [`Watch`].
    pub(super) fn watch(&self) -> Watch {
        match self {
            Self::Scored(set) => set.entries().watch(),
            Self::Plain(set) => set.members().watch(),
        }
    }
}

/// Reads an operand in portions.
pub(super) enum Reader {
    Scored(sorted::SortedReader),
    Plain(table::Reader<Never>, u64),
}

/// A member being read, with its score; a long one can be held.
pub(super) struct Element<'a> {
    pub(super) member: Text<'a>,
    pub(super) score: f64,
    hold: &'a dyn Fn() -> Option<HeldKey>,
}

impl Element<'_> {
    /// The member, held beyond the operand, if it is a long one.
    pub(super) fn hold_member(&self) -> Option<HeldKey> {
        (self.hold)()
    }
}

impl Reader {
    /// Reads the members that live at `now`.
    pub(super) fn new(operand: Operand, now: u64) -> Self {
        match operand {
            Operand::Scored(set) => {
                let ranks = 0..set.len();
                Self::Scored(sorted::SortedReader::new(set.entries().clone(), ranks, End::Front))
            }
            Operand::Plain(set) => Self::Plain(table::Reader::new(set.members().clone()), now),
        }
    }

    /// True when nothing is left.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Scored(reader) => reader.left() == 0,
            Self::Plain(reader, _) => reader.left() == 0,
        }
    }

    /// Calls `f` for the next members, at most `most`.
    pub(super) fn next_slice(&mut self, most: usize, f: &mut dyn FnMut(&Element<'_>)) {
        match self {
            Self::Scored(reader) => {
                reader.next_slice(most, &mut |entry| {
                    let (member, score) = (entry.member(), entry.score());
                    f(&Element { member, score, hold: &|| entry.hold_member() });
                });
            }
            Self::Plain(reader, now) => {
                reader.next_slice(most, &mut |entry| {
                    if is_alive(entry.deadline(), *now) {
                        let member = entry.key();
                        f(&Element { member, score: SCORE, hold: &|| entry.hold_key() });
                    }
                });
            }
        }
    }
}
