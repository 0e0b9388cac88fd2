//! `sieve`: the prime sieve of communicating processes. A source counts up from 2; each prime that comes through adds a task that
//! drops its multiples and passes on the rest, over rendezvous channels. One operation is one transfer. tokio and may have no
//! rendezvous and run with capacity 1; may and crossbeam have shorter chains, since each filter has a stack or is a thread.

use crate::measure::{Passes, Sample};
use crate::peers::{AsyncChannels, Blocking, Channels, Peer, Setup, channel_sides, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "sieve",
    operation: "one transfer in a chain of prime filters, over rendezvous channels",
    cases,
    sides: channel_sides!(blocking, awaiting),
};

fn cases(size: Size) -> Vec<Case> {
    let case = |w, goal| {
        let params = [("primes", size.pick(2_000, 30)), ("w", w)];
        let all = [Peer::Fibra, Peer::Tokio, Peer::Kanal, Peer::Flume, Peer::Go];
        Case::new(&params, &all).with(Peer::May, &[("primes", size.pick(500, 30))]).time(goal)
    };
    let threads = |case: Case| case.with(Peer::Crossbeam, &[("primes", size.pick(100, 10))]);
    vec![threads(case(1, Goal::Ratio(0.6))), threads(case(2, Goal::Ratio(1.0))), case(8, Goal::Shown)]
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 2 * params.size("primes") }
}

/// The expected results of the sieve, computed without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    primes: u64,
    /// The source counts this far: to the last of the primes.
    last: u64,
    /// A number goes through the filters up to that of its smallest prime factor (a prime: to the end of the chain).
    transfers: u64,
}

impl Known {
    fn new(primes: u64) -> Known {
        let mut found: Vec<u64> = Vec::new();
        let (mut number, mut transfers) = (1, 0);
        while (found.len() as u64) < primes {
            number += 1;
            let stopped_by = found.iter().position(|prime| number % prime == 0);
            transfers += stopped_by.unwrap_or(found.len()) as u64 + 1;
            if stopped_by.is_none() {
                found.push(number);
            }
        }
        Known { primes, last: number, transfers }
    }
}

fn blocking<C: Channels>(params: &Params) -> Sample {
    let known = Known::new(params.get("primes"));
    C::Tasks::run(setup(params), move || {
        let mut passes = Passes::new();
        while passes.begin() {
            let (source, mut end) = C::bounded::<u64>(0);
            C::Tasks::spawn(move || {
                for number in 2..=known.last {
                    C::send(&source, number);
                }
            });
            let mut primes = 0;
            while let Some(prime) = C::receive(&end) {
                primes += 1;
                let (pass_on, new_end) = C::bounded::<u64>(0);
                let before = std::mem::replace(&mut end, new_end);
                C::Tasks::spawn(move || {
                    while let Some(number) = C::receive(&before) {
                        if number % prime != 0 {
                            C::send(&pass_on, number);
                        }
                    }
                });
            }
            assert_eq!(primes, known.primes);
            passes.end(known.transfers);
        }
        passes.sample()
    })
}

fn awaiting<C: AsyncChannels>(params: &Params) -> Sample {
    let known = Known::new(params.get("primes"));
    tokio_peer::run(setup(params), async move {
        let mut passes = Passes::new();
        while passes.begin() {
            let (source, mut end) = C::bounded::<u64>(0);
            tokio::spawn(async move {
                for number in 2..=known.last {
                    C::send(&source, number).await;
                }
            });
            let mut primes = 0;
            while let Some(prime) = C::receive(&mut end).await {
                primes += 1;
                let (pass_on, new_end) = C::bounded::<u64>(0);
                let mut before = std::mem::replace(&mut end, new_end);
                tokio::spawn(async move {
                    while let Some(number) = C::receive(&mut before).await {
                        if number % prime != 0 {
                            C::send(&pass_on, number).await;
                        }
                    }
                });
            }
            assert_eq!(primes, known.primes);
            passes.end(known.transfers);
        }
        passes.sample()
    })
}

#[cfg(test)]
mod tests {
    use super::Known;

    #[test]
    fn transfers_are_counted() {
        // 2; 3 through 2's filter; 4 stopped there; 5 through two filters.
        assert_eq!(Known::new(3), Known { primes: 3, last: 5, transfers: 1 + 2 + 1 + 3 });
        assert_eq!(Known::new(2_000), Known { primes: 2_000, last: 17_389, transfers: 2_042_625 });
    }
}
