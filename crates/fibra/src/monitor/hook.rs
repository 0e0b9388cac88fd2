//! The panic hook of fibers: runs on the worker's stack, and names the fiber that panicked.
//!
//! A hook that prints a backtrace needs more stack than a small fiber has left, so the hook runs on the scheduler's stack; the
//! fiber waits for it, under `no_suspend`. The hook also notes on the fiber that it unwinds (see `cancel`), and opens the
//! reserve below the stack if the panic began near its end.
//!
//! std's own hook would name the worker's thread, which is `main` for fibers of any name. So if the hook that was installed before is
//! std's, the message is ours, in the same form. A hook of the program is called, and followed by a line that names the fiber. (So is the
//! hook of the test harness when it captures output: only that hook can write into what it captures.)
//!
//! Above: `runtime`, which installs it. Below: `worker.rs`, whose stack it runs on, and `std::panic`.

use std::backtrace::Backtrace;
use std::fmt::Write;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::{Once, OnceLock};

use crate::fiber::frame::{FrameRef, flag};
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::sched::current;

/// Says what a fiber runs for (an actor, for example), beside its name: asked by the hook, on the scheduler's stack, while the fiber waits.
pub(crate) type Namer = fn(FrameRef) -> Option<String>;

static NAMER: OnceLock<Namer> = OnceLock::new();

/// Sets the namer of the process, which lives on a higher floor. Once is enough.
pub(crate) fn set_namer(namer: Namer) {
    let _ = NAMER.set(namer);
}

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;

/// Chains our hook before the one that is installed now; once per process. A thread that unwinds may not do that, and leaves it to the next
/// runtime: without our hook panics are reported without the fiber's name, on the fiber's own stack.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    if std::thread::panicking() {
        return;
    }
    INSTALLED.call_once(|| {
        let before = take_hook();
        // After the first `take_hook` only std's own hook is installed, and the second returns that.
        let is_stds = is_same(&*before, &*take_hook());
        set_hook(Box::new(move |info| hook(&*before, is_stds, info)));
    });
}

/// Are these the same hook, one without data? Two of the same type are. (A hook that is not recognised is called, which is right for any.)
#[expect(ambiguous_wide_pointer_comparisons)] // The address says nothing here, only the table, which says which type it is.
fn is_same(one: &Hook, other: &Hook) -> bool {
    size_of_val(one) == 0 && std::ptr::from_ref(one) == std::ptr::from_ref(other)
}

fn hook(before: &Hook, is_stds: bool, info: &PanicHookInfo<'_>) {
    let Some(worker) = current::worker() else {
        current::thread_cancel_state().unwinding.set(true);
        return before(info);
    };
    let Some(frame) = worker.current.get() else { return before(info) };
    let Some(top) = frame.top() else { return before(info) };
    top.cancel.unwinding.set(true);
    top.dirty.set(true);
    frame.raise(flag::HOLD_OFF);
    crate::fiber::overflow_reserve(frame);
    let was_open = frame.has(flag::NO_SUSPEND);
    frame.raise(flag::NO_SUSPEND);
    let mut call = Call { before, is_stds, info, frame };
    // SAFETY: on the current fiber. `on_scheduler` catches what it calls (a hook that panics aborts in std before it gets here), and
    // NO_SUSPEND keeps it from suspending.
    unsafe { worker.call_on_scheduler(on_scheduler, std::ptr::from_mut(&mut call).cast()) };
    if !was_open {
        frame.lower(flag::NO_SUSPEND);
    }
}

struct Call<'a> {
    before: &'a Hook,
    is_stds: bool,
    info: &'a PanicHookInfo<'a>,
    frame: FrameRef,
}

unsafe extern "C" fn on_scheduler(data: *mut ()) {
    // SAFETY: `hook` passes its `Call`, which lives until this returns.
    let call = unsafe { &*data.cast::<Call<'_>>() };
    // Relaxed: the id of a running fiber does not change.
    let id = call.frame.id.load(Ordering::Relaxed);
    // SAFETY: the fiber itself asks, so the frame is not recycled.
    let name = unsafe { call.frame.extras() }.and_then(|extras| extras.name.as_deref());
    let spawned = call.frame.site.get().map(|site| format!("spawned at {site}")).unwrap_or_default();
    let mut name = name.map(|name| format!(" \"{name}\"")).unwrap_or_default();
    if let Some(whom) = NAMER.get().and_then(|namer| namer(call.frame)) {
        let _ = write!(name, " of {whom}");
    }
    if call.is_stds {
        crate::prim::say(format_args!("{}", report(call.info, &format!("fiber #{id}{name}"), &spawned)));
    } else {
        (call.before)(call.info);
        let comma = if spawned.is_empty() { "" } else { ", " };
        crate::prim::say(format_args!("note: that was fiber #{id}{name}{comma}{spawned}"));
    }
}

/// The message that std's hook prints for a thread, for a fiber.
fn report(info: &PanicHookInfo<'_>, fiber: &str, spawned: &str) -> String {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let payload = info.payload();
    let message = payload.downcast_ref::<&str>().copied();
    let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("Box<dyn Any>");
    let mut text = format!("\n{fiber} panicked");
    if let Some(place) = info.location() {
        let _ = write!(text, " at {place}");
    }
    let _ = write!(text, ":\n{message}");
    if !spawned.is_empty() {
        let _ = write!(text, "\nnote: it was {spawned}");
    }
    match std::env::var_os("RUST_BACKTRACE").filter(|value| value != "0") {
        Some(value) => {
            let backtrace = Backtrace::force_capture().to_string();
            let backtrace = if value == "full" { backtrace } else { without_the_panic(&backtrace) };
            let _ = write!(text, "\nstack backtrace:\n{}", backtrace.trim_end());
        }
        // Relaxed: it only decides whether the hint is printed once or twice.
        None if !TOLD.swap(true, Ordering::Relaxed) => {
            text.push_str("\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace");
        }
        None => {}
    }
    text
}

/// A backtrace without the frames of the panic itself, up to the frame that std marks as their end. Without such a mark the backtrace
/// stays as it is.
fn without_the_panic(backtrace: &str) -> String {
    let is_frame = |line: &str| {
        line.trim_start().split_once(':').is_some_and(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let lines: Vec<&str> = backtrace.lines().collect();
    let Some(end) = lines.iter().rposition(|line| line.contains("__rust_end_short_backtrace")) else {
        return backtrace.to_owned();
    };
    let mut text = String::new();
    let mut frames = 0;
    for line in lines.iter().skip(end + 1).skip_while(|line| !is_frame(line)) {
        match line.split_once(':') {
            Some((_, symbol)) if is_frame(line) => {
                let _ = writeln!(text, "{frames:>4}:{symbol}");
                frames += 1;
            }
            _ => {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::without_the_panic;

    #[test]
    fn the_frames_of_the_panic_are_left_out() {
        let whole = "   0: std::backtrace::Backtrace::create\n   \
                     1: std::sys::backtrace::__rust_end_short_backtrace\n             at /rustc/x.rs:1:2\n   \
                     2: core::panicking::panic_fmt\n             at /rustc/y.rs:3:4\n   \
                     3: program::reader\n             at ./src/main.rs:5:6\n";
        let short = "   0: core::panicking::panic_fmt\n             at /rustc/y.rs:3:4\n   \
                     1: program::reader\n             at ./src/main.rs:5:6\n";
        assert_eq!(without_the_panic(whole), short);
        assert_eq!(without_the_panic("   0: <unknown>\n"), "   0: <unknown>\n");
    }
}
