//! What the OpenStack of `rig/openstack` installs from PyPI is pinned by hash.

use std::{collections::BTreeSet, fs, path::Path};

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rig/openstack").join(file);
    fs::read_to_string(path).expect(file)
}

/// A package with its hashes, from lines that end in a backslash where they go on.
fn pins(text: &str) -> Vec<(String, Vec<String>)> {
    let text: String = text.lines().filter(|it| !it.starts_with('#')).map(|it| format!("{it}\n")).collect();
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(|it| it.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    lines.filter_map(|words| words.split_first().map(|(it, rest)| (it.clone(), rest.to_vec()))).collect()
}

#[test]
fn every_python_package_has_a_version_and_hashes() {
    for (file, least) in [("requirements.txt", 150), ("requirements-build.txt", 2)] {
        let pins = pins(&read(file));
        assert!(pins.len() >= least, "{file} has {} packages", pins.len());
        let mut names = BTreeSet::new();
        for (package, hashes) in pins {
            let (name, version) = package.split_once("==").unwrap_or_else(|| panic!("{file}: {package}"));
            assert!(!version.is_empty() && names.insert(name.to_lowercase()), "{file}: {package}");
            let good = |it: &String| {
                it.strip_prefix("--hash=sha256:")
                    .is_some_and(|it| it.len() == 64 && it.bytes().all(|it| it.is_ascii_hexdigit()))
            };
            assert!(
                (1..=2).contains(&hashes.len()) && hashes.iter().all(good),
                "{file}: {package} {hashes:?}"
            );
        }
    }
}

#[test]
fn pip_installs_nothing_without_a_hash() {
    let text = read("install");
    let calls: Vec<&str> = text.lines().filter(|it| it.contains("/pip\" install")).collect();
    assert!(!calls.is_empty());
    for call in calls {
        assert!(call.contains("--require-hashes") && call.contains("--no-deps"), "{call}");
    }
}

#[test]
fn an_environment_is_named_by_all_that_is_installed_into_it() {
    let text = read("settings.sh");
    let line = text.lines().find(|it| it.starts_with("python=")).expect("where the environment is");
    assert!(line.contains("requirements{,-build}.txt"), "{line}");
}
