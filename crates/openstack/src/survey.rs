//! What a cloud has, what we may do there, and what is missing for load balancers: `seaway openstack check`.
//!
//! ```text
//!     survey ──┬─ services    endpoints and versions                  reads only, all at once;
//!              ├─ providers   and what each can do   (abilities.rs)   what fails spoils itself alone
//!              ├─ outside     external networks and their subnets
//!              └─ quotas      limits and use         (quotas.rs)
//!     findings (judge.rs): what of that is missing, and what to type. Pure.
//! ```
//! `read_load_balancers` (forest.rs) lists load balancers with all below them: `seaway openstack show`.

mod abilities;
mod findings;
pub mod forest;
mod quotas;

use std::{
    future::Future,
    time::{Duration, Instant, SystemTime},
};

use serde::{Serialize, Serializer, ser::SerializeStruct};

pub use abilities::{Abilities, Ability};
pub use findings::{Finding, Severity, findings, is_absence};
pub use forest::{LoadBalancerFilter, LoadBalancerTrees, Progress, list_decodable, read_load_balancers};
pub use quotas::Quota;

use crate::{
    Cloud, Error, Service,
    cloud::Versions,
    neutron::{Network, Subnet},
    octavia::{AvailabilityZone, Flavor, Provider},
    resource::{Id, Query},
};

/// Everything that was found.
#[derive(Debug, Serialize)]
pub struct Survey {
    pub identity: Identity,
    pub services: Vec<ServiceInfo>,
    pub providers: FetchResult<Vec<ProviderInfo>>,
    pub flavors: FetchResult<Vec<String>>,
    pub availability_zones: FetchResult<Vec<String>>,
    pub external_networks: FetchResult<Vec<ExternalNetwork>>,
    /// Whether load balancers may be listed, which tells more about roles than their names.
    pub load_balancers_listed: FetchResult<()>,
    pub quotas: Vec<Quota>,
}

/// What was asked for, or why it was not told.
#[derive(Debug)]
pub enum FetchResult<T> {
    Value(T),
    Failed(Error),
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Identity {
    pub user: String,
    /// `password`, `application credential`.
    pub by: String,
    /// Where, with the version.
    pub at: String,
    pub project: Option<NamedRef>,
    pub roles: Vec<String>,
    pub region: Option<String>,
    /// When the token ends; it is renewed before.
    #[serde(serialize_with = "as_date")]
    pub expires: Option<SystemTime>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NamedRef {
    pub id: String,
    pub name: String,
}

#[derive(Debug, Serialize)]
pub struct ServiceInfo {
    #[serde(serialize_with = "as_text")]
    pub service: Service,
    pub endpoint: FetchResult<String>,
    pub versions: FetchResult<SpokenVersions>,
}

/// What a service speaks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SpokenVersions {
    /// The newest.
    pub version: String,
    /// The newest dialect.
    pub microversion: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProviderInfo {
    pub name: String,
    pub description: String,
    pub can: Abilities,
    /// What flavors may say for it, where we may ask.
    pub flavor_capabilities: Option<Vec<String>>,
}

#[derive(Debug, Serialize)]
pub struct ExternalNetwork {
    pub id: Id<Network>,
    pub name: String,
    pub shared: bool,
    /// Those that are shown to us.
    pub subnets: FetchResult<Vec<ExternalSubnet>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExternalSubnet {
    pub id: Id<Subnet>,
    pub name: String,
    pub ip_version: u8,
    pub cidr: String,
}

impl<T> FetchResult<T> {
    pub fn value(&self) -> Option<&T> {
        match self {
            FetchResult::Value(it) => Some(it),
            FetchResult::Failed(_) => None,
        }
    }

    pub fn error(&self) -> Option<&Error> {
        match self {
            FetchResult::Value(_) => None,
            FetchResult::Failed(error) => Some(error),
        }
    }
}

impl<T> From<Result<T, Error>> for FetchResult<T> {
    fn from(result: Result<T, Error>) -> FetchResult<T> {
        match result {
            Ok(it) => FetchResult::Value(it),
            Err(error) => FetchResult::Failed(error),
        }
    }
}

/// Looks at everything. `progress` is given a line whenever something takes time.
pub async fn survey(cloud: &Cloud, progress: &Progress) -> Survey {
    let identity = identity(cloud);
    let project = identity.project.as_ref().map(|it| it.id.clone());
    progress("reading versions, providers, networks and quotas of all services");
    let slow = SlowProgress { cloud, progress, since: cloud.clock().now() };
    let (services, octavia, flavors, zones, outside, quotas) = tokio::join!(
        slow.noted("versions", services(cloud)),
        slow.noted("providers", octavia(cloud)),
        names::<Flavor>(cloud, |it| it.enabled.then_some(it.name)),
        names::<AvailabilityZone>(cloud, |it| it.enabled.then(|| it.id.to_string())),
        slow.noted("external networks", external_networks(cloud)),
        slow.noted("quotas", quotas::quotas(cloud, project.as_deref(), progress)),
    );
    let (providers, listed) = octavia;
    Survey {
        identity,
        services,
        providers: providers.into(),
        flavors: flavors.into(),
        availability_zones: zones.into(),
        external_networks: outside.into(),
        load_balancers_listed: listed.into(),
        quotas,
    }
}

/// Tells what is done, once the whole has taken longer than anybody waits without asking.
struct SlowProgress<'a> {
    cloud: &'a Cloud,
    progress: &'a Progress,
    since: Instant,
}

impl SlowProgress<'_> {
    async fn noted<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let done = work.await;
        let took = self.cloud.clock().now().saturating_duration_since(self.since);
        if took > Duration::from_secs(2) {
            (self.progress)(&format!("{what}: done after {} s", took.as_secs()));
        }
        done
    }
}

