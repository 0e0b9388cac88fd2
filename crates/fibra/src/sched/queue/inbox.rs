//! The inbox of one worker: where other threads put the started fibers they have woken. Many producers, one consumer, intrusive.
//!
//! A stack of nodes that the owner takes whole with one swap and turns round, so that each batch is in the order of arrival, and
//! batches are too. Pushing is a compare-exchange loop: no allocation, no waiting, no dependence on a pusher that was
//! preempted half-way (a queue with a tail swap has that gap). There is no ABA problem, because nobody takes out
//! single nodes: a pusher only needs `head` to be what it wrote into its node's link, however often it changed in between.
//!
//! **Only the push that found it empty has to wake the owner.** Say push B found the inbox not empty. Then an earlier push A found it
//! empty and the owner has not taken anything since, so B's node will leave with A's. A's pusher, after its push, calls
//! `Idle::wake_directed`; that, and the owner's second look before it sleeps, make sure the owner takes A's node
//! (see `idle.rs`), and it takes everything at once. If A's pusher is preempted between push and wake, B's node waits as long as
//! A's; it is late, not lost.
//!
//! Invariants: a node in the inbox, or in a batch not yet handed out, has a link that is not null; the owner alone takes out;
//! after a successful push the pusher does not touch the node again, since it may already run, or be gone.

use std::fmt;
use std::ptr::{self, NonNull};

use super::{Linked, end_of_list};
use crate::prim::CacheLine;
use crate::prim::atomic::{AtomicPtr, Ordering};
use crate::prim::bug::seeded_bug;

pub(crate) struct Inbox<T> {
    /// The newest node, or null. On a line of its own: other threads write it, the owner looks at it all the time.
    head: CacheLine<AtomicPtr<T>>,
}

impl<T: Linked> Inbox<T> {
    pub(crate) fn new() -> Self {
        Self { head: CacheLine(AtomicPtr::new(ptr::null_mut())) }
    }

    /// Puts a node in. True if the inbox was empty: only then may its owner need a wake.
    ///
    /// # Safety
    /// The node is in no list, and stays valid, and unlinked by others, until the owner has taken it out. The caller does not
    /// touch it afterwards unless it knows by other means that it is still there.
    #[must_use = "true: the owner may sleep and must be woken"]
    pub(crate) unsafe fn push(&self, node: NonNull<T>) -> bool {
        // SAFETY: the caller promises that the node is valid; until the compare-exchange succeeds nobody else knows it.
        let link = unsafe { node.as_ref() }.link();
        debug_assert!(link.load(Ordering::Relaxed).is_null(), "a node is queued twice");
        // Relaxed: only a first guess for the compare-exchange.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by the compare-exchange below.
            link.store(if head.is_null() { end_of_list() } else { head }, Ordering::Relaxed);
            // Its release half pairs with the acquire in `take_all`; being read-modify-writes, later pushes keep the release of
            // earlier ones alive. SeqCst: the first half of the handshake with the sleeper's `is_empty_handshake`.
            let published = if seeded_bug("inbox_push_relaxed") { Ordering::Relaxed } else { Ordering::SeqCst };
            match self.head.compare_exchange_weak(head, node.as_ptr(), published, Ordering::Relaxed) {
                Ok(_) if seeded_bug("inbox_wake_inverted") => return !head.is_null(),
                Ok(_) => return head.is_null(),
                Err(now) => head = now,
            }
        }
    }

    /// Takes everything out, oldest first. The caller is the owner.
    ///
    /// Nodes that the batch has not handed out yet still count as queued; dropping it early would lose them.
    ///
    /// # Safety
    /// Only one thread, the owner, calls this.
    #[inline]
    pub(crate) unsafe fn take_all(&self) -> Batch<T> {
        if self.is_empty() {
            return Batch { next: end_of_list() };
        }
        // Acquire: pairs with the release of every push since the last time.
        let newest = self.head.swap(ptr::null_mut(), Ordering::Acquire);
        Batch { next: reverse(newest) }
    }

    /// A look for the hot path; may miss what is just being pushed.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: a hint. Whoever acts on "not empty" swaps with acquire; whoever sleeps on "empty" uses the handshake variant.
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// The look of a worker that has announced its sleep (a SeqCst read-modify-write): either this sees a push, or the pusher sees the
    /// announcement.
    pub(crate) fn is_empty_handshake(&self) -> bool {
        // SeqCst: second half of the handshake; the first halves are the compare-exchange in `push` and `Idle::announce_sleep`.
        self.head.load(Ordering::SeqCst).is_null()
    }
}

