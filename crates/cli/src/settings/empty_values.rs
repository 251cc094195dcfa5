//! Keys of `seaway.yaml` that have no value, as where all that stands below a key is commented out. Most readers take such a key as left
//! out, so one that restricts or protects is refused here, and every other one is a doubt.

use seaway_manifests::{
    decode::ValidationError,
    tree::{Node, Position, Value},
};
use seaway_model::Reason;

use super::doubts::Doubt;

/// Keys whose default lets in nothing and nobody that a value would keep out: `*` is any item of a list, `**` all that is below. A key
/// that is not listed here needs a value, and so does a new one.
const HARMLESS: [&str; 46] = [
    "manifests",
    "stateDir",
    "snapshot",
    "host",
    "host.name",
    "host.labels.**",
    "dataPlane.**",
    "admin",
    "admin.metrics",
    "log.**",
    "accessLog.**",
    "metrics.**",
    "resolvers",
    "drain",
    "lease",
    "quarantine",
    "cloud.**",
    "nodes.**",
    "pools",
    "pools.grace",
    "layer2",
    "layer2.port",
    "dns",
    "dns.ttl",
    "tcpServices",
    "udpServices",
    "frontDoor",
    "frontDoor.port",
    "frontDoor.stripPrefix",
    "frontDoor.unmatched.**",
    "frontDoor.pages.**",
    "frontDoor.certificates",
    "frontDoor.acme",
    "frontDoor.acme.email",
    "frontDoor.tls.port",
    "frontDoor.requestId",
    "frontDoor.traceparent",
    "frontDoor.forwarded",
    "frontDoor.via",
    "frontDoor.entrances",
    "frontDoor.entrances.*.port",
    "frontDoor.entrances.*.tls.port",
    "frontDoor.entrances.*.certificates",
    "frontDoor.entrances.*.unmatched.**",
    "frontDoor.entrances.*.pages.**",
    "defaults",
];
/// Of `defaults`, what does restrict or protect.
const PROTECTING_DEFAULTS: [&str; 2] = ["limits", "cookieKey"];

const REFUSED: &str = "Required value: this key may restrict or protect, so its default is not used in its place. Give the key a \
                       value, or remove it (what stands below it may be commented out)";
const REFUSED_ITEM: &str = "Required value: this item of the list is empty. Give it a value, or remove it";

/// Adds those that are refused to the other mistakes of the file, in the order of the text. What a reader reported is not said twice.
pub(super) fn refuse(root: &Node, mistakes: &mut Vec<ValidationError>) {
    for EmptyValue { path, at } in found(root).into_iter().filter(|it| !it.is_harmless()) {
        let field = shown(&path);
        let is_reported = |it: &ValidationError| it.at == at || field.starts_with(&format!("{}.", it.field));
        if !mistakes.iter().any(is_reported) {
            let message = if path.last().is_some_and(|it| is_item(it)) { REFUSED_ITEM } else { REFUSED };
            mistakes.push(ValidationError { field, at, message: message.to_owned() });
        }
    }
    mistakes.sort_by_key(|it| it.at);
}

/// The others: their default is used.
pub(super) fn doubts(root: &Node) -> Vec<Doubt> {
    let harmless = found(root).into_iter().filter(EmptyValue::is_harmless);
    let doubt = |it: EmptyValue| {
        Doubt::new(Reason::Ignored, shown(&it.path), "this key has no value, so its default is used")
            .fix("Give the key a value, or remove it (what stands below it may be commented out).")
    };
    harmless.map(doubt).collect()
}

struct EmptyValue {
    path: Vec<String>,
    at: Position,
}

impl EmptyValue {
    fn is_harmless(&self) -> bool {
        if let [first, key, ..] = self.path.as_slice()
            && first.as_str() == "defaults"
        {
            return !PROTECTING_DEFAULTS.contains(&key.as_str());
        }
        HARMLESS.iter().any(|pattern| self.matches(pattern))
    }

    fn matches(&self, pattern: &str) -> bool {
        let (pattern, is_subtree) = match pattern.strip_suffix(".**") {
            Some(above) => (above, true),
            None => (pattern, false),
        };
        let parts: Vec<&str> = pattern.split('.').collect();
        let is_part = |(part, key): (&&str, &String)| **part == **key || *part == "*" && is_item(key);
        let has_length = self.path.len() == parts.len() || is_subtree && self.path.len() > parts.len();
        has_length && parts.iter().zip(&self.path).all(is_part)
    }
}

fn found(root: &Node) -> Vec<EmptyValue> {
    let mut found = Vec::new();
    collect(root, root.at, &mut Vec::new(), &mut found);
    found
}

