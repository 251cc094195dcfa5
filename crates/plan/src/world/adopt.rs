//! Adoption: which Services of clouds are taken over that Seaway does not serve yet, and when.
//!
//! ```text
//!     ours   our finalizer, our tags in the cloud, or an adoption that was begun  ─► served, whatever is configured
//!     else   it waits, and nothing of it is written, in the cloud or in the cluster
//!              ├─ its driver looks, and what would be done is reported
//!              └─ its turn comes: the engine begins it, so many in a minute       ─► ours
//! ```
//! Where nothing is configured and no other controller is noticed, no Service waits.

mod progress;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use seaway_model::{
    Desired, Kind, LoadBalancer, Name, ObjectRef, OtherControllerSigns, Owner, Time, Unit, WorkItem,
    config::{AdoptMode, AdoptionConfig},
    fact::{FinalizerOwner, OtherControllerWrite, Service, ServiceKind},
    unit::Place,
};

pub use self::progress::{Adoption, NotAdopted, Waiting};

use super::World;
use crate::{
    annotations::asks_for_adoption,
    demand::{cloud_of, whose},
    index::ServiceKey,
};

/// Another controller runs if it wrote a Service within this time.
const RUNNING: u64 = 10 * 60 * 1_000;

#[derive(Default)]
pub(super) struct Adoptions {
    now: u64,
    /// UIDs of Services that we serve.
    pub(super) ours: HashSet<Name>,
    /// UIDs of those whose adoption this process began.
    begun: BTreeSet<Name>,
    /// All that clouds have of ours was listed.
    listed: bool,
    /// Some Services may have to wait.
    gated: bool,
    waits: HashMap<ServiceKey, (Name, NotAdopted)>,
    previews: HashMap<Unit, Vec<Name>>,
    /// As they were told, and when by our own clock.
    writes: HashMap<ServiceKey, (OtherControllerWrite, u64)>,
    beside: Option<CompetingController>,
    signs: OtherControllerSigns,
    /// Whether it runs is being asked.
    asking: bool,
}

/// Another controller that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompetingController {
    pub by: Name,
    pub sign: OtherControllerEvidence,
}

/// By what it was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherControllerEvidence {
    /// It wrote a Service within the last 10 minutes.
    Wrote,
    /// It wrote a Service, and holds its Lease since before that.
    Leads,
    /// It reported an event of a Service.
    Reported,
}

impl fmt::Display for CompetingController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = &self.by;
        match self.sign {
            OtherControllerEvidence::Wrote => write!(f, "{by} wrote Services within the last 10 minutes"),
            OtherControllerEvidence::Leads => {
                write!(f, "{by} runs: the process that holds its Lease wrote Services")
            }
            OtherControllerEvidence::Reported => write!(f, "{by} runs: it reported events of Services"),
        }
    }
}

impl World {
    /// Whether a Service waits for nothing but its turn.
    pub fn has_next_adoption(&self) -> bool {
        self.settled
            && self.roles.allocate
            && self.adoption.waits.values().any(|(_, it)| *it == NotAdopted::Next)
    }

    /// Begins adoptions, `most` at most, the oldest Services first; tells how many began. New Services, which have nothing of
    /// another controller, do not count.
    pub fn adopt(&mut self, most: usize) -> (usize, Vec<WorkItem>) {
        if !self.has_next_adoption() {
            return (0, Vec::new());
        }
        let waits = self.adoption.waits.iter().filter(|(_, (_, it))| *it == NotAdopted::Next);
        let created = |key: &ServiceKey| self.index.service(key).and_then(|it| it.meta.created);
        let mut next: Vec<_> =
            waits.map(|(key, (uid, _))| (created(key), key.clone(), uid.clone())).collect();
        next.sort();
        let most = most.min(self.room_for_adoptions());
        let mut begun = 0_usize;
        for (_, key, uid) in next {
            let is_new = self.is_new(&key);
            if !is_new && begun == most {
                continue;
            }
            begun = begun.saturating_add((!is_new).into());
            // What came of looking at it tells nothing of its adoption.
            let owner = self.index.service(&key).map(|it| whose(it));
            let units = owner.and_then(|it| self.owners.get(&it)).map(|it| it.units.clone());
            units.iter().flatten().for_each(|it| drop(self.outcomes.remove(it)));
            self.adoption.ours.insert(uid.clone());
            if !is_new {
                self.adoption.begun.insert(uid);
            }
            self.look_at_adoption(&key);
        }
        (begun, self.take_dirt())
    }

