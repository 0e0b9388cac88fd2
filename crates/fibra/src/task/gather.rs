//! Several handles, taken in the order in which their fibers end: the base of `JoinSet` and of the combinators.
//!
//! Only the owner uses it. Members lie in chunks that do not move, because the fibers' workers link their nodes; the places of taken
//! members serve the next ones. Above: `join_set.rs`, `combinators.rs`. Below: `sched::members::gathering`, which says which fibers have
//! ended.
//!
//! Invariant: a member with a handle is in the list of its fiber or among those of the gathering that have ended; one without is free.

use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::task::Waker;

use super::blocking::{LOOK, is_pool_stuck};
use super::join::{JoinError, JoinHandle};
use crate::prim::FirstPanic;
use crate::prim::instant::Instant;
use crate::sched::members::gathering::Gathering;
use crate::wait::park::{self, Wait, Waitable};
use crate::wait::reason::WaitReason;
use crate::wait::waitable::{Published, linked_or};
use crate::wait::wake::call_wakers;
use crate::waiter::node::{Node, Outcome};

/// Members in the first chunk; each further one is twice as large, up to the last number.
const FIRST_CHUNK: usize = 8;
const LARGEST_CHUNK: usize = 1024;

/// See the header.
pub(crate) struct Gather<T> {
    gathering: Arc<Gathering>,
    /// Boxes, as pointers: workers have the addresses of the members in them.
    chunks: Vec<NonNull<[Member<T>]>>,
    free: *mut Member<T>,
    len: usize,
    /// The first so many members have no function that another thread could run.
    without_errand: usize,
}

/// `node` is the first field: the address of the node, which comes back, is the address of the member.
#[repr(C)]
struct Member<T> {
    node: Node,
    handle: Option<JoinHandle<T>>,
    /// The owner's own.
    tag: usize,
    /// The next free one, if this is free.
    next: *mut Member<T>,
}

// SAFETY: it owns handles, which are `Send` if `T` is; the rest is behind the gathering's lock or the fibers' own.
unsafe impl<T: Send> Send for Gather<T> {}
// SAFETY: through a shared reference one can count, cancel and ask; none of that reaches a `T`.
unsafe impl<T: Send> Sync for Gather<T> {}

impl<T> Gather<T> {
    pub(crate) fn new() -> Self {
        Self {
            gathering: Arc::new(Gathering::new()),
            chunks: Vec::new(),
            free: ptr::null_mut(),
            len: 0,
            without_errand: 0,
        }
    }

    /// Members that have not been taken, ended or not.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One more member.
    pub(crate) fn insert(&mut self, handle: JoinHandle<T>, tag: usize) {
        let member = self.take_free();
        // SAFETY: a free member is the owner's alone, and its chunk stays until the end. The node comes last: it is shared from then on.
        let node = unsafe {
            ((*member).handle, (*member).tag) = (Some(handle), tag);
            &(*member).node
        };
        self.len += 1;
        self.without_errand = 0;
        self.gathering.admit(node);
        // SAFETY: written just now.
        let handle = unsafe { &(*member).handle }.as_ref().expect("written just now");
        if !handle.gather(node) {
            let mut wakers = Vec::new();
            // SAFETY: just admitted, refused by its fiber, and the gathering is ours.
            unsafe { Gathering::arrive(node, &mut wakers) };
            call_wakers(wakers);
        }
    }

    fn take_free(&mut self) -> *mut Member<T> {
        if self.free.is_null() {
            let size = self.chunks.last().map_or(FIRST_CHUNK, |last| (2 * last.len()).min(LARGEST_CHUNK));
            let new = || Member { node: Node::new(), handle: None, tag: 0, next: ptr::null_mut() };
            let chunk: Box<[Member<T>]> = std::iter::repeat_with(new).take(size).collect();
            let chunk = NonNull::from(Box::leak(chunk));
            self.chunks.push(chunk);
            for index in 0..size {
                // SAFETY: within the chunk.
                let member = unsafe { chunk.cast::<Member<T>>().add(index) };
                self.give_free(member.as_ptr());
            }
        }
        let member = self.free;
        // SAFETY: a free member of a chunk of ours.
        self.free = unsafe { (*member).next };
        member
    }

    fn give_free(&mut self, member: *mut Member<T>) {
        // SAFETY: a member of a chunk of this gathering that no fiber refers to.
        unsafe { (*member).next = self.free };
        self.free = member;
    }

    /// All members that have a handle.
    fn members(&self) -> impl Iterator<Item = (&Node, &JoinHandle<T>)> {
        // SAFETY: the chunks stay as long as the gathering, and are written to only by `&mut self`; of a node, others change only what is
        // in cells.
        let members = self.chunks.iter().flat_map(|chunk| unsafe { chunk.as_ref() });
        members.filter_map(|member| Some((&member.node, member.handle.as_ref()?)))
    }

    /// The handles that were not taken.
    pub(crate) fn handles(&self) -> impl Iterator<Item = &JoinHandle<T>> {
        self.members().map(|(_, handle)| handle)
    }

    /// Has one ended that was not taken?
    pub(crate) fn has_ended(&self) -> bool {
        self.gathering.first().is_some()
    }

