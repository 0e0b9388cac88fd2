//! Tests of the state word: every edge of the table in the word's header works, and every other edge is refused; then whole waits, and one
//! race under real threads. (Models cover races; what these tests pass through the word as plain data, ThreadSanitizer watches too.)

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::prim::cell::UnsafeCell;
use crate::waiter::word::*;

/// A word that was brought to `state` by the edges of the table.
fn word_in(state: WaiterState) -> Word {
    let word = Word::new();
    if state == WaiterState::Init {
        return word;
    }
    let ticket = word.publish_spawned();
    if state == WaiterState::Runnable {
        return word;
    }
    assert!(word.start(ticket));
    match state {
        WaiterState::Parking => drop(word.begin_park(WaitKind::Revocable)),
        WaiterState::Parked => {
            word.begin_park(WaitKind::Revocable);
            assert_eq!(word.commit_park(), Commit::Parked);
        }
        WaiterState::Done => word.finish(false),
        WaiterState::Cancelled => word.finish(true),
        _ => {}
    }
    assert_eq!(word.snapshot().state(), state);
    word
}

const ALL: [WaiterState; 7] = [
    WaiterState::Init,
    WaiterState::Runnable,
    WaiterState::Running,
    WaiterState::Parking,
    WaiterState::Parked,
    WaiterState::Done,
    WaiterState::Cancelled,
];

/// An edge by its method: from where it may be taken, and to where it leads.
type Edge = (&'static str, &'static [WaiterState], WaiterState, fn(&Word));

const EDGES: [Edge; 7] = [
    ("publish_spawned", &[WaiterState::Init], WaiterState::Runnable, |word| _ = word.publish_spawned()),
    ("resume", &[WaiterState::Runnable], WaiterState::Running, Word::resume),
    ("yielded", &[WaiterState::Running], WaiterState::Runnable, Word::yielded),
    ("begin_park", &[WaiterState::Running], WaiterState::Parking, |word| _ = word.begin_park(WaitKind::Revocable)),
    ("commit_park", &[WaiterState::Parking], WaiterState::Parked, |word| {
        assert_eq!(word.commit_park(), Commit::Parked)
    }),
    ("finish", &[WaiterState::Running], WaiterState::Done, |word| word.finish(false)),
    ("recycle", &[WaiterState::Done, WaiterState::Cancelled, WaiterState::Running], WaiterState::Init, Word::recycle),
];

/// The edges that only the owner of a word takes: checked in debug builds only.
const OF_THE_OWNER: [&str; 5] = ["publish_spawned", "resume", "yielded", "finish", "recycle"];

// S0-23, S0-06: every edge of the table works, and from every other state the check refuses it.
// S4-23, S4-109, S4-112, S4-127: so a waiter that is queued, resumed or started is RUNNABLE, and in no other state.
#[test]
fn every_edge_that_is_not_in_the_table_is_found() {
    super::enable_spec_assert();
    for (name, from, to, take) in EDGES {
        let looked_at = cfg!(debug_assertions) || !OF_THE_OWNER.contains(&name);
        for state in ALL.into_iter().filter(|state| looked_at || from.contains(state)) {
            let word = word_in(state);
            let taken = catch_unwind(AssertUnwindSafe(|| take(&word)));
            assert_eq!(taken.is_ok(), from.contains(&state), "{name} from {state:?}");
            if taken.is_ok() {
                assert_eq!(word.snapshot().state(), to, "{name} from {state:?}");
            }
        }
    }
}

// S0-23, S0-24: a stale entry, and a wake that finds no waiter, change nothing.
#[test]
fn stale_starts_and_wakes_change_nothing() {
    for state in ALL {
        let word = word_in(state);
        let before = word.snapshot();
        assert!(!word.start(Ticket::of_number(77)), "{state:?}");
        assert_eq!(word.claim(Ticket::of_number(77), ARM_FIRST, true), Claim::Lost);
        if !matches!(state, WaiterState::Parking | WaiterState::Parked) {
            assert_eq!(word.claim(before.ticket(), ARM_FIRST, true), Claim::Lost, "{state:?}");
        }
        assert_eq!(word.snapshot(), before);
    }
}

// S4-128: a wait that is released for a wake was claimed.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "looked at in debug builds only")]
fn a_release_without_a_claim_is_found() {
    for state in [WaiterState::Parking, WaiterState::Parked] {
        let word = word_in(state);
        assert!(catch_unwind(AssertUnwindSafe(|| word.release())).is_err(), "{state:?}");
    }
}

