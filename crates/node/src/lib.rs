//! The host's role: what `seaway node`, and `seaway run`, do on the machine they run on.
//!
//! ```text
//!   Host ─┬─ Proxy      the data plane           ◄── drivers::native
//!         ├─ HAProxy    instead, where it is asked for ◄── drivers::haproxy
//!         ├─ Presence   addresses of pools on lo ◄── drivers::presence
//!         ├─ Layer2     addresses announced by ARP and NDP ◄── plan::Layer2Wanted
//!         ├─ Bgp        addresses announced to routers ◄── model::bgp::DesiredBgp
//!         ├─ addresses  what happens to addresses behind our back ──► a fact
//!         └─ view       plan and counters folded for the status page
//! ```
//!
//! It decides nothing: what should be served comes as Units of the plan. It knows neither where Services are written
//! nor how it is watched over the network.

mod addresses;
mod bgp;
mod layer2;
mod urls;
mod view;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use seaway_admin::view::MemoryView;
use seaway_announce::{ArpSettings, EnforcedSettings, Links, Steering};
use seaway_drivers::{
    HostPlacement,
    haproxy::{self, HaproxyHost},
    native::{self, Native, ReplyPath},
    presence::Presence,
};
use seaway_engine::Drivers;
use seaway_model::{Name, bgp::DesiredBgp, config::ReservedPorts, fact::HostReport, layer2::Layer2State};
use seaway_plan::{Layer2Wanted, Overview, Placement};
use seaway_proxy::{DrainResult, Proxy, Statistics};
use seaway_watchdog::Watchdog;

pub use addresses::AddressWatch;
pub use bgp::{BgpPasswords, BgpPeerStatus};
pub use layer2::{Layer2Counts, Layer2Settings, RECHECK_INTERVAL, read_key};
pub use seaway_drivers::presence::{AFTER_WITHDRAWAL, AFTER_WITHDRAWAL_OF_ROUTES};
pub use view::ServiceViews;

use self::{bgp::Bgp, layer2::Layer2};

/// What is planned, with the counters of whoever serves it here, for the status page.
pub fn service_views(plan: &[Overview], host: Option<&Host>) -> ServiceViews {
    view::merge_views(plan, &host.map(Host::statistics).unwrap_or_default())
}

/// As above, once HAProxy has told its counters, if it serves here.
pub async fn counted_service_views(plan: &[Overview], host: Option<&Host>) -> ServiceViews {
    if let Some(haproxy) = host.and_then(Host::haproxy) {
        haproxy.read_counters().await;
    }
    service_views(plan, host)
}

/// The memory that the proxy holds for its clients, for the status page.
pub fn memory_view(proxy: Option<&Proxy>) -> MemoryView {
    let memory = proxy.map(Proxy::memory).unwrap_or_default();
    MemoryView {
        bytes: memory.held,
        limit_bytes: memory.limit,
        refused: memory.refused,
        evicted: memory.evicted,
        flows_evicted: memory.flows_evicted,
    }
}

/// Makes this machine's settings such that it stays silent about addresses on `lo`, for whoever may not do so later.
pub fn enforce_arp_settings() -> Result<EnforcedSettings, seaway_announce::Error> {
    Ok(ArpSettings::default().enforce_for_good(&Links::open()?.links()?))
}

/// This machine as a serving host.
pub struct Host {
    pub name: Name,
    pub proxy: Proxy,
    /// Serves load balancers instead of `proxy`.
    haproxy: Option<Arc<HaproxyHost>>,
    presence: Arc<Presence>,
    /// Of a host of a cluster.
    steering: Option<Arc<Steering>>,
    answers: Arc<ReplyPath>,
    layer2: Layer2,
    bgp: Bgp,
}

impl Host {
    /// `named`: the host's own addresses, if they are not to be looked for. `recorded`: addresses of pools that may
    /// be here from before.
    pub fn new(
        name: Name,
        proxy: Proxy,
        named: Vec<IpAddr>,
        recorded: impl IntoIterator<Item = IpAddr>,
    ) -> Host {
        Host::with_presence(name.clone(), proxy, Presence::new(name, named, recorded))
    }

