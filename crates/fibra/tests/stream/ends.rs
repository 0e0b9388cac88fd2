//! How pipelines end: reasons arrive at both ends, panics are not swallowed, and errors stop or are passed over by choice.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::support;
use fibra::channel::{self, CloseReason};
use fibra::stream;

#[test]
fn a_panic_is_seen_at_both_ends() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        for (fused, place) in [(false, 0), (false, 1), (false, 2), (true, 1)] {
            let (tx, rx) = channel::rendezvous::<u32>();
            let broken = move |at: u32| {
                move |n: u32| {
                    assert!(at != place || n < 2, "on purpose");
                    n
                }
            };
            let pipe = rx.pipe();
            let pipe = if fused { pipe.fused() } else { pipe };
            let out = pipe.map(broken(0)).map(broken(1)).map(broken(2)).into_receiver();
            let sending = fibra::spawn(move || {
                let sent = (0..).take_while(|n| tx.send(*n).is_ok()).count();
                (sent, tx.closed())
            });
            assert_eq!(out.iter().collect::<Vec<_>>(), [0, 1]);
            let finish = out.finish();
            assert!(matches!(finish, Err(CloseReason::Panicked { .. })), "{place}: {finish:?}");
            let (_, why) = sending.join().unwrap();
            assert!(matches!(why, CloseReason::Panicked { .. }), "{place}: {why:?}");
        }
    });
}

#[test]
fn an_error_and_a_cancellation_go_through() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::bounded::<u32>(4);
        let out = rx.pipe().map(|n| n).fused().filter(|_| true).unfused().chunks(2).into_receiver();
        tx.send(1).unwrap();
        tx.close_with("the line went dead");
        assert_eq!(out.recv(), Ok(vec![1]), "what was sent before arrives");
        assert!(out.recv().is_err());
        assert_eq!(out.finish().unwrap_err().to_string(), "the line went dead");

        let (tx, rx) = channel::rendezvous::<u32>();
        let out = rx.pipe().map(|n| n).filter(|_| true).into_receiver();
        out.close_with("enough");
        assert_eq!(tx.closed().to_string(), "enough");
        assert_eq!(tx.send(1).unwrap_err().into_inner(), 1);

        let source = fibra::spawn(|| ());
        source.join().unwrap();
        let out = stream::producer(|tx| {
            tx.send(1).unwrap();
            fibra::scope(|s| {
                s.cancel();
                s.spawn(move || tx); // a fiber that is cancelled drops the last handle
            });
        })
        .map(|n: u32| n)
        .into_receiver();
        assert_eq!(out.recv(), Ok(1));
        assert!(out.recv().is_err());
    });
}

// What takes the items panics where they break off; an orderly end does not.
#[test]
fn broken_off_items_are_no_result() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let broken = || stream::from_iter(0..5).map(|n| if n < 3 { n } else { panic!("on purpose") });
        let text = |caught: std::thread::Result<()>| *caught.unwrap_err().downcast::<String>().unwrap();
        let by_collect = text(catch_unwind(AssertUnwindSafe(|| drop(broken().collect::<Vec<_>>()))));
        assert!(by_collect.starts_with("fibra: a stage of the pipeline panicked"), "{by_collect}");
        let mut taken = Vec::new();
        let by_loop = catch_unwind(AssertUnwindSafe(|| {
            for n in broken() {
                taken.push(n);
            }
        }));
        assert!(by_loop.is_err());
        assert_eq!(taken, [0, 1, 2], "what came before it did");
        assert_eq!(broken().take(2).collect::<Vec<_>>(), [0, 1], "behind it nothing was wanted");
        assert!(catch_unwind(AssertUnwindSafe(|| broken().fused().map(|n| n).count())).is_err());
    });
}

#[test]
fn results_stop_or_go_on() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let parse = || {
            stream::from_iter(["1", "2", "x", "4"]).map(|text: &str| text.parse::<u32>().map_err(|_| text.to_owned()))
        };
        assert_eq!(parse().try_collect::<Vec<_>>(), Err("x".to_owned()));
        assert_eq!(parse().take(2).try_collect::<Vec<_>>(), Ok(vec![1, 2]));
        assert_eq!(parse().try_fold(0, |sum, n| Ok(sum + n)), Err("x".to_owned()));
        assert_eq!(parse().try_for_each(|n| if n < 2 { Ok(()) } else { Err(n.to_string()) }), Err("2".to_owned()));
        let mut errors = Vec::new();
        let (tx, rx) = channel::unbounded();
        let good: Vec<u32> = parse().skip_errors(move |text| tx.send(text).unwrap()).collect();
        errors.extend(rx.iter());
        assert_eq!((good, errors), (vec![1, 2, 4], vec!["x".to_owned()]));
    });
}

