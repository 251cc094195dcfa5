//! Where the scripts are.

use std::path::{Path, PathBuf};

/// All of them, in the order of their names.
pub(crate) fn all() -> Vec<PathBuf> {
    let folder = folder();
    let files = std::fs::read_dir(&folder).expect("the folder of the scripts");
    let mut scripts: Vec<PathBuf> = files
        .flatten()
        .map(|it| it.path())
        .filter(|it| it.extension().is_some_and(|it| it == "txt"))
        .collect();
    scripts.sort();
    assert!(!scripts.is_empty(), "there are no scripts in {}", folder.display());
    scripts
}

/// What several scripts begin with.
pub(crate) fn prelude(name: &str) -> PathBuf {
    folder().join("preludes").join(name).with_extension("txt")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract/scripts")
}
