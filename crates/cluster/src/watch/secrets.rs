//! Of Secrets, what they hold is told only if somebody names them; of all others, that they are there.
//!
//! While nobody names one, and nobody wants all, the API server is not asked for any: whoever serves no certificates needs no
//! right to read Secrets, and nobody finds refused requests in his audit log.
//!
//! The watch brings those of type `kubernetes.io/tls`. What becomes named is fetched. One of another type (certificates of
//! authorities) no watch brings: it is looked at again now and then.
//!
//! A host may watch copies instead (copied.rs): then the watch brings all that is named.

use std::{collections::BTreeSet, future::pending, time::Duration};

use seaway_manifests::tree::Value;
use seaway_model::{
    Change, Fact, Kind, Name, ObjectRef,
    fact::{FactRef, Secret, TLS_SECRET},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    known_objects::ObjectKey,
    reflector::{ReceiverDropped, Reflector},
};
use crate::{api_error::ApiError, moment::later, raw_object::RawObject};

/// Who rotates authorities does it by days.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Which Secrets are told with what they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedSecrets {
    Every,
    These(BTreeSet<ObjectRef>),
}

pub(super) struct Secrets {
    wanted: watch::Receiver<WantedSecrets>,
    now: WantedSecrets,
    /// The watch does not bring them.
    fetched: BTreeSet<ObjectRef>,
    /// Named, and not there when they were asked for: of those, too, nobody tells when they come.
    missing: BTreeSet<ObjectRef>,
    /// When those are looked at again.
    look_again: Instant,
    /// Told without what they hold.
    withheld: BTreeSet<ObjectRef>,
    /// Where copies are watched: Secrets themselves were asked for, and that was refused.
    pub(super) refused: bool,
}

impl Secrets {
    pub(super) fn new(mut wanted: watch::Receiver<WantedSecrets>) -> Secrets {
        let now = wanted.borrow_and_update().clone();
        Secrets {
            wanted,
            now,
            fetched: BTreeSet::new(),
            missing: BTreeSet::new(),
            look_again: later(LOOK_AGAIN),
            withheld: BTreeSet::new(),
            refused: false,
        }
    }

    pub(super) fn wants(&self, key: &ObjectKey) -> bool {
        match &self.now {
            WantedSecrets::Every => true,
            WantedSecrets::These(these) => these.contains(&object(key)),
        }
    }

    /// Of those that are named.
    pub(super) fn namespaces(&self) -> BTreeSet<Name> {
        match &*self.wanted.borrow() {
            WantedSecrets::Every => BTreeSet::new(),
            WantedSecrets::These(these) => these.iter().map(|it| it.namespace.clone()).collect(),
        }
    }

    fn wants_any(wanted: &WantedSecrets) -> bool {
        !matches!(wanted, WantedSecrets::These(these) if these.is_empty())
    }

    /// Returns when none is wanted any more. Never, for what is needed always.
    pub(super) async fn not_needed(secrets: &Option<Secrets>) {
        let Some(secrets) = secrets else { return pending().await };
        if secrets.wanted.clone().wait_for(|it| !Secrets::wants_any(it)).await.is_err() {
            pending().await
        }
    }

    /// A list begins, with what is wanted now; what it does not have is fetched after it.
    fn begin(&mut self) {
        self.now = self.wanted.borrow_and_update().clone();
        if let WantedSecrets::These(these) = &self.now {
            self.missing.extend(these.iter().cloned());
        }
        self.look_again = Instant::now();
        self.refused = false;
    }

    /// A Secret that is named by something, and does not exist.
    pub(super) fn note_missing(&mut self, object: &ObjectRef) {
        self.missing.insert(object.clone());
    }

    /// The watch delivers it from now on: it need not be fetched.
    pub(super) fn forget_fetched(&mut self, key: &ObjectKey) {
        self.fetched.remove(&object(key));
    }

    /// It was told before this began.
    pub(super) fn restore(&mut self, secret: &Secret) {
        let object = secret.object.clone();
        match &*secret.kind {
            _ if secret.withheld => self.withheld.insert(object),
            TLS_SECRET => false,
            _ => self.fetched.insert(object),
        };
    }

