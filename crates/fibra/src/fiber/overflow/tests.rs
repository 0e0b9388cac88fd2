//! Tests of faults on fiber stacks: what is reported, and how the process ends. Each test runs in a process of its own, since most end it.

use super::super::stack::{RESERVE, StackCache, StackSize, page_size};
use super::super::testing::{about_stack_pointer, call_on, run_in_child};
use super::*;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

macro_rules! path {
    ($name:ident) => {
        concat!("fiber::overflow::tests::", stringify!($name))
    };
}

const BOTH_GUARDS: [&[(&str, &str)]; 2] = [&[], &[("FIBRA_GUARD", "mprotect")]];

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Recurses until the stack ends, with a frame of more than a hundred bytes that the optimiser cannot remove.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 16]);
    if depth == u64::MAX {
        return 0;
    }
    recurse(depth + 1) + std::hint::black_box(&frame)[3]
}

extern "C" fn overflow() {
    std::hint::black_box(recurse(0));
}

/// A slot below the stack that overflows, which must not be harmed.
static NEIGHBOUR: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
const NEIGHBOUR_BYTES: usize = 1024;

fn describe(top: &StackTop, out: &mut ReportBuffer) {
    // Relaxed: written by this very thread.
    let owner = top.owner.load(Ordering::Relaxed).addr();
    let neighbour = NEIGHBOUR.load(Ordering::Relaxed);
    // SAFETY: the test holds the neighbour and wrote that many bytes.
    let intact = neighbour.is_null() || unsafe { (0..NEIGHBOUR_BYTES).all(|byte| neighbour.add(byte).read() == 0x77) };
    let _ = write!(out, "fiber `deep` ({owner}), neighbour {}", if intact { "intact" } else { "harmed" });
}

/// S1-10: an overflow ends the process with a report and harms no neighbour.
#[test]
fn overflow_is_reported_by_name_and_spares_the_neighbour() {
    for (bytes, kib) in [("32768", "32 KiB"), ("262144", "256 KiB"), ("1048576", "1024 KiB"), ("8388608", "8192 KiB")] {
        for guard in BOTH_GUARDS {
            let variables = [&[("TEST_BYTES", bytes)], guard].concat();
            let output = run_in_child(path!(overflow_is_reported_by_name_and_spares_the_neighbour), &variables, || {
                install();
                install();
                set_describer(describe);
                let _alt = AltStack::install_for_thread().expect("an alternate stack");
                let bytes = std::env::var("TEST_BYTES").expect("set").parse().expect("a number");
                let mut cache = StackCache::new();
                let mut take = || cache.take(StackSize::new(bytes).expect("valid")).expect("a stack");
                let (low, high) = (take(), take());
                if bytes <= 1 << 20 {
                    assert_eq!(high.limit().addr() - low.limit().addr(), bytes + page_size(), "neighbours");
                }
                let below = low.top().wrapping_sub(NEIGHBOUR_BYTES);
                // SAFETY: the kilobyte below the top of a stack that is ours.
                unsafe { below.write_bytes(0x77, NEIGHBOUR_BYTES) };
                // Relaxed: read by this very thread, in the handler.
                NEIGHBOUR.store(below, Ordering::Relaxed);
                high.record().owner.store(std::ptr::without_provenance_mut(17), Ordering::Relaxed);
                call_on(&high, overflow);
            });
            let text = stderr(&output);
            assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
            assert!(
                text.contains("fibra: stack overflow in fiber `deep` (17), neighbour intact: its stack has"),
                "{text}"
            );
            assert!(text.contains(kib) && text.contains("FIBRA_STACK_SIZE") && text.contains("recursion"), "{text}");
            // (In the smallest stack there is room for it as well.)
            let recursed = text.lines().last().unwrap_or_default();
            // (The sanitizer writes the address of each function into its frame, which looks like a return address of the one before.)
            let is_named = cfg!(fibra_asan) || recursed.contains("overflow::tests::recurse: ");
            assert!(recursed.starts_with("fibra: it recursed in ") && is_named, "{text}");
            assert!(recursed.contains("addr2line -Cfie /"), "{text}");
            assert_eq!(text.matches("fibra: ").count(), 2, "{text}");
        }
    }
}

