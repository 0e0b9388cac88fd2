//! Sending what is written as a name and is not a variable: a constant is one value per evaluation, which is received once or dropped once.

use std::cell::{Cell, RefCell};

use fibra::channel::{Receiver, Sender, bounded, unbounded};
use fibra::{select, select_biased};

use crate::support::watchdog;

thread_local! {
    static DROPS: Cell<u32> = const { Cell::new(0) };
}

fn drops() -> u32 {
    DROPS.replace(0)
}

/// Counts how often it is dropped, and can be made by a constant.
#[derive(Debug)]
struct Noisy(u8);

impl Drop for Noisy {
    fn drop(&mut self) {
        DROPS.set(DROPS.get() + 1);
    }
}

const CONSTANT: Noisy = Noisy(7);
#[allow(non_upper_case_globals)]
const looks_like_a_variable: Noisy = Noisy(8);

struct Pair {
    noisy: Noisy,
    other: Noisy,
}
const PAIR: Pair = Pair { noisy: Noisy(1), other: Noisy(2) };

/// A channel that takes nothing.
fn full() -> (Sender<Noisy>, Receiver<Noisy>) {
    let (tx, rx) = bounded(1);
    tx.send(CONSTANT).unwrap();
    (tx, rx)
}

#[test]
fn a_constant_that_is_sent_is_dropped_by_its_receiver_and_nowhere_else() {
    let _watchdog = watchdog(30);
    let (tx, rx) = unbounded();
    select! { send(tx, CONSTANT) -> sent => sent.unwrap() }
    assert_eq!(drops(), 0, "it is in the channel");
    select! { send(tx, looks_like_a_variable) -> sent, if true => sent.unwrap() }
    select_biased! {
        send(tx, CONSTANT) => {}
        default() => panic!("there is room"),
    }
    assert_eq!(drops(), 0);
    assert_eq!(rx.try_iter().map(|noisy| noisy.0).collect::<Vec<_>>(), [7, 8, 7]);
    assert_eq!(drops(), 3);
}

#[test]
fn a_constant_that_is_not_sent_is_dropped_once() {
    let _watchdog = watchdog(30);
    let (never, _never) = full();
    select! {
        send(never, CONSTANT) => panic!("no receiver waits"),
        default => assert_eq!(drops(), 1, "it is gone before the body"),
    }
    assert_eq!(drops(), 0);
    // Two evaluations: one is sent, one is not.
    let (tx, rx) = bounded(1);
    select! {
        send(never, CONSTANT) => panic!("no receiver waits"),
        send(tx, CONSTANT) -> sent => {
            assert_eq!(drops(), 1);
            sent.unwrap();
        }
    }
    assert_eq!(drops(), 0);
    drop(rx.recv());
    assert_eq!(drops(), 1);
    // Not evaluated.
    select! { send(tx, CONSTANT), if drops() > 0 => panic!("it is switched off"), default => {} }
    assert_eq!(drops(), 0);
    // No receiver is left: it comes back.
    drop(rx);
    let back = select! { send(tx, CONSTANT) -> sent => sent };
    assert_eq!(drops(), 0);
    drop(back);
    assert_eq!(drops(), 1);
}

#[test]
#[cfg_attr(fibra_context = "thread", ignore = "drops are counted by thread, and a fiber is another one there")]
fn a_constant_is_dropped_once_if_the_select_unwinds() {
    let _watchdog = watchdog(30);
    fibra::run(|| {
        let (never, _never) = full();
        let fiber = fibra::spawn_local(move || select! { send(never, CONSTANT) => panic!("no receiver waits") });
        // It is local, so it has begun, and waits.
        fibra::yield_now();
        assert_eq!(drops(), 0);
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        assert_eq!(drops(), 1);
    });
}

