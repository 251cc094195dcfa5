//! Containers: several secrets for one purpose.

use serde_json::{Value, json};

use super::{does_not_match, found, listed, made};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::{Fields, Row, text},
};

const TYPES: [&str; 3] = ["generic", "rsa", "certificate"];

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    let wanted = |it: &&Row| {
        ["name", "type"].iter().all(|name| request.param(name).is_none_or(|wanted| it.text(name) == wanted))
    };
    let rows: Vec<Value> = state
        .barbican
        .containers
        .of_project(&request.caller.project)
        .filter(wanted)
        .map(|it| told(state, it))
        .collect();
    Ok(listed(state, request, "containers", rows))
}

pub(super) fn show(state: &mut State, request: &Request) -> Answer {
    let row = found(&state.barbican.containers, request, "Secrets container")?;
    Ok(Reply::json(200, told(state, row)))
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let fields: Fields = request.json().unwrap_or_default().as_object().cloned().unwrap_or_default();
    let kind = text(&fields, "type").to_owned();
    if !TYPES.contains(&kind.as_str()) {
        return Err(does_not_match(
            "Container",
            &format!("'{kind}' is not one of ['generic', 'rsa', 'certificate']"),
            "type",
        ));
    }
    let refs = fields.get("secret_refs").and_then(Value::as_array).cloned().unwrap_or_default();
    if kind == "certificate" && !refs.iter().any(|it| it["name"] == "certificate") {
        let why = "The minimum required reference name is 'certificate' for Certificate type";
        return Err(does_not_match("Container", why, "secret_refs"));
    }
    let is_known =
        |it: &Value| it["secret_ref"].as_str().is_some_and(|it| state.barbican.has(&state.base, it));
    if !refs.iter().all(is_known) {
        return Err(Refusal::new(400, "Provided field value is not supported"));
    }
    let row = made(state, request, fields);
    let id = row.id.clone();
    state.barbican.containers.put(row);
    Ok(Reply::json(201, json!({ "container_ref": address(state, &id) })))
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = found(&state.barbican.containers, request, "Secrets container")?.id.clone();
    state.barbican.containers.remove(&id);
    Ok(Reply::empty(204))
}

fn address(state: &State, id: &str) -> String {
    format!("{}/key-manager/v1/containers/{id}", state.base)
}

fn told(state: &State, row: &Row) -> Value {
    // What is deleted leaves.
    let refs = row.fields.get("secret_refs").and_then(Value::as_array).into_iter().flatten();
    let is_there =
        |it: &&Value| it["secret_ref"].as_str().is_some_and(|it| state.barbican.has(&state.base, it));
    let refs: Vec<&Value> = refs.filter(is_there).collect();
    json!({
        "name": row.fields.get("name"),
        "type": row.text("type"),
        "status": "ACTIVE",
        "created": row.created,
        "updated": row.created,
        "creator_id": row.text("creator_id"),
        "consumers": [],
        "container_ref": address(state, &row.id),
        "secret_refs": refs,
    })
}
