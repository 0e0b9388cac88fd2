//! Stages that are one operation on one item: what can be fused. Named and shaped as in `Iterator`.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::mem;

use super::chain::{Flow, Push, Step};
use super::home::{Home, Place};
use super::pipe::{Pair, Pipe, PipeIn};
use super::run;
use super::stages::stages;
use crate::channel::{OneshotSender, Receiver, RecvError, Sender, oneshot};

const MORE: Flow = Flow::Continue(());
const STOP: Flow = Flow::Break(());

/// A step from what it does with an item. (A trait method that is generic over where it pushes cannot be a closure.) In brackets: the type
/// of its items, if its fields do not name it.
macro_rules! step {
    ($(
        [$($free:ident)?] struct $name:ident<$($generic:ident),*> { $($field:ident: $type:ty),* }
        ($me:ident, $item:ident: $from:ty, $out:ident) -> $to:ty where { $($bounds:tt)* }
            $step:block
        $(end $end:block)?
        $(done $done:block)?
    )+) => {$(
        struct $name<$($generic),*> { $($field: $type),* }

        impl<$($free,)? $($generic),*> Step<$from> for $name<$($generic),*>
        where $($bounds)*
        {
            type Out = $to;

            #[inline]
            fn step(&mut self, $item: $from, $out: &mut (impl Push<$to> + ?Sized)) -> Flow {
                let $me = self;
                let _ = (&$me, &$out);
                $step
            }

            $(
                #[inline]
                fn end(&mut self, $out: &mut (impl Push<$to> + ?Sized)) -> Flow {
                    let $me = self;
                    let _ = &$me;
                    $end
                }
            )?

            $(
                fn is_done(&self) -> bool {
                    let $me = self;
                    $done
                }
            )?
        }
    )+};
}

step! {
    [A] struct Filter<F> { f: F }
    (me, item: A, out) -> A where { F: FnMut(&A) -> bool } {
        if (me.f)(&item) { out.push(item) } else { MORE }
    }

    [A] struct Inspect<F> { f: F }
    (me, item: A, out) -> A where { F: FnMut(&A) } {
        (me.f)(&item);
        out.push(item)
    }

    [A] struct Take<> { left: usize }
    (me, item: A, out) -> A where {} {
        me.left -= 1;
        // The last one is not followed by a wait for another.
        if out.push(item).is_break() || me.left == 0 { STOP } else { MORE }
    }
    done { me.left == 0 }

    [A] struct TakeWhile<F> { f: F }
    (me, item: A, out) -> A where { F: FnMut(&A) -> bool } {
        if (me.f)(&item) { out.push(item) } else { STOP }
    }

    [A] struct Skip<> { left: usize }
    (me, item: A, out) -> A where {} {
        if me.left == 0 {
            return out.push(item);
        }
        me.left -= 1;
        MORE
    }

    [A] struct SkipWhile<F> { f: Option<F> }
    (me, item: A, out) -> A where { F: FnMut(&A) -> bool } {
        if me.f.as_mut().is_some_and(|f| f(&item)) {
            return MORE;
        }
        me.f = None;
        out.push(item)
    }

    [A] struct StepBy<> { every: usize, to_skip: usize }
    (me, item: A, out) -> A where {} {
        if me.to_skip > 0 {
            me.to_skip -= 1;
            return MORE;
        }
        me.to_skip = me.every - 1;
        out.push(item)
    }

    [A] struct Enumerate<> { next: usize }
    (me, item: A, out) -> (usize, A) where {} {
        let index = me.next;
        me.next += 1;
        out.push((index, item))
    }

    [A] struct Pass<> {}
    (me, item: A, out) -> A where {} {
        out.push(item)
    }

    [A] struct Blackhole<> {}
    (me, item: A, out) -> A where {} {
        drop(item);
        MORE
    }
}

type Of<T> = std::marker::PhantomData<fn(T)>;

