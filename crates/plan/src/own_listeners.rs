//! Our own listeners, and who has members at their addresses: a member that is one of our own listeners makes a loop.
//!
//! ```text
//!     grants ───────► listeners ─┐
//!     hosts' addresses ──────────┼─► whose(address, port): the listener that a member would be
//!     the status page ───────────┘
//!     a listener or an address comes or goes ─► who has a member there is planned again
//! ```
//!
//! What is granted counts, not what is served at the moment: whether an owner has members decides what it serves, and
//! listeners that followed from members would go round themselves.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use ipnet::IpNet;
use seaway_model::{
    L4, ListenerId, Member, Name, Owner, Problem, Reason,
    config::{MemberRules, ReservedPorts},
    load_balancer::Family,
};

use crate::{
    address_map::AddressMap,
    annotations::BACKENDS,
    demand::{Demand, DemandPort},
    forbidden_members::{ForbiddenReason, ProtectedAddresses},
    front_door,
    index::ServiceKey,
};

/// An address and port at which something of ours listens.
type ListenAddress = (IpAddr, ListenerId);

#[derive(Debug, Default)]
pub(crate) struct OwnListeners {
    /// Those for all addresses are at the unspecified one.
    listeners: HashMap<ListenAddress, Vec<Owner>>,
    of_owner: HashMap<Owner, Vec<ListenAddress>>,
    /// How many listeners are at an address.
    at_address: HashMap<IpAddr, u32>,
    /// Own addresses of hosts, as they report.
    hosts: AddressMap<Name>,
    status_page: Vec<SocketAddr>,
    machines: ProtectedAddresses,
    dependents: PoolOwnersByAddress,
}

/// Whoever has members.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolOwner {
    Owner(Owner),
    /// A Service that the front door leads to.
    AtFrontDoor(ServiceKey),
}

/// Whose listener a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenerOwner {
    For(Owner),
    StatusPage,
}

/// A member that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedMember {
    pub(crate) at: SocketAddr,
    pub(crate) listening: ListenerOwner,
    /// Who names it: an EndpointSlice, or a DNS name.
    pub(crate) named_by: String,
}

/// Which of those who have members have one at an address. Both directions are small: a host plans for all members of
/// a cluster.
#[derive(Debug, Default)]
struct PoolOwnersByAddress {
    ids: HashMap<PoolOwner, u32>,
    by_id: BTreeMap<u32, PoolOwner>,
    at: BTreeSet<(IpAddr, u32)>,
    addresses: HashMap<u32, Vec<IpAddr>>,
    next: u32,
}

impl OwnListeners {
    /// The listener of ours that is reached there.
    pub(crate) fn whose(&self, at: SocketAddr, l4: L4) -> Option<ListenerOwner> {
        let ip = reached(at.ip());
        let id = ListenerId { l4, port: at.port() };
        let first =
            |place: &ListenAddress| self.listeners.get(place)?.first().cloned().map(ListenerOwner::For);
        if let Some(exact) = first(&(ip, id)) {
            return Some(exact);
        }
        let status_page = || {
            let page = self.status_page.iter().find(|page| {
                // A socket for [::] takes IPv4 as well.
                let all = page.ip().is_unspecified() && (page.is_ipv6() || ip.is_ipv4()) && self.is_local(ip);
                page.port() == at.port() && (all || reached(page.ip()) == ip)
            });
            page.filter(|_| l4 == L4::Tcp).map(|_| ListenerOwner::StatusPage)
        };
        let wide = || first(&(all_of(ip), id)).filter(|_| self.is_local(ip));
        status_page().or_else(wide)
    }

    /// An address of a host of ours, so that what listens at all addresses is reached there.
    fn is_local(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.hosts.owners(ip).is_some() || self.at_address.contains_key(&ip)
    }

