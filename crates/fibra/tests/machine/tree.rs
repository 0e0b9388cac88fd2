//! Machines inside machines: what parents can do with what their children want, and the order of endings.

use std::cell::RefCell;
use std::rc::Rc;

use crate::support;
use fibra::machine::{
    CANCELLED, Child, EventLoop, Machine, MachineRef, OP_TIMER, OpPool, PoolGauge, Ports, Request, Timestamp,
};

const ADD: u32 = 1;
const HOLD: u32 = 2;

/// Answers ADD with data + 1; keeps HOLD until cancelled.
#[derive(Default)]
struct Server(Vec<Request>);
impl Machine for Server {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            match request.opcode() {
                ADD => {
                    let sum = request.data::<i32>().unwrap() + 1;
                    ports.complete(request, sum);
                }
                _ => self.0.push(request),
            }
        }
        while let Some(cancel) = ports.input.cancellations.pop() {
            if let Some(index) = self.0.iter().position(|held| held.id() == cancel.id()) {
                ports.complete(self.0.swap_remove(index), CANCELLED);
            }
        }
    }
}

/// Asks once, and remembers the answer.
struct Asker {
    pool: OpPool<i32>,
    asks: Option<(u32, i32)>,
    to: Option<MachineRef>,
    answers: Rc<RefCell<Vec<i32>>>,
}
impl Asker {
    fn new(opcode: u32, data: i32, to: Option<MachineRef>, answers: &Rc<RefCell<Vec<i32>>>) -> Self {
        Self { pool: OpPool::with_capacity(1), asks: Some((opcode, data)), to, answers: answers.clone() }
    }
}
impl Machine for Asker {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        if let Some((opcode, data)) = self.asks.take() {
            let op = self.pool.take(opcode, data).unwrap();
            ports.submit(match self.to {
                Some(to) => op.to(to),
                None => op,
            });
        }
        while let Some(done) = ports.input.completions.pop() {
            assert_eq!(done.source(), Some(ports.me()));
            self.answers.borrow_mut().push(done.result());
        }
    }
}

/// A parent of what `make` makes, that does `handle` with its own input and its children's output.
struct Parent<M: Machine, F> {
    children: Vec<Child<M>>,
    make: Vec<M>,
    handle: F,
}
impl<M: Machine, F: FnMut(&mut Vec<Child<M>>, &mut Ports<'_>) + 'static> Machine for Parent<M, F> {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        for machine in self.make.drain(..) {
            // S3-83: a child has its own number and this parent.
            let child = ports.child(machine);
            assert!(child.id().machine > 1 && child.id().thread == 0);
            self.children.push(child);
        }
        for child in &mut self.children {
            child.tick(now, ports);
        }
        (self.handle)(&mut self.children, ports);
    }
}

