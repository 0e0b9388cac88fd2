//! The mail of one event loop: where other threads put operations for it. Many senders, one owner, intrusive, lock-free.
//!
//! Above: `node` (an operation that is dropped goes home by mail), `event_loop` (takes everything out once per round, and sleeps only
//! when there is nothing). Below: `prim`, and `driver` for the kick.
//!
//! It consists of a queue of many producers and one owner (`prim::mpsc`, which says why nothing is lost and no thread
//! waits), and a flag that says whether the owner sleeps.
//!
//! Invariants:
//! * a link in the mail belongs to the mail: its sender does not touch it again;
//! * once closed, the mail takes nothing any more: a sender is told so and still has what it sent.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::address::Numbers;
use super::desk::Desk;
use super::link::Link;
use crate::prim::CacheLine;
use crate::prim::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, handshake_load_u32};
use crate::prim::bug::seeded_bug;
use crate::prim::mpsc::{Batch, Chain, Closed, Mpsc};

pub(super) struct LoopMail {
    links: CacheLine<Mpsc<Link>>,
    /// The owner is asleep, or about to be: 1.
    asleep: AtomicU32,
}

impl LoopMail {
    pub(super) fn new() -> Self {
        Self { links: CacheLine(Mpsc::new()), asleep: AtomicU32::new(0) }
    }

    /// Takes everything out, oldest first. Only the owner calls this.
    pub(super) fn take_all(&self) -> Batch<Link> {
        self.links.take_all()
    }

    /// Lets nothing in any more, and takes out what is there, oldest first. Only the owner calls this.
    pub(super) fn close(&self) -> Batch<Link> {
        self.links.close()
    }

    /// Whether there is mail, for the hot path; may miss a link that is being put in at this moment.
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// The owner says that it is about to sleep. True: the mail is empty, and a sender that puts something in from now
    /// on will kick.
    pub(super) fn may_sleep(&self) -> bool {
        if !seeded_bug("mail_sleeps_blindly") {
            // SeqCst: first half of the handshake; the senders' compare-exchange is theirs.
            self.asleep.swap(1, Ordering::SeqCst);
        }
        let empty = self.links.is_empty_handshake();
        if seeded_bug("mail_sleeps_blindly") {
            self.asleep.swap(1, Ordering::SeqCst);
        }
        empty
    }

    /// The owner's sleep: `rest` is told whether it may block, and returns when it was kicked, or for a reason of its
    /// own.
    pub(super) fn sleep<R>(&self, rest: impl FnOnce(bool) -> R) -> R {
        let result = rest(self.may_sleep());
        self.awake();
        result
    }

    /// The owner has come back from its sleep, or did not go.
    pub(super) fn awake(&self) {
        // Relaxed: a sender that still sees it asleep kicks once too often.
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// True if the owner sleeps and no other sender has taken on the task of kicking it.
    pub(super) fn must_kick(&self) -> bool {
        // Second half of the handshake with `may_sleep`. SeqCst: of several senders that see the owner asleep, one
        // kicks.
        handshake_load_u32(&self.asleep) != 0 && self.asleep.swap(0, Ordering::SeqCst) != 0
    }
}

impl fmt::Debug for LoopMail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopMail").field("empty", &self.is_empty()).finish()
    }
}

/// The ways to wake the owner of a mail.
#[cfg(not(any(loom, shuttle)))]
#[derive(Debug, Clone)]
pub(super) enum Bell {
    /// A thread that sleeps in its driver.
    Driver(crate::driver::Kicker),
    /// The fiber that runs a loop: fibra's own waker.
    Fiber(std::task::Waker),
}

/// The thread number of a post that belongs to a caller and not to a loop. No mesh has it.
pub(super) const OUTSIDE: u32 = u32::MAX;

