//! [`Pipe`] and [`PipeIn`]: the two ends at which a pipeline grows; and how a stage is started, once for its three forms.
//!
//! Above: the stages, which say what they do and nothing about channels. Below: `chain`, `home`. A stage is one fiber between two channels.
//! It is started at once, except in a pipe that is [fused](Pipe::fused): there steps are collected until the pipe is used, or a stage
//! follows that needs a fiber of its own.

use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use super::chain::{Chain, Death, Ended, Flow, Fused, Here, Link, Step, pass_up, run_into};
use super::home::{AsScope, Home, InScope, Place, Root};
use crate::channel::{CloseReason, Receiver, Sender, bounded};

/// What a pipeline is told about the stages that are added from here on.
#[derive(Clone)]
pub(super) struct Plan<H> {
    pub(super) home: H,
    name: Option<Arc<str>>,
    /// How many stages there are.
    stages: usize,
    /// The capacity of the channel behind a stage.
    capacity: usize,
    fused: bool,
}

impl<H> Plan<H> {
    pub(super) fn new(home: H) -> Self {
        Self { home, name: None, stages: 0, capacity: 0, fused: false }
    }

    pub(super) fn named(self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    pub(super) fn buffered(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }

    fn with_home<G>(self, home: G) -> Plan<G> {
        let Self { name, stages, capacity, fused, .. } = self;
        Plan { home, name, stages, capacity, fused }
    }

    pub(super) fn link<T>(&self) -> (Sender<T>, Receiver<T>) {
        bounded(self.capacity)
    }

    /// The name of one more stage, as reports show it: `stream/map#3 of word-count`.
    fn next_name(&mut self, stage: &str) -> String {
        self.stages += 1;
        match &self.name {
            Some(name) => format!("stream/{stage}#{} of {name}", self.stages),
            None => format!("stream/{stage}#{}", self.stages),
        }
    }

    /// Starts a stage.
    #[track_caller]
    pub(super) fn start<'a>(&mut self, stage: &str, run: impl FnOnce() + Send + 'a)
    where
        H: Home<'a>,
    {
        let name = self.next_name(stage);
        self.home.start(name, run);
    }
}

/// The ends of channels that a stage holds.
pub trait Ends {
    /// Gives them all up.
    fn leave_because(self, why: &CloseReason);
}

impl<T> Ends for Receiver<T> {
    fn leave_because(self, why: &CloseReason) {
        self.leave_because(why);
    }
}

impl<T> Ends for Sender<T> {
    fn leave_because(self, why: &CloseReason) {
        self.leave_because(why);
    }
}

impl<A: Ends, B: Ends> Ends for (A, B) {
    fn leave_because(self, why: &CloseReason) {
        self.0.leave_because(why);
        self.1.leave_because(why);
    }
}

impl<A: Ends> Ends for Vec<A> {
    fn leave_because(self, why: &CloseReason) {
        self.into_iter().for_each(|end| end.leave_because(why));
    }
}

/// The ends of a stage that was not started yet. Dropped without having been, it says so to all sides, so that what is missing is not
/// taken for the end.
#[derive(Debug)]
pub struct Waiting<E: Ends>(Option<E>);

impl<E: Ends> Waiting<E> {
    pub(super) fn new(ends: E) -> Self {
        Self(Some(ends))
    }

    pub(super) fn begin(mut self) -> E {
        self.0.take().expect("it begins once")
    }
}

impl<E: Ends> Drop for Waiting<E> {
    fn drop(&mut self) {
        if let Some(ends) = self.0.take() {
            let text =
                "a stage of the pipeline was not started: its scope was cancelled, or the runtime is full or ending";
            ends.leave_because(&CloseReason::Error(Arc::from(Box::from(text))));
        }
    }
}

/// A stage with a loop of its own, over its input and its output.
pub(super) trait Core<A, B> {
    /// Runs it. `Over`: the input is over; `Stopped`: the output is gone, or it had enough.
    fn run(self, input: &Receiver<A>, output: &Sender<B>) -> Ended;
}

impl<A, B, F: FnOnce(&Receiver<A>, &Sender<B>) -> Ended> Core<A, B> for F {
    fn run(self, input: &Receiver<A>, output: &Sender<B>) -> Ended {
        self(input, output)
    }
}

