//! Rules of an Ingress as routes.

use seaway_manifests::tree::Node;
use seaway_plan::quantity::size;

use super::{
    super::{
        expression::{decoded, has_top_level_bar},
        proxy::{Backend, Condition, Host, PathRule, Redirect, Rewrite, Route, Target, host},
        report::DirectiveLocation,
        write::escaped,
    },
    Context,
    annotations::{Options, is_canary, options},
    objects::{Key, Object, items, place, scalar, text},
    patterns::{self, PatternRoute},
};

pub(super) fn read(object: &Object<'_>, context: &mut Context<'_>) {
    let version = text(object.root, "apiVersion").unwrap_or_default();
    if version != "networking.k8s.io/v1" {
        context.report.left_out(
            &object.place,
            "only networking.k8s.io/v1 is read: `kubectl get ingress -o yaml` writes it",
        );
        // What it says may protect its paths from those of other Ingresses.
        let rules = object.spec().map_or(&[][..], |it| items(it, "rules"));
        for rule in rules {
            let hosts: Vec<Host> = text(rule, "host").and_then(host).into_iter().collect();
            let why = "declares this host in an API version that is not read";
            context.whole_hosts.push((hosts, object.place.clone(), why));
        }
        return;
    }
    context.report.translated(&object.place);
    let options = options(object, context);
    if is_canary(object) {
        let why = "a canary gets a part of the requests of another Ingress, and is not imported: write an HTTPRoute \
             with weights or header matches (docs/manifests.md)";
        return context.report.left_out(&object.place, why);
    }
    let Some(spec) = object.spec() else { return };
    if is_protected(&options) {
        let lost = options.lost.iter().map(|it| (it.clone(), object.place.clone()));
        context.lost.extend(lost);
    }
    let ingress = Ingress { object, spec, options };
    if let Some(class) = spec.child("ingressClassName") {
        let at = ingress.place(class, 0);
        context.report.expect(&at, &format!("ingressClassName: {}", scalar(class).unwrap_or_default()));
        let others: Vec<&str> = context
            .classes
            .iter()
            .map(String::as_str)
            .filter(|it| Some(*it) != scalar(class).as_deref())
            .collect();
        match others.is_empty() {
            true => context.report.no_effect(&at, "the front door serves this Ingress, whatever its class"),
            false => {
                let why = format!(
                    "Ingresses of this class and of class {} share one front door: if some clients must not reach both, import each class separately, for a seaway of its own",
                    others.join(" and ")
                );
                context.report.left_out(&at, &why);
            }
        }
    }
    for entry in items(spec, "tls") {
        let at = ingress.place(entry, 1);
        context.report.expect(&at, "tls");
        match text(entry, "secretName") {
            Some(name) => {
                context.report.translated(&at);
                let at = ingress.key_place(entry, "secretName", 6);
                context.report.expect(&at, &format!("secretName: {name}"));
                context.report.translated(&at);
                let is_there =
                    context.objects.iter().any(|it| it.kind() == "Secret" && it.key() == ingress.key(name));
                if !is_there {
                    context.report.differs(
                        &at,
                        &format!(
                            "the Secret {name} is not in this file: on one machine, put it into the folder"
                        ),
                    );
                }
            }
            None => context.report.left_out(
                &at,
                "without a secretName, ingress-nginx redirects to https and shows a certificate of its own, and Seaway has none: requests are answered over http until the front door has a certificate (`frontDoor: {certificates: …}` in seaway.yaml, or a secretName), and redirected from then on",
            ),
        }
    }
    if let Some(backend) = spec.child("defaultBackend") {
        let at = ingress.key_place(spec, "defaultBackend", 4);
        ingress.route(None, Vec::new(), at, backend, context);
    }
    for rule in items(spec, "rules") {
        let written = text(rule, "host").unwrap_or_default();
        let mut hosts: Vec<Host> = host(written).into_iter().collect();
        let at = ingress.key_place(rule, "host", 2);
        let paths = rule.child("http").map_or(&[][..], |it| items(it, "paths"));
        match written {
            "" if paths.is_empty() => context.report.expect(&at, "rules"),
            "" => {}
            _ => {
                context.report.expect(&at, &format!("host: {written}"));
                context.report.translated(&at);
            }
        }
        if paths.is_empty() {
            context.report.left_out(
                &at,
                "a rule without paths is not imported: write a path, such as `path: /`, with its backend",
            );
            if is_protected(&ingress.options) {
                context.lost.push((written.to_owned(), at.clone()));
            }
        }
        if hosts.is_empty() && !written.is_empty() {
            context.report.left_out(
                &at,
                "host names are written as shop.example or *.shop.example: the rule is not imported",
            );
            if is_protected(&ingress.options) {
                context.lost.push((written.to_owned(), at));
            }
            continue;
        }
        if let ([Host::Exact(name)], true) = (hosts.as_slice(), ingress.options.www) {
            let other = name.strip_prefix("www.").map_or_else(|| format!("www.{name}"), str::to_owned);
            let condition = Condition { hosts: host(&other).into_iter().collect(), ..Condition::default() };
            let to = Redirect { host: Some(name.clone()), code: 308, ..Redirect::default() };
            let mut route = Route::new(ingress.place(rule, 5), condition, Target::Redirect(to));
            route.namespace = Some(object.key().namespace);
            context.away.push(route);
        }
        if !hosts.is_empty() {
            hosts.extend(ingress.options.aliases.iter().cloned());
        }
        if let Some(root) = &ingress.options.root {
            let condition = Condition {
                hosts: hosts.clone(),
                path: PathRule::Exact("/".to_owned()),
                ..Condition::default()
            };
            let to = Redirect { path: Some(Rewrite::Full(root.clone())), code: 302, ..Redirect::default() };
            let route = Route::new(ingress.place(rule, 3), condition, Target::Redirect(to));
            let route = ingress.finished(route, context);
            context.proxy.routes.push(route);
        }
        for path in paths {
            let Some(backend) = path.child("backend") else { continue };
            let at = ingress.key_place(path, "path", 4);
            ingress.route(Some(path), hosts.clone(), at, backend, context);
        }
    }
}

