//! One case per reason to wait: parked there, cancelled, it unwinds at once (or, if binding, first gets what it waits for), and
//! nothing is lost. A new reason without a case fails the test.
//!
//! Each case is played once for every [`Way`] to be cancelled: a case that parks its fiber with [`cancelled_in`], or starts it with
//! [`Victim::start`], need not know which. It is one long file because there are many reasons.

use std::cell::Cell;
use std::collections::HashSet;
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::{self, until_parked};
use fibra::actor::{self, Actor, Failure};
use fibra::machine::{CANCELLED, EventLoop, Machine, Ports, Request, Timestamp};
use fibra::net::{TcpListener, TcpStream, UnixStream};
use fibra::sync::{
    Barrier, Condvar, Event, Mutex, OnceLock, ReentrantMutex, RwLock, RwLockUpgradableReadGuard, Semaphore, WaitGroup,
};
use fibra::{Builder, CancelToken, JoinHandle, Runtime, Scope, ScopeError, WaitReason, channel};

const LONG: Duration = Duration::from_secs(3600);

fn runtime() -> Runtime {
    Runtime::builder().workers(1).max_blocking_threads(1).build().unwrap()
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

// S4-15, S4-18, S4-19, S4-103, S4-111, S1-65: cancelling wakes whatever is parked, by the ordinary claim, wherever it is parked.
#[test]
fn every_reason_to_wait_can_be_cancelled() {
    let _watchdog = support::watchdog(120);
    for reason in WaitReason::ALL {
        for way in Way::ALL {
            println!("{reason:?}: {reason}, cancelled by {way:?}");
            WAY.set(way);
            play(reason);
        }
    }
}

fn play(reason: WaitReason) {
    match reason {
        WaitReason::Sleep => sleep(),
        WaitReason::Join => join(),
        WaitReason::BlockingQueued => blocking_queued(),
        WaitReason::BlockingRunning => blocking_running(),
        WaitReason::BlockOn => block_on(),
        WaitReason::RunEnd => run_end(),
        WaitReason::RuntimeEnd => runtime_end(),
        WaitReason::ChannelSend => channel_send(),
        WaitReason::ChannelRecv => channel_recv(),
        WaitReason::ChannelReserve => channel_reserve(),
        WaitReason::ChannelClosed => channel_closed(),
        WaitReason::Select => select(),
        WaitReason::JoinHalf => join_half(),
        WaitReason::ScopeEnd => scope_end(),
        WaitReason::JoinNext => join_next(),
        WaitReason::TokenCancelled => token_cancelled(),
        WaitReason::EventWait => event_wait(),
        WaitReason::NetRead => net_read(),
        WaitReason::NetWrite => net_write(),
        WaitReason::NetAccept => net_accept(),
        WaitReason::NetConnect => net_connect(),
        WaitReason::NetLookup => net_lookup(),
        WaitReason::FileCall => file_call(),
        WaitReason::PipeRead => pipe_read(),
        WaitReason::PipeWrite => pipe_write(),
        WaitReason::ChildExit => child_exit(),
        WaitReason::StdinRead => stdin_read(),
        WaitReason::MachineCall => machine_call(),
        WaitReason::MachineIdle => machine_idle(),
        WaitReason::OnceWait => once_wait(),
        WaitReason::WaitGroupWait => wait_group_wait(),
        WaitReason::BarrierWait => barrier_wait(),
        WaitReason::RwLockUpgrade => rwlock_upgrade(),
        WaitReason::RwLockWrite => rwlock_write(),
        WaitReason::RwLockRead => rwlock_read(),
        WaitReason::SemaphoreAcquire => semaphore_acquire(),
        WaitReason::ReentrantLock => reentrant_lock(),
        WaitReason::CondvarRelock => condvar_relock(),
        WaitReason::CondvarWait => condvar_wait(),
        WaitReason::MutexLock => mutex_lock(),
        WaitReason::OneshotRecv => oneshot_recv(),
        WaitReason::OneshotClosed => oneshot_closed(),
        WaitReason::WatchChanged => watch_changed(),
        WaitReason::WatchClosed => watch_closed(),
        WaitReason::BroadcastRecv => broadcast_recv(),
        WaitReason::BroadcastClosed => broadcast_closed(),
        WaitReason::OrderedSpawn => ordered_spawn(),
        WaitReason::OrderedRecv => ordered_recv(),
        WaitReason::PoolGet => pool_get(),
        WaitReason::ActorSend => actor_send(),
        WaitReason::ActorCall => actor_call(),
        WaitReason::ActorStopped => actor_stopped(),
        WaitReason::ActorLock => actor_lock(),
        WaitReason::ActorsQuiescent => actors_quiescent(),
        other => panic!("{other:?} has no case here: what happens if a fiber is cancelled in it?"),
    }
}

#[test]
fn reasons_are_distinct_and_have_words() {
    let words: HashSet<String> = WaitReason::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(words.len(), WaitReason::ALL.len());
    let numbers: HashSet<u8> = WaitReason::ALL.iter().map(|reason| *reason as u8).collect();
    assert!(numbers.len() == WaitReason::ALL.len() && !numbers.contains(&0));
    let binding: Vec<_> = WaitReason::ALL.into_iter().filter(|reason| reason.is_binding()).collect();
    assert_eq!(
        binding,
        [
            WaitReason::BlockingRunning,
            WaitReason::RunEnd,
            WaitReason::RuntimeEnd,
            WaitReason::ScopeEnd,
            WaitReason::JoinHalf,
            WaitReason::CondvarRelock,
            WaitReason::FileCall,
        ]
    );
}

/// How a fiber is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// By its handle.
    Handle,
    /// With the other children of its scope.
    Scope,
    /// As the body of a scope.
    Body,
    /// By a deadline around it.
    Deadline,
}

