//! Ingress objects (networking.k8s.io/v1), with annotations of ingress-nginx, and the Services in the same file.
//!
//! ```text
//!   YAML ─► tree ─► objects.rs ─► rules.rs ─► Routes to Services       annotations.rs: what each annotation is to Seaway
//!                      └► Services, Secrets, EndpointSlices: taken over as they are, with annotations
//! ```

mod annotations;
mod objects;
mod patterns;
mod rules;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Context as _, Result};
use seaway_manifests::tree::{self, Node};

use self::{
    objects::{Key, Object},
    patterns::{PatternHosts, PatternRoute},
};
use super::{
    ImportResult, LARGEST, Text,
    proxy::{Host, Proxy, Route},
    report::{DirectiveLocation, Report},
    text_of,
};

/// The Gateway of its routes, in a cluster.
const PARENT: &str = "seaway-system/seaway";

pub(super) fn read(file: &Path) -> Result<ImportResult> {
    let mut room = LARGEST;
    let text = text_of(file, &mut room)?;
    read_text(&text)
}

pub(super) fn read_text(text: &Text) -> Result<ImportResult> {
    let roots = tree::parse(&text.text).with_context(|| text.name.to_string())?;
    let objects = objects::objects(&roots, &text.name);
    let mut context = Context {
        report: Report::default(),
        proxy: Proxy::default(),
        objects: &objects,
        wanted: BTreeMap::new(),
        classes: objects.iter().filter(|it| it.kind() == "Ingress").filter_map(class).collect(),
        whole_hosts: Vec::new(),
        lost: Vec::new(),
        closes_all: None,
        away: Vec::new(),
        pattern_hosts: patterns::hosts(&objects),
        pattern_routes: Vec::new(),
    };
    context.proxy.door.parent = Some(PARENT.to_owned());
    for object in &objects {
        context.report.expect(&object.place, &object.written());
        match object.kind() {
            "Ingress" => rules::read(object, &mut context),
            "Service" | "EndpointSlice" | "Endpoints" | "Secret" | "Namespace" | "HTTPRoute"
            | "AddressPool" => {
                context.report.translated(&object.place);
            }
            "ConfigMap" => settings(object, &mut context),
            _ => context.report.no_effect(&object.place, "Seaway does not read objects of this kind"),
        }
    }
    let routes = std::mem::take(&mut context.pattern_routes);
    context.proxy.routes.extend(patterns::settled(routes, &mut context.report));
    if let Some(first) = objects.iter().find(|it| it.kind() == "Ingress") {
        context.report.differs(
            &first.place,
            "ingress-nginx drops request headers whose names have an underscore, such as X_Real_IP, and Seaway forwards them: members that read X_Real_IP as X-Real-IP (CGI, WSGI, PHP) have to refuse it",
        );
    }
    close_hosts(&mut context);
    for route in std::mem::take(&mut context.away) {
        let hosts = &route.condition.hosts;
        let is_there = |it: &Route| it.condition.hosts.iter().any(|it| hosts.contains(it));
        if !context.proxy.routes.iter().any(is_there) {
            context.proxy.routes.push(route);
        }
    }
    taken_over(&mut context);
    Ok(ImportResult { proxy: context.proxy, report: context.report })
}

struct Context<'t> {
    report: Report,
    proxy: Proxy,
    objects: &'t [Object<'t>],
    /// Annotations that Services are to have.
    wanted: BTreeMap<Key, BTreeMap<&'static str, String>>,
    /// `ingressClassName` of all Ingresses.
    classes: BTreeSet<String>,
    /// Hosts of which all paths are protected, of each Ingress; where that is said, and why.
    whole_hosts: Vec<(Vec<Host>, DirectiveLocation, &'static str)>,
    /// Names that are protected, and cannot be written.
    lost: Vec<(String, DirectiveLocation)>,
    /// Why all routes are closed.
    closes_all: Option<String>,
    /// Redirects of hosts that no Ingress has.
    away: Vec<Route>,
    pattern_hosts: PatternHosts,
    /// Their routes, which are put in order.
    pattern_routes: Vec<PatternRoute>,
}

