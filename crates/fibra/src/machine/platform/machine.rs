//! The platform machine: takes operations, tries them, keeps those that have to wait, and tries again when the driver says so.
//!
//! Above: `event_loop` and `rounds`, where it is the default; users. Below: `attempt` (one try), `reactor` (the state
//! of descriptors), `waiting` (the operations in hand).
//!
//! ```text
//!  submission ─▶ try ── moved ──────────────────────────────▶ answer
//!                 │ EAGAIN (or known to be hopeless: no try)    ▲
//!                 ▼                                             │
//!                wait, registered with the loop's driver ─▶ report ─▶ try
//!                 └───────────────── cancellation ──────────▶ answer: CANCELLED
//! ```
//!
//! * An operation of a direction is tried only when none of that direction waits before it: first in, first out.
//! * Cancellations come before reports of the driver: an initiator that no longer wants its operation (a call that
//!   timed out, say) takes nothing from the operations behind it. But a new operation is tried before its own
//!   cancellation is seen.
//! * A standing operation yields to the others after a bounded number of takes, and goes on in the next round.
//! * Accepting without descriptors waits for a while, each time longer; so does connecting to a Unix listener whose queue is full. The
//!   system does not say when either is over.
//!
//! Invariants: every operation that came is answered once, or dropped with the machine, which answers it; what is in `waiting` with a
//! descriptor is in the list of an entry that is this machine's.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use super::super::address::CANCELLED;
use super::super::machine::Machine;
use super::super::op::{OP_TIMER, Request, Timestamp};
use super::super::pool::OpPool;
use super::super::port::Ports;
use super::attempt::{Means, Tried, attempt, side};
use super::io::{Extra, Io};
use super::reactor::{NONE, Reactor, Side, Table};
use super::socket::{Socket, SocketKind};
use super::waiting::Waiting;
use super::{FIRST_OP, LAST_OP, OP_CLOSE, OP_CONNECT, OP_WATCH};
use crate::driver::Registrar;
use crate::driver::transfer;

/// The first pause, and the longest, of operations that wait for a change that the system does not announce.
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The machine that does I/O for others: reads, writes, accepts, connects, datagrams, standing receives, on the one driver in which its
/// loop sleeps. It is the platform of an [`EventLoop`](crate::machine::EventLoop) that was given no other, and of the machines
/// [attached](crate::Runtime::attach) to a worker.
///
/// See [the module](super) for what it does with which operation.
pub struct Platform {
    /// The reactor of the loop that runs it, and its desk there.
    at: Option<(Rc<Reactor>, u32)>,
    hand: Hand,
    news: Vec<u32>,
}

/// The operations in hand, and the lists of those that are due later.
struct Hand {
    waiting: Waiting,
    scratch: Vec<u8>,
    /// Descriptors whose operations wait for time to pass, and operations without a descriptor that do.
    starved: Vec<u32>,
    unconnected: Vec<u32>,
    /// Descriptors with more than one round may take.
    more: Vec<u32>,
    pause: Duration,
    timers: Option<OpPool<()>>,
}

impl Platform {
    /// A platform, to be given to a loop: [`EventLoop::platform`](crate::machine::EventLoop::platform), or
    /// [`Runtime::attach_with`](crate::Runtime::attach_with).
    #[allow(clippy::new_without_default)] // As for `EventLoop`: it belongs to one thread.
    pub fn new() -> Self {
        let hand = Hand {
            waiting: Waiting::new(),
            scratch: Vec::new(),
            starved: Vec::new(),
            unconnected: Vec::new(),
            more: Vec::new(),
            pause: PAUSE,
            timers: None,
        };
        Self { at: None, hand, news: Vec::new() }
    }
}

impl Machine for Platform {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        if self.at.is_none() {
            let reactor = ports.routing.reactor();
            let desk = reactor.join(ports.routing, ports.me);
            self.at = Some((reactor, desk));
        }
        let Some((reactor, desk)) = &self.at else { return };
        let table = &mut *reactor.table();
        let mut round = Round { desk: *desk, table, registrar: reactor.registrar(), hand: &mut self.hand, ports, now };
        round.look_at_timers();
        while let Some(request) = round.ports.input.submissions.pop() {
            round.begin(request);
        }
        while let Some(cancel) = round.ports.input.cancellations.pop() {
            round.cancel(cancel.node.place(), cancel.id().get());
        }
        let news = round.table.take_news(*desk, std::mem::take(&mut self.news));
        for number in &news {
            round.advance(*number);
        }
        self.news = news;
        self.news.clear();
        // Rings of others' operations mean nothing here.
        while round.ports.input.notifications.pop().is_some() {}
        round.go_on_later();
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        if let Some((reactor, desk)) = &self.at {
            reactor.leave(*desk);
        }
    }
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Platform").finish_non_exhaustive()
    }
}

