//! The one queue of many producers and one owner: intrusive, lock-free, and it can be closed.
//!
//! Above: the inbox of a worker (`sched/reach.rs`: started fibers that other threads woke), the mail of an event loop
//! (`machine/mail.rs`: operations), and what comes back to a pool of operations (`machine/pool.rs`). Below: atomics and
//! [`Linked`].
//!
//! A stack of nodes that the owner takes whole with one swap and turns round, so that each [`Batch`] is in the order of arrival, and
//! batches are too. Pushing is a compare-exchange loop, of one node or of a whole [`Chain`]: no allocation, no waiting, no dependence
//! on a pusher that was preempted half-way (a queue with a tail swap has that gap). There is no ABA problem, because no thread takes out
//! single nodes: a pusher only needs `head` to be what it wrote into its node's link, however often it changed in between.
//!
//! **Only the push that found it empty has to wake the owner.** Say push B found the queue not empty. Then an earlier push A found it
//! empty and the owner has not taken anything since, so B's node will leave with A's. A's pusher, after its push, looks whether the owner
//! sleeps; that, and the owner's second look before it sleeps ([`Mpsc::is_empty_handshake`]), make sure the owner takes A's
//! node, and it takes everything at once. If A's pusher is preempted between push and wake, B's node waits as long as A's; it is late, not
//! lost. Each owner has its own way to announce that it sleeps: `sched/idle.rs` for workers, `machine/mail.rs` for event loops.
//!
//! Invariants:
//! * a node in the queue, or in a batch not yet handed out, has a link that is not null; the owner alone takes out;
//! * after a successful push the pusher does not touch the node again, since it may already run, or be gone;
//! * once closed, the queue takes nothing any more: a pusher is told so and keeps what it brought, whose last link is as it was.

use std::fmt;
use std::ptr::{self, NonNull};

use super::atomic::{AtomicPtr, Ordering, handshake_is};
use super::bug::seeded_bug;
use super::linked::{Linked, end_of_list, is_linked};

/// The owner is gone; the pusher keeps what it wanted to push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

pub(crate) struct Mpsc<T> {
    /// The newest node; [`end_of_list`]: empty; null: closed.
    head: AtomicPtr<T>,
}

impl<T: Linked> Mpsc<T> {
    pub(crate) fn new() -> Self {
        Self { head: AtomicPtr::new(end_of_list()) }
    }

    /// Puts a node in. True if the queue was empty: only then may its owner need a wake.
    ///
    /// # Safety
    /// The node is in no list, and stays valid, and unlinked by others, until the owner has taken it out. After a success the caller
    /// does not touch it unless it knows by other means that it is still there.
    #[must_use = "Ok(true): the owner may sleep and must be woken"]
    pub(crate) unsafe fn push(&self, node: NonNull<T>) -> Result<bool, Closed> {
        // Checked in models too, where a node that is queued twice would end the process before the checker can report it.
        // SAFETY: the caller promises that the node is valid; until it is published no other thread knows it.
        let is_queued = || is_linked(unsafe { node.as_ref() });
        assert!(!cfg!(any(debug_assertions, loom, shuttle)) || !is_queued(), "a node is queued twice");
        // SAFETY: a chain of one.
        let pushed = unsafe { self.put(node, node) };
        if pushed.is_err() {
            // SAFETY: it was not taken. Relaxed: it is the caller's.
            unsafe { node.as_ref() }.link().store(ptr::null_mut(), Ordering::Relaxed);
        }
        pushed
    }

    /// Puts a whole chain in, which must not be empty; after a success it is empty. True: as for [`Mpsc::push`].
    ///
    /// # Safety
    /// As for [`Mpsc::push`], for each of its nodes.
    #[must_use = "Ok(true): the owner may sleep and must be woken"]
    pub(crate) unsafe fn push_chain(&self, chain: &mut Chain<T>) -> Result<bool, Closed> {
        debug_assert!(!chain.is_empty(), "nothing to push");
        // SAFETY: the chain is not empty, so both are nodes of it, and valid as the caller promises.
        let pushed = unsafe { self.put(NonNull::new_unchecked(chain.newest), NonNull::new_unchecked(chain.oldest)) };
        if pushed.is_ok() {
            *chain = Chain::new();
        }
        pushed
    }