/// Turns a chain of nodes round and returns its new first node.
fn reverse<T: Linked>(newest: *mut T) -> *mut T {
    let mut done = end_of_list();
    let mut node = newest;
    while node != end_of_list() {
        // SAFETY: `node` was in the inbox, so it is valid by the promise made at `push`; it is now the owner's alone.
        let link = unsafe { (*node).link() };
        // Relaxed: the swap in `take_all` acquired the links; from here on only the owner touches them.
        let next = link.load(Ordering::Relaxed);
        link.store(done, Ordering::Relaxed);
        done = node;
        node = next;
    }
    done
}

impl<T> fmt::Debug for Inbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for people to read.
        f.debug_struct("Inbox").field("empty", &self.head.load(Ordering::Relaxed).is_null()).finish()
    }
}

/// What the owner took out, oldest first. Each node is unlinked, and its successor known, before it is handed out: it may run,
/// end and be queued elsewhere before the next one is asked for.
#[must_use = "a batch that is dropped loses its nodes"]
pub(crate) struct Batch<T> {
    next: *mut T,
}

impl<T: Linked> Iterator for Batch<T> {
    type Item = NonNull<T>;

    #[inline]
    fn next(&mut self) -> Option<NonNull<T>> {
        if self.next == end_of_list() {
            return None;
        }
        let node = NonNull::new(self.next).expect("a node in a batch was unlinked by somebody else");
        // SAFETY: the node is in this batch, so it is valid by the promise made at `push`.
        let link = unsafe { node.as_ref() }.link();
        // Relaxed: only the owner touches the links of its batch.
        self.next = link.load(Ordering::Relaxed);
        link.store(ptr::null_mut(), Ordering::Relaxed);
        Some(node)
    }
}

