//! The ground floor of a fiber: its record, its stack and the switch between stacks.

pub(crate) mod context;
