//! One look at a cluster: everything listed once, nothing watched, nothing written. For people who ask how it stands.

use std::{collections::BTreeMap, time::Duration};

use futures::future::{join_all, join3};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use seaway_manifests::decode::{Field, ValidationErrors};
use seaway_model::{Change, Fact, Kind, Name, ObjectRef, Problem, announced::ConditionStatus, fact::Meta};
use serde_json::json;

use crate::{
    api_error::ApiError,
    connect::{Cluster, RequestError},
    decode::{self, DecodeOutcome},
    finalizer_driver::FinalizerStep,
    host::{self, HostInspection, StatusPage},
    kinds::{Requirement, WATCHED, WatchedKind},
    lease::LEADER,
    raw_object::RawObject,
    watch::host_leases,
};

/// So many objects come with one answer.
const PAGE: u32 = 500;
/// Where the cloud provider's controller looks for the load balancer of a Service.
const BALANCER: &str = "loadbalancer.openstack.org/load-balancer-id";
/// As whom people's wishes are written.
const PEOPLE: &str = "kubectl-seaway";

/// What a cluster says at one moment.
#[derive(Debug, Default)]
pub struct Inspection {
    /// All that a World is told; of Secrets nothing, which are not for everybody to look at.
    pub changes: Vec<Change>,
    /// What could not be seen, and can be done without.
    pub unseen: Vec<Problem>,
    /// Why Leases could not be seen: then it is not known which controller leads, and which hosts are alive.
    pub unseen_leases: Option<Problem>,
    pub services: Vec<ServiceInspection>,
    pub hosts: Vec<(HostInspection, HostLiveness)>,
    /// What the leader left in a cloud, for it saw no deletion; a line each.
    pub orphans: Vec<String>,
    /// Load balancers that are left as they are, for no setting wants them: by the UID of the Service, a line each.
    pub released: BTreeMap<Name, String>,
    /// How far its adoption of load balancers is; a line each.
    pub adoption: Vec<String>,
    /// Whoever gives addresses out, where that may be known.
    pub leader: Option<(Name, HostLiveness)>,
    /// No more than this namespace may be looked at: hosts, pools and who leads are not known.
    pub only: Option<Name>,
}

/// The status of a Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceInspection {
    pub namespace: Name,
    pub name: Name,
    /// Addresses and host names in `status.loadBalancer.ingress`.
    pub ingress: Vec<Name>,
    /// Our condition: whether, and why not.
    pub ready: Option<(bool, Name, Name)>,
    /// Whether its addresses are announced, and by what.
    pub announced: Option<(ConditionStatus, Name, Name)>,
    /// A line each.
    pub problems: Vec<String>,
}

/// What a Lease tells of who holds it, by the clock of whoever looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostLiveness {
    /// There is no Lease, or none that may be seen.
    Unknown,
    Alive,
    /// Its Lease ended so long ago.
    Silent(Duration),
    /// It gave its Lease back.
    Resigned,
}

impl HostLiveness {
    /// Whether it may serve.
    pub fn may_live(self) -> bool {
        matches!(self, HostLiveness::Alive | HostLiveness::Unknown)
    }

    pub(crate) fn of(lease: Option<&Lease>, now: Timestamp) -> HostLiveness {
        let Some(spec) = lease.and_then(|it| it.spec.as_ref()) else { return HostLiveness::Unknown };
        if spec.holder_identity.as_ref().is_none_or(String::is_empty) {
            return HostLiveness::Resigned;
        }
        let term =
            Duration::from_secs(spec.lease_duration_seconds.and_then(|it| it.try_into().ok()).unwrap_or(0));
        let renewed = spec.renew_time.as_ref().map(|it| it.0);
        let silent =
            renewed.and_then(|it| Duration::try_from(now.duration_since(it)).ok()).unwrap_or_default();
        if silent < term { HostLiveness::Alive } else { HostLiveness::Silent(silent) }
    }
}

/// The Problem that keeps an inspection from showing anything.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InspectionError(pub Problem);

