//! The rows about load balancers of clouds: those of the cloud provider's controller, and the same as ours.

use std::{ops::RangeInclusive, time::Duration};

use seaway_model::{
    Name,
    config::{CloudNetworks, FloatingSubnet},
    fact::Labels,
    load_balancer::{
        CloudHealthMonitor, CloudHealthMonitorType, CloudMemberTls, CloudTags, CloudTimeouts, ExplicitOptions,
    },
};

use super::{PerPort, Row, http::yes_or_no, octavia};
use crate::quantity::{number, selector};

pub const INTERNAL: &str = "seaway.dev/internal";
pub(crate) const FORWARDED_FOR: &str = "seaway.dev/x-forwarded-for";
pub(crate) const TLS_CONTAINER: &str = "seaway.dev/tls-container";
pub const CLOUD_CLASS: &str = "seaway.dev/cloud-class";
/// Whether a Service that another controller serves is to be adopted; read where it is not planned, too.
pub(crate) const ADOPT: &str = "seaway.dev/adopt";
/// That the load balancer of a Service with a class is given away; read where it is not planned, too.
pub const GIVE_AWAY: &str = "seaway.dev/released";
pub(crate) const NAMED: &str = "seaway.dev/load-balancer-id";

const MILLISECONDS: RangeInclusive<u64> = 0..=u32::MAX as u64;

/// What is asked of a cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderOptions {
    pub internal: Option<bool>,
    /// What it says about that, or about what protects, is not understood.
    pub unclear: bool,
    pub class: Option<Name>,
    pub place: CloudNetworks,
    pub port: Option<Name>,
    /// The id of a load balancer that is there.
    pub named: Option<Name>,
    /// A word that those say who share one.
    pub group: Option<Name>,
    /// What one is called.
    pub called: Option<Name>,
    pub keep_floating: bool,
    pub timeouts: CloudTimeouts,
    pub monitor: Option<bool>,
    pub check: HealthCheckOptions,
    pub probe: CloudHealthMonitor,
    /// Kinds of probes of single ports.
    pub probe_at: PerPort<CloudHealthMonitorType>,
    pub member_tls: CloudMemberTls,
    pub client_authority: Option<Name>,
    pub client_revoked: Option<Name>,
    pub tls_others: Vec<Name>,
    pub flavor: Option<Name>,
    pub zone: Option<Name>,
    pub provider: Option<Name>,
    /// Nodes that are members: labels that they must have.
    pub nodes: Option<Vec<(Name, Option<Name>)>>,
    /// Told instead of any address.
    pub hostname: Option<Name>,
    pub tls_container: PerPort<Name>,
    pub metrics: Option<u16>,
    pub rebuild: Option<bool>,
    pub tags: CloudTags,
    pub pending_limit: Option<Duration>,
    pub forwarded_proto: PerPort<bool>,
    pub forwarded_port: PerPort<bool>,
    pub rebuild_pending: Option<bool>,
    pub remake: bool,
    /// What only the configuration of the cloud takes away goes, too.
    pub apply: bool,
    pub paused: bool,
    pub explicit: ExplicitOptions,
}

/// How a probe differs from the usual one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthCheckOptions {
    pub interval: Option<Duration>,
    pub timeout: Option<Duration>,
    pub rise: Option<u8>,
    pub fall: Option<u8>,
}

/// As the cloud provider's controller calls it.
macro_rules! theirs {
    ($name:literal) => {
        concat!("loadbalancer.openstack.org/", $name)
    };
}

pub(super) use theirs;

/// A value that is not understood asks for nothing.
pub(crate) fn asks_for_adoption(annotations: &Labels) -> bool {
    annotations.get(ADOPT).is_some_and(|it| yes_or_no(it) == Ok(true))
}

/// The same: what is not understood gives nothing away.
pub(crate) fn gives_away(annotations: &Labels) -> bool {
    annotations.get(GIVE_AWAY).is_some_and(|it| yes_or_no(it) == Ok(true))
}

