//! The rules, one function each: a file goes in, problems come out. Nothing here knows where the files come from, so that
//! each rule can be shown to fail on a small bad input.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::source::{Source, Token, is_name};

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) path: String,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) advice: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

fn problem(source: &Source, line: usize, rule: &'static str, advice: impl Into<String>) -> Problem {
    Problem { path: source.path.clone(), line: line + 1, rule, advice: advice.into() }
}

/// The rules that look at one file at a time.
pub(crate) const RULES: &[fn(&Source) -> Vec<Problem>] = &[
    layers,
    header,
    facade,
    time_and_chance,
    asking_the_kernel,
    safety_comments,
    unsafe_floors,
    leftovers,
    line_length,
    file_length,
    switches,
    orderings,
    plain_words,
];

// ---- Layers -------------------------------------------------------------------------------------------------------------

/// The house, from the bottom. A module uses its own floor and those below.
pub(crate) const FLOORS: &[&[&str]] = &[
    &["prim", "waiter"],
    &["driver", "fiber"],
    &["sched"],
    &["reactor", "blocking", "monitor"],
    &["wait"],
    &["cancel"],
    &["scope", "task"],
    &["channel", "select", "sync", "time"],
    &["runtime", "machine", "inspect", "trace"],
    &["actor", "stream", "net", "fs", "process", "signal", "io"],
];

/// The scheduler's own: what one waits on goes through the waist and never sees a run queue.
pub(crate) const SCHEDULERS_OWN: [&str; 2] = ["sched", "queue"];

fn is_schedulers_own(path: &[String]) -> bool {
    path.iter().take(SCHEDULERS_OWN.len()).eq(SCHEDULERS_OWN)
}

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// The path of a library file as a module: `sched/queue/fresh.rs` is `sched::queue::fresh`, `wait/mod.rs` is `wait`.
fn module_path(file: &str) -> Vec<&str> {
    file.trim_end_matches(".rs").trim_end_matches("/mod").split('/').collect()
}

/// A module uses only its own floor and lower ones, and names things by their module. What ships does: tests and models drive it
/// through the floors above, as users do.
pub(crate) fn layers(source: &Source) -> Vec<Problem> {
    const RULE: &str = "layers";
    let Some(file) = source.in_library().filter(|file| *file != "lib.rs") else { return Vec::new() };
    let own_path = module_path(file);
    let own = own_path[0];
    let Some(own_floor) = floor(own) else {
        let advice = format!("`{own}` is on no floor of the house: move the file into a layer or add it to FLOORS");
        return vec![problem(source, 0, RULE, advice)];
    };
    let mut problems = Vec::new();
    for (token, path) in source.paths() {
        let Some(named) = from_root(source, token, &path, own_path.len()) else { continue };
        let Some(target) = named.first() else { continue };
        let line = source.tokens[token].line;
        // `$crate::..` in a macro, and macros, which always live at the root.
        let is_macro = token > 0 && source.text(token - 1) == "$" || source.text(token + 2 * path.len() - 1) == "!";
        if is_macro || source.lines[line].unshipped {
            continue;
        }
        let advice = match floor(target) {
            None => format!("`crate::{target}` is not a layer: name the thing by the module it lives in"),
            Some(_) if is_schedulers_own(&named) && own_floor > floor("wait").unwrap_or(0) => {
                "run queues belong to the scheduler: park and wake through `wait`".to_owned()
            }
            Some(target_floor) if target_floor <= own_floor => continue,
            Some(_) => format!(
                "`{own}` may not use `{}`, which lies above it: turn the call round (a callback, a value handed \
                 down) or move the thing down",
                named.join("::")
            ),
        };
        problems.push(problem(source, line, RULE, advice));
    }
    problems
}

/// The path seen from the crate's root, if it is one of the crate and leaves the file's own layer by name.
fn from_root(source: &Source, token: usize, path: &[String], depth: usize) -> Option<Vec<String>> {
    match path[0].as_str() {
        "crate" => Some(path[1..].to_vec()),
        "super" => {
            let supers = path.iter().take_while(|part| *part == "super").count();
            (supers >= depth + source.tokens[token].inline.len()).then(|| path[supers..].to_vec())
        }
        _ => None,
    }
}

// ---- What a file looks like ---------------------------------------------------------------------------------------------

