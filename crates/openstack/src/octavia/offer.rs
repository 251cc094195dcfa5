//! What a cloud offers: providers, what each can do, and what its operator has made of that.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    Error, Method, Reply, Service,
    resource::{
        Collection, Creatable, FieldError, Id, IdentifyingFields, Resource, ResourceNames, noun, or_default,
        resource, unexpected_reply,
    },
};

resource! {
    /// A program that makes load balancers. Its id is its name.
    Provider
    told {
        description: String,
    }
}

resource! {
    /// A size or kind of load balancer that the operator has named.
    Flavor / NewFlavor / FlavorChange
    fixed {
        flavor_profile_id: Option<Id<FlavorProfile>>,
    }
    free {
        name: String,
        description: String,
        enabled: bool,
    }
}

resource! {
    /// What a flavor means to a provider. Operators alone see them.
    FlavorProfile / NewFlavorProfile / FlavorProfileChange
    free {
        name: String,
        provider_name: String,
        /// JSON in a text.
        flavor_data: String,
    }
}

resource! {
    /// A place that load balancers can be put in. Its id is its name.
    AvailabilityZone
    told {
        description: String,
        enabled: bool,
        availability_zone_profile_id: Option<String>,
    }
}

/// Something that a provider understands in flavors or availability zones.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Capability {
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
}

impl Resource for Provider {
    type Parent = ();
    const SERVICE: Service = Service::LoadBalancer;
    const PATH: &'static str = "/lbaas/providers";
    const NAMES: ResourceNames = noun!("provider", "providers");
    const ID: &'static str = "name";
}

impl Resource for Flavor {
    type Parent = ();
    const SERVICE: Service = Service::LoadBalancer;
    const PATH: &'static str = "/lbaas/flavors";
    const NAMES: ResourceNames =
        noun!("load balancer flavor", "load balancer flavors" as "flavor", "flavors");
}

impl Creatable for Flavor {
    type New = NewFlavor;
    const KNOWN_BY: IdentifyingFields = IdentifyingFields::Nature(&["name"]);
}

impl Resource for FlavorProfile {
    type Parent = ();
    const SERVICE: Service = Service::LoadBalancer;
    const PATH: &'static str = "/lbaas/flavorprofiles";
    const NAMES: ResourceNames =
        noun!("flavor profile", "flavor profiles" as "flavorprofile", "flavorprofiles");
}

impl Creatable for FlavorProfile {
    type New = NewFlavorProfile;
    const KNOWN_BY: IdentifyingFields = IdentifyingFields::Marks(&["name", "provider_name"]);
}

impl Resource for AvailabilityZone {
    type Parent = ();
    const SERVICE: Service = Service::LoadBalancer;
    const PATH: &'static str = "/lbaas/availabilityzones";
    const NAMES: ResourceNames =
        noun!("availability zone", "availability zones" as "availability_zone", "availability_zones");
    const ID: &'static str = "name";
}

impl Collection<Provider> {
    /// Operators alone may ask, unless their policy says otherwise.
    pub async fn flavor_capabilities(&self, provider: &Id<Provider>) -> Result<Vec<Capability>, Error> {
        let call = self.action(Method::GET, LIST_CAPABILITIES, provider, FLAVOR_CAPABILITIES);
        read_capabilities(self.cloud.call(call).await?)
    }
}

const LIST_CAPABILITIES: &str = "list provider capabilities";
const FLAVOR_CAPABILITIES: &str = "flavor_capabilities";

pub(crate) fn read_capabilities(mut reply: Reply) -> Result<Vec<Capability>, Error> {
    let list = reply.body.get_mut(FLAVOR_CAPABILITIES).map(Value::take).unwrap_or_default();
    serde_json::from_value::<Option<_>>(list).map(Option::unwrap_or_default).map_err(|error| {
        unexpected_reply(
            Service::LoadBalancer,
            LIST_CAPABILITIES,
            &FieldError { field: FLAVOR_CAPABILITIES.to_owned(), why: error.to_string() },
        )
    })
}