/// Runs a stage with a loop of its own, and tells both sides why it ended.
pub(super) fn run_core<A, B>(core: impl Core<A, B>, input: Receiver<A>, output: Sender<B>) {
    match core.run(&input, &output) {
        Ended::Over(Some(why)) => output.leave_because(&why),
        Ended::Over(None) => {}
        Ended::Stopped => pass_up(input, output.close_reason()),
        Ended::Failed(why) => (input, output).leave_because(&why),
    }
}

/// The downstream end of a pipeline: items come out here. Each method adds a stage, and gives the new end.
///
/// It is an iterator too: `for item in pipe`. Its own methods go before those of [`Iterator`]; those that it has not (`sum`, `max`) come
/// from there.
///
/// If the pipeline did not end in order (a stage panicked, its source was closed [with an error](Sender::close_with), a
/// [`timeout`](Self::timeout) was over, a stage was cancelled), the iterator panics where its items break off, and so do
/// [`collect`](Self::collect) and the like: what is missing is not taken for the end. [`into_receiver`](Self::into_receiver) gives the
/// channel, whose [`finish`](Receiver::finish) tells the reason instead. Errors that are items (`Result`) are not concerned: for them
/// there are [`try_collect`](Self::try_collect) and its like.
///
/// A stage that fails gives up its ends of channels and closes nothing. Usually these were the last, and the reason arrives at both ends
/// of the pipeline. If a pipeline was made of a clone (`rx.clone().pipe()`, `tx.clone().pipe_in()`), the channel goes on for the other
/// handles, whichever stage has failed.
///
/// ```
/// use fibra::stream;
///
/// fibra::run(|| {
///     let squares = stream::from_iter(1..=5).map(|n| n * n).filter(|n| n % 2 == 1);
///     assert_eq!(squares.collect::<Vec<_>>(), [1, 9, 25]);
/// });
/// ```
#[must_use = "dropped at once, the whole pipeline is torn down"]
pub struct Pipe<T, H: Place = Root> {
    pub(super) feed: Feed<T, H>,
    pub(super) plan: Plan<H>,
}

/// What comes out of a pipe.
pub(super) enum Feed<T, H: Place> {
    Link(Receiver<T>),
    /// Steps that no fiber does yet.
    Fused(Box<H::Chain<T>>),
    /// While it is being replaced.
    Moved,
}

impl<T, H: Place> Pipe<T, H> {
    pub(super) fn new(receiver: Receiver<T>, plan: Plan<H>) -> Self {
        Self { feed: Feed::Link(receiver), plan }
    }

    /// The stages that follow belong to the scope: they may borrow what outlives it, are cancelled with it, and it ends after them.
    ///
    /// ```
    /// use fibra::stream;
    ///
    /// fibra::run(|| {
    ///     let names = ["zero", "one", "two"];
    ///     let got = fibra::scope(|s| stream::from_iter([2, 0]).in_scope(&s).map(|n: usize| &names[n]).collect::<Vec<_>>());
    ///     assert_eq!(got, [&"two", &"zero"]);
    /// });
    /// ```
    #[track_caller]
    pub fn in_scope<'a, 'scope, 'env>(mut self, scope: impl AsScope<'scope, 'env>) -> Pipe<T, InScope<'scope, 'env>>
    where
        T: Send + 'a,
        H: Home<'a>,
    {
        let receiver = self.start_link();
        Pipe::new(receiver, self.plan.with_home(InScope(scope.as_scope())))
    }

    /// The name of the pipeline in reports, for the stages that follow: `stream/map#3 of word-count`.
    pub fn named(self, name: impl AsRef<str>) -> Self {
        Self { plan: self.plan.named(name.as_ref()), ..self }
    }

    /// The stages that follow have so many places in the channel behind them. Without this there are none: a stage hands each item over.
    pub fn buffered(self, capacity: usize) -> Self {
        Self { plan: self.plan.buffered(capacity), ..self }
    }

