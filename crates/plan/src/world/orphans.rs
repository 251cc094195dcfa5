//! Orphans: what a cloud has under our name for an owner whose end nobody of us saw. They are reported, not removed.
//!
//! ```text
//!     seen: a deletion timestamp, a watch's deletion, a Service that we hold and that is no load balancer any more
//!           ─► the deletion is recorded (24 hours, in storage too) ─► what a cloud has for it is removed, and again if it returns
//!     not seen: a list that lacks it, a cluster that was restored from a backup, a finalizer that was taken off by hand
//!           ─► an orphan: left as it is, a Problem; removed by who says so, or everywhere by `cloud.orphans: delete`
//! ```
//! A finalizer holds every Service that has something in a cloud, so an ordinary deletion is seen, however long nobody ran.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use seaway_model::{
    Deletion, Kind, Name, Owner, Problem, Reason, Status, Time, Unit, WorkItem,
    config::OrphanPolicy,
    fact::{FactRef, FamilyPolicy, FinalizerOwner, Service, ServiceKind},
    unit::{LbKey, Place},
};

use super::{World, asked::used_ports};
use crate::index::ServiceKey;

/// What comes back in a cloud after it was deleted, comes within this.
pub(super) const KEPT: u64 = 24 * 3_600 * 1_000;
/// More are not kept: what was seen longest ago is forgotten first, and then only reported.
pub(super) const MOST: usize = 5_000;

#[derive(Default)]
pub(super) struct Deletions {
    now: u64,
    /// When each was seen: of the uid of a Service, of one of its Units, of a group.
    seen: BTreeMap<Name, Time>,
    orphans: BTreeMap<Name, Unit>,
    /// How often what was kept was told.
    recalls: u64,
    /// Groups of Services that are released.
    released_groups: BTreeSet<Unit>,
    /// The cloud was listed, so that it is known what it has.
    surveyed: bool,
}

/// The same for what is the same: of an owner's name a cloud may tell the beginning only.
pub(super) fn identity(unit: &Unit) -> Option<Name> {
    match unit {
        Unit::LoadBalancer(Place::Cloud { .. }, key) => match (key, uid(key.owner()?)?) {
            (LbKey::Second(_, family), uid) => Some(format!("{uid}/{}", family.as_str()).into()),
            (LbKey::Port(_, port), uid) => Some(format!("{uid}/{port}").into()),
            (_, uid) => Some(uid.clone()),
        },
        Unit::SecurityGroup { cloud, class } => Some(format!("group/{cloud}/{class}").into()),
        _ => None,
    }
}

pub(super) fn uid(owner: &Owner) -> Option<&Name> {
    match owner {
        Owner::Object { uid, .. } => Some(uid),
        Owner::Config(_) => None,
    }
}

impl World {
    /// Deletions that were seen within a day, for who keeps them.
    pub fn deletions(&self) -> Vec<Deletion> {
        let seen = self.deletions.seen.iter();
        seen.map(|(of, at)| Deletion { of: of.clone(), at: *at }).collect()
    }

    /// How often [`Change::Deletions`](seaway_model::Change::Deletions) was heard: until then others may have seen more.
    pub fn recalls(&self) -> u64 {
        self.deletions.recalls
    }

    /// What is left as it is, for nobody saw that its owner was deleted.
    pub fn orphans(&self) -> impl Iterator<Item = &Unit> {
        self.deletions.orphans.values()
    }

    /// Whether the end of what this Unit was for was seen.
    pub fn saw_end_of(&self, unit: &Unit) -> bool {
        match unit {
            Unit::DnsName(name) => self.saw_end_of_name(name),
            _ => self.is_end_seen(unit),
        }
    }

    /// How many load balancers clouds have, or should have, as far as that is known.
    pub fn balancers_in_clouds(&self) -> usize {
        let there = self.outcomes.keys().chain(self.deletions.orphans.values());
        let wanted = self.unit_owners.keys().filter(|it| !self.outcomes.contains_key(it));
        let is_one = |it: &&Unit| {
            matches!(it, Unit::LoadBalancer(Place::Cloud { .. }, _)) && !self.is_awaiting_adoption(it)
        };
        there.chain(wanted).filter(is_one).count()
    }

