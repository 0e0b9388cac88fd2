//! Models of the protocols that cross threads: an operation and its cancellation between two loops, the sleep of a
//! loop, doorbells, the end of a loop.
//!
//! Above: loom. Below: `node`, `mail`, `pool`, as shipped. A thread plays each loop: it takes everything out of its
//! mail, does what `rounds` would do, and sleeps by the same handshake.

use super::address::{CANCELLED, MachineRef};
use super::link::{Link, LinkKind};
use super::mail::Post;
use super::node::{InFlight, NodeRef, OpNode, OpStage, Owned};
use super::op::Op;
use super::pool::OpPool;
use crate::prim::model::{check, thread};
use crate::prim::mpsc::Batch;
use crate::prim::sync::Arc;

const OPCODE: u32 = 7;

/// The messages that a loop finds in its mail.
enum Item {
    Main(Owned),
    Cancel(NodeRef),
    Note(NodeRef),
}

/// Takes all mail out; sleeps first, as a loop does, if there is none.
fn receive(post: &Post) -> Vec<Item> {
    loop {
        let items = taken(post.mail.take_all());
        if !items.is_empty() {
            return items;
        }
        post.mail.sleep(|may_sleep| {
            if may_sleep {
                let mut kicked = post.bell.0.lock();
                while !*kicked {
                    kicked = post.bell.1.wait(kicked);
                }
                *kicked = false;
            }
        });
    }
}

/// Opens what came out of the mail.
fn taken(links: Batch<Link>) -> Vec<Item> {
    let open = |link| {
        // SAFETY: part of a node that was sent.
        let (node, kind) = unsafe { Link::node(link) };
        match kind {
            // SAFETY: the right that was given up for the link, taken back once.
            LinkKind::Main => Item::Main(unsafe { Owned::from_raw(node) }),
            // SAFETY: as above.
            LinkKind::Cancel => Item::Cancel(unsafe { NodeRef::from_raw(node) }),
            // SAFETY: as above.
            LinkKind::Note => Item::Note(unsafe { NodeRef::from_raw(node) }),
        }
    };
    links.map(open).collect()
}

fn send(post: &Post, owned: Owned) {
    let link = OpNode::link(owned.into_raw(), LinkKind::Main);
    // SAFETY: given up for its link.
    assert!(unsafe { post.send(link) }.is_ok());
}

/// Submits as `Ports::submit` does; gives the entry that the list of operations in flight would have.
fn submit(pool: &mut OpPool<u32>, data: u32, home: &Arc<Post>, to: &Post) -> Option<(u64, InFlight)> {
    let mut request = pool.take(OPCODE, data).ok()?.into_request();
    request.owned.fix(|fixed| fixed.source = Some(MachineRef::app(0)));
    let (op, id) = (request.owned.submit(home), request.owned.fixed().id);
    send(to, request.owned);
    Some((id, op))
}

/// A round of the target's loop: counts the submission up, and answers it at once, or when it is cancelled.
fn target_round(there: &Post, at_once: bool, held: &mut Option<Owned>, first: u64) {
    for item in taken(there.mail.take_all()) {
        match item {
            Item::Main(mut owned) => {
                *owned.data_mut::<u32>().unwrap().as_mut().unwrap() += 1;
                if at_once {
                    owned.answer(1);
                    drop(owned); // Answered: it goes home by mail.
                } else {
                    *held = Some(owned);
                }
            }
            Item::Cancel(cancel) => {
                assert_eq!(cancel.fixed().id, first, "its memory is not used again before this");
                match held.take() {
                    Some(mut owned) => {
                        owned.answer(CANCELLED);
                        drop(owned);
                    }
                    None => assert!(cancel.is_answered()),
                }
            }
            Item::Note(_) => unreachable!(),
        }
    }
}

/// A round of the initiator's loop. When the answer is there, it takes the next operation from its pool of one. The
/// pool gives it only if the cancellation has been acknowledged too; then no other thread touches that node.
fn initiator_round(here: &Post, at_once: bool, pool: &mut OpPool<u32>, op: &mut Option<InFlight>) -> Option<Op<u32>> {
    for item in taken(here.mail.take_all()) {
        let Item::Main(mut owned) = item else { unreachable!() };
        assert_eq!(owned.state(), OpStage::Answered);
        owned.arrive();
        assert_eq!(owned.moving().result, if at_once { 1 } else { CANCELLED });
        assert_eq!(owned.data_mut::<u32>().unwrap().take(), Some(11));
        drop(owned);
        assert!(op.take().is_some(), "one answer"); // Home: out of the list of what is in flight.
        return pool.take(OPCODE, 20).ok();
    }
    None
}

/// The initiator cancels while the target has its operation in hand.
fn cancel_against_completion(at_once: bool) {
    check(2, move || {
        let (here, there) = (Arc::new(Post::new(0)), Arc::new(Post::new(1)));
        let mut pool = OpPool::with_capacity(1);
        let (first, op) = submit(&mut pool, 10, &here, &there).unwrap();
        let target = {
            let there = there.clone();
            thread::spawn(move || {
                let mut held = None;
                target_round(&there, at_once, &mut held, first);
                target_round(&there, at_once, &mut held, first);
                Dropping(held)
            })
        };
        // In flight until its home has taken it: the cancellation is requested through the home's `InFlight`.
        let cancel = op.cancel().expect("the first to ask");
        assert!(op.cancel().is_none(), "asking twice is asking once");
        let link = OpNode::link(cancel.into_raw(), LinkKind::Cancel);
        // SAFETY: the reference was given up for its link.
        assert!(unsafe { there.send(link) }.is_ok());
        let mut op = Some(op);
        let mut next = initiator_round(&here, at_once, &mut pool, &mut op);
        // One more round each, for what the two loops had not come to.
        let mut held = target.join().unwrap().0;
        target_round(&there, at_once, &mut held, first);
        next = next.or_else(|| initiator_round(&here, at_once, &mut pool, &mut op));
        assert!(op.is_none() && held.is_none(), "answered, whether the completion or the cancellation was faster");
        match next {
            Some(next) => assert_eq!((pool.available(), *next, next.id().get() > first), (0, 20, true)),
            None => assert_eq!(pool.available(), 1, "acknowledged twice, free once"),
        }
    });
}

