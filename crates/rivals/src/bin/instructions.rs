//! Counts the instructions of fibra's cheapest operations. `.ci/instructions` runs this under valgrind, once with N and once with
//! 2N operations: the difference divided by N is the cost of one, and the start and stop of the runtime cancel out.
//!
//! ```text
//! instructions <operation> <N>
//! instructions                    lists the operations
//! ```
//!
//! One worker and no elastic second one: the count must not depend on which worker was faster. Counts show what times on a shared machine
//! cannot (a few instructions more on a hot path) and do not show what times do (mispredictions, cache misses): keep both.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use fibra::actor::{self, Actor, Addr, Context, Failure, Reply};
use fibra::channel::{self, Receiver, Sender};
use fibra::machine::{Caller, EventLoop, Machine, OpPool, Ports, Timestamp};

/// Does its operation this many times, give or take a rounding to its batch.
type Operation = fn(usize);

const OPERATIONS: [(&str, Operation); 19] = [
    ("yield", yield_now),
    ("park_wake", park_wake),
    ("spawn_join", spawn_join),
    ("spawn_await", spawn_await),
    ("fork_join", fork_join),
    ("rendezvous", rendezvous),
    ("buffered_send", buffered_send),
    ("buffered_recv", buffered_recv),
    ("select_8_ready", select_8_ready),
    ("ask", ask),
    ("oneshot", oneshot),
    ("machine_op", machine_op),
    ("machine_call", machine_call),
    ("machine_calls", machine_calls),
    ("actor_hop", actor_hop),
    ("actor_fan_in", actor_fan_in),
    ("actor_ask", actor_ask),
    ("cancel_sleep", cancel_sleep),
    ("cancel_recv", cancel_recv),
];

/// Operations that run on the main thread without a runtime: on an event loop of their own.
const ON_A_THREAD: [&str; 1] = ["machine_op"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, number] = arguments.as_slice() else {
        OPERATIONS.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let operation = OPERATIONS.iter().find(|(known, _)| known == name);
    let (Some(&(_, operation)), Ok(number)) = (operation, number.parse::<usize>()) else {
        eprintln!("instructions: unknown operation {name}, or {number} is not a number");
        return ExitCode::from(2);
    };
    if ON_A_THREAD.contains(&name.as_str()) {
        operation(number);
        return ExitCode::SUCCESS;
    }
    let runtime = fibra::Runtime::builder().workers(1).max_workers(1).build().expect("the runtime starts");
    runtime.run(move || operation(number));
    ExitCode::SUCCESS
}

/// Two fibers that yield to each other: one operation is one yield.
fn yield_now(number: usize) {
    let fibers = [(); 2].map(|()| {
        fibra::spawn(move || {
            for _ in 0..number / 2 {
                fibra::yield_now();
            }
        })
    });
    for fiber in fibers {
        fiber.join().expect("a yielding fiber ends");
    }
}

/// Which of two fibers has its turn, and the waker of the other one, which waits.
#[derive(Default)]
struct Baton {
    turn: Cell<usize>,
    waiting: RefCell<Option<Waker>>,
}

