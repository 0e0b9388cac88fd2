//! The special kinds of channels: one file each.

mod broadcast;
mod cancelled_anywhere;
mod oneshot;
mod ordered;
mod pool;
mod selected;
mod watch;
