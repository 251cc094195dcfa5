//! Users, projects and roles, as an administrator manages them.

use serde_json::{Value, json};

use super::{DEFAULT, Project, not_allowed};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
};

pub(super) fn projects(state: &mut State, request: &Request) -> Answer {
    guard(request, "list_projects")?;
    let wanted = request.param("name");
    let all = state.identity.projects.values().filter(|it| wanted.is_none_or(|name| it.name == name));
    let all: Vec<Value> = all.map(project).collect();
    Ok(Reply::json(200, json!({"projects": all, "links": {}})))
}

pub(super) fn create_project(state: &mut State, request: &Request) -> Answer {
    guard(request, "create_project")?;
    let name = named(request, "project")?;
    if state.identity.project_named(&name).is_some() {
        let message = "Conflict occurred attempting to store project - it is not permitted to have two projects with the \
                       same name in the same domain";
        return Err(Refusal::new(409, format!("{message} : {name}.")));
    }
    let new = Project { id: state.ids.hex(), name };
    let body = project(&new);
    state.identity.projects.insert(new.id.clone(), new);
    Ok(Reply::one(201, "project", body))
}

pub(super) fn delete_project(state: &mut State, request: &Request) -> Answer {
    guard(request, "delete_project")?;
    let id = &request.at[0];
    state.identity.projects.remove(id).ok_or_else(|| missing("project", id))?;
    state.identity.grants.retain(|(_, project), _| project != id);
    state.identity.tokens.retain(|_, it| it.project.as_ref() != Some(id));
    Ok(Reply::empty(204))
}

pub(super) fn users(state: &mut State, request: &Request) -> Answer {
    guard(request, "list_users")?;
    let wanted = request.param("name");
    let all = state.identity.users.values().filter(|it| wanted.is_none_or(|name| it.name == name));
    let all: Vec<Value> = all.map(|it| user(&it.id, &it.name)).collect();
    Ok(Reply::json(200, json!({"users": all, "links": {}})))
}

pub(super) fn create_user(state: &mut State, request: &Request) -> Answer {
    guard(request, "create_user")?;
    let name = named(request, "user")?;
    let body = request.json().unwrap_or_default();
    let password = body["user"]["password"].as_str().unwrap_or_default();
    let State { identity, ids, .. } = state;
    let id = identity.add_user(&name, password, ids);
    Ok(Reply::one(201, "user", user(&id, &name)))
}

/// A user's password changes; its tokens are no longer good.
pub(super) fn change_user(state: &mut State, request: &Request) -> Answer {
    guard(request, "update_user")?;
    let id = &request.at[0];
    let found = state.identity.users.get_mut(id).ok_or_else(|| missing("user", id))?;
    let body = request.json().unwrap_or_default();
    if let Some(password) = body["user"]["password"].as_str() {
        password.clone_into(&mut found.password);
        let name = found.name.clone();
        state.identity.tokens.retain(|_, it| it.user != *id);
        return Ok(Reply::one(200, "user", user(id, &name)));
    }
    Ok(Reply::one(200, "user", user(id, &found.name)))
}

pub(super) fn delete_user(state: &mut State, request: &Request) -> Answer {
    guard(request, "delete_user")?;
    let id = &request.at[0];
    state.identity.users.remove(id).ok_or_else(|| missing("user", id))?;
    state.identity.grants.retain(|(user, _), _| user != id);
    state.identity.tokens.retain(|_, it| it.user != *id);
    state.identity.credentials.retain(|_, it| it.user != *id);
    Ok(Reply::empty(204))
}

pub(super) fn roles(state: &mut State, request: &Request) -> Answer {
    guard(request, "list_roles")?;
    let all: Vec<Value> = state.identity.roles.keys().map(|name| state.identity.whole_role(name)).collect();
    Ok(Reply::json(200, json!({"roles": all, "links": {}})))
}

pub(super) fn grant(state: &mut State, request: &Request) -> Answer {
    guard(request, "create_grant")?;
    let (project, user, role) = (&request.at[0], &request.at[1], &request.at[2]);
    let name = state.identity.roles.iter().find(|(_, id)| *id == role).map(|(name, _)| name.clone());
    let name = name.ok_or_else(|| missing("role", role))?;
    let roles = state.identity.grants.entry((user.clone(), project.clone())).or_default();
    if !roles.contains(&name) {
        roles.push(name);
    }
    Ok(Reply::empty(204))
}

pub(super) fn revoke(state: &mut State, request: &Request) -> Answer {
    guard(request, "revoke_grant")?;
    let (project, user, role) = (&request.at[0], &request.at[1], &request.at[2]);
    let name = state.identity.roles.iter().find(|(_, id)| *id == role).map(|(name, _)| name.clone());
    if let Some(roles) = state.identity.grants.get_mut(&(user.clone(), project.clone())) {
        roles.retain(|it| Some(it) != name.as_ref());
    }
    state.identity.tokens.retain(|_, it| it.user != *user || it.project.as_ref() != Some(project));
    Ok(Reply::empty(204))
}

pub(super) fn project(it: &Project) -> Value {
    json!({
        "id": it.id, "name": it.name, "domain_id": DEFAULT, "parent_id": DEFAULT, "enabled": true, "is_domain": false,
        "description": "", "tags": [], "options": {},
    })
}

fn user(id: &str, name: &str) -> Value {
    json!({"id": id, "name": name, "domain_id": DEFAULT, "enabled": true, "options": {}, "password_expires_at": null})
}

fn named(request: &Request, what: &str) -> Result<String, Refusal> {
    let body = request.json().unwrap_or_default();
    let name = body[what]["name"].as_str().map(str::to_owned);
    name.ok_or_else(|| Refusal::new(400, format!("'name' is a required property of {what}")))
}

fn missing(what: &str, id: &str) -> Refusal {
    Refusal::new(404, format!("Could not find {what}: {id}."))
}

fn guard(request: &Request, action: &str) -> Result<(), Refusal> {
    if request.caller.is_admin() { Ok(()) } else { Err(not_allowed(&format!("identity:{action}"))) }
}
