//! The real `seaway-gate`, over programs that print what libtest prints.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

/// Prints as libtest does. `decide` is shell that sets `verdict` for the test `$1`, in the `$2`-th run of it.
const PROGRAM: &str = r#"#!/bin/sh
tests="TESTS"
only= skip= list=
while [ $# -gt 0 ]; do
    case $1 in
        --list) list=yes ;;
        --exact | --include-ignored | --report-time) ;;
        -Z | --format | --test-threads) shift ;;
        --skip) skip=$2; shift ;;
        *) only=$1 ;;
    esac
    shift
done
[ -z "$list" ] || { for it in $tests; do echo "$it: test"; done; exit 0; }
decide() {
    verdict=ok
    DECIDE
}
passed=0 failed=0
for it in $tests; do
    [ -z "$only" ] || [ "$it" = "$only" ] || continue
    [ "$it" != "$skip" ] || continue
    run=1
    while ! mkdir "run-$it-$run" 2>/dev/null; do run=$((run + 1)); done
    decide "$it" "$run"
    echo "test $it ... $verdict <0.001s>"
    if [ "$verdict" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
[ "$failed" = 0 ] || printf '\nfailures:\n\n---- a stdout ----\nsaid by the test\n\nfailures:\n    a\n'
[ -z "$only$skip" ] || sleep 0.1
echo "test result: ok. $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
[ "$failed" = 0 ] || exit 101
"#;

struct Scene {
    folder: TempDir,
}

impl Scene {
    /// One program, `unit` by its place, with these tests.
    fn new(tests: &str, decide: &str) -> Scene {
        let folder = TempDir::new().expect("a temporary folder");
        let at = folder.path();
        for made in ["gate", "totals", "pack"] {
            fs::create_dir(at.join(made)).expect("a folder");
        }
        let program = at.join("pack/program");
        fs::write(&program, PROGRAM.replace("TESTS", tests).replace("DECIDE", decide)).expect("a program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("its mode");
        let log = format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"{}/pack/Cargo.toml","target":{{"kind":["test"],"name":"it"}},"profile":{{"test":true}},"executable":"{}"}}"#,
            at.display(),
            program.display(),
        );
        fs::write(at.join("build.log"), log).expect("a log");
        let scene = Scene { folder };
        scene.promises("");
        scene
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn promises(&self, text: &str) {
        fs::write(self.path().join("gate/promises.txt"), text).expect("promises");
    }

    fn gate(&self, words: &[&str]) -> (Output, String) {
        let at = |part: &str| self.path().join(part);
        let mut command = Command::new(env!("CARGO_BIN_EXE_seaway-gate"));
        command.args(words).arg("--build-log").arg(at("build.log")).arg("--checkout").arg(self.path());
        command.arg("--totals").arg(at("totals")).arg("--files").arg(at("totals"));
        let output = command.output().expect("the gate runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        (output, printed)
    }

    fn kept(&self, file: &str) -> String {
        fs::read_to_string(self.path().join("totals").join(file)).unwrap_or_default()
    }

    fn unsteady(&self) -> String {
        fs::read_to_string(self.path().join("unsteady.toml")).unwrap_or_default()
    }
}

#[test]
fn what_passes_is_counted_and_written_down() {
    let scene = Scene::new("a b", "true");
    let (output, printed) = scene.gate(&["tier", "unit"]);
    assert!(output.status.success(), "{printed}");
    assert_eq!(scene.kept("counts"), "2 0 0 0 0\n");
    assert!(scene.kept("tests").contains("0.001\tpack, tests/it\ta\n"), "{}", scene.kept("tests"));
}

#[test]
fn a_test_that_the_machine_cannot_run_is_skipped_and_not_passed() {
    let scene = Scene::new("a b", r#"[ "$1" != a ] || echo "skipped a: it needs root" >&2"#);
    let (output, printed) = scene.gate(&["tier", "unit"]);
    assert!(output.status.success(), "{printed}");
    assert_eq!(scene.kept("counts"), "1 0 1 0 0\n");
    assert_eq!(scene.kept("skipped"), "pack, tests/it: a: it needs root\n");
}

#[test]
fn what_became_of_rigs_is_kept() {
    let scene = Scene::new("a", r#"echo "rig kubernetes: started in 4.5 s" >&2"#);
    scene.gate(&["tier", "unit"]);
    assert_eq!(scene.kept("rigs"), "kubernetes: started in 4.5 s\n");
}

#[test]
fn what_a_test_says_of_itself_excuses_nothing() {
    let scene =
        Scene::new("a b", r#"[ "$1" != a ] || { echo "unsteady a: it differed once" >&2; verdict=FAILED; }"#);
    let (output, printed) = scene.gate(&["tier", "unit"]);
    assert!(!output.status.success(), "{printed}");
    assert_eq!(scene.kept("unsteady"), "");
    assert_eq!(scene.unsteady(), "");
}

#[test]
fn a_test_that_fails_once_in_twenty_repetitions_has_failed() {
    let scene = Scene::new("a b", r#"case $1-$2 in a-1 | a-20) verdict=FAILED ;; esac"#);
    let (output, printed) = scene.gate(&["tier", "unit"]);
    assert!(!output.status.success());
    assert!(printed.contains("FAILED: pack, tests/it: a: then 1 of "), "{printed}");
    assert!(scene.kept("counts").starts_with("1 1 0 0 "), "{}", scene.kept("counts"));
    assert_eq!(scene.unsteady(), "");
    assert!(scene.kept("failures").contains("said by the test"));
}

#[test]
fn repeating_ends_with_the_first_repetition_that_fails() {
    // The others beside it do not end by themselves: else all could be through before the one that fails.
    let decide = r#"case $1-$2 in a-1 | a-2) verdict=FAILED ;; a-*) exec sleep 20 ;; esac"#;
    let scene = Scene::new("a b", decide);
    let (output, printed) = scene.gate(&["tier", "unit"]);
    assert!(!output.status.success());
    assert!(printed.contains(": then 1 of "), "{printed}");
    assert!(!scene.path().join("pack/run-a-20").exists(), "it was repeated to the end");
}

#[test]
fn a_test_that_fails_once_and_in_no_repetition_is_unsteady_and_noted_once() {
    let scene = Scene::new("a b", r#"case $1-$2 in a-1) verdict=FAILED ;; esac"#);
    for _ in 0..2 {
        let (output, printed) = scene.gate(&["tier", "unit"]);
        assert!(output.status.success(), "{printed}");
        assert!(printed.contains("unsteady: pack, tests/it: a: then 0 of 20"), "{printed}");
        fs::remove_dir(scene.path().join("pack/run-a-1")).expect("it ran once");
    }
    assert_eq!(scene.kept("counts").matches("2 0 0 1 ").count(), 2, "{}", scene.kept("counts"));
    assert_eq!(scene.unsteady().matches("[[test]]").count(), 1, "{}", scene.unsteady());
    assert!(scene.unsteady().contains(r#"name = "pack, tests/it: a""#));
    assert!(scene.kept("unsteady").contains("said by the test"));
}

#[test]
fn a_promise_has_no_second_try() {
    let scene = Scene::new("a b", r#"case $1-$2 in a-1) verdict=FAILED ;; esac"#);
    scene.promises("pack, tests/it | a\n");
    let (output, printed) = scene.gate(&["tier", "unit"]);
    assert!(!output.status.success());
    assert!(printed.contains("a promise is tested"), "{printed}");
    assert!(!scene.path().join("pack/run-a-2").exists(), "it was repeated");
    assert!(scene.kept("counts").starts_with("1 1 0 0 "), "{}", scene.kept("counts"));
}

#[test]
fn a_promise_that_no_test_answers_to_is_a_failure() {
    let scene = Scene::new("a b", "true");
    scene.promises("\npack, tests/it | renamed\nanother | x\n");
    let (output, printed) = scene.gate(&["tier", "unit"]);
    assert!(!output.status.success());
    assert!(printed.contains("promises.txt:2: no test of \"pack, tests/it\" has \"renamed\""), "{printed}");
    assert!(!printed.contains("promises.txt:3"), "a program that did not run breaks no promise: {printed}");
}

#[test]
fn when_many_fail_none_is_repeated() {
    let scene = Scene::new("a b c d e f", "verdict=FAILED");
    let (output, printed) = scene.gate(&["tier", "unit"]);
    assert!(!output.status.success());
    assert!(printed.contains("more than 5 tests failed"), "{printed}");
    assert!(!scene.path().join("pack/run-a-2").exists(), "it was repeated");
}

#[test]
fn a_program_that_crashes_has_failed_whatever_it_printed() {
    let crash =
        r#"[ "$1" != b ] || { echo 'test result: ok. 1 passed; 0 failed; 0 ignored'; kill -KILL $$; }"#;
    let scene = Scene::new("a b", crash);
    // One that a test started has printed the line of an end that even fits.
    let (output, printed) = scene.gate(&["tier", "unit"]);
    assert!(!output.status.success(), "{printed}");
    assert!(scene.kept("counts").starts_with("1 1 0 0 "), "{}", scene.kept("counts"));
}

#[test]
fn a_program_that_hangs_is_stopped_after_its_limit() {
    let scene = Scene::new("a b", r#"[ "$1" != b ] || exec sleep 20"#);
    let (output, printed) = scene.gate(&["tier", "unit", "--limit", "1"]);
    assert!(!output.status.success(), "{printed}");
    assert!(scene.kept("failures").contains("it was stopped after 1 s"), "{}", scene.kept("failures"));
}

#[test]
fn one_test_is_run_again_as_often_as_is_asked_for() {
    let scene = Scene::new("x::a b", r#"case $1-$2 in *a-3 | *a-7) verdict=FAILED ;; esac"#);
    let (output, printed) = scene.gate(&["again", "unit", "10", "a"]);
    assert!(!output.status.success());
    assert!(printed.contains("x::a: failed 2 of 10"), "{printed}");
    assert_eq!(scene.kept("counts"), "8 2 0 0 0\n");
    let (output, printed) = scene.gate(&["again", "unit", "10", "a"]);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("x::a: failed 0 of 10"), "{printed}");
}

#[test]
fn the_tier_of_a_test_is_found_by_its_name() {
    let scene = Scene::new("x::a b", "true");
    let (_, printed) = scene.gate(&["tiers", "a"]);
    assert_eq!(printed, "unit\n");
    let (_, printed) = scene.gate(&["tiers", "none"]);
    assert_eq!(printed, "");
    let (_, printed) = scene.gate(&["count", "unit"]);
    assert_eq!(printed, "2\n");
}

#[test]
fn a_tier_without_a_program_is_an_error() {
    let scene = Scene::new("a", "true");
    let (output, _) = scene.gate(&["tier", "kubernetes"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no test program belongs to the tier kubernetes")
    );
}
