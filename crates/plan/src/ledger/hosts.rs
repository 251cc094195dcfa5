//! The serving hosts' own addresses: which of them are published, and at which ports.
//!
//! ```text
//!     folder   all that the hosts report
//!     cluster  Nodes: ExternalIPs if the host has any, else InternalIPs; none of excluded Nodes and of control planes
//!              hosts that are no Nodes: those that their spec.addresses names
//! ```
//! What a host says of itself is no reason to send people there: whoever has its token could say anything. What a Service has
//! from a host without spec.addresses, as versions before it gave them, stays. What it has of a Node that does not publish it any
//! more, though the host has it, stays for a while: Nodes get an ExternalIP, or are deleted by mistake.
//!
//! A Node's machine has more addresses than the cluster knows: bridges, tunnels, virtual addresses of others.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use seaway_model::{
    IpRange, ListenerId, Name, Owner, Problem, Reason, Time, config::ReservedPorts, fact::AddressPool,
    fact::HostReport, load_balancer::Family,
};

use super::{
    Ledger, LedgerChange,
    claim::{Claim, Grant},
    decide::{Decision, DecisionContext, FamilyPreferences, WaitingFor},
    keep::RetentionReason,
    pools::HOSTS,
    reserved::is_reserved,
};
use crate::index::EXCLUDED;

/// What the cluster says of a host's Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNode {
    pub internal: Vec<IpAddr>,
    pub external: Vec<IpAddr>,
    pub control_plane: bool,
    /// It is labelled `node.kubernetes.io/exclude-from-external-load-balancers`.
    pub excluded: bool,
}

impl HostNode {
    /// Of a Node that is gone no address is known.
    fn is_gone(&self) -> bool {
        self.excluded && self.internal.is_empty() && self.external.is_empty()
    }
}

/// What the serving hosts report of themselves.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    reports: BTreeMap<Name, Vec<IpAddr>>,
    /// Each with the first host that has it; before others come those of which the cluster or people say so.
    addresses: BTreeMap<IpAddr, Name>,
    /// Nobody new is to be sent there.
    draining: BTreeSet<Name>,
    /// Those that are Nodes, or were.
    nodes: BTreeMap<Name, HostNode>,
    /// Those whose addresses people wrote down.
    declared: BTreeSet<Name>,
}

impl Hosts {
    /// False if nothing changed by it.
    pub(super) fn put(&mut self, report: &HostReport) -> bool {
        let own = report.own_addresses();
        let changed = self.reports.get(&report.host) != Some(&own);
        self.reports.insert(report.host.clone(), own);
        let drained = match report.drain {
            true => self.draining.insert(report.host.clone()),
            false => self.draining.remove(&report.host),
        };
        let declared = match report.declared.is_some() {
            true => self.declared.insert(report.host.clone()),
            false => self.declared.remove(&report.host),
        };
        if changed || declared {
            self.arrange();
        }
        changed || drained || declared
    }

    pub(super) fn remove(&mut self, host: &str) -> bool {
        let changed = self.reports.remove(host).is_some();
        self.draining.remove(host);
        self.declared.remove(host);
        self.arrange();
        changed
    }

    /// False if nothing changed by it.
    pub(super) fn put_node(&mut self, name: &Name, node: Option<HostNode>) -> bool {
        // A machine whose Node is gone is no host outside of the cluster: nothing of it is published any more.
        let node = match node {
            Some(node) => node,
            None if self.nodes.contains_key(name) => HostNode { excluded: true, ..HostNode::default() },
            None => return false,
        };
        let earlier = self.nodes.insert(name.clone(), node.clone());
        let changed = earlier.is_none_or(|earlier| earlier != node);
        if changed {
            self.arrange();
        }
        changed
    }

    /// What hosts report as their own.
    pub(super) fn reported(&self) -> impl Iterator<Item = (IpAddr, &Name)> {
        self.addresses.iter().map(|(ip, host)| (*ip, host))
    }

    pub(super) fn whose(&self, ip: IpAddr) -> Option<&Name> {
        self.addresses.get(&ip)
    }