/// A worker other than the main thread, and no describer yet.
#[test]
fn overflow_on_a_started_thread_is_reported() {
    let output = run_in_child(path!(overflow_on_a_started_thread_is_reported), &[], || {
        install();
        let worker = std::thread::spawn(|| {
            let _alt = AltStack::install_for_thread().expect("an alternate stack");
            let stack = StackCache::new().take(StackSize::DEFAULT).expect("a stack");
            call_on(&stack, overflow);
        });
        let _ = worker.join();
    });
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    assert!(stderr(&output).contains("fibra: stack overflow in a fiber: its stack has 256 KiB"), "{}", stderr(&output));
}

#[test]
fn a_wild_access_to_a_guard_is_told_apart() {
    let output = run_in_child(path!(a_wild_access_to_a_guard_is_told_apart), &[], || {
        install();
        // (That of std is too small for a report under a sanitizer.)
        let _alt = AltStack::install_for_thread().expect("an alternate stack");
        let stack = StackCache::new().take(StackSize::DEFAULT).expect("a stack");
        // SAFETY: none; the test is that it faults.
        unsafe { stack.limit().wrapping_sub(100).write_volatile(1) };
    });
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    assert!(stderr(&output).contains("fibra: access to the stack guard of a fiber"), "{}", stderr(&output));
}

/// Faults that are not ours go to the handler of before: here to std, and from there to the default action.
#[test]
fn other_faults_are_none_of_our_business() {
    let output = run_in_child(path!(other_faults_are_none_of_our_business), &[], || {
        install();
        let _alt = AltStack::install_for_thread().expect("an alternate stack");
        // SAFETY: none; the test is that it faults.
        unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
    });
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", stderr(&output));
    assert!(!stderr(&output).contains("fibra:"), "{}", stderr(&output));
}

#[test]
fn threads_still_have_stds_report() {
    let output = run_in_child(path!(threads_still_have_stds_report), &[], || {
        install();
        let thread = std::thread::Builder::new().name("plain".into()).spawn(|| {
            let _alt = AltStack::install_for_thread().expect("an alternate stack");
            overflow();
        });
        let _ = thread.expect("a thread").join();
    });
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    let text = stderr(&output);
    assert!(text.contains("plain") && text.contains("has overflowed its stack") && !text.contains("fibra:"), "{text}");
}

extern "C" fn earlier_handler(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's siginfo; `_exit` may be called in a handler.
    unsafe { libc::_exit(if (*info).si_addr().addr() == 8 { 42 } else { 43 }) }
}

#[test]
fn an_earlier_handler_is_called() {
    let output = run_in_child(path!(an_earlier_handler_is_called), &[], || {
        // SAFETY: installs a handler of the right signature; then faults on purpose.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = earlier_handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
            install();
            std::ptr::without_provenance_mut::<u8>(8).write_volatile(1);
        }
    });
    assert_eq!(output.status.code(), Some(42), "{}", stderr(&output));
}

/// A signal that a process sent has no fault address and must end the process as before.
#[test]
fn a_sent_signal_has_its_default_effect() {
    let output = run_in_child(path!(a_sent_signal_has_its_default_effect), &[], || {
        // SAFETY: restores the default action, and then sends the signal to this thread.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGSEGV, &default, std::ptr::null_mut());
            install();
            libc::raise(libc::SIGSEGV);
        }
    });
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", stderr(&output));
}

#[test]
fn alternate_stacks_are_put_back() {
    fn now() -> (usize, i32, usize) {
        // SAFETY: only reads this thread's alternate stack.
        unsafe {
            let mut now: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &mut now);
            (now.ss_sp.addr(), now.ss_flags, now.ss_size)
        }
    }
    let before = now();
    let outer = AltStack::install_for_thread().expect("an alternate stack");
    let with_outer = now();
    assert_ne!(before, with_outer);
    assert!(with_outer.2 >= HANDLER_ROOM);
    let inner = AltStack::install_for_thread().expect("an alternate stack");
    assert_ne!(with_outer, now());
    drop(inner);
    assert_eq!(with_outer, now());
    drop(outer);
    assert_eq!(before, now());
}

#[test]
fn the_report_buffer_cuts_off_what_does_not_fit() {
    let mut out = ReportBuffer::new();
    for _ in 0..1000 {
        write!(out, "{:05}", 12345).expect("never fails");
    }
    assert_eq!(out.as_bytes().len(), 1024);
    assert_eq!(&out.as_bytes()[1020..], b"1234");
}