    /// Whether nothing of this Unit may be written yet.
    pub fn is_awaiting_adoption(&self, unit: &Unit) -> bool {
        match unit {
            Unit::LoadBalancer(Place::Cloud { .. }, key) => {
                key.owner().is_some_and(|it| self.awaits_adoption(it).is_some())
            }
            Unit::Finalizer(owner) | Unit::Status(owner) => self.awaits_adoption(owner).is_some(),
            // Who needs its rules is not known before all is listed.
            Unit::SecurityGroup { .. } => {
                let owners = self.unit_owners.get(unit).map(Vec::as_slice).unwrap_or_default();
                let all_wait = owners.iter().all(|it| self.awaits_adoption(it).is_some());
                self.adoption.gated && (!self.adoption.listed || !owners.is_empty() && all_wait)
            }
            _ => false,
        }
    }

    /// What such a Unit is desired to be: left as it is.
    pub(super) fn unadopted(&self, unit: &Unit) -> Option<Desired> {
        if !self.is_awaiting_adoption(unit) {
            return None;
        }
        let Unit::LoadBalancer(_, key) = unit else { return Some(Desired::Released) };
        let owner = key.owner()?;
        let state = self.owners.get(owner).filter(|it| it.units.contains(unit));
        let is_previewed = self.awaits_adoption(owner).is_some_and(NotAdopted::is_previewed);
        let Some(state) = state.filter(|_| is_previewed) else { return Some(Desired::Released) };
        let planned = self.in_cloud(owner, self.here(state.planned.load_balancer.clone()));
        let mut planned = LoadBalancer::clone(&planned);
        let Some(outside) = &mut planned.options.cloud else { return Some(Desired::Released) };
        outside.preview = true;
        // It is not held before it is adopted.
        outside.unheld = false;
        Some(Desired::LoadBalancer(Arc::new(planned)))
    }

    pub(super) fn awaits_adoption(&self, owner: &Owner) -> Option<NotAdopted> {
        let Owner::Object { object, uid } = owner else { return None };
        if self.adoption.waits.is_empty() || object.kind != Kind::Service {
            return None;
        }
        let key = ServiceKey::new(object.namespace.clone(), object.name.clone());
        self.adoption.waits.get(&key).filter(|(it, _)| it == uid).map(|(_, why)| *why)
    }

    /// Somebody else serves it, or it is not known yet.
    pub(super) fn is_left_to_others(&self, service: &Service) -> bool {
        self.awaits_adoption(&whose(service)).is_some()
    }

    /// What this process served until now goes on, whatever the new configuration says.
    pub(super) fn note_adopt_config(&mut self, adopt: &AdoptionConfig) {
        if !self.adoption.gated && self.is_gated_by(adopt) {
            self.keep_begun();
            // Before anything is planned by the new configuration: it may bring Services that are not ours.
            self.adoption.gated = true;
        }
    }

    /// Another controller wrote a Service, or did not.
    pub(super) fn note_other_write(&mut self, key: &ServiceKey, write: Option<&OtherControllerWrite>) {
        let before = self.adoption.writes.get(key).map(|(it, _)| it);
        if before == write || self.roles.host.is_some() {
            return;
        }
        match write {
            // A clock that is ahead of ours must not keep us waiting for longer.
            Some(write) => {
                let at = write.at.0.min(self.adoption.now);
                self.adoption.writes.insert(key.clone(), (write.clone(), at));
                let is_told = self.adoption.beside.is_some() || self.adoption.signs.leads_since.is_some();
                if !self.is_recent(at) && !is_told {
                    return;
                }
            }
            None => drop(self.adoption.writes.remove(key)),
        }
        self.notice();
    }

    pub(super) fn note_other_signs(&mut self, signs: Option<OtherControllerSigns>) {
        let was_asking = std::mem::replace(&mut self.adoption.asking, signs.is_none());
        if let Some(signs) = signs {
            self.adoption.signs = signs;
        }
        // First who runs: what waits for the answer alone would be adopted beside it.
        self.notice();
        if was_asking != self.adoption.asking {
            self.look_at_adoptions();
        }
    }

    pub(super) fn age_adoptions(&mut self, now: Time) {
        self.adoption.now = now.0;
        self.notice();
    }

