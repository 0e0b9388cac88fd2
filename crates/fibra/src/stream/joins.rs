//! Stages with two inputs: described once, for three forms.
//!
//! ```text
//! downstream   a.zip(b)              two pipes become one
//! upstream     pipe_in.zip()         one end becomes two
//! free         stream::zip()         two senders and a receiver
//! ```
//!
//! An input that ends in disorder (an error, a panic) ends the stage, and its reason goes on.

use super::chain::{Ended, Next, OutputEnd, next, over, pass_up};
use super::home::{Home, Place, Root};
use super::pipe::{Pipe, PipeIn, Plan, Waiting};
use crate::channel::{Receiver, Sender, bounded, select_biased};

/// Returns if the input did not end in order.
macro_rules! check {
    ($input:expr) => {
        if let Ended::Over(Some(why)) = over($input) {
            return Ended::Over(Some(why));
        }
    };
}

/// Sends, and says whether the stage goes on.
macro_rules! send {
    ($output:ident, $item:expr) => {
        if $output.send($item).is_err() {
            return Ended::Stopped;
        }
    };
}

/// The next item, if there is one; returns if the output is gone, or the input did not end in order.
macro_rules! next {
    ($input:expr, $output:ident) => {
        match next($input, &mut OutputEnd::new($output)) {
            Next::Item(item) => Some(item),
            Next::Over => {
                check!($input);
                None
            }
            Next::Gone => return Ended::Stopped,
        }
    };
}

fn run_zip<A, B>(a: &Receiver<A>, b: &Receiver<B>, output: &Sender<(A, B)>) -> Ended {
    loop {
        let Some(left) = next!(a, output) else { return over(a) };
        let Some(right) = next!(b, output) else { return over(b) };
        send!(output, (left, right));
    }
}

fn run_concat<T>(a: &Receiver<T>, b: &Receiver<T>, output: &Sender<T>) -> Ended {
    for input in [a, b] {
        while let Some(item) = next!(input, output) {
            send!(output, item);
        }
    }
    over(b)
}

fn run_interleave<T>(a: &Receiver<T>, b: &Receiver<T>, output: &Sender<T>) -> Ended {
    let mut inputs = [a, b];
    while let Some(item) = next!(inputs[0], output) {
        send!(output, item);
        inputs.reverse();
    }
    while let Some(item) = next!(inputs[1], output) {
        send!(output, item);
    }
    over(b)
}

fn run_merge_ordered<T: Ord>(a: &Receiver<T>, b: &Receiver<T>, output: &Sender<T>) -> Ended {
    let (mut left, mut right) = (next!(a, output), next!(b, output));
    loop {
        let from_left = match (&left, &right) {
            (Some(left), Some(right)) => left <= right,
            (left, right) if left.is_none() && right.is_none() => return over(b),
            (left, _) => left.is_some(),
        };
        let (side, input) = if from_left { (&mut left, a) } else { (&mut right, b) };
        if let Some(item) = side.take() {
            send!(output, item);
        }
        *side = next!(input, output);
    }
}

fn run_merge<T>(a: &Receiver<T>, b: &Receiver<T>, output: &Sender<T>) -> Ended {
    // Whichever was served last comes second, so that neither is kept waiting.
    let mut inputs = [a, b];
    let mut open = [true, true];
    while open[0] || open[1] {
        let (first, second) = (inputs[0], inputs[1]);
        let (which, got) = select_biased! {
            closed(output) => return Ended::Stopped,
            recv(first) -> got, if open[0] => (0, got),
            recv(second) -> got, if open[1] => (1, got),
        };
        match got {
            Ok(item) => send!(output, item),
            Err(_) => {
                check!(inputs[which]);
                open[which] = false;
            }
        }
        if which == 0 {
            inputs.reverse();
            open.reverse();
        }
    }
    over(b)
}

fn run_first_wins<T>(a: &Receiver<T>, b: &Receiver<T>, output: &Sender<T>) -> Ended {
    let (winner, loser, first) = select_biased! {
        closed(output) => return Ended::Stopped,
        recv(a) -> got => (a, b, got),
        recv(b) -> got => (b, a, got),
    };
    let (winner, first) = match first {
        Ok(item) => {
            loser.close_now();
            (winner, item)
        }
        // An input that ends without an item has not won.
        Err(_) => {
            check!(winner);
            match next!(loser, output) {
                Some(item) => (loser, item),
                None => return over(winner),
            }
        }
    };
    send!(output, first);
    while let Some(item) = next!(winner, output) {
        send!(output, item);
    }
    over(winner)
}

/// The ends of such a stage.
type Three<A, B, C> = Waiting<((Receiver<A>, Receiver<B>), Sender<C>)>;

