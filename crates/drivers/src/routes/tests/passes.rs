//! Whole passes, against the fake OpenStack, with Nodes and the record in memory.

use std::net::IpAddr;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use seaway_openstack::{
    Call, Cloud, Credentials, Limits, Service, Settings, Source,
    neutron::{
        AddressPair, Network, NewNetwork, NewPort, NewRouter, NewSubnet, Port, PortChange, Route,
        RouterChange, Subnet,
    },
    resource::Id,
};
use seaway_testkit::cloud::{self as fake, Fault};

use super::*;
use crate::nodes::tests::passes::InMemoryNodes;

/// An API server with nothing but the record.
#[derive(Default)]
pub(super) struct InMemoryRecords {
    pub(super) kept: Mutex<(RouteRecord, usize)>,
    pub(super) writes: AtomicUsize,
    /// The next write fails, before or after it is done.
    pub(super) trouble: Mutex<Option<bool>>,
}

impl RouteRecordStore for Arc<InMemoryRecords> {
    async fn read(&self) -> Result<ReadRecord, RequestError> {
        let kept = self.kept.lock().unwrap();
        let version = if kept.1 == 0 { String::new() } else { kept.1.to_string() };
        Ok(ReadRecord { record: kept.0.clone(), version })
    }

    async fn write(&self, record: &RouteRecord, version: &str) -> Result<String, RequestError> {
        let trouble = self.trouble.lock().unwrap().take();
        if trouble == Some(false) {
            return Err(RequestError::unreachable("timed out"));
        }
        let mut kept = self.kept.lock().unwrap();
        assert_eq!(version.parse().unwrap_or(0), kept.1, "it is written by its version");
        *kept = (record.clone(), kept.1 + 1);
        self.writes.fetch_add(1, Ordering::Relaxed);
        match trouble {
            Some(_) => Err(RequestError::unreachable("timed out")),
            None => Ok(kept.1.to_string()),
        }
    }
}

/// A project with a router, one subnet of each family, and Nodes with a port each.
pub(super) struct Stage {
    pub(super) fake: fake::Cloud,
    pub(super) cloud: Cloud,
    network: Id<Network>,
    pub(super) router: Id<Router>,
    pub(super) memory: Arc<InMemoryNodes>,
    pub(super) records: Arc<InMemoryRecords>,
    pub(super) controller: RouteController<Arc<InMemoryNodes>, Arc<InMemoryRecords>>,
    pub(super) settings: RouteSettings,
    leads: Arc<AtomicBool>,
}

pub(super) fn controller(
    cloud: &Cloud,
    memory: &Arc<InMemoryNodes>,
    records: &Arc<InMemoryRecords>,
    leads: &Arc<AtomicBool>,
) -> RouteController<Arc<InMemoryNodes>, Arc<InMemoryRecords>> {
    let (cloud, leads) = (cloud.clone(), leads.clone());
    let join = Box::new(move || -> ConnectFuture {
        let cloud = cloud.clone();
        Box::pin(async move { Ok(cloud) })
    });
    let fence = Fence::new(move || leads.load(Ordering::Relaxed));
    RouteController::new(memory.clone(), records.clone(), join, fence, Box::new(|| Time(1_000_000)))
}

