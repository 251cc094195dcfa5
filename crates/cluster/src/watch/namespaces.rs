//! Secrets of those namespaces that let us, where they may not be listed in the whole cluster: an administrator has bound the
//! role in each of them.
//!
//! Only namespaces are asked for in which a Secret is named. All watches end together, and then all is listed again: a
//! version that one of them has reached says nothing of the others. Of a namespace that refuses, what was known goes on.

use std::{collections::BTreeSet, pin::Pin, time::Duration};

use futures::{Stream, StreamExt, stream};
use kube::api::{ListParams, WatchEvent, WatchParams};
use seaway_model::{Kind, Name, Problem, Reason};
use tokio::time::{sleep, timeout};

use super::{
    reflector::{ReceiverDropped, Reflector, key},
    secrets::Secrets,
};
use crate::{
    api_error::{self, ApiError, Cause},
    raw_object::RawObject,
};

const PAGE: u32 = 500;
/// So many namespaces are named that refuse.
const NAMED: usize = 3;

/// Or a watch has ended: nothing, if it ended as watches do.
type WatchResult = Result<WatchEvent<RawObject>, Option<ApiError>>;

type Events = Pin<Box<dyn Stream<Item = WatchResult> + Send>>;

impl Reflector {
    /// In which namespaces Secrets are named; none, where they are not all that is wanted, or where copies are read.
    fn namespaces(&self) -> BTreeSet<Name> {
        let secrets = self.secrets.as_ref().filter(|_| self.cluster.copies_namespace().is_none());
        secrets.map(Secrets::namespaces).unwrap_or_default()
    }

    /// The whole cluster refuses. Returns when all is to be listed again.
    pub(super) async fn follow_namespaces(&mut self, refusal: ApiError) -> Result<(), ReceiverDropped> {
        let namespaces = self.namespaces();
        let (mut followed, mut refused) = (Vec::new(), Vec::new());
        self.known.begin_list();
        for namespace in &namespaces {
            match self.list_namespace(namespace).await? {
                Ok(Some(version)) => followed.push((namespace.clone(), version)),
                Ok(None) => return Ok(()),
                Err(answer @ ApiError::Forbidden(_)) => refused.push((namespace.clone(), answer)),
                Err(answer) => return self.fail("list", answer).await,
            }
        }
        let lets_us = followed.iter().map(|(namespace, _)| namespace.clone()).collect();
        self.send_forbidden(&lets_us).await?;
        if followed.is_empty() {
            let bind = (!refused.is_empty()).then(|| bind(refused.iter().map(|(namespace, _)| namespace)));
            return self.fail_for("list", refusal, bind).await;
        }
        for key in self.known.reported_keys() {
            if !followed.iter().any(|(namespace, _)| *namespace == key.namespace) {
                self.known.note_listed(key);
            }
        }
        for key in self.known.finish_list() {
            self.handle_unlisted(&key, "").await?;
        }
        match refused.first() {
            Some((namespace, answer)) => self.tell_refused(namespace, answer).await?,
            None => self.clear_trouble().await?,
        }
        self.sync().await?;
        let mut events: Vec<Events> = Vec::new();
        for (namespace, version) in followed {
            match self.watch_namespace(&namespace, &version).await {
                Ok(it) => events.push(it),
                Err(answer) => return self.fail("watch", answer).await,
            }
        }
        self.hear_namespaces(&namespaces, stream::select_all(events), refused.is_empty()).await
    }

    /// The version that it is as of; nothing, if all is to be listed again.
    async fn list_namespace(
        &mut self,
        namespace: &Name,
    ) -> Result<Result<Option<String>, ApiError>, ReceiverDropped> {
        let mut params = ListParams { limit: Some(PAGE), ..self.list_params() };
        loop {
            let api = self.cluster.namespaced_api(self.watched, namespace);
            let page = match self.cluster.within_deadline(api.list(&params)).await {
                Ok(page) => page,
                Err(answer) => return Ok(Err(answer)),
            };
            if page.items.iter().any(|it| self.known.was_newer(&key(it), it.version())) {
                self.note_restored().await?;
                return Ok(Ok(None));
            }
            for told in page.items {
                self.known.note_listed(key(&told));
                self.put(&told).await?;
            }
            params.continue_token = page.metadata.continue_.filter(|it| !it.is_empty());
            if params.continue_token.is_none() {
                return Ok(Ok(Some(page.metadata.resource_version.unwrap_or_default())));
            }
        }
    }

    async fn watch_namespace(&self, namespace: &Name, version: &str) -> Result<Events, ApiError> {
        let params =
            WatchParams { field_selector: self.list_params().field_selector, ..WatchParams::default() };
        let api = self.cluster.namespaced_api(self.watched, namespace);
        let watch = self.cluster.within_deadline(api.watch(&params, version)).await?;
        Ok(Box::pin(until_the_end(Box::pin(watch), self.cluster.pace().silence)))
    }

