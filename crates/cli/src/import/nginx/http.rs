//! `http`: which servers are at the front door's ports, and in which order their routes count.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use super::{
    super::proxy::{Certificate, Condition, Host, OwnListener, PathRule, Redirect, Route, Target},
    context::{Context, Scopes},
    cover, guard, headers, judge_rest, keep_upstream,
    names::{Listen, listens, names},
    parse::Directive,
    ports::Ports,
    server::{Server, ServerRoutes, served},
};

pub(super) fn read(block: &[Directive], context: &mut Context) {
    for it in block {
        if it.name == "map" {
            cover(it.block.as_deref().unwrap_or_default(), context);
        }
        match (&*it.name, &it.block) {
            ("upstream", Some(inner)) => keep_upstream(it, inner, context),
            ("map", _) if it.args == ["$http_upgrade", "$connection_upgrade"] => {
                context.report.no_effect(&it.place, "Seaway forwards WebSockets without a setting");
            }
            ("map", _) => context.report.left_out(
                &it.place,
                "Seaway has no variables: an HTTPRoute matches host, path, method, headers and query",
            ),
            _ => {}
        }
    }
    settings(block, context);
    judge_rest(block, &["server", "upstream", "map", "location", "include"], context);
    let outermost = Scopes::new(block);
    let mut servers: Vec<Server<'_>> = Vec::new();
    let written = block.iter().filter(|it| it.name == "server");
    for it in written {
        let Some(inner) = &it.block else { continue };
        context.report.translated(&it.place);
        servers.push(Server {
            directive: it,
            block: inner,
            scopes: outermost.within(inner),
            names: names(inner, &mut context.report),
            listens: listens(inner, &mut context.report),
            hsts: Default::default(),
        });
    }
    // An example of locations alone.
    if let Some(first) = block.iter().find(|it| it.name == "location").filter(|_| servers.is_empty()) {
        servers.push(Server {
            directive: first,
            block,
            scopes: outermost,
            names: names(&[], &mut context.report),
            listens: vec![(Listen { port: 80, is_default: true, ..Listen::default() }, first.clone())],
            hsts: Default::default(),
        });
    }
    let chosen: Vec<bool> = servers
        .iter()
        .map(|it| it.listens.iter().any(|(listen, _)| is_first(it, listen, &servers)))
        .collect();
    for (server, _) in servers.iter_mut().zip(chosen).filter(|it| !it.1) {
        server.names.with_local();
    }
    guard::believe(&servers, context);
    let door = Ports::of(&servers);
    (context.proxy.door.http, context.proxy.door.https) = (door.http, door.https);
    context.proxy.door.addresses = door.addresses.iter().copied().collect();
    all(&servers, &door, context);
}

/// What is said of all servers.
fn settings(block: &[Directive], context: &mut Context) {
    let servers = block.iter().filter(|it| it.name == "server").filter_map(|it| it.block.as_ref());
    let blocks: Vec<&[Directive]> = std::iter::once(block).chain(servers.map(Vec::as_slice)).collect();
    for it in blocks.iter().flat_map(|it| it.iter()) {
        let time = headers::duration(it.arg(0)).filter(|it| *it > 0).map(headers::written);
        match &*it.name {
            "keepalive_timeout" | "client_header_timeout" => {
                let key = if it.name == "keepalive_timeout" { "keepAlive" } else { "header" };
                match (context.proxy.timeouts.get(key), time) {
                    (None, Some(time)) => drop(context.proxy.timeouts.insert(key, time)),
                    (Some(known), Some(time)) if *known == time => {}
                    _ => context.report.differs(
                        &it.place,
                        "Seaway has one value of this timeout for all servers: the first in the file is used",
                    ),
                }
            }
            "ssl_protocols" => {
                let only_new = it.args == ["TLSv1.3"];
                context.proxy.door.modern |= only_new
                    && !blocks
                        .iter()
                        .flat_map(|it| it.iter())
                        .any(|of| of.name == "ssl_protocols" && of.args != ["TLSv1.3"]);
                if it.args.iter().any(|it| matches!(it.as_str(), "TLSv1" | "TLSv1.1" | "SSLv3" | "SSLv2")) {
                    context.report.differs(&it.place, "Seaway speaks TLS 1.2 and 1.3");
                }
            }
            "http2" | "ssl" if it.arg(0) == "off" && it.name == "http2" => {
                context.report.differs(&it.place, "clients that offer HTTP/2 by TLS get it");
            }
            _ => {}
        }
    }
}

/// A server whose routes are known.
pub(super) struct RoutedServer<'s, 'd> {
    pub(super) server: &'s Server<'d>,
    pub(super) served: ServerRoutes,
    plain: bool,
    tls: bool,
    pub(super) is_default: bool,
    pub(super) closed: Option<String>,
}

