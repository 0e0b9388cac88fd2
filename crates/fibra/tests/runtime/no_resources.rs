//! The system refuses: no thread, no file descriptor, no memory, too many mappings, and a fork. Each has a stated outcome.
#![cfg(all(not(any(fibra_asan, fibra_tsan)), target_os = "linux"))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support;
use crate::support::{is_child, rerun_self};
use fibra::Runtime;
use fibra::time::Instant;

fn limit(resource: libc::__rlimit_resource_t, to: u64) {
    let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
    // SAFETY: the pointer is to a local.
    assert_eq!(unsafe { libc::setrlimit(resource, &limit) }, 0);
}

/// A watchdog that is on its feet: a thread that starts without memory ends the process.
fn watchdog() -> support::Watchdog {
    let watchdog = support::watchdog(50);
    let named = || support::thread_names().contains(&"watchdog".to_owned());
    support::eventually(named, || "the watchdog does not start".to_owned());
    watchdog
}

/// The address space in use, in bytes.
fn address_space() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').next().unwrap().parse::<u64>().unwrap() * support::page_size() as u64
}

/// How the line begins with which a test says that it has tried nothing, and why.
const SKIPPED: &str = "skipped: ";

/// Runs the test in a child, which must succeed.
#[track_caller]
fn in_child(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    if is_child(test) {
        return body();
    }
    let ended = rerun_self(test, variables);
    assert!(ended.status.success(), "{ended:?}");
    // Past what the harness captures: a test that passes would say nothing.
    let skipped = ended.stdout.lines().chain(ended.stderr.lines()).find_map(|line| line.split_once(SKIPPED));
    if let Some((_, why)) = skipped {
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{test} {SKIPPED}{why}\n"));
    }
}

// S1-122: what was started is stopped again: no thread is left.
#[test]
fn without_threads_building_fails_with_what_the_system_said() {
    in_child("without_threads_building_fails_with_what_the_system_said", &[], || {
        let _watchdog = watchdog();
        let (threads, fds) = (support::threads(), support::fds());
        // Root may have as many threads as it likes: another user may not.
        // SAFETY: system calls without pointers; what they change is this process.
        unsafe {
            if libc::geteuid() == 0 {
                assert_eq!(libc::setuid(65_534), 0);
                // So that it may go on reading its own /proc.
                libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
            }
        }
        limit(libc::RLIMIT_NPROC, threads as u64 + 2);
        let error = Runtime::builder().workers(64).build().expect_err("64 threads are too many");
        assert!(error.to_string().contains("64 workers"), "{error}");
        support::eventually(|| support::threads() == threads, || format!("{:?}", support::thread_names()));
        assert_eq!(support::fds(), fds);
        // One that needs no thread can be built.
        let runtime = Runtime::current_thread().unwrap();
        assert_eq!(runtime.run(|| fibra::spawn(|| 5).join().unwrap()), 5);
    });
}

#[test]
fn without_file_descriptors_building_fails_with_what_the_system_said() {
    in_child("without_file_descriptors_building_fails_with_what_the_system_said", &[], || {
        let _watchdog = watchdog();
        let fds = support::fds();
        limit(libc::RLIMIT_NOFILE, fds as u64 + 5);
        let error = Runtime::builder().workers(8).build().expect_err("8 drivers need more than 5 descriptors");
        assert!(error.to_string().contains("Too many open files"), "{error}");
        assert_eq!(support::fds(), fds, "nothing stays open");
        let runtime = Runtime::builder().workers(1).build().unwrap();
        assert_eq!(runtime.run(|| 5), 5);
    });
}

