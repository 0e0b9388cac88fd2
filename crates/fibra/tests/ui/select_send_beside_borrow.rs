//! The receiver of `request` may destroy it before this select returns, and `reply` with it.
use fibra::channel::{Receiver, Sender, bounded};

struct Request {
    reply: Receiver<u8>,
}

fn ask(tx: &Sender<Request>, request: Request) {
    fibra::select! {
        send(tx, request) -> result => drop(result),
        recv(request.reply) -> answer => drop(answer),
    }
}

fn ask_in_other_order(tx: &Sender<Request>, request: Request) {
    fibra::select! {
        recv(request.reply) -> answer, if true => drop(answer),
        send(tx, request) -> result, if true => drop(result),
    }
}

/// An arm without a destructor.
fn ask_while_there(tx: &Sender<Request>, request: Request) {
    fibra::select! {
        send(tx, request) -> result => drop(result),
        closed(request.reply) => {}
    }
}

fn main() {
    let (tx, _rx) = bounded(1);
    let (_reply, reply) = bounded(1);
    ask(&tx, Request { reply });
    let (_reply, reply) = bounded(1);
    ask_in_other_order(&tx, Request { reply });
    let (_reply, reply) = bounded(1);
    ask_while_there(&tx, Request { reply });
}