/// One tick of the machine.
struct Round<'a, 'b> {
    desk: u32,
    table: &'a mut Table,
    registrar: &'a Registrar,
    hand: &'a mut Hand,
    ports: &'a mut Ports<'b>,
    now: Timestamp,
}

impl Round<'_, '_> {
    /// A new operation.
    fn begin(&mut self, mut request: Request) {
        let (opcode, standing) = (request.opcode(), request.is_standing());
        let Some(io) = request.data_mut::<Io>() else {
            let ours = (FIRST_OP..=LAST_OP).contains(&opcode);
            return self.ports.complete(request, if ours { -libc::EINVAL } else { -libc::EOPNOTSUPP });
        };
        match opcode {
            OP_CLOSE => return self.close(request),
            OP_CONNECT => return self.connect(request),
            FIRST_OP..=LAST_OP => {}
            _ => return self.ports.complete(request, -libc::EOPNOTSUPP),
        }
        let Some(side) = side(opcode, io) else { return self.ports.complete(request, -libc::EINVAL) };
        let Some(socket) = &io.socket else { return self.ports.complete(request, -libc::EINVAL) };
        if socket.is_closed() {
            return self.ports.complete(request, -libc::EBADF);
        }
        let number = socket.number();
        let Some(entry) = self.table.claim(self.desk, socket) else {
            return self.ports.complete(request, -libc::EBUSY);
        };
        // An operation waits before this one, or nothing can be moved. One that watches asks in any case, since others
        // may have taken something.
        if opcode != OP_WATCH && (entry.waiting[side as usize].first != NONE || !entry.is_hopeful(side)) {
            io.written_from = io.start;
            let index = self.hand.waiting.keep(request, number, side);
            return self.hand.waiting.link(entry, index);
        }
        io.written_from = io.start;
        let mut means = Means { scratch: &mut self.hand.scratch, ends: entry.ends, reported: false, standing };
        match attempt(opcode, io, &mut means) {
            Tried::Done { result, drained, rings } => {
                if drained {
                    entry.give_up_hope(side);
                }
                if rings {
                    self.ports.ring(&request);
                }
                self.ports.complete(request, result);
            }
            tried => self.wait_at_first(request, number, side, tried),
        }
    }

    /// After its first try.
    fn wait_at_first(&mut self, request: Request, number: u32, side: Side, tried: Tried) {
        let Some(entry) = self.table.find(number) else { return };
        let registered = match request.data::<Io>().and_then(|io| io.socket.as_ref()) {
            Some(socket) => entry.register(socket, self.registrar, side),
            None => Err(libc::EINVAL),
        };
        if let Err(error) = registered {
            return self.ports.complete(request, -error);
        }
        let index = self.hand.waiting.keep(request, number, side);
        self.hand.waiting.link(entry, index);
        self.remain(index, number, side, &tried);
    }

    /// An operation waits on, or for its next turn.
    fn remain(&mut self, index: u32, number: u32, side: Side, tried: &Tried) {
        let (Tried::Waits { rings } | Tried::More { rings } | Tried::Starved { rings }) = *tried else { return };
        if rings && let Some(request) = self.hand.waiting.get(index).and_then(|slot| slot.request.as_ref()) {
            self.ports.ring(request);
        }
        match tried {
            Tried::Waits { .. } => {
                if let Some(entry) = self.table.find(number) {
                    entry.give_up_hope(side);
                }
            }
            Tried::Starved { .. } => self.hand.starved.push(number),
            _ => self.hand.more.push(number),
        }
    }

    /// Tries what waits for a descriptor, as long as there is hope.
    fn advance(&mut self, number: u32) {
        let Some(entry) = self.table.find(number) else { return };
        entry.listed = false;
        if !entry.is_of(self.desk) {
            return;
        }
        for side in Side::BOTH {
            let mut next = entry_first(self.table, number, side);
            while next != NONE {
                let index = next;
                let Some(entry) = self.table.find(number).filter(|entry| entry.is_hopeful(side)) else { break };
                let Some(slot) = self.hand.waiting.get(index) else { break };
                next = slot.after;
                let Some(request) = &mut slot.request else { break };
                let (opcode, standing) = (request.opcode(), request.is_standing());
                let scratch = &mut self.hand.scratch;
                let mut means = Means { scratch, ends: entry.ends, reported: true, standing };
                let Some(io) = request.data_mut::<Io>() else { break };
                match attempt(opcode, io, &mut means) {
                    Tried::Done { result, drained, rings } => {
                        if drained {
                            entry.give_up_hope(side);
                        }
                        if let Some(request) = self.hand.waiting.take(Some(entry), index) {
                            if rings {
                                self.ports.ring(&request);
                            }
                            self.ports.complete(request, result);
                        }
                    }
                    tried => {
                        // An operation that only watches takes nothing from the operations behind it.
                        let passes = opcode == OP_WATCH && next != NONE;
                        self.remain(index, number, side, &tried);
                        if passes && let Some(entry) = self.table.find(number) {
                            entry.hope(side);
                        } else {
                            break;
                        }
                    }
                }
            }
        }
    }

