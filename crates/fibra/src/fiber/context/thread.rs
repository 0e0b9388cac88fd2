//! The switch over OS threads: every fiber has a thread, and exactly one of fiber and scheduler runs at a time. Slow and exact:
//! loom, shuttle, ThreadSanitizer and Miri understand threads where they do not understand a change of the stack pointer.
//!
//! A context is the address of a [`Record`], kept alive by a counted reference in the context and one in the thread. `resume` writes
//! it into `*home` too, so that `suspend` finds its own; no thread-local is used, because the checkers run many threads on one.
//!
//! The hand-over is one word under one lock, [`ThreadTurn`]: the side whose turn it is goes on, the other side waits. The lock also orders
//! all memory of the two sides, as a real switch would.
//!
//! The thread starts at the first `resume`: a context that never ran costs no thread. `destroy` of a suspended context makes its
//! `suspend` unwind up to the thread's first function and waits for that; the entry function must let it pass, and nothing that
//! is dropped on the way may suspend.

use super::{Context, EntryFn, HomeCall, SchedulerContext, Suspended};
use crate::prim::bug::seeded_bug;
use crate::prim::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::panic::{self, AssertUnwindSafe};

/// A fiber's code runs on an OS thread of its own: thread-locals of the worker must be set anew after each resume.
pub(crate) const OWN_THREAD: bool = true;

/// The side that may go on.
#[derive(Debug)]
enum ThreadTurn {
    /// Neither side: there is no thread yet.
    Fresh(EntryFn),
    /// The fiber, with the word it was resumed with.
    Fiber(usize),
    /// The scheduler that resumed the fiber, with the word that the fiber suspended with.
    SchedulerContext(usize),
    /// The fiber's thread, which is to end.
    Abandoned,
    /// The scheduler that abandoned the fiber: the fiber's thread will not touch anything any more.
    Ended,
}

#[derive(Debug)]
struct Record {
    turn: Mutex<ThreadTurn>,
    changed: Condvar,
}

/// The payload with which an abandoned fiber unwinds.
struct Abandon;

impl Record {
    /// Hands the turn over and waits until `mine` accepts it.
    fn hand_over<R>(
        &self,
        mut turn: MutexGuard<'_, ThreadTurn>,
        to: ThreadTurn,
        mine: impl Fn(&ThreadTurn) -> Option<R>,
    ) -> R {
        *turn = to;
        // All and not one: after `destroy` and a late wake-up both sides may wait here.
        if !seeded_bug("turn_not_notified") {
            self.changed.notify_all();
        }
        loop {
            if let Some(result) = mine(&turn) {
                return result;
            }
            turn = self.changed.wait(turn);
        }
    }

    /// The body of the fiber's thread.
    fn run(&self, entry: EntryFn) {
        let first = {
            let turn = self.turn.lock();
            match *turn {
                ThreadTurn::Fiber(word) => word,
                _ => unreachable!("the turn was handed over before the thread was started"),
            }
        };
        // SAFETY: `entry` is what `create` was given, run once, as promised.
        let ended = panic::catch_unwind(AssertUnwindSafe(|| unsafe { entry(first) }));
        let Err(payload) = ended;
        if !payload.is::<Abandon>() {
            // A model checker that gives up on a run unwinds its threads.
            #[cfg(any(loom, shuttle))]
            panic::resume_unwind(payload);
            // The other side would wait for ever; the own switch aborts here as well.
            #[cfg(not(any(loom, shuttle)))]
            std::process::abort();
        }
        *self.turn.lock() = ThreadTurn::Ended;
        self.changed.notify_all();
    }
}

/// Makes a context that has never run; its first `resume` calls `entry(word)` on a thread of its own. The stack given is not used.
///
/// # Safety
/// None here; the other back-ends need the stack.
pub(crate) unsafe fn create(_top: *mut u8, _limit: *mut u8, entry: EntryFn) -> Context {
    let record = Arc::new(Record { turn: Mutex::new(ThreadTurn::Fresh(entry)), changed: Condvar::new() });
    Context(Arc::into_raw(record) as usize)
}

/// Saves this execution in `*home`, continues `*fiber` and hands it `word`; returns the word of the `suspend` that comes back.
///
/// # Safety
/// `*fiber` is suspended or fresh; both places outlive the call. See `mod.rs`.
pub(crate) unsafe fn resume(fiber: *mut Context, home: *mut SchedulerContext, word: usize) -> usize {
    // SAFETY: the context holds a reference to its record until `destroy`.
    let record = unsafe {
        (*home).context = *fiber;
        &*((*fiber).0 as *const Record)
    };
    let mut turn = record.turn.lock();
    if let ThreadTurn::Fresh(entry) = *turn {
        // Set before the thread can look; `hand_over` sets it again to the same value.
        *turn = ThreadTurn::Fiber(word);
        // SAFETY: the address came from `Arc::into_raw`; the new reference is the thread's.
        let shared = unsafe { share(record) };
        start(move || shared.run(entry));
    }
    record.hand_over(turn, ThreadTurn::Fiber(word), |turn| match *turn {
        ThreadTurn::SchedulerContext(word) => Some(word),
        _ => None,
    })
}