fn parent<M: Machine>(make: Vec<M>, handle: impl FnMut(&mut Vec<Child<M>>, &mut Ports<'_>) + 'static) -> impl Machine {
    Parent { children: Vec::new(), make, handle }
}

// S3-85, S3-86: a parent that is ticked finds its own input, and nothing of its child's, once that has taken what is its; what it makes of
// it is its own doing, in the same tick. Both kinds of input, and answers to both that came in the same round.
#[test]
fn a_parent_handles_its_own_input() {
    let _watchdog = support::watchdog(60);
    let (mine, childs) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(Vec::new())));
    let child = Rc::new(RefCell::new(None::<MachineRef>));
    /// Answers what comes with ten times the number, and asks for one itself at the first tick.
    struct Tens(Asker, Rc<RefCell<Vec<i32>>>);
    impl Machine for Tens {
        fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
            while let Some(request) = ports.input.submissions.pop() {
                assert_eq!(request.destination(), Some(ports.me()), "its own");
                let number = *request.data::<i32>().unwrap();
                self.1.borrow_mut().push(number);
                ports.complete(request, number * 10);
            }
            self.0.tick(now, ports);
        }
    }
    let asker = |data| Asker::new(ADD, data, Some(MachineRef::platform(0)), &mine);
    let tens = Tens(Asker::new(ADD, 10, Some(MachineRef::platform(0)), &childs), childs.clone());
    let (mut own, seen, there) = (asker(20), mine.clone(), child.clone());
    let app = parent(vec![tens], move |children: &mut Vec<Child<Tens>>, ports: &mut Ports<'_>| {
        *there.borrow_mut() = Some(children[0].id());
        children[0].forward_all(ports);
        while let Some(request) = ports.input.submissions.pop() {
            assert_eq!(request.destination(), Some(ports.me()), "the child has taken what is its");
            let number = *request.data::<i32>().unwrap();
            seen.borrow_mut().push(number);
            // Its own logic: another result than the child's.
            ports.complete(request, -number);
        }
        own.tick(ports.now(), ports);
    });
    // Asks both, and then answers both.
    let (mut pool, mut answers, mut held) = (OpPool::<i32>::with_capacity(2), Vec::new(), Vec::new());
    let platform = Ticks(move |_, ports: &mut Ports<'_>| {
        held.extend(std::iter::from_fn(|| ports.input.submissions.pop()));
        answers.extend(std::iter::from_fn(|| ports.input.completions.pop()).map(|done| done.result()));
        if held.len() == 2 && pool.available() == 2 && answers.is_empty() {
            for (number, to) in [(1, MachineRef::app(0)), (2, child.borrow().unwrap())] {
                ports.submit(pool.take(ADD, number).unwrap().to(to));
            }
        }
        if answers.len() == 2 && held.len() == 2 {
            answers.sort_unstable();
            assert_eq!(answers, [-1, 20]);
            for request in held.drain(..) {
                let sum = request.data::<i32>().unwrap() + 1;
                ports.complete(request, sum);
            }
        } else if answers.len() == 2 {
            ports.stop();
        }
    });
    let (mine_after, childs_after) = (mine.clone(), childs.clone());
    EventLoop::new().app(app).platform(platform).run().unwrap();
    assert_eq!(*mine_after.borrow(), [1, 21], "the request for the parent, and the answer to it");
    assert_eq!(*childs_after.borrow(), [2, 11], "the same for the child");
}

/// A machine that is a closure.
struct Ticks<F>(F);
impl<F: FnMut(Timestamp, &mut Ports<'_>) + 'static> Machine for Ticks<F> {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        (self.0)(now, ports);
    }
}

// S3-89, S3-01, S3-05, S3-22, S3-75, S3-82, S3-84: through two parents to the platform, and back to the grandchild.
#[test]
fn a_grandchilds_operation_is_passed_through() {
    let _watchdog = support::watchdog(60);
    let answers = Rc::new(RefCell::new(Vec::new()));
    let asker = Asker::new(ADD, 41, Some(MachineRef::platform(0)), &answers);
    let middle = parent(vec![asker], |children: &mut Vec<Child<Asker>>, ports: &mut Ports<'_>| {
        children[0].forward_all(ports);
    });
    let seen = answers.clone();
    let app = parent(vec![middle], move |children, ports| {
        children[0].forward_all(ports);
        assert!(ports.input.is_empty(), "the child has taken what is its");
        if !seen.borrow().is_empty() {
            ports.stop();
        }
    });
    EventLoop::new().app(app).platform(Server::default()).run().unwrap();
    assert_eq!(*answers.borrow(), [42]);
}

// S3-90, S3-73: the parent answers itself; nothing has left. It looks at its child before ticking it, so the child's signal must call
// it again.
#[test]
fn a_parent_virtualises() {
    let _watchdog = support::watchdog(60);
    let answers = Rc::new(RefCell::new(Vec::new()));
    struct Late(Option<Child<Asker>>, Option<Asker>, Rc<RefCell<Vec<i32>>>);
    impl Machine for Late {
        fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
            let child = self.0.get_or_insert_with(|| ports.child(self.1.take().unwrap()));
            // No destination, and none is needed.
            while let Some(request) = child.output().submissions.pop() {
                let data = *request.data::<i32>().unwrap();
                ports.complete(request, data * 100);
            }
            child.tick(now, ports);
            if !self.2.borrow().is_empty() {
                ports.stop();
            }
        }
    }
    let loop_ = EventLoop::new();
    let _watched = loop_.stopper();
    loop_.app(Late(None, Some(Asker::new(ADD, 3, None, &answers)), answers.clone())).run().unwrap();
    assert_eq!(*answers.borrow(), [300]);
}

