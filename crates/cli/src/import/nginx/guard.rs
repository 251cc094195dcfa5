//! What would serve more than nginx does, is closed: listeners, names, and proxies that are believed.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    super::{
        proxy::{Host, Route},
        report::DirectiveLocation,
    },
    access::believed,
    context::Context,
    http::RoutedServer,
    location::NOT_SERVED,
    names::Listen,
    parse::Directive,
    server::Server,
};

/// Listeners of a server whose scheme is published at more addresses than it has. The front door has both of its ports at
/// the same addresses, so that those of each port are compared.
pub(super) fn elsewhere<'l>(
    front: &[&'l (Listen, Directive)],
    published: &BTreeSet<IpAddr>,
) -> Vec<&'l (Listen, Directive)> {
    let mut found = Vec::new();
    for ssl in [false, true] {
        let of: Vec<&(Listen, Directive)> = front.iter().copied().filter(|(it, _)| it.ssl == ssl).collect();
        let own: BTreeSet<Option<IpAddr>> = of.iter().map(|(it, _)| it.address).collect();
        let is_all = own.contains(&None)
            || (!published.is_empty() && published.iter().all(|it| own.contains(&Some(*it))));
        if !is_all {
            found.extend(of);
        }
    }
    found
}

/// The front door believes the same proxies for all servers: those that all of them believe, or none.
pub(super) fn believe(servers: &[Server<'_>], context: &mut Context) {
    let all: BTreeSet<Option<BTreeSet<String>>> = servers.iter().map(|it| believed(&it.scopes)).collect();
    let written = servers.iter().flat_map(|it| it.scopes.everywhere());
    let written = written.filter(|it| matches!(&*it.name, "set_real_ip_from" | "real_ip_header"));
    let same = match Vec::from_iter(all).as_slice() {
        [Some(only)] => Some(only.clone()),
        _ => None,
    };
    for it in written {
        match same {
            Some(_) => context.report.translated(&it.place),
            None => context.report.left_out(
                &it.place,
                "the front door trusts X-Forwarded-For alone (nginx reads X-Real-IP without real_ip_header), and the same proxies for all servers: it trusts none",
            ),
        }
    }
    context.proxy.door.trusted = same.into_iter().flatten().collect();
}

/// Requests for names that cannot be written come to other servers: where their own server protects, those are closed.
pub(super) fn lost_names(ready: &mut [RoutedServer<'_, '_>], context: &mut Context) {
    let protects = |it: &RoutedServer<'_, '_>| {
        let routes = &it.served.routes;
        let asks = !matches!(it.server.scopes.argument("ssl_verify_client"), "" | "off");
        let refuses = |it: &Route| it.is_protected() && it.closed.as_deref() != Some(NOT_SERVED);
        asks || it.closed.is_some() || routes.is_empty() || routes.iter().any(refuses)
    };
    let lost: Vec<(DirectiveLocation, String)> = ready
        .iter()
        .filter(|it| !it.is_default && protects(it))
        .flat_map(|it| {
            it.server.names.lost.iter().map(|name| (it.server.directive.place.clone(), name.clone()))
        })
        .collect();
    for it in ready.iter_mut() {
        let own = &it.server.directive.place;
        let gets = |name: &str| it.is_default || it.server.names.hosts.iter().any(|it| it.covers(name));
        let Some((from, name)) = lost.iter().find(|(from, name)| from != own && gets(name)) else { continue };
        let why = format!(
            "requests for {name:?} would be served here without the access restriction of the server at {from}: \
             an HTTPRoute cannot match this host name"
        );
        context.report.closed(own, &why);
        it.closed.get_or_insert_with(|| why.clone());
        it.served.routes.iter_mut().for_each(|it| it.close(&why));
    }
}

/// The name of a server for all other names that redirects to its own: `https://$server_name$request_uri`. `kept`: the
/// redirect is that of its routes, which keeps the host.
pub(super) fn named(it: &RoutedServer<'_, '_>, kept: bool, context: &mut Context) -> Option<String> {
    let names = |it: &Directive| it.args.iter().any(|it| it.contains("://$server_name"));
    let is_redirect = |it: &Directive| matches!(&*it.name, "return" | "rewrite") && names(it);
    let block = it.server.block;
    let within = block.iter().filter(|it| matches!(&*it.name, "location" | "if"));
    let found =
        block.iter().chain(within.flat_map(|it| it.block.iter().flatten())).find(|it| is_redirect(it));
    let (Some(found), Some(Host::Exact(name)), true) = (found, it.server.names.hosts.first(), it.is_default)
    else {
        return None;
    };
    if kept {
        context.report.differs(
            &found.place,
            "requests for other host names are redirected to https at the same host, and not at $server_name",
        );
    }
    Some(name.clone())
}
