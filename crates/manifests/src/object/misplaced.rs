//! Unknown fields by which somebody meant to protect a Service or a route, or to narrow a route: misspelt ones, those in the wrong
//! place, and annotations that stand elsewhere. `kubectl apply` refuses them; in a folder they close the object.

use seaway_model::Kind;
use seaway_plan::annotations::{ENTRANCE, INTERNAL, SOURCE_RANGES, TLS, lets_clients_in, meant, name_of};

use super::{
    known_fields::UnknownField,
    likely_mistakes::{RESTRICTS, UNTIL_CORRECTED, is_said, is_set},
};
use crate::{
    decode::{ValidationError, nearest},
    tree::{Entry, Node, Value},
};

/// The field of a Service that says who may connect.
const RANGES: &str = "loadBalancerSourceRanges";
/// Of Traefik: they may ask for a password, or limit. There is nothing of ours for them all.
const MIDDLEWARES: &str = "middlewares";
/// Of a route's spec, and what others call its host names.
const NARROWING: [&str; 7] =
    ["hostnames", "hostname", "hosts", "host", "rules", "parentRefs", "loadBalancerSourceRanges"];
/// The end of a message about a route that is not used for it.
pub const NOT_USED: &str =
    ". It may restrict access to the route, or narrow it, so the route is not used as it is written here";

/// What is said where an unknown field closes its object; nothing, where the rest of the object counts.
pub(super) fn closing_error(
    kind: Kind,
    unknown: &UnknownField<'_>,
    object: &Node,
) -> Option<ValidationError> {
    let option = protects(unknown.entry, object);
    let then = match kind {
        Kind::Service if option.is_some() => [RESTRICTS, UNTIL_CORRECTED].concat(),
        Kind::HTTPRoute if option.is_some() || narrows(&unknown.above, &unknown.entry.key) => {
            NOT_USED.to_owned()
        }
        _ => return None,
    };
    let message = unknown.fault.message.replace("unknown field, which is ignored", "unknown field");
    let hint = option.filter(|_| !message.contains("did you mean"));
    let hint = hint.map_or(String::new(), |option| match option {
        "" => " (settings of Seaway are annotations)".to_owned(),
        INTERNAL => format!(" (did you mean the annotation {ENTRANCE}?)"),
        option => format!(" (did you mean the annotation {option}?)"),
    });
    Some(ValidationError { message: format!("{message}{hint}{then}"), ..unknown.fault.clone() })
}

/// Whether a route without the field may take more requests. A rule answers 500 for what is unknown in it.
fn narrows(above: &str, key: &str) -> bool {
    match above {
        "spec" => true,
        "" | "metadata" => nearest(key, &NARROWING).is_some(),
        _ => false,
    }
}

/// The option that was to protect the object, unless it is said where it belongs.
fn protects(entry: &Entry, object: &Node) -> Option<&'static str> {
    let is_missing = |option: &&'static str| match *option {
        INTERNAL => ![INTERNAL, ENTRANCE, SOURCE_RANGES].into_iter().any(|it| is_said(object, it)),
        option => !is_said(object, option),
    };
    let option = nearest(&entry.key, &[RANGES]).map(|_| SOURCE_RANGES);
    let option = option.or_else(|| option_of(&entry.key, true));
    let option = option.or_else(|| (entry.key == MIDDLEWARES).then_some(""));
    let option = option.filter(|it| asks(it, entry));
    // Below `annotation`, our own names need no prefix.
    let is_plain = nearest(&entry.key, &["annotations"]).is_some();
    let plain = |key: &str| {
        let ours = |option: &&str| option.strip_prefix("seaway.dev/") == Some(key) && lets_clients_in(option);
        meant(key).ours.filter(|it| is_plain && ours(it))
    };
    let below =
        || first_key(&entry.value, &|key| option_of(key, false).or_else(|| plain(key)).filter(is_missing));
    option.filter(is_missing).or_else(below)
}

/// Whether a field asks for what it is called: `internal: false` does not.
pub(super) fn asks(option: &str, entry: &Entry) -> bool {
    let is_nothing = match &entry.value.value {
        Value::Null | Value::Bool(false) => true,
        Value::List(items) => items.is_empty(),
        _ => !is_set(entry),
    };
    !(is_nothing && ["", INTERNAL, ENTRANCE].contains(&option))
}

/// The option that a key stands for, if it protects. Without a prefix, other programs have settings of the same names.
pub(super) fn option_of(key: &str, plain_too: bool) -> Option<&'static str> {
    match name_of(key) {
        Some(name) => meant(&name).protection(),
        None if plain_too && !key.contains('/') => {
            meant(key).protection().filter(|it| lets_clients_in(it) || [TLS, INTERNAL].contains(it))
        }
        None => None,
    }
}

pub(super) fn has_ranges(object: &Node) -> bool {
    let ranges = object.child("spec").and_then(|it| it.child(RANGES));
    ranges.is_some_and(|it| matches!(&it.value, Value::List(items) if !items.is_empty()))
}

