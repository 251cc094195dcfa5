//! What a walk goes through: an API server that keeps Services and what controllers record, and controllers with the real
//! engine, the real plan and the real driver.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use seaway_drivers::octavia::{
    Audits, Heartbeats, InCloud, Joining, Octavia, groups::Groups, sole::SoleWriter,
};
use seaway_engine::{
    Context, Counted, DeletionLimit, Driver, Drivers, Effect, Effects, Engine, Failure, Handle,
    HeartbeatRecord, Owners, OwnersFuture, Report, Settings as Loop, deletion_limit,
};
use seaway_model::{
    Change, Config, Deletion, Desired, Fact, Kind, Name, ObjectRef, Owner, Time, Unit,
    fact::{FactRef, FinalizerOwner, Node, Service},
};
use seaway_openstack::{Clock, Cloud, Credentials, Fence, Settings, Source, clock::Pause};
use seaway_plan::{Roles, World};
use seaway_testkit::facts;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::scene::cluster;

pub(super) const CLASS: &str = "seaway.dev/octavia";
const CLOUD: &str = "openstack";
const AUDIT: Duration = Duration::from_secs(300);
const HOUR: Duration = Duration::from_secs(3_600);
const WAKE: Duration = Duration::from_secs(2);
/// So many heartbeats go by until a backup is a cluster.
const BACKUP: usize = 2;
static TERMS: AtomicU64 = AtomicU64::new(0);

/// The paused time of tokio, for the client and the driver.
#[derive(Clone, Copy)]
struct Paused(SystemTime, Instant);

impl Paused {
    fn tell(self) -> Change {
        let since = self.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Change::Time(Time(u64::try_from(since.as_millis()).unwrap_or_default()))
    }
}

impl Clock for Paused {
    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }

    fn wall(&self) -> SystemTime {
        self.0 + self.1.elapsed()
    }

    fn sleep(&self, time: Duration) -> Pause<'_> {
        Box::pin(sleep(time))
    }
}

/// Services, Nodes, and the ConfigMap that outlives controllers.
#[derive(Clone, Default)]
pub(super) struct ApiServer(Arc<Mutex<StoredObjects>>);

#[derive(Default)]
struct StoredObjects {
    services: BTreeMap<Name, Service>,
    nodes: BTreeMap<Name, Node>,
    deletions: Vec<Deletion>,
    /// When each was counted.
    counted: BTreeMap<String, Instant>,
    heartbeats: Vec<String>,
    /// Services of which an operator approved deletions.
    approved: BTreeSet<Name>,
    watches: Vec<mpsc::UnboundedSender<Change>>,
}

impl ApiServer {
    fn kept(&self) -> MutexGuard<'_, StoredObjects> {
        self.0.lock().unwrap()
    }

    /// As it is now, and nothing of what follows: a cluster that was restored from a backup, which took a while.
    pub(super) fn copy(&self, keep: impl Fn(&str) -> bool) -> ApiServer {
        let copy = self.fresh_copy(keep);
        let mut kept = copy.kept();
        let before = kept.heartbeats.len().saturating_sub(BACKUP);
        kept.heartbeats.truncate(before);
        drop(kept);
        copy
    }

    /// Within less than a heartbeat.
    pub(super) fn fresh_copy(&self, keep: impl Fn(&str) -> bool) -> ApiServer {
        let kept = self.kept();
        let services = kept.services.iter().filter(|(name, _)| keep(name));
        let services = services.map(|(name, it)| (name.clone(), it.clone())).collect();
        let heartbeats = kept.heartbeats.clone();
        let copy =
            StoredObjects { services, nodes: kept.nodes.clone(), heartbeats, ..StoredObjects::default() };
        ApiServer(Arc::new(Mutex::new(copy)))
    }

    pub(super) fn services(&self) -> Vec<Service> {
        self.kept().services.values().cloned().collect()
    }

    pub(super) fn service(&self, name: &str) -> Option<Service> {
        self.kept().services.get(name).cloned()
    }

    pub(super) fn nodes(&self) -> Vec<Node> {
        self.kept().nodes.values().cloned().collect()
    }

    pub(super) fn write(&self, service: Service) {
        let mut kept = self.kept();
        let change = facts::put(&service);
        kept.services.insert(service.meta.name.clone(), service);
        kept.say(change);
    }

    /// As a user deletes it: who holds it keeps it for a while.
    pub(super) fn delete(&self, name: &str) {
        let Some(service) = self.service(name) else { return };
        match service.held {
            FinalizerOwner::No => self.gone(name),
            _ => self.write(Service { leaving: true, ..service }),
        }
    }

    fn gone(&self, name: &str) {
        let mut kept = self.kept();
        if let Some(service) = kept.services.remove(name) {
            kept.say(Change::Gone(FactRef::Object(facts::owner(&service).object())));
        }
    }

    pub(super) fn set_nodes(&self, nodes: Vec<Node>) {
        let mut kept = self.kept();
        let now: BTreeMap<Name, Node> = nodes.into_iter().map(|it| (it.meta.name.clone(), it)).collect();
        for name in kept.nodes.keys().filter(|it| !now.contains_key(*it)).cloned().collect::<Vec<_>>() {
            kept.say(Change::Gone(FactRef::Object(ObjectRef::new(Kind::Node, "", name))));
        }
        now.values().for_each(|it| kept.say(Change::Put(Fact::Node(Arc::new(it.clone())))));
        kept.nodes = now;
    }

    pub(super) fn approve(&self, name: &str) {
        self.kept().approved.insert(name.into());
    }

    /// All there is, and then all that changes.
    fn watch(&self) -> (Vec<Change>, mpsc::UnboundedReceiver<Change>) {
        let (tell, told) = mpsc::unbounded_channel();
        let mut kept = self.kept();
        kept.watches.push(tell);
        let nodes = kept.nodes.values().map(|it| Change::Put(Fact::Node(Arc::new(it.clone()))));
        let services = kept.services.values().map(facts::put);
        (nodes.chain(services).chain(facts::synced()).collect(), told)
    }

    /// What a controller writes at a Service, if it is still the one that it means.
    fn change(&self, owner: &Owner, change: impl FnOnce(&mut Service)) {
        let Some(mut service) = self.of(owner) else { return };
        change(&mut service);
        match service.leaving && service.held == FinalizerOwner::No {
            true => self.gone(&service.meta.name),
            false => self.write(service),
        }
    }

    fn of(&self, owner: &Owner) -> Option<Service> {
        let Owner::Object { object, uid } = owner else { return None };
        self.service(&object.name).filter(|it| it.meta.uid == *uid)
    }
}

