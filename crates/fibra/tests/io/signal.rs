//! Signals as messages. Each test that sends one does so in a process of its own.
#![cfg(not(fibra_tsan))] // It holds a signal back until its thread makes a call it knows to block; threads that sleep in a futex make none.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::signal::{self, Signal};

fn send(signal: Signal) {
    // SAFETY: the call takes no pointers.
    unsafe { libc::kill(libc::getpid(), signal.as_raw()) };
}

/// Runs `f` in a process of its own, which must end well.
#[track_caller]
fn apart(test: &str, f: impl FnOnce()) {
    let ended = apart_and_ended(test, f);
    if let Some(ended) = ended {
        assert!(ended.status.success(), "{ended:?}");
    }
}

#[track_caller]
fn apart_and_ended(test: &str, f: impl FnOnce()) -> Option<support::Ended> {
    if support::is_child(test) {
        let _watchdog = support::watchdog(40);
        f();
        return None;
    }
    Some(support::rerun_self(test, &[]))
}

#[test]
fn signals_that_no_program_can_hear_are_refused() {
    for number in
        [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, 0, -7, 65, 1000]
    {
        let error = signal::listen([Signal::USR1, Signal::from_raw(number)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&number.to_string()), "{error}");
    }
    let none: [Signal; 0] = [];
    assert_eq!(signal::listen(none).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(signal::listen(32).is_err(), "the C library's own");
}

#[test]
fn signals_have_names() {
    assert_eq!(format!("{} {:?} {}", Signal::TERM, Signal::INT, Signal::from(40)), "SIGTERM SIGINT signal 40");
    assert_eq!((Signal::HUP.name(), Signal::from_raw(40).name()), (Some("SIGHUP"), None));
    assert_eq!(Signal::from(libc::SIGQUIT), Signal::QUIT);
}

#[test]
fn ctrl_c_is_heard_by_fibers_threads_and_selects() {
    apart("ctrl_c_is_heard_by_fibers_threads_and_selects", || {
        let on_thread = signal::ctrl_c().unwrap();
        fibra::run(|| {
            let stop = signal::ctrl_c().unwrap();
            let waiting = fibra::spawn({
                let stop = signal::ctrl_c().unwrap();
                move || stop.recv()
            });
            fibra::sleep(Duration::from_millis(5));
            assert!(!waiting.is_finished() && stop.is_empty());
            send(Signal::INT);
            fibra::select! {
                recv(stop) -> signal => assert_eq!(signal, Ok(Signal::INT)),
                after(Duration::from_secs(30)) => panic!("it was not heard"),
            }
            assert_eq!(waiting.join().unwrap(), Ok(Signal::INT));
        });
        assert_eq!(on_thread.recv(), Ok(Signal::INT));
        // A second runtime, the same receiver.
        send(Signal::INT);
        assert_eq!(fibra::run(|| on_thread.recv()), Ok(Signal::INT));
        // Async.
        send(Signal::INT);
        assert_eq!(fibra::block_on(on_thread.recv_async()), Ok(Signal::INT));
    });
}

// Of a kind one is kept until it is received, however many came; none of another kind is lost for that.
#[test]
fn signals_that_no_fiber_receives_are_one_of_each_kind() {
    apart("signals_that_no_fiber_receives_are_one_of_each_kind", || {
        let heard = signal::listen([Signal::USR1, Signal::USR2, Signal::USR1, Signal::TERM]).unwrap();
        let other = signal::listen(vec![libc::SIGUSR2]).unwrap();
        for round in 0..100 {
            send(Signal::USR1);
            send(Signal::USR1);
            send(Signal::USR2);
            send(Signal::USR1);
            send(Signal::TERM);
            // The system may have them handled on several threads, in any order.
            assert_eq!(other.recv(), Ok(Signal::USR2), "round {round}");
            let mut kinds = HashSet::new();
            while kinds.len() < 3 {
                kinds.insert(heard.recv().unwrap());
            }
            // Stragglers of the first kind.
            while heard.recv_timeout(Duration::from_millis(1)).is_ok() {}
        }
        for _ in 0..1000 {
            send(Signal::USR1);
        }
        send(Signal::TERM);
        support::eventually(|| heard.len() == 2, || format!("{}", heard.len()));
        assert_eq!(heard.dropped(), 0);
        // Stragglers would end this process: a receiver has to listen until it ends by itself.
        std::mem::forget(heard);
    });
}

// No receiver listens any more: it does what it does by itself.
#[test]
fn without_a_receiver_a_signal_does_what_it_always_did() {
    let test = "without_a_receiver_a_signal_does_what_it_always_did";
    let ended = apart_and_ended(test, || {
        let stop = signal::listen(Signal::TERM).unwrap();
        send(Signal::TERM);
        assert_eq!(stop.recv(), Ok(Signal::TERM));
        println!("heard once");
        drop(stop);
        send(Signal::TERM);
        std::thread::sleep(Duration::from_secs(30));
        println!("still here");
    });
    if let Some(ended) = ended {
        assert_eq!(ended.signal(), Some(libc::SIGTERM), "{ended:?}");
        assert!(ended.stdout.contains("heard once") && !ended.stdout.contains("still here"));
    }
}

// And one can listen again.
#[test]
fn listening_again_after_all_were_gone() {
    apart("listening_again_after_all_were_gone", || {
        for _ in 0..50 {
            let heard = signal::listen(Signal::CHLD).unwrap();
            send(Signal::CHLD);
            assert_eq!(heard.recv(), Ok(Signal::CHLD));
            drop(heard);
            // By default it is ignored.
            send(Signal::CHLD);
        }
    });
}

static CALLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn of_a_library(_: libc::c_int) {
    CALLED.fetch_add(1, SeqCst);
}

#[test]
fn a_handler_that_was_there_before_is_called_too() {
    apart("a_handler_that_was_there_before_is_called_too", || {
        // SAFETY: the handler only counts.
        unsafe { libc::signal(libc::SIGUSR1, of_a_library as *const () as libc::sighandler_t) };
        let heard = signal::listen(Signal::USR1).unwrap();
        send(Signal::USR1);
        assert_eq!(heard.recv(), Ok(Signal::USR1));
        // Right after, on whatever thread the signal came to.
        let called = |times| support::eventually(|| CALLED.load(SeqCst) == times, || format!("{CALLED:?}"));
        called(1);
        drop(heard);
        send(Signal::USR1);
        called(2);
        // Once for each: it is not sent again when it is left to its old handler.
        std::thread::sleep(Duration::from_millis(20));
        send(Signal::USR1);
        called(3);
    });
}

// A fiber that waits for a signal is cancelled like any other, and a receiver that no fiber waits for holds up nothing.
#[test]
fn listeners_hold_up_nothing() {
    apart("listeners_hold_up_nothing", || {
        let kept = fibra::run(|| {
            let stop = signal::listen([Signal::TERM, Signal::INT]).unwrap();
            let waiting = stop.clone();
            let fiber = fibra::spawn(move || waiting.recv());
            assert!(fibra::timeout(Duration::from_millis(5), || stop.recv()).is_err());
            fiber.cancel();
            assert!(fiber.join().unwrap_err().is_cancelled());
            drop(fibra::Builder::new().daemon(true).spawn({
                let stop = stop.clone();
                move || for _ in stop {}
            }));
            stop
        });
        send(Signal::INT);
        assert_eq!(kept.recv(), Ok(Signal::INT));
    });
}

// Fibers have small stacks: the handler runs on the worker's alternate stack, while fibers compute.
#[test]
fn signals_may_come_at_any_time() {
    apart("signals_may_come_at_any_time", || {
        let heard = signal::listen(Signal::USR1).unwrap();
        fibra::run(|| {
            let spinning: Vec<_> = (0..4)
                .map(|_| {
                    fibra::Builder::new()
                        .stack_size(32 << 10)
                        .spawn(|| {
                            (0..20_000_u64).fold(0, |sum, n| {
                                if n % 100 == 0 {
                                    fibra::yield_now();
                                }
                                std::hint::black_box(sum + n)
                            })
                        })
                        .unwrap()
                })
                .collect();
            for _ in 0..500 {
                send(Signal::USR1);
                assert_eq!(heard.recv(), Ok(Signal::USR1));
            }
            for fiber in spinning {
                assert_eq!(fiber.join().unwrap(), 199_990_000);
            }
        });
    });
}

// A child of a fork has no listeners: there the signal does what it always did. One that listens for itself hears.
#[test]
fn a_forked_child_is_on_its_own() {
    apart("a_forked_child_is_on_its_own", || {
        let here = signal::listen(Signal::TERM).unwrap();
        let fork = |child: fn() -> i32| {
            // SAFETY: the child calls what it may in the child of a process with several threads, by fibra's promise, and ends.
            match unsafe { libc::fork() } {
                0 => {
                    let code = child();
                    // SAFETY: always allowed.
                    unsafe { libc::_exit(code) }
                }
                pid => {
                    let mut status = 0;
                    // SAFETY: the status is a local int.
                    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
                    status
                }
            }
        };
        let status = fork(|| {
            send(Signal::TERM);
            1
        });
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTERM, "{status:x}");
        let status = fork(|| {
            let heard = signal::listen(Signal::TERM).unwrap();
            send(Signal::TERM);
            if heard.recv() == Ok(Signal::TERM) { 7 } else { 8 }
        });
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:x}");
        assert!(here.is_empty(), "what was sent there was not heard here");
        send(Signal::TERM);
        assert_eq!(here.recv(), Ok(Signal::TERM));
    });
}