// S3-91, S3-12: the parent makes another operation of it, in the same trace.
#[test]
fn a_parent_transforms() {
    let _watchdog = support::watchdog(60);
    let answers = Rc::new(RefCell::new(Vec::new()));
    let (mut pool, mut held, seen) = (OpPool::<i32>::with_capacity(1), None::<Request>, answers.clone());
    let app = parent(
        vec![Asker::new(77, 5, None, &answers)],
        move |children: &mut Vec<Child<Asker>>, ports: &mut Ports<'_>| {
            while let Some(request) = children[0].output().submissions.pop() {
                let op = pool.take(ADD, request.data::<i32>().unwrap() * 2).unwrap().caused_by(&request);
                assert_eq!((op.parent(), op.trace()), (Some(request.id()), request.trace()));
                ports.submit(op);
                held = Some(request);
            }
            while let Some(done) = ports.input.completions.pop() {
                ports.complete(held.take().unwrap(), -done.result());
            }
            if !seen.borrow().is_empty() {
                ports.stop();
            }
        },
    );
    EventLoop::new().app(app).platform(Server::default()).run().unwrap();
    assert_eq!(*answers.borrow(), [-11]);
}

// S3-92: one operation for three children, and its answer for each.
#[test]
fn a_parent_aggregates() {
    let _watchdog = support::watchdog(60);
    let answers = Rc::new(RefCell::new(Vec::new()));
    let askers = (1..=3).map(|n| Asker::new(77, n, None, &answers)).collect();
    let (mut pool, mut held, seen) = (OpPool::<i32>::with_capacity(1), Vec::<Request>::new(), answers.clone());
    let app = parent(askers, move |children: &mut Vec<Child<Asker>>, ports: &mut Ports<'_>| {
        for child in children {
            held.extend(std::iter::from_fn(|| child.output().submissions.pop()));
        }
        if held.len() == 3 && ports.in_flight() == 0 && ports.input.is_empty() {
            let sum = held.iter().map(|request| *request.data::<i32>().unwrap()).sum();
            ports.submit(pool.take(ADD, sum).unwrap());
        }
        while let Some(done) = ports.input.completions.pop() {
            held.drain(..).for_each(|request| ports.complete(request, done.result()));
        }
        if seen.borrow().len() == 3 {
            ports.stop();
        }
    });
    EventLoop::new().app(app).platform(Server::default()).run().unwrap();
    assert_eq!(*answers.borrow(), [7, 7, 7]);
}

// Others may submit to a child; its answer goes out through its parent.
#[test]
fn a_child_serves() {
    let _watchdog = support::watchdog(60);
    let address = Rc::new(RefCell::new(None));
    let told = address.clone();
    let platform = parent(vec![Server::default()], move |children: &mut Vec<Child<Server>>, ports| {
        *told.borrow_mut() = Some(children[0].id());
        children[0].forward_all(ports);
    });
    struct Client(OpPool<i32>, Rc<RefCell<Option<MachineRef>>>);
    impl Machine for Client {
        fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
            while let Some(done) = ports.input.completions.pop() {
                match done.opcode() {
                    ADD => {
                        assert_eq!(done.result(), 7);
                        return ports.stop();
                    }
                    // The timer: by now the platform has begun, and its child has an address.
                    _ => {
                        ports.submit(self.0.take(ADD, 6).unwrap().to(self.1.borrow().unwrap()));
                    }
                }
            }
            if ports.in_flight() == 0 {
                ports.submit(self.0.take(OP_TIMER, 0).unwrap());
            }
        }
    }
    EventLoop::new().app(Client(OpPool::with_capacity(2), address)).platform(platform).run().unwrap();
}