    pub(super) fn mark_delivered(&mut self, key: &ObjectKey) {
        self.withheld.remove(&object(key));
        self.missing.remove(&object(key));
    }

    /// Returns when others are wanted, or when it is time to look at those that no watch brings, be they there or not
    /// yet. Never, where there are none.
    pub(super) async fn until_due(secrets: &mut Option<Secrets>) {
        let Some(secrets) = secrets else { return pending().await };
        let some = !secrets.fetched.is_empty() || !secrets.missing.is_empty();
        tokio::select! {
            changed = secrets.wanted.changed() => if changed.is_err() { pending().await },
            () = sleep_until(secrets.look_again), if some => {}
        }
    }

    /// What is wanted and not told yet, or has to be looked at again; what is told and not wanted any more.
    fn catch_up(&mut self, told: &[ObjectKey]) -> (Vec<ObjectRef>, Vec<ObjectKey>) {
        self.now = self.wanted.borrow_and_update().clone();
        self.look_again = later(LOOK_AGAIN);
        let WantedSecrets::These(these) = &self.now else {
            return (self.withheld.union(&self.fetched).cloned().collect(), Vec::new());
        };
        self.missing.retain(|it| these.contains(it));
        let whole = told.iter().filter(|it| !self.withheld.contains(&object(it)));
        let known: BTreeSet<ObjectRef> = whole.clone().map(object).collect();
        let by_look = |it: &ObjectRef| self.fetched.contains(it) || self.missing.contains(it);
        let look = these.iter().filter(|it| !known.contains(*it) || by_look(it));
        let drop = whole.filter(|it| !these.contains(&object(it)));
        (look.cloned().collect(), drop.cloned().collect())
    }
}

fn object(key: &ObjectKey) -> ObjectRef {
    ObjectRef::new(Kind::Secret, key.namespace.clone(), key.name.clone())
}

impl Reflector {
    /// Whether this kind is to be watched: Secrets only while one is wanted.
    pub(super) fn is_kind_wanted(&self) -> bool {
        self.secrets.as_ref().is_none_or(|it| Secrets::wants_any(&it.wanted.borrow()))
    }

    /// Of what becomes named it is told whether it is there.
    pub(super) async fn report_on_demand(&mut self) -> Result<(), ReceiverDropped> {
        match self.secrets.is_some() && self.is_kind_wanted() {
            true => self.send(Change::NotWatched(self.watched.kind)).await,
            // It is told below.
            false => Ok(()),
        }
    }

    /// Returns when it may be. Until then it is told that nobody knows which there are, rather than that there are none.
    pub(super) async fn until_needed(&mut self) -> Result<(), ReceiverDropped> {
        if self.is_kind_wanted() {
            return Ok(());
        }
        self.cluster.counts().forget(self.watched.kind);
        self.send(Change::NotWatched(self.watched.kind)).await?;
        self.synced = false;
        self.known.begin_list();
        for key in self.known.finish_list() {
            self.remove(&key, "").await?;
        }
        self.clear_trouble().await?;
        let Some(secrets) = &mut self.secrets else { return Ok(()) };
        secrets.fetched.clear();
        secrets.missing.clear();
        if secrets.wanted.wait_for(Secrets::wants_any).await.is_err() {
            pending().await
        }
        secrets.begin();
        Ok(())
    }

    pub(super) async fn sync_secrets(&mut self) -> Result<(), ReceiverDropped> {
        let told = self.known.reported_keys();
        let Some(secrets) = &mut self.secrets else { return Ok(()) };
        let (look, drop) = secrets.catch_up(&told);
        for key in drop {
            let fetched = self.secrets.as_mut().is_some_and(|it| it.fetched.remove(&object(&key)));
            if fetched { self.remove(&key, "").await? } else { self.withhold(&key).await? }
        }
        for object in look {
            self.fetch(&object).await?;
        }
        Ok(())
    }