    /// What an owner listens at from now on. Tells who has members there.
    pub(crate) fn set_listeners(
        &mut self,
        owner: &Owner,
        mut now: Vec<ListenAddress>,
    ) -> BTreeSet<PoolOwner> {
        now.sort_unstable();
        now.dedup();
        let before = match now.is_empty() {
            true => self.of_owner.remove(owner),
            false => self.of_owner.insert(owner.clone(), now.clone()),
        };
        let before = before.unwrap_or_default();
        if before == now {
            return BTreeSet::new();
        }
        let mut changed = Vec::new();
        for place in before.iter().filter(|it| now.binary_search(it).is_err()) {
            changed.push(*place);
            if let Some(owners) = self.listeners.get_mut(place) {
                owners.retain(|it| it != owner);
                if owners.is_empty() {
                    self.listeners.remove(place);
                }
            }
            release(&mut self.at_address, place.0);
        }
        for place in now.iter().filter(|it| before.binary_search(it).is_err()) {
            changed.push(*place);
            self.listeners.entry(*place).or_default().push(owner.clone());
            claim(&mut self.at_address, place.0);
        }
        let mut touched = BTreeSet::new();
        for (ip, _) in changed {
            if ip.is_unspecified() {
                let local = |it: &IpAddr| Family::of(*it) == Family::of(ip) && self.is_local(reached(*it));
                touched.extend(self.dependents.with_members(local));
            } else {
                touched.extend(self.dependents.with_members_at(ip));
            }
        }
        touched
    }

    /// A host has other addresses of its own. Tells who has members there.
    pub(crate) fn set_host(&mut self, host: &Name, now: &[IpAddr]) -> BTreeSet<PoolOwner> {
        if self.hosts.of(host) == now {
            return BTreeSet::new();
        }
        let changed = self.hosts.put(host, now.to_vec());
        changed.into_iter().flat_map(|ip| self.dependents.with_members_at(ip)).collect()
    }

    /// A Node has other addresses. Tells who has members there.
    pub(crate) fn set_node(
        &mut self,
        node: &Name,
        addresses: &[IpAddr],
        pods: &[IpNet],
    ) -> BTreeSet<PoolOwner> {
        let changed = self.machines.set_node(node, addresses, pods);
        changed.into_iter().flat_map(|ip| self.dependents.with_members_at(ip)).collect()
    }

    /// A Service has other ClusterIPs. Tells who has members there.
    pub(crate) fn set_service(&mut self, service: &ServiceKey, ips: &[IpAddr]) -> BTreeSet<PoolOwner> {
        let changed = self.machines.set_service(service, ips);
        changed.into_iter().flat_map(|ip| self.dependents.with_members_at(ip)).collect()
    }

    /// Whoever calls plans everything again.
    pub(crate) fn set_rules(&mut self, rules: MemberRules, reserved: ReservedPorts) {
        self.machines.set_rules(rules, reserved);
    }

    /// Ports of Nodes that nobody may name.
    pub(crate) fn reserved(&self) -> &ReservedPorts {
        self.machines.reserved()
    }

    pub(crate) fn rules(&self) -> MemberRules {
        self.machines.rules()
    }

    /// Why nobody may have that member.
    pub(crate) fn forbidden_reason(&self, member: &Member) -> Option<ForbiddenReason> {
        let of_host = |ip: &IpAddr| self.hosts.owners(*ip)?.first().cloned();
        self.machines.forbidden_reason(member, of_host, |ip| self.at_address.contains_key(ip))
    }

    /// Whether it is the address of a Node whose own ports nobody may name.
    pub(crate) fn is_guarded_node(&self, ip: IpAddr) -> bool {
        self.machines.is_guarded_node(ip)
    }

    /// Whoever calls plans everything again.
    pub(crate) fn set_status_page(&mut self, at: &[SocketAddr]) {
        self.status_page = at.to_vec();
    }

    /// Where somebody's members are, refused ones included.
    pub(crate) fn set_members(&mut self, who: PoolOwner, members: impl Iterator<Item = IpAddr>) {
        let mut addresses: Vec<IpAddr> = members.map(reached).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.shrink_to_fit();
        self.dependents.set(who, addresses);
    }
}

