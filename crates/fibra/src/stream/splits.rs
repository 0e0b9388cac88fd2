//! Stages with several outputs: described once, for three forms.
//!
//! ```text
//! downstream   pipe.tee()                 one pipe becomes two
//! upstream     pipe_in.tee(other)         two ends become one
//! free         stream::tee()              a sender and two receivers
//! ```
//!
//! An output that is gone gets nothing more, and the others go on; the stage ends when all are gone.

use super::chain::{Ended, over, pass_up};
use super::home::{Home, Place, Root};
use super::pipe::{Pipe, PipeIn, Plan, Waiting};
use crate::channel::{CloseReason, ClosedArm, Receiver, RecvArm, Select, Sender, bounded};
use crate::select::sealed::Sealed;
use crate::select::{Arm, private};

/// The outputs that are there.
struct Outputs<T> {
    there: Vec<Option<Sender<T>>>,
    /// Why the one went that went last.
    why: Option<CloseReason>,
}

impl<T> Outputs<T> {
    fn are_gone(&self) -> bool {
        self.there.iter().all(Option::is_none)
    }

    fn lose(&mut self, index: usize) {
        self.why = self.there[index].take().and_then(|output| output.close_reason());
    }

    /// Sends to one of them, if it is there.
    fn send(&mut self, index: usize, item: T) {
        if let Some(output) = &self.there[index]
            && output.send(item).is_err()
        {
            self.lose(index);
        }
    }

    /// Sends to all of them that are there, one after the other.
    fn send_to_all(&mut self, item: T)
    where
        T: Clone,
    {
        if let Some(last) = self.there.iter().rposition(Option::is_some) {
            (0..last).for_each(|index| self.send(index, item.clone()));
            self.send(last, item);
        }
    }

    /// Sends to the first of them that takes it.
    fn send_to_any(&mut self, mut item: T) {
        while !self.are_gone() {
            let mut select = Select::new();
            let there: Vec<usize> = (0..self.there.len()).filter(|index| self.there[*index].is_some()).collect();
            for index in &there {
                select.send(self.there[*index].as_ref().expect("it is there"));
            }
            let operation = select.select();
            let index = there[operation.index()];
            let sent = operation.send(self.there[index].as_ref().expect("it is there"), item);
            drop(select);
            match sent {
                Ok(()) => return,
                Err(back) => {
                    item = back.into_inner();
                    self.lose(index);
                }
            }
        }
    }

    /// Waits for the next item, or for the death of an output, which comes first and is noted.
    fn next(&mut self, input: &Receiver<T>) -> Option<Result<T, Ended>> {
        let there: Vec<usize> = (0..self.there.len()).filter(|index| self.there[*index].is_some()).collect();
        let mut deaths: Vec<ClosedArm<'_, T>> =
            there.iter().map(|index| self.there[*index].as_ref().expect("it is there").closing()).collect();
        let mut receive = RecvArm::new(input);
        let which = {
            let mut cases: Vec<_> = deaths.iter_mut().map(Sealed::case).collect();
            cases.push(receive.case());
            private::first_case(&mut cases)
        };
        drop(deaths);
        if let Some(index) = there.get(which) {
            self.lose(*index);
            return None;
        }
        Some(receive.finish().map_err(|_| over(input)))
    }
}

/// The loop of all of them.
fn run<T>(ends: Waiting<(Receiver<T>, Vec<Sender<T>>)>, mut deliver: impl FnMut(T, &mut Outputs<T>)) {
    let (input, outputs) = ends.begin();
    let mut outputs = Outputs { there: outputs.into_iter().map(Some).collect(), why: None };
    let ended = loop {
        if outputs.are_gone() {
            break Ended::Stopped;
        }
        match outputs.next(&input) {
            Some(Ok(item)) => deliver(item, &mut outputs),
            Some(Err(ended)) => break ended,
            None => {}
        }
    };
    match ended {
        Ended::Over(Some(why)) | Ended::Failed(why) => {
            outputs.there.into_iter().flatten().for_each(|output| output.leave_because(&why));
        }
        Ended::Over(None) => {}
        Ended::Stopped => pass_up(input, outputs.why),
    }
}

