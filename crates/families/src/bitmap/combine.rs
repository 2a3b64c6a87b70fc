//! BITOP: strings combined bit by bit, stored at a key.
//!
//! The shape *Build*, across cores, as of the STORE forms of sets: the destination is locked, cuts
//! of the sources are taken at one instant and their locks released, the result is built in chunks
//! (see `build`), and installed in one step.

use super::build::build;
use crate::multi_input::{Queue, for_target, pause_now_and_then};
use crate::option_names;
use darter_command::{Answer, Args, Call, Refusal};
use darter_keyspace::event::SET;
use darter_keyspace::{Deadline, Fresh, Key};
use darter_structs::blob::Blob;
use darter_tx::Home;
use std::sync::Arc;

/// How strings are combined. A string that ends early continues with clear bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Set in all sources.
    And,
    /// Set in any source.
    Or,
    /// Set in an odd number of sources.
    Xor,
    /// Clear in the only source.
    Not,
    /// Set in the first source and in no other.
    Diff,
    /// Set in another source, but not in the first.
    Diff1,
    /// Set in the first source and in at least one other.
    AndOr,
    /// Set in exactly one source.
    One,
}

const NAMES: &[(&str, Act)] = &[
    ("AND", Act::And),
    ("OR", Act::Or),
    ("XOR", Act::Xor),
    ("NOT", Act::Not),
    ("DIFF", Act::Diff),
    ("DIFF1", Act::Diff1),
    ("ANDOR", Act::AndOr),
    ("ONE", Act::One),
];

impl Act {
    /// Parses the operation, and checks the number of sources.
    fn parse(mut args: Args<'_>) -> Result<Self, Refusal> {
        let word = args.word()?;
        let act = option_names::meaning(word, NAMES).ok_or(Refusal::Syntax)?;
        let sources = args.left().saturating_sub(1);
        if act == Self::Not && sources != 1 {
            return Err(Refusal::line("ERR BITOP NOT must be called with a single source key."));
        }
        if act.compares_first() && sources < 2 {
            let name = String::from_utf8_lossy(word).to_ascii_uppercase();
            return Err(Refusal::line(format!(
                "ERR BITOP {name} must be called with at least two source keys."
            )));
        }
        Ok(act)
    }

    /// True when the first source is compared with all others together.
    pub(super) fn compares_first(self) -> bool {
        matches!(self, Self::Diff | Self::Diff1 | Self::AndOr)
    }
}

/// `BITOP operation destination key [key ...]`: puts the combination of the strings at `key` ... at
/// `destination`, whatever that held; an empty result removes it. An absent key is an empty string.
/// The destination may be one of the sources.
///
/// Reply: integer, the length of the result, which is that of the longest source. Refusals:
/// `Syntax`, a number of sources that does not suit the operation, `WrongType` of any source; then
/// nothing changes. Cost: O(bytes of all sources), in slices, shared by the cores. Memory: a chunk
/// that equals one source's is shared with it.
/// Source: <https://redis.io/commands/bitop> (2.6.0; DIFF, DIFF1, ANDOR and ONE: 8.2.0).
pub(super) async fn bitop(call: Call) -> Result<Answer, Refusal> {
    let act = Act::parse(call.args())?;
    let target = call.first + 1;
    let keys = target + 1..call.len();
    let (sources, locked) = for_target::<Blob>(&call, keys, target).await?;
    let sources: Queue<_> = sources.into_iter().collect();
    let mut len = 0;
    for (done, source) in sources.iter().enumerate() {
        len = len.max(source.as_ref().map_or(0, Blob::len));
        pause_now_and_then(&call, done).await;
    }
    let result = build(&call, act, sources, len).await;
    let (request, db) = (Arc::clone(&call.request), call.db);
    let install = move |home: &mut Home| {
        let key = Key::new(darter_resp::Args::owned(&request).get(target));
        let db = home.shard.db_mut(db);
        if result.is_empty() {
            db.remove(&key);
        } else {
            db.set_text_raw(&key, Fresh::Blob(&result), Deadline::Clear, &[SET]);
        }
    };
    call.tx.on(call.owner(target), install).await;
    drop(locked);
    Ok(call.answer(|reply| reply.count(len)))
}
