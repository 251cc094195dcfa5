//! Load balancers of a cluster that is gone, given to the one that was rebuilt from its backup.
//!
//! ```text
//!     seaway.dev/cluster=OLD                       ─► seaway.dev/cluster=NEW
//!     seaway.dev/key=OLD UID of default/shop       ─► seaway.dev/key=NEW UID of default/shop
//! ```
//! Nothing tells whether a cluster is gone but its operator, who names it. What tags do not tell for certain is refused: of a
//! load balancer that is refused nothing is written. Its tags are written last: until then it is found by the old ones, so a
//! run that was interrupted can be repeated.

use std::collections::{BTreeMap, BTreeSet};

use seaway_model::{LbKey, Owner};
use seaway_openstack::{
    Cloud, Error,
    neutron::{FloatingIp, FloatingIpChange},
    octavia::{Listener, ListenerChange, LoadBalancer, LoadBalancerChange, Provisioning},
    resource::{Edit, Id, Query},
    survey::list_decodable,
};

use super::{
    belongings::PATIENCE,
    names::{CLUSTER, Cluster, KEY},
    shared::{guests_of, has_strangers, was_left},
};

/// Tags of Services that share a load balancer begin so.
const GUESTS: &str = "seaway.dev/guest";

/// A Service of type LoadBalancer in the cluster that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    pub uid: String,
    pub namespace: String,
    pub name: String,
}

/// One load balancer of the old cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Retag {
    pub id: Id<LoadBalancer>,
    pub name: String,
    /// `namespace/name`, as far as it is told.
    pub service: Option<String>,
    pub changed: Option<String>,
    /// What would be written, or why nothing is.
    pub verdict: Result<Change, String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    from: Marks,
    to: Marks,
    floating: Vec<(Id<FloatingIp>, String)>,
    listeners: usize,
}

/// The tags of a cluster and of a key, and what ends descriptions.
#[derive(Clone, Debug, PartialEq)]
struct Marks {
    cluster: String,
    key: String,
}

impl Change {
    /// How many objects are written.
    pub fn count(&self) -> usize {
        self.listeners.saturating_add(self.floating.len()).saturating_add(1)
    }
}

impl Marks {
    fn of(cluster: &Cluster, key: &LbKey) -> Marks {
        Marks { cluster: cluster.tag(), key: cluster.tag_of(key) }
    }

    /// The same tags, with these for those.
    fn replaced(tags: &BTreeSet<String>, from: &Marks, to: &Marks) -> BTreeSet<String> {
        let replaced = tags.iter().map(|tag| match tag {
            tag if *tag == from.cluster => to.cluster.clone(),
            tag if *tag == from.key => to.key.clone(),
            tag => tag.clone(),
        });
        replaced.collect()
    }
}

/// All load balancers of the cluster `from`, by name, each with what would be written.
pub async fn retags(cloud: &Cloud, from: &str, to: &str, services: &[Present]) -> Result<Vec<Retag>, Error> {
    let (old, new) =
        (Cluster { uid: from.into(), name: "".into() }, Cluster { uid: to.into(), name: "".into() });
    let project = cloud.session().project.as_ref().map(|it| it.id.clone());
    let here = || match &project {
        Some(id) => Query::all().with("project_id", id),
        None => Query::all(),
    };
    let (tag, guests, own) = (old.tag(), guests_of(&old), new.tag());
    let (theirs, ours, floating, listeners) = tokio::join!(
        list_decodable::<LoadBalancer>(cloud, here().tagged_any([tag.as_str(), guests.as_str()])),
        list_decodable::<LoadBalancer>(cloud, here().tagged_any([own.as_str()])),
        list_decodable::<FloatingIp>(cloud, here()),
        list_decodable::<Listener>(cloud, here()),
    );
    let (theirs, ours, floating, listeners) = (theirs?, ours?, floating?, listeners?);
    let taken: BTreeSet<&String> =
        ours.iter().flat_map(|it| &it.tags).filter(|it| it.starts_with(KEY)).collect();
    let mut keys: BTreeMap<LbKey, usize> = BTreeMap::new();
    for key in theirs.iter().filter_map(|it| old.key_of(&it.tags, &it.description)) {
        let count = keys.entry(key).or_default();
        *count = count.saturating_add(1);
    }
    let mut all: Vec<Retag> = theirs
        .iter()
        .map(|it| {
            let key = old.key_of(&it.tags, &it.description);
            let service = key.as_ref().and_then(LbKey::owner).map(|owner| {
                let object = owner.object();
                format!("{}/{}", object.namespace, object.name)
            });
            let verdict = inherited(&old, &new, it, key.as_ref(), services).and_then(|(key, heir)| {
                let (from, to) = (Marks::of(&old, key), Marks::of(&new, &heir));
                if keys.get(key).is_some_and(|it| *it > 1) {
                    return Err(
                        "another load balancer has the same tags: delete the one that is not used".to_owned()
                    );
                }
                if taken.contains(&to.key) {
                    return Err(
                        "this cluster has a load balancer for the Service already: delete one of them"
                            .to_owned(),
                    );
                }
                let floating = floating.iter().filter_map(|it| {
                    let text = it.description.strip_suffix(old.whose(&it.description)?)?;
                    let mark = old.whose(&it.description)?;
                    // It may say that it is kept, too.
                    let is_its = mark == old.mark(key) || mark == kept(&old, key);
                    let mark = if mark == old.mark(key) { new.mark(&heir) } else { kept(&new, &heir) };
                    is_its.then(|| (it.id.clone(), format!("{text}{mark}")))
                });
                let below = |listener: &&Listener| listener.loadbalancers.iter().any(|on| on.id == it.id);
                let marked = listeners.iter().filter(below).filter(|it| it.tags.contains(&from.key));
                Ok(Change { floating: floating.collect(), listeners: marked.count(), from, to })
            });
            Retag {
                id: it.id.clone(),
                name: it.name.clone(),
                service,
                changed: it.updated_at.clone(),
                verdict,
            }
        })
        .collect();
    all.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    Ok(all)
}

