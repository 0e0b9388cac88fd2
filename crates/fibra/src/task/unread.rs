//! Results that are dropped unread: the `Err` of a fiber whose handle was dropped, and a future that a fiber returned and that is never
//! polled (`spawn(|| async { .. })`, where `spawn_future` was meant). Reported in debug builds, once for each place of a spawn.
//!
//! Nothing tells a generic function that `T` is a future or a `Result`. So these are recognised by what the compiler says about any type:
//!
//! * `type_name` begins with that of `Result`, and the discriminant of the value prints as that of a known `Err`;
//! * `type_name` is that of a closure, while the discriminant has four bytes, as those of `async` blocks have, whose states it counts; a
//!   closure's has one. Boxed and pinned ones, and `dyn Future`, are known by name.
//!
//! The compiler promises none of this. If it changes, reports are missing and the tests fail; nothing else depends on it. A future that is
//! a type of its own is not recognised, and the error is not shown, since it need not be printable.
//!
//! Silent: fibers that were cancelled, or whose handle cancels when it is dropped, and handles that a panic drops.
//!
//! Above: `spawn.rs` and `join.rs`, where values are dropped. Below: `prim`, `fiber::frame`.

use std::any::type_name;
use std::mem::{Discriminant, discriminant};

use crate::fiber::frame::{Frame, flag};
use crate::fiber::id::FiberId;
use crate::monitor::once_per_site::OncePerSite;
use crate::prim::atomic::Ordering;

/// The places of spawns that were named already.
static REPORTED: OncePerSite = OncePerSite::new();

/// What is said of a value that is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unread {
    Future,
    Error,
}

/// Could there be something to say of a `T` that is dropped unread? Then both sides look at every such value. Never in release builds.
#[inline(always)]
pub(crate) fn may_matter<T>() -> bool {
    cfg!(all(debug_assertions, not(any(loom, shuttle)))) && (is_result::<T>() || is_future::<T>())
}

fn is_result<T>() -> bool {
    type_name::<T>().starts_with("core::result::Result<")
}

fn is_future<T>() -> bool {
    let name = type_name::<T>();
    let inner = name.strip_prefix("core::pin::Pin<alloc::boxed::Box<").unwrap_or(name);
    if inner.starts_with("dyn core::future::future::Future") {
        return true;
    }
    // (What a box holds cannot be asked for its discriminant; a pinned box of a closure is a future.)
    let is_async = size_of::<Discriminant<T>>() == size_of::<u32>() || inner.len() != name.len();
    is_async && inner.trim_end_matches('>').ends_with("{{closure}}")
}

fn what<T>(value: &T) -> Option<Unread> {
    if is_result::<T>() {
        let is_err = format!("{:?}", discriminant(value)) == format!("{:?}", discriminant(&Err::<(), ()>(())));
        return is_err.then_some(Unread::Error);
    }
    is_future::<T>().then_some(Unread::Future)
}

/// This value of the fiber is about to be dropped. By the fiber, or by its handle.
#[inline(always)]
pub(crate) fn look_at<T>(frame: &Frame, value: &T) {
    if may_matter::<T>() {
        report(frame, value);
    }
}

#[cold]
#[inline(never)]
fn report<T>(frame: &Frame, value: &T) {
    if frame.has(flag::CANCEL | flag::CANCEL_ON_DROP) || std::thread::panicking() {
        return;
    }
    let (Some(unread), Some(site)) = (what(value), frame.site.get()) else { return };
    if !REPORTED.is_first(site) {
        return;
    }
    // SAFETY: the fiber has not ended, or its handle is here: the frame is not recycled.
    let name = unsafe { frame.extras() }.and_then(|extras| extras.name.as_ref());
    let name = name.map_or_else(String::new, |name| format!(" \"{name}\""));
    let advice = match unread {
        Unread::Future => {
            "returned a future, and its handle was dropped: the future never runs. fibra::spawn_future starts one, and \
             fibra::block_on waits for one inside a fiber."
        }
        Unread::Error => {
            "returned an Err, and its handle was dropped: the error is lost. Join the fiber, or deal with the error \
             inside it."
        }
    };
    crate::prim::say(format_args!(
        "fibra: fiber {}{name}, spawned at {site}, {advice} (It returns {}. This is said once for each such place, in \
         debug builds.)",
        // Relaxed: the number of a fiber whose frame is not recycled does not change.
        FiberId::from_u64(frame.id.load(Ordering::Relaxed)),
        type_name::<T>(),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<T>(value: T) -> Option<Unread> {
        assert!(what(&value).is_none() || is_result::<T>() || is_future::<T>());
        what(&value)
    }

    async fn function(number: u8) -> u8 {
        std::future::ready(number).await
    }

    #[test]
    fn futures_and_errors_are_recognised() {
        assert_eq!(of(async { 1 }), Some(Unread::Future));
        assert_eq!(of(function(3)), Some(Unread::Future));
        assert_eq!(of(Box::pin(function(3))), Some(Unread::Future));
        let boxed: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async {});
        assert_eq!(of(boxed), Some(Unread::Future));
        assert_eq!(of(Err::<u8, String>(String::new())), Some(Unread::Error));
        assert_eq!(of(Err::<(), std::num::NonZeroU8>(std::num::NonZeroU8::MIN)), Some(Unread::Error));
        assert_eq!(of(Err::<u64, ()>(())), Some(Unread::Error));
    }

    #[test]
    fn other_values_are_not() {
        assert_eq!(of(Ok::<u8, String>(1)), None);
        assert_eq!(of(Ok::<(), std::num::NonZeroU8>(())), None);
        let number = 7_u8;
        assert_eq!(of(|| 3), None);
        assert_eq!(of(move || number), None);
        assert_eq!(of(Box::new(move || number)), None);
        assert_eq!(of(5_u32), None);
        assert_eq!(of(Some(Err::<(), ()>(()))), None);
        assert_eq!(of(vec![1]), None);
    }
}
