//! What must change so that a pool has its members: all in one call, or one by one where a provider wants that. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use seaway_model::{ListenerId, Unit};
use seaway_openstack::octavia::{MemberChange, NewMember, Operating};

use super::{
    Octavia, affinity,
    steps::{Observed, ObservedLoadBalancer, ObservedMember, PoolBranch, Step},
    wanted::{Wanted, WantedListener, spot},
};
use seaway_openstack::resource::Edit;

pub(super) fn seats(
    id: ListenerId,
    wish: &WantedListener,
    there: &BTreeMap<SocketAddr, ObservedMember>,
) -> Vec<Step> {
    if is_seated(&wish.members, there) {
        return Vec::new();
    }
    if !wish.serial {
        return vec![Step::SetMembers(id, wish.members.clone())];
    }
    let mut steps = Vec::new();
    for member in &wish.members {
        match there.get(&spot(member)).map(|it| it.terms) {
            None => steps.push(Step::AddMember(id, Box::new(member.clone()))),
            Some(Some(terms)) if terms != terms_of(member) => {
                let (weight, port) = terms_of(member);
                let change = MemberChange {
                    weight: Edit::To(Some(weight)),
                    monitor_port: Edit::To(port),
                    ..MemberChange::default()
                };
                steps.push(Step::ChangeMember(id, spot(member), Box::new(change)));
            }
            Some(None) if there.get(&spot(member)).is_some_and(|it| !is_weighed(member, it)) => {
                let change =
                    MemberChange { weight: Edit::To(Some(terms_of(member).0)), ..MemberChange::default() };
                steps.push(Step::ChangeMember(id, spot(member), Box::new(change)));
            }
            Some(_) => {}
        }
    }
    // Those who come serve before those who go are gone.
    let goes = there.keys().filter(|at| wish.members.iter().all(|it| spot(it) != **at));
    steps.extend(goes.map(|at| Step::RemoveMember(id, *at)));
    steps
}

/// Members that stay until it is known that they may go, as they are.
pub(super) fn hold(wanted: &mut Wanted, observed: &Observed) {
    for (id, held) in &observed.held.members {
        let pool =
            observed.balancer.as_ref().and_then(|it| it.branches.get(id)).and_then(|it| it.pool.as_ref());
        let (Some(wish), Some(pool)) = (wanted.listeners.get_mut(id), pool) else { continue };
        for (at, seat) in pool.members.iter().filter(|(at, _)| held.contains(&at.ip())) {
            if wish.members.iter().any(|it| spot(it) == *at) {
                continue;
            }
            let alike = wish.members.iter().find(|it| it.address.is_ipv4() == at.is_ipv4());
            let subnet = alike.map_or(Edit::Leave, |it| it.subnet_id.clone());
            let is_drained = seat.operating == Operating::Draining;
            let (weight, port) = seat.terms.unwrap_or((u16::from(!is_drained), None));
            wish.members.push(NewMember {
                weight: if weight == 1 { Edit::Leave } else { Edit::To(Some(weight)) },
                monitor_port: port.map_or(Edit::Leave, |it| Edit::To(Some(it))),
                subnet_id: subnet,
                ..NewMember::new(at.ip(), at.port())
            });
        }
    }
}

/// As above, for a pool whose members OVN probes: a member that changes its port is removed before it is added again.
///
/// OVN's driver keeps for each address of a load balancer which port of Neutron is probed there, and deletes that with a member,
/// whether or not the pool has another one of that address. It adds members before it removes others, also in one call: a member
/// that was added for one of the same address would not be probed any more. Removed first, it is known by what is there what
/// is to be done next, also by a controller that starts in between.
pub(super) fn probed_seats(
    id: ListenerId,
    wish: &WantedListener,
    there: &BTreeMap<SocketAddr, ObservedMember>,
) -> Vec<Step> {
    let stays = |at: &SocketAddr| wish.members.iter().any(|it| spot(it) == *at);
    let changes_port =
        |at: &&SocketAddr| wish.members.iter().any(|it| spot(it).ip() == at.ip()) && !stays(at);
    let moved: Vec<SocketAddr> = there.keys().filter(changes_port).copied().collect();
    if moved.is_empty() {
        return seats(id, wish, there);
    }
    let mut left = there.clone();
    let mut steps: Vec<Step> = match wish.serial {
        true => moved.iter().map(|at| Step::RemoveMember(id, *at)).collect(),
        false => {
            left.retain(|at, _| stays(at));
            let kept = wish.members.iter().filter(|it| left.contains_key(&spot(it)));
            vec![Step::SetMembers(id, kept.cloned().collect())]
        }
    };
    left.retain(|at, _| !moved.contains(at));
    steps.extend(seats(id, wish, &left));
    steps
}

