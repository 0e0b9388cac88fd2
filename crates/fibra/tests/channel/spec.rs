//! Lines of the specification about channels and select that have no better home: what a wait on a channel leaves behind, who
//! unlinks what, what names a channel, and what a ping-pong costs in wakes and switches.
#![allow(clippy::disallowed_types)] // Shared state of the tests.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support::{eventually, watchdog};
use crate::tools::turns;
use fibra::channel::{
    Receiver, RecvError, RecvTimeoutError, Select, Sender, TryRecvError, after, at, bounded, rendezvous, tick,
    unbounded,
};
use fibra::time::Instant;
use fibra::{Runtime, select};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(1);

/// On one thread, where `yield_now` lets all other fibers come as far as they can.
fn alone<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    Runtime::current_thread().unwrap().run(f)
}

/// The number in what a handle prints of its channel.
fn id<T>(sender: &Sender<T>) -> u64 {
    let text = format!("{sender:?}");
    let digits = text.split("id: ").nth(1).unwrap_or_else(|| panic!("no id in {text}"));
    digits.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

// ---- The channel --------------------------------------------------------------------------------------------------------

// S0-32: every channel has a number of its own, and they grow.
#[test]
fn ids_are_unique_and_grow() {
    let _watchdog = watchdog(60);
    let makers: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(|| (0..100).map(|_| id(&rendezvous::<u8>().0)).collect::<Vec<_>>()))
        .collect();
    let mut all = BTreeSet::new();
    for maker in makers {
        let ids = maker.join().unwrap();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        all.extend(ids);
    }
    assert_eq!(all.len(), 400, "no number is given twice, though the channels are gone");
    assert!(id(&unbounded::<String>().0) > *all.last().unwrap(), "of whatever type");
}