// without memory for stacks fibers wait for one, or end and say so; the process goes on, nothing hangs.
#[test]
fn without_memory_for_stacks_fibers_end_and_say_so() {
    // The heap has what it needs before the limit comes: one for all threads (each would reserve 64 MiB), with 4 MiB to spare. Otherwise
    // the stacks may leave nothing for an allocation, whose failure ends the process.
    let heap = [("MALLOC_ARENA_MAX", "1"), ("MALLOC_TOP_PAD_", "4194304")];
    in_child("without_memory_for_stacks_fibers_end_and_say_so", &heap, || {
        let _watchdog = watchdog();
        let runtime = Runtime::builder().workers(1).build().unwrap();
        assert_eq!(runtime.run(|| 1) + runtime.spawn(|| 1).join().unwrap(), 2);
        limit(libc::RLIMIT_AS, address_space() + (16 << 20));
        // All of them want to be there at once: each parks until the last one has come, which never happens.
        let fibers: Vec<_> = (0..64)
            .map(|_| {
                let builder = fibra::Builder::new().stack_size(8 << 20);
                runtime.handle().spawn_with(builder, std::thread::yield_now).unwrap()
            })
            .collect();
        for fiber in fibers {
            fiber.join().expect("short ones get their turn on the same stack");
        }
        let parked: Vec<_> = (0..64)
            .map(|_| {
                let builder = fibra::Builder::new().stack_size(8 << 20);
                let body = || fibra::block_on(std::future::pending::<()>());
                runtime.handle().spawn_with(builder, body).unwrap()
            })
            .collect();
        // Nothing else can progress, so those without a stack end with an error.
        let no_stack = || parked.iter().filter(|fiber| fiber.is_finished()).count();
        support::eventually(|| no_stack() >= 50, || format!("{} ended", no_stack()));
        for fiber in parked {
            fiber.cancel();
            let error = fiber.join().unwrap_err();
            assert!(error.is_no_stack() || error.is_cancelled(), "{error}");
        }
        assert_eq!(runtime.spawn(|| 2).join().unwrap(), 2);
    });
}

// Children that never get a stack have not run, so their scope fails: unless they are joined.
#[test]
fn without_memory_for_its_children_a_scope_fails() {
    // Without the watching thread, which would start when the children wait: what they take in its first moments, std cannot do
    // without (decision 48). Late threads have tests of their own.
    let alone = [("MALLOC_ARENA_MAX", "1"), ("MALLOC_TOP_PAD_", "4194304"), ("FIBRA_SYSMON", "0")];
    in_child("without_memory_for_its_children_a_scope_fails", &alone, || {
        let _watchdog = watchdog();
        let runtime = Runtime::builder().workers(1).build().unwrap();
        assert_eq!(runtime.spawn(|| 1).join().unwrap(), 1);
        limit(libc::RLIMIT_AS, address_space() + (16 << 20));
        let _entered = runtime.handle().enter();
        let builder = fibra::Builder::new().stack_size(8 << 20);
        let forever = || fibra::block_on(std::future::pending::<()>());
        let outcome = fibra::Scope::builder()
            .run(|s| (0..64).for_each(|_| drop(builder.clone().spawn_scoped(s, forever).unwrap())));
        assert_eq!(outcome, Err(fibra::ScopeError::NotStarted));
        let joined = fibra::scope(|s| {
            let children: Vec<_> = (0..64).map(|_| builder.clone().spawn_scoped(s, forever).unwrap()).collect();
            let is_over = |child: &&fibra::JoinHandle<()>| child.is_finished();
            support::eventually(|| children.iter().filter(is_over).count() >= 50, || "they have stacks".to_owned());
            children.iter().for_each(fibra::JoinHandle::cancel);
            children.into_iter().map(|child| child.join().unwrap_err().is_no_stack()).collect::<Vec<_>>()
        });
        assert!(joined.into_iter().filter(|no_stack| *no_stack).count() >= 50);
    });
}

// A root fiber that gets no stack: `run` panics and says so.
#[test]
fn without_memory_for_its_root_run_panics() {
    in_child("without_memory_for_its_root_run_panics", &[], || {
        let _watchdog = watchdog();
        let runtime = Runtime::builder().workers(1).build().unwrap();
        assert_eq!(runtime.spawn(|| 1).join().unwrap(), 1);
        limit(libc::RLIMIT_AS, address_space() + (4 << 20));
        let run = catch_unwind(AssertUnwindSafe(|| runtime.run(|| 1)));
        let payload = run.expect_err("8 MiB do not fit into 4");
        let text = payload.downcast_ref::<String>().expect("a text");
        assert!(text.contains("no stack"), "{text}");
        assert_eq!(runtime.spawn(|| 2).join().unwrap(), 2, "the runtime goes on");
    });
}

