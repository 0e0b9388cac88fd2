//! Machines beside fibers: attached to workers, called from fibers, threads and async code; event loops on fibers.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support::{self, workers};
use fibra::machine::{
    Answer, CANCELLED, CallError, Caller, EventLoop, Machine, MachineRef, OP_TIMER, OpPool, Ports, Request, Timestamp,
};
use fibra::{Builder, Runtime, channel, spawn};

const LONG: Duration = Duration::from_secs(3600);

/// Doubles at once.
struct Double;
impl Machine for Double {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            let number = *request.data::<i32>().unwrap();
            ports.complete(request, number * 2);
        }
    }
}

/// Answers only what is cancelled, and counts what came and what was cancelled.
#[derive(Default, Clone)]
struct Seen {
    came: Arc<AtomicUsize>,
    cancelled: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}
struct Holds(Vec<Request>, Seen);
impl Machine for Holds {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            self.0.push(request);
            self.1.came.fetch_add(1, SeqCst);
        }
        while let Some(cancel) = ports.input.cancellations.pop() {
            let held = self.0.iter().position(|request| request.id() == cancel.id()).expect("it was not answered");
            ports.complete(self.0.remove(held), CANCELLED);
            self.1.cancelled.fetch_add(1, SeqCst);
        }
    }
}
impl Drop for Holds {
    fn drop(&mut self) {
        self.1.dropped.fetch_add(1, SeqCst);
    }
}

/// Waits without keeping a worker from its machines; the watchdog ends it if need be.
fn eventually(what: impl Fn() -> bool) {
    while !what() {
        fibra::sleep(Duration::from_millis(1));
    }
}

// C-28: a machine lives on a worker's loop; fibers of all workers, plain threads and async code call it.
#[test]
fn all_callers_call() {
    let _watchdog = support::watchdog(60);
    let rt = workers(3);
    let machines: Vec<MachineRef> = (0..5).map(|_| rt.attach(Double)).collect();
    let threads: std::collections::HashSet<u32> = machines.iter().map(|machine| machine.thread).collect();
    assert_eq!(threads.len(), 3, "spread over the workers");
    rt.run(|| {
        let fibers: Vec<_> = (0..50)
            .map(|fiber| {
                let machine = machines[fiber % machines.len()];
                Builder::new().spread().spawn(move || {
                    let mut caller = Caller::new(machine);
                    for number in 0..40 {
                        assert_eq!(machine.call(0, number), Ok(Answer { result: number * 2, data: number }));
                        assert_eq!(caller.call(0, number).unwrap().result, number * 2);
                    }
                })
            })
            .collect();
        let machine = machines[0];
        let task = fibra::spawn_future(async move { machine.call_async(0, 4).await.unwrap().result });
        fibers.into_iter().for_each(|fiber| fiber.unwrap().join().unwrap());
        assert_eq!(task.join().unwrap(), 8);
    });
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _entered = rt.handle().enter();
                for number in 0..100 {
                    assert_eq!(machines[1].call(0, number).unwrap().result, number * 2);
                }
            });
        }
    });
}

/// Answers each request so many milliseconds later as it says.
struct Later {
    timers: OpPool<()>,
    waiting: Vec<(fibra::machine::OpId, Request)>,
}
impl Machine for Later {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            let after = Duration::from_millis(*request.data::<u64>().unwrap());
            let timer = ports.submit(self.timers.take(OP_TIMER, ()).unwrap().at(now + after));
            self.waiting.push((timer, request));
        }
        while let Some(done) = ports.input.completions.pop() {
            let at = self.waiting.iter().position(|(timer, _)| *timer == done.id()).unwrap();
            ports.complete(self.waiting.remove(at).1, 1);
        }
    }
}

#[test]
fn a_machine_on_a_worker_has_timers() {
    let _watchdog = support::watchdog(60);
    let rt = workers(1);
    let later = rt.attach(Later { timers: OpPool::with_capacity(8), waiting: Vec::new() });
    rt.run(|| {
        let (done, order) = channel::unbounded();
        for after in [30_u64, 10, 20] {
            let done = done.clone();
            spawn(move || {
                let begin = fibra::time::Instant::now();
                assert_eq!(later.call(0, after).unwrap().result, 1);
                assert!(begin.elapsed() >= Duration::from_millis(after), "never early");
                done.send(after).unwrap();
            });
        }
        drop(done);
        assert_eq!(order.iter().count(), 3);
    });
}

