//! The flight recorder: what is in its files, and when they are written. The files are read back by a parser of JSON of our own, and
//! checked by what a viewer relies on: slices that do not overlap and ascend, arrows with two ends that lie in slices, threads with names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::json::parse;
use crate::support::{in_child, is_child, rerun_self, watchdog};

/// A file of this test, gone when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-{name}-{}.json", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const WORKERS: u64 = 1;
const FIBERS: u64 = 2;

#[derive(Debug, Clone)]
struct Slice {
    name: String,
    start: u64,
    end: u64,
    args: BTreeMap<String, String>,
}

/// A file that was read and found in order.
#[derive(Debug, Default)]
struct Trace {
    /// By process and thread.
    names: BTreeMap<(u64, u64), String>,
    slices: BTreeMap<(u64, u64), Vec<Slice>>,
    marks: Vec<((u64, u64), String)>,
    /// What, from which fiber, to which.
    arrows: Vec<(String, u64, u64)>,
    overwritten: u64,
}

impl Trace {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let json = parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut trace =
            Trace { overwritten: json.at("otherData").at("entries_overwritten").number(), ..Trace::default() };
        let mut flows: BTreeMap<u64, Vec<(String, String, u64, u64)>> = BTreeMap::new();
        for event in json.at("traceEvents").items() {
            let phase = event.at("ph").text();
            let name = event.at("name").text().to_owned();
            let process = event.at("pid").number();
            assert!(process == WORKERS || process == FIBERS, "{event:?}");
            if phase == "M" && name == "process_name" {
                continue;
            }
            let thread = (process, event.at("tid").number());
            match phase {
                "M" if name == "thread_name" => {
                    let before = trace.names.insert(thread, event.at("args").at("name").text().to_owned());
                    assert_eq!(before, None, "a thread has one name");
                }
                "M" => assert_eq!(name, "thread_sort_index"),
                "X" => {
                    let start = event.at("ts").nanos();
                    let end = start + event.at("dur").nanos();
                    let slices = trace.slices.entry(thread).or_default();
                    let before = slices.last().map_or(0, |slice| slice.end);
                    assert!(before <= start && start < end, "slices ascend: {before} {start} {end} {event:?}");
                    let args = event.at("args").fields().map(|(key, value)| (key.to_owned(), value.text().to_owned()));
                    slices.push(Slice { name, start, end, args: args.collect() });
                }
                "i" => trace.marks.push((thread, name)),
                "s" | "f" => {
                    assert_eq!(process, FIBERS);
                    let end = (phase.to_owned(), name, thread.1, event.at("ts").nanos());
                    flows.entry(event.at("id").number()).or_default().push(end);
                }
                other => panic!("{other} is no event that is written: {event:?}"),
            }
        }
        for thread in trace.slices.keys() {
            assert!(trace.names.contains_key(thread), "thread {thread:?} has no name");
        }
        for (id, ends) in flows {
            let [(begin, what, from, at), (end, _, to, until)] = &ends[..] else { panic!("flow {id}: {ends:?}") };
            assert_eq!((begin.as_str(), end.as_str()), ("s", "f"), "flow {id} has both ends");
            assert!(at <= until, "flow {id} goes back in time: {ends:?}");
            assert!(trace.runs_at(*from, *at), "flow {id} begins in a turn: {ends:?}");
            assert!(trace.runs_at(*to, *until), "flow {id} leads to a turn: {ends:?}");
            trace.arrows.push((what.clone(), *from, *to));
        }
        trace
    }

    fn runs_at(&self, fiber: u64, at: u64) -> bool {
        let slices = self.slices.get(&(FIBERS, fiber)).map_or(&[][..], Vec::as_slice);
        slices.iter().any(|slice| slice.name == "running" && slice.start <= at && at < slice.end)
    }

    /// The number of the fiber with this name.
    fn fiber(&self, name: &str) -> u64 {
        let found =
            self.names.iter().find(|((process, _), title)| *process == FIBERS && title.ends_with(&format!(" {name}")));
        found.unwrap_or_else(|| panic!("no fiber {name}: {:?}", self.names)).0.1
    }

    fn of(&self, fiber: u64) -> &[Slice] {
        &self.slices[&(FIBERS, fiber)]
    }

    fn has_arrow(&self, what: &str, from: u64, to: u64) -> bool {
        self.arrows.iter().any(|arrow| *arrow == (what.to_owned(), from, to))
    }
}

fn spawn<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> fibra::JoinHandle<T> {
    fibra::Builder::new().name(name).spawn(f).unwrap()
}