    /// It was asked for, and is not there or not for us: until this is told, whoever names it waits. What is known stays.
    pub(super) async fn send_absent(&mut self, object: &ObjectRef) -> Result<(), ReceiverDropped> {
        let key = ObjectKey { namespace: object.namespace.clone(), name: object.name.clone() };
        if self.known.has(&key) || self.secrets.is_none() {
            return Ok(());
        }
        self.send(Change::Gone(FactRef::Object(object.clone()))).await
    }

    /// The same of all that are named, but for these namespaces.
    pub(super) async fn send_forbidden(&mut self, but: &BTreeSet<Name>) -> Result<(), ReceiverDropped> {
        let Some(secrets) = &self.secrets else { return Ok(()) };
        let wanted = secrets.wanted.borrow().clone();
        let WantedSecrets::These(these) = wanted else { return Ok(()) };
        for object in these.iter().filter(|it| !but.contains(&it.namespace)) {
            self.send_absent(object).await?;
        }
        Ok(())
    }

    /// Tells once that it is there, and keeps nothing of what it holds.
    pub(super) async fn withhold(&mut self, key: &ObjectKey) -> Result<(), ReceiverDropped> {
        let Some(secrets) = &mut self.secrets else { return Ok(()) };
        if !secrets.withheld.insert(object(key)) {
            return Ok(());
        }
        let fact = Fact::Secret(Secret::withheld(object(key)).into());
        let forgotten = self.known.put(key, fact.reference());
        self.send_forgotten(forgotten).await?;
        self.send(Change::Put(fact)).await
    }

    /// What a whole list does not have is gone, unless the list never had it.
    pub(super) async fn handle_unlisted(
        &mut self,
        key: &ObjectKey,
        version: &str,
    ) -> Result<(), ReceiverDropped> {
        if self.is_without_copy(key) {
            return Ok(());
        }
        let fetched = self.secrets.as_ref().is_some_and(|it| it.fetched.contains(&object(key)));
        if fetched { self.fetch(&object(key)).await } else { self.note_unlisted(key, version).await }
    }

    /// A copy that is named and missing says nothing of the Secret that it was a copy of: what that held goes on.
    fn is_without_copy(&mut self, key: &ObjectKey) -> bool {
        let copies = self.cluster.copies_namespace().is_some();
        let Some(secrets) = self.secrets.as_mut().filter(|it| copies && it.wants(key)) else { return false };
        secrets.missing.insert(object(key));
        true
    }

    /// Only the API server's own word that it is not there takes one away.
    async fn fetch(&mut self, object: &ObjectRef) -> Result<(), ReceiverDropped> {
        if self.fetch_copy(object).await? {
            let refused = self.secrets.as_ref().is_some_and(|it| it.refused);
            return if refused { self.send_absent(object).await } else { Ok(()) };
        }
        let copies = self.cluster.copies_namespace().is_some();
        let key = ObjectKey { namespace: object.namespace.clone(), name: object.name.clone() };
        let api = self.cluster.namespaced_api(self.watched, &object.namespace);
        match self.cluster.within_deadline(api.get(&object.name)).await {
            Ok(told) => {
                if let Some(secrets) = &mut self.secrets {
                    match is_watched(&told) && !copies {
                        true => secrets.fetched.remove(object),
                        false => secrets.fetched.insert(object.clone()),
                    };
                }
                self.put(&told).await?;
                if copies {
                    self.known.forget_version(&key);
                }
                Ok(())
            }
            // As hosts should be refused: its copy will come.
            Err(ApiError::Forbidden(_)) if copies => {
                if let Some(secrets) = &mut self.secrets {
                    secrets.refused = true;
                    secrets.fetched.remove(object);
                    secrets.missing.insert(object.clone());
                }
                self.send_absent(object).await
            }
            Err(ApiError::NotFound) => {
                if let Some(secrets) = &mut self.secrets {
                    secrets.fetched.remove(object);
                }
                self.send_absent(object).await?;
                self.remove(&key, "").await?;
                if let Some(secrets) = &mut self.secrets {
                    secrets.missing.insert(object.clone());
                }
                Ok(())
            }
            // It is tried again with the next look; what it held goes on.
            Err(answer) => {
                tracing::warn!(%object, why = answer.message_with_fix(), "Secret cannot be fetched");
                if let Some(secrets) = &mut self.secrets {
                    secrets.fetched.insert(object.clone());
                }
                match answer {
                    ApiError::Forbidden(_) => self.send_absent(object).await,
                    _ => Ok(()),
                }
            }
        }
    }
}

