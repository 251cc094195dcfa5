//! DNSEndpoint objects, which external-dns publishes in DNS: one for each Service that has names.
//!
//! ```text
//!     seaway-shop   labels: managed-by seaway, dns-owner prod    ownerReference: Service shop
//!                   spec.endpoints: www.shop.example A 192.0.2.1, www.shop.example AAAA 2001:db8::1, …
//! ```
//! Only objects with these labels and that name are changed or deleted, each as the version that was seen: the API server refuses
//! to change another one. An object goes with its last name, and Kubernetes removes it with its Service.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use kube::{
    Api, Resource,
    api::{DeleteParams, ListParams, Preconditions},
    core::{ListMeta, ObjectMeta, Request, request},
};
use seaway_model::{Name, Owner};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::info;

use crate::{api_error::ApiError, connect::Cluster, kinds::WatchedKind, raw_object::RawObject};

/// What others wrote is read again after this; what this process writes is known at once.
const LIST_AGAIN: Duration = Duration::from_secs(10);
/// Several names of one Service are written at once, into one object.
const TRIES: usize = 8;
const PAGE: u32 = 500;
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const SEAWAY: &str = "seaway";
const DNS_OWNER: &str = "seaway.dev/dns-owner";
const KIND: WatchedKind = WatchedKind::DNS_ENDPOINTS;

/// What DNSEndpoint objects of one installation say.
pub struct DnsEndpoints {
    cluster: Cluster,
    seen: Mutex<Option<EndpointCache>>,
    /// They could not be listed: a thousand names ask once.
    refused: Mutex<Option<(Instant, DnsEndpointError)>>,
    /// How often something was written, or looked at again.
    written: AtomicU64,
}

/// What the object of one Service says of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsEndpoint {
    /// `default/shop`.
    pub service: Name,
    pub ttl: u32,
    pub addresses: BTreeSet<IpAddr>,
}

/// Why objects cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DnsEndpointError {
    #[error("this cluster does not have DNSEndpoint (dnsendpoints.externaldns.k8s.io, v1alpha1)")]
    NotInstalled,
    #[error("{0}")]
    Forbidden(String),
    /// An object of this name is there, and is not ours.
    #[error("there is a DNSEndpoint {0} that Seaway did not make: it is not changed")]
    Foreign(String),
    /// It has to be looked at again.
    #[error("the DNSEndpoint {0} was changed meanwhile")]
    Changed(String),
    #[error("{0}")]
    Failed(String),
}

/// Whose objects are known, and since when.
struct EndpointCache {
    installation: Name,
    at: Instant,
    objects: HashMap<ServiceKey, Object>,
}

/// Namespace, and the name of the Service.
type ServiceKey = (Name, Name);

#[derive(Clone, Debug, Deserialize)]
struct Object {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Spec {
    /// As they are: what is not ours in them stays.
    #[serde(default)]
    endpoints: Vec<Value>,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<Object>,
}

impl DnsEndpoints {
    pub fn new(cluster: Cluster) -> DnsEndpoints {
        DnsEndpoints {
            cluster,
            seen: Mutex::default(),
            refused: Mutex::default(),
            written: AtomicU64::default(),
        }
    }

    /// What each Service's object says of this name.
    pub async fn of_name(
        &self,
        installation: &Name,
        name: &str,
    ) -> Result<Vec<DnsEndpoint>, DnsEndpointError> {
        let is_recent = |it: &EndpointCache| it.installation == *installation && it.at.elapsed() < LIST_AGAIN;
        if !self.seen().as_ref().is_some_and(is_recent) {
            let refused = self.refused().clone();
            if let Some((_, error)) = refused.filter(|(at, _)| at.elapsed() < LIST_AGAIN) {
                return Err(error);
            }
            let mut written = self.written.load(Relaxed);
            let mut objects = self.list_or_refuse(installation).await?;
            // What was written meanwhile may be missing in a list that began before.
            for _ in 1..TRIES {
                let since = self.written.load(Relaxed);
                if written == since {
                    break;
                }
                written = since;
                objects = self.list_or_refuse(installation).await?;
            }
            *self.seen() =
                Some(EndpointCache { installation: installation.clone(), at: Instant::now(), objects });
        }
        let seen = self.seen();
        let objects = seen.iter().flat_map(|it| &it.objects);
        let mut all: Vec<DnsEndpoint> =
            objects.filter_map(|(key, object)| endpoint_of(key, &object.spec.endpoints, name)).collect();
        all.sort_by(|a, b| a.service.cmp(&b.service));
        Ok(all)
    }

