//! One security group for all load balancers of a cluster and a class, at the port of each of its Nodes.
//!
//! ```text
//!     observe ─► the group, found by its description; the ports that have it; the Neutron ports of new Nodes (neutron_ports.rs)
//!     steps   ─► pure (steps.rs), from whom Nodes should let in (rules.rs)
//!     apply   ─► one call; a port is changed only as it was when it was read
//! ```
//! Neutron takes no tags at creation, so whose a group is its description says, and of each rule its own. What has not
//! these words is never touched.

mod made;
pub(super) mod neutron_ports;
mod read;
mod removals;
pub mod rules;
pub mod steps;
mod theirs;
mod write;

use std::{sync::Arc, time::Duration};

use seaway_engine::{Context, Doubt, Driver, Failure, Removal, Report};
use seaway_model::{
    Desired, Name, NodeSecurityGroup, Owner, Problem, Reason, Unit,
    group::{NodeAccess, SourceNetwork},
};
use seaway_openstack::{Service, neutron::NewSecurityGroup};

use self::{
    made::by_those_who_made,
    neutron_ports::{NodeNeutronPort, named},
    steps::{Part, Wanted, steps},
};
pub use self::{
    steps::{Observed, Step},
    theirs::later,
};
use super::{AUDIT, Cluster, Octavia, names::shortened, service_backoffs::Requester};

/// A Node that is nowhere may only be on its way.
const SOON: Duration = Duration::from_secs(30);
/// A load balancer may be made again meanwhile, by another provider.
const LATER: Duration = Duration::from_secs(60);

/// What is known of a group.
pub(super) struct LastGroupObservation {
    there: Observed,
    /// When it was read, on the cloud's clock.
    at: std::time::Instant,
}

pub struct Groups(Arc<Octavia>);

impl Cluster {
    fn group(&self, class: &str) -> String {
        shortened(format!("lb-sg-{}-{}", self.name, class.replace('/', "-")), super::names::LONGEST)
    }

    /// Its first words are those of the cloud provider's controller.
    pub(super) fn group_description(&self, class: &str) -> String {
        let whose = format!("[{} seaway.dev/group={class}]", self.tag());
        let text = format!("Security Group for Service LoadBalancers in cluster {}", self.name);
        format!(
            "{} {whose}",
            shortened(text, super::names::LONGEST.saturating_sub(whose.len()).saturating_sub(1))
        )
    }

    fn rule_description(&self) -> String {
        format!("[{}]", self.tag())
    }
}

impl Groups {
    pub fn new(octavia: Arc<Octavia>) -> Groups {
        Groups(octavia)
    }

    /// The group of a class, if there is one, whoever wants it; one list.
    pub async fn survey(&self, cloud: &Name, class: &Name) -> Result<Option<Unit>, Failure> {
        let asker = Requester::audit();
        let joined = self.0.joined(&asker).await?;
        self.0.ask(&asker)?;
        let description = joined.cluster.group_description(class);
        let found = read::groups(&joined.cloud, &description).await;
        let found = found.map_err(|error| self.0.failed(&asker, &error))?;
        let unit = || Unit::SecurityGroup { cloud: cloud.clone(), class: class.clone() };
        Ok((!found.is_empty()).then(unit))
    }

    fn keep(&self, unit: &Unit, there: Option<(Observed, std::time::Instant)>) {
        let mut known = self.0.groups();
        match there {
            Some((there, at)) => known.insert(unit.clone(), LastGroupObservation { there, at }),
            None => known.remove(unit),
        };
    }
}

impl Driver for Groups {
    type Observed = Observed;
    type Step = Step;

