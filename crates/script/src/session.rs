//! The state that a script's functions share with the embedder: the run's arguments, the called
//! command, its reply on the way in, and the script's reply on the way out.

use crate::incoming::Incoming;
use crate::library::{Functions, Source};
use crate::output::{Output, Protocol};
use crate::random::Random;
use darter_lua::{Cx, Kept, Outcome};
use darter_resp::{Args, Span};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Weak};

/// The argument of all functions here.
pub(crate) type Call<'a, 'b> = &'a mut Cx<'b, Session>;
/// The way all functions here end.
pub(crate) type Step = darter_lua::Step<Session>;
/// A function of scripts.
pub(crate) type LuaFunction = darter_lua::Function<Session>;

/// The event that a script waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The reply of the command in [`Session::command`].
    #[default]
    Reply,
    /// Whether the user may run that command: `:1`, `:0`, or an error if it does not exist.
    Permission,
    /// More of the reply.
    More,
}

/// Words, in one buffer.
#[derive(Debug, Default)]
pub struct Words {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Words {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// The memory kept for the next words, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }

    pub(crate) fn push(&mut self, word: &[u8]) {
        let place = |at: usize| u32::try_from(at).expect("what Lua may use at once is less");
        let start = place(self.bytes.len());
        self.bytes.extend_from_slice(word);
        self.spans.push(Span { start, end: place(self.bytes.len()) });
    }

    /// The number of words.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True if it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The words, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.args().iter()
    }

    /// The words as a request.
    #[must_use]
    pub fn args(&self) -> Args<'_> {
        Args::flat(&self.bytes, &self.spans)
    }
}

/// See the module.
#[derive(Default)]
pub struct Session {
    /// The keys and arguments of the run, until they are copied to Lua.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) arguments: Vec<Vec<u8>>,
    /// Whether the words are already in their tables, on the run's stack.
    pub(crate) are_copied: bool,
    /// Whether a script is running, as opposed to being compiled.
    pub(crate) is_running: bool,
    /// The protocol of replies of commands, which `redis.setresp` sets.
    pub(crate) protocol: Protocol,
    /// The protocol of the script's own reply.
    pub(crate) client: Protocol,
    /// The targets of writes besides memory: 1 for the file, 2 for replicas.
    pub(crate) replication: u8,
    /// The command that the script calls, and the facts that it asks for.
    pub(crate) command: Words,
    pub(crate) wanted: Wanted,
    pub(crate) incoming: Incoming,
    /// The calls of `redis.log`.
    pub(crate) log: Vec<(u8, Vec<u8>)>,
    /// The size of the log in bytes.
    pub(crate) log_bytes: usize,
    /// The lowest level that is logged.
    pub(crate) log_level: u8,
    pub(crate) random: Random,
    pub(crate) output: Output,
    /// The outcome of the run.
    pub(crate) outcome: Option<Outcome>,
    /// The functions of the scripts that were called here, by their names.
    pub(crate) compiled: HashMap<Arc<str>, Kept, BuildDigits>,
    /// The handler of errors.
    pub(crate) handler: Option<Kept>,
    /// The globals of functions, in a machine for them.
    pub(crate) globals: Option<Globals>,
    /// The libraries that were loaded here, by their names.
    pub(crate) libraries: BTreeMap<Box<str>, Loaded>,
    /// The functions registered by the library that is being loaded.
    pub(crate) registering: Option<Registering>,
    /// The functions of the library loaded last, or the reason for its refusal.
    pub(crate) loaded: Option<Result<Functions, Vec<u8>>>,
}

/// The two tables behind the globals of functions, which are themselves empty: Redis changes the
/// tables behind them, and so do we.
pub(crate) struct Globals {
    pub(crate) loading: Kept,
    pub(crate) running: Kept,
    pub(crate) stage: LibraryStage,
}

/// The running part of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LibraryStage {
    /// The text of the library, which registers functions.
    Loading,
    /// A function.
    Running,
}

/// The functions that a library has registered so far.
pub(crate) struct Registering {
    pub(crate) functions: Functions,
    /// A table of Lua: the functions by their names.
    pub(crate) table: Kept,
}

/// A library that a machine has loaded.
pub(crate) struct Loaded {
    pub(crate) source: Weak<Source>,
    /// A table of Lua: its functions by their names.
    pub(crate) table: Kept,
}

impl Loaded {
    /// Whether this is `source`.
    pub(crate) fn is(&self, source: &Arc<Source>) -> bool {
        self.source.as_ptr() == Arc::as_ptr(source)
    }

    /// The table to be released.
    pub(crate) fn into_kept(self) -> Kept {
        self.table
    }
}

/// Hashes a script's name by its first digits, because the name is already a hash.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BuildDigits;

/// See [`BuildDigits`].
#[derive(Default)]
pub(crate) struct Digits(u64);

impl BuildHasher for BuildDigits {
    type Hasher = Digits;

    fn build_hasher(&self) -> Digits {
        Digits::default()
    }
}

impl Hasher for Digits {
    fn write(&mut self, bytes: &[u8]) {
        /// Spreads the bits of digits, which are few in a byte.
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        if let Some((first, _)) = bytes.split_first_chunk() {
            self.0 = u64::from_le_bytes(*first).wrapping_mul(ODD).rotate_left(32).wrapping_mul(ODD);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Session {
    /// Whether a library was loaded here, and not replaced since.
    pub(crate) fn has_loaded(&self, source: &Arc<Source>) -> bool {
        self.libraries.get(&source.name).is_some_and(|loaded| loaded.is(source))
    }
}