fn all(servers: &[Server<'_>], door: &Ports, context: &mut Context) {
    let mut ready: Vec<RoutedServer<'_, '_>> =
        servers.iter().filter_map(|it| prepare(it, servers, door, context)).collect();
    let hidden: Vec<&Server<'_>> = servers
        .iter()
        .filter(|it| !ready.iter().any(|of| of.server.directive.place == it.directive.place))
        .collect();
    for server in hidden {
        own(server, servers, context);
    }
    guard::lost_names(&mut ready, context);
    certificates(&mut ready, context);
    clients(&mut ready, context);
    // Of one name, what is served by TLS counts first: the same routes are at both ports.
    ready.sort_by_key(|it| !it.tls);
    let tls_hosts: Vec<Host> =
        ready.iter().filter(|it| it.tls).flat_map(|it| it.server.names.hosts.clone()).collect();
    let any_tls = ready.iter().any(|it| it.tls && (it.is_default || it.server.names.has_none));
    let has_wildcard =
        ready.iter().any(|it| it.server.names.hosts.iter().any(|it| matches!(it, Host::Under(_))));
    for it in &ready {
        emit(it, &tls_hosts, any_tls, has_wildcard, context);
    }
    rest(&ready, context);
    redirect_all(context);
    hsts(context);
}

/// Whether a server gets requests for names that no server of its port has.
fn is_first(server: &Server<'_>, listen: &Listen, all: &[Server<'_>]) -> bool {
    let same = all
        .iter()
        .flat_map(|it| &it.listens)
        .filter(|(it, _)| it.port == listen.port && it.ssl == listen.ssl);
    let chosen = same.clone().find(|(it, _)| it.is_default).or_else(|| same.clone().next());
    chosen.is_some_and(|(_, it)| server.listens.iter().any(|(_, of)| of.place == it.place))
}

fn prepare<'s, 'd>(
    server: &'s Server<'d>,
    all: &[Server<'_>],
    door: &Ports,
    context: &mut Context,
) -> Option<RoutedServer<'s, 'd>> {
    let front: Vec<&(Listen, Directive)> = server.listens.iter().filter(|(it, _)| door.has(it)).collect();
    let (first, _) = front.first()?;
    for (listen, written) in server.listens.iter().filter(|(it, _)| !door.has(it)) {
        let _ = listen;
        context.report.left_out(&written.place, "the front door has one port without TLS and one with it, and this server is there: other ports are not opened");
    }
    let mut closed = None;
    let mut close = |it: &Directive, why: &str, context: &mut Context| {
        context.report.closed(&it.place, why);
        closed.get_or_insert_with(|| why.to_owned());
    };
    for (listen, written) in guard::elsewhere(&front, &door.addresses) {
        let what = match listen.address.as_ref().is_some_and(super::access::is_loopback) {
            true => "at loopback",
            false => "at this address",
        };
        let why = format!(
            "this server listens only {what}, and the front door listens at the addresses of all servers: run a second seaway for this server"
        );
        close(written, &why, context);
    }
    for (_, written) in front.iter().filter(|(it, _)| it.proxy_protocol) {
        close(
            written,
            "the front door takes no PROXY protocol: let the proxy before it send X-Forwarded-For, and name it in `frontDoor.trusted`",
            context,
        );
    }
    let says_default = front.iter().any(|(it, _)| it.is_default);
    let is_default = says_default || (server.names.has_none && is_first(server, first, all));
    if !is_default && !server.names.hosts.is_empty() && is_first(server, first, all) {
        context.report.differs(&server.directive.place, "nginx gives this server requests for unknown host names as well; in Seaway they get 404, unless its listen has `default_server`");
    }
    let mut served = served(server, context);
    if let Some(why) = &closed {
        served.routes.iter_mut().for_each(|it| it.close(why));
    }
    let plain = front.iter().any(|(it, _)| !it.ssl);
    let tls = front.iter().any(|(it, _)| it.ssl);
    Some(RoutedServer { server, served, plain, tls, is_default, closed })
}

/// A server at a port that is not the front door's: one that leads everything to one backend has a listener of its own.
fn own(server: &Server<'_>, all: &[Server<'_>], context: &mut Context) {
    let mut served = served(server, context);
    let whole = served.routes.iter().position(|it| it.condition.path == PathRule::Prefix("/".to_owned()));
    let only = (served.routes.len() == 1 && !served.to_https)
        .then(|| whole.map(|it| served.routes.remove(it)))
        .flatten();
    let only = only.filter(|it| {
        it.closed.is_none()
            && it.https.is_none()
            && it.rewrite.is_none()
            && it.rewrite_host.is_none()
            && it.request.is_empty()
            && it.response.is_empty()
    });
    for (listen, written) in &server.listens {
        let sharing = all.iter().filter(|it| it.listens.iter().any(|(it, _)| it.port == listen.port)).count();
        let backend = only.as_ref().and_then(|it| match it.target {
            Target::Backends(ref to) => to.first().map(|it| it.0),
            _ => None,
        });
        let why = match (listen, backend) {
            (it, _) if it.ssl => {
                "Seaway ends TLS at other ports than the front door's with a Secret that seaway.dev/tls names: no listener is created for this server"
            }
            (it, _) if it.proxy_protocol => {
                "not served: the PROXY protocol is accepted only by a Service of type LoadBalancer with seaway.dev/proxy-protocol-from (the proxies that send it)"
            }
            (it, _) if it.address.is_some() => {
                "this server listens at one address, and its own listener beside the front door would listen at all \
                     addresses: run a second seaway for this server; no listener is created for this server"
            }
            _ if sharing > 1 => {
                "several servers are at this port, which is not the front door's: no listener is created for this server"
            }
            (_, None) => {
                "at a port that is not the front door's, Seaway sends all requests to one backend: no listener is created for this server"
            }
            (_, Some(backend)) => {
                let annotations = BTreeMap::from([("protocol", "http".to_owned())]);
                let sources = only.as_ref().map(|it| it.sources.clone()).unwrap_or_default();
                let port = listen.port;
                context.proxy.listeners.push(OwnListener {
                    backend,
                    port,
                    udp: false,
                    address: None,
                    annotations,
                    sources,
                    passthrough: Vec::new(),
                });
                continue;
            }
        };
        context.report.left_out(&written.place, why);
    }
}

