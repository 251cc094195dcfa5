//! How much a project may have. Octavia and Neutron keep quotas alike.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Call, Cloud, Error, Method, Service,
    resource::{FieldError, encoded, or_default, unexpected_reply},
};

/// Limits by the service's own words (`load_balancer`, `floatingip`); -1 is none.
pub type Limits = BTreeMap<String, i64>;

/// Kinds whose quotas are Octavia's own; all others are Neutron's.
const OF_OCTAVIA: [&str; 6] = ["load balancer", "listener", "pool", "member", "health monitor", "l7 policy"];

/// By which command one is raised, of one kind in a human's words, of one or of many.
pub(crate) fn command(what: &str) -> &'static str {
    match OF_OCTAVIA.contains(&what.strip_suffix('s').unwrap_or(what)) {
        true => "openstack loadbalancer quota set",
        false => "openstack quota set",
    }
}

/// What Neutron tells of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Usage {
    #[serde(default, deserialize_with = "or_default")]
    pub limit: i64,
    #[serde(default, deserialize_with = "or_default")]
    pub used: u64,
    /// By requests that are being worked on.
    #[serde(default, deserialize_with = "or_default")]
    pub reserved: u64,
}

/// The quotas of one service, for one project.
pub struct Quotas<'a> {
    cloud: &'a Cloud,
    service: Service,
    path: String,
}

impl Cloud {
    pub fn load_balancer_quotas(&self, project: &str) -> Quotas<'_> {
        let path = format!("/lbaas/quotas/{}", encoded(project));
        Quotas { cloud: self, service: Service::LoadBalancer, path }
    }

    pub fn network_quotas(&self, project: &str) -> Quotas<'_> {
        Quotas { cloud: self, service: Service::Network, path: format!("/quotas/{}", encoded(project)) }
    }
}

impl Quotas<'_> {
    pub async fn read(&self) -> Result<Limits, Error> {
        let call = Call::new(self.service, Method::GET, "read quota", &self.path);
        limits(self.service, self.cloud.call(call).await?.body)
    }

    /// Limits and use in one. Neutron alone has it, and not each of its versions.
    pub async fn details(&self) -> Result<BTreeMap<String, Usage>, Error> {
        let path = format!("{}/details.json", self.path);
        let call = Call::new(self.service, Method::GET, "read quota details", path);
        usage(self.service, self.cloud.call(call).await?.body)
    }

    /// Sets those that are named.
    pub async fn change(&self, limits: &Limits) -> Result<(), Error> {
        let call = Call::new(self.service, Method::PUT, "change quota", &self.path);
        self.cloud.call(call.body(json!({ "quota": limits }))).await.map(drop)
    }

    /// Back to what the operator gives everybody.
    pub async fn reset(&self) -> Result<(), Error> {
        let call = Call::new(self.service, Method::DELETE, "reset quota", &self.path);
        match self.cloud.call(call).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

pub(crate) fn limits(service: Service, mut body: Value) -> Result<Limits, Error> {
    match body.get_mut("quota").map(Value::take) {
        // The project's id stands beside the numbers, and an unset one is null.
        Some(Value::Object(quota)) => {
            Ok(quota.into_iter().filter_map(|(what, limit)| Some((what, limit.as_i64()?))).collect())
        }
        _ => Err(no_quota(service)),
    }
}

pub(crate) fn usage(service: Service, mut body: Value) -> Result<BTreeMap<String, Usage>, Error> {
    match body.get_mut("quota").map(Value::take) {
        Some(Value::Object(quota)) => Ok(quota
            .into_iter()
            .filter_map(|(what, usage)| Some((what, serde_json::from_value(usage).ok()?)))
            .collect()),
        _ => Err(no_quota(service)),
    }
}

fn no_quota(service: Service) -> Error {
    unexpected_reply(
        service,
        "read quota",
        &FieldError { field: "quota".to_owned(), why: "is not an object".to_owned() },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_quota_are_read_and_whatever_stands_beside_them_is_not() {
        let body = json!({"quota": {"load_balancer": -1, "pool": 10, "l7rule": null, "project_id": "p"}});
        let read = limits(Service::LoadBalancer, body).expect("a quota");
        assert_eq!(read, Limits::from([("load_balancer".to_owned(), -1), ("pool".to_owned(), 10)]));
        let body = json!({"quota": {"port": {"limit": 5, "used": 5, "reserved": 0}, "new": 7}});
        let read = usage(Service::Network, body).expect("a quota");
        assert_eq!(read["port"], Usage { limit: 5, used: 5, reserved: 0 });
        for strange in [json!(null), json!({"quota": []}), json!({})] {
            assert!(limits(Service::Network, strange.clone()).is_err());
            assert!(usage(Service::Network, strange).is_err());
        }
    }
}
