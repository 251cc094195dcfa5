//! Listeners.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{
    balancers::no_traffic,
    invalid,
    kinds::{BALANCER, LISTENER, POOL},
    listing, not_found,
    providers::Provider,
    showing, tls,
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::{Fields, Row, text},
};

/// What is told of an option that was never given, and what null means in a change.
const PRESETS: [(&str, i64); 5] = [
    ("connection_limit", -1),
    ("timeout_client_data", 50_000),
    ("timeout_member_connect", 5_000),
    ("timeout_member_data", 50_000),
    ("timeout_tcp_inspect", 0),
];

const HEADERS: [&str; 6] = [
    "X-Forwarded-For",
    "X-Forwarded-Port",
    "X-Forwarded-Proto",
    "X-Forwarded-IP",
    "X-Client-IP",
    "X-Real-IP",
];

/// Which pools a listener may send to.
const SPEAKS: [(&str, &[&str]); 7] = [
    ("TCP", &["HTTP", "HTTPS", "PROXY", "PROXYV2", "TCP"]),
    ("HTTP", &["HTTP", "PROXY", "PROXYV2"]),
    ("HTTPS", &["HTTPS", "PROXY", "PROXYV2", "TCP"]),
    ("TERMINATED_HTTPS", &["HTTP", "PROXY", "PROXYV2"]),
    ("UDP", &["UDP"]),
    ("SCTP", &["SCTP"]),
    ("PROMETHEUS", &[]),
];

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    state.octavia.refuse_newer_fields(&LISTENER, request)?;
    let mut fields = LISTENER.created(request)?;
    let balancer =
        fields.remove("loadbalancer_id").and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default();
    let parent = state.octavia.owned(&BALANCER, &balancer, &request.caller)?.clone();
    let provider = Provider::of(&parent);
    state.spare(&LISTENER, &parent.project, 1, 0)?;
    let whole = fields.remove("default_pool").filter(|it| !it.is_null());
    fields.remove("l7policies");
    check_default_pool(state, &balancer, text(&fields, "protocol"), text(&fields, "default_pool_id"))?;
    state.octavia.must_be_free(&balancer)?;
    let vip = state.vips(&parent);
    prepare(state, &mut fields, &vip)?;
    check_guarded(&fields, &parent)?;
    check_duplicate(&fields, state.octavia.listeners.children(&balancer))?;
    if whole.is_some() {
        // Its attributes say that it could.
        return Err(Refusal::new(500, "'dict' object has no attribute '_sa_instance_state'"));
    }
    provider.check_listener(&fields)?;
    state.octavia.lock_below(&balancer, &[], &[], &state.now.bare())?;
    let row = state.new_pending(Some(&balancer), &parent.project, fields);
    let id = row.id.clone();
    state.octavia.listeners.put(row);
    state.began(&balancer);
    told(state, 201, &id)
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    state.octavia.refuse_newer_fields(&LISTENER, request)?;
    let mut changes = LISTENER.changed(request)?;
    let row = state.octavia.owned(&LISTENER, id, &request.caller)?.clone();
    let balancer = row.parent.clone().unwrap_or_default();
    let parent =
        state.octavia.balancers.row(&balancer).ok_or_else(|| not_found(BALANCER.title, &balancer))?.clone();
    let protocol = row.text("protocol");
    tls::check_change(state, &row, &changes)?;
    if let Some(headers) = changes.get("insert_headers") {
        check_headers(headers, protocol)?;
    }
    check_cidrs(&changes, &state.vips(&parent))?;
    check_guarded(&changes, &parent)?;
    set_presets(&mut changes);
    check_default_pool(state, &balancer, protocol, text(&changes, "default_pool_id"))?;
    state.octavia.must_be_free(&balancer)?;
    Provider::of(&parent).check_listener(&changes)?;
    state.octavia.lock_below(&balancer, std::slice::from_ref(id), &[], &state.now.bare())?;
    let lets_go = changes.get("default_pool_id").is_some_and(Value::is_null);
    state.changed_row(&LISTENER, id, changes);
    state.began(&balancer);
    if lets_go && Provider::of(&parent) == Provider::Ovn {
        state.octavia.hang(&balancer);
    }
    told(state, 200, id)
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let row = state.octavia.owned(&LISTENER, id, &request.caller)?;
    let balancer = row.parent.clone().unwrap_or_default();
    state.octavia.lock_below(&balancer, &[], &[(&LISTENER, id, "PENDING_DELETE")], &state.now.bare())?;
    state.began(&balancer);
    Ok(Reply::empty(204))
}

pub(super) fn statistics(state: &mut State, request: &Request) -> Answer {
    state.octavia.visible_object(&LISTENER, &request.at[0], &request.caller)?;
    Ok(no_traffic())
}

fn told(state: &State, status: u16, id: &str) -> Answer {
    let row = state.octavia.listeners.row(id).ok_or_else(|| not_found(LISTENER.title, id))?;
    Ok(Reply::one(status, LISTENER.one, showing::one(&state.octavia, &LISTENER, row)))
}

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    listing::list(state, request, &LISTENER, None)
}