/// Every file says what it is.
pub(crate) fn header(source: &Source) -> Vec<Problem> {
    match source.lines.iter().position(|line| !line.is_blank()) {
        Some(first) if source.lines[first].raw.starts_with("//!") => Vec::new(),
        first => {
            let advice = "open the file with `//!`: what it is, what lies above and below, its invariants";
            vec![problem(source, first.unwrap_or(0), "header", advice)]
        }
    }
}

/// Words that hide the subject of a sentence, also inside of names.
const VAGUE: [&str; 8] = ["whoever", "whomever", "nobody", "somebody", "anybody", "everybody", "someone", "anyone"];
/// Where they stay: the beginning of a path, and what a line must contain.
const VAGUE_ALLOWED: [(&str, &str); 4] = [
    // A public name, and its name in JSON.
    ("crates/fibra/src/inspect/", "Nobody"),
    ("docs/internals.md", "`LockHolder::Nobody`"),
    // These name the words.
    ("CONTRIBUTING.md", "never \"whoever\""),
    ("crates/fibra/tests/house/tidy", ""),
];

/// Sentences name their subjects (the fiber, the worker, the sender).
pub(crate) fn plain_words(source: &Source) -> Vec<Problem> {
    vague_words(&source.path, source.lines.iter().map(|line| line.raw.as_str()))
}

/// The same for the lines of any text.
pub(crate) fn vague_words<'a>(path: &str, lines: impl Iterator<Item = &'a str>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in lines.enumerate() {
        let lower = line.to_lowercase();
        let Some(word) = VAGUE.iter().find(|word| lower.contains(**word)) else { continue };
        if VAGUE_ALLOWED.iter().any(|(below, text)| path.starts_with(below) && line.contains(text)) {
            continue;
        }
        let advice = format!("\"{word}\" makes the reader guess: name the fiber, thread, caller or peer that is meant");
        problems.push(Problem { path: path.to_owned(), line: number + 1, rule: "plain words", advice });
    }
    problems
}

pub(crate) const LONGEST_CODE_LINE: usize = 120;
pub(crate) const LONGEST_COMMENT_LINE: usize = 140;

/// Code fits in 120 columns, comments in 140.
pub(crate) fn line_length(source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in source.lines.iter().enumerate() {
        let length = line.raw.chars().count();
        let without_comment = if line.comment.is_empty() { length } else { line.code.trim_end().chars().count() };
        if length > LONGEST_COMMENT_LINE || without_comment > LONGEST_CODE_LINE {
            let advice = format!(
                "{length} characters: break the line (code ends at {LONGEST_CODE_LINE}, \
                 comments at {LONGEST_COMMENT_LINE})"
            );
            problems.push(problem(source, number, "line length", advice));
        }
    }
    problems
}

pub(crate) const LONGEST_FILE: usize = 700;
const LONG_FILE_REASON: &str = "one long file because";

/// A file is a few hundred lines, or says why not.
pub(crate) fn file_length(source: &Source) -> Vec<Problem> {
    let header: String =
        source.lines.iter().take_while(|line| line.raw.starts_with("//!")).map(|line| line.comment.as_str()).collect();
    if source.lines.len() <= LONGEST_FILE || header.contains(LONG_FILE_REASON) {
        return Vec::new();
    }
    let advice = format!(
        "{} lines: cut the file at an idea, or say in its header that it is \"{LONG_FILE_REASON} ..\"",
        source.lines.len()
    );
    vec![problem(source, 0, "file length", advice)]
}

/// Nothing is left for later in the code.
pub(crate) fn leftovers(source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in source.lines.iter().enumerate() {
        let words =
            |text: &str, word: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word);
        if let Some(word) =
            ["TODO", "FIXME", "XXX"].into_iter().find(|word| words(&line.comment, word) || words(&line.code, word))
        {
            problems.push(problem(
                source,
                number,
                "leftovers",
                format!("do what the {word} says, or open an issue for it"),
            ));
        }
    }
    for at in 0..source.tokens.len() {
        let name = source.text(at);
        if matches!(name, "todo" | "dbg" | "unimplemented") && source.text(at + 1) == "!" {
            problems.push(problem(
                source,
                source.tokens[at].line,
                "leftovers",
                format!("`{name}!` does not belong in the house"),
            ));
        }
    }
    problems
}

// ---- The facade ---------------------------------------------------------------------------------------------------------

