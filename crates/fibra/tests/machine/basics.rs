//! Machines on one loop: operations there and back, pools, traces, timers, cancellation, standing operations, rings.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use crate::support;
use fibra::machine::{
    ABANDONED, CANCELLED, Cancel, Done, Doorbell, EventLoop, Machine, MachineRef, Message, NotInFlight, OP_TIMER, OpId,
    OpPool, Overflow, Ports, Request, RingReader, RingWriter, Timestamp, UNREACHABLE, channel, ring,
};

const ECHO: u32 = 1;
const HOLD: u32 = 2;
const STREAM: u32 = 3;
const MORE: u32 = 4;

/// A machine that is a function.
struct Fn<F>(F);
impl<F: FnMut(Timestamp, &mut Ports<'_>) + 'static> Machine for Fn<F> {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        (self.0)(now, ports);
    }
}

/// Answers ECHO with its data plus one, keeps HOLD until it is cancelled, and drops everything else.
#[derive(Default)]
struct Server {
    held: Vec<Request>,
}
impl Machine for Server {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(mut request) = ports.input.submissions.pop() {
            match request.opcode() {
                ECHO => {
                    *request.data_mut::<u64>().unwrap() += 1;
                    let result = *request.data::<u64>().unwrap() as i32;
                    ports.complete(request, result);
                }
                HOLD => self.held.push(request),
                _ => drop(request),
            }
        }
        while let Some(cancel) = ports.input.cancellations.pop() {
            if let Some(index) = self.held.iter().position(|held| held.id() == cancel.id()) {
                ports.complete(self.held.swap_remove(index), CANCELLED);
            }
        }
    }
}

// S3-02, S3-03, S3-08, S3-10, S3-11, S3-13..S3-15, S3-29..S3-32, S3-65, S3-67, S3-70, S3-79: there and back, the same memory, in order.
#[test]
fn operations_go_to_the_platform_and_come_back() {
    let _watchdog = support::watchdog(60);
    let mut pool = OpPool::<u64>::with_capacity(4);
    let gauge = pool.gauge();
    let (mut sent, mut back, mut ids) = (0, 0, VecDeque::new());
    let mut address = 0;
    let app = Fn(move |_, ports: &mut Ports<'_>| {
        while let Some(done) = ports.input.completions.pop() {
            // S3-102: first in, first out.
            assert_eq!(Some(done.id()), ids.pop_front());
            assert_eq!((done.opcode(), done.result(), done.source()), (ECHO, back + 1, Some(ports.me())));
            let place = std::ptr::from_ref(done.data::<u64>().unwrap()) as usize;
            assert_eq!(address, place, "the same memory");
            assert_eq!(done.into_data::<u64>().unwrap() as i32, back + 1);
            back += 1;
        }
        if sent < 100 {
            let op = pool.take(ECHO, sent).unwrap();
            assert_eq!((op.source(), op.parent(), op.trace().get()), (None, None, op.id().get()));
            sent += 1;
            address = std::ptr::from_ref(&*op) as usize;
            ids.push_back(ports.submit(op));
            assert_eq!(ports.in_flight(), 1);
        } else {
            assert_eq!(pool.available(), 4);
            ports.stop();
        }
    });
    EventLoop::new().app(app).platform(Server::default()).run().unwrap();
    assert_eq!(gauge.available(), 4);
}

// S3-70: and the other way round.
#[test]
fn the_platform_asks_the_app() {
    let _watchdog = support::watchdog(60);
    let mut pool = OpPool::<u64>::with_capacity(1);
    let mut begun = false;
    let platform = Fn(move |_, ports: &mut Ports<'_>| {
        assert_eq!(ports.me(), MachineRef::platform(0));
        if !std::mem::replace(&mut begun, true) {
            ports.submit(pool.take(ECHO, 41).unwrap());
        }
        if let Some(done) = ports.input.completions.pop() {
            assert_eq!(done.result(), 42);
            ports.stop();
        }
    });
    EventLoop::new().app(Server::default()).platform(platform).run().unwrap();
}

