//! The controllers of Nodes and of routes, beside the engine: each with its own Lease, those of Nodes in one task.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Result, bail};
use seaway_admin::{MetricsSource, node_controller_metrics, view::NodeControllerView};
use seaway_cluster::{
    CLOUD_NODE, CLOUD_NODE_LIFECYCLE, CLOUD_ROUTE, Cluster, LeaderElection, Leadership, LeaseTimings,
    NodeStore, RecordStore, RouteStore,
};
use seaway_drivers::{
    nodes::{self, NodeControllers, NodeSettings, PassResult},
    routes::{self, RouteController, RouteSettings},
};
use seaway_engine::Handle;
use seaway_model::{Change, Name, ObjectRef, Problem};
use seaway_openstack::Cloud;
use seaway_plan::World;
use seaway_watchdog::WatchedPart;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use super::{
    cloud::{self, Connection},
    lead::fence,
};
use crate::{
    args::CloudArgs,
    control::now,
    settings::{NodeKeys, Settings},
    watchdog,
};

/// How soon it is noticed that a Node came.
const LOOK: Duration = Duration::from_secs(2);

/// What their passes came to, for metrics.
#[derive(Clone, Default)]
pub(super) struct NodeCounts(Arc<Mutex<BTreeMap<&'static str, NodeControllerView>>>);

impl NodeCounts {
    pub(super) fn metrics(&self) -> MetricsSource {
        let counts = self.clone();
        node_controller_metrics(move || counts.locked().values().cloned().collect())
    }

    fn count(&self, controller: &'static str, pass: &PassResult, took: Duration) {
        let mut all = self.locked();
        let it = all
            .entry(controller)
            .or_insert_with(|| NodeControllerView { controller, ..NodeControllerView::default() });
        it.problems = pass.problems.len() as u64;
        it.times.note(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<&'static str, NodeControllerView>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What runs of them.
pub(super) struct NodeParts {
    elections: Vec<LeaderElection>,
    settings: watch::Sender<Option<NodeSettings>>,
    routes: watch::Sender<Option<RouteSettings>>,
    regional: bool,
}

/// What looks at all Nodes, again and again.
trait Follower: Send + 'static {
    type Settings: Clone + Send + Sync;
    /// In metrics.
    const NAME: &'static str;

    /// What its Problems are reported at.
    fn about() -> ObjectRef;
    fn pass(&mut self, settings: &Self::Settings) -> impl Future<Output = PassResult> + Send;
}

impl Follower for NodeControllers<NodeStore> {
    type Settings = NodeSettings;
    const NAME: &'static str = "nodes";

    fn about() -> ObjectRef {
        nodes::about()
    }

    async fn pass(&mut self, settings: &NodeSettings) -> PassResult {
        self.pass(settings).await
    }
}

impl Follower for RouteController<NodeStore, RouteStore> {
    type Settings = RouteSettings;
    const NAME: &'static str = "routes";

    fn about() -> ObjectRef {
        routes::about()
    }

    async fn pass(&mut self, settings: &RouteSettings) -> PassResult {
        self.pass(settings).await
    }
}

/// A cloud is needed to say anything of Nodes.
pub(super) fn require_cloud(arguments: &CloudArgs) -> Result<()> {
    if arguments.controllers.needs_cloud() && arguments.cloud_config.is_none() {
        bail!("--controllers {} needs --cloud-config FILE: the cloud of the Nodes", arguments.controllers);
    }
    Ok(())
}

/// Nothing, where none of them is to run.
pub(super) fn start(
    arguments: &CloudArgs,
    cluster: &Cluster,
    settings: &Settings,
    connection: Option<Arc<Connection>>,
    handle: &Handle,
    counts: &NodeCounts,
    parts: &mut Vec<WatchedPart>,
) -> Option<NodeParts> {
    let connection = connection.filter(|_| arguments.controllers.needs_cloud())?;
    let campaign = |runs: bool, lease: &str| match runs {
        true => LeaderElection::start(cluster, lease, &settings.host, LeaseTimings::leader(settings.lease)),
        false => LeaderElection::never(),
    };
    let controllers = arguments.controllers;
    let elections = vec![
        campaign(controllers.cloud_node, CLOUD_NODE),
        campaign(controllers.cloud_node_lifecycle, CLOUD_NODE_LIFECYCLE),
        campaign(controllers.route, CLOUD_ROUTE),
    ];
    parts.extend(elections.iter().map(LeaderElection::part));
    let leads: Vec<Leadership> = elections.iter().map(LeaderElection::leadership).collect();
    let [initializes, deletes, routes] = &leads[..] else { return None };
    let regional = arguments.regional_provider_ids;
    let (tell, followed) = watch::channel(wanted(settings, regional));
    let (tell_routes, followed_routes) = watch::channel(wanted_routes(settings));
    info!(%controllers, "starting the cloud node controllers");
    if controllers.follows_nodes() {
        let limit = Arc::new(RecordStore::of_nodes(cluster.clone(), deletes.clone()));
        let (store, fences) =
            (NodeStore::new(cluster.clone()), (fence(initializes.clone()), fence(deletes.clone())));
        // They write nothing in the cloud.
        let join = joining(connection.clone(), |cloud| cloud);
        let follows = NodeControllers::new(store, join, fences, limit, Box::new(now));
        let leads = vec![initializes.clone(), deletes.clone()];
        watchdog::spawn(
            "the controllers of Nodes",
            parts,
            follow(follows, followed, handle.clone(), leads, counts.clone()),
        );
    }
    if controllers.route {
        let (store, records) = (NodeStore::new(cluster.clone()), RouteStore::new(cluster.clone()));
        // Who leads there need not lead the controller of Services.
        let leading = routes.clone();
        let join = joining(connection, move |cloud| {
            let leading = leading.clone();
            cloud.with_fence(seaway_openstack::Fence::new(move || leading.is_held()))
        });
        let follows = RouteController::new(store, records, join, fence(routes.clone()), Box::new(now));
        let leads = vec![routes.clone()];
        watchdog::spawn(
            "the controller of routes",
            parts,
            follow(follows, followed_routes, handle.clone(), leads, counts.clone()),
        );
    }
    Some(NodeParts { elections, settings: tell, routes: tell_routes, regional })
}

fn joining(
    connection: Arc<Connection>,
    writes: impl Fn(Cloud) -> Cloud + Clone + Send + Sync + 'static,
) -> Box<dyn Fn() -> nodes::ConnectFuture + Send + Sync> {
    Box::new(move || -> nodes::ConnectFuture {
        let (connection, writes) = (connection.clone(), writes.clone());
        Box::pin(async move { connection.cloud().await.map(writes) })
    })
}

/// Nothing is done by a cloud.conf that is refused.
fn wanted(settings: &Settings, regional: bool) -> Option<NodeSettings> {
    let defaults = settings.config.clouds.get(cloud::CLASS).filter(|_| cloud::refused(settings).is_none())?;
    let deletion = settings.nodes.deletion.clone();
    Some(NodeSettings { regional, networking: defaults.networking.clone(), deletion })
}

fn wanted_routes(settings: &Settings) -> Option<RouteSettings> {
    let defaults = settings.config.clouds.get(cloud::CLASS).filter(|_| cloud::refused(settings).is_none())?;
    let NodeKeys { pod_cidrs, max_routes, max_pairs, .. } = settings.nodes.clone();
    Some(RouteSettings { router: defaults.router.clone(), pod_cidrs, max_routes, max_pairs })
}

impl NodeParts {
    pub(super) fn configure(&self, settings: &Settings) {
        let wanted = wanted(settings, self.regional);
        self.settings.send_if_modified(|it| std::mem::replace(it, wanted) != *it);
        let wanted = wanted_routes(settings);
        self.routes.send_if_modified(|it| std::mem::replace(it, wanted) != *it);
    }

    pub(super) async fn resign(self) {
        for election in self.elections {
            election.resign().await;
        }
    }
}

/// A pass when something moved, and once in a while.
async fn follow<F: Follower>(
    mut controllers: F,
    mut settings: watch::Receiver<Option<F::Settings>>,
    handle: Handle,
    mut leads: Vec<Leadership>,
    counts: NodeCounts,
) {
    let mut told = Vec::new();
    loop {
        let led: Vec<bool> = leads.iter().map(Leadership::is_held).collect();
        let Some(known) = handle.ask(World::ready_nodes).await else { return };
        let wanted = settings.borrow_and_update().clone();
        let began = Instant::now();
        let (problems, next) = match wanted {
            Some(wanted) => {
                let pass = controllers.pass(&wanted).await;
                if led.contains(&true) {
                    counts.count(F::NAME, &pass, began.elapsed());
                }
                (pass.problems, pass.next)
            }
            None => (Vec::new(), Duration::from_secs(3600)),
        };
        if !report(F::about(), &mut told, problems, &handle).await {
            return;
        }
        let (least, most) = (later(began, nodes::LEAST_PAUSE), later(Instant::now(), next));
        tokio::select! {
            () = changed(&mut leads, &led) => continue,
            () = sleep_until(least) => {}
        }
        tokio::select! {
            () = changed(&mut leads, &led) => {}
            () = sleep_until(most) => {}
            () = another(&handle, &known) => {}
            it = settings.changed() => if it.is_err() { return },
        }
    }
}

fn later(moment: Instant, pause: Duration) -> Instant {
    moment.checked_add(pause).unwrap_or(moment)
}

/// Returns when one of them leads that did not, or the other way round.
async fn changed(leads: &mut [Leadership], led: &[bool]) {
    let was = |at: usize| led.get(at).copied().unwrap_or_default();
    match leads {
        [one] => one.changed_from(was(0)).await,
        [first, second] => tokio::select! {
            () = first.changed_from(was(0)) => {}
            () = second.changed_from(was(1)) => {}
        },
        _ => std::future::pending().await,
    }
}

/// Returns when Nodes came or went, or one is Ready that was not. Asked now and then, for what a Node is moves no Unit.
async fn another(handle: &Handle, known: &BTreeMap<Name, bool>) {
    while handle.ask(World::ready_nodes).await.is_some_and(|it| it == *known) {
        sleep(LOOK).await;
    }
}

/// `false`: the engine has ended.
async fn report(about: ObjectRef, told: &mut Vec<Problem>, problems: Vec<Problem>, handle: &Handle) -> bool {
    if *told == problems {
        return true;
    }
    let known: BTreeSet<&Problem> = told.iter().collect();
    problems.iter().filter(|it| !known.contains(it)).for_each(|it| warn!("{}", it.line()));
    told.clone_from(&problems);
    handle.changes().send(Change::Reported(about, problems)).await.is_ok()
}
