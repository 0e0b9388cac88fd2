//! Why something waits: one reason per place that can wait, so that a report says what each fiber does (law 8).

use std::fmt;

/// Why a fiber waits. No reason is used in two places.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum WaitReason {
    /// In [`sleep`](crate::sleep) or [`sleep_until`](crate::sleep_until).
    Sleep = 1,
    /// Joining another fiber.
    Join = 2,
    /// In [`blocking`](crate::blocking), queued for a thread of the pool.
    BlockingQueued = 3,
    /// In [`blocking`](crate::blocking), running on a thread of the pool: binding.
    BlockingRunning = 4,
    /// In [`block_on`](crate::block_on): the future is not ready.
    BlockOn = 5,
    /// At the end of a `run`, until the fibers of its root scope have ended: binding.
    RunEnd = 6,
    /// At the end of a runtime, until its daemons have ended: binding.
    RuntimeEnd = 7,
    /// Sending into a full channel, or one without a buffer and nobody who receives.
    ChannelSend = 8,
    /// Receiving from an empty channel.
    ChannelRecv = 9,
    /// Waiting for the right to send ([`reserve`](crate::channel::Sender::reserve)).
    ChannelReserve = 10,
    /// Waiting for the other side of a channel to go.
    ChannelClosed = 11,
    /// In a [`select!`](crate::select) or a [`Select`](crate::channel::Select).
    Select = 12,
    /// At the end of a scope, until its children have ended: binding.
    ScopeEnd = 13,
    /// Waiting for a [`CancelToken`](crate::CancelToken) to be cancelled.
    TokenCancelled = 14,
    /// In [`join`](crate::join()): this half is done, the other one was taken by another worker: binding.
    JoinHalf = 19,
    /// Waiting for the next of several fibers to end, in a [`JoinSet`](crate::JoinSet), in [`race`](crate::race) and the like.
    JoinNext = 15,
    /// Waiting for a [`Mutex`](crate::sync::Mutex).
    MutexLock = 20,
    /// Waiting for a [`Condvar`](crate::sync::Condvar) to be notified.
    CondvarWait = 21,
    /// Waiting for the mutex again, after a [`Condvar`](crate::sync::Condvar): binding, since the guard has to be valid.
    CondvarRelock = 22,
    /// Waiting for a [`ReentrantMutex`](crate::sync::ReentrantMutex) that somebody else holds.
    ReentrantLock = 23,
    /// Acquiring permits of a [`Semaphore`](crate::sync::Semaphore).
    SemaphoreAcquire = 28,
    /// Locking a [`RwLock`](crate::sync::RwLock) for reading, upgradable or not.
    RwLockRead = 29,
    /// Locking a [`RwLock`](crate::sync::RwLock) for writing.
    RwLockWrite = 30,
    /// Upgrading a read lock to a write lock, until the other readers are gone.
    RwLockUpgrade = 31,
    /// At a [`Barrier`](crate::sync::Barrier), until everybody has come.
    BarrierWait = 32,
    /// Waiting for a [`WaitGroup`](crate::sync::WaitGroup).
    WaitGroupWait = 33,
    /// Waiting for a [`Once`](crate::sync::Once), a [`OnceLock`](crate::sync::OnceLock) or a
    /// [`LazyLock`](crate::sync::LazyLock) that somebody else initialises.
    OnceWait = 34,
    /// Waiting for an [`Event`](crate::sync::Event).
    EventWait = 35,
    /// Reading from a socket of [`net`](crate::net), or receiving.
    NetRead = 40,
    /// Writing to a socket of [`net`](crate::net), or sending.
    NetWrite = 41,
    /// Accepting a connection.
    NetAccept = 42,
    /// Connecting.
    NetConnect = 43,
    /// Looking up the addresses of a name.
    NetLookup = 44,
    /// In a call of [`fs`](crate::fs), running on a thread of the pool: binding.
    FileCall = 45,
    /// Reading from a pipe to a child process.
    PipeRead = 46,
    /// Writing to a pipe to a child process.
    PipeWrite = 47,
    /// Waiting for a child process to exit.
    ChildExit = 48,
    /// Reading standard input.
    StdinRead = 49,
    /// Waiting for the answer of a [machine](crate::machine).
    MachineCall = 50,
    /// In an event loop of [machines](crate::machine) that has nothing to do.
    MachineIdle = 51,
    /// Receiving from a [`oneshot`](crate::channel::oneshot) channel.
    OneshotRecv = 52,
    /// Waiting for the receiver of a [`oneshot`](crate::channel::oneshot) channel to go.
    OneshotClosed = 53,
    /// Waiting for the value of a [`watch`](crate::channel::watch) channel to change.
    WatchChanged = 54,
    /// Waiting for the receivers of a [`watch`](crate::channel::watch) channel to go.
    WatchClosed = 55,
    /// Receiving from a [`broadcast`](crate::channel::broadcast) channel.
    BroadcastRecv = 56,
    /// Waiting for the receivers of a [`broadcast`](crate::channel::broadcast) channel to go.
    BroadcastClosed = 57,
    /// Waiting for a place for another task of an [`ordered`](crate::channel::ordered) channel.
    OrderedSpawn = 58,
    /// Receiving from an [`ordered`](crate::channel::ordered) channel: its oldest task is not done.
    OrderedRecv = 59,
    /// Waiting for an item of a [`pool`](crate::channel::pool).
    PoolGet = 60,
    /// Sending to an actor whose mailbox is full.
    ActorSend = 61,
    /// In a [call](crate::actor::Addr::call) of an actor, until it answers.
    ActorCall = 62,
    /// Waiting for an actor to end ([`stopped`](crate::actor::Addr::stopped)).
    ActorStopped = 63,
    /// Waiting for an [`actor::Lock`](crate::actor::Lock).
    ActorLock = 64,
    /// In [`run_until_quiescent`](crate::actor::run_until_quiescent), until no actor has work.
    ActorsQuiescent = 65,
}

