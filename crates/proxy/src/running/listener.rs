//! A listener on one address as it runs.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use arc_swap::{ArcSwap, Guard};
use seaway_model::{
    L4, LbKey, Listener, ListenerId, PoolId,
    load_balancer::{Action, Filter, ForwardAuth, Protocol, Rule},
};

use seaway_snapshot::Routes;

use super::{RunningPool, SourceFilter, StatusClassCounters, limits::in_time, passthrough::Passthrough};
use crate::{
    descriptors::{DescriptorGuard, DescriptorShare, ListeningGuard},
    tls::{ListenerTls, TlsAlpnChallenges},
    worker::FairnessKey,
};

pub(crate) struct RunningListener {
    pub(crate) key: LbKey,
    /// Whose time of a worker is used for it.
    pub(crate) fairness_key: FairnessKey,
    pub(crate) at: SocketAddr,
    pub(crate) id: ListenerId,
    share: Arc<DescriptorShare>,
    config: ArcSwap<ListenerConfig>,
    /// One for each worker; workers hold clones. Kept here to be handed over to a successor.
    sockets: Mutex<OpenSockets>,
    closed_at: AtomicU64,
    active: AtomicU32,
    /// When the next newcomer would be exactly on time at the permitted rate, in microseconds.
    rate_due: AtomicU64,
    pub(crate) most: AtomicU32,
    pub(crate) total: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) connect_errors: AtomicU64,
    pub(crate) retries: AtomicU64,
    /// Of HTTP, as are the answers.
    pub(crate) requests: AtomicU64,
    pub(crate) answers: StatusClassCounters,
    refused: [AtomicU64; RefusalReason::ALL.len()],
}

#[derive(Default)]
struct OpenSockets {
    all: Vec<Arc<OwnedFd>>,
    /// They are a part of its load balancer's share of descriptors.
    _counted: Option<ListeningGuard>,
}

/// What may change of a listener while it listens.
pub(crate) struct ListenerConfig {
    pub(crate) listener: Arc<Listener>,
    sources: SourceFilter,
    /// What the first rule that forwards leads to: all there is to layer 4.
    first: WeightedPools,
    /// Of HTTP: which rule, and what each comes to, by its number.
    pub(crate) routes: Routes,
    paths: Vec<Option<Arc<RunningRoute>>>,
    /// For clients whose TLS ends here.
    pub(crate) listener_tls: Option<Arc<ListenerTls>>,
    /// For clients whose TLS is passed on as it comes.
    pub(crate) passthrough: Option<Passthrough>,
    /// Names that an authority may check now.
    pub(crate) validations: Option<TlsAlpnChallenges>,
}

/// A rule of HTTP, and where it leads.
struct RunningRoute {
    rule: Arc<Rule>,
    /// `None`: everybody may ask.
    sources: Option<SourceFilter>,
    choice: WeightedPools,
    mirrors: Vec<Mirror>,
    auth_pools: Vec<ForwardAuthPool>,
}

/// A pool that gets a copy of some requests.
pub(crate) struct Mirror {
    pub(crate) pool: Arc<RunningPool>,
    pub(crate) per_mille: u16,
}

/// The Service that has to allow requests (forward auth).
pub(crate) struct ForwardAuthPool {
    pub(crate) pool: Arc<RunningPool>,
    pub(crate) auth: Arc<ForwardAuth>,
}

/// Pools by weight.
#[derive(Default)]
pub(crate) struct WeightedPools {
    pools: Vec<(Arc<RunningPool>, u32)>,
    weight: u64,
}

/// Why a client was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// Not from an allowed range.
    Source,
    /// The limit on connections.
    Connections,
    /// The limit on new connections per second, or the share of its namespace.
    Rate,
    /// One client has made more requests than it may.
    ClientRate,
    /// A PROXY protocol header was required, and is missing, wrong or late.
    Header,
    /// No handshake of TLS came about.
    Tls,
    /// No member is usable, or none could be reached.
    NoMember,
    /// Out of descriptors or of memory.
    Resources,
    /// It came from ourselves, round and round.
    Loop,
}

