//! Everything of this cluster in a cloud, from one list for each kind: at a start, and at each audit.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use seaway_model::{LbKey, Unit};
use seaway_openstack::{
    Cloud, Error,
    neutron::{FloatingIp, Port},
    octavia::{HealthMonitor, Listener, LoadBalancer, Pool, Provisioning},
    resource::{Id, Query},
    survey::list_decodable,
};

use super::{
    find::{chosen, cluster_of, stays},
    list_request_lock::{ListRequestLock, ListRequestTimeout},
    names::{Cluster, KEY},
    pool_replacement::{by_port, unused_pools},
    read::is_pending,
    shared::{guests, was_left},
    steps::{Branch, Observed, ObservedLoadBalancer, PoolBranch},
};

/// What the lists said. Members have none: a status tree tells them, for each load balancer by itself.
pub(super) struct Survey {
    /// When the first list was asked for: what was written later may be missing.
    pub(super) at: Instant,
    balancers: HashMap<Id<LoadBalancer>, LoadBalancer>,
    /// Of this cluster, the oldest first.
    ours: Vec<Id<LoadBalancer>>,
    /// The oldest first.
    by_key: HashMap<String, Vec<Id<LoadBalancer>>>,
    listeners: HashMap<Id<LoadBalancer>, Vec<Listener>>,
    pools: HashMap<Id<Pool>, Pool>,
    monitors: HashMap<Id<HealthMonitor>, HealthMonitor>,
    attached: HashMap<Id<Port>, FloatingIp>,
    floating: Vec<FloatingIp>,
    /// Ours that lead nowhere, by what their descriptions end with.
    stray: HashMap<String, FloatingIp>,
    pub(super) used: ObjectCounts,
}

/// How many of each there are in the project, whoever made them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectCounts {
    pub(super) balancers: usize,
    pub(super) listeners: usize,
    pub(super) pools: usize,
    pub(super) members: usize,
    pub(super) monitors: usize,
}

impl ObjectCounts {
    fn and(self, more: ObjectCounts) -> ObjectCounts {
        ObjectCounts {
            balancers: self.balancers.saturating_add(more.balancers),
            listeners: self.listeners.saturating_add(more.listeners),
            pools: self.pools.saturating_add(more.pools),
            members: self.members.saturating_add(more.members),
            monitors: self.monitors.saturating_add(more.monitors),
        }
    }
}

/// One load balancer as the lists tell it.
pub(super) enum ListedLoadBalancer {
    /// Without members; how many each pool has.
    Whole(Box<Observed>, BTreeMap<Id<Pool>, usize>),
    /// The lists contradict each other: it was being changed. One look at it alone tells.
    Inconsistent,
    Absent,
}

impl Survey {
    pub(super) async fn read(cloud: &Cloud, cluster: &Cluster) -> Result<Survey, Error> {
        let at = cloud.clock().now();
        let project = cloud.session().project.as_ref().map(|it| it.id.clone());
        // An operator sees everybody's.
        let here = || match &project {
            Some(id) => Query::all().with("project_id", id),
            None => Query::all(),
        };
        let (balancers, listeners, pools, monitors, floating) = tokio::try_join!(
            list_decodable::<LoadBalancer>(cloud, here()),
            list_decodable::<Listener>(cloud, here()),
            list_decodable::<Pool>(cloud, here()),
            list_decodable::<HealthMonitor>(cloud, here()),
            list_decodable::<FloatingIp>(cloud, here()),
        )?;
        let used = ObjectCounts {
            balancers: balancers.len(),
            listeners: listeners.len(),
            pools: pools.len(),
            members: pools.iter().map(|it| it.members.len()).sum(),
            monitors: monitors.len(),
        };
        let mut survey = Survey {
            at,
            balancers: HashMap::new(),
            ours: Vec::new(),
            by_key: HashMap::new(),
            listeners: HashMap::new(),
            pools: pools.into_iter().map(|it| (it.id.clone(), it)).collect(),
            monitors: monitors.into_iter().map(|it| (it.id.clone(), it)).collect(),
            attached: HashMap::new(),
            floating: Vec::new(),
            stray: HashMap::new(),
            used,
        };
        survey.sort_balancers(cluster, balancers);
        for listener in listeners {
            for at in &listener.loadbalancers {
                survey.listeners.entry(at.id.clone()).or_default().push(listener.clone());
            }
        }
        survey.sort_floating(cluster, floating);
        Ok(survey)
    }

