//! The loops of `cores`: one function each, over input and output. Each watches the death of its output before anything else.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::chain::{Ended, Next, OutputEnd, next, over};
use crate::channel::{self, CloseReason, Receiver, Sender, at, select_biased, tick, unbounded};
use crate::scope::{Scope, scope};
use crate::select::private;
use crate::task::JoinHandle;
use crate::time::{Instant, RetryError, RetryIf, RetryPolicy, retry_with};

/// Sends, and says whether the stage goes on.
macro_rules! send {
    ($output:ident, $item:expr) => {
        if $output.send($item).is_err() {
            return Ended::Stopped;
        }
    };
}

/// The next item; returns if there is none, or the output is gone.
macro_rules! next {
    ($input:ident, $output:ident) => {
        match next($input, &mut OutputEnd::new($output)) {
            Next::Item(item) => item,
            Next::Over => return over($input),
            Next::Gone => return Ended::Stopped,
        }
    };
}

pub(super) fn throttle<T>(input: &Receiver<T>, output: &Sender<T>, period: Duration) -> Ended {
    let mut free = Instant::now();
    loop {
        let item = next!(input, output);
        let due = at(free);
        select_biased! {
            closed(output) => return Ended::Stopped,
            recv(due) -> _ => {}
        }
        send!(output, item);
        // From when it was taken, not from when it was offered: a reader that was slow does not get two at once.
        free = Instant::after(period);
    }
}

pub(super) fn debounce<T>(input: &Receiver<T>, output: &Sender<T>, quiet: Duration) -> Ended {
    let mut latest = next!(input, output);
    loop {
        select_biased! {
            closed(output) => return Ended::Stopped,
            recv(input) -> got => match got {
                Ok(item) => latest = item,
                Err(_) => {
                    send!(output, latest);
                    return over(input);
                }
            },
            after(quiet) => {
                send!(output, latest);
                latest = next!(input, output);
            }
        }
    }
}

pub(super) fn sample<T>(input: &Receiver<T>, output: &Sender<T>, period: Duration) -> Ended {
    let ticks = tick(period);
    let mut latest = None;
    loop {
        select_biased! {
            closed(output) => return Ended::Stopped,
            recv(ticks) -> _, if latest.is_some() => {
                if let Some(item) = latest.take() {
                    send!(output, item);
                }
            }
            recv(input) -> got => match got {
                Ok(item) => latest = Some(item),
                Err(_) => {
                    // The last one would be lost otherwise.
                    if let Some(item) = latest {
                        send!(output, item);
                    }
                    return over(input);
                }
            },
        }
    }
}

pub(super) fn timeout<T>(input: &Receiver<T>, output: &Sender<T>, patience: Duration) -> Ended {
    loop {
        select_biased! {
            closed(output) => return Ended::Stopped,
            recv(input) -> got => match got {
                Ok(item) => send!(output, item),
                Err(_) => return over(input),
            },
            after(patience) => {
                let text = format!("no item has come for {patience:?}");
                return Ended::Failed(CloseReason::Error(Arc::from(Box::from(text))));
            }
        }
    }
}

pub(super) fn chunks_timeout<T>(
    input: &Receiver<T>,
    output: &Sender<Vec<T>>,
    size: usize,
    patience: Duration,
) -> Ended {
    assert!(size > 0, "fibra: a chunk of 0 items would never be full: give at least 1");
    loop {
        let mut chunk = vec![next!(input, output)];
        let late = channel::after(patience);
        while chunk.len() < size {
            select_biased! {
                closed(output) => return Ended::Stopped,
                recv(late) -> _ => break,
                recv(input) -> got => match got {
                    Ok(item) => chunk.push(item),
                    Err(_) => {
                        send!(output, chunk);
                        return over(input);
                    }
                },
            }
        }
        send!(output, mem::take(&mut chunk));
    }
}

pub(super) fn latch<T: Clone>(input: &Receiver<T>, output: &Sender<T>) -> Ended {
    let mut latest = next!(input, output);
    let mut given = false;
    loop {
        let copy = latest.clone();
        select_biased! {
            closed(output) => return Ended::Stopped,
            recv(input) -> got => match got {
                Ok(item) => (latest, given) = (item, false),
                Err(_) => {
                    if !given {
                        send!(output, latest);
                    }
                    return over(input);
                }
            },
            send(output, { copy }) -> sent => {
                if sent.is_err() {
                    return Ended::Stopped;
                }
                given = true;
            }
        }
    }
}

pub(super) fn killswitch<T, K>(input: &Receiver<T>, output: &Sender<T>, switch: &Receiver<K>) -> Ended {
    loop {
        let item = select_biased! {
            closed(output) => return Ended::Stopped,
            recv(switch) -> _ => return Ended::Stopped,
            recv(input) -> got => match got {
                Ok(item) => item,
                Err(_) => return over(input),
            },
        };
        // The output's end and the switch are watched also while no receiver takes the item.
        select_biased! {
            closed(output) => return Ended::Stopped,
            recv(switch) -> _ => return Ended::Stopped,
            send(output, item) -> sent => {
                if sent.is_err() {
                    return Ended::Stopped;
                }
            }
        }
    }
}