    /// As of [`Octavia`].
    fn attempt_timeout(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::SecurityGroup { .. })
    }

    fn steps(&self, desired: &Desired, there: &Observed) -> Vec<Step> {
        let (Some(joined), Some(class)) = (self.0.joined.get(), &there.class) else { return Vec::new() };
        let Desired::SecurityGroup(group) = desired else { return steps(None, there) };
        let group = &by_those_who_made(group, &there.made);
        let cluster = &joined.cluster;
        let new = NewSecurityGroup {
            name: cluster.group(class).as_str().into(),
            description: cluster.group_description(class).into(),
            ..NewSecurityGroup::new()
        };
        steps(Some(&Wanted { new, mark: cluster.rule_description(), group }), there)
    }

    fn removals(&self, there: &Observed, steps: &[Step]) -> Vec<Removal> {
        removals::removals(there, steps)
    }

    fn doubt(&self) -> Option<Doubt> {
        self.0.doubt()
    }

    async fn observe(&self, context: &Context, unit: &Unit, desired: &Desired) -> Result<Observed, Failure> {
        let Unit::SecurityGroup { cloud, class } = unit else {
            return Err(Failure::retry(format!("{unit} is not a security group")));
        };
        self.0.held_back(context)?;
        let owners = owners(desired);
        let asker = asker(unit, &owners);
        let joined = self.0.joined(&asker).await?;
        self.0.ask(&asker)?;
        let now = joined.cloud.clock().now();
        let known = self.0.groups().get(unit).map(|it| (it.there.clone(), it.at));
        let young = known.filter(|(_, at)| now.saturating_duration_since(*at) < AUDIT);
        let looked = async {
            let (mut there, at) = match young {
                Some(it) => it,
                None => (read::read(&joined.cloud, &joined.cluster, class, &owners).await?, now),
            };
            there.refused.clear();
            // What was not found may be there by now.
            there.neutron_ports.retain(|_, it| {
                matches!(it, NodeNeutronPort::At(_) | NodeNeutronPort::Open(_) | NodeNeutronPort::Elsewhere)
            });
            there.made = Box::pin(self.0.made(joined, cloud, desired, &there.made)).await?;
            if let Desired::SecurityGroup(group) = desired {
                read::complete(&joined.cloud, group, &mut there).await?;
            }
            Ok((there, at))
        };
        let (mut there, at) = looked.await.map_err(|error| self.0.failed(&asker, &error))?;
        if at == now {
            self.0.backoffs.is_back(Service::Network);
        }
        self.0.mark_ours(&joined.cluster, &mut there.theirs);
        there.class = Some(class.clone());
        there.owners = owners;
        self.keep(unit, Some((there.clone(), at)));
        Ok(there)
    }

    async fn apply(
        &self,
        context: &Context,
        unit: &Unit,
        step: &Step,
        there: &mut Observed,
    ) -> Result<(), Failure> {
        self.0.held_back(context)?;
        let asker = asker(unit, &there.owners);
        let joined = self.0.joined(&asker).await?;
        self.0.ask(&asker)?;
        let at = self.0.groups().get(unit).map_or_else(|| joined.cloud.clock().now(), |it| it.at);
        match write::write(&joined.cloud, step, there).await {
            Ok(()) => {
                self.0.backoffs.is_back(Service::Network);
                self.0.refusals.passed(unit);
                self.keep(unit, Some((there.clone(), at)));
                Ok(())
            }
            Err(error) => {
                // Nobody knows any more what is there.
                self.keep(unit, None);
                Err(self.0.failed(&asker, &error))
            }
        }
    }

    fn conclude(&self, unit: &Unit, desired: &Desired, there: &Observed) -> Report {
        let mut told = Report::default();
        self.0.refusals.passed(unit);
        let Desired::SecurityGroup(group) = desired else {
            let is_gone = there.group.is_none() && there.doubles.is_empty();
            told.again = (!is_gone).then_some(SOON);
            if is_gone {
                self.keep(unit, None);
            }
            return told;
        };
        let problems = problems(group, there);
        // One that is made again by another provider is opened to as that one needs it.
        let is_other = |it: (&Owner, &Arc<NodeAccess>)| {
            there.made.get(it.0).is_some_and(|made| it.1.provider.as_ref() != Some(&made.provider))
        };
        told.again = Some(match problems.is_empty() {
            true if group.openings.iter().any(is_other) => LATER,
            true => AUDIT,
            false => SOON,
        });
        told.problems = problems;
        told
    }

    fn width(&self) -> usize {
        4
    }
}

fn problems(group: &NodeSecurityGroup, there: &Observed) -> Vec<(Owner, Problem)> {
    let mut problems = Vec::new();
    let mut tell = |owner: &Owner, reason, message: String, fix: &str| {
        problems.push((owner.clone(), Problem::new(owner.object(), reason, message).fix(fix)));
    };
    let at = |is: fn(&NodeNeutronPort) -> bool| -> Vec<&Name> {
        let theirs = group.nodes.iter().filter(|it| there.neutron_ports.get(it).is_some_and(is));
        theirs.map(|it| &it.name).collect()
    };
    let nowhere = at(|it| *it == NodeNeutronPort::Nowhere);
    let several = at(|it| *it == NodeNeutronPort::Several);
    let refused_at = there.refused.iter().filter_map(|(part, it)| match part {
        Part::Port(_) => Some(it),
        Part::Rules => None,
    });
    let refused_at: Vec<_> = refused_at.collect();
    for (owner, openings) in &group.openings {
        if !nowhere.is_empty() {
            let message = format!(
                "no port of this cloud has an address of {}: the security groups of this Node are not changed",
                named(&nowhere)
            );
            tell(
                owner,
                Reason::Failed,
                message,
                "Check that spec.providerID of the Node names its server, or allow the node ports in the server's \
                 security groups by hand.",
            );
        }
        if !several.is_empty() {
            let message = format!(
                "several ports of this cloud have the address of {}: Seaway cannot tell which of them is the Node's",
                named(&several)
            );
            tell(
                owner,
                Reason::Failed,
                message,
                "Give the Node a spec.providerID: openstack:///ID of its server.",
            );
        }
        let is_its =
            |from: &SourceNetwork| *from == openings.from || there.beside(owner).any(|it| it == from);
        if let Some((_, why)) = there.unknown().find(|(from, _)| is_its(from)) {
            let message = format!(
                "the addresses from which the load balancer reaches Nodes are unknown, so they are not \
                 allowed in the security group: {why}"
            );
            let fix = "Name the subnet of the members: member-subnet-id in [LoadBalancer], or the annotation seaway.dev/member-subnet \
                       of the Service.";
            tell(owner, Reason::Failed, message, fix);
        }
        if let Some(refused) = there.refused.get(&Part::Rules) {
            let message = format!(
                "the security group of the Nodes does not allow all ports of this Service, so some cannot \
                 be reached: {}",
                refused.why
            );
            tell(owner, Reason::Failed, message, &refused.fix);
        }
        if let Some(refused) = refused_at.first() {
            let number = refused_at.len();
            let message = format!(
                "{number} ports of Nodes did not get the security group, so the load balancer cannot reach \
                 these Nodes: {}",
                refused.why
            );
            tell(owner, Reason::Failed, message, &refused.fix);
        }
    }
    problems
}

fn owners(desired: &Desired) -> Vec<Owner> {
    match desired {
        Desired::SecurityGroup(group) => group.openings.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

/// Whoever lets us in, and Neutron; of no other is anything asked here.
const NEEDS: [Service; 2] = [Service::Identity, Service::Network];

fn asker(unit: &Unit, owners: &[Owner]) -> Requester<'static> {
    Requester::for_all(unit, owners.to_vec(), &NEEDS)
}
