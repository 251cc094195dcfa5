//! Routers: interfaces, gateways, routes.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{
    FLOATING, NETWORK, PORT, ROUTER, SUBNET,
    addresses::{net, pairs},
    forms::{bad, texts},
    missing,
    networks::owner,
    ports::INTERFACE,
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    python::python_str,
    state::State,
    store::{Fields, Row},
};

const GATEWAY: &str = "network:router_gateway";

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let mut fields = ROUTER.created(request)?;
    let project = owner(request, "router");
    state.has_room_for(&ROUTER, &project)?;
    let gateway = fields.insert("external_gateway_info".to_owned(), Value::Null).unwrap_or_default();
    let mut row = state.new_row(fields, &project);
    state.neutron.routers.put(row.clone());
    state.set_gateway(&mut row, &gateway)?;
    let id = row.id.clone();
    state.neutron.routers.put(row);
    state.told(201, &ROUTER, &id)
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let mut changes = ROUTER.changed(request)?;
    let mut row = state.to_change(&ROUTER, request)?;
    if let Some(gateway) = changes.remove("external_gateway_info") {
        state.set_gateway(&mut row, &gateway)?;
    }
    if let Some(routes) = changes.get("routes") {
        state.check_routes(&row, routes)?;
    }
    row.fields.extend(changes);
    state.keep(&ROUTER, row);
    state.told(200, &ROUTER, &request.at[0])
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    state.neutron.owned(&ROUTER, id, &request.caller)?;
    let interfaces: Vec<String> = state.interfaces(id).into_iter().map(|it| it.id.clone()).collect();
    if !interfaces.is_empty() {
        let message = format!("Router {id} has ports still attached: {}", interfaces.join(", "));
        return Err(Refusal::of(409, "RouterInUse", message));
    }
    state.drop_gateway(id);
    state.neutron.routers.remove(id);
    Ok(Reply::empty(204))
}

pub(super) fn add_interface(state: &mut State, request: &Request) -> Answer {
    let router = state.to_change(&ROUTER, request)?;
    let body = request.json().unwrap_or_default();
    let Some(subnet) = body["subnet_id"].as_str() else {
        if let Some(port) = body["port_id"].as_str() {
            return state.plug(&router, port);
        }
        return Err(bad_request("Either subnet_id or port_id must be specified."));
    };
    let subnet = state.neutron.visible_object(&SUBNET, subnet, &request.caller)?.clone();
    for port in state.interfaces(&router.id) {
        for (other, _) in pairs(&port.fields["fixed_ips"]) {
            let cidr = |it: &Row| net(it).map(|it| it.to_string()).unwrap_or_default();
            let theirs = state.neutron.subnets.row(&other).and_then(net);
            if theirs.zip(net(&subnet)).is_some_and(|(a, b)| a.contains(&b.addr()) || b.contains(&a.addr())) {
                let theirs = state.neutron.subnets.row(&other).map(cidr).unwrap_or_default();
                return Err(bad_request(format!(
                    "Cidr {} of subnet {} overlaps with cidr {theirs} of subnet {other}.",
                    cidr(&subnet),
                    subnet.id
                )));
            }
        }
    }
    let network = subnet.parent.clone().unwrap_or_default();
    let fixed = json!([{"subnet_id": subnet.id, "ip_address": subnet.fields["gateway_ip"]}]);
    let port = state.router_port(&router, &network, fixed, INTERFACE)?;
    Ok(Reply::json(200, joined(&router, &subnet, &port)))
}

