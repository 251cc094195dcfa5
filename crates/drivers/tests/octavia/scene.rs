//! A fake cloud with networks, our driver on it, and Services that want load balancers.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use seaway_drivers::octavia::{Cluster, Note, OCTAVIA, Observed, Octavia};
use seaway_engine::{Driver, Failure, Gate, Report, work_once};
use seaway_model::{
    Desired, Kind, L4, LbKey, Listener, ListenerId, LoadBalancer, ObjectRef, Owner, Pool, PoolId, Problem,
    Unit,
    load_balancer::{CloudOptions, Family, Rule},
    unit::Place,
};
use seaway_openstack::{
    Call, Cloud, Credentials, Service, Settings, Source,
    barbican::{Container, Secret},
    neutron::{FloatingIp, Gateway, Network, NewNetwork, NewRouter, NewSubnet, Router, Subnet},
    octavia::{self, LoadBalancer as Balancer},
    resource::{Id, Query},
};
use seaway_testkit::{balancing, cloud as fake, conformance::comes_to_rest};
use serde_json::json;

use crate::hurried::FastClock;

pub(crate) struct Scene {
    pub(crate) fake: fake::Cloud,
    pub(crate) cloud: Cloud,
    pub(crate) clock: Arc<FastClock>,
    pub(crate) driver: Arc<Octavia>,
    pub(crate) subnet: Id<Subnet>,
    provider: &'static str,
}

/// To `add` or `remove`: whether the router leads to the subnet.
pub(crate) async fn interface(change: &str, cloud: &Cloud, router: &Id<Router>, subnet: &Id<Subnet>) {
    let path = format!("/routers/{router}/{change}_router_interface");
    let call = Call::put(Service::Network, "change router interface", path, json!({ "subnet_id": subnet }));
    cloud.call(call).await.unwrap();
}

impl Scene {
    pub(crate) async fn set() -> Scene {
        Scene::with("amphora").await
    }

    pub(crate) async fn with(provider: &'static str) -> Scene {
        Scene::of(fake::Cloud::start(), "demo", provider).await
    }

    /// As somebody who may do more.
    pub(crate) async fn of_an_operator() -> Scene {
        let fake = fake::Cloud::start();
        fake.add_project("operator", "demopw", &["member", "load-balancer_admin"]);
        Scene::of(fake, "operator", "amphora").await
    }

    pub(crate) async fn of(fake: fake::Cloud, user: &str, provider: &'static str) -> Scene {
        let clock = Arc::new(FastClock::new());
        let cloud = sign_in(&fake, user, &clock).await;
        let query = Query::all().with("router:external", true);
        let outside = cloud.all::<Network>().list::<Network>(query).await.unwrap().remove(0).id;
        let network = NewNetwork { name: "nodes".into(), ..NewNetwork::new() };
        let network = cloud.all::<Network>().create(&network).await.unwrap().id;
        let subnet = NewSubnet { cidr: Some("10.0.0.0/24".to_owned()).into(), ..NewSubnet::new(network, 4) };
        let subnet = cloud.all::<Subnet>().create(&subnet).await.unwrap().id;
        let router = NewRouter {
            external_gateway_info: Some(Gateway::of_network(outside)).into(),
            ..NewRouter::new()
        };
        let router = cloud.all::<Router>().create(&router).await.unwrap().id;
        interface("add", &cloud, &router, &subnet).await;
        let driver = Arc::new(driver(&cloud, provider));
        Scene { fake, cloud, clock, driver, subnet, provider }
    }

    pub(crate) async fn admin(&self) -> Cloud {
        sign_in(&self.fake, "admin", &self.clock).await
    }

    /// With room for thousands of VIPs.
    pub(crate) async fn crowded() -> Scene {
        let mut scene = Scene::set().await;
        let network = NewNetwork { name: "vips".into(), ..NewNetwork::new() };
        let network = scene.cloud.all::<Network>().create(&network).await.unwrap().id;
        let subnet = NewSubnet { cidr: Some("10.64.0.0/16".to_owned()).into(), ..NewSubnet::new(network, 4) };
        scene.subnet = scene.cloud.all::<Subnet>().create(&subnet).await.unwrap().id;
        let routers = scene.cloud.all::<Router>();
        let router = routers.list::<Router>(Query::all()).await.unwrap().remove(0).id;
        interface("add", &scene.cloud, &router, &scene.subnet).await;
        let admin = scene.admin().await;
        let project = scene.fake.project_id("demo").unwrap();
        let ports = [("port".to_owned(), -1), ("security_group_rule".to_owned(), -1)].into();
        admin.network_quotas(&project).change(&ports).await.unwrap();
        scene
    }

    /// With a subnet of each family on one network; Octavia's API is that of version `2.x`.
    pub(crate) async fn of_both(minor: usize) -> Scene {
        Scene::of_both_with("amphora", minor).await
    }

    pub(crate) async fn of_both_with(provider: &'static str, minor: usize) -> Scene {
        let scene = Scene::with(provider).await;
        scene.fake.octavia_speaks(minor);
        scene.with_ipv6().await
    }