impl RefusalReason {
    pub const ALL: [RefusalReason; 9] = [
        RefusalReason::Source,
        RefusalReason::Connections,
        RefusalReason::Rate,
        RefusalReason::ClientRate,
        RefusalReason::Header,
        RefusalReason::Tls,
        RefusalReason::NoMember,
        RefusalReason::Resources,
        RefusalReason::Loop,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            RefusalReason::Source => "source",
            RefusalReason::Connections => "connections",
            RefusalReason::Rate => "rate",
            RefusalReason::ClientRate => "client-rate",
            RefusalReason::Header => "header",
            RefusalReason::Tls => "tls",
            RefusalReason::NoMember => "no-member",
            RefusalReason::Resources => "resources",
            RefusalReason::Loop => "loop",
        }
    }
}

impl ListenerConfig {
    /// `before`: what it takes the place of. Rules that are in both are not made anew.
    pub(crate) fn new(
        listener: Arc<Listener>,
        listener_tls: Option<Arc<ListenerTls>>,
        before: Option<&ListenerConfig>,
        mut pool: impl FnMut(&PoolId) -> Arc<RunningPool>,
    ) -> ListenerConfig {
        let passthrough = listener.tls.as_ref().and_then(|tls| Passthrough::new(tls, &mut pool));
        let validations = listener.tls.as_ref().and_then(|tls| TlsAlpnChallenges::new(tls));
        let mut config = ListenerConfig {
            sources: SourceFilter::new(&listener.sources, &listener.denied),
            listener,
            first: WeightedPools::default(),
            routes: Routes::default(),
            paths: Vec::new(),
            listener_tls,
            passthrough,
            validations,
        };
        let rules = &config.listener.rules;
        if config.listener.protocol == Protocol::Http {
            let routes = before.map_or_else(|| Routes::compile(rules), |it| it.routes.changed_to(rules));
            let mut paths = vec![None; routes.numbers()];
            for (number, rule) in routes.rules() {
                let known = before.and_then(|it| it.paths.get(number)?.as_ref());
                let known = known.filter(|it| Arc::ptr_eq(&it.rule, rule)).cloned();
                if let Some(path) = paths.get_mut(number) {
                    *path =
                        Some(known.unwrap_or_else(|| Arc::new(RunningRoute::new(rule.clone(), &mut pool))));
                }
            }
            (config.routes, config.paths) = (routes, paths);
        } else {
            let mut choices = rules.iter().map(|rule| WeightedPools::of(rule, &mut pool));
            config.first = choices.find(|choice| !choice.pools.is_empty()).unwrap_or_default();
        }
        config
    }

    pub(crate) fn pool(&self, number: impl FnOnce() -> u64) -> Option<&Arc<RunningPool>> {
        self.first.pool(number)
    }

    /// One that layer 4 leads to, by its id.
    pub(crate) fn pool_by_id(&self, id: &PoolId) -> Option<&Arc<RunningPool>> {
        self.first.pools.iter().map(|(pool, _)| pool).find(|pool| pool.id == *id)
    }

    pub(crate) fn rule(&self, number: usize) -> Option<&Rule> {
        Some(&self.path(number)?.rule)
    }

    /// From where clients may make requests by that rule; `None`: from everywhere.
    pub(crate) fn sources_of(&self, rule: usize) -> Option<&SourceFilter> {
        self.path(rule)?.sources.as_ref()
    }

    /// Of that rule.
    pub(crate) fn pool_of(&self, rule: usize, number: impl FnOnce() -> u64) -> Option<&Arc<RunningPool>> {
        self.path(rule)?.choice.pool(number)
    }

    /// All that a rule leads to, with their weights.
    pub(crate) fn pools_of(&self, rule: usize) -> &[(Arc<RunningPool>, u32)] {
        self.path(rule).map_or(&[], |path| &path.choice.pools)
    }

    pub(crate) fn mirrors_of(&self, rule: usize) -> &[Mirror] {
        self.path(rule).map_or(&[], |path| &path.mirrors)
    }