    /// All that clouds have of ours.
    pub(super) fn note_listed(&mut self, there: &[Unit]) {
        let before = self.adoption.ours.len();
        self.adoption.ours.extend(there.iter().filter_map(uid_of).cloned());
        let is_first = !std::mem::replace(&mut self.adoption.listed, true);
        let is_news = self.adoption.ours.len() != before;
        if is_first || is_news {
            self.look_at_adoptions();
        }
        if is_news {
            self.look_at_ends();
        }
        if is_first && self.adoption.gated && self.settled {
            // Groups, and Services whose end is awaited, waited for this.
            self.nodes_changed();
            self.mark_holds();
        }
    }

    /// What is there for a Unit has our tags.
    pub(super) fn note_ours(&mut self, unit: &Unit) {
        let Some(uid) = uid_of(unit).cloned() else { return };
        let waits = self.adoption.waits.iter().find(|(_, (it, _))| *it == uid);
        let key = waits.map(|(key, _)| key.clone());
        let is_news = self.adoption.ours.insert(uid);
        if let Some(key) = key {
            self.look_at_adoption(&key);
        }
        if is_news {
            self.look_at_ends();
        }
    }

    pub(super) fn note_preview(&mut self, unit: Unit, steps: Vec<Name>) {
        self.adoption.previews.insert(unit, steps);
    }

    /// Another leads, and changes what is ours.
    pub(super) fn note_lead(&mut self, leads: bool) {
        if !leads {
            self.adoption.listed = false;
        }
        self.look_at_adoptions();
    }

    /// A Service is gone.
    pub(super) fn forget_adoption(&mut self, key: &ServiceKey, uid: Option<Name>) {
        self.note_other_write(key, None);
        self.adoption.waits.remove(key);
        let Some(uid) = uid else { return };
        let object = ObjectRef::new(Kind::Service, key.namespace.clone(), key.name.clone());
        self.end_reservation(&Owner::Object { object, uid: uid.clone() });
        self.adoption.ours.remove(&uid);
        self.adoption.begun.remove(&uid);
        self.adoption.previews.retain(|unit, _| uid_of(unit) != Some(&uid));
    }

