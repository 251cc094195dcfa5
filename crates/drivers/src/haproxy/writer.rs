//! The only one that writes HAProxy's configuration: parts that come together are written together, and a part that HAProxy
//! refuses is found by halving. So it is where HAProxy died and cannot start again: all is written from the beginning then.

mod members;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use seaway_haproxy::{
    ConfigInput, Document, Exclusions, Global, Haproxy, Options, ProcessError, Version, document,
    document::Slot, version, words::Label,
};
use seaway_model::{
    L4, LoadBalancer, Owner, Problem, config::ReservedPorts, load_balancer::Bind, outcome::ServingSocket,
};
use thiserror::Error;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::AbortHandle,
    time::timeout,
};
use tracing::{info, warn};

use super::{Parts, certificates::Certificates, health::Health};

/// What comes within this time is written together.
const GATHER: Duration = Duration::from_millis(2);
/// The same before HAProxy runs: then all load balancers come, and each that is late costs a reload.
const GATHER_AT_START: Duration = Duration::from_millis(100);
/// But no longer than so often that.
const GATHERED: usize = 100_000;
/// HAProxy that died is tried again by itself so often, which takes a second or two: a port may be free in a moment.
const FAILED_STARTS: u32 = 5;
/// After so many failures one after the other that are not said to be about the configuration, no single part is their cause.
const FAILURES: usize = 64;
/// So often all is written from the beginning, for parts that came at one time.
const BEGINNINGS: usize = 3;

/// What HAProxy serves for an owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServedPart {
    /// The last that HAProxy took.
    pub load_balancer: Option<Arc<LoadBalancer>>,
    pub at: Vec<ServingSocket>,
    /// What of it HAProxy cannot do.
    pub problems: Vec<(Owner, Problem)>,
    /// HAProxy is dead: nothing of it is open until it serves again.
    pub is_down: bool,
}

/// Why a part is not served as it was put.
#[derive(Debug, Error)]
pub(super) enum WriteError {
    /// Because of this part.
    #[error("HAProxy rejects the configuration of this load balancer")]
    Refused(#[source] Arc<ProcessError>),
    /// Because of something else.
    #[error("the change cannot be sent to HAProxy")]
    Failed(#[source] Arc<ProcessError>),
    #[error("{0}")]
    Version(String),
    #[error("HAProxy is being stopped")]
    Stopped,
}

type Answer = Result<(), Arc<WriteError>>;

struct Part {
    owner: Owner,
    load_balancer: Option<Arc<LoadBalancer>>,
    /// `None`: it was served before, and is written again.
    answer: Option<oneshot::Sender<Answer>>,
}

/// What HAProxy serves now, and which of its workers does.
#[derive(Clone, Debug, Default)]
pub(super) struct HaproxyState {
    /// As HAProxy took them.
    pub(super) parts: Arc<Parts>,
    pub(super) document: Option<Arc<Document>>,
    health: Option<Health>,
}

impl HaproxyState {
    pub(super) fn worker(&self) -> Option<u32> {
        self.health.as_ref().and_then(|it| it.report.borrow().worker)
    }
}

pub(super) struct Writer {
    orders: mpsc::UnboundedSender<Part>,
    served: Arc<RwLock<BTreeMap<Owner, ServedPart>>>,
    state: Arc<RwLock<HaproxyState>>,
    /// Ports that are not opened at addresses of pools.
    reserved: Arc<RwLock<Option<ReservedPorts>>>,
    /// What is open is other than before, though nobody asked for it.
    changed: watch::Receiver<()>,
    /// With the time that connections have to end.
    stop: watch::Sender<Option<Duration>>,
    task: AbortHandle,
    /// Closed once the task has ended.
    ended: watch::Receiver<()>,
}

impl Writer {
    pub(super) fn start(options: Options, global: Global) -> Writer {
        // As many wait as there are Units: each for its own answer.
        let (orders, taken) = mpsc::unbounded_channel();
        let served = Arc::<RwLock<BTreeMap<Owner, ServedPart>>>::default();
        let state = Arc::<RwLock<HaproxyState>>::default();
        let reserved = Arc::<RwLock<Option<ReservedPorts>>>::default();
        let (change, changed) = watch::channel(());
        let work = WriterTask {
            options,
            global,
            haproxy: None,
            version: None,
            served: served.clone(),
            state: state.clone(),
            reserved: reserved.clone(),
            change,
            certificates: Certificates::default(),
            slots: BTreeMap::new(),
        };
        let (stop, stopped) = watch::channel(None);
        let (alive, ended) = watch::channel(());
        let task = tokio::spawn(async move {
            work.run(taken, stopped).await;
            drop(alive);
        });
        Writer { orders, served, state, reserved, changed, stop, task: task.abort_handle(), ended }
    }

    pub(super) fn served(&self, owner: &Owner) -> ServedPart {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner).get(owner).cloned();
        let mut served = served.unwrap_or_default();
        if served.load_balancer.is_some() && self.health().is_some_and(|it| !it.serves()) {
            (served.at, served.is_down) = (Vec::new(), true);
        }
        served
    }

    /// Told whenever what is open is other than before, though nobody asked for it: HAProxy died, or serves again.
    pub(super) fn changed(&self) -> watch::Receiver<()> {
        self.changed.clone()
    }

    /// Those of whom something is, or was, served.
    pub(super) fn owners(&self) -> Vec<Owner> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// From the next change on. What was opened there before stays as it is until then.
    pub(super) fn reserve(&self, ports: ReservedPorts) {
        *self.reserved.write().unwrap_or_else(PoisonError::into_inner) = Some(ports);
    }

    pub(super) fn reloads(&self) -> u32 {
        self.health().map(|it| it.report.borrow().reloads.values().sum()).unwrap_or_default()
    }

    pub(super) fn state(&self) -> Arc<RwLock<HaproxyState>> {
        self.state.clone()
    }

    fn health(&self) -> Option<Health> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).health.clone()
    }

    /// Returns once HAProxy serves it, or no longer does.
    pub(super) async fn put(&self, owner: &Owner, load_balancer: Option<Arc<LoadBalancer>>) -> Answer {
        let (answer, answered) = oneshot::channel();
        let stopped = || Arc::new(WriteError::Stopped);
        let part = Part { owner: owner.clone(), load_balancer, answer: Some(answer) };
        self.orders.send(part).map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }

    /// Whatever is being written is given up.
    pub(super) async fn stop(&self, patience: Duration) {
        self.stop.send_replace(Some(patience));
        self.end().await;
    }

    /// HAProxy ends at once, with the connections that it has.
    pub(super) async fn kill(&self) {
        self.task.abort();
        self.end().await;
    }

    /// Until the task and HAProxy have ended.
    async fn end(&self) {
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
        if let Some(health) = self.health() {
            seaway_haproxy::process::ended(health.report).await;
        }
    }
}

