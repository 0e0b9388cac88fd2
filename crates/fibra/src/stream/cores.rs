//! Stages with a loop of their own: those that look at the clock, at a second channel, or run their function elsewhere. What they do is in
//! `run`; here they are described.

use std::time::Duration;

use super::home::{Home, Place};
use super::pipe::{Pair, Pipe, PipeIn};
use super::run;
use super::stages::stages;
use crate::channel::{Receiver, Sender};
use crate::time::{RetryError, RetryIf, RetryPolicy};

stages! { CORES "cores":
    /// Lets at most one item pass in each `period`; the others wait.
    core throttle [T] [] [] [] (period: Duration): T => T
        where {} = move |input: &Receiver<T>, output: &Sender<T>| run::throttle(input, output, period);

    /// An item that was not followed by another one for `quiet`; and the last one.
    core debounce [T] [] [] [] (quiet: Duration): T => T
        where {} = move |input: &Receiver<T>, output: &Sender<T>| run::debounce(input, output, quiet);

    /// The latest item in each `period`, if there is one; and the last one.
    core sample [T] [] [] [] (period: Duration): T => T
        where {} = move |input: &Receiver<T>, output: &Sender<T>| run::sample(input, output, period);

    /// Ends the pipeline with an error ([`CloseReason::Error`](crate::channel::CloseReason::Error) at both ends) when no item has come
    /// for `patience`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fibra::run(|| {
    /// let (tx, rx) = fibra::channel::rendezvous::<u32>();
    /// let out = rx.pipe().timeout(Duration::from_millis(1)).into_receiver();
    /// assert!(out.recv().is_err() && out.finish().is_err() && !tx.closed().is_orderly());
    /// # });
    /// ```
    core timeout [T] [] [] [] (patience: Duration): T => T
        where {} = move |input: &Receiver<T>, output: &Sender<T>| run::timeout(input, output, patience);

    /// Items in groups of `size`, or as many as came within `patience` after the first of them.
    ///
    /// # Panics
    /// The stage does if `size` is 0.
    core chunks_timeout [T] [] [] [] (size: usize, patience: Duration): T => Vec<T>
        where {} =
        move |input: &Receiver<T>, output: &Sender<Vec<T>>| run::chunks_timeout(input, output, size, patience);

    /// Gives the latest item to each receive, as often as there is one; ends with its input, after the last item was given once.
    core latch [T] [] [] [] (): T => T
        where { T: Clone } = |input: &Receiver<T>, output: &Sender<T>| run::latch(input, output);

    /// Passes items on until something comes out of `switch`, or its senders are gone; then it ends.
    ///
    /// ```
    /// # fibra::run(|| {
    /// let (switch, off) = fibra::channel::rendezvous::<()>();
    /// let mut numbers = fibra::stream::from_iter(0..).killswitch(off);
    /// assert_eq!(numbers.next(), Some(0));
    /// drop(switch);
    /// assert!(numbers.count() <= 1);
    /// # });
    /// ```
    core killswitch [T] [] [] [K] (switch: Receiver<K>): T => T
        where {} = move |input: &Receiver<T>, output: &Sender<T>| run::killswitch(input, output, &switch);

    /// Takes nothing: what is before it waits. Ends with its input or its output.
    core deaf [T] [] [] [] (): T => T where {} = |input: &Receiver<T>, output: &Sender<T>| run::deaf(input, output);

    /// Takes everything and says nothing, not even that its input is over: ends with its output.
    core mute [T] [] [] [] (): T => T where {} = |input: &Receiver<T>, output: &Sender<T>| run::mute(input, output);

    /// What `f` makes of each item, tried again as the policy says.
    ///
    /// ```
    /// use fibra::{RetryPolicy, stream};
    /// use std::time::Duration;
    ///
    /// fibra::run(|| {
    ///     let mut calls = 0;
    ///     let flaky = move |n: &u32| {
    ///         calls += 1;
    ///         if calls % 2 == 0 { Ok(*n) } else { Err("not now") }
    ///     };
    ///     let out = stream::from_iter(1..=3).retry(RetryPolicy::fixed(Duration::ZERO), flaky);
    ///     assert_eq!(out.map(|result| result.unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    /// });
    /// ```
    core retry [] [A] [B, E] [F, G] (policy: RetryPolicy<G>, f: F): A => Result<B, RetryError<E>>
        where { F: FnMut(&A) -> Result<B, E>, G: RetryIf<E> + Clone } =
        move |input: &Receiver<A>, output: &Sender<Result<B, RetryError<E>>>| run::retry(input, output, &policy, f);

    /// What `f` makes of each item, `count` at a time, each on a fiber of its own; in the order of the items.
    ///
    /// ```
    /// # fibra::run(|| {
    /// let out = fibra::stream::from_iter(1..=4u64).par_map(4, |n| {
    ///     fibra::sleep(std::time::Duration::from_micros(400 - 100 * n));
    ///     n
    /// });
    /// assert_eq!(out.collect::<Vec<_>>(), [1, 2, 3, 4]);
    /// # });
    /// ```
    core par_map [] [A] [B] [F] (count: usize, f: F): A => B
        where { F: Fn(A) -> B + Sync } =
        move |input: &Receiver<A>, output: &Sender<B>| run::par_map(input, output, count, &f);

    /// Like [`par_map`](Self::par_map), in the order in which they are done.
    core par_map_unordered [] [A] [B] [F] (count: usize, f: F): A => B
        where { F: Fn(A) -> B + Sync } =
        move |input: &Receiver<A>, output: &Sender<B>| run::par_map_unordered(input, output, count, &f);
}
