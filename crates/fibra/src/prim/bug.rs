//! Seeded bugs: places where protocol code can be broken on purpose, to show that its checker catches it.
//!
//! In an ordinary build `seeded_bug` is the constant `false` and costs nothing. Models (`--cfg loom`, `--cfg shuttle`) and builds with
//! `--cfg fibra_bugs` choose the bug by the environment variable `FIBRA_BUG`, so that one binary serves for all of them. `.ci/bugs` lists
//! each bug with its checker: a model that must fail under loom, or a test of the whole runtime that must fail in a build with
//! `--cfg fibra_bugs` (`.ci/seeded-bugs` runs the models, `.ci/planted-bugs` the tests).

/// Is the bug of this name switched on?
#[cfg(not(any(loom, shuttle, fibra_bugs)))]
#[inline(always)]
pub(crate) const fn seeded_bug(_name: &str) -> bool {
    false
}

/// Is the bug of this name switched on?
#[cfg(any(loom, shuttle, fibra_bugs))]
pub(crate) fn seeded_bug(name: &str) -> bool {
    use std::sync::OnceLock;
    static BUG: OnceLock<Option<String>> = OnceLock::new();
    BUG.get_or_init(|| std::env::var("FIBRA_BUG").ok()).as_deref() == Some(name)
}