// G-08, S3-48, S3-95: the completion and the cancellation cross; the completion wins, and nothing is used again before both are through.
#[test]
fn model_cancel_crosses_completion() {
    cancel_against_completion(true);
}

// S3-44, S3-45: the cancellation ends it; the answer comes all the same.
#[test]
fn model_cancel_is_answered() {
    cancel_against_completion(false);
}

// G-02, S3-68: two senders, an owner that sleeps whenever the mail is empty: no message is left waiting, and each
// sender's order holds.
#[test]
fn model_mail_against_sleep() {
    check(2, || {
        let here = Arc::new(Post::new(0));
        let senders: Vec<_> = (0..2_u32)
            .map(|sender| {
                let here = here.clone();
                thread::spawn(move || {
                    let mut pool = OpPool::with_capacity(2);
                    for number in 0..2 - sender {
                        submit(&mut pool, sender * 10 + number, &here, &here).unwrap();
                    }
                })
            })
            .collect();
        let mut next = [0, 10];
        while next != [2, 11] {
            for item in receive(&here) {
                let Item::Main(mut owned) = item else { unreachable!() };
                let number = owned.data_mut::<u32>().unwrap().take().unwrap();
                assert_eq!(number, next[number as usize / 10], "lost, doubled or out of order");
                next[number as usize / 10] += 1;
                owned.arrive();
            }
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

// S3-40, S3-42, G-07: two writers ring one doorbell; however many rings, the last write is seen, and the node is queued once at a time.
#[test]
fn model_doorbell_of_two_writers() {
    use crate::prim::atomic::{AtomicU32, Ordering};
    check(2, || {
        let here = Arc::new(Post::new(0));
        let mut pool = OpPool::with_capacity(1);
        let mut request = pool.take(OPCODE, 0_u32).unwrap().standing().into_request();
        request.owned.submit(&here);
        // Relaxed on purpose: the ring makes the write visible.
        let written = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (written, bell) = (written.clone(), request.doorbell());
                thread::spawn(move || {
                    written[writer].store(1, Ordering::Relaxed);
                    bell.ring();
                })
            })
            .collect();
        let mut seen = 0;
        while seen < 2 {
            for item in receive(&here) {
                let Item::Note(note) = item else { unreachable!() };
                note.unring();
                seen = written.iter().map(|written| written.load(Ordering::Relaxed)).sum();
            }
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        request.owned.answer(0);
        request.owned.arrive();
        drop(request);
        // A ring that came after the last look is still in the mail.
        drop(taken(here.mail.close()));
        assert_eq!(pool.available(), 1);
    });
}

// A loop closes its mail while something is sent to it: sent or given back, never both, never neither.
#[test]
fn model_mail_against_close() {
    check(3, || {
        let here = Arc::new(Post::new(0));
        let mut pool = OpPool::with_capacity(1);
        let mut request = pool.take(OPCODE, 1_u32).unwrap().into_request();
        let op = request.owned.submit(&here);
        let watch = [here.clone(), here.clone()];
        let dropping = Dropping(Some(request.owned));
        let other = thread::spawn(move || drop({ dropping }.0));
        // As the end of a loop does: it lets go of what is in flight, closes its mail, drops what is in it, and is gone.
        op.leave(&here);
        drop(taken(here.mail.close()));
        drop(here);
        other.join().unwrap();
        assert_eq!(Arc::strong_count(&watch[0]), 2, "the operation had one count, which the loop left for it");
        assert_eq!(pool.available(), 1);
    });
}

/// An operation on its way to another thread. Loops send them by mail; here a thread is simply born with one.
struct Dropping(Option<Owned>);

// The pool is dropped while its last operations come back, from two threads: its memory is freed once, and not before that.
#[test]
fn model_pool_against_returns() {
    check(3, || {
        let mut pool = OpPool::<Box<u32>>::with_capacity(3);
        let ops: Vec<_> = (0..2).map(|data| pool.take(OPCODE, Box::new(data)).unwrap()).collect();
        let gauge = pool.gauge();
        let others: Vec<_> = ops.into_iter().map(|op| thread::spawn(move || drop(op))).collect();
        drop(pool);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!((gauge.available(), gauge.is_last()), (3, true), "all are back, and only the gauge has the memory");
    });
}

// Operations come back to a pool that takes them again: none is lost, and each one taken is whole.
#[test]
fn model_pool_takes_what_came_back() {
    check(3, || {
        let mut pool = OpPool::<u32>::with_capacity(2);
        let others: Vec<_> = (0..2)
            .map(|data| {
                let op = pool.take(OPCODE, data).unwrap();
                thread::spawn(move || drop(op))
            })
            .collect();
        let early = pool.take(OPCODE, 7).ok();
        others.into_iter().for_each(|other| other.join().unwrap());
        let late = pool.take(OPCODE, 8).unwrap();
        assert_eq!((early.as_ref().is_none_or(|op| **op == 7), *late), (true, 8));
        assert_eq!(pool.available(), 1 - usize::from(early.is_some()));
        drop((early, late));
        assert_eq!(pool.available(), 2);
    });
}
