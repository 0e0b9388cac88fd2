//! Tests of what only the own switch promises: registers by name, unwinding from every single instruction, and the same behaviour as
//! corosensei.

use super::{
    Corosensei, Fiber, Inside, KIB, Own, Places, Stack, Switch, Thread, control_words, entered_home, set_control_words,
};
use crate::fiber::context::x86_64;
use crate::prim::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::prim::policy::{self, Rng};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::hint::black_box;

/// Fills the callee-saved registers with numbers made from `seed`, calls `f(data)` and returns 0 if all of them came back.
#[unsafe(naked)]
unsafe extern "C" fn with_filled_registers(f: unsafe extern "C" fn(usize), data: usize, seed: usize) -> usize {
    core::arch::naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdx", // The seventh: the stack is aligned again.
        "mov rax, rdi",
        "mov rdi, rsi",
        "lea rbx, [rdx + 1]",
        "lea rbp, [rdx + 2]",
        "lea r12, [rdx + 3]",
        "lea r13, [rdx + 4]",
        "lea r14, [rdx + 5]",
        "lea r15, [rdx + 6]",
        "call rax",
        "pop rdx",
        "sub rbx, 1",
        "sub rbp, 2",
        "sub r12, 3",
        "sub r13, 4",
        "sub r14, 5",
        "sub r15, 6",
        "xor rbx, rdx",
        "xor rbp, rdx",
        "xor r12, rdx",
        "xor r13, rdx",
        "xor r14, rdx",
        "xor r15, rdx",
        "or rbx, rbp",
        "or rbx, r12",
        "or rbx, r13",
        "or rbx, r14",
        "or rbx, r15",
        "mov rax, rbx",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

/// S0-14, register by register, on both sides of the switch.
#[test]
fn callee_saved_registers_survive() {
    unsafe extern "C" fn suspend(inside: usize) {
        // SAFETY: the address of the fiber's `Inside`, which lives in its box.
        unsafe { (*(inside as *const Inside<Own>)).suspend(0) };
    }
    unsafe extern "C" fn resume(fiber: usize) {
        // SAFETY: the address of the test's fiber.
        unsafe { (*(fiber as *mut Fiber<Own>)).resume(0) };
    }
    let mut fiber = Fiber::<Own>::new(64 * KIB, |inside, _| {
        for round in 0..10 {
            // SAFETY: a function that follows the ABI if the switch does.
            let lost = unsafe { with_filled_registers(suspend, inside as *const _ as usize, 0xAAAA_0000 + round) };
            assert_eq!(lost, 0);
        }
        0
    });
    for round in 0..11 {
        let fiber = &raw mut *fiber as usize;
        // SAFETY: as above.
        assert_eq!(unsafe { with_filled_registers(resume, fiber, 0x5555_0000_0000 + round) }, 0);
    }
    assert!(fiber.done);
}

/// S0-14 although everything below `kept_from` is overwritten, as if its pages had gone (decision 66): registers, and control words of its
/// own.
#[test]
fn a_suspended_execution_needs_nothing_below() {
    unsafe extern "C" fn suspend(inside: usize) {
        // SAFETY: the address of the fiber's `Inside`, which lives in its box.
        unsafe { (*(inside as *const Inside<Own>)).suspend(0) };
    }
    let mut fiber = Fiber::<Own>::new(64 * KIB, |inside, _| {
        for mine in [(0x1F80, 0x037F), (0x1F80 | 1 << 13, 0x037F | 1 << 10)] {
            set_control_words(mine);
            for round in 0..3 {
                // SAFETY: a function that follows the ABI if the switch does.
                let lost = unsafe { with_filled_registers(suspend, inside as *const _ as usize, 0xBBBB_0000 + round) };
                assert_eq!((lost, control_words()), (0, mine));
            }
        }
        0
    });
    while {
        fiber.resume(0);
        !fiber.done
    } {
        let kept_from = x86_64::kept_from(fiber.inside.fiber.get()).expect("the own switch knows it");
        let limit = fiber.stack.limit;
        // SAFETY: memory of the fiber's stack, on which no code runs, below what it needs: that is what is tested.
        unsafe { limit.write_bytes(0xAA, kept_from - limit.addr()) };
    }
}

/// A fiber whose behaviour is decided by the words it is given: recursion, floats, panics, calls on the home stack.
fn wander<S: Switch>(inside: &Inside<S>, mut word: usize, depth: u32) -> usize {
    let mut float = word as f64;
    loop {
        let choice = word % 8;
        float = float * 0.5 + choice as f64;
        word = word.rotate_left(9) ^ float as usize ^ depth as usize;
        match choice {
            0 if depth < 40 => word ^= wander(inside, word, depth + 1),
            1 if depth > 0 => return word,
            2 => inside.call_on_home(|| word = word.wrapping_mul(31)),
            3 => {
                let thrown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let word = inside.suspend(word);
                    std::panic::resume_unwind(Box::new(word));
                }));
                // An abandoned thread unwinds with a payload that the test must not stop.
                word ^=
                    *thrown.unwrap_err().downcast::<usize>().unwrap_or_else(|other| std::panic::resume_unwind(other));
            }
            _ => word = inside.suspend(word),
        }
    }
}

