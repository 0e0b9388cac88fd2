//! Lines of the specification of machines (S3), each by a test of its own: the ones that other tests touch only in passing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::support;
use fibra::machine::{
    CANCELLED, Child, EventLoop, Machine, MachineRef, Message, OP_TIMER, OpPool, Overflow, Ports, Request, RingWriter,
    Seat, Timestamp, ring,
};

/// A machine that is a function.
struct Tick<F>(F);
impl<F: FnMut(Timestamp, &mut Ports<'_>) + 'static> Machine for Tick<F> {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        (self.0)(now, ports);
    }
}

/// The same when its type must have a name.
type Boxed = Box<dyn FnMut(Timestamp, &mut Ports<'_>)>;

/// What happened, in order.
type Log<T> = Rc<RefCell<Vec<T>>>;

// S3-12: a child's operation, made another by its parent, made another by the platform: from what each target has logged (id, parent,
// trace) the chain can be put together again, up to a root without a parent.
#[test]
fn the_chain_of_a_trace() {
    let _watchdog = support::watchdog(60);
    let seen = Log::<(u64, Option<u64>, u64)>::default();
    let note = |seen: &Log<(u64, Option<u64>, u64)>, request: &Request| {
        let parent = request.parent().map(|parent| parent.get());
        seen.borrow_mut().push((request.id().get(), parent, request.trace().get()));
    };
    let mut asks = OpPool::with_capacity(1);
    let mut child = None::<Child<Tick<Boxed>>>;
    let (mut delegated, mut held, log) = (OpPool::with_capacity(1), None, seen.clone());
    let app = Tick(move |now, ports: &mut Ports<'_>| {
        if child.is_none() {
            let op = Cell::new(asks.take(1, ()).ok());
            let asking: Boxed = Box::new(move |_, ports| {
                op.take().map(|op| ports.submit(op));
                if ports.input.completions.pop().is_some() {
                    ports.stop();
                }
            });
            child = Some(ports.child(Tick(asking)));
        }
        let child = child.as_mut().unwrap();
        child.tick(now, ports);
        while let Some(request) = child.output().submissions.pop() {
            note(&log, &request);
            ports.submit(delegated.take(2, ()).unwrap().caused_by(&request));
            held = Some(request);
        }
        while ports.input.completions.pop().is_some() {
            ports.complete(held.take().unwrap(), 0);
        }
        // As the third in the chain: for the platform's own operation.
        while let Some(request) = ports.input.submissions.pop() {
            note(&log, &request);
            ports.complete(request, 0);
        }
    });
    let (mut pool, mut waits, log) = (OpPool::with_capacity(1), None, seen.clone());
    let platform = Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(request) = ports.input.submissions.pop() {
            note(&log, &request);
            ports.submit(pool.take(3, ()).unwrap().caused_by(&request));
            waits = Some(request);
        }
        while ports.input.completions.pop().is_some() {
            ports.complete(waits.take().unwrap(), 0);
        }
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
    let seen = seen.borrow();
    let (root, rest) = seen.split_first().unwrap();
    assert_eq!((root.1, root.2, rest.len()), (None, root.0, 2));
    let last = rest.iter().find(|op| !rest.iter().any(|other| other.1 == Some(op.0))).unwrap();
    let (mut chain, mut next) = (Vec::new(), Some(last.0));
    while let Some(op) = seen.iter().find(|op| Some(op.0) == next) {
        chain.push(op.0);
        next = op.1;
    }
    assert_eq!(chain, [rest[1].0, rest[0].0, root.0]);
    assert!(seen.iter().all(|op| op.2 == root.0), "one trace");
}

