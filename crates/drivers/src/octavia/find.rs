//! Which load balancer is a Service's: the one with its tags; or one that was there before us, if the Service points at it.
//!
//! One that is another's, or nobody's of ours, is shared if the annotation names it (shared.rs).
//!
//! A name alone says nothing: two clusters may have one name, and Services of theirs, too. So a load balancer with the name
//! that the other controller would give is taken over only if the Service's annotation names its id, or its status has an
//! address that leads there. Of an annotation, which may be copied from cluster to cluster, members are asked as well.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use seaway_model::{
    ListenerId, LoadBalancer as Wish, Name, Owner, Problem, Reason, load_balancer::NamedLoadBalancer,
    unit::RemovedOwner,
};
use seaway_openstack::{
    Cloud, Error,
    neutron::FloatingIp,
    octavia::{LoadBalancer, Provisioning},
    resource::{Id, Query},
};

use super::{
    admission::{self, MembershipEvidence},
    named::all_named,
    names::Cluster,
    shared::{self, Marks, Shared},
    shares,
    steps::Branch,
    tags,
};

/// What a Service wants, as far as it tells which load balancer it had before us.
pub(super) struct LoadBalancerSearch<'w> {
    owner: Owner,
    wish: &'w Wish,
    named: Option<NamedLoadBalancer>,
    published: Vec<IpAddr>,
    /// Where its members are.
    spots: BTreeSet<SocketAddr>,
    /// Its Service wants none any more: what is found is deleted.
    former: Option<&'w RemovedOwner>,
}

pub(super) enum SearchResult {
    There {
        it: Box<LoadBalancer>,
        /// Left of a request that was done after nobody waited for it any more.
        doubles: Vec<Id<LoadBalancer>>,
        why: OwnershipEvidence,
    },
    Nothing,
    /// Only its user can say.
    Refused(Problem),
}

/// What tells that it is this Service's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnershipEvidence {
    Tags,
    /// Those of a guest.
    GuestTags,
    Status,
    /// Its members have to be, too.
    Annotation,
    /// It is to be a guest there.
    Invitation,
}

impl OwnershipEvidence {
    pub(super) fn is_guest(self) -> bool {
        matches!(self, OwnershipEvidence::GuestTags | OwnershipEvidence::Invitation)
    }
}

