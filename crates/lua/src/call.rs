//! Functions of the host that scripts call.
//!
//! Host functions are ordinary: they may own memory and return errors. Two rules make that sound,
//! although Lua raises errors by `longjmp`, and a script can be suspended and abandoned:
//!
//! - While a host function runs, no call into Lua can raise: faults are checked before, and
//!   allocations above the limit succeed (the limit is checked after the function returns).
//! - A host function's data is never on the stack when a script is abandoned. If it must wait, or
//!   works for long, it returns, and continues as a [`Work`] stored in the VM.
//!
//! So nothing that must be dropped is on a stack that is jumped over or abandoned: [`trampoline`],
//! which raises and waits, owns nothing.

use crate::core::{Core, Pause, Place};
use crate::ffi;
use crate::stack::Lua;
use crate::vm::Shared;
use std::borrow::Cow;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// The arguments of a host function: the host, and the stack with the values.
pub struct Cx<'a, H> {
    /// The host of the VM.
    pub host: &'a mut H,
    /// The values of this call, from 1.
    pub lua: Lua<'a>,
}

/// A function of the host.
pub type Function<H> = fn(&mut Cx<'_, H>) -> Result<Step<H>, Error>;

/// The way a function ends, unless with an error.
pub enum Step<H> {
    /// Returns this many values, which are on top of the stack.
    Return(usize),
    /// Continues as this work.
    Work(Box<dyn Work<H>>),
}

/// The rest of a function that takes longer than a portion, or waits.
pub trait Work<H> {
    /// Runs a portion of a few microseconds. The stack is as the previous portion left it.
    ///
    /// # Errors
    /// The error that the function raises.
    fn step(&mut self, cx: &mut Cx<'_, H>) -> Result<Progress, Error>;
}

/// The state of work after a portion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Returns this many values, which are on top of the stack.
    Done(usize),
    /// There is more to do.
    More,
    /// Waits until the host resumes the VM.
    Wait,
}

/// An error raised by a function.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// A text after the caller's position.
    Located(Cow<'static, str>),
    /// A text alone.
    Plain(&'static str),
    /// `bad argument #n to 'name' (text)`, preceded by the caller's position.
    Argument(usize, Cow<'static, str>),
    /// The value on top of the stack.
    Value,
    /// `not enough memory`.
    Memory,
}

impl Error {
    /// An error with the caller's position.
    pub fn located(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Located(text.into())
    }

    /// An error about argument `index`.
    pub fn argument(index: usize, text: impl Into<Cow<'static, str>>) -> Self {
        Self::Argument(index, text.into())
    }
}

/// The outcome of a function, acted on once none of its data is left on the stack.
#[derive(Clone, Copy)]
enum Verdict {
    Return(c_int),
    Raise,
    RaiseMemory,
    Pause(Pause),
}

/// Pops a value, and pushes `function`, which then owns the value.
pub(crate) fn push_function<H: 'static>(lua: &Lua<'_>, function: Function<H>) {
    let state = lua.state();
    // SAFETY: there is a slot, as `Lua::push_function` has seen to; it calls nothing.
    unsafe { ffi::lua_pushlightuserdata(state, function as *mut c_void) };
    // SAFETY: a value is below it, which has a place.
    unsafe { ffi::lua_insert(state, -2) };
    // SAFETY: both are the function's own; nothing raises (see the module).
    unsafe { ffi::lua_pushcclosure(state, trampoline::<H>, 2) };
}

/// The C function that Lua calls in place of a host function.
///
/// # Safety
/// Lua calls it, in a VM whose host is an `H`, and its first own value is a `Function<H>`.
unsafe extern "C-unwind" fn trampoline<H: 'static>(state: *mut ffi::State) -> c_int {
    // SAFETY: the thread is running.
    let core = unsafe { Core::of(state) };
    // SAFETY: a C function may read its own values.
    let function = unsafe { ffi::lua_touserdata(state, ffi::UPVALUE_1) };
    // SAFETY: `push_function` has put a `Function<H>` there, and scripts can neither read nor
    // change a C function's values: there is no `debug`.
    let function = unsafe { std::mem::transmute::<*mut c_void, Function<H>>(function) };
    // SAFETY: the caller's promise.
    let shared = unsafe { Shared::<H>::of(core) };
    let mut verdict = enter(state, shared, function);
    loop {
        match verdict {
            Verdict::Return(values) => return values,
            // SAFETY: an error is on top; no frame up to the protected call owns anything.
            Verdict::Raise => return unsafe { ffi::lua_error(state) },
            // SAFETY: no frame up to the protected call owns anything.
            Verdict::RaiseMemory => return unsafe { ffi::lua_outofmemory(state) },
            Verdict::Pause(pause) => {
                core.pause(pause, state);
                verdict = go_on(state, shared);
            }
        }
    }
}

/// Runs `body` under the rules of the module, and turns its result into a verdict.
fn enter<H: 'static>(
    state: *mut ffi::State,
    shared: &Shared<H>,
    body: impl FnOnce(&mut Cx<'_, H>) -> Result<Step<H>, Error>,
) -> Verdict {
    let core = &shared.core;
    let was_lenient = core.set_lenient(true);
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: at most one function runs in a VM, and while it does, `Vm` does not touch the
        // host: it sees no place of rest.
        let host = unsafe { &mut *shared.host.get() };
        let mut cx = Cx { host, lua: Lua::new(state, core) };
        match body(&mut cx) {
            Ok(Step::Return(values)) => Ok(Progress::Done(values)),
            Ok(Step::Work(mut work)) => {
                let progress = work.step(&mut cx);
                if matches!(progress, Ok(Progress::More | Progress::Wait)) {
                    shared.put_work(work);
                }
                progress
            }
            Err(error) => Err(error),
        }
        .map_err(|error| push_error(&mut cx.lua, error))
    }));
    core.set_lenient(was_lenient);
    judge(core, result)
}

