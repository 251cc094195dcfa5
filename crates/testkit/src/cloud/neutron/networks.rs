//! Networks and their subnets.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{
    NETWORK, PORT, SUBNET,
    addresses::{default_pools, gateway, net},
    forms::network,
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::{Fields, Row},
};

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let fields = NETWORK.created(request)?;
    let project = owner(request, "network");
    state.has_room_for(&NETWORK, &project)?;
    let row = state.new_row(fields, &project);
    let id = row.id.clone();
    state.neutron.networks.put(row);
    state.default_group(&project);
    state.told(201, &NETWORK, &id)
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let changes = NETWORK.changed(request)?;
    let mut row = state.to_change(&NETWORK, request)?;
    row.fields.extend(changes);
    state.keep(&NETWORK, row);
    state.told(200, &NETWORK, &request.at[0])
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    state.neutron.owned(&NETWORK, id, &request.caller)?;
    let ports: Vec<String> = state.neutron.ports.child_ids(id);
    if !ports.is_empty() {
        let message = format!(
            "Unable to complete operation on network {id}. There are one or more ports still in use on the network, \
             id for these ports is: {}.",
            ports.join(",")
        );
        return Err(Refusal::of(409, "NetworkInUse", message));
    }
    for subnet in state.neutron.subnets.child_ids(id) {
        state.neutron.subnets.remove(&subnet);
    }
    state.neutron.networks.remove(id);
    Ok(Reply::empty(204))
}

pub(super) fn create_subnet(state: &mut State, request: &Request) -> Answer {
    let mut fields = SUBNET.created(request)?;
    let project = owner(request, "subnet");
    let on = fields["network_id"].as_str().unwrap_or_default().to_owned();
    let parent = state.neutron.visible_object(&NETWORK, &on, &request.caller)?;
    let is_external = parent.is("router:external");
    state.has_room_for(&SUBNET, &project)?;
    let given = request.json().unwrap_or_default();
    complete(&mut fields, given["subnet"].get("gateway_ip").is_none())?;
    let cidr = fields["cidr"].as_str().and_then(network).ok_or_else(|| invalid("no cidr"))?;
    for other in state.neutron.subnets.children(&on) {
        if net(other).is_some_and(|it| it.contains(&cidr.addr()) || cidr.contains(&it.addr())) {
            return Err(invalid(format!(
                "Requested subnet with cidr: {cidr} for network: {on} overlaps with another subnet."
            )));
        }
    }
    fields.insert("router:external".to_owned(), is_external.into());
    let mut row = state.new_row(fields, &project);
    row.parent = Some(on);
    let id = row.id.clone();
    state.neutron.subnets.put(row);
    state.told(201, &SUBNET, &id)
}

/// Fills in what follows from the range: gateway and pools.
fn complete(fields: &mut Fields, gateway_is_free: bool) -> Result<(), Refusal> {
    let Some(text) = fields["cidr"].as_str().map(str::to_owned) else {
        let message = "Bad subnets request: a subnetpool must be specified in the absence of a cidr.";
        return Err(Refusal::of(400, "BadRequest", message));
    };
    let cidr: IpNet = text.parse().map_err(|_| invalid(format!("{text} is not in a CIDR format.")))?;
    if gateway_is_free {
        fields.insert("gateway_ip".to_owned(), gateway(cidr).to_string().into());
    }
    let gateway: Option<IpAddr> = fields["gateway_ip"].as_str().and_then(|it| it.parse().ok());
    let pools = fields["allocation_pools"].as_array().cloned().unwrap_or_default();
    for pool in &pools {
        let end = |name: &str| pool[name].as_str().unwrap_or_default().to_owned();
        let inside = |text: String| text.parse::<IpAddr>().is_ok_and(|it| cidr.contains(&it));
        let (start, end) = (end("start"), end("end"));
        if !inside(start.clone()) || !inside(end.clone()) {
            let message = format!("The allocation pool {start}-{end} spans beyond the subnet cidr {cidr}.");
            return Err(Refusal::of(400, "OutOfBoundsAllocationPool", message));
        }
    }
    if pools.is_empty() {
        fields.insert("allocation_pools".to_owned(), default_pools(cidr, gateway));
    }
    Ok(())
}

pub(super) fn change_subnet(state: &mut State, request: &Request) -> Answer {
    let changes = SUBNET.changed(request)?;
    let mut row = state.to_change(&SUBNET, request)?;
    row.fields.extend(changes);
    state.keep(&SUBNET, row);
    state.told(200, &SUBNET, &request.at[0])
}

pub(super) fn delete_subnet(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let row = state.neutron.owned(&SUBNET, id, &request.caller)?;
    let on = row.parent.clone().unwrap_or_default();
    let uses = |port: &Row| {
        port.fields
            .get("fixed_ips")
            .is_some_and(|it| super::forms::texts(it, "subnet_id").contains(&id.as_str()))
    };
    if state.neutron.table(&PORT).children(&on).any(uses) {
        let message = format!(
            "Unable to complete operation on subnet {id}: One or more ports have an IP allocation from this subnet."
        );
        return Err(Refusal::of(409, "SubnetInUse", message));
    }
    state.neutron.subnets.remove(id);
    Ok(Reply::empty(204))
}

/// Whose the new object is: the caller's, unless an administrator says otherwise.
pub(super) fn owner(request: &Request, one: &str) -> String {
    let body = request.json().unwrap_or_default();
    let named = ["project_id", "tenant_id"].iter().find_map(|name| body[one].get(*name)?.as_str());
    match named {
        Some(project) if request.caller.is_admin() => project.to_owned(),
        _ => request.caller.project.clone(),
    }
}

fn invalid(message: impl std::fmt::Display) -> Refusal {
    Refusal::of(400, "InvalidInput", format!("Invalid input for operation: {message}"))
}

impl State {
    /// The outside world: the network `public`, as the rig has it.
    pub(in crate::cloud) fn open_to_the_world(&mut self, project: &str) {
        let mut network = self.new_row(Fields::new(), project);
        for field in NETWORK.fields {
            network.fields.entry(field.name).or_insert(Value::Null);
        }
        let id = network.id.clone();
        let settings = json!({
            "name": "public", "description": "", "admin_state_up": true, "shared": false, "router:external": true,
            "is_default": false, "port_security_enabled": true, "mtu": 1500, "availability_zone_hints": [],
            "availability_zones": [], "vlan_transparent": false, "qinq": false, "l2_adjacency": true,
            "status": "ACTIVE",
        });
        network.fields.extend(settings.as_object().cloned().unwrap_or_default());
        self.neutron.networks.put(network);
        let mut subnet = self.new_row(Fields::new(), project);
        for field in SUBNET.fields {
            subnet.fields.entry(field.name).or_insert(Value::Null);
        }
        let settings = json!({
            "name": "public-subnet", "network_id": id, "ip_version": 4, "cidr": "172.24.4.0/24",
            "gateway_ip": "172.24.4.1", "enable_dhcp": false, "router:external": true,
            "allocation_pools": [{"start": "172.24.4.10", "end": "172.24.4.250"}],
        });
        subnet.fields.extend(settings.as_object().cloned().unwrap_or_default());
        subnet.parent = Some(id);
        self.neutron.subnets.put(subnet);
    }
}
