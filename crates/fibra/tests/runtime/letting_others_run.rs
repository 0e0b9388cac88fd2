//! A fiber that makes calls which need not wait lets others run now and then: whatever it polls, a peer of the same worker gets its turn.
//!
//! All such calls are in one table, [`calls`]. Each is made again and again on the only worker of a runtime, beside a peer that counts its
//! turns: nothing here depends on time.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fibra::channel::{Select, after, bounded, never, unbounded};
use fibra::sync::{
    Event, LazyLock, Mutex, Once, OnceLock, ReentrantMutex, RwLock, RwLockUpgradableReadGuard, Semaphore, WaitGroup,
    lock_all,
};
use fibra::time::RateLimiter;
use fibra::{CancelToken, JoinHandle, JoinSet, Runtime};

use crate::support::watchdog;

/// Calls of one kind: several times as many as may be made in a row.
const MANY: usize = 4 * 512;

fn one_worker() -> Runtime {
    Runtime::builder().workers(1).build().unwrap()
}

/// A fiber that waits until its event is set.
fn waiting(until: &Rc<Event>) -> JoinHandle<()> {
    let until = until.clone();
    fibra::spawn_local(move || until.wait())
}

type Call = (&'static str, Box<dyn Fn()>);

/// What a fiber may poll without waiting, and what is always ready. `over` ends the fibers that some of them ask about.
fn calls(over: &Rc<Event>) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    fn add(calls: &mut Vec<Call>, name: &'static str, call: impl Fn() + 'static) {
        calls.push((name, Box::new(call)));
    }
    macro_rules! call {
        ($name:literal, $call:expr) => {
            add(&mut calls, $name, $call)
        };
    }

    // Channels.
    let (tx, rx) = bounded::<u32>(1);
    call!("Receiver::try_recv", move || assert!(rx.try_recv().is_err() && tx.capacity().is_some()));
    let (tx, rx) = unbounded::<u32>();
    call!("Sender::try_send", move || assert!(tx.try_send(1).is_ok() && rx.capacity().is_none()));
    let (tx, rx) = bounded::<u32>(1);
    call!("Sender::force_send", move || assert!(tx.force_send(1).is_ok() && rx.capacity().is_some()));
    let (tx, rx) = bounded::<u32>(1);
    call!("Sender::try_reserve", move || drop((tx.try_reserve().unwrap(), rx.capacity())));
    let (tx, rx) = bounded::<u32>(1);
    call!("Receiver::is_empty", move || assert!(rx.is_empty() && tx.capacity().is_some()));
    let (tx, rx) = bounded::<u32>(1);
    call!("Receiver::len", move || assert_eq!((rx.len(), tx.capacity()), (0, Some(1))));
    let (tx, rx) = bounded::<u32>(1);
    call!("Sender::is_full", move || assert!(!tx.is_full() && rx.capacity().is_some()));
    let (tx, rx) = bounded::<u32>(1);
    call!("Sender::is_closed", move || assert!(!tx.is_closed() && rx.capacity().is_some()));
    let (tx, rx) = bounded::<u32>(1);
    call!("Receiver::close_reason", move || assert!(rx.close_reason().is_none() && tx.capacity().is_some()));
    let timer = after(Duration::from_secs(3600));
    call!("try_recv of a timer", move || assert!(timer.try_recv().is_err()));
    let nothing = never::<u32>();
    call!("Receiver::try_iter", move || assert_eq!(nothing.try_iter().count(), 0));

    // Selects.
    let (nothing, other) = (never::<u32>(), never::<u32>());
    call!("select! with default", move || fibra::select! {
        recv(nothing) -> _ => unreachable!(),
        recv(other) -> _ => unreachable!(),
        default => {}
    });
    let nothing = never::<u32>();
    call!("Select::try_select", move || {
        let mut select = Select::new();
        select.recv(&nothing);
        assert!(select.try_select().is_err());
    });
    let nothing = never::<u32>();
    call!("Select::try_ready", move || {
        let mut select = Select::new();
        select.recv(&nothing);
        assert!(select.try_ready().is_err());
    });
    let (tx, rx) = bounded::<u32>(1);
    tx.send(1).unwrap();
    call!("Select::ready", move || {
        let mut select = Select::new();
        select.recv(&rx);
        assert_eq!((select.ready(), tx.capacity()), (0, Some(1)));
    });

    // Locks and their kin.
    let mutex = Mutex::new(1);
    call!("Mutex::lock", move || assert_eq!(*mutex.lock(), 1));
    let mutex = Mutex::new(1);
    call!("Mutex::try_lock", move || assert_eq!(*mutex.try_lock().unwrap(), 1));
    let mutex = Mutex::new(1);
    call!("Mutex::try_lock_for", move || assert_eq!(*mutex.try_lock_for(Duration::from_secs(1)).unwrap(), 1));
    let mutex = Mutex::new(1);
    call!("Mutex::is_locked", move || assert!(!mutex.is_locked()));
    let mutex = ReentrantMutex::new(1);
    call!("ReentrantMutex::lock", move || assert_eq!(*mutex.lock(), 1));
    let mutex = ReentrantMutex::new(1);
    call!("ReentrantMutex::try_lock", move || assert_eq!(*mutex.try_lock().unwrap(), 1));
    let mutex = ReentrantMutex::new(1);
    call!("ReentrantMutex::is_locked", move || assert!(!mutex.is_locked()));
    let lock = RwLock::new(1);
    call!("RwLock::read", move || assert_eq!(*lock.read(), 1));
    let lock = RwLock::new(1);
    call!("RwLock::read_recursive", move || assert_eq!(*lock.read_recursive(), 1));
    let lock = RwLock::new(1);
    call!("RwLock::write", move || assert_eq!(*lock.write(), 1));
    let lock = RwLock::new(1);
    call!("RwLock::upgradable_read", move || assert_eq!(*lock.upgradable_read(), 1));
    let lock = RwLock::new(1);
    call!("RwLock::try_read", move || assert_eq!(*lock.try_read().unwrap(), 1));
    let lock = RwLock::new(1);
    call!("RwLock::try_read_recursive", move || assert_eq!(*lock.try_read_recursive().unwrap(), 1));
    let lock = RwLock::new(1);
    call!("RwLock::try_write", move || assert_eq!(*lock.try_write().unwrap(), 1));
    let lock = RwLock::new(1);
    call!("RwLock::try_upgradable_read", move || assert_eq!(*lock.try_upgradable_read().unwrap(), 1));
    let lock = RwLock::new(1);
    call!("RwLock::try_write_for", move || assert_eq!(*lock.try_write_for(Duration::from_secs(1)).unwrap(), 1));
    let lock = RwLock::new(1);
    call!("RwLock::is_locked", move || assert!(!lock.is_locked()));
    let lock = RwLock::new(1);
    call!("RwLock::is_locked_exclusive", move || assert!(!lock.is_locked_exclusive()));
    let semaphore = Semaphore::new(1);
    call!("Semaphore::try_acquire", move || drop(semaphore.try_acquire(1).unwrap()));
    let semaphore = std::sync::Arc::new(Semaphore::new(1));
    call!("Semaphore::try_acquire_owned", move || drop(semaphore.try_acquire_owned(1).unwrap()));
    let semaphore = Semaphore::new(1);
    call!("Semaphore::available", move || assert_eq!(semaphore.available(), 1));
    let semaphore = Semaphore::new(1);
    call!("Semaphore::is_closed", move || assert!(!semaphore.is_closed()));
    let event = Event::new();
    call!("Event::is_set", move || assert!(!event.is_set()));
    let group = WaitGroup::new();
    call!("WaitGroup::is_done", move || assert!(!group.is_done()));
    let once = Once::new();
    call!("Once::is_completed", move || assert!(!once.is_completed()));
    let value = OnceLock::<u32>::new();
    call!("OnceLock::get", move || assert!(value.get().is_none()));
    let value: LazyLock<u32> = LazyLock::new(|| 1);
    call!("LazyLock::get", move || assert!(LazyLock::get(&value).is_none()));
    let limiter = RateLimiter::new(0.000_1);
    call!("RateLimiter::try_acquire", move || _ = limiter.try_acquire());
    let limiter = RateLimiter::new(1e9).with_burst(1 << 20);
    call!("RateLimiter::acquire", move || limiter.acquire());

    // Fibers, scopes, futures.
    let handle = waiting(over);
    call!("JoinHandle::is_finished", move || assert!(!handle.is_finished()));
    let handle = RefCell::new(Some(waiting(over)));
    call!("JoinHandle::try_join", move || {
        let back = handle.take().unwrap().try_join().unwrap_err();
        *handle.borrow_mut() = Some(back);
    });
    let handle = fibra::spawn_local(|| ());
    handle.wait();
    call!("JoinHandle::wait, of one that has ended", move || handle.wait());
    let mut set = JoinSet::new();
    set.insert(waiting(over));
    let set = RefCell::new(set);
    call!("JoinSet::try_join_next", move || assert!(set.borrow_mut().try_join_next().is_none()));
    let token = CancelToken::new();
    call!("CancelToken::is_cancelled", move || assert!(!token.is_cancelled()));
    let token = CancelToken::new();
    call!("CancelToken::reason", move || assert!(token.reason().is_none()));
    call!("is_cancelled", || _ = fibra::is_cancelled());
    call!("cancel_reason", || _ = fibra::cancel_reason());
    call!("block_on, of what is ready", || fibra::block_on(async {}));
    call!("checkpoint", fibra::checkpoint);

    // Sockets.
    let (here, there) = fibra::net::UnixStream::pair().unwrap();
    call!("UnixStream::try_read", move || assert!(here.try_read(&mut [0]).is_err()));
    call!("UnixStream::try_write", move || assert_eq!(there.try_write(&[]).unwrap(), 0));
    let listener = fibra::net::TcpListener::bind("127.0.0.1:0").unwrap();
    call!("TcpListener::try_accept", move || assert!(listener.try_accept().is_err()));
    let socket = fibra::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    call!("UdpSocket::try_recv_from", move || assert!(socket.try_recv_from(&mut [0]).is_err()));
    calls
}

