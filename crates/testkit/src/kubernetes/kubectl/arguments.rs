//! The arguments of kubectl, as far as tests use them.

use std::collections::BTreeMap;

use super::super::api::DEFAULT;

/// Flags that are followed by their value, each with the name by which it is kept.
const VALUED: [(&str, &str); 18] = [
    ("-n", "-n"),
    ("--namespace", "-n"),
    ("-o", "-o"),
    ("--output", "-o"),
    ("-p", "-p"),
    ("--patch", "-p"),
    ("-f", "-f"),
    ("--filename", "-f"),
    ("-l", "-l"),
    ("--selector", "-l"),
    ("--type", "--type"),
    ("--subresource", "--subresource"),
    ("--field-selector", "--field-selector"),
    ("--clusterrole", "--clusterrole"),
    ("--role", "--role"),
    ("--user", "--user"),
    ("--serviceaccount", "--serviceaccount"),
    ("--group", "--group"),
];
/// Flags that are so without a value.
const SET: [&str; 3] = ["--wait", "--ignore-not-found", "--overwrite"];

#[derive(Debug)]
pub(super) struct Arguments<'a> {
    pub(super) verb: &'a str,
    /// All that is no flag.
    pub(super) words: Vec<&'a str>,
    flags: BTreeMap<&'static str, &'a str>,
}

impl<'a> Arguments<'a> {
    /// Nothing, if there is something that is not known here, or is said twice.
    pub(super) fn read(arguments: &[&'a str]) -> Option<Arguments<'a>> {
        let (mut words, mut flags) = (Vec::new(), BTreeMap::new());
        let mut rest = arguments.iter().copied();
        while let Some(argument) = rest.next() {
            if !argument.starts_with('-') || argument == "-" {
                words.push(argument);
                continue;
            }
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (argument, None),
            };
            let (name, value) = match VALUED.iter().find(|(it, _)| *it == name) {
                Some((_, name)) => (*name, value.or_else(|| rest.next())?),
                None => (*SET.iter().find(|it| **it == name)?, value.unwrap_or("true")),
            };
            if flags.insert(name, value).is_some() {
                return None;
            }
        }
        let verb = (!words.is_empty()).then(|| words.remove(0))?;
        Some(Arguments { verb, words, flags })
    }

    pub(super) fn flag(&self, name: &str) -> Option<&'a str> {
        self.flags.get(name).copied()
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.flag(name) == Some("true")
    }

    pub(super) fn has_only(&self, names: &[&str]) -> bool {
        self.flags.keys().all(|it| names.contains(it))
    }

    pub(super) fn namespace(&self) -> &'a str {
        self.flag("-n").unwrap_or(DEFAULT)
    }

    pub(super) fn objects(&self) -> Vec<(&'a str, &'a str)> {
        objects(&self.words)
    }
}

/// `KIND NAME...` or `KIND/NAME...`, each kind with its name.
pub(super) fn objects<'a>(words: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    if words.iter().any(|it| it.contains(',')) {
        return Vec::new();
    }
    match words {
        [kind, names @ ..] if words.iter().all(|it| !it.contains('/')) => {
            names.iter().map(|name| (*kind, *name)).collect()
        }
        _ => words.iter().map(|it| it.split_once('/')).collect::<Option<_>>().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &'static str) -> Option<Arguments<'static>> {
        Arguments::read(&line.split(' ').collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_read_wherever_they_stand() {
        let read = read("-n team delete service a b --wait=false --ignore-not-found").expect("it is known");
        assert_eq!((read.verb, read.namespace()), ("delete", "team"));
        assert_eq!(read.objects(), [("service", "a"), ("service", "b")]);
        assert!(read.flag("--wait") == Some("false") && read.is_set("--ignore-not-found"));
        assert!(read.has_only(&["-n", "--wait", "--ignore-not-found"]) && !read.has_only(&["-n", "--wait"]));
    }

    #[test]
    fn objects_are_named_in_two_ways() {
        let of = |line| read(line).map(|it| it.objects()).expect("it is known");
        assert_eq!(of("delete service/a deployment/b"), [("service", "a"), ("deployment", "b")]);
        assert_eq!(of("get pods"), []);
        assert_eq!(of("get pods,services a"), []);
        assert_eq!(of("delete service/a b"), []);
    }

    #[test]
    fn what_is_not_known_is_left_to_kubectl() {
        for line in ["get pods -A", "get pods --as=ada", "-n a get -n b pods", "get pods -n", "--raw"] {
            assert!(read(line).is_none(), "{line}");
        }
    }
}