    async fn hear_namespaces(
        &mut self,
        namespaces: &BTreeSet<Name>,
        mut events: impl Stream<Item = WatchResult> + Unpin,
        all: bool,
    ) -> Result<(), ReceiverDropped> {
        let pace = self.cluster.pace();
        let mut anew = std::pin::pin!(self.cluster.requests_restarted());
        // Rights may have been given where they were refused.
        let mut look_again = std::pin::pin!(sleep(pace.look_for));
        loop {
            let next = tokio::select! {
                biased;
                () = &mut anew => return Ok(()),
                () = self.readiness.until_other_epoch(self.epoch) => return Ok(()),
                () = Secrets::until_due(&mut self.secrets) => {
                    if !self.is_kind_wanted() {
                        return Ok(());
                    }
                    self.sync_secrets().await?;
                    if self.namespaces() != *namespaces {
                        // Much may be named at once.
                        sleep(pace.first_retry).await;
                        return Ok(());
                    }
                    continue;
                }
                () = &mut look_again, if !all => return Ok(()),
                next = events.next() => next,
            };
            match next {
                Some(Ok(WatchEvent::Added(told) | WatchEvent::Modified(told))) => {
                    self.put(&told).await?;
                }
                Some(Ok(WatchEvent::Deleted(told))) => {
                    self.remove(&key(&told), told.version()).await?;
                }
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(status))) => {
                    return self.end(ApiError::of(&kube::Error::Api(status))).await;
                }
                Some(Err(Some(answer))) => return self.end(answer).await,
                Some(Err(None)) | None => {
                    sleep(pace.first_retry).await;
                    return Ok(());
                }
            }
        }
    }

    async fn end(&mut self, answer: ApiError) -> Result<(), ReceiverDropped> {
        if answer == ApiError::Expired { Ok(()) } else { self.fail("watch", answer).await }
    }

    async fn tell_refused(&mut self, namespace: &Name, answer: &ApiError) -> Result<(), ReceiverDropped> {
        let message = format!(
            "may not list Secrets in the namespace {namespace}, where a Service, a route or the \
             configuration names one; the last known content of the Secret stays in use: {}",
            answer.why()
        );
        let problem = Problem::new(api_error::api_server(), Reason::NotPermitted, message);
        let problem = problem.fix(bind(std::iter::once(namespace)));
        self.failures = 0;
        self.troubled = true;
        self.troubles.send((Kind::Secret, Some(problem))).await.map_err(|_| ReceiverDropped)
    }
}

/// How controllers are let in there. Of many namespaces the first are named.
fn bind<'n>(mut namespaces: impl Iterator<Item = &'n Name>) -> String {
    let bind = |namespace: &Name| {
        format!(
            "kubectl -n {namespace} create rolebinding seaway-certificates --clusterrole=seaway-certificates \
             --serviceaccount=seaway-system:seaway-controller"
        )
    };
    let commands: Vec<String> = namespaces.by_ref().take(NAMED).map(bind).collect();
    let more = match namespaces.count() {
        0 => String::new(),
        more => format!(" (and in {more} more namespaces)"),
    };
    format!(
        "As an administrator: {}{more}; or remove the fields that name a Secret there.",
        commands.join("; ")
    )
}

/// What a watch says, its end included: one that is silent for too long ends.
fn until_the_end(
    watch: Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<RawObject>>> + Send>>,
    silence: Duration,
) -> impl Stream<Item = WatchResult> + Send {
    stream::unfold(Some(watch), move |watch| async move {
        let mut watch = watch?;
        let end = match timeout(silence, watch.next()).await {
            Ok(Some(Ok(event))) => return Some((Ok(event), Some(watch))),
            Ok(Some(Err(error))) => Some(ApiError::of(&error)),
            Ok(None) => None,
            Err(_) => Some(ApiError::Unreachable(
                Cause::Connection,
                format!("the watch received nothing (no event, no bookmark) for {silence:?}"),
            )),
        };
        Some((Err(end), None))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_that_refuses_is_told_with_the_command_that_lets_controllers_in() {
        let names: Vec<Name> = ["shop", "bank", "mail", "wiki", "blog"].map(Name::from).into();
        let one = bind(names.iter().take(1));
        assert!(
            one.contains("kubectl -n shop create rolebinding seaway-certificates --clusterrole="),
            "{one}"
        );
        assert!(!one.contains("more"), "{one}");
        let all = bind(names.iter());
        assert_eq!(
            (all.matches("kubectl -n").count(), all.contains("2 more namespaces")),
            (3, true),
            "{all}"
        );
    }
}
