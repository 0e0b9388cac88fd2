//! What moves when in a `select!`: a variable named by `send(tx, v)` is moved if and only if that arm wins, and every value is dropped
//! exactly once whatever happens.
#![deny(warnings)]

use std::cell::Cell;
use std::rc::Rc;

use crate::select_macro::{full, with};
use crate::support::watchdog;
use fibra::channel::{SendError, Sender, bounded, unbounded};
use fibra::select;

/// Counts how often it is dropped; not `Clone`, not `Copy`.
#[derive(Debug, Default)]
struct Counted(Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_losing_send_keeps_its_variable() {
    let _watchdog = watchdog(30);
    let drops = Rc::new(Cell::new(0));
    let (never, _never) = full();
    let (tx, rx) = full();
    drop(rx.recv());
    assert!(tx.send(Counted::default()).is_ok());
    let value = Counted(Rc::clone(&drops));
    let mut losses = 0;
    let sent = loop {
        select! {
            send(never, value) -> _ => panic!("no receiver waits"),
            send(tx, value) -> result => break result,
            send(never, value), if losses > 2 => panic!("no receiver waits"),
            default => {
                losses += 1;
                assert_eq!(drops.get(), value.0.get());
                if losses == 5 {
                    drop(rx.recv());
                }
            }
        }
    };
    assert!(sent.is_ok());
    assert_eq!((losses, drops.get()), (5, 0), "it was moved, not dropped");
    drop(rx.recv());
    assert_eq!(drops.get(), 1);
}

#[test]
fn every_value_is_dropped_once() {
    let _watchdog = watchdog(30);
    let drops = Rc::new(Cell::new(0));
    let counted = || Counted(Rc::clone(&drops));
    let (never, _never) = full();
    // Lost.
    let value = counted();
    select! { send(never, value) -> _ => panic!(), default => {} }
    assert_eq!(drops.get(), 0);
    drop(value);
    assert_eq!(drops.replace(0), 1);
    // Lost, not a variable: gone before the body.
    select! { send(never, counted()) -> _ => {}, default => assert_eq!(drops.get(), 1) }
    assert_eq!(drops.replace(0), 1);
    // Won, and received.
    let (tx, rx) = bounded(2);
    let value = counted();
    select! { send(tx, value) => {} send(never, counted()) => {} }
    assert_eq!(drops.replace(0), 1, "the loser's");
    drop(rx.recv());
    assert_eq!(drops.replace(0), 1);
    // Switched off.
    let value = counted();
    select! {
        send(tx, value), if drops.get() > 0 => panic!(),
        send(tx, counted()), if drops.get() > 0 => {}
        default => {}
    }
    assert_eq!(drops.get(), 0);
    drop(value);
    assert_eq!(drops.replace(0), 1);
    // No receiver is left: it comes back, or is dropped with the result.
    drop(rx);
    let value = counted();
    let back = select! { send(tx, value) -> result => result };
    assert_eq!(drops.get(), 0);
    drop(back);
    assert_eq!(drops.replace(0), 1);
    let value = counted();
    select! { send(tx, value) => assert_eq!(drops.get(), 1) }
    let value = counted();
    select! { send(tx, value) -> _ => assert_eq!(drops.get(), 2, "`_` keeps nothing") }
    assert_eq!(drops.replace(0), 2);
    // The result of a receive likewise.
    let (_tx, rx) = with([counted(), counted()]);
    select! { recv(rx) => assert_eq!(drops.get(), 1) }
    select! { recv(rx) -> _message => assert_eq!(drops.get(), 1) }
    assert_eq!(drops.get(), 2);
}

/// Between the moment its value is taken and the body, nothing can go wrong for the variable: here a loser's destructor panics.
#[test]
fn a_panic_of_a_losers_destructor_does_not_drop_the_sent_value_again() {
    let _watchdog = watchdog(30);
    struct Bomb(bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(!self.0, "the bomb");
        }
    }
    let drops = Rc::new(Cell::new(0));
    let (tx, rx) = bounded(1);
    let (never, _never) = bounded(1);
    assert!(never.send(Bomb(false)).is_ok());
    let value = Counted(Rc::clone(&drops));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        select! {
            send(tx, value) -> result => result.unwrap(),
            send(never, Bomb(true)) -> _ => {}
        }
    }));
    assert!(panicked.is_err());
    assert_eq!(drops.get(), 0, "it is in the channel");
    drop(rx.recv());
    assert_eq!(drops.get(), 1);
}