/// Runs such a stage, and tells all sides why it ended.
fn run<A, B, C>(ends: Three<A, B, C>, core: impl FnOnce(&Receiver<A>, &Receiver<B>, &Sender<C>) -> Ended) {
    let ((a, b), output) = ends.begin();
    match core(&a, &b, &output) {
        Ended::Over(Some(why)) | Ended::Failed(why) => {
            output.leave_because(&why);
            pass_up(a, Some(why.clone()));
            pass_up(b, Some(why));
        }
        Ended::Over(None) => {}
        Ended::Stopped => {
            let why = output.close_reason();
            pass_up(a, why.clone());
            pass_up(b, why);
        }
    }
}

/// See the header.
macro_rules! joins {
    ($(
        $(#[$doc:meta])*
        $name:ident [$a:ident $(, $b:ident)?] ($second:ty) => $out:ty where { $($bounds:tt)* } = $run:ident;
    )+) => {
        $(
            impl<$a, H: Place> Pipe<$a, H> {
                $(#[$doc])*
                #[track_caller]
                pub fn $name<'a, $($b,)? G>(self, other: Pipe<$second, G>) -> Pipe<$out, H>
                where
                    H: Home<'a>,
                    G: Home<'a>,
                    $a: Send + 'a,
                    $($b: Send + 'a,)?
                    $($bounds)*
                {
                    let ((a, mut plan), b) = (self.open(), other.into_receiver());
                    let (output, receiver) = plan.link();
                    let ends = Waiting::new(((a, b), output));
                    plan.start(stringify!($name), move || run(ends, $run));
                    Pipe::new(receiver, plan)
                }
            }

            impl<$a, $($b,)? H: Place + Clone> PipeIn<$out, H> {
                #[doc = concat!("[`Pipe::", stringify!($name), "`], upstream: two ends before the other stages.")]
                #[track_caller]
                pub fn $name<'a>(self) -> (PipeIn<$a, H>, PipeIn<$second, H>)
                where
                    H: Home<'a>,
                    $a: Send + 'a,
                    $($b: Send + 'a,)?
                    $($bounds)*
                {
                    let (output, mut plan) = self.open();
                    let ((left, a), (right, b)) = (plan.link(), plan.link());
                    let ends = Waiting::new(((a, b), output));
                    plan.start(stringify!($name), move || run(ends, $run));
                    (PipeIn::new(left, plan.clone()), PipeIn::new(right, plan))
                }
            }

            #[doc = concat!("[`Pipe::", stringify!($name), "`] as channel ends, with the stage between.")]
            #[track_caller]
            pub fn $name<$a, $($b)?>() -> ((Sender<$a>, Sender<$second>), Receiver<$out>)
            where
                $a: Send + 'static,
                $($b: Send + 'static,)?
                $($bounds)*
            {
                let (output, receiver) = bounded(0);
                let (left, right) = PipeIn::<$out>::new(output, Plan::new(Root)).$name();
                ((left.into_sender(), right.into_sender()), receiver)
            }
        )+

        /// The stages that are described here, for the tests.
        pub(super) const JOINS: &[&str] = &[$(stringify!($name)),+];
    };
}

joins! {
    /// Pairs of items, one of each; ends with the shorter one.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let pairs = stream::from_iter(1..).zip(stream::from_iter(["a", "b"]));
    /// assert_eq!(pairs.collect::<Vec<_>>(), [(1, "a"), (2, "b")]);
    /// # });
    /// ```
    zip [A, B] (B) => (A, B) where {} = run_zip;

    /// The items of both, as they come.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| assert_eq!(stream::from_iter(0..5).merge(stream::from_iter(5..9)).sum::<i32>(), 36));
    /// ```
    merge [T] (T) => T where {} = run_merge;

    /// The items of both in order, if each is in order.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let merged = stream::from_iter([1, 4, 5]).merge_ordered(stream::from_iter([2, 4]));
    /// assert_eq!(merged.collect::<Vec<_>>(), [1, 2, 4, 4, 5]);
    /// # });
    /// ```
    merge_ordered [T] (T) => T where { T: Ord } = run_merge_ordered;

    /// The items of this one, then those of the other, which wait until then.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| assert_eq!(stream::from_iter([1]).concat(stream::from_iter([2])).collect::<Vec<_>>(), [1, 2]));
    /// ```
    concat [T] (T) => T where {} = run_concat;

    /// The items of both in turn; when one is over, the rest of the other.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let turns = stream::from_iter([1, 3, 5, 6]).interleave(stream::from_iter([2, 4]));
    /// assert_eq!(turns.collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    /// # });
    /// ```
    interleave [T] (T) => T where {} = run_interleave;

    /// The items of the one that gives the first; the other is torn down.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let (_never, slow) = fibra::channel::rendezvous();
    /// assert_eq!(slow.pipe().first_wins(stream::from_iter([1, 2])).collect::<Vec<_>>(), [1, 2]);
    /// # });
    /// ```
    first_wins [T] (T) => T where {} = run_first_wins;
}
