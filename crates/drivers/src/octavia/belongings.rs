//! All that a cluster has in a cloud, told by what is written on each thing; and its removal, without its controller.
//!
//! Whose a thing is, the UID of its cluster says, in a tag or at the end of a description. A name says nothing: two clusters
//! may have one, and other programs names like ours. Of a load balancer that others are on, only our own part goes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use seaway_model::{LbKey, Owner};
use seaway_openstack::{
    Class, Cloud, Error,
    barbican::{Container, Secret},
    neutron::{FloatingIp, Port, PortChange, SecurityGroup},
    octavia::{LoadBalancer, Provisioning},
    resource::{Edit, Id, Query},
    survey::list_decodable,
};

use super::{
    cascade::delete_next,
    names::{Cluster, KEY, key_text, uid_in},
    parts,
    shared::{guests, guests_of, has_strangers, was_left},
};

/// One thing of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Belonging {
    pub thing: CloudObject,
    pub name: String,
    /// The UID of the Service that it was made for, as far as it says so.
    pub service: Option<String>,
    /// What it may be known by to its Service: tags of those that share it.
    pub marks: BTreeSet<String>,
    /// It is to stay when its Service goes.
    pub kept: bool,
    /// It leads somewhere, or serves.
    pub used: bool,
    /// The load balancer that it is a part of, or leads to.
    pub on: Option<Id<LoadBalancer>>,
    /// Its first has left it to its guests.
    pub left: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CloudObject {
    LoadBalancer(Id<LoadBalancer>),
    /// What one Service has on it, where others are, too.
    Part(Id<LoadBalancer>, Box<LbKey>),
    FloatingIp(Id<FloatingIp>),
    SecurityGroup(Id<SecurityGroup>),
    Container(Id<Container>),
    Secret(Id<Secret>),
}

/// A load balancer that is being changed is waited for this long.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
const PATIENCE_WITH_OTHERS: Duration = Duration::from_secs(30);
pub(super) const LOOK: Duration = Duration::from_secs(2);

impl fmt::Display for CloudObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloudObject::LoadBalancer(id) => write!(f, "load balancer {id}"),
            CloudObject::Part(id, _) => write!(f, "part of shared load balancer {id}"),
            CloudObject::FloatingIp(id) => write!(f, "floating IP {id}"),
            CloudObject::SecurityGroup(id) => write!(f, "security group {id}"),
            CloudObject::Container(id) => write!(f, "container {id}"),
            CloudObject::Secret(id) => write!(f, "secret {id}"),
        }
    }
}

/// In the order in which they can be removed. `tell` hears what takes time.
pub async fn belongings(
    cloud: &Cloud,
    uid: &str,
    tell: &(dyn Fn(&str) + Send + Sync),
) -> Result<Vec<Belonging>, Error> {
    let cluster = Cluster { uid: uid.into(), name: "".into() };
    let project = cloud.session().project.as_ref().map(|it| it.id.clone());
    let here = || match &project {
        Some(id) => Query::all().with("project_id", id),
        None => Query::all(),
    };
    tell("listing load balancers, floating IPs, security groups and secrets");
    let (tag, shared) = (cluster.tag(), guests_of(&cluster));
    let (balancers, floating, groups, containers, secrets) = tokio::join!(
        list_decodable::<LoadBalancer>(cloud, here().tagged_any([tag.as_str(), shared.as_str()])),
        list_decodable::<FloatingIp>(cloud, here()),
        list_decodable::<SecurityGroup>(cloud, here()),
        list_decodable::<Container>(cloud, Query::all()),
        list_decodable::<Secret>(cloud, Query::all()),
    );
    let balancers = balancers?;
    let mut found: Vec<Belonging> = balancers.iter().flat_map(|it| of_balancer(&cluster, it)).collect();
    for it in floating? {
        let Some(mark) = cluster.whose(&it.description) else { continue };
        let address = it.floating_ip_address.map(|it| it.to_string());
        let (service, kept) = (of_mark(mark), mark.ends_with(" kept]"));
        let used = it.port_id.is_some();
        let to =
            it.port_id.and_then(|port| balancers.iter().find(|it| it.vip_port_id.as_ref() == Some(&port)));
        let told = told(CloudObject::FloatingIp(it.id), address.unwrap_or_default(), service, kept, used);
        found.push(Belonging { on: to.map(|it| it.id.clone()), ..told });
    }
    let theirs: BTreeMap<(String, String), String> =
        balancers.iter().filter_map(|it| their_group(&cluster, it)).collect();
    for it in groups? {
        let service = match cluster.whose(&it.description) {
            Some(mark) => of_mark(mark),
            None => match theirs.get(&(it.name.clone(), it.description.clone())) {
                Some(uid) => Some(uid.clone()),
                None => continue,
            },
        };
        found.push(told(CloudObject::SecurityGroup(it.id), it.name, service, false, true));
    }
    // Not each cloud keeps secrets.
    let begin = format!("{tag} ");
    for it in unless_absent(containers)?.into_iter().filter(|it| it.name.starts_with(&begin)) {
        let service = of_mark(&it.name);
        found.push(told(CloudObject::Container(it.id), it.name, service, false, true));
    }
    for it in unless_absent(secrets)?.into_iter().filter(|it| it.name.starts_with(&begin)) {
        let service = of_mark(&it.name);
        found.push(told(CloudObject::Secret(it.id), it.name, service, false, true));
    }
    Ok(found)
}

