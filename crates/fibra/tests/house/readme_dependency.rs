//! What README.md says about using fibra works outside of the repository: its dependency, as written there, with its first program.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // A program of its own: built once, in the ordinary way.
#![cfg(not(any(fibra_context = "corosensei", fibra_context = "thread")))] // Likewise.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

/// The first block of that language.
fn block<'a>(text: &'a str, language: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("\n```{language}\n")).unwrap_or_else(|| panic!("no block of {language}"));
    rest.split_once("\n```").expect("a block ends").0
}

/// Removes the folder at the end, whatever it is.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} is left over: {error}", self.0.display());
        }
    }
}

#[test]
fn the_dependency_in_the_readme_works_beside_a_clone() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let readme = fs::read_to_string(repository.join("README.md")).unwrap();
    let folder = Folder(env::temp_dir().join(format!("fibra-readme-{}", process::id())));
    let package = folder.0.join("package");
    fs::create_dir_all(package.join("src")).unwrap();
    // A link is as good as a clone, and neither copies nor locks anything.
    std::os::unix::fs::symlink(&repository, folder.0.join("fibra")).unwrap();
    let manifest = format!(
        "[package]\nname = \"package\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n{}\n\n[workspace]\n",
        block(&readme, "toml")
    );
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    fs::write(package.join("src/main.rs"), block(&readme, "rust")).unwrap();

    let test = env::current_exe().expect("a test knows its own file");
    let target = test.ancestors().nth(3).expect("tests lie in <target>/<profile>/deps");
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        // What fibra needs is there: this test was built with it.
        .args(["run", "--quiet", "--offline", "--target-dir"])
        .arg(target.join("readme"))
        .current_dir(&package)
        .output()
        .expect("cargo can be started");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "README.md's dependency or program does not work:\n{out}\n{err}");
    assert!(out.contains("ada"), "{out}");
}
