//! `unsteady.toml`: tests that failed once and passed all repetitions. Each is a bug of the test or of Seaway.

use std::{fs, io::Write, process::Command};

use crate::options::Options;

const FILE: &str = "unsteady.toml";

/// Notes the test, if it is not noted yet.
pub(crate) fn note(options: &Options, name: &str, failed: &str) -> Result<(), String> {
    let path = options.checkout.join(FILE);
    let cannot = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    let known = match fs::read_to_string(&path) {
        Ok(known) => known,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let key = format!("name = {name:?}");
    if known.lines().any(|line| line == key) {
        return Ok(());
    }
    let commit = commit(options);
    let mut file = fs::OpenOptions::new().create(true).append(true).open(&path).map_err(cannot)?;
    write!(
        file,
        "\n[[test]]\n{key}\ncommit = {commit:?}\nfailed = {failed:?}\ncause = \"unknown: find it, mend it, and remove this entry\"\n"
    )
    .map_err(cannot)
}

fn commit(options: &Options) -> String {
    let output =
        Command::new("git").arg("-C").arg(&options.checkout).args(["rev-parse", "--short", "HEAD"]).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}
