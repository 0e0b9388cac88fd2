//! What the whole process finds by a name or a number: actors that are registered, and locks of actors. One map, with one lock, which
//! `fork` takes over like the others of the process.
//!
//! Above: `actor::registry` and `actor::lock`, which know the types. Invariant: no user code runs under the lock; what is taken out of the
//! map is dropped by the caller.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::prim::sync::{Mutex, MutexGuard};

/// What something is found by.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Name {
    Actor(String),
    Lock(u64),
}

/// Names and what they mean.
pub(crate) type Names = BTreeMap<Name, Arc<dyn Any + Send + Sync>>;

static NAMES: Mutex<Names> = Mutex::new(Names::new());

/// Calls `f` with the map.
pub(crate) fn with<R>(f: impl FnOnce(&mut Names) -> R) -> R {
    f(&mut NAMES.lock())
}

/// The lock, over a fork.
pub(crate) struct NamesLock {
    _names: MutexGuard<'static, Names>,
}

impl NamesLock {
    pub(crate) fn take() -> Self {
        Self { _names: NAMES.lock() }
    }
}
