//! Models of a source (`reactor::readiness`): a socket and its kernel in small, drivers whose completions a thread of the model delivers,
//! and threads that read as `wait::io` does. A lost report is a deadlock, which the checker reports.

use crate::prim::model::{check, thread};
use crate::prim::sync::{Arc, Condvar, Mutex};
use crate::reactor::readiness::*;
use crate::waiter::record::ThreadRecord;
use crate::waiter::record::model::{WaitReason, cancel, wait_with};

/// The drivers of a model.
const DRIVERS: usize = 2;
const KEY: Key = Key { index: 0, generation: 0 };

/// One socket, and where it is registered.
#[derive(Default)]
struct Kernel {
    state: Mutex<KernelState>,
    bell: Condvar,
}

#[derive(Default)]
struct KernelState {
    /// Bytes that are there to be read.
    bytes: u32,
    registered: [bool; DRIVERS],
    /// An edge is in the driver's queue.
    edges: [bool; DRIVERS],
    /// The model has ended: the threads that serve the drivers return.
    over: bool,
}

impl Kernel {
    fn write(&self) {
        let mut state = self.state.lock();
        state.bytes += 1;
        for driver in 0..DRIVERS {
            state.edges[driver] |= state.registered[driver];
        }
        self.bell.notify_all();
    }

    /// Takes everything there is; 0: would block.
    fn read(&self) -> u32 {
        std::mem::take(&mut self.state.lock().bytes)
    }

    fn end(&self) {
        self.state.lock().over = true;
        self.bell.notify_all();
    }

    /// `epoll_wait`: true if something is to be reported, false if the model is over. An edge whose cause is gone is not reported.
    fn wait(&self, driver: usize) -> bool {
        let mut state = self.state.lock();
        loop {
            if std::mem::take(&mut state.edges[driver]) && state.bytes > 0 {
                return true;
            }
            if state.over {
                return false;
            }
            state = self.bell.wait(state);
        }
    }
}

/// A driver of this kernel.
#[derive(Clone)]
struct Fake(Arc<Kernel>, usize);

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.1.fmt(f)
    }
}

impl RegisteringDriver for Fake {
    type Weak = Fake;
    fn weak(&self) -> Fake {
        self.clone()
    }
    fn upgrade(weak: &Fake) -> Option<Self> {
        Some(weak.clone())
    }
    fn id(weak: &Fake) -> *const () {
        weak.own_id()
    }
    fn own_id(&self) -> *const () {
        std::ptr::without_provenance(self.1 + 1)
    }
    fn watch(&self, _: RawFd, _: Key, from: Interest, to: Interest) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.registered[self.1] = to != Interest::NONE;
        state.edges[self.1] = from != to && to != Interest::NONE && state.bytes > 0;
        self.0.bell.notify_all();
        Ok(())
    }
}

/// What a model shares.
struct Model {
    kernel: Arc<Kernel>,
    source: Source<Fake>,
}

impl Model {
    fn new() -> Arc<Self> {
        let source = Source::new(0);
        source.begin(3);
        Arc::new(Self { kernel: Arc::default(), source })
    }

    fn driver(&self, number: usize) -> Fake {
        Fake(self.kernel.clone(), number)
    }

    fn report(&self, key: Key) {
        let mut owed = Vec::new();
        let completion = Completion { key, ready: Interest::READ, ends: false };
        self.source.report(completion, &mut owed, |_| unreachable!("no fibers in a model"));
        assert!(owed.is_empty(), "threads have no wakers");
    }

    /// One wait with that driver.
    fn wait(&self, record: &'static ThreadRecord, number: usize, seen: Seen) -> Outcome {
        let used = std::cell::Cell::new(std::ptr::null());
        let publish = |node: &Node| {
            used.set(std::ptr::from_ref(node));
            self.source.link_with(&self.driver(number), Direction::Read, seen, node).unwrap() != Linkage::Stale
        };
        let unpublish = |node: &Node| self.source.unlink(Direction::Read, node);
        let ended = wait_with(record, publish, unpublish, WaitReason::NetRead, None);
        // The reader returns and its node ends here: no list may still hold the node.
        assert!(
            !self.source.state.with(|state| state.side(Direction::Read).has_node(used.get())),
            "a node is left behind"
        );
        ended
    }

    /// As `wait::io::Io::operate` does: reads until so many bytes have come.
    fn read(&self, number: usize, mut wanted: u32) {
        let record = ThreadRecord::leaked();
        while wanted > 0 {
            let seen = self.source.reports(Direction::Read);
            match self.kernel.read() {
                0 => assert_ne!(self.wait(record, number, seen), Outcome::Cancelled),
                len => wanted -= len,
            }
        }
    }
}

impl Side<Fake> {
    fn has_node(&self, node: *const Node) -> bool {
        // SAFETY: the caller has the side by reference, hence the lock.
        let mut at = unsafe { self.waiting.front() };
        while let Some(now) = at {
            if std::ptr::eq(now, node) {
                return true;
            }
            // SAFETY: as above.
            at = unsafe { self.waiting.after(now) };
        }
        false
    }
}

