//! What HAProxy counts, told as the native data plane tells it: by listeners, pools and members of load balancers.

mod tally;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use seaway_haproxy::{
    Document,
    runtime::{
        Counters, RuntimeApiConnection,
        statistics::{Health as Checked, Server},
    },
    words::Label,
};
use seaway_model::{LbKey, LoadBalancer, Pool, load_balancer::MemberState};
use seaway_proxy::{
    Health, HealthHistory, ListenerStatistics, MemberAvailability, MemberStatistics, PoolStatistics,
    RefusalReason, Traffic,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};
use tracing::debug;

use self::tally::AccumulatedCounters;
use super::writer::HaproxyState;

/// HAProxy is not asked again before this time has passed, nor before it had ten times as long for clients.
const PAUSE: Duration = Duration::from_millis(200);
const FOR_CLIENTS: u32 = 10;
/// A page does not wait longer for its numbers: it shows those of before.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pages and scrapes that wait.
const WAITING: usize = 64;

/// Asks HAProxy for its counters: one question at a time, for all who ask meanwhile.
pub(super) struct CounterReader {
    ask: mpsc::Sender<oneshot::Sender<()>>,
    tally: Arc<RwLock<AccumulatedCounters>>,
    state: Arc<RwLock<HaproxyState>>,
}

impl CounterReader {
    /// Ends when it is dropped.
    pub(super) fn start(socket: PathBuf, state: Arc<RwLock<HaproxyState>>) -> CounterReader {
        let (ask, asked) = mpsc::channel(WAITING);
        let tally = Arc::<RwLock<AccumulatedCounters>>::default();
        let counter = CounterTask { socket, state: state.clone(), tally: tally.clone() };
        tokio::spawn(counter.run(asked));
        CounterReader { ask, tally, state }
    }

    /// Returns once the counters are those of now, or of a moment ago.
    pub(super) async fn refresh(&self) {
        let (tell, told) = oneshot::channel();
        if self.ask.try_send(tell).is_ok() {
            // An error: it ends, and what is known stays.
            let _ = told.await;
        }
    }

    pub(super) fn statistics(&self) -> (Vec<ListenerStatistics>, Vec<PoolStatistics>) {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner).clone();
        let tally = self.tally.read().unwrap_or_else(PoisonError::into_inner);
        let Some(document) = &state.document else { return Default::default() };
        (listeners(&state, document, &tally), pools(&state, document, &tally))
    }
}

struct CounterTask {
    socket: PathBuf,
    state: Arc<RwLock<HaproxyState>>,
    tally: Arc<RwLock<AccumulatedCounters>>,
}

impl CounterTask {
    async fn run(self, mut asked: mpsc::Receiver<oneshot::Sender<()>>) {
        let mut next: Option<Instant> = None;
        while let Some(first) = asked.recv().await {
            if next.is_none_or(|it| it <= Instant::now()) {
                let began = Instant::now();
                if timeout(PATIENCE, self.read_counters()).await.is_err() {
                    debug!("HAProxy did not send its counters in time: the previous ones are shown");
                }
                let now = Instant::now();
                let pause = now.saturating_duration_since(began).saturating_mul(FOR_CLIENTS).max(PAUSE);
                next = now.checked_add(pause);
            }
            // Who asked meanwhile gets the same answer.
            let others = std::iter::from_fn(|| asked.try_recv().ok());
            for waiting in std::iter::once(first).chain(others) {
                // It may have given up.
                let _ = waiting.send(());
            }
        }
    }

    async fn read_counters(&self) {
        let worker = || self.state.read().unwrap_or_else(PoisonError::into_inner).worker();
        let Some(before) = worker() else { return };
        let counted = async { RuntimeApiConnection::connect(&self.socket).await?.statistics().await };
        match counted.await {
            // Of two workers it is not known which one answered.
            Ok(counted) if worker() == Some(before) => {
                self.tally.write().unwrap_or_else(PoisonError::into_inner).note(before, counted);
            }
            Ok(_) => {}
            Err(error) => debug!(error = &error as &dyn std::error::Error, "HAProxy sends no counters"),
        }
    }
}

