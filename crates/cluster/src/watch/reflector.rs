//! Lists one kind of objects, watches it, and sends what changes (what client-go calls a reflector).

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::api::{ListParams, WatchEvent};
use seaway_model::{Change, Fact, Kind, Name, ObjectRef, Problem, fact::FactRef};
use tokio::{sync::mpsc, time::sleep};
use tracing::{debug, info};

use super::{
    crd_watch::CrdWatch,
    hosts::Hosts,
    known_objects::{KnownObjects, ObjectKey, RemovedObject},
    problems::WatchProblem,
    readiness::{ApiReadiness, READINESS_KIND},
    restored::is_lower,
    scope::WatchScope,
    secrets::Secrets,
};
use crate::{
    address,
    api_error::{ApiError, Cause, INSTALL},
    connect::Cluster,
    decode::{self, DecodeOutcome},
    kinds::{Requirement, WatchedKind},
    moment::later,
    object_cache::{AddressObject, Version},
    raw_object::RawObject,
    status::rival_problem,
};

/// So many objects come with one answer.
const PAGE: u32 = 500;
/// After so many failures in a row a watch is not trusted to go on where it was.
const LIST_ANEW: u32 = 5;
/// An API server ends watches by itself after a while; one that ends sooner than this is better not begun at once.
const SHORT: Duration = Duration::from_secs(1);

pub(super) struct Reflector {
    pub(super) cluster: Cluster,
    pub(super) watched: &'static WatchedKind,
    pub(super) scope: WatchScope,
    changes: mpsc::Sender<Change>,
    pub(super) troubles: mpsc::Sender<WatchProblem>,
    pub(super) known: KnownObjects,
    /// Where it is absent or forbidden, nothing is told of it: that there is none is never assumed.
    pub(super) required: bool,
    /// Only of the watch of Secrets.
    pub(super) secrets: Option<Secrets>,
    pub(super) hosts: Arc<Hosts>,
    pub(super) readiness: Arc<ApiReadiness>,
    pub(super) crd_watch: CrdWatch,
    /// The API server was ready when it was asked last: what it refused then counts.
    pub(super) refusal_confirmed: bool,
    pub(super) synced: bool,
    /// Failures in a row.
    pub(super) failures: u32,
    /// So often in a row it was not there.
    pub(super) missing: u32,
    pub(super) troubled: bool,
    /// It was refused last.
    pub(super) forbidden: bool,
    /// Of the store; another one after it was restored to an older state.
    pub(super) epoch: u64,
    /// The newest version that was received.
    pub(super) last_version: Option<u64>,
}

/// The receiver of changes was dropped: the watch can end.
pub(super) struct ReceiverDropped;

impl Reflector {
    pub(super) fn new(
        cluster: Cluster,
        watched: &'static WatchedKind,
        changes: mpsc::Sender<Change>,
        troubles: mpsc::Sender<WatchProblem>,
        secrets: Option<Secrets>,
        (hosts, readiness): (Arc<Hosts>, Arc<ApiReadiness>),
    ) -> Reflector {
        let known = KnownObjects::default();
        Reflector {
            cluster,
            watched,
            scope: WatchScope::All,
            changes,
            troubles,
            known,
            required: watched.need == Requirement::Required,
            secrets,
            hosts,
            readiness,
            crd_watch: CrdWatch::default(),
            refusal_confirmed: false,
            synced: false,
            failures: 0,
            missing: 0,
            troubled: false,
            forbidden: false,
            epoch: 0,
            last_version: None,
        }
    }

    pub(super) fn with_scope(self, scope: WatchScope) -> Reflector {
        let watched = if scope.uses_slices() { &WatchedKind::SLICES } else { self.watched };
        Reflector { scope, watched, ..self }
    }

    pub(super) fn for_controller(self) -> Reflector {
        let required = self.watched.is_required_by_controllers();
        Reflector { required, ..self }
    }

    /// What was told before this began: it is gone if no list has it. What is of another kind is another's.
    pub(super) fn assume_known(&mut self, fact: &Fact) {
        let reference = fact.reference();
        let Some(key) = key_of(self.watched.kind, &reference).filter(|key| self.scope.has(key)) else {
            return;
        };
        if let Fact::Host(report) = fact {
            self.hosts.put_report(report.clone());
        }
        if let (Fact::Secret(secret), Some(secrets)) = (fact, &mut self.secrets) {
            secrets.restore(secret);
        }
        self.known.put(&key, reference);
    }