    /// The object of this Service says this of a name, of which it said `before`.
    pub async fn put(
        &self,
        installation: &Name,
        owner: &Owner,
        name: &str,
        before: Option<&DnsEndpoint>,
        now: &DnsEndpoint,
    ) -> Result<(), DnsEndpointError> {
        let Owner::Object { object, uid } = owner else { return Ok(()) };
        let key = (object.namespace.clone(), object.name.clone());
        for _ in 0..TRIES {
            let there = self.look(installation, &key).await?;
            let endpoints = there.as_ref().map_or(&[][..], |it| &it.spec.endpoints);
            if endpoint_of(&key, endpoints, name).as_ref() != before {
                return Err(self.changed(&key));
            }
            let wanted = with(endpoints, name, now);
            let written = match &there {
                None => {
                    let object = new_object(installation, &key, uid, &wanted);
                    self.cluster.create_as(&KIND, &key.0, &object).await
                }
                Some(there) => {
                    let patch = patch(there, &key, uid, &wanted);
                    self.cluster.merge_custom(&KIND, &key.0, &object_name(&key.1), &patch).await
                }
            };
            match written {
                Ok(written) => {
                    info!(namespace = %key.0, service = %key.1, name, "DNSEndpoint written");
                    self.note(key, Some(written));
                    return Ok(());
                }
                Err(ApiError::Conflict(_)) => {}
                // It was deleted since.
                Err(ApiError::NotFound) if there.is_some() => return Err(self.changed(&key)),
                Err(answer) => return Err(error_of(answer)),
            }
        }
        Err(self.changed(&key))
    }

    /// The object of a Service says nothing of this name any more; without any name it is deleted.
    pub async fn remove(
        &self,
        installation: &Name,
        before: &DnsEndpoint,
        name: &str,
    ) -> Result<(), DnsEndpointError> {
        let Some((namespace, service)) = before.service.split_once('/') else { return Ok(()) };
        let key: ServiceKey = (namespace.into(), service.into());
        for _ in 0..TRIES {
            let there = match self.look(installation, &key).await {
                Ok(Some(there)) => there,
                // What is not there, or not ours any more, says nothing for us.
                Ok(None) | Err(DnsEndpointError::Foreign(_)) => return Ok(()),
                Err(error) => return Err(error),
            };
            if endpoint_of(&key, &there.spec.endpoints, name).as_ref() != Some(before) {
                return Err(self.changed(&key));
            }
            let left = without(&there.spec.endpoints, name);
            let done = match left.is_empty() {
                true => self.delete(&there).await.map(|()| None),
                false => {
                    let patch = json!({"metadata": versions(&there), "spec": {"endpoints": left}});
                    self.cluster.merge_custom(&KIND, &key.0, &object_name(&key.1), &patch).await.map(Some)
                }
            };
            match done {
                Ok(now) => {
                    let deleted = now.is_none();
                    info!(namespace = %key.0, service = %key.1, name, deleted, "name removed from the DNSEndpoint");
                    self.note(key, now);
                    return Ok(());
                }
                Err(ApiError::NotFound) => {
                    self.note(key, None);
                    return Ok(());
                }
                Err(ApiError::Conflict(_)) => {}
                Err(answer) => return Err(error_of(answer)),
            }
        }
        Err(self.changed(&key))
    }

    async fn list_or_refuse(
        &self,
        installation: &Name,
    ) -> Result<HashMap<ServiceKey, Object>, DnsEndpointError> {
        let listed = self.list(installation).await;
        *self.refused() = listed.as_ref().err().map(|error| (Instant::now(), error.clone()));
        listed
    }

