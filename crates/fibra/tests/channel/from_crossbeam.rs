//! Code for crossbeam-channel moves by changing its `use` line. The programs in `programs` name fibra in that line only.
#![allow(clippy::disallowed_types)] // They go by std's clock.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

use fibra::channel::{self, Receiver, Select, Sender, after, bounded, never, tick, unbounded};

use crate::support::watchdog;

/// Shaped like three examples of crossbeam-channel: a generator behind a rendezvous, one channel at both ends of a select, and a
/// clock beside a signal.
mod programs {
    use std::thread;
    use std::time::{Duration, Instant};

    use fibra::channel::{Receiver, Sender, bounded, select, tick, unbounded};

    /// Numbers until they are not wanted any more.
    fn fibonacci(sender: Sender<u64>) {
        let mut pair = (0, 1);
        while sender.send(pair.0).is_ok() {
            pair = (pair.1, pair.0 + pair.1);
        }
    }

    pub(super) fn first_numbers(count: usize) -> Vec<u64> {
        let (s, r) = bounded(0);
        let generator = thread::spawn(move || fibonacci(s));
        let numbers = r.iter().take(count).collect();
        drop(r);
        generator.join().unwrap();
        numbers
    }

    /// Pairs people up by one channel that all of them both send to and receive from. The types of the ends are not written down.
    pub(super) fn matching(people: &[&'static str]) -> (Vec<(&'static str, &'static str)>, Option<&'static str>) {
        let (s, r) = bounded(1);
        let (met, meetings) = unbounded();
        let seek = |name, s, r| {
            select! {
                recv(r) -> peer => met.send((name, peer.unwrap())).unwrap(),
                send(s, name) -> _ => {},
            }
        };
        thread::scope(|scope| {
            for &name in people {
                let (s, r) = (s.clone(), r.clone());
                scope.spawn(move || seek(name, s, r));
            }
        });
        (meetings.try_iter().collect(), r.try_recv().ok())
    }

    /// How much time has passed at every tick, until something comes in.
    pub(super) fn stopwatch(period: Duration, stop: Receiver<()>, ticked: impl Fn(usize)) -> Vec<Duration> {
        let start = Instant::now();
        let update = tick(period);
        let mut elapsed = Vec::new();
        loop {
            select! {
                recv(update) -> _ => {
                    elapsed.push(start.elapsed());
                    ticked(elapsed.len());
                }
                recv(stop) -> _ => {
                    elapsed.push(start.elapsed());
                    break;
                }
            }
        }
        elapsed
    }
}

#[test]
fn fibonacci_runs() {
    let _watchdog = watchdog(60);
    assert_eq!(programs::first_numbers(10), [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]);
}

#[test]
fn matching_runs() {
    let _watchdog = watchdog(60);
    let people = ["Ada", "Bo", "Cem", "Dao", "Eve"];
    let (pairs, left) = programs::matching(&people);
    let mut all: Vec<&str> = pairs.iter().flat_map(|pair| [pair.0, pair.1]).chain(left).collect();
    all.sort_unstable();
    assert_eq!((pairs.len(), all.as_slice()), (2, people.as_slice()));
}

#[test]
fn stopwatch_runs() {
    let _watchdog = watchdog(60);
    let (s, r) = bounded(100);
    let elapsed = programs::stopwatch(Duration::from_millis(1), r, |ticks| {
        if ticks == 3 {
            s.send(()).unwrap();
        }
    });
    assert!(elapsed.len() >= 4 && elapsed.is_sorted());
    assert!(elapsed[2] >= Duration::from_millis(3));
}

#[test]
fn select_is_found_where_crossbeam_has_it() {
    let _watchdog = watchdog(30);
    let (s, r) = bounded(1);
    channel::select! {
        recv(r) -> _ => panic!("it is empty"),
        default() => {}
    }
    channel::select_biased! {
        send(s, 1) -> sent => sent.unwrap(),
        default() => panic!("there is room"),
    }
    channel::select! {
        recv(&r) -> got => assert_eq!(got, Ok(1)),
        default(Duration::from_secs(60)) => panic!("it is there"),
    };
}

/// A crate that exports fibra's channels under its own name exports `select!` with them.
mod another_crate {
    pub(super) mod fibra {}
    pub(super) use ::fibra::channel::*;
}

#[test]
fn select_can_be_exported_again() {
    #[allow(unused_imports)]
    use another_crate::fibra;
    let (s, r) = another_crate::bounded(1);
    another_crate::select! { send(s, 2) -> sent => sent.unwrap() }
    another_crate::select_biased! { recv(r) -> got => assert_eq!(got, Ok(2)) }
}

/// The moments that `after` and `tick` yield beside those of std.
#[test]
fn moments_compare_and_subtract_with_those_of_std() {
    let _watchdog = watchdog(30);
    let before = Instant::now();
    let due = after(Duration::from_millis(5)).recv().unwrap();
    let now = Instant::now();
    assert!(before < due && due <= now);
    assert!(now >= due && due > before);
    assert_ne!(due, before);
    assert_ne!(before, due);
    assert!(due - before >= Duration::from_millis(5));
    assert!(now - due <= now - before);
    assert_eq!(before - due, Duration::ZERO);
    assert_eq!(due.to_std().unwrap(), due);
    assert_eq!(due, due.to_std().unwrap());
    assert_eq!(due.partial_cmp(&now), now.partial_cmp(&due).map(std::cmp::Ordering::reverse));
    assert!(due.duration_since(before.into()) >= Duration::from_millis(5));
}

#[test]
fn a_message_that_is_due_is_in_the_channel() {
    let _watchdog = watchdog(30);
    let past = Duration::ZERO;
    let late = Duration::from_secs(1000);
    for timer in [after(late), tick(late), after(Duration::MAX)] {
        assert_eq!((timer.len(), timer.capacity()), (0, Some(1)));
        assert!(timer.is_empty() && !timer.is_full());
    }
    for timer in [after(past), tick(past)] {
        while timer.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!((timer.len(), timer.capacity()), (1, Some(1)));
        assert!(timer.is_full() && !timer.is_empty());
    }
    let once = after(past);
    once.recv().unwrap();
    assert_eq!((once.len(), once.is_empty(), once.is_full()), (0, true, false));
    let never = never::<u8>();
    assert_eq!((never.len(), never.capacity(), never.is_empty(), never.is_full()), (0, Some(0), true, true));
}

#[test]
fn all_receivers_of_never_are_one_channel() {
    assert!(never::<u8>().same_channel(&never()));
    let (s, r) = bounded::<u8>(0);
    assert!(!r.same_channel(&never()) && !never().same_channel(&r));
    assert!(r.same_channel(&r.clone()) && s.same_channel(&s.clone()));
    assert!(!bounded::<u8>(0).1.same_channel(&r));
    let timer = after(Duration::ZERO);
    assert!(timer.same_channel(&timer.clone()) && !timer.same_channel(&after(Duration::ZERO)));
    assert!(!timer.same_channel(&never()) && !never().same_channel(&tick(Duration::ZERO)));
}

#[test]
fn ends_cross_a_panic_and_iterators_end_for_good() {
    fn safe<T: UnwindSafe + RefUnwindSafe + Send + Sync>(_: &T) {}
    fn fused<T>(_: impl std::iter::FusedIterator<Item = T>) {}
    let (s, r): (Sender<u8>, Receiver<u8>) = unbounded();
    safe(&s);
    safe(&r);
    fused(r.iter());
    fused(r.into_iter());
}

/// One set of operations, cloned by many threads: each meets another one.
#[test]
fn a_set_of_operations_is_shared_between_threads() {
    let _watchdog = watchdog(60);
    let (s, r) = &bounded::<usize>(0);
    let mut set = Select::new();
    let (receive, _send) = (set.recv(r), set.send(s));
    let set = &set;
    std::thread::scope(|scope| {
        for number in 0..10 {
            scope.spawn(move || {
                let operation = set.clone().select();
                if operation.index() == receive {
                    assert_ne!(operation.recv(r).unwrap(), number);
                } else {
                    operation.send(s, number).unwrap();
                }
            });
        }
    });
}
