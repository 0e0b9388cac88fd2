//! Every way to send on a rendezvous meets every way to receive, whichever side comes first and wherever the two run.
//!
//! Only two sides of which neither stays do not meet: both poll, or a sender watches for a receiver that polls. That is asserted too.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use fibra::channel::{Receiver, Sender, rendezvous};
use fibra::{Handle, Runtime};

use crate::rendezvous_kinds::{How, Kind, RECEIVERS, SENDERS, Stands, Tries, VALUE};
use crate::support::watchdog;

type SendKind = &'static Kind<Sender<u32>, ()>;
type RecvKind = &'static Kind<Receiver<u32>, u32>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum First {
    Sender,
    Receiver,
}

/// Do these two meet? See the header.
fn meet(sends: SendKind, receives: RecvKind) -> bool {
    !matches!((sends.stands, receives.stands), (Stands::Polls | Stands::Watches, Stands::Polls))
}

/// Calls `cell` for every pair that meets and each order, on a thread that bears its name: the watchdog says it.
fn every_cell(place: &str, with: impl Fn(SendKind, RecvKind) -> bool, cell: fn(SendKind, RecvKind, First)) {
    for sends in SENDERS {
        for receives in RECEIVERS.iter().filter(|receives| meet(sends, receives) && with(sends, receives)) {
            for first in [First::Sender, First::Receiver] {
                let name = format!("{place}: {} x {}, {first:?} first", sends.name, receives.name);
                let run = move || {
                    let _watchdog = watchdog(60);
                    cell(sends, receives, first);
                };
                let thread = std::thread::Builder::new().name(name.clone()).spawn(run).unwrap();
                assert!(thread.join().is_ok(), "{name}");
            }
        }
    }
}

/// Runs a way to its end, where it blocks whatever runs it.
fn run<E: Clone, T>(kind: &Kind<E, T>, end: &E, tries: &Tries) -> T {
    match kind.how {
        How::Blocking(how) => how(end, tries),
        How::Async(how) => fibra::block_on(how(end.clone())),
    }
}

/// Waits until the fiber that was started first is there for the other one: it is parked, or it has looked in vain.
fn until_there(tries: &Tries) {
    while Handle::current().metrics().parked == 0 && tries.load(SeqCst) == 0 {
        fibra::yield_now();
    }
}

/// Two fibers of one worker, the first of which is parked or polls before the second one starts.
fn on_one_worker(sends: SendKind, receives: RecvKind, first: First) {
    Runtime::current_thread().unwrap().run(|| {
        let (tx, rx) = rendezvous();
        let tries = Arc::new(Tries::new(0));
        let send = |tx: Sender<u32>, tries: Arc<Tries>| fibra::spawn_local(move || run(sends, &tx, &tries));
        let receive = |rx: Receiver<u32>, tries: Arc<Tries>| fibra::spawn_local(move || run(receives, &rx, &tries));
        let (sending, receiving) = if first == First::Sender {
            let sending = send(tx.clone(), tries.clone());
            until_there(&tries);
            (sending, receive(rx.clone(), tries))
        } else {
            let receiving = receive(rx.clone(), tries.clone());
            until_there(&tries);
            (send(tx.clone(), tries), receiving)
        };
        assert_eq!(receiving.join().unwrap(), VALUE);
        sending.join().unwrap();
        assert!(rx.is_empty(), "something is left");
    });
}

#[test]
fn fibers_of_one_worker_meet() {
    every_cell("one worker", |_, _| true, on_one_worker);
}

/// Two fibers, on two workers if they like; in no particular order, although the first one has a head start.
fn on_two_workers(sends: SendKind, receives: RecvKind, first: First) {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    for _ in 0..3 {
        let (tx, rx) = rendezvous();
        let (sender, receiver) = (tx.clone(), rx.clone());
        let send = move || run(sends, &sender, &Tries::new(0));
        let receive = move || run(receives, &receiver, &Tries::new(0));
        let handle = runtime.handle();
        let (sending, receiving) = if first == First::Sender {
            let sending = handle.spawn(send);
            (sending, handle.spawn(receive))
        } else {
            let receiving = handle.spawn(receive);
            (handle.spawn(send), receiving)
        };
        assert_eq!(receiving.join().unwrap(), VALUE);
        sending.join().unwrap();
        assert!(rx.is_empty() && tx.is_empty(), "something is left");
    }
}

#[test]
fn fibers_of_two_workers_meet() {
    every_cell("two workers", |_, _| true, on_two_workers);
}

/// A fiber and a thread, and two threads.
fn on_threads(sends: SendKind, receives: RecvKind, first: First) {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    for _ in 0..3 {
        let (tx, rx) = rendezvous();
        let (other_tx, other_rx) = (tx.clone(), rx.clone());
        std::thread::scope(|threads| {
            // The one that comes first is on this thread or, as a fiber, on its way already.
            let fiber = |end: First| end == first;
            let receiving = if fiber(First::Receiver) {
                Some(runtime.handle().spawn(move || run(receives, &other_rx, &Tries::new(0))))
            } else {
                None
            };
            let sending = threads.spawn(move || run(sends, &other_tx, &Tries::new(0)));
            let got = match receiving {
                Some(receiving) => receiving.join().unwrap(),
                None => run(receives, &rx, &Tries::new(0)),
            };
            assert_eq!(got, VALUE);
            sending.join().unwrap();
        });
        assert!(tx.is_empty(), "something is left");
    }
}

#[test]
fn threads_meet_threads_and_fibers() {
    every_cell("threads", |_, _| true, on_threads);
}

/// Futures as tasks of a runtime, each with whatever is on the other side: another task, or a thread.
fn with_tasks(sends: SendKind, receives: RecvKind, first: First) {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let _entered = runtime.handle().enter();
    let (tx, rx) = rendezvous();
    let (other_tx, other_rx) = (tx.clone(), rx.clone());
    let send = move || match sends.how {
        How::Async(how) => Running::Task(fibra::spawn_future(how(other_tx))),
        How::Blocking(how) => Running::Thread(std::thread::spawn(move || how(&other_tx, &Tries::new(0)))),
    };
    let receive = move || match receives.how {
        How::Async(how) => Running::Task(fibra::spawn_future(how(other_rx))),
        How::Blocking(how) => Running::Thread(std::thread::spawn(move || how(&other_rx, &Tries::new(0)))),
    };
    let (sending, receiving) = if first == First::Sender {
        let sending = send();
        (sending, receive())
    } else {
        let receiving = receive();
        (send(), receiving)
    };
    assert_eq!(receiving.join(), VALUE);
    sending.join();
    assert!(rx.is_empty() && tx.is_empty(), "something is left");
}

enum Running<T> {
    Task(fibra::JoinHandle<T>),
    Thread(std::thread::JoinHandle<T>),
}

impl<T> Running<T> {
    fn join(self) -> T {
        match self {
            Running::Task(task) => task.join().unwrap(),
            Running::Thread(thread) => thread.join().unwrap(),
        }
    }
}

#[test]
fn tasks_meet_tasks_and_threads() {
    let is_async = |sends: SendKind, receives: RecvKind| {
        matches!(sends.how, How::Async(_)) || matches!(receives.how, How::Async(_))
    };
    every_cell("tasks", is_async, with_tasks);
}
