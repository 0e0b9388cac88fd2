//! One case per reason to wait: parked there, cancelled, it unwinds at once (or, if binding, first gets what it waits for), and
//! nothing is lost. A new reason without a case fails the test.
//!
//! Each case is played once for every [`Way`] to be cancelled: a case that parks its fiber with [`cancelled_in`], or starts it with
//! [`Victim::start`], need not know which.

mod actors;
mod channels;
mod ends;
mod io;
mod locks;

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support::{self, until_parked};
use fibra::{CancelToken, JoinHandle, Runtime, Scope, ScopeError, WaitReason};

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
        WaitReason::Sleep => ends::sleep(),
        WaitReason::Join => ends::join(),
        WaitReason::BlockingQueued => ends::blocking_queued(),
        WaitReason::BlockingRunning => ends::blocking_running(),
        WaitReason::BlockOn => ends::block_on(),
        WaitReason::RunEnd => ends::run_end(),
        WaitReason::RuntimeEnd => ends::runtime_end(),
        WaitReason::ChannelSend => channels::channel_send(),
        WaitReason::ChannelRecv => channels::channel_recv(),
        WaitReason::ChannelReserve => channels::channel_reserve(),
        WaitReason::ChannelClosed => channels::channel_closed(),
        WaitReason::Select => channels::select(),
        WaitReason::JoinHalf => ends::join_half(),
        WaitReason::ScopeEnd => ends::scope_end(),
        WaitReason::JoinNext => ends::join_next(),
        WaitReason::TokenCancelled => ends::token_cancelled(),
        WaitReason::EventWait => locks::event_wait(),
        WaitReason::NetRead => io::net_read(),
        WaitReason::NetWrite => io::net_write(),
        WaitReason::NetAccept => io::net_accept(),
        WaitReason::NetConnect => io::net_connect(),
        WaitReason::NetLookup => io::net_lookup(),
        WaitReason::FileCall => io::file_call(),
        WaitReason::PipeRead => io::pipe_read(),
        WaitReason::PipeWrite => io::pipe_write(),
        WaitReason::ChildExit => io::child_exit(),
        WaitReason::StdinRead => io::stdin_read(),
        WaitReason::MachineCall => actors::machine_call(),
        WaitReason::MachineIdle => actors::machine_idle(),
        WaitReason::OnceWait => locks::once_wait(),
        WaitReason::WaitGroupWait => locks::wait_group_wait(),
        WaitReason::BarrierWait => locks::barrier_wait(),
        WaitReason::RwLockUpgrade => locks::rwlock_upgrade(),
        WaitReason::RwLockWrite => locks::rwlock_write(),
        WaitReason::RwLockRead => locks::rwlock_read(),
        WaitReason::SemaphoreAcquire => locks::semaphore_acquire(),
        WaitReason::ReentrantLock => locks::reentrant_lock(),
        WaitReason::CondvarRelock => locks::condvar_relock(),
        WaitReason::CondvarWait => locks::condvar_wait(),
        WaitReason::MutexLock => locks::mutex_lock(),
        WaitReason::OneshotRecv => channels::oneshot_recv(),
        WaitReason::OneshotClosed => channels::oneshot_closed(),
        WaitReason::WatchChanged => channels::watch_changed(),
        WaitReason::WatchClosed => channels::watch_closed(),
        WaitReason::BroadcastRecv => channels::broadcast_recv(),
        WaitReason::BroadcastClosed => channels::broadcast_closed(),
        WaitReason::OrderedSpawn => channels::ordered_spawn(),
        WaitReason::OrderedRecv => channels::ordered_recv(),
        WaitReason::PoolGet => channels::pool_get(),
        WaitReason::ActorSend => actors::actor_send(),
        WaitReason::ActorCall => actors::actor_call(),
        WaitReason::ActorStopped => actors::actor_stopped(),
        WaitReason::ActorLock => actors::actor_lock(),
        WaitReason::ActorsQuiescent => actors::actors_quiescent(),
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
