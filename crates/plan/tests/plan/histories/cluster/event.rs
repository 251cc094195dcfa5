//! What may happen.

use std::{net::IpAddr, sync::Arc, time::Duration};

use proptest::prelude::*;
use seaway_model::{
    AnnounceMode, Change, Fact, Kind, L4, ObjectRef, Time,
    bgp::{NextHops, PeerAddress, PeerDistance, PeerFamilies, RemoteAs},
    fact::{
        AddressPool, AdvertisementScope, AnnouncementObject, AnnouncementSpec, BgpAdvertisement, BgpPeer,
        CommunityRef, CommunityValue, EndpointPort, Families, FamilyPolicy, L2Advertisement,
        LabelRequirement, Meta, Node, Selector, Service, ServiceKind, ServicePort, TargetPort,
    },
    load_balancer::Family,
};
use seaway_testkit::facts::{HOST, endpoint, ip, pool, service, slice};

use super::process::CLASS;

/// What comes of working on a Unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Answer {
    Done,
    Waits,
    Fails,
}

#[derive(Clone, Debug)]
pub(in super::super) enum Event {
    /// It comes, or is changed.
    Service(usize, Wish),
    NoService(usize),
    Object(String, Fact),
    NoObject(String),
    /// It is told once more, as it is.
    Again(String),
    /// The leader works on one of the Units that are marked.
    Work(usize, Answer),
    /// So many of the changes that it has not heard of.
    HostHears(usize),
    HostWorks(usize, Answer),
    HostReports,
    HostRestarts(u64),
    ControllerRestarts(u64),
    OtherLeads,
}

/// What somebody writes into a Service.
#[derive(Clone, Debug)]
pub(in super::super) struct Wish {
    kind: ServiceKind,
    cloud: bool,
    ports: Vec<u16>,
    shares: bool,
    asks_for: Option<u8>,
    dual: bool,
}

impl Wish {
    pub(super) fn of(&self, before: &Service) -> Service {
        let mut now = before.clone();
        now.kind = self.kind.clone();
        // A class cannot be changed.
        if before.ports.is_empty() {
            now.class = self.cloud.then(|| CLASS.into());
        }
        now.ports = self.ports.iter().map(|port| port_of(*port)).collect();
        let policy = if self.dual { FamilyPolicy::Prefer } else { FamilyPolicy::Single };
        now.families = Families { policy, first: Some(Family::V4), second: None };
        now.meta.annotations.clear();
        if self.shares {
            now.meta.annotations.insert("seaway.dev/share".into(), "web".into());
        }
        now.load_balancer_ip = self.asks_for.map(|last| format!("192.0.2.{last}").into());
        now
    }
}

fn port_of(port: u16) -> ServicePort {
    ServicePort {
        name: format!("p{port}").into(),
        protocol: L4::Tcp,
        port,
        target: TargetPort::Number(80),
        node_port: Some(30_000 + port),
        app_protocol: None,
    }
}

pub(super) fn service_key(number: usize) -> String {
    format!("service s{number}")
}

/// Nothing is in its spec yet.
pub(super) fn new_service(number: usize, created: u64) -> Service {
    let mut it = service(&format!("s{number}"), &[]);
    it.meta = Meta { uid: format!("uid-{number}-{created}").into(), created: Some(Time(created)), ..it.meta };
    it
}

fn any_wish() -> impl Strategy<Value = Wish> {
    let kind = prop_oneof![4 => Just(ServiceKind::LoadBalancer), 1 => Just(ServiceKind::ClusterIp)];
    let ports = prop::collection::btree_set(80u16..83, 1..3);
    let asks_for = prop::option::weighted(0.2, 10u8..14);
    (kind, prop::bool::weighted(0.3), ports, prop::bool::weighted(0.4), asks_for, prop::bool::weighted(0.2))
        .prop_map(|(kind, cloud, ports, shares, asks_for, dual)| Wish {
            kind,
            cloud,
            ports: ports.into_iter().collect(),
            shares,
            asks_for,
            dual,
        })
}

fn fact_of(change: Change) -> Fact {
    match change {
        Change::Put(fact) => fact,
        other => panic!("{other:?}"),
    }
}

fn any_object() -> impl Strategy<Value = (String, Fact)> {
    let members = (0usize..4, prop::collection::btree_set(1u8..5, 0..3)).prop_map(|(number, ends)| {
        let name = format!("s{number}");
        let ends = ends.iter().map(|end| endpoint(&format!("10.1.0.{end}"))).collect();
        let mut slice = slice(&name, ("p80", 80), ends);
        let first = slice.ports[0].clone();
        slice.ports.extend(["p81", "p82"].map(|name| EndpointPort { name: name.into(), ..first.clone() }));
        (format!("slice {name}"), Fact::Endpoints(Arc::new(slice)))
    });
    let ways = [
        None,
        Some(AnnounceMode::Auto),
        Some(AnnounceMode::Layer2),
        Some(AnnounceMode::Bgp),
        Some(AnnounceMode::None),
    ];
    let pools =
        (10u8..13, 13u8..16, prop::sample::select(ways.to_vec())).prop_map(|(first, last, announce)| {
            let range = (format!("192.0.2.{first}"), format!("192.0.2.{last}"));
            (range, announce)
        });
    let pools = pools.prop_map(|(range, announce)| {
        let Fact::AddressPool(it) = fact_of(pool((&range.0, &range.1))) else { panic!("it is a pool") };
        ("pool".to_owned(), Fact::AddressPool(Arc::new(AddressPool { announce, ..AddressPool::clone(&it) })))
    });
    let nodes = (1u8..4, any::<bool>()).prop_map(|(number, ready)| {
        let meta = Meta { name: format!("n{number}").into(), ..Meta::default() };
        let node = Node { meta, addresses: vec![ip(&format!("10.0.0.{number}"))], ready, ..Node::default() };
        (format!("node n{number}"), Fact::Node(Arc::new(node)))
    });
    prop_oneof![3 => members, 2 => pools, 1 => nodes, 3 => any_announcing()]
}

