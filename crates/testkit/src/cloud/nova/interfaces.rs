//! Ports of a server.

use serde_json::{Value, json};

use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    neutron::{NETWORK, PORT, Wanted},
    state::State,
    store::Row,
};

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    state.server(id, request)?;
    let all: Vec<Value> = state.plugged(id).map(told).collect();
    Ok(Reply::json(200, json!({ "interfaceAttachments": all })))
}

pub(super) fn show(state: &mut State, request: &Request) -> Answer {
    let (id, port) = (&request.at[0], &request.at[1]);
    state.server(id, request)?;
    let found = state.plugged(id).find(|it| it.id == *port).map(told);
    let found = found
        .ok_or_else(|| Refusal::new(404, format!("Instance {id} does not have a port with id {port}")))?;
    Ok(Reply::one(200, "interfaceAttachment", found))
}

pub(super) fn attach(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let project = state.server(id, request)?.project.clone();
    let wish = request.json().unwrap_or_default()["interfaceAttachment"].take();
    let port = match (wish["port_id"].as_str(), wish["net_id"].as_str()) {
        (Some(port), _) => {
            let row = state.neutron.visible_object(&PORT, port, &request.caller);
            let row = row.map_err(|_| Refusal::new(404, format!("Port id {port} could not be found.")))?;
            if !row.text("device_id").is_empty() {
                return Err(Refusal::new(409, format!("Port {port} is still in use.")));
            }
            port.to_owned()
        }
        (None, Some(network)) => {
            let found = state.neutron.visible_object(&NETWORK, network, &request.caller);
            found.map_err(|_| Refusal::new(404, format!("Network {network} could not be found.")))?;
            let address = wish["fixed_ips"][0]["ip_address"].as_str().map(str::to_owned);
            let wanted = Wanted { network: network.to_owned(), address, project, ..Wanted::default() };
            state.make_port(wanted).map_err(|it| Refusal::new(400, it.message))?.port
        }
        (None, None) => return Err(Refusal::new(400, "No port or network is given.")),
    };
    state.give_port(&port, id, "compute:nova", "ACTIVE");
    let told = state.neutron.ports.row(&port).map(told).unwrap_or_default();
    Ok(Reply::one(200, "interfaceAttachment", told))
}

pub(super) fn detach(state: &mut State, request: &Request) -> Answer {
    let (id, port) = (&request.at[0], &request.at[1]);
    state.server(id, request)?;
    if !state.plugged(id).any(|it| it.id == *port) {
        return Err(Refusal::new(404, format!("Instance {id} does not have a port with id {port}")));
    }
    state.give_port(port, "", "", "DOWN");
    Ok(Reply::empty(202))
}

fn told(port: &Row) -> Value {
    json!({
        "port_id": port.id,
        "net_id": port.fields["network_id"],
        "mac_addr": port.fields["mac_address"],
        "port_state": port.fields["status"],
        "fixed_ips": port.fields["fixed_ips"],
    })
}

impl State {
    pub(super) fn plugged<'s>(&'s self, server: &'s str) -> impl Iterator<Item = &'s Row> {
        self.neutron.ports.iter().filter(move |it| it.text("device_id") == server)
    }
}
