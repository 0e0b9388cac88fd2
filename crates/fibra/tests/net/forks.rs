//! Sockets in the child of a fork. Each test is alone in its process, which it forks.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::support::{alone, workers};
use crate::waits_and_readers::wait_in_vain;
use fibra::net::UnixStream;

/// Runs `f` in a child of a fork, which has some seconds for it.
fn in_a_fork(f: impl FnOnce()) {
    // SAFETY: the child does what is under test, which has to work there, and leaves without unwinding.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::alarm(20);
            f();
            libc::_exit(7);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "the child ended with status {status:#x}");
    }
}

// The thread that serves plain threads is not there in a child, and no runtime has ever prepared for a fork.
#[test]
#[cfg_attr(fibra_tsan, ignore = "the sanitizer does not allow threads to be started after a fork")]
fn a_child_of_a_fork_has_a_thread_of_its_own() {
    if !alone("a_child_of_a_fork_has_a_thread_of_its_own") {
        return;
    }
    let (here, mut there) = UnixStream::pair().unwrap();
    wait_in_vain(&here);
    in_a_fork(|| {
        wait_in_vain(&here);
        let writing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            there.write_all(b"x").unwrap();
            there
        });
        fibra::select! { on(here.readable()) -> ready => ready.unwrap() }
        writing.join().unwrap();
    });
}

// A socket that another thread was just registering when the process forked can be used in the child.
#[test]
#[cfg_attr(fibra_tsan, ignore = "the sanitizer does not allow threads to be started after a fork")]
fn a_child_of_a_fork_uses_a_socket_that_was_in_use() {
    if !alone("a_child_of_a_fork_uses_a_socket_that_was_in_use") {
        return;
    }
    let (here, _there) = UnixStream::pair().unwrap();
    let (here, over) = (Arc::new(here), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let runtimes = [workers(1), workers(1)];
    let busy: Vec<_> = runtimes
        .iter()
        .map(|runtime| {
            let (stream, over) = (here.clone(), over.clone());
            runtime.spawn(move || {
                // The home goes to and fro between the two.
                while !over.load(SeqCst) {
                    fibra::select! {
                        on(stream.readable()) -> _ready => panic!("no byte was written"),
                        default => fibra::yield_now(),
                    }
                }
            })
        })
        .collect();
    for _ in 0..200 {
        in_a_fork(|| {
            fibra::select! {
                on(here.readable()) -> _ready => panic!("no byte was written"),
                default => {}
            }
        });
    }
    over.store(true, SeqCst);
    busy.into_iter().for_each(|fiber| fiber.join().unwrap());
}