impl Way {
    const ALL: [Way; 4] = [Way::Handle, Way::Scope, Way::Body, Way::Deadline];
}

thread_local! {
    /// The one that is being played.
    static WAY: Cell<Way> = const { Cell::new(Way::Handle) };
    /// How long the deadline of [`Way::Deadline`] is, from the start of the fiber.
    static DEADLINE: Cell<Duration> = const { Cell::new(SHORT) };
}

const SHORT: Duration = Duration::from_millis(10);

/// Plays a case that needs a fiber which has begun something before it is cancelled, and says whether it had. A deadline comes when it
/// comes: on a machine that has other things to do, it may come before. Then the case has shown that what was not begun is not done,
/// and is played with a longer deadline. The other ways to cancel are at the case's command, and for them there is no second time.
fn begun_before_it_is_cancelled(case: fn() -> bool) {
    for factor in [1, 10, 100, 1000] {
        DEADLINE.set(SHORT * factor);
        let begun = case();
        DEADLINE.set(SHORT);
        if begun {
            return;
        }
        assert_eq!(WAY.get(), Way::Deadline, "it ended before it had begun");
    }
    panic!("it does not begin within seconds");
}

/// A fiber that waits for something, and is cancelled in the way that is being played.
struct Victim {
    fiber: JoinHandle<Result<(), ScopeError>>,
    way: Way,
    token: CancelToken,
    /// Of the scope with the deadline, as soon as that is open.
    overdue: std::sync::mpsc::Receiver<CancelToken>,
}

impl Victim {
    fn start(runtime: &Runtime, wait: impl FnOnce() + Send + 'static) -> Self {
        let (way, token) = (WAY.get(), CancelToken::new());
        let scope = Scope::builder().token(token.clone());
        let (tell, overdue) = std::sync::mpsc::channel();
        let fiber = match way {
            Way::Handle => runtime.spawn(move || {
                wait();
                Ok(())
            }),
            Way::Scope => runtime.spawn(move || scope.run(|s| drop(s.spawn(wait)))),
            Way::Body => runtime.spawn(move || scope.run(|_| wait())),
            Way::Deadline => {
                let deadline = DEADLINE.get();
                runtime.spawn(move || {
                    scope.timeout(deadline).run(|s| {
                        tell.send(s.token()).unwrap();
                        wait();
                    })
                })
            }
        };
        Self { fiber, way, token, overdue }
    }

    /// Waits until it is parked, besides so many others. (With a deadline it may be over by now.)
    #[track_caller]
    fn until_parked(&self, runtime: &Runtime, others: u64) {
        match self.way {
            Way::Handle | Way::Body => until_parked(runtime, others + 1),
            // The body waits for its child.
            Way::Scope => until_parked(runtime, others + 2),
            Way::Deadline => {}
        }
    }

    fn cancel(&self) {
        match self.way {
            Way::Handle => self.fiber.cancel(),
            Way::Scope | Way::Body => self.token.cancel(),
            Way::Deadline => {}
        }
    }

    /// Waits until something has begun in it, or until it has ended without that.
    #[track_caller]
    fn has_begun(&self, mut begun: impl FnMut() -> bool) -> bool {
        let mut seen = false;
        let look = || {
            seen = begun();
            seen || self.fiber.is_finished()
        };
        support::eventually(look, || "it does not begin".to_owned());
        // Between the two looks it may have begun and ended.
        seen || begun()
    }

    /// Waits until it has been cancelled, by its deadline too.
    #[track_caller]
    fn until_cancelled(&self) {
        if self.way == Way::Deadline {
            let token = self.overdue.recv().expect("its scope was opened");
            // A scope tells its body first, then its token.
            support::eventually(|| token.is_cancelled(), || "the deadline does not come".to_owned());
        }
    }

    /// It has been cancelled, and is still there.
    #[track_caller]
    fn still_waits(&self) {
        self.until_cancelled();
        std::thread::sleep(Duration::from_millis(3));
        assert!(!self.fiber.is_finished(), "{:?}", self.way);
    }

    /// It unwound, up to what was cancelled and no further.
    #[track_caller]
    fn unwound(self) {
        let outcome = self.fiber.join();
        match self.way {
            Way::Handle => assert!(outcome.unwrap_err().is_cancelled()),
            Way::Scope | Way::Body => assert_eq!(outcome.unwrap(), Err(ScopeError::Cancelled)),
            Way::Deadline => assert_eq!(outcome.unwrap(), Err(ScopeError::TimedOut)),
        }
    }
}

