//! The controllers of Nodes, beside the engine: each with its own Lease, both in one task.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, bail};
use seaway_cluster::{
    CLOUD_NODE, CLOUD_NODE_LIFECYCLE, Cluster, LeaderElection, Leading, LeaseTimings, NodeStore, RecordStore,
};
use seaway_drivers::nodes::{NodeControllers, NodeSettings, about};
use seaway_engine::Handle;
use seaway_model::{Change, Name, Problem};
use seaway_plan::World;
use seaway_watchdog::Part;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use super::{
    cloud::{self, Connection},
    lead::fence,
};
use crate::{args::CloudArgs, control::now, settings::Settings, watchdog};

/// How soon it is noticed that a Node came.
const LOOK: Duration = Duration::from_secs(2);

/// What runs of them.
pub(super) struct NodeParts {
    elections: Vec<LeaderElection>,
    settings: watch::Sender<Option<NodeSettings>>,
    regional: bool,
}

type Controllers = NodeControllers<NodeStore>;

/// A cloud is needed to say anything of Nodes.
pub(super) fn require_cloud(arguments: &CloudArgs) -> Result<()> {
    if arguments.controllers.follows_nodes() && arguments.cloud_config.is_none() {
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
    parts: &mut Vec<Part>,
) -> Option<NodeParts> {
    let connection = connection.filter(|_| arguments.controllers.follows_nodes())?;
    let campaign = |runs: bool, lease: &str| match runs {
        true => LeaderElection::start(cluster, lease, &settings.host, LeaseTimings::leader(settings.lease)),
        false => LeaderElection::none(),
    };
    let controllers = arguments.controllers;
    let elections = vec![
        campaign(controllers.cloud_node, CLOUD_NODE),
        campaign(controllers.cloud_node_lifecycle, CLOUD_NODE_LIFECYCLE),
    ];
    parts.extend(elections.iter().map(LeaderElection::part));
    let leads: Vec<Leading> = elections.iter().map(LeaderElection::leading).collect();
    let [initializes, deletes] = &leads[..] else { return None };
    let regional = arguments.regional_provider_ids;
    let (tell, followed) = watch::channel(wanted(settings, regional));
    let limit = Arc::new(RecordStore::of_nodes(cluster.clone(), deletes.clone()));
    let join = Box::new(move || -> seaway_drivers::nodes::Joining {
        let connection = connection.clone();
        Box::pin(async move { connection.cloud().await })
    });
    let fences = (fence(initializes.clone()), fence(deletes.clone()));
    let follows = NodeControllers::new(NodeStore::new(cluster.clone()), join, fences, limit, Box::new(now));
    info!(%controllers, "Nodes follow the cloud");
    watchdog::spawn("the controllers of Nodes", parts, follow(follows, followed, handle.clone(), leads));
    Some(NodeParts { elections, settings: tell, regional })
}

/// Nothing is done by a cloud.conf that is refused.
fn wanted(settings: &Settings, regional: bool) -> Option<NodeSettings> {
    let defaults = settings.config.clouds.get(cloud::CLASS).filter(|_| cloud::refused(settings).is_none())?;
    let deletion = settings.node_deletion.clone();
    Some(NodeSettings { regional, networking: defaults.networking.clone(), deletion })
}

impl NodeParts {
    pub(super) fn configure(&self, settings: &Settings) {
        let wanted = wanted(settings, self.regional);
        self.settings.send_if_modified(|it| std::mem::replace(it, wanted) != *it);
    }

    pub(super) async fn resign(self) {
        for election in self.elections {
            election.resign().await;
        }
    }
}

/// A pass when something moved, and once in a while.
async fn follow(
    mut controllers: Controllers,
    mut settings: watch::Receiver<Option<NodeSettings>>,
    handle: Handle,
    mut leads: Vec<Leading>,
) {
    let mut told = Vec::new();
    loop {
        let led: Vec<bool> = leads.iter().map(Leading::is_now).collect();
        let Some(known) = handle.ask(World::ready_nodes).await else { return };
        let wanted = settings.borrow_and_update().clone();
        let began = Instant::now();
        let (problems, next) = match wanted {
            Some(wanted) => {
                let pass = controllers.pass(&wanted).await;
                (pass.problems, pass.next)
            }
            None => (Vec::new(), Duration::from_secs(3600)),
        };
        if !report(&mut told, problems, &handle).await {
            return;
        }
        let (least, most) = (later(began, Controllers::LEAST_PAUSE), later(Instant::now(), next));
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
async fn changed(leads: &mut [Leading], led: &[bool]) {
    let [first, second] = leads else { return std::future::pending().await };
    let was = |at: usize| led.get(at).copied().unwrap_or_default();
    tokio::select! {
        () = first.changed_from(was(0)) => {}
        () = second.changed_from(was(1)) => {}
    }
}

/// Returns when Nodes came or went, or one is Ready that was not. Asked now and then, for what a Node is moves no Unit.
async fn another(handle: &Handle, known: &BTreeMap<Name, bool>) {
    while handle.ask(World::ready_nodes).await.is_some_and(|it| it == *known) {
        sleep(LOOK).await;
    }
}

/// `false`: the engine has ended.
async fn report(told: &mut Vec<Problem>, problems: Vec<Problem>, handle: &Handle) -> bool {
    if *told == problems {
        return true;
    }
    let known: BTreeSet<&Problem> = told.iter().collect();
    problems.iter().filter(|it| !known.contains(it)).for_each(|it| warn!("{}", it.line()));
    told.clone_from(&problems);
    handle.changes().send(Change::Reported(about(), problems)).await.is_ok()
}
