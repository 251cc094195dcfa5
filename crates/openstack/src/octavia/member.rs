//! Members of a pool, one by one and all at once.

use std::{collections::BTreeSet, net::IpAddr};

use serde_json::json;

use super::{Operating, Pool, Provisioning, provisioned};
use crate::{
    Error, Method, Service,
    neutron::Subnet,
    resource::{Collection, Creatable, Id, IdentifyingFields, Resource, ResourceNames, noun, resource},
};

resource! {
    /// An address and port that serve.
    Member / NewMember / MemberChange
    needed {
        address: IpAddr,
        protocol_port: u16,
    }
    fixed {
        /// The subnet that its address is reached by; of the VIP if none is given.
        subnet_id: Option<Id<Subnet>>,
        project_id: Option<String>,
    }
    free {
        name: String,
        admin_state_up: bool,
        tags: BTreeSet<String>,
        /// From 0, which drains, to 256.
        weight: Option<u16>,
        backup: Option<bool>,
        monitor_address: Option<IpAddr>,
        monitor_port: Option<u16>,
    }
    given {
        /// Since 2.29: a port on a virtual function.
        request_sriov: bool,
    }
    told {
        provisioning_status: Provisioning,
        operating_status: Operating,
        vnic_type: Option<String>,
        created_at: Option<String>,
        updated_at: Option<String>,
    }
}

impl Resource for Member {
    type Parent = Id<Pool>;
    const SERVICE: Service = Service::LoadBalancer;
    const PATH: &'static str = "/lbaas/pools/{}/members";
    const NAMES: ResourceNames = noun!("member", "members");

    provisioned!();
}

impl Creatable for Member {
    type New = NewMember;
    const KNOWN_BY: IdentifyingFields =
        IdentifyingFields::Nature(&["address", "protocol_port", "name", "tags"]);
}

impl Collection<Member> {
    /// These and no others, in one call. What is left is reset to its default, also of members that stay: `like` keeps
    /// what this version knows of them.
    pub async fn replace(&self, members: &[NewMember]) -> Result<(), Error> {
        self.batch("replace members", members, false).await
    }

    /// These beside those that are there, since 2.11. A member that is there already is changed.
    pub async fn add(&self, members: &[NewMember]) -> Result<(), Error> {
        self.batch("add members", members, true).await
    }

    async fn batch(
        &self,
        operation: &'static str,
        members: &[NewMember],
        additive: bool,
    ) -> Result<(), Error> {
        let call = self.call(Method::PUT, operation, None).body(json!({ "members": members }));
        let call = if additive { call.query("additive_only", "true") } else { call };
        self.cloud.call(call).await.map(drop)
    }
}