/// The address of an event loop: its mail, and how to wake it; or of a caller ([`OUTSIDE`]), which has a desk instead.
/// Outlives the loop.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) mail: LoopMail,
    pub(super) desk: Desk<std::task::Waker>,
    /// The number of the loop in its mesh.
    pub(super) thread: u32,
    /// Handles outside the loop by which something can still happen to it: doorbells and stoppers.
    outside: AtomicUsize,
    stop: AtomicBool,
    /// How to wake it; none before it has slept for the first time.
    #[cfg(not(any(loom, shuttle)))]
    bell: crate::prim::sync::Mutex<Option<Bell>>,
    /// Numbers for machines.
    numbers: crate::prim::sync::Mutex<Numbers>,
    #[cfg(any(loom, shuttle))]
    pub(super) bell: (crate::prim::sync::Mutex<bool>, crate::prim::sync::Condvar),
}

impl Post {
    pub(super) fn new(thread: u32) -> Self {
        Self {
            mail: LoopMail::new(),
            desk: Desk::new(),
            thread,
            outside: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            #[cfg(not(any(loom, shuttle)))]
            bell: crate::prim::sync::Mutex::new(None),
            numbers: crate::prim::sync::Mutex::new(Numbers::new()),
            #[cfg(any(loom, shuttle))]
            bell: (crate::prim::sync::Mutex::new(false), crate::prim::sync::Condvar::new()),
        }
    }

    /// Brings an answer to a caller.
    ///
    /// # Safety
    /// The link is that of an operation whose home this is, and in no list. After a success the caller does not touch it again, nor this
    /// post, unless it has a count of it.
    pub(super) unsafe fn bring(&self, link: NonNull<Link>) -> Result<(), Closed> {
        debug_assert_eq!(self.thread, OUTSIDE);
        if let Some(waker) = self.desk.bring(link)? {
            // The waker is foreign code: its panic must not hit the bringer of the answer.
            catch_unwind(AssertUnwindSafe(|| waker.wake())).unwrap_or_else(crate::prim::discard_payload);
        }
        Ok(())
    }

    /// Puts a link in and wakes the loop if need be. A caller takes none.
    ///
    /// # Safety
    /// The link is in no list, and valid until the owner has taken it out. On success the caller does not touch it again.
    pub(super) unsafe fn send(&self, link: NonNull<Link>) -> Result<(), Closed> {
        if self.thread == OUTSIDE {
            return Err(Closed);
        }
        // SAFETY: the caller's promise.
        unsafe { self.mail.links.push(link) }.map(|was_empty| self.sent(was_empty))
    }

    /// Puts a chain in, which is not empty, and wakes the loop if need be.
    ///
    /// # Safety
    /// As for [`Post::send`], for each link of the chain.
    pub(super) unsafe fn send_chain(&self, chain: &mut Chain<Link>) -> Result<(), Closed> {
        // SAFETY: the caller's promise.
        unsafe { self.mail.links.push_chain(chain) }.map(|was_empty| self.sent(was_empty))
    }

    /// Only a sender that found the mail empty may have to kick: links behind an earlier one are taken out together
    /// with it.
    fn sent(&self, was_empty: bool) {
        if was_empty && self.mail.must_kick() {
            self.kick();
        }
    }

    /// Counts one more handle by which something can happen from outside.
    pub(super) fn enter(&self) {
        // Relaxed: made by the loop's own thread, or by a handle that counts itself.
        self.outside.fetch_add(1, Ordering::Relaxed);
    }

    /// Such a handle is gone: the loop may have nothing left to wait for, and end.
    pub(super) fn leave(&self) {
        // SeqCst: before the look at `asleep`; pairs with `may_sleep` and then `is_watched`.
        if self.outside.fetch_sub(1, Ordering::SeqCst) == 1 && self.mail.must_kick() {
            self.kick();
        }
    }

    pub(super) fn is_watched(&self) -> bool {
        // SeqCst: after `may_sleep`; pairs with `leave`.
        self.outside.load(Ordering::SeqCst) > 0
    }

    pub(super) fn stop(&self) {
        // SeqCst: before the look at `asleep`; pairs with `may_sleep` and then `is_stopped`.
        self.stop.swap(true, Ordering::SeqCst);
        self.rouse();
    }

