//! Our security groups, given up: what they let through to Nodes, another group at the same ports lets through as well.
//!
//! ```text
//!     ours, by the cluster's UID in its description ─► ports that have it ─► each of its rules for a port that a Service uses
//!                                                                            ├─ another group there has it ─► may go
//!                                                                            └─ none has                   ─► stays, and why
//! ```
//! Each port is read again right before it is changed, and changed only as it was read.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use seaway_model::L4;
use seaway_openstack::{
    Class, Cloud, Error,
    neutron::{Direction, Port, PortChange, SecurityGroup, SecurityGroupRule},
    resource::{Edit, Id, Query},
    survey::list_decodable,
};

use super::{groups::rules::Rule, names::Cluster};

/// A port of a Node that a Service uses.
pub type NodePort = (L4, u16);

/// One of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct OurGroup {
    pub id: Id<SecurityGroup>,
    pub name: String,
    /// Those that have it.
    pub ports: Vec<Id<Port>>,
    /// What nothing else lets through; it stays as long as there is any.
    pub needed: Vec<String>,
}

/// All of this cluster. `used`: by Services of the cluster, as they are now.
pub async fn our_groups(cloud: &Cloud, uid: &str, used: &BTreeSet<NodePort>) -> Result<Vec<OurGroup>, Error> {
    let all = groups(cloud).await?;
    let cluster = Cluster { uid: uid.into(), name: "".into() };
    let is_ours = |it: &&SecurityGroup| {
        cluster.whose(&it.description).is_some_and(|mark| mark.contains(" seaway.dev/group="))
    };
    let mut ours = Vec::new();
    for group in all.values().filter(is_ours) {
        let ports = having(cloud, &group.id).await?;
        let needed = ports.iter().flat_map(|port| needed(group, port, &all, used)).collect();
        let ports = ports.into_iter().map(|it| it.id).collect();
        ours.push(OurGroup { id: group.id.clone(), name: group.name.clone(), ports, needed });
    }
    Ok(ours)
}

/// Takes it from its ports, and deletes it. An error says what is needed still; what was done by then stays done.
pub async fn release(
    cloud: &Cloud,
    group: &OurGroup,
    used: &BTreeSet<NodePort>,
) -> Result<Result<(), String>, Error> {
    let all = groups(cloud).await?;
    let Some(ours) = all.get(&group.id) else { return Ok(Ok(())) };
    for port in having(cloud, &group.id).await? {
        if let Some(why) = needed(ours, &port, &all, used).into_iter().next() {
            return Ok(Err(why));
        }
        let others = port.security_groups.iter().filter(|it| **it != group.id).cloned().collect();
        let change = PortChange { security_groups: Edit::To(others), ..PortChange::default() };
        let done = match port.revision_number {
            Some(revision) => cloud.all::<Port>().change_if(revision, &port.id, &change).await,
            None => cloud.all::<Port>().change(&port.id, &change).await,
        };
        match done {
            Err(error) if error.class() == &Class::Stale => {
                return Ok(Err(format!(
                    "other clients of the cloud are changing port {}: run the command again",
                    port.id
                )));
            }
            Err(error) if error.is_not_found() => {}
            done => _ = done?,
        }
    }
    match cloud.all::<SecurityGroup>().delete(&group.id).await {
        Err(error) if matches!(error.class(), Class::InUse | Class::Conflict) => {
            Ok(Err("a port uses the security group by now: run the command again".to_owned()))
        }
        done => done.map(Ok),
    }
}

async fn groups(cloud: &Cloud) -> Result<BTreeMap<Id<SecurityGroup>, SecurityGroup>, Error> {
    let query = match &cloud.session().project {
        Some(it) => Query::all().with("project_id", &it.id),
        None => Query::all(),
    };
    let all = list_decodable::<SecurityGroup>(cloud, query).await?;
    Ok(all.into_iter().map(|it| (it.id.clone(), it)).collect())
}

async fn having(cloud: &Cloud, id: &Id<SecurityGroup>) -> Result<Vec<Port>, Error> {
    let ports = cloud.all::<Port>().list::<Port>(Query::all().with("security_groups", id)).await?;
    Ok(ports.into_iter().filter(|it| it.security_groups.contains(id)).collect())
}

/// What this group alone lets through at a port, of what Services use. Pure.
fn needed(
    ours: &SecurityGroup,
    port: &Port,
    all: &BTreeMap<Id<SecurityGroup>, SecurityGroup>,
    used: &BTreeSet<NodePort>,
) -> Vec<String> {
    let others = port.security_groups.iter().filter(|it| **it != ours.id).filter_map(|it| all.get(it));
    let others: Vec<&SecurityGroupRule> = others.flat_map(|it| &it.security_group_rules.0).collect();
    let ingress = ours.security_group_rules.0.iter().filter(|it| it.direction == Direction::Ingress);
    let alone = ingress.filter_map(|it| match Rule::of(it) {
        Some(rule) if !used.contains(&(rule.l4, rule.port)) => None,
        Some(rule) if others.iter().any(|it| covers(it, &rule)) => None,
        Some(rule) => Some(format!("no other security group of port {} allows {rule}", port.id)),
        None => Some(format!("Seaway did not make rule {}, and port {} may need it", it.id, port.id)),
    });
    alone.collect()
}

/// Whether all that one of ours lets through is let through by this one.
fn covers(it: &SecurityGroupRule, rule: &Rule) -> bool {
    let Some(other) = Rule::of(it) else { return false };
    let contains = match (other.from, rule.from) {
        (IpNet::V4(other), IpNet::V4(from)) => other.contains(&from),
        (IpNet::V6(other), IpNet::V6(from)) => other.contains(&from),
        _ => false,
    };
    (other.l4, other.port) == (rule.l4, rule.port) && contains
}
