//! What may be sent to another thread, what may be shared, and what may not.
#![allow(clippy::disallowed_types)] // Logs of the tests.

use std::rc::Rc;

use fibra::{Builder, JoinHandle, Runtime};

fn is_send<T: Send>() {}

fn is_sync<T: Sync>() {}

/// Compiles only if `T` is not `Send` (or not `Sync`): otherwise two implementations fit.
trait IsNotSend<A> {
    fn is_not_send() {}
}

trait IsNotSync<A> {
    fn is_not_sync() {}
}

struct Ambiguous;

impl<T: ?Sized> IsNotSend<()> for T {}

impl<T: ?Sized + Send> IsNotSend<Ambiguous> for T {}

impl<T: ?Sized> IsNotSync<()> for T {}

impl<T: ?Sized + Sync> IsNotSync<Ambiguous> for T {}

// What may be sent and shared, and what must not be.
#[test]
fn auto_traits() {
    is_send::<Runtime>();
    is_sync::<Runtime>();
    is_send::<fibra::Handle>();
    is_sync::<fibra::Handle>();
    is_send::<JoinHandle<u8>>();
    is_sync::<JoinHandle<std::cell::Cell<u8>>>();
    <JoinHandle<Rc<u8>> as IsNotSend<_>>::is_not_send();
    <JoinHandle<Rc<u8>> as IsNotSync<_>>::is_not_sync();
    is_send::<fibra::JoinFuture<u8>>();
    <fibra::JoinFuture<Rc<u8>> as IsNotSend<_>>::is_not_send();
    <fibra::EnterGuard as IsNotSend<_>>::is_not_send();
    is_send::<fibra::JoinError>();
    is_sync::<fibra::JoinError>();
    is_send::<fibra::Fiber>();
    is_sync::<fibra::Fiber>();
    is_sync::<fibra::FiberLocal<Rc<u8>>>();
    is_send::<fibra::RuntimeBuilder>();
    is_send::<Builder>();
    is_send::<fibra::ShutdownError>();
}
