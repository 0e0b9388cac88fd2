//! Programs that end in a deadlock, or leave fibers behind that nothing could wake: each report is compared with a file in `expected/`.
//!
//! A program of its own, without the usual harness, whose threads could be the ones that wake a fiber. It starts itself once for each
//! of them, as a user's program that is the function of `#[fibra::main]`; each deadlock must end with exit code 102. Numbers of fibers and
//! channels, addresses and times are left out of the comparison; names, lines and everything else are in it.
//! `FIBRA_BLESS=1` writes the files anew.
//! Another waits for everything that is not a deadlock, and must end in silence. All of it once more without the system monitor.
#![cfg(not(any(loom, shuttle)))]

use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fibra::sync::{Barrier, Event, Mutex};
use fibra::{Builder, JoinHandle};

fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().name(name).spawn(f).unwrap()
}

// five philosophers, five forks, and each has taken the left one.
#[fibra::main(workers = 2)]
fn dining_philosophers() {
    let forks: Vec<_> = (0..5).map(|_| Arc::new(Mutex::new(()))).collect();
    let seated = Arc::new(Barrier::new(5));
    let names = ["Thales", "Plato", "Hypatia", "Spinoza", "Arendt"];
    let diners: Vec<_> = (0..5)
        .map(|n| {
            let (left, right, seated) = (forks[n].clone(), forks[(n + 1) % 5].clone(), seated.clone());
            spawn(names[n], move || {
                let _left = left.lock();
                seated.wait();
                let _right = right.lock();
            })
        })
        .collect();
    for diner in diners {
        diner.join().unwrap();
    }
}

// Each wants to send first and to receive then.
#[fibra::main(workers = 2)]
fn send_and_receive_crossed() {
    let (to_right, from_left) = fibra::channel::builder::<u32>().bounded(0).name("to the right").build();
    let (to_left, from_right) = fibra::channel::builder::<u32>().bounded(0).name("to the left").build();
    let left = spawn("left", move || {
        to_right.send(1).unwrap();
        from_right.recv().unwrap();
    });
    let right = spawn("right", move || {
        to_left.send(2).unwrap();
        from_left.recv().unwrap();
    });
    left.join().unwrap();
    right.join().unwrap();
}

// Each joins the other.
#[fibra::main(workers = 2)]
fn joined_in_a_circle() {
    let (to_first, first_gets) = fibra::channel::bounded::<JoinHandle<()>>(1);
    let (to_second, second_gets) = fibra::channel::bounded::<JoinHandle<()>>(1);
    let first = spawn("first", move || first_gets.recv().unwrap().join().unwrap());
    let second = spawn("second", move || second_gets.recv().unwrap().join().unwrap());
    to_first.send(second).unwrap();
    to_second.send(first).unwrap();
}

// A child of a scope joins the fiber that waits for its children.
#[fibra::main(workers = 2)]
fn a_scope_that_waits_for_itself() {
    let (to_child, child_gets) = fibra::channel::bounded::<JoinHandle<()>>(1);
    let owner = spawn("owner", move || {
        fibra::Scope::builder()
            .name("batch")
            .run(|s| {
                Builder::new().name("child").spawn_scoped(s, || child_gets.recv().unwrap().join().unwrap()).unwrap();
            })
            .unwrap();
    });
    to_child.send(owner).unwrap();
}

// The receiver ends when all senders are gone, and one is kept by the fiber that waits for the receiver to end.
#[fibra::main(workers = 2)]
fn the_last_sender_is_borrowed_by_the_scope() {
    let (tx, rx) = fibra::channel::builder::<u32>().bounded(4).name("numbers").build();
    fibra::scope(|s| {
        Builder::new().name("reader").spawn_scoped(s, || while rx.recv().is_ok() {}).unwrap();
        Builder::new().name("writer").spawn_scoped(s, || tx.send(7).unwrap()).unwrap();
    });
    drop(tx);
}

// One fiber, one worker: the thread that looks is started when the worker has nothing to wait for.
#[fibra::main(workers = 1, max_workers = 1)]
fn the_only_fiber_waits() {
    let (_kept, rx) = fibra::channel::builder::<u32>().bounded(1).name("mine").build();
    let _ = rx.recv();
}

