//! How far adoption is, and whether it goes well.

use std::time::Duration;

use seaway_model::{
    Kind, Name, ObjectRef, Owner, Problem, Reason, Unit, config::AdoptMode, fact::FinalizerOwner,
    outcome::UnitState, unit::Place,
};

use super::{CompetingController, OtherControllerEvidence};
use crate::{
    demand::{cloud_of, is_native},
    index::ServiceKey,
    world::World,
};

/// What waits for the cloud is looked at sooner than this; what is done, later.
const UNDER_WAY: Duration = Duration::from_secs(60);
/// What tells that a load balancer does not serve as it should. Others tell what it was asked and cannot do.
const GRAVE: [Reason; 6] = [
    Reason::Failed,
    Reason::MembersDown,
    Reason::OtherController,
    Reason::PortConflict,
    Reason::QuotaExceeded,
    Reason::Unreachable,
];

/// Why a Service that a cloud may serve is left as it is for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotAdopted {
    /// Which load balancers are ours was not listed yet.
    Unlisted,
    /// `adopt.only` does not choose it.
    NotChosen,
    /// Another controller runs.
    OtherController,
    /// `adopt.mode: observe`.
    Observed,
    /// `adopt.mode: ask`, and it has no annotation.
    NotAsked,
    /// It is adopted next, as `perMinute` and `stopAfter` allow.
    Next,
}

impl NotAdopted {
    pub const ALL: [NotAdopted; 6] = [
        NotAdopted::Unlisted,
        NotAdopted::NotChosen,
        NotAdopted::OtherController,
        NotAdopted::Observed,
        NotAdopted::NotAsked,
        NotAdopted::Next,
    ];

    /// For a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            NotAdopted::Unlisted => "unlisted",
            NotAdopted::NotChosen => "not-chosen",
            NotAdopted::OtherController => "other-controller",
            NotAdopted::Observed => "observed",
            NotAdopted::NotAsked => "not-asked",
            NotAdopted::Next => "next",
        }
    }

    pub fn why(self) -> &'static str {
        match self {
            NotAdopted::Unlisted => {
                "Seaway has not yet listed the cloud, or does not yet know whether another controller runs"
            }
            NotAdopted::NotChosen => "adopt.only does not choose this Service",
            NotAdopted::OtherController => "another controller serves load balancers in this cluster",
            NotAdopted::Observed => "adopt.mode is observe",
            NotAdopted::NotAsked => "the Service has no annotation seaway.dev/adopt: \"true\"",
            NotAdopted::Next => "the Service waits for its turn (adopt.perMinute, adopt.stopAfter)",
        }
    }

    /// Its driver looks, and says what would be done.
    pub(super) fn is_previewed(self) -> bool {
        !matches!(self, NotAdopted::Unlisted | NotAdopted::Next)
    }
}

/// How far adoption is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adoption {
    pub mode: AdoptMode,
    /// Services that a cloud serves, or would serve; and those of them that are adopted.
    pub services: usize,
    pub adopted: usize,
    /// Adopted Services whose load balancers have Problems; `true`: no adoption begins until there are fewer.
    pub troubled: usize,
    pub stopped: bool,
    /// The others, by name.
    pub waiting: Vec<Waiting>,
    /// The other controller that runs.
    pub beside: Option<CompetingController>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    pub service: ServiceKey,
    pub why: NotAdopted,
    /// What would be done, as far as that is known.
    pub steps: Vec<Name>,
    /// Why it could not be adopted.
    pub problems: Vec<Problem>,
}

impl World {
    /// How far adoption is; nothing, where no Service has to wait.
    pub fn adoption(&self) -> Option<Adoption> {
        let owners = |key: &ServiceKey| self.of_service.contains_key(key);
        let native = self.adoption.waits.iter().filter(|(key, _)| !owners(key));
        let native: Vec<Waiting> =
            native.filter_map(|(key, (_, why))| self.waits_for_native(key, *why)).collect();
        if !self.adoption.gated && native.is_empty() {
            return None;
        }
        let in_cloud = self.owners.keys().filter(|it| self.is_in_cloud(it));
        let (mut services, mut waiting): (usize, _) = (native.len(), native);
        for owner in in_cloud {
            services = services.saturating_add(1);
            let Some(why) = self.awaits_adoption(owner) else { continue };
            let object = owner.object();
            let units = self.owners.get(owner).map(|it| it.units.as_slice()).unwrap_or_default();
            let steps = units.iter().filter_map(|it| self.adoption.previews.get(it)).flatten().cloned();
            let problems = units.iter().filter_map(|it| self.outcomes.get(it)).flat_map(|it| &it.problems);
            let problems = problems.filter(|(it, _)| it == owner).map(|(_, it)| it.clone());
            waiting.push(Waiting {
                service: ServiceKey::new(object.namespace, object.name),
                why,
                steps: steps.collect(),
                problems: problems.collect(),
            });
        }
        waiting.sort_by(|a, b| a.service.cmp(&b.service));
        let troubled = self.troubled();
        Some(Adoption {
            mode: if self.adoption.gated { self.config.adopt.mode } else { self.config.adopt.native },
            services,
            adopted: services.saturating_sub(waiting.len()),
            troubled,
            stopped: self.config.adopt.stop_after.is_some_and(|most| troubled >= most as usize),
            waiting,
            beside: self.adoption.beside.clone(),
        })
    }

