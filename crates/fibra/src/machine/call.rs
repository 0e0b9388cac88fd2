//! Calls: a fiber, a thread or async code, which is not a machine, submits an operation and waits for its answer; and
//! the two operations by which a machine is attached to a worker's loop and detached from it.
//!
//! Above: `machine::attach` (fibers, threads and async code that call). Below: `mail`, `node`, `op`, `pool`.
//!
//! A caller has a post of its own, like a loop, but with a desk instead of mail. The post is the home of the operation:
//! the answer comes there, and so does the operation if its target drops it or is gone. A caller that gives up asks the
//! target to cancel and closes its desk: the answer then finds the desk closed, and the operation goes back to its
//! pool, which it keeps alive.
//!
//! Invariant: an operation has one caller, which waits for it or has closed its desk.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::address::{ABANDONED, CANCELLED, MachineRef, UNREACHABLE};
use super::desk::Found;
use super::machine::Machine;
use super::mail::{OUTSIDE, Post};
use super::mesh::Mesh;
use super::node::InFlight;
use super::op::{Cancel, Done, Op};
use super::pool::OpPool;
use super::port::Message;
use crate::prim::sync::Arc;

/// The data of the operation that brings a machine to a worker's loop.
pub(crate) struct Attach {
    pub(super) machine: u32,
    pub(super) build: Option<Build>,
}

/// Makes a machine, on the thread that it will stay on.
pub(crate) type Build = Box<dyn FnOnce() -> Box<dyn Machine> + Send>;

/// The data of the operation that takes a machine away.
pub(crate) struct Detach;

/// The answer of a machine: see [`MachineRef::call`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<D> {
    /// The result, as the machine gave it to [`Ports::complete`](super::Ports::complete).
    pub result: i32,
    /// The data that was sent, as the machine left it.
    pub data: D,
}

/// Why a call has no answer. What was sent comes back, unless it is in the machine's hands.
#[derive(Clone, PartialEq, Eq)]
pub enum CallError<D> {
    /// There is no such machine: it was never attached to the runtime of the caller, or is gone.
    Unreachable(D),
    /// The machine dropped the operation, or was dropped itself, without an answer.
    Abandoned(D),
    /// The machine answered with [`CANCELLED`].
    Cancelled(D),
    /// The time was up first. The machine was asked to cancel; the data is dropped when the machine has answered.
    TimedOut,
    /// All operations of the [`Caller`](crate::machine::Caller) are in the machine's hands, left there by calls that gave up.
    Exhausted(D),
}

impl<D> CallError<D> {
    /// The data that was sent, if it came back.
    pub fn into_data(self) -> Option<D> {
        match self {
            Self::Unreachable(data) | Self::Abandoned(data) | Self::Cancelled(data) | Self::Exhausted(data) => {
                Some(data)
            }
            Self::TimedOut => None,
        }
    }

    /// Whether the time was up.
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::TimedOut)
    }

    fn words(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "there is no such machine in this runtime, or it is gone",
            Self::Abandoned(_) => "the machine dropped the operation without an answer",
            Self::Cancelled(_) => "the machine cancelled the operation",
            Self::TimedOut => "the machine did not answer in time",
            Self::Exhausted(_) => "all operations of this caller are still in the machine's hands",
        }
    }
}

impl<D> fmt::Debug for CallError<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable(_) => "Unreachable(..)",
            Self::Abandoned(_) => "Abandoned(..)",
            Self::Cancelled(_) => "Cancelled(..)",
            Self::TimedOut => "TimedOut",
            Self::Exhausted(_) => "Exhausted(..)",
        })
    }
}

impl<D> fmt::Display for CallError<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl<D> std::error::Error for CallError<D> {}

