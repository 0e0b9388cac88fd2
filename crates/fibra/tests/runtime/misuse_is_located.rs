//! A panic about misuse points at the line of the program that is wrong, not at a line of fibra: `#[track_caller]` on the whole way from
//! the public function to the panic.
//!
//! In a process of its own, whose panic hook notes where each panic came from.
#![allow(clippy::disallowed_types)] // The hook stands outside the runtime, and so does its lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support;
use fibra::{Builder, Handle, Runtime, Scope};

const TEST: &str = "misuse_is_located";

/// Where the last panic came from, and what it said.
static LAST: Mutex<Option<(String, u32, String)>> = Mutex::new(None);

/// Misuse that is written in the lines from `line` on. It has to panic there, with this text.
fn misuse<T>(line: u32, text: &str, f: impl FnOnce() -> T) {
    *LAST.lock().unwrap() = None;
    let panicked = catch_unwind(AssertUnwindSafe(|| drop(f())));
    let last = LAST.lock().unwrap().take();
    let Some((file, at, said)) = last.filter(|_| panicked.is_err()) else {
        return eprintln!("WRONG: line {line}: no panic about {text:?}");
    };
    if !said.contains(text) {
        eprintln!("WRONG: line {line}: not about {text:?}, but: {said}");
    }
    if file != file!() || at < line || at > line + 4 {
        eprintln!("WRONG: line {line}: {said:?} is said to be at {file}:{at}");
    }
}

fn misuse_outside_a_runtime() {
    misuse(line!(), "spawn on a thread without", || fibra::spawn(|| ()));
    misuse(line!(), "spawn_local on a thread that", || fibra::spawn_local(|| ()));
    misuse(line!(), "spawn_future on a thread without", || fibra::spawn_future(async {}));
    misuse(line!(), "spawn_blocking on a thread without", || fibra::spawn_blocking(|| ()));
    misuse(line!(), "Builder::spawn on a thread without", || Builder::new().spawn(|| ()));
    misuse(line!(), "spawn_local on a thread that", || Builder::new().spawn_local(|| ()));
    misuse(line!(), "scope on a thread without", || fibra::scope(|_| ()));
    misuse(line!(), "try_scope on a thread without", || fibra::try_scope(|_| Ok::<(), ()>(())));
    misuse(line!(), "on a thread without", || Scope::builder().run(|_| ()));
    misuse(line!(), "on a thread without", || Scope::builder().try_run(|_| Ok::<(), ()>(())));
    misuse(line!(), "timeout on a thread without", || fibra::timeout(Duration::ZERO, || ()));
    misuse(line!(), "timeout on a thread without", || fibra::deadline(fibra::time::Instant::now(), || ()));
    misuse(line!(), "Handle::current on a thread without", || -> Handle { Handle::current() });
    misuse(line!(), "on a thread without", || fibra::join_all([|| ()]));
    misuse(line!(), "on a thread without", || fibra::race([|| ()]));
    misuse(line!(), "on a thread without", || fibra::any([|| Ok::<(), ()>(())]));
    misuse(line!(), "on a thread without", || fibra::par_map([1], 1, |n| n));
    misuse(line!(), "on a thread without", || fibra::JoinSet::new().spawn(|| ()));
}

