//! Pools.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    HealthMonitor, Listener, LoadBalancer, Member, NewHealthMonitor, NewMember, Operating, Provisioning,
    provisioned,
};
use crate::{
    Service,
    resource::{
        Creatable, FieldError, Fields, Id, IdentifyingFields, Ref, Resource, ResourceNames, UnknownFields,
        View, noun, resource, view, words,
    },
};

words! {
    /// What a pool's members are spoken to in.
    PoolProtocol {
        Tcp = "TCP",
        Udp = "UDP",
        Sctp = "SCTP",
        Http = "HTTP",
        Https = "HTTPS",
        Proxy = "PROXY",
        ProxyV2 = "PROXYV2",
    }
}

words! {
    Algorithm {
        RoundRobin = "ROUND_ROBIN",
        LeastConnections = "LEAST_CONNECTIONS",
        SourceIp = "SOURCE_IP",
        /// The one that `ovn` has.
        SourceIpPort = "SOURCE_IP_PORT",
    }
}

words! {
    PersistenceType {
        SourceIp = "SOURCE_IP",
        HttpCookie = "HTTP_COOKIE",
        AppCookie = "APP_COOKIE",
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Persistence {
    #[serde(rename = "type", default)]
    pub kind: PersistenceType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie_name: Option<String>,
    /// Seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence_timeout: Option<u64>,
    /// A netmask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence_granularity: Option<String>,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

resource! {
    /// Members that share a load, and how they share it.
    Pool / NewPool / PoolChange
    needed {
        protocol: PoolProtocol,
    }
    needed_and_free {
        lb_algorithm: Algorithm,
    }
    fixed {
        project_id: Option<String>,
    }
    free {
        name: String,
        description: String,
        admin_state_up: bool,
        tags: BTreeSet<String>,
        session_persistence: Option<Persistence>,
        tls_enabled: Option<bool>,
        tls_container_ref: Option<String>,
        ca_tls_container_ref: Option<String>,
        crl_container_ref: Option<String>,
        tls_ciphers: Option<String>,
        tls_versions: Option<Vec<String>>,
        alpn_protocols: Option<Vec<String>>,
    }
    given {
        /// This or `listener_id`, unless it is made within one of them.
        loadbalancer_id: Id<LoadBalancer>,
        listener_id: Id<Listener>,
        members: Vec<NewMember>,
        healthmonitor: NewHealthMonitor,
    }
    told {
        provisioning_status: Provisioning,
        operating_status: Operating,
        loadbalancers: Vec<Ref<LoadBalancer>>,
        listeners: Vec<Ref<Listener>>,
        members: Vec<Ref<Member>>,
        healthmonitor_id: Option<Id<HealthMonitor>>,
        created_at: Option<String>,
        updated_at: Option<String>,
    }
}

view! {
    /// How many members pools have: those have no list of their own.
    PoolMembers of Pool {
        members: Vec<Ref<Member>>,
    }
}

impl Resource for Pool {
    type Parent = ();
    const SERVICE: Service = Service::LoadBalancer;
    const PATH: &'static str = "/lbaas/pools";
    const NAMES: ResourceNames = noun!("pool", "pools");

    provisioned!();
}

impl Creatable for Pool {
    type New = NewPool;
    const KNOWN_BY: IdentifyingFields = IdentifyingFields::Marks(&[
        "name",
        "description",
        "tags",
        "loadbalancer_id",
        "listener_id",
        "protocol",
    ]);

    /// Octavia refuses to be asked for the pools of a listener.
    fn filter_value(field: &str, text: &str) -> Option<String> {
        (field != "listener_id").then(|| text.to_owned())
    }
}

impl Pool {
    /// Told with it in the answer to a whole load balancer, and nowhere else.
    pub fn monitor(&self) -> Result<Option<HealthMonitor>, FieldError> {
        match self.rest.get("healthmonitor") {
            Some(it) if !it.is_null() => Fields::of(it.clone()).and_then(HealthMonitor::read).map(Some),
            _ => Ok(None),
        }
    }
}
