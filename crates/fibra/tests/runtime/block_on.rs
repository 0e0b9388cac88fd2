//! `block_on`: any future, on a fiber or a thread; its waker may be called by any thread, at any time, any number of times.
#![allow(clippy::disallowed_types)] // Futures written by hand, as users do.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::support;
use fibra::Runtime;

/// Ready when the test says so; keeps every waker it was polled with.
#[derive(Default)]
struct Event {
    state: Mutex<(bool, Vec<Waker>)>,
    polls: AtomicUsize,
}

impl Event {
    fn wait(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        let event = self.clone();
        poll_fn(move |cx: &mut Context<'_>| {
            event.polls.fetch_add(1, SeqCst);
            let mut state = event.state.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1.push(cx.waker().clone());
            Poll::Pending
        })
    }

    fn set(&self) {
        let wakers = {
            let mut state = self.state.lock().unwrap();
            state.0 = true;
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Calls every waker there is, without making it ready.
    fn poke(&self) {
        let wakers = self.state.lock().unwrap().1.clone();
        wakers.iter().for_each(Waker::wake_by_ref);
    }
}

// S1-03, S1-52, S1-69, S1-70, S4-36, S4-48: complete, then wake, from another thread: the fiber sees it, every time.
#[test]
fn a_wake_from_a_thread_is_never_lost() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    for round in 0..5000u32 {
        let event = Arc::new(Event::default());
        let fiber = runtime.spawn({
            let event = event.clone();
            move || fibra::block_on(event.wait())
        });
        for _ in 0..round % 100 {
            std::hint::spin_loop();
        }
        event.set();
        fiber.join().unwrap();
    }
}

#[test]
fn on_a_thread_it_blocks_the_thread() {
    let _watchdog = support::watchdog(60);
    for _ in 0..500 {
        let event = Arc::new(Event::default());
        let setter = std::thread::spawn({
            let event = event.clone();
            move || event.set()
        });
        fibra::block_on(event.wait());
        setter.join().unwrap();
    }
    assert_eq!(fibra::block_on(async { 3 }), 3);
}

// S1-51, S1-53, S4-40, G-16: woken without a result, it looks, finds nothing and waits on; the result is never taken from the wake.
#[test]
fn wakes_without_a_result_change_nothing() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let event = Arc::new(Event::default());
    let fiber = runtime.spawn({
        let event = event.clone();
        move || fibra::block_on(event.wait())
    });
    for _ in 0..200 {
        let before = event.polls.load(SeqCst);
        support::eventually(|| !event.state.lock().unwrap().1.is_empty(), || "never polled".to_owned());
        event.poke();
        support::eventually(|| event.polls.load(SeqCst) > before, || "a wake leads to a poll".to_owned());
        assert!(!fiber.is_finished());
    }
    event.set();
    fiber.join().unwrap();
}

// S1-04, S1-54, S1-68, S1-21, S4-104: however many call, the fiber runs at most once per park: polls do not outnumber wakes.
#[test]
fn many_wakes_make_it_run_once() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let event = Arc::new(Event::default());
    let gate = Arc::new(Event::default());
    let fiber = runtime.spawn({
        let (event, gate) = (event.clone(), gate.clone());
        move || {
            fibra::block_on(event.wait());
            fibra::block_on(gate.wait());
        }
    });
    support::eventually(|| runtime.metrics().parked == 1, || "it does not park".to_owned());
    // The worker is kept busy, so all these wakes meet one park.
    let busy = Arc::new(AtomicUsize::new(0));
    let hog = runtime.spawn({
        let busy = busy.clone();
        move || {
            busy.store(1, SeqCst);
            while busy.load(SeqCst) == 1 {
                std::thread::yield_now();
            }
        }
    });
    support::eventually(|| busy.load(SeqCst) == 1, || "the hog does not run".to_owned());
    let before = event.polls.load(SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| event.poke()));
        }
    });
    busy.store(2, SeqCst);
    hog.join().unwrap();
    // (Until its worker has read its mail, the fiber counts as parked still.)
    support::eventually(|| event.polls.load(SeqCst) > before, || "it is not woken".to_owned());
    support::eventually(|| runtime.metrics().parked == 1, || "it does not park again".to_owned());
    assert_eq!(event.polls.load(SeqCst), before + 1, "4000 wakes of one park are one run");
    // S1-71: one call while it is awake (or none) is kept for its next look; then it is used up.
    event.set();
    gate.set();
    fiber.join().unwrap();
}

