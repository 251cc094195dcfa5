//! Where a browser finds what is served: links for the status page.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use seaway_model::{
    L4, Listener, PoolId,
    load_balancer::{Action, HostPattern, PathMatch, Protocol, Rule},
};

/// At most so many of each Service, and of each pool: nobody clicks on more.
const MOST: usize = 8;

/// URLs of the Service itself, and of what several Services share by pool.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ServiceUrls {
    pub(crate) own: Vec<String>,
    pub(crate) of_pools: BTreeMap<PoolId, Vec<String>>,
}

/// `is_own`: that pool is of the Service whose listeners these are.
pub(crate) fn service_urls<'a>(
    listeners: impl IntoIterator<Item = &'a Listener>,
    addresses: &[IpAddr],
    is_own: impl Fn(&PoolId) -> bool,
) -> ServiceUrls {
    let mut urls = ServiceUrls::default();
    for listener in listeners.into_iter().filter(|it| it.l4 == L4::Tcp) {
        let tls = listener.tls.as_deref();
        let through = tls.iter().flat_map(|tls| &tls.through);
        for (name, pools) in through {
            urls.put(pools, &is_own, || host_url("https", name, listener.port, "/").into_iter().collect());
        }
        let Some(scheme) = scheme(listener) else { continue };
        let at_addresses = |path: &str| {
            let known = addresses.iter().filter(|ip| !ip.is_unspecified());
            let all = known.map(|ip| {
                let at = SocketAddr::new(*ip, listener.port).to_string();
                let end = format!(":{}", listener.port);
                url(scheme, at.strip_suffix(&end).unwrap_or(&at), listener.port, path)
            });
            all.collect::<Vec<_>>()
        };
        if listener.protocol != Protocol::Http {
            urls.put(&[], &is_own, || at_addresses("/"));
            continue;
        }
        for rule in &listener.rules {
            let pools: &[(PoolId, u32)] = match &rule.action {
                Action::Forward(pools) => pools,
                Action::Redirect(_) | Action::Respond { .. } => &[],
            };
            let path = path_of(rule);
            urls.put(pools, &is_own, || match rule.hosts.is_empty() {
                true => at_addresses(path),
                false => {
                    rule.hosts.iter().filter_map(|it| host_url(scheme, it, listener.port, path)).collect()
                }
            });
        }
    }
    urls
}

impl ServiceUrls {
    fn put(
        &mut self,
        pools: &[(PoolId, u32)],
        is_own: &impl Fn(&PoolId) -> bool,
        urls: impl FnOnce() -> Vec<String>,
    ) {
        let shared: Vec<&PoolId> = pools.iter().map(|(id, _)| id).filter(|id| !is_own(id)).collect();
        let is_full = |it: Option<&Vec<String>>| it.is_some_and(|it| it.len() >= MOST);
        let full = match shared.is_empty() {
            true => is_full(Some(&self.own)),
            false => shared.iter().all(|id| is_full(self.of_pools.get(*id))),
        };
        if full {
            return;
        }
        let urls = urls();
        let add = |to: &mut Vec<String>| {
            for url in &urls {
                if to.len() < MOST && !to.contains(url) {
                    to.push(url.clone());
                }
            }
        };
        match shared.is_empty() {
            true => add(&mut self.own),
            false => shared.into_iter().for_each(|id| add(self.of_pools.entry(id.clone()).or_default())),
        }
    }
}

/// What a browser speaks with it, if anything. Of what is only passed on, its name or its port says so.
fn scheme(listener: &Listener) -> Option<&'static str> {
    let ends_tls = listener.tls.as_ref().map(|tls| tls.terminates_tls());
    let name = listener.name.rsplit(':').next().unwrap_or_default();
    match (listener.protocol, ends_tls) {
        (_, Some(false)) => None,
        (Protocol::Http, Some(true)) => Some("https"),
        (Protocol::Http, None) => Some("http"),
        (Protocol::Opaque, None) if name == "https" || listener.port == 443 => Some("https"),
        (Protocol::Opaque, None) if name == "http" || listener.port == 80 => Some("http"),
        (Protocol::Opaque, Some(true)) if name == "https" || listener.port == 443 => Some("https"),
        (Protocol::Opaque, _) => None,
    }
}

/// A wildcard is no place to go to.
fn host_url(scheme: &str, host: &HostPattern, port: u16, path: &str) -> Option<String> {
    match host {
        HostPattern::Exact(name) => Some(url(scheme, name, port, path)),
        HostPattern::Under(_) => None,
    }
}

