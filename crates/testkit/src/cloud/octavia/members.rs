//! Members, one by one and as a batch.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{
    forbidden, invalid,
    kinds::{BALANCER, MEMBER, POOL},
    listing, may_read, may_write, not_found,
    providers::Provider,
    showing,
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::{Fields, Row, text},
};

/// Metadata services answer there.
const RESERVED: &str = "169.254.169.254";

/// A pool with its load balancer.
struct Home {
    pool: Row,
    balancer: Row,
    provider: Provider,
}

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    let pool = home(state, request)?.pool;
    if !may_read(&request.caller, &pool.project) {
        return Err(forbidden());
    }
    listing::list(state, request, &MEMBER, Some(&pool.id))
}

pub(super) fn show(state: &mut State, request: &Request) -> Answer {
    let home = home(state, request)?;
    let row = state.octavia.visible_object(&MEMBER, &request.at[1], &request.caller)?;
    if row.parent.as_deref() != Some(&home.pool.id) {
        return Err(not_found(MEMBER.title, &request.at[1]));
    }
    listing::show(state, request, &MEMBER, &request.at[1])
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let home = home(state, request)?;
    let fields = MEMBER.created(request)?;
    if !may_write(&request.caller, &home.balancer.project) {
        return Err(forbidden());
    }
    check_address(&fields)?;
    if !text(&fields, "subnet_id").is_empty() {
        state.check_subnet(text(&fields, "subnet_id"), &request.caller)?;
    }
    state.spare(&MEMBER, &home.balancer.project, 1, 0)?;
    is_free(state, &home)?;
    let is_watched = state.octavia.monitors.children(&home.pool.id).next().is_some();
    let row = state.member_row(fields, &home.pool.id, &home.balancer.project, is_watched);
    if row.key.as_ref().is_some_and(|key| state.octavia.members.with_key(key).is_some()) {
        return Err(duplicate(&row.fields));
    }
    home.provider.check_member(&row.fields, &state.vip_of(&home.balancer), false)?;
    lock(state, &home)?;
    let id = row.id.clone();
    state.octavia.members.put(row);
    told(state, 201, &id)
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let home = home(state, request)?;
    let id = &request.at[1];
    let mut changes = MEMBER.changed(request)?;
    let row = state.octavia.owned(&MEMBER, id, &request.caller)?;
    if row.parent.as_deref() != Some(&home.pool.id) {
        return Err(not_found(MEMBER.title, id));
    }
    for (name, preset) in [("weight", json!(1)), ("backup", json!(false)), ("admin_state_up", json!(false))] {
        if changes.get(name).is_some_and(Value::is_null) {
            changes.insert(name.to_owned(), preset);
        }
    }
    is_free(state, &home)?;
    let monitoring: Fields = changes
        .iter()
        .filter(|(name, _)| name.starts_with("monitor_"))
        .map(|(a, b)| (a.clone(), b.clone()))
        .collect();
    home.provider.check_member(&monitoring, &state.vip_of(&home.balancer), false).or_else(only_monitoring)?;
    lock(state, &home)?;
    state.changed_row(&MEMBER, id, changes);
    told(state, 200, id)
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let home = home(state, request)?;
    let id = &request.at[1];
    let row = state.octavia.owned(&MEMBER, id, &request.caller)?;
    if row.parent.as_deref() != Some(&home.pool.id) {
        return Err(not_found(MEMBER.title, id));
    }
    is_free(state, &home)?;
    lock(state, &home)?;
    state.octavia.set_status(&MEMBER, id, "PENDING_DELETE");
    Ok(Reply::empty(204))
}