    /// A Service that our own data plane would serve, and what would be done.
    fn waits_for_native(&self, key: &ServiceKey, why: NotAdopted) -> Option<Waiting> {
        // One that a cloud would serve and that is being deleted has no owner either: its cloud's controller removes it.
        let service = self.index.service(key)?;
        if cloud_of(service, &self.config).is_some() || !is_native(service, &self.config) {
            return None;
        }
        let published = self.published.get(key)?;
        let ips: Vec<String> = published.iter().map(ToString::to_string).collect();
        let step = format!("take over from the controller that published {}", ips.join(", "));
        Some(Waiting { service: key.clone(), why, steps: vec![step.into()], problems: Vec::new() })
    }

    /// A running controller, with what ends this.
    pub(in crate::world) fn adoption_problems(&self) -> Option<Problem> {
        let by = self.adoption.beside.as_ref().filter(|_| !self.config.adopt.beside_occm)?;
        let its = self.adoption.writes.iter().filter(|(_, (it, _))| it.by == by.by);
        let latest = its.max_by(|(a, (x, _)), (b, (y, _))| (x.at, a).cmp(&(y.at, b)));
        let which =
            latest.map(|(key, _)| format!(", {}/{} last", key.namespace, key.name)).unwrap_or_default();
        let message = format!(
            "another controller serves load balancers in this cluster: {by}{which}. Until that controller \
             stops, Seaway neither adopts nor creates load balancers; it continues to serve those that it \
             has"
        );
        let until = match by.sign {
            OtherControllerEvidence::Wrote => "10 minutes after its last write Seaway continues by itself",
            OtherControllerEvidence::Leads | OtherControllerEvidence::Reported => {
                "Once another process holds its Lease, Seaway continues by itself"
            }
        };
        let object = ObjectRef::new(Kind::Config, "", "adopt");
        Some(Problem::new(object, Reason::OtherController, message).at("adopt.besideOccm").fix(format!(
            "Add --controllers=*,-service-lb-controller to the arguments of the cloud controller manager. {until}; \
             to continue at once after the other has ended, set adopt: {{besideOccm: true}} in \
             seaway.yaml."
        )))
    }

    /// So many more that `stopAfter` cannot be passed, whatever becomes of them.
    pub(super) fn room_for_adoptions(&self) -> usize {
        let Some(most) = self.config.adopt.stop_after else { return usize::MAX };
        let under_way = self.adopted_owners().filter(|it| self.is_under_way(it)).count();
        (most as usize).saturating_sub(self.troubled()).saturating_sub(under_way)
    }

    /// Adopted Services whose load balancers have Problems.
    fn troubled(&self) -> usize {
        self.adopted_owners().filter(|it| self.is_troubled(it)).count()
    }

    /// Their adoption was begun here, or they have the finalizer of another controller, and are ours.
    fn adopted_owners(&self) -> impl Iterator<Item = &Owner> {
        self.owners.keys().filter(|owner| {
            let Owner::Object { object, uid } = owner else { return false };
            let by_others = || {
                let key = ServiceKey::new(object.namespace.clone(), object.name.clone());
                self.adoption.ours.contains(uid) && self.held(&key) == FinalizerOwner::ByOthers
            };
            self.is_in_cloud(owner) && (self.adoption.begun.contains(uid) || by_others())
        })
    }

    fn is_troubled(&self, owner: &Owner) -> bool {
        self.balancers_of(owner).filter_map(|it| self.outcomes.get(it)).any(|it| {
            matches!(it.state, UnitState::Failed { .. } | UnitState::UserMustFix)
                || it.problems.iter().any(|(_, it)| GRAVE.contains(&it.reason))
        })
    }

    /// What becomes of its adoption is not known yet.
    fn is_under_way(&self, owner: &Owner) -> bool {
        self.balancers_of(owner).any(|it| match self.outcomes.get(it) {
            None => true,
            Some(it) => {
                let is_pending = match it.state {
                    UnitState::Pending(after) => after < UNDER_WAY,
                    UnitState::PendingChange => true,
                    _ => false,
                };
                is_pending && it.serving.is_empty() && it.problems.is_empty()
            }
        })
    }

    fn balancers_of(&self, owner: &Owner) -> impl Iterator<Item = &Unit> {
        let units = self.owners.get(owner).map(|it| it.units.as_slice()).unwrap_or_default();
        units.iter().filter(|it| matches!(it, Unit::LoadBalancer(Place::Cloud { .. }, _)))
    }
}