    /// # Safety
    /// `newest` leads by its links to `oldest`, whose own link may be written; else as for [`Mpsc::push`].
    #[inline(always)]
    unsafe fn put(&self, newest: NonNull<T>, oldest: NonNull<T>) -> Result<bool, Closed> {
        // SAFETY: the caller promises that the nodes are valid; until the compare-exchange succeeds no other thread knows them.
        let link = unsafe { oldest.as_ref() }.link();
        // Relaxed: only a first guess for the compare-exchange.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head.is_null() {
                if !seeded_bug("mpsc_closed_mid_chain") {
                    // A try that failed has linked the chain to another pusher's: restore its end. Relaxed: it is the caller's.
                    link.store(end_of_list(), Ordering::Relaxed);
                }
                return Err(Closed);
            }
            // Relaxed: published by the compare-exchange below.
            link.store(head, Ordering::Relaxed);
            // Its release half pairs with the acquire in `take_newest_first` and `close`; being read-modify-writes, later pushes keep the
            // release of earlier ones alive. SeqCst: the first half of the handshake with the sleeper's `is_empty_handshake`.
            let published = if seeded_bug("mpsc_push_relaxed") { Ordering::Relaxed } else { Ordering::SeqCst };
            match self.head.compare_exchange_weak(head, newest.as_ptr(), published, Ordering::Relaxed) {
                Ok(_) if seeded_bug("mpsc_first_inverted") => return Ok(head != end_of_list()),
                Ok(_) => return Ok(head == end_of_list()),
                Err(now) => head = now,
            }
        }
    }

    /// Takes everything out, oldest first. Only the owner calls this, or two takers would mix their orders.
    #[inline]
    pub(crate) fn take_all(&self) -> Batch<T> {
        self.take_newest_first().turned()
    }

    /// Takes everything out, newest first, for an owner that needs no order. Only the owner calls this.
    #[inline]
    pub(crate) fn take_newest_first(&self) -> Batch<T> {
        // Relaxed: a hint; an owner that sleeps on "empty" uses the handshake variant.
        let head = self.head.load(Ordering::Relaxed);
        if head.is_null() || head == end_of_list() {
            return Batch { next: end_of_list() };
        }
        // Acquire: pairs with the release of every push since the last time.
        Batch { next: self.head.swap(end_of_list(), Ordering::Acquire) }
    }

    /// Lets nothing in any more, and takes out what is there, oldest first. Only the owner calls this.
    pub(crate) fn close(&self) -> Batch<T> {
        // AcqRel: acquire pairs with every push; release is for pushers that find it closed.
        let head = self.head.swap(ptr::null_mut(), Ordering::AcqRel);
        Batch { next: if head.is_null() { end_of_list() } else { head } }.turned()
    }

    /// How many nodes are in it. Only the owner calls this: no other thread takes nodes out, so the nodes stay while it counts.
    pub(crate) fn length(&self) -> usize {
        // Acquire: pairs with the release of every push, for the links.
        let head = self.head.load(Ordering::Acquire);
        if head.is_null() { 0 } else { Batch { next: head }.left() }
    }

    /// A look for the hot path; may miss a node that is just being pushed.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: a hint. An owner that acts on "not empty" swaps with acquire; one that sleeps on "empty" uses the handshake variant.
        self.head.load(Ordering::Relaxed) == end_of_list()
    }

    /// The look of an owner that has announced its sleep by a SeqCst read-modify-write: either this sees a push, or the pusher, whose push
    /// is such a read-modify-write too, sees the announcement.
    pub(crate) fn is_empty_handshake(&self) -> bool {
        // Second half of the handshake; the first halves are the compare-exchange in `put` and the owner's announcement.
        handshake_is(&self.head, end_of_list())
    }
}

impl<T> fmt::Debug for Mpsc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for people to read.
        f.debug_struct("Mpsc").field("empty", &(self.head.load(Ordering::Relaxed) == end_of_list())).finish()
    }
}

/// Nodes that one thread collects, to push them in one step, or for its own use.
pub(crate) struct Chain<T> {
    /// [`end_of_list`] if there is none.
    newest: *mut T,
    /// Null if there is none.
    oldest: *mut T,
}

impl<T: Linked> Chain<T> {
    pub(crate) fn new() -> Self {
        Self { newest: end_of_list(), oldest: ptr::null_mut() }
    }

    /// # Safety
    /// The node is in no list, and stays valid, and unlinked by others, until it is taken out.
    pub(crate) unsafe fn push(&mut self, node: NonNull<T>) {
        // SAFETY: the caller promises that it is valid. Relaxed: the chain is its owner's alone.
        unsafe { node.as_ref() }.link().store(self.newest, Ordering::Relaxed);
        self.newest = node.as_ptr();
        if self.oldest.is_null() {
            self.oldest = node.as_ptr();
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest.is_null()
    }

    /// Takes everything out, oldest first.
    pub(crate) fn take_all(&mut self) -> Batch<T> {
        self.take_newest_first().turned()
    }

    /// Takes everything out, newest first.
    pub(crate) fn take_newest_first(&mut self) -> Batch<T> {
        Batch { next: std::mem::replace(self, Self::new()).newest }
    }
}

impl<T> fmt::Debug for Chain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("empty", &self.oldest.is_null()).finish()
    }
}

