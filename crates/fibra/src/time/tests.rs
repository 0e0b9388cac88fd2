//! Tests that control the clock and the random source of a whole process (`prim::policy::owned`), and check that all waits go by them. Each
//! runs in a process of its own, which ends by itself if something waits for the system's clock.

use std::time::Duration;

use super::{Instant, RateLimiter, sleep_until};
use crate::channel::{Select, bounded, unbounded};
use crate::fiber::testing::passes_in_child;
use crate::prim::policy::owned::own;
use crate::prim::policy::{self, Policy};
use crate::runtime::Runtime;
use crate::sync::Event;

const HOUR: Duration = Duration::from_secs(3600);

/// Ends the process if the test does not: a wait for the system's clock would last an hour.
fn watched() {
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(120));
        eprintln!("something does not go by the time of the test");
        std::process::abort();
    });
}

// Law 10: timers of fibers, timed waits of threads, arms of a select and a limited rate go by the clock that the test controls.
#[test]
fn waits_for_time_go_by_the_owners() {
    passes_in_child("time::tests::waits_for_time_go_by_the_owners", &[], || {
        watched();
        let owner = own(1);
        let begin = Instant::now();
        assert_eq!(Instant::now(), begin, "it stands still");
        let rt = Runtime::builder().workers(2).build().unwrap();
        let sleepers: Vec<_> = (1..4).map(|hours| rt.spawn(move || sleep_until(begin + HOUR * hours))).collect();
        let thread = std::thread::spawn(move || Event::new().wait_deadline(begin + HOUR * 2));
        let (_open, rx) = bounded::<()>(1);
        let select = rt.spawn(move || {
            let mut select = Select::new();
            select.recv(&rx);
            select.select_deadline(begin + HOUR * 2).is_err()
        });
        let limit = RateLimiter::per(1, HOUR);
        assert!(limit.try_acquire() && !limit.try_acquire());
        let mut sleepers = sleepers.into_iter();
        owner.advance(HOUR);
        sleepers.next().unwrap().join().unwrap();
        assert_eq!(Instant::now() - begin, HOUR);
        assert!(limit.try_acquire() && !limit.try_acquire());
        assert!(!thread.is_finished() && !select.is_finished() && !sleepers.as_slice()[0].is_finished());
        owner.advance(HOUR);
        sleepers.next().unwrap().join().unwrap();
        assert!(!thread.join().unwrap(), "it was never set");
        assert!(select.join().unwrap(), "nothing came");
        assert!(!sleepers.as_slice()[0].is_finished());
        owner.advance(HOUR);
        sleepers.next().unwrap().join().unwrap();
        assert_eq!(Instant::now() - begin, HOUR * 3);
    });
}

// The monitor of workers that stand still counts the test's time: ten minutes of it are over in a moment.
#[test]
fn the_watch_for_stalls_goes_by_the_owners_time() {
    let ten_minutes = [("FIBRA_STALL_MS", "600000")];
    passes_in_child("time::tests::the_watch_for_stalls_goes_by_the_owners_time", &ten_minutes, || {
        watched();
        let owner = own(1);
        let begin = Instant::now();
        let rt = Runtime::builder().workers(1).build().unwrap();
        let (on, go_on) = std::sync::mpsc::channel();
        let held = rt.spawn(move || go_on.recv().unwrap());
        while rt.metrics().stalls == 0 {
            owner.advance(Duration::from_millis(500));
            std::thread::sleep(Duration::from_micros(300));
        }
        assert!(Instant::now() - begin >= Duration::from_secs(600));
        on.send(()).unwrap();
        held.join().unwrap();
    });
}

/// The choices of selects of eight arms that are all ready, one after the other.
fn choices() -> Vec<usize> {
    let channels: Vec<_> = (0..8).map(|_| unbounded()).collect();
    channels.iter().for_each(|(tx, _)| (0..40).for_each(|_| tx.send(()).unwrap()));
    let mut select = Select::new();
    channels.iter().for_each(|(_, rx)| _ = select.recv(rx));
    let choose = |_| {
        let operation = select.select();
        let index = operation.index();
        operation.recv(&channels[index].1).unwrap();
        index
    };
    (0..40).map(choose).collect()
}

// Law 10: random choices repeat with the seed, on workers and on threads, and so does the order in which workers are searched.
#[test]
fn chance_repeats_with_the_owners_seed() {
    passes_in_child("time::tests::chance_repeats_with_the_owners_seed", &[], || {
        watched();
        let owner = own(7);
        let on_a_worker = |seed| {
            owner.seed(seed);
            let rt = Runtime::builder().workers(1).build().unwrap();
            rt.run(choices)
        };
        let on_a_thread = |seed| {
            owner.seed(seed);
            std::thread::spawn(choices).join().unwrap()
        };
        let victims = |seed| -> Vec<usize> {
            owner.seed(seed);
            let mut policy = Policy::new(None);
            (0..40).map(|_| policy.first_victim(8)).collect()
        };
        assert_eq!((on_a_worker(7), on_a_thread(7), victims(7)), (on_a_worker(7), on_a_thread(7), victims(7)));
        assert_ne!(on_a_worker(7), on_a_worker(8));
        assert_ne!(on_a_thread(7), on_a_thread(8));
        assert_ne!(victims(7), victims(8));
        // Generators that are made one after the other differ.
        owner.seed(7);
        assert_ne!(policy::chance().next_u64(), policy::chance().next_u64());
    });
}