#[test]
fn giving_up_cancels() {
    let _watchdog = support::watchdog(60);
    let (rt, seen) = (workers(2), Seen::default());
    let holds = rt.attach(Holds(Vec::new(), seen.clone()));
    let payload = Arc::new(());
    rt.run(|| {
        // By time.
        let late = holds.call_timeout(0, payload.clone(), Duration::from_millis(1));
        assert!(matches!(late, Err(CallError::TimedOut)));
        eventually(|| seen.cancelled.load(SeqCst) == 1);
        // By cancellation.
        let sent = payload.clone();
        let fiber = spawn(move || drop(holds.call(0, sent)));
        eventually(|| seen.came.load(SeqCst) == 2);
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        eventually(|| seen.cancelled.load(SeqCst) == 2);
        // By dropping the future, polled or not.
        drop(holds.call_async(0, payload.clone()));
        eventually(|| seen.cancelled.load(SeqCst) == 3);
    });
    eventually(|| Arc::strong_count(&payload) == 1);
    // A caller that gave up too often has nothing left, until the machine has answered.
    let never = rt.attach(Forgets(Vec::new()));
    rt.run(|| {
        let mut caller = Caller::new(never);
        let errors: Vec<_> =
            (0..6).map(|_| caller.call_timeout(0, 7, Duration::from_micros(10)).unwrap_err()).collect();
        assert!(errors[..4].iter().all(CallError::is_timed_out));
        assert_eq!(errors[5].clone().into_data(), Some(7));
        let mut caller = Caller::new(holds);
        for call in 0..20 {
            assert!(caller.call_timeout(0, 7, Duration::from_micros(10)).unwrap_err().is_timed_out());
            // The three from before, and all of these: otherwise it would have nothing left one day.
            eventually(|| seen.cancelled.load(SeqCst) == 3 + call + 1);
        }
    });
}

/// Never answers, whatever it is told.
struct Forgets(Vec<Request>);
impl Machine for Forgets {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            self.0.push(request);
        }
    }
}

#[test]
fn machines_go() {
    let _watchdog = support::watchdog(60);
    let (rt, seen) = (workers(2), Seen::default());
    let holds = rt.attach(Holds(Vec::new(), seen.clone()));
    let other = rt.attach(Double);
    rt.run(|| {
        let fiber = spawn(move || holds.call(0, 5));
        eventually(|| seen.came.load(SeqCst) == 1);
        assert!(holds.detach());
        assert_eq!(seen.dropped.load(SeqCst), 1, "gone when that returns");
        assert_eq!(fiber.join().unwrap(), Err(CallError::Abandoned(5)));
        assert_eq!(holds.call(0, 6), Err(CallError::Unreachable(6)));
        assert!(!holds.detach());
        assert_eq!(other.call(0, 7).unwrap().result, 14);
    });
    // By themselves.
    struct Once;
    impl Machine for Once {
        fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
            while let Some(request) = ports.input.submissions.pop() {
                ports.complete(request, 1);
                ports.stop();
            }
        }
    }
    let once = rt.attach(Once);
    rt.run(|| {
        assert_eq!(once.call(0, ()).unwrap().result, 1);
        eventually(|| once.call(0, ()) == Err(CallError::Unreachable(())));
        assert_eq!(other.call(0, 7).unwrap().result, 14, "the others stay");
    });
}

struct Panics;
impl Machine for Panics {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        if let Some(request) = ports.input.submissions.pop() {
            match request.opcode() {
                0 => panic!("a machine panics, as it should here"),
                1 => fibra::sleep(LONG),
                2 => fibra::yield_now(),
                _ => drop(channel::bounded::<()>(1).1.recv()),
            }
        }
    }
}

// A machine that panics, or tries to block, is dropped: its callers are told, and the others of its worker go on.
#[test]
fn machines_that_panic_or_block() {
    let _watchdog = support::watchdog(60);
    let rt = workers(1);
    let double = rt.attach(Double);
    rt.run(|| {
        for opcode in 0..4 {
            let panics = rt.attach(Panics);
            let error = panics.call(opcode, 'x').unwrap_err();
            if opcode < 3 {
                assert_eq!(error, CallError::Abandoned('x'));
                assert_eq!(panics.call(0, 'y'), Err(CallError::Unreachable('y')));
            } else {
                // Its own channel is closed: that is no waiting.
                assert_eq!(error, CallError::Abandoned('x'));
            }
            assert_eq!(double.call(0, 3).unwrap().result, 6);
        }
        let unmade = rt.attach_with(|| -> Double { panic!("cannot be made, as it should here") });
        assert_eq!(unmade.call(0, 1), Err(CallError::Unreachable(1)));
    });
}