// S3-54, S3-55, S3-96: no more in flight than the pool has; running out is an answer that gives the data back.
#[test]
fn a_pool_runs_out_visibly() {
    let _watchdog = support::watchdog(60);
    let mut pool = OpPool::<String>::with_capacity(2);
    assert_eq!((pool.capacity(), pool.available()), (2, 2));
    let (a, b) = (pool.take(ECHO, "a".into()).unwrap(), pool.take(ECHO, "b".into()).unwrap());
    let full = pool.take(ECHO, "c".into()).unwrap_err();
    assert_eq!((full.0.as_str(), full.to_string().is_empty()), ("c", false));
    assert_ne!(a.id(), b.id());
    drop(a);
    let c = pool.take(ECHO, full.0).unwrap();
    assert_eq!(*c, "c");
    // S3-19, S3-94, S3-100: what is in use keeps its memory, also when the pool is gone.
    drop(pool);
    assert_eq!((b.as_str(), c.as_str()), ("b", "c"));
}

// S3-12: who caused what can be told from ids and traces.
#[test]
fn a_chain_of_causes() {
    let _watchdog = support::watchdog(60);
    let chain = Rc::new(RefCell::new(Vec::new()));
    let seen = chain.clone();
    let mut pool = OpPool::<u64>::with_capacity(1);
    let mut first = true;
    let app = Fn(move |_, ports: &mut Ports<'_>| {
        if std::mem::take(&mut first) {
            ports.submit(pool.take(HOLD, 0).unwrap());
        }
        // The platform asks back on behalf of what we asked.
        while let Some(request) = ports.input.submissions.pop() {
            seen.borrow_mut().push((request.id(), request.trace(), request.parent()));
            ports.complete(request, 0);
        }
        if ports.input.completions.pop().is_some() {
            ports.stop();
        }
    });
    let (mut own, mut held, order) = (OpPool::<()>::with_capacity(1), None, chain.clone());
    let platform = Fn(move |_, ports: &mut Ports<'_>| {
        while let Some(request) = ports.input.submissions.pop() {
            order.borrow_mut().push((request.id(), request.trace(), request.parent()));
            let op = own.take(ECHO, ()).unwrap().caused_by(&request);
            ports.submit(op);
            held = Some(request);
        }
        while let Some(done) = ports.input.completions.pop() {
            ports.complete(held.take().unwrap(), done.result());
        }
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
    let chain = chain.borrow();
    let [(first, trace, None), (second, same, Some(parent))] = chain[..] else { panic!("{chain:?}") };
    assert_eq!((trace.get(), same, parent), (first.get(), trace, first));
    assert_ne!(first, second);
}

// S3-18, S3-52, S3-57, S3-58, S3-66, S3-76: timers are the loop's own; they come in the order of deadlines, never early.
#[test]
fn timers_come_in_order_and_never_early() {
    let _watchdog = support::watchdog(60);
    let mut pool = OpPool::<Timestamp>::with_capacity(8);
    let mut order = Vec::new();
    let mut begun = false;
    let app = Fn(move |now: Timestamp, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            for millis in [9, 3, 6, 0, 3] {
                let due = now + Duration::from_millis(millis);
                let op = pool.take(OP_TIMER, due).unwrap().at(due);
                ports.submit(op);
            }
        }
        while let Some(done) = ports.input.completions.pop() {
            let due = *done.data::<Timestamp>().unwrap();
            assert!(now >= due && done.result() == 0 && ports.now() == now);
            order.push((due, done.id()));
        }
        if order.len() == 5 {
            assert!(order.is_sorted(), "by deadline, and then by submission: {order:?}");
            ports.stop();
        }
    });
    // No platform: only the loop can have answered.
    EventLoop::new().app(app).run().unwrap();
}

