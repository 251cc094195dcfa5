//! The part of the configuration that planning reads, resolved: every default is filled in.

mod adopt;
mod cloud;
mod pools;
mod tenants;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use crate::{
    acme::Acme,
    dns::Dns,
    fact::{Labels, TargetPort},
    layer2::Layer2,
    load_balancer::{
        Balance, ClientAuth, ConnectionReuse, CookieKey, HealthCheck, HttpOptions, L4, Limits,
        PassiveHealthCheck, Timeouts, TlsProfile,
    },
    name::{Name, ObjectRef},
};

pub use self::{adopt::*, cloud::*, pools::*, tenants::*};

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `spec.loadBalancerClass` values that are ours, beside Services that name none.
    pub classes: Vec<Name>,
    /// Services without a class are ours.
    pub classless: bool,
    /// Those of which `spec.loadBalancerClass` says this are served by a cloud.
    pub clouds: BTreeMap<Name, Arc<CloudDefaults>>,
    /// What becomes of what a cloud has of ours and nobody asked to delete.
    pub orphans: OrphanPolicy,
    /// Which Services of clouds are adopted that another controller serves, and how fast.
    pub adopt: AdoptionConfig,
    pub pools: AddressPoolRules,
    /// `tcpServices` and `udpServices`, in their order.
    pub exposed: Vec<ExposedPort>,
    pub front_door: FrontDoor,
    /// Nothing listens elsewhere, if any is named here.
    pub listen_only: Vec<IpAddr>,
    /// Where this process itself answers, and lets whoever comes from this machine change things: nobody's member.
    pub status_page: Vec<SocketAddr>,
    pub tenants: Tenants,
    pub layer2: Layer2,
    /// Of a host that is no Node: by these, objects select it.
    pub host_labels: Labels,
    /// Names of Services are published in DNS.
    pub dns: Option<Dns>,
    pub defaults: Defaults,
}

impl Config {
    /// Whether what has these addresses of its own listens at any of them.
    pub fn may_listen(&self, own: &[IpAddr]) -> bool {
        self.listen_only.is_empty() || own.iter().any(|it| self.listen_only.contains(it))
    }
}

/// What becomes of orphans: of what a cloud has of ours, for owners whose deletion was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanPolicy {
    /// They are left as they are, and told.
    Report,
    Delete,
}

/// One port of a Service on the host's own addresses, asked for by the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExposedPort {
    /// `tcpServices[0]`.
    pub key: Name,
    pub l4: L4,
    pub namespace: Name,
    pub service: Name,
    /// The Service's port, by number or by name.
    pub port: TargetPort,
    /// Where to listen, if not on the Service's own port.
    pub listen: Option<u16>,
    /// On this address only; otherwise on all of the host's.
    pub address: Option<IpAddr>,
}

/// The listener that Services share, by path and by host name.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontDoor {
    pub opens: OpenPolicy,
    pub addresses: Vec<IpAddr>,
    pub port: u16,
    pub services: FrontDoorServices,
    pub routes: FrontDoorRoutes,
    pub owners: HostOwners,
    /// `/shop/cart` is `/cart` to the Service `shop`.
    pub strip_prefix: bool,
    /// The answer to what no rule matches, if it is not the usual one.
    pub unmatched: Option<UnmatchedResponse>,
    pub http: HttpOptions,
    pub tls: FrontDoorTls,
    /// Further ones by their names: those of them are not nested. Host names and paths are there only if their objects say so.
    pub entrances: BTreeMap<Name, FrontDoor>,
}

/// The front door's other listener, which opens once there is a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontDoorTls {
    pub port: u16,
    /// Beside those that are named here.
    pub secrets: TlsSecrets,
    /// Secrets and files, in their order: the first is for clients that ask for a name that nobody has.
    pub certificates: Vec<ObjectRef>,
    /// Certificates are ordered for host names that have none.
    pub acme: Option<Acme>,
    /// What is asked for in the open is sent here, unless a Service says otherwise.
    pub redirect: bool,
    pub terms: TlsSettings,
}

/// Which Secrets with certificates the front door shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsSecrets {
    /// All of type `kubernetes.io/tls`.
    All,
    /// Those that the configuration names.
    Named,
}

/// How TLS is spoken, whatever the certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    pub profile: TlsProfile,
    pub hsts: Option<u32>,
    pub clients: Option<ClientAuth>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenPolicy {
    Never,
    /// As soon as there is something to serve.
    WhenNeeded,
    Always,
}

/// Which Services appear at the front door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontDoorServices {
    /// All that speak HTTP, as far as anybody can tell.
    All,
    /// Those that ask for it by an annotation.
    Annotated,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmatchedResponse {
    pub code: u16,
    /// `None`: the page for that code, or the usual words.
    pub page: Option<Name>,
}

impl Default for FrontDoor {
    fn default() -> FrontDoor {
        FrontDoor {
            opens: OpenPolicy::WhenNeeded,
            addresses: vec![Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()],
            port: 80,
            services: FrontDoorServices::All,
            routes: FrontDoorRoutes::All,
            owners: HostOwners::default(),
            strip_prefix: true,
            unmatched: None,
            http: HttpOptions::default(),
            entrances: BTreeMap::new(),
            tls: FrontDoorTls {
                port: 443,
                secrets: TlsSecrets::All,
                certificates: Vec::new(),
                acme: None,
                redirect: false,
                terms: TlsSettings::default(),
            },
        }
    }
}

/// Who stands in for a Service's endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberSource {
    /// Pods on a host that is a Node, or where there are no Nodes; otherwise Nodes.
    Auto,
    Pods,
    /// As `Nodes`, whether or not anybody stands behind them: who leads to them is too slow to be told of each pod.
    EveryNode,
    /// Every Node, at the Service's node port.
    Nodes,
}

/// What a Service gets that says nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Defaults {
    pub members: MemberSource,
    pub balance: Balance,
    pub health: Option<HealthCheck>,
    pub passive: Option<PassiveHealthCheck>,
    pub slow_start: Option<Duration>,
    pub panic_threshold: u8,
    /// The same on all hosts that share clients.
    pub cookie_key: Option<CookieKey>,
    pub reuse: ConnectionReuse,
    pub timeouts: Timeouts,
    pub limits: Limits,
}

impl Default for Config {
    /// As for a folder: health checks on.
    fn default() -> Config {
        Config {
            classes: vec![Name::from("seaway.dev/native")],
            classless: true,
            clouds: BTreeMap::new(),
            orphans: OrphanPolicy::Report,
            adopt: AdoptionConfig::default(),
            pools: AddressPoolRules::default(),
            exposed: Vec::new(),
            front_door: FrontDoor::default(),
            listen_only: Vec::new(),
            status_page: Vec::new(),
            tenants: Tenants::default(),
            layer2: Layer2::default(),
            host_labels: Labels::new(),
            dns: None,
            defaults: Defaults {
                members: MemberSource::Auto,
                balance: Balance::RoundRobin,
                health: Some(HealthCheck { while_used: true, ..HealthCheck::default() }),
                passive: Some(PassiveHealthCheck::default()),
                slow_start: None,
                panic_threshold: 0,
                cookie_key: None,
                reuse: ConnectionReuse::Safe,
                timeouts: Timeouts::default(),
                limits: Limits::default(),
            },
        }
    }
}