// Waiting costs no time of the processor.
#[test]
fn an_idle_listener_costs_nothing() {
    apart("an_idle_listener_costs_nothing", || {
        let heard = signal::listen([Signal::USR1, Signal::USR2]).unwrap();
        let before = support::cpu_time();
        assert!(heard.recv_timeout(Duration::from_millis(300)).is_err());
        let used = support::cpu_time() - before;
        assert!(used < Duration::from_millis(100), "{used:?}");
    });
}

static LATER: AtomicUsize = AtomicUsize::new(0);
static BELOW_LATER: AtomicUsize = AtomicUsize::new(0);

/// Calls whatever was there before it, as libraries do.
extern "C" fn of_a_later_library(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    LATER.fetch_add(1, SeqCst);
    let below = BELOW_LATER.load(SeqCst);
    // SAFETY: that was a handler with SA_SIGINFO: ours.
    let below = unsafe {
        std::mem::transmute::<usize, extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)>(below)
    };
    below(signal, info, context);
}

// A library goes on top of our handler and calls it. A receiver that listens then puts ours on top of the library's: the two must not call
// each other for ever. And when no receiver listens any more, the library is still called, once.
#[test]
fn handlers_that_call_each_other_come_to_an_end() {
    apart("handlers_that_call_each_other_come_to_an_end", || {
        // SAFETY: the handler only counts.
        unsafe { libc::signal(libc::SIGUSR1, of_a_library as *const () as libc::sighandler_t) };
        let first = signal::listen(Signal::USR1).unwrap();
        // SAFETY: a zeroed sigaction is a valid one, and the handler has the signature that SA_SIGINFO asks for.
        unsafe {
            let (mut action, mut below): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
            action.sa_sigaction = of_a_later_library as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGUSR1, std::ptr::null(), &mut below), 0);
            BELOW_LATER.store(below.sa_sigaction, SeqCst);
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        }
        let called = |times| {
            let both = || (CALLED.load(SeqCst), LATER.load(SeqCst));
            support::eventually(|| both() == (times, times), || format!("{:?}", both()));
        };
        let raise = |times| {
            // On this thread: when it returns, all handlers have.
            // SAFETY: the call takes no pointers.
            unsafe { libc::raise(libc::SIGUSR1) };
            called(times);
        };
        raise(1);
        assert_eq!(first.recv(), Ok(Signal::USR1));
        let second = signal::listen(Signal::USR1).unwrap();
        raise(2);
        assert_eq!((first.recv(), second.recv()), (Ok(Signal::USR1), Ok(Signal::USR1)));
        drop((first, second));
        // The first that no receiver hears puts things back.
        raise(3);
        std::thread::sleep(Duration::from_millis(20));
        raise(4);
        let third = signal::listen(Signal::USR1).unwrap();
        raise(5);
        assert_eq!(third.recv(), Ok(Signal::USR1));
    });
}

// While listeners are being told of a signal they are in no list; a call that fails meanwhile must not think that there are none.
#[test]
fn a_listen_that_fails_takes_the_signal_from_no_listener() {
    apart("a_listen_that_fails_takes_the_signal_from_no_listener", || {
        let heard = signal::listen(Signal::USR1).unwrap();
        let done = AtomicUsize::new(0);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while done.load(SeqCst) == 0 {
                    // The second is the C library's own, which only the system knows.
                    assert!(signal::listen([Signal::USR1, Signal::from_raw(32)]).is_err());
                }
            });
            for _ in 0..20_000 {
                send(Signal::USR1);
                assert_eq!(heard.recv(), Ok(Signal::USR1));
            }
            done.store(1, SeqCst);
        });
        std::mem::forget(heard);
    });
}