/// The verdict on a function or a portion that has ended.
fn judge(core: &Core, result: std::thread::Result<Result<Progress, Verdict>>) -> Verdict {
    match result {
        Ok(_) if core.is_over() => Verdict::RaiseMemory,
        Ok(Ok(Progress::Done(values))) => {
            Verdict::Return(c_int::try_from(values).expect("at most 8000 values are on the stack"))
        }
        Ok(Ok(Progress::More)) => Verdict::Pause(Pause::Portion(Place::Rest)),
        Ok(Ok(Progress::Wait)) => Verdict::Pause(Pause::Wait),
        Ok(Err(verdict)) => verdict,
        Err(panic) => {
            core.panic.set(Some(panic));
            Verdict::Pause(Pause::Panicked)
        }
    }
}

/// Runs the next portion of the work stored in the VM.
fn go_on<H: 'static>(state: *mut ffi::State, shared: &Shared<H>) -> Verdict {
    enter(state, shared, |_| {
        let work = shared.take_work();
        Ok(Step::Work(work.expect("only a function that has left work waits")))
    })
}

/// Makes an error the value on top of the stack.
fn push_error(lua: &mut Lua<'_>, error: Error) -> Verdict {
    let text = match error {
        Error::Value => return Verdict::Raise,
        Error::Memory => return Verdict::RaiseMemory,
        Error::Plain(text) => text.as_bytes().to_vec(),
        Error::Located(text) => [&lua.place_of_caller(), text.as_bytes()].concat(),
        Error::Argument(index, text) => {
            [&lua.place_of_caller(), &*lua.about_argument(index, &text)].concat()
        }
    };
    lua.pop(lua.top()); // There may be no free slot, and the values are no longer needed.
    if lua.push_bytes(&text).is_err() { Verdict::RaiseMemory } else { Verdict::Raise }
}