    /// Runs the stages that follow on one fiber, as long as they are steps (`map`, `filter`, `scan`, `chunks` and the like: what needs no
    /// clock, no second pipe and no fiber of its own). Only speed tells the difference. They start when the pipe is used, or a stage
    /// follows that is no step. A function that takes the items itself (`collect`, `fold`, `for_each`) does the steps on the spot.
    ///
    /// ```
    /// use fibra::stream;
    ///
    /// fibra::run(|| {
    ///     let sum = stream::from_iter(1..=100).fused().map(|n| n * 2).filter(|n| n % 3 == 0).fold(0, |sum, n| sum + n);
    ///     assert_eq!(sum, 3366);
    /// });
    /// ```
    pub fn fused(self) -> Self {
        Self { plan: Plan { fused: true, ..self.plan }, ..self }
    }

    /// Each stage that follows is a fiber again, after [`fused`](Self::fused).
    #[track_caller]
    pub fn unfused<'a>(mut self) -> Self
    where
        H: Home<'a>,
        T: Send + 'a,
    {
        let receiver = self.start_link();
        self.plan.fused = false;
        Self::new(receiver, self.plan)
    }

    /// The channel at the end of the pipeline. Dropping it tears the pipeline down.
    ///
    /// ```
    /// use fibra::stream;
    ///
    /// fibra::run(|| {
    ///     let (tx, rx) = fibra::channel::bounded(1);
    ///     let out = rx.pipe().map(|n: u32| 100 / n).into_receiver();
    ///     tx.send(0).unwrap();
    ///     assert!(out.recv().is_err());
    ///     // The panic is seen at both ends.
    ///     assert!(matches!(out.finish(), Err(fibra::channel::CloseReason::Panicked { .. })));
    ///     assert!(matches!(tx.closed(), fibra::channel::CloseReason::Panicked { .. }));
    /// });
    /// ```
    #[track_caller]
    pub fn into_receiver<'a>(mut self) -> Receiver<T>
    where
        H: Home<'a>,
        T: Send + 'a,
    {
        self.start_link()
    }

    /// The channel at the end; what is fused gets its fiber.
    #[track_caller]
    fn start_link<'a>(&mut self) -> Receiver<T>
    where
        H: Home<'a>,
        T: Send + 'a,
    {
        match std::mem::replace(&mut self.feed, Feed::Moved) {
            Feed::Link(receiver) => receiver,
            Feed::Fused(chain) => {
                let (output, receiver) = self.plan.link();
                let name = self.plan.next_name("fused");
                self.plan.home.start_chain(name, chain, Waiting::new(output));
                receiver
            }
            Feed::Moved => unreachable!("replaced at once"),
        }
    }

    /// Adds a step: fused, or as a stage of its own.
    #[track_caller]
    pub(super) fn step<'a, S>(mut self, name: &str, step: S) -> Pipe<S::Out, H>
    where
        H: Home<'a>,
        T: Send + 'a,
        S: Step<T> + Send + 'a,
        S::Out: Send + 'a,
    {
        if !self.plan.fused {
            let input = self.start_link();
            let (output, receiver) = self.plan.link();
            let ends = Waiting::new((input, output));
            self.plan.start(name, move || run_step(step, ends));
            return Pipe::new(receiver, self.plan);
        }
        let chain = match self.feed {
            Feed::Link(receiver) => H::boxed(Fused::new(Box::new(Link(receiver)), step)),
            Feed::Fused(before) => H::fuse(before, step),
            Feed::Moved => unreachable!("replaced at once"),
        };
        Pipe { feed: Feed::Fused(chain), plan: self.plan }
    }