impl LoadBalancerSearch<'_> {
    pub(super) fn of(owner: Owner, wish: &Wish) -> LoadBalancerSearch<'_> {
        let outside = wish.options.cloud.as_ref();
        LoadBalancerSearch {
            owner,
            wish,
            named: outside.and_then(|it| it.named.clone()),
            published: outside.map(|it| it.published.clone()).unwrap_or_default(),
            spots: wish.pools.values().flat_map(|it| &it.members).map(|it| it.at).collect(),
            former: None,
        }
    }

    /// Of a Service that is deleted, or has another type now.
    pub(super) fn of_former(owner: Owner, former: &RemovedOwner) -> LoadBalancerSearch<'_> {
        LoadBalancerSearch { former: Some(former), ..LoadBalancerSearch::of(owner, &former.load_balancer) }
    }

    pub(super) fn is_former(&self) -> bool {
        self.former.is_some()
    }

    /// Whether its user is asked about what is not certain. A deletion waits for that only where another controller held the
    /// Service: else nobody made anything for it that has not our tags.
    pub(super) fn asks(&self) -> bool {
        self.former.is_none_or(|it| it.by_another)
    }

    /// Nothing tells of one that it had before us.
    pub(super) fn is_new(&self) -> bool {
        self.named.is_none() && self.published.is_empty() && shares::word(self.wish).is_none()
    }

    /// Addresses that its status has.
    pub(super) fn published(&self) -> &[IpAddr] {
        &self.published
    }

    /// What it may be called that was there before us.
    pub(super) fn names(&self, cluster: &Cluster) -> Vec<String> {
        names(cluster, &self.owner)
    }

    /// An annotation that points at what serves somebody else's members was copied from another cluster.
    pub(super) fn doubts(
        &self,
        it: &LoadBalancer,
        branches: &BTreeMap<ListenerId, Branch>,
    ) -> Option<Problem> {
        let pools = branches.values().filter_map(|it| it.pool.as_ref());
        let members: Vec<&SocketAddr> = pools.flat_map(|it| it.members.keys()).collect();
        let is_ours = match self.former {
            // Its node ports are not known any more.
            Some(former) if self.spots.is_empty() => members.iter().all(|it| former.nodes.contains(&it.ip())),
            _ => members.is_empty() || members.iter().any(|it| self.spots.contains(it)),
        };
        if is_ours {
            return None;
        }
        if self.is_former() {
            let message = format!(
                "load balancer {} has the name of this Service, and its members are not at Nodes of this \
                 cluster: Seaway does not delete it with the Service",
                it.id
            );
            return Some(self.undeletable(message, it));
        }
        let message = format!(
            "load balancer {} has the name of this Service, and none of its members is a Node of this \
             cluster: it seems to serve another cluster, and Seaway does not change it",
            it.id
        );
        Some(self.problem(Reason::OtherController, message).fix(
            "Remove the annotation, and Seaway creates a load balancer for this Service. (If the named one is this \
                 Service's: remove its members, and Seaway adopts it.)",
        ))
    }

    /// Why it may not begin to share this one.
    pub(super) fn barred(
        &self,
        cluster: &Cluster,
        marks: &Marks,
        it: &LoadBalancer,
        on: MembershipEvidence,
    ) -> Option<Problem> {
        admission::refusal(cluster, marks, &self.owner, self.wish, it, on)
    }

    /// Why it may be no guest there.
    pub(super) fn unwelcome(
        &self,
        it: &LoadBalancer,
        addresses: &[IpAddr],
        shared: &Shared,
        marks: &Marks,
    ) -> Option<Problem> {
        shared::unwelcome(&self.owner, self.wish, it, addresses, shared, marks)
    }

    /// What its listeners are, only an address of the Service tells; there is none.
    pub(super) fn unclear(&self, it: &LoadBalancer) -> Problem {
        let message = format!(
            "load balancer {} has listeners of this Service, but the Service's status has no address of \
             this load balancer: Seaway does not delete the listeners with the Service",
            it.id
        );
        self.undeletable(message, it)
    }

    /// The deletion of a Service waits until its user says whose this is.
    fn undeletable(&self, message: String, it: &LoadBalancer) -> Problem {
        self.problem(Reason::OtherController, message).fix(format!(
            "If it is this Service's: openstack loadbalancer delete --cascade {}, and delete its floating IP. If it is to \
             stay: remove the finalizer …/load-balancer-cleanup from the Service.",
            it.id
        ))
    }

    /// Another floating IP is to lead there: one may be allocated already.
    pub(super) fn wants_another(&self, floating: &FloatingIp) -> bool {
        let Some(outside) = &self.wish.options.cloud else { return false };
        let network = outside.floating.network.as_ref().filter(|_| outside.remake);
        outside.requested.is_some_and(|it| floating.floating_ip_address != Some(it))
            || network.is_some_and(|it| it.as_str() != floating.floating_network_id.as_str())
    }

    /// Its status has one of these already.
    pub(super) fn had(&self, addresses: &[IpAddr]) -> bool {
        self.published.iter().any(|ip| addresses.contains(ip))
    }

    fn problem(&self, reason: Reason, message: String) -> Problem {
        let problem = Problem::new(self.owner.object(), reason, message);
        match &self.named {
            Some(named) => problem.at(named.field.clone()),
            None => problem,
        }
    }
}

