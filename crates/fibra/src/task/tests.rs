//! Tests of `FIBRA_SPEC_ASSERT=1`: in optimised builds too, a transition of a fiber's word from a wrong state is found, at once or at the
//! next transition. Each wrong transition is made in a child process, which must die of it.

use std::io::Read;
use std::process::{Command, Stdio};

use super::fiber::yield_now;
use super::spawn::spawn;
use crate::runtime::run;
use crate::sched::current;
use crate::waiter::word::Word;

const TEST: &str = "task::tests::wrong_steps_are_found";
const STEP: &str = "FIBRA_TEST_STEP";

/// Takes this step of the running fiber's word, which is RUNNING, behind the runtime's back.
fn wrongly(step: fn(&Word)) {
    let worker = current::worker().expect("on a worker");
    step(&worker.current.get().expect("on a fiber").waiter.word);
}

// S4-112: every edge, and what is queued.
#[test]
fn wrong_steps_are_found() {
    if let Ok(step) = std::env::var(STEP) {
        // Wherever it is found: what is broken cannot be shut down.
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            report(panic);
            std::process::abort();
        }));
        run(move || match &*step {
            // Queued although it is INIT.
            "yield" => {
                wrongly(Word::yielded);
                yield_now();
            }
            // Ended although it is RUNNABLE.
            "end" => spawn(|| wrongly(Word::yielded)).join().unwrap(),
            // Spawned although it is not INIT any more: what the wrong step leaves behind goes to the next fiber.
            "spawn" => {
                let worker = current::worker().expect("on a worker");
                let frame = worker.take_frame();
                frame.waiter.word.publish_spawned();
                worker.caches.frames.with(|frames| frames.give(frame));
                (0..100).for_each(|_| spawn(|| ()).join().unwrap());
            }
            _ => {}
        });
        return;
    }
    for (step, dies) in [("none", false), ("yield", true), ("end", true), ("spawn", true)] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env("FIBRA_SPEC_ASSERT", "1")
            .env(STEP, step)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = child.wait().unwrap();
        assert_eq!((!status.success(), said.contains("illegal transition")), (dies, dies), "{step}: {status}: {said}");
    }
}
