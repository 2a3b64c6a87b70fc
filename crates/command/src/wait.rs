//! The waits of blocking commands.
//!
//! A row of such a command has a function that reads the wait of a request ([`WaitFn`]), beside the
//! one that runs it without waiting, as inside a transaction. The engine checks the keys. If one of
//! them is ready, the command runs; otherwise its client waits for all of them. A waiting call is
//! served on the core of a key after the key has changed: docs/design/0027-blocking.md.

use crate::{Args, Refusal};
use darter_keyspace::{Db, Key};
use darter_resp::Reply;
use std::ops::Range;

/// Reads the wait of a request. It may return the command's own refusals, or leave them to the
/// command.
pub type WaitFn = fn(Args<'_>) -> Result<Wait, Refusal>;

/// The wait of a request.
pub struct Wait {
    /// Indexes of the keys in the whole request.
    pub keys: Range<usize>,
    /// How long the client waits.
    pub patience: Patience,
    /// The condition, and the action once it holds.
    pub want: Box<dyn Want>,
}

/// How long a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// No wait: XREAD without BLOCK.
    None,
    /// At most this many milliseconds.
    Millis(u64),
    /// No limit: the client waits until it is served.
    Endless,
}

/// The condition that makes a key ready: a name, a number and a text. If a call with some condition
/// finds nothing, other calls with an equal condition find nothing either.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Condition(pub &'static str, pub u64, pub Box<[u8]>);

/// The state of a key when a client began to wait for it. Only the command knows the meaning of the
/// number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Since(pub u128);

/// The readiness of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The key is not ready.
    Nothing,
    /// The key is ready.
    There,
    /// The key is ready, but taking from it is more than one step: [`Want::take`] returns a job.
    Much,
    /// The request is refused because of this key.
    Refused(Refusal),
}

/// The occasion on which a key is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// When the command is called.
    Called,
    /// While its client waits, after a possible change of the key; its earlier state is given.
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
    /// Whether the client is already waiting.
    pub when: When,
}

impl<'a> Looking<'a> {
    /// The context for the key at index `at` of a request.
    #[must_use]
    pub fn new(db: &'a Db, args: darter_resp::Args<'a>, at: usize, when: When) -> Self {
        let key = Key::hashed(args.get(at), args.hash(at));
        Self { db, key, args, at, when }
    }
}

/// The condition and the action of a waiting call. Several cores check it at the same time.
pub trait Want: Send + Sync {
    /// Checks whether a key of the request is ready.
    fn look(&self, call: &Looking<'_>) -> Look;

    /// The condition of the wait; `None` if it also depends on the state when the wait began.
    fn condition(&self) -> Option<Condition>;

    /// The state of a key as its client begins to wait, for later comparison.
    fn since(&self, _call: &Looking<'_>) -> Since {
        Since::default()
    }

    /// The time, in Unix milliseconds, at which an unchanged key may begin to serve or refuse the
    /// wait.
    fn due_ms(&self, _call: &Looking<'_>) -> Option<u64> {
        None
    }

    /// Takes the elements that [`Want::look`] found, and replies. A job works under the key's lock.
    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<crate::Flow, Refusal>;

    /// Index of a second key that is changed, too; it may be on any core.
    fn second(&self) -> Option<usize> {
        None
    }

    /// [`Want::take`] with the second key on another core; `None` if the command itself does it.
    fn take_across(&self, _call: crate::Call) -> Option<crate::MultiFuture> {
        None
    }

    /// True if the call waits, without keys, until what its client has changed is on the disk.
    fn waits_for_disk(&self) -> bool {
        false
    }

    /// Ends the wait for the disk: writes the reply if the changes are there, and refuses the call
    /// if there is no journal any more.
    fn end_at_disk(&self, _is_there: bool, _reply: &mut Reply<'_>) -> Result<(), Refusal> {
        unreachable!("it does not wait for the disk")
    }

    /// Writes the reply of a timeout.
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
    /// Whether the client has waited for the key.
    pub when: When,
}
