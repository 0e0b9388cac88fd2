//! What libraries keep for a thread, on fibers that go on on another thread of the system at every yield: the C library, std, the loader.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_int, c_void};
use std::io::Write;
use std::net::ToSocketAddrs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::moving_fibers::{start_moving, system_thread, with_moves};
use crate::support;
use fibra::Runtime;

unsafe extern "C" {
    safe fn tmpfile() -> *mut libc::FILE;
    fn flockfile(file: *mut libc::FILE);
    fn ftrylockfile(file: *mut libc::FILE) -> c_int;
    fn funlockfile(file: *mut libc::FILE);
}

/// An object of the C library that any thread may use.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);
// SAFETY: so the C library says of those that are put here.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    fn get(self) -> *mut T {
        self.0
    }
}

/// Goes to another thread of the system.
#[track_caller]
fn go_on_elsewhere() {
    let before = system_thread();
    fibra::yield_now();
    assert_ne!(system_thread(), before, "it has gone on elsewhere");
}

/// Runs two fibers that move, the first until it has told the second, which answers.
fn two(
    first: impl FnOnce(&fibra::channel::Sender<()>, &fibra::channel::Receiver<()>) + Send + 'static,
    second: impl FnOnce() + Send + 'static,
) {
    Runtime::builder().workers(3).force_moves().build().unwrap().run(|| {
        let (tell, told) = fibra::channel::bounded(1);
        let (answer, answered) = fibra::channel::bounded(1);
        let Some(first) = start_moving(move || first(&tell, &answered)) else { return };
        let second = start_moving(move || {
            told.recv().unwrap();
            go_on_elsewhere();
            second();
            answer.send(()).unwrap();
        });
        first.join().unwrap();
        second.unwrap().join().unwrap();
    });
}

// The lock of a stream of C belongs to the fiber, which may take it again after a move; another fiber does not get it.
#[test]
fn streams_of_c_are_locked_by_the_fiber() {
    let _watchdog = support::watchdog(60);
    let file = Shared(tmpfile());
    assert!(!file.get().is_null());
    // SAFETY: (and all below) an open stream, unlocked as often as it was locked, by the thread that the C library takes each fiber for.
    let tries = move || assert_ne!(unsafe { ftrylockfile(file.get()) }, 0, "it is another fiber's");
    two(
        move |tell, answered| {
            // SAFETY: as above.
            unsafe { flockfile(file.get()) };
            go_on_elsewhere();
            // SAFETY: as above.
            unsafe { flockfile(file.get()) };
            tell.send(()).unwrap();
            answered.recv().unwrap();
            for _ in 0..100 {
                // SAFETY: as above.
                assert!(unsafe { libc::fputs(c"twelve bytes".as_ptr(), file.get()) } >= 0);
                go_on_elsewhere();
            }
            // SAFETY: as above.
            unsafe {
                funlockfile(file.get());
                funlockfile(file.get());
            }
        },
        tries,
    );
    // SAFETY: as above.
    unsafe {
        assert_eq!(ftrylockfile(file.get()), 0, "it is free again");
        funlockfile(file.get());
        let written = libc::ftell(file.get());
        assert!(written == 1200 || written == 0, "{written}");
        libc::fclose(file.get());
    }
}

// The lock of std's streams as well.
#[test]
fn streams_of_std_are_locked_by_the_fiber() {
    let _watchdog = support::watchdog(60);
    with_moves(|| {
        let held = std::io::stderr().lock();
        for _ in 0..50 {
            go_on_elsewhere();
            // Would wait for itself if the owner were another one than before.
            std::io::stderr().lock().flush().unwrap();
        }
        drop(held);
    });
}

