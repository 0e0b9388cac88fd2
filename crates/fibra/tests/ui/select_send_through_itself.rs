//! A value that holds the very sender it would be sent by: its receiver may drop it, and with it the channel, before the
//! select is over.
use fibra::channel::{Sender, bounded};
use fibra::select;

struct Job {
    back: Sender<Job>,
}

fn main() {
    let (tx, _rx) = bounded(1);
    let job = Job { back: tx };
    select! { send(job.back, job) -> _ => {} }
    let (tx, _rx) = bounded(1);
    let job = Job { back: tx };
    select! { send(job.back, job) -> _, if true => {}, default => {} }
}
