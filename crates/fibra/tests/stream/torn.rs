//! What a pipeline gives does not depend on how its stages are run, and what it was given is not forgotten where it is torn.

use std::time::Duration;

use crate::support;
use fibra::channel::{self, CloseReason};
use fibra::stream::{self, Pipe};

/// The same pipeline of a step that has enough and one that keeps something back, each stage on its own fiber and fused.
macro_rules! same {
    ($($stop:ident($($stop_arg:expr),*) . $keep:ident($($keep_arg:expr),*);)+) => {$(
        let build = |pipe: Pipe<u32>| pipe.$stop($($stop_arg),*).$keep($($keep_arg),*);
        let apart = build(stream::from_iter(1..=10)).collect::<Vec<_>>();
        let fused = build(stream::from_iter(1..=10).fused()).collect::<Vec<_>>();
        assert_eq!(fused, apart, "{}, {}", stringify!($stop), stringify!($keep));
        let fused = build(stream::from_iter(1..=10).fused()).map(|item| item).into_receiver();
        assert_eq!(fused.iter().collect::<Vec<_>>(), apart, "{}, {}, channel", stringify!($stop), stringify!($keep));
    )+};
}

#[test]
fn what_is_kept_back_comes_out_behind_a_step_that_has_enough() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        same! {
            take(3).chunks(2);
            take(3).group_by(|n| *n / 2);
            take_while(|n| *n < 6).chunks(2);
            take_while(|n| *n < 6).group_by(|n| *n / 4);
            scan(0, |sum: &mut u32, n| { *sum += n; (*sum < 20).then_some(n) }).chunks(3);
            take(0).chunks(2);
            chunks(3).take(2);
            chunks(4).take(3);
        }
        let thrice = |pipe: Pipe<u32>| pipe.chunks(2).take(3).chunks(2).take(2).group_by(Vec::len).collect::<Vec<_>>();
        assert_eq!(thrice(stream::from_iter(1..=10).fused()), thrice(stream::from_iter(1..=10)));
        let stopped = |pipe: Pipe<Result<u32, &'static str>>| pipe.stop_at_error().chunks(2).collect::<Vec<_>>();
        let items = || stream::from_iter([Ok(1), Ok(2), Err("x"), Ok(3)]);
        assert_eq!(stopped(items().fused()), stopped(items()));
    });
}

// Calls that wait in the buffer of a stage that ends get no answer, and are told so.
#[test]
fn calls_are_answered_or_refused_when_the_stage_ends() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        for broken in [false, true] {
            let (out, running) = channel::bounded::<()>(1);
            let server = out
                .pipe_in()
                .buffered(8)
                .rpc(move |n: u32| {
                    fibra::sleep(Duration::from_millis(5));
                    assert!(!broken, "on purpose");
                    n
                })
                .into_sender();
            let calls: Vec<_> = (0..5)
                .map(|n| {
                    let server = server.clone();
                    fibra::spawn(move || stream::call(&server, n))
                })
                .collect();
            fibra::sleep(Duration::from_millis(2));
            drop(running);
            for call in calls {
                let _ = call.join().unwrap();
            }
        }
    });
}

// What was sent before an error is delivered, buffers or not.
#[test]
fn buffers_are_delivered_before_the_reason() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::unbounded();
        (0..20).for_each(|n| tx.send(n).unwrap());
        tx.close_with("the line went dead");
        let out = rx.pipe().buffered(8).map(|n: u32| n).buffer(3).chunks_timeout(3, Duration::MAX).into_receiver();
        fibra::sleep(Duration::from_millis(5));
        assert_eq!(out.iter().flatten().collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
        assert!(matches!(out.finish(), Err(CloseReason::Error(_))));
    });
}

// The far end is watched also where the items go into a channel that was there before.
#[test]
fn a_sink_that_is_gone_tears_the_pipeline_down() {
    let _watchdog = support::watchdog(20);
    fibra::run(|| {
        let (tx, rx) = channel::rendezvous::<u32>();
        let (into, sunk) = channel::rendezvous();
        let sinking = fibra::spawn(move || rx.pipe().map(|n| n).sink(into));
        tx.send(1).unwrap();
        assert_eq!(sunk.recv(), Ok(1));
        drop(sunk);
        assert!(tx.closed().is_orderly());
        assert!(sinking.join().unwrap().is_ok());

        let (into, sunk) = channel::rendezvous();
        let (tx, done) = stream::sink::<u32>(into);
        tx.send(1).unwrap();
        assert_eq!(sunk.recv(), Ok(1));
        sunk.close_with("enough");
        assert_eq!(tx.closed().to_string(), "enough");
        assert!(done.recv().is_err());
    });
}

