//! The slab of frames: it keeps the free frames of the whole process, and gives their memory back to the system after a flood.
//!
//! Above: workers take frames through a [`FrameCache`] each, other threads straight from here; `trim` calls [`trim`]. Below: `prim::slab`,
//! where frames lie like all records that are never freed.
//!
//! Frames differ from other records in one point: there are so many of them after a flood that the pages of a *block* (so many frames as
//! fill whole pages: 64 in three of 4 KiB) go back to the system when all frames of the block have been free for a while, and come again,
//! as zeros, when one is touched. Until then the block lies aside.
//!
//! # Why that is allowed
//!
//! Completion owners, stale queue entries and timers hold (frame, ticket) for any length of time, and look at the word. They
//! rely on two facts: a word is a word for ever, and no ticket is given out twice by one frame.
//! * While the block has no memory, the word reads as zero: INIT with ticket 0. All that is ever done with a stale pair is a claim, which
//!   wants PARKING or PARKED and its ticket, or a start, which wants RUNNABLE and its ticket: INIT is neither. (A read-modify-write that
//!   changes nothing, which a late claim does, brings back a page of zeros: memory, but no harm.)
//! * Before the memory goes, the highest ticket of the block is noted outside it; before a frame of the block is handed out again, each
//!   gets that ticket ([`Word::renew`](crate::waiter::word::Word::renew)), and its next wait a higher one. So a stale pair meets a word
//!   that has its ticket neither before (ended), nor meanwhile (0 is never given out), nor after.
//! * A waker has no ticket (`wait::poll`): a call that comes late raises NOTIFIED in a frame that is free, and finds INIT. No code asks a
//!   free frame for that flag, and each life begins with flags of its own, whatever was there.
//! * Apart from that flag, only the owner writes to a free frame; it is the slab, under its lock, or the trimmer that took the frame out.
//! * If the system refuses, or keeps what was there, then the words are what they were, and the above holds all the more.
//!
//! Blocks given back at each look: among the frames that were not needed since the last look, and never so many that fewer than
//! [`RESERVE`] stay. Free frames in blocks where another frame is in use stay as they are.

use std::ptr;

use super::frame::{Frame, FrameRef};
use super::stack::{discard, page_size};
use super::trim;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::slab::{CHUNKS, Cache, Free, Record, Slab};
use crate::waiter::word::Ticket;

/// Frames made at once when the slab is empty; more where a block is larger.
const CHUNK: usize = 512;
/// Free frames that always keep their memory: 400 KiB.
const RESERVE: usize = 2048;
/// After a look that found no free block: so many more free frames make another look worth while.
const NEXT_LOOK: usize = 512;

/// So many more frames may be given to the slab while a trim gives memory of others to the system, without a need for memory.
const TRIM_SLACK: usize = 4096;

/// Frames that fill whole pages together: three pages, since a frame has three lines of 64 bytes.
fn block_frames() -> usize {
    page_size() / 64
}
const _: () = assert!(size_of::<Frame>() == 3 * 64);

/// A block whose memory went back.
#[derive(Debug)]
pub(crate) struct Block {
    frames: &'static [Frame],
    /// The highest ticket that a frame of it has given out.
    floor: Ticket,
}

static FRAMES: Slab<Frame> = Slab::new();
/// The free frames at the last look that found more of them than are kept but no block to give back, or 0. Written and read under the lock
/// of the slab.
static SCATTERED: AtomicUsize = AtomicUsize::new(0);

/// One worker's free frames.
pub(crate) type FrameCache = Cache<Frame>;

impl Record for Frame {
    /// At least one block, whatever the size of a page.
    const FIRST: usize = 1024;
    const BATCH: usize = 128;
    const KEPT: usize = 4 * Self::BATCH;
    const REST: usize = 64;
    type Aside = Block;

    #[inline(always)]
    fn slab() -> &'static Slab<Self> {
        &FRAMES
    }

    fn make(_: u32) -> Self {
        Frame::new()
    }

    fn step() -> usize {
        CHUNK.max(block_frames())
    }

    /// So that blocks are whole pages.
    fn alignment() -> usize {
        page_size()
    }

    fn recall(Block { frames, floor }: Block) -> &'static [Frame] {
        frames.iter().for_each(|frame| frame.revive(floor));
        frames
    }

    fn gave(slab: FreeFrames) {
        let is_fat = is_shelf_fat(&slab);
        drop(slab);
        if is_fat {
            trim::want();
        }
    }

    #[inline(always)]
    fn prefetch(&'static self) {
        Frame::prefetch(self);
    }
}

/// The slab of frames, for a debugger.
pub(super) const fn frames() -> &'static Slab<Frame> {
    &FRAMES
}

pub(super) type FreeFrames = Free<Frame>;

/// For a fork: no other thread is inside the slab meanwhile.
pub(super) fn lock_slab() -> FreeFrames {
    FRAMES.lock()
}

