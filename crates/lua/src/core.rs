//! The state that the C side of a VM reaches through a pointer: its memory account, and the way
//! back to the stack that resumed it.

use crate::ffi;
use corosensei::Yielder;
use std::alloc::Layout;
use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::rc::{Rc, Weak};

/// The reason why a script's stack yielded to the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// A portion of work is done; the place tells what may be done with the stack.
    Portion(Place),
    /// A function waits for the host's reply.
    Wait,
    /// A function of the host has panicked; the stack is never resumed.
    Panicked,
}

/// The state of the VM at the point of suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At rest: Lua's state is consistent, and nothing on the stack must be dropped.
    Rest,
    /// Within a change of the state, or within a host function: it must continue.
    Inner,
}

/// Larger blocks are copied in pieces of this size, with checks of the clock.
const COPY_PIECE: usize = 64 << 10;

/// Bytes of a large block that are freed in one step. The server's allocator shrinks such blocks in
/// place (`darter_runtime::heap`), so freeing 200 MB is not a single step.
const FREED_AT_ONCE: usize = 256 << 10;

/// The alignment of each block: that of the widest value in Lua.
const ALIGNMENT: usize = 16;

/// The core of a VM; see the module's documentation.
pub(crate) struct Core {
    /// Used memory in bytes. Other owners may read it while a script runs.
    used_bytes: Rc<Cell<usize>>,
    limit_bytes: Cell<usize>,
    /// Above this many bytes the hook collects garbage at once.
    collect_above: Cell<usize>,
    /// True while a host function runs. Then no allocation is refused, because a memory error would
    /// jump over its frames. The caller checks the limit afterwards.
    lenient: Cell<bool>,
    /// The way back to the thread while the coroutine runs, otherwise null.
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

    /// True if the memory is above its limit, which only host functions can cause.
    pub(crate) fn is_over(&self) -> bool {
        self.used_bytes.get() > self.limit_bytes.get()
    }

    /// True when garbage must be collected before more memory is given.
    pub(crate) fn is_crowded(&self) -> bool {
        self.used_bytes.get() > self.collect_above.get()
    }

    /// After a collection: schedules the next one for when half of the remaining memory is used.
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

    /// The Lua thread of the last pause, if known.
    pub(crate) fn running(&self) -> *mut ffi::State {
        self.running.get()
    }

    /// Forgets that thread, whose run has ended and which may be freed from now on.
    pub(crate) fn forget_running(&self) {
        self.running.set(ptr::null_mut());
    }

    /// Yields to the thread until the VM is resumed. Does nothing outside of the coroutine.
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

    /// Makes room for `bytes` more in a long buffer; short ones grow by themselves. A `Vec` would
    /// copy and free many megabytes in one step.
    pub(crate) fn grow(&self, buffer: &mut Vec<u8>, bytes: usize) {
        if buffer.len() < COPY_PIECE || buffer.capacity() - buffer.len() >= bytes {
            return;
        }
        let mut larger = Vec::with_capacity((2 * buffer.capacity()).max(buffer.len() + bytes));
        self.copy(&mut larger, buffer);
        self.discard(std::mem::replace(buffer, larger));
    }

    /// Appends bytes in portions; there must be room for them.
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

    /// Ends a portion of work at `place`. Within a host function, every place counts as inner.
    fn portion(&self, place: Place, state: *mut ffi::State) {
        let place = if self.lenient.get() { Place::Inner } else { place };
        self.pause(Pause::Portion(place), state);
    }

    /// Allocates; returns null if Lua must raise an error.
    fn allocate(&self, bytes: usize) -> *mut u8 {
        if !self.lenient.get() && self.refuses(bytes) {
            return ptr::null_mut();
        }
        self.claim(bytes)
    }

    /// Allocates regardless of the limit.
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
                break; // The rest is freed at once.
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

    /// Resizes a block, copying a large one in pieces. Shrinking never fails.
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

    /// `resize` for a large block that grows: the copy is made in portions.
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

/// The size to which a long block is shortened next, such that it ends at a multiple of the
/// portion, and no page is split.
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
            // SAFETY: Lua passes the size with which it allocated the block.
            unsafe { core.free(block, old) };
            ptr::null_mut()
        }
        // SAFETY: Lua passes the size with which it allocated the block; `new` is not 0.
        (false, _) => unsafe { core.resize(block, old, new) },
    };
    result.cast()
}

/// Called when a loop in C has used up its units of work: see `lua_work` in `lua.h`.
///
/// # Safety
/// `ud` is a core; `state` is the thread that runs, or null within a change of the state.
pub(crate) unsafe extern "C-unwind" fn tick(ud: *mut c_void, state: *mut ffi::State) {
    // SAFETY: the state was made with a pointer to its core, which outlives it.
    let core = unsafe { &*ud.cast::<Core>() };
    core.portion(if state.is_null() { Place::Inner } else { Place::Rest }, state);
}

/// Called after a fixed number of the script's instructions.
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