fn transcript<S: Switch>(seed: u64) -> Vec<usize> {
    let mut rng = Rng::from_seed(seed);
    let mut fibers: Vec<_> =
        (0..10).map(|_| Fiber::<S>::new(128 * KIB, |inside, first| wander(inside, first, 0))).collect();
    (0..500)
        .map(|_| {
            let chosen = rng.below(fibers.len());
            fibers[chosen].resume(rng.next_u64() as usize >> 8)
        })
        .collect()
}

/// The same random program on all back-ends. `FIBRA_SEED` repeats one run.
#[test]
fn behaves_like_the_others_at_random() {
    let given = std::env::var("FIBRA_SEED").ok().map(|seed| seed.parse().expect("FIBRA_SEED is a number"));
    let start = given.unwrap_or_else(|| policy::chance().next_u64() >> 8);
    let runs = if given.is_some() { 1 } else { 20 };
    for seed in start..start + runs {
        let own = transcript::<Own>(seed);
        assert!(own == transcript::<Corosensei>(seed), "own differs from corosensei: FIBRA_SEED={seed}");
        if seed == start {
            assert!(own == transcript::<Thread>(seed), "own differs from threads: FIBRA_SEED={seed}");
        }
    }
}

// The unwinder that std is linked with.
unsafe extern "C" {
    fn _Unwind_Backtrace(callback: extern "C" fn(*mut c_void, *mut c_void) -> c_int, data: *mut c_void) -> c_int;
    fn _Unwind_GetRegionStart(context: *mut c_void) -> usize;
}

/// What the trap handler saw; it runs on the one thread that steps, so relaxed accesses are enough throughout.
static STEPS: AtomicU32 = AtomicU32::new(0);
static STEPS_AT_HOME: AtomicU32 = AtomicU32::new(0);
static STEPS_IN_FIBER: AtomicU32 = AtomicU32::new(0);
static STEPS_BETWEEN: AtomicU32 = AtomicU32::new(0);
static BROKEN: AtomicUsize = AtomicUsize::new(0);
static VISITED: AtomicBool = AtomicBool::new(false);

struct Walk {
    frames: u32,
    home: bool,
    fiber: bool,
}

extern "C" fn look_at_frame(context: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: the handler's local, and the unwinder's own context.
    unsafe {
        let walk = &mut *walk.cast::<Walk>();
        walk.frames += 1;
        let function = _Unwind_GetRegionStart(context);
        walk.home |= function == stepped_home as *const () as usize;
        walk.fiber |= function == stepped_fiber as *const () as usize;
        if walk.frames > 100 { 4 } else { 0 }
    }
}

