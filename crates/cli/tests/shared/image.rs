//! What tests of the image and of the manifests share.

use std::{path::PathBuf, process::Command};

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|it| panic!("{command:?}: {it}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("is text")
}