/// Every frame ever made, free ones included.
pub(super) fn all() -> impl Iterator<Item = FrameRef> {
    FRAMES.all()
}

/// Are there so many free frames that a look at them is worth while?
fn is_shelf_fat(slab: &FreeFrames) -> bool {
    // Relaxed: under the lock.
    slab.records.len() > 2 * RESERVE && slab.records.len() > SCATTERED.load(Ordering::Relaxed) + NEXT_LOOK
}

/// Is there memory of frames to give back?
pub(super) fn is_fat() -> bool {
    is_shelf_fat(&FRAMES.lock())
}

/// Gives back the memory of free blocks that were not needed since the last call; the first call only begins to watch. Returns how
/// many frames that were. It needs a little memory itself; without that it does nothing.
pub(super) fn trim() -> usize {
    let Some((mut workshop, mut spare)) = begin_to_trim() else { return 0 };
    let Workshop { frames, chunks, scattered, whole, given, memory } = &mut workshop;
    frames.sort_unstable_by_key(|frame| ptr::from_ref(*frame));
    chunks.sort_unstable_by_key(|chunk| chunk.as_ptr());
    let count = frames.len();
    let mut rest = frames.as_slice();
    for block in chunks.iter().flat_map(|chunk| chunk.chunks_exact(block_frames())) {
        let end = block.as_ptr_range().end;
        let (here, later) = rest.split_at(rest.partition_point(|frame| ptr::from_ref(*frame) < end));
        rest = later;
        if here.len() < block.len() {
            scattered.extend_from_slice(here);
        } else if spare >= block.len() {
            spare -= block.len();
            let floor = block.iter().map(|frame| frame.waiter.word.snapshot().ticket().to_bits()).max();
            given.push(Block { frames: block, floor: Ticket::from_bits(floor.unwrap_or(0)) });
        } else {
            whole.extend_from_slice(here);
        }
    }
    // (The frames of a chunk that do not fill a block, if there are any.)
    scattered.extend_from_slice(rest);
    memory.extend(given.iter().map(|block| (block.frames.as_ptr().cast_mut().cast(), size_of_val(block.frames))));
    // SAFETY: whole pages of free frames that only this function has; why their words may go is in the header.
    unsafe { discard(memory.iter().copied()) };
    let kept = whole.len() + scattered.len();
    let mut slab = FRAMES.lock();
    // Frames of blocks that are in use anyway are taken first.
    whole.append(scattered);
    whole.append(&mut slab.records);
    slab.records = std::mem::take(whole);
    slab.idle = slab.records.len();
    // Relaxed: under the lock.
    SCATTERED.store(if given.is_empty() { kept } else { 0 }, Ordering::Relaxed);
    slab.aside.append(given);
    count - kept
}

/// The working memory of [`trim`]. All of it is reserved before it begins: there may be no memory left, and that must not end the process.
#[derive(Default)]
struct Workshop {
    /// All free frames, because only all of them together show which blocks are free. A spawner that needs a frame meanwhile gets another.
    frames: Vec<FrameRef>,
    chunks: Vec<&'static [Frame]>,
    scattered: Vec<FrameRef>,
    whole: Vec<FrameRef>,
    given: Vec<Block>,
    memory: Vec<(*mut u8, usize)>,
}

/// Takes the free frames out of the slab, and returns how many may go; `None` if there are not enough, or no memory to find out which.
fn begin_to_trim() -> Option<(Workshop, usize)> {
    let free = FRAMES.lock().records.len() + TRIM_SLACK;
    let mut work = Workshop::default();
    // Other threads give their frames into `frames` meanwhile.
    work.frames.try_reserve_exact(TRIM_SLACK).ok()?;
    work.chunks.try_reserve_exact(CHUNKS).ok()?;
    work.scattered.try_reserve_exact(free).ok()?;
    work.whole.try_reserve_exact(free + TRIM_SLACK).ok()?;
    work.given.try_reserve_exact(free / block_frames()).ok()?;
    work.memory.try_reserve_exact(free / block_frames()).ok()?;
    let mut slab = FRAMES.lock();
    let spare = slab.idle.min(slab.records.len()).saturating_sub(RESERVE);
    slab.idle = slab.records.len();
    if spare < block_frames() || slab.records.len() > free {
        return None;
    }
    slab.aside.try_reserve(spare / block_frames()).ok()?;
    work.chunks.extend(FRAMES.made_chunks());
    std::mem::swap(&mut slab.records, &mut work.frames);
    Some((work, spare))
}

/// For threads that are no workers: straight from and to the slab.
pub(crate) fn take_shared() -> FrameRef {
    FRAMES.take()
}

/// See [`take_shared`].
pub(crate) fn give_shared(frame: FrameRef) {
    let mut slab = FRAMES.lock();
    slab.records.push(frame);
    let is_fat = is_shelf_fat(&slab);
    drop(slab);
    if is_fat {
        trim::want();
        trim::see_to_it();
    }
}

#[cfg(test)]
mod tests;
