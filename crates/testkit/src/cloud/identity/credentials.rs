//! Application credentials.

use serde_json::{Value, json};

use super::{Identity, malformed, not_allowed, tokens::TokenMethod};
use crate::cloud::{
    clock::FakeTime,
    exchange::{Answer, Refusal, Reply, Request},
    python::python_str,
    state::State,
};

#[derive(Clone, Debug)]
pub(super) struct Credential {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) secret: String,
    pub(super) user: String,
    pub(super) project: String,
    pub(super) roles: Vec<String>,
    pub(super) expires: Option<FakeTime>,
    description: Value,
}

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    mine(request)?;
    let all = state.identity.credentials.values().filter(|it| it.user == request.at[0]);
    let all: Vec<Value> = all.map(|it| told(state, it)).collect();
    Ok(Reply::json(200, json!({"application_credentials": all, "links": {}})))
}

pub(super) fn show(state: &mut State, request: &Request) -> Answer {
    mine(request)?;
    let credential = state.identity.credential(&request.at[1])?;
    Ok(Reply::one(200, "application_credential", told(state, credential)))
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    mine(request)?;
    let is_own =
        state.identity.tokens.get(&request.caller.token).is_some_and(|it| it.by == TokenMethod::Oneself);
    if !is_own {
        return Err(not_allowed(
            "Using method 'application_credential' is not allowed for managing additional application credentials.",
        ));
    }
    let given = request.json().unwrap_or_default()["application_credential"].take();
    let name = given["name"].as_str().map(str::to_owned).ok_or_else(|| {
        Refusal::new(
            400,
            format!(
                "Invalid input for field/attribute application_credential. Value: {}. 'name' is a required property",
                python_str(&given)
            ),
        )
    })?;
    let roles = state.identity.chosen(&given["roles"], &request.caller.roles);
    let roles = roles.ok_or_else(|| {
        let message =
            "Invalid application credential: Cannot create an application credential with unassigned role";
        Refusal::new(400, message)
    })?;
    let expires = given["expires_at"].as_str().and_then(FakeTime::parsed);
    if expires.is_some_and(|it| it <= state.now) {
        return Err(malformed("The 'expires_at' must not be before now."));
    }
    let user = request.at[0].clone();
    if state.identity.credentials.values().any(|it| it.user == user && it.name == name) {
        let message = format!(
            "Conflict occurred attempting to store application_credential - Duplicate entry found with name {name}."
        );
        return Err(Refusal::new(409, message));
    }
    let credential = Credential {
        id: state.ids.hex(),
        name,
        secret: given["secret"].as_str().map_or_else(|| state.ids.hex() + &state.ids.hex(), str::to_owned),
        user,
        project: request.caller.project.clone(),
        roles,
        expires,
        description: given["description"].clone(),
    };
    let mut body = told(state, &credential);
    // Told once, and never again.
    body["secret"] = json!(credential.secret);
    state.identity.credentials.insert(credential.id.clone(), credential);
    Ok(Reply::one(201, "application_credential", body))
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    mine(request)?;
    let id = state.identity.credential(&request.at[1])?.id.clone();
    state.identity.credentials.remove(&id);
    state.identity.tokens.retain(|_, it| it.by != TokenMethod::Credential(id.clone()));
    Ok(Reply::empty(204))
}

fn mine(request: &Request) -> Result<(), Refusal> {
    let is_mine = request.caller.user == request.at[0] || request.caller.is_admin();
    if is_mine { Ok(()) } else { Err(not_allowed("identity:list_application_credentials")) }
}

fn told(state: &State, it: &Credential) -> Value {
    let roles: Vec<Value> = it.roles.iter().map(|name| state.identity.whole_role(name)).collect();
    json!({
        "id": it.id,
        "name": it.name,
        "description": it.description,
        "user_id": it.user,
        "project_id": it.project,
        "system": null,
        "unrestricted": null,
        "expires_at": it.expires.map(FakeTime::precise),
        "roles": roles,
        "links": {"self": format!("{}/identity/v3/application_credentials/{}", state.base, it.id)},
    })
}

impl Identity {
    pub(super) fn credential(&self, id: &str) -> Result<&Credential, Refusal> {
        let message = format!("Could not find Application Credential: {id}.");
        self.credentials.get(id).ok_or_else(|| Refusal::new(404, message))
    }

    /// The roles that are named, if they are among those that somebody has; all of those, if none are named.
    pub(super) fn chosen(&self, named: &Value, own: &[String]) -> Option<Vec<String>> {
        let Some(named) = named.as_array() else { return Some(own.to_vec()) };
        let name = |it: &Value| {
            let by_id =
                || self.roles.iter().find(|(_, id)| it["id"] == id.as_str()).map(|(name, _)| name.clone());
            it["name"].as_str().map(str::to_owned).or_else(by_id)
        };
        let roles: Vec<String> = named.iter().filter_map(name).collect();
        roles.iter().all(|it| own.contains(it)).then(|| Identity::with_implied(&roles))
    }
}