// S0-34, S4-123: close is one step for all who wait on the channel in whatever way: it leaves no caller waiting, and of many that close
// at once one was the first.
#[test]
fn close_is_one_step_for_all_waiters() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous::<u32>();
        let (_other, nothing) = rendezvous::<u32>();
        let receiver = fibra::spawn_local({
            let rx = rx.clone();
            move || rx.recv() == Err(RecvError)
        });
        let watcher = fibra::spawn_local({
            let rx = rx.clone();
            move || rx.closed().is_orderly()
        });
        let selecting = fibra::spawn_local({
            let rx = rx.clone();
            move || {
                select! {
                    recv(rx) -> value => value == Err(RecvError),
                    recv(nothing) -> _ => false,
                }
            }
        });
        fibra::yield_now();
        assert!(!receiver.is_finished() && !watcher.is_finished() && !selecting.is_finished());
        assert!(tx.close());
        assert!(receiver.join().unwrap() && watcher.join().unwrap() && selecting.join().unwrap());
    });
    for _ in 0..turns(200) {
        let (tx, rx) = bounded::<usize>(4);
        let first = Arc::new(AtomicUsize::new(0));
        let sent = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..3)
            .map(|who| {
                let (tx, first, sent) = (tx.clone(), first.clone(), sent.clone());
                std::thread::spawn(move || {
                    while tx.try_send(who).is_ok() {
                        sent.fetch_add(1, SeqCst);
                    }
                    first.fetch_add(usize::from(tx.close()), SeqCst);
                    assert!(tx.try_send(who).unwrap_err().is_disconnected(), "after close nothing is admitted");
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(first.load(SeqCst), 1);
        assert_eq!(rx.iter().count(), sent.load(SeqCst), "what was admitted is delivered, and nothing else");
    }
}

// S1-76: a parked waiter can be completed by any thread, in whatever way: it is linked, and not claimed.
#[test]
fn a_parked_waiter_is_there_for_every_peer() {
    let _watchdog = watchdog(60);
    alone(|| {
        let wait = |rx: Receiver<u32>, time: Duration| fibra::spawn_local(move || rx.recv_timeout(time));
        let (tx, rx) = rendezvous();
        let (matched, timed_out, cancelled, closed) =
            (wait(rx.clone(), LONG), wait(rx.clone(), SHORT), wait(rx.clone(), LONG), wait(rx, LONG));
        fibra::yield_now();
        tx.try_send(1).expect("the first of four who wait");
        assert_eq!(matched.join().unwrap(), Ok(1));
        assert_eq!(timed_out.join().unwrap(), Err(RecvTimeoutError::Timeout));
        cancelled.cancel();
        assert!(cancelled.join().unwrap_err().is_cancelled());
        assert!(!closed.is_finished());
        drop(tx);
        assert_eq!(closed.join().unwrap(), Err(RecvTimeoutError::Disconnected));
    });
}

// C-22: a wait that is over cannot be completed any more: what comes late stays in the channel, and the next wait is not disturbed.
#[test]
fn a_wait_that_is_over_stays_over() {
    let _watchdog = watchdog(60);
    alone(|| {
        let ((first, of_first), (second, of_second)) = (bounded(1), bounded(1));
        let left = of_first.clone();
        let is_over = Rc::new(Cell::new(false));
        let over = is_over.clone();
        let waiter = fibra::spawn_local(move || {
            assert_eq!(of_first.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
            over.set(true);
            of_second.recv()
        });
        while !is_over.get() {
            fibra::sleep(SHORT);
        }
        first.send(1).unwrap();
        for _ in 0..10 {
            fibra::yield_now();
        }
        assert!(!waiter.is_finished(), "it waits for the second");
        second.send(2).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(2));
        assert_eq!(left.try_recv(), Ok(1), "no receiver took it");
    });
}

// S0-56: a fiber that is called while it is still on its way out goes on, on a stack that is its own.
#[test]
fn called_while_parking() {
    let _watchdog = watchdog(120);
    let rounds = turns(20_000);
    let rt = Runtime::builder().workers(1).build().unwrap();
    let (ask, asked) = rendezvous::<usize>();
    let (answer, answered) = rendezvous();
    let fiber = rt.spawn(move || {
        for _ in 0..rounds {
            let mine = [asked.recv().unwrap(); 16];
            answer.send(mine[0] + 1).unwrap();
            assert!(mine.iter().all(|word| *word == mine[0]), "another fiber was on this stack");
        }
    });
    for round in 0..rounds {
        ask.send(round).unwrap();
        assert_eq!(answered.recv(), Ok(round + 1));
    }
    fiber.join().unwrap();
}

// ---- Select -------------------------------------------------------------------------------------------------------------

// S1-72, S1-73, C-21: the arm that is named is the one whose value came; and before its body runs, no node is left in the
// channels of the others.
#[test]
fn the_winner_is_known_and_the_losers_are_gone() {
    let _watchdog = watchdog(60);
    alone(|| {
        let channels: Vec<(Sender<usize>, Receiver<usize>)> = (0..3).map(|_| rendezvous()).collect();
        let (senders, receivers): (Vec<_>, Vec<_>) = channels.into_iter().unzip();
        let selecting = fibra::spawn_local({
            let senders = senders.clone();
            move || {
                for round in 0..99 {
                    let (arm, value) = select! {
                        recv(receivers[0]) -> value => (0, value.unwrap()),
                        recv(receivers[1]) -> value => (1, value.unwrap()),
                        recv(receivers[2]) -> value => (2, value.unwrap()),
                    };
                    assert_eq!((arm, value), (round % 3, round));
                    // What can be reserved in a rendezvous is a receiver that is linked.
                    for sender in &senders {
                        assert!(sender.try_reserve().unwrap_err().is_full(), "a loser is still linked");
                    }
                }
            }
        });
        for round in 0..99 {
            senders[round % 3].send(round).unwrap();
        }
        selecting.join().unwrap();
    });
}

// S0-92..S0-94: `after` yields once, `tick` again and again, and both are arms of a select.
#[test]
fn time_feeds_receivers() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let (once, beat) = (after(3 * SHORT), tick(SHORT));
        let (mut beats, mut last) = (0, None);
        let mut end = None;
        while end.is_none() || beats < 3 {
            select! {
                // It is closed once it has fired, so it is to be looked at no more.
                recv(once) -> due, if end.is_none() => end = Some(due.unwrap()),
                recv(beat) -> due => {
                    let due = due.unwrap();
                    assert!(last.is_none_or(|last| due - last >= SHORT));
                    last = Some(due);
                    beats += 1;
                }
            }
        }
    });
}

