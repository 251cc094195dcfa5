//! Load balancers with all below them, from few lists: one per kind, and one status tree per load balancer for its
//! members, which have no list of their own.

mod grow;

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Serialize, Serializer};
use tokio::task::JoinSet;

use grow::ListedParts;

use crate::{
    Cloud, Error,
    neutron::Attached,
    octavia::{
        HealthMonitor, L7Policy, Listener, LoadBalancer, Member, Operating, Pool, PoolProtocol, Protocol,
        Provisioning, StatusTree,
    },
    resource::{Id, IdOnly, Query, Resource, View},
};

/// Given a line whenever something begins, or has come further, that takes time.
pub type Progress = dyn Fn(&str) + Send + Sync;

/// Which load balancers are wanted; nothing: all.
#[derive(Clone, Debug, Default)]
pub struct LoadBalancerFilter {
    /// A name, or an id.
    pub named: Option<String>,
    pub tags: Vec<String>,
    /// Members cost one call per load balancer.
    pub members: bool,
}

/// Load balancers, by name.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerTrees {
    pub load_balancers: Vec<LoadBalancerBranch>,
    /// What could not be read, and so is not shown.
    #[serde(serialize_with = "as_lines")]
    pub failed: Vec<Error>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerBranch {
    pub id: Id<LoadBalancer>,
    pub name: String,
    pub description: String,
    pub tags: Vec<String>,
    pub provider: Option<String>,
    pub vip: Option<IpAddr>,
    pub additional_vips: Vec<IpAddr>,
    pub floating_ips: Vec<IpAddr>,
    pub enabled: bool,
    pub provisioning: Provisioning,
    pub operating: Operating,
    pub listeners: Vec<ListenerBranch>,
    /// Those that no listener leads to.
    pub pools: Vec<PoolBranch>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerBranch {
    pub id: Id<Listener>,
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
    pub allowed_cidrs: Vec<String>,
    pub enabled: bool,
    pub provisioning: Provisioning,
    pub operating: Operating,
    pub pool: Option<PoolBranch>,
    pub policies: Vec<PolicyBranch>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyBranch {
    pub id: Id<L7Policy>,
    pub name: String,
    pub position: Option<u32>,
    pub action: String,
    pub to: Option<String>,
    pub provisioning: Provisioning,
    pub pool: Option<PoolBranch>,
}

/// Listeners may share a pool: it stands below each.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolBranch {
    pub id: Id<Pool>,
    pub name: String,
    pub protocol: PoolProtocol,
    pub algorithm: String,
    pub provisioning: Provisioning,
    pub operating: Operating,
    pub monitor: Option<MonitorLeaf>,
    pub member_count: usize,
    /// Nothing where they were not asked for.
    pub members: Option<Vec<MemberLeaf>>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MonitorLeaf {
    pub id: Id<HealthMonitor>,
    pub kind: String,
    pub delay: u64,
    pub timeout: u64,
    pub max_retries: u64,
    pub url_path: Option<String>,
    pub provisioning: Provisioning,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberLeaf {
    pub id: Id<Member>,
    pub name: String,
    pub address: Option<IpAddr>,
    pub port: Option<u16>,
    pub provisioning: Provisioning,
    pub operating: Operating,
}

/// One page of one: whether we may.
pub(super) async fn may_list(cloud: &Cloud) -> Result<(), Error> {
    let mut pages = cloud.all::<LoadBalancer>().pages::<IdOnly<LoadBalancer>>(Query::all().page(1));
    pages.next().await.map(drop)
}

/// How many status trees are asked for at once.
const WIDTH: usize = 8;

/// Reads what is wanted. That load balancers cannot be listed is the one error; what else fails is told in `failed`.
pub async fn read_load_balancers(
    cloud: &Cloud,
    wanted: &LoadBalancerFilter,
    progress: &Progress,
) -> Result<LoadBalancerTrees, Error> {
    progress("listing load balancers");
    let balancers = balancers(cloud, wanted).await?;
    let Some(first) = balancers.first() else { return Ok(LoadBalancerTrees::default()) };
    // One is asked for by itself; for several, everything is.
    let below = match balancers.len() {
        1 => Query::all().with("loadbalancer_id", &first.id),
        _ => Query::all(),
    };
    progress(&format!("{} found; listing what is below, and floating IPs", balancers.len()));
    let (listeners, pools, monitors, policies, attached, trees) = tokio::join!(
        list_decodable::<Listener>(cloud, below.clone()),
        list_decodable::<Pool>(cloud, below),
        list_decodable::<HealthMonitor>(cloud, Query::all()),
        list_decodable::<L7Policy>(cloud, Query::all()),
        list_decodable::<Attached>(cloud, Query::all()),
        trees(cloud, if wanted.members { &balancers } else { &[] }, progress),
    );
    let mut failed = Vec::new();
    let mut parts = ListedParts {
        listeners: by_id(or_note_failure(listeners, &mut failed)),
        pools: by_id(or_note_failure(pools, &mut failed)),
        monitors: by_id(or_note_failure(monitors, &mut failed)),
        policies: or_note_failure(policies, &mut failed),
        attached: or_note_failure(attached, &mut failed),
        members: wanted.members.then(BTreeMap::new),
    };
    parts.policies.sort_by_key(|it| it.position);
    for tree in trees {
        match tree {
            Ok(tree) => parts.keep_members(tree),
            Err(error) => failed.push(error),
        }
    }
    Ok(LoadBalancerTrees {
        load_balancers: balancers.into_iter().map(|it| parts.build_tree(it)).collect(),
        failed,
    })
}

/// A name that looks like an id may be one.
async fn balancers(cloud: &Cloud, wanted: &LoadBalancerFilter) -> Result<Vec<LoadBalancer>, Error> {
    let tagged = |query: Query| match &*wanted.tags {
        [] => query,
        tags => query.tagged(tags.iter().map(String::as_str)),
    };
    let mut found = match &wanted.named {
        Some(name) => list_decodable::<LoadBalancer>(cloud, tagged(Query::named(name))).await?,
        None => list_decodable::<LoadBalancer>(cloud, tagged(Query::all())).await?,
    };
    if let (true, Some(Ok(id))) = (found.is_empty(), wanted.named.as_ref().map(|it| it.parse())) {
        found.extend(cloud.all::<LoadBalancer>().find::<LoadBalancer>(&id).await?);
        found.retain(|it| wanted.tags.iter().all(|tag| it.tags.contains(tag)));
    }
    found.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    Ok(found)
}

/// What cannot be understood of a list is left out; the rest is worth having.
pub async fn list_decodable<V>(cloud: &Cloud, query: Query) -> Result<Vec<V>, Error>
where
    V: View,
    V::Resource: Resource<Parent = ()>,
{
    let mut pages = cloud.all::<V::Resource>().pages::<V>(query);
    let mut all = Vec::new();
    while let Some(page) = pages.next().await? {
        all.extend(page.items);
    }
    Ok(all)
}

async fn trees(
    cloud: &Cloud,
    balancers: &[LoadBalancer],
    progress: &Progress,
) -> Vec<Result<StatusTree, Error>> {
    let mut waiting = balancers.iter().map(|it| it.id.clone());
    let mut running = JoinSet::new();
    let mut done = Vec::with_capacity(balancers.len());
    let ask = |id: Id<LoadBalancer>| {
        let cloud = cloud.clone();
        async move { cloud.all::<LoadBalancer>().tree(&id).await }
    };
    for id in waiting.by_ref().take(WIDTH) {
        running.spawn(ask(id));
    }
    while let Some(ended) = running.join_next().await {
        // A task of ours neither panics nor is aborted while we wait for it.
        done.extend(ended.ok());
        if done.len() % 100 == 0 {
            progress(&format!("members of {} of {} load balancers", done.len(), balancers.len()));
        }
        if let Some(id) = waiting.next() {
            running.spawn(ask(id));
        }
    }
    done
}

fn or_note_failure<T>(result: Result<Vec<T>, Error>, failed: &mut Vec<Error>) -> Vec<T> {
    result.unwrap_or_else(|error| {
        failed.push(error);
        Vec::new()
    })
}

fn by_id<V: View>(all: Vec<V>) -> BTreeMap<Id<V::Resource>, V> {
    all.into_iter().map(|it| (it.id().clone(), it)).collect()
}

fn as_lines<S: Serializer>(errors: &[Error], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(errors.iter().map(ToString::to_string))
}