    /// Adds a stage with a loop of its own.
    #[track_caller]
    pub(super) fn core<'a, U>(mut self, name: &str, core: impl Core<T, U> + Send + 'a) -> Pipe<U, H>
    where
        H: Home<'a>,
        T: Send + 'a,
        U: Send + 'a,
    {
        let input = self.start_link();
        let (output, receiver) = self.plan.link();
        let ends = Waiting::new((input, output));
        self.plan.start(name, move || {
            let (input, output) = ends.begin();
            run_core(core, input, output);
        });
        Pipe::new(receiver, self.plan)
    }

    /// Adds a step behind which there are so many places.
    #[track_caller]
    pub(super) fn link_step<'a, S>(mut self, name: &str, (capacity, step): (usize, S)) -> Pipe<S::Out, H>
    where
        H: Home<'a>,
        T: Send + 'a,
        S: Step<T> + Send + 'a,
        S::Out: Send + 'a,
    {
        let input = self.start_link();
        let (output, receiver) = bounded(capacity);
        let ends = Waiting::new((input, output));
        self.plan.start(name, move || run_step(step, ends));
        Pipe::new(receiver, self.plan)
    }

    /// Starts what is fused, and gives the end and the plan, for stages with several ends.
    #[track_caller]
    pub(super) fn open<'a>(mut self) -> (Receiver<T>, Plan<H>)
    where
        H: Home<'a>,
        T: Send + 'a,
    {
        (self.start_link(), self.plan)
    }

    /// Pushes all items into `out`, on this fiber, until it breaks off. Panics if the pipeline was ended by a panic.
    #[track_caller]
    pub(super) fn drain(self, out: impl FnMut(T) -> Flow) {
        self.drain_until(out, &mut Here::new());
    }

    /// The same, until the output dies.
    #[track_caller]
    pub(super) fn drain_until(mut self, mut out: impl FnMut(T) -> Flow, death: &mut dyn Death) {
        let ended = match std::mem::replace(&mut self.feed, Feed::Moved) {
            Feed::Link(receiver) => Box::new(Link(receiver)).run(&mut out, death),
            Feed::Fused(chain) => chain.run(&mut out, death),
            Feed::Moved => unreachable!("replaced at once"),
        };
        if let Ended::Over(Some(why)) | Ended::Failed(why) = ended {
            complain(&why);
        }
    }
}

/// A pipeline that broke off panics where its items are taken: what is missing must not be taken for the end.
#[track_caller]
fn complain(why: &CloseReason) {
    match why {
        CloseReason::Dropped | CloseReason::Explicit => {}
        CloseReason::Panicked { .. } => {
            panic!("fibra: a stage of the pipeline panicked, and its items break off: {why}")
        }
        why => panic!(
            "fibra: the pipeline has ended early, and its items break off: {why}. To have those that came and the \
             reason, take them from into_receiver() and ask its finish()"
        ),
    }
}

/// Runs a stage of one step.
pub(super) fn run_step<A, S: Step<A>>(step: S, ends: Waiting<(Receiver<A>, Sender<S::Out>)>) {
    let (input, output) = ends.begin();
    run_into(Box::new(Fused::new(Box::new(Link(input)), step)), output);
}

impl<'a, T, H> Iterator for Pipe<T, H>
where
    H: Home<'a>,
    T: Send + 'a,
{
    type Item = T;

    #[track_caller]
    fn next(&mut self) -> Option<T> {
        if !matches!(self.feed, Feed::Link(_)) {
            let receiver = self.start_link();
            self.feed = Feed::Link(receiver);
        }
        let Feed::Link(receiver) = &self.feed else { unreachable!("just made one") };
        match receiver.recv() {
            Ok(item) => Some(item),
            Err(_) => {
                receiver.close_reason().iter().for_each(complain);
                None
            }
        }
    }
}

impl<'a, T, H> FusedIterator for Pipe<T, H>
where
    H: Home<'a>,
    T: Send + 'a,
{
}

/// The upstream end of a pipeline: items go in here, and come out where the sender leads that it was made of. Each method adds a stage
/// *before* the others, and gives the new end.
///
/// ```
/// fibra::run(|| {
///     let (tx, rx) = fibra::channel::bounded(4);
///     let words = tx.pipe_in().map(|word: &str| word.len()).filter(|word: &&str| !word.is_empty()).into_sender();
///     for word in ["one", "", "three"] {
///         words.send(word).unwrap();
///     }
///     drop(words);
///     assert_eq!(rx.iter().collect::<Vec<_>>(), [3, 5]);
/// });
/// ```
#[must_use = "dropped at once, the whole pipeline is torn down"]
pub struct PipeIn<T, H: Place = Root> {
    sender: Sender<T>,
    pub(super) plan: Plan<H>,
}

impl<T, H: Place> PipeIn<T, H> {
    pub(super) fn new(sender: Sender<T>, plan: Plan<H>) -> Self {
        Self { sender, plan }
    }

    /// The channel at the beginning of the pipeline.
    pub fn into_sender(self) -> Sender<T> {
        self.sender
    }

