//! A mesh: the addresses of the event loops that reach each other, and the seats in it.
//!
//! Above: `routing`, `rounds`, `event_loop`, `call`. Below: `mail`.
//!
//! The loops of a mesh have consecutive numbers. A mesh of [`EventLoop`](super::EventLoop)s begins at 0. The mesh of a
//! runtime, one loop per worker, begins at a number that no other runtime of the process has, so that the address of
//! one runtime's machine is unknown in another runtime, instead of naming another machine there.
//!
//! Invariant: a post is closed when its loop has ended, or its seat was dropped: what is sent to it then comes back at once.

use std::fmt;

use super::mail::Post;
use super::port::Messages;
use super::routing::unreachable_now;
use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::sync::Arc;

/// The first number of the loops of runtimes: far above the numbers of a mesh that user code makes ([`Seat::mesh`]).
const RUNTIMES: u32 = 1 << 24;

/// The addresses of some loops.
#[derive(Debug)]
pub(crate) struct Mesh {
    first: u32,
    posts: Box<[Arc<Post>]>,
}

impl Mesh {
    fn numbered(first: u32, loops: u32) -> Arc<Self> {
        Arc::new(Self { first, posts: (first..first + loops).map(|thread| Arc::new(Post::new(thread))).collect() })
    }

    /// One loop for each worker of a runtime.
    pub(crate) fn of_workers(workers: usize) -> Arc<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(RUNTIMES);
        let loops = u32::try_from(workers).expect("workers are few");
        // After 2^32 workers it begins again: by then the first runtimes are gone.
        let start = |next: u32| if next.checked_add(loops).is_some() { next } else { RUNTIMES };
        // Relaxed: unique, that is all.
        let next = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| start(next).checked_add(loops));
        let (Ok(next) | Err(next)) = next;
        let first = start(next);
        Self::numbered(first, loops)
    }

    pub(super) fn posts(&self) -> &[Arc<Post>] {
        &self.posts
    }

    /// The index of a loop in [`Mesh::posts`].
    pub(crate) fn index(&self, thread: u32) -> Option<usize> {
        let index = thread.checked_sub(self.first)? as usize;
        (index < self.posts.len()).then_some(index)
    }

    pub(super) fn post(&self, thread: u32) -> Option<&Arc<Post>> {
        self.posts.get(self.index(thread)?)
    }

    /// A machine's address on the loop with this index, for one that is about to be there.
    pub(crate) fn number_machine(&self, index: usize) -> super::MachineRef {
        let post = &self.posts[index];
        super::MachineRef { thread: post.thread, machine: post.number_machine() }
    }

    /// The seat of the loop with this index. The caller ensures that each seat is taken once.
    pub(crate) fn seat(self: &Arc<Self>, index: usize) -> Seat {
        Seat { post: self.posts[index].clone(), mesh: self.clone(), taken: false }
    }
}

/// A place in a mesh of event loops: send it to a thread and make the loop there, with [`EventLoop::at`](super::EventLoop::at).
#[derive(Debug)]
pub struct Seat {
    pub(super) post: Arc<Post>,
    pub(super) mesh: Arc<Mesh>,
    /// The loop took it over: what is sent to it is not lost with the seat.
    pub(super) taken: bool,
}

impl Seat {
    /// A mesh of so many loops, one seat for each. They reach each other's machines by [`MachineRef`](super::MachineRef).
    ///
    /// # Panics
    /// If there is no seat, or more than 2^24.
    pub fn mesh(loops: usize) -> Vec<Self> {
        assert!(loops > 0, "fibra: a mesh has at least one loop");
        assert!(loops <= RUNTIMES as usize, "fibra: a mesh has at most {RUNTIMES} loops, not {loops}");
        let mesh = Mesh::numbered(0, loops as u32);
        (0..loops).map(|index| mesh.seat(index)).collect()
    }

    /// The number of this loop in the mesh.
    pub fn thread(&self) -> u32 {
        self.post.thread
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.taken {
            discard(&self.post);
        }
    }
}

/// Ends a loop from any thread. While one is there, the loop does not end for want of work.
pub struct Stopper {
    post: Arc<Post>,
}

impl Stopper {
    pub(super) fn new(post: &Arc<Post>) -> Self {
        post.enter();
        Self { post: post.clone() }
    }

    /// Ends the loop, in order, after its current round.
    pub fn stop(&self) {
        self.post.stop();
    }
}

impl Clone for Stopper {
    fn clone(&self) -> Self {
        Self::new(&self.post)
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.post.leave();
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopper").field("thread", &self.post.thread).finish()
    }
}

/// Closes the mail of a loop. What is in it ends or goes home.
pub(super) fn discard(post: &Post) {
    // SAFETY: what is in the mail was given up for it, and is taken out once.
    unsafe { Messages::new(post.mail.close()) }.for_each(unreachable_now);
}
