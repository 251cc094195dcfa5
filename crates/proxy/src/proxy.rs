//! What others do with the data plane: from any thread, cheap to clone, blocking at most for a few system calls.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use seaway_announce::Steering;
use seaway_model::{
    L4, LbKey, Listener, ListenerId, ObjectRef, Pool, PoolId, config::ReservedPorts,
    load_balancer::Certificate,
};
use seaway_watchdog::WatchedPart;

use crate::{
    access::{AccessLog, AccessLogError},
    descriptors::DescriptorShare,
    health::Prober,
    memory::MemoryLimits,
    open::{self, OpenError},
    proxy_state::ProxyState,
    running::{self, LoadBalancerState, RunningListener},
    statistics::{MemoryStatistics, Statistics},
    sys,
    tls::{KeyError, LoadedCertificate},
    worker::{Mailbox, Worker, WorkerCommand},
};

#[derive(Clone, Debug)]
pub struct Settings {
    pub workers: usize,
    /// Worker i runs on processor i only.
    pub pin: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        let workers = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Settings { workers, pin: false }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the data plane cannot start")]
pub struct StartError(#[from] io::Error);

/// The running data plane. When the last clone is dropped, everything it serves ends.
#[derive(Clone)]
pub struct Proxy {
    engine: Arc<DataPlane>,
}

struct DataPlane {
    shared: Arc<ProxyState>,
    prober: Prober,
    threads: Mutex<Vec<JoinHandle<()>>>,
    parts: Vec<WatchedPart>,
}

/// What runs for one load balancer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunningLoadBalancer {
    pub sockets: BTreeMap<(IpAddr, ListenerId), Arc<Listener>>,
    pub pools: BTreeMap<PoolId, Arc<Pool>>,
    pub certificates: Arc<BTreeMap<ObjectRef, Arc<Certificate>>>,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainResult {
    /// Connections that were cut at the deadline.
    pub cut: usize,
}

impl Proxy {
    pub fn start(settings: Settings) -> Result<Proxy, StartError> {
        let workers = settings.workers.max(1);
        let mailboxes: Vec<_> =
            (0..workers).map(|_| Mailbox::new().map(Arc::new)).collect::<io::Result<_>>()?;
        let shared = Arc::new(ProxyState::new(mailboxes.clone()));
        let (mut ready, mut parts) = (Vec::new(), Vec::new());
        for (index, mailbox) in mailboxes.into_iter().enumerate() {
            let (worker, part) = Worker::new(index, mailbox, shared.clone())?.watched();
            ready.push(worker);
            parts.push(part);
        }
        let known = shared.clone();
        let prober = Prober::start(move || known.registry.pools())?;
        parts.push(prober.part());
        let engine = Arc::new(DataPlane { shared, prober, threads: Mutex::default(), parts });
        for (index, worker) in ready.into_iter().enumerate() {
            let pin = settings.pin;
            let thread = thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
                if pin && let Err(error) = sys::pin_to(index) {
                    tracing::warn!(worker = index, %error, "a worker cannot be pinned to its CPU");
                }
                // Its sockets would go on taking clients whom nobody serves: better a process that is started anew.
                match catch_unwind(AssertUnwindSafe(|| worker.run())) {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => {
                        tracing::error!(worker = index, %error, "a worker cannot wait for events; the process ends");
                    }
                    Err(_) => tracing::error!(worker = index, "a worker has failed; the process ends"),
                }
                std::process::abort();
            })?;
            engine.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(Proxy { engine })
    }

    /// For the watchdog: the workers and the prober.
    pub fn parts(&self) -> Vec<WatchedPart> {
        self.engine.parts.clone()
    }

    /// `None`: nothing runs for it, and nothing of it goes on.
    pub fn running(&self, key: &LbKey) -> Option<RunningLoadBalancer> {
        let registry = self.shared().registry.lock();
        let state = registry.get(key)?;
        let sockets = state
            .listeners
            .iter()
            .map(|(place, listener)| (*place, listener.config().listener.clone()))
            .collect();
        let pools = state.pools.iter().filter_map(|(id, pool)| {
            let live = pool.live();
            live.present.then(|| (id.clone(), live.compiled.pool().clone()))
        });
        let running =
            RunningLoadBalancer { sockets, pools: pools.collect(), certificates: state.shown.clone() };
        (running != RunningLoadBalancer::default()).then_some(running)
    }

    pub fn keys(&self) -> Vec<LbKey> {
        let keys: Vec<LbKey> = self.shared().registry.lock().keys().cloned().collect();
        keys.into_iter().filter(|key| self.running(key).is_some()).collect()
    }

    /// New, or swapped: existing connections stay where they are, those of members that are gone have until their
    /// listener's drain time is over.
    pub fn put_pool(&self, key: &LbKey, pool: Arc<Pool>) {
        let id = pool.id.clone();
        self.change_pool(key, &id, Some(pool));
    }

    pub fn remove_pool(&self, key: &LbKey, id: &PoolId) {
        self.change_pool(key, id, None);
    }

    fn change_pool(&self, key: &LbKey, id: &PoolId, pool: Option<Arc<Pool>>) {
        let now = sys::millis();
        let (running, drains) = running::put_pool(&self.shared().registry, key, id, pool, now);
        self.engine.prober.watch(&running);
        for drain in drains {
            self.shared()
                .send_to_workers(&WorkerCommand::SweepAt(now.saturating_add(drain.as_millis() as u64)));
        }
    }

    /// New, or renewed: whoever shakes hands from now on gets it. One that cannot be used changes nothing.
    pub fn put_certificate(
        &self,
        key: &LbKey,
        name: &ObjectRef,
        certificate: &Arc<Certificate>,
    ) -> Result<(), KeyError> {
        let keys = LoadedCertificate::read(certificate)?;
        self.change_certificate(key, name, Some(Arc::new(keys)));
        Ok(())
    }

    pub fn remove_certificate(&self, key: &LbKey, name: &ObjectRef) {
        self.change_certificate(key, name, None);
    }

    fn change_certificate(&self, key: &LbKey, name: &ObjectRef, keys: Option<Arc<LoadedCertificate>>) {
        let mut registry = self.shared().registry.lock();
        let state = registry.entry(key.clone()).or_default();
        state.put_certificate(name, keys);
        // Authorities of clients are part of a listener's terms.
        let concerned = |listener: &Arc<RunningListener>| {
            let tls = listener.config().listener.tls.clone();
            let of_hosts = tls.iter().flat_map(|tls| tls.hosts.values()).filter_map(|it| it.clients.as_ref());
            let mut clients = tls.iter().filter_map(|tls| tls.clients.as_ref()).chain(of_hosts);
            clients.any(|clients| clients.authorities == *name)
        };
        let listeners: Vec<_> = state.listeners.values().filter(|it| concerned(it)).cloned().collect();
        if !listeners.is_empty() {
            state.forget_terms();
        }
        for listener in listeners {
            let config = state.listener_config(
                key,
                listener.config().listener.clone(),
                self.shared().tickets.as_ref(),
            );
            listener.set_config(config);
        }
    }

    /// Listens at `ip`, which need not be on this host (yet), or adopts the socket of a predecessor.
    pub fn open(&self, key: &LbKey, ip: IpAddr, listener: Arc<Listener>) -> Result<(), OpenError> {
        self.open_by(key, ip, listener, None)
    }

    /// The same at an address of a pool: where clients can be steered to a socket elsewhere, the port stays the machine's.
    pub fn open_at_pool_address(
        &self,
        key: &LbKey,
        ip: IpAddr,
        listener: Arc<Listener>,
    ) -> Result<(), OpenError> {
        self.open_by(key, ip, listener, self.shared().steering.get().map(Arc::as_ref))
    }

    /// From now on, for addresses of pools. Said once.
    pub fn steer_by(&self, steering: Arc<Steering>) {
        let _ = self.shared().steering.set(steering);
    }

    /// Ports that the machine needs: no listener takes one from it at an address of a pool.
    pub fn reserve_ports(&self, ports: ReservedPorts) {
        if let Some(steering) = self.shared().steering.get() {
            steering.reserve(ports);
        }
    }

    fn open_by(
        &self,
        key: &LbKey,
        ip: IpAddr,
        listener: Arc<Listener>,
        steering: Option<&Steering>,
    ) -> Result<(), OpenError> {
        let (id, at) = (listener.id(), SocketAddr::new(ip, listener.port));
        let known = self
            .shared()
            .registry
            .lock()
            .get(key)
            .is_some_and(|state| state.listeners.contains_key(&(ip, id)));
        if known {
            self.retune(key, ip, listener);
            return Ok(());
        }
        let adopted = {
            let mut adopted = self.shared().inherited.lock().unwrap_or_else(PoisonError::into_inner);
            adopted.remove(&(at, id.l4)).unwrap_or_default()
        };
        let share = self.share_of(key);
        if adopted.is_empty() && !share.may_listen() {
            return Err(OpenError::OverShare { at });
        }
        let steered = open::steered_again(at, &adopted, steering);
        let adopted = if steered { adopted } else { Vec::new() };
        let workers = &self.shared().workers;
        let closing = self.shared().closing.wait(at, id.l4);
        let wildcard = &self.shared().wildcard;
        let adopts = !adopted.is_empty();
        let open = || open::sockets(at, id.l4, workers.len(), adopted, closing, wildcard);
        let sockets = match steering.filter(|_| id.l4 == L4::Tcp && !adopts) {
            Some(steering) => open::sockets_past_the_machine(at, workers.len(), steering, open)?,
            None => open()?,
        };
        let sockets: Vec<_> = sockets.into_iter().map(Arc::new).collect();
        for socket in &sockets {
            let _ = self.shared().descriptors.saw(socket.as_fd());
        }
        wildcard.add(at, id.l4, &sockets);
        let mut registry = self.shared().registry.lock();
        let state = registry.entry(key.clone()).or_default();
        let config = state.listener_config(key, listener, self.shared().tickets.as_ref());
        let share = state.share(share);
        let running = Arc::new(RunningListener::new(key.clone(), at, id, config).sharing(share));
        running.set_sockets(sockets.clone());
        state.listeners.insert((ip, id), running.clone());
        for (index, worker) in workers.iter().enumerate() {
            let its = sockets.iter().skip(index).step_by(workers.len());
            worker.post(its.map(|socket| WorkerCommand::Open(running.clone(), socket.clone())));
        }
        Ok(())
    }

    /// What it has of the descriptors; of one that listens nowhere yet, a new one.
    fn share_of(&self, key: &LbKey) -> Arc<DescriptorShare> {
        let known = self.shared().registry.lock().get(key).and_then(LoadBalancerState::known_share);
        known.unwrap_or_else(|| DescriptorShare::new(self.shared().descriptors.clone(), key.clone()))
    }

    /// Same socket; new rules, limits, timeouts or sources hold for whoever comes from now on.
    pub fn retune(&self, key: &LbKey, ip: IpAddr, listener: Arc<Listener>) {
        let mut registry = self.shared().registry.lock();
        let Some(state) = registry.get_mut(key) else { return };
        let Some(running) = state.listeners.get(&(ip, listener.id())).cloned() else { return };
        running.set_config(state.listener_config(key, listener, self.shared().tickets.as_ref()));
    }

    /// Whether TLS is to end at a listener that is open, and cannot, so that each connection is closed: nothing vouches for clients.
    pub fn lacks_tls(&self, key: &LbKey, ip: IpAddr, id: ListenerId) -> bool {
        let registry = self.shared().registry.lock();
        let running = registry.get(key).and_then(|state| state.listeners.get(&(ip, id)));
        running.is_some_and(|it| {
            let config = it.config();
            let ends = config.listener.tls.as_ref().is_some_and(|tls| tls.terminates_tls());
            ends && config.listener_tls.is_none()
        })
    }

    /// Accepts nobody any more. Who is there may finish within the listener's drain time.
    pub fn close(&self, key: &LbKey, ip: IpAddr, id: ListenerId) {
        let now = sys::millis();
        let mut registry = self.shared().registry.lock();
        let Some(state) = registry.get_mut(key) else { return };
        state.forget_finished();
        let Some(running) = state.listeners.remove(&(ip, id)) else { return };
        // Before its sockets go: then nobody waits in them who is not let in.
        if let Some(Err(error)) = self.shared().steering.get().map(|it| it.remove(running.at)) {
            tracing::warn!(listener = %running.at, %error, "a listener was closed, and nftables still directs its clients there");
        }
        let sockets = running.close(now);
        self.shared().closing.add(running.at, id.l4, &sockets);
        let drain = running.config().listener.timeouts.drain;
        // Whose time is not over then says so itself.
        let drain = state.drains_of_pools().fold(drain, Duration::min);
        state.closed.push(running.clone());
        drop(registry);
        // Others never heard of it. (What it does not say of its sockets may be anywhere.)
        let workers = &self.shared().workers;
        let have = if sockets.is_empty() { workers.len() } else { sockets.len() };
        for worker in workers.iter().take(have) {
            worker.post([WorkerCommand::Close(running.clone())]);
        }
        self.shared().send_to_workers(&WorkerCommand::SweepAt(now.saturating_add(drain.as_millis() as u64)));
    }

    /// Writes requests down from now on, or no more. Told again, a file that was moved away is begun anew. Blocks for a
    /// moment at most, while the last lines of what was before are written.
    pub fn log_requests(&self, log: Option<AccessLog>) -> Result<(), AccessLogError> {
        self.shared().access.write(log)
    }

    /// Whether it is measured how long members take, from now on.
    pub fn measure_latency(&self, on: bool) {
        self.shared().measure(on);
    }

    /// How much clients may make the process hold, from now on; connections that are open keep their own bound.
    pub fn limit_memory(&self, limits: MemoryLimits) {
        self.shared().memory.set(limits);
    }

    /// From when on namespaces share new connections: so many in a second for each worker. `None`: never.
    pub fn share_new_connections(&self, per_worker: Option<u32>) {
        let workers = self.shared().workers.len() as u64;
        let most = u64::from(per_worker.unwrap_or_default()).saturating_mul(workers);
        self.shared().descriptors.new_connections.set_limit(most);
    }

    /// What is held for clients, for whom the rest of the statistics is too much.
    pub fn memory(&self) -> MemoryStatistics {
        MemoryStatistics::of(self.shared())
    }

    /// Of the access log: lines that came to nothing, since nobody took them in time or the disk did not.
    pub fn lost_lines(&self) -> u64 {
        self.shared().access.lost()
    }

    pub fn statistics(&self) -> Statistics {
        Statistics::of(self.shared())
    }

    /// The first half of a clean stop: who has connected is still served, nobody else gets in.
    pub fn stop_accepting(&self) {
        for listener in self.shared().registry.listeners() {
            listener.set_sockets(Vec::new());
        }
        self.shared().stop_accepting();
    }

    /// The second half: waits until all connections have ended, and cuts those that have not by the deadline.
    pub fn drain(&self, deadline: Instant) -> DrainResult {
        let cut = self.shared().wait_for_the_last(deadline);
        if cut > 0 {
            self.shared().send_to_workers(&WorkerCommand::Cut);
        }
        DrainResult { cut }
    }

    /// Has the prober fail as a test wants it.
    #[cfg(test)]
    pub(crate) fn make_prober(&self, fail: impl FnOnce() + Send + 'static) {
        self.engine.prober.make(fail);
    }

    pub(crate) fn shared(&self) -> &Arc<ProxyState> {
        &self.engine.shared
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.shared.send_to_workers(&WorkerCommand::Quit);
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A worker that panicked has said so itself.
            let _ = thread.join();
        }
    }
}