// A mutex of C that one thread may lock again knows its owner after moves: it is let in again, another fiber is not, and it may unlock.
#[test]
fn recursive_mutexes_of_c_know_their_owner() {
    let _watchdog = support::watchdog(60);
    let mutex = Box::into_raw(Box::new(libc::PTHREAD_MUTEX_INITIALIZER));
    // SAFETY: initialises an attribute on this stack, and a mutex that lives until the end of the test.
    unsafe {
        let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attributes);
        libc::pthread_mutexattr_settype(&mut attributes, libc::PTHREAD_MUTEX_RECURSIVE);
        assert_eq!(libc::pthread_mutex_init(mutex, &attributes), 0);
    }
    let mutex = Shared(mutex);
    two(
        move |tell, answered| {
            for _ in 0..20 {
                // SAFETY: an initialised mutex, here and below.
                assert_eq!(unsafe { libc::pthread_mutex_lock(mutex.get()) }, 0);
                go_on_elsewhere();
            }
            tell.send(()).unwrap();
            answered.recv().unwrap();
            for _ in 0..20 {
                go_on_elsewhere();
                // SAFETY: as above.
                assert_eq!(unsafe { libc::pthread_mutex_unlock(mutex.get()) }, 0, "the owner may");
            }
        },
        move || {
            // SAFETY: as above.
            unsafe {
                assert_eq!(libc::pthread_mutex_trylock(mutex.get()), libc::EBUSY);
                assert_eq!(libc::pthread_mutex_unlock(mutex.get()), libc::EPERM);
            }
        },
    );
    // SAFETY: as above; no fiber uses it any more.
    unsafe {
        assert_eq!(libc::pthread_mutex_trylock(mutex.get()), 0, "it is free again");
        libc::pthread_mutex_unlock(mutex.get());
        libc::pthread_mutex_destroy(mutex.get());
        drop(Box::from_raw(mutex.get()));
    }
}

// A value for a key of C is the fiber's; its destructor runs.
#[test]
fn keys_of_c_are_the_fibers() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn end(value: *mut c_void) {
        ENDED.fetch_add(value.addr(), Ordering::Relaxed);
    }
    let _watchdog = support::watchdog(60);
    let mut key = 0;
    // SAFETY: a key, which is never deleted.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(end)) }, 0);
    let ran = with_moves(move || {
        for value in 1..=50 {
            // SAFETY: the key above; the values are not pointed to.
            unsafe { libc::pthread_setspecific(key, ptr::without_provenance(value)) };
            go_on_elsewhere();
            // SAFETY: as above.
            assert_eq!(unsafe { libc::pthread_getspecific(key) }.addr(), value);
        }
    });
    // A moment after the fiber has been joined.
    while ran.is_some() && ENDED.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(ENDED.load(Ordering::Relaxed), if ran.is_some() { 50 } else { 0 });
}

// A library that is loaded while fibers have thread-locals already: its own are new for each of them, and stay over moves.
#[test]
fn libraries_are_loaded_and_have_thread_locals() {
    /// The address of a thread-local of a library of C++, if that can be loaded.
    fn globals() -> Option<usize> {
        // SAFETY: a library that runs no code of its own but initialisers, and a function without parameters that gives an address.
        unsafe {
            let library = libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            let function = (!library.is_null()).then(|| libc::dlsym(library, c"__cxa_get_globals".as_ptr()))?;
            let function: extern "C" fn() -> *mut c_void = std::mem::transmute::<*mut c_void, _>(function);
            Some(function().addr())
        }
    }
    let _watchdog = support::watchdog(60);
    Runtime::builder().workers(3).force_moves().build().unwrap().run(|| {
        let begun = Arc::new(fibra::sync::Barrier::new(4));
        let fibers: Vec<_> = (0..4)
            .filter_map(|_| {
                let begun = begun.clone();
                start_moving(move || {
                    go_on_elsewhere();
                    begun.wait();
                    let first = globals();
                    for _ in 0..50 {
                        go_on_elsewhere();
                        assert_eq!(globals(), first);
                    }
                    // Also one that is closed and loaded again.
                    // SAFETY: a library of the C library's own.
                    unsafe {
                        let library = libc::dlopen(c"libm.so.6".as_ptr(), libc::RTLD_NOW);
                        go_on_elsewhere();
                        assert!(library.is_null() || libc::dlclose(library) == 0);
                        // (An error of the loader is the thread's.)
                        assert!(libc::dlopen(c"no-such-library.so".as_ptr(), libc::RTLD_NOW).is_null());
                        go_on_elsewhere();
                        let error = libc::dlerror();
                        assert!(!error.is_null() && CStr::from_ptr(error).to_bytes().starts_with(b"no-such"));
                    }
                    begun.wait();
                    first
                })
            })
            .collect();
        let count = fibers.len();
        let seen: Vec<_> = fibers.into_iter().filter_map(|fiber| fiber.join().unwrap()).collect();
        let places: std::collections::HashSet<_> = seen.iter().collect();
        assert!(seen.is_empty() || places.len() == count, "each has its own: {seen:?}");
    });
}