    fn sort_balancers(&mut self, cluster: &Cluster, mut balancers: Vec<LoadBalancer>) {
        let tag = cluster.tag();
        balancers.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
        for it in balancers {
            if it.tags.contains(&tag) && !was_left(&it) {
                self.ours.push(it.id.clone());
                for key in it.tags.iter().filter(|it| it.starts_with(KEY)) {
                    self.by_key.entry(key.clone()).or_default().push(it.id.clone());
                }
            }
            self.balancers.insert(it.id.clone(), it);
        }
    }

    fn sort_floating(&mut self, cluster: &Cluster, floating: Vec<FloatingIp>) {
        for it in floating {
            match &it.port_id {
                Some(port) => {
                    self.attached.insert(port.clone(), it.clone());
                }
                None => {
                    if let Some(whose) = cluster.whose(&it.description) {
                        self.stray.insert(whose.to_owned(), it.clone());
                    }
                }
            }
            self.floating.push(it);
        }
    }

    /// All that Services of this cluster have there: the first of each load balancer, and guests.
    pub(super) fn keys(&self, cluster: &Cluster) -> Vec<LbKey> {
        let firsts = self.ours.iter().filter_map(|id| self.balancers.get(id));
        let firsts = firsts.filter_map(|it| cluster.key_of(&it.tags, &it.description));
        firsts.chain(self.balancers.values().flat_map(|it| guests(cluster, it))).collect()
    }

    pub(super) fn has_tagged(&self, tags: &[&str]) -> bool {
        self.balancers.values().any(|it| tags.iter().any(|tag| it.tags.contains(*tag)))
    }

    /// Of several, the one that `chosen` keeps.
    pub(super) fn of(&self, cluster: &Cluster, key: &LbKey, published: &[IpAddr]) -> ListedLoadBalancer {
        match chosen(self.with_key(cluster, key), published) {
            Some((it, doubles)) => match self.balancer(&it.id) {
                ListedLoadBalancer::Whole(observed, sizes) => {
                    ListedLoadBalancer::Whole(Box::new(Observed { doubles, ..*observed }), sizes)
                }
                other => other,
            },
            None => ListedLoadBalancer::Absent,
        }
    }

    /// Those that were made as the one that is known, and that nobody uses.
    pub(super) fn doubles(
        &self,
        cluster: &Cluster,
        key: &LbKey,
        known: &Id<LoadBalancer>,
    ) -> Vec<Id<LoadBalancer>> {
        let (known, others): (Vec<_>, Vec<_>) =
            self.with_key(cluster, key).into_iter().partition(|(it, _)| it.id == *known);
        // One that is being made or changed is looked at when that is done.
        let others = others
            .into_iter()
            .filter(|(it, _)| matches!(it.provisioning_status, Provisioning::Active | Provisioning::Error));
        let all = known.iter().cloned().chain(others).collect();
        let serves: Vec<IpAddr> = known.iter().filter_map(|(it, _)| it.vip_address).collect();
        if known.is_empty() { Vec::new() } else { chosen(all, &serves).map(|it| it.1).unwrap_or_default() }
    }

    fn with_key(&self, cluster: &Cluster, key: &LbKey) -> Vec<(LoadBalancer, Option<IpAddr>)> {
        let all = self.by_key.get(&cluster.tag_of(key)).into_iter().flatten();
        let all = all.filter_map(|id| self.balancers.get(id));
        let floating = |it: &LoadBalancer| {
            it.vip_port_id.as_ref().and_then(|port| self.attached.get(port)?.floating_ip_address)
        };
        all.map(|it| (it.clone(), floating(it))).collect()
    }

