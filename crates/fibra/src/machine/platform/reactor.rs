//! The state of the descriptors of one driver's machines: which machine works on which, what is registered, and what
//! may be possible.
//!
//! Above: `machine` (platform machines, each with a desk here), and the loop that waits in the driver: `event_loop` on
//! a thread of its own, a worker's loop for the machines of a runtime. The loops bring completions
//! ([`MachineIo::deliver`]). Below: `driver`, `socket`.
//!
//! Everything here is on one thread. The table is indexed by the descriptor's number, so that finding an entry is no search; the socket's
//! id in it tells a descriptor from its predecessors of the same number.
//!
//! **No edge is lost.** A direction is *hopeless* when a try was told `EAGAIN` (or had read all there was) and nothing was reported since.
//! Reports come from the driver by this thread alone, between tries: an edge after the try is still in the driver's queue and makes it
//! hopeful when it is delivered; and a direction that is registered only after the try is reported at once if something is possible.
//! So an operation that finds a direction hopeless, and registered, may wait without a try.
//!
//! Invariants:
//! * operations wait in an entry only while its `owner`'s machine has them, and each has a handle to the socket: while one waits, the
//!   number is not closed, and the entry not another socket's;
//! * a direction that is not registered is hopeful;
//! * a desk that goes takes its sockets out of the driver.

use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};

use super::super::routing::Routing;
use super::socket::{Socket, SocketShared};
use crate::driver::{Completion, Interest, OF_MACHINE, Registrar};
use crate::prim::bug::seeded_bug;
use crate::sched::rules::MachineIo;

/// No operation, no desk.
pub(super) const NONE: u32 = u32::MAX;

/// The two directions of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Read = 0,
    Write = 1,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::Read, Self::Write];

    pub(super) fn interest(self) -> Interest {
        match self {
            Self::Read => Interest::READ,
            Self::Write => Interest::WRITE,
        }
    }
}

/// The operations that wait for one direction: the first and the last of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    pub(super) first: u32,
    pub(super) last: u32,
}

/// The state of one descriptor.
pub(super) struct DescriptorEntry {
    /// The socket's own number; means nothing until it is `used`.
    id: u32,
    owner: u32,
    used: bool,
    /// The entry is in its owner's list of descriptors with news.
    pub(super) listed: bool,
    /// There is more to be read than data: from here on a short read need not be the last one.
    pub(super) ends: bool,
    registered: Interest,
    /// In which directions a try may succeed.
    hopeful: [bool; 2],
    pub(super) waiting: [List; 2],
    socket: std::sync::Weak<SocketShared>,
}

impl DescriptorEntry {
    const fn unused() -> Self {
        let list = List { first: NONE, last: NONE };
        Self {
            id: 0,
            owner: NONE,
            used: false,
            listed: false,
            ends: false,
            registered: Interest::NONE,
            hopeful: [true; 2],
            waiting: [list; 2],
            socket: std::sync::Weak::new(),
        }
    }

    pub(super) fn is_of(&self, desk: u32) -> bool {
        self.used && self.owner == desk
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.iter().any(|list| list.first != NONE)
    }

    /// Is a try worth it?
    pub(super) fn is_hopeful(&self, side: Side) -> bool {
        self.hopeful[side as usize]
    }

    pub(super) fn hope(&mut self, side: Side) {
        self.hopeful[side as usize] = true;
    }

    /// A try was in vain, or it emptied the queue. Without a meaning as long as no driver would report a change.
    pub(super) fn give_up_hope(&mut self, side: Side) {
        if self.registered.contains(side.interest()) || seeded_bug("platform_hopeless_unregistered") {
            self.hopeful[side as usize] = false;
        }
    }

    /// Sees to it that this direction is reported, from now on.
    pub(super) fn register(&mut self, socket: &Socket, registrar: &Registrar, side: Side) -> Result<(), i32> {
        if !self.registered.contains(side.interest()) {
            let registered = socket.register(registrar, side.interest());
            self.registered = registered.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
            self.socket = socket.downgrade();
        }
        Ok(())
    }

    /// Forgets everything about the descriptor.
    pub(super) fn clear(&mut self) {
        debug_assert!(!self.is_waited_for());
        *self = Self { listed: self.listed, ..Self::unused() };
    }
}

/// The desk of a platform machine: where it is told of its descriptors.
struct PlatformDesk {
    routing: Weak<Routing>,
    machine: u32,
    /// Descriptors with news.
    news: Vec<u32>,
    called: bool,
}

/// Entries of one piece of the table.
const PIECE: usize = 64;

/// By the number of the descriptor; in pieces, since the numbers of a process need not be dense here.
pub(super) struct Table {
    pieces: Vec<Option<Box<[DescriptorEntry; PIECE]>>>,
    desks: Vec<Option<PlatformDesk>>,
}

impl Table {
    pub(super) fn find(&mut self, number: u32) -> Option<&mut DescriptorEntry> {
        let number = number as usize;
        self.pieces.get_mut(number / PIECE)?.as_mut().map(|piece| &mut piece[number % PIECE])
    }

