//! One suite of tests for all back-ends, and what only the own switch promises. Under sanitizers corosensei is left out: no code announces
//! its switches to them here.

#[cfg(all(target_arch = "x86_64", not(any(fibra_asan, fibra_tsan))))]
mod measure;
#[cfg(all(target_arch = "x86_64", not(any(fibra_asan, fibra_tsan))))]
mod own_only;

use super::{Context, EntryFn, HomeCall, SchedulerContext};
use crate::prim::sync::Mutex;
use std::alloc::Layout;
use std::cell::Cell;
use std::hint::black_box;
use std::marker::PhantomData;
use std::panic::{self, AssertUnwindSafe};

// S0-04: what is kept of a suspended execution is one value, of one word, which can be kept anywhere until its resumer uses it.
#[test]
fn a_context_is_one_word() {
    assert_eq!(size_of::<Context>(), size_of::<usize>());
    assert_eq!(Context::from_bits(0x5a5a).to_bits(), 0x5a5a);
}

/// A back-end as a type.
trait Switch: 'static {
    const OWN_THREAD: bool;
    unsafe fn create(top: *mut u8, limit: *mut u8, entry: EntryFn) -> Context;
    unsafe fn resume(fiber: *mut Context, home: *mut SchedulerContext, word: usize) -> usize;
    unsafe fn suspend(fiber: *mut Context, home: *mut SchedulerContext, word: usize) -> usize;
    unsafe fn call_on_home(home: *const SchedulerContext, f: HomeCall, data: *mut ());
    unsafe fn destroy(fiber: Context);
    fn watch_mxcsr(on: bool);
}

