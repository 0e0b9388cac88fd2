//! The table of all stages: each has a row with its three forms and the same operation on a `Vec`. A stage without a row fails the test,
//! and a row without one of the forms does not compile. It is one long file because there are many stages.
//!
//! Each row is played in all forms: with random items against the `Vec` (the downstream form fused and buffered too), and torn down from
//! either end, by a panic before it and by cancellation, at every point of a short stream; then no fiber is left.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use crate::support;
use fibra::channel::{self, CloseReason, Receiver, Sender};
use fibra::stream::{self, Pipe, PipeIn};
use fibra::{RetryPolicy, Runtime};

const LONG: Duration = Duration::from_secs(3600);
const NOW: Duration = Duration::from_nanos(1);

/// A stage on numbers.
struct Row<O> {
    name: &'static str,
    down: fn(Pipe<u32>) -> Pipe<O>,
    up: fn(PipeIn<O>) -> PipeIn<u32>,
    free: fn() -> (Sender<u32>, Receiver<O>),
    on_a_vec: fn(Vec<u32>) -> Vec<O>,
    /// What comes out is compared after this: for stages whose order is not said.
    sorted: bool,
    /// What a torn down stage may leave waiting: nothing, unless it waits for its output by design.
    ends_with_input: bool,
}

/// Random numbers that print their seed and take it back.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let given = std::env::var("FIBRA_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| u64::from(std::process::id()) * 0x9e37_79b9 + 1);
        println!("FIBRA_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn numbers(&mut self) -> Vec<u32> {
        let len = self.below(40) as usize;
        (0..len).map(|_| self.below(9) as u32).collect()
    }
}

fn same<O: Debug + Ord + Clone>(row: &Row<O>, form: &str, numbers: &[u32], mut got: Vec<O>) {
    let mut expected = (row.on_a_vec)(numbers.to_vec());
    if row.sorted {
        got.sort();
        expected.sort();
    }
    assert_eq!(got, expected, "{} {form} of {numbers:?}", row.name);
}

/// Sends them; a receiver that goes is no failure.
fn feed(tx: Sender<u32>, numbers: Vec<u32>) {
    fibra::spawn(move || {
        let _ = numbers.into_iter().try_for_each(|n| tx.send(n));
    });
}

fn against_a_vec<O: Debug + Ord + Clone + Send + 'static>(row: &Row<O>, random: &mut Random) {
    if !row.ends_with_input {
        return;
    }
    for _ in 0..12 {
        let numbers = random.numbers();
        let source = || stream::from_iter(numbers.clone());
        same(row, "downstream", &numbers, (row.down)(source()).collect());
        same(row, "fused", &numbers, (row.down)(source().fused()).collect());
        same(row, "fused, in a fiber", &numbers, (row.down)(source().fused()).into_receiver().iter().collect());
        same(row, "buffered", &numbers, (row.down)(source().buffered(3)).collect());
        let (tx, rx) = channel::rendezvous();
        feed((row.up)(tx.pipe_in()).into_sender(), numbers.clone());
        same(row, "upstream", &numbers, rx.iter().collect());
        let (tx, rx) = (row.free)();
        feed(tx, numbers.clone());
        same(row, "free pair", &numbers, rx.iter().collect());
    }
}

/// The three forms, as channel ends.
fn forms<O: Send + 'static>(row: &Row<O>) -> [(&'static str, Sender<u32>, Receiver<O>); 4] {
    let (down_tx, rx) = channel::rendezvous();
    let down = (row.down)(rx.pipe()).into_receiver();
    let (fused_tx, rx) = channel::rendezvous();
    let fused = (row.down)(rx.pipe().fused()).into_receiver();
    let (tx, up) = channel::rendezvous();
    let up_tx = (row.up)(tx.pipe_in()).into_sender();
    let (free_tx, free) = (row.free)();
    [("downstream", down_tx, down), ("fused", fused_tx, fused), ("upstream", up_tx, up), ("free pair", free_tx, free)]
}