impl Stage {
    pub(super) async fn of(count: u8) -> Stage {
        let fake = fake::Cloud::start();
        let credentials =
            Credentials::password(&fake.auth_url(), "demo", "demopw", "demo").with_region("RegionOne");
        let limits = Limits { per_second: 1_000, in_flight: 100 };
        let settings = Settings { limits, ..Settings::default() };
        let cloud = Cloud::connect(Source::Given(credentials), settings).await.expect("signed in");
        let new = NewNetwork { name: "nodes".into(), ..NewNetwork::new() };
        let network = cloud.all::<Network>().create(&new).await.expect("a network").id;
        let new = NewRouter { name: "nodes".into(), ..NewRouter::new() };
        let router = cloud.all::<Router>().create(&new).await.expect("a router").id;
        for (cidr, family) in [("10.0.0.0/16", 4), ("fd00::/64", 6)] {
            let new =
                NewSubnet { cidr: Some(cidr.to_owned()).into(), ..NewSubnet::new(network.clone(), family) };
            let subnet = cloud.all::<Subnet>().create(&new).await.expect("a subnet").id;
            let path = format!("/routers/{router}/add_router_interface");
            let body = json!({"subnet_id": subnet.to_string()});
            cloud.call(Call::put(Service::Network, "plug", path, body)).await.expect("plugged");
        }
        let (memory, records) = (InMemoryNodes::with([]), Arc::<InMemoryRecords>::default());
        let leads = Arc::new(AtomicBool::new(true));
        let controller = controller(&cloud, &memory, &records, &leads);
        let settings = RouteSettings { router: Some(router.as_str().into()), ..RouteSettings::default() };
        let stage = Stage { fake, cloud, network, router, memory, records, controller, settings, leads };
        for at in 1..=count {
            stage.boot(at).await;
        }
        stage.fake.forget_requests();
        stage
    }

    /// A Node, with a port of its server; what that has written in it beside is kept.
    pub(super) async fn boot(&self, at: u8) -> Id<Port> {
        let mut object =
            node(&format!("n{at}"), &[], &[&format!("10.1.{at}.0/24"), &format!("fd01:{at}::/64")]);
        let pairs = vec![AddressPair::of("192.0.2.1")];
        let new = NewPort {
            device_id: format!("server-n{at}").into(),
            device_owner: "compute:nova".into(),
            allowed_address_pairs: pairs.into(),
            ..NewPort::new(self.network.clone())
        };
        let port = self.cloud.all::<Port>().create(&new).await.expect("a port");
        let ips = port.fixed_ips.iter().filter_map(|it| it.ip_address);
        object.addresses = ips.map(|ip| NodeAddress::new("InternalIP", ip)).collect();
        self.memory.add(object);
        port.id
    }

    pub(super) async fn pass(&mut self) -> PassResult {
        self.controller.pass(&self.settings).await
    }

    pub(super) async fn routes(&self) -> Vec<String> {
        let router: Router = self.cloud.all::<Router>().read(&self.router).await.expect("it is there");
        let mut all: Vec<String> =
            router.routes.iter().map(|it| format!("{} {}", it.destination, it.nexthop)).collect();
        all.sort();
        all
    }

    pub(super) async fn set_routes(&self, routes: &[(&str, &str)]) {
        let routes = routes.iter().map(|(to, hop)| Route::to(to, hop.parse().unwrap())).collect::<Vec<_>>();
        let change = RouterChange { routes: routes.into(), ..RouterChange::default() };
        self.cloud.all::<Router>().change(&self.router, &change).await.expect("it may");
    }

    pub(super) async fn port_of(&self, at: u8) -> Option<RoutedPort> {
        let all: Vec<RoutedPort> =
            self.cloud.all::<Port>().list(seaway_openstack::resource::Query::all()).await.expect("ports");
        all.into_iter().find(|it| it.device_id == format!("server-n{at}"))
    }

    pub(super) async fn pairs(&self, at: u8) -> Vec<String> {
        let port = self.port_of(at).await.expect("it is there");
        port.allowed_address_pairs.iter().map(|it| it.ip_address.clone()).collect()
    }

    pub(super) fn writes(&self) -> usize {
        self.fake.requests().iter().filter(|it| it.method != "GET" && !it.path.contains("/identity/")).count()
    }

    pub(super) fn v4(&self, at: u8) -> String {
        let node = self.memory.node(&format!("n{at}")).expect("it is there");
        node.addresses.iter().find(|it| it.address.contains('.')).expect("it has one").address.clone()
    }

