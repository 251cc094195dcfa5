//! Whether the program that is measured is the one that the repository has at its commit.

use std::process::Command;

/// What is no part of the program, nor of what measures it.
const PAGES: [&str; 5] = [":!docs", ":!results", ":!fuzz", ":!mutants", ":!gate"];
/// What is no part of the program.
const APART: [&str; 9] = [
    ":!docs",
    ":!results",
    ":!bench",
    ":!fuzz",
    ":!mutants",
    ":!gate",
    ":!rig",
    ":!crates/testkit",
    ":(exclude,glob)crates/*/tests/**",
];

/// What is in the way of naming one commit for the figures; nothing, if the program of this version was built from it and is
/// that of the commit that is checked out.
pub fn lacks(version: &str) -> Option<String> {
    let of = |arguments: &[&str], apart: &[&str]| git(&[arguments, &["--", "."], apart].concat());
    let Some((_, commit)) = version.rsplit_once('(') else {
        return Some(format!("{version:?} names no commit"));
    };
    let commit = commit.trim_end_matches(')');
    compared(
        commit,
        of(&["diff", "--name-only", commit, "HEAD"], &APART).as_deref(),
        of(&["status", "--porcelain", "--untracked-files=no"], &PAGES).as_deref(),
    )
}

/// That is checked out; what measures is of it, if nothing is changed.
pub fn commit() -> String {
    git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_default()
}

fn compared(commit: &str, since: Option<&str>, changed: Option<&str>) -> Option<String> {
    match (since, changed) {
        (Some(""), Some("")) => None,
        (Some(""), Some(_)) => Some("uncommitted changes".to_owned()),
        (Some(_), Some(_)) => Some(format!("the program changed since {commit}")),
        _ => Some(format!("git does not know {commit}")),
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|it| it.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_belong_to_a_commit_if_the_program_was_built_from_it_and_nothing_changed() {
        let lacks = |since, changed| compared("0123456789ab", since, changed);
        assert_eq!(lacks(Some(""), Some("")), None);
        assert_eq!(lacks(Some(""), Some(" M a.rs")).expect("it is changed"), "uncommitted changes");
        assert!(lacks(Some("a.rs"), Some("")).expect("it is changed").contains("changed since 0123456789ab"));
        assert!(lacks(None, Some("")).expect("it is unknown").contains("git does not know"));
        assert!(super::lacks("seaway 0.1.0").expect("it names none").contains("no commit"));
    }
}
