//! A load balancer with what is below it and their statuses, as one reply tells them; and what has flowed through it.
//! Octavia leaves layer 7 policies out.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::{HealthMonitor, Listener, LoadBalancer, Member, MonitorType, Operating, Pool, Provisioning};
use crate::{
    Error, Reply, Service,
    resource::{FieldError, Id, UnknownFields, or_default, unexpected_reply},
};

/// A status tree: one call, however many members there are.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename = "Tree")]
pub struct StatusTree {
    pub id: Id<LoadBalancer>,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub provisioning_status: Provisioning,
    #[serde(default, deserialize_with = "or_default")]
    pub operating_status: Operating,
    #[serde(default, deserialize_with = "or_default")]
    pub listeners: Vec<TreeListener>,
    /// Those that no listener has.
    #[serde(default, deserialize_with = "or_default")]
    pub pools: Vec<TreePool>,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TreeListener {
    pub id: Id<Listener>,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub provisioning_status: Provisioning,
    #[serde(default, deserialize_with = "or_default")]
    pub operating_status: Operating,
    #[serde(default, deserialize_with = "or_default")]
    pub pools: Vec<TreePool>,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TreePool {
    pub id: Id<Pool>,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub provisioning_status: Provisioning,
    #[serde(default, deserialize_with = "or_default")]
    pub operating_status: Operating,
    /// LBaaS writes it in one word.
    #[serde(default, alias = "healthmonitor", deserialize_with = "monitor_or_none")]
    pub health_monitor: Option<TreeMonitor>,
    #[serde(default, deserialize_with = "or_default")]
    pub members: Vec<TreeMember>,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TreeMember {
    pub id: Id<Member>,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(default)]
    pub address: Option<IpAddr>,
    #[serde(default)]
    pub protocol_port: Option<u16>,
    #[serde(default, deserialize_with = "or_default")]
    pub provisioning_status: Provisioning,
    #[serde(default, deserialize_with = "or_default")]
    pub operating_status: Operating,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TreeMonitor {
    pub id: Id<HealthMonitor>,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(rename = "type", default, deserialize_with = "or_default")]
    pub kind: MonitorType,
    #[serde(default, deserialize_with = "or_default")]
    pub provisioning_status: Provisioning,
    #[serde(default, deserialize_with = "or_default")]
    pub operating_status: Operating,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

/// What has flowed, as far as the provider counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Statistics {
    #[serde(default, deserialize_with = "or_default")]
    pub active_connections: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub total_connections: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub bytes_in: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub bytes_out: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub request_errors: u64,
}

pub(crate) fn read_tree(mut reply: Reply) -> Result<StatusTree, Error> {
    let tree = reply.body.pointer_mut("/statuses/loadbalancer").map(Value::take).unwrap_or_default();
    serde_json::from_value(tree).map_err(|error| wrong("read status tree", "statuses", &error))
}

pub(crate) fn read_statistics(mut reply: Reply) -> Result<Statistics, Error> {
    let stats = reply.body.get_mut("stats").map(Value::take).unwrap_or_default();
    serde_json::from_value(stats).map_err(|error| wrong("read statistics", "stats", &error))
}

fn wrong(doing: &'static str, field: &str, error: &serde_json::Error) -> Error {
    unexpected_reply(
        Service::LoadBalancer,
        doing,
        &FieldError { field: field.to_owned(), why: error.to_string() },
    )
}

/// A pool without a monitor has `null`, `{}` or nothing, each by another version.
fn monitor_or_none<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<TreeMonitor>, D::Error> {
    let value = Value::deserialize(from)?;
    if value.get("id").is_none() {
        return Ok(None);
    }
    serde_json::from_value(value).map(Some).map_err(serde::de::Error::custom)
}
