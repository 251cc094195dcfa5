//! What owners ask of the ledger, and what it answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use seaway_model::{
    ListenerId, Name, ObjectRef, Owner, Reason, Time,
    fact::{Families, FamilyPolicy, Labels},
    load_balancer::Family,
    outcome::{PortStatus, ServingSocket},
};

/// What an owner asks for. Made by [`Claim::new`] and changed from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub owner: Owner,
    /// Absent counts as oldest.
    pub created: Option<Time>,
    pub namespace: Name,
    pub namespace_labels: Labels,
    /// Of the owner: what a pool's service selectors look at.
    pub labels: Labels,
    pub families: Families,
    pub ports: BTreeSet<ListenerId>,
    /// At most one of each family.
    pub requested: Vec<IpAddr>,
    /// Where they are requested, for Problems: `spec.loadBalancerIP`.
    pub requested_field: Name,
    /// Only from this pool.
    pub pool: Option<Name>,
    pub sharing: Option<Name>,
    /// Other namespaces with whose owners it may share, if they say so too; `*` is all.
    pub across: Vec<Name>,
    pub local_only: bool,
    pub selector: Labels,
    /// On the hosts' own addresses, whatever pools there are: the configuration's ports.
    pub hosts_only: bool,
    /// With `hosts_only`: on these alone, reported by a host or not (`127.0.0.1`, `::`).
    pub exactly: Vec<IpAddr>,
}

impl Claim {
    /// One address of either family, no ports, no wishes.
    pub fn new(owner: Owner) -> Claim {
        Claim {
            namespace: owner.object().namespace,
            owner,
            created: None,
            namespace_labels: Labels::new(),
            labels: Labels::new(),
            families: Families { policy: FamilyPolicy::Single, first: None, second: None },
            ports: BTreeSet::new(),
            requested: Vec::new(),
            requested_field: Name::default(),
            pool: None,
            sharing: None,
            across: Vec::new(),
            local_only: false,
            selector: Labels::new(),
            hosts_only: false,
            exactly: Vec::new(),
        }
    }

    pub(super) fn party(&self) -> SharingNamespaces {
        SharingNamespaces { namespace: self.namespace.clone(), across: self.across.clone() }
    }

    pub(super) fn requested_in(&self, family: Family) -> Option<IpAddr> {
        self.requested.iter().copied().find(|ip| Family::of(*ip) == family)
    }

    pub(super) fn age(&self) -> ClaimOrder {
        let ObjectRef { namespace, name, .. } = self.owner.object();
        ClaimOrder { created: self.created, namespace, name, owner: self.owner.clone() }
    }
}

/// Whom an owner may share with, beside its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SharingNamespaces {
    pub(super) namespace: Name,
    across: Vec<Name>,
}

impl SharingNamespaces {
    /// A key is only a word: who says it in another namespace may mean something else, or be up to something.
    pub(super) fn gets_along_with(&self, other: &SharingNamespaces) -> bool {
        let welcomes = |this: &SharingNamespaces, other: &SharingNamespaces| {
            this.across.iter().any(|it| **it == *"*" || *it == other.namespace)
        };
        self.namespace == other.namespace || welcomes(self, other) && welcomes(other, self)
    }
}

/// The order in which owners are heard: the oldest first, then by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClaimOrder {
    created: Option<Time>,
    namespace: Name,
    name: Name,
    pub(super) owner: Owner,
}

/// What an owner has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// In the order of the claim's families; of hosts, all of a family's one after the other.
    pub addresses: Vec<IpAddr>,
    /// The pool of the first address.
    pub pool: Name,
    /// The addresses are the serving hosts' own: there are no Address objects for them.
    pub from_hosts: bool,
    /// Where the owner may listen.
    pub ports: Vec<(IpAddr, ListenerId)>,
    /// Ports that somebody else has, and who. They are no Problems here: the ledger does not know which field a port
    /// comes from. Where others have every port of every address of hosts, `addresses` is empty.
    pub conflicts: Vec<(IpAddr, ListenerId, Owner)>,
    /// Ports that the machines need themselves (`reserved`).
    pub refused: BTreeSet<ListenerId>,
}

impl Grant {
    /// Of hosts' addresses: each port that was asked for, and why it is lacking.
    pub fn ports_at_hosts(&self) -> Vec<PortStatus> {
        let serving = |ip: IpAddr, id: &ListenerId| ServingSocket { ip, protocol: id.l4, port: id.port };
        let has = |ip: IpAddr, id: &ListenerId| PortStatus { at: serving(ip, id), lacks: None };
        let lacks = |ip, id: &ListenerId, why| PortStatus { at: serving(ip, id), lacks: Some(why) };
        let held = self.ports.iter().map(|(ip, id)| has(*ip, id));
        let conflicts = self.conflicts.iter().map(|(ip, id, _)| lacks(*ip, id, Reason::PortConflict));
        let refused = self
            .addresses
            .iter()
            .flat_map(|ip| self.refused.iter().map(|id| lacks(*ip, id, Reason::PortReserved)));
        let mut all: Vec<PortStatus> =
            held.chain(conflicts).chain(refused).filter(|_| self.from_hosts).collect();
        all.sort_by(|a, b| a.at.cmp(&b.at));
        all
    }

    /// The same by port and by who has it: at which addresses.
    pub(crate) fn conflicts_by_port(&self) -> Vec<(String, ListenerId, &Owner)> {
        let mut all: BTreeMap<(ListenerId, &Owner), Vec<String>> = BTreeMap::new();
        for (ip, id, other) in &self.conflicts {
            all.entry((*id, other)).or_default().push(ip.to_string());
        }
        all.into_iter().map(|((id, other), ips)| (ips.join(", "), id, other)).collect()
    }

    /// The ports that somebody else has.
    pub(super) fn lacking(&self) -> impl Iterator<Item = (IpAddr, ListenerId)> + '_ {
        self.conflicts.iter().map(|(ip, port, _)| (*ip, *port))
    }
}

/// What changed because of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerChange {
    /// Owners who are granted, or told, something else now.
    pub owners: BTreeSet<Owner>,
    /// Addresses whose Address object is another now, or gone.
    pub addresses: BTreeSet<IpAddr>,
    /// Pools whose Problems are other ones now.
    pub pools: BTreeSet<ObjectRef>,
    /// Addresses that owners lost who are still there: worth a line in the log.
    pub withdrawn: Vec<(Owner, IpAddr)>,
}

impl LedgerChange {
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty() && self.addresses.is_empty() && self.pools.is_empty()
    }
}

/// How full a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUse {
    pub pool: ObjectRef,
    pub hosts: bool,
    pub v4: FamilyUse,
    pub v6: FamilyUse,
}

/// Counted in addresses; what is being released is neither assigned nor available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyUse {
    pub assigned: u128,
    pub available: u128,
}
