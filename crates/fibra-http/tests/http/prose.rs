//! The program in the guide is the same as that of this crate's README, which is tested. (The guide's programs are tests of `fibra`, which
//! knows nothing of this crate.)

#[test]
fn the_guide_shows_the_program_that_is_tested() {
    let program = |text: &'static str, fence: &str| -> &'static str {
        let (_, rest) = text.split_once(fence).expect("there is a program");
        rest.split_once("```").expect("it comes to an end").0
    };
    let (_, section) = include_str!("../../../../docs/guide.md").split_once("\n## HTTP\n").expect("there is a section");
    let shown = program(section, "```rust,ignore\n");
    assert_eq!(shown, program(include_str!("../../README.md"), "```rust\n"));
}
