//! The leader keeps copies as what is named has it.
//!
//! Nothing is written by who does not lead at that moment; nothing over another version than the one that was looked at;
//! and nothing at all to a Secret that is not marked as ours. A copy is deleted when nothing named it for a while in which
//! the API server's word was not in doubt: a copy too many is harmless, a copy too few may close a listener.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};
use seaway_engine::backoff;
use seaway_model::{Change, Name, ObjectRef, Problem, Reason, load_balancer::Certificate};
use seaway_watchdog::WatchedPart;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tracing::{info, warn};

use super::{
    name_of_copy,
    plan::{CopiesByName, CopyLimit, OverLimit, plan},
};
use crate::{
    api_error::ApiError,
    connect::{Cluster, MANAGER},
    lease::Leadership,
    moment::{later, later_than},
    writer::OwnedTask,
};

/// What is to be copied, as of now.
#[derive(Clone, PartialEq)]
pub struct NamedCertificates {
    /// All that is named, with what it holds. Nothing: that is not known, or not any more; a copy of it stays as it is.
    pub certificates: BTreeMap<ObjectRef, Option<Arc<Certificate>>>,
    /// The namespace for copies is there.
    pub namespace: bool,
    /// What is not named here is named by nothing: no list is missing.
    pub complete: bool,
    /// How many bytes each namespace may have copied.
    pub limit: Option<u64>,
    /// What the configuration itself names: it is copied whatever the limit is.
    pub configured: BTreeSet<ObjectRef>,
}

/// How patient it is; tests are less so.
#[derive(Clone, Copy, Debug)]
pub struct CopyTimings {
    /// A copy that nothing names is deleted after this.
    pub keep: Duration,
    /// Others may have changed copies: all are looked at again this often.
    pub look: Duration,
    /// Much may change at once: it is written at most this often.
    pub pause: Duration,
}

impl Default for CopyTimings {
    fn default() -> CopyTimings {
        CopyTimings {
            keep: Duration::from_secs(60),
            look: Duration::from_secs(300),
            pause: Duration::from_millis(500),
        }
    }
}

/// What a Problem that stands is tried again after, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// So many Problems are told one by one.
const TOLD: usize = 20;
const PAGE: u32 = 500;

/// Keeps copies, while it leads and until it is dropped.
pub struct CopyWriter {
    desired: watch::Sender<Option<NamedCertificates>>,
    pub(crate) writer: OwnedTask,
}

impl CopyWriter {
    /// Copies into `namespace`. Problems are told to `changes`.
    pub fn start(
        cluster: &Cluster,
        leading: Leadership,
        namespace: Name,
        pace: CopyTimings,
        changes: mpsc::Sender<Change>,
    ) -> CopyWriter {
        let (desired, heard) = watch::channel(None);
        let copying = CopyTask {
            cluster: cluster.clone(),
            leading,
            namespace,
            pace,
            seen: None,
            unnamed: BTreeMap::new(),
            failures: 0,
            again: None,
        };
        CopyWriter {
            desired,
            writer: OwnedTask::spawn("copies of certificates", copying.run(heard, changes)),
        }
    }

    /// For the watchdog.
    pub fn part(&self) -> WatchedPart {
        self.writer.part()
    }

    pub fn set_wanted(&self, named: NamedCertificates) {
        self.desired.send_if_modified(|before| {
            let changed = before.as_ref() != Some(&named);
            *before = Some(named);
            changed
        });
    }
}

struct CopyTask {
    cluster: Cluster,
    leading: Leadership,
    namespace: Name,
    pace: CopyTimings,
    seen: Option<CurrentCopies>,
    /// Since when nothing names a copy.
    unnamed: BTreeMap<String, Instant>,
    /// In a row.
    failures: u32,
    /// When it is looked at again, whatever happens.
    again: Option<Instant>,
}

/// As the API server has it.
struct CurrentCopies {
    owner: String,
    there: CopiesByName,
    look_again: Instant,
}