/// The post of a caller, used for one call after the other. Dropped, it is closed: the bringer of a later answer frees
/// the operation.
#[derive(Debug)]
pub(crate) struct Mailbox {
    post: Arc<Post>,
    /// The target of the last call: most calls go there again, and so no count is taken each time.
    target: Option<Arc<Post>>,
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if let Some(link) = self.post.desk.close() {
            // SAFETY: brought to the desk, and out of it: the operation is ours. Dropped, it finds the desk closed.
            drop(unsafe { Message::from_link(link) });
        }
    }
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Self { post: Arc::new(Post::new(OUTSIDE)), target: None }
    }
}

/// An operation on its way to a machine and back, as a future. Dropped before it is ready, it gives up.
#[must_use = "a call that is not awaited is cancelled"]
pub(crate) struct Call<D> {
    /// Present until the call is over.
    mailbox: Option<Mailbox>,
    state: CallState<D>,
}

enum CallState<D> {
    /// Submitted. Its mailbox knows the target's mail, for the cancellation.
    Waiting {
        op: InFlight,
        to: MachineRef,
    },
    /// The operation could not be submitted.
    Refused(Option<CallError<D>>),
    Over,
}

impl<D> Unpin for Call<D> {}

impl<D: Send + 'static> Call<D> {
    /// Sends an operation to a machine of the mesh.
    pub(crate) fn new(mesh: Option<&Mesh>, to: MachineRef, op: Op<D>, mut mailbox: Mailbox) -> Self {
        let mut request = op.to(to).into_request();
        let Some(target) = mesh.and_then(|mesh| mesh.post(to.thread)) else {
            request.owned.arrive();
            let refused = settle(Done { owned: request.owned }, Some(UNREACHABLE)).err();
            return Self { mailbox: Some(mailbox), state: CallState::Refused(refused) };
        };
        request.owned.fix(|fixed| fixed.source = Some(MachineRef { thread: OUTSIDE, machine: 0 }));
        if mailbox.target.as_ref().is_none_or(|last| !Arc::ptr_eq(last, target)) {
            mailbox.target = Some(target.clone());
        }
        let op = request.owned.submit(&mailbox.post);
        let link = Message::from(request).into_link();
        // SAFETY: the request was given up for its link.
        if unsafe { target.send(link) }.is_err() {
            // SAFETY: the link was not taken: it is ours as before.
            let message = unsafe { Message::from_link(link) };
            // Answered and dropped, it goes home: that is here.
            super::routing::unreachable_now(message);
        }
        Self { mailbox: Some(mailbox), state: CallState::Waiting { op, to } }
    }

    /// Its mailbox, if it was answered: for the next call.
    pub(crate) fn into_mailbox(mut self) -> Option<Mailbox> {
        matches!(self.state, CallState::Over).then(|| self.mailbox.take())?
    }
}

/// Reads the result of an operation that came home.
fn settle<D: Send + 'static>(done: Done, instead: Option<i32>) -> Result<Answer<D>, CallError<D>> {
    let result = instead.unwrap_or(done.result());
    let Ok(data) = done.into_data::<D>() else {
        // The target has no way to take the data out, only to change it.
        unreachable!("an operation has the data that it was taken with")
    };
    match result {
        UNREACHABLE => Err(CallError::Unreachable(data)),
        ABANDONED => Err(CallError::Abandoned(data)),
        CANCELLED => Err(CallError::Cancelled(data)),
        result => Ok(Answer { result, data }),
    }
}

impl<D: Send + 'static> Future for Call<D> {
    type Output = Result<Answer<D>, CallError<D>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match &mut this.state {
            CallState::Waiting { .. } => {}
            CallState::Refused(error) => {
                let error = error.take().expect("refused once");
                this.state = CallState::Over;
                return Poll::Ready(Err(error));
            }
            CallState::Over => panic!("fibra: a call was polled after it was ready"),
        }
        let mailbox = this.mailbox.as_ref().expect("waiting");
        match mailbox.post.desk.look(|| cx.waker().clone()) {
            Found::Nothing => Poll::Pending,
            Found::Soon => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Found::Answer(link) => {
                // SAFETY: brought to the desk, and out of it: the operation is ours.
                let Message::Completion(mut done) = (unsafe { Message::from_link(link) }) else {
                    unreachable!("only the answer comes to a desk")
                };
                done.owned.arrive();
                this.state = CallState::Over;
                Poll::Ready(settle(done, None))
            }
        }
    }
}