    /// All Services: what they wait for may be something else.
    pub(super) fn look_at_adoptions(&mut self) {
        let gated = self.is_gated_by(&self.config.adopt);
        match (self.adoption.gated, gated) {
            (false, false) => return,
            (false, true) => self.keep_begun(),
            _ => {}
        }
        self.adoption.gated = gated;
        if !self.settled {
            return;
        }
        let keys: Vec<ServiceKey> = self.index.services().map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.look_at_adoption(key));
        if !gated {
            self.adoption.previews.clear();
            self.nodes_changed();
        }
    }

    /// One Service.
    pub(super) fn look_at_adoption(&mut self, key: &ServiceKey) {
        let may_wait = self.adoption.gated || self.config.pools.cluster || !self.adoption.waits.is_empty();
        if !self.settled || !may_wait {
            return;
        }
        // Of one that is gone it is forgotten last: what it leaves behind depends on it.
        let Some(service) = self.index.service(key).cloned() else { return };
        let now = self.not_adopted(key, &service).map(|why| (service.meta.uid.clone(), why));
        let before = match &now {
            Some(now) => self.adoption.waits.insert(key.clone(), now.clone()),
            None => self.adoption.waits.remove(key),
        };
        let owner = whose(&service);
        let is_native = cloud_of(&service, &self.config).is_none();
        if before == now {
            self.reserve_published(key, &owner);
            return;
        }
        let units = self.owners.get(&owner).map(|it| it.units.clone()).unwrap_or_default();
        if !now.as_ref().is_some_and(|(_, it)| it.is_previewed()) {
            units.iter().for_each(|it| drop(self.adoption.previews.remove(it)));
        }
        self.groups_changed(&units);
        self.dirt.extend(units.into_iter().map(WorkItem::Unit));
        self.dirt.insert(WorkItem::Unit(Unit::Status(owner.clone())));
        self.refresh_hold(key);
        if is_native {
            // Its claim finds what was published before anybody else may have it.
            self.refresh_service(key);
        }
        self.reserve_published(key, &owner);
    }

    fn is_gated_by(&self, adopt: &AdoptionConfig) -> bool {
        let is_beside = (self.adoption.beside.is_some() || self.adoption.asking) && !adopt.beside_occm;
        self.roles.host.is_none() && (is_beside || !adopt.is_open())
    }

    fn is_recent(&self, at: u64) -> bool {
        at.saturating_add(RUNNING) > self.adoption.now
    }

    /// Another controller that wrote Services lately runs; so does the one that wrote them, or reported events of them, since its
    /// process began, if that holds its Lease still.
    fn notice(&mut self) {
        let writes = &self.adoption.writes;
        // The API server tells seconds.
        let since = self.adoption.signs.leads_since.map(|it| it.0.saturating_sub(it.0 % 1_000));
        let is_its = |at: Time| since.is_some_and(|since| at.0 >= since);
        let latest = |its: &dyn Fn(&OtherControllerWrite, u64) -> bool| {
            let its = writes.values().filter(|(it, at)| its(it, *at));
            its.max_by(|(a, _), (b, _)| (a.at, &a.by).cmp(&(b.at, &b.by))).map(|(it, _)| it.by.clone())
        };
        let event = self.adoption.signs.event.as_ref();
        let reported = event.filter(|it| is_its(it.at) || self.is_recent(it.at.0.min(self.adoption.now)));
        let beside = |sign: OtherControllerEvidence| move |by: Name| CompetingController { by, sign };
        let latest = (latest(&|_, at| self.is_recent(at)).map(beside(OtherControllerEvidence::Wrote)))
            .or_else(|| latest(&|it, _| is_its(it.at)).map(beside(OtherControllerEvidence::Leads)))
            .or_else(|| reported.map(|it| it.by.clone()).map(beside(OtherControllerEvidence::Reported)));
        if latest != self.adoption.beside {
            self.adoption.beside = latest;
            self.look_at_adoptions();
        }
    }

    /// What nothing kept from being served is ours from now on.
    fn keep_begun(&mut self) {
        let served = self.owners.keys().filter(|it| self.is_in_cloud(it)).chain(self.going_owners());
        let uids = served.filter_map(|it| match it {
            Owner::Object { uid, .. } => Some(uid.clone()),
            Owner::Config(_) => None,
        });
        let uids: Vec<Name> = uids.collect();
        self.adoption.ours.extend(uids);
    }

    fn not_adopted(&self, key: &ServiceKey, service: &Service) -> Option<NotAdopted> {
        if let Some(why) = self.native_not_adopted(key, service) {
            return Some(why);
        }
        if !self.adoption.gated {
            return None;
        }
        let held = self.held(key);
        let may_be_theirs = match service.kind {
            ServiceKind::LoadBalancer => cloud_of(service, &self.config).is_some_and(|(_, it)| !it.absent),
            _ => held == FinalizerOwner::ByOthers && self.config.clouds.values().any(|it| it.classless),
        };
        if !may_be_theirs || held == FinalizerOwner::ByUs || self.adoption.ours.contains(&service.meta.uid) {
            return None;
        }
        let adopt = &self.config.adopt;
        let is_going = service.leaving || service.kind != ServiceKind::LoadBalancer;
        match adopt.mode {
            _ if !self.adoption.listed || self.adoption.asking && !adopt.beside_occm => {
                Some(NotAdopted::Unlisted)
            }
            _ if !adopt.only.matches(&service.meta) => Some(NotAdopted::NotChosen),
            _ if self.adoption.beside.is_some() && !adopt.beside_occm => Some(NotAdopted::OtherController),
            AdoptMode::Observe => Some(NotAdopted::Observed),
            AdoptMode::Ask if !asks_for_adoption(&service.meta.annotations) => Some(NotAdopted::NotAsked),
            // What goes may go at once.
            _ if is_going => None,
            _ => Some(NotAdopted::Next),
        }
    }

    /// Nothing tells of another controller.
    fn is_new(&self, key: &ServiceKey) -> bool {
        let named = |owner: &Owner| {
            let demand = self.owners.get(owner).and_then(|it| it.demand.as_ref());
            demand.is_some_and(|it| it.wishes.cloud.named.is_some())
        };
        self.held(key) == FinalizerOwner::No
            && !self.published.contains_key(key)
            && !self.of_service.get(key).into_iter().flatten().any(named)
    }
}

/// Of the Service whose load balancer it is.
fn uid_of(unit: &Unit) -> Option<&Name> {
    let Unit::LoadBalancer(_, key) = unit else { return None };
    match key.owner()? {
        Owner::Object { uid, .. } => Some(uid),
        Owner::Config(_) => None,
    }
}
