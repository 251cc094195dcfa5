//! HTTPRoutes: what annotations of a Service cannot say.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use super::{
    super::{
        proxy::{
            HeaderChanges, Host, PathRule, Proxy, Redirect, Rewrite, Route, Target, Value, service_name,
        },
        report::Report,
    },
    services::ServiceAnnotations,
    spelling::{self, PathScope, REST, escaped},
    yaml::{comment, flow, scalar},
};

/// No client has this address: everyone gets 403.
const CLOSED: &str = "255.255.255.255/32";
/// Of one HTTPRoute.
const MOST_RULES: usize = 16;

/// What one HTTPRoute is for.
#[derive(PartialEq)]
struct RouteKey {
    namespace: Option<String>,
    hosts: Vec<Host>,
    sources: String,
    https: Option<bool>,
    tls: Option<String>,
}

pub(super) fn text(proxy: &Proxy, placed: &ServiceAnnotations, report: &mut Report) -> String {
    let is_placed = |route: &Route| match &route.target {
        Target::Backends(to) => to.iter().all(|(at, _)| placed.contains_key(at)),
        _ => false,
    };
    let routes: Vec<&Route> = proxy.routes.iter().filter(|it| !is_placed(it)).collect();
    let mut objects: Vec<(RouteKey, Vec<String>)> = Vec::new();
    for route in &routes {
        let rule = rule(route, proxy, report);
        let head = RouteKey {
            namespace: route.namespace.clone(),
            hosts: route.condition.hosts.clone(),
            sources: match &route.closed {
                Some(_) => CLOSED.to_owned(),
                None => route.sources.join(", "),
            },
            https: route.https,
            tls: route.tls.clone(),
        };
        // Rules that are compared in their order stay in it.
        match objects.last_mut().filter(|(it, rules)| *it == head && rules.len() < MOST_RULES) {
            Some((_, rules)) => rules.push(rule),
            None => objects.push((head, vec![rule])),
        }
    }
    let is_one = objects.len() == 1;
    let texts = objects.iter().enumerate().map(|(at, (head, rules))| {
        let named = head.hosts.first().map_or_else(|| "any-host".to_owned(), Host::written);
        let named = service_name(named.trim_start_matches("*."));
        // Of two objects that are as old, the first by name counts.
        let name = if is_one { named } else { format!("route-{:03}-{named}", at.saturating_add(1)) };
        object(&name, head, rules, proxy.door.parent.as_deref())
    });
    texts.collect::<Vec<_>>().join("---\n")
}

fn object(name: &str, head: &RouteKey, rules: &[String], parent: Option<&str>) -> String {
    let mut text = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: {}\n",
        scalar(name)
    );
    if let Some(namespace) = &head.namespace {
        let _ = writeln!(text, "  namespace: {}", scalar(namespace));
    }
    let mut annotations = Map::new();
    if !head.sources.is_empty() {
        annotations.insert("seaway.dev/source-ranges".to_owned(), json!(head.sources));
    }
    if let Some(https) = head.https {
        annotations.insert("seaway.dev/https-redirect".to_owned(), json!(https.to_string()));
    }
    if let Some(secret) = &head.tls {
        annotations.insert("seaway.dev/tls".to_owned(), json!(secret));
    }
    if !annotations.is_empty() {
        let _ = writeln!(text, "  annotations: {}", flow(&Json::Object(annotations)));
    }
    text.push_str("spec:\n");
    if let Some((namespace, name)) = parent.and_then(|it| it.split_once('/')) {
        let _ = writeln!(text, "  parentRefs: {}", flow(&json!([{"name": name, "namespace": namespace}])));
    }
    if !head.hosts.is_empty() {
        let hosts: Vec<Json> = head.hosts.iter().map(|it| json!(it.written())).collect();
        let _ = writeln!(text, "  hostnames: {}", flow(&Json::Array(hosts)));
    }
    let _ = write!(text, "  rules:\n{}", rules.concat());
    text
}

