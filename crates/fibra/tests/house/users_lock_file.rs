//! What a user's lock file gets from fibra: what is only for our own tests is not in it.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // Asks Cargo: once is enough.
#![cfg(not(any(fibra_context = "corosensei", fibra_context = "thread")))] // Likewise.

use std::path::Path;
use std::process::Command;

/// The names in the lock file of a new package that depends on these crates of this repository.
fn locked(name: &str, crates: &[&str]) -> Vec<String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("src")).unwrap();
    std::fs::write(folder.join("src/lib.rs"), "").unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates have a folder");
    let dependencies: String =
        crates.iter().map(|name| format!("{name} = {{ path = {:?} }}\n", here.join(name))).collect();
    // A workspace of its own, though it lies in the folder of this one.
    let manifest =
        format!("[package]\nname = {name:?}\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n{dependencies}");
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    // Our lock file, of which Cargo leaves what this package needs: everything in it is known here already.
    std::fs::copy(here.join("../Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let made = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["update", "--workspace", "--offline", "--quiet"])
        .current_dir(&folder)
        .output()
        .expect("cargo can be started");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = std::fs::read_to_string(folder.join("Cargo.lock")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("name = \""))
        .map(|name| name.trim_end_matches('"').to_owned())
        .collect()
}

#[test]
fn a_users_lock_file_names_no_model_checker() {
    let names = locked("uses-fibra", &["fibra", "fibra-http"]);
    assert!(names.iter().any(|name| name == "fibra") && names.iter().any(|name| name == "libc"), "{names:?}");
    for ours in ["loom", "shuttle", "trybuild"] {
        assert!(!names.iter().any(|name| name == ours), "{ours} is for our own tests: {names:?}");
    }
    assert!(names.len() <= 30, "a user gets {} packages with fibra: {names:?}", names.len());
}
