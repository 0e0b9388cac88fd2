//! What the specification says about streams, line by line.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::support;
use fibra::channel;
use fibra::stream::{self, Pipe};
use fibra::{Runtime, sync::Event};

// S0-106, S0-107, S0-109: map (into another type), filter, producer.
#[test]
fn map_filter_and_producer() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let out: Pipe<String> = stream::producer(|tx| (0..10).for_each(|n| tx.send(n).unwrap()))
            .filter(|n| n % 3 == 0)
            .map(|n: i32| format!("<{n}>"));
        assert_eq!(out.collect::<Vec<_>>(), ["<0>", "<3>", "<6>", "<9>"]);
    });
}

/// How many items a source has sent when nothing takes them any more.
fn ahead(stages: impl FnOnce(Pipe<usize>) -> Pipe<usize> + Send) -> usize {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let counting = sent.clone();
    runtime.run(move || {
        let source = stream::producer(move |tx| {
            while tx.send(counting.load(SeqCst)).is_ok() {
                counting.fetch_add(1, SeqCst);
            }
        });
        let mut out = stages(source);
        assert_eq!(out.next(), Some(0));
        // All stages are parked: nothing moves any more.
        let mut before = usize::MAX;
        while before != sent.load(SeqCst) {
            before = sent.load(SeqCst);
            (0..100).for_each(|_| fibra::yield_now());
        }
        assert_eq!(out.next(), Some(1), "and it goes on");
        before
    })
}

// S0-111: a source is at most stages plus buffers ahead of the sink. S0-108: a buffer lets it be so many further.
#[test]
fn back_pressure_goes_through() {
    let _watchdog = support::watchdog(60);
    // One was taken; each stage holds one.
    assert_eq!(ahead(|p| p), 1);
    assert_eq!(ahead(|p| p.map(|n| n)), 2);
    assert_eq!(ahead(|p| p.map(|n| n).map(|n| n).filter(|_| true)), 4);
    assert_eq!(ahead(|p| p.map(|n| n).buffer(5)), 8);
    assert_eq!(ahead(|p| p.buffered(4).map(|n| n).map(|n| n)), 11);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let sent = runtime.run(|| {
        let sent = Arc::new(AtomicUsize::new(0));
        let counting = sent.clone();
        let _out = stream::buffered(3).producer(move |tx| {
            while tx.send(()).is_ok() {
                counting.fetch_add(1, SeqCst);
            }
        });
        (0..100).for_each(|_| fibra::yield_now());
        sent.load(SeqCst)
    });
    assert_eq!(sent, 3, "the source has a buffer too");
    assert_eq!(ahead(|p| p.fused().map(|n| n).map(|n| n).filter(|_| true)), 2);
}

// S0-110: stages compose by their ends, and each adds exactly one fiber. S0-112: dropping either end ends every stage.
#[test]
fn each_stage_is_one_fiber() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let live = || fibra::Handle::current().metrics().live;
        let before = live();
        let (tx, rx) = channel::rendezvous();
        let out = rx.pipe();
        assert_eq!(live(), before, "a receiver is no stage");
        let out = out.map(|n: u32| n + 1);
        assert_eq!(live(), before + 1);
        let out = out.filter(|_| true).chunks(2).flat_map(|chunk| chunk);
        assert_eq!(live(), before + 4);
        let out = out.fused().map(|n| n).map(|n| n);
        assert_eq!(live(), before + 4, "nothing is started yet");
        let out = out.into_receiver();
        assert_eq!(live(), before + 5, "one fiber for both");
        let tx = tx.pipe_in().map(|n: u32| n).map(|n: u32| n).into_sender();
        assert_eq!(live(), before + 7);
        tx.send(1).unwrap();
        tx.send(2).unwrap();
        assert_eq!((out.recv(), out.recv()), (Ok(2), Ok(3)));
        drop(out);
        assert!(tx.closed().is_orderly());
        while live() > before {
            fibra::yield_now();
        }
    });
}

// S0-105: the end of the output is noticed before what is there to receive.
#[test]
fn the_output_is_watched_first() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let seen = Arc::new(AtomicUsize::new(0));
        let (tx, rx) = channel::unbounded();
        let counting = seen.clone();
        let out = rx.pipe().map(move |n: u32| {
            counting.fetch_add(1, SeqCst);
            n
        });
        fibra::yield_now(); // the stage waits
        tx.send(1).unwrap();
        tx.send(2).unwrap();
        drop(out);
        // When the stage runs there are both: items, and the end of its output.
        let _ = tx.closed();
        assert!(seen.load(SeqCst) <= 1, "at most the one that it was woken with");
    });
}

// Names: as reports show them.
#[test]
fn stages_have_names() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let name = || fibra::current().unwrap().name().unwrap().to_owned();
        let out = stream::from_iter(0..1).named("word-count").map(|n| n).map(move |_| name());
        assert_eq!(out.collect::<Vec<_>>(), ["stream/map#3 of word-count"]);
        let out = stream::from_iter(0..1).map(move |_| name());
        assert_eq!(out.collect::<Vec<_>>(), ["stream/map#2"]);
    });
}

// A pipeline in a scope borrows from it, and is cancelled with it.
#[test]
fn scopes_own_pipelines() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let offset = 10;
        let table: Vec<u32> = (0..100).collect();
        let total = fibra::scope(|s| {
            let pipe = stream::within(s).from_iter(&table).map(|n| n + offset).fused().filter(|n| *n >= offset);
            pipe.par_map(2, |n| n - offset).sum::<u32>()
        });
        assert_eq!(total, 4950);

        let started = Event::new();
        let ended = fibra::Scope::builder().run(|s| {
            let (tx, rx) = channel::rendezvous::<u32>();
            let out = rx.pipe().in_scope(s).inspect(|_| started.set()).map(|n| n + offset);
            s.spawn(move || {
                let _ = tx.send(1);
                tx.closed() // until the stages are gone
            });
            let taking = s.spawn(move || out.count());
            started.wait();
            s.cancel();
            assert!(taking.join().unwrap_err().is_cancelled());
        });
        assert!(ended.is_ok(), "all of it has ended: {ended:?}");
    });
}