impl StoredObjects {
    fn say(&mut self, change: Change) {
        self.watches.retain(|it| it.send(change.clone()).is_ok());
    }
}

impl Owners for ApiServer {
    fn service<'a>(&'a self, owner: &'a Owner) -> OwnersFuture<'a, Option<Arc<Service>>> {
        Box::pin(std::future::ready(Ok(self.of(owner).map(Arc::new))))
    }

    fn services(&self) -> OwnersFuture<'_, Vec<Arc<Service>>> {
        Box::pin(std::future::ready(Ok(ApiServer::services(self).into_iter().map(Arc::new).collect())))
    }
}

impl DeletionLimit for ApiServer {
    fn count<'a>(&'a self, what: &'a str, _: &'a ObjectRef, balancers: usize) -> OwnersFuture<'a, Counted> {
        let all = &mut self.kept().counted;
        all.retain(|_, at| at.elapsed() < HOUR);
        let limit = deletion_limit(balancers, all.len());
        let is_within = all.contains_key(what) || all.len() < limit;
        if is_within {
            all.entry(what.to_owned()).or_insert_with(Instant::now);
        }
        Box::pin(std::future::ready(Ok(if is_within { Counted::Within } else { Counted::Beyond { limit } })))
    }

    fn approved<'a>(&'a self, object: &'a ObjectRef) -> OwnersFuture<'a, bool> {
        Box::pin(std::future::ready(Ok(self.kept().approved.contains(&object.name))))
    }
}

impl HeartbeatRecord for ApiServer {
    fn heartbeats(&self) -> OwnersFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(Ok(self.kept().heartbeats.clone())))
    }

    fn record(&self, heartbeats: Vec<String>) -> OwnersFuture<'_, ()> {
        self.kept().heartbeats = heartbeats;
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Writes finalizers and addresses of Services, as the drivers of a cluster do.
struct Writes {
    api: ApiServer,
}

/// What to write at a Service.
struct ServiceWrite(Unit, Desired);

impl fmt::Display for ServiceWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Effects for ServiceWrite {
    fn effect(&self) -> Effect {
        match &self.1 {
            Desired::Absent => Effect::DELETES,
            _ => Effect::CHANGES,
        }
    }
}

impl Driver for Writes {
    type Observed = Option<Unit>;
    type Step = ServiceWrite;

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::Finalizer(_) | Unit::Status(_) | Unit::Address(_))
    }

    async fn observe(&self, _: &Context, unit: &Unit, _: &Desired) -> Result<Option<Unit>, Failure> {
        Ok(Some(unit.clone()))
    }

    fn steps(&self, desired: &Desired, unit: &Option<Unit>) -> Vec<ServiceWrite> {
        unit.iter().map(|it| ServiceWrite(it.clone(), desired.clone())).collect()
    }

    async fn apply(
        &self,
        context: &Context,
        _: &Unit,
        step: &ServiceWrite,
        _: &mut Option<Unit>,
    ) -> Result<(), Failure> {
        context.require_lead()?;
        match step {
            ServiceWrite(Unit::Finalizer(owner), Desired::Finalizer) => {
                self.write(owner, |it| it.held = FinalizerOwner::ByUs)
            }
            ServiceWrite(Unit::Finalizer(owner), Desired::Absent) => {
                self.write(owner, |it| it.held = FinalizerOwner::No)
            }
            ServiceWrite(Unit::Status(owner), Desired::Status(status)) => {
                self.write(owner, |it| it.published.clone_from(&status.addresses));
            }
            _ => {}
        }
        Ok(())
    }

    fn conclude(&self, _: &Unit, _: &Desired, _: &Option<Unit>) -> Report {
        Report::default()
    }
}