/// What the loop of a driver does, on a thread of its own.
fn serve(model: &Arc<Model>, number: usize) -> thread::JoinHandle<()> {
    let model = model.clone();
    thread::spawn(move || {
        while model.kernel.wait(number) {
            model.report(KEY);
        }
    })
}

fn spawn_writer(model: &Arc<Model>) -> thread::JoinHandle<()> {
    let model = model.clone();
    thread::spawn(move || model.kernel.write())
}

// Another thread delivers completions, at any moment between a reader's try and its wait, also before and after the reader registered.
#[test]
fn model_no_report_is_lost() {
    check(3, || {
        let model = Model::new();
        let (driver, writer) = (serve(&model, 0), spawn_writer(&model));
        // As it is after an earlier wait.
        model.source.register_with(&model.driver(0), Direction::Read).unwrap();
        model.read(0, 1);
        writer.join().unwrap();
        model.kernel.end();
        driver.join().unwrap();
    });
}

// A reader waits with another driver and gives up, and no thread delivers that driver's completions. A reader that waits with its own
// driver is served all the same.
#[test]
fn model_no_waiter_depends_on_a_driver_of_others() {
    check(2, || {
        let model = Model::new();
        let driver = serve(&model, 0);
        let other = {
            let model = model.clone();
            thread::spawn(move || {
                model.source.register_with(&model.driver(1), Direction::Read).unwrap();
                model.kernel.write();
            })
        };
        model.read(0, 1);
        other.join().unwrap();
        model.kernel.end();
        driver.join().unwrap();
    });
}

// Every read takes all bytes and notes that the queue is empty: the next read waits without a try.
#[test]
fn model_a_short_read_is_the_last() {
    check(3, || {
        let model = Model::new();
        let (driver, writer) = (serve(&model, 0), spawn_writer(&model));
        model.source.register_with(&model.driver(0), Direction::Read).unwrap();
        model.kernel.write();
        let (record, mut wanted) = (ThreadRecord::leaked(), 2);
        while wanted > 0 {
            let seen = match model.source.is_drained() {
                Some(seen) => seen,
                None => {
                    let seen = model.source.reports(Direction::Read);
                    let len = model.kernel.read();
                    wanted -= len;
                    if len > 0 {
                        // Between the two steps something may be reported. (Without the yield loom does not try that schedule.)
                        thread::yield_now();
                        model.source.note_drained(seen);
                        continue;
                    }
                    seen
                }
            };
            // (After the wait the reader reads whether the count says so or not, as `wait_and_retry` does.)
            assert_ne!(model.wait(record, 0, seen), Outcome::Cancelled);
            let seen = model.source.reports(Direction::Read);
            let len = model.kernel.read();
            wanted -= len;
            if len > 0 {
                model.source.note_drained(seen);
            }
        }
        writer.join().unwrap();
        model.kernel.end();
        driver.join().unwrap();
    });
}

// A wait that is cancelled while a report completes it ends once, and after its end no list holds its node.
#[test]
fn model_cancellation_waits_for_the_report() {
    check(3, || {
        let model = Model::new();
        let record = ThreadRecord::leaked();
        let canceller = thread::spawn(move || cancel(record.waiter_ref()));
        let reporter = {
            let model = model.clone();
            thread::spawn(move || model.report(KEY))
        };
        let seen = model.source.reports(Direction::Read);
        let _either = model.wait(record, 0, seen);
        canceller.join().unwrap();
        reporter.join().unwrap();
    });
}

// The socket is closed while one of its completions is under way: the completion does not reach the next socket of the source.
#[test]
fn model_a_late_report_reaches_no_waiter() {
    check(3, || {
        let model = Model::new();
        let reporter = {
            let model = model.clone();
            thread::spawn(move || model.report(KEY))
        };
        assert!(model.source.end(|_| unreachable!("no fibers in a model")).is_empty());
        model.source.begin(4);
        let seen = model.source.reports(Direction::Read);
        reporter.join().unwrap();
        assert_eq!(model.source.reports(Direction::Read), seen, "a report of the past");
    });
}

// The driver with which a reader waits ends: the reader is woken, and waits with another driver.
#[test]
fn model_a_driver_ends() {
    check(2, || {
        let model = Model::new();
        let driver = serve(&model, 1);
        // Polled with the first driver before its end: its worker polled it.
        model.source.register_with(&model.driver(0), Direction::Read).unwrap();
        let ending = {
            let model = model.clone();
            thread::spawn(move || {
                let mut owed = Vec::new();
                model.source.abandon(&model.driver(0), &mut owed, |_| unreachable!("no fibers in a model"));
                model.kernel.write();
            })
        };
        let record = ThreadRecord::leaked();
        let mut number = 0;
        loop {
            let seen = model.source.reports(Direction::Read);
            if model.kernel.read() > 0 {
                break;
            }
            let is_home =
                model.source.state.with(|state| state.side(Direction::Read).is_home(model.driver(0).own_id()));
            number = if is_home { number } else { 1 };
            assert_ne!(model.wait(record, number, seen), Outcome::Cancelled);
            number = 1;
        }
        ending.join().unwrap();
        model.kernel.end();
        driver.join().unwrap();
    });
}