impl WaitReason {
    /// Every reason there is.
    pub const ALL: [WaitReason; 54] = [
        WaitReason::Sleep,
        WaitReason::Join,
        WaitReason::BlockingQueued,
        WaitReason::BlockingRunning,
        WaitReason::BlockOn,
        WaitReason::RunEnd,
        WaitReason::RuntimeEnd,
        WaitReason::ChannelSend,
        WaitReason::ChannelRecv,
        WaitReason::ChannelReserve,
        WaitReason::ChannelClosed,
        WaitReason::Select,
        WaitReason::ScopeEnd,
        WaitReason::TokenCancelled,
        WaitReason::JoinHalf,
        WaitReason::JoinNext,
        WaitReason::MutexLock,
        WaitReason::CondvarWait,
        WaitReason::CondvarRelock,
        WaitReason::ReentrantLock,
        WaitReason::SemaphoreAcquire,
        WaitReason::RwLockRead,
        WaitReason::RwLockWrite,
        WaitReason::RwLockUpgrade,
        WaitReason::BarrierWait,
        WaitReason::WaitGroupWait,
        WaitReason::OnceWait,
        WaitReason::EventWait,
        WaitReason::NetRead,
        WaitReason::NetWrite,
        WaitReason::NetAccept,
        WaitReason::NetConnect,
        WaitReason::NetLookup,
        WaitReason::FileCall,
        WaitReason::PipeRead,
        WaitReason::PipeWrite,
        WaitReason::ChildExit,
        WaitReason::StdinRead,
        WaitReason::MachineCall,
        WaitReason::MachineIdle,
        WaitReason::OneshotRecv,
        WaitReason::OneshotClosed,
        WaitReason::WatchChanged,
        WaitReason::WatchClosed,
        WaitReason::BroadcastRecv,
        WaitReason::BroadcastClosed,
        WaitReason::OrderedSpawn,
        WaitReason::OrderedRecv,
        WaitReason::PoolGet,
        WaitReason::ActorSend,
        WaitReason::ActorCall,
        WaitReason::ActorStopped,
        WaitReason::ActorLock,
        WaitReason::ActorsQuiescent,
    ];