// Lines of files and sockets: a reader that waits for the next line is cancelled when the pipeline is torn down.
#[test]
fn lines_end_with_their_pipeline() {
    use std::io::Write;
    let _watchdog = support::watchdog(60);
    let runtime = fibra::Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let (mut here, there) = fibra::net::UnixStream::pair().unwrap();
        let mut lines = stream::lines(there).map(Result::unwrap);
        here.write_all(b"one\ntwo\r\nthr").unwrap();
        assert_eq!((lines.next().as_deref(), lines.next().as_deref()), (Some("one"), Some("two")));
        drop(lines);
    });
    support::eventually(|| runtime.metrics().live == 0, || format!("{:?}", runtime.metrics()));
    runtime.run(|| {
        let (mut here, there) = fibra::net::UnixStream::pair().unwrap();
        here.write_all(b"one\nbad \xff\n").unwrap();
        drop(here);
        let got: Vec<_> = stream::lines(there).collect();
        assert_eq!((got.len(), got[0].as_deref().unwrap()), (2, "one"));
        assert!(got[1].is_err(), "the first error is the last item");
        let missing = stream::from_iter(["a"]).write_to(Full).unwrap_err();
        assert_eq!(missing.to_string(), "full");
    });
}

struct Full;

impl std::io::Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("full"))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

// A stage that cannot be started says so: what is missing is not taken for the end.
#[test]
fn a_stage_that_is_refused_says_so() {
    let _watchdog = support::watchdog(60);
    let runtime = fibra::Runtime::builder().workers(1).max_fibers(2).build().unwrap();
    runtime.run(|| {
        let (tx, rx) = channel::rendezvous::<u32>();
        let out = rx.pipe().map(|n| n).map(|n| n).map(|n| n).map(|n| n).into_receiver();
        assert!(out.recv().is_err());
        assert!(matches!(out.finish(), Err(CloseReason::Error(_))));
        assert!(matches!(tx.closed(), CloseReason::Error(_)));
    });
}

// `first_wins` tears the other one down.
#[test]
fn the_loser_is_torn_down() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, slow) = channel::rendezvous::<u32>();
        let mut out = slow.pipe().first_wins(stream::from_iter(0..));
        assert_eq!(out.next(), Some(0));
        let _ = tx.closed();
        assert_eq!(out.next(), Some(1));
    });
}

/// Fails at the second item if its number is `at`.
fn fails_at(number: u32, at: u32) -> impl Fn(u32) -> u32 + Send + 'static {
    move |n| {
        assert!(number != at || n < 1, "on purpose");
        n
    }
}

// One rule at every distance: a pipeline that fails gives up its handle, and a channel that has others goes on for them. (A run ends after
// its fibers: then every stage has given up what it had.)
#[test]
fn a_failing_pipeline_on_a_cloned_receiver_leaves_the_channel_to_the_others() {
    let _watchdog = support::watchdog(60);
    for (fused, place) in [(false, 1), (false, 2), (false, 3), (true, 1), (true, 3)] {
        let (tx, rx) = channel::rendezvous::<u32>();
        let cloned = rx.clone();
        fibra::run(|| {
            let pipe = cloned.pipe();
            let pipe = if fused { pipe.fused() } else { pipe };
            let stages = |n| fails_at(n, place);
            let out = pipe.map(stages(1)).map(stages(2)).map(stages(3)).into_receiver();
            tx.send(0).unwrap();
            assert_eq!(out.recv(), Ok(0));
            tx.send(1).unwrap();
            assert!(out.recv().is_err());
            assert!(matches!(out.finish(), Err(CloseReason::Panicked { .. })), "{place}");
        });
        assert_eq!(tx.close_reason().map(|why| why.to_string()), None, "{fused} {place}");
        let other = std::thread::spawn(move || rx.recv());
        tx.send(7).unwrap();
        assert_eq!(other.join().unwrap(), Ok(7));
    }
}