/// HAProxy counts what comes to all addresses of a port as one: it is told of the first of them.
fn listeners(
    state: &HaproxyState,
    document: &Document,
    tally: &AccumulatedCounters,
) -> Vec<ListenerStatistics> {
    let all = document.origins.frontends.iter().filter_map(|(name, (owner, id))| {
        let listener = state.parts.get(owner)?.listeners.get(id)?;
        let binds = &document.frontends.get(name)?.binds;
        let counted = tally.frontends.get(name.as_str()).copied().unwrap_or_default();
        let of = |(place, at): (usize, &SocketAddr)| {
            let counted = if place == 0 { counted } else { Counters::default() };
            let mut told = ListenerStatistics::new(LbKey::Of(owner.clone()), at.ip(), listener.clone());
            told.traffic = traffic(&counted);
            (told.requests, told.answers) = (counted.requests, counted.answers);
            told.with_refused(RefusalReason::Source, counted.denied)
                .with_refused(RefusalReason::Header, counted.request_errors)
        };
        Some(binds.iter().enumerate().map(of).collect::<Vec<_>>())
    });
    all.flatten().collect()
}

/// A pool may be behind several backends, as routes have rules of their own: they are counted together.
fn pools(state: &HaproxyState, document: &Document, tally: &AccumulatedCounters) -> Vec<PoolStatistics> {
    let all = document.origins.backends.iter().filter_map(|((owner, id), names)| {
        let load_balancer: &LoadBalancer = state.parts.get(owner)?;
        let pool = load_balancer.pools.get(id)?;
        Some(PoolStatistics {
            key: LbKey::Of(owner.clone()),
            id: id.clone(),
            pool: pool.clone(),
            rests: false,
            waiting: 0,
            no_member: 0,
            latency: None,
            members: members(pool, names, tally),
        })
    });
    all.collect()
}

fn members(pool: &Pool, backends: &[Label], tally: &AccumulatedCounters) -> Vec<MemberStatistics> {
    let seen = tally.members(backends);
    let nothing = Server::default();
    let listed = pool.members.iter().map(|member| {
        let server = seen.get(&member.at).unwrap_or(&nothing);
        self::member(member.at, Some(member.state), member.weight, server)
    });
    let is_listed = |at: &SocketAddr| pool.members.iter().any(|it| it.at == *at);
    let leaving = seen.iter().filter(|(at, it)| it.counters.current > 0 && !is_listed(at));
    listed.chain(leaving.map(|(at, it)| member(*at, None, 0, it))).collect()
}

fn member(at: SocketAddr, state: Option<MemberState>, weight: u32, server: &Server) -> MemberStatistics {
    let counted = &server.counters;
    let is_down = server.health == Checked::Down;
    let ago = server.changed.filter(|_| is_down || counted.times_down > 0).map(Duration::from_secs);
    MemberStatistics {
        at,
        state,
        weight,
        health: match server.health {
            Checked::Up => Health::Up,
            Checked::Down => Health::Down,
            Checked::Unchecked | Checked::Maintenance => Health::Unknown,
        },
        standing: if is_down { MemberAvailability::Failed } else { MemberAvailability::Usable },
        warmth: 100,
        traffic: traffic(counted),
        connect_errors: counted.connect_errors,
        check_failures: counted.check_failures,
        retries: counted.retries,
        resets: counted.response_errors,
        timeouts: 0,
        measured: 0,
        took: 0,
        answers: counted.answers,
        health_history: HealthHistory {
            changed: ago.and_then(|it| SystemTime::now().checked_sub(it)),
            reason: server.last_check.as_str().into(),
            times_down: u32::try_from(counted.times_down).unwrap_or(u32::MAX),
        },
    }
}

fn traffic(counted: &Counters) -> Traffic {
    let narrow = |it: u64| u32::try_from(it).unwrap_or(u32::MAX);
    Traffic {
        current: narrow(counted.current),
        most: narrow(counted.most),
        total: counted.total,
        bytes_in: counted.bytes_in,
        bytes_out: counted.bytes_out,
    }
}
