//! Health monitors.

use serde_json::{Value, json};

use super::{
    invalid,
    kinds::{BALANCER, MONITOR, POOL},
    listing, not_found,
    providers::Provider,
    showing,
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::{Fields, Row, text},
};

/// What only checks by HTTP have, with what it is where nothing is said.
const HTTP_ONLY: [(&str, &str); 3] = [("http_method", "GET"), ("url_path", "/"), ("expected_codes", "200")];
const LEAST_UDP_DELAY: i64 = 3;

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    listing::list(state, request, &MONITOR, None)
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let mut fields = MONITOR.created(request)?;
    let pool = fields.remove("pool_id").and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default();
    let pool = state.octavia.owned(&POOL, &pool, &request.caller)?.clone();
    let (balancer, provider) = parent(state, &pool)?;
    check_protocol(&fields, pool.text("protocol"))?;
    state.spare(&MONITOR, &pool.project, 1, 0)?;
    is_free(state, &pool, &balancer)?;
    prepare(&mut fields)?;
    if state.octavia.monitors.children(&pool.id).next().is_some() {
        return Err(Refusal::new(409, "This pool already has a health monitor"));
    }
    provider.check_monitor(&fields)?;
    lock(state, &pool, &balancer)?;
    let row = state.new_pending(Some(&pool.id), &pool.project, fields);
    let id = row.id.clone();
    state.octavia.monitors.put(row);
    told(state, 201, &id)
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let mut changes = MONITOR.changed(request)?;
    let row = state.octavia.owned(&MONITOR, id, &request.caller)?.clone();
    let pool = row.parent.clone().unwrap_or_default();
    let pool = state.octavia.pools.row(&pool).cloned().ok_or_else(|| not_found(POOL.title, &pool))?;
    check_change(&row, &changes)?;
    if ["UDP", "SCTP"].contains(&pool.text("protocol")) {
        let mut as_new = changes.clone();
        as_new.insert("type".to_owned(), row.fields["type"].clone());
        check_protocol(&as_new, pool.text("protocol"))?;
    }
    let (balancer, _) = parent(state, &pool)?;
    is_free(state, &pool, &balancer)?;
    lock(state, &pool, &balancer)?;
    for (name, preset) in HTTP_ONLY {
        if changes.get(name).is_some_and(Value::is_null) {
            changes.insert(name.to_owned(), json!(preset));
        }
    }
    if changes.get("max_retries_down").is_some_and(Value::is_null) {
        changes.insert("max_retries_down".to_owned(), json!(3));
    }
    state.changed_row(&MONITOR, id, changes);
    told(state, 200, id)
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let row = state.octavia.owned(&MONITOR, id, &request.caller)?;
    let pool = row.parent.clone().unwrap_or_default();
    let pool = state.octavia.pools.row(&pool).cloned().ok_or_else(|| not_found(POOL.title, &pool))?;
    let (balancer, _) = parent(state, &pool)?;
    is_free(state, &pool, &balancer)?;
    lock(state, &pool, &balancer)?;
    state.octavia.set_status(&MONITOR, id, "PENDING_DELETE");
    Ok(Reply::empty(204))
}

fn told(state: &State, status: u16, id: &str) -> Answer {
    let row = state.octavia.monitors.row(id).ok_or_else(|| not_found(MONITOR.title, id))?;
    Ok(Reply::one(status, MONITOR.one, showing::one(&state.octavia, &MONITOR, row)))
}

fn parent(state: &State, pool: &Row) -> Result<(String, Provider), Refusal> {
    let id = pool.parent.clone().unwrap_or_default();
    let row = state.octavia.balancers.row(&id).ok_or_else(|| not_found(BALANCER.title, &id))?;
    Ok((id, Provider::of(row)))
}

fn is_free(state: &State, pool: &Row, balancer: &str) -> Result<(), Refusal> {
    state.octavia.must_be_active(&POOL, &pool.id)?;
    state.octavia.must_be_free(balancer)
}

fn lock(state: &mut State, pool: &Row, balancer: &str) -> Result<(), Refusal> {
    let listeners: Vec<String> = state.octavia.listeners_of(pool).iter().map(|it| it.id.clone()).collect();
    let pool = [(&POOL, pool.id.as_str(), "PENDING_UPDATE")];
    state.octavia.lock_below(balancer, &listeners, &pool, &state.now.bare())?;
    state.began(balancer);
    Ok(())
}

/// Which checks go with which pools.
pub(super) fn check_protocol(fields: &Fields, pool: &str) -> Result<(), Refusal> {
    let kind = text(fields, "type");
    let is_datagrams = ["UDP", "SCTP"].contains(&pool);
    if is_datagrams && !["UDP-CONNECT", "SCTP", "TCP", "HTTP"].contains(&kind) {
        return Err(invalid(format!(
            "The associated pool protocol is {pool}, so only a UDP-CONNECT/SCTP/TCP/HTTP health monitor is supported."
        )));
    }
    let delay = fields.get("delay").and_then(Value::as_i64);
    if let Some(delay) = delay.filter(|it| is_datagrams && kind == "UDP-CONNECT" && *it < LEAST_UDP_DELAY) {
        return Err(invalid(format!(
            "The request delay value {delay} should be larger than {LEAST_UDP_DELAY} for UDP-CONNECT health monitor type."
        )));
    }
    if !is_datagrams && ["UDP-CONNECT", "SCTP"].contains(&kind) {
        return Err(invalid(format!("The {kind} type is only supported for pools of type UDP/SCTP.")));
    }
    Ok(())
}

/// Checks a new monitor by itself, and fills in what was not given.
pub(super) fn prepare(fields: &mut Fields) -> Result<(), Refusal> {
    let kind = text(fields, "type").to_owned();
    let is_http = ["HTTP", "HTTPS"].contains(&kind.as_str());
    for (name, preset) in HTTP_ONLY {
        let is_given = fields.get(name).is_some_and(|it| !it.is_null());
        if is_given && !is_http {
            return Err(http_only(name, &kind));
        }
        if !is_given && is_http {
            fields.insert(name.to_owned(), json!(preset));
        }
    }
    check_version(text(fields, "domain_name"), fields.get("http_version"))
}

fn check_change(row: &Row, changes: &Fields) -> Result<(), Refusal> {
    let kind = row.text("type");
    if !["HTTP", "HTTPS"].contains(&kind) {
        for (name, _) in HTTP_ONLY {
            if changes.contains_key(name) {
                return Err(http_only(name, kind));
            }
        }
    }
    for name in ["delay", "max_retries", "timeout"] {
        if changes.get(name).is_some_and(Value::is_null) {
            return Err(Refusal::new(400, format!("None is not a valid option for {name}")));
        }
    }
    let domain = if text(changes, "domain_name").is_empty() {
        row.text("domain_name")
    } else {
        text(changes, "domain_name")
    };
    check_version(domain, changes.get("http_version").or_else(|| row.fields.get("http_version")))
}

fn check_version(domain: &str, version: Option<&Value>) -> Result<(), Refusal> {
    if domain.is_empty() {
        return Ok(());
    }
    match version.and_then(Value::as_f64) {
        None => Err(invalid("'http_version' must be specified when 'domain_name' is provided.")),
        Some(version) if version < 1.1 => Err(Refusal::new(
            400,
            format!(
                "http_version {version:.1} is not a valid option for health monitors HTTP 1.1 domain name health check"
            ),
        )),
        Some(_) => Ok(()),
    }
}

fn http_only(name: &str, kind: &str) -> Refusal {
    Refusal::new(400, format!("{name} is not a valid option for health monitors of type {kind}"))
}
