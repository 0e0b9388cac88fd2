//! How items move through a stage, and how its end is passed on: the one loop of all stages.
//!
//! Above: the stages. Below: channels and select. A [`Chain`] runs to its end on the fiber that calls it and pushes what comes out of it.
//! The innermost one, [`Link`], waits for the death of the output before it looks at the input (the `prialt(~out, in)` of the seed).
//!
//! Invariants: a stage that ends tells both sides why. The reason for which its input ended, if it is not orderly (an error, a panic, a
//! cancellation), becomes the reason of its output, and the other way round; a stage that panics itself drops both ends while it unwinds,
//! which says the same. So the reason arrives at both ends of a pipeline, however long it is. In all of these cases the stage gives up its
//! handles and closes nothing: a channel of which others hold handles too (a cloned end) goes on for them, at whatever distance the
//! failure was.

use std::marker::PhantomData;
use std::ops::ControlFlow;

use crate::channel::batch::Batch;
use crate::channel::{CloseReason, ClosedArm, Receiver, RecvArm, Sender};
use crate::select::sealed::Sealed;
use crate::select::{Arm, private};
use crate::wait::park;

/// Go on, or stop: the output is gone, or has had enough.
pub(super) type Flow = ControlFlow<()>;

/// Where items go.
pub trait Push<T> {
    /// One more. `Break`: no further one is wanted.
    fn push(&mut self, item: T) -> Flow;
}

impl<T, F: FnMut(T) -> Flow> Push<T> for F {
    #[inline]
    fn push(&mut self, item: T) -> Flow {
        self(item)
    }
}

/// The end of the output, which is watched while a stage waits.
pub trait Death {
    /// It, as an arm.
    fn arm(&mut self) -> &mut dyn Sealed;
    /// Why the output is gone, if it is.
    fn why(&self) -> Option<CloseReason>;
}

/// Why a chain ended.
#[derive(Debug)]
pub enum Ended {
    /// The input is over, or a step had enough; the reason if that was not an orderly end.
    Over(Option<CloseReason>),
    /// The output is gone, or what is behind had enough.
    Stopped,
    /// The stage itself failed: both sides are told why.
    Failed(CloseReason),
}

/// A part of a pipeline: an input, and steps that are done on one fiber.
pub trait Chain<T> {
    /// Runs to the end of the input or of the output.
    fn run(self: Box<Self>, out: &mut dyn Push<T>, death: &mut dyn Death) -> Ended;
}

/// One operation on items, as a function of one item: what can be fused.
pub trait Step<A> {
    /// What comes out.
    type Out;

    /// One item.
    fn step(&mut self, item: A, out: &mut (impl Push<Self::Out> + ?Sized)) -> Flow;

    /// The input is over.
    fn end(&mut self, _out: &mut (impl Push<Self::Out> + ?Sized)) -> Flow {
        Flow::Continue(())
    }

    /// Has it had enough before the first item?
    fn is_done(&self) -> bool {
        false
    }
}

/// What a look for the next item found.
pub(super) enum Next<T> {
    Item(T),
    /// The input is over.
    Over,
    /// The output is gone.
    Gone,
}

/// Waits for the next item, or the death of the output, which comes first.
#[inline]
pub(super) fn next<T>(input: &Receiver<T>, death: &mut dyn Death) -> Next<T> {
    let mut receive = RecvArm::new(input);
    if private::first_of(death.arm(), &mut receive) {
        return Next::Gone;
    }
    match receive.finish() {
        Ok(item) => Next::Item(item),
        Err(_) => Next::Over,
    }
}

/// The same, through a batch if the channel has a buffer: several items are taken under one lock, and handed on one by one.
#[inline]
fn next_of<T>(input: &Receiver<T>, batch: &mut Option<Batch<T>>, death: &mut dyn Death) -> Next<T> {
    let Some(batch) = batch else { return next(input, death) };
    // What is in hand is received by this call like any other: the output first, and a turn for others now and then.
    if !park::passes() {
        park::entry();
    }
    let arm = death.arm();
    if arm.may_be_ready() && arm.complete() {
        return Next::Gone;
    }
    match batch.next() {
        Some(item) => Next::Item(item),
        None if input.refill(batch) => Next::Item(batch.next().expect("just filled")),
        None => next(input, death),
    }
}

/// The innermost part of a chain: what comes out of a channel.
#[derive(Debug)]
pub(super) struct Link<T>(pub(super) Receiver<T>);

