//! All of it, with a workspace of one crate: what a test notices is killed, what none notices or reaches lives.

use std::{env, fs, path::Path, process::Command};

const WORKSPACE: &str = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n";
const MANIFEST: &str = "[package]\nname = \"seaway-wire\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
const SOURCE: &str = "
pub fn larger(a: u8, b: u8) -> u8 {
    if a > b { a } else { b }
}

pub fn is_asked_by_no_test(a: u8) -> bool {
    a == 3
}

pub fn joined(a: &str, b: &str) -> String {
    let mut both = a.to_owned() + b;
    both += \".\";
    both
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_larger_of_two() {
        assert_eq!((super::larger(3, 2), super::larger(2, 3)), (3, 3));
        assert_eq!(super::joined(\"a\", \"b\"), \"ab.\");
    }
}
";
const EXPLAINED: &str =
    "crates/wire/src/lib.rs: larger: a > b → a >= b\n    equivalent: the larger of two equals is either\n";

fn mutants(folder: &Path, more: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seaway-mutants"));
    command.arg("--checkout").arg(folder.join("checkout")).arg("--work").arg(folder.join("work")).args(more);
    let done = command.output().expect("it runs");
    let told = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8_lossy(&told).into_owned())
}

#[test]
fn what_a_test_notices_is_killed_and_the_rest_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let checkout = folder.path().join("checkout");
    fs::create_dir_all(checkout.join("crates/wire/src")).expect("folders");
    fs::create_dir_all(checkout.join("mutants")).expect("folders");
    for (file, text) in [
        ("Cargo.toml", WORKSPACE),
        ("crates/wire/Cargo.toml", MANIFEST),
        ("crates/wire/src/lib.rs", SOURCE),
        ("mutants/survivors.txt", EXPLAINED),
    ] {
        fs::write(checkout.join(file), text).expect("written");
    }
    let made = Command::new("git").args(["init", "-q"]).current_dir(&checkout).status().expect("git runs");
    assert!(made.success());

    let (status, told) = mutants(folder.path(), &["--only", "crates/wire"]);
    assert_eq!(status, Some(1), "{told}");
    for line in [
        "12 of 12 possible mutants (wire 12)",
        // Texts have no `-`.
        "does not compile, and is left out: crates/wire/src/lib.rs:11: joined: a.to_owned() + b → a.to_owned() - b",
        "does not compile, and is left out: crates/wire/src/lib.rs:12: joined: both += \".\" → both -= \".\"",
        "wire              6        0     4            1",
        "    equivalent: the larger of two equals is either",
        "FAULT: lives, and is not in survivors.txt: crates/wire/src/lib.rs:6: is_asked_by_no_test: body → true",
        "FAULT: 40.0 % live, and 5 % may",
    ] {
        assert!(told.contains(line), "{line:?} is not in\n{told}");
    }
    let (_, told) = mutants(folder.path(), &["--lived", "--list"]);
    assert_eq!(told.lines().count(), 6, "{told}");
    assert_eq!(fs::read_to_string(checkout.join("crates/wire/src/lib.rs")).expect("a source"), SOURCE);
}
