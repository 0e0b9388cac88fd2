//! A snapshot says of every fiber what it does, waits for, where and since when, and lists what is waited for.

use std::sync::Arc;
use std::time::Duration;

use fibra::inspect::{self, FiberInfo, FiberState, LockHolder, LockKind, Object, Snapshot};
use fibra::sync::{Event, Mutex, RwLock, Semaphore};
use fibra::{Builder, WaitReason};

use crate::support::watchdog;

fn named<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a FiberInfo> {
    snapshot.fibers().iter().find(|fiber| fiber.name.as_deref() == Some(name))
}

fn waits(snapshot: &Snapshot, name: &str, reason: WaitReason) -> bool {
    named(snapshot, name).and_then(|fiber| fiber.wait.as_ref()).is_some_and(|wait| wait.reason == reason)
}

/// The snapshot of this runtime, when all of these fibers wait so.
fn when(all: &[(&str, WaitReason)]) -> Snapshot {
    let mut snapshot = fibra::Handle::current().snapshot();
    while !all.iter().all(|(name, reason)| waits(&snapshot, name, *reason)) {
        fibra::yield_now();
        snapshot = fibra::Handle::current().snapshot();
    }
    // Its parts are read one after another: once more, now that nothing moves.
    fibra::Handle::current().snapshot()
}

fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> fibra::JoinHandle<()> {
    Builder::new().name(name).spawn(f).unwrap()
}

// Law 8: reason, object, line and time of each parked fiber.
#[test]
fn a_fiber_says_what_it_waits_for() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let (tx, rx) = fibra::channel::builder::<u32>().bounded(3).name("jobs").build();
        tx.send(7).unwrap();
        let (full, _kept) = fibra::channel::bounded::<u32>(1);
        full.send(1).unwrap();
        let mutex = Arc::new(Mutex::new(()));
        let event = Arc::new(Event::new());
        let drained = rx.clone();
        let reader = spawn("reader", move || {
            fibra::current().unwrap().set_status("reading");
            drained.recv().unwrap();
            drained.recv().unwrap();
        });
        let line = line!() + 1;
        let writer = spawn("writer", move || _ = full.send(2));
        let (held, set) = (mutex.clone(), event.clone());
        let holder = spawn("holder", move || {
            let _guard = held.lock();
            set.wait();
        });
        when(&[("holder", WaitReason::EventWait)]);
        let wanted = mutex.clone();
        let second = spawn("second", move || drop(wanted.lock()));
        let (id, of_it) = (holder.id(), event.clone());
        let joiner = spawn("joiner", move || {
            holder.join().unwrap();
            of_it.wait();
        });
        let snapshot = when(&[
            ("reader", WaitReason::ChannelRecv),
            ("writer", WaitReason::ChannelSend),
            ("second", WaitReason::MutexLock),
            ("joiner", WaitReason::Join),
        ]);
        let jobs = snapshot.channels().iter().find(|channel| channel.name.as_deref() == Some("jobs")).unwrap();
        assert_eq!((jobs.len, jobs.capacity, jobs.senders, jobs.receivers), (0, Some(3), 1, 2));
        assert_eq!((jobs.waiting_senders, jobs.waiting_receivers), (0, 1));
        assert!(jobs.made_at.file().ends_with("snapshots.rs"), "{}", jobs.made_at);
        let reader_info = named(&snapshot, "reader").unwrap();
        assert_eq!((reader_info.state, &*reader_info.status), (FiberState::Parked, "reading"));
        let wait = reader_info.wait.as_ref().unwrap();
        assert_eq!(wait.object, Object::Channel(jobs.id));
        assert!(wait.at.file().ends_with("snapshots.rs") && !wait.has_deadline);
        assert_eq!(named(&snapshot, "writer").unwrap().wait.as_ref().unwrap().at.line(), line);
        assert_eq!(named(&snapshot, "joiner").unwrap().wait.as_ref().unwrap().object, Object::Fiber(id));
        let lock = &snapshot.locks()[0];
        assert_eq!((lock.kind, lock.holder), (LockKind::Mutex, LockHolder::Fiber(id)));
        assert_eq!(lock.waiting, [second.id()]);
        let me = snapshot.fiber(fibra::current().unwrap().id()).unwrap();
        assert!(me.is_root && me.state == FiberState::Running && me.wait.is_none());
        assert!(snapshot.workers().iter().any(|worker| worker.running == Some(me.id)));
        let text = snapshot.to_string();
        for part in ["\"reader\": receiving from a channel, channel \"jobs\"", "[reading]", "held by fiber"] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        event.set();
        tx.send(8).unwrap();
        _kept.recv().unwrap();
        for handle in [reader, writer, second, joiner] {
            handle.join().unwrap();
        }
        drop(rx);
    });
}

