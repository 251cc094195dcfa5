//! Ports, made by users and by the services that need them.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{
    FLOATING, GROUP, NETWORK, PORT, ROUTER,
    addresses::{AddressRequest, pairs},
    missing,
    networks::owner,
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::{Fields, Row},
};

/// A port that another service wants.
#[derive(Debug, Default)]
pub(in crate::cloud) struct Wanted {
    pub(in crate::cloud) network: String,
    pub(in crate::cloud) subnet: Option<String>,
    pub(in crate::cloud) address: Option<String>,
    pub(in crate::cloud) project: String,
    pub(in crate::cloud) name: String,
    pub(in crate::cloud) device: String,
    pub(in crate::cloud) device_owner: String,
}

/// What it got.
#[derive(Debug)]
pub(in crate::cloud) struct Made {
    pub(in crate::cloud) port: String,
    pub(in crate::cloud) address: String,
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let fields = PORT.created(request)?;
    let project = owner(request, "port");
    let network = fields["network_id"].as_str().unwrap_or_default().to_owned();
    state.neutron.visible_object(&NETWORK, &network, &request.caller)?;
    let id = state.add_port(fields, &network, &project)?;
    state.told(201, &PORT, &id)
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let mut changes = PORT.changed(request)?;
    let mut row = state.to_change(&PORT, request)?;
    let network = row.text("network_id").to_owned();
    if let Some(wanted) = changes.remove("fixed_ips") {
        let chosen = state.neutron.choose(&network, &asked(&wanted), &row.id)?;
        let before = row.fields.get("fixed_ips").cloned().unwrap_or_default();
        state.neutron.free_all_of(&row.id, &before);
        row.set("fixed_ips", state.take_all(&chosen, &row.id));
    }
    row.fields.extend(changes);
    state.check_groups(&row.fields)?;
    complete_pairs(&mut row, state.neutron.limits.pairs)?;
    state.keep(&PORT, row);
    state.told(200, &PORT, &request.at[0])
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let row = state.neutron.owned(&PORT, id, &request.caller)?;
    let device_owner = row.text("device_owner");
    if device_owner.starts_with("network:router") {
        let message = format!(
            "Port {id} cannot be deleted directly via the port API: has device owner {device_owner}."
        );
        return Err(Refusal::of(409, "ServicePortInUse", message));
    }
    state.remove_port(id);
    Ok(Reply::empty(204))
}

impl State {
    /// For Octavia and Nova, who ask in the name of the project.
    pub(in crate::cloud) fn make_port(&mut self, wanted: Wanted) -> Result<Made, Refusal> {
        let fixed = match (&wanted.subnet, &wanted.address) {
            (None, None) => Value::Null,
            (subnet, address) => json!([{"subnet_id": subnet, "ip_address": address}]),
        };
        let mut fields = Fields::new();
        for field in PORT.fields {
            fields.insert(field.name.to_owned(), Value::Null);
        }
        let settings = json!({
            "name": wanted.name, "network_id": wanted.network, "fixed_ips": fixed, "device_id": wanted.device,
            "device_owner": wanted.device_owner, "description": "", "admin_state_up": true,
            "allowed_address_pairs": [], "port_security_enabled": true, "binding:vnic_type": "normal",
            "extra_dhcp_opts": [], "ip_allocation": "immediate", "status": "DOWN",
        });
        fields.extend(settings.as_object().cloned().unwrap_or_default());
        let port = self.add_port(fields, &wanted.network, &wanted.project)?;
        let fixed = self.neutron.ports.row(&port).and_then(|it| it.fields.get("fixed_ips")).cloned();
        let (_, address) =
            pairs(&fixed.unwrap_or_default()).into_iter().next().ok_or_else(|| missing(&PORT, &port))?;
        Ok(Made { port, address: address.to_string() })
    }

