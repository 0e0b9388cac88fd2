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
