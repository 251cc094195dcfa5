//! A fake cloud, somebody signed in to it, and a clock that nobody waits for.

use std::sync::Arc;

use seaway_openstack::{
    Cloud, Credentials, Error, Settings, Source,
    octavia::{LoadBalancer, NewLoadBalancer},
    resource::Collection,
};
use seaway_testkit::cloud as fake;

use super::walks;
use crate::hurried::FastClock;

pub(crate) struct Stage {
    pub(crate) cloud: Cloud,
    pub(crate) fake: fake::Cloud,
    pub(crate) clock: Arc<FastClock>,
}

impl Stage {
    pub(crate) async fn set() -> Stage {
        let fake = fake::Cloud::start();
        let clock = Arc::new(FastClock::new());
        let cloud = sign_in(&fake, "demo", &clock).await.expect("signed in");
        Stage { cloud, fake, clock }
    }

    pub(crate) fn balancers(&self) -> Collection<LoadBalancer> {
        self.cloud.all()
    }

    /// What a load balancer called so is made by.
    pub(crate) async fn new_balancer(&self, name: &str) -> NewLoadBalancer {
        let (_, subnet) = walks::network(&self.cloud, "stage", "10.40.0.0/24").await;
        NewLoadBalancer {
            name: name.into(),
            provider: Some("ovn".to_owned()).into(),
            vip_subnet_id: Some(subnet).into(),
            ..NewLoadBalancer::new()
        }
    }
}

pub(crate) async fn sign_in(fake: &fake::Cloud, user: &str, clock: &Arc<FastClock>) -> Result<Cloud, Error> {
    let password = if user == "admin" { "adminpw" } else { "demopw" };
    let source = Source::Given(Credentials::password(&fake.auth_url(), user, password, user));
    Cloud::connect(source, Settings { clock: clock.clone(), ..Settings::default() }).await
}
