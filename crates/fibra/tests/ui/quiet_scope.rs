//! A crate that forbids `unsafe` and warnings can use scopes in every form, and need not keep the handles of children.
#![forbid(unsafe_code)]
#![deny(warnings, rust_2018_idioms, unused, unused_qualifications, unreachable_code)]

use std::time::Duration;

use fibra::{CancelToken, Scope};

type Error = Box<dyn std::error::Error + Send + Sync>;

fn sum(texts: &[&str]) -> Result<i64, Error> {
    let total = std::sync::atomic::AtomicI64::new(0);
    fibra::try_scope(|s| {
        for text in texts {
            s.spawn(|| {
                total.fetch_add(text.parse()?, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            });
        }
        Ok::<_, Error>(())
    })?;
    Ok(total.into_inner())
}

fn main() {
    fibra::run(|| {
        let mut counts = [0; 4];
        fibra::scope(|s| {
            for count in &mut counts {
                s.spawn(move || *count += 1);
            }
            s.spawn_local(|| ());
            s.spawn_future(async {});
        });
        assert_eq!(counts, [1; 4]);
        assert_eq!(sum(&["1", "2"]).unwrap(), 3);
        assert!(sum(&["1", "x"]).is_err());
        let builder = Scope::builder().name("quiet").token(CancelToken::new()).timeout(Duration::from_secs(60));
        let outcome = builder.run(|s| {
            s.spawn(|| s.spawn(|| ()).join().unwrap());
        });
        assert_eq!(outcome, Ok(()));
    });
}
