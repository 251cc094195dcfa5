//! What runs at the moment, shared by all workers: listeners, pools and members with what became of them.
//!
//! The registry is locked by whoever changes the configuration, never by a worker: workers reach pools and listeners
//! through the `Arc`s that they were given, and read what may change through `ArcSwap` and atomics.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod affinity;
mod last_use;
mod limits;
mod listener;
mod member;
mod passthrough;
mod pool;
mod queue;
mod source_filter;
mod status_class_counters;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use seaway_model::{
    LbKey, Listener, ListenerId, ObjectRef, Pool, PoolId,
    load_balancer::{Certificate, Protocol, TlsByName},
};

use crate::{
    descriptors::DescriptorShare,
    tls::{CertificateSlot, ListenerTls, LoadedCertificate, Tickets},
};

pub use listener::RefusalReason;
pub(crate) use listener::{ForwardAuthPool, ListenerConfig, Mirror, RunningListener};
pub(crate) use member::RunningMember;
pub use member::{Health, HealthHistory};
pub(crate) use pool::{MemberSelection, QueuedClient, RunningPool};
pub(crate) use queue::{SelectionRequest, WaiterId};
pub(crate) use source_filter::SourceFilter;
pub(crate) use status_class_counters::StatusClassCounters;

/// Everything by load balancer.
#[derive(Default)]
pub(crate) struct Registry {
    load_balancers: Mutex<BTreeMap<LbKey, LoadBalancerState>>,
}

#[derive(Default)]
pub(crate) struct LoadBalancerState {
    pub(crate) listeners: BTreeMap<(IpAddr, ListenerId), Arc<RunningListener>>,
    /// Closed, with connections that go on.
    pub(crate) closed: Vec<Arc<RunningListener>>,
    pub(crate) pools: BTreeMap<PoolId, Arc<RunningPool>>,
    /// Empty as long as nobody has put one: listeners and certificates may come in any order.
    certificates: BTreeMap<ObjectRef, Arc<CertificateSlot>>,
    /// What is in them, to be told at once.
    pub(crate) shown: Arc<BTreeMap<ObjectRef, Arc<Certificate>>>,
    /// Made of listeners, as long as they are used.
    configs: Vec<Weak<ListenerConfig>>,
    listener_tls: Vec<(Arc<TlsByName>, Protocol, Arc<ListenerTls>)>,
    /// What its listeners have of the descriptors, once it has one.
    share: Option<Arc<DescriptorShare>>,
}

impl Registry {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<LbKey, LoadBalancerState>> {
        // Changes are single insertions and removals, whole even if a thread died between two.
        self.load_balancers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pools(&self) -> Vec<Arc<RunningPool>> {
        self.lock().values().flat_map(|state| state.pools.values().cloned()).collect()
    }

    pub(crate) fn listeners(&self) -> Vec<Arc<RunningListener>> {
        self.lock().values().flat_map(|state| state.listeners.values().cloned()).collect()
    }
}

impl LoadBalancerState {
    /// The pool of that id, empty as long as nobody has put one: listeners and pools may come in any order.
    pub(crate) fn pool(&mut self, key: &LbKey, id: &PoolId) -> Arc<RunningPool> {
        self.pools.entry(id.clone()).or_insert_with(|| RunningPool::empty(key.clone(), id.clone())).clone()
    }

    /// Another thread may have given it one first.
    pub(crate) fn share(&mut self, new: Arc<DescriptorShare>) -> Arc<DescriptorShare> {
        self.share.get_or_insert(new).clone()
    }

    pub(crate) fn known_share(&self) -> Option<Arc<DescriptorShare>> {
        self.share.clone()
    }

    fn certificate(&mut self, name: &ObjectRef) -> Arc<CertificateSlot> {
        self.certificates.entry(name.clone()).or_default().clone()
    }

    pub(crate) fn put_certificate(&mut self, name: &ObjectRef, keys: Option<Arc<LoadedCertificate>>) {
        let shown = Arc::make_mut(&mut self.shown);
        match &keys {
            Some(keys) => shown.insert(name.clone(), keys.source.clone()),
            None => shown.remove(name),
        };
        self.certificate(name).put(keys);
    }

