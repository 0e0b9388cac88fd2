//! What the tests of channels share: values that are counted, the three contexts in which a thing can wait, and futures that are
//! polled by hand.
//!
//! The ledger never panics in a destructor: what is wrong is written down and found by `check`, so that no unwinding hides it.
#![allow(dead_code)] // Every test file uses another part.
#![allow(clippy::disallowed_types)] // These stand outside the runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use fibra::{Handle, JoinHandle, Runtime};

pub(crate) fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().unwrap()
}

// ---- Values that are counted --------------------------------------------------------------------------------------------

/// A send of it was answered with success.
pub(crate) const ACCEPTED: u8 = 1;
/// It came out of the channel.
pub(crate) const RECEIVED: u8 = 2;
/// It was given back, or the fiber that sent it was cancelled.
pub(crate) const REFUSED: u8 = 4;
/// The future of its send was dropped: it may have been taken just before.
pub(crate) const ABANDONED: u8 = 32;
/// It is gone.
const DROPPED: u8 = 8;
/// It was there.
const CREATED: u8 = 16;

/// Makes numbered values and knows what has become of each.
#[derive(Debug, Clone)]
pub(crate) struct Ledger(Arc<Books>);

#[derive(Debug)]
struct Books {
    next: AtomicUsize,
    fates: Vec<AtomicU8>,
    /// Entries that were made twice.
    twice: AtomicUsize,
}

impl Ledger {
    /// A ledger for at most so many values.
    pub(crate) fn new(capacity: usize) -> Self {
        let fates = (0..capacity).map(|_| AtomicU8::new(0)).collect();
        Self(Arc::new(Books { next: AtomicUsize::new(0), fates, twice: AtomicUsize::new(0) }))
    }

    /// The next value.
    pub(crate) fn value(&self) -> Tracked {
        let number = self.0.next.fetch_add(1, SeqCst);
        assert!(number < self.0.fates.len(), "the ledger is full");
        self.mark(number, CREATED);
        Tracked { number, ledger: self.clone() }
    }

    pub(crate) fn mark(&self, number: usize, fate: u8) {
        if self.0.fates[number].fetch_or(fate, SeqCst) & fate != 0 {
            self.0.twice.fetch_add(1, SeqCst);
        }
    }

    pub(crate) fn created(&self) -> usize {
        self.0.next.load(SeqCst)
    }

    pub(crate) fn count(&self, fate: u8) -> usize {
        self.0.fates.iter().filter(|entry| entry.load(SeqCst) & fate != 0).count()
    }

    pub(crate) fn dropped(&self) -> usize {
        self.count(DROPPED)
    }

    /// Everything that was made is gone, once.
    #[track_caller]
    pub(crate) fn check_drops(&self) {
        assert_eq!(self.0.twice.load(SeqCst), 0, "something happened twice to one value");
        assert_eq!(self.dropped(), self.created(), "values are left over");
    }

    /// And each was either accepted and received, or refused. (Abandoned ones may or may not have been received.)
    #[track_caller]
    pub(crate) fn check_fates(&self) {
        self.check_drops();
        for number in 0..self.created() {
            let fate = self.0.fates[number].load(SeqCst) & (ACCEPTED | RECEIVED | REFUSED | ABANDONED);
            let right = [ACCEPTED | RECEIVED, REFUSED, ABANDONED, ABANDONED | RECEIVED].contains(&fate);
            assert!(right, "value {number}: {}", in_words(fate));
        }
    }
}

fn in_words(fate: u8) -> String {
    let words = [(ACCEPTED, "accepted"), (RECEIVED, "received"), (REFUSED, "refused"), (ABANDONED, "abandoned")];
    let said: Vec<&str> = words.iter().filter(|(bit, _)| fate & bit != 0).map(|(_, word)| *word).collect();
    if said.is_empty() { "never heard of again".to_owned() } else { said.join(" and ") }
}

/// A value of a ledger. Neither `Copy` nor `Clone`.
#[derive(Debug)]
pub(crate) struct Tracked {
    number: usize,
    ledger: Ledger,
}

impl Tracked {
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Writes down that a receiver has it; it is dropped with that.
    pub(crate) fn received(self) {
        self.ledger.mark(self.number, RECEIVED);
    }

    /// Writes down that it came back; it is dropped with that.
    pub(crate) fn refused(self) {
        self.ledger.mark(self.number, REFUSED);
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.ledger.mark(self.number, DROPPED);
    }
}

// ---- Contexts -----------------------------------------------------------------------------------------------------------

/// Where something runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Fiber,
    Thread,
    /// Async code, as a task of the runtime.
    Task,
    /// Async code, blocked on by a thread that has no runtime.
    Blocked,
}

pub(crate) const SIDES: [Side; 4] = [Side::Fiber, Side::Thread, Side::Task, Side::Blocked];

/// What was started on some side.
#[derive(Debug)]
pub(crate) enum Started<T> {
    Fiber(JoinHandle<T>),
    Thread(std::thread::JoinHandle<T>),
}

impl<T> Started<T> {
    #[track_caller]
    pub(crate) fn join(self) -> T {
        match self {
            Started::Fiber(fiber) => fiber.join().unwrap_or_else(|error| panic!("{error}")),
            Started::Thread(thread) => thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload)),
        }
    }
}

/// Starts `blocking` on a fiber or thread, or `future` as async code.
pub(crate) fn start<T: Send + 'static>(
    side: Side,
    handle: &Handle,
    blocking: impl FnOnce() -> T + Send + 'static,
    future: impl Future<Output = T> + Send + 'static,
) -> Started<T> {
    match side {
        Side::Fiber => Started::Fiber(handle.spawn(blocking)),
        Side::Thread => Started::Thread(std::thread::spawn(blocking)),
        Side::Task => {
            let _entered = handle.enter();
            Started::Fiber(fibra::spawn_future(future))
        }
        Side::Blocked => Started::Thread(std::thread::spawn(move || fibra::block_on(future))),
    }
}

/// Waits, on a fiber, until so many fibers of its runtime are parked.
pub(crate) fn until_parked(count: u64) {
    while Handle::current().metrics().parked != count {
        fibra::yield_now();
    }
}

/// Runs `f` as the first fiber of a runtime with one worker and no other thread: what it spawns runs in a known order.
#[track_caller]
pub(crate) fn alone<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    Runtime::current_thread().unwrap().run(f)
}

// ---- Futures by hand ----------------------------------------------------------------------------------------------------

/// A waker that counts its calls.
#[derive(Debug, Default)]
pub(crate) struct Calls(AtomicUsize);

impl Calls {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Polls once with a waker that counts.
pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>, calls: &Arc<Calls>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(calls));
    future.poll(&mut Context::from_waker(&waker))
}

/// The output of a future that must be ready.
#[track_caller]
pub(crate) fn ready<F: Future + ?Sized>(future: Pin<&mut F>) -> F::Output {
    match poll(future, &Calls::new()) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("still pending"),
    }
}