/// Parks a fiber in `wait`, cancels it, and shows that it unwound.
fn cancelled_in(wait: impl FnOnce() + Send + 'static) {
    let runtime = runtime();
    let victim = Victim::start(&runtime, wait);
    victim.until_parked(&runtime, 0);
    victim.cancel();
    victim.unwound();
    until_parked(&runtime, 0);
    assert!(runtime.metrics().cancellations >= 1);
}

// The sender learns that the cancelled receiver is gone, and keeps its value.
fn oneshot_recv() {
    let (tx, rx) = channel::oneshot();
    cancelled_in(move || assert!(rx.recv().is_err()));
    assert_eq!(tx.send(1), Err(1));
}

fn oneshot_closed() {
    let (tx, rx) = channel::oneshot::<u8>();
    cancelled_in(move || tx.closed());
    assert!(rx.recv().is_err(), "the sender is gone");
}

// The change that comes after it is there for the next wait.
fn watch_changed() {
    let (tx, rx) = channel::watch(0);
    let waiting = rx.clone();
    cancelled_in(move || assert!(waiting.changed().is_err()));
    tx.send(1).unwrap();
    assert!(rx.changed().is_ok());
}

fn watch_closed() {
    let (tx, rx) = channel::watch(0);
    cancelled_in(move || tx.closed());
    assert!(rx.changed().is_err(), "the sender is gone");
}

fn broadcast_recv() {
    let (tx, rx) = channel::broadcast(4);
    let rx = Arc::new(rx);
    let waiting = rx.clone();
    cancelled_in(move || assert!(waiting.recv().is_err()));
    tx.send(1).unwrap();
    assert_eq!(rx.recv(), Ok(1), "the one that was cancelled has taken nothing");
}

fn broadcast_closed() {
    let (tx, rx) = channel::broadcast::<u8>(4);
    cancelled_in(move || tx.closed());
    assert!(rx.recv().is_err(), "the sender is gone");
}

// The task of one that was cancelled never ran, and its place is free.
fn ordered_spawn() {
    let runtime = runtime();
    let (tx, rx) = channel::ordered(1);
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let sender = tx.clone();
    runtime.run(move || sender.spawn(|| 1).unwrap());
    let waiting = tx.clone();
    cancelled_in(move || {
        drop(waiting.spawn(move || {
            counted.fetch_add(1, SeqCst);
            2
        }));
    });
    assert_eq!(rx.recv().unwrap().unwrap(), 1);
    runtime.run(move || tx.spawn(|| 3).unwrap());
    assert_eq!((rx.recv().unwrap().unwrap(), ran.load(SeqCst)), (3, 0));
}

// The result is there for the next one.
fn ordered_recv() {
    let runtime = runtime();
    let (tx, rx) = channel::ordered(1);
    let waiting = rx.clone();
    cancelled_in(move || drop(waiting.recv()));
    runtime.run(move || tx.spawn(|| 1).unwrap());
    assert_eq!(rx.recv().unwrap().unwrap(), 1);
}

fn pool_get() {
    let pool = channel::pool(1, || Ok::<_, ()>(1), |_| true);
    let held = pool.get().unwrap();
    let waiting = pool.clone();
    cancelled_in(move || drop(waiting.get()));
    drop(held);
    assert_eq!((pool.try_get().map(|item| *item), pool.idle()), (Ok(1), 1));
}

/// An actor whose messages are functions, on a runtime of its own.
struct Obedient;

impl Actor for Obedient {
    type Message = Box<dyn FnOnce() + Send>;
    fn handle(&mut self, job: Self::Message, _: &mut actor::Context<Self>) -> Result<(), Failure> {
        job();
        Ok(())
    }
}

// The place that it waited for is free for the next.
fn actor_send() {
    let rt = runtime();
    let actor = rt.run(|| actor::Builder::new().mailbox(1).spawn(Obedient)).unwrap();
    let (begun, gate) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let (says, waits) = (begun.clone(), gate.clone());
    let busy = move || {
        says.set();
        waits.wait();
    };
    actor.send(Box::new(busy)).unwrap();
    begun.wait();
    actor.send(Box::new(|| ())).unwrap();
    let (sender, dropped) = (actor.clone(), Arc::new(AtomicUsize::new(0)));
    let message = Counted(dropped.clone());
    cancelled_in(move || drop(sender.send(Box::new(move || drop(message)))));
    assert_eq!((dropped.load(SeqCst), actor.len()), (1, 1));
    gate.set();
    actor.call(|reply| Box::new(move || reply.send(()))).unwrap();
}

// The actor finds that no caller waits for its answer.
fn actor_call() {
    let rt = runtime();
    let actor = rt.run(|| actor::spawn(Obedient));
    let (replies, kept) = channel::bounded(1);
    let caller = actor.clone();
    cancelled_in(move || drop(caller.call(|reply: actor::Reply<()>| Box::new(move || replies.send(reply).unwrap()))));
    assert!(kept.recv().unwrap().is_abandoned());
}

fn actor_stopped() {
    let rt = runtime();
    let actor = rt.run(|| actor::spawn(Obedient));
    let waiting = actor.clone();
    cancelled_in(move || drop(waiting.stopped()));
    assert!(actor.is_alive());
}

// The lock goes to the next.
fn actor_lock() {
    let lock = Arc::new(actor::Lock::new(0));
    let (held, waiting) = (lock.lock(), lock.clone());
    cancelled_in(move || drop(waiting.lock()));
    drop(held);
    assert!(!lock.is_locked());
}

