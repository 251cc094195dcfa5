//! Routes that protect and cannot be used: broken ones, and those of kinds that are not served. The Services that such a route names
//! are not opened by their own names in the meantime.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
};

use seaway_model::{Kind, ObjectRef};
use seaway_plan::{
    ServiceKey,
    annotations::{
        BODY_SIZE, INTERNAL, TLS, is_unknown, lets_clients_in, protection_elsewhere, protection_of_label,
        protects,
    },
    spelling::distance,
};

use super::{
    likely_mistakes::{is_internal, is_set},
    misplaced,
    unserved_kinds::leads_to_services,
    word,
};
use crate::{
    decode::ValidationError,
    tree::{Entry, Node, Position, Value},
};

/// The Services that a route was to protect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedRoute {
    pub at: Position,
    pub services: BTreeSet<ServiceKey>,
}

/// What only routes have.
const OF_ROUTES: [&str; 2] = ["backendRefs", "parentRefs"];
/// Below these, a name is that of a Service.
const TO_SERVICES: [&str; 9] = [
    "backendRefs",
    "backendRef",
    "backend",
    "backends",
    "defaultBackend",
    "alternateBackends",
    "service",
    "services",
    "to",
];
/// By which routes of other programs ask for a password, or limit.
const POLICIES: [&str; 6] =
    ["middlewares", "policies", "plugins", "plugin_config_name", "authentication", "authorization"];
/// Fields of routes whose words say something else elsewhere.
const OF_CORS: [&str; 4] = ["allowCredentials", "allowHeaders", "allowMethods", "allowOrigins"];

/// The objects of a document: those of lists, too.
pub fn objects(root: &Node) -> Vec<&Node> {
    let items = match &root.value {
        Value::List(items) => Some(items),
        _ => match root.child("items").map(|it| &it.value) {
            Some(Value::List(items)) if word(root, "kind").is_some_and(|it| it.ends_with("List")) => {
                Some(items)
            }
            _ => None,
        },
    };
    items.map_or_else(|| vec![root], |items| items.iter().collect())
}

/// The route that an object is, which is not used, if it was to protect. `at`: where people look for the mistake.
pub fn unused_route(object: &Node, at: Position) -> Option<UnusedRoute> {
    if !is_route(object) || !is_protecting(object) {
        return None;
    }
    let metadata = object.child("metadata");
    let own = metadata.and_then(|it| word(it, "namespace")).unwrap_or(DEFAULT);
    let mut services = BTreeSet::new();
    find_services(object, own, false, &mut services);
    Some(UnusedRoute { at, services })
}

/// The HTTPRoute that an object of a kind that is not read may have been before it was edited, and what is wrong with it now.
pub fn replaced_route(object: &Node) -> Option<(ObjectRef, ValidationError)> {
    let (kind, metadata) = (object.child("kind")?, object.child("metadata")?);
    let (name, version) = (word(object, "kind")?, word(object, "apiVersion").unwrap_or_default());
    let namespace = word(metadata, "namespace").unwrap_or(DEFAULT);
    let route = ObjectRef::new(Kind::HTTPRoute, namespace, word(metadata, "name")?);
    let message = format!(
        "{name} of {version:?} is not served, and this object was an HTTPRoute that restricts access"
    );
    Some((route, ValidationError { field: "kind".to_owned(), at: kind.at, message }))
}

pub(super) const DEFAULT: &str = "default";

fn is_route(object: &Node) -> bool {
    let kind = word(object, "kind").unwrap_or_default();
    leads_to_services(kind)
        || distance(&kind.to_ascii_lowercase(), "httproute") <= 2
        || any_entry(object, &|it| OF_ROUTES.contains(&it.key.as_str()))
}

/// An object with more different keys may protect: they are not looked at.
const MOST_KEYS: usize = 1_000;