    /// Runs until the receiver of changes is dropped.
    pub(super) async fn run(mut self) {
        if self.report_on_demand().await.is_err() {
            return;
        }
        loop {
            if self.until_needed().await.is_err() {
                return;
            }
            let Ok(listed) = self.list().await else { return };
            let went_on = match listed {
                Ok(Some(version)) => self.follow(version).await,
                Ok(None) => Ok(()),
                Err(answer @ (ApiError::NotFound | ApiError::Forbidden(_))) if self.scope.uses_slices() => {
                    self.watch_each_host(&answer.why());
                    Ok(())
                }
                Err(answer @ ApiError::Forbidden(_)) => self.follow_namespaces(answer).await,
                Err(answer) => self.fail("list", answer).await,
            };
            if went_on.is_err() {
                return;
            }
        }
    }

    /// All there is, and the version that this is as of; nothing, if it is to be listed again.
    async fn list(&mut self) -> Result<Result<Option<String>, ApiError>, ReceiverDropped> {
        self.enter_epoch();
        self.known.begin_list();
        self.refusal_confirmed = self.readiness.is_ready();
        self.scope.note_list();
        let mut params = ListParams { limit: Some(PAGE), ..self.list_params() };
        let mut addresses = Vec::new();
        let version = loop {
            let page = match self.cluster.within_deadline(self.cluster.api(self.watched).list(&params)).await
            {
                Ok(page) => page,
                Err(answer) => return Ok(Err(answer)),
            };
            let version = page.metadata.resource_version.unwrap_or_default();
            let items: Vec<_> = page.items.into_iter().filter_map(|it| self.original_of(it)).collect();
            if items.iter().any(|it| self.is_from_backup(it)) || is_lower(&version, self.last_version) {
                self.note_restored().await?;
                return Ok(Ok(None));
            }
            for told in items {
                self.forget_fetched(&key(&told));
                if !self.scope.uses_slices() {
                    self.known.note_listed(key(&told));
                }
                if self.watched.kind == Kind::Address {
                    addresses.push(told);
                } else {
                    self.put(&told).await?;
                }
            }
            params.continue_token = page.metadata.continue_.filter(|it| !it.is_empty());
            if params.continue_token.is_none() {
                break version;
            }
        };
        if let Some(waits) = self.waits_for_slices() {
            return Ok(Ok(waits.then_some(version)));
        }
        // A host says up to which version it has applied them, so what is older comes first.
        addresses.sort_by_cached_key(|told| told.version().parse::<u64>().unwrap_or_default());
        for told in addresses {
            self.put(&told).await?;
        }
        for key in self.known.finish_list() {
            self.handle_unlisted(&key, &version).await?;
        }
        if self.watched.kind == Kind::LoadBalancerHost && matches!(self.scope, WatchScope::All) {
            self.hosts.addresses.set_complete(true);
        }
        if self.watched.kind == READINESS_KIND {
            self.readiness.set_ready();
        }
        self.cluster.counts().record_list(self.watched.kind);
        self.clear_trouble().await?;
        self.hosts.note_listed(self.watched.kind, &version);
        self.sync().await?;
        Ok(Ok(Some(version)))
    }