    /// A binding wait cannot be ended by cancellation: somebody else is using this stack. It is delivered at the next revocable wait.
    pub fn is_binding(self) -> bool {
        matches!(
            self,
            WaitReason::BlockingRunning
                | WaitReason::RunEnd
                | WaitReason::RuntimeEnd
                | WaitReason::ScopeEnd
                | WaitReason::JoinHalf
                | WaitReason::CondvarRelock
                | WaitReason::FileCall
        )
    }

    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u8 == bits)
    }

    /// The words of reports: what a fiber does that waits for this reason.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            WaitReason::Sleep => "sleeping",
            WaitReason::Join => "joining a fiber",
            WaitReason::BlockingQueued => "queued for the blocking pool",
            WaitReason::BlockingRunning => "running on the blocking pool",
            WaitReason::BlockOn => "waiting for a future",
            WaitReason::RunEnd => "waiting for the fibers of its run",
            WaitReason::RuntimeEnd => "waiting for the daemons of its runtime",
            WaitReason::ChannelSend => "sending to a channel",
            WaitReason::ChannelRecv => "receiving from a channel",
            WaitReason::ChannelReserve => "reserving a place in a channel",
            WaitReason::ChannelClosed => "waiting for the other side of a channel to go",
            WaitReason::Select => "waiting for one of several operations",
            WaitReason::ScopeEnd => "waiting for the fibers of its scope",
            WaitReason::TokenCancelled => "waiting for a token to be cancelled",
            WaitReason::JoinHalf => "waiting for the other half of a join",
            WaitReason::JoinNext => "waiting for the next of several fibers",
            WaitReason::MutexLock => "waiting for a mutex",
            WaitReason::CondvarWait => "waiting for a condition",
            WaitReason::CondvarRelock => "waiting for the mutex of a condition",
            WaitReason::ReentrantLock => "waiting for a reentrant mutex",
            WaitReason::SemaphoreAcquire => "acquiring permits of a semaphore",
            WaitReason::RwLockRead => "waiting to read under a read-write lock",
            WaitReason::RwLockWrite => "waiting to write under a read-write lock",
            WaitReason::RwLockUpgrade => "waiting for the other readers of a read-write lock to go",
            WaitReason::BarrierWait => "waiting for the others at a barrier",
            WaitReason::WaitGroupWait => "waiting for the others of a wait group",
            WaitReason::OnceWait => "waiting for a value to be initialised",
            WaitReason::EventWait => "waiting for an event",
            WaitReason::NetRead => "reading from a socket",
            WaitReason::NetWrite => "writing to a socket",
            WaitReason::NetAccept => "accepting a connection",
            WaitReason::NetConnect => "connecting",
            WaitReason::NetLookup => "looking a name up",
            WaitReason::FileCall => "in a call on files, on the blocking pool",
            WaitReason::PipeRead => "reading from a pipe",
            WaitReason::PipeWrite => "writing to a pipe",
            WaitReason::ChildExit => "waiting for a child process to exit",
            WaitReason::StdinRead => "reading standard input",
            WaitReason::MachineCall => "waiting for the answer of a machine",
            WaitReason::MachineIdle => "running machines that have nothing to do",
            WaitReason::OneshotRecv => "receiving from a oneshot channel",
            WaitReason::OneshotClosed => "waiting for the receiver of a oneshot channel to go",
            WaitReason::WatchChanged => "waiting for a watched value to change",
            WaitReason::WatchClosed => "waiting for the receivers of a watched value to go",
            WaitReason::BroadcastRecv => "receiving from a broadcast channel",
            WaitReason::BroadcastClosed => "waiting for the receivers of a broadcast channel to go",
            WaitReason::OrderedSpawn => "waiting for a place in an ordered channel",
            WaitReason::OrderedRecv => "receiving from an ordered channel",
            WaitReason::PoolGet => "waiting for an item of a pool",
            WaitReason::ActorSend => "sending to an actor whose mailbox is full",
            WaitReason::ActorCall => "waiting for the answer of an actor",
            WaitReason::ActorStopped => "waiting for an actor to end",
            WaitReason::ActorLock => "waiting for a lock of actors",
            WaitReason::ActorsQuiescent => "waiting until no actor has work",
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
