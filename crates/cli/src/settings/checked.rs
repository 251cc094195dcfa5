//! `seaway.yaml` as `check` and `config --check` read it: all mistakes at once, each with its place, and what could be read.

use std::path::{Path, PathBuf};

use seaway_manifests::{
    decode::{PathPart, ValidationError},
    hint,
    tree::{Node, Position, Value},
};
use seaway_model::{Kind, ObjectRef, Problem, Reason};

use super::{EXAMPLE, Settings, documents, doubts, fields_read, read_document, second_document};

/// What a file says, as far as it can be read, and all that is wrong with it.
#[derive(Default)]
pub(crate) struct CheckedSettings {
    pub(crate) settings: Settings,
    pub(crate) problems: Vec<Problem>,
    /// Where what stands, for Problems that planning finds.
    pub(crate) places: Option<ConfigPlaces>,
}

pub(crate) fn read_checked(file: &Path) -> CheckedSettings {
    let shown = file.display().to_string();
    let object = ObjectRef::new(Kind::Config, "", shown.as_str());
    let only = |problem: Problem| CheckedSettings { problems: vec![problem], ..CheckedSettings::default() };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            return only(Problem::new(object, Reason::Unreadable, error.to_string()).in_file(shown, 0, 0));
        }
    };
    let at = |problem: Problem, at: Position| problem.in_file(shown.as_str(), at.line, at.column);
    let of_mistake = |mistake: &ValidationError| {
        let problem = Problem::new(object.clone(), Reason::Invalid, mistake.message.clone());
        let fix = hint(mistake).or_else(|| elsewhere(mistake)).unwrap_or_default();
        at(problem.at(mistake.field.as_str()).fix(fix), mistake.at)
    };
    let roots = match documents(&text) {
        Ok(roots) => roots,
        Err(mistake) => return only(of_mistake(&mistake)),
    };
    if let [_, second, ..] = roots.as_slice() {
        return only(of_mistake(&second_document(second)));
    }
    let Some(root) = roots.into_iter().next() else { return CheckedSettings::default() };
    if root.child("apiVersion").is_some() && root.child("kind").is_some() {
        let problem = Problem::new(object, Reason::Invalid, "this is a manifest, not a configuration")
            .fix("Move it to the folder of manifests. seaway config --example prints a configuration.");
        return only(at(problem, root.at));
    }
    let beside = file.parent().unwrap_or(Path::new(""));
    let (settings, mistakes) = read_document(&root, beside);
    let mut problems: Vec<Problem> = mistakes.iter().map(of_mistake).collect();
    for doubt in doubts::of_text(&root, &settings).into_iter().chain(doubts::of_machine(&settings)) {
        let problem = Problem::new(object.clone(), doubt.reason, doubt.message).at(doubt.field.as_str());
        let written = entrance_field(&root, &doubt.field).unwrap_or(doubt.field);
        problems.push(at(problem.fix(doubt.fix), root.position_of(&written)));
    }
    problems.sort_by(|a, b| a.place.cmp(&b.place));
    problems.dedup();
    let places = ConfigPlaces { file: shown, beside: beside.to_owned(), root };
    CheckedSettings { settings, problems, places: Some(places) }
}

/// Where in the configuration its keys stand, and the files that it names.
pub(crate) struct ConfigPlaces {
    file: String,
    beside: PathBuf,
    root: Node,
}

impl ConfigPlaces {
    /// Gives Problems of the configuration, and of certificates in files, the place of their key.
    pub(crate) fn locate(&self, problems: &mut [Problem]) {
        for problem in problems {
            let at = match problem.object.kind {
                Kind::Config if problem.place.is_none() => {
                    self.name_entrance(problem);
                    let begins = problem.field.split(['.', '[']).next().unwrap_or_default();
                    let is_field = self.root.entry(begins).is_some();
                    Some(self.root.position_of(if is_field { &problem.field } else { &problem.object.name }))
                }
                Kind::File => self.position_of_file(problem),
                _ => None,
            };
            if let Some(at) = at {
                *problem = problem.clone().in_file(self.file.as_str(), at.line, at.column);
            }
        }
    }

    /// Problems call an entrance by its name, `frontDoor.entrances[NAME]`, and the configuration has a list of them.
    fn name_entrance(&self, problem: &mut Problem) {
        let Some(name) = problem.object.name.strip_prefix("frontDoor.") else { return };
        if problem.field.starts_with(&*format!("frontDoor.entrances[{name}]"))
            && let Some(field) = entrance_field(&self.root, &problem.field)
        {
            problem.field = field.into();
        }
    }

    /// Of a certificate with its key, the one of the two that the Problem is about.
    fn position_of_file(&self, problem: &Problem) -> Option<Position> {
        let names = |it: &Node, path: &str| match &it.value {
            Value::Text(text) => self.beside.join(text).display().to_string() == path,
            _ => false,
        };
        let mut maps = Vec::new();
        collect_maps(self.root.child("frontDoor")?, &mut maps);
        let map = maps
            .into_iter()
            .find(|it| it.entries().iter().any(|it| names(&it.value, &problem.object.name)))?;
        let unreadable = problem.place.as_ref().map_or("", |it| &it.file);
        let of_key = map.entry("key").filter(|_| *problem.field == *"tls.key");
        let part = map.entries().iter().find(|it| names(&it.value, unreadable));
        let whole = map.entries().iter().find(|it| names(&it.value, &problem.object.name));
        of_key.or(part).or(whole).map(|it| it.at)
    }
}