impl Baton {
    /// Parks until it is this fiber's turn.
    fn await_turn(&self, me: usize) {
        fibra::block_on(poll_fn(|context| {
            if self.turn.get() == me {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        }));
    }

    fn pass_to(&self, other: usize) {
        self.turn.set(other);
        // Taken out first: waking may run anything.
        let waker = self.waiting.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Two fibers of one worker that wake each other in turn and park: one operation is one park and one wake. It goes through
/// `block_on` because that is the park a program can reach without a channel.
fn park_wake(number: usize) {
    let baton = Rc::new(Baton::default());
    let fibers = [0, 1].map(|me| {
        let baton = Rc::clone(&baton);
        fibra::spawn_local(move || {
            for _ in 0..number / 2 {
                baton.await_turn(me);
                baton.pass_to(1 - me);
            }
        })
    });
    for fiber in fibers {
        fiber.join().expect("a parking fiber ends");
    }
}

/// Fibers in a batch: one operation is one spawn, its run and its join.
fn spawn_join(number: usize) {
    const BATCH: usize = 100;
    let mut fibers = Vec::with_capacity(BATCH);
    for _ in 0..number / BATCH {
        fibers.extend((0..BATCH).map(|_| fibra::spawn(|| ())));
        for fiber in fibers.drain(..) {
            fiber.join().expect("an empty fiber ends");
        }
    }
}

/// One fiber at a time: one operation is one spawn, its run and its join.
fn spawn_await(number: usize) {
    for _ in 0..number {
        fibra::spawn(|| ()).join().expect("an empty fiber ends");
    }
}

/// A recursion of joins without a thief: one operation is one `join` and its share of the leaves.
fn fork_join(number: usize) {
    fn divide(number: usize) -> usize {
        if number < 2 {
            return number;
        }
        let (a, b) = fibra::join(|| divide(number / 2), || divide(number - number / 2));
        a + b
    }
    assert_eq!(divide(number), number);
}

/// Two fibers and a channel without a buffer: one operation is one transfer, a send and a receive of which one parks.
fn rendezvous(number: usize) {
    let (sender, receiver) = channel::bounded::<usize>(0);
    let source = fibra::spawn(move || {
        for value in 0..number {
            sender.send(value).expect("the reader is there");
        }
    });
    for value in 0..number {
        assert_eq!(receiver.recv(), Ok(value));
    }
    source.join().expect("a sending fiber ends");
}

/// One operation is a question over a buffered channel and its answer over another: each finds the other fiber waiting.
fn ask(number: usize) {
    let (ask, asked) = channel::bounded::<usize>(16);
    let (answer, answered) = channel::bounded::<usize>(16);
    let answering = fibra::spawn(move || asked.iter().for_each(|value| answer.send(value).expect("it is asked for")));
    for value in 0..number {
        ask.send(value).expect("the other one reads");
        assert_eq!(answered.recv(), Ok(value));
    }
    drop(ask);
    answering.join().expect("an answering fiber ends");
}

/// The same, but the answer comes over a new channel each time.
fn oneshot(number: usize) {
    let (ask, asked) = channel::bounded::<channel::OneshotSender<usize>>(16);
    let answering = fibra::spawn(move || asked.iter().for_each(|reply| reply.send(1).expect("it is asked for")));
    for _ in 0..number {
        let (reply, answer) = channel::oneshot();
        ask.send(reply).expect("the other one reads");
        assert_eq!(answer.recv(), Ok(1));
    }
    drop(ask);
    answering.join().expect("an answering fiber ends");
}

/// Above what `.ci/instructions` asks for, so that no operation below waits.
const BUFFERED: usize = 1 << 16;

/// A channel that has been full once: its buffer has all its memory, and that costs the same for every number of operations.
fn full() -> (Sender<usize>, Receiver<usize>) {
    let (sender, receiver) = channel::bounded(BUFFERED);
    for value in 0..BUFFERED {
        sender.send(value).expect("the reader is there");
    }
    (sender, receiver)
}

/// One operation is one send into a channel with room. What lies in the channel at the end is forgotten, not dropped one by one.
fn buffered_send(number: usize) {
    assert!(number <= BUFFERED, "the channel would be full");
    let (sender, receiver) = full();
    for value in 0..BUFFERED {
        assert_eq!(receiver.recv(), Ok(value));
    }
    for value in 0..number {
        sender.send(value).expect("the reader is there");
    }
    std::mem::forget((sender, receiver));
}

/// One operation is one receive from a channel with values.
fn buffered_recv(number: usize) {
    assert!(number <= BUFFERED, "the channel would be empty");
    let (sender, receiver) = full();
    for value in 0..number {
        assert_eq!(receiver.recv(), Ok(value));
    }
    std::mem::forget((sender, receiver));
}

/// One operation is one select over eight channels, all of which have values; a receive is part of it.
fn select_8_ready(number: usize) {
    let ends = [(); 8].map(|()| channel::bounded::<usize>(BUFFERED / 8));
    assert!(number <= BUFFERED, "the channels would be empty");
    for (sender, _) in &ends {
        for value in 0..BUFFERED / 8 {
            sender.send(value).expect("the reader is there");
        }
    }
    let [a, b, c, d, e, f, g, h] = ends.each_ref().map(|(_, receiver)| receiver);
    for _ in 0..number {
        let value = fibra::select! {
            recv(a) -> value => value,
            recv(b) -> value => value,
            recv(c) -> value => value,
            recv(d) -> value => value,
            recv(e) -> value => value,
            recv(f) -> value => value,
            recv(g) -> value => value,
            recv(h) -> value => value,
        };
        value.expect("the channel is open");
    }
    std::mem::forget(ends);
}

/// The platform: answers each question with its double.
struct Doubles;

impl Machine for Doubles {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            let number = request.data::<u32>().map_or(0, |number| *number as i32);
            ports.complete(request, number.wrapping_mul(2));
        }
    }
}

/// Asks the platform so many times, one question after the other.
struct Asks {
    pool: OpPool<u32>,
    left: usize,
}

impl Machine for Asks {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while ports.input.completions.pop().is_some() {}
        if self.left == 0 {
            return ports.stop();
        }
        self.left -= 1;
        ports.submit(self.pool.take(0, 1).expect("the one before has come back"));
    }
}

