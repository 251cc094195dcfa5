//! The status tree: all below a load balancer, with nothing but states.

use serde_json::{Value, json};

use super::Octavia;
use crate::cloud::store::Row;

pub(super) fn of(octavia: &Octavia, balancer: &Row) -> Value {
    let listeners: Vec<Value> =
        octavia.listeners.children(&balancer.id).map(|it| listener(octavia, it)).collect();
    with(balancer, "listeners", listeners.into())
}

fn listener(octavia: &Octavia, row: &Row) -> Value {
    let balancer = row.parent.as_deref().unwrap_or_default();
    let uses = |pool: &&Row| octavia.listeners_of(pool).iter().any(|it| it.id == row.id);
    let pools: Vec<Value> =
        octavia.pools.children(balancer).filter(uses).map(|it| pool(octavia, it)).collect();
    with(row, "pools", pools.into())
}

fn pool(octavia: &Octavia, row: &Row) -> Value {
    let members: Vec<Value> = octavia.members.children(&row.id).map(member).collect();
    let mut told = with(row, "members", members.into());
    if let Some(monitor) = octavia.monitors.children(&row.id).next() {
        told["health_monitor"] = with(monitor, "type", monitor.fields["type"].clone());
    }
    told
}

fn member(row: &Row) -> Value {
    let mut told = with(row, "address", row.fields["address"].clone());
    told["protocol_port"] = row.fields["protocol_port"].clone();
    told
}

fn with(row: &Row, name: &str, value: Value) -> Value {
    let mut told = json!({
        "id": row.id,
        "name": row.text("name"),
        "operating_status": row.text("operating_status"),
        "provisioning_status": row.text("provisioning_status"),
    });
    told[name] = value;
    told
}
