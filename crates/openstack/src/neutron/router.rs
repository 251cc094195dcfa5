//! Routers, their interfaces and their extra routes.

use std::{collections::BTreeSet, net::IpAddr};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{FixedIp, Network, Port, Status, Subnet, Tagged};
use crate::{
    Class, Error, Method, Service,
    resource::{
        Changeable, Collection, Creatable, Id, KnownBy, Query, Resource, ResourceNames, Rest, noun, resource,
    },
};

resource! {
    /// What connects subnets, and them with the outside.
    Router / NewRouter / RouterChange
    fixed {
        project_id: Option<String>,
    }
    free {
        name: String,
        description: String,
        admin_state_up: bool,
        /// `To(None)` takes the way out.
        external_gateway_info: Option<Gateway>,
        /// All of them: who adds one route says `add_routes`, which disturbs nobody else's.
        routes: Vec<Route>,
    }
    told {
        status: Status,
        tags: BTreeSet<String>,
        revision_number: Option<u64>,
        created_at: Option<String>,
        updated_at: Option<String>,
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gateway {
    pub network_id: Id<Network>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_snat: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_fixed_ips: Option<Vec<FixedIp>>,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Route {
    pub destination: String,
    pub nexthop: IpAddr,
    #[serde(flatten)]
    pub rest: Rest,
}

impl Gateway {
    pub fn to(network: Id<Network>) -> Gateway {
        Gateway { network_id: network, enable_snat: None, external_fixed_ips: None, rest: Rest::new() }
    }
}

impl Resource for Router {
    type Home = ();
    const SERVICE: Service = Service::Network;
    const PATH: &'static str = "/routers";
    const NAMES: ResourceNames = noun!("router", "routers");
}

impl Creatable for Router {
    type New = NewRouter;
    const KNOWN_BY: KnownBy = KnownBy::Marks(&["name", "description", "project_id"]);
}

impl Changeable for Router {
    type Change = RouterChange;
}

impl Tagged for Router {}

impl Collection<Router> {
    /// Beside those that are there, in one step over there. Needs the extension `extraroute-atomic`; what is there
    /// already stays.
    pub async fn add_routes(&self, id: &Id<Router>, routes: &[Route]) -> Result<Router, Error> {
        self.change_routes("add routes", id, "add_extraroutes", routes).await
    }

    /// What is not there is removed.
    pub async fn remove_routes(&self, id: &Id<Router>, routes: &[Route]) -> Result<Router, Error> {
        self.change_routes("remove routes", id, "remove_extraroutes", routes).await
    }

    async fn change_routes(
        &self,
        operation: &'static str,
        id: &Id<Router>,
        action: &str,
        routes: &[Route],
    ) -> Result<Router, Error> {
        let call = self.action(Method::PUT, operation, id, action);
        let reply = self.cloud.call(call.body(json!({ "router": { "routes": routes } }))).await?;
        crate::resource::decode_object(reply)
    }

    /// Gives the router the subnet's gateway address. It is there: fine.
    pub async fn add_interface(&self, id: &Id<Router>, subnet: &Id<Subnet>) -> Result<(), Error> {
        let call = self.action(Method::PUT, "add router interface", id, "add_router_interface");
        match self.cloud.call(call.body(json!({ "subnet_id": subnet }))).await {
            Ok(_) => Ok(()),
            // "Router already has a port on subnet" is 400; a reply that was lost ends in it.
            Err(error) if is_refusal(error.class()) && self.has_interface(id, subnet).await? => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A port that was made for it becomes an interface: for an address of one's choice. It is one: fine.
    pub async fn add_interface_port(&self, id: &Id<Router>, port: &Id<Port>) -> Result<(), Error> {
        let call = self.action(Method::PUT, "add router interface", id, "add_router_interface");
        match self.cloud.call(call.body(json!({ "port_id": port }))).await {
            Ok(_) => Ok(()),
            // "Port … is already in use" of the router itself is what a reply that was lost ends in.
            Err(error) if is_refusal(error.class()) => {
                let it: Port = self.cloud.all::<Port>().read(port).await?;
                if it.device_id == id.as_str() { Ok(()) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    /// What is not there is removed.
    pub async fn remove_interface(&self, id: &Id<Router>, subnet: &Id<Subnet>) -> Result<(), Error> {
        let call = self.action(Method::PUT, "remove router interface", id, "remove_router_interface");
        self.delete_by(call.body(json!({ "subnet_id": subnet }))).await
    }

    async fn has_interface(&self, id: &Id<Router>, subnet: &Id<Subnet>) -> Result<bool, Error> {
        let query = Query::all().with("device_id", id).with("fixed_ips", format!("subnet_id={subnet}"));
        Ok(!self.cloud.all::<Port>().list::<Port>(query).await?.is_empty())
    }
}

fn is_refusal(class: &Class) -> bool {
    matches!(class, Class::Invalid | Class::Conflict | Class::Duplicate | Class::InUse | Class::AddressTaken)
}
