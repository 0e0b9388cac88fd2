//! The compiler's own errors point at what the user wrote.
use std::time::Duration;

use fibra::channel::{RecvError, bounded};

fn main() {
    let (tx, rx) = bounded::<String>(1);
    let number = 5_u32;
    fibra::select! {
        recv(tx) -> _ => {}
    }
    fibra::select! {
        recv(tx), if true => {}
    }
    fibra::select! {
        send(rx, String::new()) => {}
    }
    fibra::select! {
        send(tx, 5) => {}
    }
    fibra::select! {
        send(tx, number) => {}
    }
    fibra::select! {
        after(5) => {}
    }
    fibra::select! {
        default(5) => {}
    }
    fibra::select! {
        join(rx) -> _ => {}
    }
    let _: u8 = fibra::select! {
        recv(rx) -> m => m,
        after(Duration::ZERO) => 5,
    };
    let _: Result<String, RecvError> = fibra::select! {
        recv(rx) -> m => { m; }
    };
}
