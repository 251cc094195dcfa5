//! What is watched: kinds of objects, where the API server has them, and what it means if it has not.

use std::time::Duration;

use kube::core::ApiResource;
use seaway_model::Kind;

/// One kind of objects, as it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedKind {
    pub(crate) kind: Kind,
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) need: Requirement,
    /// Only those of these fields.
    pub(crate) fields: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// Nothing is planned before it was listed.
    Required,
    /// Its absence is a Problem: a feature of Seaway needs it.
    Expected,
    /// Another project's, or not in use everywhere: a cluster may be without it.
    Optional,
    /// Another project's that Seaway does not act on: controllers report its objects, where they may list them.
    ReportOnly,
}

pub(crate) const API_GROUP: &str = "seaway.dev";
pub(crate) const API_VERSION: &str = "v1alpha1";

pub(crate) const WATCHED: [WatchedKind; 19] = [
    WatchedKind::new(Kind::Service, "", "v1", "services", Requirement::Required),
    WatchedKind::new(Kind::EndpointSlice, "discovery.k8s.io", "v1", "endpointslices", Requirement::Required),
    WatchedKind::new(Kind::Node, "", "v1", "nodes", Requirement::Required),
    WatchedKind::new(Kind::Namespace, "", "v1", "namespaces", Requirement::Required),
    WatchedKind::new(Kind::Address, API_GROUP, API_VERSION, "addresses", Requirement::Required),
    WatchedKind::new(Kind::AddressPool, API_GROUP, API_VERSION, "addresspools", Requirement::Expected),
    WatchedKind::new(
        Kind::LoadBalancerHost,
        API_GROUP,
        API_VERSION,
        "loadbalancerhosts",
        Requirement::Expected,
    ),
    WatchedKind::new(Kind::NameOwner, API_GROUP, API_VERSION, "nameowners", Requirement::Expected),
    // Of later versions than the rest: a cluster may be without their definitions.
    WatchedKind::new(
        Kind::L2Advertisement,
        API_GROUP,
        API_VERSION,
        "l2advertisements",
        Requirement::Optional,
    ),
    WatchedKind::new(
        Kind::BGPAdvertisement,
        API_GROUP,
        API_VERSION,
        "bgpadvertisements",
        Requirement::Optional,
    ),
    WatchedKind::new(Kind::BGPPeer, API_GROUP, API_VERSION, "bgppeers", Requirement::Optional),
    WatchedKind::new(Kind::BFDProfile, API_GROUP, API_VERSION, "bfdprofiles", Requirement::Optional),
    WatchedKind::new(Kind::Community, API_GROUP, API_VERSION, "communities", Requirement::Optional),
    WatchedKind::new(Kind::IPAddressPool, "metallb.io", "v1beta1", "ipaddresspools", Requirement::Optional),
    WatchedKind::new(
        Kind::MetallbL2Advertisement,
        "metallb.io",
        "v1beta1",
        "l2advertisements",
        Requirement::ReportOnly,
    ),
    WatchedKind::new(
        Kind::MetallbBGPAdvertisement,
        "metallb.io",
        "v1beta1",
        "bgpadvertisements",
        Requirement::ReportOnly,
    ),
    WatchedKind::new(Kind::MetallbBGPPeer, "metallb.io", "v1beta2", "bgppeers", Requirement::ReportOnly),
    WatchedKind::new(Kind::HTTPRoute, "gateway.networking.k8s.io", "v1", "httproutes", Requirement::Optional),
    WatchedKind {
        fields: Some("type=kubernetes.io/tls"),
        ..WatchedKind::new(Kind::Secret, "", "v1", "secrets", Requirement::Expected)
    },
];

impl WatchedKind {
    const fn new(
        kind: Kind,
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        need: Requirement,
    ) -> WatchedKind {
        WatchedKind { kind, group, version, plural, need, fields: None }
    }

    /// What hosts know others' addresses by. They are told as what they say of hosts.
    pub(crate) const SLICES: WatchedKind = WatchedKind::new(
        Kind::LoadBalancerHost,
        API_GROUP,
        API_VERSION,
        "loadbalancerhostslices",
        Requirement::Expected,
    );

    /// Only written.
    pub(crate) const EVENTS: WatchedKind =
        WatchedKind::new(Kind::Event, "events.k8s.io", "v1", "events", Requirement::Optional);

