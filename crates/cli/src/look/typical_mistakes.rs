//! What newcomers get wrong: each mistake of `golden/mistakes.txt` is told with its place, its cause and its fix.
//!
//! An entry is a line with a name (`# …`), files (`-- NAME`, then the text), and what is to be told
//! (`=> PLACE | CAUSE | FIX`). A file `seaway.yaml` is the configuration.

use std::{fs, path::Path};

use seaway_model::Problem;

use super::{
    PlannedFolder, PreviousState,
    check::{beside, each_once, mistakes},
};
use crate::settings::checked::{CheckedSettings, read_checked};

const TABLE: &str = include_str!("../../golden/mistakes.txt");

struct Mistake {
    name: &'static str,
    files: Vec<(&'static str, String)>,
    told: Vec<(&'static str, &'static str, &'static str)>,
}

fn table() -> Vec<Mistake> {
    let mut table: Vec<Mistake> = Vec::new();
    for line in TABLE.lines() {
        if let Some(name) = line.strip_prefix("#### ") {
            table.push(Mistake { name, files: Vec::new(), told: Vec::new() });
            continue;
        }
        let Some(mistake) = table.last_mut() else { continue };
        if let Some(file) = line.strip_prefix("-- ") {
            mistake.files.push((file, String::new()));
        } else if let Some(told) = line.strip_prefix("=> ") {
            let mut parts = told.split(" | ");
            let mut part = || parts.next().unwrap_or_else(|| panic!("{}: {told}", mistake.name));
            mistake.told.push((part(), part(), part()));
        } else if let Some((_, text)) = mistake.files.last_mut() {
            text.push_str(line);
            text.push('\n');
        }
    }
    table
}

fn problems_of(dir: &Path, mistake: &Mistake) -> Vec<Problem> {
    let folder = dir.join("manifests");
    fs::create_dir(&folder).expect("a folder");
    let config = dir.join("seaway.yaml");
    for (file, text) in &mistake.files {
        let at = if *file == "seaway.yaml" { config.clone() } else { folder.join(file) };
        fs::write(at, text).expect("written");
    }
    let CheckedSettings { mut settings, mut problems, places } =
        if config.exists() { read_checked(&config) } else { CheckedSettings::default() };
    settings.addresses = vec!["127.0.0.1".parse().expect("an address")];
    if config.exists() {
        problems.extend(beside(&settings).expect("it is planned"));
    }
    if mistake.files.iter().any(|it| it.0 != "seaway.yaml") {
        problems.extend(mistakes(
            &PlannedFolder::at(&folder, &settings, PreviousState::default()).expect("it is read"),
        ));
    }
    each_once(problems, places.as_ref())
}

#[test]
fn typical_mistakes_are_told_with_place_cause_and_fix() {
    let table = table();
    assert!(table.len() >= 80, "{}", table.len());
    let mut wrong = Vec::new();
    for mistake in &table {
        let dir = tempfile::tempdir().expect("a folder");
        let problems = problems_of(dir.path(), mistake);
        for (place, cause, fix) in &mistake.told {
            let is_told = problems.iter().any(|it| {
                let text = it.to_string();
                let whole = it.line();
                let at = it.place.as_ref().map(|at| match at.line {
                    0 => at.file.to_string(),
                    _ => format!("{}:{}:{}", at.file, at.line, at.column),
                });
                at.is_some_and(|at| at.ends_with(place)) && text.contains(cause) && whole.contains(fix)
            });
            if !is_told {
                let all: Vec<String> = problems.iter().map(Problem::line).collect();
                wrong.push(format!(
                    "{}: {place} | {cause} | {fix}\n    {}",
                    mistake.name,
                    all.join("\n    ")
                ));
            }
        }
        assert!(!mistake.told.is_empty(), "{}", mistake.name);
        // What is told about a check never speaks of what is served.
        for problem in &problems {
            assert!(!problem.fix.contains("stays in use"), "{}: {}", mistake.name, problem.line());
        }
    }
    assert!(wrong.is_empty(), "{} not told:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_certificate_of_the_configuration_that_cannot_be_used_is_told_before_anything_needs_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let made = || rcgen::generate_simple_self_signed(["shop.example".to_owned()]).expect("a certificate");
    let (one, two) = (made(), made());
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("written");
    write("one.pem", &one.cert.pem());
    write("two-first.pem", &format!("{}{}", two.cert.pem(), one.cert.pem()));
    write("one.key", &one.signing_key.serialize_pem());
    write("two.key", &two.signing_key.serialize_pem());
    write("locked.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
    for (cert, key, cause) in [
        ("one.pem", "one.key", None),
        ("one.pem", "two.key", Some("the key does not belong to the certificate")),
        ("two-first.pem", "one.key", Some("the key belongs to certificate 2 of it")),
        ("one.pem", "locked.key", Some("the key is encrypted")),
    ] {
        let config = format!("frontDoor: {{certificates: [{{cert: {cert}, key: {key}}}]}}\n");
        write("seaway.yaml", &config);
        let CheckedSettings { settings, problems, places } = read_checked(&dir.path().join("seaway.yaml"));
        assert!(problems.is_empty(), "{problems:?}");
        let problems = each_once(beside(&settings).expect("it is planned"), places.as_ref());
        let told: Vec<String> = problems.iter().map(Problem::line).collect();
        assert!(told.iter().all(|it| it.contains("seaway.yaml:1:")), "{told:?}");
        assert_eq!(told.len(), usize::from(cause.is_some()), "{cert} {key}: {told:?}");
        assert!(cause.is_none_or(|it| told[0].contains(it)), "{told:?}");
        // It is about files, and no certificate of before is in use.
        let fix = "into the file that cert names in seaway.yaml; its PEM key";
        assert!(told.iter().all(|it| it.contains(fix) && !it.contains("stays in use")), "{told:?}");
    }
}