/// What comes from `prim`, and what to write instead.
const FACADE: &[(&str, &str)] = &[
    ("std::sync::atomic", "`prim::atomic`"),
    ("core::sync::atomic", "`prim::atomic`"),
    ("std::sync::Mutex", "`prim::sync::Mutex`"),
    ("std::sync::MutexGuard", "`prim::sync::MutexGuard`"),
    ("std::sync::Condvar", "`prim::sync::Condvar`"),
    ("std::sync::RwLock", "`prim::sync`"),
    ("std::sync::*", "the names you need: a glob hides what is used"),
    ("std::thread::spawn", "`prim::thread::start`"),
    ("std::thread::Builder", "`prim::thread::start`"),
    ("std::thread::park", "a parker of `wait`"),
    ("std::time::Instant", "`prim::policy` or `time::Instant`"),
    ("std::time::*", "the names you need: a glob hides what is used"),
];

/// Modules whose bare name would hide what is used of them.
const FACADE_MODULES: &[&str] = &["std::sync", "std::thread", "std::time"];

/// Who may name one of the above outside `prim`, and why.
pub(crate) const FACADE_EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "fiber/context/x86_64.rs",
        "std::sync::atomic",
        "a static, which loom has none of; the assembly gets its plain value",
    ),
    ("channel/order.rs", "std::sync::atomic", "a static, which loom has none of: the ids of the channels in models"),
];

/// Atomics, locks, threads and the clock come from `prim`, so that loom and shuttle can stand in.
pub(crate) fn facade(source: &Source) -> Vec<Problem> {
    let Some(file) = source.in_library().filter(|file| !file.starts_with("prim/")) else { return Vec::new() };
    let mut problems = Vec::new();
    for (token, path) in source.paths() {
        let line = source.tokens[token].line;
        if source.lines[line].test {
            continue;
        }
        let path = path.join("::").replace("::self", "");
        let starts =
            |prefix: &str| path == prefix || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with("::"));
        let hit = FACADE.iter().find(|(forbidden, _)| starts(forbidden));
        if let Some((forbidden, instead)) = hit {
            if !FACADE_EXCEPTIONS.iter().any(|(who, what, _)| *who == file && what == forbidden) {
                problems.push(problem(source, line, "facade", format!("`{path}`: use {instead}")));
            }
        } else if FACADE_MODULES.contains(&path.as_str()) {
            problems.push(problem(source, line, "facade", format!("`{path}` as a whole: name what you use of it")));
        }
    }
    problems
}

// ---- Time and chance ----------------------------------------------------------------------------------------------------

/// Where the clocks and the entropy of the system are read (law 10), and nowhere else.
const SEAM: &str = "prim/policy";

/// What reads a clock, waits by one, or draws entropy: a name, whatever it is reached by.
const CLOCKS_AND_ENTROPY: &[&str] = &[
    "SystemTime",
    "clock_gettime",
    "gettimeofday",
    "timerfd_create",
    "_rdtsc",
    "__rdtscp",
    "getrandom",
    "SYS_getrandom",
    "RandomState",
];

/// The same, by path. (Bare modules are refused by the facade.)
const CLOCK_PATHS: &[&str] = &["std::time::Instant::now", "std::thread::sleep"];

/// Who may name one of the above elsewhere, and why.
pub(crate) const SEAM_EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "fiber/stack/guard.rs",
        "SYS_getrandom",
        "a system call that writes one byte where it is told: asked whether it may, not for the byte",
    ),
    ("fiber/testing.rs", "SYS_getrandom", "as above, in tests"),
    ("fs/file.rs", "SystemTime", "the time of a file, which is the user's; no clock is read"),
];

/// Time and chance come through one seam, so that a test can own them.
pub(crate) fn time_and_chance(source: &Source) -> Vec<Problem> {
    let Some(file) = source.in_library().filter(|file| !file.starts_with(SEAM)) else { return Vec::new() };
    let mut problems = Vec::new();
    let mut found = |line: usize, name: &str| {
        let excepted = SEAM_EXCEPTIONS.iter().any(|(who, what, _)| *who == file && *what == name);
        if !source.lines[line].test && !excepted {
            let advice = format!("`{name}`: time and chance come through `prim::policy`, so that a test can own them");
            problems.push(problem(source, line, "time and chance", advice));
        }
    };
    for token in &source.tokens {
        if let Some(name) = CLOCKS_AND_ENTROPY.iter().find(|name| token.text == **name) {
            found(token.line, name);
        }
    }
    for (token, path) in source.paths() {
        let path = path.join("::");
        if CLOCK_PATHS.contains(&path.as_str()) {
            found(source.tokens[token].line, &path);
        }
    }
    problems
}