// A task that cancellation claimed between two polls carries cancellation's arm; its queue entry is valid all the same, once.
#[test]
fn a_start_does_not_ask_who_won() {
    let word = word_in(WaiterState::Parked);
    let ticket = word.snapshot().ticket();
    assert_eq!(word.claim(ticket, ARM_CANCEL, true), Claim::Direct);
    assert!(word.start(ticket));
    assert_eq!(word.snapshot().state(), WaiterState::Running);
    assert!(!word.start(ticket), "the entry is used up");
}

fn parked() -> (Word, Ticket) {
    let word = word_in(WaiterState::Parked);
    let ticket = word.snapshot().ticket();
    (word, ticket)
}

// S1-13, S4-21: one 64-bit word; every state can be told apart, in code and in reports.
#[test]
fn one_word_holds_everything() {
    assert_eq!((size_of::<Word>(), align_of::<Word>()), (8, 8));
    let states = [
        WaiterState::Init,
        WaiterState::Runnable,
        WaiterState::Running,
        WaiterState::Parking,
        WaiterState::Parked,
        WaiterState::Done,
        WaiterState::Cancelled,
    ];
    let mut texts = HashSet::new();
    for state in states {
        let ticket = Ticket::of_number(u64::MAX >> TICKET_SHIFT);
        let full = Snapshot(Snapshot::new(state, ARM_CANCEL, ticket).0 | CLAIMED | WAKE);
        assert_eq!((full.state(), full.arm(), full.ticket()), (state, ARM_CANCEL, ticket));
        assert!(full.is(state) && full.is_claimed() && full.has_wake());
        assert!(texts.insert(format!("{full:?}")), "a report tells them apart");
    }
}

// S4-96, S4-97, S1-44, S1-45: the spawner publishes; one of the holders of an entry starts it; the other holders' entries are stale.
#[test]
fn one_starts_it() {
    let word = Word::new();
    let ticket = word.publish_spawned();
    assert_eq!(word.snapshot().state(), WaiterState::Runnable);
    assert!(!word.start(Ticket::from_bits(ticket.to_bits() + (1 << TICKET_SHIFT))), "another start's entry");
    assert!(word.start(ticket));
    assert!(!word.start(ticket), "taken");
    // A fiber that yields is RUNNABLE again; the old entry still does not fit.
    word.yielded();
    assert!(!word.start(ticket));
    word.resume();
    assert_eq!(word.snapshot().state(), WaiterState::Running);
}

// S0-05, S0-07, G-14, S4-99: a waiter goes from RUNNING to PARKING, which is a state of its own: waiting, claimable, and not yet PARKED.
#[test]
fn parking_has_a_name() {
    let word = word_in(WaiterState::Running);
    let ticket = word.begin_park(WaitKind::Revocable);
    let now = word.snapshot();
    assert_eq!((now.state(), now.ticket()), (WaiterState::Parking, ticket));
    assert!(now.is_waiting() && now.kind() == Some(WaitKind::Revocable) && !now.is_claimed());
    assert_eq!(word.claim(ticket, 3, true), Claim::Held, "not direct: it is still on its stack");
    let now = word.snapshot();
    assert!(!now.is_waiting() && now.is_claimed(), "idle, waiting or claimed: nothing else");
}

// S4-39, S4-41, S4-91: every wait has a fresh ticket, set in one step that clears the marks of the last one; recycling keeps it growing.
#[test]
fn every_wait_has_a_fresh_ticket() {
    let word = Word::new();
    let mut tickets = HashSet::new();
    for life in 0..50 {
        let start = word.publish_spawned();
        assert!(tickets.insert(start.to_bits()), "also a start is named");
        assert!(word.start(start));
        for wait in 0..20u8 {
            let ticket = word.begin_park(WaitKind::Revocable);
            assert!(tickets.insert(ticket.to_bits()), "life {life}, wait {wait}");
            let now = word.snapshot();
            assert!(!now.is_claimed() && !now.has_wake() && now.arm() == WaitKind::Revocable as CompletedBy);
            assert_eq!(word.claim(ticket, wait, true), Claim::Held);
            assert_eq!(word.release(), Release::Deferred);
            assert_eq!(word.commit_park(), Commit::Requeue);
            assert_eq!(word.snapshot().arm(), wait);
            word.resume();
        }
        word.finish(life % 2 == 0);
        assert!(matches!(word.snapshot().state(), WaiterState::Done | WaiterState::Cancelled));
        word.recycle();
    }
}