/// Starts it behind a pipe.
#[track_caller]
fn split<'a, T, H>(
    name: &str,
    pipe: Pipe<T, H>,
    count: usize,
    deliver: impl FnMut(T, &mut Outputs<T>) + Send + 'a,
) -> Vec<Pipe<T, H>>
where
    H: Home<'a> + Clone,
    T: Send + 'a,
{
    let (input, mut plan) = pipe.open();
    let (outputs, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| plan.link()).unzip();
    let ends = Waiting::new((input, outputs));
    plan.start(name, move || run(ends, deliver));
    receivers.into_iter().map(|receiver| Pipe::new(receiver, plan.clone())).collect()
}

/// Starts it before several ends.
#[track_caller]
fn unite<'a, T, H>(
    name: &str,
    outputs: Vec<PipeIn<T, H>>,
    deliver: impl FnMut(T, &mut Outputs<T>) + Send + 'a,
) -> PipeIn<T, H>
where
    H: Home<'a>,
    T: Send + 'a,
{
    let (outputs, mut plans): (Vec<_>, Vec<_>) = outputs.into_iter().map(PipeIn::open).unzip();
    let mut plan = plans.swap_remove(0);
    let (sender, input) = plan.link();
    let ends = Waiting::new((input, outputs));
    plan.start(name, move || run(ends, deliver));
    PipeIn::new(sender, plan)
}

/// Starts it between a sender and receivers.
#[track_caller]
fn between<T: Send + 'static>(
    name: &str,
    count: usize,
    deliver: impl FnMut(T, &mut Outputs<T>) + Send + 'static,
) -> (Sender<T>, Vec<Receiver<T>>) {
    let (outputs, receivers): (Vec<_>, Vec<_>) = (0..count.max(1)).map(|_| bounded(0)).unzip();
    let outputs = outputs.into_iter().map(|output| PipeIn::new(output, Plan::new(Root))).collect();
    (unite(name, outputs, deliver).into_sender(), receivers)
}

/// Two of two.
fn pair<P>(mut several: Vec<P>) -> (P, P) {
    let second = several.pop().expect("two were made");
    (several.pop().expect("two were made"), second)
}

impl<T, H: Place + Clone> Pipe<T, H> {
    /// Each item to both.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let (a, b) = stream::from_iter(1..=3).tee();
    /// let counting = fibra::spawn(move || a.count());
    /// assert_eq!((b.sum::<i32>(), counting.join().unwrap()), (6, 3));
    /// # });
    /// ```
    #[track_caller]
    pub fn tee<'a>(self) -> (Self, Self)
    where
        H: Home<'a>,
        T: Clone + Send + 'a,
    {
        pair(split("tee", self, 2, |item, outputs| outputs.send_to_all(item)))
    }

    /// Each item to all of `count` pipes.
    #[track_caller]
    pub fn broadcast<'a>(self, count: usize) -> Vec<Self>
    where
        H: Home<'a>,
        T: Clone + Send + 'a,
    {
        split("broadcast", self, count, |item, outputs| outputs.send_to_all(item))
    }

    /// Each item to one of `count` pipes, the first that takes it: they share the work.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let workers = stream::from_iter(1..=100).fan_out(3).into_iter().map(|jobs| fibra::spawn(move || jobs.sum::<u32>()));
    /// assert_eq!(workers.collect::<Vec<_>>().into_iter().map(|worker| worker.join().unwrap()).sum::<u32>(), 5050);
    /// # });
    /// ```
    #[track_caller]
    pub fn fan_out<'a>(self, count: usize) -> Vec<Self>
    where
        H: Home<'a>,
        T: Send + 'a,
    {
        split("fan_out", self, count, |item, outputs| outputs.send_to_any(item))
    }

