//! Fibers with thread-locals of their own (`Builder::own_locals`): to every library each is a thread of its own.
//!
//! Where the system cannot switch thread-locals, the first test says so and the others have nothing to show.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support;
use fibra::{Builder, JoinHandle, Runtime};

thread_local! {
    pub(crate) static NUMBER: Cell<u64> = const { Cell::new(0) };
    pub(crate) static LIST: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A fiber with thread-locals of its own; None where there are none to be had.
fn start<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Option<JoinHandle<T>> {
    match Builder::new().own_locals().spawn(f) {
        Ok(fiber) => Some(fiber),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            None
        }
    }
}

/// The result of such a fiber; None where there are none to be had.
fn run<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    Some(start(f)?.join().unwrap())
}

fn one_worker<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    Runtime::builder().workers(1).build().unwrap().run(f)
}

// An address of a thread-local that is held over a suspension is the fiber's own, whatever its neighbours on the same thread do.
#[test]
fn neighbours_do_not_share_thread_locals() {
    let _watchdog = support::watchdog(60);
    one_worker(|| {
        let fibers: Vec<_> = (1..=8u64)
            .filter_map(|number| {
                start(move || {
                    assert_eq!(NUMBER.get(), 0, "they are new");
                    for round in 0..200 {
                        NUMBER.with(|mine| {
                            let before = mine.get();
                            fibra::yield_now();
                            mine.set(before + number);
                        });
                        // Borrowed over a suspension: of an ordinary fiber's neighbours the next one would panic.
                        LIST.with_borrow_mut(|list| {
                            fibra::sleep(Duration::from_micros(10));
                            list.push(round);
                        });
                    }
                    (NUMBER.get(), LIST.take().len())
                })
            })
            .collect();
        for (number, fiber) in (1..).zip(fibers) {
            assert_eq!(fiber.join().unwrap(), (number * 200, 200));
        }
        assert_eq!((NUMBER.get(), LIST.take()), (0, Vec::new()), "those of the thread are as they were");
    });
}

