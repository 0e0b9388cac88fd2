//! The process-wide epoll thread for waits from threads that are not workers: plain threads that wait for a socket *and something else*
//! (in a `select!`, or in a scope that may be cancelled). A plain thread that waits for one socket alone polls the kernel itself and does
//! not come here.
//!
//! The first such wait starts the thread. It sleeps in the kernel until a registered socket becomes ready, and never ends. A child of a
//! fork has no such thread and starts its own. Above: `source`. Below: `driver`.

use std::io;

use super::source;
use crate::driver::{Driver, Registrar, Timeout};
use crate::monitor::fork;
use crate::prim::sync::{Mutex, MutexGuard};
use crate::prim::thread;
use crate::waiter::record::call_wakers;

/// The registrar of the thread, and the fork generation it was started in.
static OUTSIDE: Mutex<Option<(u64, Registrar)>> = Mutex::new(None);

/// Held over a fork; see `fork`.
pub(crate) struct OutsideLock {
    _outside: MutexGuard<'static, Option<(u64, Registrar)>>,
}

impl OutsideLock {
    pub(crate) fn take() -> Self {
        Self { _outside: OUTSIDE.lock() }
    }
}

/// The registrar of the thread, which is started if there is none.
pub(crate) fn registrar() -> io::Result<Registrar> {
    // Without a runtime the fork handlers are not installed yet, and a child would wait for a thread that it does not have. Before the
    // lock, because a fork takes the lock too.
    fork::install();
    let mut outside = OUTSIDE.lock();
    let epoch = fork::epoch();
    if let Some((started_in, registrar)) = &*outside
        && *started_in == epoch
    {
        return Ok(registrar.clone());
    }
    let driver = Driver::new()?;
    let registrar = driver.registrar();
    thread::start_quiet("fibra-io".to_owned(), move || serve(driver))?;
    *outside = Some((epoch, registrar.clone()));
    Ok(registrar)
}

fn serve(mut driver: Driver) {
    loop {
        if let Err(error) = driver.wait(Timeout::Forever) {
            panic!("fibra: the thread that waits for sockets of plain threads cannot wait any more: {error}");
        }
        let mut owed = Vec::new();
        while let Some(completion) = driver.next_completion() {
            source::deliver(completion, &mut owed);
        }
        call_wakers(owed);
    }
}