fn is_protecting(object: &Node) -> bool {
    let metadata = object.child("metadata").map(Node::entries).unwrap_or_default();
    let below =
        |key: &'static str| metadata.iter().filter(move |it| it.key == key).flat_map(|it| it.value.entries());
    let spec = object.child("spec").map(Node::entries).unwrap_or_default();
    // Each key is compared with all annotations, and once: an object has few different ones, or it is not understood.
    let options: RefCell<HashMap<String, Option<&'static str>>> = RefCell::default();
    let is_misplaced = |it: &Entry| {
        let known = options.borrow().get(&it.key).copied();
        if known.is_none() && options.borrow().len() >= MOST_KEYS {
            return true;
        }
        let option = known.unwrap_or_else(|| {
            let option = misplaced::option_of(&it.key, true).filter(|option| *option != TLS);
            options.borrow_mut().insert(it.key.clone(), option);
            option
        });
        option.is_some_and(|option| misplaced::asks(option, it)) && !OF_CORS.contains(&it.key.as_str())
    };
    let is_of_clients = |label: &str| protection_of_label(label).is_some_and(|it| it != BODY_SIZE);
    below("annotations").any(|it| is_set(it) && is_protection(&it.key) || is_internal(it))
        || below("labels").any(|it| protects(&it.key) || is_set(it) && (it.key == INTERNAL || is_of_clients(&it.key)))
        || object.entries().iter().chain(metadata).chain(spec).any(is_misplaced)
        // `annotation`, `annotations` below spec or at the top, and middlewares, wherever they stand.
        || any_entry(object, &|it| it.key == "middlewares" || it.key.contains('/') && is_set(it) && is_protection(&it.key))
        || is_of_others(object) && any_entry(object, &|it| POLICIES.contains(&it.key.as_str()) || is_misplaced(it))
}

/// Routes of other programs have fields where ours have annotations.
fn is_of_others(object: &Node) -> bool {
    let kind = word(object, "kind").unwrap_or_default();
    leads_to_services(kind) && kind != "HTTPRoute" && !kind.eq_ignore_ascii_case("Ingress")
}

/// Whether an annotation protects: ours, nearly ours, one of ours that there is not, or that of another program.
fn is_protection(key: &str) -> bool {
    protects(key)
        || lets_clients_in(key)
        || is_unknown(key)
        || misplaced::option_of(key, false).is_some()
        || key == INTERNAL
        || protection_elsewhere(key).is_some_and(|it| it != BODY_SIZE)
}

fn any_entry(node: &Node, is_it: &impl Fn(&Entry) -> bool) -> bool {
    match &node.value {
        Value::Map(entries) => entries.iter().any(|it| is_it(it) || any_entry(&it.value, is_it)),
        Value::List(items) => items.iter().any(|it| any_entry(it, is_it)),
        _ => false,
    }
}

fn find_services(node: &Node, own: &str, is_service: bool, found: &mut BTreeSet<ServiceKey>) {
    match &node.value {
        Value::Map(entries) => {
            let namespace = word(node, "namespace").unwrap_or(own);
            let name = ["name", "serviceName"].into_iter().find_map(|key| word(node, key));
            if let Some(name) = name.filter(|_| is_service) {
                found.insert(ServiceKey::new(namespace, name));
            }
            for it in entries {
                // nginx and Istio have names and hosts in place of references.
                let named = match it.key.as_str() {
                    "service" => word(node, "service"),
                    "destination" => word(&it.value, "host"),
                    _ => None,
                };
                found.extend(named.and_then(|it| of_host(it, own)));
                let is_port = it.key == "port";
                let leads = (is_service && !is_port) || TO_SERVICES.contains(&it.key.as_str());
                find_services(&it.value, own, leads, found);
            }
        }
        Value::List(items) => items.iter().for_each(|it| find_services(it, own, is_service, found)),
        _ => {}
    }
}

/// The Service of `reviews`, `reviews:80`, `reviews.shop` or `reviews.shop.svc.cluster.local`.
fn of_host(host: &str, own: &str) -> Option<ServiceKey> {
    let mut parts = host.split(':').next()?.split('.');
    let name = parts.next().filter(|it| !it.is_empty())?;
    Some(ServiceKey::new(parts.next().unwrap_or(own), name))
}

/// The same of a text that is no YAML: what stands in its lines is all that is known.
pub fn unused_route_in_text(text: &str, at: Position) -> Option<UnusedRoute> {
    let keys = || lines_of(text).flat_map(|line| pairs(line).map(|(key, ..)| key));
    let is_route =
        keys().any(|it| OF_ROUTES.contains(&it)) || text.to_ascii_lowercase().contains("httproute");
    if !is_route || !is_protecting_text(text) {
        return None;
    }
    let values = |key: &'static str| {
        let all = lines_of(text).flat_map(pairs).filter(move |it| it.0 == key && !it.1.is_empty());
        all.map(|it| it.1)
    };
    let mut namespaces: BTreeSet<&str> = values("namespace").collect();
    if namespaces.is_empty() {
        namespaces.insert(DEFAULT);
    }
    let of = |name: &str| namespaces.iter().map(|it| ServiceKey::new(*it, name)).collect::<Vec<_>>();
    Some(UnusedRoute { at, services: values("name").flat_map(of).collect() })
}