    pub(crate) fn auth_pools_of(&self, rule: usize) -> &[ForwardAuthPool] {
        self.path(rule).map_or(&[], |path| &path.auth_pools)
    }

    fn path(&self, rule: usize) -> Option<&Arc<RunningRoute>> {
        self.paths.get(rule)?.as_ref()
    }

    pub(crate) fn admits(&self, ip: IpAddr) -> bool {
        self.sources.admits(ip)
    }

    /// A PROXY protocol header is required from there.
    pub(crate) fn trusts(&self, ip: IpAddr) -> bool {
        self.listener.proxy_from.iter().any(|range| range.contains(&ip))
    }
}

impl RunningRoute {
    fn new(rule: Arc<Rule>, pool: &mut impl FnMut(&PoolId) -> Arc<RunningPool>) -> RunningRoute {
        let choice = WeightedPools::of(&rule, pool);
        let mirrors = rule.filters.iter().filter_map(|filter| match filter {
            Filter::Mirror { to, per_mille } => Some(Mirror { pool: pool(to), per_mille: *per_mille }),
            _ => None,
        });
        let mirrors = mirrors.collect();
        let auth_pools =
            rule.asks.iter().map(|auth| ForwardAuthPool { pool: pool(&auth.pool), auth: auth.clone() });
        let auth_pools = auth_pools.collect();
        let sources = SourceFilter::new(&rule.sources, &rule.denied);
        let sources = Some(sources).filter(|it| !it.is_open());
        RunningRoute { choice, mirrors, auth_pools, sources, rule }
    }
}

impl WeightedPools {
    fn of(rule: &Rule, pool: &mut impl FnMut(&PoolId) -> Arc<RunningPool>) -> WeightedPools {
        match &rule.action {
            Action::Forward(pools) => {
                WeightedPools::new(pools.iter().map(|(id, weight)| (pool(id), *weight)).collect())
            }
            Action::Redirect(_) | Action::Respond { .. } => WeightedPools::default(),
        }
    }

    pub(super) fn new(pools: Vec<(Arc<RunningPool>, u32)>) -> WeightedPools {
        let weight = pools.iter().map(|(_, weight)| u64::from(*weight)).sum();
        WeightedPools { pools, weight }
    }

    /// By weight, given any number; all weights 0 means nobody.
    pub(crate) fn pool(&self, number: impl FnOnce() -> u64) -> Option<&Arc<RunningPool>> {
        match &*self.pools {
            [] => None,
            [(only, weight)] => (*weight > 0).then_some(only),
            several => {
                let mut mark = number().checked_rem(self.weight)?;
                let hit = several.iter().find(|(_, weight)| {
                    let hit = mark < u64::from(*weight);
                    mark = mark.wrapping_sub(u64::from(*weight));
                    hit
                });
                hit.map(|(pool, _)| pool)
            }
        }
    }
}

impl RunningListener {
    pub(crate) fn new(
        key: LbKey,
        at: SocketAddr,
        id: ListenerId,
        config: Arc<ListenerConfig>,
    ) -> RunningListener {
        RunningListener {
            fairness_key: FairnessKey::of(&key),
            key,
            at,
            id,
            share: DescriptorShare::unlimited(),
            config: ArcSwap::new(config),
            sockets: Mutex::default(),
            closed_at: AtomicU64::new(0),
            active: AtomicU32::new(0),
            rate_due: AtomicU64::new(0),
            most: AtomicU32::new(0),
            total: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            connect_errors: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            answers: StatusClassCounters::default(),
            refused: Default::default(),
        }
    }

    /// One of several that share descriptors with others.
    pub(crate) fn sharing(self, share: Arc<DescriptorShare>) -> RunningListener {
        RunningListener { share, ..self }
    }

    /// What each client of it needs: one for itself and one for its member, a flow only that.
    fn descriptors(&self) -> u32 {
        if self.id.l4 == L4::Udp { 1 } else { 2 }
    }

    pub(crate) fn config(&self) -> Guard<Arc<ListenerConfig>> {
        self.config.load()
    }