    pub(crate) async fn with_ipv6(self) -> Scene {
        let scene = self;
        let network = scene.cloud.all::<Subnet>().read::<Subnet>(&scene.subnet).await.unwrap().network_id;
        let six = NewSubnet { cidr: Some("fd00::/64".to_owned()).into(), ..NewSubnet::new(network, 6) };
        scene.cloud.all::<Subnet>().create(&six).await.unwrap();
        scene
    }

    pub(crate) async fn subnet_of_ipv6(&self) -> Id<Subnet> {
        let query = Query::all().with("ip_version", 6);
        self.cloud.all::<Subnet>().list::<Subnet>(query).await.unwrap().remove(0).id
    }

    /// That needs addresses of both families, and has members of both.
    pub(crate) fn wish_of_both(&self, ports: &[u16], members: &[u8]) -> LoadBalancer {
        let mut wish = self.wish(ports, members);
        let outside = wish.options.cloud.as_mut().unwrap();
        (outside.families, outside.both) = (vec![Family::V4, Family::V6], true);
        for pool in wish.pools.values_mut() {
            let pool = Arc::make_mut(pool);
            let six = pool.members.clone().into_iter().map(|mut it| {
                let IpAddr::V4(four) = it.at.ip() else { panic!("it is of IPv4") };
                it.at.set_ip(IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(four.octets()[3])]));
                it
            });
            pool.members.extend(six.collect::<Vec<_>>());
        }
        wish
    }

    /// One that knows nothing yet, as after a restart.
    pub(crate) fn restarted(&mut self) {
        self.driver = Arc::new(driver(&self.cloud, self.provider));
    }

    pub(crate) async fn operator(&self) -> Cloud {
        sign_in(&self.fake, "admin", &self.clock).await
    }

    pub(crate) async fn reach_unit(&self, unit: &Unit, desired: &Desired) -> Vec<String> {
        comes_to_rest(&*self.driver, unit, desired, |time| self.pass(time)).await
    }

    /// What owners are told in passing, by one that knows nothing yet.
    pub(crate) fn hear(&mut self, heard: &Arc<Mutex<Vec<Note>>>) {
        let heard = heard.clone();
        let driver = driver(&self.cloud, self.provider);
        self.driver = Arc::new(driver.telling(Box::new(move |_, note| heard.lock().unwrap().push(note))));
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.fake.advance(time);
        self.clock.advance(time);
    }

    pub(crate) fn wish(&self, ports: &[u16], members: &[u8]) -> LoadBalancer {
        self.wish_of("uid-1", ports, members)
    }

    /// What this Service wants: ports in its own order, members by the last byte of their address.
    pub(crate) fn wish_of(&self, uid: &str, ports: &[u16], members: &[u8]) -> LoadBalancer {
        let owner = || owner_of(uid);
        let outside = CloudOptions {
            ports: ports.iter().map(|it| tcp(*it)).collect(),
            subnet: Some(self.subnet.as_str().into()),
            ..CloudOptions::default()
        };
        let mut wish = LoadBalancer::default();
        wish.options.cloud = Some(outside);
        for port in ports {
            let at: Vec<SocketAddr> =
                members.iter().map(|it| SocketAddr::from(([10, 0, 0, *it], 30_000 + port))).collect();
            let pool =
                Pool { id: PoolId(format!("{port}/TCP").into()), owner: owner(), ..balancing::pool(&at) };
            let listener = Listener {
                owner: owner(),
                rules: vec![Rule::forward_all(owner(), pool.id.clone()).into()],
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

    pub(crate) async fn reach_of(&self, uid: &str, wish: &LoadBalancer) -> Vec<String> {
        self.rest_of(&self.driver, uid, &Desired::LoadBalancer(Arc::new(wish.clone()))).await
    }

    pub(crate) async fn remove_of(&self, uid: &str) -> Vec<String> {
        self.rest_of(&self.driver, uid, &Desired::Absent).await
    }

    pub(crate) async fn reach_by(&self, driver: &Octavia, wish: &LoadBalancer) -> Vec<String> {
        self.rest_of(driver, "uid-1", &Desired::LoadBalancer(Arc::new(wish.clone()))).await
    }

    /// What is told once it is reached.
    pub(crate) async fn reach_telling(&self, wish: &LoadBalancer) -> Vec<Problem> {
        self.reach_telling_of("uid-1", wish).await
    }

    /// Where it is served, once it is.
    pub(crate) async fn served(&self, uid: &str, wish: &LoadBalancer) -> Vec<(IpAddr, u16)> {
        self.concluded(uid, wish).await.serving.iter().map(|it| (it.ip, it.port)).collect()
    }

    pub(crate) async fn reach_telling_of(&self, uid: &str, wish: &LoadBalancer) -> Vec<Problem> {
        self.concluded(uid, wish).await.problems.into_iter().map(|(_, it)| it).collect()
    }

    async fn concluded(&self, uid: &str, wish: &LoadBalancer) -> Report {
        self.concluded_of(&unit_of(&owner_of(uid)), wish).await
    }

    pub(crate) async fn concluded_of(&self, unit: &Unit, wish: &LoadBalancer) -> Report {
        let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
        for _ in 0..100 {
            match work_once(&*self.driver, unit, &desired, &Gate::default()).await {
                Ok(Some(done)) if !done.observed.is_pending() => return done.report,
                Ok(_) | Err(Failure::Wait { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            self.fake.advance(Duration::from_secs(2));
            self.clock.advance(Duration::from_secs(2));
        }
        panic!("it never comes to rest")
    }

    async fn rest(&self, desired: &Desired) -> Vec<String> {
        self.rest_of(&self.driver, "uid-1", desired).await
    }

    async fn rest_of(&self, driver: &Octavia, uid: &str, desired: &Desired) -> Vec<String> {
        comes_to_rest(driver, &unit_of(&owner_of(uid)), desired, |time| self.pass(time)).await
    }

    pub(crate) fn conclude(&self, wish: &LoadBalancer, observed: &Observed) -> Report {
        let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
        let mut report = self.driver.conclude(&unit(), &desired, observed);
        let refused = self.driver.refuse(&unit(), &desired, observed);
        report.problems.extend(refused.into_iter().flat_map(|it| it.problems));
        report
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

    pub(crate) async fn secrets(&self) -> Vec<Secret> {
        self.cloud.all::<Secret>().list(Query::all()).await.unwrap()
    }

    pub(crate) async fn containers(&self) -> Vec<Container> {
        self.cloud.all::<Container>().list(Query::all()).await.unwrap()
    }

    pub(crate) async fn pools(&self) -> Vec<octavia::Pool> {
        self.cloud.all::<octavia::Pool>().list(Query::all()).await.unwrap()
    }
}

pub(crate) fn owner() -> Owner {
    owner_of("uid-1")
}

/// `nginxservice`; others are called by their UID, which may have another namespace before it: `shop/uid-2`.
pub(crate) fn owner_of(uid: &str) -> Owner {
    let (namespace, uid) = uid.split_once('/').unwrap_or(("default", uid));
    let name = if uid.starts_with("uid-1") { "nginxservice" } else { uid };
    Owner::Object { object: ObjectRef::new(Kind::Service, namespace, name), uid: uid.into() }
}

pub(crate) fn unit() -> Unit {
    unit_of(&owner())
}

pub(crate) fn unit_of(owner: &Owner) -> Unit {
    let place = Place::Cloud { name: "openstack".into(), driver: OCTAVIA.into() };
    Unit::LoadBalancer(place, LbKey::Of(owner.clone()))
}

/// Of its other family.
pub(crate) fn second_unit() -> Unit {
    let Unit::LoadBalancer(place, _) = unit() else { panic!("it is one") };
    Unit::LoadBalancer(place, LbKey::Second(owner(), Family::V6))
}

/// Of another Service.
pub(crate) fn other_unit() -> Unit {
    let Unit::LoadBalancer(place, _) = unit() else { panic!("it is one") };
    let object = ObjectRef::new(Kind::Service, "default", "another");
    Unit::LoadBalancer(place, LbKey::Of(Owner::Object { object, uid: "uid-2".into() }))
}

pub(crate) fn tcp(port: u16) -> ListenerId {
    ListenerId { l4: L4::Tcp, port }
}

pub(crate) fn driver(cloud: &Cloud, provider: &str) -> Octavia {
    driver_of(cloud, provider, "6c1d")
}

/// Of the cluster that has this UID; all are called alike.
pub(crate) fn driver_of(cloud: &Cloud, provider: &str, cluster: &'static str) -> Octavia {
    let cloud = cloud.clone();
    let cluster = self::cluster(cluster);
    let join = move || -> seaway_drivers::octavia::Joining {
        let cloud = cloud.clone();
        let cluster = cluster.clone();
        Box::pin(async move { Ok((cloud, cluster)) })
    };
    Octavia::new(Box::new(join), provider.into(), || true)
}

pub(crate) fn cluster(uid: &str) -> Cluster {
    Cluster { uid: uid.into(), name: "kubernetes".into() }
}

async fn sign_in(fake: &fake::Cloud, user: &str, clock: &Arc<FastClock>) -> Cloud {
    let password = if user == "admin" { "adminpw" } else { "demopw" };
    let source = Source::Given(Credentials::password(&fake.auth_url(), user, password, user));
    Cloud::connect(source, Settings { clock: clock.clone(), ..Settings::default() }).await.unwrap()
}

/// All of it over another transport.
pub(crate) fn transport(wish: &mut LoadBalancer, l4: L4) {
    let listeners = std::mem::take(&mut wish.listeners);
    for mut listener in listeners.into_values() {
        Arc::make_mut(&mut listener).l4 = l4;
        wish.listeners.insert(listener.id(), listener);
    }
    wish.pools.values_mut().for_each(|it| Arc::make_mut(it).l4 = l4);
    let ports = &mut wish.options.cloud.as_mut().unwrap().ports;
    ports.iter_mut().for_each(|it| it.l4 = l4);
}
