//! A crate that forbids `unsafe` and warnings can use every kind of arm, and a future that selects may be sent.
#![forbid(unsafe_code)]
#![deny(warnings, rust_2018_idioms, unused, unused_qualifications, unreachable_code, let_underscore_drop)]

use std::future::Future;
use std::time::Duration;

use fibra::channel::{Receiver, Sender, bounded};
use fibra::{JoinHandle, select, select_biased};

struct Stage {
    input: Receiver<String>,
    output: Sender<String>,
    other: Sender<u64>,
}

impl Stage {
    fn run(&self, worker: JoinHandle<u64>, count: u64, patient: bool) -> Option<u64> {
        let text = String::from("variable");
        loop {
            select! {
                recv(self.input) -> message => drop(message.ok()?),
                recv(self.input) -> _, if patient => continue,
                recv(self.input), if patient => {}
                send(self.output, text) -> result => return result.ok().map(|()| count),
                send(self.output, text), if patient => return None,
                send(self.output, String::from("expression")) -> result, if !patient => result.ok()?,
                send(self.other, count) -> _ => (),
                send(&self.other, { count }) => {}
                closed(self.output) -> _ => break None,
                closed(self.input), if patient => { break None }
                join(worker) -> result => break result.ok(),
                join(fibra::spawn(|| 1)) -> result, if patient => break result.ok(),
                join(fibra::spawn(|| 2)) => break None,
                after(Duration::ZERO) => {}
                after(Duration::from_secs(1)), if (patient) => {}
                default(Duration::ZERO) => {
                    let again = select_biased! {
                        send(self.output, text) -> result => { result.is_ok() }
                        default => break None,
                    };
                    break again.then_some(count);
                }
            }
        }
    }
}

/// Nothing of an arm lives on in its body.
fn future(rx: Receiver<u8>, tx: Sender<String>) -> impl Future<Output = u8> + Send {
    async move {
        const TEXT: String = String::new();
        let text = String::new();
        select! {
            recv(rx) -> m => std::future::ready(m.unwrap_or(0)).await,
            send(tx, TEXT), if tx.is_empty() => std::future::ready(1).await,
            send(tx, TEXT) -> _ => std::future::ready(1).await,
            send(tx, text), if tx.is_empty() => std::future::ready(1).await,
            send(tx, String::new()) => std::future::ready(2).await,
            default() => std::future::ready(3).await,
        }
    }
}

fn main() {
    let (output, _read) = bounded(1);
    let (_write, input) = bounded(1);
    let (other, _others) = bounded(1);
    let stage = Stage { input, output, other };
    fibra::run(|| {
        let _: Option<u64> = stage.run(fibra::spawn(|| 3), 4, false);
        let (_tx, rx) = bounded(1);
        let (tx, _rx) = bounded(1);
        let _: u8 = fibra::block_on(future(rx, tx));
    });
}
