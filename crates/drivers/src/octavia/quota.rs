//! Whether the quota of the project allows one more load balancer. It is checked before anything of it is made.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use seaway_engine::Failure;
use seaway_model::{Owner, Problem, Reason, Unit};
use seaway_openstack::{
    Cloud,
    octavia::{NewLoadBalancer, NewPool},
    quota::Limits,
    resource::Edit,
};

use super::{
    Joined, Octavia,
    list_request_lock::{ListRequestLock, ListRequestTimeout},
    steps::{Observed, Step},
    survey::{FRESH, ObjectCounts},
    wanted::Wanted,
};

/// Limits change seldom; what is used is counted from the lists and what was made since.
#[derive(Default)]
pub(super) struct Quotas {
    reading: ListRequestLock,
    known: Mutex<QuotaCache>,
}

#[derive(Default)]
struct QuotaCache {
    known: Option<QuotaReading>,
    /// What was made in all.
    taken: CreatedCounts,
}

#[derive(Clone, Copy, Default)]
struct CreatedCounts {
    ports: u64,
    floating: u64,
}

#[derive(Clone)]
struct QuotaReading {
    at: Instant,
    limits: Limits,
    /// Neutron tells both: how many more there may be.
    ports: Option<u64>,
    floating: Option<u64>,
}

/// So old they may be.
const YOUNG: Duration = Duration::from_secs(60);

/// One kind that is short.
struct QuotaShortage {
    what: &'static str,
    limit: u64,
    used: u64,
    needs: u64,
    option: &'static str,
}

impl Octavia {
    /// Refuses what would be refused half-way.
    pub(super) async fn check_quota(
        &self,
        joined: &Joined,
        unit: &Unit,
        owner: &Owner,
        wanted: &Wanted,
        observed: &Observed,
    ) -> Result<(), Failure> {
        let Some(project) = joined.cloud.session().project.as_ref().map(|it| it.id.clone()) else {
            return Ok(());
        };
        let needs = ObjectCounts::by(&wanted.whole());
        let address =
            wanted.floating.as_ref().is_some_and(|it| it.requested.is_none()) && observed.stray.is_none();
        // Before somebody is refused, what is used is counted anew, unless that was just done.
        for age in [YOUNG, FRESH] {
            // Without the right to read quotas nothing is known to be short: the request itself says it.
            let known = self.quotas.read(&joined.cloud, &project, age).await?;
            let within = if age == FRESH { FRESH } else { super::survey::YOUNG };
            let used = self.surveyed.used(&joined.cloud, &joined.cluster, within).await?;
            let Ok(used) = used else { return Ok(()) };
            let short = known.short(used, needs, address);
            if short.is_empty() {
                return Ok(());
            }
            if age == FRESH {
                let what = short.iter().map(|it| it.what).collect::<Vec<_>>().join(", ");
                self.refusals.note_quota_shortage(&what, unit, joined.cloud.clock().now());
                let problem = |it: QuotaShortage| (owner.clone(), it.problem(owner, &project));
                return Err(Failure::User(short.into_iter().map(problem).collect()));
            }
        }
        Ok(())
    }
}

impl Quotas {
    /// Counted until Neutron is asked again.
    pub(super) fn took(&self, step: &Step) {
        let mut kept = self.kept();
        let QuotaCache { known, taken } = &mut *kept;
        let mut known = known.as_mut();
        let (left, taken) = match step {
            Step::Create(_) => (known.as_mut().map(|it| &mut it.ports), &mut taken.ports),
            Step::AddFloating(_) => (known.as_mut().map(|it| &mut it.floating), &mut taken.floating),
            _ => return,
        };
        *taken = taken.saturating_add(1);
        if let Some(left) = left {
            *left = left.map(|it| it.saturating_sub(1));
        }
    }