// ---- Memory that may not be there ---------------------------------------------------------------------------------------

/// Whether memory can be written is asked of the kernel, not of a function of the C library that may write in user space: that one dies
/// where the kernel would say no. In tests, too.
pub(crate) fn asking_the_kernel(source: &Source) -> Vec<Problem> {
    let calls = source.paths().into_iter().filter(|(_, path)| path.join("::") == "libc::getrandom");
    calls
        .map(|(token, _)| {
            let advice = "`libc::getrandom` may write in user space: `libc::syscall(libc::SYS_getrandom, ..)`";
            problem(source, source.tokens[token].line, "asking the kernel", advice)
        })
        .collect()
}

// ---- Unsafe -------------------------------------------------------------------------------------------------------------

/// The layers that may be unsafe.
pub(crate) const UNSAFE_FLOORS: &[&str] = &[
    "prim", "waiter", "driver", "fiber", "sched", "reactor", "blocking", "monitor", "wait", "cancel", "scope", "task",
    "channel", "select", "sync", "runtime", "machine",
];

/// The upper half of the house is safe code only, and so is the crate's root.
pub(crate) fn unsafe_floors(source: &Source) -> Vec<Problem> {
    let Some(file) = source.in_library() else { return Vec::new() };
    if UNSAFE_FLOORS.contains(&module_path(file)[0]) {
        return Vec::new();
    }
    let unsafe_tokens = source.tokens.iter().filter(|token| token.text == "unsafe");
    unsafe_tokens
        .map(|token| {
            let advice = "safe code only here: put what needs `unsafe` into the layer below that owns the invariant";
            problem(source, token.line, "unsafe", advice)
        })
        .collect()
}

/// Every unsafe block and impl says which invariant makes it sound.
pub(crate) fn safety_comments(source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (at, token) in source.tokens.iter().enumerate() {
        if token.text != "unsafe" || !matches!(source.text(at + 1), "{" | "impl") {
            continue;
        }
        if !has_safety_comment(source, token.line) && !has_safety_of_module(source, token) {
            let advice = "write `// SAFETY:` above it: the invariant it relies on and who upholds it";
            problems.push(problem(source, token.line, "safety", advice));
        }
    }
    problems
}

/// An inline module of tests, whose unsafe blocks all rely on one invariant, may name it once: `// SAFETY (all of them): ..` above.
fn has_safety_of_module(source: &Source, token: &Token) -> bool {
    let Some(module) = token.inline.last().filter(|_| source.lines[token.line].test) else { return false };
    let opening = format!("mod {module} {{");
    let Some(at) = source.lines.iter().position(|line| line.code.trim() == opening) else { return false };
    let above = source.lines[..at].iter().rev();
    above
        .take_while(|line| line.is_comment_only() || line.is_attribute_only())
        .any(|line| line.comment.contains("SAFETY (all of them):"))
}

/// The comment may be on the line, or end directly above the statement or above any line of it; attributes may stand between.
fn has_safety_comment(source: &Source, line: usize) -> bool {
    let says = |line: usize| source.lines[line].comment.contains("SAFETY:");
    let mut at = line;
    if says(at) {
        return true;
    }
    while at > 0 {
        at -= 1;
        let above = &source.lines[at];
        if above.is_comment_only() {
            if says(at) {
                return true;
            }
        } else if !above.is_attribute_only() {
            let code = above.code.trim_end();
            let same_statement = !code.is_empty() && !code.ends_with([';', '{', '}', ',']);
            if !same_statement {
                return false;
            }
        }
    }
    false
}

// ---- Switches and orderings ---------------------------------------------------------------------------------------------

/// The files that may leave or enter a fiber's stack: one to leave it, one to enter it.
pub(crate) const SWITCHERS: &[&str] = &["wait/park.rs", "sched/worker.rs"];

