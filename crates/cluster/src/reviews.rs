//! Who has a token, and whether they may get a path: asked of the API server by TokenReview and SubjectAccessReview.
//!
//! ```text
//!     token ─► known for a while? ─► may it be asked for now? ─► TokenReview ─► SubjectAccessReview
//!                (its digest)          (cache.rs)
//! ```
//! Strangers may come with any number of tokens: they cost the API server a bounded number of questions, and none to those
//! whose token was good a moment ago. Without an answer nobody may.

mod cache;

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, api::PostParams};
use secrecy::{ExposeSecret, SecretString};
use tokio::{sync::Semaphore, time::timeout};
use tracing::{debug, warn};

use self::cache::{Cache, CacheLookup, TokenHistory, digest};
use crate::{api_error::ApiError, connect::Cluster};

/// Scrapers wait for ten seconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Questions at once: for those whose token was good, and for all others.
const AT_ONCE: [usize; 2] = [4, 4];

/// What the API server says of a token: whether its user may read the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewOutcome {
    Allowed,
    /// The API server does not know the token.
    Unauthenticated,
    /// It knows the token, and its owner may not.
    Denied,
    /// Too much is asked at the moment.
    Busy,
    /// The API server does not say.
    Unanswered,
}

/// Asks for one path.
#[derive(Clone)]
pub struct TokenReviewer(Arc<Inner>);

struct Inner {
    cluster: Cluster,
    path: &'static str,
    cache: Mutex<Cache>,
    asking: [Semaphore; 2],
}

impl TokenReviewer {
    pub fn new(cluster: &Cluster, path: &'static str) -> TokenReviewer {
        let (cluster, cache) = (cluster.clone(), Mutex::default());
        TokenReviewer(Arc::new(Inner { cluster, path, cache, asking: AT_ONCE.map(Semaphore::new) }))
    }

    /// Whether who has this token and comes from there may get the path.
    pub async fn review(&self, token: &SecretString, from: IpAddr) -> ReviewOutcome {
        let token_digest = digest(token.expose_secret());
        let history = match self.cache().look_up(&token_digest, from, Instant::now()) {
            CacheLookup::Known(review) => return review,
            CacheLookup::Refuse => return ReviewOutcome::Busy,
            CacheLookup::Review(history) => history,
        };
        let [good, others] = &self.0.asking;
        let asking = if history == TokenHistory::RecentlyAllowed { good } else { others };
        let Ok(_turn) = asking.try_acquire() else { return ReviewOutcome::Busy };
        let review = match timeout(PATIENCE, self.ask(token)).await {
            Ok(Ok(review)) => review,
            Ok(Err(answer)) => {
                match &answer {
                    ApiError::Forbidden(why) => {
                        warn!(
                            "permission for metrics cannot be checked by TokenReview and SubjectAccessReview (deploy/kubernetes/components/metrics/metrics.yaml): {why}"
                        );
                    }
                    other => {
                        debug!(why = other.why(), "TokenReviews and SubjectAccessReviews for metrics failed")
                    }
                }
                return ReviewOutcome::Unanswered;
            }
            Err(_) => return ReviewOutcome::Unanswered,
        };
        self.cache().record(token_digest, review, Instant::now());
        review
    }

    async fn ask(&self, token: &SecretString) -> Result<ReviewOutcome, ApiError> {
        let Inner { cluster, path, .. } = &*self.0;
        let new = PostParams::default();
        let spec = TokenReviewSpec { token: token.expose_secret().to_owned(), ..TokenReviewSpec::default() };
        let api: Api<TokenReview> = Api::all(cluster.client());
        let asked = TokenReview { spec, ..TokenReview::default() };
        let status = cluster.within_deadline(api.create(&new, &asked)).await?.status.unwrap_or_default();
        let user = match status.user {
            Some(user) if status.authenticated == Some(true) => user,
            _ => return Ok(ReviewOutcome::Unauthenticated),
        };
        let api: Api<SubjectAccessReview> = Api::all(cluster.client());
        let asked = SubjectAccessReview { spec: access(user, path), ..SubjectAccessReview::default() };
        let status = cluster.within_deadline(api.create(&new, &asked)).await?.status.unwrap_or_default();
        Ok(if status.allowed && status.denied != Some(true) {
            ReviewOutcome::Allowed
        } else {
            ReviewOutcome::Denied
        })
    }

    /// Nothing is left half done under it.
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.0.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn access(user: UserInfo, path: &str) -> SubjectAccessReviewSpec {
    let path = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
    SubjectAccessReviewSpec {
        user: user.username,
        groups: user.groups,
        uid: user.uid,
        extra: user.extra,
        non_resource_attributes: Some(path),
        ..SubjectAccessReviewSpec::default()
    }
}