// S3-21, S3-49, S3-50, S3-51: the requester brings the buffer and says what happens when it is full; the platform only writes.
#[test]
fn the_requester_brings_the_buffer_and_its_policy() {
    let _watchdog = support::watchdog(60);
    for (overflow, kept, dropped, overwritten) in
        [(Overflow::DropNewest, [0, 1, 2], 7, 0), (Overflow::OverwriteOldest, [7, 8, 9], 0, 7)]
    {
        let (mut pool, mut reader, done) = (OpPool::with_capacity(1), None, Rc::new(Cell::new(false)));
        let checked = done.clone();
        let app = Tick(move |_, ports: &mut Ports<'_>| {
            if reader.is_none() {
                let (writer, end) = ring::<u64>(3, overflow);
                reader = Some(end);
                ports.submit(pool.take(1, writer).unwrap().standing());
            }
            let reader = reader.as_mut().unwrap();
            while ports.input.notifications.pop().is_some() {
                let all: Vec<u64> = std::iter::from_fn(|| reader.read()).collect();
                let stats = reader.stats();
                assert_eq!(all, kept);
                assert_eq!(
                    (stats.written, stats.read, stats.dropped, stats.overwritten),
                    (10, 3, dropped, overwritten)
                );
                checked.set(true);
                ports.stop();
            }
        });
        let mut held = None;
        let platform = Tick(move |_, ports: &mut Ports<'_>| {
            while let Some(mut request) = ports.input.submissions.pop() {
                let writer = request.data_mut::<RingWriter<u64>>().unwrap();
                for value in 0..10 {
                    let _ = writer.write(value);
                }
                ports.ring(&request);
                held = Some(request);
            }
            while ports.input.cancellations.pop().is_some() {
                held.take().into_iter().for_each(|request| ports.complete(request, CANCELLED));
            }
        });
        EventLoop::new().app(app).platform(platform).run().unwrap();
        assert!(done.get());
    }
}

// S3-47, S3-95, S3-100: cancelled and answered, but the cancellation not acknowledged yet: the memory is not used again until it is, even
// though the answer has been taken.
#[test]
fn no_reuse_before_the_cancellation_is_through() {
    let _watchdog = support::watchdog(60);
    let mut pool = OpPool::with_capacity(1);
    let (gauge, kept) = (pool.gauge(), Rc::new(RefCell::new(None)));
    let (mut asked, cancelled) = (None, kept.clone());
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        match asked {
            None => {
                let id = ports.submit(pool.take(1, 7_u8).unwrap());
                ports.cancel(id).unwrap();
                asked = Some(id);
            }
            Some(id) => {
                let done = ports.input.completions.pop().expect("the answer");
                assert_eq!((done.id(), done.into_data::<u8>().unwrap()), (id, 7));
                assert!(pool.take(1, 8).is_err(), "its cancellation is still somewhere");
                drop(cancelled.take());
                let next = pool.take(1, 8).expect("now it is free");
                assert!(next.id() > id, "and has another number");
                ports.stop();
            }
        };
    });
    let platform = Tick(move |_, ports: &mut Ports<'_>| {
        let (Some(request), Some(cancel)) = (ports.input.submissions.pop(), ports.input.cancellations.pop()) else {
            return;
        };
        ports.complete(request, CANCELLED);
        *kept.borrow_mut() = Some(cancel);
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
    assert_eq!(gauge.available(), 1);
}

