//! Walks over all kinds of objects, which a real cloud and the fake have to survive alike.

mod barbican;
mod lists;
mod neutron;
mod nova;
mod octavia;

use std::time::Duration;

use seaway_openstack::{
    Call, Cloud, Service,
    neutron::{Network, NewNetwork, NewSubnet, Router, Subnet},
    resource::{Id, Query},
};
use serde_json::json;

pub(crate) use barbican::secrets_and_containers;
pub(crate) use lists::{what_goes_between_two_pages, whole_lists};
pub(crate) use neutron::{addresses_and_groups, networks_and_routers};
pub(crate) use nova::servers_and_interfaces;
pub(crate) use octavia::{one_by_one, refusals};

/// All of them as tests: `$each` makes one of a name and a walk.
macro_rules! each_walk {
    ($each:ident) => {
        $each! {
            every_kind_of_octavia_is_made_read_changed_and_deleted: walks::one_by_one;
            what_octavia_refuses_is_told_apart: walks::refusals;
            networks_and_routers_are_made_changed_and_deleted: walks::networks_and_routers;
            addresses_and_groups_are_made_changed_and_deleted: walks::addresses_and_groups;
            servers_and_their_interfaces_come_and_go: walks::servers_and_interfaces;
            secrets_are_kept_and_told_to_their_owner: walks::secrets_and_containers;
            lists_are_whole_in_pages_of_any_size: walks::whole_lists;
            nothing_is_missed_when_the_end_of_a_page_is_deleted: walks::what_goes_between_two_pages;
        }
    };
}

/// For whatever a cloud does in its own time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A network of the test's own, with room for addresses.
pub(crate) async fn network(cloud: &Cloud, name: &str, cidr: &str) -> (Id<Network>, Id<Subnet>) {
    let network = NewNetwork { name: name.into(), ..NewNetwork::new() };
    let network = cloud.all::<Network>().create(&network).await.expect("a network").id;
    let subnet = NewSubnet {
        name: name.into(),
        cidr: Some(cidr.to_owned()).into(),
        ..NewSubnet::new(network.clone(), 4)
    };
    let subnet = cloud.all::<Subnet>().create(&subnet).await.expect("a subnet").id;
    (network, subnet)
}

/// The first network that floating IPs come from.
pub(crate) async fn outside(cloud: &Cloud) -> Id<Network> {
    let query = Query::all().with("router:external", true);
    let networks = cloud.all::<Network>().list::<Network>(query).await.expect("networks");
    networks.into_iter().next().expect("an external network").id
}

/// Gives the router the subnet's gateway address.
pub(crate) async fn plug(cloud: &Cloud, router: &Id<Router>, subnet: &Id<Subnet>) {
    let path = format!("/routers/{router}/add_router_interface");
    let call = Call::put(Service::Network, "add router interface", path, json!({ "subnet_id": subnet }));
    cloud.call(call).await.expect("plugged in");
}