#[test]
fn whatever_is_written_as_a_name_can_be_sent() {
    let _watchdog = watchdog(30);
    #[derive(Debug, PartialEq, Clone, Copy)]
    struct Unit;
    const NUMBER: u64 = 7;
    const EMPTY: Vec<u8> = Vec::new();
    static TEXT: &str = "static";

    let (tx, rx) = unbounded();
    select! { send(tx, NUMBER) -> r => r.unwrap() }
    let copy = 8;
    for _ in 0..2 {
        select! { send(tx, copy) -> r => r.unwrap() }
    }
    assert_eq!((copy, rx.try_iter().collect::<Vec<_>>()), (8, vec![7, 8, 8]));

    let (tx, rx) = unbounded();
    select! { send(tx, None) -> r => r.unwrap() }
    select! { send(tx, Some(Unit)) -> r => r.unwrap() }
    assert_eq!(rx.try_iter().collect::<Vec<_>>(), [None, Some(Unit)]);
    let (tx, rx) = unbounded();
    select! { send(tx, Unit) -> r, if true => r.unwrap() }
    assert_eq!(rx.recv(), Ok(Unit));
    let (tx, rx) = unbounded();
    select! { send(tx, EMPTY) -> r => r.unwrap() }
    assert_eq!(rx.recv().unwrap(), EMPTY);
    let (tx, rx) = unbounded();
    select! { send(tx, TEXT) -> r => r.unwrap() }
    select! { send(tx, "literal") -> r => r.unwrap() }
    assert_eq!(rx.try_iter().collect::<Vec<_>>(), ["static", "literal"]);
    let (tx, rx) = unbounded();
    select! { send(tx, true) -> r => r.unwrap() }
    assert_eq!(rx.recv(), Ok(true));

    // A unique reference moves, and comes out on the other side.
    let mut number = 1;
    {
        let (tx, rx) = unbounded();
        let unique = &mut number;
        select! { send(tx, unique) -> r => r.unwrap() }
        *rx.recv().unwrap() += 1;
    }
    assert_eq!(number, 2);
}

/// Fields are like variables; what is not sent of their owner stays.
#[test]
fn a_field_moves_only_if_its_arm_wins() {
    let _watchdog = watchdog(30);
    struct Job {
        text: String,
        pair: (String, (u8, String)),
    }
    let job = Job { text: "text".into(), pair: ("zero".into(), (1, "one".into())) };
    let (never, _never) = full();
    let (tx, rx) = unbounded();
    select! { send(never, job.text) => panic!(), send(never, job.pair.0) => panic!(), default => {} }
    assert_eq!((job.text.as_str(), job.pair.0.as_str()), ("text", "zero"));
    select! { send(tx, job.text) -> r => r.unwrap() }
    select! { send(tx, job.pair.1.1) -> r => r.unwrap() }
    assert_eq!((job.pair.0.as_str(), job.pair.1.0), ("zero", 1));
    assert_eq!(rx.try_iter().collect::<Vec<_>>(), ["text", "one"]);
}

#[derive(Debug, PartialEq)]
struct Message(u8);

impl Message {
    fn send_to(self, tx: &Sender<Self>) -> Result<(), Self> {
        select! {
            send(tx, self) -> result => result.map_err(SendError::into_inner),
            default => Err(self),
        }
    }
}

#[test]
fn self_is_a_variable_too() {
    let _watchdog = watchdog(30);
    let (tx, rx) = bounded(1);
    assert_eq!(Message(1).send_to(&tx), Ok(()));
    assert_eq!(Message(2).send_to(&tx), Err(Message(2)));
    assert_eq!(rx.recv(), Ok(Message(1)));
}

/// A value that is not a name may still be converted to what the channel carries.
#[test]
fn an_expression_is_coerced() {
    let _watchdog = watchdog(30);
    let (tx, rx) = unbounded::<Box<dyn Fn(u8, u8) -> u8>>();
    select! { send(tx, Box::new(|a, b| a + b)) -> r => assert!(r.is_ok()) }
    assert_eq!(rx.recv().unwrap()(1, 2), 3);
    let (tx, rx) = unbounded::<fn(u8, u8) -> u8>();
    select! { send(tx, |a, b| a * b) -> r => assert!(r.is_ok()) }
    assert_eq!(rx.recv().unwrap()(3, 2), 6);
}