struct WriterTask {
    options: Options,
    global: Global,
    haproxy: Option<Haproxy>,
    version: Option<Version>,
    served: Arc<RwLock<BTreeMap<Owner, ServedPart>>>,
    state: Arc<RwLock<HaproxyState>>,
    reserved: Arc<RwLock<Option<ReservedPorts>>>,
    change: watch::Sender<()>,
    certificates: Certificates,
    /// Of backends whose members changed since the document was made.
    slots: BTreeMap<Label, Vec<Slot>>,
}

impl WriterTask {
    async fn run(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Part>,
        mut stop: watch::Receiver<Option<Duration>>,
    ) {
        let patience = tokio::select! {
            // Who waits for its part is answered by the end of the channel.
            patience = stop.wait_for(Option::is_some) => patience.ok().and_then(|it| *it).unwrap_or_default(),
            () = self.follow(&mut orders) => Duration::ZERO,
        };
        drop(orders);
        self.stop(patience).await;
    }

    async fn stop(&mut self, patience: Duration) {
        let Some(haproxy) = self.haproxy.take() else { return };
        if timeout(patience, haproxy.stop()).await.is_err() {
            info!("HAProxy is stopped and its connections are closed: the drain period is over");
        }
    }

    /// Until there is nobody who could give an order.
    async fn follow(&mut self, orders: &mut mpsc::UnboundedReceiver<Part>) {
        loop {
            let first = tokio::select! {
                first = orders.recv() => first,
                () = given_up(self.haproxy.as_ref()) => {
                    self.write_all(Vec::new()).await;
                    continue;
                }
            };
            let Some(first) = first else { return };
            let gather = if self.haproxy.is_some() { GATHER } else { GATHER_AT_START };
            let mut parts = vec![first];
            while parts.len() < GATHERED
                && let Ok(Some(part)) = timeout(gather, orders.recv()).await
            {
                parts.push(part);
            }
            self.write_all(parts).await;
        }
    }