// the old kind of guards has a cap of about 30,000 stacks: 40,000 fibers at once all end, some later than others.
#[test]
fn forty_thousand_fibers_under_the_old_guards_all_end() {
    let variables = [("FIBRA_GUARD", "mprotect")];
    in_child("forty_thousand_fibers_under_the_old_guards_all_end", &variables, || {
        let _watchdog = support::watchdog(55);
        let runtime = Runtime::builder().workers(1).stack_size(32 << 10).build().unwrap();
        let ended = runtime.run(|| {
            // Each parks once, so that all are there at once as far as stacks go round.
            let fibers: Vec<_> =
                (0..40_000).map(|_| fibra::spawn(|| fibra::sleep(Duration::from_millis(50)))).collect();
            let mut ended = (0, 0);
            for fiber in fibers {
                match fiber.join() {
                    Ok(()) => ended.0 += 1,
                    Err(error) => {
                        assert!(error.is_no_stack(), "{error}");
                        ended.1 += 1;
                    }
                }
            }
            ended
        });
        assert_eq!(ended.0 + ended.1, 40_000);
        assert!(ended.0 >= 20_000, "{ended:?}");
    });
}

/// Takes all mappings that the system gives this process, but for about twice as many as `left`. False: there may be too many to take.
fn take_mappings_but(left: usize) -> bool {
    let most: usize = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
    if most > 200_000 {
        eprintln!("{SKIPPED}vm.max_map_count is {most}, and to take more than 200,000 mappings takes too long");
        return false;
    }
    let page_size = support::page_size();
    // SAFETY: a mapping that no other code knows; its pages are not touched.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let room = libc::mmap(std::ptr::null_mut(), most * page_size, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(room, libc::MAP_FAILED);
        let set = |page: usize, protection| libc::mprotect(room.byte_add(page * page_size), page_size, protection) == 0;
        let pages: Vec<_> = (1..most).step_by(2).take_while(|page| set(*page, libc::PROT_READ)).collect();
        assert!(pages.len() > left);
        assert!(pages.iter().rev().take(left).all(|page| set(*page, libc::PROT_NONE)));
    }
    true
}

const WAITING: usize = 200;

/// Starts [`WAITING`] fibers that want thread-locals of their own; those that have begun wait until all have that can. Gives how many had
/// begun then, and how many ended well: the others had no stack. None: there are no such fibers here, or too many mappings to take.
fn begin_with_mappings(left: usize, runtime: &Runtime) -> Option<(usize, usize)> {
    let can = runtime.run(|| fibra::Builder::new().own_locals().spawn(|| ()).is_ok());
    if !can {
        eprintln!("{SKIPPED}no fiber has thread-locals of its own here");
        return None;
    }
    if !take_mappings_but(left) {
        return None;
    }
    let (gate, began) = (fibra::sync::Event::new(), AtomicUsize::new(0));
    Some(runtime.run(|| {
        fibra::scope(|scope| {
            let body = || {
                began.fetch_add(1, Ordering::Relaxed);
                gate.wait();
            };
            let fibers: Vec<_> =
                (0..WAITING).map(|_| fibra::Builder::new().own_locals().spawn_scoped(scope, body).unwrap()).collect();
            fibra::sleep(Duration::from_millis(300));
            let before = began.load(Ordering::Relaxed);
            gate.set();
            let ended = fibers.into_iter().filter_map(|fiber| {
                let ended = fiber.join();
                assert!(ended.as_ref().is_err_and(|error| error.is_no_stack()) || ended.is_ok(), "{ended:?}");
                ended.ok()
            });
            (before, ended.count())
        })
    }))
}

