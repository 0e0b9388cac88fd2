//! Messages: their order, the bound of a mailbox, what happens when it is full, and the ways to send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::probe::{Job, Probe, gated, job, note, runtime};
use crate::support;
use fibra::actor::{
    self, Actor, Addr, Builder, Context, Failure, Reply, SendError, SendTimeoutError, StopReason, TrySendError,
};
use fibra::channel::{Overflow, bounded, unbounded};

/// What a probe has noted so far.
pub(crate) fn seen(probe: &Addr<Probe>) -> Vec<u64> {
    probe.call(|reply: Reply<Vec<u64>>| job(move |probe, _| reply.send(probe.seen.clone()))).unwrap()
}

// S2-05, S2-26, S2-31: messages of one sender are handled in the order in which they were sent, also past a full mailbox.
#[test]
fn messages_of_one_sender_keep_their_order() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let probe = Builder::new().mailbox(4).budget(3).spawn(Probe::default()).unwrap();
        let senders: Vec<_> = (0..4_u64)
            .map(|sender| {
                let probe = probe.clone();
                fibra::spawn(move || (0..500).for_each(|n| probe.send(note(sender << 32 | n)).unwrap()))
            })
            .collect();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        let all = seen(&probe);
        assert_eq!(all.len(), 2000);
        for sender in 0..4 {
            let numbers: Vec<u64> = all.iter().filter(|n| **n >> 32 == sender).map(|n| n & 0xFFFF_FFFF).collect();
            assert_eq!(numbers, (0..500).collect::<Vec<_>>());
        }
    });
}

// S2-30, S2-28, S2-29: 64 senders to an empty actor make it runnable once: one turn handles all, and no message is lost.
#[test]
fn sixty_four_senders_enqueue_an_empty_actor_once() {
    let _watchdog = support::watchdog(60);
    // (No second one is added while the first is stuck in there.)
    let rt = fibra::Runtime::builder().workers(1).max_workers(1).build().unwrap();
    rt.run(|| {
        let probe = Builder::new().mailbox(64).budget(64).spawn(Probe::default()).unwrap();
        while probe.state() != actor::ActorState::Empty {
            fibra::yield_now();
        }
        let before = fibra::Handle::current().metrics().spawned;
        // One worker, which this fiber does not leave: no worker takes the turn meanwhile.
        fibra::no_suspend(|| {
            std::thread::scope(|s| {
                for sender in 0..64 {
                    let probe = &probe;
                    s.spawn(move || probe.try_send(note(sender)).unwrap());
                }
            });
        });
        assert_eq!(probe.state(), actor::ActorState::Runnable);
        let launched = fibra::Handle::current().metrics().spawned - before;
        assert_eq!(launched, 1, "64 sends, one turn");
        let mut all = seen(&probe);
        all.sort_unstable();
        assert_eq!(all, (0..64).collect::<Vec<_>>());
    });
}

#[test]
fn a_full_mailbox_makes_senders_wait_in_order() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = Builder::new().mailbox(2).spawn(Probe::default()).unwrap();
        let (gate, runs, goes_on) = gated();
        probe.send(gate).unwrap();
        runs.wait();
        probe.send(note(1)).unwrap();
        probe.send(note(2)).unwrap();
        assert!(matches!(probe.try_send(note(9)), Err(TrySendError::Full(_))));
        assert!(matches!(probe.send_timeout(note(9), Duration::from_millis(1)), Err(SendTimeoutError::Timeout(_))));
        assert_eq!(probe.len(), 2);
        let waiting = {
            let probe = probe.clone();
            fibra::spawn_local(move || probe.send(note(3)).unwrap())
        };
        let future = {
            let probe = probe.clone();
            fibra::spawn_local(move || fibra::block_on(probe.send_async(note(4))).unwrap())
        };
        fibra::yield_now();
        assert!(!waiting.is_finished() && !future.is_finished());
        goes_on.set();
        waiting.join().unwrap();
        future.join().unwrap();
        assert_eq!(seen(&probe), [1, 2, 3, 4]);
    });
}

#[test]
fn sending_is_an_arm() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = Builder::new().mailbox(1).spawn(Probe::default()).unwrap();
        let (gate, runs, goes_on) = gated();
        probe.send(gate).unwrap();
        runs.wait();
        probe.send(note(1)).unwrap();
        fibra::select! {
            on(probe.sending(note(9))) -> _ => panic!("there is no place"),
            after(Duration::from_millis(1)) => {}
        }
        goes_on.set();
        fibra::select! {
            on(probe.sending(note(2))) -> sent => sent.unwrap(),
        }
        assert_eq!(seen(&probe), [1, 2]);
        probe.stop();
        probe.stopped();
        fibra::select! {
            on(probe.sending(note(3))) -> sent => assert!(matches!(sent, Err(SendError::Stopped(_)))),
        }
    });
}

