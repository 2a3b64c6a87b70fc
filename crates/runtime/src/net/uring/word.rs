//! The user data of an operation in the kernel: its kind, and its connection.
//!
//! ```text
//! | kind: 4 bits | generation: 28 bits | index: 32 bits |
//! ```
//! A connection's place is reused only after its last operation has completed, so the generation is
//! needed for one thing: a late cancel must not hit the next tenant.

use crate::net::event::Token;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A cancel: its completion is ignored.
    Cancel = 0,
    /// A receive of a connection.
    Receive = 1,
    /// A send of a connection.
    Send = 2,
    /// A multishot accept of a listener, by number.
    Accept = 3,
    /// The read of the waker.
    Wake = 4,
    /// A poll for the end of a connection.
    Watch = 5,
}

const GENERATIONS: u32 = (1 << 28) - 1;

pub(super) fn of(kind: Kind, token: Token) -> u64 {
    let generation = u64::from(token.generation & GENERATIONS);
    (kind as u64) << 60 | generation << 32 | u64::from(token.index)
}

pub(super) fn listener(id: usize) -> u64 {
    of(Kind::Accept, Token { index: id as u32, generation: 0 })
}

pub(super) fn kind(word: u64) -> Kind {
    match word >> 60 {
        0 => Kind::Cancel,
        1 => Kind::Receive,
        2 => Kind::Send,
        3 => Kind::Accept,
        4 => Kind::Wake,
        5 => Kind::Watch,
        other => unreachable!("no operation has kind {other}"),
    }
}

pub(super) fn index(word: u64) -> u32 {
    word as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_words_are_decoded_unchanged() {
        use Kind::{Accept, Cancel, Receive, Send, Wake, Watch};
        for kind_in in [Cancel, Receive, Send, Accept, Wake, Watch] {
            let word = of(kind_in, Token { index: u32::MAX, generation: u32::MAX });
            assert_eq!((kind(word), index(word)), (kind_in, u32::MAX));
        }
    }
}