fn is_watched(told: &RawObject) -> bool {
    told.tree.child("type").is_some_and(|it| it.value == Value::Text(TLS_SECRET.to_owned()))
}

#[cfg(test)]
mod tests {
    use tokio::time::{interval, timeout};

    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "default".into(), name: name.into() }
    }

    #[tokio::test]
    async fn what_becomes_wanted_is_fetched_and_what_no_longer_is_goes() {
        let (want, wanted) = watch::channel(WantedSecrets::Every);
        let mut secrets = Secrets::new(wanted);
        assert!(secrets.wants(&key("a")));
        want.send_replace(WantedSecrets::These([object(&key("a")), object(&key("b"))].into()));
        let mut some = Some(secrets);
        Secrets::until_due(&mut some).await;
        secrets = some.expect("is there");
        let (look, drop) = secrets.catch_up(&[key("a"), key("c")]);
        assert_eq!((look, drop), (vec![object(&key("b"))], vec![key("c")]));
        assert!(secrets.wants(&key("b")) && !secrets.wants(&key("c")));
        secrets.withheld.insert(object(&key("c")));
        let told = [key("a"), key("b"), key("c")];
        assert_eq!(
            secrets.catch_up(&told),
            (vec![], vec![]),
            "who is told without his keys has none to drop"
        );
        want.send_replace(WantedSecrets::These([object(&key("c"))].into()));
        assert_eq!(secrets.catch_up(&told), (vec![object(&key("c"))], vec![key("a"), key("b")]));
        want.send_replace(WantedSecrets::These([object(&key("a")), object(&key("b"))].into()));
        secrets.fetched.insert(object(&key("b")));
        let (look, drop) = secrets.catch_up(&[key("a"), key("b")]);
        assert_eq!((look, drop), (vec![object(&key("b"))], vec![]));
    }
    #[tokio::test]
    async fn whoever_wants_all_has_those_fetched_that_were_withheld() {
        let (want, wanted) = watch::channel(WantedSecrets::These([].into()));
        let mut secrets = Secrets::new(wanted);
        assert!(!secrets.wants(&key("a")));
        secrets.withheld.insert(object(&key("a")));
        want.send_replace(WantedSecrets::Every);
        assert_eq!(secrets.catch_up(&[key("a"), key("b")]), (vec![object(&key("a"))], vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_named_before_it_was_there_is_looked_for_again() {
        let (_want, wanted) = watch::channel(WantedSecrets::These([object(&key("a"))].into()));
        let mut secrets = Secrets::new(wanted);
        secrets.missing.insert(object(&key("a")));
        secrets.missing.insert(object(&key("not-named-any-more")));
        let mut secrets = Some(secrets);
        timeout(LOOK_AGAIN * 2, Secrets::until_due(&mut secrets)).await.expect("it is looked for");
        let secrets = secrets.as_mut().expect("they are there");
        assert_eq!(secrets.catch_up(&[]).0, [object(&key("a"))]);
        assert_eq!(secrets.missing, [object(&key("a"))].into());
        secrets.mark_delivered(&key("a"));
        assert!(secrets.missing.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_watch_brings_is_looked_at_in_time_however_much_else_happens() {
        let (_want, wanted) = watch::channel(WantedSecrets::Every);
        let mut secrets = Secrets::new(wanted);
        secrets.fetched.insert(object(&key("a")));
        let mut secrets = Some(secrets);
        let begun = Instant::now();
        let mut events = interval(Duration::from_millis(300));
        let stirred = async {
            loop {
                tokio::select! {
                    _ = events.tick() => {}
                    () = Secrets::until_due(&mut secrets) => return,
                }
            }
        };
        timeout(LOOK_AGAIN * 2, stirred).await.expect("it is looked at");
        assert_eq!(begun.elapsed().as_secs(), LOOK_AGAIN.as_secs());
    }
}
