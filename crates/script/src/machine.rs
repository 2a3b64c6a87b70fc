//! A VM with Redis's sandbox, and the runs of scripts in it.

use crate::calling::{Calling, FunctionRun, Loading};
use crate::ends::{Copied, finish_run, push_words};
use crate::incoming::Incoming;
use crate::library::{Functions, Library, Source};
use crate::output::Protocol;
use crate::random::Random;
use crate::reach::Reach;
use crate::session::{Call, Loaded, Session, Wanted, Words};
use crate::shebang::{self, Flags};
use crate::{errors, redis, sandbox};
use darter_base::preempt::Preempt;
use darter_lua::{Error, Kept, Outcome, Program, Progress, Start, Stop as VmStop, Vm};
use sha1::{Digest, Sha1};
use std::cell::Cell;
use std::collections::btree_map;
use std::collections::hash_map::IntoValues;
use std::rc::Weak;
use std::sync::Arc;

/// A script as it was sent: immutable, and shared by all machines.
#[derive(Clone, Debug)]
pub struct Script {
    /// SHA1 of the text, in 40 lower-case digits: the script's name.
    pub name: Arc<str>,
    /// The text.
    pub text: Arc<Vec<u8>>,
    /// The flags of its first line.
    pub flags: Flags,
    /// The keys that its runs have touched.
    pub reach: Arc<Reach>,
}

/// Scripts of the same name have the same text.
impl PartialEq for Script {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Script {}

impl Script {
    /// Reads the first line of a text, and names it. Cost: the length of the text.
    ///
    /// # Errors
    /// The refusal, with its code.
    pub fn new(text: &[u8]) -> Result<Self, Vec<u8>> {
        let mut naming = Naming::default();
        naming.add(text);
        Self::named(naming.finish(), text.to_vec())
    }

    /// Reads the first line of a text that has been named.
    ///
    /// # Errors
    /// The refusal, with its code.
    pub fn named(name: Arc<str>, text: Vec<u8>) -> Result<Self, Vec<u8>> {
        let flags = Self::flags_of(&text)?;
        Ok(Self { name, text: Arc::new(text), flags, reach: Arc::default() })
    }

    /// The flags in the first line of a text.
    ///
    /// # Errors
    /// The refusal, with its code.
    pub fn flags_of(text: &[u8]) -> Result<Flags, Vec<u8>> {
        let (flags, _) = shebang::read(text).map_err(|why| [b"ERR ", &*why].concat())?;
        Ok(flags)
    }
}

/// Finds the name of a text that comes in pieces.
#[derive(Default)]
pub struct Naming(Sha1);

impl Naming {
    /// The next piece. Cost: O(bytes).
    pub fn add(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The name: SHA1 in 40 lower-case digits.
    #[must_use]
    pub fn finish(self) -> Arc<str> {
        redis::hex(&self.0.finalize()).into()
    }
}

/// A call of a script.
#[derive(Clone, Debug)]
pub struct Run {
    /// The script to call.
    pub script: Script,
    /// `KEYS`.
    pub keys: Vec<Vec<u8>>,
    /// `ARGV`.
    pub arguments: Vec<Vec<u8>>,
    /// The protocol of the client, in which the reply is written.
    pub client: Protocol,
}

/// The reason why a run stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The slice is over.
    Slice,
    /// The script waits for [`Machine::feed`].
    Wait(Wanted),
    /// The reply is in [`Machine::take_reply`].
    Ended,
}

/// See the module.
pub struct Machine {
    vm: Vm<Session>,
    reply_max: usize,
    /// The call for which a library is being loaded.
    next: Option<Calling>,
}

/// The name of the chunk of each script.
const CHUNK: &std::ffi::CStr = c"@user_script";

/// A script, from its text to its reply.
struct Evaluation {
    script: Script,
    /// Whether the script is only compiled, not called.
    is_check: bool,
    /// Whether the keys and arguments are already on the stack.
    are_copied: bool,
    copied: Option<Copied>,
}

impl Program<Session> for Evaluation {
    fn start(&mut self, cx: Call<'_, '_>) -> Start {
        match self.prepare(cx) {
            Ok(start) => start,
            Err(_) => {
                cx.host.output.error(&errors::no_memory(&self.script.name));
                Start::End
            }
        }
    }

