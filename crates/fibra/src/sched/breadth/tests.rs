//! Unit tests of where work goes on that can begin anew.

#[cfg(not(any(fibra_context = "thread", fibra_force_moves)))]
use std::{sync::Arc, time::Duration};

use super::{AGAIN, ALL, FIRST_PAUSE, LONGEST_PAUSE, LOOK, OLD_LOOK, Plan, Rhythm, SETTLING, SHORT, Share, TRIAL, Why};
#[cfg(not(any(fibra_context = "thread", fibra_force_moves)))]
use super::{AtomicBool, Ordering, Phase, policy};
#[cfg(not(any(fibra_context = "thread", fibra_force_moves)))]
use crate::{runtime::Runtime, sched::current, task::Builder};

/// Of a worker that has slept for so long, many times.
fn rhythm_of(nanos: u64) -> Rhythm {
    let rhythm = Rhythm::new();
    for _ in 0..200 {
        assert!(!rhythm.note_sleep(nanos, 1, || None));
    }
    rhythm
}

/// Two sleeps, [`LOOK`] apart, of a thread that waited for this share of the time: is there a worker too many?
fn is_one_too_many(rhythm: &Rhythm, from: u64, share: f64) -> bool {
    let nanos = rhythm.average.get();
    assert!(!rhythm.note_sleep(nanos, from, || Some(1000)), "one look says nothing");
    rhythm.note_sleep(nanos, from + LOOK, || Some(1000 + (LOOK as f64 * share) as u64))
}

#[test]
fn a_worker_that_sleeps_shortly_and_waits_for_a_processor_is_one_too_many() {
    assert!(is_one_too_many(&rhythm_of(SHORT / 2), LOOK, 0.2));
    assert!(!is_one_too_many(&rhythm_of(SHORT / 2), LOOK, 0.1), "it has its processor");
    assert!(!is_one_too_many(&rhythm_of(2 * SHORT), LOOK, 0.9), "its sleeps are not short");
    assert!(!is_one_too_many(&Rhythm::new(), LOOK, 0.9), "it has not slept yet");
}

#[test]
fn it_looks_seldom_and_believes_no_old_look() {
    let rhythm = rhythm_of(SHORT / 2);
    assert!(!rhythm.note_sleep(1, LOOK, || None), "the kernel does not count");
    assert!(!rhythm.note_sleep(1, LOOK, || Some(0)));
    assert!(!rhythm.note_sleep(1, 2 * LOOK - 1, || panic!("it has just looked")));
    assert!(!rhythm.note_sleep(1, LOOK + OLD_LOOK, || Some(OLD_LOOK)), "that was long ago");
    assert!(rhythm.note_sleep(1, 2 * LOOK + OLD_LOOK, || Some(OLD_LOOK + LOOK)));
}

/// Sleeps most of the time, wherever it should go on.
#[cfg(not(any(fibra_context = "thread", fibra_force_moves)))]
fn rest_and_ask(stop: Arc<AtomicBool>) {
    // Relaxed: a flag of a test.
    while !stop.load(Ordering::Relaxed) {
        crate::time::sleep(Duration::from_millis(10));
        if let Some(place) = crate::task::better_place() {
            drop(Builder::new().place(place).spawn(move || rest_and_ask(stop)).unwrap());
            return;
        }
    }
}