/// Passes on to another machine, with a chain of causes.
struct Passes {
    to: MachineRef,
    pool: OpPool<i32>,
    asked: VecDeque<Request>,
    /// Not `Send`.
    count: Rc<Cell<u32>>,
}
impl Machine for Passes {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            let op = self.pool.take(0, *request.data::<i32>().unwrap()).unwrap();
            ports.submit(op.to(self.to).caused_by(&request));
            self.asked.push_back(request);
        }
        while let Some(done) = ports.input.completions.pop() {
            self.count.set(self.count.get() + 1);
            ports.complete(self.asked.pop_front().unwrap(), done.result() + 1);
        }
    }
}

#[test]
fn machines_of_two_workers_talk() {
    let _watchdog = support::watchdog(60);
    let rt = workers(2);
    let double = rt.attach(Double);
    let passes = rt.attach_with(move || Passes {
        to: double,
        pool: OpPool::with_capacity(64),
        asked: VecDeque::new(),
        count: Rc::new(Cell::new(0)),
    });
    assert_ne!(double.thread, passes.thread);
    rt.run(|| {
        let calls: Vec<_> = (0..64).map(|number| spawn(move || passes.call(0, number).unwrap().result)).collect();
        let results: Vec<i32> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        assert_eq!(results, (0..64).map(|number| number * 2 + 1).collect::<Vec<_>>());
        // Gone: the one behind it says so.
        assert!(double.detach());
        assert_eq!(passes.call(0, 1).unwrap().result, fibra::machine::UNREACHABLE + 1);
    });
}

#[test]
fn an_address_means_nothing_elsewhere() {
    let _watchdog = support::watchdog(60);
    let (here, there) = (workers(1), workers(1));
    let machine = here.attach(Double);
    there.attach(Holds(Vec::new(), Seen::default()));
    there.run(|| assert_eq!(machine.call(0, 1), Err(CallError::Unreachable(1))));
    let made_up = MachineRef { thread: machine.thread, machine: 999 };
    here.run(|| assert_eq!(made_up.call(0, 1), Err(CallError::Unreachable(1))));
    let empty = workers(2);
    for thread in [0, 1, machine.thread, u32::MAX] {
        let made_up = MachineRef { thread, machine: 2 };
        empty.run(|| assert_eq!(made_up.call(0, 1), Err(CallError::Unreachable(1))));
    }
    let panic = std::panic::catch_unwind(|| machine.call(0, 1)).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("Handle::enter"), "{text}");
}

// Attached before anything runs, and while the cap of fibers is reached.
#[test]
fn a_current_thread_runtime_has_machines() {
    let _watchdog = support::watchdog(60);
    let rt = Runtime::builder().current_thread().max_fibers(1).build().unwrap();
    let double = rt.attach(Double);
    assert_eq!(rt.run(|| double.call(0, 21).unwrap().result), 42);
    assert_eq!(rt.run(|| double.call(0, 4).unwrap().result), 8, "it is there in the next run too");
    drop(rt);
    // Never run at all: the machine is dropped all the same.
    let (rt, seen) = (Runtime::current_thread().unwrap(), Seen::default());
    rt.attach(Holds(Vec::new(), seen.clone()));
    drop(rt);
    assert_eq!(seen.dropped.load(SeqCst), 1);
}

#[test]
fn a_runtime_ends_with_machines() {
    let _watchdog = support::watchdog(60);
    for _ in 0..20 {
        let (rt, seen) = (workers(2), Seen::default());
        let machines: Vec<MachineRef> = (0..4).map(|_| rt.attach(Holds(Vec::new(), seen.clone()))).collect();
        // A thread outside waits for an answer while the runtime ends; one attaches and calls meanwhile.
        let handle = rt.handle();
        let began = Arc::new(AtomicBool::new(false));
        std::thread::scope(|scope| {
            let waits = scope.spawn({
                let (handle, machine) = (handle.clone(), machines[0]);
                move || {
                    let _entered = handle.enter();
                    machine.call(0, 1).unwrap_err()
                }
            });
            scope.spawn({
                let began = began.clone();
                move || {
                    let _entered = handle.enter();
                    for _ in 0..50 {
                        let machine = handle.attach(Double);
                        began.store(true, SeqCst);
                        let answer = machine.call(0, 1);
                        assert!(matches!(
                            answer,
                            Ok(Answer { result: 2, .. }) | Err(CallError::Unreachable(1) | CallError::Abandoned(1))
                        ));
                    }
                }
            });
            eventually(|| seen.came.load(SeqCst) == 1 && began.load(SeqCst));
            drop(rt);
            assert!(matches!(waits.join().unwrap(), CallError::Abandoned(1) | CallError::Unreachable(1)));
        });
        assert_eq!(seen.dropped.load(SeqCst), 4);
    }
}

