//! Prints the lower bound of a transfer between two fibers on this machine, beside what fibra's transfer costs and what the fastest
//! rival's costs: one thread, nothing contended, the least of many short batches (other load on the machine only ever adds).
//!
//! ```text
//! cargo run --release -p rivals --bin floor
//! ```
//!
//! A rendezvous of stackful fibers that are each other's only work parks one and resumes the other: two switches of a stack, by way of the
//! scheduler's, and four locked instructions (the lock of the channel and the commit by the fiber that waits, the lock and the claim by
//! the fiber that comes second). Tasks of an async runtime switch no stack: a poll returns and another is called.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use corosensei::{Coroutine, CoroutineResult};
use fibra::time::Instant;

const BATCHES: usize = 300;
const BATCH: usize = 10_000;

/// Locked instructions of a transfer: see `docs/internals.md`, the table of budgets.
const LOCKED: f64 = 4.0;
/// Switches of a stack in a transfer.
const SWITCHES: f64 = 2.0;

/// Nanoseconds of one of the `BATCH` operations that `batch` does: in the fastest batch.
fn least(mut batch: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..BATCHES {
        let begun = Instant::now();
        batch();
        least = least.min(begun.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    least
}

fn locked() -> f64 {
    let word = AtomicU64::new(0);
    least(|| {
        for value in 0..BATCH as u64 {
            let _ = black_box(black_box(&word).compare_exchange(value, value + 1, SeqCst, SeqCst));
        }
        word.store(0, SeqCst);
    })
}

/// One switch: half of a resume that suspends at once.
fn switch() -> f64 {
    let mut coroutine = Coroutine::new(|yielder, mut goes_on| {
        while goes_on {
            goes_on = yielder.suspend(());
        }
    });
    let pair = least(|| {
        for _ in 0..BATCH {
            assert!(matches!(black_box(&mut coroutine).resume(true), CoroutineResult::Yield(())));
        }
    });
    assert!(matches!(coroutine.resume(false), CoroutineResult::Return(())));
    pair / 2.0
}

fn on_fibra(work: impl FnOnce() -> f64 + Send + 'static) -> f64 {
    fibra::Runtime::builder().workers(1).max_workers(1).build().expect("the runtime starts").run(work)
}

fn fibra_yield() -> f64 {
    let other = fibra::spawn(|| {
        while !fibra::is_cancelled() {
            fibra::yield_now();
        }
    });
    // Each yield of this fiber lets the other fiber yield once too.
    let pair = least(|| (0..BATCH).for_each(|_| fibra::yield_now()));
    other.cancel();
    let _ = other.join();
    pair / 2.0
}

fn fibra_transfer() -> f64 {
    let (ping, pinged) = fibra::channel::rendezvous::<usize>();
    let (pong, ponged) = fibra::channel::rendezvous::<usize>();
    let echo =
        fibra::spawn(move || pinged.into_iter().for_each(|value| pong.send(value).expect("the player is there")));
    let trip = least(|| {
        for value in 0..BATCH {
            ping.send(value).expect("the echo is there");
            assert_eq!(ponged.recv(), Ok(value));
        }
    });
    drop(ping);
    echo.join().expect("the echo ends");
    trip / 2.0
}

fn kanal_transfer() -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("the runtime starts");
    let player = runtime.spawn(async {
        let (ping, pinged) = kanal::bounded_async::<usize>(0);
        let (pong, ponged) = kanal::bounded_async::<usize>(0);
        let echo = tokio::spawn(async move {
            while let Ok(value) = pinged.recv().await {
                let _ = pong.send(value).await;
            }
        });
        let mut least = f64::INFINITY;
        for _ in 0..BATCHES {
            let begun = Instant::now();
            for value in 0..BATCH {
                ping.send(value).await.expect("the echo is there");
                assert_eq!(ponged.recv().await, Ok(value));
            }
            least = least.min(begun.elapsed().as_nanos() as f64 / BATCH as f64);
        }
        drop(ping);
        let _ = echo.await;
        least / 2.0
    });
    runtime.block_on(player).expect("the player ends")
}

fn main() {
    let (locked, switch) = (locked(), switch());
    let (yields, transfer, rival) = (on_fibra(fibra_yield), on_fibra(fibra_transfer), kanal_transfer());
    let floor = SWITCHES * switch + LOCKED * locked;
    println!("one locked compare-exchange            {locked:6.1} ns");
    println!("one switch of a stack (corosensei)     {switch:6.1} ns");
    println!("floor: {SWITCHES} switches and {LOCKED} locked          {floor:6.1} ns");
    println!("fibra, one yield                       {yields:6.1} ns");
    println!("fibra, one transfer                    {transfer:6.1} ns   {:.2} of kanal's", transfer / rival);
    println!("kanal on tokio, one transfer           {rival:6.1} ns   the floor is {:.2} of it", floor / rival);
}