    /// Whose deletions wait, for there were too many, and what says so.
    pub fn held_by_limit(&self) -> impl Iterator<Item = (&Owner, &Problem)> {
        let told = self.outcomes.values().flat_map(|it| &it.problems);
        told.filter(|(_, it)| it.reason == Reason::DeletionLimit).map(|(owner, it)| (owner, it))
    }

    /// What a Service says that is no load balancer any more, while the limit keeps what it had.
    pub(super) fn limited_status(&self, owner: &Owner) -> Option<Status> {
        if !self.is_no_balancer_now(owner) {
            return None;
        }
        let problems: BTreeSet<Problem> =
            self.held_by_limit().filter(|(whose, _)| *whose == owner).map(|(_, it)| it.clone()).collect();
        let waits = "the load balancer is deleted as soon as the deletion limit allows that";
        (!problems.is_empty()).then(|| Status {
            owner: owner.clone(),
            addresses: Vec::new(),
            serving: Vec::new(),
            members: 0,
            ready: false,
            problems: problems.into_iter().collect(),
            pool: None,
            announced: None,
            shown: seaway_model::outcome::PublishedAs::default(),
            waits: Some(waits.into()),
            takes_over: true,
            unreported: false,
            replaced: None,
            ports: Vec::new(),
            left: false,
        })
    }

    /// The same, of one that is served at the front door.
    pub(super) fn with_limit(&self, mut status: Status) -> Status {
        if let Some(limited) = self.limited_status(&status.owner) {
            status.problems.extend(limited.problems);
        }
        status
    }

    /// Whether a Service is there that wants no load balancer.
    pub(super) fn is_no_balancer_now(&self, owner: &Owner) -> bool {
        let Owner::Object { object, uid } = owner else { return false };
        let named = self.index.service(&ServiceKey::new(object.namespace.clone(), object.name.clone()));
        let service = named.filter(|it| it.meta.uid == *uid);
        service.is_some_and(|it| it.kind != ServiceKind::LoadBalancer) && !self.owners.contains_key(owner)
    }

    /// Whether nobody is known to have asked for the end of what is at this Unit, which nobody wants.
    pub(super) fn is_orphan(&self, unit: &Unit) -> bool {
        self.config.orphans == OrphanPolicy::Report
            && identity(unit).is_some()
            && !self.unit_owners.contains_key(unit)
            && !self.is_end_seen(unit)
    }

    fn is_end_seen(&self, unit: &Unit) -> bool {
        let seen = &self.deletions.seen;
        let itself = identity(unit).is_some_and(|it| seen.contains_key(&it));
        match unit {
            Unit::LoadBalancer(_, key) => {
                itself || key.owner().and_then(uid).is_some_and(|it| seen.contains_key(it))
            }
            // What is left to an orphan lets its traffic through.
            _ if self.has_orphaned_balancers() => false,
            _ => itself || self.holds.awaits(unit) || self.is_group_configured_away(),
        }
    }

    pub(super) fn has_orphaned_balancers(&self) -> bool {
        self.deletions.orphans.values().any(|it| matches!(it, Unit::LoadBalancer(..)))
    }

    /// A cloud serves Services, and no setting gives any of them a group.
    fn is_group_configured_away(&self) -> bool {
        let mut demands = self.owners.values().filter_map(|it| it.demand.as_ref());
        let mut in_cloud = demands.by_ref().filter(|it| it.cloud.is_some()).peekable();
        in_cloud.peek().is_some() && in_cloud.all(|it| !it.is_opened())
    }

    /// What a Service says of its end.
    pub(super) fn note_end(&mut self, service: &Service) {
        let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
        let before = self.index.service(&key).filter(|it| it.meta.uid == service.meta.uid);
        let was_one = before.is_some_and(|it| it.kind == ServiceKind::LoadBalancer);
        let second = |it: &Service| it.families.second.filter(|_| it.families.policy != FamilyPolicy::Single);
        let dropped = before.and_then(|it| second(it)).filter(|it| second(service) != Some(*it));
        let uid = service.meta.uid.clone();
        if let Some(family) = dropped.filter(|_| was_one) {
            self.see_deletion(format!("{uid}/{}", family.as_str()).into());
        }
        let is_one = service.kind == ServiceKind::LoadBalancer;
        if self.given_away.contains(&uid) {
            // What it had is not its own any more.
        } else if service.leaving || !is_one && (was_one || service.held != FinalizerOwner::No) {
            self.see_deletion(uid);
        } else if is_one {
            self.deletions.seen.remove(&uid);
        }
    }

