//! The announcements of stacks to AddressSanitizer and ThreadSanitizer, right beside the switch. Without `--cfg fibra_asan` or
//! `--cfg fibra_tsan` everything here is empty and vanishes.
//!
//! The per-stack state ([`SanitizedStack`]) is a part of the block that the switch keeps of a suspended execution, so it needs no
//! memory of its own:
//!
//! * ThreadSanitizer gives every stack a handle; the execution that leaves stores its own (the tool knows which one is current) and
//!   announces the target's.
//! * AddressSanitizer wants the bounds of the target before the switch, and reports the bounds of the stack that was left after it. A
//!   thread cannot name the bounds of its own stack, so the execution that arrives writes them into the block of the one that left. Its
//!   "fake stack" (where locals live that it watches after return) is taken off on leaving and put back on arriving.
//!
//! Only the own switch uses this: threads need no announcement, and corosensei makes its own.

#[cfg(any(fibra_asan, fibra_tsan))]
pub(super) use imp::arrive_first;
pub(super) use imp::{SanitizedStack, arrive, leave, visit};

/// No sanitizer.
#[cfg(not(any(fibra_asan, fibra_tsan)))]
mod imp {
    use super::super::HomeCall;

    /// Nothing to keep.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct SanitizedStack;

    impl SanitizedStack {
        pub(in super::super) unsafe fn new(_top: *mut u8, _limit: *mut u8) -> Self {
            Self
        }

        pub(in super::super) unsafe fn destroy(_stack: *mut Self) {}
    }

    #[inline(always)]
    pub(in super::super) unsafe fn leave(_own: *mut SanitizedStack, _target: *const SanitizedStack) {}

    #[inline(always)]
    pub(in super::super) unsafe fn arrive(_own: *mut SanitizedStack) {}

    #[inline(always)]
    pub(in super::super) unsafe fn visit(
        _home: *const SanitizedStack,
        f: HomeCall,
        data: *mut (),
        call: impl FnOnce(HomeCall, *mut ()),
    ) {
        call(f, data);
    }
}

/// ThreadSanitizer.
#[cfg(fibra_tsan)]
mod imp {
    use super::super::HomeCall;
    use core::ffi::{c_uint, c_void};

    unsafe extern "C" {
        fn __tsan_get_current_fiber() -> *mut c_void;
        fn __tsan_create_fiber(flags: c_uint) -> *mut c_void;
        fn __tsan_destroy_fiber(fiber: *mut c_void);
        fn __tsan_switch_to_fiber(fiber: *mut c_void, flags: c_uint);
    }

    /// The tool's handle of the stack.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct SanitizedStack(*mut c_void);

    impl SanitizedStack {
        pub(in super::super) unsafe fn new(_top: *mut u8, _limit: *mut u8) -> Self {
            // SAFETY: no requirement.
            Self(unsafe { __tsan_create_fiber(0) })
        }

        pub(in super::super) unsafe fn destroy(stack: *mut Self) {
            // SAFETY: a handle we made, not the current one, destroyed once: the caller gives the context up.
            unsafe { __tsan_destroy_fiber((*stack).0) }
        }
    }

    /// The last step before the switch. Flags 0: what happened before on the stack we leave happens before what the target does next,
    /// which is true, since both run on one thread.
    #[inline(always)]
    pub(in super::super) unsafe fn leave(own: *mut SanitizedStack, target: *const SanitizedStack) {
        // SAFETY: `own` is the caller's block; the target is suspended, so its block and handle are valid.
        unsafe {
            (*own).0 = __tsan_get_current_fiber();
            __tsan_switch_to_fiber((*target).0, 0);
        }
    }

    #[inline(always)]
    pub(in super::super) unsafe fn arrive(_own: *mut SanitizedStack) {}

    #[inline(always)]
    pub(in super::super) unsafe fn arrive_first() {}

    /// A visit is an ordinary call to this tool: its record of calls goes on, wherever the stack pointer is.
    #[inline(always)]
    pub(in super::super) unsafe fn visit(
        _home: *const SanitizedStack,
        f: HomeCall,
        data: *mut (),
        call: impl FnOnce(HomeCall, *mut ()),
    ) {
        call(f, data);
    }
}

/// AddressSanitizer.
#[cfg(all(fibra_asan, not(fibra_tsan)))]
mod imp {
    use super::super::HomeCall;
    use core::cell::Cell;
    use core::ffi::c_void;
    use core::ptr;

    unsafe extern "C" {
        fn __sanitizer_start_switch_fiber(fake_stack_save: *mut *mut c_void, bottom: *const c_void, size: usize);
        fn __sanitizer_finish_switch_fiber(
            fake_stack_save: *mut c_void,
            bottom_old: *mut *const c_void,
            size_old: *mut usize,
        );
        fn __asan_unpoison_memory_region(start: *const c_void, size: usize);
    }