/// `sought`: nothing, where nobody wants it any more.
pub(super) async fn find(
    cloud: &Cloud,
    cluster: &Cluster,
    marks: &Marks,
    sought: Option<&LoadBalancerSearch<'_>>,
) -> Result<SearchResult, Error> {
    let query = Query::all().tagged_any([marks.key(), marks.guest()]);
    let mut found = cloud.all::<LoadBalancer>().list::<LoadBalancer>(query).await?;
    found.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
    let (first, guest): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| marks.is_first(&it.tags));
    let first = match first.len() {
        0 | 1 => first.into_iter().map(|it| (it, None)).collect(),
        _ => with_floating(cloud, first).await?,
    };
    let published = sought.map(|it| it.published.as_slice()).unwrap_or_default();
    if let Some((it, doubles)) = chosen(first, published) {
        return Ok(SearchResult::There { it: Box::new(it), doubles, why: OwnershipEvidence::Tags });
    }
    if let Some(it) = guest.into_iter().find(|it| marks.is_guest(&it.tags)) {
        return Ok(SearchResult::There {
            it: Box::new(it),
            doubles: Vec::new(),
            why: OwnershipEvidence::GuestTags,
        });
    }
    let Some(sought) = sought else { return Ok(SearchResult::Nothing) };
    // The other controller asks for what is not there for ever, and the Service never gets one.
    if let Some(word) = shares::word(sought.wish).filter(|_| !sought.is_former()) {
        let tags = [cluster.tag(), shares::tag(word)];
        let query = Query::all().tagged(tags.iter().map(String::as_str));
        let mut found = cloud.all::<LoadBalancer>().list::<LoadBalancer>(query).await?;
        found.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
        if let Some(it) = found.into_iter().find(stays) {
            return Ok(SearchResult::There {
                it: Box::new(it),
                doubles: Vec::new(),
                why: OwnershipEvidence::Invitation,
            });
        }
    }
    if let Some(named) = &sought.named {
        let mut there = all_named(cloud, named).await?;
        if named.by_name && there.len() != 1 && !sought.is_former() {
            return Ok(SearchResult::Refused(not_one(sought, named, &there)));
        }
        let it = there.pop().filter(|_| there.is_empty());
        if let Some(found) =
            it.and_then(|it| judged(cluster, sought, marks, it, OwnershipEvidence::Annotation))
        {
            return Ok(found);
        }
    }
    for ip in &sought.published {
        if let Some(it) = by_address(cloud, *ip).await?
            && cluster_of(&it).is_none()
            && let Some(found) = judged(cluster, sought, marks, it, OwnershipEvidence::Status)
        {
            return Ok(found);
        }
    }
    let names = if sought.asks() { names(cluster, &sought.owner) } else { Vec::new() };
    for name in names {
        let named = cloud.all::<LoadBalancer>().list::<LoadBalancer>(Query::named(&name)).await?;
        if let Some(it) = named.into_iter().find(|it| cluster_of(it).is_none() && stays(it)) {
            return Ok(SearchResult::Refused(by_name_alone(sought, &it)));
        }
    }
    Ok(SearchResult::Nothing)
}

/// Nothing, where it is none of a Service that is deleted.
fn judged(
    cluster: &Cluster,
    sought: &LoadBalancerSearch<'_>,
    marks: &Marks,
    it: LoadBalancer,
    why: OwnershipEvidence,
) -> Option<SearchResult> {
    let is_its = names(cluster, &sought.owner).contains(&it.name) && cluster_of(&it).is_none();
    let address = it.vip_address.is_some_and(|it| sought.published.contains(&it));
    let there = |it, why| SearchResult::There { it: Box::new(it), doubles: Vec::new(), why };
    Some(match why {
        _ if is_its && address => there(it, OwnershipEvidence::Status),
        _ if is_its => there(it, why),
        OwnershipEvidence::Annotation if sought.is_former() => {
            // Each has its own name among its tags; there it is no sharer's mark.
            let is_of_others = cluster_of(&it).is_some_and(|uid| *uid != *cluster.uid);
            let shares = !is_of_others && it.name != marks.name() && marks.is_named(&it.tags);
            return shares.then(|| there(it, OwnershipEvidence::Invitation));
        }
        OwnershipEvidence::Status if sought.is_former() => {
            let object = sought.owner.object();
            let is_called_alike = it.name.ends_with(&format!("_{}_{}", object.namespace, object.name));
            let problem = || SearchResult::Refused(of_another_name(cluster, sought, &it));
            return (is_called_alike && sought.asks()).then(problem);
        }
        OwnershipEvidence::Status => SearchResult::Refused(of_another_name(cluster, sought, &it)),
        _ => there(it, OwnershipEvidence::Invitation),
    })
}

