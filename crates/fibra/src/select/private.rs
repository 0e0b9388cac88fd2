//! The functions that the expansion of `select!` calls. Not public API: it may change with every release. Above: `fibra-macros`. Below:
//! `arm.rs`, `engine.rs`.

use std::panic::Location;
use std::ptr::{self, NonNull};
use std::time::Duration;

use super::arm::sealed::Sealed;
pub use super::arm::{AfterArm, Arm, ClosedArm, End, RecvArm, SendArm, SendFromArm};
pub use super::case::Case;
pub use super::engine::Otherwise;
use super::engine::{self, Candidates, Patience};
pub use super::join::JoinArm;
pub use super::scope::{CancelledArm, DrainingArm};
use crate::channel::{Receiver, Sender};
use crate::scope::{CancelToken, Cancelled};
use crate::sync::{LockArm, Mutex};
use crate::task::JoinHandle;
use crate::time::Instant;
use crate::wait::park;

/// An expression with a guard. Variants with braces, so that temporaries in them live as long as the `let` they are in.
#[derive(Debug)]
pub enum Guarded<T> {
    /// The guard holds.
    On {
        /// The expression.
        value: T,
    },
    /// It does not, and the expression was not evaluated.
    Off,
}

/// `recv(rx)`
pub fn recv<T>(receiver: &Receiver<T>) -> RecvArm<'_, T> {
    RecvArm::new(receiver)
}

/// `send(tx, expression)`
pub fn send<T>(sender: &Sender<T>, value: T) -> SendArm<'_, T> {
    SendArm::new(sender, value)
}

/// `send(tx, variable)`
///
/// # Safety
/// `place` stays a valid, untouched `T` until [`select`] has returned. If this arm wins, the caller forgets it: it has moved.
pub unsafe fn send_from<T>(sender: &Sender<T>, place: *const T) -> SendFromArm<'_, T> {
    // SAFETY: passed on.
    unsafe { SendFromArm::new(sender, place) }
}

/// Is `v` of `send(tx, v)` a variable, which stays where it is? If it is a constant, gives its value. Neither if the arm is not `on`.
///
/// Only the types of the closures exist. The first closure captures a reference to a variable; of a constant (a static, a unit) it captures
/// nothing, and has no size.
///
/// # Safety
/// The types are those of `|like| { [&v, like]; }` and `|| v`, with the same `v`.
#[inline(always)]
pub unsafe fn variable_or_constant<Borrow, Value, T>(_: &(Option<Borrow>, Option<Value>), on: bool) -> (bool, Option<T>)
where
    Borrow: FnOnce(&T),
    Value: FnOnce() -> T,
{
    if const { size_of::<Borrow>() != 0 } {
        return (on, None);
    }
    // The compiler computes this; the next line relies on it.
    assert!(size_of::<Value>() == 0, "fibra: a name that one closure captures and another one does not");
    let constant = on.then(|| {
        // SAFETY: the first closure captures nothing, so `v` is no variable, and `|| v` captures nothing either: it is a closure without
        // fields, and reading it reads no bytes.
        let evaluate = unsafe { NonNull::<Value>::dangling().read() };
        evaluate()
    });
    (false, constant)
}

/// The address of the constant; null if there is none.
#[inline(always)]
pub fn address<T>(constant: &Option<T>) -> *const T {
    constant.as_ref().map_or(ptr::null(), ptr::from_ref)
}

/// `closed(end)`
pub fn closed<E: End>(end: &E) -> ClosedArm<'_, E::Value> {
    end.closing()
}

/// `join(handle)`
pub fn join<T>(handle: &JoinHandle<T>) -> JoinArm<'_, T> {
    JoinArm::new(handle)
}

/// `lock(mutex)`
#[track_caller]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> LockArm<'_, T> {
    mutex.locking()
}

/// `on(operation)`
pub fn on<A: Arm>(operation: A) -> A {
    operation
}

/// `cancelled()`
pub fn cancelled() -> CancelledArm {
    CancelledArm::new()
}

/// `cancelled(token)`
pub fn token(token: &CancelToken) -> Cancelled<'_> {
    token.cancelled()
}

/// `draining()`
pub fn draining() -> DrainingArm {
    DrainingArm::new()
}

