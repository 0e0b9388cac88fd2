//! [`lock_all`]: several mutexes, in one order for all callers. Above: users. Below: `mutex`.

use super::mutex::{Mutex, MutexGuard};
use super::owner;

mod sealed {
    pub trait Sealed {}
}

/// Several mutexes: an array or a slice of references, or a tuple of up to six references to mutexes of different types.
pub trait LockAll: sealed::Sealed {
    /// A guard for each, in the order in which they were given.
    type Guards;
    #[doc(hidden)]
    #[track_caller]
    fn lock_all(self) -> Self::Guards;
}

/// Locks several mutexes, waiting if need be, and gives their guards in the same order. They are locked in the order of their addresses,
/// whatever the order they are given in, so two fibers that lock some of the same mutexes this way never wait for each other in a circle.
///
/// ```
/// use fibra::sync::{Mutex, lock_all};
///
/// let accounts = [Mutex::new(100), Mutex::new(20), Mutex::new(3)];
///
/// let [mut from, mut to] = lock_all([&accounts[2], &accounts[0]]);
/// *from -= 1;
/// *to += 1;
/// drop((from, to));
///
/// // Of different types:
/// let log = Mutex::new(String::new());
/// let (account, mut log) = lock_all((&accounts[1], &log));
/// log.push_str(&format!("{account} left"));
/// ```
///
/// A fiber that is cancelled meanwhile lets go of those that it has locked.
///
/// # Panics
/// If one of them is given twice, or held already by this fiber or thread: before any is locked, or after those are unlocked again.
#[track_caller]
pub fn lock_all<L: LockAll>(mutexes: L) -> L::Guards {
    mutexes.lock_all()
}

/// Calls `lock` with every index, in the order of the addresses, and with the name of the locker. This counts as one call: other fibers run
/// before the first is locked, and not while some are held.
#[track_caller]
fn in_order(addresses: &mut [(usize, usize)], mut lock: impl FnMut(usize, usize)) {
    addresses.sort_unstable();
    if let Some(twice) = addresses.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let (one, other) = (twice[0].1, twice[1].1);
        panic!("fibra: lock_all was given the same mutex twice (as number {one} and number {other}, counted from 0)");
    }
    let me = owner::me_calling();
    for (_, index) in addresses {
        lock(*index, me);
    }
}

fn address<T: ?Sized>(mutex: &Mutex<T>) -> usize {
    std::ptr::from_ref(mutex.raw()).addr()
}

impl<T: ?Sized, const N: usize> sealed::Sealed for [&Mutex<T>; N] {}

impl<'a, T: ?Sized, const N: usize> LockAll for [&'a Mutex<T>; N] {
    type Guards = [MutexGuard<'a, T>; N];

    #[track_caller]
    fn lock_all(self) -> Self::Guards {
        let mut addresses = std::array::from_fn::<_, N, _>(|index| (address(self[index]), index));
        let mut guards = [const { None }; N];
        in_order(&mut addresses, |index, me| guards[index] = Some(self[index].lock_as(me)));
        guards.map(|guard| guard.expect("all are locked"))
    }
}

impl<T: ?Sized> sealed::Sealed for &[&Mutex<T>] {}

impl<'a, T: ?Sized> LockAll for &[&'a Mutex<T>] {
    type Guards = Vec<MutexGuard<'a, T>>;

    #[track_caller]
    fn lock_all(self) -> Self::Guards {
        let mut addresses: Vec<_> = self.iter().enumerate().map(|(index, mutex)| (address(*mutex), index)).collect();
        let mut guards: Vec<_> = self.iter().map(|_| None).collect();
        in_order(&mut addresses, |index, me| guards[index] = Some(self[index].lock_as(me)));
        guards.into_iter().map(|guard| guard.expect("all are locked")).collect()
    }
}

macro_rules! tuples {
    ($($name:ident: $type:ident = $index:tt),+) => {
        impl<$($type: ?Sized),+> sealed::Sealed for ($(&Mutex<$type>,)+) {}

        impl<'a, $($type: ?Sized),+> LockAll for ($(&'a Mutex<$type>,)+) {
            type Guards = ($(MutexGuard<'a, $type>,)+);

            #[track_caller]
            fn lock_all(self) -> Self::Guards {
                let mut addresses = [$((address(self.$index), $index)),+];
                $(let mut $name = None;)+
                in_order(&mut addresses, |index, me| match index {
                    $($index => $name = Some(self.$index.lock_as(me)),)+
                    _ => unreachable!("as many as there are"),
                });
                ($($name.expect("all are locked"),)+)
            }
        }
    };
}
tuples!(a: A = 0, b: B = 1);
tuples!(a: A = 0, b: B = 1, c: C = 2);
tuples!(a: A = 0, b: B = 1, c: C = 2, d: D = 3);
tuples!(a: A = 0, b: B = 1, c: C = 2, d: D = 3, e: E = 4);
tuples!(a: A = 0, b: B = 1, c: C = 2, d: D = 3, e: E = 4, f: F = 5);