/// The same request made it, which came to be done twice. Nobody uses it: no floating IP leads there, and it has no mark that
/// it was not made with.
fn is_double(it: &LoadBalancer, other: &LoadBalancer, floating: Option<&IpAddr>) -> bool {
    let is_alike = it.name == other.name && it.description == other.description;
    is_alike && tags::own(&other.tags).is_subset(&it.tags) && floating.is_none() && stays(other)
}

/// Of several that have the tags of one Service, the oldest first, the one that stays: whose address is published, then the
/// one that a floating IP leads to, then one that has been ready at least once. A request that is done long after it was
/// repeated made the older one. And those that go.
pub(super) fn chosen(
    mut all: Vec<(LoadBalancer, Option<IpAddr>)>,
    published: &[IpAddr],
) -> Option<(LoadBalancer, Vec<Id<LoadBalancer>>)> {
    all.sort_by_key(|(it, floating)| {
        let is_published = it.vip_address.iter().chain(floating).any(|ip| published.contains(ip));
        (!is_published, floating.is_none(), it.provisioning_status == Provisioning::PendingCreate)
    });
    let mut all = all.into_iter();
    let (it, _) = all.next()?;
    let doubles = all.filter(|(other, floating)| is_double(&it, other, floating.as_ref()));
    let doubles = doubles.map(|(other, _)| other.id).collect();
    Some((it, doubles))
}

/// With the floating IPs that lead there.
async fn with_floating(
    cloud: &Cloud,
    all: Vec<LoadBalancer>,
) -> Result<Vec<(LoadBalancer, Option<IpAddr>)>, Error> {
    let mut found = Vec::new();
    for it in all {
        let mut floating = None;
        if let Some(port) = &it.vip_port_id {
            let query = Query::all().with("port_id", port);
            let its = cloud.all::<FloatingIp>().list::<FloatingIp>(query).await?;
            floating = its.into_iter().find_map(|it| it.floating_ip_address);
        }
        found.push((it, floating));
    }
    Ok(found)
}

/// The names that the other controller gives, and gave long ago.
fn names(cluster: &Cluster, owner: &Owner) -> Vec<String> {
    let legacy = match owner {
        Owner::Object { uid, .. } => Some(legacy(uid)),
        Owner::Config(_) => None,
    };
    [cluster.balancer(owner)].into_iter().chain(legacy).collect()
}

/// `a` and the UID without its dashes, 32 characters of them.
fn legacy(uid: &Name) -> String {
    format!("a{}", uid.replace('-', "")).chars().take(32).collect()
}

/// Whose it is by its tags.
pub(super) fn cluster_of(it: &LoadBalancer) -> Option<&str> {
    it.tags.iter().find_map(|it| it.strip_prefix("seaway.dev/cluster="))
}

pub(super) fn stays(it: &LoadBalancer) -> bool {
    it.provisioning_status != Provisioning::PendingDelete
}