/// What the other controller called the group of a Service that was taken over from it, and the Service's UID.
fn their_group(cluster: &Cluster, it: &LoadBalancer) -> Option<((String, String), String)> {
    let owner = cluster.key_of(&it.tags, &it.description)?.owner()?.clone();
    let (_, name) = it.description.split_once(" from cluster ")?;
    let Owner::Object { uid, .. } = &owner else { return None };
    let called = Cluster { uid: cluster.uid.clone(), name: name.into() };
    Some((called.their_group(&owner)?, uid.to_string()))
}

/// As a whole where nobody else is on it; and what each Service has on it, where there are several.
fn of_balancer(cluster: &Cluster, it: &LoadBalancer) -> Vec<Belonging> {
    let (ours, left) = (it.tags.contains(&cluster.tag()), was_left(it));
    let whole = ours && !has_strangers(cluster, it);
    let used = it.provisioning_status != Provisioning::PendingDelete;
    let first = cluster.key_of(&it.tags, &it.description).filter(|_| !left);
    let guests = guests(cluster, it);
    let is_alone = whole && guests.is_empty();
    let parts = first.into_iter().chain(guests).filter(|_| !is_alone);
    let belonging = |thing, service| Belonging {
        marks: it.tags.clone(),
        on: Some(it.id.clone()),
        left,
        ..told(thing, it.name.clone(), service, false, used)
    };
    let service = it.tags.iter().find_map(|it| it.strip_prefix(KEY)).map(|it| uid_in(it).to_owned());
    let all = whole.then(|| belonging(CloudObject::LoadBalancer(it.id.clone()), service));
    let part = |key: LbKey| {
        let service = Some(uid_in(&key_text(&key)).to_owned());
        belonging(CloudObject::Part(it.id.clone(), Box::new(key)), service)
    };
    all.into_iter().chain(parts.map(part)).collect()
}

/// Those that no Service has any more. `services`: the UID, namespace and name of each that there is.
pub fn orphans(all: Vec<Belonging>, services: &[(String, String, String)]) -> Vec<Belonging> {
    let uids: BTreeSet<&str> = services.iter().map(|(uid, ..)| uid.as_str()).collect();
    let ends: Vec<String> =
        services.iter().map(|(_, namespace, name)| format!("_{namespace}_{name}")).collect();
    let lives = |it: &Belonging| it.service.as_ref().is_some_and(|uid| uids.contains(uid.as_str()));
    // Others may share what was made for one that is gone: by a guest's tag, or as the other controller marks it.
    let is_shared = |it: &Belonging| {
        let guest = |mark: &String| {
            mark.starts_with("seaway.dev/guest=") && mark.split('/').any(|it| uids.contains(it))
        };
        let named = |mark: &String| *mark != it.name && ends.iter().any(|end| mark.ends_with(end.as_str()));
        it.marks.iter().any(|mark| guest(mark) || named(mark))
    };
    let goes = |it: &Belonging| {
        let is_whole = matches!(it.thing, CloudObject::LoadBalancer(_));
        is_whole && it.service.is_some() && !is_shared(it) && (it.left || !lives(it))
    };
    let (going, staying) = standing(&all, goes);
    let is_orphan = |it: &Belonging| match (&it.thing, &it.on) {
        (CloudObject::LoadBalancer(id), _) => going.contains(id),
        (CloudObject::Part(id, _), _) => !going.contains(id) && !lives(it),
        // It leads to those who are left, whoever it was made for.
        (CloudObject::FloatingIp(_), Some(on)) if staying.contains(on) => false,
        (CloudObject::FloatingIp(_), Some(on)) if going.contains(on) => !it.kept,
        _ => it.service.is_some() && !it.kept && !lives(it),
    };
    let is_orphan: Vec<bool> = all.iter().map(is_orphan).collect();
    all.into_iter().zip(is_orphan).filter_map(|(it, is_orphan)| is_orphan.then_some(it)).collect()
}

