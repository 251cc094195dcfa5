//! What owners are told: in passing, as events, what was found and done; and what is so, as Problems.

use std::{collections::BTreeSet, time::Instant};

use seaway_engine::Failure;
use seaway_model::{Desired, LoadBalancer, Owner, Problem, Reason, Unit};
use seaway_openstack::{Error, octavia::Provisioning, resource::Edit};

use super::{
    Joined, Octavia, adopted, affinity, born, by_default, copies, drift, is_paused, local,
    pairs::Part,
    partial,
    removals::DeferredRemovals,
    repair::{Rebuild, RepairAction},
    shared::marks,
    steps::{Observed, Step},
    tags, vip,
};

/// Hears what an owner is to be told in passing.
pub type Tell = Box<dyn Fn(&Owner, Note) + Send + Sync>;

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub warning: bool,
    pub reason: &'static str,
    pub text: String,
}

/// Named one by one, no more than that.
const NAMED: usize = 5;

impl Octavia {
    /// Owners hear in passing what was found and done.
    #[must_use]
    pub fn telling(self, tell: Tell) -> Octavia {
        Octavia { tell: Some(tell), ..self }
    }

    /// What follows from how it is, beside what there is to change.
    pub(super) fn judge(&self, joined: &Joined, unit: &Unit, desired: &Desired, observed: &mut Observed) {
        let now = joined.cloud.clock().now();
        let status = observed.balancer.as_ref().map(|it| it.it.provisioning_status.clone());
        let rebuild = match desired {
            Desired::LoadBalancer(wish) => match &wish.options.cloud {
                Some(it) if it.rebuild && it.rebuild_by_default => Rebuild::ByDefault,
                Some(it) if it.rebuild => Rebuild::ByService,
                _ => Rebuild::No,
            },
            _ => Rebuild::No,
        };
        // Its tag says that we make it, also after a restart: nothing else is written on one that is PENDING_CREATE.
        let is_being_made = observed.balancer.as_ref().is_some_and(|it| {
            let key = if let Unit::LoadBalancer(_, key) = unit { marks(&joined.cluster, key) } else { None };
            it.it.provisioning_status == Provisioning::PendingCreate
                && key.is_some_and(|key| key.is_first(&it.it.tags))
        });
        let past = self.past(unit, |past| {
            past.is_new |= is_being_made;
            if status == Some(Provisioning::Active) {
                past.is_well();
            } else if status == Some(Provisioning::Error) {
                (past.pending_since, past.is_told_stuck) = (None, false);
            }
            past.clone()
        });
        self.judge_pending(joined, unit, desired, observed);
        if let (true, Unit::LoadBalancer(_, key)) = (desired.is_absent(), unit) {
            // What is kept stays where it is.
            observed.stray.take_if(|it| !joined.cluster.made(&it.description, key));
        }
        observed.held = DeferredRemovals::default();
        observed.by_nodes = match desired {
            Desired::LoadBalancer(wish) => {
                !wish.options.local_only && wish.options.cloud.as_ref().is_some_and(|it| it.by_nodes)
            }
            _ => false,
        };
        observed.shared.going = desired.is_absent();
        if !observed.shared.going || observed.balancer.is_none() {
            self.closed.open(unit);
        }
        (observed.leftover, observed.given_up) =
            self.past(unit, |past| (past.leftover.clone(), past.abandoned.clone()));
        observed.copied = self.made_by_a_copy(unit, desired, observed);
        self.note_crowd(unit, desired, observed);
        let is_shared = observed.shared.guest || !observed.shared.taken.is_empty();
        observed.repair = (status == Some(Provisioning::Error)).then(|| match past.repair(rebuild, now) {
            RepairAction::Failover if observed.shared.guest => {
                RepairAction::Nothing { why: "another Service owns this load balancer".to_owned() }
            }
            RepairAction::Remake { .. } if is_shared => {
                RepairAction::Nothing { why: "other Services use this load balancer".to_owned() }
            }
            repair => repair,
        });
        if let (Unit::LoadBalancer(_, key), Desired::LoadBalancer(wish), Some(balancer)) =
            (unit, desired, &observed.balancer)
            && status == Some(Provisioning::Active)
            && !observed.shared.guest
            && !is_paused(desired)
            && wish.options.cloud.as_ref().is_some_and(|it| it.remake)
        {
            let part = Part::of(key, wish, observed, &self.abilities(wish, Some(balancer)));
            let otherwise = born::otherwise(&part.cut(key, wish), &balancer.it, &self.provider);
            // Once: a cloud that gives something else again would be asked for ever.
            let is_new = self.past(unit, |past| {
                past.otherwise = otherwise;
                !past.otherwise.is_empty() && past.remade != past.otherwise
            });
            let why = "what is requested can only be set when a load balancer is created";
            observed.repair = is_new.then_some(RepairAction::Remake { why, by_default: false });
        }
        if status == Some(Provisioning::Active) && !is_paused(desired) {
            self.judge_vip(unit, desired, observed);
        }
    }