// Fibers that want thread-locals of their own wait for a thread where the system has no mappings for one; no thread starts half.
#[test]
fn without_mappings_fibers_wait_for_threads_to_lend_theirs() {
    in_child("without_mappings_fibers_wait_for_threads_to_lend_theirs", &[], || {
        let _watchdog = watchdog();
        let runtime = Runtime::builder().workers(2).build().unwrap();
        // What fibers need otherwise is there before.
        let all = std::sync::Arc::new(fibra::sync::Barrier::new(WAITING));
        let warm: Vec<_> = (0..WAITING).map(|_| all.clone()).map(|all| runtime.spawn(move || _ = all.wait())).collect();
        warm.into_iter().for_each(|fiber| fiber.join().unwrap());
        let Some((before, ended)) = begin_with_mappings(150, &runtime) else { return };
        assert_eq!(ended, WAITING);
        assert!(before < WAITING, "there were mappings for all of them: {before}");
    });
}

// Nor where stacks, too, take mappings, and workers make some while threads start.
#[test]
fn stacks_leave_mappings_to_threads_that_start() {
    let variables = [("FIBRA_GUARD", "mprotect")];
    in_child("stacks_leave_mappings_to_threads_that_start", &variables, || {
        let _watchdog = watchdog();
        let runtime = Runtime::builder().workers(2).build().unwrap();
        let Some((before, ended)) = begin_with_mappings(200, &runtime) else { return };
        assert!(before > 0 && ended >= before, "{before} {ended}");
    });
}

/// Forks; in the child runs `body` and leaves with 0 if it did not panic. In the parent waits for that.
fn in_fork(body: impl FnOnce()) {
    // SAFETY: the child runs ordinary code although other threads existed; it takes only locks that these do not hold for long, and it
    // leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // The watchdog is a thread, and stayed with the parent.
        // SAFETY: ends this process, if it is still there then.
        unsafe { libc::alarm(50) };
        let result = catch_unwind(AssertUnwindSafe(body));
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
}

#[test]
#[cfg_attr(fibra_context = "thread", ignore = "a kept stack is a thread there, and a forked child has none of them")]
fn after_a_fork_a_runtime_is_dead_and_says_so() {
    in_child("after_a_fork_a_runtime_is_dead_and_says_so", &[], || {
        let _watchdog = watchdog();
        let runtime = Runtime::builder().workers(2).build().unwrap();
        assert_eq!(runtime.run(|| 1), 1);
        support::eventually(|| runtime.metrics().live == 0, || "not idle".to_owned());
        in_fork(|| {
            let error = runtime.spawn(|| ()).join().unwrap_err();
            assert!(error.is_cancelled(), "{error}");
            let run = catch_unwind(AssertUnwindSafe(|| runtime.run(|| ())));
            let payload = run.expect_err("it cannot run here");
            let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
            assert!(text.unwrap().contains("fork"), "{text:?}");
            drop(runtime);
            // A new one works.
            let new = Runtime::builder().workers(2).build().unwrap();
            assert_eq!(new.run(|| fibra::spawn(|| 7).join().unwrap()), 7);
            drop(new);
            assert_eq!(fibra::run(|| 8), 8);
        });
    });
}

#[test]
#[cfg_attr(fibra_context = "thread", ignore = "a kept stack is a thread there, and a forked child has none of them")]
fn a_fork_while_a_runtime_begins_leaves_nothing_half_done_to_its_child() {
    in_child("a_fork_while_a_runtime_begins_leaves_nothing_half_done_to_its_child", &[], || {
        let _watchdog = watchdog();
        let runtime = Runtime::builder().workers(2).build().unwrap();
        // (What its threads do once takes some tens of milliseconds: the kernel is told of fences, say.)
        let begun = Instant::now();
        runtime.run(|| (0..100).map(|_| fibra::spawn(fibra::yield_now)).for_each(|fiber| fiber.join().unwrap()));
        while begun.elapsed() < Duration::from_millis(100) {
            in_fork(|| assert_eq!(fibra::run(|| 8), 8));
        }
    });
}

#[test]
fn after_a_fork_the_parent_goes_on() {
    in_child("after_a_fork_the_parent_goes_on", &[], || {
        let _watchdog = watchdog();
        let runtime = Runtime::builder().workers(2).build().unwrap();
        let sleeper = runtime.spawn(|| fibra::sleep(Duration::from_millis(5)));
        in_fork(|| ());
        sleeper.join().unwrap();
        assert_eq!(runtime.run(|| 2), 2);
    });
}