// What it ran is cancelled with it. (The function waits for time, so that there is no deadlock to be reported.)
fn actors_quiescent() {
    let runtime = runtime();
    let victim = Victim::start(&runtime, || drop(actor::run_until_quiescent(|| fibra::sleep(LONG))));
    victim.until_parked(&runtime, 1);
    victim.cancel();
    victim.unwound();
    until_parked(&runtime, 0);
}

// A read that was cancelled has taken nothing: what comes after it is read by the next one.
fn net_read() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let here = Arc::new(here);
    let waiting = here.clone();
    cancelled_in(move || drop((&*waiting).read(&mut [0; 8])));
    there.write_all(b"later").unwrap();
    let mut buffer = [0; 8];
    assert_eq!((&*here).read(&mut buffer).unwrap(), 5);
}

fn net_write() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let here = Arc::new(here);
    let (waiting, written) = (here.clone(), Arc::new(AtomicUsize::new(0)));
    let count = written.clone();
    cancelled_in(move || {
        loop {
            count.fetch_add((&*waiting).write(&[1; 4096]).unwrap(), SeqCst);
        }
    });
    // What was counted as written arrives, and nothing else; then there is room again.
    let mut all = vec![0; written.load(SeqCst)];
    there.read_exact(&mut all).unwrap();
    (&*here).write_all(&[2]).unwrap();
    let mut next = [0];
    there.read_exact(&mut next).unwrap();
    assert_eq!(next, [2]);
}

fn net_accept() {
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let waiting = listener.clone();
    cancelled_in(move || drop(waiting.accept()));
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap());
}

// No fiber accepts and the queue is full: the kernel lets connections wait.
fn net_connect() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // SAFETY: the descriptor is open, and the call takes no pointers. Shortens the queue.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(50)) {
        queued.push(stream);
    }
    cancelled_in(move || drop(TcpStream::connect(address)));
    // The others are not concerned.
    for stream in &queued {
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from, stream.local_addr().unwrap());
    }
}

// The answer is dropped when it comes, and no caller waits for it.
fn net_lookup() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (answer, server) = std::sync::mpsc::channel::<()>();
    let counted = Counted(drops.clone());
    cancelled_in(move || {
        let _ = fibra::__private::look_up_with(move || {
            let _ = server.recv();
            drop(counted);
            Ok(Vec::new())
        });
    });
    assert_eq!(drops.load(SeqCst), 0, "it hangs still, and the runtime is gone");
    answer.send(()).unwrap();
    support::eventually(|| drops.load(SeqCst) == 1, || "the answer does not come".to_owned());
}

// Opening a named pipe waits for the other end, on the pool: binding.
fn file_call() {
    begun_before_it_is_cancelled(file_call_once);
}

fn file_call_once() -> bool {
    let path = std::env::temp_dir().join(format!("fibra-fifo-{}", std::process::id()));
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a zero and lives through the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let runtime = runtime();
    let (begun, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let victim = Victim::start(&runtime, {
        let (path, begun, opened) = (path.clone(), begun.clone(), opened.clone());
        move || {
            begun.store(true, SeqCst);
            let file = fibra::fs::File::open(path);
            opened.store(file.is_ok(), SeqCst);
            fibra::checkpoint();
            opened.store(false, SeqCst);
        }
    });
    assert!(victim.has_begun(|| begun.load(SeqCst)), "its body runs, however short the deadline is");
    // A call that is only queued would be taken back.
    victim.has_begun(|| (runtime.metrics().blocking_threads, runtime.metrics().blocking_queued) == (1, 0));
    victim.cancel();
    victim.until_cancelled();
    std::thread::sleep(Duration::from_millis(3));
    // This opens it if another one is waiting for that, and does not wait itself.
    let called =
        victim.has_begun(|| std::fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path).is_ok());
    victim.unwound();
    assert_eq!(opened.load(SeqCst), called, "the file was opened, and cancellation came after it");
    std::fs::remove_file(&path).unwrap();
    called
}

fn cat() -> fibra::process::Child {
    fibra::process::Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn pipe_read() {
    let mut child = cat();
    let output = Arc::new(child.stdout.take().unwrap());
    let waiting = output.clone();
    cancelled_in(move || drop((&*waiting).read(&mut [0; 8])));
    child.stdin.as_mut().unwrap().write_all(b"later").unwrap();
    let mut buffer = [0; 5];
    (&*output).read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"later");
    assert!(child.wait().unwrap().success());
}

// No fiber reads what `cat` writes, so it stops reading.
fn pipe_write() {
    let mut child = cat();
    let input = Arc::new(child.stdin.take().unwrap());
    let (waiting, written) = (input.clone(), Arc::new(AtomicUsize::new(0)));
    let count = written.clone();
    cancelled_in(move || {
        loop {
            count.fetch_add((&*waiting).write(&[1; 4096]).unwrap(), SeqCst);
        }
    });
    let mut output = child.stdout.take().unwrap();
    let mut all = vec![0; written.load(SeqCst)];
    output.read_exact(&mut all).unwrap();
    (&*input).write_all(&[2]).unwrap();
    drop(input);
    all.clear();
    output.read_to_end(&mut all).unwrap();
    assert_eq!(all, [2]);
    assert!(child.wait().unwrap().success());
}

