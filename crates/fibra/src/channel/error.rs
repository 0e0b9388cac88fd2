//! The errors of channels, one type per kind of operation; named and shaped as in crossbeam-channel, so that code can be moved over.
//!
//! Above: the handles, `select`, and users. Below: nothing. Invariant: the error of a send gives the value back.

use std::error::Error;
use std::fmt;

/// The value could not be sent: the channel is closed or its receivers are gone. It comes back.
///
/// ```
/// let (tx, rx) = fibra::channel::bounded(1);
/// drop(rx);
/// assert_eq!(tx.send("hello").unwrap_err().into_inner(), "hello");
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub struct SendError<T>(pub T);

/// Why [`try_send`](crate::channel::Sender::try_send) did not send. The value comes back.
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum TrySendError<T> {
    /// There is no room, or in a rendezvous no receiver waits.
    Full(T),
    /// The channel is closed or its receivers are gone.
    Disconnected(T),
}

/// Why [`send_timeout`](crate::channel::Sender::send_timeout) did not send. The value comes back.
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum SendTimeoutError<T> {
    /// Time was up.
    Timeout(T),
    /// The channel is closed or its receivers are gone.
    Disconnected(T),
}

/// Nothing will come any more: the channel is closed or its senders are gone, and everything sent before has been received.
/// [`close_reason`](crate::channel::Receiver::close_reason) says why.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct RecvError;

/// Why [`try_recv`](crate::channel::Receiver::try_recv) received nothing.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum TryRecvError {
    /// There is nothing now.
    Empty,
    /// Nothing will come any more.
    Disconnected,
}

/// Why [`recv_timeout`](crate::channel::Receiver::recv_timeout) received nothing.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum RecvTimeoutError {
    /// Time was up.
    Timeout,
    /// Nothing will come any more.
    Disconnected,
}

/// No operation of a [`Select`](crate::channel::Select) is ready now.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TrySelectError;

/// No operation of a [`Select`](crate::channel::Select) became ready in time.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct SelectTimeoutError;

/// No operation of a [`Select`](crate::channel::Select) is ready now.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TryReadyError;

/// No operation of a [`Select`](crate::channel::Select) became ready in time.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct ReadyTimeoutError;

impl<T> SendError<T> {
    /// The value that was not sent.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> TrySendError<T> {
    /// The value that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(value) | Self::Disconnected(value) => value,
        }
    }
    /// Was there no room?
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }
    /// Is the channel closed?
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected(_))
    }
}

impl<T> SendTimeoutError<T> {
    /// The value that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            Self::Timeout(value) | Self::Disconnected(value) => value,
        }
    }
    /// Was time up?
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout(_))
    }
    /// Is the channel closed?
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected(_))
    }
}

impl TryRecvError {
    /// Was there nothing?
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
    /// Is the channel closed?
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected)
    }
}

impl RecvTimeoutError {
    /// Was time up?
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout)
    }
    /// Is the channel closed?
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected)
    }
}

impl<T> From<SendError<T>> for TrySendError<T> {
    fn from(error: SendError<T>) -> Self {
        Self::Disconnected(error.0)
    }
}

impl<T> From<SendError<T>> for SendTimeoutError<T> {
    fn from(error: SendError<T>) -> Self {
        Self::Disconnected(error.0)
    }
}

impl From<RecvError> for TryRecvError {
    fn from(_: RecvError) -> Self {
        Self::Disconnected
    }
}

impl From<RecvError> for RecvTimeoutError {
    fn from(_: RecvError) -> Self {
        Self::Disconnected
    }
}

/// `Debug` without the value (which need not have one), `Display`, `Error`.
macro_rules! carries_value {
    ($($name:ident { $($pattern:pat => $variant:literal, $text:literal;)+ })+) => {$(
        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($pattern => $variant),+ })
            }
        }
        impl<T> fmt::Display for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($pattern => $text),+ })
            }
        }
        impl<T> Error for $name<T> {}
    )+};
}

carries_value! {
    SendError { SendError(_) => "SendError(..)", "sending on a closed channel"; }
    TrySendError {
        TrySendError::Full(_) => "Full(..)", "sending on a full channel";
        TrySendError::Disconnected(_) => "Disconnected(..)", "sending on a closed channel";
    }
    SendTimeoutError {
        SendTimeoutError::Timeout(_) => "Timeout(..)", "timed out sending on a full channel";
        SendTimeoutError::Disconnected(_) => "Disconnected(..)", "sending on a closed channel";
    }
}

macro_rules! plain {
    ($($name:ident { $($pattern:pat => $text:literal;)+ })+) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($pattern => $text),+ })
            }
        }
        impl Error for $name {}
    )+};
}

plain! {
    RecvError { RecvError => "receiving on an empty and closed channel"; }
    TryRecvError {
        TryRecvError::Empty => "receiving on an empty channel";
        TryRecvError::Disconnected => "receiving on an empty and closed channel";
    }
    RecvTimeoutError {
        RecvTimeoutError::Timeout => "timed out receiving on an empty channel";
        RecvTimeoutError::Disconnected => "receiving on an empty and closed channel";
    }
    TrySelectError { TrySelectError => "no operation of this select is ready"; }
    SelectTimeoutError { SelectTimeoutError => "timed out waiting for an operation of this select"; }
    TryReadyError { TryReadyError => "no operation of this select is ready"; }
    ReadyTimeoutError { ReadyTimeoutError => "timed out waiting for an operation of this select to become ready"; }
}
