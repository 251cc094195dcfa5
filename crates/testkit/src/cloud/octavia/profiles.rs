//! What operators make flavors of.

use serde_json::{Value, json};

use super::{forbidden, is_operator, not_found, providers::Provider};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::{Row, text},
};

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let fields = wanted(request, "flavorprofile")?;
    Provider::named(text(&fields, "provider_name"))?;
    let mut row = Row { id: state.ids.uuid(), created: state.now.bare(), ..Row::default() };
    for field in ["name", "provider_name", "flavor_data"] {
        row.set(field, text(&fields, field));
    }
    let told = profile_of(&row);
    state.octavia.profiles.put(row);
    Ok(Reply::one(201, "flavorprofile", told))
}

pub(super) fn show(state: &mut State, request: &Request) -> Answer {
    only_operators(request)?;
    let row = state.octavia.profiles.row(&request.at[0]);
    let row = row.ok_or_else(|| not_found("Flavor profile", &request.at[0]))?;
    Ok(Reply::one(200, "flavorprofile", profile_of(row)))
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    only_operators(request)?;
    let id = &request.at[0];
    if state.octavia.flavors.iter().any(|it| it.text("flavor_profile_id") == id) {
        return Err(Refusal::new(409, format!("Flavor profile {id} is in use and cannot be modified.")));
    }
    state.octavia.profiles.remove(id).ok_or_else(|| not_found("Flavor profile", id))?;
    Ok(Reply::empty(204))
}

pub(super) fn create_flavor(state: &mut State, request: &Request) -> Answer {
    let fields = wanted(request, "flavor")?;
    let profile = text(&fields, "flavor_profile_id");
    let provider = state.octavia.profiles.row(profile).map(|it| it.text("provider_name").to_owned());
    let provider = provider.ok_or_else(|| super::invalid("Invalid flavor_profile_id."))?;
    let id = state.add_flavor(text(&fields, "name"), &provider);
    if let Some(row) = state.octavia.flavors.row_mut(&id) {
        row.set("description", text(&fields, "description"));
        row.set("flavor_profile_id", profile);
    }
    let row = state.octavia.flavors.row(&id).ok_or_else(|| not_found("Flavor", &id))?;
    Ok(Reply::one(201, "flavor", super::offer::flavor_of(row)))
}

pub(super) fn delete_flavor(state: &mut State, request: &Request) -> Answer {
    only_operators(request)?;
    let id = &request.at[0];
    if state.octavia.balancers.iter().any(|it| it.text("flavor_id") == id) {
        return Err(Refusal::new(409, format!("Flavor {id} is in use and cannot be modified.")));
    }
    state.octavia.flavors.remove(id).ok_or_else(|| not_found("Flavor", id))?;
    Ok(Reply::empty(204))
}

fn only_operators(request: &Request) -> Result<(), Refusal> {
    if is_operator(&request.caller) { Ok(()) } else { Err(forbidden()) }
}

fn wanted(request: &Request, what: &str) -> Result<crate::cloud::store::Fields, Refusal> {
    only_operators(request)?;
    let body = request.json().and_then(|mut it| it.get_mut(what).map(Value::take));
    body.and_then(|it| it.as_object().cloned()).ok_or_else(|| super::invalid(format!("{what} is missing")))
}

fn profile_of(row: &Row) -> Value {
    json!({
        "id": row.id,
        "name": row.text("name"),
        "provider_name": row.text("provider_name"),
        "flavor_data": row.text("flavor_data"),
    })
}
