//! What one driver changes as a whole, and what should be there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use crate::{
    Address, LoadBalancer, NodeSecurityGroup,
    acme::CertificateOrder,
    dns::DnsName,
    load_balancer::{Family, PoolId},
    name::{Kind, Name, ObjectRef, Owner},
    outcome::Status,
};

/// Where a unit is made real, and by which driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Cloud { name: Name, driver: Name },
    Host { name: Name, driver: Name },
}

/// What one driver changes as a whole. Queue, exclusion, observe, steps and apply are per Unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    LoadBalancer(Place, LbKey),
    /// One shared group of a cloud and a load balancer class.
    SecurityGroup {
        cloud: Name,
        class: Name,
    },
    /// All our addresses on one host.
    HostAddresses(Name),
    /// The claim of one address.
    Address(IpAddr),
    /// The answer to a DNS name: looked up again by its TTL, its answers are facts.
    Name(Name),
    /// The certificate that a host name of the front door is to have from an authority: ordered, and renewed.
    CertificateOrder(Name),
    /// What a name of a Service stands for in DNS.
    DnsName(Name),
    Status(Owner),
    /// Its owner's finalizer: it stays until what is there for it in a cloud is gone.
    Finalizer(Owner),
}

impl Unit {
    /// The Service whose status or finalizer it is, and which of those that were called so; nothing else has either.
    pub fn service(&self) -> Option<(&ObjectRef, &str)> {
        match self {
            Unit::Status(Owner::Object { object, uid }) | Unit::Finalizer(Owner::Object { object, uid })
                if object.kind == Kind::Service =>
            {
                Some((object, uid))
            }
            _ => None,
        }
    }
}

/// Which load balancer of a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LbKey {
    /// One for one owner.
    Of(Owner),
    /// Beside that: its addresses of a second family, where one load balancer has those of one only.
    Second(Owner, Family),
    /// One for several owners: named by the uid of the first, frozen.
    Shared(Name),
    /// One port of an owner (LBaaS v1).
    Port(Owner, u16),
    /// One for everybody of that place (HAProxy's one process).
    Whole,
}

impl LbKey {
    /// Nobody, where it is of several.
    pub fn owner(&self) -> Option<&Owner> {
        match self {
            LbKey::Of(owner) | LbKey::Second(owner, _) | LbKey::Port(owner, _) => Some(owner),
            LbKey::Shared(_) | LbKey::Whole => None,
        }
    }

    /// Of the object that owns it; nobody's in particular, where that is the configuration.
    pub fn namespace(&self) -> Option<&Name> {
        match self.owner()? {
            Owner::Object { object, .. } => Some(&object.namespace),
            Owner::Config(_) => None,
        }
    }

    pub fn second_family(&self) -> Option<Family> {
        match self {
            LbKey::Second(_, family) => Some(*family),
            _ => None,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unit::LoadBalancer(place, key) => write!(f, "load balancer {key} on {place}"),
            Unit::SecurityGroup { cloud, class } => write!(f, "security group of {class} on cloud {cloud}"),
            Unit::HostAddresses(host) => write!(f, "addresses on host {host}"),
            Unit::Address(ip) => write!(f, "address {ip}"),
            Unit::Name(name) => write!(f, "name {name}"),
            Unit::CertificateOrder(host) => write!(f, "certificate for {host}"),
            Unit::DnsName(name) => write!(f, "DNS records of {name}"),
            Unit::Status(owner) => write!(f, "status of {owner}"),
            Unit::Finalizer(owner) => write!(f, "finalizer of {owner}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Cloud { name, driver } => write!(f, "cloud {name} ({driver})"),
            Place::Host { name, driver } => write!(f, "host {name} ({driver})"),
        }
    }
}

impl fmt::Display for LbKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LbKey::Of(owner) => owner.fmt(f),
            LbKey::Second(owner, family) => write!(f, "{owner} ({})", family.as_str()),
            LbKey::Shared(key) => write!(f, "shared {key}"),
            LbKey::Port(owner, port) => write!(f, "{owner} port {port}"),
            LbKey::Whole => f.write_str("of all"),
        }
    }
}

/// Our addresses on one host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostAddresses {
    /// Each with those who are told when it cannot be there.
    pub addresses: BTreeMap<IpAddr, Vec<Owner>>,
    /// The highest version of an Address that this follows from.
    pub as_of: u64,
    /// How often the store was set back before that: versions of another epoch say nothing.
    pub epoch: u64,
}

/// What should be at a Unit.
#[derive(Clone, Debug, PartialEq)]
pub enum Desired {
    LoadBalancer(Arc<LoadBalancer>),
    SecurityGroup(Arc<NodeSecurityGroup>),
    HostAddresses(HostAddresses),
    Address(Arc<Address>),
    Name(Name),
    CertificateOrder(Arc<CertificateOrder>),
    DnsName(Arc<DnsName>),
    Status(Arc<Status>),
    Finalizer,
    /// Whatever is there: its owner lives, and no setting of ours is a reason to remove what it uses.
    Released,
    /// Nothing any more; the Unit is forgotten once it was observed absent.
    Absent,
    /// The same, of an owner that may have had it from another controller: what tells which one it was.
    Removed(Arc<RemovedOwner>),
}

impl Desired {
    pub fn is_absent(&self) -> bool {
        matches!(self, Desired::Absent | Desired::Removed(_))
    }

    /// What would be done is reported, and nothing is written.
    pub fn is_preview(&self) -> bool {
        let Desired::LoadBalancer(it) = self else { return false };
        it.options.cloud.as_ref().is_some_and(|it| it.preview)
    }
}

/// What finds the load balancer of an owner that wants none any more, if it was not adopted before.
#[derive(Clone, Debug, PartialEq)]
pub struct RemovedOwner {
    /// As it would be planned if its owner still wanted it.
    pub load_balancer: Arc<LoadBalancer>,
    /// Addresses of all Nodes: node ports are not known any more once a Service has another type.
    pub nodes: BTreeSet<IpAddr>,
    /// Another controller wrote the finalizer: it made what there is.
    pub by_another: bool,
}

/// What has to be looked at again. An endpoint's change re-plans nothing but its pool, a renewed certificate nothing at
/// all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkItem {
    Unit(Unit),
    Pool(Unit, PoolId),
    Certificate(Unit, ObjectRef),
}

impl WorkItem {
    pub fn unit(&self) -> &Unit {
        match self {
            WorkItem::Unit(unit) | WorkItem::Pool(unit, _) | WorkItem::Certificate(unit, _) => unit,
        }
    }
}
