//! What a flood of fibers or messages took goes back to the system within seconds, and then nothing ticks.
//!
//! The memory of the whole process is measured, so each test runs in a child process, where nothing else runs.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // The sanitizers keep freed memory, and their threads use time.
#![cfg(not(fibra_context = "thread"))] // A kept stack keeps its OS thread there, and that its memory.

use std::time::Duration;

use crate::support::{cpu_time, eventually, is_child, rerun_self, rss, thread_names, threads, watchdog};
use crate::tools::{many, stacks};
use fibra::Runtime;
use fibra::time::Instant;

const MIB: u64 = 1 << 20;
/// What may stay: caches of the workers, a few batches in the depots, and what the allocator keeps for itself.
const RESERVE: u64 = 12 * MIB;
/// How long the test waits for memory that should be back within three seconds.
const LONGEST: Duration = Duration::from_secs(30);

/// Runs the test in a child, which must succeed. One allocator arena, which gives back what is free at its end: the fibers' memory is
/// measured, not the habits of the C library.
#[track_caller]
fn in_child(test: &str, body: impl FnOnce()) {
    if is_child(test) {
        let _watchdog = watchdog(55);
        return body();
    }
    let ended = rerun_self(test, &[("MALLOC_ARENA_MAX", "1"), ("MALLOC_TRIM_THRESHOLD_", "131072")]);
    assert!(ended.status.success(), "{ended:?}");
    print!("{}", ended.stdout);
}