struct Ingress<'o, 't> {
    object: &'o Object<'t>,
    spec: &'t Node,
    options: Options,
}

impl Ingress<'_, '_> {
    fn place(&self, node: &Node, nth: u32) -> DirectiveLocation {
        place(node, &self.object.place.file, nth.saturating_add(1000))
    }

    /// The line of a key, or of what would have it.
    fn key_place(&self, node: &Node, key: &str, nth: u32) -> DirectiveLocation {
        let entry = node.entries().iter().find(|it| it.key == key);
        let place = self.place(node, nth);
        DirectiveLocation { line: entry.map_or(place.line, |it| it.at.line), ..place }
    }

    fn key(&self, name: &str) -> Key {
        Key { namespace: self.object.key().namespace, name: name.to_owned() }
    }

    /// What is said of TLS of a host.
    fn tls(&self, host: Option<&Host>) -> Option<&Node> {
        let entries = items(self.spec, "tls");
        let names = |it: &Node| items(it, "hosts").iter().filter_map(scalar).collect::<Vec<_>>();
        let is_of = |it: &&Node| {
            let names = names(it);
            names.is_empty()
                || host.is_some_and(|host| {
                    names
                        .iter()
                        .filter_map(|it| super::super::proxy::host(it))
                        .any(|it| it.meet(host).is_some())
                })
        };
        entries.iter().find(is_of)
    }

    fn route(
        &self,
        path: Option<&Node>,
        hosts: Vec<Host>,
        at: DirectiveLocation,
        backend: &Node,
        context: &mut Context<'_>,
    ) {
        let written = path.and_then(|it| text(it, "path")).unwrap_or("/");
        let said = path.map_or_else(|| "defaultBackend".to_owned(), |_| format!("path: {written}"));
        context.report.expect(&at, &said);
        let kind = path.and_then(|it| text(it, "pathType")).unwrap_or("Prefix");
        let is_pattern = patterns::is_of(&hosts, &context.pattern_hosts);
        let path = self.path(written, kind, is_pattern, &at, context);
        // What stands in for a path that is not understood is closed, and as wide as it may have been.
        let by_segments = path.is_ok();
        let (rule, rewrite) = match path {
            Ok(found) => found,
            Err(why) => {
                // Its requests must not go to shorter paths of the host.
                context.report.closed(&at, &format!("{why}: requests get 403"));
                let mut route =
                    Route::new(at.clone(), Condition { hosts, ..Condition::default() }, Target::Nothing);
                route.condition.path =
                    PathRule::Regex(decoded(&format!("^{}", escaped(beginning(written))), true, true));
                route.close(&why);
                return self.push(route, written, context);
            }
        };
        let condition = Condition { hosts, path: rule, ..Condition::default() };
        if let Some(to) = &self.options.redirect {
            context.report.translated(&at);
            let route = Route::new(at, condition, Target::Redirect(to.clone()));
            self.push(Route { by_segments, ..route }, written, context);
            return;
        }
        let mut route = Route { by_segments, ..Route::new(at.clone(), condition, Target::Nothing) };
        match self.backend(backend, context) {
            Ok((place, key)) => {
                context.report.translated(&at);
                if self.options.passthrough {
                    self.pass(&route, &key, &at, context);
                    return;
                }
                route.target = Target::Backends(vec![(place, 1)]);
                self.set_service_annotations(&key, &at, context);
            }
            Err(why) => {
                context.report.closed(&at, &format!("{why}: requests get 403"));
                route.close(&why);
            }
        }
        route.rewrite = rewrite;
        route.rewrite_host.clone_from(&self.options.sent_host);
        route.request.set.clone_from(&self.options.headers);
        self.push(route, written, context);
    }

