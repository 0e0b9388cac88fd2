//! The driver of a worker: when the worker looks at it, and which waiters its reports go to.
//!
//! Above: the worker's loop; `reactor` and `machine`, which register with the driver. Below: `driver`.
//!
//! The waiters of a socket are found by `reactor`, which lies above and is called by [`IoRules`](super::rules::IoRules); the machines
//! of this worker are called by [`MachineIo`]. One call per report, after a system call that fetched it.

use std::rc::Rc;

use super::rules::MachineIo;
use super::worker::Worker;
use crate::driver::{Registrar, Timeout};
use crate::prim::policy;

impl Worker {
    /// The driver of this worker, to register with. A caller that has registered something new calls [`arm_driver`](Self::arm_driver).
    pub(crate) fn registrar(&self) -> &Registrar {
        &self.io.registrar
    }

    /// Something is registered here from now on: a busy worker looks at its driver now and then.
    pub(crate) fn arm_driver(&self) {
        if !self.looks.armed.replace(true) {
            let now = policy::cycles();
            self.looks.polled_at.set(now);
            self.looks.looked_at.set(now);
        }
    }

    /// Is anything registered with the driver, and has the worker not looked at it for so many cycles?
    pub(super) fn is_driver_due(&self, cycles: u64) -> bool {
        self.io.registrar.is_in_use() && policy::cycles().wrapping_sub(self.looks.looked_at.get()) > cycles
    }

    /// Fetches what has happened, without waiting. Also reads the clock.
    pub(super) fn look_at_driver(&self) {
        self.platform_wait(Timeout::Until(0));
        self.deliver_completions();
    }

    /// Brings the completions that the last wait has fetched to their waiters. Bounded by what one wait fetches.
    pub(super) fn deliver_completions(&self) {
        let mut owed = Vec::new();
        self.note_io(true);
        while let Some(completion) = self.io.driver.with(|driver| driver.next_completion()) {
            if !completion.key.is_of_machine() {
                self.shared.config.io.deliver(completion, &mut owed);
            } else if let Some(machines) = self.io.machines.get() {
                // Runs no user code: the loop that runs the machines is only set going.
                machines.deliver(completion);
            }
        }
        self.note_io(false);
        self.spawn_call_of_wakers(owed);
    }

    /// What the machines on this worker know of their descriptors, which are registered with its driver. Made at the first question.
    pub(crate) fn machine_io<T: MachineIo>(&self, make: impl FnOnce(Registrar) -> Rc<T>) -> Rc<dyn MachineIo> {
        self.arm_driver();
        self.io.machines.get_or_init(|| make(self.io.registrar.clone())).clone()
    }

    /// At the worker's end: a waiter that stayed registered here would wait for ever.
    pub(super) fn abandon_sources(&self) {
        if self.io.registrar.is_in_use() {
            self.shared.config.io.abandon(&self.io.registrar);
        }
    }
}
