//! `select!` and `select_biased!` as a piece of syntax: what is evaluated when, what a body may do. (What moves when is in
//! `select_moves`; what a select means among fibers, threads and tasks is for the tests of the library.) Everything here runs
//! on plain threads as well as in fibers; one of two ready arms wins by chance under `select!`, so those tests are
//! `select_biased!`.
#![deny(warnings)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::watchdog;
use fibra::channel::{Receiver, RecvError, Sender, bounded, unbounded};
use fibra::{select, select_biased};

/// Long enough never to pass in a test that is right.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(1);

/// A receiver with these messages in it, whose sender lives on.
pub(crate) fn with<T>(messages: impl IntoIterator<Item = T>) -> (Sender<T>, Receiver<T>) {
    let (tx, rx) = unbounded();
    for message in messages {
        assert!(tx.send(message).is_ok());
    }
    (tx, rx)
}

/// A channel that takes nothing.
pub(crate) fn full<T: Default>() -> (Sender<T>, Receiver<T>) {
    let (tx, rx) = bounded(1);
    assert!(tx.send(T::default()).is_ok());
    (tx, rx)
}

// ---- Every kind of arm --------------------------------------------------------------------------------------------------

#[test]
fn recv_gives_the_message_or_why_there_is_none() {
    let _watchdog = watchdog(30);
    let (tx, rx) = with([1]);
    select! { recv(rx) -> message => assert_eq!(message, Ok(1)) }
    drop(tx);
    select! { recv(rx) -> message => assert_eq!(message, Err(RecvError)) }
}

#[test]
fn send_gives_the_value_back_if_no_receiver_is_left() {
    let _watchdog = watchdog(30);
    let (tx, rx) = bounded(1);
    let variable = String::from("variable");
    select! { send(tx, variable) -> result => assert!(result.is_ok()) }
    assert_eq!(rx.recv().unwrap(), "variable");
    select! { send(tx, String::from("expression")) -> result => assert!(result.is_ok()) }
    assert_eq!(rx.recv().unwrap(), "expression");
    drop(rx);
    let variable = String::from("variable");
    select! { send(tx, variable) -> result => assert_eq!(result.unwrap_err().into_inner(), "variable") }
    select! {
        send(tx, "expression".to_owned()) -> result => assert_eq!(result.unwrap_err().into_inner(), "expression"),
    }
}

#[test]
fn closed_says_that_the_other_side_is_gone() {
    let _watchdog = watchdog(30);
    let (tx, rx) = bounded::<u8>(1);
    select! { closed(tx) => panic!("the receiver is there"), default => {} }
    select! { closed(rx) => panic!("the sender is there"), default => {} }
    drop(rx);
    select! { closed(tx) -> why => { let _: fibra::channel::CloseReason = why; } }
    let (tx, rx) = bounded::<u8>(1);
    drop(tx);
    let by_reference = &rx;
    select! { closed(by_reference) -> _why => {} }
    let shared = Arc::new(rx);
    select! { closed(shared) -> _why, if true => {} }
    select! { closed(Box::new(&*shared)) => {} }
}

#[test]
fn join_gives_what_the_fiber_returned() {
    let _watchdog = watchdog(30);
    fibra::run(|| {
        let handle = fibra::spawn(|| 1);
        assert_eq!(select! { join(handle) -> result => result.unwrap() }, 1);
        assert_eq!(select! { join(fibra::spawn(|| 2)) -> result => result.unwrap() }, 2);
        let handle = fibra::spawn(|| 3);
        assert_eq!(select! { join(handle) -> result, if true => result.unwrap() }, 3);
        assert_eq!(select! { join(fibra::spawn(|| 4)) -> result, if true => result.unwrap() }, 4);
        select! { join(fibra::spawn(|| 5)) => {} }
    });
}

/// A variable named by `join` moves only if that arm wins.
#[test]
fn a_handle_stays_unless_its_arm_wins() {
    let _watchdog = watchdog(30);
    fibra::run(|| {
        let (go, gate) = bounded::<()>(1);
        let handle = fibra::spawn(move || gate.recv().is_ok());
        let struct_of = Holder { handle: fibra::spawn(|| 6), _other: 0 };
        for round in 0..3 {
            select! {
                join(handle) -> _ => panic!("it waits for us"),
                default => assert!(round < 3),
            }
        }
        let held = fibra::spawn(move || 7);
        let (_tx, ready) = with([8]);
        // An expression's handle is ours, and detached if another arm wins.
        let got = select_biased! {
            recv(ready) -> message => message.unwrap(),
            join({ held }) -> result => result.unwrap(),
        };
        assert_eq!(got, 8);
        go.send(()).unwrap();
        assert!(select! { join(handle) -> result => result.unwrap() });
        assert_eq!(select! { join(struct_of.handle) -> result => result.unwrap() }, 6);
    });
}

