//! What comes of a scope: every fate of a child, before or after every fate of the body, in every kind of scope, wherever it is opened.
//!
//! The combinations are generated; what is expected of each is one small table, [`verdict`], which is also the table in `docs/scopes.md`.
//! Where a scope is opened (alone, in another one, in the child of another one; on a fiber, on a plain thread) must not change what comes
//! of it, only who is told: [`of_the_outer`]. Nothing here depends on time: body and child wait for each other, shielded, until the other
//! one's fate is sealed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::support;
use fibra::{CancelReason, CancelToken, JoinHandle, Runtime, Scope, ScopeError, TryScopeError};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(2);
/// What a scope says whose child could not be started.
const NOT_STARTED: &str = "could not be started";

// ---- The table ------------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Child {
    Returns,
    TimesOutItself,
    PanicsJoined,
    PanicsIsolated,
    ByHandle,
    ByScope,
    NotStartedJoined,
    NotStartedIsolated,
    Errs,
    Panics,
    NotStarted,
    ByToken,
    ByDeadline,
}

impl Child {
    fn is_joined(self) -> bool {
        matches!(self, Child::PanicsJoined | Child::NotStartedJoined)
    }
    fn is_isolated(self) -> bool {
        matches!(self, Child::PanicsIsolated | Child::NotStartedIsolated)
    }
    /// The runtime is full when it is spawned.
    fn is_refused(self) -> bool {
        matches!(self, Child::NotStarted | Child::NotStartedJoined | Child::NotStartedIsolated)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Body {
    Returns,
    Errs,
    Panics,
    CancelledFromOutside,
    Waits,
}

/// Whose fate comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    ChildFirst,
    BodyFirst,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Value,
    ChildError,
    BodyError,
    ChildPanic,
    BodyPanic,
    Cancelled,
    TimedOut,
    NotStarted,
    Unwinds,
}

const CHILDREN: [Child; 13] = [
    Child::Returns,
    Child::TimesOutItself,
    Child::PanicsJoined,
    Child::PanicsIsolated,
    Child::ByHandle,
    Child::ByScope,
    Child::NotStartedJoined,
    Child::NotStartedIsolated,
    Child::Errs,
    Child::Panics,
    Child::NotStarted,
    Child::ByToken,
    Child::ByDeadline,
];
const BODIES: [Body; 5] = [Body::Returns, Body::Errs, Body::Panics, Body::CancelledFromOutside, Body::Waits];
const ORDERS: [Order; 2] = [Order::ChildFirst, Order::BodyFirst];

/// What comes of a scope. `None`: there is no such case.
fn verdict(child: Child, order: Order, body: Body) -> Option<Verdict> {
    use Verdict::{BodyError, BodyPanic, Cancelled, ChildError, ChildPanic, NotStarted, TimedOut, Unwinds, Value};
    if order == Order::BodyFirst && (body == Body::Waits || child.is_joined() || child.is_refused()) {
        return None;
    }
    let child_first = order == Order::ChildFirst;
    Some(match child {
        // Concerns no other fiber.
        Child::Returns
        | Child::TimesOutItself
        | Child::PanicsJoined
        | Child::PanicsIsolated
        | Child::ByHandle
        | Child::ByScope
        | Child::NotStartedJoined
        | Child::NotStartedIsolated => match body {
            Body::Returns | Body::Waits => Value,
            Body::Errs => BodyError,
            Body::Panics => BodyPanic,
            Body::CancelledFromOutside => Unwinds,
        },
        Child::Errs => match body {
            Body::Returns | Body::Waits => ChildError,
            Body::Errs if child_first => ChildError,
            Body::Errs => BodyError,
            Body::Panics => BodyPanic,
            Body::CancelledFromOutside => Unwinds,
        },
        Child::Panics => match body {
            Body::Panics if !child_first => BodyPanic,
            _ => ChildPanic,
        },
        Child::ByToken | Child::ByDeadline | Child::NotStarted => match body {
            Body::Returns | Body::Waits if child == Child::NotStarted => NotStarted,
            Body::Returns | Body::Waits if child == Child::ByToken => Cancelled,
            Body::Returns | Body::Waits => TimedOut,
            Body::Errs => BodyError,
            Body::Panics => BodyPanic,
            Body::CancelledFromOutside => Unwinds,
        },
    })
}

fn in_words(child: Child) -> &'static str {
    match child {
        Child::Returns => "returns",
        Child::TimesOutItself => "runs into a `timeout` of its own",
        Child::PanicsJoined => "panics, and is joined",
        Child::PanicsIsolated => "panics, and the scope is one with `isolate()`",
        Child::ByHandle => "is cancelled by its handle",
        Child::ByScope => "is cancelled by `s.cancel()`",
        Child::Errs => "returns `Err`",
        Child::Panics => "panics",
        Child::NotStarted => "cannot be started",
        Child::NotStartedJoined => "cannot be started, and is joined",
        Child::NotStartedIsolated => "cannot be started, and the scope is one with `isolate()`",
        Child::ByToken => "is cancelled with the scope, by its token",
        Child::ByDeadline => "is cancelled with the scope, by its deadline",
    }
}