    fn finish(&mut self, cx: Call<'_, '_>, outcome: Outcome) -> Progress {
        finish_run(cx, outcome, &self.script.name)
    }
}

impl Evaluation {
    /// Runs the next portion of the preparation of the call.
    fn prepare(&mut self, cx: Call<'_, '_>) -> Result<Start, Error> {
        if self.copied.is_none() {
            // Compile before anything is pushed: an error must be the only value on the stack.
            let is_known = cx.host.compiled.contains_key(&self.script.name);
            if !is_known && !self.compile(cx)? || self.is_check {
                return Ok(Start::End);
            }
            self.copied = Some(Copied::begin(cx, self.are_copied)?);
        }
        let copied = self.copied.as_mut().expect("it was begun");
        if !copied.step(cx)? {
            return Ok(Start::More);
        }
        sandbox::set_global(&mut cx.lua, "ARGV")?;
        sandbox::set_global(&mut cx.lua, "KEYS")?;
        errors::push_handler(cx)?;
        let function = cx.host.compiled.get(&self.script.name);
        cx.lua.push_kept(function.expect("it was found, or compiled"))?;
        cx.host.is_running = true;
        Ok(Start::Call(0))
    }

    /// Compiles the script and keeps it. False if its text is invalid; then the reply is the error.
    fn compile(&mut self, cx: Call<'_, '_>) -> Result<bool, Error> {
        let text = Arc::clone(&self.script.text);
        let (_, code) = shebang::read(&text).unwrap_or((Flags::COMPATIBLE, &text[..]));
        if cx.lua.compile(code, CHUNK)? {
            let function = cx.lua.keep()?;
            cx.host.compiled.insert(Arc::clone(&self.script.name), function);
            return Ok(true);
        }
        let why = cx.lua.bytes(-1).unwrap_or_default();
        let line = [b"ERR Error compiling script (new function): ", why].concat();
        cx.host.output.error(&line);
        Ok(false)
    }
}

impl Machine {
    /// The largest memory limit of a machine.
    pub const LIMIT_BYTES_MAX: usize = 1 << 30;

    /// Bytes that are mapped for a machine's stack, besides Lua's memory. A script touches about 10
    /// KiB of them.
    pub const STACK_BYTES: usize = darter_lua::STACK_BYTES;

    /// A machine whose scripts may use `limit_bytes` at once, at most [`Machine::LIMIT_BYTES_MAX`].
    ///
    /// # Errors
    /// The system has no memory for a stack.
    pub fn new(limit_bytes: usize) -> std::io::Result<Self> {
        Self::furnished(limit_bytes, sandbox::furnish)
    }

    /// A machine for functions of libraries, with other globals than those of scripts.
    ///
    /// # Errors
    /// The system has no memory for a stack.
    pub fn for_functions(limit_bytes: usize) -> std::io::Result<Self> {
        Self::furnished(limit_bytes, sandbox::furnish_for_functions)
    }

    fn furnished(
        limit_bytes: usize,
        furnish: fn(Call<'_, '_>) -> Result<(), Error>,
    ) -> std::io::Result<Self> {
        let mut vm = Vm::new(Session::default(), limit_bytes)?;
        let furnished = vm.with(furnish);
        furnished.map_err(|_| std::io::Error::other("the limit is too low for the libraries"))?;
        Ok(Self { vm, reply_max: limit_bytes, next: None })
    }

    /// Copies the keys and arguments of the next run in one step, so they must be few and short;
    /// its `Run` has none. False if memory is short.
    ///
    /// # Panics
    /// There is a run.
    pub fn take_words<'w>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'w [u8]>,
        arguments: impl ExactSizeIterator<Item = &'w [u8]>,
    ) -> bool {
        let pushed = self.vm.prepare(|cx| {
            push_words(&mut cx.lua, keys).and_then(|()| push_words(&mut cx.lua, arguments))
        });
        self.vm.host().are_copied = pushed.is_ok();
        if pushed.is_err() {
            self.vm.forget_values();
        }
        pushed.is_ok()
    }

    /// Begins a call of a script.
    ///
    /// # Panics
    /// There is a run.
    pub fn begin(&mut self, run: Run) {
        let session = self.vm.host();
        session.keys = run.keys;
        session.arguments = run.arguments;
        session.client = run.client;
        self.start(run.script, false);
    }

    /// Begins to compile a script, without calling it. The reply is empty, or the error.
    ///
    /// # Panics
    /// There is a run.
    pub fn begin_check(&mut self, script: Script) {
        self.start(script, true);
    }

    fn start(&mut self, script: Script, is_check: bool) {
        self.clear();
        let are_copied = self.are_copied();
        self.vm.begin(Box::new(Evaluation { script, is_check, are_copied, copied: None }));
    }

    /// Begins to run the text of a library: [`Machine::take_loaded`] has the result. There is no
    /// limit of time: that is up to the embedder.
    ///
    /// # Panics
    /// There is a run, or the machine is none for functions.
    pub fn begin_load(&mut self, source: Arc<Source>) {
        self.clear();
        self.vm.begin(Box::new(Loading::new(source)));
    }

