//! Rules of L7 policies.

use super::{
    kinds::{POLICY, RULE},
    listing, not_found,
    policies::{listener_of, parent},
    showing,
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::{Fields, Row, text},
};

const MOST: usize = 50;

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    let policy = home(state, request)?;
    state.may_see(&policy, request)?;
    listing::list(state, request, &RULE, Some(&policy.id))
}

pub(super) fn show(state: &mut State, request: &Request) -> Answer {
    home(state, request)?;
    listing::show(state, request, &RULE, &request.at[1])
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let policy = home(state, request)?;
    let fields = RULE.created(request)?;
    state.octavia.owned(&POLICY, &policy.id, &request.caller)?;
    prepare(&fields)?;
    if state.octavia.rules.children(&policy.id).count() >= MOST {
        return Err(Refusal::new(409, format!("Too many rules on L7 policy {}", policy.id)));
    }
    state.spare(&RULE, &policy.project, 1, 0)?;
    lock(state, &policy)?;
    let row = state.new_pending(Some(&policy.id), &policy.project, fields);
    let id = row.id.clone();
    state.octavia.rules.put(row);
    told(state, 201, &id)
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let policy = home(state, request)?;
    let id = &request.at[1];
    let changes = RULE.changed(request)?;
    let row = state.octavia.owned(&RULE, id, &request.caller)?;
    let mut whole = row.fields.clone();
    whole.extend(changes.clone());
    prepare(&whole)?;
    lock(state, &policy)?;
    state.changed_row(&RULE, id, changes);
    told(state, 200, id)
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let policy = home(state, request)?;
    let id = &request.at[1];
    state.octavia.owned(&RULE, id, &request.caller)?;
    lock(state, &policy)?;
    state.octavia.set_status(&RULE, id, "PENDING_DELETE");
    Ok(Reply::empty(204))
}

fn told(state: &State, status: u16, id: &str) -> Answer {
    let row = state.octavia.rules.row(id).ok_or_else(|| not_found(RULE.title, id))?;
    Ok(Reply::one(status, RULE.one, showing::one(&state.octavia, &RULE, row)))
}

fn home(state: &State, request: &Request) -> Result<Row, Refusal> {
    let id = &request.at[0];
    let found = state.octavia.policies.row(id).cloned();
    found.ok_or_else(|| Refusal::of(404, "lookup", format!("L7Policy {id} not found.")))
}

fn lock(state: &mut State, policy: &Row) -> Result<(), Refusal> {
    let listener = listener_of(state, policy)?;
    let (balancer, _) = parent(state, &listener)?;
    state.octavia.must_be_active(&POLICY, &policy.id)?;
    let policy = [(&POLICY, policy.id.as_str(), "PENDING_UPDATE")];
    state.octavia.lock_below(&balancer, &[listener.id], &policy, &state.now.bare())?;
    state.began(&balancer);
    Ok(())
}

/// Checks a rule by itself.
pub(super) fn prepare(fields: &Fields) -> Result<(), Refusal> {
    let bad = |message: &str| Err(Refusal::new(400, format!("Error parsing L7Rule: {message}")));
    let (kind, compare, value) = (text(fields, "type"), text(fields, "compare_type"), text(fields, "value"));
    if ["HEADER", "COOKIE"].contains(&kind) && text(fields, "key").is_empty() {
        return bad("Invalid L7 Rule: L7 rule type requires a key");
    }
    if kind == "FILE_TYPE" && !["REGEX", "EQUAL_TO"].contains(&compare) {
        return bad("Invalid L7 Rule: invalid comparison type for rule type");
    }
    // As much of Python's regular expressions as tests need.
    if compare == "REGEX" && value.matches('(').count() > value.matches(')').count() {
        let at = value.find('(').unwrap_or(0);
        return bad(&format!(
            "Unable to parse regular expression: missing ), unterminated subpattern at position {at}"
        ));
    }
    Ok(())
}
