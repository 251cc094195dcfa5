//! A frontend for each listener.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use seaway_model::{
    L4, Listener, LoadBalancer, Owner, Reason,
    load_balancer::{Action, Bind, Protocol, TracePolicy},
};

use super::{DocumentBuilder, about, backends::ListenersByPool, called, readable};
use crate::{
    document::{ClientTimeouts, Frontend, HttpFrontendOptions, Map, MapMatch, Routing},
    words::{Key, Label, Text},
};

/// Of a load balancer, as its listeners are worked on.
pub(super) struct FrontendContext<'l> {
    pub(super) owner: &'l Owner,
    pub(super) load_balancer: &'l LoadBalancer,
    /// What names of its backends begin with.
    pub(super) called: String,
    pub(super) listener: &'l Listener,
    pub(super) leading: &'l ListenersByPool<'l>,
    /// The listener's frontend.
    pub(super) name: Label,
}

impl DocumentBuilder<'_> {
    pub(super) fn load_balancer(&mut self, owner: &Owner, load_balancer: &LoadBalancer) {
        let called = called(owner);
        let leading = ListenersByPool::of(load_balancer);
        for listener in load_balancer.listeners.values() {
            let name = readable(&format!("{called}/{}", listener.port));
            let called = called.clone();
            self.listener(FrontendContext {
                owner,
                load_balancer,
                called,
                listener,
                leading: &leading,
                name,
            });
        }
    }

    fn listener(&mut self, here: FrontendContext<'_>) {
        let listener = here.listener;
        if listener.l4 != L4::Tcp {
            let what =
                format!("HAProxy does not serve {}: port {} is not opened", listener.l4, listener.port);
            return self.unsupported(&listener.owner, "spec.ports", what);
        }
        let floating = floating(here.load_balancer);
        let is_reserved = self.wanted.unusable.ports.as_ref().is_some_and(|it| it.contains(listener.port));
        if is_reserved && !floating.is_empty() {
            let what = format!(
                "port {} is reserved for the machine itself, and HAProxy would take it: the port is not opened",
                listener.port
            );
            self.problem(&listener.owner, "spec.ports", Reason::NotPermitted, what);
        }
        let ips = here.load_balancer.binds.iter().filter_map(|bind| bind.ip());
        let ips = ips.filter(|ip| !is_reserved || !floating.contains(ip));
        let mut binds: Vec<SocketAddr> = ips.map(|ip| SocketAddr::new(ip, listener.port)).collect();
        binds.sort_unstable();
        binds.dedup();
        let (binds, others): (Vec<_>, Vec<_>) = binds.into_iter().partition(|at| !self.taken.contains(at));
        for at in others {
            let what = format!("another Service has {at}");
            self.problem(&listener.owner, "spec.ports", Reason::PortConflict, what);
        }
        if binds.is_empty() {
            return;
        }
        let (is_http, passes_tls) = (
            listener.protocol == Protocol::Http,
            listener.tls.as_ref().is_some_and(|tls| !tls.through.is_empty() && !tls.terminates_tls()),
        );
        let tls = match &listener.tls {
            Some(tls) if !passes_tls => match self.tls(&here, tls) {
                Some(tls) => Some(tls),
                // It speaks nothing but TLS, and nothing without a certificate.
                None => return,
            },
            _ => None,
        };
        let routing = match () {
            () if passes_tls => self.by_tls_name(&here),
            () if is_http => Some(Routing::Http(self.http(&here))),
            () => self.everything(&here),
        };
        let Some(routing) = routing else { return };
        self.taken.extend(&binds);
        let timeouts = &listener.timeouts;
        let frontend = Frontend {
            about: about(&listener.name),
            floating: floating.into_iter().filter(|ip| binds.iter().any(|it| it.ip() == *ip)).collect(),
            binds,
            tls,
            sources: listener.sources.clone(),
            denied: listener.denied.clone(),
            proxy_from: listener.proxy_from.clone(),
            connections: listener.limits.connections,
            new_per_second: listener.limits.new_per_second,
            timeouts: ClientTimeouts {
                request: timeouts.header,
                keep_alive: timeouts.keep_alive,
                idle: if matches!(routing, Routing::Http(_)) { timeouts.answer } else { timeouts.idle },
                half_closed: timeouts.half_closed,
            },
            routing,
        };
        let origin = (here.owner.clone(), listener.id());
        self.document.origins.frontends.insert(here.name.clone(), origin);
        self.document.frontends.insert(here.name, frontend);
    }

    /// To one pool; a listener of TCP has one rule.
    fn everything(&mut self, here: &FrontendContext<'_>) -> Option<Routing> {
        let rule = here.listener.rules.first()?;
        let guarded = !rule.sources.is_empty() || !rule.denied.is_empty();
        match &rule.action {
            Action::Forward(to) if to.len() == 1 && !guarded => {
                let (pool, _) = to.first()?;
                Some(Routing::Everything(self.pool(here, pool)?))
            }
            _ => {
                let what = format!(
                    "HAProxy passes port {} on to one pool only: the port is closed",
                    here.listener.port
                );
                self.unsupported(&rule.owner, "spec.ports", what);
                None
            }
        }
    }

    fn by_tls_name(&mut self, here: &FrontendContext<'_>) -> Option<Routing> {
        let tls = here.listener.tls.as_ref()?;
        let (mut exact, mut suffix) = (Vec::new(), Vec::new());
        for (host, to) in &tls.through {
            let [(pool, _)] = to.as_slice() else {
                let what = format!(
                    "HAProxy passes TLS for {host} through to one pool only: this host name is not served"
                );
                self.unsupported(&here.listener.owner, "host", what);
                continue;
            };
            let Some(backend) = self.pool(here, pool).and_then(|it| Key::new(it.as_str())) else { continue };
            match super::routes::host_key(host) {
                Some((key, false)) => exact.push((key, backend)),
                Some((key, true)) => suffix.push((key, backend)),
                None => {}
            }
        }
        Some(Routing::ByTlsName {
            exact: self.map(here, "exact", MapMatch::Exact, exact),
            suffix: self.map(here, "suffix", MapMatch::Suffix, suffix),
        })
    }

    pub(super) fn map(
        &mut self,
        here: &FrontendContext<'_>,
        what: &str,
        find: MapMatch,
        mut entries: Vec<(Key, Key)>,
    ) -> Label {
        entries.sort_unstable();
        entries.dedup_by(|one, other| one.0 == other.0);
        if find == MapMatch::Suffix {
            // The first that fits is taken: the longest.
            entries.sort_by_key(|(key, _)| std::cmp::Reverse(key.as_str().len()));
        }
        let name = here.name.and(format_args!(".{what}.map"));
        self.document.maps.insert(name.clone(), Map { find, entries });
        name
    }

    fn http(&mut self, here: &FrontendContext<'_>) -> HttpFrontendOptions {
        let (listener, http) = (here.listener, &here.listener.http);
        let owner = &listener.owner;
        let via = http.via.as_ref().and_then(|it| Text::new(it));
        if http.trace == TracePolicy::Make {
            self.unsupported(
                owner,
                "",
                "HAProxy starts no traces: requests without a traceparent header are forwarded without one",
            );
        }
        let forwarded = http.forwarded && self.document.version.abilities().forwarded;
        if http.forwarded && !forwarded {
            self.unsupported(
                owner,
                "",
                "HAProxy 2.6 cannot write the Forwarded header: members get X-Forwarded-For only",
            );
        }
        let mut pages = Vec::new();
        for (status, body) in http.pages.iter().filter(|(_, body)| !body.is_empty()) {
            match PAGES.contains(status) && body.len() <= LONGEST_PAGE {
                true => pages.push((*status, self.page(body))),
                false => {
                    let what = format!(
                        "HAProxy cannot replace the error page for {status}, or the page is longer than 8 KiB: \
                             HAProxy's built-in page is sent"
                    );
                    self.unsupported(owner, "", what);
                }
            }
        }
        let routes = self.routes(here);
        HttpFrontendOptions {
            exact: self.map(here, "exact", MapMatch::Exact, routes.exact),
            prefix: self.map(here, "prefix", MapMatch::Prefix, routes.prefix),
            suffix: self.map(here, "suffix", MapMatch::Suffix, routes.suffix),
            respelled: super::respelled::respelled(listener),
            choices: routes.choices,
            trusted: http.trusted.clone(),
            request_id: http.request_id,
            via,
            forwarded,
            hsts: listener.tls.as_ref().and_then(|tls: &Arc<_>| tls.hsts),
            pages,
        }
    }
}

/// Addresses of pools, which are on this machine only while they are served.
fn floating(load_balancer: &LoadBalancer) -> BTreeSet<IpAddr> {
    let of_pools = |bind: &Bind| matches!(bind, Bind::Ledger(_)).then(|| bind.ip()).flatten();
    load_balancer.binds.iter().filter_map(of_pools).collect()
}

/// Statuses for which a page can be set.
const PAGES: [u16; 14] = [400, 401, 403, 404, 405, 408, 410, 413, 429, 500, 501, 502, 503, 504];

/// A page has to fit into a buffer with its head.
pub(super) const LONGEST_PAGE: usize = 8 << 10;
