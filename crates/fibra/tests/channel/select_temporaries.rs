//! How long the temporaries in an arm live: as long as the select, as in crossbeam-channel; those of a value to be sent end before it
//! waits.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use fibra::channel::{Receiver, Sender, bounded, never, select, unbounded};

use crate::support::watchdog;

/// Says whether it is still there.
struct Alive(Rc<Cell<bool>>);

impl Alive {
    fn new(alive: &Rc<Cell<bool>>) -> Self {
        alive.set(true);
        Self(Rc::clone(alive))
    }

    fn pass<'a, T>(&'a self, thing: &'a T) -> &'a T {
        thing
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[test]
fn an_optional_receiver_may_be_none() {
    let _watchdog = watchdog(30);
    let (tx, rx) = unbounded();
    tx.send(5).unwrap();
    let mut none: Option<&Receiver<u32>> = None;
    for _ in 0..2 {
        let got = select! {
            recv(none.unwrap_or(&never())) -> got => Some(got.unwrap()),
            default => None,
        };
        assert_eq!(got, none.map(|_| 5));
        none = Some(&rx);
    }
    let senders: [Sender<u32>; 0] = [];
    let without_receiver = || bounded(0).0;
    select! {
        send(senders.first().unwrap_or(&without_receiver()), 1) -> sent => assert!(sent.is_err(), "no receiver"),
        recv(Some(rx).as_ref().unwrap_or(&never())) -> _ => panic!("it is empty, and its sender is there"),
    }
}

#[test]
fn temporaries_of_an_arm_live_until_its_body_ends() {
    let _watchdog = watchdog(30);
    let (tx, rx) = bounded(1);
    let (closing, closed) = bounded::<()>(1);
    drop(closed);
    let alive = Rc::new(Cell::new(false));
    select! {
        recv(Alive::new(&alive).pass(&never::<u8>())) -> _ => panic!(),
        send(Alive::new(&alive).pass(&tx), 1) -> sent => {
            assert!(alive.get());
            sent.unwrap();
        }
    }
    assert!(!alive.get());
    select! { on(Alive::new(&alive).pass(&rx).receiving()) -> got => assert_eq!((got, alive.get()), (Ok(1), true)) }
    assert!(!alive.get());
    select! { closed(Alive::new(&alive).pass(&closing)) => assert!(alive.get()) }
    assert!(!alive.get());
    // Also where the select is the last thing in a function.
    fn last(alive: &Rc<Cell<bool>>) -> bool {
        let (tx, rx) = bounded(1);
        let cell = RefCell::new((tx, rx));
        select! {
            send(Alive::new(alive).pass(&cell.borrow().0), ()) -> sent => sent.is_ok() && alive.get(),
        }
    }
    assert!(last(&alive));
    assert!(!alive.get());
}

#[test]
fn temporaries_of_a_value_end_before_the_select_waits() {
    let _watchdog = watchdog(30);
    let (tx, rx) = bounded(1);
    let text = fibra::sync::Mutex::new(String::from("text"));
    select! { send(tx, text.lock().clone()) => assert!(text.try_lock().is_some()) }
    assert_eq!(rx.recv().unwrap(), "text");
}

#[test]
fn arms_are_evaluated_in_source_order() {
    let _watchdog = watchdog(30);
    let order = RefCell::new(Vec::new());
    let at = |n: u32| order.borrow_mut().push(n);
    let (tx, rx) = bounded(1);
    let nothing = never::<u8>();
    select! {
        recv({ at(1); &nothing }) => panic!(),
        recv({ at(3); &rx }) -> _, if { at(2); true } => panic!(),
        send({ at(4); &tx }, { at(5); 1 }) => at(9),
        on({ at(6); rx.receiving() }) -> _ => panic!(),
        default({ at(7); std::time::Duration::ZERO }) => panic!(),
        closed({ at(8); &tx }) => panic!(),
    }
    assert_eq!(order.into_inner(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}
