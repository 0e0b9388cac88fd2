//! Receivers that time sends to: `after`, `at`, `tick`, `never`, alone and as arms of a select.
//!
//! Nothing here is late: a test can only ask that nothing comes too early, and that it comes.

use std::pin::pin;
use std::time::Duration;

use crate::channels::{Calls, SIDES, alone, poll, runtime, start, until_parked};
use crate::support::{eventually, watchdog};
use crate::tools::turns;
use fibra::channel::{Receiver, Select, TryRecvError, after, at, bounded, never, tick};
use fibra::time::Instant;

const SOON: Duration = Duration::from_millis(3);
const LONG: Duration = Duration::from_secs(3600);

// One value, not too early, on every side; and it is the only one.
#[test]
fn after_a_time_there_is_one_value() {
    let _watchdog = watchdog(60);
    let rt = runtime(2);
    for side in SIDES {
        let began = Instant::now();
        let (rx, same) = (after(SOON), at(began.saturating_add(SOON)));
        let (async_rx, async_same) = (rx.clone(), same.clone());
        let receiving = start(side, &rt.handle(), move || [rx.recv().unwrap(), same.recv().unwrap()], async move {
            [async_rx.recv_async().await.unwrap(), async_same.recv_async().await.unwrap()]
        });
        for fired in receiving.join() {
            assert!(fired >= began.saturating_add(SOON), "{side:?}");
        }
        assert!(began.elapsed() >= SOON);
    }
    let rx = after(Duration::ZERO);
    assert!(rx.recv().is_ok());
    assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected), "once");
    let past = Instant::now();
    assert!(at(past).recv().is_ok());
    let rx = after(LONG);
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    assert!(rx.is_empty());
}

// Clones share the one value.
#[test]
fn clones_of_after_share_its_value() {
    let _watchdog = watchdog(60);
    alone(|| {
        let rx = after(SOON);
        let fibers: Vec<_> = (0..3)
            .map(|_| {
                let rx = rx.clone();
                fibra::spawn_local(move || rx.recv_timeout(Duration::from_millis(50)).is_ok())
            })
            .collect();
        assert_eq!(fibers.into_iter().map(|fiber| usize::from(fiber.join().unwrap())).sum::<usize>(), 1);
    });
}

// Ticks come at their times, each later than the one before; those that no receiver took are skipped, not heaped up.
#[test]
fn ticks_come_and_are_skipped() {
    let _watchdog = watchdog(60);
    let rt = runtime(1);
    for side in SIDES {
        let began = Instant::now();
        let rx = tick(SOON);
        let async_rx = rx.clone();
        let take = start(side, &rt.handle(), move || rx.iter().take(4).collect::<Vec<Instant>>(), async move {
            let mut ticks = Vec::new();
            for _ in 0..4 {
                ticks.push(async_rx.recv_async().await.unwrap());
            }
            ticks
        });
        let ticks = take.join();
        assert!(ticks[0] >= began.saturating_add(SOON));
        assert!(ticks.is_sorted_by(|earlier, later| earlier < later), "{ticks:?}");
        assert!(began.elapsed() >= 4 * SOON);
    }
    let rx = tick(Duration::from_millis(1));
    fibra::sleep(Duration::from_millis(20));
    // One that was missed, one that comes now, and those that come while it looks.
    let begins = Instant::now();
    let count = rx.try_iter().count() as u128;
    assert!(count <= 2 + begins.elapsed().as_millis(), "missed ticks are skipped: {count}");
}

