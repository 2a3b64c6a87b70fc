//! The state that the C side of a VM reaches through a pointer: the account of its memory, and the
//! way back to the stack that resumed it.

use crate::ffi;
use corosensei::Yielder;
use std::alloc::Layout;
use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::rc::{Rc, Weak};

/// Why a script's stack gave the thread back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// A portion of work is done; the place says what may happen to the stack.
    Portion(Place),
    /// A function waits for the host's answer.
    Wait,
    /// A function of the host has panicked; the stack is never resumed.
    Panicked,
}

/// How whole the state is where it was suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Lua's state is whole, and nothing on the stack needs to be dropped.
    Rest,
    /// Within a change of the state or a function of the host: it must continue.
    Inner,
}

/// Larger blocks are copied in pieces of this size when they change, with checks of the clock.
const COPY_PIECE: usize = 64 << 10;

/// Bytes of a large block that are freed at once. The server's allocator shrinks such blocks in
/// place (`darter_runtime::heap`), so that freeing one of 200 MB is no single step.
const FREED_AT_ONCE: usize = 256 << 10;

/// The alignment of each block: that of the widest value in Lua.
const ALIGNMENT: usize = 16;

/// See the module.
pub(crate) struct Core {
    /// Other owners may read it while a script runs.
    used_bytes: Rc<Cell<usize>>,
    limit_bytes: Cell<usize>,
    /// Above this many bytes the hook collects garbage at once.
    collect_above: Cell<usize>,
    /// Set while a function of the host runs: then nothing is refused, as an error of memory
    /// would jump over its frames. Its caller looks at the account afterwards.
    lenient: Cell<bool>,
    /// The way back while the coroutine runs, null otherwise.
    yielder: Cell<*const Yielder<(), Pause>>,
    /// The Lua thread that was suspended last, or null.
    running: Cell<*mut ffi::State>,
    /// The payload of a panic in a function.
    pub(crate) panic: Cell<Option<Box<dyn Any + Send>>>,
}

