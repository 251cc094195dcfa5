//! Documents that cannot be used and were probably routes that protect. The names in such a document are all that is known of
//! the Services that it was to protect, so that none of those is opened by its own name in the meantime.

use std::collections::BTreeSet;

use seaway_model::{Kind, Name};
use seaway_plan::annotations::{lets_clients_in, protection_elsewhere};

use super::{InvalidObject, NOT_SERVED, group, misplaced, word};
use crate::tree::Node;

/// In small letters: what only routes have in them.
const OF_ROUTES: [&str; 3] = ["httprout", "backendref", "parentref"];

/// What a document that cannot be used may have been, as its text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnusedRoute {
    /// Each word that may be the name of a Service.
    pub names: BTreeSet<Name>,
}

/// Whether a kind is a route that people expect to be served, and that is not.
pub fn is_unserved_route(root: &Node) -> bool {
    let (Some(version), Some(kind)) = (word(root, "apiVersion"), word(root, "kind")) else { return false };
    let is_route = kind == "Ingress" || kind.ends_with("Route");
    is_route && NOT_SERVED.iter().any(|(of, name, _)| *of == group(version) && *name == kind)
}

/// The route that a broken document may have been, if it was to protect.
pub fn unused_route(text: &str, broken: &[InvalidObject]) -> Option<UnusedRoute> {
    let is_route = |it: &InvalidObject| match &it.reference {
        Some(reference) => reference.kind == Kind::HTTPRoute,
        None => {
            let small = text.to_ascii_lowercase();
            OF_ROUTES.iter().any(|it| small.contains(it))
        }
    };
    broken.iter().any(is_route).then(|| protecting(text)).flatten()
}

/// The names in a text, if it was to protect.
pub fn protecting(text: &str) -> Option<UnusedRoute> {
    let lines = || text.lines().filter(|line| !line.trim_start().starts_with('#'));
    // Few of them differ, however long the document is.
    let keys: BTreeSet<&str> = lines().flat_map(keys).collect();
    if !keys.into_iter().any(protects) {
        return None;
    }
    let words = lines().flat_map(|line| line.split(|it: char| !is_of_name(it)));
    let names = words.filter(|it| !it.is_empty() && !it.starts_with('-') && !it.ends_with('-'));
    Some(UnusedRoute { names: names.map(Name::from).collect() })
}

/// What stands before colons in a line, whether the line is YAML or nearly is.
fn keys(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split(':');
    parts.filter_map(|before| {
        let before = before.trim_end().trim_end_matches(['"', '\'']);
        before.rsplit(|it: char| !(it.is_ascii_alphanumeric() || "./_-".contains(it))).next()
    })
}

fn protects(key: &str) -> bool {
    let ours = misplaced::option_of(key, true);
    ours.is_some() || lets_clients_in(key) || protection_elsewhere(key).is_some()
}

fn is_of_name(it: char) -> bool {
    it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{object, tree};

    fn names_of(text: &str) -> Option<BTreeSet<Name>> {
        let broken = match tree::parse(text) {
            Err(error) => {
                let fault = crate::decode::ValidationError {
                    field: String::new(),
                    at: error.at,
                    message: error.message,
                };
                vec![InvalidObject { reference: None, errors: vec![fault] }]
            }
            Ok(roots) if roots.iter().any(is_unserved_route) => return protecting(text).map(|it| it.names),
            Ok(roots) => roots.iter().flat_map(object::read).filter_map(|it| it.result.err()).collect(),
        };
        unused_route(text, &broken).map(|it| it.names)
    }

    fn route(annotation: &str, spec: &str) -> String {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: admin\n  annotations:\n    \
             {annotation}\nspec:\n  {spec}\n  rules:\n  - backendRefs:\n    - name: back-office\n      port: 80\n"
        )
    }

    #[test]
    fn a_route_that_protects_and_cannot_be_used_names_its_services() {
        let ranges = "seaway.dev/source-ranges: 10.0.0.0/8";
        let typo = route(ranges, "hostname: admin.example");
        for text in [
            typo.clone(),
            route(ranges, "hostnames: [admin.example]").replace("/v1", "/v1beta1"),
            route(ranges, "hostnames: [admin.example]").replace("HTTPRoute", "HttpRoute"),
            route(ranges, "hostnames: [admin.example]").replace("  rules", "\trules"),
            route("team: a", "sourceRanges: [10.0.0.0/8]"),
            route("seaway.io/basic-auth: users", "hostnames: [admin.example]"),
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: a\n  annotations:\n    \
             nginx.ingress.kubernetes.io/auth-type: basic\nspec: {defaultBackend: {service: {name: back-office, port: {number: 80}}}}\n"
                .to_owned(),
        ] {
            let names = names_of(&text).unwrap_or_else(|| panic!("{text}"));
            assert!(names.contains(&Name::from("back-office")), "{names:?}");
        }
        for text in [
            // It protects nothing.
            route("team: a", "hostname: admin.example"),
            typo.replace("    seaway.dev", "    # seaway.dev"),
            // It is used.
            route(ranges, "hostnames: [admin.example]"),
            // It is no route.
            "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 0}], loadBalancerSourceRanges: [10.0.0.0/8]}\n"
                .to_owned(),
            "a: [\nsource-ranges: 10.0.0.0/8\n".to_owned(),
        ] {
            assert_eq!(names_of(&text), None, "{text}");
        }
    }
}