// S0-47: time is an arm like any other: the earliest one fires, and a message before it wins.
#[test]
fn time_as_an_arm() {
    let _watchdog = watchdog(60);
    let select = || {
        let (tx, messages) = bounded::<u32>(1);
        let (soon, late, never) = (after(SOON), after(LONG), never::<u32>());
        let began = Instant::now();
        let mut select = Select::new();
        let (first, _, _, fourth) =
            (select.recv(&soon), select.recv(&late), select.recv(&never), select.recv(&messages));
        let chosen = select.select();
        assert_eq!(chosen.index(), first);
        assert!(chosen.recv(&soon).is_ok());
        assert!(began.elapsed() >= SOON);
        select.remove(first);
        tx.send(7).unwrap();
        let chosen = select.select();
        assert_eq!(chosen.index(), fourth);
        assert_eq!(chosen.recv(&messages), Ok(7));
    };
    select();
    alone(select);
    // A ticking loop, as one writes it.
    alone(|| {
        let (tx, rx) = bounded::<u32>(1);
        let (ticks, end) = (tick(SOON), after(10 * SOON));
        let sender = fibra::spawn_local(move || (0..5).for_each(|value| tx.send(value).unwrap()));
        let (mut ticked, mut received) = (0, 0);
        let mut messages: Option<Receiver<u32>> = Some(rx);
        let mut is_over = false;
        // The end may be the first that it sees, if the machine does something else meanwhile.
        while !is_over || messages.is_some() || ticked == 0 {
            let mut select = Select::new();
            let tick = select.recv(&ticks);
            let stop = (!is_over).then(|| select.recv(&end));
            if let Some(rx) = &messages {
                select.recv(rx);
            }
            let chosen = select.select();
            if chosen.index() == tick {
                chosen.recv(&ticks).unwrap();
                ticked += 1;
            } else if Some(chosen.index()) == stop {
                chosen.recv(&end).unwrap();
                is_over = true;
            } else if chosen.recv(messages.as_ref().unwrap()).is_ok() {
                received += 1;
            } else {
                messages = None;
            }
        }
        sender.join().unwrap();
        assert!(received == 5 && ticked > 0, "{received} messages, {ticked} ticks");
    });
}

// A future on a timer can be given up like any other.
#[test]
fn a_dropped_future_of_a_timer() {
    let _watchdog = watchdog(60);
    let rx = after(SOON);
    let calls = Calls::new();
    let mut given_up = Box::pin(rx.recv_async());
    let mut kept = pin!(rx.recv_async());
    let kept_calls = Calls::new();
    // If time was up before the polls, there is nothing to see here.
    if poll(given_up.as_mut(), &calls).is_ready() || poll(kept.as_mut(), &kept_calls).is_ready() {
        return;
    }
    drop(given_up);
    eventually(|| kept_calls.count() > 0, || "the other one was not woken".to_owned());
    assert!(poll(kept, &kept_calls).is_ready());
}

// Timers die with their receivers: a million of them that no fiber waits for leave nothing behind, and hold no run up.
#[test]
fn dropped_timers_leave_nothing_behind() {
    let _watchdog = watchdog(60);
    let rt = runtime(1);
    rt.run(|| {
        for _ in 0..turns(20_000) {
            let (rx, ticks) = (after(LONG), tick(LONG));
            let mut select = Select::new();
            select.recv(&rx);
            select.recv(&ticks);
            assert!(select.try_select().is_err());
        }
        let waiting: Vec<_> = (0..100).map(|_| fibra::spawn_local(|| after(LONG).recv())).collect();
        until_parked(100);
        waiting.iter().for_each(fibra::JoinHandle::cancel);
        waiting.into_iter().for_each(|fiber| assert!(fiber.join().unwrap_err().is_cancelled()));
    });
    assert_eq!((rt.metrics().live, rt.metrics().parked), (0, 0));
}

// What is due at the very deadline is there in time, on every side.
#[test]
fn due_at_the_deadline_is_in_time() {
    let _watchdog = watchdog(60);
    let receive = || {
        let due = Instant::now() + SOON;
        assert_eq!(at(due).recv_deadline(due), Ok(due));
        // Another receiver took it: there is nothing to wait for.
        let receiver = at(due);
        assert_eq!(receiver.recv(), Ok(due));
        assert!(receiver.recv_deadline(due).unwrap_err().is_disconnected());
    };
    receive();
    fibra::run(receive);
}
