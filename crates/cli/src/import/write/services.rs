//! Services: one for each backend, and for each listener of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::{
    super::proxy::{Backend, Host, OwnListener, PathRule, Proxy, Rewrite, Route, Target},
    routes::spelled_above,
    yaml::{flow, scalar},
};

/// What annotations say of a Service's entrances, by the place of the backend. Those of others are in HTTPRoutes.
pub(super) type ServiceAnnotations = BTreeMap<usize, BTreeMap<&'static str, String>>;

/// Backends whose routes need no HTTPRoute.
pub(super) fn placed(proxy: &Proxy) -> ServiceAnnotations {
    let all = 0..proxy.backends.len();
    all.filter_map(|at| Some((at, entrances(proxy, at)?))).collect()
}

fn leads_to(route: &Route, at: usize) -> bool {
    matches!(&route.target, Target::Backends(to) if to.iter().any(|(it, _)| *it == at))
}

fn entrances(proxy: &Proxy, at: usize) -> Option<BTreeMap<&'static str, String>> {
    proxy.backends.get(at).filter(|it| !it.is_there)?;
    let routes: Vec<&Route> = proxy.routes.iter().filter(|it| leads_to(it, at)).collect();
    let first = *routes.first()?;
    let strips = |it: &Route| it.rewrite.is_some();
    let alike = |it: &&Route| {
        is_simple(it) && (&it.sources, it.https, strips(it)) == (&first.sources, first.https, strips(first))
    };
    let needs_expression = |it: &&Route| spelled_above(it, proxy).is_some();
    if !routes.iter().all(alike)
        || routes.iter().any(needs_expression)
        || proxy.listeners.iter().any(|it| it.backend == at)
    {
        return None;
    }
    let (mut hosts, mut paths) = (Vec::new(), Vec::new());
    for route in routes {
        let PathRule::Prefix(path) = &route.condition.path else { return None };
        if route.condition.hosts.is_empty() {
            paths.push(path.clone());
        }
        // A host without a slash would be at the Service's name, too.
        hosts.extend(route.condition.hosts.iter().map(|host| format!("{}{path}", host.written())));
    }
    let mut said = BTreeMap::new();
    let mut say = |name, value: Option<String>| value.into_iter().for_each(|it| drop(said.insert(name, it)));
    say("host", (!hosts.is_empty()).then(|| hosts.join(", ")));
    say("path", (!paths.is_empty()).then(|| paths.join(", ")));
    say("strip-prefix", strips(first).then(|| "true".to_owned()));
    say("source-ranges", (!first.sources.is_empty()).then(|| first.sources.join(", ")));
    say("https-redirect", first.https.map(|it| it.to_string()));
    Some(said)
}

/// Whether annotations can say it.
fn is_simple(route: &Route) -> bool {
    let it = &route.condition;
    let (PathRule::Prefix(path), Target::Backends(to)) = (&it.path, &route.target) else { return false };
    let is_stripped = matches!(&route.rewrite, None | Some(Rewrite::Prefix(_)))
        && route.rewrite.as_ref().is_none_or(|it| *it == Rewrite::Prefix("/".to_owned()));
    to.len() == 1
        && it.method.is_none()
        && it.headers.is_empty()
        && it.query.is_empty()
        && is_stripped
        && route.rewrite_host.is_none()
        && route.request.is_empty()
        && route.response.is_empty()
        && route.closed.is_none()
        && !(route.is_protected() && route.decodes && path != "/")
        && is_plain(path)
}

/// Nothing that annotations take for the end of an entry, or for a pattern.
fn is_plain(path: &str) -> bool {
    let plain = |it: u8| it.is_ascii_alphanumeric() || b"-._~/%+@=&!:".contains(&it);
    path.bytes().all(plain) && !path.contains("/:")
}

pub(super) fn files(proxy: &Proxy, placed: &ServiceAnnotations) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut taken: BTreeSet<String> = proxy.backends.iter().map(|it| it.name.clone()).collect();
    for (at, backend) in proxy.backends.iter().enumerate().filter(|(_, it)| !it.is_there) {
        let listeners: Vec<&OwnListener> = proxy.listeners.iter().filter(|it| it.backend == at).collect();
        let is_routed = proxy.kept.contains(&at) || proxy.routes.iter().any(|it| leads_to(it, at));
        if is_routed || listeners.iter().any(|it| it.address.is_some()) {
            let said = placed.get(&at).cloned().unwrap_or_else(hidden);
            files.push((format!("{}.yaml", backend.name), service(backend, &backend.name, said, None)));
        }
        let mut is_free = files.last().is_none_or(|(name, _)| *name != format!("{}.yaml", backend.name));
        for listener in listeners.into_iter().filter(|it| it.address.is_none()) {
            let mut name = backend.name.clone();
            if !std::mem::take(&mut is_free) {
                name = format!("{}-{}", backend.name, listener.port);
                while !taken.insert(name.clone()) {
                    name.push('x');
                }
            }
            files.push((format!("{name}.yaml"), service(backend, &name, BTreeMap::new(), Some(listener))));
        }
    }
    files
}

/// Only HTTPRoutes, or entries of the configuration, lead there.
fn hidden() -> BTreeMap<&'static str, String> {
    BTreeMap::from([("front-door", "false".to_owned())])
}

fn service(
    backend: &Backend,
    name: &str,
    said: BTreeMap<&'static str, String>,
    listener: Option<&OwnListener>,
) -> String {
    let mut annotations = backend.annotations.clone();
    annotations.extend(said);
    let passthrough = listener.is_some_and(|it| !it.passthrough.is_empty());
    if let Some(listener) = listener {
        annotations.extend(listener.annotations.clone());
        if !listener.sources.is_empty() {
            annotations.insert("source-ranges", listener.sources.join(", "));
        }
        if passthrough {
            let hosts: Vec<String> = listener.passthrough.iter().map(Host::written).collect();
            annotations.insert("host", hosts.join(", "));
            annotations.insert("tls-passthrough", "true".to_owned());
        }
    }
    let mut text = format!("apiVersion: v1\nkind: Service\nmetadata:\n  name: {}\n", scalar(name));
    if let Some(namespace) = &backend.namespace {
        text.push_str(&format!("  namespace: {}\n", scalar(namespace)));
    }
    text.push_str("  annotations:\n");
    if !backend.members.is_empty() {
        annotations.insert("backends", backend.members.join(", "));
    }
    for (key, value) in &annotations {
        text.push_str(&format!("    seaway.dev/{key}: {}\n", scalar(value)));
    }
    let mut port = json!({"port": listener.map_or(backend.port.unwrap_or(80), |it| it.port)});
    if let Some(fields) = port.as_object_mut() {
        if listener.is_some_and(|it| it.udp) {
            fields.insert("protocol".to_owned(), json!("UDP"));
        }
        if let Some(protocol) = backend.app_protocol {
            fields.insert("appProtocol".to_owned(), json!(protocol));
        }
    }
    text.push_str("spec:\n");
    if listener.is_some() && !passthrough {
        text.push_str("  type: LoadBalancer\n");
    }
    if backend.by_client {
        text.push_str("  sessionAffinity: ClientIP\n");
    }
    text.push_str(&format!("  ports: [{}]\n", flow(&port)));
    text
}
