//! No caller would choose the types.
#[fibra::main]
fn main<T>() {}

#[fibra::test]
fn t()
where
    String: Clone,
{
}