    /// Where people may be sent by a pool; without one, at everything. If all hosts drain, nobody could take over: what was
    /// published stays.
    pub(super) fn published(&self, by: Option<&AddressPool>) -> impl Iterator<Item = IpAddr> + '_ {
        let control_planes = by.is_some_and(|pool| pool.control_planes);
        let may = |ip: &IpAddr, host: &Name| by.is_none() || self.is_published(*ip, host, control_planes);
        let open: Vec<(IpAddr, &Name)> = (self.addresses.iter())
            .filter(|(ip, host)| may(ip, host))
            .map(|(ip, host)| (*ip, host))
            .collect();
        let all = open.iter().all(|(_, host)| self.draining.contains(*host));
        open.into_iter().filter(move |(_, host)| all || !self.draining.contains(*host)).map(|(ip, _)| ip)
    }

    fn is_published(&self, ip: IpAddr, host: &Name, control_planes: bool) -> bool {
        let Some(node) = self.nodes.get(host) else { return self.declared.contains(host) };
        let reported = self.reports.get(host).map_or(&[][..], Vec::as_slice);
        // One that is translated on the way is none of the host's own: nobody could listen there.
        let has_external = node.external.iter().any(|it| reported.contains(it));
        let known = if has_external { &node.external } else { &node.internal };
        !node.excluded && (control_planes || !node.control_plane) && known.contains(&ip)
    }

    /// The host that has it still, though its Node does not say so any more, or is gone. (Whoever labels a Node, or drains its
    /// host, means to end it.)
    pub(super) fn unpublished(&self, ip: IpAddr, pool: &AddressPool) -> Option<&Name> {
        let host = self.whose(ip).filter(|host| !self.draining.contains(*host))?;
        let node = self.nodes.get(host)?;
        let left_out = node.excluded && !node.is_gone() || node.control_plane && !pool.control_planes;
        (!left_out && !self.is_published(ip, host, pool.control_planes)).then_some(host)
    }

    /// The host beside the Nodes that alone says that the address is its own.
    fn undeclared(&self, ip: IpAddr) -> Option<&Name> {
        self.whose(ip).filter(|host| self.is_undeclared(host))
    }

    pub(super) fn is_undeclared(&self, host: &Name) -> bool {
        !self.nodes.contains_key(host) && !self.declared.contains(host)
    }

    /// The first host that every pool leaves out as nobody wrote down its addresses.
    fn first_undeclared(&self) -> Option<(&Name, &[IpAddr])> {
        let mut reports = self.reports.iter().filter(|(host, _)| self.is_undeclared(host));
        reports.next().map(|(host, addresses)| (host, addresses.as_slice()))
    }

    /// Hosts that a pool leaves out as they are control planes.
    fn control_planes(&self) -> usize {
        let is_left_out = |host: &&Name| self.nodes.get(*host).is_some_and(|it| it.control_plane);
        self.reports.keys().filter(is_left_out).count()
    }

    /// The first host that every pool leaves out for the label of its Node.
    fn excluded(&self) -> Option<&Name> {
        let has_label = |it: &HostNode| it.excluded && !it.is_gone();
        self.reports.keys().find(|host| self.nodes.get(*host).is_some_and(has_label))
    }

    pub(super) fn within(&self, range: IpRange) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.range(range.first()..=range.last()).map(|(ip, _)| *ip)
    }

    fn arrange(&mut self) {
        self.addresses.clear();
        let all =
            || self.reports.iter().flat_map(|(host, addresses)| addresses.iter().map(move |ip| (*ip, host)));
        let is_known = |(ip, host): &(IpAddr, &Name)| {
            let of_node = |it: &HostNode| it.internal.contains(ip) || it.external.contains(ip);
            self.declared.contains(*host) || self.nodes.get(*host).is_some_and(of_node)
        };
        for (ip, host) in all().filter(is_known).chain(all()) {
            self.addresses.entry(ip).or_insert_with(|| host.clone());
        }
    }
}

impl Ledger {
    /// What the cluster says of the Node of this name; nothing, if it is gone.
    pub fn put_node(&mut self, name: &Name, node: Option<HostNode>) -> LedgerChange {
        if self.hosts.put_node(name, node) { self.hear_all() } else { LedgerChange::default() }
    }