    /// The functions of the library that was loaded last; or the refusal, without its code.
    ///
    /// # Panics
    /// There is a run, or no library was loaded.
    pub fn take_loaded(&mut self) -> Result<Functions, Vec<u8>> {
        self.vm.host().loaded.take().expect("a library was loaded")
    }

    /// Begins a call of a function. Its library is loaded first if this machine has not loaded it
    /// yet.
    ///
    /// # Panics
    /// There is a run, or the machine is none for functions.
    pub fn begin_call(&mut self, run: FunctionRun) {
        self.clear();
        let session = self.vm.host();
        session.keys = run.keys;
        session.arguments = run.arguments;
        session.client = run.client;
        let source = Arc::clone(&run.library.source);
        let is_loaded = session.has_loaded(&source);
        let are_copied = self.are_copied();
        let calling = Calling::new(run.library, run.index, are_copied);
        if is_loaded {
            self.vm.begin(Box::new(calling));
        } else {
            assert!(!are_copied, "words are taken in for a library that is loaded");
            self.next = Some(calling);
            self.vm.begin(Box::new(Loading::new(source)));
        }
    }

    /// Whether the library of a function is already loaded here.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn has_loaded(&mut self, library: &Library) -> bool {
        self.vm.host().has_loaded(&library.source)
    }

    /// Begins the call that required a library. False if there is no such call, or if loading
    /// failed here: the code depends on chance or needs more memory.
    fn begin_next(&mut self) -> bool {
        let Some(calling) = self.next.take() else { return false };
        match self.take_loaded() {
            Ok(_) => {
                self.vm.begin(Box::new(calling));
                true
            }
            Err(text) => {
                self.vm.host().output.error(&[b"ERR ", &*text].concat());
                false
            }
        }
    }

    /// Returns and clears whether the arguments of the next run are on the stack.
    fn are_copied(&mut self) -> bool {
        std::mem::take(&mut self.vm.host().are_copied)
    }

    /// Clears the state of the previous run.
    fn clear(&mut self) {
        let reply_max = self.reply_max;
        self.next = None;
        let session = self.vm.host();
        session.is_running = false;
        session.protocol = Protocol::Two;
        session.replication = 3;
        session.outcome = None;
        session.loaded = None;
        session.output.begin(reply_max);
        session.log.clear();
        session.log_bytes = 0;
    }

    /// Continues the run.
    ///
    /// # Panics
    /// There is none.
    pub fn resume(&mut self, preempt: &dyn Preempt) -> Stop {
        loop {
            match self.vm.resume(preempt) {
                VmStop::Slice => return Stop::Slice,
                VmStop::Wait => return Stop::Wait(self.vm.host().wanted),
                VmStop::Ended if self.begin_next() => {}
                VmStop::Ended => return Stop::Ended,
            }
        }
    }

    /// The command that a waiting script calls.
    ///
    /// # Panics
    /// The run was suspended by the end of a slice.
    pub fn command(&mut self) -> &Words {
        &self.vm.host().command
    }

    /// The protocol for the reply to the script's command.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn protocol(&mut self) -> Protocol {
        self.vm.host().protocol
    }

    /// Adds a part of the reply that the script waits for.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn feed(&mut self, bytes: &[u8]) {
        self.vm.host().incoming.feed(bytes);
    }

    /// As [`Machine::feed`], but may take over the bytes' memory. Returns memory for the next part.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn feed_owned(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        self.vm.host().incoming.feed_owned(bytes)
    }

    /// The reply of a run that has ended, in pieces; none for a script that was only compiled.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn take_reply(&mut self) -> Vec<Vec<u8>> {
        self.vm.host().output.take()
    }

    /// The reply of a run that has ended, if it is short, and has no error in it.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn short_reply(&mut self) -> Option<&[u8]> {
        self.vm.host().output.short()
    }

    /// Whether the reply of a run has an error; and its errors that no command has counted, up to a
    /// limit.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn take_errors(&mut self) -> (bool, Vec<Vec<u8>>) {
        self.vm.host().output.take_errors()
    }

    /// The outcome of a run. `None` if the script was not called, because memory was short or its
    /// text is invalid.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn outcome(&mut self) -> Option<Outcome> {
        self.vm.host().outcome
    }

    /// The messages that the script has logged, each with its level, from 0 for debugging to 3 for
    /// warnings.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn take_log(&mut self) -> Vec<(u8, Vec<u8>)> {
        let session = self.vm.host();
        session.log_bytes = 0;
        std::mem::take(&mut session.log)
    }

    /// Sets the lowest level that is logged.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn set_log_level(&mut self, level: u8) {
        self.vm.host().log_level = level;
    }

    /// The argument of the last `redis.set_repl`: 1 for the file, 2 for replicas.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn replication(&mut self) -> u8 {
        self.vm.host().replication
    }

    /// The generator of `math.random`. It outlives a run: the embedder may save and restore it.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn random(&mut self) -> &mut Random {
        &mut self.vm.host().random
    }

    /// Abandons the run, a slice at a time. True when that is done.
    pub fn abandon(&mut self, preempt: &dyn Preempt) -> bool {
        self.next = None;
        self.vm.abandon(preempt)
    }

    /// The error for killing the run of script or function `name`, with its current line if known.
    #[must_use]
    pub fn killed(&self, name: &str) -> Vec<u8> {
        let text = "ERR Script killed by user with SCRIPT KILL...";
        let Some(place) = self.vm.location() else { return text.as_bytes().to_vec() };
        let place = (String::from_utf8_lossy(&place.source).into_owned(), place.line);
        format!("{text} script: {name}, on {}:{}.", place.0, place.1).into_bytes()
    }

    /// Begins to collect all garbage.
    ///
    /// # Panics
    /// There is a run.
    pub fn begin_collection(&mut self) {
        self.vm.begin(Box::new(Collection { cycles: 0 }));
    }

    /// Whether a script has been compiled here.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn has_compiled(&mut self, name: &str) -> bool {
        self.vm.host().compiled.contains_key(name)
    }

    /// The number of compiled scripts that are kept here.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn compiled_len(&mut self) -> usize {
        self.vm.host().compiled.len()
    }

    /// Begins to forget all compiled scripts and loaded libraries, and to collect all garbage.
    ///
    /// # Panics
    /// There is a run.
    pub fn begin_forgetting(&mut self) {
        let session = self.vm.host();
        let compiled = std::mem::take(&mut session.compiled).into_values();
        let libraries = std::mem::take(&mut session.libraries).into_values();
        let rest = Collection { cycles: 0 };
        self.vm.begin(Box::new(Forgetting { compiled, libraries, rest }));
    }

    /// Bytes that Lua has allocated.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.vm.used_bytes()
    }

    /// The counter of these bytes, which exists as long as the machine.
    #[must_use]
    pub fn account(&self) -> Weak<Cell<usize>> {
        self.vm.account()
    }

    /// Bytes of the buffers of commands and replies, which are not Lua's.
    ///
    /// # Panics
    /// As [`Machine::command`].
    pub fn buffered_bytes(&mut self) -> usize {
        let session = self.vm.host();
        session.command.held_bytes() + session.incoming.held_bytes()
    }

    /// Frees the buffers of commands and replies that have grown beyond `most` bytes each. Cost: that
    /// of freeing them.
    ///
    /// # Panics
    /// There is a run.
    pub fn release_buffers(&mut self, most: usize) {
        assert!(self.is_idle(), "a script waits for its reply");
        let session = self.vm.host();
        if session.command.held_bytes() > most {
            session.command = Words::default();
        }
        if session.incoming.held_bytes() > most {
            session.incoming = Incoming::default();
        }
    }

    /// Whether there is no run.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.vm.is_idle()
    }
}

