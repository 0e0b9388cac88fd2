//! Odd moments: operations, cancellations and rings that are under way when something ends, and machines, children, data and wakers that
//! panic. Each arrives once, in order, or says why not; what panics ends what it belongs to, and nothing else.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::support::{self, workers};
use fibra::machine::{
    CANCELLED, CallError, Child, EventLoop, Machine, MachineRef, OpPool, Ports, Request, Seat, Timestamp, UNREACHABLE,
};
use fibra::time::Instant;
use fibra::{Handle, Runtime};

/// How long a loop is given that should not need any of it.
const LONG: Duration = Duration::from_secs(10 * support::SLOWDOWN);

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
    let rt = workers(1);
    let machine = rt.attach(doubling());
    let _entered = rt.handle().enter();
    for round in 0..300_000 / support::SLOWDOWN as i32 {
        let answer = spin(machine.call_async(0, round)).expect("the loop sleeps on its mail");
        assert_eq!(answer.unwrap().result, round.wrapping_mul(2));
        // Moves the next call about in the time that the loop needs to fall asleep.
        (0..round % 128).for_each(|_| std::hint::spin_loop());
    }
}

// A parent looks at an answer of its child on its way out. It could take the data, and the caller's own `expect` failed.
#[test]
fn an_answer_on_its_way_keeps_its_data() {
    let _watchdog = support::watchdog(60);
    let rt = workers(1);
    let (tell, told) = mpsc::channel::<MachineRef>();
    rt.attach_with(move || {
        let mut child = None;
        Tick(move |now, ports: &mut Ports<'_>| {
            let child = child.get_or_insert_with(|| {
                let child = ports.child(doubling());
                tell.send(child.id()).unwrap();
                child
            });
            child.tick(now, ports);
            while let Some(done) = child.output().completions.pop() {
                let Err(done) = done.into_data::<i32>() else { continue };
                ports.forward(done);
            }
        })
    });
    let machine = told.recv().unwrap();
    let answer = rt.run(move || machine.call(0, 21)).unwrap();
    assert_eq!((answer.result, answer.data), (42, 21));
}
/// Submits one operation to `to` and then does nothing; its destructor panics if it is to.
struct Asks {
    to: MachineRef,
    pool: OpPool<()>,
    asked: bool,
    _fuse: Option<Grenade>,
}
impl Asks {
    fn new(to: MachineRef, fuse: Option<Grenade>) -> Self {
        Self { to, pool: OpPool::with_capacity(1), asked: false, _fuse: fuse }
    }
}
impl Machine for Asks {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        if !std::mem::replace(&mut self.asked, true) {
            let op = self.pool.take(0, ()).unwrap().to(self.to);
            ports.submit(op);
        }
    }
}

// S3-81: the destructor of a child panics; its operations are cancelled all the same.
#[test]
fn a_child_that_panics_when_dropped_is_gone() {
    let _watchdog = support::watchdog(60);
    let rt = workers(1);
    let seen = Seen::default();
    let target = rt.attach(holding(&seen));
    let parent = rt.attach_with(move || {
        let mut child = None;
        Tick(move |now, ports: &mut Ports<'_>| {
            let child = child.get_or_insert_with(|| ports.child(Asks::new(target, Some(grenade()))));
            child.tick(now, ports);
            child.forward_all(ports);
        })
    });
    rt.run(move || {
        while_not(|| seen.came.load(SeqCst) == 1);
        assert!(parent.detach());
        while_not(|| seen.cancelled.load(SeqCst) == 1);
    });
}

// Data whose destructor panics while the input of a machine is dropped: the others there are answered, and the loop goes on.
#[test]
fn data_that_panics_when_dropped_takes_no_other_along() {
    let _watchdog = support::watchdog(60);
    let rt = workers(1);
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
    let rt = workers(1);
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

// S3-71: on a worker, a machine whose child has forgotten the destination ends alone, not with all others of the worker.
#[test]
fn no_destination_on_a_worker_ends_one_machine() {
    let _watchdog = support::watchdog(60);
    let rt = workers(1);
    let double = rt.attach(doubling());
    let bad = rt.attach_with(|| {
        Tick(move |now, ports: &mut Ports<'_>| {
            while let Some(_request) = ports.input.submissions.pop() {
                let mut pool = OpPool::with_capacity(1);
                let mut child = ports.child(Tick(move |_, ports: &mut Ports<'_>| {
                    ports.submit(pool.take(9, ()).unwrap());
                }));
                child.tick(now, ports);
                child.forward_all(ports);
            }
        })
    });
    rt.run(move || {
        assert_eq!(bad.call(0, 1).unwrap_err(), CallError::Abandoned(1));
        assert_eq!(double.call(0, 2).expect("the others go on").result, 4);
        assert_eq!(bad.call(0, 1).unwrap_err(), CallError::Unreachable(1));
    });
}

