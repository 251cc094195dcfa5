//! Frontends: which of them are the front door, and which have listeners of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use anyhow::Result;

use super::{
    super::proxy::{Condition, OwnListener, Redirect, Route, Target},
    Context,
    bind::{Bind, binds},
    rules::{Ports, routes},
    sections::Section,
    tcp, time,
};

struct Frontend<'s> {
    section: &'s Section,
    binds: Vec<Bind<'s>>,
}

pub(super) fn read(context: &mut Context<'_>) -> Result<()> {
    times(context);
    let mut http = Vec::new();
    for section in context.sections.iter().filter(|it| matches!(&*it.kind, "frontend" | "listen")) {
        let binds = binds(section, context);
        let is_page = section.with("stats").next().is_some()
            && section.with("server").next().is_none()
            && context.lines(section, "default_backend").is_empty();
        if is_page {
            let unread =
                |it: &&super::sections::Line| !matches!(it.word(0), "stats" | "log" | "option" | "maxconn");
            for line in section.lines.iter().filter(unread) {
                context.report.no_effect(
                    &line.place,
                    "HAProxy's statistics page is not imported; Seaway's status page is at http://127.0.0.1:1936/ (`admin.listen`)",
                );
            }
            continue;
        }
        if let Some(line) = context.lines(section, "mode").into_iter().next_back()
            && !matches!(line.word(1), "http" | "tcp")
        {
            context.report.closed(
                &line.place,
                "only mode http and mode tcp are supported: this frontend is not served",
            );
            continue;
        }
        match context.is_http(section) {
            true => http.push(Frontend { section, binds }),
            false => tcp::read(section, &binds, context)?,
        }
    }
    let plain = most(&http, false);
    // At one port, requests in plaintext and TLS cannot be told apart, and the one for plaintext is always there.
    let is_apart = |it: &u16| *it != plain.unwrap_or(80);
    let tls = most(&http, true).filter(is_apart);
    if !http.is_empty() {
        context.proxy.door.http = plain;
        context.proxy.door.https = tls.or(context.proxy.door.https.filter(is_apart));
    }
    let is_front = |it: &Bind<'_>| Some(it.port) == if it.ssl { tls } else { plain };
    let at: Vec<Option<IpAddr>> =
        http.iter().flat_map(|it| &it.binds).filter(|it| is_front(it)).map(|it| it.address).collect();
    if at.iter().all(Option::is_some) {
        let all: BTreeSet<IpAddr> = at.into_iter().flatten().collect();
        context.proxy.door.addresses = all.into_iter().collect();
    }
    clients(&http, context);
    // Of two with the same matches, that behind TLS counts.
    http.sort_by_key(|it| !it.binds.iter().any(|it| it.ssl && is_front(it)));
    let has_tls = http.iter().any(|it| it.binds.iter().any(|it| it.ssl && is_front(it)));
    for frontend in &http {
        let (front, others): (Vec<&Bind<'_>>, Vec<&Bind<'_>>) =
            frontend.binds.iter().partition(|it| is_front(it));
        if front.is_empty() {
            own(frontend, context)?;
            continue;
        }
        for bind in others {
            context.report.left_out(&bind.line.place, "the front door has one port without TLS and one with it, and this frontend is there: other ports are not opened");
        }
        emit(frontend, &front, has_tls, context)?;
    }
    redirect_all(context);
    unused(context);
    Ok(())
}