impl Cluster {
    /// Lists everything once. What is required and cannot be listed is an error that names the verb that is missing. Who may
    /// not list Services of the whole cluster sees those of `namespace`, if that is named, and what may be seen beside.
    pub async fn inspect(&self, namespace: Option<&str>) -> Result<Inspection, InspectionError> {
        let kinds = WATCHED.iter().filter(|it| it.kind != Kind::Secret && it.need != Requirement::ReportOnly);
        let lists = join_all(kinds.map(async |of| (of, self.list(of, namespace).await)));
        let leases: Api<Lease> = Api::namespaced(self.client(), self.namespace());
        let parameters = ListParams::default();
        let leases = self.within_deadline(leases.list(&parameters));
        let (lists, leases, recorded) = join3(lists, leases, self.read_records()).await;
        // Who may not look at Leases either is told of those.
        let recorded = recorded.unwrap_or_default();
        let mut sight = Inspection {
            orphans: recorded.orphans,
            released: recorded.released,
            adoption: recorded.adoption,
            ..Inspection::default()
        };
        let is_one = lists.iter().any(|(of, it)| of.kind == Kind::Service && matches!(it, Ok((_, true))));
        sight.only = namespace.filter(|_| is_one).map(Name::from);
        let leases = leases.map(|it| it.items).unwrap_or_else(|answer| {
            if sight.only.is_none() {
                sight.unseen_leases = Some(answer.problem(&WatchedKind::LEASES, "list"));
            }
            Vec::new()
        });
        let now = Timestamp::now();
        let pulse = |name: &str| {
            let named = |it: &&Lease| it.metadata.name.as_deref() == Some(name);
            HostLiveness::of(leases.iter().find(named), now)
        };
        for (of, listed) in lists {
            match listed {
                Ok((all, _)) => all.iter().for_each(|told| sight.learn(of, told, &pulse)),
                // Somebody else's, and not there: nobody misses it.
                Err(ApiError::NotFound) if of.need == Requirement::Optional => {}
                // That is told once.
                Err(ApiError::Forbidden(_)) if sight.only.is_some() => {}
                Err(answer) if of.need == Requirement::Required => {
                    return Err(InspectionError(answer.problem(of, "list")));
                }
                Err(answer) => sight.unseen.push(answer.problem(of, "list")),
            }
            sight.changes.push(Change::Synced(of.kind));
        }
        let holder = |it: &Lease| it.spec.as_ref()?.holder_identity.clone().filter(|it| !it.is_empty());
        let lease = leases.iter().find(|it| it.metadata.name.as_deref() == Some(LEADER));
        // What tells one process from another is of no use to people.
        let who = lease
            .and_then(holder)
            .map(|it| it.rsplit_once('_').map_or(it.clone(), |(who, _)| who.to_owned()));
        sight.leader = who.map(|it| (it.into(), pulse(LEADER)));
        Ok(sight)
    }

    /// All; of one namespace alone where all may not be listed, which is told.
    async fn list(
        &self,
        of: &WatchedKind,
        namespace: Option<&str>,
    ) -> Result<(Vec<RawObject>, bool), ApiError> {
        let namespace =
            namespace.filter(|_| matches!(of.kind, Kind::Service | Kind::EndpointSlice | Kind::HTTPRoute));
        match (self.list_by(&self.api(of)).await, namespace) {
            (Err(ApiError::Forbidden(_)), Some(namespace)) => {
                Ok((self.list_by(&self.namespaced_api(of, namespace)).await?, true))
            }
            (all, _) => Ok((all?, false)),
        }
    }

    async fn list_by(&self, api: &Api<RawObject>) -> Result<Vec<RawObject>, ApiError> {
        let mut params = ListParams { limit: Some(PAGE), ..ListParams::default() };
        let mut all = Vec::new();
        loop {
            let page = self.within_deadline(api.list(&params)).await?;
            all.extend(page.items);
            params.continue_token = page.metadata.continue_.filter(|it| !it.is_empty());
            if params.continue_token.is_none() {
                return Ok(all);
            }
        }
    }

