//! Everything of a running process but the data plane: folder, engine, ledger, status page. It may end and start anew
//! while connections go on.

mod allocation;
mod drivers;
mod missing;

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use seaway_admin::{
    Admin, Binding, BoundSockets, View, ViewDetail,
    view::{AdoptionView, BgpPeerView, CertificatesView, DnsZoneView, Layer2View, Readiness},
};
use seaway_drivers::{
    acme::{Certificates, ProcessPhase},
    dns::DnsNames,
    names::MemberNames,
};
use seaway_engine::{Drivers, Engine, Handle, Phase, ProblemLog, Settings as Loop};
use seaway_files::{
    AddressDriver, Folder, LedgerFile, Locator, ServerInfo, StateDir, StatusDriver, StatusFile, Watch,
    pem::PemWatch,
    state::{CertificateStore, DnsRecordStore, absolute},
};
use seaway_model::{Change, Config, Fact, Kind, ObjectRef, Problem, Time};
use seaway_node::{AddressWatch, BgpPeerStatus, Host, Layer2Counts};
use seaway_plan::{Adoption, DnsZoneCounts, NotAdopted, Roles, World};
use seaway_watchdog::{Heartbeat, WatchGuard};
use tokio::{
    sync::{mpsc::Sender, watch},
    task::JoinHandle,
    time::timeout,
};
use tracing::{info, warn};

use self::missing::MissingAddresses;
use crate::{
    announcing::AnnouncerTasks,
    operate::{ControlContext, ControlSocket, Weights},
    run::ProcessOptions,
    settings::{Settings, doubts::log_addresses},
    version,
    watchdog::{spawn, spawn_engine},
};

pub(crate) struct Control {
    handle: Handle,
    stop: watch::Sender<bool>,
    engine: JoinHandle<World>,
    folder: Watch,
    pems: PemWatch,
    /// Tells the time, until it is aborted.
    clock: JoinHandle<()>,
    /// Removes what orders leave in DNS, until it is aborted.
    addresses: Option<AddressWatch>,
    announcing: AnnouncerTasks,
    admin: Admin,
    stopping: Arc<AtomicBool>,
    was_ready: bool,
    watching: WatchGuard,
    /// Where this process answers itself.
    status_page: Vec<SocketAddr>,
    /// Where operators change it; nothing, if it could not be opened.
    socket: Option<ControlSocket>,
    life: watch::Sender<ProcessPhase>,
    certificate_orders: Arc<Certificates>,
    /// Locked for as long as anything of it may be written; so it goes last.
    state: StateDir,
}

/// A control whose engine has ended: its pages still tell how the drain goes.
pub(crate) struct DrainingProcess {
    admin: Admin,
    state: StateDir,
}

