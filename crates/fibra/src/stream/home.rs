//! Where the stages of a pipeline live: in the root scope, or in a scope that they may borrow from.
//!
//! [`Place`] is what a [`Pipe`](super::Pipe) needs to be a type, [`Home`] what it needs to start stages that borrow for `'a`. Both are
//! sealed: the two places are [`Root`] and [`InScope`].

use std::fmt;

use super::chain::{Chain, Fused, Step, run_into};
use super::pipe::Waiting;
use crate::channel::Sender;
use crate::scope::Scope;
use crate::task::Builder;

mod sealed {
    pub trait Sealed {}
}

/// Where the stages of a pipeline live: [`Root`] or [`InScope`].
pub trait Place: sealed::Sealed {
    /// Steps that are fused and not started yet.
    #[doc(hidden)]
    type Chain<T>: Chain<T> + Send + ?Sized;
}

/// A place for stages that live for `'a`.
pub trait Home<'a>: Place {
    /// Starts a stage.
    #[doc(hidden)]
    #[track_caller]
    fn start(&self, name: String, stage: impl FnOnce() + Send + 'a);

    /// Starts a stage of fused steps.
    #[doc(hidden)]
    #[track_caller]
    fn start_chain<T: Send + 'a>(&self, name: String, chain: Box<Self::Chain<T>>, output: Waiting<Sender<T>>);

    /// Forgets the type of a chain.
    #[doc(hidden)]
    fn boxed<T>(chain: impl Chain<T> + Send + 'a) -> Box<Self::Chain<T>>;

    /// Adds a step to a chain.
    #[doc(hidden)]
    fn fuse<T, S>(before: Box<Self::Chain<T>>, step: S) -> Box<Self::Chain<S::Out>>
    where
        T: Send + 'a,
        S: Step<T> + Send + 'a;
}

/// The root scope: stages own what they use, and live until the pipeline ends, or the runtime.
#[derive(Clone, Copy, Debug, Default)]
pub struct Root;

impl sealed::Sealed for Root {}

impl Place for Root {
    type Chain<T> = dyn Chain<T> + Send;
}

impl Home<'static> for Root {
    #[track_caller]
    fn start(&self, name: String, stage: impl FnOnce() + Send + 'static) {
        // Refused (the runtime is shutting down, or full): the stage is dropped, and says so at both its ends.
        let _ = Builder::new().name(name).spawn(stage);
    }

    fn boxed<T>(chain: impl Chain<T> + Send + 'static) -> Box<Self::Chain<T>> {
        Box::new(chain)
    }

    #[track_caller]
    fn start_chain<T: Send + 'static>(&self, name: String, chain: Box<Self::Chain<T>>, output: Waiting<Sender<T>>) {
        self.start(name, move || run_into(chain, &output.begin()));
    }

    fn fuse<T, S>(before: Box<Self::Chain<T>>, step: S) -> Box<Self::Chain<S::Out>>
    where
        T: Send + 'static,
        S: Step<T> + Send + 'static,
    {
        Box::new(Fused::new(before, step))
    }
}

/// A scope: stages may borrow what outlives it, and are cancelled with it; it ends after them. See
/// [`Pipe::in_scope`](super::Pipe::in_scope).
#[derive(Clone, Copy)]
pub struct InScope<'scope, 'env>(pub(super) &'scope Scope<'scope, 'env>);

impl fmt::Debug for InScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InScope")
    }
}

impl sealed::Sealed for InScope<'_, '_> {}

impl<'scope> Place for InScope<'scope, '_> {
    type Chain<T> = dyn Chain<T> + Send + 'scope;
}

impl<'scope> Home<'scope> for InScope<'scope, '_> {
    #[track_caller]
    fn start(&self, name: String, stage: impl FnOnce() + Send + 'scope) {
        let _ = Builder::new().name(name).spawn_scoped(self.0, stage);
    }

    fn boxed<T>(chain: impl Chain<T> + Send + 'scope) -> Box<Self::Chain<T>> {
        Box::new(chain)
    }

    #[track_caller]
    fn start_chain<T: Send + 'scope>(&self, name: String, chain: Box<Self::Chain<T>>, output: Waiting<Sender<T>>) {
        self.start(name, move || run_into(chain, &output.begin()));
    }

    fn fuse<T, S>(before: Box<Self::Chain<T>>, step: S) -> Box<Self::Chain<S::Out>>
    where
        T: Send + 'scope,
        S: Step<T> + Send + 'scope,
    {
        Box::new(Fused::new(before, step))
    }
}

/// A scope, as `s` or as `&s` in `fibra::scope(|s| ..)`.
pub trait AsScope<'scope, 'env> {
    /// The scope.
    fn as_scope(&self) -> &'scope Scope<'scope, 'env>;
}

impl<'scope, 'env> AsScope<'scope, 'env> for &'scope Scope<'scope, 'env> {
    fn as_scope(&self) -> &'scope Scope<'scope, 'env> {
        self
    }
}

impl<'scope, 'env> AsScope<'scope, 'env> for &&'scope Scope<'scope, 'env> {
    fn as_scope(&self) -> &'scope Scope<'scope, 'env> {
        self
    }
}