    /// What a host's status page says at `path`, through the API server.
    pub async fn read_status_page(&self, page: &StatusPage, path: &str) -> Result<String, RequestError> {
        let StatusPage { namespace, pod, port } = page;
        // A host wrote them, and whoever looks may be allowed more than hosts.
        if !is_label(namespace) || !pod.split('.').all(is_label) {
            return Err(RequestError(ApiError::Invalid(format!(
                "{namespace}/{pod} is not the name of a pod"
            ))));
        }
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/{path}");
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|error| RequestError(ApiError::Invalid(error.to_string())))?;
        self.within_deadline(self.client().request_text(request)).await.map_err(RequestError)
    }

    /// Writes `spec.drain` of a host, and nothing else.
    pub async fn set_drain(&self, host: &str, drain: bool) -> Result<(), RequestError> {
        let of = WatchedKind::known(Kind::LoadBalancerHost);
        let parameters = PatchParams { field_manager: Some(PEOPLE.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "spec": { "drain": drain } }));
        self.within_deadline(self.api(of).patch(host, &parameters, &patch))
            .await
            .map(drop)
            .map_err(RequestError)
    }

    /// Takes away the finalizer by which a Service waits for its load balancer in a cloud; in the same write, names that load
    /// balancer to the other controller.
    pub async fn release_service(&self, service: &Meta, balancer: Option<&str>) -> Result<(), RequestError> {
        let object = ObjectRef::new(Kind::Service, service.namespace.clone(), service.name.clone());
        let mut body = FinalizerStep::Remove.body(&service.uid);
        if let (Some(id), Some(metadata)) =
            (balancer, body.get_mut("metadata").and_then(|it| it.as_object_mut()))
        {
            metadata.insert("annotations".to_owned(), json!({ BALANCER: id }));
        }
        let released = self.merge_service(&object, &body).await;
        released.map(drop).map_err(RequestError)
    }

    /// Writes one annotation of a Service; refused if it is another of that name by now.
    pub async fn annotate(&self, service: &Meta, name: &str, value: &str) -> Result<(), RequestError> {
        let object = ObjectRef::new(Kind::Service, service.namespace.clone(), service.name.clone());
        let annotations = json!({ name: value });
        let body = json!({ "metadata": { "uid": &*service.uid, "annotations": annotations } });
        self.merge_service(&object, &body).await.map(drop).map_err(RequestError)
    }

    /// The namespace that whoever asks is in: that of the kubeconfig's context.
    pub fn default_namespace(&self) -> Name {
        self.client().default_namespace().into()
    }
}

impl Inspection {
    fn learn(&mut self, of: &WatchedKind, told: &RawObject, pulse: &impl Fn(&str) -> HostLiveness) {
        let fact = match decode::read(of.kind, told) {
            DecodeOutcome::Ignored => return,
            DecodeOutcome::Invalid(object, problems) => {
                return self.changes.push(Change::Reported(object, problems));
            }
            DecodeOutcome::Fact(fact) => fact,
            DecodeOutcome::Partial(fact, problems) => {
                let object = problems.first().map(|it| it.object.clone());
                self.changes.extend(object.map(|it| Change::Reported(it, problems)));
                fact
            }
        };
        match fact {
            Fact::Host(report) => {
                let pulse = pulse(&format!("{}{}", host_leases::HOST_LEASE_PREFIX, report.host));
                let faults = ValidationErrors::default();
                self.hosts.extend(
                    host::read_inspection(&Field::root(&told.tree, &faults), &report).map(|it| (it, pulse)),
                );
                if pulse.may_live() {
                    self.changes.push(Change::Put(Fact::Host(report)));
                }
            }
            fact => {
                if let Fact::Service(service) = &fact {
                    let (namespace, name) = (service.meta.namespace.clone(), service.meta.name.clone());
                    self.services.push(decode::published(told).inspection(namespace, name));
                }
                self.changes.push(Change::Put(fact));
            }
        }
    }
}

/// A DNS label, as RFC 1123 has it. Of such a path can be made: it holds no `/`, no `..`, no `?`.
fn is_label(text: &str) -> bool {
    let ordinary = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let edges = [text.as_bytes().first(), text.as_bytes().last()];
    edges.into_iter().all(|it| it.is_some_and(|&it| ordinary(it)))
        && text.len() <= 63
        && text.bytes().all(|it| ordinary(it) || it == b'-')
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};

    use super::*;

    #[test]
    fn no_path_is_made_of_what_is_no_name() {
        for name in ["seaway-node-x7", "0", "a"] {
            assert!(is_label(name), "{name}");
        }
        let long = "a".repeat(64);
        for name in ["", "..", "a/../../../secrets", "a?b", "a:b", "a%2f", "-a", "a-", "A", "\u{e4}", &long] {
            assert!(!is_label(name), "{name}");
        }
    }

    #[test]
    fn a_lease_tells_who_lives() {
        let now = Timestamp::from_second(1_000).expect("a time");
        let lease = |holder: &str, renewed| Lease {
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(40),
                renew_time: Some(MicroTime(Timestamp::from_second(renewed).expect("a time"))),
                ..LeaseSpec::default()
            }),
            ..Lease::default()
        };
        for (lease, pulse) in [
            (None, HostLiveness::Unknown),
            (Some(Lease::default()), HostLiveness::Unknown),
            (Some(lease("", 999)), HostLiveness::Resigned),
            (Some(lease("a", 961)), HostLiveness::Alive),
            // Its clock is ahead of ours.
            (Some(lease("a", 1_005)), HostLiveness::Alive),
            (Some(lease("a", 960)), HostLiveness::Silent(Duration::from_secs(40))),
        ] {
            assert_eq!(HostLiveness::of(lease.as_ref(), now), pulse, "{lease:?}");
        }
    }
}
