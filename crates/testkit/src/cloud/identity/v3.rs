//! Version 3 of the identity API, and the door before all versions.

use serde_json::{Value, json};

use super::{
    IdentityVersions, catalog, credentials, not_allowed, people, sign_in, trusts,
    v2::{self, is_v2},
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    routes::{Route, delete, get, patch, post, put},
    state::State,
};

pub(super) const ROUTES: &[Route] = &[
    get("", version).open(),
    post("/tokens", v2::sign_in).open(),
    get("/tenants", v2::tenants),
    post("/auth/tokens", sign_in::sign_in).open(),
    get("/auth/tokens", show),
    delete("/auth/tokens", revoke),
    get("/auth/projects", projects),
    get("/auth/catalog", show_catalog),
    get("/projects", people::projects),
    post("/projects", people::create_project),
    delete("/projects/{}", people::delete_project),
    get("/users", people::users),
    post("/users", people::create_user),
    patch("/users/{}", people::change_user),
    delete("/users/{}", people::delete_user),
    get("/roles", people::roles),
    put("/projects/{}/users/{}/roles/{}", people::grant),
    delete("/projects/{}/users/{}/roles/{}", people::revoke),
    get("/users/{}/application_credentials", credentials::list),
    post("/users/{}/application_credentials", credentials::create),
    get("/users/{}/application_credentials/{}", credentials::show),
    delete("/users/{}/application_credentials/{}", credentials::delete),
    post("/OS-TRUST/trusts", trusts::create),
    get("/OS-TRUST/trusts/{}", trusts::show),
    delete("/OS-TRUST/trusts/{}", trusts::delete),
];

/// What is at the roots of this version and of all of them.
fn version(state: &mut State, request: &Request) -> Answer {
    let (base, speaks) = (format!("{}/identity", state.base), state.identity.speaks);
    let path = request.path.trim_end_matches('/');
    let v3 = json!({
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": format!("{base}/v3/")}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    });
    if is_v2(request) {
        return if speaks == IdentityVersions::V3 {
            Err(nowhere())
        } else {
            Ok(Reply::one(200, "version", v2::version(&base)))
        };
    }
    if path.ends_with("v3") {
        return if speaks == IdentityVersions::V2 {
            Err(nowhere())
        } else {
            Ok(Reply::one(200, "version", v3))
        };
    }
    let values = match speaks {
        IdentityVersions::V3 => vec![v3],
        IdentityVersions::V2 => vec![v2::version(&base)],
        IdentityVersions::Both => vec![v3, v2::version(&base)],
    };
    Ok(Reply::json(300, json!({"versions": {"values": values}})))
}

pub(super) fn nowhere() -> Refusal {
    Refusal::new(404, "The resource could not be found.")
}

fn show(state: &mut State, request: &Request) -> Answer {
    let token = state.identity.valid(request.header("x-subject-token").unwrap_or_default(), state.now)?;
    Ok(Reply::json(200, state.identity.told_by_v3(token)).with("x-subject-token", &token.id))
}

fn revoke(state: &mut State, request: &Request) -> Answer {
    let id = request.header("x-subject-token").unwrap_or_default();
    state.identity.valid(id, state.now)?;
    state.identity.tokens.remove(id);
    Ok(Reply::empty(204))
}

/// Where the caller has roles.
fn projects(state: &mut State, request: &Request) -> Answer {
    let mine = state.identity.grants.keys().filter(|(user, _)| *user == request.caller.user);
    let mine = mine.filter_map(|(_, project)| state.identity.projects.get(project));
    let all: Vec<Value> = mine.map(people::project).collect();
    Ok(Reply::json(200, json!({"projects": all, "links": {}})))
}

fn show_catalog(state: &mut State, request: &Request) -> Answer {
    if request.caller.project.is_empty() {
        return Err(not_allowed(""));
    }
    Ok(Reply::json(200, json!({"catalog": catalog::v3(&state.identity.endpoints), "links": {}})))
}
