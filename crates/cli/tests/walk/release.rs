//! A release, up to where it would be made: what is in its way is said, all of it, and nothing is made then.

use std::{fs, path::Path, process::Command};

use crate::shared_image::{root, run};

/// What a release reads of a clone, committed.
fn clone(folder: &Path) {
    for name in ["Cargo.toml", "CHANGELOG.md", "deploy"] {
        run(Command::new("cp").arg("-a").arg(root().join(name)).arg(folder));
    }
    git(folder, &["init", "--quiet"]);
    commit(folder);
}

fn git(folder: &Path, arguments: &[&str]) {
    let author =
        ["-c", "user.name=Tests", "-c", "user.email=tests@example.com", "-c", "commit.gpgsign=false"];
    run(Command::new("git")
        .args(author)
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null"));
}

fn commit(folder: &Path) {
    git(folder, &["add", "--all"]);
    git(folder, &["commit", "--quiet", "--message", "a commit"]);
}

/// Whether it would be made, and all that it says.
fn tried(folder: &Path, to: &Path) -> (bool, String) {
    let output =
        Command::new(folder.join("deploy/release/build")).arg("--dry-run").arg(to).output().expect("runs");
    let text = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
    (output.status.success(), text)
}

fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).expect("is there");
    assert!(text.contains(from), "{}: no {from}", file.display());
    fs::write(file, text.replacen(from, to, 1)).expect("is written");
}

#[test]
fn a_release_says_all_that_is_in_its_way_and_what_it_would_make() {
    let folder = tempfile::tempdir().expect("a folder");
    let (folder, to) = (folder.path(), folder.path().join("../not-made"));
    clone(folder);
    let version = env!("CARGO_PKG_VERSION");

    // This commit is released only once somebody dated its changes.
    let heading = fs::read_to_string(folder.join("CHANGELOG.md")).expect("is there");
    let heading = heading.lines().find_map(|it| it.strip_prefix("## ")).expect("a heading").to_owned();
    replace(&folder.join("CHANGELOG.md"), &heading, &format!("{version}, unreleased"));
    replace(
        &folder.join("deploy/helm/seaway/Chart.yaml"),
        &format!("appVersion: {version}"),
        "appVersion: 9.9.9",
    );
    let (done, said) = tried(folder, &to);
    assert!(!done);
    for fault in [
        "changes that are not committed: ",
        "CHANGELOG.md: the first heading is \"",
        "Chart.yaml: version 9.9.9, not ",
        "nothing was made",
    ] {
        assert!(said.contains(fault), "{fault}: {said}");
    }

    replace(
        &folder.join("deploy/helm/seaway/Chart.yaml"),
        "appVersion: 9.9.9",
        &format!("appVersion: {version}"),
    );
    replace(
        &folder.join("CHANGELOG.md"),
        &format!("{version}, unreleased"),
        &format!("{version}, 2030-01-31"),
    );
    commit(folder);
    let (done, said) = tried(folder, &to);
    assert!(done, "{said}");
    for made in [
        "oci.tar",
        "Debian package",
        "seaway-crds.yaml",
        "seaway-chart",
        "cdx.json",
        "provenance",
        "SHA256SUMS",
    ] {
        assert!(said.contains(made), "{made}: {said}");
    }
    assert!(!to.exists(), "a dry run makes nothing");

    // A version is one commit.
    git(folder, &["tag", &format!("v{version}")]);
    assert!(tried(folder, &to).0, "its own tag is not in the way");
    fs::write(folder.join("more"), "").expect("is written");
    commit(folder);
    let (done, said) = tried(folder, &to);
    assert!(!done && said.contains(&format!("the tag v{version} exists, at another commit")), "{said}");
}
