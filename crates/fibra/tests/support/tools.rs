//! What the scheduler's tests share: things a future can wait for, chance with a seed, and how much of a thing is many here.
//!
//! The events are ordinary async code over std's locks: the runtime knows them only by the wakers it gave out.
#![allow(dead_code)] // Every test file uses another part.
#![allow(clippy::disallowed_types)] // These stand outside the runtime.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

/// So many, where stacks are cheap; fewer where every fiber is an OS thread or every access is checked.
pub(crate) const fn many(count: usize) -> usize {
    let divisor = if cfg!(fibra_context = "thread") {
        50
    } else if cfg!(any(fibra_asan, fibra_tsan)) {
        20
    } else {
        1
    };
    if count / divisor == 0 { 1 } else { count / divisor }
}

/// Does the guard of every stack need mappings of its own? Not since Linux 6.13, unless it is forced.
pub(crate) fn guards_are_mapped() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux has /proc");
    let mut parts = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    version < (6, 13) || std::env::var("FIBRA_GUARD").is_ok_and(|guard| guard == "mprotect")
}

/// So many started fibers at once, if the kernel guards stacks without a mapping for each. Elsewhere a process, which several tests
/// share, may have some ten thousand.
pub(crate) fn stacks(count: usize) -> usize {
    many(if guards_are_mapped() { count.min(5_000) } else { count })
}

/// How many more mappings a thousand runtimes may have left behind, where a leak would leave one each, or every third: the kernel merges
/// and splits them as it likes, the allocator has its own, and stacks are kept, with two for each guard that needs one.
pub(crate) fn mappings_to_spare() -> usize {
    if guards_are_mapped() { 250 } else { 50 }
}

/// So many turns of a loop: fewer where each takes longer.
pub(crate) const fn turns(count: usize) -> usize {
    if cfg!(any(fibra_context = "thread", fibra_asan, fibra_tsan)) { count / 20 + 1 } else { count }
}

// ---- Events -------------------------------------------------------------------------------------------------------------

/// Happens once; any number of futures wait for it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Event(Arc<Mutex<EventState>>);

#[derive(Debug, Default)]
struct EventState {
    happened: bool,
    wakers: Vec<Waker>,
}

impl Event {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn set(&self) {
        let wakers = {
            let mut state = self.0.lock().unwrap();
            state.happened = true;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.lock().unwrap().happened
    }

    /// How many wait: each has given its waker, though it may not have parked yet.
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().unwrap().wakers.len()
    }

    /// Calls the wakers although nothing has happened.
    pub(crate) fn wake_in_vain(&self) {
        let wakers = self.0.lock().unwrap().wakers.clone();
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) async fn happened(&self) {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if state.happened {
                return Poll::Ready(());
            }
            if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.wakers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Waits here: the fiber or the thread.
    #[track_caller]
    pub(crate) fn wait(&self) {
        fibra::block_on(self.happened());
    }
}

/// A number that goes up; futures wait until it has come to what they want. Two that count each other up are a hot pair.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter(Arc<Mutex<(u64, Vec<Waker>)>>);

impl Counter {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn add(&self, count: u64) {
        let wakers = {
            let mut state = self.0.lock().unwrap();
            state.0 += count;
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.lock().unwrap().0
    }

    pub(crate) async fn reached(&self, wanted: u64) {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if state.0 >= wanted {
                return Poll::Ready(());
            }
            if !state.1.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.1.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Waits here: the fiber or the thread.
    #[track_caller]
    pub(crate) fn wait(&self, wanted: u64) {
        fibra::block_on(self.reached(wanted));
    }
}

// ---- Chance -------------------------------------------------------------------------------------------------------------

/// Random numbers that can be had again: the seed is printed (a failing test shows it) and taken from `FIBRA_TEST_SEED`.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new() -> Self {
        let given = std::env::var("FIBRA_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
            now.as_nanos() as u64
        });
        println!("FIBRA_TEST_SEED={seed}");
        Self(seed | 1)
    }

    /// Another stream, for another thread.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next() | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = self.0 ^ (self.0 >> 29);
        mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
