//! Where pipelines begin: functions that send, iterators, receivers, lines, time. In the root scope by the functions of the module; in a
//! scope, or with a name, by [`Start`].

use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use super::home::{AsScope, Home, InScope, Place, Root};
use super::pipe::{Pipe, PipeIn, Plan, Waiting};
use crate::channel::{Receiver, Sender, select_biased, tick as ticks};
use crate::scope::scope;
use crate::time::Instant;

/// Begins pipelines in a scope, with a name, or with buffers: see [`within`], [`named`] and [`buffered`].
#[derive(Clone)]
#[must_use = "it starts nothing by itself"]
pub struct Start<H = Root> {
    plan: Plan<H>,
}

impl<H> std::fmt::Debug for Start<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Start")
    }
}

/// Begins a pipeline whose stages belong to the scope, from the first one on: they may borrow what outlives it. See [`Pipe::in_scope`].
///
/// ```
/// use fibra::stream;
///
/// fibra::run(|| {
///     let numbers = vec![1, 2, 3];
///     let sum: u32 = fibra::scope(|s| stream::within(s).from_iter(&numbers).map(|n| *n).sum());
///     assert_eq!(sum, 6);
/// });
/// ```
pub fn within<'scope, 'env>(scope: impl AsScope<'scope, 'env>) -> Start<InScope<'scope, 'env>> {
    Start { plan: Plan::new(InScope(scope.as_scope())) }
}

/// Begins a pipeline with a name, which its stages have in reports from the first one on; see [`Pipe::named`].
///
/// ```
/// use fibra::stream;
///
/// fibra::run(|| {
///     let names = stream::named("demo").from_iter(0..1).map(|_| fibra::current().unwrap().name().unwrap().to_owned());
///     assert_eq!(names.collect::<Vec<_>>(), ["stream/map#2 of demo"]);
/// });
/// ```
pub fn named(name: impl AsRef<str>) -> Start {
    Start { plan: Plan::new(Root).named(name.as_ref()) }
}

/// Begins a pipeline whose channels have so many places, the one behind its source too; see [`Pipe::buffered`].
///
/// ```
/// # fibra::run(|| assert_eq!(fibra::stream::buffered(16).from_iter(0..100).map(|n| n + 1).count(), 100));
/// ```
pub fn buffered(capacity: usize) -> Start {
    start().buffered(capacity)
}

impl<H: Place> Start<H> {
    /// The stages have so many places in the channel behind them, the source too; see [`Pipe::buffered`].
    pub fn buffered(self, capacity: usize) -> Self {
        Self { plan: self.plan.buffered(capacity) }
    }

    /// Gives the pipeline a name; see [`Pipe::named`].
    pub fn named(self, name: impl AsRef<str>) -> Self {
        Self { plan: self.plan.named(name.as_ref()) }
    }

    /// See [`producer`].
    #[track_caller]
    pub fn producer<'a, T, F>(self, f: F) -> Pipe<T, H>
    where
        H: Home<'a>,
        T: Send + 'a,
        F: FnOnce(Sender<T>) + Send + 'a,
    {
        self.begin("producer", f)
    }

    /// Starts a stage that sends.
    #[track_caller]
    fn begin<'a, T, F>(mut self, name: &str, f: F) -> Pipe<T, H>
    where
        H: Home<'a>,
        T: Send + 'a,
        F: FnOnce(Sender<T>) + Send + 'a,
    {
        let (output, receiver) = self.plan.link();
        let output = Waiting::new(output);
        self.plan.start(name, move || f(output.begin()));
        Pipe::new(receiver, self.plan)
    }

    /// See [`from_iter`].
    #[allow(clippy::wrong_self_convention, clippy::should_implement_trait)] // Named after the function of the module.
    #[track_caller]
    pub fn from_iter<'a, I>(self, items: I) -> Pipe<I::Item, H>
    where
        H: Home<'a>,
        I: IntoIterator + Send + 'a,
        I::Item: Send + 'a,
    {
        self.begin("from_iter", move |output| {
            let _ = items.into_iter().try_for_each(|item| output.send(item));
        })
    }

    /// See [`from_receiver`].
    #[allow(clippy::wrong_self_convention)] // Named after the function of the module.
    pub fn from_receiver<T>(self, receiver: Receiver<T>) -> Pipe<T, H> {
        Pipe::new(receiver, self.plan)
    }

    /// See [`tick`].
    pub fn tick(self, period: Duration) -> Pipe<Instant, H> {
        self.from_receiver(ticks(period))
    }

    /// See [`unfold`].
    #[track_caller]
    pub fn unfold<'a, S, T, F>(self, mut state: S, mut f: F) -> Pipe<T, H>
    where
        H: Home<'a>,
        S: Send + 'a,
        T: Send + 'a,
        F: FnMut(&mut S) -> Option<T> + Send + 'a,
    {
        self.begin("unfold", move |output| {
            while !output.is_closed()
                && let Some(item) = f(&mut state)
                && output.send(item).is_ok()
            {}
        })
    }