// An input that breaks off before its first item has not merely lost.
#[test]
fn a_reason_before_the_first_item_is_seen() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (broken, a) = channel::unbounded();
        broken.close_with("the line went dead");
        let (tx, b) = channel::unbounded();
        tx.send(1).unwrap();
        let out = a.pipe().first_wins(b.pipe()).into_receiver();
        assert_eq!(out.iter().count(), 0);
        assert_eq!(out.finish().unwrap_err().to_string(), "the line went dead");
        assert_eq!(tx.closed().to_string(), "the line went dead");
    });
}

// A reader that was slow does not make the next item come early.
#[test]
fn throttled_items_are_apart_where_they_are_taken() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        const PERIOD: Duration = Duration::from_millis(30);
        let out = stream::from_iter(0..3).throttle(PERIOD).into_receiver();
        fibra::sleep(PERIOD * 3);
        let before = fibra::time::Instant::now();
        assert_eq!((out.recv(), out.recv()), (Ok(0), Ok(1)));
        assert!(before.elapsed() >= PERIOD, "{:?}", before.elapsed());
    });
}

#[test]
fn sizes_without_measure() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let numbers = || stream::from_iter(1..=3);
        assert_eq!(numbers().chunks(usize::MAX).collect::<Vec<_>>(), [[1, 2, 3]]);
        assert_eq!(numbers().windows(usize::MAX).count(), 0);
        assert_eq!(numbers().chunks_timeout(usize::MAX, Duration::MAX).collect::<Vec<_>>(), [[1, 2, 3]]);
        assert_eq!(numbers().step_by(usize::MAX).collect::<Vec<_>>(), [1]);
        assert_eq!(numbers().skip(usize::MAX).count(), 0);
        assert_eq!(numbers().take(usize::MAX).count(), 3);
        assert_eq!(numbers().buffer(usize::MAX).count(), 3);
        assert_eq!(numbers().buffered(usize::MAX).map(|n| n).count(), 3);
        assert_eq!(numbers().par_map(usize::MAX, |n| n).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(numbers().par_map_unordered(usize::MAX, |n| n).count(), 3);
        assert_eq!(numbers().throttle(Duration::ZERO).count(), 3);
        assert_eq!(numbers().timeout(Duration::MAX).count(), 3);
        assert_eq!(numbers().debounce(Duration::MAX).collect::<Vec<_>>(), [3]);
        assert_eq!(numbers().sample(Duration::MAX).collect::<Vec<_>>(), [3]);
        assert!(numbers().fan_out(0).is_empty() && numbers().broadcast(0).is_empty());
    });
}

// The switch is looked at also while an item waits to be taken.
#[test]
fn a_switch_works_while_no_receiver_takes() {
    let _watchdog = support::watchdog(20);
    fibra::run(|| {
        let (tx, rx) = channel::rendezvous();
        let (switch, off) = channel::rendezvous::<()>();
        let out = rx.pipe().killswitch(off).into_receiver();
        tx.send(1).unwrap();
        drop(switch);
        tx.closed();
        assert!(out.iter().count() <= 1);
    });
}

// A panic in a function that runs elsewhere (on children of the stage) is seen at both ends too, at once, whatever the others are doing.
#[test]
fn a_panic_of_a_child_is_seen_at_both_ends() {
    let _watchdog = support::watchdog(30);
    const LONG: Duration = Duration::from_secs(3600);
    let work = |n: u32| {
        if n == 1 {
            fibra::sleep(LONG);
        }
        assert!(n < 2, "on purpose");
        n
    };
    fibra::run(|| {
        for which in 0..3 {
            let (tx, rx) = channel::unbounded();
            let pipe = rx.pipe().map(|n| n);
            let pipe = match which {
                0 => pipe.par_map(4, work),
                1 => pipe.par_map_unordered(4, work),
                _ => pipe
                    .retry(fibra::RetryPolicy::fixed(LONG), |n: &u32| {
                        assert!(*n < 1, "on purpose");
                        Ok::<_, ()>(*n)
                    })
                    .map(Result::unwrap),
            };
            let out = pipe.map(|n| n).into_receiver();
            (0..4).for_each(|n| tx.send(n).unwrap());
            assert!(out.iter().count() <= 1);
            assert!(matches!(out.finish(), Err(CloseReason::Panicked { .. })), "{which}: {:?}", out.finish());
            assert!(matches!(tx.closed(), CloseReason::Panicked { .. }), "{which}: {:?}", tx.closed());
        }
    });
}