/// Torn down after so many items, from either end: the other end learns of it.
fn torn_down<O: Send + 'static>(row: &Row<O>) {
    for items in 0..6u32 {
        for (form, tx, rx) in forms(row) {
            // From the end: what sends is told, unless the stage takes nothing by design.
            let sending = fibra::spawn(move || (0..).take_while(|n| tx.send(n % 9).is_ok()).count());
            for _ in 0..items.min(2) {
                let _ = rx.recv_timeout(Duration::from_millis(1));
            }
            drop(rx);
            let sent = sending.join_timeout(Duration::from_secs(20));
            assert!(sent.is_ok(), "{} {form}: the sender waits on", row.name);
        }
        for (form, tx, rx) in forms(row) {
            // From the beginning.
            let receiving = fibra::spawn(move || rx.iter().count());
            for n in 0..items {
                let _ = tx.send_timeout(n, Duration::from_millis(1));
            }
            drop(tx);
            if row.ends_with_input {
                let received = receiving.join_timeout(Duration::from_secs(20));
                assert!(received.is_ok(), "{} {form}: the receiver waits on", row.name);
            } else {
                receiving.cancel();
            }
        }
        // A panic before it is seen behind it.
        let (tx, rx) = channel::rendezvous();
        let broken = rx.pipe().map(move |n: u32| {
            assert!(n < items, "on purpose");
            n
        });
        let out = (row.down)(broken).into_receiver();
        let receiving = fibra::spawn(move || {
            let count = out.iter().count();
            (count, out.finish())
        });
        let _ = (0..=items)
            .try_for_each(|n| tx.send_timeout(n, Duration::from_millis(if row.ends_with_input { 20_000 } else { 1 })));
        drop(tx);
        if row.ends_with_input && !NARROW.contains(&row.name) {
            let (_, finish) = receiving.join().unwrap();
            assert!(matches!(finish, Err(CloseReason::Panicked { .. })), "{} after {items}: {finish:?}", row.name);
        } else {
            receiving.cancel();
        }
    }
}

/// Stages that may end before the panic comes.
const NARROW: &[&str] =
    &["take", "take_while", "scan", "try_map", "try_filter", "stop_at_error", "zip", "killswitch", "deaf", "mute"];

/// Cancelled with its scope after so many items.
fn cancelled<O: Send + 'static>(row: &Row<O>) {
    for items in 0..3 {
        let token = fibra::CancelToken::new();
        let down = row.down;
        let canceller = token.clone();
        let run = fibra::spawn(move || {
            fibra::Scope::builder().token(token).run(|s| {
                s.spawn(move || {
                    let mut out = down(stream::from_iter((0..9).cycle()));
                    for _ in 0..items {
                        if out.next().is_none() {
                            break;
                        }
                    }
                    out.for_each(drop);
                    fibra::sleep(LONG);
                });
            })
        });
        fibra::yield_now();
        canceller.cancel();
        assert!(run.join().unwrap().is_err(), "{}", row.name);
    }
}

/// One runtime for each row, so that what is left over is seen.
fn play<O: Debug + Ord + Clone + Send + 'static>(row: &Row<O>, seen: &mut BTreeSet<&'static str>) {
    println!("{}", row.name);
    assert!(seen.insert(row.name), "{} has two rows", row.name);
    let mut random = Random::new();
    let runtime = Runtime::builder().workers(2).build().unwrap();
    runtime.run(|| {
        against_a_vec(row, &mut random);
        torn_down(row);
        cancelled(row);
    });
    support::eventually(|| runtime.metrics().live == 0, || format!("{}: {:?}", row.name, runtime.metrics()));
}

/// Plays a row: its name, then `stage` with `..` for its three forms, where they are written alike.
macro_rules! row {
    ($seen:ident, $name:ident($($argument:expr),*), $vec:expr $(, $option:ident)*) => {
        row!($seen, $name: |p| p.$name($($argument),*), |p| p.$name($($argument),*),
            || stream::$name($($argument),*), $vec $(, $option)*)
    };
    ($seen:ident, $name:ident: $down:expr, $up:expr, $free:expr, $vec:expr $(, $option:ident)*) => {{
        #[allow(unused_mut)]
        let mut row = Row {
            name: stringify!($name),
            down: $down,
            up: $up,
            free: $free,
            on_a_vec: $vec,
            sorted: false,
            ends_with_input: true,
        };
        $(row!(@option row, $option);)*
        play(&row, &mut $seen);
    }};
    (@option $row:ident, sorted) => { $row.sorted = true };
    (@option $row:ident, waits) => { $row.ends_with_input = false };
}