step! {
    [] struct Map<A, B, F> { f: F, of: Of<(A, B)> }
    (me, item: A, out) -> B where { F: FnMut(A) -> B } {
        out.push((me.f)(item))
    }

    [] struct FilterMap<A, B, F> { f: F, of: Of<(A, B)> }
    (me, item: A, out) -> B where { F: FnMut(A) -> Option<B> } {
        match (me.f)(item) {
            Some(item) => out.push(item),
            None => MORE,
        }
    }

    [] struct Scan<A, B, S, F> { state: S, f: F, of: Of<(A, B)> }
    (me, item: A, out) -> B where { F: FnMut(&mut S, A) -> Option<B> } {
        match (me.f)(&mut me.state, item) {
            Some(item) => out.push(item),
            None => STOP,
        }
    }

    [] struct FlatMap<A, I, F> { f: F, of: Of<(A, I)> }
    (me, item: A, out) -> I::Item where { I: IntoIterator, F: FnMut(A) -> I } {
        (me.f)(item).into_iter().try_for_each(|item| out.push(item))
    }

    [] struct Chunks<T> { size: usize, chunk: Vec<T> }
    (me, item: T, out) -> Vec<T> where {} {
        me.chunk.push(item);
        if me.chunk.len() < me.size {
            return MORE;
        }
        let next = Vec::with_capacity(me.size);
        out.push(mem::replace(&mut me.chunk, next))
    }
    end {
        if me.chunk.is_empty() { MORE } else { out.push(mem::take(&mut me.chunk)) }
    }

    [] struct Windows<T> { size: usize, window: VecDeque<T> }
    (me, item: T, out) -> Vec<T> where { T: Clone } {
        if me.window.len() == me.size {
            me.window.pop_front();
        }
        me.window.push_back(item);
        if me.window.len() < me.size { MORE } else { out.push(me.window.iter().cloned().collect()) }
    }

    [] struct Dedup<T> { last: Option<T> }
    (me, item: T, out) -> T where { T: Clone + PartialEq } {
        if me.last.as_ref() == Some(&item) {
            return MORE;
        }
        me.last = Some(item.clone());
        out.push(item)
    }

    [] struct GroupBy<T, K, F> { key: F, group: Option<(K, Vec<T>)> }
    (me, item: T, out) -> (K, Vec<T>) where { K: PartialEq, F: FnMut(&T) -> K } {
        let key = (me.key)(&item);
        match &mut me.group {
            Some((same, group)) if *same == key => {
                group.push(item);
                MORE
            }
            _ => match me.group.replace((key, vec![item])) {
                Some(group) => out.push(group),
                None => MORE,
            },
        }
    }
    end {
        me.group.take().map_or(MORE, |group| out.push(group))
    }

    [] struct TryMap<A, B, E, F> { f: F, of: Of<(A, B, E)> }
    (me, item: Result<A, E>, out) -> Result<B, E> where { F: FnMut(A) -> Result<B, E> } {
        match item.and_then(&mut me.f) {
            Ok(item) => out.push(Ok(item)),
            Err(error) => {
                let _ = out.push(Err(error));
                STOP
            }
        }
    }

    [] struct TryFilter<T, E, F> { f: F, of: Of<(T, E)> }
    (me, item: Result<T, E>, out) -> Result<T, E> where { F: FnMut(&T) -> Result<bool, E> } {
        let kept = match item {
            Ok(item) => match (me.f)(&item) {
                Ok(true) => Ok(item),
                Ok(false) => return MORE,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let failed = kept.is_err();
        if out.push(kept).is_break() || failed { STOP } else { MORE }
    }

    [] struct StopAtError<T, E> { of: Of<(T, E)> }
    (me, item: Result<T, E>, out) -> Result<T, E> where {} {
        let failed = item.is_err();
        if out.push(item).is_break() || failed { STOP } else { MORE }
    }

    [] struct SkipErrors<T, E, F> { f: F, of: Of<(T, E)> }
    (me, item: Result<T, E>, out) -> T where { F: FnMut(E) } {
        match item {
            Ok(item) => out.push(item),
            Err(error) => {
                (me.f)(error);
                MORE
            }
        }
    }

    [] struct Fold<A, B, F> { sum: Option<B>, f: F, of: Of<A> }
    (me, item: A, out) -> B where { F: FnMut(B, A) -> B } {
        me.sum = me.sum.take().map(|sum| (me.f)(sum, item));
        MORE
    }
    end {
        me.sum.take().map_or(MORE, |sum| out.push(sum))
    }

    [] struct Reduce<T, F> { sum: Option<T>, f: F }
    (me, item: T, out) -> T where { F: FnMut(T, T) -> T } {
        me.sum = Some(match me.sum.take() {
            Some(sum) => (me.f)(sum, item),
            None => item,
        });
        MORE
    }
    end {
        me.sum.take().map_or(MORE, |sum| out.push(sum))
    }

    [] struct Count<T> { count: usize, of: Of<T> }
    (me, item: T, out) -> usize where {} {
        drop(item);
        me.count += 1;
        MORE
    }
    end { out.push(me.count) }

    [] struct ForEach<A, F> { f: F, of: Of<A> }
    (me, item: A, out) -> () where { F: FnMut(A) } {
        (me.f)(item);
        MORE
    }
    end { out.push(()) }

    [] struct WriteTo<B, W> { writer: W, written: u64, of: Of<B> }
    (me, item: B, out) -> io::Result<u64> where { B: AsRef<[u8]>, W: Write } {
        let bytes = item.as_ref();
        me.written += bytes.len() as u64;
        match me.writer.write_all(bytes) {
            Ok(()) => MORE,
            Err(error) => {
                let _ = out.push(Err(error));
                STOP
            }
        }
    }
    end {
        let flushed = me.writer.flush();
        out.push(flushed.map(|()| me.written))
    }

    [] struct Rpc<Q, R, F> { f: F, of: Of<(Q, R)> }
    (me, call: Call<Q, R>, out) -> () where { F: FnMut(Q) -> R } {
        let (request, reply) = call;
        // A caller that has given up meanwhile does not want to know.
        if !reply.is_closed() {
            let _ = reply.send((me.f)(request));
        }
        MORE
    }

    [] struct Collect<A, B> { items: B, of: Of<A> }
    (me, item: A, out) -> B where { B: Default + Extend<A> } {
        me.items.extend([item]);
        MORE
    }
    end { out.push(mem::take(&mut me.items)) }
}

fn of<T>() -> Of<T> {
    std::marker::PhantomData
}

/// The size of a chunk or window.
#[track_caller]
fn at_least_one(what: &str, size: usize) -> usize {
    assert!(size > 0, "fibra: {what} of 0 items would never be full: give at least 1");
    size
}

stages! { STEPS "steps":
    /// What `f` makes of each item.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// assert_eq!(stream::from_iter(1..4).map(|n| n.to_string()).collect::<Vec<_>>(), ["1", "2", "3"]);
    /// # });
    /// ```
    step map [] [A] [B] [F] (f: F): A => B where { F: FnMut(A) -> B } = Map { f, of: of() };

    /// The items of which `f` is true.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// assert_eq!(stream::from_iter(1..9).filter(|n| n % 3 == 0).collect::<Vec<_>>(), [3, 6]);
    /// # });
    /// ```
    step filter [T] [] [] [F] (f: F): T => T where { F: FnMut(&T) -> bool } = Filter { f };

    /// What `f` makes of an item, where it makes something.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let numbers = stream::from_iter(["1", "x", "3"]).filter_map(|text| text.parse::<u32>().ok());
    /// assert_eq!(numbers.collect::<Vec<_>>(), [1, 3]);
    /// # });
    /// ```
    step filter_map [] [A] [B] [F] (f: F): A => B where { F: FnMut(A) -> Option<B> } = FilterMap { f, of: of() };

    /// What `f` makes of each item and a state; `None` ends it.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let sums = stream::from_iter(1..5).scan(0, |sum, n| { *sum += n; Some(*sum) });
    /// assert_eq!(sums.collect::<Vec<_>>(), [1, 3, 6, 10]);
    /// # });
    /// ```
    step scan [] [A] [B] [S, F] (initial: S, f: F): A => B
        where { F: FnMut(&mut S, A) -> Option<B> } = Scan { state: initial, f, of: of() };

    /// All that `f` makes of each item, one after the other.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let words = stream::from_iter(["a b", "c"]).flat_map(|line: &str| line.split(' ').collect::<Vec<_>>());
    /// assert_eq!(words.collect::<Vec<_>>(), ["a", "b", "c"]);
    /// # });
    /// ```
    step flat_map [] [A] [B] [I, F] (f: F): A => B
        where { I: IntoIterator<Item = B>, F: FnMut(A) -> I } = FlatMap { f, of: of() };

    /// The first `count` items; then the pipeline before it is torn down.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| assert_eq!(stream::from_iter(1..).take(2).collect::<Vec<_>>(), [1, 2]));
    /// ```
    step take [T] [] [] [] (count: usize): T => T where {} = Take { left: count };

    /// The items up to the first of which `f` is false; then the pipeline before it is torn down.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| assert_eq!(stream::from_iter(1..).take_while(|n| *n < 3).collect::<Vec<_>>(), [1, 2]));
    /// ```
    step take_while [T] [] [] [F] (f: F): T => T where { F: FnMut(&T) -> bool } = TakeWhile { f };

    /// All but the first `count` items.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| assert_eq!(stream::from_iter(1..5).skip(2).collect::<Vec<_>>(), [3, 4]));
    /// ```
    step skip [T] [] [] [] (count: usize): T => T where {} = Skip { left: count };

    /// The items from the first on of which `f` is false.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| assert_eq!(stream::from_iter([1, 5, 2]).skip_while(|n| *n < 3).collect::<Vec<_>>(), [5, 2]));
    /// ```
    step skip_while [T] [] [] [F] (f: F): T => T where { F: FnMut(&T) -> bool } = SkipWhile { f: Some(f) };

    /// The first item, and every `every`th after it.
    ///
    /// # Panics
    /// If `every` is 0.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| assert_eq!(stream::from_iter(0..7).step_by(3).collect::<Vec<_>>(), [0, 3, 6]));
    /// ```
    step step_by [T] [] [] [] (every: usize): T => T
        where {} = StepBy { every: at_least_one("a step", every), to_skip: 0 };

    /// Each item with its number, from 0.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| assert_eq!(stream::from_iter("ab".chars()).enumerate().collect::<Vec<_>>(), [(0, 'a'), (1, 'b')]));
    /// ```
    step enumerate [T] [] [] [] (): T => (usize, T) where {} = Enumerate { next: 0 };

    /// Shows each item to `f`.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| assert_eq!(stream::from_iter(0..3).inspect(|n| println!("{n}")).count(), 3));
    /// ```
    step inspect [T] [] [] [F] (f: F): T => T where { F: FnMut(&T) } = Inspect { f };

    /// Items in groups of `size`; the last one may be smaller.
    ///
    /// # Panics
    /// If `size` is 0.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| assert_eq!(stream::from_iter(1..6).chunks(2).collect::<Vec<_>>(), [vec![1, 2], vec![3, 4], vec![5]]));
    /// ```
    step chunks [T] [] [] [] (size: usize): T => Vec<T>
        where {} = Chunks { size: at_least_one("a chunk", size), chunk: Vec::new() };

    /// Each run of `size` consecutive items.
    ///
    /// # Panics
    /// If `size` is 0.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| assert_eq!(stream::from_iter(1..5).windows(3).collect::<Vec<_>>(), [[1, 2, 3], [2, 3, 4]]));
    /// ```
    step windows [T] [] [] [] (size: usize): T => Vec<T>
        where { T: Clone } = Windows { size: at_least_one("a window", size), window: VecDeque::new() };

    /// Leaves out an item that equals the one before it.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| assert_eq!(stream::from_iter([1, 1, 2, 1]).dedup().collect::<Vec<_>>(), [1, 2, 1]));
    /// ```
    step dedup [T] [] [] [] (): T => T where { T: Clone + PartialEq } = Dedup { last: None };

    /// Runs of consecutive items with the same key.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let groups = stream::from_iter([1, 3, 4, 5]).group_by(|n| n % 2);
    /// assert_eq!(groups.collect::<Vec<_>>(), [(1, vec![1, 3]), (0, vec![4]), (1, vec![5])]);
    /// # });
    /// ```
    step group_by [T] [] [K] [F] (key: F): T => (K, Vec<T>)
        where { K: PartialEq, F: FnMut(&T) -> K } = GroupBy { key, group: None };

    /// What `f` makes of each good item; ends behind the first error, of the items or of `f`.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let halves = stream::from_iter([Ok(4), Ok(5), Ok(6)]).try_map(|n| if n % 2 == 0 { Ok(n / 2) } else { Err(n) });
    /// assert_eq!(halves.collect::<Vec<_>>(), [Ok(2), Err(5)]);
    /// # });
    /// ```
    step try_map [E] [A] [B] [F] (f: F): Result<A, E> => Result<B, E>
        where { F: FnMut(A) -> Result<B, E> } = TryMap { f, of: of() };

    /// The good items of which `f` is true; ends behind the first error, of the items or of `f`.
    step try_filter [T, E] [] [] [F] (f: F): Result<T, E> => Result<T, E>
        where { F: FnMut(&T) -> Result<bool, E> } = TryFilter { f, of: of() };

    /// Everything up to the first error, which is the last item.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let got = stream::from_iter([Ok(1), Err("x"), Ok(2)]).stop_at_error();
    /// assert_eq!(got.collect::<Vec<_>>(), [Ok(1), Err("x")]);
    /// # });
    /// ```
    step stop_at_error [T, E] [] [] [] (): Result<T, E> => Result<T, E> where {} = StopAtError { of: of() };

    /// The good items; errors go to `f`, and the pipeline goes on.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let got = stream::from_iter([Ok(1), Err("x"), Ok(2)]).skip_errors(|error| println!("{error}"));
    /// assert_eq!(got.collect::<Vec<_>>(), [1, 2]);
    /// # });
    /// ```
    step skip_errors [T] [E] [] [F] (f: F): Result<T, E> => T where { F: FnMut(E) } = SkipErrors { f, of: of() };

    /// Lets what is before it run up to `count` items ahead of what is behind it.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let (tx, rx) = fibra::channel::rendezvous();
    /// let out = rx.pipe().buffer(2);
    /// tx.send(1).unwrap();
    /// tx.send(2).unwrap(); // the first one was not taken yet
    /// drop(tx);
    /// assert_eq!(out.collect::<Vec<_>>(), [1, 2]);
    /// # });
    /// ```
    link_step buffer [T] [] [] [] (count: usize): T => T where {} = (count, Pass {});

    /// Answers requests with `f`; see [`call`]. It gives nothing, and ends with its input.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let (server, _running) = stream::rpc(|n: u32| n + 1);
    /// assert_eq!(stream::call(&server, 41), Ok(42));
    /// # });
    /// ```
    step rpc [] [Q, R] [] [F] (f: F): Call<Q, R> => () where { F: FnMut(Q) -> R } = Rpc { f, of: of() };

    /// Takes everything and gives nothing; ends with its input.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| assert_eq!(stream::from_iter(0..10).blackhole().count(), 0));
    /// ```
    step blackhole [T] [] [] [] (): T => T where {} = Blackhole {};
}

/// A request, and where its answer goes; see [`call`].
pub type Call<Q, R> = (Q, OneshotSender<R>);

/// Asks a stage that answers ([`Pipe::rpc`]), and waits for the answer.
///
/// # Errors
/// If the stage is gone, or did not answer.
#[track_caller]
pub fn call<Q, R>(to: &Sender<Call<Q, R>>, request: Q) -> Result<R, RecvError> {
    let (reply, answer) = oneshot();
    to.send((request, reply)).map_err(|_| RecvError)?;
    answer.recv()
}

stages! { FOLDS "steps" upstream:
    step fold [] [A] [B] [F] (initial: B, f: F): A => B
        where { F: FnMut(B, A) -> B } = Fold { sum: Some(initial), f, of: of() };
    step reduce [T] [] [] [F] (f: F): T => T where { F: FnMut(T, T) -> T } = Reduce { sum: None, f };
    step count [] [T] [] [] (): T => usize where {} = Count { count: 0, of: of() };
    step for_each [] [A] [] [F] (f: F): A => () where { F: FnMut(A) } = ForEach { f, of: of() };
    core sink [] [T] [] [] (into: Sender<T>): T => ()
        where {} = move |input: &Receiver<T>, output: &Sender<()>| run::sink(input, output, &into);
    step write_to [] [B] [] [W] (writer: W): B => io::Result<u64>
        where { B: AsRef<[u8]>, W: Write } = WriteTo { writer, written: 0, of: of() };
    step collect [] [A] [B] [] (): A => B where { B: Default + Extend<A> } = Collect { items: B::default(), of: of() };
}
