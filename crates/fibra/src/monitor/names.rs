//! The process-wide map from names and numbers to registered actors and locks of actors. One map with one lock, which `fork.rs` holds over
//! a fork like the other locks of the process.
//!
//! Above: `actor::registry` and `actor::lock`, which know the types. Below: `prim`. Invariant: no user code runs under the lock; the caller
//! drops what it takes out of the map.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::prim::sync::{Mutex, MutexGuard};

/// A key of the map.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Name {
    Actor(String),
    Lock(u64),
}

/// The map: keys, and the values of types that only the layers above know.
pub(crate) type Names = BTreeMap<Name, Arc<dyn Any + Send + Sync>>;

static NAMES: Mutex<Names> = Mutex::new(Names::new());

/// Calls `f` with the map.
pub(crate) fn with<R>(f: impl FnOnce(&mut Names) -> R) -> R {
    f(&mut NAMES.lock())
}

/// The map's lock, held over a fork.
pub(crate) struct NamesLock {
    _names: MutexGuard<'static, Names>,
}

impl NamesLock {
    pub(crate) fn take() -> Self {
        Self { _names: NAMES.lock() }
    }
}