/// The load balancer that an address leads to: it is its VIP, or a floating IP to it.
async fn by_address(cloud: &Cloud, ip: IpAddr) -> Result<Option<LoadBalancer>, Error> {
    let balancers = cloud.all::<LoadBalancer>();
    let query = Query::all().with("floating_ip_address", ip);
    let floating = cloud.all::<FloatingIp>().list::<FloatingIp>(query).await?;
    for port in floating.into_iter().filter_map(|it| it.port_id) {
        let behind = balancers.list::<LoadBalancer>(Query::all().with("vip_port_id", port)).await?;
        if let Some(it) = behind.into_iter().find(stays) {
            return Ok(Some(it));
        }
    }
    let at = balancers.list::<LoadBalancer>(Query::all().with("vip_address", ip)).await?;
    Ok(at.into_iter().find(stays))
}

/// Nobody knows which is meant, and none is made instead.
fn not_one(sought: &LoadBalancerSearch<'_>, named: &NamedLoadBalancer, there: &[LoadBalancer]) -> Problem {
    let ids: Vec<&str> = there.iter().map(|it| it.id.as_str()).collect();
    let message = match ids.is_empty() {
        true => format!(
            "no load balancer is called {}; Seaway creates none for this Service until there is one",
            named.id
        ),
        false => format!("{} load balancers are called {}: {}", ids.len(), named.id, ids.join(", ")),
    };
    sought.problem(Reason::BadAnnotation, message).fix(
        "Name a load balancer that exists, or its id in loadbalancer.openstack.org/load-balancer-id. \
         Without the annotation the Service gets a load balancer of its own.",
    )
}

fn by_name_alone(sought: &LoadBalancerSearch<'_>, it: &LoadBalancer) -> Problem {
    if sought.is_former() {
        let message = format!(
            "load balancer {} is called {}, as this Service's would be, but no tag, annotation or address shows that it is \
             this Service's: Seaway does not delete it with the Service",
            it.id, it.name
        );
        return sought.undeletable(message, it);
    }
    let message = format!(
        "load balancer {} is called {}, as this Service's would be, but no tag, annotation or address shows that it is \
         this Service's: Seaway does not adopt it, and creates no other",
        it.id, it.name
    );
    sought.problem(Reason::OtherController, message).fix(format!(
        "If it is this Service's: kubectl annotate service NAME loadbalancer.openstack.org/load-balancer-id={} --overwrite. \
         If it is that of another cluster with the same name: give this cluster another --cluster-name.",
        it.id
    ))
}

fn of_another_name(cluster: &Cluster, sought: &LoadBalancerSearch<'_>, it: &LoadBalancer) -> Problem {
    let object = sought.owner.object();
    let is_called_alike = it.name.ends_with(&format!("_{}_{}", object.namespace, object.name));
    let name = match is_called_alike || cluster.may_tell(&it.name, &sought.owner) {
        true => format!("is called {}", it.name),
        false => "has the name of a load balancer of a Service of another namespace or cluster".to_owned(),
    };
    if sought.is_former() {
        let message = format!(
            "the address of the Service belongs to load balancer {}, which {name}; a load balancer of this \
             Service would be called {}. Seaway does not delete this load balancer with the Service",
            it.id,
            cluster.balancer(&sought.owner)
        );
        return sought.undeletable(message, it);
    }
    let message = format!(
        "the address of the Service belongs to load balancer {}, which {name}; a load balancer of this \
         Service would be called {}. Seaway does not change this load balancer, and creates no other",
        it.id,
        cluster.balancer(&sought.owner)
    );
    sought.problem(Reason::OtherController, message).fix(
        "If the cluster had another name when the load balancer was created: set --cluster-name to that \
         name. If the Service shares it: set the annotation loadbalancer.openstack.org/load-balancer-id \
         to its id. Else clear the Service's status.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_long_ago_is_the_uid_cut_to_32() {
        let name = legacy(&"3f1c9f8e-0a71-4f3b-9d9e-0f2b8f8e6a55".into());
        assert_eq!(name, "a3f1c9f8e0a714f3b9d9e0f2b8f8e6a5");
        assert_eq!(name.len(), 32);
    }
}