    /// By its id, whatever tags are left on it.
    pub(super) fn balancer(&self, id: &Id<LoadBalancer>) -> ListedLoadBalancer {
        let Some(it) = self.balancers.get(id) else { return ListedLoadBalancer::Absent };
        let no_listeners = Vec::new();
        let listeners = self.listeners.get(id).unwrap_or(&no_listeners);
        let is_whole = it.listeners.len() == listeners.len()
            && it.listeners.iter().all(|one| listeners.iter().any(|it| it.id == one.id))
            && it.pools.iter().all(|one| self.pools.contains_key(&one.id));
        if !is_whole {
            return ListedLoadBalancer::Inconsistent;
        }
        let mut sizes = BTreeMap::new();
        let mut branches = Vec::new();
        for listener in listeners {
            let mut branch = None;
            if let Some(pool) = listener.default_pool_id.as_ref() {
                let Some(pool) = self.pools.get(pool) else { return ListedLoadBalancer::Inconsistent };
                let monitor = pool.healthmonitor_id.as_ref().map(|id| self.monitors.get(id).cloned());
                let Some(monitor) = monitor.map_or(Some(None), |it| it.map(Some)) else {
                    return ListedLoadBalancer::Inconsistent;
                };
                sizes.insert(pool.id.clone(), pool.members.len());
                branch = Some(PoolBranch { pool: pool.clone(), monitor, members: BTreeMap::new() });
            }
            branches.push(Branch { listener: listener.clone(), pool: branch });
        }
        if it.provisioning_status == Provisioning::Active && branches.iter().any(is_pending) {
            return ListedLoadBalancer::Inconsistent;
        }
        let floating = it.vip_port_id.as_ref().and_then(|port| self.attached.get(port)).cloned();
        let below = it.pools.iter().filter_map(|one| self.pools.get(&one.id));
        let unused_pools = unused_pools(it, below);
        let balancer = Some(ObservedLoadBalancer::new(it.clone(), by_port(branches), unused_pools));
        ListedLoadBalancer::Whole(Box::new(Observed { balancer, floating, ..Observed::default() }), sizes)
    }

    /// One that was there before us, and may be a Service's.
    pub(super) fn has_named(&self, names: &[String]) -> bool {
        self.balancers.values().any(|it| names.contains(&it.name) && cluster_of(it).is_none() && stays(it))
    }

    pub(super) fn floating(&self, id: &Id<FloatingIp>) -> Option<&FloatingIp> {
        self.floating.iter().find(|it| it.id == *id)
    }

    /// One that was made for this key, and whose place another took.
    pub(super) fn replaced(&self, cluster: &Cluster, key: &LbKey) -> Option<&FloatingIp> {
        self.stray.get(&cluster.mark_of_replaced(key))
    }

    /// One that was made for this key and leads nowhere.
    pub(super) fn stray(&self, cluster: &Cluster, key: &LbKey) -> Option<&FloatingIp> {
        self.stray.get(&cluster.mark(key))
    }
}

/// The last survey, which many wait for at a start.
#[derive(Default)]
pub(super) struct SurveyCache {
    reading: ListRequestLock,
    last: std::sync::Mutex<Last>,
    /// Counts what made all before it worthless.
    age: AtomicU64,
    /// What went since, and may be wanted anew.
    went: std::sync::Mutex<HashMap<Unit, Instant>>,
}

#[derive(Default)]
struct Last {
    age: u64,
    survey: Option<Arc<Survey>>,
    /// What was made since, and when.
    made: Vec<(Instant, ObjectCounts)>,
    failed: Option<(Instant, Error)>,
}

