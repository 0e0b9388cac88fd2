//! The abandonable form of `blocking`: the caller may give up, by time or cancellation, and the call goes on without it.
//!
//! So the call owns all it touches, and its result is dropped if the caller has given up. It runs on the threads of `blocking::strays`,
//! which no shutdown waits for. Above: name lookup. (Standard input keeps what was read for the next caller; see `io`.)

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;

use crate::blocking::strays;
use crate::cancel;
use crate::prim::sync::Mutex;
use crate::sync::Event;
use crate::wait::reason::WaitReason;

/// The place where the call leaves its result.
struct Result<T> {
    there: Event,
    value: Mutex<Option<std::result::Result<T, Box<dyn Any + Send>>>>,
}

/// Makes the call on another thread, and waits for it until `deadline` (on fibra's clock). Its panic is passed on.
///
/// # Errors
/// `TimedOut`, or there is no thread to make the call.
pub(crate) fn abandonable<T: Send + 'static>(
    reason: WaitReason,
    site: &'static Location<'static>,
    deadline: Option<u64>,
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let result = Arc::new(Result { there: Event::new(), value: Mutex::new(None) });
    let left = Arc::clone(&result);
    strays::start(move || {
        let value = catch_unwind(AssertUnwindSafe(call));
        *left.value.lock() = Some(value);
        left.there.set();
        if let Some(left) = Arc::into_inner(left)
            && let Some(Err(payload)) = left.value.into_inner()
        {
            // The caller has given up: the panic is not reported.
            crate::prim::discard_payload(payload);
        }
    })?;
    if !result.there.wait_as(reason, deadline, site) {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the call took longer than its time-out; it was abandoned",
        ));
    }
    let value = result.value.lock().take();
    match value.expect("it was set after the value was left") {
        Ok(value) => Ok(value),
        Err(payload) => cancel::pass_on(payload),
    }
}

#[cfg(all(test, not(any(fibra_asan, fibra_tsan))))]
mod tests {
    use super::*;
    use crate::prim::policy;
    use crate::runtime::{Runtime, run};
    use crate::scope::timeout;
    use crate::task::spawn;
    use std::sync::mpsc;
    use std::time::Duration;

    fn abandonable_here<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        abandonable(WaitReason::NetLookup, Location::caller(), None, call)
    }

    // Cancellation, time and the end of the runtime do not wait for a call that hangs; its result is dropped when it comes.
    #[test]
    fn a_call_that_hangs_holds_up_no_fiber() {
        let (release, hangs) = mpsc::channel::<()>();
        let (dropped, drops) = mpsc::channel();
        struct Tells(mpsc::Sender<()>);
        impl Drop for Tells {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let runtime = Runtime::builder().workers(1).build().unwrap();
        let fiber = runtime.spawn(move || {
            let _ = abandonable_here(move || {
                let _ = hangs.recv();
                Tells(dropped)
            });
        });
        while runtime.metrics().parked == 0 {
            std::thread::yield_now();
        }
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        drop(runtime);
        assert!(drops.try_recv().is_err(), "it hangs still");
        release.send(()).unwrap();
        drops.recv().unwrap();
    }

    #[test]
    fn it_gives_values_errors_and_panics() {
        run(|| {
            assert_eq!(abandonable_here(|| 7).unwrap(), 7);
            let panicked = spawn(|| abandonable_here(|| -> u32 { panic!("inside") })).join();
            assert_eq!(panicked.unwrap_err().message(), "inside");
            let soon = Some(policy::now() + 1_000_000);
            let (_hold, hangs) = mpsc::channel::<()>();
            let late = abandonable(WaitReason::NetLookup, Location::caller(), soon, move || hangs.recv());
            assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
            let (_hold, hangs) = mpsc::channel::<()>();
            assert!(timeout(Duration::from_millis(1), || abandonable_here(move || hangs.recv())).is_err());
        });
        assert_eq!(abandonable_here(|| 8).unwrap(), 8, "on a plain thread");
    }
}