// One thread in the whole process: it looks itself before it sleeps for ever.
#[fibra::main(current_thread)]
fn crossed_on_one_thread() {
    let (here, there) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    let met = Arc::new(Barrier::new(2));
    let [left, right] = [("left", &here, &there), ("right", &there, &here)].map(|(name, has, wants)| {
        let (has, wants, met) = (has.clone(), wants.clone(), met.clone());
        spawn(name, move || {
            let _has = has.lock();
            met.wait();
            drop(wants.lock());
        })
    });
    left.join().unwrap();
    right.join().unwrap();
}

// Looks are silent as long as the call runs; no fiber waits for its end, so no wake brings the look that finds the deadlock.
#[fibra::main(workers = 2)]
fn a_deadlock_beside_a_blocking_call() {
    drop(fibra::spawn_blocking(|| std::thread::sleep(Duration::from_millis(500))));
    let (_kept, rx) = fibra::channel::builder::<u32>().bounded(1).name("mine").build();
    let _ = rx.recv();
}

#[fibra::main(current_thread)]
fn no_deadlock_on_one_thread() {
    wait_for_the_world();
}

// A waker that a thread calls for the monitor, since the only worker is busy, will wake the root, after it has slept for long.
#[fibra::main(workers = 1, max_workers = 1)]
fn no_deadlock_while_a_waker_is_called() {
    use std::future::Future;
    use std::task::{Context, Wake, Waker};
    struct Slow(fibra::channel::Sender<()>);
    impl Wake for Slow {
        fn wake(self: Arc<Self>) {
            std::thread::sleep(Duration::from_secs(2));
            self.0.send(()).unwrap();
        }
    }
    let (tx, rx) = fibra::channel::bounded(1);
    let waker = Waker::from(Arc::new(Slow(tx)));
    // (The time may be over before it is asked for.)
    loop {
        let after = fibra::channel::after(Duration::from_millis(5));
        let mut waits = std::pin::pin!(after.recv_async());
        if waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            drop(waker);
            std::thread::sleep(Duration::from_millis(400));
            break rx.recv().unwrap();
        }
    }
}

/// Sends when it is called, after so long.
struct Sends(fibra::channel::Sender<()>, Duration);

impl std::task::Wake for Sends {
    fn wake(self: Arc<Self>) {
        std::thread::sleep(self.1);
        self.0.send(()).unwrap();
    }
}

/// A socket and the waker of a future for it, which takes so long and then sends.
fn socket_and_waker(takes: Duration) -> (fibra::net::UdpSocket, u16, std::task::Waker, fibra::channel::Receiver<()>) {
    let (tx, rx) = fibra::channel::bounded(1);
    let waker = std::task::Waker::from(Arc::new(Sends(tx, takes)));
    let socket = fibra::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port, waker, rx)
}

