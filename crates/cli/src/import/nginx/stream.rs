//! `stream`: TCP and UDP, each server a listener with one backend; TLS that is passed through by its name.

use std::collections::BTreeMap;

use super::{
    super::proxy::{Backend, Host, OwnListener, WITH_PLAINTEXT, host, no_backend, service_name},
    access::access,
    context::{Context, Scopes},
    cover, headers, judge_rest, keep_upstream,
    names::{Listen, listens},
    parse::Directive,
    upstream::{NO_SERVERS, Upstream, member, upstream},
};

pub(super) fn read(block: &[Directive], context: &mut Context) {
    for it in block {
        if it.name == "map" {
            cover(it.block.as_deref().unwrap_or_default(), context);
        }
        match (&*it.name, &it.block) {
            ("upstream", Some(inner)) => keep_upstream(it, inner, context),
            ("map", Some(_)) if it.arg(0) == "$ssl_preread_server_name" => {
                context.report.translated(&it.place);
                context.maps.insert(it.arg(1).trim_start_matches('$').to_owned(), it.clone());
            }
            ("map", _) => {
                context.report.left_out(&it.place, "Seaway has no variables but $ssl_preread_server_name")
            }
            _ => {}
        }
    }
    judge_rest(block, &["server", "upstream", "map", "include"], context);
    let outermost = Scopes::new(block);
    for it in block.iter().filter(|it| it.name == "server") {
        let Some(inner) = &it.block else { continue };
        context.report.translated(&it.place);
        judge_rest(inner, &["listen", "proxy_pass"], context);
        server(inner, &outermost.within(inner), context);
    }
}

fn server(block: &[Directive], scopes: &Scopes<'_>, context: &mut Context) {
    let Some(pass) = block.iter().find(|it| it.name == "proxy_pass") else { return };
    let access = access(scopes, context);
    let listens = listens(block, &mut context.report);
    if let Some(why) = &access.closed {
        for (_, written) in &listens {
            context.report.closed(&written.place, &format!("no listener is created for this server: {why}"));
        }
        return;
    }
    let preread = scopes.argument("ssl_preread") == "on";
    let variable = pass.arg(0).trim_start_matches('$');
    if let Some(map) = context.maps.get(variable).filter(|_| preread && pass.arg(0).starts_with('$')).cloned()
    {
        context.report.translated(&pass.place);
        passthrough(&map, &listens, scopes, &access.sources, context);
        return;
    }
    let (name, annotations) = (pass.arg(0).to_owned(), terms(scopes));
    match backend(&name, annotations, context) {
        Some(backend) => {
            context.report.translated(&pass.place);
            for (listen, written) in &listens {
                open(listen, written, backend, &access.sources, context);
            }
        }
        None => {
            let why = match context.upstreams.contains_key(&name) {
                true => NO_SERVERS,
                false => no_backend(&name),
            };
            context.report.left_out(&pass.place, &format!("{why}. No listener is created for this server"));
        }
    }
}