macro_rules! back_end {
    ($name:ident, $module:ident) => {
        struct $name;
        impl Switch for $name {
            const OWN_THREAD: bool = super::$module::OWN_THREAD;
            unsafe fn create(top: *mut u8, limit: *mut u8, entry: EntryFn) -> Context {
                // SAFETY: the caller's promise, which is the same.
                unsafe { super::$module::create(top, limit, entry) }
            }
            #[inline(always)]
            unsafe fn resume(fiber: *mut Context, home: *mut SchedulerContext, word: usize) -> usize {
                // SAFETY: the caller's promise, which is the same.
                unsafe { super::$module::resume(fiber, home, word) }
            }
            #[inline(always)]
            unsafe fn suspend(fiber: *mut Context, home: *mut SchedulerContext, word: usize) -> usize {
                // SAFETY: the caller's promise, which is the same.
                unsafe { super::$module::suspend(fiber, home, word) }
            }
            unsafe fn call_on_home(home: *const SchedulerContext, f: HomeCall, data: *mut ()) {
                // SAFETY: the caller's promise, which is the same.
                unsafe { super::$module::call_on_home(home, f, data) }
            }
            unsafe fn destroy(fiber: Context) {
                // SAFETY: the caller's promise, which is the same.
                unsafe { super::$module::destroy(fiber) }
            }
            fn watch_mxcsr(on: bool) {
                super::$module::watch_mxcsr(on);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
back_end!(Own, x86_64);
#[cfg(not(any(fibra_asan, fibra_tsan)))]
back_end!(Corosensei, corosensei);
// the thread-backed form passes the same suite; `.ci/deep` runs the whole library on it.
back_end!(Thread, thread);

const KIB: usize = 1024;

/// Memory for a stack. Without a guard: the tests know how deep they go.
struct Stack {
    limit: *mut u8,
    layout: Layout,
}

impl Stack {
    fn new(size: usize) -> Self {
        let layout = Layout::from_size_align(size, 4096).unwrap();
        // SAFETY: the size is not 0.
        let limit = unsafe { std::alloc::alloc(layout) };
        assert!(!limit.is_null());
        Self { limit, layout }
    }

    fn top(&self) -> *mut u8 {
        self.limit.wrapping_add(self.layout.size())
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the fiber on it has been destroyed.
        unsafe { std::alloc::dealloc(self.limit, self.layout) }
    }
}

/// A home with the control words of this thread.
fn entered_home() -> SchedulerContext {
    let mut home = SchedulerContext::default();
    home.enter();
    home
}

/// The places of a fiber and its home.
struct Places(Cell<Context>, Cell<SchedulerContext>);

/// The fiber's own side of the connection.
struct Inside<S> {
    fiber: Cell<Context>,
    home: Cell<SchedulerContext>,
    back_end: PhantomData<S>,
}

impl<S: Switch> Inside<S> {
    #[inline(always)]
    fn suspend(&self, word: usize) -> usize {
        // SAFETY: called on the fiber's stack, with the home its resume saved into; the cells live in the boxed `Fiber`.
        unsafe { S::suspend(self.fiber.as_ptr(), self.home.as_ptr(), word) }
    }

    fn call_on_home<F: FnOnce()>(&self, f: F) {
        unsafe extern "C" fn run<F: FnOnce()>(slot: *mut ()) {
            // SAFETY: points to the caller's option, which no other code uses meanwhile.
            let f = unsafe { (*slot.cast::<Option<F>>()).take() };
            f.unwrap()();
        }
        let mut slot = Some(f);
        // SAFETY: called on the fiber's stack; a panic in `f` would abort at the `extern "C"` boundary.
        unsafe { S::call_on_home(self.home.as_ptr(), run::<F>, (&raw mut slot).cast()) }
    }
}

type Body<S> = Box<dyn FnOnce(&Inside<S>, usize) -> usize>;

/// A fiber for tests: runs a closure on a stack, which is given the first word and whose result is the last.
struct Fiber<S: Switch> {
    inside: Inside<S>,
    body: Option<Body<S>>,
    first: usize,
    started: bool,
    done: bool,
    stack: Stack,
}

impl<S: Switch> Fiber<S> {
    fn new(size: usize, body: impl FnOnce(&Inside<S>, usize) -> usize + 'static) -> Box<Self> {
        let stack = Stack::new(size);
        // SAFETY: fresh memory, page-aligned.
        let context = unsafe { S::create(stack.top(), stack.limit, Self::entry) };
        let inside = Inside { fiber: Cell::new(context), home: Cell::new(entered_home()), back_end: PhantomData };
        Box::new(Self { inside, body: Some(Box::new(body)), first: 0, started: false, done: false, stack })
    }

    unsafe extern "C-unwind" fn entry(fiber: usize) -> ! {
        let fiber = fiber as *mut Self;
        // SAFETY: the first word is the address of the boxed `Fiber`, which waits in `resume` while we run.
        unsafe {
            let body = (*fiber).body.take().unwrap();
            let inside = &raw const (*fiber).inside;
            let last = body(&*inside, (*fiber).first);
            (*fiber).done = true;
            (*inside).suspend(last);
        }
        unreachable!("a finished fiber was resumed")
    }

    #[inline(always)]
    fn resume(&mut self, word: usize) -> usize {
        assert!(!self.done);
        let this = &raw mut *self;
        // SAFETY: the fiber is fresh or suspended, and this is not its stack.
        unsafe {
            if !(*this).started {
                (*this).started = true;
                (*this).first = word;
                return S::resume((*this).inside.fiber.as_ptr(), (*this).inside.home.as_ptr(), this as usize);
            }
            S::resume((*this).inside.fiber.as_ptr(), (*this).inside.home.as_ptr(), word)
        }
    }
}

impl<S: Switch> Drop for Fiber<S> {
    fn drop(&mut self) {
        // SAFETY: suspended or never run; the tests leave nothing on an unfinished stack that must be dropped.
        unsafe { S::destroy(self.inside.fiber.get()) }
    }
}

/// S0-13.
fn words_pass_both_ways<S: Switch>() {
    let mut fiber = Fiber::<S>::new(64 * KIB, |inside, first| {
        assert_eq!(first, 1);
        assert_eq!(inside.suspend(usize::MAX), 2);
        assert_eq!(inside.suspend(0), 3);
        77
    });
    assert_eq!(fiber.resume(1), usize::MAX);
    assert_eq!(fiber.resume(2), 0);
    assert_eq!(fiber.resume(3), 77);
    assert!(fiber.done);
}

fn an_unstarted_and_an_unfinished_context_can_be_destroyed<S: Switch>() {
    drop(Fiber::<S>::new(64 * KIB, |_, _| unreachable!()));
    let mut fiber = Fiber::<S>::new(64 * KIB, |inside, _| {
        inside.suspend(5);
        unreachable!()
    });
    assert_eq!(fiber.resume(0), 5);
}

/// A stack may go on with a new fiber: the place it suspends into is then another than the one it was resumed from.
fn the_place_of_the_context_may_move<S: Switch>() {
    let mut moved = Context::default();
    let target = &raw mut moved as usize;
    let mut fiber = Fiber::<S>::new(64 * KIB, move |inside, _| {
        // SAFETY: as in `Inside::suspend`; the place is a local of the test, which outlives the fiber.
        unsafe { S::suspend(target as *mut Context, inside.home.as_ptr(), 1) };
        2
    });
    assert_eq!(fiber.resume(0), 1);
    fiber.inside.fiber.set(moved);
    assert_eq!(fiber.resume(0), 2);
}

/// Many values live across the switch, integers and floats: at any optimisation level some of them are in registers.
#[inline(never)]
fn mix(seed: u64, mut away: impl FnMut(u64) -> u64) -> (u64, f64) {
    let mut n: [u64; 14] = std::array::from_fn(|i| seed.wrapping_mul(i as u64 * 2 + 3));
    let mut x: [f64; 10] = std::array::from_fn(|i| (seed % 1000) as f64 + i as f64);
    for round in 0..50u64 {
        let word = away(n[0]);
        for i in 0..14 {
            n[i] = n[(i + 1) % 14].rotate_left(i as u32) ^ word.wrapping_add(round);
        }
        for i in 0..10 {
            x[i] = x[(i + 3) % 10] * 0.75 + (word % 13) as f64;
        }
    }
    (n.iter().fold(0, |a, b| a.rotate_left(7) ^ b), x.iter().sum())
}

/// S0-14, as the compiler sees it: the same computation with and without switches in the middle.
fn live_values_survive<S: Switch>() {
    for seed in 1..20u64 {
        let mut fiber = Fiber::<S>::new(64 * KIB, move |inside, _| {
            let (n, x) = mix(seed, |n| inside.suspend(n as usize) as u64);
            assert_eq!((n, x), mix(seed, |n| n ^ 5));
            0
        });
        let mut word = fiber.resume(0) as u64;
        let (n, x) = mix(!seed, |n| {
            if !fiber.done {
                word = fiber.resume((word ^ 5) as usize) as u64;
            }
            n ^ 9
        });
        assert!(fiber.done);
        assert_eq!((n, x), mix(!seed, |n| n ^ 9));
    }
}

/// S0-02: the entry function finds the stack as the ABI promises it. The aligned store faults otherwise.
fn the_stack_is_aligned_at_entry<S: Switch>() {
    #[repr(align(16))]
    struct Aligned(#[allow(dead_code)] [u8; 16]);

    unsafe extern "C-unwind" fn entry<S: Switch>(places: usize) -> ! {
        let slot = Aligned([7; 16]);
        let address = black_box(&raw const slot) as usize;
        let places = places as *const Places;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: writes 16 bytes into the slot.
        unsafe {
            core::arch::asm!("movaps [{}], xmm0", in(reg) address, options(nostack, preserves_flags));
        }
        // SAFETY: the test waits in `resume` and its cells live.
        unsafe { S::suspend((*places).0.as_ptr(), (*places).1.as_ptr(), address) };
        unreachable!()
    }

    // Tops that differ by multiples of 16: the alignment must come from the switch, not from the page.
    for colour in 0..4 {
        let stack = Stack::new(64 * KIB);
        // SAFETY: fresh memory; the top stays a multiple of 16.
        let context = unsafe { S::create(stack.top().wrapping_sub(colour * 16), stack.limit, entry::<S>) };
        let places = Places(Cell::new(context), Cell::new(entered_home()));
        // SAFETY: the context is fresh.
        let address = unsafe { S::resume(places.0.as_ptr(), places.1.as_ptr(), &raw const places as usize) };
        assert_eq!(address % 16, 0);
        // SAFETY: suspended, nothing to drop.
        unsafe { S::destroy(places.0.get()) };
    }
}

/// MXCSR without its status bits, and the x87 control word.
#[cfg(target_arch = "x86_64")]
fn control_words() -> (u32, u16) {
    let (mut mxcsr, mut x87) = (0u32, 0u16);
    // SAFETY: both write to the locals given.
    unsafe {
        core::arch::asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut mxcsr, in(reg) &raw mut x87);
    }
    (mxcsr & 0xFFC0, x87)
}

#[cfg(target_arch = "x86_64")]
fn set_control_words((mxcsr, x87): (u32, u16)) {
    // SAFETY: the tests change rounding only, and do no floating-point arithmetic meanwhile.
    unsafe {
        core::arch::asm!("ldmxcsr [{}]", "fldcw [{}]", in(reg) &raw const mxcsr, in(reg) &raw const x87);
    }
}

/// Holds `watch_mxcsr`, which the whole process shares, at one value for the length of a test.
#[cfg(target_arch = "x86_64")]
fn with_watch<S: Switch>(on: bool, test: impl FnOnce()) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock();
    S::watch_mxcsr(on);
    test();
    S::watch_mxcsr(false);
}

/// S0-14: every fiber, and the scheduler, has control words of its own.
#[cfg(target_arch = "x86_64")]
fn control_words_belong_to_the_fiber<S: Switch>() {
    with_watch::<S>(false, || {
        rounding_modes_stay::<S>();
        one_change_stays::<S>((0x1F80, 0x037F | 1 << 10));
    });
    // MXCSR alone: rounding, flush to zero, denormals are zero; only if it is watched.
    with_watch::<S>(true, || {
        rounding_modes_stay::<S>();
        for bit in [13, 15, 6] {
            one_change_stays::<S>((0x1F80 | 1 << bit, 0x037F));
        }
    });
}

/// A loop on a thread that changed its control words since the last one: the fibers keep theirs, and the thread gets its own back.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_later_loop_has_the_words_of_the_first() {
    let mut home = SchedulerContext::default();
    let first = home.enter();
    let of_home = control_words();
    SchedulerContext::leave(first);
    let changed = (0x1F80 | 1 << 13, 0x037F | 1 << 10);
    set_control_words(changed);
    let second = home.enter();
    let inside = control_words();
    SchedulerContext::leave(second);
    let after = control_words();
    SchedulerContext::leave(first);
    assert_eq!((inside, after), (of_home, changed));
}

#[cfg(target_arch = "x86_64")]
fn rounding_modes_stay<S: Switch>() {
    let of_home = control_words();
    // The four rounding modes, for SSE and x87; the first is the default.
    let mut fibers: Vec<_> = [0u32, 1, 2, 3]
        .map(|mode| {
            Fiber::<S>::new(64 * KIB, move |inside, _| {
                assert_eq!(control_words(), (0x1F80, 0x037F));
                let mine = (0x1F80 | mode << 13, 0x037F | (mode as u16) << 10);
                set_control_words(mine);
                for _ in 0..10 {
                    inside.suspend(0);
                    assert_eq!(control_words(), mine);
                }
                0
            })
        })
        .into();
    for _ in 0..11 {
        for fiber in &mut fibers {
            fiber.resume(0);
            assert_eq!(control_words(), of_home);
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn one_change_stays<S: Switch>(changed: (u32, u16)) {
    let of_home = control_words();
    let mut fiber = Fiber::<S>::new(64 * KIB, move |inside, _| {
        set_control_words(changed);
        inside.suspend(0);
        assert_eq!(control_words(), changed);
        0
    });
    fiber.resume(0);
    assert_eq!(control_words(), of_home);
    fiber.resume(0);
    assert_eq!(control_words(), of_home);
}

fn a_panic_is_caught_inside_the_fiber<S: Switch>() {
    struct Noted<'a>(&'a Cell<u32>);
    impl Drop for Noted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    #[inline(never)]
    fn fail(depth: u32, dropped: &Cell<u32>) {
        let _noted = Noted(dropped);
        if depth == 0 {
            panic::resume_unwind(Box::new("quiet"));
        }
        fail(depth - 1, dropped);
    }
    let mut fiber = Fiber::<S>::new(256 * KIB, |inside, _| {
        let dropped = Cell::new(0);
        for round in 1..4 {
            let caught = panic::catch_unwind(AssertUnwindSafe(|| {
                inside.suspend(1);
                fail(9, &dropped);
            }));
            assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "quiet");
            assert_eq!(dropped.get(), 10 * round);
        }
        inside.suspend(2);
        3
    });
    assert_eq!([fiber.resume(0), fiber.resume(0), fiber.resume(0)], [1, 1, 1]);
    assert_eq!([fiber.resume(0), fiber.resume(0)], [2, 3]);
}

/// A backtrace, with names, and proof that it is one and not an endless or empty list.
#[inline(never)]
fn backtrace_here() -> String {
    std::backtrace::Backtrace::force_capture().to_string()
}

#[inline(never)]
fn a_function_of_the_fiber<S: Switch>(inside: &Inside<S>) -> [String; 2] {
    let here = backtrace_here();
    let mut there = String::new();
    inside.call_on_home(|| there = backtrace_here());
    black_box([here, there])
}

fn backtraces_end_and_name_the_fiber<S: Switch>() {
    let mut fiber = Fiber::<S>::new(1024 * KIB, |inside, _| {
        inside.suspend(0);
        let traces = a_function_of_the_fiber(inside);
        for trace in &traces {
            assert!(trace.contains("a_function_of_the_fiber"), "{trace}");
            // With line tables alone, names have no path.
            assert!(trace.contains("::entry") || trace.contains(" entry<"), "{trace}");
            assert!(trace.lines().count() < 200, "{trace}");
        }
        1
    });
    fiber.resume(0);
    assert_eq!(fiber.resume(0), 1);
}

/// Data in use on the home stack stays as it is, and the function really runs there.
fn call_on_home_leaves_the_home_alone<S: Switch>() {
    #[inline(never)]
    fn scribble(depth: usize) -> usize {
        let mut noise = [depth as u8; 512];
        black_box(&mut noise);
        if depth == 0 { noise[3] as usize } else { scribble(depth - 1) + noise[3] as usize }
    }
    #[inline(never)]
    fn resume_among_locals<S: Switch>(fiber: &mut Fiber<S>, word: usize) -> usize {
        let mut locals: [usize; 40] = std::array::from_fn(|i| i * word);
        black_box(&mut locals);
        let answer = fiber.resume(word);
        black_box(&mut locals);
        assert!(locals.iter().enumerate().all(|(i, &n)| n == i * word));
        answer
    }
    let mut fiber = Fiber::<S>::new(64 * KIB, |inside, mut word| {
        let own = black_box(&raw const word) as usize;
        for _ in 0..20 {
            let mut there = 0;
            inside.call_on_home(|| there = black_box(&raw const *black_box(&0u8)) as usize + scribble(60));
            let mut address = 0;
            inside.call_on_home(|| {
                let local = 0u8;
                address = black_box(&raw const local) as usize;
            });
            // The fake stack of AddressSanitizer hides where a local lies.
            if !S::OWN_THREAD && !cfg!(fibra_asan) {
                assert!(address.abs_diff(own) > 64 * KIB, "ran on the fiber's stack");
            }
            word = inside.suspend(word + 1);
        }
        0
    });
    for word in 1..21 {
        assert_eq!(resume_among_locals(&mut fiber, word), word + 1);
    }
}

fn a_thousand_fibers_interleave<S: Switch>() {
    let count = if S::OWN_THREAD { 100 } else { 1000 };
    let rounds = 10;
    let mut fibers: Vec<_> = (0..count)
        .map(|id| {
            Fiber::<S>::new(32 * KIB, move |inside, first| {
                let mut sum = first;
                for round in 0..rounds {
                    sum += inside.suspend(id * 1000 + round);
                }
                sum
            })
        })
        .collect();
    for round in 0..rounds {
        // Forwards and backwards by turns.
        for step in 0..count {
            let id = if round % 2 == 0 { step } else { count - 1 - step };
            assert_eq!(fibers[id].resume(round + id), id * 1000 + round);
        }
    }
    for (id, fiber) in fibers.iter_mut().enumerate() {
        assert_eq!(fiber.resume(rounds + id), (0..=rounds).map(|round| round + id).sum::<usize>());
        assert!(fiber.done);
    }
}

fn deep_recursion_with_switches_inside<S: Switch>() {
    #[inline(never)]
    fn descend<S: Switch>(inside: &Inside<S>, depth: usize) -> usize {
        if depth == 0 {
            return 0;
        }
        let word = if depth.is_multiple_of(100) { inside.suspend(depth) } else { 1 };
        let below = descend(inside, depth - 1);
        let word = if depth.is_multiple_of(150) { word + inside.suspend(depth) } else { word };
        black_box(below + word)
    }
    let mut fiber = Fiber::<S>::new(1024 * KIB, |inside, _| descend(inside, 1500));
    let mut last = fiber.resume(0);
    let mut resumes = 0;
    while !fiber.done {
        last = fiber.resume(3);
        resumes += 1;
    }
    assert_eq!(resumes, 25);
    assert_eq!(last, 1500 - 15 + 25 * 3);
}

/// A stack that is abandoned deep inside calls leaves no trace, not even in what a sanitizer remembers of calls and frames.
fn stacks_are_abandoned_in_the_depth<S: Switch>() {
    #[inline(never)]
    fn descend<S: Switch>(inside: &Inside<S>, depth: usize) -> usize {
        let mut frame = [depth; 4];
        black_box(&mut frame);
        let below = if depth == 0 { inside.suspend(1) } else { descend(inside, depth - 1) };
        black_box(frame[3] + below)
    }
    // ThreadSanitizer's record of calls overflows after some two million, if it is not told about the switches.
    let rounds = match () {
        _ if S::OWN_THREAD => 20,
        _ if cfg!(fibra_tsan) => 3000,
        _ => 200,
    };
    for _ in 0..rounds {
        let mut fiber = Fiber::<S>::new(512 * KIB, |inside, _| descend(inside, 1000));
        assert_eq!(fiber.resume(0), 1);
    }
}

macro_rules! suite {
    ($module:ident, $back_end:ty, $($test:ident)*) => {
        mod $module {
            $(#[test] fn $test() { super::$test::<$back_end>() })*
        }
    };
    ($module:ident, $back_end:ident) => {
        suite! { $module, super::$back_end,
            words_pass_both_ways
            an_unstarted_and_an_unfinished_context_can_be_destroyed
            the_place_of_the_context_may_move
            live_values_survive
            the_stack_is_aligned_at_entry
            control_words_belong_to_the_fiber
            a_panic_is_caught_inside_the_fiber
            backtraces_end_and_name_the_fiber
            call_on_home_leaves_the_home_alone
            a_thousand_fibers_interleave
            deep_recursion_with_switches_inside
            stacks_are_abandoned_in_the_depth
        }
    };
}

#[cfg(target_arch = "x86_64")]
suite!(own, Own);
#[cfg(not(any(fibra_asan, fibra_tsan)))]
suite!(corosensei, Corosensei);
suite!(thread, Thread);