impl Core {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            used_bytes: Rc::default(),
            limit_bytes: Cell::new(limit_bytes),
            collect_above: Cell::new(limit_bytes / 2),
            lenient: Cell::new(true),
            yielder: Cell::new(ptr::null()),
            running: Cell::new(ptr::null_mut()),
            panic: Cell::new(None),
        }
    }

    /// The core of the VM that a Lua thread belongs to.
    ///
    /// # Safety
    /// `state` is a living thread of a VM, which is not dropped during `'a`.
    pub(crate) unsafe fn of<'a>(state: *mut ffi::State) -> &'a Self {
        let mut ud = ptr::null_mut();
        // SAFETY: the thread is alive; this reads two fields, and raises nothing.
        unsafe { ffi::lua_getallocf(state, &raw mut ud) };
        // SAFETY: each VM is made with a pointer to its core, which lives as long as the VM, and
        // all of whose fields are cells.
        unsafe { &*ud.cast::<Self>() }
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.get()
    }

    pub(crate) fn account(&self) -> Weak<Cell<usize>> {
        Rc::downgrade(&self.used_bytes)
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.get()
    }

    /// Whether the account is above its limit, which only the host's functions can do.
    pub(crate) fn is_over(&self) -> bool {
        self.used_bytes.get() > self.limit_bytes.get()
    }

    /// True when garbage must be collected before more memory is given.
    pub(crate) fn is_crowded(&self) -> bool {
        self.used_bytes.get() > self.collect_above.get()
    }

    /// Garbage has been collected: the next collection comes when half of the remaining memory is
    /// used.
    pub(crate) fn set_mark(&self) {
        let (used, limit) = (self.used_bytes.get(), self.limit_bytes.get());
        self.collect_above.set((used + limit.saturating_sub(used) / 2).max(limit / 2));
    }

    /// Whether `bytes` more would exceed the limit.
    pub(crate) fn refuses(&self, bytes: usize) -> bool {
        self.used_bytes.get().saturating_add(bytes) > self.limit_bytes.get()
    }

    /// Sets whether allocations above the limit succeed; returns the previous setting.
    pub(crate) fn set_lenient(&self, lenient: bool) -> bool {
        self.lenient.replace(lenient)
    }

    pub(crate) fn set_yielder(&self, yielder: *const Yielder<(), Pause>) {
        self.yielder.set(yielder);
    }

    /// The Lua thread at the last pause, where that is known.
    pub(crate) fn running(&self) -> *mut ffi::State {
        self.running.get()
    }

    /// The run of that thread has ended: it may be freed from now on.
    pub(crate) fn forget_running(&self) {
        self.running.set(ptr::null_mut());
    }

    /// Gives the thread back until it is resumed. Does nothing outside of the coroutine.
    ///
    /// `state` is the Lua thread that runs; null where that is not known.
    pub(crate) fn pause(&self, pause: Pause, state: *mut ffi::State) {
        self.running.set(state);
        // SAFETY: null, or the way back of the coroutine that is running now: `Vm` sets it at the
        // coroutine's start, and takes it away at its end and when its stack is thrown away.
        if let Some(yielder) = unsafe { self.yielder.get().as_ref() } {
            yielder.suspend(pause);
        }
    }

    /// Makes room in a long buffer for `bytes` more; short ones grow by themselves. A `Vec` would copy
    /// and free many megabytes in one step.
    pub(crate) fn grow(&self, buffer: &mut Vec<u8>, bytes: usize) {
        if buffer.len() < COPY_PIECE || buffer.capacity() - buffer.len() >= bytes {
            return;
        }
        let mut larger = Vec::with_capacity((2 * buffer.capacity()).max(buffer.len() + bytes));
        self.copy(&mut larger, buffer);
        self.discard(std::mem::replace(buffer, larger));
    }

    /// Appends bytes for which there is room, in portions.
    pub(crate) fn copy(&self, to: &mut Vec<u8>, bytes: &[u8]) {
        for piece in bytes.chunks(COPY_PIECE) {
            to.extend_from_slice(piece);
            if piece.len() == COPY_PIECE {
                self.portion(Place::Inner, ptr::null_mut());
            }
        }
    }

    /// Frees a buffer in portions.
    pub(crate) fn discard(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        while let Some(size) = shorter(buffer.as_ptr().addr(), buffer.capacity(), 0) {
            buffer.shrink_to(size);
            self.portion(Place::Inner, ptr::null_mut());
        }
    }

    /// A portion of work is done at `place`. Within a function of the host every place is inner.
    fn portion(&self, place: Place, state: *mut ffi::State) {
        let place = if self.lenient.get() { Place::Inner } else { place };
        self.pause(Pause::Portion(place), state);
    }

    /// Allocates; null where Lua has to raise an error.
    fn allocate(&self, bytes: usize) -> *mut u8 {
        if !self.lenient.get() && self.refuses(bytes) {
            return ptr::null_mut();
        }
        self.claim(bytes)
    }

    /// Allocates, whatever the limit is.
    fn claim(&self, bytes: usize) -> *mut u8 {
        let Ok(layout) = Layout::from_size_align(bytes, ALIGNMENT) else { return ptr::null_mut() };
        // SAFETY: Lua asks for no empty block; `realloc` has seen to that.
        let block = unsafe { std::alloc::alloc(layout) };
        if block.is_null() && self.lenient.get() {
            std::alloc::handle_alloc_error(layout);
        }
        if !block.is_null() {
            self.used_bytes.set(self.used_bytes.get() + bytes);
        }
        block
    }

    /// Frees the end of a large block in portions, down to about `least` bytes. Returns the rest.
    ///
    /// # Safety
    /// `block` has `bytes` bytes, and came from this account.
    unsafe fn shorten(
        &self,
        mut block: *mut u8,
        mut bytes: usize,
        least: usize,
    ) -> (*mut u8, usize) {
        while let Some(size) = shorter(block.addr(), bytes, least) {
            let layout =
                Layout::from_size_align(bytes, ALIGNMENT).expect("it was allocated with it");
            // SAFETY: allocated with this layout; what is left is not empty, and has one, too.
            let shorter = unsafe { std::alloc::realloc(block, layout, size) };
            if shorter.is_null() {
                break; // Then all at once.
            }
            self.used_bytes.set(self.used_bytes.get() - (bytes - size));
            (block, bytes) = (shorter, size);
            self.portion(Place::Inner, ptr::null_mut());
        }
        (block, bytes)
    }

    /// # Safety
    /// `block` has `bytes` bytes, and came from this account.
    unsafe fn free(&self, block: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise.
        let (block, bytes) = unsafe { self.shorten(block, bytes, 0) };
        let layout = Layout::from_size_align(bytes, ALIGNMENT).expect("it was allocated with it");
        // SAFETY: the caller's promise; this is the layout that it was allocated with.
        unsafe { std::alloc::dealloc(block, layout) };
        self.used_bytes.set(self.used_bytes.get() - bytes);
    }

    /// Makes a block larger or smaller, copying a large one in pieces. Smaller never fails.
    ///
    /// # Safety
    /// `block` has `old` bytes, and came from this account; `new` is not 0.
    unsafe fn resize(&self, block: *mut u8, old: usize, new: usize) -> *mut u8 {
        if new > old && !self.lenient.get() && self.refuses(new - old) {
            return ptr::null_mut();
        }
        if new > old && old > COPY_PIECE {
            // SAFETY: the caller's promise.
            return unsafe { self.move_block(block, old, new) };
        }
        // SAFETY: the caller's promise.
        let (block, old) = unsafe { self.shorten(block, old, new) };
        let Ok(layout) = Layout::from_size_align(new, ALIGNMENT) else { return ptr::null_mut() };
        let before = Layout::from_size_align(old, ALIGNMENT).expect("it was allocated with it");
        // SAFETY: the caller's promise; `new` is not 0, and has a layout.
        let moved = unsafe { std::alloc::realloc(block, before, new) };
        if moved.is_null() {
            if self.lenient.get() {
                std::alloc::handle_alloc_error(layout);
            }
            return moved;
        }
        self.used_bytes.set(self.used_bytes.get() - old + new);
        moved
    }

    /// As `resize`, for a large block that grows: the copy is made in portions.
    ///
    /// # Safety
    /// As for `resize`.
    unsafe fn move_block(&self, block: *mut u8, old: usize, new: usize) -> *mut u8 {
        let moved = self.claim(new);
        if moved.is_null() {
            return moved;
        }
        let mut copied = 0;
        while copied < old {
            let piece = COPY_PIECE.min(old - copied);
            // SAFETY: `copied < old`, no more than the block has.
            let from = unsafe { block.add(copied) };
            // SAFETY: `copied < old`, less than the new block has.
            let to = unsafe { moved.add(copied) };
            // SAFETY: both have `piece` bytes left, and are different blocks.
            unsafe { ptr::copy_nonoverlapping(from, to, piece) };
            copied += piece;
            self.portion(Place::Inner, ptr::null_mut());
        }
        // SAFETY: the caller's promise.
        unsafe { self.free(block, old) };
        moved
    }
}

