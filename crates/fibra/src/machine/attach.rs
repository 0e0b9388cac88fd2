//! Machines beside fibers: event loops on workers, calls from fibers to machines, and event loops that a fiber runs.
//!
//! Above: users. Beside: `runtime`. Below: the other files of `machine` (the loops themselves), `task`, `wait`.
//!
//! A fiber of each worker runs the machines of that worker; it is made when the first machine is attached there. It
//! does the same rounds as a plain thread, except that it parks as fibers do and lets other fibers run after each
//! round. So a machine's code never runs on the scheduler's own stack, where it could not panic, overflow or spawn
//! without harm; and machines and fibers take turns under the ordinary rules of scheduling. Machines still must not
//! block: they run under [`no_suspend`], and cancellation is held off meanwhile.
//!
//! The fiber is a daemon of the runtime: shutdown does not wait for it, but ends it. The fiber then drops the machines
//! in order and answers what is under way.
//!
//! Invariants: at most one such fiber per worker, ever, so that its seat is taken once; a machine never leaves its
//! worker.

use std::any::Any;
use std::io;
use std::panic::Location;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use crate::fiber::frame::{Extras, flag};
use crate::machine::call::{self, Build, Call, Detach, Mailbox};
use crate::machine::mesh::Mesh;
use crate::machine::platform::Reactor;
use crate::machine::rounds::{Machines, Rest};
use crate::machine::{Answer, CallError, Caller, EventLoop, Machine, MachineRef, OpPool};
use crate::prim::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::prim::policy;
use crate::prim::sync::Arc;
use crate::runtime::{Handle, Runtime};
use crate::sched::current;
use crate::sched::shared::RuntimeShared;
use crate::sched::worker::Worker;
use crate::task::fiber::{no_suspend, shield};
use crate::task::futures::block_on_until;
use crate::task::spawn::{no_runtime, try_spawn};
use crate::time::Instant;
use crate::wait::park::{self, Outcome, Wait, wait_or_cancelled, wait_watching};
use crate::wait::poll::{self, Polling};
use crate::wait::reason::WaitReason;

/// The loops of the machines of a runtime, kept in its `RuntimeShared::machines`.
#[derive(Debug)]
struct MachineLoops {
    mesh: Arc<Mesh>,
    /// For each worker: how many machines were attached there. If that is not zero, the worker has, or had, a loop.
    attached: Box<[AtomicU32]>,
}

impl MachineLoops {
    fn new(workers: usize) -> Self {
        Self { mesh: Mesh::of_workers(workers), attached: (0..workers).map(|_| AtomicU32::new(0)).collect() }
    }
}

/// Runs machines on the fiber that calls it. Cancelled, they end in order.
fn run_on_fiber(machines: Machines, site: &'static Location<'static>) -> io::Result<()> {
    let frame = current::fiber().expect("called on a fiber");
    let (waiter, polls) = (frame.waiter_ref(), poll::polls_of(frame));
    if poll::is_inside(polls) {
        run_polled(machines, site, &Polling::<true>::for_waiter(waiter, polls))
    } else {
        run_polled(machines, site, &Polling::<false>::for_waiter(waiter, polls))
    }
}

fn run_polled<const INSIDE: bool>(
    mut machines: Machines,
    site: &'static Location<'static>,
    polling: &Polling<'_, INSIDE>,
) -> io::Result<()> {
    machines.set_waker(polling.waker());
    machines.set_reactor(reactor_of(current::worker().expect("a fiber has a worker")));
    let mut rest = |machines: &Machines, rest| {
        if !machines.is_stopped() && park::is_cancelled() {
            machines.stop();
            return Ok(policy::now());
        }
        let how = |deadline| Wait { reason: WaitReason::MachineIdle, object: 0, site, deadline };
        match rest {
            // Other fibers of this worker come first, or busy machines could keep them waiting for ever.
            Rest::Pending => park::yield_now(),
            // From now on the loop waits only for answers to its cancellations.
            Rest::Until(until) if machines.is_stopped() => {
                let _ = wait_or_cancelled(polling, how(until));
            }
            Rest::Until(until) => {
                if wait_watching(polling, how(until)) == Outcome::Cancelled {
                    machines.stop();
                }
            }
        }
        // The wake-ups up to now are served by the round that comes. They are not cleared before the wait: a sender
        // that met the loop on its way to sleep has put a message in after the loop's last look, and wakes once.
        polling.begin_poll();
        Ok(if rest == Rest::Pending { machines.now() } else { policy::now() })
    };
    let mut work = |machines: &mut Machines, now| no_suspend(|| machines.work(now));
    // A cancellation of the fiber is noticed between the rounds, and then the machines end in order.
    shield(|| machines.run(&mut rest, &mut work))
}