struct Holder {
    handle: fibra::JoinHandle<u32>,
    _other: u8,
}

#[test]
fn on_takes_any_arm() {
    let _watchdog = watchdog(30);
    let (_tx, rx) = with([1, 2]);
    assert_eq!(select! { on(fibra::__private::select::recv(&rx)) -> message => message }, Ok(1));
    assert_eq!(select! { on(fibra::__private::select::recv(&rx)) -> message, if rx.len() == 1 => message }, Ok(2));
}

#[test]
fn after_and_default_come_when_nothing_else_does() {
    let _watchdog = watchdog(30);
    let (_tx, rx) = bounded::<u8>(1);
    assert_eq!(select! { recv(rx) -> _ => 1, after(SHORT) => 2 }, 2);
    assert_eq!(select! { recv(rx) -> _ => 1, after(SHORT), if true => 2, after(LONG) => 3 }, 2);
    assert_eq!(select! { recv(rx) -> _ => 1, after(SHORT), if false => 2, default => 3 }, 3);
    assert_eq!(select! { recv(rx) -> _ => 1, default(SHORT) => 2 }, 2);
    assert_eq!(select! { default => 2 }, 2);
    assert_eq!(select! { default(SHORT) => 2 }, 2);
    let (_tx, ready) = with([0]);
    assert_eq!(select! { default => 2, recv(ready) => 1 }, 1, "default is the last resort wherever it stands");
}

#[test]
fn biased_takes_the_first_ready_arm_in_source_order() {
    let _watchdog = watchdog(30);
    let (_tx, empty) = bounded::<u8>(1);
    let (_a, first) = with(0..100);
    let (_b, second) = with(0..100);
    for _ in 0..100 {
        select_biased! {
            recv(empty) -> _ => panic!("nothing is in it"),
            recv(first) -> _ => {}
            recv(second) -> _ => panic!("an earlier one was ready"),
            default => panic!("two were ready"),
        }
    }
    assert_eq!(second.len(), 100, "what lost has lost nothing");
}

// ---- What is evaluated when ---------------------------------------------------------------------------------------------

#[test]
fn expressions_are_evaluated_once_in_order_and_only_if_their_guard_holds() {
    let _watchdog = watchdog(30);
    let log = RefCell::new(Vec::new());
    fn note<T>(log: &RefCell<Vec<&'static str>>, what: &'static str, value: T) -> T {
        log.borrow_mut().push(what);
        value
    }
    let (tx, rx) = bounded::<u8>(1);
    let (full, _rx) = full::<u8>();
    let variable = 1_u8;
    fibra::run(|| {
        let got = select! {
            recv(note(&log, "rx1", &rx)) -> _, if note(&log, "yes1", true) => 1,
            recv(note(&log, "rx2", &rx)) -> _, if note(&log, "no2", false) => 2,
            send(note(&log, "tx3", &full), note(&log, "value3", 3)), if note(&log, "yes3", true) => 3,
            send(note(&log, "tx4", &tx), note(&log, "value4", 4)), if note(&log, "no4", false) => 4,
            send(note(&log, "tx5", &tx), variable), if note(&log, "no5", false) => 5,
            default(note(&log, "limit", SHORT)) => 6,
            closed(note(&log, "tx7", &tx)) -> _, if note(&log, "yes7", true) => 7,
            closed(note(&log, "tx8", &tx)) -> _, if note(&log, "no8", false) => 8,
            after(note(&log, "after9", LONG)) => 9,
            after(note(&log, "after10", SHORT)), if note(&log, "no10", false) => 10,
            on(note(&log, "on11", fibra::__private::select::recv(&rx))) => 11,
            on(note(&log, "on12", fibra::__private::select::recv(&rx))), if note(&log, "no12", false) => 12,
            join(note(&log, "join13", fibra::spawn(|| ()))) -> _, if note(&log, "no13", false) => 13,
            send(note(&log, "tx14", &full), variable) => 14,
        };
        assert_eq!(got, 6);
    });
    let expected = [
        "yes1", "rx1", "no2", "yes3", "tx3", "value3", "no4", "no5", "limit", "yes7", "tx7", "no8", "after9", "no10",
        "on11", "no12", "no13", "tx14",
    ];
    assert_eq!(*log.borrow(), expected);
}