// They are dropped when the fiber has ended, all of them before its joiner goes on, also if it fails or is cancelled.
#[test]
fn thread_locals_are_dropped_before_the_joiner_goes_on() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    static LISTED: AtomicUsize = AtomicUsize::new(0);
    struct Counts;
    impl Drop for Counts {
        fn drop(&mut self) {
            // A moment, so that a joiner that does not wait is too early.
            std::thread::sleep(Duration::from_millis(20));
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local! {
        static FIRST: RefCell<Option<Counts>> = const { RefCell::new(None) };
        static SECOND: RefCell<Vec<Counts>> = const { RefCell::new(Vec::new()) };
    }
    fn fill() {
        FIRST.set(Some(Counts));
        fibra::yield_now();
        SECOND.with_borrow_mut(|list| list.extend([Counts, Counts]));
    }
    let _watchdog = support::watchdog(60);
    one_worker(|| {
        if run(fill).is_none() {
            return;
        }
        assert_eq!(DROPPED.load(Ordering::Relaxed), 3);
        let fails = start(|| {
            fill();
            std::panic::resume_unwind(Box::new("as asked"));
        });
        let error = fails.unwrap().join().unwrap_err();
        assert_eq!(*error.into_panic().downcast::<&str>().unwrap(), "as asked");
        assert_eq!(DROPPED.load(Ordering::Relaxed), 6);
        let sleeps = start(|| {
            fill();
            LISTED.store(1, Ordering::Relaxed);
            fibra::sleep(Duration::from_secs(3600));
        })
        .unwrap();
        while LISTED.load(Ordering::Relaxed) == 0 {
            fibra::yield_now();
        }
        sleeps.cancel();
        assert!(sleeps.join().unwrap_err().is_cancelled());
        assert_eq!(DROPPED.load(Ordering::Relaxed), 9);
    });
}

// It has an identity of a thread, which stays, and the name of the fiber.
#[test]
fn it_is_a_thread_to_std() {
    let _watchdog = support::watchdog(60);
    one_worker(|| {
        let outer = std::thread::current().id();
        let identity = || {
            let before = (std::thread::current().id(), std::thread::current().name().map(str::to_owned));
            fibra::yield_now();
            fibra::sleep(Duration::from_millis(1));
            assert_eq!((std::thread::current().id(), std::thread::current().name().map(str::to_owned)), before);
            before
        };
        let fibers: Vec<_> = (0..4).filter_map(|_| start(identity)).collect();
        let count = fibers.len();
        let ids: HashSet<_> = fibers.into_iter().map(|fiber| fiber.join().unwrap().0).collect();
        assert_eq!(ids.len(), count);
        assert!(!ids.contains(&outer));
        if let Ok(named) = Builder::new().name("reader").own_locals().spawn(identity) {
            assert_eq!(named.join().unwrap().1.as_deref(), Some("reader"));
        }
        assert_eq!(std::thread::current().id(), outer);
    });
}

// All of fibra works there: current fiber, spawning, channels, scopes, time-outs, blocking calls, sockets, locks, futures.
#[test]
fn everything_works_there() {
    use std::io::{Read, Write};
    let _watchdog = support::watchdog(120);
    for workers in [1, 3] {
        Runtime::builder().workers(workers).build().unwrap().run(|| {
            let fibers: Vec<_> = (0..6u64)
                .filter_map(|number| {
                    start(move || {
                        NUMBER.set(number);
                        let me = fibra::current().unwrap().id();
                        let (tx, rx) = fibra::channel::bounded::<u64>(2);
                        let sender = fibra::spawn(move || (0..50).for_each(|n| tx.send(n).unwrap()));
                        assert_eq!(rx.iter().sum::<u64>(), (0..50).sum());
                        sender.join().unwrap();
                        let sum = fibra::scope(|s| {
                            let children: Vec<_> = (0..4).map(|n| s.spawn(move || n + number)).collect();
                            children.into_iter().map(|child| child.join().unwrap()).sum::<u64>()
                        });
                        assert_eq!(sum, 6 + 4 * number);
                        let late = fibra::timeout(Duration::from_millis(1), || fibra::sleep(Duration::from_secs(3600)));
                        assert!(late.is_err());
                        let blocking = fibra::blocking(|| std::thread::current().id());
                        assert_ne!(blocking, std::thread::current().id());
                        let listener = fibra::net::TcpListener::bind("127.0.0.1:0").unwrap();
                        let address = listener.local_addr().unwrap();
                        let client = fibra::spawn(move || {
                            let mut socket = fibra::net::TcpStream::connect(address).unwrap();
                            socket.write_all(b"hello").unwrap();
                        });
                        let mut text = String::new();
                        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
                        client.join().unwrap();
                        assert_eq!(text, "hello");
                        let lock = Arc::new(fibra::sync::Mutex::new(0));
                        let held = lock.lock();
                        let waiter = {
                            let lock = lock.clone();
                            Builder::new().own_locals().spawn(move || *lock.lock() += 1).unwrap()
                        };
                        fibra::yield_now();
                        drop(held);
                        waiter.join().unwrap();
                        assert_eq!(*lock.lock(), 1);
                        let (answer, answers) = fibra::channel::oneshot();
                        fibra::spawn(move || answer.send(number).unwrap());
                        assert_eq!(fibra::block_on(answers), Ok(number));
                        assert_eq!((fibra::current().unwrap().id(), NUMBER.get()), (me, number));
                    })
                })
                .collect();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            assert_eq!(NUMBER.get(), 0);
        });
    }
}

// A panic is the fiber's own: its neighbours do not see `panicking()`, also while it waits in a destructor; and it is caught as anywhere.
#[test]
fn panics_are_its_own() {
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            fibra::sleep(Duration::from_millis(5));
            fibra::yield_now();
            assert!(std::thread::panicking());
        }
    }
    let _watchdog = support::watchdog(60);
    one_worker(|| {
        let fibers: Vec<_> = (0..4u32)
            .filter_map(|number| {
                start(move || {
                    let caught = std::panic::catch_unwind(|| {
                        let _waits = Waits;
                        std::panic::resume_unwind(Box::new(number));
                    });
                    assert!(!std::thread::panicking());
                    *caught.unwrap_err().downcast::<u32>().unwrap()
                })
            })
            .collect();
        let calm = start(|| {
            for _ in 0..20 {
                assert!(!std::thread::panicking());
                fibra::sleep(Duration::from_millis(1));
            }
        });
        for (number, fiber) in (0..).zip(fibers) {
            assert_eq!(fiber.join().unwrap(), number);
        }
        calm.into_iter().for_each(|calm| calm.join().unwrap());
        assert!(!std::thread::panicking());
    });
}