/// Checks a new listener by itself, and fills in what was not given. `vips` are the balancer's addresses.
pub(super) fn prepare(state: &State, fields: &mut Fields, vips: &[IpAddr]) -> Result<(), Refusal> {
    let protocol = text(fields, "protocol").to_owned();
    if let Some(headers) = fields.get("insert_headers").filter(|it| !it.is_null()) {
        check_headers(headers, &protocol)?;
    }
    tls::check_new(state, fields)?;
    check_cidrs(fields, vips)?;
    if fields.get("hsts_max_age").is_some_and(Value::is_number) && protocol != "TERMINATED_HTTPS" {
        return Err(invalid(
            "The HSTS feature can only be used for listeners using the TERMINATED_HTTPS protocol.",
        ));
    }
    for (name, preset) in PRESETS {
        if fields.get(name).is_none_or(Value::is_null) {
            fields.insert(name.to_owned(), json!(preset));
        }
    }
    Ok(())
}

/// Null resets.
fn set_presets(changes: &mut Fields) {
    for (name, preset) in PRESETS {
        if changes.get(name).is_some_and(Value::is_null) {
            changes.insert(name.to_owned(), json!(preset));
        }
    }
    if changes.get("admin_state_up").is_some_and(Value::is_null) {
        changes.insert("admin_state_up".to_owned(), json!(false));
    }
}

fn check_headers(headers: &Value, protocol: &str) -> Result<(), Refusal> {
    let names: Vec<String> =
        headers.as_object().into_iter().flatten().map(|(name, _)| format!("'{name}'")).collect();
    if names.is_empty() {
        return Ok(());
    }
    if !["HTTP", "TERMINATED_HTTPS"].contains(&protocol) {
        let message = format!("insert-headers is not a valid option for a {protocol} protocol listener.");
        return Err(Refusal::new(400, message));
    }
    let is_known = |name: &&String| HEADERS.contains(&name.trim_matches('\'')) || name.starts_with("'X-SSL-");
    if !names.iter().all(|it| is_known(&it)) {
        let message = format!("dict_keys([{}]) is not a valid option for insert_headers", names.join(", "));
        return Err(Refusal::new(400, message));
    }
    Ok(())
}

/// Where the VIP has groups of the user, those say who may come.
fn check_guarded(fields: &Fields, balancer: &Row) -> Result<(), Refusal> {
    let has = |fields: &Fields, name: &str| {
        fields.get(name).and_then(Value::as_array).is_some_and(|it| !it.is_empty())
    };
    match has(fields, "allowed_cidrs") && has(&balancer.fields, "vip_sg_ids") {
        true => Err(invalid("Allowed CIDRs are not allowed when using custom VIP Security Groups.")),
        false => Ok(()),
    }
}

fn check_cidrs(fields: &Fields, vips: &[IpAddr]) -> Result<(), Refusal> {
    let cidrs =
        fields.get("allowed_cidrs").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for cidr in cidrs {
        if !vips.iter().any(|vip| vip.is_ipv6() == cidr.contains(':')) {
            let all: Vec<String> = vips.iter().map(|it| format!("'{it}'")).collect();
            return Err(invalid(format!(
                "CIDR {cidr} IP version incompatible with all VIPs [{}] IP version.",
                all.join(", ")
            )));
        }
    }
    Ok(())
}

/// A port is taken once for TCP and what runs on it, once for UDP, once for SCTP.
pub(super) fn check_duplicate<'r>(
    fields: &Fields,
    others: impl Iterator<Item = &'r Row>,
) -> Result<(), Refusal> {
    let layer4 = |protocol: &str| match protocol {
        "UDP" | "SCTP" => protocol.to_owned(),
        _ => "TCP".to_owned(),
    };
    let mut others = others;
    let twin = others.find(|it| {
        it.fields.get("protocol_port") == fields.get("protocol_port")
            && layer4(it.text("protocol")) == layer4(text(fields, "protocol"))
    });
    match twin {
        None => Ok(()),
        Some(twin) => {
            let message = format!(
                "Another Listener on this Load Balancer is already using protocol {} and protocol_port {}",
                twin.text("protocol"),
                fields["protocol_port"]
            );
            Err(Refusal::new(409, message))
        }
    }
}

fn check_default_pool(state: &State, balancer: &str, protocol: &str, pool: &str) -> Result<(), Refusal> {
    if pool.is_empty() {
        return Ok(());
    }
    no_children(protocol)?;
    let found = state.octavia.pools.row(pool).filter(|it| it.parent.as_deref() == Some(balancer));
    check_pool(protocol, found.ok_or_else(|| not_found(POOL.title, pool))?.text("protocol"))
}

pub(super) fn no_children(protocol: &str) -> Result<(), Refusal> {
    if protocol == "PROMETHEUS" {
        return Err(Refusal::new(400, "Protocol PROMETHEUS listeners cannot have child objects."));
    }
    Ok(())
}

pub(super) fn check_pool(listener: &str, pool: &str) -> Result<(), Refusal> {
    no_children(listener)?;
    let speaks = SPEAKS.iter().find(|(it, _)| *it == listener).map_or(&[][..], |(_, pools)| pools);
    if speaks.contains(&pool) {
        return Ok(());
    }
    Err(invalid(format!(
        "The pool protocol '{pool}' is invalid while the listener protocol is '{listener}'."
    )))
}

impl State {
    /// All addresses of a load balancer.
    pub(super) fn vips(&self, balancer: &Row) -> Vec<IpAddr> {
        let additional =
            balancer.fields.get("additional_vips").and_then(Value::as_array).into_iter().flatten();
        let additional = additional.filter_map(|it| it["ip_address"].as_str());
        std::iter::once(balancer.text("vip_address"))
            .chain(additional)
            .filter_map(|it| it.parse().ok())
            .collect()
    }
}