/// Runs two cycles of the collector, because the first one may have begun earlier.
struct Collection {
    cycles: usize,
}

impl Program<Session> for Collection {
    fn start(&mut self, cx: Call<'_, '_>) -> Start {
        self.cycles += usize::from(cx.lua.collect_step());
        if self.cycles < 2 { Start::More } else { Start::End }
    }

    fn finish(&mut self, _: Call<'_, '_>, _: Outcome) -> Progress {
        Progress::Done(0)
    }
}

/// Forgets all compiled scripts and loaded libraries, then collects the garbage.
struct Forgetting {
    compiled: IntoValues<Arc<str>, Kept>,
    libraries: btree_map::IntoValues<Box<str>, Loaded>,
    rest: Collection,
}

impl Program<Session> for Forgetting {
    fn start(&mut self, cx: Call<'_, '_>) -> Start {
        /// Scripts and libraries that are forgotten in a portion.
        const AT_ONCE: usize = 64;
        let libraries = self.libraries.by_ref().map(Loaded::into_kept);
        let mut portion = self.compiled.by_ref().chain(libraries).take(AT_ONCE).peekable();
        if portion.peek().is_none() {
            return self.rest.start(cx);
        }
        for kept in portion {
            if cx.lua.release(kept).is_err() {
                return Start::End; // No slot is left: they stay until the machine goes.
            }
        }
        Start::More
    }

    fn finish(&mut self, _: Call<'_, '_>, _: Outcome) -> Progress {
        Progress::Done(0)
    }
}