    /// The first of the members that have ended.
    pub(crate) fn first(&self) -> Option<&JoinHandle<T>> {
        let member = self.gathering.first()?.cast::<Member<T>>();
        // SAFETY: only nodes of this gathering's members are in there, each the first field of one that has a handle.
        unsafe { &(*member).handle }.as_ref()
    }

    /// Takes the first of the members that have ended: the handle, which can be joined without waiting, and its tag.
    pub(crate) fn take(&mut self) -> Option<(JoinHandle<T>, usize)> {
        let node = self.gathering.first()?;
        // SAFETY: in `ended`, so not in the list of its fiber any more.
        unsafe { self.gathering.take_out(node) };
        let member = node.cast::<Member<T>>().cast_mut();
        // SAFETY: as in `first`; no fiber refers to it now, and only the owner uses it.
        let (handle, tag) = unsafe { ((*member).handle.take(), (*member).tag) };
        self.len -= 1;
        self.give_free(member);
        Some((handle.expect("a member that has ended has a handle"), tag))
    }

    /// On a thread of the blocking pool: runs the function of one of the members, if it was not begun; then the member is taken. See
    /// `spawn_blocking`. Meanwhile the thread cannot take a member that ends first, so it does this only if no other thread does.
    #[cold]
    #[inline(never)]
    pub(crate) fn do_errand(&mut self, site: &'static Location<'static>) -> Option<Result<T, JoinError>> {
        let (member, result) = loop {
            if self.has_ended() {
                return None;
            }
            let member = self.find_errand()?;
            if is_pool_stuck() {
                // SAFETY: a member of ours.
                let handle = unsafe { &(*member).handle };
                match handle.as_ref().and_then(JoinHandle::do_errand) {
                    Some(result) => break (member, result),
                    None => continue,
                }
            }
            if self.wait(Some(Instant::after(LOOK)), site) {
                return None;
            }
        };
        // SAFETY: a member of ours that has a handle; it leaves its fiber before it is taken out and freed.
        let handle = unsafe {
            if let Some(handle) = &(*member).handle {
                handle.leave(&(*member).node);
            }
            self.gathering.take_out(&raw const (*member).node);
            (*member).handle.take()
        };
        self.len -= 1;
        self.give_free(member);
        Some(handle.expect("a member that was found by its handle").conclude_errand(result))
    }

    /// A member whose function could be run here.
    fn find_errand(&mut self) -> Option<*mut Member<T>> {
        let places = self.chunks.iter().flat_map(|chunk| {
            let first = chunk.cast::<Member<T>>().as_ptr();
            (0..chunk.len()).map(move |index| first.wrapping_add(index))
        });
        for (index, member) in places.enumerate().skip(self.without_errand) {
            // SAFETY: within a chunk of ours.
            let handle = unsafe { &(*member).handle };
            match handle.as_ref().and_then(JoinHandle::errand) {
                Some(errand) if errand.is_fit_here() => return Some(member),
                Some(_) => {}
                // It stays so, unless another member is put there.
                None if index == self.without_errand => self.without_errand += 1,
                None => {}
            }
        }
        None
    }

    /// Waits until one has ended; false if there is none to wait for, or `deadline` has come. Cancellation unwinds, and takes nothing.
    pub(crate) fn wait(&self, deadline: Option<Instant>, site: &'static Location<'static>) -> bool {
        park::entry_unless(|| self.has_ended());
        let deadline = deadline.filter(|deadline| *deadline != Instant::FAR_FUTURE).map(Instant::as_nanos);
        let object = Arc::as_ptr(&self.gathering).addr() as u64;
        let how = Wait { reason: WaitReason::JoinNext, object, site, deadline };
        let _ended = park::complete(self, how);
        let first = self.first();
        if let Some(first) = first {
            first.visit_if_refused();
        }
        first.is_some()
    }
}

impl<T> Drop for Gather<T> {
    fn drop(&mut self) {
        // First all of them leave: dropping a handle may run user code, and that may panic.
        for (node, handle) in self.members() {
            handle.leave(node);
            // SAFETY: it has left its fiber.
            unsafe { self.gathering.take_out(node) };
        }
        // SAFETY: each was a box, and now only this owner refers to what is in it.
        let boxed = |chunk: NonNull<[Member<T>]>| unsafe { Box::from_raw(chunk.as_ptr()) };
        let chunks: Vec<Box<[Member<T>]>> = std::mem::take(&mut self.chunks).into_iter().map(boxed).collect();
        let mut panics = FirstPanic::default();
        panics.drop_each(chunks.into_iter().flatten());
        panics.go_on(crate::cancel::is_unwinding);
    }
}

/// The end of a member, or that there is no member, as something to wait on.
impl<T> Waitable for Gather<T> {
    fn try_now(&self) -> Outcome {
        if self.len == 0 || self.has_ended() { Outcome::Done } else { Outcome::Pending }
    }

    fn publish(&self, node: &Node) -> Published {
        linked_or(self.len > 0 && self.gathering.publish(node), Outcome::Retry)
    }

    fn unpublish(&self, node: &Node, _: &mut Vec<Waker>) {
        self.gathering.unpublish(node);
    }

    fn is_settled(&self) -> bool {
        self.has_ended()
    }
}
