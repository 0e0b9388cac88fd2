//! Loops on several threads: routing, order, kicks, cancellation across threads, doorbells, and ends.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::Duration;

use crate::support;
use fibra::machine::{
    CANCELLED, Child, Doorbell, EventLoop, Machine, MachineRef, OP_TIMER, OpId, OpPool, Overflow, PoolGauge, Port,
    Ports, Queue, Request, RingReader, Seat, Timestamp, UNREACHABLE, ring,
};

const NUMBER: u32 = 1;
const HOLD: u32 = 2;
const STREAM: u32 = 3;

/// Does not compile for a type that is `Send`: then there are two ways to mean `which`.
macro_rules! stay_on_their_thread {
    ($($what:ty),*) => {
        $(const _: fn() = || {
            trait Ambiguous<Marker> {
                fn which() {}
            }
            struct ByBeingSend;
            impl<T: ?Sized> Ambiguous<()> for T {}
            impl<T: ?Sized + Send> Ambiguous<ByBeingSend> for T {}
            let _ = <$what as Ambiguous<_>>::which;
        };)*
    };
}

// S3-28: queues and what works on them do not leave their thread. (Single operations may: they have one owner, and go home by mail.)
stay_on_their_thread!(EventLoop, Ports<'static>, Port, Queue<Request>, Child<Holder>);

/// Sends numbers to a machine of another loop, several at a time, and checks that they come back in order.
struct Sender {
    pool: OpPool<u64>,
    to: MachineRef,
    next: u64,
    expected: VecDeque<(OpId, u64)>,
    count: u64,
}
impl Machine for Sender {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(done) = ports.input.completions.pop() {
            assert_eq!(Some((done.id(), *done.data::<u64>().unwrap())), self.expected.pop_front(), "S3-102: in order");
            assert_eq!(done.result(), 1);
        }
        while self.next < self.count {
            let Ok(op) = self.pool.take(NUMBER, self.next) else { break };
            self.expected.push_back((ports.submit(op.to(self.to)), self.next));
            self.next += 1;
        }
        if self.expected.is_empty() {
            ports.stop();
        }
    }
}

/// Checks the order per sender, and answers.
struct Receiver {
    next: Vec<u64>,
    left: u64,
}
impl Machine for Receiver {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            let sender = request.source().unwrap().thread as usize;
            assert_eq!(*request.data::<u64>().unwrap(), self.next[sender], "S3-102: in order");
            self.next[sender] += 1;
            self.left -= 1;
            ports.complete(request, 1);
        }
        if self.left == 0 {
            ports.stop();
        }
    }
}

// S3-17, S3-60, S3-68, S3-93, S3-97, S3-102, G-06: two loops send to a third, through outboxes, mail and kicks.
#[test]
fn numbers_cross_threads_in_order() {
    let _watchdog = support::watchdog(120);
    const COUNT: u64 = 20_000;
    let mut seats = Seat::mesh(3).into_iter();
    let receiver = seats.next().unwrap();
    let senders: Vec<_> = seats
        .map(|seat| {
            std::thread::spawn(move || {
                let pool = OpPool::with_capacity(16);
                let gauge = pool.gauge();
                let to = MachineRef::app(0);
                let sender = Sender { pool, to, next: 0, expected: VecDeque::new(), count: COUNT };
                EventLoop::at(seat).app(sender).run().unwrap();
                assert_eq!(gauge.available(), 16);
            })
        })
        .collect();
    EventLoop::at(receiver).app(Receiver { next: vec![0; 3], left: 2 * COUNT }).run().unwrap();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

/// Submits, cancels at once, and counts who was faster; many times over.
struct Canceller {
    pool: OpPool<u64>,
    in_flight: Option<OpId>,
    rounds: u32,
    completed: u32,
    cancelled: u32,
}
impl Machine for Canceller {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        while let Some(done) = ports.input.completions.pop() {
            if done.opcode() == OP_TIMER {
                if let Some(id) = self.in_flight {
                    let _ = ports.cancel(id);
                }
                continue;
            }
            assert_eq!(self.in_flight.take(), Some(done.id()), "exactly one answer");
            match done.result() {
                1 => self.completed += 1,
                CANCELLED => self.cancelled += 1,
                other => panic!("{other}"),
            }
        }
        if self.in_flight.is_none() && self.rounds > 0 {
            // The memory may still be waiting for the acknowledgement of the last cancellation: then the next tick does it.
            if let Ok(op) = self.pool.take(HOLD, u64::from(self.rounds % 3)) {
                self.rounds -= 1;
                let id = ports.submit(op.to(MachineRef::app(1)));
                self.in_flight = Some(id);
                if self.rounds.is_multiple_of(2) {
                    ports.cancel(id).unwrap();
                } else if let Ok(timer) = self.pool.take(OP_TIMER, 0) {
                    ports.submit(timer.at(now + Duration::from_micros(u64::from(self.rounds % 50))));
                } else {
                    ports.cancel(id).unwrap();
                }
            } else if let Ok(timer) = self.pool.take(OP_TIMER, 0) {
                ports.submit(timer.at(now));
            }
        }
        if self.in_flight.is_none() && self.rounds == 0 {
            ports.stop_all();
        }
    }
}