pub(super) fn remove_interface(state: &mut State, request: &Request) -> Answer {
    let router = state.to_change(&ROUTER, request)?;
    let body = request.json().unwrap_or_default();
    let (subnet, port) = (body["subnet_id"].as_str(), body["port_id"].as_str());
    let is_meant = |it: &&&Row| {
        port.is_some_and(|port| it.id == port)
            || subnet.is_some_and(|subnet| texts(&it.fields["fixed_ips"], "subnet_id").contains(&subnet))
    };
    let interfaces = state.interfaces(&router.id);
    let found = interfaces.iter().find(is_meant).map(|it| (*it).clone());
    let port = found.ok_or_else(|| {
        let message =
            format!("Router {} has no interface on subnet {}", router.id, subnet.unwrap_or_default());
        Refusal::of(404, "RouterInterfaceNotFoundForSubnet", message)
    })?;
    let on =
        texts(&port.fields["fixed_ips"], "subnet_id").first().map(|it| (*it).to_owned()).unwrap_or_default();
    let subnet = state.neutron.subnets.row(&on).cloned().ok_or_else(|| missing(&SUBNET, &on))?;
    let needed = |kind: &'static str, what: &str| {
        let message = format!(
            "Router interface for subnet {on} on router {} cannot be deleted, as it is required by one or more {what}.",
            router.id
        );
        Refusal::of(409, kind, message)
    };
    let hops = texts(router.fields.get("routes").unwrap_or(&Value::Null), "nexthop");
    if hops.iter().any(|hop| holds(&subnet, hop)) {
        return Err(needed("RouterInterfaceInUseByRoute", "routes"));
    }
    let is_used = |it: &Row| it.text("router_id") == router.id && holds(&subnet, it.text("fixed_ip_address"));
    if state.neutron.table(&FLOATING).iter().any(is_used) {
        return Err(needed("RouterInterfaceInUseByFloatingIP", "floating IPs"));
    }
    state.remove_port(&port.id);
    Ok(Reply::json(200, joined(&router, &subnet, &port.id)))
}

pub(super) fn add_routes(state: &mut State, request: &Request) -> Answer {
    edit_routes(state, request, |routes, wanted| {
        for route in wanted {
            if !routes.contains(&route) {
                routes.push(route);
            }
        }
    })
}

pub(super) fn remove_routes(state: &mut State, request: &Request) -> Answer {
    edit_routes(state, request, |routes, wanted| routes.retain(|route| !wanted.contains(route)))
}

fn edit_routes(
    state: &mut State,
    request: &Request,
    edit: impl FnOnce(&mut Vec<Value>, Vec<Value>),
) -> Answer {
    let mut row = state.to_change(&ROUTER, request)?;
    let wanted = ROUTER.changed(request)?.remove("routes").unwrap_or_default();
    let mut routes = row.fields["routes"].as_array().cloned().unwrap_or_default();
    edit(&mut routes, wanted.as_array().cloned().unwrap_or_default());
    let routes = Value::from(routes);
    state.check_routes(&row, &routes)?;
    row.set("routes", routes);
    state.keep(&ROUTER, row);
    let row = state.neutron.routers.row(&request.at[0]).ok_or_else(|| missing(&ROUTER, &request.at[0]))?;
    Ok(Reply::one(200, ROUTER.one, super::showing::one(&state.neutron, &ROUTER, row)))
}

/// Whether an address belongs to a subnet.
fn holds(subnet: &Row, address: &str) -> bool {
    let address = address.parse::<IpAddr>().ok();
    net(subnet).zip(address).is_some_and(|(net, address)| net.contains(&address))
}

fn joined(router: &Row, subnet: &Row, port: &str) -> Value {
    json!({
        "id": router.id,
        "network_id": subnet.parent,
        "port_id": port,
        "project_id": router.project,
        "subnet_id": subnet.id,
        "subnet_ids": [subnet.id],
    })
}

impl State {
    fn router_port(
        &mut self,
        router: &Row,
        network: &str,
        fixed: Value,
        owner: &str,
    ) -> Result<String, Refusal> {
        let mut fields = Fields::new();
        for field in PORT.fields {
            fields.insert(field.name.to_owned(), Value::Null);
        }
        let settings = json!({
            "name": "", "network_id": network, "fixed_ips": fixed, "device_id": router.id, "device_owner": owner,
            "description": "", "admin_state_up": true, "allowed_address_pairs": [], "port_security_enabled": false,
            "binding:vnic_type": "normal", "extra_dhcp_opts": [], "ip_allocation": "immediate", "status": "ACTIVE",
        });
        fields.extend(settings.as_object().cloned().unwrap_or_default());
        // A gateway's port is nobody's, and counts for nobody.
        let project = if owner == GATEWAY { "" } else { &router.project };
        self.add_port(fields, network, project)
    }

