//! The special kinds of channels: one file each.

mod broadcast;
mod oneshot;
mod ordered;
mod pool;
mod watch;