/// Times that all have in common, from the first defaults.
fn times(context: &mut Context<'_>) {
    let Some(first) = context.sections.iter().find(|it| it.kind == "defaults") else { return };
    let mut longest = |key, names: &[&str]| {
        if let Some(millis) = names.iter().filter_map(|it| context.timeout(first, it)).max() {
            context.proxy.timeouts.insert(key, time(millis));
        }
    };
    longest("connect", &["connect"]);
    longest("answer", &["client", "server"]);
    longest("header", &["http-request"]);
    longest("keepAlive", &["http-keep-alive"]);
    longest("idle", &["tunnel"]);
    longest("halfClosed", &["client-fin", "server-fin"]);
    for line in context.sections.iter().flat_map(|it| it.with("timeout")) {
        match line.word(1) {
            "tarpit" => context.report.no_effect(&line.place, "Seaway has no tarpit: it delays no requests"),
            "queue" | "connect" | "client" | "server" | "http-request" | "http-keep-alive" | "tunnel"
            | "client-fin" | "server-fin" | "check" => {}
            _ => context.report.left_out(&line.place, "Seaway has no counterpart to this timeout"),
        }
        if super::duration(line.word(2)).is_none() {
            context.report.left_out(&line.place, &format!("{:?} is not a duration", line.word(2)));
        }
    }
}

