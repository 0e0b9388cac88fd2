//! The place where a caller of a machine gets its answer: room for one operation, and the waker to call when the answer is there.
//!
//! Above: `mail` (the post of a caller has a desk instead of mail), `call`. Below: `prim`, `node` for the link.
//!
//! One word holds the state of the desk, and decides which side owns the waker:
//!
//! ```text
//!   state      means                                        the waker belongs to
//!   IDLE       no answer, and the caller does not wait      the caller
//!   WAITING    no answer; the caller waits                  the thread that changes the state
//!   TAKEN      an answer is being brought to the caller     the bringer
//!   a link     the answer                                   no thread: there is none
//!   CLOSED     the caller has given up                      the caller
//! ```
//!
//! The bringer takes the waker out before it publishes the answer: as soon as that is there, the caller may take it, go on with the next
//! call, or free the desk.
//!
//! Invariants: one caller, and at most one operation on its way to the desk, so one bringer. After it has published the answer, the bringer
//! does not touch the desk.

use std::fmt;
use std::ptr::{self, NonNull};

use super::link::Link;
use crate::prim::atomic::{AtomicPtr, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::cell::UnsafeCell;
use crate::prim::mpsc::Closed;

/// The states that are no link. No link has such an address.
fn state(number: usize) -> *mut Link {
    ptr::without_provenance_mut(number)
}
// Numbers below the address of any link; the table in the header says what each means.
const IDLE: usize = 0;
const WAITING: usize = 1;
const TAKEN: usize = 2;
const CLOSED: usize = 3;

/// What the caller finds at its desk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The answer, out of the desk.
    Answer(NonNull<Link>),
    /// No answer yet; the waker will be called.
    Nothing,
    /// The answer is being brought this moment, and the waker that was kept before will be called. Look again.
    Soon,
}

/// `W`: what wakes the caller.
pub(super) struct Desk<W> {
    state: AtomicPtr<Link>,
    waker: UnsafeCell<Option<W>>,
}

// SAFETY: the waker belongs to one side at a time, as the state says; it is sent to another thread, but not shared. The link is a number
// here.
unsafe impl<W: Send> Sync for Desk<W> {}
// SAFETY: as above.
unsafe impl<W: Send> Send for Desk<W> {}

impl<W> Desk<W> {
    pub(super) fn new() -> Self {
        Self { state: AtomicPtr::new(state(IDLE)), waker: UnsafeCell::new(None) }
    }

    /// # Safety
    /// The waker is the caller's of this function, by the state.
    unsafe fn replace(&self, waker: Option<W>) -> Option<W> {
        // SAFETY: the caller's promise.
        self.waker.with_mut(|place| unsafe { std::mem::replace(&mut *place, waker) })
    }

    /// The caller looks for its answer. If there is none, `waker` is kept for the bringer to call.
    pub(super) fn look(&self, waker: impl FnOnce() -> W) -> Found {
        // Acquire: pairs with the release of the bringer: the operation is as its target left it.
        let mut now = self.state.load(Ordering::Acquire);
        if now == state(WAITING) {
            // Asked before, perhaps with another waker: it becomes the caller's again, unless an answer comes. Acquire: on failure, as
            // above; on success nothing is published.
            match self.state.compare_exchange(now, state(IDLE), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => now = state(IDLE),
                Err(other) => now = other,
            }
        }
        if now == state(IDLE) {
            // SAFETY: idle, so it is the caller's.
            let before = unsafe { self.replace(Some(waker())) };
            if seeded_bug("desk_waits_blindly") {
                self.state.swap(state(WAITING), Ordering::SeqCst);
                return Found::Nothing;
            }
            // Release: the bringer sees the waker. Acquire on failure: as above.
            match self.state.compare_exchange(now, state(WAITING), Ordering::Release, Ordering::Acquire) {
                Ok(_) => {
                    drop(before);
                    return Found::Nothing;
                }
                // An answer has come while the caller did not wait: the waker is still the caller's.
                Err(other) => now = other,
            }
            // SAFETY: the state went from idle to an answer, whose bringer does not touch the waker.
            drop((before, unsafe { self.replace(None) }));
        }
        match now.addr() {
            TAKEN => Found::Soon,
            IDLE | WAITING | CLOSED => unreachable!("only the caller changes to that"),
            _ => {
                // Relaxed: nothing else is on its way to this desk; the next operation's way orders it.
                self.state.store(state(IDLE), Ordering::Relaxed);
                Found::Answer(NonNull::new(now).expect("not idle"))
            }
        }
    }