    /// The items of which `f` is true to the first, the others to the second.
    ///
    /// ```
    /// # use fibra::stream;
    /// # fibra::run(|| {
    /// let (even, odd) = stream::from_iter(1..=5).partition(|n| n % 2 == 0);
    /// let even = fibra::spawn(move || even.collect::<Vec<_>>());
    /// assert_eq!((odd.collect::<Vec<_>>(), even.join().unwrap()), (vec![1, 3, 5], vec![2, 4]));
    /// # });
    /// ```
    #[track_caller]
    pub fn partition<'a, F>(self, mut f: F) -> (Self, Self)
    where
        H: Home<'a>,
        T: Send + 'a,
        F: FnMut(&T) -> bool + Send + 'a,
    {
        pair(split("partition", self, 2, move |item, outputs| {
            let index = usize::from(!f(&item));
            outputs.send(index, item);
        }))
    }
}

impl<T, H: Place> PipeIn<T, H> {
    /// [`Pipe::tee`], upstream: each item to both ends.
    #[track_caller]
    pub fn tee<'a>(self, other: Self) -> Self
    where
        H: Home<'a>,
        T: Clone + Send + 'a,
    {
        unite("tee", vec![self, other], |item, outputs| outputs.send_to_all(item))
    }

    /// [`Pipe::broadcast`], upstream: each item to all ends.
    #[track_caller]
    pub fn broadcast<'a>(self, others: impl IntoIterator<Item = Self>) -> Self
    where
        H: Home<'a>,
        T: Clone + Send + 'a,
    {
        let ends = std::iter::once(self).chain(others).collect();
        unite("broadcast", ends, |item, outputs| outputs.send_to_all(item))
    }

    /// [`Pipe::fan_out`], upstream: each item to one of the ends.
    #[track_caller]
    pub fn fan_out<'a>(self, others: impl IntoIterator<Item = Self>) -> Self
    where
        H: Home<'a>,
        T: Send + 'a,
    {
        let ends = std::iter::once(self).chain(others).collect();
        unite("fan_out", ends, |item, outputs| outputs.send_to_any(item))
    }

    /// [`Pipe::partition`], upstream: the items of which `f` is true to this end, the others to `other`.
    #[track_caller]
    pub fn partition<'a, F>(self, mut f: F, other: Self) -> Self
    where
        H: Home<'a>,
        T: Send + 'a,
        F: FnMut(&T) -> bool + Send + 'a,
    {
        unite("partition", vec![self, other], move |item, outputs| {
            let index = usize::from(!f(&item));
            outputs.send(index, item);
        })
    }
}

/// [`Pipe::tee`] as channel ends, with the stage between.
#[track_caller]
pub fn tee<T: Clone + Send + 'static>() -> (Sender<T>, (Receiver<T>, Receiver<T>)) {
    let (sender, receivers) = between("tee", 2, |item: T, outputs| outputs.send_to_all(item));
    (sender, pair(receivers))
}

/// [`Pipe::broadcast`] as channel ends, with the stage between; there is at least one receiver.
#[track_caller]
pub fn broadcast<T: Clone + Send + 'static>(count: usize) -> (Sender<T>, Vec<Receiver<T>>) {
    between("broadcast", count, |item: T, outputs| outputs.send_to_all(item))
}

/// [`Pipe::fan_out`] as channel ends, with the stage between; there is at least one receiver.
#[track_caller]
pub fn fan_out<T: Send + 'static>(count: usize) -> (Sender<T>, Vec<Receiver<T>>) {
    between("fan_out", count, |item: T, outputs| outputs.send_to_any(item))
}

/// [`Pipe::partition`] as channel ends, with the stage between.
#[track_caller]
pub fn partition<T, F>(mut f: F) -> (Sender<T>, (Receiver<T>, Receiver<T>))
where
    T: Send + 'static,
    F: FnMut(&T) -> bool + Send + 'static,
{
    let (sender, receivers) = between("partition", 2, move |item: T, outputs| {
        let index = usize::from(!f(&item));
        outputs.send(index, item);
    });
    (sender, pair(receivers))
}

/// The stages that are described here, for the tests.
pub(super) const SPLITS: &[&str] = &["tee", "broadcast", "fan_out", "partition"];
