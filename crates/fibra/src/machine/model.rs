//! Models of what crosses threads: an operation and its cancellation between two loops, the sleep of a loop, doorbells, the end of a loop.
//!
//! A loop is played by a thread that takes everything out of its mail, does what `event_loop` would do, and sleeps by the same handshake.

use super::mail::Post;
use super::node::{CANCELLED, Link, LinkKind, MachineRef, Node, NodeRef, Owned, State};
use super::pool::OpPool;
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;

const OPCODE: u32 = 7;

/// What a loop finds in its mail.
enum Item {
    Main(Owned),
    Cancel(NodeRef),
    Note(NodeRef),
}

/// Takes all mail out; sleeps first, as a loop does, if there is none.
fn receive(post: &Post) -> Vec<Item> {
    loop {
        let mut link = post.mail.take_all();
        if !link.is_null() {
            let mut items = Vec::new();
            while !link.is_null() {
                // SAFETY (all here): links of nodes that were sent, taken out once.
                let next = unsafe { &*link }.next();
                // SAFETY: as above.
                items.push(unsafe { open(link) });
                link = next;
            }
            return items;
        }
        if post.mail.may_sleep() {
            let mut kicked = post.bell.0.lock();
            while !*kicked {
                kicked = post.bell.1.wait(kicked);
            }
            *kicked = false;
        }
        post.mail.awake();
    }
}

/// # Safety
/// The link was sent, and is opened once.
unsafe fn open(link: *mut Link) -> Item {
    // SAFETY: the caller's promise.
    let (node, kind) = unsafe { Link::node(link) };
    // SAFETY: as above: the right that was given up for the link.
    match kind {
        LinkKind::Main => Item::Main(unsafe { Owned::from_raw(node) }),
        // SAFETY: as above.
        LinkKind::Cancel => Item::Cancel(unsafe { NodeRef::from_raw(node) }),
        // SAFETY: as above.
        LinkKind::Note => Item::Note(unsafe { NodeRef::from_raw(node) }),
    }
}

fn send(post: &Post, owned: Owned) {
    let link = Node::link(owned.into_raw(), LinkKind::Main);
    // SAFETY: given up for its link.
    assert!(unsafe { post.send(link, link) }.is_ok());
}

/// Submits as `Ports::submit` does; gives the reference that the table of what is in flight would have.
fn submit(pool: &mut OpPool<u32>, data: u32, home: &Arc<Post>, to: &Post) -> Option<(u64, NodeRef)> {
    let mut request = pool.take(OPCODE, data).ok()?.into_request();
    request.owned.fix(|fixed| fixed.source = Some(MachineRef::app(0)));
    request.owned.submit(home.clone());
    let (id, node) = (request.owned.fixed().id, request.owned.reference());
    send(to, request.owned);
    Some((id, node))
}

/// The initiator submits and cancels; the target answers at once, or on the cancellation. When the answer is there, the initiator takes the next
/// operation from its pool of one: only if the cancellation has been acknowledged too does it get it, and then nobody else touches that.
fn cancel_against_completion(answers_at_once: bool) {
    check(2, move || {
        let (here, there) = (Arc::new(Post::new(0)), Arc::new(Post::new(1)));
        let target = {
            let there = there.clone();
            thread::spawn(move || {
                let (mut held, mut first, mut cancelled) = (None::<Owned>, 0, false);
                while !cancelled {
                    for item in receive(&there) {
                        match item {
                            Item::Main(mut owned) => {
                                first = owned.fixed().id;
                                *owned.data_mut::<u32>().unwrap().as_mut().unwrap() += 1;
                                if answers_at_once {
                                    owned.answer(1);
                                    drop(owned); // Answered: it goes home by mail.
                                } else {
                                    held = Some(owned);
                                }
                            }
                            Item::Cancel(cancel) => {
                                cancelled = true;
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
            })
        };
        let mut pool = OpPool::with_capacity(1);
        let (first, node) = submit(&mut pool, 10, &here, &there).unwrap();
        let cancel = node.cancel().expect("the first to ask");
        assert!(node.cancel().is_none(), "asking twice is asking once");
        let link = Node::link(cancel.into_raw(), LinkKind::Cancel);
        // SAFETY: the reference was given up for its link.
        assert!(unsafe { there.send(link, link) }.is_ok());
        let items = receive(&here);
        assert_eq!(items.len(), 1);
        for item in items {
            let Item::Main(mut owned) = item else { unreachable!() };
            assert_eq!((owned.moving().state, owned.fixed().id), (State::Answered, first));
            owned.arrive();
            assert_eq!(owned.moving().result, if answers_at_once { 1 } else { CANCELLED });
            assert_eq!(owned.data_mut::<u32>().unwrap().take(), Some(11));
        }
        drop(node); // Home: out of the table of what is in flight.
        let next = pool.take(OPCODE, 20);
        target.join().unwrap();
        match next {
            Ok(next) => assert_eq!((pool.available(), *next, next.id().get() > first), (0, 20, true)),
            Err(_) => assert_eq!(pool.available(), 1, "acknowledged twice, free once"),
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

// G-02, S3-68: two senders, an owner that sleeps whenever there is nothing: nobody is left waiting, and each sender's order holds.
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
        request.owned.submit(here.clone());
        // Relaxed on purpose: what makes a write visible is the ring.
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
        let mut link = here.mail.close();
        while !link.is_null() {
            // SAFETY: sent, and taken out once.
            let next = unsafe { &*link }.next();
            // SAFETY: as above.
            drop(unsafe { open(link) });
            link = next;
        }
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
        request.owned.submit(here.clone());
        let dropping = Dropping(request.owned);
        let other = thread::spawn(move || drop(dropping));
        let link = here.mail.close();
        if !link.is_null() {
            // SAFETY: sent, and taken out once.
            drop(unsafe { open(link) });
        }
        other.join().unwrap();
        assert_eq!(pool.available(), 1);
    });
}

/// An operation on its way to another thread. Loops send them by mail; here a thread is simply born with one.
struct Dropping(#[allow(dead_code)] Owned);
// SAFETY: an owner may be anywhere, one at a time; its data is `Send`.
unsafe impl Send for Dropping {}
