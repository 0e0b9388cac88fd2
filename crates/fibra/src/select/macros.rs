//! `select!` and `select_biased!`: the public side, with its documentation. Above: users. Below: `fibra-macros`, which does the work, and
//! `private`, which the expansion calls. The macro is told the name of this crate, so that other crates may rename it and export its macros
//! again.

/// Waits for several operations and does exactly one of them: the first that becomes possible. Of several that are possible at
/// once, one is chosen by chance; [`select_biased!`] takes the first in source order instead.
///
/// ```
/// use std::time::Duration;
/// use fibra::channel::bounded;
///
/// fibra::run(|| {
///     let (jobs, queue) = bounded::<u32>(8);
///     let (results, done) = bounded(8);
///     let worker = fibra::spawn(move || {
///         for job in queue {
///             results.send(job * job).unwrap();
///         }
///     });
///
///     // Hands out work and takes results, whichever can be done.
///     let (mut next, mut results, mut sum) = (1, 0, 0);
///     while results < 100 {
///         fibra::select! {
///             send(jobs, next) -> sent, if next <= 100 => {
///                 sent.expect("the worker is there");
///                 next += 1;
///             }
///             recv(done) -> square => {
///                 sum += square.expect("the worker is there");
///                 results += 1;
///             }
///             after(Duration::from_secs(60)) => panic!("nothing has happened for a minute"),
///         }
///     }
///     assert_eq!(sum, 338_350);
///
///     drop(jobs);
///     fibra::select! {
///         join(worker) -> result => result.unwrap(),
///     }
/// });
/// ```
///
/// # Arms
///
/// An arm is `operation -> pattern, if guard => body`, where `-> pattern` and `, if guard` may be left out. As in `match`, a
/// comma ends a body, unless that ends with a block.
///
/// | operation | is possible when | its result |
/// |---|---|---|
/// | `recv(rx)` | there is a message, or never will be | `Result<T, RecvError>` |
/// | `send(tx, value)` | there is room or a receiver, or never will be | `Result<(), SendError<T>>` |
/// | `closed(tx)`, `closed(rx)` | the other side of the channel is gone | `CloseReason` |
/// | `join(handle)` | the fiber has ended | `Result<T, JoinError>` |
/// | `lock(mutex)` | the mutex is free; it is locked | [`MutexGuard`](crate::sync::MutexGuard) |
/// | `on(operation)` | whatever it says: any [`Arm`](crate::channel::Arm) | its output |
/// | `after(duration)` | so much time has passed since the select began to wait | none |
/// | `default`, `default()` | nothing else is possible now | none |
/// | `default(duration)` | nothing else has become possible for so long | none |
///
/// `rx`, `tx` and the like may be the thing itself, a reference to it, an `Arc` or `Box` of it, or an expression that gives one.
/// A select without `default` waits; there is at most one `default`.
///
/// * Guards and expressions are evaluated once, in source order, an arm's expressions only if its guard holds. An arm whose guard
///   is false is not there. If that is true of all, and there is no `default`, select panics.
/// * Arms that lose have no effect: no message is taken, none is sent.
/// * The pattern must match whatever the result is: `-> message`, not `-> Ok(message)`.
/// * Bodies are code of the function around them: `?`, `break`, `continue` and `return` work. The value of the body is the value
///   of the select.
/// * Temporaries of what an arm is about (`recv(cell.borrow().rx)`, `recv(rx.unwrap_or(&never()))`) live until the select ends,
///   body included, as in `match`: do not get at a receiver through a lock. (With a guard, only those that a `let` would keep.)
///   Temporaries of a value that is to be sent end before select waits.
///
/// # Sending a variable
///
/// In `send(tx, v)`, a variable `v` (or a field: `job.text`) moves only if that arm wins. In all other bodies it is still there,
/// several arms may name it, and a loop may try again:
///
/// ```
/// use fibra::channel::{Sender, bounded};
///
/// /// Gives the job to the receiver that takes it first.
/// fn dispatch(job: String, a: &Sender<String>, b: &Sender<String>) -> Result<&'static str, String> {
///     for _ in 0..3 {
///         fibra::select! {
///             send(a, job) -> sent => return sent.map(|()| "a").map_err(|error| error.into_inner()),
///             send(b, job) -> sent => return sent.map(|()| "b").map_err(|error| error.into_inner()),
///             default => fibra::yield_now(),
///         }
///     }
///     Err(job)
/// }
///
/// fibra::run(|| {
///     let (a, _full) = bounded(1);
///     let (b, there) = bounded(1);
///     a.send("first".to_owned()).unwrap();
///     assert_eq!(dispatch("second".to_owned(), &a, &b), Ok("b"));
///     assert_eq!(there.recv().unwrap(), "second");
///     b.send("third".to_owned()).unwrap();
///     assert_eq!(dispatch("fourth".to_owned(), &a, &b), Err("fourth".to_owned()));
/// });
/// ```
///
/// The same holds for `join(handle)`. Any other expression, and a constant, is evaluated beforehand, like the arguments of a call,
/// and what comes of it is dropped if the arm loses; `send(tx, { v })` moves `v` in any case. No other arm may borrow from a variable
/// that is to be sent: `send(tx, request)` beside `recv(request.reply)` does not compile, since the receiver of `request` may drop it.
#[macro_export]
macro_rules! select {
    ($($arms:tt)*) => {
        $crate::__private::select_arms!($crate { $($arms)* })
    };
}

/// Like [`select!`], but of several operations that are possible at once the first in source order is done.
///
/// ```
/// use fibra::channel::unbounded;
///
/// let (urgent, urgently) = unbounded();
/// let (later, some_time) = unbounded();
/// later.send("tidy up").unwrap();
/// urgent.send("put the fire out").unwrap();
/// urgent.send("call home").unwrap();
///
/// let mut order = Vec::new();
/// loop {
///     fibra::select_biased! {
///         recv(urgently) -> what => order.push(what.unwrap()),
///         recv(some_time) -> what => order.push(what.unwrap()),
///         default => break,
///     }
/// }
/// assert_eq!(order, ["put the fire out", "call home", "tidy up"]);
/// ```
///
/// An arm that is always possible starves those below it.
#[macro_export]
macro_rules! select_biased {
    ($($arms:tt)*) => {
        $crate::__private::select_arms_biased!($crate { $($arms)* })
    };
}

pub use {select, select_biased};
