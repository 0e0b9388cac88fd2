//! How much stack fibers have used, by place of spawn. In a process of its own: the marks are the process's, and so is the variable.

use fibra::inspect::{self, StackInfo};

use crate::json;
use crate::support::{self, watchdog};

const MARKED: &str = "stacks_are_measured_when_fibers_end";
const LIVE: &str = "stacks_of_live_fibers_are_measured_when_asked";

/// Uses so much of the stack.
#[inline(never)]
fn use_much() -> u8 {
    std::hint::black_box(&mut [7_u8; 100_000])[std::hint::black_box(99)]
}

/// Those that were spawned in this line.
fn at(line: u32) -> Option<StackInfo> {
    let is_there = |stack: &StackInfo| stack.spawned_at.file() == file!() && stack.spawned_at.line() == line;
    inspect::stacks().into_iter().find(is_there)
}

#[test]
#[cfg_attr(fibra_context = "thread", ignore = "fibers have the stacks of threads there")]
fn stacks_are_measured_when_fibers_end() {
    let _watchdog = watchdog(100);
    if !support::is_child(MARKED) {
        let ended = support::rerun_self(MARKED, &[("FIBRA_STACK_MARKS", "1")]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    fibra::run(|| {
        // One after another, so on the same stack: what the deep one has touched is not counted for the flat ones after it.
        let (mut deep, mut flat) = (0, 0);
        for _ in 0..3 {
            deep = line!() + 1;
            fibra::spawn(use_much).join().unwrap();
            flat = line!() + 1;
            fibra::spawn(|| std::hint::black_box(7)).join().unwrap();
        }
        let (deep, flat) = (at(deep).unwrap(), at(flat).unwrap());
        assert_eq!((deep.fibers, flat.fibers), (3, 3));
        assert!(deep.deepest >= 100_000 && deep.deepest < deep.size, "{deep:?}");
        assert!(flat.deepest > 0 && flat.deepest < 60_000, "{flat:?}");
        assert_eq!(deep.size, 256 << 10, "the default");
        let snapshot = inspect::snapshot();
        assert!(snapshot.to_string().contains(&deep.to_string()), "{snapshot}");
        let json = json::parse(&snapshot.to_json()).unwrap();
        let stacks = json.at("stacks").items();
        assert_eq!(stacks.len(), snapshot.stacks().len());
        assert!(stacks.iter().any(|stack| stack.at("deepest").number() == deep.deepest as u64), "{snapshot}");
    });
}

#[test]
#[cfg_attr(fibra_context = "thread", ignore = "fibers have the stacks of threads there")]
fn stacks_of_live_fibers_are_measured_when_asked() {
    let _watchdog = watchdog(100);
    if !support::is_child(LIVE) {
        let ended = support::rerun_self(LIVE, &[]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    fibra::run(|| {
        let (tx, rx) = fibra::channel::rendezvous();
        let line = line!() + 1;
        let deep = fibra::spawn(move || {
            use_much();
            rx.recv().unwrap()
        });
        while inspect::snapshot().fiber(deep.id()).is_none_or(|fiber| fiber.wait.is_none()) {
            fibra::yield_now();
        }
        assert!(inspect::snapshot().stacks().is_empty(), "nothing is measured unless asked for");
        let stack = at(line).unwrap();
        assert!(stack.deepest >= 100_000 && stack.fibers == 1, "{stack}");
        tx.send(1).unwrap();
        assert_eq!(deep.join().unwrap(), 1);
        assert!(at(line).is_none(), "it has ended, and was not marked");
    });
}