// Names are looked up, with what the resolver keeps for a thread.
#[test]
fn names_are_looked_up() {
    let _watchdog = support::watchdog(120);
    with_moves(|| {
        for _ in 0..20 {
            let found: Vec<_> = ("localhost", 80).to_socket_addrs().unwrap().collect();
            assert!(!found.is_empty() && found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
            go_on_elsewhere();
            // SAFETY: only the user's number, and a variable of the thread.
            unsafe { *libc::__errno_location() = 77 };
            go_on_elsewhere();
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(77));
        }
    });
}

// Processes are started, by `posix_spawn` and by `fork` and `exec`, and waited for after a move.
#[test]
fn processes_are_started() {
    let _watchdog = support::watchdog(120);
    with_moves(|| {
        for round in 0..10 {
            let text = format!("round {round}");
            let mut child = Command::new("cat").arg("/dev/null").spawn().unwrap();
            go_on_elsewhere();
            assert!(child.wait().unwrap().success());
            let mut echo = Command::new("echo");
            // SAFETY: a question.
            echo.arg(&text).uid(unsafe { libc::getuid() });
            let output = echo.output().unwrap();
            go_on_elsewhere();
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), text);
        }
    });
}

// Panics are counted by fiber, and backtraces are taken, on whichever thread; threads are started and joined.
#[test]
fn panics_backtraces_and_threads() {
    #[inline(never)]
    fn deep(depth: u32) -> std::backtrace::Backtrace {
        go_on_elsewhere();
        if depth > 0 { deep(depth - 1) } else { std::backtrace::Backtrace::force_capture() }
    }
    let _watchdog = support::watchdog(120);
    with_moves(|| {
        for round in 0..20u32 {
            let trace = deep(5);
            assert_eq!(trace.status(), std::backtrace::BacktraceStatus::Captured);
            assert!(cfg!(not(debug_assertions)) || trace.to_string().contains("deep"), "{trace}");
            let caught = std::panic::catch_unwind(|| {
                /// Yields while it unwinds, where the fiber stays.
                struct Yields(Cell<bool>);
                impl Drop for Yields {
                    fn drop(&mut self) {
                        assert!(std::thread::panicking());
                        fibra::yield_now();
                        assert!(std::thread::panicking());
                        self.0.set(true);
                    }
                }
                let _yields = Yields(Cell::new(false));
                go_on_elsewhere();
                std::panic::resume_unwind(Box::new(round));
            });
            assert_eq!(*caught.unwrap_err().downcast::<u32>().unwrap(), round);
            assert!(!std::thread::panicking());
            let thread = std::thread::spawn(move || round);
            go_on_elsewhere();
            assert_eq!(thread.join().unwrap(), round);
        }
    });
}

// What is borrowed from a thread-local stays borrowed over waits, after which the fiber runs where it was woken.
#[test]
fn borrows_of_thread_locals_are_held_over_waits() {
    thread_local!(static KEPT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) });
    let _watchdog = support::watchdog(120);
    Runtime::builder().workers(3).force_moves().build().unwrap().run(|| {
        let (tx, rx) = fibra::channel::bounded::<u64>(1);
        let lock = Arc::new(fibra::sync::Mutex::new(()));
        let fibers: Vec<_> = (0..6)
            .filter_map(|_| {
                let (rx, lock) = (rx.clone(), lock.clone());
                start_moving(move || {
                    let mut got = 0;
                    KEPT.with_borrow_mut(|kept| {
                        while let Ok(value) = rx.recv() {
                            let held = lock.lock();
                            fibra::yield_now();
                            kept.push(value);
                            drop(held);
                            got += 1;
                        }
                        assert!(KEPT.with(|kept| kept.try_borrow().is_err()), "it is this one that is borrowed");
                    });
                    assert_eq!(KEPT.with_borrow(Vec::len), got);
                    got
                })
            })
            .collect();
        if fibers.is_empty() {
            return;
        }
        (0..600).for_each(|value| tx.send(value).unwrap());
        drop(tx);
        assert_eq!(fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<usize>(), 600);
    });
}
