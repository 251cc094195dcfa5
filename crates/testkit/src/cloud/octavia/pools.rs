//! Pools.

use serde_json::{Value, json};

use super::{
    invalid,
    kinds::{BALANCER, LISTENER, POOL},
    listeners, listing, not_found,
    providers::Provider,
    showing, tls,
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::{Fields, text},
};

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    listing::list(state, request, &POOL, None)
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    state.octavia.refuse_newer_fields(&POOL, request)?;
    let mut fields = POOL.created(request)?;
    let mut given = |name: &str| fields.remove(name).and_then(|it| it.as_str().map(str::to_owned));
    let (balancer, listener) = (given("loadbalancer_id"), given("listener_id"));
    let listener = match &listener {
        Some(id) if balancer.is_none() => {
            Some(state.octavia.listeners.row(id).cloned().ok_or_else(|| {
                // Nobody looked.
                Refusal::new(500, "'NoneType' object has no attribute 'load_balancer_id'")
            })?)
        }
        Some(id) => state.octavia.listeners.row(id).cloned(),
        None => None,
    };
    let balancer = balancer.or_else(|| listener.as_ref()?.parent.clone());
    let balancer =
        balancer.ok_or_else(|| invalid("Must provide at least one of: loadbalancer_id, listener_id"))?;
    let parent = state.octavia.owned(&BALANCER, &balancer, &request.caller)?.clone();
    if let Some(listener) = &listener {
        listeners::check_pool(listener.text("protocol"), text(&fields, "protocol"))?;
    }
    check_persistence(&fields, text(&fields, "protocol"), "UDP and SCTP protocol pools")?;
    state.spare(&POOL, &parent.project, 1, 0)?;
    if listener.as_ref().is_some_and(|it| !it.text("default_pool_id").is_empty()) {
        return Err(Refusal::new(409, "This listener already has a default pool"));
    }
    state.octavia.must_be_free(&balancer)?;
    for nested in ["members", "healthmonitor"] {
        fields.remove(nested);
    }
    prepare(state, &mut fields)?;
    Provider::of(&parent).check_pool(&fields)?;
    let touched: Vec<String> = listener.iter().map(|it| it.id.clone()).collect();
    state.octavia.lock_below(&balancer, &touched, &[], &state.now.bare())?;
    let mut row = state.new_pending(Some(&balancer), &parent.project, fields);
    row.set("with_listener", listener.is_some());
    let id = row.id.clone();
    state.octavia.pools.put(row);
    if let Some(row) = listener.and_then(|it| state.octavia.table_mut(&LISTENER).row_mut(&it.id)) {
        row.set("default_pool_id", id.clone());
    }
    state.began(&balancer);
    told(state, 201, &id)
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    state.octavia.refuse_newer_fields(&POOL, request)?;
    let mut changes = POOL.changed(request)?;
    let row = state.octavia.owned(&POOL, id, &request.caller)?.clone();
    let balancer = row.parent.clone().unwrap_or_default();
    let parent =
        state.octavia.balancers.row(&balancer).ok_or_else(|| not_found(BALANCER.title, &balancer))?.clone();
    if let Some(kept) = row.fields.get("session_persistence").filter(|it| it.is_object())
        && let Some(Value::Object(wanted)) = changes.get_mut("session_persistence")
        && wanted.get("type").is_none_or(Value::is_null)
    {
        wanted.insert("type".to_owned(), kept["type"].clone());
    }
    check_persistence(&changes, row.text("protocol"), "UDP protocol pools")?;
    tls::check_pool_refs(state, &changes, row.text("ca_tls_container_ref"))?;
    state.octavia.must_be_free(&balancer)?;
    Provider::of(&parent).check_pool(&changes)?;
    let touched: Vec<String> = state.octavia.listeners_of(&row).iter().map(|it| it.id.clone()).collect();
    state.octavia.lock_below(&balancer, &touched, &[], &state.now.bare())?;
    if changes.get("admin_state_up").is_some_and(Value::is_null) {
        changes.insert("admin_state_up".to_owned(), json!(false));
    }
    let is_name_only = !changes.contains_key("session_persistence");
    let says_up = changes.contains_key("admin_state_up");
    state.changed_row(&POOL, id, changes);
    if Provider::of(&parent) == Provider::Ovn && !says_up {
        state.octavia.misjudge(id, &touched, is_name_only);
    }
    state.began(&balancer);
    told(state, 200, id)
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let row = state.octavia.owned(&POOL, id, &request.caller)?.clone();
    let balancer = row.parent.clone().unwrap_or_default();
    let listeners = state.octavia.listeners.child_ids(&balancer);
    let policies = listeners.iter().flat_map(|it| state.octavia.policies.children(it));
    if let Some(policy) = policies.into_iter().find(|it| it.text("redirect_pool_id") == id) {
        return Err(Refusal::new(409, format!("Pool {id} is in use by L7 policy {}", policy.id)));
    }
    let touched: Vec<String> = state.octavia.listeners_of(&row).iter().map(|it| it.id.clone()).collect();
    state.octavia.lock_below(&balancer, &touched, &[(&POOL, id, "PENDING_DELETE")], &state.now.bare())?;
    state.began(&balancer);
    let is_of_ovn =
        state.octavia.balancers.row(&balancer).is_some_and(|it| Provider::of(it) == Provider::Ovn);
    let is_empty = state.octavia.members.children(id).next().is_none()
        && state.octavia.monitors.children(id).next().is_none();
    if is_of_ovn && !is_empty {
        state.octavia.delay(&balancer, &POOL, std::slice::from_ref(id));
    }
    Ok(Reply::empty(204))
}

fn told(state: &State, status: u16, id: &str) -> Answer {
    let row = state.octavia.pools.row(id).ok_or_else(|| not_found(POOL.title, id))?;
    Ok(Reply::one(status, POOL.one, showing::one(&state.octavia, &POOL, row)))
}

/// Checks a new pool by itself, and fills in what was not given.
pub(super) fn prepare(state: &State, fields: &mut Fields) -> Result<(), Refusal> {
    tls::check_pool_refs(state, fields, "")?;
    tls::check_pool(fields)
}

fn check_persistence(fields: &Fields, protocol: &str, only_for: &str) -> Result<(), Refusal> {
    let Some(wanted) = fields.get("session_persistence").and_then(Value::as_object) else { return Ok(()) };
    let (kind, cookie) = (text(wanted, "type"), text(wanted, "cookie_name"));
    let is_datagrams = ["UDP", "SCTP"].contains(&protocol);
    let has = |name: &str| wanted.get(name).is_some_and(|it| !it.is_null() && it != &json!(0));
    if is_datagrams && !cookie.is_empty() {
        return Err(invalid("Cookie names are not supported for UDP/SCTP pools."));
    }
    if is_datagrams && ["HTTP_COOKIE", "APP_COOKIE"].contains(&kind) {
        return Err(invalid(format!(
            "Session persistence of type {kind} is not supported for UDP/SCTP protocol pools."
        )));
    }
    if !is_datagrams && (has("persistence_timeout") || has("persistence_granularity")) {
        return Err(invalid(format!(
            "persistence_timeout and persistence_granularity is only for {only_for}."
        )));
    }
    if !cookie.is_empty() && kind != "APP_COOKIE" {
        let message =
            "Field \"cookie_name\" can only be specified with session persistence of type \"APP_COOKIE\".";
        return Err(invalid(message));
    }
    if kind == "APP_COOKIE" && cookie.is_empty() {
        let message =
            "Field \"cookie_name\" must be specified when using the \"APP_COOKIE\" session persistence type.";
        return Err(invalid(message));
    }
    Ok(())
}