// S3-57, S3-58, S3-61..S3-63: within a round timers come before messages, and those before ticks: what two timers of one moment have
// started and what the platform has put out is all there at the next tick, which sees the time of its round; timers in the order of
// their deadlines.
#[test]
fn the_phases_of_a_round() {
    let _watchdog = support::watchdog(60);
    let log = Log::<String>::default();
    let (mut timers, mut pool) = (OpPool::with_capacity(3), OpPool::with_capacity(1));
    let (mut begun, mut rounds, mine) = (false, 0, log.clone());
    let app = Tick(move |now: Timestamp, ports: &mut Ports<'_>| {
        assert_eq!(now, ports.now());
        if !std::mem::replace(&mut begun, true) {
            // The deadlines are past when they are set; the third one first.
            for (number, before) in [(1, 10), (2, 5), (0, 20)] {
                let due = Timestamp::from_nanos(now.as_nanos() - before);
                ports.submit(timers.take(OP_TIMER, number).unwrap().at(due));
            }
            ports.submit(pool.take(1, 0).unwrap());
            return;
        }
        rounds += 1;
        while let Some(done) = ports.input.completions.pop() {
            let what = if done.opcode() == OP_TIMER { "timer" } else { "answer" };
            mine.borrow_mut().push(format!("{rounds} {what} {}", done.data::<i32>().unwrap()));
        }
        if ports.in_flight() == 0 {
            ports.stop();
        }
    });
    let theirs = log.clone();
    let platform = Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(request) = ports.input.submissions.pop() {
            theirs.borrow_mut().push("submission".to_owned());
            ports.complete(request, 0);
        }
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
    // Set in the first round's tick, the timers are routed in the second and due in the third; so is the answer, which the platform
    // gave in the second one's tick.
    assert_eq!(*log.borrow(), ["submission", "1 timer 0", "1 timer 1", "1 timer 2", "1 answer 0"]);
}

// S3-64, S3-87, S3-88: a child's output is drained completely, submissions before cancellations, and so it arrives.
#[test]
fn outputs_are_drained_in_order() {
    let _watchdog = support::watchdog(60);
    let log = Log::<(bool, u32)>::default();
    let mut child = None;
    let app = Tick(move |now, ports: &mut Ports<'_>| {
        let child = child.get_or_insert_with(|| {
            let (mut pool, mut left) = (OpPool::with_capacity(3), 3);
            ports.child(Tick(move |_, ports: &mut Ports<'_>| {
                if pool.available() == 3 && left == 3 {
                    for number in 0..3 {
                        let id = ports.submit(pool.take(number, ()).unwrap().to(MachineRef::platform(0)));
                        ports.cancel(id).unwrap();
                    }
                }
                while let Some(done) = ports.input.completions.pop() {
                    assert_eq!(done.result(), CANCELLED);
                    left -= 1;
                }
                if left == 0 {
                    ports.stop();
                }
            }))
        });
        child.tick(now, ports);
        let mut kinds = Vec::new();
        while let Some(message) = child.output().next() {
            kinds.push(matches!(message, Message::Cancellation(_)));
            ports.forward(message);
        }
        assert!(kinds.is_sorted() && child.output().is_empty());
    });
    let (theirs, mut held) = (log.clone(), Vec::<Request>::new());
    let platform = Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(message) = ports.input.next() {
            match message {
                Message::Submission(request) => {
                    theirs.borrow_mut().push((false, request.opcode()));
                    held.push(request);
                }
                Message::Cancellation(cancel) => {
                    theirs.borrow_mut().push((true, cancel.opcode()));
                    let first = held.remove(0);
                    assert_eq!(first.id(), cancel.id());
                    ports.complete(first, CANCELLED);
                }
                other => panic!("{other:?}"),
            }
        }
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
    assert_eq!(*log.borrow(), [(false, 0), (false, 1), (false, 2), (true, 0), (true, 1), (true, 2)]);
}

