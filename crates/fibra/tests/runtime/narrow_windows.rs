//! Races whose window is a few instructions wide: two threads meet around the window, some hundred thousand times, at slightly different
//! moments. Each was shown to fail, within a minute, with the bug that is named above it planted in the shipped code (`.ci/planted-bugs`).
//!
//! A round that is lost would hang; the test then fails by itself after [`PATIENCE`], which no load of the machine reaches.
#![allow(clippy::disallowed_types)] // The two sides meet outside the runtime.

use std::future::poll_fn;
use std::hint::{black_box, spin_loop};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::support::{SLOWDOWN, Watchdog, bark, watchdog};
use crate::tools::Rng;
use fibra::channel::never;
use fibra::{CancelToken, JoinHandle, Runtime, Scope};

/// How long one round may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(20 * SLOWDOWN);

/// Rounds go on for this long.
fn duration() -> Duration {
    let millis = std::env::var("FIBRA_RACE_MS").ok().and_then(|millis| millis.parse().ok()).unwrap_or(1_500);
    Duration::from_millis(millis)
}

/// One of these tests at a time: two threads that spin for each other need a core each, or a round takes as long as a time slice.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> (Watchdog, MutexGuard<'static, ()>) {
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    (watchdog(120), alone)
}

/// Calls `round` with its number until time is up. How many there were depends on the machine, so it is printed and not judged.
fn rounds(mut round: impl FnMut(usize)) {
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < duration() {
        (0..100).for_each(|index| round(count + index));
        count += 100;
    }
    println!("{count} rounds");
}

/// Spins, giving the core away now and then (there may be fewer cores than threads), until `met`. Ends the process after [`PATIENCE`].
#[track_caller]
fn until(what: &str, mut met: impl FnMut() -> bool) {
    let begun = Instant::now();
    let mut spins = 0_u32;
    while !met() {
        spins += 1;
        if spins.is_multiple_of(1_000) {
            if begun.elapsed() > PATIENCE {
                // Not a panic: what hangs would hold up the end of the runtime too.
                bark(what, Location::caller(), PATIENCE);
            }
            std::thread::yield_now();
        }
        spin_loop();
    }
}

/// A pause of up to some hundred nanoseconds, another one each time.
fn pause(rng: &mut Rng) {
    (0..rng.below(64)).for_each(|_| spin_loop());
}

/// A pause of `steps` nanoseconds or a few times that: finer than [`pause`], whose least step is wider than some windows are.
fn short_pause(steps: usize) {
    (0..steps).for_each(|step| {
        black_box(step);
    });
}

/// A runtime whose workers do not go to sleep while this exists, so that what is sent to them from outside arrives at once.
struct Awake {
    runtime: Runtime,
    over: Arc<AtomicBool>,
    restless: Vec<JoinHandle<()>>,
}

/// A fiber on the worker that has the fewest.
fn spread(runtime: &Runtime, fiber: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let _entered = runtime.handle().enter();
    fibra::Builder::new().spread().spawn(fiber).unwrap()
}

impl Awake {
    fn new(workers: usize) -> Self {
        let runtime = Runtime::builder().workers(workers).build().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let restless = (0..workers)
            .map(|_| {
                let over = over.clone();
                let yields = move || {
                    while !over.load(SeqCst) {
                        fibra::yield_now();
                    }
                };
                spread(&runtime, yields)
            })
            .collect();
        Self { runtime, over, restless }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        self.restless.drain(..).for_each(|fiber| fiber.join().unwrap());
    }
}

/// A fiber that parks while `cancel` is called from this thread, round after round: it must always end. Both sides pause before they go on,
/// because either may be the one that would come too early: the thread learns of the fiber by a cache line, which takes as long as parking.
fn cancelled_while_parking(
    body: impl Fn(CancelToken) + Copy + Send + 'static,
    cancel: impl Fn(&JoinHandle<()>, &CancelToken),
) {
    let awake = Awake::new(1);
    let mut rng = Rng::new();
    let parking = Arc::new(AtomicUsize::new(usize::MAX));
    rounds(|round| {
        let (token, about_to_park, steps) = (CancelToken::new(), parking.clone(), rng.below(256));
        let fiber = awake.runtime.spawn({
            let token = token.clone();
            move || {
                about_to_park.store(round, SeqCst);
                short_pause(steps);
                body(token);
            }
        });
        let steps = rng.below(256);
        until("the fiber did not begin", || parking.load(SeqCst) == round);
        short_pause(steps);
        cancel(&fiber, &token);
        until("a fiber sleeps through its cancellation", || fiber.is_finished());
    });
}

// Planted: `request_looks_first` (the canceller looks at the word before it sets the flag), `commit_ignores_flag` (the waiter reads the
// cancel flag before PARKING only). That the flag is read just before the commit instead of just after it (`park_reads_flag_first`) is for
// the model: no canceller fits between two instructions.
#[test]
fn stress_a_fiber_that_is_just_parking_hears_of_its_cancellation() {
    let _alone = alone();
    cancelled_while_parking(|_| assert!(never::<()>().recv().is_err()), |fiber, _| fiber.cancel());
}

