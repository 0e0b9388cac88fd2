//! `Handle`: a reference to a runtime, for threads that spawn on it or enter it. Above: users. Below: `task::spawn`, `sched::current`.

use std::fmt;
use std::io;
use std::panic::Location;
use std::sync::Arc;

use crate::fiber::frame::flag;
use crate::monitor::metrics::Metrics;
use crate::sched::current;
use crate::sched::shared::RuntimeShared;
use crate::task::builder::Builder;
use crate::task::join::JoinHandle;
use crate::task::spawn::spawn_with;

/// A reference to a runtime: to spawn on it from anywhere, or to make it the current one of a thread. Does not keep it running.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<RuntimeShared>,
}

impl Handle {
    pub(super) fn new(shared: Arc<RuntimeShared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<RuntimeShared> {
        &self.shared
    }

    /// The runtime of this fiber, or the one this thread has entered.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn current() -> Self {
        match Self::try_current() {
            Some(handle) => handle,
            None => crate::task::spawn::no_runtime("Handle::current"),
        }
    }

    /// The runtime of this fiber, or the one this thread has entered, if any.
    pub fn try_current() -> Option<Self> {
        current::runtime().map(|shared| Self { shared })
    }

    /// Makes this runtime the current one of the thread until the guard is dropped, so that [`spawn`](crate::spawn) works on it.
    ///
    /// ```
    /// let rt = fibra::Runtime::builder().workers(1).build()?;
    /// let _entered = rt.handle().enter();
    /// assert_eq!(fibra::spawn(|| 7).join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "the runtime is current until the guard is dropped"]
    pub fn enter(&self) -> EnterGuard {
        current::enter(self.shared.clone());
        EnterGuard { shared: self.shared.clone(), _not_send: std::marker::PhantomData }
    }

    /// Starts a fiber on this runtime; see [`Runtime::spawn`](crate::Runtime::spawn). After the runtime is gone, the handle says that it
    /// was cancelled.
    #[track_caller]
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: `Send` and `'static`.
        unsafe { spawn_with(&self.shared, self.shared.root, f, Location::caller(), flag::NONE, None) }
    }

    /// Starts what `builder` describes on this runtime.
    ///
    /// # Errors
    /// See [`Builder::spawn`].
    #[track_caller]
    pub fn spawn_with<F, T>(&self, builder: Builder, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        builder.spawn_in(&self.shared, self.shared.root, f, Location::caller(), flag::NONE)
    }

    /// A scope whose children run on this runtime; see [`scope`](crate::scope()). The body runs where this is called, on any thread.
    ///
    /// ```
    /// let rt = fibra::Runtime::builder().workers(1).build()?;
    /// let text = String::from("borrowed by a fiber");
    /// let len = rt.handle().scope(|s| s.spawn(|| text.len()).join().unwrap());
    /// assert_eq!(len, 19);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// Like [`scope`](crate::scope()); on a fiber of another runtime.
    #[track_caller]
    pub fn scope<'env, F, T>(&self, f: F) -> T
    where
        F: for<'scope> FnOnce(&'scope crate::scope::Scope<'scope, 'env>) -> T,
    {
        assert!(
            current::worker().is_none_or(|worker| Arc::ptr_eq(&worker.shared, &self.shared)),
            "fibra: Handle::scope on a fiber of another runtime: its children would belong to two"
        );
        let _entered = self.enter();
        crate::scope::scope(f)
    }

    /// What the runtime has counted so far.
    pub fn metrics(&self) -> Metrics {
        Metrics::collect(&self.shared)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("name", &self.shared.config.name).finish_non_exhaustive()
    }
}

/// Keeps a runtime current on this thread; see [`Handle::enter`].
#[must_use = "the runtime is current until the guard is dropped"]
pub struct EnterGuard {
    shared: Arc<RuntimeShared>,
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Drop for EnterGuard {
    fn drop(&mut self) {
        current::leave(&self.shared);
    }
}

impl fmt::Debug for EnterGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnterGuard").field("runtime", &self.shared.config.name).finish()
    }
}
