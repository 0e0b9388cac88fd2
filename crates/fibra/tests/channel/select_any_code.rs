//! `select!` in whatever code: names that are moved in part, values without a size that are captured, expressions that leave the function,
//! and values that may not leave their thread.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use fibra::channel::{Receiver, Select, SendError, Sender, bounded, rendezvous, unbounded};
use fibra::select;

use crate::support::watchdog;

thread_local! {
    static DROPS: Cell<u32> = const { Cell::new(0) };
}

/// Without a size, and counted.
#[derive(Debug)]
struct Token;

impl Drop for Token {
    fn drop(&mut self) {
        DROPS.set(DROPS.get() + 1);
    }
}

fn drops() -> u32 {
    DROPS.replace(0)
}

/// Sends a value of any type, or gives it back.
fn offer<T>(tx: &Sender<T>, value: T) -> Result<(), T> {
    select! {
        send(tx, value) -> sent => sent.map_err(SendError::into_inner),
        default => Err(value),
    }
}

struct Holder<T> {
    token: T,
    other: T,
}

impl<T> Holder<T> {
    fn send_one(self, tx: &Sender<T>) -> Option<T> {
        select! {
            send(tx, self.token) -> _ => Some(self.other),
            default => { drop(self.token); None }
        }
    }

    fn send_of_a_box(self: Box<Self>, tx: &Sender<T>) {
        drop(self.token);
        select! { send(tx, self.other) -> sent => assert!(sent.is_ok()), default => panic!("there is room") }
        panic!("ends here")
    }
}

#[test]
fn a_value_without_a_size_is_dropped_once_wherever_its_name_comes_from() {
    let _watchdog = watchdog(30);
    let (tx, rx) = bounded(1);
    assert!(offer(&tx, Token).is_ok());
    assert_eq!(drops(), 0);
    assert!(offer(&tx, Token).is_err());
    assert_eq!(drops(), 1);
    drop(rx.recv());
    assert_eq!(drops(), 1);

    // A field.
    assert!(Holder { token: Token, other: Token }.send_one(&tx).is_some());
    assert_eq!(drops(), 1, "the other one");
    assert!(Holder { token: Token, other: Token }.send_one(&tx).is_none());
    assert_eq!(drops(), 2);
    drop(rx.recv());
    assert_eq!(drops(), 1);

    // Moved in part, in a box; and a panic on the way.
    let boxed = Box::new(Holder { token: Token, other: Token });
    assert!(catch_unwind(AssertUnwindSafe(|| boxed.send_of_a_box(&tx))).is_err());
    assert_eq!((drops(), rx.len()), (1, 1));
    drop(rx.recv());
    assert_eq!(drops(), 1);

    // Captured by closures: once by move, once by reference, once in a future.
    let token = Token;
    let send = move || select! { send(tx, token) -> _ => tx, default => panic!() };
    let tx = send();
    assert_eq!((drops(), rx.len()), (0, 1));
    let token = Token;
    let lose = || select! { send(tx, token) -> _ => panic!(), default => drop(token) };
    lose();
    assert_eq!(drops(), 1);
    drop(rx.recv());
    assert_eq!(drops(), 1);
    let token = Token;
    fibra::block_on(async {
        select! { send(tx, token) -> _ => {}, default => panic!() }
    });
    assert_eq!(drops(), 0);
    drop((tx, rx));
    assert_eq!(drops(), 1);
}

#[test]
fn one_name_in_many_arms_moves_once() {
    let _watchdog = watchdog(30);
    let (tx, rx) = bounded(1);
    let (full, _full) = bounded(1);
    full.send(Token).unwrap();
    for _ in 0..20 {
        let token = Token;
        select! {
            send(tx, token) -> _ => {}
            send(full, token) -> _ => panic!(),
            send(tx, token) -> _ => {}
            send(tx, token) -> _, if rx.len() > 1 => panic!(),
            send(full, token) -> _ => panic!(),
            send(tx, token) -> _ => {}
            send(full, token) -> _ => panic!(),
            send(tx, token) -> _ => {}
        }
        assert_eq!(drops(), 0);
        drop(rx.recv());
        assert_eq!(drops(), 1);
    }
}