/// Those that OVN has lost, to be written again one by one.
///
/// Its provider reads what it has, and writes all of it: of two that do so at once, an API process and the agent that hears
/// of health monitors, one loses its change. Members that are OFFLINE at that moment, because their monitors were just made
/// anew, are left out of the load balancer, and then nobody asks them any more: they stay OFFLINE until they are written,
/// and a Service that lost all of them answers nobody. One that does not answer its monitor is in ERROR instead.
///
/// So is a new one whose address the provider did not find among what it had just written: it notes then no port to probe it
/// at, and it stays in ERROR. Of those that were `added` here each is written once more: the provider notes the port then, and
/// leaves a member in ERROR until it answers.
pub(super) fn lost(
    wanted: &Wanted,
    balancer: &ObservedLoadBalancer,
    added: &BTreeSet<SocketAddr>,
) -> Vec<Step> {
    let write = || MemberChange { admin_state_up: Edit::To(true), ..MemberChange::default() };
    let of_port = |(id, wish): (&ListenerId, &WantedListener)| {
        let pool = balancer.branches.get(id).and_then(|it| it.pool.as_ref());
        let lost = pool
            .into_iter()
            .flat_map(|it| unasked(it, added))
            .filter(|at| wish.members.iter().any(|it| spot(it) == *at));
        let id = *id;
        lost.map(move |at| Step::ChangeMember(id, at, Box::new(write()))).collect::<Vec<_>>()
    };
    wanted.listeners.iter().flat_map(of_port).collect()
}

impl Observed {
    /// Where members are, of all ports.
    pub(super) fn members(&self) -> BTreeSet<SocketAddr> {
        let branches = self.balancer.iter().flat_map(|it| it.branches.values());
        branches.filter_map(|it| it.pool.as_ref()).flat_map(|it| it.members.keys()).copied().collect()
    }
}

impl Octavia {
    /// Which members a write added on OVN, and which it wrote once more. `before`: where members were.
    pub(super) fn note_added(
        &self,
        unit: &Unit,
        step: &Step,
        observed: &Observed,
        before: &BTreeSet<SocketAddr>,
    ) {
        if !observed.balancer.as_ref().is_some_and(affinity::is_of_ovn) {
            return;
        }
        let now = observed.members();
        self.past(unit, |past| {
            past.added.extend(now.difference(before));
            past.added.retain(|at| now.contains(at));
            if let Step::ChangeMember(_, at, _) = step {
                past.added.remove(at);
            }
        });
    }
}

/// Members of OVN that no monitor asks, though there is one.
pub(super) fn unasked<'a>(
    pool: &'a PoolBranch,
    added: &'a BTreeSet<SocketAddr>,
) -> impl Iterator<Item = SocketAddr> + 'a {
    let is_unasked = |(at, it): &(&SocketAddr, &ObservedMember)| match it.operating {
        Operating::Offline => true,
        Operating::Error => added.contains(*at),
        _ => false,
    };
    pool.members.iter().filter(|_| pool.monitor.is_some()).filter(is_unasked).map(|(at, _)| *at)
}

/// What is not known of a member counts as right: writing all members again would take each of them out for a moment.
fn is_seated(wish: &[NewMember], there: &BTreeMap<SocketAddr, ObservedMember>) -> bool {
    wish.len() == there.len()
        && wish.iter().all(|it| {
            there.get(&spot(it)).is_some_and(|seat| match seat.terms {
                Some(terms) => terms == terms_of(it),
                None => is_weighed(it, seat),
            })
        })
}

/// A status tree tells no weights, and yet whether somebody is let in: one that was drained may come back, at that address.
fn is_weighed(wish: &NewMember, there: &ObservedMember) -> bool {
    match there.operating {
        Operating::Draining => terms_of(wish).0 == 0,
        Operating::Online => terms_of(wish).0 != 0,
        _ => true,
    }
}

/// A member's weight, and the port that is probed if that is another.
pub fn terms_of(member: &NewMember) -> (u16, Option<u16>) {
    let weight = match member.weight {
        Edit::To(Some(weight)) => weight,
        _ => 1,
    };
    let port = match member.monitor_port {
        Edit::To(port) => port,
        Edit::Leave => None,
    };
    (weight, port)
}
