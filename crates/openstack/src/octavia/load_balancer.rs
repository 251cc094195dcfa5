//! Load balancers, and what can be done to one as a whole.

use std::{collections::BTreeSet, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::{
    Listener, NewListener, NewPool, Operating, Pool, Provisioning, Statistics, StatusTree, provisioned,
    read_statistics, read_tree,
};
use crate::{
    Error, Method, Service,
    neutron::{Network, Port, SecurityGroup, Subnet},
    resource::{
        Collection, Creatable, Id, IdentifyingFields, Ref, Resource, ResourceNames, UnknownFields, noun,
        resource, view,
    },
};

resource! {
    /// An address, and what answers there.
    LoadBalancer / NewLoadBalancer / LoadBalancerChange
    fixed {
        /// The VIP.
        vip_address: Option<IpAddr>,
        vip_subnet_id: Option<Id<Subnet>>,
        vip_network_id: Option<Id<Network>>,
        vip_port_id: Option<Id<Port>>,
        provider: Option<String>,
        flavor_id: Option<Id<super::Flavor>>,
        availability_zone: Option<String>,
        project_id: Option<String>,
    }
    free {
        name: String,
        description: String,
        admin_state_up: bool,
        tags: BTreeSet<String>,
        vip_qos_policy_id: Option<String>,
        /// Since 2.29: security groups of the user beside those of the provider.
        vip_sg_ids: Vec<Id<SecurityGroup>>,
    }
    given {
        /// Addresses beside the VIP, since 2.26.
        additional_vips: Vec<NewAdditionalVip>,
        listeners: Vec<NewListener>,
        /// Those that listeners name as their default, and others. Each needs a name.
        pools: Vec<NewPool>,
    }
    told {
        provisioning_status: Provisioning,
        operating_status: Operating,
        additional_vips: Vec<AdditionalVip>,
        listeners: Vec<Ref<Listener>>,
        pools: Vec<Ref<Pool>>,
        vip_vnic_type: Option<String>,
        created_at: Option<String>,
        updated_at: Option<String>,
    }
}

view! {
    /// How far load balancers are: what is asked of many, again and again.
    BalancerStatus of LoadBalancer {
        provisioning_status: Provisioning,
        operating_status: Operating,
        updated_at: Option<String>,
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdditionalVip {
    pub ip_address: Option<IpAddr>,
    pub subnet_id: Option<Id<Subnet>>,
    pub network_id: Option<Id<Network>>,
    pub port_id: Option<Id<Port>>,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewAdditionalVip {
    pub subnet_id: Id<Subnet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<IpAddr>,
}

impl Resource for LoadBalancer {
    type Parent = ();
    const SERVICE: Service = Service::LoadBalancer;
    const PATH: &'static str = "/lbaas/loadbalancers";
    const NAMES: ResourceNames = noun!("load balancer", "load balancers" as "loadbalancer", "loadbalancers");

    provisioned!();
}

impl Creatable for LoadBalancer {
    type New = NewLoadBalancer;
    const KNOWN_BY: IdentifyingFields =
        IdentifyingFields::Marks(&["name", "description", "tags", "project_id"]);
}

impl Collection<LoadBalancer> {
    /// With all its listeners, pools and their members. It is gone when a read says so, and not before.
    pub async fn delete_cascade(&self, id: &Id<LoadBalancer>) -> Result<(), Error> {
        let call = self.call(Method::DELETE, "delete load balancer and children", Some(id));
        self.delete_by(call.query("cascade", "true")).await
    }

    /// All its objects and their statuses, in one call.
    pub async fn tree(&self, id: &Id<LoadBalancer>) -> Result<StatusTree, Error> {
        let call = self.action(Method::GET, "read status tree", id, "status");
        read_tree(self.cloud.call(call).await?)
    }

    pub async fn statistics(&self, id: &Id<LoadBalancer>) -> Result<Statistics, Error> {
        let call = self.action(Method::GET, "read statistics", id, "stats");
        read_statistics(self.cloud.call(call).await?)
    }

    /// Asks for new machines below it. Who may is the operator's choice, and `ovn` has none. A second time would replace
    /// the new ones, so that it is asked once: `Class::Lost` if nobody knows whether it was heard.
    pub async fn failover(&self, id: &Id<LoadBalancer>) -> Result<(), Error> {
        let call = self.action(Method::PUT, "fail load balancer over", id, "failover").at_most_once();
        self.cloud.call(call).await.map(drop)
    }
}