    /// Bounds of a stack, and its fake stack while it is suspended.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct SanitizedStack {
        bottom: *const c_void,
        size: usize,
        fake_stack: *mut c_void,
    }

    thread_local! {
        /// The stack that was left by the switch under way, for the execution that arrives.
        static LEFT: Cell<*mut SanitizedStack> = const { Cell::new(ptr::null_mut()) };
    }

    // Never inlined: a stack that runs one fiber after another goes from thread to thread, and the compiler might keep the address
    // of this thread's variable across the switch.
    #[inline(never)]
    fn set_left(stack: *mut SanitizedStack) {
        LEFT.set(stack);
    }

    #[inline(never)]
    fn left() -> *mut SanitizedStack {
        LEFT.get()
    }

    impl SanitizedStack {
        pub(in super::super) unsafe fn new(top: *mut u8, limit: *mut u8) -> Self {
            let stack = Self {
                bottom: limit as *const c_void,
                size: top as usize - limit as usize,
                fake_stack: ptr::null_mut(),
            };
            // SAFETY: the stack is the caller's and unused: regions that an earlier fiber left poisoned on it mean nothing any more.
            unsafe { __asan_unpoison_memory_region(stack.bottom, stack.size) };
            stack
        }

        /// Frees the fake stack, which the tool does only for the current stack: we pretend to go there and to leave it for good.
        pub(in super::super) unsafe fn destroy(stack: *mut Self) {
            // SAFETY: the stack is suspended for ever, so its fake stack is ours. The two pretended switches are complete pairs and end
            // with this thread's own fake stack and bounds in place.
            unsafe {
                let Self { bottom, size, fake_stack } = *stack;
                let mut own = Self { bottom: ptr::null(), size: 0, fake_stack: ptr::null_mut() };
                __sanitizer_start_switch_fiber(&raw mut own.fake_stack, bottom, size);
                __sanitizer_finish_switch_fiber(fake_stack, &raw mut own.bottom, &raw mut own.size);
                __sanitizer_start_switch_fiber(ptr::null_mut(), own.bottom, own.size);
                __sanitizer_finish_switch_fiber(own.fake_stack, ptr::null_mut(), ptr::null_mut());
                __asan_unpoison_memory_region(bottom, size);
            }
        }
    }

    /// The last step before the switch.
    #[inline(always)]
    pub(in super::super) unsafe fn leave(own: *mut SanitizedStack, target: *const SanitizedStack) {
        set_left(own);
        // SAFETY: `own` is the caller's block. The target is suspended, so its block is valid, and its bounds were written by `new` or by
        // the execution that arrived after it had left.
        unsafe { __sanitizer_start_switch_fiber(&raw mut (*own).fake_stack, (*target).bottom, (*target).size) }
    }

    /// The first step after the switch.
    #[inline(always)]
    pub(in super::super) unsafe fn arrive(own: *mut SanitizedStack) {
        // SAFETY: `leave` wrote the fake stack into our block when we left.
        unsafe { finish((*own).fake_stack) }
    }

    /// The first step on a new stack.
    #[inline(always)]
    pub(in super::super) unsafe fn arrive_first() {
        // SAFETY: a new stack has no fake stack yet.
        unsafe { finish(ptr::null_mut()) }
    }

    #[inline(always)]
    unsafe fn finish(fake_stack: *mut c_void) {
        let left = left();
        // SAFETY: `left` is the block of the execution that switched to us; it is suspended, so the block is valid.
        unsafe { __sanitizer_finish_switch_fiber(fake_stack, &raw mut (*left).bottom, &raw mut (*left).size) }
    }

    /// A call on the home stack, announced as a switch there and back.
    struct Visit {
        f: HomeCall,
        data: *mut (),
        fiber: SanitizedStack,
    }

    pub(in super::super) unsafe fn visit(
        home: *const SanitizedStack,
        f: HomeCall,
        data: *mut (),
        call: impl FnOnce(HomeCall, *mut ()),
    ) {
        unsafe extern "C" fn announced(visit: *mut ()) {
            let visit = visit.cast::<Visit>();
            // SAFETY: `visit` points to the caller's local. The fake stack used here is a new one that the second call frees.
            unsafe {
                let fiber = &raw mut (*visit).fiber;
                __sanitizer_finish_switch_fiber(ptr::null_mut(), &raw mut (*fiber).bottom, &raw mut (*fiber).size);
                ((*visit).f)((*visit).data);
                __sanitizer_start_switch_fiber(ptr::null_mut(), (*fiber).bottom, (*fiber).size);
            }
        }
        let fiber = SanitizedStack { bottom: ptr::null(), size: 0, fake_stack: ptr::null_mut() };
        let mut visit = Visit { f, data, fiber };
        // SAFETY: home is suspended and its bounds were written when this fiber arrived. `call` runs `announced`, which completes the
        // pairs.
        unsafe {
            __sanitizer_start_switch_fiber(&raw mut visit.fiber.fake_stack, (*home).bottom, (*home).size);
            call(announced, (&raw mut visit).cast());
            __sanitizer_finish_switch_fiber(visit.fiber.fake_stack, ptr::null_mut(), ptr::null_mut());
        }
    }
}