fn poll_readable(socket: &fibra::net::UdpSocket, waker: &std::task::Waker) {
    use std::future::Future;
    // Forgotten, as a list of them might keep it: it stays registered until the socket is reported.
    let mut reads = Box::pin(socket.readable_async());
    assert!(reads.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    std::mem::forget(reads);
}

// The driver of a worker will call a waker when another process has written; no fiber waits for the socket.
#[fibra::main(workers = 2)]
fn no_deadlock_while_a_socket_has_a_waker() {
    let (socket, port, waker, woken) = socket_and_waker(Duration::ZERO);
    poll_readable(&socket, &waker);
    drop(waker);
    let write = format!("sleep 0.7; echo x > /dev/udp/127.0.0.1/{port}");
    let mut writer = Command::new("bash").args(["-c", &write]).spawn().unwrap();
    woken.recv().unwrap();
    writer.wait().unwrap();
}

// It was polled on a thread that is gone: fibra's own thread calls the waker, which takes its time.
#[fibra::main(workers = 2)]
fn no_deadlock_while_a_thread_for_sockets_calls_a_waker() {
    let (socket, port, waker, woken) = socket_and_waker(Duration::from_secs(2));
    std::thread::scope(|s| s.spawn(|| poll_readable(&socket, &waker)).join().unwrap());
    drop(waker);
    let writer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    writer.send_to(b"x", ("127.0.0.1", port)).unwrap();
    woken.recv().unwrap();
}

/// Until this fiber waits.
fn until_it_waits(name: &str) {
    let waits = |fiber: &fibra::inspect::FiberInfo| fiber.name.as_deref() == Some(name) && fiber.wait.is_some();
    while !fibra::inspect::snapshot().fibers().iter().any(waits) {
        fibra::yield_now();
    }
}

#[track_caller]
fn daemon(name: &str, f: impl FnOnce() + Send + 'static) {
    Builder::new().name(name).daemon(true).spawn(f).unwrap();
    until_it_waits(name);
}

// A daemon has a sender of the channel that it reads to its end.
#[fibra::main(workers = 2)]
fn a_daemon_keeps_its_own_sender() {
    let (tx, rx) = fibra::channel::builder::<u32>().bounded(4).name("jobs").build();
    let again = tx.clone();
    tx.send(1).unwrap();
    daemon("consumer", move || {
        while let Ok(job) = rx.recv() {
            (job > 1).then(|| again.send(job - 1));
        }
    });
}

// Two daemons hold what the other one wants.
#[fibra::main(workers = 2)]
fn daemons_lock_each_other_out() {
    let (here, there) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    let (go, gone) = fibra::channel::bounded::<()>(1);
    let (first, second) = (here.clone(), there.clone());
    daemon("left", move || {
        let _held = first.lock();
        gone.recv().unwrap();
        drop(second.lock());
    });
    daemon("right", move || {
        let _held = there.lock();
        go.send(()).unwrap();
        drop(here.lock());
    });
    until_it_waits("left");
}

// A fiber of a runtime has what it waits for, when the runtime is dropped.
fn a_fiber_of_a_runtime_keeps_its_own_receiver() {
    let runtime = fibra::Runtime::builder().workers(2).name("service").build().unwrap();
    let (tx, rx) = fibra::channel::builder::<u32>().bounded(1).name("answers").build();
    let answers = move || {
        while tx.send(rx.len() as u32).is_ok() {}
    };
    drop(runtime.handle().spawn_with(Builder::new().name("answering"), answers).unwrap());
    runtime.run(|| until_it_waits("answering"));
}

// None of these is a leak: what each waits for could come, from a place that is not seen.
fn no_leak_at_all() {
    static KEPT: std::sync::OnceLock<fibra::channel::Sender<u32>> = std::sync::OnceLock::new();
    fibra::run(|| {
        let (tx, rx) = fibra::channel::bounded(1);
        KEPT.set(tx).unwrap();
        daemon("waits for a static", move || while rx.recv().is_ok() {});
    });
    // The sleeper has the sender where no look at its stack finds it.
    fibra::run(|| {
        let (tx, rx) = fibra::channel::bounded::<u32>(1);
        let kept = Box::new(tx);
        daemon("sleeps", move || {
            fibra::sleep(Duration::from_secs(3600));
            kept.send(1).unwrap();
        });
        daemon("waits for the sleeper", move || while rx.recv().is_ok() {});
    });
    // The other one waits for an event that is outside, and would send then.
    let outside = Arc::new(Event::new());
    let event = outside.clone();
    fibra::run(move || {
        let (tx, rx) = fibra::channel::bounded::<u32>(1);
        daemon("waits for the event", move || {
            event.wait();
            tx.send(1).unwrap();
        });
        daemon("waits for its sender", move || while rx.recv().is_ok() {});
    });
    drop(outside);
    // The caller has the sender, and the result of the run is one.
    let (tx, rx) = fibra::channel::bounded::<u32>(1);
    let other = fibra::run(move || {
        let (other, its) = fibra::channel::bounded::<u32>(1);
        daemon("waits for the caller", move || while rx.recv().is_ok() {});
        daemon("waits for the result", move || while its.recv().is_ok() {});
        other
    });
    drop((tx, other));
    // A runtime that others use: its fibers wait for more.
    let runtime = fibra::Runtime::builder().workers(2).build().unwrap();
    let (tx, rx) = fibra::channel::bounded::<u32>(1);
    drop(runtime.handle().spawn_with(Builder::new().name("service"), move || rx.iter().count()).unwrap());
    runtime.run(|| until_it_waits("service"));
    drop(runtime);
    drop(tx);
}

// everything here waits for something that is not a fiber of the runtime, longer than it takes to look: none of it is a deadlock.
#[fibra::main(workers = 2)]
fn no_deadlock_at_all() {
    wait_for_the_world();
}

fn wait_for_the_world() {
    const WHILE: Duration = Duration::from_millis(700);
    // Time.
    fibra::sleep(WHILE);
    // A thread.
    let (tx, rx) = fibra::channel::rendezvous();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(WHILE);
        tx.send(()).unwrap();
    });
    rx.recv().unwrap();
    thread.join().unwrap();
    // A blocking call that wakes another fiber.
    let event = Arc::new(Event::new());
    let set = event.clone();
    let job = fibra::spawn_blocking(move || {
        std::thread::sleep(WHILE);
        set.set();
    });
    event.wait();
    job.join().unwrap();
    // A task that waits for time, while a fiber waits for the task.
    let task = fibra::spawn_future(async {
        fibra::channel::after(WHILE).recv_async().await.unwrap();
    });
    task.join().unwrap();
    // A socket, beside a channel, in one select.
    let listener = fibra::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(WHILE);
        std::net::TcpStream::connect(address).unwrap()
    });
    let (_kept, never) = fibra::channel::rendezvous::<()>();
    fibra::select! {
        recv(never) -> _ => unreachable!(),
        on(listener.accepting()) -> connection => drop(connection.unwrap()),
    }
    thread.join().unwrap();
    // A scope with a deadline.
    let ended = fibra::timeout(WHILE, || never.recv());
    assert!(ended.is_err());
    // A process.
    fibra::process::Command::new("sleep").arg("0.7").status().unwrap();
    // A signal, sent by another process.
    let heard = fibra::signal::listen(fibra::signal::Signal::USR1).unwrap();
    let command = format!("sleep 0.7; kill -USR1 {}", std::process::id());
    let mut sender = Command::new("sh").args(["-c", &command]).spawn().unwrap();
    heard.recv().unwrap();
    sender.wait().unwrap();
}