/// Runs after every instruction: a backtrace from here must end in order, and on the right stack.
extern "C" fn on_trap(_signal: c_int) {
    const END_OF_STACK: c_int = 5;
    let mut walk = Walk { frames: 0, home: false, fiber: false };
    // SAFETY: the callback matches, and the data is its.
    let ended = unsafe { _Unwind_Backtrace(look_at_frame, (&raw mut walk).cast()) };
    STEPS.fetch_add(1, Ordering::Relaxed);
    match (walk.home, walk.fiber) {
        (true, false) => STEPS_AT_HOME.fetch_add(1, Ordering::Relaxed),
        (false, true) => STEPS_IN_FIBER.fetch_add(1, Ordering::Relaxed),
        (false, false) => STEPS_BETWEEN.fetch_add(1, Ordering::Relaxed),
        (true, true) => u32::MAX,
    };
    if ended != END_OF_STACK || (walk.home && walk.fiber) {
        BROKEN.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps the processor's flags in `keep` and sets those in `set`. A function of its own with its own unwind information, because a push in
/// the middle of a Rust function moves the stack pointer by which that function's frame is found.
#[unsafe(naked)]
unsafe extern "C" fn change_flags(keep: usize, set: usize) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "pushfq",
        ".cfi_adjust_cfa_offset 8",
        "and [rsp], rdi",
        "or [rsp], rsi",
        "popfq",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
    )
}

/// Switches the processor's single-step mode.
fn step(on: bool) {
    const TRAP_FLAG: usize = 0x100;
    // SAFETY: changes the trap flag only; the handler is installed.
    unsafe { change_flags(!TRAP_FLAG, if on { TRAP_FLAG } else { 0 }) }
}

extern "C" fn visit_home(_: *mut ()) {
    VISITED.store(true, Ordering::Relaxed);
}

#[inline(never)]
unsafe extern "C-unwind" fn stepped_fiber(places: usize) -> ! {
    let places = places as *const Places;
    // SAFETY: the test's cells; home waits in `resume`.
    unsafe {
        let (fiber, home) = ((*places).0.as_ptr(), (*places).1.as_ptr());
        x86_64::suspend(fiber, home, 1);
        x86_64::call_on_home(home, visit_home, std::ptr::null_mut());
        // From here on the fiber has control words of its own.
        set_control_words((0x1F80, 0x037F | 1 << 10));
        loop {
            x86_64::suspend(fiber, home, 2);
        }
    }
}

#[inline(never)]
extern "C" fn stepped_home(places: &Places) -> usize {
    step(true);
    // SAFETY: a fresh, then suspended context of this thread.
    let sum = unsafe {
        let (fiber, home) = (places.0.as_ptr(), places.1.as_ptr());
        x86_64::resume(fiber, home, places as *const _ as usize)
            + x86_64::resume(fiber, home, 0)
            + x86_64::resume(fiber, home, 0)
    };
    step(false);
    black_box(sum)
}

/// A signal may arrive at any instruction, and its handler may walk the stack (a profiler does).
#[test]
fn every_instruction_can_be_unwound() {
    let stack = Stack::new(256 * KIB);
    // SAFETY: a handler without side effects for a signal that nothing else here uses; fresh memory for the stack.
    let context = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()), 0);
        x86_64::create(stack.top(), stack.limit, stepped_fiber)
    };
    let places = Places(Cell::new(context), Cell::new(entered_home()));
    assert_eq!(stepped_home(&places), 5);
    assert!(VISITED.load(Ordering::Relaxed));
    let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
    let seen = [&STEPS, &STEPS_AT_HOME, &STEPS_IN_FIBER, &STEPS_BETWEEN].map(count);
    println!("steps, at home, in the fiber, between: {seen:?}");
    assert_eq!(BROKEN.load(Ordering::Relaxed), 0, "backtraces that did not end or were on two stacks");
    assert!(seen[1] > 30 && seen[2] > 30, "single-stepping does not work here: {seen:?}");
    // Six switches with two instructions each that belong to neither side, and the few that lead to the fiber's first function.
    assert!(seen[3] <= 6 * 2 + 12, "{seen:?}");
    // SAFETY: suspended; nothing on its stack to drop.
    unsafe { x86_64::destroy(places.0.get()) };
}
