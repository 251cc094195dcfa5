//! A fuzz target is a row of `fuzz/README.md`, a file, a `[[bin]]`, a folder of seeds, and a test on stable Rust. Where
//! one of them is missing, the target is not run, and nobody sees it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use super::built::{Workspace, read, root};

/// Target, and the crate whose function it is: rows of the table.
pub(crate) fn targets() -> BTreeMap<String, String> {
    let page = read(&root().join("fuzz/README.md"));
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> =
            line.strip_prefix("| `")?.split('|').map(|it| it.trim_matches([' ', '`'])).collect();
        let [target, function, of, ""] = cells[..] else { return None };
        // The table above this one is about other things.
        function.contains("::fuzz::").then_some(())?;
        assert_eq!(function, format!("seaway_{of}::fuzz::{target}"), "fuzz/README.md, the row of {target}");
        Some((target.to_owned(), of.to_owned()))
    });
    rows.collect()
}

fn names(folder: &str) -> BTreeSet<String> {
    // What was learned may be nothing.
    let entries = fs::read_dir(root().join("fuzz").join(folder)).into_iter().flatten();
    let paths = entries.map(|it| it.expect("readable").path());
    paths.map(|it| it.file_stem().expect("a name").to_string_lossy().into_owned()).collect()
}

/// The values of a key in the tables of a name, in the simple TOML that a manifest is.
fn values(manifest: &str, table: &str, key: &str) -> Vec<String> {
    let mut within = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            within = line == table;
        } else if let Some((name, value)) = line.split_once(" = ").filter(|_| within) {
            found.extend((name == key).then(|| value.trim_matches('"').to_owned()));
        }
    }
    found
}

#[test]
fn every_fuzz_target_has_its_row_file_program_and_seeds() {
    let targets = targets();
    let rows: BTreeSet<String> = targets.keys().cloned().collect();
    assert!(rows.len() >= 40, "{rows:?}");
    assert_eq!(names("fuzz_targets"), rows, "the files of fuzz/fuzz_targets, and the rows of fuzz/README.md");
    assert_eq!(names("corpus"), rows, "the folders of fuzz/corpus, and the rows of fuzz/README.md");
    let strange: Vec<String> = names("grown").difference(&rows).cloned().collect();
    assert!(strange.is_empty(), "fuzz/grown has {strange:?}, and fuzz/README.md has no such rows");
    let manifest = read(&root().join("fuzz/Cargo.toml"));
    let programs: BTreeSet<String> = values(&manifest, "[[bin]]", "name").into_iter().collect();
    assert_eq!(programs, rows, "the [[bin]]s of fuzz/Cargo.toml, and the rows of fuzz/README.md");
    let paths: BTreeSet<String> = values(&manifest, "[[bin]]", "path").into_iter().collect();
    assert_eq!(paths, rows.iter().map(|it| format!("fuzz_targets/{it}.rs")).collect());
    for (target, of) in &targets {
        let file = read(&root().join(format!("fuzz/fuzz_targets/{target}.rs")));
        let call = format!("seaway_{of}::fuzz::{target}(bytes)");
        assert!(file.contains(&call), "fuzz/fuzz_targets/{target}.rs does not call {call}");
        let seeds = fs::read_dir(root().join("fuzz/corpus").join(target)).expect("a folder");
        assert!(seeds.count() > 0, "fuzz/corpus/{target} is empty");
    }
}

#[test]
fn every_fuzz_target_is_run_over_its_seeds_on_stable_rust() {
    let targets = targets();
    let mut faults = Vec::new();
    for (target, of) in &targets {
        let file = seeds_of(&format!("crates/{of}"));
        let text = text_of(&file);
        let seeds =
            text.contains(&format!("\"{target}\"")) || text.contains(&format!("fuzz/corpus/{target}\""));
        if !seeds || !text.contains(&format!("fuzz::{target})")) {
            faults.push(format!("{} does not run {target} over fuzz/corpus/{target}", file.display()));
        }
    }
    // And the other way round: a function that is held here and is no target.
    for this in &Workspace::read().crates {
        let file = seeds_of(&this.folder);
        for rest in text_of(&file).split("fuzz::").skip(1) {
            let name: String = rest.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect();
            if targets.get(&name) != Some(&this.name) {
                faults.push(format!("{}: {name} has no row in fuzz/README.md", file.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn fuzz_targets_are_linted_and_built_as_the_workspace_is() {
    let manifest = read(&root().join("fuzz/Cargo.toml"));
    let lines: BTreeSet<&str> = manifest.lines().collect();
    for lint in Workspace::read().lints() {
        assert!(lines.contains(lint), "fuzz/Cargo.toml lacks the lint {lint}");
    }
    let whole = read(&root().join("Cargo.toml"));
    let profile = values(&whole, "[profile.dev]", "debug");
    assert_eq!(
        values(&manifest, "[profile.dev]", "debug"),
        profile,
        "what is built for one serves the other"
    );
}

/// `tests/fuzz_seeds.rs`, or that of the one test program that it is a part of.
fn seeds_of(folder: &str) -> PathBuf {
    let tests = root().join(folder).join("tests");
    let folders = fs::read_dir(&tests).into_iter().flatten().flatten().map(|it| it.path());
    let parts = folders.map(|it| it.join("fuzz_seeds.rs")).find(|it| it.exists());
    parts.unwrap_or_else(|| tests.join("fuzz_seeds.rs"))
}

fn text_of(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}
