//! Where pipelines end: functions that take the items, on the fiber that calls them. What is fused is done right there, without a channel.
//!
//! If a stage panicked, they panic: items that break off are no result. [`Pipe::into_receiver`] gives the channel instead, which tells
//! the reason.

use std::io::{self, Write};

use super::chain::{Flow, OutputEnd};
use super::home::Place;
use super::pipe::Pipe;
use crate::channel::{SendError, Sender};

const MORE: Flow = Flow::Continue(());
const STOP: Flow = Flow::Break(());

impl<T, H: Place> Pipe<T, H> {
    /// All items, in a collection.
    ///
    /// # Panics
    /// If a stage panicked. So do the other functions that take the items.
    #[track_caller]
    pub fn collect<C: FromIterator<T>>(self) -> C {
        let mut items = Vec::new();
        self.drain(|item| {
            items.push(item);
            MORE
        });
        items.into_iter().collect()
    }

    /// What `f` makes of all items, one after the other.
    #[track_caller]
    pub fn fold<B>(self, initial: B, mut f: impl FnMut(B, T) -> B) -> B {
        let mut sum = Some(initial);
        self.drain(|item| {
            sum = sum.take().map(|sum| f(sum, item));
            MORE
        });
        sum.expect("put back each time")
    }

    /// What `f` makes of all items, beginning with the first; `None` if there is none.
    #[track_caller]
    pub fn reduce(self, mut f: impl FnMut(T, T) -> T) -> Option<T> {
        self.fold(None, |sum, item| match sum {
            Some(sum) => Some(f(sum, item)),
            None => Some(item),
        })
    }

    /// How many items there are.
    #[track_caller]
    pub fn count(self) -> usize {
        self.fold(0, |count, _| count + 1)
    }

    /// Calls `f` with each item.
    #[track_caller]
    pub fn for_each(self, mut f: impl FnMut(T)) {
        self.fold((), |(), item| f(item));
    }

    /// Sends all items into a channel.
    ///
    /// # Errors
    /// If its receivers are gone: the item that was not sent. The pipeline is torn down. (If they go while there is no item, all that
    /// there was has been sent: no error.)
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::unbounded();
    /// fibra::run(|| fibra::stream::from_iter(1..=3).sink(tx).unwrap());
    /// assert_eq!(rx.iter().collect::<Vec<_>>(), [1, 2, 3]);
    /// ```
    #[track_caller]
    pub fn sink(self, into: Sender<T>) -> Result<(), SendError<T>> {
        let mut sent = Ok(());
        let push = |item| {
            sent = into.send(item);
            if sent.is_ok() { MORE } else { STOP }
        };
        self.drain_until(push, &mut OutputEnd::new(&into));
        sent
    }

    /// Writes all items, and flushes: into a file, a socket, whatever can be written. Says how many bytes there were.
    ///
    /// # Errors
    /// The first of the writer. The pipeline is torn down.
    ///
    /// ```
    /// let mut text = Vec::new();
    /// let written = fibra::run(|| fibra::stream::from_iter(["a\n", "bc\n"]).write_to(&mut text));
    /// assert_eq!((written.unwrap(), text.as_slice()), (5, b"a\nbc\n".as_slice()));
    /// ```
    #[track_caller]
    pub fn write_to(self, mut writer: impl Write) -> io::Result<u64>
    where
        T: AsRef<[u8]>,
    {
        let mut written = Ok(0);
        self.drain(|item| {
            let bytes = item.as_ref();
            written = writer.write_all(bytes).map(|()| written.as_ref().map_or(0, |n| *n) + bytes.len() as u64);
            if written.is_ok() { MORE } else { STOP }
        });
        let written = written?;
        writer.flush()?;
        Ok(written)
    }
}

impl<T, E, H: Place> Pipe<Result<T, E>, H> {
    /// All good items, or the first error, behind which the pipeline is torn down.
    ///
    /// # Errors
    /// The first error.
    ///
    /// ```
    /// # fibra::run(|| {
    /// let numbers = fibra::stream::from_iter(["1", "x", "3"]).map(str::parse::<u32>);
    /// assert!(numbers.try_collect::<Vec<_>>().is_err());
    /// # });
    /// ```
    #[track_caller]
    pub fn try_collect<C: FromIterator<T>>(self) -> Result<C, E> {
        let mut items = Vec::new();
        self.try_for_each(|item| {
            items.push(item);
            Ok(())
        })?;
        Ok(items.into_iter().collect())
    }

    /// What `f` makes of all good items, one after the other.
    ///
    /// # Errors
    /// The first error, of the items or of `f`.
    #[track_caller]
    pub fn try_fold<B>(self, initial: B, mut f: impl FnMut(B, T) -> Result<B, E>) -> Result<B, E> {
        let mut sum = Some(initial);
        self.try_for_each(|item| {
            sum = sum.take().map(|sum| f(sum, item)).transpose()?;
            Ok(())
        })?;
        Ok(sum.expect("put back each time"))
    }

    /// Calls `f` with each good item.
    ///
    /// # Errors
    /// The first error, of the items or of `f`.
    #[track_caller]
    pub fn try_for_each(self, mut f: impl FnMut(T) -> Result<(), E>) -> Result<(), E> {
        let mut done = Ok(());
        self.drain(|item| {
            done = item.and_then(&mut f);
            if done.is_ok() { MORE } else { STOP }
        });
        done
    }
}