    /// Brings the answer. Gives the waker that is to be called now, as the last step. After a success the desk may be
    /// gone.
    ///
    /// # Errors
    /// The caller has given up: the link is still the bringer's.
    pub(super) fn bring(&self, link: NonNull<Link>) -> Result<Option<W>, Closed> {
        // Relaxed: a first guess. Mostly the caller waits.
        if self.state.load(Ordering::Relaxed) != state(WAITING) {
            // Release: the caller sees the operation as it is now. Relaxed on failure: looked at again below.
            let link = link.as_ptr();
            match self.state.compare_exchange(state(IDLE), link, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(None),
                Err(now) if now == state(CLOSED) => return Err(Closed),
                Err(_) => {}
            }
        }
        // Acquire: pairs with the caller's release: the waker is there. The caller may have taken it back, or given up, meanwhile.
        match self.state.compare_exchange(state(WAITING), state(TAKEN), Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => {}
            Err(now) if now == state(CLOSED) => return Err(Closed),
            Err(_) => return self.bring(link),
        }
        // SAFETY: taken, so it is the bringer's.
        let waker = unsafe { self.replace(None) };
        // Release: as above. Relaxed on failure: then it is closed, and nothing is read.
        match self.state.compare_exchange(state(TAKEN), link.as_ptr(), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(waker),
            Err(_) => Err(Closed),
        }
    }

    /// The caller gives up. The answer, if it was there; it is the caller's.
    pub(super) fn close(&self) -> Option<NonNull<Link>> {
        // AcqRel: acquire pairs with the bringer's release, if the answer was there; release is for a bringer that
        // finds the desk closed.
        let before = self.state.swap(state(CLOSED), Ordering::AcqRel);
        if matches!(before.addr(), IDLE | WAITING) {
            // SAFETY: closed, and not taken by a bringer before: it is the caller's. Relaxed orderings do not matter: it wrote it itself.
            drop(unsafe { self.replace(None) });
        }
        if before.addr() > CLOSED { NonNull::new(before) } else { None }
    }
}

impl<W> fmt::Debug for Desk<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for people.
        let state = self.state.load(Ordering::Relaxed).addr();
        let word = ["idle", "waiting", "taken", "closed"].get(state).copied().unwrap_or("answered");
        f.debug_struct("Desk").field("state", &word).finish()
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model {
    use super::*;
    use crate::prim::model::{check, thread};
    use crate::prim::sync::{Arc, Condvar, Mutex};

    struct Bell(Mutex<bool>, Condvar);

    impl Bell {
        fn ring(&self) {
            *self.0.lock() = true;
            self.1.notify_one();
        }

        fn sleep(&self) {
            let mut rung = self.0.lock();
            while !*rung {
                rung = self.1.wait(rung);
            }
            *rung = false;
        }
    }

    /// A stand-in for an answer: no node is behind the address, and no code reads from it.
    fn answer(number: usize) -> NonNull<Link> {
        NonNull::new(ptr::without_provenance_mut(64 * number)).unwrap()
    }

    fn bring(desk: &Desk<Arc<Bell>>, number: usize) -> Result<(), Closed> {
        if let Some(bell) = desk.bring(answer(number))? {
            bell.ring();
        }
        Ok(())
    }

    /// Looks and sleeps until the answer is there, as a future that is polled. The bell was perhaps rung for the call before.
    fn wait(desk: &Desk<Arc<Bell>>, bell: &Arc<Bell>) -> NonNull<Link> {
        loop {
            match desk.look(|| bell.clone()) {
                Found::Answer(link) => return link,
                Found::Nothing => bell.sleep(),
                Found::Soon => thread::yield_now(),
            }
        }
    }

    // Two calls, one after the other, whose answers come from two threads: each answer comes, and the bringer of the
    // first one has let go of the desk when the next call begins.
    #[test]
    fn model_desk_two_calls() {
        check(2, || {
            let (desk, bell) = (Arc::new(Desk::new()), Arc::new(Bell(Mutex::new(false), Condvar::new())));
            let others: Vec<_> = (1..3)
                .map(|number| {
                    let there = desk.clone();
                    let other = thread::spawn(move || bring(&there, number));
                    assert_eq!(wait(&desk, &bell), answer(number));
                    other
                })
                .collect();
            others.into_iter().for_each(|other| assert_eq!(other.join().unwrap(), Ok(())));
        });
    }

    // The caller looks once, perhaps twice, and gives up: the answer is either with the caller or with the bringer,
    // never with both.
    #[test]
    fn model_desk_against_close() {
        check(3, || {
            let (desk, bell) = (Arc::new(Desk::new()), Arc::new(Bell(Mutex::new(false), Condvar::new())));
            let other = {
                let desk = desk.clone();
                thread::spawn(move || bring(&desk, 1))
            };
            let mut found = desk.look(|| bell.clone());
            if found == Found::Nothing {
                found = desk.look(|| bell.clone());
            }
            let late = desk.close();
            let brought = other.join().unwrap().is_ok();
            let came = usize::from(matches!(found, Found::Answer(_))) + usize::from(late.is_some());
            assert_eq!(came, usize::from(brought), "the answer is somewhere, once");
            assert_eq!(Arc::strong_count(&bell), 1, "the desk keeps no waker");
        });
    }
}