#[test]
#[should_panic(expected = "every guard is false")]
fn nothing_switched_on_and_no_default_is_a_panic() {
    let _watchdog = watchdog(30);
    let (_tx, rx) = with([1]);
    select! { recv(rx) -> _, if rx.is_empty() => {} }
}

/// A guard keeps an expression from being evaluated that would panic, or that moves a value.
#[test]
fn a_guard_protects_its_expression() {
    let _watchdog = watchdog(30);
    let (_tx, rx) = with([1]);
    let (full, _rx) = full::<String>();
    let nothing: Option<Receiver<u8>> = None;
    let text = String::from("kept");
    let kept = text.clone();
    let got = select! {
        recv(nothing.as_ref().unwrap()) -> _, if nothing.is_some() => 0,
        send(full, format!("{kept}{}", nothing.as_ref().unwrap().len())), if nothing.is_some() => 0,
        recv(rx) -> message => message.unwrap(),
    };
    assert_eq!(got, 1);
    assert_eq!(text, kept);
}

/// What is selected on may be a thing, a reference, a smart pointer; and a temporary, which lives as long as it is needed.
#[test]
fn arms_take_references_smart_pointers_and_temporaries() {
    let _watchdog = watchdog(30);
    let (tx, rx) = with(0..20);
    let shared = (Arc::new(rx.clone()), Rc::new(rx.clone()), Box::new(rx.clone()));
    let mut own = rx.clone();
    let by_mut = &mut own;
    for on in [true, false] {
        let on = on || !shared.0.is_empty();
        let mut got = vec![
            select! { recv(rx) -> m => m },
            select! { recv(&rx) -> m => m },
            select! { recv(&&rx) -> m, if on => m },
            select! { recv(shared.0) -> m => m },
            select! { recv(&shared.1) -> m, if on => m },
            select! { recv(shared.2) -> m, if on => m },
            select! { recv(by_mut) -> m => m },
            select! { recv(rx.clone()) -> m => m },
            select! { recv(rx.clone()) -> m, if on => m },
            select! { recv(if on { &rx } else { &shared.0 }) -> m => m },
        ];
        got.dedup();
        assert_eq!(got.len(), 10);
    }
    assert!(rx.is_empty());
    let sender = Arc::new(tx);
    select! { send(sender, 1) -> r => r.unwrap() }
    select! { send(&sender.clone(), 1) -> r, if true => r.unwrap() }
    let value = 2;
    select! { send(sender.clone(), value) -> r => r.unwrap() }
    select! { send(sender.clone(), value) -> r, if true => r.unwrap() }
    assert_eq!(rx.len(), 4);
    // A guard of a lock or cell, from which the arm borrows.
    let cell = RefCell::new(rx);
    assert_eq!(select! { recv(cell.borrow()) -> m => m }, Ok(1));
    assert_eq!(select! { recv(cell.borrow()) -> m, if true => m }, Ok(1));
    assert_eq!(cell.borrow_mut().len(), 2, "the cell is free again");
}

// ---- Bodies -------------------------------------------------------------------------------------------------------------

#[test]
fn bodies_are_code_of_the_function_around_them() {
    let _watchdog = watchdog(30);
    fn first_even(rx: &Receiver<u32>) -> Result<Option<u32>, RecvError> {
        let mut odd = 0;
        'outer: loop {
            for _ in 0..3 {
                select! {
                    recv(rx) -> message => {
                        let message = message?;
                        if message == 99 {
                            break 'outer;
                        }
                        if message % 2 == 1 {
                            odd += 1;
                            continue;
                        }
                        return Ok(Some(message));
                    }
                }
            }
            select! { default => continue 'outer }
        }
        assert!(odd > 0);
        Ok(None)
    }
    let (tx, rx) = with([1, 3, 5, 7, 4, 1, 99, 1]);
    assert_eq!(first_even(&rx), Ok(Some(4)));
    assert_eq!(first_even(&rx), Ok(None));
    drop(tx);
    assert_eq!(first_even(&rx), Err(RecvError));

    // `break` with a value, unlabelled, right in the body.
    let (_tx, rx) = with([1, 2, 3]);
    let found = loop {
        select! { recv(rx) -> m => if m == Ok(3) { break m }, }
    };
    assert_eq!(found, Ok(3));
}