#[test]
fn selects_semaphores_and_read_write_locks_are_read_where_they_lie() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let (a, from_a) = fibra::channel::builder::<u8>().bounded(0).name("a").build();
        let (to_b, b) = fibra::channel::builder::<u8>().bounded(0).name("b").build();
        let select = spawn("select", move || {
            fibra::select! {
                recv(from_a) -> _ => {},
                send(to_b, 1) -> _ => {},
            }
        });
        let event = Arc::new(Event::new());
        let of_it = event.clone();
        let mixed = spawn("mixed", move || {
            let (_tx, rx) = fibra::channel::bounded::<u8>(1);
            fibra::select! {
                recv(rx) -> _ => {},
                on(of_it.waiting()) -> _ => {},
            }
        });
        let permits = Arc::new(Semaphore::new(3));
        let mine = permits.acquire(2).unwrap();
        let wanted = permits.clone();
        let acquire = spawn("acquire", move || drop(wanted.acquire(2).unwrap()));
        let lock = Arc::new(RwLock::new(0));
        let (one, two) = (lock.read(), lock.read());
        let wanted = lock.clone();
        let write = spawn("write", move || *wanted.write() += 1);
        let snapshot = when(&[
            ("select", WaitReason::Select),
            ("mixed", WaitReason::Select),
            ("acquire", WaitReason::SemaphoreAcquire),
            ("write", WaitReason::RwLockWrite),
        ]);
        let id = |name| snapshot.channels().iter().find(|channel| channel.name.as_deref() == Some(name)).unwrap().id;
        match &named(&snapshot, "select").unwrap().wait.as_ref().unwrap().object {
            Object::Select(arms, others) => {
                let arms: Vec<_> = arms.iter().map(|arm| (arm.channel, arm.sends)).collect();
                assert_eq!((&arms[..], *others), (&[(id("a"), false), (id("b"), true)][..], false));
            }
            other => panic!("{other:?}"),
        }
        let object = &named(&snapshot, "mixed").unwrap().wait.as_ref().unwrap().object;
        assert!(matches!(object, Object::Select(arms, true) if arms.len() == 1), "{object:?}");
        let semaphore = &snapshot.semaphores()[0];
        assert_eq!((semaphore.available, semaphore.total), (Some(1), Some(3)));
        assert_eq!(semaphore.waiting, [acquire.id()]);
        let seen = &snapshot.locks()[0];
        assert_eq!((seen.kind, seen.holder), (LockKind::RwLock, LockHolder::Readers(2)));
        drop((one, two, mine));
        event.set();
        a.send(1).unwrap();
        for handle in [select, mixed, acquire, write] {
            handle.join().unwrap();
        }
        drop(b);
    });
}

#[test]
fn scopes_are_a_tree_and_time_is_told() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let event = Event::new();
        fibra::Scope::builder()
            .name("outer")
            .timeout(Duration::from_secs(3600))
            .run(|s| {
                s.spawn(|| {
                    fibra::Scope::builder().name("inner").run(|s| _ = s.spawn(|| event.wait())).unwrap();
                });
                Builder::new()
                    .name("sleeper")
                    .spawn_scoped(s, || {
                        let _ = event.wait_timeout(Duration::from_secs(3600));
                    })
                    .unwrap();
                let find = |snapshot: &Snapshot, name: &str| {
                    snapshot.scopes().iter().find(|scope| scope.name.as_deref() == Some(name)).cloned()
                };
                let snapshot = loop {
                    let snapshot = fibra::Handle::current().snapshot();
                    let is_there = find(&snapshot, "inner").is_some_and(|inner| inner.is_ending && inner.children == 1);
                    if is_there && waits(&snapshot, "sleeper", WaitReason::EventWait) {
                        break snapshot;
                    }
                    fibra::yield_now();
                };
                let (outer, inner) = (find(&snapshot, "outer").unwrap(), find(&snapshot, "inner").unwrap());
                assert_eq!((inner.parent, outer.parent), (Some(outer.id), None));
                assert_eq!((outer.children, inner.children, outer.is_ending), (2, 1, false));
                assert!(outer.deadline_in.is_some_and(|left| left > Duration::from_secs(1800)));
                let child = snapshot.fibers().iter().find(|fiber| fiber.scope == Some(inner.id)).unwrap();
                let path: Vec<_> = snapshot.scope_path(child).iter().filter_map(|scope| scope.name.clone()).collect();
                assert_eq!(path, ["outer".into(), "inner".into()]);
                assert!(named(&snapshot, "sleeper").unwrap().wait.as_ref().unwrap().has_deadline);
                assert_eq!(snapshot.timers(), 1);
                assert!(snapshot.to_string().contains("in scope \"outer\" > scope \"inner\""), "{snapshot}");
                event.set();
            })
            .unwrap();
    });
}

