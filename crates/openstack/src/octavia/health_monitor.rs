//! How a pool's members are probed.

use std::collections::BTreeSet;

use super::{Operating, Pool, Provisioning, provisioned};
use crate::{
    Service,
    resource::{Creatable, Id, IdentifyingFields, Ref, Resource, ResourceNames, noun, resource, words},
};

words! {
    /// What a probe is.
    MonitorType {
        Ping = "PING",
        Tcp = "TCP",
        Http = "HTTP",
        Https = "HTTPS",
        TlsHello = "TLS-HELLO",
        UdpConnect = "UDP-CONNECT",
        Sctp = "SCTP",
    }
}

resource! {
    /// The probe of a pool; a pool has one at most.
    HealthMonitor / NewHealthMonitor / HealthMonitorChange
    needed {
        r#type: MonitorType,
    }
    needed_and_free {
        /// Seconds from one probe to the next.
        delay: u64,
        /// Seconds.
        timeout: u64,
        /// Successes in a row after which a member counts as healthy.
        max_retries: u64,
    }
    fixed {
        project_id: Option<String>,
    }
    free {
        name: String,
        admin_state_up: bool,
        tags: BTreeSet<String>,
        /// Failures in a row after which it does not.
        max_retries_down: Option<u64>,
        http_method: Option<String>,
        url_path: Option<String>,
        expected_codes: Option<String>,
        http_version: Option<f64>,
        domain_name: Option<String>,
    }
    given {
        /// Within a new pool there is none to name.
        pool_id: Id<Pool>,
    }
    told {
        provisioning_status: Provisioning,
        operating_status: Operating,
        pools: Vec<Ref<Pool>>,
        created_at: Option<String>,
        updated_at: Option<String>,
    }
}

impl Resource for HealthMonitor {
    type Parent = ();
    const SERVICE: Service = Service::LoadBalancer;
    const PATH: &'static str = "/lbaas/healthmonitors";
    const NAMES: ResourceNames =
        noun!("health monitor", "health monitors" as "healthmonitor", "healthmonitors");

    provisioned!();
}

impl Creatable for HealthMonitor {
    type New = NewHealthMonitor;
    const KNOWN_BY: IdentifyingFields = IdentifyingFields::Nature(&["pool_id", "type", "name", "tags"]);
}