    fn unavailable(&self, at: u8) -> Option<String> {
        let node = self.memory.node(&format!("n{at}")).expect("it is there");
        node.conditions.get("NetworkUnavailable").map(|it| it.0.clone())
    }

    /// The server, its port and its Node are deleted.
    pub(super) async fn lose(&self, at: u8) {
        if let Some(port) = self.port_of(at).await {
            self.cloud.all::<Port>().delete(&port.id).await.expect("it goes");
        }
        self.memory.remove(&format!("n{at}"));
    }
}

#[tokio::test]
async fn a_change_is_one_write_of_the_router_and_one_of_each_port() {
    let mut stage = Stage::of(10).await;
    assert_eq!(stage.pass().await.problems, []);
    let counts = |stage: &Stage| {
        (stage.fake.count("PUT */routers/*"), stage.fake.count("PUT */ports/*"), stage.writes())
    };
    assert_eq!(counts(&stage), (1, 10, 11));
    let reads = stage.fake.count("GET *");
    assert!(reads <= 4, "extensions, the router, ports: {reads}");
    assert_eq!(stage.routes().await.len(), 20);
    assert_eq!(stage.pairs(3).await, ["192.0.2.1", "10.1.3.0/24", "fd01:3::/64"], "pairs of others stay");
    assert!((1..=10).all(|at| stage.unavailable(at).as_deref() == Some("False")));
    assert_eq!(stage.memory.writes(), 10);

    stage.fake.forget_requests();
    let pass = stage.pass().await;
    assert_eq!(
        (pass.problems.len(), pass.next, stage.writes()),
        (0, CYCLE, 0),
        "nothing changed, nothing is written"
    );
    assert_eq!((stage.fake.count("GET *"), stage.memory.writes()), (2, 10), "the router, and ports");
    assert_eq!(stage.records.writes.load(Ordering::Relaxed), 1);

    stage.boot(11).await;
    stage.fake.forget_requests();
    stage.pass().await;
    assert_eq!(counts(&stage), (1, 1, 2), "one Node more");
    stage.lose(4).await;
    stage.fake.forget_requests();
    assert_eq!(stage.pass().await.problems, []);
    assert_eq!(
        counts(&stage),
        (1, 0, 1),
        "one Node less: OCCM could not remove the route of a port that was gone"
    );
    assert_eq!(stage.routes().await.len(), 20);
    assert_eq!(stage.records.kept.lock().unwrap().0.routes.len(), 20);
    assert_eq!(stage.fake.count("PUT */remove_extraroutes"), 1);
}

#[tokio::test]
async fn a_wrong_next_hop_is_corrected_by_one_write_and_routes_of_others_stay() {
    // The seed's case: a route of an operator is kept, a wrong next hop corrected, and the second run does nothing.
    let mut stage = Stage::of(2).await;
    stage
        .set_routes(&[
            ("172.16.0.0/24", "10.0.0.250"),
            ("10.1.1.0/24", "10.0.0.251"),
            ("10.9.0.0/24", "10.0.0.252"),
        ])
        .await;
    stage.fake.forget_requests();
    assert_eq!(stage.pass().await.problems, []);
    assert_eq!(stage.fake.count("PUT */routers/*"), 1, "removed and added at once");
    let routes = stage.routes().await;
    assert!(routes.contains(&format!("10.1.1.0/24 {}", stage.v4(1))), "{routes:?}");
    assert!(
        ["172.16.0.0/24 10.0.0.250", "10.9.0.0/24 10.0.0.252"]
            .iter()
            .all(|it| routes.contains(&(*it).to_owned()))
    );
    assert_eq!(routes.len(), 6, "{routes:?}");
    stage.fake.forget_requests();
    assert_eq!((stage.pass().await.problems.len(), stage.writes()), (0, 0));
}