// S0-08, S4-25, S4-38, S4-46, S4-102, S4-110, S1-23, S1-58: a wake in PARKING leaves a mark and does not enqueue; the worker, at
// commit, does.
#[test]
fn a_wake_in_parking_is_found_at_commit() {
    let word = word_in(WaiterState::Running);
    let ticket = word.begin_park(WaitKind::Revocable);
    assert_eq!(word.claim(ticket, ARM_FIRST, true), Claim::Held);
    assert_eq!(word.release(), Release::Deferred, "the waker does not enqueue");
    assert_eq!(word.snapshot().state(), WaiterState::Parking, "nor does it change the state");
    assert_eq!(word.commit_park(), Commit::Requeue, "the worker does");
    assert_eq!(word.snapshot().state(), WaiterState::Runnable);
}

// S4-101, G-17: PARKED is reached by the worker's commit only, also while an owner is filling the slot.
#[test]
fn only_commit_makes_it_parked() {
    let word = word_in(WaiterState::Running);
    let ticket = word.begin_park(WaitKind::Revocable);
    assert_eq!(word.claim(ticket, 9, true), Claim::Held);
    assert_eq!(word.commit_park(), Commit::Parked);
    let now = word.snapshot();
    assert!(now.state() == WaiterState::Parked && now.is_claimed());
    assert_eq!(word.claim(ticket, 8, true), Claim::Lost, "one owner");
    assert_eq!(word.release(), Release::Enqueue, "now the owner has to enqueue it");
    assert_eq!((word.snapshot().state(), word.snapshot().arm()), (WaiterState::Runnable, 9));
}

// S4-42, S4-100, S1-49: a waiter that need not wait goes back to RUNNING; if an owner has claimed the wait, it has to park and see.
#[test]
fn a_park_may_be_called_off() {
    let word = word_in(WaiterState::Running);
    let ticket = word.begin_park(WaitKind::Binding);
    assert!(word.abort_park());
    assert_eq!(word.snapshot().state(), WaiterState::Running);
    assert_eq!(word.claim(ticket, 1, true), Claim::Lost, "that wait is over");
    let ticket = word.begin_park(WaitKind::Revocable);
    assert_eq!(word.claim(ticket, ARM_CANCEL, true), Claim::Held);
    assert!(!word.abort_park(), "claimed");
    assert_eq!(word.release(), Release::Deferred);
    assert_eq!(word.commit_park(), Commit::Requeue);
}

// S4-26, S4-27, S4-48, S4-104, S4-107, S4-108, S1-67: PARKED is left by a claim, which one owner wins; the arm is written before the waiter
// can run.
#[test]
fn parked_is_left_by_one_claim() {
    let (word, ticket) = parked();
    assert_eq!(word.claim(ticket, 4, true), Claim::Direct);
    assert_eq!((word.snapshot().state(), word.snapshot().arm()), (WaiterState::Runnable, 4));
    assert_eq!(word.claim(ticket, 5, true), Claim::Lost);
    assert_eq!(word.snapshot().arm(), 4, "the loser has changed nothing");
    // A thread or a task takes itself back by the same rule.
    let (word, ticket) = parked();
    assert!(word.take_back());
    assert_eq!(word.claim(ticket, 5, false), Claim::Lost);
    let (word, ticket) = parked();
    assert_eq!(word.claim(ticket, 5, false), Claim::Held);
    assert!(!word.take_back(), "an owner was faster");
    assert_eq!(word.release(), Release::Enqueue);
}