/// The state of the descriptors of this worker's machines, which are registered with its driver.
fn reactor_of(worker: &Worker) -> Rc<Reactor> {
    let io: Rc<dyn Any> = worker.machine_io(Reactor::new);
    io.downcast().expect("machines alone put theirs there")
}

impl EventLoop {
    /// Runs the machines here until one of them [stops](crate::machine::Ports::stop) the loop, a
    /// [`Stopper`](crate::machine::Stopper) does, or nothing can happen any more: no message, no timer, no operation
    /// that a target may still answer, no doorbell or stopper outside, no other loop in the mesh. On a plain thread the
    /// thread sleeps in between, on a fiber the fiber parks.
    ///
    /// # Errors
    /// The system has no file descriptor left for the loop to sleep on, or waiting failed.
    ///
    /// # Panics
    /// If a machine panics: the other one is dropped, and operations that others wait for are answered.
    #[track_caller]
    pub fn run(self) -> io::Result<()> {
        match current::fiber() {
            None => self.run_on_thread(),
            Some(_) => {
                let result = run_on_fiber(self.into_machines(), Location::caller());
                crate::cancel::checkpoint();
                result
            }
        }
    }
}

impl RuntimeShared {
    fn machine_loops(&self) -> &MachineLoops {
        self.machines.get_or_init(|| MachineLoops::new(self.remotes.len()))
    }

    #[track_caller]
    fn attach(&self, build: Build) -> MachineRef {
        let loops = self.machine_loops();
        // The fiber that attaches a machine will talk to it: on one worker that is fast, on two cores each message is a
        // wake-up.
        let own = current::worker().filter(|worker| std::ptr::eq(&*worker.shared, self)).map(|worker| worker.index);
        // Relaxed: a choice, not an order.
        let load = |index: &usize| loops.attached[*index].load(Ordering::Relaxed);
        let fewest = || self.accepting_workers().min_by_key(load).unwrap_or(0);
        let index = own.unwrap_or_else(fewest);
        // AcqRel: a thread that sees the count finds the loop, or its seat, on its way. It does not wrap, or there
        // would be a second loop.
        // Relaxed on failure: a new guess.
        let attached = &loops.attached[index];
        let before = attached.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| count.checked_add(1));
        if before == Ok(0) {
            self.start_loop(&loops.mesh, index);
        }
        call::attach(&loops.mesh, index, build)
    }

    /// Starts the fiber that runs the machines of a worker.
    #[track_caller]
    fn start_loop(&self, mesh: &Arc<Mesh>, index: usize) {
        let site = Location::caller();
        let seat = mesh.seat(index);
        let body = move || {
            // Without descriptors of its own there is nothing that could fail.
            let _ = run_on_fiber(Machines::new(seat, true), site);
        };
        let (name, coming) = (format!("machines-{index}"), AtomicBool::new(true));
        let extras = Extras { name: Some(name.into()), coming, ..Extras::default() };
        let flags = flag::DAEMON | flag::UNCAPPED;
        // SAFETY: the closure is `Send` and `'static`: the machines are made inside.
        let spawned = unsafe { try_spawn(self, self.root, body, site, flags, Some(extras), Some(index)) };
        // Refused: the runtime is shutting down. The seat is dropped with the closure, and what is sent to it comes back.
        drop(spawned);
    }

    /// The loops, for a call to this machine: none if no machine was ever attached where it claims to be.
    fn loops_for(&self, to: MachineRef) -> Option<&Mesh> {
        // SAFETY: `machine_loops` alone fills this place.
        let loops = unsafe { self.machines.get_unchecked::<MachineLoops>() }?;
        let index = loops.mesh.index(to.thread)?;
        // Acquire: pairs with `attach`.
        (loops.attached[index].load(Ordering::Acquire) > 0).then_some(&*loops.mesh)
    }
}