impl Writes {
    fn write(&self, owner: &Owner, change: impl FnOnce(&mut Service)) {
        let Some(before) = self.api.of(owner) else { return };
        let mut after = before.clone();
        change(&mut after);
        if after != before {
            self.api.change(owner, |it| *it = after);
        }
    }
}

/// A controller that runs until it is dropped: then it was killed.
pub(super) struct Controller {
    pub(super) handle: Handle,
    leads: Arc<AtomicBool>,
    handed_over: Arc<AtomicBool>,
    pub(super) sole: Arc<SoleWriter>,
    _stop: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Controller {
    /// `auth`: where the cloud is.
    pub(super) fn start(auth: &str, api: &ApiServer, config: &Config, leads: bool) -> Controller {
        let leads = Arc::new(AtomicBool::new(leads));
        let may = {
            let leads = leads.clone();
            move || leads.load(Ordering::Relaxed)
        };
        let clock = Paused(SystemTime::now(), Instant::now());
        let sole = Arc::new(SoleWriter::default());
        let fence = Fence::new({
            let (may, sole) = (may.clone(), sole.clone());
            move || may() && sole.may_write()
        });
        let settings = Settings { clock: Arc::new(clock), fence, ..Settings::default() };
        let auth = auth.to_owned();
        let join = move || -> Joining {
            let source = Source::Given(Credentials::password(&auth, "demo", "demopw", "demo"));
            let settings = settings.clone();
            Box::pin(async move { Ok((Cloud::connect(source, settings).await?, cluster("6c1d"))) })
        };
        let driver = Octavia::new(Box::new(join), "amphora".into(), may).timed(Arc::new(clock));
        let place = || InCloud { cloud: CLOUD.into(), class: CLASS.into() };
        let handed_over = Arc::<AtomicBool>::default();
        let heartbeats = Heartbeats {
            record: Arc::new(api.clone()),
            term: || format!("{:08x}", TERMS.fetch_add(1, Ordering::Relaxed)),
            is_handed_over: {
                let handed_over = handed_over.clone();
                Box::new(move || handed_over.load(Ordering::Relaxed))
            },
        };
        let driver = driver.alone(sole.clone()).beating(heartbeats);
        let driver = Arc::new(driver.auditing(Audits { of: place(), period: AUDIT }));
        let world = World::new(Roles::default(), vec![Arc::new(place())], Arc::new(config.clone()));
        let drivers = Drivers::default()
            .with_shared(driver.clone())
            .with(Groups::new(driver.clone()))
            .with(Writes { api: api.clone() });
        let (engine, handle) = Engine::new(world, drivers, Loop::default());
        let fence = {
            let leads = leads.clone();
            seaway_engine::Fence::new(move || leads.load(Ordering::Relaxed))
        };
        let engine = engine.fenced(fence).asking(Arc::new(api.clone())).limiting(Arc::new(api.clone()));
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { _ = engine.run(stopped).await });
        tasks.spawn(tell(api.clone(), handle.clone(), leads.clone(), clock));
        tasks.spawn(remember(api.clone(), handle.clone(), leads.clone()));
        Controller { handle, leads, handed_over, sole, _stop: stop, _tasks: tasks }
    }

    /// From one that ends, or to one that begins.
    pub(super) async fn leads(&self, leads: bool) {
        self.handed_over.store(leads, Ordering::Relaxed);
        self.leads.store(leads, Ordering::Relaxed);
        self.say(Change::Leads(leads)).await;
    }

    pub(super) async fn configure(&self, config: &Config) {
        self.say(Change::Config(Arc::new(config.clone()))).await;
    }

    async fn say(&self, change: Change) {
        self.handle.changes().send(change).await.expect("the engine runs");
    }
}

async fn tell(api: ApiServer, handle: Handle, leads: Arc<AtomicBool>, clock: Paused) {
    let (all, mut news) = api.watch();
    let changes = handle.changes();
    let seen = api.kept().deletions.clone();
    let first = [Change::Leads(leads.load(Ordering::Relaxed)), Change::Deletions(seen), clock.tell()];
    for change in first.into_iter().chain(all) {
        if changes.send(change).await.is_err() {
            return;
        }
    }
    loop {
        let change = tokio::select! {
            Some(change) = news.recv() => change,
            () = sleep(Duration::from_secs(10)) => clock.tell(),
        };
        if changes.send(change).await.is_err() {
            return;
        }
    }
}

/// As the ConfigMap of deletions is kept.
async fn remember(api: ApiServer, handle: Handle, leads: Arc<AtomicBool>) {
    loop {
        sleep(WAKE).await;
        let Some(seen) = handle.ask(World::deletions).await else { return };
        if leads.load(Ordering::Relaxed) {
            api.kept().deletions = seen;
        }
    }
}
