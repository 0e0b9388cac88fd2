//! The house rules as a test: what `CONTRIBUTING.md` asks for in words, held by the machine.
//!
//! `crate::source` takes files apart, `rules.rs` has one function per rule. Here the rules are run over the whole repository, and
//! each rule is shown to fail on a small bad input: a rule that cannot fail holds nothing.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // Reads files: once is enough.

mod rules;

use crate::source::{self, Source};
use rules::Problem;

#[test]
fn the_house_is_tidy() {
    let sources = source::all_sources();
    assert!(sources.len() > 10, "found only {} files: is the repository where it should be?", sources.len());
    let mut problems: Vec<Problem> = rules::RULES.iter().flat_map(|rule| sources.iter().flat_map(rule)).collect();
    problems.extend(rules::dead_files(&sources));
    problems.extend(rules::process_wide_locks(&sources));
    let bugs = source::repository().join(".ci/bugs");
    let bugs = std::fs::read_to_string(&bugs).unwrap_or_else(|error| panic!("{}: {error}", bugs.display()));
    problems.extend(rules::seeded_bugs(&sources, &bugs));
    let pages = source::pages();
    assert!(pages.len() > 60, "found only {} pages of documentation", pages.len());
    problems.extend(pages.iter().flat_map(|(path, text)| rules::vague_words(path, text.lines())));
    problems.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    let text: Vec<String> = problems.iter().map(Problem::to_string).collect();
    assert!(problems.is_empty(), "{} problems:\n{}\n", problems.len(), text.join("\n"));
}

/// The lines (from 1) that `rule` complains about when `text` is the file `path`.
fn complaints(rule: fn(&Source) -> Vec<Problem>, path: &str, text: &str) -> Vec<usize> {
    rule(&Source::parse(path, text)).into_iter().map(|problem| problem.line).collect()
}

fn library(file: &str) -> String {
    format!("crates/fibra/src/{file}")
}

#[test]
fn layers_hold_downwards_only() {
    let check = |file: &str, text: &str| complaints(rules::layers, &library(file), text);
    assert_eq!(check("fiber/stack.rs", "use crate::prim::atomic;\nuse crate::sched::worker;\n"), [2]);
    assert_eq!(check("fiber/stack.rs", "use crate::{prim::cell, wait::park};\n"), [1]);
    assert_eq!(check("fiber/stack.rs", "use crate::{\n    prim::cell,\n    wait::{task, park},\n};\n"), [3, 3]);
    assert_eq!(check("fiber/frame.rs", "use crate::waiter::word::Word;\nuse crate::waiter::node::Node;\n"), [0; 0]);
    assert_eq!(check("waiter/word.rs", "use crate::prim::atomic;\nuse crate::fiber::frame;\n"), [2]);
    assert_eq!(check("sched/worker.rs", "fn f() {\n    crate::fiber::f();\n    crate::wait::park();\n}\n"), [3]);
    assert_eq!(check("wait/park.rs", "use crate::sched::worker;\nuse crate::channel::core;\n"), [2]);
    assert_eq!(
        check("channel/mod.rs", "use crate::select::arm;\nuse crate::wait::park;\nuse crate::actor::Addr;\n"),
        [3]
    );
    // S4-37: what one waits on does not touch run queues.
    assert_eq!(check("channel/mod.rs", "use crate::sched::queue::ready;\nuse crate::sched::enqueue;\n"), [1]);
    assert_eq!(check("inspect/list.rs", "use crate::runtime::Handle;\nuse crate::io::copy;\n"), [2]);
    assert_eq!(check("net/tcp.rs", "use crate::io::copy;\nuse crate::inspect::list;\n"), [0; 0]);
    // Each floor of the middle: the scheduler, what stands beside each other on it, the waist.
    assert_eq!(check("sched/worker.rs", "use crate::reactor::source;\nuse crate::monitor::stall;\n"), [1, 2]);
    assert_eq!(check("reactor/source.rs", "use crate::monitor::fork;\nuse crate::wait::park;\n"), [2]);
    assert_eq!(check("task/spawn.rs", "use crate::scope::Scope;\nuse crate::runtime::Handle;\n"), [2]);
    // What does not ship may use any floor.
    let tests = "#[cfg(test)]\nmod tests {\n    use crate::runtime::run;\n}\n";
    assert_eq!(check("task/spawn.rs", tests), [0; 0]);
    assert_eq!(check("waiter/record/model.rs", "use crate::wait::park;\n"), [0; 0]);
}