/// Those of Services that are there and that no setting gives to the cloud: `uids`, as the controller says.
pub fn released(
    all: &[Belonging],
    uids: &BTreeSet<String>,
    services: &[(String, String, String)],
) -> Vec<Belonging> {
    let lives = |of: &String| services.iter().any(|(uid, ..)| uid == of);
    let is_one = |it: &&Belonging| it.service.as_ref().is_some_and(|of| uids.contains(of) && lives(of));
    // Of one that is shared, the part that is this Service's is enough.
    let is_part = |it: &&Belonging| {
        !matches!(it.thing, CloudObject::LoadBalancer(_))
            || !all.iter().any(|other| matches!(other.thing, CloudObject::Part(..)) && other.on == it.on)
    };
    all.iter().filter(is_one).filter(is_part).cloned().collect()
}

/// The one load balancer that serves a Service, or serves it first where it has one for each family.
pub fn primary<'b>(all: &'b [Belonging], uid: &str) -> Option<&'b Id<LoadBalancer>> {
    let first = |it: &&Belonging| match &it.thing {
        CloudObject::LoadBalancer(_) => {
            it.service.as_deref() == Some(uid) && it.marks.contains(&format!("{KEY}{uid}"))
        }
        CloudObject::Part(_, key) => {
            matches!(&**key, LbKey::Of(Owner::Object { uid: its, .. }) if its.as_str() == uid)
        }
        _ => false,
    };
    let ids: BTreeSet<&Id<LoadBalancer>> = all.iter().filter(first).filter_map(|it| it.on.as_ref()).collect();
    ids.first().filter(|_| ids.len() == 1).copied()
}

/// What goes with its cluster, and what stays all the same: what others need, and what was to be kept.
pub fn divided(all: Vec<Belonging>) -> (Vec<Belonging>, Vec<Belonging>) {
    let (whole, shared) = standing(&all, |it| matches!(it.thing, CloudObject::LoadBalancer(_)));
    let needless = |it: &Belonging| matches!(&it.thing, CloudObject::Part(id, _) if whole.contains(id));
    let leads = |it: &Belonging| matches!(it.thing, CloudObject::FloatingIp(_));
    let stays = |it: &Belonging| it.kept || leads(it) && it.on.as_ref().is_some_and(|on| shared.contains(on));
    all.into_iter().filter(|it| !needless(it)).partition(|it| !stays(it))
}

/// Load balancers that go as a whole, and those that do not.
fn standing(
    all: &[Belonging],
    goes: impl Fn(&Belonging) -> bool,
) -> (BTreeSet<Id<LoadBalancer>>, BTreeSet<Id<LoadBalancer>>) {
    let going: BTreeSet<_> = all.iter().filter(|it| goes(it)).filter_map(|it| it.on.clone()).collect();
    let balancers =
        all.iter().filter(|it| matches!(it.thing, CloudObject::LoadBalancer(_) | CloudObject::Part(..)));
    let staying = balancers.filter_map(|it| it.on.clone()).filter(|it| !going.contains(it)).collect();
    (going, staying)
}

/// Removes them; what is gone already is removed. Tells what could not be.
pub async fn remove(
    cloud: &Cloud,
    uid: &str,
    all: &[Belonging],
    tell: &(dyn Fn(&str) + Send + Sync),
) -> Vec<(Belonging, Error)> {
    remove_by(cloud, RemovalOptions { uid, cascades: true }, all, tell).await
}

/// Whose, and as `cascade-delete` says: whether one call deletes a load balancer with all below it.
#[derive(Clone, Copy, Debug)]
pub struct RemovalOptions<'u> {
    pub uid: &'u str,
    pub cascades: bool,
}