// `Request::answer` from another thread: the loop of the initiator, alone and idle, waits for it.
#[test]
fn a_request_in_other_hands_keeps_its_loop() {
    let _watchdog = support::watchdog(60);
    let (give, given) = mpsc::channel::<Request>();
    let elsewhere = std::thread::spawn(move || {
        for request in given {
            std::thread::sleep(Duration::from_millis(50));
            request.answer(5);
        }
    });
    let result = Arc::new(AtomicUsize::new(0));
    let (mut pool, seen) = (OpPool::with_capacity(1), result.clone());
    let app = Tick(move |_, ports: &mut Ports<'_>| match ports.input.completions.pop() {
        Some(done) => seen.store(done.result() as usize, SeqCst),
        None => assert!(ports.submit(pool.take(0, ()).unwrap()).get() > 0),
    });
    let platform = Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(request) = ports.input.submissions.pop() {
            give.send(request).unwrap();
        }
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
    assert_eq!(result.load(SeqCst), 5);
    elsewhere.join().unwrap();
}

// S3-46, S3-81: cancelled and stopped in the same tick. The cancellation was dropped with the app's port, and never made again.
#[test]
fn a_cancellation_that_was_not_routed_yet() {
    let _watchdog = support::watchdog(60);
    let (mut pool, mut asked) = (OpPool::with_capacity(1), None);
    let gauge = pool.gauge();
    let seen = Seen::default();
    let came = seen.came.clone();
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        match asked {
            None => {
                asked = Some(ports.submit(pool.take(0, ()).unwrap().standing()));
                // Ticked again when the other one has it.
                ports.submit(OpPool::with_capacity(1).take(fibra::machine::OP_TIMER, ()).unwrap());
            }
            Some(id) => {
                assert_eq!(came.load(SeqCst), 1);
                ports.cancel(id).unwrap();
                ports.stop();
            }
        }
    });
    let began = Instant::now();
    EventLoop::new().app(app).platform(holding(&seen)).run().unwrap();
    assert_eq!((seen.cancelled.load(SeqCst), gauge.available()), (1, 1));
    assert!(began.elapsed() < Duration::from_secs(5), "not given up after the grace");
}

// The same for a child that its parent drops before it has looked.
#[test]
fn a_cancellation_in_the_port_of_a_dropped_child() {
    let _watchdog = support::watchdog(60);
    let rt = workers(1);
    let seen = Seen::default();
    let target = rt.attach(holding(&seen));
    let came = seen.came.clone();
    let parent = rt.attach_with(move || {
        let (mut child, mut begun) = (None, false);
        Tick(move |now, ports: &mut Ports<'_>| {
            if !std::mem::replace(&mut begun, true) {
                let (mut pool, mut asked, came) = (OpPool::with_capacity(1), None, came.clone());
                let machine = Tick(move |_, ports: &mut Ports<'_>| match asked {
                    None => asked = Some(ports.submit(pool.take(0, ()).unwrap().to(target))),
                    Some(id) if came.load(SeqCst) == 1 => ports.cancel(id).unwrap(),
                    Some(_) => (),
                });
                child = Some(ports.child(machine));
            }
            let Some(here) = &mut child else { return };
            let told = ports.input.submissions.len();
            here.tick(now, ports);
            if told == 0 {
                here.forward_all(ports);
            } else {
                child = None;
            }
        })
    });
    rt.run(move || {
        while_not(|| seen.came.load(SeqCst) == 1);
        // For the child: the parent ticks it, and then drops it.
        let child = MachineRef { machine: parent.machine + 1, ..parent };
        assert!(matches!(child.call(0, ()), Err(CallError::Abandoned(()))));
        while_not(|| seen.cancelled.load(SeqCst) == 1);
    });
}