// Narrowed by hand, since that needs a machine with too few processors. What was gathered on one worker comes to the other again.
#[test]
#[cfg(not(any(fibra_context = "thread", fibra_force_moves)))] // A fiber's OS thread is its stack there; it goes on anywhere.
fn what_was_gathered_spreads_again_when_there_is_little_to_do() {
    let runtime = Runtime::builder().workers(2).max_workers(2).build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    runtime.run(|| {
        let worker = current::worker().unwrap();
        let (shared, home) = (worker.shared.clone(), worker.index);
        let on_other = || shared.remotes[1 - home].stats.started.get();
        for _ in 0..16 {
            let stop = stop.clone();
            drop(crate::task::spawn_local(move || rest_and_ask(stop)));
        }
        let narrow = || shared.breadth.change(|plan| plan.narrow(policy::now().max(SETTLING), 2));
        narrow();
        assert_eq!(shared.gathered_on(), 1);
        // (From the second worker all go to the first one before.)
        let is_apart = || shared.gathered_on() == 2 && (5..=11).contains(&on_other());
        let begin = crate::time::Instant::now();
        let mut tried = begin;
        while !is_apart() {
            // The share is given for a time, within which the other worker must be found idle often enough: if not, once more.
            if shared.gathered_on() == 1 {
                tried = crate::time::Instant::now();
            } else if tried.elapsed() > Duration::from_nanos(2 * AGAIN) {
                narrow();
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}, {} of 16", shared.breadth, on_other());
            crate::time::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed); // Relaxed: a flag of a test.
    });
}

