//! Tests of stacks. A test that touches pools or counts mappings runs in a process of its own: see `fiber::testing`.

use super::super::testing::{is_writable, mappings, passes_in_child, status_bytes};
use super::guard::{guard_bytes, mprotect_cap, page_size};
use super::*;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::policy;
use std::collections::HashSet;

/// Runs the rest of a test in a child: the name of the test, and then its body.
macro_rules! isolated {
    ($name:ident, $variables:expr, $body:expr) => {
        passes_in_child(concat!("fiber::stack::tests::", stringify!($name)), $variables, $body)
    };
}

const BOTH_GUARDS: [&[(&str, &str)]; 2] = [&[], &[("FIBRA_GUARD", "mprotect")]];

fn size(bytes: usize) -> StackSize {
    StackSize::new(bytes).expect("a valid size")
}

/// The sum of the words of the contexts that were taken back.
static RETIRED: AtomicUsize = AtomicUsize::new(0);

/// Stands in for the upper layer's way to take a context back.
///
/// # Safety
/// None.
unsafe fn retire(context: usize) {
    RETIRED.fetch_add(context, Ordering::Relaxed); // Relaxed: a count, read by the thread that trims.
}

/// Whether the environment asks for the tests that need much memory or time.
fn big_tests() -> bool {
    std::env::var_os("FIBRA_BIG_TESTS").is_some_and(|value| value == "1")
}

#[test]
fn sizes_round_up_to_a_class() {
    let cases = [
        (32 << 10, 32 << 10),
        ((32 << 10) + 1, 64 << 10),
        (64 << 10, 64 << 10),
        (65 << 10, 256 << 10),
        (256 << 10, 256 << 10),
        (257 << 10, 1 << 20),
        (1 << 20, 1 << 20),
        ((1 << 20) + 1, 2 << 20),
        (5 << 20, 8 << 20),
        (1 << 30, 1 << 30),
    ];
    for (asked, got) in cases {
        assert_eq!(size(asked).bytes(), got, "asked for {asked}");
    }
    assert_eq!(StackSize::DEFAULT.bytes(), 256 << 10);
    assert_eq!(StackSize::ROOT.bytes(), 8 << 20);
}

#[test]
fn impossible_sizes_are_refused_with_value_and_limits() {
    for bytes in [0, 1 << 10, (32 << 10) - 1, (1 << 30) + 1, 1 << 40, usize::MAX] {
        let text = StackSize::new(bytes).expect_err("out of range").to_string();
        for part in [bytes.to_string(), "32768".into(), "1073741824".into()] {
            assert!(text.contains(&part), "{text:?} does not say {part}");
        }
    }
}

/// S0-02: where a fiber starts is 16-byte aligned. 32 KiB stacks work, down to their last byte.
#[test]
fn every_size_has_the_stated_layout() {
    for variables in BOTH_GUARDS {
        isolated!(every_size_has_the_stated_layout, variables, || {
            let mut cache = StackCache::new();
            for bytes in [32 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 8 << 20] {
                let mut colours = HashSet::new();
                let stacks: Vec<Stack> = (0..40).map(|_| cache.take(size(bytes)).expect("a stack")).collect();
                for stack in &stacks {
                    let (top, limit) = (stack.top().addr(), stack.limit().addr());
                    assert_eq!(stack.size(), bytes);
                    assert_eq!(top % 64, 0);
                    assert_eq!(stack.record().user_area().addr() % 16, 0);
                    assert_eq!(limit % page_size(), 0);
                    let slot = limit - guard_bytes();
                    let colour = slot + bytes - top - size_of::<StackTop>();
                    assert!(colour <= 960 && colour.is_multiple_of(64), "{colour}");
                    colours.insert(colour);
                    assert!(top - limit >= bytes - guard_bytes() - 256 - 960);
                    // Usable from top to limit; nothing below.
                    // SAFETY: between limit and top is the stack's own memory, and the stack is ours.
                    unsafe { stack.limit().write_bytes(0x5a, top - limit) };
                    for page in (slot..limit).step_by(page_size()) {
                        assert!(!is_writable(std::ptr::with_exposed_provenance_mut(page)), "guard of {bytes}");
                        assert!(!is_writable(std::ptr::with_exposed_provenance_mut(page + page_size() - 1)));
                    }
                    if bytes <= 1 << 20 {
                        let between = [slot + bytes, slot + bytes + page_size() - 1];
                        assert!(between.iter().all(|&address| find(address).is_none()), "no stack is there");
                    }
                    let found = find(limit - 1).expect("ours");
                    assert_eq!((found.record.addr().get(), found.slot), (top, slot));
                    assert!(found.in_guard(limit - 1) && found.in_guard(slot) && !found.in_guard(limit));
                    assert!(found.in_slot(top) && !found.in_slot(slot + bytes));
                }
                assert_eq!(colours.len(), if bytes > 1 << 20 { 1 } else { 16 });
                if bytes <= 1 << 20 {
                    // By the low bits of the number of a page the processor looks it up.
                    let sets: HashSet<_> = stacks.iter().map(|stack| stack.top().addr() / page_size() % 16).collect();
                    assert_eq!(sets.len(), 16, "the tops share few sets");
                }
                stacks.into_iter().for_each(|stack| cache.give(stack));
            }
            assert!(find(&raw const cache as usize).is_none(), "the thread's stack is not ours");
        });
    }
}

