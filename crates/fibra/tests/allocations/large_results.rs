//! What a fiber leaves behind that no joiner takes is freed.

use crate::counting::{self, ODD};
use crate::support;

// A result that is boxed because it is large, but has no destructor of its own, is freed with its handle, whichever of the two ends first.
#[test]
fn a_large_plain_result_is_freed() {
    let _alone = crate::alone();
    let _watchdog = support::watchdog(30);
    fibra::run(|| {
        // The handle goes first.
        drop(fibra::spawn(|| [1u8; ODD]));
        // The fiber ends first.
        let ended = fibra::spawn(|| [1u8; ODD]);
        ended.wait();
        drop(ended);
    });
    assert_eq!(counting::odd_blocks(), 0);
}