/// The nodes that the owner took out. Each node is unlinked, and its successor known, before it is handed out: it may run,
/// end and be queued elsewhere before the next one is asked for. Nodes that were not handed out yet still count as queued.
#[must_use = "a batch that is dropped loses its nodes"]
pub(crate) struct Batch<T> {
    next: *mut T,
}

impl<T: Linked> Batch<T> {
    /// How many were not handed out yet.
    pub(crate) fn left(&self) -> usize {
        let (mut count, mut node) = (0, self.next);
        while node != end_of_list() {
            // SAFETY: in the batch, so valid by the promise made at `push`. Relaxed: only the owner touches the links of its batch.
            node = unsafe { (*node).link().load(Ordering::Relaxed) };
            count += 1;
        }
        count
    }

    /// The same nodes in the opposite order.
    #[inline]
    fn turned(self) -> Self {
        let (mut done, mut node) = (end_of_list(), self.next);
        while node != end_of_list() {
            // SAFETY: `node` was in a queue, so it is valid by the promise made at `push`; it is now the owner's alone.
            let link = unsafe { (*node).link() };
            // Relaxed: taking it out acquired the links; from here on only the owner touches them.
            let next = link.load(Ordering::Relaxed);
            link.store(done, Ordering::Relaxed);
            (done, node) = (node, next);
        }
        Self { next: done }
    }
}

impl<T: Linked> Iterator for Batch<T> {
    type Item = NonNull<T>;