fn identity(cloud: &Cloud) -> Identity {
    let session = cloud.session();
    let project = session.project.as_ref();
    Identity {
        user: session.user.name.clone(),
        by: session.kind.to_owned(),
        at: session.auth_url.clone(),
        project: project.map(|it| NamedRef { id: it.id.clone(), name: it.name.clone() }),
        roles: session.roles.clone(),
        region: session.region().map(ToOwned::to_owned),
        expires: session.expires,
    }
}

async fn services(cloud: &Cloud) -> Vec<ServiceInfo> {
    // One that does not answer makes nobody else wait.
    let (identity, network, load_balancer, compute, keys) = tokio::join!(
        service(cloud, Service::Identity),
        service(cloud, Service::Network),
        service(cloud, Service::LoadBalancer),
        service(cloud, Service::Compute),
        service(cloud, Service::KeyManager),
    );
    vec![identity, network, load_balancer, compute, keys]
}

async fn service(cloud: &Cloud, service: Service) -> ServiceInfo {
    let endpoint = cloud.endpoint(service);
    let versions = match &endpoint {
        Ok(_) => cloud.versions(service).await.map(|it| spoken(&it)),
        Err(error) => Err(error.clone()),
    };
    ServiceInfo { service, endpoint: endpoint.into(), versions: versions.into() }
}

fn spoken(versions: &Versions) -> SpokenVersions {
    let number = |id: &&String| -> Vec<u32> {
        id.trim_start_matches('v').split('.').map(|it| it.parse().unwrap_or(0)).collect()
    };
    SpokenVersions {
        version: versions.ids.iter().max_by_key(number).cloned().unwrap_or_default(),
        microversion: versions.micro.map(|(_, newest)| newest.to_string()),
    }
}

async fn octavia(cloud: &Cloud) -> (Result<Vec<ProviderInfo>, Error>, Result<(), Error>) {
    let collection = cloud.all::<Provider>();
    let listed = forest::may_list(cloud).await;
    let providers = match collection.list::<Provider>(Query::all()).await {
        Ok(providers) => providers,
        Err(error) => return (Err(error), listed),
    };
    let versions = cloud.versions(Service::LoadBalancer).await.ok();
    let mut found = Vec::new();
    for provider in providers {
        let capabilities = collection.flavor_capabilities(&provider.id).await.ok();
        found.push(ProviderInfo {
            can: Abilities::of(provider.id.as_str(), versions.as_deref()),
            name: provider.id.to_string(),
            description: provider.description,
            flavor_capabilities: capabilities.map(|it| it.into_iter().map(|it| it.name).collect()),
        });
    }
    (Ok(found), listed)
}

async fn names<R>(cloud: &Cloud, name: impl Fn(R) -> Option<String>) -> Result<Vec<String>, Error>
where
    R: crate::resource::Resource<Parent = ()>,
{
    Ok(cloud.all::<R>().list::<R>(Query::all()).await?.into_iter().filter_map(name).collect())
}

async fn external_networks(cloud: &Cloud) -> Result<Vec<ExternalNetwork>, Error> {
    let networks = cloud.all::<Network>().list::<Network>(Query::all().with("router:external", true)).await?;
    let mut found = Vec::new();
    for network in networks {
        let query = Query::all().with("network_id", &network.id);
        let subnets = cloud.all::<Subnet>().list::<Subnet>(query).await;
        let subnet = |it: Subnet| ExternalSubnet {
            id: it.id,
            name: it.name,
            ip_version: it.ip_version,
            cidr: it.cidr.unwrap_or_default(),
        };
        found.push(ExternalNetwork {
            id: network.id,
            name: network.name,
            shared: network.shared.unwrap_or(false),
            subnets: subnets.map(|it| it.into_iter().map(subnet).collect()).into(),
        });
    }
    Ok(found)
}

impl<T: Serialize> Serialize for FetchResult<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            FetchResult::Value(it) => it.serialize(to),
            FetchResult::Failed(error) => {
                let mut object = to.serialize_struct("Failed", 3)?;
                object.serialize_field("error", &error.to_string())?;
                object.serialize_field("class", error.class().label())?;
                object.serialize_field("requestId", &error.request_id())?;
                object.end()
            }
        }
    }
}

fn as_text<S: Serializer>(it: &impl ToString, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&it.to_string())
}

fn as_date<S: Serializer>(time: &Option<SystemTime>, to: S) -> Result<S::Ok, S::Error> {
    time.and_then(date).serialize(to)
}

/// `2026-11-21T12:03:00Z`
pub fn date(time: SystemTime) -> Option<String> {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let stamp = jiff::Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?;
    Some(stamp.to_string())
}
