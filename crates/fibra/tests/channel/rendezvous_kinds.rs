//! Every way to send one value on a rendezvous, and every way to receive it: the two lists whose product `rendezvous_meetings` tries.
//!
//! A way says how it *stands*: it stays until it is met; it only watches, and tries when it is told; or it polls, and is never there
//! between two tries. A way that tries again counts its tries in vain, so that a test can wait until the first one was made.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use fibra::channel::{Receiver, Select, Sender, TryRecvError};
use fibra::select;
use fibra::time::Instant;

/// Longer than any test: it never comes.
const LONG: Duration = Duration::from_secs(3600);

/// See the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stands {
    Still,
    Watches,
    Polls,
}

/// Tries in vain, so far.
pub(crate) type Tries = AtomicU32;

type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How it is done.
pub(crate) enum How<E, T> {
    /// On a fiber or a thread.
    Blocking(fn(&E, &Tries) -> T),
    /// By a future.
    Async(fn(E) -> Task<T>),
}

impl<E, T> Clone for How<E, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E, T> Copy for How<E, T> {}

/// One way.
pub(crate) struct Kind<E, T> {
    pub(crate) name: &'static str,
    pub(crate) stands: Stands,
    pub(crate) how: How<E, T>,
}

/// What is sent.
pub(crate) const VALUE: u32 = 7;

/// The next try, after a pause in which the other side can run.
fn again(tries: &Tries) {
    tries.fetch_add(1, SeqCst);
    fibra::yield_now();
}

/// Tries until it works.
fn until<T>(tries: &Tries, mut once: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(done) = once() {
            return done;
        }
        again(tries);
    }
}

const fn blocking<E, T>(name: &'static str, stands: Stands, how: fn(&E, &Tries) -> T) -> Kind<E, T> {
    Kind { name, stands, how: How::Blocking(how) }
}

const fn task<E, T>(name: &'static str, how: fn(E) -> Task<T>) -> Kind<E, T> {
    Kind { name, stands: Stands::Still, how: How::Async(how) }
}

// ---- Sending --------------------------------------------------------------------------------------------------------------

pub(crate) const SENDERS: &[Kind<Sender<u32>, ()>] = &[
    blocking("send", Stands::Still, |tx, _| tx.send(VALUE).unwrap()),
    blocking("send_timeout", Stands::Still, |tx, _| tx.send_timeout(VALUE, LONG).unwrap()),
    blocking("send_deadline", Stands::Still, |tx, _| {
        tx.send_deadline(VALUE, Instant::now() + LONG).unwrap();
    }),
    task("send_async", |tx| Box::pin(async move { tx.send_async(VALUE).await.unwrap() })),
    blocking("select! send", Stands::Still, |tx, _| select! { send(tx, VALUE) -> sent => sent.unwrap() }),
    blocking("select! send, after", Stands::Still, |tx, _| {
        select! { send(tx, VALUE) -> sent => sent.unwrap(), after(LONG) => panic!("time is up") }
    }),
    blocking("select! send, default(timeout)", Stands::Still, |tx, _| {
        select! { send(tx, VALUE) -> sent => sent.unwrap(), default(LONG) => panic!("time is up") }
    }),
    blocking("select! send, default", Stands::Polls, |tx, tries| {
        until(tries, || select! { send(tx, VALUE) -> sent => sent.ok(), default => None });
    }),
    blocking("Select::send", Stands::Still, |tx, _| {
        let mut set = Select::new();
        set.send(tx);
        set.select().send(tx, VALUE).unwrap();
    }),
    blocking("Select::send with a timeout", Stands::Still, |tx, _| {
        let mut set = Select::new();
        set.send(tx);
        set.select_timeout(LONG).unwrap().send(tx, VALUE).unwrap();
    }),
    blocking("Select::send, tried", Stands::Polls, |tx, tries| {
        let mut set = Select::new();
        set.send(tx);
        until(tries, || set.try_select().ok()).send(tx, VALUE).unwrap();
    }),
    blocking("Select::ready, then try_send", Stands::Watches, |tx, tries| {
        let mut set = Select::new();
        set.send(tx);
        until(tries, || {
            assert_eq!(set.ready(), 0);
            tx.try_send(VALUE).ok()
        });
    }),
    blocking("reserve", Stands::Still, |tx, _| tx.reserve().unwrap().send(VALUE)),
    blocking("reserve_timeout", Stands::Still, |tx, _| tx.reserve_timeout(LONG).unwrap().send(VALUE)),
    task("reserve_async", |tx| Box::pin(async move { tx.reserve_async().await.unwrap().send(VALUE) })),
    blocking("try_reserve", Stands::Polls, |tx, tries| until(tries, || tx.try_reserve().ok()).send(VALUE)),
    blocking("try_send", Stands::Polls, |tx, tries| until(tries, || tx.try_send(VALUE).ok())),
    blocking("force_send", Stands::Polls, |tx, tries| {
        until(tries, || if tx.force_send(VALUE).unwrap().is_none() { Some(()) } else { None });
    }),
];

// ---- Receiving ------------------------------------------------------------------------------------------------------------

/// What one look came to, if to anything.
fn looked(got: Result<u32, TryRecvError>) -> Option<u32> {
    match got {
        Ok(value) => Some(value),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => panic!("the sender went, and nothing came"),
    }
}

pub(crate) const RECEIVERS: &[Kind<Receiver<u32>, u32>] = &[
    blocking("recv", Stands::Still, |rx, _| rx.recv().unwrap()),
    blocking("recv_timeout", Stands::Still, |rx, _| rx.recv_timeout(LONG).unwrap()),
    blocking("recv_deadline", Stands::Still, |rx, _| rx.recv_deadline(Instant::now() + LONG).unwrap()),
    blocking("iter", Stands::Still, |rx, _| rx.iter().next().unwrap()),
    task("recv_async", |rx| Box::pin(async move { rx.recv_async().await.unwrap() })),
    blocking("select! recv", Stands::Still, |rx, _| select! { recv(rx) -> got => got.unwrap() }),
    blocking("select! recv, after", Stands::Still, |rx, _| {
        select! { recv(rx) -> got => got.unwrap(), after(LONG) => panic!("time is up") }
    }),
    blocking("select! recv, default", Stands::Polls, |rx, tries| {
        until(tries, || select! { recv(rx) -> got => Some(got.unwrap()), default => None })
    }),
    blocking("Select::recv", Stands::Still, |rx, _| {
        let mut set = Select::new();
        set.recv(rx);
        set.select().recv(rx).unwrap()
    }),
    blocking("Select::recv, tried", Stands::Polls, |rx, tries| {
        let mut set = Select::new();
        set.recv(rx);
        until(tries, || set.try_select().ok()).recv(rx).unwrap()
    }),
    blocking("Select::ready, then try_recv", Stands::Watches, |rx, tries| {
        let mut set = Select::new();
        set.recv(rx);
        until(tries, || {
            assert_eq!(set.ready(), 0);
            looked(rx.try_recv())
        })
    }),
    blocking("Select::try_ready, then try_recv", Stands::Polls, |rx, tries| {
        let mut set = Select::new();
        set.recv(rx);
        until(tries, || if set.try_ready().is_ok() { looked(rx.try_recv()) } else { None })
    }),
    blocking("try_recv", Stands::Polls, |rx, tries| until(tries, || looked(rx.try_recv()))),
    blocking("try_iter", Stands::Polls, |rx, tries| until(tries, || rx.try_iter().next())),
];