/// All members at once: those that are not named go, unless it is only to add.
pub(super) fn replace(state: &mut State, request: &Request) -> Answer {
    let home = home(state, request)?;
    let wanted = MEMBER.created_many(request)?;
    if !may_write(&request.caller, &home.balancer.project) {
        return Err(forbidden());
    }
    let additive =
        request.param("additive_only").is_some_and(|it| ["true", "1", "t"].contains(&&*it.to_lowercase()));
    is_free(state, &home)?;
    let (pool, project) = (home.pool.id.clone(), home.balancer.project.clone());
    let is_watched = state.octavia.monitors.children(&pool).next().is_some();
    let (mut fresh, mut known, mut named) = (Vec::new(), Vec::new(), HashSet::new());
    for fields in wanted {
        let key = key(&pool, &fields);
        let is_new = named.insert(key.clone());
        match state.octavia.members.with_key(&key).map(|it| it.id.clone()) {
            Some(_) if !is_new => {
                return Err(invalid("Member must be updated only once in the same request."));
            }
            Some(id) => known.push((id, fields)),
            None => {
                check_address(&fields)?;
                fresh.push((is_new, fields));
            }
        }
    }
    let gone: Vec<String> = if additive {
        Vec::new()
    } else {
        let is_gone = |it: &&Row| it.key.as_ref().is_none_or(|key| !named.contains(key));
        state.octavia.members.children(&pool).filter(is_gone).map(|it| it.id.clone()).collect()
    };
    if fresh.is_empty() && known.is_empty() && gone.is_empty() {
        return Ok(Reply::empty(202));
    }
    state.spare(&MEMBER, &project, fresh.len().saturating_sub(gone.len()), 0)?;
    for (_, fields) in &fresh {
        if !text(fields, "subnet_id").is_empty() {
            state.check_subnet(text(fields, "subnet_id"), &request.caller)?;
        }
    }
    if let Some((_, twin)) = fresh.iter().find(|(is_new, _)| !is_new) {
        return Err(duplicate(twin));
    }
    let vip = state.vip_of(&home.balancer);
    for fields in fresh.iter().map(|(_, it)| it).chain(known.iter().map(|(_, it)| it)) {
        home.provider.check_member(fields, &vip, true)?;
    }
    lock(state, &home)?;
    let changes = !fresh.is_empty() || !known.is_empty();
    for (_, fields) in fresh {
        let row = state.member_row(fields, &pool, &project, is_watched);
        state.octavia.members.put(row);
    }
    for (id, mut fields) in known {
        for fixed in ["address", "protocol_port", "request_sriov"] {
            fields.remove(fixed);
        }
        state.changed_row(&MEMBER, &id, fields);
    }
    for id in &gone {
        state.octavia.set_status(&MEMBER, id, "PENDING_DELETE");
    }
    if home.provider == Provider::Ovn && changes {
        state.octavia.delay(&home.balancer.id, &MEMBER, &gone);
    }
    Ok(Reply::empty(202))
}

fn home(state: &State, request: &Request) -> Result<Home, Refusal> {
    let id = &request.at[0];
    // What looks for the pool is not what answers for members, and has words of its own.
    let lost = || Refusal::of(404, "lookup", format!("{} {id} not found.", POOL.title));
    let pool = state.octavia.pools.row(id).cloned().ok_or_else(lost)?;
    let balancer = pool.parent.clone().unwrap_or_default();
    let balancer = state
        .octavia
        .balancers
        .row(&balancer)
        .cloned()
        .ok_or_else(|| not_found(BALANCER.title, &balancer))?;
    let provider = Provider::of(&balancer);
    Ok(Home { pool, balancer, provider })
}

fn is_free(state: &State, home: &Home) -> Result<(), Refusal> {
    state.octavia.must_be_active(&POOL, &home.pool.id)?;
    state.octavia.must_be_free(&home.balancer.id)
}

fn lock(state: &mut State, home: &Home) -> Result<(), Refusal> {
    let listeners: Vec<String> =
        state.octavia.listeners_of(&home.pool).iter().map(|it| it.id.clone()).collect();
    let pool = [(&POOL, home.pool.id.as_str(), "PENDING_UPDATE")];
    state.octavia.lock_below(&home.balancer.id, &listeners, &pool, &state.now.bare())?;
    state.began(&home.balancer.id);
    Ok(())
}

fn told(state: &State, status: u16, id: &str) -> Answer {
    let row = state.octavia.members.row(id).ok_or_else(|| not_found(MEMBER.title, id))?;
    Ok(Reply::one(status, MEMBER.one, showing::one(&state.octavia, &MEMBER, row)))
}

fn check_address(fields: &Fields) -> Result<(), Refusal> {
    let address = text(fields, "address");
    if address == RESERVED {
        return Err(Refusal::new(400, format!("{address} is not a valid option for member address")));
    }
    Ok(())
}

/// A change names no address and no subnet, which is no fault of it.
fn only_monitoring(refusal: Refusal) -> Result<(), Refusal> {
    if refusal.message.contains("monitor") { Err(refusal) } else { Ok(()) }
}

pub(super) fn duplicate(fields: &Fields) -> Refusal {
    let message = format!(
        "Another member on this pool is already using ip {} on protocol_port {}",
        text(fields, "address"),
        fields["protocol_port"]
    );
    Refusal::new(409, message)
}

fn key(pool: &str, fields: &Fields) -> String {
    format!("{pool} {} {}", text(fields, "address"), fields["protocol_port"])
}

impl State {
    pub(super) fn member_row(
        &mut self,
        mut fields: Fields,
        pool: &str,
        project: &str,
        is_watched: bool,
    ) -> Row {
        fields.remove("request_sriov");
        fields.insert("vnic_type".to_owned(), json!("normal"));
        let mut row = self.new_pending(Some(pool), project, fields);
        row.key = Some(key(pool, &row.fields));
        row.set("operating_status", if is_watched { "OFFLINE" } else { "NO_MONITOR" });
        row
    }
}
