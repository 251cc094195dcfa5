//! L7 policies, which stand in line.

use serde_json::{Value, json};

use super::{
    kinds::{BALANCER, LAST, LISTENER, POLICY, POOL},
    listeners, listing, not_found,
    providers::Provider,
    showing,
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::{Fields, Row, text},
};

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    listing::list(state, request, &POLICY, None)
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let mut fields = POLICY.created(request)?;
    let listener = text(&fields, "listener_id").to_owned();
    let listener = state.octavia.owned(&LISTENER, &listener, &request.caller)?.clone();
    let (balancer, provider) = parent(state, &listener)?;
    listeners::no_children(listener.text("protocol"))?;
    check_target(state, &listener, &fields)?;
    state.spare(&POLICY, &listener.project, 1, 0)?;
    fields.remove("rules");
    prepare(&mut fields)?;
    state.octavia.must_be_free(&balancer)?;
    provider.check_policy(&listener)?;
    state.octavia.lock_below(&balancer, std::slice::from_ref(&listener.id), &[], &state.now.bare())?;
    let wanted = fields.get("position").and_then(Value::as_i64).unwrap_or(LAST);
    fields.insert("position".to_owned(), json!(LAST));
    let row = state.new_pending(Some(&listener.id), &listener.project, fields);
    let id = row.id.clone();
    state.octavia.policies.put(row);
    state.octavia.stand(&listener.id, &id, wanted);
    state.began(&balancer);
    told(state, 201, &id)
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let mut changes = POLICY.changed(request)?;
    let row = state.octavia.owned(&POLICY, id, &request.caller)?;
    let listener = listener_of(state, row)?;
    settle_action(&mut changes)?;
    check_target(state, &listener, &changes)?;
    let (balancer, _) = parent(state, &listener)?;
    state.octavia.lock_below(&balancer, std::slice::from_ref(&listener.id), &[], &state.now.bare())?;
    let position = changes.remove("position").and_then(|it| it.as_i64());
    state.changed_row(&POLICY, id, changes);
    if let Some(position) = position {
        state.octavia.stand(&listener.id, id, position);
    }
    state.began(&balancer);
    told(state, 200, id)
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let row = state.octavia.owned(&POLICY, id, &request.caller)?;
    let listener = listener_of(state, row)?;
    let (balancer, _) = parent(state, &listener)?;
    let gone = [(&POLICY, id.as_str(), "PENDING_DELETE")];
    state.octavia.lock_below(&balancer, &[listener.id], &gone, &state.now.bare())?;
    state.began(&balancer);
    Ok(Reply::empty(204))
}

fn told(state: &State, status: u16, id: &str) -> Answer {
    let row = state.octavia.policies.row(id).ok_or_else(|| not_found(POLICY.title, id))?;
    Ok(Reply::one(status, POLICY.one, showing::one(&state.octavia, &POLICY, row)))
}

/// On which a policy stands.
pub(super) fn listener_of(state: &State, policy: &Row) -> Result<Row, Refusal> {
    let id = policy.parent.clone().unwrap_or_default();
    state.octavia.listeners.row(&id).cloned().ok_or_else(|| not_found(LISTENER.title, &id))
}

pub(super) fn parent(state: &State, listener: &Row) -> Result<(String, Provider), Refusal> {
    let id = listener.parent.clone().unwrap_or_default();
    let row = state.octavia.balancers.row(&id).ok_or_else(|| not_found(BALANCER.title, &id))?;
    Ok((id, Provider::of(row)))
}

fn check_target(state: &State, listener: &Row, fields: &Fields) -> Result<(), Refusal> {
    let pool = text(fields, "redirect_pool_id");
    if pool.is_empty() {
        return Ok(());
    }
    let found = state.octavia.pools.row(pool).ok_or_else(|| not_found(POOL.title, pool))?;
    listeners::check_pool(listener.text("protocol"), found.text("protocol"))?;
    if found.parent != listener.parent {
        return Err(not_found(POOL.title, pool));
    }
    Ok(())
}

/// Checks a new policy by itself.
pub(super) fn prepare(fields: &mut Fields) -> Result<(), Refusal> {
    settle_action(fields)
}

/// What does not belong to the action is dropped; what it needs has to be there.
fn settle_action(fields: &mut Fields) -> Result<(), Refusal> {
    let needed = |name: &str| {
        let message = format!("Invalid L7 Policy arguments: {name} must not be None");
        Refusal::new(400, message)
    };
    let targets = ["redirect_url", "redirect_pool_id", "redirect_prefix"];
    let (own, code) = match text(fields, "action") {
        "REJECT" => (None, false),
        "REDIRECT_TO_URL" => (Some("redirect_url"), true),
        "REDIRECT_TO_POOL" => (Some("redirect_pool_id"), false),
        "REDIRECT_PREFIX" => (Some("redirect_prefix"), true),
        _ => return Ok(()),
    };
    if let Some(own) = own.filter(|own| text(fields, own).is_empty()) {
        return Err(needed(if own == "redirect_pool_id" {
            "redirect_pool_id or redirect_pool"
        } else {
            own
        }));
    }
    for other in targets.into_iter().filter(|it| Some(*it) != own) {
        fields.insert(other.to_owned(), Value::Null);
    }
    if !code {
        fields.insert("redirect_http_code".to_owned(), Value::Null);
    } else if fields.get("redirect_http_code").is_none_or(Value::is_null) {
        fields.insert("redirect_http_code".to_owned(), json!(302));
    }
    Ok(())
}

impl super::Octavia {
    /// Puts a policy at a place in its line; the others move.
    pub(super) fn stand(&mut self, listener: &str, id: &str, position: i64) {
        let mut line: Vec<String> = self.policies_of(listener).into_iter().map(|it| it.id.clone()).collect();
        line.retain(|it| it != id);
        let place = usize::try_from(position - 1).unwrap_or(0).min(line.len());
        line.insert(place, id.to_owned());
        self.number(&line);
    }

    /// Closes the gap that a policy left.
    pub(super) fn close_ranks(&mut self, listener: &str) {
        let line: Vec<String> = self.policies_of(listener).into_iter().map(|it| it.id.clone()).collect();
        self.number(&line);
    }

    fn number(&mut self, line: &[String]) {
        for (id, position) in line.iter().zip(1..) {
            if let Some(row) = self.policies.row_mut(id) {
                row.set("position", position);
            }
        }
    }
}