/// Those that end a cancelled fiber, as blocking calls do; the others are not for cancellation to be noticed in.
const CANCELLATION_POINTS: [&str; 2] = ["checkpoint", "Select::ready"];

/// A fiber of this worker that counts its turns until it is told to stop.
struct Peer {
    turns: Rc<Cell<usize>>,
    stop: Rc<Cell<bool>>,
    fiber: JoinHandle<()>,
}

impl Peer {
    fn start() -> Self {
        let (turns, stop) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (counted, stopped) = (turns.clone(), stop.clone());
        let fiber = fibra::spawn_local(move || {
            while !stopped.get() {
                counted.set(counted.get() + 1);
                fibra::yield_now();
            }
        });
        Self { turns, stop, fiber }
    }

    fn stop(self) -> usize {
        self.stop.set(true);
        let turns = self.turns.get();
        self.fiber.join().unwrap();
        turns
    }
}

/// Those of the calls that `is_wrong` says so of, given how to call them.
fn those_wrong(is_wrong: impl Fn(&'static str, &dyn Fn()) -> bool) -> Vec<&'static str> {
    let over = Rc::new(Event::new());
    let calls = calls(&over);
    let wrong = calls.iter().filter(|(name, call)| is_wrong(name, call)).map(|(name, _)| *name).collect();
    over.set();
    wrong
}

#[test]
fn whatever_a_fiber_polls_a_peer_of_its_worker_runs() {
    let _watchdog = watchdog(60);
    let hogs = one_worker().run(|| {
        those_wrong(|_, call| {
            let peer = Peer::start();
            (0..MANY).for_each(|_| call());
            peer.stop() == 0
        })
    });
    assert_eq!(hogs, [""; 0], "these never let others run");
}

#[test]
fn an_upgrade_that_is_tried_lets_others_run() {
    let _watchdog = watchdog(60);
    one_worker().run(|| {
        let lock = RwLock::new(1);
        let (_reader, mut upgradable) = (lock.read(), lock.upgradable_read());
        let peer = Peer::start();
        for _ in 0..MANY {
            upgradable = RwLockUpgradableReadGuard::try_upgrade(upgradable).unwrap_err();
        }
        assert_ne!(peer.stop(), 0);
    });
}

#[test]
fn a_scope_that_is_asked_lets_others_run() {
    let _watchdog = watchdog(60);
    one_worker().run(|| {
        fibra::scope(|s| {
            let peer = Peer::start();
            (0..MANY).for_each(|_| assert!(!s.is_cancelled()));
            assert_ne!(peer.stop(), 0);
            let peer = Peer::start();
            (0..MANY).for_each(|_| assert!(!s.is_draining()));
            assert_ne!(peer.stop(), 0);
        });
    });
}

#[test]
fn what_may_not_suspend_does_not_let_others_run() {
    let _watchdog = watchdog(60);
    let suspended = one_worker().run(|| {
        those_wrong(|_, call| {
            let peer = Peer::start();
            fibra::no_suspend(|| (0..MANY).for_each(|_| call()));
            let turns = peer.turns.get();
            peer.stop();
            turns != 0
        })
    });
    assert_eq!(suspended, [""; 0], "these suspend inside `no_suspend`");
}

// A future that is always ready is one as well.
#[test]
fn what_is_awaited_and_always_ready_lets_others_run() {
    let _watchdog = watchdog(60);
    one_worker().run(|| {
        let (tx, rx) = unbounded();
        let (mutex, lock, semaphore) = (Mutex::new(0), RwLock::new(0), Semaphore::new(1));
        macro_rules! lets_others_run {
            ($($name:literal: $call:expr,)+) => {$({
                let peer = Peer::start();
                fibra::block_on(async {
                    for _ in 0..MANY {
                        let _ = $call.await;
                    }
                });
                assert_ne!(peer.stop(), 0, $name);
            })+};
        }
        lets_others_run! {
            "send_async": tx.send_async(1),
            "recv_async": rx.recv_async(),
            "reserve_async": tx.reserve_async(),
            "lock_async": mutex.lock_async(),
            "read_async": lock.read_async(),
            "write_async": lock.write_async(),
            "acquire_async": semaphore.acquire_async(1),
        }
    });
}

/// An executor of another library, which notes in a thread-local that it runs.
fn foreign_block_on<F: Future>(future: F) -> F::Output {
    thread_local!(static RUNS: Cell<bool> = const { Cell::new(false) });
    assert!(!RUNS.replace(true), "an executor inside another one of the same thread");
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    let output = loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            break output;
        }
    };
    RUNS.set(false);
    output
}