#[tokio::test]
async fn a_next_hop_that_is_a_port_of_another_is_a_problem() {
    let mut stage = Stage::of(2).await;
    let theirs = stage.boot(9).await;
    stage.memory.remove("n9");
    let theirs: RoutedPort = stage.cloud.all::<Port>().read(&theirs).await.expect("it is there");
    let hop =
        theirs.fixed_ips.iter().filter_map(|it| it.ip_address).find(IpAddr::is_ipv4).expect("it has one");
    stage.set_routes(&[("10.1.1.0/24", &hop.to_string())]).await;
    let pass = stage.pass().await;
    assert_eq!((pass.problems.len(), pass.next), (1, SILENT), "{:?}", pass.problems);
    assert_eq!(pass.problems[0].reason, Reason::RouteForeign);
    let routes = stage.routes().await;
    assert!(
        routes.contains(&format!("10.1.1.0/24 {hop}")) && routes.len() == 4,
        "all but that one: {routes:?}"
    );
    assert_eq!(
        (stage.unavailable(1).as_deref(), stage.unavailable(2).as_deref()),
        (Some("True"), Some("False"))
    );
    // An address that hosts share has no port of its own.
    stage.cloud.all::<Port>().delete(&theirs.id).await.expect("it goes");
    let port = stage.port_of(2).await.expect("it is there");
    let pairs = [vec![AddressPair::of(hop)], port.allowed_address_pairs.clone()].concat();
    let change = PortChange { allowed_address_pairs: pairs.into(), ..PortChange::default() };
    stage.cloud.all::<Port>().change(&port.id, &change).await.expect("it may");
    assert_eq!(stage.pass().await.problems.len(), 1);
    let change =
        PortChange { allowed_address_pairs: port.allowed_address_pairs.into(), ..PortChange::default() };
    stage.cloud.all::<Port>().change(&port.id, &change).await.expect("it may");
    assert_eq!(stage.pass().await.problems, []);
    assert!(stage.routes().await.contains(&format!("10.1.1.0/24 {}", stage.v4(1))));
    assert_eq!(stage.unavailable(1).as_deref(), Some("False"));
}

#[tokio::test]
async fn without_the_atomic_extension_lists_are_written_by_their_revision() {
    let mut stage = Stage::of(1).await;
    stage.fake.without_extension("extraroute-atomic");
    stage.set_routes(&[("172.16.0.0/24", "10.0.0.250")]).await;
    // Another process writes a route between the list and the write: OCCM lost it, and wrote others twice.
    let hold = fake::RequestHold::new();
    stage.fake.fail(Fault::on("PUT */routers/*").hold(&hold));
    let (cloud, router, settings) = (stage.cloud.clone(), stage.router.clone(), stage.settings.clone());
    let controller = &mut stage.controller;
    let meanwhile = async {
        hold.reached(1).await;
        let path = format!("/routers/{router}/add_extraroutes");
        let body = json!({"router": {"routes": [{"destination": "172.17.0.0/24", "nexthop": "10.0.0.251"}]}});
        cloud.call(Call::put(Service::Network, "add route", path, body)).await.expect("it may");
        hold.release();
    };
    let (pass, ()) = tokio::join!(controller.pass(&settings), meanwhile);
    assert_eq!(pass.problems, []);
    let routes = stage.routes().await;
    assert!(
        ["172.16.0.0/24 10.0.0.250", "172.17.0.0/24 10.0.0.251"]
            .iter()
            .all(|it| routes.contains(&(*it).to_owned()))
    );
    assert_eq!(routes.len(), 4, "{routes:?}");
    let lists = stage.fake.requests();
    let lists = lists.iter().filter(|it| it.fits("PUT */routers/*") && !it.path.ends_with("extraroutes"));
    assert!(lists.clone().count() >= 2 && lists.skip(1).all(|it| it.header("if-match").is_some()));
    // Without either, nothing is written.
    let mut stage = Stage::of(1).await;
    stage.fake.without_extension("revision-if-match");
    let pass = stage.pass().await;
    assert!(pass.problems[0].message.contains("no extension revision-if-match"), "{:?}", pass.problems);
    assert_eq!((stage.writes(), stage.memory.writes()), (0, 0));
}