    /// A watch says that it was deleted.
    pub(super) fn note_gone_service(&mut self, reference: &FactRef) {
        let FactRef::Object(object) = reference else { return };
        if object.kind == Kind::Service {
            let key = ServiceKey::new(object.namespace.clone(), object.name.clone());
            self.note_names(&key, None);
            self.note_deleted(&key);
        }
    }

    fn note_deleted(&mut self, key: &ServiceKey) {
        if let Some(service) = self.index.service(key).cloned() {
            self.note_node_ports(&service);
            match self.given_away.contains(&service.meta.uid) {
                true => self.given_away.note_deleted(&service.meta.uid, self.now()),
                false => self.see_deletion(service.meta.uid.clone()),
            }
        }
    }

    /// What is recorded of a Service beside its own deletion.
    pub(super) fn recorded_of(&self, uid: &Name) -> BTreeSet<Name> {
        let begin: Name = format!("{uid}/").into();
        let from = self.deletions.seen.range(begin.clone()..).map(|(of, _)| of);
        from.take_while(|it| it.starts_with(&*begin)).cloned().collect()
    }

    pub(super) fn is_recorded(&self, of: &Name) -> bool {
        self.deletions.seen.contains_key(of)
    }

    pub(super) fn forget_deletion(&mut self, of: &Name) {
        self.deletions.seen.remove(of);
    }

    pub(super) fn now(&self) -> Time {
        Time(self.deletions.now)
    }

    pub(super) fn see_deletion(&mut self, of: Name) {
        let now = Time(self.deletions.now);
        let seen = &mut self.deletions.seen;
        seen.entry(of).or_insert(now);
        self.forget_oldest();
    }

    fn forget_oldest(&mut self) {
        let seen = &mut self.deletions.seen;
        while seen.len() > MOST {
            let Some(oldest) = seen.iter().min_by_key(|(_, at)| **at).map(|(of, _)| of.clone()) else {
                break;
            };
            seen.remove(&oldest);
        }
    }

    /// An owner gives a Unit up that it had.
    pub(super) fn note_given_up(&mut self, owner: &Owner, unit: &Unit) {
        // It never had it: what is there was another controller's, or another Service's of ours.
        if matches!(unit, Unit::SecurityGroup { .. }) && self.awaits_adoption(owner).is_some() {
            return;
        }
        let asked = match unit {
            Unit::LoadBalancer(_, key) => self.asked_for_its_end(key),
            Unit::SecurityGroup { .. } => {
                let is_seen = uid(owner).is_some_and(|it| self.deletions.seen.contains_key(it));
                !self.unit_owners.contains_key(unit) && (is_seen || self.lives(owner))
            }
            _ => false,
        };
        if let Some(identity) = identity(unit).filter(|_| asked) {
            self.see_deletion(identity);
        }
        if matches!(unit, Unit::SecurityGroup { .. }) {
            self.note_group_given_up(unit, uid(owner));
        }
        self.note_orphan(unit);
    }

    /// The last Service that is released ends.
    pub(super) fn note_released_end(&mut self, owner: &Owner) {
        let is_seen = uid(owner).is_some_and(|it| self.deletions.seen.contains_key(it));
        if is_seen && !self.released.keys().any(|it| self.lives(it)) {
            for group in std::mem::take(&mut self.deletions.released_groups) {
                if !self.unit_owners.contains_key(&group) {
                    identity(&group).into_iter().for_each(|it| self.see_deletion(it));
                }
            }
        }
    }

    /// Somebody wants it.
    pub(super) fn note_wanted(&mut self, unit: &Unit) {
        let Some(identity) = identity(unit) else { return };
        self.deletions.seen.remove(&identity);
        self.note_group_wanted(&identity);
        if self.deletions.orphans.remove(&identity).is_some() {
            self.look_at_orphans();
        }
    }

    /// Nobody wants it. (What is released has a Service that lives.)
    pub(super) fn note_orphan(&mut self, unit: &Unit) {
        let Some(identity) = identity(unit) else { return };
        let had = self.has_orphaned_balancers();
        let (is_orphan, is_released) = (self.is_orphan(unit), self.is_released(unit));
        if is_orphan && !is_released {
            self.deletions.orphans.insert(identity, unit.clone());
        } else {
            self.deletions.orphans.remove(&identity);
        }
        if is_released && matches!(unit, Unit::SecurityGroup { .. }) {
            self.deletions.released_groups.insert(unit.clone());
        }
        if had != self.has_orphaned_balancers() {
            self.look_at_groups();
        }
    }

