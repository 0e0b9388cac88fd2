//! Looks into a program with many fibers: what a snapshot says, and how long it takes. `cargo run --release --example inspect 100000`

use std::time::Duration;

fn main() {
    let fibers: usize = std::env::args().nth(1).and_then(|number| number.parse().ok()).unwrap_or(1000);
    fibra::run(|| {
        let (tx, rx) = fibra::channel::builder::<u32>().bounded(16).name("work").build();
        fibra::scope(|s| {
            for n in 0..fibers {
                let rx = rx.clone();
                s.spawn(move || {
                    if n % 10 == 0 {
                        fibra::sleep(Duration::from_secs(3600)); // cancelled below
                    }
                    while rx.recv().is_ok() {}
                });
            }
            // Until all of them wait.
            while fibra::Handle::current().metrics().parked < fibers as u64 {
                fibra::yield_now();
            }
            let snapshot = fibra::inspect::snapshot();
            println!("{snapshot}");
            assert!(snapshot.fibers().len() > fibers);
            // The machine may do something else meanwhile: so the fastest of some is what it takes.
            let fastest = (0..10).map(|_| fibra::inspect::snapshot().took()).min();
            println!(
                "{} fibers in {:.1?}, at best in {:.1?}",
                snapshot.fibers().len(),
                snapshot.took(),
                fastest.unwrap_or_default()
            );
            s.cancel();
        });
        drop(tx);
    });
}