#[tokio::test]
async fn what_neutron_refuses_is_reported_and_all_else_is_written() {
    let mut stage = Stage::of(3).await;
    stage.fake.network_limits(5, 1);
    let pass = stage.pass().await;
    let messages: Vec<String> = pass.problems.iter().map(|it| it.message.to_string()).collect();
    assert!(
        messages.iter().any(|it| it.contains("The number of routes exceeds the maximum 5")),
        "{messages:?}"
    );
    assert!(
        messages.iter().any(|it| it.contains("allowed address pair exceeds the maximum 1")),
        "{messages:?}"
    );
    assert!((1..=3).all(|at| stage.unavailable(at).as_deref() == Some("True")));
    // With the limits in the configuration, what there is room for is written.
    (stage.settings.max_routes, stage.settings.max_pairs) = (Some(5), Some(10));
    stage.fake.network_limits(5, 10);
    stage.pass().await;
    assert_eq!(stage.routes().await.len(), 5);
    stage.fake.forget_requests();
    let pass = stage.pass().await;
    assert_eq!((pass.problems.len(), stage.writes()), (1, 0), "{:?}", pass.problems);
}

#[tokio::test]
async fn nothing_is_written_beside_another_controller_or_leader_or_without_a_router() {
    let mut stage = Stage::of(1).await;
    *stage.memory.occm.lock().unwrap() = Some("occm-host_1".into());
    let pass = stage.pass().await;
    assert_eq!(pass.problems[0].reason, Reason::OtherController);
    assert!(pass.problems[0].message.contains("occm-host_1"), "{:?}", pass.problems);
    *stage.memory.occm.lock().unwrap() = None;
    stage.leads.store(false, Ordering::Relaxed);
    assert_eq!(stage.pass().await.problems, []);
    stage.leads.store(true, Ordering::Relaxed);
    for (router, why) in [
        (None, "cloud.conf has no router-id"),
        (Some("00000000-0000-4000-8000-000000000009"), "the project has no router"),
    ] {
        stage.settings.router = router.map(Into::into);
        let pass = stage.pass().await;
        assert!(pass.problems[0].message.contains(why), "{:?}", pass.problems);
    }
    assert_eq!(
        (stage.writes(), stage.memory.writes(), stage.records.writes.load(Ordering::Relaxed)),
        (0, 0, 0)
    );
}

#[tokio::test]
async fn coming_from_occm_nothing_is_written_and_what_it_made_goes_with_its_node() {
    let mut stage = Stage::of(2).await;
    assert_eq!(stage.pass().await.problems, []);
    // As OCCM leaves it: routes and pairs, and no record.
    *stage.records.kept.lock().unwrap() = (RouteRecord::default(), 0);
    stage.fake.forget_requests();
    assert_eq!((stage.pass().await.problems.len(), stage.writes()), (0, 0));
    let made =
        |stage: &Stage| stage.records.kept.lock().unwrap().0.routes.iter().filter(|it| it.made).count();
    assert_eq!((made(&stage), stage.records.kept.lock().unwrap().0.routes.len()), (0, 4));
    stage.lose(2).await;
    assert_eq!(stage.pass().await.problems, []);
    assert_eq!(stage.routes().await.len(), 2);
}

