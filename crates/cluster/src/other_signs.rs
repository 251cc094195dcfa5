//! What tells that a cloud controller manager runs its controller of Services, beside what it wrote into them.
//!
//! ```text
//!     its Lease    since when the process leads that holds it: what was written later, that process wrote
//!     its events   of the controller of Services alone, which looks at each Service when it starts
//! ```
//! The Lease alone says nothing: controllers of Nodes and routes hold it, too, and they stay when Seaway serves Services.

use std::{sync::Mutex, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Event};
use kube::{Api, api::ListParams};
use seaway_model::{Name, OtherControllerSigns, Time, fact::OtherControllerWrite};
use tokio::time::Instant;

use crate::{
    api_error::ApiError,
    connect::{Cluster, RequestError},
};

/// As its flags have it, unless they say otherwise.
const NAMESPACE: &str = "kube-system";
pub(crate) const LEASE: &str = "cloud-controller-manager";
/// As Kubernetes' own library for cloud controller managers signs its events of Services.
const SOURCE: &str = "service-controller";
/// A clock may be ahead of another: one that has ended is believed to run for this long.
const FRESH: i64 = 120;

impl Cluster {
    /// Looks once; for events, which are many, where `event` does not say what was told last. What may not be asked tells
    /// nothing.
    pub async fn signs_of_other_controllers(
        &self,
        event: Option<Option<OtherControllerWrite>>,
    ) -> Result<OtherControllerSigns, RequestError> {
        let lease = known(self.lease_of_cloud_controller(LEASE).await)?.flatten();
        let leads_since = lease.as_ref().and_then(|it| leads_since(it, Timestamp::now()));
        let event = match event {
            Some(event) => event,
            None => last(&self.events_of_services().await?),
        };
        Ok(OtherControllerSigns { leads_since, event })
    }

    /// Who holds the Lease of OpenStack's cloud controller manager, and renews it. Its Lease is one for all of its controllers, so that
    /// it does not say which of them it runs. Unlike above, what may not be asked is an error.
    pub(crate) async fn running_cloud_controller(
        &self,
        lease: &str,
        seen: &Mutex<SeenRenewals>,
    ) -> Result<Option<Name>, ApiError> {
        let lease = self.lease_of_cloud_controller(lease).await?;
        let mut seen = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(lease.and_then(|it| seen.holder(&it, Timestamp::now(), Instant::now()).map(Name::from)))
    }

    async fn lease_of_cloud_controller(&self, name: &str) -> Result<Option<Lease>, ApiError> {
        let leases: Api<Lease> = Api::namespaced(self.client(), NAMESPACE);
        self.within_deadline(leases.get_opt(name)).await
    }

    async fn events_of_services(&self) -> Result<Vec<Event>, RequestError> {
        let events: Api<Event> = Api::all(self.client());
        let its = format!("source={SOURCE},involvedObject.kind=Service");
        let listed = self.within_deadline(events.list(&ListParams::default().fields(&its))).await;
        Ok(known(listed)?.map(|it| it.items).unwrap_or_default())
    }
}

/// A Lease that changes is renewed, whatever the clocks of both machines say.
#[derive(Debug, Default)]
pub(crate) struct SeenRenewals {
    version: Option<String>,
    /// When it was another than before.
    changed: Option<Instant>,
}

impl SeenRenewals {
    fn holder<'l>(&mut self, lease: &'l Lease, wall: Timestamp, now: Instant) -> Option<&'l str> {
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let before = self.version.replace(version.clone());
        if before.is_some_and(|it| it != version) {
            self.changed = Some(now);
        }
        let term = u64::try_from(term(lease)).unwrap_or_default();
        let is_renewed = |at: Instant| now.saturating_duration_since(at) < Duration::from_secs(term);
        match self.changed.is_some_and(is_renewed) {
            true => named(lease),
            false => holder(lease, wall),
        }
    }
}

fn known<T>(answer: Result<T, ApiError>) -> Result<Option<T>, RequestError> {
    match answer {
        Ok(it) => Ok(Some(it)),
        Err(ApiError::Forbidden(_) | ApiError::NotFound | ApiError::Invalid(_)) => Ok(None),
        Err(answer) => Err(RequestError(answer)),
    }
}

/// Who renews it.
fn holder(lease: &Lease, now: Timestamp) -> Option<&str> {
    let renewed = lease.spec.as_ref()?.renew_time.as_ref()?.0;
    let silent = now.as_second().saturating_sub(renewed.as_second());
    named(lease).filter(|_| silent < term(lease))
}