/// Rings itself for ever.
struct Busy(OpPool<()>, Arc<AtomicUsize>);
impl Machine for Busy {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        self.1.fetch_add(1, SeqCst);
        while ports.input.completions.pop().is_some() {}
        ports.submit(self.0.take(OP_TIMER, ()).unwrap().at(now));
    }
}

// Machines and fibers take turns.
#[test]
fn no_fiber_starves() {
    let _watchdog = support::watchdog(60);
    let (rt, ticks) = (workers(1), Arc::new(AtomicUsize::new(0)));
    let busy = rt.attach(Busy(OpPool::with_capacity(2), ticks.clone()));
    let double = rt.attach(Double);
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let yields = spawn({
            let stop = stop.clone();
            move || {
                while !stop.load(SeqCst) {
                    fibra::yield_now();
                }
            }
        });
        let before = ticks.load(SeqCst);
        for number in 0..1000 {
            assert_eq!(double.call(0, number).unwrap().result, number * 2);
        }
        fibra::sleep(Duration::from_millis(1));
        assert!(ticks.load(SeqCst) > before);
        stop.store(true, SeqCst);
        yields.join().unwrap();
        assert!(busy.detach());
    });
}

// A machine may use what does not block: spawn a fiber, send to one.
#[test]
fn a_machine_speaks_to_fibers() {
    struct Tells(channel::Sender<i32>);
    impl Machine for Tells {
        fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
            while let Some(request) = ports.input.submissions.pop() {
                let number = *request.data::<i32>().unwrap();
                let sender = self.0.clone();
                self.0.try_send(number).unwrap();
                spawn(move || sender.send(number + 1).unwrap());
                ports.complete(request, 0);
            }
        }
    }
    let _watchdog = support::watchdog(60);
    let rt = workers(2);
    let (sender, receiver) = channel::bounded(16);
    let tells = rt.attach(Tells(sender));
    rt.run(|| {
        tells.call(0, 5).unwrap();
        let mut got = [receiver.recv().unwrap(), receiver.recv().unwrap()];
        got.sort_unstable();
        assert_eq!(got, [5, 6]);
    });
}

/// Counts down with the platform's help.
struct App(OpPool<i32>, i32);
impl Machine for App {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(done) = ports.input.completions.pop() {
            assert_eq!(done.result(), self.1 * 2);
            self.1 -= 1;
        }
        if self.1 == 0 {
            return ports.stop();
        }
        if let Ok(op) = self.0.take(0, self.1) {
            ports.submit(op);
        }
    }
}

// On a fiber, a loop parks the fiber: others of the one worker run beside it.
#[test]
fn an_event_loop_runs_on_a_fiber() {
    let _watchdog = support::watchdog(60);
    let rt = workers(1);
    rt.run(|| {
        let loops: Vec<_> = (0..3)
            .map(|_| spawn(|| EventLoop::new().app(App(OpPool::with_capacity(1), 100)).platform(Double).run()))
            .collect();
        loops.into_iter().for_each(|one| one.join().unwrap().unwrap());
        // Idle, it is cancelled like everything else, in order.
        let seen = Seen::default();
        let idle = fibra::spawn_local({
            let seen = seen.clone();
            move || {
                let looping = EventLoop::new().app(Holds(Vec::new(), seen));
                let _watched = looping.stopper();
                looping.run().unwrap();
                unreachable!("cancelled");
            }
        });
        fibra::yield_now();
        assert!(!idle.is_finished());
        idle.cancel();
        assert!(idle.join().unwrap_err().is_cancelled());
        assert_eq!(seen.dropped.load(SeqCst), 1);
    });
}

// Machines come and go while many call them: every call is answered.
#[test]
fn a_storm() {
    let _watchdog = support::watchdog(120);
    let rt = workers(2);
    rt.run(|| {
        let calls: Vec<_> = (0..20)
            .map(|number| {
                let handle = rt.handle();
                spawn(move || {
                    for round in 0..50 {
                        let machine = handle.attach(Double);
                        let callers: Vec<_> = (0..4).map(|_| spawn(move || machine.call(0, round))).collect();
                        if number % 2 == 0 {
                            fibra::yield_now();
                        }
                        assert!(machine.detach());
                        for caller in callers {
                            match caller.join().unwrap() {
                                Ok(answer) => assert_eq!(answer.result, round * 2),
                                Err(CallError::Unreachable(data) | CallError::Abandoned(data)) => {
                                    assert_eq!(data, round)
                                }
                                Err(other) => panic!("{other:?}"),
                            }
                        }
                    }
                })
            })
            .collect();
        calls.into_iter().for_each(|call| call.join().unwrap());
    });
}