pub(super) fn sink<T>(input: &Receiver<T>, output: &Sender<()>, into: &Sender<T>) -> Ended {
    loop {
        let sent = select_biased! {
            closed(output) => return Ended::Stopped,
            closed(into) => false,
            recv(input) -> got => match got {
                Ok(item) => into.send(item).is_ok(),
                Err(_) => {
                    send!(output, ());
                    return over(input);
                }
            },
        };
        if !sent {
            // To both sides, as if it were the output.
            return into.close_reason().filter(|why| !why.is_orderly()).map_or(Ended::Stopped, Ended::Failed);
        }
    }
}

pub(super) fn deaf<T>(input: &Receiver<T>, output: &Sender<T>) -> Ended {
    select_biased! {
        closed(output) => Ended::Stopped,
        closed(input) => over(input),
    }
}

pub(super) fn mute<T>(input: &Receiver<T>, output: &Sender<T>) -> Ended {
    loop {
        match next(input, &mut OutputEnd::new(output)) {
            Next::Item(item) => drop(item),
            Next::Gone => return Ended::Stopped,
            Next::Over => {
                output.closed();
                return over(input);
            }
        }
    }
}

pub(super) fn retry<A, B, E, G>(
    input: &Receiver<A>,
    output: &Sender<Result<B, RetryError<E>>>,
    policy: &RetryPolicy<G>,
    mut f: impl FnMut(&A) -> Result<B, E> + Send,
) -> Ended
where
    A: Send,
    B: Send,
    E: Send,
    G: RetryIf<E> + Clone + Send,
{
    loop {
        let item = next!(input, output);
        let (policy, f) = (policy.clone(), &mut f);
        // On a child: its pauses are cut short when the output goes.
        let result = scope(|s| {
            let trying = s.spawn(move || retry_with(policy, |_| f(&item)));
            select_biased! {
                closed(output) => {
                    s.cancel();
                    None
                }
                join(trying) -> result => Some(result.unwrap_or_else(|error| error.resume_unwind())),
            }
        });
        match result {
            Some(result) => send!(output, result),
            None => return Ended::Stopped,
        }
    }
}

/// A stage whose function runs on children of its own scope, `count` at a time.
fn with_children<'env, R>(f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> R {
    scope(|s| {
        let result = f(s);
        // What still runs is not wanted any more.
        s.cancel();
        result
    })
}

/// The result of a child; its panic goes on here.
fn joined<B>(child: JoinHandle<B>) -> B {
    child.join().unwrap_or_else(|error| error.resume_unwind())
}

pub(super) fn par_map<A, B, F>(input: &Receiver<A>, output: &Sender<B>, count: usize, f: &F) -> Ended
where
    A: Send,
    B: Send,
    F: Fn(A) -> B + Sync,
{
    let count = count.max(1);
    with_children(|s| {
        let mut running: VecDeque<JoinHandle<B>> = VecDeque::new();
        let mut open = true;
        loop {
            while running.front().is_some_and(JoinHandle::is_finished) {
                let oldest = running.pop_front().map(joined);
                send!(output, oldest.expect("it is there"));
            }
            if !open && running.is_empty() {
                return over(input);
            }
            let takes = open && running.len() < count;
            let got = select_biased! {
                closed(output) => return Ended::Stopped,
                on(running.front().map(private::join)) => None,
                recv(input) -> got, if takes => Some(got),
            };
            match got {
                // The oldest is done.
                None => {}
                Some(Ok(item)) => running.push_back(s.spawn(move || f(item))),
                Some(Err(_)) => open = false,
            }
        }
    })
}

pub(super) fn par_map_unordered<A, B, F>(input: &Receiver<A>, output: &Sender<B>, count: usize, f: &F) -> Ended
where
    A: Send,
    B: Send,
    F: Fn(A) -> B + Sync,
{
    let count = count.max(1);
    let (done, results) = unbounded();
    with_children(|s| {
        let (mut running, mut open) = (0, true);
        loop {
            if !open && running == 0 {
                return over(input);
            }
            select_biased! {
                closed(output) => return Ended::Stopped,
                recv(results) -> result => {
                    running -= 1;
                    if let Ok(result) = result {
                        send!(output, result);
                    }
                }
                recv(input) -> got, if open && running < count => match got {
                    Ok(item) => {
                        running += 1;
                        let done = done.clone();
                        s.spawn(move || drop(done.send(f(item))));
                    }
                    Err(_) => open = false,
                },
            }
        }
    })
}
