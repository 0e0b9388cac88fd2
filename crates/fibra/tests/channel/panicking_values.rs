//! Values whose destructors panic: when a channel or a set drops several of them, all are dropped, each once, and the first panic
//! goes on. The process lives: two panics in one drop would end it if the second one met the unwinding of the first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use fibra::JoinSet;
use fibra::channel::{self, Overflow, Select, bounded, rendezvous, unbounded};

use crate::channels::until_parked;
use crate::support::watchdog;

/// Counts its end, and panics with its number.
struct Loud(usize, Arc<AtomicUsize>);

impl Drop for Loud {
    fn drop(&mut self) {
        self.1.fetch_add(1, SeqCst);
        panic!("value {}", self.0);
    }
}

fn number(value: &Loud) -> usize {
    value.0
}

/// Makes numbered ones and knows how many are gone.
#[derive(Default)]
struct Maker(Arc<AtomicUsize>);

impl Maker {
    fn value(&self, number: usize) -> Loud {
        Loud(number, self.0.clone())
    }

    fn gone(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// What a panic of `f` said.
#[track_caller]
fn panics(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload.downcast_ref::<&str>().expect("a text").to_string(),
    }
}

// Whichever end goes last; the values are dropped with the last receiver.
#[test]
fn all_of_a_buffer_is_dropped_and_the_first_panic_goes_on() {
    let _watchdog = watchdog(60);
    for kind in [|| bounded(8), unbounded] {
        for receiver_first in [true, false] {
            let made = Maker::default();
            let (tx, rx) = kind();
            (0..5).for_each(|number| tx.send(made.value(number)).unwrap_or_else(|_| unreachable!()));
            let said = panics(|| {
                if receiver_first {
                    drop(rx);
                } else {
                    drop(tx.clone());
                    drop(rx);
                }
            });
            assert_eq!((said.as_str(), made.gone()), ("value 0", 5));
            drop(tx);
            assert_eq!(made.gone(), 5, "each once");
        }
    }
}

// While unwinding already, there is one panic to tell of: that one.
#[test]
fn a_buffer_that_is_dropped_by_unwinding_does_not_end_the_process() {
    let _watchdog = watchdog(60);
    let made = Maker::default();
    let (tx, rx) = bounded(4);
    (0..4).for_each(|number| tx.send(made.value(number)).unwrap_or_else(|_| unreachable!()));
    drop(tx);
    let said = panics(move || {
        let _rx = rx;
        panic!("mine");
    });
    assert_eq!((said.as_str(), made.gone()), ("mine", 4));
}

// In a fiber it is the fiber's panic, and the worker goes on.
#[test]
fn a_fiber_that_drops_such_a_buffer_has_panicked() {
    let _watchdog = watchdog(60);
    let made = Maker::default();
    fibra::run(|| {
        let (tx, rx) = bounded(4);
        (0..3).for_each(|number| tx.send(made.value(number)).unwrap_or_else(|_| unreachable!()));
        let fiber = fibra::spawn(move || drop((tx, rx)));
        assert!(fiber.join().unwrap_err().is_panic());
    });
    assert_eq!(made.gone(), 3);
}

// What the policy is called with belongs to the channel, and goes with it: after the values.
#[test]
fn the_channel_itself_may_hold_such_a_value() {
    let _watchdog = watchdog(60);
    let made = Maker::default();
    let held = made.value(9);
    let (tx, rx) = channel::builder().bounded(2).on_overflow(move |_| assert_eq!(number(&held), 9)).build();
    (0..2).for_each(|number| tx.send(made.value(number)).unwrap_or_else(|_| unreachable!()));
    drop(tx);
    let said = panics(|| drop(rx));
    assert_eq!((said.as_str(), made.gone()), ("value 0", 3));
}

// A policy that drops a value: its panic stays there (decision 19), and the rest goes as above.
#[test]
fn what_a_policy_drops_does_not_end_the_process() {
    let _watchdog = watchdog(60);
    let made = Maker::default();
    let (tx, rx) = channel::builder().bounded(1).overflow(Overflow::DropOldest).build();
    (0..4).for_each(|number| tx.send(made.value(number)).unwrap_or_else(|_| unreachable!()));
    assert_eq!(made.gone(), 3);
    let evicted = tx.force_send(made.value(4)).unwrap_or_else(|_| unreachable!());
    assert!(evicted.is_none(), "the policy has it");
    assert_eq!((panics(|| drop((tx, rx))).as_str(), made.gone()), ("value 4", 5));
}

// `close_now` gives parked senders their values back: each panics for itself.
#[test]
fn close_now_leaves_every_sender_its_value() {
    let _watchdog = watchdog(60);
    let made = Arc::new(Maker::default());
    fibra::run(|| {
        let (tx, rx) = rendezvous();
        let sender = |number| {
            let (tx, value) = (tx.clone(), made.value(number));
            fibra::spawn_local(move || drop(tx.send(value)))
        };
        let senders = [sender(0), sender(1), sender(2)];
        while fibra::Handle::current().metrics().parked < 3 {
            fibra::yield_now();
        }
        rx.close_now();
        for sender in senders {
            assert!(sender.join().unwrap_err().is_panic());
        }
    });
    assert_eq!(made.gone(), 3);
}

// A value that a dropped operation puts back is one of the buffer again.
#[test]
fn a_value_that_was_put_back_is_dropped_with_the_others() {
    let _watchdog = watchdog(60);
    let made = Maker::default();
    let (tx, rx) = bounded(4);
    (0..3).for_each(|number| tx.send(made.value(number)).unwrap_or_else(|_| unreachable!()));
    let mut set = Select::new();
    set.recv(&rx);
    assert!(panics(|| drop(set.select())).contains("dropped"));
    assert_eq!(made.gone(), 0);
    assert_eq!((panics(|| drop((tx, rx))).as_str(), made.gone()), ("value 0", 3));
}

// The results of a set that no caller takes.
#[test]
fn a_set_drops_all_its_results() {
    let _watchdog = watchdog(60);
    for unwinding in [false, true] {
        let made = Arc::new(Maker::default());
        fibra::run(|| {
            let mut set = JoinSet::new();
            for number in 0..40 {
                let made = made.clone();
                set.spawn_local(move || made.value(number));
            }
            while fibra::Handle::current().metrics().live > 1 {
                fibra::yield_now();
            }
            let said = panics(move || {
                let _set = set;
                assert!(!unwinding, "mine");
            });
            assert!(if unwinding { said == "mine" } else { said.starts_with("value") }, "{said}");
        });
        assert_eq!(made.gone(), 40);
    }
}

// A neighbour on the same thread that waits in a destructor while it unwinds is no reason to keep a panic back.
#[test]
fn a_neighbour_that_unwinds_keeps_no_panic_back() {
    struct Waits(channel::Receiver<()>);
    impl Drop for Waits {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }
    let _watchdog = watchdog(60);
    fibra::Runtime::current_thread().unwrap().run(|| {
        let (go, wait) = bounded(1);
        let neighbour = fibra::spawn_local(move || {
            let _waits = Waits(wait);
            panic!("neighbour");
        });
        until_parked(1);
        let made = Maker::default();
        let (tx, rx) = unbounded();
        (0..2).for_each(|number| tx.send(made.value(number)).unwrap_or_else(|_| unreachable!()));
        assert_eq!((panics(|| drop(rx)).as_str(), made.gone()), ("value 0", 2));
        go.send(()).unwrap();
        assert!(neighbour.join().unwrap_err().is_panic());
    });
}