impl CopyTask {
    async fn run(
        mut self,
        mut heard: watch::Receiver<Option<NamedCertificates>>,
        changes: mpsc::Sender<Change>,
    ) {
        let mut told = Vec::new();
        loop {
            if !self.leading.is_held() {
                // Who leads meanwhile writes copies, and says what is wrong with them.
                (self.seen, self.again, self.failures) = (None, None, 0);
                self.unnamed.clear();
                if report_problems(&changes, &mut told, Vec::new()).await.is_err() {
                    return;
                }
                self.leading.changed_from(false).await;
                heard.mark_changed();
            }
            let again = self.again;
            tokio::select! {
                changed = heard.changed() => if changed.is_err() { return },
                () = self.leading.changed_from(true) => continue,
                () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {}
            }
            let Some(named) = heard.borrow_and_update().clone() else { continue };
            let next = later(self.pace.pause);
            let problems = self.keep(&named).await;
            if report_problems(&changes, &mut told, problems).await.is_err() {
                return;
            }
            sleep_until(next).await;
        }
    }

    /// Once: all that is to be done now.
    async fn keep(&mut self, named: &NamedCertificates) -> Vec<Problem> {
        self.again = None;
        if !named.namespace {
            // There is none to look into, and nobody's rights are missed.
            self.seen = None;
            self.unnamed.clear();
            return if named.certificates.is_empty() { Vec::new() } else { vec![self.no_namespace()] };
        }
        let due = self.seen.as_ref().is_none_or(|it| it.look_again <= Instant::now());
        if due {
            match self.look().await {
                Ok(seen) => self.seen = Some(seen),
                Err(answer) => {
                    let told = self.fail("list", "copies", &answer);
                    return if named.certificates.is_empty() { Vec::new() } else { vec![told] };
                }
            }
        }
        let Some(seen) = &self.seen else { return Vec::new() };
        let limit = CopyLimit { most: named.limit, configured: &named.configured };
        let plan = plan(&seen.owner, &named.certificates, &seen.there, limit);
        let mut problems: Vec<Problem> = plan.foreign.iter().map(|it| self.foreign(it)).collect();
        problems.extend(plan.too_long.iter().map(too_long));
        problems.extend(beyond(&plan.beyond, named.limit));
        let mut failed = false;
        let create = plan.create.into_iter().map(|it| (it, false));
        for (secret, is_there) in create.chain(plan.replace.into_iter().map(|it| (it, true))) {
            let name = secret.metadata.name.clone().unwrap_or_default();
            match self.write(&name, &secret, is_there).await {
                Ok(Some(written)) => self.note(name, written),
                Ok(None) => return problems,
                Err(answer) => {
                    failed = true;
                    problems.push(self.fail(if is_there { "update" } else { "create" }, &name, &answer));
                }
            }
        }
        failed |= self.delete_unnamed(plan.unnamed, named.complete, &mut problems).await;
        if failed {
            return problems;
        }
        self.failures = 0;
        let look_again = self.seen.as_ref().map(|it| it.look_again);
        let deletions = self.unnamed.values().map(|since| later_than(*since, self.pace.keep)).min();
        self.again = [look_again, deletions].into_iter().flatten().min();
        problems
    }

    async fn delete_unnamed(
        &mut self,
        unnamed: Vec<String>,
        complete: bool,
        problems: &mut Vec<Problem>,
    ) -> bool {
        if !complete {
            // Whatever names them may only not be seen.
            self.unnamed.clear();
            return false;
        }
        let (now, unnamed) = (Instant::now(), BTreeSet::from_iter(unnamed));
        self.unnamed.retain(|name, _| unnamed.contains(name));
        for name in unnamed {
            self.unnamed.entry(name).or_insert(now);
        }
        let is_due = |since: &Instant| later_than(*since, self.pace.keep) <= now;
        let due: Vec<String> =
            self.unnamed.iter().filter(|(_, since)| is_due(since)).map(|(name, _)| name.clone()).collect();
        let mut failed = false;
        for name in due {
            match self.delete(&name).await {
                Ok(()) => {
                    self.unnamed.remove(&name);
                }
                Err(answer) => {
                    failed = true;
                    // It is tried again as all else is that failed.
                    self.unnamed.insert(name.clone(), now);
                    problems.push(self.fail("delete", &name, &answer));
                }
            }
        }
        failed
    }