impl<T> Chain<T> for Link<T> {
    fn run(self: Box<Self>, out: &mut dyn Push<T>, death: &mut dyn Death) -> Ended {
        let input = self.0;
        let mut batch = Batch::of(&input);
        loop {
            match next_of(&input, &mut batch, death) {
                Next::Item(item) => {
                    if out.push(item).is_break() {
                        pass_up(input, death.why());
                        return Ended::Stopped;
                    }
                }
                Next::Over => return over(&input),
                Next::Gone => {
                    pass_up(input, death.why());
                    return Ended::Stopped;
                }
            }
        }
    }
}

/// Where a step pushes to.
struct Behind<'a, B> {
    out: &'a mut dyn Push<B>,
    /// No further item is wanted there.
    full: bool,
}

impl<B> Push<B> for Behind<'_, B> {
    #[inline]
    fn push(&mut self, item: B) -> Flow {
        let flow = self.out.push(item);
        self.full |= flow.is_break();
        flow
    }
}

struct ThroughStep<'a, S, B> {
    step: &'a mut S,
    behind: Behind<'a, B>,
    /// The step itself wants no further item.
    enough: bool,
}

impl<A, S: Step<A>> Push<A> for ThroughStep<'_, S, S::Out> {
    #[inline]
    fn push(&mut self, item: A) -> Flow {
        let flow = self.step.step(item, &mut self.behind);
        self.enough |= flow.is_break() && !self.behind.full;
        flow
    }
}

/// A chain and one more step, which takes what the chain gives.
pub(super) struct Fused<A, C: ?Sized, S> {
    step: S,
    before: Box<C>,
    takes: PhantomData<fn(A)>,
}

impl<A, C: Chain<A> + ?Sized, S: Step<A>> Fused<A, C, S> {
    pub(super) fn new(before: Box<C>, step: S) -> Self {
        Self { step, before, takes: PhantomData }
    }
}

impl<A, C: Chain<A> + ?Sized, S: Step<A>> Chain<S::Out> for Fused<A, C, S> {
    fn run(self: Box<Self>, out: &mut dyn Push<S::Out>, death: &mut dyn Death) -> Ended {
        let Self { mut step, before, .. } = *self;
        if step.is_done() {
            return Ended::Over(None);
        }
        let behind = Behind { out: &mut *out, full: false };
        let mut through = ThroughStep { step: &mut step, behind, enough: false };
        let ended = before.run(&mut through, death);
        match ended {
            // For what is behind it, that is the end of the input, and an orderly one: steps there give what they have kept back.
            Ended::Stopped if through.enough => Ended::Over(None),
            Ended::Over(_) if step.end(out).is_break() => Ended::Stopped,
            ended => ended,
        }
    }
}

/// The input is over: why, unless it is an orderly end.
pub(super) fn over<T>(input: &Receiver<T>) -> Ended {
    Ended::Over(input.close_reason().filter(|why| !why.is_orderly()))
}

/// Gives the input up and says why, unless it is an orderly end (which dropping the handle says by itself).
pub(super) fn pass_up<T>(input: Receiver<T>, why: Option<CloseReason>) {
    if let Some(why) = why.filter(|why| !why.is_orderly()) {
        input.leave_because(&why);
    }
}

/// The end of what a stage sends to.
pub(super) struct OutputEnd<'a, T> {
    output: &'a Sender<T>,
    arm: ClosedArm<'a, T>,
}

impl<'a, T> OutputEnd<'a, T> {
    pub(super) fn new(output: &'a Sender<T>) -> Self {
        Self { output, arm: output.closing() }
    }
}

impl<T> Death for OutputEnd<'_, T> {
    fn arm(&mut self) -> &mut dyn Sealed {
        &mut self.arm
    }

    fn why(&self) -> Option<CloseReason> {
        self.output.close_reason()
    }
}

/// The output is the function that runs the chain: it is there until it returns.
pub(super) struct Here(Option<ClosedArm<'static, ()>>);

impl Here {
    pub(super) fn new() -> Self {
        Self(None)
    }
}

impl Death for Here {
    fn arm(&mut self) -> &mut dyn Sealed {
        &mut self.0
    }

    fn why(&self) -> Option<CloseReason> {
        None
    }
}

/// Runs a chain into a channel, and tells that why it ended.
pub(super) fn run_into<T>(chain: Box<impl Chain<T> + ?Sized>, output: Sender<T>) {
    let mut push = |item| if output.send(item).is_ok() { Flow::Continue(()) } else { Flow::Break(()) };
    if let Ended::Over(Some(why)) | Ended::Failed(why) = chain.run(&mut push, &mut OutputEnd::new(&output)) {
        output.leave_because(&why);
    }
}
