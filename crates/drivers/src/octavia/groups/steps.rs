//! From the group that is there to the one that should be. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use seaway_engine::{Effect, Effects};
use seaway_model::{
    Name, NodeSecurityGroup, Owner,
    group::{CloudNode, SourceNetwork},
};
use seaway_openstack::{
    neutron::{NewSecurityGroup, Port, SecurityGroup, SecurityGroupRule},
    resource::{Edit, Id},
};

use super::{
    made::Made,
    neutron_ports::{NodeNeutronPort, has},
    rules::{Places, Rule, frozen, node_ports, rules},
    theirs::{self, Their},
};

/// What is there of one group.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Whose it is; nothing where nobody has looked.
    pub class: Option<Name>,
    pub group: Option<SecurityGroup>,
    /// Left of a request whose answer was lost, and that was repeated.
    pub doubles: Vec<Id<SecurityGroup>>,
    /// Those that have the group, and those that should.
    pub ports: BTreeMap<Id<Port>, Port>,
    pub neutron_ports: BTreeMap<CloudNode, NodeNeutronPort>,
    pub places: Places,
    /// The other controller's, of Services that have ours.
    pub theirs: BTreeMap<Id<SecurityGroup>, Their>,
    /// The load balancers that are there, of those that are to be opened to.
    pub made: BTreeMap<Owner, Made>,
    /// From where they reach Nodes, beside from where they would if they were made now.
    pub beside: BTreeMap<Owner, BTreeSet<SourceNetwork>>,
    /// Who hears of what is wrong.
    pub owners: Vec<Owner>,
    /// What could not be done, of one Node or of all; nobody tries it again before the next look.
    pub refused: BTreeMap<Part, Refused>,
}

/// What a refusal is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Rules,
    Port(Id<Port>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    pub why: String,
    pub fix: String,
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Create(Box<NewSecurityGroup>),
    /// With the words by which we know that we made it.
    Open(Rule, String),
    Close(Id<SecurityGroupRule>, Rule),
    Attach(Id<Port>, Name),
    Detach(Id<Port>),
    Remove(Id<SecurityGroup>),
    /// Theirs, from this port.
    Release(Id<Port>, Vec<Id<SecurityGroup>>),
    RemoveTheirs(Id<SecurityGroup>),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Create(new) => match &new.name {
                Edit::To(name) => write!(f, "create security group {name}"),
                Edit::Leave => f.write_str("create a security group"),
            },
            Step::Open(rule, _) => write!(f, "allow {rule} to Nodes"),
            Step::Close(_, rule) => write!(f, "stop allowing {rule} to Nodes"),
            Step::Attach(_, node) => write!(f, "attach the security group to the port of Node {node}"),
            Step::Detach(port) => write!(f, "detach the security group from port {port}"),
            Step::Remove(id) => write!(f, "delete security group {id}"),
            Step::Release(port, from) => {
                write!(f, "detach {} security groups of the other controller from port {port}", from.len())
            }
            Step::RemoveTheirs(id) => write!(f, "delete security group {id} of the other controller"),
        }
    }
}

impl Effects for Step {
    fn effect(&self) -> Effect {
        match self {
            Step::Create(_) => Effect::CHANGES,
            Step::Open(..) | Step::Attach(..) => Effect::EXPOSES,
            Step::Close(..) | Step::Detach(_) | Step::Remove(_) => Effect::DELETES,
            Step::Release(..) | Step::RemoveTheirs(_) => Effect::DELETES,
        }
    }
}

/// As it should be.
pub struct Wanted<'w> {
    pub new: NewSecurityGroup,
    /// What our rules say of themselves.
    pub mark: String,
    pub group: &'w NodeSecurityGroup,
}

pub fn steps(wanted: Option<&Wanted<'_>>, there: &Observed) -> Vec<Step> {
    let mut steps = Vec::new();
    let Some(wanted) = wanted else {
        steps.extend(there.holders().map(|it| Step::Detach(it.id.clone())));
        steps.extend(there.group.iter().map(|it| Step::Remove(it.id.clone())));
        steps.extend(there.doubles.iter().cloned().map(Step::Remove));
        return steps;
    };
    let openings = &wanted.group.openings;
    if !openings.is_empty() && openings.values().all(|it| it.frozen) {
        return steps;
    }
    if there.group.is_none() {
        steps.push(Step::Create(Box::new(wanted.new.clone())));
    }
    steps.extend(of_rules(wanted, there));
    steps.extend(of_ports(wanted.group, there));
    steps.extend(there.doubles.iter().cloned().map(Step::Remove));
    if steps.is_empty() && there.refused.is_empty() {
        steps = theirs::steps(wanted.group, there);
    }
    steps
}

