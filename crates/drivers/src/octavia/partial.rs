//! What a provider cannot do is refused for what is new alone: a listener that serves stays as it is, its members are
//! followed, and no other waits for it.
//!
//! ```text
//!     refused, not there yet    it is not made; with nothing else to serve, nothing is
//!     refused, serves           it stays as it is; only its members are written
//!     its Secret is not read    as if it were refused, and nobody is told; with nothing there, nothing is made
//!     no Node may be a member   it stays as it is, its members included
//! ```

use std::collections::BTreeSet;

use seaway_engine::{Failure, Until};
use seaway_model::{Desired, ListenerId, LoadBalancer as Wish, Owner, Problem, Unit};
use seaway_openstack::{
    octavia::{NewListener, NewPool},
    resource::Edit,
    survey::Abilities,
};

use super::{
    Octavia, adopted, by_default, copies, local,
    owners::owner_of,
    pairs::Part,
    place, seats,
    steps::{Branch, Observed, Step},
    tls,
    wanted::{Wanted, WantedListener, metrics_refused, of_all, refused_at, wanted},
};

/// What of a wish cannot be.
#[derive(Debug, Default)]
pub(super) struct Refused {
    pub(super) ports: BTreeSet<ListenerId>,
    all: bool,
    metrics: bool,
    /// Some of the ports wait for a certificate that may come at any moment.
    waits: bool,
    pub(super) problems: Vec<(Owner, Problem)>,
}

impl Refused {
    pub(super) fn of(wish: &Wish, can: &Abilities) -> Refused {
        let problems = of_all(wish, can);
        let mut refused = Refused { all: !problems.is_empty(), problems, ..Refused::default() };
        for id in wish.listeners.keys() {
            let problems = refused_at(wish, *id, can);
            if !problems.is_empty() {
                refused.ports.insert(*id);
                refused.problems.extend(problems);
            } else if tls::is_awaited(wish, *id) {
                refused.ports.insert(*id);
                refused.waits = true;
            }
        }
        let metrics = metrics_refused(wish, can);
        refused.metrics = !metrics.is_empty();
        refused.problems.extend(metrics);
        refused
    }

    /// Nothing can be made by it.
    fn is_whole(&self, wish: &Wish) -> bool {
        self.all || self.ports.len() == wish.listeners.len()
    }
}

impl Octavia {
    /// What is to be there, by what is there and what its provider can.
    pub(super) fn wanted(&self, unit: &Unit, desired: &Desired, observed: &Observed) -> Option<Wanted> {
        let (Unit::LoadBalancer(_, key), Desired::LoadBalancer(wish)) = (unit, desired) else { return None };
        let owner = owner_of(key, wish)?;
        let can = self.abilities(wish, observed.balancer.as_ref());
        let asked = wish.options.cloud.as_ref().and_then(|it| it.provider.as_deref().map(str::to_owned));
        let wish = Part::of(key, wish, observed, &can).cut(key, wish);
        let wish = local::as_made(as_made(wish, observed), observed);
        let mut wanted = wanted(&self.joined.get()?.cluster, key, &owner, &wish, &can);
        adopted::keep(&mut wanted, &wish, observed);
        self.lessen(&mut wanted, &wish, observed, &can);
        seats::hold(&mut wanted, observed);
        observed.balancer.iter().for_each(|it| place::name_subnets(&mut wanted, it));
        wanted.floating.take_if(|_| observed.balancer.as_ref().is_some_and(|it| !place::is_led_to(it)));
        // One that is made again is another's, if that is asked for.
        wanted.balancer.provider = Some(asked.unwrap_or_else(|| self.provider.to_string())).into();
        Some(wanted)
    }

    /// What cannot be, by the provider that is asked for.
    pub fn refused_at_creation(&self, desired: &Desired) -> Vec<(Owner, Problem)> {
        match desired {
            Desired::LoadBalancer(wish) => Refused::of(wish, &self.abilities(wish, None)).problems,
            _ => Vec::new(),
        }
    }

    /// By the provider of the load balancer that is there.
    pub(super) fn refused_of(&self, unit: &Unit, desired: &Desired, observed: &Observed) -> Refused {
        let (Unit::LoadBalancer(_, key), Desired::LoadBalancer(wish)) = (unit, desired) else {
            return Refused::default();
        };
        let can = self.abilities(wish, observed.balancer.as_ref());
        let wish = Part::of(key, wish, observed, &can).cut(key, wish);
        Refused::of(&as_made(wish, observed), &can)
    }

    /// Nothing is begun that nothing can come of.
    pub(super) fn begin(&self, unit: &Unit, desired: &Desired, observed: &Observed) -> Result<(), Failure> {
        let Desired::LoadBalancer(wish) = desired else { return Ok(()) };
        let refused = self.refused_of(unit, desired, observed);
        let is_new = observed.balancer.is_none();
        // Whole once it is known, rather than without its TLS and then changed.
        if is_new && refused.waits && !refused.all {
            return Err(Failure::Wait { why: tls::awaits(wish), until: Until::Marked });
        }
        if is_new && !refused.problems.is_empty() && refused.is_whole(wish) {
            return Err(Failure::User(refused.problems));
        }
        self.claim(unit, desired, observed)
    }