fn terms(scopes: &Scopes<'_>) -> BTreeMap<&'static str, String> {
    let mut terms = BTreeMap::new();
    for (name, annotation) in
        [("proxy_timeout", "timeout-idle"), ("proxy_connect_timeout", "timeout-connect")]
    {
        if let Some(millis) = headers::duration(scopes.argument(name)).filter(|it| *it > 0) {
            terms.insert(annotation, headers::written(millis));
        }
    }
    if scopes.argument("proxy_protocol") == "on" {
        terms.insert("proxy-protocol", "v1".to_owned());
    }
    terms
}

fn backend(
    name: &str,
    mut annotations: BTreeMap<&'static str, String>,
    context: &mut Context,
) -> Option<usize> {
    let known = context.upstreams.get(name).and_then(|it| it.block.clone());
    let Upstream { members, annotations: more } = match known {
        Some(block) => upstream(&block, None, context),
        None => Upstream { members: member(name, None).into_iter().collect(), ..Upstream::default() },
    };
    annotations.extend(more);
    let named = service_name(name);
    let is_any = !members.is_empty();
    let wanted = Backend { name: named, members, annotations, ..Backend::default() };
    is_any.then(|| context.proxy.backend(wanted))
}

fn open(listen: &Listen, written: &Directive, backend: usize, sources: &[String], context: &mut Context) {
    let mut annotations = BTreeMap::new();
    if listen.ssl {
        context.report.closed(
            &written.place,
            "TLS at a Service's own address ends with a Secret that seaway.dev/tls names: no listener is created for this server",
        );
        return;
    }
    if listen.proxy_protocol {
        if !sources.is_empty() {
            context.report.closed(&written.place, "nginx compares networks with the proxy's address here, and Seaway with the client's: no listener is created for this server");
            return;
        }
        annotations.insert("proxy-protocol-from", "0.0.0.0/0, ::/0".to_owned());
        context.report.differs(
            &written.place,
            "name the trusted proxies in seaway.dev/proxy-protocol-from: until then, \
             as in nginx, every client is trusted",
        );
    }
    if listen.udp
        && let Some(it) = context.proxy.backends.get_mut(backend)
    {
        // What is said of time is of flows.
        if let Some(time) = it.annotations.remove("timeout-idle") {
            it.annotations.insert("timeout-udp", time);
        }
        it.annotations.remove("timeout-connect");
    }
    if listen.address.is_some()
        && let Some(it) = context.proxy.backends.get_mut(backend)
    {
        it.port = Some(listen.port);
        it.annotations.extend(std::mem::take(&mut annotations));
        if !sources.is_empty() {
            it.annotations.insert("source-ranges", sources.join(", "));
        }
    }
    let (port, udp, address) = (listen.port, listen.udp, listen.address);
    context.proxy.listeners.push(OwnListener {
        backend,
        port,
        udp,
        address,
        annotations,
        sources: sources.to_vec(),
        passthrough: Vec::new(),
    });
}

fn passthrough(
    map: &Directive,
    listens: &[(Listen, Directive)],
    scopes: &Scopes<'_>,
    sources: &[String],
    context: &mut Context,
) {
    let Some((listen, written)) = listens.first() else { return };
    if !sources.is_empty() || listen.proxy_protocol || listen.address.is_some() {
        context.report.closed(
            &written.place,
            "the front door passes TLS on at all of its addresses, to every client: no listener is created for this server",
        );
        return;
    }
    if context.proxy.door.has_plaintext_at(listen.port) {
        context.report.left_out(&written.place, WITH_PLAINTEXT);
        return;
    }
    if context.proxy.door.https.is_some_and(|it| it != listen.port) && !context.proxy.routes.is_empty() {
        context.report.left_out(
            &written.place,
            "the front door has one port with TLS, which is not this one: no listener is created for this server",
        );
        return;
    }
    let mut by_backend: Vec<(usize, Vec<Host>)> = Vec::new();
    let mut lost: Vec<Host> = Vec::new();
    for entry in map.block.iter().flatten() {
        let (name, to) = (&*entry.name, entry.arg(0));
        if matches!(name, "hostnames" | "volatile") {
            continue;
        }
        let hosts: Vec<Host> = match name.strip_prefix('.') {
            Some(below) => host(below).into_iter().chain(host(&format!("*.{below}"))).collect(),
            None if name == "default" => Vec::new(),
            None => host(name).into_iter().collect(),
        };
        if hosts.is_empty() {
            context.report.left_out(
                &map.place,
                &format!("{name}: TLS is passed on by host names such as shop.example and *.shop.example"),
            );
            continue;
        }
        let annotations: BTreeMap<&'static str, String> =
            terms(scopes).into_iter().filter(|it| it.0 == "proxy-protocol").collect();
        match backend(to, annotations, context) {
            Some(backend) => match by_backend.iter_mut().find(|it| it.0 == backend) {
                Some((_, known)) => known.extend(hosts),
                None => by_backend.push((backend, hosts)),
            },
            None => {
                context.report.left_out(&map.place, &format!("{to} is not a backend (ADDRESS:PORT)"));
                lost.extend(hosts);
            }
        }
    }
    let wider = |lost: &Host| {
        by_backend.iter().flat_map(|it| &it.1).any(|it| it != lost && it.meet(lost).as_ref() == Some(lost))
    };
    if lost.iter().any(wider) {
        context.report.closed(
            &written.place,
            "a host name of the map has no backend, and a wildcard entry would take its connections: no listener is created for the server",
        );
        return;
    }
    context.proxy.door.https = Some(listen.port);
    for (backend, hosts) in by_backend {
        context.proxy.listeners.push(OwnListener {
            backend,
            port: 443,
            udp: false,
            address: None,
            annotations: BTreeMap::new(),
            sources: Vec::new(),
            passthrough: hosts,
        });
    }
}