fn url(scheme: &str, host: &str, port: u16, path: &str) -> String {
    match (scheme, port) {
        ("http", 80) | ("https", 443) => format!("{scheme}://{host}{path}"),
        _ => format!("{scheme}://{host}:{port}{path}"),
    }
}

/// Where its first path begins, if that can be written as it is.
fn path_of(rule: &Rule) -> &str {
    let path = rule.matches.first().and_then(|it| it.path.as_ref());
    match path {
        Some(PathMatch::Exact(path) | PathMatch::Prefix(path))
            if path.starts_with('/') && path.bytes().all(is_plain) =>
        {
            path
        }
        _ => "/",
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use seaway_model::load_balancer::{Match, TlsByName};
    use seaway_testkit::balancing;

    use super::*;

    fn http(port: u16, rules: Vec<Rule>) -> Listener {
        let rules = rules.into_iter().map(Arc::new).collect();
        Listener { protocol: Protocol::Http, rules, ..balancing::listener(port) }
    }

    fn rule(pool: &str, hosts: &[HostPattern], path: Option<&str>) -> Rule {
        let path = path.map(|it| PathMatch::Prefix(it.into()));
        Rule {
            hosts: hosts.to_vec(),
            matches: path.map(|path| Match { path: Some(path), ..Match::default() }).into_iter().collect(),
            ..Rule::forward_all(balancing::owner(), PoolId(pool.into()))
        }
    }

    fn exact(name: &str) -> HostPattern {
        HostPattern::Exact(name.into())
    }

    #[test]
    fn what_several_share_is_found_by_host_name_and_path() {
        let listener = http(
            80,
            vec![
                rule("a/shop:80", &[exact("shop.example"), HostPattern::Under("shop.example".into())], None),
                rule("a/api:80", &[exact("shop.example")], Some("/api")),
                rule("a/api:80", &[exact("shop.example")], Some("/\"><b>")),
                rule("a/any:80", &[], None),
            ],
        );
        let addresses = ["192.0.2.1", "2001:db8::1", "0.0.0.0"].map(|it| it.parse().unwrap());
        let urls = service_urls([&listener], &addresses, |_| false);
        let pools: Vec<(&str, Vec<&str>)> = urls
            .of_pools
            .iter()
            .map(|(id, urls)| (&*id.0, urls.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(
            pools,
            [
                ("a/any:80", vec!["http://192.0.2.1/", "http://[2001:db8::1]/"]),
                ("a/api:80", vec!["http://shop.example/api", "http://shop.example/"]),
                ("a/shop:80", vec!["http://shop.example/"]),
            ]
        );
        assert_eq!(urls.own, [""; 0]);
    }

    #[test]
    fn a_service_of_its_own_is_found_by_address_where_a_browser_can_speak_with_it() {
        let addresses = ["192.0.2.1".parse().unwrap()];
        let own = |listener: &Listener| service_urls([listener], &addresses, |_| true).own;
        assert_eq!(own(&http(8080, vec![rule("80/TCP", &[], None)])), ["http://192.0.2.1:8080/"]);
        let tls = |listener| {
            let tls = TlsByName {
                default: vec![seaway_model::ObjectRef::new(seaway_model::Kind::Secret, "a", "b")],
                ..TlsByName::default()
            };
            Listener { tls: Some(Arc::new(tls)), ..listener }
        };
        assert_eq!(own(&tls(http(443, vec![rule("443/TCP", &[], None)]))), ["https://192.0.2.1/"]);
        for (port, name, expected) in [
            (443, "a/b:x", vec!["https://192.0.2.1/"]),
            (8443, "a/b:https", vec!["https://192.0.2.1:8443/"]),
            (80, "a/b:", vec!["http://192.0.2.1/"]),
            (5432, "a/b:sql", vec![]),
        ] {
            assert_eq!(own(&Listener { name: name.into(), ..balancing::listener(port) }), expected, "{name}");
        }
        let udp = Listener { l4: L4::Udp, ..balancing::listener(443) };
        assert_eq!(own(&udp), [""; 0]);
    }

    #[test]
    fn there_are_only_so_many() {
        let rules = (0..1_000).map(|it| rule("a/b:80", &[exact(&format!("h{it}.example"))], None));
        assert_eq!(
            service_urls([&http(80, rules.collect())], &[], |_| false)
                .of_pools
                .values()
                .next()
                .unwrap()
                .len(),
            MOST
        );
    }
}
