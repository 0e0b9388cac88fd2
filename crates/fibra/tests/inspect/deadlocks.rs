//! Fibers that wait for each other are named, those that another fiber or thread can wake are not; and what a run does about it.

use std::sync::Arc;
use std::time::Duration;

use fibra::inspect::{self, Deadlock};
use fibra::sync::{Barrier, Event, Mutex, RwLock};
use fibra::{Builder, JoinHandle, OnDeadlock};

use crate::support::{is_child, rerun_self, watchdog};

fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().name(name).spawn(f).unwrap()
}

/// Those of them that this test has planted: others run in the same process.
fn about(name: &str) -> Vec<Deadlock> {
    inspect::deadlocks().into_iter().filter(|deadlock| deadlock.to_string().contains(name)).collect()
}

fn await_one(name: &str) -> Deadlock {
    loop {
        if let Some(deadlock) = about(name).pop() {
            return deadlock;
        }
        fibra::yield_now();
    }
}

// a circle of locks is certain while the rest of the program goes on; it ends when one of them is cancelled.
#[test]
fn a_circle_of_locks_is_certain() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let (a, b) = (Arc::new(Mutex::new(())), Arc::new(RwLock::new(())));
        let both = Arc::new(Barrier::new(2));
        let (a1, b1, both1) = (a.clone(), b.clone(), both.clone());
        let one = spawn("locks mutex first", move || {
            let _a = a1.lock();
            both1.wait();
            let _b = b1.read();
        });
        let two = spawn("locks rwlock first", move || {
            let _b = b.write();
            both.wait();
            let _a = a.lock();
        });
        let deadlock = await_one("locks mutex first");
        assert!(deadlock.is_certain(), "{deadlock}");
        assert_eq!(deadlock.fibers().len(), 2, "{deadlock}");
        let text = deadlock.to_string();
        for part in ["CERTAIN", "\"locks rwlock first\" holds it", "deadlocks.rs"] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        one.cancel();
        two.join().unwrap();
        assert!(one.join().is_err_and(|error| error.is_cancelled()));
        assert!(about("locks mutex first").is_empty());
    });
}

#[test]
#[cfg_attr(any(fibra_context = "corosensei", fibra_context = "thread"), ignore = "where a stack begins is not known")]
fn channels_that_wait_for_each_other_are_probable() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        // By a fiber that has ended: who made the channels has their addresses on its stack still, and could use an end of them.
        let made = fibra::spawn(|| {
            let (to_b, at_b) = fibra::channel::rendezvous::<u8>();
            let (to_a, at_a) = fibra::channel::rendezvous::<u8>();
            let a = spawn("waits for b", move || {
                let _ = at_a.recv();
                let _ = to_b.send(1);
            });
            let b = spawn("waits for a", move || {
                let _ = at_b.recv();
                let _ = to_a.send(1);
            });
            (a, b)
        });
        let (a, b) = made.join().unwrap();
        let deadlock = await_one("waits for b");
        assert!(!deadlock.is_certain(), "{deadlock}");
        assert!(deadlock.to_string().contains("its 1 sender seems to be with"), "{deadlock}");
        let mut fibers = deadlock.fibers().to_vec();
        fibers.sort();
        assert_eq!(fibers, [a.id(), b.id()], "{deadlock}");
        a.cancel();
        b.join().unwrap();
        assert!(a.join().is_err_and(|error| error.is_cancelled()));
    });
}

// time, threads and the system may wake a fiber: no deadlock, however long it takes.
#[test]
fn what_comes_from_outside_is_no_deadlock() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let event = Arc::new(Event::new());
        let waits = event.clone();
        let timed = spawn("outside timed", move || _ = waits.wait_timeout(Duration::from_millis(50)));
        let mutex = Arc::new(Mutex::new(()));
        let (held, free) = (mutex.clone(), fibra::channel::bounded::<()>(1));
        let sender = free.0.clone();
        let thread = std::thread::spawn(move || {
            let _guard = held.lock();
            sender.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        });
        free.1.recv().unwrap();
        let locked = spawn("outside locked", move || drop(mutex.lock()));
        while !timed.is_finished() || !locked.is_finished() {
            let found = about("outside");
            assert!(found.is_empty(), "{}", found[0]);
            fibra::yield_now();
        }
        thread.join().unwrap();
    });
}

/// Two fibers that lock two mutexes in turn, in a runtime of its own.
fn cross(rt: &fibra::Runtime) {
    rt.run(|| {
        let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
        let both = Arc::new(Barrier::new(2));
        let lock = |name: &str, first: &Arc<Mutex<()>>, second: &Arc<Mutex<()>>| {
            let (first, second, both) = (first.clone(), second.clone(), both.clone());
            spawn(name, move || {
                let _one = first.lock();
                both.wait();
                let _two = second.lock();
            })
        };
        let (one, two) = (lock("one", &a, &b), lock("two", &b, &a));
        one.join().unwrap();
        two.join().unwrap();
    });
}

// The harness's thread could wake a fiber, so it is spoken of after ten seconds, and nothing else happens.
#[test]
fn with_other_threads_it_is_reported_later() {
    const TEST: &str = "with_other_threads_it_is_reported_later";
    if !is_child(TEST) {
        let ended = rerun_self(TEST, &[]);
        assert!(ended.status.success(), "{ended:?}");
        for part in ["fibra: this may be a deadlock: all 3 fibers of \"patient\"", "CERTAIN deadlock: 2 fibers"] {
            assert!(ended.stdout.contains(part), "{part:?} is not in\n{}", ended.stdout);
        }
        return;
    }
    // What is written to standard error is read here, and ends the process when it is the report.
    let (mut reads, writes) = std::io::pipe().unwrap();
    // SAFETY: both descriptors are open.
    assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&writes), 2) }, 2);
    let rt = fibra::Runtime::builder().workers(1).name("patient").on_deadlock(OnDeadlock::Exit).build().unwrap();
    let handle = rt.handle();
    std::thread::spawn(move || {
        let (mut text, mut piece) = (String::new(), [0; 4096]);
        while !text.contains("They go on waiting.") {
            let read = std::io::Read::read(&mut reads, &mut piece).unwrap();
            text.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
        // It was not ended, only reported.
        println!("{text}");
        std::process::exit(i32::from(handle.snapshot().fibers().len() != 3));
    });
    cross(&rt);
}

#[test]
fn wrong_values_are_refused() {
    const TEST: &str = "wrong_values_are_refused";
    if is_child(TEST) {
        let error = fibra::Runtime::builder().workers(1).build().unwrap_err();
        println!("says: {error}");
        return;
    }
    for (variable, value) in
        [("FIBRA_DEADLOCK", "never"), ("FIBRA_DUMP_SIGNAL", "KILL"), ("FIBRA_INSPECT", "0.0.0.0:1")]
    {
        let ended = rerun_self(TEST, &[(variable, value)]);
        assert!(ended.stdout.contains(&format!("says: fibra: {variable}={value}: ")), "{ended:?}");
    }
}