// S3-71: the text says which operation, whose it is, and what to do.
#[test]
fn no_destination_is_a_clear_panic() {
    let _watchdog = support::watchdog(60);
    let mut child = None;
    let app = Tick(move |now, ports: &mut Ports<'_>| {
        let child = child.get_or_insert_with(|| {
            let mut pool = OpPool::with_capacity(1);
            ports.child(Tick(move |_, ports: &mut Ports<'_>| {
                let _ = pool.take(77, ()).map(|op| ports.submit(op));
            }))
        });
        child.tick(now, ports);
        child.forward_all(ports);
    });
    let run = std::panic::AssertUnwindSafe(|| EventLoop::new().app(app).run());
    let payload = std::panic::catch_unwind(run).unwrap_err();
    let text = payload.downcast_ref::<String>().expect("a text");
    for part in ["opcode 77", "child machine 2", "no destination", "Op::to", "Request::set_destination"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

// S3-83, S3-84, S3-104: made by parents; the app's whole tree is dropped before the platform; a child's operation goes nowhere while its
// parent does not pass it on.
#[test]
fn the_app_ends_first_and_children_have_no_way_of_their_own() {
    let _watchdog = support::watchdog(60);
    struct Says(&'static str, Log<&'static str>);
    impl Drop for Says {
        fn drop(&mut self) {
            self.1.borrow_mut().push(self.0);
        }
    }
    let log = Log::default();
    let says = |name| Says(name, log.clone());
    let (grandchild, child, parent, platform) = (says("grandchild"), says("child"), says("app"), says("platform"));
    let mut made = Some((grandchild, child));
    let mut below = None;
    let app = Tick(move |now, ports: &mut Ports<'_>| {
        let _keeps = &parent;
        let me = ports.me();
        let child = below.get_or_insert_with(|| {
            let (grandchild, child) = made.take().unwrap();
            let (mut grandchild, mut below) = (Some(grandchild), None);
            ports.child(Tick(move |now, ports: &mut Ports<'_>| {
                let _keeps = &child;
                assert!(ports.me().machine > me.machine);
                let above = ports.me();
                let below = below.get_or_insert_with(|| {
                    let (grandchild, mut pool) = (grandchild.take().unwrap(), OpPool::with_capacity(1));
                    ports.child(Tick(move |_, ports: &mut Ports<'_>| {
                        let _keeps = &grandchild;
                        assert!(ports.me().machine > above.machine);
                        let _ = pool.take(1, ()).map(|op| ports.submit(op.to(MachineRef::platform(0))));
                    }))
                });
                below.tick(now, ports);
                // Not passed on.
            }))
        });
        child.tick(now, ports);
        assert!(child.output().is_empty());
        ports.stop();
    });
    let serves = Tick(move |_, ports: &mut Ports<'_>| {
        let _keeps = &platform;
        assert!(ports.input.is_empty(), "no machine could send it anything");
    });
    EventLoop::new().app(app).platform(serves).run().unwrap();
    let log = log.borrow();
    assert_eq!((log.len(), log[3]), (4, "platform"));
}

// S3-81, S3-98: a tree with operations in flight everywhere (held, timers, standing) is torn down, and all pools are full again.
#[test]
fn all_pools_are_full_after_the_end() {
    let _watchdog = support::watchdog(60);
    let gauges = Log::default();
    let mine = gauges.clone();
    let mut children = Vec::new();
    let app = Tick(move |now, ports: &mut Ports<'_>| {
        if children.is_empty() {
            for _ in 0..3 {
                let mut pool = OpPool::with_capacity(4);
                mine.borrow_mut().push(pool.gauge());
                children.push(ports.child(Tick(move |now: Timestamp, ports: &mut Ports<'_>| {
                    let far = now + Duration::from_secs(3600);
                    for opcode in [1, OP_TIMER, 2, OP_TIMER] {
                        let Ok(op) = pool.take(opcode, vec![0_u8; 8]) else { return };
                        let op = op.to(MachineRef::platform(0)).at(far);
                        ports.submit(if opcode == 2 { op.standing() } else { op });
                    }
                })));
            }
            let mut pool = OpPool::with_capacity(1);
            mine.borrow_mut().push(pool.gauge());
            ports.submit(pool.take(OP_TIMER, ()).unwrap().at(now + Duration::from_millis(1)));
        }
        for child in &mut children {
            child.tick(now, ports);
            child.forward_all(ports);
        }
        if ports.input.completions.pop().is_some() {
            assert!(mine.borrow()[..3].iter().all(|gauge: &fibra::machine::PoolGauge| gauge.available() == 0));
            ports.stop();
        }
    });
    let mut held = Vec::<Request>::new();
    let platform = Tick(move |_, ports: &mut Ports<'_>| {
        held.extend(std::iter::from_fn(|| ports.input.submissions.pop()));
        while let Some(cancel) = ports.input.cancellations.pop() {
            let index = held.iter().position(|request| request.id() == cancel.id()).unwrap();
            ports.complete(held.remove(index), CANCELLED);
        }
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
    let full: Vec<(usize, usize)> = gauges.borrow().iter().map(|gauge| (gauge.available(), gauge.capacity())).collect();
    assert_eq!(full, [(4, 4), (4, 4), (4, 4), (1, 1)]);
}