// The child is as it was, and can be waited for.
fn child_exit() {
    let child = Arc::new(cat());
    let waiting = child.clone();
    cancelled_in(move || {
        fibra::select! {
            on(waiting.exiting()) -> status => panic!("it has exited: {status:?}"),
        }
    });
    let mut child = Arc::into_inner(child).unwrap();
    let input = child.stdin.take();
    let waiting = Arc::new(Mutex::new(child));
    let shared = waiting.clone();
    cancelled_in(move || drop(waiting.lock().wait()));
    let mut child = Arc::into_inner(shared).unwrap().into_inner();
    assert_eq!(child.try_wait().unwrap(), None);
    drop(input);
    assert!(child.wait().unwrap().success());
}

// What is typed later is there for the next one.
fn stdin_read() {
    static INPUT: std::sync::OnceLock<std::io::PipeWriter> = std::sync::OnceLock::new();
    let mut input = INPUT.get_or_init(|| {
        let (reader, writer) = std::io::pipe().unwrap();
        // SAFETY: both descriptors are open. Nothing else in this test reads standard input.
        assert_eq!(unsafe { libc::dup2(reader.as_raw_fd(), 0) }, 0);
        writer
    });
    cancelled_in(|| drop(fibra::io::stdin().read_line(&mut String::new())));
    // Half a line is not lost either.
    input.write_all(b"to be ").unwrap();
    cancelled_in(|| drop(fibra::io::stdin().read_line(&mut String::new())));
    input.write_all(b"continued\n").unwrap();
    let mut line = String::new();
    assert_eq!(fibra::io::stdin().read_line(&mut line).unwrap(), 16);
    assert_eq!(line, "to be continued\n");
}

/// Answers only what is cancelled.
struct Silent(Vec<Request>, #[allow(dead_code)] Option<Counted>);

impl Machine for Silent {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            self.0.push(request);
        }
        while ports.input.cancellations.pop().is_some() {
            ports.complete(self.0.remove(0), CANCELLED);
        }
    }
}

// The machine is told, and what was sent is dropped when it has answered.
fn machine_call() {
    let (runtime, drops) = (runtime(), Arc::new(AtomicUsize::new(0)));
    let machine = runtime.attach(Silent(Vec::new(), None));
    let sent = Counted(drops.clone());
    let victim = Victim::start(&runtime, move || drop(machine.call(0, sent)));
    victim.until_parked(&runtime, 1);
    victim.cancel();
    victim.unwound();
    support::eventually(|| drops.load(SeqCst) == 1, || format!("{drops:?}"));
    until_parked(&runtime, 1);
}

// The loop ends in order: its machine is dropped.
fn machine_idle() {
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    cancelled_in(move || {
        let looping = EventLoop::new().app(Silent(Vec::new(), Some(counted)));
        let _watched = looping.stopper();
        looping.run().unwrap();
    });
    assert_eq!(drops.load(SeqCst), 1);
}

// A cancelled request holds nothing, and the request behind it goes on.
fn semaphore_acquire() {
    let semaphore = Arc::new(Semaphore::new(2));
    let held = semaphore.acquire(1).unwrap();
    let waiting = semaphore.clone();
    cancelled_in(move || drop(waiting.acquire(2)));
    assert!(semaphore.try_acquire(1).is_ok());
    drop(held);
    assert_eq!(semaphore.available(), 2);
}

fn rwlock_read() {
    let lock = Arc::new(RwLock::new(1));
    let waiting = lock.clone();
    let held = lock.write();
    cancelled_in(move || drop(waiting.read()));
    drop(held);
    assert!(!lock.is_locked() && lock.try_write().is_some());
    // The same for the one that may write later.
    let held = lock.write();
    let waiting = lock.clone();
    cancelled_in(move || drop(waiting.upgradable_read()));
    drop(held);
    assert!(lock.try_upgradable_read().is_some());
}

// A writer that was cancelled does not hold back readers any more.
fn rwlock_write() {
    let lock = Arc::new(RwLock::new(1));
    let held = lock.read();
    let waiting = lock.clone();
    cancelled_in(move || drop(waiting.write()));
    assert!(lock.try_read().is_some());
    drop(held);
    assert!(lock.try_write().is_some());
}

// It lets go of what it had.
fn rwlock_upgrade() {
    let lock = Arc::new(RwLock::new(1));
    let held = lock.read();
    let waiting = lock.clone();
    cancelled_in(move || drop(RwLockUpgradableReadGuard::upgrade(waiting.upgradable_read())));
    assert!(lock.try_upgradable_read().is_some() && lock.try_read().is_some());
    drop(held);
    assert!(lock.try_write().is_some());
}

// It is not counted any more.
fn barrier_wait() {
    let barrier = Arc::new(Barrier::new(2));
    let waiting = barrier.clone();
    cancelled_in(move || assert!(waiting.wait().is_leader()));
    assert!(barrier.wait_timeout(Duration::ZERO).is_none());
    let waiting = barrier.clone();
    let other = std::thread::spawn(move || waiting.wait().is_leader());
    assert_ne!(barrier.wait().is_leader(), other.join().unwrap());
}