#[test]
fn the_last_given_is_taken_first_and_counted() {
    isolated!(the_last_given_is_taken_first_and_counted, &[], || {
        let mut cache = StackCache::new();
        // More stacks than one worker keeps, so that batches go to the depot and come back.
        let stacks: Vec<Stack> = (0..500).map(|_| cache.take(StackSize::DEFAULT).expect("a stack")).collect();
        assert_eq!((cache.fresh(), cache.reused()), (500, 0));
        let order: Vec<_> = stacks.iter().map(|stack| stack.top()).collect();
        stacks.into_iter().for_each(|stack| cache.give(stack));
        let again: Vec<Stack> = (0..500).map(|_| cache.take(StackSize::DEFAULT).expect("a stack")).collect();
        assert_eq!((cache.fresh(), cache.reused()), (500, 500));
        assert!(again.iter().map(|stack| stack.top()).eq(order.into_iter().rev()), "last given, first taken");
        // Other sizes have lists of their own.
        let small = cache.take(size(32 << 10)).expect("a stack");
        assert_eq!((cache.fresh(), cache.reused()), (501, 500));
        cache.give(small);
        again.into_iter().for_each(|stack| cache.give(stack));
        // The next worker uses what a worker leaves at its end.
        cache.flush();
        let mut next = StackCache::new();
        let stacks: Vec<Stack> = (0..500).map(|_| next.take(StackSize::DEFAULT).expect("a stack")).collect();
        assert_eq!((next.fresh(), next.reused()), (0, 500));
        let distinct: HashSet<_> = stacks.iter().map(|stack| stack.top()).collect();
        assert_eq!(distinct.len(), 500);
    });
}

#[test]
fn the_users_part_of_the_record_is_zero_at_first_and_then_kept() {
    isolated!(the_users_part_of_the_record_is_zero_at_first_and_then_kept, &[], || {
        let mut cache = StackCache::new();
        for bytes in [64 << 10, 8 << 20] {
            let stack = cache.take(size(bytes)).expect("a stack");
            let area = stack.record().user_area();
            // SAFETY: the user area has USER_AREA bytes, initialised, and is ours.
            unsafe {
                assert!((0..USER_AREA).all(|byte| area.add(byte).read() == 0));
                area.write_bytes(7, USER_AREA);
            }
            assert!(!stack.is_prepared());
            assert_eq!(stack.saved_context().get(), 0);
            // SAFETY: these stacks are not trimmed, and `retire` would only count.
            unsafe { stack.set_prepared(retire) };
            stack.saved_context().set(99);
            let top = stack.top();
            cache.give(stack);
            let stack = cache.take(size(bytes)).expect("a stack");
            assert_eq!(stack.top(), top);
            assert!(stack.is_prepared());
            assert_eq!(stack.saved_context().get(), 99);
            assert_eq!(stack.size(), bytes);
            // SAFETY: as above.
            unsafe { assert!((0..USER_AREA).all(|byte| area.add(byte).read() == 7)) };
            cache.give(stack);
        }
    });
}

