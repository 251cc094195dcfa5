//! What the cloud offers: providers, flavors, availability zones.

use serde_json::{Value, json};

use super::{
    forbidden, is_operator, not_found,
    providers::{ALL, Provider},
};
use crate::cloud::{
    exchange::{Answer, Reply, Request},
    state::State,
    store::{Row, Table},
};

/// Metadata that flavors of amphorae may have.
const CAPABILITIES: [(&str, &str); 3] = [
    (
        "loadbalancer_topology",
        "The load balancer topology. One of: SINGLE - One amphora per load balancer. ACTIVE_STANDBY - Two amphora per load balancer.",
    ),
    ("compute_flavor", "The compute driver flavor ID."),
    ("amp_image_tag", "The amphora image tag."),
];

pub(super) fn providers(_: &mut State, _: &Request) -> Answer {
    let all: Vec<Value> =
        ALL.iter().map(|(_, name, description)| json!({"name": name, "description": description})).collect();
    Ok(Reply::json(200, json!({ "providers": all })))
}

pub(super) fn flavor_capabilities(state: &mut State, request: &Request) -> Answer {
    capabilities(state, request, "flavor_capabilities", "flavor")
}

pub(super) fn zone_capabilities(state: &mut State, request: &Request) -> Answer {
    capabilities(state, request, "availability_zone_capabilities", "availability zone")
}

fn capabilities(_: &mut State, request: &Request, many: &str, what: &str) -> Answer {
    if !is_operator(&request.caller) {
        return Err(forbidden());
    }
    let provider = Provider::named(&request.at[0])?;
    if provider != Provider::Amphora {
        return Err(provider
            .no_action(&format!("This provider does not support getting the supported {what} metadata.")));
    }
    let all: Vec<Value> = CAPABILITIES
        .iter()
        .map(|(name, description)| json!({"name": name, "description": description}))
        .collect();
    Ok(Reply::json(200, json!({ many: all })))
}

pub(super) fn flavors(state: &mut State, request: &Request) -> Answer {
    Ok(all(&state.octavia.flavors, "flavors", request.param("name"), flavor_of))
}

pub(super) fn flavor(state: &mut State, request: &Request) -> Answer {
    let row = state.octavia.flavors.row(&request.at[0]).ok_or_else(|| not_found("Flavor", &request.at[0]))?;
    Ok(Reply::one(200, "flavor", flavor_of(row)))
}

pub(super) fn zones(state: &mut State, request: &Request) -> Answer {
    Ok(all(&state.octavia.zones, "availability_zones", request.param("name"), zone_of))
}

pub(super) fn zone(state: &mut State, request: &Request) -> Answer {
    let row = state.octavia.zones.row(&request.at[0]);
    let row = row.ok_or_else(|| not_found("Availability Zone", &request.at[0]))?;
    Ok(Reply::one(200, "availability_zone", zone_of(row)))
}

fn all(table: &Table, many: &str, name: Option<&str>, told: fn(&Row) -> Value) -> Reply {
    let rows = table.iter().map(told).filter(|row| name.is_none_or(|it| row["name"] == it));
    let rows: Vec<Value> = rows.collect();
    Reply::json(200, json!({ many: rows, format!("{many}_links"): [] }))
}

pub(super) fn flavor_of(row: &Row) -> Value {
    json!({
        "id": row.id,
        "name": row.text("name"),
        "description": row.text("description"),
        "enabled": row.is("enabled"),
        "flavor_profile_id": row.fields.get("flavor_profile_id"),
    })
}

fn zone_of(row: &Row) -> Value {
    json!({
        "name": row.id,
        "description": row.text("description"),
        "enabled": row.is("enabled"),
        "availability_zone_profile_id": row.fields.get("availability_zone_profile_id"),
    })
}

impl State {
    pub(in crate::cloud) fn add_flavor(&mut self, name: &str, provider: &str) -> String {
        let mut row = Row { id: self.ids.uuid(), created: self.now.bare(), ..Row::default() };
        for (field, value) in [("name", name), ("description", ""), ("provider", provider)] {
            row.set(field, value);
        }
        row.set("enabled", true);
        row.set("flavor_profile_id", self.ids.uuid());
        let id = row.id.clone();
        self.octavia.flavors.put(row);
        id
    }

    pub(in crate::cloud) fn add_zone(&mut self, name: &str) {
        let mut row = Row { id: name.to_owned(), created: self.now.bare(), ..Row::default() };
        row.set("description", "");
        row.set("enabled", true);
        row.set("availability_zone_profile_id", self.ids.uuid());
        self.octavia.zones.put(row);
    }
}
