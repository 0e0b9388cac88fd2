//! Spans of fibers that share a worker, under a real subscriber: every line that it prints names the spans of the fiber that spoke, and
//! none of a neighbour's. One program and one subscriber for the process, as it is in a program; lines are told apart by their fibers.

#![allow(clippy::disallowed_types)] // Code outside the runtime.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use fibra::{Builder, Runtime};
use tracing::{info, info_span};
use tracing_subscriber::fmt::MakeWriter;

/// What the subscriber has printed.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Printed {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Printed {
    /// The lines with this word, each from its spans on.
    fn lines(&self, word: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(word)).map(|line| line.trim().to_owned()).collect()
    }
}

/// The subscriber of this process, and one worker for all fibers of a test.
fn set_up() -> (Printed, Runtime) {
    static PRINTED: Mutex<Option<Printed>> = Mutex::new(None);
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let printed = Printed::default();
        *PRINTED.lock().unwrap() = Some(printed.clone());
        let format = tracing_subscriber::fmt().with_ansi(false).without_time().with_level(false).with_target(false);
        format.with_writer(printed).init();
        fibra_tracing::install();
    });
    let printed = PRINTED.lock().unwrap().clone().unwrap();
    (printed, Runtime::builder().workers(1).max_workers(1).build().unwrap())
}

fn named<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> fibra::JoinHandle<T> {
    Builder::new().name(name).spawn(f).unwrap()
}

#[test]
fn two_fibers_of_a_worker_interleave_inside_spans() {
    let (printed, rt) = set_up();
    let ids = rt.run(|| {
        let (to_left, left) = fibra::channel::rendezvous::<()>();
        let (to_right, right) = fibra::channel::rendezvous::<()>();
        let one = named("interleave-one", move || {
            let _outer = info_span!("one", n = 1).entered();
            for step in 0..3 {
                let _inner = info_span!("step", step).entered();
                to_right.send(()).unwrap();
                left.recv().unwrap();
                info!("interleaved");
            }
            drop(_outer);
            info!("interleaved outside");
        });
        let two = named("interleave-two", move || {
            for _ in 0..3 {
                right.recv().unwrap();
                let _span = info_span!("two").entered();
                info!("interleaved");
                fibra::yield_now();
                to_left.send(()).unwrap();
                info!("interleaved");
            }
        });
        let ids = (one.id().as_u64(), two.id().as_u64());
        one.join().unwrap();
        two.join().unwrap();
        ids
    });
    let lines = printed.lines("interleaved");
    let of = |id: u64, name: &str| {
        let begin = format!("fiber{{id={id} name=\"{name}\"}}:");
        lines.iter().filter_map(|line| line.strip_prefix(&begin).map(str::trim)).map(str::to_owned).collect::<Vec<_>>()
    };
    let expected: Vec<String> = (0..3)
        .map(|step| format!("one{{n=1}}:step{{step={step}}}: interleaved"))
        .chain(["interleaved outside".to_owned()])
        .collect();
    assert_eq!(of(ids.0, "interleave-one"), expected, "{lines:#?}");
    assert_eq!(of(ids.1, "interleave-two"), vec!["two: interleaved"; 6], "{lines:#?}");
    assert_eq!(lines.len(), 10, "{lines:#?}");
}

#[test]
fn a_span_that_only_its_guard_holds_survives_a_suspension() {
    let (printed, rt) = set_up();
    rt.run(|| {
        let fibers: Vec<_> = (0..50)
            .map(|number| {
                fibra::spawn(move || {
                    // The same span twice, and one in between.
                    let span = info_span!("again", number);
                    let _one = span.enter();
                    let _between = info_span!("between").entered();
                    let _two = span.enter();
                    fibra::sleep(Duration::from_micros(number * 10));
                    info!("survived {number}");
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
    for number in 0..50 {
        let lines = printed.lines(&format!("survived {number}"));
        let line = lines.iter().find(|line| line.ends_with(&format!("survived {number}"))).expect("it spoke");
        assert!(line.contains(&format!(":again{{number={number}}}:between: ")), "{line}");
        assert_eq!(line.matches("again").count(), 1, "{line}");
    }
}

#[test]
fn spans_that_a_fiber_leaves_behind_end_with_it() {
    let (printed, rt) = set_up();
    rt.run(|| {
        fibra::spawn(|| std::mem::forget(info_span!("forgotten").entered())).join().unwrap();
        fibra::spawn(|| info!("after the forgetful one")).join().unwrap();
        // A local one has begun when `yield_now` returns.
        let waits = fibra::spawn_local(|| {
            let _span = info_span!("cancelled").entered();
            fibra::sleep(Duration::from_secs(3600));
        });
        fibra::yield_now();
        waits.cancel();
        assert!(waits.join().unwrap_err().is_cancelled());
        let panics = fibra::spawn(|| {
            let _span = info_span!("panicked").entered();
            fibra::yield_now();
            panic!("on purpose");
        });
        assert!(panics.join().unwrap_err().is_panic());
        info!("after the forgetful one");
    });
    let lines = printed.lines("after the forgetful one");
    assert_eq!(lines.len(), 2);
    for line in lines {
        let (span, _) = line.rsplit_once(": ").unwrap();
        assert!(span.starts_with("fiber{id=") && !span.contains("}:"), "only the span of the fiber itself: {line}");
    }
}

#[test]
fn a_child_begins_outside_of_its_parents_spans() {
    let (printed, rt) = set_up();
    rt.run(|| {
        let _span = info_span!("parent").entered();
        fibra::spawn_local(|| info!("child speaks")).join().unwrap();
        info!("parent speaks");
        let inside = tracing::Span::current();
        fibra::spawn(move || {
            let _inside = inside.entered();
            fibra::yield_now();
            info!("invited child speaks");
        })
        .join()
        .unwrap();
    });
    assert!(!printed.lines("child speaks")[0].contains("parent"), "{:?}", printed.lines("child speaks"));
    assert!(printed.lines("parent speaks")[0].contains(":parent: "), "{:?}", printed.lines("parent speaks"));
    let invited = &printed.lines("invited child")[0];
    assert!(invited.contains("parent: invited"), "{invited}");
}