/// One operation is one operation from the app of an event loop to its platform, and its answer: two rounds of the loop.
fn machine_op(number: usize) {
    let asks = Asks { pool: OpPool::with_capacity(8), left: number };
    EventLoop::new().app(asks).platform(Doubles).run().expect("the loop runs");
}

/// One operation is one call by a fiber to a machine of its own worker, and its answer.
fn machine_call(number: usize) {
    let mut caller = Caller::new(fibra::Handle::current().attach(Doubles));
    for _ in 0..number {
        assert_eq!(caller.call(0, 1_u32).map(|answer| answer.result), Ok(2));
    }
}

/// The same by a hundred fibers at once: what the rounds of the machine's loop cost is shared.
fn machine_calls(number: usize) {
    const CALLERS: usize = 100;
    let machine = fibra::Handle::current().attach(Doubles);
    let fibers: Vec<_> = (0..CALLERS)
        .map(|_| {
            fibra::spawn(move || {
                let mut caller = Caller::new(machine);
                for _ in 0..number / CALLERS {
                    assert_eq!(caller.call(0, 1_u32).map(|answer| answer.result), Ok(2));
                }
            })
        })
        .collect();
    for fiber in fibers {
        fiber.join().expect("a calling fiber ends");
    }
}

/// An actor that passes a message on, counts, or answers.
struct Node {
    next: Option<Addr<Node>>,
    left: usize,
    done: Sender<()>,
}

enum Op {
    Next(Addr<Node>),
    Hop(usize),
    Add,
    Ask(Reply<usize>),
}

impl Actor for Node {
    type Message = Op;

    fn handle(&mut self, op: Op, _: &mut Context<Self>) -> Result<(), Failure> {
        match op {
            Op::Next(next) => self.next = Some(next),
            Op::Hop(0) => self.done.send(())?,
            Op::Hop(left) => {
                if let Some(next) = &self.next {
                    next.send(Op::Hop(left - 1))?;
                }
            }
            Op::Add => {
                self.left -= 1;
                if self.left == 0 {
                    self.done.send(())?;
                }
            }
            Op::Ask(reply) => reply.send(self.left),
        }
        Ok(())
    }
}

fn node(left: usize) -> (Addr<Node>, Receiver<()>) {
    let (done, ended) = channel::bounded(1);
    (actor::spawn(Node { next: None, left, done }), ended)
}

/// A ring of actors: one operation is one hop of the one message in it.
fn actor_hop(number: usize) {
    let nodes = [(); 8].map(|()| node(0));
    for (at, (node, _)) in nodes.iter().enumerate() {
        node.send(Op::Next(nodes[(at + 1) % nodes.len()].0.clone())).expect("it is there");
    }
    nodes[0].0.send(Op::Hop(number / nodes.len() * nodes.len())).expect("it is there");
    nodes[0].1.recv().expect("the message ends where it began");
    nodes.iter().for_each(|(node, _)| node.kill());
}

/// Ten fibers that send to one actor: one operation is one message.
fn actor_fan_in(number: usize) {
    let senders = 10;
    let (sink, ended) = node(number / senders * senders);
    for _ in 0..senders {
        let sink = sink.clone();
        fibra::spawn(move || (0..number / senders).for_each(|_| assert!(sink.send(Op::Add).is_ok())));
    }
    ended.recv().expect("it counts to the end");
}

/// One operation is a call.
fn actor_ask(number: usize) {
    let (node, _ended) = node(1);
    for _ in 0..number {
        assert_eq!(node.call(Op::Ask), Ok(1));
    }
}

/// One operation is a fiber that is spawned, sleeps, is cancelled together with a hundred others, unwinds and ends.
fn cancel_sleep(number: usize) {
    cancel_parked(number, || fibra::sleep(Duration::from_secs(3600)));
}

/// The same with fibers that wait to receive.
fn cancel_recv(number: usize) {
    let (_sender, receiver) = channel::bounded::<usize>(16);
    cancel_parked(number, || assert!(receiver.recv().is_err()));
}

fn cancel_parked(number: usize, park: impl Fn() + Sync) {
    const BATCH: usize = 100;
    let begun = AtomicUsize::new(0);
    for _ in 0..number / BATCH {
        begun.store(0, Ordering::Relaxed);
        fibra::scope(|s| {
            for _ in 0..BATCH {
                s.spawn(|| {
                    begun.fetch_add(1, Ordering::Relaxed);
                    park();
                });
            }
            // One worker: a fiber that has begun has parked before it is this fiber's turn again.
            while begun.load(Ordering::Relaxed) < BATCH {
                fibra::yield_now();
            }
            s.cancel();
        });
    }
}