#[tokio::test]
async fn a_crash_at_any_request_leaves_nothing_that_is_not_known() {
    let mut requests = None;
    for (nth, is_done) in (1..).flat_map(|it| [(it, false), (it, true)]) {
        let mut stage = Stage::of(3).await;
        assert_eq!(stage.pass().await.problems, []);
        stage.boot(4).await;
        stage.lose(2).await;
        let networks = vec!["10.1.99.0/24".to_owned()];
        stage.memory.change("n3", |it| it.pod_cidrs = networks);
        stage.fake.forget_requests();
        // The process dies: nothing it does after that comes to anything.
        let fault = Fault::on("PUT *").nth(nth);
        stage.fake.fail(if is_done { fault.lose_reply() } else { fault.lose_request() });
        let died = stage.pass().await;
        if stage.writes() < nth {
            assert_eq!(died.problems, []);
            requests = Some(nth - 1);
            break;
        }
        let record = stage.records.kept.lock().unwrap().0.clone();
        let there = stage.routes().await;
        for line in &there {
            let known = record.routes.iter().any(|it| format!("{} {}", it.destination, it.nexthop) == *line);
            assert!(known, "{nth} {is_done}: {line} is in no record");
        }
        stage.fake.heal();
        stage.controller = controller(&stage.cloud, &stage.memory, &stage.records, &stage.leads);
        // Another process: one pass, or two where the first one hears that another was faster.
        for _ in 0..2 {
            stage.pass().await;
        }
        stage.fake.forget_requests();
        assert_eq!((stage.pass().await.problems, stage.writes()), (vec![], 0), "{nth} {is_done}");
        let n3 = stage.v4(3);
        let routes = stage.routes().await;
        assert!(
            routes.len() == 5 && routes.contains(&format!("10.1.99.0/24 {n3}")),
            "{nth} {is_done}: {routes:?}"
        );
        assert_eq!(stage.pairs(3).await, ["192.0.2.1", "10.1.99.0/24"], "{nth} {is_done}");
    }
    assert_eq!(requests, Some(3), "two ports and the router");
}

#[tokio::test]
async fn nothing_is_written_before_it_is_recorded() {
    for is_done in [false, true] {
        let mut stage = Stage::of(1).await;
        *stage.records.trouble.lock().unwrap() = Some(is_done);
        let pass = stage.pass().await;
        assert!(pass.problems[0].message.contains("seaway-routes cannot be written"), "{:?}", pass.problems);
        assert_eq!(stage.writes(), 0);
        assert_eq!((stage.pass().await.problems, stage.routes().await.len()), (vec![], 2));
    }
}

#[tokio::test]
async fn one_port_with_a_lasting_error_stops_no_other_and_is_named() {
    let mut stage = Stage::of(3).await;
    let port = stage.port_of(2).await.expect("it is there").id;
    stage.fake.fail(Fault::on(&format!("PUT */ports/{port}")).always().status(500));
    let pass = stage.pass().await;
    let messages: Vec<String> = pass.problems.iter().map(|it| it.message.to_string()).collect();
    assert!(
        messages.len() == 1 && messages[0].contains(&format!("port {port} is not changed")),
        "{messages:?}"
    );
    assert_eq!(
        (stage.routes().await.len(), stage.pairs(1).await.len(), stage.pairs(3).await.len()),
        (6, 3, 3)
    );
    let all: Vec<_> = (1..=3).map(|at| stage.unavailable(at).unwrap_or_default()).collect();
    assert_eq!(all, ["False", "True", "False"]);
}

#[tokio::test]
async fn a_next_hop_outside_of_the_known_subnets_of_the_router_is_kept() {
    // As in its external network, where ports of other projects are not listed.
    let mut stage = Stage::of(2).await;
    assert_eq!(stage.pass().await.problems, []);
    stage.set_routes(&[("10.1.1.0/24", "10.0.0.251")]).await;
    stage.controller.subnets.values_mut().for_each(|it| it.net = net("203.0.113.0/24"));
    let pass = stage.pass().await;
    let reasons: Vec<Reason> = pass.problems.iter().map(|it| it.reason).collect();
    assert_eq!(reasons, [Reason::RouteForeign], "{:?}", pass.problems);
    assert!(stage.routes().await.contains(&"10.1.1.0/24 10.0.0.251".to_owned()));
    // Known again, no port has the address.
    stage.controller.subnets.clear();
    assert_eq!(stage.pass().await.problems, []);
    assert!(!stage.routes().await.contains(&"10.1.1.0/24 10.0.0.251".to_owned()));
}