#[test]
fn the_value_is_that_of_the_body() {
    let _watchdog = watchdog(30);
    let (_tx, rx) = with(0..10);
    let text: &str = select! { recv(rx) -> _ => "received", default => "nothing" };
    assert_eq!(text, "received");
    assert_eq!(select! { recv(rx) -> m => m.unwrap(), } + 1, 2);
    assert_eq!(1 + select! { recv(rx) -> m => { m.unwrap() } }, 3);
    let diverging: u8 = select! { recv(rx) -> m => m.unwrap(), default => return };
    assert_eq!(diverging, 3);
    let unit: () = select! { recv(rx) => {} };
    let _: () = unit;
    let coerced: Box<dyn Fn() -> u8> =
        select! { recv(rx) -> m => { let n = m.unwrap(); Box::new(move || n) } default => Box::new(|| 0) };
    assert_eq!(coerced(), 5);
    let closure = select! { recv(rx) -> m => move |a: u8, b: u8| a + b + m.unwrap(), };
    assert_eq!(closure(1, 1), 8);
    match select! { recv(rx) -> m => m } {
        Ok(n) => assert_eq!(n, 7),
        Err(RecvError) => unreachable!(),
    }
}

/// Commas are optional after bodies that end with a block, and those that are not between arms do not count.
#[test]
fn arms_are_separated_as_in_match() {
    let _watchdog = watchdog(30);
    let (_tx, rx) = with(0..100_u32);
    let (never, empty) = bounded::<u32>(1);
    let (a, b) = (1, 2);
    let got: u32 = select! {
        recv(empty) -> _ => HashMap::<u32, u32>::new().len() as u32,
        recv(empty) -> _ => <u32 as TryFrom<u64>>::try_from(1).unwrap(),
        recv(empty) -> _ => if a < b { 1 } else if a << b > 1 || a | b > 2 { 2 } else { 3 }
        recv(empty) -> _, if a < b && b > 0 => match a { 1 => 2, _ => 3 }
        recv(empty), if a < b || b > 3 => loop { if a == 1 { break 1 } }
        recv(empty) => unsafe_free(|x, y| x + y),
        recv(empty) => 'label: { if a == 1 { break 'label 1 } 2 },
        send(never, std::mem::size_of::<Result<u32, u8>>() as u32), if false => { 1 },
        recv(rx) -> m => { m.unwrap() }
        default => 5
    };
    assert_eq!(got, 0);
}

fn unsafe_free(f: impl Fn(u32, u32) -> u32) -> u32 {
    f(1, 2)
}

#[test]
fn patterns_take_results_apart() {
    let _watchdog = watchdog(30);
    let (_tx, rx) = with([(1, String::from("a")), (2, String::from("b")), (3, String::from("c")), (4, "d".into())]);
    select! { recv(rx) -> mut m => { if let Ok((n, _)) = &mut m { *n += 1 } assert_eq!(m.unwrap().0, 2) } }
    select! { recv(rx) -> ref m => assert_eq!(m.as_ref().unwrap().0, 2) }
    select! { recv(rx) -> whole @ (Ok(_) | Err(_)) => assert_eq!(whole.unwrap().1, "c") }
    fn unwrapped<T>(rx: &Receiver<T>) -> T {
        select! { recv(rx) -> m => m.unwrap_or_else(|_| unreachable!()) }
    }
    assert_eq!(unwrapped(&rx).0, 4);
}

// ---- Around it ----------------------------------------------------------------------------------------------------------

#[test]
fn selects_nest() {
    let _watchdog = watchdog(30);
    let (tx, rx) = with([1, 2, 3, 4]);
    let value = 5;
    let sum = select! {
        recv(select! { recv(rx) -> m => if m == Ok(1) { &rx } else { return } }) -> m => {
            m.unwrap() + select! {
                recv(rx) -> m => m.unwrap() + select! {
                    send(tx, value) -> r => { r.unwrap(); value }
                },
                default => 0,
            }
        }
    };
    assert_eq!(sum, 2 + 3 + 5);
    assert_eq!(rx.try_iter().collect::<Vec<_>>(), [4, 5]);
}

