//! The reactor: which sockets are waited for, where they are registered, and how a report of the system comes to those who wait.
//!
//! In reading order:
//!
//! ```text
//! readiness.rs   the protocol of one socket: tries, registrations, reports, and why no edge is lost
//! source.rs      the sockets of the process, and how completions of the drivers come to them
//! outside_io.rs  the process-wide epoll thread for waits from threads that are not workers
//! signals.rs     who listens to which signal of the system
//! ```
//!
//! Above: `wait::io`, the loop around every operation on a socket. Below: `sched`, whose workers look at their drivers and bring what these
//! report (`sched::rules::IoRules`, which `source::Rules` answers); `driver`.

#[cfg(not(any(loom, shuttle)))]
pub(crate) mod outside_io;
pub(crate) mod readiness;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod signals;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod source;
