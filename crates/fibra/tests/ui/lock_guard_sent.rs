//! A guard stays with the fiber that locked: the fiber that unlocks must be the one that locked. (That of `lock_async` may go.)
use std::sync::Arc;

use fibra::sync::{Mutex, ReentrantMutex};

static SHARED: Mutex<u32> = Mutex::new(1);

fn main() {
    fibra::run(|| {
        let guard = SHARED.lock();
        let _ = fibra::spawn(move || *guard).join();
    });
    let mutex = Arc::new(Mutex::new(1));
    std::thread::scope(|s| {
        let guard = mutex.lock();
        s.spawn(move || drop(guard));
    });
    let mutex = ReentrantMutex::new(1);
    std::thread::scope(|s| {
        let guard = mutex.lock();
        s.spawn(move || drop(guard));
    });
}
