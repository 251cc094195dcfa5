//! Which routes and allowed address pairs of a cloud are Seaway's, in one ConfigMap beside the Leases: written before they are made, so
//! that what crashes after that left nothing that is not known.
//!
//! Not at Nodes, for what a Node had must go when the Node is gone; not as tags of the router, for Neutron limits their number and
//! length, and two clusters may share a router. It is written by its version: who is deposed writes nothing over its successor.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, api::PostParams};
use seaway_model::Name;
use serde::{Deserialize, Serialize};

use crate::{
    api_error::ApiError,
    connect::{Cluster, MANAGER, RequestError},
};

/// The ConfigMap, beside the Leases.
pub const ROUTE_RECORDS: &str = "seaway-routes";
const ROUTES: &str = "routes";
const PAIRS: &str = "pairs";

/// All that is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteRecord {
    pub routes: BTreeSet<RecordedRoute>,
    pub pairs: BTreeSet<RecordedPair>,
}

/// A route of a router to a pod network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecordedRoute {
    pub router: Name,
    pub destination: IpNet,
    pub nexthop: IpAddr,
    /// Whose pod network it is.
    pub node: Name,
    /// `false`: it was there before Seaway needed it.
    pub made: bool,
}

/// An allowed address pair that Seaway added to a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecordedPair {
    pub port: Name,
    pub address: IpNet,
    pub node: Name,
}

/// The record as it was read, to be written by its version.
#[derive(Clone, Debug, Default)]
pub struct ReadRecord {
    pub record: RouteRecord,
    /// Empty: it is not there yet.
    pub version: String,
}

/// Reads and writes the ConfigMap.
pub struct RouteStore {
    cluster: Cluster,
}

impl RouteStore {
    pub fn new(cluster: Cluster) -> RouteStore {
        RouteStore { cluster }
    }

    pub async fn read(&self) -> Result<ReadRecord, RequestError> {
        match self.cluster.within_deadline(self.api().get(ROUTE_RECORDS)).await {
            Ok(map) => {
                let record = decoded(&map).map_err(RequestError)?;
                Ok(ReadRecord { record, version: map.metadata.resource_version.unwrap_or_default() })
            }
            Err(ApiError::NotFound) => Ok(ReadRecord::default()),
            Err(answer) => Err(RequestError(answer)),
        }
    }

    /// As long as it is the one of this version; its version then.
    pub async fn write(&self, record: &RouteRecord, version: &str) -> Result<String, RequestError> {
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let metadata = ObjectMeta {
            name: Some(ROUTE_RECORDS.to_owned()),
            resource_version: Some(version.to_owned()).filter(|it| !it.is_empty()),
            ..ObjectMeta::default()
        };
        let map = ConfigMap { metadata, data: Some(encoded(record)), ..ConfigMap::default() };
        let api = self.api();
        let written = match version.is_empty() {
            true => self.cluster.within_deadline(api.create(&parameters, &map)).await,
            false => self.cluster.within_deadline(api.replace(ROUTE_RECORDS, &parameters, &map)).await,
        };
        written.map(|it| it.metadata.resource_version.unwrap_or_default()).map_err(RequestError)
    }

    fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.cluster.client(), self.cluster.namespace())
    }
}

fn encoded(record: &RouteRecord) -> BTreeMap<String, String> {
    // A line each: an operator reads and edits it.
    fn lines<T: Serialize>(all: &BTreeSet<T>) -> String {
        let line = |it: &T| serde_json::json!(it).to_string();
        format!("[\n{}\n]\n", all.iter().map(line).collect::<Vec<_>>().join(",\n"))
    }
    [(ROUTES.to_owned(), lines(&record.routes)), (PAIRS.to_owned(), lines(&record.pairs))].into()
}

/// What cannot be read is an error: without it, it is not known what is Seaway's.
fn decoded(map: &ConfigMap) -> Result<RouteRecord, ApiError> {
    let text = |key: &str| map.data.as_ref().and_then(|it| it.get(key)).map_or("[]", String::as_str);
    let wrong = |key: &str, error: &serde_json::Error| {
        ApiError::Conflict(format!(
            "data.{key} of the ConfigMap {ROUTE_RECORDS} is not what Seaway wrote: {error}"
        ))
    };
    Ok(RouteRecord {
        routes: serde_json::from_str(text(ROUTES)).map_err(|error| wrong(ROUTES, &error))?,
        pairs: serde_json::from_str(text(PAIRS)).map_err(|error| wrong(PAIRS, &error))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(nodes: u32) -> RouteRecord {
        let net = |it: u32| {
            IpNet::new(std::net::Ipv4Addr::from(0x0a00_0000 + (it << 8)).into(), 24).expect("it is")
        };
        let name = |it: u32| Name::from(format!("node-{it:020}.region.example"));
        let id = Name::from("5f2f4b1c-0000-4000-8000-000000000000");
        let route = |it| RecordedRoute {
            router: id.clone(),
            destination: net(it),
            nexthop: net(it).addr(),
            node: name(it),
            made: true,
        };
        let pair = |it| RecordedPair { port: id.clone(), address: net(it), node: name(it) };
        RouteRecord { routes: (0..nodes).map(route).collect(), pairs: (0..nodes).map(pair).collect() }
    }

    #[test]
    fn what_is_written_is_read_and_what_is_broken_is_an_error() {
        let map = |data| ConfigMap { data: Some(data), ..ConfigMap::default() };
        for all in [record(0), record(3)] {
            assert_eq!(decoded(&map(encoded(&all))).ok(), Some(all));
        }
        assert_eq!(decoded(&ConfigMap::default()).ok(), Some(RouteRecord::default()));
        for broken in ["", "{", "[{}]", "7"] {
            assert!(decoded(&map([(ROUTES.to_owned(), broken.to_owned())].into())).is_err(), "{broken}");
        }
    }

    #[test]
    fn routes_of_two_thousand_nodes_fit_into_an_object() {
        let size: usize = encoded(&record(2_000)).iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(size < 900 * 1_024, "{size} bytes of a mebibyte");
    }
}
