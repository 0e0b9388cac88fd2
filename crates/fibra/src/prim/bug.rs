//! Seeded bugs: places where protocol code can be broken on purpose, to show that its model catches it.
//!
//! Only models can break anything: outside `--cfg loom` and `--cfg shuttle` the question is the constant `false` and costs
//! nothing. There the bug is chosen by the environment variable `FIBRA_BUG`, so that one binary serves for all of them;
//! `.ci/bugs` lists each bug with the model that must fail under it with loom.

/// Is the bug of this name switched on?
#[cfg(not(any(loom, shuttle)))]
#[inline(always)]
pub(crate) const fn seeded_bug(_name: &str) -> bool {
    false
}

/// Is the bug of this name switched on?
#[cfg(any(loom, shuttle))]
pub(crate) fn seeded_bug(name: &str) -> bool {
    use std::sync::OnceLock;
    static BUG: OnceLock<Option<String>> = OnceLock::new();
    BUG.get_or_init(|| std::env::var("FIBRA_BUG").ok()).as_deref() == Some(name)
}