fn first_key(node: &Node, option: &impl Fn(&str) -> Option<&'static str>) -> Option<&'static str> {
    match &node.value {
        Value::Map(entries) => {
            entries.iter().find_map(|it| option(&it.key).or_else(|| first_key(&it.value, option)))
        }
        Value::List(items) => items.iter().find_map(|it| first_key(it, option)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::Fact;

    use super::super::tests::read_text;

    #[test]
    fn a_field_that_was_to_protect_a_service_closes_it_wherever_it_stands() {
        let text = |metadata: &str, spec: &str, top: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  {metadata}\nspec:\n  type: LoadBalancer\n  ports: [{{port: 80}}]\n  {spec}\n{top}\n"
            )
        };
        let ranges = "[10.0.0.0/8]";
        for (metadata, spec, top, is_served) in [
            ("", format!("loadBalancerSourceRange: {ranges}"), "", false),
            ("", format!("LoadBalancerSourceRanges: {ranges}"), "", false),
            ("", format!("loadbalancersourceranges: {ranges}"), "", false),
            ("", format!("sourceRanges: {ranges}"), "", false),
            ("", format!("allowedSourceRanges: {ranges}"), "", false),
            ("", "basicAuth: users".into(), "", false),
            ("", "tls: shop-tls".into(), "", false),
            ("", "internal: true".into(), "", false),
            ("", "internalOnly: true".into(), "", false),
            ("", "private: true".into(), "", false),
            ("", "middlewares: [{name: auth}]".into(), "", false),
            ("", "internal: false".into(), "", true),
            ("", "private: false".into(), "", true),
            ("", "middlewares: []".into(), "", true),
            ("", "interval: 5s".into(), "", true),
            ("annotations: {seaway.dev/entrance: inside}", "internal: true".into(), "", true),
            ("loadBalancerSourceRanges: [10.0.0.0/8]", String::new(), "", false),
            ("", String::new(), "loadBalancerSourceRanges: [10.0.0.0/8]", false),
            ("annotation: {seaway.dev/source-ranges: 10.0.0.0/8}", String::new(), "", false),
            ("annotation: {source-ranges: 10.0.0.0/8}", String::new(), "", false),
            ("seaway.dev/source-ranges: 10.0.0.0/8", String::new(), "", false),
            ("", "annotations: {seaway.dev/basic-auth: users}".into(), "", false),
            ("", "template: {metadata: {annotations: {seaway.dev/basic-auth: users}}}".into(), "", false),
            ("", String::new(), "annotations: {seaway.dev/source-ranges: 10.0.0.0/8}", false),
            ("annotations: {seaway.dev.source-ranges: 10.0.0.0/8}", String::new(), "", false),
            (
                "annotations: {seaway.dev/source-ranges: 10.0.0.0/8}",
                format!("sourceRanges: {ranges}"),
                "",
                true,
            ),
            (
                "",
                format!("loadBalancerSourceRange: {ranges}\n  loadBalancerSourceRanges: {ranges}"),
                "",
                true,
            ),
            ("", "annotations: {seaway.dev/balance: first}".into(), "", true),
            ("annotation: {tls: a, other.example/auth: b}", String::new(), "", true),
            ("", "selektor: {auth: a}".into(), "", true),
            ("lables: {app: auth, auth: oidc}", String::new(), "", true),
        ] {
            let text = text(metadata, &spec, top);
            let reading = read_text(&text).remove(0);
            let Ok(object) = reading.result else { panic!("{text}: {reading:?}") };
            let Some(Fact::Service(service)) = object.facts.first() else { panic!("{object:?}") };
            assert_eq!(!service.unclear_sources, is_served, "{text}");
            let said = reading.ignored.iter().any(|it| it.message.ends_with(super::UNTIL_CORRECTED));
            assert_eq!(said, !is_served, "{text}: {:?}", reading.ignored);
        }
    }

    #[test]
    fn a_route_that_may_be_wider_than_it_was_meant_is_not_used() {
        let text = |metadata: &str, spec: &str, top: &str| {
            format!(
                "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: a\n  {metadata}\nspec:\n  \
                 rules: [{{backendRefs: [{{name: web, port: 80}}]}}]\n  {spec}\n{top}\n"
            )
        };
        for (metadata, spec, top, is_used) in [
            ("", "hostname: [a.example]", "", false),
            ("", "domains: [a.example]", "", false),
            ("", "loadBalancerSourceRanges: [10.0.0.0/8]", "", false),
            ("", "rule: []", "", false),
            ("", "", "hostnames: [a.example]", false),
            ("hostnames: [a.example]", "", "", false),
            ("annotation: {seaway.dev/source-ranges: 10.0.0.0/8}", "", "", false),
            ("", "hostnames: [a.example]", "", true),
            ("labls: {a: b}", "", "", true),
            ("", "", "note: none", true),
        ] {
            let text = text(metadata, spec, top);
            let reading = read_text(&text).remove(0);
            assert_eq!(reading.result.is_ok(), is_used, "{text}: {reading:?}");
            let Err(broken) = reading.result else { continue };
            assert!(broken.errors[0].message.ends_with(super::NOT_USED), "{broken:?}");
            assert_eq!(broken.reference.expect("it has a name").name.as_str(), "a");
        }
    }
}