#[test]
fn a_failing_pipeline_on_a_cloned_sender_leaves_the_channel_to_the_others() {
    let _watchdog = support::watchdog(60);
    let goes_on = |fail: &dyn Fn(channel::Sender<u32>, &channel::Receiver<u32>)| {
        let (tx, rx) = channel::bounded::<u32>(4);
        let cloned = tx.clone();
        fibra::run(|| fail(cloned, &rx));
        assert_eq!(rx.close_reason().map(|why| why.to_string()), None);
        tx.send(7).unwrap();
        assert_eq!(rx.recv(), Ok(7));
    };
    for place in 1..=3 {
        goes_on(&|cloned, rx| {
            let stages = |n| fails_at(n, place);
            let into = cloned.pipe_in().map(stages(1)).map(stages(2)).map(stages(3)).into_sender();
            into.send(0).unwrap();
            assert_eq!(rx.recv(), Ok(0));
            into.send(1).unwrap();
            assert!(matches!(into.closed(), CloseReason::Panicked { .. }), "{place}");
        });
    }
    // An error that comes from the source, and a stage that fails without a panic, are no different.
    goes_on(&|cloned, _| {
        cloned.pipe_in().map(|n: u32| n).into_sender().close_with("the line went dead");
    });
    goes_on(&|cloned, _| {
        let late = cloned.pipe_in().timeout(std::time::Duration::from_millis(1)).into_sender();
        assert!(late.closed().to_string().contains("no item has come"));
    });
}

// What is missing is not taken for the end, whatever ended the pipeline; the reason is in the panic, and in `finish`.
#[test]
fn what_takes_items_panics_where_they_break_off() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let broken_off = || {
            let (tx, rx) = channel::bounded::<u32>(4);
            tx.send(1).unwrap();
            tx.close_with("the line went dead");
            rx.pipe().map(|n| n)
        };
        let text = |take: &dyn Fn()| {
            let payload = catch_unwind(AssertUnwindSafe(take)).unwrap_err();
            payload.downcast_ref::<String>().expect("a text").clone()
        };
        let takers: [&dyn Fn(); 5] = [
            &|| drop(broken_off().collect::<Vec<_>>()),
            &|| drop(broken_off().fused().map(|n| n).collect::<Vec<_>>()),
            &|| assert_eq!(broken_off().fold(0, |sum, n| sum + n), 1),
            &|| broken_off().for_each(|n| assert_eq!(n, 1)),
            &|| {
                for n in broken_off() {
                    assert_eq!(n, 1);
                }
            },
        ];
        for take in takers {
            let text = text(take);
            assert!(text.contains("the line went dead") && text.contains("finish()"), "{text}");
        }
        // The way to have both: what came, and why no more did.
        let out = broken_off().into_receiver();
        assert_eq!(out.iter().collect::<Vec<_>>(), [1]);
        assert_eq!(out.finish().unwrap_err().to_string(), "the line went dead");
        // Errors that are items are the items' affair.
        let numbers = stream::from_iter(["1", "x", "3"]).map(str::parse::<u32>);
        assert!(numbers.try_collect::<Vec<_>>().is_err());
    });
}

// The first value of a batch has left the channel when it is handed on: a sender that found no room has its place then, and not only
// when the loop comes for the next batch.
#[test]
fn a_loop_that_waits_for_its_sender_has_let_it_go_on() {
    let _watchdog = support::watchdog(60);
    let rt = fibra::Runtime::builder().workers(1).max_workers(1).build().unwrap();
    rt.run(|| {
        let (tx, rx) = channel::bounded(2);
        let (go, gone) = channel::bounded::<()>(1);
        let sending = fibra::spawn_local(move || {
            (0..3).for_each(|n| tx.send(n).unwrap());
            go.send(()).unwrap();
        });
        // 0 and 1 are in the buffer, and the sender waits with 2.
        fibra::yield_now();
        let waits = move |n| {
            if n == 0 {
                gone.recv().unwrap();
            }
            n
        };
        assert_eq!(rx.pipe().map(waits).collect::<Vec<i32>>(), [0, 1, 2]);
        sending.join().unwrap();
    });
}
