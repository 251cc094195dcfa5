//! Servers, from BUILD to their end.

use serde_json::{Value, json};

use super::{check_version, forbidden, offer, showing};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    neutron::{NETWORK, PORT, Wanted},
    python::python_str,
    state::State,
    store::{Fields, Row},
};

/// What a new server may have.
const KNOWN: [&str; 16] = [
    "name",
    "flavorRef",
    "imageRef",
    "networks",
    "metadata",
    "key_name",
    "user_data",
    "security_groups",
    "availability_zone",
    "config_drive",
    "min_count",
    "max_count",
    "personality",
    "block_device_mapping_v2",
    "OS-DCF:diskConfig",
    "os:scheduler_hints",
];
const OWNER: &str = "compute:nova";

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    listed(state, request, "index", showing::brief)
}

pub(super) fn detail(state: &mut State, request: &Request) -> Answer {
    listed(state, request, "detail", showing::whole)
}

fn listed(state: &mut State, request: &Request, action: &str, told: fn(&State, &Row) -> Value) -> Answer {
    check_version(request)?;
    if request.caller.project.is_empty() {
        return Err(forbidden(&format!("os_compute_api:servers:{action}")));
    }
    let limit = match request.param("limit") {
        None => None,
        Some(text) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
            text.parse::<usize>().ok()
        }
        Some(text) => {
            return Err(Refusal::new(
                400,
                format!(
                    "Invalid input for query parameters limit. Value: {text}. '{text}' does not match '^[0-9]*$'"
                ),
            ));
        }
    };
    let mut rows: Vec<&Row> = if request.caller.is_admin() && request.param("all_tenants").is_some() {
        state.nova.servers.iter().collect()
    } else {
        state.nova.servers.of_project(&request.caller.project).collect()
    };
    // Newest first.
    rows.reverse();
    rows.retain(|row| is_wanted(row, request));
    if let Some(marker) = request.param("marker") {
        let at = rows.iter().position(|it| it.id == marker);
        let at = at.ok_or_else(|| Refusal::new(400, format!("marker [{marker}] not found")))?;
        rows.drain(..=at);
    }
    let is_full = limit.is_some_and(|limit| rows.len() >= limit);
    rows.truncate(limit.unwrap_or(1000));
    let mut body = Fields::new();
    if let (Some(limit), Some(last)) = (limit, rows.last().filter(|_| is_full)) {
        let href = format!("{}{}?limit={limit}&marker={}", state.base, request.path, last.id);
        body.insert("servers_links".to_owned(), json!([{"rel": "next", "href": href}]));
    }
    let shown: Vec<Value> = rows.into_iter().map(|row| told(state, row)).collect();
    body.insert("servers".to_owned(), shown.into());
    Ok(Reply::json(200, body.into()))
}

fn is_wanted(row: &Row, request: &Request) -> bool {
    request.query.iter().all(|(name, wanted)| match name.as_str() {
        "name" => has_name(row.text("name"), wanted),
        "status" => row.text("status").eq_ignore_ascii_case(wanted),
        _ => true,
    })
}

/// A name is looked for by a regular expression; of those, the ends alone are understood here, and what is meant as it stands.
fn has_name(name: &str, wanted: &str) -> bool {
    let (start, end) = (wanted.starts_with('^'), wanted.ends_with('$'));
    let text = wanted.trim_start_matches('^').trim_end_matches('$').replace('\\', "");
    match (start, end) {
        (true, true) => name == text,
        (true, false) => name.starts_with(&text),
        (false, true) => name.ends_with(&text),
        (false, false) => name.contains(&text),
    }
}