fn table() -> String {
    let mut text = String::from(
        "| the child, before the body is over | body returns | body returns `Err` | body panics \
         | cancelled from outside | body waits |\n\
         |---|---|---|---|---|---|\n",
    );
    for order in ORDERS {
        if order == Order::BodyFirst {
            text.push_str("| **the child, after the body is over** | | | | | |\n");
        }
        for child in CHILDREN {
            let cells = BODIES.map(|body| match verdict(child, order, body) {
                None => "",
                Some(Verdict::Value) => "value",
                Some(Verdict::ChildError) => "child's error",
                Some(Verdict::BodyError) => "body's error",
                Some(Verdict::ChildPanic) => "child's panic",
                Some(Verdict::BodyPanic) => "body's panic",
                Some(Verdict::Cancelled) => "cancelled",
                Some(Verdict::TimedOut) => "timed out",
                Some(Verdict::NotStarted) => "not started",
                Some(Verdict::Unwinds) => "unwinds",
            });
            if cells.iter().any(|cell| !cell.is_empty()) {
                text.push_str(&format!("| {} | {} |\n", in_words(child), cells.join(" | ")));
            }
        }
    }
    text
}

#[test]
fn the_table_in_the_docs_is_the_one_that_is_tested() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scopes.md");
    let docs = std::fs::read_to_string(path).expect("docs/scopes.md is there");
    assert!(docs.contains(&table()), "docs/scopes.md needs this table:\n\n{}", table());
}

// ---- The other dimensions ---------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Scope,
    TryScope,
    Run,
    TryRun,
}

