//! The examples do what they say: each is run as a user runs it, and its output read.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // They are programs of their own: built once, in the ordinary way.

use std::path::PathBuf;
use std::process::Command;

use crate::support;

/// Builds an example, which costs a moment only if `cargo test` has built it just before, and says where it is.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let profile = test.ancestors().nth(2).expect("tests lie in <target>/<profile>/deps");
    let target = profile.parent().expect("tests lie in <target>/<profile>/deps");
    // The profile that these tests were built in, so that the library is not built a second time.
    let how = if profile.ends_with("release") { "--release" } else { "--profile=test" };
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--locked", how, "--package", "fibra", "--example", name, "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo can be started");
    assert!(built.status.success(), "{name} does not build:\n{}", String::from_utf8_lossy(&built.stderr));
    profile.join("examples").join(name)
}

fn run(name: &str, arguments: &[&str]) -> String {
    let ended = support::ended(Command::new(example(name)).args(arguments).env("FIBRA_DUMP_SIGNAL", "QUIT"));
    assert!(ended.status.success(), "{name}: {ended:?}");
    ended.stdout
}

#[test]
fn word_count_counts_the_words_of_all_files() {
    let folder = std::env::temp_dir().join(format!("fibra-word-count-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("deeper/.hidden")).unwrap();
    for number in 0..200 {
        std::fs::write(folder.join(format!("{number}.txt")), "Fibers wait, fibers run.\n".repeat(20)).unwrap();
    }
    std::fs::write(folder.join("deeper/one.txt"), "wait\n").unwrap();
    std::fs::write(folder.join("deeper/binary"), [0xFF, 0xFE, 0x00]).unwrap();
    std::fs::write(folder.join("deeper/.hidden/no.txt"), "hidden hidden hidden").unwrap();
    let text = run("word_count", &[folder.to_str().unwrap(), "2"]);
    std::fs::remove_dir_all(&folder).unwrap();
    // 200 files of 20 lines of 4 words, and one word more.
    assert!(text.starts_with("16001 words, 3 different ones, in 201 files (1 are no text)\n"), "{text}");
    assert!(text.contains("8000  fibers\n") && text.contains("4001  wait\n") && !text.contains("run"), "{text}");
}

#[test]
fn word_count_says_what_is_wrong() {
    let _watchdog = support::watchdog(200);
    let output = Command::new(example("word_count")).arg("/no/such/folder").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/folder"));
}

#[test]
fn crawl_sees_the_web_gives_up_what_hangs_and_leaves_nothing_open() {
    let text = run("crawl", &["400", "60000"]);
    let numbers: Vec<u64> = text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
    let [seen, web, answered, given_up, broken, open] = numbers[..] else { panic!("{text}") };
    assert_eq!(web, 400);
    assert!(seen > 50, "links lead to further pages: {text}");
    assert_eq!(seen, answered + given_up + broken, "every page that was seen came to an end: {text}");
    assert!(given_up > 0 && broken > 0, "some hang and some break: {text}");
    assert_eq!(open, 0);
}

#[test]
fn crawl_stops_at_its_deadline() {
    // Far too little time for a million pages at half a millisecond a host; everything started is cancelled and closed.
    let text = run("crawl", &["1000000", "100"]);
    assert!(text.contains("of 1000000 pages seen") && text.contains("0 connections left open"), "{text}");
}

#[test]
fn cooperative_cancellation_is_only_observed() {
    let text = run("cooperative", &[]);
    assert!(text.contains("a time-out waits for what is in it"), "{text}");
}

#[test]
fn machine_echo_sends_everything_back() {
    let text = run("machine_echo", &[]);
    assert_eq!(text, "5000 of 5000 messages came back over 50 connections\n");
}

#[test]
fn udp_relay_relays_or_counts() {
    let text = run("udp_relay", &[]);
    let numbers: Vec<u64> = text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
    let [relayed, thrown_away, came] = numbers[..] else { panic!("{text}") };
    // What is sent too fast for the system is lost before the relay can count it.
    assert!(came > 0 && came <= relayed && relayed + thrown_away <= 2000, "{text}");
}

#[test]
fn machine_store_keeps_what_it_is_given() {
    let text = run("machine_store", &[]);
    assert_eq!(text, "10 clients: VALUE value of 7, NONE\na rude one is gone, and OK\n");
}

// What comes out is gzip: the system's gunzip gives every byte back, of a file and of standard input, also of an empty one.
#[test]
fn pgz_compresses_in_order() {
    let _watchdog = support::watchdog(200);
    use std::io::Write;
    use std::process::Stdio;
    let mut text = Vec::new();
    for number in 0..200_000u32 {
        writeln!(text, "line {number} of {}", number.wrapping_mul(2_654_435_761)).unwrap();
    }
    let path = std::env::temp_dir().join(format!("fibra-pgz-{}", std::process::id()));
    for bytes in [&text[..], b"", b"short"] {
        std::fs::write(&path, bytes).unwrap();
        let from_file = Command::new(example("pgz")).arg(&path).output().unwrap();
        let from_stdin = Command::new(example("pgz")).stdin(std::fs::File::open(&path).unwrap()).output().unwrap();
        assert!(from_file.status.success() && from_file.stdout == from_stdin.stdout);
        assert!(from_file.stdout.len() < bytes.len() / 2 + 100, "it is smaller");
        std::fs::write(&path, &from_file.stdout).unwrap();
        let input = std::fs::File::open(&path).unwrap();
        let back = Command::new("gunzip").stdin(input).stderr(Stdio::inherit()).output().unwrap();
        assert!(
            back.status.success() && back.stdout == bytes,
            "{} bytes came back of {}",
            back.stdout.len(),
            bytes.len()
        );
    }
    std::fs::remove_file(&path).unwrap();
    let missing = Command::new(example("pgz")).arg("/no/such/file").output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/no/such/file"));
}

#[test]
fn logstat_counts_over_all_files() {
    let folder = std::env::temp_dir().join(format!("fibra-logstat-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let paths: Vec<_> = (0..3).map(|number| folder.join(format!("{number}.log")).display().to_string()).collect();
    for path in &paths {
        std::fs::write(path, "GET /a\nGET /b\nPOST /c\n".repeat(1000) + "GET without an end").unwrap();
    }
    let text = run("logstat", &["--once", &paths[0], &paths[1], &paths[2], "/no/such/file"]);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(text, "    6003  GET\n    3000  POST\n\n");
}

#[test]
fn bank_conserves_money_whatever_happens_to_its_tellers() {
    for seed in ["1", "2", "3"] {
        let text = run("bank", &["12", "2000", seed]);
        assert!(text.contains("120000 cents in 12 accounts, 120000 at the beginning"), "{text}");
        let numbers: Vec<u64> =
            text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
        let [done, _, failed, lives, tellers, ..] = numbers[..] else { panic!("{text}") };
        assert!(done > 0 && failed > 0 && lives > tellers, "nothing has happened: {text}");
    }
}

#[test]
fn philosophers_starve_or_eat() {
    let text = run("philosophers", &["5", "20"]);
    assert!(text.starts_with("left fork first: deadlock: no actor can go on, and these wait:\n"), "{text}");
    for name in ["Aristotle", "Hypatia", "Kant", "Arendt", "Marx"] {
        assert!(text.contains(&format!("  {name}: waiting for a lock of actors")), "{text}");
    }
    assert!(text.ends_with("forks in order: 100 meals\n"), "{text}");
}

#[test]
fn chat_brings_every_line_to_every_other_client_over_crashes_of_the_room() {
    let text = run("chat", &["--self-test", "6", "30"]);
    assert!(text.starts_with("6 clients said 30 lines each, and heard 900 lines of each other\n"), "{text}");
}
