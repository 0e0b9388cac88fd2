//! Tests of frames whose memory goes away and comes again. Each in a process of its own, where no other test takes frames.

use super::*;
use crate::fiber::testing::passes_in_child;
use crate::prim::atomic::AtomicBool;
use crate::waiter::word::{Claim, Commit, WaitKind, WaiterState};

/// A life of a frame up to a wait, which is over at the end; returns the ticket that a stale waker of it holds.
fn live(frame: FrameRef, waits: u64) -> Ticket {
    let word = &frame.waiter.word;
    let start = word.publish_spawned();
    assert!(word.start(start));
    let mut ticket = start;
    for _ in 0..waits {
        ticket = word.begin_park(WaitKind::Revocable);
        assert_eq!(word.claim(ticket, 0, true), Claim::Held);
        let _ = word.release();
        assert_eq!(word.commit_park(), Commit::Requeue);
        word.resume();
    }
    word.finish(false);
    word.recycle();
    ticket
}

// S4-12: frames are not given back to the allocator: their memory may go, but the frame stays where it was, can be looked at meanwhile, and
// is the one that is taken next. A stale waker has no effect on it then, nor on its later lives, however short the earlier ones were.
#[test]
fn frames_give_out_no_ticket_twice_when_their_memory_went_back() {
    passes_in_child("fiber::slab::tests::frames_give_out_no_ticket_twice_when_their_memory_went_back", &[], || {
        const COUNT: usize = 40 * CHUNK;
        let frames: Vec<FrameRef> = (0..COUNT).map(|_| take_shared()).collect();
        // In each block another frame has the longest life.
        let stale: Vec<Ticket> =
            frames.iter().enumerate().map(|(index, frame)| live(frame, index as u64 % 97)).collect();
        frames.iter().for_each(|frame| FRAMES.give(frame));
        assert!(is_fat());
        assert_eq!(trim(), 0, "the first look only begins to watch");
        let given = trim();
        assert!(given > COUNT - 2 * RESERVE && given <= COUNT, "{given}");
        assert!(!is_fat());
        let memory = |frame: FrameRef| frame.waiter.word.snapshot();
        let without: Vec<usize> = FRAMES
            .lock()
            .aside
            .iter()
            .flat_map(|block| block.frames)
            .map(|frame| ptr::from_ref(frame).addr())
            .collect();
        assert_eq!(without.len(), given);
        assert!(without.iter().all(|frame| {
            // SAFETY: the address of a frame.
            let frame: FrameRef = unsafe { Frame::from_address(*frame) };
            memory(frame).ticket() == Ticket::from_bits(0)
        }));
        let claim_all = || {
            for (frame, ticket) in frames.iter().zip(&stale) {
                assert_eq!(frame.waiter.word.claim(*ticket, 1, true), Claim::Lost);
                assert!(!frame.waiter.word.start(*ticket));
            }
        };
        claim_all();
        // All frames again: the same ones, each with a higher ticket than ever before at every step of its life.
        let again: Vec<FrameRef> = (0..COUNT).map(|_| take_shared()).collect();
        let addresses = |frames: &[FrameRef]| {
            let mut all: Vec<_> = frames.iter().map(|frame| ptr::from_ref(*frame).addr()).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(addresses(&frames), addresses(&again), "no new ones were made");
        for (frame, ticket) in frames.iter().zip(&stale) {
            let word = &frame.waiter.word;
            assert!(word.snapshot().is(WaiterState::Init) && memory(frame).ticket().to_bits() >= ticket.to_bits());
            let start = word.publish_spawned();
            assert!(!word.start(*ticket) && word.start(start));
            let _ = word.begin_park(WaitKind::Revocable);
        }
        claim_all();
    });
}

// One frame of each block is in use: no memory can go back, and the trimmer finds that out once.
#[test]
fn blocks_with_a_frame_in_use_are_left_alone() {
    passes_in_child("fiber::slab::tests::blocks_with_a_frame_in_use_are_left_alone", &[], || {
        let chunks: Vec<FrameRef> = (0..20 * CHUNK).map(|_| take_shared()).collect();
        let every: Vec<FrameRef> = FRAMES.all().collect();
        assert_eq!(every.len(), chunks.len());
        let mut used = Vec::new();
        for (index, frame) in every.iter().enumerate() {
            if index % block_frames() == 7 {
                used.push(*frame);
            } else {
                FRAMES.give(frame);
            }
        }
        assert!(is_fat());
        assert_eq!((trim(), trim()), (0, 0));
        assert!(!is_fat(), "the trimmer does not look again");
        used.iter().for_each(|frame| FRAMES.give(frame));
        SCATTERED.store(0, Ordering::Relaxed); // Relaxed: there is no other thread.
        assert!(trim() > chunks.len() - 2 * RESERVE);
    });
}

// The same with wakers that come while the memory goes and comes.
#[test]
fn stale_wakers_change_nothing_while_memory_goes_and_comes() {
    passes_in_child("fiber::slab::tests::stale_wakers_change_nothing_while_memory_goes_and_comes", &[], || {
        const COUNT: usize = 16 * CHUNK;
        let mut frames: Vec<FrameRef> = (0..COUNT).map(|_| take_shared()).collect();
        let stale: Vec<(FrameRef, Ticket)> =
            frames.iter().enumerate().map(|(index, frame)| (*frame, live(frame, index as u64 % 13))).collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    // Relaxed: it only ends the loop.
                    while !over.load(Ordering::Relaxed) {
                        for (frame, ticket) in &stale {
                            assert_eq!(frame.waiter.word.claim(*ticket, 1, true), Claim::Lost);
                            assert!(!frame.waiter.word.start(*ticket));
                        }
                    }
                });
            }
            for _ in 0..20 {
                frames.iter().for_each(|frame| FRAMES.give(frame));
                trim();
                assert!(trim() > 0);
                frames = (0..COUNT).map(|_| take_shared()).collect();
                // Each step of these lives asserts that it went as if no other thread used the frame.
                frames.iter().for_each(|frame| {
                    let _ = live(frame, 2);
                });
            }
            over.store(true, Ordering::Relaxed); // Relaxed: as above.
        });
    });
}