/// A fiber that moves, where there are any.
fn spawn_moving(name: &str, f: impl FnOnce() + Clone + Send + 'static) -> JoinHandle<()> {
    // SAFETY: nothing here belongs to a thread of the system.
    let moving = unsafe { Builder::new().name(name).own_locals().moving() };
    moving.spawn(f.clone()).unwrap_or_else(|_| Builder::new().name(name).spawn(f).unwrap())
}

// Fibers that are on no worker while they wait, and threads that lend them thread-locals or wait to do so.
#[fibra::main(workers = 2)]
fn fibers_that_move_lock_each_other_out() {
    if let Ok(first) = Builder::new().own_locals().spawn(fibra::yield_now) {
        first.join().unwrap();
    }
    let (here, there) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    let met = Arc::new(Barrier::new(2));
    let [left, right] = [("left", &here, &there), ("right", &there, &here)].map(|(name, has, wants)| {
        let (has, wants, met) = (has.clone(), wants.clone(), met.clone());
        spawn_moving(name, move || {
            let _has = has.lock();
            met.wait();
            drop(wants.lock());
        })
    });
    left.join().unwrap();
    right.join().unwrap();
}

/// Names, in a child, the program to be run.
const CHILD: &str = "FIBRA_PLANTED";

/// Those that end well.
const NONE: [&str; 6] = [
    "no_deadlock_at_all",
    "no_deadlock_on_one_thread",
    "no_deadlock_while_a_waker_is_called",
    "no_leak_at_all",
    "no_deadlock_while_a_socket_has_a_waker",
    "no_deadlock_while_a_thread_for_sockets_calls_a_waker",
];

/// Those that end well, with a report.
const LEAKS: [&str; 3] =
    ["a_daemon_keeps_its_own_sender", "daemons_lock_each_other_out", "a_fiber_of_a_runtime_keeps_its_own_receiver"];