#[test]
fn selects_stand_in_closures() {
    let _watchdog = watchdog(30);
    let (tx, rx) = with([1]);
    let mut count = 0;
    let mut take = || select! { recv(rx) -> m => { count += 1; m.ok() } default => None };
    assert_eq!((take(), take()), (Some(1), None));
    assert_eq!(count, 1);
    // Sending takes what the closure captured, so it can be called once.
    let text = String::from("text");
    let (texts, read) = unbounded();
    let send = || select! { send(texts, text) -> r => r.is_ok() };
    assert!(once(send));
    assert_eq!(read.recv().unwrap(), "text");
    fn once(f: impl FnOnce() -> bool) -> bool {
        f()
    }
    let send = move |n: u32| select! { send(tx, n) -> r => r.is_ok(), default => false };
    assert!(send(1) && send(2));
}

/// No name of ours meets a name of the user's.
#[test]
#[allow(dead_code, unused_variables, unused_macros)]
#[allow(clippy::redundant_pattern_matching, clippy::items_after_statements)] // The names are the point.
fn names_do_not_meet() {
    let _watchdog = watchdog(30);
    enum Option {
        Some(u8),
        None,
    }
    enum Result {
        Ok(u8),
    }
    use Option::{None, Some};
    fn drop(_: u8) {}
    fn forget() {}
    struct Receiver;
    struct Sender;
    struct JoinHandle;
    mod core {}
    mod fibra {}
    macro_rules! unreachable {
        () => {};
    }
    let (arms, won, value, moved, result, limit) = (1_u8, 2_u8, 3_u8, 4_u8, 5_u8, 6_u8);
    let (e0, a0, b0, p0, h0, g0) = (1_u8, 2_u8, 3_u8, 4_u8, 5_u8, 6_u8);
    let (e1, a1, b1, p1, h1, g1) = (1_u8, 2_u8, 3_u8, 4_u8, 5_u8, 6_u8);
    let (tx, rx) = unbounded();
    select! {
        send(tx, arms) -> r, if won == 2 => assert!(r.is_ok() && e0 + a0 + b0 + p0 + h0 + g0 == 21),
        recv(rx) -> moved => panic!(),
    }
    select! {
        recv(rx) -> e0 => assert!(e0 == Ok(1) && a0 + b0 + value + moved + result + limit == 23),
        send(tx, won), if value == 4 => panic!(),
    }
    let chosen = select! { recv(rx) -> _ => Some(won), default => None };
    assert!(matches!(chosen, None));
    let chosen = select! { send(tx, value) -> value => { drop(won); value.is_ok() }, default(SHORT) => false };
    assert!(chosen && value == 3);
}

/// The arms may come out of a macro of the user.
#[test]
fn fragments_of_macros_are_arms() {
    let _watchdog = watchdog(30);
    macro_rules! either {
        ($tx:expr, $value:expr, $rx:expr, $name:pat => $body:expr, $otherwise:block) => {
            select! {
                send($tx, $value) -> $name => $body,
                recv($rx) -> _ => $otherwise
                default => $otherwise
            }
        };
    }
    let (never, _never) = full();
    let (_tx, empty) = bounded::<u8>(1);
    let value = String::from("kept");
    let mut lost = 0;
    either!(never, value, empty, _ => panic!(), { lost += 1 });
    assert_eq!((value.as_str(), lost), ("kept", 1), "a variable behind a fragment is a variable");
    let (tx, rx) = unbounded();
    either!(tx, value, empty, r => r.unwrap(), { panic!() });
    assert_eq!(rx.recv().unwrap(), "kept");
}

#[test]
fn there_may_be_many_arms() {
    let _watchdog = watchdog(60);
    macro_rules! many {
        ($rx:ident, $($number:literal)*) => {
            select! { $(recv($rx[$number]) -> m => { m.unwrap(); $number })* }
        };
    }
    let (senders, rx): (Vec<_>, Vec<_>) = (0..100).map(|_| bounded::<()>(1)).unzip();
    for number in [0, 1, 50, 99] {
        senders[number].send(()).unwrap();
        let won: usize = many!(rx, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
            30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65
            66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99);
        assert_eq!(won, number);
    }
}