/// As [`remove`].
pub async fn remove_by(
    cloud: &Cloud,
    how: RemovalOptions<'_>,
    all: &[Belonging],
    tell: &(dyn Fn(&str) + Send + Sync),
) -> Vec<(Belonging, Error)> {
    let mut failed = Vec::new();
    let (balancers, others): (Vec<&Belonging>, Vec<&Belonging>) =
        all.iter().partition(|it| matches!(it.thing, CloudObject::LoadBalancer(_) | CloudObject::Part(..)));
    let mut going = Vec::new();
    for (number, it) in (1_usize..).zip(&balancers) {
        tell(&format!("{number} of {}: deleting {} ({})", balancers.len(), it.thing, it.name));
        match delete(cloud, how, &it.thing).await {
            Ok(()) => going.push(*it),
            Err(error) => failed.push(((*it).clone(), error)),
        }
    }
    // Groups and addresses are in use until their load balancers are gone.
    going.retain(|it: &&Belonging| matches!(it.thing, CloudObject::LoadBalancer(_)));
    for (number, it) in (1_usize..).zip(&going) {
        tell(&format!("{number} of {}: waiting until {} is gone", going.len(), it.thing));
        if let CloudObject::LoadBalancer(id) = &it.thing
            && let Err(error) = cloud.all::<LoadBalancer>().until_gone(id, PATIENCE).await
        {
            failed.push(((*it).clone(), error));
        }
    }
    let stands: BTreeSet<Option<String>> = failed.iter().map(|(it, _)| it.service.clone()).collect();
    // What a load balancer needs stays with it.
    let others: Vec<_> =
        others.into_iter().filter(|it| it.service.is_none() || !stands.contains(&it.service)).collect();
    for (number, it) in (1_usize..).zip(&others) {
        tell(&format!("{number} of {}: deleting {} ({})", others.len(), it.thing, it.name));
        if let Err(error) = delete(cloud, how, &it.thing).await {
            failed.push(((*it).clone(), error));
        }
    }
    failed
}

/// What is being changed, or is still needed for a moment, is tried again.
async fn delete(cloud: &Cloud, how: RemovalOptions<'_>, thing: &CloudObject) -> Result<(), Error> {
    let mut since = cloud.clock().now();
    loop {
        let done = match thing {
            CloudObject::LoadBalancer(id) if !how.cascades => match delete_next(cloud, id).await {
                Ok(false) => {
                    since = cloud.clock().now();
                    continue;
                }
                done => done.map(drop),
            },
            CloudObject::LoadBalancer(id) => cloud.all::<LoadBalancer>().delete_cascade(id).await,
            CloudObject::Part(id, key) => parts::leave(cloud, how.uid, how.cascades, id, key).await,
            CloudObject::FloatingIp(id) => cloud.all::<FloatingIp>().delete(id).await,
            CloudObject::SecurityGroup(id) => close(cloud, id).await,
            CloudObject::Container(id) => cloud.all::<Container>().delete(id).await,
            CloudObject::Secret(id) => cloud.all::<Secret>().delete(id).await,
        };
        let patience = match thing {
            CloudObject::LoadBalancer(_) | CloudObject::Part(..) => PATIENCE,
            _ => PATIENCE_WITH_OTHERS,
        };
        let waits = |error: &Error| {
            matches!(error.class(), Class::Immutable | Class::InUse | Class::Conflict | Class::Stale)
        };
        match done {
            Err(error)
                if waits(&error) && cloud.clock().now().saturating_duration_since(since) < patience =>
            {
                cloud.clock().sleep(LOOK).await;
            }
            done => return done,
        }
    }
}

/// No port has it any more, and it is gone.
pub(super) async fn close(cloud: &Cloud, id: &Id<SecurityGroup>) -> Result<(), Error> {
    let ports = cloud.all::<Port>().list::<Port>(Query::all().with("security_groups", id)).await?;
    for port in ports.into_iter().filter(|it| it.security_groups.contains(id)) {
        let others = port.security_groups.iter().filter(|it| *it != id).cloned().collect();
        let change = PortChange { security_groups: Edit::To(others), ..PortChange::default() };
        match port.revision_number {
            Some(revision) => cloud.all::<Port>().change_if(revision, &port.id, &change).await?,
            None => cloud.all::<Port>().change(&port.id, &change).await?,
        };
    }
    cloud.all::<SecurityGroup>().delete(id).await
}

fn told(thing: CloudObject, name: String, service: Option<String>, kept: bool, used: bool) -> Belonging {
    Belonging { thing, name, service, marks: BTreeSet::new(), kept, used, on: None, left: false }
}

/// `uid-1` of `[seaway.dev/cluster=… seaway.dev/key=uid-1]`.
fn of_mark(mark: &str) -> Option<String> {
    let key = mark.split_once(KEY)?.1;
    Some(uid_in(key.split([' ', ']']).next().unwrap_or_default()).to_owned())
}

fn unless_absent<T>(found: Result<Vec<T>, Error>) -> Result<Vec<T>, Error> {
    match found {
        Err(error) if matches!(error.class(), Class::NoService | Class::Forbidden | Class::NotFound) => {
            Ok(Vec::new())
        }
        found => found,
    }
}