    pub(super) fn add_port(
        &mut self,
        mut fields: Fields,
        network: &str,
        project: &str,
    ) -> Result<String, Refusal> {
        if self.neutron.networks.row(network).is_none() {
            return Err(missing(&NETWORK, network));
        }
        let group = self.default_group(project);
        if fields.get("security_groups").is_none_or(Value::is_null) {
            let secured = fields.get("port_security_enabled") == Some(&Value::Bool(true));
            let is_router = fields["device_owner"].as_str().is_some_and(|it| it.starts_with("network:"));
            let groups = if secured && !is_router { json!([group]) } else { json!([]) };
            fields.insert("security_groups".to_owned(), groups);
        }
        self.check_groups(&fields)?;
        let chosen = self.neutron.choose(network, &asked(&fields["fixed_ips"]), "")?;
        self.has_room_for(&PORT, project)?;
        if fields["mac_address"].is_null() {
            fields.insert("mac_address".to_owned(), self.ids.mac().into());
        }
        let mut row = self.new_row(fields, project);
        row.parent = Some(network.to_owned());
        row.set("fixed_ips", self.take_all(&chosen, &row.id));
        complete_pairs(&mut row, self.neutron.limits.pairs)?;
        let id = row.id.clone();
        self.neutron.ports.put(row);
        Ok(id)
    }

    /// With what hangs on it: floating IPs let go.
    pub(in crate::cloud) fn remove_port(&mut self, id: &str) {
        let Some(row) = self.neutron.ports.remove(id) else { return };
        let fixed = row.fields.get("fixed_ips").cloned().unwrap_or_default();
        self.neutron.free_all_of(id, &fixed);
        let hanging: Vec<Row> =
            self.neutron.table(&FLOATING).iter().filter(|it| it.text("port_id") == id).cloned().collect();
        for mut floating in hanging {
            for name in ["port_id", "fixed_ip_address", "router_id"] {
                floating.set(name, Value::Null);
            }
            self.keep(&FLOATING, floating);
        }
    }

    pub(super) fn take_all(&mut self, chosen: &[(String, IpAddr)], owner: &str) -> Value {
        for (subnet, address) in chosen {
            self.neutron.take(subnet, *address, owner);
        }
        chosen.iter().map(|(subnet, address)| json!({"subnet_id": subnet, "ip_address": address})).collect()
    }

    fn check_groups(&self, fields: &Fields) -> Result<(), Refusal> {
        let groups = fields.get("security_groups").and_then(Value::as_array).into_iter().flatten();
        for group in groups.filter_map(Value::as_str) {
            if self.neutron.table(&GROUP).row(group).is_none() {
                return Err(missing(&GROUP, group));
            }
        }
        Ok(())
    }

    /// For Nova: who uses the port now.
    pub(in crate::cloud) fn give_port(&mut self, id: &str, device: &str, device_owner: &str, status: &str) {
        if let Some(mut row) = self.neutron.ports.row(id).cloned() {
            row.set("device_id", device);
            row.set("device_owner", device_owner);
            row.set("status", status);
            self.keep(&PORT, row);
        }
    }

    /// The name of the router that has an interface there, and its port.
    pub(super) fn interfaces(&self, router: &str) -> Vec<&Row> {
        let is_its = |it: &&Row| it.text("device_id") == router && it.text("device_owner") == INTERFACE;
        debug_assert!(self.neutron.table(&ROUTER).row(router).is_some(), "{router} is a router");
        self.neutron.ports.iter().filter(is_its).collect()
    }
}

pub(super) const INTERFACE: &str = "network:router_interface";

fn asked(fixed: &Value) -> Vec<AddressRequest> {
    let asked = |it: &Value| AddressRequest {
        subnet: it["subnet_id"].as_str().map(str::to_owned),
        address: it["ip_address"].as_str().and_then(|it| it.parse().ok()),
    };
    fixed.as_array().into_iter().flatten().map(asked).collect()
}

/// A pair without a MAC has the port's.
fn complete_pairs(row: &mut Row, most: usize) -> Result<(), Refusal> {
    let mac = row.text("mac_address").to_owned();
    let mut pairs = row.fields.get("allowed_address_pairs").cloned().unwrap_or_default();
    let Some(all) = pairs.as_array_mut().filter(|it| !it.is_empty()) else { return Ok(()) };
    if !row.is("port_security_enabled") {
        let message = "Port Security must be enabled in order to have allowed address pairs on a port.";
        return Err(Refusal::of(409, "AddressPairAndPortSecurityRequired", message));
    }
    if all.len() > most {
        let message = format!("The number of allowed address pair exceeds the maximum {most}.");
        return Err(Refusal::of(400, "AllowedAddressPairExhausted", message));
    }
    for pair in all {
        if pair.get("mac_address").is_none() {
            pair["mac_address"] = json!(mac);
        }
    }
    row.set("allowed_address_pairs", pairs);
    Ok(())
}