/// The ConfigMap of ingress-nginx is for all Ingresses.
fn settings(object: &Object<'_>, context: &mut Context<'_>) {
    let says = |key: &str| {
        let words =
            ["whitelist", "allowlist", "denylist", "block-", "auth-", "-snippet", "limit-", "modsecurity"];
        words.iter().any(|it| key.contains(it)) && key != "allow-snippet-annotations"
    };
    let data = object.root.child("data").map_or(&[][..], Node::entries);
    let Some(entry) = data.iter().find(|it| says(&it.key)) else {
        return context.report.no_effect(&object.place, "Seaway does not read objects of this kind");
    };
    let why =
        format!("{}: this setting may restrict access to all Ingresses, so all of them get 403", entry.key);
    context.report.closed(&object.place, &why);
    context.closes_all.get_or_insert(why);
}

fn class(object: &Object<'_>) -> Option<String> {
    let by_annotation = || {
        let it = object.annotations().iter().find(|it| it.key == "kubernetes.io/ingress.class")?;
        objects::scalar(&it.value)
    };
    object
        .spec()
        .and_then(|it| objects::text(it, "ingressClassName"))
        .map(str::to_owned)
        .or_else(by_annotation)
}

/// Some of what ingress-nginx is asked for counts for a host: at the paths of other Ingresses of the host as well.
fn close_hosts(context: &mut Context<'_>) {
    let Context { proxy, report, whole_hosts, lost, closes_all, .. } = context;
    for route in proxy.routes.iter_mut().filter(|it| it.closed.is_none()) {
        let ours = &route.condition.hosts;
        let is_of = |hosts: &[Host]| {
            *hosts == **ours || hosts.iter().any(|it| ours.iter().any(|our| our.meet(it).is_some()))
        };
        let gets = |name: &str| ours.is_empty() || ours.iter().any(|it| it.covers(name));
        let of_host = whole_hosts.iter().find(|it| is_of(&it.0)).map(|(_, at, why)| format!("{at} {why}"));
        let of_lost = lost.iter().find(|it| gets(&it.0)).map(|(name, at)| {
            format!(
                "requests for {name:?} would be served here without the access restriction at {at}: \
                 an HTTPRoute cannot match this host name"
            )
        });
        if let Some(why) = closes_all.clone().or(of_host).or(of_lost) {
            report.closed(&route.place, &why);
            route.close(&why);
        }
    }
}

impl<'t> Context<'t> {
    fn service(&self, key: &Key) -> Option<&'t Object<'t>> {
        self.objects.iter().find(|it| it.kind() == "Service" && it.key() == *key)
    }
}

/// Objects of the input that are objects of the output.
fn taken_over(context: &mut Context<'_>) {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for object in context.objects {
        let kind = object.kind();
        if !["Service", "EndpointSlice", "Endpoints", "Secret", "Namespace", "HTTPRoute", "AddressPool"]
            .contains(&kind)
        {
            continue;
        }
        if kind == "Service" && is_without_backends(object, context) {
            let why = "a selector selects pods of a cluster: on one machine, name its backends in seaway.dev/backends";
            context.report.differs(&object.place, why);
        }
        let key = object.key();
        let mut annotations = BTreeMap::new();
        if kind == "Service" {
            annotations.extend(context.wanted.get(&key).cloned().unwrap_or_default());
            // An Ingress controller serves no Service by its name, and routes alone are to lead there.
            let is_at_door = |it: &str| {
                ["host", "path", "front-door"].iter().any(|of| it.strip_prefix("seaway.dev/") == Some(of))
            };
            if !annotations.contains_key("host") && !object.annotations().iter().any(|it| is_at_door(&it.key))
            {
                annotations.insert("front-door", "false".to_owned());
            }
        }
        let text =
            files.entry(format!("{}-{}.yaml", kind.to_ascii_lowercase(), key.file_name())).or_default();
        if !text.is_empty() {
            text.push_str("---\n");
        }
        text.push_str(&object.text(&annotations));
    }
    context.proxy.objects = files.into_iter().collect();
}

fn is_without_backends(service: &Object<'_>, context: &Context<'_>) -> bool {
    let key = service.key();
    let named = service.annotations().iter().any(|it| it.key == "seaway.dev/backends");
    let is_of = |it: &Object<'_>| match it.kind() {
        "Endpoints" => it.key() == key,
        "EndpointSlice" => it.label("kubernetes.io/service-name") == Some(&*key.name),
        _ => false,
    };
    !named
        && !context.objects.iter().any(is_of)
        && service.spec().is_some_and(|it| it.child("selector").is_some())
}

#[cfg(test)]
mod tests;