// S3-42: a ring that was not routed yet when its machine went. The mark stayed, and no caller could ring any more.
#[test]
fn a_ring_that_was_not_routed_yet() {
    let _watchdog = support::watchdog(60);
    let rt = workers(1);
    let (give, given) = mpsc::channel::<Request>();
    let rings = rt.attach(Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(request) = ports.input.submissions.pop() {
            assert!(ports.ring(&request));
            give.send(request).unwrap();
            ports.stop();
        }
    }));
    let (rung, mut pool, mut asked) = (Arc::new(AtomicUsize::new(0)), OpPool::with_capacity(1), false);
    let counted = rung.clone();
    rt.attach(Tick(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut asked, true) {
            ports.submit(pool.take(0, ()).unwrap().standing().to(rings));
        }
        while ports.input.notifications.pop().is_some() {
            counted.fetch_add(1, SeqCst);
        }
    }));
    let request = given.recv().unwrap();
    while_not(|| rung.load(SeqCst) == 1);
    assert!(request.doorbell().ring(), "it can be rung again");
    while_not(|| rung.load(SeqCst) == 2);
}

// The same for a request of another runtime: its notification goes home as its answer does.
#[test]
fn a_ring_for_another_runtime() {
    let _watchdog = support::watchdog(60);
    let (here, there) = (workers(1), workers(1));
    let (give, given) = mpsc::channel::<Request>();
    let front = here.attach(Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(request) = ports.input.submissions.pop() {
            give.send(request).unwrap();
        }
    }));
    let (rung, mut pool, mut asked) = (Arc::new(AtomicUsize::new(0)), OpPool::with_capacity(1), false);
    let counted = rung.clone();
    here.attach(Tick(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut asked, true) {
            ports.submit(pool.take(0, ()).unwrap().standing().to(front));
        }
        while ports.input.notifications.pop().is_some() {
            counted.fetch_add(1, SeqCst);
        }
    }));
    let mut request = Some(given.recv().unwrap());
    let (back, came_back) = mpsc::channel::<Request>();
    there.attach(Tick(move |_, ports: &mut Ports<'_>| {
        if let Some(request) = request.take() {
            assert!(ports.ring(&request));
            back.send(request).unwrap();
        }
    }));
    while_not(|| rung.load(SeqCst) == 1);
    assert!(came_back.recv().unwrap().doorbell().ring());
    while_not(|| rung.load(SeqCst) == 2);
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

// S3-75: what a child of a child puts out is a reason to tick the child, not only the root.
#[test]
fn signals_go_up_step_by_step() {
    let _watchdog = support::watchdog(60);
    let rt = workers(1);
    let seen = Seen::default();
    let target = rt.attach(holding(&seen));
    let three = move || {
        let two = LooksFirst(Some(LooksFirst(Some(Asks::new(target, None)), None)), None);
        LooksFirst(Some(two), None)
    };
    rt.attach_with(three);
    while_not(|| seen.came.load(SeqCst) == 1);
}

/// A waker of the user's, that panics.
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
    let rt = workers(1);
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

// A loop whose machine panics says so to the targets of its operations.
#[test]
fn a_panic_cancels_what_is_elsewhere() {
    let _watchdog = support::watchdog(60);
    let mut seats = Seat::mesh(2).into_iter();
    let (first, second) = (seats.next().unwrap(), seats.next().unwrap());
    let seen = Seen::default();
    let serving = {
        let (seen, cancelled) = (seen.clone(), seen.cancelled.clone());
        std::thread::spawn(move || {
            let mut machine = holding(&seen);
            let stops = Tick(move |now, ports: &mut Ports<'_>| {
                machine.tick(now, ports);
                if cancelled.load(SeqCst) == 1 {
                    ports.stop();
                }
            });
            EventLoop::at(second).platform(stops).run().unwrap();
        })
    };
    let came = seen.came.clone();
    let asking = std::thread::spawn(move || {
        let (mut asks, mut pool) = (Asks::new(MachineRef::platform(1), None), OpPool::with_capacity(1));
        let app = Tick(move |now, ports: &mut Ports<'_>| {
            asks.tick(now, ports);
            while ports.input.completions.pop().is_some() {}
            assert!(came.load(SeqCst) == 0, "a panic, as the test wants it");
            if let Ok(op) = pool.take(fibra::machine::OP_TIMER, ()) {
                ports.submit(op.at(now + Duration::from_millis(1)));
            }
        });
        EventLoop::at(first).app(app).run().unwrap();
    });
    assert!(asking.join().is_err());
    serving.join().unwrap();
    assert_eq!(seen.cancelled.load(SeqCst), 1);
}