impl Control {
    pub(crate) async fn start(process: &ProcessOptions, host: &Arc<Host>) -> Result<Control> {
        if process.settings.metrics.is_some() {
            warn!("admin.metrics is ignored: it needs a cluster, which decides who may read metrics");
        }
        let binding = process.settings.admin.clone().map_or(Binding::Loopback, Binding::Exactly);
        let watchdog = process.watchdog.clone();
        let bound = BoundSockets::bind(&binding)?
            .with_series_limits(process.settings.series.limits)
            .with_liveness_check(move || watchdog.failure().map(|fault| fault.to_string()));
        let state = StateDir::open(&process.state_dir)?;
        let (ledger, held, problems) = LedgerFile::open(&state)?;
        let (weights, weighed) = Weights::open(&state);
        let (folder, manifests) = Folder::open(&process.manifests, Some(state.path()))?;

        let roles = Roles { allocate: true, host: Some(host.name.clone()) };
        let status_page = bound.addresses();
        let config = Arc::new(with_status_page(&status_page, process.settings.config.clone()));
        let world = World::new(roles, vec![host.placement()], config);
        let names = MemberNames::new(&process.settings.resolvers)?;
        // Of what is told while nobody looks, the last is what is so.
        let (status_trouble, mut troubles) = watch::channel(None);
        let started = now();
        let server =
            ServerInfo { manifests: absolute(&process.manifests), started, status_page: status_page.clone() };
        let statuses = StatusFile::open(&state, Some(server), move |object, problems| {
            // After the end nobody listens, and nobody needs to.
            status_trouble.send_replace(Some((object, problems)));
        })
        .context("status.json cannot be written")?;
        // Who finds more changes than the engine takes waits for it.
        let (early, sink) = std::sync::mpsc::sync_channel::<Vec<Change>>(MOST_EARLY);
        let renewed = early.clone();
        let watching = folder.watch(move |changes| {
            // As above.
            let _ = early.send(changes);
        })?;
        let (pems, certificates) = PemWatch::start(&process.settings.pems, move |changes| {
            // As above.
            let _ = renewed.send(changes);
        })
        .context("certificates in files cannot be watched")?;
        let places = watching.places();
        let problem_log = ProblemLog::default();
        let (life, followed) = watch::channel(ProcessPhase::Starting);
        let certificate_orders = {
            let (store, records) = (CertificateStore::new(&state), DnsRecordStore::new(&state));
            Arc::new(Certificates::new(store, records, followed))
        };
        let drivers = host
            .with_drivers(Drivers::default())
            .with(AddressDriver::new(ledger, held.clone()))
            .with(StatusDriver::new(statuses, Some(places.clone()), problem_log.clone()))
            .with(names)
            .with(DnsNames::default())
            .with_shared(certificate_orders.clone());
        let (engine, handle) = Engine::new(world, drivers, Loop::default());
        let (stop, stopped) = watch::channel(false);
        let mut parts = vec![watching.part(), pems.part()];
        let engine = spawn_engine(&mut parts, engine, stopped);

        let changes = handle.changes();
        let report = host.report().context("the addresses of this machine's interfaces cannot be read")?;
        tell_addresses(&report.addresses, &process.settings);
        let first = held.into_iter().map(|it| Change::Put(Fact::Address(Arc::new(it))));
        let first = first.chain([Change::Put(Fact::Host(Arc::new(report)))]);
        let first = first.chain([Change::Time(now())]).chain(certificates);
        let first = first.chain(problems.into_iter().map(|it| Change::Reported(it.object.clone(), vec![it])));
        let mut missing = MissingAddresses::of(host);
        let first = first.chain(missing.check_again()).chain(weighed);
        let mut reported = ReportedProblems::new(problem_log.clone());
        for change in first.chain(manifests).chain([Change::Synced(Kind::Address)]) {
            reported.log(&change);
            changes.send(change).await.context("the engine ended")?;
        }
        let tell = changes.clone();
        let (heartbeat, part) = Heartbeat::new("the forwarder of file changes");
        parts.push(part);
        std::thread::Builder::new().name("changes".into()).spawn(move || {
            // It waits for others all the time; only its end is a fault.
            let _heartbeat = heartbeat;
            while let Ok(batch) = sink.recv() {
                for change in batch {
                    reported.log(&change);
                    if tell.blocking_send(change).is_err() {
                        return;
                    }
                }
            }
        })?;
        let clock = spawn("the timer", &mut parts, send_time(changes.clone(), TELL_TIME));
        let tell = changes.clone();
        let mut reported = ReportedProblems::new(problem_log.clone());
        tokio::spawn(async move {
            while troubles.changed().await.is_ok() {
                let Some((object, problems)) = troubles.borrow_and_update().clone() else { continue };
                let change = Change::Reported(object, problems);
                reported.log(&change);
                if tell.send(change).await.is_err() {
                    return;
                }
            }
        });
        let mut reported = ReportedProblems::new(problem_log);
        let addresses = host.watch_addresses(move |report| {
            let missing = missing.check_again();
            missing.iter().for_each(|it| reported.log(it));
            for change in [Change::Put(Fact::Host(Arc::new(report)))].into_iter().chain(missing) {
                // The engine may have ended; then nobody needs to know.
                let _ = changes.blocking_send(change);
            }
        });
        let addresses = addresses
            .inspect_err(|error| warn!(%error, "changes of this machine's addresses cannot be watched"))
            .ok();
        parts.extend(addresses.iter().map(AddressWatch::part));
        let announcing = AnnouncerTasks::start(
            host,
            &handle,
            process.settings.layer2.clone(),
            None,
            &process.watchdog,
            &mut parts,
        );
        let reach = ControlContext {
            weights,
            handle: handle.clone(),
            host: host.clone(),
            reload: process.reloading.clone(),
            turn: tokio::sync::Mutex::default(),
        };
        let socket = ControlSocket::open(state.path(), reach)
            .inspect_err(|error| {
                warn!(%error, "commands such as `seaway drain` and `seaway weight` cannot reach this process")
            })
            .ok();
        let stopping = Arc::new(AtomicBool::new(false));
        let owns = watch::channel(true).1;
        let source =
            view_source(&handle, (Some(host), Some(&places)), &process.settings, (&stopping, owns), started);
        let admin = bound.serve(source, process.log.clone());
        for at in admin.addresses() {
            info!("status page at http://{at}/");
        }
        Ok(Control {
            handle,
            stop,
            engine,
            folder: watching,
            pems,
            clock,
            addresses,
            announcing,
            admin,
            stopping,
            was_ready: false,
            watching: process.watchdog.watch(parts),
            status_page,
            socket,
            life,
            certificate_orders,
            state,
        })
    }

