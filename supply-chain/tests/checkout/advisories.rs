//! The list of advisories of this checkout, its lock files, and the program that compares them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use seaway_supply_chain::{
    audit::audit,
    checkout::{ADVISORIES, LOCK_FILES},
    database::Database,
    lock::{CRATES_IO, Lock},
};

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the checkout")
}

fn locks() -> Vec<(&'static str, Lock)> {
    LOCK_FILES.map(|file| (file, Lock::read(&checkout().join(file)).expect(file))).into()
}

fn list() -> Database {
    Database::read(&checkout().join(ADVISORIES)).expect("the list")
}

#[test]
fn nothing_that_is_locked_has_an_advisory() {
    let list = list();
    let report = audit(&list, &[], &locks(), list.date);
    assert!(report.errors.is_empty(), "docs/supply-chain.md says what to do:\n{}", report.errors.join("\n"));
    assert!(report.warnings.is_empty(), "{}", report.warnings.join("\n"));
}

#[test]
fn an_advisory_is_listed_once_and_is_about_a_package_that_is_locked() {
    let list = list();
    let locks = locks();
    let names: BTreeSet<&str> = locks.iter().flat_map(|(_, it)| &it.packages).map(|it| &*it.name).collect();
    let mut seen = BTreeSet::new();
    for it in &list.advisories {
        assert!(seen.insert((&it.id, &it.package)), "{} of {} is listed twice", it.id, it.package);
        assert!(names.contains(&*it.package), "{}: {} is in no lock file any more", it.id, it.package);
    }
    let sorted: Vec<&str> = list.advisories.iter().map(|it| &*it.package).collect();
    assert!(sorted.is_sorted(), "advisories are sorted by package");
}

#[test]
fn all_that_is_locked_comes_from_the_registry_with_a_hash_or_is_ours() {
    for (file, lock) in locks() {
        for it in &lock.packages {
            let ours = it.name.starts_with("seaway-") && it.source.is_none() && it.checksum.is_none();
            let outside = it.source.as_deref() == Some(CRATES_IO)
                && it.checksum.as_ref().is_some_and(|it| it.len() == 64);
            assert!(ours || outside, "{file}: {} {} is of {:?}", it.name, it.version, it.source);
        }
    }
}

#[test]
fn the_fuzz_targets_lock_what_the_workspace_locks() {
    let [(_, root), (_, fuzz)] = &locks()[..] else { panic!("two lock files") };
    // The fuzzer's own.
    let own = ["seaway-fuzz", "libfuzzer-sys", "arbitrary"];
    let others: Vec<String> = fuzz
        .packages
        .iter()
        .filter(|it| !own.contains(&&*it.name) && !root.packages.contains(it))
        .map(|it| format!("{} {}", it.name, it.version))
        .collect();
    assert!(
        others.is_empty(),
        "fuzz/Cargo.lock differs from Cargo.lock, so both are built: {others:?}. Type: cp Cargo.lock fuzz/ && cargo \
         metadata --manifest-path fuzz/Cargo.toml >/dev/null"
    );
}

/// A checkout with one package, `boat`.
fn sample(list: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = format!("[[package]]\nname = \"boat\"\nversion = \"2.0.9\"\nsource = \"{CRATES_IO}\"\n");
    for (file, text) in [("Cargo.lock", &*lock), ("fuzz/Cargo.lock", &lock), (ADVISORIES, list)] {
        let file = folder.path().join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, text).expect("written");
    }
    folder
}

fn run(checkout: &Path, database: Option<&Path>) -> (String, Output) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_advisories"));
    command.current_dir(checkout).env_remove("SEAWAY_ADVISORY_DB");
    if let Some(folder) = database {
        command.env("SEAWAY_ADVISORY_DB", folder);
    }
    let output = command.output().expect("runs");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output)
}

const LIST: &str = "date = \"2020-01-01\"\n";

#[test]
fn the_program_warns_of_an_old_list_and_succeeds() {
    let (told, output) = run(sample(LIST).path(), None);
    assert!(output.status.success(), "{told}");
    assert!(told.starts_with("warning: the list of advisories is of 2020-01-01, "), "{told}");
    assert!(told.ends_with("0 advisories as of 2020-01-01: 0 errors, 1 warnings\n"), "{told}");
}

#[test]
fn the_program_fails_for_an_advisory_and_for_a_list_that_is_not_understood() {
    let entry = "[[advisory]]\nid = \"X-1\"\npackage = \"boat\"\npatched = []\nsummary = \"It sinks\"\n";
    let (told, output) = run(sample(&format!("{LIST}{entry}")).path(), None);
    assert_eq!(output.status.code(), Some(1));
    for file in LOCK_FILES {
        let line =
            format!("error: {file}: boat 2.0.9 has X-1 (vulnerability): It sinks; no version is patched");
        assert!(told.contains(&line), "{told}");
    }
    let (told, output) = run(sample("date = soon").path(), None);
    assert_eq!(
        (output.status.code(), told.starts_with("error: supply-chain/advisories.toml: ")),
        (Some(1), true)
    );
}

#[test]
fn the_program_reads_a_rustsec_database_that_it_is_shown() {
    let checkout = sample(LIST);
    let database = tempfile::tempdir().expect("a folder");
    let (told, output) = run(checkout.path(), Some(database.path()));
    assert!(output.status.code() == Some(1) && told.contains("is no RustSec database"), "{told}");
    let folder = database.path().join("crates/boat");
    fs::create_dir_all(&folder).expect("made");
    let advisory = "```toml\n[advisory]\nid = \"RUSTSEC-2030-0001\"\npackage = \"boat\"\n\n[versions]\npatched = \
                    [\"^2.1\"]\n```\n\n# It sinks\n";
    fs::write(folder.join("RUSTSEC-2030-0001.md"), advisory).expect("written");
    let (told, output) = run(checkout.path(), Some(database.path()));
    assert!(output.status.code() == Some(1) && told.contains("has RUSTSEC-2030-0001"), "{told}");
    let patched = advisory.replace("^2.1", "^2.0.9");
    fs::write(folder.join("RUSTSEC-2030-0001.md"), patched).expect("written");
    let (told, output) = run(checkout.path(), Some(database.path()));
    assert!(output.status.success() && told.contains("and 1 of RustSec's"), "{told}");
}