    /// Something has come for the loop by a way other than the mail.
    pub(super) fn rouse(&self) {
        if self.mail.must_kick() {
            self.kick();
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        // SeqCst: after `may_sleep`; pairs with `stop`.
        self.stop.load(Ordering::SeqCst)
    }

    /// A number for one more machine: no two machines of a loop ever have the same.
    pub(super) fn number_machine(&self) -> u32 {
        self.numbers.lock().take()
    }

    /// A machine is gone for good: another one may have its place, with another number.
    pub(super) fn free_number(&self, number: u32) {
        self.numbers.lock().give_back(number);
    }

    /// Sets how the loop is woken: before the first sleep, and whenever the sleeper (a thread or a fiber) changes.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn set_bell(&self, bell: Bell) {
        let before = self.bell.lock().replace(bell);
        // Dropped without the lock: a waker's destructor is foreign code.
        drop(before);
    }

    #[cfg(not(any(loom, shuttle)))]
    fn kick(&self) {
        // The loop does not sleep before its bell is set.
        let bell = self.bell.lock().clone();
        match bell {
            Some(Bell::Driver(kicker)) => kicker.kick(),
            Some(Bell::Fiber(waker)) => waker.wake(),
            None => {}
        }
    }

    #[cfg(any(loom, shuttle))]
    fn kick(&self) {
        *self.bell.0.lock() = true;
        self.bell.1.notify_one();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::{Message, OpPool};
    use super::*;
    use crate::prim::sync::Arc;

    fn put(post: &Arc<Post>, pool: &mut OpPool<u32>, number: u32) {
        let mut request = pool.take(1, number).unwrap().into_request();
        request.owned.submit(post);
        let link = Message::from(request).into_link();
        // SAFETY: the request was given up for its link.
        assert!(unsafe { post.send(link) }.is_ok());
    }

    /// The numbers in a chain; after the first, one more is sent.
    fn numbers(links: Batch<Link>, mut meanwhile: impl FnMut()) -> Vec<u32> {
        let mut numbers = Vec::new();
        for link in links {
            // SAFETY: taken out of the mail, once.
            let Message::Submission(mut request) = (unsafe { Message::from_link(link) }) else {
                panic!("the kind travels with it")
            };
            numbers.push(*request.data::<u32>().unwrap());
            request.owned.answer(0);
            request.owned.arrive();
            meanwhile();
        }
        numbers
    }

    // S3-26: what other threads write to is a queue without a lock (see its own test) and an atomic, and nothing that could be locked.
    // (That it loses nothing all the same is what the models of the mail show.)
    #[test]
    fn the_mail_has_no_lock() {
        let LoopMail { links: CacheLine(links), asleep } = LoopMail::new();
        let _: (Mpsc<Link>, AtomicU32) = (links, asleep);
    }

    // S3-59: what is sent while the mail is being read is for the next round, however fast the sender.
    #[test]
    fn a_round_takes_what_was_there_at_its_start() {
        let (post, mut pool) = (Arc::new(Post::new(0)), OpPool::with_capacity(8));
        (0..3).for_each(|number| put(&post, &mut pool, number));
        let mut next = 3;
        let first = numbers(post.mail.take_all(), || {
            put(&post, &mut pool, next);
            next += 1;
        });
        assert_eq!(first, [0, 1, 2]);
        assert_eq!(numbers(post.mail.take_all(), || ()), [3, 4, 5]);
        assert!(post.mail.is_empty() && post.mail.may_sleep());
        // A closed mail takes nothing: the operation still belongs to its sender.
        put(&post, &mut pool, 6);
        assert_eq!(numbers(post.mail.close(), || ()), [6]);
        let mut request = pool.take(1, 7).unwrap().into_request();
        request.owned.submit(&post).leave(&post);
        drop(request);
        assert_eq!(pool.available(), 8);
    }
}