    async fn read(
        &self,
        cloud: &Cloud,
        project: &str,
        age: Duration,
    ) -> Result<QuotaReading, ListRequestTimeout> {
        if let Some(it) = self.within(cloud.clock().now(), age) {
            return Ok(it);
        }
        let _turn = self.reading.take().await?;
        let now = cloud.clock().now();
        if let Some(it) = self.within(now, age) {
            return Ok(it);
        }
        let before = self.kept().taken;
        let (lbaas, network) = (cloud.load_balancer_quotas(project), cloud.network_quotas(project));
        let (limits, usage) = tokio::join!(lbaas.read(), network.details());
        let usage = usage.unwrap_or_default();
        let mut kept = self.kept();
        // The answer may be older than what was made while it was under way.
        let left = |name: &str, since: u64| {
            let it = usage.get(name)?;
            let used = it.used.saturating_add(it.reserved);
            Some(u64::try_from(it.limit).ok()?.saturating_sub(used).saturating_sub(since))
        };
        let it = QuotaReading {
            at: now,
            limits: limits.unwrap_or_default(),
            ports: left("port", kept.taken.ports.saturating_sub(before.ports)),
            floating: left("floatingip", kept.taken.floating.saturating_sub(before.floating)),
        };
        kept.known = Some(it.clone());
        Ok(it)
    }

    fn within(&self, now: Instant, age: Duration) -> Option<QuotaReading> {
        self.kept().known.clone().filter(|it| now.saturating_duration_since(it.at) < age)
    }

    fn kept(&self) -> MutexGuard<'_, QuotaCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuotaReading {
    fn short(&self, used: ObjectCounts, needs: ObjectCounts, address: bool) -> Vec<QuotaShortage> {
        // Each has been written in two ways.
        let kinds = [
            (
                "load balancers",
                ["load_balancer", "loadbalancer"],
                used.balancers,
                needs.balancers,
                "loadbalancer",
            ),
            ("listeners", ["listener", "listener"], used.listeners, needs.listeners, "listener"),
            ("pools", ["pool", "pool"], used.pools, needs.pools, "pool"),
            ("members", ["member", "member"], used.members, needs.members, "member"),
            (
                "health monitors",
                ["health_monitor", "healthmonitor"],
                used.monitors,
                needs.monitors,
                "healthmonitor",
            ),
        ];
        let mut short = Vec::new();
        for (what, names, used, needs, option) in kinds {
            let limit =
                names.iter().find_map(|it| self.limits.get(*it)).and_then(|it| u64::try_from(*it).ok());
            let (used, needs) = (used as u64, needs as u64);
            if let Some(limit) = limit.filter(|limit| used.saturating_add(needs) > *limit) {
                short.push(QuotaShortage { what, limit, used, needs, option });
            }
        }
        let others = [
            ("ports", self.ports, "--ports", 1),
            ("floating IPs", self.floating, "--floating-ips", u64::from(address)),
        ];
        for (what, left, option, needs) in others {
            if let Some(left) = left.filter(|left| needs > *left) {
                short.push(QuotaShortage { what, limit: left, used: 0, needs, option });
            }
        }
        short
    }
}

impl QuotaShortage {
    fn problem(&self, owner: &Owner, project: &str) -> Problem {
        let QuotaShortage { what, limit, used, needs, option } = self;
        let network = option.starts_with("--");
        let message = match network {
            true => {
                format!(
                    "the quota of the project for {what} is used up; this needs {needs}, and nothing was \
                     created"
                )
            }
            false => format!(
                "the project may have {limit} {what}, and has {used}; this needs {needs} more, and nothing was created"
            ),
        };
        let more = match network {
            true => format!("openstack quota set {option} N {project}"),
            false => format!(
                "openstack loadbalancer quota set --{option} {} {project}",
                used.saturating_add(*needs)
            ),
        };
        let fix = format!(
            "Delete what is not used any more (seaway openstack gc lists it), or ask the cloud's operator \
             for more: {more}. Seaway tries again by itself."
        );
        Problem::new(owner.object(), Reason::QuotaExceeded, message).fix(fix)
    }
}

impl ObjectCounts {
    /// What one takes that is made with all below it.
    pub(super) fn by(new: &NewLoadBalancer) -> ObjectCounts {
        let listeners = given(&new.listeners).map(Vec::as_slice).unwrap_or_default();
        let pools: Vec<&NewPool> = listeners.iter().filter_map(|it| given(&it.default_pool)).collect();
        ObjectCounts {
            balancers: 1,
            listeners: listeners.len(),
            pools: pools.len(),
            members: pools.iter().filter_map(|it| given(&it.members)).map(Vec::len).sum(),
            monitors: pools.iter().filter(|it| given(&it.healthmonitor).is_some()).count(),
        }
    }
}

fn given<T>(it: &Edit<T>) -> Option<&T> {
    match it {
        Edit::To(it) => Some(it),
        Edit::Leave => None,
    }
}