#[test]
fn layers_see_through_super_macros_strings_and_unknown_names() {
    let check = |file: &str, text: &str| complaints(rules::layers, &library(file), text);
    assert_eq!(check("sched/queue/fresh.rs", "use super::super::super::wait::park;\nuse super::super::idle;\n"), [1]);
    assert_eq!(check("fiber/mod.rs", "mod real {\n    use super::*;\n    use super::super::wait::park;\n}\n"), [3]);
    assert_eq!(check("prim/spin.rs", "// crate::wait::park\nconst A: &str = \"crate::wait::park\";\n"), [0; 0]);
    assert_eq!(check("time/sleep.rs", "use crate::Instant;\n"), [1], "re-exports of the root hide the layer");
    assert_eq!(check("fiber/local.rs", "crate::fiber_local! { static A: u32 = 1; }\n"), [0; 0]);
    assert_eq!(check("fiber/local.rs", "macro_rules! m { () => { $crate::__private::f() } }\n"), [0; 0]);
    assert_eq!(check("gadgets/mod.rs", "//! A folder without a floor.\n"), [1]);
    assert_eq!(check("lib.rs", "use crate::inspect::graph;\n"), [0; 0]);
}

#[test]
fn every_file_has_a_header() {
    let check = |text: &str| complaints(rules::header, &library("wait/mod.rs"), text);
    assert_eq!(check("//! The waist.\n"), [0; 0]);
    assert_eq!(check("\n// The waist.\nuse a::b;\n"), [2]);
    assert_eq!(check(""), [1]);
}

#[test]
fn the_facade_is_respected() {
    let check = |file: &str, text: &str| complaints(rules::facade, &library(file), text);
    assert_eq!(check("wait/park.rs", "use std::sync::atomic::AtomicU64;\n"), [1]);
    assert_eq!(check("wait/park.rs", "use std::sync::{Arc, OnceLock};\nuse std::sync::{Arc, Mutex};\n"), [2]);
    assert_eq!(check("wait/park.rs", "use std::{sync::{Arc, RwLock}, time::{Duration, Instant}};\n"), [1, 1]);
    assert_eq!(
        check("wait/park.rs", "fn f() { std::thread::spawn(|| ()); }\nfn g() { std::thread::panicking(); }\n"),
        [1]
    );
    assert_eq!(check("wait/park.rs", "use std::thread;\nfn f() { thread::spawn(|| ()); }\n"), [1], "the bare module");
    assert_eq!(check("wait/park.rs", "use std::{thread, fmt};\nuse std::sync::{self, Arc};\n"), [1, 2]);
    assert_eq!(check("prim/sync.rs", "use std::sync::Mutex;\n"), [0; 0]);
    assert_eq!(check("channel/order.rs", "use std::sync::atomic::AtomicU64;\nuse std::sync::Mutex;\n"), [2]);
    let tests = "#[cfg(all(test, not(loom)))]\nmod tests {\n    use std::sync::Mutex;\n}\nuse std::sync::Condvar;\n";
    assert_eq!(check("wait/park.rs", tests), [5]);
    assert_eq!(check("wait/park.rs", "#[cfg(not(test))]\nmod real {\n    use std::sync::Mutex;\n}\n"), [3]);
}

#[test]
fn time_and_chance_come_through_the_seam() {
    let check = |file: &str, text: &str| complaints(rules::time_and_chance, &library(file), text);
    assert_eq!(check("wait/park.rs", "fn f() { std::time::SystemTime::now(); }\n"), [1]);
    assert_eq!(check("sched/worker.rs", "fn f() { unsafe { core::arch::x86_64::_rdtsc() } }\n"), [1]);
    assert_eq!(check("prim/thread.rs", "use std::fmt;\nfn f() { unsafe { libc::clock_gettime(a, b) }; }\n"), [2]);
    assert_eq!(check("channel/chan.rs", "use std::hash::RandomState;\n"), [1]);
    assert_eq!(check("sched/rest.rs", "fn f() { std::thread::sleep(SOON); }\n"), [1]);
    assert_eq!(check("prim/instant.rs", "fn f() { std::time::Instant::now(); }\n"), [1]);
    assert_eq!(check("fiber/stack/guard.rs", "fn f() { g(libc::SYS_getrandom); }\nuse a::RandomState;\n"), [2]);
    assert_eq!(check("fiber/stack/arena.rs", "fn f() { g(libc::SYS_getrandom); }\n"), [1]);
    assert_eq!(check("prim/policy/clock.rs", "fn f() { std::time::Instant::now(); }\n"), [0; 0]);
    let tests = "#[cfg(test)]\nmod tests {\n    fn f() { std::thread::sleep(SOON); }\n}\n";
    assert_eq!(check("wait/park.rs", tests), [0; 0]);
}

