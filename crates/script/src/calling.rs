//! Libraries in a machine: their loading, and the calls of their functions.
//!
//! A machine runs a library's text before it first calls one of its functions. So the library's
//! variables belong to that machine.

use crate::ends::{Copied, finish_run};
use crate::library::{Functions, Library, Source};
use crate::output::Protocol;
use crate::session::{Call, LibraryStage, Loaded, Registering, Session};
use crate::{errors, sandbox};
use darter_lua::{Error, Outcome, Program, Progress, Start};
use std::ops::Bound;
use std::sync::Arc;

/// The name of the chunk of each library.
const CHUNK: &std::ffi::CStr = c"@user_function";

/// Libraries that are looked at in a portion.
const LOOKS_AT_ONCE: usize = 32;

/// A call of a function.
#[derive(Clone, Debug)]
pub struct FunctionRun {
    /// The library.
    pub library: Arc<Library>,
    /// The index of the function in the library.
    pub index: usize,
    /// The first parameter.
    pub keys: Vec<Vec<u8>>,
    /// The second parameter.
    pub arguments: Vec<Vec<u8>>,
    /// The protocol of the client, in which the reply is written.
    pub client: Protocol,
}

/// Runs the text of a library.
pub(crate) struct Loading {
    source: Arc<Source>,
    /// The last library looked at: deleted libraries are forgotten before one is loaded.
    looked_at: Option<Box<str>>,
    has_looked: bool,
}

impl Loading {
    pub(crate) fn new(source: Arc<Source>) -> Self {
        Self { source, looked_at: None, has_looked: false }
    }

    /// Forgets a portion of the deleted libraries; true when all have been looked at.
    fn forget_some(&mut self, cx: Call<'_, '_>) -> Result<bool, Error> {
        let after = self.looked_at.take().map_or(Bound::Unbounded, Bound::Excluded);
        let some = cx.host.libraries.range::<Box<str>, _>((after, Bound::Unbounded));
        let mut gone = Vec::new();
        for (name, loaded) in some.take(LOOKS_AT_ONCE) {
            if loaded.source.strong_count() == 0 {
                gone.push(name.clone());
            }
            self.looked_at = Some(name.clone());
        }
        for name in gone {
            if let Some(loaded) = cx.host.libraries.remove(&name) {
                cx.lua.release(loaded.table)?;
            }
        }
        Ok(self.looked_at.is_none())
    }

    fn prepare(&mut self, cx: Call<'_, '_>) -> Result<Start, Error> {
        if !self.has_looked {
            self.has_looked = self.forget_some(cx)?;
            return Ok(Start::More);
        }
        sandbox::set_stage(cx, LibraryStage::Loading)?;
        cx.lua.push_table(0)?;
        let table = cx.lua.keep()?;
        cx.host.registering = Some(Registering { functions: Functions::default(), table });
        errors::push_handler(cx)?;
        if cx.lua.compile(self.source.code(), CHUNK)? {
            return Ok(Start::Call(0));
        }
        let why = cx.lua.bytes(-1).unwrap_or_default();
        let text = [b"Error compiling function: ", why].concat();
        end_loading(cx)?;
        cx.host.loaded = Some(Err(text));
        Ok(Start::End)
    }

    fn take_functions(&self, cx: Call<'_, '_>, outcome: Outcome) -> Result<(), Error> {
        if outcome != Outcome::Returned {
            let why = errors::message(cx, outcome)?;
            end_loading(cx)?;
            let text = [b"Error registering functions: ", &*why].concat();
            cx.host.loaded = Some(Err(text));
            return Ok(());
        }
        let registering = cx.host.registering.take().expect("only this ends it");
        if registering.functions.is_empty() {
            cx.host.loaded = Some(Err(b"No functions registered".to_vec()));
            return cx.lua.release(registering.table);
        }
        let source = Arc::downgrade(&self.source);
        let loaded = Loaded { source, table: registering.table };
        let before = cx.host.libraries.insert(self.source.name.clone(), loaded);
        cx.host.loaded = Some(Ok(registering.functions));
        before.map_or(Ok(()), |before| cx.lua.release(before.table))
    }
}

