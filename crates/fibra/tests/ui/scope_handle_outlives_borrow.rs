//! The handle of a child that borrows may leave the scope, but not what the child has borrowed.
fn main() {
    fibra::run(|| {
        let handle;
        {
            let text = String::from("short-lived");
            handle = fibra::scope(|s| s.spawn(|| &text));
        }
        println!("{}", handle.join().unwrap());
    });
}