/// Nothing else may switch: whatever blocks goes through the waist.
pub(crate) fn switches(source: &Source) -> Vec<Problem> {
    let Some(file) = source.in_library() else { return Vec::new() };
    if SWITCHERS.contains(&file) || file.starts_with("fiber/context") {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (token, path) in source.paths() {
        if path.windows(2).any(|pair| pair[0] == "context" && matches!(pair[1].as_str(), "suspend" | "resume" | "*")) {
            let advice = format!("only {} may switch stacks: park through `wait`", SWITCHERS.join(" and "));
            problems.push(problem(source, source.tokens[token].line, "switch", advice));
        }
    }
    problems
}

/// How many lines above an ordering's statement its comment may be; attributes and seeded bugs do not count.
const COMMENT_REACH: usize = 3;

/// A seeded bug is wrong on purpose and explains itself by its name; it takes the lines up to three below its question.
fn is_seeded_bug(source: &Source, line: usize) -> bool {
    let near = &source.lines[line.saturating_sub(3)..=line];
    near.iter().any(|line| line.code.contains("seeded_bug(") || line.code.contains("bug = \""))
}

/// Every memory ordering says what it pairs with, and every Relaxed why it may be.
pub(crate) fn orderings(source: &Source) -> Vec<Problem> {
    if source.in_library().is_none() {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let mut last_line = usize::MAX;
    for (at, token) in source.tokens.iter().enumerate() {
        let ordering = source.text(at + 2);
        let names_one = token.text == "Ordering" && source.text(at + 1) == "::";
        let line = token.line;
        if !names_one
            || !matches!(ordering, "Relaxed" | "Acquire" | "Release" | "AcqRel" | "SeqCst")
            || source.lines[line].test
            || line == last_line
            || is_seeded_bug(source, line)
        {
            continue;
        }
        last_line = line;
        let explained = |line: usize| !source.lines[line].comment.trim().is_empty();
        let start = source.statement_start(line);
        let counts = |above: &usize| !source.lines[*above].is_attribute_only() && !is_seeded_bug(source, *above);
        let above = (0..start).rev().filter(|above| explained(*above) || counts(above)).take(COMMENT_REACH);
        if !(start..=line).chain(above).any(explained) {
            let advice = if ordering == "Relaxed" {
                "say in a comment why Relaxed is enough".to_owned()
            } else {
                format!("say in a comment what this {ordering} pairs with")
            };
            problems.push(problem(source, line, "ordering", advice));
        }
    }
    problems
}

// ---- Seeded bugs --------------------------------------------------------------------------------------------------------

/// Every seeded bug has a model that must fail under it: the names in the code and in `.ci/bugs` are the same. And it breaks code that
/// ships, not what only models are built of.
pub(crate) fn seeded_bugs(sources: &[Source], list: &str) -> Vec<Problem> {
    const RULE: &str = "seeded bugs";
    let rows = list.lines().enumerate().filter(|(_, row)| !row.trim().is_empty() && !row.starts_with('#'));
    let mut listed: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
    let mut asked = BTreeSet::new();
    let mut problems = Vec::new();
    let in_list =
        |line: usize, advice: String| Problem { path: ".ci/bugs".to_owned(), line: line + 1, rule: RULE, advice };
    for (number, row) in rows {
        let name = row.split_whitespace().next().unwrap_or_default();
        // A model, and a race of the whole runtime: the same lines may be asked both.
        let is_planted = row.split_whitespace().nth(1) == Some("planted");
        listed.insert(name, (number, false));
        if !asked.insert((name, is_planted)) {
            problems.push(in_list(number, format!("`{name}` stands there twice: one model for a bug is enough")));
        }
    }
    for source in sources.iter().filter(|source| source.in_library().is_some()) {
        for (number, line) in source.lines.iter().enumerate() {
            if line.code.contains("bug = \"") {
                let advice = "ask `prim::bug::seeded_bug`: one binary then serves for all bugs";
                problems.push(problem(source, number, RULE, advice));
            }
            if !line.code.contains("seeded_bug(\"") {
                continue;
            }
            if line.unshipped {
                let advice =
                    "a bug in a model shows nothing about the product: let it run the code that ships, and break that";
                problems.push(problem(source, number, RULE, advice));
            }
            for name in line.raw.split("seeded_bug(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                match listed.get_mut(name) {
                    Some((_, used)) => *used = true,
                    None => {
                        let advice = format!("add `{name}` to .ci/bugs, with the model that must fail under it");
                        problems.push(problem(source, number, RULE, advice));
                    }
                }
            }
        }
    }
    let unused = listed.iter().filter(|(_, (_, used))| !used);
    problems
        .extend(unused.map(|(name, (line, _))| in_list(*line, format!("no code asks for `{name}`: remove the line"))));
    problems
}

// ---- Locks and fork -----------------------------------------------------------------------------------------------------

/// A lock that the whole process shares is taken over a fork: `monitor/fork.rs` names it. Looks at all files at once.
pub(crate) fn process_wide_locks(sources: &[Source]) -> Vec<Problem> {
    const LOCKS: &[&str] = &["Mutex<", "RwLock<", "SpinLock<", "RawSpin", "Depot<", "Slab<"];
    let fork = sources.iter().find(|source| source.in_library() == Some("monitor/fork.rs"));
    let named = |name: &str| {
        let words = |text: &str| text.split(|c: char| !is_name(&c.to_string())).any(|word| word == name);
        fork.is_some_and(|fork| fork.lines.iter().any(|line| words(&line.comment) || words(&line.code)))
    };
    let mut problems = Vec::new();
    for source in sources.iter().filter(|source| source.in_library().is_some()) {
        for (number, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.test) {
            let Some((before, rest)) = line.code.split_once("static ") else { continue };
            let Some((name, kind)) = rest.split_once(':') else { continue };
            let declares = before.trim().is_empty() || before.trim().starts_with("pub");
            if declares && LOCKS.iter().any(|lock| kind.contains(lock)) && !named(name) {
                let advice = format!("let monitor/fork.rs take `{name}` over a fork, in its order, and name it there");
                problems.push(problem(source, number, "locks and fork", advice));
            }
        }
    }
    problems
}

// ---- Dead files ---------------------------------------------------------------------------------------------------------

/// Every file is a target or a declared module. Looks at all files at once.
pub(crate) fn dead_files(sources: &[Source]) -> Vec<Problem> {
    let known: BTreeMap<&str, &Source> = sources.iter().map(|source| (source.path.as_str(), source)).collect();
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let mut todo: Vec<&str> = known.keys().copied().filter(|path| is_root(path)).collect();
    while let Some(path) = todo.pop() {
        if !reached.insert(path) {
            continue;
        }
        for candidate in declared(known[path]) {
            if let Some((known_path, _)) = known.get_key_value(candidate.as_str()) {
                todo.push(known_path);
            }
        }
    }
    let dead = sources.iter().filter(|source| !reached.contains(source.path.as_str()));
    dead.map(|source| problem(source, 0, "dead file", "declare it with `mod`, or delete it")).collect()
}

/// Does Cargo (or, for `tests/ui`, trybuild) find this file by itself?
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts.as_slice(),
        ["crates", _, "build.rs"]
            | ["crates", _, "src", "lib.rs" | "main.rs"]
            | ["crates", _, "src", "bin", _]
            | ["crates", _, "src", "bin", _, "main.rs"]
            | ["crates", _, "tests" | "benches" | "examples", _]
            | ["crates", _, "tests" | "benches" | "examples", _, "main.rs"]
            | ["crates", _, "tests", "ui", _]
    )
}