    /// As it can be: without what is refused and not there, and with what is there as it is.
    pub(super) fn lessen(&self, wanted: &mut Wanted, wish: &Wish, observed: &Observed, can: &Abilities) {
        let refused = Refused::of(wish, can);
        if refused.metrics {
            wanted.metrics = None;
        }
        super::vip::lessen(wanted, observed);
        let branches = observed.balancer.as_ref().map(|it| &it.branches);
        for id in &refused.ports {
            match (branches.and_then(|it| it.get(id)), wanted.listeners.get_mut(id)) {
                (Some(there), Some(wanted)) => as_it_is(wanted, there),
                _ => drop(wanted.listeners.remove(id)),
            }
        }
        for id in &observed.held.listeners {
            if let (Some(there), Some(wanted)) =
                (branches.and_then(|it| it.get(id)), wanted.listeners.get_mut(id))
            {
                as_it_is(wanted, there);
            }
        }
    }

    /// Without steps that would change what is to stay as it is.
    pub(super) fn spared(
        &self,
        unit: &Unit,
        desired: &Desired,
        observed: &Observed,
        steps: Vec<Step>,
    ) -> Vec<Step> {
        let Some(balancer) = &observed.balancer else { return steps };
        let refused = self.refused_of(unit, desired, observed);
        let refused: BTreeSet<ListenerId> =
            refused.ports.into_iter().filter(|it| balancer.branches.contains_key(it)).collect();
        let (emptied, copied) = (emptied(desired, observed), copies::stays(observed, &steps));
        // What stays as it is may show any of them.
        let may_show = !refused.is_empty() || observed.lost.is_some();
        let stays = |step: &Step| match at(step) {
            None if matches!(step, Step::Forget(_)) => may_show,
            Some((id, _)) if emptied.contains(&id) || copied.contains(&id) => true,
            Some((id, of_members)) => refused.contains(&id) && !of_members,
            None => false,
        };
        steps.into_iter().filter(|it| !stays(it)).collect()
    }
}

/// As if it asked for the provider that it has, and for the floating IP.
pub(super) fn as_made(mut wish: Wish, observed: &Observed) -> Wish {
    let made = observed.balancer.as_ref().and_then(|it| it.it.provider.as_deref());
    if let (Some(made), Some(outside)) = (made, &mut wish.options.cloud) {
        outside.provider = Some(made.into());
    }
    by_default::as_made(with_its_floating(wish, observed), observed)
}

/// The floating IP that it has is its address, though the configuration gives none.
pub(super) fn with_its_floating(mut wish: Wish, observed: &Observed) -> Wish {
    if keeps_floating(&wish, observed)
        && let Some(outside) = &mut wish.options.cloud
    {
        outside.internal = false;
    }
    wish
}

/// It is reached from outside, and only the configuration says that it should not be any more.
pub(super) fn keeps_floating(wish: &Wish, observed: &Observed) -> bool {
    let by_default = wish.options.cloud.as_ref().is_some_and(|it| it.internal_by_default);
    by_default && observed.floating.is_some() && !observed.shared.guest
}

/// Listeners with members, and no Node may be one any more.
fn emptied(desired: &Desired, observed: &Observed) -> BTreeSet<ListenerId> {
    let (Desired::LoadBalancer(wish), Some(balancer)) = (desired, &observed.balancer) else {
        return BTreeSet::new();
    };
    if !wish.options.cloud.as_ref().is_some_and(|it| it.by_nodes) {
        return BTreeSet::new();
    }
    let is_empty = |id: &ListenerId| {
        let pool = wish.listeners.get(id).and_then(|it| super::wanted::leads_to(it));
        pool.and_then(|it| wish.pools.get(it)).is_some_and(|it| it.members.is_empty())
    };
    let kept = by_default::with_members(wish, observed);
    let has_members = |it: &Branch| it.pool.as_ref().is_some_and(|it| !it.members.is_empty());
    let emptied =
        balancer.branches.iter().filter(|(id, it)| has_members(it) && is_empty(id) && !kept.contains(*id));
    emptied.map(|(id, _)| *id).collect()
}

/// So that nothing but members differs.
fn as_it_is(wanted: &mut WantedListener, there: &Branch) {
    let port = there.listener.protocol_port;
    let name = wanted.listener.name.clone();
    wanted.listener = NewListener { name, ..NewListener::new(there.listener.protocol.clone(), port) };
    if let Some(branch) = &there.pool {
        let (it, name) = (&branch.pool, wanted.pool.name.clone());
        wanted.pool = NewPool {
            name,
            session_persistence: Edit::To(it.session_persistence.clone()),
            ..NewPool::new(it.protocol.clone(), it.lb_algorithm.clone())
        };
    }
}

/// Which listener a step is about, and whether it is about its members.
fn at(step: &Step) -> Option<(ListenerId, bool)> {
    match step {
        Step::RemoveListener(id)
        | Step::RemovePool(id)
        | Step::AddListener(id, _)
        | Step::ChangeListener(id, _)
        | Step::AddPool(id, _)
        | Step::AddSpare(id, _)
        | Step::SwitchListenerPool(id)
        | Step::ChangePool(id, _)
        | Step::AddMonitor(id, _)
        | Step::ChangeMonitor(id, _)
        | Step::RemoveMonitor(id) => Some((*id, false)),
        Step::SetMembers(id, _)
        | Step::AddMember(id, _)
        | Step::ChangeMember(id, ..)
        | Step::RemoveMember(id, _) => Some((*id, true)),
        _ => None,
    }
}
