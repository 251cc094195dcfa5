//! Load balancers themselves.

use serde_json::json;

use super::{BALANCER, forbidden, invalid, listing, may_write, showing};
use crate::cloud::{
    exchange::{Answer, Reply, Request},
    state::State,
    store::Row,
};

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    listing::list(state, request, &BALANCER, None)
}

pub(super) fn show(state: &mut State, request: &Request) -> Answer {
    listing::show(state, request, &BALANCER, &request.at[0])
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let mut fields = BALANCER.created(&request.json().unwrap_or_default())?;
    let project = fields.remove("project_id").and_then(|it| it.as_str().map(str::to_owned));
    let project = project.unwrap_or_else(|| request.caller.project.clone());
    if !may_write(&request.caller, &project) {
        return Err(forbidden());
    }
    let id = state.ids.uuid();
    let mut row = Row { id: id.clone(), project, created: state.now.bare(), fields, ..Row::default() };
    row.set("provider", json!("ovn"));
    row.set("provisioning_status", "PENDING_CREATE");
    row.set("operating_status", "OFFLINE");
    state.octavia.balancers.put(row);
    state.began(&id);
    let row = state.octavia.balancers.row(&id).expect("it was just put there");
    Ok(Reply::one(201, BALANCER.one, showing::whole(&state.octavia, row)))
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let changes = BALANCER.changed(&request.json().unwrap_or_default())?;
    state.octavia.owned(&BALANCER, id, &request.caller)?;
    state.octavia.lock_balancer(id, "PENDING_UPDATE")?;
    let row = state.octavia.balancers.row_mut(id).expect("it is owned");
    row.fields.extend(changes);
    state.began(id);
    let row = state.octavia.balancers.row(id).expect("it is owned");
    Ok(Reply::one(200, BALANCER.one, showing::one(&state.octavia, &BALANCER, row)))
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    state.octavia.owned(&BALANCER, id, &request.caller)?;
    let cascade = matches!(request.param("cascade"), Some("true" | "True" | "1"));
    let octavia = &state.octavia;
    let has_children = BALANCER.below.iter().any(|kind| octavia.table(kind).children(id).next().is_some());
    if has_children && !cascade {
        return Err(invalid(format!("Cannot delete Load Balancer {id} - it has children")));
    }
    state.octavia.lock_balancer(id, "PENDING_DELETE")?;
    state.began(id);
    Ok(Reply::empty(204))
}