#[test]
fn the_kernel_is_asked_whether_memory_can_be_written() {
    let check = |path: &str, text: &str| complaints(rules::asking_the_kernel, path, text);
    let both = "fn f() { libc::syscall(libc::SYS_getrandom, a, 1, 0); }\nfn g() { libc::getrandom(a, 1, 0); }\n";
    assert_eq!(check(&library("fiber/stack/guard.rs"), both), [2]);
    assert_eq!(check("crates/fibra/tests/runtime/panics.rs", both), [2]);
    assert_eq!(check("crates/fibra/tests/runtime/panics.rs", "use libc::getrandom;\n"), [1]);
}

#[test]
fn unsafe_code_says_why_it_is_sound() {
    let check = |text: &str| complaints(rules::safety_comments, &library("wait/park.rs"), text);
    assert_eq!(check("fn f() {\n    unsafe { g() }\n}\n"), [2]);
    assert_eq!(check("fn f() {\n    // SAFETY: g is fine.\n    unsafe { g() }\n}\n"), [0; 0]);
    assert_eq!(
        check("fn f() {\n    // SAFETY: g is fine,\n    // and h too.\n    #[cfg(x)]\n    unsafe { g() }\n}\n"),
        [0; 0]
    );
    assert_eq!(check("fn f() {\n    // SAFETY: g is fine.\n    let a =\n        unsafe { g() };\n}\n"), [0; 0]);
    assert_eq!(check("fn f() {\n    // SAFETY: only for a.\n    let a = 1;\n    unsafe { g() }\n}\n"), [4]);
    assert_eq!(check("fn f() {\n    // SAFETY: too far.\n\n    unsafe { g() }\n}\n"), [4]);
    assert_eq!(check("// SAFETY: first.\nunsafe impl Send for A {}\nunsafe impl Sync for A {}\n"), [3]);
    let all = |test: &str, says: &str| {
        format!("{test}\n// {says}\n#[allow(x)]\nmod tests {{\n    fn f() {{ unsafe {{ g() }} }}\n}}\n")
    };
    assert_eq!(check(&all("#[cfg(test)]", "SAFETY (all of them): one owner.")), [0; 0]);
    assert_eq!(check(&all("#[cfg(test)]", "All of them are fine.")), [5]);
    assert_eq!(
        check(&all("#[cfg(unix)]", "SAFETY (all of them): one owner.").replace("tests", "real")),
        [5],
        "no test"
    );
    assert_eq!(check("fn f() {\n    unsafe { g() } // SAFETY: beside it.\n}\n"), [0; 0]);
    assert_eq!(check("// the word unsafe { in a comment\nconst A: &str = \"unsafe {\";\nunsafe fn f() {}\n"), [0; 0]);
}

#[test]
fn the_upper_floors_are_safe() {
    let check = |file: &str, text: &str| complaints(rules::unsafe_floors, &library(file), text);
    assert_eq!(check("net/tcp.rs", "//! Sockets.\nfn f() {\n    // SAFETY: none.\n    unsafe { g() }\n}\n"), [4]);
    assert_eq!(check("time/sleep.rs", "unsafe fn f() {}\n"), [1]);
    assert_eq!(check("lib.rs", "unsafe impl Send for A {}\n"), [1]);
    assert_eq!(check("wait/park.rs", "unsafe fn f() {}\n"), [0; 0]);
}

#[test]
fn sentences_name_their_subjects() {
    let check = |path: &str, text| complaints(rules::plain_words, path, text);
    assert_eq!(
        check("crates/a/src/lib.rs", "//! Whoever waits is woken.\nfn nobody_joins() {}\n// A waiter.\n"),
        [1, 2]
    );
    assert_eq!(
        check("crates/a/tests/a.rs", "fn f() { panic!(\"somebody else has it\") }\nenum A { ByNobody }\n"),
        [1, 2]
    );
    let holder = "        LockHolder::Nobody => 1,\n// nobody waits\n";
    assert_eq!(check("crates/fibra/src/inspect/text.rs", holder), [2], "only the public name");
    assert_eq!(check("crates/fibra/src/sync/owner.rs", holder), [1, 2]);
    let page = rules::vague_words("docs/guide.md", "One fiber.\nAnybody may call it.".lines());
    assert_eq!(page.iter().map(|problem| problem.line).collect::<Vec<_>>(), [2]);
}