const PROGRAMS: [(&str, fn()); 18] = [
    ("dining_philosophers", dining_philosophers),
    ("send_and_receive_crossed", send_and_receive_crossed),
    ("joined_in_a_circle", joined_in_a_circle),
    ("a_scope_that_waits_for_itself", a_scope_that_waits_for_itself),
    ("the_last_sender_is_borrowed_by_the_scope", the_last_sender_is_borrowed_by_the_scope),
    ("the_only_fiber_waits", the_only_fiber_waits),
    ("crossed_on_one_thread", crossed_on_one_thread),
    ("a_deadlock_beside_a_blocking_call", a_deadlock_beside_a_blocking_call),
    ("fibers_that_move_lock_each_other_out", fibers_that_move_lock_each_other_out),
    (NONE[0], no_deadlock_at_all),
    (NONE[1], no_deadlock_on_one_thread),
    (NONE[2], no_deadlock_while_a_waker_is_called),
    (NONE[3], no_leak_at_all),
    (NONE[4], no_deadlock_while_a_socket_has_a_waker),
    (NONE[5], no_deadlock_while_a_thread_for_sockets_calls_a_waker),
    (LEAKS[0], a_daemon_keeps_its_own_sender),
    (LEAKS[1], daemons_lock_each_other_out),
    (LEAKS[2], a_fiber_of_a_runtime_keeps_its_own_receiver),
];

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CHILD) {
        let (_, program) = PROGRAMS.iter().find(|(known, _)| *known == name).expect("a program of this file");
        program();
        return ExitCode::SUCCESS;
    }
    // What a runner of tests asks for: which there are, and which of them are ignored.
    let has = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    if has("--list") {
        if !has("--ignored") {
            println!("planted: test");
        }
        return ExitCode::SUCCESS;
    }
    // There, what is on a stack is not known, or the stacks are threads.
    if cfg!(any(fibra_context = "corosensei", fibra_context = "thread", fibra_asan, fibra_tsan)) {
        println!("planted: skipped, stacks cannot be searched in this build");
        return ExitCode::SUCCESS;
    }
    let names: Vec<_> = PROGRAMS.iter().map(|(name, _)| *name).filter(|name| !NONE.contains(name)).collect();
    let code = |name: &str| if LEAKS.contains(&name) { 0 } else { 102 };
    // Where no thread looks, the last worker does. Side by side: they mostly wait.
    let problems: Vec<String> = std::thread::scope(|s| {
        let mut checks = Vec::new();
        for variables in [&[], ALONE] {
            checks.extend(names.iter().map(|name| s.spawn(move || check(name, code(name), variables))));
            checks.extend(NONE.iter().map(|name| s.spawn(move || check_none(name, variables))));
            checks.push(s.spawn(move || check_panic(variables)));
        }
        // Here workers come back for the look at the same moment, and some of them a little later than others.
        checks.extend((0..8).map(|_| s.spawn(move || check_panic(ALONE))));
        checks.push(s.spawn(check_no_leak));
        checks.push(s.spawn(check_trace));
        checks.push(s.spawn(check_trace_into_nothing));
        checks.into_iter().filter_map(|check| check.join().expect("a check returns what is wrong").err()).collect()
    });
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    println!("{} planted programs, {} not as they should be", PROGRAMS.len(), problems.len());
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Without the system monitor.
const ALONE: &[(&str, &str)] = &[("FIBRA_SYSMON", "0")];

/// Runs one of them: how it must end, and what it says.
fn run(name: &str, code: i32, variables: &[(&str, &str)]) -> Result<String, String> {
    // Far longer than it takes on a loaded machine; a deadlock that no check sees ends all the same.
    let mut command = Command::new("timeout");
    command.arg("60").arg(std::env::current_exe().expect("a program knows its file")).env(CHILD, name);
    command.envs(variables.iter().copied()).stdin(Stdio::null());
    let ended = command.output().map_err(|error| format!("{name} cannot be started: {error}"))?;
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    if ended.status.code() != Some(code) {
        return Err(format!("{name} ended with {}, not with code {code}:\n{stderr}", ended.status));
    }
    Ok(stderr)
}

/// What waits for the outside is not reported.
fn check_none(name: &str, variables: &[(&str, &str)]) -> Result<(), String> {
    let said = run(name, 0, variables)?;
    if said.is_empty() { Ok(()) } else { Err(format!("nothing was to be said, but:\n{said}")) }
}

