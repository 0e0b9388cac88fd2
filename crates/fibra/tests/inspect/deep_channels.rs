//! An unbounded channel that grows is reported, with its name and line, once for each doubling.

use crate::support::{is_child, rerun_self, watchdog};

#[test]
fn an_unbounded_channel_that_grows_is_reported() {
    const TEST: &str = "an_unbounded_channel_that_grows_is_reported";
    if !is_child(TEST) {
        let ended = rerun_self(TEST, &[("FIBRA_SYSMON", "0")]);
        assert!(ended.status.success(), "{ended:?}");
        let said: Vec<_> = ended.stderr.lines().filter(|line| line.contains("the unbounded channel")).collect();
        assert_eq!(said.len(), 2, "{ended:?}");
        for (said, values) in said.iter().zip(["holds 100000 values", "holds 200000 values"]) {
            let parts = ["\"backlog\"", "tests/inspect/deep_channels.rs:", values];
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
        return;
    }
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let (tx, rx) = fibra::channel::builder::<u8>().unbounded().name("backlog").build();
        let (bounded, _kept) = fibra::channel::bounded::<u8>(150_000);
        let fill = |count: usize| {
            for _ in 0..count {
                tx.send(1).unwrap();
            }
            for _ in 0..3 {
                let _ = fibra::inspect::snapshot();
            }
        };
        fill(99_999);
        (0..150_000).for_each(|_| bounded.send(1).unwrap());
        fill(1);
        fill(99_999);
        fill(1);
        drop(rx);
    });
}
