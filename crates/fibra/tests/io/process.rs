//! Child processes: what std does, fibers do, without holding up their worker.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use crate::support;
use fibra::process::{Child, Command, Stdio};
use fibra::{Runtime, timeout};

const LONG: Duration = Duration::from_secs(30);

/// On a fiber and on a plain thread.
fn everywhere(f: impl Fn() -> io::Result<()>) {
    let _watchdog = support::watchdog(60);
    fibra::run(&f).unwrap();
    f().unwrap();
}

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn cat() -> io::Result<Child> {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

/// In a process of its own: for what counts its descriptors, which other tests open too.
#[track_caller]
fn apart(test: &str, f: impl FnOnce()) {
    if support::is_child(test) {
        let _watchdog = support::watchdog(240);
        return f();
    }
    let ended = support::rerun_self(test, &[]);
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
}

/// Processes of this test that have exited and were not waited for.
fn zombies() -> usize {
    let own = std::process::id();
    let stats = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        let rest: Vec<String> = stat.rsplit_once(')')?.1.split_whitespace().take(2).map(str::to_owned).collect();
        (rest[0] == "Z" && rest[1].parse() == Ok(own)).then_some(())
    });
    stats.count()
}

#[test]
fn status_output_and_the_three_streams() {
    everywhere(|| {
        assert_eq!(sh("exit 3").status()?.code(), Some(3));
        assert_eq!(sh("kill -9 $$").status()?.signal(), Some(libc::SIGKILL));
        let output = sh("echo out; echo err >&2; exit 1").output()?;
        assert_eq!((&*output.stdout, &*output.stderr, output.status.code()), (&b"out\n"[..], &b"err\n"[..], Some(1)));
        // Standard input is empty there, unless said otherwise.
        assert_eq!(Command::new("cat").output()?.stdout, b"");
        let mut only_errors = sh("echo out; echo err >&2");
        let output = only_errors.stdout(Stdio::null()).output()?;
        assert_eq!((&*output.stdout, &*output.stderr), (&b""[..], &b"err\n"[..]));
        // A command can be used again, and otherwise.
        let mut twice = sh("exit 4");
        assert_eq!((twice.output()?.status.code(), twice.status()?.code()), (Some(4), Some(4)));
        let mut child = cat()?;
        assert!(child.id() > 0 && child.try_wait()?.is_none());
        child.stdin.as_mut().unwrap().write_all(b"to and fro\n")?;
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line)?;
        assert_eq!(line, "to and fro\n");
        // Waiting closes standard input.
        assert!(child.wait()?.success() && child.stdin.is_none());
        assert!(child.wait()?.success() && child.try_wait()?.unwrap().success(), "it stays so");
        child.kill()?;
        assert!(format!("{child:?}").contains("Child") && format!("{:?}", sh("x")).contains("sh"));
        Ok(())
    });
}

#[test]
fn arguments_environment_and_folder() {
    everywhere(|| {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .args(["echo $0 $1 $A $B $C; pwd", "zero", "one"])
            .env("A", "a")
            .envs([("B", "b"), ("C", "c")]);
        command.env_remove("C").current_dir("/");
        assert_eq!(command.output()?.stdout, b"zero one a b\n/\n");
        assert_eq!(command.get_program(), "sh");
        assert_eq!(command.get_args().count(), 4);
        assert_eq!(command.get_envs().count(), 3);
        assert_eq!(command.get_current_dir(), Some("/".as_ref()));
        let output = Command::new("/usr/bin/env").env_clear().env("ONLY", "this").output()?;
        assert_eq!(output.stdout, b"ONLY=this\n");
        assert_eq!(
            Command::new("cat").arg0("dog").arg("/proc/self/cmdline").output()?.stdout,
            b"dog\0/proc/self/cmdline\0"
        );
        let mut grouped = cat_in_group()?;
        // SAFETY: the call takes no pointers.
        assert_eq!(unsafe { libc::getpgid(grouped.id() as i32) }, grouped.id() as i32);
        grouped.wait()?;
        // SAFETY: the calls take nothing.
        let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
        let output = Command::new("id").arg("-u").uid(user).gid(group).output()?;
        assert_eq!(output.stdout, format!("{user}\n").into_bytes());
        Ok(())
    });
}

