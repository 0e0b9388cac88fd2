//! Results that are dropped unread are reported, in debug builds: the line is that of the spawn.

use crate::support::{is_child, rerun_self, watchdog};

type Failed = Result<(), std::num::ParseIntError>;

fn fails() -> Failed {
    "x".parse::<u8>().map(drop)
}

#[test]
fn what_is_dropped_unread_is_reported_with_its_line() {
    const TEST: &str = "what_is_dropped_unread_is_reported_with_its_line";
    if !is_child(TEST) {
        let ended = rerun_self(TEST, &[]);
        assert!(ended.status.success(), "{ended:?}");
        let said: Vec<_> = ended.stderr.lines().filter(|line| line.starts_with("fibra: ")).collect();
        if !cfg!(debug_assertions) {
            return assert!(said.is_empty(), "{said:#?}");
        }
        let lines: Vec<_> = ended.stdout.lines().filter_map(|line| line.strip_prefix("line ")).collect();
        let parts = [
            ("", "returned a future, and its handle was dropped"),
            ("\"detached\"", "returned an Err, and its handle was dropped"),
            ("", "returned an Err, and its handle was dropped"),
        ];
        assert_eq!(said.len(), parts.len(), "one for each place: {said:#?}");
        for ((said, line), (name, what)) in said.iter().zip(lines).zip(parts) {
            let place = format!("{name}, spawned at crates/fibra/tests/inspect/unread.rs:{line}:");
            let short = place.replace("crates/fibra/", "");
            assert!(said.contains(what) && (said.contains(&place) || said.contains(&short)), "{line}: {said}");
        }
        return;
    }
    let _watchdog = watchdog(60);
    println!(); // The harness has begun this line.
    let workers = fibra::Runtime::builder().workers(1).build().unwrap();
    workers.run(|| {
        // The handle goes first.
        println!("line {}", line!() + 2);
        for _ in 0..3 {
            drop(fibra::spawn(|| async { fails() }));
            fibra::yield_now();
        }
        let named = fibra::Builder::new().name("detached");
        println!("line {}", line!() + 1);
        drop(named.spawn(fails).unwrap());
        fibra::yield_now();
    });
    workers.run(|| {
        // The fiber ends first.
        println!("line {}", line!() + 1);
        let ended = fibra::spawn(fails);
        ended.wait();
        drop(ended);
    });
    // None of these is reported.
    workers.run(|| {
        drop(fibra::spawn(|| "7".parse::<u8>()));
        drop(fibra::spawn(|| || 7));
        assert!(fibra::spawn(fails).join().unwrap().is_err());
        drop(fibra::spawn(|| _ = fails()));
        let cancelled = fibra::spawn(|| {
            let (_kept, rx) = fibra::channel::rendezvous::<()>();
            fibra::shield(|| rx.recv_timeout(std::time::Duration::from_millis(1)))
        });
        fibra::yield_now();
        cancelled.cancel();
        drop(cancelled);
        let unwanted = fibra::spawn(fails).cancel_on_drop();
        unwanted.wait();
        drop(unwanted);
        let future = fibra::spawn(|| async { 7 }).join().unwrap();
        assert_eq!(fibra::block_on(future), 7);
        // The scope takes the error of a child whose handle is dropped.
        let scope = fibra::try_scope(|s| {
            drop(s.spawn(fails));
            Ok(())
        });
        assert!(scope.is_err());
    });
}