/// For stages of results: good if the number is not 4.
fn checked(n: u32) -> Result<u32, u32> {
    if n == 4 { Err(n) } else { Ok(n) }
}

/// Of all but 6, which is an error.
fn is_even(n: &u32) -> Result<bool, u32> {
    if *n == 6 { Err(*n) } else { Ok(n.is_multiple_of(2)) }
}

/// What `Iterator` does up to and with the first error.
fn up_to_error<T>(items: impl Iterator<Item = Result<T, u32>>) -> Vec<Result<T, u32>> {
    let mut kept = Vec::new();
    for item in items {
        let failed = item.is_err();
        kept.push(item);
        if failed {
            break;
        }
    }
    kept
}

/// The one item that a function which takes all items gives; it is cancelled when that is not wanted any more.
fn answer<O: Send + 'static>(f: impl FnOnce() -> Option<O> + Send + 'static) -> Pipe<O> {
    stream::producer(|tx| {
        fibra::scope(|s| {
            let taking = s.spawn(f);
            fibra::select_biased! {
                closed(tx) => s.cancel(),
                join(taking) -> result => {
                    if let Some(result) = result.unwrap_or_else(|error| error.resume_unwind()) {
                        let _ = tx.send(result);
                    }
                }
            }
        });
    })
}

/// Keeps a receiver until its channel ends.
fn keep(rx: Receiver<()>) {
    fibra::spawn(move || rx.iter().count());
}

/// A second input with these.
fn second(tx: PipeIn<u32>) {
    feed(tx.into_sender(), vec![3, 5, 5]);
}

/// Takes what comes out of a second output; gives both in one.
fn both(a: Receiver<u32>, b: Receiver<u32>) -> Pipe<u32> {
    a.pipe().merge(b.pipe())
}

/// The upstream end of two, whose items all arrive at one.
fn both_in(p: PipeIn<u32>) -> (PipeIn<u32>, PipeIn<u32>) {
    p.merge()
}

fn doubled(v: Vec<u32>) -> Vec<u32> {
    v.iter().chain(&v).copied().collect()
}