    #[inline]
    fn next(&mut self) -> Option<NonNull<T>> {
        if self.next == end_of_list() {
            return None;
        }
        let node = NonNull::new(self.next).expect("a node in a batch was unlinked by another owner");
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
    use super::*;

    struct MpscNode {
        link: AtomicPtr<MpscNode>,
        producer: usize,
        value: u32,
    }

    // SAFETY: one cell, null in a new node, written by the list only.
    unsafe impl Linked for MpscNode {
        fn link(&self) -> &AtomicPtr<Self> {
            &self.link
        }
    }

    fn node(producer: usize, value: u32) -> NonNull<MpscNode> {
        NonNull::from(Box::leak(Box::new(MpscNode { link: AtomicPtr::new(ptr::null_mut()), producer, value })))
    }

    /// The box of a node that was taken out.
    fn unbox(node: NonNull<MpscNode>) -> Box<MpscNode> {
        // SAFETY: made by `node` above; it left the queue, so it is ours alone.
        unsafe { Box::from_raw(node.as_ptr()) }
    }

    fn values(batch: Batch<MpscNode>) -> Vec<u32> {
        batch.map(|node| unbox(node).value).collect()
    }

    // S1-30.
    #[test]
    fn batches_are_in_order_and_only_the_first_push_reports() {
        let queue = Mpsc::new();
        assert!(queue.is_empty() && queue.is_empty_handshake());
        assert_eq!(queue.take_all().count(), 0);
        // SAFETY: here and below, new nodes, freed after they were taken out; this thread is the owner.
        assert_eq!(unsafe { queue.push(node(0, 0)) }, Ok(true), "it was empty");
        // SAFETY: as above.
        assert!((1..5).all(|value| unsafe { queue.push(node(0, value)) } == Ok(false)), "it was not");
        assert!(!queue.is_empty() && !queue.is_empty_handshake());
        assert_eq!(queue.length(), 5);
        let mut batch = queue.take_all();
        assert_eq!((queue.length(), batch.left()), (0, 5));
        assert!(queue.is_empty());
        // SAFETY: as above.
        assert_eq!(unsafe { queue.push(node(0, 5)) }, Ok(true), "taken whole, so it was empty again");
        let first = batch.next().unwrap();
        assert_eq!((queue.length(), batch.left()), (1, 4));
        // SAFETY: the node is ours now.
        assert!(!is_linked(unsafe { first.as_ref() }), "handed out unlinked");
        // It may go straight back in while the batch is still being read.
        // SAFETY: as above.
        assert_eq!(unsafe { queue.push(first) }, Ok(false));
        assert_eq!(values(batch), [1, 2, 3, 4]);
        assert_eq!(values(queue.take_all()), [5, 0]);
    }

    #[test]
    fn chains_go_in_whole_and_come_back_whole_from_a_closed_queue() {
        let (queue, mut chain) = (Mpsc::new(), Chain::new());
        for value in 0..3 {
            // SAFETY: here and below, new nodes, freed after they were taken out; this thread is the owner.
            unsafe { chain.push(node(0, value)) };
        }
        // SAFETY: as above.
        assert_eq!(unsafe { queue.push_chain(&mut chain) }, Ok(true));
        assert!(chain.is_empty());
        for value in 3..5 {
            // SAFETY: as above.
            unsafe { chain.push(node(0, value)) };
        }
        // SAFETY: as above.
        assert_eq!(unsafe { queue.push_chain(&mut chain) }, Ok(false));
        assert_eq!(values(queue.close()), [0, 1, 2, 3, 4]);
        for value in 5..7 {
            // SAFETY: as above.
            unsafe { chain.push(node(0, value)) };
        }
        // SAFETY: as above.
        assert_eq!(unsafe { queue.push_chain(&mut chain) }, Err(Closed));
        let alone = node(0, 7);
        // SAFETY: as above; refused, it is ours.
        assert!(unsafe { queue.push(alone) == Err(Closed) && !is_linked(alone.as_ref()) });
        drop(unbox(alone));
        assert_eq!((queue.take_all().count(), queue.close().count()), (0, 0), "closed for good");
        assert_eq!(values(chain.take_all()), [5, 6]);
    }

    // S3-26, S1-30: the one place that other threads write to is an atomic, and nothing that could be locked.
    #[test]
    fn it_has_no_lock() {
        let Mpsc { head } = Mpsc::<MpscNode>::new();
        let _: AtomicPtr<MpscNode> = head;
    }

    // S0-06: a node that is in the queue cannot be put in again, be it the last of the chain.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "queued twice")]
    fn inserting_twice_is_found() {
        let queue = Mpsc::new();
        // On this test's stack: the panic leaves it in the queue, which does not own it.
        let node = MpscNode { link: AtomicPtr::new(ptr::null_mut()), producer: 0, value: 0 };
        let node = NonNull::from(&node);
        // SAFETY: the assertion under test holds off the second insertion.
        let _ = unsafe { queue.push(node) };
        // SAFETY: as above.
        let _ = unsafe { queue.push(node) };
    }

    #[test]
    fn many_producers_one_owner() {
        const PRODUCERS: usize = 3;
        const EACH: u32 = 30_000;
        let queue = Mpsc::new();
        let mut next = [0; PRODUCERS];
        std::thread::scope(|scope| {
            for producer in 0..PRODUCERS {
                let queue = &queue;
                scope.spawn(move || {
                    for value in 0..EACH {
                        // SAFETY: a new node, freed after it was taken out.
                        let _ = unsafe { queue.push(node(producer, value)) };
                    }
                });
            }
            while next.iter().sum::<u32>() < EACH * PRODUCERS as u32 {
                for node in queue.take_all() {
                    let node = unbox(node);
                    assert_eq!(node.value, next[node.producer], "lost, doubled or out of order");
                    next[node.producer] += 1;
                }
                std::thread::yield_now();
            }
        });
        assert!(queue.is_empty());
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model {
    use super::*;
    use crate::prim::atomic::AtomicBool;
    use crate::prim::cell::UnsafeCell;
    use crate::prim::model::{check, thread};
    use crate::prim::sync::{Arc, Condvar, Mutex};

    struct MpscNode {
        link: AtomicPtr<MpscNode>,
        producer: usize,
        /// Written before the push, read after the node was taken out: loom finds out if the two are not ordered.
        value: UnsafeCell<u32>,
    }

    // SAFETY: one cell, null in a new node, written by the list only.
    unsafe impl Linked for MpscNode {
        fn link(&self) -> &AtomicPtr<Self> {
            &self.link
        }
    }

    fn node(producer: usize, value: u32) -> NonNull<MpscNode> {
        let node = MpscNode { link: AtomicPtr::new(ptr::null_mut()), producer, value: UnsafeCell::new(0) };
        // SAFETY: not shared yet.
        node.value.with_mut(|place| unsafe { *place = value });
        NonNull::from(Box::leak(Box::new(node)))
    }

    /// Frees a batch; returns for each node its producer and its value.
    fn read(batch: Batch<MpscNode>) -> Vec<(usize, u32)> {
        let free = |node: NonNull<MpscNode>| {
            // SAFETY: made by `node`, taken out, so ours alone.
            let node = unsafe { Box::from_raw(node.as_ptr()) };
            // SAFETY: as above.
            (node.producer, node.value.with(|place| unsafe { *place }))
        };
        batch.map(free).collect()
    }

    /// The queue, whether its owner sleeps, and something to block on.
    struct World {
        queue: Mpsc<MpscNode>,
        asleep: AtomicBool,
        kicked: Mutex<bool>,
        bell: Condvar,
    }

    // SAFETY: the nodes are reached through the queue, whose protocol is under test.
    unsafe impl Sync for World {}
    // SAFETY: as above.
    unsafe impl Send for World {}

    impl World {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                queue: Mpsc::new(),
                asleep: AtomicBool::new(false),
                kicked: Mutex::new(false),
                bell: Condvar::new(),
            })
        }

        /// As pushers do: only one that found the queue empty looks whether the owner sleeps.
        fn pushed(&self, was_empty: bool) {
            if was_empty && self.asleep.swap(false, Ordering::SeqCst) {
                *self.kicked.lock() = true;
                self.bell.notify_one();
            }
        }

        fn sleep(&self) {
            self.asleep.swap(true, Ordering::SeqCst);
            if self.queue.is_empty_handshake() {
                let mut kicked = self.kicked.lock();
                while !*kicked {
                    kicked = self.bell.wait(kicked);
                }
                *kicked = false;
            }
            self.asleep.swap(false, Ordering::SeqCst);
        }
    }