impl<T> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("done", &(self.next == end_of_list())).finish()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::is_linked;
    use super::*;

    struct Node {
        link: AtomicPtr<Node>,
        producer: usize,
        value: u32,
    }

    // SAFETY: one cell, null in a new node, written by the list only.
    unsafe impl Linked for Node {
        fn link(&self) -> &AtomicPtr<Self> {
            &self.link
        }
    }

    fn node(producer: usize, value: u32) -> NonNull<Node> {
        NonNull::from(Box::leak(Box::new(Node { link: AtomicPtr::new(ptr::null_mut()), producer, value })))
    }

    /// The box of a node that was taken out.
    fn unbox(node: NonNull<Node>) -> Box<Node> {
        // SAFETY: made by `node` above; it left the inbox, so it is ours alone.
        unsafe { Box::from_raw(node.as_ptr()) }
    }

    // S1-30.
    #[test]
    fn batches_are_in_order_and_only_the_first_push_reports() {
        let inbox = Inbox::new();
        assert!(inbox.is_empty() && inbox.is_empty_handshake());
        // SAFETY: here and below, new nodes, freed after they were taken out; this thread is the owner.
        assert_eq!(unsafe { inbox.take_all() }.count(), 0);
        // SAFETY: as above.
        assert!(unsafe { inbox.push(node(0, 0)) }, "it was empty");
        // SAFETY: as above.
        assert!((1..5).all(|value| !unsafe { inbox.push(node(0, value)) }), "it was not");
        assert!(!inbox.is_empty() && !inbox.is_empty_handshake());
        // SAFETY: as above.
        let mut batch = unsafe { inbox.take_all() };
        assert!(inbox.is_empty());
        // SAFETY: as above.
        assert!(unsafe { inbox.push(node(0, 5)) }, "taken whole, so it was empty again");
        let first = batch.next().unwrap();
        // SAFETY: the node is ours now.
        assert!(!is_linked(unsafe { first.as_ref() }), "handed out unlinked");
        // It may go straight back in while the batch is still being read.
        // SAFETY: as above.
        assert!(!unsafe { inbox.push(first) });
        assert_eq!(batch.map(|node| unbox(node).value).collect::<Vec<_>>(), [1, 2, 3, 4]);
        // SAFETY: as above.
        assert_eq!(unsafe { inbox.take_all() }.map(|node| unbox(node).value).collect::<Vec<_>>(), [5, 0]);
    }

    // S0-06: a node that is in the inbox cannot be put in again, be it the last of the chain.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "queued twice")]
    fn inserting_twice_is_found() {
        let inbox = Inbox::new();
        // On this test's stack: the panic leaves it in the inbox, which does not own it.
        let node = Node { link: AtomicPtr::new(ptr::null_mut()), producer: 0, value: 0 };
        let node = NonNull::from(&node);
        // SAFETY: the assertion under test holds off the second insertion.
        let _ = unsafe { inbox.push(node) };
        // SAFETY: as above.
        let _ = unsafe { inbox.push(node) };
    }

    #[test]
    fn many_producers_one_owner() {
        const PRODUCERS: usize = 3;
        const EACH: u32 = 30_000;
        let inbox = Inbox::new();
        let mut next = [0; PRODUCERS];
        std::thread::scope(|scope| {
            for producer in 0..PRODUCERS {
                let inbox = &inbox;
                scope.spawn(move || {
                    for value in 0..EACH {
                        // SAFETY: a new node, freed after it was taken out.
                        let _ = unsafe { inbox.push(node(producer, value)) };
                    }
                });
            }
            while next.iter().sum::<u32>() < EACH * PRODUCERS as u32 {
                // SAFETY: this thread is the owner.
                for node in unsafe { inbox.take_all() } {
                    let node = unbox(node);
                    assert_eq!(node.value, next[node.producer], "lost, doubled or out of order");
                    next[node.producer] += 1;
                }
                std::thread::yield_now();
            }
        });
        assert!(inbox.is_empty());
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model {
    use super::*;
    use crate::prim::cell::UnsafeCell;
    use crate::prim::model::{check, thread};
    use crate::prim::sync::{Arc, Condvar, Mutex};
    use crate::sched::idle::Idle;

    struct Node {
        link: AtomicPtr<Node>,
        producer: usize,
        /// Written before the push, read after the node was taken out: loom finds out if the two are not ordered.
        value: UnsafeCell<u32>,
    }

    // SAFETY: one cell, null in a new node, written by the list only.
    unsafe impl Linked for Node {
        fn link(&self) -> &AtomicPtr<Self> {
            &self.link
        }
    }

    fn node(producer: usize, value: u32) -> NonNull<Node> {
        let node = Node { link: AtomicPtr::new(ptr::null_mut()), producer, value: UnsafeCell::new(0) };
        // SAFETY: not shared yet.
        node.value.with_mut(|place| unsafe { *place = value });
        NonNull::from(Box::leak(Box::new(node)))
    }

    /// The owner's mailbox, its idle state, and something to block on.
    struct World {
        inbox: Inbox<Node>,
        idle: Idle,
        kicked: Mutex<bool>,
        bell: Condvar,
    }

    // SAFETY: the nodes are reached through the inbox, whose protocol is under test.
    unsafe impl Sync for World {}
    // SAFETY: as above.
    unsafe impl Send for World {}

    /// Two pushers with `each` items, an owner that sleeps whenever there is nothing. Only pushes that found the inbox empty wake.
    fn model(each: u32, preemptions: usize) {
        check(preemptions, move || {
            let world = Arc::new(World {
                inbox: Inbox::new(),
                idle: Idle::new(1),
                kicked: Mutex::new(false),
                bell: Condvar::new(),
            });
            let pushers: Vec<_> = (0..2)
                .map(|producer| {
                    let world = world.clone();
                    thread::spawn(move || {
                        for value in 0..each {
                            // SAFETY: a new node, freed by the owner after it was taken out.
                            let was_empty = unsafe { world.inbox.push(node(producer, value)) };
                            if was_empty && world.idle.wake_directed(0) {
                                *world.kicked.lock() = true;
                                world.bell.notify_one();
                            }
                        }
                    })
                })
                .collect();
            let mut next = [0; 2];
            loop {
                // SAFETY: this thread is the owner.
                for node in unsafe { world.inbox.take_all() } {
                    // SAFETY: made by `node`, taken out, so ours alone.
                    let node = unsafe { Box::from_raw(node.as_ptr()) };
                    // SAFETY: as above.
                    let value = node.value.with(|place| unsafe { *place });
                    assert_eq!(value, next[node.producer], "lost, doubled or out of order");
                    next[node.producer] += 1;
                }
                if next == [each; 2] {
                    break;
                }
                world.idle.announce_sleep(0);
                if world.inbox.is_empty_handshake() {
                    let mut kicked = world.kicked.lock();
                    while !*kicked {
                        kicked = world.bell.wait(kicked);
                    }
                    *kicked = false;
                }
                let _ = world.idle.woke(0);
            }
            for pusher in pushers {
                pusher.join().unwrap();
            }
        });
    }

    // X-04, S1-30: two pushers; only the one that found the inbox empty wakes, and nothing stays behind.
    #[test]
    fn model_two_pushers_and_a_sleeping_owner() {
        model(1, 3);
    }

    // Order per pusher, across batches.
    #[test]
    fn model_order_per_pusher() {
        model(2, 1);
    }
}