    async fn list(&self, installation: &Name) -> Result<HashMap<ServiceKey, Object>, DnsEndpointError> {
        let mut params = ListParams {
            label_selector: Some(format!("{MANAGED_BY}={SEAWAY},{DNS_OWNER}={installation}")),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        let mut objects = HashMap::new();
        loop {
            let request = Request::new(RawObject::url_path(&KIND.resource(), None)).list(&params);
            let request =
                request.map_err(|error: request::Error| DnsEndpointError::Failed(error.to_string()))?;
            let client = self.cluster.client();
            let page: Page = self.cluster.within_deadline(client.request(request)).await.map_err(error_of)?;
            objects.extend(page.items.into_iter().filter_map(|it| Some((key_of(&it, installation)?, it))));
            params.continue_token = page.metadata.continue_.filter(|it| !it.is_empty());
            if params.continue_token.is_none() {
                return Ok(objects);
            }
        }
    }

    /// As the API server has it now: what is remembered may have been emptied, or be older than what another task wrote, and a name
    /// that counts as removed is never looked at again.
    async fn look(&self, installation: &Name, key: &ServiceKey) -> Result<Option<Object>, DnsEndpointError> {
        let found = match self.cluster.read_as::<Object>(&KIND, &key.0, &object_name(&key.1)).await {
            Ok(found) => Some(found),
            Err(ApiError::NotFound) => None,
            Err(answer) => return Err(error_of(answer)),
        };
        if found.as_ref().is_some_and(|it| key_of(it, installation).as_ref() != Some(key)) {
            self.note(key.clone(), None);
            return Err(DnsEndpointError::Foreign(shown(key)));
        }
        self.note(key.clone(), found.clone());
        Ok(found)
    }

    /// The very one that was looked at.
    async fn delete(&self, there: &Object) -> Result<(), ApiError> {
        let metadata = &there.metadata;
        let of =
            Preconditions { resource_version: metadata.resource_version.clone(), uid: metadata.uid.clone() };
        let parameters = DeleteParams { preconditions: Some(of), ..DeleteParams::default() };
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<RawObject> = self.cluster.namespaced_api(&KIND, namespace);
        let name = metadata.name.as_deref().unwrap_or_default();
        self.cluster.within_deadline(api.delete(name, &parameters)).await.map(drop)
    }

    fn seen(&self) -> MutexGuard<'_, Option<EndpointCache>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self) -> MutexGuard<'_, Option<(Instant, DnsEndpointError)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, key: ServiceKey, now: Option<Object>) {
        self.written.fetch_add(1, Relaxed);
        let mut seen = self.seen();
        let Some(seen) = seen.as_mut() else { return };
        match now {
            Some(now) => seen.objects.insert(key, now),
            None => seen.objects.remove(&key),
        };
    }

    /// Nothing that was seen is believed any more.
    fn changed(&self, key: &ServiceKey) -> DnsEndpointError {
        *self.seen() = None;
        DnsEndpointError::Changed(shown(key))
    }
}

fn shown((namespace, service): &ServiceKey) -> String {
    format!("{namespace}/{}", object_name(service))
}

fn object_name(service: &str) -> String {
    format!("{SEAWAY}-{service}")
}

/// Which Service's it is, if it is ours: by its labels, by its owner, and by its own name.
fn key_of(object: &Object, installation: &Name) -> Option<ServiceKey> {
    let metadata = &object.metadata;
    let labels = metadata.labels.as_ref()?;
    let has = |key: &str, value: &str| labels.get(key).is_some_and(|it| it == value);
    if !has(MANAGED_BY, SEAWAY) || !has(DNS_OWNER, installation) {
        return None;
    }
    let name = metadata.name.as_deref()?;
    let owners = metadata.owner_references.iter().flatten();
    let mut services = owners.filter(|it| it.kind == "Service" && it.api_version == "v1");
    let service = services.find(|it| object_name(&it.name) == name)?;
    Some((metadata.namespace.as_deref()?.into(), service.name.as_str().into()))
}

/// Addresses of a name; nothing, if an object has none.
fn endpoint_of((namespace, service): &ServiceKey, endpoints: &[Value], name: &str) -> Option<DnsEndpoint> {
    let mut of_name = endpoints.iter().filter(|it| is_address_of(it, name)).peekable();
    let ttl = of_name.peek()?.get("recordTTL").and_then(Value::as_u64);
    let targets = of_name.filter_map(|it| it.get("targets")?.as_array()).flatten();
    let addresses: BTreeSet<IpAddr> = targets.filter_map(|it| it.as_str()?.parse().ok()).collect();
    if addresses.is_empty() {
        return None;
    }
    let ttl = ttl.and_then(|it| u32::try_from(it).ok()).unwrap_or_default();
    Some(DnsEndpoint { service: format!("{namespace}/{service}").into(), ttl, addresses })
}

fn is_address_of(endpoint: &Value, name: &str) -> bool {
    let text = |key: &str| endpoint.get(key).and_then(Value::as_str).unwrap_or_default();
    text("dnsName") == name && matches!(text("recordType"), "A" | "AAAA")
}

fn without(endpoints: &[Value], name: &str) -> Vec<Value> {
    endpoints.iter().filter(|it| !is_address_of(it, name)).cloned().collect()
}

/// One endpoint for each family that has addresses.
fn with(endpoints: &[Value], name: &str, it: &DnsEndpoint) -> Vec<Value> {
    let mut all = without(endpoints, name);
    let mut by_type: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ip in &it.addresses {
        by_type.entry(if ip.is_ipv4() { "A" } else { "AAAA" }).or_default().push(ip.to_string());
    }
    let endpoint = |(kind, targets): (&str, Vec<String>)| json!({"dnsName": name, "recordType": kind, "recordTTL": it.ttl, "targets": targets});
    all.extend(by_type.into_iter().map(endpoint));
    all
}

fn new_object(
    installation: &Name,
    (namespace, service): &ServiceKey,
    uid: &str,
    endpoints: &[Value],
) -> Value {
    json!({
        "apiVersion": "externaldns.k8s.io/v1alpha1", "kind": "DNSEndpoint",
        "metadata": {
            "namespace": namespace.as_str(), "name": object_name(service),
            "labels": {MANAGED_BY: SEAWAY, DNS_OWNER: installation.as_str()},
            "ownerReferences": [owner_reference(service, uid)],
        },
        "spec": {"endpoints": endpoints},
    })
}

fn owner_reference(service: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "name": service, "uid": uid, "controller": true})
}