/// Answers two of three at once, and the others when they are cancelled.
#[derive(Default)]
struct Holder(Vec<Request>);
impl Machine for Holder {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            match request.data::<u64>() {
                Some(0) | None => self.0.push(request),
                _ => ports.complete(request, 1),
            }
        }
        while let Some(cancel) = ports.input.cancellations.pop() {
            if let Some(index) = self.0.iter().position(|held| held.id() == cancel.id()) {
                ports.complete(self.0.swap_remove(index), CANCELLED);
            }
        }
    }
}

// S3-48, G-08, S3-43, S3-44: cancellations cross completions between two threads, thousands of times.
#[test]
fn cancellations_cross_completions() {
    let _watchdog = support::watchdog(120);
    let mut seats = Seat::mesh(2).into_iter();
    let (here, there) = (seats.next().unwrap(), seats.next().unwrap());
    let holder = std::thread::spawn(move || EventLoop::at(there).app(Holder::default()).run().unwrap());
    let pool = OpPool::with_capacity(8);
    let gauge = pool.gauge();
    let canceller = Canceller { pool, in_flight: None, rounds: 6_000, completed: 0, cancelled: 0 };
    EventLoop::at(here).app(canceller).run().unwrap();
    holder.join().unwrap();
    assert_eq!(gauge.available(), 8);
}

/// Hands its doorbell to every caller, on other threads.
struct Bells {
    pool: OpPool<()>,
    begun: bool,
    reader: RingReader<u64>,
    left: u64,
    id: Option<OpId>,
}
impl Machine for Bells {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        if !std::mem::replace(&mut self.begun, true) {
            self.id = Some(ports.submit(self.pool.take(STREAM, ()).unwrap().standing()));
        }
        while let Some(notice) = ports.input.notifications.pop() {
            assert_eq!(Some(notice.id()), self.id);
            while self.reader.read().is_some() {
                self.left -= 1;
            }
        }
        if self.left == 0 {
            ports.stop();
        }
    }
}

struct GivesBells {
    to: Vec<mpsc::Sender<Doorbell>>,
    held: Option<Request>,
}
impl Machine for GivesBells {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            self.to.drain(..).for_each(|to| to.send(request.doorbell()).unwrap());
            self.held = Some(request);
        }
        while ports.input.cancellations.pop().is_some() {
            let held = self.held.take();
            held.into_iter().for_each(|held| ports.complete(held, CANCELLED));
        }
    }
}

// G-07, S3-42: two threads ring one operation; every number that was written is read, and the loop sleeps in between.
#[test]
fn a_doorbell_has_many_writers() {
    let _watchdog = support::watchdog(120);
    const COUNT: u64 = 5_000;
    let (writer, reader) = ring(16_384, Overflow::DropNewest);
    let writer = std::sync::Arc::new(fibra::sync::Mutex::new(writer));
    let (senders, ringers): (Vec<_>, Vec<_>) = (0..2)
        .map(|_| {
            let (sender, receiver) = mpsc::channel::<Doorbell>();
            let writer = writer.clone();
            let ringer = std::thread::spawn(move || {
                let bell = receiver.recv().unwrap();
                for number in 0..COUNT {
                    writer.lock().write(number).unwrap();
                    bell.clone().ring();
                }
            });
            (sender, ringer)
        })
        .unzip();
    let pool = OpPool::with_capacity(1);
    let app = Bells { pool, begun: false, reader, left: 2 * COUNT, id: None };
    EventLoop::new().app(app).platform(GivesBells { to: senders, held: None }).run().unwrap();
    ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
}

/// Asks a loop until that is gone.
struct UntilGone(OpPool<u64>);
impl Machine for UntilGone {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(done) = ports.input.completions.pop() {
            if done.result() == UNREACHABLE {
                return ports.stop();
            }
            assert_eq!(done.result(), 1);
        }
        if ports.in_flight() == 0 {
            ports.submit(self.0.take(NUMBER, 1).unwrap().to(MachineRef::app(1)));
        }
    }
}