fn wait_group_wait() {
    let group = Arc::new(WaitGroup::new());
    group.add(1);
    let waiting = group.clone();
    cancelled_in(move || waiting.wait());
    assert!(!group.is_done());
    group.done();
    group.wait();
}

// One that waits for the value leaves; then the one who makes it does, and the next makes it.
fn once_wait() {
    let value = Arc::new(OnceLock::new());
    let runtime = runtime();
    let (making, waiting) = (value.clone(), value.clone());
    let maker = runtime.spawn(move || {
        making.get_or_init(|| {
            fibra::sleep(LONG);
            1
        });
    });
    until_parked(&runtime, 1);
    cancelled_in(move || assert_eq!(waiting.get_or_init(|| 2), &2));
    let waiting = value.clone();
    cancelled_in(move || assert_eq!(waiting.wait(), &2));
    assert_eq!(value.get(), None);
    maker.cancel();
    assert!(maker.join().unwrap_err().is_cancelled());
    assert_eq!(value.get_or_init(|| 3), &3);
}

fn event_wait() {
    let event = Arc::new(Event::new());
    let waiting = event.clone();
    cancelled_in(move || waiting.wait());
    assert!(!event.is_set());
    event.set();
    event.wait();
}

// The value of a cancelled send is dropped, once, and no receiver gets it; the channel works on.
fn channel_send() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (tx, rx) = channel::rendezvous();
    let (value, sender) = (Counted(drops.clone()), tx.clone());
    cancelled_in(move || drop(sender.send(value)));
    assert_eq!(drops.load(SeqCst), 1);
    assert!(rx.try_recv().is_err());
    let receiver = std::thread::spawn(move || rx.recv().is_ok());
    assert!(tx.send(Counted(drops)).is_ok() && receiver.join().unwrap());
}

// A cancelled receive takes nothing: what comes goes to the next.
fn channel_recv() {
    let (tx, rx) = channel::bounded(1);
    let receiver = rx.clone();
    cancelled_in(move || assert!(receiver.recv().is_err()));
    tx.send(7).unwrap();
    assert_eq!(rx.try_recv(), Ok(7));
}

// A cancelled reservation holds no place.
fn channel_reserve() {
    let (tx, rx) = channel::bounded(1);
    tx.send(1).unwrap();
    let sender = tx.clone();
    cancelled_in(move || drop(sender.reserve()));
    assert_eq!(rx.try_recv(), Ok(1));
    assert_eq!(tx.try_send(2), Ok(()));
}

fn channel_closed() {
    let (tx, rx) = channel::bounded::<u32>(1);
    let sender = tx.clone();
    cancelled_in(move || drop(sender.closed()));
    assert!(tx.try_send(1).is_ok() && rx.try_recv() == Ok(1));
}

// Nothing is taken out of the set: it goes with the fiber that had it, and cancels the members.
fn join_next() {
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    let runtime = runtime();
    let fiber = runtime.spawn(move || {
        let mut set = fibra::JoinSet::new();
        set.spawn(move || {
            let _counted = counted;
            fibra::sleep(LONG);
        });
        set.join_next().is_some()
    });
    until_parked(&runtime, 2);
    fiber.cancel();
    assert!(fiber.join().unwrap_err().is_cancelled());
    support::eventually(|| drops.load(SeqCst) == 1, || "the member is not cancelled".to_owned());
    until_parked(&runtime, 0);
}

// No arm of a cancelled select is done: the value of its send is dropped, the channels of the others keep theirs.
fn select() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (tx, rx) = channel::rendezvous();
    let (other_tx, other_rx) = channel::bounded(1);
    let (value, sender, receiver) = (Counted(drops.clone()), tx.clone(), other_rx.clone());
    cancelled_in(move || {
        fibra::select! {
            send(sender, value) -> sent => drop(sent),
            recv(receiver) -> received => assert_eq!(received, Ok(0_u32)),
        }
    });
    assert_eq!(drops.load(SeqCst), 1);
    assert!(rx.try_recv().is_err());
    other_tx.send(3).unwrap();
    assert_eq!(other_rx.try_recv(), Ok(3));
    drop(tx);
}

// A cancelled waiter never has the lock, and those behind it do.
fn mutex_lock() {
    let mutex = Arc::new(Mutex::new(0));
    let guard = mutex.lock();
    let waiter = mutex.clone();
    cancelled_in(move || *waiter.lock() += 1);
    drop(guard);
    assert_eq!(*mutex.try_lock().unwrap(), 0);
}

fn reentrant_lock() {
    let mutex = Arc::new(ReentrantMutex::new(0));
    let guard = mutex.lock();
    let waiter = mutex.clone();
    cancelled_in(move || drop(waiter.lock()));
    drop(guard);
    assert!(!mutex.is_locked());
}

// What it did not wait for goes to the next; the mutex is unlocked.
fn condvar_wait() {
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let waiter = shared.clone();
    cancelled_in(move || waiter.1.wait(&mut waiter.0.lock()));
    assert!(shared.0.try_lock().is_some() && !shared.1.notify_one());
}