#[test]
fn the_reserve_opens_on_request_and_closes_with_the_stack() {
    for variables in BOTH_GUARDS {
        isolated!(the_reserve_opens_on_request_and_closes_with_the_stack, variables, || {
            let mut cache = StackCache::new();
            for bytes in [32 << 10, 256 << 10, 8 << 20] {
                let stack = cache.take(size(bytes)).expect("a stack");
                let below = |bytes: usize| stack.limit().wrapping_sub(bytes);
                let (first, last, under) = (below(1), below(RESERVE), below(RESERVE + 1));
                assert!(!is_writable(first) && !is_writable(last) && !is_writable(under));
                assert!(stack.open_reserve());
                assert!(stack.open_reserve(), "twice is as good as once");
                assert!(is_writable(first) && is_writable(last), "open");
                assert!(!is_writable(under), "the lowest page stays guarded");
                cache.give(stack);
                assert!(!is_writable(first) && !is_writable(last) && !is_writable(under), "closed");
                let again = cache.take(size(bytes)).expect("a stack");
                assert_eq!(again.limit().wrapping_sub(1), first, "the same stack");
                assert!(again.open_reserve());
                // SAFETY: just opened, and ours.
                assert_eq!(unsafe { last.read() }, 0, "what was written there is gone");
                cache.give(again);
            }
        });
    }
}

#[test]
fn guard_variable_is_checked() {
    isolated!(guard_variable_is_checked, &[("FIBRA_GUARD", "mprotect")], || {
        assert_eq!(guard_kind_from_env(), Ok(GuardKind::Mprotect));
        assert_eq!(guard_kind(), GuardKind::Mprotect);
    });
}

#[test]
fn unknown_guard_kinds_are_refused_by_name_and_value() {
    isolated!(unknown_guard_kinds_are_refused_by_name_and_value, &[("FIBRA_GUARD", "wall")], || {
        let text = guard_kind_from_env().expect_err("not a kind");
        assert!(text.contains("FIBRA_GUARD=wall") && text.contains("mprotect"), "{text}");
    });
}

/// At the cap there is an error and not an abort, the rest of the process goes on, and a stack that is given back can be taken
/// again.
#[test]
fn with_mprotect_stacks_run_out_and_come_back() {
    isolated!(with_mprotect_stacks_run_out_and_come_back, &[("FIBRA_GUARD", "mprotect")], || {
        let mut cache = StackCache::new();
        let mut stacks = Vec::new();
        let error = loop {
            match cache.take(size(64 << 10)) {
                Ok(stack) => stacks.push(stack),
                Err(error) => break error,
            }
        };
        println!("{} stacks: {error}", stacks.len());
        assert!(matches!(error, NoStack::OutOfMappings { .. }));
        assert!(error.to_string().contains("vm.max_map_count"));
        assert_eq!(stacks.len(), mprotect_cap());
        assert!(cache.take(StackSize::ROOT).is_err(), "own mappings count too");
        assert!(cache.take(StackSize::DEFAULT).is_err(), "and every size");
        std::thread::spawn(|| drop(vec![0u8; 64 << 20])).join().expect("threads and memory are to be had");
        let stack = stacks.pop().expect("many");
        assert!(stack.open_reserve(), "a panic can unwind even now");
        cache.give(stack);
        stacks.push(cache.take(size(64 << 10)).expect("the one just given"));
        let count = stacks.len();
        stacks.drain(..).for_each(|stack| cache.give(stack));
        for _ in 0..count {
            stacks.push(cache.take(size(64 << 10)).expect("all that were given"));
        }
        assert!(cache.take(size(64 << 10)).is_err());
    });
}

/// A system that gives no more address space is an error with its cause, for every size, and a stack that is given back can be
/// taken again.
#[test]
#[cfg_attr(any(fibra_asan, fibra_tsan), ignore = "a sanitizer needs address space itself")]
fn refused_memory_is_an_error() {
    isolated!(refused_memory_is_an_error, &[], || {
        let limit_to = |bytes: u64| {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: sets a limit of this process from a valid struct.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
        };
        let (mut cache, mut stacks) = (StackCache::new(), Vec::with_capacity(10_000));
        stacks.push(cache.take(StackSize::DEFAULT).expect("a stack"));
        limit_to(status_bytes("VmSize") as u64 + (100 << 20));
        let error = loop {
            match cache.take(StackSize::DEFAULT) {
                Ok(stack) => stacks.push(stack),
                Err(error) => break error,
            }
        };
        let large = cache.take(StackSize::ROOT);
        let last = stacks.pop().expect("many");
        let top = last.top();
        cache.give(last);
        let again = cache.take(StackSize::DEFAULT);
        limit_to(libc::RLIM_INFINITY);
        println!("{} stacks: {error}", stacks.len());
        assert!(matches!(error, NoStack::OutOfMemory(_)) && error.to_string().contains("ulimit -v"), "{error}");
        assert!(matches!(large, Err(NoStack::OutOfMemory(_))));
        assert!(stacks.len() > 300, "most of the 100 MiB went into stacks: {}", stacks.len());
        assert_eq!(again.expect("the one just given").top(), top);
        let _ = cache.take(StackSize::DEFAULT).expect("there is memory again");
    });
}

