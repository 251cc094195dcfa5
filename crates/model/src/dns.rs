//! Names of Services that are published in DNS: in which zones, by whom, and what is to be there.

use std::{collections::BTreeSet, net::IpAddr, net::SocketAddr, sync::Arc};

use crate::{
    acme::DnsKey,
    name::{Name, Owner},
};

/// The most addresses that one name has: an answer with more is cut by some resolvers.
pub const MAX_ADDRESSES: usize = 16;

/// The part of the configuration that planning reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// Who we are: records of another installation are never changed.
    pub owner: Name,
    /// Nothing is published outside of these.
    pub zones: Vec<Arc<DnsZone>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsZone {
    pub name: Name,
    pub by: DnsProvider,
    /// Seconds, where a Service does not say.
    pub ttl: u32,
    /// Whose Services may have names in it; none: all namespaces.
    pub namespaces: Vec<Name>,
}

/// How records come into a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsProvider {
    /// By dynamic updates (RFC 2136), signed by TSIG.
    Updates { server: SocketAddr, key: DnsKey },
    /// external-dns writes them, which reads DNSEndpoint objects of the cluster.
    Endpoints,
}

impl Dns {
    /// The longest that is named.
    pub fn zone_of(&self, name: &str) -> Option<&Arc<DnsZone>> {
        self.zones.iter().filter(|it| it.has(name)).max_by_key(|it| it.name.len())
    }
}

impl DnsZone {
    /// It is the zone's own name, or below it.
    pub fn has(&self, name: &str) -> bool {
        name.strip_suffix(self.name.as_str()).is_some_and(|it| it.is_empty() || it.ends_with('.'))
    }
}

/// What is to be in DNS at a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsName {
    /// A wildcard begins with `*.`.
    pub name: Name,
    pub zone: Arc<DnsZone>,
    pub installation: Name,
    /// Which of several hosts without a cluster writes: each has its own addresses there. In a cluster the leader alone does.
    pub host: Option<Name>,
    pub owner: Owner,
    pub ttl: u32,
    pub addresses: BTreeSet<IpAddr>,
    /// Where no address answers: of what is there, these stay. Others may be another's by now.
    pub keeps: BTreeSet<IpAddr>,
    /// This host leaves: it is taken out of the name, if another host is in it.
    pub withdraws: bool,
    /// Who asks for it, too (`default/shop`): one that has it published keeps it.
    pub rivals: BTreeSet<Name>,
}

impl DnsName {
    /// `default/shop`.
    pub fn service(&self) -> String {
        let object = self.owner.object();
        format!("{}/{}", object.namespace, object.name)
    }
}

/// Where it is written whose a name is. It is beside the name, for a wildcard answers for all types that it has.
pub fn marker_name(name: &str) -> String {
    match name.strip_prefix("*.") {
        Some(below) => format!("_seaway._wildcard.{below}"),
        None => format!("_seaway.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::acme::DnsKeyAlgorithm;

    #[test]
    fn a_name_is_in_the_longest_zone_that_has_it_and_its_marker_too() {
        let zone = |name: &str| {
            let secret_file = PathBuf::from("key");
            let key = DnsKey { name: "k".into(), algorithm: DnsKeyAlgorithm::HmacSha256, secret_file };
            let by = DnsProvider::Updates { server: ([192, 0, 2, 53], 53).into(), key };
            Arc::new(DnsZone { name: name.into(), by, ttl: 60, namespaces: Vec::new() })
        };
        let dns = Dns { owner: "a".into(), zones: vec![zone("shop.example"), zone("eu.shop.example")] };
        for (name, expected) in [
            ("www.shop.example", Some("shop.example")),
            ("*.shop.example", Some("shop.example")),
            ("a.eu.shop.example", Some("eu.shop.example")),
            ("bishop.example", None),
            ("example", None),
        ] {
            assert_eq!(dns.zone_of(name).map(|it| it.name.as_str()), expected, "{name}");
            assert_eq!(dns.zone_of(&marker_name(name)).map(|it| it.name.as_str()), expected, "{name}");
        }
        assert_eq!(marker_name("*.shop.example"), "_seaway._wildcard.shop.example");
    }
}