// S4-49, S4-93, S4-94, G-15, G-16: with the wrong ticket, or in any other state, a wake has no effect.
#[test]
fn a_stale_wake_has_no_effect() {
    let (word, old) = parked();
    let words = [Word::new(), word_in(WaiterState::Running), parked().0];
    for other in &words {
        let before = other.snapshot();
        assert_eq!(other.claim(Ticket::of_number(1 << 40), 7, true), Claim::Lost);
        assert_eq!(other.snapshot(), before);
    }
    assert_eq!(word.claim(old, 1, true), Claim::Direct);
    word.resume();
    let new = word.begin_park(WaitKind::Revocable);
    assert_eq!(word.claim(old, 2, true), Claim::Lost, "PARKING, but another wait");
    assert_eq!(word.commit_park(), Commit::Parked);
    assert_eq!(word.claim(old, 2, true), Claim::Lost, "PARKED, but another wait");
    assert_eq!(word.claim(new, 3, true), Claim::Direct);
    word.resume();
    word.finish(false);
    assert_eq!(word.claim(new, 2, true), Claim::Lost, "DONE");
    word.recycle();
    let ticket = word.publish_spawned();
    assert_eq!(word.claim(new, 2, true), Claim::Lost, "another life");
    assert!(word.start(ticket));
    word.begin_park(WaitKind::Revocable);
    assert_eq!(word.claim(new, 2, true), Claim::Lost);
    assert_eq!(word.claim(old, 2, true), Claim::Lost);
}

// S4-47, S4-15: cancellation is one of the owners, if the wait is revocable; it cannot claim a binding wait.
#[test]
fn cancellation_is_an_owner_like_any_other() {
    let (word, ticket) = parked();
    let seen = word.look_after_flag();
    assert!(seen.kind() == Some(WaitKind::Revocable) && seen.ticket() == ticket);
    assert_eq!(word.claim(seen.ticket(), ARM_CANCEL, true), Claim::Direct);
    assert_eq!(word.snapshot().arm(), ARM_CANCEL);
    let word = word_in(WaiterState::Running);
    word.begin_park(WaitKind::Binding);
    assert!(word.look_after_flag().kind() == Some(WaitKind::Binding));
}

/// A slot that the owner of a claim fills and the waiter reads.
struct TestSlot(UnsafeCell<u64>);

// SAFETY: touched by the claimer before it releases and by the waiter after it was resumed, never by both: the test checks exactly that.
unsafe impl Sync for TestSlot {}

// S1-27, S1-50, S1-57: a waiter against two owners, each of which fills a plain slot if it wins: exactly
// one owner wins each wait, and the waiter sees what that owner wrote.
#[test]
fn two_owners_fill_one_slot() {
    const ROUNDS: u64 = 2_000;
    let word = word_in(WaiterState::Running);
    let published = crate::prim::atomic::AtomicU64::new(0);
    let released = crate::prim::atomic::AtomicU64::new(0);
    let slot = TestSlot(UnsafeCell::new(0));
    let (word, published, released, slot) = (&word, &published, &released, &slot);
    let owner = move |me: u64| {
        let mut won = 0u64;
        let mut last = 0;
        loop {
            // Acquire: pairs with the waiter's release: its earlier reads of the slot are over.
            let ticket = published.load(Ordering::Acquire);
            if ticket == u64::MAX {
                return won;
            }
            if ticket == last {
                std::thread::yield_now();
                continue;
            }
            last = ticket;
            match word.claim(Ticket::from_bits(ticket), me as CompletedBy, false) {
                Claim::Lost => {}
                Claim::Direct => unreachable!("not asked for"),
                Claim::Held => {
                    won += 1;
                    // SAFETY: claimed: no other thread touches it.
                    slot.0.with_mut(|slot| unsafe { *slot = ticket * 4 + me });
                    if word.release() == Release::Enqueue {
                        // Release: what unparking or enqueueing would do.
                        released.store(ticket, Ordering::Release);
                    }
                }
            }
        }
    };
    let won = std::thread::scope(|scope| {
        let owners = [1, 2].map(|me| scope.spawn(move || owner(me)));
        for _ in 0..ROUNDS {
            let ticket = word.begin_park(WaitKind::Revocable);
            // Release: pairs with the owners' acquire.
            published.store(ticket.to_bits(), Ordering::Release);
            if word.commit_park() == Commit::Parked {
                // Acquire: pairs with the release above.
                while released.load(Ordering::Acquire) != ticket.to_bits() {
                    std::thread::yield_now();
                }
            }
            let arm = word.snapshot().arm();
            word.resume();
            // SAFETY: the wait is over: its owner has released.
            let seen = slot.0.with(|slot| unsafe { *slot });
            assert_eq!(seen, ticket.to_bits() * 4 + u64::from(arm), "what the winner wrote");
        }
        // Release: as above.
        published.store(u64::MAX, Ordering::Release);
        owners.map(|owner| owner.join().unwrap())
    });
    assert_eq!(won[0] + won[1], ROUNDS, "exactly one wins each wait");
}
