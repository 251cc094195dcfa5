//! What must outlive a process and a leader, in one ConfigMap: deletions that were seen, those that are counted (limit.rs); and
//! for people, what is left as it is.
//!
//! ```text
//!     data.deletions   {"<uid>": 1763838000, …}   seconds; a day's, 5,000 at most
//!     data.orphans     ["default/shop …", …]      the first hundred
//!     data.released    {"<uid>": "default/shop …", …}   load balancers of Services that no setting gives to the cloud; 500
//!     data.adoption    ["212 of 300 …", …]        how far adoption is, and Services that wait
//!     data.heartbeats  ["5f3a0c11.7", …]          the last that were sent into the cloud (heartbeats.rs)
//! ```
//! Written by the leader alone, by its version, so that who is deposed writes nothing over its successor.

mod heartbeats;
mod limit;

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, api::PostParams};
use seaway_model::{Deletion, Name, Time};

use crate::{
    api_error::{ApiError, INSTALL},
    connect::{Cluster, MANAGER, RequestError},
    lease::Leadership,
};

/// The ConfigMap, beside the Leases.
pub const RECORDS: &str = "seaway-deletions";
const DELETIONS: &str = "deletions";
const ORPHANS: &str = "orphans";
const RELEASED: &str = "released";
const ADOPTION: &str = "adoption";
/// At most so many orphans, and so many lines of adoption, are written: what people read need not be complete.
pub const MAX_LINES: usize = 100;
/// So many Services that are released are named.
pub const MAX_RELEASED: usize = 500;
/// Others write the same object.
const TRIES: u32 = 5;

/// What the leader keeps for the next leader and for `kubectl seaway`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderRecords {
    pub deletions: Vec<Deletion>,
    /// A line each.
    pub orphans: Vec<String>,
    /// Load balancers that are left as they are, for no setting wants them; by the UID of the Service, a line each.
    pub released: BTreeMap<Name, String>,
    /// How far adoption is; a line each.
    pub adoption: Vec<String>,
}

/// Reads and writes the ConfigMap of the leader's records.
#[derive(Clone)]
pub struct RecordStore {
    cluster: Cluster,
    leading: Leadership,
    /// Under which key deletions are counted.
    counted: &'static str,
}

impl RecordStore {
    pub fn new(cluster: Cluster, leading: Leadership) -> RecordStore {
        RecordStore { cluster, leading, counted: limit::UNREQUESTED_DELETIONS }
    }

    /// Counts deletions of Nodes, which have a limit of their own.
    pub fn of_nodes(cluster: Cluster, leading: Leadership) -> RecordStore {
        RecordStore { cluster, leading, counted: limit::NODES }
    }

    pub async fn read(&self) -> Result<LeaderRecords, RequestError> {
        self.cluster.read_records().await
    }

    /// Whoever leads. `before`, as it was read or written last: where it is another now, it has to be read again.
    pub async fn write(&self, before: &LeaderRecords, now: &LeaderRecords) -> Result<(), RequestError> {
        for _ in 0..TRIES {
            if !self.leading.is_held() {
                return Err(RequestError(ApiError::Conflict("another leads".to_owned())));
            }
            let kept = self.kept().await.map_err(RequestError)?;
            if kept.as_ref().map(decoded).unwrap_or_default() != *before {
                return Err(RequestError(ApiError::Conflict(
                    "another process has changed the ConfigMap".to_owned(),
                )));
            }
            match self.put(kept, encoded(now)).await {
                Ok(()) => return Ok(()),
                // What else is in there is counted by others.
                Err(ApiError::Conflict(_)) => {}
                Err(answer) => return Err(RequestError(answer)),
            }
        }
        Err(RequestError(ApiError::Conflict("other processes keep changing the ConfigMap".to_owned())))
    }

    async fn kept(&self) -> Result<Option<ConfigMap>, ApiError> {
        match self.cluster.within_deadline(api(&self.cluster).get(RECORDS)).await {
            Ok(map) => Ok(Some(map)),
            Err(ApiError::NotFound) => Ok(None),
            Err(answer) => Err(answer),
        }
    }

    /// By its version: of several who write, one does.
    async fn put(&self, kept: Option<ConfigMap>, data: BTreeMap<String, String>) -> Result<(), ApiError> {
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let api = api(&self.cluster);
        let is_there = kept.is_some();
        let mut map = kept.unwrap_or_else(|| ConfigMap {
            metadata: ObjectMeta { name: Some(RECORDS.to_owned()), ..ObjectMeta::default() },
            ..ConfigMap::default()
        });
        map.data.get_or_insert_default().extend(data);
        match is_there {
            true => self.cluster.within_deadline(api.replace(RECORDS, &parameters, &map)).await.map(drop),
            false => self.cluster.within_deadline(api.create(&parameters, &map)).await.map(drop),
        }
    }
}

