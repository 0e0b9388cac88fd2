//! The frames of a backtrace: which of them are the user's, which are worth showing, what they wait for.

use std::fmt::Write;

/// Frames that are printed, at most.
const MOST: usize = 24;

/// A function on the stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) address: u64,
    pub(super) function: Option<String>,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

/// What a thread waits for that is blocked in `futex`, as far as the functions on its stack say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    /// A lock, and which.
    Lock(&'static str),
    Condvar,
    Once,
    Channel,
    Thread,
    Park,
}

/// The beginnings of what belongs to std, as functions or as methods of its traits.
const STD: &[&str] =
    &["std::", "core::", "alloc::", "<std::", "<core::", "<alloc::", "<&std::", "<&mut std::", "__rust_"];
const FIBRA: &[&str] = &["fibra::", "<fibra::"];

impl Frame {
    pub(super) fn name(&self) -> &str {
        self.function.as_deref().unwrap_or("")
    }

    fn file(&self) -> &str {
        self.file.as_deref().unwrap_or("")
    }

    fn starts_with(&self, beginnings: &[&str]) -> bool {
        beginnings.iter().any(|beginning| self.name().starts_with(beginning))
    }

    /// With little debug information, functions that were inlined are named without their paths: then the file tells.
    fn is_std(&self) -> bool {
        self.starts_with(STD) || self.file().starts_with("/rustc/")
    }

    fn is_fibra(&self) -> bool {
        let sources = file!().strip_suffix("monitor/stall/frames.rs");
        self.starts_with(FIBRA) || sources.is_some_and(|sources| self.file().contains(sources))
    }

    /// Called a fiber's function, on the way from its first instruction.
    fn is_entry(&self) -> bool {
        self.function.is_none() || self.is_std() || self.is_fibra()
    }

    /// Neither of std, nor of fibra, nor of the C library: code that the user, or a crate of hers, has written.
    fn is_foreign(&self) -> bool {
        let file = self.file();
        // Rust's names are paths. C libraries of the system have no file here, or one relative to where they were built.
        let known = self.name().contains("::") || !file.is_empty() && !file.starts_with('.');
        known && !self.is_std() && !self.is_fibra() && !self.mentions(&["parking_lot", "lock_api"])
    }

    fn is_of_registry(&self) -> bool {
        self.file().contains("/registry/src/")
    }

    /// Does its name, or the path of its file written as one of a module, have one of these parts?
    fn mentions(&self, parts: &[&str]) -> bool {
        let module = self.file().replace("/src/", "/").replace('/', "::");
        parts.iter().any(|part| self.name().contains(part) || module.contains(part))
    }
}

/// Without the frames that called the fiber's function.
pub(super) fn without_entry(mut frames: Vec<Frame>) -> Vec<Frame> {
    // Where nothing but such frames is left, they are what there is to show: a worker between two fibers.
    if let Some(last) = frames.iter().rposition(|frame| !frame.is_entry()) {
        frames.truncate(last + 1);
    }
    frames
}

/// Without the innermost frames, which are fibra's own way into a wait: from the call that the user made on.
pub(super) fn without_wait(mut frames: Vec<Frame>) -> Vec<Frame> {
    if let Some(first) = frames.iter().position(|frame| !frame.is_fibra() && !frame.is_std()) {
        frames.drain(..first);
    }
    frames
}

/// The innermost frame that the user has written: if there is none of the program itself, one of a crate from a registry.
pub(super) fn users(frames: &[Frame]) -> Option<&Frame> {
    let foreign = || frames.iter().filter(|frame| frame.is_foreign());
    foreign().find(|frame| !frame.is_of_registry()).or_else(|| foreign().next())
}

/// Does a function of this name (or part of a name) lie on the stack?
pub(super) fn has(frames: &[Frame], parts: &[&str]) -> bool {
    frames.iter().any(|frame| frame.mentions(parts))
}

/// What it waits for. `None`: the names do not say.
pub(super) fn awaited(frames: &[Frame]) -> Option<Awaited> {
    // Those that are made of the others.
    const JOINS: &[&str] =
        &["std::thread::join_handle::", "::JoinInner", "std::thread::scoped", "pthread_join", "pthread_clockjoin"];
    if has(frames, JOINS) {
        return Some(Awaited::Thread);
    }
    if has(frames, &["std::sync::mpsc", "std::sync::mpmc", "crossbeam_channel::", "flume::"]) {
        return Some(Awaited::Channel);
    }
    let innermost = frames.iter().find_map(|frame| {
        let is = |parts: &[&str]| frame.mentions(parts);
        if is(&["std::sys::sync::condvar", "std::sync::poison::condvar", "::condvar::", "pthread_cond_"]) {
            Some(Awaited::Condvar)
        } else if is(&["parking_lot"]) {
            Some(Awaited::Lock("a lock of parking_lot"))
        } else if is(&["std::sys::sync::mutex", "std::sync::poison::mutex", "std::sync::mutex", "lock_contended"]) {
            Some(Awaited::Lock("a std::sync::Mutex"))
        } else if is(&["std::sys::sync::rwlock", "std::sync::poison::rwlock", "std::sync::rwlock"]) {
            Some(Awaited::Lock("a std::sync::RwLock"))
        } else if is(&["std::sync::reentrant_lock"]) {
            Some(Awaited::Lock("a reentrant lock of std (that of standard output, say)"))
        } else if is(&["pthread_mutex_", "pthread_rwlock_", "lll_lock_wait"]) {
            Some(Awaited::Lock("a lock of the C library (pthread)"))
        } else if is(&["std::sys::sync::once", "std::sync::poison::once", "std::sync::once", "std::sync::lazy_lock"]) {
            Some(Awaited::Once)
        } else {
            None
        }
    });
    innermost.or_else(|| has(frames, &["::thread_parking::", "std::thread::park"]).then_some(Awaited::Park))
}