impl Form {
    const ALL: [Form; 4] = [Form::Scope, Form::TryScope, Form::Run, Form::TryRun];
    fn may_fail(self) -> bool {
        matches!(self, Form::TryScope | Form::TryRun)
    }
    fn is_built(self) -> bool {
        matches!(self, Form::Run | Form::TryRun)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nesting {
    Alone,
    InScope,
    InChild,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Context {
    Fiber,
    Thread,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Case {
    child: Child,
    order: Order,
    body: Body,
    form: Form,
    nesting: Nesting,
    context: Context,
}

impl Case {
    /// Every case there is, with what is expected.
    fn all() -> impl Iterator<Item = (Case, Verdict)> {
        let places = [Nesting::Alone, Nesting::InScope, Nesting::InChild]
            .into_iter()
            .flat_map(|nesting| [Context::Fiber, Context::Thread].map(|context| (nesting, context)));
        let forms = places.flat_map(|place| Form::ALL.map(|form| (place, form)));
        let bodies = forms.flat_map(|(place, form)| BODIES.map(|body| (place, form, body)));
        let orders = bodies.flat_map(|(place, form, body)| ORDERS.map(|order| (place, form, body, order)));
        let cases = orders.flat_map(|((nesting, context), form, body, order)| {
            CHILDREN.map(|child| Case { child, order, body, form, nesting, context })
        });
        cases.filter_map(|case| Some((case, case.verdict()?)))
    }

    fn verdict(self) -> Option<Verdict> {
        let fails = self.child == Child::Errs || self.body == Body::Errs;
        // A thread that has no scope is cancelled by the runtime only, when that goes.
        let outside = self.nesting != Nesting::Alone || self.context == Context::Fiber;
        let possible = (self.form.may_fail() || !fails)
            && (self.form.is_built() || self.child != Child::ByDeadline && !self.child.is_isolated())
            && (outside || self.body != Body::CancelledFromOutside);
        if possible { verdict(self.child, self.order, self.body) } else { None }
    }

    /// What this kind of scope makes of it.
    fn expected(self, verdict: Verdict) -> Got {
        match verdict {
            Verdict::Value => Got::Value,
            Verdict::ChildError => Got::Error("child", self.others(self.body == Body::Errs, "body")),
            Verdict::BodyError => Got::Error("body", self.others(self.child == Child::Errs, "child")),
            Verdict::ChildPanic => Got::Panic("child"),
            Verdict::BodyPanic => Got::Panic("body"),
            Verdict::Cancelled if self.form.is_built() => Got::Cancelled,
            Verdict::TimedOut => Got::TimedOut,
            Verdict::NotStarted if self.form.is_built() => Got::NotStarted,
            Verdict::NotStarted => Got::Panic(NOT_STARTED),
            Verdict::Cancelled | Verdict::Unwinds => Got::Unwound,
        }
    }

    /// The error after the first one, where that is told.
    fn others(self, failed: bool, error: &'static str) -> Vec<&'static str> {
        if failed && self.form == Form::TryRun { vec![error] } else { vec![] }
    }

    /// How many panics no caller was told of.
    fn untold(self) -> u64 {
        u64::from(self.child == Child::PanicsIsolated || self.child == Child::Panics && self.body == Body::Panics)
    }

    /// How its child has ended, if it has run.
    fn child_ends(self) -> &'static str {
        match self.child {
            Child::Returns | Child::TimesOutItself => "returned",
            Child::Errs => "failed",
            Child::Panics | Child::PanicsJoined | Child::PanicsIsolated => "panicked",
            Child::ByHandle | Child::ByScope | Child::ByToken | Child::ByDeadline => "cancelled",
            Child::NotStarted | Child::NotStartedJoined | Child::NotStartedIsolated => "never started",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Got {
    Value,
    Error(&'static str, Vec<&'static str>),
    Cancelled,
    TimedOut,
    NotStarted,
    Panic(&'static str),
    /// The quiet unwinding of a cancellation came out of it.
    Unwound,
}

impl Got {
    fn unwound_with(payload: &(dyn std::any::Any + Send)) -> Got {
        if fibra::is_cancellation(payload) {
            return Got::Unwound;
        }
        if payload.downcast_ref::<String>().is_some_and(|text| text.contains(NOT_STARTED)) {
            return Got::Panic(NOT_STARTED);
        }
        Got::Panic(payload.downcast_ref::<&str>().copied().expect("our own panics, or a failed assertion"))
    }
}

/// What comes of the scope around it (or of the fiber, if there is none): nothing but what came out of the inner one.
fn of_the_outer(case: Case, inner: &Got) -> Got {
    match inner {
        Got::Value | Got::Error(..) | Got::Cancelled | Got::TimedOut | Got::NotStarted => Got::Value,
        Got::Panic(message) => Got::Panic(message),
        Got::Unwound if case.body == Body::CancelledFromOutside && case.nesting != Nesting::Alone => Got::Cancelled,
        // The child of the outer scope has ended, cancelled: that is no failure of the outer one.
        Got::Unwound if case.nesting == Nesting::InChild => Got::Value,
        Got::Unwound => Got::Unwound,
    }
}

// ---- Playing a case -----------------------------------------------------------------------------------------------------------

/// What all who take part share.
struct Stage {
    case: Case,
    started: AtomicBool,
    body_is_over: Arc<AtomicBool>,
    child: OnceLock<&'static str>,
    inner: OnceLock<Got>,
    /// The fiber that everything runs on, if there is one.
    fiber: OnceLock<JoinHandle<Got>>,
    /// The scope's, and that of the scope around it.
    token: CancelToken,
    outer_token: CancelToken,
}

/// Shielded: it is not cancelled before the other one has had its turn.
fn until(holds: impl Fn() -> bool) {
    fibra::shield(|| {
        while !holds() {
            fibra::sleep(Duration::from_micros(50));
        }
    });
}

impl Stage {
    fn new(case: Case) -> Arc<Self> {
        Arc::new(Self {
            case,
            started: AtomicBool::new(false),
            body_is_over: Arc::new(AtomicBool::new(false)),
            child: OnceLock::new(),
            inner: OnceLock::new(),
            fiber: OnceLock::new(),
            token: CancelToken::new(),
            outer_token: CancelToken::new(),
        })
    }

    fn cancel_from_outside(&self) {
        if self.case.nesting == Nesting::Alone {
            until(|| self.fiber.get().is_some());
            self.fiber.get().unwrap().cancel();
        } else {
            self.outer_token.cancel();
        }
    }

    /// Starts the child, in a full runtime if it is not to be started.
    fn spawn(&self, spawn: impl FnOnce() -> JoinHandle<u32>) -> JoinHandle<u32> {
        if !self.case.child.is_refused() {
            return spawn();
        }
        let room = CancelToken::new();
        let filler = |room: CancelToken| fibra::Builder::new().spawn(move || drop(room.wait()));
        let fillers: Vec<_> = std::iter::from_fn(|| filler(room.clone()).ok()).collect();
        let child = spawn();
        room.cancel();
        until(|| fillers.iter().all(JoinHandle::is_finished));
        child
    }

    /// The child, and how it ended.
    fn child(&self, s: &Scope<'_, '_>) -> Result<u32, &'static str> {
        let result = catch_unwind(AssertUnwindSafe(|| self.childs_fate(s)));
        let ended = match &result {
            Ok(Ok(_)) => "returned",
            Ok(Err(_)) => "failed",
            Err(payload) if fibra::is_cancellation(&**payload) => "cancelled",
            Err(_) => "panicked",
        };
        self.child.set(ended).expect("it runs once");
        result.unwrap_or_else(|payload| resume_unwind(payload))
    }

    fn childs_fate(&self, s: &Scope<'_, '_>) -> Result<u32, &'static str> {
        let case = self.case;
        self.started.store(true, SeqCst);
        let is_cancelled_by_others = case.child_ends() == "cancelled";
        if case.order == Order::BodyFirst && !is_cancelled_by_others {
            // A body that fails cancels its children when it is over.
            let fails = case.body != Body::Returns;
            until(|| self.body_is_over.load(SeqCst) && (!fails || s.is_cancelled()));
        }
        match case.child {
            Child::Returns => Ok(1),
            Child::TimesOutItself => {
                let times_out = || fibra::timeout(Duration::from_micros(100), || fibra::sleep(LONG)).is_err();
                assert!(if case.order == Order::BodyFirst { fibra::shield(times_out) } else { times_out() });
                Ok(1)
            }
            Child::Errs => Err("child"),
            Child::Panics | Child::PanicsJoined | Child::PanicsIsolated => resume_unwind(Box::new("child")),
            _ => {
                fibra::sleep(LONG);
                unreachable!("it is cancelled");
            }
        }
    }

    /// The body, after it has started its child.
    fn body<'scope>(&'scope self, s: &'scope Scope<'scope, '_>, child: JoinHandle<u32>) -> Result<u32, &'static str> {
        struct Over(Arc<AtomicBool>);
        impl Drop for Over {
            fn drop(&mut self) {
                self.0.store(true, SeqCst);
            }
        }
        let case = self.case;
        let over = Over(self.body_is_over.clone());
        let mut child = Some(child);
        until(|| self.started.load(SeqCst) || child.as_ref().unwrap().is_finished());
        let token = if case.form.is_built() { self.token.clone() } else { s.token() };
        match case.order {
            Order::ChildFirst => {
                match case.child {
                    Child::ByHandle => child.as_ref().unwrap().cancel(),
                    Child::ByScope => s.cancel(),
                    Child::ByToken => token.cancel(),
                    _ => {}
                }
                let reaches_the_body = matches!(
                    case.child,
                    Child::Errs | Child::Panics | Child::NotStarted | Child::ByToken | Child::ByDeadline
                );
                if case.body == Body::Waits && reaches_the_body {
                    if case.child == Child::NotStarted {
                        // As long as its handle is there it may be joined.
                        drop(child.take());
                    }
                    fibra::sleep(LONG);
                    unreachable!("the body is cancelled");
                }
                if case.body == Body::Waits && !case.child.is_joined() {
                    child.as_ref().unwrap().wait();
                }
                until(|| child.as_ref().unwrap().is_finished());
                if case.child.is_joined() {
                    let error = child.take().unwrap().join().unwrap_err();
                    match case.child {
                        Child::PanicsJoined => assert_eq!(error.message(), "child"),
                        _ => assert_eq!(error.cancel_reason(), Some(CancelReason::Full)),
                    }
                }
            }
            Order::BodyFirst => {
                let is_over = self.body_is_over.clone();
                match case.child {
                    Child::ByHandle => {
                        let child = child.take().unwrap();
                        late(move || {
                            until(|| is_over.load(SeqCst));
                            child.cancel();
                        });
                    }
                    Child::ByToken => late(move || {
                        until(|| is_over.load(SeqCst));
                        token.cancel();
                    }),
                    Child::ByScope => drop(s.spawn(move || {
                        until(|| is_over.load(SeqCst));
                        s.cancel();
                    })),
                    _ => {}
                }
            }
        }
        let _over = over;
        match case.body {
            Body::Returns | Body::Waits => Ok(7),
            Body::Errs => Err("body"),
            Body::Panics => resume_unwind(Box::new("body")),
            Body::CancelledFromOutside => {
                self.cancel_from_outside();
                fibra::sleep(LONG);
                unreachable!("it is cancelled");
            }
        }
    }

    /// The scope, in its form.
    fn scope(&self) -> Got {
        const FAILS: &str = "no child fails in this form";
        let builder = || {
            let builder = Scope::builder().token(self.token.clone());
            match self.case.child {
                Child::ByDeadline => builder.timeout(SHORT),
                child if child.is_isolated() => builder.isolate(),
                _ => builder,
            }
        };
        let value = |value| {
            assert_eq!(value, 7);
            Got::Value
        };
        match self.case.form {
            Form::Scope => value(fibra::scope(|s| {
                let child = self.spawn(|| s.spawn(|| self.child(s).expect(FAILS)));
                self.body(s, child).expect(FAILS)
            })),
            Form::Run => match builder().run(|s| {
                let child = self.spawn(|| s.spawn(|| self.child(s).expect(FAILS)));
                self.body(s, child).expect(FAILS)
            }) {
                Ok(seven) => value(seven),
                Err(ScopeError::NotStarted) => Got::NotStarted,
                Err(ScopeError::TimedOut) => Got::TimedOut,
                Err(ScopeError::Cancelled) => Got::Cancelled,
                Err(other) => panic!("{other:?}"),
            },
            Form::TryScope => match fibra::try_scope(|s| self.body(s, self.spawn(|| s.spawn(|| self.child(s))))) {
                Ok(seven) => value(seven),
                Err(error) => Got::Error(error, vec![]),
            },
            Form::TryRun => match builder().try_run(|s| self.body(s, self.spawn(|| s.spawn(|| self.child(s))))) {
                Ok(seven) => value(seven),
                Err(TryScopeError::NotStarted) => Got::NotStarted,
                Err(TryScopeError::Failed { first, others }) => Got::Error(first, others),
                Err(TryScopeError::TimedOut) => Got::TimedOut,
                Err(TryScopeError::Cancelled) => Got::Cancelled,
                Err(other) => panic!("{other:?}"),
            },
        }
    }

    /// The scope, and what came of it, which goes on its way.
    fn inner(&self) {
        let result = catch_unwind(AssertUnwindSafe(|| self.scope()));
        let got = match &result {
            Ok(got) => got.clone(),
            Err(payload) => Got::unwound_with(&**payload),
        };
        self.inner.set(got).expect("it runs once");
        if let Err(payload) = result {
            resume_unwind(payload);
        }
    }

    /// The scope, and what is around it.
    fn outer(&self) -> Got {
        let builder = Scope::builder().token(self.outer_token.clone());
        let outcome = match self.case.nesting {
            Nesting::Alone => {
                self.inner();
                Ok(())
            }
            Nesting::InScope => builder.run(|_| self.inner()),
            Nesting::InChild => builder.run(|outer| drop(outer.spawn(|| self.inner()))),
        };
        match outcome {
            Ok(()) => Got::Value,
            Err(ScopeError::Cancelled) => Got::Cancelled,
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// A fiber that belongs to no scope here.
fn late(f: impl FnOnce() + Send + 'static) {
    drop(fibra::spawn(f));
}

/// What came of the scope, of what is around it, of the child, and the panics no caller was told of: all as expected?
fn play(runtime: &Runtime, case: Case, verdict: Verdict) -> Result<(), String> {
    let before = runtime.metrics().detached_panics;
    let stage = Stage::new(case);
    let outer = match case.context {
        Context::Fiber => {
            let inside = stage.clone();
            let fiber = runtime.spawn(move || inside.outer());
            stage.fiber.set(fiber).expect("set once");
            stage.fiber.get().unwrap().wait();
            support::eventually(|| Arc::strong_count(&stage) == 1, || "the fiber does not let go".to_owned());
            None
        }
        Context::Thread => {
            let _entered = runtime.handle().enter();
            let result = catch_unwind(AssertUnwindSafe(|| stage.outer()));
            assert!(!fibra::is_cancelled(), "nothing is left of it: {case:?}");
            Some(result.unwrap_or_else(|payload| Got::unwound_with(&*payload)))
        }
    };
    let stage = Arc::into_inner(stage).expect("no other holder is left");
    let outer = outer.unwrap_or_else(|| match stage.fiber.into_inner().unwrap().join() {
        Ok(got) => got,
        Err(error) if error.is_cancelled() => Got::Unwound,
        Err(error) => Got::unwound_with(&*error.into_panic()),
    });
    let inner = stage.inner.into_inner().expect("the scope is over");
    // With a deadline it may come before the child has started.
    let started = !case.child.is_refused() && case.child != Child::ByDeadline || stage.started.into_inner();
    let ended = stage.child.into_inner();
    let untold = runtime.metrics().detached_panics - before;
    let seen = (inner.clone(), outer, ended, untold);
    let outer = of_the_outer(case, &case.expected(verdict));
    let expected = (case.expected(verdict), outer, started.then(|| case.child_ends()), case.untold());
    if seen == expected { Ok(()) } else { Err(format!("{case:?}\n    gave     {seen:?}\n    and not  {expected:?}")) }
}

// S4-01, S4-02, S4-17, X-02: the rules hold in every combination.
#[test]
fn every_combination_comes_out_as_the_table_says() {
    let _watchdog = support::watchdog(300);
    for workers in [1, 2] {
        let runtime = Runtime::builder().workers(workers).build().unwrap();
        let capped = Runtime::builder().workers(workers).max_fibers(8).build().unwrap();
        let results = Case::all().map(|(case, verdict)| {
            let runtime = if case.child.is_refused() { &capped } else { &runtime };
            play(runtime, case, verdict)
        });
        let results: Vec<_> = results.collect();
        println!("{} cases on {workers} workers", results.len());
        assert!(results.len() > 1000);
        let wrong: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
        support::eventually(|| runtime.metrics().live == 0, || format!("{:?}", runtime.metrics()));
        support::eventually(|| capped.metrics().live == 0, || format!("{:?}", capped.metrics()));
    }
}
