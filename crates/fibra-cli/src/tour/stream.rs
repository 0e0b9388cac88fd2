//! A pipeline of five stages over an endless source: a few results are taken, its end is dropped, and every stage ends.

use fibra::channel::rendezvous;
use fibra::stream;
use fibra::time::Instant;

use super::page::{Page, time};
use super::{Options, Outcome};
use crate::host;

/// Results that are taken before the end is dropped.
const TAKEN: usize = 2_000;

pub(crate) fn run(page: &Page, _options: &Options) -> Outcome {
    let live = || fibra::Handle::current().metrics().live;
    let before = live();
    // Tells when the source has ended, and how many numbers it got rid of.
    let (sent, source_ended) = fibra::channel::oneshot();
    let (numbers, endless) = rendezvous::<u64>();
    fibra::spawn(move || {
        let count = (1..).take_while(|n| numbers.send(*n).is_ok()).count();
        let _ = sent.send((count, numbers.closed().to_string()));
    });
    let begin = Instant::now();
    let primes = stream::from_receiver(endless)
        .named("primes")
        .filter(|n| n % 2 == 1)
        .map(|n| (n, (3..).step_by(2).take_while(|d| d * d <= n).all(|d| n % d != 0)))
        .filter_map(|(n, is_prime)| is_prime.then_some(n))
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .into_receiver();
    page.row(
        "stages",
        format_args!("five, each a fiber: filter, map, filter_map, windows, map ({} live)", live() - before),
    );
    let twins = primes.iter().take(TAKEN).filter(|gap| *gap == 2).count();
    page.row("taken", format_args!("{} gaps between primes, {twins} of them twins", host::count(TAKEN as u64)));
    let drop_begin = Instant::now();
    drop(primes);
    let (count, why) = source_ended.recv().map_err(|_| "the source was lost".to_owned())?;
    while live() > before {
        fibra::yield_now();
    }
    page.row("torn down", format_args!("its end was dropped: all stages ended within {}", time(drop_begin.elapsed())));
    page.row("the source", format_args!("had sent {} numbers; \"{why}\"", host::count(count as u64)));
    page.row("in all", format_args!("{}", time(begin.elapsed())));
    Ok(())
}