    /// Returns when the first plan is being served; later calls never return.
    pub(crate) async fn first_serving(&mut self) {
        if self.was_ready {
            return std::future::pending().await;
        }
        let mut phase = self.handle.phase();
        if phase.wait_for(|it| *it == Phase::Serving).await.is_err() {
            return std::future::pending().await;
        }
        self.was_ready = true;
        self.life.send_replace(ProcessPhase::Serving);
    }

    /// No process of before serves any more.
    pub(crate) fn begin_sessions(&self) {
        self.announcing.begin_sessions();
    }

    pub(crate) async fn configure(&self, settings: &Settings) {
        // Certificates come before the configuration that names them: it would be planned without them for a moment.
        let pems: Vec<_> = self.pems.added(&settings.pems).cloned().collect();
        let read = tokio::task::spawn_blocking(move || seaway_files::pem::read(&pems)).await;
        for certificate in read.unwrap_or_default() {
            let _of_an_engine_that_has_ended = self.handle.changes().send(certificate).await;
        }
        self.pems.set(settings.pems.clone());
        self.announcing.configure(settings.layer2.clone());
        let config = Arc::new(with_status_page(&self.status_page, settings.config.clone()));
        if self.handle.changes().send(Change::Config(config)).await.is_err() {
            warn!("the new configuration is not applied: the engine has ended");
        }
    }

    /// Takes this host's addresses out of DNS, and waits until resolvers have forgotten them, or for so long.
    pub(crate) async fn leave_dns(&self, patience: Duration) {
        if timeout(patience, self.handle.leave_dns()).await.is_err() {
            info!("resolvers may still send clients here: half of the drain period has passed");
        }
    }

    /// Ends whatever could change what is served; the pages go on.
    pub(crate) async fn finish_planning(self) -> DrainingProcess {
        self.stopping.store(true, Ordering::Relaxed);
        // From here on they may end.
        drop(self.watching);
        self.life.send_replace(ProcessPhase::Ending);
        // The engine may have ended by itself.
        let _ = self.stop.send(true);
        drop(self.addresses);
        drop(self.announcing);
        drop(self.socket);
        self.clock.abort();
        drop(self.folder);
        drop(self.pems);
        if let Err(error) = self.engine.await {
            warn!(%error, "the engine failed while it stopped");
        }
        self.certificate_orders.end().await;
        DrainingProcess { admin: self.admin, state: self.state }
    }
}

/// Where Services are served that have no address of a pool, and how to change that: it is the first thing that is looked for
/// where `curl localhost` is refused.
fn tell_addresses(found: &[IpAddr], settings: &Settings) {
    let all: Vec<String> = found.iter().map(ToString::to_string).collect();
    let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    if settings.addresses.is_empty() {
        info!(
            "this host's addresses: {all}; loopback is served only where there is no other address, link-local never (to \
             choose: --address IP, or host.addresses in seaway.yaml)"
        );
    } else {
        info!("this host's addresses: {all}, as --address or host.addresses says");
    }
    log_addresses(settings);
}

/// Whoever may not name the status page as a member is told so by the plan.
pub(crate) fn with_status_page(status_page: &[SocketAddr], config: Config) -> Config {
    Config { status_page: status_page.to_vec(), ..config }
}

/// Looks at the folder, each with all that it found.
const MOST_EARLY: usize = 64;

/// A certificate that comes into force, or ends, is noticed within a minute.
pub(crate) const TELL_TIME: Duration = Duration::from_secs(60);

/// Whether another controller still writes Services is a matter of minutes.
pub(crate) const TELL_TIME_OFTEN: Duration = Duration::from_secs(30);

pub(crate) async fn send_time(changes: Sender<Change>, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        if changes.send(Change::Time(now())).await.is_err() {
            return;
        }
    }
}

/// Since 1970.
pub(crate) fn now() -> Time {
    Time(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64)
}

impl DrainingProcess {
    pub(crate) async fn close(self) {
        self.admin.stop().await;
        drop(self.state);
    }
}

/// The Problems that a source has reported.
pub(crate) struct ReportedProblems {
    log: ProblemLog,
    now: HashMap<ObjectRef, Vec<Problem>>,
}

impl ReportedProblems {
    pub(crate) fn new(log: ProblemLog) -> ReportedProblems {
        ReportedProblems { log, now: HashMap::new() }
    }

    pub(crate) fn log(&mut self, change: &Change) {
        let Change::Reported(object, problems) = change else { return };
        let before = self.now.remove(object).unwrap_or_default();
        self.log.log_changes(&before, problems);
        if !problems.is_empty() {
            self.now.insert(object.clone(), problems.clone());
        }
    }
}