#[allow(clippy::cognitive_complexity)] // A table.
fn rows(part: usize) -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    if part == 0 {
        row!(seen, map(|n| n * 2 + 1), |v| v.into_iter().map(|n| n * 2 + 1).collect());
        row!(seen, filter(|n| n % 3 != 0), |v| v.into_iter().filter(|n| n % 3 != 0).collect());
        row!(seen, filter_map(|n: u32| n.checked_sub(4)), |v| v.into_iter().filter_map(|n| n.checked_sub(4)).collect());
        row!(
            seen,
            scan(0, |sum: &mut u32, n| {
                *sum += n;
                (*sum < 50).then_some(*sum)
            }),
            |v| v
                .into_iter()
                .scan(0, |sum: &mut u32, n| {
                    *sum += n;
                    (*sum < 50).then_some(*sum)
                })
                .collect()
        );
        row!(seen, flat_map(|n| 0..n % 4), |v| v.into_iter().flat_map(|n| 0..n % 4).collect());
        row!(seen, take(5), |v| v.into_iter().take(5).collect());
        row!(seen, take_while(|n| *n < 7), |v| v.into_iter().take_while(|n| *n < 7).collect());
        row!(seen, skip(3), |v| v.into_iter().skip(3).collect());
        row!(seen, skip_while(|n| *n < 4), |v| v.into_iter().skip_while(|n| *n < 4).collect());
        row!(seen, step_by(3), |v| v.into_iter().step_by(3).collect());
        row!(seen, enumerate(), |v| v.into_iter().enumerate().collect());
        row!(seen, inspect(|n| assert!(*n < 9)), |v| v);
        row!(seen, buffer(4), |v| v);
        row!(seen, chunks(3), |v| v.chunks(3).map(<[u32]>::to_vec).collect());
        row!(seen, windows(3), |v| v.windows(3).map(<[u32]>::to_vec).collect());
        row!(seen, dedup(), |mut v| {
            v.dedup();
            v
        });
        row!(seen, group_by(|n| n / 4), |v| {
            v.chunk_by(|a, b| a / 4 == b / 4).map(|group| (group[0] / 4, group.to_vec())).collect()
        });
        row!(seen, blackhole(), |_| vec![]);
    }
    if part == 1 {
        row!(
            seen,
            try_map: |p| p.map(checked).try_map(|n| if n == 6 { Err(n) } else { Ok(n + 1) }),
            |p| p.try_map(|n| if n == 6 { Err(n) } else { Ok(n + 1) }).map(checked),
            || {
                let (tx, rx) = stream::try_map(|n| if n == 6 { Err(n) } else { Ok(n + 1) });
                (tx.pipe_in().map(checked).into_sender(), rx)
            },
            |v| up_to_error(v.into_iter().map(checked).map(|n| n.and_then(|n| if n == 6 { Err(n) } else { Ok(n + 1) })))
        );
        row!(
            seen,
            try_filter: |p| p.map(checked).try_filter(is_even),
            |p| p.try_filter(is_even).map(checked),
            || {
                let (tx, rx) = stream::try_filter(is_even);
                (tx.pipe_in().map(checked).into_sender(), rx)
            },
            |v| {
                let bad = |n: &Result<u32, u32>| matches!(n, Err(_) | Ok(6));
                let failed = v.iter().copied().map(checked).find(bad).map(|n| Err(n.unwrap_or_else(|n| n)));
                let good = v.iter().copied().map(checked).take_while(|n| !bad(n));
                let good = good.filter(|n| n.is_ok_and(|n| n % 2 == 0));
                good.chain(failed).collect()
            }
        );
        row!(
            seen,
            stop_at_error: |p| p.map(checked).stop_at_error(),
            |p| p.stop_at_error().map(checked),
            || {
                let (tx, rx) = stream::stop_at_error();
                (tx.pipe_in().map(checked).into_sender(), rx)
            },
            |v| up_to_error(v.into_iter().map(checked))
        );
        row!(
            seen,
            skip_errors: |p| p.map(checked).skip_errors(|n| assert_eq!(n, 4)),
            |p| p.skip_errors(|n| assert_eq!(n, 4)).map(checked),
            || {
                let (tx, rx) = stream::skip_errors(|n| assert_eq!(n, 4));
                (tx.pipe_in().map(checked).into_sender(), rx)
            },
            |v| v.into_iter().filter_map(|n| checked(n).ok()).collect()
        );
        row!(
            seen,
            rpc: |p| p.map(|n| (n, channel::oneshot().0)).rpc(|n| n + 1),
            |p| p.rpc(|n| n + 1).map(|n: u32| (n, channel::oneshot().0)),
            || {
                let (tx, rx) = stream::rpc(|n| n + 1);
                (tx.pipe_in().map(|n: u32| (n, channel::oneshot().0)).into_sender(), rx)
            },
            |_| vec![]
        );
        // What takes the items itself downstream: the result comes out of the other two forms.
        row!(
            seen,
            fold: |p| answer(|| Some(p.fold(1, |a, n| a * 3 % 1000 + n))),
            |p| p.fold(1, |a, n| a * 3 % 1000 + n),
            || stream::fold(1, |a, n| a * 3 % 1000 + n),
            |v| vec![v.into_iter().fold(1, |a, n| a * 3 % 1000 + n)]
        );
        row!(
            seen,
            reduce: |p| answer(|| p.reduce(|a, n| a * 3 % 1000 + n)),
            |p| p.reduce(|a, n| a * 3 % 1000 + n),
            || stream::reduce(|a, n| a * 3 % 1000 + n),
            |v| v.into_iter().reduce(|a, n| a * 3 % 1000 + n).into_iter().collect()
        );
        row!(
            seen,
            count: |p| answer(|| Some(p.count())),
            |p| p.count(),
            || stream::count(),
            |v| vec![v.len()]
        );
        row!(
            seen,
            for_each: |p| answer(|| {
                p.for_each(|n| assert!(n < 9));
                Some(())
            }),
            |p| p.for_each(|n| assert!(n < 9)),
            || stream::for_each(|n| assert!(n < 9)),
            |_| vec![()]
        );
        row!(
            seen,
            collect: |p| answer(|| Some(p.collect::<Vec<_>>())),
            |p| p.collect(),
            || stream::collect(),
            |v| vec![v]
        );
        row!(
            seen,
            sink: |p| {
                let (tx, rx) = channel::rendezvous();
                fibra::spawn(move || p.sink(tx));
                rx.pipe()
            },
            |p| {
                let (done, end) = channel::unbounded();
                keep(end);
                done.pipe_in().sink(p.into_sender())
            },
            || {
                let (tx, rx) = channel::rendezvous();
                let (sink, end) = stream::sink(tx);
                keep(end);
                (sink, rx)
            },
            |v| v
        );
        row!(
            seen,
            write_to: |p| answer(|| p.map(|n| [n as u8]).write_to(std::io::sink()).ok()),
            |p| {
                let p = p.map(|written: std::io::Result<u64>| written.unwrap());
                p.write_to(std::io::sink()).map(|n: u32| [n as u8])
            },
            || {
                let (tx, rx) = stream::write_to(std::io::sink());
                (tx.pipe_in().map(|n: u32| [n as u8]).into_sender(), rx.pipe().map(Result::unwrap).into_receiver())
            },
            |v| vec![v.len() as u64]
        );
    }
    if part == 2 {
        row!(seen, throttle(NOW), |v| v);
        row!(seen, debounce(LONG), |v| v.last().copied().into_iter().collect());
        row!(seen, sample(LONG), |v| v.last().copied().into_iter().collect());
        row!(seen, timeout(LONG), |v| v);
        row!(seen, chunks_timeout(3, LONG), |v| v.chunks(3).map(<[u32]>::to_vec).collect());
        row!(
            seen,
            latch: |p| p.latch().blackhole(),
            |p| p.blackhole().latch(),
            || {
                let (tx, rx) = stream::latch();
                (tx, rx.pipe().blackhole().into_receiver())
            },
            |_| vec![]
        );
        row!(seen, killswitch(channel::never::<()>()), |v| v);
        row!(seen, deaf(), |_| vec![], waits);
        row!(seen, mute(), |_| vec![], waits);
        row!(
            seen,
            retry: |p| p.retry(RetryPolicy::fixed(NOW), |n| checked(*n)).map(|n| n.map_err(|error| error.attempts())),
            |p| p.map(|n: Result<u32, fibra::time::RetryError<u32>>| n.map_err(|error| error.attempts()))
                .retry(RetryPolicy::fixed(NOW), |n: &u32| checked(*n)),
            || {
                let (tx, rx) = stream::retry(RetryPolicy::fixed(NOW), |n: &u32| checked(*n));
                (tx, rx.pipe().map(|n| n.map_err(|error| error.attempts())).into_receiver())
            },
            |v| v.into_iter().map(|n| checked(n).map_err(|_| 5)).collect()
        );
        row!(
            seen,
            par_map(3, |n| {
                if n % 2 == 0 {
                    fibra::yield_now();
                }
                n + 1
            }),
            |v| v.into_iter().map(|n| n + 1).collect()
        );
        row!(
            seen,
            par_map_unordered(3, |n| {
                if n % 2 == 0 {
                    fibra::yield_now();
                }
                n + 1
            }),
            |v| v.into_iter().map(|n| n + 1).collect(),
            sorted
        );
    }
    if part == 3 {
        row!(
            seen,
            zip: |p| p.zip(stream::from_iter([3, 5, 5])),
            |p| {
                let (a, b) = p.zip();
                second(b);
                a
            },
            || {
                let ((a, b), rx) = stream::zip();
                second(b.pipe_in());
                (a, rx)
            },
            |v| v.into_iter().zip([3, 5, 5]).collect()
        );
        macro_rules! joined {
            ($name:ident, $vec:expr $(, $option:ident)*) => {
                row!(
                    seen,
                    $name: |p| p.$name(stream::from_iter([3, 5, 5])),
                    |p| {
                        let (a, b) = p.$name();
                        second(b);
                        a
                    },
                    || {
                        let ((a, b), rx) = stream::$name();
                        second(b.pipe_in());
                        (a, rx)
                    },
                    $vec $(, $option)*
                )
            };
        }
        joined!(merge, |v| v.into_iter().chain([3, 5, 5]).collect(), sorted);
        joined!(concat, |v| v.into_iter().chain([3, 5, 5]).collect());
        joined!(interleave, |v| {
            let (mut a, mut b) = (v.into_iter(), [3, 5, 5].into_iter());
            let mut out = Vec::new();
            loop {
                match (a.next(), b.next()) {
                    (None, None) => return out,
                    (left, right) => out.extend(left.into_iter().chain(right)),
                }
            }
        });
        // (In order, so that the result is: what comes out is the sorted whole.)
        row!(
            seen,
            merge_ordered: |p| {
                let p = p.enumerate().map(|(i, n)| i as u32 * 10 + n);
                p.merge_ordered(stream::from_iter([3, 5, 5]))
            },
            |p| {
                let (a, b) = p.merge_ordered();
                second(b);
                a.map(|(i, n): (usize, u32)| i as u32 * 10 + n).enumerate()
            },
            || {
                let ((a, b), rx) = stream::merge_ordered();
                second(b.pipe_in());
                (a.pipe_in().map(|(i, n): (usize, u32)| i as u32 * 10 + n).enumerate().into_sender(), rx)
            },
            |v| {
                let mut all: Vec<u32> = v.into_iter().enumerate().map(|(i, n)| i as u32 * 10 + n).collect();
                all.extend([3, 5, 5]);
                all.sort_unstable();
                all
            }
        );
        // (The other one never gives anything, and is closed if the first is empty.)
        row!(
            seen,
            first_wins: |p| p.first_wins(stream::from_iter([])),
            |p| {
                let (a, b) = p.first_wins();
                drop(b);
                a
            },
            || {
                let ((a, b), rx) = stream::first_wins();
                drop(b);
                (a, rx)
            },
            |v| v
        );
        row!(
            seen,
            tee: |p| {
                let (a, b) = p.tee();
                both(a.into_receiver(), b.into_receiver())
            },
            |p| {
                let (a, b) = both_in(p);
                a.tee(b)
            },
            || {
                let (tx, (a, b)) = stream::tee();
                (tx, both(a, b).into_receiver())
            },
            doubled,
            sorted
        );
        row!(
            seen,
            partition: |p| {
                let (a, b) = p.partition(|n| n % 2 == 0);
                both(a.into_receiver(), b.into_receiver())
            },
            |p| {
                let (a, b) = both_in(p);
                a.partition(|n| n % 2 == 0, b)
            },
            || {
                let (tx, (a, b)) = stream::partition(|n| n % 2 == 0);
                (tx, both(a, b).into_receiver())
            },
            |v| v,
            sorted
        );
        macro_rules! several {
            ($name:ident, $vec:expr) => {
                row!(
                    seen,
                    $name: |p| {
                        let mut out = p.$name(2).into_iter().map(Pipe::into_receiver);
                        both(out.next().unwrap(), out.next().unwrap())
                    },
                    |p| {
                        let (a, b) = both_in(p);
                        a.$name([b])
                    },
                    || {
                        let (tx, out) = stream::$name(2);
                        let mut out = out.into_iter();
                        (tx, both(out.next().unwrap(), out.next().unwrap()).into_receiver())
                    },
                    $vec,
                    sorted
                )
            };
        }
        several!(broadcast, doubled);
        several!(fan_out, |v| v);
    }
    seen
}

