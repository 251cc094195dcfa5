//! What stays PENDING for long: Octavia takes no change of it, not even its deletion, and only the cloud's operators can end that.
//!
//! ```text
//!     longer than the limit      an event and a Problem, which say whom to ask; counted
//!     PENDING_CREATE, by choice  another is made beside it, once: it never served. When Octavia lets it go, it goes as any
//!                                second one of a Service does (find.rs)
//! ```
//! One that is PENDING_CREATE was never ACTIVE: Octavia leaves that status once. What has served stays, whatever it is.

use std::time::Duration;

use seaway_engine::Failure;
use seaway_model::{Desired, LoadBalancer as Wish, Name, Problem, Reason, Unit, load_balancer::StuckPolicy};
use seaway_openstack::{
    octavia::{LoadBalancer, Provisioning},
    resource::Id,
    survey::date,
};

use super::{
    Joined, LOOK, Octavia, is_paused,
    shared::marks,
    steps::{Observed, Step},
    told::Note,
    wanted::requested_vip,
};

/// An operation of Octavia that is well takes minutes at most.
const LIMIT: Duration = Duration::from_secs(900);

impl Octavia {
    /// Whether it is pending for too long, and what follows.
    pub(super) fn judge_pending(
        &self,
        joined: &Joined,
        unit: &Unit,
        desired: &Desired,
        observed: &mut Observed,
    ) {
        (observed.stuck, observed.abandon) = (None, None);
        let Some(balancer) = observed.balancer.as_ref().filter(|_| observed.is_pending()) else { return };
        let now = joined.cloud.clock().wall();
        let since = self.past(unit, |past| *past.pending_since.get_or_insert(now));
        let terms = terms(desired);
        let is_long = now.duration_since(since).is_ok_and(|it| it >= terms.limit.unwrap_or(LIMIT));
        let Unit::LoadBalancer(_, key) = unit else { return };
        let (Some(owner), true) = (key.owner(), is_long) else { return };
        let (id, status) = (balancer.it.id.clone(), &balancer.it.provisioning_status);
        let message = format!("load balancer {id} is {status} since {}", date(since).unwrap_or_default());
        let is_remade = self.is_made_again(joined, unit, desired, observed);
        let perhaps = match status {
            Provisioning::PendingCreate if !terms.rebuild && !desired.is_absent() => {
                " Or set seaway.dev/rebuild-on-pending: \"true\" at the Service: Seaway then creates another load balancer beside this one."
            }
            _ => "",
        };
        let fix = format!(
            "While this lasts, Octavia changes nothing of the load balancer. Ask the cloud's operators to end it: Octavia's log \
             says what it waits for. To look: openstack loadbalancer status show {id}.{perhaps}"
        );
        if !self.past(unit, |past| std::mem::replace(&mut past.is_told_stuck, true)) {
            let text = format!("{message}. {fix}");
            self.tell(unit, Note { warning: true, reason: "Stuck", text });
            self.count_stuck(joined);
        }
        let problem = Problem::new(owner.object(), Reason::Failed, message).fix(fix);
        observed.stuck = Some((owner.clone(), problem));
        observed.abandon = is_remade.then_some(id);
    }

    /// Another may be made beside it: that is wished, it never was ACTIVE, nobody knows its address or is on it, it holds no
    /// address that the other needs, and it is the only one. Once.
    fn is_made_again(&self, joined: &Joined, unit: &Unit, desired: &Desired, observed: &Observed) -> bool {
        let (Unit::LoadBalancer(_, key), Desired::LoadBalancer(wish), Some(balancer)) =
            (unit, desired, &observed.balancer)
        else {
            return false;
        };
        let Some(outside) = &wish.options.cloud else { return false };
        let is_alone = marks(&joined.cluster, key)
            .is_some_and(|it| it.is_first(&balancer.it.tags) && it.others(&balancer.it).next().is_none());
        let is_shared = observed.shared.guest || !observed.shared.taken.is_empty();
        let holds_address = outside.port.is_some() || requested_vip(outside).is_some();
        outside.pending.rebuild
            && balancer.it.provisioning_status == Provisioning::PendingCreate
            && outside.published.is_empty()
            && outside.named.is_none()
            && outside.group.is_none()
            && observed.doubles.is_empty()
            && is_alone
            && !is_shared
            && !holds_address
            && !is_paused(desired)
            && self.past(unit, |past| past.abandoned.is_none())
    }

    /// From now on it is as if it were not there, as long as it is so.
    pub(super) fn abandon(&self, unit: &Unit, id: &Id<LoadBalancer>, observed: &mut Observed) {
        let text = format!(
            "load balancer {id} is PENDING_CREATE for too long; Seaway creates another one beside it"
        );
        self.past(unit, |past| {
            past.abandoned = Some(id.clone());
            (past.pending_since, past.is_told_stuck) = (None, false);
        });
        self.tell(unit, Note { warning: true, reason: "Rebuilding", text });
        (observed.balancer, observed.floating, observed.abandon) = (None, None, None);
        // What there is instead is looked for.
        observed.shared.left = true;
    }

    /// Without the one that was given up.
    pub(super) fn pass_over(
        &self,
        joined: &Joined,
        unit: &Unit,
        desired: &Desired,
        observed: Observed,
    ) -> Result<Observed, Failure> {
        let abandoned = self.past(unit, |past| past.abandoned.clone());
        let is_it = |it: &LoadBalancer| {
            Some(&it.id) == abandoned.as_ref() && it.provisioning_status == Provisioning::PendingCreate
        };
        if desired.is_absent() || !observed.balancer.as_ref().is_some_and(|it| is_it(&it.it)) {
            return Ok(observed);
        }
        if !observed.doubles.is_empty() {
            // The reply that told of the other was lost.
            let now = joined.cloud.clock().now();
            self.known().remove(unit);
            self.past(unit, |past| past.unsure = Some(now));
            return Err(Failure::wait(
                "another load balancer of this Service may be in creation".to_owned(),
                LOOK,
            ));
        }
        let Observed { floating, stray, kept, .. } = observed;
        Ok(Observed { floating: None, stray: floating.or(stray), kept, ..Observed::default() })
    }

    pub(super) fn count_stuck(&self, joined: &Joined) {
        let all = self.past.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        joined.cloud.metrics().set_stuck(all.values().filter(|it| it.is_told_stuck).count());
    }

    /// Since when something is under way, as long as it is.
    pub(super) fn pending(&self, unit: &Unit, desired: &Desired, observed: &Observed) -> Option<Name> {
        let balancer = observed.balancer.as_ref().filter(|_| observed.is_pending())?;
        let clock = self.joined.get()?.cloud.clock();
        let since = self.past(unit, |past| *past.pending_since.get_or_insert_with(|| clock.wall()));
        let status = &balancer.it.provisioning_status;
        let since = date(since).unwrap_or_default();
        (!desired.is_absent())
            .then(|| format!("load balancer {} is {status} since {since}", balancer.it.id).into())
    }
}

fn terms(desired: &Desired) -> StuckPolicy {
    let of = |wish: &Wish| wish.options.cloud.as_ref().map(|it| it.pending);
    match desired {
        Desired::LoadBalancer(wish) => of(wish).unwrap_or_default(),
        _ => StuckPolicy::default(),
    }
}

/// What leads there leads to the other then.
pub(super) fn steps(abandoned: &Id<LoadBalancer>, observed: &Observed) -> Vec<Step> {
    let detach = observed.floating.iter().map(|it| Step::Detach(it.id.clone()));
    detach.chain([Step::Abandon(abandoned.clone())]).collect()
}