// G-03, S3-16: a queued operation can be cancelled: the request has a link of its own.
// G-05, S3-43, S3-44, S3-46, S3-69: timers and held operations end when cancelled; each gives one answer; asking twice is asking once.
#[test]
fn cancelling_is_answered() {
    let _watchdog = support::watchdog(60);
    let mut pool = OpPool::<u64>::with_capacity(3);
    let gauge = pool.gauge();
    let (mut ids, mut answers, mut begun) = (Vec::new(), Vec::new(), false);
    let app = Fn(move |now: Timestamp, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            let timer = pool.take(OP_TIMER, 0).unwrap().at(now + Duration::from_secs(3600));
            ids = vec![ports.submit(timer), ports.submit(pool.take(HOLD, 0).unwrap())];
            ids.push(ports.submit(pool.take(ECHO, 6).unwrap()));
            // Before any of them has left: submissions are routed first, so nothing is overtaken.
            for id in &ids {
                assert_eq!((ports.cancel(*id), ports.cancel(*id)), (Ok(()), Ok(())));
            }
        }
        while let Some(done) = ports.input.completions.pop() {
            answers.push((done.id(), done.result()));
            // S3-47: answered, so there is nothing to cancel any more.
            assert_eq!(ports.cancel(done.id()), Err(NotInFlight));
        }
        if answers.len() == 3 {
            answers.sort_unstable();
            // The completion has won against the cancellation of ECHO.
            assert_eq!(answers, [(ids[0], CANCELLED), (ids[1], CANCELLED), (ids[2], 7)]);
            ports.stop();
        }
    });
    EventLoop::new().app(app).platform(Server::default()).run().unwrap();
    assert_eq!(gauge.available(), 3);
}

// S3-47: an operation of another machine cannot be cancelled, nor one that never was.
#[test]
fn only_ones_own_is_cancelled() {
    let _watchdog = support::watchdog(60);
    let shared = Rc::new(Cell::new(None::<OpId>));
    let (theirs, mut pool) = (shared.clone(), OpPool::<u64>::with_capacity(1));
    let app = Fn(move |_, ports: &mut Ports<'_>| {
        if theirs.get().is_none() {
            theirs.set(Some(ports.submit(pool.take(HOLD, 0).unwrap())));
        }
    });
    let platform = Fn(move |_, ports: &mut Ports<'_>| {
        while let Some(request) = ports.input.submissions.pop() {
            assert_eq!(Some(request.id()), shared.get());
            assert_eq!(ports.cancel(request.id()), Err(NotInFlight));
            ports.stop();
        }
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
}

// S3-44: a dropped request is answered; so is one for a machine that does not exist.
#[test]
fn dropped_and_unreachable_are_answers() {
    let _watchdog = support::watchdog(60);
    let mut pool = OpPool::<u64>::with_capacity(4);
    let mut answers = Vec::new();
    let mut begun = false;
    let app = Fn(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            ports.submit(pool.take(99, 0).unwrap());
            for unknown in [MachineRef { thread: 0, machine: 77 }, MachineRef::app(5)] {
                ports.submit(pool.take(ECHO, 0).unwrap().to(unknown));
            }
        }
        while let Some(done) = ports.input.completions.pop() {
            answers.push(done.result());
        }
        if answers.len() == 3 {
            answers.sort_unstable();
            assert_eq!(answers, [UNREACHABLE, UNREACHABLE, ABANDONED]);
            ports.stop();
        }
    });
    EventLoop::new().app(app).platform(Server::default()).run().unwrap();
}

/// Writes `count` numbers, three for every MORE, and rings more often than needed; then fails, or waits to be cancelled.
struct Stream {
    standing: Option<Request>,
    next: u32,
    count: u32,
    fails: bool,
}
impl Machine for Stream {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        let mut more = false;
        while let Some(request) = ports.input.submissions.pop() {
            more = true;
            match request.opcode() {
                MORE => ports.complete(request, 0),
                _ => {
                    assert!(request.is_standing());
                    self.standing = Some(request);
                }
            }
        }
        let cancelled = std::iter::from_fn(|| ports.input.cancellations.pop()).last();
        let Some(mut standing) = self.standing.take() else { return };
        if cancelled.is_some() {
            return ports.complete(standing, CANCELLED);
        }
        for _ in 0..if more { 3.min(self.count - self.next) } else { 0 } {
            let written = standing.data_mut::<RingWriter<u32>>().unwrap().write(self.next);
            assert_eq!(written, Ok(None));
            self.next += 1;
            let first = self.next % 3 == 1;
            assert_eq!(ports.ring(&standing), first, "S3-40: ringing what is queued enqueues nothing");
        }
        if self.next == self.count && self.fails {
            return ports.complete(standing, -5);
        }
        self.standing = Some(standing);
    }
}