/// What goes makes room for what comes; but who may come to a port that stays is never nobody meanwhile.
fn of_rules(wanted: &Wanted<'_>, there: &Observed) -> Vec<Step> {
    let rules = rules(wanted.group, &there.places, &there.beside);
    let told = there.group.iter().flat_map(|it| &it.security_group_rules.0);
    let present: Vec<(&SecurityGroupRule, Rule)> = told.filter_map(|it| Some((it, Rule::of(it)?))).collect();
    let ports: BTreeSet<_> = rules.keys().map(|it| (it.l4, it.port)).collect();
    // Whoever does not know where a load balancer is does not know what is not needed.
    let mut openings = wanted.group.openings.values();
    let is_known = |from: &SourceNetwork| matches!(there.places.get(from), Some(Ok(_)));
    let all_known = openings.all(|it| it.frozen || is_known(&it.from));
    let is_unclear = |owner: &Owner| !there.beside(owner).all(is_known);
    let unclear = wanted.group.openings.iter().filter(|(owner, _)| is_unclear(owner));
    let unclear: BTreeSet<_> =
        unclear.flat_map(|(_, it)| node_ports(it)).chain(frozen(wanted.group)).collect();
    let kept = &wanted.group.kept;
    let is_frozen = |rule: &Rule| {
        let port = (rule.l4, rule.port);
        unclear.contains(&port) || kept.contains(&port)
    };
    let stale = present.iter().filter(|(it, rule)| {
        all_known
            && !is_frozen(rule)
            && it.description.as_deref() == Some(wanted.mark.as_str())
            && !rules.contains_key(rule)
    });
    let (after, before): (Vec<_>, Vec<_>) =
        stale.partition(|(_, rule)| ports.contains(&(rule.l4, rule.port)));
    let close = |it: &(&SecurityGroupRule, Rule)| Step::Close(it.0.id.clone(), it.1);
    let missing = rules.keys().filter(|rule| !present.iter().any(|(_, it)| it == *rule));
    let open = missing.filter(|_| !there.refused.contains_key(&Part::Rules));
    let mut steps: Vec<Step> = before.into_iter().map(close).collect();
    steps.extend(open.map(|rule| Step::Open(*rule, wanted.mark.clone())));
    steps.extend(after.into_iter().map(close));
    steps
}

fn of_ports(group: &NodeSecurityGroup, there: &Observed) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut wanted = BTreeSet::new();
    for node in &group.nodes {
        let Some(NodeNeutronPort::At(port)) = there.neutron_ports.get(node) else { continue };
        let is_new = wanted.insert(port);
        let may = !there.refused.contains_key(&Part::Port(port.clone()));
        if is_new && may && !there.has_group(port) {
            steps.push(Step::Attach(port.clone(), node.name.clone()));
        }
    }
    // Nobody takes it from a Node for not finding it just now.
    let lost: Vec<_> = (group.nodes.iter())
        .filter(|it| !matches!(there.neutron_ports.get(it), Some(NodeNeutronPort::At(_))))
        .flat_map(|it| it.addresses.clone())
        .chain(group.passed_over.iter().copied())
        .collect();
    let left = there.holders().filter(|it| !wanted.contains(&it.id) && !has(it, &lost));
    let may = left.filter(|it| !there.refused.contains_key(&Part::Port(it.id.clone())));
    steps.extend(may.map(|it| Step::Detach(it.id.clone())));
    steps
}

impl Observed {
    pub fn has_group(&self, port: &Id<Port>) -> bool {
        let Some(group) = &self.group else { return false };
        self.ports.get(port).is_some_and(|it| it.security_groups.contains(&group.id))
    }

    pub fn beside(&self, owner: &Owner) -> impl Iterator<Item = &SourceNetwork> {
        self.beside.get(owner).into_iter().flatten()
    }

    /// Ports that have it.
    pub fn holders(&self) -> impl Iterator<Item = &Port> {
        self.ports.values().filter(|it| self.has_group(&it.id))
    }

    /// Where nobody knows what load balancers come from, and why.
    pub fn unknown(&self) -> impl Iterator<Item = (&SourceNetwork, &String)> {
        self.places.iter().filter_map(|(from, it)| Some((from, it.as_ref().err()?)))
    }
}