/// The port of the front door: the usual one if any frontend has it, else that of most.
fn most(http: &[Frontend<'_>], ssl: bool) -> Option<u16> {
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    for bind in http.iter().flat_map(|it| &it.binds).filter(|it| it.ssl == ssl) {
        *counts.entry(bind.port).or_default() += 1;
    }
    let usual = if ssl { 443 } else { 80 };
    match counts.contains_key(&usual) {
        true => Some(usual),
        false => {
            counts.into_iter().max_by_key(|(port, count)| (*count, std::cmp::Reverse(*port))).map(|it| it.0)
        }
    }
}

/// Certificates of clients: the front door asks all of them, or none.
fn clients(http: &[Frontend<'_>], context: &mut Context<'_>) {
    let of_tls: BTreeSet<_> =
        http.iter().flat_map(|it| &it.binds).filter(|it| it.ssl).map(|it| it.clients.clone()).collect();
    let plain = http.iter().filter(|it| it.binds.iter().all(|it| !it.ssl)).any(|it| {
        it.section.with("redirect").next().is_none() && it.section.with("http-request").next().is_none()
    });
    let all: Vec<_> = of_tls.into_iter().collect();
    if let [Some((path, required))] = all.as_slice()
        && !path.as_os_str().is_empty()
        && !plain
    {
        context.proxy.door.clients = Some((path.clone(), *required));
    }
}

fn emit<'s>(
    frontend: &Frontend<'s>,
    front: &[&Bind<'s>],
    has_tls: bool,
    context: &mut Context<'s>,
) -> Result<()> {
    let section = frontend.section;
    let ports = Ports { plain: front.iter().any(|it| !it.ssl), tls: front.iter().any(|it| it.ssl) };
    let (mut found, to_https) = routes(section, ports, context)?;
    if ports.plain && !ports.tls && to_https {
        // Behind it, nothing is reached.
        let redirect = Redirect { scheme: Some("https"), code: 301, ..Redirect::default() };
        let route = Route::new(section.place.clone(), Condition::default(), Target::Redirect(redirect));
        found.retain(|it| it.https != Some(true));
        if !has_tls {
            found.push(route);
        }
    }
    let mut close = |bind: &Bind<'_>, why: &str, context: &mut Context<'_>| {
        context.report.closed(&bind.line.place, why);
        found.iter_mut().for_each(|it| it.close(why));
    };
    for bind in front {
        if let Some(why) = &bind.closed {
            close(bind, why, context);
        }
    }
    // Each port of the front door is open at all of its addresses.
    let wanted: BTreeSet<Option<IpAddr>> = context.proxy.door.addresses.iter().copied().map(Some).collect();
    for ssl in [false, true] {
        let binds: Vec<_> = front.iter().filter(|it| it.ssl == ssl).copied().collect();
        let own: BTreeSet<Option<IpAddr>> = binds.iter().map(|it| it.address).collect();
        if binds.is_empty() || own.contains(&None) || own == wanted {
            continue;
        }
        for bind in binds {
            close(
                bind,
                "this frontend listens only at this address, and the front door listens on each port at the addresses \
                     of all frontends: run a second seaway for this frontend",
                context,
            );
        }
    }
    for bind in front.iter().filter(|it| it.proxy_protocol) {
        close(
            bind,
            "the front door takes no PROXY protocol: let the proxy before it send X-Forwarded-For, and name it in `frontDoor.trusted`",
            context,
        );
    }
    for bind in front
        .iter()
        .filter(|it| it.clients.is_some() && it.clients != context.proxy.door.clients)
        .copied()
        .collect::<Vec<_>>()
    {
        close(
            bind,
            "client certificates (mTLS) are required at all of the front door or at none of it: run a second seaway for the frontends that require them",
            context,
        );
    }
    let certificates: Vec<_> = front.iter().flat_map(|it| it.certificates.clone()).collect();
    if ports.tls && certificates.is_empty() {
        for bind in front.iter().filter(|it| it.ssl).copied().collect::<Vec<_>>() {
            close(
                bind,
                "this frontend has no certificate that the import can read, and it is not served without TLS",
                context,
            );
        }
    }
    for it in certificates {
        if !context.proxy.door.certificates.contains(&it) {
            context.proxy.door.certificates.push(it);
        }
    }
    for mut route in found {
        if ports.tls && !ports.plain {
            route.https = Some(true);
        }
        context.proxy.routes.push(route);
    }
    Ok(())
}

/// A frontend at another port: one that leads everything to one backend has a listener of its own.
fn own<'s>(frontend: &Frontend<'s>, context: &mut Context<'s>) -> Result<()> {
    let (found, _) = routes(frontend.section, Ports { plain: true, tls: false }, context)?;
    let only = match found.as_slice() {
        [only]
            if only.condition == Condition::default()
                && only.closed.is_none()
                && only.https.is_none()
                && only.request.is_empty()
                && only.response.is_empty() =>
        {
            Some(only)
        }
        _ => None,
    };
    for bind in &frontend.binds {
        let backend = only.and_then(|it| match &it.target {
            Target::Backends(to) => to.first().map(|it| it.0),
            _ => None,
        });
        let why = match backend {
            _ if bind.closed.is_some() => {
                "the address is not understood: no listener is created for this bind"
            }
            _ if bind.ssl => {
                "Seaway ends TLS at other ports than the front door's with a Secret that seaway.dev/tls names: no listener is created for this bind"
            }
            _ if bind.proxy_protocol => {
                "not served: the PROXY protocol is accepted only by a Service of type LoadBalancer with seaway.dev/proxy-protocol-from (the proxies that send it)"
            }
            _ if bind.address.is_some() => {
                "this frontend binds to one address, and its own listener beside the front door would listen at all \
                     addresses: run a second seaway for this frontend; no listener is created for this bind"
            }
            None => {
                "at a port that is not the front door's, Seaway sends all requests to one backend: no listener is created for this bind"
            }
            Some(backend) => {
                context.proxy.listeners.push(OwnListener {
                    backend,
                    port: bind.port,
                    udp: false,
                    address: None,
                    annotations: BTreeMap::from([("protocol", "http".to_owned())]),
                    sources: only.map(|it| it.sources.clone()).unwrap_or_default(),
                    passthrough: Vec::new(),
                });
                continue;
            }
        };
        context.report.left_out(&bind.line.place, why);
    }
    Ok(())
}

/// Where all are served by https alone, that is said once.
fn redirect_all(context: &mut Context<'_>) {
    let proxy = &mut context.proxy;
    let all = proxy.routes.iter().all(|it| it.https == Some(true));
    if all && !proxy.routes.is_empty() && !proxy.door.certificates.is_empty() {
        proxy.door.redirect = true;
        proxy.routes.iter_mut().for_each(|it| it.https = None);
    }
}

fn unused(context: &mut Context<'_>) {
    let named = |name: &str| {
        context.sections.iter().any(|it| {
            it.lines
                .iter()
                .any(|it| matches!(it.word(0), "default_backend" | "use_backend") && it.word(1) == name)
        })
    };
    let unused: Vec<_> =
        context.sections.iter().filter(|it| it.kind == "backend" && !named(&it.name)).collect();
    for section in unused {
        context.report.no_effect(&section.place, "no frontend sends requests to this backend");
    }
}
