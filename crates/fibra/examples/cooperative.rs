//! Cancellation that is only observed: the way for programs that are built with `panic = "abort"`, where nothing can be unwound.
//!
//! ```text
//! cargo run --example cooperative
//! CARGO_PROFILE_DEV_PANIC=abort cargo run --target-dir target/abort --example cooperative
//! ```
//!
//! The second form is what `.ci/abort` runs: every assertion below holds in both.

use std::time::Duration;

use fibra::channel::unbounded;
use fibra::{Cancellation, Runtime};

/// Counts until it is told to stop, which it has to ask for.
fn count_until_cancelled() -> u32 {
    let mut rounds = 0;
    while !fibra::is_cancelled() {
        fibra::sleep(Duration::from_millis(1));
        rounds += 1;
    }
    rounds
}

/// The runtime of a program that says nothing about cancellation.
fn build_as_usual() {
    let built = Runtime::builder().workers(1).build();
    assert_eq!(built.is_err(), cfg!(panic = "abort"), "it fails where nothing can be unwound, and only there");
    if let Err(error) = built {
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("Cancellation::Cooperative"), "it does not say what to do: {error}");
        println!("a runtime as usual: {error}");
    }
    let cooperative = Runtime::builder().workers(1).cancellation(Cancellation::Cooperative).build();
    assert_eq!(cooperative.expect("this one can be built").run(|| 42), 42);
}

#[fibra::main(cancellation = "cooperative")]
fn main() {
    std::thread::spawn(build_as_usual).join().expect("it says what it finds");

    let (begun, has_begun) = unbounded();
    let counter = fibra::spawn(move || {
        begun.send(()).expect("main waits for it");
        count_until_cancelled()
    });
    has_begun.recv().expect("the counter has begun");
    counter.cancel();
    println!("a fiber that asks ends after {} rounds", counter.join().expect("nothing was cut short"));

    // A wait goes on to its end, cancelled or not.
    let (values, queue) = unbounded::<&str>();
    let (waiting, waits) = unbounded();
    let waiter = fibra::spawn(move || {
        waiting.send(()).expect("main waits for it");
        let value = queue.recv().expect("a value comes");
        (value, fibra::is_cancelled())
    });
    waits.recv().expect("it is about to wait");
    waiter.cancel();
    fibra::yield_now();
    assert!(!waiter.is_finished(), "a cancelled wait stays parked");
    values.send("a value all the same").expect("the waiter is there");
    let (value, cancelled) = waiter.join().expect("nothing was cut short");
    assert!(cancelled);
    println!("a fiber that waits gets {value}");

    // So a time-out only says that the time is over.
    let late = fibra::timeout(Duration::from_millis(1), || {
        fibra::sleep(Duration::from_millis(20));
        fibra::is_cancelled()
    });
    assert_eq!(late, Ok(true), "the value counts, however late");
    println!("a time-out waits for what is in it");
}
