//! What became of Units, and who is to be told.

use seaway_model::{
    Outcome, Owner, Reason, Unit, WorkItem,
    outcome::{UnfinishedAttempt, UnitState},
    unit::Place,
};

use super::World;

/// Since the start.
#[derive(Default)]
pub(super) struct Counts {
    /// Attempts that failed.
    pub(super) failures: u64,
    /// Times that this process began to lead, or ceased to.
    pub(super) leads: u64,
}

impl World {
    /// What an attempt that ended early leaves: one error of an API is no reason to say that nobody serves a Service any
    /// more, nor to take back what is wrong with it.
    pub fn outcome_of(&self, unfinished: &UnfinishedAttempt) -> Outcome {
        let UnfinishedAttempt { unit, state, problems } = unfinished.clone();
        let last = self.outcomes.get(&unit);
        let earlier = || last.map(|it| it.problems.clone()).unwrap_or_default();
        Outcome {
            state,
            facts: Vec::new(),
            problems: problems.unwrap_or_else(earlier),
            serving: last.map(|it| it.serving.clone()).unwrap_or_default(),
            unit,
        }
    }

    pub(super) fn note_report(&mut self, unit: &Unit) {
        if matches!(unit, Unit::LoadBalancer(Place::Cloud { .. }, _)) && !self.heard.contains(unit) {
            self.heard.insert(unit.clone());
        }
    }

    /// No driver has said yet whether they serve.
    pub(super) fn is_unreported(&self, units: &[Unit]) -> bool {
        let in_cloud = |it: &&Unit| matches!(it, Unit::LoadBalancer(Place::Cloud { .. }, _));
        units.iter().filter(in_cloud).any(|it| !self.heard.contains(it))
    }

    /// What became of a Unit.
    pub(super) fn conclude(&mut self, outcome: Outcome) {
        for fact in &outcome.facts {
            self.put_written(fact);
        }
        let unit = outcome.unit.clone();
        if let (Unit::Address(ip), UnitState::Absent) = (&unit, &outcome.state) {
            self.remove_address(*ip);
        }
        if let Unit::Address(ip) = &unit {
            self.arrived(*ip, &outcome.state);
        }
        if outcome.state == UnitState::Absent {
            self.went(&unit);
        }
        self.note_foreign(&outcome);
        let is_failure = matches!(outcome.state, UnitState::Failed { .. } | UnitState::UserMustFix);
        self.counts.failures = self.counts.failures.saturating_add(is_failure.into());
        if is_failure {
            self.note_failed_name(&unit);
        }
        let before = match outcome.state {
            UnitState::Absent => {
                self.heard.remove(&unit);
                self.outcomes.remove(&unit)
            }
            _ => self.outcomes.insert(unit.clone(), outcome),
        };
        let now = self.outcomes.get(&unit);
        self.freed.serve(before.as_ref(), now);
        self.note_withdrawn_name(&unit);
        let now = self.outcomes.get(&unit);
        let told =
            |it: Option<&Outcome>| it.map(|it| (it.state.clone(), it.problems.clone(), it.serving.clone()));
        if matches!(unit, Unit::CertificateOrder(_)) {
            // How an order gets on is for nobody to hear; what is wrong with it is.
            let wrong = |it: Option<&Outcome>| it.map(|it| it.problems.clone()).unwrap_or_default();
            if wrong(before.as_ref()) != wrong(now) {
                self.mark_door_statuses();
            }
        } else if !matches!(unit, Unit::Status(_)) && told(before.as_ref()) != told(now) {
            let mut concerned = self.unit_owners.get(&unit).cloned().unwrap_or_default();
            concerned.extend(
                before.iter().chain(now).flat_map(|it| it.problems.iter().map(|(owner, _)| owner.clone())),
            );
            // What is left to others is not written to.
            let limited = |owner: &Owner| {
                let mut told = before.iter().chain(now).flat_map(|it| &it.problems);
                told.any(|(whose, it)| whose == owner && it.reason == Reason::DeletionLimit)
                    && self.is_no_balancer_now(owner)
            };
            concerned.retain(|owner| self.owners.contains_key(owner) || limited(owner));
            self.dirt.extend(concerned.into_iter().map(|owner| WorkItem::Unit(Unit::Status(owner))));
            if self.is_door_unit(&unit) {
                if told(before.as_ref()).map(|it| it.2) != told(self.outcomes.get(&unit)).map(|it| it.2) {
                    self.resume_orders();
                }
                self.tell_guests();
            }
        }
    }
}
