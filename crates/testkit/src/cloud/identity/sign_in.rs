//! How one signs in by version 3.

use serde_json::Value;

use super::{
    DEFAULT, Identity, IdentityVersions, malformed, not_allowed,
    tokens::{Token, TokenMethod},
    unauthorized,
    v3::nowhere,
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
};

pub(super) fn sign_in(state: &mut State, request: &Request) -> Answer {
    if state.identity.speaks == IdentityVersions::V2 {
        return Err(nowhere());
    }
    let body = request.json().ok_or_else(|| malformed("Expecting to find valid JSON in request body."))?;
    let auth = &body["auth"];
    if auth.get("identity").is_none() {
        return Err(Refusal::new(400, "'identity' is a required property"));
    }
    let methods: Vec<String> = auth["identity"]["methods"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it.as_str().map(str::to_owned))
        .collect();
    for method in &methods {
        if auth["identity"].get(method).is_none() {
            return Err(malformed(&format!("Expecting to find {method} in identity.")));
        }
    }
    let token = match methods.first().map(String::as_str) {
        Some("application_credential") => by_credential(state, auth)?,
        Some("token") => by_token(state, auth, methods)?,
        Some("password") => {
            let user = by_password(&state.identity, &auth["identity"]["password"]["user"])?;
            state.scoped(user, &auth["scope"], methods)?
        }
        _ => return Err(unauthorized()),
    };
    Ok(Reply::json(201, state.identity.told_by_v3(&token)).with("x-subject-token", &token.id))
}

pub(super) fn by_password(identity: &Identity, user: &Value) -> Result<String, Refusal> {
    let found = named(identity, user).and_then(|id| identity.users.get(&id));
    found
        .filter(|it| user["password"].as_str() == Some(&it.password))
        .map(|it| it.id.clone())
        .ok_or_else(unauthorized)
}

/// By id, or by name and domain.
fn named(identity: &Identity, user: &Value) -> Option<String> {
    match (user["id"].as_str(), user["name"].as_str()) {
        (Some(id), _) => Some(id.to_owned()),
        (_, Some(name)) if is_default(&user["domain"]) => identity.user_named(name).map(|it| it.id.clone()),
        _ => None,
    }
}

fn by_token(state: &mut State, auth: &Value, mut methods: Vec<String>) -> Result<Token, Refusal> {
    let id = auth["identity"]["token"]["id"].as_str().unwrap_or_default();
    let old = state.identity.valid(id, state.now)?.clone();
    match old.by {
        TokenMethod::Oneself => {}
        TokenMethod::Trust(_) => {
            return Err(not_allowed(
                "Using trust-scoped token to create another token. Create a new trust-scoped token instead",
            ));
        }
        TokenMethod::Credential(_) => {
            return Err(not_allowed("Using a delegated token to create another token is not allowed."));
        }
    }
    for method in old.methods {
        if !methods.contains(&method) {
            methods.push(method);
        }
    }
    state.scoped(old.user, &auth["scope"], methods)
}

fn by_credential(state: &mut State, auth: &Value) -> Result<Token, Refusal> {
    if auth.get("scope").is_some() {
        let message = "Error authenticating with application credential: Application credentials cannot request a scope.";
        return Err(Refusal::of(401, "method", message));
    }
    let given = &auth["identity"]["application_credential"];
    let credential = match given["id"].as_str() {
        Some(id) => state.identity.credential(id)?,
        None => {
            let user = named(&state.identity, &given["user"]).ok_or_else(unauthorized)?;
            let all = state.identity.credentials.values();
            let mut all = all.filter(|it| it.user == user && given["name"] == it.name.as_str());
            all.next().ok_or_else(unauthorized)?
        }
    };
    let is_over = credential.expires.is_some_and(|it| it <= state.now);
    if is_over || given["secret"].as_str() != Some(&credential.secret) {
        return Err(unauthorized());
    }
    let credential = credential.clone();
    let (project, roles) = (Some(credential.project), credential.roles);
    let methods = vec!["application_credential".to_owned()];
    Ok(state.issue(credential.user, project, roles, methods, TokenMethod::Credential(credential.id)))
}

impl State {
    /// A token for what was asked: a project, a trust, or nothing in particular.
    fn scoped(&mut self, user: String, scope: &Value, methods: Vec<String>) -> Result<Token, Refusal> {
        if let Some(trust) = scope.get("OS-TRUST:trust") {
            return self.by_trust(user, trust["id"].as_str().unwrap_or_default(), methods);
        }
        let Some(wanted) = scope.get("project") else {
            return Ok(self.issue(user, None, Vec::new(), methods, TokenMethod::Oneself));
        };
        let project = self.identity.wanted(wanted)?;
        let roles = self.identity.granted(&user, &project).ok_or_else(unauthorized)?;
        Ok(self.issue(user, Some(project), roles, methods, TokenMethod::Oneself))
    }
}

impl Identity {
    fn wanted(&self, project: &Value) -> Result<String, Refusal> {
        let found = match (project["id"].as_str(), project["name"].as_str()) {
            (Some(id), _) => self.projects.get(id),
            (_, Some(_)) if project.get("domain").is_none() => {
                return Err(malformed("Expecting to find domain in project."));
            }
            (_, Some(name)) if is_default(&project["domain"]) => self.project_named(name),
            _ => None,
        };
        found.map(|it| it.id.clone()).ok_or_else(unauthorized)
    }

    pub(super) fn valid(&self, id: &str, now: crate::cloud::clock::FakeTime) -> Result<&Token, Refusal> {
        // A token carries its own meaning: one that never was is told from one that is no more.
        let is_token = id.len() == 37 && id.starts_with("gAAAA");
        let found = self.tokens.get(id).filter(|it| it.expires > now);
        found.ok_or_else(|| {
            Refusal::new(
                404,
                if is_token { "Failed to validate token" } else { "Could not recognize Fernet token" },
            )
        })
    }
}

fn is_default(domain: &Value) -> bool {
    domain["id"] == DEFAULT || domain["name"] == "Default"
}