    /// Of copies alone, whoever made them; and who we are.
    async fn look(&self) -> Result<CurrentCopies, ApiError> {
        let named = ListParams::default().fields(&format!("metadata.name={}", self.cluster.namespace()));
        // To list is what the role allows.
        let namespaces: Api<Namespace> = Api::all(self.cluster.client());
        let ours = self
            .cluster
            .within_deadline(namespaces.list(&named))
            .await?
            .items
            .pop()
            .ok_or(ApiError::NotFound)?;
        let owner = ours.metadata.uid.unwrap_or_default();
        let mut there = CopiesByName::new();
        let mut params = ListParams { limit: Some(PAGE), ..ListParams::default() };
        loop {
            let page = self.cluster.within_deadline(self.api().list(&params)).await?;
            let entries = page.items.into_iter().filter_map(|it| Some((it.metadata.name.clone()?, it)));
            there.extend(entries);
            params.continue_token = page.metadata.continue_.filter(|it| !it.is_empty());
            if params.continue_token.is_none() {
                break;
            }
        }
        Ok(CurrentCopies { owner, there, look_again: later(self.pace.look) })
    }

    /// `None`: another leads.
    async fn write(&self, name: &str, secret: &Secret, is_there: bool) -> Result<Option<Secret>, ApiError> {
        if !self.leading.is_held() {
            return Ok(None);
        }
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let api = self.api();
        let written = match is_there {
            true => self.cluster.within_deadline(api.replace(name, &parameters, secret)).await?,
            false => self.cluster.within_deadline(api.create(&parameters, secret)).await?,
        };
        info!(copy = name, "certificate copied for hosts");
        Ok(Some(written))
    }

    /// The very one that was looked at, if we still lead.
    async fn delete(&mut self, name: &str) -> Result<(), ApiError> {
        let Some(seen) = self.seen.as_mut().filter(|_| self.leading.is_held()) else { return Ok(()) };
        let Some(copy) = seen.there.get(name) else { return Ok(()) };
        let of = Preconditions {
            resource_version: copy.metadata.resource_version.clone(),
            uid: copy.metadata.uid.clone(),
        };
        let parameters = DeleteParams { preconditions: Some(of), ..DeleteParams::default() };
        let api: Api<Secret> = Api::namespaced(self.cluster.client(), &self.namespace);
        match self.cluster.within_deadline(api.delete(name, &parameters)).await {
            Ok(_) | Err(ApiError::NotFound) => {
                seen.there.remove(name);
                info!(copy = name, "copy of a certificate deleted: no Service uses it any more");
                Ok(())
            }
            Err(answer) => Err(answer),
        }
    }

    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    fn note(&mut self, name: String, written: Secret) {
        if let Some(seen) = &mut self.seen {
            seen.there.insert(name, written);
        }
    }

    /// Nothing that was seen is believed any more; all is looked at again, after a while.
    fn fail(&mut self, verb: &str, what: &str, answer: &ApiError) -> Problem {
        self.failures = self.failures.saturating_add(1);
        self.again = Some(later(backoff(self.failures, RETRY.0, RETRY.1, self.failures.into())));
        if let Some(seen) = &mut self.seen {
            seen.look_again = Instant::now();
        }
        let reason = match answer {
            ApiError::Forbidden(_) | ApiError::Unauthorized(_) => Reason::NotPermitted,
            _ => Reason::StateUnwritable,
        };
        let namespace = &self.namespace;
        let message = format!("cannot {verb} {what} in the namespace {namespace}: {}", answer.why());
        Problem::new(copies(), reason, message).fix(APPLY)
    }

    fn no_namespace(&self) -> Problem {
        let message = format!(
            "certificates cannot be copied for hosts: the namespace {} does not exist (certificateCopies)",
            self.namespace
        );
        Problem::new(copies(), Reason::NotInstalled, message).fix(APPLY)
    }