/// The size to which a long block is shortened next: it then ends at a multiple of the portion, so that
/// no page is split.
fn shorter(address: usize, bytes: usize, least: usize) -> Option<usize> {
    let end = (address + bytes).saturating_sub(1) / FREED_AT_ONCE * FREED_AT_ONCE;
    end.checked_sub(address).filter(|size| *size >= least.max(FREED_AT_ONCE))
}

/// Lua's allocator: see `lua_Alloc` in its manual.
///
/// # Safety
/// `ud` is a core, and `block` came from it with `old` bytes.
pub(crate) unsafe extern "C-unwind" fn realloc(
    ud: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    // SAFETY: the state was made with a pointer to its core, which outlives it.
    let core = unsafe { &*ud.cast::<Core>() };
    let block = block.cast::<u8>();
    let result = match (block.is_null(), new) {
        (true, 0) => ptr::null_mut(),
        (true, _) => core.allocate(new),
        (false, 0) => {
            // SAFETY: Lua keeps the sizes of its blocks.
            unsafe { core.free(block, old) };
            ptr::null_mut()
        }
        // SAFETY: Lua keeps the sizes of its blocks; `new` is not 0.
        (false, _) => unsafe { core.resize(block, old, new) },
    };
    result.cast()
}

/// Called when the work of a loop in C has used up its units: see `lua_work` in `lua.h`.
///
/// # Safety
/// `ud` is a core; `state` is the thread that runs, or null within a change of the state.
pub(crate) unsafe extern "C-unwind" fn tick(ud: *mut c_void, state: *mut ffi::State) {
    // SAFETY: the state was made with a pointer to its core, which outlives it.
    let core = unsafe { &*ud.cast::<Core>() };
    core.portion(if state.is_null() { Place::Inner } else { Place::Rest }, state);
}

/// Called every some instructions of the script.
///
/// # Safety
/// Lua calls it, with the thread that runs.
pub(crate) unsafe extern "C-unwind" fn hook(state: *mut ffi::State, _: *mut ffi::Debug) {
    // SAFETY: the thread is running.
    let core = unsafe { Core::of(state) };
    if core.is_crowded() {
        // SAFETY: a hook may call into the state; an error of memory jumps over nothing that
        // needs to be dropped.
        unsafe { ffi::lua_gc(state, ffi::GC_COLLECT, 0) };
        core.set_mark();
    }
    core.portion(Place::Rest, state);
}