/// Whoever looks for the first time takes what is this young.
pub(super) const YOUNG: Duration = Duration::from_secs(300);
/// Then it is as good as a look at one by itself.
pub(super) const FRESH: Duration = Duration::from_secs(10);
/// A thousand who wait ask once.
const FAILED: Duration = Duration::from_secs(2);

/// What the lists said, or that they could not be read.
type Answer<T> = Result<T, Error>;

impl SurveyCache {
    pub(super) fn went(&self, unit: &Unit, now: Instant) {
        let mut went = self.went.lock().unwrap_or_else(PoisonError::into_inner);
        went.insert(unit.clone(), now);
    }

    /// Whether the lists tell of it as it was before it went.
    pub(super) fn is_late(&self, unit: &Unit, survey: &Survey) -> bool {
        let mut went = self.went.lock().unwrap_or_else(PoisonError::into_inner);
        went.retain(|_, at| *at >= survey.at);
        went.contains_key(unit)
    }

    pub(super) fn forget(&self) {
        self.age.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn keep(&self, survey: Arc<Survey>) {
        let age = self.age.load(Ordering::Relaxed);
        self.last().replace(age, survey);
    }

    /// Counted as it is made, until it is in the lists.
    pub(super) fn made(&self, now: Instant, new: ObjectCounts) {
        self.last().made.push((now, new));
    }

    pub(super) async fn used(
        &self,
        cloud: &Cloud,
        cluster: &Cluster,
        age: Duration,
    ) -> Result<Answer<ObjectCounts>, ListRequestTimeout> {
        let survey = match self.within(cloud, cluster, age).await? {
            Ok(survey) => survey,
            Err(error) => return Ok(Err(error)),
        };
        let last = self.last();
        let since = last.made.iter().filter(|(at, _)| *at >= survey.at);
        Ok(Ok(since.fold(survey.used, |used, (_, new)| used.and(*new))))
    }

    pub(super) async fn young(
        &self,
        cloud: &Cloud,
        cluster: &Cluster,
    ) -> Result<Answer<Arc<Survey>>, ListRequestTimeout> {
        self.within(cloud, cluster, YOUNG).await
    }

    async fn within(
        &self,
        cloud: &Cloud,
        cluster: &Cluster,
        time: Duration,
    ) -> Result<Answer<Arc<Survey>>, ListRequestTimeout> {
        if let Some(answer) = self.answer(cloud.clock().now(), time) {
            return Ok(answer);
        }
        let _turn = self.reading.take().await?;
        let now = cloud.clock().now();
        if let Some(answer) = self.answer(now, time) {
            return Ok(answer);
        }
        let age = self.age.load(Ordering::Relaxed);
        Ok(match Survey::read(cloud, cluster).await {
            Ok(survey) => {
                let survey = Arc::new(survey);
                self.last().replace(age, survey.clone());
                Ok(survey)
            }
            Err(error) => {
                let mut last = self.last();
                (last.age, last.survey, last.failed) = (age, None, Some((now, error.clone())));
                Err(error)
            }
        })
    }

    /// What is known without asking.
    fn answer(&self, now: Instant, time: Duration) -> Option<Answer<Arc<Survey>>> {
        let within = |at: Instant, time| now.saturating_duration_since(at) < time;
        let last = self.last();
        if last.age != self.age.load(Ordering::Relaxed) {
            return None;
        }
        if let Some(survey) = last.survey.as_ref().filter(|it| within(it.at, time)) {
            return Some(Ok(survey.clone()));
        }
        let failed = last.failed.as_ref().filter(|(at, _)| within(*at, FAILED));
        failed.map(|(_, error)| Err(error.clone()))
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Last {
    /// An audit may have read later than who asked before it: the newer lists stay.
    fn replace(&mut self, age: u64, survey: Arc<Survey>) {
        if self.age == age && self.survey.as_ref().is_some_and(|it| it.at > survey.at) {
            return;
        }
        self.made.retain(|(at, _)| *at >= survey.at);
        *self = Last { age, survey: Some(survey), made: std::mem::take(&mut self.made), failed: None };
    }
}