#[test]
fn nothing_is_left_for_later() {
    let check = |text: &str| complaints(rules::leftovers, &library("wait/park.rs"), text);
    let later = ["TO", "DO"].concat();
    assert_eq!(check(&format!("// {later}: later\nfn f() {{}} // {later}S are many\n")), [1]);
    assert_eq!(check("fn f() {\n    dbg!(1);\n    todo!()\n}\nfn g() { unimplemented!(\"x\") }\n"), [2, 3, 5]);
    assert_eq!(check("let mut todo = Vec::new();\nlet a = \"FIXME\";\n"), [0; 0]);
}

#[test]
fn lines_and_files_have_an_end() {
    let check = |text: &str| complaints(rules::line_length, &library("wait/park.rs"), text);
    let long = |head: &str, length: usize| format!("{head}{}\n", "x".repeat(length - head.len()));
    assert_eq!(check(&long("let a", 120)), [0; 0]);
    assert_eq!(check(&long("let a", 121)), [1]);
    assert_eq!(check(&long("    // ", 140)), [0; 0]);
    assert_eq!(check(&long("    // ", 141)), [1]);
    assert_eq!(check(&long("let a = 1; // ", 140)), [0; 0]);

    let file = |header: &str, lines: usize| {
        complaints(rules::file_length, &library("a.rs"), &(header.to_owned() + &"\n".repeat(lines)))
    };
    assert_eq!(file("//! Short.\n", 699), [0; 0]);
    assert_eq!(file("//! Long.\n", 700), [1]);
    assert_eq!(file("//! This is one long file because its table has many rows.\n", 700), [0; 0]);
}

// S4-19, S4-35, S1-99: one way to park, and nothing beside it; there is no other switch, from fiber to fiber or otherwise.
#[test]
fn only_the_waist_and_the_worker_switch() {
    let check = |file: &str, text: &str| complaints(rules::switches, &library(file), text);
    let call = "fn f() { crate::fiber::context::suspend(); }\n";
    assert_eq!(check("channel/mod.rs", call), [1]);
    assert_eq!(check("blocking/pool.rs", "use crate::fiber::context::{Context, resume};\n"), [1]);
    assert_eq!(check("blocking/pool.rs", "use crate::fiber::context::*;\n"), [1]);
    assert_eq!(check("blocking/pool.rs", "use crate::fiber::context::Context;\n"), [0; 0]);
    assert_eq!(check("wait/park.rs", call), [0; 0]);
    assert_eq!(check("sched/worker.rs", call), [0; 0]);
    assert_eq!(check("fiber/context/x86_64.rs", call), [0; 0]);
}

// S4-124, S0-84: every ordering comes with its reason: what it pairs with, or why it may be weak.
#[test]
fn orderings_are_explained() {
    let check = |text: &str| complaints(rules::orderings, &library("wait/park.rs"), text);
    assert_eq!(check("\n\n\nfn f() {\n    a.load(Ordering::Acquire);\n}\n"), [5]);
    assert_eq!(
        check("fn f() {\n    // Acquire: pairs with the release in g.\n    a.load(Ordering::Acquire);\n}\n"),
        [0; 0]
    );
    assert_eq!(check("fn f() {\n    a.load(Ordering::Relaxed); // A counter.\n}\n"), [0; 0]);
    let exchange = "a.compare_exchange(\n    one,\n    two,\n    Ordering::AcqRel,\n    Ordering::Acquire,\n);\n";
    assert_eq!(check(&format!("// AcqRel: both ways.\n{exchange}")), [0; 0]);
    assert_eq!(check(exchange), [4, 5]);
    let bug = "if seeded_bug(\"early\") {\n    a.store(1, Ordering::Relaxed);\n}\n\n\na.store(1, Ordering::Release);\n";
    assert_eq!(check(bug), [6], "a bug needs no reason, the right line does");
    assert_eq!(check("fn f() -> bool { a.cmp(&b) == Ordering::Less }\n"), [0; 0]);
    assert_eq!(check("#[cfg(test)]\nmod tests {\n    fn f() { a.load(Ordering::SeqCst); }\n}\n"), [0; 0]);
}

#[test]
fn seeded_bugs_and_their_list_agree() {
    let check = |text: &str, list: &str| -> Vec<String> {
        let sources = [Source::parse(&library("wait/word.rs"), text)];
        rules::seeded_bugs(&sources, list)
            .into_iter()
            .map(|problem| format!("{}:{}", problem.path, problem.line))
            .collect()
    };
    let code = "if seeded_bug(\"one\") {}\nif !seeded_bug(\"two\") {}\n// seeded_bug(\"three\")\n";
    assert_eq!(check(code, "# names\none a::b\n\ntwo a::c\n"), [""; 0]);
    assert_eq!(check(code, "one a::b\n"), ["crates/fibra/src/wait/word.rs:2"]);
    assert_eq!(check(code, "one a::b\ntwo a::c\nfour a::d\none a::b\n"), [".ci/bugs:4", ".ci/bugs:3"]);
    assert_eq!(check("if cfg!(bug = \"one\") {}\n", ""), ["crates/fibra/src/wait/word.rs:1"]);
}