/// Reads all there is whenever it is rung, and asks for more.
fn read_a_stream(fails: bool) {
    let _watchdog = support::watchdog(60);
    const COUNT: u32 = 30;
    let mut pool = OpPool::<RingWriter<u32>>::with_capacity(1);
    let gauge = pool.gauge();
    let mut reader = None::<RingReader<u32>>;
    let (mut read, mut rings, mut id) = (0, 0, None);
    let mut mores = OpPool::<()>::with_capacity(2);
    let app = Fn(move |_, ports: &mut Ports<'_>| {
        let reader = match &mut reader {
            Some(reader) => reader,
            None => {
                // S3-21, S3-33, S3-34, S3-49: the requester brings the memory and says what happens when it is full.
                let (writer, new) = ring(8, Overflow::DropNewest);
                id = Some(ports.submit(pool.take(STREAM, writer).unwrap().standing()));
                reader.insert(new)
            }
        };
        // S3-35..S3-37, S3-42, S3-101: rung, so read everything; and then it can be rung again.
        while let Some(notice) = ports.input.notifications.pop() {
            assert_eq!(Some(notice.id()), id);
            rings += 1;
            while let Some(number) = reader.read() {
                assert_eq!(number, read);
                read += 1;
            }
            if read < COUNT {
                ports.submit(mores.take(MORE, ()).unwrap());
            } else if !fails {
                ports.cancel(id.unwrap()).unwrap();
            }
        }
        while let Some(done) = ports.input.completions.pop() {
            if Some(done.id()) == id {
                // S3-38, S3-39, S3-45, S3-99: until error or cancellation; then one completion, after the last ring.
                assert_eq!((done.result(), read, rings), (if fails { -5 } else { CANCELLED }, COUNT, COUNT / 3));
                assert_eq!((reader.stats().written, reader.stats().dropped), (u64::from(COUNT), 0));
                drop(done);
                ports.stop();
            }
        }
    });
    let platform = Stream { standing: None, next: 0, count: COUNT, fails };
    EventLoop::new().app(app).platform(platform).run().unwrap();
    assert_eq!(gauge.available(), 1);
}

#[test]
fn a_standing_operation_ends_by_cancellation() {
    read_a_stream(false);
}

#[test]
fn a_standing_operation_ends_by_failure() {
    read_a_stream(true);
}

// S3-41: a machine that handles a ring can be rung meanwhile: the mark is gone when the notice is in hand, so nothing written then is
// missed.
#[test]
fn a_ring_during_the_handling_is_delivered() {
    let _watchdog = support::watchdog(60);
    let mut pool = OpPool::<()>::with_capacity(1);
    let bell = Rc::new(RefCell::new(None::<Doorbell>));
    let (rung, mut begun, mut handled) = (bell.clone(), false, 0);
    let app = Fn(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            ports.submit(pool.take(STREAM, ()).unwrap().standing());
        }
        while let Some(notice) = ports.input.notifications.pop() {
            handled += 1;
            let bell = rung.borrow();
            let bell = bell.as_ref().unwrap();
            assert_eq!(notice.id(), bell.id());
            if handled < 5 {
                assert!(bell.ring(), "the notice is still in hand");
                assert!(!bell.ring(), "and one is under way now");
            }
            drop(notice);
        }
        if handled == 5 {
            drop(rung.borrow_mut().take());
            ports.stop();
        }
    });
    let mut held = None;
    let platform = Fn(move |_, ports: &mut Ports<'_>| {
        while let Some(request) = ports.input.submissions.pop() {
            assert!(bell.borrow_mut().insert(request.doorbell()).ring());
            held = Some(request);
        }
        if ports.input.cancellations.pop().is_some() {
            held.take().into_iter().for_each(|held| ports.complete(held, CANCELLED));
        }
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
}

