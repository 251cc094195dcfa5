//! `seaway controller` and `seaway node`: parts of a cluster. What is so comes from watches, what was given out from
//! Address objects; nobody here talks to another but through the API server.

mod adoption;
pub(crate) mod cloud;
mod copies;
mod died;
mod handover;
mod hear;
mod in_cluster;
mod lead;
mod life;
mod metrics;
mod names;
mod nodes;
mod other_signs;
mod pages;
mod recall;
mod records;
mod refused;
mod report;
mod serve;

use std::{
    net::SocketAddr,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use anyhow::{Context, Result};
use seaway_admin::{Admin, Binding, BoundSockets, Signals, logging::LogHandle, notify::Notifier};
use seaway_cluster::{
    AddressDriver, Cluster, ExpiredHostPolicy, FinalizerDriver, HostStatusWriter, LEADER, LeaderElection,
    LeaseTimings, PasswordReader, PoolStatusWriter, ProgramInfo, RecordStore, StatusDriver, Watch,
};
use seaway_drivers::{
    names::MemberNames,
    octavia::{Octavia, groups::Groups},
};
use seaway_engine::{Drivers, Engine, Handle, Phase, ProblemLog, Settings as Loop};
use seaway_files::{pem::PemWatch, state_cache::StateCacheWriter};
use seaway_model::{Change, Fact};
use seaway_node::{AddressWatch, Host};
use seaway_plan::{Placement, Roles, World};
use seaway_watchdog::WatchGuard;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tracing::{info, warn};

pub(crate) use self::in_cluster::in_cluster;
use self::{
    handover::{Folder, Retired, Retiring, Successor},
    hear::{ChangeForwarder, OwnHost},
    in_cluster::access,
    nodes::NodeParts,
    recall::{Memory, Recall},
    report::{count, follow_secret_interest, say},
};
use crate::{
    announcing::AnnouncerTasks,
    args::ProcessArgs as Arguments,
    control::{ReportedProblems, TELL_TIME, TELL_TIME_OFTEN, now, send_time, view_source, with_status_page},
    rights,
    run::{apply_reloaded, log_doubts, raise_descriptor_limit, runtime, settings_of, start_log},
    settings::Settings,
    version, watchdog,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Controller,
    Node,
}

pub(crate) fn run(arguments: &Arguments, part: Part) -> Result<ExitCode> {
    let began = Instant::now();
    let needed = if part == Part::Node { rights::SERVING_CAPABILITIES } else { rights::NO_CAPABILITIES };
    let rights = rights::keep_only(needed).context("capabilities cannot be dropped")?;
    nodes::require_cloud(&arguments.cloud)?;
    let settings = load(arguments, part)?;
    serve::require_native_for_handover(arguments, &settings)?;
    let log = start_log(&settings)?;
    log_doubts(&settings);
    settings.told.iter().for_each(|line| warn!("{line}"));
    info!(version = version::LONG, host = %settings.host, ?part, "seaway starts");
    info!("{rights}");
    if part == Part::Node {
        raise_descriptor_limit();
    }
    runtime()?.block_on(async {
        let signals =
            Signals::listen().context("the handler of signals such as SIGTERM cannot be installed")?;
        let member = Member::start(arguments, settings, part, log).await?;
        member.until_the_end(signals, arguments, began).await
    })
}

fn load(arguments: &Arguments, part: Part) -> Result<Settings> {
    let mut settings = settings_of(arguments.config.as_deref(), &arguments.log)?;
    if let Some(host) = &arguments.host {
        settings.host = host.as_str().into();
    }
    if let Some(snapshot) = &arguments.snapshot {
        settings.snapshot = Some(snapshot.clone());
    } else if let (Some(folder), None) = (&arguments.handover, &settings.snapshot) {
        settings.snapshot = Some(folder.join("snapshot"));
    }
    in_cluster(&mut settings, part, arguments.cloud.cloud_config.as_deref());
    Ok(settings)
}

/// Never, where nobody tells.
async fn next(conf: &mut Option<(Arc<Octavia>, mpsc::Receiver<()>)>) -> Option<()> {
    match conf {
        Some((_, told)) => told.recv().await,
        None => std::future::pending().await,
    }
}

/// A process that is part of a cluster.
struct Member {
    /// All parts, which may end once this is dropped.
    watching: WatchGuard,
    /// Of a host that may be succeeded while it serves.
    folder: Option<Folder>,
    /// Whether this process works, and no other one of this host.
    owns: watch::Sender<bool>,
    /// While it does not yet.
    successor: Option<Successor>,
    /// While it does: for the next one.
    retiring: Option<Retiring>,
    over: (mpsc::Sender<Retired>, mpsc::Receiver<Retired>),
    reports: Option<Arc<HostStatusWriter>>,
    snapshot: Option<Arc<StateCacheWriter>>,
    settings: Settings,
    host: Option<Arc<Host>>,
    handle: Handle,
    stop: watch::Sender<bool>,
    engine: JoinHandle<World>,
    watch: Watch,
    /// Passes on what is heard; ends with the last who tells.
    hearing: JoinHandle<()>,
    /// Of a controller: to lead. Of a host: to be alive, while no other process of it is.
    campaign: LeaderElection,
    clock: JoinHandle<()>,
    addresses: Option<AddressWatch>,
    /// Of a host.
    announcing: Option<AnnouncerTasks>,
    /// Tells when the file was changed that says all of a cloud, for whoever works there.
    conf: Option<(Arc<Octavia>, mpsc::Receiver<()>)>,
    /// Whether that file is understood: else nothing is written there.
    usable: Arc<AtomicBool>,
    /// Of a controller that follows Nodes, too.
    nodes: Option<NodeParts>,
    /// Certificates in files, for who serves.
    pems: Option<PemWatch>,
    admin: Admin,
    /// Where whoever comes from this machine may change something.
    status_page: Vec<SocketAddr>,
    stopping: Arc<AtomicBool>,
    notifier: Notifier,
    log: LogHandle,
}

impl Member {
    async fn start(arguments: &Arguments, settings: Settings, part: Part, log: LogHandle) -> Result<Member> {
        let binding = settings.admin.clone().map_or(Binding::Loopback, Binding::Exactly);
        // No page is worth an outage: whoever has its port is told.
        let series = settings.series.limits_of(part == Part::Node);
        let mut bound = BoundSockets::bind_or_retry(&binding)?.with_series_limits(series);
        // What may only be read is anybody's; and a controller sends nobody anywhere.
        let status_page = if part == Part::Node { bound.wanted_addresses() } else { Vec::new() };
        bound = pages::in_pod(bound, &arguments.pod, part)?;
        let watchdog = watchdog::start().context("the watchdog cannot start")?;
        let dog = watchdog.clone();
        bound = bound.with_liveness_check(move || dog.failure().map(|fault| fault.to_string()));
        let mut parts = vec![watchdog::runtime()];
        let cluster = Cluster::connect(access(arguments, &settings, part)).await?;
        bound = metrics::shown(bound, &settings, &cluster)?;
        let host = match part {
            Part::Node => Some(Arc::new(serve::host(&settings)?)),
            Part::Controller => None,
        };
        let folder = match (&arguments.handover, part) {
            (Some(path), Part::Node) => {
                let of = format!("{}@{}", settings.host, cluster.server_url());
                Some(Folder::open(path, of, arguments.pod.pod_name.as_deref())?)
            }
            _ => None,
        };
        let owned = folder.as_ref().map_or(Ok(true), Folder::try_lock)?;
        let owns = watch::Sender::new(owned);
        let campaign = match part {
            Part::Controller if !arguments.cloud.controllers.service => LeaderElection::never(),
            Part::Controller => {
                LeaderElection::start(&cluster, LEADER, &settings.host, LeaseTimings::leader(settings.lease))
            }
            Part::Node => {
                let owns = owns.subscribe();
                LeaderElection::start_host_lease_once(&cluster, &settings.host, LeaseTimings::HOST, owns)
            }
        };
        // Who may lead is told when it does.
        let roles = Roles { allocate: false, host: host.as_ref().map(|host| host.name.clone()) };
        let mut placements: Vec<Arc<dyn Placement>> = host.iter().map(|host| host.placement()).collect();
        let mut drivers = Drivers::default();
        let (mut conf, mut herald, mut connection) = (None, None, None);
        let node_counts = nodes::NodeCounts::default();
        let usable = Arc::new(AtomicBool::new(cloud::refused(&settings).is_none()));
        let problems = ProblemLog::default();
        let statuses = host
            .is_none()
            .then(|| StatusDriver::new(cluster.clone(), campaign.leadership(), problems.clone()));
        let records = RecordStore::new(cluster.clone(), campaign.leadership());
        parts.push(campaign.part());
        parts.extend(statuses.iter().map(StatusDriver::part));
        if let (Some(file), Some(_), Some(statuses)) =
            (&arguments.cloud.cloud_config, settings.config.clouds.get(cloud::CLASS), &statuses)
        {
            let name = &arguments.cloud.cluster_name;
            let leading = campaign.leadership();
            herald = Some(statuses.event_recorder());
            let events = statuses.event_recorder();
            let (driver, connected, calls) = cloud::driver(
                file,
                &cluster,
                name,
                &settings,
                (leading, records.clone()),
                events,
                usable.clone(),
            );
            bound = bound.with_metrics_source(calls);
            if arguments.cloud.controllers.needs_cloud() {
                bound = bound.with_metrics_source(node_counts.metrics());
            }
            placements.push(Arc::new(cloud::placement()));
            drivers = drivers.with_shared(driver.clone()).with(Groups::new(driver.clone()));
            conf = Some((driver, cloud::rewritten(file.clone(), &mut parts)));
            connection = Some(connected);
        }
        let config = Arc::new(with_status_page(&status_page, settings.config.clone()));
        let world = World::new(roles, placements, config);
        let drivers = match &host {
            Some(host) => host.with_drivers(drivers),
            None => drivers
                .with(AddressDriver::new(cluster.clone()))
                .with(FinalizerDriver::new(cluster.clone()))
                .with(names::in_dns(&cluster)),
        };
        let drivers = statuses.into_iter().fold(drivers, Drivers::with);
        let drivers = drivers.with(MemberNames::new(&settings.resolvers)?);
        let (engine, handle) = Engine::new(world, drivers, Loop::default());
        // Watches may be late; what a cloud has for a Service goes when the API server says that this is gone.
        let engine = engine.asking(Arc::new(cluster.clone())).limiting(Arc::new(records.clone()));
        let engine = if host.is_none() { engine.fenced(lead::fence(campaign.leadership())) } else { engine };
        let (stop, stopped) = watch::channel(false);
        let engine = watchdog::spawn_engine(&mut parts, engine, stopped);
        if !owned {
            handle.hold().await;
        }
        let changes = handle.changes();
        let report = host.as_ref().map(|host| host.report()).transpose();
        let report = report.context("the addresses of this machine's interfaces cannot be read")?;
        let first = report.map(|it| Change::Put(Fact::Host(Arc::new(it))));
        for change in [Change::Time(now())].into_iter().chain(first) {
            changes.send(change).await.context("the engine ended")?;
        }
        let (tell, heard) = mpsc::channel(1_024);
        let recall = match &host {
            Some(host) => Some(Recall::of(&cluster, &host.name, settings.snapshot.clone()).await),
            None => None,
        };
        let known = recall.iter().flat_map(Recall::facts);
        let mut watch = match &host {
            Some(host) => cluster.watch_as_host(&host.name, known, tell.clone()),
            None => cluster.watch_from(known, tell.clone(), ExpiredHostPolicy::Watched),
        };
        let drains = recall.as_ref().is_some_and(Recall::drains);
        let memory = match recall {
            Some(recall) => recall.tell(&changes, owns.subscribe()).await,
            None => Memory::default(),
        };
        parts.extend(memory.part());
        let snapshot = memory.keeper();
        let mut reports = None;
        let own_host = match &host {
            Some(host) => {
                let page = serve::page(&arguments.pod, &bound);
                let running = ProgramInfo { version: version::LONG.into(), page };
                let its =
                    reports.insert(Arc::new(HostStatusWriter::start(&cluster, &host.name, running))).clone();
                if !owned {
                    its.pause().await;
                }
                parts.push(its.part());
                let says = say(its.clone(), handle.clone());
                watchdog::spawn("the writer of this host's status", &mut parts, says);
                let minds = serve::mind(host.name.clone(), campaign.rival(), changes.clone());
                watchdog::spawn("the check for another process with this host's name", &mut parts, minds);
                Some(OwnHost::new(host.name.clone(), its, drains))
            }
            None => {
                other_signs::start(conf.is_some(), &cluster, &changes, &mut parts).await;
                let leads = lead::lead(campaign.leadership(), changes.clone());
                watchdog::spawn("the watch of the leader's Lease", &mut parts, leads);
                let makes = lead::make_layer2_key(cluster.clone(), campaign.leadership(), handle.clone());
                watchdog::spawn("the writer of the Layer 2 key", &mut parts, makes);
                if let Some(herald) = herald {
                    let records = records::keep(records, campaign.leadership(), handle.clone(), herald);
                    watchdog::spawn("the writer of deletion records", &mut parts, records);
                }
                let (keeper, claims) = names::keep(&cluster, campaign.leadership(), handle.clone());
                parts.push(keeper);
                watchdog::spawn("the reader of claims of host names", &mut parts, claims);
                watch.gather_addresses(&cluster, campaign.leadership(), tell.clone());
                let reports = PoolStatusWriter::start(&cluster, campaign.leadership());
                parts.push(reports.part());
                watchdog::spawn(
                    "the counters of AddressPool statuses",
                    &mut parts,
                    count(reports, handle.clone()),
                );
                if let Some(namespace) = settings.copies.clone() {
                    let (keeper, names) =
                        copies::keep(&cluster, campaign.leadership(), namespace, handle.clone());
                    parts.push(keeper);
                    watchdog::spawn("the list of certificates to copy", &mut parts, names);
                }
                None
            }
        };
        let nodes = nodes::start(
            &arguments.cloud,
            &cluster,
            &settings,
            connection,
            &handle,
            &node_counts,
            &mut parts,
        );
        // It ends by itself once all pages are shown.
        tokio::spawn(pages::tell(bound.closed_listeners(), owns.subscribe(), changes.clone()));
        let reported = ReportedProblems::new(problems);
        let hearing = ChangeForwarder { changes: changes.clone(), own_host, memory, reported }.run(heard);
        let hearing = watchdog::spawn("the forwarder of watch events", &mut parts, hearing);
        let pems = match &host {
            Some(_) => Some(serve::certificates(&settings, &tell).await?),
            None => None,
        };
        drop(tell);
        let wants = follow_secret_interest(watch.secret_interest(), handle.clone());
        watchdog::spawn("the list of certificates to read", &mut parts, wants);
        let period = if part == Part::Controller { TELL_TIME_OFTEN } else { TELL_TIME };
        let clock = watchdog::spawn("the timer", &mut parts, send_time(changes.clone(), period));
        let addresses = host.as_ref().and_then(|host| {
            let addresses = host.watch_addresses(move |report| {
                // The engine may have ended; then nobody needs to know.
                let _ = changes.blocking_send(Change::Put(Fact::Host(Arc::new(report))));
            });
            addresses
                .inspect_err(|error| warn!(%error, "changes of this machine's addresses cannot be watched"))
                .ok()
        });
        let announcing = host.as_ref().map(|host| {
            let (layer2, passwords) = (settings.layer2.clone(), Some(PasswordReader::start(&cluster)));
            AnnouncerTasks::start(host, &handle, layer2, passwords, &watchdog, &mut parts)
        });
        parts.extend(watch.parts());
        parts.extend(pems.iter().map(PemWatch::part));
        parts.extend(addresses.iter().map(AddressWatch::part));
        parts.extend(host.iter().flat_map(|host| host.proxy.parts()));
        let stopping = Arc::new(AtomicBool::new(false));
        let admin = bound.serve(
            view_source(&handle, (host.as_ref(), None), &settings, (&stopping, owns.subscribe()), now()),
            log.clone(),
        );
        for at in admin.addresses() {
            info!("status page at http://{at}/");
        }
        let successor =
            folder.clone().zip(host.clone()).filter(|_| !owned).map(|(folder, host)| {
                Successor::start(folder, handle.clone(), host, watch.addresses_listed())
            });
        Ok(Member {
            watching: watchdog.watch(parts),
            folder,
            owns,
            successor,
            retiring: None,
            over: mpsc::channel(1),
            reports,
            snapshot,
            settings,
            host,
            handle,
            stop,
            engine,
            watch,
            hearing,
            campaign,
            clock,
            addresses,
            announcing,
            conf,
            usable,
            nodes,
            pems,
            admin,
            status_page,
            stopping,
            notifier: Notifier::from_env(),
            log,
        })
    }

    async fn reload(&mut self, arguments: &Arguments) {
        let notifier = self.notifier_of_reload();
        notifier.reloading();
        let part = if self.host.is_some() { Part::Node } else { Part::Controller };
        if let Some(mut settings) =
            apply_reloaded(load(arguments, part), &self.settings, &self.log, self.host.as_deref()).await
        {
            cloud::keep_understood(&mut settings, &self.settings);
            if let Some(pems) = &self.pems {
                pems.set(settings.pems.clone());
            }
            self.take(settings).await;
            info!("configuration reloaded");
        }
        notifier.ready("serving");
    }

    /// The end of a reload says that this process serves; of one that does not yet, systemd hears nothing.
    fn notifier_of_reload(&self) -> Notifier {
        let is_serving = *self.owns.borrow() && *self.handle.phase().borrow() == Phase::Serving;
        if is_serving { self.notifier.clone() } else { Notifier::default() }
    }

    /// All that the file says of load balancers; who we are there is tried by whoever asks next.
    async fn read_cloud_again(&mut self, arguments: &Arguments) {
        let Some(file) = &arguments.cloud.cloud_config else { return };
        if let Some((octavia, _)) = &self.conf {
            octavia.mended();
        }
        let mut settings = self.settings.clone();
        cloud::configure_or_refuse(&mut settings, file);
        cloud::keep_understood(&mut settings, &self.settings);
        if settings.config != self.settings.config || settings.told != self.settings.told {
            self.take(settings).await;
            info!("{} was read again: load balancers are planned by its new content", file.display());
        }
    }

    async fn take(&mut self, settings: Settings) {
        if settings.told != self.settings.told {
            settings.told.iter().for_each(|line| warn!("{line}"));
        }
        self.conf.iter().for_each(|(octavia, _)| cloud::follow(&settings, octavia));
        self.announcing.iter().for_each(|it| it.configure(settings.layer2.clone()));
        self.nodes.iter().for_each(|it| it.configure(&settings));
        self.usable.store(cloud::refused(&settings).is_none(), Ordering::Relaxed);
        let config = with_status_page(&self.status_page, settings.config.clone());
        let config = Change::Config(Arc::new(config));
        if self.handle.changes().send(config).await.is_err() {
            warn!("the new configuration is not applied: the engine has ended");
        }
        self.settings = settings;
    }
}

#[cfg(test)]
mod tests;