impl<D> Drop for Call<D> {
    fn drop(&mut self) {
        let (CallState::Waiting { op, to }, Some(mailbox)) = (&self.state, &self.mailbox) else { return };
        let target = mailbox.target.as_ref().expect("it was sent there");
        if let Some(node) = op.cancel() {
            node.set_cancel_to(*to);
            let link = Message::from(Cancel { node }).into_link();
            // SAFETY: the cancellation was given up for its link.
            if unsafe { target.send(link) }.is_err() {
                // SAFETY: the link was not taken. Dropped, it is acknowledged.
                drop(unsafe { Message::from_link(link) });
            }
        }
        // The desk is closed after this: it knows nothing of the operation any more.
        op.leave(&mailbox.post);
    }
}

impl<D> fmt::Debug for Call<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            CallState::Waiting { .. } => "waiting",
            CallState::Refused(_) => "refused",
            CallState::Over => "over",
        };
        f.debug_struct("Call").field("state", &state).finish()
    }
}

/// Calls one machine again and again without allocating the operation each time.
///
/// ```
/// # use fibra::machine::{Caller, Machine, Ports, Timestamp};
/// # struct Double;
/// # impl Machine for Double {
/// #     fn tick(&mut self, _now: Timestamp, ports: &mut Ports<'_>) {
/// #         while let Some(request) = ports.input.submissions.pop() {
/// #             let number = *request.data::<i32>().unwrap();
/// #             ports.complete(request, number * 2);
/// #         }
/// #     }
/// # }
/// let rt = fibra::Runtime::builder().workers(1).build()?;
/// let double = rt.attach(Double);
/// rt.run(|| {
///     let mut caller = Caller::new(double);
///     for number in 0..100 {
///         assert_eq!(caller.call(0, number).unwrap().result, number * 2);
///     }
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Caller<D> {
    pub(crate) to: MachineRef,
    pub(crate) pool: OpPool<D>,
    /// From the call before, if that did not give up.
    pub(crate) mailbox: Option<Mailbox>,
}

/// Operations of a [`Caller`]: one for the call, and some that calls which gave up have left with the machine.
const CALLER_OPERATIONS: usize = 4;

impl<D: Send + 'static> Caller<D> {
    /// A caller of that machine.
    pub fn new(to: MachineRef) -> Self {
        Self { to, pool: OpPool::with_capacity(CALLER_OPERATIONS), mailbox: None }
    }

    /// The machine that it calls.
    pub fn machine(&self) -> MachineRef {
        self.to
    }
}

/// Sends a machine to the loop with this index. Gives the machine's address from now on; if the loop has ended, no
/// machine is behind it.
pub(crate) fn attach(mesh: &Mesh, index: usize, build: Build) -> MachineRef {
    let to = mesh.number_machine(index);
    let data = Attach { machine: to.machine, build: Some(build) };
    let Ok(op) = OpPool::with_capacity(1).take(0, data) else { unreachable!("a pool of one has one") };
    let mut request = op.to(to).into_request();
    request.owned.fix(|fixed| fixed.source = Some(MachineRef { thread: OUTSIDE, machine: 0 }));
    // The home is a desk that is closed at once: the answer ends there.
    let mailbox = Mailbox::new();
    request.owned.submit(&mailbox.post).leave(&mailbox.post);
    drop(mailbox);
    let link = Message::from(request).into_link();
    let post = mesh.post(to.thread).expect("numbered a moment ago");
    // SAFETY: the request was given up for its link.
    if unsafe { post.send(link) }.is_err() {
        // SAFETY: the link was not taken.
        super::routing::unreachable_now(unsafe { Message::from_link(link) });
    }
    to
}
