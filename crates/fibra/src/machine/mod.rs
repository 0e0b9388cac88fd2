//! The event loop's own parts. So far: the timer store of a worker. Operations, ports and machines join it here.
//!
//! Above: `sched` (the worker's loop) and `wait`. Below: `driver`, which waits for the kernel, and `prim`.

pub(crate) mod timer;
