//! A crawler over a make-believe web: polite to every host, patient with slow pages up to a point, and stopped after a while.
//!
//! ```text
//! cargo run --release -p fibra --example crawl -- [pages] [milliseconds]
//! ```
//!
//! The web is a function (no sockets yet): page `n` links to a few others, takes some milliseconds to answer, sometimes never does, and
//! now and then its parser panics. What it shows: one fiber per page, a rate limit per host by `sleep_until`, a time-out by
//! `join_timeout` and `cancel`, clean-up by destructors when a fiber is cancelled, a daemon that reports, and a deadline for everything.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fibra::JoinHandle;
use fibra::time::Instant;

/// Hosts of the make-believe web; page `n` is on host `n % HOSTS`.
const HOSTS: usize = 8;
/// Between two requests to one host.
const POLITE: Duration = Duration::from_micros(500);
/// A page that has not answered by then is given up.
const PATIENCE: Duration = Duration::from_millis(40);

/// What the crawl has come to. The counters are statistics: all accesses are Relaxed because nothing is read through them.
#[derive(Default)]
struct Tally {
    open: AtomicUsize,
    answered: AtomicU64,
    given_up: AtomicU64,
    broken: AtomicU64,
}

/// When each host may be asked again, in nanoseconds after the start: a reservation is one compare-exchange, and waiting for it is
/// `sleep_until`. (A std lock would do as well, as long as it is not held while sleeping.)
struct Hosts {
    start: Instant,
    free_at: [AtomicU64; HOSTS],
}

impl Hosts {
    fn new() -> Self {
        Self { start: Instant::now(), free_at: Default::default() }
    }

    /// Waits for a turn at this host. A cancelled fiber unwinds from here.
    fn wait_for_turn(&self, host: usize) {
        let now = self.start.elapsed().as_nanos() as u64;
        let slot = &self.free_at[host];
        // Relaxed, all: the number is all there is.
        let turn = slot
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| Some(free.max(now) + POLITE.as_nanos() as u64))
            .map_or(now, |free| free.max(now));
        fibra::sleep_until(self.start + Duration::from_nanos(turn));
    }
}

/// A connection that is open as long as this lives, cancelled fibers included.
struct Connection<'a>(&'a Tally);

impl<'a> Connection<'a> {
    fn open(tally: &'a Tally) -> Self {
        // Relaxed: see `Tally`.
        tally.open.fetch_add(1, Ordering::Relaxed);
        Self(tally)
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        // Relaxed: see `Tally`.
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A number that looks random and is the same every time.
fn mix(n: usize) -> usize {
    let mut z = (n as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (z ^ (z >> 27)) as usize
}

/// Fetches a page and returns where it links to.
fn fetch(page: usize, web: usize, hosts: &Hosts, tally: &Tally) -> Vec<usize> {
    hosts.wait_for_turn(page % HOSTS);
    let _connection = Connection::open(tally);
    match mix(page) % 50 {
        0 => fibra::sleep(Duration::from_secs(3600)), // a host that never answers
        // Not `panic!`, whose report would fill the screen.
        1 => std::panic::resume_unwind(Box::new(format!("page {page} cannot be parsed"))),
        pace => fibra::sleep(Duration::from_micros(100 * pace as u64)),
    }
    (1..=4).map(|link| mix(page * 7 + link) % web).collect()
}

#[fibra::main]
fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a whole number"));
    let web: usize = arguments.next().unwrap_or(2000);
    let limit = Duration::from_millis(arguments.next().unwrap_or(2000) as u64);

    let (hosts, tally) = (Arc::new(Hosts::new()), Arc::new(Tally::default()));
    let reporter = {
        let tally = tally.clone();
        fibra::Builder::new().name("reporter").daemon(true).spawn(move || {
            loop {
                fibra::sleep(Duration::from_millis(500));
                // Relaxed: see `Tally`.
                eprintln!("  {} answered so far", tally.answered.load(Ordering::Relaxed));
            }
        })
    };
    // No fiber joins it: it is cancelled when everything else is over.
    drop(reporter.expect("a daemon can be started"));

    let deadline = Instant::now() + limit;
    let mut seen = HashSet::from([0]);
    let mut generation: Vec<usize> = vec![0];
    while !generation.is_empty() && Instant::now() < deadline {
        let fetches: Vec<_> = generation
            .drain(..)
            .map(|page| {
                let (hosts, tally) = (hosts.clone(), tally.clone());
                fibra::spawn(move || fetch(page, web, &hosts, &tally))
            })
            .collect();
        for fetch in fetches {
            if let Some(links) = harvest(fetch, deadline, &tally) {
                generation.extend(links.into_iter().filter(|link| seen.insert(*link)));
            }
        }
    }

    // Relaxed, all: every fiber that counted has been joined.
    let (answered, given_up) = (tally.answered.load(Ordering::Relaxed), tally.given_up.load(Ordering::Relaxed));
    let (broken, open) = (tally.broken.load(Ordering::Relaxed), tally.open.load(Ordering::Relaxed));
    println!("{} of {web} pages seen: {answered} answered, {given_up} given up, {broken} broken", seen.len());
    println!("{open} connections left open");
    assert_eq!(open, 0, "cancelled and broken fetches close theirs too");
}

/// Takes what a fetch brings, but waits for at most [`PATIENCE`], and not beyond the deadline of the whole crawl.
fn harvest(fetch: JoinHandle<Vec<usize>>, deadline: Instant, tally: &Tally) -> Option<Vec<usize>> {
    let until = deadline.min(Instant::now() + PATIENCE);
    let result = match fetch.join_deadline(until) {
        Ok(result) => result,
        Err(late) => {
            late.cancel();
            late.join() // at once, or what it brought in the last moment
        }
    };
    let (count, links) = match result {
        Ok(links) => (&tally.answered, Some(links)),
        Err(error) if error.is_cancelled() => (&tally.given_up, None),
        Err(_) => (&tally.broken, None),
    };
    // Relaxed: see `Tally`.
    count.fetch_add(1, Ordering::Relaxed);
    links
}