#[test]
fn a_seeded_bug_breaks_what_ships() {
    let check = |file: &str, text: &str| -> Vec<usize> {
        let problems = rules::seeded_bugs(&[Source::parse(&library(file), text)], "one a::b\n");
        problems.into_iter().map(|problem| problem.line).collect()
    };
    let bug = "fn f() {\n    if seeded_bug(\"one\") {}\n}\n";
    assert_eq!(check("sched/idle.rs", bug), [0; 0]);
    for model in ["sched/idle/model.rs", "sched/life/model.rs", "wait/here_model.rs"] {
        assert_eq!(check(model, bug), [2], "{model}");
    }
    for attribute in
        ["#[cfg(test)]", "#[cfg(all(test, any(loom, shuttle)))]", "#[cfg(any(loom, shuttle))]", "#[cfg(loom)]"]
    {
        assert_eq!(check("sched/idle.rs", &format!("{attribute}\nmod check {{\n{bug}}}\n")), [4], "{attribute}");
        assert_eq!(check("sched/idle.rs", &format!("{attribute}\nuse a::b;\n{bug}")), [0; 0], "{attribute}");
    }
    assert_eq!(check("sched/idle.rs", &format!("#[cfg(not(any(loom, shuttle)))]\n{bug}")), [0; 0]);
}

#[test]
fn a_lock_that_fork_does_not_know_is_found() {
    let check = |text: &str, fork: &str| -> Vec<usize> {
        let sources =
            [Source::parse(&library("fiber/frame.rs"), text), Source::parse(&library("monitor/fork.rs"), fork)];
        rules::process_wide_locks(&sources).into_iter().map(|problem| problem.line).collect()
    };
    let code =
        "static SLAB: Mutex<Slab> = Mutex::new(Slab);\npub(super) static ONE: [Depot<A>; 2] = x;\nstatic N: u8 = 1;\n";
    assert_eq!(check(code, "//! SLAB, then ONE.\n"), [0; 0]);
    assert_eq!(check(code, "//! The SLABs, then ONE.\n"), [1]);
    assert_eq!(check(code, "//! Nothing.\nstatic TWO: Mutex<()> = Mutex::new(());\n"), [1, 2]);
    assert_eq!(check("fn f(a: &'static Mutex<u8>) {}\n", ""), [0; 0]);
}

#[test]
fn dead_files_are_found() {
    let files = |list: &[(&str, &str)]| -> Vec<String> {
        let sources: Vec<Source> = list.iter().map(|(path, text)| Source::parse(path, text)).collect();
        rules::dead_files(&sources).into_iter().map(|problem| problem.path).collect()
    };
    let dead = files(&[
        ("crates/a/src/lib.rs", "mod b;\nmod inline { pub mod c; }\n#[path = \"odd/name.rs\"]\nmod d;\n"),
        ("crates/a/src/b/mod.rs", "#[cfg(loom)]\nmod e;\n"),
        ("crates/a/src/b/e.rs", "// mod f;\n"),
        ("crates/a/src/b/f.rs", ""),
        ("crates/a/src/inline/c.rs", ""),
        ("crates/a/src/odd/name.rs", ""),
        ("crates/a/tests/one.rs", "mod support;\n"),
        ("crates/a/tests/support/mod.rs", ""),
        ("crates/a/tests/two/main.rs", "mod part;\n"),
        ("crates/a/tests/two/part.rs", ""),
        ("crates/a/tests/two/left.rs", ""),
        ("crates/a/tests/ui/bad.rs", ""),
    ]);
    assert_eq!(dead, ["crates/a/src/b/f.rs", "crates/a/tests/two/left.rs"]);
}

#[test]
fn code_comments_and_strings_are_told_apart() {
    let source = Source::parse(
        "crates/fibra/src/a.rs",
        "let a = \"// no\"; // yes\n\
         /* one /* two */ still */ let b = r#\"x \" unsafe\"#;\n\
         let c = '\"'; let d: &'a str = b\"\\\"\";\n",
    );
    let code: Vec<&str> = source.lines.iter().map(|line| line.code.trim()).collect();
    assert_eq!(code, ["let a = \"\";", "let b = \"\";", "let c = ' '; let d: &'a str = b\"\";"]);
    assert_eq!(source.lines[0].comment.trim(), "yes");
}
