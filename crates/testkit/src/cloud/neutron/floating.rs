//! Floating IPs.

use serde_json::{Value, json};

use super::{
    FLOATING, NETWORK, PORT, SUBNET,
    addresses::{AddressRequest, net, pairs},
    forms::texts,
    missing,
    networks::owner,
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::Row,
};

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let mut fields = FLOATING.created(request)?;
    let project = owner(request, "floatingip");
    let network = fields["floating_network_id"].as_str().unwrap_or_default().to_owned();
    let found = state.neutron.visible_object(&NETWORK, &network, &request.caller)?;
    if !found.is("router:external") {
        let message = format!("Bad floatingip request: Network {network} is not a valid external network.");
        return Err(Refusal::of(400, "BadRequest", message));
    }
    state.has_room_for(&FLOATING, &project)?;
    let port = fields.insert("port_id".to_owned(), Value::Null).unwrap_or_default();
    let subnet = fields.remove("subnet_id").and_then(|it| it.as_str().map(str::to_owned));
    if let Some(port) = port.as_str() {
        state.neutron.visible_object(&PORT, port, &request.caller)?;
    }
    if let Some(subnet) = &subnet {
        state.neutron.subnets.row(subnet).ok_or_else(|| missing(&SUBNET, subnet))?;
    }
    let wanted = fields["floating_ip_address"].as_str().and_then(|it| it.parse().ok());
    let asked = [AddressRequest { subnet, address: wanted }];
    let asked = if asked[0].subnet.is_none() && wanted.is_none() { &asked[..0] } else { &asked[..] };
    let chosen = state.neutron.choose(&network, asked, "")?;
    let (on, address) = chosen.first().cloned().ok_or_else(|| missing(&SUBNET, &network))?;
    fields.insert("floating_ip_address".to_owned(), address.to_string().into());
    let mut row = state.new_row(fields, &project);
    if let Some(port) = port.as_str() {
        state.associate(&mut row, port)?;
    }
    state.neutron.take(&on, address, &row.id);
    row.set("subnet_of_address", on);
    let id = row.id.clone();
    state.neutron.floating.put(row);
    let answer = state.told(201, &FLOATING, &id);
    state.follow(&id);
    answer
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let mut changes = FLOATING.changed(request)?;
    let mut row = state.to_change(&FLOATING, request)?;
    match changes.remove("port_id") {
        Some(Value::String(port)) => {
            state.neutron.visible_object(&PORT, &port, &request.caller)?;
            state.associate(&mut row, &port)?;
        }
        Some(_) => {
            for name in ["port_id", "fixed_ip_address", "router_id"] {
                row.set(name, Value::Null);
            }
        }
        None => {}
    }
    changes.remove("fixed_ip_address");
    row.fields.extend(changes);
    let id = row.id.clone();
    state.keep(&FLOATING, row);
    let answer = state.told(200, &FLOATING, &id);
    state.follow(&id);
    answer
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let row = state.to_change(&FLOATING, request)?;
    let fixed =
        json!([{"subnet_id": row.text("subnet_of_address"), "ip_address": row.text("floating_ip_address")}]);
    state.neutron.free_all_of(id, &fixed);
    state.neutron.floating.remove(id);
    Ok(Reply::empty(204))
}

impl State {
    fn associate(&self, row: &mut Row, port: &str) -> Result<(), Refusal> {
        let found = self.neutron.ports.row(port).ok_or_else(|| missing(&PORT, port))?;
        let network = row.text("floating_network_id").to_owned();
        let fixed = pairs(&found.fields["fixed_ips"]);
        let (subnet, inner) =
            fixed.into_iter().find(|(_, it)| it.is_ipv4()).ok_or_else(|| missing(&PORT, port))?;
        let router = self.way_out(&subnet, &network).ok_or_else(|| {
            let message = format!(
                "External network {network} is not reachable from subnet {subnet}.  Therefore, cannot associate Port \
                 {port} with a Floating IP."
            );
            Refusal::of(404, "ExternalGatewayForFloatingIPNotFound", message)
        })?;
        let is_taken = |it: &Row| {
            it.id != row.id && it.text("port_id") == port && it.text("fixed_ip_address") == inner.to_string()
        };
        if self.neutron.floating.iter().any(is_taken) {
            let message = format!(
                "Cannot associate floating IP {} ({}) with port {port} using fixed IP {inner}, as that fixed IP already \
                 has a floating IP on external network {network}.",
                row.text("floating_ip_address"),
                row.id
            );
            return Err(Refusal::of(409, "FloatingIPPortAlreadyAssociated", message));
        }
        row.set("port_id", port);
        row.set("fixed_ip_address", inner.to_string());
        row.set("router_id", router);
        Ok(())
    }

    /// The router between a subnet and an external network.
    fn way_out(&self, subnet: &str, network: &str) -> Option<String> {
        let leads = |router: &&Row| {
            router.fields["external_gateway_info"]["network_id"] == network
                && self
                    .interfaces(&router.id)
                    .iter()
                    .any(|port| texts(&port.fields["fixed_ips"], "subnet_id").contains(&subnet))
        };
        debug_assert!(self.neutron.subnets.row(subnet).and_then(net).is_some(), "{subnet} is a subnet");
        self.neutron.routers.iter().find(leads).map(|it| it.id.clone())
    }

    /// The network notices a moment later whether it carries traffic: one revision later than what was answered.
    fn follow(&mut self, id: &str) {
        if let Some(row) = self.neutron.floating.row_mut(id) {
            let status = if row.text("port_id").is_empty() { "DOWN" } else { "ACTIVE" };
            if row.text("status") != status {
                let revision = row.fields.get("revision_number").and_then(Value::as_i64).unwrap_or(0);
                row.set("revision_number", revision + 1);
            }
            row.set("status", status);
        }
    }
}