#[test]
fn json_is_json() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let (tx, rx) = fibra::channel::builder::<u32>().name("a \"b\" \\ \n").build();
        let waiting = spawn("waits", move || _ = rx.recv());
        let snapshot = when(&[("waits", WaitReason::ChannelRecv)]);
        let json = snapshot.to_json();
        assert_eq!(depth_of(&json), Some(0), "{json}");
        assert!(
            json.contains(r#""name":"a \"b\" \\ \u000a""#) && json.contains("\"reason\":\"ChannelRecv\""),
            "{json}"
        );
        drop(tx);
        waiting.join().unwrap();
    });
}

/// How deep the brackets are at the end; `None` if they do not match.
fn depth_of(json: &str) -> Option<usize> {
    let mut open = Vec::new();
    let mut letters = json.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => loop {
                match letters.next()? {
                    '\\' => _ = letters.next()?,
                    '"' => break,
                    _ => {}
                }
            },
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' if open.pop() != Some(letter) => return None,
            _ => {}
        }
    }
    Some(open.len())
}

#[test]
#[cfg_attr(
    any(fibra_asan, fibra_tsan, fibra_context = "corosensei", fibra_context = "thread", not(feature = "backtrace")),
    ignore = "no backtraces"
)]
fn a_parked_fiber_shows_its_stack() {
    let _watchdog = watchdog(60);
    #[inline(never)]
    fn the_innermost(rx: &fibra::channel::Receiver<u32>) -> u32 {
        rx.recv().unwrap() + 1
    }
    #[inline(never)]
    fn the_outer_one(rx: &fibra::channel::Receiver<u32>) -> u32 {
        the_innermost(rx) + 1
    }
    fibra::run(|| {
        let (tx, rx) = fibra::channel::rendezvous();
        let waiting = Builder::new().name("deep").spawn(move || the_outer_one(&rx)).unwrap();
        when(&[("deep", WaitReason::ChannelRecv)]);
        let stack = inspect::stack_of(waiting.id()).unwrap();
        let (inner, outer) = (stack.find("the_innermost"), stack.find("the_outer_one"));
        assert!(inner.is_some() && outer > inner, "{stack}");
        assert!(inspect::stack_of(fibra::current().unwrap().id()).is_err(), "it runs");
        tx.send(1).unwrap();
        assert_eq!(waiting.join().unwrap(), 3);
    });
}

#[test]
fn other_threads_may_look_while_everything_moves() {
    let _watchdog = watchdog(120);
    let rt = fibra::Runtime::builder().workers(2).build().unwrap();
    let stop = Arc::new(Event::new());
    let handle = rt.handle();
    std::thread::scope(|threads| {
        let stop = &stop;
        threads.spawn(move || {
            for _ in 0..50 {
                let snapshot = handle.snapshot();
                let _ = (snapshot.to_string(), snapshot.to_json());
            }
            stop.set();
        });
        rt.run(|| {
            let mutex = Arc::new(Mutex::new(0_u64));
            while !stop.is_set() {
                fibra::scope(|s| {
                    let (tx, rx) = fibra::channel::bounded(1);
                    for n in 0..10_u64 {
                        let (tx, mutex) = (tx.clone(), mutex.clone());
                        Builder::new()
                            .name(format!("n {n}"))
                            .spawn_scoped(s, move || {
                                *mutex.lock() += n;
                                fibra::select! {
                                    send(tx, n) -> _ => {},
                                    after(Duration::from_secs(60)) => {},
                                }
                            })
                            .unwrap();
                    }
                    drop(tx);
                    assert_eq!(rx.iter().sum::<u64>(), 45);
                });
            }
        });
    });
}