    /// A serving host reports it as its own.
    pub fn is_of_host(&self, ip: IpAddr) -> bool {
        self.hosts.whose(ip).is_some()
    }

    /// An address of a machine, as it reports or as its Node says.
    pub fn is_hosts_own(&self, ip: IpAddr) -> bool {
        let hosts = &self.hosts;
        let of_node = |node: &HostNode| node.internal.contains(&ip) || node.external.contains(&ip);
        hosts.whose(ip).is_some() || hosts.nodes.values().any(of_node)
    }

    /// Hosts' own addresses that the owner had before this process began, for which nothing is stored.
    pub fn remember(&mut self, owner: Owner, addresses: Vec<IpAddr>) {
        if !self.settled {
            self.remembered.insert(owner, addresses);
        }
    }
}

/// Whether a grant of hosts may leave out ports that others have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PartialGrant {
    Allowed,
    Refused,
}

impl DecisionContext<'_> {
    /// The configuration's ports.
    pub(super) fn on_hosts(
        &self,
        claim: &Claim,
        had: Option<&Grant>,
        mut wish: FamilyPreferences,
    ) -> Decision {
        wish.prefer(had.into_iter().flat_map(|had| had.addresses.iter().copied()));
        let pool = self.pools.default();
        self.publish_hosts(claim, pool, &wish, PartialGrant::Allowed, &[])
            .unwrap_or_else(|| self.refuse(claim, &wish, &super::decide::AddressesByFamily::new(), &[pool]))
    }

    /// None if the hosts do not have such addresses. `had`: what the owner has of hosts' addresses.
    pub(super) fn publish_hosts(
        &self,
        claim: &Claim,
        pool: &AddressPool,
        wish: &FamilyPreferences,
        partly: PartialGrant,
        had: &[IpAddr],
    ) -> Option<Decision> {
        let is_undeclared = |ip: &IpAddr| self.publishes_nodes(claim) && self.hosts.undeclared(*ip).is_some();
        let leaving = self.unpublished(claim, pool, had);
        let stays = |ip: &IpAddr| is_undeclared(ip) || leaving.contains_key(ip);
        let stay: Vec<IpAddr> = had.iter().copied().filter(stays).collect();
        let addresses = match &*claim.exactly {
            [] => wish.0.iter().find_map(|families| self.own(claim, families, pool, &stay))?,
            exactly => exactly.to_vec(),
        };
        let undeclared = addresses.iter().copied().find(is_undeclared);
        let before = self.reached_before_the_machines(claim, &addresses);
        let mut granted = self.grant_ports(claim, addresses, pool.object.name.clone(), true);
        if !before.is_empty() {
            granted.waits = WaitingFor::Holder;
            granted.problems.extend(before);
        }
        if let Some((ip, host)) = undeclared.and_then(|ip| Some((ip, self.hosts.undeclared(ip)?))) {
            granted.problems.push(undeclared_problem(claim, ip, host));
        }
        let grant = granted.grant.as_mut()?;
        let leaving = leaving.into_iter().filter(|(ip, _)| grant.addresses.contains(ip));
        let leaving: BTreeMap<IpAddr, Option<Time>> = leaving.collect();
        granted.problems.extend(self.unpublished_problem(claim, &leaving));
        granted.ends = leaving;
        if self.publishes_nodes(claim) {
            let refused = |id: &ListenerId| {
                is_reserved(self.machine_ports, id) && !pool.reserved_ports.contains(&id.port)
            };
            grant.refused = claim.ports.iter().copied().filter(refused).collect();
            grant.ports.retain(|(_, id)| !grant.refused.contains(id));
            grant.conflicts.retain(|(_, id, _)| !grant.refused.contains(id));
        }
        if partly == PartialGrant::Refused && !(grant.conflicts.is_empty() && grant.refused.is_empty()) {
            return None;
        }
        at_served_addresses(claim, grant);
        if let Some(problem) = self.only_at_ipv6(claim, pool, grant) {
            granted.problems.push(problem);
            granted.waits = WaitingFor::Holder;
        }
        Some(granted)
    }

    /// What a Service keeps of hosts' addresses, although none of the pools gives it these: the pool cannot be seen, or
    /// excludes it and its time has not come, or no host is seen.
    pub(super) fn keep_hosts(
        &self,
        claim: &Claim,
        had: &Grant,
        wish: &FamilyPreferences,
        allowed: bool,
    ) -> Option<Decision> {
        let has = |ip: &IpAddr| had.addresses.contains(ip);
        if !self.rules.cluster || !claim.requested.iter().all(has) {
            return None;
        }
        let addresses: Vec<IpAddr> =
            had.addresses.iter().copied().filter(|ip| wish.wants(Family::of(*ip))).collect();
        let first = *addresses.first()?;
        let mut kept = self.grant_ports(claim, addresses, had.pool.clone(), true);
        if let Some(grant) = &mut kept.grant {
            at_served_addresses(claim, grant);
        }
        if allowed {
            let message = format!(
                "none of the hosts that report is published by pool {}; the addresses stay",
                had.pool
            );
            let problem = Problem::new(claim.owner.object(), Reason::PoolMissing, message);
            kept.problems.push(problem.fix(
                "See that seaway node runs: kubectl seaway status. Hosts that do not report are not counted.",
            ));
            return Some(kept);
        }
        match self.stays_from(claim, first, &had.pool)? {
            RetentionReason::Unseen(_) => kept.problems.push(implicit(claim, &had.pool, self.machine_ports)),
            stays @ RetentionReason::Until(..) => {
                kept.problems.push(stays.problem(claim, first));
                if let RetentionReason::Until(_, end) = stays {
                    kept.ends.insert(first, end);
                }
            }
        }
        Some(kept)
    }

    /// What was granted before this process began, as far as statuses tell.
    pub(super) fn remembered(&self, claim: &Claim, candidates: &[&AddressPool]) -> Option<Grant> {
        let addresses = self.remembered.get(&claim.owner).filter(|_| self.rules.cluster)?;
        if claim.hosts_only || self.holdings.formerly(&claim.owner).next().is_some() {
            return None;
        }
        let pool = candidates.iter().find(|pool| pool.hosts).map(|pool| pool.object.name.clone());
        Some(Grant {
            addresses: addresses.clone(),
            pool: pool.unwrap_or_else(|| HOSTS.into()),
            from_hosts: true,
            ports: Vec::new(),
            conflicts: Vec::new(),
            refused: BTreeSet::new(),
        })
    }

    /// `stay`: what it keeps although no pool publishes it any more.
    fn own(
        &self,
        claim: &Claim,
        families: &[Family],
        pool: &AddressPool,
        stay: &[IpAddr],
    ) -> Option<Vec<IpAddr>> {
        let published: BTreeSet<IpAddr> =
            self.published_by(claim, pool).chain(stay.iter().copied()).collect();
        let own: Vec<IpAddr> = published.into_iter().collect();
        let of = |family: &Family| {
            let found: Vec<IpAddr> = match claim.requested_in(*family) {
                Some(ip) => Some(ip).into_iter().filter(|ip| self.is_own(claim, *ip, &own)).collect(),
                None => own.iter().copied().filter(|ip| Family::of(*ip) == *family).collect(),
            };
            (!found.is_empty()).then_some(found)
        };
        families.iter().map(of).collect::<Option<Vec<_>>>().map(|found| found.concat())
    }

    /// Whoever asks for one by name gets that of a host that drains, too.
    fn is_own(&self, claim: &Claim, ip: IpAddr, published: &[IpAddr]) -> bool {
        match self.publishes_nodes(claim) {
            true => published.contains(&ip),
            false => self.hosts.whose(ip).is_some() && !self.holdings.contains(ip),
        }
    }

    /// Hosts' addresses that the pool publishes for this claim.
    pub(super) fn published_by(
        &self,
        claim: &Claim,
        pool: &AddressPool,
    ) -> impl Iterator<Item = IpAddr> + '_ {
        let by = self.publishes_nodes(claim).then_some(pool);
        // An address of our pools that is present on a host is not the host's own.
        let holdings = self.holdings;
        self.hosts.published(by).filter(move |ip| !holdings.contains(*ip))
    }

    /// What the configuration listens on are all addresses of the machines.
    pub(super) fn publishes_nodes(&self, claim: &Claim) -> bool {
        self.rules.cluster && !claim.hosts_only
    }

    /// Why a pool of hosts publishes nothing.
    pub(super) fn why_no_host(&self, usable: &[&AddressPool]) -> Option<(String, String)> {
        let mut pools = usable.iter().filter(|pool| pool.hosts).peekable();
        if !self.rules.cluster || pools.peek().is_none() {
            return None;
        }
        let (mut message, mut fixes) = (String::new(), Vec::new());
        let count = self.hosts.control_planes();
        if let Some(pool) = pools.find(|pool| !pool.control_planes).filter(|_| count > 0) {
            message = format!("; pool {} leaves out control planes ({count})", pool.object.name);
            fixes.push(format!(
                "To publish those of control planes, too: spec.controlPlanes: true of pool {}.",
                pool.object.name
            ));
        }
        // On a cluster of one Node, kubeadm sets both.
        if let Some(host) = self.hosts.excluded() {
            message.push_str(&format!(
                "; the Node {host} has the label {EXCLUDED}, by which every pool leaves it out"
            ));
            fixes.push(format!("To have a Node serve: kubectl label node {host} {EXCLUDED}-"));
        }
        if let Some((host, addresses)) = self.hosts.first_undeclared() {
            message.push_str(&format!(
                "; host {host} is not a Node, and its LoadBalancerHost lists no addresses in spec.addresses"
            ));
            fixes.push(format!("To publish those of {host}: {}", declare(host, addresses)));
        }
        (!fixes.is_empty()).then(|| (message, fixes.join(" ")))
    }
}

