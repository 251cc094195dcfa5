//! How a cloud is joined, and what follows where it does not let us in, is away, or refuses something.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use seaway_engine::Failure;
use seaway_model::{LoadBalancer as Wish, Unit};
use seaway_openstack::{Cloud, Error, Service, Versions, survey::Abilities};

use super::{
    Cluster, LOOK, Observed, Octavia,
    poll::Poll,
    service_backoffs::{Requester, failure},
    steps::ObservedLoadBalancer,
    tls::Stored,
};

/// Signs in and learns whose load balancers these are; tried again until it succeeds.
pub type Join = Box<dyn Fn() -> Joining + Send + Sync>;
pub type Joining = Pin<Box<dyn Future<Output = Result<(Cloud, Cluster), Error>> + Send>>;

pub(super) struct Joined {
    pub(super) cloud: Cloud,
    pub(super) cluster: Cluster,
    pub(super) versions: Arc<Versions>,
    pub(super) poll: Poll,
    pub(super) stored: Stored,
}

impl Octavia {
    /// Units that the cloud refused something, and for which that may be otherwise by now: one of those that were refused
    /// the same, and all others once it was granted. Asks nobody.
    pub fn due(&self) -> Vec<Unit> {
        if self.may_work().is_ok() { self.refusals.due(self.now()) } else { Vec::new() }
    }

    /// Somebody has mended who we are in the cloud: that is tried at once.
    pub fn mended(&self) {
        self.refusals.hurry(self.now());
    }

    pub(super) async fn joined(&self, asker: &Requester<'_>) -> Result<&Joined, Failure> {
        let join = || async {
            let (cloud, cluster) = (self.join)().await?;
            let versions = cloud.versions(Service::LoadBalancer).await?;
            let poll = Poll::new(cloud.clone(), cluster.tag());
            Ok(Joined { cloud, cluster, versions, poll, stored: Stored::default() })
        };
        let first = || async {
            // Whoever waited while another tried in vain need not try as well.
            self.ask(&asker.of_any())?;
            let joined = join().await.map_err(|error| self.failed(asker, &error))?;
            self.backoffs.is_back(Service::LoadBalancer);
            Ok(joined)
        };
        self.joined.get_or_try_init(first).await
    }

    /// What its provider can do: of one that is there, the one that made it. Before the cloud was asked, what its name
    /// alone tells.
    pub(super) fn abilities(&self, wish: &Wish, there: Option<&ObservedLoadBalancer>) -> Abilities {
        let made = there.and_then(|it| it.it.provider.as_deref());
        let asked = wish.options.cloud.as_ref().and_then(|it| it.provider.as_deref());
        let provider = made.or(asked).unwrap_or(&self.provider);
        Abilities::of(provider, self.joined.get().map(|it| &*it.versions))
    }

    /// When what is pending is looked at again.
    pub(super) fn soon(&self, observed: &Observed) -> Duration {
        self.joined.get().map_or(LOOK, |it| it.poll.after(observed.is_pending()))
    }

    pub(super) fn now(&self) -> Instant {
        self.joined.get().map_or_else(|| self.clock.now(), |it| it.cloud.clock().now())
    }

    /// Whether anything is asked of the cloud now.
    pub(super) fn ask(&self, asker: &Requester<'_>) -> Result<(), Failure> {
        self.backoffs.still(self.now(), asker).map_or(Ok(()), Err)
    }

    pub(super) fn failed(&self, asker: &Requester<'_>, error: &Error) -> Failure {
        let now = self.now();
        if let Some(unit) = asker.unit() {
            self.refusals.note(error, unit, now);
        }
        self.backoffs.note(error, now, asker).unwrap_or_else(|| failure(error, asker))
    }
}