/// What the status page shows: plan, counters and Problems with their places, folded when somebody asks.
pub(crate) fn view_source(
    handle: &Handle,
    (host, places): (Option<&Arc<Host>>, Option<&Locator>),
    settings: &Settings,
    (stopping, owns): (&Arc<AtomicBool>, watch::Receiver<bool>),
    started: Time,
) -> seaway_admin::ViewSource {
    let (handle, host, places, stopping) = (handle.clone(), host.cloned(), places.cloned(), stopping.clone());
    let waiting = Arc::<allocation::UnallocatedSince>::default();
    let workers =
        settings.workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |it| it.get()));
    let base = View {
        version: version::LONG.to_owned(),
        host: settings.host.to_string(),
        started,
        workers: workers as u32,
        ..View::default()
    };
    Arc::new(move |look| {
        let (handle, host, places, mut view) = (handle.clone(), host.clone(), places.clone(), base.clone());
        let waiting = waiting.clone();
        let (stopping, owns) = (stopping.load(Ordering::Relaxed), *owns.borrow());
        Box::pin(async move {
            let phase = *handle.phase().borrow();
            view.readiness = match phase {
                _ if stopping => Readiness::Stopping,
                _ if !owns => Readiness::Waiting { why: "another process of this host serves".to_owned() },
                Phase::Serving => Readiness::Ready,
                Phase::Listening => Readiness::Starting,
                Phase::Converging { left } => {
                    Readiness::Waiting { why: format!("starting: {left} changes are not applied yet") }
                }
            };
            if look == ViewDetail::Readiness {
                return Arc::new(view);
            }
            let told = handle.ask(|world| {
                let of_load_balancers = (world.overview(), world.problems(), world.failures());
                let of_cluster = (allocation::part(world), world.pools());
                (of_load_balancers, of_cluster, world.certificates(), world.adoption(), world.dns_zones())
            });
            let ((plan, problems, failures), (part, pools), certificates, adoption, zones) =
                told.await.unwrap_or_default();
            view.part = part;
            view.allocation = part.allocates().then(|| allocation::view(now(), &waiting, &plan, &pools));
            view.services = seaway_node::counted_service_views(&plan, host.as_deref()).await;
            view.problems = problems;
            view.adoption = adoption.map(|it| adoption_view(&it));
            view.unit_failures = failures;
            view.units_marked = handle.counts().marked();
            view.drivers = drivers::views(handle.counts());
            view.lost_lines = host.as_ref().map_or(0, |host| host.proxy.lost_lines());
            view.layer2 = host.as_ref().and_then(|host| host.layer2_counts()).map(|it| layer2_view(&it));
            view.bgp = host.iter().flat_map(|host| host.bgp_peers()).map(bgp_view).collect();
            view.dns = zones.into_iter().map(dns_view).collect();
            view.memory = seaway_node::memory_view(host.as_ref().map(|host| &host.proxy));
            view.certificates = CertificatesView {
                by_state: [
                    ("valid", certificates.valid),
                    ("expiring", certificates.expiring),
                    ("expired", certificates.expired),
                    ("early", certificates.early),
                    ("broken", certificates.broken),
                ]
                .map(|(state, count)| (state.to_owned(), count))
                .into(),
                first_expiry: certificates.first,
            };
            if let Some(places) = places.filter(|_| !view.problems.is_empty()) {
                places.locate(&mut view.problems);
            }
            Arc::new(view)
        })
    })
}

fn layer2_view(counts: &Layer2Counts) -> Layer2View {
    Layer2View {
        by_state: counts.states.iter().map(|(state, count)| (state.as_str().to_owned(), *count)).collect(),
        moves: counts.moves,
        conflicts: counts.conflicts,
        overlaps: counts.overlaps,
    }
}

fn bgp_view(peer: BgpPeerStatus) -> BgpPeerView {
    let BgpPeerStatus { name, report, received } = peer;
    BgpPeerView {
        peer: name.to_string(),
        state: report.what.as_str().to_owned(),
        since: report.since,
        prefixes: report.sent,
        received,
        resets: report.resets,
        peer_asn: report.remote_as,
        bfd_up: report.bfd_up,
        detail: report.detail.to_string(),
    }
}

fn dns_view(counts: DnsZoneCounts) -> DnsZoneView {
    let DnsZoneCounts { zone, published, failed, waiting, failures } = counts;
    DnsZoneView { zone: zone.to_string(), published, failed, waiting, failures }
}

fn adoption_view(adoption: &Adoption) -> AdoptionView {
    let of = |why: NotAdopted| adoption.waiting.iter().filter(|it| it.why == why).count() as u64;
    AdoptionView {
        services: adoption.services as u64,
        adopted: adoption.adopted as u64,
        troubled: adoption.troubled as u64,
        stopped: adoption.stopped,
        waiting: NotAdopted::ALL.map(|why| (why.as_str().to_owned(), of(why))).into(),
    }
}