    fn foreign(&self, object: &ObjectRef) -> Problem {
        let (namespace, name) = (&self.namespace, name_of_copy(object).unwrap_or_default());
        let message = format!(
            "{object} is not copied for hosts: the Secret {namespace}/{name} exists and is not marked as a \
             copy of Seaway"
        );
        let fix = format!(
            "Check whether that Secret is used. If it is not: kubectl -n {namespace} delete secret {name}, \
             and Seaway makes the copy."
        );
        Problem::new(copies(), Reason::OtherController, message).fix(fix)
    }
}

const APPLY: &str = "As an administrator: kubectl apply -f deploy/kubernetes/components/certificates/certificates.yaml, \
     which makes the namespace and binds the ClusterRoles seaway-copies and seaway-copies-reader in it. Seaway tries again.";

fn too_long(object: &ObjectRef) -> Problem {
    let message = format!("{object} is not copied for hosts: its namespace and name together are too long");
    Problem::new(copies(), Reason::Unsupported, message)
        .fix("Choose another Secret: its namespace and name may have 189 characters together.")
}

/// Told at the Secrets, and so to whoever names them: so many of each namespace.
fn beyond(all: &[OverLimit], most: Option<u64>) -> Vec<Problem> {
    let mut told: BTreeMap<Name, usize> = BTreeMap::new();
    let is_told = |it: &&OverLimit| {
        let count = told.entry(it.object.namespace.clone()).or_default();
        *count = count.saturating_add(1);
        *count <= TOLD
    };
    let problem = |it: &OverLimit| {
        let (namespace, bytes) = (&it.object.namespace, it.bytes);
        let what = match it.is_there {
            true => "this Secret has become too large, and hosts keep using its previous content",
            false => "this Secret is not copied for hosts, and no host opens a listener with it",
        };
        let message = format!(
            "namespace {namespace} would have {bytes} bytes of certificates on hosts, and may have {}: {what}",
            most.unwrap_or_default()
        );
        Problem::new(it.object.clone(), Reason::LimitReached, message).fix(
            "Name fewer or smaller Secrets in this namespace, or have tenants.limits.certificateBytes raised in the \
             configuration. The existing copies stay in use.",
        )
    };
    all.iter().filter(is_told).map(problem).collect()
}

/// The object that Problems with copies are told of.
fn copies() -> ObjectRef {
    ObjectRef::certificate_copies_config()
}

/// Tells what is wrong, if it is something else than before; an error, if nobody listens.
async fn report_problems(
    changes: &mpsc::Sender<Change>,
    told: &mut Vec<Problem>,
    mut problems: Vec<Problem>,
) -> Result<(), ()> {
    // Of limits, each namespace has so many.
    let mut told_so_far = 0_usize;
    problems.retain(|it| {
        let counts = it.reason != Reason::LimitReached;
        told_so_far = told_so_far.saturating_add(counts.into());
        !counts || told_so_far <= TOLD
    });
    if *told == problems {
        return Ok(());
    }
    for problem in problems.iter().filter(|it| !told.contains(it)) {
        warn!("{}", problem.message);
    }
    told.clone_from(&problems);
    changes.send(Change::Reported(copies(), problems)).await.map_err(drop)
}

#[cfg(test)]
mod tests {
    use seaway_model::Kind;

    use super::*;
    use crate::copies::{COPY_SELECTOR, TYPE};

    #[test]
    fn hosts_ask_for_what_is_written() {
        assert_eq!(COPY_SELECTOR, format!("type={TYPE}"));
        let held = Certificate {
            chain: "x".into(),
            key: String::new().into(),
            authorities: "".into(),
            staple: None,
            users: String::new().into(),
        };
        let wanted = [(ObjectRef::new(Kind::Secret, "a", "b"), Some(Arc::new(held)))].into();
        let limit = CopyLimit { most: None, configured: &BTreeSet::new() };
        let made = plan("uid", &wanted, &CopiesByName::new(), limit).create;
        assert_eq!(made[0].type_.as_deref(), Some(TYPE));
    }
}