fn named(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|it| !it.is_empty())
}

fn term(lease: &Lease) -> i64 {
    let seconds = lease.spec.as_ref().and_then(|it| it.lease_duration_seconds);
    i64::from(seconds.unwrap_or_default()).max(FRESH)
}

/// When the process began that renews it.
fn leads_since(lease: &Lease, now: Timestamp) -> Option<Time> {
    holder(lease, now)?;
    time(lease.spec.as_ref()?.acquire_time.as_ref()?.0)
}

fn last(events: &[Event]) -> Option<OtherControllerWrite> {
    let by: Name = SOURCE.into();
    let at = events.iter().filter_map(at).max()?;
    Some(OtherControllerWrite { by, at })
}

/// When it was told last.
fn at(event: &Event) -> Option<Time> {
    let series = event.series.as_ref().and_then(|it| it.last_observed_time.as_ref()).map(|it| it.0);
    let single = event.last_timestamp.as_ref().map(|it| it.0);
    let first = event.event_time.as_ref().map(|it| it.0);
    let created = event.metadata.creation_timestamp.as_ref().map(|it| it.0);
    time(series.into_iter().chain(single).chain(first).max().or(created)?)
}

fn time(at: Timestamp) -> Option<Time> {
    Some(Time(u64::try_from(at.as_millisecond()).ok()?))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::{coordination::v1::LeaseSpec, core::v1::EventSeries},
        apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time as Moment},
    };

    use super::*;

    fn second(at: i64) -> Timestamp {
        Timestamp::from_second(at).expect("a time")
    }

    #[test]
    fn a_lease_that_is_renewed_says_since_when_its_process_leads() {
        let lease = |holder: &str, renewed: i64, seconds: i32| Lease {
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(seconds),
                acquire_time: Some(MicroTime(second(100))),
                renew_time: Some(MicroTime(second(renewed))),
                ..LeaseSpec::default()
            }),
            ..Lease::default()
        };
        let since = |lease: &Lease| leads_since(lease, second(1_000)).map(|it| it.0);
        assert_eq!(since(&lease("a", 995, 15)), Some(100_000));
        assert_eq!(since(&lease("a", 1_060, 15)), Some(100_000), "its clock is ahead of ours");
        assert_eq!(since(&lease("a", 881, 15)), Some(100_000), "or behind");
        assert_eq!(since(&lease("a", 880, 15)), None);
        assert_eq!(since(&lease("a", 880, 137)), Some(100_000));
        assert_eq!(since(&lease("", 995, 15)), None, "it was given back");
        assert_eq!(since(&Lease::default()), None);
        assert_eq!(holder(&lease("a", 995, 15), second(1_000)), Some("a"));
        assert_eq!(holder(&lease("a", 880, 15), second(1_000)), None, "it has ended");
    }

    #[test]
    fn a_lease_that_changes_is_held_whatever_its_clock_says() {
        let lease = |holder: &str, version: &str| Lease {
            metadata: ObjectMeta { resource_version: Some(version.to_owned()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(15),
                renew_time: Some(MicroTime(second(100))),
                ..LeaseSpec::default()
            }),
        };
        let (mut seen, begin) = (SeenRenewals::default(), Instant::now());
        for (after, holder, version, held) in [
            (0, "a", "1", None),
            (60, "a", "1", None),
            (120, "a", "2", Some("a")),
            (239, "a", "2", Some("a")),
            (240, "a", "2", None),
            (250, "a", "3", Some("a")),
            (255, "", "4", None),
        ] {
            let (lease, now) = (lease(holder, version), begin + Duration::from_secs(after));
            assert_eq!(seen.holder(&lease, second(10_000), now), held, "after {after} seconds");
        }
    }

    #[test]
    fn the_last_event_counts_however_it_says_its_time() {
        let single = |at: i64| Event { last_timestamp: Some(Moment(second(at))), ..Event::default() };
        let series =
            EventSeries { last_observed_time: Some(MicroTime(second(30))), ..EventSeries::default() };
        let of_series =
            Event { event_time: Some(MicroTime(second(10))), series: Some(series), ..Event::default() };
        let told = |events: &[Event]| last(events).map(|it| (it.by.to_string(), it.at.0));
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[Event::default()]), None, "nobody knows when");
        assert_eq!(told(&[single(20), single(25)]), Some((SOURCE.to_owned(), 25_000)));
        assert_eq!(told(&[of_series, single(25)]), Some((SOURCE.to_owned(), 30_000)));
    }
}