/// `frontDoor.entrances[NAME].addresses` with the place of that entrance in the list.
fn entrance_field(root: &Node, field: &str) -> Option<String> {
    let (name, below) = field.strip_prefix("frontDoor.entrances[")?.split_once(']')?;
    let Value::List(items) = &root.child("frontDoor")?.child("entrances")?.value else { return None };
    let is_it = |it: &Node| it.child("name").is_some_and(|it| it.value == Value::Text(name.to_owned()));
    let index = items.iter().position(is_it)?;
    Some(format!("frontDoor.entrances[{index}]{below}"))
}

fn collect_maps<'n>(node: &'n Node, maps: &mut Vec<&'n Node>) {
    match &node.value {
        Value::Map(entries) => {
            maps.push(node);
            entries.iter().for_each(|it| collect_maps(&it.value, maps));
        }
        Value::List(items) => items.iter().for_each(|it| collect_maps(it, maps)),
        _ => {}
    }
}

/// The places where a key is known that stands where it is not.
fn elsewhere(mistake: &ValidationError) -> Option<String> {
    let is_certificates = mistake.field.starts_with("frontDoor.") && mistake.field.contains("certificates");
    if is_certificates && mistake.message.contains("must be a") {
        return Some(
            "Write certificates: [{cert: shop.pem, key: shop.key}], or [{secret: default/shop-tls}]."
                .to_owned(),
        );
    }
    if !mistake.message.starts_with("unknown field") || mistake.message.contains("did you mean") {
        return None;
    }
    let key = mistake.field.rsplit('.').next()?;
    let instead = match key {
        // Elsewhere, `listen` is what the status page has, which asks for no password.
        "listen" | "bind" if mistake.field.starts_with("frontDoor") => {
            "`addresses`, a list, and `port` and `tls.port`"
        }
        "certificate" | "certs" | "ssl" | "tls" | "cert" | "key" | "crt" | "certFile" | "keyFile"
            if key.len() > 3 || mistake.field.starts_with("frontDoor") =>
        {
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
        let checked = read_checked(&file);
        checked
            .problems
            .iter()
            .map(|it| {
                let place = it.place.as_ref().map(|it| (it.line, it.column)).unwrap_or_default();
                format!("{}:{}: {}: {} {}", place.0, place.1, it.field, it.message, it.fix)
            })
            .collect()
    }

    #[test]
    fn where_the_front_door_listens_is_said_by_addresses_and_ports() {
        for key in ["listen", "bind"] {
            let found = told(&format!("frontDoor:\n  {key}: 192.0.2.1\n"));
            assert!(
                found[0].ends_with(" Write `addresses`, a list, and `port` and `tls.port`."),
                "{found:?}"
            );
        }
        assert!(told("listen: 127.0.0.1:1936\n")[0].ends_with("Did you mean admin.listen?"));
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
    fn problems_of_planning_have_the_place_of_their_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("seaway.yaml");
        let text = "manifests: nowhere\ntcpServices:\n- a:1\n- b:2\nfrontDoor:\n  certificates:\n  - cert: a.pem\n    \
                    key: a.key\n  entrances:\n  - name: one\n    port: 1\n    tls: {port: 2}\n  - name: two\n    port: 3\n    \
                    certificates:\n    - secret: x/y\n    tls: {port: 4, clients: {authorities: ca.pem}}\n";
        std::fs::write(&file, text).expect("written");
        let places = read_checked(&file).places.expect("it was read");
        let config = |name: &str, field: &str| {
            Problem::new(ObjectRef::new(Kind::Config, "", name), Reason::Invalid, "wrong").at(field)
        };
        let of_file = |name: &str, field: &str| {
            let name = folder.path().join(name).display().to_string();
            Problem::new(ObjectRef::new(Kind::File, "", name), Reason::Invalid, "wrong").at(field)
        };
        let unreadable = folder.path().join("a.key").display().to_string();
        for (problem, line, field) in [
            (config("manifests", ""), 1, ""),
            (config("tcpServices[1]", "tcpServices[1]"), 4, "tcpServices[1]"),
            (config("tcpServices[1]", "spec.ports"), 4, "spec.ports"),
            (config("frontDoor", "frontDoor.certificates[0].cert"), 7, "frontDoor.certificates[0].cert"),
            (
                config("frontDoor.two", "frontDoor.entrances[two].certificates[0].secret"),
                16,
                "frontDoor.entrances[1].certificates[0].secret",
            ),
            (of_file("a.pem", ""), 7, ""),
            (of_file("a.pem", "tls.key"), 8, "tls.key"),
            (of_file("a.pem", "").in_file(unreadable, 0, 0), 8, ""),
            (of_file("ca.pem", "ca.crt"), 17, "ca.crt"),
        ] {
            let mut problems = [problem];
            places.locate(&mut problems);
            let [problem] = problems;
            let place = problem.place.clone().expect("it has a place");
            assert!(place.file.ends_with("seaway.yaml"), "{problem:?}");
            assert_eq!((place.line, problem.field.as_str()), (line, field), "{problem:?}");
        }
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
