//! How long a thief leaves the unstarted fibers of another worker alone.
//!
//! To take an unstarted fiber is to place it for life, away from its spawner and from the fibers it was spawned with, which are the ones
//! that it talks to, more often than not. So a thief watches an owner before it takes:
//!
//! | the owner | the thief takes what it saw |
//! |---|---|
//! | stands still: neither pushes nor switches, and has the processor | after 20 µs |
//! | makes progress, or has no processor | after 500 µs of the owner's own processor time |
//! | whatever it does | after 2 ms |
//!
//! The owner's time is what its processor clock says, because one that has lost its processor to another thread stands still as well, and
//! loses nothing by it: it goes on where it was. (On a busy machine that is most of what stands still.)
//!
//! Halves of `join` and tasks are placed for one run only, and are taken after 20 µs in any case. The price of a spawn stays a push:
//! nothing is stamped, all of this is the thief's.
//!
//! Above: `search.rs`, which shows it each worker. Below: nothing.

/// How long an unstarted fiber belongs to its spawner's worker alone; and so long an owner stands still before it is taken from.
const AGE_NANOS: u64 = 20_000;
/// An owner that used less of that time did not have the processor.
const RUNNING_NANOS: u64 = AGE_NANOS / 4 * 3;
/// So long, of its own time, an owner that makes progress is left alone.
const PATIENCE_NANOS: u64 = 500_000;
/// And so long at most, whatever it does.
const LONGEST_NANOS: u64 = 2_000_000;

/// What a thief sees of a worker that has unstarted fibers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// The position of the oldest one, and how many there are.
    pub(super) oldest: u64,
    pub(super) len: usize,
    /// Does the oldest one stay where it is started?
    pub(super) stays: bool,
    /// How far the worker is: changes when it pushes or switches.
    pub(super) progress: u64,
}

/// What a thief remembers of a worker: which entries it saw there, by their positions, and when. Only the older half: the owner takes the
/// newest, and puts new ones where they were, so that only their positions are old.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    from: u64,
    until: u64,
    at: u64,
    is_ripe: bool,
    /// What the thief last read of the owner's clock.
    reading: Option<Reading>,
}

/// See [`Watched`].
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: u64,
    /// The owner's time then, and when it was first read.
    time: u64,
    first_time: u64,
    progress: u64,
}

impl Watched {
    /// How many of the entries in `sight` may be taken now. If none of them is remembered, they are from now on. What was ripe once stays
    /// so: a thief that cannot carry all of it away at once need not wait anew. `time` is the owner's time: asked for every 20 µs at most.
    pub(super) fn look(watched: &mut Option<Watched>, sight: Sight, now: u64, time: impl FnOnce() -> u64) -> usize {
        match watched {
            Some(before) if (before.from..before.until).contains(&sight.oldest) => {
                before.is_ripe = before.is_ripe || before.ripens(sight, now, time);
                if before.is_ripe { (before.until - sight.oldest) as usize } else { 0 }
            }
            _ => {
                let until = sight.oldest + sight.len.div_ceil(2) as u64;
                *watched = Some(Watched { from: sight.oldest, until, at: now, is_ripe: false, reading: None });
                0
            }
        }
    }

    fn ripens(&mut self, sight: Sight, now: u64, time: impl FnOnce() -> u64) -> bool {
        let age = now.saturating_sub(self.at);
        if !sight.stays {
            return age >= AGE_NANOS;
        }
        let progress = sight.progress;
        let Some(last) = self.reading else {
            // Not at first sight: most of what a thief sees is gone at the next.
            if age > 0 {
                let time = time();
                self.reading = Some(Reading { at: now, time, first_time: time, progress });
            }
            return false;
        };
        if now.saturating_sub(last.at) < AGE_NANOS {
            return false;
        }
        let time = time();
        self.reading = Some(Reading { at: now, time, progress, ..last });
        let stands = progress == last.progress && time.saturating_sub(last.time) >= RUNNING_NANOS;
        stands || time.saturating_sub(last.first_time) >= PATIENCE_NANOS || age >= LONGEST_NANOS
    }
}