    /// All at once. If that fails, by halves: a part that is refused alone keeps what it had.
    async fn write_all(&mut self, parts: Vec<Part>) {
        let mut left = vec![parts];
        let (mut failures, mut beginnings) = (0_usize, 0_usize);
        while let Some(mut parts) = left.pop() {
            if self.is_down() && beginnings < BEGINNINGS {
                beginnings = beginnings.saturating_add(1);
                parts = self.begin_again(parts, &mut left).await;
            }
            match self.write(&parts).await {
                // It may be because of any part.
                Err(_) if self.is_down() && beginnings < BEGINNINGS => left.push(parts),
                Err(error) if parts.len() > 1 && may_be_one(&error, failures) => {
                    failures = failures.saturating_add(1);
                    let second = parts.split_off(parts.len().div_ceil(2));
                    left.push(second);
                    left.push(parts);
                }
                answer => {
                    failures = if answer.is_ok() { 0 } else { failures.saturating_add(1) };
                    if answer.is_ok() {
                        self.forget_removed(&parts);
                    }
                    parts.into_iter().for_each(|it| it.answer(&answer));
                }
            }
        }
        if beginnings > 0 {
            // Those who did not ask hear of it as well.
            self.change.send_replace(());
        }
    }

    /// Of them nothing is to be told any more.
    fn forget_removed(&self, parts: &[Part]) {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        for part in parts.iter().filter(|it| it.load_balancer.is_none()) {
            served.remove(&part.owner);
        }
    }

    /// Whether HAProxy has died, and was not started again; or cannot be told anything any more.
    fn is_down(&self) -> bool {
        let report = self.haproxy.as_ref().map(Haproxy::report);
        report.is_some_and(|it| it.borrow().failed_starts > 0 || it.has_changed().is_err())
    }

    /// All parts as they were served, and behind them what is to be written, for a new HAProxy.
    async fn begin_again(&mut self, parts: Vec<Part>, left: &mut Vec<Vec<Part>>) -> Vec<Part> {
        warn!(
            "HAProxy died and cannot be started: all load balancers are written again, to find the one that it refuses"
        );
        if let Some(haproxy) = self.haproxy.take() {
            haproxy.kill().await;
        }
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        served.values_mut().for_each(|it| *it = ServedPart::default());
        drop(served);
        let parts_of_before =
            std::mem::take(&mut self.state.write().unwrap_or_else(PoisonError::into_inner).parts);
        let served = parts_of_before.iter().map(|(owner, it)| Part {
            owner: owner.clone(),
            load_balancer: Some(it.clone()),
            answer: None,
        });
        let next = std::iter::once(parts).chain(left.drain(..).rev());
        served.chain(next.flatten()).collect()
    }

    async fn write(&mut self, parts: &[Part]) -> Answer {
        if self.write_members(parts).await {
            return Ok(());
        }
        self.take_in_slots();
        let before = self.state();
        let mut all = (*before.parts).clone();
        for part in parts {
            match &part.load_balancer {
                Some(wanted) => all.insert(part.owner.clone(), wanted.clone()),
                None => all.remove(&part.owner),
            };
        }
        let version = self.version().await?;
        let (unusable, of_certificates) = self.certificates.check(&all);
        let ports = self.reserved.read().unwrap_or_else(PoisonError::into_inner).clone();
        let unusable = Exclusions { ports, ..unusable };
        let wanted = ConfigInput {
            load_balancers: &all,
            version,
            global: &self.global,
            unusable: &unusable,
            before: before.document.as_deref(),
        };
        let (document, mut problems) = document(wanted);
        problems.extend(of_certificates);
        let document = Arc::new(document);
        self.serve(&document, all.is_empty()).await?;
        self.publish(&document, &all, problems);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        (state.document, state.parts) = (Some(document), Arc::new(all));
        Ok(())
    }