fn cat_in_group() -> io::Result<Child> {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0).spawn()
}

#[test]
fn bad_input_is_the_error_of_std() {
    everywhere(|| {
        for program in ["", "no such program", "/", "/nowhere/at/all", "a\0b"] {
            let (ours, std) = (Command::new(program).spawn(), std::process::Command::new(program).spawn());
            let (ours, std) = (ours.unwrap_err(), std.unwrap_err());
            assert_eq!((ours.kind(), ours.raw_os_error()), (std.kind(), std.raw_os_error()), "{program:?}");
        }
        assert_eq!(Command::new("cat").current_dir("/nowhere").status().unwrap_err().kind(), ErrorKind::NotFound);
        Ok(())
    });
}

// Both pipes are filled, by a child that writes the one and then the other: a reader that reads them one by one waits for ever.
#[test]
fn output_on_both_pipes_does_not_deadlock() {
    let script = "head -c 1000000 /dev/zero >&2; head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; echo end";
    everywhere(|| {
        let output = sh(script).output()?;
        assert_eq!((output.stderr.len(), output.stdout.len()), (2_000_000, 1_000_004));
        assert!(output.stdout.ends_with(b"end\n"));
        Ok(())
    });
}

// A megabyte through a child, written by one fiber and read by another.
#[test]
fn a_megabyte_there_and_back() {
    let _watchdog = support::watchdog(60);
    let data: Vec<u8> = (0..1_048_576_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for workers in [1, 2] {
        Runtime::builder().workers(workers).build().unwrap().run(|| {
            let mut child = cat().unwrap();
            let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let mut back = Vec::new();
            fibra::scope(|s| {
                s.spawn(|| {
                    input.write_all(&data).unwrap();
                    drop(input);
                });
                output.read_to_end(&mut back).unwrap();
            });
            assert!(back == data);
            assert!(child.wait().unwrap().success());
        });
    }
}

// Reading, writing and waiting take no thread: the pool is needed for starting only.
#[test]
fn a_hundred_children_at_once_on_one_worker() {
    apart("a_hundred_children_at_once_on_one_worker", a_hundred_children);
}

fn a_hundred_children() {
    let runtime = Runtime::builder().workers(1).max_blocking_threads(2).build().unwrap();
    let before = support::fds();
    runtime.run(|| {
        fibra::scope(|s| {
            for n in 0..100 {
                s.spawn(move || {
                    let mut child = cat().unwrap();
                    let line = format!("{n}\n");
                    child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
                    let mut answer = vec![0; line.len()];
                    child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
                    assert_eq!(answer, line.as_bytes());
                    assert!(child.wait().unwrap().success());
                });
            }
        });
    });
    assert_eq!(support::fds(), before);
    drop(runtime);
}

#[test]
fn an_exit_is_an_arm() {
    everywhere(|| {
        let mut child = cat()?;
        let late = fibra::select! {
            on(child.exiting()) -> status => panic!("too early: {status:?}"),
            after(Duration::from_millis(10)) => true,
        };
        assert!(late && child.stdin.is_some(), "standard input stays open");
        child.kill()?;
        fibra::select! {
            on(child.exiting()) -> status => assert_eq!(status?.signal(), Some(libc::SIGKILL)),
            after(LONG) => panic!("it was killed"),
        }
        // It has exited: the arm is ready at once, and says the same.
        fibra::select_biased! {
            on(child.exiting()) -> status => assert_eq!(status?.signal(), Some(libc::SIGKILL)),
            default => panic!("it has exited"),
        }
        // Two children and a pipe: whichever is first.
        let (one, mut two) = (cat()?, sh("echo; exec sleep 100").stdout(Stdio::piped()).spawn()?);
        fibra::select! {
            on(one.exiting()) -> _ => panic!("it waits for input"),
            on(two.exiting()) -> _ => panic!("it sleeps"),
            on(two.stdout.as_ref().unwrap().readable()) -> ready => ready?,
            after(LONG) => panic!("it has written something"),
        }
        two.kill()?;
        two.wait()?;
        let mut one = one;
        fibra::select! {
            on(one.stdin.as_ref().unwrap().writable()) -> ready => ready?,
            after(LONG) => panic!("there is room in the pipe"),
        }
        assert!(one.wait()?.success());
        Ok(())
    });
}

#[test]
fn waits_have_time_outs_and_leave_the_child_as_it_was() {
    everywhere(|| {
        let mut child = cat()?;
        let late = child.wait_timeout(Duration::from_millis(5));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        let late = child.wait_deadline(fibra::time::Instant::now() + Duration::from_millis(5));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        child.stdin.as_mut().unwrap().write_all(b"x")?;
        let mut answer = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut answer)?;
        assert_eq!(&answer, b"x");
        drop(child.stdin.take());
        assert!(child.wait_timeout(LONG)?.success());
        assert!(child.wait_timeout(Duration::ZERO)?.success(), "it has exited");
        Ok(())
    });
    fibra::run(|| {
        let mut child = cat().unwrap();
        let input = child.stdin.take();
        assert!(timeout(Duration::from_millis(5), || child.wait()).is_err());
        let mut output = child.stdout.take().unwrap();
        assert!(timeout(Duration::from_millis(5), || output.read(&mut [0; 8])).is_err());
        assert!(timeout(Duration::from_millis(5), || sh("sleep 100; echo").kill_on_drop(true).output()).is_err());
        drop(input);
        assert!(child.wait().unwrap().success());
    });
}