/// A line or two per frame, innermost first.
pub(super) fn print(text: &mut String, frames: &[Frame]) {
    let here = std::env::current_dir().ok().and_then(|here| here.to_str().map(|here| format!("{here}/")));
    for (number, frame) in frames.iter().take(MOST).enumerate() {
        // Writing to a string does not fail.
        let _ = match &frame.function {
            Some(function) => writeln!(text, "{number:4}: {function}"),
            None => writeln!(text, "{number:4}: {:#x} (no symbol)", frame.address),
        };
        if let Some(file) = &frame.file {
            let line = frame.line.unwrap_or(0);
            let _ = writeln!(text, "          at {}:{line}", shortened(file, here.as_deref().unwrap_or("/")));
        }
    }
    if frames.len() > MOST {
        let _ = writeln!(text, "      and {} more", frames.len() - MOST);
    }
}

/// Relative to the working directory, to the sources of std, or to those of a crate.
fn shortened<'a>(file: &'a str, here: &str) -> &'a str {
    if let Some(rest) = file.strip_prefix(here).filter(|_| here.len() > 1) {
        return rest;
    }
    let of_std = file.strip_prefix("/rustc/").and_then(|rest| rest.split_once('/'));
    let of_registry = file.split_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/'));
    of_std.or(of_registry).map_or(file, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::{Awaited, Frame, awaited, shortened, users, without_entry};

    fn frames(names: &[&str]) -> Vec<Frame> {
        let frame = |name: &&str| {
            let (function, file) = name.split_once(" at ").unwrap_or((name, ""));
            Frame { function: Some(function.to_owned()), file: Some(file.to_owned()), ..Frame::default() }
        };
        names.iter().map(frame).collect()
    }

    #[test]
    fn the_users_frame_is_the_innermost_that_she_wrote() {
        let stack = frames(&[
            "clock_nanosleep",
            "std::sys::thread::sleep at /rustc/abc/library/std/src/sys/thread.rs",
            "<core::iter::Map<I,F> as core::iter::Iterator>::next",
            "regex::find at /home/u/.cargo/registry/src/index.crates.io-6f17/regex-1.0.0/src/lib.rs",
            "app::work at src/main.rs",
            "app::main::{{closure}} at src/main.rs",
            "fibra::scope::body::run at crates/fibra/src/scope/body.rs",
            "std::panicking::catch_unwind",
            "__rust_try",
            "fibra::sched::life::binding::main",
        ]);
        assert_eq!(users(&stack).map(Frame::name), Some("app::work"));
        assert_eq!(users(&stack[..4]).map(Frame::name), Some("regex::find"));
        assert_eq!(users(&stack[..3]), None);
        let shown = without_entry(stack.clone());
        assert_eq!(shown.len(), 6, "{shown:?}");
        assert_eq!(without_entry(stack[6..].to_vec()).len(), 4, "nothing else is there");
    }

    #[test]
    fn what_is_awaited_is_seen_by_the_names() {
        let of = |names: &[&str]| awaited(&frames(names));
        let mutex = "std::sys::sync::mutex::futex::Mutex::lock_contended";
        assert_eq!(of(&["syscall", mutex, "app::f"]), Some(Awaited::Lock("a std::sync::Mutex")));
        assert_eq!(of(&["std::sys::sync::condvar::futex::Condvar::wait", "app::f"]), Some(Awaited::Condvar));
        let again = &["syscall", mutex, "std::sys::sync::condvar::futex::Condvar::wait"];
        assert_eq!(of(again), Some(Awaited::Lock("a std::sync::Mutex")), "woken, and wants its lock back");
        let receive = &["std::thread::park", "std::sync::mpmc::context::Context::wait_until", "app::f"];
        assert_eq!(of(receive), Some(Awaited::Channel));
        let parking_lot = "<parking_lot::raw_mutex::RawMutex as lock_api::mutex::RawMutex>::lock";
        assert_eq!(of(&["syscall", parking_lot]), Some(Awaited::Lock("a lock of parking_lot")));
        assert_eq!(of(&["std::thread::park"]), Some(Awaited::Park));
        assert_eq!(of(&["pthread_join", "std::sys::thread::join"]), Some(Awaited::Thread));
        assert_eq!(of(&["syscall", "app::f"]), None);
    }

    #[test]
    fn paths_are_shortened() {
        assert_eq!(shortened("/w/src/a.rs", "/w/"), "src/a.rs");
        assert_eq!(shortened("/rustc/0a1/library/std/src/a.rs", "/w/"), "library/std/src/a.rs");
        assert_eq!(shortened("/h/.cargo/registry/src/index-1/b-1.0/src/a.rs", "/w/"), "b-1.0/src/a.rs");
        assert_eq!(shortened("/usr/a.c", "/"), "/usr/a.c");
    }
}