/// The names that the given parts have rows for.
const PARTS: usize = 4;

// S0-103, S0-104: every stage has its three forms, and they do the same. S0-105, S0-112: ended from either side, it ends, and nothing is
// left.
#[test]
fn steps() {
    let _watchdog = support::watchdog(240);
    rows(0);
}

#[test]
fn results_and_folds() {
    let _watchdog = support::watchdog(240);
    rows(1);
}

#[test]
fn timed_and_parallel() {
    let _watchdog = support::watchdog(240);
    rows(2);
}

#[test]
fn several_ends() {
    let _watchdog = support::watchdog(240);
    rows(3);
}

// A stage that has no row fails here. (The rows are read from this file: playing them takes long.)
#[test]
fn every_stage_has_a_row() {
    let text = include_str!("table.rs");
    let has_row = |name: &str| {
        let written =
            [format!("seen, {name}("), format!("seen,\n            {name}("), format!("seen,\n            {name}:")];
        let by_macro = [format!("joined!({name},"), format!("several!({name},")];
        written.iter().chain(&by_macro).any(|row| text.contains(row))
    };
    let all: BTreeSet<&str> = stream::STAGES.iter().flat_map(|names| names.iter().copied()).collect();
    let missing: Vec<_> = all.iter().filter(|name| !has_row(name)).collect();
    assert!(missing.is_empty(), "no row in this table for {missing:?}");
    assert!(!has_row("no_such_stage") && all.len() >= 48 && PARTS == 4, "{}", all.len());
}
