//! One VM: a state of Lua, a stack for its C code, and at most one run at a time.
//!
//! ```text
//!             begin                resume: a portion is done, and the slice is over
//!    idle ───────────► suspended ◄───────────────────────────┐
//!      ▲                   │ resume                          │
//!      │ ended             ▼                                 │
//!      └─────────────── (runs on its own stack) ─────────────┘
//!      ▲                                                     │ abandon, at once at a place of rest,
//!      └─────────────────────────────────────────────────────┘ else at the next one
//! ```
//!
//! While a run is suspended no other code enters the state. So it may be suspended anywhere, in the
//! middle of a rehash too; but its stack cannot be thrown away everywhere.

use crate::call::{Program, Work, run_program};
use crate::core::{self, Core, Pause, Place};
use crate::ffi;
use crate::stack::{self, Location, Lua};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use darter_base::preempt::{Never, Preempt};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::rc::Weak;

/// The stack of a VM: of what Lua allows, 200 calls through C need most, some 600 KiB (the test
/// `the_deepest_recursion_fits_the_stack` reaches it). Only touched pages take memory; a guard page follows.
pub const STACK_BYTES: usize = 1 << 20;

/// The number of instructions between two checks of the clock: 4 to 8 µs.
const INSTRUCTIONS: c_int = 1000;

/// The highest limit of memory. Below it no table has enough nodes to overflow.
const LIMIT_MAX: usize = 1 << 30;

/// The part of the VM that the C side uses. It never moves, because Lua has its address.
#[repr(C)] // `core` is first: a pointer to it is one to all.
pub(crate) struct Shared<H> {
    pub(crate) core: Core,
    pub(crate) host: UnsafeCell<H>,
    pub(crate) program: UnsafeCell<Option<Box<dyn Program<H>>>>,
    work: UnsafeCell<Option<Box<dyn Work<H>>>>,
    state: *mut ffi::State,
}

impl<H> Shared<H> {
    /// The whole of which `core` is the first part.
    ///
    /// # Safety
    /// `core` came from `Core::of`, and the VM's host is an `H`.
    pub(crate) unsafe fn of(core: &Core) -> &Self {
        // SAFETY: every core that Lua knows is the first field of a `Shared`, and its address is
        // that of the whole, by the caller's promise of this type.
        unsafe { &*ptr::from_ref(core).cast::<Self>() }
    }

    pub(crate) fn state(&self) -> *mut ffi::State {
        self.state
    }

    /// Keeps the rest of a function's work until the function continues.
    pub(crate) fn put_work(&self, work: Box<dyn Work<H>>) {
        // SAFETY: there is no other reference: it is only taken out, never borrowed.
        unsafe { *self.work.get() = Some(work) };
    }

    pub(crate) fn take_work(&self) -> Option<Box<dyn Work<H>>> {
        // SAFETY: as in `put_work`.
        unsafe { (*self.work.get()).take() }
    }
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Idle,
    Suspended(Place),
}

/// The reason why a run has returned to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The slice is over. The next resume continues the run.
    Slice,
    /// A function waits. The host answers and then resumes the run.
    Wait,
    /// The program has ended.
    Ended,
}

type Body = Coroutine<(), Pause, ()>;

/// A VM: see the module.
pub struct Vm<H: 'static> {
    shared: NonNull<Shared<H>>,
    body: Option<Body>,
    /// The stack, while no run uses it.
    stack: Option<DefaultStack>,
    at: At,
    owns: PhantomData<Shared<H>>,
}