    /// A host of a cluster: its addresses of pools answer at our ports alone, whatever else listens on the machine, and take no
    /// port from it that it needs.
    pub fn in_cluster(name: Name, proxy: Proxy, named: Vec<IpAddr>, ports: ReservedPorts) -> Host {
        let steering = Arc::new(Steering::new(|port| ReservedPorts::default().contains(port)));
        proxy.steer_by(steering.clone());
        proxy.reserve_ports(ports);
        let presence = Presence::new(name.clone(), named, []).guarded(steering.clone());
        Host { steering: Some(steering), ..Host::with_presence(name, proxy, presence) }
    }

    fn with_presence(name: Name, proxy: Proxy, presence: Presence) -> Host {
        let presence = Arc::new(presence);
        let layer2 = Layer2::new(name.clone(), presence.clone());
        let bgp = Bgp::new(presence.clone());
        Host { name, proxy, haproxy: None, presence, steering: None, answers: Arc::default(), layer2, bgp }
    }

    /// Load balancers are served by this HAProxy.
    #[must_use]
    pub fn with_haproxy(self, haproxy: HaproxyHost) -> Host {
        Host { haproxy: Some(Arc::new(haproxy)), ..self }
    }

    /// From now on, ports that the machine needs: they are not taken from it at addresses of pools.
    pub fn reserve_ports(&self, ports: &ReservedPorts) {
        self.proxy.reserve_ports(ports.clone());
        if let Some(haproxy) = self.haproxy.as_ref().filter(|_| self.steering.is_some()) {
            haproxy.reserve(ports.clone());
        }
    }

    /// What whoever serves here counts. HAProxy's are those of the last [`HaproxyHost::count`].
    pub fn statistics(&self) -> Statistics {
        let mut statistics = self.proxy.statistics();
        if let Some(haproxy) = &self.haproxy {
            let (listeners, pools) = haproxy.statistics();
            statistics.listeners.extend(listeners);
            statistics.pools.extend(pools);
        }
        statistics
    }

    /// HAProxy, if it serves here: it says when it dies and when it is back.
    pub fn haproxy(&self) -> Option<&Arc<HaproxyHost>> {
        self.haproxy.as_ref()
    }

    pub fn placement(&self) -> Arc<dyn Placement> {
        let driver = match self.haproxy {
            Some(_) => haproxy::DRIVER,
            None => native::DRIVER,
        };
        Arc::new(HostPlacement::new(self.name.clone(), driver))
    }

    /// Adds what works this host's Units off.
    #[must_use]
    pub fn with_drivers(&self, drivers: Drivers) -> Drivers {
        let drivers = match &self.haproxy {
            Some(haproxy) => drivers.with_shared(haproxy.clone()),
            None => drivers
                .with(Native::new(self.proxy.clone(), self.name.clone()).with_answers(self.answers.clone())),
        };
        drivers.with_shared(self.presence.clone())
    }

    /// What this host says of itself now.
    pub fn report(&self) -> Result<HostReport, seaway_announce::Error> {
        self.bgp.record_sessions();
        self.presence.report()
    }

    /// It announced an address until a moment ago, and is to report again [`AFTER_WITHDRAWAL`] later.
    pub fn has_withdrawn(&self) -> bool {
        self.presence.has_withdrawn()
    }

    /// Addresses that the configuration names as this host's own, and that none of its interfaces has now.
    pub fn missing_addresses(&self) -> Result<Vec<IpAddr>, seaway_announce::Error> {
        self.presence.missing()
    }

    /// Tells a report after each change of an address, until it is dropped.
    pub fn watch_addresses(
        &self,
        tell: impl FnMut(HostReport) + Send + 'static,
    ) -> std::io::Result<AddressWatch> {
        AddressWatch::start(self.presence.clone(), tell)
    }

    /// Announces by ARP and NDP what the plan wants. `changed` is called, from another thread, when this host has another thing to
    /// report, and must not wait. To be called again every [`RECHECK_INTERVAL`], as the file of the key may have changed.
    pub fn announce(
        &self,
        wanted: &Layer2Wanted,
        settings: &Layer2Settings,
        watchdog: Option<&Watchdog>,
        changed: &Arc<dyn Fn() + Send + Sync>,
    ) {
        self.layer2.reconcile(wanted, settings, watchdog, changed);
    }