/// Which key it has, and which it gets; or why it gets none.
fn inherited<'k>(
    old: &Cluster,
    new: &Cluster,
    it: &LoadBalancer,
    key: Option<&'k LbKey>,
    services: &[Present],
) -> Result<(&'k LbKey, LbKey), String> {
    if let Some(other) = it.tags.iter().find(|tag| tag.starts_with(CLUSTER) && **tag != old.tag()) {
        let uid = other.trim_start_matches(CLUSTER);
        let whose = if *uid == *new.uid { "this cluster".to_owned() } else { format!("the cluster {uid}") };
        return Err(format!(
            "the tags also name {whose} as the owner: remove the tag that is wrong, {} or {other}, and repeat",
            old.tag()
        ));
    }
    if !it.tags.contains(&old.tag()) {
        return Err(
            "a Service of another cluster owns the load balancer, and Services of the old cluster share it: change the \
             tags of the load balancer by hand, or let these Services get new load balancers"
                .to_owned(),
        );
    }
    let of_guests = |tag: &String| tag.starts_with(GUESTS);
    if it.tags.iter().any(of_guests) || was_left(it) || has_strangers(old, it) {
        return Err(
            "several Services are on this load balancer, and this command does not change their tags: \
             change them by hand, or let the Services get new load balancers"
                .to_owned(),
        );
    }
    let key = key.ok_or("neither tags nor description of the load balancer name its owner")?;
    let owner = key.owner().ok_or("the tags of the load balancer do not name a Service")?;
    let object = owner.object();
    let heir = services.iter().find(|it| *it.namespace == *object.namespace && *it.name == *object.name);
    let heir = heir.ok_or_else(|| {
        format!(
            "there is no Service {}/{} of type LoadBalancer in this cluster: create it, and repeat; or list what is \
                 left: seaway openstack purge --cluster-uid {}",
            object.namespace, object.name, old.uid
        )
    })?;
    if it.provisioning_status != Provisioning::Active {
        return Err(format!("the load balancer is {}: repeat when it is ACTIVE", it.provisioning_status));
    }
    let owner = Owner::Object { object, uid: heir.uid.as_str().into() };
    Ok((
        key,
        match key {
            LbKey::Second(_, family) => LbKey::Second(owner, *family),
            _ => LbKey::Of(owner),
        },
    ))
}

/// What a description ends with that is to stay when its load balancer goes.
fn kept(cluster: &Cluster, key: &LbKey) -> String {
    format!("{} kept]", cluster.mark(key).trim_end_matches(']'))
}

/// Writes what was told, and nothing if it is another by now.
pub async fn retag(cloud: &Cloud, it: &Retag) -> Result<(), Error> {
    let Ok(Change { from, to, floating, .. }) = &it.verdict else { return Ok(()) };
    let balancers = cloud.all::<LoadBalancer>();
    let now = balancers.read::<LoadBalancer>(&it.id).await?;
    let stale = || {
        Error::new(
            seaway_openstack::Class::Stale,
            "the tags of the load balancer have changed meanwhile: list the load balancers again",
        )
    };
    let is_as_told = |tags: &BTreeSet<String>| tags.contains(&from.cluster) && tags.contains(&from.key);
    if !is_as_told(&now.tags) {
        return Err(stale());
    }
    for (id, description) in floating {
        let change =
            FloatingIpChange { description: description.clone().into(), ..FloatingIpChange::default() };
        cloud.all::<FloatingIp>().change(id, &change).await?;
    }
    let below = Query::all().with("loadbalancer_id", &it.id);
    for listener in cloud.all::<Listener>().list::<Listener>(below).await? {
        if !listener.tags.contains(&from.key) {
            continue;
        }
        let tags = Marks::replaced(&listener.tags, from, to);
        let change = ListenerChange { tags: Edit::To(tags), ..ListenerChange::default() };
        cloud.all::<Listener>().change(&listener.id, &change).await?;
        // It takes one change at a time.
        balancers.until_ready(&it.id, PATIENCE).await?;
    }
    let now = balancers.read::<LoadBalancer>(&it.id).await?;
    if !is_as_told(&now.tags) {
        return Err(stale());
    }
    let tags = Marks::replaced(&now.tags, from, to);
    let change = LoadBalancerChange { tags: Edit::To(tags), ..LoadBalancerChange::default() };
    balancers.change(&it.id, &change).await?;
    balancers.until_ready(&it.id, PATIENCE).await.map(drop)
}
