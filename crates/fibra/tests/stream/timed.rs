//! Stages that look at the clock. What they promise is a least or an order, never a most: the tests have no margins.

use std::time::Duration;

use crate::support;
use fibra::channel::{self, CloseReason};
use fibra::stream;
use fibra::time::Instant;

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(2);

#[test]
fn throttle_keeps_items_apart() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let began = Instant::now();
        assert_eq!(stream::from_iter(0..6).throttle(SHORT).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert!(began.elapsed() >= SHORT * 5);
    });
}

#[test]
fn debounce_gives_what_was_followed_by_silence() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::rendezvous();
        let out = rx.pipe().debounce(SHORT).into_receiver();
        tx.send(1).unwrap();
        assert_eq!(out.recv(), Ok(1));
        tx.send(2).unwrap();
        assert_eq!(out.recv(), Ok(2));
        drop(tx);
        assert!(out.recv().is_err());
    });
}

#[test]
fn sample_gives_the_latest() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::rendezvous();
        let out = rx.pipe().sample(SHORT).into_receiver();
        let sending = fibra::spawn(move || (0..).take_while(|n| tx.send(*n).is_ok()).count());
        let got: Vec<usize> = (0..3).map(|_| out.recv().unwrap()).collect();
        assert!(got[0] < got[1] && got[1] < got[2], "{got:?}");
        drop(out);
        assert!(sending.join().unwrap() > got[2]);
    });
}

#[test]
fn timeout_ends_the_pipeline_with_an_error() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::rendezvous();
        let out = rx.pipe().map(|n: u32| n).timeout(SHORT).map(|n| n).into_receiver();
        let _ = tx.send(1);
        let _ = out.recv();
        assert!(out.recv().is_err());
        assert!(matches!(out.finish(), Err(CloseReason::Error(_))));
        assert!(matches!(tx.closed(), CloseReason::Error(_)));
    });
}

#[test]
fn chunks_do_not_wait_for_long() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::unbounded();
        let out = rx.pipe().chunks_timeout(3, SHORT).into_receiver();
        tx.send(1).unwrap();
        assert_eq!(out.recv(), Ok(vec![1]), "nothing else came");
        (2..=4).for_each(|n| tx.send(n).unwrap());
        let mut got = Vec::new();
        while got.len() < 3 {
            got.extend(out.recv().unwrap());
        }
        assert_eq!(got, [2, 3, 4]);
    });
}

#[test]
fn latch_gives_the_latest_as_often_as_asked() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = stream::latch();
        tx.send(1).unwrap();
        assert_eq!((rx.recv(), rx.recv(), rx.recv()), (Ok(1), Ok(1), Ok(1)));
        tx.send(2).unwrap();
        assert_eq!((rx.recv(), rx.recv()), (Ok(2), Ok(2)));
        tx.send(3).unwrap();
        drop(tx);
        assert_eq!((rx.recv(), rx.recv().is_err()), (Ok(3), true), "the last one is given once at least");
    });
}

#[test]
fn a_switch_cuts_the_pipeline() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        for by_drop in [false, true] {
            let (switch, off) = channel::bounded(1);
            let (tx, rx) = channel::rendezvous();
            let out = rx.pipe().killswitch(off).into_receiver();
            let sending = fibra::spawn(move || (0..).take_while(|n| tx.send(*n).is_ok()).count());
            assert_eq!(out.recv(), Ok(0));
            if by_drop {
                drop(switch);
            } else {
                switch.send(()).unwrap();
            }
            assert!(out.iter().count() <= 2, "what was on its way");
            sending.join().unwrap();
        }
    });
}

// A retry that pauses is cut short when its output goes.
#[test]
fn a_pause_ends_with_the_pipeline() {
    let _watchdog = support::watchdog(60);
    let runtime = fibra::Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let (told, failed) = channel::unbounded();
        let out = stream::from_iter([1]).retry(fibra::RetryPolicy::fixed(LONG), move |_: &i32| {
            told.send(()).unwrap();
            Err::<(), _>("not now")
        });
        failed.recv().unwrap();
        drop(out);
    });
    support::eventually(|| runtime.metrics().live == 0, || format!("{:?}", runtime.metrics()));
}
