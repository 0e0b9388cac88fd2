//! OS threads: starting named ones, and giving the time slice away.

#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(all(shuttle, not(loom)))]
pub(crate) use shuttle::thread::yield_now;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::thread::yield_now;

pub(crate) use std::thread::JoinHandle;

/// Starts a named OS thread. Fails (it does not panic) when the system has no thread left to give.
#[cfg(not(loom))]
pub(crate) fn start(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(body)
}