fn certificates(ready: &mut [RoutedServer<'_, '_>], context: &mut Context) {
    for it in ready.iter_mut().filter(|it| it.tls) {
        let (certs, keys) =
            (it.server.scopes.all(&["ssl_certificate"]), it.server.scopes.all(&["ssl_certificate_key"]));
        let mut found = 0_usize;
        for (cert, key) in certs.iter().zip(&keys) {
            if [cert, key].iter().any(|it| {
                it.arg(0).contains('$') || it.arg(0).starts_with("data:") || it.arg(0).starts_with("engine:")
            }) {
                context.report.left_out(
                    &cert.place,
                    "certificate and key must be file names, without variables, data: or engine:",
                );
                continue;
            }
            found = found.saturating_add(1);
            let paths = Certificate { cert: context.path(cert.arg(0)), key: Some(context.path(key.arg(0))) };
            if !paths.cert.exists() {
                context.report.differs(&cert.place, "the file does not exist on this machine");
            }
            if !context.proxy.door.certificates.contains(&paths) {
                context.proxy.door.certificates.push(paths);
            }
        }
        if found == 0 && !it.served.routes.is_empty() {
            let why = "the server has no certificate, and is not served without TLS";
            context.report.closed(&it.server.directive.place, why);
            it.served.routes.iter_mut().for_each(|it| it.close(why));
        }
    }
}

/// Certificates of clients: the front door asks all of them, or none.
fn clients(ready: &mut [RoutedServer<'_, '_>], context: &mut Context) {
    let of = |it: &RoutedServer<'_, '_>| -> Option<(PathBuf, bool)> {
        let scopes = &it.server.scopes;
        let required = match scopes.argument("ssl_verify_client") {
            "on" => true,
            "optional" => false,
            _ => return None,
        };
        Some((context.path(scopes.one("ssl_client_certificate")?.arg(0)), required))
    };
    let serving = |it: &&RoutedServer<'_, '_>| !it.served.routes.is_empty();
    let wanted: BTreeSet<Option<(PathBuf, bool)>> = ready.iter().filter(serving).map(of).collect();
    let all: Vec<_> = wanted.into_iter().collect();
    if let [Some(only)] = all.as_slice() {
        for of in ready.iter() {
            let said = ["ssl_verify_client", "ssl_client_certificate"];
            said.iter()
                .filter_map(|it| of.server.scopes.one(it))
                .for_each(|it| context.report.translated(&it.place));
        }
        context.proxy.door.clients = Some(only.clone());
        return;
    }
    for it in ready.iter_mut() {
        let Some(verify) = it.server.scopes.one("ssl_verify_client").filter(|it| it.arg(0) != "off") else {
            continue;
        };
        let why = "client certificates (mTLS) are required at all of the front door or at none of it: run a second seaway for the servers that require them";
        context.report.closed(&verify.place, why);
        it.served.routes.iter_mut().for_each(|it| it.close(why));
    }
}

