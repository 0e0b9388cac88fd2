//! What a long-lived token keeps of descendants and scopes that are gone: nothing.

use super::CancelToken;
use crate::runtime::run;
use crate::scope::Scope;

fn children(token: &CancelToken) -> usize {
    token.0.state.with(|state| state.children.len())
}

fn scopes(token: &CancelToken) -> usize {
    token.0.state.with(|state| state.scopes.len())
}

#[test]
fn a_million_children_that_were_dropped_leave_nothing_in_their_parent() {
    let top = CancelToken::new();
    for _ in 0..1_000_000 {
        drop(top.child().child());
    }
    assert_eq!(children(&top), 0);
    let kept: Vec<_> = (0..1000).map(|_| top.child()).collect();
    assert_eq!(children(&top), 1000);
    drop(kept);
    assert_eq!(children(&top), 0, "the last of many as well as the first");
}

#[test]
fn a_token_that_was_dropped_stays_for_its_children_and_goes_with_the_last() {
    let top = CancelToken::new();
    let (one, other) = {
        let middle = top.child();
        (middle.child(), middle.child())
    };
    assert_eq!(children(&top), 1);
    drop(one);
    assert_eq!(children(&top), 1);
    drop(other);
    assert_eq!(children(&top), 0);
}

#[test]
fn a_cancelled_token_keeps_nothing() {
    let top = CancelToken::new();
    let child = top.child();
    top.cancel();
    assert_eq!(children(&top), 0);
    let late = top.child();
    assert_eq!(children(&top), 0);
    drop((child, late));
}

#[test]
fn scopes_that_are_over_leave_nothing_in_their_token() {
    let token = CancelToken::new();
    run(|| {
        for _ in 0..100 {
            let scope = Scope::builder().token(token.clone()).token(token.clone());
            scope.run(|_| assert_eq!(scopes(&token), 1)).unwrap();
        }
    });
    assert_eq!(scopes(&token), 0);
}