#[test]
fn overflow_policies_drop_and_count() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        for (policy, left) in [(Overflow::DropNewest, vec![1, 2]), (Overflow::DropOldest, vec![3, 4])] {
            let probe = Builder::new().mailbox(2).overflow(policy).spawn(Probe::default()).unwrap();
            let (gate, runs, goes_on) = gated();
            probe.send(gate).unwrap();
            runs.wait();
            (1..=4).for_each(|n| probe.send(note(n)).unwrap());
            assert_eq!((probe.len(), probe.dropped()), (2, 2));
            goes_on.set();
            while !probe.is_empty() {
                fibra::yield_now();
            }
            assert_eq!(seen(&probe), left);
        }
    });
}

// A message that was not delivered comes back.
#[test]
fn an_undelivered_message_comes_back() {
    let _watchdog = support::watchdog(60);
    struct Numbers;
    impl Actor for Numbers {
        type Message = u32;
        fn handle(&mut self, _: u32, _: &mut Context<Self>) -> Result<(), Failure> {
            Ok(())
        }
    }
    fibra::run(|| {
        let numbers = actor::spawn(Numbers);
        let (recipient, doubled) = (numbers.recipient::<u32>(), numbers.recipient::<u8>());
        doubled.send(3).unwrap();
        numbers.stop();
        assert!(matches!(numbers.stopped(), StopReason::Stopped));
        assert_eq!(numbers.send(7), Err(SendError::Stopped(7)));
        assert_eq!(numbers.try_send(7), Err(TrySendError::Stopped(7)));
        assert_eq!(numbers.send_urgent(7), Err(SendError::Stopped(7)));
        assert_eq!(recipient.send(8), Err(SendError::Stopped(8)));
        assert_eq!(doubled.try_send(9), Err(TrySendError::Stopped(9)));
        assert_eq!(numbers.send_timeout(7, Duration::ZERO).unwrap_err().into_inner(), 7);
        assert_eq!(fibra::block_on(numbers.send_async(7)), Err(SendError::Stopped(7)));
        assert!(!recipient.is_alive() && recipient.id() == numbers.id());
    });
}

// Sending to one's own full mailbox would wait for itself: it is an error at once, and the message comes back.
#[test]
fn ones_own_full_mailbox_is_an_error() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = Builder::new().mailbox(1).spawn(Probe::default()).unwrap();
        let (tx, rx) = bounded(4);
        probe
            .send(job(move |_, ctx| {
                let me = ctx.address();
                me.send(note(1)).unwrap();
                tx.send(matches!(me.send(note(2)), Err(SendError::WouldDeadlock(_)))).unwrap();
                let late = me.send_timeout(note(3), Duration::from_secs(3600));
                tx.send(matches!(late, Err(SendTimeoutError::WouldDeadlock(_)))).unwrap();
            }))
            .unwrap();
        assert_eq!((rx.recv(), rx.recv()), (Ok(true), Ok(true)));
        assert_eq!(seen(&probe), [1]);
    });
}

#[test]
fn urgent_messages_come_first_and_need_no_place() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = Builder::new().mailbox(2).spawn(Probe::default()).unwrap();
        let (gate, runs, goes_on) = gated();
        probe.send(gate).unwrap();
        runs.wait();
        probe.send(note(3)).unwrap();
        probe.send(note(4)).unwrap();
        probe.send_urgent(note(1)).unwrap();
        probe.send_urgent(note(2)).unwrap();
        goes_on.set();
        while !probe.is_empty() {
            fibra::yield_now();
        }
        assert_eq!(seen(&probe), [1, 2, 3, 4]);
    });
}

// Threads without a runtime, fibers of another runtime and async code send like fibers.
#[test]
fn any_thread_may_send_and_call() {
    let _watchdog = support::watchdog(60);
    let rt = runtime(2);
    let probe = rt.run(|| actor::spawn(Probe::default()));
    std::thread::scope(|s| {
        s.spawn(|| probe.send(note(1)).unwrap()).join().unwrap();
        s.spawn(|| fibra::run(|| probe.send(note(2)).unwrap())).join().unwrap();
    });
    assert_eq!(seen(&probe), [1, 2]);
    probe.stop();
    assert!(matches!(probe.stopped(), StopReason::Stopped));
}