#[test]
fn a_field_of_a_constant_is_like_a_constant() {
    let _watchdog = watchdog(30);
    let (tx, rx) = unbounded();
    select! { send(tx, PAIR.noisy) -> sent => sent.unwrap() }
    // An evaluation makes the whole pair; what is not sent of it is dropped at once. `let moved = PAIR.noisy` does the same.
    let moved = PAIR.noisy;
    assert_eq!(drops(), 2);
    drop((moved, rx.recv()));
    assert_eq!(drops(), 2);
    assert_eq!(PAIR.other.0, 2);
    drops();
}

fn send_number<const N: usize>(tx: &Sender<usize>) {
    select! { send(tx, N) -> sent => sent.unwrap() }
}

/// Whatever else is written like a variable and captured by no closure.
#[test]
fn statics_units_functions_and_parameters_can_be_sent() {
    let _watchdog = watchdog(30);
    #[derive(Debug, PartialEq)]
    struct Unit;
    impl Drop for Unit {
        fn drop(&mut self) {
            DROPS.set(DROPS.get() + 1);
        }
    }
    static NUMBER: usize = 3;
    fn function() -> u8 {
        5
    }

    let (tx, rx) = unbounded();
    send_number::<4>(&tx);
    select! { send(tx, NUMBER) -> sent => sent.unwrap() }
    assert_eq!(rx.try_iter().collect::<Vec<_>>(), [4, 3]);

    let (tx, rx) = unbounded();
    select! { send(tx, Unit) -> sent => sent.unwrap() }
    assert_eq!(drops(), 0);
    drop(rx.recv());
    assert_eq!(drops(), 1);

    let (tx, rx) = unbounded();
    select! { send(tx, function) -> sent => assert!(sent.is_ok()) }
    assert_eq!(rx.recv().unwrap()(), 5);

    let (tx, rx) = unbounded::<Option<Noisy>>();
    select! { send(tx, None) -> sent => assert!(sent.is_ok()) }
    assert!(rx.recv().unwrap().is_none());
}

/// A variable is told from a constant whatever its type: also one without a size, which nothing but its name distinguishes.
#[test]
fn variables_without_a_size_stay_where_they_are() {
    let _watchdog = watchdog(30);
    struct Token;
    impl Drop for Token {
        fn drop(&mut self) {
            DROPS.set(DROPS.get() + 1);
        }
    }
    let (tx, rx) = bounded(1);
    let token = Token;
    select! { send(tx, token) => {}, default => panic!("there is room") }
    let token = Token;
    select! { send(tx, token) => panic!("there is no room"), default => assert_eq!(drops(), 0) }
    drop(token);
    assert_eq!(drops(), 1);
    drop((tx, rx));
    assert_eq!(drops(), 1);

    // Captured by a closure, and behind a reference that is one.
    let (tx, rx) = bounded(1);
    let token = Token;
    let send = || select! { send(tx, token) -> sent => assert!(sent.is_ok()) };
    send();
    assert_eq!(drops(), 0);
    drop((tx, rx));
    assert_eq!(drops(), 1);
    let cell = RefCell::new(1);
    let (tx, rx) = bounded(1);
    let borrowed = &cell;
    select! { send(tx, borrowed) -> sent => assert!(sent.is_ok()) }
    *rx.recv().unwrap().borrow_mut() = 2;
    assert_eq!(*cell.borrow(), 2);
}

/// By the looks of it a fragment of a macro is neither.
#[test]
fn a_macro_may_pass_either() {
    let _watchdog = watchdog(30);
    macro_rules! send_to {
        ($tx:expr, $value:expr) => {
            select! { send($tx, $value) -> _ => true, default => false }
        };
    }
    let (tx, rx) = bounded(1);
    assert!(send_to!(tx, CONSTANT));
    assert_eq!(drops(), 0);
    assert!(!send_to!(tx, CONSTANT));
    assert_eq!(drops(), 1);
    {
        let variable = CONSTANT;
        assert!(!send_to!(tx, variable));
        assert_eq!(drops(), 0);
    }
    assert_eq!(drops(), 1);
    drop(rx);
    assert_eq!(drops(), 1);
}