    fn push(&self, route: Route, written: &str, context: &mut Context<'_>) {
        let route = self.finished(route, context);
        match patterns::is_of(&route.condition.hosts, &context.pattern_hosts) {
            true => context.pattern_routes.push(PatternRoute { route, written: written.to_owned() }),
            false => context.proxy.routes.push(route),
        }
    }

    fn finished(&self, mut route: Route, context: &mut Context<'_>) -> Route {
        route.namespace = Some(self.object.key().namespace);
        route.decodes = true;
        route.sources.clone_from(&self.options.sources);
        if let Some(why) = &self.options.closed {
            route.close(why);
        }
        if let Some(why) = self.options.of_host {
            context.whole_hosts.push((route.condition.hosts.clone(), self.object.place.clone(), why));
        }
        let tls = self.tls(route.condition.hosts.first());
        // As ingress-nginx does it, which has a certificate of its own where no Secret is named.
        route.https = self.options.https.or(tls.map(|_| true));
        route.tls = tls.and_then(|it| text(it, "secretName")).map(str::to_owned);
        route
    }

    /// TLS that is passed through is said by the Service.
    fn pass(&self, route: &Route, key: &Key, at: &DirectiveLocation, context: &mut Context<'_>) {
        let hosts: Vec<String> = route.condition.hosts.iter().map(Host::written).collect();
        if hosts.is_empty() || self.options.closed.is_some() || !self.options.sources.is_empty() {
            return context.report.closed(
                at,
                "TLS is passed through by host names, to every client: no listener is created for this Ingress",
            );
        }
        let wanted = context.wanted.entry(key.clone()).or_default();
        wanted.insert("tls-passthrough", "true".to_owned());
        wanted.insert("host", hosts.join(", "));
        self.set_service_annotations(key, at, context);
    }

    /// The Service gets what the Ingress says of it.
    fn set_service_annotations(&self, key: &Key, at: &DirectiveLocation, context: &mut Context<'_>) {
        let is_there = context.service(key).is_some();
        let wanted = context.wanted.entry(key.clone()).or_default();
        for (name, value) in &self.options.service {
            match wanted.get(name).filter(|it| *it != value) {
                Some(other) if is_stricter(name, value, other) => {
                    let why = format!(
                        "the Service gets seaway.dev/{name}: {value}, which is stricter, and not {other}, which another Ingress asks for: the annotation has one value for all routes of a Service"
                    );
                    context.report.left_out(at, &why);
                    wanted.insert(name, value.clone());
                }
                Some(other) => {
                    let why = format!(
                        "the Service gets seaway.dev/{name}: {other}, which another Ingress asks for, and not {value}: the annotation has one value for all routes of a Service"
                    );
                    context.report.left_out(at, &why);
                }
                None => drop(wanted.insert(name, value.clone())),
            }
        }
        if !is_there && !wanted.is_empty() {
            let all: Vec<String> =
                wanted.iter().map(|(name, value)| format!("seaway.dev/{name}={value}")).collect();
            let why = format!(
                "the Service is not in this file, so annotate it: kubectl -n {} annotate --overwrite service {} {}",
                key.namespace,
                key.name,
                all.join(" ")
            );
            context.report.left_out(at, &why);
        }
    }

