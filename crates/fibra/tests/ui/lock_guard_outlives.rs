//! A guard does not outlive its mutex.
use fibra::sync::{Mutex, MutexGuard};

fn main() {
    let guard: MutexGuard<'_, u32> = {
        let mutex = Mutex::new(1);
        mutex.lock()
    };
    drop(guard);
}