// Several wait for one child.
#[test]
fn one_child_many_waiters() {
    let _watchdog = support::watchdog(60);
    Runtime::builder().workers(2).build().unwrap().run(|| {
        let mut child = cat().unwrap();
        let input = child.stdin.take();
        let child = &child;
        fibra::scope(|s| {
            let waiting: Vec<_> = (0..10)
                .map(|_| {
                    s.spawn(move || {
                        fibra::select! {
                            on(child.exiting()) -> status => status.unwrap().success(),
                            after(LONG) => false,
                        }
                    })
                })
                .collect();
            fibra::sleep(Duration::from_millis(5));
            drop(input);
            assert!(waiting.into_iter().all(|waiting| waiting.join().unwrap()));
        });
    });
}

// What the child does not read any more is an error, not the end of this process.
#[test]
fn writing_to_a_child_that_is_gone_is_an_error() {
    everywhere(|| {
        let mut child = Command::new("true").stdin(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().unwrap();
        child.wait()?;
        assert_eq!(input.write_all(&[0; 100_000]).unwrap_err().kind(), ErrorKind::BrokenPipe);
        // Also for one who waits for room when it goes.
        let mut child = sh("sleep 0.05").stdin(Stdio::piped()).spawn()?;
        let error = child.stdin.as_mut().unwrap().write_all(&[0; 1_000_000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        child.wait()?;
        Ok(())
    });
}

#[test]
fn a_dropped_child_lives_on_unless_it_is_to_be_killed() {
    let _watchdog = support::watchdog(60);
    let is_alive = |process: u32| {
        // SAFETY: the call takes no pointers. Signal 0 asks only.
        unsafe { libc::kill(process as i32, 0) == 0 }
    };
    fibra::run(|| {
        let child = sh("exec sleep 100").spawn().unwrap();
        let process = child.id();
        drop(child);
        assert!(is_alive(process));
        // SAFETY: as above; it is our child.
        unsafe {
            libc::kill(process as i32, libc::SIGKILL);
            libc::waitpid(process as i32, std::ptr::null_mut(), 0);
        }
        let child = sh("exec sleep 100").kill_on_drop(true).spawn().unwrap();
        let process = child.id();
        drop(child);
        support::eventually(|| !is_alive(process), || "it lives on, or was not waited for".to_owned());
        // By cancellation.
        let fiber = fibra::spawn(|| sh("exec sleep 100").kill_on_drop(true).status());
        fibra::sleep(Duration::from_millis(20));
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        // One that has exited by itself is waited for too.
        let mut child = Command::new("true").kill_on_drop(true).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
        drop(child);
    });
}

#[test]
fn pipes_go_to_other_children_and_to_std() {
    everywhere(|| {
        let mut one = sh("echo hello").stdout(Stdio::piped()).spawn()?;
        let output = Command::new("tr").args(["a-z", "A-Z"]).stdin(one.stdout.take().unwrap()).output()?;
        assert_eq!(output.stdout, b"HELLO\n");
        one.wait()?;
        let mut two =
            sh("sleep 0.02; echo late; echo err >&2").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let descriptor = OwnedFd::from(two.stdout.take().unwrap());
        assert!(descriptor.as_raw_fd() > 2);
        let mut text = String::new();
        // A file of std blocks: it was taken out of non-blocking mode.
        std::fs::File::from(descriptor).read_to_string(&mut text)?;
        assert_eq!(text, "late\n");
        let mut errors = String::new();
        two.stderr.take().unwrap().read_to_string(&mut errors)?;
        assert_eq!(errors, "err\n");
        two.wait()?;
        let file = std::env::temp_dir().join(format!("fibra-process-{}", std::process::id()));
        sh("echo into a file").stdout(fibra::fs::File::create(&file)?).status()?;
        assert_eq!(fibra::fs::read_to_string(&file)?, "into a file\n");
        fibra::fs::remove_file(&file)
    });
}

#[test]
fn nothing_is_left_of_a_thousand_children() {
    apart("nothing_is_left_of_a_thousand_children", a_thousand_children);
}

fn a_thousand_children() {
    let ended = (0..2).map(|round| {
        fibra::run(|| {
            // The first round is for what is opened once.
            for _ in 0..if round == 0 { 4 } else { 125 } {
                fibra::scope(|s| {
                    for n in 0..8 {
                        s.spawn(move || {
                            let mut command = Command::new("true");
                            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
                            match n % 4 {
                                0 => drop(command.output().unwrap()),
                                1 => drop(command.status().unwrap()),
                                2 => drop(command.spawn().unwrap().wait_with_output().unwrap()),
                                _ => drop(command.spawn().unwrap().wait_timeout(LONG).unwrap()),
                            }
                        });
                    }
                });
            }
        });
        support::fds()
    });
    let ended: Vec<_> = ended.collect();
    assert_eq!(ended[0], ended[1], "descriptors after 32 and after 1032 children");
    assert_eq!(zombies(), 0);
}

// `output` sets the streams that the caller has not set; a call that is cancelled before the program was started takes that back, too.
#[test]
fn an_output_that_was_cancelled_leaves_the_command_as_it_was() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).max_blocking_threads(1).build().unwrap();
    runtime.run(|| {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (began, begins) = fibra::channel::bounded(1);
        // The only thread of the pool is busy.
        let busy = fibra::spawn_blocking(move || {
            began.send(()).unwrap();
            wait.recv()
        });
        begins.recv().unwrap();
        let mut command = sh("exit 3");
        assert!(timeout(Duration::from_millis(5), || command.output()).is_err());
        go.send(()).unwrap();
        busy.join().unwrap().unwrap();
        let mut child = command.spawn().unwrap();
        assert!(child.stdin.is_none() && child.stdout.is_none() && child.stderr.is_none());
        assert_eq!(child.wait().unwrap().code(), Some(3));
        assert_eq!(command.output().unwrap().status.code(), Some(3));
    });
}