/// Waits until no more than `before` and the reserve is resident.
#[track_caller]
fn goes_back(before: u64, peak: u64) {
    assert!(peak > before + 4 * RESERVE, "no flood: {} MiB", (peak - before) / MIB);
    let begin = Instant::now();
    while rss() > before + RESERVE {
        let kept = rss().saturating_sub(before) / MIB;
        let flood = (peak - before) / MIB;
        assert!(begin.elapsed() < LONGEST, "{kept} of {flood} MiB are still there, threads: {:?}", thread_names());
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("{} MiB went back in {:?}", (peak - before) / MIB, begin.elapsed());
}

/// So many fibers at once, each with a stack of its own; answers how much memory the process had then.
fn flood(count: usize) -> u64 {
    let (tx, rx) = fibra::channel::unbounded::<()>();
    let (all_here, here) = fibra::channel::unbounded::<()>();
    let fibers: Vec<_> = (0..count)
        .map(|_| {
            let (rx, here) = (rx.clone(), all_here.clone());
            fibra::spawn(move || {
                here.send(()).unwrap();
                // Waits until the sender is gone.
                let _ = rx.recv();
            })
        })
        .collect();
    (0..count).for_each(|_| here.recv().unwrap());
    let peak = rss();
    drop(tx);
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    peak
}

/// A process that has had its flood comes to rest: no thread but those it had, no processor time, no worker that wakes up.
fn comes_to_rest(rt: &Runtime, before: usize) {
    eventually(|| threads() <= before, || format!("{:?}", thread_names()));
    let sleeps = || rt.metrics().workers.iter().map(|worker| worker.sleeps).sum::<u64>();
    let (mut used, mut slept) = (cpu_time(), sleeps());
    eventually(
        || {
            std::thread::sleep(Duration::from_millis(1500));
            let (before, others) = (std::mem::replace(&mut used, cpu_time()), std::mem::replace(&mut slept, sleeps()));
            used - before < Duration::from_millis(2) && slept == others
        },
        || "it does not come to rest".to_owned(),
    );
}

fn with_workers(workers: usize) {
    let rt = Runtime::builder().workers(workers).build().unwrap();
    rt.run(|| flood(many(100)));
    let (before, were) = (rss(), threads());
    let peak = rt.run(|| flood(stacks(40_000)));
    goes_back(before, peak.max(before + 5 * RESERVE));
    comes_to_rest(&rt, were);
    // And all of it is good for another one.
    rt.run(|| flood(stacks(40_000)));
    goes_back(before, peak.max(before + 5 * RESERVE));
}

#[test]
fn stacks_go_back_with_one_worker() {
    in_child("stacks_go_back_with_one_worker", || with_workers(1));
}

#[test]
fn stacks_go_back_with_two_workers() {
    in_child("stacks_go_back_with_two_workers", || with_workers(2));
}

// Between two runs no thread of the runtime is there.
#[test]
fn stacks_go_back_between_the_runs_of_a_current_thread_runtime() {
    in_child("stacks_go_back_between_the_runs_of_a_current_thread_runtime", || {
        let rt = Runtime::current_thread().unwrap();
        rt.run(|| flood(many(100)));
        let (before, were) = (rss(), threads());
        let peak = rt.run(|| flood(stacks(40_000)));
        goes_back(before, peak.max(before + 5 * RESERVE));
        comes_to_rest(&rt, were);
    });
}

// A runtime that goes on with something else gives back what it does not need meanwhile.
#[test]
fn stacks_go_back_while_the_runtime_is_busy() {
    in_child("stacks_go_back_while_the_runtime_is_busy", || {
        let rt = Runtime::builder().workers(1).build().unwrap();
        rt.run(|| {
            flood(many(100));
            let before = rss();
            flood(stacks(40_000));
            let begin = Instant::now();
            while rss() > before + RESERVE {
                assert!(begin.elapsed() < LONGEST, "{} MiB are still there", (rss() - before) / MIB);
                (0..1000).for_each(|_| fibra::yield_now());
            }
        });
    });
}

#[test]
fn stacks_go_back_after_the_runtime_is_gone() {
    in_child("stacks_go_back_after_the_runtime_is_gone", || {
        fibra::run(|| flood(many(100)));
        let (before, were) = (rss(), threads());
        let rt = Runtime::builder().workers(2).build().unwrap();
        let peak = rt.run(|| flood(stacks(40_000)));
        drop(rt);
        goes_back(before, peak.max(before + 5 * RESERVE));
        eventually(|| threads() <= were, || format!("{:?}", thread_names()));
    });
}

// Unstarted fibers have no stack: only the frames count, and the queue they stand in.
#[test]
fn the_frames_of_unstarted_fibers_go_back() {
    in_child("the_frames_of_unstarted_fibers_go_back", || {
        let rt = Runtime::builder().workers(1).build().unwrap();
        let before = rss();
        let peak = rt.run(|| {
            let fibers: Vec<_> = (0..many(700_000)).map(|_| fibra::spawn(|| ())).collect();
            let peak = rss();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            peak
        });
        goes_back(before, peak);
    });
}

// The last owner of a frame may be a plain thread, while all workers sleep.
#[test]
fn the_frames_of_handles_that_a_thread_held_go_back() {
    in_child("the_frames_of_handles_that_a_thread_held_go_back", || {
        let rt = Runtime::builder().workers(1).build().unwrap();
        let before = rss();
        let fibers: Vec<_> = (0..many(700_000)).map(|_| rt.spawn(|| ())).collect();
        eventually(|| fibers.iter().all(|fiber| fiber.is_finished()), || "they do not end".to_owned());
        let peak = rss();
        drop(fibers);
        goes_back(before, peak);
    });
}

// Every 50th fiber stays: the blocks of memory its frame lies in stay with it, and nothing looks at them again and again.
#[test]
fn frames_that_are_scattered_are_left_alone() {
    in_child("frames_that_are_scattered_are_left_alone", || {
        let rt = Runtime::builder().workers(1).build().unwrap();
        rt.run(|| flood(many(100)));
        let were = threads();
        let (tx, rx) = fibra::channel::unbounded::<()>();
        let stay: Vec<_> = (0..stacks(100_000))
            .filter_map(|number| {
                let rx = rx.clone();
                let fiber = rt.spawn(move || if number % 50 == 0 { rx.recv().is_err() } else { true });
                (number % 50 == 0).then_some(fiber)
            })
            .collect();
        eventually(|| rt.metrics().parked == stay.len() as u64, || format!("{:?}", rt.metrics()));
        comes_to_rest(&rt, were);
        drop(tx);
        stay.into_iter().for_each(|fiber| assert!(fiber.join().unwrap()));
    });
}

#[test]
fn the_buffer_of_a_drained_channel_goes_back() {
    in_child("the_buffer_of_a_drained_channel_goes_back", || {
        let before = rss();
        let (tx, rx) = fibra::channel::unbounded::<[u64; 8]>();
        (0..1_000_000_u64).for_each(|number| tx.send([number; 8]).unwrap());
        let peak = rss();
        (0..1_000_000_u64).for_each(|number| assert_eq!(rx.recv().unwrap()[7], number));
        goes_back(before, peak);
        // It is as good as new.
        (0..1000).for_each(|number| tx.send([number; 8]).unwrap());
        (0..1000).for_each(|number| assert_eq!(rx.try_recv().unwrap()[0], number));
    });
}

/// Touches so many kilobytes of stack.
#[inline(never)]
fn deep(kilobytes: usize) -> u8 {
    let page = std::hint::black_box([kilobytes as u8; 1024]);
    let below = if kilobytes == 0 { 0 } else { deep(kilobytes - 1) };
    std::hint::black_box(&page)[kilobytes % 1024].wrapping_add(below)
}

/// Fibers that have called deeply and wait: the pages below come back while they wait, and what they have on their stacks stays as it is.
fn waits_after_a_deep_call(rt: &Runtime, beside: impl Fn() + Send + Sync + 'static) {
    const FIBERS: usize = 1000;
    let before = rt.run(|| {
        flood(FIBERS);
        rss()
    });
    rt.run(move || {
        let (go, gate) = fibra::channel::unbounded::<usize>();
        let (here, all_here) = fibra::channel::unbounded::<()>();
        let fibers: Vec<_> = (0..FIBERS)
            .map(|number| {
                let (gate, here) = (gate.clone(), here.clone());
                fibra::spawn(move || {
                    let mine: [usize; 200] = std::hint::black_box(std::array::from_fn(|at| number + at));
                    let sum = deep(100);
                    here.send(()).unwrap();
                    let answer = gate.recv().unwrap();
                    assert!(mine.iter().enumerate().all(|(at, value)| *value == number + at));
                    assert_eq!(deep(100), sum);
                    answer
                })
            })
            .collect();
        (0..FIBERS).for_each(|_| all_here.recv().unwrap());
        let peak = rss();
        let begin = Instant::now();
        assert!(peak > before + 4 * RESERVE, "no deep calls: {} KiB", peak.saturating_sub(before) / 1024);
        // (Their own pages, two at the most where nothing is optimised, are among the memory before.)
        while rss() > before + RESERVE {
            assert!(begin.elapsed() < LONGEST, "{} of {} MiB are still there", (rss() - before) / MIB, peak / MIB);
            beside();
        }
        println!("{} MiB went back in {:?}", (peak - before) / MIB, begin.elapsed());
        (0..FIBERS).for_each(|value| go.send(value).unwrap());
        let sum: usize = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
        assert_eq!(sum, FIBERS * (FIBERS - 1) / 2);
    });
}

#[test]
fn pages_of_deep_calls_go_back_while_fibers_wait() {
    in_child("pages_of_deep_calls_go_back_while_fibers_wait", || {
        let rt = Runtime::builder().workers(2).build().unwrap();
        waits_after_a_deep_call(&rt, || fibra::sleep(Duration::from_secs(1)));
        comes_to_rest(&rt, threads());
    });
}

// The worker never rests for long, and has to look all the same.
#[test]
fn pages_of_deep_calls_go_back_beside_a_busy_fiber() {
    in_child("pages_of_deep_calls_go_back_beside_a_busy_fiber", || {
        let rt = Runtime::builder().workers(1).build().unwrap();
        waits_after_a_deep_call(&rt, || fibra::sleep(Duration::from_millis(1)));
    });
}