// Sources that have no sender: the reason ends there, and other users of them are not concerned.
#[test]
fn reasons_end_at_sources_without_a_sender() {
    let _watchdog = support::watchdog(30);
    fibra::run(|| {
        let ticks = channel::tick(Duration::from_millis(1));
        let sources: [fn() -> channel::Receiver<fibra::time::Instant>; 3] = [
            || channel::never(),
            || channel::tick(Duration::from_millis(1)),
            || channel::after(Duration::from_secs(3600)),
        ];
        for source in sources {
            let out = source().pipe().map(|n| n).into_receiver();
            out.close_with("enough");
            let out = source().pipe().fused().map(|n| n).map(|n| n).into_receiver();
            drop(out);
            let out = source().pipe().timeout(Duration::from_millis(3)).map(|n| n).into_receiver();
            fibra::sleep(Duration::from_millis(10));
            out.close_with("enough");
            let (a, b) = source().pipe().tee();
            a.into_receiver().close_with("enough");
            b.into_receiver().close_with("enough");
        }
        fibra::sleep(Duration::from_millis(20));
        assert!(channel::never::<u32>().recv_timeout(Duration::from_millis(5)).is_err());
        assert!(!channel::never::<u32>().is_closed());
        assert_eq!(channel::never::<u32>().try_recv(), Err(channel::TryRecvError::Empty));
        assert!(ticks.recv().is_ok());
    });
}

// Teardown and cancellation at any point: what is sent is received, or comes back, or is dropped, once.
#[test]
fn items_are_dropped_once_wherever_it_is_torn_stress() {
    use std::sync::atomic::{AtomicIsize, Ordering::SeqCst};
    static THERE: AtomicIsize = AtomicIsize::new(0);
    struct Item(u32);
    impl Item {
        fn new(n: u32) -> Self {
            THERE.fetch_add(1, SeqCst);
            Item(n)
        }
    }
    impl Clone for Item {
        fn clone(&self) -> Self {
            Item::new(self.0)
        }
    }
    impl Drop for Item {
        fn drop(&mut self) {
            THERE.fetch_sub(1, SeqCst);
        }
    }
    let _watchdog = support::watchdog(120);
    fibra::run(|| {
        for round in 0..600u64 {
            let which = round / 4 % 14;
            fibra::scope(|s| {
                let (tx, rx) = channel::bounded::<Item>((round % 3) as usize);
                let (tx2, rx2) = channel::bounded::<Item>((round % 2) as usize);
                let pipe = rx.pipe().in_scope(s);
                let other = rx2.pipe().in_scope(s);
                let pipe = match which {
                    0 => pipe.par_map(3, |i| {
                        fibra::yield_now();
                        i
                    }),
                    1 => pipe.par_map_unordered(3, |i| {
                        fibra::yield_now();
                        i
                    }),
                    2 => pipe.chunks(3).flat_map(|c| c),
                    3 => pipe.throttle(Duration::from_micros(20)),
                    4 => pipe.debounce(Duration::from_micros(20)),
                    5 => pipe.sample(Duration::from_micros(50)),
                    6 => pipe.latch().take(50),
                    7 => pipe.merge(other),
                    8 => {
                        let (a, b) = pipe.tee();
                        a.merge(b)
                    }
                    9 => pipe.fan_out(3).into_iter().reduce(|a, b| a.merge(b)).unwrap(),
                    10 => pipe.first_wins(other),
                    11 => {
                        let (a, b) = pipe.partition(|i| i.0 % 2 == 0);
                        a.interleave(b)
                    }
                    12 => pipe.fused().take(20).chunks(3).flat_map(|c| c).windows(2).map(|mut w| w.pop().unwrap()),
                    _ => pipe.zip(other).map(|(a, _b)| a),
                };
                let out = pipe.map(|i| i).into_receiver();
                s.spawn(move || {
                    for n in 0..40 {
                        if tx.send(Item::new(n)).is_err() {
                            break;
                        }
                    }
                });
                s.spawn(move || {
                    for n in 0..40 {
                        if tx2.send(Item::new(n)).is_err() {
                            break;
                        }
                    }
                });
                let reading = s.spawn(move || {
                    for _ in 0..(round % 45) {
                        if out.recv().is_err() {
                            break;
                        }
                    }
                });
                match round % 4 {
                    0 => drop(reading.join()),
                    1 => {
                        (0..round % 30).for_each(|_| fibra::yield_now());
                        s.cancel();
                    }
                    2 => {
                        fibra::sleep(Duration::from_micros(round % 200));
                        s.cancel();
                    }
                    _ => {
                        (0..round % 30).for_each(|_| fibra::yield_now());
                        reading.cancel();
                    }
                }
            });
            assert_eq!(THERE.load(SeqCst), 0, "round {round}");
        }
    });
}
