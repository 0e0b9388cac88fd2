//! Recycling under stale wakes: wakers of fibers that ended long ago are called all the time, while their frames live new lives.
#![allow(clippy::disallowed_types)] // A bag of wakers, as users would keep one.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::support;
use fibra::Runtime;

/// Keeps the waker it is polled with, lets itself be woken by it once, and is then ready.
fn once(bag: &Arc<Mutex<Vec<Waker>>>) {
    let mut polls = 0;
    let bag = bag.clone();
    fibra::block_on(poll_fn(move |cx| {
        polls += 1;
        if polls == 1 {
            let mut bag = bag.lock().unwrap();
            let waker = cx.waker().clone();
            if bag.len() < 64 {
                bag.push(waker);
            } else {
                let at = (polls + bag.len()) % 64;
                bag[at] = waker;
            }
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }));
}

// S4-91..S4-95, G-15, G-16, S1-51: a wake for an earlier wait, or an earlier life, ends no later one: results come from their fibers,
// sleeps last, nothing runs twice.
#[test]
fn stale_wakes_meet_recycled_frames() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let bag = Arc::new(Mutex::new(Vec::new()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Two threads that call every waker they find, over and over: spurious wakes without end.
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    let wakers: Vec<Waker> = bag.lock().unwrap().clone();
                    wakers.iter().for_each(Waker::wake_by_ref);
                    std::thread::yield_now();
                }
            });
        }
        runtime.run(|| {
            for round in 0..3000u64 {
                let bag = bag.clone();
                let fiber = fibra::spawn(move || {
                    once(&bag);
                    let begin = fibra::time::Instant::now();
                    let nap = Duration::from_micros(round % 3 * 20);
                    fibra::sleep(nap);
                    assert!(begin.elapsed() >= nap, "a stale wake ended a sleep");
                    let inner = fibra::spawn(move || {
                        fibra::yield_now();
                        round
                    });
                    assert_eq!(inner.join().unwrap(), round);
                    round
                });
                if round % 7 == 0 {
                    fiber.cancel();
                    let _ = fiber.join();
                } else {
                    assert_eq!(fiber.join().unwrap(), round);
                }
            }
        });
        stop.store(true, SeqCst);
    });
    assert_eq!(runtime.metrics().live, 0);
}