/// Whether a line has a key of something that protects.
pub(super) fn is_protecting_text(text: &str) -> bool {
    let keys: BTreeSet<&str> = lines_of(text).flat_map(|line| pairs(line).map(|(key, ..)| key)).collect();
    let is_ours = |key: &&str| key.contains(['/', '.']) && is_protection(key);
    let is_plain = |key: &&str| {
        let option = misplaced::option_of(key, true).filter(|option| *option != TLS);
        option.is_some() && !OF_CORS.contains(key)
    };
    keys.iter().any(|it| is_ours(it) || is_plain(it) || *it == "middlewares")
}

/// Without comments.
pub(super) fn lines_of(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim_start).filter(|line| !line.starts_with('#'))
}

/// Keys and plain values in a line, in whichever style of YAML, and what follows each key.
pub(super) fn pairs(line: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let is_of_key = |it: char| it.is_ascii_alphanumeric() || "./_-".contains(it);
    line.match_indices(':').filter_map(move |(at, _)| {
        let (before, after) = line.split_at_checked(at)?;
        let key = before.trim_end().trim_end_matches(['"', '\'']);
        let key = key.rsplit(|it: char| !is_of_key(it)).next()?;
        let rest = after.get(1..)?;
        let value = rest.trim_start().trim_start_matches(['"', '\'']);
        let value = value.split(|it: char| !(it.is_ascii_alphanumeric() || it == '-' || it == '.')).next()?;
        Some((key, value, rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    /// `default/back-office`.
    fn services_of(text: &str) -> Option<Vec<String>> {
        let found = match tree::parse(text) {
            Err(error) => unused_route_in_text(text, error.at),
            Ok(roots) => roots.iter().flat_map(objects).find_map(|it| unused_route(it, it.at)),
        };
        let shown = |it: ServiceKey| format!("{}/{}", it.namespace, it.name);
        found.map(|it| it.services.into_iter().map(shown).collect())
    }

    fn route(annotation: &str, spec: &str) -> String {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: admin\n  annotations:\n    \
             {annotation}\nspec:\n  {spec}\n  rules:\n  - backendRefs:\n    - name: back-office\n      port: 80\n"
        )
    }

    fn ingress(annotation: &str, backend: &str) -> String {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: api\n  annotations: {{{annotation}}}\nspec:\n  \
             tls: [{{hosts: [shop.example], secretName: nginx}}]\n  rules: [{{host: shop.example, http: {{paths: [{{path: /, backend: \
             {backend}}}]}}}}]\n"
        )
    }

    const BACKEND: &str = "{service: {name: back-office, port: {name: http}}}";

    #[test]
    fn a_route_that_protects_names_its_services_and_nothing_else() {
        let ranges = "seaway.dev/source-ranges: 10.0.0.0/8";
        let hosts = "hostnames: [admin.example]";
        let auth = "nginx.ingress.kubernetes.io/auth-type: basic";
        let list = |text: String| {
            let item = text.replace('\n', "\n  ");
            format!("apiVersion: v1\nkind: List\nitems:\n- {}\n", item.trim_end())
        };
        for text in [
            route(ranges, "hostname: admin.example"),
            route(ranges, hosts).replace("/v1", "/v1beta1"),
            route(ranges, hosts).replace("HTTPRoute", "HttpRoute"),
            route(ranges, hosts).replace("HTTPRoute", "HTTPRout"),
            route(ranges, hosts).replace("kind: HTTPRoute\n", ""),
            route("team: a", "sourceRanges: [10.0.0.0/8]"),
            route("seaway.io/basic-auth: users", hosts),
            route("seaway.dev/waf: strict", hosts),
            ingress(auth, BACKEND),
            ingress(auth, "{serviceName: back-office, servicePort: 80}"),
            ingress(auth, BACKEND).replace("kind: Ingress", "kind: ingress"),
            list(ingress(auth, BACKEND)),
            format!("- {}", ingress(auth, BACKEND).replace('\n', "\n  ")),
        ] {
            assert_eq!(services_of(&text), Some(vec!["default/back-office".to_owned()]), "{text}");
        }
        let elsewhere = route(ranges, hosts).replace("name: admin", "name: admin\n  namespace: staff");
        assert_eq!(services_of(&elsewhere), Some(vec!["staff/back-office".to_owned()]));
        // Of what is no YAML, all names are taken.
        for text in [
            route(ranges, hosts).replace("  rules", "\trules"),
            route("\"seaway.dev/source-ranges\": \"10.0.0.0/8", hosts),
        ] {
            let expected = vec!["default/admin".to_owned(), "default/back-office".to_owned()];
            assert_eq!(services_of(&text), Some(expected), "{text}");
        }
    }

    #[test]
    fn routes_of_other_programs_name_their_services_where_they_protect() {
        let of = |version: &str, kind: &str, spec: &str| {
            format!(
                "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: shop, namespace: web}}\nspec: {spec}\n"
            )
        };
        let traefik =
            "routes: [{match: 'Host(`a.example`)', kind: Rule, services: [{name: back-office, port: 80}]";
        for (version, kind, spec) in [
            ("traefik.io/v1alpha1", "IngressRoute", format!("{{{traefik}, middlewares: [{{name: auth}}]}}]}}")),
            (
                "k8s.nginx.org/v1",
                "VirtualServer",
                "{policies: [{name: jwt}], upstreams: [{name: tea, service: back-office, port: 80}]}".to_owned(),
            ),
            (
                "projectcontour.io/v1",
                "HTTPProxy",
                "{routes: [{services: [{name: back-office, port: 80}], ipAllowPolicy: [{cidr: 10.0.0.0/8}]}]}".to_owned(),
            ),
            (
                "networking.istio.io/v1",
                "VirtualService",
                "{sourceRanges: [a], http: [{route: [{destination: {host: back-office.web.svc.cluster.local}}]}]}".to_owned(),
            ),
        ] {
            let text = of(version, kind, &spec);
            assert_eq!(services_of(&text), Some(vec!["web/back-office".to_owned()]), "{text}");
        }
        let openshift = of("route.openshift.io/v1", "Route", "{to: {kind: Service, name: back-office}}")
            .replace(
                "namespace: web}",
                "namespace: web, annotations: {haproxy.router.openshift.io/ip_whitelist: 10.0.0.0/8}}",
            );
        assert_eq!(services_of(&openshift), Some(vec!["web/back-office".to_owned()]), "{openshift}");
        let x_k8s = route("seaway.dev/source-ranges: 10.0.0.0/8", "hostnames: [admin.example]")
            .replace("gateway.networking.k8s.io/v1", "gateway.networking.x-k8s.io/v1alpha1");
        assert_eq!(services_of(&x_k8s), Some(vec!["default/back-office".to_owned()]));
        let alb = ingress("alb.ingress.kubernetes.io/scheme: internal", BACKEND);
        assert_eq!(services_of(&alb), Some(vec!["default/back-office".to_owned()]));
        for open in [
            of("traefik.io/v1alpha1", "IngressRoute", &format!("{{entryPoints: [web], {traefik}}}]}}")),
            of(
                "networking.istio.io/v1",
                "VirtualService",
                "{hosts: [a.example], http: [{route: [{destination: {host: a}}]}]}",
            ),
            ingress("alb.ingress.kubernetes.io/scheme: internet-facing", BACKEND),
            ingress("nginx.ingress.kubernetes.io/proxy-body-size: 1m", BACKEND),
        ] {
            assert_eq!(services_of(&open), None, "{open}");
        }
    }

    #[test]
    fn what_protects_nothing_or_is_no_route_names_no_service() {
        let typo = route("seaway.dev/source-ranges: 10.0.0.0/8", "hostname: admin.example");
        for text in [
            route("team: a", "hostname: admin.example"),
            typo.replace("    seaway.dev", "    # seaway.dev"),
            typo.replace("    seaway.dev", "    # seaway.dev").replace("  rules", "\trules"),
            route("team: a", "filters: [{cors: {allowCredentials: true}}]\n\tx: y"),
            route("team: a", "tls: [shop]"),
            ingress("team: a", BACKEND),
            ingress("nginx.ingress.kubernetes.io/auth-type: none", BACKEND),
            "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 0}], loadBalancerSourceRanges: [10.0.0.0/8]}\n"
                .to_owned(),
            "a: [\nsource-ranges: 10.0.0.0/8\n".to_owned(),
        ] {
            assert_eq!(services_of(&text), None, "{text}");
        }
    }
}