fn emit(
    it: &RoutedServer<'_, '_>,
    tls_hosts: &[Host],
    any_tls: bool,
    has_wildcard: bool,
    context: &mut Context,
) {
    let hosts = &it.server.names.hosts;
    let mut sets: Vec<Vec<Host>> = Vec::new();
    if !hosts.is_empty() && (!it.is_default || has_wildcard) {
        sets.push(hosts.clone());
    }
    if it.is_default {
        sets.push(Vec::new());
    }
    let is_served_by_tls =
        if it.is_default { any_tls } else { hosts.iter().all(|it| tls_hosts.contains(it)) };
    let https = (it.tls && (!it.plain || it.served.to_https)).then_some(true);
    let named = guard::named(it, it.tls || is_served_by_tls, context);
    if it.served.to_https && !it.tls && !is_served_by_tls {
        // Something else ends TLS for it.
        for hosts in &sets {
            let condition = Condition { hosts: hosts.clone(), ..Condition::default() };
            let host = named.clone().filter(|_| hosts.is_empty());
            let to = Redirect { scheme: Some("https"), host, code: 301, ..Redirect::default() };
            let mut route = Route::new(it.server.directive.place.clone(), condition, Target::Redirect(to));
            route.closed.clone_from(&it.closed);
            context.proxy.routes.push(route);
        }
    }
    if sets.is_empty() && !it.served.routes.is_empty() {
        context.report.left_out(
            &it.server.directive.place,
            "no request reaches this server: it has no server_name, and is not the default_server of its port",
        );
    }
    let lasting = it.server.hsts.borrow();
    for hosts in sets {
        for (at, route) in it.served.routes.iter().enumerate() {
            if route.made
                && hosts.is_empty()
                && route.closed.is_some()
                && matches!(route.target, Target::Nothing)
            {
                continue;
            }
            let mut route = route.clone();
            route.condition.hosts.clone_from(&hosts);
            route.https = https.or(route.https);
            if it.plain && !it.tls && is_served_by_tls && it.served.to_https {
                route.https = Some(false);
            }
            let seconds = lasting.iter().find(|(of, _)| *of == at).and_then(|it| it.1.clone());
            if let Some(seconds) = seconds.filter(|_| it.tls && matches!(route.target, Target::Backends(_))) {
                context.hsts.push((context.proxy.routes.len(), seconds));
            }
            context.proxy.routes.push(route);
        }
    }
}

/// What a server does not serve must not go to the default server, or to one with a wildcard.
fn rest(ready: &[RoutedServer<'_, '_>], context: &mut Context) {
    let covers = |host: &Host, routes: &[Route]| {
        routes.iter().any(|it| {
            it.condition.hosts.is_empty()
                || it
                    .condition
                    .hosts
                    .iter()
                    .any(|of| of != host && of.meet(host).is_some() && matches!(of, Host::Under(_)))
        })
    };
    let mut made = Vec::new();
    for it in ready.iter().filter(|it| !it.is_default) {
        let routes = &context.proxy.routes;
        let hosts: Vec<Host> =
            it.server.names.hosts.iter().filter(|host| covers(host, routes)).cloned().collect();
        if hosts.is_empty() {
            continue;
        }
        let condition = Condition { hosts, ..Condition::default() };
        let mut route = Route::new(it.server.directive.place.clone(), condition, Target::Nothing);
        route.closed = Some(
            "no location for the other paths of this server could be translated: they get 403".to_owned(),
        );
        route.made = true;
        made.push(route);
    }
    context.proxy.routes.extend(made);
}

/// Where all are served by https alone, that is said once.
fn redirect_all(context: &mut Context) {
    let proxy = &mut context.proxy;
    let is_plain = |it: &Route| it.https != Some(true) && !(it.closed.is_some() && it.made);
    if proxy.door.certificates.is_empty() || proxy.routes.iter().any(is_plain) || proxy.routes.is_empty() {
        return;
    }
    proxy.door.redirect = true;
    proxy.routes.iter_mut().for_each(|it| it.https = None);
}

fn hsts(context: &mut Context) {
    let proxy = &mut context.proxy;
    let forwarded = proxy
        .routes
        .iter()
        .filter(|it| {
            matches!(it.target, Target::Backends(_)) && it.closed.is_none() && it.https != Some(false)
        })
        .count();
    let mut lasting: Vec<&String> = context.hsts.iter().map(|it| &it.1).collect();
    lasting.sort();
    lasting.dedup();
    if let ([only], true) = (lasting.as_slice(), context.hsts.len() >= forwarded) {
        proxy.door.hsts = Some((*only).clone());
        return;
    }
    for (at, seconds) in &context.hsts {
        if let Some(route) = proxy.routes.get_mut(*at) {
            let value = format!("max-age={}", seconds.trim_end_matches('s'));
            route.response.set.push(("Strict-Transport-Security".to_owned(), value));
        }
    }
}
