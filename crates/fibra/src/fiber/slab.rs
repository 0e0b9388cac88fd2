//! The slab of frames: where free ones lie, for the whole process, and how their memory goes back after a flood.
//!
//! Above: workers take frames through a [`FrameCache`] each, other threads straight from here; `trim` calls [`trim`]. Below: the allocator.
//!
//! Frames are made in chunks, which are never freed. But the pages of a *block* (so many frames as fill whole pages: 64 in three of 4 KiB)
//! go back to the system when all frames of the block have been free for a while, and come again, as zeros, when one is touched.
//!
//! # Why that is allowed
//!
//! Stale wakers, queue entries and timers hold (frame, ticket) for any length of time, and look at the word. What they rely on is that
//! a word is a word for ever, and that no ticket is given out twice by one frame.
//! * While the block has no memory, the word reads as zero: INIT with ticket 0. All that is ever done with a stale pair is a claim, which
//!   wants PARKING or PARKED and its ticket, or a start, which wants RUNNABLE and its ticket: INIT is neither. (A read-modify-write that
//!   changes nothing, which a late claim does, brings back a page of zeros: memory, but no harm.)
//! * Before the memory goes, the highest ticket of the block is noted outside it; before a frame of the block is handed out again, each
//!   gets that ticket ([`Word::renew`](crate::wait::word::Word::renew)), and its next wait a higher one. So a stale pair meets a word
//!   that has its ticket neither before (ended), nor meanwhile (0 is never given out), nor after.
//! * Only the owner writes to a free frame; the owner is the slab, under its lock, or the trimmer that took the frame out of it.
//! * If the system refuses, or keeps what was there, then the words are what they were, and the above holds all the more.
//!
//! Which blocks: at each look, of the frames that nobody needed since the last look, and never so many that fewer than [`RESERVE`] stay.
//! Free frames in blocks where another frame is in use stay as they are.

use std::alloc::Layout;
use std::ptr;

use super::frame::{Frame, FrameRef};
use super::stack::{discard, page_size};
use super::trim;
use crate::prim::sync::{Mutex, MutexGuard};
use crate::wait::word::Ticket;

/// Frames made at once when the slab is empty; more where a block is larger.
const CHUNK: usize = 512;
/// Frames a cache takes from the depot, or gives back to it, at once.
const BATCH: usize = 128;
/// Frames a cache keeps before it gives a batch back.
const CACHE_LIMIT: usize = 4 * BATCH;
/// Frames that a worker which rests keeps for itself.
const REST: usize = 64;
/// Free frames that always keep their memory: 400 KiB.
const RESERVE: usize = 2048;
/// So many more free frames than at a look that found no free block, and another look may be worth it.
const NEXT_LOOK: usize = 512;

/// So many frames more may be given back while the memory of others goes, without a need for memory.
const TRIM_SLACK: usize = 4096;

/// Frames that fill whole pages together: three pages, since a frame has three lines of 64 bytes.
fn block_frames() -> usize {
    page_size() / 64
}
const _: () = assert!(size_of::<Frame>() == 3 * 64);

/// The slab. See the header.
#[derive(Debug)]
pub(super) struct Slab {
    free: Vec<FrameRef>,
    /// Every chunk ever made, for the census.
    chunks: Vec<&'static [Frame]>,
    /// Free blocks without memory.
    without: Vec<Block>,
    /// The fewest free frames there were since the last look.
    idle: usize,
    /// The free frames at the last look that found more of them than are kept but no block to give back, or 0.
    scattered: usize,
}

/// A block whose memory went back.
#[derive(Debug)]
struct Block {
    frames: &'static [Frame],
    /// The highest ticket that a frame of it has given out.
    floor: Ticket,
}

static SLAB: Mutex<Slab> =
    Mutex::new(Slab { free: Vec::new(), chunks: Vec::new(), without: Vec::new(), idle: 0, scattered: 0 });

pub(super) type SlabLock = MutexGuard<'static, Slab>;

/// For a fork, over which nobody may be inside.
pub(super) fn lock_slab() -> SlabLock {
    SLAB.lock()
}

/// Every chunk ever made.
pub(super) fn chunks() -> Vec<&'static [Frame]> {
    SLAB.lock().chunks.clone()
}

impl Slab {
    fn take(&mut self) -> FrameRef {
        if self.free.is_empty() {
            self.refill();
        }
        let frame = self.free.pop().expect("the slab was just filled");
        self.idle = self.idle.min(self.free.len());
        frame
    }

    fn refill(&mut self) {
        let frames = match self.without.pop() {
            Some(Block { frames, floor }) => {
                frames.iter().for_each(|frame| frame.revive(floor));
                frames
            }
            None => {
                let chunk = new_chunk();
                self.chunks.push(chunk);
                chunk
            }
        };
        self.free.extend(frames.iter().rev());
    }

    /// Is there so much that a look at it is worth while?
    fn is_fat(&self) -> bool {
        self.free.len() > 2 * RESERVE && self.free.len() > self.scattered + NEXT_LOOK
    }
}

/// A chunk of new frames at the start of a page, so that its blocks are whole pages.
fn new_chunk() -> &'static [Frame] {
    let count = CHUNK.max(block_frames());
    let layout = Layout::array::<Frame>(count).and_then(|layout| layout.align_to(page_size()));
    let layout = layout.expect("a chunk is a few pages");
    // SAFETY: the layout has a size; each frame is written before anybody has it, and the memory is never freed.
    unsafe {
        let first = std::alloc::alloc(layout).cast::<Frame>();
        if first.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        (0..count).for_each(|index| first.add(index).write(Frame::new()));
        std::slice::from_raw_parts(first, count)
    }
}

