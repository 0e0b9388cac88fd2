//! Join futures from the inside: the records of their waits.

use std::cell::Cell;
use std::future::IntoFuture;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::ptr;
use std::task::{Context, RawWaker, RawWakerVTable, Waker};

use crate::fiber::testing::passes_in_child;
use crate::runtime::Runtime;
use crate::time::sleep;
use crate::waiter::record::TaskRecord;

thread_local! {
    static CLONE_PANICS: Cell<bool> = const { Cell::new(false) };
    static DROP_PANICS: Cell<bool> = const { Cell::new(false) };
}

static CLUMSY: RawWakerVTable = RawWakerVTable::new(
    |_| {
        assert!(!CLONE_PANICS.get(), "no clone today");
        RawWaker::new(ptr::null(), &CLUMSY)
    },
    |_| (),
    |_| (),
    |_| assert!(!DROP_PANICS.replace(false), "no drop today"),
);

// A waker is user code: whatever it does, the record of the wait goes back to the pool.
#[test]
fn a_waker_that_panics_loses_no_record() {
    passes_in_child("task::join::tests::a_waker_that_panics_loses_no_record", &[], || {
        let rt = Runtime::builder().workers(1).build().unwrap();
        let sleeper = rt.spawn(|| sleep(std::time::Duration::MAX));
        // SAFETY: the functions above ignore their pointer.
        let waker = unsafe { Waker::new(ptr::null(), &CLUMSY) };
        let mut cx = Context::from_waker(&waker);
        let mut future = pin!(sleeper.cancel_on_drop().into_future());
        assert!(future.as_mut().poll(&mut cx).is_pending());
        for _ in 0..3 {
            CLONE_PANICS.set(true);
            assert!(catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx))).is_err());
            assert_eq!(TaskRecord::in_use(), 0, "lost when it was cloned");
            CLONE_PANICS.set(false);
            assert!(future.as_mut().poll(&mut cx).is_pending());
            assert_eq!(TaskRecord::in_use(), 1);
            DROP_PANICS.set(true);
            // That stays where it is: whoever was completed meanwhile has yet to hear of it.
            assert!(future.as_mut().poll(&mut cx).is_pending());
            assert!(!DROP_PANICS.get(), "it was dropped, and panicked");
            assert_eq!(TaskRecord::in_use(), 1, "the one that was given back is in use again");
        }
    });
}
