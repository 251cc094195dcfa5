//! What is there of one Unit: as it is known, as the lists of all tell it, or read by itself.

use seaway_engine::Failure;
use seaway_model::{Desired, LbKey, Unit};
use seaway_openstack::{
    Cloud, Error, Service,
    neutron::{FloatingIp, Status},
    octavia::{LoadBalancer, Provisioning},
    survey::Ability,
};

use super::{
    Joined, LOOK, LastObservation, Octavia,
    find::LoadBalancerSearch,
    is_paused,
    monitors::to_weigh,
    names::Cluster,
    poll::PolledStatus,
    read::{self, Read},
    service_backoffs::Requester,
    shared::{divide, marks},
    steps::Observed,
    survey::{FRESH, ListedLoadBalancer, Survey},
    tls,
};

impl Octavia {
    async fn read(
        &self,
        joined: &Joined,
        unit: &Unit,
        key: &LbKey,
        desired: &Desired,
    ) -> Result<Observed, Failure> {
        let sought = sought(key, desired);
        let Some(marks) = marks(&joined.cluster, key) else { return Ok(Observed::default()) };
        let read = read::read(&joined.cloud, &joined.cluster, key, &marks, sought.as_ref()).await;
        let failed = |error: Error| self.failed(&Requester::of(unit), &error);
        match (read.map_err(failed)?, key) {
            (Read::Seen(observed), _) => self.certified(joined, unit, key, desired, *observed).await,
            (Read::Refused(problem), LbKey::Of(owner)) => {
                if desired.is_absent() {
                    self.tell_what_deletion_waits_for(unit, &problem);
                }
                if let Desired::LoadBalancer(wish) = desired
                    && let Some(named) = wish.options.cloud.as_ref().and_then(|it| it.named.as_ref())
                {
                    self.busy_load_balancers.waits(unit, &named.id);
                }
                Err(Failure::User(vec![(owner.clone(), problem)]))
            }
            (Read::Refused(problem), _) => Err(Failure::retry(problem.line())),
        }
    }

    pub(super) async fn look(
        &self,
        joined: &Joined,
        unit: &Unit,
        key: &LbKey,
        desired: &Desired,
    ) -> Result<Observed, Failure> {
        let failed = |error: Error| self.failed(&Requester::of(unit), &error);
        let known = self.known().get(unit).cloned();
        let now = joined.cloud.clock().now();
        let Some(mut known) = known else {
            if is_unheld(desired) {
                return Err(Failure::wait(
                    "the Service does not have Seaway's finalizer yet".to_owned(),
                    LOOK,
                ));
            }
            self.ask(&Requester::of(unit))?;
            self.past(unit, |past| past.removed.clear());
            let observed = self.first_look(joined, unit, key, desired).await?;
            self.backoffs.is_back(Service::LoadBalancer);
            self.known().insert(unit.clone(), LastObservation::of(observed.clone(), now));
            return Ok(observed);
        };
        if desired.is_absent()
            && !known.observed.is_pending()
            && let Some(balancer) = &mut known.observed.balancer
        {
            // Who else is on it by now is not known here. Who comes after the question may be missing in its answer.
            let asked = joined.cloud.clock().now();
            let balancers = joined.cloud.all::<LoadBalancer>();
            let (now, floating) = tokio::join!(
                balancers.find::<LoadBalancer>(&balancer.it.id),
                became_active(&joined.cloud, known.observed.floating.as_ref()),
            );
            if let Some(now) = now.map_err(failed)? {
                let ours = joined.cluster.tag();
                if balancer.it.tags.contains(&ours) && !now.tags.contains(&ours) {
                    // Whoever took our tags off has it now. What is ours beside it is found as after a restart.
                    let observed = self.read(joined, unit, key, desired).await?;
                    self.known().insert(unit.clone(), LastObservation::of(observed.clone(), asked));
                    return Ok(observed);
                }
                balancer.it = now;
            }
            if floating.is_some() {
                known.observed.floating = floating;
            }
            self.past(unit, |past| past.asked = Some(asked));
        }
        // One that was given up may be there yet: its tags tell.
        let has_other = desired.is_absent() && self.past(unit, |past| past.abandoned.is_some());
        let alone = known.observed.is_alone() && !has_other;
        if known.observed.is_pending()
            && let Some(balancer) = &mut known.observed.balancer
        {
            self.ask(&Requester::of(unit))?;
            let found = joined.poll.of(&balancer.it, known.since).await.map_err(failed)?;
            self.backoffs.is_back(Service::LoadBalancer);
            match found {
                PolledStatus::Unknown => {}
                PolledStatus::There(told)
                    if self.is_going(&balancer.it.id, &told, joined.cloud.clock().now()) => {}
                PolledStatus::Gone
                    if alone && balancer.it.provisioning_status == Provisioning::PendingDelete =>
                {
                    known.observed = known.observed.gone();
                }
                // Somebody else took it, or its floating IP was left: what it had is looked for.
                PolledStatus::Gone => {
                    known.observed = self.read_leftovers(joined, unit, key, desired, known.observed).await?
                }
                PolledStatus::There(status) => {
                    balancer.it.provisioning_status = status.provisioning_status;
                    balancer.it.operating_status = status.operating_status;
                    balancer.it.updated_at = status.updated_at;
                }
            }
            known.until = joined.cloud.clock().now();
            self.known().insert(unit.clone(), known.clone());
        }
        let is_ready = known.observed.balancer.is_some() && !known.observed.is_pending();
        if is_ready
            && self.is_deleting(&known.observed)
            && self.is_queued(joined, &known.observed).await.map_err(failed)?.is_some()
        {
            // Nothing came back that did not go yet.
            return Ok(known.observed);
        }
        if is_ready && !desired.is_absent() && Box::pin(self.came_back(joined, unit)).await.map_err(failed)? {
            let observed = self.read(joined, unit, key, desired).await?;
            let now = joined.cloud.clock().now();
            self.known().insert(unit.clone(), LastObservation::of(observed.clone(), now));
            return Ok(observed);
        }
        Ok(known.observed)
    }

