//! `cancel`: many parked tasks are cancelled at once, and waited for. One operation is one of them, from the request to its end; starting
//! them is not counted. fibra cancels the scope they are in and unwinds each; tokio aborts each and drops its future.

use std::time::Duration;

use crate::measure::{Meter, Sample, Span};
use crate::peers::fibra::Fibra;
use crate::peers::{Blocking, Peer, Setup, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "cancel",
    operation: "one parked task that is cancelled together with all others, until it has ended",
    cases,
    sides: &[(Peer::Fibra, fibra), (Peer::Tokio, tokio)],
};

const LONG: Duration = Duration::from_secs(3600);

fn cases(size: Size) -> Vec<Case> {
    let case = |n, w| {
        Case::new(&[("n", n), ("w", w)], &[Peer::Fibra, Peer::Tokio]).metric("ns", "ns", Goal::Shown).metric(
            "cpu",
            "CPU ns",
            Goal::Shown,
        )
    };
    let n = size.pick(100_000, 1_000);
    vec![case(n, 1), case(n, 2)]
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: params.size("n") + 1_000 }
}

fn sample(span: &Span, n: u64) -> Sample {
    let mut sample = Sample::default();
    sample.set("ns", span.seconds * 1e9 / n as f64);
    sample.set("cpu", span.cpu_seconds * 1e9 / n as f64);
    sample
}

fn fibra(params: &Params) -> Sample {
    let n = params.get("n");
    Fibra::run(setup(params), move || {
        let mut best = Sample::default();
        // The second time stacks and memory are there, for both peers.
        for _ in 0..2 {
            let mut meter = None;
            fibra::scope(|s| {
                for _ in 0..n {
                    s.spawn(|| fibra::sleep(LONG));
                }
                // All are parked after this.
                while fibra::Handle::current().metrics().parked < n {
                    fibra::sleep(Duration::from_millis(1));
                }
                meter = Some(Meter::start());
                s.cancel();
            });
            best = sample(&meter.expect("started").stop(), n);
        }
        best
    })
}

fn tokio(params: &Params) -> Sample {
    let n = params.get("n");
    tokio_peer::run(setup(params), async move {
        let mut best = Sample::default();
        for _ in 0..2 {
            let handles: Vec<_> = (0..n).map(|_| tokio::spawn(tokio::time::sleep(LONG))).collect();
            // tokio does not say which tasks are parked; it takes less than this until all are.
            tokio::time::sleep(Duration::from_millis(500)).await;
            let meter = Meter::start();
            handles.iter().for_each(|handle| handle.abort());
            for handle in handles {
                assert!(handle.await.is_err_and(|ended| ended.is_cancelled()));
            }
            best = sample(&meter.stop(), n);
        }
        best
    })
}