    /// Of hosts and of who leads.
    pub(crate) const LEASES: WatchedKind =
        WatchedKind::new(Kind::Config, "coordination.k8s.io", "v1", "leases", Requirement::Expected);

    /// Of external-dns, which publishes what they say. Seaway lists and writes its own, and watches none.
    pub(crate) const DNS_ENDPOINTS: WatchedKind = WatchedKind::new(
        Kind::Config,
        "externaldns.k8s.io",
        "v1alpha1",
        "dnsendpoints",
        Requirement::Optional,
    );

    /// What the kinds that are not of the core are defined by, one by one.
    pub(crate) const DEFINITIONS: WatchedKind = WatchedKind::new(
        Kind::Config,
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        Requirement::Optional,
    );

    /// Whether a controller plans nothing before it was listed: who may hold an address is known by what hosts report, and
    /// that none is listed where none may be seen would free what they serve.
    pub(crate) fn is_required_by_controllers(&self) -> bool {
        self.need == Requirement::Required || self.kind == Kind::LoadBalancerHost
    }

    pub(crate) fn of(kind: Kind) -> Option<&'static WatchedKind> {
        WATCHED.iter().find(|it| it.kind == kind)
    }

    /// One that is named in this crate, and so is in the table.
    #[allow(clippy::expect_used, reason = "each of them is asked for by a test")]
    pub(crate) fn known(kind: Kind) -> &'static WatchedKind {
        WatchedKind::of(kind).expect("it is in the table of kinds")
    }

    pub(crate) fn resource(&self) -> ApiResource {
        let api_version = match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        };
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version,
            kind: self.kind.as_str().to_owned(),
            plural: self.plural.to_owned(),
        }
    }

    /// `ipaddresspools.metallb.io`, as kubectl and RBAC say it.
    pub(crate) fn qualified(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }
}

/// What is told of a cluster, to hosts and controllers.
pub fn kinds() -> impl Iterator<Item = Kind> {
    WATCHED.iter().filter(|it| it.need != Requirement::ReportOnly).map(|it| it.kind)
}

/// Without these nothing is planned.
pub fn required_kinds() -> impl Iterator<Item = Kind> {
    WATCHED.iter().filter(|it| it.need == Requirement::Required).map(|it| it.kind)
}

/// Intervals and timeouts of watches; shorter ones in tests.
#[derive(Clone, Copy, Debug)]
pub struct WatchTimings {
    /// A failed request is asked again after this, then after twice as long, …
    pub first_retry: Duration,
    /// … up to this.
    pub longest_retry: Duration,
    /// A kind that is absent or forbidden is asked for at most this often, after the first few times; it is asked for at once
    /// when its definition comes, or when another kind that was forbidden is permitted.
    pub look_for: Duration,
    /// An API server sends a watch a bookmark each minute or so, but none while nothing of its kind changes. Connections that
    /// lead nowhere are found by TCP keepalives; this is for an API server that keeps a connection and forgot the watch.
    pub silence: Duration,
    /// How long one answer may take.
    pub answer: Duration,
    /// How often hosts' Leases are looked at.
    pub pulse: Duration,
    /// A host that is silent for so long after the term of its Lease is gone for good: what it held may be others'.
    pub quarantine: Duration,
    /// A host waits so long, and up to as much more, for the leader to gather hosts' addresses, before it watches every host.
    pub slices: Duration,
    /// They are written at most this often.
    pub gather: Duration,
}

impl Default for WatchTimings {
    fn default() -> WatchTimings {
        WatchTimings {
            first_retry: Duration::from_millis(500),
            longest_retry: Duration::from_secs(30),
            look_for: Duration::from_secs(60),
            silence: Duration::from_secs(300),
            answer: Duration::from_secs(30),
            pulse: Duration::from_secs(5),
            quarantine: Duration::from_secs(3_600),
            slices: Duration::from_secs(10),
            gather: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_this_crate_writes_are_in_the_table() {
        for kind in [
            Kind::Address,
            Kind::AddressPool,
            Kind::LoadBalancerHost,
            Kind::NameOwner,
            Kind::Node,
            Kind::Service,
        ] {
            assert_eq!(WatchedKind::known(kind).kind, kind);
        }
    }
}