//
#[test]
fn a_recording_shows_turns_waits_and_who_woke_whom() {
    const TEST: &str = "a_recording_shows_turns_waits_and_who_woke_whom";
    if !is_child(TEST) {
        // The recorder is the process's: other tests would be in the file.
        let ended = rerun_self(TEST, &[]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let _watchdog = watchdog(60);
    let file = Scratch::new("whole");
    let rt = fibra::Runtime::builder().workers(1).max_workers(1).name("traced").build().unwrap();
    let recording = fibra::trace::record(&file.0).unwrap();
    let (root, reader, sleeper, ended) = rt.run(|| {
        let root = fibra::current().unwrap().id().as_u64();
        let (tx, rx) = fibra::channel::builder::<u32>().bounded(1).name("numbers").build();
        let reader = spawn("reader", move || while rx.recv().is_ok() {});
        let sleeper = spawn("sleeper", || fibra::sleep(Duration::from_millis(2)));
        let stuck = spawn("stuck", || fibra::sleep(Duration::from_secs(3600)));
        let ids = (root, reader.id().as_u64(), sleeper.id().as_u64(), stuck.id().as_u64());
        for number in 0..100 {
            tx.send(number).unwrap();
        }
        sleeper.join().unwrap();
        stuck.cancel();
        assert!(stuck.join().unwrap_err().is_cancelled());
        // What is left is the reader, which waits for the channel.
        while !fibra::inspect::snapshot().fibers().iter().any(|fiber| fiber.id == reader.id() && fiber.wait.is_some()) {
            fibra::yield_now();
        }
        recording.finish().unwrap();
        drop(tx);
        reader.join().unwrap();
        ids
    });
    let trace = Trace::read(&file.0);
    assert_eq!(trace.overwritten, 0);
    assert_eq!(trace.names[&(WORKERS, 1)], "traced-worker-0");
    assert_eq!((trace.fiber("reader"), trace.fiber("sleeper"), trace.fiber("stuck")), (reader, sleeper, ended));
    assert!(trace.has_arrow("spawn", root, reader), "{:?}", trace.arrows);
    assert!(trace.has_arrow("wake", root, reader), "{:?}", trace.arrows);
    assert!(trace.has_arrow("wake", reader, root), "the sender waits as well: {:?}", trace.arrows);
    assert!(trace.has_arrow("wake", sleeper, root), "the end of a fiber wakes its joiner: {:?}", trace.arrows);
    let waits = trace.of(reader).iter().find(|slice| slice.name == "receiving from a channel").expect("it waited");
    assert!(waits.args["object"].contains("\"numbers\"") && waits.args["at"].contains("traces.rs"), "{waits:?}");
    let last = trace.of(reader).last().unwrap();
    assert_eq!(last.name, "receiving from a channel", "it still waits when the recording ends");
    assert_eq!(trace.of(reader)[0].name, "unstarted");
    let slept = trace.of(sleeper);
    let at = slept.iter().position(|slice| slice.name == "sleeping").expect("it slept");
    assert!(slept[at].end - slept[at].start >= 1_500_000, "{slept:?}");
    assert_eq!((slept[at + 1].name.as_str(), slept[at + 1].args["woken_by"].as_str()), ("ready", "a timer"));
    assert_eq!(slept.last().unwrap().args["then"], "returned");
    assert!(slept.iter().any(|slice| slice.args.get("spawned_at").is_some_and(|at| at.contains("traces.rs"))));
    let stuck = trace.of(ended);
    assert!(stuck.iter().any(|slice| slice.args.get("woken_by").is_some_and(|by| *by == format!("#{root}"))));
    assert_eq!(stuck.last().unwrap().args["then"], "ended cancelled");
    assert!(trace.marks.contains(&((FIBERS, ended), format!("cancelled by #{root}"))), "{:?}", trace.marks);
    assert!(trace.marks.contains(&((WORKERS, 1), format!("a timer wakes #{sleeper}"))), "{:?}", trace.marks);
    // Each turn is on both tracks.
    let on_worker = trace.slices[&(WORKERS, 1)].iter().filter(|slice| slice.name.ends_with(" reader")).count();
    assert_eq!(on_worker, trace.of(reader).iter().filter(|slice| slice.name == "running").count());
}

#[test]
fn two_workers_and_a_thread_are_in_one_file() {
    let _watchdog = watchdog(60);
    let file = Scratch::new("several");
    let rt = fibra::Runtime::builder().workers(2).max_workers(2).build().unwrap();
    let recording = fibra::trace::record(&file.0).unwrap();
    let (tx, rx) = fibra::channel::rendezvous::<u32>();
    let waiting = rt.run(move || {
        let receiver = fibra::Builder::new().name("far").spread().spawn(move || rx.recv().unwrap()).unwrap();
        let id = receiver.id();
        while !fibra::inspect::snapshot().fibers().iter().any(|fiber| fiber.id == id && fiber.wait.is_some()) {
            fibra::yield_now();
        }
        std::thread::spawn(move || tx.send(7).unwrap()).join().unwrap();
        assert_eq!(receiver.join().unwrap(), 7);
        id.as_u64()
    });
    recording.finish().unwrap();
    let trace = Trace::read(&file.0);
    let woken = trace.of(waiting).iter().find(|slice| slice.args.contains_key("woken_by")).expect("it was woken");
    assert_eq!(woken.args["woken_by"], "a thread that is no worker");
    assert!(trace.marks.iter().any(|(_, name)| *name == format!("a thread that is no worker wakes #{waiting}")));
}

#[test]
fn a_ring_that_went_round_gives_a_valid_file() {
    const TEST: &str = "a_ring_that_went_round_gives_a_valid_file";
    if !is_child(TEST) {
        // The recorder is the process's: other tests would be in the file.
        let ended = rerun_self(TEST, &[]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let _watchdog = watchdog(120);
    let file = Scratch::new("round");
    let rt = fibra::Runtime::builder().workers(1).max_workers(1).build().unwrap();
    let recording = fibra::trace::record(&file.0).unwrap();
    rt.run(|| {
        let (tx, rx) = fibra::channel::rendezvous::<u32>();
        let reader = spawn("reader", move || rx.iter().count());
        (0..40_000).for_each(|number| tx.send(number).unwrap());
        drop(tx);
        assert_eq!(reader.join().unwrap(), 40_000);
    });
    recording.finish().unwrap();
    let trace = Trace::read(&file.0);
    assert!(trace.overwritten > 10_000, "{}", trace.overwritten);
    assert!(trace.arrows.len() > 1_000, "{}", trace.arrows.len());
    trace.fiber("reader");
}

/// Copies are taken while workers write: every one of them is in order.
#[test]
fn recordings_end_while_others_run_stress() {
    let _watchdog = watchdog(120);
    let rt = fibra::Runtime::builder().workers(2).max_workers(2).build().unwrap();
    let stop = fibra::CancelToken::new();
    let busy: Vec<_> = (0..4)
        .map(|_| {
            let (tx, rx) = fibra::channel::bounded::<u32>(1);
            let stopped = stop.clone();
            rt.spawn(move || while tx.send(1).is_ok() && !stopped.is_cancelled() {});
            rt.spawn(move || for _ in rx {})
        })
        .collect();
    for round in 0..10 {
        let file = Scratch::new(&format!("busy{round}"));
        let recording = fibra::trace::record(&file.0).unwrap();
        std::thread::sleep(Duration::from_millis(3));
        recording.finish().unwrap();
        Trace::read(&file.0);
    }
    stop.cancel_with("enough");
    for fiber in busy {
        fiber.join().unwrap();
    }
}

#[test]
fn the_whole_of_a_program_is_written_at_its_end() {
    const TEST: &str = "the_whole_of_a_program_is_written_at_its_end";
    if !is_child(TEST) {
        let file = Scratch::new("env");
        let ended = rerun_self(TEST, &[("FIBRA_TRACE", file.0.to_str().unwrap())]);
        assert!(ended.status.success(), "{ended:?}");
        let trace = Trace::read(&file.0);
        let child = trace.fiber("child");
        assert_eq!(trace.of(child).last().unwrap().args["then"], "returned");
        let ended = rerun_self(TEST, &[("FIBRA_TRACE", "last:")]);
        assert!(ended.stderr.contains("FIBRA_TRACE=last:: expected a file name"), "{ended:?}");
        let ended = rerun_self(TEST, &[("FIBRA_TRACE", env!("CARGO_TARGET_TMPDIR"))]);
        assert!(ended.stderr.contains("could not be written"), "{ended:?}");
        return;
    }
    let _watchdog = watchdog(60);
    fibra::run(|| spawn("child", fibra::yield_now).join().unwrap());
}

#[test]
fn the_last_seconds_are_written_when_the_root_panics() {
    const TEST: &str = "the_last_seconds_are_written_when_the_root_panics";
    if !is_child(TEST) {
        let file = Scratch::new("panic");
        let ended = rerun_self(TEST, &[("FIBRA_TRACE", &format!("last:{}", file.0.display()))]);
        assert!(!ended.status.success(), "{ended:?}");
        assert!(ended.stderr.contains("the trace up to this panic is in"), "{ended:?}");
        let trace = Trace::read(&file.0);
        trace.fiber("before the panic");
        return;
    }
    let _watchdog = watchdog(60);
    fibra::run(|| {
        spawn("before the panic", fibra::yield_now).join().unwrap();
        panic!("on purpose");
    });
}

#[test]
fn the_last_seconds_are_written_at_the_signal_and_when_asked() {
    const TEST: &str = "the_last_seconds_are_written_at_the_signal_and_when_asked";
    if !is_child(TEST) {
        let ended = rerun_self(TEST, &[("FIBRA_DUMP_SIGNAL", "QUIT")]);
        assert!(ended.status.success(), "{ended:?}");
        assert!(ended.stderr.contains("the trace up to this moment is in"), "{ended:?}");
        return;
    }
    let _watchdog = watchdog(60);
    let (at_signal, asked) = (Scratch::new("signal"), Scratch::new("asked"));
    assert_eq!(fibra::trace::dump_last(&asked.0).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let rt = fibra::Runtime::builder().workers(1).max_workers(1).trace_last(&at_signal.0).build().unwrap();
    rt.run(|| {
        spawn("early", fibra::yield_now).join().unwrap();
        let heard = fibra::signal::listen(fibra::signal::Signal::QUIT).unwrap();
        // SAFETY: a signal to this very process, which listens to it.
        assert_eq!(unsafe { libc::raise(libc::SIGQUIT) }, 0);
        heard.recv().unwrap();
    });
    Trace::read(&at_signal.0).fiber("early");
    rt.run(|| spawn("late", fibra::yield_now).join().unwrap());
    fibra::trace::dump_last(&asked.0).unwrap();
    Trace::read(&asked.0).fiber("late");
}

#[test]
fn a_file_that_cannot_be_made_is_an_error_that_names_it() {
    let error = fibra::trace::record("/nowhere/at/all.json").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert!(error.to_string().contains("/nowhere/at/all.json"), "{error}");
}

// The child of a fork has none of the threads that are recorded: the recording, and its file, stay the parent's.
#[test]
#[cfg_attr(fibra_tsan, ignore = "the sanitizer does not allow threads to be started after a fork")]
fn a_recording_is_the_parents_alone() {
    in_child("a_recording_is_the_parents_alone", || {
        let (file, of_child) = (Scratch::new("parent"), Scratch::new("child"));
        fibra::run(|| spawn("before", || ()).join().unwrap());
        let recording = fibra::trace::record(&file.0).unwrap();
        fibra::run(|| spawn("in the parent", || ()).join().unwrap());
        // SAFETY: the child does what is under test, which has to work there, and leaves without unwinding.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: it ends the child if that hangs.
            unsafe { libc::alarm(20) };
            let is_silent = recording.finish().is_ok() && fs::metadata(&file.0).is_ok_and(|file| file.len() == 0);
            let anew = fibra::trace::record(&of_child.0).unwrap();
            fibra::run(|| spawn("in the child", || ()).join().unwrap());
            anew.finish().unwrap();
            // SAFETY: ends the process.
            unsafe { libc::_exit(if is_silent { 7 } else { 8 }) };
        }
        let mut status = 0;
        // SAFETY: our child, and a local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "the child ended with {status:#x}");
        recording.finish().unwrap();
        Trace::read(&file.0).fiber("in the parent");
        let anew = Trace::read(&of_child.0);
        anew.fiber("in the child");
        let is_old = |name: &String| name.contains("in the parent");
        assert!(!anew.names.values().any(is_old), "the parent's tapes are not the child's: {:?}", anew.names);
    });
}

// A reader of the file finds it whole, whatever number of runtimes end at the same time.
#[test]
fn runtimes_that_end_at_once_leave_one_whole_file() {
    const TEST: &str = "runtimes_that_end_at_once_leave_one_whole_file";
    if !is_child(TEST) {
        let file = Scratch::new("at-once");
        let path = file.0.to_str().unwrap();
        let ended = rerun_self(TEST, &[("FIBRA_TRACE", path), ("FIBRA_TEST_FILE", path)]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let _watchdog = watchdog(60);
    let path = PathBuf::from(std::env::var_os("FIBRA_TEST_FILE").unwrap());
    let run = || {
        for _ in 0..10 {
            let rt = fibra::Runtime::builder().workers(1).max_workers(1).build().unwrap();
            rt.run(|| (0..200).for_each(|_| spawn("child", fibra::yield_now).join().unwrap()));
        }
    };
    std::thread::scope(|s| {
        let running = [s.spawn(run), s.spawn(run)];
        while !running.iter().all(|thread| thread.is_finished()) {
            if let Ok(text) = fs::read_to_string(&path) {
                assert!(parse(&text).is_ok(), "a file of {} bytes that is not whole", text.len());
            }
        }
    });
    Trace::read(&path).fiber("child");
    let beside = fs::read_dir(path.parent().unwrap()).unwrap().filter_map(Result::ok);
    let name = path.file_name().unwrap().to_str().unwrap();
    let left = beside.filter(|file| file.file_name().to_string_lossy().starts_with(name)).count();
    assert_eq!(left, 1, "nothing is left beside it");
}