// S0-92: who has taken the value of `after` has ended it: for every form of receiving, for select, and for those who wait on a clone.
#[test]
fn after_is_closed_once_it_was_taken() {
    let _watchdog = watchdog(60);
    let take_the_only_one = || {
        assert_eq!(after(LONG).try_recv(), Err(TryRecvError::Empty), "not yet");
        let once = after(SHORT);
        let waiting: Vec<_> = (0..4)
            .map(|number| {
                let once = once.clone();
                fibra::spawn(move || match number {
                    0 => once.recv().is_ok(),
                    1 => once.recv_timeout(LONG).is_ok(),
                    2 => fibra::block_on(once.recv_async()).is_ok(),
                    _ => select! { recv(once) -> due => due.is_ok() },
                })
            })
            .collect();
        // All of them end, and one of them with the value.
        let lucky = waiting.into_iter().filter_map(|fiber| fiber.join().unwrap().then_some(())).count();
        assert_eq!(lucky, 1);
        assert_eq!(once.try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(once.recv_timeout(SHORT), Err(RecvTimeoutError::Disconnected));
        assert_eq!(select! { recv(once) -> due => due }, Err(RecvError));
        assert_eq!(once.iter().count(), 0);
        assert!(once.is_closed() && once.closed().is_orderly());
    };
    fibra::run(take_the_only_one);
    Runtime::current_thread().unwrap().run(take_the_only_one);
    // One that is due and was not taken is there, and one that is never due does not end.
    let due = at(Instant::now());
    assert!(!due.is_closed() && due.recv().is_ok() && due.recv().is_err());
    let never_due = after(Duration::MAX);
    assert_eq!(never_due.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
}

// S0-95: dropped, they leave nothing behind: no fiber, also none that was to call a future, and no timer that holds up the end.
#[test]
fn dropped_timers_end() {
    let _watchdog = watchdog(60);
    let rt = Runtime::builder().workers(1).build().unwrap();
    let handle = rt.handle();
    rt.run(|| {
        for _ in 0..100 {
            drop((after(LONG), tick(LONG)));
        }
        let task = fibra::spawn_future(async {
            let (hour, days) = (after(LONG), tick(24 * LONG));
            let mut waiting = (Box::pin(hour.recv_async()), Box::pin(days.recv_async()));
            std::future::poll_fn(|cx| {
                assert!(waiting.0.as_mut().poll(cx).is_pending());
                assert!(waiting.1.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
        });
        task.join().unwrap();
        // No fiber is left but this one; the end of the run would cancel the daemons.
        while handle.metrics().live > 1 {
            fibra::sleep(SHORT);
        }
    });
    eventually(|| rt.metrics().live == 0, || format!("{:?}", rt.metrics()));
}

// S0-113: what was ready before a biased select began, and stays so, is taken before every later arm, whatever happens to those meanwhile.
#[test]
fn a_biased_select_takes_what_was_ready_before() {
    let _watchdog = watchdog(120);
    let rt = Runtime::builder().workers(2).build().unwrap();
    let stop = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let ((first, firsts), (noise, noises), (room, rooms)) = (bounded(1), bounded(1), bounded(1));
        // Later arms become ready, and stop being so, all the time.
        for _ in 0..2 {
            let (stop, noise, rooms) = (stop.clone(), noise.clone(), rooms.clone());
            scope.spawn(move || {
                while stop.load(SeqCst) == 0 {
                    let _ = noise.try_send(0);
                    let _ = rooms.try_recv();
                }
            });
        }
        // The first arm is made ready by this fiber, by another one, or by a thread, and that is known here.
        let (ask, asked) = bounded::<usize>(0);
        let (told, tell) = bounded(0);
        let (outer, inner) = (first.clone(), first.clone());
        scope.spawn(move || {
            for round in asked {
                outer.send(round).unwrap();
                told.send(()).unwrap();
            }
        });
        let rounds = turns(5_000);
        rt.run(|| {
            for round in 0..rounds {
                match round % 3 {
                    0 => first.send(round).unwrap(),
                    1 => {
                        let inner = inner.clone();
                        fibra::spawn(move || inner.send(round).unwrap()).join().unwrap();
                    }
                    _ => {
                        ask.send(round).unwrap();
                        tell.recv().unwrap();
                    }
                }
                let arm = fibra::select_biased! {
                    recv(firsts) -> value => {
                        assert_eq!(value, Ok(round));
                        0
                    }
                    recv(noises) -> _ => 1,
                    send(room, round) -> _ => 2,
                };
                assert_eq!(arm, 0, "in round {round}");
                // Now that it is not, another one is taken; which one, is theirs to decide.
                if round % 7 == 0 {
                    let arm = fibra::select_biased! {
                        recv(firsts) -> _ => 0,
                        recv(noises) -> _ => 1,
                        send(room, 1) -> _ => 2,
                    };
                    assert_ne!(arm, 0);
                }
            }
            drop(ask);
        });
        stop.store(1, SeqCst);
    });
    // A watch for the end is an arm like any other, and so is a place.
    let ((gone, watched), (place, places)) = (bounded::<u32>(1), bounded(1));
    drop(gone);
    assert_eq!(fibra::select_biased! { closed(watched) -> _ => 0, send(place, 1) -> _ => 1 }, 0);
    assert_eq!(fibra::select_biased! { send(place, 1) -> _ => 0, closed(watched) -> _ => 1 }, 0);
    assert_eq!(places.try_recv(), Ok(1));
}

// S4-131: a send that waits with its value was admitted, in a select as elsewhere: a close leaves it, and a receiver gets it, once. What
// waits for a place and has no value yet is refused.
#[test]
fn a_select_that_waits_to_send_is_admitted() {
    let _watchdog = watchdog(60);
    alone(|| {
        for kind in 0..6 {
            let ((tx, rx), (_quiet, never)) = (rendezvous::<u32>(), rendezvous::<()>());
            let closer = tx.clone();
            let sending = fibra::spawn_local(move || match kind {
                0 => tx.send(7).is_ok(),
                1 => select! { send(tx, 7) -> sent => sent.is_ok(), recv(never) -> _ => unreachable!() },
                2 => fibra::select_biased! { recv(never) -> _ => unreachable!(), send(tx, 7) -> sent => sent.is_ok() },
                3 => {
                    let mut set = Select::new();
                    set.send(&tx);
                    set.select().send(&tx, 7).is_ok()
                }
                4 => tx.reserve().is_ok(),
                _ => tx.send_timeout(7, LONG).is_ok(),
            });
            (0..3).for_each(|_| fibra::yield_now());
            assert!(closer.close());
            let admitted = !matches!(kind, 3 | 4);
            assert_eq!(rx.recv().ok(), admitted.then_some(7), "kind {kind}");
            assert_eq!(sending.join().unwrap(), admitted, "kind {kind}");
            assert_eq!(rx.recv(), Err(RecvError), "once");
        }
        // No receiver comes for it: the last receiver's end gives the value back.
        let (tx, rx) = rendezvous::<u32>();
        let closer = tx.clone();
        let sending = fibra::spawn_local(move || select! { send(tx, 7) -> sent => sent.unwrap_err().into_inner() });
        (0..3).for_each(|_| fibra::yield_now());
        closer.close();
        drop(rx);
        assert_eq!(sending.join().unwrap(), 7);
    });
}

// S0-03: a pipeline of rendezvous on the smallest stacks that there are.
#[test]
fn a_pipeline_runs_on_small_stacks() {
    let _watchdog = watchdog(60);
    for workers in [1, 3] {
        let rt = Runtime::builder().workers(workers).stack_size(32 << 10).build().unwrap();
        let sum = rt.run(|| {
            let (source, mut end) = rendezvous::<u64>();
            for _ in 0..20 {
                let (tx, rx) = rendezvous();
                let input = std::mem::replace(&mut end, rx);
                let stage = move || input.iter().try_for_each(|value| tx.send(value + 1));
                drop(fibra::Builder::new().stack_size(32 << 10).spawn(stage).unwrap());
            }
            let feeding = fibra::spawn(move || (0..500).try_for_each(|value| source.send(value)));
            let sum: u64 = end.iter().sum();
            feeding.join().unwrap().unwrap();
            sum
        });
        assert_eq!(sum, (0..500).map(|value| value + 20).sum());
    }
}

// ---- Tasks and results --------------------------------------------------------------------------------------------------

// S1-86, S1-88: a caller that awaits a task parks (a fiber: others run meanwhile) or blocks (a thread), and is given the result itself, of
// its type, moved and dropped once.
#[test]
fn awaiting_a_task_parks_or_blocks_and_moves_the_result() {
    struct Result(Arc<AtomicUsize>, [u64; 32]);
    impl Drop for Result {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let _watchdog = watchdog(60);
    let drops = Arc::new(AtomicUsize::new(0));
    let made = |gate: Receiver<()>| {
        let drops = drops.clone();
        async move {
            gate.recv_async().await.unwrap();
            Result(drops, [7; 32])
        }
    };
    let rt = Runtime::builder().workers(1).build().unwrap();
    rt.run(|| {
        let (open, gate) = rendezvous();
        let task = fibra::spawn_future(made(gate));
        // The fiber below can only open the gate if the one that joins does not hold the only worker.
        let opener = fibra::spawn(move || open.send(()).unwrap());
        assert_eq!(task.join().unwrap().1, [7; 32]);
        opener.join().unwrap();
    });
    assert_eq!(drops.load(SeqCst), 1);
    let (open, gate) = rendezvous();
    let task = {
        let _entered = rt.handle().enter();
        fibra::spawn_future(made(gate))
    };
    let thread = std::thread::spawn(move || task.join().map(|result| result.1[31]).unwrap());
    open.send(()).unwrap();
    assert_eq!(thread.join().unwrap(), 7);
    assert_eq!(drops.load(SeqCst), 2);
}

// S1-90: a send that is pending, as a future or as an arm, owns its value: dropped, it drops it, and no receiver gets it.
#[test]
fn a_pending_send_owns_its_value() {
    let _watchdog = watchdog(60);
    let value = Arc::new(());
    let (tx, rx) = rendezvous();
    let mut future = Box::pin(tx.send_async(value.clone()));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(future.as_mut().poll(&mut cx).is_pending());
    let arm = tx.sending(value.clone());
    assert_eq!(Arc::strong_count(&value), 3);
    drop(arm);
    drop(future);
    assert_eq!(Arc::strong_count(&value), 1);
    assert_eq!(rx.try_recv().unwrap_err(), TryRecvError::Empty);

    let mut future = Box::pin(tx.send_async(value.clone()));
    assert!(future.as_mut().poll(&mut cx).is_pending());
    assert!(rx.recv().is_ok(), "it is there to be taken");
    assert!(future.as_mut().poll(&mut cx).is_ready());
    drop(future);
    assert_eq!(Arc::strong_count(&value), 1);
}

// ---- What it costs ------------------------------------------------------------------------------------------------------

// a ping-pong does the same with one worker and with many: a switch and a wake per message, and none of them crosses to another
// worker. (What that takes in time is for the benchmarks.) Nothing keeps the two players together but that they were spawned together: idle
// workers let young fibers start where they are. On a machine that is busy otherwise one of them may grow old before it starts, and be
// stolen; so there are many games, and most of them must be played on one worker.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "a switch of OS threads takes longer than a fiber stays young")]
fn a_ping_pong_costs_the_same_with_many_workers() {
    let _watchdog = watchdog(120);
    let rounds = turns(1_000) as u64;
    for workers in [1, 2, 8] {
        let rt = Runtime::builder().workers(workers).build().unwrap();
        let mut split = 0;
        for _ in 0..20 {
            let before = rt.metrics();
            rt.run(|| {
                let ((ping, pinged), (pong, ponged)) = (rendezvous(), rendezvous());
                let player = fibra::spawn(move || {
                    for round in 0..rounds {
                        assert_eq!(pinged.recv(), Ok(round));
                        pong.send(round).unwrap();
                    }
                });
                let partner = fibra::spawn(move || {
                    for round in 0..rounds {
                        ping.send(round).unwrap();
                        assert_eq!(ponged.recv(), Ok(round));
                    }
                });
                player.join().unwrap();
                partner.join().unwrap();
            });
            let after = rt.metrics();
            if after.wakes_remote - before.wakes_remote >= rounds / 10 {
                split += 1;
                continue;
            }
            assert!(after.switches - before.switches <= 3 * rounds + 100, "{workers} workers: {before:?} {after:?}");
            assert!(
                after.wakes_local - before.wakes_local <= 3 * rounds + 100,
                "{workers} workers: {before:?} {after:?}"
            );
        }
        assert!(split <= 10, "{workers} workers: {split} of 20 pairs were split");
    }
}
