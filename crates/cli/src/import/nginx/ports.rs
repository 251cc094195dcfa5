//! Which of the ports of all servers the front door has: one with TLS and one without it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{names::Listen, server::Server};

/// The ports that all servers share.
pub(super) struct Ports {
    pub(super) http: Option<u16>,
    pub(super) https: Option<u16>,
    /// Empty: all.
    pub(super) addresses: BTreeSet<IpAddr>,
}

impl Ports {
    pub(super) fn of(servers: &[Server<'_>]) -> Ports {
        let most = |ssl: bool, usual: u16| {
            let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
            for (listen, _) in servers.iter().flat_map(|it| &it.listens).filter(|(it, _)| it.ssl == ssl) {
                *counts.entry(listen.port).or_default() += 1;
            }
            match counts.contains_key(&usual) {
                true => Some(usual),
                false => counts
                    .into_iter()
                    .max_by_key(|(port, count)| (*count, std::cmp::Reverse(*port)))
                    .map(|it| it.0),
            }
        };
        let http = most(false, 80);
        // At one port, requests in plaintext and TLS cannot be told apart, and the one for plaintext is always there.
        let https = most(true, 443).filter(|it| *it != http.unwrap_or(80));
        let mut ports = Ports { http, https, addresses: BTreeSet::new() };
        let at: Vec<Option<IpAddr>> = servers
            .iter()
            .flat_map(|it| &it.listens)
            .filter(|(it, _)| ports.has(it))
            .map(|(it, _)| it.address)
            .collect();
        if at.iter().all(Option::is_some) {
            ports.addresses = at.into_iter().flatten().collect();
        }
        ports
    }

    pub(super) fn has(&self, listen: &Listen) -> bool {
        Some(listen.port) == if listen.ssl { self.https } else { self.http }
    }
}
