//! Models of news: no waiter that has seen an older number is left waiting; the end reaches every waiter.

use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::task::{Context, Waker};

use super::{How, News};
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::wait::reason::WaitReason;

fn how() -> How {
    How { reason: WaitReason::BroadcastRecv, deadline: None, site: Location::caller() }
}

// Two changes against two waiters for the second change: both waiters go on.
#[test]
fn model_told_against_wait() {
    check(2, || {
        let news = Arc::new(News::new());
        let other = {
            let news = news.clone();
            thread::spawn(move || {
                let mut seen = 0;
                while seen < 2 {
                    assert!(news.wait(seen, how()));
                    seen = news.look().number;
                }
            })
        };
        news.tell();
        news.tell();
        other.join().unwrap();
    });
}

// The end against a waiter and a future that was polled: both are told.
#[test]
fn model_ended_against_wait() {
    check(2, || {
        let news = Arc::new(News::new());
        let other = {
            let news = news.clone();
            thread::spawn(move || {
                assert!(news.wait(0, how()));
                assert!(news.look().over);
            })
        };
        let mut waiting = pin!(news.wait_async(0));
        let mut cx = Context::from_waker(Waker::noop());
        let _ = waiting.as_mut().poll(&mut cx);
        news.end();
        assert!(waiting.as_mut().poll(&mut cx).is_ready());
        other.join().unwrap();
    });
}