    /// Its connections are tasks of their own, not bytes that are passed on as they come.
    pub(crate) fn needs_parsing(&self) -> bool {
        self.config.load().listener.needs_parsing()
    }

    /// To be held for longer than a moment.
    pub(crate) fn config_owned(&self) -> Arc<ListenerConfig> {
        self.config.load_full()
    }

    pub(crate) fn set_config(&self, config: Arc<ListenerConfig>) {
        self.config.store(config);
    }

    /// One more client, if the limits let it in; it leaves with [`RunningListener::leave`].
    pub(crate) fn enter(&self, config: &ListenerConfig, now: u64) -> Result<(), RefusalReason> {
        if let Some(rate) = config.listener.limits.new_per_second
            && !in_time(&self.rate_due, rate, now)
        {
            return Err(RefusalReason::Rate);
        }
        if !self.share.admits(now) {
            return Err(RefusalReason::Rate);
        }
        self.enter_if(config, |share, count| share.take(count, now))
    }

    /// The same, in the place of another of its load balancer that has just left, after there was none free.
    pub(crate) fn enter_instead(&self, config: &ListenerConfig) -> Result<(), RefusalReason> {
        self.enter_if(config, |share, count| {
            share.take_anyway(count);
            true
        })
    }

    fn enter_if(
        &self,
        config: &ListenerConfig,
        take: impl FnOnce(&DescriptorShare, u32) -> bool,
    ) -> Result<(), RefusalReason> {
        let active = self.active.fetch_add(1, Relaxed).saturating_add(1);
        if config.listener.limits.connections.is_some_and(|most| active > most) {
            self.active.fetch_sub(1, Relaxed);
            return Err(RefusalReason::Connections);
        }
        if !take(&self.share, self.descriptors()) {
            self.active.fetch_sub(1, Relaxed);
            return Err(RefusalReason::Resources);
        }
        if active > self.most.load(Relaxed) {
            self.most.fetch_max(active, Relaxed);
        }
        self.total.fetch_add(1, Relaxed);
        Ok(())
    }

    /// A predecessor had let it in: limits are for newcomers.
    pub(crate) fn inherit(&self) {
        self.share.take_anyway(self.descriptors());
        let active = self.active.fetch_add(1, Relaxed).saturating_add(1);
        self.most.fetch_max(active, Relaxed);
    }

    /// A descriptor beyond what each client needs: for one of several members that it speaks with.
    pub(crate) fn take_descriptor(&self, now: u64) -> io::Result<DescriptorGuard> {
        self.share.take_one(now).ok_or(io::ErrorKind::QuotaExceeded.into())
    }

    pub(crate) fn leave(&self) {
        self.share.give_back(self.descriptors());
        self.active.fetch_sub(1, Relaxed);
    }

    pub(crate) fn active(&self) -> u32 {
        self.active.load(Relaxed)
    }

    pub(crate) fn refuse(&self, why: RefusalReason) {
        if let Some(count) = self.refused.get(why as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn refused(&self, why: RefusalReason) -> u64 {
        self.refused.get(why as usize).map_or(0, |it| it.load(Relaxed))
    }

    /// Gives back what it held of its sockets; workers let go of theirs when they are told.
    pub(crate) fn close(&self, now: u64) -> Vec<Arc<OwnedFd>> {
        self.closed_at.store(now, Relaxed);
        std::mem::take(&mut *self.sockets.lock().unwrap_or_else(PoisonError::into_inner)).all
    }

    pub(crate) fn closed_at(&self) -> Option<u64> {
        Some(self.closed_at.load(Relaxed)).filter(|at| *at != 0)
    }

    pub(crate) fn set_sockets(&self, sockets: Vec<Arc<OwnedFd>>) {
        let _counted = Some(self.share.listen(sockets.len()));
        *self.sockets.lock().unwrap_or_else(PoisonError::into_inner) = OpenSockets { all: sockets, _counted };
    }

    pub(crate) fn sockets(&self) -> Vec<Arc<OwnedFd>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).all.clone()
    }
}

#[cfg(test)]
mod tests;