    fn state(&self) -> HaproxyState {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn version(&mut self) -> Result<Version, Arc<WriteError>> {
        if let Some(version) = self.version {
            return Ok(version);
        }
        let program = &self.options.program;
        let found = version(program).await.map_err(|error| Arc::new(WriteError::Failed(Arc::new(error))))?;
        let version = found.and_then(|(major, minor)| Version::of(major, minor));
        self.version = version;
        version.ok_or_else(|| {
            let program = program.display();
            Arc::new(WriteError::Version(match found {
                Some((major, minor)) => {
                    format!("{program} is HAProxy {major}.{minor}: 2.6 or later is needed")
                }
                None => format!("{program} -v prints no version of HAProxy"),
            }))
        })
    }

    async fn serve(&mut self, document: &Arc<Document>, is_empty: bool) -> Answer {
        let Some(haproxy) = &self.haproxy else {
            if is_empty {
                return Ok(());
            }
            let started = Haproxy::start(self.options.clone(), document.clone()).await;
            let started = started.map_err(|error| why(Arc::new(error)))?;
            let health = Health::follow(started.report(), self.change.clone());
            self.state.write().unwrap_or_else(PoisonError::into_inner).health = Some(health);
            self.haproxy = Some(started);
            info!(config = %self.options.config.display(), "HAProxy started");
            return Ok(());
        };
        let Err(error) = haproxy.serve(document.clone()).await else { return Ok(()) };
        // It is not to try the refused one again by itself, after its next start.
        if let Some(before) = self.state().document.filter(|_| !self.is_down())
            && let Err(error) = haproxy.serve(before).await
        {
            warn!(error = %error, "HAProxy rejects the previous configuration, too");
        }
        Err(why(error))
    }

    fn publish(&self, document: &Document, all: &Parts, problems: Vec<(Owner, Problem)>) {
        let binds: BTreeSet<SocketAddr> =
            document.frontends.values().flat_map(|it| it.binds.iter().copied()).collect();
        let mut served: BTreeMap<Owner, ServedPart> = BTreeMap::new();
        for (owner, load_balancer) in all {
            let at = at(load_balancer, &binds);
            let load_balancer = Some(load_balancer.clone());
            served.insert(owner.clone(), ServedPart { load_balancer, at, ..ServedPart::default() });
        }
        let mut concerned = None;
        // Those of listeners that others have at the front door are told by who asked for the door.
        for (owner, problem) in problems {
            let of = match served.contains_key(&owner) {
                true => Some(&owner),
                false => concerned.get_or_insert_with(|| self::concerned(all)).get(&owner).copied(),
            };
            if let Some(served) = of.and_then(|it| served.get_mut(it)) {
                served.problems.push((owner.clone(), problem));
            }
        }
        let mut before = self.served.write().unwrap_or_else(PoisonError::into_inner);
        // Those of whom nothing is served any more are told so.
        let lost = before.keys().filter(|it| !served.contains_key(*it)).cloned().collect::<Vec<_>>();
        served.extend(lost.into_iter().map(|it| (it, ServedPart::default())));
        *before = served;
    }
}

impl Part {
    fn answer(self, answer: &Answer) {
        match (self.answer, answer) {
            // Who asked may have given up.
            (Some(asked), _) => drop(asked.send(answer.clone())),
            // Who asked for it sees that it is not served, when it looks again.
            (None, Err(error)) => {
                warn!(owner = %self.owner, error = &**error as &dyn std::error::Error, "HAProxy cannot be set back to the previous configuration of this load balancer");
            }
            (None, Ok(())) => {}
        }
    }
}

/// When HAProxy has died and does not come back.
async fn given_up(haproxy: Option<&Haproxy>) {
    match haproxy.map(Haproxy::report) {
        // An error says that nobody tries any more.
        Some(mut report) => drop(report.wait_for(|it| it.failed_starts >= FAILED_STARTS).await),
        None => std::future::pending().await,
    }
}

/// Whether one part may be the cause, after so many failures in a row.
fn may_be_one(error: &WriteError, failures: usize) -> bool {
    match error {
        WriteError::Refused(_) => true,
        WriteError::Failed(error) => {
            failures < FAILURES && matches!(**error, ProcessError::Write { .. } | ProcessError::Socket(_))
        }
        WriteError::Version(_) | WriteError::Stopped => false,
    }
}

/// One that is about the configuration: a part of it may be the cause.
fn why(error: Arc<ProcessError>) -> Arc<WriteError> {
    Arc::new(match &*error {
        ProcessError::Invalid { .. } | ProcessError::Reload { .. } | ProcessError::Ended { .. } => {
            WriteError::Refused(error)
        }
        _ => WriteError::Failed(error),
    })
}

/// Where HAProxy listens for it.
fn at(load_balancer: &LoadBalancer, binds: &BTreeSet<SocketAddr>) -> Vec<ServingSocket> {
    let ips = load_balancer.binds.iter().filter_map(Bind::ip);
    let all = ips.flat_map(|ip| load_balancer.listeners.keys().map(move |id| (ip, *id)));
    let served = all.filter(|(ip, id)| id.l4 == L4::Tcp && binds.contains(&SocketAddr::new(*ip, id.port)));
    served.map(|(ip, id)| ServingSocket { ip, protocol: id.l4, port: id.port }).collect()
}

/// The first whose listener or pool is an owner's, as at the front door.
fn concerned(all: &Parts) -> BTreeMap<&Owner, &Owner> {
    let mut concerned = BTreeMap::new();
    for (of, it) in all.iter().rev() {
        concerned.extend(it.listeners.values().map(|it| (&it.owner, of)));
        concerned.extend(it.pools.values().map(|it| (&it.owner, of)));
    }
    concerned
}
