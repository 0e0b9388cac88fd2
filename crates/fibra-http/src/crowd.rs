//! The connections of a server: how many there are, and how to reach them when the server stops.
//!
//! Above: `server`. Below: `gate`. A connection takes a [`Seat`] before its fiber is started; dropping the seat leaves it, on every path.
//!
//! The lock is std's, and held for a few instructions in which nothing waits: a fiber that is being cancelled must get through, too.
#![allow(clippy::disallowed_types)] // The lock: see above.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fibra::JoinHandle;
use fibra::sync::Event;

use crate::gate::Gate;

/// See the header.
pub(crate) struct Crowd {
    inner: Mutex<Inner>,
    most: usize,
    /// Set while there is room for one more.
    pub(crate) room: Event,
    /// Set while there is no connection.
    pub(crate) empty: Event,
}

#[derive(Default)]
struct Inner {
    members: HashMap<u64, Member>,
    next: u64,
    draining: bool,
    /// The connections have been cancelled.
    cut: bool,
}

struct Member {
    gate: Arc<Gate>,
    /// The latest fiber that was named: of so many before it.
    fiber: Option<JoinHandle<()>>,
    run: u64,
}

/// One connection's place among the connections of a server.
pub(crate) struct Seat {
    crowd: Arc<Crowd>,
    number: u64,
    /// So many fibers have served the connection before.
    pub(crate) run: u64,
    pub(crate) gate: Arc<Gate>,
}

impl Crowd {
    /// For at most so many connections.
    pub(crate) fn new(most: usize) -> Self {
        let (room, empty) = (Event::new(), Event::new());
        room.set();
        empty.set();
        Self { inner: Mutex::default(), most, room, empty }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics while it is held.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more connection; the caller has waited for room.
    pub(crate) fn enter(self: &Arc<Self>) -> Seat {
        let gate = Arc::new(Gate::default());
        let mut inner = self.lock();
        let number = inner.next;
        inner.next += 1;
        inner.members.insert(number, Member { gate: gate.clone(), fiber: None, run: 0 });
        if inner.members.len() >= self.most {
            self.room.reset();
        }
        self.empty.reset();
        if inner.draining {
            let is_idle = gate.drain();
            debug_assert!(!is_idle, "no connection has this gate yet");
        }
        Seat { crowd: self.clone(), number, run: 0, gate }
    }

    /// Sets the fiber on which the connection is served from now on, if the connection has not ended already; `run`: that of the seat
    /// which the fiber has. (Each fiber is named by the one that started it, which may be late: by then a further one may have been named.)
    pub(crate) fn set_fiber(&self, number: u64, run: u64, fiber: JoinHandle<()>) {
        let mut inner = self.lock();
        let cut = inner.cut;
        let late = match inner.members.get_mut(&number) {
            Some(member) if run >= member.run && !cut => {
                member.run = run;
                member.fiber.replace(fiber)
            }
            // After a cut it was on its way from one fiber to this one.
            _ => Some(fiber),
        };
        drop(inner);
        if let (true, Some(late)) = (cut, late) {
            late.cancel();
        }
    }

    /// Asks all connections to end: idle ones at once, the others after their current request.
    pub(crate) fn drain(&self) {
        let idle: Vec<Arc<Gate>> = {
            let mut inner = self.lock();
            inner.draining = true;
            inner.members.values().map(|member| &member.gate).filter(|gate| gate.drain()).cloned().collect()
        };
        idle.iter().for_each(|gate| gate.wake());
    }

    /// Cancels the connections that are left, and returns how many these are.
    pub(crate) fn cut(&self) -> usize {
        let fibers: Vec<JoinHandle<()>> = {
            let mut inner = self.lock();
            inner.cut = true;
            inner.members.values_mut().filter_map(|member| member.fiber.take()).collect()
        };
        fibers.iter().for_each(JoinHandle::cancel);
        fibers.len()
    }
}

impl Seat {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn crowd(&self) -> Arc<Crowd> {
        self.crowd.clone()
    }

    /// Returns when all have been told to end, if one has: so that a client that sees one connection end can rely on the others.
    pub(crate) fn let_all_be_told(&self) {
        drop(self.crowd.lock());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let left = {
            let mut inner = self.crowd.lock();
            let left = inner.members.remove(&self.number);
            self.crowd.room.set();
            if inner.members.is_empty() {
                self.crowd.empty.set();
            }
            left
        };
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::Crowd;
    use std::sync::Arc;

    #[test]
    fn the_last_fiber_of_a_connection_is_cut_however_late_another_is_named() {
        fibra::run(|| {
            let crowd = Arc::new(Crowd::new(10));
            let seat = crowd.enter();
            let (keeps, over) = fibra::channel::bounded::<()>(1);
            crowd.set_fiber(seat.number(), 2, fibra::spawn(move || assert!(over.recv().is_ok())));
            // The one before has handed the connection on and ended; it is named now.
            crowd.set_fiber(seat.number(), 1, fibra::spawn(|| ()));
            assert_eq!(crowd.cut(), 1);
            drop(seat);
            let ended = fibra::timeout(std::time::Duration::from_secs(60), || keeps.closed());
            assert!(ended.is_ok(), "the last one was not cancelled");
        });
    }
}