// The same with a timer, which is one more owner of the wait.
#[test]
fn stress_a_fiber_that_is_just_going_to_sleep_hears_of_its_cancellation() {
    let _alone = alone();
    cancelled_while_parking(|_| fibra::sleep(Duration::from_secs(3600)), |fiber, _| fiber.cancel());
}

// The same for the body of a scope, whose cancellation is another flag.
#[test]
fn stress_a_body_that_is_just_parking_hears_of_its_token() {
    let _alone = alone();
    cancelled_while_parking(
        |token| assert!(Scope::builder().token(token).run(|_| never::<()>().recv()).is_err()),
        |_, token| token.cancel(),
    );
}

// Planted: `task_commit_drops_wake`. The thread sees the waker while the poll that gave it out still runs, and calls it at once: the wake
// meets the task between its poll and its being parked.
#[test]
fn stress_a_task_that_is_woken_while_it_is_put_away_is_polled_again() {
    let _alone = alone();
    let awake = Awake::new(1);
    let mut rng = Rng::new();
    let (waker, polls, over) =
        (Arc::new(Mutex::new(None::<Waker>)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let task = {
        let (waker, polls, over) = (waker.clone(), polls.clone(), over.clone());
        let future = poll_fn(move |cx| {
            if over.load(SeqCst) {
                return Poll::Ready(());
            }
            *waker.lock().unwrap() = Some(cx.waker().clone());
            polls.fetch_add(1, SeqCst);
            Poll::Pending
        });
        let _entered = awake.runtime.handle().enter();
        fibra::spawn_future(future)
    };
    let mut wake = |round: usize| {
        until("a wake was lost: the task is not polled", || polls.load(SeqCst) > round);
        pause(&mut rng);
        let waker = waker.lock().unwrap().take().expect("every poll leaves one");
        waker.wake();
    };
    let mut last = 0;
    rounds(|round| {
        wake(round);
        last = round + 1;
    });
    until("a wake was lost: the task is not polled", || polls.load(SeqCst) > last);
    over.store(true, SeqCst);
    waker.lock().unwrap().take().expect("every poll leaves one").wake();
    task.join().unwrap();
}

/// Writes over the stack below the caller, where a wait that is over had its node.
#[inline(never)]
fn overwrite_the_stack() {
    let rubbish = black_box([0xAAAA_AAAA_AAAA_AAA8_u64; 512]);
    black_box(&rubbish);
}

// Planted: `joiner_leaves_early`. A fiber cancels its last joiner and ends at once. Threads that joined it before are woken one after the
// other, which takes a while; meanwhile the last joiner goes, and its stack is used for something else.
#[test]
fn stress_a_joiner_that_leaves_waits_until_the_ending_fiber_has_let_go_of_its_node() {
    let _alone = alone();
    let awake = Awake::new(2);
    let mut rng = Rng::new();
    rounds_of_joiners(&awake, &mut rng);
}

fn rounds_of_joiners(awake: &Awake, rng: &mut Rng) {
    const THREADS: usize = 3;
    /// What the joining threads are given in each round.
    type Joined = Arc<JoinHandle<()>>;
    let slots: Vec<Mutex<Option<Joined>>> = (0..THREADS).map(|_| Mutex::new(None)).collect();
    let (over, joining) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        let (slots, over, joining) = (&slots, &over, &joining);
        for slot in slots {
            threads.spawn(move || {
                while !over.load(SeqCst) {
                    let Some(handle) = slot.lock().unwrap().take() else {
                        std::thread::yield_now();
                        continue;
                    };
                    joining.fetch_add(1, SeqCst);
                    handle.wait();
                    drop(handle);
                    joining.fetch_sub(1, SeqCst);
                }
            });
        }
        rounds(|_| {
            let token = CancelToken::new();
            let (go, is_there) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let ending: Joined = Arc::new(awake.runtime.spawn({
                let (go, token) = (go.clone(), token.clone());
                move || {
                    while !go.load(SeqCst) {
                        fibra::yield_now();
                    }
                    token.cancel();
                }
            }));
            for slot in slots {
                *slot.lock().unwrap() = Some(ending.clone());
            }
            until("the threads do not join", || joining.load(SeqCst) == THREADS);
            pause(rng);
            let leaving = {
                let (ending, is_there) = (ending.clone(), is_there.clone());
                let joins_and_leaves = move || {
                    is_there.store(true, SeqCst);
                    let _either = Scope::builder().token(token).run(|_| ending.wait());
                    overwrite_the_stack();
                };
                spread(&awake.runtime, joins_and_leaves)
            };
            until("the last joiner does not begin", || is_there.load(SeqCst));
            pause(rng);
            go.store(true, SeqCst);
            until("the last joiner does not end", || leaving.is_finished());
            until("the joiners do not end", || joining.load(SeqCst) == 0);
        });
        over.store(true, SeqCst);
    });
}