/// Forgets the functions of a library that could not be loaded.
pub(crate) fn end_loading(cx: Call<'_, '_>) -> Result<(), Error> {
    match cx.host.registering.take() {
        Some(registering) => cx.lua.release(registering.table),
        None => Ok(()),
    }
}

impl Program<Session> for Loading {
    fn start(&mut self, cx: Call<'_, '_>) -> Start {
        // Releases a library whose loading was abandoned.
        let prepared = end_loading(cx).and_then(|()| self.prepare(cx));
        prepared.unwrap_or_else(|_| {
            cx.host.loaded = Some(Err(NO_MEMORY.to_vec()));
            Start::End
        })
    }

    fn finish(&mut self, cx: Call<'_, '_>, outcome: Outcome) -> Progress {
        if self.take_functions(cx, outcome).is_err() {
            cx.host.loaded = Some(Err(NO_MEMORY.to_vec()));
        }
        Progress::Done(0)
    }
}

const NO_MEMORY: &[u8] = b"Error registering functions: ERR not enough memory";

/// Calls a function of a library that is loaded.
pub(crate) struct Calling {
    library: Arc<Library>,
    index: usize,
    /// Whether its keys and arguments are already on the stack.
    are_copied: bool,
    copied: Option<Copied>,
}

impl Calling {
    pub(crate) fn new(library: Arc<Library>, index: usize, are_copied: bool) -> Self {
        Self { library, index, are_copied, copied: None }
    }

    fn name(&self) -> Arc<str> {
        let function = self.library.functions.get(self.index);
        Arc::clone(&function.expect("the library has the function").name)
    }

    fn prepare(&mut self, cx: Call<'_, '_>) -> Result<Start, Error> {
        if self.copied.is_none() {
            sandbox::set_stage(cx, LibraryStage::Running)?;
            errors::push_handler(cx)?;
            cx.lua.insert(1); // Below the keys and the arguments, if these are there already.
            let loaded = cx.host.libraries.get(&self.library.source.name);
            cx.lua.push_kept(&loaded.expect("it was loaded before").table)?;
            cx.lua.get(-1, &self.name())?;
            cx.lua.remove(-2);
            cx.lua.insert(2);
            self.copied = Some(Copied::begin(cx, self.are_copied)?);
        }
        let copied = self.copied.as_mut().expect("it was begun");
        Ok(if copied.step(cx)? { Start::Call(2) } else { Start::More })
    }
}

impl Program<Session> for Calling {
    fn start(&mut self, cx: Call<'_, '_>) -> Start {
        match self.prepare(cx) {
            Ok(start) => {
                cx.host.is_running = matches!(start, Start::Call(_));
                start
            }
            Err(_) => {
                cx.host.output.error(&errors::no_memory(&self.name()));
                Start::End
            }
        }
    }

