//! Version 3 of the identity API.

use std::time::Duration;

use serde_json::{Value, json};

use super::{DEFAULT, Project, Token, User};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    routes::{Route, get, post},
    state::State,
};

pub(super) const ROUTES: &[Route] = &[get("", version).open(), post("/auth/tokens", sign_in).open()];

fn version(state: &mut State, _: &Request) -> Answer {
    Ok(Reply::json(200, json!({"version": described(state)})))
}

fn described(state: &State) -> Value {
    json!({
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": format!("{}/identity/v3/", state.base)}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    })
}

fn sign_in(state: &mut State, request: &Request) -> Answer {
    let body = request.json().unwrap_or_default();
    let auth = &body["auth"];
    let methods: Vec<&str> =
        auth["identity"]["methods"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let user = match methods[..] {
        ["password"] => by_password(state, &auth["identity"]["password"]["user"])?,
        _ => return Err(unauthorized()),
    };
    let project = match &auth["scope"]["project"] {
        Value::Null => None,
        wanted => Some(project(state, wanted)?),
    };
    let roles = match &project {
        None => Vec::new(),
        Some(project) => {
            let grant = state.identity.grants.get(&(user.clone(), project.clone()));
            grant.cloned().ok_or_else(unauthorized)?
        }
    };
    let token = Token {
        id: format!("gAAAA{}", state.ids.hex()),
        user,
        project,
        roles,
        methods: methods.iter().map(|it| (*it).to_owned()).collect(),
        audit: state.ids.hex()[..22].to_owned(),
        issued: state.now,
        expires: state.now.after(Duration::from_secs(state.identity.lifetime)),
    };
    let reply = Reply::json(201, state.identity.described(&token)).with("x-subject-token", &token.id);
    state.identity.tokens.insert(token.id.clone(), token);
    Ok(reply)
}

fn by_password(state: &State, user: &Value) -> Result<String, Refusal> {
    let found: Option<&User> = match (user["id"].as_str(), user["name"].as_str()) {
        (Some(id), _) => state.identity.users.get(id),
        (_, Some(name)) if is_default(&user["domain"]) => state.identity.user_named(name),
        _ => None,
    };
    found
        .filter(|it| user["password"].as_str() == Some(&it.password))
        .map(|it| it.id.clone())
        .ok_or_else(unauthorized)
}

fn project(state: &State, wanted: &Value) -> Result<String, Refusal> {
    let found: Option<&Project> = match (wanted["id"].as_str(), wanted["name"].as_str()) {
        (Some(id), _) => state.identity.projects.get(id),
        (_, Some(name)) if is_default(&wanted["domain"]) => state.identity.project_named(name),
        _ => None,
    };
    found.map(|it| it.id.clone()).ok_or_else(unauthorized)
}

fn is_default(domain: &Value) -> bool {
    domain["id"] == DEFAULT || domain["name"] == "Default"
}

/// Why, is never told.
fn unauthorized() -> Refusal {
    Refusal::new(401, "The request you have made requires authentication.")
}