    /// The stages that are added from here on belong to the scope; see [`Pipe::in_scope`].
    pub fn in_scope<'scope, 'env>(self, scope: impl AsScope<'scope, 'env>) -> PipeIn<T, InScope<'scope, 'env>> {
        PipeIn::new(self.sender, self.plan.with_home(InScope(scope.as_scope())))
    }

    /// The name of the pipeline in reports; see [`Pipe::named`].
    pub fn named(self, name: impl AsRef<str>) -> Self {
        Self { plan: self.plan.named(name.as_ref()), ..self }
    }

    /// The stages that are added from here on have so many places in the channel before them.
    pub fn buffered(self, capacity: usize) -> Self {
        Self { plan: self.plan.buffered(capacity), ..self }
    }

    #[track_caller]
    pub(super) fn step<'a, A, S>(mut self, name: &str, step: S) -> PipeIn<A, H>
    where
        H: Home<'a>,
        A: Send + 'a,
        T: Send + 'a,
        S: Step<A, Out = T> + Send + 'a,
    {
        let (sender, input) = self.plan.link();
        let ends = Waiting::new((input, self.sender));
        self.plan.start(name, move || run_step(step, ends));
        PipeIn::new(sender, self.plan)
    }

    #[track_caller]
    pub(super) fn core<'a, A>(mut self, name: &str, core: impl Core<A, T> + Send + 'a) -> PipeIn<A, H>
    where
        H: Home<'a>,
        A: Send + 'a,
        T: Send + 'a,
    {
        let (sender, input) = self.plan.link();
        let ends = Waiting::new((input, self.sender));
        self.plan.start(name, move || {
            let (input, output) = ends.begin();
            run_core(core, input, output);
        });
        PipeIn::new(sender, self.plan)
    }

    #[track_caller]
    pub(super) fn link_step<'a, A, S>(mut self, name: &str, (capacity, step): (usize, S)) -> PipeIn<A, H>
    where
        H: Home<'a>,
        A: Send + 'a,
        T: Send + 'a,
        S: Step<A, Out = T> + Send + 'a,
    {
        let (sender, input) = bounded(capacity);
        let ends = Waiting::new((input, self.sender));
        self.plan.start(name, move || run_step(step, ends));
        PipeIn::new(sender, self.plan)
    }

    pub(super) fn open(self) -> (Sender<T>, Plan<H>) {
        (self.sender, self.plan)
    }
}

/// Stages as a pair of channel ends, in the root scope.
pub(super) struct Pair;

impl Pair {
    #[track_caller]
    pub(super) fn step<A, S>(self, name: &str, step: S) -> (Sender<A>, Receiver<S::Out>)
    where
        A: Send + 'static,
        S: Step<A> + Send + 'static,
        S::Out: Send + 'static,
    {
        let (output, receiver) = bounded(0);
        let sender = PipeIn::new(output, Plan::new(Root)).step(name, step).into_sender();
        (sender, receiver)
    }

    #[track_caller]
    pub(super) fn link_step<A, S>(self, name: &str, (capacity, step): (usize, S)) -> (Sender<A>, Receiver<S::Out>)
    where
        A: Send + 'static,
        S: Step<A> + Send + 'static,
        S::Out: Send + 'static,
    {
        let (output, receiver) = bounded(capacity);
        let sender = PipeIn::new(output, Plan::new(Root)).step(name, step).into_sender();
        (sender, receiver)
    }

    #[track_caller]
    pub(super) fn core<A, B>(self, name: &str, core: impl Core<A, B> + Send + 'static) -> (Sender<A>, Receiver<B>)
    where
        A: Send + 'static,
        B: Send + 'static,
    {
        let (output, receiver) = bounded(0);
        let sender = PipeIn::new(output, Plan::new(Root)).core(name, core).into_sender();
        (sender, receiver)
    }
}

impl<T, H: Place> fmt::Debug for Pipe<T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("name", &self.plan.name).field("stages", &self.plan.stages).finish_non_exhaustive()
    }
}

impl<T, H: Place> fmt::Debug for PipeIn<T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipeIn")
            .field("name", &self.plan.name)
            .field("stages", &self.plan.stages)
            .finish_non_exhaustive()
    }
}