/// Whoever runs the cluster says by this which addresses a host has.
pub(super) fn declare(host: &Name, addresses: &[IpAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(|ip| format!("\"{ip}\"")).collect();
    format!(
        "kubectl patch loadbalancerhost {host} --type merge -p '{{\"spec\":{{\"addresses\":[{}]}}}}'",
        addresses.join(",")
    )
}

fn undeclared_problem(claim: &Claim, ip: IpAddr, host: &Name) -> Problem {
    let message = format!(
        "the Service has {ip} of host {host}, which is not a Node, and whose LoadBalancerHost does not list \
         this address in spec.addresses; the Service keeps the address, and other Services cannot get it"
    );
    let problem = Problem::new(claim.owner.object(), Reason::AddressOutsidePools, message);
    problem.fix(format!("If {host} really has this address, confirm it: {}", declare(host, &[ip])))
}

/// An address where others have every port is not published.
fn at_served_addresses(claim: &Claim, grant: &mut Grant) {
    let served: BTreeSet<IpAddr> = grant.ports.iter().map(|(ip, _)| *ip).collect();
    grant.addresses.retain(|ip| claim.ports.is_empty() || served.contains(ip));
}

/// A pool of hosts' addresses, in one line of YAML, that allows the claim what it has.
pub(super) fn written(name: &str, claim: &Claim, machine: &ReservedPorts) -> String {
    let reserved: BTreeSet<u16> =
        claim.ports.iter().filter(|id| is_reserved(machine, id)).map(|id| id.port).collect();
    let ports: Vec<String> = reserved.iter().map(u16::to_string).collect();
    let ports = match ports.as_slice() {
        [] => String::new(),
        ports => format!(", reservedPorts: [{}]", ports.join(", ")),
    };
    format!(
        "{{apiVersion: seaway.dev/v1alpha1, kind: AddressPool, metadata: {{name: {name}}}, spec: {{hosts: true{ports}}}}}"
    )
}

fn implicit(claim: &Claim, pool: &Name, machine: &ReservedPorts) -> Problem {
    let message = "the Service has hosts' own addresses, and Seaway sees no AddressPool with `hosts: true` \
                   that allows this; the Service keeps the addresses";
    Problem::new(claim.owner.object(), Reason::PoolMissing, message).fix(format!(
        "To allow this for all Services, apply this AddressPool, with controlPlanes: true if addresses of control planes are \
         to stay: {}",
        written(pool, claim, machine)
    ))
}