#[cfg(test)]
mod tests {
    use super::{AGE_NANOS, LONGEST_NANOS, PATIENCE_NANOS, Sight, Watched};

    const SIGHT: Sight = Sight { oldest: 10, len: 100, stays: true, progress: 1 };

    /// Looks every 5 µs at an owner of which `owner` says how far it is and what its clock says, until something may be taken: when that
    /// is, and how much.
    fn first_taken(sight: Sight, owner: impl Fn(u64) -> (u64, u64)) -> (u64, usize) {
        let mut watched = None;
        (0..=2 * LONGEST_NANOS)
            .step_by(5_000)
            .find_map(|now| {
                let (progress, time) = owner(now);
                let taken = Watched::look(&mut watched, Sight { progress, ..sight }, now, || time);
                (taken > 0).then_some((now, taken))
            })
            .expect("it is taken at some time")
    }

    // an owner that stands still is taken from after 20 µs of standing, one that makes progress after 500.
    #[test]
    fn a_thief_has_patience_with_an_owner_that_makes_progress() {
        assert_eq!(first_taken(SIGHT, |now| (1, now)), (AGE_NANOS + 5_000, 50), "it computes: the older half");
        assert_eq!(first_taken(SIGHT, |now| (now, now)), (PATIENCE_NANOS + 5_000, 50), "it switches");
        let single = Sight { len: 1, ..SIGHT };
        assert_eq!(first_taken(single, |now| (1, now)), (AGE_NANOS + 5_000, 1), "a single one too");
        let (taken_at, _) = first_taken(SIGHT, |now| (now.min(100_000), now));
        assert!((100_000 + AGE_NANOS..150_000).contains(&taken_at), "it stops after 100 µs: {taken_at}");
    }

    // What an owner without a processor has is not taken at once, but at last.
    #[test]
    fn an_owner_without_a_processor_is_left_alone_for_longer() {
        assert_eq!(
            first_taken(SIGHT, |_| (1, 7)),
            (LONGEST_NANOS + 5_000, 50),
            "it gets none: another thread has it, or it blocks"
        );
        let (taken_at, _) = first_taken(SIGHT, |now| (now, now / 2));
        assert!((2 * PATIENCE_NANOS..2 * PATIENCE_NANOS + 50_000).contains(&taken_at), "half of one: {taken_at}");
        // It has lost its processor for 100 µs, then computes.
        let (taken_at, _) = first_taken(SIGHT, |now| (1, now.saturating_sub(100_000)));
        assert!((115_000..150_000).contains(&taken_at), "{taken_at}");
    }

    // A half of a `join`, or a task, does not stay where it runs.
    #[test]
    fn what_does_not_stay_is_taken_when_it_has_waited() {
        let half = Sight { stays: false, ..SIGHT };
        assert_eq!(first_taken(half, |now| (now, now)), (AGE_NANOS, 50));
    }

    // young fibers stay with their spawner; of a long queue a thief takes what it saw an age ago, without waiting anew each time.
    #[test]
    fn a_thief_takes_what_it_has_seen_an_age_ago() {
        let mut watched = None;
        let mut look = |oldest, len, now| Watched::look(&mut watched, Sight { oldest, len, ..SIGHT }, now, || now);
        assert_eq!(look(10, 100, 5), 0, "seen for the first time");
        assert_eq!(look(10, 100, 6), 0, "too young");
        assert_eq!(look(10, 100, 5 + AGE_NANOS), 0, "too young by its owner's clock");
        assert_eq!(look(10, 100, 6 + AGE_NANOS), 50, "the older half");
        assert_eq!(look(42, 1000, 6 + AGE_NANOS), 18, "32 were taken, more were put there");
        assert_eq!(look(60, 1000, 6 + AGE_NANOS), 0, "those were not there then");
        assert_eq!(look(60, 1000, 7 + AGE_NANOS), 0);
        assert_eq!(look(60, 1000, 7 + 2 * AGE_NANOS), 500);
    }
}