/// The files a `mod` declaration in this file may mean.
fn declared(source: &Source) -> Vec<String> {
    let (folder, name) = source.path.rsplit_once('/').expect("paths have folders");
    let stem = name.trim_end_matches(".rs");
    let base = if stem == "mod" || is_root(&source.path) { folder.to_owned() } else { format!("{folder}/{stem}") };
    let mut files = Vec::new();
    for (at, token) in source.tokens.iter().enumerate() {
        if token.text != "mod" || !is_name(source.text(at + 1)) || source.text(at + 2) != ";" {
            continue;
        }
        let module = source.text(at + 1);
        let inside: String = token.inline.iter().map(|name| format!("/{name}")).collect();
        files.push(format!("{base}{inside}/{module}.rs"));
        files.push(format!("{base}{inside}/{module}/mod.rs"));
        if let Some(path) = path_attribute(source, token.line) {
            files.push(normalized(&format!("{folder}/{path}")));
        }
    }
    files
}

/// The value of a `#[path = ".."]` directly above the declaration.
fn path_attribute(source: &Source, line: usize) -> Option<String> {
    let above = (0..line).rev().map(|line| &source.lines[line]).take_while(|line| line.is_attribute_only());
    let attribute = above.into_iter().find(|line| line.code.trim().starts_with("#[path"))?;
    attribute.raw.split('"').nth(1).map(str::to_owned)
}

/// Takes `a/../` out of a path.
fn normalized(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}