impl Runtime {
    /// Attaches a machine to the loop of one of the workers, where it stays: it is ticked there whenever something came for it, beside the
    /// fibers. Fibers and other machines reach it by the address that this returns.
    ///
    /// A fiber of this runtime gets it onto its own worker, where calls cost a few switches; from elsewhere it goes to the worker with the
    /// fewest so far. A call from another worker wakes up a core and back: tens of microseconds if that one sleeps.
    ///
    /// The machine goes with the runtime, when it [stops](crate::machine::Ports::stop), when it panics, or by [`MachineRef::detach`].
    ///
    /// ```
    /// use fibra::machine::{Machine, Ports, Timestamp};
    ///
    /// /// Counts what it is given.
    /// struct Counter(i32);
    ///
    /// impl Machine for Counter {
    ///     fn tick(&mut self, _now: Timestamp, ports: &mut Ports<'_>) {
    ///         while let Some(request) = ports.input.submissions.pop() {
    ///             self.0 += request.data::<i32>().copied().unwrap_or(0);
    ///             ports.complete(request, self.0);
    ///         }
    ///     }
    /// }
    ///
    /// let rt = fibra::Runtime::builder().workers(2).build()?;
    /// let counter = rt.attach(Counter(0));
    /// let results: Vec<i32> = rt.run(|| (1..=3).map(|n: i32| counter.call(0, n).unwrap().result).collect());
    /// assert_eq!(results, [1, 3, 6]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn attach<M: Machine + Send>(&self, machine: M) -> MachineRef {
        self.handle().attach(machine)
    }

    /// The same for a machine that cannot be sent to another thread: it is made on the worker that it will stay on.
    #[track_caller]
    pub fn attach_with<M: Machine>(&self, make: impl FnOnce() -> M + Send + 'static) -> MachineRef {
        self.handle().attach_with(make)
    }
}

impl Handle {
    /// See [`Runtime::attach`]. If the runtime is shutting down, the machine is dropped, and calls to it say that it is not there.
    #[track_caller]
    pub fn attach<M: Machine + Send>(&self, machine: M) -> MachineRef {
        self.attach_with(move || machine)
    }

    /// See [`Runtime::attach_with`].
    #[track_caller]
    pub fn attach_with<M: Machine>(&self, make: impl FnOnce() -> M + Send + 'static) -> MachineRef {
        self.shared().attach(Box::new(move || Box::new(make())))
    }
}

/// Calls `f` with the runtime that the call is made in.
#[track_caller]
fn in_runtime<R>(f: impl FnOnce(&RuntimeShared) -> R) -> R {
    match current::worker() {
        Some(worker) => f(&worker.shared),
        None => match current::runtime() {
            Some(shared) => f(&shared),
            None => no_runtime("a call to a machine"),
        },
    }
}