/// S1-09: a stack costs the memory that was touched, and the memory goes back to the system when it is not needed.
#[test]
#[cfg_attr(any(fibra_asan, fibra_tsan), ignore = "counts resident memory, of which a sanitizer's shadow is a part")]
fn trimming_returns_memory_and_the_stacks_stay_good() {
    for variables in BOTH_GUARDS {
        isolated!(trimming_returns_memory_and_the_stacks_stay_good, variables, || {
            const COUNT: usize = 2000;
            const TOUCHED: usize = 32 << 10;
            let mut cache = StackCache::new();
            let use_all = |cache: &mut StackCache| {
                let stacks: Vec<Stack> = (0..COUNT).map(|_| cache.take(size(64 << 10)).expect("a stack")).collect();
                for stack in &stacks {
                    // SAFETY: 32 KiB below the top of a 64 KiB stack are its own.
                    unsafe { stack.top().sub(TOUCHED).write_bytes(1, TOUCHED) };
                    stack.saved_context().set(1);
                    // SAFETY: `retire` only counts.
                    unsafe { stack.set_prepared(retire) };
                }
                stacks.into_iter().for_each(|stack| cache.give(stack));
                cache.flush();
            };
            let before = status_bytes("VmRSS");
            use_all(&mut cache);
            let used = status_bytes("VmRSS");
            assert!(used - before > COUNT * TOUCHED * 9 / 10, "{before} {used}");
            assert_eq!(trim_depot(usize::MAX), 0, "the first look only begins to watch");
            use_all(&mut cache);
            assert_eq!(trim_depot(usize::MAX), 0, "all were in use since");
            let some = trim_depot(100);
            assert_eq!(some, 128, "the budget, in whole batches");
            let rest = trim_depot(usize::MAX);
            println!("trimmed {some} + {rest}, from {used} to {} bytes", status_bytes("VmRSS"));
            assert!(some + rest >= COUNT - 5 * 64, "all but the few that are kept");
            assert_eq!(RETIRED.load(Ordering::Relaxed), some + rest, "each context was taken back once");
            assert!(status_bytes("VmRSS") - before < COUNT * TOUCHED / 4);
            // Warm stacks first; then stacks without memory, which are fresh again.
            let (reused, fresh) = (cache.reused(), cache.fresh());
            let stacks: Vec<Stack> = (0..COUNT).map(|_| cache.take(size(64 << 10)).expect("a stack")).collect();
            assert_eq!(cache.fresh() - fresh, (some + rest) as u64);
            assert_eq!(cache.reused() - reused, (COUNT - some - rest) as u64);
            let (cold, warm): (Vec<_>, Vec<_>) = stacks.iter().partition(|stack| !stack.is_prepared());
            assert_eq!((cold.len(), warm.len()), (some + rest, COUNT - some - rest));
            for stack in cold {
                assert_eq!(stack.saved_context().get(), 0);
                // SAFETY: as above; discarded memory reads as zero.
                assert!(unsafe { (0..TOUCHED).step_by(64).all(|below| stack.top().sub(64 + below).read() == 0) });
                assert!(!is_writable(stack.limit().wrapping_sub(1)), "still guarded");
            }
            let distinct: HashSet<_> = stacks.iter().map(|stack| stack.top()).collect();
            assert_eq!(distinct.len(), COUNT);
        });
    }
}