fn collect(node: &Node, at: Position, path: &mut Vec<String>, found: &mut Vec<EmptyValue>) {
    match &node.value {
        // A file of comments alone is an empty one.
        Value::Null if !path.is_empty() => found.push(EmptyValue { path: path.clone(), at }),
        Value::Map(entries) => {
            for entry in entries {
                path.push(entry.key.clone());
                collect(&entry.value, entry.at, path, found);
                path.pop();
            }
        }
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(format!("[{index}]"));
                collect(item, item.at, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

fn is_item(part: &str) -> bool {
    part.starts_with('[')
}

/// As mistakes name a field: `frontDoor.entrances[0].tls`.
fn shown(path: &[String]) -> String {
    path.iter().fold(String::new(), |text, part| match text.is_empty() || is_item(part) {
        true => text + part,
        false => text + "." + part,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{EXAMPLE, parse_document};
    use super::*;

    /// `Err`: the mistakes; else the doubts, as `line: field`.
    fn read(text: &str) -> Result<Vec<String>, Vec<String>> {
        match parse_document(text, Path::new("")) {
            Ok((_, doubts)) => {
                Ok(doubts.iter().map(|(at, it)| format!("{}: {}", at.line, it.field)).collect())
            }
            Err(mistakes) => Err(mistakes.iter().map(|it| format!("{}: {}", it.at.line, it.field)).collect()),
        }
    }

    #[test]
    fn a_key_without_a_value_that_protects_is_refused_with_its_line() {
        for (text, place) in [
            ("frontDoor:\n  tls:\n    clients:\n#     authorities: ca.pem\n", "3: frontDoor.tls.clients"),
            (
                "frontDoor: {tls: {clients: {authorities: ca.pem, required: }}}",
                "1: frontDoor.tls.clients.required",
            ),
            ("frontDoor:\n  tls:\n#    clients: {authorities: ca.pem}\n", "2: frontDoor.tls"),
            ("frontDoor:\n  trusted: ~\n", "2: frontDoor.trusted"),
            ("frontDoor:\n  trusted:\n  - 10.0.0.0/8\n  - # 10.1.0.0/16\n", "4: frontDoor.trusted[1]"),
            ("frontDoor: {addresses: }", "1: frontDoor.addresses"),
            ("frontDoor: {hostOwners: {others: }}", "1: frontDoor.hostOwners.others"),
            (
                "frontDoor:\n  entrances:\n  - name: a\n    port: 1\n    tls:\n      port: 2\n      redirect:\n",
                "7: frontDoor.entrances[0].tls.redirect",
            ),
            ("tenants:\n", "1: tenants"),
            ("tenants: {transparentFrom: }", "1: tenants.transparentFrom"),
            ("limits: {memory: }", "1: limits.memory"),
            ("defaults: {limits: {connections: }}", "1: defaults.limits.connections"),
            ("host: {addresses: }", "1: host.addresses"),
            ("loadBalancerClasses:\n", "1: loadBalancerClasses"),
            ("certificateCopies:\n", "1: certificateCopies"),
            ("adopt: {only: {namespaces: }}", "1: adopt.only.namespaces"),
            ("tcpServices: [{service: a, port: 1, address: }]", "1: tcpServices[0].address"),
        ] {
            assert_eq!(read(text), Err(vec![place.to_owned()]), "{text}");
        }
    }

    #[test]
    fn another_key_without_a_value_has_its_default_and_is_a_doubt() {
        for (text, place) in [
            ("host:\n# name: a\n", "1: host"),
            ("log: {level: }", "1: log.level"),
            ("frontDoor: {certificates: }", "1: frontDoor.certificates"),
            (
                "frontDoor:\n  entrances:\n  - {name: a, port: 1, tls: {port: 2}, pages: }\n",
                "3: frontDoor.entrances[0].pages",
            ),
            ("defaults: {timeouts: {connect: }}", "1: defaults.timeouts.connect"),
        ] {
            assert_eq!(read(text), Ok(vec![place.to_owned()]), "{text}");
        }
        for text in ["", "# nothing\n", "host: {}\n", EXAMPLE] {
            assert_eq!(read(text), Ok(Vec::new()), "{text}");
        }
    }

    #[test]
    fn a_mistake_that_the_reader_reports_is_not_said_twice() {
        for (text, place) in [
            ("frontDoor: {tls: {clients: {authorities: }}}", "1: frontDoor.tls.clients.authorities"),
            ("frontDoor: {tsl: {clients: }}", "1: frontDoor.tsl"),
            ("frontDoor: {clients: }", "1: frontDoor.clients"),
        ] {
            assert_eq!(read(text), Err(vec![place.to_owned()]), "{text}");
        }
    }

    /// Every key that there is, each in its turn without its value.
    #[test]
    fn no_key_without_a_value_is_passed_over() {
        let text = crate::schema::config::in_force();
        let [root] = &seaway_manifests::tree::parse(&text).expect("is right")[..] else {
            panic!("one document")
        };
        let mut all = Vec::new();
        keys(root, &mut Vec::new(), &mut all);
        assert!(all.len() > 150, "{}", all.len());
        for path in all {
            let mut root = root.clone();
            *at(&mut root, &path) = Value::Null;
            let mut mistakes = Vec::new();
            refuse(&root, &mut mistakes);
            assert_eq!(mistakes.len() + doubts(&root).len(), 1, "{path:?}");
        }
    }

    fn keys(node: &Node, path: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        let below: Vec<&Node> = match &node.value {
            Value::Map(entries) => entries.iter().map(|it| &it.value).collect(),
            Value::List(items) => items.iter().collect(),
            _ => Vec::new(),
        };
        for (index, node) in below.into_iter().enumerate() {
            path.push(index);
            all.push(path.clone());
            keys(node, path, all);
            path.pop();
        }
    }

    fn at<'n>(node: &'n mut Node, path: &[usize]) -> &'n mut Value {
        let Some((first, rest)) = path.split_first() else { return &mut node.value };
        match &mut node.value {
            Value::Map(entries) => at(&mut entries[*first].value, rest),
            Value::List(items) => at(&mut items[*first], rest),
            _ => panic!("there is nothing below"),
        }
    }
}