fn leaves_by_question_mark(tx: &Sender<u32>, value: Option<u32>, rx: Option<&Receiver<u32>>) -> Option<u32> {
    let mut rounds = 0;
    loop {
        rounds += 1;
        let kept = Token;
        select! {
            recv(rx?) -> got => return got.ok(),
            send(tx, if rounds > 2 { break } else { value? }) -> _ => drop(kept),
            default => drop(kept),
        }
    }
    Some(rounds)
}

#[test]
fn expressions_may_leave_the_function() {
    let _watchdog = watchdog(30);
    let (tx, rx) = bounded(1);
    let (_never, empty) = bounded(1);
    assert_eq!(leaves_by_question_mark(&tx, None, None), None);
    assert_eq!(leaves_by_question_mark(&tx, None, Some(&empty)), None);
    assert_eq!(leaves_by_question_mark(&tx, Some(1), Some(&empty)), Some(3));
    assert_eq!(rx.len(), 1);
    assert!(drops() > 0);
}

#[test]
fn expressions_that_are_no_names_are_moved_beforehand() {
    let _watchdog = watchdog(30);
    let (tx, rx) = bounded(1);
    let (boxed, array, index) = (Box::new(Token), [1, 2, 3], 2);
    select! { send(tx, *boxed) -> _ => {}, default => panic!() }
    let boxed = Box::new(Token);
    select! { send(tx, *boxed) -> _ => panic!(), default => {} }
    assert_eq!(drops(), 1);
    drop((tx, rx));
    assert_eq!(drops(), 1);
    let (tx, rx) = bounded(1);
    select! { send(tx, array[index]) -> _ => {} }
    assert_eq!(rx.recv(), Ok(3));
}

// A set may go to another thread although the values may not: there it can choose, and give back, but not take.
#[test]
fn values_that_may_not_leave_their_thread_come_back_from_a_set_that_did() {
    let _watchdog = watchdog(60);
    for kind in [rendezvous, || bounded(1), unbounded] {
        let (tx, rx) = kind();
        let (other_tx, other_rx) = kind();
        let value = Rc::new(Cell::new(0));
        let stop = std::sync::atomic::AtomicBool::new(false);
        let mut set = Select::new();
        set.recv(&rx);
        set.recv(&rx);
        set.send(&tx);
        set.send(&other_tx);
        let (shared, ends) = (&set, &stop);
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(move || {
                    let mut set = shared.clone();
                    while !ends.load(std::sync::atomic::Ordering::SeqCst) {
                        if let Ok(chosen) = set.try_select() {
                            let given_up = catch_unwind(AssertUnwindSafe(|| drop(chosen)));
                            assert!(given_up.is_err());
                        }
                        let _ = set.ready_timeout(std::time::Duration::from_micros(20));
                    }
                });
            }
            let (mut sent, mut received) = (0, 0);
            for _ in 0..crate::tools::turns(300) {
                sent += u32::from(tx.send_timeout(value.clone(), std::time::Duration::from_micros(50)).is_ok());
                if let Ok(value) = rx.recv_timeout(std::time::Duration::from_micros(50)) {
                    value.set(value.get() + 1);
                    received += 1;
                }
                let _ = other_rx.try_recv();
            }
            stop.store(true, std::sync::atomic::Ordering::SeqCst);
            while received < sent {
                drop(rx.recv().unwrap());
                received += 1;
            }
        });
        let _: &Receiver<Rc<Cell<u32>>> = &rx;
        drop((tx, rx, other_tx, other_rx));
        assert_eq!(Rc::strong_count(&value), 1);
    }
}