// The time for shields may be over (a scope's grace) while the thread-locals are dropped: that ends the fiber as it ends any other.
#[test]
fn the_end_of_a_grace_ends_it_as_any_other() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Slow;
    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(100));
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local!(static KEPT: RefCell<Option<Slow>> = const { RefCell::new(None) });
    let _watchdog = support::watchdog(60);
    Runtime::builder().workers(2).build().unwrap().run(|| {
        if run(|| ()).is_none() {
            return;
        }
        let here = fibra::sync::Event::new();
        let _ = fibra::Scope::builder().grace(Duration::from_millis(50)).run(|s| {
            let child = Builder::new().own_locals().spawn_scoped(s, || {
                KEPT.set(Some(Slow));
                here.set();
                fibra::shield(|| fibra::sleep(Duration::from_secs(3600)));
            });
            here.wait();
            s.cancel();
            assert!(child.unwrap().join().unwrap_err().is_cancelled());
        });
        assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
    });
}

// A recursive lock of the C library, held over a suspension, is not open to its neighbours; `errno` is the fiber's own.
#[test]
fn locks_and_errors_of_the_c_library_are_its_own() {
    struct Recursive(std::cell::UnsafeCell<libc::pthread_mutex_t>);
    // SAFETY: a mutex of the system is made for that.
    unsafe impl Sync for Recursive {}
    // SAFETY: as above.
    unsafe impl Send for Recursive {}
    impl Recursive {
        fn try_lock(&self) -> i32 {
            // SAFETY: initialised below.
            unsafe { libc::pthread_mutex_trylock(self.0.get()) }
        }
        fn unlock(&self) -> i32 {
            // SAFETY: as above.
            unsafe { libc::pthread_mutex_unlock(self.0.get()) }
        }
    }
    let _watchdog = support::watchdog(60);
    one_worker(|| {
        let mutex = Arc::new(Recursive(std::cell::UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)));
        // SAFETY: attributes and mutex are ours.
        unsafe {
            let mut how: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut how);
            libc::pthread_mutexattr_settype(&mut how, libc::PTHREAD_MUTEX_RECURSIVE);
            assert_eq!(libc::pthread_mutex_init(mutex.0.get(), &how), 0);
        }
        let (held, ended) = (Arc::new(fibra::sync::Event::new()), Arc::new(fibra::sync::Event::new()));
        let holder = {
            let (mutex, held, ended) = (mutex.clone(), held.clone(), ended.clone());
            start(move || {
                assert_eq!((mutex.try_lock(), mutex.try_lock()), (0, 0), "its own twice");
                held.set();
                ended.wait();
                (mutex.unlock(), mutex.unlock())
            })
        };
        let Some(holder) = holder else { return };
        held.wait();
        let other = {
            let mutex = mutex.clone();
            run(move || mutex.try_lock())
        };
        assert_eq!(other, Some(libc::EBUSY));
        ended.set();
        assert_eq!(holder.join().unwrap(), (0, 0));
        let errno = |number: i32| {
            start(move || {
                for _ in 0..50 {
                    // SAFETY: the place of this thread's `errno`.
                    unsafe { *libc::__errno_location() = number };
                    fibra::yield_now();
                    // SAFETY: as above.
                    assert_eq!(unsafe { *libc::__errno_location() }, number);
                }
            })
        };
        let (one, two) = (errno(1), errno(2));
        [one, two].into_iter().flatten().for_each(|fiber| fiber.join().unwrap());
    });
}