    /// A listener on several addresses is made once, and so is the configuration of TLS that several share or that outlives a change of
    /// rules: thousands of names are not gone through again.
    pub(crate) fn listener_config(
        &mut self,
        key: &LbKey,
        listener: Arc<Listener>,
        tickets: Option<&Arc<Tickets>>,
    ) -> Arc<ListenerConfig> {
        self.configs.retain(|it| it.strong_count() > 0);
        let known: Vec<Arc<ListenerConfig>> = self.configs.iter().filter_map(Weak::upgrade).collect();
        if let Some(config) = known.iter().find(|it| Arc::ptr_eq(&it.listener, &listener)) {
            return config.clone();
        }
        let listener_tls = listener.tls.as_ref().filter(|tls| tls.terminates_tls());
        let listener_tls = listener_tls.and_then(|tls| self.listener_tls(&listener, tls, tickets));
        let before = known.iter().rfind(|it| it.listener.id() == listener.id());
        let before = before.map(Arc::as_ref);
        let config = Arc::new(ListenerConfig::new(listener, listener_tls, before, |id| self.pool(key, id)));
        self.configs.push(Arc::downgrade(&config));
        config
    }

    fn listener_tls(
        &mut self,
        listener: &Listener,
        tls: &Arc<TlsByName>,
        tickets: Option<&Arc<Tickets>>,
    ) -> Option<Arc<ListenerTls>> {
        let protocol = listener.protocol;
        self.listener_tls.retain(|(tls, ..)| Arc::strong_count(tls) > 1);
        let known =
            self.listener_tls.iter().find(|(known, of, _)| Arc::ptr_eq(known, tls) && *of == protocol);
        if let Some((.., listener_tls)) = known {
            return Some(listener_tls.clone());
        }
        // The first that the client knows, too. What is not HTTP has no name.
        let protocols: &[&[u8]] = if protocol == Protocol::Http { &[b"h2", b"http/1.1"] } else { &[] };
        let before = self.listener_tls.iter().rfind(|(_, of, _)| *of == protocol);
        let before = before.map(|(tls, _, listener_tls)| (tls.clone(), listener_tls.clone()));
        let before = before.as_ref().map(|(tls, listener_tls)| (&**tls, &**listener_tls));
        let listener_tls = ListenerTls::new(tls, protocols, tickets, before, |name| self.certificate(name));
        let listener_tls = listener_tls.inspect_err(
            |error| tracing::error!(listener = %listener.name, %error, "TLS cannot be served at a listener: it closes every connection"),
        );
        let listener_tls = Arc::new(listener_tls.ok()?);
        self.listener_tls.push((tls.clone(), protocol, listener_tls.clone()));
        Some(listener_tls)
    }

    /// Whoever vouches for clients is another: nothing that was made with it is used again.
    pub(crate) fn forget_terms(&mut self) {
        self.configs.clear();
        self.listener_tls.clear();
    }

    /// The longest time for which a listener here lets connections to a removed member go on, and all others.
    pub(crate) fn drains(&self) -> Vec<Duration> {
        let all = self.listeners.values().chain(&self.closed);
        let mut drains: Vec<_> = all.map(|listener| listener.config().listener.timeouts.drain).collect();
        drains.sort_unstable();
        drains.dedup();
        drains
    }

    /// What pools say of that themselves, where many share a listener.
    pub(crate) fn drains_of_pools(&self) -> impl Iterator<Item = Duration> {
        self.pools.values().filter_map(|pool| pool.live().compiled.pool().http.drain)
    }

    /// What was there for the sake of connections, and has none any more.
    pub(crate) fn forget_finished(&mut self) {
        self.closed.retain(|listener| listener.active() > 0);
        self.pools.retain(|_, pool| {
            pool.forget_finished();
            let listeners_know_it = Arc::strong_count(pool) > 1;
            pool.live().present || listeners_know_it || !pool.leaving().is_empty()
        });
        self.certificates.retain(|_, slot| slot.keys().is_some() || Arc::strong_count(slot) > 1);
    }