/// The steps of a run before and after the script's own code.
pub trait Program<H> {
    /// Pushes the function to call: see [`Start::Call`]. One portion, as [`Work::step`].
    fn start(&mut self, cx: &mut Cx<'_, H>) -> Start;

    /// Reads the result or the error, which is the only value on the stack. One portion.
    ///
    /// [`Progress::Done`] ends the run.
    fn finish(&mut self, cx: &mut Cx<'_, H>, outcome: Outcome) -> Progress;
}

/// The state of a program's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The stack has an error handler, a function, and this many arguments.
    Call(usize),
    /// There is more to push.
    More,
    /// There is nothing to call; the run ends.
    End,
}

/// The way the script's own code has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call returned one result.
    Returned,
    /// The call failed with an error that has passed through the handler.
    Failed,
    /// There was not enough memory, or the handler itself failed, or there was no handler.
    Broken,
}

/// Runs the program of a VM: the body of its coroutine.
pub(crate) fn run_program<H: 'static>(shared: &Shared<H>) {
    let (core, state) = (&shared.core, shared.state());
    make_room(core, state);
    let mut arguments = None;
    while arguments.is_none() {
        match with_program(shared, |program, cx| program.start(cx)) {
            Start::Call(count) => arguments = Some(count),
            Start::More => core.pause(Pause::Portion(Place::Rest), ptr::null_mut()),
            Start::End => return,
        }
    }
    let arguments = c_int::try_from(arguments.unwrap_or(0)).expect("they fit on the stack");
    let lua = Lua::new(state, core);
    assert_eq!(lua.top(), arguments as usize + 2, "a handler, a function and its arguments");
    core.set_lenient(false);
    // SAFETY: the program has pushed a handler, a function and its arguments; what is raised within stays within.
    let status = unsafe { ffi::lua_pcall(state, arguments, 1, 1) };
    core.set_lenient(true);
    let outcome = match status {
        ffi::OK => Outcome::Returned,
        ffi::ERROR_RUN => Outcome::Failed,
        _ => Outcome::Broken,
    };
    // SAFETY: the handler is below the one result.
    unsafe { ffi::lua_remove(state, 1) };
    loop {
        match with_program(shared, |program, cx| program.finish(cx, outcome)) {
            Progress::Done(_) => return,
            Progress::More => core.pause(Pause::Portion(Place::Rest), ptr::null_mut()),
            Progress::Wait => core.pause(Pause::Wait, ptr::null_mut()),
        }
    }
}

/// Collects the garbage of earlier runs if there is much of it, because a script can only be
/// refused memory.
fn make_room(core: &Core, state: *mut ffi::State) {
    if !core.is_crowded() {
        return;
    }
    for _ in 0..2 {
        // A cycle may be in progress, with marks from before. Memory is not refused here. SAFETY:
        // the state is at rest; there are no finalisers.
        while unsafe { ffi::lua_gc(state, ffi::GC_STEP, 0) } == 0 {
            core.pause(Pause::Portion(Place::Rest), ptr::null_mut());
        }
    }
    core.set_mark();
}

/// Runs a portion of the program.
fn with_program<H: 'static, R>(
    shared: &Shared<H>,
    portion: impl FnOnce(&mut dyn Program<H>, &mut Cx<'_, H>) -> R,
) -> R {
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: as in `enter`: nothing else runs in the VM, and `Vm` does not touch the host.
        let host = unsafe { &mut *shared.host.get() };
        // SAFETY: nor does it touch the program before the run has ended.
        let program = unsafe { &mut *shared.program.get() };
        let program = program.as_mut().expect("a coroutine is made for a program");
        let mut cx = Cx { host, lua: Lua::new(shared.state(), &shared.core) };
        portion(&mut **program, &mut cx)
    }));
    match result {
        Ok(result) => result,
        Err(panic) => {
            shared.core.panic.set(Some(panic));
            shared.core.pause(Pause::Panicked, ptr::null_mut());
            unreachable!("a run whose program has panicked is not resumed")
        }
    }
}