// S3-23, S3-62: what comes for a child goes to that child alone: its parent, which looks at its own input before it ticks it, does
// not see it, and no other child is ticked for it.
#[test]
fn what_comes_for_a_child_is_the_childs() {
    let _watchdog = support::watchdog(60);
    struct Counts(Rc<RefCell<Vec<usize>>>, usize);
    impl Machine for Counts {
        fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
            self.0.borrow_mut()[self.1] += 1;
            while let Some(request) = ports.input.submissions.pop() {
                ports.complete(request, self.1 as i32);
            }
        }
    }
    struct First(Vec<Child<Counts>>, Rc<RefCell<Vec<usize>>>, Rc<RefCell<Vec<MachineRef>>>);
    impl Machine for First {
        fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
            while self.0.len() < 3 {
                let child = ports.child(Counts(self.1.clone(), self.0.len()));
                self.2.borrow_mut().push(child.id());
                self.0.push(child);
            }
            assert!(ports.input.is_empty(), "nothing is for the parent");
            for child in &mut self.0 {
                child.tick(now, ports);
                child.forward_all(ports);
            }
        }
    }
    let (ticks, addresses) = (Rc::new(RefCell::new(vec![0; 3])), Rc::new(RefCell::new(Vec::new())));
    let (mut pool, mut asked, to) = (OpPool::<i32>::with_capacity(1), 0, addresses.clone());
    struct Asks<F>(F);
    impl<F: FnMut(&mut Ports<'_>) + 'static> Machine for Asks<F> {
        fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
            (self.0)(ports);
        }
    }
    let app = Asks(move |ports: &mut Ports<'_>| {
        while let Some(done) = ports.input.completions.pop() {
            assert!(done.opcode() == OP_TIMER || done.result() == 1);
        }
        match asked {
            5 => return ports.stop(),
            // By the time of its answer the platform has begun, and its children have addresses.
            0 => ports.submit(pool.take(OP_TIMER, 0).unwrap()),
            _ => ports.submit(pool.take(ADD, 0).unwrap().to(to.borrow()[1])),
        };
        asked += 1;
    });
    EventLoop::new().app(app).platform(First(Vec::new(), ticks.clone(), addresses)).run().unwrap();
    // Each once when it begins; the second one once more for each question.
    assert_eq!(*ticks.borrow(), [1, 5, 1]);
}

// S3-71: a child without a destination, passed on by a parent that does not give it one.
#[test]
#[should_panic(expected = "has no destination")]
fn a_child_needs_a_destination() {
    let answers = Rc::new(RefCell::new(Vec::new()));
    let app = parent(vec![Asker::new(ADD, 1, None, &answers)], |children: &mut Vec<Child<Asker>>, ports| {
        children[0].forward_all(ports);
    });
    EventLoop::new().app(app).platform(Server::default()).run().unwrap();
}

/// Says when it is dropped.
struct Named(&'static str, Rc<RefCell<Vec<&'static str>>>);
impl Drop for Named {
    fn drop(&mut self) {
        self.1.borrow_mut().push(self.0);
    }
}

/// Holds one operation for ever.
struct Holder {
    child: Option<Box<Child<Holder>>>,
    pool: OpPool<i32>,
    begun: bool,
    depth: usize,
    names: Rc<RefCell<Vec<&'static str>>>,
    gauges: Rc<RefCell<Vec<PoolGauge>>>,
    #[allow(dead_code)] // For its destructor.
    name: Named,
}
impl Holder {
    fn new(depth: usize, names: &Rc<RefCell<Vec<&'static str>>>, gauges: &Rc<RefCell<Vec<PoolGauge>>>) -> Self {
        let pool = OpPool::with_capacity(1);
        gauges.borrow_mut().push(pool.gauge());
        let name = Named(["grandchild", "child", "app"][depth], names.clone());
        Self { child: None, pool, begun: false, depth, names: names.clone(), gauges: gauges.clone(), name }
    }
}
impl Machine for Holder {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        if !std::mem::replace(&mut self.begun, true) {
            ports.submit(self.pool.take(HOLD, 0).unwrap().to(MachineRef::platform(0)));
            if self.depth > 0 {
                self.child = Some(Box::new(ports.child(Holder::new(self.depth - 1, &self.names, &self.gauges))));
            }
        }
        if let Some(child) = &mut self.child {
            child.tick(now, ports);
            child.forward_all(ports);
        }
    }
}

