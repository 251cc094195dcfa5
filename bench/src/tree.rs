//! Whether the program that is measured is the one that the repository has at its commit.

use std::process::Command;

/// What is in the way of naming one commit for the figures; nothing, if the program of this version was built from it.
pub fn lacks(version: &str) -> Option<String> {
    // Pages that a run writes into are no part of the program.
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", ":!results"]);
    compared(version, git(&["rev-parse", "--short=12", "HEAD"]).as_deref(), changed.as_deref())
}

fn compared(version: &str, commit: Option<&str>, changed: Option<&str>) -> Option<String> {
    let (Some(commit), Some(changed)) = (commit, changed) else {
        return Some("the commit is unknown: git tells none".to_owned());
    };
    if !version.contains(commit) {
        return Some(format!("not built from commit {commit}"));
    }
    (!changed.is_empty()).then(|| "uncommitted changes".to_owned())
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
        let version = "seaway 0.1.0 (0123456789ab)";
        let lacks = |commit, changed| compared(version, commit, changed);
        assert_eq!(lacks(Some("0123456789ab"), Some("")), None);
        assert_eq!(lacks(Some("0123456789ab"), Some(" M a.rs")).unwrap(), "uncommitted changes");
        assert_eq!(lacks(Some("ba9876543210"), Some("")).unwrap(), "not built from commit ba9876543210");
        assert!(lacks(None, Some("")).unwrap().contains("unknown"));
    }
}