// A child of a scope may have thread-locals of its own, and borrow; a local fiber too. One that never starts gives the thread back.
#[test]
fn every_way_to_spawn_takes_it() {
    support::in_child("every_way_to_spawn_takes_it", every_way);
}

fn every_way() {
    if one_worker(|| run(|| ()).is_none()) {
        return;
    }
    one_worker(|| {
        let text = String::from("borrowed");
        fibra::scope(|s| {
            let child = Builder::new().own_locals().spawn_scoped(s, || {
                NUMBER.set(1);
                fibra::yield_now();
                text.len()
            });
            assert_eq!(child.unwrap().join().unwrap(), 8);
        });
        let rc = std::rc::Rc::new(3);
        let local = Builder::new().own_locals().spawn_local({
            let rc = rc.clone();
            move || *rc
        });
        assert_eq!(local.unwrap().join().unwrap(), 3);
        assert_eq!(NUMBER.get(), 0);
        let never = start(|| unreachable!("it is cancelled before it starts")).unwrap();
        never.cancel();
        assert!(never.join().unwrap_err().is_cancelled());
    });
    support::eventually(
        || !support::thread_names().iter().any(|name| name.starts_with("fibra-locals")),
        || format!("threads are left: {:?}", support::thread_names()),
    );
}

// Many of them, on several workers, with all ways to be suspended mixed, and neighbours without.
#[test]
fn stress_many_with_and_without() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let seen = runtime.run(|| {
        let (tx, rx) = fibra::channel::unbounded();
        let fibers: Vec<_> = (0..200u64)
            .filter_map(|number| {
                let tx = tx.clone();
                let work = move || {
                    let is_own = number % 2 == 0;
                    for round in 1..=50 {
                        if is_own {
                            NUMBER.with(|mine| {
                                let before = mine.get();
                                fibra::yield_now();
                                mine.set(before + 1);
                            });
                        }
                        match (number + round) % 4 {
                            0 => fibra::yield_now(),
                            1 => fibra::sleep(Duration::from_micros(50)),
                            2 => fibra::spawn(|| ()).join().unwrap(),
                            _ => tx.send(number).unwrap(),
                        }
                        assert!(!is_own || NUMBER.get() == round);
                    }
                };
                if number % 2 == 0 { start(work) } else { Some(fibra::spawn(work)) }
            })
            .collect();
        drop(tx);
        let count = fibers.len();
        let got = rx.iter().count();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        (count, got)
    });
    assert!(seen.0 >= 100 && seen.1 >= seen.0 * 12, "{seen:?}");
}