// S3-50, S3-51: what a full ring does, and that it counts.
#[test]
fn overflow_is_counted() {
    let (mut writer, mut reader) = ring(2, Overflow::DropNewest);
    assert_eq!([1, 2, 3, 4].map(|value| writer.write(value)), [Ok(None), Ok(None), Err(3), Err(4)]);
    assert_eq!((reader.len(), reader.read(), reader.read(), reader.read()), (2, Some(1), Some(2), None));
    let stats = reader.stats();
    assert_eq!((stats.written, stats.read, stats.dropped, stats.overwritten), (4, 2, 2, 0));

    let (mut writer, mut reader) = ring(2, Overflow::OverwriteOldest);
    assert_eq!([1, 2, 3, 4].map(|value| writer.write(value)), [Ok(None), Ok(None), Ok(Some(1)), Ok(Some(2))]);
    assert_eq!((reader.read(), reader.read(), reader.is_empty()), (Some(3), Some(4), true));
    let stats = writer.stats();
    assert_eq!((stats.written, stats.read, stats.dropped, stats.overwritten), (4, 2, 0, 2));
    drop(reader);
    assert!(writer.is_abandoned());
}

// S3-53: a channel is such a ring, and refuses what it has no room for.
#[test]
fn a_channel_refuses_when_full() {
    let (mut writer, mut reader) = channel(1);
    assert_eq!((writer.write("a"), writer.write("b")), (Ok(None), Err("b")));
    assert_eq!((reader.read(), writer.write("b"), reader.read()), (Some("a"), Ok(None), Some("b")));
}

// S3-40, G-01: rung as the last of the queue, and rung as the only one: enqueued once.
#[test]
fn a_queued_tail_is_not_queued_twice() {
    let _watchdog = support::watchdog(60);
    let mut pool = OpPool::<()>::with_capacity(2);
    let mut begun = false;
    let notices = Rc::new(Cell::new(0));
    let counted = notices.clone();
    let app = Fn(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            for _ in 0..2 {
                ports.submit(pool.take(STREAM, ()).unwrap().standing());
            }
        }
        while ports.input.notifications.pop().is_some() {
            counted.set(counted.get() + 1);
        }
        if counted.get() > 0 {
            ports.stop();
        }
    });
    let platform = Fn(move |_, ports: &mut Ports<'_>| {
        let both: Vec<Request> = std::iter::from_fn(|| ports.input.submissions.pop()).collect();
        if let [first, last] = &both[..] {
            let rung = [first, last, last, first, last].map(|request| ports.ring(request));
            assert_eq!(rung, [true, true, false, false, false]);
        }
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
    assert_eq!(notices.get(), 2);
}

// G-04, S3-64: all four kinds find their way. A port's `next` gives submissions before cancellations, notices before answers.
#[test]
fn messages_of_all_kinds_in_order() {
    let _watchdog = support::watchdog(60);
    let mut pool = OpPool::<u64>::with_capacity(2);
    let mut id = None;
    let app = Fn(move |_, ports: &mut Ports<'_>| {
        if id.is_none() {
            let standing = ports.submit(pool.take(STREAM, 0).unwrap().standing());
            ports.cancel(standing).unwrap();
            id = Some(standing);
        }
        match (ports.input.next(), ports.input.next()) {
            (None, None) => {}
            (Some(Message::Notification(notice)), Some(Message::Completion(done))) => {
                assert_eq!((notice.id(), done.id(), done.result()), (id.unwrap(), id.unwrap(), CANCELLED));
                ports.stop();
            }
            other => panic!("{other:?}"),
        }
    });
    let platform = Fn(|_, ports: &mut Ports<'_>| match (ports.input.next(), ports.input.next()) {
        (None, None) => {}
        (Some(Message::Submission(request)), Some(Message::Cancellation(cancel))) => {
            assert_eq!(request.id(), cancel.id());
            ports.ring(&request);
            ports.complete(request, CANCELLED);
        }
        other => panic!("{other:?}"),
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
}