/// What says how addresses are announced; some of it names what is not there.
fn any_announcing() -> impl Strategy<Value = (String, Fact)> {
    let scope = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(names, here, unclear)| {
        let at = if here { HOST } else { "another" };
        AdvertisementScope {
            pools: if names { vec!["public".into()] } else { Vec::new() },
            host_selectors: vec![Selector(vec![LabelRequirement::Is(
                "kubernetes.io/hostname".into(),
                at.into(),
            )])],
            unclear,
            ..AdvertisementScope::default()
        }
    });
    let says = |kind: Kind, name: &str, says| {
        let object = ObjectRef::new(kind, "", name);
        (
            format!("{kind} {name}"),
            Fact::Announcing(Arc::new(AnnouncementObject { object, created: None, says })),
        )
    };
    let layer2 = scope.clone().prop_map(move |scope| {
        let interfaces = vec!["eth0".into()];
        says(
            Kind::L2Advertisement,
            "a",
            AnnouncementSpec::L2Advertisement(L2Advertisement { scope, interfaces }),
        )
    });
    let bgp =
        (0usize..2, scope, 28u8..33, any::<bool>()).prop_map(move |(number, scope, length, is_named)| {
            let communities = is_named.then(|| CommunityRef::Name("ours".into())).into_iter().collect();
            let aggregation_v4 = Some(length);
            let it = BgpAdvertisement { scope, aggregation_v4, communities, ..BgpAdvertisement::default() };
            says(Kind::BGPAdvertisement, &format!("a{number}"), AnnouncementSpec::BgpAdvertisement(it))
        });
    let peers = (0usize..2, 1u8..3).prop_map(move |(number, at)| {
        says(
            Kind::BGPPeer,
            &format!("p{number}"),
            AnnouncementSpec::BgpPeer(router(ip(&format!("10.9.0.{at}")))),
        )
    });
    let community = (0usize..2, 0u32..2).prop_map(move |(number, value)| {
        let values = [("ours".into(), CommunityValue::Standard(value))].into();
        says(Kind::Community, &format!("c{number}"), AnnouncementSpec::Community(values))
    });
    prop_oneof![1 => layer2, 2 => bgp, 2 => peers, 1 => community]
}

fn router(address: IpAddr) -> BgpPeer {
    BgpPeer {
        to: PeerAddress::Ip { address, port: 179, source: None },
        local_as: 1,
        remote_as: RemoteAs::Number(2),
        router_id: None,
        hold: Duration::from_secs(90),
        keepalive: None,
        connect_retry: Duration::from_secs(10),
        password: None,
        hops: PeerDistance::Direct,
        graceful_restart: None,
        bfd: None,
        next_hops: NextHops::default(),
        families: PeerFamilies { v4: true, v6: true },
        host_selectors: Vec::new(),
    }
}

/// All but Services, which end in their own way.
fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![
        (0usize..4).prop_map(|it| format!("slice s{it}")),
        Just("pool".to_owned()),
        (1u8..4).prop_map(|it| format!("node n{it}")),
        Just("L2Advertisement a".to_owned()),
        (0usize..2).prop_map(|it| format!("BGPAdvertisement a{it}")),
        (0usize..2).prop_map(|it| format!("BGPPeer p{it}")),
        (0usize..2).prop_map(|it| format!("Community c{it}")),
    ]
}

pub(in super::super) fn any_event() -> impl Strategy<Value = Event> {
    let answer = prop_oneof![6 => Just(Answer::Done), 1 => Just(Answer::Waits), 1 => Just(Answer::Fails)];
    prop_oneof![
        8 => (0usize..4, any_wish()).prop_map(|(number, wish)| Event::Service(number, wish)),
        3 => (0usize..4).prop_map(Event::NoService),
        6 => any_object().prop_map(|(key, fact)| Event::Object(key, fact)),
        1 => any_key().prop_map(Event::NoObject),
        1 => any_key().prop_map(Event::Again),
        1 => (0usize..4).prop_map(|it| Event::Again(service_key(it))),
        20 => (any::<usize>(), answer.clone()).prop_map(|(which, answer)| Event::Work(which, answer)),
        8 => (1usize..6).prop_map(Event::HostHears),
        8 => (any::<usize>(), answer).prop_map(|(which, answer)| Event::HostWorks(which, answer)),
        5 => Just(Event::HostReports),
        1 => any::<u64>().prop_map(Event::HostRestarts),
        1 => any::<u64>().prop_map(Event::ControllerRestarts),
        1 => Just(Event::OtherLeads),
    ]
}