/// Stops after some answers.
struct Ends(u32);
impl Machine for Ends {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            ports.complete(request, 1);
            self.0 -= 1;
        }
        if self.0 == 0 {
            ports.stop();
        }
    }
}

// S3-44, S3-104: a loop of the mesh ends while another one sends to it: that gets its answers, and learns of it. So it does if the
// loop never was.
#[test]
fn a_loop_that_is_gone_is_unreachable() {
    let _watchdog = support::watchdog(120);
    for there_at_all in [true, false] {
        let mut seats = Seat::mesh(2).into_iter();
        let (here, there) = (seats.next().unwrap(), seats.next().unwrap());
        let other = std::thread::spawn(move || {
            if there_at_all {
                EventLoop::at(there).app(Ends(50)).run().unwrap();
            }
        });
        let pool = OpPool::with_capacity(1);
        let gauge: PoolGauge = pool.gauge();
        EventLoop::at(here).app(UntilGone(pool)).run().unwrap();
        other.join().unwrap();
        assert_eq!(gauge.available(), 1);
    }
}

/// In which system call a thread of this process waits, if it does.
#[cfg(target_os = "linux")]
fn waits_in(thread: i32) -> Option<i64> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Whether a thread waits in the call that learns of I/O.
#[cfg(target_os = "linux")]
pub(crate) fn waits_in_epoll(thread: i32) -> bool {
    let calls = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];
    waits_in(thread).is_some_and(|call| calls.contains(&call))
}

// S3-57, S3-78: whatever a loop waits for (nothing, a timer, another loop), it waits in the one call that also learns of I/O; and what that
// returns is the time of the round.
#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(any(fibra_asan, fibra_tsan), ignore = "the tools make system calls of their own")]
fn a_loop_waits_in_one_place() {
    /// Sets a timer, or asks a loop that does not answer, or does nothing.
    struct Waits(Option<(u32, OpPool<()>)>, mpsc::Sender<i32>);
    impl Machine for Waits {
        fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
            // SAFETY: asks for a number.
            let thread = unsafe { libc::gettid() };
            self.1.send(thread).unwrap();
            assert_eq!(now, ports.now(), "the time at which the wait was over");
            if let Some((opcode, mut pool)) = self.0.take() {
                let op = pool.take(opcode, ()).unwrap();
                ports.submit(match opcode {
                    OP_TIMER => op.at(now + Duration::from_secs(3600)),
                    _ => op.to(MachineRef::app(1)),
                });
            }
        }
    }
    let _watchdog = support::watchdog(120);
    for opcode in [None, Some(OP_TIMER), Some(HOLD)] {
        let (mut seats, (ticked, ticks)) = (Seat::mesh(2).into_iter(), mpsc::channel());
        let (here, there) = (seats.next().unwrap(), seats.next().unwrap());
        let (to_us, stoppers) = mpsc::channel();
        let to_us_too = to_us.clone();
        let waiting = std::thread::spawn(move || {
            let loop_ = EventLoop::at(here);
            to_us.send(loop_.stopper()).unwrap();
            loop_.app(Waits(opcode.map(|code| (code, OpPool::with_capacity(1))), ticked)).run().unwrap();
        });
        let other = std::thread::spawn(move || {
            let loop_ = EventLoop::at(there);
            to_us_too.send(loop_.stopper()).unwrap();
            loop_.app(Holder::default()).run().unwrap();
        });
        let stoppers = [stoppers.recv().unwrap(), stoppers.recv().unwrap()];
        let thread = ticks.recv().unwrap();
        support::eventually(|| waits_in_epoll(thread), || format!("{:?}", waits_in(thread)));
        stoppers.iter().for_each(|stopper| stopper.stop());
        waiting.join().unwrap();
        other.join().unwrap();
    }
}

// G-02: an idle loop sleeps until it is stopped from another thread.
#[test]
fn an_idle_loop_is_stopped_from_outside() {
    let _watchdog = support::watchdog(120);
    let (to_us, stopper) = mpsc::channel();
    let idle = std::thread::spawn(move || {
        let loop_ = EventLoop::new();
        to_us.send(loop_.stopper()).unwrap();
        loop_.app(Holder::default()).run().unwrap();
    });
    let stopper = stopper.recv().unwrap();
    stopper.clone().stop();
    idle.join().unwrap();
    // Dropping the last one ends an idle loop, too.
    let (to_us, stopper) = mpsc::channel();
    let idle = std::thread::spawn(move || {
        let loop_ = EventLoop::new();
        to_us.send(loop_.stopper()).unwrap();
        loop_.app(Holder::default()).run().unwrap();
    });
    drop(stopper.recv().unwrap());
    idle.join().unwrap();
}