// A loop in which nothing can happen any more ends instead of hanging. (An operation that a thread holds may be answered from anywhere.)
#[test]
fn a_loop_without_anything_to_wait_for_ends() {
    let _watchdog = support::watchdog(60);
    EventLoop::new().run().unwrap();
    let mut pool = OpPool::<u64>::with_capacity(1);
    let gauge = pool.gauge();
    let mut asked = false;
    let app = Fn(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut asked, true) {
            ports.submit(pool.take(ECHO, 0).unwrap());
        }
        while ports.input.completions.pop().is_some() {}
    });
    EventLoop::new().app(app).platform(Server::default()).run().unwrap();
    assert_eq!(gauge.available(), 1);
}

// G-02, S3-63: what a tick puts out is routed without a blocking wait in between: there is no timer or kick here that could end one.
#[test]
fn nothing_stalls_between_ticks() {
    let _watchdog = support::watchdog(60);
    let loop_ = EventLoop::new();
    // Watched from outside, the loop would sleep for ever rather than end.
    let stopper = loop_.stopper();
    let mut pool = OpPool::<u64>::with_capacity(1);
    let mut rounds = 0;
    let app = Fn(move |_, ports: &mut Ports<'_>| {
        while ports.input.completions.pop().is_some() {}
        rounds += 1;
        if rounds == 1000 {
            stopper.stop();
        } else {
            ports.submit(pool.take(ECHO, 1).unwrap());
        }
    });
    loop_.app(app).platform(Server::default()).run().unwrap();
}

// S3-61, S3-62, S3-06, S3-07, S3-72, S3-74: only machines with something to do are called, once per round for any number of messages.
#[test]
fn one_tick_for_many_messages() {
    let _watchdog = support::watchdog(60);
    let ticks = Rc::new(Cell::new((0, 0)));
    let (app_ticks, platform_ticks) = (ticks.clone(), ticks.clone());
    let mut pool = OpPool::<u64>::with_capacity(50);
    let app = Fn(move |_, ports: &mut Ports<'_>| {
        app_ticks.set((app_ticks.get().0 + 1, app_ticks.get().1));
        if ports.input.is_empty() {
            for n in 0..50 {
                ports.submit(pool.take(ECHO, n).unwrap());
            }
        } else {
            assert_eq!(ports.input.completions.len(), 50);
            ports.stop();
        }
    });
    let mut server = Server::default();
    let platform = Fn(move |now: Timestamp, ports: &mut Ports<'_>| {
        platform_ticks.set((platform_ticks.get().0, platform_ticks.get().1 + 1));
        server.tick(now, ports);
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
    // Each once to begin with, and once for the fifty.
    assert_eq!(ticks.get(), (2, 2));
}

// A machine carries a request into a loop of its own, inside its tick, and answers it there: it finds its way home all the same.
#[test]
fn a_request_in_a_foreign_loop_goes_home() {
    let _watchdog = support::watchdog(60);
    let mut pool = OpPool::<u64>::with_capacity(1);
    let mut begun = false;
    let app = Fn(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            ports.submit(pool.take(HOLD, 0).unwrap());
        }
        if let Some(done) = ports.input.completions.pop() {
            assert_eq!(done.result(), 5);
            ports.stop();
        }
    });
    let platform = Fn(|_, ports: &mut Ports<'_>| {
        let mut carried = ports.input.submissions.pop();
        if carried.is_some() {
            let inner = Fn(move |_, ports: &mut Ports<'_>| {
                carried.take().into_iter().for_each(|request| ports.complete(request, 5));
            });
            EventLoop::new().app(inner).run().unwrap();
        }
    });
    EventLoop::new().app(app).platform(platform).run().unwrap();
}

// What handles say of themselves.
#[test]
fn handles_can_be_printed() {
    let mut pool = OpPool::<u64>::with_capacity(1);
    let op = pool.take(ECHO, 1).unwrap();
    assert!(format!("{op:?} {pool:?} {:?} {}", EventLoop::new(), op.id()).contains("Op"));
    fn is_send<T: Send>() {}
    is_send::<OpPool<Cell<u64>>>();
    let _: fn(Done, Cancel) = |_, _| ();
}
