//! `, if` and an expression.
use fibra::channel::bounded;

fn main() {
    let (_tx, rx) = bounded::<u8>(1);
    let limit = Some(1);
    fibra::select! {
        recv(rx) -> m if limit.is_some() => drop(m),
    }
    fibra::select! {
        recv(rx) if limit.is_some() => {}
    }
    fibra::select! {
        recv(rx) -> m, if let Some(_) = limit => drop(m),
    }
    fibra::select! {
        recv(rx) -> m, if => drop(m),
    }
    fibra::select! {
        recv(rx) -> m, if limit => drop(m),
    }
}