/// Is there memory of frames to give back?
pub(super) fn is_fat() -> bool {
    SLAB.lock().is_fat()
}

/// Gives back the memory of free blocks that nobody has needed since the last call; the first call only begins to watch. Answers how
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
    // (What the blocks leave over of a chunk, if anything.)
    scattered.extend_from_slice(rest);
    memory.extend(given.iter().map(|block| (block.frames.as_ptr().cast_mut().cast(), size_of_val(block.frames))));
    // SAFETY: whole pages of free frames that only this function has; why their words may go is in the header.
    unsafe { discard(memory.iter().copied()) };
    let kept = whole.len() + scattered.len();
    let mut slab = SLAB.lock();
    // Those of blocks that are in use anyway are taken first.
    whole.append(scattered);
    whole.append(&mut slab.free);
    slab.free = std::mem::take(whole);
    slab.idle = slab.free.len();
    slab.scattered = if given.is_empty() { kept } else { 0 };
    slab.without.append(given);
    count - kept
}

/// What [`trim`] works with. All of it is reserved before it begins: there may be no memory left, and that must not end the process.
#[derive(Default)]
struct Workshop {
    /// All that are free, because only all of them together show which blocks are. Who needs one meanwhile gets another.
    frames: Vec<FrameRef>,
    chunks: Vec<&'static [Frame]>,
    scattered: Vec<FrameRef>,
    whole: Vec<FrameRef>,
    given: Vec<Block>,
    memory: Vec<(*mut u8, usize)>,
}

/// Takes the free frames out of the slab, and says how many may go; `None` if there are not enough, or no memory to find out which.
fn begin_to_trim() -> Option<(Workshop, usize)> {
    let (free, made) = {
        let slab = SLAB.lock();
        (slab.free.len() + TRIM_SLACK, slab.chunks.len() + TRIM_SLACK)
    };
    let mut work = Workshop::default();
    // `frames` is what others put their frames into meanwhile.
    work.frames.try_reserve_exact(TRIM_SLACK).ok()?;
    work.chunks.try_reserve_exact(made).ok()?;
    work.scattered.try_reserve_exact(free).ok()?;
    work.whole.try_reserve_exact(free + TRIM_SLACK).ok()?;
    work.given.try_reserve_exact(free / block_frames()).ok()?;
    work.memory.try_reserve_exact(free / block_frames()).ok()?;
    let mut slab = SLAB.lock();
    let spare = slab.idle.min(slab.free.len()).saturating_sub(RESERVE);
    slab.idle = slab.free.len();
    if spare < block_frames() || slab.free.len() > free || slab.chunks.len() > made {
        return None;
    }
    slab.without.try_reserve(spare / block_frames()).ok()?;
    work.chunks.extend_from_slice(&slab.chunks);
    std::mem::swap(&mut slab.free, &mut work.frames);
    Some((work, spare))
}

/// One owner's free frames: no atomics on take and give.
#[derive(Debug, Default)]
pub(crate) struct FrameCache {
    free: Vec<FrameRef>,
}

impl FrameCache {
    pub(crate) const fn new() -> Self {
        Self { free: Vec::new() }
    }

    /// A frame in INIT.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> FrameRef {
        match self.free.pop() {
            Some(frame) => {
                if let Some(next) = self.free.last() {
                    next.prefetch();
                }
                frame
            }
            None => self.refill(),
        }
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> FrameRef {
        if self.free.capacity() == 0 {
            self.free.reserve_exact(CACHE_LIMIT + BATCH);
        }
        let mut slab = SLAB.lock();
        let frame = slab.take();
        let keep = slab.free.len().saturating_sub(BATCH);
        self.free.extend(slab.free.drain(keep..));
        slab.idle = slab.idle.min(keep);
        frame
    }

    /// Takes a frame back. Its word must be in INIT, and nobody may refer to it but by stale tickets.
    #[inline(always)]
    pub(crate) fn give(&mut self, frame: FrameRef) {
        if self.free.len() >= CACHE_LIMIT {
            self.spill(BATCH);
        }
        self.free.push(frame);
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, count: usize) {
        let keep = self.free.len() - count.min(self.free.len());
        let mut slab = SLAB.lock();
        slab.free.extend(self.free.drain(keep..));
        let is_fat = slab.is_fat();
        drop(slab);
        if is_fat {
            trim::want();
        }
    }

    /// Does it hold more than a worker that rests needs?
    pub(crate) fn is_fat(&self) -> bool {
        self.free.len() > 2 * REST
    }

    /// Gives back what a worker that rests does not need.
    pub(crate) fn shed(&mut self) {
        self.spill(self.free.len().saturating_sub(REST));
    }

    /// Gives everything back, when the owner ends.
    pub(crate) fn flush(&mut self) {
        self.spill(usize::MAX);
    }
}

/// For threads that are no workers: straight from and to the slab.
pub(crate) fn take_shared() -> FrameRef {
    SLAB.lock().take()
}

/// See [`take_shared`].
pub(crate) fn give_shared(frame: FrameRef) {
    let mut slab = SLAB.lock();
    slab.free.push(frame);
    let is_fat = slab.is_fat();
    drop(slab);
    if is_fat {
        trim::want();
        trim::see_to_it();
    }
}

#[cfg(test)]
mod tests;