    /// From the lists of all, unless something was written since.
    async fn first_look(
        &self,
        joined: &Joined,
        unit: &Unit,
        key: &LbKey,
        desired: &Desired,
    ) -> Result<Observed, Failure> {
        let failed = |error: Error| self.failed(&Requester::of(unit), &error);
        let survey = self.surveyed.young(&joined.cloud, &joined.cluster).await?.map_err(failed)?;
        let unsure = self.past(unit, |past| past.unsure).is_some_and(|it| it >= survey.at)
            || self.surveyed.is_late(unit, &survey);
        self.note_replaced(&joined.cluster, unit, key, &survey);
        let published = sought(key, desired).map(|it| it.published().to_vec()).unwrap_or_default();
        match survey.of(&joined.cluster, key, &published) {
            ListedLoadBalancer::Whole(mut observed, _) if !unsure && !observed.is_pending() => {
                parted(&joined.cluster, key, &mut observed, false);
                read::seat(&joined.cloud, &mut observed).await.map_err(failed)?;
                observed.stray = survey.stray(&joined.cluster, key).cloned();
                self.certified(joined, unit, key, desired, *observed).await
            }
            ListedLoadBalancer::Absent if !unsure && self.is_news(joined, key, desired, &survey) => {
                let stray = survey.stray(&joined.cluster, key).cloned();
                let observed = Observed { stray, ..Observed::default() };
                self.certified(joined, unit, key, desired, observed).await
            }
            _ => self.read(joined, unit, key, desired).await,
        }
    }

    /// Nothing of it is there, as lists tell that are as good as a look.
    fn is_news(&self, joined: &Joined, key: &LbKey, desired: &Desired, survey: &Survey) -> bool {
        let age = joined.cloud.clock().now().saturating_duration_since(survey.at);
        let sought = sought(key, desired);
        let marks = marks(&joined.cluster, key);
        // Nobody but this process makes those, and it knows what it is unsure of.
        let is_second = matches!(key, LbKey::Second(..));
        let is_rare = match desired {
            Desired::LoadBalancer(wish) => self.abilities(wish, None).has(Ability::AdditionalVips),
            _ => true,
        };
        (age < FRESH || is_second && is_rare)
            && marks.is_some_and(|it| !survey.has_tagged(&[it.key(), it.guest()]))
            && sought.is_none_or(|it| it.is_new() && !survey.has_named(&it.names(&joined.cluster)))
    }

