//! Tells the binary its commit, so that `seaway --version` and the metrics do, and how it is optimised.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/logs/HEAD");
    println!("cargo:rerun-if-env-changed=SEAWAY_COMMIT");
    let commit =
        std::env::var("SEAWAY_COMMIT").ok().or_else(head).unwrap_or_else(|| "unknown commit".to_owned());
    println!("cargo:rustc-env=SEAWAY_COMMIT={commit}");
    println!("cargo:rustc-env=SEAWAY_OPT_LEVEL={}", std::env::var("OPT_LEVEL").unwrap_or_default());
}

fn head() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