    fn path(
        &self,
        written: &str,
        kind: &str,
        is_pattern: bool,
        at: &DirectiveLocation,
        context: &mut Context<'_>,
    ) -> Result<(PathRule, Option<Rewrite>), String> {
        let exact = kind == "Exact";
        let Some(target) = &self.options.rewrite else {
            return Ok((
                match kind {
                    "Exact" => PathRule::Exact(written.to_owned()),
                    "ImplementationSpecific" if self.options.by_expression => {
                        PathRule::Regex(decoded(&format!("^{written}"), true, true))
                    }
                    _ if self.options.by_expression && written.contains(['(', '[', '*', '\\', '$']) => {
                        PathRule::Regex(decoded(&format!("^{written}"), true, true))
                    }
                    "ImplementationSpecific" if !is_pattern => {
                        context.report.differs(at, "the path is matched by whole segments");
                        PathRule::Prefix(written.to_owned())
                    }
                    _ => PathRule::Prefix(written.to_owned()),
                },
                None,
            ));
        };
        // `/shop(/|$)(.*)` and `/$2`.
        let before = written.strip_suffix("(/|$)(.*)").filter(|_| target == "/$2");
        let before = before.or_else(|| written.strip_suffix("/(.*)").filter(|_| target == "/$1"));
        if let Some(before) = before.filter(|it| !it.contains(['(', '[', '*', '\\', '$'])) {
            let path = if before.is_empty() { "/" } else { before };
            return Ok((
                PathRule::Prefix(path.to_owned()),
                (path != "/").then(|| Rewrite::Prefix("/".to_owned())),
            ));
        }
        if target.contains('$') || !target.starts_with('/') || written.contains(['(', '[', '*', '\\', '$']) {
            return Err("rewrite-target: Seaway replaces a prefix of the path, or all of it, by fixed text"
                .to_owned());
        }
        context.report.differs(at, "rewrite-target: all of the path is replaced, as ingress-nginx does it");
        let rewrite = Rewrite::Full(target.clone());
        Ok((
            if exact { PathRule::Exact(written.to_owned()) } else { PathRule::Prefix(written.to_owned()) },
            Some(rewrite),
        ))
    }

    fn backend(&self, backend: &Node, context: &mut Context<'_>) -> Result<(usize, Key), String> {
        let Some(service) = backend.child("service") else {
            return Err("only Service backends are supported (no resource backends)".to_owned());
        };
        let name = text(service, "name").unwrap_or_default();
        let key = self.key(name);
        let port = service.child("port");
        let number =
            port.and_then(|it| it.child("number")).and_then(scalar).and_then(|it| it.parse::<u16>().ok());
        let by_name = || {
            let wanted = port.and_then(|it| text(it, "name"))?;
            let ports = context.service(&key).and_then(Object::spec).map_or(&[][..], |it| items(it, "ports"));
            let found = ports.iter().find(|it| text(it, "name") == Some(wanted))?;
            found.child("port").and_then(scalar)?.parse().ok()
        };
        let Some(number) = number.or_else(by_name) else {
            return Err("the port is named, and its Service is not in this file: write its number".to_owned());
        };
        let wanted = Backend {
            name: name.to_owned(),
            namespace: Some(key.namespace.clone()),
            port: Some(number),
            is_there: true,
            ..Backend::default()
        };
        let known = context.proxy.backends.iter().position(|it| *it == wanted);
        let at = known.unwrap_or_else(|| {
            context.proxy.backends.push(wanted);
            context.proxy.backends.len() - 1
        });
        Ok((at, key))
    }
}

fn is_protected(options: &Options) -> bool {
    options.closed.is_some() || !options.sources.is_empty()
}

/// What every path begins with that an expression is for.
pub(super) fn beginning(text: &str) -> &str {
    let end = text.find(|it| "([.*?+{|$^\\".contains(it)).unwrap_or(text.len());
    let (start, rest) = text.split_at(end);
    // The last letter need not be there; of alternatives, each begins as it likes.
    let end = if rest.starts_with(['?', '*', '{']) { start.len().saturating_sub(1) } else { start.len() };
    let start = if has_top_level_bar(text) { "" } else { start.get(..end).unwrap_or_default() };
    if start.starts_with('/') { start } else { "/" }
}

/// Whether a value protects more than another one of the same annotation.
fn is_stricter(name: &str, value: &str, other: &str) -> bool {
    // 0 is no limit.
    let bytes = |text| size(text).ok().filter(|it| *it > 0).unwrap_or(u64::MAX);
    match name {
        "backend-tls-verify" => value == "on",
        "max-body-size" => bytes(value) < bytes(other),
        _ => false,
    }
}