impl<H: 'static> Vm<H> {
    /// A VM with Lua's own libraries, and a limit of memory of at most 1 GiB.
    ///
    /// # Errors
    /// The system has no memory for a stack.
    pub fn new(host: H, limit_bytes: usize) -> std::io::Result<Self> {
        let stack = DefaultStack::new(STACK_BYTES)?;
        let shared = Box::new(Shared {
            core: Core::new(limit_bytes.min(LIMIT_MAX)),
            host: UnsafeCell::new(host),
            program: UnsafeCell::new(None),
            work: UnsafeCell::new(None),
            state: ptr::null_mut(),
        });
        let shared = NonNull::from(Box::leak(shared));
        // SAFETY: `realloc` is an allocator, and its core lives until the state is closed.
        let state = unsafe { ffi::lua_newstate(core::realloc, shared.as_ptr().cast()) };
        assert!(!state.is_null(), "memory is not refused");
        // SAFETY: nothing else refers to it yet.
        unsafe { (*shared.as_ptr()).state = state };
        open_libraries(state);
        // SAFETY: the state is alive; this sets a field.
        unsafe { ffi::lua_settick(state, core::tick) };
        Ok(Self { shared, body: None, stack: Some(stack), at: At::Idle, owns: PhantomData })
    }

    fn shared(&self) -> &Shared<H> {
        // SAFETY: it lives until the VM is dropped; only its cells are changed.
        unsafe { self.shared.as_ref() }
    }

    /// The host.
    ///
    /// # Panics
    /// The run is suspended by the end of a slice: then a function may be using it.
    pub fn host(&mut self) -> &mut H {
        assert_ne!(self.at, At::Suspended(Place::Inner), "the host is in use");
        // SAFETY: at a place of rest no function of the host runs.
        unsafe { &mut *self.shared().host.get() }
    }

    /// The number of bytes that Lua has allocated.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.shared().core.used_bytes()
    }

    /// A handle to the current number of allocated bytes, valid while the VM exists.
    #[must_use]
    pub fn account(&self) -> Weak<Cell<usize>> {
        self.shared().core.account()
    }

    /// Whether there is no run.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.at == At::Idle
    }

    /// Changes the state from outside of a run; it should be short, as it is not interrupted.
    ///
    /// # Panics
    /// There is a run.
    pub fn with<R>(&mut self, body: impl FnOnce(&mut crate::Cx<'_, H>) -> R) -> R {
        let result = self.prepare(body);
        self.forget_values();
        result
    }

    /// As [`Vm::with`], but the values that `body` pushes stay: the next run finds them on its
    /// stack.
    ///
    /// # Panics
    /// There is a run.
    pub fn prepare<R>(&mut self, body: impl FnOnce(&mut crate::Cx<'_, H>) -> R) -> R {
        assert_eq!(self.at, At::Idle, "a run has the state");
        let shared = self.shared();
        // SAFETY: no function of the host runs.
        let host = unsafe { &mut *shared.host.get() };
        body(&mut crate::Cx { host, lua: Lua::new(shared.state, &shared.core) })
    }

    /// Drops the values that were pushed for a run.
    ///
    /// # Panics
    /// There is a run.
    pub fn forget_values(&mut self) {
        assert_eq!(self.at, At::Idle, "a run has the state");
        // SAFETY: the state is alive and has no run.
        unsafe { ffi::lua_settop(self.shared().state, 0) };
    }

    /// Begins a run. It does nothing yet.
    ///
    /// # Panics
    /// There is a run.
    pub fn begin(&mut self, program: Box<dyn Program<H>>) {
        assert_eq!(self.at, At::Idle, "a run has the state");
        let stack = self.stack.take().expect("a VM that is idle has its stack");
        let shared = self.shared;
        // SAFETY: there is no run, so the program is not borrowed.
        unsafe { *self.shared().program.get() = Some(program) };
        let state = self.shared().state;
        // SAFETY: the state is alive; `hook` is one.
        unsafe { ffi::lua_sethook(state, Some(core::hook), ffi::MASK_COUNT, INSTRUCTIONS) };
        let body = Coroutine::with_stack(stack, move |yielder, ()| {
            // SAFETY: the VM is not dropped while its coroutine runs.
            let shared = unsafe { shared.as_ref() };
            shared.core.set_yielder(yielder);
            run_program(shared);
            shared.core.set_yielder(ptr::null());
        });
        self.body = Some(body);
        self.at = At::Suspended(Place::Rest);
    }

    /// Continues the run until it ends, waits, or `preempt` ends the slice.
    ///
    /// # Panics
    /// There is no run; or a function of the host panics.
    pub fn resume(&mut self, preempt: &dyn Preempt) -> Stop {
        loop {
            match self.switch() {
                None => {
                    self.end();
                    return Stop::Ended;
                }
                Some(Pause::Wait) => return Stop::Wait,
                Some(Pause::Portion(_)) if preempt.must_yield() => return Stop::Slice,
                Some(Pause::Portion(_)) => {}
                Some(Pause::Panicked) => self.pass_panic_on(),
            }
        }
    }

    /// Runs until the next pause. Returns `None` at the end of the run.
    fn switch(&mut self) -> Option<Pause> {
        let body = self.body.as_mut().expect("there is a run");
        self.at = At::Suspended(Place::Inner);
        let CoroutineResult::Yield(pause) = body.resume(()) else { return None };
        let place = if let Pause::Portion(place) = pause { place } else { Place::Rest };
        self.at = At::Suspended(place);
        Some(pause)
    }

    /// Continues, on this stack, the panic of a host function that ran on another stack.
    fn pass_panic_on(&mut self) {
        let panic = self.shared().core.panic.take().expect("it was left there");
        self.throw_stack_away();
        std::panic::resume_unwind(panic);
    }

    /// Ends the run and takes its stack back.
    fn end(&mut self) {
        let body = self.body.take().expect("there was a run");
        self.stack = Some(body.into_stack());
        self.at = At::Idle;
        let shared = self.shared();
        shared.core.forget_running();
        // SAFETY: the coroutine is gone, so the program is not borrowed.
        unsafe { *shared.program.get() = None };
        // SAFETY: the state is alive and has no run.
        unsafe { ffi::lua_settop(shared.state, 0) };
        // SAFETY: this sets fields of the state.
        unsafe { ffi::lua_gcrestore(shared.state) };
    }

    /// Abandons a run, wherever it is; true when that is done.
    ///
    /// Within a change of the state (a rehash) or a function of the host it first runs to the next
    /// safe point. If that takes longer than a slice it returns false: call it again.
    pub fn abandon(&mut self, preempt: &dyn Preempt) -> bool {
        while self.at == At::Suspended(Place::Inner) {
            match self.switch() {
                None => self.end(),
                Some(Pause::Panicked) => self.pass_panic_on(),
                Some(_) => {}
            }
            if self.at == At::Suspended(Place::Inner) && preempt.must_yield() {
                return false;
            }
        }
        if self.at == At::Suspended(Place::Rest) {
            self.throw_stack_away();
        }
        true
    }

    /// Drops the stack of a run that is suspended at a place of rest.
    fn throw_stack_away(&mut self) {
        debug_assert_eq!(self.at, At::Suspended(Place::Rest));
        let body = self.body.as_mut().expect("there is a run");
        // SAFETY: at rest the stack holds frames of C, and of `trampoline`, `run_program` and the
        // body, none of which own anything; nor does the body before it has started.
        unsafe { body.force_reset() };
        self.shared().core.set_yielder(ptr::null());
        self.shared().core.set_lenient(true);
        // SAFETY: the run in the state is gone, and stopped at a consistent point.
        unsafe { ffi::lua_abandon(self.shared().state) };
        drop(self.shared().take_work());
        self.end();
    }

    /// The current line of the suspended run, if known.
    #[must_use]
    pub fn location(&self) -> Option<Location> {
        let state = self.shared().core.running();
        if self.at != At::Suspended(Place::Rest) || state.is_null() {
            return None;
        }
        let places = (0..=1).filter_map(|level| stack::location(state, level));
        places.filter(|(is_host, _)| !is_host).map(|(_, place)| place).next()
    }
}

impl<H: 'static> Drop for Vm<H> {
    /// Frees all memory at once. An embedder collects a large heap in portions first.
    fn drop(&mut self) {
        self.abandon(&Never);
        // SAFETY: there is no run; nothing refers to the state from now on.
        unsafe { ffi::lua_close(self.shared().state) };
        debug_assert_eq!(self.used_bytes(), 0, "Lua has freed all that it has allocated");
        // SAFETY: it came from a box, and nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
    }
}

/// Opens the libraries that scripts may use.
fn open_libraries(state: *mut ffi::State) {
    let libraries: [ffi::CFunction; 4] =
        [ffi::luaopen_base, ffi::luaopen_table, ffi::luaopen_string, ffi::luaopen_math];
    for open in libraries {
        // SAFETY: a new state has slots to spare, and memory is not refused.
        unsafe { ffi::lua_pushcclosure(state, open, 0) };
        // SAFETY: a function without arguments is on top; opening a library raises nothing.
        unsafe { ffi::lua_call(state, 0, 0) };
    }
}