    fn make(&mut self, number: u32) -> &mut DescriptorEntry {
        let number = number as usize;
        if self.pieces.len() <= number / PIECE {
            self.pieces.resize_with(number / PIECE + 1, || None);
        }
        let piece = &mut self.pieces[number / PIECE];
        &mut piece.get_or_insert_with(|| Box::new([const { DescriptorEntry::unused() }; PIECE]))[number % PIECE]
    }

    /// The entry of a socket, if it is this desk's.
    pub(super) fn own(&mut self, desk: u32, socket: &Socket) -> Option<&mut DescriptorEntry> {
        self.find(socket.number()).filter(|entry| entry.used && entry.id == socket.id() && entry.owner == desk)
    }

    /// The entry of a socket, for a desk that is to work on it. None: another desk does.
    pub(super) fn claim(&mut self, desk: u32, socket: &Socket) -> Option<&mut DescriptorEntry> {
        let entry = self.make(socket.number());
        if !entry.used || entry.id != socket.id() {
            entry.clear();
            (entry.id, entry.owner, entry.used) = (socket.id(), desk, true);
        } else if entry.owner != desk {
            if entry.is_waited_for() {
                return None;
            }
            // In the list of the desk before it means nothing; in this one's it may be twice, which does no harm.
            (entry.owner, entry.listed) = (desk, false);
        }
        Some(entry)
    }

    /// Has the owner of a descriptor look at it.
    pub(super) fn stir_owner(&mut self, number: u32) {
        let Some(entry) = self.find(number) else { return };
        let owner = entry.owner as usize;
        let is_new = !std::mem::replace(&mut entry.listed, true);
        let Some(Some(desk)) = self.desks.get_mut(owner) else { return };
        if is_new {
            desk.news.push(number);
        }
        if !std::mem::replace(&mut desk.called, true)
            && let Some(routing) = desk.routing.upgrade()
        {
            routing.stir(desk.machine);
        }
    }

    /// A socket was closed: each platform machine with operations that wait for it answers them.
    pub(super) fn tell_closed(&mut self, socket: &Socket) {
        let number = socket.number();
        if let Some(entry) = self.find(number).filter(|entry| entry.used && entry.id == socket.id()) {
            entry.hopeful = [true; 2];
            self.stir_owner(number);
        }
    }

    /// The descriptors with news, for the machine of that desk; `spare` is used for the next ones.
    pub(super) fn take_news(&mut self, desk: u32, spare: Vec<u32>) -> Vec<u32> {
        match self.desks.get_mut(desk as usize) {
            Some(Some(desk)) => {
                desk.called = false;
                std::mem::replace(&mut desk.news, spare)
            }
            _ => spare,
        }
    }
}

/// See the header.
pub(crate) struct Reactor {
    registrar: Registrar,
    table: RefCell<Table>,
}

impl Reactor {
    pub(crate) fn new(registrar: Registrar) -> Rc<Self> {
        let table = Table { pieces: Vec::new(), desks: Vec::new() };
        Rc::new(Self { registrar, table: RefCell::new(table) })
    }

    pub(super) fn registrar(&self) -> &Registrar {
        &self.registrar
    }

    pub(super) fn table(&self) -> std::cell::RefMut<'_, Table> {
        self.table.borrow_mut()
    }

    /// A platform machine takes a desk.
    pub(super) fn join(&self, routing: &Rc<Routing>, machine: u32) -> u32 {
        let desks = &mut self.table.borrow_mut().desks;
        let desk = PlatformDesk { routing: Rc::downgrade(routing), machine, news: Vec::new(), called: false };
        match desks.iter().position(Option::is_none) {
            Some(free) => {
                desks[free] = Some(desk);
                free as u32
            }
            None => {
                desks.push(Some(desk));
                desks.len() as u32 - 1
            }
        }
    }

    /// The machine goes, and its registrations with it. Its waiting operations are dropped by the machine itself.
    pub(super) fn leave(&self, desk: u32) {
        let table = &mut *self.table.borrow_mut();
        for entry in table.pieces.iter_mut().flatten().flat_map(|piece| piece.iter_mut()) {
            if entry.used && entry.owner == desk {
                if let Some(socket) = entry.socket.upgrade().filter(|socket| socket.id() == entry.id) {
                    socket.leave(&self.registrar);
                }
                *entry = DescriptorEntry::unused();
            }
        }
        table.desks[desk as usize] = None;
    }
}

impl MachineIo for Reactor {
    fn deliver(&self, completion: Completion) {
        let table = &mut *self.table.borrow_mut();
        let number = completion.key.index & !OF_MACHINE;
        // Otherwise it is of the past: that socket was closed meanwhile.
        let Some(entry) = table.find(number).filter(|entry| entry.used && entry.id == completion.key.generation) else {
            return;
        };
        entry.ends |= completion.ends;
        let mut is_awaited = false;
        for side in Side::BOTH {
            if completion.ready.contains(side.interest()) {
                entry.hopeful[side as usize] = !seeded_bug("platform_ignores_reports");
                is_awaited |= entry.waiting[side as usize].first != NONE;
            }
        }
        if is_awaited {
            table.stir_owner(number);
        }
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").field("registrar", &self.registrar).finish_non_exhaustive()
    }
}