    /// Announces by BGP what the plan wants; the first time, this must be all that a process of before announced. `changed` is as
    /// with [`Host::announce`]. Tells how soon it is to be called again, if sooner than every [`RECHECK_INTERVAL`].
    pub fn announce_by_bgp(
        &self,
        wanted: &DesiredBgp,
        passwords: &BgpPasswords,
        watchdog: Option<&Watchdog>,
        changed: &Arc<dyn Fn() + Send + Sync>,
    ) -> Option<Duration> {
        self.bgp.reconcile(wanted, passwords, watchdog, changed)
    }

    /// Announces nothing any more, though what is connected is served: another process of this host does.
    pub fn stop_announcing(&self) {
        self.layer2.stop();
        self.bgp.hand_over();
    }

    /// By ARP and NDP, while it is not known yet whether another process of this host goes on: routers then keep its routes, or
    /// are told to forget them.
    pub fn stop_announcing_to_neighbors(&self) {
        self.layer2.stop();
    }

    /// This process ends at once: HAProxy does not serve on alone.
    pub async fn kill_haproxy(&self) {
        if let Some(haproxy) = &self.haproxy {
            haproxy.kill().await;
        }
    }

    /// This process ends at once, and no other one goes on: routers are told.
    pub fn end_sessions(&self) {
        self.bgp.end_sessions();
    }

    pub fn layer2_counts(&self) -> Option<Layer2Counts> {
        self.layer2.counts()
    }

    /// What became of each address that this host offers by ARP and NDP.
    pub fn layer2_states(&self) -> BTreeMap<IpAddr, Layer2State> {
        self.presence.layer2()
    }

    /// What became of each BGP session.
    pub fn bgp_peers(&self) -> Vec<BgpPeerStatus> {
        self.bgp.peers_now()
    }

    /// Another process of this host serves: what only one may do ends here. Who is connected is served on, and its addresses stay.
    pub fn retire(&self) {
        self.stop_announcing();
        self.stop_steering();
    }

    fn stop_steering(&self) {
        if let Some(Err(error)) = self.steering.as_ref().map(|it| it.retire()) {
            tracing::warn!(%error, "the nftables table of this process cannot be removed");
        }
    }

    /// A clean stop: what is announced is withdrawn first, then nobody new, who is there may finish until the deadline, and our addresses go.
    pub fn stop(&self, patience: Duration) -> DrainResult {
        self.stop_with_successor(patience, || {}, || true)
    }

    /// As above, where another process may begin as soon as this one takes nobody new, which is when `let_go` is called. Addresses
    /// go only if `is_alone` says that none has.
    pub fn stop_with_successor(
        &self,
        patience: Duration,
        let_go: impl FnOnce(),
        is_alone: impl FnOnce() -> bool,
    ) -> DrainResult {
        self.withdraw();
        self.proxy.stop_accepting();
        self.stop_steering();
        let_go();
        let deadline = Instant::now() + patience;
        let drained = self.proxy.drain(deadline);
        if let Some(haproxy) = &self.haproxy {
            haproxy.stop_blocking(deadline.saturating_duration_since(Instant::now()));
        }
        if !is_alone() {
            tracing::info!("addresses stay on lo: another process of this host serves them");
        } else if let Err(error) = self.presence.clear() {
            tracing::warn!(%error, "addresses cannot be removed from lo");
        }
        if let Some(leftovers) = self.answers.leftovers() {
            tracing::info!("{leftovers}");
        }
        drained
    }

    /// Leaves clients and routers the time to hear of it, if anything was announced.
    fn withdraw(&self) {
        let (was_routed, was_answered) = thread::scope(|scope| {
            let routes = scope.spawn(|| self.bgp.withdraw());
            let addresses = self.layer2.withdraw();
            (routes.join().unwrap_or(true), addresses)
        });
        let pause = match (was_routed, was_answered) {
            (true, _) => AFTER_WITHDRAWAL_OF_ROUTES,
            (false, true) => AFTER_WITHDRAWAL,
            (false, false) => return,
        };
        tracing::info!("addresses are not announced any more");
        thread::sleep(pause);
    }
}