fn rule(route: &Route, proxy: &Proxy, report: &mut Report) -> String {
    let mut text = format!("  # {}\n", comment(&route.place.to_string()));
    if let Some(why) = &route.closed {
        let _ = writeln!(text, "  # Closed, requests get 403: {}", comment(why));
        if !route.sources.is_empty() {
            let networks = comment(&route.sources.join(", "));
            let _ = writeln!(text, "  # To open it, keep its networks: seaway.dev/source-ranges: {networks}");
        }
    }
    let matches: Vec<Json> = paths(route, proxy, report).iter().map(|path| matched(route, path)).collect();
    let _ = writeln!(text, "  - matches: {}", flow(&Json::Array(matches)));
    let filters = filters(route);
    if !filters.is_empty() {
        let _ = writeln!(text, "    filters: {}", flow(&Json::Array(filters)));
    }
    if let Target::Backends(to) = &route.target {
        let backends = to.iter().filter_map(|(at, weight)| {
            let backend = proxy.backends.get(*at)?;
            let mut it = json!({"name": backend.name, "port": backend.port.unwrap_or(80)});
            if let Some(fields) = it.as_object_mut() {
                if to.len() > 1 {
                    fields.insert("weight".to_owned(), json!(weight));
                }
                if let Some(namespace) =
                    backend.namespace.as_ref().filter(|it| route.namespace.as_ref() != Some(it))
                {
                    fields.insert("namespace".to_owned(), json!(namespace));
                }
            }
            Some(it)
        });
        let _ = writeln!(text, "    backendRefs: {}", flow(&backends.collect()));
    }
    text
}

/// The path, and its other spellings where they have to be protected as well.
fn paths(route: &Route, proxy: &Proxy, report: &mut Report) -> Vec<PathRule> {
    let path = &route.condition.path;
    let mut paths = vec![path.clone()];
    if protects_equivalent_paths(route) {
        let (text, reach) = match path {
            PathRule::Prefix(text) => (text, reach(route)),
            PathRule::Exact(text) => (text, PathScope::Exactly),
            _ => return paths,
        };
        paths.extend(spelling::expression(text, reach).map(PathRule::Regex));
        return paths;
    }
    // What is below a path whose spellings are protected has to come before them.
    if let (Some(above), PathRule::Prefix(own)) = (spelled_above(route, proxy), path) {
        match &route.rewrite {
            Some(Rewrite::Prefix(_)) => {
                let why = format!(
                    "this path is below the path of {}, which restricts it as well, with all other spellings",
                    above.place
                );
                report.differs(&route.place, &why);
            }
            _ => paths.push(PathRule::Regex(format!("{}(?:/{REST})?", escaped(own.trim_end_matches('/'))))),
        }
    }
    paths
}

fn reach(route: &Route) -> PathScope {
    if route.by_segments { PathScope::Below } else { PathScope::Beginning }
}

/// The route above, whose expression is for the paths of this one as well.
pub(super) fn spelled_above<'p>(route: &Route, proxy: &'p Proxy) -> Option<&'p Route> {
    let PathRule::Prefix(own) = &route.condition.path else { return None };
    let meets = |one: &[Host], two: &[Host]| one.iter().any(|it| two.iter().any(|is| it.meet(is).is_some()));
    let ours = &route.condition.hosts;
    proxy.routes.iter().find(|other| {
        let theirs = &other.condition.hosts;
        protects_equivalent_paths(other)
            && (ours == theirs || meets(ours, theirs))
            && matches!(&other.condition.path, PathRule::Prefix(it) if it.len() < own.len() && own.starts_with(it.as_str()))
    })
}

/// Whether other spellings of its path are protected. A path that is rewritten is open at its new place to those who ask for that.
pub(super) fn protects_equivalent_paths(route: &Route) -> bool {
    let is_part = match &route.condition.path {
        PathRule::Prefix(path) => path != "/" && spelling::expression(path, reach(route)).is_some(),
        PathRule::Exact(path) => spelling::expression(path, PathScope::Exactly).is_some(),
        _ => false,
    };
    let is_rewritten = matches!(route.rewrite, Some(Rewrite::Prefix(_))) && route.closed.is_none();
    // Who is sent away from a path must not find what is behind it by another spelling.
    let sends_away = matches!(route.target, Target::Redirect(_)) && !route.made;
    is_part && route.decodes && (route.is_protected() || sends_away) && !is_rewritten
}