    /// An interface by a port that is there already.
    fn plug(&mut self, router: &Row, port: &str) -> Answer {
        let row = self.neutron.ports.row(port).cloned().ok_or_else(|| missing(&PORT, port))?;
        // Be it the very router that asks.
        let (device, network) = (row.text("device_id"), row.text("network_id"));
        if !device.is_empty() {
            let message = format!(
                "Unable to complete operation on port {port} for network {network}. Port already has an attached device \
                 {device}."
            );
            return Err(Refusal::of(409, "PortInUse", message));
        }
        self.give_port(port, &router.id, INTERFACE, "ACTIVE");
        let on = texts(&row.fields["fixed_ips"], "subnet_id")
            .first()
            .map(|it| (*it).to_owned())
            .unwrap_or_default();
        let subnet = self.neutron.subnets.row(&on).cloned().ok_or_else(|| missing(&SUBNET, &on))?;
        Ok(Reply::json(200, joined(router, &subnet, port)))
    }

    fn set_gateway(&mut self, row: &mut Row, wanted: &Value) -> Result<(), Refusal> {
        let Some(network) = wanted["network_id"].as_str() else {
            let current =
                row.fields["external_gateway_info"]["network_id"].as_str().unwrap_or_default().to_owned();
            if self.neutron.table(&FLOATING).iter().any(|it| it.text("router_id") == row.id) {
                let message = format!(
                    "Gateway cannot be updated for router {}, since a gateway to external network {current} is required \
                     by one or more floating IPs.",
                    row.id
                );
                return Err(Refusal::of(409, "RouterExternalGatewayInUseByFloatingIp", message));
            }
            self.drop_gateway(&row.id);
            row.set("external_gateway_info", Value::Null);
            row.set("external_gateways", json!([]));
            return Ok(());
        };
        let found = self.neutron.networks.row(network).ok_or_else(|| missing(&NETWORK, network))?;
        if !found.is("router:external") {
            return Err(bad_request(format!("Network {network} is not an external network.")));
        }
        self.drop_gateway(&row.id);
        let port = self.router_port(row, network, Value::Null, GATEWAY)?;
        let fixed =
            self.neutron.ports.row(&port).map(|it| it.fields["fixed_ips"].clone()).unwrap_or_default();
        let info = json!({"network_id": network, "enable_snat": true, "external_fixed_ips": fixed});
        row.set("external_gateways", json!([{"network_id": network, "external_fixed_ips": fixed}]));
        row.set("external_gateway_info", info);
        Ok(())
    }

    fn drop_gateway(&mut self, router: &str) {
        let is_its = |it: &&Row| it.text("device_id") == router && it.text("device_owner") == GATEWAY;
        let ports: Vec<String> = self.neutron.ports.iter().filter(is_its).map(|it| it.id.clone()).collect();
        for port in ports {
            self.remove_port(&port);
        }
    }

    fn check_routes(&self, router: &Row, routes: &Value) -> Result<(), Refusal> {
        let most = self.neutron.limits.routes;
        if routes.as_array().is_some_and(|it| it.len() > most) {
            let message = format!(
                "Unable to complete operation for {}. The number of routes exceeds the maximum {most}.",
                router.id
            );
            return Err(Refusal::of(400, "RoutesExhausted", message));
        }
        let mut nets = Vec::new();
        for port in self.interfaces(&router.id) {
            nets.extend(
                pairs(&port.fields["fixed_ips"])
                    .into_iter()
                    .filter_map(|(id, _)| self.neutron.subnets.row(&id)),
            );
        }
        let reaches = |hop: &&str| nets.iter().any(|subnet| holds(subnet, hop));
        if texts(routes, "nexthop").iter().all(reaches) {
            return Ok(());
        }
        let message = format!(
            "Invalid format for routes: {}, the nexthop is not connected with router",
            python_str(routes)
        );
        Err(Refusal::of(400, "InvalidRoutes", message))
    }
}

fn bad_request(message: impl std::fmt::Display) -> Refusal {
    Refusal { kind: "BadRequest", ..bad(format!("Bad router request: {message}")) }
}
