//! Transactions around random commands: MULTI, some of the commands, and EXEC or DISCARD; sometimes
//! after a WATCH of a key that a write may touch.
//!
//! Only commands that are compared byte for byte are put inside, because EXEC's array is compared
//! as a whole.

use crate::vocabulary::{Command, KEYS};
use darter_base::Prng;
use darter_testkit::compare::Match;

/// The commands, some of them in transactions.
pub(crate) fn wrapped(prng: &mut Prng, commands: Vec<Command>) -> Vec<Command> {
    let mut all = Vec::new();
    let mut inside = 0;
    for command in commands {
        if inside == 0 && prng.chance(30) {
            inside = 1 + prng.below(5);
            if prng.chance(50) {
                let key = usize::try_from(prng.below(KEYS.len() as u64)).unwrap_or(0);
                all.push(of(&["WATCH", KEYS[key]]));
                // PFCOUNT touches no key here (docs/compat.md).
                if prng.chance(50) && command.words[0] != b"PFCOUNT" {
                    all.push(command.clone());
                }
            }
            all.push(of(&["MULTI"]));
        }
        if inside == 0 {
            all.push(command);
            continue;
        }
        if command.how == Match::Exact && !differs_inside(&command) {
            all.push(command);
        }
        inside -= 1;
        if inside == 0 {
            all.push(of(&[if prng.chance(90) { "EXEC" } else { "DISCARD" }]));
        }
    }
    all.push(of(&["EXEC"]));
    all
}

/// Differences in docs/compat.md: ZRANK has one argument more than in Redis 7.0, so it is queued
/// here and refused there; and a queued command holds no reference to a value.
pub(crate) fn differs_inside(command: &Command) -> bool {
    let word = |at: usize| command.words.get(at).map(|word| word.to_ascii_uppercase());
    match word(0).unwrap_or_default().as_slice() {
        b"ZRANK" | b"ZREVRANK" => command.words.len() == 4,
        b"OBJECT" => word(1).is_some_and(|word| word == b"REFCOUNT"),
        _ => false,
    }
}

fn of(words: &[&str]) -> Command {
    Command::new(words.iter().map(|word| word.as_bytes().to_vec()).collect())
}