fn matched(route: &Route, path: &PathRule) -> Json {
    let condition = &route.condition;
    let (kind, value) = match path {
        PathRule::Exact(path) => ("Exact", path),
        PathRule::Prefix(path) => ("PathPrefix", path),
        // Others were written as expressions.
        PathRule::Regex(path)
        | PathRule::Begins(path)
        | PathRule::Below(path)
        | PathRule::Ends(path)
        | PathRule::Contains(path) => ("RegularExpression", path),
    };
    let mut it = Map::new();
    it.insert("path".to_owned(), json!({"type": kind, "value": value}));
    if let Some(method) = &condition.method {
        it.insert("method".to_owned(), json!(method));
    }
    for (key, values) in [("headers", &condition.headers), ("queryParams", &condition.query)] {
        let values: Vec<Json> = values
            .iter()
            .map(|(name, value)| match value {
                Value::Exact(text) => json!({"name": name, "value": text}),
                Value::Regex(text) => json!({"name": name, "type": "RegularExpression", "value": text}),
            })
            .collect();
        if !values.is_empty() {
            it.insert(key.to_owned(), Json::Array(values));
        }
    }
    Json::Object(it)
}

fn filters(route: &Route) -> Vec<Json> {
    let mut filters = Vec::new();
    for (kind, key, changes) in [
        ("RequestHeaderModifier", "requestHeaderModifier", &route.request),
        ("ResponseHeaderModifier", "responseHeaderModifier", &route.response),
    ] {
        if !changes.is_empty() {
            filters.push(json!({"type": kind, key: headers(changes)}));
        }
    }
    // A closed route never gets as far, and may have more matches than a rewrite allows.
    let rewrite = route.rewrite.as_ref().filter(|_| route.closed.is_none());
    let mut changes = Map::new();
    changes.extend(route.rewrite_host.as_ref().map(|it| ("hostname".to_owned(), json!(it))));
    changes.extend(rewrite.map(|it| ("path".to_owned(), path(it))));
    if !changes.is_empty() {
        filters.push(json!({"type": "URLRewrite", "urlRewrite": changes}));
    }
    match &route.target {
        Target::Redirect(to) => {
            filters.push(json!({"type": "RequestRedirect", "requestRedirect": redirect(to)}))
        }
        Target::Nothing => {
            filters.push(json!({"type": "RequestRedirect", "requestRedirect": {"statusCode": 302}}))
        }
        Target::Backends(_) => {}
    }
    filters
}

fn headers(changes: &HeaderChanges) -> Json {
    let pairs = |all: &[(String, String)]| -> Json {
        all.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
    };
    let mut it = Map::new();
    for (key, list) in [("set", &changes.set), ("add", &changes.add)] {
        if !list.is_empty() {
            it.insert(key.to_owned(), pairs(list));
        }
    }
    if !changes.remove.is_empty() {
        it.insert("remove".to_owned(), json!(changes.remove));
    }
    Json::Object(it)
}

fn redirect(to: &Redirect) -> Json {
    let mut it = Map::new();
    it.extend(to.scheme.map(|it| ("scheme".to_owned(), json!(it))));
    it.extend(to.host.as_ref().map(|it| ("hostname".to_owned(), json!(it))));
    it.extend(to.port.map(|it| ("port".to_owned(), json!(it))));
    it.extend(to.path.as_ref().map(|it| ("path".to_owned(), path(it))));
    it.insert("statusCode".to_owned(), json!(to.code));
    Json::Object(it)
}

fn path(to: &Rewrite) -> Json {
    match to {
        Rewrite::Prefix(path) => json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": path}),
        Rewrite::Full(path) => json!({"type": "ReplaceFullPath", "replaceFullPath": path}),
    }
}