    /// Hears of changes, watch after watch, until all has to be listed again.
    async fn follow(&mut self, mut version: String) -> Result<(), ReceiverDropped> {
        let mut cut = false;
        loop {
            self.last_version = version.parse().ok();
            let begun = Instant::now();
            // A watch that ended may go on where nothing is to be heard any more. An API server that has just begun refuses
            // whatever it is asked, so it is asked before each watch, until it answers.
            let older = if cut { self.is_store_older().await } else { Ok(false) };
            let end = match older {
                Ok(true) => return self.note_restored().await,
                Ok(false) => self.follow_watch(&mut version).await?,
                Err(answer) => Some(answer),
            };
            cut = true;
            debug!(kind = %self.watched.kind, why = ?end, lived = ?begun.elapsed(), "a watch ended");
            if end.is_none() && self.switch_to_slices_if_present().await {
                return Ok(());
            }
            match end {
                _ if !self.is_kind_wanted() || self.is_list_due() => return Ok(()),
                Some(ApiError::Invalid(why)) if self.scope.widen() => {
                    info!(kind = %self.watched.kind, why, "the CustomResourceDefinitions in this cluster are older than \
                         this version, so all objects are watched: {INSTALL}");
                    return Ok(());
                }
                None if begun.elapsed() < SHORT => sleep(self.cluster.pace().first_retry).await,
                None => {}
                Some(ApiError::Expired) => {
                    info!(kind = %self.watched.kind, "watch expired; everything is listed again");
                    return Ok(());
                }
                Some(answer) => {
                    let (passing, missing) = (answer.is_transient(), answer == ApiError::NotFound);
                    self.fail("watch", answer).await?;
                    if missing || passing && self.failures >= LIST_ANEW {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// One watch, to its end: nothing, if it ended as watches do.
    async fn follow_watch(&mut self, version: &mut String) -> Result<Option<ApiError>, ReceiverDropped> {
        let params = self.watch_params();
        let api = self.cluster.api(self.watched);
        let stream = match self.cluster.within_deadline(api.watch(&params, version)).await {
            Ok(stream) => stream,
            Err(answer) => return Ok(Some(answer)),
        };
        let mut stream = pin!(self.cluster.counts().count_events(self.watched.kind, stream));
        let silence = self.cluster.pace().silence;
        let mut doubted = self.troubled || self.failures > 0;
        let mut anew = pin!(self.cluster.requests_restarted());
        // Begun once: whatever else happens meanwhile takes no time from them.
        let mut refused_by_now = pin!(sleep(SHORT));
        let mut silent = pin!(sleep(silence));
        loop {
            let next = tokio::select! {
                biased;
                () = &mut anew => return Ok(None),
                () = self.readiness.until_other_epoch(self.epoch) => return Ok(None),
                () = self.scope.slices_timeout() => return Ok(None),
                () = Secrets::until_due(&mut self.secrets) => {
                    if !self.is_kind_wanted() {
                        return Ok(None);
                    }
                    self.sync_secrets().await?;
                    continue;
                }
                next = stream.next() => next,
                // A refusal would have come by now.
                () = &mut refused_by_now, if doubted => {
                    doubted = false;
                    self.clear_trouble().await?;
                    continue;
                }
                () = &mut silent => {
                    self.cluster.reload_credentials().await;
                    return Ok(Some(ApiError::Unreachable(Cause::Connection, format!("the watch received nothing (no event, no bookmark) for {silence:?}"))));
                }
            };
            let event = match next {
                Some(Ok(event)) => event,
                None => return Ok(None),
                Some(Err(error)) => return Ok(Some(ApiError::of(&error))),
            };
            if doubted && !matches!(event, WatchEvent::Error(_)) {
                doubted = false;
                self.clear_trouble().await?;
            }
            match event {
                WatchEvent::Added(told) | WatchEvent::Modified(told) => {
                    told.version().clone_into(version);
                    if let Some(told) = self.original_of(told) {
                        self.forget_fetched(&key(&told));
                        self.put(&told).await?;
                    }
                    if self.scope.uses_slices() && self.scope.is_due() {
                        return Ok(None);
                    }
                }
                WatchEvent::Deleted(told) if self.scope.uses_slices() => {
                    told.version().clone_into(version);
                    self.scope.lose_slice();
                    return Ok(None);
                }
                WatchEvent::Deleted(told) if self.scope.is_narrow() => told.version().clone_into(version),
                WatchEvent::Deleted(told) => {
                    told.version().clone_into(version);
                    if let Some(told) = self.original_of(told) {
                        self.remove(&key(&told), told.version()).await?;
                    }
                }
                WatchEvent::Bookmark(mark) => *version = mark.metadata.resource_version,
                WatchEvent::Error(status) => return Ok(Some(ApiError::of(&kube::Error::Api(status)))),
            }
            // Not before it was taken: whoever reads may be slow.
            silent.as_mut().reset(later(silence));
        }
    }

    pub(super) async fn put(&mut self, told: &RawObject) -> Result<(), ReceiverDropped> {
        if self.scope.uses_slices() {
            return self.put_slice(told).await;
        }
        let key = key(told);
        if !self.scope.has(&key) {
            return Ok(());
        }
        self.known.note_version(&key, told.version());
        if let Some(secrets) = &mut self.secrets {
            if !secrets.wants(&key) {
                return self.withhold(&key).await;
            }
            secrets.mark_delivered(&key);
        }
        let (fact, left_out) = match decode::read(self.watched.kind, told) {
            DecodeOutcome::Fact(fact) => (fact, Vec::new()),
            DecodeOutcome::Partial(fact, left_out) => (fact, left_out),
            DecodeOutcome::Ignored => {
                self.remove(&key, told.version()).await?;
                if self.sees_all_objects() {
                    self.known.note_version(&key, told.version());
                }
                return Ok(());
            }
            DecodeOutcome::Invalid(object, problems) => {
                self.send_absent(&object).await?;
                self.known.note_problem(&key, object.clone());
                return self.send(Change::Reported(object, problems)).await;
            }
        };
        let (rivalry, overwritten) = self.note(told, &fact);
        let mut forgotten = self.known.put(&key, fact.reference());
        let problems: Vec<Problem> = rivalry.into_iter().chain(left_out).collect();
        let complaint = problems.first().map(|it| it.object.clone());
        if let Some(object) = &complaint {
            self.known.note_problem(&key, object.clone());
            forgotten.mended = None;
        }
        self.send_forgotten(forgotten).await?;
        match &fact {
            // What a dead host said last is no news.
            Fact::Host(report) if !self.hosts.put_report(report.clone()) => {}
            _ => self.send(Change::Put(fact)).await?,
        }
        if let Some(object) = overwritten {
            self.send(Change::Overwritten(object)).await?;
        }
        match complaint {
            Some(object) => self.send(Change::Reported(object, problems)).await,
            None => Ok(()),
        }
    }

    /// What drivers compare with is known before the plan that they work for. Where somebody else writes there, too,
    /// it is told; and the object, if they did not write what it says of itself now.
    fn note(&self, told: &RawObject, fact: &Fact) -> (Option<Problem>, Option<ObjectRef>) {
        match fact {
            Fact::Service(service) => {
                let meta = &service.meta;
                let published = decode::published(told);
                let object = ObjectRef::new(Kind::Service, meta.namespace.clone(), meta.name.clone());
                let rivalry = rival_problem(object.clone(), &published);
                let overwritten = self.cluster.cache().put_service(&meta.namespace, &meta.name, published);
                return (rivalry, overwritten.then_some(object));
            }
            Fact::Address(address) => self.cluster.cache().put_address(AddressObject {
                address: address.clone(),
                object: address::name(address.ip).into(),
                version: Version(told.version().into()),
            }),
            _ => {}
        }
        (None, None)
    }

    /// Its deletion was told.
    pub(super) async fn remove(&mut self, key: &ObjectKey, version: &str) -> Result<(), ReceiverDropped> {
        self.forget(key, version, Change::Gone).await
    }

    pub(super) async fn forget(
        &mut self,
        key: &ObjectKey,
        version: &str,
        change: fn(FactRef) -> Change,
    ) -> Result<(), ReceiverDropped> {
        let mut forgotten = self.known.remove(key);
        if let Some(secrets) = &mut self.secrets {
            secrets.mark_delivered(key);
        }
        match &forgotten.gone {
            Some(FactRef::Address(ip)) => self.cluster.cache().remove_address(*ip, &Version(version.into())),
            Some(FactRef::Object(object)) if object.kind == Kind::Service => {
                self.cluster.cache().remove_service(&object.namespace, &object.name);
            }
            Some(FactRef::Host(host)) if !self.forget_host(host) => forgotten.gone = None,
            _ => {}
        }
        if let Some(gone) = forgotten.gone.take() {
            self.send(change(gone)).await?;
        }
        self.send_forgotten(forgotten).await
    }

    pub(super) async fn send_forgotten(&mut self, forgotten: RemovedObject) -> Result<(), ReceiverDropped> {
        if let Some(gone) = forgotten.gone {
            self.send(Change::Gone(gone)).await?;
        }
        match forgotten.mended {
            Some(object) => self.send(Change::Reported(object, Vec::new())).await,
            None => Ok(()),
        }
    }

    pub(super) async fn sync(&mut self) -> Result<(), ReceiverDropped> {
        self.scope.until_complete(self.epoch).await;
        // What was listed is of a time that never was.
        if self.readiness.epoch() != self.epoch || !self.scope.reports_whole_kind() {
            return Ok(());
        }
        match std::mem::replace(&mut self.synced, true) {
            true => Ok(()),
            false => self.send(Change::Synced(self.watched.kind)).await,
        }
    }

    pub(super) async fn send(&self, change: Change) -> Result<(), ReceiverDropped> {
        self.changes.send(change).await.map_err(|_| ReceiverDropped)
    }

    pub(super) async fn clear_trouble(&mut self) -> Result<(), ReceiverDropped> {
        (self.failures, self.missing) = (0, 0);
        if std::mem::take(&mut self.forbidden) {
            self.readiness.note_permission();
        }
        match std::mem::replace(&mut self.troubled, false) {
            true => self.troubles.send((self.watched.kind, None)).await.map_err(|_| ReceiverDropped),
            false => Ok(()),
        }
    }
}

pub(super) fn key(told: &RawObject) -> ObjectKey {
    ObjectKey { namespace: told.namespace().into(), name: told.name().into() }
}

/// What the object is called that a fact came from, if it is of that kind.
fn key_of(kind: Kind, fact: &FactRef) -> Option<ObjectKey> {
    let (namespace, name) = match fact {
        FactRef::Object(it) | FactRef::Endpoints(it, _) => (it.namespace.clone(), it.name.clone()),
        FactRef::Address(ip) => (Name::default(), address::name(*ip).into()),
        FactRef::Host(name) | FactRef::Name(name) => (Name::default(), name.clone()),
    };
    (fact.kind() == Some(kind)).then_some(ObjectKey { namespace, name })
}
