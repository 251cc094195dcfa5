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
    if folds() {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all,-O2");
    }
}

/// Functions that are the same, byte for byte, are one in what is shipped. Where LLD is Rust's own linker: others do not know how.
fn folds() -> bool {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|it| it == value);
    let profile = std::env::var("OUT_DIR").unwrap_or_default();
    let is_dist = std::path::Path::new(&profile).components().any(|it| it.as_os_str() == "dist");
    is_dist
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
}

fn head() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