// A poll is pending now and then, and does not suspend: two fibers of one worker would meet inside that executor.
#[test]
fn a_poll_does_not_leave_the_executor_around_it() {
    let _watchdog = watchdog(60);
    one_worker().run(|| {
        let mutex = Rc::new(Mutex::new(0));
        let fibers = [(); 2].map(|()| {
            let mutex = mutex.clone();
            fibra::spawn_local(move || {
                let (tx, rx) = bounded::<usize>(1);
                for index in 0..MANY {
                    foreign_block_on(tx.send_async(index)).unwrap();
                    assert_eq!(foreign_block_on(rx.recv_async()), Ok(index));
                    *foreign_block_on(mutex.lock_async()) += 1;
                }
            })
        });
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(*mutex.lock(), 2 * MANY);
    });
}

// What was put off in there comes right after.
#[test]
fn after_no_suspend_the_next_call_lets_others_run() {
    let _watchdog = watchdog(60);
    one_worker().run(|| {
        let nothing = never::<u32>();
        let peer = Peer::start();
        for _ in 0..3 {
            fibra::no_suspend(|| (0..=MANY).for_each(|_| _ = nothing.try_recv()));
            let _ = nothing.try_recv();
        }
        assert_ne!(peer.stop(), 0);
    });
}

#[test]
fn threads_make_the_same_calls() {
    let _watchdog = watchdog(60);
    let mutex = Mutex::new(0);
    let lock = RwLock::new(0);
    let (tx, rx) = bounded::<u32>(1);
    for _ in 0..MANY {
        *mutex.lock() += 1;
        *mutex.try_lock().unwrap() += 1;
        *lock.write() += 1;
        assert_ne!(*lock.try_read().unwrap(), 0);
        assert!(rx.try_recv().is_err() && tx.is_empty() && !fibra::is_cancelled());
        fibra::select! {
            recv(rx) -> _ => unreachable!(),
            default => {}
        }
        fibra::block_on(async {});
        fibra::checkpoint();
    }
    assert_eq!(mutex.into_inner(), 2 * MANY);
}

