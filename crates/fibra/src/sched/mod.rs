//! The scheduler: what runs where and when.

pub(crate) mod blocking;