    /// Whether it is time for a step; and if so, its owner hears why.
    pub(super) fn before(
        &self,
        unit: &Unit,
        step: &Step,
        observed: &Observed,
        now: Instant,
    ) -> Result<(), Failure> {
        let new = matches!(step, Step::Create(_));
        if let Some(after) = self.past(unit, |past| past.remaining_backoff(now)).filter(|_| new) {
            let why = format!("{step}: the previous load balancer went to ERROR");
            return Err(Failure::wait(why, after));
        }
        let status = observed.balancer.as_ref().map(|it| &it.it.provisioning_status);
        let in_error = status == Some(&Provisioning::Error);
        let found = self.past(unit, |past| {
            match (step, &observed.repair) {
                (Step::Create(_), _) => past.is_new = true,
                (Step::Failover(_), _) => past.failed_over(now),
                (Step::Delete(_), Some(RepairAction::Remake { .. })) => {
                    past.remade.clone_from(&past.otherwise);
                    if in_error {
                        past.tried(now);
                    }
                }
                _ => {}
            }
            std::mem::take(&mut past.found)
        });
        match (step, &observed.repair) {
            (Step::Create(new), _) => {
                let provider = match &new.provider {
                    Edit::To(Some(it)) => format!(" by {it}"),
                    _ => String::new(),
                };
                let again =
                    if found.is_empty() { String::new() } else { format!(" again: {}", some(&found, "; ")) };
                let text = format!(
                    "the load balancer of the Service is being created{provider}{again}; this may take minutes"
                );
                let (warning, reason) = if found.is_empty() { (false, "Creating") } else { (true, "Drift") };
                self.tell(unit, Note { warning, reason, text });
            }
            (Step::Delete(id), Some(RepairAction::Remake { why, .. })) => {
                let text = format!("load balancer {id} is deleted and created again: {why}");
                self.tell(unit, Note { warning: true, reason: "Rebuilding", text });
            }
            (Step::Failover(id), _) => {
                let text = format!(
                    "load balancer {id} is in ERROR; Octavia fails it over, at the request of Seaway"
                );
                self.tell(unit, Note { warning: true, reason: "FailingOver", text });
            }
            _ if !found.is_empty() => {
                let text = format!(
                    "other clients of the cloud changed objects of Seaway: {}; Seaway restores them",
                    some(&found, "; ")
                );
                self.tell(unit, Note { warning: true, reason: "Drift", text });
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether there is no such thing as a failover here.
    pub(super) fn refused(&self, unit: &Unit, step: &Step, error: &Error) -> bool {
        let Step::Failover(id) = step else { return false };
        let now = self.now();
        let (never, is_news) = self.past(unit, |past| past.refused(error, now));
        if is_news {
            let text = format!("load balancer {id} cannot be failed over: {}", error.message());
            self.tell(unit, Note { warning: true, reason: "FailoverRefused", text });
        }
        never
    }

    /// Its Service has no status any more that could say it.
    pub(super) fn tell_what_deletion_waits_for(&self, unit: &Unit, problem: &Problem) {
        let text = format!("{}. {}", problem.message, problem.fix);
        if self.past(unit, |past| past.waits_for.replace(text.clone()).as_ref() != Some(&text)) {
            self.tell(unit, Note { warning: true, reason: "DeletionWaits", text });
        }
    }

    pub(super) fn tell(&self, unit: &Unit, note: Note) {
        let Unit::LoadBalancer(_, key) = unit else { return };
        if let (Some(owner), Some(tell), false) = (key.owner(), &self.tell, self.is_previewed(unit)) {
            tell(owner, note);
        }
    }
}

/// What is wrong with what there is.
pub(super) fn problems(wish: &LoadBalancer, observed: &Observed) -> Vec<(Owner, Problem)> {
    let owners: BTreeSet<&Owner> = wish.listeners.values().map(|it| &it.owner).collect();
    let mut problems = Vec::new();
    if wish.options.cloud.as_ref().is_some_and(|it| it.paused && !it.released) {
        let problem = |owner: &Owner| {
            let message = "paused by seaway.dev/pause: changes are not applied to the cloud";
            let problem = Problem::new(owner.object(), Reason::Paused, message);
            (owner.clone(), problem.fix("To apply them, remove the annotation seaway.dev/pause."))
        };
        problems.extend(owners.iter().map(|it| problem(it)));
    }
    problems.extend(observed.lost.iter().map(|it| it.problem.clone()).chain(observed.stuck.clone()));
    let Some(balancer) = &observed.balancer else { return problems };
    if balancer.it.provisioning_status == Provisioning::Error {
        let id = &balancer.it.id;
        let fix = match &observed.repair {
            Some(RepairAction::Nothing { why }) => format!(
                "The load balancer cannot be failed over ({why}). Ask the cloud's operator to do that \
                 (openstack loadbalancer failover {id}), or annotate the Service with \
                 seaway.dev/rebuild-on-error: \"true\" to recreate the load balancer with its addresses."
            ),
            Some(RepairAction::Remake { .. }) => {
                "No action needed: Seaway deletes the load balancer and creates it \
                                          again."
                    .to_owned()
            }
            None if observed.stays.is_some() => {
                "Seaway deletes the load balancer and creates it again as soon as the deletion limit allows \
                 that."
                    .to_owned()
            }
            _ => "Octavia fails the load balancer over, at the request of Seaway. Octavia's log says why it \
                  failed."
                .to_owned(),
        };
        let problem = |owner: &Owner| {
            let message = format!("load balancer {id} is in ERROR");
            (owner.clone(), Problem::new(owner.object(), Reason::Failed, message).fix(fix.clone()))
        };
        problems.extend(owners.iter().map(|it| problem(it)));
    }
    problems.extend(affinity::told(wish, balancer));
    problems.extend(copies::told(wish, observed, balancer));
    if let (true, Some(floating)) = (partial::keeps_floating(wish, observed), &observed.floating) {
        let at = floating.floating_ip_address.map_or_else(|| floating.id.to_string(), |it| it.to_string());
        let message = format!(
            "the configuration makes load balancers internal; floating IP {at} of this load balancer stays"
        );
        let fix = "To release the floating IP, annotate the Service: seaway.dev/internal: \"true\".";
        let problem = |owner: &Owner| {
            let problem = Problem::new(owner.object(), Reason::Unsupported, message.clone());
            (owner.clone(), problem.fix(fix))
        };
        problems.extend(owners.iter().map(|it| problem(it)));
    }
    problems.extend(local::told(wish, observed));
    problems.extend(adopted::told(wish, observed));
    problems.extend(by_default::told(wish, observed));
    problems.extend(tags::told(wish, observed));
    problems.extend(vip::told(wish, observed));
    let serves = balancer.it.provisioning_status != Provisioning::Error;
    if let Some(why) = observed.stays.as_ref().filter(|_| serves) {
        let problem = |owner: &Owner| {
            let message = format!(
                "load balancer {} was not recreated, although that was requested: {why}",
                balancer.it.id
            );
            let problem = Problem::new(owner.object(), Reason::Failed, message);
            (owner.clone(), problem.fix("Set the annotation, or cloud.conf, back to what the load balancer has. It continues to serve unchanged."))
        };
        problems.extend(owners.iter().map(|it| problem(it)));
    }
    for (id, (down, all)) in drift::down(balancer) {
        let Some(listener) = wish.listeners.get(&id) else { continue };
        let message = format!("{} of {all} members of port {id} are down: {}", down.len(), some(&down, ", "));
        let problem = Problem::new(listener.owner.object(), Reason::MembersDown, message)
            .fix("They fail the load balancer's probes: look at the pods there, and at security groups.");
        problems.push((listener.owner.clone(), problem));
    }
    problems
}

pub(super) fn some(all: &[String], between: &str) -> String {
    match all.split_at_checked(NAMED) {
        Some((named, others)) if !others.is_empty() => {
            format!("{}{between}and {} more", named.join(between), others.len())
        }
        _ => all.join(between),
    }
}
