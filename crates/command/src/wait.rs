//! The waits of blocking commands.
//!
//! A row of such a command has a function that reads the wait of a request ([`WaitFn`]), beside the
//! one that runs it without waiting, as inside a transaction. The engine asks the keys. If one of
//! them is ready, the command runs; otherwise its client waits for all of them. A waiting call is
//! served on the core of a key after the key has changed: docs/design/0027-blocking.md.

use crate::{Args, Refusal};
use darter_keyspace::{Db, Key};
use darter_resp::Reply;
use std::ops::Range;

/// Reads the wait of a request. The function refuses the command's own refusals, or leaves them to
/// the command.
pub type WaitFn = fn(Args<'_>) -> Result<Wait, Refusal>;

/// The wait of a request.
pub struct Wait {
    /// Indexes of the keys in the whole request.
    pub keys: Range<usize>,
    /// The longest wait.
    pub patience: Patience,
    /// The wish.
    pub want: Box<dyn Want>,
}

/// How long a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Not at all: XREAD without BLOCK.
    None,
    /// At most this many milliseconds.
    Millis(u64),
    /// A wait until it is served.
    Endless,
}

/// The condition that makes a key ready: a name, a number and a text. If one call on a condition
/// finds nothing, no other call on it does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Condition(pub &'static str, pub u64, pub Box<[u8]>);

/// The state of a key when a client began to wait for it. Only the command knows its meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Since(pub u128);

/// Whether a key is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The key is not ready.
    Nothing,
    /// The key is ready.
    There,
    /// The key is ready, and taking from it takes more than a step: [`Want::take`] makes a job of
    /// it.
    Much,
    /// The request is refused because of this key.
    Refused(Refusal),
}

/// When a key is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// As the command is called.
    Called,
    /// As it waits, and the key may have changed, since it was like this.
    Waiting(Since),
}

/// The context of [`Want::look`].
#[derive(Clone, Copy)]
pub struct Looking<'a> {
    /// The client's database on the core of the key.
    pub db: &'a Db,
    /// The key.
    pub key: Key<'a>,
    /// The request.
    pub args: darter_resp::Args<'a>,
    /// Index of the key in the request.
    pub at: usize,
    /// Whether its client waits already.
    pub when: When,
}

impl<'a> Looking<'a> {
    /// The wait at the key with index `at` of a request.
    #[must_use]
    pub fn new(db: &'a Db, args: darter_resp::Args<'a>, at: usize, when: When) -> Self {
        let key = Key::hashed(args.get(at), args.hash(at));
        Self { db, key, args, at, when }
    }
}

/// The wish of a waiting call. Several cores ask it at the same time.
pub trait Want: Send + Sync {
    /// Whether a key of the request has it.
    fn look(&self, call: &Looking<'_>) -> Look;

    /// The condition of the wait; `None` if that depends on when it began to, too.
    fn condition(&self) -> Option<Condition>;

    /// The state of a key to be compared with later: its client begins to wait for it.
    fn since(&self, _call: &Looking<'_>) -> Since {
        Since::default()
    }

    /// The time, in Unix milliseconds, at which an unchanged key may begin to serve or refuse the
    /// wait.
    fn due_ms(&self, _call: &Looking<'_>) -> Option<u64> {
        None
    }

    /// Takes what [`Want::look`] found, and replies. A job works under the key's lock.
    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<crate::Flow, Refusal>;

    /// Index of a key that is changed, too: it may be anywhere.
    fn second(&self) -> Option<usize> {
        None
    }

    /// [`Want::take`] where that key is on another core: `None` if the command itself does it.
    fn take_across(&self, _call: crate::Call) -> Option<crate::MultiFuture> {
        None
    }

    /// Replies that the time is over.
    fn time_out(&self, reply: &mut Reply<'_>) {
        reply.null_array();
    }
}

/// The context of [`Want::take`].
pub struct Taking<'a> {
    /// The client's database on the core of the key.
    pub db: &'a mut Db,
    /// The request.
    pub args: darter_resp::Args<'a>,
    /// The reply of the call.
    pub reply: Reply<'a>,
    /// Whether its client has waited for it.
    pub when: When,
}
