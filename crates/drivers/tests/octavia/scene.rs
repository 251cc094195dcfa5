//! A fake cloud with networks, our driver on it, and Services that want load balancers.

use std::{net::SocketAddr, sync::Arc};

use seaway_drivers::octavia::{Cluster, OCTAVIA, Observed, Octavia};
use seaway_engine::{Conclusion, Driver};
use seaway_model::{
    Desired, Kind, L4, LbKey, Listener, ListenerId, LoadBalancer, ObjectRef, Owner, Pool, PoolId, Unit,
    load_balancer::{Outside, Rule},
    unit::Place,
};
use seaway_openstack::{
    Cloud, Credentials, Settings, Source,
    neutron::{FloatingIp, Gateway, Network, NewNetwork, NewRouter, NewSubnet, Router, Subnet},
    octavia::{self, LoadBalancer as Balancer},
    resource::{Id, Query},
};
use seaway_testkit::{balancing, cloud as fake, conformance::comes_to_rest};

use crate::hurried::Hurried;

pub(crate) struct Scene {
    pub(crate) fake: fake::Cloud,
    pub(crate) cloud: Cloud,
    pub(crate) clock: Arc<Hurried>,
    pub(crate) driver: Octavia,
    pub(crate) subnet: Id<Subnet>,
    provider: &'static str,
}

impl Scene {
    pub(crate) async fn set() -> Scene {
        Scene::with("amphora").await
    }

    pub(crate) async fn with(provider: &'static str) -> Scene {
        let fake = fake::Cloud::start();
        let clock = Arc::new(Hurried::new());
        let cloud = sign_in(&fake, "demo", &clock).await;
        let query = Query::all().with("router:external", true);
        let outside = cloud.all::<Network>().list::<Network>(query).await.unwrap().remove(0).id;
        let network = NewNetwork { name: "nodes".into(), ..NewNetwork::new() };
        let network = cloud.all::<Network>().create(&network).await.unwrap().id;
        let subnet = NewSubnet { cidr: Some("10.0.0.0/24".to_owned()).into(), ..NewSubnet::new(network, 4) };
        let subnet = cloud.all::<Subnet>().create(&subnet).await.unwrap().id;
        let router =
            NewRouter { external_gateway_info: Some(Gateway::to(outside)).into(), ..NewRouter::new() };
        let router = cloud.all::<Router>().create(&router).await.unwrap().id;
        cloud.all::<Router>().add_interface(&router, &subnet).await.unwrap();
        let driver = driver(&cloud, provider);
        Scene { fake, cloud, clock, driver, subnet, provider }
    }

    /// One that knows nothing yet, as after a restart.
    pub(crate) fn restarted(&mut self) {
        self.driver = driver(&self.cloud, self.provider);
    }

    /// What this Service wants: ports in its own order, members by the last byte of their address.
    pub(crate) fn wish(&self, ports: &[u16], members: &[u8]) -> LoadBalancer {
        let outside = Outside {
            ports: ports.iter().map(|it| tcp(*it)).collect(),
            subnet: Some(self.subnet.as_str().into()),
            ..Outside::default()
        };
        let mut wish = LoadBalancer::default();
        wish.options.outside = Some(outside);
        for port in ports {
            let at: Vec<SocketAddr> =
                members.iter().map(|it| SocketAddr::from(([10, 0, 0, *it], 30_000 + port))).collect();
            let pool =
                Pool { id: PoolId(format!("{port}/TCP").into()), owner: owner(), ..balancing::pool(&at) };
            let listener = Listener {
                owner: owner(),
                rules: vec![Rule::everything_to(owner(), pool.id.clone()).into()],
                ..balancing::listener(*port)
            };
            wish.listeners.insert(listener.id(), Arc::new(listener));
            wish.pools.insert(pool.id.clone(), Arc::new(pool));
        }
        wish
    }

    /// The steps that it took.
    pub(crate) async fn reach(&self, wish: &LoadBalancer) -> Vec<String> {
        self.rest(&Desired::LoadBalancer(Arc::new(wish.clone()))).await
    }

    pub(crate) async fn remove(&self) -> Vec<String> {
        self.rest(&Desired::Absent).await
    }

    async fn rest(&self, desired: &Desired) -> Vec<String> {
        comes_to_rest(&self.driver, &unit(), desired, |time| {
            self.fake.advance(time);
            self.clock.advance(time);
        })
        .await
    }

    pub(crate) fn conclude(&self, wish: &LoadBalancer, observed: &Observed) -> Conclusion {
        self.driver.conclude(&unit(), &Desired::LoadBalancer(Arc::new(wish.clone())), observed)
    }

    pub(crate) async fn balancers(&self) -> Vec<Balancer> {
        self.cloud.all::<Balancer>().list(Query::all()).await.unwrap()
    }

    pub(crate) async fn floating(&self) -> Vec<FloatingIp> {
        self.cloud.all::<FloatingIp>().list(Query::all()).await.unwrap()
    }

    pub(crate) async fn listeners(&self) -> Vec<octavia::Listener> {
        self.cloud.all::<octavia::Listener>().list(Query::all()).await.unwrap()
    }

    pub(crate) async fn pools(&self) -> Vec<octavia::Pool> {
        self.cloud.all::<octavia::Pool>().list(Query::all()).await.unwrap()
    }
}

pub(crate) fn owner() -> Owner {
    Owner::Object { object: ObjectRef::new(Kind::Service, "default", "nginxservice"), uid: "uid-1".into() }
}

pub(crate) fn unit() -> Unit {
    let place = Place::Cloud { name: "openstack".into(), driver: OCTAVIA.into() };
    Unit::LoadBalancer(place, LbKey::Of(owner()))
}

pub(crate) fn tcp(port: u16) -> ListenerId {
    ListenerId { l4: L4::Tcp, port }
}

pub(crate) fn cluster() -> Cluster {
    Cluster { uid: "6c1d".into(), name: "kubernetes".into() }
}

pub(crate) fn driver(cloud: &Cloud, provider: &str) -> Octavia {
    let cloud = cloud.clone();
    let join = move || -> seaway_drivers::octavia::Joining {
        let cloud = cloud.clone();
        Box::pin(async move { Ok((cloud, cluster())) })
    };
    Octavia::new(Box::new(join), provider.into(), || true)
}

async fn sign_in(fake: &fake::Cloud, user: &str, clock: &Arc<Hurried>) -> Cloud {
    let password = if user == "admin" { "adminpw" } else { "demopw" };
    let source = Source::Given(Credentials::password(&fake.auth_url(), user, password, user));
    Cloud::connect(source, Settings { clock: clock.clone(), ..Settings::default() }).await.unwrap()
}