// A runtime whose fibers all have thread-locals of their own: the function of `run`, fibers, children of scopes, turns of actors; halves of
// a `join` and futures do their work as ever.
#[test]
fn a_runtime_gives_them_to_every_fiber() {
    use fibra::actor::{self, Actor, Context, Failure};
    struct Counts;
    impl Actor for Counts {
        type Message = fibra::channel::OneshotSender<u64>;
        fn handle(&mut self, answer: Self::Message, _: &mut Context<Self>) -> Result<(), Failure> {
            let before = NUMBER.replace(77);
            let _ = answer.send(before);
            Ok(())
        }
    }
    let _watchdog = support::watchdog(120);
    let builder = Runtime::builder().workers(2).locals(fibra::Locals::PerFiber);
    let runtime = match builder.build() {
        Ok(runtime) => runtime,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
    };
    NUMBER.set(9);
    runtime.run(|| {
        assert_eq!(NUMBER.replace(1), 0, "new ones, also for the first fiber");
        let fibers: Vec<_> = (2..10)
            .map(|number| {
                fibra::spawn(move || {
                    for _ in 0..20 {
                        NUMBER.set(number);
                        fibra::yield_now();
                        assert_eq!(NUMBER.get(), number);
                    }
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(fibra::scope(|s| s.spawn(|| NUMBER.get()).join().unwrap()), 0);
        assert_eq!(fibra::join(|| 1, || 2), (1, 2));
        assert_eq!(fibra::spawn_future(async { 3 }).join().unwrap(), 3);
        let counts = actor::spawn(Counts);
        for _ in 0..3 {
            let (answer, answers) = fibra::channel::oneshot();
            counts.send(answer).unwrap();
            // (A turn that finds the next message goes on with it.)
            assert!(matches!(answers.recv(), Ok(0 | 77)));
        }
        assert_eq!(NUMBER.get(), 1);
    });
    assert_eq!(NUMBER.get(), 9, "those of the thread that called are as they were");
}

// What a fiber shares with local fibers need not be `Send`, and may be in its thread-locals: when those are dropped, by another thread of
// the system, no fiber of the worker runs.
#[test]
fn local_fibers_stand_still_while_thread_locals_are_dropped() {
    use std::rc::Rc;
    /// Says how long it takes to be dropped.
    struct Slow(Rc<Cell<bool>>);
    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.set(true);
            std::thread::sleep(Duration::from_millis(20));
            self.0.set(false);
        }
    }
    thread_local!(static KEPT: RefCell<Option<Slow>> = const { RefCell::new(None) });
    fn looks(is_dropping: Rc<Cell<bool>>, ended: Rc<Cell<bool>>) {
        while !ended.get() {
            assert!(!is_dropping.get(), "it runs while its neighbour's thread-locals are dropped");
            fibra::yield_now();
        }
    }
    let _watchdog = support::watchdog(60);
    one_worker(|| {
        let (is_dropping, ended) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        // A local fiber with thread-locals of its own, and its neighbour.
        let neighbour = fibra::spawn_local({
            let (is_dropping, ended) = (is_dropping.clone(), ended.clone());
            move || looks(is_dropping, ended)
        });
        let keeps = {
            let is_dropping = is_dropping.clone();
            Builder::new().own_locals().spawn_local(move || KEPT.set(Some(Slow(is_dropping))))
        };
        let Ok(keeps) = keeps else { return ended.set(true) };
        keeps.join().unwrap();
        ended.set(true);
        neighbour.join().unwrap();
        // One that starts a local fiber, which outlives it; once by itself and once in a scope of its parent.
        for in_scope in [false, true] {
            let (tell, told) = fibra::channel::bounded::<()>(1);
            let looking = move || {
                let is_dropping = Rc::new(Cell::new(false));
                KEPT.set(Some(Slow(is_dropping.clone())));
                move || {
                    while told.try_recv().is_err() {
                        assert!(!is_dropping.get(), "as above");
                        fibra::yield_now();
                    }
                }
            };
            if in_scope {
                fibra::scope(|s| {
                    let owner = Builder::new().own_locals().spawn_scoped(s, || drop(s.spawn_local(looking())));
                    owner.unwrap().join().unwrap();
                    tell.send(()).unwrap();
                });
            } else {
                let looks = start(|| fibra::spawn_local(looking())).unwrap().join().unwrap();
                tell.send(()).unwrap();
                looks.join().unwrap();
            }
        }
    });
}

// A destructor of a thread-local may wait for fibers of the worker that the fiber was spread to: only local fibers stand still meanwhile.
#[test]
fn destructors_of_a_fiber_that_was_spread_may_wait_for_its_worker() {
    struct Tells(fibra::channel::Sender<()>);
    impl Drop for Tells {
        fn drop(&mut self) {
            (0..2).for_each(|_| self.0.send(()).unwrap());
        }
    }
    thread_local!(static KEPT: RefCell<Option<Tells>> = const { RefCell::new(None) });
    let _watchdog = support::watchdog(60);
    Runtime::builder().workers(1).max_workers(1).build().unwrap().run(|| {
        let (tx, rx) = fibra::channel::rendezvous();
        let other = fibra::spawn(move || (0..2).for_each(|_| rx.recv().unwrap()));
        let keeps = move || KEPT.set(Some(Tells(tx)));
        match Builder::new().own_locals().spread().spawn(keeps) {
            Ok(spread) => {
                spread.join().unwrap();
                other.join().unwrap();
            }
            Err(_) => other.cancel(),
        }
    });
}