/// `after(duration)`
pub fn after(duration: Duration) -> AfterArm {
    AfterArm::new(duration)
}

/// The object that the engine is to wait for.
pub fn case<A: Arm>(arm: &mut A) -> Case<'_> {
    arm.case()
}

/// Asks an arm in the first pass: whether it looks ready, or, if `completes`, to complete itself if it is.
#[inline(always)]
pub fn ask<A: Arm>(arm: &mut A, completes: bool) -> bool {
    if completes { arm.complete() } else { arm.may_be_ready() }
}

/// The result of the arm that won.
pub fn finish<A: Arm>(arm: &mut A) -> A::Output {
    arm.finish()
}

/// A use of a variable.
#[inline(always)]
pub fn keep<A>(_: &A) {}

/// The arms of one `select!`, in its first pass.
struct Asked<'a, A, Ask, const N: usize> {
    arms: &'a mut A,
    ask: Ask,
}

impl<A, Ask: Fn(&mut A, usize, bool) -> bool, const N: usize> Candidates for Asked<'_, A, Ask, N> {
    #[inline(always)]
    fn count(&self) -> usize {
        N
    }

    #[inline(always)]
    fn may_be_ready(&mut self, index: usize) -> bool {
        (self.ask)(self.arms, index, false)
    }

    #[inline(always)]
    fn complete(&mut self, index: usize) -> bool {
        (self.ask)(self.arms, index, true)
    }
}

/// Completes one of the arms and gives its index; `None`: the default. The arms are used up: a value is sent once. `ask` passes [`ask`] on
/// to the arm of that index, and `cases` makes a case of each, if none is ready.
#[track_caller]
#[inline]
pub fn select<A, const N: usize>(
    arms: &mut A,
    biased: bool,
    otherwise: Otherwise,
    ask: impl Fn(&mut A, usize, bool) -> bool,
    cases: impl for<'c> FnOnce(&'c mut A) -> [Case<'c>; N],
) -> Option<usize> {
    let entered = park::passes();
    if entered && let Some(index) = engine::try_ready(&mut Asked::<A, _, N> { arms: &mut *arms, ask }, biased) {
        return Some(index);
    }
    select_on(&mut cases(arms), entered, biased, otherwise, Location::caller())
}

/// Waits until one of the cases is completed: a select of fibra's own, over arms that are made one by one.
#[track_caller]
pub(crate) fn select_cases(cases: &mut [Case<'_>]) {
    engine::run(cases, false, Patience::Endless, Location::caller());
}

/// `select_biased!` over two arms of fibra's own, whose types the caller need not know: completes the first that can be, and says whether
/// it was the first one.
#[track_caller]
#[inline]
pub(crate) fn first_of(first: &mut (impl Sealed + ?Sized), second: &mut (impl Sealed + ?Sized)) -> bool {
    let entered = park::passes();
    if entered {
        if first.may_be_ready() && first.complete() {
            return true;
        }
        if second.may_be_ready() && second.complete() {
            return false;
        }
    }
    let mut cases = [first.case(), second.case()];
    select_on(&mut cases, entered, true, Otherwise::Wait, Location::caller()) == Some(0)
}

/// The same over several cases: which one it was.
#[track_caller]
pub(crate) fn first_case(cases: &mut [Case<'_>]) -> usize {
    engine::run(cases, true, Patience::Endless, Location::caller()).expect("it waits until there is one")
}

/// The rest of [`select`], if nothing is ready, or it has to begin in another way: its fiber is cancelled or has made many calls, or the
/// caller is not a fiber.
#[inline(never)]
fn select_on(
    cases: &mut [Case<'_>],
    entered: bool,
    biased: bool,
    otherwise: Otherwise,
    site: &'static Location<'static>,
) -> Option<usize> {
    let patience = match otherwise {
        Otherwise::Wait => Patience::Endless,
        Otherwise::Now => Patience::None,
        Otherwise::After(duration) if duration.is_zero() => Patience::None,
        Otherwise::After(duration) => Patience::Until(Instant::after(duration).as_nanos()),
    };
    if entered { engine::run_on(cases, biased, patience, site) } else { engine::run(cases, biased, patience, site) }
}