/// Of the three that choose a subnet of floating IPs, a name is beside tags, and the id beats both.
pub(super) const ROWS: &[Row] = &[
    Row {
        names: &[INTERNAL, "service.beta.kubernetes.io/openstack-internal-load-balancer"],
        help: "true: no floating IP (Octavia only)",
        set: |wishes, text| yes_or_no(text).map(|it| wishes.cloud.internal = Some(it)),
    },
    Row {
        names: &[CLOUD_CLASS, theirs!("class")],
        help: "a [LoadBalancerClass] of cloud.conf (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.class = Some(it)),
    },
    Row {
        names: &["seaway.dev/network", theirs!("network-id")],
        help: "the id of the network of the VIP (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.place.network = Some(it)),
    },
    Row {
        names: &["seaway.dev/subnet", theirs!("subnet-id")],
        help: "the id of the subnet of the VIP (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.place.subnet = Some(it)),
    },
    Row {
        names: &["seaway.dev/member-subnet", theirs!("member-subnet-id")],
        help: "the id of the subnet that members are in (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.place.member_subnet = Some(it)),
    },
    Row {
        names: &["seaway.dev/port", theirs!("port-id")],
        help: "the id of an existing port, whose address becomes the VIP (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.port = Some(it)),
    },
    Row {
        names: &[NAMED, theirs!("load-balancer-id")],
        help: "the id of an existing load balancer, which the Service adopts or shares (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.named = Some(it)),
    },
    Row {
        names: &["seaway.dev/floating-network", theirs!("floating-network-id")],
        help: "the id of the network to take the floating IP from (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.place.floating_network = Some(it)),
    },
    Row {
        names: &["seaway.dev/floating-subnet-tags", theirs!("floating-subnet-tags")],
        help: "tags of the subnets that the floating IP may come from: a,b any; &a,b all; !a none (Octavia only)",
        set: |wishes, text| {
            named(text).map(|it| wishes.cloud.place.floating_subnet = Some(FloatingSubnet::Tagged(it)))
        },
    },
    Row {
        names: &["seaway.dev/floating-subnet-name", theirs!("floating-subnet")],
        help: "names of the subnets that the floating IP may come from: public-*, public-{a,b}, ~public-[0-9]+, !private-*; with tags, both must match (Octavia only)",
        set: |wishes, text| {
            let name = named(text)?;
            let subnet = &mut wishes.cloud.place.floating_subnet;
            *subnet = Some(FloatingSubnet::named(subnet.take(), name));
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/floating-subnet", theirs!("floating-subnet-id")],
        help: "the id of the subnet to take the floating IP from (Octavia only)",
        set: |wishes, text| {
            named(text).map(|it| wishes.cloud.place.floating_subnet = Some(FloatingSubnet::Id(it)))
        },
    },
    Row {
        names: &[FORWARDED_FOR, theirs!("x-forwarded-for")],
        help: "true: HTTP is spoken, and members get the client's address in X-Forwarded-For; of single ports, by \
            number or name: 443:true,80:false (Octavia only)",
        set: |wishes, text| {
            wishes.http.ask(PerPort::read(text, yes_or_no)?);
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/keep-floating-ip", theirs!("keep-floatingip")],
        help: "true: keep the floating IP when the Service is deleted (Octavia only)",
        set: |wishes, text| yes_or_no(text).map(|it| wishes.cloud.keep_floating = it),
    },
    Row {
        names: &[TLS_CONTAINER, theirs!("default-tls-container-ref")],
        help: "the reference of a container or secret of Barbican: its certificate is shown, TLS ends here; of single ports: 443:REFERENCE,8443:REFERENCE (Octavia only)",
        set: |wishes, text| PerPort::read(text, named).map(|it| wishes.cloud.tls_container = it),
    },
    Row {
        names: &["seaway.dev/metrics-port"],
        help: "a port where Prometheus reads the load balancer's metrics (Octavia only)",
        set: |wishes, text| number(text, 1..=65_535).map(|it| wishes.cloud.metrics = Some(it)),
    },
    Row {
        names: &["seaway.dev/provider"],
        help: "the provider of the load balancer: amphora, ovn or another (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.provider = Some(it)),
    },
    Row {
        names: &["seaway.dev/rebuild-on-error"],
        help: "true: a load balancer in ERROR that does not recover is created again, with its addresses (Octavia only)",
        set: |wishes, text| yes_or_no(text).map(|it| wishes.cloud.rebuild = Some(it)),
    },
    Row {
        names: &["seaway.dev/rebuild-on-change"],
        help: "true: recreate the load balancer, with its addresses, when a setting changes that it can only be given at its creation (Octavia only)",
        set: |wishes, text| yes_or_no(text).map(|it| wishes.cloud.remake = it),
    },
    Row {
        names: &["seaway.dev/apply-configuration"],
        help: "true: also apply to the load balancer what cloud.conf removes: members by node-selector and address-sort-order, listeners by default-tls-container-ref (Octavia only)",
        set: |wishes, text| yes_or_no(text).map(|it| wishes.cloud.apply = it),
    },
    Row {
        names: &["seaway.dev/pause"],
        help: "true: change nothing of this Service in the cloud until this annotation is removed (Octavia only)",
        set: |wishes, text| yes_or_no(text).map(|it| wishes.cloud.paused = it),
    },
    Row {
        names: &[GIVE_AWAY],
        help: "true: the load balancer is left as it is, for another controller; kubectl seaway release writes this (Octavia only; with seaway.dev/octavia as spec.loadBalancerClass)",
        set: |_, text| yes_or_no(text).map(drop),
    },
    Row {
        names: &[ADOPT],
        help: "true: with adopt.mode ask, Seaway takes the Service over from the controller that serves it: its load balancer (Octavia), or its address on bare metal",
        set: |_, text| yes_or_no(text).map(drop),
    },
    Row {
        names: &["seaway.dev/follow-session-affinity"],
        help: "true: apply spec.sessionAffinity also to a load balancer that another controller made (Octavia only)",
        set: |wishes, text| yes_or_no(text).map(|it| wishes.cloud.explicit.affinity = it),
    },
    Row {
        names: &["seaway.dev/second-family"],
        help: "true: if another controller made the load balancer with one address, create a second one for the second of spec.ipFamilies (Octavia only)",
        set: |wishes, text| yes_or_no(text).map(|it| wishes.cloud.explicit.second_family = it),
    },
    Row {
        names: &["seaway.dev/flavor", theirs!("flavor-id")],
        help: "the id of a flavor of load balancers (Octavia only; when it is made)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.flavor = Some(it)),
    },
    Row {
        names: &["seaway.dev/availability-zone", theirs!("availability-zone")],
        help: "the availability zone of the load balancer (Octavia only; when it is made)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.zone = Some(it)),
    },
    Row {
        names: &["seaway.dev/cloud-timeout-client", theirs!("timeout-client-data")],
        help: "milliseconds without data from a client (Octavia only)",
        set: |wishes, text| number(text, MILLISECONDS).map(|it| wishes.cloud.timeouts.client_data = Some(it)),
    },
    Row {
        names: &["seaway.dev/cloud-timeout-connect", theirs!("timeout-member-connect")],
        help: "milliseconds to connect to a member (Octavia only)",
        set: |wishes, text| {
            number(text, MILLISECONDS).map(|it| wishes.cloud.timeouts.member_connect = Some(it))
        },
    },
    Row {
        names: &["seaway.dev/cloud-timeout-member", theirs!("timeout-member-data")],
        help: "milliseconds without data from a member (Octavia only)",
        set: |wishes, text| number(text, MILLISECONDS).map(|it| wishes.cloud.timeouts.member_data = Some(it)),
    },
    Row {
        names: &["seaway.dev/cloud-timeout-inspect", theirs!("timeout-tcp-inspect")],
        help: "milliseconds to wait for the first bytes of a connection: timeout_tcp_inspect (Octavia only)",
        set: |wishes, text| number(text, MILLISECONDS).map(|it| wishes.cloud.timeouts.tcp_inspect = Some(it)),
    },
    Row {
        names: &["seaway.dev/cloud-monitor", theirs!("enable-health-monitor")],
        help: "true: check members as cloud.conf says; false: do not check them (Octavia only)",
        set: |wishes, text| yes_or_no(text).map(|it| wishes.cloud.monitor = Some(it)),
    },
    Row {
        names: &["seaway.dev/cloud-monitor-delay", theirs!("health-monitor-delay")],
        help: "seconds from one probe to the next (Octavia only)",
        set: |wishes, text| {
            number(text, 1..=3600).map(|it| wishes.cloud.check.interval = Some(Duration::from_secs(it)))
        },
    },
    Row {
        names: &["seaway.dev/cloud-monitor-timeout", theirs!("health-monitor-timeout")],
        help: "seconds that a probe may last (Octavia only)",
        set: |wishes, text| {
            number(text, 1..=3600).map(|it| wishes.cloud.check.timeout = Some(Duration::from_secs(it)))
        },
    },
    Row {
        names: &["seaway.dev/cloud-monitor-rise", theirs!("health-monitor-max-retries")],
        help: "successes in a row until a member is healthy, 1 to 10 (Octavia only)",
        set: |wishes, text| number(text, 1..=10).map(|it| wishes.cloud.check.rise = Some(it)),
    },
    Row {
        names: &["seaway.dev/cloud-monitor-fall", theirs!("health-monitor-max-retries-down")],
        help: "failures in a row until a member is unhealthy, 1 to 10 (Octavia only)",
        set: |wishes, text| number(text, 1..=10).map(|it| wishes.cloud.check.fall = Some(it)),
    },
    Row {
        names: &["seaway.dev/node-selector", theirs!("node-selector")],
        help: "labels of Nodes that are members: role=worker,ssd (Octavia only)",
        set: |wishes, text| selector(text).map(|it| wishes.cloud.nodes = Some(it)),
    },
    Row {
        names: &["seaway.dev/hostname", theirs!("hostname")],
        help: "a host name that the status of the Service has instead of addresses (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.hostname = Some(it)),
    },
];

pub(super) fn named(text: &str) -> Result<Name, String> {
    if text.is_empty() { Err("the value is empty".to_owned()) } else { Ok(text.into()) }
}

/// All that is about clouds, by our names.
pub(crate) fn options() -> impl Iterator<Item = &'static str> {
    ROWS.iter().chain(octavia::ROWS).map(super::Row::name)
}
