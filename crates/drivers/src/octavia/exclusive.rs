//! Writes that must not meet: who is on a load balancer with others is changed one at a time.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, Instant},
};

use seaway_engine::Failure;
use seaway_model::Unit;
use seaway_openstack::{
    Error,
    neutron::FloatingIp,
    octavia::{LoadBalancer, LoadBalancerChange},
    resource::Edit,
};
use tokio::sync::Mutex;

use super::{
    Joined, LOOK, Octavia, STRIPES,
    shared::{self, marks},
    steps::{Observed, Step},
    write,
};

impl Octavia {
    /// Whose id falls to the same waits for it.
    fn turn(&self, id: &str) -> &Mutex<Option<Instant>> {
        let [first, ..] = &self.sharing;
        self.sharing.get(stripe(id)).unwrap_or(first)
    }

    /// Who is on a load balancer with others is changed one at a time.
    pub(super) async fn write(
        &self,
        joined: &Joined,
        unit: &Unit,
        step: &Step,
        observed: &mut Observed,
    ) -> Result<(), Error> {
        if let Step::Change(change) = step
            && !change.tags.is_left()
        {
            return Box::pin(self.mark(joined, change, observed)).await;
        }
        if let Step::Abandon(id) = step {
            self.abandon(unit, id, observed);
            return Ok(());
        }
        if let (Step::RemoveDuplicateLoadBalancer(id), false) = (step, self.cascades()) {
            return Box::pin(self.delete_double(joined, id, observed)).await;
        }
        let closes = observed.closes(step);
        if !closes && !matches!(step, Step::Join(_) | Step::Leave(..)) {
            return Box::pin(write::write(&joined.cloud, step, observed)).await;
        }
        let Unit::LoadBalancer(_, key) = unit else { return Ok(()) };
        let id = observed.balancer.as_ref().map(|it| it.it.id.as_str().to_owned()).unwrap_or_default();
        let mut came = self.turn(&id).lock().await;
        let now = joined.cloud.clock().now();
        let asked = self.past(unit, |past| past.asked);
        let is_known = asked
            .is_some_and(|it| now.saturating_duration_since(it) < LOOK && came.is_none_or(|came| came < it));
        match (step, &observed.balancer, marks(&joined.cluster, key)) {
            (_, Some(balancer), Some(marks)) if closes => {
                if !is_known {
                    let alone = shared::is_alone(&joined.cloud, &balancer.it, &marks).await;
                    alone.inspect_err(|_| self.closed.open(unit))?;
                }
                self.closed.close(unit, &balancer.it.id);
            }
            (Step::Join(_), Some(balancer), _) => self.closed.admits(&balancer.it.id)?,
            _ => {}
        }
        let done = match Box::pin(self.delete_alone(joined, step, observed)).await {
            Ok(false) => Box::pin(write::write(&joined.cloud, step, observed)).await,
            done => done.map(|_| ()),
        };
        if matches!(step, Step::Join(_)) {
            // Who asked before did not see it.
            *came = Some(joined.cloud.clock().now());
        }
        done
    }

    /// Adds tags to what there is now, and takes its own away: who came since they were read has written others.
    async fn mark(
        &self,
        joined: &Joined,
        change: &LoadBalancerChange,
        observed: &mut Observed,
    ) -> Result<(), Error> {
        let mut change = change.clone();
        let it = observed.balancer.as_ref().map(|it| it.it.clone());
        let id = it.as_ref().map(|it| it.id.as_str()).unwrap_or_default();
        let _turn = self.turn(id).lock().await;
        if let (Edit::To(tags), Some(it)) = (&mut change.tags, &it) {
            let now = joined.cloud.all::<LoadBalancer>().read::<LoadBalancer>(&it.id).await?;
            let gone: BTreeSet<String> = it.tags.difference(tags).cloned().collect();
            tags.retain(|tag| !it.tags.contains(tag));
            tags.extend(now.tags.into_iter().filter(|tag| !gone.contains(tag)));
        }
        write::write(&joined.cloud, &Step::Change(Box::new(change)), observed).await
    }

    /// One that was given up and could not be deleted is not found by a look: another leads there.
    pub(super) fn note_leftover(&self, unit: &Unit, step: &Step, now: Option<&FloatingIp>) {
        let Step::RemoveFloating(id) = step else { return };
        let is_left = now.is_some_and(|it| it.id != *id);
        self.past(unit, |past| match is_left {
            true => past.leftover = Some(id.clone()),
            false => _ = past.leftover.take_if(|it| it == id),
        });
    }
}

impl Observed {
    /// Something is under way; its owner hears of it if that takes too long.
    pub(super) fn waits(&self, step: &Step, after: Duration) -> Failure {
        let why = format!("{step}: {}", self.state());
        match &self.stuck {
            Some(stuck) => Failure::Retry { why, problems: vec![stuck.clone()], after: Some(after) },
            None => Failure::wait(why, after),
        }
    }
}

fn stripe(id: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish() as usize % STRIPES
}
