//! What a review of machines found: each of these failed once.
#![cfg(not(any(loom, shuttle)))]

mod support;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use fibra::machine::{
    CANCELLED, CallError, Child, EventLoop, Machine, MachineRef, OpPool, Ports, Request, Seat, Timestamp, UNREACHABLE,
};
use fibra::{Handle, Runtime};

/// How long somebody is given who should not need any of it.
const LONG: Duration = Duration::from_secs(10 * support::SLOWDOWN);

fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().unwrap()
}

/// A machine that is a function.
struct Tick<F>(F);
impl<F: FnMut(Timestamp, &mut Ports<'_>) + 'static> Machine for Tick<F> {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        (self.0)(now, ports);
    }
}

fn doubling() -> impl Machine + Send {
    Tick(|_, ports: &mut Ports<'_>| {
        while let Some(request) = ports.input.submissions.pop() {
            let number = *request.data::<i32>().unwrap();
            ports.complete(request, number * 2);
        }
    })
}

/// Keeps what it is given, answers what is cancelled, and counts both.
#[derive(Default, Clone)]
struct Seen {
    came: Arc<AtomicUsize>,
    cancelled: Arc<AtomicUsize>,
}
fn holding(seen: &Seen) -> impl Machine + Send {
    let (seen, mut held) = (seen.clone(), Vec::<Request>::new());
    Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(request) = ports.input.submissions.pop() {
            held.push(request);
            seen.came.fetch_add(1, SeqCst);
        }
        while let Some(cancel) = ports.input.cancellations.pop() {
            let held_at = held.iter().position(|request| request.id() == cancel.id()).expect("it was not answered");
            ports.complete(held.remove(held_at), CANCELLED);
            seen.cancelled.fetch_add(1, SeqCst);
        }
    })
}

/// Data whose destructor panics, once.
struct Grenade(Arc<AtomicBool>);
impl Drop for Grenade {
    fn drop(&mut self) {
        if self.0.swap(false, SeqCst) {
            panic!("a destructor that panics, as the test wants it");
        }
    }
}
fn grenade() -> Grenade {
    Grenade(Arc::new(AtomicBool::new(true)))
}

/// Polls until it is ready, without ever sleeping; none if that takes too long.
fn spin<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let (began, mut cx) = (Instant::now(), Context::from_waker(Waker::noop()));
    for round in 0_u64.. {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Some(output);
        }
        if round % 1024 == 0 {
            if began.elapsed() > LONG {
                return None;
            }
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
    None
}

/// Waits without keeping a worker from its machines.
#[track_caller]
fn while_not(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < LONG, "it did not happen");
        fibra::sleep(Duration::from_millis(1));
    }
}

// A message that came between the loop's last look and its sleep rang a bell that the loop then cleared: it slept on its mail.
#[test]
fn a_call_that_meets_the_loop_on_its_way_to_sleep() {
    let _watchdog = support::watchdog(120);
    let rt = runtime(1);
    let machine = rt.attach(doubling());
    let _entered = rt.handle().enter();
    for round in 0..300_000 / support::SLOWDOWN as i32 {
        let answer = spin(machine.call_async(0, round)).expect("the loop sleeps on its mail");
        assert_eq!(answer.unwrap().result, round.wrapping_mul(2));
        // Moves the next call about in the time that the loop needs to fall asleep.
        (0..round % 128).for_each(|_| std::hint::spin_loop());
    }
}

// Data whose destructor panics while the input of a machine is dropped: the others there are answered, and the loop goes on.
#[test]
fn data_that_panics_when_dropped_takes_nobody_along() {
    let _watchdog = support::watchdog(60);
    let rt = runtime(1);
    // Takes nothing out.
    let deaf = rt.attach(Tick(|_, _: &mut Ports<'_>| ()));
    let double = rt.attach(doubling());
    let fuse = Arc::new(AtomicBool::new(true));
    let theirs = Grenade(fuse.clone());
    let _entered = rt.handle().enter();
    let mut gives_up = Box::pin(deaf.call_async(0, theirs));
    let mut waits = Box::pin(deaf.call_async(0, 7));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(gives_up.as_mut().poll(&mut cx).is_pending() && waits.as_mut().poll(&mut cx).is_pending());
    drop(gives_up);
    assert_eq!(double.call(0, 1).unwrap().result, 2);
    assert!(deaf.detach());
    assert!(!fuse.load(SeqCst), "the destructor ran");
    assert_eq!(spin(waits).expect("forgotten").unwrap_err(), CallError::Abandoned(7));
    assert_eq!(double.call(0, 2).expect("the loop goes on").result, 4);
}

// The same on the way home: the caller is gone, and the loop that brings the answer drops the data.
#[test]
fn data_that_panics_on_its_way_home() {
    let _watchdog = support::watchdog(60);
    let rt = runtime(1);
    let seen = Seen::default();
    let held = rt.attach(holding(&seen));
    let double = rt.attach(doubling());
    let fuse = Arc::new(AtomicBool::new(true));
    let theirs = Grenade(fuse.clone());
    let _entered = rt.handle().enter();
    assert!(held.call_timeout(0, theirs, Duration::from_millis(1)).is_err_and(|error| error.is_timed_out()));
    while_not(|| !fuse.load(SeqCst));
    assert_eq!(double.call(0, 2).expect("the loop goes on").result, 4);
    assert!(held.call_timeout(0, (), Duration::from_millis(1)).is_err_and(|error| error.is_timed_out()));
}

/// Looks at what its child has put out before it ticks it: what comes of the tick is seen at the next one.
struct LooksFirst<M: Machine>(Option<M>, Option<Child<M>>);
impl<M: Machine> Machine for LooksFirst<M> {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        if let Some(machine) = self.0.take() {
            self.1 = Some(ports.child(machine));
        }
        let child = self.1.as_mut().unwrap();
        child.forward_all(ports);
        child.tick(now, ports);
    }
}

/// A waker of somebody's own, that panics.
struct Panics;
impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics, as the test wants it");
    }
}

// The machine that answers is not to blame for the waker of who asks.
#[test]
fn a_waker_that_panics_harms_no_machine() {
    let _watchdog = support::watchdog(60);
    let rt = runtime(1);
    let mut held = Vec::new();
    // Keeps what is 0, and answers it, in its tick, when it gets something else.
    let machine = rt.attach(Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(request) = ports.input.submissions.pop() {
            match *request.data::<i32>().unwrap() {
                0 => held.push(request),
                number => {
                    held.drain(..).for_each(|request: Request| request.answer(1));
                    ports.complete(request, number * 2);
                }
            }
        }
    }));
    let _entered = rt.handle().enter();
    let mut first = Box::pin(machine.call_async(0, 0));
    let waker = Waker::from(Arc::new(Panics));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(machine.call(0, 4).expect("it goes on").result, 8);
    assert_eq!(spin(first).unwrap().unwrap().result, 1);
}