    fn connect(&mut self, mut request: Request) {
        let Some(io) = request.data_mut::<Io>() else { return };
        let Extra::Address(to) = &io.extra else { return self.ports.complete(request, -libc::EINVAL) };
        let kind = if to.ip().is_some() { SocketKind::Tcp } else { SocketKind::Socket };
        match transfer::connect(to) {
            Ok((descriptor, is_done)) => {
                let socket = Socket::new(descriptor, kind);
                let number = socket.number();
                io.socket = Some(socket.clone());
                if is_done {
                    return self.ports.complete(request, 0);
                }
                if self.table.claim(self.desk, &socket).is_none() {
                    return self.ports.complete(request, -libc::EBUSY);
                }
                drop(socket);
                self.wait_at_first(request, number, Side::Write, Tried::Waits { rings: false });
            }
            Err(transfer::AGAIN) => {
                let index = self.hand.waiting.keep(request, NONE, Side::Write);
                self.hand.unconnected.push(index);
            }
            Err(error) => self.ports.complete(request, -error),
        }
    }

    /// Closes a socket, and answers what waits for it.
    fn close(&mut self, mut request: Request) {
        let Some(socket) = request.data_mut::<Io>().and_then(|io| io.socket.take()) else {
            return self.ports.complete(request, -libc::EINVAL);
        };
        let number = socket.number();
        let result = if socket.close(self.registrar) { 0 } else { -libc::EBADF };
        if self.table.own(self.desk, &socket).is_some() {
            for side in Side::BOTH {
                loop {
                    let index = entry_first(self.table, number, side);
                    let entry = self.table.find(number);
                    let Some(waiting) = self.hand.waiting.take(entry, index) else { break };
                    self.ports.complete(waiting, -libc::EBADF);
                }
            }
            if let Some(entry) = self.table.find(number) {
                entry.clear();
            }
        } else {
            // Perhaps another platform of this thread has operations that wait for it. It finds out.
            self.table.tell_closed(&socket);
        }
        drop(socket);
        self.ports.complete(request, result);
    }

    fn cancel(&mut self, index: u32, id: u64) {
        let Some(slot) = self.hand.waiting.get(index) else { return };
        if slot.request.as_ref().is_none_or(|request| request.id().get() != id) {
            return;
        }
        let number = slot.number;
        let entry = if number == NONE { None } else { self.table.find(number) };
        let Some(mut request) = self.hand.waiting.take(entry, index) else { return };
        if number == NONE {
            self.hand.unconnected.retain(|waiting| *waiting != index);
        }
        if request.opcode() == OP_CONNECT
            && let Some(io) = request.data_mut::<Io>()
        {
            // The socket is not connected: it is of no use to the initiator, and is closed here.
            io.socket = None;
        }
        self.ports.complete(request, CANCELLED);
        // The operations behind it may be next.
        if number != NONE && self.table.find(number).is_some_and(|entry| entry.is_waited_for()) {
            self.hand.more.push(number);
        }
    }

    /// The machine's own timer has fired: retries the operations that wait for time to pass. No other completion comes here.
    fn look_at_timers(&mut self) {
        let mut is_time = false;
        while self.ports.input.completions.pop().is_some() {
            is_time = true;
        }
        if !is_time {
            return;
        }
        let (starved, unconnected) = (self.hand.starved.len(), self.hand.unconnected.len());
        for _ in 0..starved {
            let number = self.hand.starved.swap_remove(0);
            self.advance(number);
        }
        for _ in 0..unconnected {
            let index = self.hand.unconnected.remove(0);
            if let Some(request) = self.hand.waiting.take(None, index) {
                self.connect(request);
            }
        }
        let goes_on = self.hand.starved.len() + self.hand.unconnected.len() == starved + unconnected;
        self.hand.pause = if goes_on { (self.hand.pause * 2).min(LONGEST_PAUSE) } else { PAUSE };
    }

    /// Arranges for the work that this round has left: in the next round, or when a pause is over.
    fn go_on_later(&mut self) {
        if !self.hand.more.is_empty() {
            for number in self.hand.more.drain(..) {
                self.table.stir_owner(number);
            }
        }
        if self.hand.starved.is_empty() && self.hand.unconnected.is_empty() {
            return;
        }
        self.hand.starved.sort_unstable();
        self.hand.starved.dedup();
        let pool = self.hand.timers.get_or_insert_with(|| OpPool::with_capacity(1));
        // Exhausted: one is set.
        if let Ok(timer) = pool.take(OP_TIMER, ()) {
            self.ports.submit(timer.at(self.now + self.hand.pause));
        }
    }
}

fn entry_first(table: &mut Table, number: u32, side: Side) -> u32 {
    table.find(number).map_or(NONE, |entry| entry.waiting[side as usize].first)
}