pub(super) fn show(state: &mut State, request: &Request) -> Answer {
    check_version(request)?;
    let id = &request.at[0];
    let row = state.server(id, request)?;
    let body = showing::whole(state, row);
    state.server_looked(id);
    Ok(Reply::one(200, "server", body))
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    check_version(request)?;
    let body = request.json().unwrap_or_default();
    let wanted = body["server"].as_object().cloned().unwrap_or_default();
    let bad = |message: String| Err(Refusal::new(400, message));
    let invalid = |what: String| {
        bad(format!(
            "Invalid input for field/attribute server. Value: {}. {what}",
            python_str(&body["server"])
        ))
    };
    if let Some(name) = wanted.keys().find(|it| !KNOWN.contains(&it.as_str())) {
        return invalid(format!("Additional properties are not allowed ('{name}' was unexpected)"));
    }
    if let Some(name) = ["name", "flavorRef"].iter().find(|it| !wanted.contains_key(**it)) {
        return invalid(format!("'{name}' is a required property"));
    }
    let flavor = python_str(&wanted["flavorRef"]);
    if !offer::has_flavor(&flavor) {
        return bad(format!("Flavor {flavor} could not be found."));
    }
    if !wanted.get("imageRef").and_then(Value::as_str).is_some_and(offer::has_image) {
        return bad("Can not find requested image".to_owned());
    }
    let project = request.caller.project.clone();
    check_networks(state, request, wanted.get("networks"))?;
    let (used, most) = (state.nova.servers.count_of_project(&project), state.most_instances(&project));
    if usize::try_from(most).is_ok_and(|most| used >= most) {
        let message =
            format!("Quota exceeded for instances: Requested 1, but already used {used} of {most} instances");
        return Err(Refusal::new(403, message));
    }
    let id = state.ids.uuid();
    let mut row = Row {
        id: id.clone(),
        project: project.clone(),
        created: state.now.zulu(),
        fields: wanted,
        ..Row::default()
    };
    row.set("status", "BUILD");
    row.set("user_id", request.caller.user.clone());
    row.set("flavor", flavor);
    plug(state, &row, &project)?;
    state.nova.servers.put(row);
    state.server_began(&id);
    let links = showing::links(state, &id);
    let server = json!({
        "id": id,
        "links": links,
        "OS-DCF:diskConfig": "MANUAL",
        "adminPass": "secret",
        "security_groups": [{"name": "default"}],
    });
    Ok(Reply::one(202, "server", server))
}

fn check_networks(state: &State, request: &Request, networks: Option<&Value>) -> Result<(), Refusal> {
    for wish in networks.and_then(Value::as_array).into_iter().flatten() {
        if let Some(port) = wish["port"].as_str() {
            let row = state.neutron.visible_object(&PORT, port, &request.caller);
            let row = row.map_err(|_| Refusal::new(400, format!("Port id {port} could not be found.")))?;
            if !row.text("device_id").is_empty() {
                return Err(Refusal::new(409, format!("Port {port} is still in use.")));
            }
        } else if let Some(network) = wish["uuid"].as_str() {
            let found = state.neutron.visible_object(&NETWORK, network, &request.caller);
            found.map_err(|_| Refusal::new(400, format!("Network {network} could not be found.")))?;
        }
    }
    Ok(())
}

fn plug(state: &mut State, server: &Row, project: &str) -> Result<(), Refusal> {
    let networks = server.fields.get("networks").and_then(Value::as_array).cloned().unwrap_or_default();
    for wish in networks {
        if let Some(port) = wish["port"].as_str() {
            state.give_port(port, &server.id, OWNER, "ACTIVE");
        } else if let Some(network) = wish["uuid"].as_str() {
            let wanted = Wanted {
                network: network.to_owned(),
                address: wish["fixed_ip"].as_str().map(str::to_owned),
                project: project.to_owned(),
                device: server.id.clone(),
                device_owner: OWNER.to_owned(),
                ..Wanted::default()
            };
            let made = state.make_port(wanted).map_err(|it| Refusal::new(400, it.message))?;
            state.give_port(&made.port, &server.id, OWNER, "ACTIVE");
        }
    }
    Ok(())
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    state.server(id, request)?;
    let body = request.json().unwrap_or_default();
    if let (Some(name), Some(row)) = (body["server"]["name"].as_str(), state.nova.servers.row_mut(id)) {
        row.set("name", name);
    }
    show(state, request)
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    state.server(id, request)?;
    if let Some(row) = state.nova.servers.row_mut(id) {
        row.set("task_state", "deleting");
    }
    state.server_began(id);
    Ok(Reply::empty(204))
}

impl State {
    pub(super) fn server(&self, id: &str, request: &Request) -> Result<&Row, Refusal> {
        let caller = &request.caller;
        let found = self.nova.servers.row(id).filter(|it| caller.is_admin() || it.project == caller.project);
        found.ok_or_else(|| Refusal::new(404, format!("Instance {id} could not be found.")))
    }

    pub(super) fn finish_server(&mut self, id: &str) {
        let Some(row) = self.nova.servers.row_mut(id) else { return };
        if row.text("task_state") != "deleting" {
            row.set("status", "ACTIVE");
            return;
        }
        self.nova.servers.remove(id);
        let is_its = |it: &&Row| it.text("device_id") == id;
        let ports: Vec<(String, bool)> = self
            .neutron
            .ports
            .iter()
            .filter(is_its)
            .map(|it| (it.id.clone(), it.text("name").is_empty()))
            .collect();
        for (port, of_nova) in ports {
            if of_nova {
                self.remove_port(&port);
            } else {
                self.give_port(&port, "", "", "DOWN");
            }
        }
    }
}
