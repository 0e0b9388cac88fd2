//! An event loop of one's own: an app machine and a platform machine, alone or in a mesh with loops on other threads.
//!
//! Above: `machine::attach`, which gives it `run`. Below: `rounds`, which does the work; `driver`, in which a plain thread sleeps.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::marker::PhantomData;

use super::machine::Machine;
use super::mail::Bell;
use super::mesh::{Seat, Stopper};
use super::platform::{Platform, Reactor};
use super::rounds::{Machines, Rest};
use super::routing::{APP, PLATFORM};
use crate::driver::{Driver, Timeout};
use crate::prim::policy;
use crate::sched::rules::MachineIo;

/// Cycles after which a loop that never rests looks at its driver (about 100 µs), if anything is registered there.
const BUSY_CYCLES: u64 = 400_000;

/// How many reports of a wait are delivered before the machines have a turn. A wait fetches up to some hundreds: all at once they are as
/// many operations under way, each with its buffer, of which the first is out of the processor's caches when the last has been read.
const REPORTS_PER_TURN: usize = 32;

/// An event loop that was not started yet. It stays on its thread.
///
/// See [`Machine`] for a program.
#[must_use = "an event loop does nothing until it is run"]
pub struct EventLoop {
    seat: Seat,
    machines: [Option<Box<dyn Machine>>; 2],
    _on_one_thread: PhantomData<*const ()>,
}

impl EventLoop {
    /// A loop that is alone.
    #[allow(clippy::new_without_default)] // `Default` would hide that it belongs to this thread.
    pub fn new() -> Self {
        Self::at(Seat::mesh(1).remove(0))
    }

    /// The loop of one seat of a [mesh](Seat::mesh).
    pub fn at(seat: Seat) -> Self {
        Self { seat, machines: [None, None], _on_one_thread: PhantomData }
    }

    /// The machine that the program is about. What it submits without a destination goes to the platform.
    pub fn app(mut self, machine: impl Machine) -> Self {
        self.machines[APP as usize] = Some(Box::new(machine));
        self
    }

    /// The machine that serves the app, and outlives it: [`Platform`], unless this says otherwise. What it submits without a
    /// destination goes to the app.
    pub fn platform(mut self, machine: impl Machine) -> Self {
        self.machines[PLATFORM as usize] = Some(Box::new(machine));
        self
    }

    /// A handle by which any thread can end the loop.
    pub fn stopper(&self) -> Stopper {
        Stopper::new(&self.seat.post)
    }

    /// Its machines, in their places.
    pub(crate) fn into_machines(self) -> Machines {
        let mut machines = Machines::new(self.seat, false);
        let [app, platform] = self.machines;
        // The platform has the first turn: what the app submits in its own is for the next round, like everything later.
        for (root, machine) in [(PLATFORM, platform), (APP, app)] {
            // An app that is not there leaves its place empty; a platform is always there.
            let machine = machine.or_else(|| (root == PLATFORM).then(|| Box::new(Platform::new()) as Box<dyn Machine>));
            if let Some(machine) = machine {
                machines.add(root, machine);
            }
        }
        machines
    }

    /// Runs on a plain thread, which sleeps in a driver of its own.
    pub(crate) fn run_on_thread(self) -> io::Result<()> {
        let driver = Driver::new()?;
        let (registrar, reactor) = (driver.registrar(), Reactor::new(driver.registrar()));
        let mut machines = self.into_machines();
        machines.set_bell(Bell::Driver(driver.kicker()));
        machines.set_reactor(reactor.clone());
        let (driver, looked_at) = (RefCell::new(driver), Cell::new(policy::cycles()));
        let has_reports = Cell::new(false);
        let mut rest = |machines: &Machines, rest| {
            let timeout = match rest {
                // What the last wait has brought, and was not delivered, is for this turn.
                _ if has_reports.get() => return Ok(machines.now()),
                // A wait of no time, which need not be asked for each time. Kicks are no matter: what they were for is pending.
                Rest::Pending if !registrar.is_in_use() => return Ok(machines.now()),
                Rest::Pending if policy::cycles().wrapping_sub(looked_at.get()) < BUSY_CYCLES => {
                    return Ok(machines.now());
                }
                Rest::Pending => Timeout::Until(0),
                Rest::Until(Some(next)) => Timeout::Until(next),
                Rest::Until(None) => Timeout::Forever,
            };
            let now = driver.borrow_mut().wait(timeout);
            looked_at.set(policy::cycles());
            has_reports.set(true);
            now
        };
        let mut work = |machines: &mut Machines, now| {
            // Not in `rest`: there the loop counts as asleep, and would be kicked awake.
            if has_reports.get() {
                let mut driver = driver.borrow_mut();
                let reports = std::iter::from_fn(|| driver.next_completion()).take(REPORTS_PER_TURN);
                let delivered = reports.map(|report| reactor.deliver(report)).count();
                has_reports.set(delivered == REPORTS_PER_TURN);
            }
            machines.work(now);
        };
        machines.run(&mut rest, &mut work)
    }
}

impl fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoop").field("thread", &self.seat.thread()).finish_non_exhaustive()
    }
}