impl PoolOwnersByAddress {
    fn set(&mut self, who: PoolOwner, now: Vec<IpAddr>) {
        let known = self.ids.get(&who).copied();
        let Some(id) = known.or_else(|| (!now.is_empty()).then_some(self.next)) else { return };
        if known.is_none() {
            self.next = self.next.wrapping_add(1);
            self.ids.insert(who.clone(), id);
            self.by_id.insert(id, who.clone());
        }
        let before = self.addresses.remove(&id).unwrap_or_default();
        for ip in before.iter().filter(|ip| now.binary_search(ip).is_err()) {
            self.at.remove(&(*ip, id));
        }
        self.at.extend(now.iter().filter(|ip| before.binary_search(ip).is_err()).map(|ip| (*ip, id)));
        if now.is_empty() {
            self.ids.remove(&who);
            self.by_id.remove(&id);
        } else {
            self.addresses.insert(id, now);
        }
    }

    fn with_members_at(&self, ip: IpAddr) -> impl Iterator<Item = PoolOwner> + '_ {
        self.at.range((ip, 0)..=(ip, u32::MAX)).filter_map(|(_, id)| self.by_id.get(id).cloned())
    }

    /// At any of these addresses. Asked only when something begins or ends to listen at all addresses.
    fn with_members(&self, at: impl Fn(&IpAddr) -> bool) -> impl Iterator<Item = PoolOwner> {
        let here = self.at.iter().filter(move |(ip, _)| at(ip));
        here.filter_map(|(_, id)| self.by_id.get(id).cloned())
    }
}

fn claim(counts: &mut HashMap<IpAddr, u32>, ip: IpAddr) {
    let count = counts.entry(ip).or_default();
    *count = count.saturating_add(1);
}

fn release(counts: &mut HashMap<IpAddr, u32>, ip: IpAddr) {
    if let Some(count) = counts.get_mut(&ip) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&ip);
        }
    }
}

/// Where a connection to that address arrives: to the unspecified one it goes to this very machine.
fn reached(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

fn all_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// As many are named; a slice may have a thousand.
const NAMED: usize = 3;

/// What is told about members that were left out, once for a port.
pub(crate) fn problem(demand: &Demand, wanted: &DemandPort, refused: &[RefusedMember]) -> Option<Problem> {
    let first = refused.first()?;
    let own = demand.owner.object();
    let whose = |listening: &ListenerOwner| match listening {
        ListenerOwner::StatusPage => "Seaway's own status page".to_owned(),
        ListenerOwner::For(owner) if front_door::entrance_of(owner).is_some() => {
            "Seaway's own front door".to_owned()
        }
        ListenerOwner::For(owner) if owner.object() == own => {
            "the listener of this Service itself".to_owned()
        }
        ListenerOwner::For(owner) => format!("Seaway's own listener of {}", owner.object()),
    };
    // Only what the annotation names has the Service itself as its source.
    let is_own_backend = first.named_by == own.to_string();
    let shown = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let named = refused.iter().take(NAMED);
    let named: Vec<String> =
        named.map(|it| format!("{} (from {}) is {}", it.at, it.named_by, whose(&it.listening))).collect();
    let more = match refused.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more like it"),
    };
    let message = format!(
        "{}{more}: Seaway sends nothing to its own listeners, where it could go round in a loop; left out as members",
        named.join("; ")
    );
    let fix = match &first.listening {
        ListenerOwner::StatusPage => format!(
            "Remove {} from {}. To reach the status page from elsewhere, set admin.listen.",
            first.at, first.named_by
        ),
        ListenerOwner::For(_) if is_own_backend => format!(
            "In metadata.annotations[{BACKENDS}], name the servers with the port where they listen, such as {}:3000. A backend \
             without a port is at the targetPort, {}.",
            shown(first.at.ip()),
            first.at.port()
        ),
        ListenerOwner::For(owner) if owner.object() == own || front_door::entrance_of(owner).is_some() => {
            format!("In {}, name the servers themselves instead of {}.", first.named_by, first.at)
        }
        ListenerOwner::For(owner) => format!(
            "In {}, name the members of {} themselves instead of {}.",
            first.named_by,
            owner.object(),
            first.at
        ),
    };
    let field: Name = wanted.field.as_str().into();
    Some(Problem::new(own, Reason::Loop, message).at(field).fix(fix))
}