// S3-80, S3-81, S3-98, S3-103, S3-104: children before parents, the app before the platform, in what is dropped and in what is cancelled;
// what they had in flight is answered, and back in its pool.
#[test]
fn the_end_is_orderly() {
    let _watchdog = support::watchdog(60);
    let (names, gauges) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(Vec::new())));
    /// Who held what, in the order of submission, and the name.
    struct Platform(
        Vec<Request>,
        Vec<u32>,
        #[allow(dead_code)] // For its destructor.
        Named,
    );
    impl Machine for Platform {
        fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
            self.0.extend(std::iter::from_fn(|| ports.input.submissions.pop()));
            while let Some(cancel) = ports.input.cancellations.pop() {
                let index = self.0.iter().position(|held| held.id() == cancel.id()).unwrap();
                let held = self.0.remove(index);
                self.1.push(held.source().unwrap().machine);
                ports.complete(held, CANCELLED);
            }
            if self.0.len() == 3 {
                ports.stop();
            }
        }
    }
    impl Drop for Platform {
        fn drop(&mut self) {
            assert!(self.0.is_empty(), "all were cancelled while the platform was there");
            // A child gets its number after its parent, and leaves before it.
            assert!(self.1.len() == 3 && self.1.is_sorted_by(|left, leaves| left > leaves), "{:?}", self.1);
        }
    }
    let app = Holder::new(2, &names, &gauges);
    let platform = Platform(Vec::new(), Vec::new(), Named("platform", names.clone()));
    EventLoop::new().app(app).platform(platform).run().unwrap();
    assert_eq!(gauges.borrow().len(), 3);
    assert!(gauges.borrow().iter().all(|gauge| gauge.available() == gauge.capacity()));
    assert_eq!(*names.borrow(), ["grandchild", "child", "app", "platform"]);
}

// S3-81, S3-47, S3-95: a child is dropped, another forgotten, in the middle of a tick, with operations in flight: no machine minds.
#[test]
fn children_are_dropped_and_forgotten() {
    let _watchdog = support::watchdog(60);
    let answers = Rc::new(RefCell::new(Vec::new()));
    let to = Some(MachineRef::platform(0));
    let askers: Vec<Asker> = (0..3).map(|_| Asker::new(HOLD, 0, to, &answers)).collect();
    let gauges: Vec<PoolGauge> = askers.iter().map(|asker| asker.pool.gauge()).collect();
    let watched = gauges.clone();
    let (mut pool, mut ticks) = (OpPool::<i32>::with_capacity(1), 0);
    let app = parent(askers, move |children: &mut Vec<Child<Asker>>, ports: &mut Ports<'_>| {
        ticks += 1;
        children.iter_mut().for_each(|child| child.forward_all(ports));
        while ports.input.completions.pop().is_some() {}
        match ticks {
            // One with its operation still in our own port, one with it at the platform, one forgotten.
            1 => drop(children.remove(0)),
            3 => drop(children.remove(0)),
            4 => std::mem::forget(children.remove(0)),
            _ if watched[0].available() == 1 && watched[1].available() == 1 && ticks > 5 => ports.stop(),
            _ => {}
        }
        if ports.in_flight() == 0 {
            ports.submit(pool.take(ADD, 0).unwrap());
        }
    });
    EventLoop::new().app(app).platform(Server::default()).run().unwrap();
    // The forgotten one's stayed with the platform, and came back when that was dropped.
    assert_eq!(gauges[2].available(), 1);
    assert!(answers.borrow().is_empty());
}

// A machine that panics: the panic comes out of `run`, and everything is dropped and back in its pool.
#[test]
fn a_panicking_machine_ends_its_loop() {
    let _watchdog = support::watchdog(60);
    let answers = Rc::new(RefCell::new(Vec::new()));
    let asker = Asker::new(HOLD, 0, None, &answers);
    let gauge = asker.pool.gauge();
    struct Bad;
    impl Machine for Bad {
        fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
            assert!(ports.input.submissions.pop().is_none(), "as expected");
        }
    }
    let run = std::panic::AssertUnwindSafe(|| EventLoop::new().app(asker).platform(Bad).run());
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!(gauge.available(), 1);
}