#[test]
fn large_stacks_are_pooled_a_little_and_then_unmapped() {
    isolated!(large_stacks_are_pooled_a_little_and_then_unmapped, &[], || {
        let mut cache = StackCache::new();
        let stacks: Vec<Stack> = (0..20).map(|_| cache.take(StackSize::ROOT).expect("a stack")).collect();
        let limits: Vec<_> = stacks.iter().map(Stack::limit).collect();
        for stack in &stacks {
            stack.saved_context().set(1);
            // SAFETY: `retire` only counts.
            unsafe { stack.set_prepared(retire) };
        }
        stacks.into_iter().for_each(|stack| cache.give(stack));
        let kept = limits.iter().filter(|limit| find(limit.addr()).is_some()).count();
        assert_eq!(kept, 4);
        assert_eq!(RETIRED.load(Ordering::Relaxed), 16, "those that were unmapped, and only those");
        assert_eq!(limits.iter().filter(|limit| is_writable(**limit)).count(), kept, "the others are unmapped");
        let again = cache.take(StackSize::ROOT).expect("a stack");
        assert_eq!((cache.fresh(), cache.reused()), (20, 1));
        assert_eq!(find(again.limit().addr()).expect("ours").size, StackSize::ROOT);
        cache.give(again);
        assert_eq!(trim_depot(usize::MAX), 0);
        assert_eq!(trim_depot(usize::MAX), 4);
        assert_eq!(RETIRED.load(Ordering::Relaxed), 20);
        assert!(limits.iter().all(|limit| find(limit.addr()).is_none() && !is_writable(*limit)));
        // Too large to be pooled at all.
        let huge = cache.take(size(1 << 30)).expect("address space");
        let limit = huge.limit();
        assert!(is_writable(limit));
        cache.give(huge);
        assert!(!is_writable(limit));
    });
}

/// Stacks go back and forth between the caches of two threads; each is with one of them at any time.
#[test]
fn caches_exchange_stacks_through_the_depot() {
    isolated!(caches_exchange_stacks_through_the_depot, &[], || {
        let (to_b, from_a) = std::sync::mpsc::sync_channel::<Stack>(8);
        let (to_a, from_b) = std::sync::mpsc::sync_channel::<Stack>(8);
        let work = |me: u64, out: std::sync::mpsc::SyncSender<Stack>, inbox: std::sync::mpsc::Receiver<Stack>| {
            move || {
                let mut cache = StackCache::new();
                for round in 0..20_000u64 {
                    let stack = cache.take(size(32 << 10)).expect("a stack");
                    let mark = stack.record().user_area().cast::<u64>();
                    // SAFETY: the user area holds a u64 and belongs to the holder of the stack.
                    unsafe { mark.write(me << 32 | round) };
                    let mut held: Vec<Stack> =
                        (0..round % 200).map(|_| cache.take(size(32 << 10)).expect("a stack")).collect();
                    held.extend(inbox.try_recv());
                    // SAFETY: as above.
                    assert_eq!(unsafe { mark.read() }, me << 32 | round, "another thread has the same stack");
                    held.drain(..).for_each(|stack| cache.give(stack));
                    if let Err(back) = out.try_send(stack) {
                        let (std::sync::mpsc::TrySendError::Full(stack)
                        | std::sync::mpsc::TrySendError::Disconnected(stack)) = back;
                        cache.give(stack);
                    }
                }
                println!("fresh {}, reused {}", cache.fresh(), cache.reused());
            }
        };
        let other = std::thread::spawn(work(1, to_a, from_a));
        work(2, to_b, from_b)();
        other.join().expect("no assertion failed there");
    });
}

#[test]
#[cfg_attr(any(fibra_asan, fibra_tsan), ignore = "counts resident memory, of which a sanitizer's shadow is a part")]
fn a_hundred_thousand_stacks_take_few_mappings() {
    isolated!(a_hundred_thousand_stacks_take_few_mappings, &[], || {
        if guard_kind() == GuardKind::Madvise {
            take_many(100_000);
        }
    });
}

/// a million guarded stacks at once. Needs 5 GB.
#[test]
#[cfg_attr(any(fibra_asan, fibra_tsan), ignore = "counts resident memory, of which a sanitizer's shadow is a part")]
fn a_million_stacks() {
    if big_tests() {
        isolated!(a_million_stacks, &[], || take_many(1_000_000));
    }
}