    /// What is left of one that is gone.
    async fn read_leftovers(
        &self,
        joined: &Joined,
        unit: &Unit,
        key: &LbKey,
        desired: &Desired,
        before: Observed,
    ) -> Result<Observed, Failure> {
        let now = self.read(joined, unit, key, desired).await?;
        let mut left = before.gone();
        if now.balancer.is_some() {
            return Ok(now);
        }
        if now.stray.is_some() {
            return Ok(Observed { place: left.place, ..now });
        }
        if let Some(stray) = left.stray.take() {
            let found = joined.cloud.all::<FloatingIp>().find::<FloatingIp>(&stray.id).await;
            left.stray = found
                .map_err(|error| self.failed(&Requester::of(unit), &error))?
                .filter(|it| it.port_id.is_none());
        }
        Ok(Observed { kept: now.kept, ..left })
    }

    /// No monitor is written while it is not known where it would ask members.
    pub(super) async fn weigh(
        &self,
        joined: &Joined,
        unit: &Unit,
        desired: &Desired,
        observed: &mut Observed,
    ) -> Result<(), Failure> {
        let Some(wanted) = self.wanted(unit, desired, observed).filter(|_| !is_paused(desired)) else {
            return Ok(());
        };
        let of = observed.balancer.as_ref().map(|it| to_weigh(&wanted, it)).unwrap_or_default();
        if of.is_empty() || observed.is_pending() {
            return Ok(());
        }
        let read = read::weigh(&joined.cloud, observed, |id, _| of.contains(id)).await;
        read.map_err(|error| self.failed(&Requester::of(unit), &error))?;
        self.known().entry(unit.clone()).and_modify(|it| it.observed.balancer = observed.balancer.clone());
        Ok(())
    }

    /// With the certificates that are kept for it. Who died while TLS was taken away may have left some: so it is looked for them
    /// until there are none, also where nothing shows any.
    async fn certified(
        &self,
        joined: &Joined,
        unit: &Unit,
        key: &LbKey,
        desired: &Desired,
        mut observed: Observed,
    ) -> Result<Observed, Failure> {
        let is_kept = tls::is_kept(desired, &observed);
        let begin = joined.cluster.certificates(key);
        // What goes and never ended TLS has none: so say the last lists, and what was written since.
        if desired.is_absent() && !is_kept && !joined.stored.may_have(&begin, joined.cloud.clock().now()) {
            return Ok(observed);
        }
        let is_kept = is_kept || desired.is_absent();
        let is_known = observed.balancer.is_none() || self.past(unit, |past| past.has_none_kept);
        if !is_kept && is_known {
            return Ok(observed);
        }
        match joined.stored.kept(&joined.cloud, &begin).await? {
            Ok(kept) => observed.kept = kept,
            Err(error) if is_kept => return Err(self.failed(&Requester::of(unit), &error)),
            // That can be told later.
            Err(_) => return Ok(observed),
        }
        let has_none = observed.kept.is_empty();
        self.past(unit, |past| past.has_none_kept = has_none);
        Ok(observed)
    }
}

/// A floating IP as it is now, if it was not ACTIVE yet when it was associated: Neutron makes it so later, and then its revision
/// is another, so that deleting it by the known one would be refused.
///
/// One that is associated with another port by now is not read again: the known revision refuses its deletion.
async fn became_active(cloud: &Cloud, known: Option<&FloatingIp>) -> Option<FloatingIp> {
    let known = known.filter(|it| it.port_id.is_some() && it.status != Status::Active)?;
    let now = cloud.all::<FloatingIp>().find::<FloatingIp>(&known.id).await.ok()??;
    (now.port_id == known.port_id).then_some(now)
}

/// Of one with several Services, what is this one's.
pub(super) fn parted(cluster: &Cluster, key: &LbKey, observed: &mut Observed, guest: bool) {
    if let (Some(marks), Some(balancer)) = (marks(cluster, key), &mut observed.balancer) {
        let all = std::mem::take(&mut balancer.branches);
        (balancer.branches, observed.shared) = divide(&marks, &balancer.it, all, guest, false);
    }
}

fn sought<'w>(key: &LbKey, desired: &'w Desired) -> Option<LoadBalancerSearch<'w>> {
    match (desired, key) {
        (Desired::LoadBalancer(wish), LbKey::Of(owner)) => Some(LoadBalancerSearch::of(owner.clone(), wish)),
        (Desired::Removed(former), LbKey::Of(owner)) => {
            Some(LoadBalancerSearch::of_former(owner.clone(), former))
        }
        _ => None,
    }
}

/// Its Service may vanish without a word.
fn is_unheld(desired: &Desired) -> bool {
    let Desired::LoadBalancer(wish) = desired else { return false };
    wish.options.cloud.as_ref().is_some_and(|it| it.unheld)
}