// A worker that is calm at each of its windows gives one share at a time, and none where it would be nothing.
#[test]
#[cfg(not(any(fibra_context = "thread", fibra_force_moves)))] // As above.
fn a_calm_worker_gives_one_share_at_a_time() {
    let runtime = Runtime::builder().workers(3).max_workers(3).build().unwrap();
    runtime.run(|| {
        let worker = current::worker().unwrap();
        let breadth = &worker.shared.breadth;
        // When the others sleep, which they do soon.
        let spread_again = |now| {
            let is_idle = |other: &usize| matches!(worker.shared.idle.phase(*other), Phase::Sleep);
            let until = crate::time::Instant::now() + Duration::from_secs(60);
            while worker.others_within(ALL).filter(is_idle).count() < 2 {
                assert!(crate::time::Instant::now() < until, "the others have nothing to do");
                crate::time::sleep(Duration::from_millis(1));
            }
            worker.spread_again(now);
            breadth.width()
        };
        let narrow = |now| breadth.change(|plan| plan.narrow(now, 3));
        let now = policy::now() + SETTLING;
        narrow(now);
        narrow(now + SETTLING);
        let mut now = now + SETTLING + FIRST_PAUSE;
        assert_eq!(spread_again(now), 1, "there is but this fiber");
        let gate = Arc::new(crate::sync::Event::new());
        let fibers = [(); 16].map(|()| gate.clone()).map(|gate| crate::task::spawn_local(move || gate.wait()));
        crate::task::yield_now();
        assert_eq!(spread_again(now), 2);
        let to = worker.rhythm.going.get().unwrap().to;
        for _ in 0..9 {
            now += AGAIN / 10;
            assert_eq!(spread_again(now), 2, "none of these has gone");
        }
        assert_eq!(worker.rhythm.going.get().map(|share| (share.left, share.to)), Some((8, to)));
        assert_eq!(spread_again(now + AGAIN), ALL, "that was long enough");
        gate.set();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}

#[test]
fn a_share_that_is_given_while_calm_is_kept_over_sleeps_and_not_for_long() {
    let rhythm = rhythm_of(2 * SHORT);
    let give = |calm_until| rhythm.going.set(Some(Share { left: 2, to: 1, calm_until }));
    let next = |width, now| rhythm.next_to_go(width, now, |_| true);
    give(Some(100));
    assert!(!rhythm.note_sleep(1, 1, || None));
    assert_eq!(next(2, 99), Some(1));
    assert_eq!(rhythm.next_to_go(2, 99, |_| false), None, "not now");
    assert_eq!(rhythm.going.get().map(|share| share.left), Some(1));
    assert_eq!(next(2, 100), None);
    assert_eq!(next(2, 1), None, "that was its end");
    give(None);
    assert_eq!(next(1, 1), None, "out of the width");
    give(None);
    assert_eq!([(); 3].map(|()| next(2, 1)), [Some(1), Some(1), None]);
    give(None);
    assert!(!rhythm.note_sleep(1, 1, || None));
    assert_eq!(next(2, 1), None, "it has slept");
}

#[test]
fn work_goes_where_there_is_less_than_half_as_much() {
    assert_eq!(Rhythm::share(20, 0), 10);
    assert_eq!(Rhythm::share(20, 9), 5);
    assert_eq!(Rhythm::share(20, 10), 0);
    assert_eq!(Rhythm::share(3, 0), 1);
    assert_eq!(Rhythm::share(2, 0), 0, "one waits while one runs");
}

#[test]
fn the_width_is_between_one_and_all_and_changes_slowly() {
    let mut plan = Plan::new();
    plan.narrow(SETTLING - 1, 3);
    assert_eq!(plan.width, ALL, "it has just begun");
    plan.narrow(SETTLING, 3);
    plan.narrow(2 * SETTLING - 1, 3);
    assert_eq!(plan.width, 2);
    plan.narrow(2 * SETTLING, 3);
    plan.narrow(9 * SETTLING, 3);
    assert_eq!(plan.width, 1);
    plan.widen(Why::Saturated, 2 * SETTLING + FIRST_PAUSE - 1, 3);
    assert_eq!(plan.width, 1);
    plan.widen(Why::Saturated, 2 * SETTLING + FIRST_PAUSE, 3);
    assert_eq!(plan.width, 2);
    for _ in 0..5 {
        plan.widen(Why::Saturated, 2 * SETTLING + FIRST_PAUSE, 3);
    }
    assert_eq!(plan.width, ALL);
}

#[test]
fn a_widening_that_was_wrong_is_tried_again_later_and_later() {
    let (mut plan, mut now) = (Plan::new(), SETTLING);
    plan.narrow(now, 2);
    for round in 1..12 {
        now = plan.pauses[Why::Saturated as usize].from;
        assert!(plan.widen(Why::Saturated, now, 2));
        assert_eq!(plan.width, ALL);
        now += SETTLING;
        plan.narrow(now, 2);
        let [saturated, calm] = plan.pauses;
        assert_eq!((plan.width, saturated.from - now), (1, (FIRST_PAUSE << round).min(LONGEST_PAUSE)));
        assert_eq!(calm.from - now, FIRST_PAUSE, "that one has not been tried");
    }
    now = plan.pauses[Why::Saturated as usize].from;
    assert!(plan.widen(Why::Saturated, now, 2));
    plan.narrow(now + TRIAL, 2);
    assert_eq!(plan.pauses[0].nanos, FIRST_PAUSE, "that one was right for a while");
}

#[test]
fn a_calm_widening_that_was_wrong_holds_up_no_saturated_worker() {
    let (mut plan, mut now) = (Plan::new(), SETTLING);
    plan.narrow(now, 2);
    for round in 1..12 {
        now = plan.pauses[Why::Calm as usize].from;
        assert!(!plan.widen(Why::Calm, now - 1, 2));
        assert!(plan.widen(Why::Calm, now, 2));
        assert!(!plan.widen(Why::Calm, now, 2), "there is no other worker");
        now += SETTLING;
        plan.narrow(now, 2);
        let [saturated, calm] = plan.pauses;
        assert_eq!((saturated.from - now, calm.from - now), (FIRST_PAUSE, (FIRST_PAUSE << round).min(LONGEST_PAUSE)));
    }
}

#[test]
fn each_widening_that_may_have_been_wrong_is_tried_again_later() {
    let mut plan = Plan::new();
    plan.narrow(SETTLING, 3);
    plan.narrow(2 * SETTLING, 3);
    let now = 2 * SETTLING + FIRST_PAUSE;
    assert!(plan.widen(Why::Calm, now, 3) && plan.widen(Why::Saturated, now + TRIAL / 2, 3));
    let mut later = plan;
    plan.narrow(now + TRIAL - 1, 3);
    assert_eq!(plan.pauses.map(|pause| pause.nanos), [2 * FIRST_PAUSE; 2]);
    later.narrow(now + TRIAL, 3);
    assert_eq!(
        later.pauses.map(|pause| pause.nanos),
        [2 * FIRST_PAUSE, FIRST_PAUSE],
        "the calm one was right for a while"
    );
}