/// Saves this fiber in `*fiber`, continues `*home` and hands it `word`; returns the word of the next `resume`.
///
/// # Safety
/// On a fiber's thread; `home` is what the `resume` that continued this fiber saved into. See `mod.rs`.
pub(crate) unsafe fn suspend(fiber: *mut Context, home: *mut SchedulerContext, word: usize) -> usize {
    // SAFETY: `resume` wrote our record into `*home`; this thread holds a reference to it.
    let record = unsafe {
        *fiber = (*home).context;
        &*((*home).context.0 as *const Record)
    };
    let turn = record.turn.lock();
    let resumed = record.hand_over(turn, ThreadTurn::SchedulerContext(word), |turn| match *turn {
        ThreadTurn::Fiber(word) => Some(Some(word)),
        ThreadTurn::Abandoned => Some(None),
        _ => None,
    });
    resumed.unwrap_or_else(|| panic::resume_unwind(Box::new(Abandon)))
}

/// Runs `f(data)` right here: a thread's stack is large, and it cannot run on another thread's.
///
/// # Safety
/// `f` neither unwinds nor switches.
pub(crate) unsafe fn call_on_home(_home: *const SchedulerContext, f: HomeCall, data: *mut ()) {
    // SAFETY: the caller's promise.
    unsafe { f(data) }
}

/// The fiber is a thread of its own, blocked in the kernel: there is nothing to look at.
#[allow(dead_code)] // Where it is only compared with our own switch, by tests, nothing asks.
pub(crate) fn look(_context: usize) -> Option<Suspended> {
    None
}

/// There is none on the fiber's stack, which is not used, as with [`look`].
#[allow(dead_code)] // As there.
pub(crate) fn kept_from(_suspended: Context) -> Option<usize> {
    None
}

/// Ends the thread, if there is one, and waits until it has left the fiber's code.
///
/// # Safety
/// `fiber` is suspended or was never run, and will not be continued; nothing on its stack suspends when it is dropped.
pub(crate) unsafe fn destroy(fiber: Context) {
    // SAFETY: takes the reference that `create` put into the context.
    let record = unsafe { Arc::from_raw(fiber.0 as *const Record) };
    let turn = record.turn.lock();
    match *turn {
        ThreadTurn::Fresh(_) => {}
        _ => record.hand_over(turn, ThreadTurn::Abandoned, |turn| matches!(turn, ThreadTurn::Ended).then_some(())),
    }
}

/// Nothing to switch on: a thread has control words of its own.
pub(crate) fn watch_mxcsr(_on: bool) {}

/// One more reference to a record that came from `create`.
///
/// # Safety
/// `record` is what `Arc::into_raw` returned, and the reference in the context still exists.
unsafe fn share(record: *const Record) -> Arc<Record> {
    // SAFETY: the caller's promise; the context's own reference is left alone.
    unsafe {
        let own = std::mem::ManuallyDrop::new(Arc::from_raw(record));
        Arc::clone(&own)
    }
}

/// Starts the fiber's thread, which a model checker must know about.
fn start(body: impl FnOnce() + Send + 'static) {
    #[cfg(loom)]
    loom::thread::spawn(body);
    #[cfg(all(shuttle, not(loom)))]
    shuttle::thread::spawn(body);
    #[cfg(not(any(loom, shuttle)))]
    crate::prim::thread::start("fibra-fiber".into(), body).expect("no OS thread left for a fiber");
}

/// The same hand-over under loom and under shuttle.
#[cfg(all(test, any(loom, shuttle)))]
mod model {
    use super::*;
    use crate::prim::cell::UnsafeCell;

    /// The data that the two sides share without any ordering of their own: the hand-over must provide it.
    struct HandedOver {
        fiber: UnsafeCell<Context>,
        home: UnsafeCell<SchedulerContext>,
        data: UnsafeCell<usize>,
    }

    impl HandedOver {
        /// A read-modify-write of the data in which loom would notice an overlap.
        fn add(&self, n: usize) -> usize {
            // SAFETY: only the side whose turn it is gets here; that is what the model checks.
            self.data.with_mut(|data| unsafe {
                *data += n;
                *data
            })
        }

        fn places(&self) -> (*mut Context, *mut SchedulerContext) {
            (self.fiber.with_mut(|place| place), self.home.with_mut(|place| place))
        }
    }

    unsafe extern "C-unwind" fn entry(shared: usize) -> ! {
        // SAFETY: the model's local, which outlives the fiber: `destroy` waits for it.
        let shared = unsafe { &*(shared as *const HandedOver) };
        let (fiber, home) = shared.places();
        let mut word = 100;
        loop {
            let sum = shared.add(word);
            // SAFETY: on the fiber's thread, with its own places.
            word = unsafe { suspend(fiber, home, sum) };
        }
    }

    fn alternate() {
        // SAFETY: the stack is not used by this back-end.
        let context = unsafe { create(std::ptr::null_mut(), std::ptr::null_mut(), entry) };
        let shared = Box::new(HandedOver {
            fiber: UnsafeCell::new(context),
            home: UnsafeCell::new(SchedulerContext::default()),
            data: UnsafeCell::new(1),
        });
        let (fiber, home) = shared.places();
        // SAFETY: fresh, then suspended; destroyed once, at the end.
        unsafe {
            assert_eq!(resume(fiber, home, &raw const *shared as usize), 101);
            shared.add(1000);
            assert_eq!(resume(fiber, home, 20), 1121);
            shared.add(1);
            let unstarted = create(std::ptr::null_mut(), std::ptr::null_mut(), entry);
            destroy(unstarted);
            destroy(*fiber);
        }
        assert_eq!(shared.add(0), 1122);
    }

    #[test]
    fn model_strict_alternation() {
        crate::prim::model::check(3, alternate);
    }
}
