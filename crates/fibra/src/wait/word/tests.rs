//! The table of the word's header, edge by edge: those in it work, every other one is found. (Races are the models' business.)

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// A word that was brought to `state` by the edges of the table.
fn word_in(state: State) -> Word {
    let word = Word::new();
    if state == State::Init {
        return word;
    }
    let ticket = word.publish_spawned();
    if state == State::Runnable {
        return word;
    }
    assert!(word.start(ticket));
    match state {
        State::Parking => drop(word.begin_park(ARM_REVOCABLE)),
        State::Parked => {
            word.begin_park(ARM_REVOCABLE);
            assert_eq!(word.commit_park(), Commit::Parked);
        }
        State::Done => word.finish(false),
        State::Cancelled => word.finish(true),
        _ => {}
    }
    assert_eq!(word.snapshot().state(), state);
    word
}

const ALL: [State; 7] =
    [State::Init, State::Runnable, State::Running, State::Parking, State::Parked, State::Done, State::Cancelled];

/// An edge by its method: from where it may be taken, and to where it leads.
type Edge = (&'static str, &'static [State], State, fn(&Word));

const EDGES: [Edge; 7] = [
    ("publish_spawned", &[State::Init], State::Runnable, |word| _ = word.publish_spawned()),
    ("resume", &[State::Runnable], State::Running, Word::resume),
    ("yielded", &[State::Running], State::Runnable, Word::yielded),
    ("begin_park", &[State::Running], State::Parking, |word| _ = word.begin_park(ARM_REVOCABLE)),
    ("commit_park", &[State::Parking], State::Parked, |word| assert_eq!(word.commit_park(), Commit::Parked)),
    ("finish", &[State::Running], State::Done, |word| word.finish(false)),
    ("recycle", &[State::Done, State::Cancelled], State::Init, Word::recycle),
];

// S0-23, S0-06: every edge of the table works, and from every other state it is found.
#[test]
fn every_edge_that_is_not_in_the_table_is_found() {
    for (name, from, to, take) in EDGES {
        for state in ALL {
            let word = word_in(state);
            let taken = catch_unwind(AssertUnwindSafe(|| take(&word)));
            assert_eq!(taken.is_ok(), from.contains(&state), "{name} from {state:?}");
            if taken.is_ok() {
                assert_eq!(word.snapshot().state(), to, "{name} from {state:?}");
            }
        }
    }
}

// S0-23, S0-24: a stale entry, and a wake that finds nobody waiting, change nothing.
#[test]
fn stale_starts_and_wakes_change_nothing() {
    for state in ALL {
        let word = word_in(state);
        let before = word.snapshot();
        assert!(!word.start(Ticket::from_bits(77)), "{state:?}");
        assert_eq!(word.claim(Ticket::from_bits(77), ARM_FIRST, true), Claim::Lost);
        if !matches!(state, State::Parking | State::Parked) {
            assert_eq!(word.claim(before.ticket(), ARM_FIRST, true), Claim::Lost, "{state:?}");
        }
        assert_eq!(word.snapshot(), before);
    }
}

// A task that cancellation claimed between two polls carries its arm; its entry is good all the same, once.
#[test]
fn a_start_does_not_ask_who_won() {
    let word = word_in(State::Parked);
    let ticket = word.snapshot().ticket();
    assert_eq!(word.claim(ticket, ARM_CANCEL, true), Claim::Direct);
    assert!(word.start(ticket));
    assert_eq!(word.snapshot().state(), State::Running);
    assert!(!word.start(ticket), "the entry is used up");
}
