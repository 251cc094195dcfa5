//! Trusts: one user acts for another.

use serde_json::{Value, json};

use super::{
    Identity, not_allowed,
    tokens::{Token, TokenMethod},
    unauthorized,
};
use crate::cloud::{
    clock::FakeTime,
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
};

#[derive(Clone, Debug)]
pub(super) struct Trust {
    id: String,
    pub(super) trustor: String,
    pub(super) trustee: String,
    project: String,
    pub(super) impersonation: bool,
    roles: Vec<String>,
    expires: Option<FakeTime>,
    remaining: Option<u64>,
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let given = request.json().unwrap_or_default()["trust"].take();
    let of = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
    if of("trustor_user_id") != request.caller.user {
        return Err(not_allowed("identity:create_trust"));
    }
    if given["roles"].as_array().is_none_or(Vec::is_empty) {
        return Err(not_allowed("At least one role should be specified"));
    }
    let own = state.identity.granted(&request.caller.user, &of("project_id")).unwrap_or_default();
    for role in given["roles"].as_array().into_iter().flatten() {
        let name = role["name"].as_str().unwrap_or_default();
        if !own.iter().any(|it| it == name) {
            let id = state.identity.roles.get(name).cloned().unwrap_or_default();
            return Err(Refusal::new(404, format!("Could not find role: {id}.")));
        }
    }
    let names = given["roles"].as_array().into_iter().flatten().filter_map(|it| it["name"].as_str());
    let trust = Trust {
        id: state.ids.hex(),
        trustor: of("trustor_user_id"),
        trustee: of("trustee_user_id"),
        project: of("project_id"),
        impersonation: given["impersonation"] == true,
        roles: names.map(str::to_owned).collect(),
        expires: given["expires_at"].as_str().and_then(FakeTime::parsed),
        remaining: given["remaining_uses"].as_u64(),
    };
    let body = told(state, &trust);
    state.identity.trusts.insert(trust.id.clone(), trust);
    Ok(Reply::one(201, "trust", body))
}

pub(super) fn show(state: &mut State, request: &Request) -> Answer {
    let trust = state.identity.trust(&request.at[0])?;
    if ![&trust.trustor, &trust.trustee].contains(&&request.caller.user) && !request.caller.is_admin() {
        return Err(not_allowed("identity:get_trust"));
    }
    Ok(Reply::one(200, "trust", told(state, trust)))
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let trust = state.identity.trust(&request.at[0])?;
    if trust.trustor != request.caller.user && !request.caller.is_admin() {
        return Err(not_allowed("identity:delete_trust"));
    }
    let id = trust.id.clone();
    state.identity.trusts.remove(&id);
    state.identity.tokens.retain(|_, it| it.by != TokenMethod::Trust(id.clone()));
    Ok(Reply::empty(204))
}

fn told(state: &State, it: &Trust) -> Value {
    let base = format!("{}/identity/v3", state.base);
    let role = |name: &String| {
        let mut role = state.identity.whole_role(name);
        let id = role["id"].as_str().unwrap_or_default();
        role["links"] = json!({ "self": format!("{base}/roles/{id}") });
        role
    };
    let roles: Vec<Value> = it.roles.iter().map(role).collect();
    json!({
        "id": it.id,
        "trustor_user_id": it.trustor,
        "trustee_user_id": it.trustee,
        "project_id": it.project,
        "impersonation": it.impersonation,
        "expires_at": it.expires.map(FakeTime::precise),
        "deleted_at": null,
        "remaining_uses": it.remaining,
        "redelegated_trust_id": null,
        "redelegation_count": 0,
        "roles": roles,
        "roles_links": {"self": format!("{base}/{}/roles", it.id), "next": null, "previous": null},
        "links": {"self": format!("{base}/OS-TRUST/trusts/{}", it.id)},
    })
}

impl Identity {
    fn trust(&self, id: &str) -> Result<&Trust, Refusal> {
        let found = self.trusts.get(id).filter(|it| it.remaining != Some(0));
        found.ok_or_else(|| Refusal::new(404, format!("Could not find trust: {id}.")))
    }
}

impl State {
    pub(super) fn by_trust(
        &mut self,
        user: String,
        id: &str,
        methods: Vec<String>,
    ) -> Result<Token, Refusal> {
        let trust = self.identity.trust(id).map_err(|_| unauthorized())?.clone();
        if trust.trustee != user {
            return Err(not_allowed(""));
        }
        if trust.expires.is_some_and(|it| it <= self.now) {
            return Err(unauthorized());
        }
        if let Some(Trust { remaining: Some(remaining), .. }) = self.identity.trusts.get_mut(id) {
            *remaining -= 1;
        }
        let acting = if trust.impersonation { trust.trustor } else { user };
        let roles = Identity::with_implied(&trust.roles);
        Ok(self.issue(acting, Some(trust.project), roles, methods, TokenMethod::Trust(trust.id)))
    }
}