// Binding: notified and cancelled, it waits until it has the mutex again, and goes on with that.
fn condvar_relock() {
    let runtime = runtime();
    let (shared, ended) = (Arc::new((Mutex::new(0), Condvar::new())), Arc::new(AtomicBool::new(false)));
    let (waiter, tells) = (shared.clone(), ended.clone());
    let fiber = runtime.spawn(move || {
        let mut guard = waiter.0.lock();
        waiter.1.wait(&mut guard);
        *guard += 1;
        tells.store(true, SeqCst);
        drop(guard);
        fibra::checkpoint();
    });
    until_parked(&runtime, 1);
    let held = shared.0.lock();
    assert!(shared.1.notify_one());
    // It wakes, and parks again.
    support::eventually(|| runtime.metrics().switches > 1, || format!("{:?}", runtime.metrics()));
    until_parked(&runtime, 1);
    fiber.cancel();
    runtime.spawn(|| {}).join().unwrap();
    assert!(!ended.load(SeqCst) && runtime.metrics().parked == 1);
    drop(held);
    assert!(fiber.join().unwrap_err().is_cancelled());
    assert!(ended.load(SeqCst) && *shared.0.lock() == 1);
}

fn sleep() {
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    cancelled_in(move || {
        let _counted = counted;
        fibra::sleep(LONG);
    });
    assert_eq!(drops.load(SeqCst), 1);
}

// A token is cancelled for those who still wait.
fn token_cancelled() {
    let (runtime, token) = (runtime(), CancelToken::new());
    let others: Vec<_> = (0..2)
        .map(|_| {
            runtime.spawn({
                let token = token.clone();
                move || token.wait()
            })
        })
        .collect();
    until_parked(&runtime, 2);
    let waits = token.clone();
    let victim = Victim::start(&runtime, move || drop(waits.wait()));
    victim.until_parked(&runtime, 2);
    let last = runtime.spawn({
        let token = token.clone();
        move || token.wait()
    });
    victim.cancel();
    victim.unwound();
    until_parked(&runtime, 3);
    token.cancel_with("for the others");
    for other in others.into_iter().chain([last]) {
        assert_eq!(other.join().unwrap().to_string(), "for the others");
    }
}

// Another fiber borrows from this stack: binding. The child's work arrives, and cancellation after it.
fn scope_end() {
    begun_before_it_is_cancelled(scope_end_once);
}