/// Merged into that version alone.
fn patch(there: &Object, (_, service): &ServiceKey, uid: &str, endpoints: &[Value]) -> Value {
    let mut metadata = versions(there);
    let is_its_own = there.metadata.owner_references.iter().flatten().any(|it| it.uid == uid);
    if !is_its_own {
        // The Service was made again: the object goes with this one.
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("ownerReferences".to_owned(), json!([owner_reference(service, uid)]));
        }
    }
    json!({"metadata": metadata, "spec": {"endpoints": endpoints}})
}

fn versions(there: &Object) -> Value {
    json!({"resourceVersion": there.metadata.resource_version, "uid": there.metadata.uid})
}

fn error_of(answer: ApiError) -> DnsEndpointError {
    match answer {
        ApiError::NotFound => DnsEndpointError::NotInstalled,
        ApiError::Forbidden(why) => DnsEndpointError::Forbidden(why),
        answer => DnsEndpointError::Failed(answer.why()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(labels: Value, owner: &str, endpoints: Value) -> Object {
        let metadata = json!({
            "namespace": "default", "name": "seaway-shop", "uid": "o", "resourceVersion": "7",
            "labels": labels, "ownerReferences": [owner_reference(owner, "u")]
        });
        serde_json::from_value(json!({"metadata": metadata, "spec": {"endpoints": endpoints}}))
            .expect("is an object")
    }

    #[test]
    fn only_an_object_with_our_labels_our_name_and_its_service_is_ours() {
        let ours = json!({MANAGED_BY: SEAWAY, DNS_OWNER: "prod"});
        let key = |it: &Object| key_of(it, &"prod".into());
        assert_eq!(key(&object(ours.clone(), "shop", json!([]))), Some(("default".into(), "shop".into())));
        for (labels, owner) in [
            (json!({}), "shop"),
            (json!({MANAGED_BY: SEAWAY}), "shop"),
            (json!({DNS_OWNER: "prod"}), "shop"),
            (json!({MANAGED_BY: SEAWAY, DNS_OWNER: "test"}), "shop"),
            (json!({MANAGED_BY: "helm", DNS_OWNER: "prod"}), "shop"),
            (ours, "blog"),
        ] {
            assert_eq!(key(&object(labels.clone(), owner, json!([]))), None, "{labels} {owner}");
        }
    }

    #[test]
    fn what_is_written_reads_back_and_leaves_all_else_as_it_is() {
        let key: ServiceKey = ("default".into(), "shop".into());
        let other = json!({"dnsName": "b.example", "recordType": "A", "targets": ["192.0.2.9"], "setIdentifier": "x"});
        let text = json!({"dnsName": "a.example", "recordType": "TXT", "targets": ["mine"]});
        let before = [other, text];
        let addresses = ["192.0.2.1", "192.0.2.2", "2001:db8::1"];
        let it = DnsEndpoint {
            service: "default/shop".into(),
            ttl: 30,
            addresses: addresses.map(|it| it.parse().expect("an address")).into(),
        };
        let written = with(&before, "a.example", &it);
        assert_eq!(
            written[2..],
            [
                json!({"dnsName": "a.example", "recordType": "A", "recordTTL": 30, "targets": ["192.0.2.1", "192.0.2.2"]}),
                json!({"dnsName": "a.example", "recordType": "AAAA", "recordTTL": 30, "targets": ["2001:db8::1"]}),
            ]
        );
        assert_eq!(endpoint_of(&key, &written, "a.example"), Some(it.clone()));
        assert_eq!(with(&written, "a.example", &it), written, "again, it is the same");
        assert_eq!(without(&written, "a.example"), before);
        assert_eq!(endpoint_of(&key, &before, "a.example"), None, "a TXT record is none of ours");
        // A Service that was made again owns it from then on.
        let there = object(json!({}), "shop", json!(before));
        let of = |uid| patch(&there, &key, uid, &written);
        assert_eq!(of("u")["metadata"], json!({"resourceVersion": "7", "uid": "o"}));
        assert_eq!(of("new")["metadata"]["ownerReferences"][0]["uid"], "new");
    }
}
