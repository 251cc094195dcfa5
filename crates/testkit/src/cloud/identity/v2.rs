//! Version 2.0 of the identity API, which left Keystone in Queens: no domains, tenants instead of projects.

use serde_json::{Value, json};

use super::{Identity, IdentityVersions, malformed, tokens::TokenMethod, unauthorized};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
};

pub(super) fn version(base: &str) -> Value {
    json!({
        "id": "v2.0",
        "status": "deprecated",
        "updated": "2016-08-04T00:00:00Z",
        "links": [
            {"rel": "self", "href": format!("{base}/v2.0/")},
            {"rel": "describedby", "type": "text/html", "href": "https://docs.openstack.org/"},
        ],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v2.0+json"}],
    })
}

pub(super) fn is_v2(request: &Request) -> bool {
    request.path.starts_with("/identity/v2.0")
}

pub(super) fn sign_in(state: &mut State, request: &Request) -> Answer {
    spoken(state, request)?;
    let body = request.json().ok_or_else(|| malformed("Expecting to find valid JSON in request body."))?;
    let auth = &body["auth"];
    if !auth.is_object() {
        return Err(malformed("Expecting to find auth in request body."));
    }
    let (user, method) = match (auth.get("token"), auth.get("passwordCredentials")) {
        (Some(token), _) => {
            let old = state.identity.valid(token["id"].as_str().unwrap_or_default(), state.now);
            (old.map_err(|_| unauthorized())?.user.clone(), "token")
        }
        (None, Some(given)) => (by_password(&state.identity, given)?, "password"),
        (None, None) => return Err(malformed("Expecting to find passwordCredentials or token in auth.")),
    };
    let tenant = match (auth["tenantId"].as_str(), auth["tenantName"].as_str()) {
        (Some(id), _) => Some(state.identity.projects.get(id).ok_or_else(unauthorized)?.id.clone()),
        (None, Some(name)) => Some(state.identity.project_named(name).ok_or_else(unauthorized)?.id.clone()),
        (None, None) => None,
    };
    let roles = match &tenant {
        Some(tenant) => state.identity.granted(&user, tenant).ok_or_else(unauthorized)?,
        None => Vec::new(),
    };
    let token = state.issue(user, tenant, roles, vec![method.to_owned()], TokenMethod::Oneself);
    Ok(Reply::json(200, state.identity.told_by_v2(&token)))
}

fn by_password(identity: &Identity, given: &Value) -> Result<String, Refusal> {
    let found = match (given["userId"].as_str(), given["username"].as_str()) {
        (Some(id), _) => identity.users.get(id),
        (None, Some(name)) => identity.user_named(name),
        (None, None) => {
            return Err(malformed("Expecting to find username or userId in passwordCredentials."));
        }
    };
    found
        .filter(|it| given["password"].as_str() == Some(&it.password))
        .map(|it| it.id.clone())
        .ok_or_else(unauthorized)
}

/// Where the caller has roles.
pub(super) fn tenants(state: &mut State, request: &Request) -> Answer {
    spoken(state, request)?;
    let mine = state.identity.grants.keys().filter(|(user, _)| *user == request.caller.user);
    let mine = mine.filter_map(|(_, project)| state.identity.projects.get(project));
    let told = mine.map(|it| json!({"id": it.id, "name": it.name, "enabled": true, "description": ""}));
    Ok(Reply::json(200, json!({"tenants": told.collect::<Vec<_>>(), "tenants_links": []})))
}

/// These paths are of version 2.0 alone, and only where it is spoken.
fn spoken(state: &State, request: &Request) -> Result<(), Refusal> {
    if is_v2(request) && state.identity.speaks != IdentityVersions::V3 {
        return Ok(());
    }
    Err(Refusal::new(404, "The resource could not be found."))
}