fn scope_end_once() -> bool {
    let runtime = runtime();
    let (begun, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let value = Arc::new(AtomicUsize::new(0));
    let victim = Victim::start(&runtime, {
        let (begun, go, value) = (begun.clone(), go.clone(), value.clone());
        move || {
            let mut sum = 0;
            fibra::scope(|s| {
                s.spawn(|| {
                    begun.store(true, SeqCst);
                    while !(go.load(SeqCst) && fibra::is_cancelled()) {
                        fibra::shield(|| fibra::sleep(Duration::from_micros(100)));
                    }
                    sum = 6;
                });
            });
            value.store(sum, SeqCst);
            fibra::checkpoint();
            value.store(99, SeqCst);
        }
    });
    if !victim.has_begun(|| begun.load(SeqCst)) {
        victim.unwound();
        assert_eq!(value.load(SeqCst), 0);
        return false;
    }
    victim.cancel();
    victim.still_waits();
    go.store(true, SeqCst);
    victim.unwound();
    assert_eq!(value.load(SeqCst), 6);
    true
}

fn join() {
    let runtime = runtime();
    let go = Arc::new(AtomicBool::new(false));
    let seen = go.clone();
    let child = Arc::new(runtime.spawn(move || {
        while !seen.load(SeqCst) {
            fibra::sleep(Duration::from_millis(1));
        }
        "kept"
    }));
    let joiner = || {
        let child = child.clone();
        runtime.spawn(move || child.wait())
    };
    let first = joiner();
    support::eventually(|| runtime.metrics().parked >= 1, || format!("{:?}", runtime.metrics()));
    let waits = child.clone();
    let victim = Victim::start(&runtime, move || waits.wait());
    support::eventually(|| runtime.metrics().parked >= 2, || format!("{:?}", runtime.metrics()));
    let last = joiner();
    support::eventually(|| runtime.metrics().parked >= 2, || format!("{:?}", runtime.metrics()));
    // The one in the middle of the list goes; the others and the child's value stay.
    victim.cancel();
    victim.unwound();
    assert!(!child.is_finished() && !first.is_finished() && !last.is_finished());
    go.store(true, SeqCst);
    first.join().unwrap();
    last.join().unwrap();
    assert_eq!(Arc::into_inner(child).expect("joiners are gone").join().unwrap(), "kept");
}

/// Starts a job that holds the one thread of the pool until it is told.
fn occupy(runtime: &Runtime) -> (fibra::JoinHandle<()>, std::sync::mpsc::Sender<()>) {
    let (release, released) = std::sync::mpsc::channel();
    let running = Arc::new(AtomicBool::new(false));
    let seen = running.clone();
    let fiber = runtime.spawn(move || {
        fibra::blocking(move || {
            running.store(true, SeqCst);
            let _ = released.recv();
        });
    });
    support::eventually(|| seen.load(SeqCst), || "the job does not start".to_owned());
    (fiber, release)
}

fn blocking_queued() {
    let runtime = runtime();
    let (first, release) = occupy(&runtime);
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    let ran = Arc::new(AtomicBool::new(false));
    let queued = Victim::start(&runtime, {
        let ran = ran.clone();
        move || {
            fibra::blocking(move || {
                let _counted = counted;
                ran.store(true, SeqCst);
            });
        }
    });
    queued.until_parked(&runtime, 1);
    queued.cancel();
    // Although the pool is still occupied.
    queued.unwound();
    assert_eq!((drops.load(SeqCst), ran.load(SeqCst)), (1, false), "taken back, dropped once, never run");
    release.send(()).unwrap();
    first.join().unwrap();
    assert!(!ran.load(SeqCst));
}

fn blocking_running() {
    begun_before_it_is_cancelled(blocking_running_once);
}

fn blocking_running_once() -> bool {
    let runtime = runtime();
    let release = Arc::new(AtomicBool::new(false));
    let (started, value) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let victim = Victim::start(&runtime, {
        let (started, value, release) = (started.clone(), value.clone(), release.clone());
        move || {
            let local = [1, 2, 3];
            // Another thread is using this stack: the job borrows from it.
            let sum: usize = fibra::blocking(|| {
                started.store(true, SeqCst);
                while !release.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                local.iter().sum()
            });
            value.store(sum, SeqCst);
            fibra::checkpoint();
            value.store(99, SeqCst);
        }
    });
    if !victim.has_begun(|| started.load(SeqCst)) {
        victim.unwound();
        assert_eq!(value.load(SeqCst), 0);
        return false;
    }
    victim.cancel();
    victim.still_waits();
    release.store(true, SeqCst);
    victim.unwound();
    assert_eq!(value.load(SeqCst), 6, "the job's value arrived, and cancellation after it");
    true
}

// Another worker may be using this stack: the half borrows from it. It is told, but it need not listen.
fn join_half() {
    begun_before_it_is_cancelled(join_half_once);
}

fn join_half_once() -> bool {
    let runtime = runtime();
    let (begun, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let value = Arc::new(AtomicUsize::new(0));
    let victim = Victim::start(&runtime, {
        let (begun, go, value) = (begun.clone(), go.clone(), value.clone());
        move || {
            let local = [1, 2, 3];
            let (_, sum) = fibra::join(
                || {
                    while !begun.load(SeqCst) {
                        fibra::yield_now();
                    }
                },
                || {
                    begun.store(true, SeqCst);
                    while !(go.load(SeqCst) && fibra::is_cancelled()) {
                        fibra::shield(fibra::yield_now);
                    }
                    local.iter().sum()
                },
            );
            value.store(sum, SeqCst);
            fibra::checkpoint();
            value.store(99, SeqCst);
        }
    });
    victim.until_parked(&runtime, 0);
    if !victim.has_begun(|| begun.load(SeqCst)) {
        victim.unwound();
        assert_eq!(value.load(SeqCst), 0);
        return false;
    }
    victim.cancel();
    victim.still_waits();
    go.store(true, SeqCst);
    victim.unwound();
    assert_eq!(value.load(SeqCst), 6, "the half's value arrived, and cancellation after it");
    true
}

fn block_on() {
    struct Never(#[allow(dead_code)] Counted);
    impl Future for Never {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }
    let runtime = runtime();
    let drops = Arc::new(AtomicUsize::new(0));
    let never = Never(Counted(drops.clone()));
    cancelled_in(move || fibra::block_on(never));
    assert_eq!(drops.load(SeqCst), 1);
    // The same for a future that is a task of its own.
    let never = Never(Counted(drops.clone()));
    let _entered = runtime.handle().enter();
    let task = fibra::spawn_future(never);
    until_parked(&runtime, 1);
    task.cancel();
    assert!(task.join().unwrap_err().is_cancelled());
    assert_eq!(drops.load(SeqCst), 2);
}

/// A root whose function failed is cancelled itself; it waits for its fibers all the same.
fn run_end() {
    let done = Arc::new(AtomicBool::new(false));
    let inner = done.clone();
    let run = catch_unwind(AssertUnwindSafe(|| {
        fibra::run(move || {
            drop(fibra::spawn(move || {
                fibra::shield(|| fibra::sleep(Duration::from_millis(20)));
                inner.store(true, SeqCst);
            }));
            fibra::yield_now();
            fibra::yield_now();
            panic!("the root fails");
        });
    }));
    assert!(run.is_err());
    // Either it was cancelled before it started, or it was waited for; it is over in both cases.
    assert_eq!(Arc::strong_count(&done), 1, "no fiber of the run is left");
}

fn runtime_end() {
    let done = Arc::new(AtomicBool::new(false));
    let (inner, started) = (done.clone(), Arc::new(AtomicBool::new(false)));
    let run = catch_unwind(AssertUnwindSafe(|| {
        fibra::run(move || {
            let seen = started.clone();
            let daemon = Builder::new().name("daemon").daemon(true).spawn(move || {
                fibra::shield(|| {
                    started.store(true, SeqCst);
                    fibra::sleep(Duration::from_millis(20));
                });
                inner.store(true, SeqCst);
            });
            drop(daemon);
            while !seen.load(SeqCst) {
                fibra::yield_now();
            }
            panic!("the root fails");
        });
    }));
    assert!(run.is_err());
    assert!(done.load(SeqCst), "the daemon was waited for, although the root was cancelled");
}