// S3-99, S3-101: a standing operation is rung a thousand times, each ring is handled, and then it ends with exactly one completion.
#[test]
fn a_standing_operation_lasts() {
    const RINGS: u64 = 1000;
    let _watchdog = support::watchdog(60);
    let (mut pool, mut id, mut notices, mut ends) = (OpPool::with_capacity(1), None, 0, 0);
    let gauge = pool.gauge();
    let (mut echoes, handled) = (OpPool::with_capacity(1), Rc::new(Cell::new(0)));
    let counted = handled.clone();
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        let standing = *id.get_or_insert_with(|| ports.submit(pool.take(1, ()).unwrap().standing()));
        while let Some(notice) = ports.input.notifications.pop() {
            assert_eq!((notice.id(), ends), (standing, 0));
            notices += 1;
            counted.set(notices);
        }
        while let Some(done) = ports.input.completions.pop() {
            if done.id() == standing {
                assert_eq!(done.result(), CANCELLED);
                ends += 1;
            }
        }
        match (ends, notices) {
            (1, _) => ports.stop(),
            (_, RINGS) => ports.cancel(standing).unwrap(),
            // Asks for the next ring.
            _ => {
                let _ = echoes.take(2, ()).map(|op| ports.submit(op));
            }
        }
    });
    let mut held = None::<Request>;
    let platform = Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(request) = ports.input.submissions.pop() {
            match request.opcode() {
                1 => held = Some(request),
                _ => ports.complete(request, 0),
            }
            if let Some(held) = &held {
                ports.ring(held);
            }
        }
        while ports.input.cancellations.pop().is_some() {
            ports.complete(held.take().unwrap(), CANCELLED);
        }
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
    assert_eq!((handled.get(), gauge.available()), (RINGS, 1));
}

// S3-102: between two threads each kind keeps its order, for one pair: submissions there, completions back, and every cancellation
// behind its submission.
#[test]
fn order_between_two_threads() {
    const OPERATIONS: u32 = 2000;
    let _watchdog = support::watchdog(60);
    let mut seats = Seat::mesh(2).into_iter();
    let (here, there) = (seats.next().unwrap(), seats.next().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut next, mut held) = (0, std::collections::VecDeque::<Request>::new());
        let platform = Tick(move |_, ports: &mut Ports<'_>| {
            while let Some(message) = ports.input.next() {
                match message {
                    Message::Submission(request) => {
                        assert_eq!(request.opcode(), next);
                        next += 1;
                        held.push_back(request);
                    }
                    // Only odd ones are cancelled: what is before them is answered, too.
                    Message::Cancellation(cancel) => {
                        while let Some(request) = held.pop_front() {
                            let last = request.id() == cancel.id();
                            ports.complete(request, if last { CANCELLED } else { 0 });
                            if last {
                                break;
                            }
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
        EventLoop::at(there).platform(platform).run().unwrap();
    });
    let (mut pool, mut sent, mut came) = (OpPool::with_capacity(16), 0, 0);
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(done) = ports.input.completions.pop() {
            assert_eq!((done.opcode(), done.result()), (came, if came % 2 == 1 { CANCELLED } else { 0 }));
            came += 1;
        }
        while sent < OPERATIONS {
            let Ok(op) = pool.take(sent, ()) else { break };
            let id = ports.submit(op.to(MachineRef::platform(1)));
            if sent % 2 == 1 {
                ports.cancel(id).unwrap();
            }
            sent += 1;
        }
        if came == OPERATIONS {
            ports.stop_all();
        }
    });
    EventLoop::at(here).app(app).run().unwrap();
    serving.join().unwrap();
}