fn take_many(count: usize) {
    let (mut cache, mut stacks) = (StackCache::new(), Vec::with_capacity(count));
    let before = (status_bytes("VmRSS"), status_bytes("VmPTE"), mappings());
    let started = policy::now();
    stacks.resize_with(count, || cache.take(StackSize::DEFAULT).expect("a stack"));
    let nanos = policy::now() - started;
    let rss = status_bytes("VmRSS") - before.0;
    let tables = status_bytes("VmPTE") - before.1;
    let mappings = mappings() - before.2;
    println!(
        "{count} stacks of 256 KiB in {} ms, {} ns each; {} bytes RSS and {} bytes of page tables each; \
         {mappings} mappings",
        nanos / 1_000_000,
        nanos / count as u64,
        rss / count,
        tables / count,
    );
    assert!(mappings < 100);
    // One page and 512 bytes of page table; the list that holds them here is part of it.
    assert!((rss + tables) / count < 4096 + 512 + 64);
    let distinct: HashSet<_> = stacks.iter().map(|stack| stack.top()).collect();
    assert_eq!(distinct.len(), count);
    assert!(!is_writable(stacks[count - 1].limit().wrapping_sub(1)));
}

/// Prints the cost of the hot path; asserts nothing about time.
#[test]
fn take_and_give_cost() {
    if !big_tests() {
        return;
    }
    const SAMPLES: usize = 2000;
    const ROUNDS: u64 = 1000;
    const HELD: usize = 32;
    let mut cache = StackCache::new();
    let mut held: [Option<Stack>; HELD] = std::array::from_fn(|_| cache.take(StackSize::DEFAULT).ok());
    let mut sample = || {
        let started = policy::now();
        for _ in 0..ROUNDS {
            // Many stacks at a time: a single one would measure how fast a store reaches the next load, in a chain that no
            // program has.
            held.iter_mut().for_each(|stack| cache.give(stack.take().expect("held")));
            held.iter_mut().for_each(|stack| *stack = cache.take(std::hint::black_box(StackSize::DEFAULT)).ok());
        }
        policy::now() - started
    };
    // The least of many short samples is the one that no other process disturbed.
    let nanos = (0..SAMPLES).map(|_| sample()).min().expect("many samples");
    println!("take and give: {:.2} ns", nanos as f64 / (ROUNDS * HELD as u64) as f64);
}

// S1-96, S1-97, S1-56, S1-60, S4-28, S4-43: code that gives a stack back, or commits the park of its fiber, does not run on that stack:
// debug builds check it at each of these steps, in every test that ends or parks a fiber (S0-100, S1-14, S1-20). This test shows that the
// check tells the two cases apart.
#[test]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[cfg_attr(fibra_asan, ignore = "locals are not where the stack pointer is")]
fn who_stands_on_a_stack_is_known() {
    use crate::fiber::testing::call_on;
    use std::cell::RefCell;
    thread_local! {
        /// The stack that `stands` runs on, another one, and what it found.
        static STACKS: RefCell<Option<(Stack, Stack)>> = const { RefCell::new(None) };
        static FOUND: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
    }
    extern "C" fn stands() {
        let (mine, other) = STACKS.take().expect("two stacks");
        let mut found = vec![mine.record().is_stood_on(), other.record().is_stood_on()];
        let mut cache = StackCache::new();
        cache.give(other);
        // A panic does not leave this stack.
        let given = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.give(mine)));
        found.push(given.is_err());
        FOUND.set(found);
        // The cache holds the stack that was refused or, in release builds, ours: no test may take it from here.
        std::mem::forget(cache);
    }
    isolated!(who_stands_on_a_stack_is_known, &[], || {
        let mut cache = StackCache::new();
        for bytes in [32 << 10, 256 << 10, 2 << 20] {
            let (mine, other) = (cache.take(size(bytes)).expect("a stack"), cache.take(size(bytes)).expect("a stack"));
            assert!(!mine.record().is_stood_on() && !other.record().is_stood_on(), "this is the thread's own");
            // SAFETY: the handle that is made a second time is used only to name the stack that the code runs on.
            let same = unsafe { Stack::from_raw(std::ptr::NonNull::from(mine.record())) };
            let named = std::mem::ManuallyDrop::new(same);
            STACKS.set(Some((mine, other)));
            call_on(&named, stands);
            assert_eq!(FOUND.take(), [true, false, cfg!(debug_assertions)], "{bytes}");
        }
    });
}