// Letting others run is no blocking call: a cancelled fiber goes on.
#[test]
fn a_cancelled_fiber_is_not_unwound_by_what_never_waits() {
    let _watchdog = watchdog(60);
    let unwound = one_worker().run(|| {
        those_wrong(|name, call| {
            let through = Cell::new(false);
            let gone_through = &through;
            fibra::scope(|s| {
                let fiber = s.spawn_local(move || {
                    fibra::shield(|| {
                        while !fibra::is_cancelled() {
                            fibra::yield_now();
                        }
                    });
                    (0..MANY).for_each(|_| call());
                    gone_through.set(true);
                });
                // It has begun when this returns: one that has not is dropped instead.
                fibra::yield_now();
                fiber.cancel();
                let _ = fiber.join();
            });
            through.get() == CANCELLATION_POINTS.contains(&name)
        })
    });
    assert_eq!(unwound, [""; 0], "these are not as they should be towards cancellation");
}

// A lock that let others run with the lock in hand would have them wait for nothing.
#[test]
fn others_run_before_a_lock_is_taken_and_not_with_it() {
    let _watchdog = watchdog(60);
    one_worker().run(|| {
        let (mutex, other, lock) = (Rc::new(Mutex::new(0)), Rc::new(Mutex::new(0)), Rc::new(RwLock::new(0)));
        let semaphore = Rc::new(Semaphore::new(1));
        let stop = Rc::new(Cell::new(false));
        let looks = {
            let (mutex, other, lock) = (mutex.clone(), other.clone(), lock.clone());
            let (semaphore, stop) = (semaphore.clone(), stop.clone());
            fibra::spawn_local(move || {
                let mut looks = 0;
                while !stop.get() {
                    assert!(!mutex.is_locked() && !other.is_locked());
                    assert!(!lock.is_locked() && semaphore.available() == 1);
                    looks += 1;
                    fibra::yield_now();
                }
                looks
            })
        };
        for _ in 0..MANY {
            drop(mutex.lock());
            drop(mutex.try_lock());
            drop(lock_all([&*mutex, &*other]));
            drop(lock.read());
            drop(lock.try_read());
            drop(lock.write());
            drop(lock.try_write());
            drop(lock.upgradable_read());
            drop(semaphore.try_acquire(1));
            drop(semaphore.acquire(1));
        }
        stop.set(true);
        assert_ne!(looks.join().unwrap(), 0);
    });
}