impl Cluster {
    /// What the leader recorded; nothing, where there is nothing.
    pub async fn read_records(&self) -> Result<LeaderRecords, RequestError> {
        match self.within_deadline(api(self).get(RECORDS)).await {
            Ok(map) => Ok(decoded(&map)),
            Err(ApiError::NotFound) => Ok(LeaderRecords::default()),
            Err(answer) => Err(RequestError(answer)),
        }
    }
}

impl RequestError {
    /// What to do about it.
    pub fn fix(&self) -> String {
        match &self.0 {
            ApiError::Forbidden(_) => {
                format!("As an administrator: {INSTALL}, and bind the role seaway-records.")
            }
            _ => "Seaway tries again.".to_owned(),
        }
    }
}

fn api(cluster: &Cluster) -> Api<ConfigMap> {
    Api::namespaced(cluster.client(), cluster.namespace())
}

fn encoded(recorded: &LeaderRecords) -> BTreeMap<String, String> {
    let deletions: BTreeMap<&str, u64> =
        recorded.deletions.iter().map(|it| (&*it.of, it.at.0 / 1_000)).collect();
    let orphans: Vec<&String> = recorded.orphans.iter().take(MAX_LINES).collect();
    let adoption: Vec<&String> = recorded.adoption.iter().take(MAX_LINES).collect();
    let released: BTreeMap<&str, &String> =
        recorded.released.iter().take(MAX_RELEASED + 1).map(|(uid, it)| (&**uid, it)).collect();
    let text = |it: serde_json::Value| it.to_string();
    [
        (DELETIONS.to_owned(), text(serde_json::json!(deletions))),
        (ORPHANS.to_owned(), text(serde_json::json!(orphans))),
        (RELEASED.to_owned(), text(serde_json::json!(released))),
        (ADOPTION.to_owned(), text(serde_json::json!(adoption))),
    ]
    .into()
}

/// What cannot be read is not there: then more is reported, and nothing is deleted.
fn decoded(map: &ConfigMap) -> LeaderRecords {
    let text = |key: &str| map.data.as_ref().and_then(|it| it.get(key)).map_or("", String::as_str);
    let deletions: BTreeMap<String, u64> = serde_json::from_str(text(DELETIONS)).unwrap_or_default();
    let deletion =
        |(of, at): (String, u64)| Deletion { of: Name::from(of), at: Time(at.saturating_mul(1_000)) };
    let released: BTreeMap<String, String> = serde_json::from_str(text(RELEASED)).unwrap_or_default();
    LeaderRecords {
        deletions: deletions.into_iter().map(deletion).collect(),
        orphans: serde_json::from_str(text(ORPHANS)).unwrap_or_default(),
        released: released.into_iter().map(|(uid, it)| (Name::from(uid), it)).collect(),
        adoption: serde_json::from_str(text(ADOPTION)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_broken_is_nothing() {
        let deletions = vec![Deletion { of: "uid".into(), at: Time(1_763_838_000_000) }];
        let (orphans, adoption) = (vec!["default/shop".to_owned()], vec!["1 of 2".to_owned()]);
        let released = [("uid".into(), "load balancer of Service default/bank".to_owned())].into();
        let recorded = LeaderRecords { deletions, orphans, released, adoption };
        let map = |data| ConfigMap { data: Some(data), ..ConfigMap::default() };
        assert_eq!(decoded(&map(encoded(&recorded))), recorded);
        assert_eq!(decoded(&ConfigMap::default()), LeaderRecords::default());
        let broken = [(DELETIONS.to_owned(), "{".to_owned()), (ORPHANS.to_owned(), "7".to_owned())];
        assert_eq!(decoded(&map(broken.into())), LeaderRecords::default());
    }

    #[test]
    fn a_day_of_deletions_fits_into_an_object() {
        let of = |it: u64| Deletion { of: format!("{it:036}/IPv6").into(), at: Time(it) };
        let orphans: Vec<String> = (0..5_000).map(|it| format!("{it:0500}")).collect();
        let adoption = orphans.clone();
        let released = (0..5_000).map(|it| (format!("{it:036}/IPv6").into(), format!("{it:0150}"))).collect();
        let deletions = (0..5_000).map(of).collect();
        let all = encoded(&LeaderRecords { deletions, orphans, released, adoption });
        let size: usize = all.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(size < 512 * 1_024, "{size} bytes of a mebibyte");
    }
}
