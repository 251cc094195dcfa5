//! Listeners.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    L7Policy, LoadBalancer, NewL7Policy, NewPool, Operating, Pool, Provisioning, Statistics, provisioned,
    read_statistics,
};
use crate::{
    Error, Method, Service,
    resource::{
        Collection, Creatable, Id, IdentifyingFields, Ref, Resource, ResourceNames, noun, resource, words,
    },
};

words! {
    /// What a listener speaks.
    Protocol {
        Tcp = "TCP",
        Udp = "UDP",
        Sctp = "SCTP",
        Http = "HTTP",
        /// TLS, passed through.
        Https = "HTTPS",
        /// TLS, ended at the listener.
        TerminatedHttps = "TERMINATED_HTTPS",
        /// No traffic: figures for a scraper, since 2.25.
        Prometheus = "PROMETHEUS",
    }
}

words! {
    ClientAuthentication {
        None = "NONE",
        Optional = "OPTIONAL",
        Mandatory = "MANDATORY",
    }
}

resource! {
    /// A port, and where its traffic goes.
    Listener / NewListener / ListenerChange
    needed {
        protocol: Protocol,
        protocol_port: u16,
    }
    fixed {
        project_id: Option<String>,
    }
    free {
        name: String,
        description: String,
        admin_state_up: bool,
        tags: BTreeSet<String>,
        default_pool_id: Option<Id<Pool>>,
        /// -1 is without a limit.
        connection_limit: Option<i64>,
        insert_headers: BTreeMap<String, String>,
        /// Milliseconds, as are the others.
        timeout_client_data: Option<u64>,
        timeout_member_connect: Option<u64>,
        timeout_member_data: Option<u64>,
        timeout_tcp_inspect: Option<u64>,
        /// `None`: everybody may come.
        allowed_cidrs: Option<Vec<String>>,
        default_tls_container_ref: Option<String>,
        sni_container_refs: Vec<String>,
        client_ca_tls_container_ref: Option<String>,
        client_authentication: Option<ClientAuthentication>,
        client_crl_container_ref: Option<String>,
        tls_ciphers: Option<String>,
        tls_versions: Option<Vec<String>>,
        alpn_protocols: Option<Vec<String>>,
        hsts_max_age: Option<u64>,
        hsts_include_subdomains: Option<bool>,
        hsts_preload: Option<bool>,
    }
    given {
        /// Within a new load balancer there is none to name.
        loadbalancer_id: Id<LoadBalancer>,
        default_pool: NewPool,
        l7policies: Vec<NewL7Policy>,
    }
    told {
        provisioning_status: Provisioning,
        operating_status: Operating,
        loadbalancers: Vec<Ref<LoadBalancer>>,
        l7policies: Vec<Ref<L7Policy>>,
        created_at: Option<String>,
        updated_at: Option<String>,
    }
}

impl Resource for Listener {
    type Parent = ();
    const SERVICE: Service = Service::LoadBalancer;
    const PATH: &'static str = "/lbaas/listeners";
    const NAMES: ResourceNames = noun!("listener", "listeners");

    provisioned!();
}

impl Creatable for Listener {
    type New = NewListener;
    const KNOWN_BY: IdentifyingFields =
        IdentifyingFields::Nature(&["loadbalancer_id", "protocol", "protocol_port", "name", "tags"]);
}

impl Collection<Listener> {
    pub async fn statistics(&self, id: &Id<Listener>) -> Result<Statistics, Error> {
        let call = self.action(Method::GET, "read statistics", id, "stats");
        read_statistics(self.cloud.call(call).await?)
    }
}