// S4-49, S4-93, S4-94, G-15: wakers called after the end, and long after, wake no other fiber.
#[test]
fn a_waker_may_be_called_after_the_end() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let event = Arc::new(Event::default());
    let fiber = runtime.spawn({
        let event = event.clone();
        move || fibra::block_on(event.wait())
    });
    support::eventually(|| !event.state.lock().unwrap().1.is_empty(), || "never polled".to_owned());
    let old: Vec<Waker> = event.state.lock().unwrap().1.clone();
    event.set();
    fiber.join().unwrap();
    old.iter().for_each(Waker::wake_by_ref);
    // The frame is used again, for a fiber that sleeps; the old wakers must not end its wait.
    let sleeper = runtime.spawn(|| fibra::sleep(Duration::from_secs(3600)));
    support::eventually(|| runtime.metrics().parked == 1, || "it does not sleep".to_owned());
    (0..100).for_each(|_| old.iter().for_each(Waker::wake_by_ref));
    assert!(!sleeper.wait_timeout(Duration::from_millis(5)));
    sleeper.cancel();
    assert!(sleeper.join().unwrap_err().is_cancelled());
    drop(runtime);
    old.into_iter().for_each(Waker::wake);
}

// S1-55, S1-49, S4-29: what is ready is not waited for: no switch at all.
#[test]
fn what_is_ready_needs_no_switch() {
    let runtime = Runtime::current_thread().unwrap();
    let switches = runtime.run(|| {
        let before = fibra::Handle::current().metrics().switches;
        for i in 0..100 {
            assert_eq!(fibra::block_on(std::future::ready(i)), i);
            let ended = fibra::Handle::current().metrics().switches;
            assert_eq!(ended, before);
        }
        let switches = fibra::Handle::current().metrics().switches - before;
        // S1-71: a call that finds the waiter awake is kept for its next look: it lets others run, and polls again; nothing else wakes it.
        let mut polls = 0;
        fibra::block_on(poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            if polls < 100 { Poll::Pending } else { Poll::Ready(()) }
        }));
        switches
    });
    assert_eq!(switches, 0);
}

// S1-47, S4-19: blocking calls inside a poll are waits like any other; the future's own wait is not confused by them.
#[test]
fn a_poll_may_block() {
    let _watchdog = support::watchdog(60);
    struct Blocks(u32);
    impl Future for Blocks {
        type Output = u32;
        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<u32> {
            self.0 += 1;
            cx.waker().wake_by_ref();
            fibra::sleep(Duration::from_micros(100));
            fibra::spawn(fibra::yield_now).join().unwrap();
            let inner = fibra::block_on(async { 1 });
            if self.0 + inner > 5 { Poll::Ready(self.0) } else { Poll::Pending }
        }
    }
    fibra::run(|| assert_eq!(fibra::block_on(Blocks(0)), 5));
    // On a thread too, where sleeping is the thread's.
    struct Sleeps(u32);
    impl Future for Sleeps {
        type Output = u32;
        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<u32> {
            self.0 += 1;
            cx.waker().wake_by_ref();
            fibra::sleep(Duration::from_micros(100));
            if self.0 == 5 { Poll::Ready(5) } else { Poll::Pending }
        }
    }
    assert_eq!(fibra::block_on(Sleeps(0)), 5);
}

// In the destructors of its thread-locals a thread waits with a record that is lent to it, another one each time: the one that the waker
// names is the one it sleeps with.
#[test]
fn a_wake_is_not_lost_on_a_thread_that_ends() {
    let _watchdog = support::watchdog(60);
    struct Last(Arc<Event>);
    impl Drop for Last {
        fn drop(&mut self) {
            fibra::block_on(self.0.wait());
        }
    }
    thread_local! {
        static EARLY: RefCell<Option<Last>> = const { RefCell::new(None) };
        static LATE: RefCell<Option<Last>> = const { RefCell::new(None) };
    }
    let events = [0; 2].map(|_| Arc::new(Event::default()));
    let [early, late] = events.clone();
    let thread = std::thread::spawn(move || {
        // One registered before fibra's own thread-locals, one after.
        EARLY.set(Some(Last(early)));
        fibra::block_on(async {});
        LATE.set(Some(Last(late)));
    });
    // In whichever order they come: each waits before it is set.
    let mut left = events.to_vec();
    while !left.is_empty() {
        let at = left.iter().position(|event| event.polls.load(SeqCst) > 0);
        match at {
            Some(at) => left.swap_remove(at).set(),
            None => std::thread::yield_now(),
        }
    }
    thread.join().unwrap();
}

// A future whose poll waits for another one: what wakes the inner one does not poll the outer one again, and what wakes the outer one
// meanwhile is not lost.
#[test]
fn a_future_that_waits_inside_its_poll_is_not_polled_for_that() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let polls = runtime.run(|| {
        let (sender, receiver) = fibra::channel::bounded(1);
        let sending = fibra::spawn(move || {
            (0..100).for_each(|_| fibra::yield_now());
            sender.send(7).unwrap();
        });
        let mut polls = 0;
        let mut received = std::pin::pin!(receiver.recv_async());
        let value = fibra::block_on(poll_fn(|cx| {
            polls += 1;
            // Parks, and is woken.
            fibra::block_on(async { fibra::spawn(fibra::yield_now).await }).unwrap();
            received.as_mut().poll(cx)
        }));
        assert_eq!(value, Ok(7));
        sending.join().unwrap();
        polls
    });
    assert!(polls <= 3, "polled {polls} times for one message");
}