/// These are for callers that are not machines: fibers, threads that have [entered](Handle::enter) a runtime, async
/// code there.
impl MachineRef {
    /// Submits an operation to a machine that is [attached](Runtime::attach) to the runtime of the caller, and waits for its answer.
    /// Cancelled meanwhile, it asks the machine to cancel and does not wait for that.
    ///
    /// This allocates the operation; a [`Caller`](crate::machine::Caller) does so once for many calls.
    ///
    /// # Errors
    /// There is no such machine, or it gave no answer; what was sent comes back.
    ///
    /// # Panics
    /// On a thread without a runtime.
    #[track_caller]
    pub fn call<D: Send + 'static>(self, opcode: u32, data: D) -> Result<Answer<D>, CallError<D>> {
        finish(self.begin(opcode, data), None)
    }

    /// [`call`](Self::call), for at most so long.
    ///
    /// # Errors
    /// As there, and when the time is up.
    #[track_caller]
    pub fn call_timeout<D: Send + 'static>(
        self,
        opcode: u32,
        data: D,
        timeout: Duration,
    ) -> Result<Answer<D>, CallError<D>> {
        self.call_deadline(opcode, data, Instant::after(timeout))
    }

    /// [`call`](Self::call), until then at most.
    ///
    /// # Errors
    /// As there, and when the time is up.
    #[track_caller]
    pub fn call_deadline<D: Send + 'static>(
        self,
        opcode: u32,
        data: D,
        deadline: impl Into<Instant>,
    ) -> Result<Answer<D>, CallError<D>> {
        finish(self.begin(opcode, data), Some(deadline.into()))
    }

    /// [`call`](Self::call), for async code. The operation is sent when this is called, not when it is awaited; dropped, the future asks
    /// the machine to cancel.
    ///
    /// # Panics
    /// On a thread without a runtime.
    #[track_caller]
    pub fn call_async<D: Send + 'static>(
        self,
        opcode: u32,
        data: D,
    ) -> impl Future<Output = Result<Answer<D>, CallError<D>>> + Send {
        self.begin(opcode, data)
    }

    /// Takes the machine away from its worker: it is dropped there, its operations are cancelled, and what others wait for is answered.
    /// Returns when it is gone; false if it was not there.
    ///
    /// # Panics
    /// On a thread without a runtime.
    #[track_caller]
    pub fn detach(self) -> bool {
        self.call(0, Detach).is_ok()
    }

    #[track_caller]
    fn begin<D: Send + 'static>(self, opcode: u32, data: D) -> Call<D> {
        let Ok(op) = OpPool::with_capacity(1).take(opcode, data) else { unreachable!("a pool of one has one") };
        in_runtime(|shared| Call::new(shared.loops_for(self), self, op, Mailbox::new()))
    }
}

#[track_caller]
fn finish<D: Send + 'static>(call: Call<D>, deadline: Option<Instant>) -> Result<Answer<D>, CallError<D>> {
    let deadline = deadline.map(Instant::as_nanos);
    block_on_until(pin!(call), deadline, WaitReason::MachineCall, Location::caller())
        .unwrap_or(Err(CallError::TimedOut))
}

impl<D: Send + 'static> Caller<D> {
    /// See [`MachineRef::call`].
    ///
    /// # Errors
    /// As there, and if all its operations are in the machine's hands.
    ///
    /// # Panics
    /// On a thread without a runtime.
    #[track_caller]
    pub fn call(&mut self, opcode: u32, data: D) -> Result<Answer<D>, CallError<D>> {
        self.call_until(opcode, data, None)
    }

    /// See [`MachineRef::call_timeout`].
    ///
    /// # Errors
    /// As for [`Caller::call`], and when the time is up.
    #[track_caller]
    pub fn call_timeout(&mut self, opcode: u32, data: D, timeout: Duration) -> Result<Answer<D>, CallError<D>> {
        self.call_until(opcode, data, Some(Instant::after(timeout)))
    }

    /// See [`MachineRef::call_deadline`].
    ///
    /// # Errors
    /// As for [`Caller::call`], and when the time is up.
    #[track_caller]
    pub fn call_deadline(
        &mut self,
        opcode: u32,
        data: D,
        deadline: impl Into<Instant>,
    ) -> Result<Answer<D>, CallError<D>> {
        self.call_until(opcode, data, Some(deadline.into()))
    }

    #[track_caller]
    fn call_until(&mut self, opcode: u32, data: D, deadline: Option<Instant>) -> Result<Answer<D>, CallError<D>> {
        let op = match self.pool.take(opcode, data) {
            Ok(op) => op,
            Err(crate::machine::Exhausted(data)) => return Err(CallError::Exhausted(data)),
        };
        let mailbox = self.mailbox.take().unwrap_or_else(Mailbox::new);
        let mut call = in_runtime(|shared| Call::new(shared.loops_for(self.to), self.to, op, mailbox));
        let deadline = deadline.map(Instant::as_nanos);
        let site = Location::caller();
        let answer = block_on_until(pin!(&mut call), deadline, WaitReason::MachineCall, site);
        self.mailbox = call.into_mailbox();
        answer.unwrap_or(Err(CallError::TimedOut))
    }
}