// S3-102: also what comes back because no machine is there comes back in order.
#[test]
fn unreachable_in_order() {
    let _watchdog = support::watchdog(60);
    let mut seats = Seat::mesh(2);
    drop(seats.remove(1));
    let (mut pool, mut ids, mut asked) = (OpPool::with_capacity(3), Vec::new(), false);
    let (tell, told) = mpsc::channel();
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut asked, true) {
            ids.extend((0..3).map(|_| ports.submit(pool.take(0, ()).unwrap().to(MachineRef::app(1)))));
        }
        while let Some(done) = ports.input.completions.pop() {
            assert_eq!(done.result(), UNREACHABLE);
            tell.send(done.id() == ids.remove(0)).unwrap();
        }
        if ids.is_empty() {
            ports.stop();
        }
    });
    EventLoop::at(seats.remove(0)).app(app).run().unwrap();
    assert_eq!(told.iter().collect::<Vec<_>>(), [true; 3]);
}

// S3-102: the operations of a machine that goes are cancelled in the order in which they were submitted.
#[test]
fn cancelled_in_order() {
    let _watchdog = support::watchdog(60);
    let rt = workers(1);
    let (tell, told) = mpsc::channel();
    let (submitted, came) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = came.clone();
    let mut held = Vec::new();
    let target = rt.attach(Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(request) = ports.input.submissions.pop() {
            // Some are answered before, from the middle and from both ends.
            match request.opcode() % 3 {
                0 => ports.complete(request, 0),
                _ => held.push(request),
            }
            counted.fetch_add(1, SeqCst);
        }
        while let Some(cancel) = ports.input.cancellations.pop() {
            held.retain(|request: &Request| request.id() != cancel.id());
            tell.send(cancel.opcode()).unwrap();
        }
    }));
    let mut pool = OpPool::with_capacity(20);
    let gauge = pool.gauge();
    let asks = rt.attach(Tick(move |_, ports: &mut Ports<'_>| {
        while ports.input.completions.pop().is_some() {}
        if submitted.swap(1, SeqCst) == 0 {
            for number in 0..20 {
                ports.submit(pool.take(number, ()).unwrap().to(target));
            }
        }
    }));
    let _entered = rt.handle().enter();
    while_not(|| came.load(SeqCst) == 20 && gauge.available() == 7);
    assert!(asks.detach());
    let cancelled: Vec<u32> = (0..13).map(|_| told.recv().unwrap()).collect();
    assert_eq!(cancelled, (0..20).filter(|number| number % 3 != 0).collect::<Vec<_>>());
    while_not(|| gauge.available() == 20);
}

// Handles of one operation can be forgotten: their number must not wrap, or the operation's memory would be used again under the others.
#[test]
#[cfg_attr(any(fibra_asan, fibra_tsan), ignore = "17 million handles")]
fn doorbells_are_not_without_number() {
    let _watchdog = support::watchdog(60);
    let rt = workers(1);
    let (give, given) = mpsc::channel::<Request>();
    let machine = rt.attach(Tick(move |_, ports: &mut Ports<'_>| {
        ports.input.submissions.pop().into_iter().for_each(|request| give.send(request).unwrap());
    }));
    let _entered = rt.handle().enter();
    let call = machine.call_async(0, 1);
    let request = given.recv().unwrap();
    let bell = request.doorbell();
    let forgets = std::panic::AssertUnwindSafe(|| (0..1_u64 << 25).for_each(|_| std::mem::forget(bell.clone())));
    assert!(std::panic::catch_unwind(forgets).is_err());
    request.answer(2);
    assert_eq!(spin(call).unwrap().unwrap().result, 2);
}

// A call takes one number, not a block of them: 2^48 calls are not enough for ever.
#[test]
fn calls_are_frugal_with_numbers() {
    let number = || OpPool::with_capacity(1).take(0, ()).unwrap().id().get();
    let first = number();
    let last = (0..1000).fold(first, |_, _| number());
    // Other tests take blocks meanwhile.
    assert!(last - first < 1000 * (1 << 16), "{} of 1000 calls", last - first);
}

// Machines that are never run, and those that come too late, are dropped, and their callers told.
#[test]
fn attached_to_a_runtime_that_ends() {
    let _watchdog = support::watchdog(60);
    let counted = Arc::new(());
    for current_thread in [true, false] {
        let builder = Runtime::builder();
        let rt = if current_thread { builder.current_thread() } else { builder.workers(2) }.build().unwrap();
        let handle: Handle = rt.handle().clone();
        let machine = |counted: &Arc<()>| {
            let counted = counted.clone();
            Tick(move |_, _: &mut Ports<'_>| drop(counted.clone()))
        };
        let early = rt.attach(machine(&counted));
        drop(rt);
        let late = handle.attach(machine(&counted));
        let _entered = handle.enter();
        for machine in [early, late] {
            assert!(matches!(machine.call(0, ()), Err(CallError::Unreachable(()))));
        }
    }
    assert_eq!(Arc::strong_count(&counted), 1);
}