    /// See [`lines`].
    #[track_caller]
    pub fn lines<'a, R>(self, reader: R) -> Pipe<io::Result<String>, H>
    where
        H: Home<'a>,
        R: Read + Send + 'a,
    {
        // The reading is done by a child, which can be cancelled when the output goes while it waits for the next line.
        self.begin("lines", move |output| {
            scope(|s| {
                let reading = s.spawn(|| read_lines(reader, &output));
                select_biased! {
                    closed(output) => s.cancel(),
                    join(reading) -> read => {
                        if let Err(error) = read {
                            error.resume_unwind();
                        }
                    }
                }
            });
        })
    }
}

fn read_lines(reader: impl Read, output: &Sender<io::Result<String>>) {
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = String::new();
        let read = reader.read_line(&mut line);
        let item = match read {
            Ok(0) => return,
            Ok(_) => {
                let end = line.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).map(str::len);
                line.truncate(end.unwrap_or(line.len()));
                Ok(line)
            }
            Err(error) => Err(error),
        };
        let failed = item.is_err();
        if output.send(item).is_err() || failed {
            return;
        }
    }
}

/// Begins a pipeline with what a function sends. It runs on a fiber of its own; when the pipeline is torn down, its sends fail.
///
/// ```
/// use fibra::stream;
///
/// fibra::run(|| {
///     let numbers = stream::producer(|tx| {
///         let mut n = 0u64;
///         while tx.send(n).is_ok() {
///             n += 1;
///         }
///     });
///     assert_eq!(numbers.take(3).collect::<Vec<_>>(), [0, 1, 2]);
/// });
/// ```
#[track_caller]
pub fn producer<T, F>(f: F) -> Pipe<T>
where
    T: Send + 'static,
    F: FnOnce(Sender<T>) + Send + 'static,
{
    start().producer(f)
}

fn start() -> Start {
    Start { plan: Plan::new(Root) }
}

/// Begins a pipeline with the items of an iterator, which runs on a fiber of its own.
///
/// ```
/// # fibra::run(|| assert_eq!(fibra::stream::from_iter([1, 2]).collect::<Vec<_>>(), [1, 2]));
/// ```
#[track_caller]
pub fn from_iter<I>(items: I) -> Pipe<I::Item>
where
    I: IntoIterator + Send + 'static,
    I::Item: Send + 'static,
{
    start().from_iter(items)
}

/// Begins a pipeline with what a channel receives: the same as [`Receiver::pipe`].
pub fn from_receiver<T>(receiver: Receiver<T>) -> Pipe<T> {
    start().from_receiver(receiver)
}

/// Begins a pipeline with the lines of a file, a socket, or whatever can be read, without their ends. The first error is the last item.
///
/// ```
/// # fibra::run(|| {
/// let lines = fibra::stream::lines("one\r\ntwo".as_bytes()).map(Result::unwrap);
/// assert_eq!(lines.collect::<Vec<_>>(), ["one", "two"]);
/// # });
/// ```
#[track_caller]
pub fn lines<R: Read + Send + 'static>(reader: R) -> Pipe<io::Result<String>> {
    start().lines(reader)
}

/// Begins a pipeline with the moments of a clock; see [`channel::tick`](crate::channel::tick). No fiber is behind it.
///
/// ```
/// # fibra::run(|| {
/// let ticks = fibra::stream::tick(std::time::Duration::from_millis(1));
/// assert_eq!(ticks.take(3).count(), 3);
/// # });
/// ```
pub fn tick(period: Duration) -> Pipe<Instant> {
    start().tick(period)
}

/// Begins a pipeline with what `f` makes of a state, until it makes nothing.
///
/// ```
/// # fibra::run(|| {
/// let powers = fibra::stream::unfold(1u8, |n| {
///     let power = *n;
///     *n = n.checked_mul(2)?;
///     Some(power)
/// });
/// assert_eq!(powers.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64]);
/// # });
/// ```
#[track_caller]
pub fn unfold<S, T, F>(state: S, f: F) -> Pipe<T>
where
    S: Send + 'static,
    T: Send + 'static,
    F: FnMut(&mut S) -> Option<T> + Send + 'static,
{
    start().unfold(state, f)
}

impl<T> Receiver<T> {
    /// Begins a pipeline with what is received here; see [`stream`](crate::stream). No fiber is behind it.
    ///
    /// ```
    /// fibra::run(|| {
    ///     let (tx, rx) = fibra::channel::bounded(4);
    ///     fibra::spawn(move || (1..=3).for_each(|n| tx.send(n).unwrap()));
    ///     assert_eq!(rx.pipe().map(|n| n * 10).collect::<Vec<_>>(), [10, 20, 30]);
    /// });
    /// ```
    pub fn pipe(self) -> Pipe<T> {
        from_receiver(self)
    }
}

impl<T> Sender<T> {
    /// The end of a pipeline that grows upstream; see [`PipeIn`].
    pub fn pipe_in(self) -> PipeIn<T> {
        PipeIn::new(self, Plan::new(Root))
    }
}