    /// Two pushers, an owner that sleeps whenever there is nothing. The first pushes `each` nodes, the second a chain of as many.
    fn pushers_and_a_sleeping_owner(each: u32, preemptions: usize) {
        check(preemptions, move || {
            let world = World::new();
            let pushers: Vec<_> = (0..2)
                .map(|producer| {
                    let world = world.clone();
                    thread::spawn(move || {
                        let mut chain = Chain::new();
                        for value in 0..each {
                            if producer == 0 {
                                // SAFETY: a new node, freed by the owner after it was taken out.
                                world.pushed(unsafe { world.queue.push(node(producer, value)) }.unwrap());
                            } else {
                                // SAFETY: as above.
                                unsafe { chain.push(node(producer, value)) };
                            }
                        }
                        if !chain.is_empty() {
                            // SAFETY: as above.
                            world.pushed(unsafe { world.queue.push_chain(&mut chain) }.unwrap());
                        }
                    })
                })
                .collect();
            let mut next = [0; 2];
            loop {
                for (producer, value) in read(world.queue.take_all()) {
                    assert_eq!(value, next[producer], "lost, doubled or out of order");
                    next[producer] += 1;
                }
                if next == [each; 2] {
                    break;
                }
                world.sleep();
            }
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        });
    }

    // X-04, S1-30, S1-25, S4-122: two pushers; only the one that found the queue empty wakes, and nothing stays behind.
    #[test]
    fn model_two_pushers_and_a_sleeping_owner() {
        pushers_and_a_sleeping_owner(1, 3);
    }

    // Order per pusher, across batches.
    #[test]
    fn model_order_per_pusher() {
        pushers_and_a_sleeping_owner(2, 1);
    }

    // Two pushers meet a queue that closes: the nodes of each are in what the owner took, or the pusher has its own chain again, and no
    // more.
    #[test]
    fn model_chains_against_close() {
        check(3, || {
            let world = World::new();
            // Nothing is freed before all have looked: with a bug a chain may lead to the other pusher's node.
            let nodes = [node(0, 7), node(1, 7)];
            let pushers: Vec<_> = (0..2)
                .map(|producer| {
                    let (world, node) = (world.clone(), nodes[producer].as_ptr().expose_provenance());
                    thread::spawn(move || {
                        let mut chain = Chain::new();
                        let node = std::ptr::with_exposed_provenance_mut::<MpscNode>(node);
                        // SAFETY: a new node, of which no other thread knows.
                        unsafe { chain.push(NonNull::new_unchecked(node)) };
                        // SAFETY: as above.
                        if unsafe { world.queue.push_chain(&mut chain) }.is_ok() {
                            return 0;
                        }
                        let back: Vec<_> = chain.take_newest_first().map(NonNull::as_ptr).collect();
                        assert_eq!(back, [node], "the chain holds the other pusher's node, too");
                        back.len()
                    })
                })
                .collect();
            let taken = world.queue.close().count();
            let back: usize = pushers.into_iter().map(|pusher| pusher.join().unwrap()).sum();
            assert_eq!(taken + back, 2, "taken or given back");
            // SAFETY: made of boxes by `node`, and in no list any more.
            nodes.into_iter().for_each(|node| drop(unsafe { Box::from_raw(node.as_ptr()) }));
        });
    }
}