// S2-52, C-39: an actor that is sent more and more handles its budget of messages, and then another actor has its turn.
#[test]
fn others_get_a_turn() {
    let _watchdog = support::watchdog(60);
    runtime(1).run(|| {
        let (order, turns) = unbounded::<u64>();
        let probes: Vec<_> =
            (0..2).map(|_| Builder::new().budget(4).mailbox(64).spawn(Probe::default()).unwrap()).collect();
        while probes.iter().any(|probe| probe.state() != actor::ActorState::Empty) {
            fibra::yield_now();
        }
        for (number, probe) in probes.iter().enumerate() {
            for _ in 0..32 {
                let order = order.clone();
                probe.send(job(move |_, _| order.send(number as u64).unwrap())).unwrap();
            }
        }
        drop(order);
        for probe in &probes {
            seen(probe);
        }
        let turns: Vec<u64> = turns.try_iter().collect();
        let mut longest = 0;
        let mut run = (9, 0);
        for number in turns.iter().take(48) {
            run = if run.0 == *number { (run.0, run.1 + 1) } else { (*number, 1) };
            longest = longest.max(run.1);
        }
        assert!(longest <= 8, "one actor had {longest} messages in a row while another waited: {turns:?}");
    });
}

// Every message that was accepted is handled once, however senders, stops and small mailboxes meet.
#[test]
fn stress_nothing_is_lost_or_handled_twice() {
    let _watchdog = support::watchdog(120);
    runtime(4).run(|| {
        for round in 0..200_u32 {
            let handled = Arc::new(AtomicU64::new(0));
            let probe = Builder::new().mailbox(3).budget(1 + round % 5).spawn(Probe::default()).unwrap();
            let senders: Vec<_> = (0..4)
                .map(|_| {
                    let (probe, handled) = (probe.clone(), handled.clone());
                    fibra::spawn(move || {
                        let mut accepted = 0_u64;
                        for _ in 0..50 {
                            let handled = handled.clone();
                            let message: Job = job(move |_, _| _ = handled.fetch_add(1, SeqCst));
                            match probe.send(message) {
                                Ok(()) => accepted += 1,
                                Err(_) => break,
                            }
                        }
                        accepted
                    })
                })
                .collect();
            for _ in 0..round % 40 {
                fibra::yield_now();
            }
            probe.stop();
            let accepted: u64 = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
            assert!(matches!(probe.stopped(), StopReason::Stopped));
            assert_eq!(handled.load(SeqCst), accepted);
        }
    });
}

// Many places that send, or answer, in one function need no more stack than one of them: also where nothing is optimised, and on the
// smallest stack of the guide.
#[test]
fn many_sends_in_a_function_fit_a_small_stack() {
    enum Ask {
        Add([u64; 8]),
        Sum(usize, Reply<[u64; 8]>),
    }
    struct Adds(u64);
    impl Actor for Adds {
        type Message = Ask;
        fn handle(&mut self, message: Ask, _: &mut Context<Self>) -> Result<(), Failure> {
            match message {
                Ask::Add(numbers) => self.0 += numbers[0],
                Ask::Sum(0, reply) => reply.send([self.0; 8]),
                Ask::Sum(1, reply) => reply.send([self.0 + 1; 8]),
                Ask::Sum(2, reply) => reply.send([self.0 + 2; 8]),
                Ask::Sum(3, reply) => reply.send([self.0 + 3; 8]),
                Ask::Sum(4, reply) => reply.send([self.0 + 4; 8]),
                Ask::Sum(5, reply) => reply.send([self.0 + 5; 8]),
                Ask::Sum(6, reply) => reply.send([self.0 + 6; 8]),
                Ask::Sum(_, reply) => reply.send([self.0 + 7; 8]),
            }
            Ok(())
        }
    }
    let _watchdog = support::watchdog(60);
    let small = fibra::Runtime::builder().workers(1).stack_size(32 * 1024).build().unwrap();
    small.run(|| {
        let adds = actor::spawn(Adds(0));
        let its = adds.clone();
        let sends = fibra::spawn(move || {
            its.send(Ask::Add([1; 8])).unwrap();
            its.send(Ask::Add([2; 8])).unwrap();
            its.send(Ask::Add([3; 8])).unwrap();
            its.send(Ask::Add([4; 8])).unwrap();
            its.send(Ask::Add([5; 8])).unwrap();
            its.send(Ask::Add([6; 8])).unwrap();
            its.send(Ask::Add([7; 8])).unwrap();
            its.send(Ask::Add([8; 8])).unwrap();
            its.send(Ask::Add([9; 8])).unwrap();
            its.send(Ask::Add([10; 8])).unwrap();
            its.send(Ask::Add([11; 8])).unwrap();
            its.send(Ask::Add([12; 8])).unwrap();
        });
        sends.join().unwrap();
        assert_eq!(adds.call(|reply| Ask::Sum(0, reply)).unwrap()[0], 78);
        assert_eq!(adds.call(|reply| Ask::Sum(9, reply)).unwrap()[7], 85);
    });
}
