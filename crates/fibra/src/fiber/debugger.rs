//! What a debugger needs to find the fibers of a stopped process, or of a core file: where frames lie, and where in a frame and at the top
//! of a stack each part is. `gdb/fibra.py` reads it, so that it needs no debug information of fibra, only symbols.
//!
//! Above: `inspect::debugger`, which adds the words of the wait reasons and keeps the map in the program. Below: the records it describes.
//!
//! Invariant: a change of what a number here means raises [`VERSION`], which the script compares with its own.

use std::mem::offset_of;

use super::frame::{Extras, Frame};
use super::slab;
use super::stack::StackTop;
use super::top::FiberTop;
use crate::prim::slab::{Record, Slab};

/// The version of the map that follows.
pub(crate) const VERSION: usize = 1;

/// Addresses and offsets, in the order in which the script reads them.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct FiberMap {
    version: usize,
    frames: &'static Slab<Frame>,
    /// In the slab: the array of chunks, and the number of frames that are made; then the frames of the first chunk.
    chunks: usize,
    made: usize,
    first_chunk: usize,
    frame_size: usize,
    /// In a frame.
    word: usize,
    context: usize,
    stack: usize,
    id: usize,
    site: usize,
    extras: usize,
    /// In the extras: the name, an `Option<Arc<str>>`.
    name: usize,
    /// In the record at the top of a stack: where the fiber's own part begins.
    user_area: usize,
    /// In that part: reason, object, site, since, status, length of the status.
    top: [usize; 6],
}

/// The map of this build.
pub(crate) const fn map() -> FiberMap {
    let [chunks, made] = Slab::<Frame>::PARTS;
    let [id, site, extras] = Frame::PARTS;
    FiberMap {
        version: VERSION,
        frames: slab::frames(),
        chunks,
        made,
        first_chunk: Frame::FIRST,
        frame_size: size_of::<Frame>(),
        word: offset_of!(Frame, waiter),
        context: offset_of!(Frame, context),
        stack: offset_of!(Frame, stack),
        id,
        site,
        extras,
        name: offset_of!(Extras, name),
        user_area: StackTop::USER_OFFSET,
        top: FiberTop::PARTS,
    }
}
