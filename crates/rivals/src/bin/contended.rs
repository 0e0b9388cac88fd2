//! Prints what a message costs when all senders of a channel live on one worker and all receivers on another, so that its lock is
//! contended: wall nanoseconds, the median of some rounds and their 75th percentile. (The workload `mpmc` leaves it to the scheduler where
//! its tasks are.)
//!
//! ```text
//! cargo run --release -p rivals --bin contended
//! ```

use std::thread::ThreadId;

use fibra::channel::{self, Receiver};
use fibra::time::Instant;
use fibra::{Builder, JoinHandle, Runtime};

const ROUNDS: usize = 9;
const MESSAGES: usize = 1_000_000;
const CAPACITY: usize = 128;

fn here() -> ThreadId {
    std::thread::current().id()
}

/// A receiver on another worker than this one, which begins when `start` is closed.
fn receiver_elsewhere(values: &Receiver<usize>, start: &Receiver<()>) -> JoinHandle<usize> {
    let home = here();
    loop {
        let (values, start) = (values.clone(), start.clone());
        let (tell, told) = channel::bounded(1);
        let spawned = Builder::new().spread().spawn(move || {
            let is_elsewhere = here() != home;
            tell.send(is_elsewhere).expect("the spawner waits for it");
            if !is_elsewhere {
                return 0;
            }
            start.recv().expect_err("it is only closed");
            values.into_iter().sum()
        });
        if told.recv().expect("it tells before it ends") {
            return spawned.expect("there is room for a fiber");
        }
    }
}

/// Nanoseconds of a message in one round.
fn round(senders: usize, receivers: usize) -> f64 {
    let (send, values) = channel::bounded(CAPACITY);
    let (begin, start) = channel::bounded::<()>(0);
    let sending: Vec<_> = (0..senders)
        .map(|_| {
            let (send, start) = (send.clone(), start.clone());
            fibra::spawn_local(move || {
                start.recv().expect_err("it is only closed");
                (0..MESSAGES / senders).for_each(|value| send.send(value).expect("receivers stay until the end"));
            })
        })
        .collect();
    let receiving: Vec<_> = (0..receivers).map(|_| receiver_elsewhere(&values, &start)).collect();
    drop((send, values, start));
    // So that all of them wait.
    fibra::sleep(std::time::Duration::from_millis(20));
    let begun = Instant::now();
    drop(begin);
    sending.into_iter().for_each(|sender| sender.join().expect("it does not panic"));
    let sum: usize = receiving.into_iter().map(|receiver| receiver.join().expect("it does not panic")).sum();
    let took = begun.elapsed().as_nanos() as f64;
    let each = MESSAGES / senders;
    assert_eq!(sum, senders * (each * (each - 1) / 2), "each message is received once");
    took / MESSAGES as f64
}

fn main() {
    let runtime = Runtime::builder().workers(2).build().expect("a runtime of two workers");
    println!("ns a message, senders and receivers on different workers, capacity {CAPACITY}: median, 75th percentile");
    for (senders, receivers) in [(1, 1), (4, 4), (100, 1)] {
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| runtime.run(move || round(senders, receivers))).collect();
        rounds.sort_by(f64::total_cmp);
        println!("{senders:>4} -> {receivers}: {:6.1} {:6.1}", rounds[ROUNDS / 2], rounds[ROUNDS * 3 / 4]);
    }
}