fn misuse_inside_a_fiber() {
    misuse(line!(), "fibra::run inside a fiber", || fibra::run(|| ()));
    let runtime = Runtime::builder().workers(1).build().unwrap();
    misuse(line!(), "Runtime::run inside a fiber", || runtime.run(|| ()));
    misuse(line!(), "Handle::scope on a fiber of another", || runtime.handle().scope(|_| ()));
    drop(runtime);
    misuse(line!(), "a race without closures", || fibra::race(Vec::<fn()>::new()));
    misuse(line!(), "par_map with n = 0", || fibra::par_map([1], 0, |n| n));
    misuse(line!(), "max_concurrency(0)", || Scope::builder().max_concurrency(0));
    misuse(line!(), "scope inside `no_suspend`", || fibra::no_suspend(|| fibra::scope(|_| ())));
    misuse(line!(), "scope inside `no_suspend`", || fibra::no_suspend(|| fibra::try_scope(|_| Ok::<(), ()>(()))));
    misuse(line!(), "timeout inside `no_suspend`", || fibra::no_suspend(|| fibra::timeout(Duration::ZERO, || ())));
    misuse(line!(), "inside `no_suspend`", || fibra::no_suspend(|| Scope::builder().run(|_| ())));
    // A wait deep inside is told where it began, and says so: that costs no path that waits anything.
    let begun = line!() + 1;
    let slept = catch_unwind(|| fibra::no_suspend(|| fibra::sleep(Duration::from_millis(1))));
    let said = slept.unwrap_err().downcast::<String>().unwrap();
    if !said.contains(&format!("(sleeping, at {}:{begun}:", file!())) {
        eprintln!("WRONG: line {begun}: {said}");
    }
    let mutex = fibra::sync::Mutex::new(());
    let held = mutex.lock();
    misuse(line!(), "would wait for itself for ever", || drop(mutex.lock()));
    misuse(line!(), "would wait for itself for ever", || drop(mutex.try_lock_for(Duration::from_secs(1))));
    drop(held);
    let me: Arc<Mutex<Option<fibra::JoinHandle<()>>>> = Arc::default();
    let mine = me.clone();
    let (tx, rx) = fibra::channel::bounded::<()>(1);
    let fiber = fibra::spawn(move || {
        rx.recv().unwrap();
        let handle = mine.lock().unwrap().take().unwrap();
        misuse(line!(), "cannot wait for its own end", || handle.wait());
    });
    *me.lock().unwrap() = Some(fiber);
    tx.send(()).unwrap();
}

fn misuse_of_runtimes() {
    let runtime = Arc::new(Mutex::new(Some(Runtime::builder().workers(1).build().unwrap())));
    let taken = runtime.clone();
    let handle = runtime.lock().unwrap().as_ref().unwrap().handle();
    let fiber = handle.spawn(move || {
        let runtime = taken.lock().unwrap().take().unwrap();
        misuse(line!(), "shutdown_timeout of a runtime inside", || runtime.shutdown_timeout(Duration::from_secs(1)));
    });
    fiber.join().unwrap();
    let runtime = Runtime::current_thread().unwrap();
    let (tx, rx) = fibra::channel::bounded::<()>(1);
    let parked = runtime.handle().spawn(move || assert!(rx.recv().is_err()));
    runtime.run(|| fibra::sleep(Duration::from_millis(1)));
    std::thread::scope(|s| {
        let other = || misuse(line!(), "were started on another thread", || runtime.run(|| ()));
        s.spawn(other);
    });
    drop(tx);
    runtime.run(|| parked.join().unwrap());
}

#[test]
fn misuse_is_located() {
    let _watchdog = support::watchdog(100);
    if support::is_child(TEST) {
        std::panic::set_hook(Box::new(|info| {
            let place = info.location().expect("panics have a place");
            let said = info.payload().downcast_ref::<String>().cloned();
            let said = said.or_else(|| info.payload().downcast_ref::<&str>().map(ToString::to_string));
            let file = place.file().to_owned();
            *LAST.lock().unwrap() = Some((file, place.line(), said.unwrap_or_default()));
        }));
        misuse_outside_a_runtime();
        misuse_of_runtimes();
        fibra::run(misuse_inside_a_fiber);
        return eprintln!("all were tried");
    }
    let ended = support::rerun_self(TEST, &[]);
    assert!(ended.status.success() && ended.stderr.contains("all were tried"), "{ended:?}");
    assert!(!ended.stderr.contains("WRONG"), "{}", ended.stderr);
}
