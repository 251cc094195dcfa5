//! Names below `seaway.dev/`: what Seaway writes on other people's objects, and reads there.

use std::collections::BTreeSet;

use seaway_testkit::golden;

use super::{
    built::{Workspace, root},
    source::Source,
};

const BEFORE: &str = "seaway.dev/";

/// Annotations, labels, finalizers, conditions, classes, tags: who renames one loses what stands on objects already.
#[test]
fn names_on_other_peoples_objects_are_the_golden_ones() {
    let mut names = BTreeSet::new();
    let ships = |it: &&Source| ["crates/testkit/", "bench/"].iter().all(|part| !it.path.starts_with(part));
    for source in Workspace::read().sources().filter(ships) {
        if source.is_test() {
            continue;
        }
        let text = source.text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for (at, _) in line.match_indices(BEFORE) {
                let rest = line.get(at + BEFORE.len()..).unwrap_or_default();
                let end =
                    rest.find(|it: char| !it.is_ascii_alphanumeric() && it != '-').unwrap_or(rest.len());
                names.insert(format!("{BEFORE}{}\n", rest.get(..end).unwrap_or_default()));
            }
        }
    }
    let file = root().join("crates/testkit/golden/names.txt");
    golden::same(file, &names.into_iter().collect::<String>());
}