/// Runs `f` while the slab is locked: it must end.
fn while_the_slab_is_locked<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = std::sync::mpsc::channel();
    let locked = lock_slab();
    let worker = std::thread::spawn(move || done.send(f()));
    let ended = ended.recv_timeout(std::time::Duration::from_secs(60));
    drop(locked);
    worker.join().expect("it ends").expect("the receiver is alive");
    ended.expect("the global reserve is needed although the own cache is warm")
}

// S1-40, S4-10: frames come from a cache of the worker's own, the last one given first, without the lock of the reserve that all share;
// frames that are too many for one cache go to the reserve, and from there to another cache.
#[test]
fn a_worker_has_frames_of_its_own() {
    passes_in_child("fiber::slab::tests::a_worker_has_frames_of_its_own", &[], || {
        let address = |frame: FrameRef| ptr::from_ref(frame).addr();
        let mut mine = FrameCache::new();
        let warm: Vec<FrameRef> = (0..Frame::BATCH).map(|_| mine.take()).collect();
        warm.iter().for_each(|frame| mine.give(frame));
        let mut mine = while_the_slab_is_locked(move || {
            for _ in 0..10 {
                let taken: Vec<FrameRef> = (0..Frame::BATCH).map(|_| mine.take()).collect();
                assert!(taken.iter().rev().zip(&warm).all(|(taken, given)| address(taken) == address(given)));
                taken.iter().rev().for_each(|frame| mine.give(frame));
            }
            mine
        });
        // Another worker's frames are different ones; only frames that this worker has too many of go over.
        let held: Vec<FrameRef> = (0..Frame::KEPT + Frame::BATCH).map(|_| mine.take()).collect();
        let mut other = FrameCache::new();
        let others: Vec<FrameRef> = (0..Frame::BATCH).map(|_| other.take()).collect();
        assert!(others.iter().all(|frame| held.iter().all(|mine| address(mine) != address(frame))));
        let before = FRAMES.lock().records.len();
        held.iter().for_each(|frame| mine.give(frame));
        assert!(FRAMES.lock().records.len() >= before + Frame::BATCH, "a batch went over");
        let from_mine = (0..2 * Frame::BATCH).map(|_| other.take()).filter(|frame| {
            let frame = address(frame);
            held.iter().any(|mine| address(mine) == frame)
        });
        assert!(from_mine.count() > 0, "and is another's now");
    });
}

// S1-41: a frame that was taken belongs to the taker alone, whichever threads take at the same time, from the reserve or from caches.
#[test]
fn no_other_thread_has_a_frame_that_was_taken() {
    passes_in_child("fiber::slab::tests::no_other_thread_has_a_frame_that_was_taken", &[], || {
        let owners: Vec<AtomicBool> = (0..64 * CHUNK).map(|_| AtomicBool::new(false)).collect();
        let numbers = |frame: FrameRef| {
            let (mut number, here) = (0, ptr::from_ref(frame));
            for chunk in FRAMES.made_chunks() {
                if chunk.as_ptr_range().contains(&here) {
                    return number + (here.addr() - chunk.as_ptr().addr()) / size_of::<Frame>();
                }
                number += chunk.len();
            }
            panic!("a frame is in a chunk")
        };
        std::thread::scope(|scope| {
            for number in 0..4 {
                let owners = &owners;
                scope.spawn(move || {
                    let mut cache = FrameCache::new();
                    for round in 0..200 {
                        let mut take = || if number == 3 { take_shared() } else { cache.take() };
                        let taken: Vec<FrameRef> = (0..1 + round % 300).map(|_| take()).collect();
                        // Relaxed, both: whether another thread has it at the same time is all that is asked.
                        taken.iter().for_each(|frame| {
                            assert!(!owners[numbers(frame)].swap(true, Ordering::Relaxed), "two have one frame");
                        });
                        taken.into_iter().for_each(|frame| {
                            owners[numbers(frame)].store(false, Ordering::Relaxed); // Relaxed: as above.
                            if number == 3 { give_shared(frame) } else { cache.give(frame) }
                        });
                    }
                    cache.flush();
                });
            }
        });
    });
}