    /// Nobody wants it any more. A pool that somebody holds may be about to be put: [`put_pool`] does that unlocked.
    pub(crate) fn is_empty(&self) -> bool {
        let gone = |pool: &Arc<RunningPool>| {
            Arc::strong_count(pool) == 1 && !pool.live().present && pool.leaving().is_empty()
        };
        self.listeners.is_empty()
            && self.closed.is_empty()
            && self.shown.is_empty()
            && self.pools.values().all(gone)
    }
}

/// Swaps a pool, or removes it. Tells the pool, and the times after which connections to members that leave are over.
pub(crate) fn put_pool(
    registry: &Registry,
    key: &LbKey,
    id: &PoolId,
    pool: Option<Arc<Pool>>,
    now: u64,
) -> (Arc<RunningPool>, Vec<Duration>) {
    let running = registry.lock().entry(key.clone()).or_default().pool(key, id);
    // Compiling may take a while (tables), so the registry is not locked meanwhile.
    let of = |pool: &Pool| pool.http.drain;
    let own = [of(running.live().compiled.pool()), pool.as_deref().and_then(of)];
    let someone_leaves = running.put(pool, now);
    let mut drains = if someone_leaves {
        registry.lock().get(key).map(LoadBalancerState::drains).unwrap_or_default()
    } else {
        Vec::new()
    };
    // Tasks that began before have what the pool said then.
    drains.extend(own.into_iter().flatten().filter(|_| someone_leaves));
    (running, drains)
}

#[cfg(test)]
mod tests {
    use seaway_model::{load_balancer::Rule, name::Owner};

    use super::*;

    #[test]
    fn listeners_that_are_the_same_are_made_once_and_terms_outlive_a_change_of_rules() {
        let key = LbKey::Of(Owner::Config("a".into()));
        let mut state = LoadBalancerState::default();
        let object = ObjectRef::new(seaway_model::Kind::Secret, "default", "a");
        let tls = Arc::new(TlsByName { default: vec![object], ..TlsByName::default() });
        let listener = Listener { tls: Some(tls), ..seaway_testkit::balancing::listener(443) };
        let first = Arc::new(listener.clone());
        let one = state.listener_config(&key, first.clone(), None);
        assert!(Arc::ptr_eq(&one, &state.listener_config(&key, first, None)));
        let other = state.listener_config(&key, Arc::new(Listener { rules: Vec::new(), ..listener }), None);
        let listener_tls = |it: &ListenerConfig| it.listener_tls.clone().expect("TLS");
        assert!(!Arc::ptr_eq(&one, &other) && Arc::ptr_eq(&listener_tls(&one), &listener_tls(&other)));
        state.forget_terms();
        let again = state.listener_config(&key, one.listener.clone(), None);
        assert!(
            !Arc::ptr_eq(&listener_tls(&one), &listener_tls(&again)),
            "who vouches for clients is another"
        );
    }

    #[test]
    fn rules_that_stay_are_made_once() {
        let key = LbKey::Of(Owner::Config("a".into()));
        let mut state = LoadBalancerState::default();
        let owner = seaway_testkit::balancing::owner;
        let rule = |it: usize| Arc::new(Rule::forward_all(owner(), PoolId(it.to_string().into())));
        let mut listener = seaway_testkit::balancing::listener(80);
        listener.protocol = Protocol::Http;
        listener.rules = (0..100).map(rule).collect();
        let one = state.listener_config(&key, Arc::new(listener.clone()), None);
        listener.rules.remove(10);
        listener.rules.insert(50, rule(1_000));
        let other = state.listener_config(&key, Arc::new(listener), None);
        assert_eq!(other.unlike(&one), ["1000"]);
    }

    #[test]
    fn a_load_balancer_whose_first_pool_is_being_put_is_not_forgotten() {
        let (key, id) = (LbKey::Of(Owner::Config("a".into())), PoolId("80/TCP".into()));
        let mut state = LoadBalancerState::default();
        let being_put = state.pool(&key, &id);
        // As whoever asks for statistics at that moment does it.
        state.forget_finished();
        assert!(!state.is_empty());
        drop(being_put);
        state.forget_finished();
        assert!(state.is_empty());
    }
}
