//! `seaway.yaml` as `check` and `config --check` read it: all mistakes at once, each with its place, and what could be read.

use std::path::Path;

use seaway_manifests::{
    decode::{Field, PathPart, ValidationError, ValidationErrors},
    hint, tree,
};
use seaway_model::{Kind, ObjectRef, Problem, Reason};

use super::{EXAMPLE, Settings, doubts::doubtful_settings, fields_read, read};

/// What a file says, as far as it can be read, and all that is wrong with it.
pub(crate) fn read_checked(file: &Path) -> (Settings, Vec<Problem>) {
    let shown = file.display().to_string();
    let object = ObjectRef::new(Kind::Config, "", shown.as_str());
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            let problem =
                Problem::new(object, Reason::Unreadable, error.to_string()).in_file(shown.as_str(), 0, 0);
            return (Settings::default(), vec![problem]);
        }
    };
    let at = |problem: Problem, at: tree::Position| problem.in_file(shown.as_str(), at.line, at.column);
    let of_fault = |fault: &ValidationError| {
        let problem = Problem::new(object.clone(), Reason::Invalid, fault.message.clone());
        let fix = hint(fault).or_else(|| elsewhere(fault)).unwrap_or_default();
        at(problem.at(fault.field.as_str()).fix(fix), fault.at)
    };
    let roots = match tree::parse(&text) {
        Ok(roots) => roots,
        Err(error) => {
            let fault =
                ValidationError { field: String::new(), at: error.at, message: error.message.clone() };
            return (Settings::default(), vec![of_fault(&fault)]);
        }
    };
    if let [_, second, ..] = roots.as_slice() {
        let message = "a configuration must be one YAML document, but a second one begins here".to_owned();
        let fault = ValidationError { field: String::new(), at: second.at, message };
        return (Settings::default(), vec![of_fault(&fault)]);
    }
    let Some(root) = roots.first() else { return (Settings::default(), Vec::new()) };
    if root.child("apiVersion").is_some() && root.child("kind").is_some() {
        let problem =
            Problem::new(object.clone(), Reason::Invalid, "this is a manifest, not a configuration")
                .fix("Move it to the folder of manifests. seaway config --example prints a configuration.");
        return (Settings::default(), vec![at(problem, root.at)]);
    }
    let faults = ValidationErrors::default();
    let settings = read(&Field::root(root, &faults), file.parent().unwrap_or(Path::new("")));
    let mut problems: Vec<Problem> = faults.into_sorted().iter().map(of_fault).collect();
    for doubt in doubtful_settings(&settings) {
        let (field, message) = match doubt.split_once(": ") {
            Some((field, message)) if !field.contains('/') && field.contains('.') => (field, message),
            _ => ("", doubt.as_str()),
        };
        let problem = Problem::new(object.clone(), Reason::Unreadable, message).at(field);
        let place = if message == doubt { "frontDoor.certificates" } else { field };
        problems.push(at(problem, root.position_of(place)));
    }
    problems.sort_by(|a, b| a.place.cmp(&b.place));
    problems.dedup();
    (settings, problems)
}

/// The places where a key is known that stands where it is not.
fn elsewhere(fault: &ValidationError) -> Option<String> {
    if !fault.message.starts_with("unknown field") || fault.message.contains("did you mean") {
        return None;
    }
    let key = fault.field.rsplit('.').next()?;
    let instead = match key {
        "certificate" | "certs" | "ssl" | "tls" => {
            "frontDoor.certificates, a list of {cert: FILE, key: FILE}"
        }
        "backends" | "servers" | "upstreams" | "services" | "routes" => {
            "a manifest in the folder: seaway init writes the first one"
        }
        _ => "",
    };
    if !instead.is_empty() {
        return Some(format!("Write {instead}."));
    }
    let is_plain = |path: &&Vec<PathPart>| path.iter().all(|it| matches!(it, PathPart::Field(_)));
    let known = fields_read(EXAMPLE);
    let places = known.keys().filter(is_plain).filter_map(|path| {
        let names: Vec<&str> = path
            .iter()
            .filter_map(|it| match it {
                PathPart::Field(name) => Some(name.as_str()),
                _ => None,
            })
            .collect();
        (names.last() == Some(&key)).then(|| names.join("."))
    });
    let places: Vec<String> = places.take(4).collect();
    (!places.is_empty()).then(|| format!("Did you mean {}?", places.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("seaway.yaml");
        std::fs::write(&file, text).expect("written");
        let (_, problems) = read_checked(&file);
        problems
            .iter()
            .map(|it| {
                let place = it.place.as_ref().map(|it| (it.line, it.column)).unwrap_or_default();
                format!("{}:{}: {}: {} {}", place.0, place.1, it.field, it.message, it.fix)
            })
            .collect()
    }

    #[test]
    fn mistakes_of_the_text_and_of_this_machine_are_told_at_once() {
        let told = told("drain: soon\nlayer2:\n  keyFile: /nowhere/key\nhost: {addresses: [192.0.2.9]}\n");
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].starts_with("1:1: drain: Invalid value"), "{told:?}");
        assert!(told[1].starts_with("3:3: layer2.keyFile: "), "{told:?}");
        assert!(
            told[2].starts_with("4:8: host.addresses: no interface of this machine has 192.0.2.9"),
            "{told:?}"
        );
    }

    #[test]
    fn a_key_in_another_section_is_told_with_its_own() {
        for (text, fix) in [
            ("redirect: true\n", "Did you mean frontDoor.tls.redirect?"),
            ("acme: {email: a@b.example}\n", "Did you mean frontDoor.acme?"),
            ("timeouts: {connect: 5s}\n", "Did you mean defaults.timeouts?"),
            ("frontDoor: {tls: {certificate: a.pem}}\n", "Write frontDoor.certificates"),
            ("backends: [a]\n", "seaway init"),
            ("apiVersion: v1\nkind: Service\n", "Move it to the folder of manifests."),
            ("log:\n\tlevel: info\n", "Indent with spaces"),
        ] {
            let told = told(text);
            assert!(told.len() == 1 && told[0].contains(fix), "{text}: {told:?}");
        }
    }
}