    /// Deletions that another saw, or we before we were started again.
    pub(super) fn recall_deletions(&mut self, deletions: Vec<Deletion>) {
        let services = self.index.services().map(|(_, it)| it);
        let living = services.filter(|it| it.kind == ServiceKind::LoadBalancer && !it.leaving);
        let its = |it: &Arc<Service>| {
            let ports: Vec<Name> = used_ports(it).collect();
            ports.into_iter().chain([it.meta.uid.clone()])
        };
        let mut used: HashSet<Name> = living.flat_map(its).collect();
        used.extend(self.unit_owners.keys().filter_map(identity));
        for Deletion { of, at } in deletions {
            if !used.contains(&of) && at.0.saturating_add(KEPT) > self.deletions.now {
                let seen = self.deletions.seen.entry(of).or_insert(at);
                *seen = (*seen).max(at);
            }
        }
        self.forget_oldest();
        self.deletions.recalls = self.deletions.recalls.saturating_add(1);
        self.look_at_orphans();
    }

    /// Another process leads meanwhile, and what it leaves in the cloud is not heard here.
    pub(super) fn forget_survey(&mut self) {
        self.deletions.surveyed = false;
    }

    pub(super) fn is_surveyed(&self) -> bool {
        self.deletions.surveyed
    }

    /// All that a cloud has of ours, as it was listed just now: orphans that are not there any more are none.
    pub(super) fn survey(&mut self, there: &[Unit]) {
        let there: Vec<Name> = there.iter().filter_map(identity).collect();
        if !std::mem::replace(&mut self.deletions.surveyed, true) {
            self.nodes_changed();
        }
        self.deletions.orphans.retain(|identity, _| there.contains(identity));
        self.look_at_orphans();
    }

    /// What is no orphan any more is looked at by its driver.
    pub(super) fn look_at_orphans(&mut self) {
        let had = self.has_orphaned_balancers();
        // Groups wait for load balancers.
        for of_balancers in [true, false] {
            let all = self.deletions.orphans.iter();
            let of_kind = all.filter(|(_, it)| matches!(it, Unit::LoadBalancer(..)) == of_balancers);
            let done: Vec<_> = of_kind
                .filter(|(_, it)| !self.is_orphan(it) || self.is_released(it))
                .map(|(identity, it)| (identity.clone(), it.clone()))
                .collect();
            for (identity, unit) in done {
                self.deletions.orphans.remove(&identity);
                self.dirt.insert(WorkItem::Unit(unit));
            }
        }
        if had != self.has_orphaned_balancers() {
            self.look_at_groups();
        }
    }

    fn look_at_groups(&mut self) {
        let groups = self.deletions.orphans.values().filter(|it| matches!(it, Unit::SecurityGroup { .. }));
        self.dirt.extend(groups.cloned().map(WorkItem::Unit));
        self.mark_holds();
    }

    pub(super) fn age_deletions(&mut self, now: Time) {
        self.deletions.now = now.0;
        self.deletions.seen.retain(|_, at| at.0.saturating_add(KEPT) > now.0);
        self.given_away.age(now);
        self.age_changes(now);
    }

    pub(super) fn orphan_problems(&self) -> impl Iterator<Item = Problem> + '_ {
        self.deletions.orphans.values().filter_map(|unit| {
            let (object, what) = match unit {
                Unit::LoadBalancer(_, key) => {
                    (key.owner()?.object(), "the cloud has a load balancer of a Service that is gone, and Seaway did not see its deletion")
                }
                Unit::SecurityGroup { class, .. } => (
                    Owner::Config(class.clone()).object(),
                    "the cloud has a security group that no Service uses, and Seaway did not see why",
                ),
                _ => return None,
            };
            let message = format!("orphan: {what}: Seaway leaves it as it is");
            Some(Problem::new(object, Reason::Orphan, message).fix(
                "Check whether it is used. To delete it: seaway openstack gc --delete. \
                 To delete all of them: cloud: {orphans: delete} in seaway.yaml.",
            ))
        })
    }
}