    fn finish(&mut self, cx: Call<'_, '_>, outcome: Outcome) -> Progress {
        finish_run(cx, outcome, &self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, Stop, Wanted};
    use darter_base::Prng;
    use darter_base::preempt::{Countdown, Never};

    const LIMIT: usize = 64 << 20;

    fn source(text: &str) -> Arc<Source> {
        Arc::new(Source::read(text.into()).unwrap())
    }

    /// Loads a library, in slices of random lengths.
    fn load(machine: &mut Machine, text: &str) -> Result<Arc<Library>, String> {
        let mut prng = Prng::from_seed(1);
        let source = source(text);
        machine.begin_load(Arc::clone(&source));
        while machine.resume(&Countdown::new(prng.below(20) as usize)) != Stop::Ended {}
        let loaded = machine.take_loaded();
        let functions = loaded.map_err(|text| String::from_utf8(text).unwrap())?;
        Ok(Arc::new(Library { source, functions }))
    }

    /// Calls a function with `ARGV` `a`, `b`; commands answer with their own name.
    fn call(machine: &mut Machine, library: &Arc<Library>, name: &str) -> String {
        let index = (0..library.functions.len())
            .find(|index| &*library.functions.get(*index).unwrap().name == name)
            .unwrap();
        let mut prng = Prng::from_seed(2);
        let arguments = vec![b"a".to_vec(), b"b".to_vec()];
        let (library, keys) = (Arc::clone(library), vec![b"k".to_vec()]);
        machine.begin_call(FunctionRun { library, index, keys, arguments, client: Protocol::Two });
        loop {
            match machine.resume(&Countdown::new(prng.below(20) as usize)) {
                Stop::Slice => {}
                Stop::Wait(Wanted::Reply) => {
                    let name = machine.command().iter().next().unwrap().to_vec();
                    machine.feed(&[b"+", &*name, b"\r\n"].concat());
                }
                Stop::Wait(_) => panic!("whole replies are fed"),
                Stop::Ended => {
                    return String::from_utf8(machine.take_reply().concat()).unwrap();
                }
            }
        }
    }

    const TEXT: &str = "#!lua name=lib\nlocal count, red = 0, redis
        redis.register_function('count', function() count = count + 1 return count end)
        redis.register_function{function_name = 'words', callback = function(keys, args)
          return {keys[1], args[2], #args, redis.call('ping')} end,
          description = 'about', flags = {'no-writes', 'ALLOW-OOM'}}
        redis.register_function('early', function() return red.call end)
        redis.register_function('late', function() red.register_function('g', red.log) end)
        redis.register_function('global', function() x = 1 end)
        redis.register_function('unknown', function() return KEYS end)";

    #[test] // redis-server 7.0.15.
    fn fcall_replies_equal_those_of_redis() {
        let mut machine = Machine::for_functions(LIMIT).unwrap();
        let library = load(&mut machine, TEXT).unwrap();
        assert_eq!(library.functions.len(), 6);
        let words = library.functions.get(1).unwrap();
        assert_eq!(words.description.as_deref(), Some(&b"about"[..]));
        assert!(words.flags.names().eq(["no-writes", "allow-oom"]));
        let mut reply = |name| call(&mut machine, &library, name);
        assert_eq!(reply("words"), "*4\r\n$1\r\nk\r\n$1\r\nb\r\n:2\r\n+ping\r\n");
        assert_eq!(
            reply("early"),
            "-ERR user_function:7: Script attempted to access nonexistent global variable 'call' script: early, on @user_function:7.\r\n"
        );
        assert_eq!(
            reply("late"),
            "-ERR redis.register_function can only be called on FUNCTION LOAD command script: late, on @user_function:8.\r\n"
        );
        assert_eq!(
            reply("global"),
            "-ERR user_function:9: Attempt to modify a readonly table script: global, on @user_function:9.\r\n"
        );
        assert_eq!(
            reply("unknown"),
            "-ERR user_function:10: Script attempted to access nonexistent global variable 'KEYS' script: unknown, on @user_function:10.\r\n"
        );
    }

    #[test]
    fn variables_of_a_library_are_separate_in_each_machine() {
        let mut machines = [(); 2].map(|()| Machine::for_functions(LIMIT).unwrap());
        let library = load(&mut machines[0], TEXT).unwrap();
        for (machine, count) in [(0, 1), (0, 2), (1, 1), (0, 3), (1, 2)] {
            let reply = call(&mut machines[machine], &library, "count");
            assert_eq!(reply, format!(":{count}\r\n"));
        }
        let again = load(&mut machines[1], TEXT).unwrap();
        assert_eq!(call(&mut machines[0], &again, "count"), ":1\r\n");
        assert_eq!(call(&mut machines[0], &library, "count"), ":1\r\n");
    }

    #[test]
    fn refused_libraries_leave_no_functions() {
        let mut machine = Machine::for_functions(LIMIT).unwrap();
        for (code, refusal) in [
            ("", "No functions registered"),
            ("x y", "Error compiling function: user_function:2: '=' expected near 'y'"),
            (
                "x = 1",
                "Error registering functions: ERR user_function:2: Attempt to modify a readonly table",
            ),
            (
                "redis.call('x')",
                "Error registering functions: ERR user_function:2: Script attempted to access nonexistent global variable 'call'",
            ),
            (
                "local s = 'x' while true do s = s .. s end",
                "Error registering functions: ERR not enough memory",
            ),
            (
                "local f = redis.register_function f('x', redis.log) f('x', redis.log)",
                "Error registering functions: ERR Function already exists in the library",
            ),
        ] {
            let why = load(&mut machine, &format!("#!lua name=a\n{code}")).unwrap_err();
            assert_eq!(why, refusal, "{code}");
        }
        assert_eq!(machine.take_log(), []);
        let library = load(&mut machine, TEXT).unwrap();
        assert_eq!(call(&mut machine, &library, "count"), ":1\r\n");
    }

    #[test] // Although another machine could load it.
    fn a_library_that_fails_to_load_here_replies_its_error() {
        let text = format!(
            "#!lua name=a\nlocal s = ('x'):rep({}) redis.register_function('f', function() return #s end)",
            6 << 20
        );
        let mut machine = Machine::for_functions(LIMIT).unwrap();
        let library = load(&mut machine, &text).unwrap();
        assert_eq!(call(&mut machine, &library, "f"), format!(":{}\r\n", 6 << 20));
        let mut small = Machine::for_functions(4 << 20).unwrap();
        let reply = "-ERR Error registering functions: ERR not enough memory\r\n";
        assert_eq!(call(&mut small, &library, "f"), reply);
        assert_eq!(call(&mut machine, &library, "f"), format!(":{}\r\n", 6 << 20));
    }

    #[test]
    fn a_call_abandoned_during_loading_never_starts() {
        let mut machine = Machine::for_functions(LIMIT).unwrap();
        let library = load(&mut Machine::for_functions(LIMIT).unwrap(), TEXT).unwrap();
        let (keys, arguments, client) = (Vec::new(), Vec::new(), Protocol::Two);
        let run = FunctionRun { library: Arc::clone(&library), index: 0, keys, arguments, client };
        machine.begin_call(run);
        assert_eq!(machine.resume(&Countdown::new(0)), Stop::Slice);
        while !machine.abandon(&Never) {}
        machine.begin_collection();
        assert_eq!(machine.resume(&Never), Stop::Ended);
        assert_eq!(call(&mut machine, &library, "count"), ":1\r\n");
    }

    #[test]
    fn deleted_libraries_and_aborted_loads_leave_no_memory() {
        let mut machine = Machine::for_functions(LIMIT).unwrap();
        let used = |machine: &mut Machine| {
            load(machine, "#!lua name=last\nredis.register_function('f', redis.log)").unwrap();
            machine.begin_collection();
            assert_eq!(machine.resume(&Never), Stop::Ended);
            machine.used_bytes()
        };
        let before = used(&mut machine);
        let body = "redis.register_function('f', function() return t end)";
        let long = |at| format!("local t = '{at}{}' {body}", "x".repeat(10_000));
        let mut libraries = Vec::new();
        for at in 0..100 {
            libraries.push(load(&mut machine, &format!("#!lua name=l{at}\n{}", long(at))).unwrap());
            machine.begin_load(source(
                "#!lua name=a\nredis.register_function('f', redis.log) while true do end",
            ));
            for _ in 0..50 {
                assert_eq!(machine.resume(&Countdown::new(1)), Stop::Slice);
            }
            while !machine.abandon(&Countdown::new(1)) {}
        }
        assert!(used(&mut machine) > before + 500_000);
        drop(libraries);
        let after = used(&mut machine);
        assert!(after <= before + 8192, "{before} {after}");
    }
}
