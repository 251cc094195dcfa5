//! Secrets.

use serde_json::{Value, json};

use super::{does_not_match, found, listed, made};
use crate::cloud::{
    clock::FakeTime,
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::{Fields, Row, text},
};

const TOLD: [&str; 6] = ["name", "secret_type", "expiration", "algorithm", "bit_length", "mode"];

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    let wanted = request.param("name");
    let rows = state.barbican.secrets.of_project(&request.caller.project);
    let mut rows: Vec<&Row> = rows.filter(|it| wanted.is_none_or(|name| it.text("name") == name)).collect();
    if request.param("sort") == Some("name") {
        rows.sort_by_key(|it| it.text("name").to_owned());
    }
    let rows: Vec<Value> = rows.into_iter().map(|it| told(state, it)).collect();
    Ok(listed(state, request, "secrets", rows))
}

pub(super) fn show(state: &mut State, request: &Request) -> Answer {
    let row = found(&state.barbican.secrets, request, "Secret")?;
    Ok(Reply::json(200, told(state, row)))
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let fields: Fields = request.json().unwrap_or_default().as_object().cloned().unwrap_or_default();
    let payload = fields.get("payload").filter(|it| !it.is_null());
    if payload.is_some_and(|it| it == "") {
        return Err(does_not_match("Secret", "If 'payload' specified, must be non empty", "payload"));
    }
    if payload.is_some() && text(&fields, "payload_content_type").is_empty() {
        let why = "If 'payload' is supplied, 'payload_content_type' must also be supplied.";
        return Err(does_not_match("Secret", why, "payload_content_type"));
    }
    if FakeTime::parsed(text(&fields, "expiration")).is_some_and(|it| it <= state.now) {
        return Err(does_not_match("Secret", "'expiration' is before current time", "expiration"));
    }
    let row = made(state, request, fields);
    let id = row.id.clone();
    state.barbican.secrets.put(row);
    Ok(Reply::json(201, json!({ "secret_ref": address(state, &id) })))
}

/// The second of two steps: the payload of a secret that was made without one.
pub(super) fn fill(state: &mut State, request: &Request) -> Answer {
    let row = found(&state.barbican.secrets, request, "Secret")?;
    if !row.text("payload").is_empty() {
        return Err(Refusal::new(409, "Secret already has data, cannot modify it."));
    }
    let id = row.id.clone();
    let content = request.header("content-type").unwrap_or("text/plain").to_owned();
    let payload = String::from_utf8_lossy(&request.body).into_owned();
    if let Some(row) = state.barbican.secrets.row_mut(&id) {
        row.set("payload", payload);
        row.set("payload_content_type", content);
    }
    Ok(Reply::empty(204))
}

pub(super) fn payload(state: &mut State, request: &Request) -> Answer {
    let row = found(&state.barbican.secrets, request, "Secret")?;
    let payload = row.text("payload");
    if payload.is_empty() {
        return Err(Refusal::new(404, "Not Found. Sorry but your secret has no payload."));
    }
    let content = row.text("payload_content_type");
    let accepted = request.header("accept").unwrap_or("*/*");
    if !accepted.contains(content.split(';').next().unwrap_or_default()) && !accepted.contains("*/*") {
        return Err(Refusal::new(406, "Secret payload retrieval issue seen - Wrong payload content-type."));
    }
    if content.starts_with("text/") {
        return Ok(Reply::raw(200, payload, "text/plain; charset=utf-8"));
    }
    Ok(Reply::raw(200, from_base64(payload), "application/octet-stream"))
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = found(&state.barbican.secrets, request, "Secret")?.id.clone();
    state.barbican.secrets.remove(&id);
    Ok(Reply::empty(204))
}

pub(super) fn address(state: &State, id: &str) -> String {
    format!("{}/key-manager/v1/secrets/{id}", state.base)
}

/// Whatever is no digit is passed over.
fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter_map(|b| DIGITS.iter().position(|digit| *digit == b));
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0, 0);
    for digit in digits {
        held = held << 6 | digit;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.extend(u8::try_from(held >> bits & 255));
        }
    }
    bytes
}

fn told(state: &State, row: &Row) -> Value {
    let mut told: Fields = TOLD
        .into_iter()
        .map(|name| (name.to_owned(), row.fields.get(name).cloned().unwrap_or_default()))
        .collect();
    if row.text("secret_type").is_empty() {
        told.insert("secret_type".to_owned(), "opaque".into());
    }
    if !row.text("payload").is_empty() {
        told.insert("content_types".to_owned(), json!({ "default": row.text("payload_content_type") }));
    }
    for (name, value) in [
        ("status", json!("ACTIVE")),
        ("created", json!(row.created)),
        ("updated", json!(row.created)),
        ("creator_id", json!(row.text("creator_id"))),
        ("secret_ref", json!(address(state, &row.id))),
    ] {
        told.insert(name.to_owned(), value);
    }
    told.into()
}
