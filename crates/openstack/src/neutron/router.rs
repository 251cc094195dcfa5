//! Routers and their extra routes.

use std::{collections::BTreeSet, net::IpAddr};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{FixedIp, Network, Status, Tagged};
use crate::{
    Error, Method, Service,
    resource::{
        Collection, Creatable, Id, IdentifyingFields, Resource, ResourceNames, UnknownFields, decode_object,
        noun, resource,
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
        /// All of them.
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
    pub rest: UnknownFields,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Route {
    pub destination: String,
    pub nexthop: IpAddr,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

impl Route {
    pub fn to(destination: impl ToString, nexthop: IpAddr) -> Route {
        Route { destination: destination.to_string(), nexthop, rest: UnknownFields::new() }
    }
}

impl Gateway {
    /// The gateway of a router to this external network.
    pub fn of_network(network: Id<Network>) -> Gateway {
        Gateway {
            network_id: network,
            enable_snat: None,
            external_fixed_ips: None,
            rest: UnknownFields::new(),
        }
    }
}

impl Resource for Router {
    type Parent = ();
    const SERVICE: Service = Service::Network;
    const PATH: &'static str = "/routers";
    const NAMES: ResourceNames = noun!("router", "routers");
}

impl Creatable for Router {
    type New = NewRouter;
    const KNOWN_BY: IdentifyingFields = IdentifyingFields::Marks(&["name", "description", "project_id"]);
}

impl Tagged for Router {}

/// Each needs the extension `extraroute-atomic`: other routes stay as they are, whoever writes them at the same time.
impl Collection<Router> {
    /// One that is there already stays.
    pub async fn add_routes(&self, id: &Id<Router>, routes: &[Route]) -> Result<Router, Error> {
        self.edit_routes("add routes to router", id, "add_extraroutes", routes).await
    }

    /// One that is not there is no error.
    pub async fn remove_routes(&self, id: &Id<Router>, routes: &[Route]) -> Result<Router, Error> {
        self.edit_routes("remove routes from router", id, "remove_extraroutes", routes).await
    }

    async fn edit_routes(
        &self,
        operation: &'static str,
        id: &Id<Router>,
        action: &str,
        routes: &[Route],
    ) -> Result<Router, Error> {
        let call = self.action(Method::PUT, operation, id, action);
        decode_object(self.cloud.call(call.body(json!({"router": {"routes": routes}}))).await?)
    }
}
