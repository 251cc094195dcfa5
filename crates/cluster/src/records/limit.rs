//! A ceiling for deletions that no Service's deletion asked for: some in an hour, counted in the records, so that neither a
//! restart nor another leader begins again at nothing.
//!
//! ```text
//!     data.unasked                               {"load balancer of …": 1763838000, …}   seconds; those of the last hour;
//!                                                of a part: "load balancer of … listener 80/TCP"
//!     metadata.annotations
//!       seaway.dev/approved-deletions            default/shop, default/mail until 2026-11-22T20:00:00Z
//! ```
//! Nodes are counted apart from load balancers, in `data.nodes`, and approved as `/NAME`: they have no namespace.
//! It is counted before anything is removed: what crashes after that was counted, too.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use seaway_engine::{Counted, DeletionLimit, OwnersFuture, deletion_limit};
use seaway_model::ObjectRef;

use super::{RECORDS, RecordStore, TRIES};
use crate::api_error::ApiError;

pub(super) const UNREQUESTED_DELETIONS: &str = "unasked";
pub(super) const NODES: &str = "nodes";
/// What an operator says yes to, and until when.
const APPROVED: &str = "seaway.dev/approved-deletions";
const HOUR: i64 = 3_600;
/// A yes does not hold for longer.
const LONGEST: i64 = 24 * HOUR;

impl DeletionLimit for RecordStore {
    fn count<'a>(
        &'a self,
        what: &'a str,
        object: &'a ObjectRef,
        balancers: usize,
    ) -> OwnersFuture<'a, Counted> {
        Box::pin(async move {
            for _ in 0..TRIES {
                if !self.leading.is_held() {
                    return Err("another leads".to_owned());
                }
                let kept = self.kept().await.map_err(|answer| answer.why())?;
                let now = Timestamp::now().as_second();
                let map = kept.clone().unwrap_or_default();
                if is_approved(&map, object, now) {
                    return Ok(Counted::Within);
                }
                let mut unasked = unasked(&map, self.counted, now)?;
                if unasked.contains_key(what) {
                    return Ok(Counted::Within);
                }
                let limit = deletion_limit(balancers, unasked.len());
                if unasked.len() >= limit {
                    return Ok(Counted::Beyond { limit });
                }
                unasked.insert(what.to_owned(), now);
                let text = serde_json::json!(unasked).to_string();
                match self.put(kept, [(self.counted.to_owned(), text)].into()).await {
                    Ok(()) => return Ok(Counted::Within),
                    Err(ApiError::Conflict(_)) => {}
                    Err(answer) => return Err(answer.why()),
                }
            }
            Err("other processes keep changing the ConfigMap".to_owned())
        })
    }

    fn approved<'a>(&'a self, object: &'a ObjectRef) -> OwnersFuture<'a, bool> {
        Box::pin(async move {
            let kept = self.kept().await.map_err(|answer| answer.why())?;
            Ok(is_approved(&kept.unwrap_or_default(), object, Timestamp::now().as_second()))
        })
    }
}

/// Those of the last hour. What cannot be read counts as too many.
fn unasked(map: &ConfigMap, key: &str, now: i64) -> Result<BTreeMap<String, i64>, String> {
    let text = map.data.as_ref().and_then(|it| it.get(key)).map_or("{}", String::as_str);
    let mut all: BTreeMap<String, i64> = serde_json::from_str(text)
        .map_err(|error| format!("data.{key} of the ConfigMap {} cannot be read: {error}", RECORDS))?;
    all.retain(|_, at| now.saturating_sub(*at) < HOUR);
    Ok(all)
}

/// Whether an operator named it, and his word holds.
fn is_approved(map: &ConfigMap, object: &ObjectRef, now: i64) -> bool {
    let said = map.metadata.annotations.as_ref().and_then(|it| it.get(APPROVED));
    let Some((names, until)) = said.and_then(|it| it.rsplit_once(" until ")) else { return false };
    let Ok(until) = until.trim().parse::<Timestamp>() else { return false };
    let left = until.as_second().saturating_sub(now);
    let name = format!("{}/{}", object.namespace, object.name);
    left > 0 && left <= LONGEST && names.split(',').any(|it| it.trim() == name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use seaway_model::Kind;

    use super::*;

    fn map(unasked: &str, approved: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                annotations: Some([(APPROVED.to_owned(), approved.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some([(UNREQUESTED_DELETIONS.to_owned(), unasked.to_owned())].into()),
            ..ConfigMap::default()
        }
    }

    #[test]
    fn deletions_of_the_last_hour_count_and_what_cannot_be_read_lets_none_through() {
        let all =
            unasked(&map(r#"{"a": 100, "b": 3700}"#, ""), UNREQUESTED_DELETIONS, 3_701).expect("is read");
        assert_eq!(all.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(unasked(&ConfigMap::default(), UNREQUESTED_DELETIONS, 7), Ok(BTreeMap::new()));
        assert!(unasked(&map("{", ""), UNREQUESTED_DELETIONS, 7).is_err());
        assert_eq!(
            unasked(&map(r#"{"a": 7}"#, ""), NODES, 7),
            Ok(BTreeMap::new()),
            "Nodes are counted apart"
        );
    }

    #[test]
    fn a_yes_names_its_objects_and_expires() {
        let object = |name: &str| ObjectRef::new(Kind::Service, "default", name);
        let at = |text: &str| text.parse::<Timestamp>().expect("a time").as_second();
        let approved = map("{}", "default/shop, default/mail until 2026-11-22T20:00:00Z");
        for (name, now, is) in [
            ("shop", "2026-11-22T19:00:00Z", true),
            ("mail", "2026-11-22T19:59:59Z", true),
            ("other", "2026-11-22T19:00:00Z", false),
            ("sho", "2026-11-22T19:00:00Z", false),
            ("shop", "2026-11-22T20:00:00Z", false),
            // Who writes a year means a slip.
            ("shop", "2026-11-20T19:00:00Z", false),
        ] {
            assert_eq!(is_approved(&approved, &object(name), at(now)), is, "{name} at {now}");
        }
        for said in ["default/shop", "default/shop until tomorrow", "* until 2026-11-22T20:00:00Z"] {
            assert!(!is_approved(&map("{}", said), &object("shop"), at("2026-11-22T19:00:00Z")), "{said}");
        }
    }
}