/// The stack on which `panic_near_the_limit` runs: (record, limit).
static UNDER_TEST: (AtomicPtr<StackTop>, AtomicPtr<u8>) =
    (AtomicPtr::new(std::ptr::null_mut()), AtomicPtr::new(std::ptr::null_mut()));

/// Goes down until about `left` bytes are left, and panics there.
#[inline(never)]
fn panic_with_left(limit: usize, left: usize) -> usize {
    struct CountsDrops<'a>(&'a AtomicBool);
    impl Drop for CountsDrops<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed); // Relaxed: one thread.
        }
    }
    let dropped = AtomicBool::new(false);
    let guard = CountsDrops(&dropped);
    assert!(about_stack_pointer() - limit > left, "the end of the stack");
    let deeper = panic_with_left(limit, left);
    drop(std::hint::black_box(guard));
    deeper + 1
}

extern "C" fn panic_near_the_limit() {
    // Relaxed: one thread.
    let limit = UNDER_TEST.1.load(Ordering::Relaxed).addr();
    let payload = std::panic::catch_unwind(|| panic_with_left(limit, 700)).expect_err("it panics");
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"the end of the stack"));
    print_once("unwound\n");
}

/// Printing needs more of a small stack than may be left; a system call does not.
fn print_once(text: &str) {
    // SAFETY: pointer and length of a slice.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// The purpose of a reserve: a panic at the very end of a stack unwinds, if the hook (which runs elsewhere) opened it.
/// Without the reserve, it is an overflow.
#[test]
#[cfg_attr(fibra_asan, ignore = "its frames, with red zones around every local, need more than the reserve has")]
fn a_panic_at_the_end_of_a_stack_unwinds_with_the_reserve_open() {
    let run = |bytes: &str, open: &str, guard: &[(&str, &str)]| {
        let variables = [&[("TEST_BYTES", bytes), ("TEST_OPEN", open)], guard].concat();
        run_in_child(path!(a_panic_at_the_end_of_a_stack_unwinds_with_the_reserve_open), &variables, || {
            install();
            let _alt = AltStack::install_for_thread().expect("an alternate stack");
            let bytes = std::env::var("TEST_BYTES").expect("set").parse().expect("a number");
            let open = std::env::var("TEST_OPEN").expect("set") == "yes";
            let mut cache = StackCache::new();
            let stack = cache.take(StackSize::new(bytes).expect("valid")).expect("a stack");
            // Relaxed: one thread.
            UNDER_TEST.1.store(stack.limit(), Ordering::Relaxed);
            let record = stack.into_raw();
            UNDER_TEST.0.store(record.as_ptr(), Ordering::Relaxed);
            std::panic::set_hook(Box::new(move |_| {
                if open {
                    let record = UNDER_TEST.0.load(Ordering::Relaxed);
                    // SAFETY: the record of the stack this test owns; the copy is forgotten.
                    let stack = unsafe { stack::Stack::from_raw(std::ptr::NonNull::new(record).expect("set above")) };
                    assert!(stack.open_reserve());
                    let _ = stack.into_raw();
                }
            }));
            // SAFETY: the only `Stack` of this record again, outside the hook.
            let stack = unsafe { stack::Stack::from_raw(record) };
            call_on(&stack, panic_near_the_limit);
            let _ = std::panic::take_hook();
            let limit = stack.limit();
            cache.give(stack);
            assert!(!super::super::testing::is_writable(limit.wrapping_sub(RESERVE)), "closed again");
        })
    };
    // ThreadSanitizer keeps 65,536 calls per stack and dies at the next; the largest stack has room for more.
    let largest = if cfg!(fibra_tsan) { "4194304" } else { "8388608" };
    for bytes in ["32768", "65536", "262144", "1048576", largest] {
        for guard in BOTH_GUARDS {
            let output = run(bytes, "yes", guard);
            assert!(output.status.success() && stderr(&output).contains("unwound"), "{bytes}: {}", stderr(&output));
        }
    }
    let output = run("32768", "no", &[]);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", stderr(&output));
    assert!(stderr(&output).contains("fibra: stack overflow"), "{}", stderr(&output));
}

/// The children of these tests must be able to fail.
#[test]
fn a_failing_child_is_noticed() {
    let output = run_in_child(path!(a_failing_child_is_noticed), &[], || panic!("on purpose"));
    assert!(!output.status.success() && stderr(&output).contains("on purpose"));
}