/// The run ends with a panic, if that is wanted.
fn check_panic(variables: &[(&str, &str)]) -> Result<(), String> {
    let said = run("dining_philosophers", 101, &[&[("FIBRA_DEADLOCK", "panic")], variables].concat())?;
    let is_told = said.contains("The run is cancelled and panics.") && said.contains("CERTAIN deadlock: 5 fibers");
    if is_told { Ok(()) } else { Err(format!("a report and a panic were expected, but:\n{said}")) }
}

/// The last seconds before a deadlock are in a file, if that is wanted: every philosopher with the wait that it is in.
fn check_trace() -> Result<(), String> {
    let file = format!("{}/deadlock-{}.json", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let said = run("dining_philosophers", 102, &[("FIBRA_TRACE", &format!("last:{file}"))])?;
    let trace = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}\n{said}"))?;
    let _ = std::fs::remove_file(&file);
    let is_told = said.contains("the trace up to this deadlock is in") && trace.contains(" Hypatia\"");
    let waits = trace.matches("\"name\":\"waiting for a mutex\"").count();
    if is_told && waits >= 5 { Ok(()) } else { Err(format!("{waits} waits in a trace of the deadlock, and:\n{said}")) }
}

/// A trace that is written to a pipe which no process reads does not keep the program from ending.
fn check_trace_into_nothing() -> Result<(), String> {
    let pipe = format!("{}/deadlock-{}.pipe", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let made = Command::new("mkfifo").arg(&pipe).status().map_err(|error| format!("mkfifo: {error}"))?;
    if !made.success() {
        return Err(format!("mkfifo {pipe}: {made}"));
    }
    let ended = run("dining_philosophers", 102, &[("FIBRA_TRACE", &format!("last:{pipe}"))]);
    let _ = std::fs::remove_file(&pipe);
    let said = ended?;
    if said.contains("CERTAIN deadlock: 5 fibers") { Ok(()) } else { Err(format!("no report, but:\n{said}")) }
}

/// Reports of leaks can be turned off.
fn check_no_leak() -> Result<(), String> {
    let said = run(LEAKS[0], 0, &[("FIBRA_LEAKS", "0")])?;
    if said.is_empty() { Ok(()) } else { Err(format!("nothing was to be said, but:\n{said}")) }
}

fn check(name: &str, code: i32, variables: &[(&str, &str)]) -> Result<(), String> {
    // (In release builds leaks are reported only if asked for.)
    let stderr = run(name, code, &[&[("FIBRA_LEAKS", "1")], variables].concat())?;
    let begins = stderr.find("fibra: deadlock").or_else(|| stderr.find("fibra: leak"));
    let report = without_numbers(begins.map_or("", |at| &stderr[at..]));
    let path = format!("{}/tests/planted/expected/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("FIBRA_BLESS").is_some() {
        std::fs::write(&path, &report).map_err(|error| format!("{path}: {error}"))?;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    if report == expected && !report.is_empty() {
        return Ok(());
    }
    Err(format!("the report of {name} is not what {path} says, but:\n{report}"))
}

/// Numbers of fibers and channels, addresses, times, and where the repository lies.
fn without_numbers(text: &str) -> String {
    let mut shown = String::new();
    for line in text.lines() {
        let line = line.replace(concat!(env!("CARGO_MANIFEST_DIR"), "/"), "").replace("crates/fibra/", "");
        let mut rest = line.as_str();
        while let Some(at) = rest.find(['#', 'x']).map(|at| at + 1) {
            let digits = rest[at..].find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len() - at);
            let is_number = digits > 0 && (rest[..at].ends_with('#') || rest[..at].ends_with("0x"));
            shown.push_str(&rest[..at]);
            shown.push_str(if is_number { "N" } else { "" });
            rest = &rest[at + if is_number { digits } else { 0 }..];
        }
        shown.push_str(rest);
        shown.push('\n');
    }
    // " for 1.2s," and the like.
    let mut parts = shown.split(" for ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let time = part.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|at| *at > 0);
        let rest = time.map(|at| part[at..].trim_start_matches(['n', 'µ', 'm', 's']));
        text.push_str(&rest.map_or_else(|| format!(" for {part}"), |rest| format!(" for T{rest}")));
    }
    text
}
