//! What `bench/run` refuses, and in which words, before it measures anything. (That there is a test here makes cargo build the
//! program together with all test programs, with the same features.)

use std::process::Command;

fn refused(arguments: &[&str]) -> String {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_seaway-bench"));
    let output = bench.args(arguments).output().expect("it starts");
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_unknown_case_is_refused_with_the_cases_that_there_are() {
    let told = refused(&["tcp-keepalife"]);
    assert!(told.contains("tcp-keepalife") && told.contains("tcp-keepalive"), "{told}");
}

#[test]
fn an_unknown_contender_is_refused_with_those_that_there_are() {
    let told = refused(&["--contenders", "envoi"]);
    assert!(told.contains("envoi") && told.contains("haproxy"), "{told}");
}
